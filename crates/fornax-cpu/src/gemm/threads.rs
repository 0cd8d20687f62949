//! Running numbered tasks on the threads of rayon's pool.

use super::Threads;

/// Calls `task(i)` for every `i` in `0..count`, in order when on one thread.
///
/// Tasks are handed out in order, so neighbors run at about the same time and share caches.
#[cfg(feature = "std")]
pub(super) fn for_each(threads: Threads, count: usize, task: &(dyn Fn(usize) + Sync)) {
    use core::sync::atomic::{AtomicUsize, Ordering};
    let workers = threads.count().min(count);
    if workers <= 1 {
        (0..count).for_each(task);
        return;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                break;
            }
            task(i);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// Calls `f` on a thread of the pool if it will use several. A caller outside the pool would otherwise compute beside
/// the pool's threads, which are as many as there are cores.
#[cfg(feature = "std")]
pub(super) fn enter(threads: Threads, f: impl FnOnce() + Send) {
    if threads.count() <= 1 || rayon::current_thread_index().is_some() {
        f();
    } else {
        rayon::scope(|_| f());
    }
}

/// Calls `f`.
#[cfg(not(feature = "std"))]
pub(super) fn enter(_: Threads, f: impl FnOnce()) {
    f();
}

/// Calls `task(i)` for every `i` in `0..count`, in order.
#[cfg(not(feature = "std"))]
pub(super) fn for_each(_: Threads, count: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(task);
}

impl Threads {
    /// Threads that take part.
    #[cfg(feature = "std")]
    pub(super) fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::All => rayon::current_num_threads(),
        }
    }

    /// Threads that take part.
    #[cfg(not(feature = "std"))]
    pub(super) fn count(self) -> usize {
        1
    }
}
