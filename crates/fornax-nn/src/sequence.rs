//! [`Layer`]: whatever turns one tensor into one; tuples and lists of layers are layers.

use crate::Module;
use alloc::boxed::Box;
use alloc::vec::Vec;
use fornax_tensor::Tensor;

/// A module that turns one tensor into one. Tuples and lists of layers apply one after another, as PyTorch's `Sequential`
/// does, and have its parameter names:
///
/// ```
/// use fornax_nn::{Layer, Linear, Module, Relu};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let mlp = (Linear::new(4, 8, &device), Relu, Linear::new(8, 2, &device));
/// assert_eq!(mlp.forward(&Tensor::zeros([3, 4], &device)).dims(), [3, 2]);
/// assert_eq!(mlp.state_dict()[0].0, "0.weight");
///
/// let blocks: Vec<Box<dyn Layer>> = vec![Box::new(Linear::new(4, 4, &device)), Box::new(Relu)];
/// assert_eq!(blocks.forward(&Tensor::zeros([3, 4], &device)).dims(), [3, 4]);
/// ```
pub trait Layer: Module {
    /// Applies the layer.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
}

macro_rules! layers {
    ($($name:ident)*) => {$(
        impl Layer for crate::$name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                crate::$name::forward(self, x)
            }
        }
    )*};
}

layers!(
    Identity Relu Relu6 Gelu GeluTanh Sigmoid LogSigmoid Silu Mish Tanh Tanhshrink Softsign Selu Hardsigmoid Hardswish
    Elu Celu LeakyRelu Hardtanh Hardshrink Softshrink Softplus Threshold Glu Softmax LogSoftmax QuietSoftmax Softmin PRelu RRelu
    Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding
    BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d
    LayerNorm RmsNorm GroupNorm LocalResponseNorm
    Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout GaussianNoise SyncBatchNorm
    SinusoidalEncoding SwiGlu Nf4Linear FractionalMaxPool2d FractionalMaxPool3d
    MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LpPool1d LpPool2d LpPool3d
    AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
    ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
    CircularPad1d CircularPad2d CircularPad3d ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d
    Flatten Unflatten PixelShuffle PixelUnshuffle ChannelShuffle Upsample Fold Unfold
);

impl<L: crate::LinearLike> Layer for crate::Lora<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        crate::Lora::forward(self, x)
    }
}

impl<E: Layer> Layer for crate::MixtureOfExperts<E> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        crate::MixtureOfExperts::forward(self, x)
    }
}

impl<L: Layer + ?Sized> Layer for Box<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        (**self).forward(x)
    }
}

/// A layer that is not there changes nothing.
impl<L: Layer> Layer for Option<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Some(layer) => layer.forward(x),
            None => x.clone(),
        }
    }
}

/// One after another.
impl<L: Layer> Layer for Vec<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in self {
            x = layer.forward(&x);
        }
        x
    }
}

/// One after another.
impl<L: Layer, const N: usize> Layer for [L; N] {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in self {
            x = layer.forward(&x);
        }
        x
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt)*))*) => {$(
        /// One after another.
        impl<$($name: Layer),*> Layer for ($($name,)*) {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let x = x.clone();
                $(let x = self.$index.forward(&x);)*
                x
            }
        }
    )*};
}

tuples!((A 0)(A 0 B 1)(A 0 B 1 C 2)(A 0 B 1 C 2 D 3)(A 0 B 1 C 2 D 3 E 4)(A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11));
