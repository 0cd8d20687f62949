//! Reductions: over dims, `()` for all, `keepdim(…)` to keep them with size 1.

use super::elementwise::float;
use crate::autodiff::{Reads, with_rule};
use crate::dims::{IntoDim, ReduceDims, resolve_dim};
use crate::primitive::{cast, gather, reduce, reshape};
use crate::{DType, Result, Shape, Tensor};
use alloc::vec::Vec;
use fornax_ir::{Dims, ReduceOp};
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
    /// Sum over `dims`; 0 over nothing. `bool` and integers sum as `i64`.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), call = call_sum, autocast = high)]
    pub fn sum(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.clone() } else { cast(self, DType::I64)? };
        x.reduce_dims(ReduceOp::Sum, &dims.into(), "sum")
    }

    /// Product over `dims`; 1 over nothing. `bool` and integers multiply as `i64`.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), call = call_prod, autocast = high)]
    pub fn prod(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.clone() } else { cast(self, DType::I64)? };
        x.reduce_dims(ReduceOp::Prod, &dims.into(), "prod")
    }

    /// Mean over `dims`; NaN over nothing. Halves accumulate in `f32`.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), call = call_mean)]
    pub fn mean(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let dims = dims.into();
        let count: usize = dims.resolve("mean", self.shape())?.iter().map(|&dim| self.shape()[dim]).product();
        if !self.dtype().is_float() {
            let message = alloc::format!("needs a float, got {}", self.dtype());
            return Err(crate::Error::dtype("mean", message).help("convert with `to_dtype`"));
        }
        // A sum of halves may overflow where the mean does not.
        let wide = cast(self, self.dtype().compute())?;
        let sum = wide.reduce_dims(ReduceOp::Sum, &dims, "mean")?;
        cast(&sum.try_div(count as f64)?, self.dtype())
    }

    /// Largest over `dims`; NaN if there is one. Equal elements share the gradient.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), torch = ["amax", "max.reduction_no_dim"])]
    pub fn amax(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        self.reduce_dims(ReduceOp::Max, &dims.into(), "amax")
    }

    /// Smallest over `dims`; NaN if there is one. Equal elements share the gradient.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), torch = ["amin", "min.reduction_no_dim"])]
    pub fn amin(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        self.reduce_dims(ReduceOp::Min, &dims.into(), "amin")
    }

    /// Largest of `dim` and its position (`i64`): the first of equals, the first NaN if there is one.
    #[op(torch = ["max.reduction_with_dim", "max"], call = call_max)]
    pub fn max(&self, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        self.extreme(ReduceOp::ArgMax, &dim.into(), "max")
    }

    /// Smallest of `dim` and its position (`i64`): the first of equals, the first NaN if there is one.
    #[op(torch = ["min.reduction_with_dim", "min"], call = call_min)]
    pub fn min(&self, dim: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        self.extreme(ReduceOp::ArgMin, &dim.into(), "min")
    }

    /// Position (`i64`) of the largest element of `dim`: the first of equals, the first NaN if there is one.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn argmax(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        self.reduce_dims(ReduceOp::ArgMax, &dims.into(), "argmax")
    }

    /// Position (`i64`) of the smallest element of `dim`: the first of equals, the first NaN if there is one.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn argmin(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        self.reduce_dims(ReduceOp::ArgMin, &dims.into(), "argmin")
    }

    /// Whether all elements over `dims` are anything but zero; true over nothing.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn all(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        cast(self, DType::Bool)?.reduce_dims(ReduceOp::Min, &dims.into(), "all")
    }

    /// Whether any element over `dims` is anything but zero; false over nothing.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn any(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        cast(self, DType::Bool)?.reduce_dims(ReduceOp::Max, &dims.into(), "any")
    }

    /// `ln Σ eˣ` over `dims`, without overflow.
    #[op(with(dims = ReduceDims), rename(dims = "dim"), autocast = high)]
    pub fn logsumexp(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let x = float(self)?;
        let dims = dims.into();
        let axes = dims.resolve("logsumexp", x.shape())?;
        if x.numel() == 0 {
            return x.try_exp()?.try_sum(dims)?.try_log();
        }
        let result = log_sum_exp(&x.detach(), &axes)?;
        let kept = axes.clone();
        let result = with_rule(&x, result, Reads::Input, move |x, dy| {
            let total = match log_sum_exp(x, &kept) {
                Ok(total) => total,
                Err(error) => error.raise(),
            };
            // A row of −∞ has no way to go: its gradient is 0, not NaN.
            let empty = total.eq(f64::NEG_INFINITY);
            let share = (x - empty.where_(0.0, &total)).exp();
            dy * share.to_dtype(dy.dtype())
        });
        squeeze_reduced(&result, &axes, dims.keepdim)
    }
}

impl Tensor {
    #[track_caller]
    fn reduce_dims(&self, op: ReduceOp, dims: &ReduceDims, name: &str) -> Result<Tensor> {
        let axes = dims.resolve(name, self.shape())?;
        let reduced = reduce(op, self, &axes).map_err(|error| error.named(name))?;
        squeeze_reduced(&reduced, &axes, dims.keepdim)
    }

    #[track_caller]
    fn extreme(&self, op: ReduceOp, dim: &ReduceDims, name: &str) -> Result<(Tensor, Tensor)> {
        let [named] = dim.dims[..] else {
            return Err(crate::Error::argument(name, "takes one dim").help("use `amax` or `amin` for several"));
        };
        let axis = resolve_dim(name, named.into_dim(), self.shape())?;
        if self.rank() == 0 {
            return Ok((self.clone(), Tensor::full((), 0, DType::I64, self.device())));
        }
        let index = reduce(op, self, &[axis]).map_err(|error| error.named(name))?;
        let values = gather(self, axis, &index)?;
        Ok((squeeze_reduced(&values, &[axis], dim.keepdim)?, squeeze_reduced(&index, &[axis], dim.keepdim)?))
    }
}

/// `ln Σ eˣ` over `axes`, which stay with size 1.
#[track_caller]
fn log_sum_exp(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let wide = cast(x, x.dtype().compute())?;
    let peak = reduce(ReduceOp::Max, &wide, axes)?;
    // A row of infinities has no finite peak to subtract.
    let finite = peak.try_abs()?.try_lt(f64::INFINITY)?;
    let peak = finite.try_where_(&peak, 0.0)?;
    let sum = reduce(ReduceOp::Sum, &wide.try_sub(&peak)?.try_exp()?, axes)?;
    cast(&sum.try_log()?.try_add(&peak)?, x.dtype())
}

/// Without the reduced dims, unless they are kept.
#[track_caller]
pub(crate) fn squeeze_reduced(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    if keepdim {
        return Ok(x.clone());
    }
    let kept: Dims = (0..x.rank()).filter(|dim| !axes.contains(dim)).collect();
    reshape(x, &kept.iter().map(|&dim| x.shape()[dim]).collect::<Shape>())
}

/// PyTorch's `dtype` argument: the input is converted first.
pub(super) fn converted(args: &crate::ops::Args) -> Result<Tensor> {
    let input = args.get::<Tensor>("input")?;
    match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => cast(&input, dtype),
        None => Ok(input),
    }
}

fn call_sum(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let dtype = args.get::<Option<DType>>("dtype")?;
    let sum = converted(args)?.try_sum(args.get::<ReduceDims>("dim")?)?;
    Ok(alloc::vec![cast(&sum, dtype.unwrap_or(sum.dtype()))?])
}

fn call_prod(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let dtype = args.get::<Option<DType>>("dtype")?;
    let prod = converted(args)?.try_prod(args.get::<ReduceDims>("dim")?)?;
    Ok(alloc::vec![cast(&prod, dtype.unwrap_or(prod.dtype()))?])
}

/// `max` is three functions in PyTorch: of two tensors, over all elements, and along a dim.
fn call_max(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    if args.has("other") {
        return Ok(alloc::vec![x.try_maximum(&args.get::<Tensor>("other")?)?]);
    }
    if !args.has("dim") {
        return Ok(alloc::vec![x.try_amax(())?]);
    }
    let (values, indices) = x.try_max(args.get::<ReduceDims>("dim")?)?;
    Ok(alloc::vec![values, indices])
}

/// As [`call_max`].
fn call_min(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    if args.has("other") {
        return Ok(alloc::vec![x.try_minimum(&args.get::<Tensor>("other")?)?]);
    }
    if !args.has("dim") {
        return Ok(alloc::vec![x.try_amin(())?]);
    }
    let (values, indices) = x.try_min(args.get::<ReduceDims>("dim")?)?;
    Ok(alloc::vec![values, indices])
}

fn call_mean(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    Ok(alloc::vec![converted(args)?.try_mean(args.get::<ReduceDims>("dim")?)?])
}
