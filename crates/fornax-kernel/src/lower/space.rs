//! [`Space`]: the loops of a fused kernel and how each of its accesses walks through them.

use fornax_compile::{Kernel, Level, Store, ValueOp, walk};
use fornax_ir::{DType, Graph, NodeId, Shape};

/// How an access goes over the kernel's dims.
pub(crate) struct Walk {
    /// Bytes of an element in memory.
    pub size: usize,
    pub offset: isize,
    /// Index maps that follow.
    pub levels: Vec<Level>,
    /// Whether reduced dims move it (it is not a row access).
    pub full: bool,
    /// Counts places instead of reading a buffer.
    pub counted: bool,
    /// Over the kernel's dims.
    strides: Vec<isize>,
}

/// One or several dims that all accesses walk through alike.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub size: usize,
    /// By walk.
    pub strides: Vec<isize>,
}

pub(crate) struct Space {
    /// First those of the kernel's accesses, in order, then those of its stores.
    pub walks: Vec<Walk>,
    /// The stores of passes and stages, with the numbers of their walks.
    pub stores: Vec<(Store, usize)>,
    /// The number of the walk that counts rows.
    pub row_walk: usize,
    /// Loops over dims that are not reduced, outermost first.
    pub kept: Vec<Loop>,
    /// Loops over reduced dims.
    pub reduced: Vec<Loop>,
    /// Loops over all dims.
    pub all: Vec<Loop>,
    /// Sizes of the kernel's dims.
    sizes: Vec<usize>,
}

impl Space {
    pub fn new(kernel: &Kernel, graph: &Graph) -> Space {
        let sizes: Vec<usize> = kernel.dims.iter().map(|dim| graph[dim.size.0].shape[dim.size.1]).collect();
        let full_shape = Shape::from(&sizes[..]);
        let row_shape: Shape =
            kernel.dims.iter().zip(&sizes).map(|(dim, &size)| if dim.reduced { 1 } else { size }).collect();
        let mut is_row = vec![false; kernel.accesses.len()];
        let mut counted = vec![false; kernel.accesses.len()];
        for value in &kernel.values {
            if let ValueOp::Load(access) | ValueOp::Iota(access) | ValueOp::Random(access) = value.op {
                is_row[access as usize] = value.row;
                counted[access as usize] = !matches!(value.op, ValueOp::Load(_));
            }
        }
        let mut walks = Vec::new();
        for (idx, access) in kernel.accesses.iter().enumerate() {
            let row = is_row[idx];
            let (layout, levels) = walk(graph, access, counted[idx], if row { &row_shape } else { &full_shape });
            let stride = |dim: usize| match row && kernel.dims[dim].reduced || sizes[dim] == 1 {
                true => 0,
                false => layout.strides[dim],
            };
            let strides = (0..sizes.len()).map(stride).collect();
            let (size, offset) = (graph[access.base].dtype.size(), layout.offset as isize);
            walks.push(Walk { size, offset, levels, full: !row, counted: counted[idx], strides });
        }
        let plain = |shape: &Shape, dtype: DType, full: bool| {
            let strides = shape.strides().into_iter().zip(shape.iter());
            let strides = strides.map(|(stride, &size)| if size == 1 { 0 } else { stride });
            Walk { size: dtype.size(), offset: 0, levels: Vec::new(), full, counted: false, strides: strides.collect() }
        };
        let mut stores = Vec::new();
        let full_stores = kernel.passes.iter().flat_map(|pass| &pass.stores).map(|&store| (store, true));
        let row_stores = kernel.stages.iter().flat_map(|stage| &stage.stores).map(|&store| (store, false));
        for (store, full) in full_stores.chain(row_stores) {
            stores.push((store, walks.len()));
            walks.push(plain(if full { &full_shape } else { &row_shape }, graph[store.node].dtype, full));
        }
        let row_walk = walks.len();
        walks.push(plain(&row_shape, DType::F32, false));
        // Merged reduced loops count row-major too: the places that argmax and argmin tell are the numbers of elements.
        let mut space =
            Space { walks, stores, row_walk, kept: Vec::new(), reduced: Vec::new(), all: Vec::new(), sizes };
        space.kept = space.loops(|dim| !kernel.dims[dim].reduced);
        space.reduced = space.loops(|dim| kernel.dims[dim].reduced);
        space.all = space.loops(|_| true);
        space
    }

    /// Loops over some dims, merged where all walks allow.
    fn loops(&self, takes: impl Fn(usize) -> bool) -> Vec<Loop> {
        let dims = (0..self.sizes.len()).filter(|&dim| takes(dim));
        merge(dims.map(|dim| (self.sizes[dim], self.walks.iter().map(|walk| walk.strides[dim]).collect())))
    }

    /// The walk of a store.
    pub fn store_walk(&self, node: NodeId) -> usize {
        self.stores.iter().find(|(store, _)| store.node == node).expect("every store has a walk").1
    }

    /// The largest power of two, at most 16 bytes of the smallest element and 8 elements, of which all vectors of the
    /// last of `loops` are aligned, whatever the other `loops` and `others` add; 1 if there is none.
    pub fn vector(&self, loops: &[Loop], others: &[Loop]) -> usize {
        let Some((along, outer)) = loops.split_last() else { return 1 };
        let contiguous: Vec<usize> =
            (0..self.walks.len()).filter(|&w| along.strides[w] == 1 && self.walks[w].levels.is_empty()).collect();
        let smallest = contiguous.iter().map(|&w| self.walks[w].size).min();
        let mut vector = (16 / smallest.unwrap_or(16)).min(8);
        let aligned = |vector: usize| {
            along.size.is_multiple_of(vector)
                && contiguous.iter().all(|&w| {
                    let fits = |number: isize| number.unsigned_abs().is_multiple_of(vector);
                    fits(self.walks[w].offset) && outer.iter().chain(others).all(|other| fits(other.strides[w]))
                })
        };
        while vector > 1 && !aligned(vector) {
            vector /= 2;
        }
        vector
    }

    /// Bytes of the elements that neighbours along a loop share a line with.
    pub fn contiguous_bytes(&self, along: Option<&Loop>) -> usize {
        let contiguous = |along: &Loop| {
            let full = (0..self.walks.len()).filter(|&w| self.walks[w].full && !self.walks[w].counted);
            full.filter(|&w| along.strides[w].abs() == 1).map(|w| self.walks[w].size).sum()
        };
        along.map_or(0, contiguous)
    }
}

pub(crate) fn count(loops: &[Loop]) -> usize {
    loops.iter().map(|one| one.size).product()
}

/// Dims, each with a stride for every walk, as loops: merged where all walks allow, dims of size 1 left out.
pub(crate) fn merge(dims: impl Iterator<Item = (usize, Vec<isize>)>) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::new();
    for (size, strides) in dims.filter(|&(size, _)| size != 1) {
        let inner = Loop { size, strides };
        match loops.last_mut() {
            Some(outer) if mergeable(outer, &inner) => {
                (outer.size, outer.strides) = (outer.size * inner.size, inner.strides);
            }
            _ => loops.push(inner),
        }
    }
    loops
}

fn mergeable(outer: &Loop, inner: &Loop) -> bool {
    outer.strides.iter().zip(&inner.strides).all(|(&outer, &stride)| outer == stride * inner.size as isize)
}
