//! Splitting tensors and joining them: parts, stacks, grids and combinations.

use crate::dims::{IntoDim, resolve_dim};
use crate::index::resolve_slice;
use crate::ops::{Arg, Args};
use crate::primitive::{expand, reshape};
use crate::{Error, Result, Shape, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Dims;
use fornax_macros::ops;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// Parts of `split_size` along `dim`; the last may be smaller.
    #[op(torch = ["split", "split.list_args"], call = call_split, with(dim = i64))]
    pub fn split(&self, split_size: usize, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("split", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if split_size == 0 && n > 0 {
            return Err(Error::argument("split", "parts of size 0 never end"));
        }
        let count = if n == 0 { 1 } else { n.div_ceil(split_size) };
        let sizes: Vec<usize> = (0..count).map(|i| split_size.min(n - i * split_size)).collect();
        self.try_split_with_sizes(&sizes, axis)
    }

    /// Parts of the given sizes along `dim`.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn split_with_sizes(&self, split_sizes: &[usize], dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("split", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if split_sizes.iter().sum::<usize>() != n {
            let message = format!("parts {split_sizes:?} do not make dim {axis} of {}", self.shape());
            return Err(Error::shape("split", message));
        }
        let mut start = 0;
        split_sizes
            .iter()
            .map(|&size| {
                let part = self.try_narrow(axis, start, size);
                start += size as i64;
                part
            })
            .collect()
    }

    /// At most `chunks` parts of equal size along `dim`; the last may be smaller.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn chunk(&self, chunks: usize, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("chunk", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if chunks == 0 {
            return Err(Error::argument("chunk", "needs at least one chunk"));
        }
        if n == 0 {
            return Ok(vec![self.clone(); chunks]);
        }
        self.try_split(n.div_ceil(chunks), axis)
    }

    /// `sections` parts along `dim` whose sizes differ by at most one.
    #[op(call = call_tensor_split)]
    pub fn tensor_split(&self, sections: usize, dim: i64) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("tensor_split", dim, self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if sections == 0 {
            return Err(Error::argument("tensor_split", "needs at least one section"));
        }
        let sizes: Vec<usize> = (0..sections).map(|i| n / sections + usize::from(i < n % sections)).collect();
        self.try_split_with_sizes(&sizes, axis)
    }

    /// The parts of `dim` before, between and behind the given positions.
    #[op(torch = [], call = call_tensor_split)]
    pub fn tensor_split_at(&self, positions: &[i64], dim: i64) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("tensor_split", dim, self.shape())?;
        let Some(&n) = self.shape().get(axis) else {
            return Err(Error::shape("tensor_split", "a 0-d tensor has no dim to split"));
        };
        let mut start = Some(0);
        let ends = positions.iter().copied().map(Some).chain([None]);
        ends.map(|end| {
            let (first, count) = resolve_slice(n, start, end, 1)?;
            start = end;
            self.try_narrow(axis, first as i64, count)
        })
        .collect()
    }

    /// The slices along `dim`.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn unbind(&self, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("unbind", dim.into_dim(), self.shape())?;
        let Some(&n) = self.shape().get(axis) else {
            return Err(Error::shape("unbind", "a 0-d tensor has no dim to unbind"));
        };
        (0..n as i64).map(|i| self.try_select(axis, i)).collect()
    }

    /// All to the shape they broadcast to.
    #[op(call = call_broadcast_tensors)]
    pub fn broadcast_tensors(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut shape = Shape::scalar();
        for tensor in tensors {
            shape = fornax_ir::broadcast_shapes("broadcast_tensors", &shape, tensor.shape())?;
        }
        tensors.iter().map(|tensor| expand(tensor, &shape)).collect()
    }

    /// Joined along the second dim, vectors along their first.
    #[op(call = call_hstack)]
    pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 1)).collect::<Result<_>>()?;
        let dim = i64::from(raised.first().is_some_and(|first| first.rank() > 1));
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), dim)
    }

    /// Joined along the first dim, vectors as rows.
    #[op(call = call_vstack)]
    pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 2)).collect::<Result<_>>()?;
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), 0)
    }

    /// Joined along the third dim.
    #[op(call = call_dstack)]
    pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 3)).collect::<Result<_>>()?;
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), 2)
    }

    /// Vectors as columns, matrices side by side.
    #[op(call = call_column_stack)]
    pub fn column_stack(tensors: &[&Tensor]) -> Result<Tensor> {
        let columns: Vec<Tensor> = tensors
            .iter()
            .map(|x| if x.rank() < 2 { x.try_reshape([-1, 1]) } else { Ok((*x).clone()) })
            .collect::<Result<_>>()?;
        Tensor::try_cat(&columns.iter().collect::<Vec<_>>(), 1)
    }

    /// Of at least two dims: vectors become rows.
    #[op(call = call_atleast_2d)]
    pub fn atleast_2d(&self) -> Result<Tensor> {
        raise(self, 2)
    }

    /// Of at least three dims: matrices get a last dim of 1.
    #[op(call = call_atleast_3d)]
    pub fn atleast_3d(&self) -> Result<Tensor> {
        raise(self, 3)
    }

    /// All combinations of an element of each list: `[combinations, lists]`.
    #[op(call = call_cartesian_prod)]
    pub fn cartesian_prod(tensors: &[&Tensor]) -> Result<Tensor> {
        if let [one] = tensors {
            return Ok((*one).clone());
        }
        let grids = Tensor::try_meshgrid(tensors, false)?;
        let columns: Vec<Tensor> = grids.iter().map(|grid| grid.try_reshape([-1])).collect::<Result<_>>()?;
        Tensor::try_stack(&columns.iter().collect::<Vec<_>>(), 1)
    }

    /// All combinations of `r` elements of a list: `[combinations, r]`.
    #[op(default(r = 2, with_replacement = false))]
    pub fn combinations(&self, r: usize, with_replacement: bool) -> Result<Tensor> {
        let [n] = self.shape()[..] else {
            return Err(Error::shape("combinations", format!("{} is not a list", self.shape())));
        };
        let mut rows: Vec<Vec<i64>> = vec![Vec::new()];
        for _ in 0..r {
            rows = rows
                .into_iter()
                .flat_map(|row| {
                    let from = row.last().map_or(0, |&last| last + i64::from(!with_replacement));
                    (from..n as i64).map(move |next| row.iter().copied().chain([next]).collect())
                })
                .collect();
        }
        if r == 0 {
            return self.try_narrow(0, 0, 0);
        }
        let count = rows.len();
        let index = Tensor::from_vec(rows.concat(), [count * r], self.device());
        self.try_index_select(0, &index)?.try_reshape([count, r])
    }

    /// Coordinates of a grid: each list repeated along the dims of the others. `xy` swaps the first two dims.
    #[op(torch = ["meshgrid.variadic_tensors", "meshgrid"], call = call_meshgrid)]
    pub fn meshgrid(tensors: &[&Tensor], xy: bool) -> Result<Vec<Tensor>> {
        let lists: Vec<Tensor> = tensors.iter().map(|x| x.try_reshape([-1])).collect::<Result<_>>()?;
        let shape: Shape = lists.iter().map(Tensor::numel).collect();
        let grids = lists.iter().enumerate().map(|(dim, list)| {
            let mut own = Shape::from(Dims::from_elem(1, lists.len()));
            own.dims_mut()[dim] = list.numel();
            let grid = expand(&reshape(list, &own)?, &shape)?;
            if xy && lists.len() > 1 { grid.try_transpose(0, 1) } else { Ok(grid) }
        });
        grids.collect()
    }

    /// Matrices along the diagonal of one.
    #[op(call = call_block_diag)]
    pub fn block_diag(tensors: &[&Tensor]) -> Result<Tensor> {
        let blocks: Vec<Tensor> = tensors.iter().map(|x| raise(x, 2)).collect::<Result<_>>()?;
        if let Some(block) = blocks.iter().find(|block| block.rank() != 2) {
            return Err(Error::shape("block_diag", format!("{} is no matrix", block.shape())));
        }
        let width: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let mut left = 0;
        let mut rows = Vec::new();
        for block in &blocks {
            let own = block.shape()[1];
            rows.push(block.pad_dims(&[(0, 0), (left, width - left - own)], 0));
            left += own;
        }
        Tensor::try_cat(&rows.iter().collect::<Vec<_>>(), 0)
    }
}

/// With so many dims: vectors become rows, matrices get a last dim of 1.
#[track_caller]
pub(super) fn raise(x: &Tensor, rank: usize) -> Result<Tensor> {
    match (x.rank(), rank) {
        (0, _) => x.try_reshape(vec![1usize; rank]),
        (1, 2) => x.try_unsqueeze(0),
        (1, 3) => x.try_unsqueeze(0)?.try_unsqueeze(-1),
        (2, 3) => x.try_unsqueeze(-1),
        _ => Ok(x.clone()),
    }
}

pub(super) fn list(args: &Args, name: &str) -> Result<Vec<Tensor>> {
    args.get::<Vec<Tensor>>(name)
}

macro_rules! joining {
    ($($call:ident => $method:ident),* $(,)?) => {$(
        fn $call(args: &Args) -> Result<Vec<Tensor>> {
            let tensors = list(args, "tensors")?;
            Ok(vec![Tensor::$method(&tensors.iter().collect::<Vec<_>>())?])
        }
    )*};
}

joining!(
    call_hstack => try_hstack,
    call_vstack => try_vstack,
    call_dstack => try_dstack,
    call_column_stack => try_column_stack,
    call_cartesian_prod => try_cartesian_prod,
    call_block_diag => try_block_diag,
);

fn call_broadcast_tensors(args: &Args) -> Result<Vec<Tensor>> {
    let tensors = list(args, "tensors")?;
    Tensor::try_broadcast_tensors(&tensors.iter().collect::<Vec<_>>())
}

fn call_meshgrid(args: &Args) -> Result<Vec<Tensor>> {
    let tensors = list(args, "tensors")?;
    let xy = args.get::<Option<String>>("indexing")?.as_deref() == Some("xy");
    Tensor::try_meshgrid(&tensors.iter().collect::<Vec<_>>(), xy)
}

/// One tensor, or each of a list.
fn each(args: &Args, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let tensors = if args.has("tensors") { list(args, "tensors")? } else { vec![args.get::<Tensor>("input")?] };
    tensors.iter().map(f).collect()
}

fn call_atleast_2d(args: &Args) -> Result<Vec<Tensor>> {
    each(args, Tensor::try_atleast_2d)
}

fn call_atleast_3d(args: &Args) -> Result<Vec<Tensor>> {
    each(args, Tensor::try_atleast_3d)
}

/// One size for all parts, or a list.
fn call_split(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Option<Tensor>>("tensor")?.map_or_else(|| args.get::<Tensor>("input"), Ok)?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    match args.get::<Arg>("split_size_or_sections")? {
        Arg::List(_) => x.try_split_with_sizes(&args.get::<Vec<usize>>("split_size_or_sections")?, dim),
        _ => x.try_split(args.get("split_size_or_sections")?, dim),
    }
}

/// A number of sections, or the positions to cut at.
fn call_tensor_split(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    for name in ["sections", "tensor_indices_or_sections", "indices"] {
        let cuts: Vec<i64> = match args.get::<Arg>(name)? {
            Arg::None => continue,
            Arg::Int(sections) => return x.try_tensor_split(sections.max(0) as usize, dim),
            Arg::Tensor(tensor) if tensor.rank() == 0 => {
                return x.try_tensor_split(tensor.try_to_vec::<i64>()?[0].max(0) as usize, dim);
            }
            Arg::Tensor(tensor) => tensor.try_to_vec()?,
            _ => args.get::<Vec<i64>>(name)?,
        };
        return x.try_tensor_split_at(&cuts, dim);
    }
    Err(Error::argument("tensor_split", "needs sections or positions"))
}
