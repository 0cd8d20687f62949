//! [`Linear`] and [`Bilinear`].

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
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_deref())
    }
}

/// `y_k = x1 · weight_k · x2 + bias_k`.
///
/// # Shapes
/// - `weight`: `[out, in1, in2]`, `bias`: `[out]`;
/// - inputs `[…, in1]` and `[…, in2]`, result `[…, out]`.
///
/// Both start uniform in `±1/√in1`, as in PyTorch.
#[derive(Module, Clone, Debug)]
pub struct Bilinear {
    /// `[out, in1, in2]`.
    pub weight: Param,
    /// `[out]`, if there is one.
    pub bias: Option<Param>,
}

impl Bilinear {
    /// A layer with a bias.
    #[track_caller]
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize, device: &Device) -> Bilinear {
        let uniform = |shape: &[usize]| Param::new(&init::fan_in_uniform(shape, in1_features, device));
        let weight = uniform(&[out_features, in1_features, in2_features]);
        Bilinear { weight, bias: Some(uniform(&[out_features])) }
    }

    /// The same layer without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Bilinear {
        self.bias = None;
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the inputs do not end in `in1_features` and `in2_features`, or differ in their other dims.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        x1.bilinear(x2, &self.weight, self.bias.as_deref())
    }
}
