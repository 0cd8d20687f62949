//! [`Pool`]: memory of the device. Freed blocks are kept by size class and handed out again.

use crate::counter::Counter;
use crate::lock::Lock;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use fornax_ir::{DeviceBuffer, DeviceError, DeviceErrorKind, Memory};

/// Alignment of every block, in bytes: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// Size classes: multiples of 64 bytes up to 512, then four to each doubling.
const CLASSES: usize = 8 + 4 * 48;

/// Free memory kept beyond the peak in use before blocks go back to the system.
const MAX_IDLE: u64 = 1 << 30;

fn class_of(len: usize) -> usize {
    let len = len.max(1);
    if len <= 512 {
        return len.div_ceil(64) - 1;
    }
    let exponent = (len - 1).ilog2() as usize; // 2^exponent < len <= 2^(exponent + 1)
    8 + (exponent - 9) * 4 + ((len - 1) >> (exponent - 2) & 3)
}

fn class_size(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 64;
    }
    let (exponent, quarter) = (9 + (class - 8) / 4, (class - 8) % 4);
    (1 << exponent) + (quarter + 1) * (1 << (exponent - 2))
}

/// Size from which blocks start at different places of a page: kernels that walk several large buffers in step would
/// otherwise meet in the same cache sets, and loads would wait for stores that share their low address bits.
const LARGE: usize = 16 << 10;

const PAGE: usize = 4096;

/// Places of a page where large blocks start.
const COLORS: usize = 16;

fn system_layout(size: usize) -> Option<Layout> {
    if size < LARGE {
        return Layout::from_size_align(size, ALIGN).ok();
    }
    Layout::from_size_align(size.checked_add(PAGE)?, PAGE).ok()
}

/// Working memory of one thread in a kernel; kept for the next kernel.
#[derive(Default)]
pub(crate) struct Scratch {
    block: Option<(NonNull<u8>, Layout)>,
    /// Pointers.
    pub slots: Vec<*mut u8>,
    pub row_starts: Vec<*mut u8>,
    pub origins: Vec<*mut u8>,
}

// SAFETY: the block is owned, and the pointers are only used while a kernel runs.
unsafe impl Send for Scratch {}

/// Bytes of working memory beyond which it is given back after use.
const MAX_SCRATCH: usize = 4 << 20;

impl Scratch {
    /// At least `len` bytes, which hold anything.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn memory(&mut self, len: usize) -> Result<*mut u8, DeviceError> {
        match self.block {
            Some((start, layout)) if layout.size() >= len => Ok(start.as_ptr()),
            _ => {
                self.release();
                let size = len.max(1).next_multiple_of(PAGE);
                let layout = Layout::from_size_align(size, ALIGN).map_err(|_| no_memory(size))?;
                // SAFETY: `size` is not 0.
                let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(|| no_memory(size))?;
                self.block = Some((start, layout));
                Ok(start.as_ptr())
            }
        }
    }

    fn release(&mut self) {
        if let Some((start, layout)) = self.block.take() {
            // SAFETY: the block was made with this layout.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.release();
    }
}

#[cold]
fn no_memory(size: usize) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfMemory, format!("no memory for {size} bytes"))
}

/// Blocks of memory by size class, with counts.
pub(crate) struct Pool {
    scratches: Lock<Vec<Scratch>>,
    free: Lock<Vec<Vec<NonNull<u8>>>>,
    in_use: Counter,
    peak: Counter,
    reserved: Counter,
    allocations: Counter,
}

// SAFETY: the pointers in `free` are owned by the pool and stand for memory that nobody else reaches.
unsafe impl Send for Pool {}
// SAFETY: as above; all access goes through the lock.
unsafe impl Sync for Pool {}

impl Pool {
    pub fn new() -> Arc<Pool> {
        Arc::new(Pool {
            scratches: Lock::new(Vec::new()),
            free: Lock::new((0..CLASSES).map(|_| Vec::new()).collect()),
            in_use: Counter::default(),
            peak: Counter::default(),
            reserved: Counter::default(),
            allocations: Counter::default(),
        })
    }

    /// A buffer of `len` bytes, which hold anything.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn alloc(self: &Arc<Pool>, len: usize) -> Result<CpuBuffer, DeviceError> {
        let class = class_of(len);
        let size = class_size(class);
        let reused = self.free.lock()[class].pop();
        let start = match reused {
            Some(start) => start,
            None => self.alloc_system(size).ok_or_else(|| no_memory(size))?,
        };
        let in_use = self.in_use.add(size as u64);
        self.peak.raise(in_use);
        Ok(CpuBuffer { start, len, class, pool: Arc::clone(self) })
    }

    /// Working memory, to be given back.
    pub fn take_scratch(&self) -> Scratch {
        self.scratches.lock().pop().unwrap_or_default()
    }

    pub fn give_scratch(&self, mut scratch: Scratch) {
        if scratch.block.is_some_and(|(_, layout)| layout.size() > MAX_SCRATCH) {
            scratch.release();
        }
        self.scratches.lock().push(scratch);
    }

    fn alloc_system(&self, size: usize) -> Option<NonNull<u8>> {
        let layout = system_layout(size)?;
        // SAFETY: `size` is not 0.
        let mut start = NonNull::new(unsafe { alloc(layout) });
        if start.is_none() {
            self.trim();
            // SAFETY: as above.
            start = NonNull::new(unsafe { alloc(layout) });
        }
        self.reserved.add(size as u64);
        let number = self.allocations.add(1);
        let shift = if size < LARGE { 0 } else { number as usize % COLORS * (PAGE / COLORS) };
        // SAFETY: the block of a large size is a page longer.
        start.map(|start| unsafe { start.add(shift) })
    }

    fn free_system(&self, start: NonNull<u8>, size: usize) {
        let layout = system_layout(size).expect("the layout was good when the block was made");
        let start = if size < LARGE { start.as_ptr() } else { start.as_ptr().map_addr(|place| place & !(PAGE - 1)) };
        // SAFETY: `start` came from `alloc_system` with this size; large blocks start at a page.
        unsafe { dealloc(start, layout) };
        self.reserved.sub(size as u64);
    }

    /// Gives all free blocks back to the system.
    pub fn trim(&self) {
        for (class, blocks) in self.free.lock().iter_mut().enumerate() {
            for start in blocks.drain(..) {
                self.free_system(start, class_size(class));
            }
        }
    }

    pub fn memory(&self) -> Memory {
        Memory {
            in_use: self.in_use.get(),
            peak: self.peak.get(),
            reserved: self.reserved.get(),
            allocations: self.allocations.get(),
        }
    }

    pub fn reset_peak(&self) {
        self.peak.set(self.in_use.get());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

/// A block of the pool; it goes back when dropped.
pub(crate) struct CpuBuffer {
    start: NonNull<u8>,
    len: usize,
    class: usize,
    pool: Arc<Pool>,
}

// SAFETY: the block is owned; shared access only reads, writing goes through `&mut` or, in a running plan, to buffers
// that nobody else was given.
unsafe impl Send for CpuBuffer {}
// SAFETY: as above.
unsafe impl Sync for CpuBuffer {}

impl CpuBuffer {
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes belong to this buffer; a running plan writes to a buffer only before it hands it out.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes belong to this buffer, and `&mut self` is the only handle.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for CpuBuffer {
    fn drop(&mut self) {
        let size = class_size(self.class);
        self.pool.in_use.sub(size as u64);
        if size > 1 << 20 {
            let memory = self.pool.memory();
            if memory.reserved > memory.peak.saturating_add(MAX_IDLE) {
                return self.pool.free_system(self.start, size);
            }
        }
        self.pool.free.lock()[self.class].push(self.start);
    }
}

impl fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl DeviceBuffer for CpuBuffer {
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for() {
        for len in (0..70_000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1]) {
            let class = class_of(len);
            assert!(class_size(class) >= len && (class == 0 || class_size(class - 1) < len), "{len}");
        }
    }

    #[test]
    fn a_freed_block_is_handed_out_again() {
        let pool = Pool::new();
        let first = pool.alloc(1000).unwrap();
        let place = first.as_ptr();
        assert_eq!(place.addr() % ALIGN, 0);
        drop(first);
        let second = pool.alloc(900).unwrap();
        assert_eq!(second.as_ptr(), place);
        assert_eq!(pool.memory().allocations, 1);
        assert_eq!(pool.memory().in_use, 1024);
    }
}
