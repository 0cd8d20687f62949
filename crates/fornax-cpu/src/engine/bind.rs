//! [`bind`]: a kernel of a plan, for the sizes at hand: loops, strides, registers and micro-ops.
//!
//! Dims that every access walks alike are merged. One dim is laid along the lanes of a tile: a kept dim (*vertical*:
//! many rows side by side, reductions fold tiles into tiles) or the last reduced dim (*horizontal*: one row, reductions
//! run along tiles). Which one is a matter of cost, see [`choose_tile_dim`].

use super::micro::{Levels, Micro, Pattern};
use super::select::{self, Folding, Kinds, is_plain, register_size};
use super::{BLOCK_ROWS, BlockLoad, BoundAccess, BoundKernel, BoundPass, Ins, Join, Moving, Region, Slot, Source};
use crate::simd::Isa;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use fornax_compile::{Kernel, Level, Store, ValueId, ValueOp, walk};
use fornax_ir::{BinaryOp, DType, Graph, NodeId, Shape};
use smallvec::SmallVec;

/// Most lanes of a tile, where every element is independent. Short tiles stay in the store buffer and hot lines of the
/// first-level cache from one micro-op to the next.
const MAP_TILE: usize = 256;

/// Most lanes of a tile of rows side by side: each step of a reduction reads one run of this many elements.
const ROWS_TILE: usize = 256;

/// Most lanes of a tile along a row: rows come back from the second-level cache anyway, so calls are what to save.
const ALONG_TILE: usize = 1024;

/// Bytes of values kept between the passes of one row tile, beyond which vertical tiles are made narrower.
const MAX_KEPT: usize = 256 << 10;

/// An argument of a kernel, two words each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arg {
    pub node: NodeId,
}

/// Where an access goes, over the kernel's dims.
struct Walk {
    /// Bytes of an element in memory; 1 for counters.
    size: usize,
    strides: SmallVec<[isize; 6]>,
    offset: isize,
    levels: Vec<Level>,
    /// Whether the kernel's passes move it (not a row access).
    full: bool,
    dtype: DType,
    source: Source,
    /// The buffer that places are looked up in, where `source` counts them.
    base: usize,
}

/// A loop over one or several merged dims; strides per walk.
#[derive(Clone)]
struct Loop {
    size: usize,
    strides: Vec<isize>,
}

/// A kernel for the sizes of `graph`. The values in `frees` are not needed afterwards: results may take their place.
pub(crate) fn bind(kernel: &Kernel, graph: &Graph, isa: Isa, frees: &[NodeId]) -> BoundKernel {
    let sizes: SmallVec<[usize; 6]> = kernel.dims.iter().map(|dim| graph[dim.size.0].shape[dim.size.1]).collect();
    let full_shape = Shape::from(&sizes[..]);
    let row_shape: Shape =
        kernel.dims.iter().zip(&sizes).map(|(dim, &size)| if dim.reduced { 1 } else { size }).collect();
    let mut buffers: Vec<NodeId> = Vec::new();
    let mut buffer_of = |node: NodeId| {
        buffers.iter().position(|&other| other == node).unwrap_or_else(|| {
            buffers.push(node);
            buffers.len() - 1
        })
    };
    let mut row_access = vec![false; kernel.accesses.len()];
    let mut counted = vec![false; kernel.accesses.len()];
    for value in &kernel.values {
        if let ValueOp::Load(access) | ValueOp::Iota(access) | ValueOp::Random(access) = value.op {
            row_access[access as usize] = value.row;
            counted[access as usize] = !matches!(value.op, ValueOp::Load(_));
        }
    }
    let mut walks: Vec<Walk> = Vec::new();
    for (idx, access) in kernel.accesses.iter().enumerate() {
        let row = row_access[idx];
        let (layout, levels) = walk(graph, access, counted[idx], if row { &row_shape } else { &full_shape });
        let dtype = graph[access.base].dtype;
        let mut strides = layout.strides;
        for (dim, stride) in strides.iter_mut().enumerate() {
            if row && kernel.dims[dim].reduced || sizes[dim] == 1 {
                *stride = 0;
            }
        }
        let number = counted[idx] || !levels.is_empty();
        let base = if counted[idx] { 0 } else { buffer_of(access.base) };
        let source = if number { Source::Number } else { Source::Buffer(base) };
        let size = if number { 1 } else { dtype.size() };
        walks.push(Walk { size, strides, offset: layout.offset as isize, levels, full: !row, dtype, source, base });
    }
    let n_loads = walks.len();
    let mut stores: Vec<(Store, bool, usize)> = Vec::new();
    let full_stores = kernel.passes.iter().flat_map(|pass| &pass.stores).map(|&store| (store, true));
    let row_stores = kernel.stages.iter().flat_map(|stage| &stage.stores).map(|&store| (store, false));
    for (store, full) in full_stores.chain(row_stores) {
        let shape = if full { &full_shape } else { &row_shape };
        let mut strides = shape.strides();
        for (dim, stride) in strides.iter_mut().enumerate() {
            if shape[dim] == 1 {
                *stride = 0;
            }
        }
        let dtype = graph[store.node].dtype;
        stores.push((store, full, walks.len()));
        let base = buffer_of(store.node);
        let source = Source::Buffer(base);
        walks.push(Walk { size: dtype.size(), strides, offset: 0, levels: Vec::new(), full, dtype, source, base });
    }
    // Counts elements along the reduced dims, row-major: the places that argmax and argmin tell.
    let counter = walks.len();
    let mut place = 1;
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, sizes.len());
    for dim in (0..sizes.len()).rev().filter(|&dim| kernel.dims[dim].reduced) {
        strides[dim] = if sizes[dim] == 1 { 0 } else { place };
        place *= sizes[dim] as isize;
    }
    let (source, dtype) = (Source::Number, DType::I64);
    walks.push(Walk { size: 1, strides, offset: 0, levels: Vec::new(), full: true, dtype, source, base: 0 });

    // Loops: kept and reduced dims, merged where all walks allow.
    let loops = |reduced: bool| {
        let mut loops: Vec<Loop> = Vec::new();
        for dim in (0..sizes.len()).filter(|&dim| kernel.dims[dim].reduced == reduced && sizes[dim] != 1) {
            let inner = Loop { size: sizes[dim], strides: walks.iter().map(|walk| walk.strides[dim]).collect() };
            match loops.last_mut() {
                Some(outer) if mergeable(outer, &inner) => {
                    (outer.size, outer.strides) = (outer.size * inner.size, inner.strides);
                }
                _ => loops.push(inner),
            }
        }
        loops
    };
    let (mut kept, mut reduced) = (loops(false), loops(true));
    let n_ins = kernel.passes.iter().map(|pass| pass.compute.len() + pass.reductions.len() + pass.stores.len()).sum();
    let (vertical, tile_dim, cost) = choose_tile_dim(&walks, &kept, &reduced, n_ins);
    let pair = pair_loops(kernel, &walks, &kept, n_loads, n_ins).filter(|pair| pair.cost < cost);
    let unit = || Loop { size: 1, strides: vec![0; walks.len()] };
    let vertical = vertical || pair.is_some();
    if pair.is_some() {
        kept.truncate(kept.len() - 2);
    }
    let tile_loop = match (vertical, tile_dim.filter(|_| pair.is_none())) {
        (_, None) if pair.is_some() => pair.as_ref().map_or_else(unit, |pair| pair.tile_loop.clone()),
        (true, Some(dim)) => kept.remove(dim),
        (false, Some(dim)) => reduced.remove(dim),
        (_, None) => unit(),
    };
    let reduced_count: usize = reduced.iter().map(|step| step.size).product();
    let kept_values: usize = kernel.values.iter().filter(|value| value.keep).map(|v| register_size(v.dtype)).sum();
    let mut max_tile = match vertical {
        true if kernel.reductions.is_empty() => MAP_TILE,
        true => ROWS_TILE,
        false => ALONG_TILE,
    };
    if vertical && kept_values > 0 {
        max_tile = (MAX_KEPT / (kept_values * reduced_count.max(1))).clamp(16, max_tile);
    }
    let inner = pair.as_ref().map_or(1, |pair| pair.inner);
    let tiles = tile_loop.size.div_ceil(max_tile);
    // Tiles of about equal size, a multiple of 16 lanes.
    let tile = match tiles {
        0 | 1 => tile_loop.size.max(1),
        _ if pair.is_some() => max_tile / inner * inner,
        _ => tile_loop.size.div_ceil(tiles).next_multiple_of(16),
    };
    let tiles = tile_loop.size.div_ceil(tile);
    let lanes = if vertical { tile } else { 1 };

    let mut step_sizes: Vec<usize> = reduced.iter().map(|step| step.size).collect();
    if !vertical {
        step_sizes.push(tiles);
    }
    let steps: usize = step_sizes.iter().product();
    // Where elements far apart along the lanes are neighbours along a kept loop, that loop goes innermost.
    let far = |idx: usize| {
        let stride = tile_loop.strides[idx];
        let walk: &Walk = &walks[idx];
        vertical && walk.full && walk.levels.is_empty() && stride.unsigned_abs() * walk.size >= 64
    };
    let is_load = |idx: &usize| *idx < n_loads && matches!(walks[*idx].source, Source::Buffer(_));
    let block_loop = match kernel.reductions.is_empty() && kernel.passes.len() == 1 && pair.is_none() {
        true => (0..kept.len()).rev().find(|&dim| {
            kept[dim].size >= 4 && (0..n_loads).filter(is_load).any(|idx| far(idx) && kept[dim].strides[idx] == 1)
        }),
        false => None,
    };
    let block_loads: Vec<usize> = match block_loop {
        Some(dim) => (0..n_loads).filter(is_load).filter(|&idx| far(idx) && kept[dim].strides[idx] == 1).collect(),
        None => Vec::new(),
    };
    let block_loop = block_loop.map(|dim| kept.remove(dim));
    let mut row_sizes: Vec<usize> = kept.iter().map(|row| row.size).collect();
    let tile_loop_idx = row_sizes.len();
    if vertical {
        row_sizes.push(tiles);
    }
    row_sizes.extend(block_loop.iter().map(|row| row.size));
    let rows = row_sizes.iter().product();
    let accesses = walks.iter().enumerate().map(|(idx, walk)| {
        let bytes = |stride: isize| stride * walk.size as isize;
        let tile_step = match pair.as_ref().and_then(|pair| pair.outer[idx]) {
            Some(outer) => bytes(outer) * (tile / inner) as isize,
            None => bytes(tile_loop.strides[idx]) * tile as isize,
        };
        let mut row_strides: Vec<isize> = kept.iter().map(|row| bytes(row.strides[idx])).collect();
        let mut step_strides: Vec<isize> = reduced.iter().map(|step| bytes(step.strides[idx])).collect();
        (if vertical { &mut row_strides } else { &mut step_strides }).push(tile_step);
        row_strides.extend(block_loop.iter().map(|row| bytes(row.strides[idx])));
        BoundAccess { source: walk.source, offset: bytes(walk.offset), row_strides, step_strides }
    });
    let mut bound = BoundKernel {
        vertical,
        tile,
        tile_len: tile_loop.size,

        lanes,
        row_sizes,
        tile_loop: tile_loop_idx,
        blocks: Vec::new(),
        rows,
        step_sizes,
        steps,
        accesses: accesses.collect(),
        slots: Vec::new(),
        access_slots: Vec::new(),
        row_moves: Vec::new(),
        consts: Vec::new(),
        args: Vec::new(),
        flags: Vec::new(),
        maps: Vec::new(),
        patterns: Vec::new(),
        regions: [0; 4],
        prologue: Vec::new(),
        stages: Vec::new(),
        passes: Vec::new(),
        row_code: Vec::new(),
        buffers: Vec::new(),
        in_place: Vec::new(),
        bytes_read: 0,
        bytes_written: 0,
        work: 0,
    };
    bound.slots = (0..bound.accesses.len()).map(Slot::Access).collect();
    bound.access_slots = (0..bound.accesses.len() as u16).collect();
    let mut emitter = Emitter {
        kernel,
        isa,
        walks: &walks,
        along: &tile_loop.strides,
        pair: pair.as_ref(),
        bound,
        locs: vec![None; kernel.values.len()],
        tiles: vec![None; kernel.values.len()],
        const_tiles: vec![None; kernel.values.len()],
        free: Vec::new(),
        code: Vec::new(),
        kept: vec![None; kernel.values.len()],
        foldings: Vec::new(),
        accumulators: Vec::new(),
        moving: Vec::new(),
        uses: Vec::new(),
        first: None,
    };
    for access in block_loads {
        let (size, stride) = (register_size(walks[access].dtype), tile_loop.strides[access]);
        let block = emitter.register(Region::Temporary, size, tile * BLOCK_ROWS);
        let slot = emitter.register(Region::Temporary, 0, 0);
        let stride = stride * walks[access].size as isize;
        let micro = select::load_block(walks[access].dtype, isa);
        emitter.bound.blocks.push(BlockLoad { micro, access, slot, block, size, stride });
    }
    emitter.find_in_place(&stores, n_loads, graph, frees);
    emitter.emit(&stores, counter);
    let mut bound = emitter.bound;
    if bound.steps == 1 {
        for phase in 0..bound.stages.len() {
            bound.row_code.extend_from_slice(&bound.stages[phase]);
            if let Some(BoundPass { inits, code, flushes, .. }) = bound.passes.get(phase) {
                [inits, code, flushes].iter().for_each(|code| bound.row_code.extend_from_slice(code));
            }
        }
    }
    bound.row_moves = bound.accesses.iter().map(|access| access.row_strides.last().copied().unwrap_or(0)).collect();
    for (store, _, _) in &stores {
        bound.bytes_written += (graph[store.node].shape.numel() * graph[store.node].dtype.size()) as u64;
    }
    let written: Vec<NodeId> = stores.iter().map(|(store, ..)| store.node).collect();
    for &node in buffers.iter().filter(|node| !written.contains(node)) {
        bound.bytes_read += (graph[node].shape.numel() * graph[node].dtype.size()) as u64;
    }
    bound.work = bound.rows * bound.steps.max(1) * tile * n_ins.max(1);
    bound.buffers = buffers;
    bound
}

fn mergeable(outer: &Loop, inner: &Loop) -> bool {
    outer.strides.iter().zip(&inner.strides).all(|(&outer, &stride)| outer == stride * inner.size as isize)
}

/// Which loop goes along tiles: `(true, kept loop)` or `(false, reduced loop)`; `None` if there is no such loop.
///
/// The estimate is nanoseconds an element: moving each access, and the overhead of micro-ops shared by the lanes of a
/// tile.
fn choose_tile_dim(walks: &[Walk], kept: &[Loop], reduced: &[Loop], n_ins: usize) -> (bool, Option<usize>, f64) {
    let cost = |along: &Loop, vertical: bool| {
        let mut cost = 0.0;
        for (walk, &stride) in walks.iter().zip(&along.strides).filter(|(walk, _)| walk.full) {
            cost += match stride {
                _ if !walk.levels.is_empty() => 3.0,
                0 => 0.01,
                1 => 0.03 * walk.size as f64,
                // Each element on a cache line of its own.
                _ if stride.unsigned_abs() * walk.size >= 64 => 1.5,
                _ => 0.6,
            };
        }
        let lanes = along.size.clamp(1, ROWS_TILE) as f64;
        // A vertical reduction reads and writes an accumulator at each step.
        let folding = if vertical && !reduced.is_empty() { 0.05 } else { 0.0 };
        cost + folding + (6.0 + 3.0 * n_ins as f64) / lanes
    };
    let mut best: Option<(f64, bool, usize)> = None;
    let mut consider = |along: &Loop, vertical: bool, dim: usize| {
        let cost = cost(along, vertical);
        if best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, vertical, dim));
        }
    };
    if let Some(last) = reduced.last() {
        consider(last, false, reduced.len() - 1);
    }
    for (dim, along) in kept.iter().enumerate().rev() {
        consider(along, true, dim);
    }
    best.map_or((true, None, 0.0), |(cost, vertical, dim)| (vertical, Some(dim), cost))
}

/// A short innermost loop and the loop around it, both along the lanes of a tile.
struct Pair {
    /// Size of the inner loop.
    inner: usize,
    /// Strides are [`PATTERN`] where one stride cannot tell both loops.
    tile_loop: Loop,
    /// The outer and the inner strides of those walks.
    outer: Vec<Option<isize>>,
    inner_strides: Vec<isize>,
    /// As in [`choose_tile_dim`].
    cost: f64,
}

/// Stands for two loops in the place of a stride.
const PATTERN: isize = isize::MAX;

/// Lays the two innermost loops of a map along tiles, if the inner one is short and every store is contiguous.
fn pair_loops(kernel: &Kernel, walks: &[Walk], kept: &[Loop], n_loads: usize, n_ins: usize) -> Option<Pair> {
    let [.., outer, inner] = kept else { return None };
    if !kernel.reductions.is_empty() || inner.size > 64 || inner.size * outer.size < 16 {
        return None;
    }
    let mut pair = Pair {
        inner: inner.size,
        tile_loop: Loop { size: inner.size * outer.size, strides: Vec::new() },
        outer: Vec::new(),
        inner_strides: inner.strides.clone(),
        cost: (6.0 + 3.0 * n_ins as f64) / (inner.size * outer.size).min(MAP_TILE) as f64,
    };
    for (idx, walk) in walks.iter().enumerate() {
        let one = outer.strides[idx] == inner.strides[idx] * inner.size as isize;
        if one {
            let stride = inner.strides[idx];
            pair.cost += if stride == 1 { 0.03 * walk.size as f64 } else { stride.signum().abs() as f64 };
        } else if idx < n_loads && walk.levels.is_empty() && matches!(walk.source, Source::Buffer(_)) {
            pair.cost += 0.2 + 2.0 / inner.size as f64;
        } else {
            return None;
        }
        pair.tile_loop.strides.push(if one { inner.strides[idx] } else { PATTERN });
        pair.outer.push((!one).then_some(outer.strides[idx]));
    }
    Some(pair)
}

/// Where a value is: in a slot, for all lanes or one element for all.
#[derive(Clone, Copy)]
struct Loc {
    slot: u16,
    uniform: bool,
    /// Whether the slot is a temporary register of this element size.
    temporary: Option<usize>,
}

/// What code is being made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Stage,
    Pass,
}

/// The last instruction, if it may become the first op of a superinstruction.
#[derive(Clone, Copy)]
struct FirstOp {
    value: ValueId,
    op: select::First,
    /// Whether its operands must change places.
    swap: bool,
    /// Length of the code up to it.
    len: usize,
}

/// A superinstruction that takes the place of the last instruction.
struct PairOp {
    first: FirstOp,
    micro: Micro,
    third: Option<u16>,
}

struct Emitter<'a> {
    kernel: &'a Kernel,
    isa: Isa,
    walks: &'a [Walk],
    /// Strides along the lanes, by walk.
    along: &'a [isize],
    pair: Option<&'a Pair>,
    bound: BoundKernel,
    locs: Vec<Option<Loc>>,
    /// Uniform values spread out over the lanes, in this pass or for good.
    tiles: Vec<Option<u16>>,
    /// Constants spread out over the lanes.
    const_tiles: Vec<Option<u16>>,
    /// Temporary registers to reuse, with their element size.
    free: Vec<(usize, u16)>,
    code: Vec<Ins>,
    /// Accesses to kept values.
    kept: Vec<Option<u16>>,
    foldings: Vec<Folding>,
    /// Slots of accumulators: total, places or front.
    accumulators: Vec<(u16, Option<u16>)>,
    /// Accesses of the pass at hand.
    moving: Vec<u16>,
    /// How often the code of the pass at hand uses each value; many times if anything else does.
    uses: Vec<u32>,
    first: Option<FirstOp>,
}

impl Emitter<'_> {
    /// Stores that may take over the buffer of a freed value: read element by element, by no later pass.
    fn find_in_place(&mut self, stores: &[(Store, bool, usize)], n_loads: usize, graph: &Graph, frees: &[NodeId]) {
        let kernel = self.kernel;
        let mut last_pass = vec![0; kernel.accesses.len()];
        for (idx, pass) in kernel.passes.iter().enumerate() {
            for value in &pass.compute {
                if let ValueOp::Load(access) = kernel.values[value.idx()].op {
                    last_pass[access as usize] = idx;
                }
            }
        }
        let mut taken: Vec<NodeId> = Vec::new();
        for &(store, full, walk) in stores {
            let pass = kernel.passes.iter().position(|pass| pass.stores.contains(&store));
            let Some(pass) = pass.filter(|_| full) else { continue };
            let target = &self.walks[walk];
            let fits = |access: usize| {
                let source = &self.walks[access];
                source.full
                    && source.levels.is_empty()
                    && source.strides == target.strides
                    && source.offset == 0
                    && source.size == target.size
                    && last_pass[access] <= pass
            };
            let candidate = (0..n_loads).find(|&access| {
                let base = kernel.accesses[access].base;
                matches!(self.walks[access].source, Source::Buffer(_))
                    && frees.contains(&base)
                    && !taken.contains(&base)
                    && graph[base].shape.numel() == graph[store.node].shape.numel()
                    && (0..n_loads).filter(|&other| kernel.accesses[other].base == base).all(fits)
            });
            if let Some(access) = candidate {
                taken.push(kernel.accesses[access].base);
                self.bound.in_place.push((store.node, kernel.accesses[access].base));
            }
        }
    }

    fn slot(&mut self, slot: Slot) -> u16 {
        self.bound.slots.push(slot);
        (self.bound.slots.len() - 1) as u16
    }

    /// A new register of `lanes` elements of `size` bytes.
    fn register(&mut self, region: Region, size: usize, lanes: usize) -> u16 {
        let bytes = (size * lanes).next_multiple_of(64);
        let offset = self.bound.regions[region as usize];
        self.bound.regions[region as usize] += bytes;
        self.slot(Slot::Register(region, offset))
    }

    fn temporary(&mut self, size: usize) -> u16 {
        match self.free.iter().rposition(|&(free, _)| free == size) {
            Some(idx) => self.free.swap_remove(idx).1,
            None => self.register(Region::Temporary, size, self.bound.tile),
        }
    }

    fn push(&mut self, micro: Micro, dst: u16, operands: [u16; 3], one: bool, imm: u64) {
        let [a, b, c] = operands;
        self.code.push(Ins { micro, dst, a, b, c, one, imm });
    }

    fn constant(&mut self, value: u64) -> u16 {
        self.bound.consts.push(value);
        let idx = self.bound.consts.len() - 1;
        self.slot(Slot::Const(idx))
    }

    fn emit(&mut self, stores: &[(Store, bool, usize)], counter: usize) {
        let kernel = self.kernel;
        for (id, value) in kernel.values.iter().enumerate() {
            if value.keep {
                let lanes = self.bound.tile;
                let bytes = (register_size(value.dtype) * lanes).next_multiple_of(64);
                let offset = self.bound.regions[Region::Kept as usize];
                self.bound.regions[Region::Kept as usize] += bytes * self.bound.steps;
                // Row-major over steps.
                let mut step_strides = vec![0; self.bound.step_sizes.len()];
                let mut stride = bytes as isize;
                for (dim, &size) in self.bound.step_sizes.iter().enumerate().rev() {
                    step_strides[dim] = stride;
                    stride *= size as isize;
                }
                let row_strides = vec![0; self.bound.row_sizes.len()];
                let source = Source::Kept;
                self.bound.accesses.push(BoundAccess { source, offset: offset as isize, row_strides, step_strides });
                let access = Slot::Access(self.bound.accesses.len() - 1);
                let slot = self.slot(access);
                self.bound.access_slots.push(slot);
                self.kept[id] = Some(slot);
            }
            if matches!(value.op, ValueOp::Const) {
                let slot = Slot::Arg(self.bound.args.len());
                self.bound.args.push(Arg { node: value.node });
                let slot = self.slot(slot);
                self.locs[id] = Some(Loc { slot, uniform: true, temporary: None });
            }
        }
        let lanes = self.bound.lanes;
        for reduction in &kernel.reductions {
            let from = kernel.values[reduction.input.idx()].dtype;
            let folding = select::folding(reduction.op, from, self.isa);
            let total = self.register(Region::Total, folding.size, lanes);
            let second = if folding.places {
                Some(self.register(Region::Total, 8, lanes))
            } else if folding.flush.is_some() && self.bound.vertical {
                Some(self.register(Region::Temporary, 4, lanes))
            } else {
                None
            };
            self.foldings.push(folding);
            self.accumulators.push((total, second));
        }
        for phase in 0..kernel.stages.len() {
            self.emit_stage(phase, stores);
            if phase < kernel.passes.len() {
                self.emit_pass(phase, stores, counter as u16);
            }
        }
    }

    fn emit_stage(&mut self, phase: usize, stores: &[(Store, bool, usize)]) {
        let kernel = self.kernel;
        self.tiles.fill(None);
        self.first = None;
        for &value in &kernel.stages[phase].compute {
            self.value(value, Context::Stage, None);
        }
        for store in &kernel.stages[phase].stores {
            let access = stores.iter().find(|(other, full, _)| !full && other == store).expect("stores are listed").2;
            self.store(*store, access, Context::Stage);
        }
        let code = core::mem::take(&mut self.code);
        self.bound.stages.push(code);
    }

    fn emit_pass(&mut self, phase: usize, stores: &[(Store, bool, usize)], counter: u16) {
        let kernel = self.kernel;
        let pass = &kernel.passes[phase];
        self.tiles.fill(None);
        self.moving.clear();
        let access_of = |store: &Store| {
            stores.iter().find(|(other, full, _)| *full && other == store).expect("stores are listed").2
        };
        let mut uses = vec![0u32; kernel.values.len()];
        for value in &pass.compute {
            kernel.values[value.idx()].op.operands().for_each(|operand| uses[operand.idx()] += 1);
        }
        // What may replace a buffer that is read in this pass is stored last.
        let late = |store: &Store, bound: &BoundKernel| bound.in_place.iter().any(|(node, _)| *node == store.node);
        for store in pass.stores.iter().filter(|store| late(store, &self.bound)) {
            uses[store.value.idx()] += 1;
        }
        self.uses.clone_from(&uses);
        self.first = None;
        for store in &pass.stores {
            self.uses[store.value.idx()] += 3;
        }
        for &reduction in &pass.reductions {
            self.uses[kernel.reductions[reduction as usize].input.idx()] += 3;
        }
        let mut inits: Vec<Ins> = Vec::new();
        for &reduction in &pass.reductions {
            let folding = self.foldings[reduction as usize];
            let (total, second) = self.accumulators[reduction as usize];
            let start = self.constant(folding.start);
            let one = !self.bound.vertical;
            self.push(select::splat(folding.size, self.isa), total, [start; 3], one, 0);
            if let Some(second) = second {
                let (start, size) = if folding.places { (-1i64 as u64, 8) } else { (folding.start, 4) };
                let start = self.constant(start);
                self.push(select::splat(size, self.isa), second, [start; 3], one, 0);
            }
        }
        inits.append(&mut self.code);
        let mut flushes = Vec::new();
        let mut joins = Vec::new();
        let finish_value = |this: &mut Self, value: ValueId, direct: Option<Store>| {
            for &reduction in pass.reductions.iter().filter(|&&r| kernel.reductions[r as usize].input == value) {
                let folding = this.foldings[reduction as usize];
                let (total, second) = this.accumulators[reduction as usize];
                let tile = this.tile_of(value);
                if folding.places {
                    this.move_access(counter);
                }
                let target = if folding.flush.is_some() { second.unwrap_or(total) } else { total };
                let places = second.unwrap_or(total);
                let micro = if this.bound.vertical { folding.fold } else { folding.along };
                let ahead = if this.bound.vertical { 0 } else { this.ahead(value, tile) };
                this.push(micro, target, [tile, counter, places], false, ahead);
            }
            for store in pass.stores.iter().filter(|store| store.value == value && Some(**store) != direct) {
                if !late(store, &this.bound) {
                    this.store(*store, access_of(store), Context::Pass);
                }
            }
        };
        for &value in &pass.restore {
            let slot = self.kept[value.idx()].expect("restored values are kept");
            self.move_access(slot);
            let uniform = self.loc(value).uniform;
            self.locs[value.idx()] = Some(Loc { slot, uniform, temporary: None });
            finish_value(self, value, None);
        }
        for &value in &pass.compute {
            // The first plain store of a value computed here is written in place of a register.
            let direct = pass.stores.iter().find(|store| {
                let access = access_of(store);
                store.value == value
                    && self.kept[value.idx()].is_none()
                    && self.along[access] == 1
                    && is_plain(self.walks[access].dtype)
                    && !late(store, &self.bound)
            });
            let is_direct = self.value(value, Context::Pass, direct.map(|store| access_of(store) as u16));
            finish_value(self, value, direct.copied().filter(|_| is_direct));
            for operand in kernel.values[value.idx()].op.operands() {
                uses[operand.idx()] -= 1;
                self.release(operand, &uses);
            }
            self.release(value, &uses);
        }
        // Row values and constants may be reduced or stored without being computed in this pass.
        let mut rest: Vec<ValueId> = pass.reductions.iter().map(|&r| kernel.reductions[r as usize].input).collect();
        rest.extend(pass.stores.iter().map(|store| store.value));
        rest.sort_unstable();
        rest.dedup();
        for value in rest.into_iter().filter(|value| kernel.values[value.idx()].row) {
            finish_value(self, value, None);
        }
        let last: Vec<Store> = pass.stores.iter().copied().filter(|store| late(store, &self.bound)).collect();
        for store in &last {
            self.store(*store, access_of(store), Context::Pass);
            uses[store.value.idx()] -= 1;
            self.release(store.value, &uses);
        }
        let code = core::mem::take(&mut self.code);
        // Temporary registers of spread values are free again.
        for value in 0..kernel.values.len() {
            if let Some(slot) = self.tiles[value].take() {
                self.free.push((register_size(kernel.values[value].dtype), slot));
            }
        }
        for &reduction in &pass.reductions {
            let folding = self.foldings[reduction as usize];
            let (total, second) = self.accumulators[reduction as usize];
            if let (Some(flush), Some(front), true) = (folding.flush, second, self.bound.vertical) {
                flushes.push(Ins { micro: flush, dst: total, a: front, b: front, c: front, one: false, imm: 0 });
            }
            joins.push(Join { micro: folding.join, total, places: second.filter(|_| folding.places) });
        }
        self.moving.sort_unstable();
        self.moving.dedup();
        let moving = self.moving.iter().filter_map(|&slot| {
            let Slot::Access(access) = self.bound.slots[slot as usize] else { return None };
            let strides = &self.bound.accesses[access].step_strides;
            let moves = strides.iter().any(|&stride| stride != 0);
            moves.then(|| Moving { slot, access, stride: strides[strides.len() - 1] })
        });
        let moving = moving.collect();
        self.bound.passes.push(BoundPass { inits, code, flushes, joins, moving });
    }

    /// How far ahead of a tile in memory to ask for cache lines: the next tile, of this row or the next one.
    fn ahead(&self, value: ValueId, slot: u16) -> u64 {
        let is_load = matches!(self.kernel.values[value.idx()].op, ValueOp::Load(access) if access as u16 == slot);
        let walk = self.walks.get(slot as usize).filter(|walk| is_load && matches!(walk.source, Source::Buffer(_)));
        walk.map_or(0, |walk| (self.bound.tile.min(ALONG_TILE) * walk.size) as u64)
    }

    fn move_access(&mut self, slot: u16) {
        self.moving.push(slot);
    }

    fn release(&mut self, value: ValueId, uses: &[u32]) {
        if uses[value.idx()] == 0
            && let Some(loc) = &mut self.locs[value.idx()]
            && let Some(size) = loc.temporary.take()
        {
            self.free.push((size, loc.slot));
        }
    }

    fn loc(&self, value: ValueId) -> Loc {
        self.locs[value.idx()].expect("operands are computed before their users")
    }

    /// The slot of `value` with an element for each lane.
    fn tile_of(&mut self, value: ValueId) -> u16 {
        let loc = self.loc(value);
        if !loc.uniform {
            return loc.slot;
        }
        if let Some(slot) = self.tiles[value.idx()] {
            return slot;
        }
        let size = register_size(self.kernel.values[value.idx()].dtype);
        if self.kernel.values[value.idx()].op == ValueOp::Const {
            if let Some(slot) = self.const_tiles[value.idx()] {
                return slot;
            }
            // Once for all rows.
            let slot = self.register(Region::Temporary, size, self.bound.tile);
            let [a, b, c] = [loc.slot; 3];
            self.bound.prologue.push(Ins {
                micro: select::splat(size, self.isa),
                dst: slot,
                a,
                b,
                c,
                one: false,
                imm: 0,
            });
            self.const_tiles[value.idx()] = Some(slot);
            return slot;
        }
        let slot = self.temporary(size);
        self.push(select::splat(size, self.isa), slot, [loc.slot; 3], false, 0);
        self.tiles[value.idx()] = Some(slot);
        slot
    }

    fn store(&mut self, store: Store, access: usize, context: Context) {
        let walk = &self.walks[access];
        let (dtype, along) = (walk.dtype, self.along[access]);
        let slot = access as u16;
        if context == Context::Pass {
            self.move_access(slot);
        }
        let one = context == Context::Stage && !self.bound.vertical;
        let value = if one { self.loc(store.value).slot } else { self.tile_of(store.value) };
        if one || along == 1 {
            self.push(select::store(dtype, self.isa), slot, [value; 3], one, 0);
        } else {
            let stride = along * walk.size as isize;
            self.push(select::store_strided(dtype, self.isa), slot, [value; 3], false, stride as u64);
        }
    }

    /// Makes code for `value`, written to `direct` if that is possible; tells whether it was.
    fn value(&mut self, id: ValueId, context: Context, direct: Option<u16>) -> bool {
        let value = &self.kernel.values[id.idx()];
        let (dtype, isa) = (value.dtype, self.isa);
        let size = register_size(dtype);
        // Rows one by one: every value of a stage is one element.
        let single = context == Context::Stage && !self.bound.vertical;
        if let ValueOp::Const = value.op {
            return false;
        }
        if let ValueOp::Load(access) = value.op {
            let walk = &self.walks[access as usize];
            let along = self.along[access as usize];
            let uniform = single || along == 0;
            let slot = access as u16;
            if let Some(load) = self.bound.blocks.iter().find(|load| load.access == access as usize) {
                self.locs[id.idx()] = Some(Loc { slot: load.slot, uniform: false, temporary: None });
                return false;
            }
            if context == Context::Pass {
                self.move_access(slot);
            }
            if walk.levels.is_empty() && is_plain(dtype) && (uniform || along == 1) {
                let kept = self.kept[id.idx()].is_some();
                if !kept {
                    self.locs[id.idx()] = Some(Loc { slot, uniform, temporary: None });
                    return false;
                }
            }
        }
        let operands: SmallVec<[ValueId; 3]> = value.op.operands().collect();
        let uniform = single
            || match value.op {
                ValueOp::Load(access) | ValueOp::Iota(access) | ValueOp::Random(access) => {
                    self.along[access as usize] == 0
                }
                ValueOp::Reduced(_) | ValueOp::Const => single,
                _ => operands.iter().all(|&operand| self.loc(operand).uniform),
            };
        let slots: SmallVec<[u16; 3]> = match value.op {
            _ if uniform => operands.iter().map(|&operand| self.loc(operand).slot).collect(),
            ValueOp::Binary(op, a, b) if select::takes_uniform(op, dtype) => self.two(a, b),
            ValueOp::Compare(_, a, b) => self.two(a, b),
            _ => operands.iter().map(|&operand| self.tile_of(operand)).collect(),
        };
        let kinds = match operands[..] {
            [a, b] if !uniform => {
                let loose = |value: ValueId, slot: u16| self.loc(value).uniform && self.loc(value).slot == slot;
                if loose(a, slots[0]) {
                    Kinds::First
                } else if loose(b, slots[1]) {
                    Kinds::Second
                } else {
                    Kinds::None
                }
            }
            _ => Kinds::None,
        };
        let pair = if uniform { None } else { self.pair(id, kinds) };
        let (dst, temporary, is_direct) = match (self.kept[id.idx()], direct) {
            (Some(kept), _) => {
                self.move_access(kept);
                (kept, None, false)
            }
            (None, Some(access)) if !uniform => {
                self.move_access(access);
                (access, None, true)
            }
            _ if context == Context::Stage => (self.register(Region::Row, size, self.bound.lanes), None, false),
            // Operands of the first op may have been freed since, but its result is a register of its own.
            _ if pair.is_some() => (self.code.last().map_or(0, |ins| ins.dst), Some(size), false),
            _ => (self.temporary(size), Some(size), false),
        };
        self.locs[id.idx()] = Some(Loc { slot: dst, uniform, temporary });
        if let Some(PairOp { first, micro, third }) = pair {
            if temporary.is_some() {
                // The register changes hands.
                self.locs[first.value.idx()].iter_mut().for_each(|loc| loc.temporary = None);
            }
            let last = self.code.last_mut().expect("the first op is the last instruction");
            if first.swap {
                (last.a, last.b) = (last.b, last.a);
            }
            (last.micro, last.dst, last.c) = (micro, dst, third.unwrap_or(last.b));
            return is_direct;
        }
        let from = |operand: usize| self.kernel.values[operands[operand].idx()].dtype;
        let at = |idx: usize| slots.get(idx).copied().unwrap_or(dst);
        let all = [at(0), at(1), at(2)];
        match value.op {
            ValueOp::Const => unreachable!("constants need no code"),
            ValueOp::Load(access) => self.load(access, dst, dtype, uniform),
            ValueOp::Iota(access) => {
                self.count(access, dst, uniform, context);
            }
            ValueOp::Random(access) => {
                let arg = Slot::Arg(self.bound.args.len());
                self.bound.args.push(Arg { node: value.node });
                let arg = self.slot(arg);
                let walk = &self.walks[access as usize];
                let slot = access as u16;
                if context == Context::Pass {
                    self.move_access(slot);
                }
                if walk.levels.is_empty() && (uniform || self.along[access as usize] == 1) {
                    self.push(select::random_run(isa), dst, [slot, arg, arg], uniform, 0);
                } else {
                    let places = self.temporary(8);
                    self.count(access, places, uniform, context);
                    self.push(select::random_places(isa), dst, [places, arg, arg], uniform, 0);
                    self.free.push((8, places));
                }
            }
            ValueOp::Unary(op, _) => self.push(select::unary(op, dtype, isa), dst, all, uniform, 0),
            ValueOp::Binary(op, ..) => {
                let micro = select::binary(op, dtype, kinds, isa);
                let mut all = all;
                if matches!(op, BinaryOp::Div | BinaryOp::Rem) && !dtype.is_float() {
                    let flag = Slot::Flag(self.bound.flags.len());
                    self.bound.flags.push(value.node);
                    all[2] = self.slot(flag);
                }
                self.push(micro, dst, all, uniform, 0);
                let is_temporary = temporary.is_some() && context == Context::Pass;
                if dtype == DType::F32 && !uniform && is_temporary {
                    let len = self.code.len();
                    self.first = select::First::new(op, kinds).map(|(op, swap)| FirstOp { value: id, op, swap, len });
                }
            }
            ValueOp::Compare(op, ..) => self.push(select::compare(op, from(0), kinds, isa), dst, all, uniform, 0),
            ValueOp::Select(..) => self.push(select::select(dtype, isa), dst, all, uniform, 0),
            ValueOp::Cast(_) => self.push(select::cast(from(0), dtype, isa), dst, all, uniform, 0),
            ValueOp::Bitcast(_) => self.push(select::bitcast(from(0), dtype, isa), dst, all, uniform, 0),
            ValueOp::Reduced(reduction) => {
                let folding = self.foldings[reduction as usize];
                let (total, second) = self.accumulators[reduction as usize];
                let result = if folding.places { second.expect("searches have places") } else { total };
                self.push(folding.finish, dst, [result; 3], uniform, 0);
            }
        }
        is_direct
    }

    /// The superinstruction that computes `id` along with the last instruction, if nothing else reads its result.
    fn pair(&self, id: ValueId, kinds: Kinds) -> Option<PairOp> {
        let first = self.first.filter(|first| first.len == self.code.len())?;
        let value = &self.kernel.values[id.idx()];
        let uses = self.uses[first.value.idx()];
        let (micro, third) = match value.op {
            _ if value.dtype != DType::F32 => return None,
            ValueOp::Binary(BinaryOp::Mul, a, b) if a == b && a == first.value && uses == 2 => {
                (select::squared(first.op, self.isa), None)
            }
            _ if uses != 1 => return None,
            ValueOp::Unary(op, a) if a == first.value => (select::unary_of(first.op, op, self.isa)?, None),
            ValueOp::Binary(op, a, b) if a == first.value => {
                (select::pair(first.op, op, false, kinds == Kinds::Second, self.isa)?, Some(self.loc(b).slot))
            }
            ValueOp::Binary(op, a, b) if b == first.value => {
                (select::pair(first.op, op, true, kinds == Kinds::First, self.isa)?, Some(self.loc(a).slot))
            }
            _ => return None,
        };
        Some(PairOp { first, micro, third })
    }

    /// Operands of a micro-op that takes one of them uniform.
    fn two(&mut self, a: ValueId, b: ValueId) -> SmallVec<[u16; 3]> {
        let (first, second) = (self.loc(a), self.loc(b));
        let slots = match (first.uniform, second.uniform) {
            (true, true) => [self.tile_of(a), self.tile_of(b)],
            _ => [first.slot, second.slot],
        };
        SmallVec::from_slice(&slots)
    }

    fn load(&mut self, access: u32, dst: u16, dtype: DType, uniform: bool) {
        let (isa, slot) = (self.isa, access as u16);
        let walk = &self.walks[access as usize];
        let along = self.along[access as usize];
        if !walk.levels.is_empty() {
            let base = self.slot(Slot::Base(walk.base));
            let places = self.temporary(8);
            self.push_places(access, places, uniform);
            self.push(select::load_places(dtype, isa), dst, [places, base, base], uniform, 0);
            self.free.push((8, places));
        } else if let Some(pair) = self.pair
            && let Some(outer) = pair.outer[access as usize]
        {
            let bytes = walk.size as isize;
            let inner = pair.inner_strides[access as usize] * bytes;
            let pattern = Box::new(Pattern { size: pair.inner, inner, outer: outer * bytes });
            let address = core::ptr::from_ref(&*pattern).expose_provenance();
            self.bound.patterns.push(pattern);
            self.push(select::load_pattern(dtype, isa), dst, [slot; 3], false, address as u64);
        } else if uniform || along == 1 {
            self.push(select::load(dtype, isa), dst, [slot; 3], uniform, 0);
        } else {
            let stride = along * walk.size as isize;
            self.push(select::load_strided(dtype, isa), dst, [slot; 3], false, stride as u64);
        }
    }

    fn push_places(&mut self, access: u32, dst: u16, uniform: bool) {
        let walk = &self.walks[access as usize];
        let levels = walk.levels.clone();
        let map = Box::new(Levels { stride: self.along[access as usize] as i64, levels });
        let address = core::ptr::from_ref(&*map).expose_provenance();
        self.bound.maps.push(map);
        self.push(select::places(self.isa), dst, [access as u16; 3], uniform, address as u64);
    }

    /// The number that a counting access stands at, for each lane.
    fn count(&mut self, access: u32, dst: u16, uniform: bool, context: Context) {
        let slot = access as u16;
        if context == Context::Pass {
            self.move_access(slot);
        }
        if self.walks[access as usize].levels.is_empty() {
            let along = self.along[access as usize];
            self.push(select::count(self.isa), dst, [slot; 3], uniform, along as u64);
        } else {
            self.push_places(access, dst, uniform);
        }
    }
}
