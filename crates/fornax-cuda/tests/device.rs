//! The device as a whole. Without a GPU, that it is refused with the right error; the rest is skipped.

use fornax_cuda::{CudaBackend, CudaOptions, ErrorKind, device_count};
use fornax_ir::{
    Backend, BinaryOp, Buffer, DType, DeviceErrorKind, Graph, NodeId, Op, Outcome, ReduceOp, Scalar, UnaryOp, interpret,
};
use std::task::{Context, Poll, Waker};

/// The first GPU, if there is one.
fn cuda() -> Option<CudaBackend> {
    cuda_with(CudaOptions::default())
}

fn cuda_with(options: CudaOptions) -> Option<CudaBackend> {
    CudaBackend::with_options(0, options).map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn read(cuda: &CudaBackend, buffer: &Buffer) -> Vec<u8> {
    let mut download = cuda.download(buffer, buffer.len());
    match download.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(bytes) => bytes.unwrap(),
        Poll::Pending => unreachable!("downloads wait for the device"),
    }
}

fn upload(cuda: &CudaBackend, graph: &Graph, inputs: &[Vec<u8>]) -> Vec<Buffer> {
    let nodes = graph.inputs();
    nodes.iter().zip(inputs).map(|(&node, bytes)| cuda.upload(graph[node].dtype, bytes).unwrap()).collect()
}

/// Small whole numbers of a dtype: their sums and products are exact, in any order.
fn whole_numbers(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let value = |i: usize| Scalar::Int((((i + seed) * 7 + i / 5) % 7) as i64 - if dtype == DType::U8 { 0 } else { 3 });
    (0..count).flat_map(|i| value(i).cast(dtype).to_le_bytes(dtype)[..dtype.size()].to_vec()).collect()
}

/// Runs a graph several times with new inputs each; results must be the interpreter's bits.
#[track_caller]
fn check(cuda: &CudaBackend, graph: &Graph) {
    for seed in 0..6 {
        let inputs: Vec<Vec<u8>> = graph
            .inputs()
            .iter()
            .enumerate()
            .map(|(i, &node)| whole_numbers(graph[node].dtype, graph[node].shape.numel(), seed + 10 * i))
            .collect();
        let want = interpret(graph, &inputs).unwrap();
        let outcome = cuda.execute(graph, upload(cuda, graph, &inputs)).unwrap();
        assert_eq!(outcome.faults, want.faults);
        for (i, (got, want)) in outcome.outputs.iter().zip(&want.outputs).enumerate() {
            assert!(read(cuda, got) == *want, "output {i} of run {seed}\n{graph}");
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let error = CudaBackend::new(1000).unwrap_err();
    match device_count() {
        Ok(count) => {
            assert_eq!(error.kind(), if count == 0 { ErrorKind::NoDevice } else { ErrorKind::NoSuchDevice });
            assert!(error.to_string().contains("device"), "{error}");
        }
        Err(why) => {
            assert_eq!(error, why);
            let kinds = [ErrorKind::NoDriver, ErrorKind::NoDevice, ErrorKind::DriverTooOld];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }
    let error = fornax_ir::DeviceError::from(error);
    assert_eq!(error.kind(), DeviceErrorKind::Unavailable);
}

#[test]
fn repeated_graphs_take_new_inputs_and_new_scalars() {
    for graphs in [true, false] {
        let mut options = CudaOptions::default();
        options.graphs = graphs;
        let Some(cuda) = cuda_with(options) else { return };
        let chain = |scale: f64| {
            let mut graph = Graph::default();
            let x = graph.input(DType::F32, [33, 70]);
            let factor = graph.constant(scale, DType::F32, [33, 70]);
            let y = graph.push(Op::Binary(BinaryOp::Mul), &[x, factor]).unwrap();
            let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [1].as_slice().into() }, &[y]).unwrap();
            let columns = graph.push(Op::Reduce { op: ReduceOp::Max, dims: [0].as_slice().into() }, &[y]).unwrap();
            let y = graph.push(Op::Unary(UnaryOp::Neg), &[y]).unwrap();
            let gram = graph.push_shaped(Op::Permute([1, 0].as_slice().into()), &[y], [70, 33]).unwrap();
            let gram = graph.push(Op::Matmul { out: DType::F32 }, &[y, gram]).unwrap();
            graph.outputs = vec![sum, columns, y, gram];
            graph
        };
        for scale in [1.0, 2.0, -3.0] {
            check(&cuda, &chain(scale));
        }
        let counters = cuda.counters();
        let counter = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(counter("plans_compiled"), 1, "scalars are no part of a plan");
        assert_eq!(counter("plans_bound"), 1, "nor of a program");
        assert_eq!(counter("graph_launches") > 0, graphs);
    }
}

/// A step of training: its results are the next step's inputs, a scalar changes, temporaries come and go.
#[test]
fn steps_that_feed_themselves_settle_on_two_graphs() {
    let mut options = CudaOptions::default();
    (options.graphs, options.pool) = (true, true);
    let Some(cuda) = cuda_with(options) else { return };
    let step = |factor: f64| {
        let mut graph = Graph::default();
        let [x, p, m] = [0; 3].map(|_| graph.input(DType::F32, [40, 24]));
        let factor = graph.constant(factor, DType::F32, [40, 24]);
        let scaled = graph.push(Op::Binary(BinaryOp::Mul), &[p, factor]).unwrap();
        let new_p = graph.push(Op::Binary(BinaryOp::Add), &[scaled, x]).unwrap();
        let new_m = graph.push(Op::Binary(BinaryOp::Max), &[m, new_p]).unwrap();
        let turned = graph.push_shaped(Op::Permute([1, 0].as_slice().into()), &[p], [24, 40]).unwrap();
        let gram = graph.push(Op::Matmul { out: DType::F32 }, &[p, turned]).unwrap();
        let loss = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [0, 1].as_slice().into() }, &[gram]).unwrap();
        graph.outputs = vec![new_p, new_m, loss];
        graph
    };
    for keeps_inputs in [true, false] {
        let counter = |name: &str| cuda.counters().iter().find(|(known, _)| *known == name).unwrap().1;
        let [made, launched] = ["graphs_made", "graph_launches"].map(counter);
        let mut bytes = [1, 2, 3].map(|seed| whole_numbers(DType::F32, 40 * 24, seed));
        let mut state = [1, 2].map(|i| cuda.upload(DType::F32, &bytes[i]).unwrap());
        for round in 0..30 {
            let graph = step(if round % 2 == 0 { 1.0 } else { -1.0 });
            let x = cuda.upload(DType::F32, &bytes[0]).unwrap();
            let kept = keeps_inputs.then(|| state.clone());
            let [p, m] = state;
            let outcome = cuda.execute(&graph, vec![x, p, m]).unwrap();
            drop(kept);
            let want = interpret(&graph, &bytes).unwrap().outputs;
            for (i, (got, want)) in outcome.outputs.iter().zip(&want).enumerate() {
                assert!(read(&cuda, got) == *want, "output {i} of step {round}, inputs kept: {keeps_inputs}");
            }
            [bytes[1], bytes[2]] = [want[0].clone(), want[1].clone()];
            state = [outcome.outputs[0].clone(), outcome.outputs[1].clone()];
        }
        let [made, launched] = [counter("graphs_made") - made, counter("graph_launches") - launched];
        assert!(made <= 4, "{made} graphs were made, inputs kept: {keeps_inputs}");
        assert!(launched >= 15, "{launched} steps were graphs, inputs kept: {keeps_inputs}");
    }
}

#[test]
fn products_of_all_layouts_and_dtypes_are_exact_on_whole_numbers() {
    let Some(cuda) = cuda() else { return };
    let dtypes = [
        (DType::F32, DType::F32),
        (DType::F64, DType::F64),
        (DType::BF16, DType::F32),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
        (DType::I8, DType::I32),
        (DType::I32, DType::I32),
        (DType::I64, DType::I64),
    ];
    for (dtype, out) in dtypes {
        for (m, n, k) in [(1, 1, 1), (5, 7, 3), (1, 64, 48), (64, 1, 48), (64, 96, 32), (33, 17, 100), (2, 3, 0)] {
            for turned in [[false, false], [true, false], [false, true], [true, true]] {
                let mut graph = Graph::default();
                let mut operand = |rows: usize, columns: usize, turned: bool| match turned {
                    false => graph.input(dtype, [3, rows, columns]),
                    true => {
                        let x = graph.input(dtype, [3, columns, rows]);
                        let perm = Op::Permute([0, 2, 1].as_slice().into());
                        graph.push_shaped(perm, &[x], [3, rows, columns]).unwrap()
                    }
                };
                let (lhs, rhs) = (operand(m, k, turned[0]), operand(k, n, turned[1]));
                let product = graph.push(Op::Matmul { out }, &[lhs, rhs]).unwrap();
                graph.outputs.push(product);
                check(&cuda, &graph);
            }
        }
    }
}

#[test]
fn one_matrix_serves_a_batch_without_copies() {
    let Some(cuda) = cuda() else { return };
    let mut graph = Graph::default();
    let x = graph.input(DType::F32, [2, 3, 8, 16]);
    let w = graph.input(DType::F32, [2, 1, 16, 12]);
    let w = graph.push_shaped(Op::Expand, &[w], [2, 3, 16, 12]).unwrap();
    let product = graph.push(Op::Matmul { out: DType::F32 }, &[x, w]).unwrap();
    graph.outputs.push(product);
    check(&cuda, &graph);
}

#[test]
fn faults_name_the_op_and_leave_the_rest_right() {
    let Some(cuda) = cuda() else { return };
    let mut graph = Graph::default();
    let x = graph.input(DType::I32, [4]);
    let by = graph.input(DType::I32, [4]);
    let divided = graph.push(Op::Binary(BinaryOp::Div), &[x, by]).unwrap();
    let fine = graph.push(Op::Binary(BinaryOp::Add), &[x, by]).unwrap();
    graph.outputs = vec![divided, fine];
    let i32s = |values: [i32; 4]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let run = |by: [i32; 4]| -> Outcome {
        cuda.execute(&graph, upload(&cuda, &graph, &[i32s([6, 7, 8, 9]), i32s(by)])).unwrap()
    };
    for _ in 0..4 {
        let outcome = run([1, 2, 0, 3]);
        assert_eq!(outcome.faults.len(), 1);
        assert_eq!((outcome.faults[0].node, outcome.faults[0].message.as_str()), (divided, "integer division by zero"));
        assert_eq!(read(&cuda, &outcome.outputs[1]), i32s([7, 9, 8, 12]));
        let outcome = run([1, 2, 4, 3]);
        assert_eq!(outcome.faults, []);
        assert_eq!(read(&cuda, &outcome.outputs[0]), i32s([6, 3, 2, 3]));
    }
    let mut graph = Graph::default();
    let x = graph.input(DType::F32, [5]);
    let at = graph.input(DType::I64, [2]);
    let picked = graph.push(Op::Gather { dim: 0 }, &[x, at]).unwrap();
    graph.outputs = vec![picked];
    let at: Vec<u8> = [1i64, 7].iter().flat_map(|value| value.to_le_bytes()).collect();
    let outcome = cuda.execute(&graph, upload(&cuda, &graph, &[whole_numbers(DType::F32, 5, 0), at])).unwrap();
    assert_eq!(outcome.faults.len(), 1);
    assert_eq!(outcome.faults[0].message, "index 7 is out of range for dim 0 of size 5");
}

#[test]
fn a_buffer_that_does_not_fit_is_refused() {
    let Some(cuda) = cuda() else { return };
    let mut graph = Graph::default();
    let x = graph.input(DType::F32, [4]);
    let y = graph.push(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
    graph.outputs.push(y);
    let short = cuda.upload(DType::F32, &[0; 8]).unwrap();
    assert_eq!(cuda.execute(&graph, vec![short]).unwrap_err().kind(), DeviceErrorKind::Misuse);
    assert_eq!(cuda.execute(&graph, vec![]).unwrap_err().kind(), DeviceErrorKind::Misuse);
    check(&cuda, &graph);
}

/// `x` elements of `value`, doubled: two buffers on the device.
fn large(graph: &mut Graph, elements: usize) -> NodeId {
    let x = graph.input(DType::U8, [1]);
    let x = graph.push_shaped(Op::Expand, &[x], [elements]).unwrap();
    graph.push(Op::Binary(BinaryOp::Add), &[x, x]).unwrap()
}

#[test]
fn out_of_memory_is_an_error_with_the_largest_owners_and_the_device_goes_on() {
    let Some(cuda) = cuda() else { return };
    let kept = cuda.upload(DType::U8, &vec![1; 5 << 20]).unwrap();
    let mut graph = Graph::default();
    let y = large(&mut graph, usize::try_from(cuda.info().memory).unwrap());
    graph.outputs.push(y);
    let error = cuda.execute(&graph, upload(&cuda, &graph, &[vec![3]])).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfMemory);
    assert!(error.to_string().contains("5.0 MiB in "), "{error}");
    let mut graph = Graph::default();
    let y = large(&mut graph, 1000);
    graph.outputs.push(y);
    check(&cuda, &graph);
    assert_eq!(read(&cuda, &kept), vec![1; 5 << 20]);
}

#[test]
fn more_than_two_to_the_31_elements_are_right() {
    let Some(cuda) = cuda() else { return };
    let elements = (1usize << 31) + 77;
    let mut graph = Graph::default();
    let y = large(&mut graph, elements);
    let wide = graph.push(Op::Cast(DType::I64), &[y]).unwrap();
    let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [0].as_slice().into() }, &[wide]).unwrap();
    let tail = Op::Slice { starts: [elements - 3].as_slice().into(), steps: [1].as_slice().into() };
    let tail = graph.push_shaped(tail, &[y], [3]).unwrap();
    graph.outputs = vec![y, sum, tail];
    let outcome = cuda.execute(&graph, upload(&cuda, &graph, &[vec![3]])).unwrap();
    assert_eq!(outcome.outputs[0].len(), elements);
    assert_eq!(read(&cuda, &outcome.outputs[1]), (elements as i64 * 6).to_le_bytes());
    assert_eq!(read(&cuda, &outcome.outputs[2]), [6, 6, 6]);
}

#[test]
fn memory_stays_flat_over_changing_shapes() {
    let mut options = CudaOptions::default();
    options.pool = true;
    let Some(cuda) = cuda_with(options) else { return };
    let mut reserved = Vec::new();
    for step in 0..300 {
        let rows = 1 + step * 37 % 150;
        let mut graph = Graph::default();
        let x = graph.input(DType::F32, [rows, 512]);
        let w = graph.input(DType::F32, [512, 256]);
        let y = graph.push(Op::Matmul { out: DType::F32 }, &[x, w]).unwrap();
        let y = graph.push(Op::Unary(UnaryOp::Exp), &[y]).unwrap();
        let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [0, 1].as_slice().into() }, &[y]).unwrap();
        graph.outputs = vec![sum];
        let inputs = [whole_numbers(DType::F32, rows * 512, step), whole_numbers(DType::F32, 512 * 256, step)];
        cuda.execute(&graph, upload(&cuda, &graph, &inputs)).unwrap();
        reserved.push(cuda.memory().reserved);
    }
    assert_eq!(reserved[150], reserved[299], "all shapes were seen after half of the steps");
    let counters = cuda.counters();
    let compiled: u64 = counters.iter().filter(|(name, _)| name.starts_with("kernels_")).map(|(_, n)| n).sum();
    assert!(compiled < 20, "a new shape needs no new kernel: {compiled}");
}

#[test]
fn threads_may_upload_while_graphs_run() {
    let Some(cuda) = cuda() else { return };
    let mut graph = Graph::default();
    let x = graph.input(DType::F32, [1 << 16]);
    let mut y = x;
    for _ in 0..3 {
        y = graph.push(Op::Binary(BinaryOp::Add), &[y, x]).unwrap();
    }
    graph.outputs.push(y);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cuda, graph) = (&cuda, &graph);
            scope.spawn(move || {
                for round in 0..50 {
                    let value = (thread * 50 + round) as f32;
                    let bytes: Vec<u8> = (0..1 << 16).flat_map(|_| value.to_le_bytes()).collect();
                    let outcome = cuda.execute(graph, upload(cuda, graph, &[bytes])).unwrap();
                    let got = read(cuda, &outcome.outputs[0]);
                    let want = (4.0 * value).to_le_bytes();
                    assert!(got.as_chunks::<4>().0.iter().all(|got| *got == want), "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn uploads_of_all_sizes_come_back() {
    let Some(cuda) = cuda() else { return };
    for len in [0, 1, 255, 64 << 10, (64 << 10) + 1, 8 << 20, (8 << 20) + 3, 40 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
        let buffer = cuda.upload(DType::U8, &bytes).unwrap();
        assert!(read(&cuda, &buffer) == bytes, "{len} bytes");
    }
}
