//! Kernels that do not depend on one another run as one launch.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{Backend, Graph, NodeId, interpret};
use support::{Build, assert_same, execute, inputs};

/// Results are the interpreter's, by so many kernels in so many launches.
#[track_caller]
fn runs_as(graph: &Graph, kernels: u64, launches: u64) {
    let inputs = inputs(graph, 7);
    let want = interpret(graph, &inputs).unwrap();
    for threads in [1, 3] {
        let cpu = CpuBackend::with_threads(threads);
        let (got, _) = execute(&cpu, graph, &inputs);
        assert_same(graph, &got, &want.outputs, 10.0);
        let counter = |name: &str| cpu.counters().into_iter().find(|(other, _)| *other == name).unwrap().1;
        assert_eq!(
            (counter("kernels"), counter("launches")),
            (kernels, launches),
            "{}",
            fornax_compile::compile(graph)
        );
    }
}

/// An update such as optimizers make: `m ← 0.9 m + g`, `p ← p − 0.1 m`.
fn update(b: &mut Build, size: usize) -> [NodeId; 2] {
    let [p, g, m] = [0; 3].map(|_| b.input([size]));
    let kept = b.scale(m, 0.9);
    let m = b.add(kept, g);
    let step = b.scale(m, 0.1);
    [b.sub(p, step), m]
}

#[test]
fn updates_of_many_tensors_are_one_launch() {
    let mut b = Build::default();
    let outputs: Vec<NodeId> = [1, 300_000, 70, 2_000, 0, 90_000].into_iter().flat_map(|n| update(&mut b, n)).collect();
    runs_as(&b.output(&outputs), 6, 1);
}

#[test]
fn a_kernel_that_reads_a_result_starts_a_launch() {
    let mut b = Build::default();
    let x = b.input([300, 500]);
    let scaled = b.offset(x, 1.0);
    let turned = b.permute(scaled, &[1, 0]);
    let rows = b.softmax(turned, 1);
    let y = b.input([500, 300]);
    let y = b.mul(rows, y);
    runs_as(&b.output(&[scaled, y]), 2, 2);
}

#[test]
fn what_a_kernel_of_the_launch_reads_is_not_overwritten_in_it() {
    // The second kernel could take over the memory of `x`, which the first one reads in another order.
    let mut b = Build::default();
    let x = b.input([700, 900]);
    let turned = b.permute(x, &[1, 0]);
    let other = b.input([900, 700]);
    let first = b.add(turned, other);
    let second = b.offset(x, 1.0);
    let graph = b.output(&[first, second]);
    let inputs = inputs(&graph, 7);
    let want = interpret(&graph, &inputs).unwrap();
    for _ in 0..10 {
        let (got, _) = execute(&CpuBackend::with_threads(4), &graph, &inputs);
        assert_same(&graph, &got, &want.outputs, 10.0);
    }
}
