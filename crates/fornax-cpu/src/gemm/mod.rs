//! Matrix products: packed, cache-blocked, multithreaded, over strided operands.
//!
//! Start at [`gemm()`]. [`gemm_packed`] takes operands from a [`Pack`] (convolution patches, quantized weights);
//! [`gemm_tiles`] hands finished tiles to a closure instead of storing them.
//!
//! # Promises
//! - The result is the same, bit for bit, for every number of threads. It may differ between instruction sets, which
//!   differ in fused multiply-add and in how much is summed at a time.
//! - No product with zero is skipped: NaN and infinities come through. A sum over depth 0 is zero.
//! - No operand is copied as a whole to transpose it.
//!
//! Not known here: tensors, graphs, fusion. Callers pass closures.

mod arith;
mod driver;
mod kernel;
mod offsets;
mod pack;
pub(crate) mod scratch;
#[cfg(test)]
mod tests;
mod threads;
#[cfg(target_arch = "x86_64")]
mod transpose;
mod vector;
mod view;

pub use arith::{Arith, Bf16, Bytes, F32, F64, Input, Int8, Output, Plain, Wrapping};
pub use driver::Tile;
pub(crate) use offsets::{PackOffsets, Shifted};
pub use pack::{Pack, PackView, Panel};
pub use view::{MAX_RANK, View, ViewMut};

use crate::simd::Isa;
use driver::{Finish, Job, Operand, Sums};
use vector::Orientation;
use view::Mat;

use crate::multiversion;

/// Which threads may work on a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The calling one only.
    One,
    /// The current rayon pool; without feature `std`, the calling thread. Small products stay on the calling thread.
    #[default]
    All,
}

/// How to compute `c = alpha · a · b + beta · c`.
#[derive(Clone, Copy, Debug)]
pub struct Config<Acc> {
    /// Instruction set.
    pub isa: Isa,
    /// Threads.
    pub threads: Threads,
    /// Factor of the product.
    pub alpha: Acc,
    /// Factor of the old result; with zero the old result is not read, so it may hold NaN.
    pub beta: Acc,
}

impl<Acc: Plain> Default for Config<Acc> {
    /// Best instruction set, all threads, `c = a · b`.
    fn default() -> Self {
        Config { isa: Isa::best(), threads: Threads::All, alpha: Acc::ONE, beta: Acc::ZERO }
    }
}

/// Called with each finished tile of sums, while it is in cache and before it is rounded to the type of the result.
///
/// Tiles cover the result once, in any order, on any thread of the product. Their shape is unspecified.
pub type Epilogue<'a, Acc> = &'a (dyn Fn(Tile<'_, Acc>) + Sync);

/// Multiply-adds below which waking another thread costs more than it saves (measured: some 10 µs).
const PARALLEL_WORK: usize = 1 << 21;
/// The same for operands that are read once: bytes. Below, a
/// wake-up takes as long as the whole product.
const PARALLEL_BYTES: usize = 2 << 20;
/// Multiply-adds up to which operands that allow it are read in place even if panels are used again.
const IN_PLACE_LHS: usize = 1 << 26;
const IN_PLACE_RHS: usize = 1 << 21;
/// Depth up to which a right panel is so small that reading it in place is as good.
const IN_PLACE_DEPTH: usize = 24;
/// Columns, in tiles, up to which the left operand is used too seldom to be packed: weights of small images.
const IN_PLACE_COLS: usize = 4;

/// Whether `count` products of these sizes are worth waking another thread for.
pub(crate) fn is_large<A, B>(count: usize, [m, n, k]: [usize; 3]) -> bool {
    let work = m.saturating_mul(n).saturating_mul(k);
    let bytes = m.saturating_mul(k) * size_of::<A>() + k.saturating_mul(n) * size_of::<B>();
    work.saturating_mul(count) >= PARALLEL_WORK || bytes.saturating_mul(count) >= PARALLEL_BYTES
}

/// `c = alpha · a · b + beta · c`, then `epilogue` on `c`, for every matrix of the batch.
///
/// # Shapes
/// `a` is `[batch…, m, k]`, `b` is `[batch…, k, n]`, `c` is `[batch…, m, n]`. A batch dim that is broadcast has stride 0.
///
/// # Panics
/// If the shapes do not fit.
///
/// ```
/// use fornax_cpu::gemm::{Config, F32, View, ViewMut, gemm};
/// let a = [1.0, 2.0, 3.0, 4.0]; // [2, 2]
/// let mut c = [0.0f32; 4];
/// let relu = |mut tile: fornax_cpu::gemm::Tile<'_, f32>| {
///     for i in 0..tile.rows {
///         tile.row_mut(i).iter_mut().for_each(|x| *x = x.max(0.0));
///     }
/// };
/// let config = Config { alpha: -1.0, ..Config::default() };
/// let (lhs, rhs) = (View::row_major(&a, &[2, 2]), View::row_major(&[1.0f32, 0.0, -1.0, 1.0], &[2, 2]));
/// gemm::<F32, _, _, _>(&config, lhs, rhs, ViewMut::row_major(&mut c, &[2, 2]), Some(&relu));
/// assert_eq!(c, [1.0, 0.0, 1.0, 0.0]);
/// ```
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the result is borrowed exclusively for the call")]
pub fn gemm<R: Arith, A: Input<R>, B: Input<R>, C: Output<R::Acc>>(
    config: &Config<R::Acc>,
    a: View<'_, A>,
    b: View<'_, B>,
    c: ViewMut<'_, C>,
    epilogue: Option<Epilogue<'_, R::Acc>>,
) {
    let (mut a, mut b, mut c) = (a.raw, b.raw, c.raw);
    let (ashape, bshape, cshape) = (&a.shape[..a.rank], &b.shape[..b.rank], &c.shape[..c.rank]);
    let rank = c.rank;
    let fits = a.rank == rank
        && b.rank == rank
        && ashape[..rank - 2] == cshape[..rank - 2]
        && bshape[..rank - 2] == cshape[..rank - 2]
        && ashape[rank - 2] == cshape[rank - 2]
        && bshape[rank - 1] == cshape[rank - 1]
        && ashape[rank - 1] == bshape[rank - 2];
    assert!(fits, "gemm: shapes do not fit: a {ashape:?}, b {bshape:?}, c {cshape:?}");
    if cshape.contains(&0) {
        return;
    }
    if epilogue.is_none() {
        fold_batch(&mut a, &mut b, &mut c);
    }

    let batch = c.batch();
    let (m, n, k) = (c.shape[c.rank - 2], c.shape[c.rank - 1], a.shape[a.rank - 1]);
    let large = |count: usize| is_large::<A, B>(count, [m, n, k]);
    let one = |index: usize, threads: Threads| {
        let config = Config { threads, ..*config };
        // SAFETY: views vouch for their elements, and matrices of the result do not overlap.
        unsafe { product::<R, A, B, C>(&config, a.mat(index), b.mat(index), c.mat(index), index, epilogue) };
    };
    let threads = config.threads;
    if batch == 1 || (batch < 4 * threads.count() && large(1)) {
        // Few matrices: all threads on each in turn.
        let threads = if large(1) { threads } else { Threads::One };
        (0..batch).for_each(|index| one(index, threads));
    } else {
        let threads = if large(batch) { threads } else { Threads::One };
        threads::for_each(threads, batch, &|index| one(index, Threads::One));
    }
}

/// As [`gemm()`] for one matrix, with operands that pack themselves; `depth` is the dim summed over.
///
/// # Panics
/// If `c` is not of rank 2.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the result is borrowed exclusively for the call")]
pub fn gemm_packed<R: Arith, C: Output<R::Acc>>(
    config: &Config<R::Acc>,
    depth: usize,
    a: &dyn Pack<R::Packed>,
    b: &dyn Pack<R::Packed>,
    c: ViewMut<'_, C>,
    epilogue: Option<Epilogue<'_, R::Acc>>,
) {
    assert_eq!(c.raw.rank, 2, "gemm_packed: rank of the result must be 2: shape {:?}", c.shape());
    let c = c.raw.mat(0);
    let (lhs, rhs) = (Operand::Pack(a), Operand::Pack(b));
    // SAFETY: the view vouches for the result.
    unsafe { blocked::<R, C>(config, depth, lhs, rhs, c, 0, epilogue) };
}

/// `finish` on each tile of `a · b`, shape `[m, n]` with depth `k`, which is stored nowhere else.
///
/// For results that are reduced at once, or go to a place no view describes. Right panels are packed where they are
/// used, in cache, even if that is more than once: `b` should pack itself quickly.
///
/// ```
/// use fornax_cpu::{gemm::{F32, Threads, View, gemm_tiles}, simd::Isa};
/// use std::sync::Mutex;
/// let isa = Isa::best();
/// let a = View::row_major(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
/// let sum = Mutex::new(0.0);
/// gemm_tiles::<F32>(isa, Threads::One, [2, 2, 2], &a.pack_rows::<F32>(isa), &a.pack_cols::<F32>(isa), &|mut tile| {
///     for i in 0..tile.rows {
///         *sum.lock().unwrap() += tile.row_mut(i).iter().sum::<f32>();
///     }
/// });
/// assert_eq!(sum.into_inner().unwrap(), 54.0);
/// ```
pub fn gemm_tiles<R: Arith>(
    isa: Isa,
    threads: Threads,
    [m, n, k]: [usize; 3],
    a: &dyn Pack<R::Packed>,
    b: &dyn Pack<R::Packed>,
    finish: Epilogue<'_, R::Acc>,
) {
    let job = Job::<R> {
        isa,
        threads: if m.saturating_mul(n).saturating_mul(k) >= PARALLEL_WORK { threads } else { Threads::One },
        kernel: R::kernel(isa),
        rows: m,
        cols: n,
        depth: k,
        lhs: Operand::Pack(a),
        rhs: Operand::Pack(b),
        rhs_by_task: true,
        sums: Sums::Scratch,
        finish: Some(finish),
    };
    // SAFETY: nothing is read or written in place.
    unsafe { job.run() };
}

/// As [`gemm_tiles`], for operands at offsets.
pub(crate) fn gemm_offsets<R: Arith>(
    isa: Isa,
    threads: Threads,
    a: &PackOffsets<'_, R>,
    b: &PackOffsets<'_, R>,
    finish: Epilogue<'_, R::Acc>,
) {
    offsets_job(isa, threads, a, Operand::Pack(b), b.lanes(), finish);
}

/// As [`gemm_offsets`], with a right operand that is read where it lies. Columns are counted over all its strips, and no
/// tile covers columns of two.
///
/// # Panics
/// If the kernel of `R` multiplies several depths at a time.
pub(crate) fn gemm_shifted<R: Arith>(
    isa: Isa,
    threads: Threads,
    a: &PackOffsets<'_, R>,
    b: &Shifted<'_, R::Packed>,
    finish: Epilogue<'_, R::Acc>,
) {
    assert_eq!(R::kernel(isa).group, 1, "gemm: depths cannot be read one by one");
    assert_eq!(a.depth(), b.offsets.len(), "gemm: one offset per depth");
    offsets_job(isa, threads, a, Operand::Shifted(b), b.count * b.cols, finish);
}

fn offsets_job<R: Arith>(
    isa: Isa,
    threads: Threads,
    a: &PackOffsets<'_, R>,
    rhs: Operand<'_, R>,
    cols: usize,
    finish: Epilogue<'_, R::Acc>,
) {
    let (kernel, rows, depth) = (R::kernel(isa), a.lanes(), a.depth());
    let lhs = match a.rows() {
        Some((ptr, lane)) if kernel.strided && cols <= IN_PLACE_COLS * kernel.nr => {
            Operand::InPlace { ptr, lane, step: 1 }
        }
        _ => Operand::Pack(a),
    };
    let work = rows.saturating_mul(cols).saturating_mul(depth);
    let job = Job::<R> {
        isa,
        threads: if work >= PARALLEL_WORK { threads } else { Threads::One },
        kernel,
        rows,
        cols,
        depth,
        lhs,
        rhs,
        rhs_by_task: true,
        sums: Sums::Scratch,
        finish: Some(finish),
    };
    // SAFETY: operands were checked against their data when they were made.
    unsafe { job.run() };
}

impl<'a, T> View<'a, T> {
    /// The view as a left operand that packs itself.
    ///
    /// # Panics
    /// If the rank is not 2.
    #[track_caller]
    #[must_use]
    pub fn pack_rows<R: Arith>(self, isa: Isa) -> PackView<'a, T, R> {
        assert_eq!(self.raw.rank, 2, "gemm: rank of a packed view must be 2: shape {:?}", self.shape());
        // SAFETY: the view vouches for its elements.
        unsafe { PackView::new(self.raw.mat(0), isa) }
    }

    /// The view as a right operand that packs itself.
    ///
    /// # Panics
    /// If the rank is not 2.
    #[track_caller]
    #[must_use]
    pub fn pack_cols<R: Arith>(self, isa: Isa) -> PackView<'a, T, R> {
        self.t().pack_rows(isa)
    }
}

/// Merges batch dims into rows or columns where one operand is broadcast and the other is one long matrix.
fn fold_batch<A, B, C>(a: &mut view::Raw<A>, b: &mut view::Raw<B>, c: &mut view::Raw<C>) {
    while c.rank > 2 {
        let (dim, row, col) = (c.rank - 3, c.rank - 2, c.rank - 1);
        let size = c.shape[dim];
        let extends = |strides: &[isize], shape: &[usize], at: usize| strides[dim] == strides[at] * shape[at] as isize;
        if size == 1 {
            // Nothing to merge.
        } else if b.strides[dim] == 0 && extends(&a.strides, &a.shape, row) && extends(&c.strides, &c.shape, row) {
            a.shape[row] *= size;
            c.shape[row] *= size;
        } else if a.strides[dim] == 0 && extends(&b.strides, &b.shape, col) && extends(&c.strides, &c.shape, col) {
            b.shape[col] *= size;
            c.shape[col] *= size;
        } else {
            return;
        }
        a.remove_dim(dim);
        b.remove_dim(dim);
        c.remove_dim(dim);
    }
}

/// One product of a batch.
///
/// # Safety
/// Elements of operands are readable, those of the result are writable by this call alone, and sizes fit.
unsafe fn product<R: Arith, A: Input<R>, B: Input<R>, C: Output<R::Acc>>(
    config: &Config<R::Acc>,
    a: Mat<A>,
    b: Mat<B>,
    c: Mat<C>,
    batch: usize,
    epilogue: Option<Epilogue<'_, R::Acc>>,
) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    let on = (config.isa, config.threads);
    if n == 1 || m == 1 {
        let store = |tile: Tile<'_, R::Acc>| {
            // SAFETY: by contract.
            unsafe { store(config, c, tile.with_batch(batch), epilogue) };
        };
        // SAFETY: by contract.
        unsafe {
            if n == 1 {
                vector::multiply::<R, A, B>(on, a, b, Orientation::Column, &store);
            } else {
                vector::multiply::<R, B, A>(on, b.t(), a.t(), Orientation::Row, &store);
            }
        }
        return;
    }
    if epilogue.is_none() && c.row_stride.unsigned_abs() < c.col_stride.unsigned_abs() {
        // cᵀ = bᵀ · aᵀ has contiguous rows, and without an epilogue nobody sees the difference.
        // SAFETY: as for this call. The recursion ends, since strides are the other way round.
        unsafe { product::<R, B, A, C>(config, b.t(), a.t(), c.t(), batch, None) };
        return;
    }

    let kernel = R::kernel(config.isa);
    // SAFETY: by contract.
    let (pack_a, pack_b) = unsafe { (PackView::<A, R>::new(a, config.isa), PackView::<B, R>::new(b.t(), config.isa)) };
    let work = m.saturating_mul(n).saturating_mul(k);
    let positive = a.row_stride > 0 && a.col_stride > 0;
    let readable = a.row_stride == 1 || (kernel.strided && a.col_stride == 1 && !clashes(&a, kernel.mr));
    let lhs = if A::IS_PACKED
        && kernel.group == 1
        && positive
        && readable
        && (work <= IN_PLACE_LHS || n <= IN_PLACE_COLS * kernel.nr)
    {
        Operand::InPlace { ptr: a.ptr.cast(), lane: a.row_stride as usize, step: a.col_stride as usize }
    } else {
        Operand::Pack(&pack_a)
    };
    let readable = b.col_stride == 1 && b.row_stride > 0;
    let rhs = if B::IS_PACKED
        && kernel.group == 1
        && readable
        && (work <= IN_PLACE_RHS || m <= kernel.mr || k <= IN_PLACE_DEPTH)
    {
        Operand::InPlace { ptr: b.ptr.cast(), lane: 1, step: b.row_stride as usize }
    } else {
        Operand::Pack(&pack_b)
    };
    // SAFETY: by contract.
    unsafe { blocked::<R, C>(config, k, lhs, rhs, c, batch, epilogue) };
}

/// Whether rows of a tile fall on the same few cache sets.
fn clashes<T>(mat: &Mat<T>, mr: usize) -> bool {
    (mat.row_stride.unsigned_abs() * size_of::<T>()).is_multiple_of(2048) && mat.rows.min(mr) > 8 && mat.cols > 16
}

/// The blocked product, with sums kept in the result if its type and layout allow.
///
/// # Safety
/// Operands in place are readable and `c` is writable by this call alone.
unsafe fn blocked<R: Arith, C: Output<R::Acc>>(
    config: &Config<R::Acc>,
    depth: usize,
    lhs: Operand<'_, R>,
    rhs: Operand<'_, R>,
    c: Mat<C>,
    batch: usize,
    epilogue: Option<Epilogue<'_, R::Acc>>,
) {
    let work = c.rows.saturating_mul(c.cols).saturating_mul(depth);
    let threads = if work >= PARALLEL_WORK { config.threads } else { Threads::One };
    let (one, zero) = (R::Acc::ONE, R::Acc::ZERO);
    let plain = config.alpha == one && (config.beta == zero || config.beta == one);
    let in_place = C::IS_ACC && plain && c.col_stride == 1 && c.row_stride >= 0;
    let store = |tile: Tile<'_, R::Acc>| {
        // SAFETY: by contract; tiles are disjoint.
        unsafe { store(config, c, tile.with_batch(batch), epilogue) };
    };
    let apply = epilogue.map(|epilogue| move |tile: Tile<'_, R::Acc>| epilogue(tile.with_batch(batch)));
    let (sums, finish): (_, Option<Finish<'_, R::Acc>>) = if in_place {
        let sums = Sums::Result { ptr: c.ptr.cast(), ld: c.row_stride as usize, add: config.beta == one };
        (sums, apply.as_ref().map(|apply| apply as Finish<'_, R::Acc>))
    } else {
        (Sums::Scratch, Some(&store))
    };
    let kernel = R::kernel(config.isa);
    let isa = config.isa;
    let job =
        Job { isa, threads, kernel, rows: c.rows, cols: c.cols, depth, lhs, rhs, rhs_by_task: false, sums, finish };
    // SAFETY: by contract.
    unsafe { job.run() };
}

/// Scales a tile of sums, adds the old result, applies the epilogue, and stores.
///
/// # Safety
/// `c` is writable where the tile lies, by this call alone.
unsafe fn store<Acc: Plain, C: Output<Acc>>(
    config: &Config<Acc>,
    c: Mat<C>,
    mut tile: Tile<'_, Acc>,
    epilogue: Option<Epilogue<'_, Acc>>,
) {
    let to = Mat { ptr: c.at(tile.row, tile.col), rows: tile.rows, cols: tile.cols, ..c };
    // SAFETY: by contract.
    unsafe { scale(config.isa, &mut tile, config.alpha, config.beta, to) };
    let (ptr, ld) = (tile.as_mut_ptr(), tile.ld());
    if let Some(epilogue) = epilogue {
        epilogue(tile);
    }
    // SAFETY: by contract; the tile has given its sums back.
    unsafe { round(config.isa, to, ptr, ld) };
}

multiversion! {
    /// `tile = alpha · tile + beta · c`.
    ///
    /// # Safety
    /// `c` is readable and as large as the tile.
    unsafe fn scale<Acc, C>(tile: &mut Tile<'_, Acc>, alpha: Acc, beta: Acc, c: Mat<C>)
    where [Acc: Plain, C: Output<Acc>] {
        if alpha != Acc::ONE {
            for i in 0..tile.rows {
                for x in tile.row_mut(i) {
                    *x = Acc::mul(alpha, *x);
                }
            }
        }
        if beta != Acc::ZERO {
            for i in 0..tile.rows {
                for (j, x) in tile.row_mut(i).iter_mut().enumerate() {
                    // SAFETY: by contract.
                    let old = unsafe { *c.at(i, j) }.into_acc();
                    *x = Acc::add(*x, Acc::mul(beta, old));
                }
            }
        }
    }

    /// Rounds sums, rows `ld` apart, to `c`.
    ///
    /// # Safety
    /// Sums are readable and `c` is writable, by this call alone.
    unsafe fn round<Acc, C>(c: Mat<C>, sums: *const Acc, ld: usize) where [Acc: Plain, C: Output<Acc>] {
        for i in 0..c.rows {
            // SAFETY: by contract.
            unsafe {
                let sums = core::slice::from_raw_parts(sums.add(i * ld), c.cols);
                if c.col_stride == 1 {
                    let row = core::slice::from_raw_parts_mut(c.at(i, 0), c.cols);
                    row.iter_mut().zip(sums).for_each(|(c, sum)| *c = C::from_acc(*sum));
                } else {
                    sums.iter().enumerate().for_each(|(j, sum)| *c.at(i, j) = C::from_acc(*sum));
                }
            }
        }
    }
}
