//! Sources and elementwise ops.

use super::value::{Numbers, Value, for_each_index};
use crate::{BinaryOp, CompareOp, DType, Shape, UnaryOp, philox};
use alloc::string::String;
use alloc::vec::Vec;

pub(crate) fn iota(dim: usize, shape: &Shape) -> Value {
    let mut ints = Vec::with_capacity(shape.numel());
    for_each_index(shape, |index| ints.push(index[dim] as i128));
    Value::from_ints(DType::I64, shape, &ints)
}

pub(crate) fn random(seed: u64, offset: u64, shape: &Shape) -> Value {
    let ints: Vec<i128> = (0..shape.numel() as u64).map(|i| i128::from(philox::random_word(seed, offset, i))).collect();
    Value::from_ints(DType::U32, shape, &ints)
}

pub(crate) fn unary(op: UnaryOp, x: &Value) -> Value {
    match x.numbers() {
        Numbers::Ints(ints) => {
            let ints: Vec<i128> = ints.into_iter().map(|i| unary_int(op, x.dtype, i)).collect();
            Value::from_ints(x.dtype, &x.shape, &ints)
        }
        Numbers::Floats(floats) => {
            let floats: Vec<f64> = floats.into_iter().map(|f| unary_float(op, f)).collect();
            Value::from_floats(x.dtype, &x.shape, &floats)
        }
    }
}

pub(crate) fn unary_int(op: UnaryOp, dtype: DType, x: i128) -> i128 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => x.signum(),
        UnaryOp::Not if dtype == DType::Bool => 1 - x,
        UnaryOp::Not => !x,
        UnaryOp::Recip
        | UnaryOp::Sqrt
        | UnaryOp::Rsqrt
        | UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Expm1
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Log1p
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round => unreachable!("infer gives {} floats only", op.name()),
    }
}

pub(crate) fn unary_float(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => f64::from(u8::from(x > 0.0)) - f64::from(u8::from(x < 0.0)),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sqrt => libm::sqrt(x),
        UnaryOp::Rsqrt => 1.0 / libm::sqrt(x),
        UnaryOp::Exp => libm::exp(x),
        UnaryOp::Exp2 => libm::exp2(x),
        UnaryOp::Expm1 => libm::expm1(x),
        UnaryOp::Log => libm::log(x),
        UnaryOp::Log2 => libm::log2(x),
        UnaryOp::Log1p => libm::log1p(x),
        UnaryOp::Sin => libm::sin(x),
        UnaryOp::Cos => libm::cos(x),
        UnaryOp::Tanh => libm::tanh(x),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Floor => libm::floor(x),
        UnaryOp::Ceil => libm::ceil(x),
        UnaryOp::Trunc => libm::trunc(x),
        UnaryOp::Round => libm::rint(x),
        UnaryOp::Not => unreachable!("infer gives not no floats"),
    }
}

pub(crate) fn binary(op: BinaryOp, a: &Value, b: &Value, fault: &mut Option<String>) -> Value {
    match (a.numbers(), b.numbers()) {
        (Numbers::Ints(lhs), Numbers::Ints(rhs)) => {
            let width = a.dtype.size() as i128 * 8;
            let ints: Vec<i128> = lhs.into_iter().zip(rhs).map(|(a, b)| binary_int(op, width, a, b, fault)).collect();
            Value::from_ints(a.dtype, &a.shape, &ints)
        }
        (Numbers::Floats(lhs), Numbers::Floats(rhs)) => {
            let floats: Vec<f64> = lhs.into_iter().zip(rhs).map(|(a, b)| binary_float(op, a, b)).collect();
            Value::from_floats(a.dtype, &a.shape, &floats)
        }
        (Numbers::Ints(_), Numbers::Floats(_)) | (Numbers::Floats(_), Numbers::Ints(_)) => {
            unreachable!("infer gives both operands one dtype")
        }
    }
}

/// `bool` is 0 or 1 and anything but 0 is written as true; so `+` is *or*, `·` is *and*.
pub(crate) fn binary_int(op: BinaryOp, width: i128, a: i128, b: i128, fault: &mut Option<String>) -> i128 {
    let shift = (0..width).contains(&b);
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div | BinaryOp::Rem if b == 0 => {
            super::note(fault, || "integer division by zero".into());
            0
        }
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Pow => pow_int(a, b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => {
            if shift {
                a << b
            } else {
                0
            }
        }
        BinaryOp::Shr => {
            if shift {
                a >> b
            } else {
                a >> 127
            }
        }
        BinaryOp::Atan2 => unreachable!("infer gives atan2 floats only"),
    }
}

fn pow_int(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut power, mut square, mut bits) = (1i128, base, exponent);
    while bits > 0 {
        if bits & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        bits >>= 1;
    }
    power
}

pub(crate) fn binary_float(op: BinaryOp, a: f64, b: f64) -> f64 {
    use super::value::Number;
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Rem => libm::fmod(a, b),
        BinaryOp::Pow => libm::pow(a, b),
        BinaryOp::Max => {
            if b.beats(a) {
                b
            } else {
                a
            }
        }
        BinaryOp::Min => {
            if b.undercuts(a) {
                b
            } else {
                a
            }
        }
        BinaryOp::Atan2 => libm::atan2(a, b),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => {
            unreachable!("infer gives {} no floats", op.name())
        }
    }
}

pub(crate) fn compare(op: CompareOp, a: &Value, b: &Value) -> Value {
    fn compare<N: PartialOrd>(op: CompareOp, a: &[N], b: &[N]) -> Vec<i128> {
        a.iter().zip(b).map(|(a, b)| i128::from(holds(op, a, b))).collect()
    }
    let bits = match (a.numbers(), b.numbers()) {
        (Numbers::Ints(a), Numbers::Ints(b)) => compare(op, &a, &b),
        (Numbers::Floats(a), Numbers::Floats(b)) => compare(op, &a, &b),
        (Numbers::Ints(_), Numbers::Floats(_)) | (Numbers::Floats(_), Numbers::Ints(_)) => {
            unreachable!("infer gives both operands one dtype")
        }
    };
    Value::from_ints(DType::Bool, &a.shape, &bits)
}

pub(crate) fn holds<N: PartialOrd>(op: CompareOp, a: &N, b: &N) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
    }
}

pub(crate) fn select(condition: &Value, a: &Value, b: &Value) -> Value {
    let data = (0..a.shape.numel()).flat_map(|i| if condition.data[i] != 0 { a.element(i) } else { b.element(i) });
    Value { dtype: a.dtype, shape: a.shape.clone(), data: data.copied().collect() }
}

pub(crate) fn cast(x: &Value, dtype: DType) -> Value {
    match (x.numbers(), dtype.is_float()) {
        (Numbers::Floats(floats), true) => Value::from_floats(dtype, &x.shape, &floats),
        (Numbers::Ints(ints), false) => Value::from_ints(dtype, &x.shape, &ints),
        (Numbers::Floats(floats), false) => {
            let ints: Vec<i128> = floats.into_iter().map(|x| saturate(x, dtype)).collect();
            Value::from_ints(dtype, &x.shape, &ints)
        }
        (Numbers::Ints(ints), true) => {
            let floats: Vec<f64> = ints.into_iter().map(|x| int_to_float(x, dtype)).collect();
            Value::from_floats(dtype, &x.shape, &floats)
        }
    }
}

/// Halves go by way of `f32`; `f32` itself must not go by way of `f64`.
pub(crate) fn int_to_float(x: i128, dtype: DType) -> f64 {
    if dtype == DType::F64 { x as f64 } else { f64::from(x as f32) }
}

/// Towards zero and into the range of `dtype`; NaN becomes 0, but true for `bool`.
pub(crate) fn saturate(x: f64, dtype: DType) -> i128 {
    match dtype {
        DType::Bool => i128::from(x != 0.0),
        DType::U8 => i128::from(x as u8),
        DType::U16 => i128::from(x as u16),
        DType::U32 => i128::from(x as u32),
        DType::U64 => i128::from(x as u64),
        DType::I8 => i128::from(x as i8),
        DType::I16 => i128::from(x as i16),
        DType::I32 => i128::from(x as i32),
        DType::I64 => i128::from(x as i64),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("floats round, they do not saturate"),
    }
}
