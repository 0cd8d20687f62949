//! The usual network parts: how many kernels they take, and that results are the interpreter's.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{Backend, BinaryOp, CompareOp, DType, Graph, NodeId, Op, ReduceOp, UnaryOp};
use support::{Build, check, execute, inputs, kernels};

fn softmax(shape: &[usize], dim: usize) -> Graph {
    let mut b = Build::default();
    let x = b.input(shape);
    let y = b.softmax(x, dim);
    b.output(&[y])
}

fn layer_norm(rows: usize, width: usize) -> Graph {
    let mut b = Build::default();
    let (x, weight, bias) = (b.input([rows, width]), b.input([width]), b.input([width]));
    let (y, mean, rstd) = b.layer_norm(x, weight, bias);
    b.output(&[y, mean, rstd])
}

#[test]
fn elementwise_chain_is_one_kernel() {
    let mut b = Build::default();
    let (x, y) = (b.input([33, 70]), b.input([70]));
    let z = b.gelu(x);
    let z = b.add(z, y);
    let graph = b.output(&[z]);
    assert_eq!(kernels(&graph), 1);
    check(&graph, 10.0);
}

#[test]
fn softmax_is_one_kernel_along_any_dim() {
    for (shape, dim) in [
        (&[5, 7][..], 1),
        (&[5, 7], 0),
        (&[3, 1000], 1),
        (&[300, 65], 0),
        (&[4, 3, 50], 1),
        (&[1, 1], 1),
        (&[2, 100_000], 1),
        (&[700, 9], 1),
    ] {
        let graph = softmax(shape, dim);
        assert_eq!(kernels(&graph), 1);
        check(&graph, 10.0);
    }
}

#[test]
fn layer_norm_is_one_kernel() {
    for (rows, width) in [(4, 8), (33, 768), (2, 3000), (200, 5)] {
        let graph = layer_norm(rows, width);
        assert_eq!(kernels(&graph), 1, "{}", fornax_compile::compile(&graph));
        check(&graph, 20.0);
    }
}

#[test]
fn loss_with_full_reduction_is_one_kernel() {
    for shape in [&[7][..], &[64, 33], &[300, 1000]] {
        let mut b = Build::default();
        let (x, y) = (b.input(shape), b.input(shape));
        let diff = b.sub(x, y);
        let square = b.mul(diff, diff);
        let dims: Vec<usize> = (0..shape.len()).collect();
        let loss = b.mean(square, &dims);
        let grad = b.scale(diff, 2.0);
        let loss = b.reshape(loss, ());
        let graph = b.output(&[loss, grad]);
        assert_eq!(kernels(&graph), 1);
        check(&graph, 10.0);
    }
}

#[test]
fn adamw_is_one_kernel_a_parameter() {
    let mut b = Build::default();
    let mut outputs = Vec::new();
    for shape in [&[64, 32][..], &[32], &[10, 5, 3]] {
        let [p, g, m, v] = [(); 4].map(|()| b.input(shape));
        let p1 = b.scale(p, 0.99);
        let m1 = b.scale(m, 0.9);
        let g1 = b.scale(g, 0.1);
        let m = b.add(m1, g1);
        let v1 = b.scale(v, 0.999);
        let g2 = b.mul(g, g);
        let g2 = b.scale(g2, 0.001);
        let v = b.add(v1, g2);
        let v = b.un(UnaryOp::Abs, v);
        let root = b.un(UnaryOp::Sqrt, v);
        let root = b.offset(root, 1e-8);
        let step = b.div(m, root);
        let step = b.scale(step, 1e-3);
        let p = b.sub(p1, step);
        outputs.extend([p, m, v]);
    }
    let graph = b.output(&outputs);
    assert_eq!(kernels(&graph), 3);
    check(&graph, 10.0);
}

#[test]
fn keepdim_free_means_fuse() {
    // The mean is squeezed and unsqueezed again, as layers write it.
    let mut b = Build::default();
    let x = b.input([6, 40]);
    let sum = b.sum(x, &[1]);
    let mean = b.reshape(sum, [6]);
    let mean = b.scale(mean, 1.0 / 40.0);
    let mean = b.reshape(mean, [6, 1]);
    let y = b.sub(x, mean);
    let graph = b.output(&[y]);
    assert_eq!(kernels(&graph), 1, "{}", fornax_compile::compile(&graph));
    check(&graph, 10.0);
}

#[test]
fn flattened_log_softmax_fuses_with_what_is_before() {
    let mut b = Build::default();
    let (x, bias) = (b.input([4, 6, 10]), b.input([10]));
    let x = b.add(x, bias);
    let x = b.reshape(x, [24, 10]);
    let y = b.log_softmax(x, 1);
    let graph = b.output(&[y]);
    assert_eq!(kernels(&graph), 1, "{}", fornax_compile::compile(&graph));
    check(&graph, 10.0);
}

#[test]
fn batch_norm_statistics_and_output_are_one_kernel() {
    for shape in [[8, 5, 6, 7], [2, 3, 40, 40], [300, 64, 1, 1]] {
        let mut b = Build::default();
        let x = b.input(shape);
        let mean = b.mean(x, &[0, 2, 3]);
        let centered = b.sub(x, mean);
        let square = b.mul(centered, centered);
        let var = b.mean(square, &[0, 2, 3]);
        let stable = b.offset(var, 1e-5);
        let rstd = b.un(UnaryOp::Rsqrt, stable);
        let y = b.mul(centered, rstd);
        let graph = b.output(&[y, mean, var]);
        assert_eq!(kernels(&graph), 1, "{}", fornax_compile::compile(&graph));
        check(&graph, 20.0);
    }
}

#[test]
fn views_are_read_in_place() {
    let mut b = Build::default();
    let (x, y) = (b.input([6, 9]), b.input([9, 6]));
    let t = b.permute(x, &[1, 0]);
    let z = b.add(t, y);
    let r = b.slice(z, &[8, 0], &[-2, 1], [5, 4]);
    let w = b.un(UnaryOp::Neg, r);
    let graph = b.output(&[w]);
    check(&graph, 1.0);
    let mut b = Build::default();
    let x = b.input([6, 9]);
    let e = b.un(UnaryOp::Exp, x);
    let t = b.permute(e, &[1, 0]);
    let graph = b.output(&[t]);
    assert_eq!(kernels(&graph), 1);
    check(&graph, 10.0);
}

#[test]
fn reshapes_that_strides_cannot_tell() {
    let mut b = Build::default();
    let x = b.input([6, 10]);
    let t = b.permute(x, &[1, 0]);
    let flat = b.reshape(t, [4, 15]);
    let y = b.un(UnaryOp::Neg, flat);
    let i = b.shaped(Op::Iota { dim: 1 }, &[], [10, 6]);
    let i = b.permute(i, &[1, 0]);
    let i = b.reshape(i, [4, 15]);
    let i = b.cast(i, DType::F32);
    let y = b.add(y, i);
    let graph = b.output(&[y, flat]);
    check(&graph, 1.0);
}

#[test]
fn every_reduction_on_every_dtype() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL.iter().copied().filter(|op| op.dtypes().contains(dtype)) {
            for (shape, dims) in [
                (&[7, 5][..], &[1][..]),
                (&[7, 50], &[0]),
                (&[3, 4, 5], &[0, 2]),
                (&[2, 700], &[1]),
                (&[90, 1000], &[0, 1]),
                (&[1000, 3], &[0]),
                (&[3, 1], &[1]),
            ] {
                let mut b = Build::default();
                let x = b.graph.input(dtype, shape);
                let y = b.reduce(op, x, dims);
                let graph = b.output(&[y]);
                // A product of many random numbers says nothing.
                if op != ReduceOp::Prod || shape.iter().product::<usize>() < 100 {
                    check(&graph, if dtype == DType::F16 || op == ReduceOp::Prod { 20.0 } else { 4.0 });
                }
            }
        }
    }
}

#[test]
fn every_elementwise_op_on_every_dtype() {
    for dtype in DType::ALL {
        let mut b = Build::default();
        let (x, y) = (b.graph.input(dtype, [3, 37]), b.graph.input(dtype, [3, 37]));
        let (u, c) = (b.graph.input(dtype, [3, 1]), b.graph.constant(2.0, dtype, ()));
        let mut outputs: Vec<NodeId> = Vec::new();
        for &op in UnaryOp::ALL.iter().filter(|op| op.dtypes().contains(dtype)) {
            outputs.push(b.un(op, x));
        }
        for &op in BinaryOp::ALL.iter().filter(|op| op.dtypes().contains(dtype)) {
            for other in [y, u, c] {
                outputs.push(b.bin(op, x, other));
                if dtype.is_float() || !matches!(op, BinaryOp::Div | BinaryOp::Rem) {
                    outputs.push(b.bin(op, other, x));
                }
            }
        }
        for &op in CompareOp::ALL {
            outputs.push(b.cmp(op, x, y));
            outputs.push(b.cmp(op, u, x));
            outputs.push(b.cmp(op, x, c));
        }
        let condition = b.cmp(CompareOp::Lt, x, y);
        outputs.push(b.op(Op::Select, &[condition, x, y]));
        let shape = b.shape(x);
        let c = b.expand(c, shape);
        outputs.push(b.op(Op::Select, &[condition, c, y]));
        for to in DType::ALL {
            outputs.push(b.cast(x, to));
            if to.size() == dtype.size() && to != DType::Bool {
                outputs.push(b.op(Op::Bitcast(to), &[x]));
            }
        }
        let graph = b.output(&outputs);
        check(&graph, 8.0);
    }
}

#[test]
fn integer_division_by_zero_is_a_fault_of_its_node() {
    let mut b = Build::default();
    let (x, y) = (b.graph.input(DType::I32, [100]), b.graph.input(DType::I32, [100]));
    let q = b.bin(BinaryOp::Div, x, y);
    let s = b.add(x, y);
    let graph = b.output(&[q, s]);
    let cpu = CpuBackend::new();
    let (outputs, faults) = execute(&cpu, &graph, &inputs(&graph, 1));
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].node, faults[0].message.as_str()), (q, "integer division by zero"));
    assert_eq!(outputs.len(), 2);
}

#[test]
fn random_bits_and_dropout() {
    for shape in [&[5][..], &[3, 333], &[40, 1000]] {
        let mut b = Build::default();
        let x = b.input(shape);
        let bits = b.shaped(Op::Random { seed: 0x1234_5678_9abc, offset: u64::MAX - 2 }, &[], shape);
        let raw = bits;
        let half = b.graph.constant(1u64 << 31, DType::U32, ());
        let keep = b.cmp(CompareOp::Lt, bits, half);
        let keep = b.cast(keep, DType::F32);
        let y = b.mul(x, keep);
        let dx = b.mul(y, keep);
        let graph = b.output(&[y, dx, raw]);
        check(&graph, 1.0);
    }
    let mut b = Build::default();
    let bits = b.shaped(Op::Random { seed: 5, offset: 9 }, &[], [12, 10]);
    let t = b.permute(bits, &[1, 0]);
    let s = b.slice(t, &[1, 0], &[3, 2], [3, 6]);
    let x = b.graph.input(DType::U32, [3, 6]);
    let y = b.bin(BinaryOp::Xor, s, x);
    let graph = b.output(&[y]);
    check(&graph, 1.0);
}

#[test]
fn empty_shapes() {
    let mut b = Build::default();
    let x = b.input([3, 0]);
    let y = b.un(UnaryOp::Exp, x);
    let s = b.sum(y, &[1]);
    let t = b.sum(y, &[0]);
    let r = b.reshape(s, [3]);
    let e = b.offset(r, 1.0);
    let graph = b.output(&[y, s, t, e]);
    check(&graph, 1.0);
}

#[test]
fn outputs_may_be_inputs_views_constants_and_repeated() {
    let mut b = Build::default();
    let x = b.input([2, 3]);
    let r = b.reshape(x, [6]);
    let t = b.permute(x, &[1, 0]);
    let c = b.graph.constant(1.5, DType::F32, [4]);
    let i = b.shaped(Op::Iota { dim: 1 }, &[], [2, 3]);
    let e = b.expand(c, [2, 4].into());
    let graph = b.output(&[x, r, t, c, i, e, t, x]);
    check(&graph, 1.0);
}

#[test]
fn one_plan_serves_all_sizes() {
    let cpu = CpuBackend::new();
    for rows in [3, 8, 50, 1000] {
        for width in [2, 64, 300] {
            let graph = layer_norm(rows, width);
            let bytes = inputs(&graph, 7);
            let want = fornax_ir::interpret(&graph, &bytes).unwrap();
            let (got, _) = execute(&cpu, &graph, &bytes);
            support::assert_same(&graph, &got, &want.outputs, 20.0);
        }
    }
    let counters: std::collections::HashMap<_, _> = cpu.counters().into_iter().collect();
    assert_eq!(counters["plans_compiled"], 1);
    assert_eq!(counters["plans_bound"], 12);
}

#[test]
fn a_given_away_input_is_reused() {
    let mut b = Build::default();
    let (x, y) = (b.input([1000]), b.input([1000]));
    let z = b.add(x, y);
    let graph = b.output(&[z]);
    let cpu = CpuBackend::new();
    let bytes = inputs(&graph, 3);
    let want = fornax_ir::interpret(&graph, &bytes).unwrap();
    let (got, _) = execute(&cpu, &graph, &bytes);
    assert_eq!(got, want.outputs);
    let counters: std::collections::HashMap<_, _> = cpu.counters().into_iter().collect();
    assert_eq!(counters["in_place"], 1);
    // Kept handles are left alone.
    let buffers: Vec<_> = bytes.iter().map(|bytes| cpu.upload(DType::F32, bytes).unwrap()).collect();
    let outcome = cpu.execute(&graph, buffers.clone()).unwrap();
    assert_eq!(cpu.read(&buffers[0]), bytes[0]);
    assert_eq!(cpu.read(&buffers[1]), bytes[1]);
    assert_eq!(cpu.read(&outcome.outputs[0]), want.outputs[0]);
}

/// Graphs that once came out wrong.
#[test]
fn regressions() {
    for text in [
        // The transposed product stands behind a permute that does nothing.
        "%0 = input 0 : i32[2, 3]
         %1 = input 1 : i32[3, 4]
         %2 = matmul %0, %1 : i32[2, 4]
         %3 = permute %2, perm=[0, 1] : i32[2, 4]
         %4 = permute %3, perm=[1, 0] : i32[4, 2]
         return %4",
        // An iota that is stored for a native op, and seen through a view that needs a copy.
        "%0 = iota dim=0 : i64[2, 2, 33]
         %1 = slice %0, starts=[1, 0, 0], steps=[-1, 2, 2] : i64[2, 1, 17]
         %2 = permute %1, perm=[2, 0, 1] : i64[17, 2, 1]
         %3 = reshape %2 : i64[1, 2, 17]
         %4 = cumsum %3, dim=2 : i64[1, 2, 17]
         return %4",
    ] {
        check(&Graph::parse(text).unwrap(), 1.0);
    }
}

#[test]
fn transposes_are_read_by_cache_lines() {
    for (dtype, shape) in
        [(DType::F32, [300, 170]), (DType::BF16, [64, 200]), (DType::F64, [129, 33]), (DType::U8, [100, 130])]
    {
        let mut b = Build::default();
        let (x, y) = (b.graph.input(dtype, shape), b.graph.input(dtype, [shape[1], shape[0]]));
        let t = b.permute(x, &[1, 0]);
        let z = b.bin(BinaryOp::Max, t, y);
        let graph = b.output(&[z, t]);
        check(&graph, 1.0);
    }
}

#[test]
fn layer_norm_forward_and_backward_are_three_kernels() {
    let mut b = Build::default();
    let (x, weight, bias, dy) = (b.input([64, 96]), b.input([96]), b.input([96]), b.input([64, 96]));
    let (y, mean, rstd) = b.layer_norm(x, weight, bias);
    let centered = b.sub(x, mean);
    let normal = b.mul(centered, rstd);
    let weighted = b.mul(dy, normal);
    let dweight = b.sum(weighted, &[0]);
    let dbias = b.sum(dy, &[0]);
    let dnormal = b.mul(dy, weight);
    let first = b.mean(dnormal, &[1]);
    let product = b.mul(dnormal, normal);
    let second = b.mean(product, &[1]);
    let inner = b.mul(normal, second);
    let outer = b.sub(dnormal, first);
    let dx = b.sub(outer, inner);
    let dx = b.mul(dx, rstd);
    let graph = b.output(&[y, dx, dweight, dbias]);
    let plan = fornax_compile::compile(&graph);
    assert!(plan.stats.kernels <= 3, "{plan}");
    check(&graph, 40.0);
}

/// Every form of two ops that the engine runs as one instruction: which ops, operands of one element, operand order,
/// squares, functions of a product or difference; at lengths on both sides of vectors and tiles.
#[test]
fn two_ops_as_one_instruction() {
    let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Div];
    for len in [1, 15, 257, 600] {
        let mut b = Build::default();
        let [y, z] = [(); 2].map(|()| b.input([len]));
        let (two, three) = (b.scalar_like(2.0, y), b.scalar_like(-0.75, y));
        let mut outputs = Vec::new();
        for first in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul] {
            for (other, other_first) in [(y, false), (two, false), (two, true)] {
                // On a value of its own each time, lest equal nodes become one with many readers.
                let first = |b: &mut Build| {
                    let x = b.input([len]);
                    if other_first { b.bin(first, other, x) } else { b.bin(first, x, other) }
                };
                for second in ops {
                    for (third, flip) in [(z, false), (z, true), (three, false), (three, true)] {
                        let t = first(&mut b);
                        outputs.push(if flip { b.bin(second, third, t) } else { b.bin(second, t, third) });
                    }
                }
                let t = first(&mut b);
                outputs.push(b.mul(t, t));
                for function in [UnaryOp::Exp, UnaryOp::Erf, UnaryOp::Tanh, UnaryOp::Abs] {
                    let t = first(&mut b);
                    outputs.push(b.un(function, t));
                }
                // A result that is also stored, and one that is read twice.
                let (t, twice) = (first(&mut b), first(&mut b));
                let u = b.mul(t, z);
                let v = b.mul(twice, z);
                outputs.extend([t, u, b.sub(v, twice)]);
            }
        }
        check(&b.output(&outputs), 20.0);
    }
}
