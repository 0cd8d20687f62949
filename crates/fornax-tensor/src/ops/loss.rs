//! Losses. Each takes a [`Reduction`]: mean, sum, or none.

use super::nn::Reduction;
use crate::autodiff::{Reads, custom_gradient, with_rule};
use crate::dims::keepdim;
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{cast, gather};
use crate::{DType, Error, Result, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_macros::ops;

/// Settings of the triplet margin loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletMarginOptions {
    /// By how much the negative should be farther away; 1.
    pub margin: f64,
    /// Which norm measures distance; 2.
    pub p: f64,
    /// Added to differences; 1e-6.
    pub eps: f64,
    /// Whether the distance of positive and negative counts if it is smaller; false.
    pub swap: bool,
    /// Mean, sum, or all.
    pub reduction: Reduction,
}

impl Default for TripletMarginOptions {
    fn default() -> TripletMarginOptions {
        TripletMarginOptions { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::Mean }
    }
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `|self − target|`.
    #[op(torch = ["nn.functional.l1_loss"], autocast = high)]
    pub fn l1_loss(&self, target: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
        weighted(&self.try_sub(target)?.try_abs()?, weight, reduction)
    }

    /// `(self − target)²`.
    #[op(torch = ["nn.functional.mse_loss"], autocast = high)]
    pub fn mse_loss(&self, target: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
        weighted(&self.try_sub(target)?.try_square()?, weight, reduction)
    }

    /// `d² / (2 beta)` for `|d| < beta`, else `|d| − beta / 2`, with `d = self − target`.
    #[op(torch = ["nn.functional.smooth_l1_loss"], default(beta = 1.0), autocast = high)]
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        if beta == 0.0 {
            return self.try_l1_loss(target, None, reduction);
        }
        let d = self.try_sub(target)?;
        let size = d.try_abs()?;
        let loss = size.try_lt(beta)?.try_where_(d.try_square()?.try_mul(0.5 / beta)?, size.try_sub(0.5 * beta)?)?;
        reduction.apply(&loss)
    }

    /// `d² / 2` for `|d| ≤ delta`, else `delta · (|d| − delta / 2)`, with `d = self − target`.
    #[op(torch = ["nn.functional.huber_loss"], default(delta = 1.0), autocast = high)]
    pub fn huber_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        delta: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let d = self.try_sub(target)?;
        let size = d.try_abs()?;
        let far = size.try_sub(0.5 * delta)?.try_mul(delta)?;
        let loss = size.try_le(delta)?.try_where_(d.try_square()?.try_mul(0.5)?, &far)?;
        weighted(&loss, weight, reduction)
    }

    /// `−(t ln p + (1 − t) ln(1 − p))` for probabilities `p` (this tensor); logarithms are cut off at −100, so that a
    /// wrong certainty is finite.
    #[op(torch = ["nn.functional.binary_cross_entropy"], autocast = high)]
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        same_shape("binary_cross_entropy", self, target)?;
        let logs = |p: &Tensor| (p.log().maximum(-100.0), p.neg().log1p().maximum(-100.0));
        let (p_kept, t_kept) = (self.clone(), target.clone());
        let forward = |x: &[Tensor]| {
            let (log_p, log_q) = logs(&x[0]);
            vec![(&x[1] * (&log_q - log_p) - log_q)]
        };
        let backward = move |dy: &[Option<Tensor>]| {
            let Some(dy) = &dy[0] else { return vec![None, None] };
            let slope = (&p_kept - &t_kept) / (&p_kept * (1.0 - &p_kept)).maximum(1e-12);
            let (log_p, log_q) = logs(&p_kept);
            vec![Some(dy * slope), Some(dy * (log_q - log_p))]
        };
        let loss = custom_gradient(&[self, target], forward, backward).swap_remove(0);
        let loss = match weight {
            Some(weight) => loss.try_mul(weight)?,
            None => loss,
        };
        reduction.apply(&loss)
    }

    /// [`Tensor::binary_cross_entropy`] of `sigmoid(self)`, without overflow. `pos_weight` multiplies the positive part.
    #[op(torch = ["nn.functional.binary_cross_entropy_with_logits"], autocast = high)]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        same_shape("binary_cross_entropy_with_logits", self, target)?;
        let log_sigmoid = self.try_logsigmoid()?;
        let negative = match pos_weight {
            Some(pos_weight) => pos_weight.try_sub(1.0)?.try_mul(target)?.try_add(1.0)?.try_mul(&log_sigmoid)?,
            None => log_sigmoid,
        };
        let loss = target.try_neg()?.try_add(1.0)?.try_mul(self)?.try_sub(negative)?;
        let loss = match weight {
            Some(weight) => loss.try_mul(weight)?,
            None => loss,
        };
        reduction.apply(&loss)
    }

    /// `t (ln t − self)` for log-probabilities (this tensor); `log_target` says that `target` holds `ln t`.
    #[op(torch = ["nn.functional.kl_div"], call = call_kl_div, autocast = high)]
    pub fn kl_div(&self, target: &Tensor, log_target: bool, reduction: Reduction) -> Result<Tensor> {
        reduction.apply(&kl_elements(self, target, log_target)?)
    }

    /// `−weight_t · self_t` for log-probabilities `[n, classes, …]` and class numbers `[n, …]`.
    #[op(torch = ["nn.functional.nll_loss"], default(ignore_index = -100), autocast = high)]
    pub fn nll_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        ignore_index: i64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let class_dim = usize::from(self.rank() > 1);
        let Some(&classes) = self.shape().get(class_dim) else {
            return Err(Error::shape("nll_loss", "log-probabilities need a class dim, got []"));
        };
        let expected: crate::Shape =
            (0..self.rank()).filter(|&dim| dim != class_dim).map(|dim| self.shape()[dim]).collect();
        if *target.shape() != expected {
            let message = format!("targets {} do not fit {}; expected {expected}", target.shape(), self.shape());
            return Err(Error::shape("nll_loss", message));
        }
        let target = cast(target, DType::I64)?.try_unsqueeze(class_dim)?;
        let valid = target.try_ne(ignore_index)?;
        let safe = valid.try_where_(&target, 0)?;
        let picked = match weight {
            Some(weight) => {
                let mut shape = vec![1; self.rank()];
                shape[class_dim] = classes;
                gather(&weight.try_reshape(shape)?.try_expand(self.shape())?, class_dim, &safe)?
            }
            None => Tensor::full(safe.shape(), 1.0, self.dtype(), self.device()),
        };
        let picked = valid.try_where_(&picked, 0.0)?.try_to_dtype(self.dtype())?;
        let nll = gather(self, class_dim, &safe)?.try_neg()?;
        let loss = valid.try_where_(nll.try_mul(&picked)?, 0.0)?.try_squeeze(class_dim)?;
        match reduction {
            Reduction::Mean => loss.try_sum(())?.try_div(picked.try_sum(())?),
            other => other.apply(&loss),
        }
    }

    /// Negative log likelihood of a Poisson distribution with (log) rate `self`: `e^x − t x`, or `x − t ln(x + eps)`.
    /// `full` adds Stirling's approximation of `ln t!` for `t > 1`.
    #[op(torch = ["nn.functional.poisson_nll_loss"], default(log_input = true, full = false, eps = 1e-8), autocast = high)]
    pub fn poisson_nll_loss(
        &self,
        target: &Tensor,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let mut loss = if log_input {
            self.try_exp()?.try_sub(target.try_mul(self)?)?
        } else {
            self.try_sub(target.try_mul(self.try_add(eps)?.try_log()?)?)?
        };
        if full {
            let large = target.try_gt(1.0)?;
            let safe = large.try_where_(target, 1.0)?;
            let half_log = safe.try_mul(core::f64::consts::TAU)?.try_log()?.try_mul(0.5)?;
            let stirling = safe.try_mul(safe.try_log()?)?.try_sub(&safe)?.try_add(half_log)?;
            loss = loss.try_add(large.try_where_(&stirling, 0.0)?)?;
        }
        reduction.apply(&loss)
    }

    /// Negative log likelihood of normal distributions with mean `self` and variance `var` (at least `eps`):
    /// `(ln var + (self − target)² / var) / 2`, and `ln(2π) / 2` more if `full`.
    #[op(torch = ["nn.functional.gaussian_nll_loss"], default(full = false, eps = 1e-6), autocast = high)]
    pub fn gaussian_nll_loss(
        &self,
        target: &Tensor,
        var: &Tensor,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        // A variance without the last dim, or with size 1 there, is the same for all of it.
        let var = if var.rank() + 1 == self.rank() && var.shape()[..] == self.shape()[..var.rank()] {
            var.try_unsqueeze(-1)?
        } else {
            var.clone()
        };
        // The floor does not stop the gradient, as in PyTorch.
        let raised = &var + (var.detach().try_maximum(eps)? - var.detach());
        let error = self.try_sub(target)?.try_square()?.try_div(&raised)?;
        let mut loss = raised.try_log()?.try_add(error)?.try_mul(0.5)?;
        if full {
            loss = loss.try_add(0.918_938_533_204_672_7)?;
        }
        reduction.apply(&loss)
    }

    /// `self` for targets 1, `max(0, margin − self)` for targets −1.
    #[op(torch = ["nn.functional.hinge_embedding_loss"], default(margin = 1.0), autocast = high)]
    pub fn hinge_embedding_loss(&self, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
        let far = clamp_low(&self.try_neg()?.try_add(margin)?)?;
        let margin_part = target.try_ne(1)?.try_where_(&far, 0.0)?;
        let own_part = target.try_ne(-1)?.try_where_(self, 0.0)?;
        reduction.apply(&margin_part.try_add(own_part)?)
    }

    /// `max(0, −target · (self − other) + margin)`.
    #[op(torch = ["nn.functional.margin_ranking_loss"], default(margin = 0.0), rename(self = "input1", other = "input2"), autocast = high)]
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let distance = target.try_neg()?.try_mul(self.try_sub(other)?)?.try_add(margin)?;
        reduction.apply(&clamp_low(&distance)?)
    }

    /// `1 − cos` for targets 1, `max(0, cos − margin)` for −1; the cosine is that of vectors along the last dim.
    #[op(torch = ["nn.functional.cosine_embedding_loss"], default(margin = 0.0), rename(self = "input1", other = "input2"), autocast = high)]
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let dot = self.try_mul(other)?.try_sum(-1)?;
        let norms = self.try_square()?.try_sum(-1)?.try_add(1e-12)?;
        let norms = norms.try_mul(other.try_square()?.try_sum(-1)?.try_add(1e-12)?)?;
        let cos = dot.try_div(norms.try_sqrt()?)?;
        let zero = cos.zeros_like();
        let apart = target.try_eq(-1)?.try_where_(clamp_low(&cos.try_sub(margin)?)?, &zero)?;
        let together = target.try_eq(1)?.try_where_(cos.try_neg()?.try_add(1.0)?, &zero)?;
        reduction.apply(&together.try_add(apart)?)
    }

    /// `max(0, d(anchor, positive) − d(anchor, negative) + margin)`; the anchor is this tensor, `d` the p-norm distance
    /// along the last dim. `swap` takes the distance of positive and negative if it is smaller.
    #[op(torch = ["nn.functional.triplet_margin_loss"], rename(self = "anchor"), autocast = high)]
    pub fn triplet_margin_loss(
        &self,
        positive: &Tensor,
        negative: &Tensor,
        options: &TripletMarginOptions,
    ) -> Result<Tensor> {
        let TripletMarginOptions { margin, p, eps, swap, reduction } = *options;
        let near = self.try_pairwise_distance(positive, p, eps, false)?;
        let mut far = self.try_pairwise_distance(negative, p, eps, false)?;
        if swap {
            far = far.try_minimum(positive.try_pairwise_distance(negative, p, eps, false)?)?;
        }
        reduction.apply(&clamp_low(&near.try_sub(far)?.try_add(margin)?)?)
    }

    /// `Σ max(0, margin − x_t + x_i)ᵖ / classes` over all classes `i ≠ t`, times `weight_t`.
    #[op(torch = ["nn.functional.multi_margin_loss"], default(p = 1, margin = 1.0), autocast = high)]
    pub fn multi_margin_loss(
        &self,
        target: &Tensor,
        p: i64,
        margin: f64,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let (x, target) = if self.rank() <= 1 {
            (self.try_reshape([1, -1])?, target.try_reshape([1])?)
        } else {
            (self.clone(), target.clone())
        };
        let [batch, classes] = x.shape()[..] else {
            return Err(Error::shape("multi_margin_loss", format!("{} is not [n, classes]", self.shape())));
        };
        if target.shape()[..] != [batch] {
            let message = format!("targets {} do not fit {}", target.shape(), x.shape());
            return Err(Error::shape("multi_margin_loss", message));
        }
        let index = cast(&target, DType::I64)?.try_unsqueeze(1)?;
        let gap = clamp_low(&x.try_sub(gather(&x, 1, &index)?)?.try_add(margin)?)?;
        let mut terms = match p {
            1 => gap,
            2 => gap.try_square()?,
            _ => return Err(Error::argument("multi_margin_loss", format!("p is 1 or 2, not {p}"))),
        };
        if let Some(weight) = weight {
            terms = terms.try_mul(gather(&weight.try_unsqueeze(0)?.try_expand([batch, classes])?, 1, &index)?)?;
        }
        let is_target = Tensor::arange(0, classes, 1, DType::I64, x.device()).try_eq(&index)?;
        let loss = is_target.try_where_(0.0, &terms)?.try_sum(1)?.try_div(classes as f64)?;
        reduction.apply(&if self.rank() <= 1 { loss.try_squeeze(0)? } else { loss })
    }

    /// `Σ max(0, 1 − x_t + x_i) / classes` over the target classes `t` of a row (up to the first −1) and all classes `i`
    /// that are none.
    #[op(torch = ["nn.functional.multilabel_margin_loss"], autocast = high)]
    pub fn multilabel_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        same_shape("multilabel_margin_loss", self, target)?;
        let (x, target) = if self.rank() < 2 {
            (self.try_reshape([1, -1])?, target.try_reshape([1, -1])?)
        } else {
            (self.clone(), target.clone())
        };
        let classes = x.shape()[1];
        let target = cast(&target, DType::I64)?;
        // Labels count until the first negative one.
        let listed = target.try_lt(0)?.try_to_dtype(DType::I64)?.try_cumsum(1)?.try_eq(0)?;
        let safe = listed.try_where_(&target, 0)?;
        let label = Tensor::arange(0, classes, 1, DType::I64, x.device());
        let hit = safe.try_unsqueeze(2)?.try_eq(&label)?.try_logical_and(&listed.try_unsqueeze(2)?)?;
        let is_target = hit.try_any(1)?.try_unsqueeze(1)?; // [n, 1, classes]
        let own = gather(&x, 1, &safe)?.try_unsqueeze(2)?; // [n, labels, 1]
        let gap = clamp_low(&x.try_unsqueeze(1)?.try_sub(&own)?.try_add(1.0)?)?;
        let counts = listed.try_unsqueeze(2)?.try_logical_and(&is_target.try_logical_not()?)?;
        let loss = counts.try_where_(&gap, 0.0)?.try_sum([1, 2])?.try_div(classes as f64)?;
        let loss = if self.rank() < 2 { loss.try_squeeze(0)? } else { loss };
        reduction.apply(&loss)
    }

    /// Mean over the classes (last dim) of the logistic loss of each.
    #[op(torch = ["nn.functional.multilabel_soft_margin_loss"], autocast = high)]
    pub fn multilabel_soft_margin_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let positive = target.try_mul(self.try_logsigmoid()?)?;
        let negative = target.try_neg()?.try_add(1.0)?.try_mul(self.try_neg()?.try_logsigmoid()?)?;
        let mut loss = positive.try_add(negative)?.try_neg()?;
        if let Some(weight) = weight {
            loss = loss.try_mul(weight)?;
        }
        reduction.apply(&loss.try_mean(-1)?)
    }

    /// `ln(1 + e^(−target · self))`.
    #[op(torch = ["nn.functional.soft_margin_loss"], autocast = high)]
    pub fn soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        same_shape("soft_margin_loss", self, target)?;
        reduction.apply(&target.try_mul(self)?.try_logsigmoid()?.try_neg()?)
    }

    /// Connectionist temporal classification: log-probabilities `[time, n, classes]` (or `[time, classes]`), labels
    /// `[n, length]` or all in a row, lengths of each. As in PyTorch, the gradient is that of the logits behind the
    /// log-probabilities.
    ///
    /// # References
    /// Graves, Fernández, Gomez, Schmidhuber (2006), *Connectionist Temporal Classification*.
    #[op(torch = ["nn.functional.ctc_loss"], rename(self = "log_probs"), default(blank = 0, zero_infinity = false), autocast = high)]
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: Vec<i64>,
        target_lengths: Vec<i64>,
        blank: usize,
        reduction: Reduction,
        zero_infinity: bool,
    ) -> Result<Tensor> {
        if self.rank() == 2 {
            let batch = self.try_unsqueeze(1)?;
            let loss = batch.try_ctc_loss(targets, input_lengths, target_lengths, blank, reduction, zero_infinity)?;
            return if reduction == Reduction::None { loss.try_squeeze(0) } else { Ok(loss) };
        }
        let batch = CtcBatch::new(self, targets, &input_lengths, &target_lengths, blank)?;
        let lengths: Vec<f32> = target_lengths.iter().map(|&length| length.max(1) as f32).collect();
        let loss = batch.loss(&self.detach());
        let loss = with_rule(self, loss, Reads::Input, move |x, dy| batch.gradient(x, dy, zero_infinity));
        let loss = if zero_infinity { loss.try_masked_fill(&loss.detach().try_eq(f64::INFINITY)?, 0.0)? } else { loss };
        match reduction {
            Reduction::Mean => {
                let lengths = Tensor::from_vec(lengths, loss.shape(), self.device()).try_to_dtype(self.dtype())?;
                loss.try_div(&lengths)?.try_mean(())
            }
            other => other.apply(&loss),
        }
    }

    /// p-norm of `self − other + eps` along the last dim.
    #[op(torch = ["nn.functional.pairwise_distance"], default(p = 2.0, eps = 1e-6, keepdim = false), rename(self = "x1", other = "x2"), autocast = high)]
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
        let distance = p_norm(&self.try_sub(other)?.try_add(eps)?, p)?;
        if keepdim { distance.try_unsqueeze(-1) } else { Ok(distance) }
    }

    /// Cosine of vectors along `dim`; norms are at least `eps`.
    #[op(torch = ["nn.functional.cosine_similarity"], default(dim = 1, eps = 1e-8), rename(self = "x1", other = "x2"), autocast = high)]
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        let shape = self.broadcast_shape(other)?;
        let (a, b) = (self.try_expand(&shape)?, other.try_expand(&shape)?);
        let unit = |x: &Tensor| -> Result<Tensor> {
            let squares = x.try_square()?.try_sum(keepdim(dim))?;
            let norm = squares.try_maximum(eps * eps)?.try_sqrt()?;
            x.try_div(&norm)
        };
        unit(&a)?.try_mul(unit(&b)?)?.try_sum(dim)
    }

    /// Divided by its p-norm along `dim`, at least `eps`.
    #[op(torch = ["nn.functional.normalize"], default(p = 2.0, dim = 1, eps = 1e-12), autocast = high)]
    pub fn normalize(&self, p: f64, dim: i64, eps: f64) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.try_unsqueeze(0)?.try_normalize(p, 0, eps)?.try_squeeze(0);
        }
        let last = self.try_transpose(dim, -1)?;
        let norm = p_norm(&last, p)?.try_unsqueeze(-1)?.try_transpose(dim, -1)?;
        let norm = norm.try_le(eps)?.try_where_(eps, &norm)?.try_to_dtype(self.dtype())?;
        self.try_div(&norm)
    }

    /// p-norm distance of every pair of rows: `[…, m, d]` and `[…, n, d]` give `[…, m, n]`.
    #[op(torch = ["cdist"], default(p = 2.0), rename(self = "x1", other = "x2"), autocast = high)]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        if self.rank() < 2 || other.rank() < 2 || self.shape().last() != other.shape().last() {
            let message = format!("x1 {} and x2 {} are not rows of one size", self.shape(), other.shape());
            return Err(Error::shape("cdist", message));
        }
        p_norm(&self.try_unsqueeze(-2)?.try_sub(other.try_unsqueeze(-3)?)?, p)
    }

    /// p-norm distance of every pair of different rows of `[n, d]`, pairs in order: `[n (n − 1) / 2]`.
    #[op(torch = ["nn.functional.pdist"], default(p = 2.0), autocast = high)]
    pub fn pdist(&self, p: f64) -> Result<Tensor> {
        let [n, _] = self.shape()[..] else {
            return Err(Error::shape("pdist", format!("{} is not [n, d]", self.shape())));
        };
        let pairs = |first: bool| -> Vec<i64> {
            (0..n).flat_map(|i| (i + 1..n).map(move |j| if first { i as i64 } else { j as i64 })).collect()
        };
        let pick = |first: bool| -> Result<Tensor> {
            let index = pairs(first);
            let count = index.len();
            self.try_index_select(0, &Tensor::from_vec(index, [count], self.device()))
        };
        p_norm(&pick(true)?.try_sub(pick(false)?)?, p)
    }
}

/// Read from the arguments `margin`, `p`, `eps`, `swap` and `reduction`.
impl FromArg for TripletMarginOptions {
    fn from_arg(_: &Arg) -> Option<TripletMarginOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<TripletMarginOptions> {
        let default = TripletMarginOptions::default();
        Some(TripletMarginOptions {
            margin: args.get::<Option<f64>>("margin").ok()?.unwrap_or(default.margin),
            p: args.get::<Option<f64>>("p").ok()?.unwrap_or(default.p),
            eps: args.get::<Option<f64>>("eps").ok()?.unwrap_or(default.eps),
            swap: args.get::<Option<bool>>("swap").ok()?.unwrap_or(default.swap),
            reduction: args.get("reduction").ok()?,
        })
    }
}

impl FromArg for Reduction {
    fn from_arg(arg: &Arg) -> Option<Reduction> {
        match arg {
            Arg::None => Some(Reduction::Mean),
            Arg::Str(name) => Reduction::from_name(name).ok(),
            _ => None,
        }
    }
}

fn same_shape(op: &str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.shape() == target.shape() {
        return Ok(());
    }
    Err(Error::shape(op, format!("target {} is not shaped like the input {}", target.shape(), x.shape())))
}

/// The losses, weighted; their mean is over the sum of the weights.
#[track_caller]
fn weighted(loss: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
    let Some(weight) = weight else { return reduction.apply(loss) };
    let loss = loss.try_mul(weight)?;
    match reduction {
        Reduction::Mean => loss.try_sum(())?.try_div(weight.try_expand(loss.shape())?.try_sum(())?),
        other => other.apply(&loss),
    }
}

/// `max(x, 0)` whose gradient at 0 is 1, as PyTorch's `clamp_min`.
#[track_caller]
fn clamp_low(x: &Tensor) -> Result<Tensor> {
    x.try_lt(0.0)?.try_where_(0.0, x)?.try_to_dtype(x.dtype())
}

/// p-norm along the last dim; its gradient at 0 is 0.
#[track_caller]
pub(crate) fn p_norm(x: &Tensor, p: f64) -> Result<Tensor> {
    let size = x.try_abs()?;
    if x.numel() == 0 {
        return size.try_sum(-1);
    }
    if p == 0.0 {
        return x.try_ne(0.0)?.try_to_dtype(x.dtype())?.try_sum(-1);
    }
    if p == 1.0 {
        return size.try_sum(-1);
    }
    if p == f64::INFINITY {
        return size.try_amax(-1);
    }
    // Zeros are taken out before the root: its slope there is infinite.
    let powers = if p == 2.0 {
        x.try_square()?
    } else {
        let is_zero = x.detach().try_eq(0.0)?;
        is_zero.try_where_(0.0, is_zero.try_where_(1.0, &size)?.try_pow(p)?)?.try_to_dtype(x.dtype())?
    };
    let sum = powers.try_sum(-1)?;
    let is_zero = sum.detach().try_eq(0.0)?;
    let safe = is_zero.try_where_(1.0, &sum)?.try_to_dtype(x.dtype())?;
    let root = if p == 2.0 { safe.try_sqrt()? } else { safe.try_pow(1.0 / p)? };
    is_zero.try_where_(0.0, &root)?.try_to_dtype(x.dtype())
}

#[track_caller]
fn kl_elements(x: &Tensor, target: &Tensor, log_target: bool) -> Result<Tensor> {
    if log_target {
        return target.try_exp()?.try_mul(target.try_sub(x)?);
    }
    let is_zero = target.try_eq(0.0)?;
    let safe = is_zero.try_where_(1.0, target)?.try_to_dtype(target.dtype())?;
    let entropy = is_zero.try_where_(0.0, target.try_mul(safe.try_log()?)?)?.try_to_dtype(target.dtype())?;
    entropy.try_sub(target.try_mul(x)?)
}

/// `batchmean` divides the sum by the first size.
fn call_kl_div(args: &Args) -> Result<Vec<Tensor>> {
    let (x, target) = (args.get::<Tensor>("input")?, args.get::<Tensor>("target")?);
    let loss = kl_elements(&x, &target, args.get::<Option<bool>>("log_target")?.unwrap_or(false))?;
    let reduced = match args.get::<Option<String>>("reduction")?.as_deref() {
        Some("batchmean") => {
            let batch = loss.shape().first().copied().unwrap_or(1);
            loss.try_sum(())?.try_div(batch as f64)?
        }
        Some(name) => Reduction::from_name(name)?.apply(&loss)?,
        None => Reduction::Mean.apply(&loss)?,
    };
    Ok(vec![reduced])
}

/// The log-probability of what cannot be. −∞ has no derivatives in sums of exponentials; halves round this to it.
const IMPOSSIBLE: f64 = -1e30;

/// The labels of a batch, spread with blanks between them, and what of them counts.
struct CtcBatch {
    /// `[n, states]`: the class of each state, blank, label, blank, …
    classes: Tensor,
    /// `[n, states]`, 0 where a state may be entered from two before, −∞ elsewhere.
    skip: Tensor,
    /// `[time, n, 1]`: whether a step is inside its input.
    alive: Tensor,
    /// `[n, states]`, 0 for the last two states of each, −∞ elsewhere.
    last: Tensor,
}

impl CtcBatch {
    fn new(
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[i64],
        target_lengths: &[i64],
        blank: usize,
    ) -> Result<CtcBatch> {
        let bad = |message: String| Err(Error::shape("ctc_loss", message));
        let [time, n, classes] = log_probs.shape()[..] else {
            return bad(format!("log-probabilities {} are not [time, n, classes]", log_probs.shape()));
        };
        if input_lengths.len() != n || target_lengths.len() != n || blank >= classes {
            return bad(format!(
                "{} input and {} target lengths for a batch of {n}",
                input_lengths.len(),
                target_lengths.len()
            ));
        }
        let labels = targets.try_to_vec::<i64>()?;
        let longest = target_lengths.iter().copied().max().unwrap_or(0).max(0) as usize;
        let states = 2 * longest + 1;
        let (mut rows, mut skip, mut last) =
            (vec![blank as i64; n * states], vec![f32::NEG_INFINITY; n * states], vec![f32::NEG_INFINITY; n * states]);
        let mut start = 0;
        for i in 0..n {
            let length = target_lengths[i].max(0) as usize;
            let own = if targets.rank() == 2 { i * targets.shape()[1] } else { start };
            start += length;
            let Some(own) = labels.get(own..own + length) else {
                return bad(format!("targets {} hold too few labels", targets.shape()));
            };
            for (j, &label) in own.iter().enumerate() {
                if label < 0 || label as usize >= classes {
                    return Err(Error::index(
                        "ctc_loss",
                        format!("label {label} is out of range for {classes} classes"),
                    ));
                }
                rows[i * states + 2 * j + 1] = label;
                if j > 0 && own[j - 1] != label {
                    skip[i * states + 2 * j + 1] = 0.0;
                }
            }
            last[i * states + 2 * length] = 0.0;
            if length > 0 {
                last[i * states + 2 * length - 1] = 0.0;
            }
        }
        let alive: Vec<bool> =
            (0..time).flat_map(|t| input_lengths.iter().map(move |&length| (t as i64) < length)).collect();
        let device = log_probs.device();
        let float = |data: Vec<f32>| Tensor::from_vec(data, [n, states], device).to_dtype(log_probs.dtype());
        Ok(CtcBatch {
            classes: Tensor::from_vec(rows, [n, states], device),
            skip: float(skip),
            alive: Tensor::from_vec(alive, [time, n, 1], device),
            last: float(last),
        })
    }

    /// `−ln p` of each of the batch, by the forward variables.
    #[track_caller]
    fn loss(&self, log_probs: &Tensor) -> Tensor {
        let [time, n, _] = log_probs.dims();
        let states = self.classes.shape()[1];
        let classes = self.classes.unsqueeze(0).expand([time, n, states]);
        let emitted = log_probs.gather(2, &classes); // [time, n, states]
        let state = Tensor::arange(0, states, 1, DType::I64, log_probs.device());
        let start = state.lt(2).where_(0.0, IMPOSSIBLE).to_dtype(log_probs.dtype());
        let step = |t: usize| emitted.narrow(0, t as i64, 1).squeeze(0);
        let mut alpha = &start + step(0);
        for t in 1..time {
            let before = |by: usize| {
                let low = alpha.narrow(1, 0, states.saturating_sub(by));
                low.pad_dims(&[(0, 0), (by.min(states), 0)], IMPOSSIBLE)
            };
            let ways = Tensor::stack(&[&alpha, &before(1), &(before(2) + &self.skip)], 0);
            let next = ways.logsumexp(0) + step(t);
            alpha = self.alive.narrow(0, t as i64, 1).squeeze(0).where_(next, &alpha);
        }
        let loss = (alpha + &self.last).logsumexp(1).neg();
        loss.gt(-0.1 * IMPOSSIBLE).where_(f64::INFINITY, loss)
    }

    /// The softmax of the logits behind the log-probabilities, less how likely each class is at each step.
    #[track_caller]
    fn gradient(&self, log_probs: &Tensor, dy: &Tensor, zero_infinity: bool) -> Tensor {
        // Tracked, the gradient is differentiable again.
        let is_tracked = log_probs.is_tracked();
        let leaf = if is_tracked { log_probs.clone() } else { log_probs.requires_grad() };
        let loss = crate::with_grad(true, || self.loss(&leaf));
        let found = match crate::grad_with(&[&loss], &[&leaf], &[&loss.ones_like()]) {
            Ok(mut found) => found.swap_remove(0).unwrap_or_else(|| leaf.zeros_like()),
            Err(error) => error.raise(),
        };
        let found = if is_tracked { found } else { found.detach() };
        let gradient = (log_probs.exp() + found) * dy.unsqueeze(-1);
        let gradient = self.alive.where_(gradient, 0.0).to_dtype(log_probs.dtype());
        if zero_infinity {
            let impossible = loss.detach().eq(f64::INFINITY).unsqueeze(-1);
            return impossible.where_(0.0, gradient).to_dtype(log_probs.dtype());
        }
        gradient
    }
}
