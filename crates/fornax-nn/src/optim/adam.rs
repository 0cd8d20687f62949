//! [`Adam`] and its relatives: [`AdamW`], [`Adamax`], [`NAdam`], [`RAdam`], [`Lamb`].

use super::{Slot, decayed, optimizer, running_mean, with_penalty};
use fornax_tensor::Tensor;

optimizer! {
    /// Adam: steps scaled by running means of gradients and of their squares. Its `weight_decay` is an L2 penalty, part
    /// of the gradient; [`AdamW`] decays the parameters themselves.
    ///
    /// `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`, `p ← p − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + eps)`.
    ///
    /// # References
    /// Kingma, Ba (2014), *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980, algorithm 1; `amsgrad`: Reddi,
    /// Kale, Kumar (2018), *On the Convergence of Adam and Beyond*, arXiv:1904.09237.
    Adam {
        /// How much of the running means stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
        /// Whether the largest `v` so far scales; false.
        amsgrad: bool = false,
    }
}

impl Adam {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        p - adam_step(&g, slot, self.lr, self.betas, self.eps, self.amsgrad)
    }
}

optimizer! {
    /// Adam with decoupled weight decay: `p ← p · (1 − lr · weight_decay)` before Adam's step.
    ///
    /// # References
    /// Loshchilov, Hutter (2017), *Decoupled Weight Decay Regularization*, arXiv:1711.05101, algorithm 2.
    AdamW {
        /// How much of the running means stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// Decay of the parameters; 0.01.
        weight_decay: f64 = 0.01,
        /// Whether the largest `v` so far scales; false.
        amsgrad: bool = false,
    }
}

impl AdamW {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        decayed(p, self.lr, self.weight_decay) - adam_step(g, slot, self.lr, self.betas, self.eps, self.amsgrad)
    }
}

optimizer! {
    /// Adam with the largest gradient in place of the running mean of squares.
    ///
    /// `u ← max(β₂ u, |g| + eps)`, `p ← p − lr · (m / (1 − β₁ᵗ)) / u`.
    ///
    /// # References
    /// Kingma, Ba (2014), *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980, algorithm 2.
    Adamax {
        /// How much of the running mean and of the largest gradient stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the size of the gradient; 1e-8.
        eps: f64 = 1e-8,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Adamax {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        let m = running_mean(slot, "exp_avg", &g, self.betas.0);
        let size = g.abs() + self.eps;
        let u = match slot.get("exp_inf") {
            Some(u) => (u * self.betas.1).maximum(size),
            None => size,
        };
        slot.set("exp_inf", &u);
        p - m / u * (self.lr / correction(self.betas.0, slot))
    }
}

optimizer! {
    /// Adam with Nesterov's momentum.
    ///
    /// `μₜ = β₁ (1 − 0.96^(t · momentum_decay) / 2)`, and in place of `m / (1 − β₁ᵗ)` stands
    /// `(1 − μₜ) / (1 − Πμ) · g + μₜ₊₁ / (1 − Πμ · μₜ₊₁) · m`.
    ///
    /// # References
    /// Dozat (2016), *Incorporating Nesterov Momentum into Adam*.
    NAdam {
        /// How much of the running means stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// L2 penalty, or decay of the parameters; 0.
        weight_decay: f64 = 0.0,
        /// How fast the momentum warms up; 0.004.
        momentum_decay: f64 = 4e-3,
        /// Whether the weight decay is that of [`AdamW`]; false.
        decoupled_weight_decay: bool = false,
    }
}

impl NAdam {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let (p, g) = regularized(p, g, self.lr, self.weight_decay, self.decoupled_weight_decay);
        let t = slot.step() as f64;
        let mu = |t: f64| self.betas.0 * (1.0 - 0.5 * libm::pow(0.96, t * self.momentum_decay));
        let (mu, mu_next) = (mu(t), mu(t + 1.0));
        let product = slot.number("mu_product").unwrap_or(1.0) * mu;
        slot.set_number("mu_product", product);
        let m = running_mean(slot, "exp_avg", &g, self.betas.0);
        let v = running_mean(slot, "exp_avg_sq", &g.square(), self.betas.1);
        let denominator = (v / correction(self.betas.1, slot)).sqrt() + self.eps;
        let ahead = g * (self.lr * (1.0 - mu) / (1.0 - product));
        p - (ahead + m * (self.lr * mu_next / (1.0 - product * mu_next))) / denominator
    }
}

optimizer! {
    /// Adam whose adaptive scale is switched on once its variance is known well enough.
    ///
    /// With `ρ∞ = 2 / (1 − β₂) − 1` and `ρₜ = ρ∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)`: the step is `lr · m / (1 − β₁ᵗ)` while `ρₜ ≤ 5`,
    /// then that times `rₜ √(1 − β₂ᵗ) / (√v + eps)`.
    ///
    /// # References
    /// Liu et al. (2019), *On the Variance of the Adaptive Learning Rate and Beyond*, arXiv:1908.03265, algorithm 2.
    RAdam {
        /// How much of the running means stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// L2 penalty, or decay of the parameters; 0.
        weight_decay: f64 = 0.0,
        /// Whether the weight decay is that of [`AdamW`]; false.
        decoupled_weight_decay: bool = false,
    }
}

impl RAdam {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let (p, g) = regularized(p, g, self.lr, self.weight_decay, self.decoupled_weight_decay);
        let m = running_mean(slot, "exp_avg", &g, self.betas.0);
        let v = running_mean(slot, "exp_avg_sq", &g.square(), self.betas.1);
        let t = slot.step() as f64;
        let correction2 = correction(self.betas.1, slot);
        let rho_inf = 2.0 / (1.0 - self.betas.1) - 1.0;
        let rho = rho_inf - 2.0 * t * (1.0 - correction2) / correction2;
        // One program for both phases: the denominator is (√v + eps) · on + (1 − on).
        let (on, scale) = if rho > 5.0 {
            let rectified = (rho - 4.0) * (rho - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * rho);
            (1.0, libm::sqrt(rectified * correction2))
        } else {
            (0.0, 1.0)
        };
        let denominator = (v.sqrt() + self.eps) * on + (1.0 - on);
        p - m / denominator * (self.lr * scale / correction(self.betas.0, slot))
    }
}

optimizer! {
    /// Adam whose step for each parameter is as long as the parameter itself: for very large batches.
    ///
    /// `r = m̂ / (√v̂ + eps) + weight_decay · p`, `p ← p − lr · (‖p‖ / ‖r‖) · r`; the ratio is 1 where a norm is 0.
    ///
    /// # References
    /// You et al. (2019), *Large Batch Optimization for Deep Learning*, arXiv:1904.00962, algorithm 2.
    Lamb {
        /// How much of the running means stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-6.
        eps: f64 = 1e-6,
        /// Decay of the parameters; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Lamb {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let r = with_penalty(&adam_step(g, slot, 1.0, self.betas, self.eps, false), p, self.weight_decay);
        let (p_norm, r_norm) = (p.square().sum(()).sqrt(), r.square().sum(()).sqrt());
        let nonzero = p_norm.gt(0.0).logical_and(&r_norm.gt(0.0));
        let trust = nonzero.where_(p_norm / nonzero.where_(&r_norm, 1.0), 1.0);
        p - r * trust * self.lr
    }
}

/// `1 − βᵗ`: what a running mean that started at 0 lacks.
pub(super) fn correction(beta: f64, slot: &Slot) -> f64 {
    1.0 - libm::pow(beta, slot.step() as f64)
}

/// Updates the running means and gives `lr · m̂ / (√v̂ + eps)`.
///
/// Corrections are moved out of the quotient, which saves two operations on every element:
/// `m / (√v + eps · √c₂) · (lr · √c₂ / c₁)`.
#[track_caller]
fn adam_step(g: &Tensor, slot: &mut Slot, lr: f64, betas: (f64, f64), eps: f64, amsgrad: bool) -> Tensor {
    let m = running_mean(slot, "exp_avg", g, betas.0);
    let mut v = running_mean(slot, "exp_avg_sq", &g.square(), betas.1);
    if amsgrad {
        if let Some(largest) = slot.get("max_exp_avg_sq") {
            v = v.maximum(largest);
        }
        slot.set("max_exp_avg_sq", &v);
    }
    let root = libm::sqrt(correction(betas.1, slot));
    m / (v.sqrt() + eps * root) * (lr * root / correction(betas.0, slot))
}

/// Parameter and gradient after weight decay of either kind.
#[track_caller]
fn regularized(p: &Tensor, g: &Tensor, lr: f64, weight_decay: f64, decoupled: bool) -> (Tensor, Tensor) {
    if decoupled { (decayed(p, lr, weight_decay), g.clone()) } else { (p.clone(), with_penalty(g, p, weight_decay)) }
}
