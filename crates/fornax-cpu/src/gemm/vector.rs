//! Matrix times vector: memory-bound, so no packing.

use super::arith::{Arith, Input, Plain};
use super::driver::{Finish, Tile};
use super::view::Mat;
use super::{Threads, threads};
use crate::multiversion;
use crate::simd::Isa;
use alloc::vec::Vec;

/// Rows of the result made by one task at most.
const ROWS: usize = 1024;
/// Independent sums of a dot product.
const LANES: usize = 16;

/// Whether the result of a product is a column or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orientation {
    Column,
    Row,
}

/// `finish(mat · vector)`, in pieces. `vector` is a column.
///
/// # Safety
/// Elements of both operands are readable.
pub(super) unsafe fn multiply<R: Arith, A: Input<R>, B: Input<R>>(
    (isa, threads): (Isa, Threads),
    mat: Mat<A>,
    vector: Mat<B>,
    orientation: Orientation,
    finish: Finish<'_, R::Acc>,
) {
    // SAFETY: by contract.
    let x: Vec<R::Packed> = (0..vector.rows).map(|i| unsafe { *vector.at(i, 0) }.pack()).collect();
    let rows = mat.rows.div_ceil(4 * threads.count()).next_multiple_of(64).min(ROWS);
    threads::for_each(threads, mat.rows.div_ceil(rows), &|task| {
        let row = task * rows;
        let part = Mat { ptr: mat.at(row, 0), rows: rows.min(mat.rows - row), ..mat };
        let mut sums = [R::Acc::ZERO; ROWS];
        // SAFETY: by contract.
        unsafe {
            if mat.col_stride == 1 {
                dots::<R, A>(isa, part, &x, &mut sums);
            } else {
                columns::<R, A>(isa, part, &x, &mut sums);
            }
        }
        let n = part.rows;
        let (ld, place) = match orientation {
            Orientation::Column => (1, [row, 0, n, 1]),
            Orientation::Row => (n, [0, row, 1, n]),
        };
        // SAFETY: the sums are here.
        finish(unsafe { Tile::new(sums.as_mut_ptr(), ld, place, 0) });
    });
}

multiversion! {
    /// Rows are contiguous: one dot product each.
    ///
    /// # Safety
    /// Elements of `mat` are readable.
    unsafe fn dots<R, A>(mat: Mat<A>, x: &[R::Packed], sums: &mut [R::Acc; ROWS]) where [R: Arith, A: Input<R>] {
        let mut i = 0;
        while i + 4 <= mat.rows {
            // SAFETY: by contract; rows are contiguous.
            let rows = core::array::from_fn(|j| unsafe { core::slice::from_raw_parts(mat.at(i + j, 0), mat.cols) });
            sums[i..i + 4].copy_from_slice(&dot::<R, A, 4>(rows, x));
            i += 4;
        }
        for (i, sum) in sums.iter_mut().enumerate().take(mat.rows).skip(i) {
            // SAFETY: as above.
            [*sum] = dot::<R, A, 1>([unsafe { core::slice::from_raw_parts(mat.at(i, 0), mat.cols) }], x);
        }
    }

    /// Columns are contiguous, or nothing is: scaled columns are added up, four at a time.
    ///
    /// # Safety
    /// Elements of `mat` are readable.
    unsafe fn columns<R, A>(mat: Mat<A>, x: &[R::Packed], sums: &mut [R::Acc; ROWS]) where [R: Arith, A: Input<R>] {
        let sums = &mut sums[..mat.rows];
        let mut k = 0;
        if mat.row_stride == 1 {
            while k + 4 <= mat.cols {
                // SAFETY: by contract; columns are contiguous.
                let [a, b, c, d] =
                    core::array::from_fn(|j| unsafe { core::slice::from_raw_parts(mat.at(0, k + j), mat.rows) });
                let [xa, xb, xc, xd] = [x[k], x[k + 1], x[k + 2], x[k + 3]];
                for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    let s = R::mul_add(*sum, a.pack(), xa);
                    let s = R::mul_add(s, b.pack(), xb);
                    let s = R::mul_add(s, c.pack(), xc);
                    *sum = R::mul_add(s, d.pack(), xd);
                }
                k += 4;
            }
        }
        for (k, x) in x.iter().enumerate().skip(k) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: by contract.
                *sum = R::mul_add(*sum, unsafe { *mat.at(i, k) }.pack(), *x);
            }
        }
    }
}

/// Dot products of `N` rows with `x`, each rounded as for `N = 1`. Several rows at a time keep more of memory busy.
#[inline(always)]
fn dot<R: Arith, A: Input<R>, const N: usize>(rows: [&[A]; N], x: &[R::Packed]) -> [R::Acc; N] {
    let mut acc = [[R::Acc::ZERO; LANES]; N];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for (k, x) in chunks.iter().enumerate() {
        for j in 0..N {
            // SAFETY: rows are as long as `x`.
            let row = unsafe { rows[j].as_ptr().add(k * LANES).cast::<[A; LANES]>().read_unaligned() };
            for l in 0..LANES {
                acc[j][l] = R::mul_add(acc[j][l], row[l].pack(), x[l]);
            }
        }
    }
    let whole = chunks.len() * LANES;
    for (acc, row) in acc.iter_mut().zip(rows) {
        for (acc, (a, x)) in acc.iter_mut().zip(row[whole..].iter().zip(rest)) {
            *acc = R::mul_add(*acc, a.pack(), *x);
        }
    }
    acc.map(|mut acc| {
        let mut n = LANES;
        while n > 1 {
            n /= 2;
            for l in 0..n {
                acc[l] = acc[l].add(acc[l + n]);
            }
        }
        acc[0]
    })
}
