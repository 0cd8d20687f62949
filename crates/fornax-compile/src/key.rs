//! Keys: what a plan may know of sizes (facts), and what a bound plan may know (sizes and places).
//!
//! A plan is made for a structure: [`Graph::push_key`] plus the few [facts](push_facts) about sizes that movement ops
//! leave open: which dims an expand repeats, which dims a reshape keeps, which dims a slice or pad leaves whole. Facts
//! are read from sizes here and nowhere else, and they are part of the key, so a plan never rests on numbers that its
//! key does not vouch for. Other sizes of the same structure nearly always have the same facts; sizes of 1 differ.

use alloc::vec::Vec;
use core::ops::Range;
use fornax_ir::{Graph, Op};
use smallvec::SmallVec;

/// Dims of the source and of the target of a reshape that hold the same elements; dims of size 1 stand in no group
/// unless they lie inside one.
pub(crate) type ReshapeGroups = SmallVec<[(Range<usize>, Range<usize>); 6]>;

/// The finest groups of dims with equal products, outermost first; `None` if there are no elements.
pub(crate) fn reshape_groups(from: &[usize], to: &[usize]) -> Option<ReshapeGroups> {
    let mut groups = ReshapeGroups::new();
    if from.contains(&0) || to.contains(&0) {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    loop {
        while from.get(i) == Some(&1) {
            i += 1;
        }
        while to.get(j) == Some(&1) {
            j += 1;
        }
        if i == from.len() || j == to.len() {
            return Some(groups);
        }
        let (first_i, first_j) = (i, j);
        let (mut a, mut b) = (from[i], to[j]);
        (i, j) = (i + 1, j + 1);
        while a != b {
            if a < b {
                a *= from[i];
                i += 1;
            } else {
                b *= to[j];
                j += 1;
            }
        }
        groups.push((first_i..i, first_j..j));
    }
}

/// Dims of size 1, as bits.
pub(crate) fn ones(shape: &[usize]) -> u64 {
    shape.iter().enumerate().fold(0, |mask, (dim, &size)| mask | u64::from(size == 1) << (dim & 63))
}

/// What an expand does to each dim of its result, as two masks: repeated dims, and new dims of size 1.
pub(crate) fn expand_masks(from: &[usize], to: &[usize]) -> (u64, u64) {
    let new = to.len() - from.len();
    let (mut repeated, mut new_ones) = (0, 0);
    for (dim, &size) in to.iter().enumerate() {
        if dim < new {
            *(if size == 1 { &mut new_ones } else { &mut repeated }) |= 1 << (dim & 63);
        } else if from[dim - new] != size {
            repeated |= 1 << (dim & 63);
        }
    }
    (repeated, new_ones)
}

/// Dims that a slice (with steps of 1) or a pad leaves as they are, as bits.
pub(crate) fn whole_dims(op: &Op, from: &[usize], to: &[usize]) -> u64 {
    let step = |dim: usize| match op {
        Op::Slice { steps, .. } => steps[dim],
        _ => 1,
    };
    (0..to.len()).fold(0, |mask, dim| mask | u64::from(from[dim] == to[dim] && step(dim) == 1) << (dim & 63))
}

/// Appends the facts about sizes that a plan for `graph` rests on, besides [`Graph::push_key`].
pub fn push_facts(graph: &Graph, key: &mut Vec<u64>) {
    for node in &graph.nodes {
        let from = node.inputs.first().map(|&id| &graph[id].shape);
        match (&node.op, from) {
            (Op::Reshape, Some(from)) => {
                key.push(ones(from) << 32 | ones(&node.shape));
                let groups = reshape_groups(from, &node.shape);
                key.push(groups.as_ref().map_or(u64::MAX, |groups| groups.len() as u64));
                key.extend(groups.iter().flatten().map(|(i, j)| {
                    (i.start as u64) << 48 | (i.end as u64) << 32 | (j.start as u64) << 16 | j.end as u64
                }));
            }
            (Op::Expand, Some(from)) => {
                let (repeated, new_ones) = expand_masks(from, &node.shape);
                key.push(repeated << 32 | new_ones);
            }
            (Op::Slice { .. } | Op::Pad { .. }, Some(from)) => key.push(whole_dims(&node.op, from, &node.shape)),
            _ => {}
        }
    }
}

/// Appends the sizes of `graph`, and the places that movement ops name: what a bound plan rests on, besides
/// [`Graph::push_key`]. Scalars and seeds are not in it.
pub fn push_sizes(graph: &Graph, key: &mut Vec<u64>) {
    for node in &graph.nodes {
        let places = match &node.op {
            Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } | Op::Reshape | Op::Expand => None,
            Op::TopK { .. } | Op::Fold(_) => None,
            Op::Slice { starts, .. } => Some(starts),
            Op::Pad { low, .. } => Some(low),
            _ => continue,
        };
        key.extend(node.shape.iter().map(|&size| size as u64));
        if let Some(places) = places {
            key.extend(places.iter().map(|&place| place as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_groups_are_the_finest() {
        let groups = |from: &[usize], to: &[usize]| reshape_groups(from, to).unwrap().to_vec();
        assert_eq!(groups(&[2, 3, 4], &[6, 4]), [(0..2, 0..1), (2..3, 1..2)]);
        assert_eq!(groups(&[5, 1], &[5]), [(0..1, 0..1)]);
        assert_eq!(groups(&[1], &[]), []);
        assert_eq!(groups(&[4, 6], &[3, 8]), [(0..2, 0..2)]);
        assert_eq!(reshape_groups(&[0, 3], &[0]), None);
    }
}
