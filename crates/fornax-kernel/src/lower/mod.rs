//! [`lower()`]: from a plan and the sizes at hand to a [`Program`].
//!
//! Sizes, strides and offsets are passed to kernels as numbers; a function is made for ranks, for which strides are 0 or 1,
//! for the width of vectors and for how threads share the work. So most other sizes find their kernels made. `space` holds
//! the loops of a fused kernel, `schedule` chooses and makes its launches, `fused` and `values` what a thread does;
//! `native` has the ops that are not fused.

mod fused;
mod maker;
mod native;
mod schedule;
mod space;
mod values;

use crate::ir::Function;
use crate::program::{Arg, BufferId, FaultSite, Launch, Operand, Program, Step};
use fornax_compile::{Access, Kernel, KernelDim, Pass, Plan, Stage, StepKind, Store, Value, ValueId, ValueOp};
use fornax_ir::{DType, Dims, Graph, Layout, NodeId};
use maker::Maker;
use std::collections::HashMap;

/// The program for `graph`, whose structure `plan` was compiled for.
///
/// ```
/// use fornax_ir::{BinaryOp, DType, Graph, Op};
/// let mut graph = Graph::default();
/// let x = graph.input(DType::F32, [64, 100]);
/// let y = graph.push(Op::Binary(BinaryOp::Add), &[x, x])?;
/// graph.outputs.push(y);
/// let program = fornax_kernel::lower(&fornax_compile::compile(&graph), &graph);
/// assert_eq!((program.kernels.len(), program.steps.len()), (1, 1));
/// # Ok::<(), fornax_ir::Error>(())
/// ```
pub fn lower(plan: &Plan, graph: &Graph) -> Program {
    lower_with(plan, graph, Settings::default())
}

/// How programs are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// All kernels count places in 64 bits, as otherwise only those of tensors from about 2^31 elements on do.
    pub wide_places: bool,
}

/// As [`lower()`], with settings.
pub fn lower_with(plan: &Plan, graph: &Graph, settings: Settings) -> Program {
    let mut lowering = Lowering {
        graph,
        settings,
        program: Program::default(),
        buffers: HashMap::new(),
        kernels: HashMap::new(),
        faults: HashMap::new(),
        temporaries: Vec::new(),
    };
    for node in graph.inputs() {
        let buffer = (!plan.unused_inputs.contains(&node)).then(|| lowering.buffer(node));
        let bytes = lowering.bytes(node);
        lowering.program.inputs.push((buffer, bytes));
    }
    for step in &plan.steps {
        let mut makes = Vec::new();
        let mut in_place = Vec::new();
        let (launches, call) = match &step.kind {
            StepKind::Kernel(kernel) => {
                makes.extend(kernel.stores().map(|store| store.node));
                in_place = in_place_pairs(kernel, graph, &step.frees);
                (lowering.fused(kernel), None)
            }
            StepKind::Native(native) => {
                makes.push(native.node);
                lowering.native(native)
            }
        };
        let temporaries = std::mem::take(&mut lowering.temporaries);
        let pairs = in_place.iter().map(|&(made, freed)| (lowering.buffer(made), lowering.buffer(freed)));
        let in_place = pairs.collect::<Vec<_>>();
        let makes = makes.iter().map(|&node| lowering.buffer(node)).collect::<Vec<_>>();
        let frees = step.frees.iter().map(|&node| lowering.buffer(node)).collect::<Vec<_>>();
        lowering.program.steps.push(Step {
            launches,
            call,
            makes: makes.into_iter().chain(temporaries.iter().copied()).collect(),
            in_place,
            frees: frees.into_iter().chain(temporaries).collect(),
        });
    }
    lowering.program.outputs = plan.outputs.iter().map(|&node| lowering.buffer(node)).collect();
    lowering.program
}

pub(crate) struct Lowering<'a> {
    graph: &'a Graph,
    settings: Settings,
    program: Program,
    buffers: HashMap<NodeId, BufferId>,
    kernels: HashMap<Function, usize>,
    faults: HashMap<NodeId, usize>,
    /// Buffers that the step at hand needs for itself.
    temporaries: Vec<BufferId>,
}

impl Lowering<'_> {
    fn bytes(&self, node: NodeId) -> usize {
        self.graph[node].shape.numel() * self.graph[node].dtype.size()
    }

    /// The buffer of a stored value.
    fn buffer(&mut self, node: NodeId) -> BufferId {
        let (bytes, program) = (self.bytes(node), &mut self.program);
        *self.buffers.entry(node).or_insert_with(|| {
            program.buffers.push(bytes);
            BufferId(program.buffers.len() as u32 - 1)
        })
    }

    /// A new buffer for the step at hand.
    fn temporary(&mut self, bytes: usize) -> BufferId {
        self.program.buffers.push(bytes);
        let buffer = BufferId(self.program.buffers.len() as u32 - 1);
        self.temporaries.push(buffer);
        buffer
    }

    /// The word of the fault buffer for an op.
    fn fault_site(&mut self, site: FaultSite) -> usize {
        let faults = &mut self.program.faults;
        *self.faults.entry(site.node).or_insert_with(|| {
            faults.push(site);
            faults.len() - 1
        })
    }

    /// The dtype of places for a fused kernel.
    fn index_for(&self, kernel: &Kernel, elements: usize) -> DType {
        let nodes =
            kernel.accesses.iter().flat_map(|access| [access.base].into_iter().chain(access.views.iter().copied()));
        let most = nodes.map(|node| self.graph[node].shape.numel()).max().unwrap_or(0).max(elements);
        self.index(most)
    }

    /// A launch of what `m` made, with the function that equals it if there is one.
    fn launch(&mut self, m: Maker, grid: [usize; 3]) -> Launch {
        let (function, args): (Function, Vec<Arg>) = m.finish();
        debug_assert_eq!(function.verify(), Ok(()), "{function}");
        let kernels = &mut self.program.kernels;
        let kernel = *self.kernels.entry(function).or_insert_with_key(|function| {
            kernels.push(function.clone());
            kernels.len() - 1
        });
        let grid = grid.map(|blocks| u32::try_from(blocks).expect("a grid has fewer than 2^32 blocks"));
        Launch { kernel, grid, args }
    }

    /// The dtype of places up to `elements`, with room for the threads of a grid that have nothing to do.
    fn index(&self, elements: usize) -> DType {
        let wide = self.settings.wide_places || elements >= (1 << 31) - (1 << 20);
        if wide { DType::I64 } else { DType::I32 }
    }

    /// The dtype of places for a kernel of `elements` that reads operands.
    fn index_of(&self, elements: usize, operands: &[&Operand], result: BufferId) -> DType {
        let size = |buffer: BufferId| self.program.buffers[buffer.idx()];
        let most = operands.iter().map(|operand| size(operand.buffer) / operand.dtype.size()).max().unwrap_or(0);
        self.index(most.max(elements).max(size(result) / 8))
    }

    /// A stored value seen through views, and the launch that copies it first, where strides cannot tell the views.
    fn operand(&mut self, access: &Access, transposed: bool) -> (Operand, Option<Launch>) {
        let graph = self.graph;
        let dtype = graph[access.base].dtype;
        let base = Layout::contiguous(&graph[access.base].shape);
        let mut views = access.views.iter().rev();
        let layout = views.try_fold(base, |layout, &view| layout.through(&graph[view].op, &graph[view].shape));
        let (buffer, layout, copy) = match layout {
            Some(layout) => (self.buffer(access.base), layout, None),
            None => {
                let view = access.views[0];
                let buffer = self.temporary(self.bytes(view));
                (buffer, Layout::contiguous(&graph[view].shape), self.copy(access, buffer))
            }
        };
        let layout = match transposed {
            true => {
                let mut perm: Dims = (0..layout.shape.rank()).collect();
                let rank = perm.len();
                perm.swap(rank - 2, rank - 1);
                layout.permute(&perm)
            }
            false => layout,
        };
        (Operand { buffer, dtype, layout }, copy)
    }

    /// A launch that stores a view row-major.
    fn copy(&mut self, access: &Access, buffer: BufferId) -> Option<Launch> {
        let view = access.views[0];
        let dims = (0..self.graph[view].shape.rank()).map(|dim| KernelDim { size: (view, dim), reduced: false });
        let dtype = self.graph[view].dtype;
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
        let before = self.buffers.insert(view, buffer);
        let launches = self.fused(&kernel);
        match before {
            Some(before) => self.buffers.insert(view, before),
            None => self.buffers.remove(&view),
        };
        launches.into_iter().next()
    }
}

/// Results that may take over the memory of a value they replace: a map reads it at the same element only.
fn in_place_pairs(kernel: &Kernel, graph: &Graph, frees: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    if !kernel.reductions.is_empty() {
        return Vec::new();
    }
    let space = space::Space::new(kernel, graph);
    let mut pairs: Vec<(NodeId, NodeId)> = Vec::new();
    for &(store, walk) in &space.stores {
        let reads_alike = |base: NodeId| {
            (0..kernel.accesses.len()).filter(|&access| kernel.accesses[access].base == base).all(|access| {
                let (from, to) = (&space.walks[access], &space.walks[walk]);
                let same = space.all.iter().all(|one| one.strides[access] == one.strides[walk]);
                from.levels.is_empty() && !from.counted && from.offset == 0 && from.size == to.size && same
            })
        };
        let bases = kernel.accesses.iter().map(|access| access.base);
        let fits = |base: &NodeId| {
            frees.contains(base)
                && !pairs.iter().any(|(_, taken)| taken == base)
                && graph[*base].shape.numel() == graph[store.node].shape.numel()
                && reads_alike(*base)
        };
        if let Some(base) = bases.into_iter().find(fits) {
            pairs.push((store.node, base));
        }
    }
    pairs
}
