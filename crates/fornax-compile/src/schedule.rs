//! [`Schedule`]: which nodes run together. Each elementwise node and reduction becomes a member of a group (one kernel),
//! or is computed inline wherever it is used; every other op is a native step of its own.
//!
//! Nodes are placed in graph order. A node joins the group of an operand if it can read that operand in registers: the
//! same element, or a row's value at each of its elements. Groups that meet in a node merge. A set of ancestors per
//! group keeps the groups free of cycles.

use crate::Fusion;
use crate::analysis::{Analysis, Frame, Relation};
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use fornax_ir::{BinaryOp, NodeId, Op, UnaryOp};
use smallvec::SmallVec;

/// Most nodes in a kernel.
const MAX_WEIGHT: usize = 160;

/// Cost of an expression up to which it is computed wherever it is used instead of stored.
const MAX_INLINE_COST: u32 = 48;

/// Maps that are read in another order and computed by their reader, one on top of the other.
const MAX_INLINE_DEPTH: u8 = 6;

/// Cost of an inline expression from which it is stored if it must be in memory for another reason.
const MAX_TWICE_COST: u32 = 8;

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing depends on it.
    Dead,
    /// A graph input.
    Input,
    /// Read through, no work.
    View,
    /// Computed wherever it is used.
    Inline,
    /// Part of a kernel.
    Member(u32),
    /// A step of its own.
    Native(u32),
}

/// An operand, seen through views: the first node that is not a view, and how it relates.
pub(crate) type Dep = (NodeId, Relation);

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The space: prime symbols of the dims.
    pub frame: Frame,
    /// Positions of `frame` that are reduced, as bits.
    pub reduced: u64,
    pub members: Vec<NodeId>,
    native: bool,
    /// Takes no further members.
    closed: bool,
}

pub(crate) struct Schedule {
    pub roles: Vec<Role>,
    /// Members that are computed once a row.
    pub rows: Vec<bool>,
    pub groups: Vec<Group>,
    /// Groups in an order in which they can run.
    pub order: Vec<u32>,
    /// Members that are computed again in other kernels rather than stored for them.
    pub recompute: Vec<bool>,
    pub merged_siblings: u64,
}

impl Schedule {
    pub fn new(analysis: &Analysis, fusion: Fusion) -> Schedule {
        let mut builder = Builder::new(analysis, fusion);
        builder.choose_inline();
        builder.place_all();
        if fusion == Fusion::Full {
            builder.merge_neighbours();
            builder.choose_recompute();
        }
        builder.finish()
    }
}

/// Follows views from `node` to the first node that is not one.
pub(crate) fn peel(analysis: &Analysis, node: NodeId) -> Dep {
    let (mut base, mut relation) = (node, Relation::Same);
    while analysis.is_view(base) {
        relation = match (relation, &analysis.relations[base.idx()]) {
            (relation, Relation::Same) => relation,
            (Relation::Same, Relation::Repeat(mask)) => Relation::Repeat(*mask),
            _ => Relation::Other,
        };
        base = analysis.inputs[base.idx()][0];
    }
    (base, relation)
}

/// The stored value with the bytes of `output`, if views up to it move nothing.
pub(crate) fn bytes_of(analysis: &Analysis, output: NodeId) -> Option<NodeId> {
    let mut base = output;
    while analysis.is_view(base) {
        if !matches!(analysis.op(base), Op::Reshape) && analysis.relations[base.idx()] != Relation::Same {
            return None;
        }
        base = analysis.inputs[base.idx()][0];
    }
    Some(base)
}

/// A set of group numbers.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn contains(&self, bit: u32) -> bool {
        self.0.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    fn insert(&mut self, bit: u32) {
        let word = bit as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (bit % 64);
    }

    fn remove(&mut self, bit: u32) {
        if let Some(word) = self.0.get_mut(bit as usize / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Adds all of `other`; tells whether that changed anything.
    fn extend(&mut self, other: &Bits) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut changed = false;
        for (word, &more) in self.0.iter_mut().zip(&other.0) {
            changed |= more & !*word != 0;
            *word |= more;
        }
        changed
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(idx, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| idx as u32 * 64 + bit)
        })
    }
}

struct Builder<'a> {
    analysis: &'a Analysis<'a>,
    fusion: Fusion,
    roles: Vec<Role>,
    rows: Vec<bool>,
    /// Cost of computing a node inline, where that is possible.
    costs: Vec<Option<u32>>,
    /// Nodes that must be in memory: native ops read them, or they are outputs.
    forced: Vec<bool>,
    /// Groups that store what is inline elsewhere.
    fills: Vec<Option<u32>>,
    deps: Vec<SmallVec<[Dep; 3]>>,
    groups: Vec<Group>,
    ancestors: Vec<Bits>,
    recompute: Vec<bool>,
    merged_siblings: u64,
}

/// How a group's members change their place when it merges into another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shift {
    None,
    /// Its full values become row values.
    ToRow,
}

/// Work of one element of an op, in simple instructions.
pub(crate) fn op_cost(op: &Op) -> u32 {
    match op {
        Op::Random { .. } => 24,
        Op::Iota { .. } => 1,
        Op::Unary(op) => match op {
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Expm1 | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p => 12,
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tanh | UnaryOp::Erf => 16,
            UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Recip => 4,
            _ => 1,
        },
        Op::Binary(op) => match op {
            BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Rem => 24,
            BinaryOp::Div => 4,
            _ => 1,
        },
        _ => 1,
    }
}

impl<'a> Builder<'a> {
    fn new(analysis: &'a Analysis<'a>, fusion: Fusion) -> Builder<'a> {
        let count = analysis.graph.nodes.len();
        Builder {
            analysis,
            fusion,
            roles: vec![Role::Dead; count],
            rows: vec![false; count],
            costs: vec![None; count],
            forced: vec![false; count],
            fills: vec![None; count],
            deps: vec![SmallVec::new(); count],
            groups: Vec::new(),
            ancestors: Vec::new(),
            recompute: vec![false; count],
            merged_siblings: 0,
        }
    }

    fn is_fusable(&self, node: NodeId) -> bool {
        let op = self.analysis.op(node);
        op.is_elementwise() || matches!(op, Op::Reduce { .. } | Op::Const(_) | Op::Iota { .. } | Op::Random { .. })
    }

    fn can_fault(&self, node: NodeId) -> bool {
        self.analysis.op(node).can_fault(self.analysis.graph[node].dtype)
    }

    /// Decides which nodes are computed wherever they are used.
    fn choose_inline(&mut self) {
        let analysis = self.analysis;
        // What a native op reads must be in memory, and so must outputs.
        for (id, _) in analysis.graph.iter().filter(|(id, _)| analysis.live[id.idx()]) {
            if !self.is_fusable(id) && !analysis.is_view(id) {
                for &input in &analysis.inputs[id.idx()] {
                    self.forced[peel(analysis, input).0.idx()] = true;
                }
            }
        }
        for &output in &analysis.outputs {
            if let Some(base) = bytes_of(analysis, output) {
                self.forced[base.idx()] = true;
            }
        }
        let mut last_user: Vec<Option<NodeId>> = vec![None; analysis.graph.nodes.len()];
        for (id, node) in analysis.graph.iter().filter(|(id, _)| analysis.live[id.idx()]) {
            let idx = id.idx();
            for &input in &analysis.inputs[idx] {
                last_user[input.idx()] = Some(id);
            }
            let op = &node.op;
            let operands = || analysis.inputs[idx].iter().map(|input| self.costs[input.idx()]);
            self.costs[idx] = match op {
                Op::Const(_) => Some(0),
                Op::Iota { .. } | Op::Random { .. } => Some(op_cost(op)),
                _ if self.fusion == Fusion::Off && !analysis.is_view(id) => None,
                _ if analysis.is_view(id) => operands().next().flatten(),
                _ if op.is_elementwise() && !self.can_fault(id) => operands()
                    .try_fold(op_cost(op), |sum, cost| Some(sum + cost?))
                    .filter(|&cost| cost <= MAX_INLINE_COST),
                _ => None,
            };
            if self.forced[idx] && self.costs[idx].is_some_and(|cost| cost > MAX_TWICE_COST) {
                self.costs[idx] = None;
            }
        }
        for (id, node) in analysis.graph.iter().filter(|(id, _)| analysis.live[id.idx()]) {
            self.roles[id.idx()] = match node.op {
                Op::Input(_) => Role::Input,
                _ if analysis.is_view(id) => Role::View,
                _ if self.costs[id.idx()].is_some() => Role::Inline,
                _ => Role::Dead,
            };
        }
        if self.fusion == Fusion::Off {
            return;
        }
        // A map of values that are in memory anyway, read once, in another order: computed by its reader. Such maps may
        // stand on each other, up to a depth.
        let mut depths = vec![0u8; analysis.graph.nodes.len()];
        for (id, node) in analysis.graph.iter().filter(|(id, _)| analysis.live[id.idx()]) {
            let idx = id.idx();
            if self.roles[idx] != Role::Dead || self.forced[idx] || self.can_fault(id) || !node.op.is_elementwise() {
                continue;
            }
            let stored = |input: &NodeId| {
                let base = peel(analysis, *input).0;
                matches!(self.roles[base.idx()], Role::Input | Role::Inline) || !self.is_fusable(base)
            };
            if !analysis.inputs[idx].iter().all(stored) || analysis.uses[idx] != 1 {
                continue;
            }
            let below = analysis.inputs[idx].iter().map(|&input| depths[peel(analysis, input).0.idx()]).max();
            depths[idx] = below.unwrap_or(0) + 1;
            if depths[idx] > MAX_INLINE_DEPTH {
                continue;
            }
            let (mut user, mut moves) = (last_user[idx], false);
            while let Some(view) = user.filter(|&user| analysis.is_view(user) && analysis.uses[user.idx()] == 1) {
                match (&analysis.relations[view.idx()], analysis.op(view)) {
                    (Relation::Same, _) => {}
                    (Relation::Repeat(_), _) | (_, Op::Window(_)) => break,
                    (Relation::Other, _) => moves = true,
                }
                user = last_user[view.idx()];
            }
            // Without a user the last view is an output.
            if moves && user.is_none_or(|user| self.is_fusable(user)) {
                self.roles[idx] = Role::Inline;
            }
        }
    }

    /// The stored values that computing `node` from operand `input` reads.
    fn collect_deps(&self, input: NodeId, deps: &mut SmallVec<[Dep; 3]>) {
        let (base, relation) = peel(self.analysis, input);
        if self.roles[base.idx()] == Role::Inline {
            let mut inner = SmallVec::new();
            for &input in &self.analysis.inputs[base.idx()] {
                self.collect_deps(input, &mut inner);
            }
            // Read from memory wherever the inline expression stands.
            deps.extend(inner.into_iter().map(|(base, _)| (base, Relation::Other)));
        } else {
            deps.push((base, relation));
        }
    }

    fn group_of(&self, node: NodeId) -> Option<u32> {
        match self.roles[node.idx()] {
            Role::Member(group) | Role::Native(group) => Some(group),
            Role::Inline => self.fills[node.idx()],
            Role::Dead | Role::Input | Role::View => None,
        }
    }

    fn place_all(&mut self) {
        let analysis = self.analysis;
        let mut copies = vec![false; analysis.graph.nodes.len()];
        for &output in &analysis.outputs {
            copies[output.idx()] = bytes_of(analysis, output).is_none();
        }
        for (id, node) in analysis.graph.iter().filter(|(id, _)| analysis.live[id.idx()]) {
            let idx = id.idx();
            let role = self.roles[idx];
            let is_copy = copies[idx];
            if role == Role::Input || (role == Role::View && !is_copy) || (role == Role::Inline && !self.forced[idx]) {
                continue;
            }
            let is_native = !is_copy && !self.is_fusable(id);
            let mut deps = SmallVec::new();
            if is_copy {
                self.collect_deps(id, &mut deps);
            } else {
                for &input in &analysis.inputs[idx] {
                    match peel(analysis, input).0 {
                        base if is_native => deps.push((base, Relation::Other)),
                        _ => self.collect_deps(input, &mut deps),
                    }
                }
            }
            self.deps[idx] = deps;
            if is_native {
                let group = self.new_group(Frame::new(), 0, true);
                self.groups[group as usize].native = true;
                self.add(id, group, false, Role::Native(group));
                continue;
            }
            match node.op {
                Op::Reduce { .. } => self.place_reduction(id),
                // What is inline elsewhere and stored here.
                _ if role == Role::Inline => {
                    let group = self.new_group(analysis.frame(id).clone(), 0, true);
                    self.groups[group as usize].members.push(id);
                    self.fills[idx] = Some(group);
                    self.update_ancestors(id, group);
                }
                _ => self.place_map(id),
            }
        }
    }

    fn new_group(&mut self, frame: Frame, reduced: u64, closed: bool) -> u32 {
        let closed = closed || self.fusion == Fusion::Off;
        self.groups.push(Group { frame, reduced, members: Vec::new(), native: false, closed });
        self.ancestors.push(Bits::default());
        self.groups.len() as u32 - 1
    }

    fn add(&mut self, node: NodeId, group: u32, row: bool, role: Role) {
        self.roles[node.idx()] = role;
        self.rows[node.idx()] = row;
        self.groups[group as usize].members.push(node);
        self.update_ancestors(node, group);
    }

    fn update_ancestors(&mut self, node: NodeId, group: u32) {
        let mut new = Bits::default();
        for (base, _) in &self.deps[node.idx()] {
            if let Some(other) = self.group_of(*base).filter(|&other| other != group) {
                new.insert(other);
                new.extend(&self.ancestors[other as usize]);
            }
        }
        if self.ancestors[group as usize].extend(&new) {
            for other in 0..self.groups.len() {
                if other != group as usize && self.ancestors[other].contains(group) {
                    self.ancestors[other].extend(&new);
                }
            }
        }
    }

    /// Whether `node`, placed at `row` of a group that reduces `reduced`, can read `dep` (of the same group) in
    /// registers.
    fn in_registers(&self, node: NodeId, row: bool, dep: &Dep, dep_row: bool, reduced: u64) -> bool {
        // A reduction is a row value that reads full values.
        let row = row && !matches!(self.analysis.op(node), Op::Reduce { .. });
        match dep.1 {
            Relation::Same => row == dep_row,
            Relation::Repeat(mask) => dep_row && !row && mask == reduced,
            Relation::Other => false,
        }
    }

    fn can_join(&self, node: NodeId, group: u32, row: bool, reduced: u64) -> bool {
        self.groups[group as usize].members.len() < MAX_WEIGHT
            && self.deps[node.idx()].iter().all(|dep| match self.group_of(dep.0) {
                Some(other) if other == group => self.in_registers(node, row, dep, self.rows[dep.0.idx()], reduced),
                Some(other) => !self.ancestors[other as usize].contains(group),
                None => true,
            })
    }

    fn open_group_of(&self, node: NodeId) -> Option<u32> {
        match self.roles[node.idx()] {
            Role::Member(group) if !self.groups[group as usize].closed => Some(group),
            _ => None,
        }
    }

    fn place_map(&mut self, id: NodeId) {
        let frame = self.analysis.frame(id);
        let mut candidates: SmallVec<[(u32, bool); 4]> = SmallVec::new();
        for (base, relation) in &self.deps[id.idx()] {
            let Some(group) = self.open_group_of(*base) else { continue };
            let row = self.rows[base.idx()];
            let there = &self.groups[group as usize];
            let candidate = match relation {
                Relation::Same => (group, row),
                Relation::Repeat(mask) if row && there.reduced == *mask && there.frame == *frame => (group, false),
                _ => continue,
            };
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        // Groups made late first: they are the ones that others must not overtake.
        candidates.sort_by_key(|&(group, row)| (Reverse(group), row));
        let home = candidates
            .iter()
            .copied()
            .find(|&(group, row)| self.can_join(id, group, row, self.groups[group as usize].reduced));
        let Some((home, row)) = home else {
            let group = self.new_group(frame.clone(), 0, false);
            return self.add(id, group, false, Role::Member(group));
        };
        self.add(id, home, row, Role::Member(home));
        for (other, _) in candidates {
            if let Some(home) =
                self.group_of(id).filter(|&home| home != other && !self.groups[other as usize].members.is_empty())
            {
                self.try_merge(home, other);
            }
        }
    }

    fn place_reduction(&mut self, id: NodeId) {
        let operand = self.analysis.inputs[id.idx()][0];
        let frame = self.analysis.frame(operand).clone();
        let reduced = self.analysis.reduced_positions(id);
        let home = self.deps[id.idx()].iter().find_map(|(base, relation)| {
            let group = self.open_group_of(*base)?;
            let there = &self.groups[group as usize];
            let fits = match relation {
                Relation::Same => !self.rows[base.idx()] && (there.reduced == 0 || there.reduced == reduced),
                Relation::Repeat(mask) => *mask == reduced && there.reduced == reduced && there.frame == frame,
                Relation::Other => false,
            };
            (fits && reduced != 0 && self.can_join(id, group, true, reduced)).then_some(group)
        });
        let group = home.unwrap_or_else(|| self.new_group(frame, reduced, reduced == 0));
        self.groups[group as usize].reduced = reduced;
        self.add(id, group, true, Role::Member(group));
    }

    /// Merges group `b` into `a` or the other way round, if their spaces fit and no other group stands between.
    fn try_merge(&mut self, a: u32, b: u32) -> bool {
        let (one, two) = (&self.groups[a as usize], &self.groups[b as usize]);
        if one.closed || two.closed || one.native || two.native || a == b {
            return false;
        }
        if one.members.len() + two.members.len() > MAX_WEIGHT {
            return false;
        }
        let row_frame = |group: &Group| -> Frame {
            let kept = group.frame.iter().enumerate().filter(|(position, _)| group.reduced >> position & 1 == 0);
            kept.map(|(_, &sym)| sym).collect()
        };
        let mut ways: SmallVec<[(Shift, Shift, u64, Frame); 3]> = SmallVec::new();
        if one.frame == two.frame && (one.reduced == two.reduced || one.reduced == 0 || two.reduced == 0) {
            ways.push((Shift::None, Shift::None, one.reduced | two.reduced, one.frame.clone()));
        }
        if one.reduced == 0 && two.reduced != 0 && one.frame == row_frame(two) {
            ways.push((Shift::ToRow, Shift::None, two.reduced, two.frame.clone()));
        }
        if two.reduced == 0 && one.reduced != 0 && two.frame == row_frame(one) {
            ways.push((Shift::None, Shift::ToRow, one.reduced, one.frame.clone()));
        }
        let between = |from: u32, to: u32| {
            let to = &self.ancestors[to as usize];
            to.contains(from) && to.iter().any(|mid| mid != from && self.ancestors[mid as usize].contains(from))
        };
        if ways.is_empty() || between(a, b) || between(b, a) {
            return false;
        }
        let way = ways.into_iter().find(|(shift_one, shift_two, reduced, _)| {
            let row_in = |node: NodeId, group: u32| {
                self.rows[node.idx()] || (if group == a { *shift_one } else { *shift_two }) == Shift::ToRow
            };
            [(one, a), (two, b)].iter().all(|(group, this)| {
                group.members.iter().all(|&member| {
                    self.deps[member.idx()].iter().all(|dep| match self.group_of(dep.0) {
                        Some(other) if other == a || other == b => {
                            let dep_row = row_in(dep.0, other);
                            self.in_registers(member, row_in(member, *this), dep, dep_row, *reduced)
                        }
                        _ => true,
                    })
                })
            })
        });
        let Some((shift_one, shift_two, reduced, frame)) = way else { return false };
        for (group, shift) in [(a, shift_one), (b, shift_two)] {
            if shift == Shift::ToRow {
                for &member in &self.groups[group as usize].members {
                    self.rows[member.idx()] = true;
                }
            }
        }
        // The members keep graph order, which is an order of computation.
        let moved = core::mem::take(&mut self.groups[b as usize].members);
        for &member in &moved {
            self.roles[member.idx()] = Role::Member(a);
        }
        let members = &mut self.groups[a as usize].members;
        members.extend(moved);
        members.sort_unstable();
        self.groups[a as usize].reduced = reduced;
        self.groups[a as usize].frame = frame;
        let other = core::mem::take(&mut self.ancestors[b as usize]);
        self.ancestors[a as usize].extend(&other);
        self.ancestors[a as usize].remove(a);
        self.ancestors[a as usize].remove(b);
        let all = self.ancestors[a as usize].clone();
        for group in 0..self.groups.len() {
            if self.ancestors[group].contains(a) || self.ancestors[group].contains(b) {
                self.ancestors[group].remove(b);
                self.ancestors[group].insert(a);
                self.ancestors[group].extend(&all);
            }
        }
        true
    }

    /// Merges groups that feed each other or read the same values, where they could not when they were made.
    fn merge_neighbours(&mut self) {
        let count = self.analysis.graph.nodes.len();
        for idx in 0..count {
            for dep in 0..self.deps[idx].len() {
                let base = self.deps[idx][dep].0;
                if let (Role::Member(a), Role::Member(b)) = (self.roles[idx], self.roles[base.idx()])
                    && a != b
                {
                    self.try_merge(b, a);
                }
            }
        }
        let mut readers: Vec<SmallVec<[NodeId; 4]>> = vec![SmallVec::new(); count];
        for idx in 0..count {
            if let Role::Member(_) = self.roles[idx] {
                for (base, relation) in &self.deps[idx] {
                    if *relation == Relation::Same {
                        readers[base.idx()].push(NodeId(idx as u32));
                    }
                }
            }
        }
        for readers in readers {
            for pair in readers.windows(2) {
                if let (Some(a), Some(b)) = (self.open_group_of(pair[0]), self.open_group_of(pair[1])) {
                    let (one, two) = (&self.groups[a as usize], &self.groups[b as usize]);
                    if a != b && one.reduced == two.reduced && self.try_merge(a, b) {
                        self.merged_siblings += 1;
                    }
                }
            }
        }
    }

    /// Decides which members other kernels compute again: cheap maps of values that are in memory anyway.
    fn choose_recompute(&mut self) {
        let analysis = self.analysis;
        let count = analysis.graph.nodes.len();
        // In memory for sure: inputs, native results, outputs, what native ops read, and row values (small).
        let mut stored: Vec<bool> = (0..count)
            .map(|idx| match self.roles[idx] {
                Role::Input | Role::Native(_) => true,
                Role::Member(_) => self.forced[idx] || self.rows[idx],
                _ => false,
            })
            .collect();
        for &output in &analysis.outputs {
            stored[output.idx()] |= matches!(self.roles[output.idx()], Role::Member(_));
        }
        let mut foreign_readers: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); count];
        for idx in 0..count {
            let Some(group) = self.group_of(NodeId(idx as u32)) else { continue };
            for (base, _) in &self.deps[idx] {
                let readers = &mut foreign_readers[base.idx()];
                if self.group_of(*base) != Some(group) && !readers.contains(&group) {
                    readers.push(group);
                }
            }
        }
        let mut costs = vec![0u32; count];
        let mut leaves: Vec<SmallVec<[NodeId; 4]>> = vec![SmallVec::new(); count];
        for idx in 0..count {
            let id = NodeId(idx as u32);
            let Role::Member(_) = self.roles[idx] else { continue };
            let op = analysis.op(id);
            if stored[idx] || self.can_fault(id) || !op.is_elementwise() {
                continue;
            }
            let mut cost = op_cost(op);
            let mut full: SmallVec<[NodeId; 4]> = SmallVec::new();
            let mut known = true;
            let frame = analysis.frame(id).len();
            for (base, relation) in &self.deps[idx] {
                if self.recompute[base.idx()] && *relation == Relation::Same {
                    cost += costs[base.idx()];
                    full.extend(leaves[base.idx()].iter().copied());
                } else if stored[base.idx()] {
                    if analysis.frame(*base).len() >= frame {
                        full.push(*base);
                    }
                } else {
                    known = false;
                }
            }
            full.sort_unstable();
            full.dedup();
            let readers = foreign_readers[idx].len();
            let worth = full.len() <= 1 || (full.len() == 2 && readers <= 2);
            if known && cost <= 10 && worth {
                (costs[idx], leaves[idx]) = (cost, full);
                self.recompute[idx] = true;
            } else if readers > 0 {
                stored[idx] = true;
            }
        }
    }

    fn finish(self) -> Schedule {
        // Edges between groups, then the earliest ready group first.
        let count = self.groups.len();
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut waiting = vec![0u32; count];
        for (idx, group) in self.groups.iter().enumerate() {
            let mut before: Vec<u32> = group
                .members
                .iter()
                .flat_map(|member| &self.deps[member.idx()])
                .filter_map(|(base, _)| self.group_of(*base))
                .filter(|&other| other as usize != idx)
                .collect();
            before.sort_unstable();
            before.dedup();
            waiting[idx] = before.len() as u32;
            before.into_iter().for_each(|other| users[other as usize].push(idx as u32));
        }
        // A group stands where its last member does: by then all that it waits for had its turn.
        let place = |group: u32| Reverse((self.groups[group as usize].members.last().copied(), group));
        let mut ready: BinaryHeap<_> = (0..count as u32)
            .filter(|&group| waiting[group as usize] == 0 && !self.groups[group as usize].members.is_empty())
            .map(place)
            .collect();
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((_, group))) = ready.pop() {
            order.push(group);
            for &user in &users[group as usize] {
                waiting[user as usize] -= 1;
                if waiting[user as usize] == 0 {
                    ready.push(place(user));
                }
            }
        }
        let groups = self.groups.iter().filter(|group| !group.members.is_empty()).count();
        assert_eq!(order.len(), groups, "groups are free of cycles");
        Schedule {
            roles: self.roles,
            rows: self.rows,
            groups: self.groups,
            order,
            recompute: self.recompute,
            merged_siblings: self.merged_siblings,
        }
    }
}
