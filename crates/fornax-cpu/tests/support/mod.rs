//! Graphs of the usual network parts, and checking the CPU against the reference interpreter.
#![allow(dead_code, reason = "each test file uses some of it")]

use fornax_cpu::CpuBackend;
use fornax_ir::{Backend, BinaryOp, CompareOp, DType, Element, Graph, NodeId, Op, ReduceOp, Shape, UnaryOp, interpret};
use half::{bf16, f16};

/// A graph under construction, with less to write.
#[derive(Default)]
pub struct Build {
    pub graph: Graph,
}

impl Build {
    pub fn input(&mut self, shape: impl Into<Shape>) -> NodeId {
        self.graph.input(DType::F32, shape)
    }
    pub fn shape(&self, x: NodeId) -> Shape {
        self.graph[x].shape.clone()
    }
    #[track_caller]
    pub fn op(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.push(op, inputs).unwrap()
    }
    #[track_caller]
    pub fn shaped(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>) -> NodeId {
        self.graph.push_shaped(op, inputs, shape).unwrap()
    }
    #[track_caller]
    pub fn un(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.op(Op::Unary(op), &[x])
    }
    /// Both operands broadcast to one shape.
    #[track_caller]
    pub fn bin(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> NodeId {
        let shape = fornax_ir::broadcast_shapes("bin", &self.shape(a), &self.shape(b)).unwrap();
        let (a, b) = (self.expand(a, shape.clone()), self.expand(b, shape));
        self.op(Op::Binary(op), &[a, b])
    }
    #[track_caller]
    pub fn cmp(&mut self, op: CompareOp, a: NodeId, b: NodeId) -> NodeId {
        let shape = fornax_ir::broadcast_shapes("cmp", &self.shape(a), &self.shape(b)).unwrap();
        let (a, b) = (self.expand(a, shape.clone()), self.expand(b, shape));
        self.op(Op::Compare(op), &[a, b])
    }
    pub fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Add, a, b)
    }
    pub fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Sub, a, b)
    }
    pub fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Mul, a, b)
    }
    pub fn div(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Div, a, b)
    }
    pub fn scalar_like(&mut self, value: f64, x: NodeId) -> NodeId {
        let dtype = self.graph[x].dtype;
        self.graph.constant(value, dtype, ())
    }
    pub fn scale(&mut self, x: NodeId, by: f64) -> NodeId {
        let by = self.scalar_like(by, x);
        self.mul(x, by)
    }
    pub fn offset(&mut self, x: NodeId, by: f64) -> NodeId {
        let by = self.scalar_like(by, x);
        self.add(x, by)
    }
    pub fn expand(&mut self, x: NodeId, shape: Shape) -> NodeId {
        if self.graph[x].shape == shape { x } else { self.shaped(Op::Expand, &[x], shape) }
    }
    pub fn reshape(&mut self, x: NodeId, shape: impl Into<Shape>) -> NodeId {
        self.shaped(Op::Reshape, &[x], shape)
    }
    pub fn permute(&mut self, x: NodeId, perm: &[usize]) -> NodeId {
        self.op(Op::Permute(perm.into()), &[x])
    }
    pub fn slice(&mut self, x: NodeId, starts: &[usize], steps: &[i64], shape: impl Into<Shape>) -> NodeId {
        self.shaped(Op::Slice { starts: starts.into(), steps: steps.into() }, &[x], shape)
    }
    pub fn reduce(&mut self, op: ReduceOp, x: NodeId, dims: &[usize]) -> NodeId {
        self.op(Op::Reduce { op, dims: dims.into() }, &[x])
    }
    pub fn sum(&mut self, x: NodeId, dims: &[usize]) -> NodeId {
        self.reduce(ReduceOp::Sum, x, dims)
    }
    pub fn mean(&mut self, x: NodeId, dims: &[usize]) -> NodeId {
        let count: usize = dims.iter().map(|&dim| self.graph[x].shape[dim]).product();
        let sum = self.sum(x, dims);
        self.scale(sum, 1.0 / count as f64)
    }
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> NodeId {
        self.op(Op::Cast(dtype), &[x])
    }
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let out = self.graph[a].dtype;
        self.op(Op::Matmul { out }, &[a, b])
    }
    pub fn softmax(&mut self, x: NodeId, dim: usize) -> NodeId {
        let max = self.reduce(ReduceOp::Max, x, &[dim]);
        let shifted = self.sub(x, max);
        let exp = self.un(UnaryOp::Exp, shifted);
        let sum = self.sum(exp, &[dim]);
        self.div(exp, sum)
    }
    pub fn log_softmax(&mut self, x: NodeId, dim: usize) -> NodeId {
        let max = self.reduce(ReduceOp::Max, x, &[dim]);
        let shifted = self.sub(x, max);
        let exp = self.un(UnaryOp::Exp, shifted);
        let sum = self.sum(exp, &[dim]);
        let log = self.un(UnaryOp::Log, sum);
        self.sub(shifted, log)
    }
    /// Over the last dim; `weight` and `bias` are `[d]`. Gives also mean and reciprocal deviation.
    pub fn layer_norm(&mut self, x: NodeId, weight: NodeId, bias: NodeId) -> (NodeId, NodeId, NodeId) {
        let dim = self.graph[x].shape.rank() - 1;
        let mean = self.mean(x, &[dim]);
        let centered = self.sub(x, mean);
        let square = self.mul(centered, centered);
        let var = self.mean(square, &[dim]);
        let var = self.offset(var, 1e-5);
        let rstd = self.un(UnaryOp::Rsqrt, var);
        let y = self.mul(centered, rstd);
        let y = self.mul(y, weight);
        (self.add(y, bias), mean, rstd)
    }
    pub fn gelu(&mut self, x: NodeId) -> NodeId {
        let scaled = self.scale(x, core::f64::consts::FRAC_1_SQRT_2);
        let erf = self.un(UnaryOp::Erf, scaled);
        let one = self.offset(erf, 1.0);
        let half = self.scale(x, 0.5);
        self.mul(half, one)
    }
    pub fn output(mut self, outputs: &[NodeId]) -> Graph {
        self.graph.outputs.extend_from_slice(outputs);
        self.graph
    }
}

/// A small generator for test data.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
    /// In −2..2.
    pub fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 4.0 - 2.0
    }
    pub fn bytes(&mut self, dtype: DType, numel: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..numel {
            let (x, i) = (self.float(), self.below(7));
            match dtype {
                DType::Bool => bool::write_le(&[i % 2 == 0], &mut out),
                DType::U8 => u8::write_le(&[i as u8], &mut out),
                DType::U16 => u16::write_le(&[i as u16], &mut out),
                DType::U32 => u32::write_le(&[i as u32], &mut out),
                DType::U64 => u64::write_le(&[i as u64], &mut out),
                DType::I8 => i8::write_le(&[i as i8 - 3], &mut out),
                DType::I16 => i16::write_le(&[i as i16 - 3], &mut out),
                DType::I32 => i32::write_le(&[i as i32 - 3], &mut out),
                DType::I64 => i64::write_le(&[i as i64 - 3], &mut out),
                DType::F16 => f16::write_le(&[f16::from_f64(x)], &mut out),
                DType::BF16 => bf16::write_le(&[bf16::from_f64(x)], &mut out),
                DType::F32 => f32::write_le(&[x as f32], &mut out),
                DType::F64 => f64::write_le(&[x], &mut out),
            }
        }
        out
    }
}

/// Inputs for `graph`.
pub fn inputs(graph: &Graph, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    graph.inputs().iter().map(|&id| random.bytes(graph[id].dtype, graph[id].shape.numel())).collect()
}

pub fn execute(cpu: &CpuBackend, graph: &Graph, inputs: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<fornax_ir::Fault>) {
    let buffers = inputs.iter().map(|bytes| cpu.upload(DType::U8, bytes).unwrap()).collect();
    let outcome = cpu.execute(graph, buffers).unwrap();
    (outcome.outputs.iter().map(|buffer| cpu.read(buffer)).collect(), outcome.faults)
}

pub fn floats(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    Some(match dtype {
        DType::F16 => f16::read_le(bytes).iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => bf16::read_le(bytes).iter().map(|x| x.to_f64()).collect(),
        DType::F32 => f32::read_le(bytes).iter().map(|&x| f64::from(x)).collect(),
        DType::F64 => f64::read_le(bytes),
        _ => return None,
    })
}

/// Compares outputs; floats within the rounding of a few ops in their dtype.
#[track_caller]
pub fn assert_same(graph: &Graph, got: &[Vec<u8>], want: &[Vec<u8>], tolerance: f64) {
    for (idx, (&id, (got, want))) in graph.outputs.iter().zip(got.iter().zip(want)).enumerate() {
        let node = &graph[id];
        assert_eq!(got.len(), want.len(), "output {idx}: size");
        let Some(got_floats) = floats(node.dtype, got) else {
            if got != want {
                let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap();
                let element = at / node.dtype.size();
                panic!("output {idx} (%{}, {} {}) differs at {element}", id.0, node.dtype, node.shape);
            }
            continue;
        };
        let want_floats = floats(node.dtype, want).unwrap();
        let unit = match node.dtype {
            DType::F16 => 1e-3,
            DType::BF16 => 8e-3,
            DType::F32 => 1e-6,
            _ => 1e-14,
        };
        for (i, (&a, &b)) in got_floats.iter().zip(&want_floats).enumerate() {
            let same = a == b || (a.is_nan() && b.is_nan());
            let close = (a - b).abs() <= unit * tolerance * b.abs().max(1.0);
            assert!(same || close, "output {idx} (%{} {} {}) at {i}: {a} should be {b}", id.0, node.dtype, node.shape);
        }
    }
}

/// Runs on 1, 2 and 5 threads, compares with the interpreter, and among each other bit for bit.
#[track_caller]
pub fn check(graph: &Graph, tolerance: f64) {
    let inputs = inputs(graph, graph.nodes.len() as u64);
    let want = interpret(graph, &inputs).unwrap();
    let mut first: Option<Vec<Vec<u8>>> = None;
    for threads in [1, 2, 5] {
        let cpu = CpuBackend::with_threads(threads);
        let (got, faults) = execute(&cpu, graph, &inputs);
        let mut nodes: Vec<u32> = faults.iter().map(|fault| fault.node.0).collect();
        let mut wanted: Vec<u32> = want.faults.iter().map(|fault| fault.node.0).collect();
        nodes.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(nodes, wanted, "faults");
        assert_same(graph, &got, &want.outputs, tolerance);
        assert!(first.as_ref().is_none_or(|first| *first == got), "{threads} threads give other bits");
        first = Some(got);
    }
}

pub fn kernels(graph: &Graph) -> u64 {
    fornax_compile::compile(graph).stats.kernels
}
