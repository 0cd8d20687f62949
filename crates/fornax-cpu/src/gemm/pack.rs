//! Packing: how operands reach the kernel.

use super::arith::{Arith, Input, Plain};
use super::view::Mat;
use crate::multiversion;
use crate::simd::Isa;
use core::marker::PhantomData;

/// Supplies an operand panel by panel.
///
/// Both operands are seen as *lanes × depth*: the lanes of the left one are its rows, those of the right one its columns,
/// and depth is the dim summed over. Implement this to gather convolution patches, dequantize or apply any
/// other prologue on the way into the product: each element is asked for at least once, from several threads at
/// once.
///
/// ```
/// use fornax_cpu::gemm::{self, Config, F32, Pack, Panel, View, ViewMut};
///
/// /// Every element of row `i` is `i`.
/// struct RowNumber;
/// impl Pack<f32> for RowNumber {
///     fn pack(&self, panel: Panel, out: &mut [f32]) {
///         for depth in 0..panel.depth_count {
///             for lane in 0..panel.lane_count {
///                 out[panel.index(lane, depth)] = (panel.lane + lane) as f32;
///             }
///         }
///     }
/// }
/// let b = [1.0, 10.0, 2.0, 20.0]; // [2, 2]
/// let mut c = [0.0; 6]; // [3, 2]
/// let config = Config::default();
/// let b = View::row_major(&b, &[2, 2]).pack_cols::<F32>(config.isa);
/// gemm::gemm_packed::<F32, _>(&config, 2, &RowNumber, &b, ViewMut::row_major(&mut c, &[3, 2]), None);
/// assert_eq!(c, [0.0, 0.0, 3.0, 30.0, 6.0, 60.0]);
/// ```
pub trait Pack<P>: Sync {
    /// Writes elements `panel.lane..` × `panel.depth..` to `out[panel.index(lane, depth)]`.
    ///
    /// `out` is `panel.len()` long. What no valid index reaches is padding that holds zeros already: leave it.
    fn pack(&self, panel: Panel, out: &mut [P]);
}

/// Which part of an operand to pack, and how it is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panel {
    /// First lane.
    pub lane: usize,
    /// Valid lanes, at most `width`.
    pub lane_count: usize,
    /// First depth.
    pub depth: usize,
    /// Valid depths.
    pub depth_count: usize,
    /// Lanes of the layout.
    pub width: usize,
    /// Consecutive depths that lie next to each other within a lane: 1, or 2 or 4 for kernels that
    /// multiply so many at a time.
    pub group: usize,
}

impl Panel {
    /// Where lane `lane` (from the first) at depth `depth` (from the first) goes.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, lane: usize, depth: usize) -> usize {
        if self.group == 1 {
            depth * self.width + lane
        } else {
            (depth / self.group * self.width + lane) * self.group + depth % self.group
        }
    }

    /// Elements of the panel, padding included.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a panel is never empty")]
    pub fn len(&self) -> usize {
        self.depth_count.next_multiple_of(self.group) * self.width
    }

    /// Whether some of it is padding.
    pub(super) fn is_padded(&self) -> bool {
        self.lane_count < self.width || !self.depth_count.is_multiple_of(self.group)
    }
}

/// Packs a strided matrix of lanes × depth (rows × columns of `mat`).
#[derive(Debug)]
pub struct PackView<'a, T, R> {
    mat: Mat<T>,
    isa: Isa,
    life: PhantomData<(&'a [T], R)>,
}

impl<T, R> PackView<'_, T, R> {
    /// # Safety
    /// The elements of `mat` are readable while the value lives.
    pub(super) unsafe fn new(mat: Mat<T>, isa: Isa) -> Self {
        PackView { mat, isa, life: PhantomData }
    }
}

impl<'a, T: Input<R>, R: Arith> Pack<R::Packed> for PackView<'a, T, R> {
    fn pack(&self, panel: Panel, out: &mut [R::Packed]) {
        assert!(panel.lane + panel.lane_count <= self.mat.rows && panel.depth + panel.depth_count <= self.mat.cols);
        assert!(panel.lane_count <= panel.width && panel.len() <= out.len() && panel.lane_count > 0);
        if panel.depth_count == 0 {
            return;
        }
        let mat = Mat {
            ptr: self.mat.at(panel.lane, panel.depth),
            rows: panel.lane_count,
            cols: panel.depth_count,
            ..self.mat
        };
        // SAFETY: both ranges were checked against the matrix, and the panel against `out`.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if let (Isa::Avx512(_), 1) = (self.isa, mat.col_stride) {
                let out = out.as_mut_ptr();
                match (panel.group, size_of::<R::Packed>()) {
                    (1, 4) => return super::transpose::pack32::<T, R, 1>(mat, panel.width, out),
                    (2, 2) => return super::transpose::pack32::<T, R, 2>(mat, panel.width, out),
                    (4, 1) => return super::transpose::pack32::<T, R, 4>(mat, panel.width, out),
                    _ => {}
                }
            }
            match (panel.group, panel.width) {
                (1, 32) => pack_ungrouped::<T, R, 32>(self.isa, mat, panel, out),
                (1, 16) => pack_ungrouped::<T, R, 16>(self.isa, mat, panel, out),
                (1, 14) => pack_ungrouped::<T, R, 14>(self.isa, mat, panel, out),
                (1, _) => pack_ungrouped::<T, R, 0>(self.isa, mat, panel, out),
                (2, 32) if panel.lane_count == 32 && mat.row_stride == 1 => {
                    pack_adjacent::<T, R, 32, 2>(self.isa, mat, panel, out);
                }
                (4, 32) if panel.lane_count == 32 && mat.row_stride == 1 => {
                    pack_adjacent::<T, R, 32, 4>(self.isa, mat, panel, out);
                }
                _ => pack_grouped::<T, R>(self.isa, mat, panel, out),
            }
        }
    }
}

/// Asks for the cache line of `address`, which may be any.
#[inline(always)]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch does not fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

multiversion! {
    /// Packs `mat` for `panel.group == 1`. `W` is the width of the panel, or 0 for any.
    ///
    /// # Safety
    /// `mat` has `panel.lane_count × panel.depth_count` readable elements, and the panel fits `out`.
    unsafe fn pack_ungrouped<T, R; const W: usize>(mat: Mat<T>, panel: Panel, out: &mut [R::Packed])
    where [T: Input<R>, R: Arith] {
        let out = out.as_mut_ptr();
        if W > 0 && panel.lane_count == W && mat.row_stride == 1 {
            for depth in 0..mat.cols {
                // Rows are often pages apart, where hardware does not look ahead.
                let ahead = mat.at(0, depth + 12);
                prefetch(ahead);
                prefetch(ahead.wrapping_add(W - 1));
                // Whole rows go through registers: between two raw pointers LLVM would have to assume overlap.
                // SAFETY: by contract.
                unsafe {
                    let row = mat.at(0, depth).cast::<[T; W]>().read_unaligned();
                    let mut packed = [<R::Packed as Plain>::ZERO; W];
                    for lane in 0..W {
                        packed[lane] = row[lane].pack();
                    }
                    out.add(depth * W).cast::<[R::Packed; W]>().write_unaligned(packed);
                }
            }
        } else if mat.row_stride.unsigned_abs() <= mat.col_stride.unsigned_abs() {
            for depth in 0..mat.cols {
                for lane in 0..panel.lane_count {
                    // SAFETY: by contract.
                    unsafe { *out.add(depth * panel.width + lane) = (*mat.at(lane, depth)).pack() };
                }
            }
        } else {
            let width = if W > 0 { W } else { panel.width };
            for lane in 0..panel.lane_count {
                for depth in 0..mat.cols {
                    // SAFETY: by contract.
                    unsafe { *out.add(depth * width + lane) = (*mat.at(lane, depth)).pack() };
                }
            }
        }
    }

    /// Packs groups of `G` depths of `W` adjacent lanes.
    ///
    /// # Safety
    /// As for [`pack_ungrouped`], with `panel.lane_count == W`, `mat.row_stride == 1` and `panel.group == G`.
    unsafe fn pack_adjacent<T, R; const W: usize, const G: usize>(mat: Mat<T>, panel: Panel, out: &mut [R::Packed])
    where [T: Input<R>, R: Arith] {
        debug_assert_eq!(panel.group, G);
        let out = out.as_mut_ptr();
        for depth in (0..mat.cols).step_by(G) {
            let mut groups = [[<R::Packed as Plain>::ZERO; G]; W];
            for i in 0..G {
                prefetch(mat.at(0, depth + 12 + i));
                if depth + i < mat.cols {
                    // SAFETY: by contract.
                    let row = unsafe { mat.at(0, depth + i).cast::<[T; W]>().read_unaligned() };
                    for (group, value) in groups.iter_mut().zip(row) {
                        group[i] = value.pack();
                    }
                }
            }
            // SAFETY: by contract.
            unsafe { out.add(depth * W).cast::<[[R::Packed; G]; W]>().write_unaligned(groups) };
        }
    }

    /// # Safety
    /// As for [`pack_ungrouped`].
    unsafe fn pack_grouped<T, R>(mat: Mat<T>, panel: Panel, out: &mut [R::Packed]) where [T: Input<R>, R: Arith] {
        let out = out.as_mut_ptr();
        for lane in 0..panel.lane_count {
            for depth in 0..panel.depth_count {
                // SAFETY: by contract.
                unsafe { *out.add(panel.index(lane, depth)) = (*mat.at(lane, depth)).pack() };
            }
        }
    }
}
