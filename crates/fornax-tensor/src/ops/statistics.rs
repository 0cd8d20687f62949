//! Reductions composed from primitives: moments, order statistics, norms, differences and running values.

use super::elementwise::float;
use super::loss::p_norm;
use super::reduction::squeeze_reduced;
use crate::autodiff::{Reads, with_rule};
use crate::dims::{IntoDim, ReduceDims, resolve_dim};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{argsort, cast, gather, permute, reduce, reshape, scan, scatter};
use crate::{DType, Error, Result, Shape, Tensor, keepdim};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, ReduceOp, ScanOp, ScatterMode};
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
    /// Variance over `dims`, divided by their number less `correction` (1: unbiased, 0: biased).
    #[op(with(dims = ReduceDims), torch = ["var", "var.unbiased"], call = call_var)]
    pub fn var(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<Tensor> {
        cast(&moments("var", self, &dims.into(), correction)?.1, self.dtype())
    }

    /// Standard deviation over `dims`: the root of [`Tensor::var`].
    #[op(with(dims = ReduceDims), torch = ["std", "std.unbiased"], call = call_std)]
    pub fn std(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<Tensor> {
        cast(&root(&moments("std", self, &dims.into(), correction)?.1), self.dtype())
    }

    /// Variance and mean over `dims`.
    #[op(with(dims = ReduceDims), call = call_var_mean)]
    pub fn var_mean(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<(Tensor, Tensor)> {
        let (mean, var) = moments("var_mean", self, &dims.into(), correction)?;
        Ok((cast(&var, self.dtype())?, cast(&mean, self.dtype())?))
    }

    /// Standard deviation and mean over `dims`.
    #[op(with(dims = ReduceDims), call = call_std_mean)]
    pub fn std_mean(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<(Tensor, Tensor)> {
        let (mean, var) = moments("std_mean", self, &dims.into(), correction)?;
        Ok((cast(&root(&var), self.dtype())?, cast(&mean, self.dtype())?))
    }

    /// Smallest and largest over `dims`.
    #[op(with(dims = ReduceDims), rename(dims = "dim"))]
    pub fn aminmax(&self, dims: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        let dims = dims.into();
        Ok((self.try_amin(dims.clone())?, self.try_amax(dims)?))
    }

    /// Number of elements over `dims` that are not zero (`i64`).
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn count_nonzero(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        cast(self, DType::Bool)?.try_sum(dims)
    }

    /// Sum over `dims` with NaN as 0.
    #[op(call = call_nansum)]
    pub fn nansum(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.try_masked_fill(&self.try_isnan()?, 0.0)? } else { self.clone() };
        x.try_sum(dims)
    }

    /// Mean over `dims` of what is not NaN.
    #[op(call = call_nanmean)]
    pub fn nanmean(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let dims = dims.into();
        if !self.dtype().is_float() {
            return Err(Error::dtype("nanmean", format!("needs a float, got {}", self.dtype())));
        }
        let count = self.try_isnan()?.try_logical_not()?.try_sum(dims.clone())?;
        let sum = cast(self, self.dtype().compute())?.try_nansum(dims)?;
        cast(&sum.try_div(&count.try_to_dtype(sum.dtype())?)?, self.dtype())
    }

    /// The median of `dim` (the lower one of an even number) and where it is; NaN if there is one.
    #[op(call = call_median)]
    pub fn median(&self, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        ranked("median", self, &dim.into(), Rank::Median)
    }

    /// The median of what is not NaN.
    #[op(call = call_nanmedian)]
    pub fn nanmedian(&self, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        ranked("nanmedian", self, &dim.into(), Rank::NanMedian)
    }

    /// The `k`-th smallest of `dim` (from 1) and where it is.
    #[op(with(dim = ReduceDims), default(k = 1))]
    pub fn kthvalue(&self, k: usize, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        ranked("kthvalue", self, &last_by_default(dim.into()), Rank::At(k))
    }

    /// The most frequent value of `dim` (the smallest of several) and the last place it stands.
    #[op(with(dim = ReduceDims))]
    pub fn mode(&self, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        mode(self, &last_by_default(dim.into()))
    }

    /// The values below which the shares `q` (a list) of `dim` lie, interpolated: `[q, …]`; without a dim for a 0-d `q`.
    #[op(call = call_quantile)]
    pub fn quantile(&self, q: &Tensor, dims: impl Into<ReduceDims>, interpolation: Interpolation) -> Result<Tensor> {
        quantile(self, q, &dims.into(), interpolation, false)
    }

    /// [`Tensor::quantile`] of what is not NaN.
    #[op(call = call_nanquantile)]
    pub fn nanquantile(&self, q: &Tensor, dims: impl Into<ReduceDims>, interpolation: Interpolation) -> Result<Tensor> {
        quantile(self, q, &dims.into(), interpolation, true)
    }

    /// Running maximum of `dim`, and the last place it was set.
    #[op(with(dim = i64))]
    pub fn cummax(&self, dim: impl IntoDim) -> Result<(Tensor, Tensor)> {
        extreme("cummax", ScanOp::Max, self, dim.into_dim())
    }

    /// Running minimum of `dim`, and the last place it was set.
    #[op(with(dim = i64))]
    pub fn cummin(&self, dim: impl IntoDim) -> Result<(Tensor, Tensor)> {
        extreme("cummin", ScanOp::Min, self, dim.into_dim())
    }

    /// Logarithm of the running sum of `eˣ` along `dim`, by doubling strides: no scale is lost.
    ///
    /// # References
    /// Hillis, Steele (1986), *Data Parallel Algorithms*.
    #[op(with(dim = i64))]
    pub fn logcumsumexp(&self, dim: impl IntoDim) -> Result<Tensor> {
        let dim = resolve_dim("logcumsumexp", dim.into_dim(), self.shape())?;
        let mut y = float(self)?;
        let Some(&size) = self.shape().get(dim) else { return Ok(y) };
        let mut reach = 1;
        while reach < size {
            let mut padding = vec![(0, 0); self.rank()];
            padding[dim] = (reach, 0);
            let before = y.try_narrow(dim, 0, size - reach)?.pad_dims(&padding, f64::NEG_INFINITY);
            y = y.try_logaddexp(&before)?;
            reach *= 2;
        }
        Ok(y)
    }

    /// `(Σ |x|ᵖ)^(1/p)` over `dims`; p = ∞, −∞ and 0 give the largest, the smallest and the number of non-zeros.
    #[op(torch = ["linalg.vector_norm"], call = call_vector_norm)]
    pub fn vector_norm(&self, p: f64, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        vector_norm(self, p, &dims.into())
    }

    /// A norm of the matrices in two dims.
    #[op(torch = ["linalg.matrix_norm"], call = call_matrix_norm)]
    pub fn matrix_norm(&self, order: MatrixNorm, dims: [i64; 2], keep: bool) -> Result<Tensor> {
        matrix_norm(self, order, dims, keep)
    }

    /// p-norm of `self − other` as one vector.
    #[op(default(p = 2.0))]
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        vector_norm(&self.try_sub(other)?, p, &ReduceDims::default())
    }

    /// Sum of the main diagonal of a matrix.
    #[op]
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::shape("trace", format!("{} is not a matrix", self.shape())));
        }
        self.try_diagonal(0, 0, 1)?.try_sum(0)
    }

    /// How many elements fall into each of `bins` equal parts of `[min, max]` (of all, if both are 0).
    #[op(grad = false, default(bins = 100, min = 0.0, max = 0.0))]
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        let flat = self.detach().try_reshape([-1])?.try_to_dtype(DType::F64)?;
        if bins == 0 {
            return Err(Error::argument("histc", "needs at least one bin"));
        }
        if !(min.is_finite() && max.is_finite() && min <= max) {
            return Err(Error::argument("histc", format!("[{min}, {max}] is no range")));
        }
        let (mut low, mut high) =
            (Tensor::full((), min, DType::F64, self.device()), Tensor::full((), max, DType::F64, self.device()));
        if min == max && flat.numel() > 0 {
            (low, high) = (flat.try_amin(())?, flat.try_amax(())?);
        }
        let same = low.try_eq(&high)?;
        let (low, high) = (same.try_where_(low.try_sub(1.0)?, &low)?, same.try_where_(high.try_add(1.0)?, &high)?);
        let share = flat.try_sub(&low)?.try_div(high.try_sub(&low)?)?.try_mul(bins as f64)?;
        let inside = flat.try_ge(&low)?.try_logical_and(&flat.try_le(&high)?)?;
        let bin = share.try_floor()?.try_clamp(Some(0.0), Some(bins as f64 - 1.0))?.try_to_dtype(DType::I64)?;
        let bin = inside.try_where_(&bin, 0)?;
        let zeros = Tensor::full([bins], 0, self.dtype(), self.device());
        scatter(ScatterMode::Add, &zeros, 0, &bin, &inside.try_to_dtype(self.dtype())?)
    }

    /// How often each integer from 0 on occurs in a list, or the sum of its weights. Waits for the values, since they
    /// set the size.
    #[op(grad = false, default(minlength = 0))]
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        let values = self.try_to_vec::<i64>()?;
        if self.rank() != 1 || values.iter().any(|&value| value < 0) {
            return Err(Error::argument(
                "bincount",
                format!("needs a list of integers from 0 on, got {}", self.shape()),
            ));
        }
        let size = values.iter().max().map_or(0, |&largest| largest as usize + 1).max(minlength);
        let index = cast(self, DType::I64)?;
        let (dtype, source) = match weights {
            Some(weights) if weights.dtype() == DType::F32 => (DType::F32, weights.clone()),
            Some(weights) => (DType::F64, cast(weights, DType::F64)?),
            None => (DType::I64, Tensor::full(self.shape(), 1, DType::I64, self.device())),
        };
        scatter(ScatterMode::Add, &Tensor::full([size], 0, dtype, self.device()), 0, &index, &source)
    }

    /// Differences of neighbours along `dim`, `n` times, after `prepend` and before `append`.
    #[op(with(dim = i64), default(n = 1, dim = -1))]
    pub fn diff(
        &self,
        n: usize,
        dim: impl IntoDim,
        prepend: Option<&Tensor>,
        append: Option<&Tensor>,
    ) -> Result<Tensor> {
        let dim = resolve_dim("diff", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            return Err(Error::shape("diff", "needs at least one dim, got []"));
        }
        if n == 0 {
            return Ok(self.clone());
        }
        let parts: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
        let mut y = if parts.len() > 1 { Tensor::try_cat(&parts, dim)? } else { self.clone() };
        for _ in 0..n {
            let size = y.shape()[dim];
            if size < 2 {
                return y.try_narrow(dim, 0, 0);
            }
            let (next, own) = (y.try_narrow(dim, 1, size - 1)?, y.try_narrow(dim, 0, size - 1)?);
            y = if y.dtype() == DType::Bool { next.try_logical_xor(&own)? } else { next.try_sub(own)? };
        }
        Ok(y)
    }

    /// Covariances of the rows of `[variables, observations]`; of a single row, its variance.
    #[op(call = call_cov)]
    pub fn cov(&self, correction: f64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
        cov(self, correction, fweights, aweights)
    }

    /// Correlations of the rows of `[variables, observations]`.
    #[op]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let cov = self.try_cov(1.0, None, None)?;
        if cov.rank() == 0 {
            return cov.try_div(&cov);
        }
        let deviation = cov.try_diagonal(0, 0, 1)?.try_sqrt()?;
        let scaled = cov.try_div(deviation.try_unsqueeze(1)?)?.try_div(&deviation)?;
        scaled.try_clamp(Some(-1.0), Some(1.0))
    }

    /// The integral along `dim` by trapezoids, at places `x` or at distance `dx`.
    #[op(rename(self = "y"), torch = ["trapezoid", "trapz"], default(dim = -1, dx = 1.0))]
    pub fn trapezoid(&self, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
        trapezoids(self, x, dim, dx)?.try_sum(dim)
    }

    /// The running integral along `dim` by trapezoids.
    #[op(rename(self = "y"), default(dim = -1, dx = 1.0))]
    pub fn cumulative_trapezoid(&self, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
        trapezoids(self, x, dim, dx)?.try_cumsum(dim)
    }

    /// Summed to a shape that broadcasts to this one's. `bool` and integers sum as `i64`.
    #[op]
    pub fn sum_to_size(&self, size: &[usize]) -> Result<Tensor> {
        let target = Shape::from(size);
        if fornax_ir::broadcast_shapes("sum_to_size", &target, self.shape())? != *self.shape() {
            return Err(Error::shape("sum_to_size", format!("{target} does not expand to {}", self.shape())));
        }
        let dims = crate::primitive::broadcast_dims(&target, self.shape());
        let summed = match (target.rank(), dims.is_empty()) {
            (0, _) => return self.try_sum(()),
            (_, true) => self.clone(),
            (_, false) => self.try_sum(keepdim(dims))?,
        };
        reshape(&summed, &target)
    }

    /// Slices along `dim` scaled down to a p-norm of at most `maxnorm`.
    #[op]
    pub fn renorm(&self, p: f64, dim: i64, maxnorm: f64) -> Result<Tensor> {
        let axis = resolve_dim("renorm", dim, self.shape())?;
        let others: Vec<usize> = (0..self.rank()).filter(|&other| other != axis).collect();
        let norm = vector_norm(self, p, &keepdim(others))?;
        let too_long = norm.try_gt(maxnorm)?;
        let safe = too_long.try_where_(norm.try_add(1e-7)?, 1.0)?.try_to_dtype(self.dtype())?;
        let scale = too_long.try_where_(safe.try_reciprocal()?.try_mul(maxnorm)?, 1.0)?;
        self.try_mul(scale.try_to_dtype(self.dtype())?)
    }
}

/// How a quantile between two elements is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// On the line between them.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The nearer one; the one with even position of two equally near.
    Nearest,
    /// Half way between.
    Midpoint,
}

/// Norms of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixNorm {
    /// Root of the sum of squares.
    Frobenius,
    /// Sum of the singular values.
    Nuclear,
    /// Largest (1) or smallest (−1) sum of a column, the same of rows (±∞), largest (2) or smallest (−2) singular value.
    Order(f64),
}

/// Mean and variance, in `f32` for halves.
#[track_caller]
fn moments(op: &str, x: &Tensor, dims: &ReduceDims, correction: f64) -> Result<(Tensor, Tensor)> {
    if !x.dtype().is_float() {
        return Err(Error::dtype(op, format!("needs a float, got {}", x.dtype())));
    }
    let axes = dims.resolve(op, x.shape())?;
    let count: usize = axes.iter().map(|&dim| x.shape()[dim]).product();
    let wide = cast(x, x.dtype().compute())?;
    let sum = |x: &Tensor| reduce(ReduceOp::Sum, x, &axes);
    let mean = sum(&wide)?.try_div(count as f64)?;
    let squares = sum(&wide.try_sub(&mean)?.try_square()?)?;
    let var = squares.try_div((count as f64 - correction).max(0.0))?;
    Ok((squeeze_reduced(&mean, &axes, dims.keepdim)?, squeeze_reduced(&var, &axes, dims.keepdim)?))
}

/// The square root; where it is 0 the gradient is 0, so that constant values do not spoil a model with NaN.
#[track_caller]
fn root(var: &Tensor) -> Tensor {
    with_rule(var, var.detach().sqrt(), Reads::Output, |y, dy| {
        let slope = dy / (y * 2.0);
        y.eq(0.0).where_(0.0, slope).to_dtype(dy.dtype())
    })
}

/// Without a dim, the last.
fn last_by_default(dims: ReduceDims) -> ReduceDims {
    if dims.dims.is_empty() { ReduceDims { dims: vec![-1], ..dims } } else { dims }
}

/// Which of the sorted elements is meant.
#[derive(Clone, Copy)]
enum Rank {
    Median,
    NanMedian,
    At(usize),
}

/// An element by its rank, and where it is. Without a dim, of all elements.
#[track_caller]
fn ranked(op: &str, x: &Tensor, dim: &ReduceDims, rank: Rank) -> Result<(Tensor, Tensor)> {
    let (x, named, keep) = match dim.dims[..] {
        [] => (x.try_reshape([-1])?, 0, false),
        [named] => (x.clone(), named, dim.keepdim),
        _ => return Err(Error::argument(op, "takes one dim")),
    };
    let axis = resolve_dim(op, named, x.shape())?;
    if x.rank() == 0 {
        return Ok((x.clone(), Tensor::full((), 0, DType::I64, x.device())));
    }
    let size = x.shape()[axis];
    if size == 0 {
        return Err(Error::shape(op, format!("dim {axis} of {} holds no elements", x.shape())));
    }
    let order = argsort(&x.detach(), axis, false)?;
    let counted = x.shape().with_dim(axis, 1);
    let middle = |count: &Tensor| count.try_sub(1)?.try_div_floor(2);
    let place = match rank {
        Rank::At(k) if k == 0 || k > size => {
            return Err(Error::argument(op, format!("k = {k} is not between 1 and {size}")));
        }
        Rank::At(k) => Tensor::full(&counted, k - 1, DType::I64, x.device()),
        Rank::Median | Rank::NanMedian => {
            let whole = Tensor::full(&counted, size, DType::I64, x.device());
            if x.dtype().is_float() {
                let count = x.detach().try_isnan()?.try_logical_not()?.try_sum(keepdim(axis))?;
                let by_count = middle(&count)?.try_clamp_min(0)?;
                if matches!(rank, Rank::NanMedian) {
                    by_count
                } else {
                    // The first NaN stands behind all numbers.
                    count.try_lt(&whole)?.try_where_(&count, middle(&whole)?)?
                }
            } else {
                middle(&whole)?
            }
        }
    };
    let index = gather(&order, axis, &place)?;
    let values = gather(&x, axis, &index)?;
    Ok((squeeze_reduced(&values, &[axis], keep)?, squeeze_reduced(&index, &[axis], keep)?))
}

#[track_caller]
fn mode(x: &Tensor, dim: &ReduceDims) -> Result<(Tensor, Tensor)> {
    let [named] = dim.dims[..] else { return Err(Error::argument("mode", "takes one dim")) };
    let axis = resolve_dim("mode", named, x.shape())?;
    if x.rank() == 0 {
        return Ok((x.clone(), Tensor::full((), 0, DType::I64, x.device())));
    }
    let value = x.detach();
    let size = x.shape()[axis];
    let order = argsort(&value, axis, false)?;
    let sorted = gather(&value, axis, &order)?;
    // The length of the run that ends at each place of the sorted row: its position less that of the run's start.
    let position =
        crate::primitive::source(fornax_ir::Op::Iota { dim: axis }, DType::I64, x.shape().clone(), x.device());
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis] = (1, 0);
    let before = sorted.try_narrow(axis, 0, size.saturating_sub(1))?.pad_dims(&padding, 0);
    let starts = sorted.try_ne(&before)?.try_logical_or(&position.try_eq(0)?)?;
    let start = scan(ScanOp::Max, &starts.try_where_(&position, 0)?, axis)?;
    let length = position.try_sub(&start)?;
    let best = reduce(ReduceOp::ArgMax, &length, &[axis])?;
    let index = gather(&order, axis, &best)?;
    let values = gather(x, axis, &index)?;
    Ok((squeeze_reduced(&values, &[axis], dim.keepdim)?, squeeze_reduced(&index, &[axis], dim.keepdim)?))
}

#[track_caller]
fn quantile(x: &Tensor, q: &Tensor, dims: &ReduceDims, how: Interpolation, skip_nan: bool) -> Result<Tensor> {
    let (flat, named) = match dims.dims[..] {
        [] => (x.try_reshape([-1])?, 0),
        [named] => (if x.rank() == 0 { x.try_reshape([1])? } else { x.clone() }, named),
        _ => return Err(Error::argument("quantile", "takes one dim")),
    };
    let axis = resolve_dim("quantile", named, flat.shape())?;
    let last = flat.rank() - 1;
    let moved = flat.try_transpose(axis, last)?;
    let size = moved.shape()[last];
    if size == 0 || q.rank() > 1 {
        return Err(Error::shape(
            "quantile",
            format!("of {} at {}: needs elements, and q of rank 0 or 1", x.shape(), q.shape()),
        ));
    }
    let order = argsort(&moved.detach(), last, false)?;
    let sorted = gather(&moved, last, &order)?;
    let nan_count = moved.detach().try_isnan()?.try_sum(keepdim(last))?;
    let share = q.try_to_dtype(DType::F64)?.try_reshape([-1])?;
    let count = share.numel();
    let full = moved.shape().with_dim(last, count);
    let top = if skip_nan {
        let left = nan_count.try_neg()?.try_add(size as i64 - 1)?.try_clamp_min(0)?;
        left.try_to_dtype(DType::F64)?
    } else {
        Tensor::full(nan_count.shape(), size as f64 - 1.0, DType::F64, x.device())
    };
    let place = share.try_mul(&top)?.try_expand(&full)?;
    let (low, high) = (place.try_floor()?, place.try_ceil()?);
    let pick = |place: &Tensor| gather(&sorted, last, &place.try_to_dtype(DType::I64)?);
    let value = match how {
        Interpolation::Lower => pick(&low)?,
        Interpolation::Higher => pick(&high)?,
        Interpolation::Nearest => pick(&place.try_round()?)?,
        Interpolation::Midpoint => pick(&low)?.try_lerp(&pick(&high)?, 0.5)?,
        Interpolation::Linear => {
            let weight = place.try_sub(&low)?.try_to_dtype(x.dtype())?;
            pick(&low)?.try_lerp(&pick(&high)?, &weight)?
        }
    };
    let value =
        if skip_nan { value } else { nan_count.try_gt(0)?.try_where_(f64::NAN, &value)?.try_to_dtype(x.dtype())? };
    // [rows…, q] with the reduced dim at the end: put it back in place, then the quantiles in front.
    let mut y = value.try_transpose(axis, last)?; // [.., q, ..]
    let mut perm: Vec<usize> = (0..y.rank()).collect();
    perm.remove(axis);
    perm.insert(0, axis);
    y = permute(&y, &perm)?;
    if dims.keepdim {
        let kept: Shape = match dims.dims[..] {
            [] => [count].into_iter().chain(core::iter::repeat_n(1, x.rank())).collect(),
            _ => [count]
                .into_iter()
                .chain(x.shape().iter().enumerate().map(|(dim, &size)| if dim == axis { 1 } else { size }))
                .collect(),
        };
        y = reshape(&y, &kept)?;
    }
    if q.rank() == 0 { y.try_squeeze(0) } else { Ok(y) }
}

#[track_caller]
fn extreme(op: &str, scan_op: ScanOp, x: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    let axis = resolve_dim(op, dim, x.shape())?;
    if x.rank() == 0 {
        return Ok((x.clone(), Tensor::full((), 0, DType::I64, x.device())));
    }
    let value = x.detach();
    let numeric = if value.dtype() == DType::Bool { cast(&value, DType::U8)? } else { value.clone() };
    let running = scan(scan_op, &numeric, axis)?;
    let position =
        crate::primitive::source(fornax_ir::Op::Iota { dim: axis }, DType::I64, x.shape().clone(), x.device());
    let hit = numeric.try_eq(&running)?.try_logical_or(&numeric.try_isnan()?)?;
    let index = scan(ScanOp::Max, &hit.try_where_(&position, 0)?, axis)?;
    Ok((gather(x, axis, &index)?, index))
}

#[track_caller]
fn vector_norm(x: &Tensor, p: f64, dims: &ReduceDims) -> Result<Tensor> {
    let x = float(x)?;
    let axes = dims.resolve("vector_norm", x.shape())?;
    let wide = cast(&x, x.dtype().compute())?;
    // The reduced dims as one, at the end.
    let kept: Dims = (0..x.rank()).filter(|dim| !axes.contains(dim)).collect();
    let perm: Dims = kept.iter().chain(&axes).copied().collect();
    let shape: Shape =
        kept.iter().map(|&dim| x.shape()[dim]).chain([axes.iter().map(|&dim| x.shape()[dim]).product()]).collect();
    let flat = reshape(&permute(&wide, &perm)?, &shape)?;
    let norm = if p == f64::NEG_INFINITY {
        flat.try_abs()?.try_amin(-1)?
    } else if p < 0.0 {
        flat.try_abs()?.try_pow(p)?.try_sum(-1)?.try_pow(1.0 / p)?
    } else {
        p_norm(&flat, p)?
    };
    let norm = cast(&norm, x.dtype())?;
    if !dims.keepdim {
        return Ok(norm);
    }
    let shape: Shape = (0..x.rank()).map(|dim| if axes.contains(&dim) { 1 } else { x.shape()[dim] }).collect();
    reshape(&norm, &shape)
}

#[track_caller]
fn matrix_norm(x: &Tensor, order: MatrixNorm, dims: [i64; 2], keep: bool) -> Result<Tensor> {
    let op = "matrix_norm";
    let (row, column) = (resolve_dim(op, dims[0], x.shape())?, resolve_dim(op, dims[1], x.shape())?);
    if row == column || x.rank() < 2 {
        return Err(Error::argument(op, format!("dims {dims:?} of {} do not make a matrix", x.shape())));
    }
    let mut perm: Dims = (0..x.rank()).filter(|&dim| dim != row && dim != column).collect();
    perm.extend([row, column]);
    let matrix = permute(x, &perm)?;
    let norm = match order {
        MatrixNorm::Frobenius => vector_norm(&matrix, 2.0, &[-2, -1].into())?,
        MatrixNorm::Nuclear => matrix.try_svdvals()?.try_sum(-1)?,
        MatrixNorm::Order(p) => {
            let of = |sums: Tensor| match sums.shape().last() {
                // A matrix without elements has norm 0.
                Some(0) if p > 0.0 => sums.try_sum(-1),
                _ if p > 0.0 => sums.try_amax(-1),
                _ => sums.try_amin(-1),
            };
            match libm::fabs(p) {
                1.0 => of(matrix.try_abs()?.try_sum(-2)?)?,
                2.0 => of(matrix.try_svdvals()?)?,
                f64::INFINITY => of(matrix.try_abs()?.try_sum(-1)?)?,
                _ => return Err(Error::argument(op, format!("there is no norm of order {p}"))),
            }
        }
    };
    if !keep {
        return Ok(norm);
    }
    let shape: Shape = (0..x.rank()).map(|dim| if dim == row || dim == column { 1 } else { x.shape()[dim] }).collect();
    reshape(&norm, &shape)
}

#[track_caller]
fn cov(x: &Tensor, correction: f64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
    if x.rank() > 2 {
        return Err(Error::shape("cov", format!("{} has more than two dims", x.shape())));
    }
    let rows = if x.rank() < 2 { x.try_reshape([1, -1])? } else { x.clone() };
    let rows = float(&rows)?;
    let count = rows.shape()[1];
    let weights = match (fweights, aweights) {
        (None, None) => None,
        (Some(f), None) => Some(f.try_to_dtype(rows.dtype())?),
        (None, Some(a)) => Some(a.try_to_dtype(rows.dtype())?),
        (Some(f), Some(a)) => Some(f.try_to_dtype(rows.dtype())?.try_mul(a)?),
    };
    let total = match &weights {
        Some(weights) => weights.try_sum(())?,
        None => Tensor::full((), count as f64, rows.dtype(), x.device()),
    };
    let weighted = match &weights {
        Some(weights) => rows.try_mul(weights)?,
        None => rows.clone(),
    };
    let mean = weighted.try_sum(keepdim(1))?.try_div(&total)?;
    let centred = rows.try_sub(&mean)?;
    let scaled = match &weights {
        Some(weights) => centred.try_mul(weights)?,
        None => centred.clone(),
    };
    let norm = match (&weights, aweights) {
        (Some(weights), Some(a)) if correction != 0.0 => {
            let share = weights.try_mul(a)?.try_sum(())?.try_div(&total)?.try_mul(correction)?;
            total.try_sub(share)?
        }
        _ => total.try_sub(correction)?,
    };
    let norm = norm.try_clamp_min(0.0)?;
    let cov = scaled.try_matmul(&centred.try_t()?)?.try_div(norm)?;
    cov.try_squeeze(())
}

/// The areas between neighbours.
#[track_caller]
fn trapezoids(y: &Tensor, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
    let axis = resolve_dim("trapezoid", dim, y.shape())?;
    let size = y.shape().get(axis).copied().unwrap_or(1);
    let pair = size.saturating_sub(1);
    let heights =
        y.try_narrow(axis, (size - pair) as i64, pair)?.try_add(y.try_narrow(axis, 0, pair)?)?.try_div(2.0)?;
    let Some(x) = x else { return heights.try_mul(dx) };
    let x = if x.rank() == 1 {
        let mut shape = Shape::from(Dims::from_elem(1, y.rank()));
        shape.dims_mut()[axis] = x.numel();
        reshape(x, &shape)?
    } else {
        x.clone()
    };
    let x_axis = resolve_dim("trapezoid", axis as i64 - y.rank() as i64, x.shape())?;
    heights.try_mul(x.try_diff(1, x_axis, None, None)?)
}

type Called = Result<Vec<Tensor>>;

/// PyTorch's `unbiased` and `correction`.
fn correction(args: &Args) -> Result<f64> {
    let unbiased = args.get::<Option<bool>>("unbiased")?;
    let given = args.get::<Option<f64>>("correction")?;
    Ok(given.unwrap_or(match unbiased {
        Some(false) => 0.0,
        _ => 1.0,
    }))
}

fn spread(args: &Args) -> Result<(Tensor, ReduceDims, f64)> {
    Ok((args.get("input")?, args.get("dim")?, correction(args)?))
}

fn call_var(args: &Args) -> Called {
    let (x, dims, correction) = spread(args)?;
    Ok(vec![x.try_var(dims, correction)?])
}

fn call_std(args: &Args) -> Called {
    let (x, dims, correction) = spread(args)?;
    Ok(vec![x.try_std(dims, correction)?])
}

fn call_var_mean(args: &Args) -> Called {
    let (x, dims, correction) = spread(args)?;
    let (var, mean) = x.try_var_mean(dims, correction)?;
    Ok(vec![var, mean])
}

fn call_std_mean(args: &Args) -> Called {
    let (x, dims, correction) = spread(args)?;
    let (std, mean) = x.try_std_mean(dims, correction)?;
    Ok(vec![std, mean])
}

fn typed(args: &Args) -> Result<Tensor> {
    let input = args.get::<Tensor>("input")?;
    match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => cast(&input, dtype),
        None => Ok(input),
    }
}

fn call_nansum(args: &Args) -> Called {
    let sum = typed(args)?.try_nansum(args.get::<ReduceDims>("dim")?)?;
    Ok(vec![cast(&sum, args.get::<Option<DType>>("dtype")?.unwrap_or(sum.dtype()))?])
}

fn call_nanmean(args: &Args) -> Called {
    Ok(vec![typed(args)?.try_nanmean(args.get::<ReduceDims>("dim")?)?])
}

/// The value, and its place if a dim was named.
fn value_and_place(args: &Args, (value, place): (Tensor, Tensor)) -> Called {
    Ok(if args.has("dim") { vec![value, place] } else { vec![value] })
}

fn call_median(args: &Args) -> Called {
    value_and_place(args, args.get::<Tensor>("input")?.try_median(args.get::<ReduceDims>("dim")?)?)
}

fn call_nanmedian(args: &Args) -> Called {
    value_and_place(args, args.get::<Tensor>("input")?.try_nanmedian(args.get::<ReduceDims>("dim")?)?)
}

impl FromArg for Interpolation {
    fn from_arg(arg: &Arg) -> Option<Interpolation> {
        Some(match Option::<String>::from_arg(arg)?.as_deref() {
            None | Some("linear") => Interpolation::Linear,
            Some("lower") => Interpolation::Lower,
            Some("higher") => Interpolation::Higher,
            Some("nearest") => Interpolation::Nearest,
            Some("midpoint") => Interpolation::Midpoint,
            Some(_) => return None,
        })
    }
}

fn shares(args: &Args) -> Result<(Tensor, Tensor)> {
    let x = args.get::<Tensor>("input")?;
    let q = args.get::<Tensor>("q")?;
    Ok((x, q))
}

fn call_quantile(args: &Args) -> Called {
    let (x, q) = shares(args)?;
    Ok(vec![x.try_quantile(&q, args.get::<ReduceDims>("dim")?, args.get("interpolation")?)?])
}

fn call_nanquantile(args: &Args) -> Called {
    let (x, q) = shares(args)?;
    Ok(vec![x.try_nanquantile(&q, args.get::<ReduceDims>("dim")?, args.get("interpolation")?)?])
}

fn call_cov(args: &Args) -> Called {
    let (f, a) = (args.get::<Option<Tensor>>("fweights")?, args.get::<Option<Tensor>>("aweights")?);
    let correction = args.get::<Option<f64>>("correction")?.unwrap_or(1.0);
    Ok(vec![args.get::<Tensor>("input")?.try_cov(correction, f.as_ref(), a.as_ref())?])
}

fn call_vector_norm(args: &Args) -> Called {
    let x = args.get::<Option<Tensor>>("x")?.map_or_else(|| typed(args), Ok)?;
    let x = match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => cast(&x, dtype)?,
        None => x,
    };
    let p = args.get::<Option<f64>>("ord")?.unwrap_or(2.0);
    Ok(vec![x.try_vector_norm(p, args.get::<ReduceDims>("dim")?)?])
}

fn order(arg: &Arg) -> Option<MatrixNorm> {
    match arg {
        Arg::Str(name) if name == "fro" => Some(MatrixNorm::Frobenius),
        Arg::Str(name) if name == "nuc" => Some(MatrixNorm::Nuclear),
        Arg::None => Some(MatrixNorm::Frobenius),
        arg => f64::from_arg(arg).map(MatrixNorm::Order),
    }
}

fn call_matrix_norm(args: &Args) -> Called {
    let x = match args.get::<Option<Tensor>>("A")? {
        Some(x) => x,
        None => typed(args)?,
    };
    let order = order(&args.get::<Arg>("ord")?).ok_or_else(|| Error::argument("matrix_norm", "unknown order"))?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?.unwrap_or_else(|| vec![-2, -1]);
    let [row, column] = dims[..] else { return Err(Error::argument("matrix_norm", "takes two dims")) };
    Ok(vec![x.try_matrix_norm(order, [row, column], args.get::<Option<bool>>("keepdim")?.unwrap_or(false))?])
}

/// `torch.norm` and `torch.linalg.norm`: of vectors or matrices, as the order and the number of dims say.
fn any_norm(args: &Args, name: &str, flat_by_default: bool) -> Called {
    let x = typed(args)?;
    let given = args.get::<Arg>(name)?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?;
    let keep = args.get::<Option<bool>>("keepdim")?.unwrap_or(false);
    let is_named = matches!(given, Arg::Str(_));
    let as_matrix = match &dims {
        Some(dims) if dims.len() == 2 => is_named || (!matches!(given, Arg::None) && !flat_by_default),
        Some(_) => false,
        None => {
            x.rank() == 2
                && ((is_named && !matches!(&given, Arg::Str(s) if s == "fro"))
                    || (!matches!(given, Arg::None) && !flat_by_default))
        }
    };
    if as_matrix {
        let order = order(&given).ok_or_else(|| Error::argument("norm", "unknown order"))?;
        let dims = dims.unwrap_or_else(|| vec![-2, -1]);
        return Ok(vec![x.try_matrix_norm(order, [dims[0], dims[1]], keep)?]);
    }
    let p = match &given {
        Arg::None | Arg::Str(_) => 2.0,
        arg => f64::from_arg(arg).ok_or_else(|| Error::argument("norm", "unknown order"))?,
    };
    Ok(vec![x.try_vector_norm(p, ReduceDims { dims: dims.unwrap_or_default(), keepdim: keep })?])
}

#[ops(group = "reduce", records = NORMS)]
impl Tensor {
    /// The p-norm over `dims` as one vector: [`Tensor::vector_norm`] under PyTorch's older name.
    #[op(torch = ["norm", "norm.fro", "norm.nuc", "norm.inf"], call = call_norm)]
    pub fn norm(&self, p: f64, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        vector_norm(self, p, &dims.into())
    }

    /// A norm of vectors (one dim), of matrices (two dims), or, without dims, of all elements as one vector.
    #[op(torch = ["linalg.norm"], call = call_linalg_norm)]
    pub fn linalg_norm(&self, order: MatrixNorm, dims: &[i64]) -> Result<Tensor> {
        match (dims, order) {
            (&[row, column], _) => self.try_matrix_norm(order, [row, column], false),
            (_, MatrixNorm::Order(p)) => vector_norm(self, p, &dims.into()),
            (_, MatrixNorm::Frobenius) => vector_norm(self, 2.0, &dims.into()),
            (_, MatrixNorm::Nuclear) => Err(Error::argument("linalg_norm", "the nuclear norm is one of matrices")),
        }
    }

    /// Second-order accurate derivatives along `dims` of values at places `spacing` apart.
    #[op(call = call_gradient)]
    pub fn gradient(&self, spacing: f64, dims: &[i64]) -> Result<Vec<Tensor>> {
        dims.iter().map(|&dim| derivative(self, &Spacing::Even(spacing), dim, 1)).collect()
    }
}

fn call_norm(args: &Args) -> Called {
    any_norm(args, "p", true)
}

fn call_linalg_norm(args: &Args) -> Called {
    any_norm(args, "ord", false)
}

/// Where values stand along a dim.
enum Spacing {
    /// So far apart.
    Even(f64),
    /// At these places.
    Places(Tensor),
}

#[track_caller]
fn derivative(x: &Tensor, spacing: &Spacing, dim: i64, edge_order: i64) -> Result<Tensor> {
    let axis = resolve_dim("gradient", dim, x.shape())?;
    let n = x.shape()[axis];
    if n < edge_order as usize + 1 {
        return Err(Error::shape("gradient", format!("dim {axis} of {} is too short", x.shape())));
    }
    let x = float(x)?;
    let part = |start: usize, count: usize| x.try_narrow(axis, start as i64, count);
    // Distances between neighbours, shaped to stand along the dim.
    let steps = |places: &Tensor| -> Result<Tensor> {
        let mut shape = Shape::from(Dims::from_elem(1, x.rank()));
        shape.dims_mut()[axis] = n - 1;
        cast(&places.try_diff(1, 0, None, None)?, x.dtype())?.try_reshape(shape)
    };
    let distances = match spacing {
        Spacing::Even(distance) => {
            let mut shape = Shape::from(Dims::from_elem(1, x.rank()));
            shape.dims_mut()[axis] = n - 1;
            Tensor::full(shape, *distance, x.dtype(), x.device())
        }
        Spacing::Places(places) => steps(places)?,
    };
    let step = |i: usize| distances.try_narrow(axis, i as i64, 1);
    let slope = |from: usize, i: usize| part(from + 1, 1)?.try_sub(part(from, 1)?)?.try_div(step(i)?);
    let mut pieces = Vec::new();
    let edge = |near: [usize; 3], first: usize, second: usize, sign: f64| -> Result<Tensor> {
        let (d1, d2) = (step(first)?, step(second)?);
        let sum = d1.try_add(&d2)?;
        let a = d1.try_mul(2.0)?.try_add(&d2)?.try_div(d1.try_mul(&sum)?)?.try_neg()?;
        let b = sum.try_div(d1.try_mul(&d2)?)?;
        let c = d1.try_div(d2.try_mul(&sum)?)?.try_neg()?;
        let value = part(near[0], 1)?
            .try_mul(a)?
            .try_add(part(near[1], 1)?.try_mul(b)?)?
            .try_add(part(near[2], 1)?.try_mul(c)?)?;
        value.try_mul(sign)
    };
    pieces.push(if edge_order == 2 { edge([0, 1, 2], 0, 1, 1.0)? } else { slope(0, 0)? });
    if n > 2 {
        let (before, after) = (distances.try_narrow(axis, 0, n - 2)?, distances.try_narrow(axis, 1, n - 2)?);
        let sum = before.try_add(&after)?;
        let a = after.try_div(before.try_mul(&sum)?)?.try_neg()?;
        let b = after.try_sub(&before)?.try_div(before.try_mul(&after)?)?;
        let c = before.try_div(after.try_mul(&sum)?)?;
        let inner =
            part(0, n - 2)?.try_mul(a)?.try_add(part(1, n - 2)?.try_mul(b)?)?.try_add(part(2, n - 2)?.try_mul(c)?)?;
        pieces.push(inner);
    }
    pieces.push(if edge_order == 2 { edge([n - 1, n - 2, n - 3], n - 2, n - 3, -1.0)? } else { slope(n - 2, n - 2)? });
    Tensor::try_cat(&pieces.iter().collect::<Vec<_>>(), axis)
}

fn call_gradient(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    let edge_order = args.get::<Option<i64>>("edge_order")?.unwrap_or(1);
    let spacing: Vec<Arg> = match args.get::<Arg>("spacing")? {
        Arg::None => vec![Arg::Float(1.0)],
        Arg::List(list) => list,
        one => vec![one],
    };
    let mut slopes = Vec::new();
    for (i, &dim) in dims.iter().enumerate() {
        let spacing = match &spacing[i.min(spacing.len() - 1)] {
            Arg::Tensor(places) if places.rank() == 1 => Spacing::Places(places.clone()),
            Arg::List(places) => {
                let places: Vec<f64> = places.iter().filter_map(f64::from_arg).collect();
                let count = places.len();
                Spacing::Places(Tensor::from_vec(places, [count], x.device()))
            }
            number => Spacing::Even(f64::from_arg(number).unwrap_or(1.0)),
        };
        slopes.push(derivative(&x, &spacing, dim, edge_order)?);
    }
    Ok(slopes)
}
