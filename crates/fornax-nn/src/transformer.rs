//! Transformer layers: encoders, decoders, and both together.

use crate::module::{Param, Path, VisitorMut};
use crate::{AttentionConfig, AttentionMask, Dropout, LayerNorm, Linear, Module, MultiheadAttention, init};
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Tensor};

/// The function between the two products of a feed-forward part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedForwardActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · Φ(x)`.
    Gelu,
}

/// Settings of a transformer layer; width and heads are given to `new`.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Width inside the feed-forward part; 2048.
    pub dim_feedforward: usize,
    /// Probability of dropout; 0.1.
    pub dropout: f64,
    /// Function of the feed-forward part; ReLU.
    pub activation: FeedForwardActivation,
    /// Added to the variance in norms; 1e-5.
    pub layer_norm_eps: f64,
    /// Whether inputs are `[n, length, width]` in place of `[length, n, width]`; false.
    pub batch_first: bool,
    /// Whether norms stand before attention and feed-forward parts in place of after; false.
    pub norm_first: bool,
    /// Whether linear layers and norms have biases; true.
    pub bias: bool,
}

impl Default for TransformerConfig {
    fn default() -> TransformerConfig {
        TransformerConfig {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: FeedForwardActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }
}

impl TransformerConfig {
    #[track_caller]
    fn attention(&self, d_model: usize, nhead: usize, device: &Device) -> MultiheadAttention {
        let config = AttentionConfig {
            dropout: self.dropout,
            bias: self.bias,
            batch_first: self.batch_first,
            ..AttentionConfig::default()
        };
        MultiheadAttention::new(d_model, nhead, &config, device)
    }

    #[track_caller]
    fn linear(&self, input: usize, output: usize, device: &Device) -> Linear {
        if self.bias { Linear::new(input, output, device) } else { Linear::without_bias(input, output, device) }
    }

    #[track_caller]
    fn norm(&self, d_model: usize, device: &Device) -> LayerNorm {
        let norm = LayerNorm::new(d_model, device).eps(self.layer_norm_eps);
        if self.bias { norm } else { norm.without_bias() }
    }
}

/// Two products with a function between them.
#[track_caller]
fn feed_forward(
    x: &Tensor,
    (linear1, dropout, linear2): (&Linear, &Dropout, &Linear),
    activation: FeedForwardActivation,
) -> Tensor {
    let hidden = linear1.forward(x);
    let hidden = match activation {
        FeedForwardActivation::Relu => hidden.relu(),
        FeedForwardActivation::Gelu => hidden.gelu(),
    };
    linear2.forward(&dropout.forward(&hidden))
}

/// One layer of an encoder: self-attention and a feed-forward part, each with a residual connection and a norm.
///
/// ```
/// use fornax_nn::{AttentionMask, TransformerConfig, TransformerEncoderLayer};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let config = TransformerConfig { dim_feedforward: 32, batch_first: true, ..TransformerConfig::default() };
/// let layer = TransformerEncoderLayer::new(16, 4, &config, &device);
/// let y = layer.forward(&Tensor::zeros([2, 5, 16], &device), AttentionMask::default());
/// assert_eq!(y.dims(), [2, 5, 16]);
/// ```
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, section 3.1; norms first: Xiong et al. (2020),
/// arXiv:2002.04745.
#[derive(Module, Clone, Debug)]
pub struct TransformerEncoderLayer {
    /// Attention of the input to itself.
    pub self_attn: MultiheadAttention,
    /// Into the feed-forward part.
    pub linear1: Linear,
    dropout: Dropout,
    /// Out of the feed-forward part.
    pub linear2: Linear,
    /// Of attention.
    pub norm1: LayerNorm,
    /// Of the feed-forward part.
    pub norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    activation: FeedForwardActivation,
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// A layer of width `d_model` with `nhead` heads.
    ///
    /// # Panics
    /// If the width does not split into the heads.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, config: &TransformerConfig, device: &Device) -> TransformerEncoderLayer {
        TransformerEncoderLayer {
            self_attn: config.attention(d_model, nhead, device),
            linear1: config.linear(d_model, config.dim_feedforward, device),
            dropout: Dropout::new(config.dropout),
            linear2: config.linear(config.dim_feedforward, d_model, device),
            norm1: config.norm(d_model, device),
            norm2: config.norm(d_model, device),
            dropout1: Dropout::new(config.dropout),
            dropout2: Dropout::new(config.dropout),
            activation: config.activation,
            norm_first: config.norm_first,
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, src: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        if self.norm_first {
            let x = src + self.attend(&self.norm1.forward(src), mask);
            let y = self.feed(&self.norm2.forward(&x));
            x + y
        } else {
            let x = self.norm1.forward(&(src + self.attend(src, mask)));
            let y = self.feed(&x);
            self.norm2.forward(&(x + y))
        }
    }

    #[track_caller]
    fn attend(&self, x: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        self.dropout1.forward(&self.self_attn.forward(x, x, x, mask))
    }

    #[track_caller]
    fn feed(&self, x: &Tensor) -> Tensor {
        self.dropout2.forward(&feed_forward(x, (&self.linear1, &self.dropout, &self.linear2), self.activation))
    }
}

/// One layer of a decoder: self-attention, attention to the memory, and a feed-forward part, each with a residual
/// connection and a norm.
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, section 3.1.
#[derive(Module, Clone, Debug)]
pub struct TransformerDecoderLayer {
    /// Attention of the input to itself.
    pub self_attn: MultiheadAttention,
    /// Attention of the input to the memory.
    pub multihead_attn: MultiheadAttention,
    /// Into the feed-forward part.
    pub linear1: Linear,
    dropout: Dropout,
    /// Out of the feed-forward part.
    pub linear2: Linear,
    /// Of self-attention.
    pub norm1: LayerNorm,
    /// Of attention to the memory.
    pub norm2: LayerNorm,
    /// Of the feed-forward part.
    pub norm3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    activation: FeedForwardActivation,
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// A layer of width `d_model` with `nhead` heads.
    ///
    /// # Panics
    /// If the width does not split into the heads.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, config: &TransformerConfig, device: &Device) -> TransformerDecoderLayer {
        TransformerDecoderLayer {
            self_attn: config.attention(d_model, nhead, device),
            multihead_attn: config.attention(d_model, nhead, device),
            linear1: config.linear(d_model, config.dim_feedforward, device),
            dropout: Dropout::new(config.dropout),
            linear2: config.linear(config.dim_feedforward, d_model, device),
            norm1: config.norm(d_model, device),
            norm2: config.norm(d_model, device),
            norm3: config.norm(d_model, device),
            dropout1: Dropout::new(config.dropout),
            dropout2: Dropout::new(config.dropout),
            dropout3: Dropout::new(config.dropout),
            activation: config.activation,
            norm_first: config.norm_first,
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: AttentionMask<'_>,
        memory_mask: AttentionMask<'_>,
    ) -> Tensor {
        if self.norm_first {
            let x = tgt + self.attend(&self.norm1.forward(tgt), tgt_mask);
            let y = self.look_up(&self.norm2.forward(&x), memory, memory_mask);
            let x = x + y;
            let y = self.feed(&self.norm3.forward(&x));
            x + y
        } else {
            let x = self.norm1.forward(&(tgt + self.attend(tgt, tgt_mask)));
            let y = self.look_up(&x, memory, memory_mask);
            let x = self.norm2.forward(&(x + y));
            let y = self.feed(&x);
            self.norm3.forward(&(x + y))
        }
    }

    #[track_caller]
    fn attend(&self, x: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        self.dropout1.forward(&self.self_attn.forward(x, x, x, mask))
    }

    #[track_caller]
    fn look_up(&self, x: &Tensor, memory: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        self.dropout2.forward(&self.multihead_attn.forward(x, memory, memory, mask))
    }

    #[track_caller]
    fn feed(&self, x: &Tensor) -> Tensor {
        self.dropout3.forward(&feed_forward(x, (&self.linear1, &self.dropout, &self.linear2), self.activation))
    }
}

/// Encoder layers on top of one another, and a norm if there is one.
#[derive(Module, Clone, Debug)]
pub struct TransformerEncoder {
    /// The layers, from the input upwards.
    pub layers: Vec<TransformerEncoderLayer>,
    /// Of the result, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// These layers, and a norm of the result.
    pub fn new(layers: Vec<TransformerEncoderLayer>, norm: Option<LayerNorm>) -> TransformerEncoder {
        TransformerEncoder { layers, norm }
    }

    /// Applies the layers, all with the same mask.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, src: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        let mut x = src.clone();
        for layer in &self.layers {
            x = layer.forward(&x, mask);
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => x,
        }
    }
}

/// Decoder layers on top of one another, and a norm if there is one.
#[derive(Module, Clone, Debug)]
pub struct TransformerDecoder {
    /// The layers, from the input upwards.
    pub layers: Vec<TransformerDecoderLayer>,
    /// Of the result, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// These layers, and a norm of the result.
    pub fn new(layers: Vec<TransformerDecoderLayer>, norm: Option<LayerNorm>) -> TransformerDecoder {
        TransformerDecoder { layers, norm }
    }

    /// Applies the layers, all with the same masks.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: AttentionMask<'_>,
        memory_mask: AttentionMask<'_>,
    ) -> Tensor {
        let mut x = tgt.clone();
        for layer in &self.layers {
            x = layer.forward(&x, memory, tgt_mask, memory_mask);
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => x,
        }
    }
}

/// The masks of a [`Transformer`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TransformerMasks<'a> {
    /// Of the encoder's self-attention.
    pub src: AttentionMask<'a>,
    /// Of the decoder's self-attention.
    pub tgt: AttentionMask<'a>,
    /// Of the decoder's attention to the encoder's result.
    pub memory: AttentionMask<'a>,
}

/// Encoder and decoder, as in the paper; matrices start by Xavier's rule.
///
/// ```
/// use fornax_nn::{AttentionMask, Transformer, TransformerConfig, TransformerMasks};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let config = TransformerConfig { dim_feedforward: 32, batch_first: true, ..TransformerConfig::default() };
/// let model = Transformer::new(16, 4, (1, 1), &config, &device);
/// let (src, tgt) = (Tensor::zeros([2, 7, 16], &device), Tensor::zeros([2, 5, 16], &device));
/// let causal = AttentionMask { is_causal: true, ..AttentionMask::default() };
/// let y = model.forward(&src, &tgt, TransformerMasks { tgt: causal, ..TransformerMasks::default() });
/// assert_eq!(y.dims(), [2, 5, 16]);
/// ```
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762.
#[derive(Module, Clone, Debug)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Writes the target.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// So many layers of each, of width `d_model` with `nhead` heads.
    ///
    /// # Panics
    /// If the width does not split into the heads.
    #[track_caller]
    pub fn new(
        d_model: usize,
        nhead: usize,
        (encoder_layers, decoder_layers): (usize, usize),
        config: &TransformerConfig,
        device: &Device,
    ) -> Transformer {
        let norm = || Some(config.norm(d_model, device));
        let encoder = (0..encoder_layers).map(|_| TransformerEncoderLayer::new(d_model, nhead, config, device));
        let decoder = (0..decoder_layers).map(|_| TransformerDecoderLayer::new(d_model, nhead, config, device));
        let mut transformer = Transformer {
            encoder: TransformerEncoder::new(encoder.collect(), norm()),
            decoder: TransformerDecoder::new(decoder.collect(), norm()),
        };
        struct Xavier;
        impl VisitorMut for Xavier {
            fn param(&mut self, _: &Path, param: &mut Param) {
                if param.rank() > 1 {
                    let value = init::xavier_uniform(param.shape(), 1.0, param.device());
                    param.set(&value);
                }
            }
        }
        transformer.visit_mut(&mut Path::default(), &mut Xavier);
        transformer
    }

    /// The decoder's result for a target, given a source.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, src: &Tensor, tgt: &Tensor, masks: TransformerMasks<'_>) -> Tensor {
        let memory = self.encoder.forward(src, masks.src);
        self.decoder.forward(tgt, &memory, masks.tgt, masks.memory)
    }

    /// The mask `[size, size]` that hides what comes later: −∞ above the diagonal, 0 elsewhere.
    #[track_caller]
    pub fn causal_mask(size: usize, device: &Device) -> Tensor {
        let count = Tensor::arange(0, size, 1, DType::I64, device);
        count.gt(count.unsqueeze(1)).where_(f64::NEG_INFINITY, 0.0).to_dtype(DType::F32)
    }
}
