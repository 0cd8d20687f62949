//! The same elements in another order, or several times: turning, shifting, repeating, sliding windows.

use super::diagonals::two_dims;
use crate::dims::{IntoDim, Sizes, resolve_dim};
use crate::ops::{Arg, Args};
use crate::primitive::{expand, permute, reshape, window};
use crate::{Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{WindowDim, WindowSpec};
use fornax_macros::ops;
use smallvec::smallvec;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
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

    /// Element `i` of `dim` `repeats[i]` times. Waits for the counts, since they set the size.
    #[op(torch = [], call = call_repeat_interleave)]
    pub fn repeat_interleave_each(&self, repeats: &Tensor, dim: i64) -> Result<Tensor> {
        let axis = resolve_dim("repeat_interleave", dim, self.shape())?;
        let x = if self.rank() == 0 { self.try_reshape([1])? } else { self.clone() };
        if repeats.rank() != 1 || repeats.numel() != x.shape()[axis] || !repeats.dtype().is_int() {
            let message = format!("counts {}{} for dim {axis} of {}", repeats.dtype(), repeats.shape(), x.shape());
            return Err(Error::shape("repeat_interleave", message));
        }
        let counts = repeats.try_to_vec::<i64>()?;
        if counts.iter().any(|&count| count < 0) {
            return Err(Error::argument("repeat_interleave", "counts are not negative"));
        }
        let index: Vec<i64> =
            (0..).zip(&counts).flat_map(|(i, &count)| core::iter::repeat_n(i, count as usize)).collect();
        let count = index.len();
        x.try_index_select(axis, &Tensor::from_vec(index, [count], x.device()))
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
        let Some(&size) = self.shape().get(axis) else {
            return Err(Error::shape("unflatten", "a 0-d tensor has no dim to part"));
        };
        let one = Shape::from([size]);
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
}

fn call_roll(args: &Args) -> Result<Vec<Tensor>> {
    let dims = args.get::<Option<Vec<i64>>>("dims")?.unwrap_or_default();
    Ok(vec![args.get::<Tensor>("input")?.try_roll(&args.get::<Vec<i64>>("shifts")?, &dims)?])
}

fn call_rot90(args: &Args) -> Result<Vec<Tensor>> {
    let dims = args.get::<Option<Vec<i64>>>("dims")?.unwrap_or_else(|| vec![0, 1]);
    let [a, b] = dims[..] else { return Err(Error::argument("rot90", "takes two dims")) };
    Ok(vec![args.get::<Tensor>("input")?.try_rot90(args.get::<Option<i64>>("k")?.unwrap_or(1), [a, b])?])
}

/// One count for all elements, or a tensor of counts.
fn call_repeat_interleave(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let dim = args.get::<Option<i64>>("dim")?;
    let counts = match args.get::<Arg>("repeats")? {
        Arg::Tensor(counts) if counts.numel() != 1 => counts,
        _ => return Ok(vec![x.try_repeat_interleave(args.get("repeats")?, dim)?]),
    };
    let flat = if dim.is_none() { x.try_reshape([-1])? } else { x };
    Ok(vec![flat.try_repeat_interleave_each(&counts, dim.unwrap_or(0))?])
}
