//! Eigenvalues and vectors of a general real matrix: Householder reduction to Hessenberg form, then the implicitly
//! shifted QR algorithm to real Schur form, then back substitution.
//!
//! After EISPACK's `orthes` and `hqr2` (Martin, Peters, Wilkinson 1970; Smith et al. 1976), as JAMA states them. Real
//! arithmetic gives real eigenvalues an imaginary part of exactly 0 and complex ones exact conjugates.

use super::{Factors, Matrix, norm};
use alloc::vec::Vec;

/// Steps for one eigenvalue after which the algorithm has failed.
const MAX_STEPS: usize = 300;

/// Rows of pairs (real, imaginary): the values, then the vectors as columns, each of unit length.
pub(super) fn eig(a: &Matrix) -> Factors {
    if !a.is_finite() {
        return Err("holds NaN or infinity".into());
    }
    let n = a.rows;
    let mut schur = Schur { h: a.clone(), v: Matrix::identity(n), re: alloc::vec![0.0; n], im: alloc::vec![0.0; n] };
    schur.hessenberg();
    schur.iterate()?;
    schur.substitute();
    let Schur { v, re, im, .. } = schur;
    let mut result = Matrix::zeros(n + 1, 2 * n);
    for j in 0..n {
        (result[(0, 2 * j)], result[(0, 2 * j + 1)]) = (re[j], im[j]);
    }
    let column = |j: usize| (0..n).map(|i| v[(i, j)]).collect::<Vec<f64>>();
    let mut j = 0;
    while j < n {
        if im[j] == 0.0 {
            let vector = column(j);
            let length = norm(&vector);
            for (i, x) in vector.iter().enumerate() {
                result[(i + 1, 2 * j)] = x / length;
            }
            j += 1;
            continue;
        }
        // A pair of conjugates: columns j and j + 1 hold the real and the imaginary part. Turned, as LAPACK does, so
        // that the largest component is real.
        let (real, imaginary) = (column(j), column(j + 1));
        let length = libm::hypot(norm(&real), norm(&imaginary));
        let size = |i: usize| libm::hypot(real[i], imaginary[i]);
        let largest = (0..n).fold(0, |best, i| if size(i) > size(best) { i } else { best });
        let (cos, sin) = (real[largest] / size(largest), -imaginary[largest] / size(largest));
        for i in 0..n {
            let x = (real[i] * cos - imaginary[i] * sin) / length;
            let y = if i == largest { 0.0 } else { (real[i] * sin + imaginary[i] * cos) / length };
            for (k, y) in [(j, y), (j + 1, -y)] {
                (result[(i + 1, 2 * k)], result[(i + 1, 2 * k + 1)]) = (x, y);
            }
        }
        j += 2;
    }
    Ok(result)
}

struct Schur {
    /// The matrix on its way: Hessenberg, then quasi-triangular.
    h: Matrix,
    /// The product of all transformations, in the end the vectors.
    v: Matrix,
    /// Eigenvalues.
    re: Vec<f64>,
    im: Vec<f64>,
}

/// `a / b` of complex numbers (real, imaginary).
fn divide(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    if b.0.abs() > b.1.abs() {
        let r = b.1 / b.0;
        let d = b.0 + r * b.1;
        ((a.0 + r * a.1) / d, (a.1 - r * a.0) / d)
    } else {
        let r = b.0 / b.1;
        let d = b.1 + r * b.0;
        ((r * a.0 + a.1) / d, (r * a.1 - a.0) / d)
    }
}

impl Schur {
    fn hessenberg(&mut self) {
        let n = self.h.rows;
        for m in 1..n.saturating_sub(1) {
            let mut x: Vec<f64> = (m..n).map(|i| self.h[(i, m - 1)]).collect();
            if x[1..].iter().all(|&x| x == 0.0) {
                continue;
            }
            let length = norm(&x);
            x[0] += libm::copysign(length, x[0]);
            let length = norm(&x);
            x.iter_mut().for_each(|x| *x /= length);
            super::reflect(&mut self.h, &x, m);
            reflect_right(&mut self.h, &x, m);
            reflect_right(&mut self.v, &x, m);
            (m + 1..n).for_each(|i| self.h[(i, m - 1)] = 0.0);
        }
    }

    fn iterate(&mut self) -> Result<(), alloc::string::String> {
        let n = self.h.rows;
        let eps = f64::EPSILON;
        let total: f64 = self.h.data.iter().map(|x| x.abs()).sum();
        let mut shifted = 0.0;
        let mut steps = 0;
        let mut end = n;
        while end > 0 {
            let e = end - 1;
            let (h, v) = (&mut self.h, &mut self.v);
            // The start of the block at the end that does not split any further.
            let mut l = e;
            while l > 0 {
                let mut size = h[(l - 1, l - 1)].abs() + h[(l, l)].abs();
                if size == 0.0 {
                    size = total;
                }
                if h[(l, l - 1)].abs() <= eps * size {
                    h[(l, l - 1)] = 0.0;
                    break;
                }
                l -= 1;
            }
            if l == e {
                h[(e, e)] += shifted;
                (self.re[e], self.im[e]) = (h[(e, e)], 0.0);
                end -= 1;
                steps = 0;
                continue;
            }
            if l + 1 == e {
                h[(e, e)] += shifted;
                h[(e - 1, e - 1)] += shifted;
                self.split_pair(e);
                end -= 2;
                steps = 0;
                continue;
            }
            let (mut x, mut y, mut w) = (h[(e, e)], h[(e - 1, e - 1)], h[(e, e - 1)] * h[(e - 1, e)]);
            // Exceptional shifts, after Wilkinson and after MATLAB.
            if steps % 20 == 10 {
                shifted += x;
                (0..=e).for_each(|i| h[(i, i)] -= x);
                let s = h[(e, e - 1)].abs() + h[(e - 1, e - 2)].abs();
                (x, y, w) = (0.75 * s, 0.75 * s, -0.4375 * s * s);
            }
            if steps % 20 == 19 {
                let half = (y - x) / 2.0;
                let s = half * half + w;
                if s > 0.0 {
                    let root = libm::copysign(libm::sqrt(s), half);
                    let s = x - w / (half + root);
                    shifted += s;
                    (0..=e).for_each(|i| h[(i, i)] -= s);
                    (x, y, w) = (0.964, 0.964, 0.964);
                }
            }
            steps += 1;
            if steps > MAX_STEPS {
                return Err("eigenvalues do not converge".into());
            }
            // Two consecutive small elements below the diagonal, and the first column of the double step.
            let (mut p, mut q, mut r);
            let mut m = e - 2;
            loop {
                let z = h[(m, m)];
                let (s, t) = (x - z, y - z);
                p = (s * t - w) / h[(m + 1, m)] + h[(m, m + 1)];
                q = h[(m + 1, m + 1)] - z - s - t;
                r = h[(m + 2, m + 1)];
                let scale = p.abs() + q.abs() + r.abs();
                (p, q, r) = (p / scale, q / scale, r / scale);
                if m == l {
                    break;
                }
                let near = h[(m - 1, m - 1)].abs() + z.abs() + h[(m + 1, m + 1)].abs();
                if h[(m, m - 1)].abs() * (q.abs() + r.abs()) < eps * p.abs() * near {
                    break;
                }
                m -= 1;
            }
            for i in m + 2..=e {
                h[(i, i - 2)] = 0.0;
                if i > m + 2 {
                    h[(i, i - 3)] = 0.0;
                }
            }
            // The double step: reflections chase the bulge down.
            for k in m..e {
                let last = k + 1 == e;
                let mut scale = 1.0;
                if k > m {
                    (p, q, r) = (h[(k, k - 1)], h[(k + 1, k - 1)], if last { 0.0 } else { h[(k + 2, k - 1)] });
                    scale = p.abs() + q.abs() + r.abs();
                    if scale == 0.0 {
                        continue;
                    }
                    (p, q, r) = (p / scale, q / scale, r / scale);
                }
                let s = libm::copysign(libm::sqrt(p * p + q * q + r * r), p);
                if s == 0.0 {
                    continue;
                }
                if k > m {
                    h[(k, k - 1)] = -s * scale;
                } else if l != m {
                    h[(k, k - 1)] = -h[(k, k - 1)];
                }
                p += s;
                let (x, y, z) = (p / s, q / s, r / s);
                (q, r) = (q / p, r / p);
                for j in k..n {
                    let third = if last { 0.0 } else { h[(k + 2, j)] };
                    let dot = h[(k, j)] + q * h[(k + 1, j)] + r * third;
                    h[(k, j)] -= dot * x;
                    h[(k + 1, j)] -= dot * y;
                    if !last {
                        h[(k + 2, j)] -= dot * z;
                    }
                }
                let rows = (k + 3).min(e);
                for (matrix, rows) in [(&mut *h, rows + 1), (&mut *v, n)] {
                    for i in 0..rows {
                        let third = if last { 0.0 } else { matrix[(i, k + 2)] };
                        let dot = x * matrix[(i, k)] + y * matrix[(i, k + 1)] + z * third;
                        matrix[(i, k)] -= dot;
                        matrix[(i, k + 1)] -= dot * q;
                        if !last {
                            matrix[(i, k + 2)] -= dot * r;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The eigenvalues of the 2×2 block that ends at `e`; one with real values becomes triangular.
    fn split_pair(&mut self, e: usize) {
        let n = self.h.rows;
        let h = &mut self.h;
        let w = h[(e, e - 1)] * h[(e - 1, e)];
        let p = (h[(e - 1, e - 1)] - h[(e, e)]) / 2.0;
        let q = p * p + w;
        let root = libm::sqrt(q.abs());
        if q < 0.0 {
            (self.re[e - 1], self.re[e]) = (h[(e, e)] + p, h[(e, e)] + p);
            (self.im[e - 1], self.im[e]) = (root, -root);
            return;
        }
        let z = p + libm::copysign(root, p);
        let x = h[(e, e)];
        self.re[e - 1] = x + z;
        self.re[e] = if z == 0.0 { x + z } else { x - w / z };
        (self.im[e - 1], self.im[e]) = (0.0, 0.0);
        let length = libm::hypot(h[(e, e - 1)], z);
        let (sin, cos) = (h[(e, e - 1)] / length, z / length);
        for j in e - 1..n {
            let (a, b) = (h[(e - 1, j)], h[(e, j)]);
            h[(e - 1, j)] = cos * a + sin * b;
            h[(e, j)] = cos * b - sin * a;
        }
        for (matrix, rows) in [(h, e + 1), (&mut self.v, n)] {
            for i in 0..rows {
                let (a, b) = (matrix[(i, e - 1)], matrix[(i, e)]);
                matrix[(i, e - 1)] = cos * a + sin * b;
                matrix[(i, e)] = cos * b - sin * a;
            }
        }
        self.h[(e, e - 1)] = 0.0;
    }

    /// Eigenvectors of the quasi-triangular `h` (in its own columns), then of the matrix.
    fn substitute(&mut self) {
        let n = self.h.rows;
        let (re, im) = (&self.re, &self.im);
        let h = &mut self.h;
        // Stands for an exact zero on the diagonal of a singular system.
        let tiny = f64::EPSILON * h.data.iter().map(|x| x.abs()).sum::<f64>().max(f64::MIN_POSITIVE);
        for e in (0..n).rev() {
            if im[e] == 0.0 {
                let value = re[e];
                let mut l = e;
                let (mut below_z, mut below_s) = (0.0, 0.0);
                h[(e, e)] = 1.0;
                for i in (0..e).rev() {
                    let w = h[(i, i)] - value;
                    let r: f64 = (l..=e).map(|j| h[(i, j)] * h[(j, e)]).sum();
                    if im[i] < 0.0 {
                        (below_z, below_s) = (w, r);
                        continue;
                    }
                    l = i;
                    if im[i] == 0.0 {
                        h[(i, e)] = -r / if w == 0.0 { tiny } else { w };
                    } else {
                        let (x, y) = (h[(i, i + 1)], h[(i + 1, i)]);
                        let q = (re[i] - value) * (re[i] - value) + im[i] * im[i];
                        let t = (x * below_s - below_z * r) / q;
                        h[(i, e)] = t;
                        h[(i + 1, e)] =
                            if x.abs() > below_z.abs() { (-r - w * t) / x } else { (-below_s - y * t) / below_z };
                    }
                    rescale(h, h[(i, e)].abs(), i, e..e + 1);
                }
            } else if im[e] < 0.0 {
                // Columns e − 1 and e become the real and the imaginary part of the vector of eigenvalue e − 1.
                let (p, q) = (re[e], im[e]);
                let mut l = e - 1;
                if h[(e, e - 1)].abs() > h[(e - 1, e)].abs() {
                    h[(e - 1, e - 1)] = q / h[(e, e - 1)];
                    h[(e - 1, e)] = -(h[(e, e)] - p) / h[(e, e - 1)];
                } else {
                    let ratio = divide((0.0, -h[(e - 1, e)]), (h[(e - 1, e - 1)] - p, q));
                    (h[(e - 1, e - 1)], h[(e - 1, e)]) = ratio;
                }
                (h[(e, e - 1)], h[(e, e)]) = (0.0, 1.0);
                let (mut below_z, mut below_r, mut below_s) = (0.0, 0.0, 0.0);
                for i in (0..e.saturating_sub(1)).rev() {
                    let ra: f64 = (l..=e).map(|j| h[(i, j)] * h[(j, e - 1)]).sum();
                    let sa: f64 = (l..=e).map(|j| h[(i, j)] * h[(j, e)]).sum();
                    let w = h[(i, i)] - p;
                    if im[i] < 0.0 {
                        (below_z, below_r, below_s) = (w, ra, sa);
                        continue;
                    }
                    l = i;
                    if im[i] == 0.0 {
                        let ratio = divide((-ra, -sa), (w, q));
                        (h[(i, e - 1)], h[(i, e)]) = ratio;
                    } else {
                        let (x, y) = (h[(i, i + 1)], h[(i + 1, i)]);
                        let mut vr = (re[i] - p) * (re[i] - p) + im[i] * im[i] - q * q;
                        let vi = (re[i] - p) * 2.0 * q;
                        if vr == 0.0 && vi == 0.0 {
                            vr = tiny * (w.abs() + q.abs() + x.abs() + y.abs() + below_z.abs());
                        }
                        let numerator = (x * below_r - below_z * ra + q * sa, x * below_s - below_z * sa - q * ra);
                        let ratio = divide(numerator, (vr, vi));
                        (h[(i, e - 1)], h[(i, e)]) = ratio;
                        let next = if x.abs() > below_z.abs() + q.abs() {
                            (
                                (-ra - w * h[(i, e - 1)] + q * h[(i, e)]) / x,
                                (-sa - w * h[(i, e)] - q * h[(i, e - 1)]) / x,
                            )
                        } else {
                            divide((-below_r - y * h[(i, e - 1)], -below_s - y * h[(i, e)]), (below_z, q))
                        };
                        (h[(i + 1, e - 1)], h[(i + 1, e)]) = next;
                    }
                    rescale(h, h[(i, e - 1)].abs().max(h[(i, e)].abs()), i, e - 1..e + 1);
                }
            }
        }
        // Vectors of the original matrix: v · (upper triangle of h).
        for j in (0..n).rev() {
            for i in 0..n {
                self.v[(i, j)] = (0..=j).map(|k| self.v[(i, k)] * self.h[(k, j)]).sum();
            }
        }
    }
}

/// Divides the rows from `from` on of `columns` by `size` if they threaten to overflow.
fn rescale(h: &mut Matrix, size: f64, from: usize, columns: core::ops::Range<usize>) {
    if f64::EPSILON * size * size > 1.0 {
        for column in columns.clone() {
            (from..columns.end).for_each(|j| h[(j, column)] /= size);
        }
    }
}

/// `a · (1 − 2 v vᵀ)` on the columns from `first` on.
fn reflect_right(a: &mut Matrix, v: &[f64], first: usize) {
    for row in 0..a.rows {
        let dot: f64 = v.iter().enumerate().map(|(i, x)| x * a[(row, first + i)]).sum();
        for (i, x) in v.iter().enumerate() {
            a[(row, first + i)] -= 2.0 * dot * x;
        }
    }
}
