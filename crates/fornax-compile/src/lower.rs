//! From groups to kernels: values in order, passes and stages, and which values are stored.
//!
//! Groups are lowered last to first, so that a group knows what later ones read of it.

use crate::analysis::{Analysis, Relation};
use crate::plan::{
    Access, Kernel, KernelDim, Native, Pass, Plan, Reduction, Stage, Step, StepKind, Store, Value, ValueId, ValueOp,
};
use crate::schedule::{Role, Schedule, bytes_of, op_cost};
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{NodeId, Op};
use hashbrown::HashMap;

/// Work from which a value is kept for a later pass rather than computed again.
const MIN_KEEP_COST: u32 = 12;

pub(crate) fn lower(analysis: &Analysis, schedule: &Schedule) -> Plan {
    let mut plan = Plan { stats: analysis.stats, ..Plan::default() };
    plan.stats.merged_siblings = schedule.merged_siblings;
    let mut needed = vec![false; analysis.graph.nodes.len()];
    plan.outputs = analysis.outputs.iter().map(|&output| bytes_of(analysis, output).unwrap_or(output)).collect();
    plan.outputs.iter().for_each(|output| needed[output.idx()] = true);
    let mut read_twice = vec![false; needed.len()];
    for &group in schedule.order.iter().rev() {
        let members = &schedule.groups[group as usize].members;
        let kind = match schedule.roles[members[0].idx()] {
            Role::Native(_) => {
                let node = members[0];
                let operands: Vec<Access> =
                    analysis.inputs[node.idx()].iter().map(|&id| access(analysis, id)).collect();
                operands.iter().for_each(|operand| needed[operand.base.idx()] = true);
                plan.stats.natives += 1;
                let matmul = analysis.swapped[node.idx()];
                StepKind::Native(Native { node, op: matmul.unwrap_or(node), operands, transposed: matmul.is_some() })
            }
            _ => {
                let mut builder = Builder {
                    analysis,
                    schedule,
                    group,
                    needed: &mut needed,
                    recomputed: &mut read_twice,
                    kernel: Kernel::default(),
                    costs: Vec::new(),
                    memo: HashMap::new(),
                };
                if !builder.build() {
                    continue;
                }
                plan.stats.kernels += 1;
                plan.stats.fused_nodes += if members.len() > 1 { members.len() as u64 } else { 0 };
                StepKind::Kernel(builder.kernel)
            }
        };
        plan.steps.push(Step { kind, frees: Vec::new() });
    }
    plan.steps.reverse();
    plan.stats.recomputed = (0..needed.len()).filter(|&idx| read_twice[idx] && !needed[idx]).count() as u64;
    find_last_uses(analysis, &mut plan);
    plan
}

/// The stored value behind `node`, and the views up to it.
fn access(analysis: &Analysis, node: NodeId) -> Access {
    let (mut base, mut views) = (node, Vec::new());
    while analysis.is_view(base) {
        views.push(base);
        base = analysis.inputs[base.idx()][0];
    }
    Access { base, views }
}

fn find_last_uses(analysis: &Analysis, plan: &mut Plan) {
    // Outputs are never freed.
    let mut seen = vec![false; analysis.graph.nodes.len()];
    plan.outputs.iter().for_each(|output| seen[output.idx()] = true);
    for step in plan.steps.iter_mut().rev() {
        let mut see = |node: NodeId| {
            if !core::mem::replace(&mut seen[node.idx()], true) {
                step.frees.push(node);
            }
        };
        match &step.kind {
            StepKind::Kernel(kernel) => {
                for value in &kernel.values {
                    if let ValueOp::Load(access) = value.op {
                        see(kernel.accesses[access as usize].base);
                    }
                }
                // A result that nothing reads would be freed at once; lowering makes none.
                kernel.stores().for_each(|store| see(store.node));
            }
            StepKind::Native(native) => {
                native.operands.iter().for_each(|operand| see(operand.base));
                see(native.node);
            }
        }
    }
    for (id, node) in analysis.graph.iter() {
        if matches!(node.op, Op::Input(_)) && !seen[id.idx()] {
            plan.unused_inputs.push(id);
        }
    }
}

struct Builder<'a> {
    analysis: &'a Analysis<'a>,
    schedule: &'a Schedule,
    group: u32,
    /// Stored values that later steps read.
    needed: &'a mut [bool],
    recomputed: &'a mut [bool],
    kernel: Kernel,
    /// Work behind each value, up to loads.
    costs: Vec<u32>,
    memo: HashMap<(NodeId, bool, Vec<NodeId>), ValueId>,
}

impl Builder<'_> {
    /// Tells whether there is anything to do.
    fn build(&mut self) -> bool {
        let (schedule, analysis) = (self.schedule, self.analysis);
        let group = &schedule.groups[self.group as usize];
        let roots: Vec<NodeId> = group.members.iter().copied().filter(|member| self.needed[member.idx()]).collect();
        if roots.is_empty() {
            return false;
        }
        for (position, &sym) in group.frame.iter().enumerate() {
            let reduced = group.reduced >> position & 1 == 1;
            self.kernel.dims.push(KernelDim { size: analysis.home(sym), reduced });
        }
        let mut full_stores = Vec::new();
        let mut row_stores = Vec::new();
        for node in roots {
            let row = schedule.rows[node.idx()];
            let value = self.eval(node, row, &[]);
            (if row { &mut row_stores } else { &mut full_stores }).push(Store { value, node });
        }
        self.arrange(&full_stores, &row_stores);
        true
    }

    fn push(&mut self, op: ValueOp, node: NodeId, row: bool) -> ValueId {
        let mut cost = match op {
            ValueOp::Random(_) => 24,
            ValueOp::Load(_) | ValueOp::Iota(_) | ValueOp::Const | ValueOp::Reduced(_) => 1,
            _ => op_cost(self.analysis.op(node)),
        };
        let (mut phase, mut all_rows) = (0, true);
        for operand in op.operands() {
            let value = &self.kernel.values[operand.idx()];
            phase = phase.max(value.phase);
            all_rows &= value.row;
            if !value.row {
                // A value that doubles at every step costs more than any number can say.
                cost = u32::saturating_add(cost, self.costs[operand.idx()]);
            }
        }
        let row = match op {
            ValueOp::Load(_) | ValueOp::Iota(_) | ValueOp::Random(_) => row,
            ValueOp::Const | ValueOp::Reduced(_) => true,
            _ => all_rows,
        };
        if let ValueOp::Reduced(reduction) = op {
            phase = self.kernel.values[self.kernel.reductions[reduction as usize].input.idx()].phase + 1;
        }
        let dtype = self.analysis.graph[node].dtype;
        self.kernel.values.push(Value { op, dtype, row, node, phase, keep: false });
        self.costs.push(cost);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn push_access(&mut self, base: NodeId, views: &[NodeId]) -> u32 {
        self.kernel.accesses.push(Access { base, views: views.to_vec() });
        self.kernel.accesses.len() as u32 - 1
    }

    /// The value of `node` at each element (or row) of the kernel, seen through `views`, whose first stands on the
    /// reader's side.
    fn eval(&mut self, node: NodeId, row: bool, views: &[NodeId]) -> ValueId {
        let (analysis, schedule) = (self.analysis, self.schedule);
        let inputs = &analysis.inputs[node.idx()];
        let op = analysis.op(node);
        if analysis.is_view(node) {
            let reduced = schedule.groups[self.group as usize].reduced;
            return match &analysis.relations[node.idx()] {
                Relation::Same if views.is_empty() => self.eval(inputs[0], row, views),
                Relation::Repeat(mask) if views.is_empty() && !row && reduced != 0 && *mask == reduced => {
                    self.eval(inputs[0], true, views)
                }
                _ => {
                    let views: Vec<NodeId> = views.iter().copied().chain([node]).collect();
                    self.eval(inputs[0], row, &views)
                }
            };
        }
        let key = (node, row, views.to_vec());
        if let Some(&value) = self.memo.get(&key) {
            return value;
        }
        let role = schedule.roles[node.idx()];
        let here = role == Role::Member(self.group) && views.is_empty() && row == schedule.rows[node.idx()];
        let again = matches!(role, Role::Member(_)) && !here && schedule.recompute[node.idx()];
        let value = if here || again || role == Role::Inline {
            self.recomputed[node.idx()] |= again;
            let op = match *op {
                Op::Const(_) => ValueOp::Const,
                Op::Iota { .. } => ValueOp::Iota(self.push_access(node, views)),
                Op::Random { .. } => ValueOp::Random(self.push_access(node, views)),
                Op::Unary(op) => ValueOp::Unary(op, self.eval(inputs[0], row, views)),
                Op::Binary(op) => {
                    ValueOp::Binary(op, self.eval(inputs[0], row, views), self.eval(inputs[1], row, views))
                }
                Op::Compare(op) => {
                    ValueOp::Compare(op, self.eval(inputs[0], row, views), self.eval(inputs[1], row, views))
                }
                Op::Select => ValueOp::Select(
                    self.eval(inputs[0], row, views),
                    self.eval(inputs[1], row, views),
                    self.eval(inputs[2], row, views),
                ),
                Op::Cast(_) => ValueOp::Cast(self.eval(inputs[0], row, views)),
                Op::Bitcast(_) => ValueOp::Bitcast(self.eval(inputs[0], row, views)),
                Op::Reduce { op, .. } => {
                    let input = self.eval(inputs[0], false, views);
                    let dtype = analysis.graph[node].dtype;
                    self.kernel.reductions.push(Reduction { op, input, dtype, node });
                    ValueOp::Reduced(self.kernel.reductions.len() as u32 - 1)
                }
                _ => unreachable!("other ops are not members of kernels"),
            };
            self.push(op, node, row)
        } else {
            self.needed[node.idx()] = true;
            let access = self.push_access(node, views);
            self.push(ValueOp::Load(access), node, row)
        };
        self.memo.insert(key, value);
        value
    }

    /// Deals values out to passes and stages.
    fn arrange(&mut self, full_stores: &[Store], row_stores: &[Store]) {
        let kernel = &mut self.kernel;
        let phase = |value: ValueId, values: &[Value]| values[value.idx()].phase as usize;
        let reductions = kernel.reductions.iter().map(|reduction| reduction.input);
        let last =
            full_stores.iter().map(|store| store.value).chain(reductions).map(|v| phase(v, &kernel.values)).max();
        let passes = last.map_or(0, |last| last + 1);
        kernel.passes = vec![Pass::default(); passes];
        kernel.stages = vec![Stage::default(); passes + 1];
        for store in full_stores {
            kernel.passes[phase(store.value, &kernel.values)].stores.push(*store);
        }
        for store in row_stores {
            kernel.stages[phase(store.value, &kernel.values)].stores.push(*store);
        }
        for (idx, reduction) in kernel.reductions.iter().enumerate() {
            kernel.passes[phase(reduction.input, &kernel.values)].reductions.push(idx as u32);
        }
        let count = kernel.values.len();
        let mut computed = vec![false; count];
        let mut rows_needed = vec![false; count];
        row_stores.iter().for_each(|store| rows_needed[store.value.idx()] = true);
        for (idx, pass) in kernel.passes.iter_mut().enumerate() {
            let mut wanted = vec![false; count];
            pass.stores.iter().for_each(|store| wanted[store.value.idx()] = true);
            for &reduction in &pass.reductions {
                wanted[kernel.reductions[reduction as usize].input.idx()] = true;
            }
            for v in (0..count).rev().filter(|&v| wanted[v]).collect::<Vec<_>>() {
                // Values are in order of computation, so operands come later in this loop's order only if pushed here.
                let mut stack = vec![v];
                while let Some(v) = stack.pop() {
                    wanted[v] = true;
                    let value = &kernel.values[v];
                    if value.row {
                        rows_needed[v] = true;
                        continue;
                    }
                    let kept = computed[v] && (value.phase as usize) < idx && self.costs[v] >= MIN_KEEP_COST;
                    if !kept {
                        stack.extend(value.op.operands().map(ValueId::idx).filter(|&operand| !wanted[operand]));
                    }
                }
            }
            for v in (0..count).filter(|&v| wanted[v]) {
                let value = &mut kernel.values[v];
                if value.row {
                    rows_needed[v] = true;
                } else if computed[v] && (value.phase as usize) < idx && self.costs[v] >= MIN_KEEP_COST {
                    value.keep = true;
                    pass.restore.push(ValueId(v as u32));
                } else {
                    pass.compute.push(ValueId(v as u32));
                    computed[v] = true;
                }
            }
        }
        for v in (0..count).rev().filter(|&v| kernel.values[v].row) {
            if rows_needed[v] {
                kernel.values[v].op.operands().for_each(|operand| rows_needed[operand.idx()] = true);
            }
        }
        for v in (0..count).filter(|&v| kernel.values[v].row && rows_needed[v]) {
            kernel.stages[kernel.values[v].phase as usize].compute.push(ValueId(v as u32));
        }
    }
}
