//! Activations as layers. Each is the method of the same name of [`Tensor`].

use crate::{Mode, Module, Param};
use fornax_tensor::{Device, Tensor};

macro_rules! activations {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $field:ident: $ty:ty, )* }
        |$this:ident, $x:ident| $call:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, PartialEq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: $ty, )* }

        impl $name {
            /// Applies the function to each element.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, $x: &Tensor) -> Tensor {
                let $this = self;
                $call
            }
        }
    )*};
}

macro_rules! plain_activations {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// Applies the function to each element.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$method()
            }
        }
    )*};
}

plain_activations! {
    /// The input itself.
    Identity => clone;
    /// `max(x, 0)`.
    Relu => relu;
    /// `min(max(x, 0), 6)`.
    Relu6 => relu6;
    /// `x · Φ(x)`, with the normal distribution function Φ.
    ///
    /// # References
    /// Hendrycks, Gimpel (2016), *Gaussian Error Linear Units*, arXiv:1606.08415.
    Gelu => gelu;
    /// [`Gelu`] approximated by a tanh, as some published weights were trained with.
    GeluTanh => gelu_tanh;
    /// `1 / (1 + e^(−x))`.
    Sigmoid => sigmoid;
    /// `ln(1 / (1 + e^(−x)))`, without overflow.
    LogSigmoid => logsigmoid;
    /// `x · sigmoid(x)`.
    Silu => silu;
    /// `x · tanh(softplus(x))`.
    ///
    /// # References
    /// Misra (2019), *Mish*, arXiv:1908.08681.
    Mish => mish;
    /// `tanh x`.
    Tanh => tanh;
    /// `x − tanh x`.
    Tanhshrink => tanhshrink;
    /// `x / (1 + |x|)`.
    Softsign => softsign;
    /// Scaled ELU with the self-normalizing constants.
    ///
    /// # References
    /// Klambauer et al. (2017), *Self-Normalizing Neural Networks*, arXiv:1706.02515.
    Selu => selu;
    /// `min(max(x + 3, 0), 6) / 6`.
    Hardsigmoid => hardsigmoid;
    /// `x · hardsigmoid(x)`.
    Hardswish => hardswish;
}

activations! {
    /// `x` above 0, `alpha · (eˣ − 1)` below.
    ///
    /// # References
    /// Clevert, Unterthiner, Hochreiter (2015), *Exponential Linear Units*, arXiv:1511.07289.
    Elu {
        /// The limit far below 0 is `−alpha`; 1.
        alpha: f64,
    }
    |this, x| x.elu(this.alpha);

    /// `max(0, x) + min(0, alpha · (e^(x / alpha) − 1))`.
    Celu {
        /// The limit far below 0 is `−alpha`; 1.
        alpha: f64,
    }
    |this, x| x.celu(this.alpha);

    /// `x` above 0, `negative_slope · x` below.
    LeakyRelu {
        /// Slope below 0; 0.01.
        negative_slope: f64,
    }
    |this, x| x.leaky_relu(this.negative_slope);

    /// `x` within limits, the limits outside.
    Hardtanh {
        /// Smallest result; −1.
        min_val: f64,
        /// Largest result; 1.
        max_val: f64,
    }
    |this, x| x.hardtanh(this.min_val, this.max_val);

    /// 0 for `|x| ≤ lambd`, else `x`.
    Hardshrink {
        /// What is cut out; 0.5.
        lambd: f64,
    }
    |this, x| x.hardshrink(this.lambd);

    /// `x` moved towards 0 by `lambd`.
    Softshrink {
        /// By how much; 0.5.
        lambd: f64,
    }
    |this, x| x.softshrink(this.lambd);

    /// `ln(1 + e^(beta · x)) / beta`, and `x` where `beta · x` is above the threshold.
    Softplus {
        /// Sharpness of the bend; 1.
        beta: f64,
        /// Where it is a line; 20.
        threshold: f64,
    }
    |this, x| x.softplus(this.beta, this.threshold);

    /// `value` at or below `threshold`, else `x`.
    Threshold {
        /// Up to where.
        threshold: f64,
        /// What stands there.
        value: f64,
    }
    |this, x| x.threshold(this.threshold, this.value);

    /// The first half of `dim` times the sigmoid of the second.
    ///
    /// # References
    /// Dauphin et al. (2016), *Language Modeling with Gated Convolutional Networks*, arXiv:1612.08083.
    Glu {
        /// Which dim; the last.
        dim: i64,
    }
    |this, x| x.glu(this.dim);

    /// `eˣ / Σ eˣ` along `dim`.
    Softmax {
        /// Which dim.
        dim: i64,
    }
    |this, x| x.softmax(this.dim);

    /// `ln(eˣ / Σ eˣ)` along `dim`.
    LogSoftmax {
        /// Which dim.
        dim: i64,
    }
    |this, x| x.log_softmax(this.dim);

    /// `eˣ / (1 + Σ eˣ)` along `dim`: may give nothing to all.
    ///
    /// # References
    /// Miller (2023), *Attention Is Off By One*.
    QuietSoftmax {
        /// Which dim.
        dim: i64,
    }
    |this, x| x.quiet_softmax(this.dim);

    /// Softmax of `−x` along `dim`.
    Softmin {
        /// Which dim.
        dim: i64,
    }
    |this, x| x.softmin(this.dim);
}

/// `Default` with PyTorch's defaults.
macro_rules! defaults {
    ($($name:ident { $($field:ident: $value:expr),* })*) => {$(
        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $value),* }
            }
        }
    )*};
}

defaults! {
    Elu { alpha: 1.0 }
    Celu { alpha: 1.0 }
    LeakyRelu { negative_slope: 0.01 }
    Hardtanh { min_val: -1.0, max_val: 1.0 }
    Hardshrink { lambd: 0.5 }
    Softshrink { lambd: 0.5 }
    Softplus { beta: 1.0, threshold: 20.0 }
    Glu { dim: -1 }
}

/// `x` above 0, `weight · x` below, with a learned weight: one, or one a channel (dim 1).
///
/// # References
/// He, Zhang, Ren, Sun (2015), *Delving Deep into Rectifiers*, arXiv:1502.01852.
#[derive(Module, Clone, Debug)]
pub struct PRelu {
    /// `[num_parameters]`, 0.25 at first.
    pub weight: Param,
}

impl PRelu {
    /// With one weight, or as many as there are channels.
    #[track_caller]
    pub fn new(num_parameters: usize, device: &Device) -> PRelu {
        PRelu { weight: Param::new(&(Tensor::ones([num_parameters], device) * 0.25)) }
    }

    /// Applies the function to each element.
    ///
    /// # Panics
    /// If there are several weights, and not as many channels.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.prelu(&self.weight)
    }
}

/// `x` above 0, `slope · x` below; in training the slope of each element is drawn between two limits, in evaluation it
/// is their mean.
///
/// # References
/// Xu et al. (2015), *Empirical Evaluation of Rectified Activations in Convolutional Network*, arXiv:1505.00853.
#[derive(Module, Clone, Debug)]
pub struct RRelu {
    /// Smallest slope; 1/8.
    pub lower: f64,
    /// Largest slope; 1/3.
    pub upper: f64,
    mode: Mode,
}

impl RRelu {
    /// With slopes between two limits.
    pub fn new(lower: f64, upper: f64) -> RRelu {
        RRelu { lower, upper, mode: Mode::default() }
    }

    /// Applies the function to each element.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if !self.mode.is_training() {
            return x.leaky_relu(f64::midpoint(self.lower, self.upper));
        }
        let slope = Tensor::uniform(x.shape(), self.lower, self.upper, x.device()).to_dtype(x.dtype());
        x.ge(0.0).where_(x, x * slope)
    }
}

impl Default for RRelu {
    fn default() -> RRelu {
        RRelu::new(1.0 / 8.0, 1.0 / 3.0)
    }
}
