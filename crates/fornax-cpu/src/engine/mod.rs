//! The tile engine: runs fused kernels as programs of micro-ops over tiles of a few hundred elements, which stay in the
//! first-level cache.
//!
//! [`bind`](bind::bind) makes a [`BoundKernel`] for given sizes; [`BoundKernel::run`] runs it. [`micro`] holds the loops,
//! [`select`] finds the one for an op and dtype.
//!
//! # Same bits for any number of threads
//! Rows are independent. Where few rows leave threads idle, a row's elements are cut into chunks whose size follows from
//! the kernel alone, and the chunks' partial reductions are joined in order.

pub(crate) mod bind;
pub(crate) mod micro;
pub(crate) mod select;

use crate::memory::{Pool, Scratch};
use crate::threads::Threads;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bind::Arg;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use fornax_ir::{DeviceError, NodeId};
use micro::{Levels, Micro, Pattern};
use smallvec::SmallVec;

/// Work (elements times instructions) worth a task for another thread.
pub(crate) const TASK_WORK: usize = 1 << 18;

/// Elements of a chunk, where a row is cut into chunks.
const CHUNK: usize = 1 << 15;

/// Rows from which threads share out rows rather than parts of rows.
const MANY_ROWS: usize = 16;

/// Steps of a vertical sum between two emptyings of its `f32` partial sums.
const FLUSH_STEPS: usize = 32;

/// One micro-op with its operands' slots.
#[derive(Clone, Copy)]
pub(crate) struct Ins {
    micro: Micro,
    dst: u16,
    a: u16,
    b: u16,
    c: u16,
    /// One element instead of all lanes.
    one: bool,
    imm: u64,
}

/// Rows that transposing loads fetch at a time: a cache line of `f32`.
const BLOCK_ROWS: usize = 16;

/// A load whose elements lie far apart along the lanes, but next to each other along the innermost loop over rows: it
/// runs once for [`BLOCK_ROWS`] rows, so that each cache line is fetched once.
struct BlockLoad {
    micro: Micro,
    access: usize,
    /// The slot that the code reads.
    slot: u16,
    /// The register of all rows of the block.
    block: u16,
    /// Size of a register's element.
    size: usize,
    /// Distance of lanes, in bytes.
    stride: isize,
}

/// Where an access starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// At a buffer, by its place in [`BoundKernel::buffers`].
    Buffer(usize),
    /// At the number 0: the slot holds a number rather than a pointer.
    Number,
    /// At the values kept between passes.
    Kept,
}

/// Parts of a worker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Row values.
    Row,
    /// Accumulators of reductions.
    Total,
    Temporary,
    /// Values kept between passes.
    Kept,
}

/// What a slot points to.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Access(usize),
    Base(usize),
    Arg(usize),
    Const(usize),
    Flag(usize),
    Register(Region, usize),
}

/// A pointer that moves: strides in bytes.
#[derive(Debug)]
struct BoundAccess {
    source: Source,
    offset: isize,
    row_strides: Vec<isize>,
    step_strides: Vec<isize>,
}

/// How two partial reductions become one.
struct Join {
    micro: Micro,
    total: u16,
    places: Option<u16>,
}

struct BoundPass {
    inits: Vec<Ins>,
    code: Vec<Ins>,
    flushes: Vec<Ins>,
    joins: Vec<Join>,
    moving: Vec<Moving>,
}

/// A slot whose pointer moves with the steps of a pass.
struct Moving {
    slot: u16,
    access: usize,
    /// Bytes from one step of the innermost loop to the next.
    stride: isize,
}

/// A kernel with loops, strides and micro-ops for given sizes.
pub(crate) struct BoundKernel {
    /// Whether lanes are rows (or, without reductions, elements); else they go along the last reduced dim.
    vertical: bool,
    /// Most lanes of a tile.
    tile: usize,
    /// Elements along the dim of the lanes.
    tile_len: usize,
    /// Lanes of row values.
    lanes: usize,
    /// Loops over row tiles.
    row_sizes: Vec<usize>,
    /// Which of them goes over tiles, if vertical.
    tile_loop: usize,
    blocks: Vec<BlockLoad>,
    rows: usize,
    /// Loops inside a pass; the last goes over tiles, if not vertical.
    step_sizes: Vec<usize>,
    steps: usize,
    accesses: Vec<BoundAccess>,
    /// The first slots are the accesses, in order.
    slots: Vec<Slot>,
    /// The slot of each access.
    access_slots: Vec<u16>,
    /// Bytes that each access moves from a row to the next of the innermost loop over rows.
    row_moves: Vec<isize>,
    consts: Vec<u64>,
    pub args: Vec<Arg>,
    /// The nodes behind fault flags.
    pub flags: Vec<NodeId>,
    /// Owns what micro-ops point to.
    #[expect(clippy::vec_box, reason = "micro-ops hold the addresses")]
    maps: Vec<Box<Levels>>,
    #[expect(clippy::vec_box, reason = "micro-ops hold the addresses")]
    patterns: Vec<Box<Pattern>>,
    /// Bytes of each region.
    regions: [usize; 4],
    prologue: Vec<Ins>,
    stages: Vec<Vec<Ins>>,
    passes: Vec<BoundPass>,
    /// All stages and passes behind one another, where passes have a single step.
    row_code: Vec<Ins>,
    /// The values that are read and written, by the number that [`BoundKernel::run`] takes them in.
    pub buffers: Vec<NodeId>,
    /// Results that may take over the buffer of a value that is read: (result, value).
    pub in_place: Vec<(NodeId, NodeId)>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Elements times instructions.
    pub work: usize,
}

/// What a run works on.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// The first byte of each of [`BoundKernel::buffers`].
    pub buffers: &'a [*mut u8],
    /// Two words for each of [`BoundKernel::args`].
    pub args: &'a [[u64; 2]],
    /// One for each of [`BoundKernel::flags`].
    pub flags: &'a [AtomicU32],
}

// SAFETY: threads read buffers together, and write disjoint elements of those that the kernel writes.
unsafe impl Sync for Run<'_> {}

/// One thread's registers and pointers.
struct Worker<'a> {
    kernel: &'a BoundKernel,
    pool: &'a Pool,
    /// Pointers for slots; at the start of the row tile at hand, for accesses; and where accesses start.
    scratch: Scratch,
    start: *mut u8,
    row_index: SmallVec<[usize; 6]>,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.pool.give_scratch(core::mem::take(&mut self.scratch));
    }
}

impl BoundKernel {
    /// Runs the kernel.
    ///
    /// # Safety
    /// `run` holds live buffers of the sizes that the kernel was bound to; those that the kernel writes are reached by
    /// nobody else, and overlap no other but as [`BoundKernel::in_place`] allows.
    pub unsafe fn run(&self, run: Run<'_>, pool: &Arc<Pool>, threads: &Threads) -> Result<(), DeviceError> {
        if self.rows == 0 {
            return Ok(());
        }
        let chunk_steps = if self.vertical { CHUNK / self.tile } else { CHUNK.div_ceil(self.tile) };
        if self.rows < MANY_ROWS && self.steps > chunk_steps.max(1) && self.steps * self.tile > 2 * CHUNK {
            // SAFETY: the caller's contract.
            return unsafe { self.run_in_chunks(run, pool, threads, chunk_steps.max(1)) };
        }
        let tasks = if threads.count() == 1 { 1 } else { (self.work / TASK_WORK).clamp(1, self.rows) };
        if tasks == 1 {
            let mut worker = Worker::new(self, run, pool, None)?;
            // SAFETY: the caller's contract.
            unsafe { worker.run_rows(0..self.rows) };
            return Ok(());
        }
        // A worker a task would allocate; a few tasks a thread even out their speeds.
        let tasks = tasks.min(threads.count() * 8);
        let failed = crate::lock::Lock::new(None);
        threads.each(tasks, &|task| {
            let part = self.rows * task / tasks..self.rows * (task + 1) / tasks;
            match Worker::new(self, run, pool, None) {
                // SAFETY: the caller's contract; tasks have disjoint rows.
                Ok(mut worker) => unsafe { worker.run_rows(part) },
                Err(error) => *failed.lock() = Some(error),
            }
        });
        failed.lock().take().map_or(Ok(()), Err)
    }

    /// Rows one after the other, each pass over a row shared out in chunks.
    ///
    /// # Safety
    /// As [`BoundKernel::run`].
    unsafe fn run_in_chunks(
        &self,
        run: Run<'_>,
        pool: &Arc<Pool>,
        threads: &Threads,
        chunk_steps: usize,
    ) -> Result<(), DeviceError> {
        let chunks = self.steps.div_ceil(chunk_steps);
        let mut main = Worker::new(self, run, pool, None)?;
        let totals = self.regions[Region::Total as usize];
        let partials = pool.alloc(totals * chunks)?;
        let failed = crate::lock::Lock::new(None);
        for row in 0..self.rows {
            let lanes = main.start_row(row);
            for (phase, stage) in self.stages.iter().enumerate() {
                // SAFETY: the worker's slots fit the code, see `Worker::new`.
                unsafe { main.execute(stage, lanes) };
                let Some(pass) = self.passes.get(phase) else { break };
                // Shared: chunks read row values, and write totals, outputs and kept values of their own.
                let shared = Shared { rows: main.region(Region::Row), kept: main.region(Region::Kept) };
                let partials_start = SendPtr(partials.as_ptr());
                threads.each(chunks, &|chunk| {
                    let (shared, partials_start) = (&shared, &partials_start);
                    match Worker::new(self, run, pool, Some(shared)) {
                        Ok(mut worker) => {
                            worker.start_row(row);
                            let end = ((chunk + 1) * chunk_steps).min(self.steps);
                            // SAFETY: as above; each chunk has its own part of `partials`.
                            unsafe {
                                worker.run_pass(pass, chunk * chunk_steps..end, lanes);
                                let to = partials_start.0.add(chunk * totals);
                                worker.region(Region::Total).copy_to_nonoverlapping(to, totals);
                            }
                        }
                        Err(error) => *failed.lock() = Some(error),
                    }
                });
                if let Some(error) = failed.lock().take() {
                    return Err(error);
                }
                let n = if self.vertical { lanes } else { 1 };
                // SAFETY: accumulators and partial ones are laid out alike.
                unsafe {
                    main.execute(&pass.inits, lanes);
                    for chunk in 0..chunks {
                        let from = partials.as_ptr().add(chunk * totals);
                        for join in &pass.joins {
                            let part = |slot: u16| match self.slots[slot as usize] {
                                Slot::Register(_, offset) => from.add(offset).cast_const(),
                                _ => unreachable!("accumulators are registers"),
                            };
                            let places = join.places.unwrap_or(join.total);
                            let (a, b) = (part(join.total), part(places));
                            (join.micro)(
                                main.scratch.slots[join.total as usize],
                                a,
                                b,
                                main.scratch.slots[places as usize],
                                n,
                                0,
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// What workers of one row share.
struct Shared {
    rows: *mut u8,
    kept: *mut u8,
}
// SAFETY: row values are only read while they are shared; kept values are disjoint by step.
unsafe impl Sync for Shared {}

struct SendPtr(*mut u8);
// SAFETY: whoever uses it writes to a part of its own.
unsafe impl Sync for SendPtr {}

impl<'a> Worker<'a> {
    fn new(
        kernel: &'a BoundKernel,
        run: Run<'_>,
        pool: &'a Pool,
        shared: Option<&Shared>,
    ) -> Result<Worker<'a>, DeviceError> {
        let own_kept = if shared.is_some() { 0 } else { kernel.regions[Region::Kept as usize] };
        let [rows, totals, temporary, _] = kernel.regions;
        let row_index = SmallVec::from_elem(0, kernel.row_sizes.len());
        let start = core::ptr::null_mut();
        let mut worker = Worker { kernel, pool, scratch: pool.take_scratch(), start, row_index };
        worker.start = worker.scratch.memory(rows + totals + temporary + own_kept)?;
        if let Some(shared) = shared {
            // SAFETY: both are `rows` bytes long.
            unsafe { shared.rows.copy_to_nonoverlapping(worker.start, rows) };
        }
        let kept = shared.map_or(worker.region(Region::Kept), |shared| shared.kept);
        let regions = [Region::Row, Region::Total, Region::Temporary, Region::Kept].map(|region| worker.region(region));
        let Scratch { slots, row_starts, origins, .. } = &mut worker.scratch;
        origins.clear();
        origins.extend(kernel.accesses.iter().map(|access| match access.source {
            Source::Buffer(buffer) => run.buffers[buffer].wrapping_offset(access.offset),
            Source::Number => core::ptr::null_mut::<u8>().wrapping_offset(access.offset),
            Source::Kept => kept.wrapping_offset(access.offset),
        }));
        row_starts.clone_from(origins);
        slots.clear();
        slots.extend(kernel.slots.iter().map(|slot| match *slot {
            Slot::Access(access) => origins[access],
            Slot::Base(buffer) => run.buffers[buffer],
            Slot::Arg(arg) => core::ptr::from_ref(&run.args[arg]).cast_mut().cast(),
            Slot::Const(idx) => core::ptr::from_ref(&kernel.consts[idx]).cast_mut().cast(),
            Slot::Flag(flag) => core::ptr::from_ref(&run.flags[flag]).cast_mut().cast(),
            Slot::Register(place, offset) => regions[place as usize].wrapping_add(offset),
        }));
        // SAFETY: the slots were just made for this code.
        unsafe { worker.execute(&kernel.prologue, kernel.tile) };
        Ok(worker)
    }

    fn region(&self, region: Region) -> *mut u8 {
        let [rows, totals, temporary, _] = self.kernel.regions;
        self.start.wrapping_add(match region {
            Region::Row => 0,
            Region::Total => rows,
            Region::Temporary => rows + totals,
            Region::Kept => rows + totals + temporary,
        })
    }

    /// Runs code on `n` lanes.
    ///
    /// # Safety
    /// The slots' pointers cover what the code reads and writes on `n` lanes.
    #[inline]
    unsafe fn execute(&mut self, code: &[Ins], n: usize) {
        let slots = self.scratch.slots.as_ptr();
        for ins in code {
            // SAFETY: slots of code lie within the kernel's slots; the rest is the caller's contract.
            unsafe {
                let slot = |slot: u16| *slots.add(slot as usize);
                let n = if ins.one { 1 } else { n };
                (ins.micro)(slot(ins.dst), slot(ins.a), slot(ins.b), slot(ins.c), n, ins.imm);
            }
        }
    }

    /// # Safety
    /// As [`BoundKernel::run`]; nobody else runs these rows.
    unsafe fn run_rows(&mut self, rows: Range<usize>) {
        let kernel = self.kernel;
        let Range { start, end } = rows;
        let (mut block_start, mut block_end) = (start, start);
        for row in start..end {
            let lanes = if row == start { self.start_row(row) } else { self.next_row(row) };
            if !kernel.blocks.is_empty() {
                if row == block_end {
                    let place = self.row_index.last().copied().unwrap_or(0);
                    let left = kernel.row_sizes.last().map_or(1, |&size| size - place);
                    let count = BLOCK_ROWS.min(left).min(end - row);
                    (block_start, block_end) = (row, row + count);
                    // SAFETY: the accesses of the next `count` rows follow each other, see `BlockLoad`.
                    unsafe { self.load_blocks(count, lanes) };
                }
                for load in &kernel.blocks {
                    let offset = (row - block_start) * kernel.tile * load.size;
                    self.scratch.slots[load.slot as usize] =
                        self.scratch.slots[load.block as usize].wrapping_add(offset);
                }
            }
            if kernel.steps == 1 {
                // What runs on one lane in a pass along a row says so itself.
                let lanes = if kernel.vertical { lanes } else { kernel.tile_len };
                // SAFETY: the slots stand at this row.
                unsafe { self.execute(&kernel.row_code, lanes) };
                continue;
            }
            for (phase, stage) in kernel.stages.iter().enumerate() {
                // SAFETY: the slots stand at this row.
                unsafe {
                    self.execute(stage, lanes);
                    if let Some(pass) = kernel.passes.get(phase) {
                        self.run_pass(pass, 0..kernel.steps, lanes);
                    }
                }
            }
        }
    }

    /// Fetches what `count` rows from the one at hand read by transposing loads.
    ///
    /// # Safety
    /// As [`BoundKernel::run`]; the rows are in the same innermost loop.
    unsafe fn load_blocks(&mut self, count: usize, lanes: usize) {
        let kernel = self.kernel;
        let number = |n: usize| core::ptr::null::<u8>().wrapping_add(n);
        for load in &kernel.blocks {
            let dst = self.scratch.slots[load.block as usize];
            let a = self.scratch.row_starts[load.access];
            // SAFETY: the register holds `BLOCK_ROWS` tiles.
            unsafe { (load.micro)(dst, a, number(count), number(kernel.tile), lanes, load.stride as u64) };
        }
    }

    /// Points accesses to row tile `row`; tells how many lanes it has.
    fn start_row(&mut self, row: usize) -> usize {
        let kernel = self.kernel;
        let mut rest = row;
        for (dim, &size) in kernel.row_sizes.iter().enumerate().rev() {
            self.row_index[dim] = rest % size;
            rest /= size;
        }
        for (idx, access) in kernel.accesses.iter().enumerate() {
            let strides = access.row_strides.iter().zip(&self.row_index);
            let offset: isize = strides.map(|(stride, &i)| stride * i as isize).sum();
            self.scratch.row_starts[idx] = self.scratch.origins[idx].wrapping_offset(offset);
        }
        self.reset_slots()
    }

    /// Points accesses to the next row tile; tells how many lanes it has.
    fn next_row(&mut self, row: usize) -> usize {
        let kernel = self.kernel;
        match (self.row_index.last_mut(), kernel.row_sizes.last()) {
            (Some(last), Some(&size)) if *last + 1 < size => *last += 1,
            _ => return self.start_row(row),
        }
        for (start, stride) in self.scratch.row_starts.iter_mut().zip(&kernel.row_moves) {
            *start = start.wrapping_offset(*stride);
        }
        self.reset_slots()
    }

    fn reset_slots(&mut self) -> usize {
        let kernel = self.kernel;
        for (&slot, &start) in kernel.access_slots.iter().zip(&self.scratch.row_starts) {
            self.scratch.slots[slot as usize] = start;
        }
        match self.row_index.get(kernel.tile_loop) {
            Some(&tile) if kernel.vertical => (kernel.tile_len - tile * kernel.tile).min(kernel.tile),
            _ => kernel.lanes,
        }
    }

    /// Runs the steps of a pass over the row tile at hand.
    ///
    /// # Safety
    /// As [`BoundKernel::run`]; nobody else runs these steps of this row.
    unsafe fn run_pass(&mut self, pass: &BoundPass, steps: Range<usize>, lanes: usize) {
        let kernel = self.kernel;
        // SAFETY: accumulators are registers.
        unsafe { self.execute(&pass.inits, lanes) };
        let Some((&inner, outer)) = kernel.step_sizes.split_last() else {
            // SAFETY: the slots stand at this row.
            unsafe {
                self.execute(&pass.code, lanes);
                self.execute(&pass.flushes, lanes);
            }
            return;
        };
        let mut step = steps.start;
        while step < steps.end {
            // Up to the end of the innermost loop, pointers move by one stride each.
            let first = step % inner;
            let run = (inner - first).min(steps.end - step);
            for moving in &pass.moving {
                let strides = &kernel.accesses[moving.access].step_strides;
                let mut offset = moving.stride * first as isize;
                let mut rest = step / inner;
                for (&size, &stride) in outer.iter().zip(strides).rev() {
                    offset += stride * (rest % size) as isize;
                    rest /= size;
                }
                let start = self.scratch.row_starts[moving.access];
                self.scratch.slots[moving.slot as usize] = start.wrapping_offset(offset);
            }
            for i in 0..run {
                let lanes = match kernel.vertical {
                    true => lanes,
                    false => (kernel.tile_len - (first + i) * kernel.tile).min(kernel.tile),
                };
                // SAFETY: the slots stand at this step.
                unsafe { self.execute(&pass.code, lanes) };
                if !pass.flushes.is_empty() && (step + i - steps.start) % FLUSH_STEPS == FLUSH_STEPS - 1 {
                    // SAFETY: accumulators are registers.
                    unsafe { self.execute(&pass.flushes, lanes) };
                }
                if i + 1 < run {
                    for moving in &pass.moving {
                        let place = &mut self.scratch.slots[moving.slot as usize];
                        *place = place.wrapping_offset(moving.stride);
                    }
                }
            }
            step += run;
        }
        // SAFETY: accumulators are registers.
        unsafe { self.execute(&pass.flushes, lanes) };
        // Stages read row accesses only, which did not move.
    }
}
