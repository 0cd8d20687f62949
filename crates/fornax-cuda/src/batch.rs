//! [`Batch`]: kernels and products with all addresses and scalars filled in; queued one by one, or as a CUDA graph that is
//! made when a program repeats and updated in place from then on.

use crate::driver::{Context, Stream};
use crate::error::{Error, Result, check};
use crate::kernel::Kernel;
use crate::matmul::{Blas, Product};
use cudarc::driver::sys;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Work to queue, in order. What is named by index lies in the program that the batch is made for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Batch {
    items: Vec<Item>,
    /// Bits of all arguments.
    args: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Launch {
        kernel: usize,
        grid: [u32; 3],
        args: Range<usize>,
    },
    /// A product by cuBLASLt, with the addresses of lhs, rhs and result as arguments.
    Product {
        product: usize,
        args: Range<usize>,
    },
}

impl Item {
    fn args(&self) -> Range<usize> {
        match self {
            Item::Launch { args, .. } | Item::Product { args, .. } => args.clone(),
        }
    }

    /// Whether both do the same to perhaps other arguments.
    fn is_like(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Launch { kernel, grid, .. }, Item::Launch { kernel: other, grid: size, .. }) => {
                (kernel, grid) == (other, size)
            }
            (Item::Product { product, .. }, Item::Product { product: other, .. }) => product == other,
            _ => false,
        }
    }
}

/// What a batch runs on.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub stream: &'a Stream,
    pub kernels: &'a [Arc<Kernel>],
    pub products: &'a [Product],
    /// There are no products in a batch without.
    pub blas: Option<&'a Blas>,
}

impl Target<'_> {
    fn blas(&self) -> &Blas {
        self.blas.expect("products were put in the batch because cuBLASLt is there")
    }
}

impl Batch {
    pub fn launch(&mut self, kernel: usize, grid: [u32; 3], args: impl Iterator<Item = u64>) {
        let start = self.args.len();
        self.args.extend(args);
        self.items.push(Item::Launch { kernel, grid, args: start..self.args.len() });
    }

    pub fn product(&mut self, product: usize, places: [u64; 3]) {
        let start = self.args.len();
        self.args.extend(places);
        self.items.push(Item::Product { product, args: start..self.args.len() });
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.args.clear();
    }

    fn places(&self, args: &Range<usize>) -> [u64; 3] {
        self.args[args.clone()].try_into().expect("a product has three addresses")
    }

    /// Queues everything, item by item. The device must be current.
    ///
    /// # Safety
    /// Addresses are of live buffers, as large as kernels and products reach; scalars are of the kernels' dtypes.
    pub unsafe fn run(&self, target: Target<'_>) -> Result<()> {
        for item in &self.items {
            match item {
                Item::Launch { kernel, grid, args } => {
                    let kernel = &target.kernels[*kernel];
                    let mut pointers = pointers(&self.args[args.clone()]);
                    let ([x, y, z], stream) = (*grid, target.stream.raw);
                    // SAFETY: the caller vouches for the arguments; the driver copies them before it returns.
                    let launched = unsafe {
                        let (args, extra) = (pointers.as_mut_ptr(), ptr::null_mut());
                        sys::cuLaunchKernel(kernel.function, x, y, z, kernel.threads, 1, 1, 0, stream, args, extra)
                    };
                    check(launched, "cuLaunchKernel")?;
                }
                Item::Product { product, args } => {
                    let (product, places) = (&target.products[*product], self.places(args));
                    // SAFETY: the caller vouches for the addresses, and there is one stream.
                    unsafe { target.blas().run(product, places, target.stream.raw.cast())? };
                }
            }
        }
        Ok(())
    }
}

/// Where each argument stands, as the driver wants it.
fn pointers(args: &[u64]) -> SmallVec<[*mut c_void; 16]> {
    args.iter().map(|arg| ptr::from_ref(arg).cast_mut().cast()).collect()
}

/// A batch as a graph of the driver: one call queues all of it, and the device starts kernels without gaps.
#[derive(Debug)]
pub(crate) struct Replay {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
    /// As the graph has it now.
    batch: Batch,
    context: Arc<Context>,
}

// SAFETY: the driver's handles may be used from any thread, by one at a time.
unsafe impl Send for Replay {}

impl Drop for Replay {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        // SAFETY: the driver made both. Launches that are under way go on.
        unsafe {
            if !self.exec.is_null() {
                let _ = sys::cuGraphExecDestroy(self.exec);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}

impl Replay {
    /// A graph of `batch`, each item after the one before it. `side` is a stream to record products in.
    ///
    /// # Errors
    /// If the driver makes no graph of it; the batch comes back.
    ///
    /// # Safety
    /// As [`Batch::run`], for every launch of the graph.
    pub unsafe fn new(batch: Batch, target: Target<'_>, side: &Stream) -> std::result::Result<Replay, (Batch, Error)> {
        let context = Arc::clone(&target.stream.context);
        let (graph, exec) = (ptr::null_mut(), ptr::null_mut());
        let mut replay = Replay { graph, exec, nodes: Vec::new(), batch, context };
        // SAFETY: passed on to the caller.
        match unsafe { replay.build(target, side) } {
            Ok(()) => Ok(replay),
            Err(error) => Err((std::mem::take(&mut replay.batch), error)),
        }
    }

    /// # Safety
    /// As [`Replay::new`].
    unsafe fn build(&mut self, target: Target<'_>, side: &Stream) -> Result<()> {
        let replay = self;
        // SAFETY: the driver writes one handle.
        unsafe { check(sys::cuGraphCreate(&mut replay.graph, 0), "cuGraphCreate")? };
        let graph = replay.graph;
        for item in &replay.batch.items {
            let before = replay.nodes.last().map_or(&[][..], std::slice::from_ref);
            let (before, count) = (before.as_ptr(), before.len());
            let mut node = ptr::null_mut();
            match item {
                Item::Launch { kernel, grid, args } => {
                    let mut pointers = pointers(&replay.batch.args[args.clone()]);
                    let params = params(&target.kernels[*kernel], *grid, &mut pointers);
                    // SAFETY: the nodes are of this graph; the driver copies the arguments.
                    let added = unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, before, count, &params) };
                    check(added, "cuGraphAddKernelNode")?;
                }
                Item::Product { product, args } => {
                    let places = replay.batch.places(args);
                    // SAFETY: the caller vouches for the addresses.
                    let child = unsafe { Child::new(&target.products[*product], places, target, side)? };
                    // SAFETY: the nodes are of this graph, which gets a copy of the child.
                    let added = unsafe { sys::cuGraphAddChildGraphNode(&mut node, graph, before, count, child.0) };
                    check(added, "cuGraphAddChildGraphNode")?;
                }
            }
            replay.nodes.push(node);
        }
        // SAFETY: the graph is complete; the driver writes one handle.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut replay.exec, graph, 0) };
        check(made, "cuGraphInstantiate")
    }

    /// Queues the graph as it is. The device must be current.
    ///
    /// # Safety
    /// As [`Batch::run`].
    pub unsafe fn launch(&self, target: Target<'_>) -> Result<()> {
        // SAFETY: the caller vouches for what the graph does.
        unsafe { check(sys::cuGraphLaunch(self.exec, target.stream.raw), "cuGraphLaunch") }
    }

    /// How many nodes `batch` would change; `None` if it is of other work.
    pub fn difference(&self, batch: &Batch) -> Option<usize> {
        let pairs = || batch.items.iter().zip(&self.batch.items);
        let alike = batch.items.len() == self.batch.items.len() && pairs().all(|(new, old)| new.is_like(old));
        let differs = |(new, old): &(&Item, &Item)| batch.args[new.args()] != self.batch.args[old.args()];
        alike.then(|| pairs().filter(differs).count())
    }

    /// Takes over the arguments of `batch`, which must be of the same work, and queues the graph. The device must be
    /// current.
    ///
    /// # Safety
    /// As [`Batch::run`].
    pub unsafe fn run(&mut self, batch: &Batch, target: Target<'_>, side: &Stream) -> Result<()> {
        for (idx, item) in batch.items.iter().enumerate() {
            let args = item.args();
            if batch.args[args.clone()] == self.batch.args[self.batch.items[idx].args()] {
                continue;
            }
            let node = self.nodes[idx];
            match item {
                Item::Launch { kernel, grid, args } => {
                    let mut pointers = pointers(&batch.args[args.clone()]);
                    let params = params(&target.kernels[*kernel], *grid, &mut pointers);
                    // SAFETY: the node is of this graph and of this kernel; the driver copies the arguments.
                    let set = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, node, &params) };
                    check(set, "cuGraphExecKernelNodeSetParams")?;
                }
                Item::Product { product, args } => {
                    // SAFETY: the caller vouches for the addresses.
                    let child = unsafe { Child::new(&target.products[*product], batch.places(args), target, side)? };
                    // SAFETY: the node is of this graph.
                    let set = unsafe { sys::cuGraphExecChildGraphNodeSetParams(self.exec, node, child.0) };
                    check(set, "cuGraphExecChildGraphNodeSetParams")?;
                }
            }
            let own = self.batch.items[idx].args();
            self.batch.args[own].copy_from_slice(&batch.args[args]);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.launch(target) }
    }
}

fn params(kernel: &Kernel, [x, y, z]: [u32; 3], pointers: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: kernel.function,
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: kernel.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// What the library queues for one product, recorded as a graph.
struct Child(sys::CUgraph);

impl Drop for Child {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the driver made it, and whoever took it has a copy.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

impl Child {
    /// # Safety
    /// As [`Blas::run`].
    unsafe fn new(product: &Product, places: [u64; 3], target: Target<'_>, side: &Stream) -> Result<Child> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let mut child = Child(ptr::null_mut());
        // SAFETY: nothing else is queued in `side`, and the recording ends whatever the library says.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(side.raw, mode), "cuStreamBeginCapture")?;
            let ran = target.blas().run(product, places, side.raw.cast());
            let ended = check(sys::cuStreamEndCapture(side.raw, &mut child.0), "cuStreamEndCapture");
            ran?;
            ended?;
        }
        Ok(child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_holds_the_arguments_of_each_item() {
        let mut batch = Batch::default();
        batch.launch(3, [2, 1, 1], [10, 11].into_iter());
        batch.product(0, [7, 8, 9]);
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.args[batch.items[0].args()], [10, 11]);
        assert_eq!(batch.places(&batch.items[1].args()), [7, 8, 9]);
    }

    #[test]
    fn items_are_alike_if_only_arguments_differ() {
        let launch = |kernel, x, start| Item::Launch { kernel, grid: [x, 1, 1], args: start..start + 2 };
        assert!(launch(1, 4, 0).is_like(&launch(1, 4, 6)));
        assert!(!launch(1, 4, 0).is_like(&launch(1, 5, 0)));
        assert!(!launch(1, 4, 0).is_like(&launch(2, 4, 0)));
        assert!(!launch(1, 4, 0).is_like(&Item::Product { product: 1, args: 0..3 }));
    }

    #[test]
    fn pointers_lead_to_the_arguments() {
        let args = [1u64, 2, 3];
        // SAFETY: the pointers lead to `args`.
        let read = pointers(&args).iter().map(|&pointer| unsafe { *pointer.cast::<u64>() }).collect::<Vec<_>>();
        assert_eq!(read, args);
    }
}
