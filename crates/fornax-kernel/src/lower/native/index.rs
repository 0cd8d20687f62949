//! Gather and scatter. An index out of range leaves a word in the fault buffer and touches no memory.

use super::super::Lowering;
use super::super::maker::{MAX_GRID_YZ, Maker};
use super::super::space::{Loop, count, merge};
use super::movement::Copy;
use super::{Out, THREADS};
use crate::ir::{AtomicOp, Mode, Special, Val};
use crate::program::{BufferId, FaultKind, FaultSite, Launch, Operand};
use fornax_ir::{BinaryOp, DType, Layout, NodeId, ScatterMode};

/// Threads that fill a large GPU.
const ENOUGH_THREADS: usize = 264 * THREADS as usize;

impl Lowering<'_> {
    pub(super) fn gather(
        &mut self,
        node: NodeId,
        x: &Operand,
        index: &Operand,
        dim: usize,
        out: Out<'_>,
    ) -> Vec<Launch> {
        let strides = out.shape.strides();
        // Walks: index, x but for its indexed dim, result.
        let x_stride = |d: usize| if d == dim { 0 } else { x.layout.strides[d] };
        let dims =
            (0..out.shape.rank()).map(|d| (out.shape[d], vec![index.layout.strides[d], x_stride(d), strides[d]]));
        let loops = merge(dims);
        let elements = count(&loops);
        let vector = row_vector(&loops, x, dim);
        let mut m = Maker::new("fx_gather", THREADS, self.index_of(elements, &[x, index], out.buffer));
        let (thread, width, end) = (m.thread_of_grid(), m.int(vector as i64), m.size(elements));
        let first = m.b.mul(thread, width);
        let inside = m.b.lt(first, end);
        let sizes = m.loop_sizes(&loops);
        let coordinates = m.coordinates(first, &sizes);
        let [at, from, to] = places(&mut m, &loops, &coordinates, [index.layout.offset, x.layout.offset, 0]);
        let memory = m.buffer(index.buffer, index.dtype, Mode::Read);
        let number = m.b.load(memory, at, Some(inside));
        let (row, valid) = self.checked(&mut m, node, number, inside, dim, x.layout.shape[dim]);
        let stride = m.stride(x.layout.strides[dim]);
        let ahead = m.b.mul(row, stride);
        let place = m.b.add(from, ahead);
        let memory = m.buffer(x.buffer, x.dtype, Mode::Read);
        let values = m.b.load_vector(memory, place, vector, Some(valid));
        let memory = m.buffer(out.buffer, out.dtype, Mode::Write);
        m.b.store(memory, to, &values, Some(inside));
        vec![self.launch(m, [(elements / vector).div_ceil(THREADS as usize), 1, 1])]
    }

    /// The index as a place, and whether it is in range; a fault where it is not though `mask` holds.
    fn checked(&mut self, m: &mut Maker, node: NodeId, number: Val, mask: Val, dim: usize, size: usize) -> (Val, Val) {
        let wide = m.b.cast(number, DType::I64);
        let (zero, end) = (m.b.int(DType::I64, 0), m.size(size));
        let end = m.b.cast(end, DType::I64);
        let (above, below) = (m.b.le(zero, wide), m.b.lt(wide, end));
        let right = m.b.and(above, below);
        let wrong = m.b.not(right);
        let wrong = m.b.and(mask, wrong);
        let word = self.fault_site(FaultSite { node, kind: FaultKind::Index { dim, size } });
        let word = m.number(word as i64);
        let bits = m.b.cast(wide, DType::U64);
        let (nothing, sign) = (m.b.int(DType::U64, 0), m.b.int(DType::U64, i64::MIN));
        let is_zero = m.b.eq(bits, nothing);
        let bits = m.b.select(is_zero, sign, bits);
        let faults = m.faults();
        m.b.atomic(AtomicOp::Max, faults, word, bits, Some(wrong));
        let index = m.index;
        (m.b.cast(wide, index), m.b.and(mask, right))
    }

    /// First a copy of `x`. Then a thread for each index of the other dims goes along the indexed dim of the source, so that
    /// no two threads write one element and the order is that of the source. Where that gives too few threads, several
    /// share the way: each takes the targets with its own remainder.
    pub(super) fn scatter(
        &mut self,
        node: NodeId,
        [x, index, source]: [&Operand; 3],
        dim: usize,
        mode: ScatterMode,
        out: Out<'_>,
    ) -> Vec<Launch> {
        let adds = matches!(mode, ScatterMode::Add | ScatterMode::Mul);
        // Halves add up in f32 and are rounded once.
        let total = if adds { out.dtype.compute() } else { out.dtype };
        let target = match total == out.dtype {
            true => out.buffer,
            false => self.temporary(out.shape.numel() * total.size()),
        };
        let strides = out.shape.strides();
        let copy = Copy { from: x, to: target, dtype: total, offset: 0, strides: &strides };
        let mut launches: Vec<Launch> = self.strided_copy(&copy).into_iter().collect();
        launches.extend(self.scatter_into(node, [index, source], dim, mode, target, total, out));
        if target != out.buffer {
            let layout = Layout::contiguous(out.shape);
            let from = Operand { buffer: target, dtype: total, layout };
            let copy = Copy { from: &from, to: out.buffer, dtype: out.dtype, offset: 0, strides: &strides };
            launches.extend(self.strided_copy(&copy));
        }
        launches
    }

    #[expect(clippy::too_many_arguments, reason = "target and result differ in buffer and dtype only")]
    fn scatter_into(
        &mut self,
        node: NodeId,
        [index, source]: [&Operand; 2],
        dim: usize,
        mode: ScatterMode,
        target: BufferId,
        total: DType,
        out: Out<'_>,
    ) -> Option<Launch> {
        let strides = out.shape.strides();
        let others = (0..out.shape.rank()).filter(|&d| d != dim);
        let loops = merge(
            others
                .map(|d| (index.layout.shape[d], vec![index.layout.strides[d], source.layout.strides[d], strides[d]])),
        );
        let (lanes, len, size) = (count(&loops), index.layout.shape[dim], out.shape[dim]);
        if lanes == 0 || len == 0 {
            return None;
        }
        let parts = (ENOUGH_THREADS / lanes).clamp(1, size.clamp(1, 256)).min(MAX_GRID_YZ);
        let elements = out.shape.numel().max(lanes * len);
        let mut m = Maker::new("fx_scatter", THREADS, self.index_of(elements, &[index, source], out.buffer));
        let (lane, end) = (m.thread_of_grid(), m.size(lanes));
        let inside = m.b.lt(lane, end);
        let sizes = m.loop_sizes(&loops);
        let coordinates = m.coordinates(lane, &sizes);
        let offsets = [index.layout.offset, source.layout.offset, 0];
        let [index_at, source_at, to] = places(&mut m, &loops, &coordinates, offsets);
        let along: Vec<Val> = [index.layout.strides[dim], source.layout.strides[dim], strides[dim]]
            .into_iter()
            .map(|stride| m.stride(stride))
            .collect();
        let (part, all, first, step) = (m.special(Special::Block(1)), m.size(parts), m.int(0), m.int(1));
        let len = m.size(len);
        let memory = m.buffer(index.buffer, index.dtype, Mode::Read);
        let values = m.buffer(source.buffer, source.dtype, Mode::Read);
        let results = m.buffer(target, total, Mode::ReadWrite);
        let head = m.b.open_for([first, len, step], &[]);
        let place = m.place(index_at, &[head.counter()], &along[..1]);
        let number = m.b.load(memory, place, Some(inside));
        let (row, valid) = self.checked(&mut m, node, number, inside, dim, size);
        let safe = m.b.select(valid, row, first);
        let (_, rest) = m.div_rem(safe, all);
        let mine = m.b.eq(rest, part);
        let mine = m.b.and(valid, mine);
        let from = m.place(source_at, &[head.counter()], &along[1..2]);
        let to = m.place(to, &[safe], &along[2..]);
        let value = m.b.load(values, from, Some(mine));
        let value = m.b.cast(value, total);
        let op = match mode {
            ScatterMode::Set => None,
            ScatterMode::Add => Some(BinaryOp::Add),
            ScatterMode::Mul => Some(BinaryOp::Mul),
            ScatterMode::Max => Some(BinaryOp::Max),
            ScatterMode::Min => Some(BinaryOp::Min),
        };
        let value = match op {
            None => value,
            Some(op) => {
                let old = m.b.load(results, to, Some(mine));
                let wide = total.compute();
                let (a, b) = (m.b.cast(old, wide), m.b.cast(value, wide));
                let value = m.b.binary(op, a, b);
                m.b.cast(value, total)
            }
        };
        m.b.store(results, to, &[value], Some(mine));
        m.b.close_for(head, crate::ir::Vals::new());
        Some(self.launch(m, [lanes.div_ceil(THREADS as usize), parts, 1]))
    }
}

/// The places of three walks.
fn places(m: &mut Maker, loops: &[Loop], coordinates: &[Val], offsets: [usize; 3]) -> [Val; 3] {
    [0, 1, 2].map(|walk| {
        let offset = m.offset(offsets[walk] as isize);
        let strides: Vec<Val> = loops.iter().map(|one| m.stride(one.strides[walk])).collect();
        m.place(offset, coordinates, &strides)
    })
}

/// Neighbours that one index stands for: where the last loop repeats the index and goes along rows of `x` and the result.
fn row_vector(loops: &[Loop], x: &Operand, dim: usize) -> usize {
    let Some((along, outer)) = loops.split_last() else { return 1 };
    let mut vector = (16 / x.dtype.size()).min(8);
    let fits = |number: usize, vector: usize| number.is_multiple_of(vector);
    let aligned = |vector: usize| {
        along.strides == [0, 1, 1]
            && fits(along.size, vector)
            && fits(x.layout.offset, vector)
            && fits(x.layout.strides[dim].unsigned_abs(), vector)
            && outer.iter().flat_map(|one| &one.strides[1..]).all(|stride| fits(stride.unsigned_abs(), vector))
    };
    while vector > 1 && !aligned(vector) {
        vector /= 2;
    }
    vector
}
