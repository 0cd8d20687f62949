//! [`ReferenceBackend`]: the interpreter as a device, to hold other devices against.

use crate::{
    Backend, BoxFuture, Buffer, DType, DeviceBuffer, DeviceError, DeviceErrorKind, ErrorKind, Graph, Memory, Outcome,
    interpret,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A device that runs every graph by [`interpret`], at once, on the calling thread.
///
/// ```
/// use fornax_ir::{Backend, DType, Graph, Op, ReferenceBackend, UnaryOp};
/// let device = ReferenceBackend::new();
/// let mut graph = Graph::default();
/// let x = graph.input(DType::U8, [2]);
/// let y = graph.push(Op::Unary(UnaryOp::Not), &[x])?;
/// graph.outputs.push(y);
/// let x = device.upload(DType::U8, &[0, 0xF0]).unwrap();
/// let outcome = device.execute(&graph, vec![x]).unwrap();
/// assert_eq!(device.bytes(&outcome.outputs[0]).unwrap(), [0xFF, 0x0F]);
/// assert_eq!((device.memory().in_use, device.memory().peak), (2, 4));
/// # Ok::<(), fornax_ir::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ReferenceBackend {
    counts: Arc<Counts>,
}

/// In bytes, but for `allocations`.
#[derive(Debug, Default)]
struct Counts {
    in_use: AtomicUsize,
    peak: AtomicUsize,
    allocations: AtomicUsize,
}

#[derive(Debug)]
struct HostBuffer {
    bytes: Vec<u8>,
    counts: Arc<Counts>,
}

impl DeviceBuffer for HostBuffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        self.counts.in_use.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl ReferenceBackend {
    /// A device without buffers.
    pub fn new() -> ReferenceBackend {
        ReferenceBackend::default()
    }

    /// The bytes of a buffer of this kind of device.
    ///
    /// # Errors
    /// If the buffer belongs to another device.
    pub fn bytes<'a>(&self, buffer: &'a Buffer) -> Result<&'a [u8], DeviceError> {
        let buffer: Option<&HostBuffer> = buffer.downcast();
        let foreign = || DeviceError::new(DeviceErrorKind::Misuse, "the buffer is not of the reference device");
        buffer.map(|buffer| buffer.bytes.as_slice()).ok_or_else(foreign)
    }

    fn allocate(&self, bytes: Vec<u8>) -> Buffer {
        let in_use = self.counts.in_use.fetch_add(bytes.len(), Relaxed) + bytes.len();
        self.counts.peak.fetch_max(in_use, Relaxed);
        self.counts.allocations.fetch_add(1, Relaxed);
        Buffer::new(HostBuffer { bytes, counts: self.counts.clone() })
    }
}

impl Backend for ReferenceBackend {
    fn name(&self) -> String {
        "reference".into()
    }

    fn upload(&self, _dtype: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        Ok(self.allocate(bytes.to_vec()))
    }

    fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        let bytes = self.bytes(buffer).and_then(|bytes| prefix(bytes, len)).map(<[u8]>::to_vec);
        Box::pin(core::future::ready(bytes))
    }

    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        let misuse = |error: crate::Error| {
            let kind = match error.kind() {
                ErrorKind::Execution => DeviceErrorKind::OutOfMemory,
                _ => DeviceErrorKind::Misuse,
            };
            DeviceError::new(kind, format!("{error}"))
        };
        graph.verify().map_err(misuse)?;
        let mut slices = Vec::with_capacity(inputs.len());
        for (i, buffer) in inputs.iter().enumerate() {
            let node = graph.inputs().get(i).map(|&id| &graph[id]);
            let len = node.map_or(buffer.len(), |node| node.shape.numel() * node.dtype.size());
            slices.push(prefix(self.bytes(buffer)?, len)?);
        }
        let result = interpret(graph, &slices).map_err(misuse)?;
        let outputs = result.outputs.into_iter().map(|bytes| self.allocate(bytes)).collect();
        Ok(Outcome { outputs, faults: result.faults })
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory(&self) -> Memory {
        let load = |count: &AtomicUsize| count.load(Relaxed) as u64;
        let in_use = load(&self.counts.in_use);
        let allocations = load(&self.counts.allocations);
        Memory { in_use, peak: load(&self.counts.peak), reserved: in_use, allocations }
    }

    fn reset_peak_memory(&self) {
        self.counts.peak.store(self.counts.in_use.load(Relaxed), Relaxed);
    }
}

fn prefix(bytes: &[u8], len: usize) -> Result<&[u8], DeviceError> {
    bytes.get(..len).ok_or_else(|| {
        DeviceError::new(DeviceErrorKind::Misuse, format!("the buffer holds {} bytes, not {len}", bytes.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BinaryOp, Op};
    use alloc::vec;

    #[test]
    fn memory_counts_live_buffers() {
        let device = ReferenceBackend::new();
        let a = device.upload(DType::F32, &[0; 16]).unwrap();
        let b = a.clone();
        drop(a);
        assert_eq!(device.memory().in_use, 16);
        drop(b);
        assert_eq!(device.memory(), Memory { in_use: 0, peak: 16, reserved: 0, allocations: 1 });
        device.reset_peak_memory();
        assert_eq!(device.memory().peak, 0);
    }

    #[test]
    fn wrong_inputs_are_errors_and_wrong_data_is_a_fault() {
        let device = ReferenceBackend::new();
        let mut graph = Graph::default();
        let x = graph.input(DType::U8, [2]);
        let quotient = graph.push(Op::Binary(BinaryOp::Div), &[x, x]).unwrap();
        graph.outputs.push(quotient);
        let upload = |bytes: &[u8]| device.upload(DType::U8, bytes).unwrap();
        for inputs in [vec![], vec![upload(&[1])], vec![upload(&[1, 2]), upload(&[1, 2])]] {
            assert_eq!(device.execute(&graph, inputs).unwrap_err().kind(), DeviceErrorKind::Misuse);
        }
        let outcome = device.execute(&graph, vec![upload(&[7, 0])]).unwrap();
        assert_eq!(device.bytes(&outcome.outputs[0]).unwrap(), [1, 0]);
        assert_eq!(outcome.faults.len(), 1);
        assert_eq!(outcome.faults[0].message, "integer division by zero");
    }
}
