//! Functions of two or three operands composed from primitives.

use super::elementwise::float;
use super::special::in_f64;
use crate::autodiff::custom_gradient;
use crate::operand::{IntoOperand, Operand, promote};
use crate::primitive::{binary, bitcast, broadcast, cast};
use crate::{DType, Error, Result, Scalar, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::BinaryOp;
use fornax_macros::ops;

#[ops(group = "binary", records = RECORDS)]
impl Tensor {
    /// The angle of the point (`other`, `self`), in radians.
    #[op(torch = ["atan2", "arctan2"])]
    pub fn atan2(&self, other: &Tensor) -> Result<Tensor> {
        binary(BinaryOp::Atan2, &float(self)?.into_operand(), &float(other)?.into_operand())
    }

    /// `other − alpha · self`.
    #[op(with(other = Operand), default(alpha = Scalar::Int(1)))]
    pub fn rsub(&self, other: impl IntoOperand, alpha: Scalar) -> Result<Tensor> {
        let scaled = if alpha.to_f64() == 1.0 { self.clone() } else { self.try_mul(alpha)? };
        binary(BinaryOp::Sub, &other.into_operand(), &scaled.into_operand())
    }

    /// Bitwise and; logical for `bool`.
    #[op(with(other = Operand), grad = false)]
    pub fn bitwise_and(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary(BinaryOp::And, &self.into_operand(), &other.into_operand()).map_err(|error| error.named("bitwise_and"))
    }

    /// Bitwise or; logical for `bool`.
    #[op(with(other = Operand), grad = false)]
    pub fn bitwise_or(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary(BinaryOp::Or, &self.into_operand(), &other.into_operand()).map_err(|error| error.named("bitwise_or"))
    }

    /// Bitwise exclusive or; logical for `bool`.
    #[op(with(other = Operand), grad = false)]
    pub fn bitwise_xor(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary(BinaryOp::Xor, &self.into_operand(), &other.into_operand()).map_err(|error| error.named("bitwise_xor"))
    }

    /// `self · 2^other` of integers, by shifting.
    #[op(with(other = Operand), grad = false, torch = ["bitwise_left_shift", "__lshift__"])]
    pub fn bitwise_left_shift(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary(BinaryOp::Shl, &self.into_operand(), &other.into_operand())
    }

    /// `⌊self / 2^other⌋` of integers, by shifting.
    #[op(with(other = Operand), grad = false, torch = ["bitwise_right_shift", "__rshift__"])]
    pub fn bitwise_right_shift(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary(BinaryOp::Shr, &self.into_operand(), &other.into_operand())
    }

    /// `self / other`, rounded towards zero.
    #[op(with(other = Operand), torch = [])]
    pub fn div_trunc(&self, other: impl IntoOperand) -> Result<Tensor> {
        let (lhs, rhs) = (self.into_operand(), other.into_operand());
        let dtype = promote(&lhs, &rhs);
        let (a, b) = broadcast("div", &lhs, &rhs, dtype)?;
        let quotient = binary(BinaryOp::Div, &a.into_operand(), &b.into_operand())?;
        if dtype.is_float() { quotient.try_trunc() } else { Ok(quotient) }
    }

    /// The larger of each pair; NaN only if both are.
    #[op]
    pub fn fmax(&self, other: &Tensor) -> Result<Tensor> {
        let wins = self.try_ge(other)?.try_logical_or(&other.try_isnan()?)?;
        wins.try_where_(self, other)
    }

    /// The smaller of each pair; NaN only if both are.
    #[op]
    pub fn fmin(&self, other: &Tensor) -> Result<Tensor> {
        let wins = self.try_le(other)?.try_logical_or(&other.try_isnan()?)?;
        wins.try_where_(self, other)
    }

    /// `√(self² + other²)`.
    #[op(domain = (0.5, 3.0))]
    pub fn hypot(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = pair("hypot", self, &other.into_operand())?;
        let h = in_f64(&a, |a| (a.square() + b.to_dtype(DType::F64).square()).sqrt())?;
        let infinite = a.try_isinf()?.try_logical_or(&b.try_isinf()?)?;
        h.try_masked_fill(&infinite, f64::INFINITY)
    }

    /// The size of `self` with the sign of `other`, zeros and NaN included.
    #[op(with(other = Operand))]
    pub fn copysign(&self, other: impl IntoOperand) -> Result<Tensor> {
        let other = other.into_operand();
        let x = float(self)?;
        let (x, other) = pair("copysign", &x, &other)?;
        let size = x.try_signbit()?.try_where_(x.try_neg()?, &x)?;
        let y = other.try_signbit()?.try_where_(size.try_neg()?, &size)?.detach();
        let kept = (x.clone(), y.clone());
        let backward = move |dy: &[Option<Tensor>]| {
            let (x, y) = &kept;
            let slope = x.eq(0.0).where_(0.0, y / x.detach()).to_dtype(y.dtype());
            vec![dy[0].as_ref().map(|dy| dy * slope), None]
        };
        Ok(custom_gradient(&[&x, &other], |_| vec![y], backward).swap_remove(0))
    }

    /// `ln(e^self + e^other)`, without overflow.
    #[op]
    pub fn logaddexp(&self, other: &Tensor) -> Result<Tensor> {
        log_add(self, other, 1.0)
    }

    /// `log₂(2^self + 2^other)`, without overflow.
    #[op]
    pub fn logaddexp2(&self, other: &Tensor) -> Result<Tensor> {
        log_add(self, other, core::f64::consts::LN_2)
    }

    /// `self · ln other`, 0 where `self` is 0 (but NaN where `other` is).
    #[op(with(other = Operand), torch = ["xlogy", "special.xlogy"], domain = (0.2, 3.0))]
    pub fn xlogy(&self, other: impl IntoOperand) -> Result<Tensor> {
        times_log("xlogy", self, &other.into_operand(), |y| y.try_log())
    }

    /// `self · ln(1 + other)`, 0 where `self` is 0 (but NaN where `other` is).
    #[op(with(other = Operand), torch = ["special.xlog1py"], domain = (0.2, 3.0))]
    pub fn xlog1py(&self, other: impl IntoOperand) -> Result<Tensor> {
        times_log("xlog1py", self, &other.into_operand(), |y| y.try_log1p())
    }

    /// `self + weight · (end − self)`.
    #[op(with(weight = Operand))]
    pub fn lerp(&self, end: &Tensor, weight: impl IntoOperand) -> Result<Tensor> {
        let weight = match weight.into_operand() {
            Operand::Tensor(weight) => weight,
            Operand::Scalar(weight) => Tensor::full((), weight, self.dtype().compute(), self.device()),
        };
        if !self.dtype().is_float() || end.dtype() != self.dtype() {
            let message = format!("start is {}, end is {}; both must be one float", self.dtype(), end.dtype());
            return Err(Error::dtype("lerp", message));
        }
        rounded_once([self, end, &weight], self.dtype(), |[start, end, weight]| {
            let distance = end.try_sub(start)?;
            // From the nearer end, so that weight 1 gives it exactly.
            let low = start.try_add(weight.try_mul(&distance)?)?;
            let high = end.try_sub(distance.try_mul(weight.try_neg()?.try_add(1.0)?)?)?;
            weight.try_abs()?.try_lt(0.5)?.try_where_(&low, &high)
        })
    }

    /// `self + value · tensor1 · tensor2`.
    #[op(default(value = Scalar::Int(1)))]
    pub fn addcmul(&self, tensor1: &Tensor, tensor2: &Tensor, value: Scalar) -> Result<Tensor> {
        let dtype = self.dtype().promote(tensor1.dtype()).promote(tensor2.dtype());
        rounded_once([self, tensor1, tensor2], dtype, |[x, a, b]| x.try_add(a.try_mul(b)?.try_mul(value)?))
    }

    /// `self + value · tensor1 / tensor2`.
    #[op(default(value = Scalar::Int(1)))]
    pub fn addcdiv(&self, tensor1: &Tensor, tensor2: &Tensor, value: Scalar) -> Result<Tensor> {
        let dtype = self.dtype().promote(tensor1.dtype()).promote(tensor2.dtype());
        if !dtype.is_float() {
            return Err(Error::dtype("addcdiv", format!("needs a float, got {dtype}")).help("use `div` and `add`"));
        }
        rounded_once([self, tensor1, tensor2], dtype, |[x, a, b]| x.try_add(a.try_div(b)?.try_mul(value)?))
    }

    /// Cut off at `min` and `max` (numbers or tensors); the gradient passes between them, bounds included.
    #[op(with(min = Option<Operand>, max = Option<Operand>))]
    pub fn clamp<L: IntoOperand, H: IntoOperand>(&self, min: Option<L>, max: Option<H>) -> Result<Tensor> {
        clamp(self, min.map(IntoOperand::into_operand), max.map(IntoOperand::into_operand))
    }

    /// At least `min`.
    #[op(with(min = Operand))]
    pub fn clamp_min(&self, min: impl IntoOperand) -> Result<Tensor> {
        clamp(self, Some(min.into_operand()), None)
    }

    /// At most `max`.
    #[op(with(max = Operand))]
    pub fn clamp_max(&self, max: impl IntoOperand) -> Result<Tensor> {
        clamp(self, None, Some(max.into_operand()))
    }

    /// 0 below 0, 1 above, `values` at 0.
    #[op(grad = false)]
    pub fn heaviside(&self, values: &Tensor) -> Result<Tensor> {
        let step = self.try_gt(0)?.try_to_dtype(self.dtype())?;
        let step = self.try_eq(0)?.try_where_(values, step)?;
        let (x, step) = broadcast("heaviside", &self.into_operand(), &step.into_operand(), self.dtype())?;
        x.try_ne(&x)?.try_where_(&x, &step)
    }

    /// The next number after `self` in the direction of `other`.
    #[op]
    pub fn nextafter(&self, other: &Tensor) -> Result<Tensor> {
        let (x, other) = broadcast("nextafter", &self.into_operand(), &other.into_operand(), self.dtype())?;
        let integer = match x.dtype() {
            DType::F64 => DType::I64,
            DType::F32 => DType::I32,
            _ => DType::I16,
        };
        let value = x.detach();
        let bits = bitcast(&value, integer)?;
        // Sizes grow with the bits: up where the direction is away from 0.
        let away = value.try_lt(&other)?.try_eq(value.try_gt(0.0)?)?;
        let moved = bitcast(&away.try_where_(bits.try_add(1)?, bits.try_sub(1)?)?, x.dtype())?;
        let least = bitcast(&Tensor::full(value.shape(), 1, integer, value.device()), x.dtype())?;
        let from_zero = other.try_lt(0.0)?.try_where_(least.try_neg()?, &least)?;
        let next = value.try_eq(0.0)?.try_where_(&from_zero, &moved)?;
        let next = value.try_eq(&other)?.try_where_(other.detach(), &next)?;
        let broken = value.try_isnan()?.try_logical_or(&other.try_isnan()?)?;
        let next = next.try_masked_fill(&broken, f64::NAN)?.detach();
        let is_same = value.eq(&other);
        let backward = move |dy: &[Option<Tensor>]| {
            let Some(dy) = &dy[0] else { return vec![None, None] };
            let (own, others) =
                (is_same.where_(0.0, dy).to_dtype(dy.dtype()), is_same.where_(dy, 0.0).to_dtype(dy.dtype()));
            vec![Some(own), Some(others)]
        };
        Ok(custom_gradient(&[&x, &other], |_| vec![next], backward).swap_remove(0))
    }

    /// `self · 2^other`.
    #[op]
    pub fn ldexp(&self, other: &Tensor) -> Result<Tensor> {
        float(self)?.try_mul(float(other)?.try_exp2()?)
    }

    /// The greatest common divisor of integers, by Euclid's algorithm.
    #[op(grad = false)]
    pub fn gcd(&self, other: &Tensor) -> Result<Tensor> {
        let dtype = promote(&self.into_operand(), &other.into_operand());
        if !dtype.is_int() {
            return Err(Error::dtype("gcd", format!("needs integers, got {dtype}")));
        }
        let (a, b) = broadcast("gcd", &self.into_operand(), &other.into_operand(), dtype)?;
        let (mut a, mut b) = (a.try_abs()?, b.try_abs()?);
        // Each two steps halve the larger: 3 steps for 2 bits suffice.
        for _ in 0..dtype.size() * 12 {
            let is_done = b.try_eq(0)?;
            let safe = is_done.try_where_(1, &b)?.try_to_dtype(dtype)?;
            let rest = a.try_fmod(&safe)?;
            let (next_a, next_b) = (is_done.try_where_(&a, &b)?, is_done.try_where_(&b, &rest)?);
            (a, b) = (next_a, next_b);
        }
        a.try_abs()
    }

    /// The least common multiple of integers.
    #[op(grad = false)]
    pub fn lcm(&self, other: &Tensor) -> Result<Tensor> {
        let gcd = self.try_gcd(other)?;
        let is_zero = gcd.try_eq(0)?;
        let safe = is_zero.try_where_(1, &gcd)?.try_to_dtype(gcd.dtype())?;
        let multiple = self.try_div_trunc(&safe)?.try_mul(other)?.try_abs()?;
        is_zero.try_where_(0, &multiple)?.try_to_dtype(gcd.dtype())
    }

    /// `|self − other| ≤ atol + rtol · |other|`, elementwise; infinities are close to themselves, NaN if asked for.
    #[op(grad = false, default(rtol = 1e-5, atol = 1e-8, equal_nan = false))]
    pub fn isclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        let equal = self.try_eq(other)?;
        let (a, b) = (self.try_to_dtype(DType::F64)?, other.try_to_dtype(DType::F64)?);
        let difference = a.try_sub(&b)?.try_abs()?;
        let allowed = b.try_abs()?.try_mul(rtol)?.try_add(atol)?;
        let near = difference.try_le(&allowed)?.try_logical_and(&difference.try_isfinite()?)?;
        let close = equal.try_logical_or(&near)?;
        if !equal_nan {
            return Ok(close);
        }
        close.try_logical_or(&self.try_isnan()?.try_logical_and(&other.try_isnan()?)?)
    }

    /// Whether [`Tensor::isclose`] holds for all elements.
    #[op(grad = false, default(rtol = 1e-5, atol = 1e-8, equal_nan = false))]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        self.try_isclose(other, rtol, atol, equal_nan)?.try_all(())
    }

    /// Whether shapes and all elements are equal.
    #[op(grad = false)]
    pub fn equal(&self, other: &Tensor) -> Result<Tensor> {
        if self.shape() != other.shape() {
            return Ok(Tensor::full((), false, DType::Bool, self.device()));
        }
        self.try_eq(other)?.try_all(())
    }
}

/// `f` in `f32` for halves, rounded to `dtype` at the end only.
#[track_caller]
fn rounded_once<const N: usize>(
    x: [&Tensor; N],
    dtype: DType,
    f: impl FnOnce([&Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    if dtype.compute() == dtype {
        return f(x);
    }
    let mut wide = Vec::with_capacity(N);
    for tensor in x {
        wide.push(cast(tensor, tensor.dtype().compute())?);
    }
    let wide: [&Tensor; N] = core::array::from_fn(|i| &wide[i]);
    cast(&f(wide)?, dtype)
}

/// Both in their common dtype and shape.
#[track_caller]
pub(super) fn pair(op: &str, lhs: &Tensor, rhs: &Operand) -> Result<(Tensor, Tensor)> {
    let lhs = lhs.into_operand();
    broadcast(op, &lhs, rhs, promote(&lhs, rhs))
}

#[track_caller]
fn log_add(a: &Tensor, b: &Tensor, scale: f64) -> Result<Tensor> {
    let (a, b) = (float(a)?, float(b)?);
    let (a, b) = pair("logaddexp", &a, &b.into_operand())?;
    let (dtype, compute) = (a.dtype(), a.dtype().compute());
    let (a, b) = (cast(&a, compute)?, cast(&b, compute)?);
    let (x, y) = (a.detach(), b.detach());
    let high = x.try_maximum(&y)?;
    let apart = x.try_sub(&y)?.try_abs()?.try_mul(-scale)?;
    let sum = high.try_add(apart.try_exp()?.try_log1p()?.try_div(scale)?)?;
    // Equal infinities have no difference.
    let result = x.try_eq(&y)?.try_logical_and(&x.try_isinf()?)?.try_where_(&x, &sum)?;
    let kept = (a.clone(), b.clone());
    let backward = move |dy: &[Option<Tensor>]| {
        let Some(dy) = &dy[0] else { return vec![None, None] };
        let (a, b) = &kept;
        let share = ((a - b) * scale).sigmoid();
        // Two equal infinities share the gradient evenly.
        let share = share.isnan().where_(0.5, &share).to_dtype(dy.dtype());
        vec![Some(dy * &share), Some(dy * (1.0 - share))]
    };
    cast(&custom_gradient(&[&a, &b], |_| vec![result], backward).swap_remove(0), dtype)
}

#[track_caller]
fn times_log(name: &str, x: &Tensor, y: &Operand, log: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = float(x)?;
    let (x, y) = pair(name, &x, y)?;
    let (dtype, compute) = (x.dtype(), x.dtype().compute());
    let (x, y) = (cast(&x, compute)?, cast(&y, compute)?);
    let is_zero = x.try_eq(0.0)?.try_logical_and(&y.try_isnan()?.try_logical_not()?)?;
    // Where the factor is 0, its own slope is still the logarithm, while the logarithm's is 0.
    let endless = y.detach().try_le(0.0)?.try_logical_or(&y.detach().try_isposinf()?)?;
    let safe = is_zero.try_logical_and(&endless)?.try_where_(1.0, &y)?.try_to_dtype(y.dtype())?;
    cast(&x.try_mul(log(&safe)?)?, dtype)
}

#[track_caller]
fn clamp(x: &Tensor, min: Option<Operand>, max: Option<Operand>) -> Result<Tensor> {
    if min.is_none() && max.is_none() {
        return Err(Error::argument("clamp", "needs a bound"));
    }
    let mut dtype = x.dtype();
    let mut shape = x.shape().clone();
    for bound in [&min, &max].into_iter().flatten() {
        dtype = promote(&Tensor::full(&shape, 0, dtype, x.device()).into_operand(), bound);
        if let Operand::Tensor(bound) = bound {
            shape = fornax_ir::broadcast_shapes("clamp", &shape, bound.shape())?;
        }
    }
    let fit = |bound: Option<Operand>, default: f64| -> Result<(Tensor, bool)> {
        Ok(match bound {
            Some(Operand::Tensor(bound)) => (cast(&bound, dtype)?.try_expand(&shape)?, true),
            Some(Operand::Scalar(bound)) => (Tensor::full(&shape, bound, dtype, x.device()), true),
            None => (Tensor::full(&shape, default, DType::F64, x.device()), false),
        })
    };
    let x = cast(x, dtype)?.try_expand(&shape)?;
    let ((low, has_low), (high, has_high)) = (fit(min, f64::NEG_INFINITY)?, fit(max, f64::INFINITY)?);
    let mut y = x.detach();
    if has_low {
        y = y.try_maximum(low.detach())?;
    }
    if has_high {
        y = y.try_minimum(high.detach())?;
    }
    let kept = (x.detach(), low.detach(), high.detach());
    let backward = move |dy: &[Option<Tensor>]| {
        let Some(dy) = &dy[0] else { return vec![None, None, None] };
        let (x, low, high) = &kept;
        let part = |mask: Tensor| Some(mask.where_(dy, 0.0).to_dtype(dy.dtype()));
        let inside = if has_low { x.ge(low) } else { x.eq(x) };
        let inside = if has_high { inside.logical_and(&x.le(high)) } else { inside };
        let below = if has_low { x.lt(low) } else { x.ne(x) };
        let below = if has_low && has_high { below.logical_and(&low.lt(high)) } else { below };
        let above = if has_high { x.gt(high) } else { x.ne(x) };
        let above = if has_low && has_high { above.logical_or(&low.gt(high)) } else { above };
        vec![part(inside), has_low.then(|| part(below)).flatten(), has_high.then(|| part(above)).flatten()]
    };
    Ok(custom_gradient(&[&x, &low, &high], |_| vec![y], backward).swap_remove(0))
}
