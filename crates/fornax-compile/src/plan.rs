//! [`Plan`]: what runs, step by step, for all graphs of one structure. Sizes and arguments are looked up in the graph at
//! hand when a plan is bound.

use alloc::vec::Vec;
use core::fmt;
use fornax_ir::{BinaryOp, CompareOp, DType, NodeId, ReduceOp, UnaryOp};

/// Steps in an order in which they can run.
///
/// Values are named by the node that they are the result of. Only *stored* values have buffers: graph inputs, results
/// of native steps and the stores of kernels.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// For each output of the graph, the stored value whose buffer holds its bytes.
    pub outputs: Vec<NodeId>,
    /// Inputs that no step reads and no output is.
    pub unused_inputs: Vec<NodeId>,
    /// How often each optimization fired.
    pub stats: Stats,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub kind: StepKind,
    /// Stored values that no later step and no output needs.
    pub frees: Vec<NodeId>,
}

/// Kinds of steps.
#[derive(Clone, Debug)]
pub enum StepKind {
    /// A fused kernel.
    Kernel(Kernel),
    /// One op, by a routine of the device.
    Native(Native),
}

/// One op, run by a routine of the device on views of stored values.
#[derive(Clone, Debug)]
pub struct Native {
    /// The node whose value comes out.
    pub node: NodeId,
    /// The node whose op runs: another one only if `transposed`.
    pub op: NodeId,
    /// Its operands.
    pub operands: Vec<Access>,
    /// The op is a matmul and runs as `Bᵀ · Aᵀ`: operands stand swapped, and their last two dims must be swapped too.
    pub transposed: bool,
}

/// How often each optimization fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes that no output depends on.
    pub dead_nodes: u64,
    /// Nodes that compute what an earlier one does.
    pub equal_nodes: u64,
    /// Nodes that do nothing: identity casts, reshapes, permutes.
    pub simplified: u64,
    /// Elementwise nodes and reductions that run in a kernel with others.
    pub fused_nodes: u64,
    /// Stored values saved by computing them again where they are used.
    pub recomputed: u64,
    /// Kernels merged because they read the same values.
    pub merged_siblings: u64,
    /// Products computed transposed, because only their transpose is used.
    pub swapped_matmuls: u64,
    /// Kernels.
    pub kernels: u64,
    /// Native steps.
    pub natives: u64,
}

/// A stored value (or counter), seen through views.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The stored value, or the iota or random node that is counted out.
    pub base: NodeId,
    /// View nodes on the way to `base`, from the reader's side; each one's operand is the next.
    pub views: Vec<NodeId>,
}

/// A value of a [`Kernel`], by its place in [`Kernel::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The place in [`Kernel::values`].
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// A fused kernel over a space of dims, some of them reduced.
///
/// For each *row* (an index of the dims that are not reduced), passes run over the reduced dims one after the other:
/// `stages[0], passes[0], stages[1], passes[1], …, stages[n]`. A pass computes full values at every element; its
/// reductions give row values, which the stage after it and all later passes can read. Without reductions there is one
/// pass and no reduced dim.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// The dims, outermost first.
    pub dims: Vec<KernelDim>,
    /// What is read.
    pub accesses: Vec<Access>,
    /// Values in an order in which they can be computed.
    pub values: Vec<Value>,
    /// Over the reduced dims.
    pub reductions: Vec<Reduction>,
    /// Work at every element.
    pub passes: Vec<Pass>,
    /// Work once a row: one more than passes.
    pub stages: Vec<Stage>,
}

/// A dim of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDim {
    /// A node and dim of the same size.
    pub size: (NodeId, usize),
    /// Whether reductions run over it.
    pub reduced: bool,
}

/// One value of a kernel.
#[derive(Clone, Debug)]
pub struct Value {
    /// How it comes about.
    pub op: ValueOp,
    /// Dtype of the value.
    pub dtype: DType,
    /// Whether it is the same along the reduced dims, and computed once a row.
    pub row: bool,
    /// The node it is the value of, in some place.
    pub node: NodeId,
    /// The pass that computes it first (a full value), or the stage (a row value).
    pub phase: u32,
    /// A full value that costs more to compute again in a later pass than to keep.
    pub keep: bool,
}

/// How a value comes about.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueOp {
    /// Reads the access of this number.
    Load(u32),
    /// The place in an iota, through views.
    Iota(u32),
    /// Random bits at a place, through views.
    Random(u32),
    /// The scalar argument of `node`.
    Const,
    /// One operand.
    Unary(UnaryOp, ValueId),
    /// Two operands.
    Binary(BinaryOp, ValueId, ValueId),
    /// Two operands, `bool` result.
    Compare(CompareOp, ValueId, ValueId),
    /// `condition ? a : b`.
    Select(ValueId, ValueId, ValueId),
    /// Conversion to the value's dtype.
    Cast(ValueId),
    /// The same bits as the value's dtype.
    Bitcast(ValueId),
    /// The result of the reduction of this number.
    Reduced(u32),
}

impl ValueOp {
    /// The operands.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + use<> {
        let operands = match *self {
            ValueOp::Load(_) | ValueOp::Iota(_) | ValueOp::Random(_) | ValueOp::Const | ValueOp::Reduced(_) => {
                [None; 3]
            }
            ValueOp::Unary(_, a) | ValueOp::Cast(a) | ValueOp::Bitcast(a) => [Some(a), None, None],
            ValueOp::Binary(_, a, b) | ValueOp::Compare(_, a, b) => [Some(a), Some(b), None],
            ValueOp::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }
}

/// A reduction over the reduced dims.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// What to do.
    pub op: ReduceOp,
    /// What is reduced: a full value.
    pub input: ValueId,
    /// Dtype of the result.
    pub dtype: DType,
    /// The node.
    pub node: NodeId,
}

/// Work at every element of the reduced dims.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Full values to compute, in order.
    pub compute: Vec<ValueId>,
    /// Full values kept by an earlier pass.
    pub restore: Vec<ValueId>,
    /// Reductions to feed, by number.
    pub reductions: Vec<u32>,
    /// Full values to store.
    pub stores: Vec<Store>,
}

/// Work once a row.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// Row values to compute, in order; [`ValueOp::Reduced`] among them.
    pub compute: Vec<ValueId>,
    /// Row values to store.
    pub stores: Vec<Store>,
}

/// A value that gets a buffer, row-major over the kernel's dims (those that are not reduced, for a row value).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The value in the kernel.
    pub value: ValueId,
    /// The name of the stored value.
    pub node: NodeId,
}

impl Kernel {
    /// The stored values that the kernel writes.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        let full = self.passes.iter().flat_map(|pass| &pass.stores);
        full.chain(self.stages.iter().flat_map(|stage| &stage.stores))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, step) in self.steps.iter().enumerate() {
            match &step.kind {
                StepKind::Kernel(kernel) => write!(f, "{idx}: {kernel}")?,
                StepKind::Native(native) => {
                    write!(f, "{idx}: native %{} (", native.node.0)?;
                    for (i, operand) in native.operands.iter().enumerate() {
                        write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
                    }
                    writeln!(f, ")")?;
                }
            }
            if !step.frees.is_empty() {
                write!(f, "   free")?;
                step.frees.iter().try_for_each(|node| write!(f, " %{}", node.0))?;
                writeln!(f)?;
            }
        }
        write!(f, "return")?;
        self.outputs.iter().try_for_each(|node| write!(f, " %{}", node.0))?;
        writeln!(f)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.base.0)?;
        self.views.iter().rev().try_for_each(|view| write!(f, ".v{}", view.0))
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel [")?;
        for (i, dim) in self.dims.iter().enumerate() {
            let (node, dim_idx) = dim.size;
            let mark = if dim.reduced { "!" } else { "" };
            write!(f, "{}%{}.{dim_idx}{mark}", if i == 0 { "" } else { ", " }, node.0)?;
        }
        writeln!(f, "]")?;
        for phase in 0..self.stages.len() {
            self.write_values(f, "row", phase, &self.stages[phase].compute, &self.stages[phase].stores)?;
            if let Some(pass) = self.passes.get(phase) {
                self.write_values(f, "pass", phase, &pass.compute, &pass.stores)?;
                for &reduction in &pass.reductions {
                    let Reduction { op, input, dtype, .. } = self.reductions[reduction as usize];
                    writeln!(f, "    r{reduction}: {dtype} = {} v{}", op.name(), input.0)?;
                }
            }
        }
        Ok(())
    }
}

impl Kernel {
    fn write_values(
        &self,
        f: &mut fmt::Formatter<'_>,
        what: &str,
        phase: usize,
        values: &[ValueId],
        stores: &[Store],
    ) -> fmt::Result {
        if !values.is_empty() || !stores.is_empty() {
            writeln!(f, "  {what} {phase}:")?;
        }
        for &id in values {
            let value = &self.values[id.idx()];
            write!(f, "    v{}: {} = ", id.0, value.dtype)?;
            match &value.op {
                ValueOp::Load(access) => write!(f, "load {}", self.accesses[*access as usize])?,
                ValueOp::Iota(access) => write!(f, "iota {}", self.accesses[*access as usize])?,
                ValueOp::Random(access) => write!(f, "random {}", self.accesses[*access as usize])?,
                ValueOp::Const => write!(f, "const %{}", value.node.0)?,
                ValueOp::Unary(op, _) => f.write_str(op.name())?,
                ValueOp::Binary(op, ..) => f.write_str(op.name())?,
                ValueOp::Compare(op, ..) => f.write_str(op.name())?,
                ValueOp::Select(..) => f.write_str("select")?,
                ValueOp::Cast(_) => f.write_str("cast")?,
                ValueOp::Bitcast(_) => f.write_str("bitcast")?,
                ValueOp::Reduced(reduction) => write!(f, "r{reduction}")?,
            }
            value.op.operands().try_for_each(|operand| write!(f, " v{}", operand.0))?;
            writeln!(f, "{}", if value.keep { " (kept)" } else { "" })?;
        }
        stores.iter().try_for_each(|store| writeln!(f, "    store %{} = v{}", store.node.0, store.value.0))
    }
}
