//! [`walk`]: how an access goes through its buffer, as strides over the dims of a kernel.

use crate::plan::Access;
use alloc::vec::Vec;
use fornax_ir::{Graph, Layout, Op, Shape};

/// An index map that strides cannot tell: a place counts row-major through `dims`, and their strides lead to the next place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// Sizes and strides, outermost first.
    pub dims: Vec<(i64, i64)>,
    /// The place of the first element.
    pub offset: i64,
}

/// The layout of `access` over `target`, which holds the same elements as what the access gives; and the index maps that
/// follow, in order, where strides cannot tell.
///
/// `counted`: the base is an iota or a random node that is counted out, not one that is stored; the place is then what is
/// counted.
pub fn walk(graph: &Graph, access: &Access, counted: bool, target: &Shape) -> (Layout, Vec<Level>) {
    let base = &graph[access.base];
    let mut layout = Layout::contiguous(&base.shape);
    if let (Op::Iota { dim }, true) = (&base.op, counted) {
        // The element at place `p` counts `p`.
        layout.strides.iter_mut().for_each(|stride| *stride = 0);
        layout.strides[*dim] = 1;
    }
    let mut levels = Vec::new();
    let mut step = |layout: Layout, op: &Op, shape: &Shape| {
        layout.through(op, shape).unwrap_or_else(|| {
            let dims = layout.shape.iter().zip(&layout.strides).map(|(&size, &stride)| (size as i64, stride as i64));
            levels.push(Level { dims: dims.collect(), offset: layout.offset as i64 });
            Layout::contiguous(&layout.shape).through(op, shape).expect("strides tell any view of a contiguous value")
        })
    };
    for &view in access.views.iter().rev() {
        layout = step(layout, &graph[view].op, &graph[view].shape);
    }
    let layout = step(layout, &Op::Reshape, target);
    levels.reverse();
    (layout, levels)
}
