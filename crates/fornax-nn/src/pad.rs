//! Borders as layers. Each takes how much goes before and after, from the last dim backwards: `[left, right, top, bottom]`.

use crate::Module;
use fornax_tensor::{PadMode, Tensor};

macro_rules! pads {
    ($($name:ident, $entries:literal, $mode:expr, $what:literal, $shape:literal;)*) => {$(
        #[doc = concat!($what, " around `", $shape, "`.")]
        #[derive(Module, Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            /// Before and after, from the last dim backwards.
            pub padding: [i64; $entries],
        }

        impl $name {
            /// So much before and after, from the last dim backwards.
            pub fn new(padding: [i64; $entries]) -> $name {
                $name { padding }
            }

            /// Applies the layer.
            ///
            /// # Panics
            /// If the input is too small for the border.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.pad(&self.padding, $mode)
            }
        }
    )*};
}

pads! {
    ReflectionPad1d, 2, PadMode::Reflect, "The input mirrored at its edge", "[…, length]";
    ReflectionPad2d, 4, PadMode::Reflect, "The input mirrored at its edge", "[…, height, width]";
    ReflectionPad3d, 6, PadMode::Reflect, "The input mirrored at its edge", "[…, depth, height, width]";
    ReplicationPad1d, 2, PadMode::Replicate, "The edge", "[…, length]";
    ReplicationPad2d, 4, PadMode::Replicate, "The edge", "[…, height, width]";
    ReplicationPad3d, 6, PadMode::Replicate, "The edge", "[…, depth, height, width]";
    CircularPad1d, 2, PadMode::Circular, "The other end", "[…, length]";
    CircularPad2d, 4, PadMode::Circular, "The other end", "[…, height, width]";
    CircularPad3d, 6, PadMode::Circular, "The other end", "[…, depth, height, width]";
    ZeroPad1d, 2, PadMode::Constant(0.0), "Zeros", "[…, length]";
    ZeroPad2d, 4, PadMode::Constant(0.0), "Zeros", "[…, height, width]";
    ZeroPad3d, 6, PadMode::Constant(0.0), "Zeros", "[…, depth, height, width]";
}

macro_rules! constant_pads {
    ($($name:ident, $entries:literal, $shape:literal;)*) => {$(
        #[doc = concat!("One value around `", $shape, "`.")]
        #[derive(Module, Clone, Debug, PartialEq)]
        pub struct $name {
            /// Before and after, from the last dim backwards; negative cuts off.
            pub padding: [i64; $entries],
            /// What the border consists of.
            pub value: f64,
        }

        impl $name {
            /// So much of `value` before and after, from the last dim backwards.
            pub fn new(padding: [i64; $entries], value: f64) -> $name {
                $name { padding, value }
            }

            /// Applies the layer.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.pad(&self.padding, PadMode::Constant(self.value))
            }
        }
    )*};
}

constant_pads! {
    ConstantPad1d, 2, "[…, length]";
    ConstantPad2d, 4, "[…, height, width]";
    ConstantPad3d, 6, "[…, depth, height, width]";
}
