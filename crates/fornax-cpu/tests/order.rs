//! Scans, argsort and top-k: results are the interpreter's, on every dtype and along every dim.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{DType, Graph, Op, ScanOp, Shape, interpret};
use support::{Random, execute};

/// Bytes of random numbers of a dtype, with many equal ones, zeros of both signs and NaNs among them.
fn numbers(dtype: DType, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let value = match random.below(12) {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f64::INFINITY,
            4 => f64::NEG_INFINITY,
            _ => random.below(2000) as f64 / 8.0 - 100.0,
        };
        let scalar = match dtype {
            _ if dtype.is_float() => fornax_ir::Scalar::Float(value).cast(dtype),
            _ => fornax_ir::Scalar::Int(random.below(300) as i64 - 100).cast(dtype),
        };
        bytes.extend_from_slice(&scalar.to_le_bytes(dtype)[..dtype.size()]);
    }
    bytes
}

/// Along each dim, of the value as it is and transposed.
fn check(dtype: DType, shape: &[usize], op: impl Fn(usize) -> (Op, Option<usize>), random: &mut Random) {
    let bytes = numbers(dtype, shape.iter().product(), random);
    for dim in 0..shape.len() {
        for transposed in [false, true] {
            let mut graph = Graph::default();
            let mut x = graph.input(dtype, shape);
            if transposed {
                let perm = (0..shape.len()).rev().collect();
                x = graph.push(Op::Permute(perm), &[x]).unwrap();
            }
            let (op, size) = op(dim);
            let target: Option<Shape> = size.map(|size| graph[x].shape.with_dim(dim, size.min(graph[x].shape[dim])));
            let y = match target {
                Some(target) => graph.push_shaped(op, &[x], target).unwrap(),
                None => graph.push(op, &[x]).unwrap(),
            };
            graph.outputs.push(y);
            let expected = interpret(&graph, std::slice::from_ref(&bytes)).unwrap().outputs;
            for threads in [1, 2, 5] {
                let cpu = CpuBackend::with_threads(threads);
                let (got, _) = execute(&cpu, &graph, std::slice::from_ref(&bytes));
                let dtype = graph[y].dtype;
                let nans = |bytes: &[u8]| support::floats(dtype, bytes).map_or(false, |x| x[0].is_nan());
                let mut pairs = expected[0].chunks(dtype.size()).zip(got[0].chunks(dtype.size()));
                let differs = pairs.position(|(a, b)| a != b && !(nans(a) && nans(b)));
                assert_eq!(differs, None, "{dtype} {shape:?} dim {dim}\n{graph}");
                assert_eq!(
                    fornax_ir::Backend::counters(&cpu).iter().find(|(name, _)| *name == "interpreted"),
                    Some(&("interpreted", 0))
                );
            }
        }
    }
}

const SHAPES: [&[usize]; 6] = [&[1], &[2500], &[7, 3], &[3, 300, 2], &[2, 1, 1030], &[4, 0, 3]];

#[test]
fn scans() {
    let mut random = Random(3);
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for shape in SHAPES {
            for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min] {
                check(dtype, shape, |dim| (Op::Scan { op, dim }, None), &mut random);
            }
        }
    }
}

#[test]
fn argsort_and_topk() {
    let mut random = Random(5);
    for dtype in DType::ALL {
        for shape in SHAPES {
            for flag in [false, true] {
                check(dtype, shape, |dim| (Op::ArgSort { dim, descending: flag }, None), &mut random);
                for k in [0, 1, 5, 2000] {
                    check(dtype, shape, |dim| (Op::TopK { dim, largest: flag }, Some(k)), &mut random);
                }
            }
        }
    }
}
