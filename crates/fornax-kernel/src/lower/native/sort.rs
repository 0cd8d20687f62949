//! Positions in order: a bitonic network over pairs of key and position, which no two elements have in common, so that the
//! order is stable.
//!
//! Keys are unsigned integers in the order of the elements: NaN last, both zeros alike. Lanes that fit in a block are
//! sorted in one launch; longer ones go through memory, a launch for each step whose distance is more than a block.
//!
//! Batcher (1968), *Sorting networks and their applications*, AFIPS.

use super::super::Lowering;
use super::super::maker::Maker;
use super::super::space::{Loop, count, merge};
use super::{Out, THREADS};
use crate::ir::{Builder, Memory, Mode, Special, Val};
use crate::program::{BufferId, Launch, Operand};
use fornax_ir::{BinaryOp, DType, DTypeKind, UnaryOp};

/// Elements that a block sorts, twice its threads.
const BLOCKS: [usize; 3] = [64, 512, 2048];

/// Pairs of key and position in memory, padded to a power of two.
#[derive(Clone, Copy)]
struct Pairs {
    keys: BufferId,
    positions: BufferId,
    /// Elements of a lane, padding included.
    padded: usize,
    key: DType,
}

/// What a block does with its elements.
#[derive(Clone, Copy)]
enum Stage {
    /// Sorts them from scratch.
    Sort,
    /// The last steps of merging runs of this length.
    Merge(usize),
}

impl Lowering<'_> {
    /// The first positions in order, as many as the result has along `dim`.
    pub(super) fn sort(&mut self, x: &Operand, dim: usize, descending: bool, out: Out<'_>) -> Vec<Launch> {
        let n = x.layout.shape[dim];
        let block = BLOCKS.into_iter().find(|&block| n <= block).unwrap_or(BLOCKS[2]);
        let strides = out.shape.strides();
        let others = (0..out.shape.rank()).filter(|&d| d != dim);
        let loops = merge(others.map(|d| (out.shape[d], vec![x.layout.strides[d], strides[d]])));
        let lanes = count(&loops);
        let key = if x.dtype.size() == 8 { DType::U64 } else { DType::U32 };
        let sort = Sort { x, dim, descending, out, loops: &loops, lanes, n, block, key };
        if n <= block {
            return vec![self.sort_blocks(&sort, Stage::Sort, None)];
        }
        let padded = n.next_power_of_two();
        let index = self.index_of(lanes * padded, &[x], out.buffer);
        let pairs = Pairs {
            keys: self.temporary(lanes * padded * key.size()),
            positions: self.temporary(lanes * padded * index.size()),
            padded,
            key,
        };
        let mut launches = vec![self.sort_blocks(&sort, Stage::Sort, Some(pairs))];
        let mut run = 2 * block;
        while run <= padded {
            let mut distance = run / 2;
            while distance >= block {
                launches.push(self.sort_step(&sort, pairs, run, distance));
                distance /= 2;
            }
            launches.push(self.sort_blocks(&sort, Stage::Merge(run), Some(pairs)));
            run *= 2;
        }
        launches.push(self.sorted(&sort, pairs));
        launches
    }

    fn sort_maker(&self, sort: &Sort<'_>, pairs: Option<Pairs>, name: &str, threads: u32) -> Maker {
        let elements = sort.lanes * pairs.map_or(sort.n, |pairs| pairs.padded);
        Maker::new(name, threads, self.index_of(elements, &[sort.x], sort.out.buffer))
    }

    /// A block for each run of elements.
    fn sort_blocks(&mut self, sort: &Sort<'_>, stage: Stage, pairs: Option<Pairs>) -> Launch {
        let block = sort.block;
        let half = block / 2;
        let mut m = self.sort_maker(sort, pairs, "fx_sort", half as u32);
        let (number, thread) = (m.special(Special::Block(0)), m.special(Special::Thread));
        // The lane, and where the block's elements begin in it.
        let (lane, begin) = match pairs {
            None => (number, m.int(0)),
            Some(pairs) => {
                let per_lane = m.size(pairs.padded / block);
                let (lane, run) = m.div_rem(number, per_lane);
                let size = m.int(block as i64);
                (lane, m.b.mul(run, size))
            }
        };
        let (keys, positions) = (m.b.shared(sort.key, block as u32), m.b.shared(m.index, block as u32));
        let memory = pairs.map(|pairs| m.pairs(pairs));
        let base = pairs.map(|pairs| {
            let padded = m.size(pairs.padded);
            m.b.mul(lane, padded)
        });
        for part in 0..2 {
            let ahead = m.int((part * half) as i64);
            let own = m.b.add(thread, ahead);
            let i = m.b.add(begin, own);
            let (key, position) = match (stage, memory, base) {
                (Stage::Merge(_), Some([keys, positions]), Some(base)) => {
                    let place = m.b.add(base, i);
                    (m.b.load(keys, place, None), m.b.load(positions, place, None))
                }
                _ => (sort.read(&mut m, lane, i), i),
            };
            m.b.store(keys, own, &[key], None);
            m.b.store(positions, own, &[position], None);
        }
        m.b.barrier();
        let bits = i64::from(block.trailing_zeros());
        let (one, zero) = (m.int(1), m.int(0));
        let steps = |m: &mut Maker, stages: Val, run: Val| {
            // Distances from half a run down to 1.
            let head = m.b.open_for([zero, stages, one], &[]);
            let left = m.b.sub(stages, one);
            let shift = m.b.sub(left, head.counter());
            let distance = m.b.binary(BinaryOp::Shl, one, shift);
            let mask = m.b.sub(distance, one);
            let low = m.b.and(thread, mask);
            let high = m.b.sub(thread, low);
            let doubled = m.b.add(high, high);
            let first = m.b.add(doubled, low);
            let second = m.b.add(first, distance);
            let i = m.b.add(begin, first);
            let up = ascending(&mut m.b, i, run);
            exchange(&mut m.b, [keys, positions], first, second, up);
            m.b.barrier();
            m.b.close_for(head, crate::ir::Vals::new());
        };
        match stage {
            Stage::Sort => {
                let end = m.int(bits + 1);
                let head = m.b.open_for([one, end, one], &[]);
                let run = m.b.binary(BinaryOp::Shl, one, head.counter());
                steps(&mut m, head.counter(), run);
                m.b.close_for(head, crate::ir::Vals::new());
            }
            Stage::Merge(run) => {
                let (all, run) = (m.int(bits), m.size(run));
                steps(&mut m, all, run);
            }
        }
        for part in 0..2 {
            let ahead = m.int((part * half) as i64);
            let own = m.b.add(thread, ahead);
            let i = m.b.add(begin, own);
            let position = m.b.load(positions, own, None);
            match (memory, base) {
                (Some([all_keys, all_positions]), Some(base)) => {
                    let key = m.b.load(keys, own, None);
                    let place = m.b.add(base, i);
                    m.b.store(all_keys, place, &[key], None);
                    m.b.store(all_positions, place, &[position], None);
                }
                _ => sort.write(&mut m, lane, i, position, None),
            }
        }
        let blocks = sort.lanes * pairs.map_or(1, |pairs| pairs.padded / block);
        self.launch(m, [blocks, 1, 1])
    }

    /// One step of merging runs, between elements that lie further apart than a block.
    fn sort_step(&mut self, sort: &Sort<'_>, pairs: Pairs, run: usize, distance: usize) -> Launch {
        let mut m = self.sort_maker(sort, Some(pairs), "fx_sort_step", THREADS);
        let pair = m.thread_of_grid();
        let all = sort.lanes * pairs.padded / 2;
        // All sizes are powers of two, so lanes need no regard: a pair never leaves its run.
        let (distance, run, end) = (m.size(distance), m.size(run), m.size(all));
        let inside = m.b.lt(pair, end);
        let (number, low) = m.div_rem(pair, distance);
        let high = m.b.mul(number, distance);
        let doubled = m.b.add(high, high);
        let first = m.b.add(doubled, low);
        let second = m.b.add(first, distance);
        let padded = m.size(pairs.padded);
        let (_, within) = m.div_rem(first, padded);
        let up = ascending(&mut m.b, within, run);
        let memory = m.pairs(pairs);
        m.b.if_(inside, |b| exchange(b, memory, first, second, up));
        self.launch(m, [all.div_ceil(THREADS as usize), 1, 1])
    }

    /// The positions in order, to the result.
    fn sorted(&mut self, sort: &Sort<'_>, pairs: Pairs) -> Launch {
        let mut m = self.sort_maker(sort, Some(pairs), "fx_sorted", THREADS);
        let (k, all) = (sort.out.shape[sort.dim], sort.out.shape.numel());
        let i = m.thread_of_grid();
        let (per_lane, end, padded) = (m.size(k), m.size(all), m.size(pairs.padded));
        let inside = m.b.lt(i, end);
        let (lane, rank) = m.div_rem(i, per_lane);
        let place = m.place(rank, &[lane], &[padded]);
        let [_, positions] = m.pairs(pairs);
        let position = m.b.load(positions, place, Some(inside));
        sort.write(&mut m, lane, rank, position, Some(inside));
        self.launch(m, [all.div_ceil(THREADS as usize), 1, 1])
    }
}

impl Maker {
    fn pairs(&mut self, pairs: Pairs) -> [Memory; 2] {
        let index = self.index;
        [self.buffer(pairs.keys, pairs.key, Mode::ReadWrite), self.buffer(pairs.positions, index, Mode::ReadWrite)]
    }
}

struct Sort<'a> {
    x: &'a Operand,
    dim: usize,
    descending: bool,
    out: Out<'a>,
    /// Over all dims but the sorted one: strides of operand and result.
    loops: &'a [Loop],
    lanes: usize,
    n: usize,
    block: usize,
    key: DType,
}

impl Sort<'_> {
    fn lane_place(&self, m: &mut Maker, lane: Val, walk: usize, offset: usize) -> Val {
        let sizes = m.loop_sizes(self.loops);
        let coordinates = m.coordinates(lane, &sizes);
        let strides: Vec<Val> = self.loops.iter().map(|one| m.stride(one.strides[walk])).collect();
        let offset = m.offset(offset as isize);
        m.place(offset, &coordinates, &strides)
    }

    /// The key of an element; beyond the end the largest.
    fn read(&self, m: &mut Maker, lane: Val, i: Val) -> Val {
        let start = self.lane_place(m, lane, 0, self.x.layout.offset);
        let stride = m.stride(self.x.layout.strides[self.dim]);
        let place = m.place(start, &[i], &[stride]);
        let end = m.size(self.n);
        let inside = m.b.lt(i, end);
        let memory = m.buffer(self.x.buffer, self.x.dtype, Mode::Read);
        let value = m.b.load(memory, place, Some(inside));
        let key = key(&mut m.b, value, self.key);
        let key = if self.descending { m.b.not(key) } else { key };
        let last = m.b.constant(self.key, fornax_ir::bits::mask(self.key));
        m.b.select(inside, key, last)
    }

    /// Stores the position of rank `i` of a lane, if the result has that rank.
    fn write(&self, m: &mut Maker, lane: Val, i: Val, position: Val, mask: Option<Val>) {
        let strides = self.out.shape.strides();
        let start = self.lane_place(m, lane, 1, 0);
        let stride = m.stride(strides[self.dim]);
        let place = m.place(start, &[i], &[stride]);
        let count = m.size(self.out.shape[self.dim]);
        let wanted = m.b.lt(i, count);
        let mask = mask.map_or(wanted, |mask| m.b.and(mask, wanted));
        let position = m.b.cast(position, DType::I64);
        let memory = m.buffer(self.out.buffer, DType::I64, Mode::Write);
        m.b.store(memory, place, &[position], Some(mask));
    }
}

/// An unsigned integer that orders as the value does.
fn key(b: &mut Builder, value: Val, dtype: DType) -> Val {
    let from = b.dtype(value);
    let signed = if dtype == DType::U64 { DType::I64 } else { DType::I32 };
    let sign = b.constant(dtype, 1 << (8 * dtype.size() - 1));
    match from.kind() {
        DTypeKind::Bool | DTypeKind::Unsigned => b.cast(value, dtype),
        DTypeKind::Signed => {
            let value = b.cast(value, signed);
            let bits = b.bitcast(value, dtype);
            b.binary(BinaryOp::Xor, bits, sign)
        }
        DTypeKind::Float => {
            let wide = from.compute();
            let value = b.cast(value, wide);
            let zero = b.number(wide, 0);
            let is_zero = b.eq(value, zero);
            let value = b.select(is_zero, zero, value);
            let is_number = b.eq(value, value);
            let bits = b.bitcast(value, dtype);
            let negative = b.lt(value, zero);
            let turned = b.unary(UnaryOp::Not, bits);
            let raised = b.or(bits, sign);
            let bits = b.select(negative, turned, raised);
            let last = b.constant(dtype, fornax_ir::bits::mask(dtype));
            b.select(is_number, bits, last)
        }
    }
}

/// Whether the run that an element lies in ascends.
fn ascending(b: &mut Builder, i: Val, run: Val) -> Val {
    let zero = b.int(b.dtype(i), 0);
    let bit = b.and(i, run);
    b.eq(bit, zero)
}

/// Puts two pairs in order.
fn exchange(b: &mut Builder, [keys, positions]: [Memory; 2], first: Val, second: Val, ascending: Val) {
    let (a, c) = (b.load(keys, first, None), b.load(keys, second, None));
    let (at_a, at_c) = (b.load(positions, first, None), b.load(positions, second, None));
    let (more, equal) = (b.lt(c, a), b.eq(a, c));
    let later = b.lt(at_c, at_a);
    let tie = b.and(equal, later);
    let greater = b.or(more, tie);
    let swap = b.eq(greater, ascending);
    let (low, high) = (b.select(swap, c, a), b.select(swap, a, c));
    let (at_low, at_high) = (b.select(swap, at_c, at_a), b.select(swap, at_a, at_c));
    b.store(keys, first, &[low], None);
    b.store(keys, second, &[high], None);
    b.store(positions, first, &[at_low], None);
    b.store(positions, second, &[at_high], None);
}
