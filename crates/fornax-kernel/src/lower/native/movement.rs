//! Pad, concat and fold.

use super::super::Lowering;
use super::super::maker::Maker;
use super::super::space::{Loop, count, merge};
use super::super::values::Fold;
use super::{Out, THREADS};
use crate::ir::{Mode, Val, Vals};
use crate::program::{BufferId, Launch, Operand};
use fornax_ir::{DType, NodeId, ReduceOp, WindowSpec};

/// A copy of elements between two strided places, perhaps with a conversion.
pub(super) struct Copy<'a> {
    pub from: &'a Operand,
    pub to: BufferId,
    pub dtype: DType,
    pub offset: usize,
    pub strides: &'a [isize],
}

impl Lowering<'_> {
    /// Copies every element of an operand.
    pub(super) fn strided_copy(&mut self, copy: &Copy<'_>) -> Option<Launch> {
        let (from, layout) = (copy.from, &copy.from.layout);
        let loops =
            merge((0..layout.shape.rank()).map(|d| (layout.shape[d], vec![layout.strides[d], copy.strides[d]])));
        let elements = count(&loops);
        if elements == 0 {
            return None;
        }
        let size = from.dtype.size().max(copy.dtype.size());
        let vector = vector(&loops, &[layout.offset, copy.offset], 16 / size);
        let mut m = Maker::new("fx_copy", THREADS, self.index_of(elements, &[from], copy.to));
        let (thread, width, end) = (m.thread_of_grid(), m.int(vector as i64), m.size(elements));
        let first = m.b.mul(thread, width);
        let inside = m.b.lt(first, end);
        let sizes = m.loop_sizes(&loops);
        let coordinates = m.coordinates(first, &sizes);
        let place = |m: &mut Maker, walk: usize, offset: usize| {
            let offset = m.offset(offset as isize);
            let strides: Vec<Val> = loops.iter().map(|one| m.stride(one.strides[walk])).collect();
            m.place(offset, &coordinates, &strides)
        };
        let (source, target) = (place(&mut m, 0, layout.offset), place(&mut m, 1, copy.offset));
        let memory = m.buffer(from.buffer, from.dtype, Mode::Read);
        let values = m.b.load_vector(memory, source, vector, Some(inside));
        let values: Vals = values.into_iter().map(|value| m.b.cast(value, copy.dtype)).collect();
        let memory = m.buffer(copy.to, copy.dtype, Mode::Write);
        m.b.store(memory, target, &values, Some(inside));
        Some(self.launch(m, [(elements / vector).div_ceil(THREADS as usize), 1, 1]))
    }

    pub(super) fn concat(&mut self, operands: &[Operand], dim: usize, out: Out<'_>) -> Vec<Launch> {
        let strides = out.shape.strides();
        let mut offset = 0;
        let mut launches = Vec::new();
        for from in operands {
            let copy = Copy { from, to: out.buffer, dtype: out.dtype, offset, strides: &strides };
            launches.extend(self.strided_copy(&copy));
            offset += from.layout.shape[dim] * strides[dim] as usize;
        }
        launches
    }

    pub(super) fn pad(&mut self, node: NodeId, x: &Operand, low: &[usize], out: Out<'_>) -> Vec<Launch> {
        let elements = out.shape.numel();
        let rank = out.shape.rank();
        let mut m = Maker::new("fx_pad", THREADS, self.index_of(elements, &[x], out.buffer));
        let (i, end) = (m.thread_of_grid(), m.size(elements));
        let inside = m.b.lt(i, end);
        let sizes = m.sizes(out.shape);
        let mut coordinates = m.coordinates(i, &sizes);
        let mut there = inside;
        for dim in 0..rank {
            if x.layout.shape[dim] == out.shape[dim] {
                continue;
            }
            let (before, size, zero) = (m.size(low[dim]), m.size(x.layout.shape[dim]), m.int(0));
            coordinates[dim] = m.b.sub(coordinates[dim], before);
            let (above, below) = (m.b.le(zero, coordinates[dim]), m.b.lt(coordinates[dim], size));
            let within = m.b.and(above, below);
            there = m.b.and(there, within);
        }
        let view = m.view(x);
        let place = m.at(&view, &coordinates);
        let value = m.b.load(view.memory, place, Some(there));
        let border = m.scalar(node, out.dtype);
        let value = m.b.select(there, value, border);
        let memory = m.buffer(out.buffer, out.dtype, Mode::Write);
        m.b.store(memory, i, &[value], Some(inside));
        vec![self.launch(m, [elements.div_ceil(THREADS as usize), 1, 1])]
    }

    /// A thread for each element of the result adds up the windows that it lies in.
    pub(super) fn fold(&mut self, windows: &Operand, spec: &WindowSpec, out: Out<'_>) -> Vec<Launch> {
        let elements = out.shape.numel();
        let (rank, n) = (out.shape.rank(), spec.dims.len());
        let mut m = Maker::new("fx_fold", THREADS, self.index_of(elements, &[windows], out.buffer));
        let (i, end) = (m.thread_of_grid(), m.size(elements));
        let inside = m.b.lt(i, end);
        let sizes = m.sizes(out.shape);
        let mut coordinates = m.coordinates(i, &sizes);
        let positions = coordinates.split_off(rank - n);
        let view = m.view(windows);
        let taps: Vec<Val> = spec.dims.iter().map(|dim| m.size(dim.size)).collect();
        let all = m.size(spec.dims.iter().map(|dim| dim.size).product());
        let fold = Fold::new(ReduceOp::Sum, out.dtype, m.index);
        let (zero, one, start) = (m.int(0), m.int(1), fold.start(&mut m.b).value);
        let head = m.b.open_for([zero, all, one], &[start]);
        let tap = m.coordinates(head.counter(), &taps);
        let mut there = inside;
        let (mut at, mut within) = (coordinates, Vec::new());
        for (dim, window) in spec.dims.iter().enumerate() {
            // Window `w` holds position `p` at `k` where `w · step + k · dilation = p`.
            let (step, dilation) = (m.size(window.step), m.size(window.dilation));
            let count = m.size(windows.layout.shape[rank - n + dim]);
            let ahead = m.b.mul(tap[dim], dilation);
            let left = m.b.sub(positions[dim], ahead);
            let right = m.b.le(zero, left);
            let safe = m.b.select(right, left, zero);
            let (number, rest) = m.div_rem(safe, step);
            let (whole, exists) = (m.b.eq(rest, zero), m.b.lt(number, count));
            let hit = m.b.and(whole, exists);
            let hit = m.b.and(right, hit);
            there = m.b.and(there, hit);
            at.push(number);
            within.push(tap[dim]);
        }
        at.extend(within);
        let place = m.at(&view, &at);
        let value = m.b.load(view.memory, place, Some(there));
        let value = m.b.cast(value, fold.dtype);
        let sum = m.b.add(head.carried()[0], value);
        let sum = m.b.select(there, sum, head.carried()[0]);
        let sum = m.b.close_for(head, Vals::from_slice(&[sum]))[0];
        let sum = m.b.cast(sum, out.dtype);
        let memory = m.buffer(out.buffer, out.dtype, Mode::Write);
        m.b.store(memory, i, &[sum], Some(inside));
        vec![self.launch(m, [elements.div_ceil(THREADS as usize), 1, 1])]
    }
}

/// The largest power of two up to `most` by which the last loop can be cut, so that every walk is at aligned neighbours.
pub(super) fn vector(loops: &[Loop], offsets: &[usize], most: usize) -> usize {
    let Some((along, outer)) = loops.split_last() else { return 1 };
    let mut vector = most.min(8);
    let aligned = |vector: usize| {
        along.size.is_multiple_of(vector)
            && along.strides.iter().all(|&stride| stride == 1)
            && offsets.iter().all(|offset| offset.is_multiple_of(vector))
            && outer.iter().flat_map(|one| &one.strides).all(|stride| stride.unsigned_abs().is_multiple_of(vector))
    };
    while vector > 1 && !aligned(vector) {
        vector /= 2;
    }
    vector
}
