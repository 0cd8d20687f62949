//! Attention and embeddings.

use crate::dims::keepdim;
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{cast, reshape, scatter};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::ScatterMode;
use fornax_macros::ops;

/// Settings of attention.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// `bool` (true: may attend) or added to the scores; broadcasts to `[…, queries, keys]`.
    pub mask: Option<Tensor>,
    /// Whether query `i` sees keys up to `i` only; false.
    pub is_causal: bool,
    /// Multiplies the scores; `1 / √head_dim` if not given.
    pub scale: Option<f64>,
    /// Whether keys and values have fewer heads, each shared by a run of query heads; false.
    pub enable_gqa: bool,
    /// Probability that an attention weight is dropped; 0.
    pub dropout_p: f64,
}

/// What becomes of the embeddings of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest of each component.
    Max,
}

/// Settings of an embedding bag.
#[derive(Clone, Debug, Default)]
pub struct EmbeddingBagOptions {
    /// Sum, mean or maximum; mean.
    pub mode: BagMode,
    /// Where each bag of a list of indices begins; not given for indices `[bags, length]`.
    pub offsets: Option<Tensor>,
    /// Multiplies each embedding (mode sum).
    pub per_sample_weights: Option<Tensor>,
    /// Whether the last offset is the end of the last bag; false.
    pub include_last_offset: bool,
    /// Indices that count for nothing.
    pub padding_idx: Option<i64>,
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `softmax(Q · Kᵀ · scale + mask) · V` of queries (this tensor) `[…, m, d]`, keys `[…, n, d]` and values
    /// `[…, n, v]`. A query that may attend to nothing gives 0.
    ///
    /// # References
    /// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, equation 1.
    #[op(torch = ["nn.functional.scaled_dot_product_attention"], rename(self = "query"), autocast = low)]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions,
    ) -> Result<Tensor> {
        let op = "scaled_dot_product_attention";
        for (name, x) in [("query", self), ("key", key), ("value", value)] {
            if x.rank() < 2 {
                return Err(Error::shape(op, format!("{name} {} is not […, length, dim]", x.shape())));
            }
        }
        let (key, value) = match options.enable_gqa {
            true => (repeat_heads(key, self)?, repeat_heads(value, self)?),
            false => (key.clone(), value.clone()),
        };
        let width = self.shape()[self.rank() - 1];
        let scale = options.scale.unwrap_or(1.0 / libm::sqrt(width.max(1) as f64));
        let wide = self.dtype().compute();
        let query = cast(self, wide)?.try_mul(scale)?;
        let mut scores = query.try_matmul(&cast(&key, wide)?.try_mt()?).map_err(|error| error.named(op))?;
        let [m, n] = [scores.shape()[scores.rank() - 2], scores.shape()[scores.rank() - 1]];
        let mut allowed: Option<Tensor> = None;
        if options.is_causal {
            let (row, column) = (
                Tensor::arange(0, m, 1, DType::I64, self.device()).unsqueeze(1),
                Tensor::arange(0, n, 1, DType::I64, self.device()),
            );
            allowed = Some(column.try_le(&row)?);
        }
        if let Some(mask) = &options.mask {
            if mask.dtype() == DType::Bool {
                allowed = Some(match allowed {
                    Some(allowed) => allowed.try_logical_and(mask)?,
                    None => mask.clone(),
                });
            } else {
                scores = scores.try_add(cast(mask, wide)?)?;
            }
        }
        if let Some(allowed) = &allowed {
            scores = allowed.try_where_(&scores, f64::NEG_INFINITY)?;
        }
        // Rows without any finite score would be 0 / 0; they are made 0 instead.
        let weights = if allowed.is_some() || options.mask.is_some() {
            let open = scores.detach().try_gt(f64::NEG_INFINITY)?.try_any(keepdim(-1))?;
            let safe = open.try_where_(&scores, 0.0)?;
            open.try_where_(safe.try_softmax(-1)?, 0.0)?
        } else {
            scores.try_softmax(-1)?
        };
        let weights = if options.dropout_p > 0.0 { weights.try_dropout(options.dropout_p)? } else { weights };
        cast(&weights.try_matmul(&cast(&value, wide)?).map_err(|error| error.named(op))?, self.dtype())
    }

    /// The rows of `weight [rows, d]` that the integers of this tensor `[…]` name: `[…, d]`. Row `padding_idx` gets no
    /// gradient.
    #[op(torch = ["nn.functional.embedding"], call = call_embedding)]
    pub fn embedding(&self, weight: &Tensor, padding_idx: Option<i64>) -> Result<Tensor> {
        let [rows, width] = weight.shape()[..] else {
            return Err(Error::shape("embedding", format!("weight {} is not [rows, d]", weight.shape())));
        };
        if !self.dtype().is_int() {
            return Err(Error::dtype("embedding", format!("indices are integers, not {}", self.dtype())));
        }
        let index = reshape(&cast(self, DType::I64)?, &Shape::from([self.numel()]))?;
        let mut picked = weight.try_index_select(0, &index).map_err(|error| error.named("embedding"))?;
        if let Some(padding) = padding_idx {
            let padding = if padding < 0 { padding + rows as i64 } else { padding };
            let is_padding = index.try_eq(padding)?.try_unsqueeze(1)?;
            picked = is_padding.try_where_(picked.detach(), &picked)?;
        }
        let shape: Shape = self.shape().iter().copied().chain([width]).collect();
        reshape(&picked, &shape)
    }

    /// Sums, means or maxima of bags of embeddings: indices `[bags, length]`, or a list with `offsets`.
    #[op(torch = ["nn.functional.embedding_bag"], call = call_embedding_bag)]
    pub fn embedding_bag(&self, weight: &Tensor, options: &EmbeddingBagOptions) -> Result<Tensor> {
        let op = "embedding_bag";
        let [rows, width] = weight.shape()[..] else {
            return Err(Error::shape(op, format!("weight {} is not [rows, d]", weight.shape())));
        };
        let count = self.numel();
        let index = reshape(&cast(self, DType::I64)?, &Shape::from([count]))?;
        // The bag of each index.
        let (bag, bags) = match (&options.offsets, self.rank()) {
            (None, 2) => {
                let [bags, length] = self.dims();
                let bag = Tensor::arange(0, bags, 1, DType::I64, self.device()).try_unsqueeze(1)?;
                (reshape(&bag.try_expand([bags, length])?, &Shape::from([count]))?, bags)
            }
            (Some(offsets), 1) => {
                let bags = offsets.numel() - usize::from(options.include_last_offset && offsets.numel() > 0);
                let starts = cast(offsets, DType::I64)?.try_narrow(0, 0, bags)?;
                let position = Tensor::arange(0, count, 1, DType::I64, self.device()).try_unsqueeze(1)?;
                (position.try_ge(&starts)?.try_sum(1)?.try_sub(1)?, bags)
            }
            _ => {
                let message = format!("indices {} are neither [bags, length] nor a list with offsets", self.shape());
                return Err(Error::shape(op, message));
            }
        };
        let padding = options.padding_idx.map(|padding| if padding < 0 { padding + rows as i64 } else { padding });
        let counts = match padding {
            Some(padding) => index.try_ne(padding)?,
            None => Tensor::full([count], true, DType::Bool, self.device()),
        };
        let mut picked = weight.try_index_select(0, &index).map_err(|error| error.named(op))?;
        if let Some(weights) = &options.per_sample_weights {
            picked = picked.try_mul(weights.try_reshape([count, 1])?)?;
        }
        let keep = counts.try_unsqueeze(1)?;
        let into = bag.try_unsqueeze(1)?.try_expand([count, width])?;
        let base = Tensor::full([bags, width], 0, weight.dtype(), weight.device());
        if options.mode == BagMode::Max {
            let low = Tensor::full([bags, width], f64::NEG_INFINITY, weight.dtype(), weight.device());
            let candidates = keep.try_where_(&picked, f64::NEG_INFINITY)?;
            let best = scatter(ScatterMode::Max, &low, 0, &into, &candidates)?;
            let is_empty = best.detach().try_eq(f64::NEG_INFINITY)?;
            return is_empty.try_where_(0.0, &best)?.try_to_dtype(weight.dtype());
        }
        let terms = keep.try_where_(&picked, 0.0)?.try_to_dtype(weight.dtype())?;
        let sum = scatter(ScatterMode::Add, &base, 0, &into, &terms)?;
        if options.mode == BagMode::Sum {
            return Ok(sum);
        }
        let ones = keep.try_to_dtype(weight.dtype())?.try_expand([count, width])?;
        let sizes = scatter(ScatterMode::Add, &base, 0, &into, &ones)?;
        sum.try_div(sizes.try_maximum(1.0)?)
    }

    /// 1 at the class that each integer names, 0 elsewhere: `[…]` gives `[…, num_classes]` (`i64`).
    #[op(torch = ["nn.functional.one_hot"], call = call_one_hot, grad = false)]
    pub fn one_hot(&self, num_classes: usize) -> Result<Tensor> {
        let shape: Shape = self.shape().iter().copied().chain([num_classes]).collect();
        if shape.checked_numel().is_none() {
            return Err(Error::shape("one_hot", format!("{shape} has more elements than memory can address")));
        }
        let index = cast(self, DType::I64)?.try_unsqueeze(-1)?;
        let zeros = Tensor::full(&shape, 0, DType::I64, self.device());
        let ones = Tensor::full(index.shape(), 1, DType::I64, self.device());
        // By scatter, so that a class out of range is an error.
        scatter(ScatterMode::Set, &zeros, self.rank(), &index, &ones)
    }
}

/// Heads repeated to as many as the query has.
#[track_caller]
fn repeat_heads(x: &Tensor, query: &Tensor) -> Result<Tensor> {
    let (rank, heads) = (x.rank(), query.shape()[query.rank() - 3]);
    let own = x.shape()[rank - 3];
    if rank < 3 || own == 0 || heads % own != 0 {
        let message = format!("{own} heads of {} do not divide the {heads} of {}", x.shape(), query.shape());
        return Err(Error::shape("scaled_dot_product_attention", message));
    }
    let mut wide = x.shape().clone();
    wide.dims_mut().insert(rank - 2, heads / own);
    let repeated = x.try_unsqueeze(rank - 2)?.try_expand(&wide)?;
    reshape(&repeated, &x.shape().with_dim(rank - 3, heads))
}

type Called = Result<Vec<Tensor>>;

/// PyTorch's `max_norm` renormalizes the rows before they are read; `scale_grad_by_freq` divides gradients by counts.
fn call_embedding(args: &Args) -> Called {
    let (index, weight) = (args.get::<Tensor>("input")?, args.get::<Tensor>("weight")?);
    let padding = args.get::<Option<i64>>("padding_idx")?;
    let by_frequency = args.get::<Option<bool>>("scale_grad_by_freq")?.unwrap_or(false);
    let weight = match args.get::<Option<f64>>("max_norm")? {
        Some(max_norm) => {
            renormalized(&index, &weight, max_norm, args.get::<Option<f64>>("norm_type")?.unwrap_or(2.0))?
        }
        None => weight,
    };
    let weight = if by_frequency { shared_by_frequency(&index, &weight)? } else { weight };
    Ok(vec![index.try_embedding(&weight, padding)?])
}

#[track_caller]
fn renormalized(index: &Tensor, weight: &Tensor, max_norm: f64, p: f64) -> Result<Tensor> {
    let rows = Tensor::arange(0, weight.shape()[0], 1, DType::I64, weight.device());
    let used = index.try_reshape([-1, 1])?.try_eq(&rows)?.try_any(0)?.try_unsqueeze(1)?;
    let wide = weight.detach().try_to_dtype(DType::F64)?;
    let norms = super::loss::p_norm(&wide, p)?.try_unsqueeze(1)?;
    let scale = norms.try_add(1e-7)?.try_reciprocal()?.try_mul(max_norm)?;
    let too_long = norms.try_gt(max_norm)?.try_logical_and(&used)?;
    let changed = cast(&too_long.try_where_(wide.try_mul(scale)?, &wide)?, weight.dtype())?;
    // PyTorch changes the table in place: gradients are those of the changed rows.
    Ok(crate::autodiff::with_rule(weight, changed, crate::autodiff::Reads::Input, |_, dy| dy.clone()))
}

/// `scale_grad_by_freq`: the value stays, the gradient is divided by how often a row occurs in the whole batch.
#[track_caller]
fn shared_by_frequency(index: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let flat = reshape(&cast(index, DType::I64)?, &Shape::from([index.numel()]))?;
    let zeros = Tensor::full([weight.shape()[0]], 0, weight.dtype(), weight.device());
    let ones = Tensor::full([index.numel()], 1, weight.dtype(), weight.device());
    let counts = scatter(ScatterMode::Add, &zeros, 0, &flat, &ones)?.try_maximum(1.0)?.try_unsqueeze(1)?;
    let value = weight.detach();
    Ok(crate::autodiff::with_rule(weight, value, crate::autodiff::Reads::Input, move |_, dy| dy / &counts))
}

fn call_embedding_bag(args: &Args) -> Called {
    let (index, mut weight) = (args.get::<Tensor>("input")?, args.get::<Tensor>("weight")?);
    if weight.rank() != 2 {
        return Err(Error::shape("embedding_bag", format!("weight {} is not [rows, d]", weight.shape())));
    }
    if let Some(max_norm) = args.get::<Option<f64>>("max_norm")? {
        weight = renormalized(&index, &weight, max_norm, args.get::<Option<f64>>("norm_type")?.unwrap_or(2.0))?;
    }
    if args.get::<Option<bool>>("scale_grad_by_freq")?.unwrap_or(false) {
        weight = shared_by_frequency(&index, &weight)?;
    }
    Ok(vec![index.try_embedding_bag(&weight, &args.get("options")?)?])
}

/// −1 for `num_classes` counts up to the largest index, which must be read first.
fn call_one_hot(args: &Args) -> Called {
    let index = args.get::<Tensor>("input")?;
    let classes = args.get::<Option<i64>>("num_classes")?.unwrap_or(-1);
    let classes = if classes >= 0 {
        classes as usize
    } else {
        index.try_to_vec::<i64>()?.into_iter().max().map_or(0, |largest| largest.max(-1).saturating_add(1)) as usize
    };
    Ok(vec![index.try_one_hot(classes)?])
}

/// Read from the arguments `attn_mask`, `is_causal`, `scale`, `enable_gqa` and `dropout_p`.
impl FromArg for AttentionOptions {
    fn from_arg(_: &Arg) -> Option<AttentionOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<AttentionOptions> {
        Some(AttentionOptions {
            mask: args.get("attn_mask").ok()?,
            is_causal: args.get::<Option<bool>>("is_causal").ok()?.unwrap_or(false),
            scale: args.get("scale").ok()?,
            enable_gqa: args.get::<Option<bool>>("enable_gqa").ok()?.unwrap_or(false),
            dropout_p: args.get::<Option<f64>>("dropout_p").ok()?.unwrap_or(0.0),
        })
    }
}

/// Read from the arguments of the same names.
impl FromArg for EmbeddingBagOptions {
    fn from_arg(_: &Arg) -> Option<EmbeddingBagOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<EmbeddingBagOptions> {
        let mode = match args.get::<Option<String>>("mode").ok()?.as_deref() {
            Some("sum") => BagMode::Sum,
            Some("max") => BagMode::Max,
            None | Some("mean") => BagMode::Mean,
            Some(_) => return None,
        };
        Some(EmbeddingBagOptions {
            mode,
            offsets: args.get("offsets").ok()?,
            per_sample_weights: args.get("per_sample_weights").ok()?,
            include_last_offset: args.get::<Option<bool>>("include_last_offset").ok()?.unwrap_or(false),
            padding_idx: args.get("padding_idx").ok()?,
        })
    }
}
