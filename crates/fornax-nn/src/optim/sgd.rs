//! [`Sgd`].

use super::{Slot, optimizer, with_penalty};
use fornax_tensor::Tensor;

optimizer! {
    /// Stochastic gradient descent, with momentum if asked for.
    ///
    /// `g ← gradient + weight_decay · p`, `v ← momentum · v + (1 − dampening) · g` (`v = g` at first), and
    /// `p ← p − lr · v`, or with `nesterov` `p ← p − lr · (g + momentum · v)`.
    ///
    /// # References
    /// Sutskever, Martens, Dahl, Hinton (2013), *On the Importance of Initialization and Momentum in Deep Learning*.
    Sgd {
        /// How much of the last update stays; 0.
        momentum: f64 = 0.0,
        /// How much of the gradient does not enter the momentum; 0.
        dampening: f64 = 0.0,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
        /// Whether it looks ahead along the momentum; false.
        nesterov: bool = false,
    }
}

impl Sgd {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        if self.momentum == 0.0 {
            return p - g * self.lr;
        }
        let v = match slot.get("momentum_buffer") {
            Some(v) => v * self.momentum + &g * (1.0 - self.dampening),
            None => g.clone(),
        };
        slot.set("momentum_buffer", &v);
        let direction = if self.nesterov { g + v * self.momentum } else { v };
        p - direction * self.lr
    }
}
