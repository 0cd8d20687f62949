//! [`Blas`]: products by cuBLASLt, on views as they lie in memory.
//!
//! cuBLASLt thinks in columns: a row-major `[m, n]` is its `n × m`. So `out = lhs · rhs` is asked for as
//! `outᵀ = rhsᵀ · lhsᵀ`, and a transposed operand only changes a flag.

use crate::driver::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::libraries::Library;
use crate::memory::{ALIGN, CudaBuffer, Owner, Pool};
use crate::places::Wish;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayoutAttribute_t as LayoutAttribute,
    cublasStatus_t as Status, cudaDataType_t as CudaType,
};
use fornax_ir::{DType, Layout};
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that algorithms may use besides operands and result: what NVIDIA advises for Hopper.
const WORKSPACE: usize = 32 << 20;

/// Parts of a split sum are added in the type of the accumulator; in the result's type, halves would lose digits.
const REDUCTION_IN_COMPUTE_TYPE: u32 = 2;

/// One product of matrices, perhaps of many pairs: everything but the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    geometry: Geometry,
    /// Byte offsets of lhs, rhs and result of each call: one, unless the batch dims cannot be seen as one.
    calls: Vec<[u64; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Geometry {
    lhs: Matrix,
    rhs: Matrix,
    out: DType,
    /// Rows and columns of the result, and the length of the sums.
    m: u64,
    n: u64,
    k: u64,
    batch: u64,
    /// Elements from one result to the next.
    out_stride: i64,
}

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Matrix {
    dtype: DType,
    /// Whether columns are contiguous, not rows.
    transposed: bool,
    /// Elements from one row (or column) to the next.
    leading: i64,
    /// Elements from one matrix of the batch to the next.
    stride: i64,
}

impl Product {
    /// The product of two views, with a row-major result of `dtype`; `None` if cuBLASLt cannot do it.
    pub fn new(lhs: (DType, &Layout), rhs: (DType, &Layout), dtype: DType) -> Option<Product> {
        compute(lhs.0, rhs.0, dtype, false)?;
        let rank = lhs.1.shape.rank();
        let [m, k] = [lhs.1.shape[rank - 2], lhs.1.shape[rank - 1]];
        let n = rhs.1.shape[rank - 1];
        let batch = &lhs.1.shape[..rank - 2];
        if m == 0 || n == 0 || k == 0 || batch.contains(&0) {
            return None;
        }
        // Batch dims that are one for both operands are merged from the inside out; the rest is looped over.
        let mut inner = 1;
        let mut strides = [0isize; 2];
        let mut outer = Vec::new();
        for dim in (0..rank - 2).rev() {
            let (size, here) = (batch[dim], [lhs.1.strides[dim], rhs.1.strides[dim]]);
            if size == 1 {
                continue;
            }
            if inner == 1 && outer.is_empty() {
                (inner, strides) = (size, here);
            } else if outer.is_empty() && here == strides.map(|stride| stride * inner as isize) {
                inner *= size;
            } else {
                outer.push((size, here));
            }
        }
        if strides.iter().any(|&stride| stride < 0) {
            return None;
        }
        let mut calls = vec![[lhs.1.offset as isize, rhs.1.offset as isize, 0]];
        let mut step = (inner * m * n) as isize;
        for (size, here) in outer {
            let all = (0..size as isize).flat_map(|i| {
                calls.iter().map(move |call| [call[0] + i * here[0], call[1] + i * here[1], call[2] + i * step])
            });
            calls = all.collect();
            step *= size as isize;
        }
        let sizes = [lhs.0, rhs.0, dtype].map(|dtype| dtype.size() as isize);
        let in_bytes = |call: [isize; 3]| [0, 1, 2].map(|i| (call[i] * sizes[i]) as u64);
        Some(Product {
            geometry: Geometry {
                lhs: matrix(lhs.0, lhs.1, strides[0])?,
                rhs: matrix(rhs.0, rhs.1, strides[1])?,
                out: dtype,
                m: m as u64,
                n: n as u64,
                k: k as u64,
                batch: inner as u64,
                out_stride: (m * n) as i64,
            },
            calls: calls.into_iter().map(in_bytes).collect(),
        })
    }
}

/// The last two dims as rows (or columns) without gaps inside; `None` for strides that no flag tells.
fn matrix(dtype: DType, layout: &Layout, stride: isize) -> Option<Matrix> {
    let rank = layout.shape.rank();
    let [rows, columns] = [layout.shape[rank - 2] as isize, layout.shape[rank - 1] as isize];
    let [down, right] = [layout.strides[rank - 2], layout.strides[rank - 1]];
    // The leading distance must span a row, also where there is only one.
    let by_rows = (right == 1 || columns == 1) && (down >= columns || rows == 1);
    let by_columns = (down == 1 || rows == 1) && (right >= rows || columns == 1);
    let leading = match (by_rows, by_columns) {
        (true, _) if rows == 1 => columns,
        (true, _) => down,
        (false, true) if columns == 1 => rows,
        (false, true) => right,
        (false, false) => return None,
    };
    Some(Matrix { dtype, transposed: !by_rows, leading: leading as i64, stride: stride as i64 })
}

/// How sums are computed, and the type of the factors before them.
fn compute(lhs: DType, rhs: DType, out: DType, tf32: bool) -> Option<(Compute, CudaType)> {
    if lhs != rhs {
        return None;
    }
    match (lhs, out) {
        (DType::F32, DType::F32) if tf32 => Some((Compute::CUBLAS_COMPUTE_32F_FAST_TF32, CudaType::CUDA_R_32F)),
        (DType::F32, DType::F32) => Some((Compute::CUBLAS_COMPUTE_32F, CudaType::CUDA_R_32F)),
        (DType::F64, DType::F64) => Some((Compute::CUBLAS_COMPUTE_64F, CudaType::CUDA_R_64F)),
        (DType::F16 | DType::BF16, out) if out == lhs || out == DType::F32 => {
            Some((Compute::CUBLAS_COMPUTE_32F, CudaType::CUDA_R_32F))
        }
        (DType::I8, DType::I32) => Some((Compute::CUBLAS_COMPUTE_32I, CudaType::CUDA_R_32I)),
        _ => None,
    }
}

fn cuda_type(dtype: DType) -> CudaType {
    match dtype {
        DType::F16 => CudaType::CUDA_R_16F,
        DType::BF16 => CudaType::CUDA_R_16BF,
        DType::F32 => CudaType::CUDA_R_32F,
        DType::F64 => CudaType::CUDA_R_64F,
        DType::I8 => CudaType::CUDA_R_8I,
        DType::I32 => CudaType::CUDA_R_32I,
        other => unreachable!("products of {other} are not asked for"),
    }
}

/// Products on one device.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    stream: Arc<Stream>,
    workspace: CudaBuffer,
    tf32: bool,
    algorithms: Mutex<Algorithms>,
}

/// By geometry and the alignment of the three addresses; `None` where no algorithm was found.
type Algorithms = HashMap<(Geometry, [u32; 3]), Option<Arc<Algorithm>>>;

// SAFETY: the library's handles may be used from any thread.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Blas {
    /// Starts the library. The device must be current.
    ///
    /// # Errors
    /// If the library is not there or does not start; then products need other kernels.
    pub fn new(stream: &Arc<Stream>, pool: &Arc<Pool>, tf32: bool) -> Result<Blas> {
        Library::CublasLt.load()?;
        let workspace = pool.alloc(WORKSPACE, Owner::Plan, Wish::default())?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is loaded and writes one handle.
        unsafe { check(sys::cublasLtCreate(&mut handle), "cublasLtCreate")? };
        Ok(Blas { handle, stream: Arc::clone(stream), workspace, tf32, algorithms: Mutex::default() })
    }

    /// Whether there is an algorithm for a product of what lies at these addresses.
    pub fn serves(&self, product: &Product, places: [u64; 3]) -> Result<bool> {
        for offsets in &product.calls {
            if self.algorithm(&product.geometry, aligned(places, *offsets).1)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Queues a product in `stream`.
    ///
    /// # Safety
    /// The addresses are of live buffers which hold what the product's layouts reach. All calls go to one stream or
    /// to streams that wait for each other: they share working memory.
    pub unsafe fn run(&self, product: &Product, places: [u64; 3], stream: sys::cudaStream_t) -> Result<()> {
        for offsets in &product.calls {
            let (at, aligned) = aligned(places, *offsets);
            let algorithm = self.algorithm(&product.geometry, aligned)?;
            let algorithm = algorithm.ok_or_else(|| Error::new(ErrorKind::Failed, "cuBLASLt: no algorithm"))?;
            // SAFETY: the caller vouches for the addresses; the descriptions live in `algorithm`.
            let status = unsafe { algorithm.run(self, at, stream) };
            check(status, "cublasLtMatmul")?;
        }
        Ok(())
    }

    fn algorithm(&self, geometry: &Geometry, aligned: [u32; 3]) -> Result<Option<Arc<Algorithm>>> {
        let mut algorithms = self.algorithms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = algorithms.get(&(*geometry, aligned)) {
            return Ok(known.clone());
        }
        let found = Algorithm::find(self, geometry, aligned)?.map(Arc::new);
        algorithms.insert((*geometry, aligned), found.clone());
        Ok(found)
    }
}

/// Addresses, and the alignment in bytes that algorithms may count on.
fn aligned(places: [u64; 3], offsets: [u64; 3]) -> ([u64; 3], [u32; 3]) {
    let at = [0, 1, 2].map(|i| places[i] + offsets[i]);
    (at, at.map(|place| (1 << place.trailing_zeros().min(8)).min(ALIGN as u32)))
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.stream.synchronize().is_ok() {
            // SAFETY: the library made the handle, and no work uses it any more.
            let _ = unsafe { sys::cublasLtDestroy(self.handle) };
        }
    }
}

/// What cuBLASLt must be told for one geometry, and the algorithm it advises.
struct Algorithm {
    desc: sys::cublasLtMatmulDesc_t,
    /// Of rhs, lhs and result, in the library's order.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algo: sys::cublasLtMatmulAlgo_t,
    /// One and zero in the type of the factors.
    factors: [u64; 2],
}

// SAFETY: the descriptions are only read after they were made.
unsafe impl Send for Algorithm {}
// SAFETY: as above.
unsafe impl Sync for Algorithm {}

impl Drop for Algorithm {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: the library made it.
            let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(layout) };
        }
        if !self.desc.is_null() {
            // SAFETY: the library made it.
            let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.desc) };
        }
    }
}

impl Algorithm {
    fn find(blas: &Blas, geometry: &Geometry, aligned: [u32; 3]) -> Result<Option<Algorithm>> {
        let Geometry { lhs, rhs, out, m, n, k, batch, out_stride } = *geometry;
        let (compute, scale) = compute(lhs.dtype, rhs.dtype, out, blas.tf32).expect("the product was made for it");
        let one = match scale {
            CudaType::CUDA_R_64F => 1f64.to_bits(),
            CudaType::CUDA_R_32I => 1,
            _ => u64::from(1f32.to_bits()),
        };
        let mut found = Algorithm {
            desc: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            factors: [one, 0],
        };
        // SAFETY: every call writes what it is told to, to places that live; sizes are those of the values.
        unsafe {
            check(sys::cublasLtMatmulDescCreate(&mut found.desc, compute, scale), "cublasLtMatmulDescCreate")?;
            let transposes = [
                (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, rhs.transposed),
                (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, lhs.transposed),
            ];
            for (attribute, is_transposed) in transposes {
                let value = i32::from(is_transposed);
                let set = sys::cublasLtMatmulDescSetAttribute(found.desc, attribute, (&raw const value).cast(), 4);
                check(set, "cublasLtMatmulDescSetAttribute")?;
            }
            // In columns: what has rows without gaps has a column for each row.
            let columns = |matrix: Matrix, rows: u64, columns: u64| match matrix.transposed {
                true => (matrix.dtype, rows, columns, matrix.leading, matrix.stride),
                false => (matrix.dtype, columns, rows, matrix.leading, matrix.stride),
            };
            let layouts = [columns(rhs, k, n), columns(lhs, m, k), (out, n, m, n as i64, out_stride)];
            for (layout, (dtype, rows, columns, leading, stride)) in found.layouts.iter_mut().zip(layouts) {
                let made = sys::cublasLtMatrixLayoutCreate(layout, cuda_type(dtype), rows, columns, leading);
                check(made, "cublasLtMatrixLayoutCreate")?;
                if batch > 1 {
                    let count = i32::try_from(batch).map_err(|_| too_large())?;
                    let of_count = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
                    let of_stride = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                    let set = sys::cublasLtMatrixLayoutSetAttribute(*layout, of_count, (&raw const count).cast(), 4);
                    check(set, "cublasLtMatrixLayoutSetAttribute")?;
                    let set = sys::cublasLtMatrixLayoutSetAttribute(*layout, of_stride, (&raw const stride).cast(), 8);
                    check(set, "cublasLtMatrixLayoutSetAttribute")?;
                }
            }
            let mut preference = ptr::null_mut();
            check(sys::cublasLtMatmulPreferenceCreate(&mut preference), "cublasLtMatmulPreferenceCreate")?;
            let (workspace, reduction) = (WORKSPACE as u64, REDUCTION_IN_COMPUTE_TYPE);
            let [lhs_aligned, rhs_aligned, out_aligned] = aligned;
            let settings: [(PreferenceAttribute, *const c_void, usize); 6] = [
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const reduction).cast(), 4),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (&raw const rhs_aligned).cast(), 4),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (&raw const lhs_aligned).cast(), 4),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (&raw const out_aligned).cast(), 4),
                (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (&raw const out_aligned).cast(), 4),
            ];
            let mut status = Status::CUBLAS_STATUS_SUCCESS;
            for (attribute, value, size) in settings {
                if status == Status::CUBLAS_STATUS_SUCCESS {
                    status = sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size);
                }
            }
            let mut result = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
            let mut count = 0;
            if status == Status::CUBLAS_STATUS_SUCCESS {
                let [a, b, c] = found.layouts;
                let desc = found.desc;
                let results = result.as_mut_ptr();
                status = sys::cublasLtMatmulAlgoGetHeuristic(
                    blas.handle,
                    desc,
                    a,
                    b,
                    c,
                    c,
                    preference,
                    1,
                    results,
                    &mut count,
                );
            }
            let _ = sys::cublasLtMatmulPreferenceDestroy(preference);
            match status {
                Status::CUBLAS_STATUS_SUCCESS if count > 0 => found.algo = result.assume_init().algo,
                Status::CUBLAS_STATUS_SUCCESS
                | Status::CUBLAS_STATUS_NOT_SUPPORTED
                | Status::CUBLAS_STATUS_INVALID_VALUE => return Ok(None),
                other => check(other, "cublasLtMatmulAlgoGetHeuristic")?,
            }
        }
        Ok(Some(found))
    }

    /// # Safety
    /// As [`Blas::run`].
    unsafe fn run(&self, blas: &Blas, [lhs, rhs, out]: [u64; 3], stream: sys::cudaStream_t) -> Status {
        let address = |place: u64| place as usize as *mut c_void;
        let [one, zero] = [0, 1].map(|i| (&raw const self.factors[i]).cast());
        let [a, b, c] = self.layouts;
        // SAFETY: the caller vouches for the addresses; the descriptions were made for these operands.
        unsafe {
            sys::cublasLtMatmul(
                blas.handle,
                self.desc,
                one,
                address(rhs),
                a,
                address(lhs),
                b,
                zero,
                address(out),
                c,
                address(out),
                c,
                &self.algo,
                address(blas.workspace.place()),
                WORKSPACE,
                stream,
            )
        }
    }
}

/// The version of cuBLASLt, 130001 for 13.0.1.
///
/// # Errors
/// If it is not there.
pub fn version() -> Result<usize> {
    Library::CublasLt.load()?;
    // SAFETY: the library is loaded.
    Ok(unsafe { sys::cublasLtGetVersion() })
}

#[cold]
fn too_large() -> Error {
    Error::new(ErrorKind::Misuse, "a product of more than 2^31 pairs of matrices")
}

fn check(status: Status, call: &str) -> Result<()> {
    match status {
        Status::CUBLAS_STATUS_SUCCESS => Ok(()),
        Status::CUBLAS_STATUS_ALLOC_FAILED => Err(Error::new(ErrorKind::OutOfMemory, format!("{call}: no memory"))),
        other => Err(Error::new(ErrorKind::Failed, format!("{call}: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[isize], offset: usize) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset }
    }

    fn f32s(lhs: &Layout, rhs: &Layout) -> Option<Product> {
        Product::new((DType::F32, lhs), (DType::F32, rhs), DType::F32)
    }

    #[test]
    fn transposed_operands_need_no_copy() {
        let product = f32s(&layout(&[2, 3], &[3, 1], 0), &layout(&[3, 4], &[1, 3], 5)).unwrap();
        let Geometry { lhs, rhs, m, n, k, batch, .. } = product.geometry;
        assert_eq!((m, n, k, batch), (2, 4, 3, 1));
        assert_eq!((lhs.transposed, lhs.leading), (false, 3));
        assert_eq!((rhs.transposed, rhs.leading), (true, 3));
        assert_eq!(product.calls, [[0, 20, 0]]);
    }

    #[test]
    fn single_rows_and_columns_have_a_leading_distance_that_spans_them() {
        let row = matrix(DType::F32, &layout(&[1, 5], &[0, 1], 0), 0).unwrap();
        assert_eq!((row.transposed, row.leading), (false, 5));
        let column = matrix(DType::F32, &layout(&[5, 1], &[1, 0], 0), 0).unwrap();
        assert_eq!((column.transposed, column.leading), (false, 1));
        let row = matrix(DType::F32, &layout(&[1, 5], &[0, 3], 0), 0).unwrap();
        assert_eq!((row.transposed, row.leading), (true, 3));
        assert_eq!(matrix(DType::F32, &layout(&[5, 3], &[6, 2], 0), 0), None);
        assert_eq!(matrix(DType::F32, &layout(&[5, 3], &[0, 1], 0), 0), None);
    }

    #[test]
    fn batches_are_merged_where_strides_allow_and_looped_over_else() {
        // [2, 3] batches, rhs repeated along the second: no single stride serves.
        let lhs = layout(&[2, 3, 4, 5], &[60, 20, 5, 1], 0);
        let rhs = layout(&[2, 3, 5, 6], &[30, 0, 6, 1], 0);
        let product = f32s(&lhs, &rhs).unwrap();
        assert_eq!((product.geometry.batch, product.geometry.rhs.stride), (3, 0));
        assert_eq!(product.calls, [[0, 0, 0], [240, 120, 288]]);
        let rhs = layout(&[2, 3, 5, 6], &[90, 30, 6, 1], 0);
        let product = f32s(&lhs, &rhs).unwrap();
        assert_eq!((product.geometry.batch, product.calls.len()), (6, 1));
        // Three batch dims, the middle one of size 1.
        let lhs = layout(&[2, 1, 3, 4, 5], &[60, 7, 20, 5, 1], 0);
        let rhs = layout(&[2, 1, 3, 5, 6], &[90, 9, 30, 6, 1], 0);
        assert_eq!(f32s(&lhs, &rhs).unwrap().geometry.batch, 6);
    }

    #[test]
    fn what_the_library_cannot_do_is_left_to_kernels() {
        let square = layout(&[4, 4], &[4, 1], 0);
        let product = |lhs, rhs, out| Product::new((lhs, &square), (rhs, &square), out);
        assert!(product(DType::BF16, DType::BF16, DType::F32).is_some());
        assert!(product(DType::I8, DType::I8, DType::I32).is_some());
        assert!(product(DType::I8, DType::U8, DType::I32).is_none());
        assert!(product(DType::I64, DType::I64, DType::I64).is_none());
        let empty = layout(&[4, 0], &[0, 1], 0);
        assert!(f32s(&empty, &layout(&[0, 4], &[4, 1], 0)).is_none());
    }
}
