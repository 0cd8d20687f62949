//! Making a failing case small.

use super::unique;
use crate::interp::{interpret_with, value::Value};
use crate::{Graph, Node, NodeId, Op, Scalar, Source, interpret};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// The smallest case found for which `fails` still holds: with fewer outputs, with nodes replaced by their operands or
/// by inputs that hold their values, with inputs replaced by constants. `fails` holds for the case given; no fault is
/// brought in that it does not have.
pub fn shrink(
    graph: Graph,
    inputs: Vec<Vec<u8>>,
    fails: &mut dyn FnMut(&Graph, &[Vec<u8>]) -> bool,
) -> (Graph, Vec<Vec<u8>>) {
    let faults = |graph: &Graph, inputs: &[Vec<u8>]| interpret(graph, inputs).map(|result| !result.faults.is_empty());
    // Constants for indices and divisors could make the case fail in another way than it did.
    let may_fault = faults(&graph, &inputs) == Ok(true);
    let is_sound = |graph: &Graph, inputs: &[Vec<u8>]| faults(graph, inputs).is_ok_and(|faults| may_fault || !faults);
    let mut best = (graph, inputs);
    loop {
        let smaller = candidates(&best.0, &best.1)
            .into_iter()
            .find(|(graph, inputs)| size(graph) < size(&best.0) && is_sound(graph, inputs) && fails(graph, inputs));
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Ops, then outputs, nodes and inputs.
fn size(graph: &Graph) -> (usize, usize, usize, usize) {
    let ops = graph.nodes.iter().filter(|node| !node.op.is_source()).count();
    (ops, graph.outputs.len(), graph.nodes.len(), graph.inputs().len())
}

fn candidates(graph: &Graph, inputs: &[Vec<u8>]) -> Vec<(Graph, Vec<Vec<u8>>)> {
    let mut candidates = Vec::new();
    if graph.outputs.len() > 1 {
        for &id in &graph.outputs {
            candidates.push(prune(Graph { outputs: alloc::vec![id], ..graph.clone() }, inputs));
        }
    }
    let unique = unique(graph);
    let all: Vec<NodeId> = graph.iter().map(|(id, _)| id).collect();
    let values = interpret_with(graph, inputs, &all, &mut |_, _, value| value);
    let values = values.map_or(Vec::new(), |(values, _)| values);
    // Late nodes first: cutting there drops most.
    for (id, node) in graph.iter().rev() {
        // An output moves up to an operand.
        if let Some(place) = graph.outputs.iter().position(|&output| output == id) {
            for &operand in node.inputs.iter().filter(|operand| unique[operand.idx()]) {
                let mut moved = graph.clone();
                moved.outputs[place] = operand;
                candidates.push(prune(moved, inputs));
            }
        }
        // A node becomes an input that holds its value.
        if let (Some(Some(value)), false, true) = (values.get(id.idx()), node.op.is_source(), unique[id.idx()]) {
            candidates.push(with_input(graph, inputs, id, value));
        }
        // A node becomes one of its operands.
        for &operand in &node.inputs {
            if (graph[operand].dtype, &graph[operand].shape) == (node.dtype, &node.shape) {
                let mut without = graph.clone();
                let uses = without.nodes.iter_mut().flat_map(|node| &mut node.inputs);
                uses.chain(&mut without.outputs).filter(|used| **used == id).for_each(|used| *used = operand);
                candidates.push(prune(without, inputs));
            }
        }
        if let Op::Input(_) = node.op {
            let mut constant = graph.clone();
            constant.nodes[id.idx()].op = Op::Const(Scalar::Int(1).cast(node.dtype));
            candidates.push(prune(constant, inputs));
        }
    }
    candidates
}

fn with_input(graph: &Graph, inputs: &[Vec<u8>], id: NodeId, value: &Value) -> (Graph, Vec<Vec<u8>>) {
    let mut cut = graph.clone();
    let node = &graph[id];
    cut.nodes[id.idx()] = Node {
        op: Op::Input(inputs.len() as u32),
        inputs: SmallVec::new(),
        dtype: node.dtype,
        shape: node.shape.clone(),
        source: Source::default(),
    };
    let mut inputs = inputs.to_vec();
    inputs.push(value.data.clone());
    prune(cut, &inputs)
}

/// Drops nodes that no output needs, and numbers inputs anew.
pub(super) fn prune(graph: Graph, inputs: &[Vec<u8>]) -> (Graph, Vec<Vec<u8>>) {
    let mut needed = alloc::vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|id| needed[id.idx()] = true);
    for (id, node) in graph.iter().rev() {
        if needed[id.idx()] {
            node.inputs.iter().for_each(|operand| needed[operand.idx()] = true);
        }
    }
    let mut pruned = Graph::default();
    let mut kept = Vec::new();
    let mut numbers: Vec<NodeId> = Vec::new();
    for (i, mut node) in graph.nodes.into_iter().enumerate() {
        if !needed[i] {
            numbers.push(NodeId(u32::MAX));
            continue;
        }
        node.inputs.iter_mut().for_each(|operand| *operand = numbers[operand.idx()]);
        if let Op::Input(slot) = &mut node.op {
            kept.push(inputs[*slot as usize].clone());
            *slot = kept.len() as u32 - 1;
        }
        numbers.push(pruned.push_node(node));
    }
    pruned.outputs = graph.outputs.into_iter().map(|id| numbers[id.idx()]).collect();
    (pruned, kept)
}
