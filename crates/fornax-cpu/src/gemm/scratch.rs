//! Work memory: aligned, zeroed once, kept per thread between calls.

use super::arith::Plain;
use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ptr::NonNull;

/// What the memory is for. Each thread keeps one buffer per use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    SharedLhs,
    SharedRhs,
    Lhs,
    Rhs,
    Tile,
    /// A padded copy of the input of a convolution.
    Padded,
}

#[cfg(feature = "std")]
const USES: usize = Use::Padded as usize + 1;

/// Larger buffers are freed after the call.
#[cfg(feature = "std")]
const KEEP_BYTES: usize = 32 << 20;

/// A cache line, and a whole AVX-512 register.
const ALIGN: usize = 64;

/// A buffer of initialized bytes.
struct Buffer {
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(bytes: usize) -> Self {
        let layout = Buffer::layout(bytes);
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Buffer { ptr, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN).expect("work memory is far below isize::MAX")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), Buffer::layout(self.bytes)) };
    }
}

#[cfg(feature = "std")]
std::thread_local! {
    static KEPT: core::cell::RefCell<[Option<Buffer>; USES]> = const { core::cell::RefCell::new([const { None }; USES]) };
}

/// Calls `f` with `len` elements of any value.
pub(crate) fn with<P: Plain, X>(purpose: Use, len: usize, f: impl FnOnce(&mut [P]) -> X) -> X {
    if len == 0 {
        return f(&mut []);
    }
    // Taken out while in use, so that a product inside an epilogue finds the place empty and gets its own.
    let bytes = (len * size_of::<P>()).next_multiple_of(4096);
    let buffer = take(purpose).filter(|kept| kept.bytes >= bytes).unwrap_or_else(|| Buffer::new(bytes));
    // SAFETY: the buffer is aligned, long enough, initialized, and every bit pattern is a `P`.
    let slice = unsafe { core::slice::from_raw_parts_mut(buffer.ptr.as_ptr().cast::<P>(), len) };
    let result = f(slice);
    give_back(purpose, buffer);
    result
}

#[cfg(feature = "std")]
fn take(purpose: Use) -> Option<Buffer> {
    KEPT.with_borrow_mut(|kept| kept[purpose as usize].take())
}

#[cfg(feature = "std")]
fn give_back(purpose: Use, buffer: Buffer) {
    if buffer.bytes <= KEEP_BYTES {
        KEPT.with_borrow_mut(|kept| kept[purpose as usize] = Some(buffer));
    }
}

#[cfg(not(feature = "std"))]
fn take(_: Use) -> Option<Buffer> {
    None
}

#[cfg(not(feature = "std"))]
fn give_back(_: Use, _: Buffer) {}
