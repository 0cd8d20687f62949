//! Norms of vectors and matrices, and what is measured by them.

use super::elementwise::float;
use super::loss::p_norm;
use super::reduction::converted;
use crate::dims::{ReduceDims, resolve_dim};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{cast, permute, reshape};
use crate::{DType, Error, Result, Shape, Tensor, keepdim};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Dims;
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
    /// `(Σ |x|ᵖ)^(1/p)` over `dims`; p = ∞, −∞ and 0 give the largest, the smallest and the number of non-zeros.
    #[op(torch = ["linalg.vector_norm"], call = call_vector_norm, autocast = high)]
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

    /// Slices along `dim` scaled down to a p-norm of at most `maxnorm`.
    #[op(autocast = high)]
    pub fn renorm(&self, p: f64, dim: i64, maxnorm: f64) -> Result<Tensor> {
        let axis = resolve_dim("renorm", dim, self.shape())?;
        if self.rank() < 2 || !(p > 0.0 && maxnorm >= 0.0) {
            let message = format!("of {} by p = {p} to {maxnorm}: needs two dims, p > 0, maxnorm ≥ 0", self.shape());
            return Err(Error::argument("renorm", message));
        }
        let others: Vec<usize> = (0..self.rank()).filter(|&other| other != axis).collect();
        let norm = vector_norm(self, p, &keepdim(others))?;
        let too_long = norm.try_gt(maxnorm)?;
        let safe = too_long.try_where_(norm.try_add(1e-7)?, 1.0)?.try_to_dtype(self.dtype())?;
        let scale = too_long.try_where_(safe.try_reciprocal()?.try_mul(maxnorm)?, 1.0)?;
        self.try_mul(scale.try_to_dtype(self.dtype())?)
    }

    /// The p-norm over `dims` as one vector: [`Tensor::vector_norm`] under PyTorch's older name.
    #[op(torch = ["norm", "norm.fro", "norm.nuc", "norm.inf"], call = call_norm, autocast = high)]
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

#[track_caller]
pub(super) fn vector_norm(x: &Tensor, p: f64, dims: &ReduceDims) -> Result<Tensor> {
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

fn call_vector_norm(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Option<Tensor>>("x")?.map_or_else(|| converted(args), Ok)?;
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

fn call_matrix_norm(args: &Args) -> Result<Vec<Tensor>> {
    let x = match args.get::<Option<Tensor>>("A")? {
        Some(x) => x,
        None => converted(args)?,
    };
    let order = order(&args.get::<Arg>("ord")?).ok_or_else(|| Error::argument("matrix_norm", "unknown order"))?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?.unwrap_or_else(|| vec![-2, -1]);
    let [row, column] = dims[..] else { return Err(Error::argument("matrix_norm", "takes two dims")) };
    Ok(vec![x.try_matrix_norm(order, [row, column], args.get::<Option<bool>>("keepdim")?.unwrap_or(false))?])
}

/// `torch.norm` and `torch.linalg.norm`: of vectors or matrices, as the order and the number of dims say.
fn any_norm(args: &Args, name: &str, flat_by_default: bool) -> Result<Vec<Tensor>> {
    let x = converted(args)?;
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

fn call_norm(args: &Args) -> Result<Vec<Tensor>> {
    any_norm(args, "p", true)
}

fn call_linalg_norm(args: &Args) -> Result<Vec<Tensor>> {
    any_norm(args, "ord", false)
}
