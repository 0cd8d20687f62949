//! Products of bytes, four at a time (AVX-512 VNNI).
//!
//! The instruction multiplies unsigned by signed bytes. The left operand is shifted into the unsigned range, `a + 128`,
//! by flipping its top bit on the way into a register; what that adds to a sum, `128 · Σ b`, is computed beside the
//! rows of the tile, as one more row of constants, and taken off at the end.

use super::{Block, Kernel};
use crate::gemm::arith::Bytes;
use crate::simd::Isa;
use core::arch::x86_64::{
    __m512i, __mmask16, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_add_epi32, _mm512_dpbusd_epi32,
    _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_epi32, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_xor_si512,
};

const MR: usize = 12;
const LANES: usize = 16;
const GROUP: usize = 4;

/// Bytes, 12 × 32.
pub(super) const fn kernel() -> Kernel<Bytes> {
    Kernel { mr: MR, nr: 2 * LANES, group: GROUP, depth: 2048, strided: false, run }
}

/// # Safety
/// As [`Block`] says, and the machine has AVX-512 VNNI.
unsafe fn run(_: Isa, block: &Block<Bytes>) {
    macro_rules! by_rows {
        ($($m:literal)*) => {
            match (block.cols > LANES, block.rows) {
                $(
                    (true, $m) => tile::<$m, 2>(block),
                    (false, $m) => tile::<$m, 1>(block),
                )*
                _ => unreachable!("tile of {} rows", block.rows),
            }
        };
    }
    // SAFETY: passed on.
    unsafe { by_rows!(1 2 3 4 5 6 7 8 9 10 11 12) }
}

/// # Safety
/// As [`run`] says, with `M` rows in `V` vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")]
#[allow(clippy::needless_range_loop, reason = "indices are compile-time constants after unrolling")]
unsafe fn tile<const M: usize, const V: usize>(block: &Block<Bytes>) {
    let mask: __mmask16 = u16::MAX >> (LANES - (block.cols - (V - 1) * LANES));
    let top = _mm512_set1_epi8(i8::MIN);
    let mut acc = [[_mm512_setzero_si512(); V]; M];
    let mut shift = [_mm512_setzero_si512(); V];
    let (mut a, mut b, mut next) = (block.a, block.b, block.next);
    // SAFETY: as `Block` says; masked accesses touch only valid columns.
    unsafe {
        for i in 0..M {
            _mm_prefetch::<_MM_HINT_T0>(block.c.add(i * block.ldc).cast::<i8>());
        }
        for _ in 0..block.depth {
            _mm_prefetch::<_MM_HINT_T1>(next);
            next = next.wrapping_add(block.next_step);
            let mut columns = [_mm512_setzero_si512(); V];
            for j in 0..V {
                let at = b.add(j * LANES * GROUP);
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(8 * block.b_step));
                columns[j] = load(at.cast(), j + 1 < V, mask);
                shift[j] = _mm512_dpbusd_epi32(shift[j], top, columns[j]);
            }
            for i in 0..M {
                let row = _mm512_set1_epi32(a.add(i * GROUP).cast::<i32>().read_unaligned());
                let row = _mm512_xor_si512(row, top);
                for j in 0..V {
                    acc[i][j] = _mm512_dpbusd_epi32(acc[i][j], row, columns[j]);
                }
            }
            a = a.add(block.a_step);
            b = b.add(block.b_step);
        }
        for i in 0..M {
            for j in 0..V {
                let at = block.c.add(i * block.ldc + j * LANES);
                let mut sum = _mm512_sub_epi32(acc[i][j], shift[j]);
                if block.add {
                    sum = _mm512_add_epi32(sum, load(at, j + 1 < V, mask));
                }
                if j + 1 < V {
                    _mm512_storeu_si512(at.cast(), sum);
                } else {
                    _mm512_mask_storeu_epi32(at, mask, sum);
                }
            }
        }
    }
}

/// Sixteen 32-bit lanes, or those of `mask` if not `whole`.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(at: *const i32, whole: bool, mask: __mmask16) -> __m512i {
    // SAFETY: by contract.
    unsafe { if whole { _mm512_loadu_si512(at.cast()) } else { _mm512_maskz_loadu_epi32(mask, at) } }
}
