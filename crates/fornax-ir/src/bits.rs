//! Elementwise ops on single elements, given and returned as bits in the low places of a `u64`: what the interpreter does
//! to a tensor, for whoever folds constants or runs kernels element by element.
//!
//! ```
//! use fornax_ir::{BinaryOp, DType, bits};
//! let sum = bits::binary(BinaryOp::Add, DType::F32, 1.5f32.to_bits().into(), 2.0f32.to_bits().into());
//! assert_eq!(sum, u64::from(3.5f32.to_bits()));
//! assert_eq!(bits::cast(DType::F32, DType::U8, u64::from((-3.0f32).to_bits())), 0);
//! ```

use crate::interp::elementwise;
use crate::{BinaryOp, CompareOp, DType, UnaryOp};
use half::{bf16, f16};

enum Number {
    Int(i128),
    Float(f64),
}

/// The places that an element of `dtype` takes up.
pub const fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - 8 * dtype.size())
}

/// The bits of an integer (wrapped) or truth value (anything but 0 is true).
pub fn from_int(dtype: DType, value: i128) -> u64 {
    match dtype {
        DType::Bool => u64::from(value != 0),
        _ => value as u64 & mask(dtype),
    }
}

/// The integer or truth value of some bits.
pub fn to_int(dtype: DType, bits: u64) -> i128 {
    match dtype {
        DType::I8 => (bits as i8).into(),
        DType::I16 => (bits as i16).into(),
        DType::I32 => (bits as i32).into(),
        DType::I64 => (bits as i64).into(),
        _ => bits.into(),
    }
}

/// The bits of a float, rounded to `dtype`; halves by way of `f32`.
pub fn from_float(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F16 => f16::from_f32(value as f32).to_bits().into(),
        DType::BF16 => bf16::from_f32(value as f32).to_bits().into(),
        DType::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

/// The float of some bits.
pub fn to_float(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F16 => f16::from_bits(bits as u16).to_f64(),
        DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
        DType::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

fn number(dtype: DType, bits: u64) -> Number {
    if dtype.is_float() { Number::Float(to_float(dtype, bits)) } else { Number::Int(to_int(dtype, bits)) }
}

/// One operand.
pub fn unary(op: UnaryOp, dtype: DType, a: u64) -> u64 {
    match number(dtype, a) {
        Number::Int(a) => from_int(dtype, elementwise::unary_int(op, dtype, a)),
        Number::Float(a) => from_float(dtype, elementwise::unary_float(op, a)),
    }
}

/// Two operands. An integer division by zero gives 0.
pub fn binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    match (number(dtype, a), number(dtype, b)) {
        (Number::Float(a), Number::Float(b)) => from_float(dtype, elementwise::binary_float(op, a, b)),
        (Number::Int(a), Number::Int(b)) => {
            let width = dtype.size() as i128 * 8;
            from_int(dtype, elementwise::binary_int(op, width, a, b, &mut None))
        }
        _ => unreachable!("both are of one dtype"),
    }
}

/// A comparison.
pub fn compare(op: CompareOp, dtype: DType, a: u64, b: u64) -> bool {
    match (number(dtype, a), number(dtype, b)) {
        (Number::Float(a), Number::Float(b)) => elementwise::holds(op, &a, &b),
        (Number::Int(a), Number::Int(b)) => elementwise::holds(op, &a, &b),
        _ => unreachable!("both are of one dtype"),
    }
}

/// Conversion.
pub fn cast(from: DType, to: DType, a: u64) -> u64 {
    match (number(from, a), to.is_float()) {
        (Number::Float(a), true) => from_float(to, a),
        (Number::Float(a), false) => from_int(to, elementwise::saturate(a, to)),
        (Number::Int(a), true) => from_float(to, elementwise::int_to_float(a, to)),
        (Number::Int(a), false) => from_int(to, a),
    }
}
