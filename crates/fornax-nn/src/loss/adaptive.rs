//! [`AdaptiveLogSoftmaxWithLoss`].

use crate::{Linear, Module};
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Error, Tensor};

/// A softmax over very many classes, sorted by how frequent they are: frequent ones have a weight of full width, those of
/// each cluster of rare ones a smaller one. Parameters are those of PyTorch: `head.weight`, `tail.0.0.weight`, ….
///
/// # References
/// Grave, Joulin, Cissé, Grangier, Jégou (2016), *Efficient softmax approximation for GPUs*, arXiv:1609.04309.
#[derive(Module, Clone, Debug)]
pub struct AdaptiveLogSoftmaxWithLoss {
    /// `[frequent classes + clusters, in_features]`.
    pub head: Linear,
    /// For each cluster a projection to its width, and its classes.
    pub tail: Vec<(Linear, Linear)>,
    /// Where clusters begin, and the number of classes.
    cutoffs: Vec<usize>,
}

impl AdaptiveLogSoftmaxWithLoss {
    /// Classes `0..n_classes`, with clusters that begin at `cutoffs`; cluster `i` has width
    /// `in_features / div_value^(i + 1)`. PyTorch's default of `div_value` is 4.
    ///
    /// # Panics
    /// If the cutoffs do not rise between 0 and the number of classes.
    #[track_caller]
    pub fn new(
        in_features: usize,
        n_classes: usize,
        cutoffs: &[usize],
        div_value: f64,
        device: &Device,
    ) -> AdaptiveLogSoftmaxWithLoss {
        let rises = cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(
            rises && cutoffs.first().is_some_and(|&first| first > 0) && cutoffs.last() < Some(&n_classes),
            "AdaptiveLogSoftmaxWithLoss: cutoffs {cutoffs:?} do not rise between 0 and {n_classes}"
        );
        let cutoffs: Vec<usize> = cutoffs.iter().copied().chain([n_classes]).collect();
        let tail = cutoffs.windows(2).enumerate().map(|(i, pair)| {
            let width = (in_features as f64 / libm::pow(div_value, i as f64 + 1.0)) as usize;
            let classes = Linear::without_bias(width, pair[1] - pair[0], device);
            (Linear::without_bias(in_features, width, device), classes)
        });
        let tail: Vec<_> = tail.collect();
        let head = Linear::without_bias(in_features, cutoffs[0] + tail.len(), device);
        AdaptiveLogSoftmaxWithLoss { head, tail, cutoffs }
    }

    /// The log-probability of each target `[n]` given `[n, in_features]`, and the loss: minus their mean.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> (Tensor, Tensor) {
        if x.rank() != 2 || target.shape()[..] != x.shape()[..1] {
            let message = format!("x {} and target {} are not [n, features] and [n]", x.shape(), target.shape());
            Error::shape("AdaptiveLogSoftmaxWithLoss", message).raise();
        }
        let target = target.to_dtype(DType::I64);
        let head = self.head.forward(x).log_softmax(-1); // [n, frequent + clusters]
        let of = |log_probs: &Tensor, class: &Tensor, count: usize| {
            let class = class.maximum(0).minimum(count as i64 - 1).unsqueeze(1);
            log_probs.gather(1, &class).squeeze(1)
        };
        let mut output = of(&head, &target, self.cutoffs[0]);
        for (i, ((project, classes), range)) in self.tail.iter().zip(self.cutoffs.windows(2)).enumerate() {
            let inside = classes.forward(&project.forward(x)).log_softmax(-1); // [n, classes of the cluster]
            let own = of(&inside, &(&target - range[0] as i64), range[1] - range[0])
                + head.select(1, (self.cutoffs[0] + i) as i64);
            output = target.ge(range[0] as i64).where_(own, output);
        }
        let loss = -output.mean(());
        (output, loss)
    }

    /// The log-probabilities of all classes: `[n, n_classes]`.
    #[track_caller]
    pub fn log_prob(&self, x: &Tensor) -> Tensor {
        let head = self.head.forward(x).log_softmax(-1);
        let mut parts = Vec::from([head.narrow(1, 0, self.cutoffs[0])]);
        for (i, (project, classes)) in self.tail.iter().enumerate() {
            let cluster = head.narrow(1, (self.cutoffs[0] + i) as i64, 1); // [n, 1]
            parts.push(classes.forward(&project.forward(x)).log_softmax(-1) + cluster);
        }
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)
    }

    /// The most likely class of each item: `[n]`.
    #[track_caller]
    pub fn predict(&self, x: &Tensor) -> Tensor {
        self.log_prob(x).argmax(1)
    }
}
