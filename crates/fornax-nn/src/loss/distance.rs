//! Losses of distances and shapes: [`LpLoss`], [`GramMatrixLoss`], [`TripletMarginWithDistanceLoss`].

use super::{losses, reduced};
use crate::Module;
use alloc::format;
use fornax_tensor::{Error, Reduction, Tensor};

losses! {
    /// `|input − target|ᵖ`.
    LpLoss {
        /// The power; 2.
        p: f64 = 2.0,
    }
    |this, input, target| {
        let size = (input - target).abs();
        reduced(&match this.p {
            1.0 => size,
            2.0 => size.square(),
            p => size.pow(p),
        }, this.reduction)
    };

    /// Squared difference of the Gram matrices of two feature maps `[n, c, height, width]`: how alike their textures are,
    /// wherever they lie. A Gram matrix `[n, c, c]` holds the products of channels, divided by `c · height · width`.
    ///
    /// # References
    /// Gatys, Ecker, Bethge (2015), *A Neural Algorithm of Artistic Style*, arXiv:1508.06576, equations 3 to 5.
    GramMatrixLoss {}
    |this, input, target| {
        let gram = |x: &Tensor| {
            if x.rank() != 4 {
                Error::shape("GramMatrixLoss", format!("{} is not [n, c, height, width]", x.shape())).raise();
            }
            let features = x.flatten(2, -1); // [n, c, height · width]
            let count = features.shape()[1] * features.shape()[2];
            features.matmul(&features.mt()) / count.max(1) as f64
        };
        reduced(&(gram(input) - gram(target)).square(), this.reduction)
    };
}

/// [`crate::TripletMarginLoss`] with any distance: a function of two batches of vectors that gives a number for each pair.
#[derive(Clone, Debug)]
pub struct TripletMarginWithDistanceLoss<D> {
    /// The distance.
    pub distance: D,
    /// By how much the negative should be farther away; 1.
    pub margin: f64,
    /// Whether the distance of positive and negative counts if it is smaller; false.
    pub swap: bool,
    /// Mean, sum, or all; mean.
    pub reduction: Reduction,
}

impl<D: Fn(&Tensor, &Tensor) -> Tensor> TripletMarginWithDistanceLoss<D> {
    /// With PyTorch's defaults.
    pub fn new(distance: D) -> TripletMarginWithDistanceLoss<D> {
        TripletMarginWithDistanceLoss { distance, margin: 1.0, swap: false, reduction: Reduction::Mean }
    }

    /// The loss.
    #[track_caller]
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Tensor {
        let near = (self.distance)(anchor, positive);
        let mut far = (self.distance)(anchor, negative);
        if self.swap {
            far = far.minimum((self.distance)(positive, negative));
        }
        reduced(&(near - far + self.margin).relu(), self.reduction)
    }
}
