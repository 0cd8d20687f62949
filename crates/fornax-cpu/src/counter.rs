//! [`Counter`]: a number that threads add to. As wide as a pointer, since small targets have no wider atomics.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A shared count; wraps where pointers are narrow.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    /// Adds `n`; gives the sum.
    pub fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n as usize, Ordering::Relaxed).wrapping_add(n as usize) as u64
    }

    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n as usize, Ordering::Relaxed);
    }

    /// At least `n` from now on.
    pub fn raise(&self, n: u64) {
        self.0.fetch_max(n as usize, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n as usize, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}
