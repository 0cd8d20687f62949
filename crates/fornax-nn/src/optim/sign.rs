//! Optimizers that look at the sign of the gradient only: [`Rprop`], [`Lion`].

use super::{Slot, decayed, optimizer};
use fornax_tensor::Tensor;

optimizer! {
    /// Resilient backpropagation: a step size for each element, which grows while the gradient keeps its sign and
    /// shrinks when it changes. For full batches; `lr` is the first step size.
    ///
    /// # References
    /// Riedmiller, Braun (1993), *A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm*.
    Rprop {
        /// By how much a step shrinks and grows; (0.5, 1.2).
        etas: (f64, f64) = (0.5, 1.2),
        /// Smallest and largest step; (1e-6, 50).
        step_sizes: (f64, f64) = (1e-6, 50.0),
    }
}

impl Rprop {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let previous = slot.get("prev").cloned().unwrap_or_else(|| p.zeros_like());
        let size = slot.get("step_size").cloned().unwrap_or_else(|| p.full_like(self.lr));
        let product = g * previous;
        let turned = product.lt(0.0);
        let factor = turned.where_(self.etas.0, product.gt(0.0).where_(self.etas.1, p.ones_like()));
        let size = (size * factor).maximum(self.step_sizes.0).minimum(self.step_sizes.1);
        // After a turn the element rests, and the next step neither grows nor shrinks.
        let g = g.masked_fill(&turned, 0.0);
        slot.set("prev", &g);
        slot.set("step_size", &size);
        p - g.sign() * size
    }
}

optimizer! {
    /// Steps of one size in the direction of the sign of a mean of gradients.
    ///
    /// `p ← p · (1 − lr · weight_decay) − lr · sign(β₁ m + (1 − β₁) g)`, `m ← β₂ m + (1 − β₂) g`. Learning rates are 3
    /// to 10 times smaller than those of [`super::AdamW`].
    ///
    /// # References
    /// Chen et al. (2023), *Symbolic Discovery of Optimization Algorithms*, arXiv:2302.06675, program 1.
    Lion {
        /// How much of the mean counts in the step, and how much of it stays; (0.9, 0.99).
        betas: (f64, f64) = (0.9, 0.99),
        /// Decay of the parameters; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Lion {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let m = slot.get("exp_avg").cloned().unwrap_or_else(|| p.zeros_like());
        let direction = (&m * self.betas.0 + g * (1.0 - self.betas.0)).sign();
        slot.set("exp_avg", &(m * self.betas.1 + g * (1.0 - self.betas.1)));
        decayed(p, self.lr, self.weight_decay) - direction * self.lr
    }
}
