//! `cargo xtask fuzz`: random graphs on a device, held against the reference interpreter.

use fornax_cpu::CpuBackend;
use fornax_ir::fuzz::{case, expect, shrink};
use fornax_ir::{Backend, Graph};
use fornax_kernel::Settings;
use fornax_kernel::lockstep::LockstepBackend;
use fornax_tensor::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often each graph runs: the second run finds the plan of the first. On a GPU the third makes a CUDA graph of it,
/// later ones change its addresses.
const RUNS: usize = 2;
const GPU_RUNS: usize = 5;

/// Runs cases from `seed` on for so long on the device of this name; `lockstep` is the kernels of a GPU on the host.
/// Prints the first difference, shrunk. Tells whether there was none.
pub fn run(device: &str, time: Duration, seed: u64) -> Result<bool, String> {
    match device {
        "cpu" => {
            let [one, two] = [1, 2].map(CpuBackend::with_threads);
            Ok(run_on(device, &Devices { backends: &[&one, &two], runs: RUNS }, time, seed))
        }
        "lockstep" => {
            // With places of 32 and of 64 bits.
            let [narrow, wide] =
                [false, true].map(|wide_places| LockstepBackend::with_settings(Settings { wide_places }));
            Ok(run_on(device, &Devices { backends: &[&narrow, &wide], runs: RUNS }, time, seed))
        }
        _ => {
            let found = Device::from_name(device).map_err(|error| error.to_string())?;
            Ok(run_on(device, &Devices { backends: &[found.backend()], runs: GPU_RUNS }, time, seed))
        }
    }
}

/// What must agree, and how often each graph runs on it.
struct Devices<'a> {
    backends: &'a [&'a dyn Backend],
    runs: usize,
}

fn run_on(device: &str, devices: &Devices<'_>, time: Duration, seed: u64) -> bool {
    let start = Instant::now();
    let mut cases = 0;
    while start.elapsed() < time {
        let number = seed.wrapping_add(cases);
        if let Some((graph, why)) = failure(devices, number) {
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
fn failure(devices: &Devices<'_>, seed: u64) -> Option<(Graph, String)> {
    let (graph, inputs) = case(seed);
    let why = difference(devices, &graph, &inputs)?;
    let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| difference(devices, graph, inputs).is_some();
    let (graph, inputs) = shrink(graph, inputs, &mut fails);
    let why = difference(devices, &graph, &inputs).unwrap_or(why);
    Some((graph, why))
}

/// What the backends do otherwise than the interpreter or than each other, if anything.
fn difference(devices: &Devices<'_>, graph: &Graph, inputs: &[Vec<u8>]) -> Option<String> {
    let expected = match expect(graph, inputs) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("the interpreter refuses: {error}")),
    };
    let mut first: Option<Vec<Vec<u8>>> = None;
    for backend in devices.backends {
        for _ in 0..devices.runs {
            let got = match catch_unwind(AssertUnwindSafe(|| outputs(*backend, graph, inputs))) {
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

fn outputs(backend: &dyn Backend, graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
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
        let found = (0..400)
            .find_map(|seed| failure(&Devices { backends: &[&Wrong(CpuBackend::with_threads(1))], runs: RUNS }, seed));
        let (graph, why) = found.expect("some graph has a sine");
        assert!(graph.nodes.iter().any(|node| node.op == Op::Unary(UnaryOp::Sin)), "{graph}");
        assert!(graph.nodes.len() <= 3, "{graph}");
        assert!(why.starts_with("output 0: element"), "{why}");
    }
}
