//! Order statistics: medians, quantiles, the most frequent value, running extremes.

use super::reduction::squeeze_reduced;
use crate::dims::{IntoDim, ReduceDims, resolve_dim};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{argsort, cast, gather, permute, reduce, reshape, scan};
use crate::{DType, Error, Result, Shape, Tensor, keepdim};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{ReduceOp, ScanOp};
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
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
    if !x.dtype().is_float() || !q.dtype().is_float() {
        return Err(Error::dtype("quantile", format!("needs floats, got {} at {}", x.dtype(), q.dtype())));
    }
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

/// The value, and its place if a dim was named.
fn value_and_place(args: &Args, (value, place): (Tensor, Tensor)) -> Result<Vec<Tensor>> {
    Ok(if args.has("dim") { vec![value, place] } else { vec![value] })
}

fn call_median(args: &Args) -> Result<Vec<Tensor>> {
    value_and_place(args, args.get::<Tensor>("input")?.try_median(args.get::<ReduceDims>("dim")?)?)
}

fn call_nanmedian(args: &Args) -> Result<Vec<Tensor>> {
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
    let q = match args.get::<Arg>("q")? {
        Arg::Int(q) => Tensor::full((), q, x.dtype(), x.device()),
        _ => args.get::<Tensor>("q")?,
    };
    Ok((x, q))
}

fn call_quantile(args: &Args) -> Result<Vec<Tensor>> {
    let (x, q) = shares(args)?;
    Ok(vec![x.try_quantile(&q, args.get::<ReduceDims>("dim")?, args.get("interpolation")?)?])
}

fn call_nanquantile(args: &Args) -> Result<Vec<Tensor>> {
    let (x, q) = shares(args)?;
    Ok(vec![x.try_nanquantile(&q, args.get::<ReduceDims>("dim")?, args.get("interpolation")?)?])
}
