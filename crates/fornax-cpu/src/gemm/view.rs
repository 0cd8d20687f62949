//! Strided views of operands and results.

use core::marker::PhantomData;

/// Most dims a view may have: six of batch and two of matrix.
pub const MAX_RANK: usize = 8;

/// A read-only strided view of shape `[batch…, rows, cols]`, strides in elements and of either sign.
#[derive(Debug)]
pub struct View<'a, T> {
    pub(super) raw: Raw<T>,
    life: PhantomData<&'a [T]>,
}

/// A writable strided view of shape `[batch…, rows, cols]` that reaches no element twice.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    pub(super) raw: Raw<T>,
    life: PhantomData<&'a mut [T]>,
}

/// What both views hold.
#[derive(Debug)]
pub(super) struct Raw<T> {
    pub(super) ptr: *mut T,
    pub(super) rank: usize,
    pub(super) shape: [usize; MAX_RANK],
    pub(super) strides: [isize; MAX_RANK],
}

/// One matrix of a view.
#[derive(Debug)]
pub(super) struct Mat<T> {
    pub(super) ptr: *mut T,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: isize,
    pub(super) col_stride: isize,
}

// SAFETY: only views, which have their own bounds, and code that splits them between threads hold one.
unsafe impl<T: Send + Sync> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Raw<T> {}

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Raw<T> {}
impl<T> Clone for Mat<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Mat<T> {}
impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<'_, T> {}

// SAFETY: a view is a shared borrow of `T`s.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}
// SAFETY: a mutable view is an exclusive borrow of `T`s.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}
// SAFETY: as above; nothing is reachable through a shared reference to it.
unsafe impl<T: Sync> Sync for ViewMut<'_, T> {}
// SAFETY: only code that splits a view between threads sends these, and `T` is plain data there.
unsafe impl<T: Send + Sync> Send for Mat<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Mat<T> {}

impl<'a, T> View<'a, T> {
    /// The view of `data` that starts at `offset`.
    ///
    /// # Panics
    /// If the rank is below 2 or above [`MAX_RANK`], or an element lies outside `data`.
    ///
    /// ```
    /// use fornax_cpu::gemm::View;
    /// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let transposed = View::new(&data, 0, &[3, 2], &[1, 3]); // of a row-major 2 × 3 matrix
    /// ```
    #[track_caller]
    #[must_use]
    pub fn new(data: &'a [T], offset: usize, shape: &[usize], strides: &[isize]) -> Self {
        let raw = Raw::checked(data.as_ptr().cast_mut(), data.len(), offset, shape, strides);
        View { raw, life: PhantomData }
    }

    /// The row-major view of all of `data`.
    ///
    /// # Panics
    /// If the sizes do not fit `data`.
    #[track_caller]
    #[must_use]
    pub fn row_major(data: &'a [T], shape: &[usize]) -> Self {
        View::new(data, 0, shape, &row_major_strides(shape)[..shape.len()])
    }

    /// The view from its parts.
    ///
    /// # Safety
    /// Every element of the view is readable for `'a`, and not written meanwhile.
    #[must_use]
    pub unsafe fn from_raw(ptr: *const T, shape: &[usize], strides: &[isize]) -> Self {
        View { raw: Raw::new(ptr.cast_mut(), shape, strides), life: PhantomData }
    }

    /// The view with rows and columns swapped.
    #[must_use]
    pub fn t(mut self) -> Self {
        let rank = self.raw.rank;
        self.raw.shape.swap(rank - 1, rank - 2);
        self.raw.strides.swap(rank - 1, rank - 2);
        self
    }

    /// Shape, `[batch…, rows, cols]`.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.raw.shape[..self.raw.rank]
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// The view of `data` that starts at `offset`.
    ///
    /// # Panics
    /// If the rank is below 2 or above [`MAX_RANK`], an element lies outside `data`, or two elements may coincide.
    #[track_caller]
    #[must_use]
    pub fn new(data: &'a mut [T], offset: usize, shape: &[usize], strides: &[isize]) -> Self {
        let raw = Raw::checked(data.as_mut_ptr(), data.len(), offset, shape, strides);
        assert!(raw.is_injective(), "gemm: elements of the result coincide: shape {shape:?}, strides {strides:?}");
        ViewMut { raw, life: PhantomData }
    }

    /// The row-major view of all of `data`.
    ///
    /// # Panics
    /// If the sizes do not fit `data`.
    #[track_caller]
    #[must_use]
    pub fn row_major(data: &'a mut [T], shape: &[usize]) -> Self {
        ViewMut::new(data, 0, shape, &row_major_strides(shape)[..shape.len()])
    }

    /// The view from its parts.
    ///
    /// # Safety
    /// Every element of the view is readable and writable for `'a` by its holder alone, and no two of them coincide.
    #[must_use]
    pub unsafe fn from_raw(ptr: *mut T, shape: &[usize], strides: &[isize]) -> Self {
        ViewMut { raw: Raw::new(ptr, shape, strides), life: PhantomData }
    }

    /// Shape, `[batch…, rows, cols]`.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.raw.shape[..self.raw.rank]
    }
}

impl<T> Raw<T> {
    #[track_caller]
    fn new(ptr: *mut T, shape: &[usize], strides: &[isize]) -> Self {
        let rank = shape.len();
        assert!((2..=MAX_RANK).contains(&rank), "gemm: rank must be 2 to {MAX_RANK}: shape {shape:?}");
        assert_eq!(rank, strides.len(), "gemm: one stride per dim: shape {shape:?}, strides {strides:?}");
        let mut raw = Raw { ptr, rank, shape: [1; MAX_RANK], strides: [0; MAX_RANK] };
        raw.shape[..rank].copy_from_slice(shape);
        raw.strides[..rank].copy_from_slice(strides);
        raw
    }

    #[track_caller]
    fn checked(ptr: *mut T, len: usize, offset: usize, shape: &[usize], strides: &[isize]) -> Self {
        let raw = Raw::new(ptr, shape, strides);
        if shape.contains(&0) {
            return raw;
        }
        let (mut low, mut high) = (offset as i128, offset as i128);
        for (size, stride) in shape.iter().zip(strides) {
            let reach = (*size as i128 - 1) * *stride as i128;
            if reach < 0 { low += reach } else { high += reach }
        }
        assert!(
            low >= 0 && high < len as i128,
            "gemm: view leaves its data: {len} elements, offset {offset}, shape {shape:?}, strides {strides:?}"
        );
        // The offset is that of an element, so in bounds.
        Raw { ptr: ptr.wrapping_add(offset), ..raw }
    }

    /// Whether each stride steps over all that smaller strides reach: enough for no two elements to coincide.
    fn is_injective(&self) -> bool {
        let mut dims = [(0u128, 0u128); MAX_RANK];
        for (dim, (size, stride)) in dims.iter_mut().zip(self.shape.iter().zip(&self.strides).take(self.rank)) {
            *dim = if *size > 1 { (stride.unsigned_abs() as u128, *size as u128) } else { (0, 0) };
        }
        if self.shape[..self.rank].contains(&0) {
            return true;
        }
        dims.sort_unstable();
        let mut reach = 0;
        for (stride, size) in dims {
            if size > 1 {
                if stride <= reach {
                    return false;
                }
                reach += stride * (size - 1);
            }
        }
        true
    }

    /// Number of matrices.
    pub(super) fn batch(&self) -> usize {
        self.shape[..self.rank - 2].iter().product()
    }

    /// Matrix number `index` in row-major order of the batch dims.
    pub(super) fn mat(&self, mut index: usize) -> Mat<T> {
        let mut offset = 0isize;
        for dim in (0..self.rank - 2).rev() {
            offset = offset.wrapping_add((index % self.shape[dim]) as isize * self.strides[dim]);
            index /= self.shape[dim];
        }
        let (r, c) = (self.rank - 2, self.rank - 1);
        Mat {
            ptr: self.ptr.wrapping_offset(offset),
            rows: self.shape[r],
            cols: self.shape[c],
            row_stride: self.strides[r],
            col_stride: self.strides[c],
        }
    }

    /// Drops batch dim `dim`, which the caller has folded into another.
    pub(super) fn remove_dim(&mut self, dim: usize) {
        self.shape.copy_within(dim + 1..self.rank, dim);
        self.strides.copy_within(dim + 1..self.rank, dim);
        self.rank -= 1;
    }
}

impl<T> Mat<T> {
    pub(super) fn t(self) -> Self {
        Mat { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Address of element `(row, col)`, which the caller has checked.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, col: usize) -> *mut T {
        let offset =
            (row as isize).wrapping_mul(self.row_stride).wrapping_add((col as isize).wrapping_mul(self.col_stride));
        self.ptr.wrapping_offset(offset)
    }
}

fn row_major_strides(shape: &[usize]) -> [isize; MAX_RANK] {
    let mut strides = [1isize; MAX_RANK];
    let mut step = 1isize;
    for dim in (0..shape.len().min(MAX_RANK)).rev() {
        strides[dim] = step;
        step = step.saturating_mul(shape[dim] as isize);
    }
    strides
}
