//! Random numbers of other distributions, made from uniform and normal ones by inverting their distribution function.

use crate::{DType, Device, Error, Shape, Tensor, keepdim};
use alloc::format;

impl Tensor {
    /// Exponential with density `rate · e^(−rate · x)`, dtype `f32`.
    #[track_caller]
    pub fn exponential(shape: impl Into<Shape>, rate: f64, device: &Device) -> Tensor {
        // 1 − u is never 0.
        (1.0 - Tensor::rand(shape, device)).log() * (-1.0 / rate)
    }

    /// Cauchy around `median` with half width `scale`, dtype `f32`.
    #[track_caller]
    pub fn cauchy(shape: impl Into<Shape>, median: f64, scale: f64, device: &Device) -> Tensor {
        ((Tensor::rand(shape, device) - 0.5) * core::f64::consts::PI).tan() * scale + median
    }

    /// `e^x` of a normal `x` with this mean and standard deviation, dtype `f32`.
    #[track_caller]
    pub fn log_normal(shape: impl Into<Shape>, mean: f64, std: f64, device: &Device) -> Tensor {
        Tensor::normal(shape, mean, std, device).exp()
    }

    /// How many trials it takes to the first success, each with probability `p` in (0, 1): at least 1, dtype `f32`.
    ///
    /// # Panics
    /// If `p` is not in (0, 1).
    #[track_caller]
    pub fn geometric(shape: impl Into<Shape>, p: f64, device: &Device) -> Tensor {
        if !(p > 0.0 && p < 1.0) {
            Error::argument("geometric", format!("p = {p} is not in (0, 1)")).raise();
        }
        let trials = (1.0 - Tensor::rand(shape, device)).log() * (1.0 / libm::log1p(-p));
        trials.ceil().clamp_min(1.0)
    }

    /// 1 with the probability that each element says, else 0, in the same dtype.
    #[track_caller]
    #[must_use]
    pub fn bernoulli(&self) -> Tensor {
        Tensor::rand(self.shape(), self.device()).lt(self.detach()).to_dtype(self.dtype())
    }

    /// `softmax((self + g) / tau)` along `dim` with `g` of Gumbel's distribution: samples of the categories whose logits
    /// these are, differentiable. If `hard`, 1 at the largest and 0 elsewhere, with the gradient of the soft result.
    ///
    /// # References
    /// Jang, Gu, Poole (2017), *Categorical Reparameterization with Gumbel-Softmax*, arXiv:1611.01144.
    #[track_caller]
    #[must_use]
    pub fn gumbel_softmax(&self, tau: f64, hard: bool, dim: i64) -> Tensor {
        let gumbel =
            Tensor::exponential(self.shape(), 1.0, self.device()).clamp_min(f64::from(f32::MIN_POSITIVE)).log();
        let soft = ((self - gumbel.to_dtype(self.dtype())) * (1.0 / tau)).softmax(dim);
        if !hard {
            return soft;
        }
        let largest = soft.detach().argmax(keepdim(dim));
        let hard = soft.zeros_like().scatter(dim, &largest, largest.ones_like().to_dtype(soft.dtype()));
        hard - soft.detach() + soft
    }

    /// `count` positions drawn from each row of weights (`[n]` or `[rows, n]`, not negative, of any sum), `i64`. Without
    /// replacement each position comes at most once, and there must be as many weights above 0.
    ///
    /// # References
    /// Efraimidis, Spirakis (2006), *Weighted random sampling with a reservoir*.
    ///
    /// # Panics
    /// If this is no float of rank 1 or 2, or there are fewer weights than `count` without replacement.
    #[track_caller]
    #[must_use]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Tensor {
        if !(1..=2).contains(&self.rank()) || !self.dtype().is_float() {
            Error::argument(
                "multinomial",
                format!("weights are floats [n] or [rows, n], not {} {}", self.dtype(), self.shape()),
            )
            .raise();
        }
        let weights = self.detach().to_dtype(DType::F64);
        let n = self.shape()[self.rank() - 1];
        if !replacement {
            // The largest of weightᵢ / exponentialᵢ is at i with the probability of i.
            // Not 0: a weight of 0 over it would be NaN, which is the largest.
            let exponential =
                Tensor::exponential(self.shape(), 1.0, self.device()).clamp_min(f64::from(f32::MIN_POSITIVE));
            return (weights / exponential).topk(count, -1, true).1;
        }
        if n == 0 {
            Error::shape("multinomial", format!("{} has no weights to draw from", self.shape())).raise();
        }
        let upto = weights.cumsum(-1);
        let total = upto.narrow(-1, n as i64 - 1, 1);
        let shape = self.shape().with_dim(self.rank() - 1, count);
        // In f64 the product stays below the total, so that a weight of 0 is never drawn.
        let at = Tensor::rand(shape, self.device()).to_dtype(DType::F64) * total;
        upto.unsqueeze(-2).le(at.unsqueeze(-1)).to_dtype(DType::I64).sum(-1)
    }
}
