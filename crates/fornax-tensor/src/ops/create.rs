//! Making tensors: from host arrays, filled, counted, random.

use crate::ops::elementwise::float;
use crate::primitive::{cast, constant, source};
use crate::{DType, Device, Element, Error, Result, Scalar, Shape, Tensor};
use alloc::format;
use alloc::vec::Vec;
use fornax_ir::Op;
use fornax_macros::ops;

#[ops(group = "create", records = RECORDS)]
impl Tensor {
    /// `value` in every element, shaped and typed as this tensor.
    #[op(with(value = Scalar), rename(value = "fill_value"), grad = false)]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        constant(value.into(), self.dtype(), self.shape(), self.device())
    }

    /// Zeros, shaped and typed as this tensor.
    #[op(grad = false)]
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0)
    }

    /// Ones, shaped and typed as this tensor.
    #[op(grad = false)]
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1)
    }

    /// `start, start + step, …` below `end`, as `dtype`.
    #[op(call = call_arange, grad = false)]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let (first, last, distance) = (start.to_f64(), end.to_f64(), step.to_f64());
        if distance == 0.0 || !(last - first).is_finite() || (last - first) * distance < 0.0 {
            return Err(Error::argument("arange", format!("no way from {start} to {end} in steps of {step}")));
        }
        let exact = (last - first) / distance;
        let whole = exact as u64;
        let count = if (whole as f64) < exact { whole + 1 } else { whole };
        let shape = Shape::from([count as usize]);
        if shape.checked_numel().is_none() {
            return Err(Error::argument("arange", format!("{count} elements are more than memory can address")));
        }
        let positions = source(Op::Iota { dim: 0 }, DType::I64, shape, device);
        if dtype.is_float() {
            // In f64: a sum of rounded steps would drift.
            let values = cast(&positions, DType::F64)?.try_mul(distance)?.try_add(first)?;
            return cast(&values, dtype);
        }
        cast(&positions.try_mul(step.to_i64())?.try_add(start.to_i64())?, dtype)
    }
}

impl Tensor {
    /// Uniform in `[low, high)`, dtype `f32`, from the device's stream.
    #[track_caller]
    pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, device: &Device) -> Tensor {
        let shape = shape.into();
        let bits = random_bits(&shape, device);
        // The upper 24 bits fill an f32's fraction exactly: 2^24 equally likely values in [0, 1).
        let unit = bits.unit();
        unit * (high - low) + low
    }

    /// Uniform in `[0, 1)`, dtype `f32`.
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>, device: &Device) -> Tensor {
        Tensor::uniform(shape, 0.0, 1.0, device)
    }

    /// Normal with mean 0 and standard deviation 1, dtype `f32`.
    ///
    /// # References
    /// Box, Muller (1958), *A Note on the Generation of Random Normal Deviates*.
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>, device: &Device) -> Tensor {
        let shape = shape.into();
        let (radius, angle) = (random_bits(&shape, device), random_bits(&shape, device));
        // 1 − u lies in (0, 1]: its logarithm is finite.
        let radius = ((1.0 - radius.unit()).log() * -2.0).sqrt();
        radius * (angle.unit() * core::f64::consts::TAU).cos()
    }

    /// Uniform in `[0, 1)`, with the shape, dtype and device of this one.
    #[track_caller]
    #[must_use]
    pub fn rand_like(&self) -> Tensor {
        let unit = Tensor::rand(self.shape(), self.device());
        // As many steps as a half tells apart below 1: rounded, the largest numbers would be 1.
        let steps = match self.dtype() {
            DType::F16 => 2048.0,
            DType::BF16 => 256.0,
            dtype => return unit.to_dtype(dtype),
        };
        ((unit * steps).floor() * (1.0 / steps)).to_dtype(self.dtype())
    }

    /// As [`Tensor::randn`], with the shape, dtype and device of this one.
    #[track_caller]
    #[must_use]
    pub fn randn_like(&self) -> Tensor {
        Tensor::randn(self.shape(), self.device()).to_dtype(self.dtype())
    }

    /// Normal with `mean` and standard deviation `std`, dtype `f32`.
    #[track_caller]
    pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64, device: &Device) -> Tensor {
        Tensor::randn(shape, device) * std + mean
    }

    /// Integers (`i64`) in `[low, high)`, each equally likely.
    ///
    /// # Panics
    /// If there are none, or more than 2^32.
    #[track_caller]
    pub fn randint(low: i64, high: i64, shape: impl Into<Shape>, device: &Device) -> Tensor {
        let span = high.checked_sub(low).filter(|&span| 0 < span && span <= 1 << 32);
        let Some(span) = span else {
            Error::argument("randint", format!("needs 1 to 2^32 integers, got [{low}, {high})")).raise();
        };
        let shape = shape.into();
        // The high word of bits · span: bias below span / 2^64 with 64 random bits, as two products of 32.
        let (high_bits, low_bits) = (random_bits(&shape, device), random_bits(&shape, device));
        let low_product = low_bits.to_dtype(DType::I64) * span;
        let product = high_bits.to_dtype(DType::I64) * span + low_product.shift_right(32);
        product.shift_right(32) + low
    }

    /// 1 with probability `p`, else 0; dtype `bool`.
    #[track_caller]
    pub fn bernoulli_mask(shape: impl Into<Shape>, p: f64, device: &Device) -> Tensor {
        Tensor::rand(shape, device).lt(p)
    }

    /// The numbers 0 to `n` − 1 in random order (`i64`).
    #[track_caller]
    pub fn randperm(n: usize, device: &Device) -> Tensor {
        // Two words a number: equal keys, whose order would be biased, have probability below n² / 2^63.
        let (high, low) = (random_bits(&n.into(), device), random_bits(&n.into(), device));
        let keys = high.to_dtype(DType::I64) * (1i64 << 31) + low.to_dtype(DType::I64).shift_right(1);
        match crate::primitive::argsort(&keys, 0, false) {
            Ok(order) => order,
            Err(error) => error.raise(),
        }
    }

    /// Random bits as numbers in `[0, 1)`.
    #[track_caller]
    fn unit(&self) -> Tensor {
        let top = match crate::primitive::binary(
            fornax_ir::BinaryOp::Shr,
            &crate::IntoOperand::into_operand(self),
            &crate::Operand::Scalar(Scalar::Int(8)),
        ) {
            Ok(top) => top,
            Err(error) => error.raise(),
        };
        top.to_dtype(DType::F32) * (1.0 / 16_777_216.0)
    }

    #[track_caller]
    fn shift_right(&self, bits: i64) -> Tensor {
        let bits = crate::Operand::Scalar(Scalar::Int(bits));
        match crate::primitive::binary(fornax_ir::BinaryOp::Shr, &crate::IntoOperand::into_operand(self), &bits) {
            Ok(shifted) => shifted,
            Err(error) => error.raise(),
        }
    }
}

#[track_caller]
fn random_bits(shape: &Shape, device: &Device) -> Tensor {
    if shape.checked_numel().is_none() {
        Error::shape("random", format!("{shape} has more elements than memory can address")).raise();
    }
    source(device.next_random(shape.numel()), DType::U32, shape.clone(), device)
}

/// Rust types of nested arrays that hold tensor data.
pub trait Nested {
    /// Type of the numbers.
    type Element: Element;
    /// Appends the sizes, outermost first.
    fn shape(&self, shape: &mut Vec<usize>);
    /// Appends the numbers, row-major.
    fn flatten(&self, data: &mut Vec<Self::Element>);
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Nested for $ty {
            type Element = $ty;
            fn shape(&self, _: &mut Vec<usize>) {}
            fn flatten(&self, data: &mut Vec<$ty>) {
                data.push(*self);
            }
        }
    )*};
}

numbers!(bool, u8, u16, u32, u64, i8, i16, i32, i64, half::f16, half::bf16, f32);

/// Literals without a suffix are `f64` in Rust; as tensors they are `f32`, the default dtype.
impl Nested for f64 {
    type Element = f32;
    fn shape(&self, _: &mut Vec<usize>) {}
    fn flatten(&self, data: &mut Vec<f32>) {
        data.push(*self as f32);
    }
}

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;
    fn shape(&self, shape: &mut Vec<usize>) {
        shape.push(N);
        if let Some(first) = self.first() {
            first.shape(shape);
        }
    }
    fn flatten(&self, data: &mut Vec<T::Element>) {
        self.iter().for_each(|inner| inner.flatten(data));
    }
}

impl<T: Nested> From<T> for Tensor {
    /// A tensor on the CPU. `f64` literals become `f32`; [`Tensor::from_vec`] keeps them.
    fn from(data: T) -> Tensor {
        Tensor::of(&data, &Device::cpu())
    }
}

impl Tensor {
    /// A tensor of nested arrays on `device`. `f64` literals become `f32`.
    #[track_caller]
    pub fn of<T: Nested>(data: &T, device: &Device) -> Tensor {
        let (mut shape, mut flat) = (Vec::new(), Vec::new());
        data.shape(&mut shape);
        data.flatten(&mut flat);
        Tensor::from_vec(flat, shape, device)
    }

    /// As `f32` if this is not a float, for ops that need one.
    #[track_caller]
    #[must_use]
    pub fn to_float(&self) -> Tensor {
        match float(self) {
            Ok(x) => x,
            Err(error) => error.raise(),
        }
    }
}

/// Without `dtype`, integers unless a number is not one.
fn call_arange(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let start = args.get::<Option<Scalar>>("start")?.unwrap_or(Scalar::Int(0));
    let step = args.get::<Option<Scalar>>("step")?.unwrap_or(Scalar::Int(1));
    let end = args.get::<Scalar>("end")?;
    let is_float = [start, end, step].iter().any(|number| matches!(number, Scalar::Float(_)));
    let default = if is_float { DType::F32 } else { DType::I64 };
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(default);
    Ok(alloc::vec![Tensor::try_arange(start, end, step, dtype, args.device())?])
}
