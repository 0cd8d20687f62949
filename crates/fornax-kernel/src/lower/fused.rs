//! Fused kernels: [`Emit`] makes the function of one launch, position by position.
//!
//! A thread works on *chunks*: runs of `vector` neighbours along one loop. In a map and where rows lie side by side
//! (*columns*) they are neighbours along the last kept loop; where a team of threads works on one row (*rows*) they are
//! neighbours along the last reduced loop. A value is held by lanes: one of them if it is the same along the chunk.

use super::Lowering;
use super::maker::{LevelVals, Maker};
use super::space::{Loop, Space};
use super::values::{Fold, Total, compute, divides, random};
use crate::ir::{AtomicOp, Memory, Mode, Shuffle, Special, Val, Vals, WARP};
use crate::program::{Arg, BufferId, FaultKind, FaultSite};
use fornax_compile::{Kernel, Pass, Store, ValueId, ValueOp};
use fornax_ir::{DType, NodeId};
use std::collections::HashMap;

/// Lanes of one chunk: one, or as many as the vector is long.
type Lanes = Vec<Val>;

/// A place that a thread works at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    /// The row-major number of the first lane among the reduced elements.
    number: Option<Val>,
    /// Coordinates in the reduced loops.
    reduced: Vec<Val>,
    /// Whether the chunk exists.
    mask: Option<Val>,
}

/// A walk as parameters.
struct Path {
    offset: Val,
    kept: Vec<Val>,
    reduced: Vec<Val>,
    levels: Vec<LevelVals>,
}

/// The loops that a launch goes over.
#[derive(Clone, Copy)]
pub(crate) struct Grid<'a> {
    pub kept: &'a [Loop],
    pub reduced: &'a [Loop],
    /// Lanes of a chunk.
    pub vector: usize,
    /// Lanes are neighbours along the last reduced loop, not the last kept one.
    pub along_reduced: bool,
}

pub(crate) struct Emit<'a, 'b> {
    lowering: &'a mut Lowering<'b>,
    kernel: &'a Kernel,
    space: &'a Space,
    grid: Grid<'a>,
    pub m: Maker,
    paths: HashMap<usize, Path>,
    /// Row values, by value.
    rows: Vec<Option<Lanes>>,
    /// Full values, by chunk and value.
    full: Vec<Vec<Option<Lanes>>>,
    chunks: Vec<Chunk>,
    /// Coordinates in the kept loops.
    at: Vec<Val>,
    /// Whether the thread's row exists.
    pub row_mask: Option<Val>,
    /// Whether the thread stores what all threads of its row have.
    pub leader: Option<Val>,
    /// Row values that an earlier launch has stored.
    stored: &'a HashMap<ValueId, BufferId>,
    arrays: Vec<(DType, u32, Memory)>,
}

impl<'a, 'b> Emit<'a, 'b> {
    pub fn new(
        lowering: &'a mut Lowering<'b>,
        kernel: &'a Kernel,
        space: &'a Space,
        grid: Grid<'a>,
        stored: &'a HashMap<ValueId, BufferId>,
        m: Maker,
    ) -> Emit<'a, 'b> {
        Emit {
            lowering,
            kernel,
            space,
            grid,
            m,
            paths: HashMap::new(),
            rows: vec![None; kernel.values.len()],
            full: Vec::new(),
            chunks: Vec::new(),
            at: Vec::new(),
            row_mask: None,
            leader: None,
            stored,
            arrays: Vec::new(),
        }
    }

    /// Sets the coordinates of the thread's row (or its first one) from the row's number.
    pub fn set_row(&mut self, row: Val) {
        let sizes = self.m.loop_sizes(self.grid.kept);
        self.at = self.m.coordinates(row, &sizes);
    }

    /// Sets the places to work at, by the numbers of their first elements.
    pub fn set_chunks(&mut self, chunks: &[(Val, Option<Val>)], sizes: &[Val]) {
        self.chunks.clear();
        for &(number, mask) in chunks {
            let reduced = self.m.coordinates(number, sizes);
            self.chunks.push(Chunk { number: Some(number), reduced, mask });
        }
        self.full = vec![vec![None; self.kernel.values.len()]; chunks.len()];
    }

    /// The one place of a map.
    pub fn set_map(&mut self) {
        self.chunks = vec![Chunk { mask: self.row_mask, ..Chunk::default() }];
        self.full = vec![vec![None; self.kernel.values.len()]];
    }

    /// Sizes of the reduced loops.
    pub fn reduced_sizes(&mut self) -> Vec<Val> {
        self.m.loop_sizes(self.grid.reduced)
    }

    fn along(&self, walk: usize) -> isize {
        let loops = if self.grid.along_reduced { self.grid.reduced } else { self.grid.kept };
        loops.last().map_or(0, |along| along.strides[walk])
    }

    /// The place of a walk at a chunk, before index maps.
    fn place(&mut self, walk: usize, chunk: Option<usize>) -> Val {
        if !self.paths.contains_key(&walk) {
            let (space, m) = (&self.space.walks[walk], &mut self.m);
            let strides = |m: &mut Maker, loops: &[Loop]| loops.iter().map(|one| m.stride(one.strides[walk])).collect();
            let path = Path {
                offset: m.offset(space.offset),
                kept: strides(m, self.grid.kept),
                reduced: strides(m, self.grid.reduced),
                levels: m.levels(&space.levels),
            };
            self.paths.insert(walk, path);
        }
        let path = &self.paths[&walk];
        let place = self.m.place(path.offset, &self.at, &path.kept);
        match chunk {
            Some(chunk) => self.m.place(place, &self.chunks[chunk].reduced, &path.reduced),
            None => place,
        }
    }

    /// The places of the lanes of a chunk, behind index maps.
    fn places(&mut self, walk: usize, chunk: Option<usize>) -> Lanes {
        let (base, along) = (self.place(walk, chunk), self.along(walk));
        let lanes = if along == 0 { 1 } else { self.grid.vector };
        let stride = self.m.stride(along);
        let mut places = Vec::new();
        for lane in 0..lanes {
            let number = self.m.int(lane as i64);
            let step = self.m.b.mul(number, stride);
            let place = self.m.b.add(base, step);
            places.push(self.m.through(place, &self.paths[&walk].levels));
        }
        places
    }

    fn mask(&self, chunk: Option<usize>) -> Option<Val> {
        match chunk {
            Some(chunk) => self.chunks[chunk].mask,
            // Rows that do not exist stand at the last one that does, but for those of maps.
            None => self.chunks.first().filter(|chunk| chunk.number.is_none()).and_then(|chunk| chunk.mask),
        }
    }

    /// Reads the elements of a chunk.
    fn read(&mut self, walk: usize, memory: Memory, size: usize, chunk: Option<usize>) -> Lanes {
        let mask = self.mask(chunk);
        let vector = self.grid.vector;
        if vector > 1 && self.along(walk) == 1 && self.space.walks[walk].levels.is_empty() {
            let base = self.place(walk, chunk);
            let piece = vector.min(16 / size);
            let mut lanes = Lanes::new();
            for start in (0..vector).step_by(piece) {
                let number = self.m.int(start as i64);
                let place = self.m.b.add(base, number);
                lanes.extend(self.m.b.load_vector(memory, place, piece, mask));
            }
            return lanes;
        }
        let places = self.places(walk, chunk);
        places.into_iter().map(|place| self.m.b.load(memory, place, mask)).collect()
    }

    fn write(&mut self, walk: usize, memory: Memory, values: &[Val], chunk: Option<usize>, mask: Option<Val>) {
        let size = self.space.walks[walk].size;
        let vector = if self.along(walk) == 0 { 1 } else { self.grid.vector };
        let lane = |lane: usize| values[if values.len() == 1 { 0 } else { lane }];
        if vector > 1 && self.along(walk) == 1 {
            let base = self.place(walk, chunk);
            let piece = vector.min(16 / size);
            for start in (0..vector).step_by(piece) {
                let number = self.m.int(start as i64);
                let place = self.m.b.add(base, number);
                let values: Lanes = (start..start + piece).map(lane).collect();
                self.m.b.store(memory, place, &values, mask);
            }
            return;
        }
        for (idx, place) in self.places(walk, chunk).into_iter().enumerate() {
            self.m.b.store(memory, place, &[lane(idx)], mask);
        }
    }

    fn both(&mut self, a: Option<Val>, b: Option<Val>) -> Option<Val> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.m.b.and(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// The value at a chunk, or at the row.
    fn value(&mut self, id: ValueId, chunk: Option<usize>) -> Lanes {
        let value = &self.kernel.values[id.idx()];
        let chunk = chunk.filter(|_| !value.row);
        let known = match chunk {
            Some(chunk) => &self.full[chunk][id.idx()],
            None => &self.rows[id.idx()],
        };
        if let Some(lanes) = known {
            return lanes.clone();
        }
        let lanes = self.make(id, chunk);
        match chunk {
            Some(chunk) => self.full[chunk][id.idx()] = Some(lanes.clone()),
            None => self.rows[id.idx()] = Some(lanes.clone()),
        }
        lanes
    }

    fn make(&mut self, id: ValueId, chunk: Option<usize>) -> Lanes {
        let kernel = self.kernel;
        let value = &kernel.values[id.idx()];
        if let Some(&buffer) = self.stored.get(&id) {
            let memory = self.m.buffer(buffer, value.dtype, Mode::Read);
            return self.read(self.space.row_walk, memory, value.dtype.size(), None);
        }
        match value.op {
            ValueOp::Const => vec![self.m.scalar(value.node, value.dtype)],
            ValueOp::Load(access) => {
                let buffer = self.lowering.buffer(kernel.accesses[access as usize].base);
                let memory = self.m.buffer(buffer, value.dtype, Mode::Read);
                self.read(access as usize, memory, value.dtype.size(), chunk)
            }
            ValueOp::Iota(access) => {
                let places = self.places(access as usize, chunk);
                places.into_iter().map(|place| self.m.b.cast(place, DType::I64)).collect()
            }
            ValueOp::Random(access) => self.random(access as usize, value.node, chunk),
            ValueOp::Reduced(_) => unreachable!("totals are set when their pass ends"),
            _ => {
                let operands: Vec<Lanes> = value.op.operands().map(|operand| self.value(operand, chunk)).collect();
                let lanes = operands.iter().map(Vec::len).max().unwrap_or(1);
                let of = |operand: &Lanes, lane: usize| operand[if operand.len() == 1 { 0 } else { lane }];
                if divides(&value.op, value.dtype) {
                    let mask = self.mask(chunk);
                    let divisors = operands[1].clone();
                    self.check_division(value.node, &divisors, mask);
                }
                let compute = |lane: usize| {
                    let operands: Lanes = operands.iter().map(|operand| of(operand, lane)).collect();
                    compute(&mut self.m.b, &value.op, value.dtype, &operands)
                };
                (0..lanes).map(compute).collect()
            }
        }
    }

    fn check_division(&mut self, node: NodeId, divisors: &[Val], mask: Option<Val>) {
        let word = self.lowering.fault_site(FaultSite { node, kind: FaultKind::Division });
        let memory = self.m.faults();
        let word = self.m.number(word as i64);
        for &divisor in divisors {
            let dtype = self.m.b.dtype(divisor);
            let zero = self.m.b.int(dtype, 0);
            let wrong = self.m.b.eq(divisor, zero);
            let wrong = self.both(Some(wrong), mask);
            let one = self.m.b.int(DType::U64, 1);
            self.m.b.atomic(AtomicOp::Max, memory, word, one, wrong);
        }
    }

    fn random(&mut self, walk: usize, node: NodeId, chunk: Option<usize>) -> Lanes {
        let seed = self.m.argument(Arg::Seed(node), DType::U64);
        let offset = self.m.argument(Arg::Offset(node), DType::U64);
        let fours = self.grid.vector.is_multiple_of(4) && self.along(walk) == 1;
        if fours && self.space.walks[walk].levels.is_empty() {
            let base = self.place(walk, chunk);
            let mut lanes = Lanes::new();
            for start in (0..self.grid.vector).step_by(4) {
                let number = self.m.int(start as i64);
                let place = self.m.b.add(base, number);
                lanes.extend(random(&mut self.m, seed, offset, place, 4));
            }
            return lanes;
        }
        let places = self.places(walk, chunk);
        places.into_iter().flat_map(|place| random(&mut self.m, seed, offset, place, 1)).collect()
    }

    /// Computes the row values of a stage.
    pub fn stage(&mut self, stage: usize) {
        for &value in &self.kernel.stages[stage].compute {
            if !matches!(self.kernel.values[value.idx()].op, ValueOp::Reduced(_)) || self.stored.contains_key(&value) {
                self.value(value, None);
            }
        }
    }

    /// Stores the row values of a stage that are wanted as results.
    pub fn store_stage(&mut self, stage: usize) {
        for &Store { value, node } in &self.kernel.stages[stage].stores {
            let walk = self.space.store_walk(node);
            let lanes = self.value(value, None);
            let buffer = self.lowering.buffer(node);
            self.write_row(walk, buffer, &lanes);
        }
    }

    /// Stores a row value.
    pub fn write_row(&mut self, walk: usize, buffer: BufferId, lanes: &[Val]) {
        let memory = self.m.buffer(buffer, self.m.b.dtype(lanes[0]), Mode::Write);
        let mask = self.both(self.row_mask, self.leader);
        self.write(walk, memory, lanes, None, mask);
    }

    /// The row value, where it is known.
    pub fn row_value(&mut self, value: ValueId) -> Lanes {
        self.value(value, None)
    }

    /// Sets the result of a reduction, for the value that names it.
    pub fn set_reduced(&mut self, reduction: u32, lanes: &Lanes) {
        for (idx, value) in self.kernel.values.iter().enumerate() {
            if value.op == ValueOp::Reduced(reduction) {
                self.rows[idx] = Some(lanes.clone());
            }
        }
    }

    /// Computes what `pass` feeds and stores, at all chunks; loads first, so that they run side by side.
    fn compute(&mut self, pass: &Pass) {
        let wanted: Vec<ValueId> = pass
            .stores
            .iter()
            .map(|store| store.value)
            .chain(pass.reductions.iter().map(|&reduction| self.kernel.reductions[reduction as usize].input))
            .collect();
        let mut seen = vec![false; self.kernel.values.len()];
        let mut stack = wanted.clone();
        while let Some(id) = stack.pop() {
            let value = &self.kernel.values[id.idx()];
            if !std::mem::replace(&mut seen[id.idx()], true) && !value.row {
                stack.extend(value.op.operands());
            }
        }
        for idx in (0..seen.len()).filter(|&idx| seen[idx]) {
            if let ValueOp::Load(_) = self.kernel.values[idx].op {
                for chunk in 0..self.chunks.len() {
                    self.value(ValueId(idx as u32), Some(chunk));
                }
            }
        }
        for chunk in 0..self.chunks.len() {
            for &value in &wanted {
                self.value(value, Some(chunk));
            }
        }
    }

    /// Runs a pass at all chunks: stores what it stores and folds its elements into `totals`, one for each reduction of
    /// the pass and lane of a vector.
    pub fn pass(&mut self, pass: &Pass, totals: &[Total]) -> Vec<Total> {
        self.compute(pass);
        let mut totals = totals.to_vec();
        let vector = self.grid.vector;
        for chunk in 0..self.chunks.len() {
            for &Store { value, node } in &pass.stores {
                let lanes = self.value(value, Some(chunk));
                let (walk, buffer) = (self.space.store_walk(node), self.lowering.buffer(node));
                let memory = self.m.buffer(buffer, self.m.b.dtype(lanes[0]), Mode::Write);
                let mask = self.both(self.chunks[chunk].mask, self.row_mask);
                self.write(walk, memory, &lanes, Some(chunk), mask);
            }
            for (nth, &reduction) in pass.reductions.iter().enumerate() {
                let input = self.kernel.reductions[reduction as usize].input;
                let (fold, lanes) = (self.fold(reduction), self.value(input, Some(chunk)));
                let number = self.chunks[chunk].number.expect("passes with reductions count their elements");
                for lane in 0..vector {
                    let place = if self.grid.along_reduced { lane as i64 } else { 0 };
                    let place = self.m.int(place);
                    let at = self.m.b.add(number, place);
                    let element = fold.element(&mut self.m.b, lanes[if lanes.len() == 1 { 0 } else { lane }], at);
                    let total = &mut totals[nth * vector + lane];
                    let joined = fold.join(&mut self.m.b, *total, element);
                    *total = match self.chunks[chunk].mask {
                        None => joined,
                        Some(mask) => {
                            let parts: Vec<Val> = joined
                                .parts()
                                .zip(total.parts())
                                .map(|(new, old)| self.m.b.select(mask, new, old))
                                .collect();
                            Total::from_parts(&parts)
                        }
                    };
                }
            }
        }
        totals
    }

    pub fn fold(&self, reduction: u32) -> Fold {
        let reduction = &self.kernel.reductions[reduction as usize];
        Fold::new(reduction.op, self.kernel.values[reduction.input.idx()].dtype, self.m.index)
    }

    /// The totals of nothing, for each reduction of a pass and lane of a vector.
    pub fn start(&mut self, pass: &Pass) -> Vec<Total> {
        let mut totals = Vec::new();
        for &reduction in &pass.reductions {
            let start = self.fold(reduction).start(&mut self.m.b);
            totals.extend(std::iter::repeat_n(start, self.grid.vector));
        }
        totals
    }

    /// Runs a pass over the elements from `first` on, each `stride` further, below `end`; `chunks` of them at a time.
    pub fn pass_loop(&mut self, pass: &Pass, [first, end, stride]: [Val; 3], chunks: usize) -> Vec<Total> {
        let start = self.start(pass);
        let sizes = self.reduced_sizes();
        let init: Vals = start.iter().flat_map(|total| total.parts()).collect();
        let count = self.m.int(chunks as i64);
        let step = self.m.b.mul(stride, count);
        let head = self.m.b.open_for([first, end, step], &init);
        let mut places = vec![(head.counter(), None)];
        for chunk in 1..chunks {
            let number = self.m.int(chunk as i64);
            let ahead = self.m.b.mul(stride, number);
            let place = self.m.b.add(head.counter(), ahead);
            let inside = self.m.b.lt(place, end);
            places.push((place, Some(inside)));
        }
        self.set_chunks(&places, &sizes);
        let totals = totals_from(&start, head.carried());
        let totals = self.pass(pass, &totals);
        let yields = totals.iter().flat_map(|total| total.parts()).collect();
        let results = self.m.b.close_for(head, yields);
        self.full.clear();
        self.chunks.clear();
        totals_from(&start, &results)
    }

    /// Joins the lanes of vectors along rows into one total for each reduction.
    pub fn join_lanes(&mut self, pass: &Pass, totals: &[Total]) -> Vec<Total> {
        let vector = self.grid.vector;
        let joined = pass.reductions.iter().enumerate().map(|(nth, &reduction)| {
            let fold = self.fold(reduction);
            let mut lanes = totals[nth * vector..(nth + 1) * vector].to_vec();
            while lanes.len() > 1 {
                let half = lanes.len() / 2;
                lanes = (0..half).map(|lane| fold.join(&mut self.m.b, lanes[lane], lanes[lane + half])).collect();
            }
            lanes[0]
        });
        joined.collect()
    }

    /// Joins one total for each reduction of a pass over a team of threads; all of the team get the result.
    pub fn join_team(&mut self, pass: &Pass, totals: &[Total], team: u32) -> Vec<Total> {
        let folds: Vec<Fold> = pass.reductions.iter().map(|&reduction| self.fold(reduction)).collect();
        let mut totals: Vec<Total> =
            folds.iter().zip(totals).map(|(fold, &total)| self.join_warp(*fold, total, WARP.min(team))).collect();
        if team <= WARP {
            return totals;
        }
        // A block is one team: each warp leaves its total, then every warp joins all of them.
        let warps = team / WARP;
        let lane = self.m.b.special(Special::Lane);
        let thread = self.m.b.special(Special::Thread);
        let width = self.m.b.int(DType::U32, WARP.into());
        let warp = self.m.b.div(thread, width);
        let zero = self.m.b.int(DType::U32, 0);
        let first = self.m.b.eq(lane, zero);
        self.reuse_arrays();
        let mut arrays = Vec::new();
        for total in &totals {
            for part in total.parts() {
                let array = self.array(self.m.b.dtype(part), warps, &arrays);
                self.m.b.store(array, warp, &[part], Some(first));
                arrays.push(array);
            }
        }
        self.m.b.barrier();
        // Each group of so many lanes joins all of them, so that every lane has the result.
        let last = self.m.b.int(DType::U32, i64::from(warps) - 1);
        let slot = self.m.b.and(lane, last);
        let mut arrays = arrays.into_iter();
        for (fold, total) in folds.iter().zip(&mut totals) {
            let parts: Vec<Val> = fold
                .dtypes()
                .iter()
                .map(|_| self.m.b.load(arrays.next().expect("one for each part"), slot, None))
                .collect();
            *total = self.join_warp(*fold, Total::from_parts(&parts), warps);
        }
        totals
    }

    /// Waits until nobody reads what an earlier pass left in shared arrays.
    fn reuse_arrays(&mut self) {
        if !self.arrays.is_empty() {
            self.m.b.barrier();
        }
    }

    /// A shared array that is none of `taken`.
    fn array(&mut self, dtype: DType, len: u32, taken: &[Memory]) -> Memory {
        let fits =
            |(other, size, memory): &&(DType, u32, Memory)| *other == dtype && *size == len && !taken.contains(memory);
        if let Some(&(.., memory)) = self.arrays.iter().find(fits) {
            return memory;
        }
        let memory = self.m.b.shared(dtype, len);
        self.arrays.push((dtype, len, memory));
        memory
    }

    /// Joins over the first `width` lanes of a warp (a power of two); each group of so many lanes for itself.
    fn join_warp(&mut self, fold: Fold, mut total: Total, width: u32) -> Total {
        let mut bit = width / 2;
        while bit > 0 {
            let lane = self.m.b.int(DType::U32, bit.into());
            let parts: Vec<Val> = total.parts().map(|part| self.m.b.shuffle(Shuffle::Xor, part, lane)).collect();
            total = fold.join(&mut self.m.b, total, Total::from_parts(&parts));
            bit /= 2;
        }
        total
    }

    /// Joins the totals of threads that work on one group of columns: `x` tells the group in the block, `y` the thread of
    /// `depth` in it, `width` groups stand in a block. All threads get the result.
    pub fn join_columns(
        &mut self,
        pass: &Pass,
        totals: &[Total],
        [x, y]: [Val; 2],
        width: u32,
        depth: u32,
    ) -> Vec<Total> {
        if depth == 1 {
            return totals.to_vec();
        }
        let vector = self.grid.vector;
        let mut joined = Vec::new();
        let row = self.m.b.int(DType::U32, (width * vector as u32).into());
        let lanes = self.m.b.int(DType::U32, vector as i64);
        for (nth, &reduction) in pass.reductions.iter().enumerate() {
            let fold = self.fold(reduction);
            self.reuse_arrays();
            let totals = &totals[nth * vector..(nth + 1) * vector];
            let base = self.m.b.mul(x, lanes);
            let down = self.m.b.mul(y, row);
            let place = self.m.b.add(base, down);
            let dtypes = fold.dtypes();
            let mut taken = Vec::new();
            for (part, &dtype) in dtypes.iter().enumerate() {
                let array = self.array(dtype, width * depth * vector as u32, &taken);
                taken.push(array);
                for (lane, total) in totals.iter().enumerate() {
                    let number = self.m.b.int(DType::U32, lane as i64);
                    let to = self.m.b.add(place, number);
                    let value = total.parts().nth(part).expect("totals have these parts");
                    self.m.b.store(array, to, &[value], None);
                }
            }
            self.m.b.barrier();
            for lane in 0..vector {
                let number = self.m.b.int(DType::U32, lane as i64);
                let column = self.m.b.add(base, number);
                let mut all: Option<Total> = None;
                for y in 0..depth {
                    let step = self.m.b.int(DType::U32, (y * width * vector as u32).into());
                    let from = self.m.b.add(column, step);
                    let parts: Vec<Val> = taken.iter().map(|&array| self.m.b.load(array, from, None)).collect();
                    let other = Total::from_parts(&parts);
                    all = Some(match all {
                        None => other,
                        Some(all) => fold.join(&mut self.m.b, all, other),
                    });
                }
                joined.push(all.expect("there is at least one thread"));
            }
        }
        joined
    }

    /// Ends the reductions of a pass; `totals` are one for each reduction and lane.
    pub fn finish_pass(&mut self, pass: &Pass, totals: &[Total]) {
        let lanes = totals.len() / pass.reductions.len().max(1);
        for (nth, &reduction) in pass.reductions.iter().enumerate() {
            let (fold, dtype) = (self.fold(reduction), self.kernel.reductions[reduction as usize].dtype);
            let results: Lanes = totals[nth * lanes..(nth + 1) * lanes]
                .iter()
                .map(|&total| fold.finish(&mut self.m.b, total, dtype))
                .collect();
            self.set_reduced(reduction, &results);
        }
    }
}

/// Totals of the same form as `like` from a list of parts.
pub(crate) fn totals_from(like: &[Total], parts: &[Val]) -> Vec<Total> {
    let mut parts = parts.iter().copied();
    let mut take = |total: &Total| Total::from_parts(&parts.by_ref().take(total.parts().count()).collect::<Vec<_>>());
    like.iter().map(&mut take).collect()
}
