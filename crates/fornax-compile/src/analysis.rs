//! [`Analysis`]: what is known of a graph before it is cut into kernels: which nodes are wanted, which are the same,
//! and which dims are equal.
//!
//! Dims are compared as symbols that ops unify (both operands of an add have the same dims), never as numbers. A symbol
//! may be a product of others (a reshape that merges or splits dims); the list of a node's prime symbols without dims
//! of size 1 is its [frame](Analysis::frame). Nodes of equal frames have the same elements in the same row-major order.

use crate::key::{expand_masks, ones, reshape_groups, whole_dims};
use crate::plan::Stats;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Graph, LinalgOp, NodeId, Op, ReduceOp};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// A class of dims that always have the same size.
pub(crate) type Sym = u32;

/// Prime symbols, outermost first.
pub(crate) type Frame = SmallVec<[Sym; 6]>;

/// The symbol of dims that always have size 1.
const ONE: Sym = 0;

/// How a view's elements relate to its operand's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The same elements in the same order.
    Same,
    /// Repeated along the positions of the result's frame in this mask.
    Repeat(u64),
    /// In other places.
    Other,
}

pub(crate) struct Analysis<'a> {
    pub graph: &'a Graph,
    /// Operands, after equal nodes were merged.
    pub inputs: Vec<SmallVec<[NodeId; 3]>>,
    /// Graph outputs, after equal nodes were merged.
    pub outputs: Vec<NodeId>,
    /// Permutes that stand for a matmul of swapped operands: `(A · B)ᵀ = Bᵀ · Aᵀ`. Their operands are the matmul's,
    /// swapped and not yet transposed. Holds the matmul.
    pub swapped: Vec<Option<NodeId>>,
    /// Whether an output depends on the node.
    pub live: Vec<bool>,
    /// How often live nodes and outputs use each node.
    pub uses: Vec<u32>,
    pub relations: Vec<Relation>,
    frames: Vec<Frame>,
    /// For each symbol, a dim that has its size.
    homes: HashMap<Sym, (NodeId, usize)>,
    pub stats: Stats,
}

/// Union-find over the dims of all nodes.
struct Symbols {
    parents: Vec<Sym>,
    first: Vec<Sym>,
    /// The factors of symbols that are products.
    products: HashMap<Sym, SmallVec<[Sym; 4]>>,
}

impl Symbols {
    fn of(&self, node: NodeId, dim: usize) -> Sym {
        self.find(self.first[node.idx()] + dim as Sym)
    }

    fn find(&self, mut sym: Sym) -> Sym {
        while self.parents[sym as usize] != sym {
            sym = self.parents[sym as usize];
        }
        sym
    }

    fn unify(&mut self, a: Sym, b: Sym) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            // The lower number wins, so that ONE stays a root.
            let (low, high) = (a.min(b), a.max(b));
            self.parents[high as usize] = low;
        }
    }

    fn unify_dims(&mut self, a: NodeId, b: NodeId, dims: impl IntoIterator<Item = (usize, usize)>) {
        for (dim_a, dim_b) in dims {
            self.unify(self.first[a.idx()] + dim_a as Sym, self.first[b.idx()] + dim_b as Sym);
        }
    }

    fn expand(&self, sym: Sym, frame: &mut Frame) {
        let sym = self.find(sym);
        match self.products.get(&sym) {
            _ if sym == ONE => {}
            Some(factors) => factors.iter().for_each(|&factor| self.expand(factor, frame)),
            None => frame.push(sym),
        }
    }

    /// Paths of length 1, so that later look-ups are cheap.
    fn compress(&mut self) {
        for sym in 0..self.parents.len() {
            self.parents[sym] = self.find(sym as Sym);
        }
    }
}

impl<'a> Analysis<'a> {
    pub fn new(graph: &'a Graph) -> Analysis<'a> {
        let mut stats = Stats::default();
        let symbols = symbols(graph);
        let (mut inputs, outputs) = merge_equal(graph, &symbols, &mut stats);
        let (_, uses) = count_uses(&inputs, &outputs);
        let swapped = swap_matmuls(graph, &mut inputs, &uses);
        stats.swapped_matmuls = swapped.iter().flatten().count() as u64;
        let (live, uses) = count_uses(&inputs, &outputs);
        stats.dead_nodes = live.iter().filter(|&&live| !live).count() as u64;
        let mut homes = HashMap::new();
        let mut frames = Vec::with_capacity(graph.nodes.len());
        for (id, node) in graph.iter() {
            let mut frame = Frame::new();
            for dim in 0..node.shape.rank() {
                let sym = symbols.of(id, dim);
                symbols.expand(sym, &mut frame);
                homes.entry(sym).or_insert((id, dim));
            }
            frames.push(frame);
        }
        let mut analysis =
            Analysis { graph, inputs, outputs, swapped, live, uses, relations: Vec::new(), frames, homes, stats };
        analysis.relations = graph.iter().map(|(id, _)| analysis.relation(&symbols, id)).collect();
        analysis
    }

    pub fn op(&self, node: NodeId) -> &'a Op {
        &self.graph[node].op
    }

    /// Whether `node` is read through, without work of its own.
    pub fn is_view(&self, node: NodeId) -> bool {
        self.op(node).is_view() && self.swapped[node.idx()].is_none()
    }

    /// The prime symbols of `node`'s dims, without dims of size 1.
    pub fn frame(&self, node: NodeId) -> &Frame {
        &self.frames[node.idx()]
    }

    /// A node and dim whose size is that of `sym`.
    pub fn home(&self, sym: Sym) -> (NodeId, usize) {
        self.homes[&sym]
    }

    /// The positions in `node`'s operand's frame of the dims that it reduces, as bits.
    pub fn reduced_positions(&self, node: NodeId) -> u64 {
        // The operand's frame, with what is left of it in order: a reduced dim's symbols are those skipped.
        match self.relations[node.idx()] {
            Relation::Repeat(mask) => mask,
            _ => 0,
        }
    }

    fn relation(&self, symbols: &Symbols, id: NodeId) -> Relation {
        let node = &self.graph[id];
        let Some(&source) = self.inputs[id.idx()].first() else { return Relation::Same };
        let mask_of = |of: NodeId, dims: u64| {
            let (mut position, mut mask) = (0, 0);
            for dim in 0..self.graph[of].shape.rank() {
                let mut part = Frame::new();
                symbols.expand(symbols.of(of, dim), &mut part);
                for _ in part {
                    if dims >> dim & 1 == 1 {
                        mask |= 1 << position;
                    }
                    position += 1;
                }
            }
            mask
        };
        match &node.op {
            Op::Reshape if self.frame(id) == self.frame(source) && !node.shape.contains(&0) => Relation::Same,
            Op::Reshape if unit_reshape(&self.graph[source].shape, &node.shape) => Relation::Same,
            Op::Expand => {
                let (repeated, _) = expand_masks(&self.graph[source].shape, &node.shape);
                match mask_of(id, repeated) {
                    0 => Relation::Same,
                    mask => Relation::Repeat(mask),
                }
            }
            Op::Permute(perm) => {
                // The order of dims that may differ from 1.
                let moved = perm.iter().filter(|&&dim| {
                    let mut part = Frame::new();
                    symbols.expand(symbols.of(source, dim), &mut part);
                    !part.is_empty()
                });
                if moved.is_sorted() { Relation::Same } else { Relation::Other }
            }
            // For a reduction: the positions of the operand's frame that it reduces.
            Op::Reduce { dims, .. } => {
                Relation::Repeat(mask_of(source, dims.iter().fold(0, |mask, &dim| mask | 1 << dim)))
            }
            _ => Relation::Other,
        }
    }
}

/// Which nodes outputs depend on, and how often each is used.
fn count_uses(inputs: &[SmallVec<[NodeId; 3]>], outputs: &[NodeId]) -> (Vec<bool>, Vec<u32>) {
    let (mut live, mut uses) = (vec![false; inputs.len()], vec![0; inputs.len()]);
    for &output in outputs {
        live[output.idx()] = true;
        uses[output.idx()] += 1;
    }
    for idx in (0..inputs.len()).rev() {
        if live[idx] {
            for &input in &inputs[idx] {
                live[input.idx()] = true;
                uses[input.idx()] += 1;
            }
        }
    }
    (live, uses)
}

/// Finds products that are only used transposed, and lets the transpose compute them: gradients of weights come so.
fn swap_matmuls(graph: &Graph, inputs: &mut [SmallVec<[NodeId; 3]>], uses: &[u32]) -> Vec<Option<NodeId>> {
    let mut swapped = vec![None; graph.nodes.len()];
    for (id, node) in graph.iter() {
        let Op::Permute(perm) = &node.op else { continue };
        let source = inputs[id.idx()][0];
        let rank = perm.len();
        if uses[source.idx()] == 1
            && uses[id.idx()] > 0
            && matches!(graph[source].op, Op::Matmul { .. })
            && perm[..rank - 2].iter().enumerate().all(|(dim, &from)| dim == from)
            && perm[rank - 2..] == [rank - 1, rank - 2]
        {
            swapped[id.idx()] = Some(source);
            inputs[id.idx()] = inputs[source.idx()].iter().rev().copied().collect();
        }
    }
    swapped
}

/// Whether a reshape only adds or drops dims of size 1 (told for empty shapes too, whose groups are unknown).
fn unit_reshape(from: &[usize], to: &[usize]) -> bool {
    // Groups of nonempty shapes already told.
    !from.contains(&0) && from.iter().filter(|&&size| size != 1).eq(to.iter().filter(|&&size| size != 1)) && {
        let groups = reshape_groups(from, to);
        groups.is_some_and(|groups| groups.iter().all(|(i, j)| i.len() == 1 && j.len() == 1))
    }
}

fn symbols(graph: &Graph) -> Symbols {
    let mut first = Vec::with_capacity(graph.nodes.len());
    let mut count: Sym = 1;
    for node in &graph.nodes {
        first.push(count);
        count += node.shape.rank() as Sym;
    }
    let mut symbols = Symbols { parents: (0..count).collect(), first, products: HashMap::new() };
    let mut products: Vec<(NodeId, usize, NodeId, SmallVec<[usize; 4]>)> = Vec::new();
    for (id, node) in graph.iter() {
        let rank = node.shape.rank();
        let source = node.inputs.first().copied().unwrap_or(id);
        let source_rank = graph[source].shape.rank();
        let same = |dims: core::ops::Range<usize>| dims.map(|dim| (dim, dim));
        match &node.op {
            Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => {}
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_) => {
                for &input in &node.inputs {
                    symbols.unify_dims(id, input, same(0..rank));
                }
            }
            Op::Scan { .. } | Op::ArgSort { .. } | Op::Fft { .. } | Op::Scatter { .. } => {
                symbols.unify_dims(id, source, same(0..rank));
                if let [_, index, values] = node.inputs[..] {
                    symbols.unify_dims(index, values, same(0..rank));
                }
            }
            Op::Reshape => {
                let (from, to) = (&graph[source].shape, &node.shape);
                for dim in (0..from.rank()).filter(|&dim| from[dim] == 1) {
                    symbols.unify(ONE, symbols.first[source.idx()] + dim as Sym);
                }
                for dim in (0..rank).filter(|&dim| to[dim] == 1) {
                    symbols.unify(ONE, symbols.first[id.idx()] + dim as Sym);
                }
                for (i, j) in reshape_groups(from, to).into_iter().flatten() {
                    let wide = |shape: &[usize], dims: core::ops::Range<usize>| -> SmallVec<[usize; 4]> {
                        dims.filter(|&dim| shape[dim] != 1).collect()
                    };
                    let (i, j) = (wide(from, i), wide(to, j));
                    match (&i[..], &j[..]) {
                        (&[i], &[j]) => symbols.unify_dims(source, id, [(i, j)]),
                        (&[i], _) => products.push((source, i, id, j)),
                        (_, &[j]) => products.push((id, j, source, i)),
                        _ => {}
                    }
                }
            }
            Op::Permute(perm) => symbols.unify_dims(id, source, perm.iter().copied().enumerate()),
            Op::Expand => {
                let (repeated, new_ones) = expand_masks(&graph[source].shape, &node.shape);
                let new = rank - source_rank;
                for dim in 0..rank {
                    let place = symbols.first[id.idx()] + dim as Sym;
                    if new_ones >> dim & 1 == 1 {
                        symbols.unify(ONE, place);
                    } else if dim >= new {
                        let other = symbols.first[source.idx()] + (dim - new) as Sym;
                        symbols.unify(if repeated >> dim & 1 == 1 { ONE } else { place }, other);
                    }
                }
            }
            Op::Slice { .. } | Op::Pad { .. } => {
                let whole = whole_dims(&node.op, &graph[source].shape, &node.shape);
                symbols.unify_dims(id, source, same(0..rank).filter(|(dim, _)| whole >> dim & 1 == 1));
            }
            Op::Concat { dim } => {
                for &input in &node.inputs {
                    symbols.unify_dims(id, input, same(0..rank).filter(|(d, _)| d != dim));
                }
            }
            Op::TopK { dim, .. } => symbols.unify_dims(id, source, same(0..rank).filter(|(d, _)| d != dim)),
            Op::Window(spec) => symbols.unify_dims(id, source, same(0..source_rank - spec.dims.len())),
            Op::Fold(spec) => symbols.unify_dims(id, source, same(0..rank - spec.dims.len())),
            Op::Reduce { dims, .. } => {
                symbols.unify_dims(id, source, same(0..rank).filter(|(d, _)| !dims.contains(d)));
                for &dim in dims {
                    symbols.unify(ONE, symbols.first[id.idx()] + dim as Sym);
                }
            }
            Op::Gather { .. } => symbols.unify_dims(id, node.inputs[1], same(0..rank)),
            Op::Matmul { .. } => {
                let rhs = node.inputs[1];
                symbols.unify_dims(id, source, same(0..rank - 1));
                symbols.unify_dims(id, rhs, same(0..rank - 2));
                symbols.unify_dims(id, rhs, [(rank - 1, rank - 1)]);
                symbols.unify_dims(source, rhs, [(rank - 1, rank - 2)]);
            }
            Op::Conv(_) => {
                symbols.unify_dims(id, source, [(0, 0)]);
                symbols.unify_dims(id, node.inputs[1], [(1, 0)]);
            }
            Op::Linalg(op) => match op {
                LinalgOp::Cholesky => symbols.unify_dims(id, source, same(0..rank)),
                LinalgOp::TriangularSolve { .. } => symbols.unify_dims(id, node.inputs[1], same(0..rank)),
                LinalgOp::Eig => symbols.unify_dims(id, source, same(0..rank - 3)),
                LinalgOp::Lu | LinalgOp::Qr | LinalgOp::Svd | LinalgOp::Eigh => {
                    symbols.unify_dims(id, source, same(0..rank - 2));
                }
            },
        }
    }
    symbols.compress();
    // The first way to split a dim is the one that frames use. Products are entered once all dims are unified.
    for (of, dim, node, factors) in products {
        let product = symbols.of(of, dim);
        if product != ONE && !symbols.products.contains_key(&product) {
            let factors: SmallVec<[Sym; 4]> = factors.iter().map(|&dim| symbols.of(node, dim)).collect();
            symbols.products.insert(product, factors);
        }
    }
    symbols
}

/// Operands and outputs with equal nodes merged and nodes that do nothing skipped. Nodes with arguments (scalars, seeds,
/// places) are never taken for equal: plans do not look at arguments.
fn merge_equal(graph: &Graph, symbols: &Symbols, stats: &mut Stats) -> (Vec<SmallVec<[NodeId; 3]>>, Vec<NodeId>) {
    let mut alias: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut inputs: Vec<SmallVec<[NodeId; 3]>> = Vec::with_capacity(graph.nodes.len());
    let mut seen: HashMap<Vec<u64>, NodeId> = HashMap::new();
    let mut key = Vec::new();
    for (id, node) in graph.iter() {
        let operands: SmallVec<[NodeId; 3]> = node.inputs.iter().map(|input| alias[input.idx()]).collect();
        let source = operands.first().copied();
        let from = source.map(|source| &graph[source]);
        let nothing = match (&node.op, from) {
            (Op::Cast(dtype) | Op::Bitcast(dtype), Some(from)) => *dtype == from.dtype,
            (Op::Reshape, Some(from)) => {
                ones(&from.shape) == ones(&node.shape)
                    && from.shape.rank() == node.shape.rank()
                    && reshape_groups(&from.shape, &node.shape)
                        .is_some_and(|groups| groups.iter().all(|(i, j)| i.len() == 1 && j.len() == 1))
            }
            (Op::Expand, Some(from)) => {
                from.shape.rank() == node.shape.rank() && expand_masks(&from.shape, &node.shape) == (0, 0)
            }
            (Op::Slice { .. } | Op::Pad { .. }, Some(from)) => {
                whole_dims(&node.op, &from.shape, &node.shape).count_ones() as usize == node.shape.rank()
            }
            (Op::Permute(perm), Some(_)) => perm.is_sorted(),
            (Op::Reduce { op, dims }, Some(_)) => {
                !matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin)
                    && dims.iter().all(|&dim| symbols.of(operands[0], dim) == ONE)
            }
            _ => false,
        };
        let mut same = nothing.then_some(()).and(source);
        stats.simplified += u64::from(nothing);
        if same.is_none()
            && let (Op::Permute(perm), Some(source)) = (&node.op, source)
            && let Op::Permute(inner) = &graph[source].op
            && perm.iter().enumerate().all(|(dim, &from)| inner[from] == dim)
        {
            same = Some(inputs[source.idx()][0]);
            stats.simplified += 1;
        }
        let has_arguments = matches!(
            node.op,
            Op::Input(_) | Op::Const(_) | Op::Random { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::TopK { .. }
        );
        if same.is_none() && !has_arguments {
            key.clear();
            node.op.push_key(&mut key);
            key.push(node.dtype as u64);
            key.push(operands.len() as u64);
            key.extend(operands.iter().map(|id| u64::from(id.0)));
            key.extend((0..node.shape.rank()).map(|dim| u64::from(symbols.of(id, dim))));
            same = seen.get(&key).copied();
            match same {
                Some(_) => stats.equal_nodes += 1,
                None => {
                    seen.insert(key.clone(), id);
                }
            }
        }
        alias.push(same.unwrap_or(id));
        inputs.push(operands);
    }
    (inputs, graph.outputs.iter().map(|output| alias[output.idx()]).collect())
}
