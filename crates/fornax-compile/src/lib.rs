//! From graphs to plans: simplify, schedule, fuse, lower.
//!
//! [`compile`] turns a [`Graph`] into a [`Plan`] of fused kernels and native steps that serves every graph of the same
//! structure ([`push_structure`]), whatever its sizes and arguments. A device binds the plan to the sizes at hand and
//! runs it. Start at [`Plan`] and [`Kernel`] for what comes out.
//!
//! This crate does not know tensors, devices, instruction sets or threads. It builds with `alloc` alone when the feature
//! `std` is off.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod analysis;
mod key;
mod lower;
mod plan;
mod schedule;
mod walk;

pub use key::{push_facts, push_sizes};
pub use plan::{
    Access, Kernel, KernelDim, Native, Pass, Plan, Reduction, Stage, Stats, Step, StepKind, Store, Value, ValueId,
    ValueOp,
};

pub use walk::{Level, walk};

use alloc::vec::Vec;
use fornax_ir::Graph;

/// Appends what shapes the plan of `graph`: graphs with equal keys have equal plans.
pub fn push_structure(graph: &Graph, key: &mut Vec<u64>) {
    graph.push_key(key);
    push_facts(graph, key);
}

/// The plan for graphs with the structure of `graph`.
///
/// ```
/// use fornax_ir::{BinaryOp, DType, Graph, Op, ReduceOp, UnaryOp};
/// let mut graph = Graph::default();
/// let x = graph.input(DType::F32, [4, 3]);
/// let y = graph.push(Op::Unary(UnaryOp::Exp), &[x])?;
/// let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [1].as_slice().into() }, &[y])?;
/// let sum = graph.push_shaped(Op::Expand, &[sum], [4, 3])?;
/// let softmax = graph.push(Op::Binary(BinaryOp::Div), &[y, sum])?;
/// graph.outputs.push(softmax);
/// let plan = fornax_compile::compile(&graph);
/// assert_eq!(plan.stats.kernels, 1);
/// # Ok::<(), fornax_ir::Error>(())
/// ```
pub fn compile(graph: &Graph) -> Plan {
    compile_with(graph, Fusion::Full)
}

/// As [`compile`], with as much fusion as asked for.
pub fn compile_with(graph: &Graph, fusion: Fusion) -> Plan {
    let analysis = analysis::Analysis::new(graph);
    let schedule = schedule::Schedule::new(&analysis, fusion);
    lower::lower(&analysis, &schedule)
}

/// Which ops share kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fusion {
    /// All that can.
    #[default]
    Full,
    /// None: every op has a kernel of its own. To tell what fusion saves, and to look for its mistakes.
    Off,
}
