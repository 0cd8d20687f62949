//! Losses that look at hard examples: [`FocalLoss`], [`SigmoidFocalLoss`].

use super::{losses, reduced, value};
use crate::{Buffer, Module};
use fornax_tensor::{CrossEntropyOptions, Reduction, Tensor};

losses! {
    /// Cross entropy times `(1 − p)^gamma`, with the probability `p` of the target class: what is known well counts little.
    /// Inputs `[n, classes, …]`, class numbers `[n, …]`.
    ///
    /// # References
    /// Lin, Goyal, Girshick, He, Dollár (2017), *Focal Loss for Dense Object Detection*, arXiv:1708.02002, equation 4.
    FocalLoss {
        /// Power; 2.
        gamma: f64 = 2.0,
        /// A weight for each class; none.
        weight: Option<Buffer> = None,
        /// Targets of this class count for nothing; −100.
        ignore_index: i64 = -100,
    }
    |this, input, target| {
        let options = |weight| CrossEntropyOptions {
            weight,
            ignore_index: this.ignore_index,
            reduction: Reduction::None,
            label_smoothing: 0.0,
        };
        let plain = input.cross_entropy_with(target, &options(None)); // −ln p
        let weighted = match value(&this.weight) {
            Some(weight) => input.cross_entropy_with(target, &options(Some(weight))),
            None => plain.clone(),
        };
        reduced(&(weighted * (1.0 - (-plain).exp()).pow(this.gamma)), this.reduction)
    };

    /// Binary cross entropy of `sigmoid(input)` times `(1 − p)^gamma`, with the probability `p` of the target; positive
    /// targets weigh `alpha`, negative ones `1 − alpha`. As `torchvision.ops.sigmoid_focal_loss`, but for the mean.
    ///
    /// # References
    /// Lin, Goyal, Girshick, He, Dollár (2017), *Focal Loss for Dense Object Detection*, arXiv:1708.02002, equation 5.
    SigmoidFocalLoss {
        /// Weight of positive targets, or none for both; 0.25.
        alpha: Option<f64> = Some(0.25),
        /// Power; 2.
        gamma: f64 = 2.0,
    }
    |this, input, target| {
        let plain = input.binary_cross_entropy_with_logits(target, None, None, Reduction::None);
        // For targets between 0 and 1 as well: the probability of the target.
        let p = input.sigmoid();
        let p = &p * target + (1.0 - &p) * (1.0 - target);
        let loss = plain * (1.0 - p).pow(this.gamma);
        reduced(&match this.alpha {
            Some(alpha) => loss * (target * alpha + (1.0 - target) * (1.0 - alpha)),
            None => loss,
        }, this.reduction)
    };
}
