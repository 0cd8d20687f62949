//! Running totals: a block goes along each lane, a tile of elements at a time.

use super::super::Lowering;
use super::super::maker::Maker;
use super::super::space::{count, merge};
use super::Out;
use crate::ir::{Mode, Shuffle, Special, Val, Vals, WARP};
use crate::program::{Launch, Operand};
use fornax_ir::{BinaryOp, DType, ScanOp};

impl Lowering<'_> {
    pub(super) fn scan(&mut self, x: &Operand, op: ScanOp, dim: usize, out: Out<'_>) -> Vec<Launch> {
        let strides = out.shape.strides();
        let others = (0..out.shape.rank()).filter(|&d| d != dim);
        let loops = merge(others.map(|d| (out.shape[d], vec![x.layout.strides[d], strides[d]])));
        let (lanes, len) = (count(&loops), out.shape[dim]);
        let threads = if len > 128 { 256 } else { WARP };
        let mut m = Maker::new("fx_scan", threads, self.index_of(out.shape.numel(), &[x], out.buffer));
        let (lane, thread) = (m.special(Special::Block(0)), m.special(Special::Thread));
        let sizes = m.loop_sizes(&loops);
        let coordinates = m.coordinates(lane, &sizes);
        let start = |m: &mut Maker, walk: usize, offset: usize, along: isize| {
            let offset = m.offset(offset as isize);
            let strides: Vec<Val> = loops.iter().map(|one| m.stride(one.strides[walk])).collect();
            (m.place(offset, &coordinates, &strides), m.stride(along))
        };
        let (from, from_step) = start(&mut m, 0, x.layout.offset, x.layout.strides[dim]);
        let (to, to_step) = start(&mut m, 1, 0, strides[dim]);
        let source = m.buffer(x.buffer, x.dtype, Mode::Read);
        let target = m.buffer(out.buffer, out.dtype, Mode::Write);
        let scan = Scan::new(op, out.dtype);
        let identity = scan.identity(&mut m);
        let (zero, end, tile) = (m.int(0), m.size(len), m.int(threads.into()));
        let totals = m.b.shared(scan.dtype, threads / WARP);
        let head = m.b.open_for([zero, end, tile], &[identity]);
        let i = m.b.add(head.counter(), thread);
        let inside = m.b.lt(i, end);
        let place = m.place(from, &[i], &[from_step]);
        let value = m.b.load(source, place, Some(inside));
        let value = m.b.cast(value, scan.dtype);
        let value = m.b.select(inside, value, identity);
        let value = scan.warp(&mut m, value);
        let (before, all) = scan.block(&mut m, value, totals, threads / WARP, head.carried()[0]);
        let value = m.b.binary(scan.op, before, value);
        let value = m.b.cast(value, out.dtype);
        let place = m.place(to, &[i], &[to_step]);
        m.b.store(target, place, &[value], Some(inside));
        m.b.barrier();
        m.b.close_for(head, Vals::from_slice(&[all]));
        vec![self.launch(m, [lanes, 1, 1])]
    }
}

struct Scan {
    op: BinaryOp,
    kind: ScanOp,
    /// The dtype of totals.
    dtype: DType,
}

impl Scan {
    fn new(kind: ScanOp, dtype: DType) -> Scan {
        let op = match kind {
            ScanOp::Sum => BinaryOp::Add,
            ScanOp::Prod => BinaryOp::Mul,
            ScanOp::Max => BinaryOp::Max,
            ScanOp::Min => BinaryOp::Min,
        };
        Scan { op, kind, dtype: dtype.compute() }
    }

    fn identity(&self, m: &mut Maker) -> Val {
        let (least, most) = super::super::values::limits(self.dtype);
        match self.kind {
            ScanOp::Sum => m.b.number(self.dtype, 0),
            ScanOp::Prod => m.b.number(self.dtype, 1),
            ScanOp::Max => m.b.constant(self.dtype, least),
            ScanOp::Min => m.b.constant(self.dtype, most),
        }
    }

    /// The totals up to each lane of a warp.
    fn warp(&self, m: &mut Maker, mut value: Val) -> Val {
        let lane = m.b.special(Special::Lane);
        let mut distance = 1;
        while distance < WARP {
            let step = m.b.int(DType::U32, distance.into());
            let lower = m.b.shuffle(Shuffle::Up, value, step);
            let there = m.b.le(step, lane);
            let joined = m.b.binary(self.op, lower, value);
            value = m.b.select(there, joined, value);
            distance *= 2;
        }
        value
    }

    /// The total before the thread's warp, and of all warps, `carry` first.
    fn block(&self, m: &mut Maker, value: Val, totals: crate::ir::Memory, warps: u32, carry: Val) -> (Val, Val) {
        let (lane, thread) = (m.b.special(Special::Lane), m.b.special(Special::Thread));
        let (width, last) = (m.b.int(DType::U32, WARP.into()), m.b.int(DType::U32, (WARP - 1).into()));
        let warp = m.b.div(thread, width);
        let ends = m.b.eq(lane, last);
        m.b.store(totals, warp, &[value], Some(ends));
        m.b.barrier();
        let (mut before, mut all) = (carry, carry);
        for other in 0..warps {
            let number = m.b.int(DType::U32, other.into());
            let total = m.b.load(totals, number, None);
            all = m.b.binary(self.op, all, total);
            let lower = m.b.lt(number, warp);
            before = m.b.select(lower, all, before);
        }
        (before, all)
    }
}
