//! Products of matrices and vectors.

use crate::dims::resolve_dim;
use crate::primitive::{cast, matmul, reshape};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use fornax_macros::ops;

#[ops(group = "linalg", records = RECORDS)]
impl Tensor {
    /// Matrix product of `[…, m, k]` and `[…, k, n]`; leading dims broadcast, a vector stands for a row on the left and
    /// a column on the right. Halves accumulate in `f32`.
    #[op(rename(rhs = "other"), autocast = low)]
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || rhs.rank() == 0 {
            let message = format!("0-d tensors have no product: lhs {}, rhs {}", self.shape(), rhs.shape());
            return Err(Error::shape("matmul", message).help("multiply with `*`"));
        }
        if self.dtype() != rhs.dtype() {
            let message = format!("dtypes differ: lhs {}, rhs {}", self.dtype(), rhs.dtype());
            return Err(Error::dtype("matmul", message).help("convert one with `to_dtype`"));
        }
        if self.dtype() == DType::Bool {
            return Err(Error::dtype("matmul", "does not take bool"));
        }
        let (row, column) = (self.rank() == 1, rhs.rank() == 1);
        // A matrix beside a batch: fold the batch into the rows, one product in place of many.
        if !row && self.rank() > 2 && rhs.rank() <= 2 && self.shape()[self.rank() - 1] == rhs.shape()[0] {
            let inner = self.shape()[self.rank() - 1];
            let rows = self.shape()[..self.rank() - 1].iter().product();
            let flat = reshape(self, &Shape::from([rows, inner]))?;
            let product = flat.try_matmul(rhs)?;
            let shape = self.shape()[..self.rank() - 1].iter().chain(&product.shape()[1..]).copied().collect();
            return reshape(&product, &shape);
        }
        let lhs = if row { self.try_unsqueeze(0)? } else { self.clone() };
        let rhs_matrix = if column { rhs.try_unsqueeze(1)? } else { rhs.clone() };
        let product = matmul(&lhs, &rhs_matrix, self.dtype()).map_err(|error| mismatch(self, rhs, error))?;
        let rank = product.rank();
        let product = if column { product.try_squeeze(resolve_dim("matmul", -1, product.shape())?)? } else { product };
        if row { product.try_squeeze(rank - 2) } else { Ok(product) }
    }

    /// Matrix product with a result of another dtype: `f32` from halves, `i32` from bytes.
    #[op(torch = [])]
    pub fn matmul_to(&self, rhs: &Tensor, dtype: DType) -> Result<Tensor> {
        match dtype {
            DType::I32 => matmul(self, rhs, dtype),
            _ if dtype == self.dtype().compute() => matmul(self, rhs, dtype),
            _ => cast(&self.try_matmul(rhs)?, dtype),
        }
    }
}

/// The error with the shapes as the user knows them.
fn mismatch(lhs: &Tensor, rhs: &Tensor, error: Error) -> Error {
    let (a, b) = (lhs.shape(), rhs.shape());
    let inner = if b.rank() == 1 { b[0] } else { b[b.rank() - 2] };
    let last = a[a.rank() - 1];
    if last == inner {
        return error;
    }
    let error = Error::shape("matmul", format!("inner sizes differ: lhs {a}, rhs {b}; {last} ≠ {inner}"));
    if b.rank() >= 2 && b[b.rank() - 1] == last { error.help("transpose rhs?") } else { error }
}
