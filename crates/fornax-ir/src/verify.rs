//! [`Graph::verify`]: whether a graph is one, for graphs that come from files and between compiler passes.

use crate::{DType, Error, Graph, NodeId, Op, Result, Shape, infer};
use alloc::format;
use smallvec::SmallVec;

impl Graph {
    /// Checks that operands come before their users, that dtypes and shapes are what [`infer`] says, that inputs fill
    /// the slots `0, 1, 2, …` once each, and that outputs exist. Whatever the graph holds, this does not panic.
    ///
    /// # Errors
    /// The first rule that is broken, with the node.
    pub fn verify(&self) -> Result<()> {
        if u32::try_from(self.nodes.len()).is_err() {
            return Err(Error::argument("graph", format!("{} nodes are more than 2^32", self.nodes.len())));
        }
        for (id, _) in self.iter() {
            self.verify_node(id)?;
        }
        let mut slots: alloc::vec::Vec<u32> = self.nodes.iter().filter_map(slot).collect();
        slots.sort_unstable();
        if let Some((want, &slot)) = slots.iter().enumerate().find(|&(want, &slot)| want != slot as usize) {
            return Err(Error::argument("input", format!("slots are not 0, 1, 2, …: {slot} stands for {want}")));
        }
        match self.outputs.iter().find(|id| id.idx() >= self.nodes.len()) {
            Some(id) => Err(Error::index("graph", format!("output %{} does not exist", id.0))),
            None => Ok(()),
        }
    }

    pub(crate) fn verify_node(&self, id: NodeId) -> Result<()> {
        let node = &self[id];
        let name = node.op.name();
        let broken = |message: alloc::string::String| Error::argument(name, format!("%{}: {message}", id.0));
        if let Some(operand) = node.inputs.iter().find(|&&operand| operand >= id) {
            return Err(broken(format!("operand %{} does not come before it", operand.0)));
        }
        if node.shape.checked_numel().and_then(|n| n.checked_mul(node.dtype.size())).is_none() {
            return Err(broken(format!("{} has more elements than memory can address", node.shape)));
        }
        if let Op::Input(_) | Op::Const(_) = node.op {
            return if node.inputs.is_empty() { Ok(()) } else { Err(broken("a source has no operands".into())) };
        }
        let operands: SmallVec<[(DType, &Shape); 3]> =
            node.inputs.iter().map(|&operand| (self[operand].dtype, &self[operand].shape)).collect();
        let (dtype, _) = infer(&node.op, &operands, Some(&node.shape))
            .map_err(|error| Error::new(error.kind(), name, format!("%{}: {error}", id.0)))?;
        if dtype == node.dtype { Ok(()) } else { Err(broken(format!("the result is {dtype}, not {}", node.dtype))) }
    }
}

fn slot(node: &crate::Node) -> Option<u32> {
    if let Op::Input(slot) = node.op { Some(slot) } else { None }
}
