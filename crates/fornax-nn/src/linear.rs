//! [`Linear`].

use crate::{Module, Param, init};
use fornax_tensor::{Device, Tensor};

/// `y = x · weightᵀ + bias`.
///
/// # Shapes
/// - `weight`: `[out_features, in_features]`, `bias`: `[out_features]`;
/// - input `[…, in_features]`, result `[…, out_features]`.
///
/// Both start uniform in `±1/√in_features`, as in PyTorch.
///
/// ```
/// use fornax_nn::Linear;
/// use fornax_tensor::{Device, Tensor};
/// let layer = Linear::new(3, 2, &Device::cpu());
/// assert_eq!(layer.forward(&Tensor::zeros([5, 3], &Device::cpu())).dims(), [5, 2]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Param,
    /// `[out_features]`, if there is one.
    pub bias: Option<Param>,
}

impl Linear {
    /// A layer with a bias.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize, device: &Device) -> Linear {
        let bias = init::fan_in_uniform([out_features], in_features, device);
        Linear { bias: Some(Param::new(&bias)), ..Linear::without_bias(in_features, out_features, device) }
    }

    /// A layer without a bias.
    #[track_caller]
    pub fn without_bias(in_features: usize, out_features: usize, device: &Device) -> Linear {
        let weight = init::fan_in_uniform([out_features, in_features], in_features, device);
        Linear { weight: Param::new(&weight), bias: None }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not `in_features`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_deref())
    }
}
