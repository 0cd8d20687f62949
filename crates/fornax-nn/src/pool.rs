//! Pooling layers.

use crate::Module;
use fornax_tensor::{AvgPoolOptions, PoolOptions, Tensor};

macro_rules! pools {
    ($($max:ident $max_method:ident, $avg:ident $avg_method:ident, $rank:literal,
        $adaptive_max:ident $adaptive_max_method:ident, $adaptive_avg:ident $adaptive_avg_method:ident, $shape:literal;)*) => {$(
        #[doc = concat!("Largest of each window of `", $shape, "`.")]
        #[derive(Module, Clone, Debug, PartialEq, Eq)]
        pub struct $max {
            /// Windows, stride, padding, dilation.
            pub options: PoolOptions,
        }

        impl $max {
            /// Windows as the options say; `PoolOptions::new(2)` halves each size.
            pub fn new(options: PoolOptions) -> $max {
                $max { options }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If a window does not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$max_method(&self.options).0
            }
        }

        #[doc = concat!("Mean of each window of `", $shape, "`.")]
        #[derive(Module, Clone, Debug, PartialEq, Eq)]
        pub struct $avg {
            /// Windows, stride, padding, and what the padding counts.
            pub options: AvgPoolOptions,
        }

        impl $avg {
            /// Windows as the options say; `AvgPoolOptions::new(2)` halves each size.
            pub fn new(options: AvgPoolOptions) -> $avg {
                $avg { options }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If a window does not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$avg_method(&self.options)
            }
        }

        #[doc = concat!("Largest of as many parts of `", $shape, "` as are asked for.")]
        #[derive(Module, Clone, Debug, PartialEq, Eq)]
        pub struct $adaptive_max {
            /// Sizes of the result; `None` keeps one.
            pub output_size: [Option<usize>; $rank],
        }

        impl $adaptive_max {
            /// A result of these sizes; `None` keeps one.
            pub fn new(output_size: [Option<usize>; $rank]) -> $adaptive_max {
                $adaptive_max { output_size }
            }

            /// Applies the layer.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$adaptive_max_method(&self.output_size).0
            }
        }

        #[doc = concat!("Means of as many parts of `", $shape, "` as are asked for.")]
        #[derive(Module, Clone, Debug, PartialEq, Eq)]
        pub struct $adaptive_avg {
            /// Sizes of the result; `None` keeps one.
            pub output_size: [Option<usize>; $rank],
        }

        impl $adaptive_avg {
            /// A result of these sizes; `None` keeps one.
            pub fn new(output_size: [Option<usize>; $rank]) -> $adaptive_avg {
                $adaptive_avg { output_size }
            }

            /// Applies the layer.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$adaptive_avg_method(&self.output_size)
            }
        }
    )*};
}

pools! {
    MaxPool1d max_pool1d, AvgPool1d avg_pool1d, 1,
        AdaptiveMaxPool1d adaptive_max_pool1d, AdaptiveAvgPool1d adaptive_avg_pool1d, "[n, c, length]";
    MaxPool2d max_pool2d, AvgPool2d avg_pool2d, 2,
        AdaptiveMaxPool2d adaptive_max_pool2d, AdaptiveAvgPool2d adaptive_avg_pool2d, "[n, c, height, width]";
    MaxPool3d max_pool3d, AvgPool3d avg_pool3d, 3,
        AdaptiveMaxPool3d adaptive_max_pool3d, AdaptiveAvgPool3d adaptive_avg_pool3d, "[n, c, depth, height, width]";
}

macro_rules! lp_pools {
    ($($name:ident $avg_method:ident, $rank:literal, $shape:literal;)*) => {$(
        #[doc = concat!("`(Σ xᵖ)^(1/p)` of each window of `", $shape, "`.")]
        #[derive(Module, Clone, Debug, PartialEq)]
        pub struct $name {
            /// The power p.
            pub norm_type: f64,
            /// Size of a window.
            pub kernel_size: [usize; $rank],
            /// Distance between windows; their size if not given.
            pub stride: Option<[usize; $rank]>,
            /// Whether a window may hang over the end; false.
            pub ceil_mode: bool,
        }

        impl $name {
            /// Windows side by side.
            pub fn new(norm_type: f64, kernel_size: [usize; $rank]) -> $name {
                $name { norm_type, kernel_size, stride: None, ceil_mode: false }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If a window does not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                let count: usize = self.kernel_size.iter().product();
                let mut options = AvgPoolOptions::new(self.kernel_size);
                options.windows.stride = self.stride.map(Into::into);
                options.windows.ceil_mode = self.ceil_mode;
                let mean = x.pow(self.norm_type).$avg_method(&options);
                // Odd powers can sum up to less than nothing: such windows give 0, as in PyTorch.
                (mean.relu() * count as f64).pow(1.0 / self.norm_type)
            }
        }
    )*};
}

lp_pools! {
    LpPool1d avg_pool1d, 1, "[n, c, length]";
    LpPool2d avg_pool2d, 2, "[n, c, height, width]";
    LpPool3d avg_pool3d, 3, "[n, c, depth, height, width]";
}

/// Puts pooled values back at the positions they came from, zeros elsewhere; the positions are those that
/// [`Tensor::max_pool2d`] and its like give.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct MaxUnpool {
    /// Spatial sizes of the result.
    pub output_size: alloc::vec::Vec<usize>,
}

impl MaxUnpool {
    /// A result of these spatial sizes.
    pub fn new(output_size: impl Into<alloc::vec::Vec<usize>>) -> MaxUnpool {
        MaxUnpool { output_size: output_size.into() }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If values and positions differ in shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, indices: &Tensor) -> Tensor {
        x.max_unpool(indices, &self.output_size)
    }
}
