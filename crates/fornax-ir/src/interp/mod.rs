//! The reference interpreter: what a graph means, run slowly and plainly, one scalar loop a primitive.
//!
//! [`interpret`] is what every backend is measured against, so it aims to be right rather than fast: floats are
//! computed in `f64` and integers in `i128`, each result is rounded or wrapped once to its dtype, movement is index
//! arithmetic without strides, and every access is checked. `docs/semantics.md` tells the meanings in words.

mod contract;
pub(crate) mod elementwise;
mod linalg;
mod movement;
mod reduce;
pub(crate) mod value;

use crate::{Error, ErrorKind, Fault, Graph, Node, NodeId, Op, Result};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use smallvec::SmallVec;
use value::Value;

/// Elements beyond which the interpreter refuses a value, so that a hostile graph cannot ask for all memory.
const MAX_ELEMENTS: usize = 1 << 28;

/// What [`interpret`] gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interpreted {
    /// The bytes of each output of the graph: row-major, little-endian.
    pub outputs: Vec<Vec<u8>>,
    /// Nodes whose data was wrong, one fault a node, in the order of the nodes. Nodes that no output needs do not run.
    pub faults: Vec<Fault>,
}

/// Runs `graph`; `inputs[slot]` holds the row-major, little-endian elements of input number `slot`.
///
/// ```
/// use fornax_ir::{BinaryOp, DType, Element, Graph, Op, interpret};
/// let mut graph = Graph::default();
/// let x = graph.input(DType::I32, [3]);
/// let y = graph.push(Op::Binary(BinaryOp::Mul), &[x, x])?;
/// graph.outputs.push(y);
/// let mut bytes = Vec::new();
/// i32::write_le(&[1, -2, 3], &mut bytes);
/// let result = interpret(&graph, &[bytes])?;
/// assert_eq!(i32::read_le(&result.outputs[0]), [1, 4, 9]);
/// # Ok::<(), fornax_ir::Error>(())
/// ```
///
/// # Errors
/// If the graph does not verify, the inputs are not of its sizes, or a value is too large to be interpreted.
pub fn interpret<B: AsRef<[u8]>>(graph: &Graph, inputs: &[B]) -> Result<Interpreted> {
    let (values, faults) = interpret_with(graph, inputs, &graph.outputs, &mut |_, _, value| value)?;
    let outputs = graph.outputs.iter().map(|id| values[id.idx()].as_ref().map(|value| value.data.clone()));
    Ok(Interpreted { outputs: outputs.map(|data| data.expect("outputs are kept")).collect(), faults })
}

/// What stands between an op and its value: gets the node's number, its operands and what they gave.
pub(crate) type Hook<'a> = dyn FnMut(NodeId, &[&Value], Value) -> Value + 'a;

/// Runs what `keep` needs, every result passed through `hook`; gives the values of `keep`.
pub(crate) fn interpret_with<B: AsRef<[u8]>>(
    graph: &Graph,
    inputs: &[B],
    keep: &[NodeId],
    hook: &mut Hook<'_>,
) -> Result<(Vec<Option<Value>>, Vec<Fault>)> {
    graph.verify()?;
    check_inputs(graph, inputs)?;
    // How many uses of each value are still to come; outputs count as one.
    let mut uses = alloc::vec![0usize; graph.nodes.len()];
    for id in keep {
        uses[id.idx()] += 1;
    }
    for (id, node) in graph.iter().rev() {
        if uses[id.idx()] > 0 {
            node.inputs.iter().for_each(|operand| uses[operand.idx()] += 1);
        }
    }
    let mut values: Vec<Option<Value>> = alloc::vec![None; graph.nodes.len()];
    let mut faults = Vec::new();
    for (id, node) in graph.iter() {
        if uses[id.idx()] == 0 {
            continue;
        }
        if node.shape.numel() > MAX_ELEMENTS {
            let message = format!("%{}: {} has more elements than the interpreter runs", id.0, node.shape);
            return Err(Error::new(ErrorKind::Execution, node.op.name(), message));
        }
        let value = {
            let operands: SmallVec<[&Value; 3]> = node
                .inputs
                .iter()
                .map(|operand| values[operand.idx()].as_ref().expect("operands live until their last use"))
                .collect();
            let mut fault = None;
            let value = run(node, &operands, inputs, &mut fault);
            faults.extend(fault.map(|message| Fault { node: id, message }));
            assert_eq!((value.dtype, &value.shape), (node.dtype, &node.shape), "{}", node.op.name());
            assert_eq!(value.data.len(), node.shape.numel() * node.dtype.size(), "{}", node.op.name());
            hook(id, &operands, value)
        };
        values[id.idx()] = Some(value);
        for operand in &node.inputs {
            uses[operand.idx()] -= 1;
            if uses[operand.idx()] == 0 {
                values[operand.idx()] = None;
            }
        }
    }
    Ok((values, faults))
}

fn check_inputs<B: AsRef<[u8]>>(graph: &Graph, inputs: &[B]) -> Result<()> {
    let ids = graph.inputs();
    if ids.len() != inputs.len() {
        return Err(Error::argument("input", format!("the graph has {} inputs, got {}", ids.len(), inputs.len())));
    }
    for (id, bytes) in ids.into_iter().zip(inputs) {
        let (node, len) = (&graph[id], bytes.as_ref().len());
        if node.shape.numel() * node.dtype.size() != len {
            let message = format!("%{}: {len} bytes are not the {} {} of the node", id.0, node.dtype, node.shape);
            return Err(Error::argument("input", message));
        }
    }
    Ok(())
}

/// One node. A fault leaves its message; the value then holds zeros where nothing could be computed.
pub(crate) fn run<B: AsRef<[u8]>>(node: &Node, x: &[&Value], inputs: &[B], fault: &mut Option<String>) -> Value {
    let (dtype, shape) = (node.dtype, &node.shape);
    match &node.op {
        Op::Input(slot) => Value::from_bytes(dtype, shape, inputs[*slot as usize].as_ref()),
        Op::Const(scalar) => Value::full(dtype, shape, *scalar),
        Op::Iota { dim } => elementwise::iota(*dim, shape),
        Op::Random { seed, offset } => elementwise::random(*seed, *offset, shape),
        Op::Unary(op) => elementwise::unary(*op, x[0]),
        Op::Binary(op) => elementwise::binary(*op, x[0], x[1], fault),
        Op::Compare(op) => elementwise::compare(*op, x[0], x[1]),
        Op::Select => elementwise::select(x[0], x[1], x[2]),
        Op::Cast(dtype) => elementwise::cast(x[0], *dtype),
        Op::Bitcast(dtype) => Value { dtype: *dtype, ..x[0].clone() },
        Op::Reshape => Value { shape: shape.clone(), ..x[0].clone() },
        Op::Permute(perm) => movement::permute(x[0], perm, shape),
        Op::Expand => movement::expand(x[0], shape),
        Op::Slice { starts, steps } => movement::slice(x[0], starts, steps, shape),
        Op::Pad { low, value } => movement::pad(x[0], low, *value, shape),
        Op::Concat { dim } => movement::concat(x, *dim, shape),
        Op::Window(spec) => movement::window(x[0], spec, shape),
        Op::Reduce { op, dims } => reduce::reduce(*op, x[0], dims, dtype, shape),
        Op::Scan { op, dim } => reduce::scan(*op, x[0], *dim),
        Op::ArgSort { dim, descending } => reduce::order(x[0], *dim, *descending, shape),
        Op::TopK { dim, largest } => reduce::order(x[0], *dim, *largest, shape),
        Op::Gather { dim } => movement::gather(x[0], x[1], *dim, fault),
        Op::Scatter { dim, mode } => movement::scatter(x, *dim, *mode, fault),
        Op::Matmul { out } => contract::matmul(x[0], x[1], *out, shape),
        Op::Conv(spec) => contract::conv(x[0], x[1], spec, shape),
        Op::Fold(spec) => contract::fold(x[0], spec, shape),
        Op::Fft { dim, kind } => contract::fft(x[0], *dim, *kind),
        Op::Linalg(op) => linalg::run(*op, x, shape, fault),
    }
}

/// Keeps the first fault of a node.
fn note(fault: &mut Option<String>, message: impl FnOnce() -> String) {
    if fault.is_none() {
        *fault = Some(message());
    }
}
