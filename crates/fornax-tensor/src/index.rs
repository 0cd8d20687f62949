//! [`Tensor::i`]: NumPy-like indexing. `x.i((.., 1..3, -1))`, steps by [`step`], new dims by [`NewDim`], `...` by [`Rest`].

use crate::primitive::{self, reshape, slice};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec::Vec;
use core::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use fornax_ir::Dims;
use smallvec::{SmallVec, smallvec};

/// One entry of an index.
#[derive(Clone, Debug)]
pub enum Index {
    /// One position; the dim goes away. Negative counts from the end.
    At(i64),
    /// `start:stop:step`; positions outside are cut off as in NumPy. A negative step runs backwards.
    Slice {
        /// First position; the end that the step comes from if not given.
        start: Option<i64>,
        /// Position after the last; all if not given.
        stop: Option<i64>,
        /// Distance, not 0.
        step: i64,
    },
    /// A new dim of size 1.
    NewDim,
    /// As many full dims as are not named.
    Rest,
    /// The positions in an integer tensor, or where a `bool` tensor is true.
    Tensor(Tensor),
}

/// A new dim of size 1.
#[derive(Clone, Copy, Debug)]
pub struct NewDim;

/// As many full dims as are not named: NumPy's `...`.
#[derive(Clone, Copy, Debug)]
pub struct Rest;

/// Every `step`-th position of a range; negative runs backwards from its start.
///
/// ```
/// use fornax_tensor::{Tensor, step};
/// let x = Tensor::from([0.0, 1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(x.i(step(1.., 2)).to_vec::<f32>(), [1.0, 3.0]);
/// assert_eq!(x.i(step(.., -1)).to_vec::<f32>(), [4.0, 3.0, 2.0, 1.0, 0.0]);
/// ```
pub fn step(range: impl Into<Index>, step: i64) -> Index {
    match range.into() {
        Index::Slice { start, stop, .. } => Index::Slice { start, stop, step },
        other => other,
    }
}

impl From<NewDim> for Index {
    fn from(_: NewDim) -> Index {
        Index::NewDim
    }
}

impl From<Rest> for Index {
    fn from(_: Rest) -> Index {
        Index::Rest
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Slice { start: None, stop: None, step: 1 }
    }
}

impl From<&Tensor> for Index {
    fn from(tensor: &Tensor) -> Index {
        Index::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Index {
    fn from(tensor: Tensor) -> Index {
        Index::Tensor(tensor)
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Index {
            fn from(position: $ty) -> Index {
                Index::At(position as i64)
            }
        }
        integers!(@ranges $ty: Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive);
    )*};
    (@ranges $ty:ty: $($range:ident),*) => {$(
        impl From<$range<$ty>> for Index {
            fn from(range: $range<$ty>) -> Index {
                use core::ops::RangeBounds;
                let start = match range.start_bound() {
                    Bound::Included(&start) => Some(start as i64),
                    _ => None,
                };
                let stop = match range.end_bound() {
                    Bound::Excluded(&stop) => Some(stop as i64),
                    // Up to and with the last position is up to the end.
                    Bound::Included(&last) => (last as i64 != -1).then_some(last as i64 + 1),
                    Bound::Unbounded => None,
                };
                Index::Slice { start, stop, step: 1 }
            }
        }
    )*};
}

integers!(i32, i64, isize, usize);

/// What [`Tensor::i`] takes: one entry, or a tuple, array or list of entries.
pub trait IntoIndex {
    /// The entries.
    fn into_index(self) -> Vec<Index>;
}

impl<T: Into<Index>> IntoIndex for T {
    fn into_index(self) -> Vec<Index> {
        Vec::from([self.into()])
    }
}

impl IntoIndex for Vec<Index> {
    fn into_index(self) -> Vec<Index> {
        self
    }
}

impl IntoIndex for &[Index] {
    fn into_index(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Into<Index>),*> IntoIndex for ($($name,)*) {
            #[allow(non_snake_case, reason = "type parameters double as bindings")]
            fn into_index(self) -> Vec<Index> {
                let ($($name,)*) = self;
                Vec::from([$($name.into()),*])
            }
        }
    )*};
}

tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F)(A B C D E F G)(A B C D E F G H));

impl Tensor {
    /// The part that an index names, as NumPy and PyTorch read it: positions, ranges, steps, new dims, tensors.
    ///
    /// # Panics
    /// If a position is out of range, there are more entries than dims, or index tensors do not broadcast.
    ///
    /// ```
    /// use fornax_tensor::{NewDim, Tensor};
    /// let x = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.i((.., -1)).to_vec::<f32>(), [3.0, 6.0]);
    /// assert_eq!(x.i((1, 0..2)).to_vec::<f32>(), [4.0, 5.0]);
    /// assert_eq!(x.i((NewDim, 0)).dims(), [1, 3]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn i(&self, index: impl IntoIndex) -> Tensor {
        match self.try_i(index) {
            Ok(part) => part,
            Err(error) => error.raise(),
        }
    }

    /// As [`Tensor::i`].
    ///
    /// # Errors
    /// If a position is out of range, there are more entries than dims, or index tensors do not broadcast.
    #[track_caller]
    pub fn try_i(&self, index: impl IntoIndex) -> Result<Tensor> {
        let plan = IndexPlan::new(self.shape(), index.into_index())?;
        let part = slice(self, &plan.starts, &plan.steps, &plan.sliced)?;
        let part = reshape(&part, &plan.shape)?;
        if plan.tensors.is_empty() { Ok(part) } else { gather_nd(&part, &plan.tensors) }
    }

    /// Positions (`i64`) where this is not zero, as `[count, rank]`. Waits for the values, since they set the size.
    ///
    /// # Panics
    /// If the work behind it failed.
    #[track_caller]
    #[must_use]
    pub fn nonzero(&self) -> Tensor {
        match self.try_nonzero() {
            Ok(positions) => positions,
            Err(error) => error.raise(),
        }
    }

    #[track_caller]
    pub(crate) fn try_nonzero(&self) -> Result<Tensor> {
        let truth = primitive::cast(&self.detach(), DType::Bool)?.try_to_vec::<bool>()?;
        let strides = self.shape().strides();
        let mut positions = Vec::new();
        for place in (0..truth.len()).filter(|&place| truth[place]) {
            for dim in 0..self.rank() {
                positions.push((place / strides[dim] as usize % self.shape()[dim].max(1)) as i64);
            }
        }
        let count = truth.iter().filter(|&&hit| hit).count();
        Ok(Tensor::from_vec(positions, [count, self.rank()], self.device()))
    }
}

/// An index, dealt out to the dims.
struct IndexPlan {
    starts: Dims,
    steps: SmallVec<[i64; 6]>,
    /// After slicing, every dim still there.
    sliced: Shape,
    /// Without the dims at single positions, with the new ones.
    shape: Shape,
    /// Index tensors, by dim of `shape`.
    tensors: Vec<(usize, Tensor)>,
}

impl IndexPlan {
    fn new(from: &Shape, entries: Vec<Index>) -> Result<IndexPlan> {
        let takes = |entry: &Index| match entry {
            Index::At(_) | Index::Slice { .. } => 1,
            Index::NewDim | Index::Rest => 0,
            Index::Tensor(tensor) if tensor.dtype() == DType::Bool => tensor.rank(),
            Index::Tensor(_) => 1,
        };
        let named: usize = entries.iter().map(takes).sum();
        if named > from.rank() {
            return Err(Error::index("index", format!("{named} dims are indexed, {from} has {}", from.rank())));
        }
        if entries.iter().filter(|entry| matches!(entry, Index::Rest)).count() > 1 {
            return Err(Error::index("index", "`Rest` may stand only once"));
        }
        let mut plan = IndexPlan {
            starts: smallvec![0; from.rank()],
            steps: smallvec![1; from.rank()],
            sliced: from.clone(),
            shape: Shape::scalar(),
            tensors: Vec::new(),
        };
        let mut dim = 0;
        let mut rest = from.rank() - named;
        for entry in entries {
            match entry {
                Index::At(position) => {
                    let size = from[dim] as i64;
                    if !(-size..size).contains(&position) {
                        let message = format!("position {position} is out of range for dim {dim} of {from}");
                        return Err(Error::index("index", message));
                    }
                    plan.starts[dim] = if position < 0 { position + size } else { position } as usize;
                    plan.sliced.dims_mut()[dim] = 1;
                    dim += 1;
                }
                Index::Slice { start, stop, step } => {
                    let (start, count) = resolve_slice(from[dim], start, stop, step)?;
                    (plan.starts[dim], plan.steps[dim]) = (start, step);
                    plan.sliced.dims_mut()[dim] = count;
                    plan.shape.dims_mut().push(count);
                    dim += 1;
                }
                Index::NewDim => plan.shape.dims_mut().push(1),
                Index::Rest => {
                    plan.shape.dims_mut().extend_from_slice(&from[dim..dim + rest]);
                    dim += core::mem::take(&mut rest);
                }
                Index::Tensor(tensor) if tensor.dtype() == DType::Bool => {
                    if tensor.shape()[..] != from[dim..dim + tensor.rank()] {
                        let message = format!("mask {} does not fit {from} at dim {dim}", tensor.shape());
                        return Err(Error::index("index", message));
                    }
                    let positions = tensor.try_nonzero()?;
                    for column in 0..tensor.rank() {
                        plan.tensors.push((plan.shape.rank(), positions.try_i((.., column))?));
                        plan.shape.dims_mut().push(from[dim]);
                        dim += 1;
                    }
                }
                Index::Tensor(tensor) => {
                    if !tensor.dtype().is_int() {
                        return Err(Error::dtype("index", format!("positions are integers, not {}", tensor.dtype())));
                    }
                    plan.tensors.push((plan.shape.rank(), primitive::cast(&tensor, DType::I64)?));
                    plan.shape.dims_mut().push(from[dim]);
                    dim += 1;
                }
            }
        }
        plan.shape.dims_mut().extend_from_slice(&from[dim..]);
        Ok(plan)
    }
}

/// First position and count of `start:stop:step` in a dim of `size`, cut off as in NumPy.
pub(crate) fn resolve_slice(size: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<(usize, usize)> {
    if step == 0 {
        return Err(Error::argument("index", "a step of 0 goes nowhere"));
    }
    let n = size as i64;
    // Where a slice may begin and end: before the first position only when it runs backwards.
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clip = |position: i64| (if position < 0 { position.saturating_add(n) } else { position }).clamp(low, high);
    let start = start.map_or(if step > 0 { low } else { high }, clip);
    let stop = stop.map_or(if step > 0 { high } else { low }, clip);
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = if distance <= 0 { 0 } else { (distance as u64).div_ceil(step.unsigned_abs()) as usize };
    Ok((if count == 0 { 0 } else { start as usize }, count))
}

/// NumPy's advanced indexing: index tensors broadcast together; their dims stand where the first of them stood if they
/// are neighbours, else in front.
#[track_caller]
fn gather_nd(x: &Tensor, tensors: &[(usize, Tensor)]) -> Result<Tensor> {
    let dims: Vec<usize> = tensors.iter().map(|(dim, _)| *dim).collect();
    let neighbours = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let rest: Vec<usize> = (0..x.rank()).filter(|dim| !dims.contains(dim)).collect();
    // One flat position into the indexed dims, brought to the front.
    let mut index_shape = Shape::scalar();
    for (_, tensor) in tensors {
        index_shape = fornax_ir::broadcast_shapes("index", &index_shape, tensor.shape())?;
    }
    let mut flat = Tensor::full(&index_shape, 0, DType::I64, x.device());
    let mut valid = Tensor::full(&index_shape, true, DType::Bool, x.device());
    for (dim, tensor) in tensors {
        let size = x.shape()[*dim] as i64;
        let (position, in_range) = wrap_negative(tensor, size)?;
        flat = flat.try_mul(size)?.try_add(&position)?;
        valid = valid.try_logical_and(&in_range)?;
    }
    // A bad position must not pass for a good one of the flattened dims: it becomes one that no tensor has.
    let flat = valid.try_where_(&flat, i64::MAX)?;
    let perm: Vec<i64> = dims.iter().chain(&rest).map(|&dim| dim as i64).collect();
    let indexed: usize = dims.iter().map(|&dim| x.shape()[dim]).product();
    let rest_shape: Shape = rest.iter().map(|&dim| x.shape()[dim]).collect();
    let rest_count = rest_shape.numel();
    let table = x.try_permute(&perm)?.try_reshape([indexed, rest_count])?;
    let count = index_shape.numel();
    let index = flat.try_reshape([count, 1])?.try_expand([count, rest_count])?;
    let picked = primitive::gather(&table, 0, &index)?;
    let shape: Shape = index_shape.iter().chain(rest_shape.iter()).copied().collect();
    let picked = reshape(&picked, &shape)?;
    if !neighbours || dims[0] == 0 {
        return Ok(picked);
    }
    let (index_rank, before) = (index_shape.rank(), dims[0]);
    let order = (index_rank..index_rank + before).chain(0..index_rank).chain(index_rank + before..shape.rank());
    primitive::permute(&picked, &order.collect::<Vec<_>>())
}

/// Negative positions counted from the end, and whether each is in range.
#[track_caller]
fn wrap_negative(index: &Tensor, size: i64) -> Result<(Tensor, Tensor)> {
    let in_range = index.try_ge(-size)?.try_logical_and(&index.try_lt(size)?)?;
    let wrapped = index.try_lt(0)?.try_where_(index.try_add(size)?, index)?;
    Ok((wrapped, in_range))
}
