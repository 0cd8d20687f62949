//! [`Pool`]: device memory. Freed blocks are kept by size class and handed out again, a program's where it had them before
//! ([`crate::places`]).
//!
//! All work of a device runs in one stream, in the order of the calls, so a block may be handed out as soon as its last
//! handle is gone: whatever still reads it stands before its new use in the stream. Only giving blocks back to the driver
//! must wait.

use crate::driver::Stream;
use crate::error::{Error, ErrorKind, Result, check};
use crate::places::Wish;
use cudarc::driver::sys;
use fornax_ir::{DeviceBuffer, Memory};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment of every block, in bytes: what the driver gives, and what the widest accesses and cuBLASLt like.
pub(crate) const ALIGN: usize = 256;

/// Free memory kept beyond the peak in use before blocks go back to the driver.
const MAX_IDLE: u64 = 2 << 30;

/// Free memory kept beyond the peak in use so that programs find their places free.
const MAX_SPARE: u64 = 256 << 20;

/// Blocks up to this size are cut from slabs, so that small values do not cost a driver call and a page each.
const SMALL: usize = 1 << 20;

/// Size of a slab.
const SLAB: usize = 32 << 20;

/// Owners that an out-of-memory error lists.
const LISTED: usize = 5;

/// The size of the class of blocks that `len` bytes are taken from: powers of 2 and three steps between them.
fn class_size(len: usize) -> usize {
    let len = len.max(ALIGN);
    let step = (len.next_power_of_two() / 8).max(ALIGN);
    len.next_multiple_of(step)
}

/// Who asked for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Data from the host.
    Upload,
    /// The result of an op that was recorded there.
    Op(&'static Location<'static>),
    /// What a running plan holds for itself.
    Plan,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Upload => f.write_str("uploaded data"),
            Owner::Op(place) => write!(f, "values recorded at {}:{}", place.file(), place.line()),
            Owner::Plan => f.write_str("intermediates of the running plan"),
        }
    }
}

/// Memory of one device.
pub(crate) struct Pool {
    stream: Arc<Stream>,
    state: Mutex<State>,
    /// Every buffer is an allocation of its own, of its very size, so that `compute-sanitizer` sees where one ends.
    exact: bool,
}

#[derive(Default)]
struct State {
    free: FreeBlocks,
    /// The rest of the newest slab: start and bytes.
    slab: (u64, usize),
    /// All slabs.
    slabs: Vec<u64>,
    /// Live buffers, with bytes asked for.
    live: HashMap<u64, (usize, Owner)>,
    memory: Memory,
}

/// Free blocks: by class size, and by whether they held data from the host when they were last in use. A program then finds
/// its blocks where it left them, whatever was uploaded in between.
#[derive(Debug, Default)]
pub(crate) struct FreeBlocks(HashMap<(usize, bool), BTreeSet<u64>>);

impl FreeBlocks {
    /// A block of this size: where it is wished, else one that nobody wishes for, else, unless there `may_be_more` memory,
    /// any; of several the lowest, which makes places repeat.
    pub fn take(&mut self, size: usize, wish: Wish<'_>, is_upload: bool, may_be_more: bool) -> Option<u64> {
        for place in wish.places.into_iter().filter(|&place| place != 0) {
            if [false, true].iter().any(|&kind| self.0.get_mut(&(size, kind)).is_some_and(|set| set.remove(&place))) {
                return Some(place);
            }
        }
        [is_upload, !is_upload].into_iter().find_map(|kind| {
            let set = self.0.get_mut(&(size, kind))?;
            let unwished = set.iter().find(|&&place| !wish.is_others(place));
            let place = *unwished.or_else(|| set.first().filter(|_| !may_be_more))?;
            set.remove(&place);
            Some(place)
        })
    }

    pub fn give(&mut self, size: usize, place: u64, is_upload: bool) {
        self.0.entry((size, is_upload)).or_default().insert(place);
    }
}

impl Pool {
    pub fn new(stream: &Arc<Stream>, exact: bool) -> Arc<Pool> {
        Arc::new(Pool { stream: Arc::clone(stream), state: Mutex::default(), exact })
    }

    /// The size of the block for a buffer of `len` bytes.
    fn size(&self, len: usize) -> usize {
        if self.exact { len.max(1) } else { class_size(len) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `len` bytes, which hold anything, if possible where it is wished. The device must be current.
    ///
    /// # Errors
    /// If the driver has no memory; [`Pool::reclaim`] may help.
    pub fn alloc(self: &Arc<Pool>, len: usize, owner: Owner, wish: Wish<'_>) -> Result<CudaBuffer> {
        let size = self.size(len);
        let mut state = self.state();
        let is_upload = owner == Owner::Upload;
        let may_be_more = state.memory.reserved + size.max(SLAB) as u64 <= state.memory.peak + MAX_SPARE;
        let reused = if self.exact { None } else { state.free.take(size, wish, is_upload, may_be_more) };
        let place = match reused {
            Some(place) => place,
            None if self.exact => self.take(&mut state, size)?,
            None => {
                let new = if size <= SMALL { self.cut(&mut state, size) } else { self.take(&mut state, size) };
                new.or_else(|error| state.free.take(size, wish, is_upload, false).ok_or(error))?
            }
        };
        let memory = &mut state.memory;
        memory.in_use += size as u64;
        memory.peak = memory.peak.max(memory.in_use);
        state.live.insert(place, (len, owner));
        Ok(CudaBuffer { place, len, pool: Arc::clone(self) })
    }

    /// A small block from a slab.
    fn cut(&self, state: &mut State, size: usize) -> Result<u64> {
        if state.slab.1 < size {
            let slab = self.take(state, SLAB)?;
            state.slab = (slab, SLAB);
            state.slabs.push(slab);
        }
        let (start, left) = state.slab;
        state.slab = (start + size as u64, left - size);
        Ok(start)
    }

    /// A block from the driver.
    fn take(&self, state: &mut State, size: usize) -> Result<u64> {
        match driver_alloc(size) {
            Ok(place) => {
                state.memory.reserved += size as u64;
                state.memory.allocations += 1;
                Ok(place)
            }
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(state, size)),
            Err(error) => Err(error),
        }
    }

    /// Gives all free blocks back to the driver, once the work in the stream is done. The device must be current, and
    /// no work on freed blocks may be about to be queued.
    pub fn reclaim(&self) -> Result<()> {
        self.stream.synchronize()?;
        let State { free, memory, .. } = &mut *self.state();
        // Small blocks are parts of slabs.
        for (&(size, _), blocks) in free.0.iter_mut().filter(|((size, _), _)| self.exact || *size > SMALL) {
            while let Some(place) = blocks.pop_first() {
                // SAFETY: the driver gave this block, nobody holds it, and no work is left that uses it.
                unsafe { check(sys::cuMemFree_v2(place), "cuMemFree")? };
                memory.reserved -= size as u64;
            }
        }
        Ok(())
    }

    /// As [`Pool::reclaim`], if much more memory is free than the program ever used at a time.
    pub fn tidy(&self) -> Result<()> {
        let memory = self.memory();
        let is_much = memory.reserved > memory.peak.saturating_add(MAX_IDLE);
        if is_much || self.exact { self.reclaim() } else { Ok(()) }
    }

    pub fn memory(&self) -> Memory {
        self.state().memory
    }

    pub fn reset_peak(&self) {
        let memory = &mut self.state().memory;
        memory.peak = memory.in_use;
    }

    fn give(&self, place: u64, len: usize) {
        let size = self.size(len);
        let mut state = self.state();
        let held = state.live.remove(&place);
        state.memory.in_use -= size as u64;
        state.free.give(size, place, held.is_some_and(|(_, owner)| owner == Owner::Upload));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.stream.context.enter().is_err() || self.reclaim().is_err() {
            return;
        }
        for slab in self.state().slabs.drain(..) {
            // SAFETY: the driver gave the slab, and no buffer is left: each holds the pool.
            let _ = unsafe { sys::cuMemFree_v2(slab) };
        }
    }
}

fn driver_alloc(size: usize) -> Result<u64> {
    let mut place = 0;
    // SAFETY: the driver writes one address.
    unsafe { check(sys::cuMemAlloc_v2(&mut place, size), "cuMemAlloc")? };
    Ok(place)
}

#[cold]
fn out_of_memory(state: &State, size: usize) -> Error {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the device is current; the driver writes two sizes.
    let known = unsafe { check(sys::cuMemGetInfo_v2(&mut free, &mut total), "cuMemGetInfo").is_ok() };
    let device =
        if known { format!(" of {}, {} are free", bytes(total as u64), bytes(free as u64)) } else { String::new() };
    let owners = owners(&state.live);
    let message = format!(
        "no memory for {} on the device{device}; Fornax holds {}{owners}",
        bytes(size as u64),
        bytes(state.memory.in_use)
    );
    Error::new(ErrorKind::OutOfMemory, message)
}

/// The largest owners, a line each.
fn owners(live: &HashMap<u64, (usize, Owner)>) -> String {
    let mut owners: HashMap<Owner, (u64, usize)> = HashMap::new();
    for &(len, owner) in live.values() {
        let (bytes, count) = owners.entry(owner).or_default();
        *bytes += len as u64;
        *count += 1;
    }
    let mut owners: Vec<(u64, usize, String)> =
        owners.into_iter().map(|(owner, (bytes, count))| (bytes, count, owner.to_string())).collect();
    owners.sort_by(|a, b| b.cmp(a));
    let mut text = String::new();
    for (size, count, owner) in owners.iter().take(LISTED) {
        let buffers = if *count == 1 { "buffer" } else { "buffers" };
        text.push_str(&format!("\n  {} in {count} {buffers}: {owner}", bytes(*size)));
    }
    if owners.len() > LISTED {
        let rest: u64 = owners[LISTED..].iter().map(|owner| owner.0).sum();
        text.push_str(&format!("\n  {} more", bytes(rest)));
    }
    text
}

/// A size for people.
pub(crate) fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..0x10_0000 => format!("{:.1} KiB", size as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", size as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", size as f64 / f64::from(1 << 30)),
    }
}

/// A block of the pool; it goes back when dropped.
pub(crate) struct CudaBuffer {
    place: u64,
    len: usize,
    pool: Arc<Pool>,
}

impl CudaBuffer {
    /// Its address on the device.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Whether it is memory of this device.
    pub fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Says who has it now.
    pub fn set_owner(&self, owner: Owner) {
        if let Some(entry) = self.pool.state().live.get_mut(&self.place) {
            entry.1 = owner;
        }
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        self.pool.give(self.place, self.len);
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl DeviceBuffer for CudaBuffer {
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_waste_little() {
        for len in (0..70_000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1, 3 << 30]) {
            let size = class_size(len);
            assert!(size >= len && size.is_multiple_of(ALIGN), "{len}");
            assert!(size <= len.max(ALIGN) + (len / 4).max(ALIGN), "{len}: {size}");
            assert_eq!(class_size(size), size, "a block serves its own class");
        }
    }

    #[test]
    fn free_blocks_serve_their_size_and_the_lowest_comes_first() {
        let mut free = FreeBlocks::default();
        for (size, place, is_upload) in [(256, 3, false), (256, 1, false), (512, 2, false), (256, 4, true)] {
            free.give(size, place, is_upload);
        }
        let at = |place| Wish { places: [9, place], others: None };
        assert_eq!(free.take(1024, at(1), false, false), None);
        assert_eq!(free.take(256, at(2), true, false), Some(4), "a place of another size is no use");
        assert_eq!(free.take(256, at(3), true, false), Some(3), "a wish goes before the kind");
        assert_eq!(free.take(256, at(3), true, false), Some(1), "any is better than none");
        assert_eq!(free.take(256, Wish::default(), false, true), None);
        assert_eq!(free.take(512, Wish::default(), true, true), Some(2));
    }

    #[test]
    fn out_of_memory_lists_the_largest_owners() {
        let here = Location::caller();
        let live = [
            (1, (3 << 30, Owner::Upload)),
            (2, (1 << 30, Owner::Op(here))),
            (3, (4 << 30, Owner::Op(here))),
            (4, (1 << 20, Owner::Plan)),
        ];
        let text = owners(&live.into_iter().collect());
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[0].starts_with("  5.00 GiB in 2 buffers: values recorded at "), "{text}");
        assert_eq!(lines[1], "  3.00 GiB in 1 buffer: uploaded data");
        assert_eq!(lines[2], "  1.0 MiB in 1 buffer: intermediates of the running plan");
    }
}
