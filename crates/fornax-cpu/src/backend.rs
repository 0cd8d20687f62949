//! [`CpuBackend`]: plans, bound plans, and running them.
//!
//! A graph is looked up by structure and sizes ([`BoundPlan`]), else by structure alone ([`Plan`]), else compiled.

use crate::counter::Counter;
use crate::engine::bind::bind;
use crate::engine::{BoundKernel, Run, TASK_WORK};
use crate::lock::Lock;
use crate::memory::{CpuBuffer, Pool};
use crate::native;
use crate::simd::Isa;
use crate::threads::Threads;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use fornax_compile::{Access, Fusion, Kernel, KernelDim, Pass, Plan, Stage, StepKind, Store, Value, ValueId, ValueOp};
use fornax_ir::{
    Backend, BoxFuture, Buffer, DType, DeviceBuffer, DeviceError, DeviceErrorKind, Dims, Fault, Graph, Layout, Memory,
    NodeId, Op, Outcome, Scalar,
};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Steps of all bound plans kept; beyond that the cache starts over.
const MAX_BOUND_STEPS: usize = 1 << 15;

/// Bytes that a launch of several kernels may keep alive longer than its kernels one by one would.
const MAX_HELD_BACK: usize = 4 << 20;

/// The CPU device: fused kernels on the tile engine, native routines for all other ops.
///
/// ```
/// use fornax_cpu::CpuBackend;
/// use fornax_ir::{Backend, BinaryOp, DType, Element, Graph, Op};
/// let cpu = CpuBackend::new();
/// let mut graph = Graph::default();
/// let x = graph.input(DType::I32, [3]);
/// let y = graph.push(Op::Binary(BinaryOp::Mul), &[x, x])?;
/// graph.outputs.push(y);
/// let mut bytes = Vec::new();
/// i32::write_le(&[1, -2, 3], &mut bytes);
/// let x = cpu.upload(DType::I32, &bytes)?;
/// let outcome = cpu.execute(&graph, vec![x])?;
/// assert_eq!(i32::read_le(&cpu.read(&outcome.outputs[0])), [1, 4, 9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CpuBackend {
    pool: Arc<Pool>,
    threads: Threads,
    isa: Isa,
    fusion: Fusion,
    plans: Lock<HashMap<Box<[u64]>, Arc<Plan>>>,
    bound: Lock<BoundPlans>,
    counters: Counters,
    natives: Lock<Vec<(&'static str, u64)>>,
}

#[derive(Default)]
struct BoundPlans {
    plans: HashMap<Box<[u64]>, Arc<BoundPlan>>,
    /// Of all plans.
    steps: usize,
}

#[derive(Default)]
struct Counters {
    runs: Counter,
    kernels: Counter,
    /// Kernels that run together count as one.
    launches: Counter,
    bytes_read: Counter,
    bytes_written: Counter,
    plans_compiled: Counter,
    plan_hits: Counter,
    plans_bound: Counter,
    bound_hits: Counter,
    native_calls: Counter,
    /// Native calls that fell back to the reference interpreter.
    interpreted: Counter,
    copies: Counter,
    in_place: Counter,
}

impl Default for CpuBackend {
    fn default() -> Self {
        CpuBackend::new()
    }
}

impl fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuBackend")
            .field("threads", &self.threads.count())
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}

/// A plan for given sizes.
struct BoundPlan {
    n_slots: usize,
    /// For each graph input: its slot, if anything reads it, and its size in bytes.
    inputs: Vec<(Option<usize>, usize)>,
    steps: Vec<BoundStep>,
    outputs: Vec<usize>,
    kernels: u64,
    launches: u64,
    bytes_read: u64,
    bytes_written: u64,
    natives: Vec<(&'static str, u64)>,
}

struct BoundStep {
    work: Work,
    frees: Vec<usize>,
}

enum Work {
    /// Kernels that do not depend on one another: one launch.
    Kernels(Vec<KernelStep>),
    Native(NativeStep),
}

struct KernelStep {
    kernel: BoundKernel,
    /// The slot of each of the kernel's buffers.
    buffers: Vec<usize>,
    /// Slots to write, with sizes in bytes.
    results: Vec<(usize, usize)>,
    /// Result slots that may take over the buffer of a slot which this step frees.
    in_place: Vec<(usize, usize)>,
}

impl KernelStep {
    /// Whether it may run at the same time as `others`, all earlier in the plan: it reads nothing that they write, and
    /// writes over nothing that they read.
    fn is_independent_of(&self, others: &[KernelStep]) -> bool {
        others.iter().all(|other| {
            let reads_result = other.results.iter().any(|(result, _)| self.buffers.contains(result));
            let overwrites = self.in_place.iter().any(|(_, value)| other.buffers.contains(value));
            !reads_result && !overwrites
        })
    }
}

/// Buffers and arguments of a kernel that is about to run.
struct Prepared {
    places: SmallVec<[*mut u8; 16]>,
    /// Results in the place of values that die, as (result, value).
    taken: SmallVec<[(usize, usize); 4]>,
    args: SmallVec<[[u64; 2]; 8]>,
    flags: Vec<AtomicU32>,
}

struct NativeStep {
    node: NodeId,
    /// The node whose op runs.
    op: NodeId,
    operands: Vec<NativeOperand>,
    result: usize,
    len: usize,
}

struct NativeOperand {
    slot: usize,
    layout: Layout,
    dtype: DType,
    /// Makes a row-major copy first, where strides cannot tell the view; and the copy's size in bytes.
    copy: Option<(BoundKernel, usize)>,
}

/// The buffer of a stored value.
enum Held {
    Nothing,
    Own(CpuBuffer),
    Shared(Buffer),
    /// There was no memory for it, or for what it is made of; and the error's words.
    Lost(String),
}

impl Held {
    fn buffer(&self) -> &CpuBuffer {
        match self {
            Held::Nothing | Held::Lost(_) => unreachable!("values are stored before they are read"),
            Held::Own(buffer) => buffer,
            Held::Shared(buffer) => buffer.downcast().expect("inputs were checked"),
        }
    }

    /// Whether nobody else can see the buffer.
    fn is_unique(&self) -> bool {
        match self {
            Held::Nothing | Held::Lost(_) => false,
            Held::Own(_) => true,
            Held::Shared(buffer) => buffer.is_unique(),
        }
    }
}

impl CpuBackend {
    /// The CPU with a thread for each core.
    pub fn new() -> CpuBackend {
        CpuBackend::with_threads(0)
    }

    /// The CPU with `count` threads; 0 means one for each core. Results do not depend on it.
    pub fn with_threads(count: usize) -> CpuBackend {
        CpuBackend {
            pool: Pool::new(),
            threads: Threads::new(count),
            isa: Isa::best(),
            fusion: Fusion::Full,
            plans: Lock::new(HashMap::new()),
            bound: Lock::new(BoundPlans::default()),
            counters: Counters::default(),
            natives: Lock::new(Vec::new()),
        }
    }

    /// With a kernel for each op: to tell what fusion saves, and to look for its mistakes.
    #[must_use]
    pub fn without_fusion(self) -> CpuBackend {
        CpuBackend { fusion: Fusion::Off, ..self }
    }

    /// The bytes of a buffer of this device.
    ///
    /// # Panics
    /// If the buffer is another device's.
    pub fn read(&self, buffer: &Buffer) -> Vec<u8> {
        buffer.downcast::<CpuBuffer>().expect("the buffer is of this device").bytes().to_vec()
    }

    fn plan(&self, graph: &Graph) -> Arc<Plan> {
        let mut key = Vec::new();
        fornax_compile::push_structure(graph, &mut key);
        if let Some(plan) = self.plans.lock().get(&key[..]) {
            self.counters.plan_hits.add(1);
            return Arc::clone(plan);
        }
        let plan = Arc::new(fornax_compile::compile_with(graph, self.fusion));
        self.counters.plans_compiled.add(1);
        self.plans.lock().insert(key.into_boxed_slice(), Arc::clone(&plan));
        plan
    }

    fn bound_plan(&self, graph: &Graph) -> Arc<BoundPlan> {
        let mut key = Vec::with_capacity(graph.nodes.len() * 4);
        graph.push_key(&mut key);
        fornax_compile::push_sizes(graph, &mut key);
        if let Some(plan) = self.bound.lock().plans.get(&key[..]) {
            self.counters.bound_hits.add(1);
            return Arc::clone(plan);
        }
        let plan = Arc::new(bind_plan(&self.plan(graph), graph, self.isa));
        self.counters.plans_bound.add(1);
        let mut cache = self.bound.lock();
        if cache.steps + plan.steps.len() > MAX_BOUND_STEPS {
            *cache = BoundPlans::default();
        }
        cache.steps += plan.steps.len().max(1);
        cache.plans.insert(key.into_boxed_slice(), Arc::clone(&plan));
        plan
    }

    /// Runs kernels that have nothing to do with one another. What there is no memory for is lost, and nothing else.
    fn run_kernels(&self, steps: &[KernelStep], graph: &Graph, held: &mut [Held], faults: &mut Vec<Fault>) {
        let prepared: SmallVec<[Result<Prepared, String>; 1]> =
            steps.iter().map(|step| self.prepare(step, graph, held)).collect();
        let runs: SmallVec<[Option<Run<'_>>; 1]> = prepared
            .iter()
            .map(|prepared| prepared.as_ref().ok())
            .map(|ready| ready.map(|Prepared { places, args, flags, .. }| Run { buffers: places, args, flags }))
            .collect();
        let failed: Lock<Vec<(usize, String)>> = Lock::new(Vec::new());
        let run = |at: usize| {
            let Some(run) = runs[at] else { return };
            // SAFETY: buffers were made or checked for these sizes; results were just made or are unique, and the
            // kernel allows those in place of a value it reads. Kernels of one launch neither read nor overwrite what
            // another writes.
            if let Err(error) = unsafe { steps[at].kernel.run(run, &self.pool, &self.threads) } {
                failed.lock().push((at, error.to_string()));
            }
        };
        let work: usize = steps.iter().map(|step| step.kernel.work).sum();
        if steps.len() == 1 || work < 2 * TASK_WORK {
            (0..steps.len()).for_each(run);
        } else {
            self.threads.each(steps.len(), &run);
        }
        let failed = failed.lock();
        for (at, (step, prepared)) in steps.iter().zip(&prepared).enumerate() {
            let failed = failed.iter().find(|(other, _)| *other == at).map(|(_, why)| why);
            let Prepared { taken, flags, .. } = match (prepared, failed) {
                (Ok(prepared), None) => prepared,
                (Err(why), _) | (_, Some(why)) => {
                    step.results.iter().for_each(|&(result, _)| held[result] = Held::Lost(why.clone()));
                    continue;
                }
            };
            for &(result, value) in taken {
                held[result] = core::mem::replace(&mut held[value], Held::Nothing);
            }
            for (flag, &node) in flags.iter().zip(&step.kernel.flags) {
                if flag.load(Ordering::Relaxed) != 0 && !faults.iter().any(|fault| fault.node == node) {
                    faults.push(Fault { node, message: "integer division by zero".to_string() });
                }
            }
        }
    }

    /// Makes a kernel's results, and looks up its buffers and arguments.
    fn prepare(&self, step: &KernelStep, graph: &Graph, held: &mut [Held]) -> Result<Prepared, String> {
        find_lost(step.buffers.iter().copied(), held)?;
        // A result in the place of a value that dies: both names share the buffer until the value is freed.
        let mut taken: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for &(result, len) in &step.results {
            let value = step.in_place.iter().find(|(other, _)| *other == result).map(|(_, value)| *value);
            match value {
                Some(value) if held[value].is_unique() && held[value].buffer().len() == len => {
                    taken.push((result, value));
                    self.counters.in_place.add(1);
                }
                _ => held[result] = Held::Own(self.pool.alloc(len).map_err(|error| error.to_string())?),
            }
        }
        let place = |&slot: &usize| {
            let slot = taken.iter().find(|(result, _)| *result == slot).map_or(slot, |&(_, value)| value);
            held[slot].buffer().as_ptr()
        };
        Ok(Prepared {
            places: step.buffers.iter().map(place).collect(),
            args: step.kernel.args.iter().map(|arg| argument(graph, arg.node)).collect(),
            flags: step.kernel.flags.iter().map(|_| AtomicU32::new(0)).collect(),
            taken,
        })
    }

    fn run_native(
        &self,
        step: &NativeStep,
        graph: &Graph,
        held: &mut [Held],
        faults: &mut Vec<Fault>,
    ) -> Result<(), DeviceError> {
        let node = &graph[step.node];
        let mut copies: Vec<Option<CpuBuffer>> = Vec::new();
        for operand in &step.operands {
            copies.push(match &operand.copy {
                Some((kernel, len)) => {
                    let copy = self.pool.alloc(*len)?;
                    let buffers = [held[operand.slot].buffer().as_ptr(), copy.as_ptr()];
                    // SAFETY: the kernel was bound to read the one and write the other, which was just made.
                    unsafe { kernel.run(Run { buffers: &buffers, args: &[], flags: &[] }, &self.pool, &self.threads)? };
                    self.counters.copies.add(1);
                    Some(copy)
                }
                None => None,
            });
        }
        let mut output = self.pool.alloc(step.len)?;
        let operands: Vec<native::Operand<'_>> = step
            .operands
            .iter()
            .zip(&copies)
            .map(|(operand, copy)| native::Operand {
                bytes: copy.as_ref().unwrap_or_else(|| held[operand.slot].buffer()).bytes(),
                dtype: operand.dtype,
                layout: operand.layout.clone(),
            })
            .collect();
        let op = &graph[step.op].op;
        let interpreted = &self.counters.interpreted;
        let bytes = output.bytes_mut();
        let result = native::run(op, &operands, node.dtype, &node.shape, bytes, &self.threads, interpreted);
        drop(operands);
        if let Err(message) = result {
            faults.push(Fault { node: step.op, message });
        }
        held[step.result] = Held::Own(output);
        Ok(())
    }
}

/// The words of the first of these values that is lost.
fn find_lost(slots: impl IntoIterator<Item = usize>, held: &[Held]) -> Result<(), String> {
    let lost = slots.into_iter().find_map(|slot| match &held[slot] {
        Held::Lost(why) => Some(why.clone()),
        Held::Nothing | Held::Own(_) | Held::Shared(_) => None,
    });
    lost.map_or(Ok(()), Err)
}

/// The two words of an argument: a constant as registers hold it, or seed and offset.
fn argument(graph: &Graph, node: NodeId) -> [u64; 2] {
    match graph[node].op {
        Op::Const(value) => {
            let dtype = graph[node].dtype;
            let value = match dtype {
                DType::F16 | DType::BF16 => Scalar::Float(value.cast(dtype).to_f64()).to_le_bytes(DType::F32),
                _ => value.to_le_bytes(dtype),
            };
            [u64::from_le_bytes(value), 0]
        }
        Op::Random { seed, offset } => [seed, offset],
        _ => unreachable!("only constants and random bits have arguments"),
    }
}

fn bind_plan(plan: &Plan, graph: &Graph, isa: Isa) -> BoundPlan {
    let mut slots: HashMap<NodeId, usize> = HashMap::new();
    let mut slot_of = |node: NodeId| {
        let next = slots.len();
        *slots.entry(node).or_insert(next)
    };
    let bytes = |node: NodeId| graph[node].shape.numel() * graph[node].dtype.size();
    let inputs = graph.inputs();
    let inputs = inputs
        .into_iter()
        .map(|node| ((!plan.unused_inputs.contains(&node)).then(|| slot_of(node)), bytes(node)))
        .collect();
    let mut bound = BoundPlan {
        n_slots: 0,
        inputs,
        steps: Vec::new(),
        outputs: Vec::new(),
        kernels: plan.stats.kernels,
        launches: 0,
        bytes_read: 0,
        bytes_written: 0,
        natives: Vec::new(),
    };
    let mut held_back = 0;
    for step in &plan.steps {
        let work = match &step.kind {
            StepKind::Kernel(kernel) => {
                let bound_kernel = bind(kernel, graph, isa, &step.frees);
                bound.bytes_read += bound_kernel.bytes_read;
                bound.bytes_written += bound_kernel.bytes_written;
                let in_place = bound_kernel.in_place.iter();
                Work::Kernels(vec![KernelStep {
                    buffers: bound_kernel.buffers.iter().map(|&node| slot_of(node)).collect(),
                    results: kernel.stores().map(|store| (slot_of(store.node), bytes(store.node))).collect(),
                    in_place: in_place.map(|&(result, value)| (slot_of(result), slot_of(value))).collect(),
                    kernel: bound_kernel,
                }])
            }
            StepKind::Native(native) => {
                let operands = native.operands.iter().map(|access| {
                    let dtype = graph[access.base].dtype;
                    bound.bytes_read += bytes(access.base) as u64;
                    let base = Layout::contiguous(&graph[access.base].shape);
                    let layout = access
                        .views
                        .iter()
                        .rev()
                        .try_fold(base, |layout, &view| layout.through(&graph[view].op, &graph[view].shape));
                    let slot = slot_of(access.base);
                    // The transpose of a product is the product of the transposes.
                    let turn = |layout: Layout| match native.transposed {
                        true => {
                            let mut perm: Dims = (0..layout.shape.rank()).collect();
                            let rank = perm.len();
                            perm.swap(rank - 2, rank - 1);
                            layout.permute(&perm)
                        }
                        false => layout,
                    };
                    match layout.map(turn) {
                        Some(layout) => NativeOperand { slot, layout, dtype, copy: None },
                        None => {
                            let view = access.views[0];
                            let copy = Some((copy_kernel(access, graph, isa), bytes(view)));
                            let layout = turn(Layout::contiguous(&graph[view].shape));
                            NativeOperand { slot, layout, dtype, copy }
                        }
                    }
                });
                let operands = operands.collect();
                let name = graph[native.op].op.name();
                match bound.natives.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, count)) => *count += 1,
                    None => bound.natives.push((name, 1)),
                }
                bound.bytes_written += bytes(native.node) as u64;
                let (node, op) = (native.node, native.op);
                Work::Native(NativeStep { node, op, operands, result: slot_of(node), len: bytes(node) })
            }
        };
        let frees = step.frees.iter().map(|&node| (slot_of(node), bytes(node))).collect();
        push_step(&mut bound.steps, &mut held_back, work, frees);
    }
    bound.launches = bound.steps.iter().filter(|step| matches!(step.work, Work::Kernels(_))).count() as u64;
    bound.outputs = plan.outputs.iter().map(|&node| slot_of(node)).collect();
    bound.n_slots = slots.len();
    bound
}

/// Appends a step; a kernel joins the launch before it if it can, as the updates of all parameters do.
///
/// What the kernels of a launch free, they free at its end: `held_back` counts the bytes of the last launch that would
/// have been free earlier.
fn push_step(steps: &mut Vec<BoundStep>, held_back: &mut usize, work: Work, frees: Vec<(usize, usize)>) {
    // A value that a result takes over is not free in any case.
    let in_place = match &work {
        Work::Kernels(kernels) => &kernels[0].in_place[..],
        Work::Native(_) => &[],
    };
    let is_kept = |slot: usize| in_place.iter().any(|&(_, value)| value == slot);
    let freed: usize = frees.iter().filter(|(slot, _)| !is_kept(*slot)).map(|(_, bytes)| bytes).sum();
    let slots = frees.into_iter().map(|(slot, _)| slot);
    if let (Some(BoundStep { work: Work::Kernels(launch), frees }), Work::Kernels(kernels)) = (steps.last_mut(), &work)
        && *held_back <= MAX_HELD_BACK
        && kernels[0].is_independent_of(launch)
    {
        *held_back += freed;
        frees.extend(slots);
        let Work::Kernels(kernels) = work else { unreachable!("matched above") };
        launch.extend(kernels);
        return;
    }
    *held_back = freed;
    steps.push(BoundStep { work, frees: slots.collect() });
}

/// A kernel that stores the view `access` row-major.
fn copy_kernel(access: &Access, graph: &Graph, isa: Isa) -> BoundKernel {
    let view = access.views[0];
    let dims = (0..graph[view].shape.rank()).map(|dim| KernelDim { size: (view, dim), reduced: false });
    let dtype = graph[view].dtype;
    let load = Value { op: ValueOp::Load(0), dtype, row: false, node: access.base, phase: 0, keep: false };
    let value = ValueId(0);
    let pass = Pass { compute: vec![value], stores: vec![Store { value, node: view }], ..Pass::default() };
    let kernel = Kernel {
        dims: dims.collect(),
        accesses: vec![access.clone()],
        values: vec![load],
        reductions: Vec::new(),
        passes: vec![pass],
        stages: vec![Stage::default(); 2],
    };
    bind(&kernel, graph, isa, &[])
}

impl Backend for CpuBackend {
    fn name(&self) -> String {
        match self.fusion {
            Fusion::Full => "cpu",
            Fusion::Off => "cpu-unfused",
        }
        .to_string()
    }

    fn upload(&self, _: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        let mut buffer = self.pool.alloc(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(Buffer::new(buffer))
    }

    fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        Box::pin(async move {
            let misuse = |message: String| DeviceError::new(DeviceErrorKind::Misuse, message);
            let buffer: &CpuBuffer =
                buffer.downcast().ok_or_else(|| misuse("the buffer is another device's".to_string()))?;
            let bytes = buffer.bytes();
            bytes
                .get(..len)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| misuse(format!("the buffer holds {} bytes, {len} were asked for", bytes.len())))
        })
    }

    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        let plan = self.bound_plan(graph);
        let mut held: Vec<Held> = Vec::with_capacity(plan.n_slots);
        held.resize_with(plan.n_slots, || Held::Nothing);
        if inputs.len() != plan.inputs.len() {
            let message = format!("the graph has {} inputs, {} were given", plan.inputs.len(), inputs.len());
            return Err(DeviceError::new(DeviceErrorKind::Misuse, message));
        }
        for (idx, (buffer, &(slot, len))) in inputs.into_iter().zip(&plan.inputs).enumerate() {
            if buffer.downcast::<CpuBuffer>().is_none() || buffer.len() != len {
                let what =
                    if buffer.len() == len { "another device's".into() } else { format!("{} bytes", buffer.len()) };
                let message = format!("input {idx} is {what}, {len} bytes of the CPU are needed");
                return Err(DeviceError::new(DeviceErrorKind::Misuse, message));
            }
            if let Some(slot) = slot {
                held[slot] = Held::Shared(buffer);
            }
        }
        let mut faults = Vec::new();
        for step in &plan.steps {
            match &step.work {
                Work::Kernels(kernels) => self.run_kernels(kernels, graph, &mut held, &mut faults),
                Work::Native(native) => {
                    let slots = native.operands.iter().map(|operand| operand.slot);
                    let done = find_lost(slots, &held).and_then(|()| {
                        self.run_native(native, graph, &mut held, &mut faults).map_err(|error| error.to_string())
                    });
                    if let Err(why) = done {
                        held[native.result] = Held::Lost(why);
                    }
                }
            }
            for &slot in &step.frees {
                held[slot] = Held::Nothing;
            }
        }
        let mut outputs = Vec::with_capacity(plan.outputs.len());
        for (&slot, &node) in plan.outputs.iter().zip(&graph.outputs) {
            let buffer = match core::mem::replace(&mut held[slot], Held::Nothing) {
                Held::Nothing => unreachable!("outputs are stored"),
                Held::Own(buffer) => Buffer::new(buffer),
                Held::Shared(buffer) => buffer,
                Held::Lost(message) => {
                    faults.push(Fault { node, message: message.clone() });
                    held[slot] = Held::Lost(message);
                    outputs.push(Buffer::new(self.pool.alloc(0)?));
                    continue;
                }
            };
            held[slot] = Held::Shared(buffer.clone());
            outputs.push(buffer);
        }
        let count = |counter: &Counter, n: u64| {
            counter.add(n);
        };
        count(&self.counters.runs, 1);
        count(&self.counters.kernels, plan.kernels);
        count(&self.counters.launches, plan.launches);
        count(&self.counters.bytes_read, plan.bytes_read);
        count(&self.counters.bytes_written, plan.bytes_written);
        if !plan.natives.is_empty() {
            let mut natives = self.natives.lock();
            for &(name, n) in &plan.natives {
                count(&self.counters.native_calls, n);
                match natives.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, total)) => *total += n,
                    None => natives.push((name, n)),
                }
            }
        }
        Ok(Outcome { outputs, faults })
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory(&self) -> Memory {
        self.pool.memory()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &Counter| counter.get();
        let counters = &self.counters;
        let mut all = vec![
            ("runs", read(&counters.runs)),
            ("kernels", read(&counters.kernels)),
            ("launches", read(&counters.launches)),
            ("bytes_read", read(&counters.bytes_read)),
            ("bytes_written", read(&counters.bytes_written)),
            ("plans_compiled", read(&counters.plans_compiled)),
            ("plan_hits", read(&counters.plan_hits)),
            ("plans_bound", read(&counters.plans_bound)),
            ("bound_hits", read(&counters.bound_hits)),
            ("in_place", read(&counters.in_place)),
            ("copies", read(&counters.copies)),
            ("native_calls", read(&counters.native_calls)),
            ("interpreted", read(&counters.interpreted)),
        ];
        all.extend(self.natives.lock().iter().copied());
        all
    }

    fn reset_peak_memory(&self) {
        self.pool.reset_peak();
    }
}
