//! Elementwise functions of one operand that are primitives: each records one node.
//!
//! Integers and `bool` are taken as `f32` where the result is not an integer, as in PyTorch.

use crate::primitive::{cast, unary};
use crate::{DType, Result, Tensor};
use fornax_ir::UnaryOp;
use fornax_macros::ops;

#[ops(group = "unary", records = RECORDS)]
impl Tensor {
    /// `−self`.
    #[op]
    pub fn neg(&self) -> Result<Tensor> {
        unary(UnaryOp::Neg, self)
    }

    /// `|self|`.
    #[op]
    pub fn abs(&self) -> Result<Tensor> {
        unary(UnaryOp::Abs, self)
    }

    /// −1, 0 or 1; 0 for NaN.
    #[op]
    pub fn sign(&self) -> Result<Tensor> {
        unary(UnaryOp::Sign, self)
    }

    /// `1 / self`.
    #[op(domain = (0.5, 3.0), autocast = high)]
    pub fn reciprocal(&self) -> Result<Tensor> {
        unary(UnaryOp::Recip, &float(self)?)
    }

    /// `√self`.
    #[op(domain = (0.1, 4.0))]
    pub fn sqrt(&self) -> Result<Tensor> {
        unary(UnaryOp::Sqrt, &float(self)?)
    }

    /// `1 / √self`.
    #[op(domain = (0.1, 4.0), autocast = high)]
    pub fn rsqrt(&self) -> Result<Tensor> {
        unary(UnaryOp::Rsqrt, &float(self)?)
    }

    /// `eˣ`.
    #[op(autocast = high)]
    pub fn exp(&self) -> Result<Tensor> {
        unary(UnaryOp::Exp, &float(self)?)
    }

    /// `2ˣ`.
    #[op(torch = ["exp2", "special.exp2"])]
    pub fn exp2(&self) -> Result<Tensor> {
        unary(UnaryOp::Exp2, &float(self)?)
    }

    /// `eˣ − 1`, accurate near 0.
    #[op(torch = ["expm1", "special.expm1"], autocast = high)]
    pub fn expm1(&self) -> Result<Tensor> {
        unary(UnaryOp::Expm1, &float(self)?)
    }

    /// `ln self`.
    #[op(domain = (0.1, 4.0), autocast = high)]
    pub fn log(&self) -> Result<Tensor> {
        unary(UnaryOp::Log, &float(self)?)
    }

    /// `log₂ self`.
    #[op(domain = (0.1, 4.0), autocast = high)]
    pub fn log2(&self) -> Result<Tensor> {
        unary(UnaryOp::Log2, &float(self)?)
    }

    /// `ln(1 + self)`, accurate near 0.
    #[op(domain = (-0.5, 4.0), torch = ["log1p", "special.log1p"], autocast = high)]
    pub fn log1p(&self) -> Result<Tensor> {
        unary(UnaryOp::Log1p, &float(self)?)
    }

    /// `sin self`, in radians.
    #[op]
    pub fn sin(&self) -> Result<Tensor> {
        unary(UnaryOp::Sin, &float(self)?)
    }

    /// `cos self`, in radians.
    #[op]
    pub fn cos(&self) -> Result<Tensor> {
        unary(UnaryOp::Cos, &float(self)?)
    }

    /// `tanh self`.
    #[op]
    pub fn tanh(&self) -> Result<Tensor> {
        unary(UnaryOp::Tanh, &float(self)?)
    }

    /// The error function, `2/√π ∫₀ˣ e^(−t²) dt`.
    #[op(torch = ["erf", "special.erf"])]
    pub fn erf(&self) -> Result<Tensor> {
        unary(UnaryOp::Erf, &float(self)?)
    }

    /// Down to an integer.
    #[op]
    pub fn floor(&self) -> Result<Tensor> {
        if self.dtype().is_float() { unary(UnaryOp::Floor, self) } else { Ok(self.clone()) }
    }

    /// Up to an integer.
    #[op]
    pub fn ceil(&self) -> Result<Tensor> {
        if self.dtype().is_float() { unary(UnaryOp::Ceil, self) } else { Ok(self.clone()) }
    }

    /// Towards zero to an integer.
    #[op(torch = ["trunc", "fix"])]
    pub fn trunc(&self) -> Result<Tensor> {
        if self.dtype().is_float() { unary(UnaryOp::Trunc, self) } else { Ok(self.clone()) }
    }

    /// To the nearest integer, ties to even.
    #[op(torch = ["round", "special.round"])]
    pub fn round(&self) -> Result<Tensor> {
        if self.dtype().is_float() { unary(UnaryOp::Round, self) } else { Ok(self.clone()) }
    }

    /// `self²`.
    #[op]
    pub fn square(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { cast(self, DType::I64)?.try_square() } else { self.try_mul(self) }
    }
}

/// Integers and `bool` as `f32`.
#[track_caller]
pub(crate) fn float(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_float() { Ok(x.clone()) } else { cast(x, DType::F32) }
}
