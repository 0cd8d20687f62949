//! How dims and sizes are named in calls: `-1` is the last dim, `keepdim(-1)` reduces it but keeps it with size 1,
//! `[2, -1]` leaves a size to be computed.

use alloc::format;
use alloc::vec::Vec;
use fornax_ir::{Dims, Error, Result, Shape};

/// One dim, counted from the end if negative.
pub trait IntoDim {
    /// The number as given.
    fn into_dim(self) -> i64;
}

/// Sizes, one of which may be −1: whatever is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub(crate) Vec<i64>);

/// The dims that an op reduces, and whether they stay with size 1. `()` and an empty list stand for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReduceDims {
    pub(crate) dims: Vec<i64>,
    pub(crate) keepdim: bool,
}

/// The reduced dims stay, with size 1.
///
/// ```
/// use fornax_tensor::{Tensor, keepdim};
/// let x = Tensor::from([[1.0, 2.0], [3.0, 5.0]]);
/// assert_eq!(x.sum(keepdim(-1)).dims(), [2, 1]);
/// assert_eq!(x.sum(-1).dims(), [2]);
/// ```
pub fn keepdim(dims: impl Into<ReduceDims>) -> ReduceDims {
    ReduceDims { keepdim: true, ..dims.into() }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl IntoDim for $ty {
            fn into_dim(self) -> i64 {
                self as i64
            }
        }
        impl From<$ty> for ReduceDims {
            fn from(dim: $ty) -> ReduceDims {
                ReduceDims { dims: Vec::from([dim as i64]), keepdim: false }
            }
        }
        impl<const N: usize> From<[$ty; N]> for ReduceDims {
            fn from(dims: [$ty; N]) -> ReduceDims {
                ReduceDims { dims: dims.iter().map(|&dim| dim as i64).collect(), keepdim: false }
            }
        }
        impl From<&[$ty]> for ReduceDims {
            fn from(dims: &[$ty]) -> ReduceDims {
                ReduceDims { dims: dims.iter().map(|&dim| dim as i64).collect(), keepdim: false }
            }
        }
        impl From<Vec<$ty>> for ReduceDims {
            fn from(dims: Vec<$ty>) -> ReduceDims {
                ReduceDims::from(dims.as_slice())
            }
        }
        impl<const N: usize> From<[$ty; N]> for Sizes {
            fn from(sizes: [$ty; N]) -> Sizes {
                Sizes::from(sizes.as_slice())
            }
        }
        impl From<&[$ty]> for Sizes {
            fn from(sizes: &[$ty]) -> Sizes {
                // A `usize` that no `i64` holds must not come out as −1.
                Sizes(sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect())
            }
        }
        impl From<Vec<$ty>> for Sizes {
            fn from(sizes: Vec<$ty>) -> Sizes {
                Sizes::from(sizes.as_slice())
            }
        }
        impl From<$ty> for Sizes {
            fn from(size: $ty) -> Sizes {
                Sizes::from([size])
            }
        }
    )*};
}

integers!(i32, i64, isize, usize);

impl From<()> for ReduceDims {
    fn from((): ()) -> ReduceDims {
        ReduceDims::default()
    }
}

impl From<&Shape> for Sizes {
    fn from(shape: &Shape) -> Sizes {
        Sizes::from(shape.dims())
    }
}

impl From<Shape> for Sizes {
    fn from(shape: Shape) -> Sizes {
        Sizes::from(shape.dims())
    }
}

impl From<()> for Sizes {
    fn from((): ()) -> Sizes {
        Sizes(Vec::new())
    }
}

impl Sizes {
    /// The shape with `numel` elements that these sizes ask for.
    pub(crate) fn resolve(&self, op: &str, from: &Shape) -> Result<Shape> {
        let bad = |why: &str| Err(Error::shape(op, format!("{why}: from {from} to {:?}", self.0)));
        if self.0.iter().any(|&size| size < -1) {
            return bad("sizes are at least 0, or -1 once");
        }
        let unknown = self.0.iter().filter(|&&size| size == -1).count();
        let known: Shape = self.0.iter().filter(|&&size| size != -1).map(|&size| size as usize).collect();
        let Some(known) = known.checked_numel() else { return bad("too many elements") };
        let rest = match unknown {
            0 => 0,
            1 if known == 0 => return bad("a size of -1 beside a size of 0 is ambiguous"),
            1 if !from.numel().is_multiple_of(known) => return bad("sizes do not divide"),
            1 => from.numel() / known,
            _ => return bad("more than one size of -1"),
        };
        Ok(self.0.iter().map(|&size| if size == -1 { rest } else { size as usize }).collect())
    }
}

/// `dim` of a shape of `rank`, counted from the front.
pub(crate) fn resolve_dim(op: &str, dim: i64, shape: &Shape) -> Result<usize> {
    resolve_dim_in(op, dim, shape.rank()).map_err(|_| {
        let rank = shape.rank() as i64;
        let range = if rank == 0 { (-1, 0) } else { (-rank, rank - 1) };
        Error::index(op, format!("dim {dim} is out of range for {shape}; valid are {} to {}", range.0, range.1))
    })
}

/// `dim` of `rank` dims, counted from the front; a 0-d tensor answers to 0 and −1.
pub(crate) fn resolve_dim_in(op: &str, dim: i64, rank: usize) -> Result<usize> {
    let count = rank.max(1) as i64;
    if !(-count..count).contains(&dim) {
        return Err(Error::index(op, format!("dim {dim} is out of range for rank {rank}")));
    }
    Ok(if dim < 0 { dim + count } else { dim } as usize)
}

impl ReduceDims {
    /// The dims, ascending, counted from the front; all if none is named.
    pub(crate) fn resolve(&self, op: &str, shape: &Shape) -> Result<Dims> {
        if self.dims.is_empty() || shape.rank() == 0 {
            for &dim in &self.dims {
                resolve_dim(op, dim, shape)?;
            }
            return Ok((0..shape.rank()).collect());
        }
        let mut dims = Dims::new();
        for &dim in &self.dims {
            let dim = resolve_dim(op, dim, shape)?;
            if dims.contains(&dim) {
                return Err(Error::argument(op, format!("dim {dim} of {shape} is named twice")));
            }
            dims.push(dim);
        }
        dims.sort_unstable();
        Ok(dims)
    }
}
