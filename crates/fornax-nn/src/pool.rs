//! Pooling layers.

use crate::Module;
use fornax_tensor::{AvgPoolOptions, PoolOptions, Tensor};

/// Largest of each window of `[n, c, height, width]`.
#[derive(Module, Clone, Debug)]
pub struct MaxPool2d {
    options: PoolOptions,
}

impl MaxPool2d {
    /// Windows as the options say; `PoolOptions::new(2)` halves each size.
    pub fn new(options: PoolOptions) -> MaxPool2d {
        MaxPool2d { options }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If a window does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.max_pool2d(&self.options).0
    }
}

/// Mean of each window of `[n, c, height, width]`.
#[derive(Module, Clone, Debug)]
pub struct AvgPool2d {
    options: AvgPoolOptions,
}

impl AvgPool2d {
    /// Windows as the options say.
    pub fn new(options: AvgPoolOptions) -> AvgPool2d {
        AvgPool2d { options }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If a window does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.avg_pool2d(&self.options)
    }
}
