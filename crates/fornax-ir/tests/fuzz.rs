//! The generator of random graphs, held against its promises.

use fornax_ir::{BinaryOp, DType, DTypeSet, Graph, Op, UnaryOp, fuzz, interpret};
use std::collections::BTreeMap;

/// Raise it to search for longer: `FUZZ_CASES=100000 cargo test -p fornax-ir --test fuzz`.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("FUZZ_CASES").map_or(400, |cases| cases.parse().unwrap())
}

#[test]
fn cases_verify_do_not_fault_and_meet_their_own_expectation() {
    for seed in seeds() {
        let (graph, inputs) = fuzz::case(seed);
        graph.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph}"));
        let result = interpret(&graph, &inputs).unwrap();
        assert_eq!(result.faults, [], "seed {seed}\n{graph}");
        for (i, (expected, got)) in fuzz::expect(&graph, &inputs).unwrap().iter().zip(&result.outputs).enumerate() {
            assert_eq!(expected.compare(got), None, "seed {seed}, output {i}");
            if let fuzz::Tolerance::Elements(elements) = &expected.tolerance {
                assert!(elements.iter().all(|element| element.is_finite()), "seed {seed}, output {i}\n{graph}");
            }
        }
    }
}

#[test]
fn printed_cases_read_back() {
    for seed in seeds() {
        let (graph, _) = fuzz::case(seed);
        let text = graph.to_string();
        let parsed = Graph::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        // NaN is not equal to itself, its text is.
        assert_eq!(parsed.to_string(), text, "seed {seed}");
    }
}

#[test]
fn every_op_and_dtype_occurs() {
    let mut ops: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dtypes: BTreeMap<DType, usize> = BTreeMap::new();
    let (mut nodes, mut exact, mut outputs) = (0, 0, 0);
    for seed in 0..1500 {
        let (graph, inputs) = fuzz::case(seed);
        nodes += graph.nodes.iter().filter(|node| !node.op.is_source()).count();
        for node in &graph.nodes {
            *ops.entry(node.op.name()).or_default() += 1;
            *dtypes.entry(node.dtype).or_default() += 1;
        }
        if seed % 10 == 0 {
            for expected in fuzz::expect(&graph, &inputs).unwrap() {
                outputs += 1;
                exact += usize::from(expected.tolerance == fuzz::Tolerance::Exact);
            }
        }
    }
    println!("{ops:?}\n{dtypes:?}\n{nodes} ops, {exact} of {outputs} outputs are exact");
    let names = UnaryOp::ALL.iter().map(|op| op.name());
    let names = names.chain(BinaryOp::ALL.iter().map(|op| op.name()));
    let names = names.chain(fornax_ir::CompareOp::ALL.iter().map(|op| op.name()));
    let names = names.chain(fornax_ir::ReduceOp::ALL.iter().map(|op| op.name()));
    let names = names.chain(fornax_ir::ScanOp::ALL.iter().map(|op| op.name()));
    let names = names.chain(fornax_ir::ScatterMode::ALL.iter().map(|op| op.name()));
    let others = "input const iota random select cast bitcast reshape permute expand slice pad concat window argsort topk \
                  gather matmul conv fold fft cholesky lu qr svd eigh eig triangular_solve";
    for name in names.chain(others.split_whitespace()) {
        assert!(ops.contains_key(name), "{name} does not occur");
    }
    assert_eq!(dtypes.len(), DType::ALL.len());
    assert!(exact * 4 < outputs * 3, "{exact} of {outputs} outputs are exact");
}

#[test]
fn settings_are_kept() {
    let dtypes = DTypeSet::of(&[DType::F32, DType::I32]);
    let settings = fuzz::Settings { ops: 3..=6, dtypes, every_node: true, max_elements: 50 };
    for seed in 0..100 {
        let (graph, inputs) = fuzz::case_with(seed, &settings);
        let allowed = dtypes.union(DTypeSet::of(&[DType::Bool, DType::I64, DType::U32]));
        assert!(graph.nodes.iter().all(|node| allowed.contains(node.dtype) && node.shape.numel() <= 50));
        let unique = fuzz::unique(&graph);
        let results = graph.iter().filter(|(id, node)| unique[id.idx()] && !node.op.is_source()).count();
        assert_eq!(graph.outputs.len(), results.max(1));
        assert_eq!((graph.clone(), inputs), fuzz::case_with(seed, &settings));
    }
}

#[test]
fn comparison_sees_the_worst_element() {
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let compare = |got: &[f32], want: &[f32], tolerance: &fuzz::Tolerance| {
        fuzz::compare(DType::F32, &bytes(got), &bytes(want), tolerance).map(|mismatch| mismatch.index)
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let exact = fuzz::Tolerance::Exact;
    let close = fuzz::Tolerance::Close { absolute: 0.1, relative: 0.0 };
    assert_eq!(compare(&[0.0, nan, inf], &[-0.0, nan, inf], &exact), None);
    assert_eq!(compare(&[1.0, 2.0, 3.0], &[1.05, 2.5, 3.2], &close), Some(1));
    assert_eq!(compare(&[inf, 5.0], &[-inf, nan], &close), Some(0));
    assert_eq!(compare(&[1.0, 5.0], &[1.0, nan], &close), Some(1));
    assert_eq!(compare(&[1.0, 5.0], &[1.0, inf], &fuzz::Tolerance::Elements(vec![0.0, f64::INFINITY])), Some(1));
    assert_eq!(compare(&[1.0], &[1.0, 2.0], &exact), Some(1));
    assert_eq!(compare(&[1.0, 2.0], &[1.0], &exact), Some(1));
    assert_eq!(fuzz::compare(DType::Bool, &[2], &[1], &exact).unwrap().to_string(), "element 0: got 2, want 1 ± 0e0");
    let (big, one_off) = ((1u64 << 60).to_le_bytes(), ((1u64 << 60) + 1).to_le_bytes());
    assert!(fuzz::compare(DType::U64, &big, &one_off, &exact).is_some());
}

#[test]
fn shrinking_leaves_what_fails() {
    // A device whose tanh is wrong for large values.
    let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| {
        graph.verify().unwrap();
        interpret(graph, inputs).unwrap();
        graph.nodes.iter().any(|node| node.op == Op::Unary(UnaryOp::Tanh) && node.shape.numel() > 3)
    };
    let mut shrunk = 0;
    for seed in 0..300 {
        let (graph, inputs) = fuzz::case(seed);
        if fails(&graph, &inputs) {
            let (graph, inputs) = fuzz::shrink(graph, inputs, &mut fails);
            assert_eq!(graph.nodes.len(), 2, "seed {seed}\n{graph}");
            assert!(fails(&graph, &inputs));
            shrunk += 1;
        }
    }
    assert!(shrunk > 10);
}

#[test]
fn shrinking_brings_in_no_fault() {
    for seed in 0..300 {
        let (graph, inputs) = fuzz::case(seed);
        let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| {
            assert_eq!(interpret(graph, inputs).unwrap().faults, []);
            graph.nodes.iter().any(|node| node.op.can_fault(node.dtype))
        };
        if fails(&graph, &inputs) {
            fuzz::shrink(graph, inputs, &mut fails);
        }
    }
}
