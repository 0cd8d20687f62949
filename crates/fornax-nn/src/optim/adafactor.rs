//! [`Adafactor`].

use super::{Slot, decayed, optimizer};
use fornax_tensor::{DType, Tensor, keepdim};

optimizer! {
    /// Adaptive steps with little memory: of the squared gradients of a matrix only the means of rows and columns are
    /// kept. Steps are relative to the size of the parameter.
    ///
    /// # References
    /// Shazeer, Stern (2018), *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*, arXiv:1804.04235,
    /// algorithms 4 and 5.
    Adafactor {
        /// The running means keep `1 − t^beta2_decay`; −0.8.
        beta2_decay: f64 = -0.8,
        /// Smallest variance (the dtype's epsilon if not given) and smallest size of a parameter; (none, 1e-3).
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// Largest root mean square of a step; 1.
        d: f64 = 1.0,
        /// Decay of the parameters; 0.
        weight_decay: f64 = 0.0,
    }
}

impl Adafactor {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let t = slot.step() as f64;
        let weight = libm::pow(t, self.beta2_decay);
        let rate = self.lr.min(1.0 / libm::sqrt(t));
        let eps = self.eps.0.unwrap_or(match p.dtype() {
            DType::F64 => f64::EPSILON,
            DType::F16 => 9.765_625e-4,
            DType::BF16 => 7.812_5e-3,
            _ => f64::from(f32::EPSILON),
        });
        let mut mean_of = |name: &'static str, value: Tensor| {
            let mean = match slot.get(name) {
                Some(mean) => mean + (value - mean) * weight,
                None => value * weight,
            };
            slot.set(name, &mean);
            mean
        };
        let variance = if g.rank() > 1 {
            let row = mean_of("row_var", g.square().mean(keepdim(-1))); // […, m, 1]
            let column = mean_of("col_var", g.square().mean(keepdim(-2))); // […, 1, n]
            let total = row.mean(keepdim(-2)).maximum(eps); // […, 1, 1]
            row * column / total
        } else {
            mean_of("variance", g.square())
        };
        let update = variance.maximum(eps * eps).rsqrt() * g;
        let size = root_mean_square(p).maximum(self.eps.1) * rate;
        let clip = (root_mean_square(&update) / self.d).maximum(1.0);
        decayed(p, self.lr, self.weight_decay) - update * (size / clip)
    }
}

#[track_caller]
fn root_mean_square(x: &Tensor) -> Tensor {
    x.square().mean(()).sqrt()
}
