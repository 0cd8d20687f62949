//! [`Shape`]: the sizes of the dims of a tensor, of any rank, 0-d and empty included.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use smallvec::SmallVec;

/// A short list of dim indices or sizes; up to six live inline.
pub type Dims = SmallVec<[usize; 6]>;

/// The sizes of the dims, outermost first. `[]` is a single element, a size of 0 means no elements.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shape(Dims);

impl Shape {
    /// The shape of a single element.
    pub fn scalar() -> Shape {
        Shape(SmallVec::new())
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    ///
    /// # Panics
    /// If the product does not fit in `usize`; [`Shape::checked_numel`] tells.
    pub fn numel(&self) -> usize {
        self.checked_numel().expect("shapes are checked for overflow when they are made")
    }

    /// Number of elements, or `None` if it does not fit in `isize`.
    pub fn checked_numel(&self) -> Option<usize> {
        if self.0.contains(&0) {
            return Some(0);
        }
        let numel = self.0.iter().try_fold(1usize, |product, &size| product.checked_mul(size))?;
        isize::try_from(numel).is_ok().then_some(numel)
    }

    /// Row-major strides, in elements. Dims of size 0 count as 1, so that strides stay positive.
    pub fn strides(&self) -> SmallVec<[isize; 6]> {
        let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(1, self.rank());
        for dim in (1..self.rank()).rev() {
            strides[dim - 1] = strides[dim] * self.0[dim].max(1) as isize;
        }
        strides
    }

    /// The sizes.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The sizes, to change.
    pub fn dims_mut(&mut self) -> &mut Dims {
        &mut self.0
    }

    /// This shape with the size of `dim` replaced.
    #[must_use]
    pub fn with_dim(&self, dim: usize, size: usize) -> Shape {
        let mut shape = self.clone();
        shape.0[dim] = size;
        shape
    }
}

impl Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl From<Dims> for Shape {
    fn from(dims: Dims) -> Shape {
        Shape(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape(Dims::from_slice(dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(Dims::from_vec(dims))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(Dims::from_slice(&dims))
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Shape {
        Shape(Dims::from_slice(dims))
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

impl From<usize> for Shape {
    fn from(size: usize) -> Shape {
        Shape::from([size])
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape::scalar()
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Shape {
        Shape(sizes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numel_of_an_empty_dim_is_zero_even_if_others_overflow() {
        assert_eq!(Shape::from([usize::MAX, 2, 0]).checked_numel(), Some(0));
        assert_eq!(Shape::from([usize::MAX, 2]).checked_numel(), None);
        assert_eq!(Shape::scalar().numel(), 1);
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::from([2, 3, 4]).strides().as_slice(), [12, 4, 1]);
        assert_eq!(Shape::from([2, 0, 4]).strides().as_slice(), [4, 4, 1]);
    }
}
