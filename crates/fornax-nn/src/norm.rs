//! Normalization layers.

use crate::{Buffer, Mode, Module, Param};
use alloc::format;
use fornax_tensor::{Affine, DType, Device, Error, Shape, Tensor, keepdim, no_grad};

/// Running mean and variance of channels, as batch and instance norm keep them.
#[derive(Module, Clone, Debug)]
pub struct RunningStats {
    /// `[channels]`, zeros at first.
    pub running_mean: Buffer,
    /// `[channels]`, ones at first.
    pub running_var: Buffer,
    /// Batches seen (`i64`).
    pub num_batches_tracked: Buffer,
}

impl RunningStats {
    pub(crate) fn new(channels: usize, device: &Device) -> RunningStats {
        RunningStats {
            running_mean: Buffer::new(&Tensor::zeros([channels], device)),
            running_var: Buffer::new(&Tensor::ones([channels], device)),
            num_batches_tracked: Buffer::new(&Tensor::full((), 0, DType::I64, device)),
        }
    }

    /// Moves them towards those of a batch. Without a momentum they are the mean over all batches.
    #[track_caller]
    pub(crate) fn update(&self, mean: &Tensor, unbiased_var: &Tensor, momentum: Option<f64>) {
        for (running, new) in [(&self.running_mean, mean), (&self.running_var, unbiased_var)] {
            let old = running.get();
            let new = new.to_dtype(old.dtype());
            running.set(&match momentum {
                Some(momentum) => old * (1.0 - momentum) + new * momentum,
                None => {
                    let weight = self.num_batches_tracked.get().to_dtype(old.dtype()).reciprocal();
                    &old + (new - &old) * weight
                }
            });
        }
    }
}

pub(crate) fn affine_of(weight: &Option<Param>, bias: &Option<Param>) -> Affine {
    Affine { weight: weight.as_deref().cloned(), bias: bias.as_deref().cloned() }
}

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
            pub weight: Option<Param>,
            /// `[channels]`, zeros at first.
            pub bias: Option<Param>,
            /// Running statistics; without them, those of the batch serve in evaluation too.
            #[module(flatten)]
            pub stats: Option<RunningStats>,
            /// Added to the variance; 1e-5.
            pub eps: f64,
            /// Weight of a new batch in the running statistics; 0.1. `None`: they are the mean over all batches.
            pub momentum: Option<f64>,
            channels: usize,
            mode: Mode,
        }

        impl $name {
            /// A layer for so many channels.
            #[track_caller]
            pub fn new(channels: usize, device: &Device) -> $name {
                $name {
                    weight: Some(Param::new(&Tensor::ones([channels], device))),
                    bias: Some(Param::new(&Tensor::zeros([channels], device))),
                    stats: Some(RunningStats::new(channels, device)),
                    eps: 1e-5,
                    momentum: Some(0.1),
                    channels,
                    mode: Mode::default(),
                }
            }

            /// Added to the variance; 1e-5.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> $name {
                self.eps = eps;
                self
            }

            /// Weight of a new batch in the running statistics; 0.1. `None`: they are the mean over all batches.
            #[must_use]
            pub fn momentum(mut self, momentum: Option<f64>) -> $name {
                self.momentum = momentum;
                self
            }

            /// The same layer without weight and bias.
            #[must_use]
            pub fn without_affine(mut self) -> $name {
                (self.weight, self.bias) = (None, None);
                self
            }

            /// The same layer without running statistics: those of the batch serve in evaluation too.
            #[must_use]
            pub fn without_running_stats(mut self) -> $name {
                self.stats = None;
                self
            }

            /// Applies the layer; in training, updates the running statistics.
            ///
            /// # Panics
            #[doc = concat!("If `x` is not `", $shape, "`, or training has a single value a channel.")]
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                let name = stringify!($name);
                if !matches!(x.rank(), $ranks) || x.shape()[1] != self.channels {
                    let message = format!("x {} is not {} with {} channels", x.shape(), $shape, self.channels);
                    Error::shape(name, message).raise();
                }
                let affine = affine_of(&self.weight, &self.bias);
                let is_training = self.mode.measures();
                if let (Some(stats), false) = (&self.stats, is_training) {
                    return x.batch_norm(&stats.running_mean.get(), &stats.running_var.get(), &affine, self.eps);
                }
                let count = x.numel() / self.channels.max(1);
                if is_training && count < 2 {
                    let message = format!("x {} has a single value a channel: no variance", x.shape());
                    Error::shape(name, message).raise();
                }
                let (mean, var) = x.batch_statistics();
                if let (Some(stats), true) = (&self.stats, is_training) {
                    no_grad(|| {
                        stats.num_batches_tracked.set(&(stats.num_batches_tracked.get() + 1));
                        let unbiased = var.detach() * (count as f64 / (count - 1) as f64);
                        stats.update(&mean.detach(), &unbiased, self.mode.momentum(self.momentum));
                    });
                }
                x.batch_norm(&mean, &var, &affine, self.eps)
            }
        }
    };
}

batch_norm!(BatchNorm1d, 2 | 3, "[n, channels] or [n, channels, length]");
batch_norm!(BatchNorm2d, 4, "[n, channels, height, width]");
batch_norm!(BatchNorm3d, 5, "[n, channels, depth, height, width]");

macro_rules! instance_norm {
    ($name:ident, $rank:literal, $shape:literal) => {
        #[doc = concat!("Normalization of each channel of each item of `", $shape, "` on its own.")]
        ///
        /// `y = (x − mean) / √(var + eps)`, with weight and bias if asked for (they are not by default, as in PyTorch).
        ///
        /// # References
        /// Ulyanov, Vedaldi, Lempitsky (2016), *Instance Normalization*, arXiv:1607.08022.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// `[channels]`, ones at first, if there is one.
            pub weight: Option<Param>,
            /// `[channels]`, zeros at first, if there is one.
            pub bias: Option<Param>,
            /// Running statistics for evaluation, if there are any.
            #[module(flatten)]
            pub stats: Option<RunningStats>,
            /// Added to the variance; 1e-5.
            pub eps: f64,
            /// Weight of a new batch in the running statistics; 0.1.
            pub momentum: f64,
            channels: usize,
            mode: Mode,
        }

        impl $name {
            /// A layer for so many channels.
            pub fn new(channels: usize) -> $name {
                $name {
                    weight: None,
                    bias: None,
                    stats: None,
                    eps: 1e-5,
                    momentum: 0.1,
                    channels,
                    mode: Mode::default(),
                }
            }

            /// Added to the variance; 1e-5.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> $name {
                self.eps = eps;
                self
            }

            /// Weight of a new batch in the running statistics; 0.1.
            #[must_use]
            pub fn momentum(mut self, momentum: f64) -> $name {
                self.momentum = momentum;
                self
            }

            /// The same layer with weight and bias.
            #[must_use]
            #[track_caller]
            pub fn with_affine(mut self, device: &Device) -> $name {
                self.weight = Some(Param::new(&Tensor::ones([self.channels], device)));
                self.bias = Some(Param::new(&Tensor::zeros([self.channels], device)));
                self
            }

            /// The same layer with running statistics, which serve in evaluation.
            #[must_use]
            #[track_caller]
            pub fn with_running_stats(mut self, device: &Device) -> $name {
                self.stats = Some(RunningStats::new(self.channels, device));
                self
            }

            /// Applies the layer; in training, updates the running statistics if there are any.
            ///
            /// # Panics
            #[doc = concat!("If `x` is not `", $shape, "` (or one item of it).")]
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                if x.rank() == $rank - 1 {
                    return self.forward(&x.unsqueeze(0)).squeeze(0);
                }
                if x.rank() != $rank || x.shape()[1] != self.channels {
                    let message = format!("x {} is not {} with {} channels", x.shape(), $shape, self.channels);
                    Error::shape(stringify!($name), message).raise();
                }
                let affine = affine_of(&self.weight, &self.bias);
                let Some(stats) = &self.stats else { return x.instance_norm(&affine, self.eps) };
                if !self.mode.is_training() {
                    return x.batch_norm(&stats.running_mean.get(), &stats.running_var.get(), &affine, self.eps);
                }
                no_grad(|| {
                    let dims: alloc::vec::Vec<usize> = (2..$rank).collect();
                    let count: usize = x.shape()[2..].iter().product();
                    let wide = x.detach().to_dtype(x.dtype().compute());
                    let mean = wide.mean(keepdim(dims.clone()));
                    let var = (wide - &mean).square().sum(dims.clone()) / (count.max(2) - 1) as f64;
                    stats.update(&mean.squeeze(dims).mean(0), &var.mean(0), Some(self.momentum));
                });
                x.instance_norm(&affine, self.eps)
            }
        }
    };
}

instance_norm!(InstanceNorm1d, 3, "[n, channels, length]");
instance_norm!(InstanceNorm2d, 4, "[n, channels, height, width]");
instance_norm!(InstanceNorm3d, 5, "[n, channels, depth, height, width]");

/// Layer normalization over the last dims: `(x − mean) / √(var + eps) · weight + bias`, biased variance.
///
/// ```
/// use fornax_nn::LayerNorm;
/// use fornax_tensor::{Device, Tensor};
/// let norm = LayerNorm::new(2, &Device::cpu());
/// let y = norm.forward(&Tensor::from([[1.0, 3.0]])).to_vec::<f32>();
/// assert!((y[0] + 1.0).abs() < 1e-3 && (y[1] - 1.0).abs() < 1e-3);
/// ```
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
    normalized_shape: Shape,
}

impl LayerNorm {
    /// A layer over last dims of these sizes.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Shape>, device: &Device) -> LayerNorm {
        let normalized_shape = normalized_shape.into();
        LayerNorm {
            weight: Some(Param::new(&Tensor::ones(&normalized_shape, device))),
            bias: Some(Param::new(&Tensor::zeros(&normalized_shape, device))),
            eps: 1e-5,
            normalized_shape,
        }
    }

    /// Added to the variance; 1e-5.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> LayerNorm {
        self.eps = eps;
        self
    }

    /// The same layer without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> LayerNorm {
        self.bias = None;
        self
    }

    /// The same layer without weight and bias.
    #[must_use]
    pub fn without_affine(mut self) -> LayerNorm {
        (self.weight, self.bias) = (None, None);
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` does not end in the normalized dims.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(&self.normalized_shape, &affine_of(&self.weight, &self.bias), self.eps)
    }
}

/// Root mean square normalization over the last dims: `x / √(mean(x²) + eps) · weight`.
///
/// # References
/// Zhang, Sennrich (2019), *Root Mean Square Layer Normalization*, arXiv:1910.07467.
#[derive(Module, Clone, Debug)]
pub struct RmsNorm {
    /// Shaped like the normalized dims, ones at first, if there is one.
    pub weight: Option<Param>,
    /// Added to the mean square.
    pub eps: f64,
    normalized_shape: Shape,
}

impl RmsNorm {
    /// A layer over last dims of these sizes.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Shape>, eps: f64, device: &Device) -> RmsNorm {
        let normalized_shape = normalized_shape.into();
        RmsNorm { weight: Some(Param::new(&Tensor::ones(&normalized_shape, device))), eps, normalized_shape }
    }

    /// The same layer without a weight.
    #[must_use]
    pub fn without_affine(mut self) -> RmsNorm {
        self.weight = None;
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` does not end in the normalized dims.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.rms_norm(&self.normalized_shape, self.weight.as_deref(), Some(self.eps))
    }
}

/// Layer normalization over groups of channels of `[n, channels, …]`.
///
/// # References
/// Wu, He (2018), *Group Normalization*, arXiv:1803.08494.
#[derive(Module, Clone, Debug)]
pub struct GroupNorm {
    /// `[channels]`, ones at first.
    pub weight: Option<Param>,
    /// `[channels]`, zeros at first.
    pub bias: Option<Param>,
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
            weight: Some(Param::new(&Tensor::ones([channels], device))),
            bias: Some(Param::new(&Tensor::zeros([channels], device))),
            num_groups,
            eps: 1e-5,
        }
    }

    /// Added to the variance; 1e-5.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> GroupNorm {
        self.eps = eps;
        self
    }

    /// The same layer without weight and bias.
    #[must_use]
    pub fn without_affine(mut self) -> GroupNorm {
        (self.weight, self.bias) = (None, None);
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the channels of `x` do not split into the groups.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.group_norm(self.num_groups, &affine_of(&self.weight, &self.bias), self.eps)
    }
}

/// Divided by `(k + alpha · mean of squares over size neighbouring channels)^beta`.
///
/// # References
/// Krizhevsky, Sutskever, Hinton (2012), *ImageNet Classification with Deep Convolutional Neural Networks*, 3.3.
#[derive(Module, Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// Channels that count.
    pub size: usize,
    /// Factor of the mean; 1e-4.
    pub alpha: f64,
    /// Power; 0.75.
    pub beta: f64,
    /// Is added; 1.
    pub k: f64,
}

impl LocalResponseNorm {
    /// A layer over so many channels.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` has fewer than 3 dims.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.local_response_norm(self.size, self.alpha, self.beta, self.k)
    }
}
