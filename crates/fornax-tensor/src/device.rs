//! [`Device`]: where tensors live, and the queue that decides when their work runs.
//!
//! Ops are appended to the device's log. At a cut (a value is read, [`Device::flush`], an optimizer step, a full log)
//! all that is still wanted goes to the backend as one [`Graph`].

use crate::node::{Node, Pending, State, Value};
use crate::sync::{Mutex, OnceLock};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};
use fornax_ir::{
    Backend, Buffer, DType, DeviceError, DeviceErrorKind, Error, ErrorKind, Graph, Memory, NodeId, Op, Outcome,
    ReferenceBackend, Shape, Source,
};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// The log is run when it reaches this length, so that a program that never reads keeps memory bounded.
const LOG_LIMIT: usize = 16 * 1024;

/// A device: memory, a queue of recorded work, and a random generator. Cloning gives another handle to the same one.
///
/// ```
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], [3], &device);
/// assert_eq!((x * 2.0).to_vec::<f32>(), [2.0, 4.0, 6.0]);
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    name: String,
    backend: Box<dyn Backend>,
    log: Mutex<Log>,
    /// Held while a graph runs. Recording goes on meanwhile.
    running: Mutex<()>,
    generator: Mutex<Generator>,
    graphs_run: AtomicU64,
}

/// Recorded, not yet run.
struct Log {
    nodes: Vec<Arc<Node>>,
    /// Its number; the first is 1.
    generation: u64,
    /// Ops recorded so far, in all logs.
    recorded: u64,
}

/// The device's random stream: Philox counters handed out in order.
#[derive(Clone, Copy, Debug)]
struct Generator {
    seed: u64,
    offset: u64,
}

impl Device {
    /// The CPU: all cores, fused and vectorized.
    pub fn cpu() -> Device {
        static CPU: OnceLock<Device> = OnceLock::new();
        CPU.get_or_init(|| Device::new(fornax_cpu::CpuBackend::new())).clone()
    }

    /// The CPU with a kernel for each op: to tell what fusion saves, and to look for its mistakes.
    pub fn cpu_unfused() -> Device {
        static CPU: OnceLock<Device> = OnceLock::new();
        CPU.get_or_init(|| Device::new(fornax_cpu::CpuBackend::new().without_fusion())).clone()
    }

    /// The reference interpreter: slow, plain, the oracle for all other devices.
    pub fn reference() -> Device {
        static REFERENCE: OnceLock<Device> = OnceLock::new();
        REFERENCE.get_or_init(|| Device::new(ReferenceBackend::new())).clone()
    }

    /// The NVIDIA GPU of this index. All handles to it share one queue, one memory pool and one random generator.
    ///
    /// # Errors
    /// If there is no such GPU, or its driver is missing or too old; the message tells what to do.
    #[cfg(feature = "cuda")]
    pub fn cuda(index: usize) -> Result<Device, DeviceError> {
        static CUDA: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());
        let mut known = CUDA.lock();
        if let Some((_, device)) = known.iter().find(|(other, _)| *other == index) {
            return Ok(device.clone());
        }
        let device = Device::new(fornax_cuda::CudaBackend::new(index)?);
        known.push((index, device.clone()));
        Ok(device)
    }

    /// The device that the environment variable `FORNAX_DEVICE` names, or else the fastest one present: the first
    /// NVIDIA GPU, if this build has the feature `cuda` and there is one, or the CPU.
    ///
    /// # Panics
    /// If `FORNAX_DEVICE` names no device; the message lists what there is.
    #[cfg(feature = "std")]
    #[track_caller]
    pub fn best() -> Device {
        match std::env::var("FORNAX_DEVICE") {
            Ok(name) => match Device::from_name(&name) {
                Ok(device) => device,
                Err(error) => panic!("FORNAX_DEVICE: {error}"),
            },
            #[cfg(feature = "cuda")]
            Err(_) => Device::cuda(0).unwrap_or_else(|_| Device::cpu()),
            #[cfg(not(feature = "cuda"))]
            Err(_) => Device::cpu(),
        }
    }

    /// The device with this name: `cpu`, `cpu-unfused`, `reference`, `cuda` for the first NVIDIA GPU, `cuda:1` for the
    /// second.
    ///
    /// # Errors
    /// If there is no such device; the message lists what there is.
    pub fn from_name(name: &str) -> Result<Device, DeviceError> {
        match name {
            "cpu" => return Ok(Device::cpu()),
            "cpu-unfused" => return Ok(Device::cpu_unfused()),
            "reference" => return Ok(Device::reference()),
            _ => {}
        }
        let index = if name == "cuda" { Some(0) } else { name.strip_prefix("cuda:").and_then(|idx| idx.parse().ok()) };
        match index {
            #[cfg(feature = "cuda")]
            Some(index) => Device::cuda(index),
            #[cfg(not(feature = "cuda"))]
            Some::<usize>(_) => Err(DeviceError::new(
                DeviceErrorKind::Unavailable,
                format!("{name}: this build has no NVIDIA GPUs; the feature `cuda` of `fornax` brings them"),
            )),
            None => {
                let cuda = if cfg!(feature = "cuda") { ", cuda, cuda:1, …" } else { "" };
                let message = format!("there is no device {name:?}; this build has: cpu, cpu-unfused, reference{cuda}");
                Err(DeviceError::new(DeviceErrorKind::Unavailable, message))
            }
        }
    }

    /// A device on a backend of one's own.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Arc::new(Inner {
            name: backend.name(),
            backend: Box::new(backend),
            log: Mutex::new(Log { nodes: Vec::new(), generation: 1, recorded: 0 }),
            running: Mutex::new(()),
            generator: Mutex::new(Generator { seed: 0, offset: 0 }),
            graphs_run: AtomicU64::new(0),
        }))
    }

    /// The name it is selected by.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The backend behind it.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// Starts the random stream anew: the same seed gives the same numbers on every device.
    pub fn seed(&self, seed: u64) {
        *self.0.generator.lock() = Generator { seed, offset: 0 };
    }

    /// Seed and position of the random stream, to save with a checkpoint.
    pub fn random_state(&self) -> (u64, u64) {
        let generator = *self.0.generator.lock();
        (generator.seed, generator.offset)
    }

    /// Continues a random stream at a position that [`Device::random_state`] gave.
    pub fn set_random_state(&self, (seed, offset): (u64, u64)) {
        *self.0.generator.lock() = Generator { seed, offset };
    }

    /// Takes counters for `words` random words from the stream.
    pub(crate) fn next_random(&self, words: usize) -> Op {
        let mut generator = self.0.generator.lock();
        let op = Op::Random { seed: generator.seed, offset: generator.offset };
        generator.offset = generator.offset.wrapping_add((words as u64).div_ceil(4));
        op
    }

    /// Runs all pending work whose result is still wanted. Errors stay with the values they belong to.
    pub fn flush(&self) {
        let _running = self.0.running.lock();
        let (log, generation) = {
            let mut log = self.0.log.lock();
            let generation = log.generation;
            log.generation = generation + 1;
            (core::mem::take(&mut log.nodes), generation)
        };
        if !log.is_empty() {
            self.run(&log, generation);
        }
    }

    /// Runs all pending work and waits for it.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.flush();
        self.0.backend.synchronize()
    }

    /// What this device did so far.
    pub fn report(&self) -> Report {
        Report {
            device: self.0.name.clone(),
            ops_recorded: self.0.log.lock().recorded,
            graphs_run: self.0.graphs_run.load(Ordering::Relaxed),
            memory: self.0.backend.memory(),
            counters: self.0.backend.counters(),
        }
    }

    /// Records an op.
    pub(crate) fn record(
        &self,
        op: Op,
        inputs: SmallVec<[Arc<Node>; 3]>,
        dtype: DType,
        shape: Shape,
        source: &'static Location<'static>,
    ) -> Value {
        let (value, is_full) = {
            let mut log = self.0.log.lock();
            for input in &inputs {
                input.last_log.store(log.generation, Ordering::Release);
            }
            let node = Arc::new(Node::pending(op, inputs, dtype, shape, source));
            node.position.store(log.nodes.len() as u32, Ordering::Relaxed);
            let value = Value::new(node.clone(), self.clone());
            log.nodes.push(node);
            log.recorded += 1;
            (value, log.nodes.len() >= LOG_LIMIT)
        };
        if is_full {
            self.flush();
        }
        value
    }

    /// Puts host data on the device.
    pub(crate) fn upload(
        &self,
        bytes: &[u8],
        dtype: DType,
        shape: Shape,
        source: &'static Location<'static>,
    ) -> Result<Value, DeviceError> {
        let buffer = self.0.backend.upload(dtype, bytes)?;
        Ok(Value::new(Arc::new(Node::done(buffer, dtype, shape, source)), self.clone()))
    }

    /// The buffer of a value, made now if it is pending.
    pub(crate) fn buffer(&self, node: &Node) -> Result<Buffer, Error> {
        if matches!(*node.state.lock(), State::Pending(_) | State::Running) {
            self.flush();
        }
        match &*node.state.lock() {
            State::Done(buffer) => Ok(buffer.clone()),
            State::Failed(error) => Err(error.clone()),
            State::Pending(_) | State::Running | State::Dropped => {
                let message = format!("the value recorded at {} was lost when its graph panicked", node.source);
                Err(Error::new(ErrorKind::Execution, "device", message))
            }
            State::Example => {
                let message = format!("the value recorded at {} is one example of a batch", node.source);
                Err(Error::new(ErrorKind::Execution, "vmap", message)
                    .help("read it after `vmap`, or return it from it"))
            }
        }
    }

    /// Hands the wanted part of the log to the backend as one graph. The caller holds `running`.
    fn run(&self, log: &[Arc<Node>], generation: u64) {
        let mut guard = FailOnPanic { log, armed: true };
        let mut lowered = Lowered { log, generation, ..Lowered::default() };
        lowered.ids.resize(log.len(), None);
        let wanted = take_wanted(log, generation);
        for (position, pending) in wanted.into_iter().rev() {
            lowered.lower(position, pending);
        }
        let is_root = |&position: &usize| lowered.ids[position].is_some() && log[position].outlives(generation);
        let roots: Vec<usize> = (0..log.len()).filter(is_root).collect();
        let Lowered { mut graph, ids, buffers, failed, .. } = lowered;
        graph.outputs = roots.iter().filter_map(|&position| ids[position]).collect();

        let outcome = if roots.is_empty() {
            Ok(Outcome::default())
        } else {
            self.0.graphs_run.fetch_add(1, Ordering::Relaxed);
            self.0.backend.execute(&graph, buffers)
        };
        let mut states: Vec<(usize, State)> = Vec::with_capacity(roots.len() + failed.len());
        match outcome {
            Ok(outcome) => {
                let faults = spread_faults(&graph, &outcome);
                for (&position, buffer) in roots.iter().zip(outcome.outputs) {
                    let id = ids[position].expect("roots are in the graph");
                    let state = match faults.get(&id) {
                        Some(error) => State::Failed(error.clone()),
                        None => State::Done(buffer),
                    };
                    states.push((position, state));
                }
            }
            Err(error) => {
                states.extend(
                    roots.iter().map(|&position| (position, State::Failed(device_error(&error, &log[position])))),
                );
            }
        }
        states.extend(failed.into_iter().map(|(position, error)| (position, State::Failed(error))));
        guard.armed = false;
        for (position, state) in states {
            *log[position].state.lock() = state;
        }
    }
}

/// Marks a log as failed if its graph panics: whoever asks for one of its values gets an error, and all else goes on.
struct FailOnPanic<'a> {
    log: &'a [Arc<Node>],
    armed: bool,
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        for node in self.log {
            let message = format!("the graph of the value recorded at {} panicked", node.source);
            *node.state.lock() = State::Failed(Error::new(ErrorKind::Execution, "device", message));
        }
    }
}

/// Takes the ops out of those nodes of the log that are asked for after it ran, or that one of these needs; the newest
/// comes first. All other ops are dropped; their operands live on in the log, so that no chain of them goes at once.
fn take_wanted(log: &[Arc<Node>], generation: u64) -> Vec<(usize, Pending)> {
    let mut is_needed = vec![false; log.len()];
    let mut wanted = Vec::with_capacity(log.len());
    for (position, node) in log.iter().enumerate().rev() {
        let outlives = node.outlives(generation);
        let next = if outlives { State::Running } else { State::Dropped };
        let State::Pending(pending) = core::mem::replace(&mut *node.state.lock(), next) else {
            unreachable!("only pending nodes are in the log");
        };
        if outlives || is_needed[position] {
            for input in &pending.inputs {
                if let Some(input) = place_in(log, input) {
                    is_needed[input] = true;
                }
            }
            wanted.push((position, pending));
        }
    }
    wanted
}

/// The place of a node in the log, if it is in this one.
fn place_in(log: &[Arc<Node>], node: &Arc<Node>) -> Option<usize> {
    let position = node.position.load(Ordering::Relaxed) as usize;
    log.get(position).is_some_and(|other| Arc::ptr_eq(other, node)).then_some(position)
}

/// A log on its way to a graph.
#[derive(Default)]
struct Lowered<'a> {
    log: &'a [Arc<Node>],
    graph: Graph,
    generation: u64,
    /// Node of the graph, by position in the log.
    ids: Vec<Option<NodeId>>,
    /// Values that are already there, with their nodes of the graph; [`Node::position`] tells the place here.
    inputs: Vec<(*const Node, NodeId)>,
    buffers: Vec<Buffer>,
    /// Values that cannot be made since an operand could not.
    failed: Vec<(usize, Error)>,
}

impl Lowered<'_> {
    fn lower(&mut self, position: usize, Pending { op, inputs }: Pending) {
        let mut operands: SmallVec<[NodeId; 3]> = SmallVec::new();
        for input in &inputs {
            match self.operand(input) {
                Ok(id) => operands.push(id),
                Err(error) => {
                    self.failed.push((position, error));
                    break;
                }
            }
        }
        if operands.len() == inputs.len() {
            let node = &self.log[position];
            let id = self.graph.push_node(fornax_ir::Node {
                op,
                inputs: operands,
                dtype: node.dtype,
                shape: node.shape.clone(),
                source: Source(Some(node.source)),
            });
            self.ids[position] = Some(id);
        }
    }

    fn operand(&mut self, input: &Arc<Node>) -> Result<NodeId, Error> {
        if let Some(position) = place_in(self.log, input) {
            return self.ids[position].ok_or_else(|| {
                let failed = self.failed.iter().find(|(failed, _)| *failed == position);
                failed.map(|(_, error)| error.clone()).expect("a wanted node is in the graph or failed")
            });
        }
        let pointer = Arc::as_ptr(input);
        let position = input.position.load(Ordering::Relaxed) as usize;
        if let Some(&(other, id)) = self.inputs.get(position)
            && other == pointer
        {
            return Ok(id);
        }
        let mut state = input.state.lock();
        let buffer = match &*state {
            // No handle is left, and no newer log uses it: give it away, so that it may be overwritten.
            State::Done(_) if !input.outlives(self.generation) => {
                match core::mem::replace(&mut *state, State::Dropped) {
                    State::Done(buffer) => buffer,
                    _ => unreachable!("matched above"),
                }
            }
            State::Done(buffer) => buffer.clone(),
            State::Failed(error) => return Err(error.clone()),
            State::Pending(_) | State::Running => unreachable!("older logs have run"),
            State::Dropped => unreachable!("an operand lives as long as its users"),
            State::Example => unreachable!("ops on examples are recorded on their batch"),
        };
        let id = self.graph.push_node(fornax_ir::Node {
            op: Op::Input(self.buffers.len() as u32),
            inputs: SmallVec::new(),
            dtype: input.dtype,
            shape: input.shape.clone(),
            source: Source(Some(input.source)),
        });
        self.buffers.push(buffer);
        input.position.store(self.inputs.len() as u32, Ordering::Relaxed);
        self.inputs.push((pointer, id));
        Ok(id)
    }
}

/// The error of every node that depends on a fault.
fn spread_faults(graph: &Graph, outcome: &Outcome) -> HashMap<NodeId, Error> {
    let mut errors = HashMap::new();
    if outcome.faults.is_empty() {
        return errors;
    }
    for (id, node) in graph.iter() {
        if let Some(fault) = outcome.faults.iter().find(|fault| fault.node == id) {
            let message = match node.source.0 {
                Some(source) => format!("{} (recorded at {source})", fault.message),
                None => fault.message.clone(),
            };
            errors.insert(id, Error::new(ErrorKind::Execution, node.op.name(), message));
        } else if let Some(error) = node.inputs.iter().find_map(|input| errors.get(input)).cloned() {
            errors.insert(id, error);
        }
    }
    errors
}

fn device_error(error: &DeviceError, node: &Node) -> Error {
    Error::new(ErrorKind::Execution, "device", format!("{error} (value recorded at {})", node.source))
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.name).finish()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

/// What a device did since the program started; subtract two for what happened in between.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// Primitive ops recorded.
    pub ops_recorded: u64,
    /// Graphs handed to the backend.
    pub graphs_run: u64,
    /// Memory, in bytes.
    pub memory: Memory,
    /// The backend's own counters, by name.
    pub counters: Vec<(&'static str, u64)>,
}

impl Report {
    /// One of the backend's counters; 0 if it has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(counter, _)| *counter == name).map_or(0, |&(_, count)| count)
    }

    /// What happened since an earlier report. Memory is as of now.
    #[must_use]
    pub fn since(&self, earlier: &Report) -> Report {
        Report {
            device: self.device.clone(),
            ops_recorded: self.ops_recorded - earlier.ops_recorded,
            graphs_run: self.graphs_run - earlier.graphs_run,
            memory: self.memory,
            counters: self.counters.iter().map(|&(name, count)| (name, count - earlier.counter(name))).collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "  {name:<24} {value:>16}");
        line("device", self.device.clone())?;
        line("ops recorded", self.ops_recorded.to_string())?;
        line("graphs run", self.graphs_run.to_string())?;
        for &(name, count) in &self.counters {
            line(name, count.to_string())?;
        }
        line("memory in use, bytes", self.memory.in_use.to_string())?;
        line("memory peak, bytes", self.memory.peak.to_string())?;
        line("memory reserved, bytes", self.memory.reserved.to_string())?;
        line("allocations", self.memory.allocations.to_string())
    }
}
