//! A backend written outside the floors: it counts the ops of every graph and lets another backend run it.
//!
//! It uses what any third party could: the public [`Backend`] trait and nothing else.

use fornax_ir::{Backend, BoxFuture, Buffer, DType, DeviceError, Graph, Memory, Outcome};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Ops seen, by name.
pub type Counts = Arc<Mutex<BTreeMap<&'static str, u64>>>;

/// Counts ops, then hands the graph on.
#[derive(Debug)]
pub struct Counting<B> {
    inner: B,
    counts: Counts,
}

impl<B: Backend> Counting<B> {
    /// Wraps a backend; the counts can be read while it works.
    pub fn new(inner: B) -> (Counting<B>, Counts) {
        let counts = Counts::default();
        (Counting { inner, counts: counts.clone() }, counts)
    }
}

impl<B: Backend> Backend for Counting<B> {
    fn name(&self) -> String {
        format!("counting-{}", self.inner.name())
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        self.inner.upload(dtype, bytes)
    }

    fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        self.inner.download(buffer, len)
    }

    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        let mut counts = self.counts.lock().expect("counting does not panic");
        for node in &graph.nodes {
            *counts.entry(node.op.name()).or_default() += 1;
        }
        drop(counts);
        self.inner.execute(graph, inputs)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.inner.synchronize()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_ir::ReferenceBackend;
    use fornax_tensor::{Device, Tensor};

    #[test]
    fn tensors_run_on_a_backend_from_outside() {
        let (backend, counts) = Counting::new(ReferenceBackend::new());
        let device = Device::new(backend);
        let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], [3], &device).requires_grad();
        let loss = (&x * &x).sum(());
        let gradients = loss.backward();
        assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), [2.0, 4.0, 6.0]);
        assert_eq!(loss.item::<f32>(), 14.0);
        assert_eq!(device.name(), "counting-reference");
        assert!(counts.lock().unwrap()["mul"] >= 2);
    }

    #[test]
    fn what_nobody_can_ask_for_never_reaches_the_backend() {
        let (backend, counts) = Counting::new(ReferenceBackend::new());
        let device = Device::new(backend);
        let x = Tensor::from_vec(vec![1.0f32, 2.0], [2], &device);
        drop(x.exp());
        assert_eq!((&x + &x).to_vec::<f32>(), [2.0, 4.0]);
        assert!(!counts.lock().unwrap().contains_key("exp"));
    }
}
