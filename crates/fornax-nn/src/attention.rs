//! [`MultiheadAttention`].

use crate::{Linear, Mode, Module, Param, init};
use alloc::format;
use fornax_tensor::{AttentionOptions, DType, Device, Error, Tensor};

/// Settings of attention; sizes are given to `new`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Probability that an attention weight is dropped in training; 0.
    pub dropout: f64,
    /// Whether the projections have biases; true.
    pub bias: bool,
    /// Whether a learned key and value are appended; false.
    pub add_bias_kv: bool,
    /// Whether a key and value of zeros are appended; false.
    pub add_zero_attn: bool,
    /// Width of the keys; that of the queries if not given.
    pub kdim: Option<usize>,
    /// Width of the values; that of the queries if not given.
    pub vdim: Option<usize>,
    /// Whether inputs are `[n, length, width]` in place of `[length, n, width]`; false.
    pub batch_first: bool,
}

impl Default for AttentionConfig {
    fn default() -> AttentionConfig {
        AttentionConfig {
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
        }
    }
}

/// What may not be attended to. Truth values: true may **not** be; floats are added to the scores.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMask<'a> {
    /// `[queries, keys]` or `[n · heads, queries, keys]`.
    pub attn_mask: Option<&'a Tensor>,
    /// `[n, keys]`: keys that are padding.
    pub key_padding_mask: Option<&'a Tensor>,
    /// Whether query `i` sees keys up to `i` only.
    pub is_causal: bool,
}

/// Attention of several heads: `softmax(Q Kᵀ / √head_dim + mask) V` of projected queries, keys and values, each head on
/// its part of the width, and a projection of all heads' results.
///
/// # Shapes
/// - query `[queries, n, embed_dim]`, key `[keys, n, kdim]`, value `[keys, n, vdim]`; with `batch_first`, `n` comes first;
///   without a batch, `n` is left out;
/// - result as the query.
///
/// ```
/// use fornax_nn::{AttentionConfig, AttentionMask, MultiheadAttention};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let config = AttentionConfig { batch_first: true, ..AttentionConfig::default() };
/// let attention = MultiheadAttention::new(16, 4, &config, &device);
/// let x = Tensor::zeros([2, 5, 16], &device);
/// let causal = AttentionMask { is_causal: true, ..AttentionMask::default() };
/// assert_eq!(attention.forward(&x, &x, &x, causal).dims(), [2, 5, 16]);
/// ```
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, section 3.2.
#[derive(Module, Clone, Debug)]
pub struct MultiheadAttention {
    /// Queries, keys and values `[3 · embed_dim, embed_dim]`, where all have one width.
    pub in_proj_weight: Option<Param>,
    /// `[embed_dim, embed_dim]`, where widths differ.
    pub q_proj_weight: Option<Param>,
    /// `[embed_dim, kdim]`, where widths differ.
    pub k_proj_weight: Option<Param>,
    /// `[embed_dim, vdim]`, where widths differ.
    pub v_proj_weight: Option<Param>,
    /// `[3 · embed_dim]`.
    pub in_proj_bias: Option<Param>,
    /// `[1, 1, embed_dim]`: the appended key.
    pub bias_k: Option<Param>,
    /// `[1, 1, embed_dim]`: the appended value.
    pub bias_v: Option<Param>,
    /// The projection of the result.
    pub out_proj: Linear,
    num_heads: usize,
    dropout: f64,
    add_zero_attn: bool,
    batch_first: bool,
    mode: Mode,
}

impl MultiheadAttention {
    /// Attention of `num_heads` heads over a width of `embed_dim`.
    ///
    /// # Panics
    /// If the width does not split into the heads.
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize, config: &AttentionConfig, device: &Device) -> MultiheadAttention {
        assert!(
            num_heads > 0 && embed_dim.is_multiple_of(num_heads),
            "MultiheadAttention: a width of {embed_dim} does not split into {num_heads} heads"
        );
        let (kdim, vdim) = (config.kdim.unwrap_or(embed_dim), config.vdim.unwrap_or(embed_dim));
        let is_uniform = kdim == embed_dim && vdim == embed_dim;
        let xavier = |shape: [usize; 2]| Param::new(&init::xavier_uniform(shape, 1.0, device));
        let separate = |width: usize| (!is_uniform).then(|| xavier([embed_dim, width]));
        let appended = || config.add_bias_kv.then(|| Param::new(&init::xavier_normal([1, 1, embed_dim], 1.0, device)));
        let zeros = |size: usize| config.bias.then(|| Param::new(&Tensor::zeros([size], device)));
        MultiheadAttention {
            in_proj_weight: is_uniform.then(|| xavier([3 * embed_dim, embed_dim])),
            q_proj_weight: separate(embed_dim),
            k_proj_weight: separate(kdim),
            v_proj_weight: separate(vdim),
            in_proj_bias: zeros(3 * embed_dim),
            bias_k: appended(),
            bias_v: appended(),
            out_proj: Linear { bias: zeros(embed_dim), ..Linear::without_bias(embed_dim, embed_dim, device) },
            num_heads,
            dropout: config.dropout,
            add_zero_attn: config.add_zero_attn,
            batch_first: config.batch_first,
            mode: Mode::default(),
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[track_caller]
    pub fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        let heads = self.heads(query, key, value, mask);
        let options = AttentionOptions {
            mask: heads.mask.clone(),
            dropout_p: if self.mode.is_training() { self.dropout } else { 0.0 },
            ..AttentionOptions::default()
        };
        let y = heads.q.scaled_dot_product_attention(&heads.k, &heads.v, &options); // [n, heads, queries, head_dim]
        self.joined(&y, query.rank() == 2)
    }

    /// Applies the layer, and gives the attention weights too: `[n, queries, keys]`, averaged over the heads, or
    /// `[n, heads, queries, keys]`.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: AttentionMask<'_>,
        average_over_heads: bool,
    ) -> (Tensor, Tensor) {
        let Heads { q, k, v, mask } = self.heads(query, key, value, mask);
        let scale = 1.0 / libm::sqrt(q.shape()[3].max(1) as f64);
        let mut scores = (q * scale).matmul(&k.mt()); // [n, heads, queries, keys]
        if let Some(mask) = &mask {
            scores += mask;
        }
        let weights = scores.softmax(-1);
        let dropped =
            if self.mode.is_training() && self.dropout > 0.0 { weights.dropout(self.dropout) } else { weights };
        let is_single = query.rank() == 2;
        let output = self.joined(&dropped.matmul(&v), is_single);
        let weights = if average_over_heads { dropped.mean(1) } else { dropped };
        (output, if is_single { weights.squeeze(0) } else { weights })
    }

    /// Projected queries, keys and values `[n, heads, length, head_dim]`, and the mask that is added to the scores.
    #[track_caller]
    fn heads(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: AttentionMask<'_>) -> Heads {
        let name = "MultiheadAttention";
        let embed_dim = self.out_proj.weight.shape()[0];
        if query.rank() != key.rank() || key.rank() != value.rank() || !(2..=3).contains(&query.rank()) {
            let message =
                format!("query {}, key {} and value {} differ in rank", query.shape(), key.shape(), value.shape());
            Error::shape(name, message).raise();
        }
        let batched = |x: &Tensor| match (x.rank(), self.batch_first) {
            (2, _) => x.unsqueeze(0),
            (_, true) => x.clone(),
            (_, false) => x.transpose(0, 1),
        }; // [n, length, width]
        let (q, k, v) = (batched(query), batched(key), batched(value));
        let bias =
            |part: i64| self.in_proj_bias.as_ref().map(|bias| bias.narrow(0, part * embed_dim as i64, embed_dim));
        let weight = |part: i64, own: &Option<Param>| match (&self.in_proj_weight, own) {
            (Some(all), _) => all.narrow(0, part * embed_dim as i64, embed_dim),
            (None, Some(own)) => (**own).clone(),
            (None, None) => panic!("{name}: there are no projection weights"),
        };
        let same = query.is_same_value(key) && key.is_same_value(value);
        let (q, mut k, mut v) = match &self.in_proj_weight {
            // Self-attention: one product for all three.
            Some(all) if same && q.shape()[2] == embed_dim => {
                let all = q.linear(all, self.in_proj_bias.as_deref());
                let part = |part: i64| all.narrow(-1, part * embed_dim as i64, embed_dim);
                (part(0), part(1), part(2))
            }
            _ => (
                q.linear(&weight(0, &self.q_proj_weight), bias(0).as_ref()),
                k.linear(&weight(1, &self.k_proj_weight), bias(1).as_ref()),
                v.linear(&weight(2, &self.v_proj_weight), bias(2).as_ref()),
            ),
        };
        let [n, queries, _] = q.dims();
        let mut appended = 0;
        let append = |x: &Tensor, row: &Tensor| Tensor::cat(&[x, &row.expand([n, 1, embed_dim])], 1);
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            (k, v) = (append(&k, bias_k), append(&v, bias_v));
            appended += 1;
        }
        if self.add_zero_attn {
            let zeros = Tensor::full([1, 1, embed_dim], 0.0, k.dtype(), k.device());
            (k, v) = (append(&k, &zeros), append(&v, &zeros));
            appended += 1;
        }
        let head_dim = embed_dim / self.num_heads;
        let split = |x: &Tensor| {
            let length = x.shape()[1];
            x.reshape([n, length, self.num_heads, head_dim]).transpose(1, 2)
        };
        let mask = self.mask(mask, &q, queries, k.shape()[1] - appended, appended);
        Heads { q: split(&q), k: split(&k), v: split(&v), mask }
    }

    /// All masks as one that is added to the scores `[n, heads, queries, keys]`.
    #[track_caller]
    fn mask(
        &self,
        mask: AttentionMask<'_>,
        q: &Tensor,
        queries: usize,
        keys: usize,
        appended: usize,
    ) -> Option<Tensor> {
        let n = q.shape()[0];
        let additive = |mask: &Tensor| match mask.dtype() {
            DType::Bool => mask.where_(f64::NEG_INFINITY, 0.0).to_dtype(q.dtype()),
            _ => mask.to_dtype(q.dtype()),
        };
        let mut sum: Option<Tensor> = None;
        let mut add = |mask: Tensor| {
            sum = Some(match &sum {
                Some(sum) => sum + mask,
                None => mask,
            });
        };
        if let Some(mask) = mask.attn_mask {
            add(match mask.rank() {
                3 => additive(mask).reshape([n, self.num_heads, queries, keys]),
                _ => additive(mask),
            });
        }
        if let Some(mask) = mask.key_padding_mask {
            let mask = if mask.rank() == 1 { mask.unsqueeze(0) } else { mask.clone() };
            add(additive(&mask).reshape([n, 1, 1, keys]));
        }
        if mask.is_causal {
            let count = |n: usize| Tensor::arange(0, n, 1, DType::I64, q.device());
            add(additive(&count(keys).gt(count(queries).unsqueeze(1))));
        }
        // What is appended may always be attended to.
        sum.map(|sum| {
            if appended == 0 {
                return sum;
            }
            let mut padding = alloc::vec![(0, 0); sum.rank()];
            padding[sum.rank() - 1] = (0, appended);
            let sum = if sum.shape()[sum.rank() - 1] == keys { sum } else { sum.expand([queries, keys]) };
            sum.pad_dims(&padding, 0.0)
        })
    }

    /// The heads' results side by side, projected, in the layout of the input.
    #[track_caller]
    fn joined(&self, y: &Tensor, is_single: bool) -> Tensor {
        let [n, heads, queries, head_dim] = y.dims();
        let y = y.transpose(1, 2).reshape([n, queries, heads * head_dim]);
        let y = self.out_proj.forward(&y);
        match (is_single, self.batch_first) {
            (true, _) => y.squeeze(0),
            (false, true) => y,
            (false, false) => y.transpose(0, 1),
        }
    }
}

struct Heads {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}
