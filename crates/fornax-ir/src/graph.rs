//! [`Graph`]: primitive ops and how they feed each other, as plain data.

use crate::{DType, Op, Shape};
use alloc::vec::Vec;
use core::panic::Location;
use smallvec::SmallVec;

/// The number of a node within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u32);

impl NodeId {
    /// The place in [`Graph::nodes`].
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// The user's line that asked for a node. It has no part in equality or serialization.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source(pub Option<&'static Location<'static>>);

impl PartialEq for Source {
    fn eq(&self, _: &Source) -> bool {
        true
    }
}

/// One op with its operands and what comes out.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Node {
    /// What to do.
    pub op: Op,
    /// The operands, all earlier in the graph.
    pub inputs: SmallVec<[NodeId; 3]>,
    /// Dtype of the result.
    pub dtype: DType,
    /// Shape of the result.
    pub shape: Shape,
    /// Who asked for it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub source: Source,
}

/// A program: nodes in an order in which they can run, and which of their values are wanted.
///
/// ```
/// use fornax_ir::{BinaryOp, DType, Graph, Op, ReduceOp, Shape};
/// let mut graph = Graph::default();
/// let x = graph.input(DType::F32, [4, 3]);
/// let y = graph.push(Op::Binary(BinaryOp::Mul), &[x, x])?;
/// let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [1].as_slice().into() }, &[y])?;
/// graph.outputs.push(sum);
/// assert_eq!(graph[sum].shape, Shape::from([4, 1]));
/// # Ok::<(), fornax_ir::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Graph {
    /// The ops; operands come before their users.
    pub nodes: Vec<Node>,
    /// The wanted values, in the order in which they are handed out.
    pub outputs: Vec<NodeId>,
}

impl Graph {
    /// Adds the next input.
    pub fn input(&mut self, dtype: DType, shape: impl Into<Shape>) -> NodeId {
        let slot = self.nodes.iter().filter(|node| matches!(node.op, Op::Input(_))).count();
        self.push_node(Node {
            op: Op::Input(slot as u32),
            inputs: SmallVec::new(),
            dtype,
            shape: shape.into(),
            source: Source::default(),
        })
    }

    /// Adds an op whose result follows from its operands.
    ///
    /// # Errors
    /// If the op's rule is broken, or the op needs a shape given ([`Graph::push_shaped`]).
    pub fn push(&mut self, op: Op, inputs: &[NodeId]) -> crate::Result<NodeId> {
        self.push_with(op, inputs, None)
    }

    /// Adds an op whose result has `shape`: sources, [`Op::Reshape`], [`Op::Expand`], [`Op::Slice`], [`Op::Pad`],
    /// [`Op::TopK`], [`Op::Fold`].
    ///
    /// # Errors
    /// If the op's rule is broken.
    pub fn push_shaped(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>) -> crate::Result<NodeId> {
        self.push_with(op, inputs, Some(&shape.into()))
    }

    fn push_with(&mut self, op: Op, inputs: &[NodeId], shape: Option<&Shape>) -> crate::Result<NodeId> {
        let (dtype, shape) = {
            let operands: SmallVec<[(DType, &Shape); 3]> =
                inputs.iter().map(|&id| (self[id].dtype, &self[id].shape)).collect();
            crate::infer(&op, &operands, shape)?
        };
        Ok(self.push_node(Node { op, inputs: SmallVec::from_slice(inputs), dtype, shape, source: Source::default() }))
    }

    /// Adds a constant of `dtype`.
    pub fn constant(&mut self, value: impl Into<crate::Scalar>, dtype: DType, shape: impl Into<Shape>) -> NodeId {
        let op = Op::Const(value.into().cast(dtype));
        self.push_node(Node { op, inputs: SmallVec::new(), dtype, shape: shape.into(), source: Source::default() })
    }

    /// Adds a node as it is; whoever calls vouches for dtype and shape.
    pub fn push_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(u32::try_from(self.nodes.len() - 1).expect("a graph has fewer than 2^32 nodes"))
    }

    /// The nodes with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// The input nodes, by slot.
    pub fn inputs(&self) -> Vec<NodeId> {
        let mut inputs: Vec<(u32, NodeId)> = self
            .iter()
            .filter_map(|(id, node)| match node.op {
                Op::Input(slot) => Some((slot, id)),
                _ => None,
            })
            .collect();
        inputs.sort_unstable();
        inputs.into_iter().map(|(_, id)| id).collect()
    }

    /// What shapes a plan for this graph: ops, dtypes, ranks and edges, without sizes or arguments. Two graphs with
    /// equal keys run by one plan.
    pub fn push_key(&self, key: &mut Vec<u64>) {
        for node in &self.nodes {
            node.op.push_key(key);
            key.push((node.dtype as u64) << 32 | (node.shape.rank() as u64) << 16 | node.inputs.len() as u64);
            for pair in node.inputs.chunks(2) {
                key.push(u64::from(pair[0].0) << 32 | pair.get(1).map_or(0, |id| u64::from(id.0)));
            }
        }
        key.push(u64::MAX);
        key.extend(self.outputs.iter().map(|id| u64::from(id.0)));
    }
}

impl core::ops::Index<NodeId> for Graph {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.idx()]
    }
}
