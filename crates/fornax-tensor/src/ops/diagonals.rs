//! Diagonals: reading and writing them, and matrices made of them.

use crate::dims::{resolve_dim, resolve_dim_in};
use crate::primitive::{gather, permute};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Op;
use fornax_macros::ops;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// A copy with `src` on a diagonal.
    #[op(default(offset = 0, dim1 = 0, dim2 = 1))]
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let diagonal = self.try_diagonal(offset, dim1, dim2)?;
        if diagonal.shape() != src.shape() {
            return Err(Error::shape("diagonal_scatter", format!("src {} is not {}", src.shape(), diagonal.shape())));
        }
        let mask = self.full_like(1).try_to_dtype(DType::Bool)?;
        let numbers = Tensor::full(src.shape(), 1, DType::I64, self.device());
        let on = embed(&numbers, self.shape(), offset, dim1, dim2)?.try_ne(0)?.try_logical_and(&mask)?;
        let whole = embed(src, self.shape(), offset, dim1, dim2)?;
        on.try_where_(&whole, self)?.try_to_dtype(self.dtype())
    }

    /// A diagonal of the matrices in two dims, as a new last dim.
    #[op(default(offset = 0, dim1 = 0, dim2 = 1))]
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let (row, column) = two_dims("diagonal", self.shape(), dim1, dim2)?;
        let (rows, columns) = (self.shape()[row] as i64, self.shape()[column] as i64);
        let (from_row, from_column) = (offset.min(0).unsigned_abs() as i64, offset.max(0));
        let count = (rows - from_row).min(columns - from_column).max(0) as usize;
        let mut order: Vec<usize> = (0..self.rank()).filter(|&dim| dim != row && dim != column).collect();
        order.extend([row, column]);
        let moved = permute(self, &order)?;
        let last = moved.rank() - 1;
        // Element i lies at position i of the rows and, of the columns, at i as well: gather along the columns.
        let block =
            moved.try_narrow(last - 1, from_row.min(rows), count)?.try_narrow(last, from_column.min(columns), count)?;
        let index = crate::primitive::source(
            Op::Iota { dim: last - 1 },
            DType::I64,
            block.shape().with_dim(last, 1),
            self.device(),
        );
        gather(&block, last, &index)?.try_squeeze(last)
    }

    /// The vectors of the last dim as diagonals of matrices in two new dims.
    #[op(default(offset = 0, dim1 = -2, dim2 = -1))]
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let Some(&n) = self.shape().last() else {
            return Err(Error::shape("diag_embed", "needs at least one dim, got []"));
        };
        let rank = self.rank() + 1;
        let (row, column) = (resolve_dim_in("diag_embed", dim1, rank)?, resolve_dim_in("diag_embed", dim2, rank)?);
        if row == column {
            return Err(Error::argument("diag_embed", "the two dims are the same"));
        }
        let size = n + offset.unsigned_abs() as usize;
        let mut shape = Shape::from(&self.shape()[..self.rank() - 1]);
        for dim in [row.min(column), row.max(column)] {
            shape.dims_mut().insert(dim, size);
        }
        embed(self, &shape, offset, dim1, dim2)
    }

    /// The diagonal of a matrix, or the matrix of a diagonal.
    #[op(default(diagonal = 0))]
    pub fn diag(&self, diagonal: i64) -> Result<Tensor> {
        match self.rank() {
            1 => self.try_diag_embed(diagonal, 0, 1),
            2 => self.try_diagonal(diagonal, 0, 1),
            _ => Err(Error::shape("diag", format!("{} is neither a vector nor a matrix", self.shape()))),
        }
    }

    /// All elements as the diagonal of a matrix.
    #[op(default(offset = 0))]
    pub fn diagflat(&self, offset: i64) -> Result<Tensor> {
        self.try_reshape([-1])?.try_diag_embed(offset, 0, 1)
    }

    /// The Kronecker product.
    #[op]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let padded = |x: &Tensor| -> Vec<usize> {
            core::iter::repeat_n(1, rank - x.rank()).chain(x.shape().iter().copied()).collect()
        };
        let (a, b) = (padded(self), padded(other));
        let side = |sizes: &[usize], first: bool| -> Vec<usize> {
            sizes.iter().flat_map(|&size| if first { [size, 1] } else { [1, size] }).collect()
        };
        let product = self.try_reshape(side(&a, true))?.try_mul(other.try_reshape(side(&b, false))?)?;
        product.try_reshape(a.iter().zip(&b).map(|(a, b)| a * b).collect::<Vec<usize>>())
    }
}

pub(super) fn two_dims(op: &str, shape: &Shape, dim1: i64, dim2: i64) -> Result<(usize, usize)> {
    let (a, b) = (resolve_dim(op, dim1, shape)?, resolve_dim(op, dim2, shape)?);
    if a == b || shape.rank() < 2 {
        return Err(Error::argument(op, format!("dims {dim1} and {dim2} of {shape} do not make a plane")));
    }
    Ok((a, b))
}

/// The last dim of `x` on a diagonal of zeros of `shape`.
#[track_caller]
fn embed(x: &Tensor, shape: &Shape, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    let (row, column) = two_dims("diagonal", shape, dim1, dim2)?;
    let (above, left) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
    let n = x.shape()[x.rank() - 1];
    let mut spread = x.shape().clone();
    spread.dims_mut().push(n);
    let last = spread.rank() - 1;
    let iota = |dim: usize| crate::primitive::source(Op::Iota { dim }, DType::I64, spread.clone(), x.device());
    let on = iota(last - 1).try_eq(iota(last))?;
    let square = on.try_where_(x.try_unsqueeze(-1)?.try_expand(&spread)?, 0)?.try_to_dtype(x.dtype())?;
    let mut padding = vec![(0, 0); spread.rank()];
    padding[last - 1] = (above, shape[row] - n - above);
    padding[last] = (left, shape[column] - n - left);
    let whole = square.pad_dims(&padding, 0);
    // Rows and columns from the end to their places.
    let mut others = 0..last - 1;
    let order: Vec<usize> = (0..shape.rank())
        .map(|dim| {
            if dim == row {
                last - 1
            } else if dim == column {
                last
            } else {
                others.next().unwrap_or(0)
            }
        })
        .collect();
    permute(&whole, &order)
}
