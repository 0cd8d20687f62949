//! [`Adan`].

use super::{Slot, adam::correction, optimizer, running_mean};
use fornax_tensor::Tensor;

optimizer! {
    /// Nesterov's momentum without a look ahead: running means of the gradient, of its change, and of the square of both
    /// together.
    ///
    /// With `d = g − g_before`: `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) d`, `n ← β₃ n + (1 − β₃)(g + β₂ d)²`, and
    /// `p ← (p − lr · (m̂ + β₂ v̂) / (√n̂ + eps)) / (1 + lr · weight_decay)`, where hats divide by `1 − βᵗ`. The βs are
    /// how much stays, as in [`super::Adam`]; the paper counts what is new.
    ///
    /// # References
    /// Xie, Zhou, Li, Lin, Yan (2022), *Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep Models*,
    /// arXiv:2208.06677, algorithm 1.
    Adan {
        /// How much of the three running means stays; (0.98, 0.92, 0.99).
        betas: (f64, f64, f64) = (0.98, 0.92, 0.99),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// Decay of the parameters; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Adan {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let (beta1, beta2, beta3) = self.betas;
        let change = match slot.get("previous_grad") {
            Some(previous) => g - previous,
            None => g.zeros_like(),
        };
        slot.set("previous_grad", g);
        let m = running_mean(slot, "exp_avg", g, beta1);
        let v = running_mean(slot, "exp_avg_diff", &change, beta2);
        let n = running_mean(slot, "exp_avg_sq", &(g + &change * beta2).square(), beta3);
        let root = n.sqrt() * (1.0 / libm::sqrt(correction(beta3, slot))) + self.eps;
        let direction = m * (1.0 / correction(beta1, slot)) + v * (beta2 / correction(beta2, slot));
        (p - direction / root * self.lr) * (1.0 / (1.0 + self.lr * self.weight_decay))
    }
}
