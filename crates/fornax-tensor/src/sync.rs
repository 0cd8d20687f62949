//! Locks and flags that exist with and without `std`.

/// A lock that ignores poisoning: what it guards is never left half-changed by a panic of ours.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

#[cfg(feature = "std")]
type Inner<T> = std::sync::Mutex<T>;
#[cfg(not(feature = "std"))]
type Inner<T> = spin::Mutex<T>;

#[cfg(feature = "std")]
pub(crate) type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(not(feature = "std"))]
pub(crate) type MutexGuard<'a, T> = spin::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(Inner::new(value))
    }

    #[cfg(feature = "std")]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }
}

#[cfg(feature = "std")]
pub(crate) use std::sync::OnceLock;

/// A value made once, on first use.
#[cfg(not(feature = "std"))]
pub(crate) struct OnceLock<T>(spin::Once<T>);

#[cfg(not(feature = "std"))]
impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        OnceLock(spin::Once::new())
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.0.call_once(make)
    }
}

/// Whether gradients are recorded: a flag of the thread, or of the program where there are no threads.
pub(crate) mod grad_mode {
    #[cfg(feature = "std")]
    std::thread_local!(static ENABLED: core::cell::Cell<bool> = const { core::cell::Cell::new(true) });

    #[cfg(not(feature = "std"))]
    static ENABLED: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(true);

    #[cfg(feature = "std")]
    pub(crate) fn get() -> bool {
        ENABLED.get()
    }

    #[cfg(feature = "std")]
    pub(crate) fn replace(enabled: bool) -> bool {
        ENABLED.replace(enabled)
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn get() -> bool {
        ENABLED.load(core::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn replace(enabled: bool) -> bool {
        ENABLED.swap(enabled, core::sync::atomic::Ordering::Relaxed)
    }
}

/// The dtype of the `autocast` around: of the thread, or of the program where there are no threads.
pub(crate) mod autocast_mode {
    use fornax_ir::DType;

    #[cfg(feature = "std")]
    std::thread_local!(static DTYPE: core::cell::Cell<Option<DType>> = const { core::cell::Cell::new(None) });

    #[cfg(not(feature = "std"))]
    static DTYPE: spin::Mutex<Option<DType>> = spin::Mutex::new(None);

    #[cfg(feature = "std")]
    pub(crate) fn get() -> Option<DType> {
        DTYPE.get()
    }

    #[cfg(feature = "std")]
    pub(crate) fn replace(dtype: Option<DType>) -> Option<DType> {
        DTYPE.replace(dtype)
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn get() -> Option<DType> {
        *DTYPE.lock()
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn replace(dtype: Option<DType>) -> Option<DType> {
        core::mem::replace(&mut *DTYPE.lock(), dtype)
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = core::pin::pin!(future);
    let waker = waker();
    let mut context = core::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            core::task::Poll::Ready(value) => return value,
            core::task::Poll::Pending => park(),
        }
    }
}

#[cfg(feature = "std")]
fn waker() -> core::task::Waker {
    struct Unpark(std::thread::Thread);
    impl alloc::task::Wake for Unpark {
        fn wake(self: alloc::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    alloc::sync::Arc::new(Unpark(std::thread::current())).into()
}

#[cfg(feature = "std")]
fn park() {
    std::thread::park();
}

#[cfg(not(feature = "std"))]
fn waker() -> core::task::Waker {
    core::task::Waker::noop().clone()
}

#[cfg(not(feature = "std"))]
fn park() {
    core::hint::spin_loop();
}
