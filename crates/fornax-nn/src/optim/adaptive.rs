//! Optimizers that scale each element by its own history: [`Adagrad`], [`Adadelta`], [`RmsProp`].

use super::{Slot, optimizer, running_mean, with_penalty};
use fornax_tensor::Tensor;

optimizer! {
    /// Steps divided by the root of the sum of all squared gradients so far.
    ///
    /// `s ← s + g²`, `p ← p − lr / (1 + (t − 1) · lr_decay) · g / (√s + eps)`.
    ///
    /// # References
    /// Duchi, Hazan, Singer (2011), *Adaptive Subgradient Methods for Online Learning and Stochastic Optimization*.
    Adagrad {
        /// How fast the learning rate falls; 0.
        lr_decay: f64 = 0.0,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
        /// Where the sum starts; 0.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the root; 1e-10.
        eps: f64 = 1e-10,
    }
}

impl Adagrad {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        let sum = match slot.get("sum") {
            Some(sum) => sum + g.square(),
            None => g.square() + self.initial_accumulator_value,
        };
        slot.set("sum", &sum);
        let lr = self.lr / (1.0 + (slot.step() - 1) as f64 * self.lr_decay);
        p - g / (sum.sqrt() + self.eps) * lr
    }
}

optimizer! {
    /// Steps in the units of the parameter: the root mean square of past steps over that of past gradients.
    ///
    /// `s ← ρ s + (1 − ρ) g²`, `d = √(a + eps) / √(s + eps) · g`, `a ← ρ a + (1 − ρ) d²`, `p ← p − lr · d`. The usual
    /// learning rate is 1.
    ///
    /// # References
    /// Zeiler (2012), *ADADELTA: An Adaptive Learning Rate Method*, arXiv:1212.5701.
    Adadelta {
        /// How much of the running means stays; 0.9.
        rho: f64 = 0.9,
        /// Added under the roots; 1e-6.
        eps: f64 = 1e-6,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Adadelta {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        let square = running_mean(slot, "square_avg", &g.square(), self.rho);
        let past = slot.get("acc_delta").cloned().unwrap_or_else(|| p.zeros_like());
        let delta = (past + self.eps).sqrt() / (square + self.eps).sqrt() * g;
        running_mean(slot, "acc_delta", &delta.square(), self.rho);
        p - delta * self.lr
    }
}

optimizer! {
    /// Steps divided by the running root mean square of the gradient.
    ///
    /// `s ← α s + (1 − α) g²`, `p ← p − lr · g / (√s + eps)`; with `centered`, `s` less the square of the running mean
    /// of `g` (its variance); with `momentum`, `b ← momentum · b + g / (√s + eps)` and `p ← p − lr · b`.
    ///
    /// # References
    /// Tieleman, Hinton (2012), *Lecture 6.5*; `centered`: Graves (2013), *Generating Sequences with Recurrent Neural
    /// Networks*, arXiv:1308.0850.
    RmsProp {
        /// How much of the running means stays; 0.99.
        alpha: f64 = 0.99,
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
        /// How much of the last update stays; 0.
        momentum: f64 = 0.0,
        /// Whether the variance scales in place of the mean square; false.
        centered: bool = false,
    }
}

impl RmsProp {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        let mut square = running_mean(slot, "square_avg", &g.square(), self.alpha);
        if self.centered {
            square -= running_mean(slot, "grad_avg", &g, self.alpha).square();
        }
        let mut direction = g / (square.sqrt() + self.eps);
        if self.momentum > 0.0 {
            if let Some(buffer) = slot.get("momentum_buffer") {
                direction = buffer * self.momentum + direction;
            }
            slot.set("momentum_buffer", &direction);
        }
        p - direction * self.lr
    }
}
