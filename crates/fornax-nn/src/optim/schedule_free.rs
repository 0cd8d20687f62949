//! [`ScheduleFreeAdamW`].

use super::{Slot, adam::correction, optimizer};
use crate::Module;
use crate::module::{Param, Path, VisitorMut};
use fornax_tensor::{Tensor, no_grad};

optimizer! {
    /// AdamW that needs no schedule: it averages where a schedule would let the rate fall.
    ///
    /// Gradients are taken at a point `y` between the iterate `z` and the average `x`; the model holds `y` while it
    /// trains. [`ScheduleFreeAdamW::average`] puts `x` there for evaluation and saving,
    /// [`ScheduleFreeAdamW::resume`] puts `y` back.
    ///
    /// `z ← z − lr · u`, `x ← (1 − c) x + c z`, `y = (1 − β₁) z + β₁ x`, with `u = g / (√v̂ + eps) + weight_decay · y` and
    /// weights `c` that follow the square of the largest rate so far.
    ///
    /// ```
    /// use fornax_nn::{Linear, Module, optim::ScheduleFreeAdamW};
    /// use fornax_tensor::{Device, Tensor};
    /// let mut model = Linear::new(2, 1, &Device::cpu());
    /// let mut optimizer = ScheduleFreeAdamW::new(0.05).warmup_steps(5);
    /// let (x, y) = (Tensor::from([[1.0, 2.0], [3.0, 1.0]]), Tensor::from([[1.0], [2.0]]));
    /// for _ in 0..100 {
    ///     let gradients = (model.forward(&x) - &y).square().mean(()).backward();
    ///     optimizer.step(&mut model, &gradients);
    /// }
    /// optimizer.average(&mut model);
    /// assert!((model.forward(&x) - &y).square().mean(()).item::<f32>() < 0.05);
    /// ```
    ///
    /// # References
    /// Defazio et al. (2024), *The Road Less Scheduled*, arXiv:2405.15682, algorithm 1.
    ScheduleFreeAdamW {
        /// How near `y` is to the average, and how much of the mean of squares stays; (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// Decay of the parameters, at `y`; 0.
        weight_decay: f64 = 0.0,
        /// Steps in which the rate rises along a line from 0; 0.
        warmup_steps: u64 = 0,
        /// Power of the step in the weights of the average; 0.
        r: f64 = 0.0,
        /// Power of the largest rate in the weights of the average; 2.
        weight_lr_power: f64 = 2.0,
    }
}

impl ScheduleFreeAdamW {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let t = slot.step() as f64;
        let lr = self.lr * if self.warmup_steps > 0 { (t / self.warmup_steps as f64).min(1.0) } else { 1.0 };
        let largest = slot.number("lr_max").unwrap_or(0.0).max(lr);
        let weight = libm::pow(t, self.r) * libm::pow(largest, self.weight_lr_power);
        let total = slot.number("weight_sum").unwrap_or(0.0) + weight;
        slot.set_number("lr_max", largest);
        slot.set_number("weight_sum", total);
        let c = if total > 0.0 { weight / total } else { 0.0 };

        let v = super::running_mean(slot, "exp_avg_sq", &g.square(), self.betas.1);
        let root = v.sqrt() * (1.0 / libm::sqrt(correction(self.betas.1, slot))) + self.eps;
        let u = g / root + p * self.weight_decay;
        let z = slot.get("z").cloned().unwrap_or_else(|| p.clone());
        let y = p + (&z - p) * c + &u * (lr * (self.betas.0 * (1.0 - c) - 1.0));
        slot.set("z", &(z - u * lr));
        y
    }

    /// Puts the average in the model, for evaluation and saving.
    ///
    /// # Panics
    /// If a parameter has another shape than when it was trained.
    #[track_caller]
    pub fn average(&self, model: &mut dyn Module) {
        self.move_towards_iterate(model, 1.0 - 1.0 / self.betas.0);
    }

    /// Puts the point where gradients are taken back in the model, to train on after [`ScheduleFreeAdamW::average`].
    ///
    /// # Panics
    /// If a parameter has another shape than when it was trained.
    #[track_caller]
    pub fn resume(&self, model: &mut dyn Module) {
        self.move_towards_iterate(model, 1.0 - self.betas.0);
    }

    #[track_caller]
    fn move_towards_iterate(&self, model: &mut dyn Module, part: f64) {
        struct Move<'a>(&'a ScheduleFreeAdamW, f64);
        impl VisitorMut for Move<'_> {
            fn param(&mut self, path: &Path, param: &mut Param) {
                let Some(z) = self.0.state.get(path.as_str()).and_then(|slot| slot.get("z")) else { return };
                let p = param.detach();
                param.set(&(&p + (z - &p) * self.1));
            }
        }
        no_grad(|| model.visit_mut(&mut Path::default(), &mut Move(self, part)));
    }
}
