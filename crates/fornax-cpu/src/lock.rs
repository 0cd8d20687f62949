//! [`Lock`]: a mutex; a spinning one where there is no operating system to wait with.

#[cfg(not(feature = "std"))]
use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
};

/// A mutex that knows no poison: what it guards is whole between any two statements.
#[cfg(feature = "std")]
pub(crate) struct Lock<T>(std::sync::Mutex<T>);

#[cfg(feature = "std")]
impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        Lock(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A spin lock.
#[cfg(not(feature = "std"))]
pub(crate) struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` hands out the value to one holder at a time.
#[cfg(not(feature = "std"))]
unsafe impl<T: Send> Sync for Lock<T> {}

#[cfg(not(feature = "std"))]
impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        while self.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        Guard(self)
    }
}

/// The holder of a [`Lock`].
#[cfg(not(feature = "std"))]
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

#[cfg(not(feature = "std"))]
impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

#[cfg(not(feature = "std"))]
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

#[cfg(not(feature = "std"))]
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
