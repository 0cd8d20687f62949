//! Dropout, in training only: of elements, of channels, and for self-normalizing networks; noise.

use crate::{Mode, Module};
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{Error, Tensor};

macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident |$p:ident, $x:ident| $drop:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// Probability that something is dropped.
            pub p: f64,
            mode: Mode,
        }

        impl $name {
            /// With probability `p`.
            ///
            /// # Panics
            /// If `p` is not between 0 and 1.
            #[track_caller]
            pub fn new(p: f64) -> $name {
                assert!((0.0..=1.0).contains(&p), "{}: probability {p} is not between 0 and 1", stringify!($name));
                $name { p, mode: Mode::default() }
            }

            /// Applies the layer.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, $x: &Tensor) -> Tensor {
                let $p = self.p;
                if !self.mode.is_training() || $p == 0.0 {
                    return $x.clone();
                }
                $drop
            }
        }
    )*};
}

dropouts! {
    /// In training, each element is 0 with probability `p`, else divided by `1 − p`; in evaluation nothing happens.
    ///
    /// # References
    /// Srivastava et al. (2014), *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*.
    Dropout |p, x| x.dropout(p);

    /// [`Dropout`] of whole channels of `[n, c, length]` (or `[c, length]`).
    Dropout1d |p, x| drop_channels("Dropout1d", x, 1, p);

    /// [`Dropout`] of whole channels of `[n, c, height, width]` (or `[c, height, width]`).
    ///
    /// # References
    /// Tompson et al. (2014), *Efficient Object Localization Using Convolutional Networks*, arXiv:1411.4280.
    Dropout2d |p, x| drop_channels("Dropout2d", x, 2, p);

    /// [`Dropout`] of whole channels of `[n, c, depth, height, width]` (or `[c, depth, height, width]`).
    Dropout3d |p, x| drop_channels("Dropout3d", x, 3, p);

    /// Dropout that keeps mean 0 and variance 1 of its input, for [`crate::Selu`].
    ///
    /// # References
    /// Klambauer et al. (2017), *Self-Normalizing Neural Networks*, arXiv:1706.02515.
    AlphaDropout |p, x| drop_alpha(x, x.shape().dims(), p);

    /// [`AlphaDropout`] of whole channels of `[n, c, …]`.
    FeatureAlphaDropout |p, x| {
        let mask: Vec<usize> = x.shape().iter().enumerate().map(|(dim, &size)| if dim < 2 { size } else { 1 }).collect();
        drop_alpha(x, &mask, p)
    };
}

/// In training, adds normal noise of standard deviation `std`; in evaluation nothing happens.
///
/// # References
/// Bishop (1995), *Training with Noise is Equivalent to Tikhonov Regularization*.
#[derive(Module, Clone, Debug)]
pub struct GaussianNoise {
    /// Standard deviation of the noise.
    pub std: f64,
    mode: Mode,
}

impl GaussianNoise {
    /// With noise of standard deviation `std`.
    ///
    /// # Panics
    /// If `std` is negative.
    #[track_caller]
    pub fn new(std: f64) -> GaussianNoise {
        assert!(std >= 0.0, "GaussianNoise: standard deviation {std} is negative");
        GaussianNoise { std, mode: Mode::default() }
    }

    /// Applies the layer.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if !self.mode.is_training() || self.std == 0.0 {
            return x.clone();
        }
        x + Tensor::normal(x.shape(), 0.0, self.std, x.device()).to_dtype(x.dtype())
    }
}

#[track_caller]
fn drop_channels(layer: &str, x: &Tensor, spatial: usize, p: f64) -> Tensor {
    if !(spatial + 1..=spatial + 2).contains(&x.rank()) {
        Error::shape(layer, format!("x {} is not [n, c, …] with {spatial} spatial dims", x.shape())).raise();
    }
    let keeps = x.rank() - spatial;
    let mask: Vec<usize> =
        x.shape().iter().enumerate().map(|(dim, &size)| if dim < keeps { size } else { 1 }).collect();
    let kept = Tensor::bernoulli_mask(mask, 1.0 - p, x.device());
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    x * kept.to_dtype(x.dtype()) * scale
}

#[track_caller]
fn drop_alpha(x: &Tensor, mask: &[usize], p: f64) -> Tensor {
    // What SELU gives far below 0: −alpha · scale.
    const LOW: f64 = -1.758_099_340_847_376_6;
    let kept = Tensor::bernoulli_mask(mask, 1.0 - p, x.device());
    let a = if p == 1.0 { 0.0 } else { 1.0 / libm::sqrt((1.0 - p) * (1.0 + p * LOW * LOW)) };
    kept.where_(x, LOW).to_dtype(x.dtype()) * a - a * p * LOW
}
