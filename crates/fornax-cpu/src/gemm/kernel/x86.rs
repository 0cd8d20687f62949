//! Kernels for AVX2 and AVX-512.
//!
//! One macro writes them all. A kernel of `M` rows and `V` vectors of columns holds `M · V` accumulators; per depth it loads
//! `V` vectors of the right panel and broadcasts `M` elements of the left. With 32 registers, 14 × 2 leaves room for the
//! two vectors and a broadcast; with 16 registers, 6 × 2 does.

use super::{Block, Kernel};
use crate::gemm::arith::{Bf16, F32, F64, Int8};
use crate::simd::Isa;
#[allow(clippy::wildcard_imports, reason = "seventy intrinsics whose names say where they come from")]
use core::arch::x86_64::*;

/// Whether 16-bit dot products accumulate in one instruction.
pub(super) fn has_vnni() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(feature = "std"))]
    false
}

/// Whether pairs of bf16 are multiplied in one instruction.
pub(super) fn has_bf16() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(feature = "std"))]
    false
}

macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $public:ident = $module:ident<$arith:ty>, features $features:literal, rows [$($m:literal)*] mr $mr:literal,
        lanes $lanes:literal, group $group:literal, strided $strided:literal, depth $depth:literal,
        packed $packed:ty, acc $acc:ty, vector $vector:ty,
        zero || $zero:expr;
        mask |$count:ident| $mask_ty:ty = $mask:expr;
        load_b |$lp:ident| $load:expr;
        load_b_masked |$lmp:ident, $lmm:ident| $load_masked:expr;
        splat_a |$sp:ident| $splat:expr;
        fma |$fc:ident, $fa:ident, $fb:ident| $fma:expr;
        add |$ax:ident, $ay:ident| $add:expr;
        load_c |$cp:ident| $load_c:expr;
        load_c_masked |$cmp:ident, $cmm:ident| $load_c_masked:expr;
        store_c |$stp:ident, $stv:ident| $store_c:expr;
        store_c_masked |$smp:ident, $smm:ident, $smv:ident| $store_c_masked:expr;
    ) => {
        $(#[$doc])*
        pub(super) const $public: Kernel<$arith> =
            Kernel { mr: $mr, nr: 2 * $lanes, group: $group, depth: $depth, strided: $strided, run: $module::run };

        mod $module {
            use super::*;

            /// # Safety
            /// As [`Block`] says, and the machine has the features of the kernel.
            pub(super) unsafe fn run(_: Isa, block: &Block<$arith>) {
                // SAFETY: passed on.
                unsafe {
                    let (wide, offsets) = (block.cols > $lanes, !block.b_offsets.is_null());
                    match (block.a_row == $group, offsets, wide, block.rows) {
                        $(
                            (true, false, true, $m) => tile::<$m, 2, false, false>(block),
                            (true, false, false, $m) => tile::<$m, 1, false, false>(block),
                            (true, true, true, $m) => tile::<$m, 2, false, $strided>(block),
                            (true, true, false, $m) => tile::<$m, 1, false, $strided>(block),
                            (false, false, true, $m) => tile::<$m, 2, $strided, false>(block),
                            (false, false, false, $m) => tile::<$m, 1, $strided, false>(block),
                            (false, true, true, $m) => tile::<$m, 2, $strided, $strided>(block),
                            (false, true, false, $m) => tile::<$m, 1, $strided, $strided>(block),
                        )*
                        _ => unreachable!("tile of {} rows", block.rows),
                    }
                }
            }

            /// # Safety
            /// As [`run`] says, with `M` rows in `V` vectors; `a_row` is `group` unless `STRIDED`, `b_offsets` null unless
            /// `OFFSETS`.
            #[target_feature(enable = $features)]
            #[allow(clippy::needless_range_loop, reason = "indices are compile-time constants after unrolling")]
            unsafe fn tile<const M: usize, const V: usize, const STRIDED: bool, const OFFSETS: bool>(
                block: &Block<$arith>,
            ) {
                let $count = block.cols - (V - 1) * $lanes;
                let mask: $mask_ty = $mask;
                let mut acc: [[$vector; V]; M] = [[$zero; V]; M];
                let (mut a, mut b, mut next) = (block.a, block.b, block.next);
                // SAFETY: as `Block` says; masked accesses touch only valid columns.
                unsafe {
                    for i in 0..M {
                        _mm_prefetch::<_MM_HINT_T0>(block.c.add(i * block.ldc).cast::<i8>());
                        _mm_prefetch::<_MM_HINT_T0>(block.c.wrapping_add(i * block.ldc + V * $lanes - 1).cast::<i8>());
                    }
                    for p in 0..block.depth {
                        if OFFSETS {
                            // The tile to the right comes next, and reads the same lines for several depths.
                            b = block.b.wrapping_offset(*block.b_offsets.add(p));
                            next = b.wrapping_add(V * $lanes).cast::<i8>();
                        }
                        _mm_prefetch::<_MM_HINT_T1>(next);
                        if !OFFSETS {
                            next = next.wrapping_add(block.next_step);
                        }
                        let mut bv: [$vector; V] = [$zero; V];
                        for j in 0..V {
                            let $lp = b.add(j * $lanes * $group);
                            // Panels come from L2; asking for them a hundred cycles ahead gains 3 % at 2048³.
                            if !OFFSETS {
                                _mm_prefetch::<_MM_HINT_T0>($lp.wrapping_add(8 * block.b_step).cast::<i8>());
                            }
                            bv[j] = if j + 1 < V {
                                $load
                            } else {
                                let ($lmp, $lmm) = ($lp, mask);
                                $load_masked
                            };
                        }
                        for i in 0..M {
                            let $sp = a.add(i * if STRIDED { block.a_row } else { $group });
                            let $fa = $splat;
                            for j in 0..V {
                                let ($fc, $fb) = (acc[i][j], bv[j]);
                                acc[i][j] = $fma;
                            }
                        }
                        a = a.add(block.a_step);
                        if !OFFSETS {
                            b = b.add(block.b_step);
                        }
                    }
                    for i in 0..M {
                        for j in 0..V {
                            let at = block.c.add(i * block.ldc + j * $lanes);
                            let mut value = acc[i][j];
                            if j + 1 < V {
                                if block.add {
                                    let ($cp, $ay) = (at, value);
                                    let $ax = $load_c;
                                    value = $add;
                                }
                                let ($stp, $stv) = (at, value);
                                $store_c;
                            } else {
                                if block.add {
                                    let ($cmp, $cmm, $ay) = (at, mask, value);
                                    let $ax = $load_c_masked;
                                    value = $add;
                                }
                                let ($smp, $smm, $smv) = (at, mask, value);
                                $store_c_masked;
                            }
                        }
                    }
                }
            }
        }
    };
}

kernel! {
    /// `f32`, 14 × 32.
    F32_AVX512 = f32_avx512<F32>, features "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
    rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14] mr 14, lanes 16, group 1, strided true, depth 768,
    packed f32, acc f32, vector __m512,
    zero || _mm512_setzero_ps();
    mask |count| __mmask16 = (u16::MAX >> (16 - count)) as __mmask16;
    load_b |p| _mm512_loadu_ps(p);
    load_b_masked |p, mask| _mm512_maskz_loadu_ps(mask, p);
    splat_a |p| _mm512_set1_ps(*p);
    fma |c, a, b| _mm512_fmadd_ps(a, b, c);
    add |x, y| _mm512_add_ps(x, y);
    load_c |p| _mm512_loadu_ps(p);
    load_c_masked |p, mask| _mm512_maskz_loadu_ps(mask, p);
    store_c |p, v| _mm512_storeu_ps(p, v);
    store_c_masked |p, mask, v| _mm512_mask_storeu_ps(p, mask, v);
}

kernel! {
    /// `f64`, 14 × 16.
    F64_AVX512 = f64_avx512<F64>, features "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
    rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14] mr 14, lanes 8, group 1, strided true, depth 256,
    packed f64, acc f64, vector __m512d,
    zero || _mm512_setzero_pd();
    mask |count| __mmask8 = u8::MAX >> (8 - count);
    load_b |p| _mm512_loadu_pd(p);
    load_b_masked |p, mask| _mm512_maskz_loadu_pd(mask, p);
    splat_a |p| _mm512_set1_pd(*p);
    fma |c, a, b| _mm512_fmadd_pd(a, b, c);
    add |x, y| _mm512_add_pd(x, y);
    load_c |p| _mm512_loadu_pd(p);
    load_c_masked |p, mask| _mm512_maskz_loadu_pd(mask, p);
    store_c |p, v| _mm512_storeu_pd(p, v);
    store_c_masked |p, mask, v| _mm512_mask_storeu_pd(p, mask, v);
}

kernel! {
    /// Pairs of 16-bit integers, 14 × 32.
    INT8_AVX512 = int8_avx512<Int8>, features "avx512f,avx512bw,avx512dq,avx512vl,avx2",
    rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14] mr 14, lanes 16, group 2, strided false, depth 512,
    packed i16, acc i32, vector __m512i,
    zero || _mm512_setzero_si512();
    mask |count| __mmask16 = (u16::MAX >> (16 - count)) as __mmask16;
    load_b |p| _mm512_loadu_si512(p.cast());
    load_b_masked |p, mask| _mm512_maskz_loadu_epi32(mask, p.cast());
    splat_a |p| _mm512_set1_epi32(p.cast::<i32>().read_unaligned());
    fma |c, a, b| _mm512_add_epi32(c, _mm512_madd_epi16(a, b));
    add |x, y| _mm512_add_epi32(x, y);
    load_c |p| _mm512_loadu_si512(p.cast());
    load_c_masked |p, mask| _mm512_maskz_loadu_epi32(mask, p);
    store_c |p, v| _mm512_storeu_si512(p.cast(), v);
    store_c_masked |p, mask, v| _mm512_mask_storeu_epi32(p, mask, v);
}

kernel! {
    /// Pairs of 16-bit integers, 14 × 32, with one instruction per product.
    INT8_VNNI = int8_vnni<Int8>, features "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2",
    rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14] mr 14, lanes 16, group 2, strided false, depth 512,
    packed i16, acc i32, vector __m512i,
    zero || _mm512_setzero_si512();
    mask |count| __mmask16 = (u16::MAX >> (16 - count)) as __mmask16;
    load_b |p| _mm512_loadu_si512(p.cast());
    load_b_masked |p, mask| _mm512_maskz_loadu_epi32(mask, p.cast());
    splat_a |p| _mm512_set1_epi32(p.cast::<i32>().read_unaligned());
    fma |c, a, b| _mm512_dpwssd_epi32(c, a, b);
    add |x, y| _mm512_add_epi32(x, y);
    load_c |p| _mm512_loadu_si512(p.cast());
    load_c_masked |p, mask| _mm512_maskz_loadu_epi32(mask, p);
    store_c |p, v| _mm512_storeu_si512(p.cast(), v);
    store_c_masked |p, mask, v| _mm512_mask_storeu_epi32(p, mask, v);
}

kernel! {
    /// Pairs of `bf16`, 14 × 32. Pairs travel as the bits of one `f32`.
    BF16_AVX512 = bf16_avx512<Bf16>, features "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2",
    rows [1 2 3 4 5 6 7 8 9 10 11 12 13 14] mr 14, lanes 16, group 2, strided false, depth 1024,
    packed bf16, acc f32, vector __m512,
    zero || _mm512_setzero_ps();
    mask |count| __mmask16 = (u16::MAX >> (16 - count)) as __mmask16;
    load_b |p| _mm512_loadu_ps(p.cast());
    load_b_masked |p, mask| _mm512_maskz_loadu_ps(mask, p.cast());
    splat_a |p| _mm512_castsi512_ps(_mm512_set1_epi32(p.cast::<i32>().read_unaligned()));
    fma |c, a, b| _mm512_dpbf16_ps(c, pairs(a), pairs(b));
    add |x, y| _mm512_add_ps(x, y);
    load_c |p| _mm512_loadu_ps(p);
    load_c_masked |p, mask| _mm512_maskz_loadu_ps(mask, p);
    store_c |p, v| _mm512_storeu_ps(p, v);
    store_c_masked |p, mask, v| _mm512_mask_storeu_ps(p, mask, v);
}

/// The bits of `x` as pairs of `bf16`.
#[target_feature(enable = "avx512f")]
#[inline]
fn pairs(x: __m512) -> __m512bh {
    // SAFETY: both are 64 bytes of which any are valid.
    unsafe { core::mem::transmute(x) }
}

/// A mask of eight 32-bit lanes that begins with `8 − start` ones.
#[target_feature(enable = "avx2")]
#[inline]
fn window(start: usize) -> __m256i {
    const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mask: [i32; 8] = core::array::from_fn(|i| MASKS[start + i]);
    // SAFETY: as many bytes, and any bits are a vector.
    unsafe { core::mem::transmute(mask) }
}

kernel! {
    /// `f32`, 6 × 16.
    F32_AVX2 = f32_avx2<F32>, features "avx2,fma",
    rows [1 2 3 4 5 6] mr 6, lanes 8, group 1, strided true, depth 384,
    packed f32, acc f32, vector __m256,
    zero || _mm256_setzero_ps();
    mask |count| __m256i = window(8 - count);
    load_b |p| _mm256_loadu_ps(p);
    load_b_masked |p, mask| _mm256_maskload_ps(p, mask);
    splat_a |p| _mm256_set1_ps(*p);
    fma |c, a, b| _mm256_fmadd_ps(a, b, c);
    add |x, y| _mm256_add_ps(x, y);
    load_c |p| _mm256_loadu_ps(p);
    load_c_masked |p, mask| _mm256_maskload_ps(p, mask);
    store_c |p, v| _mm256_storeu_ps(p, v);
    store_c_masked |p, mask, v| _mm256_maskstore_ps(p, mask, v);
}

kernel! {
    /// `f64`, 6 × 8.
    F64_AVX2 = f64_avx2<F64>, features "avx2,fma",
    rows [1 2 3 4 5 6] mr 6, lanes 4, group 1, strided true, depth 256,
    packed f64, acc f64, vector __m256d,
    zero || _mm256_setzero_pd();
    mask |count| __m256i = window(8 - 2 * count);
    load_b |p| _mm256_loadu_pd(p);
    load_b_masked |p, mask| _mm256_maskload_pd(p, mask);
    splat_a |p| _mm256_set1_pd(*p);
    fma |c, a, b| _mm256_fmadd_pd(a, b, c);
    add |x, y| _mm256_add_pd(x, y);
    load_c |p| _mm256_loadu_pd(p);
    load_c_masked |p, mask| _mm256_maskload_pd(p, mask);
    store_c |p, v| _mm256_storeu_pd(p, v);
    store_c_masked |p, mask, v| _mm256_maskstore_pd(p, mask, v);
}

kernel! {
    /// Pairs of 16-bit integers, 6 × 16.
    INT8_AVX2 = int8_avx2<Int8>, features "avx2",
    rows [1 2 3 4 5 6] mr 6, lanes 8, group 2, strided false, depth 384,
    packed i16, acc i32, vector __m256i,
    zero || _mm256_setzero_si256();
    mask |count| __m256i = window(8 - count);
    load_b |p| _mm256_loadu_si256(p.cast());
    load_b_masked |p, mask| _mm256_maskload_epi32(p.cast(), mask);
    splat_a |p| _mm256_set1_epi32(p.cast::<i32>().read_unaligned());
    fma |c, a, b| _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
    add |x, y| _mm256_add_epi32(x, y);
    load_c |p| _mm256_loadu_si256(p.cast());
    load_c_masked |p, mask| _mm256_maskload_epi32(p, mask);
    store_c |p, v| _mm256_storeu_si256(p.cast(), v);
    store_c_masked |p, mask, v| _mm256_maskstore_epi32(p, mask, v);
}
