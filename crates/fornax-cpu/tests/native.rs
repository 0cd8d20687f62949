//! Scans, orders, folds and Fourier transforms of every dtype and layout: results are the interpreter's.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{Backend, DType, Element, FftKind, Op, ScanOp, Shape, WindowDim, WindowSpec, interpret};
use support::{Build, Random, check, execute};

const NUMBERS: [DType; 12] = [
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// A shape of rank 1 to 3 with a dim of `len`, and the place of that dim.
fn shape(random: &mut Random, len: usize) -> (Vec<usize>, usize) {
    let rank = 1 + random.below(3);
    let dim = random.below(rank);
    let mut shape: Vec<usize> = (0..rank).map(|_| 1 + random.below(5)).collect();
    shape[dim] = len;
    (shape, dim)
}

/// As it stands, or with its dims turned round: then the op reads a strided view.
fn view(b: &mut Build, random: &mut Random, x: fornax_ir::NodeId, dim: usize) -> (fornax_ir::NodeId, usize) {
    let rank = b.shape(x).rank();
    if random.below(2) == 0 {
        return (x, dim);
    }
    let perm: Vec<usize> = (0..rank).rev().collect();
    (b.permute(x, &perm), rank - 1 - dim)
}

#[test]
fn scans_of_all_dtypes() {
    let mut random = Random(1);
    for dtype in NUMBERS {
        for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min] {
            for len in [0, 1, 2, 7, 300] {
                let (shape, dim) = shape(&mut random, len);
                let mut b = Build::default();
                let x = b.graph.input(dtype, shape);
                let (x, dim) = view(&mut b, &mut random, x, dim);
                let y = b.op(Op::Scan { op, dim }, &[x]);
                check(&b.output(&[y]), 1.0);
            }
        }
    }
}

#[test]
fn orders_of_all_dtypes() {
    let mut random = Random(2);
    for dtype in [&NUMBERS[..], &[DType::Bool]].concat() {
        for descending in [false, true] {
            for len in [0, 1, 2, 7, 300, 5000] {
                let (shape, dim) = shape(&mut random, len);
                let mut b = Build::default();
                let x = b.graph.input(dtype, shape);
                let (x, dim) = view(&mut b, &mut random, x, dim);
                let sorted = b.op(Op::ArgSort { dim, descending }, &[x]);
                let counts = [0, len.min(1), len / 20, len / 2, len];
                let mut outputs = vec![sorted];
                for count in counts {
                    let target: Shape = b.shape(x).with_dim(dim, count);
                    outputs.push(b.shaped(Op::TopK { dim, largest: descending }, &[x], target));
                }
                check(&b.output(&outputs), 0.0);
            }
        }
    }
}

#[test]
fn folds_of_all_dtypes() {
    let mut random = Random(3);
    for dtype in NUMBERS {
        for slid in [1, 2, 3] {
            for _ in 0..4 {
                let dims: smallvec::SmallVec<[WindowDim; 2]> = (0..slid)
                    .map(|_| WindowDim {
                        size: 1 + random.below(3),
                        step: 1 + random.below(3),
                        dilation: 1 + random.below(2),
                    })
                    .collect();
                let sizes: Vec<usize> = dims.iter().map(|dim| dim.span() + random.below(6)).collect();
                let target = [&[1 + random.below(3), 1 + random.below(3)][..], &sizes].concat();
                let spec = WindowSpec { dims };
                let mut b = Build::default();
                // The shape of the windows, from the op whose transpose this is.
                let like = b.graph.input(dtype, target.clone());
                let windows = b.op(Op::Window(spec.clone()), &[like]);
                let shape = b.shape(windows);
                let mut b = Build::default();
                let x = b.graph.input(dtype, shape);
                let y = b.shaped(Op::Fold(spec), &[x], target);
                check(&b.output(&[y]), 1.0);
            }
        }
    }
}

#[test]
fn transforms_of_all_lengths() {
    let mut random = Random(4);
    for dtype in [DType::F32, DType::F64] {
        for kind in [FftKind::Forward, FftKind::Inverse] {
            for len in [1, 2, 3, 8, 13, 60, 128, 151] {
                let (mut shape, dim) = shape(&mut random, len);
                shape.push(2);
                let mut b = Build::default();
                let x = b.graph.input(dtype, shape);
                let y = b.op(Op::Fft { dim, kind }, &[x]);
                check(&b.output(&[y]), 100.0);
            }
        }
    }
}

/// Ties, zeros of both signs, NaN of both signs, infinities; few and many elements.
#[test]
fn special_values_have_their_places() {
    let nan = f32::NAN;
    let few = [0.0, nan, -0.0, 1.0, f32::INFINITY, -nan, -1.0, 1.0, f32::NEG_INFINITY, 0.0, -1.0, nan];
    for repeats in [1, 400] {
        let values = few.repeat(repeats);
        let mut b = Build::default();
        let x = b.input([values.len()]);
        let mut outputs = Vec::new();
        for descending in [false, true] {
            outputs.push(b.op(Op::ArgSort { dim: 0, descending }, &[x]));
            outputs.push(b.shaped(Op::TopK { dim: 0, largest: descending }, &[x], [7]));
        }
        for op in [ScanOp::Max, ScanOp::Min, ScanOp::Sum] {
            outputs.push(b.op(Op::Scan { op, dim: 0 }, &[x]));
        }
        let graph = b.output(&outputs);
        let mut bytes = Vec::new();
        f32::write_le(&values, &mut bytes);
        let want = interpret(&graph, std::slice::from_ref(&bytes)).unwrap().outputs;
        let cpu = CpuBackend::new();
        let (got, _) = execute(&cpu, &graph, &[bytes]);
        for (got, want) in got.iter().zip(&want).take(4) {
            assert_eq!(i64::read_le(got), i64::read_le(want));
        }
        for (got, want) in got.iter().zip(&want).skip(4) {
            let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
            assert!(f32::read_le(got).iter().zip(&f32::read_le(want)).all(same));
        }
        let interpreted = cpu.counters().into_iter().find(|(name, _)| *name == "interpreted");
        assert_eq!(interpreted, Some(("interpreted", 0)), "all of these ops are native");
    }
}
