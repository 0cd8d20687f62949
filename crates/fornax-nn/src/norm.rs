//! Normalization layers.

use crate::{Buffer, Mode, Module, Param};
use alloc::vec::Vec;
use fornax_tensor::{Affine, DType, Device, Error, Tensor, no_grad};

macro_rules! batch_norm {
    ($name:ident, $ranks:pat, $shape:literal) => {
        #[doc = concat!("Batch normalization of `", $shape, "`, each channel on its own.")]
        ///
        /// `y = (x − mean) / √(var + eps) · weight + bias`. In training, mean and (biased) variance are those of the
        /// batch, and the running ones move towards them (with the unbiased variance) by `momentum`; in evaluation the
        /// running ones serve.
        ///
        /// # References
        /// Ioffe, Szegedy (2015), *Batch Normalization*, arXiv:1502.03167.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// `[channels]`, ones at first.
            pub weight: Param,
            /// `[channels]`, zeros at first.
            pub bias: Param,
            /// `[channels]`, zeros at first.
            pub running_mean: Buffer,
            /// `[channels]`, ones at first.
            pub running_var: Buffer,
            /// Batches seen (`i64`).
            pub num_batches_tracked: Buffer,
            /// Added to the variance; 1e-5.
            pub eps: f64,
            /// Weight of a new batch in the running statistics; 0.1.
            pub momentum: f64,
            mode: Mode,
        }

        impl $name {
            /// A layer for so many channels.
            #[track_caller]
            pub fn new(channels: usize, device: &Device) -> $name {
                $name {
                    weight: Param::new(&Tensor::ones([channels], device)),
                    bias: Param::new(&Tensor::zeros([channels], device)),
                    running_mean: Buffer::new(&Tensor::zeros([channels], device)),
                    running_var: Buffer::new(&Tensor::ones([channels], device)),
                    num_batches_tracked: Buffer::new(&Tensor::full((), 0, DType::I64, device)),
                    eps: 1e-5,
                    momentum: 0.1,
                    mode: Mode::default(),
                }
            }

            /// Applies the layer; in training, updates the running statistics.
            ///
            /// # Panics
            #[doc = concat!("If `x` is not `", $shape, "`, or training has a single value a channel.")]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                let name = stringify!($name);
                if !matches!(x.rank(), $ranks) || x.shape()[1] != self.weight.numel() {
                    let message =
                        alloc::format!("x {} is not {} with {} channels", x.shape(), $shape, self.weight.numel());
                    Error::shape(name, message).raise();
                }
                let affine = Affine::new(&self.weight, &self.bias);
                if !self.mode.is_training() {
                    return x.batch_norm(&self.running_mean.get(), &self.running_var.get(), &affine, self.eps);
                }
                let count = x.numel() / self.weight.numel().max(1);
                if count < 2 {
                    let message = alloc::format!("x {} has a single value a channel: no variance", x.shape());
                    Error::shape(name, message).raise();
                }
                let (mean, var) = x.batch_statistics();
                no_grad(|| {
                    let dtype = self.running_mean.get().dtype();
                    let blend = |running: &Buffer, new: Tensor| {
                        running.set(&(running.get() * (1.0 - self.momentum) + new.to_dtype(dtype) * self.momentum));
                    };
                    blend(&self.running_mean, mean.detach());
                    blend(&self.running_var, var.detach() * (count as f64 / (count - 1) as f64));
                    self.num_batches_tracked.set(&(self.num_batches_tracked.get() + 1));
                });
                x.batch_norm(&mean, &var, &affine, self.eps)
            }
        }
    };
}

batch_norm!(BatchNorm1d, 2 | 3, "[n, channels] or [n, channels, length]");
batch_norm!(BatchNorm2d, 4, "[n, channels, height, width]");
batch_norm!(BatchNorm3d, 5, "[n, channels, depth, height, width]");

/// Layer normalization over the last dims: `(x − mean) / √(var + eps) · weight + bias`, biased variance.
///
/// # References
/// Ba, Kiros, Hinton (2016), *Layer Normalization*, arXiv:1607.06450.
#[derive(Module, Clone, Debug)]
pub struct LayerNorm {
    /// Shaped like the normalized dims, ones at first.
    pub weight: Option<Param>,
    /// Shaped like the normalized dims, zeros at first.
    pub bias: Option<Param>,
    /// Added to the variance; 1e-5.
    pub eps: f64,
    #[module(skip)]
    normalized_shape: Vec<usize>,
}

impl LayerNorm {
    /// A layer over last dims of these sizes.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Vec<usize>>, device: &Device) -> LayerNorm {
        let normalized_shape = normalized_shape.into();
        LayerNorm {
            weight: Some(Param::new(&Tensor::ones(normalized_shape.as_slice(), device))),
            bias: Some(Param::new(&Tensor::zeros(normalized_shape.as_slice(), device))),
            eps: 1e-5,
            normalized_shape,
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` does not end in the normalized dims.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let affine = Affine { weight: self.weight.as_deref().cloned(), bias: self.bias.as_deref().cloned() };
        x.layer_norm(&self.normalized_shape, &affine, self.eps)
    }
}

/// Root mean square normalization over the last dim: `x / √(mean(x²) + eps) · weight`.
///
/// # References
/// Zhang, Sennrich (2019), *Root Mean Square Layer Normalization*, arXiv:1910.07467.
#[derive(Module, Clone, Debug)]
pub struct RmsNorm {
    /// `[size]`, ones at first.
    pub weight: Param,
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// A layer over a last dim of `size`.
    #[track_caller]
    pub fn new(size: usize, eps: f64, device: &Device) -> RmsNorm {
        RmsNorm { weight: Param::new(&Tensor::ones([size], device)), eps }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not `size`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.rms_norm(&[self.weight.numel()], Some(&self.weight), Some(self.eps))
    }
}

/// Layer normalization over groups of channels of `[n, channels, …]`.
///
/// # References
/// Wu, He (2018), *Group Normalization*, arXiv:1803.08494.
#[derive(Module, Clone, Debug)]
pub struct GroupNorm {
    /// `[channels]`, ones at first.
    pub weight: Param,
    /// `[channels]`, zeros at first.
    pub bias: Param,
    /// Number of groups.
    pub num_groups: usize,
    /// Added to the variance; 1e-5.
    pub eps: f64,
}

impl GroupNorm {
    /// A layer that splits `channels` into `num_groups`.
    #[track_caller]
    pub fn new(num_groups: usize, channels: usize, device: &Device) -> GroupNorm {
        GroupNorm {
            weight: Param::new(&Tensor::ones([channels], device)),
            bias: Param::new(&Tensor::zeros([channels], device)),
            num_groups,
            eps: 1e-5,
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the channels of `x` do not split into the groups.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.group_norm(self.num_groups, &Affine::new(&self.weight, &self.bias), self.eps)
    }
}
