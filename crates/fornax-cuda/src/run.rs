//! [`Bound`]: a program whose kernels are loaded, and running it.
//!
//! A run first walks through the steps on the host: buffers are handed out, arguments filled in. What comes out is a
//! [`Batch`], which is queued at the end, or before the host must compute something itself.

use crate::backend::Counters;
use crate::batch::{Batch, Replay, Target};
use crate::driver::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Kernel;
use crate::matmul::{Blas, Product};
use crate::memory::{CudaBuffer, Owner, Pool};
use crate::places::{Places, SETS};
use crate::transfer::Transfer;
use fornax_ir::{Buffer, Fault, Graph, Node, NodeId, Outcome, Source};
use fornax_kernel::{Arg, BufferId, Call, Launch, Operand, Program, Step};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs of a program before it becomes a CUDA graph: what runs once is not worth one.
const RUNS_BEFORE_REPLAY: u32 = 2;

/// Items from which on a graph is worth it.
const ITEMS_FOR_REPLAY: usize = 2;

/// A graph is replayed where at most one in so many of its nodes changes.
const WORTH: usize = 3;

/// A program for one device.
pub(crate) struct Bound {
    pub program: Program,
    kernels: Vec<Arc<Kernel>>,
    /// What cuBLASLt is asked for.
    products: Vec<Product>,
    /// For each step, its product.
    product_of: Vec<Option<usize>>,
    past: Mutex<Past>,
}

/// What the runs of a program leave for the next.
#[derive(Default)]
struct Past {
    runs: u32,
    places: Places,
    /// One for each set of places, the one that was used last at the end.
    replays: Vec<Replay>,
    /// It could not be made; programs then go on item by item.
    failed: bool,
}

/// What programs of one device run on.
pub(crate) struct Machine<'a> {
    pub stream: &'a Stream,
    /// To record products in.
    pub side: &'a Stream,
    pub pool: &'a Arc<Pool>,
    pub transfer: &'a Transfer,
    pub blas: Option<&'a Blas>,
    pub counters: &'a Counters,
    /// Whether programs that repeat become CUDA graphs.
    pub replays: bool,
}

impl Bound {
    pub fn new(program: Program, kernels: Vec<Arc<Kernel>>, blas: bool) -> Bound {
        let mut products = Vec::new();
        let product_of = program.steps.iter().map(|step| {
            let product = step.call.as_ref().filter(|_| blas).and_then(product)?;
            products.push(product);
            Some(products.len() - 1)
        });
        let product_of = product_of.collect();
        Bound { program, kernels, products, product_of, past: Mutex::default() }
    }

    /// Where the fault buffer stands in [`Run::held`]: after those of the program.
    fn faults(&self) -> usize {
        self.program.buffers.len()
    }

    fn target<'a>(&'a self, machine: &Machine<'a>) -> Target<'a> {
        Target { stream: machine.stream, kernels: &self.kernels, products: &self.products, blas: machine.blas }
    }

    /// Queues the program for `graph`. The device must be current.
    ///
    /// # Errors
    /// If the inputs are not the program's, the device has no memory or failed.
    pub fn run(&self, machine: &Machine<'_>, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome> {
        let past = &mut *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = Run {
            bound: self,
            machine,
            graph,
            past,
            held: Vec::new(),
            places: vec![0; self.program.buffers.len() + 1],
            batch: Batch::default(),
            found: Vec::new(),
            is_whole: true,
        };
        run.held.resize_with(run.places.len(), || Held::Nothing);
        run.take_inputs(inputs)?;
        if !self.program.faults.is_empty() {
            let len = self.program.faults.len() * 8;
            run.make(self.faults(), len)?;
            // SAFETY: the buffer is new.
            unsafe { machine.stream.clear(run.places[self.faults()], len)? };
        }
        for (step, product) in self.program.steps.iter().zip(&self.product_of) {
            run.step(step, *product)?;
        }
        run.finish()
    }
}

/// The product that a call asks for, if cuBLASLt can do it.
fn product(call: &Call) -> Option<Product> {
    match call {
        Call::Matmul { call, .. } => {
            Product::new((call.lhs.dtype, &call.lhs.layout), (call.rhs.dtype, &call.rhs.layout), call.dtype)
        }
        Call::Conv { .. } | Call::Host { .. } => None,
    }
}

/// The buffer of a stored value.
enum Held {
    Nothing,
    Own(CudaBuffer),
    Shared(Buffer),
}

impl Held {
    fn buffer(&self) -> &CudaBuffer {
        match self {
            Held::Nothing => unreachable!("values are stored before they are read"),
            Held::Own(buffer) => buffer,
            Held::Shared(buffer) => buffer.downcast().expect("inputs were checked"),
        }
    }

    /// Whether nobody else can see the buffer.
    fn is_unique(&self) -> bool {
        match self {
            Held::Nothing => false,
            Held::Own(_) => true,
            Held::Shared(buffer) => buffer.is_unique(),
        }
    }
}

/// One run of a program.
struct Run<'a> {
    bound: &'a Bound,
    machine: &'a Machine<'a>,
    graph: &'a Graph,
    past: &'a mut Past,
    /// The program's buffers, and the fault buffer.
    held: Vec<Held>,
    /// Addresses of what is or was held.
    places: Vec<u64>,
    batch: Batch,
    found: Vec<Fault>,
    /// Whether nothing was queued before the end.
    is_whole: bool,
}

impl Run<'_> {
    fn take_inputs(&mut self, inputs: Vec<Buffer>) -> Result<()> {
        let wanted = &self.bound.program.inputs;
        if inputs.len() != wanted.len() {
            let message = format!("the graph has {} inputs, {} were given", wanted.len(), inputs.len());
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        for (idx, (buffer, &(id, len))) in inputs.into_iter().zip(wanted).enumerate() {
            let own = buffer.downcast::<CudaBuffer>().filter(|own| own.is_of(self.machine.pool));
            match own {
                Some(own) if buffer.len() == len => {
                    if let Some(id) = id {
                        self.places[id.idx()] = own.place();
                        self.held[id.idx()] = Held::Shared(buffer);
                    }
                }
                own => {
                    let what = own.map_or("another device's".into(), |_| format!("{} bytes", buffer.len()));
                    let message = format!("input {idx} is {what}, {len} bytes of this device are needed");
                    return Err(Error::new(ErrorKind::Misuse, message));
                }
            }
        }
        let places = &self.places;
        let ids = || wanted.iter().filter_map(|(id, _)| *id);
        self.past.places.begin(|before| ids().all(|id| before[id.idx()] == places[id.idx()]));
        Ok(())
    }

    /// A new buffer, if need be after free memory went back to the driver.
    fn make(&mut self, idx: usize, len: usize) -> Result<()> {
        let pool = self.machine.pool;
        let buffer = match pool.alloc(len, Owner::Plan, self.past.places.wish(idx)) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                // What is not yet queued may use blocks that are free already.
                self.queue()?;
                self.past.replays.clear();
                pool.reclaim()?;
                pool.alloc(len, Owner::Plan, self.past.places.wish(idx))?
            }
            other => other?,
        };
        self.places[idx] = buffer.place();
        self.held[idx] = Held::Own(buffer);
        Ok(())
    }

    /// Queues what was collected.
    fn queue(&mut self) -> Result<()> {
        self.is_whole = false;
        // SAFETY: every address is of a buffer that is held, or was freed by a step before: its memory is handed out to
        // later work of this stream only. The program vouches for sizes and dtypes.
        unsafe { self.batch.run(self.bound.target(self.machine))? };
        self.batch.clear();
        Ok(())
    }

    fn step(&mut self, step: &Step, product: Option<usize>) -> Result<()> {
        let sizes = &self.bound.program.buffers;
        let mut taken: Vec<(BufferId, BufferId)> = Vec::new();
        for &made in &step.makes {
            let free_to_take = |&&(result, value): &&(BufferId, BufferId)| {
                result == made
                    && sizes[value.idx()] == sizes[made.idx()]
                    && self.held[value.idx()].is_unique()
                    && !taken.iter().any(|(_, other)| *other == value)
            };
            if let Some(&pair) = step.in_place.iter().find(free_to_take) {
                // Both names stand for the memory until the value is freed.
                self.places[made.idx()] = self.places[pair.1.idx()];
                taken.push(pair);
                self.machine.counters.in_place.add(1);
                continue;
            }
            self.make(made.idx(), sizes[made.idx()])?;
        }
        for launch in &step.launches {
            self.launch(launch);
        }
        match &step.call {
            None => {}
            Some(Call::Matmul { call, own }) => {
                let places = [call.lhs.buffer, call.rhs.buffer, call.out];
                if !self.product(product, places)? {
                    own.iter().for_each(|launch| self.launch(launch));
                }
            }
            Some(Call::Conv { own, .. }) => own.iter().for_each(|launch| self.launch(launch)),
            Some(Call::Host { op, node, operands, result }) => {
                self.host([*op, *node], operands, *result)?;
            }
        }
        for (result, value) in taken {
            self.held[result.idx()] = std::mem::replace(&mut self.held[value.idx()], Held::Nothing);
        }
        for freed in &step.frees {
            self.held[freed.idx()] = Held::Nothing;
        }
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) {
        let params = &self.bound.kernels[launch.kernel].params;
        let faults = self.places[self.bound.faults()];
        let args = launch.args.iter().zip(params).map(|(arg, dtype)| match (arg, dtype) {
            (Arg::Buffer(buffer), _) => self.places[buffer.idx()],
            (Arg::Faults, _) => faults,
            (arg, Some(dtype)) => arg.bits(*dtype, self.graph).expect("scalars have bits"),
            (_, None) => unreachable!("addresses are passed for buffers"),
        });
        self.batch.launch(launch.kernel, launch.grid, args);
        self.machine.counters.kernels.add(1);
    }

    /// A product by cuBLASLt; tells whether it can do it.
    fn product(&mut self, product: Option<usize>, buffers: [BufferId; 3]) -> Result<bool> {
        let (Some(idx), Some(blas)) = (product, self.machine.blas) else { return Ok(false) };
        let places = buffers.map(|buffer| self.places[buffer.idx()]);
        if !blas.serves(&self.bound.products[idx], places)? {
            return Ok(false);
        }
        self.batch.product(idx, places);
        self.machine.counters.products.add(1);
        Ok(true)
    }

    /// Runs the op of one node, for the value of another, on the host, by the reference interpreter.
    fn host(&mut self, [op, node]: [NodeId; 2], operands: &[Operand], result: BufferId) -> Result<()> {
        self.queue()?;
        self.machine.counters.host_call(self.graph[op].op.name());
        let mut graph = Graph::default();
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        let mut ids = Vec::new();
        for operand in operands {
            ids.push(graph.input(operand.dtype, &operand.layout.shape));
            let held = self.held[operand.buffer.idx()].buffer();
            let len = self.bound.program.buffers[operand.buffer.idx()];
            // SAFETY: the buffer is held and of this length.
            let bytes = unsafe { self.machine.transfer.download(held.place(), len)? };
            let size = operand.dtype.size();
            inputs.push(match operand.layout.is_contiguous() && operand.layout.shape.numel() * size == len {
                true => bytes,
                false => {
                    let places = operand.layout.places();
                    places.flat_map(|place| bytes[place * size..(place + 1) * size].iter().copied()).collect()
                }
            });
        }
        let inputs_of = ids.into_iter().collect();
        let Node { dtype, shape, .. } = self.graph[node].clone();
        let doing = self.graph[op].op.clone();
        let computed = graph.push_node(Node { op: doing, inputs: inputs_of, dtype, shape, source: Source::default() });
        graph.outputs.push(computed);
        let computed = fornax_ir::interpret(&graph, &inputs);
        let computed = computed.map_err(|error| Error::new(ErrorKind::OutOfMemory, error.to_string()))?;
        let place = self.held[result.idx()].buffer().place();
        // SAFETY: the buffer was made for this result.
        unsafe { self.machine.transfer.upload(place, &computed.outputs[0])? };
        self.found.extend(computed.faults.into_iter().next().map(|fault| Fault { node: op, message: fault.message }));
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome> {
        let counters = self.machine.counters;
        counters.runs.add(1);
        let is_settled = self.past.places.end(&self.places);
        if !(self.is_whole && self.machine.replays && self.replay(is_settled)?) {
            self.queue()?;
        }
        if !self.bound.program.faults.is_empty() {
            let len = self.bound.program.faults.len() * 8;
            // SAFETY: the buffer is held and of this length.
            let words = unsafe { self.machine.transfer.download(self.places[self.bound.faults()], len)? };
            let (words, _) = words.as_chunks::<8>();
            let sites = self.bound.program.faults.iter().zip(words);
            self.found.extend(sites.filter_map(|(site, word)| site.fault(u64::from_le_bytes(*word))));
        }
        let outputs = self.bound.program.outputs.iter().zip(&self.graph.outputs).map(|(&id, &node)| {
            let buffer = match std::mem::replace(&mut self.held[id.idx()], Held::Nothing) {
                Held::Nothing => unreachable!("outputs are stored"),
                Held::Own(buffer) => {
                    if let Some(place) = self.graph[node].source.0 {
                        buffer.set_owner(Owner::Op(place));
                    }
                    Buffer::new(buffer)
                }
                Held::Shared(buffer) => buffer,
            };
            self.held[id.idx()] = Held::Shared(buffer.clone());
            buffer
        });
        let outputs = outputs.collect();
        Ok(Outcome { outputs, faults: self.found })
    }

    /// Queues the whole batch as a CUDA graph, if the program has run often enough and a graph is near or its places have
    /// settled; tells whether it did.
    fn replay(&mut self, is_settled: bool) -> Result<bool> {
        let past = &mut *self.past;
        past.runs = past.runs.saturating_add(1);
        if past.failed || past.runs <= RUNS_BEFORE_REPLAY || self.batch.len() < ITEMS_FOR_REPLAY {
            return Ok(false);
        }
        let (target, side) = (self.bound.target(self.machine), self.machine.side);
        let counters = self.machine.counters;
        past.replays.retain(|replay| replay.difference(&self.batch).is_some());
        let differences = past.replays.iter().map(|replay| replay.difference(&self.batch).unwrap_or(usize::MAX));
        let nearest = differences.enumerate().min_by_key(|&(_, changed)| changed);
        match nearest {
            // Setting a node costs about what a launch does.
            Some((idx, changed)) if changed <= self.batch.len() / WORTH => {
                let mut replay = past.replays.remove(idx);
                // SAFETY: as in `queue`.
                match unsafe { replay.run(&self.batch, target, side) } {
                    Ok(()) => {
                        past.replays.push(replay);
                        counters.graph_launches.add(1);
                        counters.graph_updates.add(changed as u64);
                        return Ok(true);
                    }
                    Err(error) if error.kind() == ErrorKind::Lost => return Err(error),
                    // A change that a graph cannot take: it is made anew below.
                    Err(_) => {}
                }
            }
            Some(_) if !is_settled => return Ok(false),
            Some(_) | None => {}
        }
        // SAFETY: as in `queue`.
        let made = unsafe { Replay::new(std::mem::take(&mut self.batch), target, side) };
        match made {
            Ok(replay) => {
                counters.graphs_made.add(1);
                // SAFETY: as in `queue`.
                let launched = unsafe { replay.launch(target) };
                launched?;
                counters.graph_launches.add(1);
                if past.replays.len() == SETS {
                    past.replays.remove(0);
                }
                past.replays.push(replay);
                Ok(true)
            }
            Err((batch, error)) => {
                if error.kind() == ErrorKind::Lost {
                    return Err(error);
                }
                past.failed = true;
                self.batch = batch;
                Ok(false)
            }
        }
    }
}
