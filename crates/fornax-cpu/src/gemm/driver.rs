//! Blocking: cuts a product into tasks, packs operands, runs the kernel, and hands over finished tiles.
//!
//! The result is cut into row blocks × column chunks, one task each. A task runs over the whole depth in blocks whose size
//! depends on the depth alone, so sums are rounded in the same order for any number of threads and any cut. Right panels
//! are packed once for all tasks (as many columns at a time as [`SHARED_BYTES`] holds), left panels per task or, where several
//! chunks would repeat that, once too.

use super::arith::{Arith, Plain};
use super::kernel::{Block, Kernel};
use super::offsets::Shifted;
use super::pack::{Pack, Panel};
use super::scratch::{self, Use};
use super::{Threads, threads};
use crate::simd::Isa;
use core::marker::PhantomData;
use core::ptr;

/// Left panels of a task should stay in L2 next to some of the right ones.
const LHS_BLOCK_BYTES: usize = 448 << 10;

/// As many of right panels that a task packs for itself.
const RHS_BLOCK_BYTES: usize = 320 << 10;

/// Most bytes of an operand packed at a time for all tasks.
const SHARED_BYTES: usize = 32 << 20;

/// Tasks that a large product is cut into, per thread. A thread may wake 100 µs late; with 4 tasks each, the others then wait
/// for a whole task of it at the end, which cost up to a quarter at 512³.
const TASKS_PER_WORKER: usize = 32;

/// Panels packed in turn, and depths at a time: rows of an operand are often pages apart, and this visits a page once for
/// several panels.
const PACK_PANELS: usize = 4;
const PACK_DEPTHS: usize = 128;

/// See [`Job::streams_rhs`].
const STREAM_BYTES: usize = 256 << 10;
const STREAM_DEPTH: usize = 64;

/// Depths at a time of a right operand that lies shifted: what a tile reads of it, and a panel of the left operand, stay
/// in L1.
const SHIFTED_DEPTH: usize = 320;

/// Columns of result that are finished together: small enough to be in cache still, large enough to amortize a call.
const FINISH_COLS: usize = 128;

/// Where an operand comes from.
pub(super) enum Operand<'a, R: Arith> {
    /// Packed panel by panel.
    Pack(&'a dyn Pack<R::Packed>),
    /// Read in place: lanes lie `lane` apart, depths `step` apart. The kernel has `group == 1`; `lane` is 1 unless this is
    /// the left operand and the kernel is `strided`.
    InPlace { ptr: *const R::Packed, lane: usize, step: usize },
    /// Right operand only, read in place; the kernel has `group == 1`.
    Shifted(&'a Shifted<'a, R::Packed>),
}

/// Where sums are kept.
pub(super) enum Sums<R: Arith> {
    /// In the row-major result itself; added to what is there if `add`.
    Result { ptr: *mut R::Acc, ld: usize, add: bool },
    /// In work memory; only [`Job::finish`] sees them.
    Scratch,
}

/// A tile of a result: rows `row..row + rows` and columns `col..col + cols`.
#[derive(Debug)]
pub struct Tile<'a, T> {
    /// First row.
    pub row: usize,
    /// First column.
    pub col: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Which matrix of the batch.
    pub batch: usize,
    ptr: *mut T,
    ld: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// # Safety
    /// `rows` rows of `cols` elements, `ld` apart, belong to the tile alone.
    pub(super) unsafe fn new(ptr: *mut T, ld: usize, [row, col, rows, cols]: [usize; 4], batch: usize) -> Self {
        Tile { row, col, rows, cols, batch, ptr, ld, life: PhantomData }
    }

    /// The elements of row `i`, counted from the first of the tile.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    #[must_use]
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows, "gemm: row {i} of a tile of {}", self.rows);
        // SAFETY: by the contract of `new`.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.add(i * self.ld), self.cols) }
    }

    /// Address of the first element; row `i` starts [`Tile::ld`]` · i` elements further.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.ptr
    }

    /// Elements from one row to the next.
    #[must_use]
    pub fn ld(&self) -> usize {
        self.ld
    }

    pub(super) fn with_batch(self, batch: usize) -> Self {
        Tile { batch, ..self }
    }
}

/// Called with each finished tile.
pub(super) type Finish<'a, T> = &'a (dyn Fn(Tile<'_, T>) + Sync);

/// One product.
pub(super) struct Job<'a, R: Arith> {
    pub(super) isa: Isa,
    pub(super) threads: Threads,
    pub(super) kernel: Kernel<R>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) depth: usize,
    pub(super) lhs: Operand<'a, R>,
    pub(super) rhs: Operand<'a, R>,
    /// Whether each task packs its right panels for itself, rather than all of them being packed once before.
    pub(super) rhs_by_task: bool,
    pub(super) sums: Sums<R>,
    pub(super) finish: Option<Finish<'a, R::Acc>>,
}

// SAFETY: pointers lead to operands that are only read and to a result of which tasks write disjoint tiles.
unsafe impl<R: Arith> Sync for Job<'_, R> {}

/// A pointer into packed panels that tasks read, or fill at disjoint places.
struct Shared<P>(*mut P);
// SAFETY: see above.
unsafe impl<P> Sync for Shared<P> {}

impl<P> Shared<P> {
    fn get(&self) -> *mut P {
        self.0
    }
}

/// The depth cut into equal blocks.
#[derive(Clone, Copy)]
struct Depths {
    total: usize,
    block: usize,
    count: usize,
}

impl Depths {
    fn new(total: usize, max: usize, group: usize) -> Self {
        let count = total.div_ceil(max).max(1);
        let block = total.div_ceil(count).next_multiple_of(group);
        Depths { total, block, count: total.div_ceil(block.max(1)).max(1) }
    }

    fn start(self, i: usize) -> usize {
        i * self.block
    }

    fn len(self, i: usize) -> usize {
        self.block.min(self.total - self.start(i))
    }
}

/// Splits `total` into about `parts` pieces of a multiple of `unit`.
fn piece(total: usize, parts: usize, unit: usize) -> usize {
    total.div_ceil(parts.max(1)).next_multiple_of(unit)
}

impl<R: Arith> Job<'_, R> {
    /// Runs the product.
    ///
    /// # Safety
    /// Operands in place are readable and the result is writable at the sizes of the job.
    pub(super) unsafe fn run(&self) {
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        // SAFETY: by contract.
        if unsafe { self.run_in_place() } {
            return;
        }
        // SAFETY: by contract.
        threads::enter(self.threads, || unsafe { self.run_blocked() });
    }

    /// # Safety
    /// As [`Job::run`].
    unsafe fn run_blocked(&self) {
        let Kernel { mr, nr, group, depth: depth_max, .. } = self.kernel;
        let depth_max = match self.rhs {
            Operand::Shifted(_) => SHIFTED_DEPTH,
            _ if self.streams_rhs() => STREAM_DEPTH,
            _ => depth_max,
        };
        let depths = Depths::new(self.depth, depth_max, group);
        let padded_depth = self.depth.next_multiple_of(group).max(1);
        let item = size_of::<R::Packed>();

        // Strips of columns: as many as fit packed, or those of a shifted operand, between which there are gaps.
        let rhs_packed = matches!(self.rhs, Operand::Pack(_)) && !self.rhs_by_task;
        let fit = (SHARED_BYTES / (item * padded_depth)).max(4 * nr) / nr * nr;
        let strip = match self.rhs {
            Operand::Shifted(shifted) => shifted.cols,
            _ if rhs_packed => piece(self.cols, self.cols.div_ceil(fit), nr),
            _ => self.cols,
        };
        let strips = self.cols.div_ceil(strip);

        let workers = self.threads.count();
        let wanted = if workers > 1 { TASKS_PER_WORKER * workers } else { 1 };
        let lhs_max = (LHS_BLOCK_BYTES / (item * depths.block.max(1))).max(4 * mr) / mr * mr;
        let mut row_parts = self.rows.div_ceil(lhs_max);
        if workers > 1 {
            // Blocks of equal size, as many for each worker.
            row_parts = row_parts.next_multiple_of(workers).min(self.rows.div_ceil(4 * mr)).max(row_parts);
        }
        let row_block = piece(self.rows, row_parts, mr);
        let row_blocks = self.rows.div_ceil(row_block);
        let parts_of_strip = if rhs_packed { wanted } else { wanted.div_ceil(strips) };
        let col_parts = parts_of_strip.div_ceil(row_blocks).min(strip.div_ceil(4 * nr));
        let mut chunk = piece(strip, col_parts, nr);
        if self.rhs_by_task && matches!(self.rhs, Operand::Pack(_)) {
            chunk = chunk.min((RHS_BLOCK_BYTES / (item * depths.block.max(1))).clamp(2 * nr, 1024) / nr * nr);
        }

        let lhs_len = padded_depth * self.rows.next_multiple_of(mr);
        let share_lhs = matches!(self.lhs, Operand::Pack(_)) && self.cols > chunk && lhs_len * item <= SHARED_BYTES;
        scratch::with(Use::SharedLhs, if share_lhs { lhs_len } else { 0 }, |lhs: &mut [R::Packed]| {
            if let (true, Operand::Pack(pack)) = (share_lhs, &self.lhs) {
                self.pack_all(*pack, lhs, 0, self.rows, mr, depths);
            }
            let lhs = Shared(lhs.as_mut_ptr());
            let rhs_len = if rhs_packed { padded_depth * strip } else { 0 };
            scratch::with(Use::SharedRhs, rhs_len, |rhs: &mut [R::Packed]| {
                // Strips that wait for their panels come one after another, others all at once.
                let at_once = if rhs_packed { 1 } else { strips };
                for first in (0..strips).step_by(at_once) {
                    let first_cols = strip.min(self.cols - first * strip);
                    if let (true, Operand::Pack(pack)) = (rhs_packed, &self.rhs) {
                        self.pack_all(*pack, rhs, first * strip, first_cols, nr, depths);
                    }
                    let rhs = Shared(rhs.as_mut_ptr());
                    let chunks = first_cols.div_ceil(chunk);
                    threads::for_each(self.threads, at_once * row_blocks * chunks, &|i| {
                        let strip_start = (first + i / (row_blocks * chunks)) * strip;
                        let strip_cols = strip.min(self.cols - strip_start);
                        let (row, col) = (i / chunks % row_blocks * row_block, i % chunks * chunk);
                        let task = Task {
                            job: self,
                            depths,
                            row,
                            rows: row_block.min(self.rows - row),
                            strip: strip_start,
                            strip_cols,
                            col,
                            cols: chunk.min(strip_cols - col),
                            lhs: share_lhs.then(|| lhs.get().cast_const()),
                            rhs: rhs_packed.then(|| rhs.get().cast_const()),
                        };
                        // SAFETY: tasks write disjoint tiles, and shared panels are packed by now.
                        unsafe { task.run() };
                    });
                }
            });
        });
    }

    /// Runs a product that needs neither packing nor blocking nor other threads, and tells whether it was one. Small
    /// matrices come by the thousand; this saves them a tenth of a microsecond each.
    ///
    /// # Safety
    /// As [`Job::run`].
    unsafe fn run_in_place(&self) -> bool {
        let Kernel { mr, nr, depth: depth_max, run, .. } = self.kernel;
        let (Operand::InPlace { ptr: a, lane, step: a_step }, Operand::InPlace { ptr: b, step: b_step, .. }) =
            (&self.lhs, &self.rhs)
        else {
            return false;
        };
        let Sums::Result { ptr: c, ld, add } = self.sums else { return false };
        if self.depth > depth_max || self.threads != Threads::One || self.streams_rhs() {
            return false;
        }
        for j in (0..self.cols).step_by(nr) {
            for i in (0..self.rows).step_by(mr) {
                let b = b.wrapping_add(j);
                let block = Block {
                    depth: self.depth,
                    a: a.wrapping_add(i * lane),
                    a_step: *a_step,
                    a_row: *lane,
                    b,
                    b_step: *b_step,
                    b_offsets: ptr::null(),
                    c: c.wrapping_add(i * ld + j),
                    ldc: ld,
                    rows: mr.min(self.rows - i),
                    cols: nr.min(self.cols - j),
                    add,
                    next: b.cast(),
                    next_step: 0,
                };
                // SAFETY: the sizes of the job cover the tile.
                unsafe { run(self.isa, &block) };
            }
        }
        if let Some(finish) = self.finish {
            // SAFETY: the result is this job's.
            finish(unsafe { Tile::new(c, ld, [0, 0, self.rows, self.cols], 0) });
        }
        true
    }

    /// Whether a large right operand is read in place, once. Then few depths at a time are walked over all columns,
    /// since a tall narrow tile would touch a new page at each depth.
    fn streams_rhs(&self) -> bool {
        let large = self.depth.saturating_mul(self.cols) * size_of::<R::Packed>() > STREAM_BYTES;
        large && self.rows <= self.kernel.mr && matches!(self.rhs, Operand::InPlace { .. })
    }

    /// Packs lanes `first..first + lanes` over the whole depth: depth blocks one after another, panels within.
    fn pack_all(
        &self,
        pack: &dyn Pack<R::Packed>,
        out: &mut [R::Packed],
        first: usize,
        lanes: usize,
        width: usize,
        depths: Depths,
    ) {
        let panels = lanes.div_ceil(width);
        let group = self.kernel.group;
        assert!(panels * width * depths.total.next_multiple_of(group) <= out.len());
        let shared = Shared(out.as_mut_ptr());
        let teams = panels.div_ceil(PACK_PANELS);
        threads::for_each(self.threads, depths.count * teams, &|i| {
            let (block, team) = (i / teams, i % teams);
            let (block_start, block_len) = (depths.start(block), depths.len(block));
            for start in (0..block_len).step_by(PACK_DEPTHS) {
                for panel in team * PACK_PANELS..panels.min((team + 1) * PACK_PANELS) {
                    let lane = panel * width;
                    let panel = Panel {
                        lane: first + lane,
                        lane_count: width.min(lanes - lane),
                        depth: block_start + start,
                        depth_count: PACK_DEPTHS.min(block_len - start),
                        width,
                        group,
                    };
                    let at = block_start * panels * width + lane * block_len.next_multiple_of(group) + start * width;
                    // SAFETY: panels lie one after another, within the length asserted.
                    let out = unsafe { core::slice::from_raw_parts_mut(shared.get().add(at), panel.len()) };
                    fill(pack, panel, out);
                }
            }
        });
    }
}

/// Packs one panel, padding first.
fn fill<P: Plain>(pack: &dyn Pack<P>, panel: Panel, out: &mut [P]) {
    if panel.is_padded() {
        out.fill(P::ZERO);
    }
    pack.pack(panel, out);
}

/// The left operand over one depth block, packed or in place.
#[derive(Clone, Copy)]
struct Lhs<R: Arith> {
    ptr: *const R::Packed,
    /// Elements between depths, between rows of a tile, and between tiles.
    step: usize,
    row: usize,
    panel: usize,
    in_place: bool,
}

/// One tile of the result, over the whole depth.
struct Task<'a, 'j, R: Arith> {
    job: &'a Job<'j, R>,
    depths: Depths,
    row: usize,
    rows: usize,
    /// First column of the strip whose panels are packed.
    strip: usize,
    strip_cols: usize,
    /// First column, counted from the strip.
    col: usize,
    cols: usize,
    /// Left panels of the whole operand, if shared.
    lhs: Option<*const R::Packed>,
    /// Right panels of the strip, if packed.
    rhs: Option<*const R::Packed>,
}

/// The right operand over one depth block and the columns of a task. A panel is `nr` columns.
#[derive(Clone, Copy)]
struct Rhs<R: Arith> {
    ptr: *const R::Packed,
    /// Elements between depths and between panels.
    step: usize,
    panel: usize,
    in_place: bool,
    /// See [`Block::b_offsets`].
    offsets: *const isize,
}

impl<R: Arith> Task<'_, '_, R> {
    /// # Safety
    /// As [`Job::run`]; no other task of the job covers the same tile.
    unsafe fn run(&self) {
        let job = self.job;
        let Kernel { mr, nr, .. } = job.kernel;
        let own_lhs = self.lhs.is_none() && matches!(job.lhs, Operand::Pack(_));
        let lhs_len = if own_lhs { self.rows.next_multiple_of(mr) * self.depths.block } else { 0 };
        // With one depth block, sums are finished as soon as they are made: work memory for one group is enough.
        let group_cols = FINISH_COLS.max(nr) / nr * nr;
        let single = self.depths.count == 1;
        let ld = if single { group_cols.min(self.cols) } else { self.cols };
        let own_rhs = self.rhs.is_none() && matches!(job.rhs, Operand::Pack(_));
        let rhs_len = if own_rhs { self.cols.next_multiple_of(nr) * self.depths.block } else { 0 };
        let tile_len = match job.sums {
            Sums::Result { .. } => 0,
            Sums::Scratch => self.rows * ld,
        };
        scratch::with(Use::Lhs, lhs_len, |lhs: &mut [R::Packed]| {
            scratch::with(Use::Rhs, rhs_len, |rhs: &mut [R::Packed]| {
                scratch::with(Use::Tile, tile_len, |tile: &mut [R::Acc]| {
                    for block in 0..self.depths.count {
                        let lhs = self.lhs_block(block, lhs);
                        let rhs = self.rhs_block(block, rhs);
                        for start in (0..self.cols).step_by(group_cols) {
                            let cols = group_cols.min(self.cols - start);
                            let (c, ldc, add) = match job.sums {
                                Sums::Result { ptr, ld, add } => {
                                    let col = self.strip + self.col + start;
                                    (ptr.wrapping_add(self.row * ld + col), ld, add || block > 0)
                                }
                                Sums::Scratch => {
                                    let offset = if single { 0 } else { start };
                                    (tile.as_mut_ptr().wrapping_add(offset), ld, block > 0)
                                }
                            };
                            // SAFETY: panels and sums cover the tile.
                            unsafe { self.multiply(block, lhs, rhs, start, cols, c, ldc, add) };
                            if let (Some(finish), true) = (job.finish, block + 1 == self.depths.count) {
                                let place = [self.row, self.strip + self.col + start, self.rows, cols];
                                // SAFETY: these sums are this task's.
                                finish(unsafe { Tile::new(c, ldc, place, 0) });
                            }
                        }
                    }
                });
            });
        });
    }

    /// Where the left operand of a depth block is.
    fn lhs_block(&self, block: usize, own: &mut [R::Packed]) -> Lhs<R> {
        let Kernel { mr, group, .. } = self.job.kernel;
        let (depth, depth_count) = (self.depths.start(block), self.depths.len(block));
        let padded = depth_count.next_multiple_of(group);
        let panels = |ptr| Lhs { ptr, step: mr * group, row: group, panel: mr * padded, in_place: false };
        match (&self.job.lhs, self.lhs) {
            (Operand::Shifted(_), _) => unreachable!("a right operand"),
            (Operand::InPlace { ptr, lane, step }, _) => {
                let ptr = ptr.wrapping_add(self.row * lane + depth * step);
                Lhs { ptr, step: *step, row: *lane, panel: mr * lane, in_place: true }
            }
            (Operand::Pack(_), Some(shared)) => {
                let all = self.job.rows.next_multiple_of(mr);
                panels(shared.wrapping_add(depth * all + self.row * padded))
            }
            (Operand::Pack(pack), None) => {
                for (i, lane) in (0..self.rows).step_by(mr).enumerate() {
                    let lane_count = mr.min(self.rows - lane);
                    let panel = Panel { lane: self.row + lane, lane_count, depth, depth_count, width: mr, group };
                    let len = panel.len();
                    fill(*pack, panel, &mut own[i * len..][..len]);
                }
                panels(own.as_ptr())
            }
        }
    }

    /// Where the right operand of a depth block is, from the first column of the task on.
    fn rhs_block(&self, block: usize, own: &mut [R::Packed]) -> Rhs<R> {
        let Kernel { nr, group, .. } = self.job.kernel;
        let (depth, depth_count) = (self.depths.start(block), self.depths.len(block));
        let padded = depth_count.next_multiple_of(group);
        let panels = |ptr: *const R::Packed| Rhs {
            ptr,
            step: nr * group,
            panel: nr * padded,
            in_place: false,
            offsets: ptr::null(),
        };
        match (&self.job.rhs, self.rhs) {
            (Operand::InPlace { ptr, step, .. }, _) => {
                let ptr = ptr.wrapping_add(self.strip + self.col + depth * step);
                Rhs { ptr, step: *step, panel: nr, in_place: true, offsets: ptr::null() }
            }
            (Operand::Shifted(shifted), _) => {
                let ptr = shifted.strip(self.strip / shifted.cols).wrapping_add(self.col);
                Rhs { ptr, step: 0, panel: nr, in_place: true, offsets: shifted.offsets[depth..].as_ptr() }
            }
            (Operand::Pack(_), Some(shared)) => {
                let all = self.strip_cols.next_multiple_of(nr);
                panels(shared.wrapping_add(depth * all + self.col * padded))
            }
            (Operand::Pack(pack), None) => {
                for (i, col) in (0..self.cols).step_by(nr).enumerate() {
                    let (lane, lane_count) = (self.strip + self.col + col, nr.min(self.cols - col));
                    let panel = Panel { lane, lane_count, depth, depth_count, width: nr, group };
                    let len = panel.len();
                    fill(*pack, panel, &mut own[i * len..][..len]);
                }
                panels(own.as_ptr())
            }
        }
    }

    /// `c (+)= a · b` over one depth block, for all rows of the task and columns `start..start + cols` of its chunk.
    ///
    /// # Safety
    /// `lhs` and `rhs` are what [`Task::lhs_block`] and [`Task::rhs_block`] gave; `c` has the rows of the task and `cols` columns.
    #[expect(clippy::too_many_arguments, reason = "the inner loop of one caller")]
    unsafe fn multiply(
        &self,
        block: usize,
        lhs: Lhs<R>,
        rhs: Rhs<R>,
        start: usize,
        cols: usize,
        c: *mut R::Acc,
        ldc: usize,
        add: bool,
    ) {
        let job = self.job;
        let Kernel { mr, nr, group, run, .. } = job.kernel;
        let depth_len = self.depths.len(block).next_multiple_of(group);
        let tiles = self.rows.div_ceil(mr);
        for j in (0..cols).step_by(nr) {
            let b = rhs.ptr.wrapping_add((start + j) / nr * rhs.panel);
            // While one tile is computed, a share of what comes next is brought to L2: operands may be larger than the
            // caches. That is the next right panel, or, where the left operand is in place, its next rows the first time.
            let share = nr * depth_len * size_of::<R::Packed>() / tiles;
            let line_step = share * group / depth_len.max(1);
            let next = |tile: usize| match rhs.in_place {
                _ if lhs.in_place && start + j == 0 => (lhs.ptr.wrapping_add((tile + 1) * lhs.panel).cast::<i8>(), 64),
                false => (b.wrapping_add(nr * depth_len).cast::<i8>().wrapping_add(tile * share), line_step),
                true => (b.wrapping_add(nr).cast::<i8>(), rhs.step * size_of::<R::Packed>()),
            };
            for (tile, i) in (0..self.rows).step_by(mr).enumerate() {
                let (next, next_step) = next(tile);
                let block = Block {
                    depth: depth_len / group,
                    a: lhs.ptr.wrapping_add(tile * lhs.panel),
                    a_step: lhs.step,
                    a_row: lhs.row,
                    b,
                    b_step: rhs.step,
                    b_offsets: rhs.offsets,
                    c: c.wrapping_add(i * ldc + j),
                    ldc,
                    rows: mr.min(self.rows - i),
                    cols: nr.min(cols - j),
                    add,
                    next,
                    next_step,
                };
                // SAFETY: panels hold `depth_len` depths of full width; in place, the sizes of the job cover the tile.
                unsafe { run(job.isa, &block) };
            }
        }
    }
}
