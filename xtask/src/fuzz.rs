//! `cargo xtask fuzz`: random graphs on the CPU device, held against the reference interpreter.

use fornax_cpu::CpuBackend;
use fornax_ir::fuzz::{case, expect, shrink};
use fornax_ir::{Backend, Graph};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Runs cases from `seed` on for so long; prints the first difference, shrunk. Tells whether there was none.
pub fn run(time: Duration, seed: u64) -> bool {
    let backends = [1, 2].map(CpuBackend::with_threads);
    let start = Instant::now();
    let mut cases = 0;
    while start.elapsed() < time {
        let number = seed.wrapping_add(cases);
        let (graph, inputs) = case(number);
        if difference(&backends, &graph, &inputs).is_some() {
            let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| difference(&backends, graph, inputs).is_some();
            let (graph, inputs) = shrink(graph, inputs, &mut fails);
            let why = difference(&backends, &graph, &inputs).unwrap_or_default();
            println!("seed {number}: {why}\n{graph}\n{}", fornax_compile::compile(&graph));
            return false;
        }
        cases += 1;
    }
    println!("{cases} random graphs from seed {seed} on: the CPU agrees with the interpreter");
    true
}

/// What the CPU does otherwise than the interpreter, if anything.
fn difference(backends: &[CpuBackend], graph: &Graph, inputs: &[Vec<u8>]) -> Option<String> {
    let expected = match expect(graph, inputs) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("the interpreter refuses: {error}")),
    };
    let mut first: Option<Vec<Vec<u8>>> = None;
    for backend in backends {
        let got = match catch_unwind(AssertUnwindSafe(|| outputs(backend, graph, inputs))) {
            Ok(Ok(got)) => got,
            Ok(Err(message)) => return Some(message),
            Err(_) => return Some(String::from("panicked")),
        };
        for (i, (expected, got)) in expected.iter().zip(&got).enumerate() {
            if let Some(mismatch) = expected.compare(got) {
                return Some(format!("output {i}: {mismatch}"));
            }
        }
        if first.as_ref().is_some_and(|first| *first != got) {
            return Some(String::from("other bits on another number of threads"));
        }
        first = Some(got);
    }
    None
}

fn outputs(backend: &CpuBackend, graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let slots = graph.inputs();
    let mut buffers = Vec::new();
    for (&node, bytes) in slots.iter().zip(inputs) {
        buffers.push(backend.upload(graph[node].dtype, bytes).map_err(|error| error.to_string())?);
    }
    let outcome = backend.execute(graph, buffers).map_err(|error| error.to_string())?;
    if let Some(fault) = outcome.faults.first() {
        return Err(fault.message.clone());
    }
    let mut all = Vec::new();
    for (buffer, &node) in outcome.outputs.iter().zip(&graph.outputs) {
        let len = graph[node].shape.numel() * graph[node].dtype.size();
        let mut future = backend.download(buffer, len);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(bytes) => all.push(bytes.map_err(|error| error.to_string())?),
            std::task::Poll::Pending => return Err(String::from("the CPU's data is not ready")),
        }
    }
    Ok(all)
}
