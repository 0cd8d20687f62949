//! Single ops that are not fused.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fornax_ir::{DType, Graph, Layout, Node, Op, Shape, Source};

/// An operand: a view of bytes.
pub(crate) struct Operand<'a> {
    pub bytes: &'a [u8],
    pub dtype: DType,
    pub layout: Layout,
}

/// Runs one op, by the reference interpreter for now.
pub(crate) fn run(
    op: &Op,
    operands: &[Operand<'_>],
    dtype: DType,
    shape: &Shape,
    output: &mut [u8],
) -> Result<(), String> {
    let mut graph = Graph::default();
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    let mut ids = Vec::new();
    for operand in operands {
        ids.push(graph.input(operand.dtype, &operand.layout.shape));
        let size = operand.dtype.size();
        let mut bytes = Vec::with_capacity(operand.layout.shape.numel() * size);
        for place in operand.layout.places() {
            bytes.extend_from_slice(&operand.bytes[place * size..(place + 1) * size]);
        }
        inputs.push(bytes);
    }
    let id = graph.push_node(Node {
        op: op.clone(),
        inputs: ids.iter().copied().collect(),
        dtype,
        shape: shape.clone(),
        source: Source::default(),
    });
    graph.outputs.push(id);
    let result = fornax_ir::interpret(&graph, &inputs).map_err(|error| error.to_string())?;
    output.copy_from_slice(&result.outputs[0]);
    match result.faults.into_iter().next() {
        Some(fault) => Err(fault.message),
        None => Ok(()),
    }
}
