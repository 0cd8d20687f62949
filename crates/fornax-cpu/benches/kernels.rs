//! Fused kernels of usual sizes: milliseconds and GB/s of what must move at least; and the overhead of small graphs.
//!
//! `cargo bench -p fornax-cpu --bench kernels [-- name…]`. `FORNAX_BENCH_THREADS` sets the number of threads.

#[path = "../tests/support/mod.rs"]
mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{Backend, Buffer, CompareOp, DType, Graph, Op, UnaryOp};
use std::time::Instant;
use support::{Build, inputs};

fn bench(cpu: &CpuBackend, name: &str, graph: &Graph) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(&wanted[..])) {
        return;
    }
    let bytes = inputs(graph, 1);
    let buffers: Vec<Buffer> = bytes.iter().map(|bytes| cpu.upload(DType::F32, bytes).unwrap()).collect();
    let outputs: usize = graph.outputs.iter().map(|&id| graph[id].shape.numel() * graph[id].dtype.size()).sum();
    let moved = bytes.iter().map(Vec::len).sum::<usize>() + outputs;
    let run = || {
        let start = Instant::now();
        cpu.execute(graph, buffers.clone()).unwrap();
        start.elapsed().as_secs_f64()
    };
    let first = run();
    let rounds = ((0.3 / first) as usize).clamp(5, 20_000);
    let mut times: Vec<f64> = (0..rounds).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[rounds / 2]);
    let nodes = graph.nodes.len();
    println!(
        "{name:32} {:9.4} ms (best {:9.4}) {:6.1} GB/s  {:7.1} ns/node  {} kernels",
        median * 1e3,
        best * 1e3,
        moved as f64 / median / 1e9,
        median * 1e9 / nodes as f64,
        fornax_compile::compile(graph).stats.kernels
    );
}

fn main() {
    let threads = std::env::var("FORNAX_BENCH_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let cpu = CpuBackend::with_threads(threads);
    println!("{cpu:?}");

    let mut b = Build::default();
    let (x, y) = (b.input([4096, 4096]), b.input([4096, 4096]));
    let z = b.add(x, y);
    bench(&cpu, "add [4096, 4096]", &b.output(&[z]));

    for (rows, width) in [(4096, 1024), (65536, 10), (16384, 64)] {
        let mut b = Build::default();
        let x = b.input([rows, width]);
        let y = b.softmax(x, 1);
        bench(&cpu, &format!("softmax [{rows}, {width}]"), &b.output(&[y]));
    }

    let mut b = Build::default();
    let x = b.input([4096, 4096]);
    let y = b.gelu(x);
    bench(&cpu, "gelu [4096, 4096]", &b.output(&[y]));

    let mut b = Build::default();
    let x = b.graph.input(DType::BF16, [4096, 4096]);
    let y = b.gelu(x);
    bench(&cpu, "gelu bf16 [4096, 4096]", &b.output(&[y]));

    let mut b = Build::default();
    let (x, weight, bias) = (b.input([8192, 768]), b.input([768]), b.input([768]));
    let (y, mean, rstd) = b.layer_norm(x, weight, bias);
    bench(&cpu, "layer norm [8192, 768]", &b.output(&[y, mean, rstd]));

    let mut b = Build::default();
    let x = b.input([32, 64, 56, 56]);
    let mean = b.mean(x, &[0, 2, 3]);
    let centered = b.sub(x, mean);
    let square = b.mul(centered, centered);
    let var = b.mean(square, &[0, 2, 3]);
    let stable = b.offset(var, 1e-5);
    let rstd = b.un(UnaryOp::Rsqrt, stable);
    let y = b.mul(centered, rstd);
    bench(&cpu, "batch norm [32, 64, 56, 56]", &b.output(&[y, mean, var]));

    for dims in [&[0, 1][..], &[0], &[1]] {
        let mut b = Build::default();
        let x = b.input([4096, 4096]);
        let y = b.sum(x, dims);
        bench(&cpu, &format!("sum [4096, 4096] over {dims:?}"), &b.output(&[y]));
    }
    let mut b = Build::default();
    let x = b.input([1 << 20, 8]);
    let y = b.sum(x, &[0]);
    bench(&cpu, "sum [1048576, 8] over [0]", &b.output(&[y]));

    let mut b = Build::default();
    let x = b.input([4096, 4096]);
    let y = b.permute(x, &[1, 0]);
    bench(&cpu, "transpose [4096, 4096]", &b.output(&[y]));

    let mut b = Build::default();
    let (x, bias) = (b.input([1 << 20, 8]), b.input([8]));
    let y = b.add(x, bias);
    bench(&cpu, "bias [1048576, 8]", &b.output(&[y]));

    let mut b = Build::default();
    let x = b.input([4096, 4096]);
    let bits = b.shaped(Op::Random { seed: 1, offset: 0 }, &[], [4096, 4096]);
    let limit = b.graph.constant(1u64 << 31, DType::U32, ());
    let keep = b.cmp(CompareOp::Lt, bits, limit);
    let keep = b.cast(keep, DType::F32);
    let y = b.mul(x, keep);
    bench(&cpu, "dropout [4096, 4096]", &b.output(&[y]));

    let mut b = Build::default();
    let mut outputs = Vec::new();
    let [p, g, m, v] = [(); 4].map(|()| b.input([4 << 20]));
    let p1 = b.scale(p, 0.99);
    let m1 = b.scale(m, 0.9);
    let g1 = b.scale(g, 0.1);
    let m = b.add(m1, g1);
    let v1 = b.scale(v, 0.999);
    let g2 = b.mul(g, g);
    let g2 = b.scale(g2, 0.001);
    let v = b.add(v1, g2);
    let root = b.un(UnaryOp::Sqrt, v);
    let root = b.offset(root, 1e-8);
    let step = b.div(m, root);
    let step = b.scale(step, 1e-3);
    let p = b.sub(p1, step);
    outputs.extend([p, m, v]);
    bench(&cpu, "adamw [4194304]", &b.output(&outputs));

    // Chains of cheap ops on little data: what a node costs.
    let mut b = Build::default();
    let (x, y) = (b.input([16]), b.input([16]));
    let z = b.add(x, y);
    bench(&cpu, "overhead: 1 op", &b.output(&[z]));
    let mut b = Build::default();
    let mut outputs = Vec::new();
    for _ in 0..200 {
        let (x, y) = (b.input([16]), b.input([16]));
        let mut z = b.add(x, y);
        for _ in 0..3 {
            z = b.mul(z, y);
        }
        outputs.push(z);
    }
    bench(&cpu, "overhead: 200 kernels", &b.output(&outputs));
    let mut b = Build::default();
    let mut x = b.input([16]);
    for _ in 0..1000 {
        x = b.add(x, x);
    }
    bench(&cpu, "overhead: chain of 1000", &b.output(&[x]));
    let start = Instant::now();
    let mut b = Build::default();
    let mut x = b.input([64, 64]);
    for _ in 0..300 {
        let y = b.softmax(x, 1);
        let y = b.matmul(y, x);
        x = b.add(y, x);
    }
    let graph = b.output(&[x]);
    let built = start.elapsed();
    let start = Instant::now();
    let plan = fornax_compile::compile(&graph);
    println!(
        "compile {} nodes, {} steps: {:.2} ms (built in {:.2} ms)",
        graph.nodes.len(),
        plan.steps.len(),
        start.elapsed().as_secs_f64() * 1e3,
        built.as_secs_f64() * 1e3
    );
}
