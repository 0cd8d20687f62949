//! [`Layout`]: where the elements of a value lie in a buffer: shape, strides and offset.

use crate::{Op, Shape, WindowSpec};
use smallvec::SmallVec;

/// A strided window on a buffer: element `i` lies at `offset + Σ i_d · strides_d` (all in elements).
///
/// Invariant: every index within the shape lands inside the buffer that the layout was made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Sizes of the dims.
    pub shape: Shape,
    /// Distance of neighbours along each dim; 0 repeats, negative runs backwards.
    pub strides: SmallVec<[isize; 6]>,
    /// Place of the first element.
    pub offset: usize,
}

impl Layout {
    /// The row-major layout of `shape` from the start of a buffer.
    pub fn contiguous(shape: impl Into<Shape>) -> Layout {
        let shape = shape.into();
        let strides = shape.strides();
        Layout { shape, strides, offset: 0 }
    }

    /// Whether elements lie row-major without gaps (the offset may be anything). Strides of dims of size 1 don't count.
    pub fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size as isize;
            }
        }
        true
    }

    /// Dim `i` of the result is dim `perm[i]` of this layout.
    #[must_use]
    pub fn permute(&self, perm: &[usize]) -> Layout {
        Layout {
            shape: perm.iter().map(|&dim| self.shape[dim]).collect(),
            strides: perm.iter().map(|&dim| self.strides[dim]).collect(),
            offset: self.offset,
        }
    }

    /// Sizes of 1 repeated to `shape`, new dims in front.
    #[must_use]
    pub fn expand(&self, shape: &Shape) -> Layout {
        let new = shape.rank() - self.shape.rank();
        let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, shape.rank());
        for dim in new..shape.rank() {
            if self.shape[dim - new] == shape[dim] {
                strides[dim] = self.strides[dim - new];
            }
        }
        Layout { shape: shape.clone(), strides, offset: self.offset }
    }

    /// `start + step · i` along every dim, `shape` elements each.
    #[must_use]
    pub fn slice(&self, starts: &[usize], steps: &[i64], shape: &Shape) -> Layout {
        let mut offset = self.offset as isize;
        let mut strides = self.strides.clone();
        // An empty slice may start one past the end; its offset must not leave the buffer.
        let empty = shape.contains(&0);
        for dim in 0..shape.rank() {
            if !empty {
                offset += starts[dim] as isize * self.strides[dim];
            }
            strides[dim] *= steps[dim] as isize;
        }
        Layout { shape: shape.clone(), strides, offset: offset as usize }
    }

    /// Sliding windows over the last dims, see [`Op::Window`].
    #[must_use]
    pub fn window(&self, spec: &WindowSpec, shape: &Shape) -> Layout {
        let outer = self.shape.rank() - spec.dims.len();
        let mut strides = self.strides.clone();
        for (dim, window) in spec.dims.iter().enumerate() {
            strides[outer + dim] *= window.step as isize;
        }
        for (dim, window) in spec.dims.iter().enumerate() {
            strides.push(self.strides[outer + dim] * window.dilation as isize);
        }
        Layout { shape: shape.clone(), strides, offset: self.offset }
    }

    /// The same elements in row-major order under other sizes, or `None` if strides cannot tell that.
    ///
    /// The number of elements must be the same.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.shape.contains(&0) || self.is_contiguous() {
            return Some(Layout { shape: shape.clone(), strides: shape.strides(), offset: self.offset });
        }
        // Walk both shapes from the inside; each group of old dims with one common stride is dealt out to new dims.
        let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, shape.rank());
        let mut new_dim = shape.rank();
        let mut old_dim = self.shape.rank();
        while old_dim > 0 {
            old_dim -= 1;
            if self.shape[old_dim] == 1 {
                continue;
            }
            let base = self.strides[old_dim];
            let mut run = self.shape[old_dim];
            while old_dim > 0 && (self.shape[old_dim - 1] == 1 || self.strides[old_dim - 1] == base * run as isize) {
                old_dim -= 1;
                run *= self.shape[old_dim];
            }
            let mut filled = 1;
            while filled < run {
                new_dim -= 1;
                strides[new_dim] = base * filled as isize;
                filled *= shape[new_dim];
            }
            if filled != run {
                return None;
            }
        }
        Some(Layout { shape: shape.clone(), strides, offset: self.offset })
    }

    /// This layout seen through a movement op whose result has `shape`; `None` if strides cannot express it, or if
    /// `op` does not move.
    pub fn through(&self, op: &Op, shape: &Shape) -> Option<Layout> {
        match op {
            Op::Reshape => self.reshape(shape),
            Op::Permute(perm) => Some(self.permute(perm)),
            Op::Expand => Some(self.expand(shape)),
            Op::Slice { starts, steps } => Some(self.slice(starts, steps, shape)),
            Op::Window(spec) => Some(self.window(spec, shape)),
            _ => None,
        }
    }

    /// The place in the buffer of the element with row-major number `linear`.
    pub fn locate(&self, mut linear: usize) -> usize {
        let mut place = self.offset as isize;
        for dim in (0..self.shape.rank()).rev() {
            place += (linear % self.shape[dim]) as isize * self.strides[dim];
            linear /= self.shape[dim];
        }
        place as usize
    }

    /// The places of all elements, in row-major order.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.shape.rank());
        let mut place = self.offset as isize;
        (0..self.shape.numel()).map(move |_| {
            let here = place as usize;
            for dim in (0..index.len()).rev() {
                index[dim] += 1;
                place += self.strides[dim];
                if index[dim] < self.shape[dim] {
                    break;
                }
                place -= self.strides[dim] * self.shape[dim] as isize;
                index[dim] = 0;
            }
            here
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn reshape_of_strided_layouts() {
        let transposed = Layout::contiguous([2, 3]).permute(&[1, 0]);
        assert_eq!(transposed.reshape(&Shape::from([6])), None);
        assert_eq!(transposed.reshape(&Shape::from([3, 1, 2])).unwrap().strides.as_slice(), [1, 1, 3]);
        let expanded = Layout::contiguous([1, 4]).expand(&Shape::from([3, 4]));
        assert_eq!(expanded.reshape(&Shape::from([3, 2, 2])).unwrap().strides.as_slice(), [0, 2, 1]);
        assert_eq!(expanded.reshape(&Shape::from([12])), None);
        let empty = Layout::contiguous([0, 3]).permute(&[1, 0]);
        assert!(empty.reshape(&Shape::from([0])).is_some());
    }

    #[test]
    fn places_follow_strides() {
        let layout = Layout::contiguous([2, 3]).slice(&[1, 2], &[-1, -1], &Shape::from([2, 3]));
        let places: Vec<usize> = layout.places().collect();
        assert_eq!(places, [5, 4, 3, 2, 1, 0]);
        assert_eq!((0..6).map(|i| layout.locate(i)).collect::<Vec<_>>(), places);
    }
}
