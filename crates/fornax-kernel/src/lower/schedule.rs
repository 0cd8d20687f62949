//! How fused kernels are launched: which threads work on which rows, and in how many launches.
//!
//! - A *map* gives each thread a vector of neighbours.
//! - *Rows*: a team of threads (a warp, or a whole block) works on one row, along it. Rows that fit are read once and kept
//!   in registers from pass to pass; longer ones are read again.
//! - *Columns*: rows lie side by side; each thread works on a vector of them, several threads of a block share the way down.
//! - Where rows are few and long, each pass is *split*: a launch of many blocks leaves partial totals, and a second one
//!   joins them, always in the same order, and stores row values for the launches to come.

use super::Lowering;
use super::fused::{Emit, Grid, totals_from};
use super::maker::{MAX_GRID_YZ, Maker};
use super::space::{Space, count};
use super::values::Total;
use crate::ir::{Mode, Special, Val, Vals, WARP};
use crate::program::{BufferId, Launch};
use fornax_compile::{Kernel, ValueId, ValueOp};
use fornax_ir::DType;
use std::collections::HashMap;

/// Threads of a block in maps.
const MAP_THREADS: u32 = 256;

/// Blocks that fill a large GPU: two for each of some 130 multiprocessors.
const ENOUGH_BLOCKS: usize = 264;

/// Elements of a row that a thread holds in registers at most.
const MAX_HELD: usize = 16;

/// Elements of a row that each thread works on, rather than sharing the row with more threads.
const GOOD_HELD: usize = 8;

/// Vectors that a thread loads before it works on the first of them, where it goes along a row or down columns.
const LOADS_AHEAD: usize = 4;

/// Vectors that each thread works on at least, where a pass is split.
const MIN_SPLIT_STEPS: usize = 8;

/// Row values in memory, by value.
type Stored = HashMap<ValueId, BufferId>;

/// How threads share rows.
#[derive(Clone, Copy, Debug)]
enum Team {
    /// `team` threads work along each row, blocks are of `threads`.
    Rows { threads: u32, team: u32, vector: usize, chunks: usize },
    /// Blocks of `width · depth` threads: each works on `vector` rows, `depth` of them on the same.
    Columns { width: u32, depth: u32, vector: usize, chunks: usize },
}

impl Team {
    /// Rows that a block works on.
    fn rows(self) -> usize {
        match self {
            Team::Rows { threads, team, .. } => (threads / team) as usize,
            Team::Columns { width, vector, .. } => width as usize * vector,
        }
    }

    fn threads(self) -> u32 {
        match self {
            Team::Rows { threads, .. } => threads,
            Team::Columns { width, depth, .. } => width * depth,
        }
    }

    fn grid<'a>(self, space: &'a Space) -> Grid<'a> {
        let (vector, along_reduced) = match self {
            Team::Rows { vector, .. } => (vector, true),
            Team::Columns { vector, .. } => (vector, false),
        };
        Grid { kept: &space.kept, reduced: &space.reduced, vector, along_reduced }
    }
}

/// Where a thread stands in its team.
struct Standing {
    /// The number of the thread's (first) row.
    row: Val,
    /// The first element that it works on, and the distance to the next.
    first: Val,
    stride: Val,
    /// In columns: the group of rows in the block, and the thread in the group, `u32`.
    column: Option<[Val; 2]>,
}

impl Lowering<'_> {
    /// The launches of a fused kernel.
    pub(super) fn fused(&mut self, kernel: &Kernel) -> Vec<Launch> {
        let space = Space::new(kernel, self.graph);
        let rows = count(&space.kept);
        if kernel.reductions.is_empty() {
            return self.map(kernel, &space, 0, &Stored::new()).into_iter().collect();
        }
        if rows == 0 {
            return Vec::new();
        }
        let len = count(&space.reduced);
        let single = kernel.passes.len() == 1;
        let team = choose_team(&space, rows, len, single);
        if let Some(held) = team.1 {
            return vec![self.one_launch(kernel, &space, held, true)];
        }
        let team = team.0;
        let blocks = rows.div_ceil(team.rows());
        let (step, chunk) = match team {
            Team::Rows { team, vector, .. } => (team as usize * vector, vector),
            Team::Columns { depth, .. } => (depth as usize, 1),
        };
        let parts = (ENOUGH_BLOCKS / blocks).min(len / (step * MIN_SPLIT_STEPS)).min(MAX_GRID_YZ);
        if parts < 2 {
            return vec![self.one_launch(kernel, &space, team, false)];
        }
        let part = len.div_ceil(parts).next_multiple_of(chunk);
        self.split(kernel, &space, team, part)
    }

    fn maker(&self, kernel: &Kernel, space: &Space, what: &str, threads: u32) -> Maker {
        Maker::new(name(kernel, what), threads, self.index_for(kernel, count(&space.all)))
    }

    /// A pass without reductions, over all elements.
    fn map(&mut self, kernel: &Kernel, space: &Space, pass: usize, stored: &Stored) -> Option<Launch> {
        let elements = count(&space.all);
        if elements == 0 {
            return None;
        }
        let vector = space.vector(&space.all, &[]);
        let grid = Grid { kept: &space.all, reduced: &[], vector, along_reduced: false };
        let m = self.maker(kernel, space, "map", MAP_THREADS);
        let mut emit = Emit::new(self, kernel, space, grid, stored, m);
        let m = &mut emit.m;
        let (thread, width, size) = (m.thread_of_grid(), m.int(vector as i64), m.size(elements));
        let first = m.b.mul(thread, width);
        emit.row_mask = Some(m.b.lt(first, size));
        emit.set_row(first);
        emit.set_map();
        (0..=pass).for_each(|stage| emit.stage(stage));
        emit.pass(&kernel.passes[pass], &[]);
        let m = emit.m;
        let blocks = (elements / vector).div_ceil(MAP_THREADS as usize);
        Some(self.launch(m, [blocks, 1, 1]))
    }

    /// Everything in one launch; `held`: all passes work on elements that are read once.
    fn one_launch(&mut self, kernel: &Kernel, space: &Space, team: Team, held: bool) -> Launch {
        let (rows, len) = (count(&space.kept), count(&space.reduced));
        let stored = Stored::new();
        let m = self.maker(kernel, space, if held { "held" } else { "rows" }, team.threads());
        let mut emit = Emit::new(self, kernel, space, team.grid(space), &stored, m);
        let standing = stand(&mut emit, team, rows);
        let end = emit.m.size(len);
        if held {
            let Team::Rows { chunks, .. } = team else { unreachable!("rows are held along them") };
            let sizes = emit.reduced_sizes();
            let mut places = Vec::new();
            for chunk in 0..chunks {
                let number = emit.m.int(chunk as i64);
                let ahead = emit.m.b.mul(standing.stride, number);
                let place = emit.m.b.add(standing.first, ahead);
                let inside = emit.m.b.lt(place, end);
                places.push((place, Some(inside)));
            }
            emit.set_chunks(&places, &sizes);
        }
        for stage in 0..kernel.stages.len() {
            emit.stage(stage);
            emit.store_stage(stage);
            let Some(pass) = kernel.passes.get(stage) else { break };
            let totals = match held {
                true => {
                    let start = emit.start(pass);
                    emit.pass(pass, &start)
                }
                false => run_loop(&mut emit, pass, team, &standing, standing.first, end),
            };
            let totals = join(&mut emit, pass, team, &standing, &totals);
            emit.finish_pass(pass, &totals);
        }
        let m = emit.m;
        self.launch(m, [rows.div_ceil(team.rows()), 1, 1])
    }

    /// Each pass with reductions in two launches, others as maps.
    fn split(&mut self, kernel: &Kernel, space: &Space, team: Team, part: usize) -> Vec<Launch> {
        let mut stored = Stored::new();
        let mut launches = Vec::new();
        for (idx, pass) in kernel.passes.iter().enumerate() {
            if pass.reductions.is_empty() {
                launches.extend(self.map(kernel, space, idx, &stored));
                continue;
            }
            let parts = count(&space.reduced).div_ceil(part);
            let rows = count(&space.kept);
            let index = self.index_for(kernel, count(&space.all));
            let mut partials: Vec<Vec<BufferId>> = Vec::new();
            for &reduction in &pass.reductions {
                let input = kernel.values[kernel.reductions[reduction as usize].input.idx()].dtype;
                let fold = super::values::Fold::new(kernel.reductions[reduction as usize].op, input, index);
                partials.push(fold.dtypes().iter().map(|dtype| self.temporary(parts * rows * dtype.size())).collect());
            }
            launches.push(self.partial(kernel, space, team, idx, part, &partials, &stored));
            // Values that later launches need.
            let mut kept = Vec::new();
            if idx + 1 < kernel.passes.len() {
                for &value in &kernel.stages[idx + 1].compute {
                    if kernel.values[value.idx()].op != ValueOp::Const {
                        kept.push((value, self.temporary(rows * kernel.values[value.idx()].dtype.size())));
                    }
                }
            }
            launches.push(self.finish_rows(kernel, space, idx, parts, &partials, &stored, &kept));
            stored.extend(kept);
        }
        launches
    }

    /// The totals of each part of each row, for one pass.
    #[expect(clippy::too_many_arguments, reason = "they are what one launch of several is made of")]
    fn partial(
        &mut self,
        kernel: &Kernel,
        space: &Space,
        team: Team,
        pass: usize,
        part: usize,
        partials: &[Vec<BufferId>],
        stored: &Stored,
    ) -> Launch {
        let (rows, len) = (count(&space.kept), count(&space.reduced));
        let m = self.maker(kernel, space, "part", team.threads());
        let mut emit = Emit::new(self, kernel, space, team.grid(space), stored, m);
        let standing = stand(&mut emit, team, rows);
        let m = &mut emit.m;
        let (number, size, all) = (m.special(Special::Block(1)), m.size(part), m.size(len));
        let before = m.b.mul(number, size);
        let first = m.b.add(standing.first, before);
        let next = m.b.add(before, size);
        let end = m.b.min(next, all);
        (0..=pass).for_each(|stage| emit.stage(stage));
        let pass = &kernel.passes[pass];
        let totals = run_loop(&mut emit, pass, team, &standing, first, end);
        let totals = join(&mut emit, pass, team, &standing, &totals);
        let m = &mut emit.m;
        let size = m.size(rows);
        let line = m.b.mul(number, size);
        let place = m.b.add(line, standing.row);
        let mask = match (emit.row_mask, emit.leader) {
            (Some(a), Some(b)) => Some(m.b.and(a, b)),
            (a, b) => a.or(b),
        };
        let lanes = totals.len() / partials.len();
        for (nth, buffers) in partials.iter().enumerate() {
            for (part, &buffer) in buffers.iter().enumerate() {
                let totals = &totals[nth * lanes..(nth + 1) * lanes];
                for (lane, total) in totals.iter().enumerate() {
                    let value = total.parts().nth(part).expect("totals have these parts");
                    let memory = m.buffer(buffer, m.b.dtype(value), Mode::Write);
                    let number = m.int(lane as i64);
                    let to = m.b.add(place, number);
                    m.b.store(memory, to, &[value], mask);
                }
            }
        }
        let m = emit.m;
        self.launch(m, [rows.div_ceil(team.rows()), len.div_ceil(part), 1])
    }

    /// Joins the partial totals of a pass, a thread or a warp for each row, and computes the stage that follows.
    #[expect(clippy::too_many_arguments, reason = "they are what one launch of several is made of")]
    fn finish_rows(
        &mut self,
        kernel: &Kernel,
        space: &Space,
        pass: usize,
        parts: usize,
        partials: &[Vec<BufferId>],
        stored: &Stored,
        kept: &[(ValueId, BufferId)],
    ) -> Launch {
        let rows = count(&space.kept);
        // A thread for each row where there are many, so that neighbours read neighbours.
        let width = if rows >= 1024 { 1 } else { WARP };
        let team = Team::Rows { threads: 128, team: width, vector: 1, chunks: 1 };
        let grid = Grid { kept: &space.kept, reduced: &[], vector: 1, along_reduced: true };
        let m = self.maker(kernel, space, "join", team.threads());
        let mut emit = Emit::new(self, kernel, space, grid, stored, m);
        let standing = stand(&mut emit, team, rows);
        let stage = pass + 1;
        (0..stage).for_each(|stage| emit.stage(stage));
        if pass == 0 {
            emit.store_stage(0);
        }
        let pass = &kernel.passes[pass];
        let start = emit.start(pass);
        let folds: Vec<_> = pass.reductions.iter().map(|&reduction| emit.fold(reduction)).collect();
        let m = &mut emit.m;
        let (lines, size) = (m.size(parts), m.size(rows));
        let init: Vals = start.iter().flat_map(|total| total.parts()).collect();
        let head = m.b.open_for([standing.first, lines, standing.stride], &init);
        let line = m.b.mul(head.counter(), size);
        let place = m.b.add(line, standing.row);
        let carried = totals_from(&start, head.carried());
        let mut yields = Vals::new();
        for ((fold, buffers), total) in folds.iter().zip(partials).zip(carried) {
            let mut loaded = Vec::new();
            for (&buffer, dtype) in buffers.iter().zip(fold.dtypes()) {
                let memory = m.buffer(buffer, dtype, Mode::Read);
                loaded.push(m.b.load(memory, place, None));
            }
            yields.extend(fold.join(&mut m.b, total, Total::from_parts(&loaded)).parts());
        }
        let results = m.b.close_for(head, yields);
        let totals = emit.join_team(pass, &totals_from(&start, &results), width);
        emit.finish_pass(pass, &totals);
        emit.stage(stage);
        emit.store_stage(stage);
        for &(value, buffer) in kept {
            let lanes = emit.row_value(value);
            emit.write_row(space.row_walk, buffer, &lanes);
        }
        let m = emit.m;
        self.launch(m, [rows.div_ceil(team.rows()), 1, 1])
    }
}

/// The team for loops over rows, and one that holds whole rows if that is possible and worth it.
fn choose_team(space: &Space, rows: usize, len: usize, single: bool) -> (Team, Option<Team>) {
    let (along_rows, along_columns) =
        (space.contiguous_bytes(space.reduced.last()), space.contiguous_bytes(space.kept.last()));
    // Short rows are columns even if elements of a row are neighbours: a thread for each.
    if along_columns > along_rows || len < 4 && rows > 32 {
        let vector = space.vector(&space.kept, &space.reduced).min(4);
        let (width, depth) = if len >= 8 { (32, 8) } else { (128, 1) };
        return (Team::Columns { width, depth, vector, chunks: LOADS_AHEAD }, None);
    }
    let vector = space.vector(&space.reduced, &space.kept);
    let slots = len.div_ceil(vector);
    let fit = |held: usize, max: u32| {
        let mut team = WARP;
        while team < max && slots.div_ceil(team as usize) * vector > held {
            team *= 2;
        }
        team
    };
    let shape = |team: u32, chunks: usize| Team::Rows {
        threads: team.max(128),
        team: if team > WARP { team.max(128) } else { WARP },
        vector,
        chunks,
    };
    if !single {
        let team = fit(GOOD_HELD, 512);
        let team = if slots.div_ceil(team as usize) * vector > MAX_HELD { 1024 } else { team };
        let team = if team > WARP { team.max(128) } else { team };
        let chunks = slots.div_ceil(team as usize).max(1).next_power_of_two();
        if chunks * vector <= MAX_HELD {
            return (shape(team, 1), Some(shape(team, chunks)));
        }
    }
    let team = fit(4 * GOOD_HELD, 512);
    (shape(team, LOADS_AHEAD), None)
}

/// Finds the thread's place in its team and sets the emitter's row.
fn stand(emit: &mut Emit<'_, '_>, team: Team, rows: usize) -> Standing {
    let m = &mut emit.m;
    let thread = m.b.special(Special::Thread);
    let block = m.special(Special::Block(0));
    let count = m.size(rows);
    let standing = match team {
        Team::Rows { threads, team, vector, .. } => {
            let size = m.b.int(DType::U32, team.into());
            let (group, member) = match threads / team {
                1 => (m.b.int(DType::U32, 0), thread),
                _ => (m.b.div(thread, size), m.b.rem(thread, size)),
            };
            let group = m.b.cast(group, m.index);
            let per_block = m.int((threads / team).into());
            let first_row = m.b.mul(block, per_block);
            let row = m.b.add(first_row, group);
            // Threads without a row of their own work on the last one, and store nothing.
            let row = match threads / team {
                1 => row,
                _ => {
                    emit.row_mask = Some(m.b.lt(row, count));
                    let one = m.int(1);
                    let last = m.b.sub(count, one);
                    m.b.min(row, last)
                }
            };
            let zero = m.b.int(DType::U32, 0);
            emit.leader = Some(m.b.eq(member, zero));
            let member = m.b.cast(member, m.index);
            let width = m.int(vector as i64);
            let first = m.b.mul(member, width);
            let stride = m.int(i64::from(team) * vector as i64);
            Standing { row, first, stride, column: None }
        }
        Team::Columns { width, depth, vector, .. } => {
            let size = m.b.int(DType::U32, width.into());
            let (y, x) = (m.b.div(thread, size), m.b.rem(thread, size));
            let per_block = m.int((width as usize * vector) as i64);
            let lanes = m.int(vector as i64);
            let first_row = m.b.mul(block, per_block);
            let group = m.b.cast(x, m.index);
            let ahead = m.b.mul(group, lanes);
            let row = m.b.add(first_row, ahead);
            emit.row_mask = Some(m.b.lt(row, count));
            let last = m.b.sub(count, lanes);
            let row = m.b.min(row, last);
            let zero = m.b.int(DType::U32, 0);
            emit.leader = Some(m.b.eq(y, zero));
            let first = m.b.cast(y, m.index);
            let stride = m.int(depth.into());
            Standing { row, first, stride, column: Some([x, y]) }
        }
    };
    emit.set_row(standing.row);
    standing
}

fn run_loop(
    emit: &mut Emit<'_, '_>,
    pass: &fornax_compile::Pass,
    team: Team,
    standing: &Standing,
    first: Val,
    end: Val,
) -> Vec<Total> {
    let (Team::Rows { chunks, .. } | Team::Columns { chunks, .. }) = team;
    emit.pass_loop(pass, [first, end, standing.stride], chunks)
}

/// One total for each reduction and lane of a row value, in all threads of the team.
fn join(
    emit: &mut Emit<'_, '_>,
    pass: &fornax_compile::Pass,
    team: Team,
    standing: &Standing,
    totals: &[Total],
) -> Vec<Total> {
    if pass.reductions.is_empty() {
        return Vec::new();
    }
    match team {
        Team::Rows { team, .. } => {
            let totals = emit.join_lanes(pass, totals);
            emit.join_team(pass, &totals, team)
        }
        Team::Columns { width, depth, .. } => {
            let column = standing.column.expect("columns have these");
            emit.join_columns(pass, totals, column, width, depth)
        }
    }
}

/// A name that tells what a kernel does, for reports.
fn name(kernel: &Kernel, what: &str) -> String {
    let mut name = format!("fx_{what}");
    let mut add = |op: &str| {
        if name.len() < 40 && !name.ends_with(op) {
            name.push('_');
            name.push_str(op);
        }
    };
    for value in &kernel.values {
        match value.op {
            ValueOp::Unary(op, _) => add(op.name()),
            ValueOp::Binary(op, ..) => add(op.name()),
            ValueOp::Compare(op, ..) => add(op.name()),
            ValueOp::Select(..) => add("select"),
            ValueOp::Cast(_) | ValueOp::Bitcast(_) => add("cast"),
            ValueOp::Random(_) => add("random"),
            ValueOp::Reduced(reduction) => add(kernel.reductions[reduction as usize].op.name()),
            ValueOp::Load(_) | ValueOp::Iota(_) | ValueOp::Const => {}
        }
    }
    name
}
