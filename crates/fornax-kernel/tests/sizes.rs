//! Other sizes find their kernels made.

use fornax_ir::Graph;
use fornax_kernel::ir::Function;
use std::collections::HashSet;

fn softmax(rows: usize, len: usize) -> Graph {
    let text = format!(
        "%0 = input 0 : f32[{rows}, {len}] %1 = max %0, dims=[1] : f32[{rows}, 1] %2 = expand %1 : f32[{rows}, {len}]
         %3 = sub %0, %2 : f32[{rows}, {len}] %4 = exp %3 : f32[{rows}, {len}] %5 = sum %4, dims=[1] : f32[{rows}, 1]
         %6 = expand %5 : f32[{rows}, {len}] %7 = div %4, %6 : f32[{rows}, {len}] return %7"
    );
    Graph::parse(&text).unwrap()
}

fn scaled_product(m: usize, k: usize, n: usize) -> Graph {
    let text = format!(
        "%0 = input 0 : f32[{m}, {k}] %1 = input 1 : f32[{k}, {n}] %2 = matmul %0, %1 : f32[{m}, {n}]
         %3 = const 2.0 : f32[{m}, {n}] %4 = mul %2, %3 : f32[{m}, {n}] return %4"
    );
    Graph::parse(&text).unwrap()
}

/// The distinct kernels of some graphs.
fn kernels(graphs: impl Iterator<Item = Graph>) -> usize {
    let programs = graphs.map(|graph| fornax_kernel::lower(&fornax_compile::compile(&graph), &graph));
    programs.flat_map(|program| program.kernels).collect::<HashSet<Function>>().len()
}

#[test]
fn batch_sizes_share_one_kernel() {
    assert_eq!(kernels((2..=64).map(|rows| softmax(rows, 1000))), 1);
    assert_eq!(kernels((65..=130).map(|rows| softmax(rows, 1000))), 1);
    assert_eq!(kernels([2, 64, 1000].into_iter().map(|m| scaled_product(m, 48, 64))), 2);
}

/// One for each width of vectors that a length allows.
#[test]
fn lengths_share_kernels_by_class() {
    assert_eq!(kernels((513..=1024).map(|len| softmax(8, len))), 3);
    assert_eq!(kernels((513..=1024).step_by(4).map(|len| softmax(8, len + 3))), 1);
}
