//! [`Backend`]: what a device must do. Graphs go in, buffers come out.

use crate::{DType, Graph, NodeId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::future::Future;
use core::pin::Pin;

/// A device: memory and a queue that runs graphs. Object-safe; third parties may implement it.
///
/// Calls come from one thread at a time for each queue of work, in the order in which the work was recorded.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The name users select it by, with its index where there are several: `cpu`, `cuda:1`.
    fn name(&self) -> String;

    /// Copies `bytes` (row-major, little-endian elements of `dtype`) to the device.
    ///
    /// # Errors
    /// If the device has no room or is lost.
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Buffer, DeviceError>;

    /// Copies a buffer's first `len` bytes back, once the work that writes it is done.
    fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>>;

    /// Queues a graph. `inputs[slot]` holds the value of [`crate::Op::Input`]`(slot)`, row-major; the result holds one
    /// row-major buffer an output. A buffer given away (its only handle) may be reused in place.
    ///
    /// # Errors
    /// If nothing could be run: out of memory, an op or dtype this device does not have, a lost device. Trouble with
    /// one op's data is not an error but a [`Fault`].
    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError>;

    /// Waits for all queued work.
    ///
    /// # Errors
    /// If queued work failed or the device is lost.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Memory now and at its peak.
    fn memory(&self) -> Memory;

    /// Counters since the start, by name, for reports: kernels, bytes read and written, plans compiled, cache hits, …
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Forgets the peak of [`Backend::memory`].
    fn reset_peak_memory(&self) {}
}

/// A boxed future; on targets without threads nothing needs it to be `Send`, but all ours are.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What running a graph gives.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One buffer an output of the graph.
    pub outputs: Vec<Buffer>,
    /// Ops whose data was wrong. Their results, and all that depends on them, hold arbitrary values; all else is right.
    pub faults: Vec<Fault>,
}

/// An op met data it cannot work with: an index out of range, an integer division by zero, a singular matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The op.
    pub node: NodeId,
    /// What was wrong, with values: `index 7 is out of range for dim 0 of size 5`.
    pub message: String,
}

/// Device memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Held by live buffers.
    pub in_use: u64,
    /// The most that live buffers held at one time.
    pub peak: u64,
    /// Taken from the system, free parts of pools included.
    pub reserved: u64,
    /// Allocations asked of the system.
    pub allocations: u64,
}

/// A shared handle to device memory. The backend that made it knows what is inside.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<dyn DeviceBuffer>);

/// The device's side of a [`Buffer`].
pub trait DeviceBuffer: Any + Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Whether it holds no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Buffer {
    /// Wraps a device's buffer.
    pub fn new(inner: impl DeviceBuffer) -> Buffer {
        Buffer(Arc::new(inner))
    }

    /// The inside, if it is a `T`.
    pub fn downcast<T: DeviceBuffer>(&self) -> Option<&T> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// The inside, to change, if it is a `T` and this is the only handle.
    pub fn downcast_mut<T: DeviceBuffer>(&mut self) -> Option<&mut T> {
        (Arc::get_mut(&mut self.0)? as &mut dyn Any).downcast_mut()
    }

    /// Whether this is the only handle.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether both handles share one memory.
    pub fn ptr_eq(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why a device could not do its work.
#[derive(Debug)]
pub struct DeviceError {
    kind: DeviceErrorKind,
    message: String,
}

/// Kinds of [`DeviceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// There is no such device, or its driver is missing.
    Unavailable,
    /// No room for a buffer.
    OutOfMemory,
    /// An op, dtype or size that the device does not have.
    Unsupported,
    /// The device is gone.
    Lost,
    /// A buffer of another device, a wrong input: a mistake of the caller.
    Misuse,
}

impl DeviceError {
    /// An error of `kind`.
    #[cold]
    pub fn new(kind: DeviceErrorKind, message: impl Into<String>) -> DeviceError {
        DeviceError { kind, message: message.into() }
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> DeviceErrorKind {
        self.kind
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for DeviceError {}
