//! Dense linear algebra by textbook methods in `f64`: chosen for accuracy and plainness, not for speed.
//!
//! Golub, Van Loan (2013), *Matrix Computations*, 4th edition: Cholesky 4.2, LU 3.4, Householder QR 5.2, Jacobi
//! eigenvalues 8.5, one-sided Jacobi SVD 8.6.3. The general eigenproblem has its own file.

mod eig;

use super::value::Value;
use crate::{LinalgOp, Shape};
use alloc::string::String;
use alloc::{format, vec::Vec};
use core::ops::{Index, IndexMut};

/// Sweeps after which a Jacobi method has failed; ten suffice for all but absurd matrices.
const MAX_SWEEPS: usize = 60;

/// A dense row-major matrix.
#[derive(Clone, Debug, PartialEq)]
struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, data: alloc::vec![0.0; rows * columns] }
    }

    fn identity(n: usize) -> Matrix {
        let mut matrix = Matrix::zeros(n, n);
        (0..n).for_each(|i| matrix[(i, i)] = 1.0);
        matrix
    }

    fn from_fn(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Matrix {
        let mut matrix = Matrix::zeros(rows, columns);
        for i in 0..rows {
            for j in 0..columns {
                matrix[(i, j)] = at(i, j);
            }
        }
        matrix
    }

    fn transpose(&self) -> Matrix {
        Matrix::from_fn(self.columns, self.rows, |i, j| self[(j, i)])
    }

    /// The rows of all parts, one part below the other.
    fn stack(parts: &[&Matrix]) -> Matrix {
        let data = parts.iter().flat_map(|part| &part.data).copied().collect();
        Matrix { rows: parts.iter().map(|part| part.rows).sum(), columns: parts[0].columns, data }
    }

    fn is_finite(&self) -> bool {
        self.data.iter().all(|x| x.is_finite())
    }

    /// The largest absolute value.
    fn max_abs(&self) -> f64 {
        self.data.iter().fold(0.0, |max: f64, x| max.max(x.abs()))
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        assert!(row < self.rows && column < self.columns);
        &self.data[row * self.columns + column]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        assert!(row < self.rows && column < self.columns);
        &mut self.data[row * self.columns + column]
    }
}

/// Each matrix of the batch by itself. One that faults leaves zeros.
pub(crate) fn run(op: LinalgOp, x: &[&Value], shape: &Shape, fault: &mut Option<String>) -> Value {
    let batch = shape.len() - if op == LinalgOp::Eig { 3 } else { 2 };
    let numbers: Vec<Vec<f64>> = x.iter().map(|x| x.floats()).collect();
    // Also ends a batch of countless empty matrices at once.
    let count = if shape.numel() == 0 { 0 } else { shape[..batch].iter().product() };
    let size: usize = shape[batch..].iter().product();
    let mut data: Vec<f64> = Vec::with_capacity(shape.numel());
    for number in 0..count {
        let operand = |i: usize| {
            let (rows, columns) = (x[i].shape[batch], x[i].shape[batch + 1]);
            let data = numbers[i][number * rows * columns..][..rows * columns].to_vec();
            Matrix { rows, columns, data }
        };
        let a = operand(0);
        let result = match op {
            LinalgOp::Cholesky => cholesky(&a),
            LinalgOp::Lu => Ok(lu(a)),
            LinalgOp::Qr => Ok(qr(&a)),
            LinalgOp::Svd => svd(&a),
            LinalgOp::Eigh => eigh(&a),
            LinalgOp::Eig => eig::eig(&a),
            LinalgOp::TriangularSolve { upper, unit_diagonal } => solve(&a, operand(1), upper, unit_diagonal),
        };
        match result {
            Ok(matrix) => data.extend(matrix.data),
            Err(message) => {
                super::note(fault, || format!("matrix {number} of the batch: {message}"));
                data.resize(data.len() + size, 0.0);
            }
        }
    }
    Value::from_floats(x[0].dtype, shape, &data)
}

type Factors = Result<Matrix, String>;

fn cholesky(a: &Matrix) -> Factors {
    let n = a.rows;
    let mut l = Matrix::zeros(n, n);
    for j in 0..n {
        let pivot = a[(j, j)] - (0..j).map(|k| l[(j, k)] * l[(j, k)]).sum::<f64>();
        // NaN fails as well.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(format!("not positive definite: pivot {j} is {pivot}"));
        }
        l[(j, j)] = libm::sqrt(pivot);
        for i in j + 1..n {
            let sum = a[(i, j)] - (0..j).map(|k| l[(i, k)] * l[(j, k)]).sum::<f64>();
            l[(i, j)] = sum / l[(j, j)];
        }
    }
    Ok(l)
}

/// A singular matrix has a zero on the diagonal of `U`, which is no fault.
fn lu(mut a: Matrix) -> Matrix {
    let (m, n) = (a.rows, a.columns);
    let mut rows: Vec<usize> = (0..m).collect();
    for j in 0..m.min(n) {
        // The first of the largest, as in LAPACK.
        let mut pivot = j;
        for i in j + 1..m {
            if a[(i, j)].abs() > a[(pivot, j)].abs() {
                pivot = i;
            }
        }
        rows.swap(j, pivot);
        for k in 0..n {
            (a[(j, k)], a[(pivot, k)]) = (a[(pivot, k)], a[(j, k)]);
        }
        if a[(j, j)] == 0.0 {
            continue;
        }
        for i in j + 1..m {
            a[(i, j)] /= a[(j, j)];
            for k in j + 1..n {
                a[(i, k)] -= a[(i, j)] * a[(j, k)];
            }
        }
    }
    Matrix::from_fn(m, n + 1, |i, j| if j < n { a[(i, j)] } else { rows[i] as f64 })
}

/// Reflections as in LAPACK: a column that is zero below its diagonal stays, any other gets a diagonal of the opposite sign.
fn qr(a: &Matrix) -> Matrix {
    let (m, n, k) = (a.rows, a.columns, a.rows.min(a.columns));
    let mut r = a.clone();
    let mut reflectors: Vec<Vec<f64>> = Vec::new();
    for j in 0..k {
        let mut v: Vec<f64> = (j..m).map(|i| r[(i, j)]).collect();
        if v[1..].iter().all(|&x| x == 0.0) {
            reflectors.push(alloc::vec![0.0; v.len()]);
            continue;
        }
        let length = norm(&v);
        v[0] += libm::copysign(length, v[0]);
        let length = norm(&v);
        v.iter_mut().for_each(|x| *x /= length);
        reflect(&mut r, &v, j);
        (j + 1..m).for_each(|i| r[(i, j)] = 0.0);
        reflectors.push(v);
    }
    let mut q = Matrix::from_fn(m, k, |i, j| f64::from(u8::from(i == j)));
    for (j, v) in reflectors.iter().enumerate().rev() {
        reflect(&mut q, v, j);
    }
    let r = Matrix::from_fn(k, n, |i, j| r[(i, j)]);
    Matrix::stack(&[&q, &r.transpose()])
}

/// `(1 − 2 v vᵀ) · a` on the rows from `first` on.
fn reflect(a: &mut Matrix, v: &[f64], first: usize) {
    for column in 0..a.columns {
        let dot: f64 = v.iter().enumerate().map(|(i, x)| x * a[(first + i, column)]).sum();
        for (i, x) in v.iter().enumerate() {
            a[(first + i, column)] -= 2.0 * dot * x;
        }
    }
}

/// Euclidean length, without overflow.
fn norm(v: &[f64]) -> f64 {
    let max = v.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    if max == 0.0 || !max.is_finite() {
        return max;
    }
    max * libm::sqrt(v.iter().map(|x| (x / max) * (x / max)).sum::<f64>())
}

fn svd(a: &Matrix) -> Factors {
    if !a.is_finite() {
        return Err("holds NaN or infinity".into());
    }
    let (left, values, right) = if a.rows >= a.columns {
        svd_tall(a.clone())?
    } else {
        let (right, values, left) = svd_tall(a.transpose())?;
        (left, values, right)
    };
    let values = Matrix { rows: 1, columns: values.len(), data: values };
    Ok(Matrix::stack(&[&left, &values, &right]))
}

/// One-sided Jacobi: rotates pairs of columns until all are orthogonal; their lengths are the singular values.
fn svd_tall(mut a: Matrix) -> Result<(Matrix, Vec<f64>, Matrix), String> {
    let (m, n) = (a.rows, a.columns);
    let scale = a.max_abs().max(f64::MIN_POSITIVE);
    a.data.iter_mut().for_each(|x| *x /= scale);
    let mut v = Matrix::identity(n);
    let mut sweeps = 0;
    loop {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let dot = |i: usize, j: usize| (0..m).map(|row| a[(row, i)] * a[(row, j)]).sum::<f64>();
                let (alpha, beta, gamma) = (dot(p, p), dot(q, q), dot(p, q));
                if gamma.abs() <= f64::EPSILON * libm::sqrt(alpha * beta) || gamma.abs() < f64::MIN_POSITIVE {
                    continue;
                }
                rotated = true;
                let zeta = (beta - alpha) / (2.0 * gamma);
                let tan = libm::copysign(1.0, zeta) / (zeta.abs() + libm::hypot(1.0, zeta));
                let cos = 1.0 / libm::hypot(1.0, tan);
                rotate_columns(&mut a, p, q, cos, cos * tan);
                rotate_columns(&mut v, p, q, cos, cos * tan);
            }
        }
        if !rotated {
            break;
        }
        sweeps += 1;
        if sweeps == MAX_SWEEPS {
            return Err("singular values do not converge".into());
        }
    }
    let column = |matrix: &Matrix, j: usize| (0..matrix.rows).map(|i| matrix[(i, j)]).collect::<Vec<f64>>();
    let lengths: Vec<f64> = (0..n).map(|j| norm(&column(&a, j))).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let largest = order.first().map_or(0.0, |&j| lengths[j]);
    let mut left: Vec<Vec<f64>> = Vec::new();
    for &j in &order {
        // A column that is zero but for rounding has no direction of its own.
        let mut unit = None;
        if lengths[j] > largest * f64::EPSILON * m as f64 {
            unit = Some(column(&a, j).into_iter().map(|x| x / lengths[j]).collect());
        }
        let unit = unit.unwrap_or_else(|| orthogonal(&left, m));
        left.push(unit);
    }
    let u = Matrix::from_fn(m, n, |i, j| left[j][i]);
    let right = Matrix::from_fn(n, n, |i, j| v[(i, order[j])]);
    Ok((u, order.iter().map(|&j| lengths[j] * scale).collect(), right))
}

fn rotate_columns(a: &mut Matrix, p: usize, q: usize, cos: f64, sin: f64) {
    for row in 0..a.rows {
        let (x, y) = (a[(row, p)], a[(row, q)]);
        a[(row, p)] = cos * x - sin * y;
        a[(row, q)] = sin * x + cos * y;
    }
}

/// A unit vector orthogonal to all of `units`, which are fewer than `m`: the unit axis that sticks out most, projected twice.
fn orthogonal(units: &[Vec<f64>], m: usize) -> Vec<f64> {
    let outside = |axis: usize| 1.0 - units.iter().map(|unit| unit[axis] * unit[axis]).sum::<f64>();
    let axis = (0..m).max_by(|&i, &j| outside(i).total_cmp(&outside(j))).expect("a matrix with columns has rows");
    let mut vector: Vec<f64> = (0..m).map(|i| f64::from(u8::from(i == axis))).collect();
    for _ in 0..2 {
        for unit in units {
            let dot: f64 = unit.iter().zip(&vector).map(|(u, x)| u * x).sum();
            vector.iter_mut().zip(unit).for_each(|(x, u)| *x -= dot * u);
        }
    }
    let length = norm(&vector);
    vector.into_iter().map(|x| x / length).collect()
}

/// Cyclic Jacobi: rotates pairs of rows and columns until all but the diagonal is zero.
fn eigh(a: &Matrix) -> Factors {
    let n = a.rows;
    let mut a = Matrix::from_fn(n, n, |i, j| if i >= j { a[(i, j)] } else { a[(j, i)] });
    if !a.is_finite() {
        return Err("holds NaN or infinity".into());
    }
    let scale = a.max_abs().max(f64::MIN_POSITIVE);
    a.data.iter_mut().for_each(|x| *x /= scale);
    let mut v = Matrix::identity(n);
    let mut sweeps = 0;
    loop {
        let off = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).fold(0.0, |max: f64, at| max.max(a[at].abs()));
        if off < f64::EPSILON * f64::EPSILON {
            break;
        }
        if sweeps == MAX_SWEEPS {
            return Err("eigenvalues do not converge".into());
        }
        sweeps += 1;
        for p in 0..n {
            for q in p + 1..n {
                if a[(p, q)] == 0.0 {
                    continue;
                }
                let tau = (a[(q, q)] - a[(p, p)]) / (2.0 * a[(p, q)]);
                let tan = libm::copysign(1.0, tau) / (tau.abs() + libm::hypot(1.0, tau));
                let cos = 1.0 / libm::hypot(1.0, tan);
                rotate_columns(&mut a, p, q, cos, cos * tan);
                rotate_rows(&mut a, p, q, cos, cos * tan);
                (a[(p, q)], a[(q, p)]) = (0.0, 0.0);
                rotate_columns(&mut v, p, q, cos, cos * tan);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[(i, i)].total_cmp(&a[(j, j)]));
    let values = Matrix::from_fn(1, n, |_, j| a[(order[j], order[j])] * scale);
    Ok(Matrix::stack(&[&values, &Matrix::from_fn(n, n, |i, j| v[(i, order[j])])]))
}

fn rotate_rows(a: &mut Matrix, p: usize, q: usize, cos: f64, sin: f64) {
    for column in 0..a.columns {
        let (x, y) = (a[(p, column)], a[(q, column)]);
        a[(p, column)] = cos * x - sin * y;
        a[(q, column)] = sin * x + cos * y;
    }
}

fn solve(a: &Matrix, mut b: Matrix, upper: bool, unit_diagonal: bool) -> Factors {
    let n = a.rows;
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        if !unit_diagonal && a[(i, i)] == 0.0 {
            return Err(format!("singular: element {i} of the diagonal is 0"));
        }
        let known = if upper { i + 1..n } else { 0..i };
        for column in 0..b.columns {
            let sum: f64 = known.clone().map(|k| a[(i, k)] * b[(k, column)]).sum();
            let rest = b[(i, column)] - sum;
            b[(i, column)] = if unit_diagonal { rest } else { rest / a[(i, i)] };
        }
    }
    Ok(b)
}
