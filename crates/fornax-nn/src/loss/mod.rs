//! Losses as layers. Each is the method of the same name of [`Tensor`], with its settings kept; weights are buffers, saved
//! with a model.

mod adaptive;
mod distance;
mod focal;
mod transducer;

pub use adaptive::AdaptiveLogSoftmaxWithLoss;
pub use distance::{GramMatrixLoss, LpLoss, TripletMarginWithDistanceLoss};
pub use focal::{FocalLoss, SigmoidFocalLoss};
pub use transducer::RnntLoss;

use crate::{Buffer, Module};
use alloc::vec::Vec;
use fornax_tensor::{CrossEntropyOptions, Reduction, Tensor, TripletMarginOptions};

/// Defines losses of a prediction and a target: their settings with defaults, `new`, setters, and `forward`.
macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr, )* }
        |$this:ident, $($input:ident),+| $call:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $ty, )*
            /// Mean, sum, or all; mean.
            pub reduction: Reduction,
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> $name {
                $name { $( $field: $default, )* reduction: Reduction::Mean }
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(mut self, $field: $ty) -> $name {
                    self.$field = $field;
                    self
                }
            )*

            /// Mean, sum, or all; mean.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> $name {
                self.reduction = reduction;
                self
            }

            /// The loss.
            ///
            /// # Panics
            /// If the shapes do not fit together.
            #[track_caller]
            pub fn forward(&self, $($input: &Tensor),+) -> Tensor {
                let $this = self;
                $call
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }
    )*};
}

use losses;

/// The mean, the sum, or all of `losses`.
#[track_caller]
fn reduced(losses: &Tensor, reduction: Reduction) -> Tensor {
    match reduction {
        Reduction::None => losses.clone(),
        Reduction::Mean => losses.mean(()),
        Reduction::Sum => losses.sum(()),
    }
}

fn value(buffer: &Option<Buffer>) -> Option<Tensor> {
    buffer.as_ref().map(Buffer::get)
}

losses! {
    /// `|input − target|`.
    L1Loss {} |this, input, target| input.l1_loss(target, None, this.reduction);

    /// `(input − target)²`.
    MseLoss {} |this, input, target| input.mse_loss(target, None, this.reduction);

    /// `d² / (2 beta)` for `|d| < beta`, else `|d| − beta / 2`, with `d = input − target`.
    SmoothL1Loss {
        /// Where the parabola becomes a line; 1.
        beta: f64 = 1.0,
    }
    |this, input, target| input.smooth_l1_loss(target, this.beta, this.reduction);

    /// `d² / 2` for `|d| ≤ delta`, else `delta · (|d| − delta / 2)`, with `d = input − target`.
    HuberLoss {
        /// Where the parabola becomes a line; 1.
        delta: f64 = 1.0,
    }
    |this, input, target| input.huber_loss(target, None, this.delta, this.reduction);

    /// Negative log-likelihood of the target class under `softmax(input)`, for inputs `[n, classes, …]` and class numbers
    /// `[n, …]` or class probabilities `[n, classes, …]`.
    ///
    /// ```
    /// use fornax_nn::CrossEntropyLoss;
    /// use fornax_tensor::{Device, Tensor};
    /// let logits = Tensor::from([[0.0, 0.0], [0.0, 0.0]]);
    /// let labels = Tensor::from_vec(vec![0i64, 1], [2], &Device::cpu());
    /// let loss = CrossEntropyLoss::new().forward(&logits, &labels).item::<f32>();
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// ```
    CrossEntropyLoss {
        /// A weight for each class; none.
        weight: Option<Buffer> = None,
        /// Targets of this class count for nothing; −100.
        ignore_index: i64 = -100,
        /// How much of the target is spread over all classes; 0.
        label_smoothing: f64 = 0.0,
    }
    |this, input, target| input.cross_entropy_with(target, &CrossEntropyOptions {
        weight: value(&this.weight),
        ignore_index: this.ignore_index,
        reduction: this.reduction,
        label_smoothing: this.label_smoothing,
    });

    /// `−input_target` for log-probabilities `[n, classes, …]` and class numbers `[n, …]`.
    NllLoss {
        /// A weight for each class; none.
        weight: Option<Buffer> = None,
        /// Targets of this class count for nothing; −100.
        ignore_index: i64 = -100,
    }
    |this, input, target| input.nll_loss(target, value(&this.weight).as_ref(), this.ignore_index, this.reduction);

    /// `−(t ln p + (1 − t) ln(1 − p))` for probabilities `p`.
    BceLoss {
        /// Multiplies the loss of each element; none.
        weight: Option<Buffer> = None,
    }
    |this, input, target| input.binary_cross_entropy(target, value(&this.weight).as_ref(), this.reduction);

    /// [`BceLoss`] of `sigmoid(input)`, without overflow.
    BceWithLogitsLoss {
        /// Multiplies the loss of each element; none.
        weight: Option<Buffer> = None,
        /// Multiplies the positive part; none.
        pos_weight: Option<Buffer> = None,
    }
    |this, input, target| {
        let (weight, pos_weight) = (value(&this.weight), value(&this.pos_weight));
        input.binary_cross_entropy_with_logits(target, weight.as_ref(), pos_weight.as_ref(), this.reduction)
    };

    /// `t (ln t − input)` for log-probabilities.
    KlDivLoss {
        /// Whether the target holds logarithms; false.
        log_target: bool = false,
        /// Whether the mean is over the items of the batch (dim 0), as the definition wants, in place of all elements;
        /// false.
        batch_mean: bool = false,
    }
    |this, input, target| {
        if this.batch_mean && this.reduction == Reduction::Mean {
            let items = input.shape().first().copied().unwrap_or(1);
            return input.kl_div(target, this.log_target, Reduction::Sum) / items as f64;
        }
        input.kl_div(target, this.log_target, this.reduction)
    };

    /// Negative log likelihood of a Poisson distribution with (log) rate `input`.
    PoissonNllLoss {
        /// Whether the input holds logarithms; true.
        log_input: bool = true,
        /// Whether Stirling's approximation of `ln t!` is added; false.
        full: bool = false,
        /// Added inside the logarithm; 1e-8.
        eps: f64 = 1e-8,
    }
    |this, input, target| input.poisson_nll_loss(target, this.log_input, this.full, this.eps, this.reduction);

    /// Negative log likelihood of normal distributions with mean `input` and variance `var`.
    GaussianNllLoss {
        /// Whether `ln(2π) / 2` is added; false.
        full: bool = false,
        /// Smallest variance; 1e-6.
        eps: f64 = 1e-6,
    }
    |this, input, target, var| input.gaussian_nll_loss(target, var, this.full, this.eps, this.reduction);

    /// `input` for targets 1, `max(0, margin − input)` for targets −1.
    HingeEmbeddingLoss {
        /// How large inputs of targets −1 should be; 1.
        margin: f64 = 1.0,
    }
    |this, input, target| input.hinge_embedding_loss(target, this.margin, this.reduction);

    /// `max(0, −target · (input1 − input2) + margin)`.
    MarginRankingLoss {
        /// By how much they should differ; 0.
        margin: f64 = 0.0,
    }
    |this, input1, input2, target| input1.margin_ranking_loss(input2, target, this.margin, this.reduction);

    /// `1 − cos` for targets 1, `max(0, cos − margin)` for −1; the cosine is that of vectors along the last dim.
    CosineEmbeddingLoss {
        /// How large the cosine of targets −1 may be; 0.
        margin: f64 = 0.0,
    }
    |this, input1, input2, target| input1.cosine_embedding_loss(input2, target, this.margin, this.reduction);

    /// `max(0, d(anchor, positive) − d(anchor, negative) + margin)`, with the p-norm distance `d` along the last dim.
    TripletMarginLoss {
        /// By how much the negative should be farther away; 1.
        margin: f64 = 1.0,
        /// Which norm measures distance; 2.
        p: f64 = 2.0,
        /// Added to differences; 1e-6.
        eps: f64 = 1e-6,
        /// Whether the distance of positive and negative counts if it is smaller; false.
        swap: bool = false,
    }
    |this, anchor, positive, negative| anchor.triplet_margin_loss(positive, negative, &TripletMarginOptions {
        margin: this.margin,
        p: this.p,
        eps: this.eps,
        swap: this.swap,
        reduction: this.reduction,
    });

    /// `Σ max(0, margin − x_t + x_i)ᵖ / classes` over all classes `i ≠ t`.
    MultiMarginLoss {
        /// Power, 1 or 2; 1.
        p: i64 = 1,
        /// By how much the target class should be larger; 1.
        margin: f64 = 1.0,
        /// A weight for each class; none.
        weight: Option<Buffer> = None,
    }
    |this, input, target| {
        input.multi_margin_loss(target, this.p, this.margin, value(&this.weight).as_ref(), this.reduction)
    };

    /// `Σ max(0, 1 − x_t + x_i) / classes` over the target classes `t` of a row (up to the first −1) and all classes `i`
    /// that are none.
    MultiLabelMarginLoss {} |this, input, target| input.multilabel_margin_loss(target, this.reduction);

    /// Mean over the classes (last dim) of the logistic loss of each.
    MultiLabelSoftMarginLoss {
        /// A weight for each class; none.
        weight: Option<Buffer> = None,
    }
    |this, input, target| input.multilabel_soft_margin_loss(target, value(&this.weight).as_ref(), this.reduction);

    /// `ln(1 + e^(−target · input))`.
    SoftMarginLoss {} |this, input, target| input.soft_margin_loss(target, this.reduction);
}

/// Connectionist temporal classification: how likely label sequences are, over all alignments.
///
/// # References
/// Graves, Fernández, Gomez, Schmidhuber (2006), *Connectionist Temporal Classification*.
#[derive(Module, Clone, Debug, Default, PartialEq, Eq)]
pub struct CtcLoss {
    /// The class that stands for no label; 0.
    pub blank: usize,
    /// Whether infinite losses count as 0; false.
    pub zero_infinity: bool,
    /// Mean, sum, or all; mean.
    pub reduction: Reduction,
}

impl CtcLoss {
    /// With PyTorch's defaults.
    pub fn new() -> CtcLoss {
        CtcLoss::default()
    }

    /// The loss of log-probabilities `[time, n, classes]`, labels `[n, length]` (or all in a row), and the lengths of
    /// both.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: impl Into<Vec<i64>>,
        target_lengths: impl Into<Vec<i64>>,
    ) -> Tensor {
        let (inputs, targets_of) = (input_lengths.into(), target_lengths.into());
        log_probs.ctc_loss(targets, inputs, targets_of, self.blank, self.reduction, self.zero_infinity)
    }
}

/// Cosine of vectors along `dim`.
#[derive(Module, Clone, Copy, Debug, PartialEq)]
pub struct CosineSimilarity {
    /// Which dim; 1.
    pub dim: i64,
    /// Smallest norm; 1e-8.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// Applies the layer.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        x1.cosine_similarity(x2, self.dim, self.eps)
    }
}

/// p-norm of `x1 − x2 + eps` along the last dim.
#[derive(Module, Clone, Copy, Debug, PartialEq)]
pub struct PairwiseDistance {
    /// Which norm; 2.
    pub p: f64,
    /// Added to differences; 1e-6.
    pub eps: f64,
    /// Whether the dim stays with size 1; false.
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false }
    }
}

impl PairwiseDistance {
    /// Applies the layer.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)
    }
}
