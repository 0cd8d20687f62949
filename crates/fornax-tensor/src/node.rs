//! [`Node`]: a value that is wanted, is being made, or is there. [`Value`]: a live handle to one.

use crate::Device;
use crate::sync::Mutex;
use crate::transforms::Batched;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::panic::Location;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use fornax_ir::{Buffer, DType, Error, Op, Shape};
use smallvec::SmallVec;

/// One recorded op and, once it has run, its result.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) source: &'static Location<'static>,
    pub(crate) state: Mutex<State>,
    /// All examples at once, if this is one of them inside `vmap`. Such a node is in no log.
    pub(crate) batched: Option<Box<Batched>>,
    /// Live [`Value`]s. A node without any is never materialized, and a buffer without any may be overwritten.
    handles: AtomicUsize,
    /// Place in the device's log while pending; later, among the inputs of the graph that is being made.
    pub(crate) position: AtomicU32,
    /// Number of the newest log that has it as an operand; 0 for none.
    pub(crate) last_log: AtomicU64,
}

#[derive(Debug)]
pub(crate) enum State {
    /// Recorded, not run.
    Pending(Pending),
    /// In a graph that runs at this moment.
    Running,
    /// On the device.
    Done(Buffer),
    /// Could not be made.
    Failed(Error),
    /// Not wanted any more.
    Dropped,
    /// One example of a batch: only the batch has a value.
    Example,
}

/// What to do. The operands are edges, not handles.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) op: Op,
    pub(crate) inputs: SmallVec<[Arc<Node>; 3]>,
}

impl Node {
    pub(crate) fn pending(
        op: Op,
        inputs: SmallVec<[Arc<Node>; 3]>,
        dtype: DType,
        shape: Shape,
        source: &'static Location<'static>,
    ) -> Node {
        Node::new(State::Pending(Pending { op, inputs }), dtype, shape, source)
    }

    pub(crate) fn done(buffer: Buffer, dtype: DType, shape: Shape, source: &'static Location<'static>) -> Node {
        Node::new(State::Done(buffer), dtype, shape, source)
    }

    /// One example of a batch.
    pub(crate) fn example(batched: Batched, shape: Shape, source: &'static Location<'static>) -> Node {
        let dtype = batched.tensor.dtype();
        Node { batched: Some(Box::new(batched)), ..Node::new(State::Example, dtype, shape, source) }
    }

    fn new(state: State, dtype: DType, shape: Shape, source: &'static Location<'static>) -> Node {
        Node {
            dtype,
            shape,
            source,
            state: Mutex::new(state),
            batched: None,
            handles: AtomicUsize::new(0),
            position: AtomicU32::new(0),
            last_log: AtomicU64::new(0),
        }
    }

    /// Whether anybody can still ask for this value once log `generation` has run: through a handle, or through an op
    /// that another thread recorded meanwhile.
    pub(crate) fn outlives(&self, generation: u64) -> bool {
        // In this order: whoever records an op holds a handle to its operands, and drops it afterwards.
        self.handles.load(Ordering::Acquire) > 0 || self.last_log.load(Ordering::Acquire) > generation
    }
}

/// A live handle to a node. Cloning counts up, dropping counts down; edges between nodes don't count.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) node: Arc<Node>,
    pub(crate) device: Device,
}

impl Value {
    pub(crate) fn new(node: Arc<Node>, device: Device) -> Value {
        node.handles.fetch_add(1, Ordering::Relaxed);
        Value { node, device }
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        Value::new(self.node.clone(), self.device.clone())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.node.handles.fetch_sub(1, Ordering::Release);
    }
}
