//! Pooling layers.

use crate::Module;
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{AvgPoolOptions, DType, Error, PoolOptions, Shape, Tensor};

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
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$max_method(&self.options).0
            }

            /// Applies the layer, and gives the position of each value in the flattened spatial dims too, as
            /// [`MaxUnpool`] takes them.
            ///
            /// # Panics
            /// If a window does not fit.
            #[track_caller]
            pub fn forward_with_indices(&self, x: &Tensor) -> (Tensor, Tensor) {
                x.$max_method(&self.options)
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
            #[fornax_macros::traced]
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
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$adaptive_max_method(&self.output_size).0
            }

            /// Applies the layer, and gives the position of each value in the flattened spatial dims too.
            #[track_caller]
            pub fn forward_with_indices(&self, x: &Tensor) -> (Tensor, Tensor) {
                x.$adaptive_max_method(&self.output_size)
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
            #[fornax_macros::traced]
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
            #[fornax_macros::traced]
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

macro_rules! fractional_pools {
    ($($name:ident, $rank:literal, $shape:literal;)*) => {$(
        #[doc = concat!("Largest of windows of `", $shape, "` that begin at random places, so that sizes shrink by any factor.")]
        ///
        /// Where windows begin is drawn for each channel, in training and evaluation, as in PyTorch.
        ///
        /// # References
        /// Graham (2014), *Fractional Max-Pooling*, arXiv:1412.6071.
        #[derive(Module, Clone, Debug, PartialEq)]
        pub struct $name {
            /// Size of a window.
            pub kernel_size: [usize; $rank],
            /// How large the result is.
            #[module(skip)]
            pub output: FractionalSize,
        }

        impl $name {
            /// A result of the sizes, or of the parts of the input's sizes.
            pub fn new(kernel_size: [usize; $rank], output: FractionalSize) -> $name {
                $name { kernel_size, output }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If a window does not fit.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                self.forward_with_indices(x).0
            }

            /// Applies the layer, and gives the position of each value in the flattened spatial dims too, as
            /// [`MaxUnpool`] takes them.
            ///
            /// # Panics
            /// If a window does not fit.
            #[track_caller]
            pub fn forward_with_indices(&self, x: &Tensor) -> (Tensor, Tensor) {
                if x.rank() == $rank + 1 {
                    let (values, places) = self.forward_with_indices(&x.unsqueeze(0));
                    return (values.squeeze(0), places.squeeze(0));
                }
                if x.rank() != $rank + 2 {
                    Error::shape(stringify!($name), format!("x {} is not {}", x.shape(), $shape)).raise();
                }
                let draws = Tensor::rand([x.shape()[0], x.shape()[1], $rank], x.device());
                fractional_max_pool(stringify!($name), x, &self.kernel_size, &self.output, &draws)
            }
        }
    )*};
}

fractional_pools! {
    FractionalMaxPool2d, 2, "[n, c, height, width]";
    FractionalMaxPool3d, 3, "[n, c, depth, height, width]";
}

/// How large the result of fractional pooling is.
#[derive(Clone, Debug, PartialEq)]
pub enum FractionalSize {
    /// These sizes.
    Size(Vec<usize>),
    /// These parts of the input's sizes, each between 0 and 1.
    Ratio(Vec<f64>),
}

/// Windows of dim `i` begin at `⌊(j + u) α⌋ − ⌊u α⌋`, with `α = (size − kernel) / (output − 1)` and the draw `u`; the last
/// one ends the dim. `draws` `[n, c, dims]` begin with the last dim in 2d, with the first in 3d, as in PyTorch.
#[track_caller]
fn fractional_max_pool(
    layer: &str,
    x: &Tensor,
    kernel: &[usize],
    output: &FractionalSize,
    draws: &Tensor,
) -> (Tensor, Tensor) {
    let (dims, device) = (kernel.len(), x.device());
    let (n, c, sizes) = (x.shape()[0], x.shape()[1], x.shape()[2..].to_vec());
    let outputs: Vec<usize> = match output {
        FractionalSize::Size(outputs) => outputs.clone(),
        FractionalSize::Ratio(ratios) => {
            ratios.iter().zip(&sizes).map(|(ratio, &size)| (size as f64 * ratio) as usize).collect()
        }
    };
    let fits = |i: usize| outputs[i] > 0 && kernel[i] > 0 && outputs[i] + kernel[i] - 1 <= sizes[i];
    if outputs.len() != dims || !(0..dims).all(fits) {
        let message = format!("{outputs:?} windows of {kernel:?} do not fit into {}", x.shape());
        Error::shape(layer, message).raise();
    }
    let count = |n: usize| Tensor::arange(0, n, 1, DType::I64, device);
    // Positions [n, c, output, kernel] along each dim; windows of x, dim by dim.
    let mut positions = Vec::new();
    let mut windows = x.clone();
    for i in 0..dims {
        let draw = draws.select(-1, if dims == 2 { 1 - i as i64 } else { i as i64 }).unsqueeze(-1); // [n, c, 1]
        let last = (sizes[i] - kernel[i]) as i64;
        let starts = if outputs[i] == 1 {
            Tensor::full([n, c, 1], last, DType::I64, device)
        } else {
            let alpha = last as f64 / (outputs[i] - 1) as f64;
            let index = count(outputs[i]);
            let starts = ((index.to_dtype(DType::F32) + &draw) * alpha).floor() - (draw * alpha).floor();
            index.eq(outputs[i] as i64 - 1).where_(last, starts.to_dtype(DType::I64))
        };
        let position = starts.unsqueeze(-1) + count(kernel[i]); // [n, c, output, kernel]
        let dim = 2 + i;
        let mut index_shape = alloc::vec![1; 2 + dims];
        (index_shape[0], index_shape[1], index_shape[dim]) = (n, c, outputs[i] * kernel[i]);
        let mut whole = windows.shape().to_vec();
        whole[dim] = outputs[i] * kernel[i];
        let index = position.reshape(Shape::from(index_shape)).expand(Shape::from(whole));
        windows = windows.gather(dim, &index);
        positions.push(position);
    }
    // [n, c, o₁, k₁, o₂, k₂, …] → [n, c, o₁, o₂, …, k₁ · k₂ · …]
    let pairs: Vec<usize> = (0..dims).flat_map(|i| [outputs[i], kernel[i]]).collect();
    let order: Vec<i64> = [0, 1].into_iter().chain((0..dims as i64).map(|i| 2 + 2 * i)).collect();
    let order: Vec<i64> = order.into_iter().chain((0..dims as i64).map(|i| 3 + 2 * i)).collect();
    let ordered = |x: &Tensor| {
        let split: Vec<usize> = [n, c].into_iter().chain(pairs.iter().copied()).collect();
        x.reshape(Shape::from(split)).permute(&order).flatten(-(dims as i64), -1)
    };
    // The flat position of each element of each window.
    let mut place = Tensor::full((), 0, DType::I64, device);
    for (i, position) in positions.iter().enumerate() {
        let mut shape = alloc::vec![1; 2 + 2 * dims];
        (shape[0], shape[1], shape[2 + 2 * i], shape[3 + 2 * i]) = (n, c, outputs[i], kernel[i]);
        place = place * sizes[i] as i64 + position.reshape(Shape::from(shape));
    }
    let place = place.permute(&order).flatten(-(dims as i64), -1);
    let (values, which) = ordered(&windows).max(-1);
    let places = place.gather(-1, &which.unsqueeze(-1)).squeeze(-1);
    (values, places)
}

/// Puts pooled values back at the positions they came from, zeros elsewhere; the positions are those that
/// [`Tensor::max_pool2d`] and its like give.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct MaxUnpool {
    /// Spatial sizes of the result.
    pub output_size: Vec<usize>,
}

impl MaxUnpool {
    /// A result of these spatial sizes.
    pub fn new(output_size: impl Into<Vec<usize>>) -> MaxUnpool {
        MaxUnpool { output_size: output_size.into() }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If values and positions differ in shape.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor, indices: &Tensor) -> Tensor {
        x.max_unpool(indices, &self.output_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_tensor::Device;

    fn wave(shape: &[usize], device: &Device) -> Tensor {
        let values = (0..shape.iter().product()).map(|i: usize| libm::sinf(i as f32 * 1.7 + 0.3)).collect();
        Tensor::from_vec::<f32>(values, Shape::from(shape), device)
    }

    // The numbers are PyTorch's, for the same draws.
    #[test]
    fn fractional_pools_read_the_windows_of_pytorch() {
        let device = Device::reference();
        let draws = Tensor::from_vec(Vec::from([0.2f32, 0.7, 0.9, 0.4]), [1, 2, 2], &device);
        let size = FractionalSize::Size(Vec::from([3, 2]));
        let (_, places) = fractional_max_pool("", &wave(&[1, 2, 7, 6], &device), &[2, 3], &size, &draws);
        assert_eq!(places.to_vec::<i64>(), [8, 4, 19, 23, 38, 34, 7, 3, 18, 22, 36, 40]);

        let draws = Tensor::from_vec(Vec::from([0.2f32, 0.7, 0.5]), [1, 1, 3], &device);
        let size = FractionalSize::Size(Vec::from([2, 2, 3]));
        let (values, places) = fractional_max_pool("", &wave(&[1, 1, 5, 4, 6], &device), &[2, 2, 3], &size, &draws);
        assert_eq!(places.to_vec::<i64>(), [8, 34, 34, 12, 45, 23, 97, 82, 82, 108, 93, 119]);
        assert!((values.to_vec::<f32>()[3] - 0.961_152).abs() < 1e-5);
    }
}
