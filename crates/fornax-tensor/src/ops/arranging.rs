//! Splitting, joining, repeating and rearranging, diagonals, and tensors made of a rule.

use super::indexing::{positions, scattered};
use crate::dims::{IntoDim, Sizes, resolve_dim, resolve_dim_in};
use crate::index::resolve_slice;
use crate::operand::{IntoOperand, Operand};
use crate::ops::{Arg, Args};
use crate::primitive::{cast, expand, gather, permute, reshape, scatter, slice, window};
use crate::{DType, Device, Error, Index, Result, Scalar, Shape, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, Op, ScatterMode, WindowDim, WindowSpec};
use fornax_macros::ops;
use smallvec::smallvec;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// The elements along `dim` at one position; the dim goes away.
    #[op(with(dim = i64))]
    pub fn select(&self, dim: impl IntoDim, index: i64) -> Result<Tensor> {
        let axis = resolve_dim("select", dim.into_dim(), self.shape())?;
        let Some(&size) = self.shape().get(axis) else {
            return Err(Error::index("select", "a 0-d tensor has no dim to select from"));
        };
        if !(-(size as i64)..size as i64).contains(&index) {
            let message = format!("position {index} is out of range for dim {axis} of {}", self.shape());
            return Err(Error::index("select", message));
        }
        self.try_narrow(axis, index, 1)?.try_squeeze(axis)
    }

    /// A copy with `src` in the place of [`Tensor::select`].
    #[op(with(dim = i64))]
    pub fn select_scatter(&self, src: &Tensor, dim: impl IntoDim, index: i64) -> Result<Tensor> {
        let axis = resolve_dim("select_scatter", dim.into_dim(), self.shape())?;
        let size = self.shape().get(axis).copied().unwrap_or(1) as i64;
        let at = if index < 0 { index + size } else { index };
        put_slice(self, &src.try_unsqueeze(axis)?, axis, at, at + 1, 1)
    }

    /// A copy with `src` in the place of the slice `start:end:step` of `dim`.
    #[op(call = call_slice_scatter)]
    pub fn slice_scatter(
        &self,
        src: &Tensor,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Result<Tensor> {
        let axis = resolve_dim("slice_scatter", dim, self.shape())?;
        let (first, count) = resolve_slice(self.shape()[axis], start, end, step)?;
        put_slice(self, src, axis, first as i64, first as i64 + count as i64 * step, step)
    }

    /// A copy with `src` on a diagonal.
    #[op(default(offset = 0, dim1 = 0, dim2 = 1))]
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let diagonal = self.try_diagonal(offset, dim1, dim2)?;
        if diagonal.shape() != src.shape() {
            return Err(Error::shape("diagonal_scatter", format!("src {} is not {}", src.shape(), diagonal.shape())));
        }
        let mask = self.full_like(1).try_to_dtype(DType::Bool)?;
        let numbers = Tensor::full(src.shape(), 1, DType::I64, self.device());
        let on = embed(&numbers, self.shape(), offset, dim1, dim2)?.try_ne(0)?.try_logical_and(&mask)?;
        let whole = embed(src, self.shape(), offset, dim1, dim2)?;
        on.try_where_(&whole, self)?.try_to_dtype(self.dtype())
    }

    /// A diagonal of the matrices in two dims, as a new last dim.
    #[op(default(offset = 0, dim1 = 0, dim2 = 1))]
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let (row, column) = two_dims("diagonal", self.shape(), dim1, dim2)?;
        let (rows, columns) = (self.shape()[row] as i64, self.shape()[column] as i64);
        let (from_row, from_column) = (offset.min(0).unsigned_abs() as i64, offset.max(0));
        let count = (rows - from_row).min(columns - from_column).max(0) as usize;
        let mut order: Vec<usize> = (0..self.rank()).filter(|&dim| dim != row && dim != column).collect();
        order.extend([row, column]);
        let moved = permute(self, &order)?;
        let last = moved.rank() - 1;
        // Element i lies at position i of the rows and, of the columns, at i as well: gather along the columns.
        let block =
            moved.try_narrow(last - 1, from_row.min(rows), count)?.try_narrow(last, from_column.min(columns), count)?;
        let index = crate::primitive::source(
            Op::Iota { dim: last - 1 },
            DType::I64,
            block.shape().with_dim(last, 1),
            self.device(),
        );
        gather(&block, last, &index)?.try_squeeze(last)
    }

    /// The vectors of the last dim as diagonals of matrices in two new dims.
    #[op(default(offset = 0, dim1 = -2, dim2 = -1))]
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let Some(&n) = self.shape().last() else {
            return Err(Error::shape("diag_embed", "needs at least one dim, got []"));
        };
        let rank = self.rank() + 1;
        let (row, column) = (resolve_dim_in("diag_embed", dim1, rank)?, resolve_dim_in("diag_embed", dim2, rank)?);
        if row == column {
            return Err(Error::argument("diag_embed", "the two dims are the same"));
        }
        let size = n + offset.unsigned_abs() as usize;
        let mut shape = Shape::from(&self.shape()[..self.rank() - 1]);
        for dim in [row.min(column), row.max(column)] {
            shape.dims_mut().insert(dim, size);
        }
        embed(self, &shape, offset, dim1, dim2)
    }

    /// The diagonal of a matrix, or the matrix of a diagonal.
    #[op(default(diagonal = 0))]
    pub fn diag(&self, diagonal: i64) -> Result<Tensor> {
        match self.rank() {
            1 => self.try_diag_embed(diagonal, 0, 1),
            2 => self.try_diagonal(diagonal, 0, 1),
            _ => Err(Error::shape("diag", format!("{} is neither a vector nor a matrix", self.shape()))),
        }
    }

    /// All elements as the diagonal of a matrix.
    #[op(default(offset = 0))]
    pub fn diagflat(&self, offset: i64) -> Result<Tensor> {
        self.try_reshape([-1])?.try_diag_embed(offset, 0, 1)
    }

    /// In reverse order along dim 1.
    #[op]
    pub fn fliplr(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape("fliplr", format!("{} has fewer than two dims", self.shape())));
        }
        self.try_flip([1])
    }

    /// In reverse order along dim 0.
    #[op]
    pub fn flipud(&self) -> Result<Tensor> {
        if self.rank() < 1 {
            return Err(Error::shape("flipud", "a 0-d tensor has no dim to flip"));
        }
        self.try_flip([0])
    }

    /// Moved along dims by `shifts`, what leaves at the end enters at the start. Without dims, as one long list.
    #[op(call = call_roll)]
    pub fn roll(&self, shifts: &[i64], dims: &[i64]) -> Result<Tensor> {
        if dims.is_empty() {
            let &[shift] = shifts else { return Err(Error::argument("roll", "several shifts need as many dims")) };
            return self.try_reshape([-1])?.try_roll(&[shift], &[0])?.try_reshape(self.shape());
        }
        if shifts.len() != dims.len() {
            return Err(Error::argument("roll", format!("{shifts:?} and {dims:?} do not pair up")));
        }
        let mut y = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let axis = resolve_dim("roll", dim, self.shape())?;
            let n = self.shape().get(axis).copied().unwrap_or(1);
            if n == 0 || self.rank() == 0 {
                continue;
            }
            let turned = shift.rem_euclid(n as i64) as usize;
            if turned > 0 {
                let (head, tail) =
                    (y.try_narrow(axis, 0, n - turned)?, y.try_narrow(axis, (n - turned) as i64, turned)?);
                y = Tensor::try_cat(&[&tail, &head], axis)?;
            }
        }
        Ok(y)
    }

    /// Turned by 90° `k` times in the plane of two dims.
    #[op(call = call_rot90)]
    pub fn rot90(&self, k: i64, dims: [i64; 2]) -> Result<Tensor> {
        let (a, b) = two_dims("rot90", self.shape(), dims[0], dims[1])?;
        let (first, second) = (a as i64, b as i64);
        match k.rem_euclid(4) {
            1 => self.try_flip([second])?.try_transpose(a, b),
            2 => self.try_flip([first, second]),
            3 => self.try_flip([first])?.try_transpose(a, b),
            _ => Ok(self.clone()),
        }
    }

    /// Parts of `split_size` along `dim`; the last may be smaller.
    #[op(torch = ["split", "split.list_args"], call = call_split, with(dim = i64))]
    pub fn split(&self, split_size: usize, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("split", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if split_size == 0 && n > 0 {
            return Err(Error::argument("split", "parts of size 0 never end"));
        }
        let count = if n == 0 { 1 } else { n.div_ceil(split_size) };
        let sizes: Vec<usize> = (0..count).map(|i| split_size.min(n - i * split_size)).collect();
        self.try_split_with_sizes(&sizes, axis)
    }

    /// Parts of the given sizes along `dim`.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn split_with_sizes(&self, split_sizes: &[usize], dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("split", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if split_sizes.iter().sum::<usize>() != n {
            let message = format!("parts {split_sizes:?} do not make dim {axis} of {}", self.shape());
            return Err(Error::shape("split", message));
        }
        let mut start = 0;
        split_sizes
            .iter()
            .map(|&size| {
                let part = self.try_narrow(axis, start, size);
                start += size as i64;
                part
            })
            .collect()
    }

    /// At most `chunks` parts of equal size along `dim`; the last may be smaller.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn chunk(&self, chunks: usize, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("chunk", dim.into_dim(), self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if chunks == 0 {
            return Err(Error::argument("chunk", "needs at least one chunk"));
        }
        if n == 0 {
            return Ok(vec![self.clone(); chunks]);
        }
        self.try_split(n.div_ceil(chunks), axis)
    }

    /// `sections` parts along `dim` whose sizes differ by at most one.
    #[op(call = call_tensor_split)]
    pub fn tensor_split(&self, sections: usize, dim: i64) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("tensor_split", dim, self.shape())?;
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if sections == 0 {
            return Err(Error::argument("tensor_split", "needs at least one section"));
        }
        let sizes: Vec<usize> = (0..sections).map(|i| n / sections + usize::from(i < n % sections)).collect();
        self.try_split_with_sizes(&sizes, axis)
    }

    /// The slices along `dim`.
    #[op(with(dim = i64), default(dim = 0))]
    pub fn unbind(&self, dim: impl IntoDim) -> Result<Vec<Tensor>> {
        let axis = resolve_dim("unbind", dim.into_dim(), self.shape())?;
        let Some(&n) = self.shape().get(axis) else {
            return Err(Error::shape("unbind", "a 0-d tensor has no dim to unbind"));
        };
        (0..n as i64).map(|i| self.try_select(axis, i)).collect()
    }

    /// Windows of `size` at distance `step` along a dim, as a new last dim.
    #[op(torch = ["unfold"])]
    pub fn unfold(&self, dimension: i64, size: usize, step: usize) -> Result<Tensor> {
        let axis = resolve_dim("unfold", dimension, self.shape())?;
        if self.rank() == 0 {
            return self.try_reshape([1])?.try_unfold(0, size, step)?.try_squeeze(0);
        }
        if size > self.shape()[axis] || step == 0 {
            let message = format!("windows of {size} at distance {step} do not fit dim {axis} of {}", self.shape());
            return Err(Error::argument("unfold", message));
        }
        let last = self.rank() - 1;
        let moved = self.try_transpose(axis, last)?;
        if size == 0 {
            let count = self.shape()[axis] / step + 1;
            let mut shape = self.shape().with_dim(axis, count);
            shape.dims_mut().push(0);
            return Ok(Tensor::full(shape, 0, self.dtype(), self.device()));
        }
        let spec = WindowSpec { dims: smallvec![WindowDim { size, step, dilation: 1 }] };
        let windows = window(&moved, spec)?; // […, windows, size]
        windows.try_transpose(axis, last)
    }

    /// Repeated `repeats` times along each dim; new dims in front.
    #[op(with(repeats = Vec<usize>), torch = ["repeat"])]
    pub fn repeat(&self, repeats: impl AsRef<[usize]>) -> Result<Tensor> {
        let repeats = repeats.as_ref();
        let Some(new) = repeats.len().checked_sub(self.rank()) else {
            return Err(Error::argument(
                "repeat",
                format!("{repeats:?} has fewer entries than {} has dims", self.shape()),
            ));
        };
        // [r, n] side by side for each dim, merged.
        let (mut split, mut wide, mut merged) = (Shape::scalar(), Shape::scalar(), Shape::scalar());
        for (i, &count) in repeats.iter().enumerate() {
            let size = if i < new { 1 } else { self.shape()[i - new] };
            split.dims_mut().extend([1, size]);
            wide.dims_mut().extend([count, size]);
            merged.dims_mut().push(count * size);
        }
        reshape(&expand(&reshape(self, &split)?, &wide)?, &merged)
    }

    /// [`Tensor::repeat`] with missing counts in front as 1.
    #[op(with(dims = Vec<usize>))]
    pub fn tile(&self, dims: impl AsRef<[usize]>) -> Result<Tensor> {
        let dims = dims.as_ref();
        let missing = self.rank().saturating_sub(dims.len());
        let counts: Vec<usize> = core::iter::repeat_n(1, missing).chain(dims.iter().copied()).collect();
        self.try_repeat(counts)
    }

    /// Each element `repeats` times along `dim`; without a dim, of the flattened tensor.
    #[op(call = call_repeat_interleave)]
    pub fn repeat_interleave(&self, repeats: usize, dim: Option<i64>) -> Result<Tensor> {
        let Some(dim) = dim else { return self.try_reshape([-1])?.try_repeat_interleave(repeats, Some(0)) };
        let axis = resolve_dim("repeat_interleave", dim, self.shape())?;
        let x = if self.rank() == 0 { self.try_reshape([1])? } else { self.clone() };
        let mut wide = x.shape().clone();
        wide.dims_mut().insert(axis + 1, repeats);
        let merged = x.shape().with_dim(axis, x.shape()[axis] * repeats);
        reshape(&expand(&x.try_unsqueeze(axis + 1)?, &wide)?, &merged)
    }

    /// All to the shape they broadcast to.
    #[op(call = call_broadcast_tensors)]
    pub fn broadcast_tensors(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut shape = Shape::scalar();
        for tensor in tensors {
            shape = fornax_ir::broadcast_shapes("broadcast_tensors", &shape, tensor.shape())?;
        }
        tensors.iter().map(|tensor| expand(tensor, &shape)).collect()
    }

    /// Dims moved to other places, the others in their order.
    #[op(torch = ["movedim", "moveaxis"])]
    pub fn movedim(&self, source: &[i64], destination: &[i64]) -> Result<Tensor> {
        let axes = |dims: &[i64]| -> Result<Vec<usize>> {
            dims.iter().map(|&dim| resolve_dim("movedim", dim, self.shape())).collect()
        };
        let (from, to) = (axes(source)?, axes(destination)?);
        if from.len() != to.len() {
            return Err(Error::argument("movedim", format!("{source:?} and {destination:?} do not pair up")));
        }
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        let mut rest = (0..self.rank()).filter(|dim| !from.contains(dim));
        let order: Vec<usize> = (0..self.rank())
            .map(|place| match to.iter().position(|&dim| dim == place) {
                Some(i) => from[i],
                None => rest.next().unwrap_or(0),
            })
            .collect();
        permute(self, &order)
    }

    /// A dim as several; one size of −1 is what is left.
    #[op(with(dim = i64, sizes = Sizes))]
    pub fn unflatten(&self, dim: impl IntoDim, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let axis = resolve_dim("unflatten", dim.into_dim(), self.shape())?;
        let one = Shape::from([self.shape()[axis]]);
        let parts = sizes.into().resolve("unflatten", &one)?;
        if parts.numel() != one.numel() {
            let message = format!("{parts} does not make dim {axis} of {}", self.shape());
            return Err(Error::shape("unflatten", message));
        }
        let shape = self.shape()[..axis].iter().chain(parts.iter()).chain(&self.shape()[axis + 1..]).copied().collect();
        reshape(self, &shape)
    }

    /// [`Tensor::reshape`] under PyTorch's other name.
    #[op(with(size = Sizes), rename(size = "size"))]
    pub fn view(&self, size: impl Into<Sizes>) -> Result<Tensor> {
        self.try_reshape(size)
    }

    /// Joined along the second dim, vectors along their first.
    #[op(call = call_hstack)]
    pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 1)).collect::<Result<_>>()?;
        let dim = i64::from(raised.first().is_some_and(|first| first.rank() > 1));
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), dim)
    }

    /// Joined along the first dim, vectors as rows.
    #[op(call = call_vstack)]
    pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 2)).collect::<Result<_>>()?;
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), 0)
    }

    /// Joined along the third dim.
    #[op(call = call_dstack)]
    pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let raised: Vec<Tensor> = tensors.iter().map(|x| raise(x, 3)).collect::<Result<_>>()?;
        Tensor::try_cat(&raised.iter().collect::<Vec<_>>(), 2)
    }

    /// Vectors as columns, matrices side by side.
    #[op(call = call_column_stack)]
    pub fn column_stack(tensors: &[&Tensor]) -> Result<Tensor> {
        let columns: Vec<Tensor> = tensors
            .iter()
            .map(|x| if x.rank() < 2 { x.try_reshape([-1, 1]) } else { Ok((*x).clone()) })
            .collect::<Result<_>>()?;
        Tensor::try_cat(&columns.iter().collect::<Vec<_>>(), 1)
    }

    /// Of at least two dims: vectors become rows.
    #[op(call = call_atleast_2d)]
    pub fn atleast_2d(&self) -> Result<Tensor> {
        raise(self, 2)
    }

    /// Of at least three dims: matrices get a last dim of 1.
    #[op(call = call_atleast_3d)]
    pub fn atleast_3d(&self) -> Result<Tensor> {
        raise(self, 3)
    }

    /// Sorted along the first dim.
    #[op]
    pub fn msort(&self) -> Result<Tensor> {
        Ok(self.try_sort(0, false)?.0)
    }

    /// The Kronecker product.
    #[op]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let padded = |x: &Tensor| -> Vec<usize> {
            core::iter::repeat_n(1, rank - x.rank()).chain(x.shape().iter().copied()).collect()
        };
        let (a, b) = (padded(self), padded(other));
        let side = |sizes: &[usize], first: bool| -> Vec<usize> {
            sizes.iter().flat_map(|&size| if first { [size, 1] } else { [1, size] }).collect()
        };
        let product = self.try_reshape(side(&a, true))?.try_mul(other.try_reshape(side(&b, false))?)?;
        product.try_reshape(a.iter().zip(&b).map(|(a, b)| a * b).collect::<Vec<usize>>())
    }

    /// All combinations of an element of each list: `[combinations, lists]`.
    #[op(call = call_cartesian_prod)]
    pub fn cartesian_prod(tensors: &[&Tensor]) -> Result<Tensor> {
        if let [one] = tensors {
            return Ok((*one).clone());
        }
        let grids = Tensor::try_meshgrid(tensors, false)?;
        let columns: Vec<Tensor> = grids.iter().map(|grid| grid.try_reshape([-1])).collect::<Result<_>>()?;
        Tensor::try_stack(&columns.iter().collect::<Vec<_>>(), 1)
    }

    /// All combinations of `r` elements of a list: `[combinations, r]`.
    #[op(default(r = 2, with_replacement = false))]
    pub fn combinations(&self, r: usize, with_replacement: bool) -> Result<Tensor> {
        let [n] = self.shape()[..] else {
            return Err(Error::shape("combinations", format!("{} is not a list", self.shape())));
        };
        let mut rows: Vec<Vec<i64>> = vec![Vec::new()];
        for _ in 0..r {
            rows = rows
                .into_iter()
                .flat_map(|row| {
                    let from = row.last().map_or(0, |&last| last + i64::from(!with_replacement));
                    (from..n as i64).map(move |next| row.iter().copied().chain([next]).collect())
                })
                .collect();
        }
        if r == 0 {
            return self.try_narrow(0, 0, 0);
        }
        let count = rows.len();
        let index = Tensor::from_vec(rows.concat(), [count * r], self.device());
        self.try_index_select(0, &index)?.try_reshape([count, r])
    }

    /// Matrices along the diagonal of one.
    #[op(call = call_block_diag)]
    pub fn block_diag(tensors: &[&Tensor]) -> Result<Tensor> {
        let blocks: Vec<Tensor> = tensors.iter().map(|x| raise(x, 2)).collect::<Result<_>>()?;
        let width: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let mut left = 0;
        let mut rows = Vec::new();
        for block in &blocks {
            let own = block.shape()[1];
            rows.push(block.pad_dims(&[(0, 0), (left, width - left - own)], 0));
            left += own;
        }
        Tensor::try_cat(&rows.iter().collect::<Vec<_>>(), 0)
    }

    /// Coordinates of a grid: each list repeated along the dims of the others. `xy` swaps the first two dims.
    #[op(torch = ["meshgrid.variadic_tensors", "meshgrid"], call = call_meshgrid)]
    pub fn meshgrid(tensors: &[&Tensor], xy: bool) -> Result<Vec<Tensor>> {
        let lists: Vec<Tensor> = tensors.iter().map(|x| x.try_reshape([-1])).collect::<Result<_>>()?;
        let shape: Shape = lists.iter().map(Tensor::numel).collect();
        let grids = lists.iter().enumerate().map(|(dim, list)| {
            let mut own = Shape::from(Dims::from_elem(1, lists.len()));
            own.dims_mut()[dim] = list.numel();
            let grid = expand(&reshape(list, &own)?, &shape)?;
            if xy && lists.len() > 1 { grid.try_transpose(0, 1) } else { Ok(grid) }
        });
        grids.collect()
    }

    /// Positions of the lower triangle of a `row` × `col` matrix: `[2, count]`.
    #[op(call = call_tril_indices, grad = false)]
    pub fn tril_indices(row: usize, col: usize, offset: i64, device: &Device) -> Tensor {
        triangle_indices(row, col, |i, j| j - i <= offset, device)
    }

    /// Positions of the upper triangle of a `row` × `col` matrix: `[2, count]`.
    #[op(call = call_triu_indices, grad = false)]
    pub fn triu_indices(row: usize, col: usize, offset: i64, device: &Device) -> Tensor {
        triangle_indices(row, col, |i, j| j - i >= offset, device)
    }

    /// `steps` numbers from `start` to `end`, both included, at equal distances.
    #[op(call = call_linspace, grad = false)]
    pub fn linspace(start: f64, end: f64, steps: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        cast(&even_steps(start, end, steps, device)?, dtype)
    }

    /// `base` to the powers of [`Tensor::linspace`].
    #[op(call = call_logspace, grad = false)]
    pub fn logspace(start: f64, end: f64, steps: usize, base: f64, dtype: DType, device: &Device) -> Result<Tensor> {
        let exponents = even_steps(start, end, steps, device)?;
        let base = Tensor::full(exponents.shape(), base, DType::F64, device);
        cast(&base.try_pow(&exponents)?, dtype)
    }

    /// `n` × `m` with ones on the diagonal.
    #[op(call = call_eye, grad = false)]
    pub fn eye(n: usize, m: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        let row = Tensor::try_arange(0, n, 1, DType::I64, device)?.try_unsqueeze(1)?;
        row.try_eq(Tensor::try_arange(0, m, 1, DType::I64, device)?)?.try_to_dtype(dtype)
    }

    /// `value` in every element of a new tensor.
    #[op(torch = ["full"], call = call_full, grad = false)]
    pub fn filled(size: &[usize], value: f64, dtype: DType, device: &Device) -> Tensor {
        Tensor::full(size, value, dtype, device)
    }

    /// The elements at row-major places.
    #[op]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let flat = self.try_reshape([-1])?;
        flat.try_i(Index::Tensor(index.clone()))
    }

    /// [`Tensor::gather`] with broadcasting; without a dim, of the flattened tensor.
    #[op(with(dim = Option<i64>))]
    pub fn take_along_dim(&self, indices: &Tensor, dim: Option<i64>) -> Result<Tensor> {
        let Some(dim) = dim else {
            return self.try_reshape([-1])?.try_take_along_dim(&indices.try_reshape([-1])?, Some(0));
        };
        let axis = resolve_dim("take_along_dim", dim, self.shape())?;
        let (x, index) = (self.shape().with_dim(axis, 1), indices.shape().with_dim(axis, 1));
        let common = fornax_ir::broadcast_shapes("take_along_dim", &x, &index)?;
        let x = self.try_expand(common.with_dim(axis, self.shape()[axis]))?;
        let index = indices.try_expand(common.with_dim(axis, indices.shape()[axis]))?;
        let size = x.shape()[axis] as i64;
        let index = index.try_lt(0)?.try_where_(index.try_add(size)?, &index)?;
        x.try_gather(axis, &index)
    }

    /// Where `mask` is true, in order. Waits for the mask, since it sets the size.
    #[op]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let shape = self.broadcast_shape(mask)?;
        let (x, mask) = (expand(self, &shape)?, expand(mask, &shape)?);
        x.try_reshape([-1])?.try_i(Index::Tensor(mask.try_reshape([-1])?))
    }

    /// Where `mask` is true, the elements of `source` in order.
    #[op]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let shape = self.broadcast_shape(mask)?;
        let (x, mask) = (expand(self, &shape)?, expand(mask, &shape)?);
        if x.numel() == 0 {
            return Ok(x);
        }
        if source.dtype() != self.dtype() {
            let message = format!("self is {}, source is {}", self.dtype(), source.dtype());
            return Err(Error::dtype("masked_scatter", message));
        }
        if source.numel() == 0 {
            // Right only if the mask holds nowhere: reading position −1 is a fault otherwise.
            let nowhere = mask.try_where_(-1, 0)?.try_reshape([-1])?;
            let zero = Tensor::full([1], 0, self.dtype(), self.device());
            return mask.try_where_(zero.try_gather(0, &nowhere)?.try_reshape(&shape)?, &x);
        }
        let flat = mask.try_reshape([-1])?;
        // Where the mask holds, a source that is too short must be noticed.
        let place = flat.try_where_(flat.try_cumsum(0)?.try_sub(1)?, 0)?;
        let picked = source.try_reshape([-1])?.try_gather(0, &place)?.try_reshape(&shape)?;
        mask.try_where_(&picked, &x)
    }

    /// Positions where this is not zero: `[count, rank]`. Waits for the values, since they set the size.
    #[op(torch = ["nonzero", "argwhere"], grad = false)]
    pub fn argwhere(&self) -> Result<Tensor> {
        self.try_nonzero()
    }

    /// A copy in which `alpha · source` is added at the positions `index` (a list) of `dim`.
    #[op(with(dim = i64), default(alpha = Scalar::Int(1)))]
    pub fn index_add(&self, dim: impl IntoDim, index: &Tensor, source: &Tensor, alpha: Scalar) -> Result<Tensor> {
        let source = if alpha.to_f64() == 1.0 { source.clone() } else { source.try_mul(alpha)? };
        indexed("index_add", self, ScatterMode::Add, dim.into_dim(), index, &source)
    }

    /// A copy in which the positions `index` (a list) of `dim` hold `source`.
    #[op(with(dim = i64))]
    pub fn index_copy(&self, dim: impl IntoDim, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        indexed("index_copy", self, ScatterMode::Set, dim.into_dim(), index, source)
    }

    /// A copy in which the positions `index` (a list) of `dim` hold `value`.
    #[op(with(dim = i64, value = Operand))]
    pub fn index_fill(&self, dim: impl IntoDim, index: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let axis = resolve_dim("index_fill", dim.into_dim(), self.shape())?;
        let value = value.into_operand();
        if let Operand::Tensor(value) = &value
            && value.rank() > 0
        {
            return Err(Error::shape("index_fill", format!("value {} is not a single number", value.shape())));
        }
        let size = self.shape().get(axis).copied().unwrap_or(1);
        let index = index.try_lt(0)?.try_where_(index.try_add(size as i64)?, index)?;
        // By a mask: a position that is named twice is filled, and counts for the gradient, once.
        let mut shape = Shape::from(Dims::from_elem(1, self.rank().max(1)));
        shape.dims_mut()[axis] = size;
        let (none, all) = (
            Tensor::full(&shape, false, DType::Bool, self.device()),
            Tensor::full(shape.with_dim(axis, index.numel()), true, DType::Bool, self.device()),
        );
        let mask = indexed("index_fill", &none, ScatterMode::Set, axis as i64, &index, &all)?;
        self.try_masked_fill(&if self.rank() == 0 { mask.try_reshape(())? } else { mask }, value)
    }

    /// A copy in which the places that index tensors name hold `values`, or have them added.
    #[op(call = call_index_put)]
    pub fn index_put(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        index_put(self, indices, values, accumulate)
    }

    /// A copy in which the row-major places `index` hold `source`, or have it added.
    #[op(default(accumulate = false))]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        let n = self.numel() as i64;
        let index = index.try_reshape([-1])?;
        let index = index.try_lt(0)?.try_where_(index.try_add(n)?, &index)?;
        let mode = if accumulate { ScatterMode::Add } else { ScatterMode::Set };
        let flat = self.try_reshape([-1])?;
        scattered(&flat, mode, 0, &index, source.try_reshape([-1])?.into_operand())?.try_reshape(self.shape())
    }

    /// [`Tensor::scatter`] that combines what meets at a place; `include_self` counts what was there before.
    #[op(with(dim = i64), torch = ["scatter_reduce", "scatter_reduce.sum", "scatter_reduce.mean", "scatter_reduce.prod",
        "scatter_reduce.amax", "scatter_reduce.amin"], rename(how = "reduce"), default(include_self = true))]
    pub fn scatter_reduce(
        &self,
        dim: impl IntoDim,
        index: &Tensor,
        src: &Tensor,
        how: &str,
        include_self: bool,
    ) -> Result<Tensor> {
        scatter_reduce(self, dim.into_dim(), index, src, how, include_self)
    }

    /// [`Tensor::scatter_reduce`] at the positions `index` (a list) of `dim`.
    #[op(with(dim = i64), torch = ["index_reduce", "index_reduce.mean", "index_reduce.prod", "index_reduce.amax",
        "index_reduce.amin"], rename(how = "reduce"), default(include_self = true))]
    pub fn index_reduce(
        &self,
        dim: impl IntoDim,
        index: &Tensor,
        source: &Tensor,
        how: &str,
        include_self: bool,
    ) -> Result<Tensor> {
        let axis = resolve_dim("index_reduce", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            let source = source.try_reshape([-1])?;
            return scatter_reduce(&self.try_reshape([1])?, 0, &index.try_reshape([-1])?, &source, how, include_self)?
                .try_reshape(());
        }
        let along = stretched(index, self.shape(), axis)?;
        scatter_reduce(self, axis as i64, &along, source, how, include_self)
    }

    /// Sizes and strides on the row-major elements of this tensor. Places may be read more than once.
    #[op(default(storage_offset = 0))]
    pub fn as_strided(&self, size: &[usize], stride: &[usize], storage_offset: usize) -> Result<Tensor> {
        if size.len() != stride.len() {
            return Err(Error::argument("as_strided", format!("{size:?} and {stride:?} do not pair up")));
        }
        let shape = Shape::from(size);
        let reach: usize = size.iter().zip(stride).map(|(&size, &stride)| size.saturating_sub(1) * stride).sum();
        if shape.numel() > 0 && storage_offset + reach >= self.numel() {
            let message = format!("{size:?} with strides {stride:?} from {storage_offset} leaves {}", self.shape());
            return Err(Error::index("as_strided", message));
        }
        let mut place = Tensor::full(&shape, storage_offset, DType::I64, self.device());
        for (dim, &stride) in stride.iter().enumerate() {
            let position = crate::primitive::source(Op::Iota { dim }, DType::I64, shape.clone(), self.device());
            place = place.try_add(position.try_mul(stride as i64)?)?;
        }
        self.try_reshape([-1])?.try_gather(0, &place.try_reshape([-1])?)?.try_reshape(&shape)
    }

    /// Where values would have to stand in sorted rows: before equal ones, or behind if `right`. `i64`.
    #[op(call = call_searchsorted, grad = false)]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let dtype = self.dtype().promote(values.dtype());
        let (rows, values) = (cast(self, dtype)?, cast(values, dtype)?);
        let Some(&n) = rows.shape().last() else {
            return Err(Error::shape("searchsorted", "needs sorted rows, got []"));
        };
        let shared = rows.rank() == 1;
        if !shared && rows.shape()[..rows.rank() - 1] != values.shape()[..values.rank().saturating_sub(1)] {
            let message = format!("values {} do not fit rows {}", values.shape(), rows.shape());
            return Err(Error::shape("searchsorted", message));
        }
        // Bisection: as many steps as the size has bits, all values at once.
        let mut low = Tensor::full(values.shape(), 0, DType::I64, self.device());
        let mut high = Tensor::full(values.shape(), n, DType::I64, self.device());
        let last = rows.rank() - 1;
        for _ in 0..usize::BITS - n.leading_zeros() {
            let middle = low.try_add(&high)?.try_div_floor(2)?;
            let safe = middle.try_clamp(Some(0), Some(n as i64 - 1))?;
            let there = if shared {
                rows.try_gather(0, &safe.try_reshape([-1])?)?.try_reshape(values.shape())?
            } else {
                gather(&rows, last, &safe)?
            };
            // NaN stands behind all numbers.
            let below = if right { there.try_le(&values)? } else { there.try_lt(&values)? };
            let below = below.try_logical_or(&values.try_isnan()?)?;
            let below = below.try_logical_and(&middle.try_lt(&high)?)?;
            let next_low = below.try_where_(middle.try_add(1)?, &low)?;
            high = below.try_where_(&high, &middle)?;
            low = next_low;
        }
        Ok(low)
    }

    /// In which of the ranges between `boundaries` values lie: [`Tensor::searchsorted`] the other way round.
    #[op(call = call_bucketize, grad = false)]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        boundaries.try_searchsorted(self, right)
    }

    /// Whether each element stands in `test_elements`.
    #[op(rename(self = "elements"), call = call_isin, grad = false)]
    pub fn isin(&self, test_elements: &Tensor) -> Result<Tensor> {
        self.try_unsqueeze(-1)?.try_eq(test_elements.try_reshape([-1])?)?.try_any(-1)
    }

    /// The different elements, sorted; where each element went; how many there are of each. Waits for the values, since
    /// they set the size.
    #[op(torch = ["unique"], call = call_unique, grad = false)]
    pub fn unique(&self) -> Result<(Tensor, Tensor, Tensor)> {
        unique(self, true)
    }

    /// As [`Tensor::unique`], of runs of equal neighbours, in their order.
    #[op(torch = ["unique_consecutive"], call = call_unique_consecutive, grad = false)]
    pub fn unique_consecutive(&self) -> Result<(Tensor, Tensor, Tensor)> {
        unique(self, false)
    }
}

fn two_dims(op: &str, shape: &Shape, dim1: i64, dim2: i64) -> Result<(usize, usize)> {
    let (a, b) = (resolve_dim(op, dim1, shape)?, resolve_dim(op, dim2, shape)?);
    if a == b || shape.rank() < 2 {
        return Err(Error::argument(op, format!("dims {dim1} and {dim2} of {shape} do not make a plane")));
    }
    Ok((a, b))
}

/// The last dim of `x` on a diagonal of zeros of `shape`.
#[track_caller]
fn embed(x: &Tensor, shape: &Shape, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    let (row, column) = two_dims("diagonal", shape, dim1, dim2)?;
    let (above, left) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
    let n = x.shape()[x.rank() - 1];
    let mut spread = x.shape().clone();
    spread.dims_mut().push(n);
    let last = spread.rank() - 1;
    let iota = |dim: usize| crate::primitive::source(Op::Iota { dim }, DType::I64, spread.clone(), x.device());
    let on = iota(last - 1).try_eq(iota(last))?;
    let square = on.try_where_(x.try_unsqueeze(-1)?.try_expand(&spread)?, 0)?.try_to_dtype(x.dtype())?;
    let mut padding = vec![(0, 0); spread.rank()];
    padding[last - 1] = (above, shape[row] - n - above);
    padding[last] = (left, shape[column] - n - left);
    let whole = square.pad_dims(&padding, 0);
    // Rows and columns from the end to their places.
    let mut others = 0..last - 1;
    let order: Vec<usize> = (0..shape.rank())
        .map(|dim| {
            if dim == row {
                last - 1
            } else if dim == column {
                last
            } else {
                others.next().unwrap_or(0)
            }
        })
        .collect();
    permute(&whole, &order)
}

/// `src` in the place of a slice of `dim`.
#[track_caller]
fn put_slice(x: &Tensor, src: &Tensor, axis: usize, start: i64, end: i64, distance: i64) -> Result<Tensor> {
    let n = x.shape().get(axis).copied().unwrap_or(0);
    let (first, count) = resolve_slice(n, Some(start), Some(end), distance)?;
    let expected = x.shape().with_dim(axis, count);
    if *src.shape() != expected {
        return Err(Error::shape("slice_scatter", format!("src {} is not {expected}", src.shape())));
    }
    if count == 0 {
        return Ok(x.clone());
    }
    let index =
        Tensor::try_arange(first as i64, first as i64 + count as i64 * distance, distance, DType::I64, x.device())?;
    indexed("slice_scatter", x, ScatterMode::Set, axis as i64, &index, &cast(src, x.dtype())?)
}

/// A list of positions along `axis`, repeated along all other dims of `shape`.
#[track_caller]
fn stretched(index: &Tensor, shape: &Shape, axis: usize) -> Result<Tensor> {
    let index = positions(index)?.try_reshape([-1])?;
    let mut column = Shape::from(Dims::from_elem(1, shape.rank()));
    column.dims_mut()[axis] = index.numel();
    expand(&reshape(&index, &column)?, &shape.with_dim(axis, index.numel()))
}

#[track_caller]
fn indexed(op: &str, x: &Tensor, mode: ScatterMode, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let axis = resolve_dim(op, dim, x.shape())?;
    if index.rank() > 1 {
        return Err(Error::shape(op, format!("index {} is not a list", index.shape())));
    }
    if x.rank() == 0 {
        let (flat, source) = (x.try_reshape([1])?, source.try_reshape([-1])?);
        return indexed(op, &flat, mode, 0, &index.try_reshape([-1])?, &source)?.try_reshape(());
    }
    let expected = x.shape().with_dim(axis, index.numel());
    let source = if source.rank() == 0 && x.rank() == 1 { source.try_reshape([1])? } else { source.clone() };
    if *source.shape() != expected {
        return Err(Error::shape(op, format!("source {} is not {expected}", source.shape())));
    }
    if source.dtype() != x.dtype() {
        return Err(Error::dtype(op, format!("self is {}, source is {}", x.dtype(), source.dtype())));
    }
    scatter(mode, x, axis, &stretched(index, x.shape(), axis)?, &source)
}

#[track_caller]
fn scatter_reduce(x: &Tensor, dim: i64, index: &Tensor, src: &Tensor, how: &str, include_self: bool) -> Result<Tensor> {
    let mode = match how {
        "sum" | "mean" => ScatterMode::Add,
        "prod" => ScatterMode::Mul,
        "amax" => ScatterMode::Max,
        "amin" => ScatterMode::Min,
        _ => return Err(Error::argument("scatter_reduce", format!("there is no reduction {how:?}"))),
    };
    let axis = resolve_dim("scatter_reduce", dim, x.shape())?;
    if x.rank() == 0 {
        let (x, index, src) = (x.try_reshape([1])?, index.try_reshape([-1])?, src.try_reshape([-1])?);
        return scatter_reduce(&x, 0, &index, &src, how, include_self)?.try_reshape(());
    }
    let index = positions(index)?;
    let starts = Dims::from_elem(0, src.rank());
    let src = slice(src, &starts, &vec![1; src.rank()], index.shape())?;
    let ones = Tensor::full(index.shape(), 1, DType::I64, x.device());
    let none = Tensor::full(x.shape(), 0, DType::I64, x.device());
    let hits = scatter(ScatterMode::Add, &none, axis, &index, &ones)?;
    let touched = hits.try_gt(0)?;
    let base = if include_self {
        x.clone()
    } else {
        let neutral = match (how, x.dtype().is_float()) {
            ("sum" | "mean", _) => Scalar::Int(0),
            ("prod", _) => Scalar::Int(1),
            ("amax", true) => Scalar::Float(f64::NEG_INFINITY),
            ("amin", true) => Scalar::Float(f64::INFINITY),
            ("amax", false) => Scalar::Int(i64::MIN),
            _ => Scalar::Int(i64::MAX),
        };
        touched.try_where_(Tensor::full(x.shape(), neutral, x.dtype(), x.device()), x)?
    };
    let combined = scatter(mode, &base, axis, &index, &src)?;
    if how != "mean" {
        return Ok(combined);
    }
    let count = if include_self { hits.try_add(1)? } else { hits.try_clamp_min(1)? };
    if x.dtype().is_float() {
        combined.try_div(count.try_to_dtype(x.dtype())?)
    } else {
        combined.try_div_floor(count.try_to_dtype(x.dtype())?)
    }
}

#[track_caller]
fn index_put(x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
    // The numbers of the elements, indexed the same way, are the places to write.
    let numbers = Tensor::try_arange(0, x.numel(), 1, DType::I64, x.device())?.try_reshape(x.shape())?;
    let entries: Vec<Index> = indices
        .iter()
        .map(|index| index.as_ref().map_or(Index::from(..), |index| Index::Tensor(index.clone())))
        .collect();
    let places = numbers.try_i(entries)?;
    let values = values.try_expand(places.shape())?;
    x.try_put(&places, &values, accumulate)
}

/// With so many dims: vectors become rows, matrices get a last dim of 1.
#[track_caller]
fn raise(x: &Tensor, rank: usize) -> Result<Tensor> {
    match (x.rank(), rank) {
        (0, _) => x.try_reshape(vec![1usize; rank]),
        (1, 2) => x.try_unsqueeze(0),
        (1, 3) => x.try_unsqueeze(0)?.try_unsqueeze(-1),
        (2, 3) => x.try_unsqueeze(-1),
        _ => Ok(x.clone()),
    }
}

fn triangle_indices(row: usize, col: usize, keep: impl Fn(i64, i64) -> bool, device: &Device) -> Tensor {
    let places: Vec<(i64, i64)> =
        (0..row as i64).flat_map(|i| (0..col as i64).map(move |j| (i, j))).filter(|&(i, j)| keep(i, j)).collect();
    let count = places.len();
    let flat: Vec<i64> = places.iter().map(|place| place.0).chain(places.iter().map(|place| place.1)).collect();
    Tensor::from_vec(flat, [2, count], device)
}

/// In `f64`, from the nearer end, so that both ends are exact.
#[track_caller]
fn even_steps(start: f64, end: f64, steps: usize, device: &Device) -> Result<Tensor> {
    let position = Tensor::try_arange(0, steps, 1, DType::I64, device)?.try_to_dtype(DType::F64)?;
    let distance = if steps > 1 { (end - start) / (steps as f64 - 1.0) } else { 0.0 };
    let (low, high) = (
        position.try_mul(distance)?.try_add(start)?,
        position.try_neg()?.try_add(steps as f64 - 1.0)?.try_mul(-distance)?.try_add(end)?,
    );
    if steps < 2 {
        return Ok(low);
    }
    position.try_lt(steps as f64 / 2.0)?.try_where_(&low, &high)
}

/// Different elements, inverse, counts; sorted first, or only runs of neighbours.
fn unique(x: &Tensor, sorted: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let flat = x.detach().try_reshape([-1])?;
    let n = flat.numel();
    let (values, order) =
        if sorted { flat.try_sort(0, false)? } else { (flat, Tensor::try_arange(0, n, 1, DType::I64, x.device())?) };
    let (starts, inverse) =
        runs(&values, &order, |values, n| values.try_narrow(0, 1, n - 1)?.try_ne(values.try_narrow(0, 0, n - 1)?))?;
    let picked = values.try_index_select(0, &starts)?;
    let counts = counts_of(&starts, n)?;
    Ok((picked, inverse.try_reshape(x.shape())?, counts))
}

/// Where runs of equal neighbours start, and the number of the run of each element by its place before sorting.
fn runs(
    values: &Tensor,
    order: &Tensor,
    differs: impl FnOnce(&Tensor, usize) -> Result<Tensor>,
) -> Result<(Tensor, Tensor)> {
    let n = order.numel();
    if n == 0 {
        return Ok((order.clone(), order.clone()));
    }
    let new = differs(values, n)?;
    let first = Tensor::full([1], true, DType::Bool, values.device());
    let is_start = Tensor::try_cat(&[&first, &new], 0)?;
    let number = is_start.try_cumsum(0)?.try_sub(1)?;
    let starts = is_start.try_nonzero()?.try_reshape([-1])?;
    let zeros = Tensor::full([n], 0, DType::I64, values.device());
    Ok((starts, scatter(ScatterMode::Set, &zeros, 0, order, &number)?))
}

fn counts_of(starts: &Tensor, n: usize) -> Result<Tensor> {
    let end = Tensor::full([1], n, DType::I64, starts.device());
    let ends = Tensor::try_cat(&[starts, &end], 0)?;
    ends.try_diff(1, 0, None, None)
}

type Called = Result<Vec<Tensor>>;

fn list(args: &Args, name: &str) -> Result<Vec<Tensor>> {
    args.get::<Vec<Tensor>>(name)
}

macro_rules! joining {
    ($($call:ident => $method:ident),* $(,)?) => {$(
        fn $call(args: &Args) -> Called {
            let tensors = list(args, "tensors")?;
            Ok(vec![Tensor::$method(&tensors.iter().collect::<Vec<_>>())?])
        }
    )*};
}

joining!(
    call_hstack => try_hstack,
    call_vstack => try_vstack,
    call_dstack => try_dstack,
    call_column_stack => try_column_stack,
    call_cartesian_prod => try_cartesian_prod,
    call_block_diag => try_block_diag,
);

fn call_broadcast_tensors(args: &Args) -> Called {
    let tensors = list(args, "tensors")?;
    Tensor::try_broadcast_tensors(&tensors.iter().collect::<Vec<_>>())
}

fn call_meshgrid(args: &Args) -> Called {
    let tensors = list(args, "tensors")?;
    let xy = args.get::<Option<String>>("indexing")?.as_deref() == Some("xy");
    Tensor::try_meshgrid(&tensors.iter().collect::<Vec<_>>(), xy)
}

/// One tensor, or each of a list.
fn each(args: &Args, f: impl Fn(&Tensor) -> Result<Tensor>) -> Called {
    let tensors = if args.has("tensors") { list(args, "tensors")? } else { vec![args.get::<Tensor>("input")?] };
    tensors.iter().map(f).collect()
}

fn call_atleast_2d(args: &Args) -> Called {
    each(args, Tensor::try_atleast_2d)
}

fn call_atleast_3d(args: &Args) -> Called {
    each(args, Tensor::try_atleast_3d)
}

fn call_slice_scatter(args: &Args) -> Called {
    let (x, src) = (args.get::<Tensor>("input")?, args.get::<Tensor>("src")?);
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    let distance = args.get::<Option<i64>>("step")?.unwrap_or(1);
    Ok(vec![x.try_slice_scatter(&src, dim, args.get("start")?, args.get("end")?, distance)?])
}

fn call_roll(args: &Args) -> Called {
    let dims = args.get::<Option<Vec<i64>>>("dims")?.unwrap_or_default();
    Ok(vec![args.get::<Tensor>("input")?.try_roll(&args.get::<Vec<i64>>("shifts")?, &dims)?])
}

fn call_rot90(args: &Args) -> Called {
    let dims = args.get::<Option<Vec<i64>>>("dims")?.unwrap_or_else(|| vec![0, 1]);
    let [a, b] = dims[..] else { return Err(Error::argument("rot90", "takes two dims")) };
    Ok(vec![args.get::<Tensor>("input")?.try_rot90(args.get::<Option<i64>>("k")?.unwrap_or(1), [a, b])?])
}

/// One size for all parts, or a list.
fn call_split(args: &Args) -> Called {
    let x = args.get::<Option<Tensor>>("tensor")?.map_or_else(|| args.get::<Tensor>("input"), Ok)?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    match args.get::<Arg>("split_size_or_sections")? {
        Arg::List(_) => x.try_split_with_sizes(&args.get::<Vec<usize>>("split_size_or_sections")?, dim),
        _ => x.try_split(args.get("split_size_or_sections")?, dim),
    }
}

/// A number of sections, or the positions to cut at.
fn call_tensor_split(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    let axis = resolve_dim("tensor_split", dim, x.shape())?;
    for name in ["sections", "tensor_indices_or_sections", "indices"] {
        let cuts: Vec<i64> = match args.get::<Arg>(name)? {
            Arg::None => continue,
            Arg::Int(sections) => return x.try_tensor_split(sections.max(0) as usize, dim),
            Arg::Tensor(tensor) if tensor.rank() == 0 => {
                return x.try_tensor_split(tensor.try_to_vec::<i64>()?[0].max(0) as usize, dim);
            }
            Arg::Tensor(tensor) => tensor.try_to_vec()?,
            _ => args.get::<Vec<i64>>(name)?,
        };
        let n = x.shape()[axis];
        let mut parts = Vec::new();
        let mut start = Some(0);
        for end in cuts.into_iter().map(Some).chain([None]) {
            let (first, count) = resolve_slice(n, start, end, 1)?;
            parts.push(x.try_narrow(axis, first as i64, count)?);
            start = end;
        }
        return Ok(parts);
    }
    Err(Error::argument("tensor_split", "needs sections or positions"))
}

/// One count for all elements, or a tensor of counts (which are read).
fn call_repeat_interleave(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    let dim = args.get::<Option<i64>>("dim")?;
    let counts = match args.get::<Arg>("repeats")? {
        Arg::Tensor(counts) if counts.numel() != 1 => counts.try_to_vec::<i64>()?,
        _ => return Ok(vec![x.try_repeat_interleave(args.get("repeats")?, dim)?]),
    };
    let (x, dim) = match dim {
        Some(dim) => (x, dim),
        None => (x.try_reshape([-1])?, 0),
    };
    let axis = resolve_dim("repeat_interleave", dim, x.shape())?;
    if counts.len() != x.shape()[axis] {
        let message = format!("{} counts for dim {axis} of {}", counts.len(), x.shape());
        return Err(Error::shape("repeat_interleave", message));
    }
    let index: Vec<i64> =
        counts.iter().enumerate().flat_map(|(i, &n)| core::iter::repeat_n(i as i64, n.max(0) as usize)).collect();
    let count = index.len();
    Ok(vec![x.try_index_select(axis, &Tensor::from_vec(index, [count], x.device()))?])
}

fn triangle_args(args: &Args) -> Result<(usize, usize, i64, DType)> {
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(DType::I64);
    Ok((args.get("row")?, args.get("col")?, args.get::<Option<i64>>("offset")?.unwrap_or(0), dtype))
}

fn call_tril_indices(args: &Args) -> Called {
    let (row, col, offset, dtype) = triangle_args(args)?;
    Ok(vec![cast(&Tensor::tril_indices(row, col, offset, args.device()), dtype)?])
}

fn call_triu_indices(args: &Args) -> Called {
    let (row, col, offset, dtype) = triangle_args(args)?;
    Ok(vec![cast(&Tensor::triu_indices(row, col, offset, args.device()), dtype)?])
}

fn call_linspace(args: &Args) -> Called {
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32);
    Ok(vec![Tensor::try_linspace(args.get("start")?, args.get("end")?, args.get("steps")?, dtype, args.device())?])
}

fn call_logspace(args: &Args) -> Called {
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32);
    let base = args.get::<Option<f64>>("base")?.unwrap_or(10.0);
    Ok(vec![Tensor::try_logspace(
        args.get("start")?,
        args.get("end")?,
        args.get("steps")?,
        base,
        dtype,
        args.device(),
    )?])
}

fn call_eye(args: &Args) -> Called {
    let n = args.get::<usize>("n")?;
    let m = args.get::<Option<usize>>("m")?.unwrap_or(n);
    Ok(vec![Tensor::try_eye(n, m, args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32), args.device())?])
}

/// Without `dtype`, that of the value.
fn call_full(args: &Args) -> Called {
    let value = args.get::<Scalar>("fill_value")?;
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(value.default_dtype());
    Ok(vec![Tensor::full(args.get::<Vec<usize>>("size")?, value, dtype, args.device())])
}

fn call_index_put(args: &Args) -> Called {
    let indices = args.get::<Vec<Option<Tensor>>>("indices")?;
    let accumulate = args.get::<Option<bool>>("accumulate")?.unwrap_or(false);
    Ok(vec![args.get::<Tensor>("input")?.try_index_put(&indices, &args.get("values")?, accumulate)?])
}

/// `out_int32`, `side` beside `right`, and a `sorter` of rows that are not sorted.
fn call_searchsorted(args: &Args) -> Called {
    let mut rows = args.get::<Tensor>("sorted_sequence")?;
    let values = args.get::<Option<Tensor>>("input")?.map_or_else(|| args.get::<Tensor>("self"), Ok)?;
    if let Some(sorter) = args.get::<Option<Tensor>>("sorter")? {
        rows = rows.try_gather(-1, &sorter)?;
    }
    let side = args.get::<Option<String>>("side")?;
    let right = args.get::<Option<bool>>("right")?.unwrap_or(false) || side.as_deref() == Some("right");
    narrow_indices(args, rows.try_searchsorted(&values, right)?)
}

fn call_bucketize(args: &Args) -> Called {
    let right = args.get::<Option<bool>>("right")?.unwrap_or(false);
    narrow_indices(args, args.get::<Tensor>("input")?.try_bucketize(&args.get("boundaries")?, right)?)
}

fn narrow_indices(args: &Args, index: Tensor) -> Called {
    let narrow = args.get::<Option<bool>>("out_int32")?.unwrap_or(false);
    Ok(vec![if narrow { index.try_to_dtype(DType::I32)? } else { index }])
}

fn call_isin(args: &Args) -> Called {
    let found = args.get::<Tensor>("elements")?.try_isin(&args.get("test_elements")?)?;
    let invert = args.get::<Option<bool>>("invert")?.unwrap_or(false);
    Ok(vec![if invert { found.try_logical_not()? } else { found }])
}

/// The results that were asked for; along `dim`, slices count as elements.
fn unique_results(args: &Args, sorted: bool) -> Called {
    let x = args.get::<Tensor>("input")?;
    let flag = |name: &str| -> Result<bool> { Ok(args.get::<Option<bool>>(name)?.unwrap_or(false)) };
    let (values, inverse, counts) = match args.get::<Option<i64>>("dim")? {
        None => unique(&x, sorted)?,
        Some(dim) => unique_slices(&x, dim, sorted)?,
    };
    let mut results = vec![values];
    if flag("return_inverse")? {
        results.push(inverse);
    }
    if flag("return_counts")? {
        results.push(counts);
    }
    Ok(results)
}

fn unique_slices(x: &Tensor, dim: i64, sorted: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let axis = resolve_dim("unique", dim, x.shape())?;
    let n = x.shape()[axis];
    let moved = x.detach().try_movedim(&[axis as i64], &[0])?;
    let width = moved.numel().checked_div(n).unwrap_or(0);
    let rows = moved.try_reshape([n, width])?;
    // Sorted by the last column first, then stably by those before it.
    let mut order = Tensor::try_arange(0, n, 1, DType::I64, x.device())?;
    if sorted {
        for column in (0..width as i64).rev() {
            let keys = rows.try_index_select(0, &order)?.try_select(1, column)?;
            order = order.try_index_select(0, &keys.try_argsort(0, false)?)?;
        }
    }
    let arranged = rows.try_index_select(0, &order)?;
    let (starts, inverse) = runs(&arranged, &order, |rows, n| {
        rows.try_narrow(0, 1, n - 1)?.try_ne(rows.try_narrow(0, 0, n - 1)?)?.try_any(1)
    })?;
    let picks = order.try_index_select(0, &starts)?;
    Ok((x.try_index_select(axis, &picks)?, inverse, counts_of(&starts, n)?))
}

fn call_unique(args: &Args) -> Called {
    unique_results(args, true)
}

fn call_unique_consecutive(args: &Args) -> Called {
    unique_results(args, false)
}

/// An index as PyTorch's `__getitem__` takes it.
fn entry(arg: &Arg, device: &Device) -> Result<Index> {
    Ok(match arg {
        Arg::Int(position) => Index::At(*position),
        Arg::Slice { start, stop, step } => Index::Slice { start: *start, stop: *stop, step: step.unwrap_or(1) },
        Arg::Ellipsis => Index::Rest,
        Arg::None => Index::NewDim,
        Arg::Tensor(tensor) => Index::Tensor(tensor.clone()),
        Arg::List(_) => {
            let (mut shape, mut flat) = (Vec::new(), Vec::new());
            nested(arg, 0, &mut shape, &mut flat)?;
            let is_mask = flat.iter().all(|leaf| matches!(leaf, Arg::Bool(_))) && !flat.is_empty();
            let values: Vec<i64> = flat
                .iter()
                .map(|leaf| match leaf {
                    Arg::Bool(value) => i64::from(*value),
                    Arg::Int(value) => *value,
                    _ => 0,
                })
                .collect();
            let tensor = Tensor::from_vec(values, shape, device);
            Index::Tensor(if is_mask { tensor.try_to_dtype(DType::Bool)? } else { tensor })
        }
        Arg::Bool(_) | Arg::Float(_) | Arg::Str(_) | Arg::DType(_) => {
            return Err(Error::argument("index", format!("{arg:?} is no index")));
        }
    })
}

/// The sizes and elements of nested lists.
fn nested(arg: &Arg, depth: usize, shape: &mut Vec<usize>, flat: &mut Vec<Arg>) -> Result<()> {
    let ragged = || Error::argument("index", "the lists of an index have different lengths");
    let Arg::List(list) = arg else {
        if depth != shape.len() || !matches!(arg, Arg::Bool(_) | Arg::Int(_)) {
            return Err(ragged());
        }
        flat.push(arg.clone());
        return Ok(());
    };
    match shape.get(depth) {
        None if flat.is_empty() => shape.push(list.len()),
        Some(&size) if size == list.len() => {}
        _ => return Err(ragged()),
    }
    list.iter().try_for_each(|inner| nested(inner, depth + 1, shape, flat))
}

#[ops(group = "index", records = INDEXING)]
impl Tensor {
    /// The part that an index names; [`Tensor::i`] takes ranges and tuples.
    #[op(torch = ["__getitem__"], call = call_getitem)]
    pub fn index(&self, entries: &[Index]) -> Result<Tensor> {
        self.try_i(entries)
    }

    /// The slice `start:end:step` of `dim`.
    #[op(torch = ["slice"], call = call_slice)]
    pub fn slice_dim(&self, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Tensor> {
        let axis = resolve_dim("slice", dim, self.shape())?;
        let mut entries = vec![Index::from(..); axis];
        entries.push(Index::Slice { start, stop: end, step });
        self.try_i(entries)
    }
}

fn call_getitem(args: &Args) -> Called {
    let entries = match args.get::<Arg>("index")? {
        Arg::List(list) => list.iter().map(|arg| entry(arg, args.device())).collect::<Result<Vec<Index>>>()?,
        one => vec![entry(&one, args.device())?],
    };
    Ok(vec![args.get::<Tensor>("input")?.try_index(&entries)?])
}

fn call_slice(args: &Args) -> Called {
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(0);
    let distance = args.get::<Option<i64>>("step")?.unwrap_or(1);
    Ok(vec![args.get::<Tensor>("input")?.try_slice_dim(dim, args.get("start")?, args.get("end")?, distance)?])
}
