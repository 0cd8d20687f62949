//! Copies in which some places hold something else: named by position, by index tensors or by a mask.

use super::indexing::{positions, scattered};
use crate::dims::{IntoDim, resolve_dim};
use crate::index::resolve_slice;
use crate::operand::{IntoOperand, Operand};
use crate::ops::Args;
use crate::primitive::{cast, expand, reshape, scatter, slice};
use crate::{DType, Error, Index, Result, Scalar, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, ScatterMode};
use fornax_macros::ops;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// A copy with `src` in the place of [`Tensor::select`].
    #[op(with(dim = i64))]
    pub fn select_scatter(&self, src: &Tensor, dim: impl IntoDim, index: i64) -> Result<Tensor> {
        let axis = resolve_dim("select_scatter", dim.into_dim(), self.shape())?;
        let Some(&size) = self.shape().get(axis) else {
            return Err(Error::shape("select_scatter", "a 0-d tensor has no slices"));
        };
        let at = if index < 0 { index + size as i64 } else { index };
        put_slice(self, &src.try_unsqueeze(axis)?, axis, at, at + 1, 1)
    }

    /// A copy with `src` in the place of the slice `start:end:step` of `dim`.
    #[op(call = call_slice_scatter)]
    pub fn slice_scatter(
        &self,
        src: &Tensor,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Result<Tensor> {
        let axis = resolve_dim("slice_scatter", dim, self.shape())?;
        let (first, count) = resolve_slice(self.shape()[axis], start, end, step)?;
        put_slice(self, src, axis, first as i64, first as i64 + count as i64 * step, step)
    }

    /// Where `mask` is true, the elements of `source` in order.
    #[op]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let shape = self.broadcast_shape(mask)?;
        let (x, mask) = (expand(self, &shape)?, expand(mask, &shape)?);
        if x.numel() == 0 {
            return Ok(x);
        }
        if source.dtype() != self.dtype() {
            let message = format!("self is {}, source is {}", self.dtype(), source.dtype());
            return Err(Error::dtype("masked_scatter", message));
        }
        if source.numel() == 0 {
            // Right only if the mask holds nowhere: reading position −1 is a fault otherwise.
            let nowhere = mask.try_where_(-1, 0)?.try_reshape([-1])?;
            let zero = Tensor::full([1], 0, self.dtype(), self.device());
            return mask.try_where_(zero.try_gather(0, &nowhere)?.try_reshape(&shape)?, &x);
        }
        let flat = mask.try_reshape([-1])?;
        // Where the mask holds, a source that is too short must be noticed.
        let place = flat.try_where_(flat.try_cumsum(0)?.try_sub(1)?, 0)?;
        let picked = source.try_reshape([-1])?.try_gather(0, &place)?.try_reshape(&shape)?;
        mask.try_where_(&picked, &x)
    }

    /// A copy in which `alpha · source` is added at the positions `index` (a list) of `dim`.
    #[op(with(dim = i64), default(alpha = Scalar::Int(1)))]
    pub fn index_add(&self, dim: impl IntoDim, index: &Tensor, source: &Tensor, alpha: Scalar) -> Result<Tensor> {
        let source = if alpha.to_f64() == 1.0 { source.clone() } else { source.try_mul(alpha)? };
        indexed("index_add", self, ScatterMode::Add, dim.into_dim(), index, &source)
    }

    /// A copy in which the positions `index` (a list) of `dim` hold `source`.
    #[op(with(dim = i64))]
    pub fn index_copy(&self, dim: impl IntoDim, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        indexed("index_copy", self, ScatterMode::Set, dim.into_dim(), index, source)
    }

    /// A copy in which the positions `index` (a list) of `dim` hold `value`.
    #[op(with(dim = i64, value = Operand))]
    pub fn index_fill(&self, dim: impl IntoDim, index: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let axis = resolve_dim("index_fill", dim.into_dim(), self.shape())?;
        let value = value.into_operand();
        if let Operand::Tensor(value) = &value
            && value.rank() > 0
        {
            return Err(Error::shape("index_fill", format!("value {} is not a single number", value.shape())));
        }
        let size = self.shape().get(axis).copied().unwrap_or(1);
        let index = index.try_lt(0)?.try_where_(index.try_add(size as i64)?, index)?;
        // By a mask: a position that is named twice is filled, and counts for the gradient, once.
        let mut shape = Shape::from(Dims::from_elem(1, self.rank().max(1)));
        shape.dims_mut()[axis] = size;
        let (none, all) = (
            Tensor::full(&shape, false, DType::Bool, self.device()),
            Tensor::full(shape.with_dim(axis, index.numel()), true, DType::Bool, self.device()),
        );
        let mask = indexed("index_fill", &none, ScatterMode::Set, axis as i64, &index, &all)?;
        self.try_masked_fill(&if self.rank() == 0 { mask.try_reshape(())? } else { mask }, value)
    }

    /// A copy in which the places that index tensors name hold `values`, or have them added.
    #[op(call = call_index_put)]
    pub fn index_put(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        index_put(self, indices, values, accumulate)
    }

    /// A copy in which the row-major places `index` hold `source`, or have it added.
    #[op(default(accumulate = false))]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        let n = self.numel() as i64;
        let index = index.try_reshape([-1])?;
        let index = index.try_lt(0)?.try_where_(index.try_add(n)?, &index)?;
        let mode = if accumulate { ScatterMode::Add } else { ScatterMode::Set };
        let flat = self.try_reshape([-1])?;
        scattered(&flat, mode, 0, &index, source.try_reshape([-1])?.into_operand())?.try_reshape(self.shape())
    }

    /// [`Tensor::scatter`] that combines what meets at a place; `include_self` counts what was there before.
    #[op(with(dim = i64), torch = ["scatter_reduce", "scatter_reduce.sum", "scatter_reduce.mean", "scatter_reduce.prod",
        "scatter_reduce.amax", "scatter_reduce.amin"], rename(how = "reduce"), default(include_self = true))]
    pub fn scatter_reduce(
        &self,
        dim: impl IntoDim,
        index: &Tensor,
        src: &Tensor,
        how: &str,
        include_self: bool,
    ) -> Result<Tensor> {
        scatter_reduce(self, dim.into_dim(), index, src, how, include_self)
    }

    /// [`Tensor::scatter_reduce`] at the positions `index` (a list) of `dim`.
    #[op(with(dim = i64), torch = ["index_reduce", "index_reduce.mean", "index_reduce.prod", "index_reduce.amax",
        "index_reduce.amin"], rename(how = "reduce"), default(include_self = true))]
    pub fn index_reduce(
        &self,
        dim: impl IntoDim,
        index: &Tensor,
        source: &Tensor,
        how: &str,
        include_self: bool,
    ) -> Result<Tensor> {
        let axis = resolve_dim("index_reduce", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            let source = source.try_reshape([-1])?;
            return scatter_reduce(&self.try_reshape([1])?, 0, &index.try_reshape([-1])?, &source, how, include_self)?
                .try_reshape(());
        }
        let along = stretched(index, self.shape(), axis)?;
        scatter_reduce(self, axis as i64, &along, source, how, include_self)
    }
}

/// `src` in the place of a slice of `dim`.
#[track_caller]
fn put_slice(x: &Tensor, src: &Tensor, axis: usize, start: i64, end: i64, distance: i64) -> Result<Tensor> {
    let n = x.shape().get(axis).copied().unwrap_or(0);
    let (first, count) = resolve_slice(n, Some(start), Some(end), distance)?;
    let expected = x.shape().with_dim(axis, count);
    if *src.shape() != expected {
        return Err(Error::shape("slice_scatter", format!("src {} is not {expected}", src.shape())));
    }
    if count == 0 {
        return Ok(x.clone());
    }
    let index =
        Tensor::try_arange(first as i64, first as i64 + count as i64 * distance, distance, DType::I64, x.device())?;
    indexed("slice_scatter", x, ScatterMode::Set, axis as i64, &index, &cast(src, x.dtype())?)
}

/// A list of positions along `axis`, repeated along all other dims of `shape`.
#[track_caller]
fn stretched(index: &Tensor, shape: &Shape, axis: usize) -> Result<Tensor> {
    let index = positions(index)?.try_reshape([-1])?;
    let mut column = Shape::from(Dims::from_elem(1, shape.rank()));
    column.dims_mut()[axis] = index.numel();
    expand(&reshape(&index, &column)?, &shape.with_dim(axis, index.numel()))
}

#[track_caller]
fn indexed(op: &str, x: &Tensor, mode: ScatterMode, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let axis = resolve_dim(op, dim, x.shape())?;
    if index.rank() > 1 {
        return Err(Error::shape(op, format!("index {} is not a list", index.shape())));
    }
    if x.rank() == 0 {
        let (flat, source) = (x.try_reshape([1])?, source.try_reshape([-1])?);
        return indexed(op, &flat, mode, 0, &index.try_reshape([-1])?, &source)?.try_reshape(());
    }
    let expected = x.shape().with_dim(axis, index.numel());
    let source = if source.rank() == 0 && x.rank() == 1 { source.try_reshape([1])? } else { source.clone() };
    if *source.shape() != expected {
        return Err(Error::shape(op, format!("source {} is not {expected}", source.shape())));
    }
    if source.dtype() != x.dtype() {
        return Err(Error::dtype(op, format!("self is {}, source is {}", x.dtype(), source.dtype())));
    }
    scatter(mode, x, axis, &stretched(index, x.shape(), axis)?, &source)
}

#[track_caller]
fn scatter_reduce(x: &Tensor, dim: i64, index: &Tensor, src: &Tensor, how: &str, include_self: bool) -> Result<Tensor> {
    let mode = match how {
        "sum" | "mean" => ScatterMode::Add,
        "prod" => ScatterMode::Mul,
        "amax" => ScatterMode::Max,
        "amin" => ScatterMode::Min,
        _ => return Err(Error::argument("scatter_reduce", format!("there is no reduction {how:?}"))),
    };
    let axis = resolve_dim("scatter_reduce", dim, x.shape())?;
    if x.rank() == 0 {
        let (x, index, src) = (x.try_reshape([1])?, index.try_reshape([-1])?, src.try_reshape([-1])?);
        return scatter_reduce(&x, 0, &index, &src, how, include_self)?.try_reshape(());
    }
    let index = positions(index)?;
    let starts = Dims::from_elem(0, src.rank());
    let src = slice(src, &starts, &vec![1; src.rank()], index.shape())?;
    let ones = Tensor::full(index.shape(), 1, DType::I64, x.device());
    let none = Tensor::full(x.shape(), 0, DType::I64, x.device());
    let hits = scatter(ScatterMode::Add, &none, axis, &index, &ones)?;
    let touched = hits.try_gt(0)?;
    let base = if include_self {
        x.clone()
    } else {
        let neutral = match (how, x.dtype().is_float()) {
            ("sum" | "mean", _) => Scalar::Int(0),
            ("prod", _) => Scalar::Int(1),
            ("amax", true) => Scalar::Float(f64::NEG_INFINITY),
            ("amin", true) => Scalar::Float(f64::INFINITY),
            ("amax", false) => Scalar::Int(i64::MIN),
            _ => Scalar::Int(i64::MAX),
        };
        touched.try_where_(Tensor::full(x.shape(), neutral, x.dtype(), x.device()), x)?
    };
    let combined = scatter(mode, &base, axis, &index, &src)?;
    if how != "mean" {
        return Ok(combined);
    }
    let count = if include_self { hits.try_add(1)? } else { hits.try_clamp_min(1)? };
    if x.dtype().is_float() {
        combined.try_div(count.try_to_dtype(x.dtype())?)
    } else {
        combined.try_div_floor(count.try_to_dtype(x.dtype())?)
    }
}

#[track_caller]
fn index_put(x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
    // The numbers of the elements, indexed the same way, are the places to write.
    let numbers = Tensor::try_arange(0, x.numel(), 1, DType::I64, x.device())?.try_reshape(x.shape())?;
    let entries: Vec<Index> = indices
        .iter()
        .map(|index| index.as_ref().map_or(Index::from(..), |index| Index::Tensor(index.clone())))
        .collect();
    let places = numbers.try_i(entries)?;
    let values = values.try_expand(places.shape())?;
    x.try_put(&places, &values, accumulate)
}

fn call_slice_scatter(args: &Args) -> Result<Vec<Tensor>> {
    let (x, src) = (args.get::<Tensor>("input")?, args.get::<Tensor>("src")?);
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    let distance = args.get::<Option<i64>>("step")?.unwrap_or(1);
    Ok(vec![x.try_slice_scatter(&src, dim, args.get("start")?, args.get("end")?, distance)?])
}

fn call_index_put(args: &Args) -> Result<Vec<Tensor>> {
    let indices = args.get::<Vec<Option<Tensor>>>("indices")?;
    let accumulate = args.get::<Option<bool>>("accumulate")?.unwrap_or(false);
    Ok(vec![args.get::<Tensor>("input")?.try_index_put(&indices, &args.get("values")?, accumulate)?])
}
