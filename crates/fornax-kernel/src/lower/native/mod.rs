//! Ops that are not fused: kernels of their own.
//!
//! Still for the host: dense linear algebra.

mod contract;
mod fft;
mod index;
mod movement;
mod scan;
mod sort;

use super::Lowering;
use super::maker::Maker;
use crate::ir::{Memory, Mode, Val};
use crate::program::{BufferId, Call, Launch, Operand};
use fornax_compile::Native;
use fornax_ir::{DType, Op, Shape};

/// Threads of a block, where each works on an element.
const THREADS: u32 = 256;

impl Lowering<'_> {
    /// The launches for an op, and what a library or the host does after them.
    pub(super) fn native(&mut self, native: &Native) -> (Vec<Launch>, Option<Call>) {
        let mut launches = Vec::new();
        let mut operands = Vec::new();
        for access in &native.operands {
            let (operand, copy) = self.operand(access, native.transposed);
            launches.extend(copy);
            operands.push(operand);
        }
        let graph = self.graph;
        let (node, result) = (&graph[native.node], self.buffer(native.node));
        if node.shape.contains(&0) {
            return (launches, None);
        }
        let out = Out { buffer: result, dtype: node.dtype, shape: &node.shape };
        let (own, call) = match (&graph[native.op].op, &operands[..]) {
            (Op::Pad { low, .. }, [x]) => (self.pad(native.op, x, low, out), None),
            (Op::Concat { dim }, _) => (self.concat(&operands, *dim, out), None),
            (Op::Fold(spec), [windows]) => (self.fold(windows, spec, out), None),
            (Op::Gather { dim }, [x, index]) => (self.gather(native.op, x, index, *dim, out), None),
            (Op::Scatter { dim, mode }, [x, index, source]) => {
                (self.scatter(native.op, [x, index, source], *dim, *mode, out), None)
            }
            (Op::Scan { op, dim }, [x]) => (self.scan(x, *op, *dim, out), None),
            (Op::Fft { dim, kind }, [x]) => (self.fft(x, *dim, *kind, out), None),
            (Op::ArgSort { dim, descending }, [x]) => (self.sort(x, *dim, *descending, out), None),
            (Op::TopK { dim, largest }, [x]) => (self.sort(x, *dim, *largest, out), None),
            (Op::Matmul { .. }, [lhs, rhs]) => {
                let (call, own) = self.matmul(native.op, lhs, rhs, out);
                (Vec::new(), Some(Call::Matmul { call, own }))
            }
            (Op::Conv(spec), [x, weight]) => {
                let own = self.conv(spec, x, weight, out);
                let operands = [x.clone(), weight.clone()];
                (Vec::new(), Some(Call::Conv { node: native.op, operands, result, own }))
            }
            _ => {
                let call = Call::Host { op: native.op, node: native.node, operands: operands.clone(), result };
                (Vec::new(), Some(call))
            }
        };
        launches.extend(own);
        (launches, call)
    }
}

/// A row-major result.
#[derive(Clone, Copy)]
struct Out<'a> {
    buffer: BufferId,
    dtype: DType,
    shape: &'a Shape,
}

/// An operand as parameters.
struct View {
    memory: Memory,
    offset: Val,
    strides: Vec<Val>,
}

impl Maker {
    /// The parameters of an operand.
    fn view(&mut self, operand: &Operand) -> View {
        View {
            memory: self.buffer(operand.buffer, operand.dtype, Mode::Read),
            offset: self.offset(operand.layout.offset as isize),
            strides: operand.layout.strides.iter().map(|&stride| self.stride(stride)).collect(),
        }
    }

    /// A size for each dim.
    fn sizes(&mut self, sizes: &[usize]) -> Vec<Val> {
        sizes.iter().map(|&size| self.size(size)).collect()
    }

    /// The place of an element of an operand.
    fn at(&mut self, view: &View, coordinates: &[Val]) -> Val {
        self.place(view.offset, coordinates, &view.strides)
    }
}
