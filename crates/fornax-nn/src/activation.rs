//! Activations as layers.

use crate::Module;
use fornax_tensor::Tensor;

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// Applies the function to each element.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$method()
            }
        }
    )*};
}

activations! {
    /// `max(x, 0)`.
    Relu => relu;
    /// `x · Φ(x)`.
    Gelu => gelu;
    /// `1 / (1 + e^(−x))`.
    Sigmoid => sigmoid;
    /// `x · sigmoid(x)`.
    Silu => silu;
    /// `tanh x`.
    Tanh => tanh;
}
