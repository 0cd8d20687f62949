//! [`Threads`]: how many hands there are, and dealing work out to them.

use core::ops::Range;
#[cfg(feature = "std")]
use core::sync::atomic::{AtomicUsize, Ordering};

/// Threads for kernels: a pool of its own, the process-wide one, or the calling thread alone.
#[derive(Debug)]
pub(crate) struct Threads {
    count: usize,
    #[cfg(feature = "std")]
    pool: Option<rayon::ThreadPool>,
}

/// Elements from which [`Threads::deal`] deals work out.
const PARALLEL_ELEMENTS: usize = 1 << 14;

impl Threads {
    /// `count` threads, the calling one included; 0 means one a core.
    pub fn new(count: usize) -> Threads {
        #[cfg(feature = "std")]
        {
            let cores = || std::thread::available_parallelism().map_or(1, usize::from);
            let count = if count == 0 { cores() } else { count };
            let build = || rayon::ThreadPoolBuilder::new().num_threads(count).build().ok();
            let pool = if count > 1 { build() } else { None };
            Threads { count: if pool.is_some() { count } else { 1 }, pool }
        }
        #[cfg(not(feature = "std"))]
        {
            let _ = count;
            Threads { count: 1 }
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `work`, whose own parallel loops find these threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        #[cfg(feature = "std")]
        if let Some(pool) = &self.pool {
            return pool.install(work);
        }
        work()
    }

    /// Calls `work` with `0..count`, each once, on all threads. Which thread gets which number is open.
    pub fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        #[cfg(feature = "std")]
        if let Some(pool) = self.pool.as_ref().filter(|_| count > 1) {
            let next = AtomicUsize::new(0);
            let take = || {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= count {
                        break;
                    }
                    work(task);
                }
            };
            // The calling thread works too.
            pool.in_place_scope(|scope| {
                for _ in 1..self.count.min(count) {
                    scope.spawn(|_| take());
                }
                take();
            });
            return;
        }
        (0..count).for_each(work);
    }

    /// Calls `work` with ranges of `0..count`, each number once; in parallel if `elements` in all are worth it.
    pub fn deal(&self, count: usize, elements: usize, work: impl Fn(Range<usize>) + Sync) {
        let parts = if elements < PARALLEL_ELEMENTS { 1 } else { count.min(4 * self.count) };
        if parts <= 1 {
            return work(0..count);
        }
        self.each(parts, &|part| work(count * part / parts..count * (part + 1) / parts));
    }
}
