//! The text form and the verifier, on graphs that are fine and on hostile ones.

use fornax_ir::{
    BinaryOp, ConvSpec, DType, FftKind, Graph, LinalgOp, Node, NodeId, Op, ReduceOp, Scalar, Source, UnaryOp,
    WindowDim, WindowSpec, interpret, random_word,
};

fn node(op: Op, inputs: &[u32], dtype: DType, shape: &[usize]) -> Node {
    let inputs = inputs.iter().map(|&id| NodeId(id)).collect();
    Node { op, inputs, dtype, shape: shape.into(), source: Source::default() }
}

/// The errors of parsing, as users see them.
#[test]
fn parse_errors_name_line_and_column() {
    let input = "%0 = input 0 : f32[4, 3]\n";
    for (text, want) in [
        ("", "1:1: expected a node or `return`"),
        ("%1 = input 0 : f32[]", "1:1: expected node %0, found %1"),
        ("%0 = frobnicate : f32[]", "1:6: there is no op `frobnicate`"),
        ("%0 = input 0 : f33[]", "1:16: `f33` is no dtype"),
        ("%0 = input x : f32[]", "1:12: the value of `input` is wrong"),
        ("%0 = const 1.5.5 : f32[]", "1:12: the value of `const` is wrong"),
        ("%0 = input 0 : f32[4,]", "1:22: expected a size, found ``"),
        ("%0 = input 0 : f32[-4]", "1:20: expected a size, found `-4`"),
        ("%0 = input 0 : f32[4 3]", "1:22: expected `,`"),
        ("%0 = iota dim=0 : i64[18446744073709551616]", "1:23: expected a size, found `18446744073709551616`"),
        ("%0 = iota dim=0 : f32[4]", "1:1: iota: %0: the result is i64, not f32"),
        ("%0 = iota : i64[4]", "1:6: iota lacks the attribute `dim`"),
        ("%0 = iota dim=0, dim=1 : i64[4]", "1:18: iota has no attribute `dim`"),
        ("%0 = iota dim=[0] : i64[4]", "1:11: the value of `dim` is wrong"),
        ("# a comment\n  %0 = input 1 : f32[]\nreturn", "3:1: input: slots are not 0, 1, 2, …: 1 stands for 0"),
        ("{input}%1 = sum %0, dims=[2] : f32[4, 1]", "2:1: sum: %1: sum: dim 2 is out of range for [4, 3]"),
        ("{input}%1 = add %0, %1 : f32[4, 3]", "2:14: %1 does not come before its use"),
        ("{input}%1 = neg %0, size=3 : f32[4, 3]", "2:14: neg has no attribute `size`"),
        ("{input}%1 = neg %0 %0 : f32[4, 3]", "2:13: expected `:`"),
        ("{input}return %0, %3", "2:12: %3 does not come before its use"),
        ("{input}return %0 %0", "2:11: expected `,`"),
        ("{input}retürn", "2:1: expected a node or `return`"),
    ] {
        let text = text.replace("{input}", input);
        assert_eq!(Graph::parse(&text).unwrap_err().to_string(), want, "{text}");
    }
}

#[test]
fn spaces_and_comments_do_not_matter() {
    let tight = Graph::parse("%0=input 0:f32[2,3]%1=permute %0,perm=[1,0]:f32[3,2]return %1").unwrap();
    let loose =
        "\n# one\n%0 = input 0\n : f32 [ 2 , 3 ] # two\n %1 = permute %0 , perm = [ 1 , 0 ] : f32[3, 2]\nreturn %1";
    assert_eq!(tight, Graph::parse(loose).unwrap());
}

#[test]
fn scalars_keep_their_kind_and_bits() {
    let floats = [0.1, -0.0, 1e300, 5e-324, 16_777_216.0, 1e16, -1e-7, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];
    let mut scalars: Vec<Scalar> = floats.into_iter().map(Scalar::Float).collect();
    let nans = [0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000, 0x7FF0_0000_0000_0001, u64::MAX];
    scalars.extend(nans.map(|bits| Scalar::Float(f64::from_bits(bits))));
    scalars.extend([0, 1, -7, i64::MIN, i64::MAX].map(Scalar::Int));
    scalars.extend([0, 7, u64::MAX].map(Scalar::UInt));
    scalars.extend([true, false].map(Scalar::Bool));
    for scalar in scalars {
        for dtype in DType::ALL {
            let mut graph = Graph::default();
            graph.push_node(node(Op::Const(scalar), &[], dtype, &[2]));
            let parsed = Graph::parse(&graph.to_string()).unwrap();
            // `Debug` tells NaN from NaN by nothing, so the bits are compared.
            match (&parsed.nodes[0].op, scalar) {
                (Op::Const(Scalar::Float(got)), Scalar::Float(want)) => assert_eq!(got.to_bits(), want.to_bits()),
                (Op::Const(got), want) => assert_eq!(*got, want),
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}

/// A graph with every kind of op and attribute.
fn everything() -> Graph {
    let mut graph = Graph::default();
    let x = graph.input(DType::F32, [2, 3, 7]);
    let y = graph.input(DType::F32, [4, 3, 3]);
    let random = graph.push_shaped(Op::Random { seed: u64::MAX, offset: 1 << 40 }, &[], [2, 3]).unwrap();
    let iota = graph.push_shaped(Op::Iota { dim: 1 }, &[], [2, 3]).unwrap();
    let mut push = |op: Op, inputs: &[NodeId], shape: Option<&[usize]>| match shape {
        Some(shape) => graph.push_shaped(op, inputs, shape).unwrap(),
        None => graph.push(op, inputs).unwrap(),
    };
    let sliced = Op::Slice { starts: [1, 0, 6].as_slice().into(), steps: [-1, 1, -2].as_slice().into() };
    push(sliced, &[x], Some(&[2, 2, 4]));
    push(Op::Bitcast(DType::I32), &[random], None);
    push(Op::Pad { low: [0, 1].as_slice().into(), value: Scalar::Int(-1) }, &[iota], Some(&[3, 5]));
    let conv = ConvSpec {
        stride: [2].as_slice().into(),
        padding: [(-1, 4)].as_slice().into(),
        dilation: [1].as_slice().into(),
        input_dilation: [2].as_slice().into(),
        groups: 1,
    };
    push(Op::Conv(Box::new(conv)), &[x, y], None);
    let spec = WindowSpec { dims: [WindowDim { size: 3, step: 2, dilation: 1 }].as_slice().into() };
    let windows = push(Op::Window(spec.clone()), &[x], None);
    push(Op::Fold(spec), &[windows], Some(&[2, 3, 7]));
    push(Op::Concat { dim: 2 }, &[x, x, x, x], None);
    push(Op::TopK { dim: 2, largest: false }, &[x], Some(&[2, 3, 2]));
    push(Op::ArgSort { dim: 0, descending: true }, &[x], None);
    let complex =
        push(Op::Slice { starts: [0; 3].as_slice().into(), steps: [1; 3].as_slice().into() }, &[x], Some(&[2, 3, 2]));
    push(Op::Fft { dim: 1, kind: FftKind::Inverse }, &[complex], None);
    push(Op::Linalg(LinalgOp::TriangularSolve { upper: true, unit_diagonal: false }), &[y, y], None);
    push(Op::Linalg(LinalgOp::Eig), &[y], None);
    push(Op::Linalg(LinalgOp::Svd), &[x], None);
    push(Op::Gather { dim: 1 }, &[random, iota], None);
    let scalar = push(Op::Reshape, &[x], Some(&[42]));
    let sum = push(Op::Reduce { op: ReduceOp::Sum, dims: [0].as_slice().into() }, &[scalar], None);
    let sum = push(Op::Reshape, &[sum], Some(&[]));
    graph.outputs = vec![sum, x, sum];
    graph
}

#[test]
fn every_attribute_reads_back() {
    let graph = everything();
    graph.verify().unwrap();
    let text = graph.to_string();
    assert_eq!(Graph::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), graph);
}

/// Names are told apart across all enums of ops.
#[test]
fn every_plain_op_reads_back() {
    let mut graph = Graph::default();
    let x = graph.input(DType::F64, [3]);
    let i = graph.input(DType::I64, [3]);
    for dtype in [x, i] {
        for &op in UnaryOp::ALL {
            let _ = graph.push(Op::Unary(op), &[dtype]);
        }
        for &op in BinaryOp::ALL {
            let _ = graph.push(Op::Binary(op), &[dtype, dtype]);
        }
        for &op in fornax_ir::CompareOp::ALL {
            graph.push(Op::Compare(op), &[dtype, dtype]).unwrap();
        }
        for &op in ReduceOp::ALL {
            graph.push(Op::Reduce { op, dims: [0].as_slice().into() }, &[dtype]).unwrap();
        }
        for &op in fornax_ir::ScanOp::ALL {
            graph.push(Op::Scan { op, dim: 0 }, &[dtype]).unwrap();
        }
        for &mode in fornax_ir::ScatterMode::ALL {
            graph.push(Op::Scatter { dim: 0, mode }, &[dtype, i, dtype]).unwrap();
        }
    }
    assert_eq!(Graph::parse(&graph.to_string()).unwrap(), graph);
}

/// Whatever is cut out of or put into a text, parsing gives a graph that verifies or an error.
#[test]
fn garbled_texts_do_not_panic() {
    let text = everything().to_string();
    let characters: Vec<char> = text.chars().collect();
    let mut random = (0u64..).map(|i| random_word(11, 0, i) as usize);
    let mut draw = |n: usize| random.next().unwrap() % n;
    for _ in 0..4000 {
        let mut garbled = characters.clone();
        for _ in 0..=draw(3) {
            let at = draw(garbled.len());
            match draw(4) {
                0 => drop(garbled.drain(at..(at + draw(9)).min(characters.len() - 40).max(at))),
                1 => garbled[at] = characters[draw(characters.len())],
                2 => garbled.insert(at, ['%', '[', '-', '9', 'é', ':', '(', '#', '\u{0}'][draw(9)]),
                _ => garbled.insert(at, char::from(b'0' + draw(10) as u8)),
            }
        }
        let garbled: String = garbled.into_iter().collect();
        if let Ok(graph) = Graph::parse(&garbled) {
            graph.verify().unwrap();
            assert_eq!(Graph::parse(&graph.to_string()).unwrap(), graph);
        }
    }
}

#[test]
fn verify_refuses_hostile_graphs() {
    let input = node(Op::Input(0), &[], DType::F32, &[4, 3]);
    let broken = |nodes: Vec<Node>, outputs: &[u32]| {
        let graph = Graph { nodes, outputs: outputs.iter().map(|&id| NodeId(id)).collect() };
        assert!(interpret(&graph, &[[0u8; 48]]).is_err());
        graph.verify().unwrap_err().to_string()
    };
    let neg = |operand| node(Op::Unary(UnaryOp::Neg), &[operand], DType::F32, &[4, 3]);
    for (nodes, outputs, want) in [
        (vec![input.clone(), neg(1)], &[][..], "neg: %1: operand %1 does not come before it"),
        (vec![neg(u32::MAX)], &[], "neg: %0: operand %4294967295 does not come before it"),
        (vec![input.clone()], &[1], "graph: output %1 does not exist"),
        (vec![input.clone(), input.clone()], &[], "input: slots are not 0, 1, 2, …: 0 stands for 1"),
        (vec![node(Op::Input(7), &[], DType::F32, &[])], &[], "input: slots are not 0, 1, 2, …: 7 stands for 0"),
        (
            vec![input.clone(), node(Op::Const(Scalar::Int(1)), &[0], DType::F32, &[])],
            &[],
            "const: %1: a source has no operands",
        ),
        (
            vec![input.clone(), node(Op::Unary(UnaryOp::Neg), &[0], DType::I32, &[4, 3])],
            &[],
            "neg: %1: the result is f32, not i32",
        ),
        (
            vec![input.clone(), node(Op::Unary(UnaryOp::Neg), &[0], DType::F32, &[4, 4])],
            &[],
            "neg: %1: neg: the result is [4, 3], not [4, 4]",
        ),
        (
            vec![node(Op::Input(0), &[], DType::F64, &[usize::MAX >> 2])],
            &[],
            "input: %0: [4611686018427387903] has more elements than memory can address",
        ),
    ] {
        assert_eq!(broken(nodes, outputs), want);
    }
}

/// Sizes and settings at the edge of their types, in every place that computes with them.
#[test]
fn extreme_sizes_are_errors_and_not_overflows() {
    const EDGES: [usize; 6] = [0, 1, 2, 1 << 32, usize::MAX >> 1, usize::MAX];
    let verify = |op: Op, operands: &[(DType, &[usize])], dtype: DType, shape: &[usize]| {
        let mut nodes: Vec<Node> =
            operands.iter().zip(0..).map(|((dtype, shape), slot)| node(Op::Input(slot), &[], *dtype, shape)).collect();
        let ids: Vec<u32> = (0..operands.len() as u32).collect();
        nodes.push(node(op, &ids, dtype, shape));
        let _ = Graph { nodes, outputs: vec![] }.verify();
    };
    for a in EDGES {
        for b in EDGES {
            for c in EDGES {
                let window = WindowSpec { dims: [WindowDim { size: a, step: b, dilation: c }].as_slice().into() };
                let step = [i64::MIN, -1, 0, 1, i64::MAX][b % 5];
                for from in [[0, a], [1, b], [2, 3]] {
                    let x = [(DType::F32, &from[..])];
                    verify(Op::Window(window.clone()), &x, DType::F32, &[0, b, c]);
                    verify(Op::Fold(window.clone()), &[(DType::F32, &[0, b, a])], DType::F32, &[0, c]);
                    let slice = Op::Slice { starts: [0, a].as_slice().into(), steps: [1, step].as_slice().into() };
                    verify(slice, &x, DType::F32, &[from[0], c]);
                    verify(
                        Op::Pad { low: [0, a].as_slice().into(), value: Scalar::Int(0) },
                        &x,
                        DType::F32,
                        &[from[0], b],
                    );
                    verify(Op::Concat { dim: 1 }, &[x[0], x[0], x[0]], DType::F32, &[from[0], b]);
                    for op in [LinalgOp::Lu, LinalgOp::Qr, LinalgOp::Svd, LinalgOp::Eigh, LinalgOp::Eig] {
                        verify(Op::Linalg(op), &x, DType::F32, &[a, b]);
                    }
                }
                for padding in [(0, 0), (isize::MIN, isize::MIN), (isize::MAX, isize::MAX)] {
                    let conv = ConvSpec {
                        stride: [b].as_slice().into(),
                        padding: [padding].as_slice().into(),
                        dilation: [a].as_slice().into(),
                        input_dilation: [c].as_slice().into(),
                        groups: b,
                    };
                    let (x, weight) = ([0, a, c], [b, b, a]);
                    verify(
                        Op::Conv(Box::new(conv)),
                        &[(DType::F32, &x), (DType::F32, &weight)],
                        DType::F32,
                        &[0, b, 1],
                    );
                }
            }
        }
    }
}
