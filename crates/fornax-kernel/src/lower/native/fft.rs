//! The discrete Fourier transform by its definition, with a table of roots of unity.

use super::super::Lowering;
use super::super::maker::Maker;
use super::super::space::{count, merge};
use super::{Out, THREADS};
use crate::ir::{Mode, Val, Vals};
use crate::program::{BufferId, Launch, Operand};
use core::f64::consts::TAU;
use fornax_ir::{DType, FftKind, UnaryOp};

impl Lowering<'_> {
    pub(super) fn fft(&mut self, x: &Operand, dim: usize, kind: FftKind, out: Out<'_>) -> Vec<Launch> {
        let n = out.shape[dim];
        let dtype = out.dtype.compute();
        let roots = self.temporary(2 * n * dtype.size());
        vec![self.roots(n, kind, roots, dtype), self.transform(x, dim, roots, dtype, out)]
    }

    /// `cos` and `sin` of the angles, from `f64`.
    fn roots(&mut self, n: usize, kind: FftKind, roots: BufferId, dtype: DType) -> Launch {
        let mut m = Maker::new("fx_roots", THREADS, self.index_of(2 * n, &[], roots));
        let (i, end) = (m.thread_of_grid(), m.size(n));
        let inside = m.b.lt(i, end);
        let turn = match kind {
            FftKind::Forward => -TAU,
            FftKind::Inverse => TAU,
        };
        let turn = m.b.number(DType::F64, turn);
        let (number, count) = (m.b.cast(i, DType::F64), m.b.cast(end, DType::F64));
        let angle = m.b.mul(turn, number);
        let angle = m.b.div(angle, count);
        let memory = m.buffer(roots, dtype, Mode::Write);
        let two = m.int(2);
        let place = m.b.mul(i, two);
        let parts = [UnaryOp::Cos, UnaryOp::Sin].map(|op| {
            let value = m.b.unary(op, angle);
            m.b.cast(value, dtype)
        });
        m.b.store(memory, place, &parts, Some(inside));
        self.launch(m, [n.div_ceil(THREADS as usize), 1, 1])
    }

    /// A thread for each complex number of the result.
    fn transform(&mut self, x: &Operand, dim: usize, roots: BufferId, dtype: DType, out: Out<'_>) -> Launch {
        let last = out.shape.rank() - 1;
        let strides = out.shape.strides();
        // Walks: operand but for the transformed dim, result, position along the transformed dim.
        let loops = merge((0..last).map(|d| {
            let (own, along) = if d == dim { (0, 1) } else { (x.layout.strides[d], 0) };
            (out.shape[d], vec![own, strides[d], along])
        }));
        let elements = count(&loops);
        let mut m = Maker::new("fx_fft", THREADS, self.index_of(2 * elements, &[x], out.buffer));
        let (i, end) = (m.thread_of_grid(), m.size(elements));
        let inside = m.b.lt(i, end);
        let sizes = m.loop_sizes(&loops);
        let coordinates = m.coordinates(i, &sizes);
        let [from, to, k] = [0, 1, 2].map(|walk| {
            let offset = m.offset(if walk == 0 { x.layout.offset as isize } else { 0 });
            let strides: Vec<Val> = loops.iter().map(|one| m.stride(one.strides[walk])).collect();
            m.place(offset, &coordinates, &strides)
        });
        let (step, part) = (m.stride(x.layout.strides[dim]), m.stride(x.layout.strides[last]));
        let source = m.buffer(x.buffer, x.dtype, Mode::Read);
        let table = m.buffer(roots, dtype, Mode::Read);
        let (zero, one, two, n) = (m.int(0), m.int(1), m.int(2), m.size(out.shape[dim]));
        let nothing = m.b.number(dtype, 0);
        let head = m.b.open_for([zero, n, one], &[zero, nothing, nothing]);
        let [turn, re, im] = head.carried() else { unreachable!("three values are carried") };
        let (turn, re, im) = (*turn, *re, *im);
        let place = m.place(from, &[head.counter()], &[step]);
        let next = m.b.add(place, part);
        let [a, b] = [place, next].map(|place| {
            let value = m.b.load(source, place, Some(inside));
            m.b.cast(value, dtype)
        });
        let root = m.b.mul(turn, two);
        let root = m.b.load_vector(table, root, 2, None);
        let (cos, sin) = (root[0], root[1]);
        let minus = m.b.unary(UnaryOp::Neg, b);
        let re = m.b.fma(a, cos, re);
        let re = m.b.fma(minus, sin, re);
        let im = m.b.fma(a, sin, im);
        let im = m.b.fma(b, cos, im);
        // `j · k mod n`, step by step. Threads without an element have a `k` beyond `n`.
        let ahead = m.b.add(turn, k);
        let (_, turn) = m.div_rem(ahead, n);
        let sums = m.b.close_for(head, Vals::from_slice(&[turn, re, im]));
        let parts = [sums[1], sums[2]].map(|sum| m.b.cast(sum, out.dtype));
        let target = m.buffer(out.buffer, out.dtype, Mode::Write);
        m.b.store(target, to, &parts, Some(inside));
        self.launch(m, [elements.div_ceil(THREADS as usize), 1, 1])
    }
}
