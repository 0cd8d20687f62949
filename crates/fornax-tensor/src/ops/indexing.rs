//! Reading and writing at indices, ordering, and running totals.

use crate::dims::{IntoDim, resolve_dim};
use crate::operand::{IntoOperand, Operand};
use crate::primitive::{self, argsort, cast, gather, scan, scatter, topk};
use crate::{DType, Error, Result, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{ScanOp, ScatterMode};
use fornax_macros::ops;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// `out[i, j, k] = self[i, index[i, j, k], k]` for `dim = 1`. `index` (`i32` or `i64`) is at most as large as this
    /// tensor in the other dims.
    #[op(with(dim = i64), torch = ["gather"])]
    pub fn gather(&self, dim: impl IntoDim, index: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("gather", dim.into_dim(), self.shape())?;
        let index = &positions(index)?;
        if index.numel() == 0 {
            return self.try_reshape([-1])?.try_narrow(0, 0, 0)?.try_reshape(index.shape());
        }
        if self.rank() == 0 || index.rank() == 0 {
            let flat = self.try_reshape([-1])?.try_gather(0, &index.try_reshape([-1])?)?;
            return flat.try_reshape(index.shape());
        }
        gather(self, dim, index)
    }

    /// The positions in `index` (a list) along `dim`.
    #[op(with(dim = i64))]
    pub fn index_select(&self, dim: impl IntoDim, index: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("index_select", dim.into_dim(), self.shape())?;
        if index.rank() > 1 {
            return Err(Error::shape("index_select", format!("index {} is not a list", index.shape())));
        }
        if self.rank() == 0 {
            return self.try_reshape([1])?.try_index_select(0, index)?.try_reshape(());
        }
        let index = positions(index)?.try_reshape([-1])?;
        // The index stands along `dim` and repeats along all others: read in place, not materialized.
        let mut column = fornax_ir::Shape::from(fornax_ir::Dims::from_elem(1, self.rank()));
        column.dims_mut()[dim] = index.numel();
        let shape = self.shape().with_dim(dim, index.numel());
        let index = primitive::expand(&primitive::reshape(&index, &column)?, &shape)?;
        gather(self, dim, &index).map_err(|error| error.named("index_select"))
    }

    /// A copy in which the places that `index` names along `dim` hold `src`; of several, the last stays.
    #[op(with(dim = i64, src = Operand), call = call_scatter)]
    pub fn scatter(&self, dim: impl IntoDim, index: &Tensor, src: impl IntoOperand) -> Result<Tensor> {
        scattered(self, ScatterMode::Set, dim.into_dim(), index, src.into_operand())
    }

    /// A copy in which `src` is added at the places that `index` names along `dim`.
    #[op(with(dim = i64, src = Operand))]
    pub fn scatter_add(&self, dim: impl IntoDim, index: &Tensor, src: impl IntoOperand) -> Result<Tensor> {
        scattered(self, ScatterMode::Add, dim.into_dim(), index, src.into_operand())
    }

    /// Sorted along `dim`, and where each element came from. Stable; NaN counts as larger than everything.
    #[op(with(dim = i64), call = call_sort)]
    pub fn sort(&self, dim: impl IntoDim, descending: bool) -> Result<(Tensor, Tensor)> {
        let dim = resolve_dim("sort", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            return Ok((self.clone(), Tensor::full((), 0, DType::I64, self.device())));
        }
        let order = argsort(&self.detach(), dim, descending)?;
        Ok((gather(self, dim, &order)?, order))
    }

    /// The positions that sort `dim`. Stable; NaN counts as larger than everything.
    #[op(with(dim = i64), grad = false, call = call_argsort)]
    pub fn argsort(&self, dim: impl IntoDim, descending: bool) -> Result<Tensor> {
        Ok(self.try_sort(dim, descending)?.1)
    }

    /// The `k` largest (or smallest) of `dim`, sorted, and where they are: the first of equals first.
    #[op(with(dim = i64))]
    pub fn topk(&self, k: usize, dim: impl IntoDim, largest: bool) -> Result<(Tensor, Tensor)> {
        let dim = resolve_dim("topk", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            if k > 1 {
                return Err(Error::argument("topk", format!("k = {k} exceeds the single element of a 0-d tensor")));
            }
            return Ok((self.clone(), Tensor::full((), 0, DType::I64, self.device())));
        }
        let places = topk(&self.detach(), k, dim, largest)?;
        Ok((gather(self, dim, &places)?, places))
    }

    /// Running sum along `dim`. `bool` and integers sum as `i64`.
    #[op(with(dim = i64), call = call_cumsum, autocast = high)]
    pub fn cumsum(&self, dim: impl IntoDim) -> Result<Tensor> {
        running(self, ScanOp::Sum, dim.into_dim(), "cumsum")
    }

    /// Running product along `dim`. `bool` and integers multiply as `i64`.
    #[op(with(dim = i64), call = call_cumprod, autocast = high)]
    pub fn cumprod(&self, dim: impl IntoDim) -> Result<Tensor> {
        running(self, ScanOp::Prod, dim.into_dim(), "cumprod")
    }
}

/// Integers of any width as positions; other dtypes stay, to be refused with their name.
#[track_caller]
pub(crate) fn positions(index: &Tensor) -> Result<Tensor> {
    if index.dtype().is_int() && index.dtype() != DType::I32 { cast(index, DType::I64) } else { Ok(index.clone()) }
}

#[track_caller]
fn running(x: &Tensor, op: ScanOp, dim: i64, name: &str) -> Result<Tensor> {
    let dim = resolve_dim(name, dim, x.shape())?;
    let x = if x.dtype().is_float() { x.clone() } else { cast(x, DType::I64)? };
    if x.rank() == 0 { Ok(x) } else { scan(op, &x, dim) }
}

/// `src` cut to the index, as PyTorch allows it to be larger.
#[track_caller]
pub(crate) fn scattered(x: &Tensor, mode: ScatterMode, dim: i64, index: &Tensor, src: Operand) -> Result<Tensor> {
    let name = mode.name();
    let axis = resolve_dim(name, dim, x.shape())?;
    let index = &positions(index)?;
    if index.numel() == 0 {
        return Ok(x.clone());
    }
    let src = match src {
        Operand::Scalar(value) => Tensor::full(index.shape(), value, x.dtype(), x.device()),
        Operand::Tensor(src) if src.dtype() != x.dtype() => {
            return Err(Error::dtype(name, format!("self is {}, src is {}", x.dtype(), src.dtype())));
        }
        Operand::Tensor(src) => src,
    };
    if x.rank() == 0 || index.rank() == 0 {
        let (flat, index, src) = (x.try_reshape([-1])?, index.try_reshape([-1])?, src.try_reshape([-1])?);
        return scatter(mode, &flat, 0, &index, &src)?.try_reshape(x.shape());
    }
    let fits = src.rank() == index.rank() && index.shape().iter().zip(src.shape().iter()).all(|(i, s)| i <= s);
    if !fits {
        return Err(Error::shape(name, format!("index {} exceeds src {}", index.shape(), src.shape())));
    }
    let starts = fornax_ir::Dims::from_elem(0, src.rank());
    let steps = vec![1; src.rank()];
    scatter(mode, x, axis, index, &primitive::slice(&src, &starts, &steps, index.shape())?)
}

type Called = Result<Vec<Tensor>>;
use crate::ops::Args;

fn call_scatter(args: &Args) -> Called {
    let src = if args.has("src") { args.get::<Operand>("src")? } else { args.get::<Operand>("value")? };
    let (x, dim) = (args.get::<Tensor>("input")?, args.get::<i64>("dim")?);
    let mode = match args.get::<Option<alloc::string::String>>("reduce")?.as_deref() {
        None => ScatterMode::Set,
        Some("add") => ScatterMode::Add,
        Some("multiply") => ScatterMode::Mul,
        Some(other) => return Err(Error::argument("scatter", format!("there is no reduction {other:?}"))),
    };
    Ok(vec![scattered(&x, mode, dim, &args.get("index")?, src)?])
}

fn call_sort(args: &Args) -> Called {
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(-1);
    let descending = args.get::<Option<bool>>("descending")?.unwrap_or(false);
    let (values, order) = args.get::<Tensor>("input")?.try_sort(dim, descending)?;
    Ok(vec![values, order])
}

fn call_argsort(args: &Args) -> Called {
    Ok(vec![call_sort(args)?.swap_remove(1)])
}

fn convert(args: &Args, y: &Tensor) -> Called {
    Ok(vec![match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => cast(y, dtype)?,
        None => y.clone(),
    }])
}

fn call_cumsum(args: &Args) -> Called {
    convert(args, &args.get::<Tensor>("input")?.try_cumsum(args.get::<i64>("dim")?)?)
}

fn call_cumprod(args: &Args) -> Called {
    convert(args, &args.get::<Tensor>("input")?.try_cumprod(args.get::<i64>("dim")?)?)
}
