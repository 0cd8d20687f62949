//! Trigonometric and hyperbolic functions, composed from primitives in the operand's dtype (`f32` for halves).

use super::elementwise::float;
use crate::autodiff::{Reads, with_rule};
use crate::primitive::cast;
use crate::{DType, Result, Tensor};
use core::f64::consts::{LN_2, LN_10, PI};
use fornax_macros::ops;

#[ops(group = "unary", records = RECORDS)]
impl Tensor {
    /// The tangent, of radians.
    #[op(domain = (-1.2, 1.2), autocast = high)]
    pub fn tan(&self) -> Result<Tensor> {
        with_slope(self, Reads::Output, |x| x.sin() / x.cos(), |y| y * y + 1.0)
    }

    /// The arc sine, in radians; NaN beyond ±1.
    #[op(domain = (-0.9, 0.9), torch = ["asin", "arcsin"], autocast = high)]
    pub fn asin(&self) -> Result<Tensor> {
        with_slope(
            self,
            Reads::Input,
            |x| x.atan2(&((1.0 - x) * (x + 1.0)).sqrt()),
            |x| ((1.0 - x) * (x + 1.0)).rsqrt(),
        )
    }

    /// The arc cosine, in radians; NaN beyond ±1.
    #[op(domain = (-0.9, 0.9), torch = ["acos", "arccos"], autocast = high)]
    pub fn acos(&self) -> Result<Tensor> {
        with_slope(
            self,
            Reads::Input,
            |x| ((1.0 - x) * (x + 1.0)).sqrt().atan2(x),
            |x| ((1.0 - x) * (x + 1.0)).rsqrt().neg(),
        )
    }

    /// The arc tangent, in radians.
    #[op(torch = ["atan", "arctan"])]
    pub fn atan(&self) -> Result<Tensor> {
        with_slope(self, Reads::Input, |x| x.atan2(&x.ones_like()), |x| (x * x + 1.0).reciprocal())
    }

    /// The hyperbolic sine.
    #[op(autocast = high)]
    pub fn sinh(&self) -> Result<Tensor> {
        let y = |size: &Tensor| {
            let t = size.expm1();
            let near = (&t + &t / (&t + 1.0)) * 0.5;
            // In two factors: the result is finite where its double is not.
            let half = (size * 0.5).exp();
            size.gt(20.0).where_(&half * 0.5 * &half, near)
        };
        with_slope(self, Reads::Input, |x| odd(x, y), Tensor::cosh)
    }

    /// The hyperbolic cosine.
    #[op(autocast = high)]
    pub fn cosh(&self) -> Result<Tensor> {
        let y = |x: &Tensor| {
            let half = (x.abs() * 0.5).exp();
            &half * 0.5 * &half + (&half * &half).reciprocal() * 0.5
        };
        with_slope(self, Reads::Input, y, Tensor::sinh)
    }

    /// The inverse hyperbolic sine.
    #[op(torch = ["asinh", "arcsinh"])]
    pub fn asinh(&self) -> Result<Tensor> {
        let y = |size: &Tensor| {
            let square = size * size;
            let near = (size + &square / ((&square + 1.0).sqrt() + 1.0)).log1p();
            // Before the square overflows; 1 / (4 x²) is too small to count there.
            size.gt(1e8).where_(size.log() + LN_2, near)
        };
        with_slope(self, Reads::Input, |x| odd(x, y), |x| (x * x + 1.0).rsqrt())
    }

    /// The inverse hyperbolic cosine; NaN below 1.
    #[op(domain = (1.2, 4.0), torch = ["acosh", "arccosh"])]
    pub fn acosh(&self) -> Result<Tensor> {
        let y = |x: &Tensor| {
            let t = x - 1.0;
            let near = (&t + (&t * (&t + 2.0)).sqrt()).log1p();
            x.gt(1e8).where_(x.log() + LN_2, near)
        };
        with_slope(self, Reads::Input, y, |x| (x - 1.0).rsqrt() * (x + 1.0).rsqrt())
    }

    /// The inverse hyperbolic tangent; ±∞ at ±1, NaN beyond.
    #[op(domain = (-0.9, 0.9), torch = ["atanh", "arctanh"])]
    pub fn atanh(&self) -> Result<Tensor> {
        let y = |size: &Tensor| (size * 2.0 / (1.0 - size)).log1p() * 0.5;
        with_slope(self, Reads::Input, |x| odd(x, y), |x| ((1.0 - x) * (x + 1.0)).reciprocal())
    }

    /// The logarithm to base 10, exact at powers of 10.
    #[op(domain = (0.1, 4.0), autocast = high)]
    pub fn log10(&self) -> Result<Tensor> {
        let x = float(self)?;
        let wide = cast(&x.detach(), DType::F64)?;
        // In `f64`, so that what `f32` and halves round to is exact.
        let mut y = wide.try_log()? / LN_10;
        if x.dtype() == DType::F64 {
            let whole = y.round();
            y = Tensor::full_like(&wide, 10).pow(&whole).eq(&wide).where_(whole, y);
        }
        Ok(with_rule(&x, cast(&y, x.dtype())?, Reads::Input, |x, dy| dy / (x * LN_10)))
    }

    /// Degrees as radians.
    #[op]
    pub fn deg2rad(&self) -> Result<Tensor> {
        scaled(self, PI / 180.0)
    }

    /// Radians as degrees.
    #[op]
    pub fn rad2deg(&self) -> Result<Tensor> {
        scaled(self, 180.0 / PI)
    }
}

/// `x` times a number that halves cannot hold.
#[track_caller]
fn scaled(x: &Tensor, factor: f64) -> Result<Tensor> {
    let x = float(x)?;
    cast(&cast(&x, x.dtype().compute())?.try_mul(factor)?, x.dtype())
}

/// `f`, computed off the tape, whose slope is `slope` of the operand or the result; both in `f32` for halves.
#[track_caller]
pub(super) fn with_slope(
    x: &Tensor,
    reads: Reads,
    f: impl FnOnce(&Tensor) -> Tensor,
    slope: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Result<Tensor> {
    let x = float(x)?;
    let (dtype, compute) = (x.dtype(), x.dtype().compute());
    let y = cast(&f(&cast(&x.detach(), compute)?), dtype)?;
    Ok(with_rule(&x, y, reads, move |read, dy| (dy.to_dtype(compute) * slope(&read.to_dtype(compute))).to_dtype(dtype)))
}

/// An odd function by its values at `|x|`; the sign of a zero is kept.
#[track_caller]
fn odd(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    let size = f(&x.abs());
    x.signbit().where_(size.neg(), &size)
}
