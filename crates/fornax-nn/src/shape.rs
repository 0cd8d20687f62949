//! Layers that rearrange or resize their input.

use crate::Module;
use alloc::vec::Vec;
use fornax_tensor::{InterpolateMode, InterpolateOptions, ResizeTo, Tensor, UnfoldOptions};

/// The dims from `start_dim` to `end_dim` as one; all but the first by default.
#[derive(Module, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flatten {
    /// First of the dims; 1.
    pub start_dim: i64,
    /// Last of the dims; −1.
    pub end_dim: i64,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten { start_dim: 1, end_dim: -1 }
    }
}

impl Flatten {
    /// Applies the layer.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.flatten(self.start_dim, self.end_dim)
    }
}

/// One dim as several.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct Unflatten {
    /// Which dim.
    pub dim: i64,
    /// The sizes in its place; one may be −1.
    pub unflattened_size: Vec<i64>,
}

impl Unflatten {
    /// `dim` as dims of these sizes.
    pub fn new(dim: i64, unflattened_size: impl Into<Vec<i64>>) -> Unflatten {
        Unflatten { dim, unflattened_size: unflattened_size.into() }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the sizes do not multiply to that of the dim.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let dim = if self.dim < 0 { self.dim + x.rank() as i64 } else { self.dim };
        let dim = match usize::try_from(dim) {
            Ok(dim) if dim < x.rank() => dim,
            _ => panic!("Unflatten: dim {} is out of range for {}", self.dim, x.shape()),
        };
        let size = x.shape()[dim] as i64;
        let known: i64 = self.unflattened_size.iter().filter(|&&part| part >= 0).product();
        // The −1 is resolved within the dim, so that other dims may have size 0.
        let part = |&part: &i64| if part == -1 && known > 0 { size / known } else { part };
        let inner: Vec<i64> = self.unflattened_size.iter().map(part).collect();
        assert!(
            inner.iter().product::<i64>() == size,
            "Unflatten: {:?} does not multiply to the {size} of dim {dim} of {}",
            self.unflattened_size,
            x.shape()
        );
        let outer = |dims: &[usize]| dims.iter().map(|&size| size as i64).collect::<Vec<_>>();
        let shape = [outer(&x.shape()[..dim]), inner, outer(&x.shape()[dim + 1..])].concat();
        x.reshape(shape)
    }
}

macro_rules! rearrangements {
    ($($(#[$doc:meta])* $name:ident, $field:ident => $method:ident, $panics:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            /// By how much, or into how many.
            pub $field: usize,
        }

        impl $name {
            /// By so much, or into so many.
            pub fn new($field: usize) -> $name {
                $name { $field }
            }

            /// Applies the layer.
            ///
            /// # Panics
            #[doc = $panics]
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$method(self.$field)
            }
        }
    )*};
}

rearrangements! {
    /// `[…, c · r², height, width]` as `[…, c, height · r, width · r]`.
    PixelShuffle, upscale_factor => pixel_shuffle, "If the channels do not split into squares of the factor.";
    /// `[…, c, height · r, width · r]` as `[…, c · r², height, width]`.
    PixelUnshuffle, downscale_factor => pixel_unshuffle, "If the sizes are no multiples of the factor.";
    /// Channels dealt out to groups and back: `[n, groups · k, …]` as `[n, k · groups, …]`.
    ChannelShuffle, groups => channel_shuffle, "If the channels do not split into the groups.";
}

/// `[n, c, spatial…]` with other spatial sizes.
#[derive(Module, Clone, Debug, PartialEq)]
pub struct Upsample {
    /// Sizes or factors, mode, and where corners are.
    pub options: InterpolateOptions,
}

impl Upsample {
    /// To new sizes or by factors, in a mode.
    pub fn new(to: ResizeTo, mode: InterpolateMode) -> Upsample {
        Upsample { options: InterpolateOptions::new(to, mode) }
    }

    /// The centres of the corner pixels stay (linear and cubic).
    #[must_use]
    pub fn align_corners(mut self) -> Upsample {
        self.options.align_corners = true;
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the sizes or factors do not fit the spatial dims.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.interpolate(&self.options)
    }
}

/// Blocks of `[n, c, height, width]` as columns: `[n, c · kernel, blocks]`.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct Unfold {
    /// Blocks, their distance, and the border.
    pub options: UnfoldOptions,
}

impl Unfold {
    /// Blocks as the options say.
    pub fn new(options: UnfoldOptions) -> Unfold {
        Unfold { options }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If no block fits.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.unfold_blocks(&self.options)
    }
}

/// Columns `[n, c · kernel, blocks]` summed up at the places of their blocks: `[n, c, height, width]`.
#[derive(Module, Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Height and width of the result.
    pub output_size: [usize; 2],
    /// Blocks, their distance, and the border.
    pub options: UnfoldOptions,
}

impl Fold {
    /// A result of these sizes, from blocks as the options say.
    pub fn new(output_size: [usize; 2], options: UnfoldOptions) -> Fold {
        Fold { output_size, options }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the columns do not fit the blocks.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.fold_blocks(self.output_size, &self.options)
    }
}
