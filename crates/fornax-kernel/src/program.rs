//! [`Program`]: what a device does to run a graph, with all sizes filled in: buffers to hold, kernels to launch.

use crate::ir::Function;
use fornax_ir::{DType, Dims, Fault, Graph, Layout, NodeId, Op};

/// A graph as launches. Everything but the scalar arguments ([`Arg::Scalar`] and the like) rests on structure and sizes
/// ([`fornax_compile::push_sizes`]), so a program serves all graphs with equal keys.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The distinct kernels. Equal functions (but for their names) of other programs are the same kernel.
    pub kernels: Vec<Function>,
    /// Every piece of device memory that steps name, with its size in bytes.
    pub buffers: Vec<usize>,
    /// For each input of the graph: its buffer if anything reads it, and its size in bytes.
    pub inputs: Vec<(Option<BufferId>, usize)>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// For each output of the graph, the buffer that holds its bytes.
    pub outputs: Vec<BufferId>,
    /// One for each `u64` of the fault buffer, which starts a run as zeros. No buffer is needed where there are none.
    pub faults: Vec<FaultSite>,
}

/// A piece of device memory, by its place in [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The place in [`Program::buffers`].
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// One thing to do: launches, and then perhaps a call.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Kernels, one after the other: each sees what those before it have written.
    pub launches: Vec<Launch>,
    /// What a library or the host does after the launches.
    pub call: Option<Call>,
    /// Buffers to allocate before.
    pub makes: Vec<BufferId>,
    /// Pairs `(made, freed)`: the first may take over the memory of the second, if nobody else can see that.
    pub in_place: Vec<(BufferId, BufferId)>,
    /// Buffers to free after, those made for this step alone among them.
    pub frees: Vec<BufferId>,
}

/// Work that a library may do, or that the host must do.
#[derive(Clone, Debug)]
pub enum Call {
    /// A product.
    Matmul {
        /// What is multiplied.
        call: MatmulCall,
        /// The same by kernels.
        own: Vec<Launch>,
    },
    /// A convolution.
    Conv {
        /// The op's node, with its settings.
        node: NodeId,
        /// Input and weight.
        operands: [Operand; 2],
        /// Where the result goes, row-major.
        result: BufferId,
        /// The same by kernels.
        own: Vec<Launch>,
    },
    /// An op that no kernel does: the host runs it on copies.
    Host {
        /// The node whose op runs.
        op: NodeId,
        /// The node whose value comes out.
        node: NodeId,
        /// What it reads.
        operands: Vec<Operand>,
        /// Where the result goes, row-major.
        result: BufferId,
    },
}

/// A view of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Where they lie.
    pub layout: Layout,
}

/// `out[batch…, m, n] = lhs[batch…, m, k] · rhs[batch…, k, n]`, the batch dims of equal sizes (strides of 0 repeat).
#[derive(Clone, Debug, PartialEq)]
pub struct MatmulCall {
    /// The matmul's node.
    pub node: NodeId,
    /// Left operand.
    pub lhs: Operand,
    /// Right operand.
    pub rhs: Operand,
    /// Row-major result.
    pub out: BufferId,
    /// Its dtype.
    pub dtype: DType,
    /// Its shape.
    pub shape: Dims,
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The place in [`Program::kernels`].
    pub kernel: usize,
    /// Blocks along each dim; none is 0, the second and third are at most 65535.
    pub grid: [u32; 3],
    /// One for each parameter.
    pub args: Vec<Arg>,
}

/// What a launch passes for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// The address of a buffer.
    Buffer(BufferId),
    /// The address of the fault buffer.
    Faults,
    /// A number, in the parameter's dtype.
    Int(i64),
    /// The value of a constant or of a pad's border, as an element of the parameter's dtype.
    Scalar(NodeId),
    /// The seed of a random node, `u64`.
    Seed(NodeId),
    /// The offset of a random node, `u64`.
    Offset(NodeId),
}

impl Arg {
    /// The bits of a scalar of `dtype`, as `graph` has it; `None` for buffers.
    pub fn bits(&self, dtype: DType, graph: &Graph) -> Option<u64> {
        let value = |node: NodeId| match &graph[node].op {
            Op::Const(value) | Op::Pad { value, .. } => {
                u64::from_le_bytes(value.to_le_bytes(dtype)) & fornax_ir::bits::mask(dtype)
            }
            _ => unreachable!("only constants and pads have a value"),
        };
        let random = |node: NodeId| match graph[node].op {
            Op::Random { seed, offset } => (seed, offset),
            _ => unreachable!("only random nodes have a seed"),
        };
        match *self {
            Arg::Buffer(_) | Arg::Faults => None,
            Arg::Int(value) => Some(fornax_ir::bits::from_int(dtype, value.into())),
            Arg::Scalar(node) => Some(value(node)),
            Arg::Seed(node) => Some(random(node).0),
            Arg::Offset(node) => Some(random(node).1),
        }
    }
}

/// An op that may meet data it cannot work with, and what a word of the fault buffer then means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSite {
    /// The op.
    pub node: NodeId,
    /// What may go wrong.
    pub kind: FaultKind,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An integer division by zero; the word is not 0.
    Division,
    /// An index out of range; the word is the index, or 2^63 for an index of 0.
    Index {
        /// The indexed dim.
        dim: usize,
        /// Its size.
        size: usize,
    },
}

impl FaultSite {
    /// The fault that a word of the fault buffer tells, if it tells one.
    ///
    /// ```
    /// use fornax_ir::NodeId;
    /// use fornax_kernel::{FaultKind, FaultSite};
    /// let site = FaultSite { node: NodeId(3), kind: FaultKind::Index { dim: 0, size: 5 } };
    /// assert_eq!(site.fault(0), None);
    /// assert_eq!(site.fault(7).unwrap().message, "index 7 is out of range for dim 0 of size 5");
    /// ```
    pub fn fault(&self, word: u64) -> Option<Fault> {
        let message = match self.kind {
            _ if word == 0 => return None,
            FaultKind::Division => "integer division by zero".to_string(),
            FaultKind::Index { dim, size } => {
                let index = if word == 1 << 63 { 0 } else { word as i64 };
                format!("index {index} is out of range for dim {dim} of size {size}")
            }
        };
        Some(Fault { node: self.node, message })
    }
}
