//! The kernel for targets without one of their own: plain loops that LLVM vectorizes as it can.

use super::{Block, Kernel};
use crate::gemm::arith::{Arith, Plain};
use crate::multiversion;

const MR: usize = 4;
const NR: usize = 16;

pub(super) fn kernel<R: Arith>() -> Kernel<R> {
    Kernel { mr: MR, nr: NR, group: 1, depth: 256, strided: false, run: run::<R> }
}

multiversion! {
    /// # Safety
    /// As [`Block`] says.
    unsafe fn run<R>(block: &Block<R>) where [R: Arith] {
        // SAFETY: passed on.
        unsafe {
            match (block.rows, block.cols) {
                (MR, NR) => tile::<R, MR, NR>(block),
                (_, NR) => rows::<R, NR>(block),
                _ => rows::<R, 0>(block),
            }
        }
    }
}

/// A full tile.
#[inline(always)]
unsafe fn tile<R: Arith, const M: usize, const N: usize>(block: &Block<R>) {
    let mut acc = [[R::Acc::ZERO; N]; M];
    for p in 0..block.depth {
        // SAFETY: as `Block` says, for a full tile.
        let (a, b) = unsafe {
            let a = block.a.add(p * block.a_step).cast::<[R::Packed; M]>().read_unaligned();
            let b = block.b_at(p).cast::<[R::Packed; N]>().read_unaligned();
            (a, b)
        };
        for i in 0..M {
            for j in 0..N {
                acc[i][j] = R::mul_add(acc[i][j], a[i], b[j]);
            }
        }
    }
    for (i, acc) in acc.into_iter().enumerate() {
        // SAFETY: as `Block` says.
        unsafe {
            let c = block.c.add(i * block.ldc).cast::<[R::Acc; N]>();
            let mut sum = acc;
            if block.add {
                let old = c.read_unaligned();
                for j in 0..N {
                    sum[j] = R::Acc::add(old[j], acc[j]);
                }
            }
            c.write_unaligned(sum);
        }
    }
}

/// Any tile, row by row. `N` is the number of columns, or 0 for any.
#[inline(always)]
unsafe fn rows<R: Arith, const N: usize>(block: &Block<R>) {
    let cols = if N > 0 { N } else { block.cols };
    for i in 0..block.rows {
        let mut acc = [R::Acc::ZERO; NR];
        for p in 0..block.depth {
            // SAFETY: as `Block` says.
            unsafe {
                let a = *block.a.add(p * block.a_step + i);
                let b = block.b_at(p);
                for (j, acc) in acc.iter_mut().enumerate().take(cols) {
                    *acc = R::mul_add(*acc, a, *b.add(j));
                }
            }
        }
        for (j, acc) in acc.into_iter().enumerate().take(cols) {
            // SAFETY: as `Block` says.
            unsafe {
                let c = block.c.add(i * block.ldc + j);
                *c = if block.add { R::Acc::add(*c, acc) } else { acc };
            }
        }
    }
}
