//! Elementwise functions that look at a number's parts: sign, fraction, finiteness, decimals, bits.

use crate::primitive::bitcast;
use crate::{DType, Result, Tensor};
use fornax_macros::ops;

#[ops(group = "unary", records = RECORDS)]
impl Tensor {
    /// What is left of the integer part; it has the sign of `self`.
    #[op]
    pub fn frac(&self) -> Result<Tensor> {
        self.try_sub(self.try_trunc()?.detach())
    }

    /// `self`.
    #[op]
    pub fn positive(&self) -> Tensor {
        self.clone()
    }

    /// To `decimals` digits behind the point, ties to even; negative ones round before the point.
    #[op(torch = ["round.decimals_3", "round.decimals_0", "round.decimals_neg_3"], default(decimals = 0), domain = (-3.0, 3.0))]
    pub fn round_decimals(&self, decimals: i64) -> Result<Tensor> {
        let scale = libm::pow(10.0, decimals.unsigned_abs() as f64);
        let x = self.try_to_dtype(DType::F64)?;
        let y = if decimals >= 0 {
            x.try_mul(scale)?.try_round()?.try_div(scale)?
        } else {
            x.try_div(scale)?.try_round()?.try_mul(scale)?
        };
        y.try_to_dtype(self.dtype())
    }

    /// Whether it is NaN.
    #[op(grad = false)]
    pub fn isnan(&self) -> Result<Tensor> {
        self.try_ne(self)
    }

    /// Whether it is ±∞.
    #[op(grad = false)]
    pub fn isinf(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.try_abs()?.try_eq(f64::INFINITY) } else { self.try_ne(self) }
    }

    /// Whether it is neither NaN nor ±∞.
    #[op(grad = false)]
    pub fn isfinite(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.try_abs()?.try_lt(f64::INFINITY) } else { self.try_eq(self) }
    }

    /// Whether it is −∞.
    #[op(grad = false)]
    pub fn isneginf(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.try_eq(f64::NEG_INFINITY) } else { self.try_ne(self) }
    }

    /// Whether it is +∞.
    #[op(grad = false)]
    pub fn isposinf(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.try_eq(f64::INFINITY) } else { self.try_ne(self) }
    }

    /// Whether the sign bit is set: also for −0 and NaN.
    #[op(grad = false)]
    pub fn signbit(&self) -> Result<Tensor> {
        let bits = match self.dtype() {
            DType::F64 => bitcast(&self.detach(), DType::I64)?,
            DType::F32 => bitcast(&self.detach(), DType::I32)?,
            DType::F16 | DType::BF16 => bitcast(&self.detach(), DType::I16)?,
            _ => self.clone(),
        };
        bits.try_lt(0)
    }

    /// Bits turned over; logical not for `bool`.
    #[op(grad = false)]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        crate::primitive::unary(fornax_ir::UnaryOp::Not, self)
    }

    /// NaN becomes `nan` (0), +∞ `posinf` and −∞ `neginf` (the largest and smallest numbers of the dtype).
    #[op]
    pub fn nan_to_num(&self, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        let largest = match self.dtype() {
            DType::F16 => 65504.0,
            DType::BF16 => f64::from_bits(0x47ef_e000_0000_0000),
            DType::F32 => f64::from(f32::MAX),
            DType::F64 => f64::MAX,
            _ => return Ok(self.clone()),
        };
        let y = self.try_masked_fill(&self.try_isnan()?, nan.unwrap_or(0.0))?;
        let y = y.try_masked_fill(&self.try_isposinf()?, posinf.unwrap_or(largest))?;
        y.try_masked_fill(&self.try_isneginf()?, neginf.unwrap_or(-largest))
    }
}
