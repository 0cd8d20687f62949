//! [`Lanes`]: the rows of a tensor along one dim, and dealing them out to threads.

use crate::threads::Threads;
use fornax_ir::Shape;

/// A row-major tensor as `[outer, len, inner]`: lane `(o, i)` has `len` elements, `inner` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
}

/// Elements from which work is dealt out to threads.
const PARALLEL_ELEMENTS: usize = 1 << 14;

impl Lanes {
    pub fn new(shape: &Shape, dim: usize) -> Lanes {
        Lanes { outer: shape[..dim].iter().product(), len: shape[dim], inner: shape[dim + 1..].iter().product() }
    }

    /// Calls `work` with ranges of `0..count`, each number once; in parallel if `elements` in all are worth it.
    pub fn deal(count: usize, elements: usize, threads: &Threads, work: impl Fn(core::ops::Range<usize>) + Sync) {
        let parts = if elements < PARALLEL_ELEMENTS { 1 } else { count.min(4 * threads.count()) };
        if parts <= 1 {
            return work(0..count);
        }
        threads.each(parts, &|part| work(count * part / parts..count * (part + 1) / parts));
    }
}
