//! Micro-kernels: one tile of the result from two packed panels.
//!
//! A kernel keeps a tile of at most `mr × nr` sums in registers while it walks down the depth. Variants for fewer rows
//! keep skinny shapes from paying for rows that are not there.

#[cfg(target_arch = "x86_64")]
mod bytes;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::arith::{Arith, Bf16, Bytes, F32, F64, Int8};
use crate::simd::Isa;

/// A micro-kernel and the panel layout that it reads.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<R: Arith> {
    /// Rows of a full tile: width of left panels.
    pub(crate) mr: usize,
    /// Columns of a full tile: width of right panels.
    pub(crate) nr: usize,
    /// Depths multiplied by one instruction, adjacent in panels.
    pub(crate) group: usize,
    /// Largest depth that sums run over before they are added to the result.
    pub(crate) depth: usize,
    /// Whether rows of the left operand may be any distance apart, so that it need not be packed.
    pub(crate) strided: bool,
    /// Computes one tile.
    pub(crate) run: unsafe fn(Isa, &Block<R>),
}

/// One call of a kernel: `c = a · b`, or `c += a · b`.
///
/// # Safety
/// A kernel asks for this:
/// - `1 ≤ rows ≤ mr`, `1 ≤ cols ≤ nr`;
/// - for every `p < depth`, `b_at(p)` is readable for `cols · group` elements, and `a.add(p · a_step + i · a_row)`
///   for `group` elements for every `i < rows`;
/// - `c.add(i · ldc)` is writable for `cols` elements, for every `i < rows`.
#[derive(Debug)]
pub(crate) struct Block<R: Arith> {
    /// In groups.
    pub(crate) depth: usize,
    pub(crate) a: *const R::Packed,
    pub(crate) a_step: usize,
    /// `group` in panels and where rows are adjacent; another value only if the kernel is `strided`.
    pub(crate) a_row: usize,
    pub(crate) b: *const R::Packed,
    pub(crate) b_step: usize,
    /// Where each depth of `b` lies, instead of `b_step` apart; null if that is not so. Only for kernels of `group` 1.
    pub(crate) b_offsets: *const isize,
    pub(crate) c: *mut R::Acc,
    pub(crate) ldc: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Whether to add to `c` or overwrite it.
    pub(crate) add: bool,
    /// What will be read soon: the kernel asks for one cache line per depth, `next_step` bytes apart. Any address.
    pub(crate) next: *const i8,
    pub(crate) next_step: usize,
}

impl<R: Arith> Block<R> {
    /// Where depth `p` of the right operand lies.
    #[inline(always)]
    fn b_at(&self, p: usize) -> *const R::Packed {
        if self.b_offsets.is_null() {
            self.b.wrapping_add(p * self.b_step)
        } else {
            // SAFETY: an offset for each depth.
            self.b.wrapping_offset(unsafe { *self.b_offsets.add(p) })
        }
    }
}

pub(super) fn portable<R: Arith>() -> Kernel<R> {
    portable::kernel()
}

pub(super) fn f32(isa: Isa) -> Kernel<F32> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => x86::F32_AVX2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => x86::F32_AVX512,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => portable::kernel(),
        Isa::Scalar => portable::kernel(),
    }
}

pub(super) fn f64(isa: Isa) -> Kernel<F64> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => x86::F64_AVX2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => x86::F64_AVX512,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => portable::kernel(),
        Isa::Scalar => portable::kernel(),
    }
}

pub(super) fn int8(isa: Isa) -> Kernel<Int8> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => x86::INT8_AVX2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) if x86::has_vnni() => x86::INT8_VNNI,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => x86::INT8_AVX512,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => portable::kernel(),
        Isa::Scalar => portable::kernel(),
    }
}

pub(super) fn bytes(isa: Isa) -> Kernel<Bytes> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) if x86::has_vnni() => bytes::kernel(),
        Isa::Avx512(_) | Isa::Avx2(_) | Isa::Scalar => portable::kernel(),
    }
}

pub(super) fn bf16(isa: Isa) -> Kernel<Bf16> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) if x86::has_bf16() => x86::BF16_AVX512,
        Isa::Avx512(_) | Isa::Avx2(_) | Isa::Scalar => portable::kernel(),
    }
}
