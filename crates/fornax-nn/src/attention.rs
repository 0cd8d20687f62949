//! [`MultiheadAttention`].

use crate::{Linear, Mode, Module, Param, RotaryEncoding, init};
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
    /// Heads of keys and values, each shared by a run of query heads; as many as query heads if not given.
    pub num_kv_heads: Option<usize>,
    /// Turns queries and keys by their positions; none.
    pub rotary: Option<RotaryEncoding>,
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
            num_kv_heads: None,
            rotary: None,
        }
    }
}

/// Keys and values of the positions so far, `[n, kv_heads, length, head_dim]`, for [`MultiheadAttention::forward_cached`].
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    entries: Option<(Tensor, Tensor)>,
}

impl KvCache {
    /// How many positions it holds.
    pub fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, |(k, _)| k.shape()[2])
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all positions from `len` on.
    #[track_caller]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.entries = self.entries.take().map(|(k, v)| (k.narrow(2, 0, len), v.narrow(2, 0, len)));
        }
    }

    /// Appends keys and values, and gives all of them.
    #[track_caller]
    fn append(&mut self, k: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
        let all = match &self.entries {
            Some((keys, values)) => (Tensor::cat(&[keys, k], 2), Tensor::cat(&[values, v], 2)),
            None => (k.clone(), v.clone()),
        };
        self.entries.insert(all).clone()
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
    /// Queries, keys and values `[embed_dim + 2 · kv_dim, embed_dim]`, where all have one width; `kv_dim` is the width of
    /// all heads of keys: `embed_dim`, unless they are shared.
    pub in_proj_weight: Option<Param>,
    /// `[embed_dim, embed_dim]`, where widths differ.
    pub q_proj_weight: Option<Param>,
    /// `[kv_dim, kdim]`, where widths differ.
    pub k_proj_weight: Option<Param>,
    /// `[kv_dim, vdim]`, where widths differ.
    pub v_proj_weight: Option<Param>,
    /// `[embed_dim + 2 · kv_dim]`.
    pub in_proj_bias: Option<Param>,
    /// `[1, 1, kv_dim]`: the appended key.
    pub bias_k: Option<Param>,
    /// `[1, 1, kv_dim]`: the appended value.
    pub bias_v: Option<Param>,
    /// The projection of the result.
    pub out_proj: Linear,
    num_heads: usize,
    num_kv_heads: usize,
    rotary: Option<RotaryEncoding>,
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
        let num_kv_heads = config.num_kv_heads.unwrap_or(num_heads);
        assert!(
            num_kv_heads > 0 && num_heads.is_multiple_of(num_kv_heads),
            "MultiheadAttention: {num_heads} heads do not share {num_kv_heads} heads of keys and values"
        );
        let kv_dim = embed_dim / num_heads * num_kv_heads;
        let (kdim, vdim) = (config.kdim.unwrap_or(embed_dim), config.vdim.unwrap_or(embed_dim));
        let is_uniform = kdim == embed_dim && vdim == embed_dim;
        let xavier = |shape: [usize; 2]| Param::new(&init::xavier_uniform(shape, 1.0, device));
        let separate = |rows: usize, width: usize| (!is_uniform).then(|| xavier([rows, width]));
        let appended = || config.add_bias_kv.then(|| Param::new(&init::xavier_normal([1, 1, kv_dim], 1.0, device)));
        let zeros = |size: usize| config.bias.then(|| Param::new(&Tensor::zeros([size], device)));
        MultiheadAttention {
            in_proj_weight: is_uniform.then(|| xavier([embed_dim + 2 * kv_dim, embed_dim])),
            q_proj_weight: separate(embed_dim, embed_dim),
            k_proj_weight: separate(kv_dim, kdim),
            v_proj_weight: separate(kv_dim, vdim),
            in_proj_bias: zeros(embed_dim + 2 * kv_dim),
            bias_k: appended(),
            bias_v: appended(),
            out_proj: Linear { bias: zeros(embed_dim), ..Linear::without_bias(embed_dim, embed_dim, device) },
            num_heads,
            num_kv_heads,
            rotary: config.rotary,
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
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: AttentionMask<'_>) -> Tensor {
        let heads = self.heads(query, key, value, mask);
        self.attend(&heads, query.rank() == 2)
    }

    /// Self-attention of new positions to themselves, each to those before it, and to all that `cache` holds; the cache
    /// then holds them too. Fed one after the other, positions give what [`MultiheadAttention::forward`] gives for all at
    /// once with `is_causal`.
    ///
    /// ```
    /// use fornax_nn::{AttentionConfig, AttentionMask, KvCache, MultiheadAttention};
    /// use fornax_tensor::{Device, Tensor};
    /// let device = Device::cpu();
    /// let config = AttentionConfig { batch_first: true, num_kv_heads: Some(2), ..AttentionConfig::default() };
    /// let attention = MultiheadAttention::new(16, 4, &config, &device);
    /// let x = Tensor::randn([1, 3, 16], &device);
    /// let causal = AttentionMask { is_causal: true, ..AttentionMask::default() };
    /// let all = attention.forward(&x, &x, &x, causal);
    /// let mut cache = KvCache::default();
    /// for step in 0..3 {
    ///     let y = attention.forward_cached(&x.narrow(1, step, 1), &mut cache);
    ///     let difference = (y - all.narrow(1, step, 1)).abs().amax(()).item::<f32>();
    ///     assert!(difference < 1e-5);
    /// }
    /// ```
    ///
    /// # Panics
    /// If `x` does not fit the layer or the cache, or keys are appended to every call.
    #[track_caller]
    pub fn forward_cached(&self, x: &Tensor, cache: &mut KvCache) -> Tensor {
        assert!(
            self.bias_k.is_none() && !self.add_zero_attn,
            "MultiheadAttention: with a cache, no key is appended to a call"
        );
        let (q, k, v) = self.projected(x, x, x);
        let (start, queries) = (cache.len(), q.shape()[1]);
        let (q, k, v) =
            (self.split(&q, self.num_heads), self.split(&k, self.num_kv_heads), self.split(&v, self.num_kv_heads));
        let (k, v) = cache.append(&self.turned(&k, start), &v);
        let count = |start: usize, n: usize| Tensor::arange(start, start + n, 1, DType::I64, x.device());
        let hidden = count(0, start + queries).gt(count(start, queries).unsqueeze(1));
        let mask = (queries > 1).then(|| hidden.where_(f64::NEG_INFINITY, 0.0).to_dtype(q.dtype()));
        self.attend(&Heads { q: self.turned(&q, start), k, v, mask }, x.rank() == 2)
    }

    /// The attention op, and the projection of its result.
    #[track_caller]
    fn attend(&self, heads: &Heads, is_single: bool) -> Tensor {
        let options = AttentionOptions {
            mask: heads.mask.clone(),
            dropout_p: if self.mode.is_training() { self.dropout } else { 0.0 },
            enable_gqa: self.num_kv_heads != self.num_heads,
            ..AttentionOptions::default()
        };
        let y = heads.q.scaled_dot_product_attention(&heads.k, &heads.v, &options); // [n, heads, queries, head_dim]
        self.joined(&y, is_single)
    }

    /// `[n, length, heads · head_dim]` as `[n, heads, length, head_dim]`.
    #[track_caller]
    fn split(&self, x: &Tensor, heads: usize) -> Tensor {
        let [n, length, width] = x.dims();
        x.reshape([n, length, heads, width / heads]).transpose(1, 2)
    }

    #[track_caller]
    fn turned(&self, x: &Tensor, start: usize) -> Tensor {
        self.rotary.as_ref().map_or_else(|| x.clone(), |rotary| rotary.forward(x, start))
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
        let shared = |x: Tensor| match self.num_heads / self.num_kv_heads {
            1 => x,
            repeats => x.repeat_interleave(repeats, Some(1)),
        };
        let (k, v) = (shared(k), shared(v));
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
        let (q, mut k, mut v) = self.projected(query, key, value);
        let [n, queries, _] = q.dims();
        let mut appended = 0;
        let kv_dim = k.shape()[2];
        let append = |x: &Tensor, row: &Tensor| Tensor::cat(&[x, &row.expand([n, 1, kv_dim])], 1);
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            (k, v) = (append(&k, bias_k), append(&v, bias_v));
            appended += 1;
        }
        if self.add_zero_attn {
            let zeros = Tensor::full([1, 1, kv_dim], 0.0, k.dtype(), k.device());
            (k, v) = (append(&k, &zeros), append(&v, &zeros));
            appended += 1;
        }
        let mask = self.mask(mask, &q, queries, k.shape()[1] - appended, appended);
        let (q, k) = (self.split(&q, self.num_heads), self.split(&k, self.num_kv_heads));
        Heads { q: self.turned(&q, 0), k: self.turned(&k, 0), v: self.split(&v, self.num_kv_heads), mask }
    }

    /// Queries, keys and values `[n, length, width]`.
    #[track_caller]
    fn projected(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> (Tensor, Tensor, Tensor) {
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
        // Rows of queries, keys and values in what holds all three.
        let kv_dim = embed_dim / self.num_heads * self.num_kv_heads;
        let rows = [(0, embed_dim), (embed_dim, kv_dim), (embed_dim + kv_dim, kv_dim)];
        let part = |x: &Tensor, dim: i64, part: usize| x.narrow(dim, rows[part].0 as i64, rows[part].1);
        let bias = |i: usize| self.in_proj_bias.as_ref().map(|bias| part(bias, 0, i));
        let weight = |i: usize, own: &Option<Param>| match (&self.in_proj_weight, own) {
            (Some(all), _) => part(all, 0, i),
            (None, Some(own)) => (**own).clone(),
            (None, None) => panic!("{name}: there are no projection weights"),
        };
        let same = query.is_same_value(key) && key.is_same_value(value);
        match &self.in_proj_weight {
            // Self-attention: one product for all three.
            Some(all) if same && q.shape()[2] == embed_dim => {
                let all = q.linear(all, self.in_proj_bias.as_deref());
                (part(&all, -1, 0), part(&all, -1, 1), part(&all, -1, 2))
            }
            _ => (
                q.linear(&weight(0, &self.q_proj_weight), bias(0).as_ref()),
                k.linear(&weight(1, &self.k_proj_weight), bias(1).as_ref()),
                v.linear(&weight(2, &self.v_proj_weight), bias(2).as_ref()),
            ),
        }
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
