//! Encodings of positions: [`SinusoidalEncoding`], [`RotaryEncoding`]. A learned one is an [`crate::Embedding`].

use crate::Module;
use alloc::format;
use fornax_tensor::{DType, Device, Error, Tensor};

/// `0, 1, 2, …` times the falling frequencies `base^(−2i / width)`: `[length, width / 2]`.
#[track_caller]
fn angles(start: usize, length: usize, width: usize, base: f64, device: &Device) -> Tensor {
    let position = Tensor::arange(start, start + length, 1, DType::I64, device).to_dtype(DType::F32).unsqueeze(1);
    let pair = Tensor::arange(0, width / 2, 1, DType::I64, device).to_dtype(DType::F32);
    position * (pair * (-2.0 * libm::log(base) / width as f64)).exp()
}

/// Adds sines and cosines of the position to `[…, length, width]`: `sin(p / base^(2i / width))` to element `2i`, the cosine
/// to element `2i + 1`.
///
/// ```
/// use fornax_nn::SinusoidalEncoding;
/// use fornax_tensor::{Device, Tensor};
/// let x = SinusoidalEncoding::default().forward(&Tensor::zeros([2, 4], &Device::cpu())).to_vec::<f32>();
/// assert_eq!(x[..4], [0.0, 1.0, 0.0, 1.0]);
/// assert!((x[4] - 1f32.sin()).abs() < 1e-6);
/// ```
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, section 3.5.
#[derive(Module, Clone, Copy, Debug, PartialEq)]
pub struct SinusoidalEncoding {
    /// The longest wave is `2π · base`; 10,000.
    pub base: f64,
}

impl Default for SinusoidalEncoding {
    fn default() -> SinusoidalEncoding {
        SinusoidalEncoding { base: 10_000.0 }
    }
}

impl SinusoidalEncoding {
    /// The encoding of positions `0..length`: `[length, width]`, in `f32`.
    ///
    /// # Panics
    /// If the width is odd.
    #[track_caller]
    pub fn table(&self, length: usize, width: usize, device: &Device) -> Tensor {
        assert!(width.is_multiple_of(2), "SinusoidalEncoding: width {width} is odd");
        let angles = angles(0, length, width, self.base, device);
        Tensor::stack(&[&angles.sin(), &angles.cos()], -1).flatten(-2, -1)
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` is not `[…, length, width]` with an even width.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let &[.., length, width] = x.shape().dims() else {
            Error::shape("SinusoidalEncoding", format!("x {} is not […, length, width]", x.shape())).raise()
        };
        x + self.table(length, width, x.device()).to_dtype(x.dtype())
    }
}

/// Which elements of a vector are turned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotaryPairs {
    /// Element `i` of the first half with element `i` of the second, as in Llama and GPT-NeoX.
    #[default]
    Halves,
    /// Neighbours, as in the paper and GPT-J.
    Neighbours,
}

/// Turns pairs of elements of queries and keys by angles that grow with the position: products of both then depend on the
/// distance of their positions.
///
/// # Shapes
/// `[…, length, head_dim]`, whatever stands in front: positions are those of the dim before the last.
///
/// ```
/// use fornax_nn::RotaryEncoding;
/// use fornax_tensor::{Device, Tensor};
/// let rotary = RotaryEncoding::default();
/// let q = Tensor::randn([2, 8, 5, 64], &Device::cpu()); // [batch, heads, length, head_dim]
/// assert_eq!(rotary.forward(&q, 0).dims(), [2, 8, 5, 64]);
/// ```
///
/// # References
/// Su et al. (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*, arXiv:2104.09864, equation 34.
#[derive(Module, Clone, Copy, Debug, PartialEq)]
pub struct RotaryEncoding {
    /// The longest wave is `2π · base`; 10,000.
    pub base: f64,
    /// Which elements are turned together; those of two halves.
    #[module(skip)]
    pub pairs: RotaryPairs,
    /// How many elements of each vector are turned; all if not given.
    #[module(skip)]
    pub rotary_dim: Option<usize>,
}

impl Default for RotaryEncoding {
    fn default() -> RotaryEncoding {
        RotaryEncoding { base: 10_000.0, pairs: RotaryPairs::Halves, rotary_dim: None }
    }
}

impl RotaryEncoding {
    /// Turns vectors at positions `start..start + length`.
    ///
    /// # Panics
    /// If `x` has fewer than two dims, or an odd number of elements is turned.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor, start: usize) -> Tensor {
        let &[.., length, head_dim] = x.shape().dims() else {
            Error::shape("RotaryEncoding", format!("x {} is not […, length, head_dim]", x.shape())).raise()
        };
        let turned = self.rotary_dim.unwrap_or(head_dim);
        if turned > head_dim || !turned.is_multiple_of(2) {
            let message = format!("{turned} of the {head_dim} elements of x {} are no pairs", x.shape());
            Error::shape("RotaryEncoding", message).raise();
        }
        let angles = angles(start, length, turned, self.base, x.device());
        let (sin, cos) = (angles.sin().to_dtype(x.dtype()), angles.cos().to_dtype(x.dtype())); // [length, turned / 2]
        let part = x.narrow(-1, 0, turned);
        // As [a, b] along a dim of its own: behind for neighbours, in front for halves.
        let mut split = x.shape().to_vec();
        split.pop();
        let at = match self.pairs {
            RotaryPairs::Halves => {
                split.extend([2, turned / 2]);
                -2
            }
            RotaryPairs::Neighbours => {
                split.extend([turned / 2, 2]);
                -1
            }
        };
        let part = part.reshape(fornax_tensor::Shape::from(split));
        let (a, b) = (part.select(at, 0), part.select(at, 1)); // […, length, turned / 2]
        let turned_pairs = [&a * &cos - &b * &sin, b * cos + a * sin];
        let result = Tensor::stack(&[&turned_pairs[0], &turned_pairs[1]], at).flatten(-2, -1);
        if turned == head_dim {
            return result;
        }
        Tensor::cat(&[&result, &x.narrow(-1, turned as i64, head_dim - turned)], -1)
    }
}
