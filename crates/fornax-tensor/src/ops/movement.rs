//! Ops that move elements: other shapes, other orders, joining and cutting. Most cost nothing: they are read in place.

use crate::dims::{IntoDim, Sizes, resolve_dim, resolve_dim_in};
use crate::primitive::{self, concat, expand, permute, reshape, slice};
use crate::{DType, Error, Result, Scalar, Shape, Tensor};
use alloc::format;
use alloc::vec::Vec;
use fornax_ir::{Dims, broadcast_shapes};
use fornax_macros::ops;
use smallvec::{SmallVec, smallvec};

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// The same elements, row-major, under other sizes; a size of −1 is whatever is left.
    #[op(with(shape = Sizes))]
    pub fn reshape(&self, shape: impl Into<Sizes>) -> Result<Tensor> {
        let shape = shape.into().resolve("reshape", self.shape())?;
        if shape.numel() != self.numel() {
            let message = format!("{} does not have as many elements as {shape}", self.shape());
            return Err(Error::shape("reshape", message));
        }
        reshape(self, &shape)
    }

    /// Dim `i` of the result is dim `dims[i]`.
    #[op(with(dims = Vec<i64>))]
    pub fn permute(&self, dims: impl AsRef<[i64]>) -> Result<Tensor> {
        let dims: Dims =
            dims.as_ref().iter().map(|&dim| resolve_dim("permute", dim, self.shape())).collect::<Result<_>>()?;
        if dims.len() != self.rank() {
            let message = format!("{dims:?} does not name each dim of {} once", self.shape());
            return Err(Error::argument("permute", message));
        }
        permute(self, &dims)
    }

    /// Dims `dim0` and `dim1` change places.
    #[op(with(dim0 = i64, dim1 = i64), torch = ["transpose", "swapaxes", "swapdims"])]
    pub fn transpose(&self, dim0: impl IntoDim, dim1: impl IntoDim) -> Result<Tensor> {
        let dim0 = resolve_dim("transpose", dim0.into_dim(), self.shape())?;
        let dim1 = resolve_dim("transpose", dim1.into_dim(), self.shape())?;
        let mut perm: Dims = (0..self.rank()).collect();
        if self.rank() > 0 {
            perm.swap(dim0, dim1);
        }
        permute(self, &perm)
    }

    /// The transpose of a matrix; tensors of rank 0 and 1 stay as they are.
    #[op(torch = ["t"])]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => permute(self, &[1, 0]),
            _ => Err(Error::shape("t", format!("{} has more than two dims", self.shape())).help("use `transpose`")),
        }
    }

    /// Sizes of 1 repeated to `size`, new dims in front; −1 keeps a size.
    #[op(with(size = Sizes))]
    pub fn expand(&self, size: impl Into<Sizes>) -> Result<Tensor> {
        let sizes = size.into().0;
        let new = sizes
            .len()
            .checked_sub(self.rank())
            .ok_or_else(|| Error::shape("expand", format!("{} has more dims than {sizes:?}", self.shape())))?;
        let mut shape = Shape::scalar();
        for (i, &size) in sizes.iter().enumerate() {
            let size = match size {
                -1 if i >= new => self.shape()[i - new],
                size if size >= 0 => size as usize,
                _ => return Err(Error::shape("expand", format!("{} to {sizes:?}: no such size", self.shape()))),
            };
            shape.dims_mut().push(size);
        }
        expand(self, &shape)
    }

    /// Broadcast to `shape`.
    #[op(with(shape = Sizes), rename(shape = "size"))]
    pub fn broadcast_to(&self, shape: impl Into<Sizes>) -> Result<Tensor> {
        self.try_expand(shape)
    }

    /// A new dim of size 1 before `dim`.
    #[op(with(dim = i64))]
    pub fn unsqueeze(&self, dim: impl IntoDim) -> Result<Tensor> {
        let dim = resolve_dim_in("unsqueeze", dim.into_dim(), self.rank() + 1)?;
        let mut shape = self.shape().clone();
        shape.dims_mut().insert(dim, 1);
        reshape(self, &shape)
    }

    /// Without those of `dims` that have size 1; `()` stands for all.
    #[op(torch = ["squeeze", "squeeze.multiple"], call = call_squeeze)]
    pub fn squeeze(&self, dims: impl Into<crate::ReduceDims>) -> Result<Tensor> {
        let dims = dims.into().resolve("squeeze", self.shape())?;
        let keep = |dim: &usize| !(dims.contains(dim) && self.shape()[*dim] == 1);
        let shape: Shape = (0..self.rank()).filter(keep).map(|dim| self.shape()[dim]).collect();
        reshape(self, &shape)
    }

    /// Dims `start_dim` to `end_dim` as one.
    #[op(with(start_dim = i64, end_dim = i64))]
    pub fn flatten(&self, start_dim: impl IntoDim, end_dim: impl IntoDim) -> Result<Tensor> {
        let start = resolve_dim("flatten", start_dim.into_dim(), self.shape())?;
        let end = resolve_dim("flatten", end_dim.into_dim(), self.shape())?;
        if start > end {
            return Err(Error::argument("flatten", format!("dim {start} lies behind dim {end}")));
        }
        if self.rank() == 0 {
            return reshape(self, &Shape::from([1]));
        }
        let flat = self.shape()[start..=end].iter().product();
        let shape = self.shape()[..start].iter().copied().chain([flat]).chain(self.shape()[end + 1..].iter().copied());
        reshape(self, &shape.collect())
    }

    /// In reverse order along `dims`.
    #[op(with(dims = Vec<i64>))]
    pub fn flip(&self, dims: impl AsRef<[i64]>) -> Result<Tensor> {
        let mut starts: Dims = smallvec![0; self.rank()];
        let mut steps: SmallVec<[i64; 6]> = smallvec![1; self.rank()];
        for &dim in dims.as_ref() {
            let dim = resolve_dim("flip", dim, self.shape())?;
            if self.rank() == 0 {
                continue;
            }
            if steps[dim] == -1 {
                return Err(Error::argument("flip", format!("dim {dim} is named twice")));
            }
            starts[dim] = self.shape()[dim].saturating_sub(1);
            steps[dim] = -1;
        }
        slice(self, &starts, &steps, self.shape())
    }

    /// `length` positions of `dim` from `start` on.
    #[op(with(dim = i64))]
    pub fn narrow(&self, dim: impl IntoDim, start: i64, length: usize) -> Result<Tensor> {
        let dim = resolve_dim("narrow", dim.into_dim(), self.shape())?;
        let size = self.shape().get(dim).copied().unwrap_or(0);
        let from = if start < 0 { start + size as i64 } else { start };
        if from < 0 || from as usize + length > size {
            let message = format!("{length} positions from {start} are not in dim {dim} of {}", self.shape());
            return Err(Error::index("narrow", message));
        }
        let mut starts: Dims = smallvec![0; self.rank()];
        starts[dim] = from as usize;
        let steps: SmallVec<[i64; 6]> = smallvec![1; self.rank()];
        slice(self, &starts, &steps, &self.shape().with_dim(dim, length))
    }

    /// Tensors joined along `dim`, dtypes promoted.
    #[op(with(dim = i64), torch = ["cat", "concat", "concatenate"], call = call_cat)]
    pub fn cat(tensors: &[&Tensor], dim: impl IntoDim) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::argument("cat", "needs at least one tensor"));
        };
        let dtype = tensors.iter().fold(first.dtype(), |dtype, tensor| dtype.promote(tensor.dtype()));
        // Empty lists join anything, as in older NumPy.
        let tensors: Vec<&Tensor> = match tensors.iter().any(|tensor| tensor.rank() > 1) {
            true => tensors.iter().copied().filter(|tensor| tensor.shape()[..] != [0]).collect(),
            false => tensors.to_vec(),
        };
        let first = tensors[0];
        let dim = resolve_dim("cat", dim.into_dim(), first.shape())?;
        if let Some(scalar) = tensors.iter().find(|tensor| tensor.rank() == 0) {
            return Err(Error::shape("cat", format!("0-d tensors cannot be joined: {}", scalar.shape())));
        }
        let cast: Vec<Tensor> = tensors.iter().map(|x| primitive::cast(x, dtype)).collect::<Result<_>>()?;
        concat(&cast.iter().collect::<Vec<_>>(), dim).map_err(|error| error.named("cat"))
    }

    /// Tensors of one shape joined along a new dim.
    #[op(with(dim = i64), call = call_stack)]
    pub fn stack(tensors: &[&Tensor], dim: impl IntoDim) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::argument("stack", "needs at least one tensor"));
        };
        let dim = resolve_dim_in("stack", dim.into_dim(), first.rank() + 1)?;
        let mut raised = Vec::new();
        for tensor in tensors {
            if tensor.shape() != first.shape() {
                return Err(Error::shape("stack", format!("shapes differ: {} and {}", first.shape(), tensor.shape())));
            }
            raised.push(tensor.try_unsqueeze(dim)?);
        }
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), dim)
    }

    /// The lower triangle of the last two dims: zeros above diagonal `diagonal` (0 is the main one, positive above it).
    #[op]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        triangle("tril", self, |row, column| column.try_sub(row)?.try_le(diagonal))
    }

    /// The upper triangle of the last two dims: zeros below diagonal `diagonal`.
    #[op]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        triangle("triu", self, |row, column| column.try_sub(row)?.try_ge(diagonal))
    }

    /// The same value as another dtype: floats round to nearest even and saturate into integers, integers wrap.
    #[op(rename(dtype = "dtype"), torch = ["to"])]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        primitive::cast(self, dtype)
    }
}

impl Tensor {
    /// `value` before and after each dim: `(before, after)` pairs, one a dim, outermost first.
    ///
    /// # Panics
    /// If there is not one pair a dim.
    #[track_caller]
    #[must_use]
    pub fn pad_dims(&self, padding: &[(usize, usize)], value: impl Into<Scalar>) -> Tensor {
        if padding.len() != self.rank() {
            let message = format!("{} pairs for {}", padding.len(), self.shape());
            Error::argument("pad_dims", message).raise();
        }
        let low: Dims = padding.iter().map(|pair| pair.0).collect();
        let shape: Shape = self.shape().iter().zip(padding).map(|(&size, &(low, high))| low + size + high).collect();
        match primitive::pad(self, &low, &shape, value.into()) {
            Ok(padded) => padded,
            Err(error) => error.raise(),
        }
    }

    /// The shape that two tensors broadcast to.
    ///
    /// # Errors
    /// If sizes differ and neither is 1.
    pub fn broadcast_shape(&self, other: &Tensor) -> Result<Shape> {
        broadcast_shapes("broadcast", self.shape(), other.shape())
    }
}

#[track_caller]
fn triangle(op: &str, x: &Tensor, keep: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let &[.., m, n] = x.shape().dims() else {
        return Err(Error::shape(op, format!("{} is not a matrix", x.shape())));
    };
    let iota = |dim: usize| primitive::source(fornax_ir::Op::Iota { dim }, DType::I64, Shape::from([m, n]), x.device());
    keep(&iota(0), &iota(1))?.try_where_(x, x.zeros_like())
}

fn call_cat(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let tensors = args.get::<Vec<Tensor>>("tensors")?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    Ok(alloc::vec![Tensor::try_cat(&tensors.iter().collect::<Vec<_>>(), dim)?])
}

/// An empty list of dims names none, unlike no list at all.
fn call_squeeze(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?;
    Ok(alloc::vec![match dims {
        Some(dims) if dims.is_empty() => x,
        Some(dims) => x.try_squeeze(dims)?,
        None => x.try_squeeze(())?,
    }])
}

fn call_stack(args: &crate::ops::Args) -> Result<Vec<Tensor>> {
    let tensors = args.get::<Vec<Tensor>>("tensors")?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    Ok(alloc::vec![Tensor::try_stack(&tensors.iter().collect::<Vec<_>>(), dim)?])
}
