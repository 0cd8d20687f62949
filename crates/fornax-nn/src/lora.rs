//! Fine-tuning with few parameters: [`Lora`] on a frozen layer, [`Nf4Linear`] as a frozen layer of 4 bits a weight.

use crate::{Buffer, Dropout, Layer, Linear, Module, Param};
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{DType, Error, Tensor};

/// A linear layer that [`Lora`] may be put on.
pub trait LinearLike: Layer {
    /// Features of its input and of its result.
    fn features(&self) -> (usize, usize);
}

impl LinearLike for Linear {
    fn features(&self) -> (usize, usize) {
        let [output, input] = self.weight.dims();
        (input, output)
    }
}

/// A frozen linear layer, and a trained change of low rank: `base(x) + (alpha / rank) · B(A(x))`.
///
/// `A` starts as PyTorch's linear layers do, `B` at 0: at first nothing changes. With an [`Nf4Linear`] as its base it is
/// QLoRA.
///
/// ```
/// use fornax_nn::{Linear, Lora, Module, Nf4Linear};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let base = Linear::new(64, 32, &device);
/// let lora = Lora::new(base.clone(), 4, 8.0);
/// let trained: Vec<String> =
///     lora.named_parameters().into_iter().filter(|(_, param)| param.is_trainable()).map(|(name, _)| name).collect();
/// assert_eq!(trained, ["lora_A.weight", "lora_B.weight"]);
/// let x = Tensor::randn([2, 64], &device);
/// assert_eq!(lora.forward(&x).to_vec::<f32>(), base.forward(&x).to_vec::<f32>());
/// let qlora = Lora::new(Nf4Linear::from_linear(&base), 4, 8.0);
/// assert_eq!(qlora.forward(&x).dims(), [2, 32]);
/// ```
///
/// # References
/// Hu et al. (2021), *LoRA: Low-Rank Adaptation of Large Language Models*, arXiv:2106.09685, section 4.1; Dettmers et al.
/// (2023), *QLoRA*, arXiv:2305.14314.
#[derive(Module, Clone, Debug)]
pub struct Lora<L: LinearLike> {
    /// The frozen layer.
    pub base_layer: L,
    /// `[rank, in]`.
    #[module(rename = "lora_A")]
    pub a: Linear,
    /// `[out, rank]`.
    #[module(rename = "lora_B")]
    pub b: Linear,
    /// Drops inputs of the change; none.
    pub dropout: Dropout,
    /// The change counts `scale` times: `alpha / rank`.
    pub scale: f64,
}

impl<L: LinearLike> Lora<L> {
    /// Freezes `base` and puts a change of rank `rank` on it.
    ///
    /// # Panics
    /// If the rank is 0, or the base has no parameters and buffers.
    #[track_caller]
    pub fn new(mut base: L, rank: usize, alpha: f64) -> Lora<L> {
        assert!(rank > 0, "Lora: the rank is 0");
        base.set_trainable("", false);
        let (input, output) = base.features();
        let (_, value) = base.state_dict().into_iter().next().expect("a layer has a weight");
        let mut b = Linear::without_bias(rank, output, value.device());
        b.weight.set(&b.weight.zeros_like());
        Lora {
            a: Linear::without_bias(input, rank, value.device()),
            b,
            base_layer: base,
            dropout: Dropout::new(0.0),
            scale: alpha / rank as f64,
        }
    }

    /// Drops inputs of the change with probability `p` in training.
    #[must_use]
    #[track_caller]
    pub fn dropout(mut self, p: f64) -> Lora<L> {
        self.dropout = Dropout::new(p);
        self
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not that of the base.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let change = self.b.forward(&self.a.forward(&self.dropout.forward(x)));
        self.base_layer.forward(x) + change * self.scale
    }
}

impl Lora<Linear> {
    /// The base with the change added to its weight: as fast as before, and the same results.
    #[track_caller]
    pub fn merged(&self) -> Linear {
        let change = self.b.weight.detach().matmul(&self.a.weight.detach()) * self.scale;
        let mut merged = self.base_layer.clone();
        merged.weight.set(&(merged.weight.detach() + change));
        merged
    }
}

/// The 16 values of the 4-bit normal float: quantiles of the normal distribution, with 0 among them.
///
/// Dettmers et al. (2023), arXiv:2305.14314, appendix E.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_04,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A linear layer of 4 bits a weight: each block of 64 weights is the nearest of 16 values times the block's largest size.
/// It is not trained; gradients pass through it.
///
/// # Shapes
/// - `codes` (`u8`): `[out · in / 2]`, the first weight of a pair in the upper bits; `scales`: `[out · in / 64]`;
/// - input `[…, in]`, result `[…, out]`.
///
/// # References
/// Dettmers et al. (2023), *QLoRA: Efficient Finetuning of Quantized LLMs*, arXiv:2305.14314, section 3.
#[derive(Module, Clone, Debug)]
pub struct Nf4Linear {
    /// Two weights a byte.
    pub codes: Buffer,
    /// The largest size of each block.
    pub scales: Buffer,
    /// `[out]`, if there is one.
    pub bias: Option<Param>,
    in_features: usize,
    out_features: usize,
}

/// Weights that share a scale.
const BLOCK: usize = 64;

impl Nf4Linear {
    /// The layer whose weights are nearest to those of `linear`.
    ///
    /// # Panics
    /// If the number of weights is no multiple of 64.
    #[track_caller]
    pub fn from_linear(linear: &Linear) -> Nf4Linear {
        let [out_features, in_features] = linear.weight.dims();
        let count = out_features * in_features;
        assert!(count.is_multiple_of(BLOCK), "Nf4Linear: {count} weights do not split into blocks of {BLOCK}");
        let device = linear.weight.device();
        let blocks = linear.weight.detach().to_dtype(DType::F32).reshape([count / BLOCK, BLOCK]);
        let scales = blocks.abs().amax(fornax_tensor::keepdim(-1)); // [blocks, 1]
        let parts = &blocks / scales.maximum(f64::from(f32::MIN_POSITIVE));
        // The code is the number of midpoints between neighbouring values that lie below.
        let midpoints: Vec<f32> = NF4.windows(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
        let midpoints = Tensor::from_vec(midpoints, [15], device);
        let codes = parts.unsqueeze(-1).gt(&midpoints).sum(-1).to_dtype(DType::U8); // [blocks, 64]
        let pairs = codes.reshape([count / 2, 2]);
        let packed = pairs.select(1, 0) * 16 + pairs.select(1, 1);
        let mut bias = linear.bias.clone();
        if let Some(bias) = &mut bias {
            bias.set_trainable(false);
        }
        Nf4Linear {
            codes: Buffer::new(&packed),
            scales: Buffer::new(&scales.flatten(0, -1)),
            bias,
            in_features,
            out_features,
        }
    }

    /// The weights that the codes stand for: `[out, in]`, in `f32`.
    #[track_caller]
    pub fn weight(&self) -> Tensor {
        let codes = self.codes.get().to_dtype(DType::I64);
        let upper = codes.div_trunc(16);
        let lower = &codes - &upper * 16;
        let codes = Tensor::stack(&[&upper, &lower], 1).flatten(0, -1); // [out · in]
        let values = Tensor::from_slice(&NF4, [16], codes.device()).index_select(0, &codes);
        let scales = self.scales.get().unsqueeze(1); // [blocks, 1]
        (values.reshape([scales.shape()[0], BLOCK]) * scales).reshape([self.out_features, self.in_features])
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not `in_features`.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if x.shape().last() != Some(&self.in_features) {
            Error::shape("Nf4Linear", format!("x {} is not […, {}]", x.shape(), self.in_features)).raise();
        }
        x.linear(&self.weight().to_dtype(x.dtype()), self.bias.as_deref())
    }
}

impl LinearLike for Nf4Linear {
    fn features(&self) -> (usize, usize) {
        (self.in_features, self.out_features)
    }
}
