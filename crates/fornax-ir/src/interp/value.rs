//! [`Value`]: what a node holds while the interpreter runs, and how its elements are read and written as numbers.
//!
//! Arithmetic knows two kinds of numbers: `f64` holds every float and `i128` every integer, exactly. Writing a number
//! rounds or wraps it to the dtype; so each result is rounded once (halves: to `f32`, then to the half).

use crate::{DType, Dims, Element, Scalar, Shape};
use alloc::vec::Vec;
use half::{bf16, f16};

/// Row-major, little-endian elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Invariant: `shape.numel() · dtype.size()` bytes; those of `bool` are 0 or 1.
    pub(crate) data: Vec<u8>,
}

/// All elements, as numbers.
pub(crate) enum Numbers {
    /// Of integers and `bool`.
    Ints(Vec<i128>),
    /// Of floats.
    Floats(Vec<f64>),
}

impl Value {
    /// The value of an input. The bytes of `bool` become 0 or 1.
    pub(crate) fn from_bytes(dtype: DType, shape: &Shape, bytes: &[u8]) -> Value {
        let data = match dtype {
            DType::Bool => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
            _ => bytes.to_vec(),
        };
        Value { dtype, shape: shape.clone(), data }
    }

    /// `scalar` in every element.
    pub(crate) fn full(dtype: DType, shape: &Shape, scalar: Scalar) -> Value {
        let bytes = scalar.to_le_bytes(dtype);
        let data = bytes[..dtype.size()].iter().copied().cycle().take(shape.numel() * dtype.size()).collect();
        Value { dtype, shape: shape.clone(), data }
    }

    /// Writes floats: `f32` rounds to nearest even, halves go by way of `f32`.
    pub(crate) fn from_floats(dtype: DType, shape: &Shape, floats: &[f64]) -> Value {
        let mut data = Vec::with_capacity(floats.len() * dtype.size());
        match dtype {
            DType::F16 => write(floats, &mut data, |x| f16::from_f32(x as f32)),
            DType::BF16 => write(floats, &mut data, |x| bf16::from_f32(x as f32)),
            DType::F32 => write(floats, &mut data, |x| x as f32),
            DType::F64 => f64::write_le(floats, &mut data),
            DType::Bool
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64 => unreachable!("infer gives floats a float dtype"),
        }
        Value { dtype, shape: shape.clone(), data }
    }

    /// Writes integers: the low bits stay; for `bool` anything but 0 is true.
    pub(crate) fn from_ints(dtype: DType, shape: &Shape, ints: &[i128]) -> Value {
        let mut data = Vec::with_capacity(ints.len() * dtype.size());
        match dtype {
            DType::Bool => write(ints, &mut data, |x| x != 0),
            DType::U8 => write(ints, &mut data, |x| x as u8),
            DType::U16 => write(ints, &mut data, |x| x as u16),
            DType::U32 => write(ints, &mut data, |x| x as u32),
            DType::U64 => write(ints, &mut data, |x| x as u64),
            DType::I8 => write(ints, &mut data, |x| x as i8),
            DType::I16 => write(ints, &mut data, |x| x as i16),
            DType::I32 => write(ints, &mut data, |x| x as i32),
            DType::I64 => write(ints, &mut data, |x| x as i64),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("infer gives integers no float dtype"),
        }
        Value { dtype, shape: shape.clone(), data }
    }

    /// All elements.
    pub(crate) fn numbers(&self) -> Numbers {
        match self.dtype {
            DType::Bool => Numbers::Ints(read(&self.data, |x: bool| i128::from(x))),
            DType::U8 => Numbers::Ints(read(&self.data, |x: u8| i128::from(x))),
            DType::U16 => Numbers::Ints(read(&self.data, |x: u16| i128::from(x))),
            DType::U32 => Numbers::Ints(read(&self.data, |x: u32| i128::from(x))),
            DType::U64 => Numbers::Ints(read(&self.data, |x: u64| i128::from(x))),
            DType::I8 => Numbers::Ints(read(&self.data, |x: i8| i128::from(x))),
            DType::I16 => Numbers::Ints(read(&self.data, |x: i16| i128::from(x))),
            DType::I32 => Numbers::Ints(read(&self.data, |x: i32| i128::from(x))),
            DType::I64 => Numbers::Ints(read(&self.data, |x: i64| i128::from(x))),
            DType::F16 => Numbers::Floats(read(&self.data, |x: f16| x.to_f64())),
            DType::BF16 => Numbers::Floats(read(&self.data, |x: bf16| x.to_f64())),
            DType::F32 => Numbers::Floats(read(&self.data, |x: f32| f64::from(x))),
            DType::F64 => Numbers::Floats(f64::read_le(&self.data)),
        }
    }

    /// All elements of a float dtype.
    pub(crate) fn floats(&self) -> Vec<f64> {
        match self.numbers() {
            Numbers::Floats(floats) => floats,
            Numbers::Ints(_) => unreachable!("infer gives this op floats"),
        }
    }

    /// All elements of an integer dtype or `bool`.
    pub(crate) fn ints(&self) -> Vec<i128> {
        match self.numbers() {
            Numbers::Ints(ints) => ints,
            Numbers::Floats(_) => unreachable!("infer gives this op integers"),
        }
    }

    /// The bytes of element `i`.
    pub(crate) fn element(&self, i: usize) -> &[u8] {
        &self.data[i * self.dtype.size()..][..self.dtype.size()]
    }
}

fn write<N: Copy, T: Element>(numbers: &[N], data: &mut Vec<u8>, to: impl Fn(N) -> T) {
    for &number in numbers {
        T::write_le(&[to(number)], data);
    }
}

fn read<T: Element, N>(data: &[u8], from: impl Fn(T) -> N) -> Vec<N> {
    T::read_le(data).into_iter().map(from).collect()
}

/// A number that accumulates: `i128` or `f64`.
pub(crate) trait Number: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn into_value(dtype: DType, shape: &Shape, numbers: &[Self]) -> Value;

    /// Whether `self` takes the place of `best` as the largest: it is larger, or the first NaN.
    fn beats(self, best: Self) -> bool {
        !best.is_nan() && (self.is_nan() || self > best)
    }

    /// Whether `self` takes the place of `best` as the smallest: it is smaller, or the first NaN.
    fn undercuts(self, best: Self) -> bool {
        !best.is_nan() && (self.is_nan() || self < best)
    }
}

impl Number for i128 {
    const ZERO: i128 = 0;
    const ONE: i128 = 1;
    // Wrapping at 128 bits keeps the low 64 right.
    fn add(self, other: i128) -> i128 {
        self.wrapping_add(other)
    }
    fn mul(self, other: i128) -> i128 {
        self.wrapping_mul(other)
    }
    fn is_nan(self) -> bool {
        false
    }
    fn into_value(dtype: DType, shape: &Shape, numbers: &[i128]) -> Value {
        Value::from_ints(dtype, shape, numbers)
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    fn add(self, other: f64) -> f64 {
        self + other
    }
    fn mul(self, other: f64) -> f64 {
        self * other
    }
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    fn into_value(dtype: DType, shape: &Shape, numbers: &[f64]) -> Value {
        Value::from_floats(dtype, shape, numbers)
    }
}

/// Calls `visit` with every index of `shape`, row-major.
pub(crate) fn for_each_index(shape: &Shape, mut visit: impl FnMut(&[usize])) {
    let mut index = Dims::from_elem(0, shape.rank());
    for _ in 0..shape.numel() {
        visit(&index);
        for dim in (0..shape.rank()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
}

/// The row-major number of `index` in `shape`.
///
/// # Panics
/// If it is outside: a mistake of the interpreter.
#[track_caller]
pub(crate) fn place(shape: &Shape, index: &[usize]) -> usize {
    assert_eq!(shape.rank(), index.len(), "{index:?} in {shape}");
    shape.iter().zip(index).fold(0, |place, (&size, &i)| {
        assert!(i < size, "{index:?} is outside {shape}");
        place * size + i
    })
}
