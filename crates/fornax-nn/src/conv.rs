//! Convolution layers.

use crate::{Module, Param, init};
use fornax_tensor::{ConvOptions, Device, Padding, PerDim, Tensor};

/// Settings of a convolution layer; kernel and channels are given to `new`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvConfig {
    /// Stride 1, no padding, dilation 1, one group.
    pub options: ConvOptions,
    /// Whether there is a bias; true.
    pub bias: bool,
}

impl Default for ConvConfig {
    fn default() -> ConvConfig {
        ConvConfig { options: ConvOptions::default(), bias: true }
    }
}

impl ConvConfig {
    /// Distance between positions of the kernel.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerDim>) -> ConvConfig {
        self.options.stride = stride.into();
        self
    }

    /// Zeros around the input.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<Padding>) -> ConvConfig {
        self.options.padding = padding.into();
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

macro_rules! conv {
    ($name:ident, $rank:literal, $method:ident, $kernel:literal, $spatial:literal) => {
        #[doc = concat!("Convolution over ", $spatial, ".")]
        ///
        /// # Shapes
        #[doc = concat!("- `weight`: `[out, in / groups, ", $kernel, "]`, `bias`: `[out]`;")]
        #[doc = concat!("- input `[n, in, ", $spatial, "]`, result `[n, out, …]`.")]
        ///
        /// Both start uniform in `±1/√(in / groups · kernel)`, as in PyTorch.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            #[doc = concat!("`[out, in / groups, ", $kernel, "]`.")]
            pub weight: Param,
            /// `[out]`, if there is one.
            pub bias: Option<Param>,
            options: ConvOptions,
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
                assert!(
                    groups > 0 && in_channels % groups == 0 && out_channels % groups == 0,
                    "{}: {in_channels} and {out_channels} channels do not split into {groups} groups",
                    stringify!($method),
                );
                let fan_in = in_channels / groups * kernel_size.iter().product::<usize>();
                let mut shape = alloc::vec![out_channels, in_channels / groups];
                shape.extend(kernel_size);
                let weight = init::fan_in_uniform(shape, fan_in, device);
                let bias = config.bias.then(|| Param::new(&init::fan_in_uniform([out_channels], fan_in, device)));
                $name { weight: Param::new(&weight), bias, options: config.options.clone() }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If `x` does not have `in_channels` channels, or is smaller than the kernel.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$method(&self.weight, self.bias.as_deref(), &self.options)
            }
        }
    };
}

conv!(Conv1d, 1, conv1d, "length", "length");
conv!(Conv2d, 2, conv2d, "height, width", "height, width");
conv!(Conv3d, 3, conv3d, "depth, height, width", "depth, height, width");
