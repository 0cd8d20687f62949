//! [`Soap`].

use super::{Slot, decayed, optimizer, running_mean};
use alloc::format;
use fornax_tensor::Tensor;

optimizer! {
    /// Adam in the eigenbasis of Shampoo's preconditioner: gradients of a matrix are turned so that their covariance
    /// between rows, and between columns, is diagonal; there Adam runs, and its step is turned back.
    ///
    /// The bases are refreshed every `precondition_frequency` steps by one power iteration and a QR. Vectors and dims
    /// larger than `max_precondition_dim` are not turned. The first step only measures.
    ///
    /// # References
    /// Vyas et al. (2024), *SOAP: Improving and Stabilizing Shampoo using Adam*, arXiv:2409.11321, algorithms 3 and 4.
    Soap {
        /// How much of the running means stays; (0.95, 0.95).
        betas: (f64, f64) = (0.95, 0.95),
        /// How much of the covariances stays; the second of `betas` if not given.
        shampoo_beta: Option<f64> = None,
        /// Added to the root; 1e-8.
        eps: f64 = 1e-8,
        /// Decay of the parameters; 0.01.
        weight_decay: f64 = 0.01,
        /// Steps between two refreshes of the bases; 10.
        precondition_frequency: u64 = 10,
        /// Larger dims are not turned; 10,000.
        max_precondition_dim: usize = 10_000,
    }
}

impl Soap {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        // The first step measures, so the count of Adam's steps is one behind.
        let t = slot.step() - 1;
        if t == 0 {
            self.measure(g, slot, t);
            return p.clone();
        }
        let turned = self.turn(g, slot, false);
        let m = running_mean(slot, "exp_avg", &turned, self.betas.0);
        let v = running_mean(slot, "exp_avg_sq", &turned.square(), self.betas.1);
        let (first, second) = (correction_at(self.betas.0, t), correction_at(self.betas.1, t));
        let step = self.turn(&(m / (v.sqrt() + self.eps)), slot, true) * (self.lr * libm::sqrt(second) / first);
        let value = decayed(&(p - step), self.lr, self.weight_decay);
        self.measure(g, slot, t);
        value
    }

    /// Moves the covariances towards those of `g`, and refreshes the bases when it is time.
    #[track_caller]
    fn measure(&self, g: &Tensor, slot: &mut Slot, t: u64) {
        if g.rank() < 2 {
            return;
        }
        let refreshes = t > 0 && t.is_multiple_of(self.precondition_frequency.max(1));
        // The mean of gradients does not depend on the bases: it is turned back by the old ones, and by the new ones.
        let mean = slot.get("exp_avg").filter(|_| refreshes).cloned().map(|m| self.turn(&m, slot, true));
        let beta = self.shampoo_beta.unwrap_or(self.betas.1);
        for dim in (0..g.rank()).filter(|&dim| g.shape()[dim] <= self.max_precondition_dim) {
            let rows = g.transpose(0, dim as i64).flatten(1, -1); // [size, rest]
            let covariance = running_mean(slot, &name("covariance", dim), &rows.matmul(&rows.t()), beta);
            let basis = match slot.get(&name("basis", dim)) {
                // Eigenvectors of the largest eigenvalue first.
                None => covariance.eigh(false).1.flip([1]),
                Some(_) if !refreshes => continue,
                Some(basis) => {
                    let eigenvalues = (basis * covariance.matmul(basis)).sum(0);
                    let order = eigenvalues.argsort(0, true);
                    let basis = basis.index_select(1, &order);
                    if let Some(v) = slot.get("exp_avg_sq").map(|v| v.index_select(dim, &order)) {
                        slot.set("exp_avg_sq", &v);
                    }
                    covariance.matmul(&basis).qr().0
                }
            };
            slot.set(&name("basis", dim), &basis);
        }
        if let Some(mean) = mean {
            let mean = self.turn(&mean, slot, false);
            slot.set("exp_avg", &mean);
        }
    }

    /// `x` in the bases of its dims, or `back` out of them.
    #[track_caller]
    fn turn(&self, x: &Tensor, slot: &Slot, back: bool) -> Tensor {
        let mut x = x.clone();
        for dim in 0..x.rank() {
            let Some(basis) = slot.get(&name("basis", dim)) else { continue };
            let basis = if back { basis.t() } else { basis.clone() };
            let last = x.rank() as i64 - 1;
            x = x.transpose(dim as i64, last).matmul(&basis).transpose(dim as i64, last);
        }
        x
    }
}

fn name(what: &str, dim: usize) -> alloc::string::String {
    format!("{what}_{dim}")
}

fn correction_at(beta: f64, t: u64) -> f64 {
    1.0 - libm::pow(beta, t as f64)
}
