//! [`Lanes`]: the rows of a tensor along one dim, and dealing them out to threads.

use crate::threads::Threads;
use core::marker::PhantomData;
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

/// A slice that several threads write, each to places of its own.
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `slice`, whose caller promises that no two ranges overlap.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(data: &'a mut [T]) -> Shared<'a, T> {
        Shared { start: data.as_mut_ptr(), len: data.len(), data: PhantomData }
    }

    /// A part of it.
    ///
    /// # Safety
    /// Nobody else holds a part that overlaps.
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn slice(&self, range: core::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "the part lies inside");
        // SAFETY: inside, by the assertion; unshared, by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// Nobody else writes or reads it meanwhile.
    pub unsafe fn set(&self, place: usize, value: T) {
        assert!(place < self.len, "the place lies inside");
        // SAFETY: inside, by the assertion; unshared, by the caller's promise.
        unsafe { self.start.add(place).write(value) }
    }
}
