//! [`Asgd`].

use super::{Slot, optimizer, with_penalty};
use fornax_tensor::Tensor;

optimizer! {
    /// Averaged stochastic gradient descent. The average of the parameters since step `t0` is kept in the state, as
    /// `ax`.
    ///
    /// `p ← p · (1 − lambd · η) − η · g`, `η = lr / (1 + lambd · lr · t)^alpha`.
    ///
    /// # References
    /// Polyak, Juditsky (1992), *Acceleration of Stochastic Approximation by Averaging*.
    Asgd {
        /// Decay; 1e-4.
        lambd: f64 = 1e-4,
        /// Power of the falling rate; 0.75.
        alpha: f64 = 0.75,
        /// When averaging begins; 1e6.
        t0: f64 = 1e6,
        /// L2 penalty; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Asgd {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let g = with_penalty(g, p, self.weight_decay);
        let t = slot.step() as f64;
        let eta = slot.number("eta").unwrap_or(self.lr);
        let mu = slot.number("mu").unwrap_or(1.0);
        let value = p * (1.0 - self.lambd * eta) - g * eta;
        let average = match slot.get("ax") {
            Some(average) => average + (&value - average) * mu,
            None => value.clone(),
        };
        slot.set("ax", &average);
        slot.set_number("eta", self.lr / libm::pow(1.0 + self.lambd * self.lr * t, self.alpha));
        slot.set_number("mu", 1.0 / (t - self.t0).max(1.0));
        value
    }
}
