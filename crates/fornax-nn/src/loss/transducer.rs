//! [`RnntLoss`].

use super::reduced;
use crate::Module;
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{DType, Error, Reduction, Tensor};

/// The loss of RNN transducers: how likely label sequences are, over all ways to spread them over time.
///
/// # Shapes
/// - logits `[n, time, labels + 1, classes]`, normalized here;
/// - targets `[n, labels]` (integers), and the lengths of both, `[n]` (integers).
///
/// # References
/// Graves (2012), *Sequence Transduction with Recurrent Neural Networks*, arXiv:1211.3711, equations 16 to 18.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct RnntLoss {
    /// The class that stands for no label; 0.
    pub blank: usize,
    /// Mean, sum, or all; mean.
    pub reduction: Reduction,
}

impl Default for RnntLoss {
    fn default() -> RnntLoss {
        RnntLoss { blank: 0, reduction: Reduction::Mean }
    }
}

impl RnntLoss {
    /// The loss.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor, times: &Tensor, lengths: &Tensor) -> Tensor {
        // Stands for the logarithm of 0, whose own gradient would be NaN.
        const NEVER: f64 = -1e30;
        let &[n, time, places, classes] = logits.shape().dims() else {
            let message = format!("logits {} are not [n, time, labels + 1, classes]", logits.shape());
            Error::shape("RnntLoss", message).raise()
        };
        let fits = targets.shape()[..] == [n, places - 1] && times.shape()[..] == [n] && lengths.shape()[..] == [n];
        if !fits || time == 0 || self.blank >= classes {
            let message = format!(
                "targets {}, times {} and lengths {} do not fit logits {} with blank {}",
                targets.shape(),
                times.shape(),
                lengths.shape(),
                logits.shape(),
                self.blank
            );
            Error::shape("RnntLoss", message).raise();
        }
        let device = logits.device();
        let log_probs = logits.to_dtype(logits.dtype().compute()).log_softmax(-1);
        let blank = log_probs.select(-1, self.blank as i64); // [n, time, places]
        // The target of place u is emitted on the way from u to u + 1; the last place emits nothing.
        let index = targets.to_dtype(DType::I64).pad_dims(&[(0, 0), (0, 1)], 0).reshape([n, 1, places, 1]);
        let emit = log_probs.gather(-1, &index.expand([n, time, places, 1])).squeeze(-1); // [n, time, places]

        // Diagonals t + u = d: alpha[d][u] follows from alpha[d − 1][u] by a blank, and from alpha[d − 1][u − 1] by a label.
        let place = Tensor::arange(0, places, 1, DType::I64, device);
        let start = place.eq(0).where_(0.0, NEVER).to_dtype(log_probs.dtype());
        let mut alphas: Vec<Tensor> = Vec::from([start.expand([n, places])]);
        for d in 1..time + places - 1 {
            let t = d as i64 - &place; // [places]
            let valid = t.ge(0).logical_and(&t.lt(time as i64));
            let step = |scores: &Tensor, back: i64| {
                let at = (&t - back).maximum(0).minimum(time as i64 - 1).reshape([1, 1, places]).expand([n, 1, places]);
                scores.gather(1, &at).squeeze(1)
            };
            let before = &alphas[d - 1]; // [n, places]
            let stays = (before + step(&blank, 1)).maximum(NEVER);
            // `emit` at u − 1 and time t, moved to u.
            let emitted = emit.narrow(2, 0, places - 1).pad_dims(&[(0, 0), (0, 0), (1, 0)], NEVER);
            let moved = before.narrow(1, 0, places - 1).pad_dims(&[(0, 0), (1, 0)], NEVER);
            let moves = (moved + step(&emitted, 0)).maximum(NEVER);
            alphas.push(valid.where_(stays.logaddexp(&moves), NEVER));
        }
        let alphas = Tensor::stack(&alphas.iter().collect::<Vec<_>>(), 1); // [n, diagonals, places]
        let (times, lengths) = (times.to_dtype(DType::I64) - 1, lengths.to_dtype(DType::I64));
        let pick = |x: &Tensor, row: &Tensor| {
            let row = row.reshape([n, 1, 1]).expand([n, 1, places]);
            x.gather(1, &row).squeeze(1).gather(1, &lengths.unsqueeze(1)).squeeze(1) // [n]
        };
        let last = pick(&alphas, &(&times + &lengths)) + pick(&blank, &times);
        reduced(&-last.to_dtype(logits.dtype()), self.reduction)
    }
}
