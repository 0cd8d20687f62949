//! [`Muon`].

use super::{Slot, decayed, optimizer};
use alloc::format;
use fornax_tensor::{DType, Error, Tensor};

/// How Muon's learning rate depends on the shape `[rows, columns]` of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdjustLr {
    /// Times `√max(1, rows / columns)`.
    #[default]
    Original,
    /// Times `0.2 · √max(rows, columns)`: steps as large as AdamW's.
    MatchRmsAdamW,
}

optimizer! {
    /// Momentum, orthogonalized: each step of a matrix has singular values near 1. For the matrices inside a network;
    /// embeddings, the output layer, biases and norms are left to [`super::AdamW`]:
    ///
    /// ```
    /// use fornax_nn::optim::{AdamW, Muon, Selection};
    /// let matrices = Selection::of(|path, p| p.rank() == 2 && path.starts_with("blocks"));
    /// let muon = Muon::new(0.02).only(matrices.clone());
    /// let rest = AdamW::new(3e-4).only(!matrices);
    /// ```
    ///
    /// # References
    /// Jordan et al. (2024), *Muon: An Optimizer for Hidden Layers in Neural Networks*.
    Muon {
        /// Decay of the parameters; 0.1.
        weight_decay: f64 = 0.1,
        /// How much of the running mean of gradients stays; 0.95.
        momentum: f64 = 0.95,
        /// Whether it looks ahead along the momentum; true.
        nesterov: bool = true,
        /// Coefficients of the Newton–Schulz iteration.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.775, 2.0315),
        /// Smallest norm of a gradient; 1e-7.
        eps: f64 = 1e-7,
        /// Newton–Schulz iterations; 5.
        ns_steps: usize = 5,
        /// How the learning rate depends on the shape.
        adjust_lr: AdjustLr = AdjustLr::Original,
        /// In what dtype the iteration runs; `bf16`, as in PyTorch.
        ns_dtype: DType = DType::BF16,
    }
}

impl Muon {
    #[track_caller]
    fn update(&self, p: &Tensor, g: &Tensor, slot: &mut Slot) -> Tensor {
        let &[rows, columns] = p.shape().dims() else {
            Error::shape("Muon", format!("a parameter of shape {} is not a matrix", p.shape()))
                .help("select matrices with `only`")
                .raise()
        };
        let buffer = match slot.get("momentum_buffer") {
            Some(buffer) => buffer + (g - buffer) * (1.0 - self.momentum),
            None => g * (1.0 - self.momentum),
        };
        slot.set("momentum_buffer", &buffer);
        let update = if self.nesterov { g + (buffer - g) * self.momentum } else { buffer };
        let scale = match self.adjust_lr {
            AdjustLr::Original => libm::sqrt((rows as f64 / columns as f64).max(1.0)),
            AdjustLr::MatchRmsAdamW => 0.2 * libm::sqrt(rows.max(columns) as f64),
        };
        decayed(p, self.lr, self.weight_decay) - self.orthogonalized(&update) * (self.lr * scale)
    }

    /// The nearest matrix with singular values around 1.
    #[track_caller]
    fn orthogonalized(&self, g: &Tensor) -> Tensor {
        let (a, b, c) = self.ns_coefficients;
        let [rows, columns] = g.dims();
        // The smaller Gram matrix is the cheaper one.
        let is_tall = rows > columns;
        let x = g.to_dtype(self.ns_dtype);
        let x = if is_tall { x.t() } else { x };
        let wide = x.dtype().compute();
        let norm = x.to_dtype(wide).square().sum(()).sqrt();
        let mut x = &x / norm.to_dtype(x.dtype()).maximum(self.eps);
        for _ in 0..self.ns_steps {
            // Each line is rounded to the dtype of the iteration once, as PyTorch's `addmm` does.
            let gram = x.matmul(&x.t());
            let polynomial = (gram.to_dtype(wide) * b + gram.matmul_to(&gram, wide) * c).to_dtype(x.dtype());
            x = (x.to_dtype(wide) * a + polynomial.matmul_to(&x, wide)).to_dtype(x.dtype());
        }
        let x = if is_tall { x.t() } else { x };
        x.to_dtype(g.dtype())
    }
}
