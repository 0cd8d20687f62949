//! [`MetaBackend`]: a device without memory, which works out shapes and counts operations.

use crate::{
    Backend, BoxFuture, Buffer, DType, DeviceBuffer, DeviceError, DeviceErrorKind, Graph, Memory, Op, Outcome,
};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device that computes nothing and keeps nothing: its values have shape and dtype only. It counts the arithmetic that
/// another device would do, as the counter `flops`: a product and a sum count two, every other element one.
///
/// ```
/// use fornax_ir::{Backend, DType, Graph, MetaBackend, Op};
/// let device = MetaBackend::default();
/// let mut graph = Graph::default();
/// let (a, b) = (graph.input(DType::F32, [1 << 20, 1 << 20]), graph.input(DType::F32, [1 << 20, 8]));
/// let c = graph.push(Op::Matmul { out: DType::F32 }, &[a, b])?;
/// graph.outputs.push(c);
/// let inputs = vec![device.empty(1 << 42), device.empty(1 << 25)];
/// device.execute(&graph, inputs).unwrap();
/// assert_eq!(device.counters(), [("flops", 1 << 44)]);
/// # Ok::<(), fornax_ir::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MetaBackend {
    flops: AtomicU64,
}

/// So many bytes that are not there.
#[derive(Debug)]
struct Nothing(usize);

impl DeviceBuffer for Nothing {
    fn len(&self) -> usize {
        self.0
    }
}

impl MetaBackend {
    /// A buffer that stands for `len` bytes.
    pub fn empty(&self, len: usize) -> Buffer {
        Buffer::new(Nothing(len))
    }
}

impl Backend for MetaBackend {
    fn name(&self) -> String {
        "meta".to_string()
    }

    fn upload(&self, _: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        Ok(self.empty(bytes.len()))
    }

    fn download<'a>(&'a self, _: &'a Buffer, _: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        let error = DeviceError::new(DeviceErrorKind::Misuse, "values on the device meta have a shape only");
        Box::pin(core::future::ready(Err(error)))
    }

    fn execute(&self, graph: &Graph, _: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        let flops: u64 = graph.nodes.iter().map(|node| flops(graph, node)).sum();
        self.flops.fetch_add(flops, Relaxed);
        let len = |node: &crate::Node| node.shape.numel() * node.dtype.size();
        Ok(Outcome {
            outputs: graph.outputs.iter().map(|&id| self.empty(len(&graph[id]))).collect(),
            ..Outcome::default()
        })
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::from([("flops", self.flops.load(Relaxed))])
    }
}

/// The arithmetic of a node.
fn flops(graph: &Graph, node: &crate::Node) -> u64 {
    let numel = node.shape.numel() as u64;
    let operand = |i: usize| &graph[node.inputs[i]].shape;
    match &node.op {
        Op::Matmul { .. } => 2 * numel * operand(0).last().copied().unwrap_or(1) as u64,
        // The weight is `[out, in / groups, kernel…]`.
        Op::Conv(_) => 2 * numel * operand(1).dims()[1..].iter().product::<usize>() as u64,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => numel,
        Op::Reduce { .. } => operand(0).numel() as u64,
        _ => 0,
    }
}
