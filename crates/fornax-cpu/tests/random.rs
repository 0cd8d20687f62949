//! Random graphs against the reference interpreter, on several thread counts, twice each: with handles kept and given
//! away.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{
    Backend, BinaryOp, CompareOp, DType, Graph, NodeId, Op, ReduceOp, ScanOp, Shape, UnaryOp, WindowDim, WindowSpec,
    interpret,
};
use support::{Build, Random, assert_same, execute, inputs};

/// Ops whose results stay near their operands, so that rounding does not pile up.
const UNARY: [UnaryOp; 9] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sin,
    UnaryOp::Floor,
    UnaryOp::Round,
    UnaryOp::Cos,
];

fn shape(random: &mut Random, big: bool) -> Shape {
    let rank = random.below(4);
    let sizes = [1, 1, 2, 3, 4, 6, 7, 0];
    let large = [1, 16, 40, 300, 1000];
    (0..rank).map(|dim| if big && dim < 2 { large[random.below(5)] } else { sizes[random.below(8)] }).collect()
}

fn graph(seed: u64) -> Graph {
    let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut b = Build::default();
    let dtypes = [DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::U8];
    let dtype = dtypes[random.below(8)];
    let float = dtype.is_float();
    let big = random.below(5) == 0;
    let mut values: Vec<NodeId> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let shape = shape(random, big);
        values.push(b.graph.input(dtype, shape));
    }
    for _ in 0..3 + random.below(20) {
        // Recent values more often: deep graphs.
        let recent = values.len() - 1 - random.below(values.len().min(4));
        let x = values[if random.below(3) == 0 { random.below(values.len()) } else { recent }];
        let from = b.shape(x);
        let rank = from.rank();
        let y = match random.below(16) {
            0 | 1 if float => b.un(UNARY[random.below(9)], x),
            0 | 1 => b.un(UNARY[random.below(3)], x),
            2..=4 => {
                let other = values[random.below(values.len())];
                if fornax_ir::broadcast_shapes("", &from, &b.shape(other)).is_err() {
                    continue;
                }
                let shape = fornax_ir::broadcast_shapes("", &from, &b.shape(other)).unwrap();
                if shape.numel() > 300_000 {
                    continue;
                }
                let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max, BinaryOp::Min];
                let sum = b.bin(ops[random.below(4)], x, other);
                if float { b.scale(sum, 0.5) } else { sum }
            }
            5 => {
                let other = values[random.below(values.len())];
                if b.shape(other) != from {
                    continue;
                }
                let condition = b.cmp(CompareOp::Lt, x, other);
                b.op(Op::Select, &[condition, other, x])
            }
            6 | 7 if rank > 0 => {
                let mut dims: Vec<usize> = (0..rank).filter(|_| random.below(2) == 0).collect();
                if dims.is_empty() {
                    dims.push(random.below(rank));
                }
                let ops = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::ArgMax];
                let op = ops[random.below(4)];
                let count: usize = dims.iter().map(|&dim| from[dim]).product();
                if op != ReduceOp::Sum && count == 0 {
                    continue;
                }
                let y = b.reduce(op, x, &dims);
                match op {
                    // Neither ties nor large numbers may decide what follows.
                    ReduceOp::Sum if float => b.scale(y, 1.0 / count.max(1) as f64),
                    ReduceOp::ArgMax if float => {
                        b.graph.outputs.push(y);
                        continue;
                    }
                    ReduceOp::ArgMax => b.cast(y, dtype),
                    _ => y,
                }
            }
            8 if rank > 0 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                for i in 0..rank {
                    perm.swap(i, random.below(rank));
                }
                b.permute(x, &perm)
            }
            9 => {
                let numel = from.numel();
                let options: Vec<Shape> = match numel {
                    0 => vec![Shape::from([0, 3]), Shape::from([0])],
                    _ => {
                        let mut options = vec![Shape::from([numel]), Shape::from([numel, 1]), Shape::from([1, numel])];
                        for k in [2, 3, 4, 6, 7] {
                            if numel % k == 0 {
                                options.push(Shape::from([k, numel / k]));
                                options.push(Shape::from([numel / k, 1, k]));
                            }
                        }
                        options
                    }
                };
                let shape = options[random.below(options.len())].clone();
                b.reshape(x, shape)
            }
            10 => {
                let mut target: Vec<usize> =
                    from.iter().map(|&size| if size == 1 { [1, 2, 5][random.below(3)] } else { size }).collect();
                if random.below(2) == 0 && rank < 4 {
                    target.insert(0, 1 + random.below(3));
                }
                let target = Shape::from(target);
                if target.numel() > 300_000 {
                    continue;
                }
                b.expand(x, target)
            }
            11 if rank > 0 => {
                let (mut starts, mut steps, mut sizes) = (vec![], vec![], vec![]);
                for &size in from.iter() {
                    let step = [1, 1, 2, -1, -3][random.below(5)];
                    let count = if size == 0 { 0 } else { 1 + random.below(size.div_ceil(i64::abs(step) as usize)) };
                    let span = count.saturating_sub(1) * i64::abs(step) as usize;
                    let room = size.saturating_sub(span + 1);
                    let low = if count == 0 { 0 } else { random.below(room + 1) };
                    starts.push(if step < 0 { low + span } else { low });
                    steps.push(step);
                    sizes.push(count);
                }
                b.slice(x, &starts, &steps, sizes)
            }
            12 if rank > 0 => {
                let dim = random.below(rank);
                let i = b.shaped(Op::Iota { dim }, &[], from.clone());
                let three = b.graph.constant(3, DType::I64, ());
                let i = b.bin(BinaryOp::Rem, i, three);
                let i = b.cast(i, dtype);
                b.bin(BinaryOp::Max, x, i)
            }
            13 if rank > 0 && from[rank - 1] >= 3 => {
                let dims = [WindowDim { size: 2, step: 1 + random.below(2), dilation: 1 + random.below(2) }];
                b.op(Op::Window(WindowSpec { dims: dims.into_iter().collect() }), &[x])
            }
            14 if rank > 0 => match random.below(4) {
                0 => b.op(Op::Scan { op: ScanOp::Max, dim: random.below(rank) }, &[x]),
                1 => b.op(Op::Concat { dim: random.below(rank) }, &[x, x]),
                2 => {
                    let low: Vec<usize> = (0..rank).map(|_| random.below(3)).collect();
                    let target: Vec<usize> = (0..rank).map(|dim| from[dim] + low[dim] + random.below(2)).collect();
                    let value = fornax_ir::Scalar::Int(1).cast(dtype);
                    b.shaped(Op::Pad { low: low[..].into(), value }, &[x], target)
                }
                _ if rank >= 2 && from.numel() < 3000 && float => {
                    let mut perm: Vec<usize> = (0..rank).collect();
                    perm.swap(rank - 1, rank - 2);
                    let t = b.permute(x, &perm);
                    let y = b.matmul(x, t);
                    let inner = from[rank - 1].max(1);
                    let y = if random.below(2) == 0 { b.permute(y, &perm) } else { y };
                    b.scale(y, 0.25 / inner as f64)
                }
                _ => continue,
            },
            15 => {
                let bits = b.shaped(Op::Random { seed: random.next(), offset: random.next() }, &[], from.clone());
                let limit = b.graph.constant(1u64 << 31, DType::U32, ());
                let keep = b.cmp(CompareOp::Lt, bits, limit);
                let keep = b.cast(keep, dtype);
                b.mul(x, keep)
            }
            _ => continue,
        };
        if b.shape(y).numel() <= 300_000 {
            values.push(y);
        }
    }
    for _ in 0..1 + random.below(3) {
        let output = values[values.len() - 1 - random.below(values.len().min(5))];
        b.graph.outputs.push(output);
    }
    b.graph
}

#[test]
fn random_graphs_equal_the_interpreter() {
    let first: u64 = std::env::var("FORNAX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("FORNAX_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(600);
    let backends = [1, 2, 5].map(CpuBackend::with_threads);
    for seed in first..first + count {
        let graph = graph(seed);
        let bytes = inputs(&graph, seed);
        let want = interpret(&graph, &bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut first: Option<Vec<Vec<u8>>> = None;
            for cpu in &backends {
                let (got, faults) = execute(cpu, &graph, &bytes);
                assert_eq!(faults.len(), want.faults.len());
                assert_same(&graph, &got, &want.outputs, 200.0);
                assert!(first.as_ref().is_none_or(|first| *first == got), "other bits on another number of threads");
                first = Some(got);
                // The same with inputs that stay in use.
                let buffers: Vec<_> = bytes.iter().map(|bytes| cpu.upload(DType::F32, bytes).unwrap()).collect();
                let outcome = cpu.execute(&graph, buffers.clone()).unwrap();
                let again: Vec<Vec<u8>> = outcome.outputs.iter().map(|buffer| cpu.read(buffer)).collect();
                assert!(first.as_ref() == Some(&again), "other bits with inputs in use");
                for (buffer, bytes) in buffers.iter().zip(&bytes) {
                    assert!(cpu.read(buffer) == *bytes, "an input was overwritten");
                }
            }
        }));
        if let Err(panic) = result {
            for (id, node) in graph.iter() {
                println!("%{}: {} {} = {:?} {:?}", id.0, node.dtype, node.shape, node.op, node.inputs);
            }
            println!("outputs {:?}\n{}", graph.outputs, fornax_compile::compile(&graph));
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
