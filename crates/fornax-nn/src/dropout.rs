//! [`Dropout`].

use crate::{Mode, Module};
use fornax_tensor::Tensor;

/// In training, each element is 0 with probability `p`, else divided by `1 − p`; in evaluation nothing happens.
///
/// # References
/// Srivastava et al. (2014), *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*.
#[derive(Module, Clone, Debug)]
pub struct Dropout {
    /// Probability that an element is dropped.
    pub p: f64,
    mode: Mode,
}

impl Dropout {
    /// Dropout with probability `p`.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    pub fn new(p: f64) -> Dropout {
        assert!((0.0..=1.0).contains(&p), "Dropout: probability {p} is not between 0 and 1");
        Dropout { p, mode: Mode::default() }
    }

    /// Applies the layer.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.mode.is_training() { x.dropout(self.p) } else { x.clone() }
    }
}
