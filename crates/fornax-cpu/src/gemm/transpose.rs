//! Packing operands whose depths lie next to each other: 16 × 16 blocks of 32 bits (one element, a pair, or four) transposed in
//! AVX-512 registers.
//!
//! Element by element this costs more than one cycle each, as much as eight columns of product.

use super::arith::{Arith, Input, Plain};
use super::view::Mat;
use core::arch::x86_64::{
    __m512, __mmask16, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd,
    _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

/// Packs `mat` (lanes × depths, depths adjacent) at `width` lanes per depth, in groups of `G` depths.
///
/// # Safety
/// The machine has AVX-512 F; elements of `mat` are readable; `out` is writable for `width` times `mat.cols` (rounded up to
/// groups) elements; a group of packed elements is 4 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack32<T: Input<R>, R: Arith, const G: usize>(mat: Mat<T>, width: usize, out: *mut R::Packed) {
    for lane in (0..mat.rows).step_by(16) {
        let lanes = 16.min(mat.rows - lane);
        let mask: __mmask16 = u16::MAX >> (16 - lanes);
        for depth in (0..mat.cols).step_by(16 * G) {
            let depths = (16 * G).min(mat.cols - depth);
            let groups = depths.div_ceil(G);
            let mut rows = [_mm512_setzero_ps(); 16];
            // SAFETY: reads stay within `lanes` × `depths`; stores are masked to `lanes` and done for `depths`.
            unsafe {
                for (i, row) in rows.iter_mut().enumerate().take(lanes) {
                    let src = mat.at(lane + i, depth);
                    *row = if depths == 16 * G {
                        load::<T, R, true>(src, 16 * G)
                    } else {
                        load::<T, R, false>(src, depths)
                    };
                }
                transpose(&mut rows);
                let out = out.add(depth * width + lane * G).cast::<f32>();
                if groups == 16 {
                    for (i, row) in rows.iter().enumerate() {
                        _mm512_mask_storeu_ps(out.add(i * width), mask, *row);
                    }
                } else {
                    for (i, row) in rows.iter().enumerate().take(groups) {
                        _mm512_mask_storeu_ps(out.add(i * width), mask, *row);
                    }
                }
            }
        }
    }
}

/// `count` converted elements, `FULL` if they fill the register.
///
/// # Safety
/// So many are readable; 16, 32 or 64 packed elements are 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn load<T: Input<R>, R: Arith, const FULL: bool>(src: *const T, count: usize) -> __m512 {
    let mut packed = [<R::Packed as Plain>::ZERO; 64];
    // SAFETY: by contract; the last read is of the first 64 bytes of plain numbers.
    unsafe {
        if FULL && size_of::<R::Packed>() == 4 {
            let row = src.cast::<[T; 16]>().read_unaligned();
            for i in 0..16 {
                packed[i] = row[i].pack();
            }
        } else if FULL && size_of::<R::Packed>() == 2 {
            let row = src.cast::<[T; 32]>().read_unaligned();
            for i in 0..32 {
                packed[i] = row[i].pack();
            }
        } else if FULL {
            let row = src.cast::<[T; 64]>().read_unaligned();
            for i in 0..64 {
                packed[i] = row[i].pack();
            }
        } else {
            for (i, packed) in packed.iter_mut().enumerate().take(count) {
                *packed = (*src.add(i)).pack();
            }
        }
        (&raw const packed).cast::<__m512>().read_unaligned()
    }
}

/// Transposes a matrix of 32-bit elements: pairs of rows, then of pairs, then the 128-bit quarters.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: &mut [__m512; 16]) {
    let mut t = [_mm512_setzero_ps(); 16];
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // u[4g + c] holds, in quarter q, column 4q + c of rows 4g to 4g + 3.
    let mut u = [_mm512_setzero_ps(); 16];
    for g in 0..4 {
        for half in 0..2 {
            let (low, high) = (_mm512_castps_pd(t[4 * g + half]), _mm512_castps_pd(t[4 * g + 2 + half]));
            u[4 * g + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            u[4 * g + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    for c in 0..4 {
        // Quarters 0 and 2, then 1 and 3, of each pair of row groups.
        let even_low = _mm512_shuffle_f32x4::<0b10_00_10_00>(u[c], u[4 + c]);
        let odd_low = _mm512_shuffle_f32x4::<0b11_01_11_01>(u[c], u[4 + c]);
        let even_high = _mm512_shuffle_f32x4::<0b10_00_10_00>(u[8 + c], u[12 + c]);
        let odd_high = _mm512_shuffle_f32x4::<0b11_01_11_01>(u[8 + c], u[12 + c]);
        rows[c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_low, even_high);
        rows[8 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_low, even_high);
        rows[4 + c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_low, odd_high);
        rows[12 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_low, odd_high);
    }
}

/// Copies `run` elements from each of `from + offsets[i]` to `to + i · width`.
///
/// # Safety
/// The machine has AVX-512 F; so many are readable and writable there; `1 ≤ run ≤ 32`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn copy_rows(from: *const f32, offsets: &[isize], run: usize, to: *mut f32, width: usize) {
    let mask: __mmask16 = u16::MAX >> (16 - (run - 1) % 16 - 1);
    // SAFETY: by contract; masked accesses touch only `run` elements.
    unsafe {
        for (i, &offset) in offsets.iter().enumerate() {
            let (from, to) = (from.wrapping_offset(offset), to.add(i * width));
            if run > 16 {
                _mm512_storeu_ps(to, _mm512_loadu_ps(from));
                _mm512_mask_storeu_ps(to.add(16), mask, _mm512_maskz_loadu_ps(mask, from.add(16)));
            } else {
                _mm512_mask_storeu_ps(to, mask, _mm512_maskz_loadu_ps(mask, from));
            }
        }
    }
}

/// Packs lanes that begin at `from + lanes[i]`, each `depths` adjacent elements, at `width` lanes per depth.
///
/// # Safety
/// The machine has AVX-512 F; so many elements are readable there, and `to` is writable for `width · depths`;
/// `lanes.len() ≤ width`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_lanes(from: *const f32, lanes: &[isize], depths: usize, to: *mut f32, width: usize) {
    for (block, lanes) in lanes.chunks(16).enumerate() {
        let mask: __mmask16 = u16::MAX >> (16 - lanes.len());
        for depth in (0..depths).step_by(16) {
            let count = 16.min(depths - depth);
            let valid: __mmask16 = u16::MAX >> (16 - count);
            let mut rows = [_mm512_setzero_ps(); 16];
            // SAFETY: by contract; masked accesses touch only valid lanes and depths.
            unsafe {
                for (row, &lane) in rows.iter_mut().zip(lanes) {
                    *row = _mm512_maskz_loadu_ps(valid, from.wrapping_offset(lane).add(depth));
                }
                transpose(&mut rows);
                let to = to.add(depth * width + block * 16);
                for (i, row) in rows.iter().enumerate().take(count) {
                    _mm512_mask_storeu_ps(to.add(i * width), mask, *row);
                }
            }
        }
    }
}
