//! [`Adam`] and [`AdamW`].

use super::OptimizerState;
use crate::Module;
use alloc::vec::Vec;
use fornax_tensor::{Gradients, Tensor};

/// Adam: steps scaled by running means of gradients and of their squares. Its `weight_decay` is an L2 penalty, part of
/// the gradient; [`AdamW`] decays the parameters themselves.
///
/// `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`, `p ← p − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + eps)`.
///
/// # References
/// Kingma, Ba (2014), *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980, algorithm 1.
#[derive(Clone, Debug)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running means stays; (0.9, 0.999).
    pub betas: (f64, f64),
    /// Added to the root; 1e-8.
    pub eps: f64,
    /// L2 penalty; 0.
    pub weight_decay: f64,
    /// What it remembers: `exp_avg`, `exp_avg_sq`.
    pub state: OptimizerState,
}

impl Adam {
    /// Adam with learning rate `lr` and the usual settings.
    pub fn new(lr: f64) -> Adam {
        Adam { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, state: OptimizerState::default() }
    }

    /// L2 penalty.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Adam {
        self.weight_decay = weight_decay;
        self
    }

    /// Updates the parameters that have a gradient, and runs all pending work.
    #[track_caller]
    pub fn step(&mut self, model: &mut (impl Module + ?Sized), gradients: &Gradients) {
        let rates = Rates::new(self.lr, self.betas, self.eps, self.state.step + 1);
        let weight_decay = self.weight_decay;
        self.state.step(model, gradients, |p, gradient, slots| {
            let g = if weight_decay == 0.0 { gradient.clone() } else { gradient + p * weight_decay };
            p - rates.direction(&g, slots)
        });
    }
}

/// Adam with decoupled weight decay: `p ← p · (1 − lr · weight_decay)` before Adam's step.
///
/// # References
/// Loshchilov, Hutter (2017), *Decoupled Weight Decay Regularization*, arXiv:1711.05101, algorithm 2.
#[derive(Clone, Debug)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running means stays; (0.9, 0.999).
    pub betas: (f64, f64),
    /// Added to the root; 1e-8.
    pub eps: f64,
    /// Decay; 0.01.
    pub weight_decay: f64,
    /// What it remembers: `exp_avg`, `exp_avg_sq`.
    pub state: OptimizerState,
}

impl AdamW {
    /// AdamW with learning rate `lr` and the usual settings.
    pub fn new(lr: f64) -> AdamW {
        AdamW { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, state: OptimizerState::default() }
    }

    /// Decay of the parameters.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> AdamW {
        self.weight_decay = weight_decay;
        self
    }

    /// Updates the parameters that have a gradient, and runs all pending work.
    #[track_caller]
    pub fn step(&mut self, model: &mut (impl Module + ?Sized), gradients: &Gradients) {
        let rates = Rates::new(self.lr, self.betas, self.eps, self.state.step + 1);
        let keep = 1.0 - self.lr * self.weight_decay;
        self.state.step(model, gradients, |p, g, slots| p * keep - rates.direction(g, slots));
    }
}

/// Adam's numbers for one step.
struct Rates {
    betas: (f64, f64),
    eps: f64,
    /// `lr / (1 − β₁ᵗ)`.
    step_size: f64,
    /// `1 / √(1 − β₂ᵗ)`.
    root_scale: f64,
}

impl Rates {
    fn new(lr: f64, betas: (f64, f64), eps: f64, step: u64) -> Rates {
        let correction = |beta: f64| 1.0 - libm::pow(beta, step as f64);
        Rates { betas, eps, step_size: lr / correction(betas.0), root_scale: 1.0 / libm::sqrt(correction(betas.1)) }
    }

    /// Updates the running means and gives what to subtract.
    #[track_caller]
    fn direction(&self, g: &Tensor, slots: &mut Vec<Tensor>) -> Tensor {
        let (beta1, beta2) = self.betas;
        let (m, v) = match slots.as_slice() {
            [m, v] => (m * beta1 + g * (1.0 - beta1), v * beta2 + g * g * (1.0 - beta2)),
            _ => (g * (1.0 - beta1), g * g * (1.0 - beta2)),
        };
        let direction = &m * self.step_size / (v.sqrt() * self.root_scale + self.eps);
        *slots = Vec::from([m, v]);
        direction
    }
}
