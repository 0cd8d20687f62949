//! `cargo xtask fuzz`: random graphs on a device, held against the reference interpreter.

use fornax_cpu::CpuBackend;
use fornax_ir::fuzz::{case, expect, shrink};
use fornax_ir::{Backend, Graph};
use fornax_kernel::Settings;
use fornax_kernel::lockstep::LockstepBackend;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Runs cases from `seed` on for so long on the device of this name: `cpu`, or `lockstep`, which is the kernels of a GPU
/// on the host. Prints the first difference, shrunk. Tells whether there was none.
pub fn run(device: &str, time: Duration, seed: u64) -> Result<bool, String> {
    match device {
        "cpu" => Ok(run_on(device, &[1, 2].map(CpuBackend::with_threads), time, seed)),
        "lockstep" => Ok(run_on(device, &[false, true].map(lockstep), time, seed)),
        _ => Err(format!("there is no device {device:?} to fuzz: cpu, lockstep")),
    }
}

/// With places of 32 or 64 bits.
fn lockstep(wide_places: bool) -> LockstepBackend {
    LockstepBackend::with_settings(Settings { wide_places })
}

fn run_on(device: &str, backends: &[impl Backend], time: Duration, seed: u64) -> bool {
    let start = Instant::now();
    let mut cases = 0;
    while start.elapsed() < time {
        let number = seed.wrapping_add(cases);
        if let Some((graph, why)) = failure(backends, number) {
            println!("seed {number}: {why}\n{graph}\n{}", fornax_compile::compile(&graph));
            println!("once more: cargo xtask fuzz --device {device} --seconds 1 --seed {number}");
            return false;
        }
        cases += 1;
    }
    println!("{cases} random graphs from seed {seed} on: {device} agrees with the interpreter");
    true
}

/// The case of `seed`, shrunk, and what is wrong with its results, if anything.
fn failure(backends: &[impl Backend], seed: u64) -> Option<(Graph, String)> {
    let (graph, inputs) = case(seed);
    let why = difference(backends, &graph, &inputs)?;
    let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| difference(backends, graph, inputs).is_some();
    let (graph, inputs) = shrink(graph, inputs, &mut fails);
    let why = difference(backends, &graph, &inputs).unwrap_or(why);
    Some((graph, why))
}

/// What the backends do otherwise than the interpreter or than each other, if anything.
fn difference(backends: &[impl Backend], graph: &Graph, inputs: &[Vec<u8>]) -> Option<String> {
    let expected = match expect(graph, inputs) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("the interpreter refuses: {error}")),
    };
    let mut first: Option<Vec<Vec<u8>>> = None;
    for backend in backends {
        // The second run finds the plan of the first.
        for _ in 0..2 {
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
            if first.get_or_insert_with(|| got.clone()) != &got {
                return Some(String::from("other bits on another run or number of threads"));
            }
        }
    }
    None
}

fn outputs(backend: &impl Backend, graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut buffers = Vec::new();
    for (&node, bytes) in graph.inputs().iter().zip(inputs) {
        buffers.push(backend.upload(graph[node].dtype, bytes).map_err(|error| error.to_string())?);
    }
    let outcome = backend.execute(graph, buffers).map_err(|error| error.to_string())?;
    if let Some(fault) = outcome.faults.first() {
        return Err(fault.message.clone());
    }
    if outcome.outputs.len() != graph.outputs.len() {
        return Err(format!("{} outputs in place of {}", outcome.outputs.len(), graph.outputs.len()));
    }
    let mut all = Vec::new();
    for (buffer, &node) in outcome.outputs.iter().zip(&graph.outputs) {
        let len = graph[node].shape.numel() * graph[node].dtype.size();
        let mut download = backend.download(buffer, len);
        let bytes = loop {
            match download.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(bytes) => break bytes.map_err(|error| error.to_string())?,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        all.push(bytes);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_ir::{BoxFuture, Buffer, DType, DeviceError, Memory, Op, Outcome, UnaryOp};

    /// A device that computes the cosine for the sine.
    #[derive(Debug)]
    struct Wrong(CpuBackend);

    impl Backend for Wrong {
        fn name(&self) -> String {
            self.0.name()
        }
        fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
            self.0.upload(dtype, bytes)
        }
        fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
            self.0.download(buffer, len)
        }
        fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError> {
            let mut graph = graph.clone();
            for node in &mut graph.nodes {
                if node.op == Op::Unary(UnaryOp::Sin) {
                    node.op = Op::Unary(UnaryOp::Cos);
                }
            }
            self.0.execute(&graph, inputs)
        }
        fn synchronize(&self) -> Result<(), DeviceError> {
            self.0.synchronize()
        }
        fn memory(&self) -> Memory {
            self.0.memory()
        }
    }

    #[test]
    fn a_wrong_device_is_found_and_the_graph_shrunk() {
        let found = (0..400).find_map(|seed| failure(&[Wrong(CpuBackend::with_threads(1))], seed));
        let (graph, why) = found.expect("some graph has a sine");
        assert!(graph.nodes.iter().any(|node| node.op == Op::Unary(UnaryOp::Sin)), "{graph}");
        assert!(graph.nodes.len() <= 3, "{graph}");
        assert!(why.starts_with("output 0: element"), "{why}");
    }
}
