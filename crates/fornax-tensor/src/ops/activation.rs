//! Activation functions. Halves are computed in `f32` and rounded once.

use super::elementwise::float;
use super::nn::wide;
use crate::autodiff::{Reads, with_rule};
use crate::dims::{IntoDim, keepdim, resolve_dim};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use fornax_ir::Dims;
use fornax_macros::ops;

/// SELU's constants: they make a normal distribution a fixed point.
///
/// Klambauer, Unterthiner, Mayr, Hochreiter (2017), *Self-Normalizing Neural Networks*, arXiv:1706.02515.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `self` above 0, `alpha · (e^self − 1)` below.
    #[op(torch = ["nn.functional.elu"], default(alpha = 1.0))]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x.gt(0.0).where_(x, x.minimum(0.0).expm1() * alpha)))
    }

    /// ELU that is smooth for every `alpha`: `max(0, x) + min(0, alpha · (e^(x / alpha) − 1))`.
    #[op(torch = ["nn.functional.celu"], default(alpha = 1.0))]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x.gt(0.0).where_(x, (x.minimum(0.0) / alpha).expm1() * alpha)))
    }

    /// Scaled ELU with the self-normalizing constants.
    #[op(torch = ["nn.functional.selu"])]
    pub fn selu(&self) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x.elu(SELU_ALPHA) * SELU_SCALE))
    }

    /// The first half of `dim` times the sigmoid of the second.
    ///
    /// # References
    /// Dauphin, Fan, Auli, Grangier (2016), *Language Modeling with Gated Convolutional Networks*, arXiv:1612.08083.
    #[op(torch = ["nn.functional.glu"], default(dim = -1), with(dim = i64))]
    pub fn glu(&self, dim: impl IntoDim) -> Result<Tensor> {
        let dim = resolve_dim("glu", dim.into_dim(), self.shape())?;
        let size = self.shape().get(dim).copied().unwrap_or(1);
        if size % 2 != 0 {
            return Err(Error::shape("glu", format!("dim {dim} of {} is odd", self.shape())));
        }
        let (value, gate) = (self.try_narrow(dim, 0, size / 2)?, self.try_narrow(dim, (size / 2) as i64, size / 2)?);
        value.try_mul(gate.try_sigmoid()?)
    }

    /// 0 between `−lambd` and `lambd`, else `self`.
    #[op(torch = ["nn.functional.hardshrink"], default(lambd = 0.5))]
    pub fn hardshrink(&self, lambd: f64) -> Result<Tensor> {
        let inside = self.try_ge(-lambd)?.try_logical_and(&self.try_le(lambd)?)?;
        self.try_masked_fill(&inside, 0.0)
    }

    /// Towards 0 by `lambd`, 0 between `−lambd` and `lambd`.
    #[op(torch = ["nn.functional.softshrink"], default(lambd = 0.5))]
    pub fn softshrink(&self, lambd: f64) -> Result<Tensor> {
        let low = self.try_lt(-lambd)?.try_where_(self.try_add(lambd)?, self.try_mul(0.0)?)?;
        self.try_gt(lambd)?.try_where_(self.try_sub(lambd)?, &low)?.try_to_dtype(self.dtype())
    }

    /// `min(max(self + 3, 0), 6) / 6`.
    #[op(torch = ["nn.functional.hardsigmoid"])]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| (x + 3.0).hardtanh(0.0, 6.0) / 6.0))
    }

    /// `self · hardsigmoid(self)`.
    #[op(torch = ["nn.functional.hardswish"])]
    pub fn hardswish(&self) -> Result<Tensor> {
        let x = float(self)?;
        let y = wide(&x.detach(), |x| x * (x + 3.0).hardtanh(0.0, 6.0) / 6.0);
        Ok(with_rule(&x, y, Reads::Input, |x, dy| {
            let inner = x.le(3.0).where_(x / 3.0 + 0.5, x.ones_like());
            x.lt(-3.0).where_(0.0, dy * inner).to_dtype(dy.dtype())
        }))
    }

    /// `self` cut off at `min_val` and `max_val`; no gradient at or beyond them.
    #[op(torch = ["nn.functional.hardtanh"], default(min_val = -1.0, max_val = 1.0))]
    pub fn hardtanh(&self, min_val: f64, max_val: f64) -> Result<Tensor> {
        let low = self.try_le(min_val)?.try_where_(min_val, self)?;
        self.try_ge(max_val)?.try_where_(max_val, &low)?.try_to_dtype(self.dtype())
    }

    /// `min(max(self, 0), 6)`.
    #[op(torch = ["nn.functional.relu6"])]
    pub fn relu6(&self) -> Result<Tensor> {
        self.try_hardtanh(0.0, 6.0)
    }

    /// `self` above 0, `negative_slope · self` below.
    #[op(torch = ["nn.functional.leaky_relu"], default(negative_slope = 0.01))]
    pub fn leaky_relu(&self, negative_slope: f64) -> Result<Tensor> {
        self.try_gt(0.0)?.try_where_(self, self.try_mul(negative_slope)?)
    }

    /// `self` above 0, `weight · self` below; one weight, or one a channel (dim 1).
    #[op(torch = ["nn.functional.prelu"])]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let weight = if weight.numel() == 1 {
            weight.try_reshape(())?
        } else {
            if self.rank() < 2 || weight.numel() != self.shape()[1] {
                let message = format!("weight {} does not fit the channels of {}", weight.shape(), self.shape());
                return Err(Error::shape("prelu", message));
            }
            let mut shape = Shape::from(Dims::from_elem(1, self.rank()));
            shape.dims_mut()[1] = weight.numel();
            weight.try_reshape(shape)?
        };
        self.try_gt(0.0)?.try_where_(self, self.try_mul(&weight)?)
    }

    /// `ln sigmoid(self)`, without overflow.
    #[op(torch = ["nn.functional.logsigmoid"])]
    pub fn logsigmoid(&self) -> Result<Tensor> {
        let x = float(self)?;
        let y = wide(&x.detach(), |x| x.minimum(0.0) - x.abs().neg().exp().log1p());
        Ok(with_rule(&x, y, Reads::Input, |x, dy| dy * x.neg().sigmoid()))
    }

    /// `ln(1 + e^(beta · self)) / beta`; `self` where `beta · self` exceeds `threshold`.
    #[op(torch = ["nn.functional.softplus"], default(beta = 1.0, threshold = 20.0), autocast = high)]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        let x = float(self)?;
        let y = wide(&x.detach(), |x| {
            let scaled = x * beta;
            // ln(1 + eˣ) = max(x, 0) + ln(1 + e^(−|x|)) never exponentiates a positive number.
            let soft = (scaled.maximum(0.0) + scaled.abs().neg().exp().log1p()) / beta;
            scaled.gt(threshold).where_(x, soft)
        });
        Ok(with_rule(&x, y, Reads::Input, move |x, dy| {
            let scaled = x * beta;
            scaled.gt(threshold).where_(dy, dy * scaled.sigmoid())
        }))
    }

    /// `self · tanh(softplus(self))`.
    ///
    /// # References
    /// Misra (2019), *Mish: A Self Regularized Non-Monotonic Activation Function*, arXiv:1908.08681.
    #[op(torch = ["nn.functional.mish"])]
    pub fn mish(&self) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x * x.softplus(1.0, 20.0).tanh()))
    }

    /// `self / (1 + |self|)`.
    #[op(torch = ["nn.functional.softsign"])]
    pub fn softsign(&self) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x / (x.abs() + 1.0)))
    }

    /// `self − tanh(self)`.
    #[op(torch = ["nn.functional.tanhshrink"])]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        Ok(wide(&float(self)?, |x| x - x.tanh()))
    }

    /// `value` at or below `threshold`, else `self`.
    #[op(torch = ["nn.functional.threshold"])]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        self.try_masked_fill(&self.try_le(threshold)?, value)
    }

    /// `eˣ / (1 + Σ eˣ)` along `dim`: softmax with a further element 0 that is left out.
    #[op(torch = [], with(dim = i64), autocast = high)]
    pub fn quiet_softmax(&self, dim: impl IntoDim) -> Result<Tensor> {
        let dim = resolve_dim("quiet_softmax", dim.into_dim(), self.shape())? as i64;
        Ok(wide(self, |x| {
            // The 1 is shifted with all other terms.
            let top = x.detach().amax(keepdim(dim)).maximum(0.0);
            let terms = (x - &top).exp();
            &terms / (terms.sum(keepdim(dim)) + (-top).exp())
        }))
    }

    /// Softmax of `−self` along `dim`.
    #[op(torch = ["nn.functional.softmin"], with(dim = i64), call = call_softmin, autocast = high)]
    pub fn softmin(&self, dim: impl IntoDim) -> Result<Tensor> {
        self.try_neg()?.try_softmax(dim)
    }
}

fn call_softmin(args: &crate::ops::Args) -> Result<alloc::vec::Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let x = match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => x.try_to_dtype(dtype)?,
        None => x,
    };
    Ok(alloc::vec![x.try_softmin(args.get::<Option<i64>>("dim")?.unwrap_or(-1))?])
}
