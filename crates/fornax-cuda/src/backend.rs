//! [`CudaBackend`]: plans, programs, and running them.
//!
//! A graph is looked up by structure and sizes ([`Bound`]), else by structure alone ([`Plan`]), else compiled.

use crate::cache::DiskCache;
use crate::compiler::Compiler;
use crate::driver::{self, Context, DeviceInfo, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Kernels;
use crate::matmul::Blas;
use crate::memory::{CudaBuffer, Owner, Pool};
use crate::places::Wish;
use crate::run::{Bound, Machine};
use crate::transfer::Transfer;
use fornax_compile::Plan;
use fornax_ir::{Backend, BoxFuture, Buffer, DType, DeviceError, Graph, Memory, Outcome};
use fornax_kernel::emit::Cuda;
use std::collections::HashMap;
use std::env;
use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps of all bound programs kept; beyond that the cache starts over.
const MAX_BOUND_STEPS: usize = 1 << 15;

/// How a device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaOptions {
    /// Products of `f32` on tensor cores, with 10 bits of mantissa in place of 23: faster, and less precise.
    pub tf32: bool,
    /// Programs that repeat become CUDA graphs. Off: as long as every run waits for its faults, a graph saves nothing
    /// (0.38 ms against 0.30 ms for the step of a small network on an H200).
    pub graphs: bool,
    /// Products by cuBLASLt where it is found.
    pub cublaslt: bool,
    /// Memory is kept for later buffers. Without, every buffer is an allocation of its own, which is slow and shows
    /// `compute-sanitizer` where it ends.
    pub pool: bool,
}

impl Default for CudaOptions {
    /// Full precision, no graphs, cuBLASLt, a pool. `FORNAX_TF32=1`, `FORNAX_CUDA_GRAPHS=1`, `FORNAX_CUBLASLT=0` and
    /// `FORNAX_CUDA_POOL=0` choose otherwise.
    fn default() -> CudaOptions {
        let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
        CudaOptions {
            tf32: is("FORNAX_TF32", "1"),
            graphs: is("FORNAX_CUDA_GRAPHS", "1"),
            cublaslt: !is("FORNAX_CUBLASLT", "0"),
            pool: !is("FORNAX_CUDA_POOL", "0"),
        }
    }
}

/// A CUDA device: fused kernels, products by cuBLASLt, repeated programs as CUDA graphs if asked for.
///
/// ```no_run
/// use fornax_cuda::CudaBackend;
/// use fornax_ir::Backend;
/// let cuda = CudaBackend::new(0)?;
/// assert_eq!(cuda.name(), "cuda:0");
/// # Ok::<(), fornax_cuda::Error>(())
/// ```
pub struct CudaBackend {
    // Fields are dropped in this order: what uses memory before the pool, all before the streams.
    bound: Mutex<BoundPrograms>,
    kernels: Kernels,
    plans: Mutex<HashMap<Box<[u64]>, Arc<Plan>>>,
    blas: Option<Blas>,
    transfer: Transfer,
    pool: Arc<Pool>,
    side: Arc<Stream>,
    stream: Arc<Stream>,
    context: Arc<Context>,
    counters: Counters,
    options: CudaOptions,
    /// Held from the first buffer handed out until what uses it is queued: in between, the order of the stream and
    /// that of the pool differ.
    queue: Mutex<()>,
}

#[derive(Default)]
struct BoundPrograms {
    programs: HashMap<Box<[u64]>, Arc<Bound>>,
    /// Of all programs.
    steps: usize,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub runs: Counter,
    pub kernels: Counter,
    plans_compiled: Counter,
    plan_hits: Counter,
    plans_bound: Counter,
    bound_hits: Counter,
    pub in_place: Counter,
    /// Products by cuBLASLt.
    pub products: Counter,
    pub graphs_made: Counter,
    pub graph_launches: Counter,
    /// Nodes of graphs that got other addresses or scalars.
    pub graph_updates: Counter,
    /// Ops that ran on the host, by name.
    host_calls: Mutex<Vec<(&'static str, u64)>>,
}

impl Counters {
    pub fn host_call(&self, name: &'static str) {
        let mut calls = lock(&self.host_calls);
        match calls.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => calls.push((name, 1)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend").field("device", &self.context.info).finish_non_exhaustive()
    }
}

impl CudaBackend {
    /// The device of this index.
    ///
    /// # Errors
    /// If there is no driver, it is too old, or there is no such device.
    pub fn new(index: usize) -> Result<CudaBackend> {
        CudaBackend::with_options(index, CudaOptions::default())
    }

    /// The device of this index, working as told.
    ///
    /// # Errors
    /// As [`CudaBackend::new`].
    pub fn with_options(index: usize, options: CudaOptions) -> Result<CudaBackend> {
        let driver = driver::driver_version()?;
        let context = Context::new(index)?;
        let [stream, side] = [Stream::new(&context)?, Stream::new(&context)?];
        let pool = Pool::new(&stream, !options.pool);
        let compiler = Compiler::new(context.info.capability, driver, Cuda::OPTIONS, DiskCache::user());
        // Without cuBLASLt products run on other kernels; `doctor` tells.
        let blas = options.cublaslt.then(|| Blas::new(&stream, &pool, options.tf32).ok()).flatten();
        Ok(CudaBackend {
            bound: Mutex::default(),
            kernels: Kernels::new(&context, compiler),
            plans: Mutex::default(),
            blas,
            transfer: Transfer::new(&stream),
            pool,
            side,
            stream,
            context,
            counters: Counters::default(),
            options,
            queue: Mutex::new(()),
        })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// What compiles kernels.
    pub fn compiler(&self) -> &Compiler {
        &self.kernels.compiler
    }

    fn plan(&self, graph: &Graph) -> Arc<Plan> {
        let mut key = Vec::new();
        fornax_compile::push_structure(graph, &mut key);
        if let Some(plan) = lock(&self.plans).get(&key[..]) {
            self.counters.plan_hits.add(1);
            return Arc::clone(plan);
        }
        let plan = Arc::new(fornax_compile::compile(graph));
        self.counters.plans_compiled.add(1);
        lock(&self.plans).insert(key.into_boxed_slice(), Arc::clone(&plan));
        plan
    }

    fn program(&self, graph: &Graph) -> Result<Arc<Bound>> {
        let mut key = Vec::with_capacity(graph.nodes.len() * 4);
        graph.push_key(&mut key);
        fornax_compile::push_sizes(graph, &mut key);
        if let Some(program) = lock(&self.bound).programs.get(&key[..]) {
            self.counters.bound_hits.add(1);
            return Ok(Arc::clone(program));
        }
        let program = fornax_kernel::lower(&self.plan(graph), graph);
        let kernels = self.kernels.get(&program.kernels)?;
        let program = Arc::new(Bound::new(program, kernels, self.blas.is_some()));
        self.counters.plans_bound.add(1);
        let mut cache = lock(&self.bound);
        let steps = program.program.steps.len().max(1);
        if cache.steps + steps > MAX_BOUND_STEPS {
            *cache = BoundPrograms::default();
        }
        cache.steps += steps;
        cache.programs.insert(key.into_boxed_slice(), Arc::clone(&program));
        Ok(program)
    }

    fn store(&self, bytes: &[u8]) -> Result<Buffer> {
        self.context.enter()?;
        let _queue = lock(&self.queue);
        let buffer = match self.pool.alloc(bytes.len(), Owner::Upload, Wish::default()) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.pool.reclaim()?;
                self.pool.alloc(bytes.len(), Owner::Upload, Wish::default())?
            }
            other => other?,
        };
        // SAFETY: the buffer is new and of this length.
        unsafe { self.transfer.upload(buffer.place(), bytes)? };
        Ok(Buffer::new(buffer))
    }

    pub(crate) fn fetch(&self, buffer: &Buffer, len: usize) -> Result<Vec<u8>> {
        self.context.enter()?;
        let misuse = |message: String| Err(Error::new(ErrorKind::Misuse, message));
        match buffer.downcast::<CudaBuffer>().filter(|own| own.is_of(&self.pool)) {
            None => misuse("the buffer is another device's".into()),
            Some(_) if buffer.len() < len => {
                misuse(format!("the buffer holds {} bytes, {len} were asked for", buffer.len()))
            }
            // SAFETY: the buffer lives and is at least as long.
            Some(own) => unsafe { self.transfer.download(own.place(), len) },
        }
    }

    fn run(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome> {
        self.context.enter()?;
        let program = self.program(graph)?;
        let machine = Machine {
            stream: &self.stream,
            side: &self.side,
            pool: &self.pool,
            transfer: &self.transfer,
            blas: self.blas.as_ref(),
            counters: &self.counters,
            replays: self.options.graphs,
        };
        let _queue = lock(&self.queue);
        let outcome = program.run(&machine, graph, inputs)?;
        self.pool.tidy()?;
        Ok(outcome)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> String {
        format!("cuda:{}", self.context.info.index)
    }

    fn upload(&self, _: DType, bytes: &[u8]) -> std::result::Result<Buffer, DeviceError> {
        Ok(self.store(bytes)?)
    }

    fn download<'a>(
        &'a self,
        buffer: &'a Buffer,
        len: usize,
    ) -> BoxFuture<'a, std::result::Result<Vec<u8>, DeviceError>> {
        Box::pin(ready(self.fetch(buffer, len).map_err(DeviceError::from)))
    }

    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> std::result::Result<Outcome, DeviceError> {
        Ok(self.run(graph, inputs)?)
    }

    fn synchronize(&self) -> std::result::Result<(), DeviceError> {
        Ok(self.stream.synchronize()?)
    }

    fn memory(&self) -> Memory {
        self.pool.memory()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.counters;
        let (compiled, from_disk) = self.kernels.compiler.counts();
        let mut all = vec![
            ("runs", counters.runs.get()),
            ("kernels", counters.kernels.get()),
            ("products", counters.products.get()),
            ("graph_launches", counters.graph_launches.get()),
            ("graphs_made", counters.graphs_made.get()),
            ("graph_updates", counters.graph_updates.get()),
            ("plans_compiled", counters.plans_compiled.get()),
            ("plan_hits", counters.plan_hits.get()),
            ("plans_bound", counters.plans_bound.get()),
            ("bound_hits", counters.bound_hits.get()),
            ("kernels_compiled", compiled),
            ("kernels_from_disk", from_disk),
            ("in_place", counters.in_place.get()),
        ];
        let host_calls = lock(&counters.host_calls);
        all.push(("host_calls", host_calls.iter().map(|(_, count)| count).sum()));
        all.extend(host_calls.iter().copied());
        all
    }

    fn reset_peak_memory(&self) {
        self.pool.reset_peak();
    }
}
