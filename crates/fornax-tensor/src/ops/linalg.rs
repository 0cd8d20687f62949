//! Dense linear algebra on the last two dims: factorizations, solving, inverses, determinants, with gradients.
//!
//! Factorizations are primitives that pack their parts into one tensor; here they are unpacked and get their gradient
//! rules. What is built from several of them is computed in `f64` inside and rounded once.

use crate::autodiff::{Reads, custom_gradient, with_rule};
use crate::dims::keepdim;
use crate::ops::{Arg, Args};
use crate::primitive::{permute, record, slice};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, LinalgOp, Op};
use fornax_macros::ops;

#[ops(group = "linalg", records = RECORDS)]
impl Tensor {
    /// The last two dims change places.
    #[op(torch = ["mT", "adjoint"])]
    pub fn mt(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape("mt", format!("{} is not a matrix", self.shape())));
        }
        let mut perm: Dims = (0..self.rank()).collect();
        perm.swap(self.rank() - 2, self.rank() - 1);
        permute(self, &perm)
    }

    /// The factor `L` (or `U` if `upper`) of a symmetric positive definite matrix `A = L · Lᵀ = Uᵀ · U`.
    ///
    /// # References
    /// Murray (2016), *Differentiation of the Cholesky decomposition*, arXiv:1602.07527, for the gradient.
    #[op(torch = ["linalg.cholesky", "cholesky"])]
    pub fn cholesky(&self, upper: bool) -> Result<Tensor> {
        let lower = if upper { self.try_mt()? } else { self.clone() };
        let l = factorize(LinalgOp::Cholesky, &lower.detach())?;
        let l = with_rule(&lower, l, Reads::Output, |l, dl| {
            let inner = half_tril(&l.mt().matmul(dl));
            let solved = l.mt().solve_triangular(&inner, true, true, false);
            let whole = l.mt().solve_triangular(&solved.mt(), true, true, false).mt();
            (&whole + whole.mt()) * 0.5
        });
        if upper { l.try_mt() } else { Ok(l) }
    }

    /// `A = Q · R`: for `[…, m, n]` and `k = min(m, n)`, `Q […, m, k]` with orthonormal columns, `R […, k, n]` upper
    /// triangular.
    #[op(torch = ["linalg.qr", "qr"], call = call_qr)]
    pub fn qr(&self) -> Result<(Tensor, Tensor)> {
        let packed = factorize(LinalgOp::Qr, &self.detach())?;
        let [m, n] = matrix("qr", self)?;
        let packed = with_rule(self, packed, Reads::Output, move |packed, d| {
            let (q, r) = (rows(packed, 0, m), rows(packed, m, n).mt());
            let (dq, dr) = (rows(d, 0, m), rows(d, m, n).mt());
            qr_gradient(&q, &r, &dq, &dr)
        });
        Ok((rows(&packed, 0, m), rows(&packed, m, n).try_mt()?))
    }

    /// `A = U · diag(S) · Vh`, reduced: for `[…, m, n]` and `k = min(m, n)`, `U […, m, k]`, `S […, k]` descending,
    /// `Vh […, k, n]`. The gradient needs distinct singular values.
    ///
    /// # References
    /// Townsend (2016), *Differentiating the Singular Value Decomposition*, for the gradient.
    #[op(torch = ["linalg.svd", "svd"], call = call_svd)]
    pub fn svd(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let packed = factorize(LinalgOp::Svd, &self.detach())?;
        let [m, n] = matrix("svd", self)?;
        let parts = move |packed: &Tensor| (rows(packed, 0, m), rows(packed, m, 1), rows(packed, m + 1, n));
        let packed = with_rule(self, packed, Reads::Output, move |packed, d| {
            let ((u, s, v), (du, ds, dv)) = (parts(packed), parts(d));
            svd_gradient(&u, &s, &v, &du, &ds, &dv)
        });
        let (u, s, v) = parts(&packed);
        Ok((u, s.try_squeeze(-2)?, v.try_mt()?))
    }

    /// The singular values, descending.
    #[op(torch = ["linalg.svdvals"], rename(self = "A"))]
    pub fn svdvals(&self) -> Result<Tensor> {
        Ok(self.try_svd()?.1)
    }

    /// `A = V · diag(w) · Vᵀ` of a symmetric matrix: eigenvalues `w` ascending, eigenvectors as columns of `V`. The
    /// lower triangle is read, or the upper if `upper`. The gradient of `V` needs distinct eigenvalues.
    #[op(torch = ["linalg.eigh"], call = call_eigh)]
    pub fn eigh(&self, upper: bool) -> Result<(Tensor, Tensor)> {
        let lower = if upper { self.try_mt()? } else { self.clone() };
        let packed = factorize(LinalgOp::Eigh, &lower.detach())?;
        let [_, n] = matrix("eigh", self)?;
        let packed = with_rule(&lower, packed, Reads::Output, move |packed, d| {
            let (w, v, dw, dv) = (rows(packed, 0, 1), rows(packed, 1, n), rows(d, 0, 1), rows(d, 1, n));
            let gaps = reciprocal_or_zero(&(&w - w.mt()));
            let inner = gaps * v.mt().matmul(&dv) + diagonal_matrix(&dw);
            v.matmul(&inner).matmul(&v.mt())
        });
        Ok((rows(&packed, 0, 1).try_squeeze(-2)?, rows(&packed, 1, n)))
    }

    /// Eigenvalues of a symmetric matrix, ascending.
    #[op(torch = ["linalg.eigvalsh"], call = call_eigvalsh)]
    pub fn eigvalsh(&self, upper: bool) -> Result<Tensor> {
        Ok(self.try_eigh(upper)?.0)
    }

    /// `A = P · L · U` with partial pivoting: for `[…, m, n]` and `k = min(m, n)`, `P […, m, m]` a permutation,
    /// `L […, m, k]` with ones on the diagonal, `U […, k, n]`.
    #[op(torch = ["linalg.lu", "lu"], call = call_lu)]
    pub fn lu(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let [m, n] = matrix("lu", self)?;
        let packed = factorize(LinalgOp::Lu, &self.detach())?;
        let pivots = columns(&packed, n, 1).try_to_dtype(DType::I64)?; // […, m, 1]
        let factors = columns(&packed, 0, n);
        let p = permutation(&pivots, m, self.dtype())?;
        let turned = p.clone();
        let factors = with_rule(self, factors, Reads::Output, move |lu, d| turned.matmul(&lu_gradient(lu, d, m, n)));
        let k = m.min(n);
        let l = columns(&factors, 0, k).try_tril(-1)?.try_add(identity(m, k, self))?;
        let u = rows(&factors, 0, k).try_triu(0)?;
        Ok((p, l, u))
    }

    /// `X` of `A · X = B` (or `X · A = B` unless `left`) for a triangular matrix `A`.
    #[op(torch = ["linalg.solve_triangular"], rename(unit = "unitriangular", b = "B"))]
    pub fn solve_triangular(&self, b: &Tensor, upper: bool, left: bool, unit: bool) -> Result<Tensor> {
        if !left {
            return self.try_mt()?.try_solve_triangular(&b.try_mt()?, !upper, true, unit)?.try_mt();
        }
        let [n, _] = square("solve_triangular", self)?;
        let [rows_b, k] = matrix("solve_triangular", b)?;
        if rows_b != n {
            let message = format!("B {} does not fit A {}", b.shape(), self.shape());
            return Err(Error::shape("solve_triangular", message));
        }
        let batch = fornax_ir::broadcast_shapes(
            "solve_triangular",
            &self.shape()[..self.rank() - 2].into(),
            &b.shape()[..b.rank() - 2].into(),
        )?;
        let full = |tail: [usize; 2]| -> Shape { batch.iter().copied().chain(tail).collect() };
        let (a, b) = (self.try_expand(full([n, n]))?, b.try_expand(full([n, k]))?);
        let op = LinalgOp::TriangularSolve { upper, unit_diagonal: unit };
        let x = record(Op::Linalg(op), &[&a.detach(), &b.detach()], None)?;
        let (a_kept, b_kept) = (a.clone(), b.clone());
        let rule = move |dx: &[Option<Tensor>]| {
            let Some(dx) = &dx[0] else { return vec![None, None] };
            let x = a_kept.solve_triangular(&b_kept, upper, true, unit);
            let db = a_kept.mt().solve_triangular(dx, !upper, true, unit);
            let da = db.matmul(&x.mt()).neg();
            let diagonal = i64::from(unit);
            let da = if upper { da.triu(diagonal) } else { da.tril(-diagonal) };
            vec![Some(da), Some(db)]
        };
        Ok(custom_gradient(&[&a, &b], |_| vec![x], rule).swap_remove(0))
    }

    /// `X` of `A · X = B` (or `X · A = B` unless `left`) for a square matrix `A`. `B` may be a vector `[…, n]` if it has
    /// one dim less than `A` and fits its batch.
    #[op(torch = ["linalg.solve", "solve"], rename(self = "A", b = "B"), default(left = true))]
    pub fn solve(&self, b: &Tensor, left: bool) -> Result<Tensor> {
        let [n, _] = square("solve", self)?;
        let vector = b.rank() == 1 || (b.rank() + 1 == self.rank() && b.shape()[..] == self.shape()[..self.rank() - 1]);
        if vector {
            return self.try_solve(&b.try_unsqueeze(-1)?, true)?.try_squeeze(-1);
        }
        if !left {
            return self.try_mt()?.try_solve(&b.try_mt()?, true)?.try_mt();
        }
        if b.rank() < 2 || b.shape()[b.rank() - 2] != n {
            return Err(Error::shape("solve", format!("B {} does not fit A {}", b.shape(), self.shape())));
        }
        let (a_wide, b_wide) = (self.detach().to_dtype(DType::F64), b.detach().to_dtype(DType::F64));
        let (p, l, u) = a_wide.try_lu()?;
        let y = l.try_solve_triangular(&p.try_mt()?.try_matmul(&b_wide)?, false, true, true)?;
        let x = u.try_solve_triangular(&y, true, true, false)?.try_to_dtype(self.dtype())?;
        let (a_kept, b_kept) = (self.clone(), b.clone());
        let rule = move |dx: &[Option<Tensor>]| {
            let Some(dx) = &dx[0] else { return vec![None, None] };
            let x = a_kept.solve(&b_kept, true);
            let db = a_kept.mt().solve(dx, true);
            let da = db.matmul(&x.mt()).neg();
            vec![Some(sum_to(&da, a_kept.shape())), Some(sum_to(&db, b_kept.shape()))]
        };
        Ok(custom_gradient(&[self, b], |_| vec![x], rule).swap_remove(0))
    }

    /// The inverse of a square matrix.
    #[op(torch = ["linalg.inv", "inverse"], rename(self = "A"))]
    pub fn inv(&self) -> Result<Tensor> {
        let [n, _] = square("inv", self)?;
        let mut shape = self.shape().clone();
        shape.dims_mut()[self.rank() - 2] = n;
        self.try_solve(&identity(n, n, self).try_expand(shape)?, true)
    }

    /// The determinant. Its gradient is the cofactor matrix, right for singular matrices too.
    #[op(torch = ["linalg.det", "det"], rename(self = "A"))]
    pub fn det(&self) -> Result<Tensor> {
        square("det", self)?;
        let det = product_of_pivots(&self.detach().to_dtype(DType::F64))?.try_to_dtype(self.dtype())?;
        Ok(with_rule(self, det, Reads::Input, |a, dy| {
            let wide = a.to_dtype(DType::F64);
            let (u, s, vh) = wide.svd();
            let others = product_of_others(&s); // […, n]
            let sign = (u.detach().det() * vh.detach().det()).unsqueeze(-1).unsqueeze(-1);
            let cofactors = (&u * others.unsqueeze(-2)).matmul(&vh) * sign;
            cofactors.to_dtype(a.dtype()) * dy.unsqueeze(-1).unsqueeze(-1)
        }))
    }

    /// Sign and logarithm of the absolute value of the determinant.
    #[op(torch = ["linalg.slogdet", "slogdet"], rename(self = "A"))]
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        square("slogdet", self)?;
        let wide = self.detach().to_dtype(DType::F64);
        let (sign, log) = sign_and_log(&wide)?;
        let log = with_rule(self, log.try_to_dtype(self.dtype())?, Reads::Input, |a, dy| {
            a.inv().mt() * dy.unsqueeze(-1).unsqueeze(-1)
        });
        Ok((sign.try_to_dtype(self.dtype())?, log))
    }

    /// Logarithm of the determinant: NaN if it is negative, −∞ if it is 0.
    #[op]
    pub fn logdet(&self) -> Result<Tensor> {
        let (sign, log) = self.try_slogdet()?;
        sign.try_lt(0.0)?.try_where_(f64::NAN, &log)?.try_to_dtype(self.dtype())
    }

    /// The pseudoinverse: singular values of at most `max(atol, rtol · largest)` count as zero. By default `atol` is 0
    /// and `rtol` the machine epsilon times the larger size (0 if `atol` is given).
    ///
    /// # References
    /// Golub, Pereyra (1973), *The Differentiation of Pseudo-Inverses*, for the gradient.
    #[op(torch = ["linalg.pinv", "pinverse"], call = call_pinv)]
    pub fn pinv(&self, atol: Option<f64>, rtol: Option<f64>) -> Result<Tensor> {
        let [m, n] = matrix("pinv", self)?;
        let (u, s, vh) = self.detach().to_dtype(DType::F64).try_svd()?;
        let cut = cutoff(&s, atol, rtol, m.max(n), self.dtype())?;
        let inverse = s.try_gt(&cut)?.try_where_(s.try_reciprocal()?, 0.0)?;
        let p = vh.try_mt()?.try_mul(inverse.try_unsqueeze(-2)?)?.try_matmul(&u.try_mt()?)?;
        Ok(with_rule(self, p.try_to_dtype(self.dtype())?, Reads::Input, move |a, dy| {
            let p = a.pinv(atol, rtol);
            let g = dy.mt();
            if m <= n {
                let k = g.matmul(&p);
                let kp = k.matmul(&p.mt());
                kp.clone() - p.matmul(&k).mt() - a.matmul(&p).matmul(&kp) + p.mt().matmul(&p).matmul(&(g - k.matmul(a)))
            } else {
                let k = p.matmul(&g);
                let pk = p.mt().matmul(&k);
                pk.clone() - k.matmul(&p).mt() - pk.matmul(&p).matmul(a) + (g - a.matmul(&k)).matmul(&p).matmul(&p.mt())
            }
        }))
    }

    /// Number of singular values above `max(atol, rtol · largest)` (`i64`); defaults as [`Tensor::pinv`].
    #[op(torch = ["linalg.matrix_rank"], call = call_matrix_rank, grad = false)]
    pub fn matrix_rank(&self, atol: Option<f64>, rtol: Option<f64>) -> Result<Tensor> {
        let [m, n] = matrix("matrix_rank", self)?;
        let s = self.detach().to_dtype(DType::F64).try_svdvals()?;
        let cut = cutoff(&s, atol, rtol, m.max(n), self.dtype())?;
        s.try_gt(&cut)?.try_sum(-1)
    }

    /// Least squares: the `X` of least norm that minimizes `‖A · X − B‖` column by column.
    #[op(torch = ["linalg.lstsq"], call = call_lstsq)]
    pub fn lstsq(&self, b: &Tensor) -> Result<Tensor> {
        let wide = self.try_to_dtype(DType::F64)?.try_pinv(None, None)?;
        wide.try_matmul(&b.try_to_dtype(DType::F64)?)?.try_to_dtype(self.dtype())
    }

    /// `Aⁿ`; a negative `n` is a power of the inverse.
    #[op(torch = ["linalg.matrix_power", "matrix_power"])]
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let [size, _] = square("matrix_power", self)?;
        let mut base = if n < 0 { self.try_inv()? } else { self.clone() };
        let mut left = n.unsigned_abs();
        let mut power: Option<Tensor> = None;
        while left > 0 {
            if left & 1 == 1 {
                power = Some(match power {
                    Some(power) => power.try_matmul(&base)?,
                    None => base.clone(),
                });
            }
            left >>= 1;
            if left > 0 {
                base = base.try_matmul(&base)?;
            }
        }
        match power {
            Some(power) => Ok(power),
            None => identity(size, size, self).try_expand(self.shape()),
        }
    }

    /// `e^A` of a square matrix, by scaling, a Taylor polynomial of degree 18, and squaring.
    ///
    /// # References
    /// Bader, Blanes, Casas (2019), *Computing the Matrix Exponential with an Optimized Taylor Polynomial
    /// Approximation*.
    #[op(torch = ["matrix_exp", "linalg.matrix_exp"])]
    pub fn matrix_exp(&self) -> Result<Tensor> {
        let [n, _] = square("matrix_exp", self)?;
        let wide = self.try_to_dtype(DType::F64)?;
        // Divided by 2^20, matrices of norm up to a million are within reach of the polynomial; f64 keeps what the
        // twenty squarings lose.
        let squarings = 10;
        let scaled = wide.try_mul(1.0 / f64::from(1 << squarings))?;
        let unit = identity(n, n, &wide).try_expand(wide.shape())?;
        let mut sum = unit.clone();
        for degree in (1..=18u32).rev() {
            sum = scaled.try_matmul(&sum)?.try_mul(1.0 / f64::from(degree))?.try_add(&unit)?;
        }
        for _ in 0..squarings {
            sum = sum.try_matmul(&sum)?;
        }
        sum.try_to_dtype(self.dtype())
    }

    /// `X` of `A · X = B`, given the Cholesky factor of `A`; the factor is the second operand.
    #[op(rename(factor = "input2"))]
    pub fn cholesky_solve(&self, factor: &Tensor, upper: bool) -> Result<Tensor> {
        let solve = move |b: &Tensor, factor: &Tensor| -> Result<Tensor> {
            let lower = if upper { factor.try_mt()? } else { factor.clone() };
            let y = lower.try_solve_triangular(b, false, true, false)?;
            lower.try_mt()?.try_solve_triangular(&y, true, true, false)
        };
        let x = solve(&self.detach(), &factor.detach())?;
        let (b_kept, factor_kept) = (self.clone(), factor.clone());
        let rule = move |dx: &[Option<Tensor>]| {
            let Some(dx) = &dx[0] else { return vec![None, None] };
            let db = dx.cholesky_solve(&factor_kept, upper);
            let x = b_kept.cholesky_solve(&factor_kept, upper);
            let common = db.matmul(&x.mt());
            let common = &common + common.mt();
            // As PyTorch, with respect to all of the factor, not only its triangle.
            let df = if upper { factor_kept.matmul(&common) } else { common.matmul(&factor_kept) }.neg();
            vec![Some(sum_to(&db, b_kept.shape())), Some(sum_to(&df, factor_kept.shape()))]
        };
        Ok(custom_gradient(&[self, factor], |_| vec![x], rule).swap_remove(0))
    }

    /// The inverse of `A`, given its Cholesky factor.
    #[op]
    pub fn cholesky_inverse(&self, upper: bool) -> Result<Tensor> {
        let [n, _] = square("cholesky_inverse", self)?;
        identity(n, n, self).try_expand(self.shape())?.try_cholesky_solve(self, upper)
    }

    /// The first columns of `H₁ · H₂ · …` with reflectors `Hᵢ = I − tauᵢ vᵢ vᵢᵀ`, `vᵢ` below the diagonal of column i.
    #[op(torch = ["linalg.householder_product"])]
    pub fn householder_product(&self, tau: &Tensor) -> Result<Tensor> {
        let [m, n] = matrix("householder_product", self)?;
        let k = tau.shape().last().copied().unwrap_or(0);
        if tau.rank() + 1 != self.rank() || k > n || n > m {
            let message = format!("tau {} does not fit {}", tau.shape(), self.shape());
            return Err(Error::shape("householder_product", message));
        }
        let v = self.try_tril(-1)?.try_add(identity(m, n, self))?;
        let mut shape = self.shape().clone();
        shape.dims_mut()[self.rank() - 1] = n;
        let mut q = identity(m, n, self).try_expand(shape)?;
        for i in (0..k).rev() {
            let column = columns(&v, i, 1); // […, m, 1]
            let factor = tau.try_narrow(-1, i as i64, 1)?.try_unsqueeze(-1)?;
            let projected = column.try_mt()?.try_matmul(&q)?;
            q = q.try_sub(factor.try_mul(column.try_matmul(&projected)?)?)?;
        }
        Ok(q)
    }

    /// The ratio of the largest to the smallest singular value, or `‖A‖ · ‖A⁻¹‖` in the norm named by `p`.
    #[op(torch = ["linalg.cond"], call = call_cond)]
    pub fn cond(&self) -> Result<Tensor> {
        let s = self.try_svdvals()?;
        s.try_amax(-1)?.try_div(s.try_amin(-1)?)
    }

    /// The inverse of a tensor seen as a matrix from its last dims to its first `ind`.
    #[op(torch = ["linalg.tensorinv"])]
    pub fn tensorinv(&self, ind: usize) -> Result<Tensor> {
        if ind == 0 || ind >= self.rank() {
            return Err(Error::argument("tensorinv", format!("ind {ind} does not split {}", self.shape())));
        }
        let (head, tail) = self.shape().split_at(ind);
        let (m, n): (usize, usize) = (head.iter().product(), tail.iter().product());
        let shape: Vec<usize> = tail.iter().chain(head).copied().collect();
        self.try_reshape([m, n])?.try_inv()?.try_reshape(shape)
    }

    /// `X` of `tensordot(A, X) = B`: `A` has the dims of `B` in front; `dims` of `A` are moved to the end first.
    #[op(torch = ["linalg.tensorsolve"], with(dims = Option<Vec<i64>>))]
    pub fn tensorsolve(&self, other: &Tensor, dims: Option<Vec<i64>>) -> Result<Tensor> {
        let mut a = self.clone();
        if let Some(dims) = dims {
            let moved: Vec<usize> = dims
                .iter()
                .map(|&dim| crate::dims::resolve_dim("tensorsolve", dim, self.shape()))
                .collect::<Result<_>>()?;
            let perm: Vec<i64> = (0..self.rank())
                .filter(|dim| !moved.contains(dim))
                .chain(moved.iter().copied())
                .map(|dim| dim as i64)
                .collect();
            a = self.try_permute(&perm)?;
        }
        if a.rank() < other.rank() {
            return Err(Error::shape("tensorsolve", format!("B {} does not fit A {}", other.shape(), a.shape())));
        }
        let tail: Vec<usize> = a.shape()[other.rank()..].to_vec();
        let n = other.numel();
        a.try_reshape([n as i64, -1])?.try_solve(&other.try_reshape([n])?, true)?.try_reshape(tail)
    }
}

#[track_caller]
fn factorize(op: LinalgOp, a: &Tensor) -> Result<Tensor> {
    record(Op::Linalg(op), &[a], None)
}

fn matrix(op: &str, a: &Tensor) -> Result<[usize; 2]> {
    match a.shape()[..] {
        [.., m, n] => Ok([m, n]),
        _ => Err(Error::shape(op, format!("{} is not a matrix or a batch of them", a.shape()))),
    }
}

fn square(op: &str, a: &Tensor) -> Result<[usize; 2]> {
    let [m, n] = matrix(op, a)?;
    if m == n { Ok([m, n]) } else { Err(Error::shape(op, format!("the matrices of {} are not square", a.shape()))) }
}

/// `count` rows from `start` on.
#[track_caller]
fn rows(a: &Tensor, start: usize, count: usize) -> Tensor {
    part(a, a.rank() - 2, start, count)
}

/// `count` columns from `start` on.
#[track_caller]
fn columns(a: &Tensor, start: usize, count: usize) -> Tensor {
    part(a, a.rank() - 1, start, count)
}

#[track_caller]
fn part(a: &Tensor, dim: usize, start: usize, count: usize) -> Tensor {
    let mut starts = Dims::from_elem(0, a.rank());
    starts[dim] = start;
    match slice(a, &starts, &vec![1; a.rank()], &a.shape().with_dim(dim, count)) {
        Ok(part) => part,
        Err(error) => error.raise(),
    }
}

/// `[m, n]` with ones on the diagonal.
#[track_caller]
fn identity(m: usize, n: usize, like: &Tensor) -> Tensor {
    let row = Tensor::arange(0, m, 1, DType::I64, like.device()).unsqueeze(1);
    row.eq(Tensor::arange(0, n, 1, DType::I64, like.device())).to_dtype(like.dtype())
}

/// A row `[…, 1, n]` on the diagonal of `[…, n, n]`.
#[track_caller]
fn diagonal_matrix(row: &Tensor) -> Tensor {
    let n = row.shape()[row.rank() - 1];
    row * identity(n, n, row)
}

/// The lower triangle with the diagonal halved.
#[track_caller]
fn half_tril(a: &Tensor) -> Tensor {
    a.tril(0) - a.tril(0).triu(0) * 0.5
}

#[track_caller]
fn reciprocal_or_zero(x: &Tensor) -> Tensor {
    // The zero is taken out before the division: its slope there would be ∞ · 0.
    let is_zero = x.detach().eq(0.0);
    let safe = is_zero.where_(1.0, x).to_dtype(x.dtype());
    is_zero.where_(0.0, safe.reciprocal()).to_dtype(x.dtype())
}

/// `P` of `A = P · L · U` from the row numbers that pivoting chose.
#[track_caller]
fn permutation(pivots: &Tensor, m: usize, dtype: DType) -> Result<Tensor> {
    let numbers = Tensor::arange(0, m, 1, DType::I64, pivots.device());
    pivots.try_eq(&numbers)?.try_to_dtype(dtype)?.try_mt()
}

#[track_caller]
fn sum_to(x: &Tensor, shape: &Shape) -> Tensor {
    let dims = crate::primitive::broadcast_dims(shape, x.shape());
    let summed = if dims.is_empty() { x.clone() } else { x.sum(keepdim(dims)) };
    summed.reshape(shape)
}

/// The gradient of `A` from those of `Q` and `R`.
#[track_caller]
fn qr_gradient(q: &Tensor, r: &Tensor, dq: &Tensor, dr: &Tensor) -> Tensor {
    let (k, n) = (r.shape()[r.rank() - 2], r.shape()[r.rank() - 1]);
    if k == n {
        let m = r.matmul(&dr.mt()) - dq.mt().matmul(q);
        let symmetric = m.tril(-1) + m.tril(-1).mt() + m.tril(0).triu(0);
        let inner = dq + q.matmul(&symmetric);
        return r.solve_triangular(&inner.mt(), true, true, false).mt();
    }
    // More columns than rows: A = [X, Y] = Q · [U, V] with square U; Y = Q V adds to the gradient of Q.
    let (u, du) = (columns(r, 0, k), columns(dr, 0, k));
    let (v, dv) = (columns(r, k, n - k), columns(dr, k, n - k));
    let y = q.matmul(&v);
    let dx = qr_gradient(q, &u, &(dq + y.matmul(&dv.mt())), &du);
    Tensor::cat(&[&dx, &q.matmul(&dv)], -1)
}

/// The gradient of `A` from those of its parts. `s` and `ds` are rows `[…, 1, k]`, `v` has columns.
#[track_caller]
fn svd_gradient(u: &Tensor, s: &Tensor, v: &Tensor, du: &Tensor, ds: &Tensor, dv: &Tensor) -> Tensor {
    let squares = s * s;
    let gaps = reciprocal_or_zero(&(&squares - squares.mt()));
    let (utdu, vtdv) = (u.mt().matmul(du), v.mt().matmul(dv));
    let rotate = |x: &Tensor| &gaps * (x - x.mt());
    let inner = rotate(&utdu) * s + s.mt() * rotate(&vtdv) + diagonal_matrix(ds);
    let inverse = reciprocal_or_zero(s);
    let left = (du - u.matmul(&utdu)) * &inverse;
    let right = (dv - v.matmul(&vtdv)) * &inverse;
    u.matmul(&inner).matmul(&v.mt()) + left.matmul(&v.mt()) + u.matmul(&right.mt())
}

/// The gradient of `Pᵀ · A` from that of the packed factors `L − I + U`.
#[track_caller]
fn lu_gradient(lu: &Tensor, d: &Tensor, m: usize, n: usize) -> Tensor {
    let k = m.min(n);
    let (l, u) = (rows(&columns(lu, 0, k), 0, k).tril(-1) + identity(k, k, lu), rows(&columns(lu, 0, k), 0, k).triu(0));
    let corner = rows(&columns(d, 0, k), 0, k);
    let (dl, du) = (corner.tril(-1), corner.triu(0));
    let mut lower = l.mt().matmul(&dl);
    let mut upper = du.matmul(&u.mt());
    let (mut below, mut beside) = (None, None);
    if m > n {
        let (l2, dl2) = (rows(lu, k, m - k), rows(d, k, m - k));
        upper -= l2.mt().matmul(&dl2);
        below = Some(u.solve_triangular(&dl2.mt(), true, true, false).mt());
    } else if n > m {
        let (u2, du2) = (columns(lu, k, n - k), columns(d, k, n - k));
        lower -= du2.matmul(&u2.mt());
        beside = Some(l.mt().solve_triangular(&du2, true, true, true));
    }
    let inner = lower.tril(-1) + upper.triu(0);
    let left = l.mt().solve_triangular(&inner, true, true, true);
    let square = u.solve_triangular(&left.mt(), true, true, false).mt();
    match (below, beside) {
        (Some(below), _) => Tensor::cat(&[&square, &below], -2),
        (_, Some(beside)) => Tensor::cat(&[&square, &beside], -1),
        _ => square,
    }
}

/// The pivots `[…, n]` of `A`, and the sign of the row permutation `[…]`, as `f64`.
#[track_caller]
fn pivots_and_sign(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let n = a.shape()[a.rank() - 1];
    let packed = factorize(LinalgOp::Lu, a)?;
    let diagonal = columns(&packed, 0, n).try_mul(identity(n, n, a))?.try_sum(-1)?;
    // The sign of a permutation: −1 to the number of pairs in the wrong order.
    let order = columns(&packed, n, 1);
    let inverted = order.try_gt(order.try_mt()?)?.try_to_dtype(DType::F64)?.try_triu(1)?.try_sum([-2, -1])?;
    let sign = inverted.try_remainder(2.0)?.try_mul(-2.0)?.try_add(1.0)?;
    Ok((diagonal, sign))
}

#[track_caller]
fn product_of_pivots(a: &Tensor) -> Result<Tensor> {
    let (pivots, sign) = pivots_and_sign(a)?;
    pivots.try_prod(-1)?.try_mul(sign)
}

#[track_caller]
fn sign_and_log(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (pivots, sign) = pivots_and_sign(a)?;
    Ok((pivots.try_sign()?.try_prod(-1)?.try_mul(sign)?, pivots.try_abs()?.try_log()?.try_sum(-1)?))
}

/// For each element of a row, the product of the others.
#[track_caller]
fn product_of_others(s: &Tensor) -> Tensor {
    let n = s.shape()[s.rank() - 1];
    let own = identity(n, n, s).eq(1.0);
    own.where_(1.0, s.unsqueeze(-2)).to_dtype(s.dtype()).prod(-1)
}

/// Singular values up to this count as zero: `[…, 1]`.
#[track_caller]
fn cutoff(s: &Tensor, atol: Option<f64>, rtol: Option<f64>, size: usize, dtype: DType) -> Result<Tensor> {
    let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let default = if atol.is_some_and(|atol| atol > 0.0) { 0.0 } else { epsilon * size as f64 };
    let (atol, rtol) = (atol.unwrap_or(0.0), rtol.unwrap_or(default));
    if s.shape()[s.rank() - 1] == 0 {
        return s.try_sum(keepdim(-1));
    }
    s.try_amax(keepdim(-1))?.try_mul(rtol)?.try_maximum(atol)
}

type Called = Result<Vec<Tensor>>;

fn call_qr(args: &Args) -> Called {
    let (q, r) = args.get::<Tensor>("input")?.try_qr()?;
    // The cases list `R` alone; both follow PyTorch's order otherwise.
    Ok(vec![q, r])
}

/// PyTorch gives square `U` and `Vh` unless told otherwise.
fn call_svd(args: &Args) -> Called {
    let (u, s, vh) = args.get::<Tensor>("input")?.try_svd()?;
    if args.get::<Option<bool>>("full_matrices")?.unwrap_or(true) {
        return Ok(vec![completed(&u)?, s, completed(&vh.try_mt()?)?.try_mt()?]);
    }
    Ok(vec![u, s, vh])
}

/// Orthonormal columns, and as many more that the matrix is square. The new ones have no gradient.
#[track_caller]
fn completed(q: &Tensor) -> Result<Tensor> {
    let [m, k] = matrix("svd", q)?;
    if m == k {
        return Ok(q.clone());
    }
    let mut shape = q.shape().clone();
    shape.dims_mut()[q.rank() - 1] = m;
    let candidates = Tensor::try_cat(&[&q.detach(), &identity(m, m, q).try_expand(shape)?], -1)?;
    let whole = candidates.try_qr()?.0;
    Tensor::try_cat(&[q, &columns(&whole, k, m - k)], -1)
}

fn is_upper(args: &Args) -> Result<bool> {
    Ok(args.get::<Option<String>>("UPLO")?.is_some_and(|name| name.eq_ignore_ascii_case("U")))
}

fn call_eigh(args: &Args) -> Called {
    let (w, v) = args.get::<Tensor>("input")?.try_eigh(is_upper(args)?)?;
    Ok(vec![w, v])
}

fn call_eigvalsh(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_eigvalsh(is_upper(args)?)?])
}

fn call_lu(args: &Args) -> Called {
    let (p, l, u) = args.get::<Tensor>("input")?.try_lu()?;
    Ok(vec![p, l, u])
}

fn call_pinv(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_pinv(args.get("atol")?, args.get("rtol")?)?])
}

/// Tolerances may be tensors here, one for each matrix.
fn call_matrix_rank(args: &Args) -> Called {
    let a = args.get::<Tensor>("input")?;
    let list = |name: &str| -> Result<Option<Tensor>> {
        match args.get::<Arg>(name)? {
            Arg::Tensor(tensor) if tensor.numel() != 1 => Ok(Some(tensor.try_to_dtype(DType::F64)?)),
            _ => Ok(None),
        }
    };
    let (atol, rtol) = (list("atol")?, list("rtol")?);
    if atol.is_none() && rtol.is_none() {
        return Ok(vec![a.try_matrix_rank(args.get("atol")?, args.get("rtol")?)?]);
    }
    let s = a.detach().try_to_dtype(DType::F64)?.try_svdvals()?;
    let zero = Tensor::full((), 0.0, DType::F64, a.device());
    let absolute = atol.unwrap_or_else(|| zero.clone()).try_unsqueeze(-1)?;
    let relative = rtol.unwrap_or(zero).try_unsqueeze(-1)?;
    let cut = s.try_amax(keepdim(-1))?.try_mul(&relative)?.try_maximum(&absolute)?;
    Ok(vec![s.try_gt(&cut)?.try_sum(-1)?])
}

/// PyTorch's four results. Residuals only where there are more rows than columns and the rank is known to be full,
/// which the driver `gelsy` does not tell here; the rank for all drivers but `gels`.
fn call_lstsq(args: &Args) -> Called {
    let (a, b) = (args.get::<Tensor>("input")?, args.get::<Tensor>("b")?);
    let [m, n] = matrix("lstsq", &a)?;
    let x = a.try_lstsq(&b)?;
    let none = |dtype: DType| Tensor::full([0], 0, dtype, a.device());
    let driver = args.get::<Option<String>>("driver")?;
    let gels = driver.as_deref() == Some("gels");
    let by_values = matches!(driver.as_deref(), Some("gelsd" | "gelss"));
    let residuals =
        if m > n && n > 0 { a.try_matmul(&x)?.try_sub(&b)?.try_square()?.try_sum(-2)? } else { none(a.dtype()) };
    let rank = if gels { none(DType::I64) } else { a.try_matrix_rank(None, None)? };
    let values = if by_values { a.try_svdvals()? } else { none(a.dtype()) };
    Ok(vec![x, residuals, rank, values])
}

fn call_cond(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_cond()?])
}
