//! Reading at positions, along a dim or anywhere.

use crate::dims::{IntoDim, resolve_dim};
use crate::ops::{Arg, Args};
use crate::primitive::expand;
use crate::{DType, Device, Error, Index, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Op;
use fornax_macros::ops;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// The elements along `dim` at one position; the dim goes away.
    #[op(with(dim = i64))]
    pub fn select(&self, dim: impl IntoDim, index: i64) -> Result<Tensor> {
        let axis = resolve_dim("select", dim.into_dim(), self.shape())?;
        let Some(&size) = self.shape().get(axis) else {
            return Err(Error::index("select", "a 0-d tensor has no dim to select from"));
        };
        if !(-(size as i64)..size as i64).contains(&index) {
            let message = format!("position {index} is out of range for dim {axis} of {}", self.shape());
            return Err(Error::index("select", message));
        }
        self.try_narrow(axis, index, 1)?.try_squeeze(axis)
    }

    /// The elements at row-major places.
    #[op]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let flat = self.try_reshape([-1])?;
        flat.try_i(Index::Tensor(index.clone()))
    }

    /// [`Tensor::gather`] with broadcasting; without a dim, of the flattened tensor.
    #[op(with(dim = Option<i64>))]
    pub fn take_along_dim(&self, indices: &Tensor, dim: Option<i64>) -> Result<Tensor> {
        let Some(dim) = dim else {
            return self.try_reshape([-1])?.try_take_along_dim(&indices.try_reshape([-1])?, Some(0));
        };
        let axis = resolve_dim("take_along_dim", dim, self.shape())?;
        let (x, index) = (self.shape().with_dim(axis, 1), indices.shape().with_dim(axis, 1));
        let common = fornax_ir::broadcast_shapes("take_along_dim", &x, &index)?;
        let x = self.try_expand(common.with_dim(axis, self.shape()[axis]))?;
        let index = indices.try_expand(common.with_dim(axis, indices.shape()[axis]))?;
        let size = x.shape()[axis] as i64;
        let index = index.try_lt(0)?.try_where_(index.try_add(size)?, &index)?;
        x.try_gather(axis, &index)
    }

    /// Where `mask` is true, in order. Waits for the mask, since it sets the size.
    #[op]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let shape = self.broadcast_shape(mask)?;
        let (x, mask) = (expand(self, &shape)?, expand(mask, &shape)?);
        x.try_reshape([-1])?.try_i(Index::Tensor(mask.try_reshape([-1])?))
    }

    /// Positions where this is not zero: `[count, rank]`. Waits for the values, since they set the size.
    #[op(torch = ["nonzero", "argwhere"], grad = false)]
    pub fn argwhere(&self) -> Result<Tensor> {
        self.try_nonzero()
    }

    /// Sizes and strides on the row-major elements of this tensor. Places may be read more than once.
    #[op(default(storage_offset = 0))]
    pub fn as_strided(&self, size: &[usize], stride: &[usize], storage_offset: usize) -> Result<Tensor> {
        if size.len() != stride.len() {
            return Err(Error::argument("as_strided", format!("{size:?} and {stride:?} do not pair up")));
        }
        let shape = Shape::from(size);
        let reach: usize = size.iter().zip(stride).map(|(&size, &stride)| size.saturating_sub(1) * stride).sum();
        if shape.numel() > 0 && storage_offset + reach >= self.numel() {
            let message = format!("{size:?} with strides {stride:?} from {storage_offset} leaves {}", self.shape());
            return Err(Error::index("as_strided", message));
        }
        let mut place = Tensor::full(&shape, storage_offset, DType::I64, self.device());
        for (dim, &stride) in stride.iter().enumerate() {
            let position = crate::primitive::source(Op::Iota { dim }, DType::I64, shape.clone(), self.device());
            place = place.try_add(position.try_mul(stride as i64)?)?;
        }
        self.try_reshape([-1])?.try_gather(0, &place.try_reshape([-1])?)?.try_reshape(&shape)
    }

    /// The part that an index names; [`Tensor::i`] takes ranges and tuples.
    #[op(torch = ["__getitem__"], call = call_getitem)]
    pub fn index(&self, entries: &[Index]) -> Result<Tensor> {
        self.try_i(entries)
    }

    /// The slice `start:end:step` of `dim`.
    #[op(torch = ["slice"], call = call_slice)]
    pub fn slice_dim(&self, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Tensor> {
        let axis = resolve_dim("slice", dim, self.shape())?;
        let mut entries = vec![Index::from(..); axis];
        entries.push(Index::Slice { start, stop: end, step });
        self.try_i(entries)
    }
}

/// An index as PyTorch's `__getitem__` takes it.
fn entry(arg: &Arg, device: &Device) -> Result<Index> {
    Ok(match arg {
        Arg::Int(position) => Index::At(*position),
        Arg::Slice { start, stop, step } => Index::Slice { start: *start, stop: *stop, step: step.unwrap_or(1) },
        Arg::Ellipsis => Index::Rest,
        Arg::None => Index::NewDim,
        Arg::Tensor(tensor) => Index::Tensor(tensor.clone()),
        Arg::List(_) => {
            let (mut shape, mut flat) = (Vec::new(), Vec::new());
            nested(arg, 0, &mut shape, &mut flat)?;
            let is_mask = flat.iter().all(|leaf| matches!(leaf, Arg::Bool(_))) && !flat.is_empty();
            let values: Vec<i64> = flat
                .iter()
                .map(|leaf| match leaf {
                    Arg::Bool(value) => i64::from(*value),
                    Arg::Int(value) => *value,
                    _ => 0,
                })
                .collect();
            let tensor = Tensor::from_vec(values, shape, device);
            Index::Tensor(if is_mask { tensor.try_to_dtype(DType::Bool)? } else { tensor })
        }
        Arg::Bool(_) | Arg::Float(_) | Arg::Str(_) | Arg::DType(_) => {
            return Err(Error::argument("index", format!("{arg:?} is no index")));
        }
    })
}

/// The sizes and elements of nested lists.
fn nested(arg: &Arg, depth: usize, shape: &mut Vec<usize>, flat: &mut Vec<Arg>) -> Result<()> {
    let ragged = || Error::argument("index", "the lists of an index have different lengths");
    let Arg::List(list) = arg else {
        if depth != shape.len() || !matches!(arg, Arg::Bool(_) | Arg::Int(_)) {
            return Err(ragged());
        }
        flat.push(arg.clone());
        return Ok(());
    };
    match shape.get(depth) {
        None if flat.is_empty() => shape.push(list.len()),
        Some(&size) if size == list.len() => {}
        _ => return Err(ragged()),
    }
    list.iter().try_for_each(|inner| nested(inner, depth + 1, shape, flat))
}

fn call_getitem(args: &Args) -> Result<Vec<Tensor>> {
    let entries = match args.get::<Arg>("index")? {
        Arg::List(list) => list.iter().map(|arg| entry(arg, args.device())).collect::<Result<Vec<Index>>>()?,
        one => vec![entry(&one, args.device())?],
    };
    Ok(vec![args.get::<Tensor>("input")?.try_index(&entries)?])
}

fn call_slice(args: &Args) -> Result<Vec<Tensor>> {
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    let distance = args.get::<Option<i64>>("step")?.unwrap_or(1);
    Ok(vec![args.get::<Tensor>("input")?.try_slice_dim(dim, args.get("start")?, args.get("end")?, distance)?])
}
