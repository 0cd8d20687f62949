//! Convolution layers, and their transposes.

use crate::{Module, Param, init};
use alloc::vec;
use alloc::vec::Vec;
use fornax_tensor::{ConvOptions, ConvTransposeOptions, Device, PadMode, Padding, PerDim, Tensor};

/// What stands around the input of a convolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The input mirrored at its edge, which stands once.
    Reflect,
    /// The edge.
    Replicate,
    /// The other end of the input.
    Circular,
}

/// Settings of a convolution layer; kernel and channels are given to `new`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvConfig {
    /// Stride 1, no padding, dilation 1, one group.
    pub options: ConvOptions,
    /// Whether there is a bias; true.
    pub bias: bool,
    /// What the padding consists of; zeros.
    pub padding_mode: PaddingMode,
}

impl Default for ConvConfig {
    fn default() -> ConvConfig {
        ConvConfig { options: ConvOptions::default(), bias: true, padding_mode: PaddingMode::Zeros }
    }
}

impl ConvConfig {
    /// Distance between positions of the kernel.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerDim>) -> ConvConfig {
        self.options.stride = stride.into();
        self
    }

    /// Border around the input.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<Padding>) -> ConvConfig {
        self.options.padding = padding.into();
        self
    }

    /// What the border consists of.
    #[must_use]
    pub fn padding_mode(mut self, padding_mode: PaddingMode) -> ConvConfig {
        self.padding_mode = padding_mode;
        self
    }

    /// Distance between elements of the kernel.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<PerDim>) -> ConvConfig {
        self.options.dilation = dilation.into();
        self
    }

    /// Independent groups of channels.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> ConvConfig {
        self.options.groups = groups;
        self
    }

    /// No bias.
    #[must_use]
    pub fn without_bias(mut self) -> ConvConfig {
        self.bias = false;
        self
    }
}

/// Settings of a transposed convolution layer; kernel and channels are given to `new`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeConfig {
    /// Stride 1, no padding, dilation 1, one group.
    pub options: ConvTransposeOptions,
    /// Whether there is a bias; true.
    pub bias: bool,
}

impl Default for ConvTransposeConfig {
    fn default() -> ConvTransposeConfig {
        ConvTransposeConfig { options: ConvTransposeOptions::default(), bias: true }
    }
}

impl ConvTransposeConfig {
    /// Distance between elements of the input in the result.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerDim>) -> ConvTransposeConfig {
        self.options.stride = stride.into();
        self
    }

    /// How much is cut off on each side of the result.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<PerDim>) -> ConvTransposeConfig {
        self.options.padding = padding.into();
        self
    }

    /// How much longer the result is at its end.
    #[must_use]
    pub fn output_padding(mut self, output_padding: impl Into<PerDim>) -> ConvTransposeConfig {
        self.options.output_padding = output_padding.into();
        self
    }

    /// Distance between elements of the kernel.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<PerDim>) -> ConvTransposeConfig {
        self.options.dilation = dilation.into();
        self
    }

    /// Independent groups of channels.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> ConvTransposeConfig {
        self.options.groups = groups;
        self
    }

    /// No bias.
    #[must_use]
    pub fn without_bias(mut self) -> ConvTransposeConfig {
        self.bias = false;
        self
    }
}

macro_rules! conv {
    ($name:ident, $rank:literal, $method:ident, $kernel:literal, $spatial:literal, $example:literal) => {
        #[doc = concat!("Convolution over ", $spatial, ".")]
        ///
        /// # Shapes
        #[doc = concat!("- `weight`: `[out, in / groups, ", $kernel, "]`, `bias`: `[out]`;")]
        #[doc = concat!("- input `[n, in, ", $spatial, "]`, result `[n, out, …]`.")]
        ///
        /// Both start uniform in `±1/√(in / groups · kernel)`, as in PyTorch.
        ///
        /// ```
        #[doc = concat!("use fornax_nn::{", stringify!($name), ", ConvConfig};")]
        /// use fornax_tensor::{Device, Tensor};
        /// let device = Device::cpu();
        /// let config = ConvConfig::default().padding(1).stride(2);
        #[doc = concat!("let layer = ", stringify!($name), "::new(3, 8, [3; ", $rank, "], &config, &device);")]
        #[doc = concat!("let x = Tensor::zeros(", $example, ", &device);")]
        /// assert_eq!(layer.forward(&x).shape()[1..3], [8, 4]);
        /// ```
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            #[doc = concat!("`[out, in / groups, ", $kernel, "]`.")]
            pub weight: Param,
            /// `[out]`, if there is one.
            pub bias: Option<Param>,
            options: ConvOptions,
            border: Option<Border>,
        }

        impl $name {
            /// A layer from `in_channels` to `out_channels` with a kernel of `kernel_size`.
            ///
            /// # Panics
            /// If the channels do not split into the groups.
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: [usize; $rank],
                config: &ConvConfig,
                device: &Device,
            ) -> $name {
                let groups = config.options.groups;
                check_groups(stringify!($name), in_channels, out_channels, groups);
                let fan_in = in_channels / groups * kernel_size.iter().product::<usize>();
                let mut shape = vec![out_channels, in_channels / groups];
                shape.extend(kernel_size);
                let weight = init::fan_in_uniform(shape, fan_in, device);
                let bias = config.bias.then(|| Param::new(&init::fan_in_uniform([out_channels], fan_in, device)));
                let mut options = config.options.clone();
                let border = Border::new(
                    config,
                    |x, options| {
                        let mut shape = vec![1, 1];
                        shape.extend(kernel_size);
                        x.$method(&Tensor::zeros(shape, x.device()), None, options)
                    },
                    $rank,
                );
                if border.is_some() {
                    options.padding = Padding::Valid;
                }
                $name { weight: Param::new(&weight), bias, options, border }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If `x` does not have `in_channels` channels, or is smaller than the kernel.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                match &self.border {
                    Some(border) => border.around(x).$method(&self.weight, self.bias.as_deref(), &self.options),
                    None => x.$method(&self.weight, self.bias.as_deref(), &self.options),
                }
            }
        }
    };
}

conv!(Conv1d, 1, conv1d, "length", "length", "[1, 3, 8]");
conv!(Conv2d, 2, conv2d, "height, width", "height, width", "[1, 3, 8, 8]");
conv!(Conv3d, 3, conv3d, "depth, height, width", "depth, height, width", "[1, 3, 8, 8, 8]");

macro_rules! conv_transpose {
    ($name:ident, $rank:literal, $method:ident, $kernel:literal, $spatial:literal) => {
        #[doc = concat!("Transposed convolution over ", $spatial, ": what a convolution does backwards.")]
        ///
        /// # Shapes
        #[doc = concat!("- `weight`: `[in, out / groups, ", $kernel, "]`, `bias`: `[out]`;")]
        #[doc = concat!("- input `[n, in, ", $spatial, "]`, result `[n, out, …]`.")]
        ///
        /// Both start uniform in `±1/√(out / groups · kernel)`, as in PyTorch.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            #[doc = concat!("`[in, out / groups, ", $kernel, "]`.")]
            pub weight: Param,
            /// `[out]`, if there is one.
            pub bias: Option<Param>,
            options: ConvTransposeOptions,
        }

        impl $name {
            /// A layer from `in_channels` to `out_channels` with a kernel of `kernel_size`.
            ///
            /// # Panics
            /// If the channels do not split into the groups.
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: [usize; $rank],
                config: &ConvTransposeConfig,
                device: &Device,
            ) -> $name {
                let groups = config.options.groups;
                check_groups(stringify!($name), in_channels, out_channels, groups);
                // PyTorch takes dim 1 of the weight for the inputs here too.
                let fan_in = out_channels / groups * kernel_size.iter().product::<usize>();
                let mut shape = vec![in_channels, out_channels / groups];
                shape.extend(kernel_size);
                let weight = init::fan_in_uniform(shape, fan_in, device);
                let bias = config.bias.then(|| Param::new(&init::fan_in_uniform([out_channels], fan_in, device)));
                $name { weight: Param::new(&weight), bias, options: config.options.clone() }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If `x` does not have `in_channels` channels.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$method(&self.weight, self.bias.as_deref(), &self.options)
            }
        }
    };
}

conv_transpose!(ConvTranspose1d, 1, conv_transpose1d, "length", "length");
conv_transpose!(ConvTranspose2d, 2, conv_transpose2d, "height, width", "height, width");
conv_transpose!(ConvTranspose3d, 3, conv_transpose3d, "depth, height, width", "depth, height, width");

#[track_caller]
fn check_groups(layer: &str, in_channels: usize, out_channels: usize, groups: usize) {
    assert!(
        groups > 0 && in_channels.is_multiple_of(groups) && out_channels.is_multiple_of(groups),
        "{layer}: {in_channels} and {out_channels} channels do not split into {groups} groups",
    );
}

/// A border that is not zeros, as [`Tensor::pad`] takes it.
#[derive(Module, Clone, Debug)]
struct Border {
    pad: Vec<i64>,
    mode: PadMode,
}

impl Border {
    /// The border that a convolution layer needs in front of its convolution, if any. How wide it is the convolution
    /// itself tells: by how much its padding makes the result larger.
    #[track_caller]
    fn new(config: &ConvConfig, convolve: impl Fn(&Tensor, &ConvOptions) -> Tensor, spatial: usize) -> Option<Border> {
        let mode = match config.padding_mode {
            PaddingMode::Zeros => return None,
            PaddingMode::Reflect => PadMode::Reflect,
            PaddingMode::Replicate => PadMode::Replicate,
            PaddingMode::Circular => PadMode::Circular,
        };
        // Shapes are all that is asked for: nothing of this is ever computed.
        const LARGE: usize = 1 << 16;
        let mut shape = vec![1, 1];
        shape.resize(2 + spatial, LARGE);
        let x = Tensor::zeros(shape, &Device::reference());
        let padded = ConvOptions { stride: 1.into(), groups: 1, ..config.options.clone() };
        let valid = ConvOptions { padding: Padding::Valid, ..padded.clone() };
        let (padded, valid) = (convolve(&x, &padded), convolve(&x, &valid));
        let totals = padded.shape()[2..].iter().zip(&valid.shape()[2..]).map(|(with, without)| with - without);
        // An odd one goes behind.
        let pad = totals.rev().flat_map(|total| [(total / 2) as i64, (total - total / 2) as i64]).collect();
        Some(Border { pad, mode })
    }

    #[track_caller]
    fn around(&self, x: &Tensor) -> Tensor {
        x.pad(&self.pad, self.mode)
    }
}
