//! Along a dim: differences, integrals, derivatives, running sums of exponentials.

use super::elementwise::float;
use crate::dims::{IntoDim, resolve_dim};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{cast, reshape};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Dims;
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
    /// Logarithm of the running sum of `eˣ` along `dim`, by doubling strides: no scale is lost.
    ///
    /// # References
    /// Hillis, Steele (1986), *Data Parallel Algorithms*.
    #[op(with(dim = i64))]
    pub fn logcumsumexp(&self, dim: impl IntoDim) -> Result<Tensor> {
        let dim = resolve_dim("logcumsumexp", dim.into_dim(), self.shape())?;
        let x = float(self)?;
        let Some(&size) = self.shape().get(dim) else { return Ok(x) };
        let mut y = cast(&x, x.dtype().compute())?;
        let mut reach = 1;
        while reach < size {
            let mut padding = vec![(0, 0); self.rank()];
            padding[dim] = (reach, 0);
            let before = y.try_narrow(dim, 0, size - reach)?.pad_dims(&padding, f64::NEG_INFINITY);
            y = y.try_logaddexp(&before)?;
            reach *= 2;
        }
        cast(&y, x.dtype())
    }

    /// Differences of neighbours along `dim`, `n` times, after `prepend` and before `append`.
    #[op(with(dim = i64), default(n = 1, dim = -1))]
    pub fn diff(
        &self,
        n: usize,
        dim: impl IntoDim,
        prepend: Option<&Tensor>,
        append: Option<&Tensor>,
    ) -> Result<Tensor> {
        let dim = resolve_dim("diff", dim.into_dim(), self.shape())?;
        if self.rank() == 0 {
            return Err(Error::shape("diff", "needs at least one dim, got []"));
        }
        if n == 0 {
            return Ok(self.clone());
        }
        let parts: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
        let mut y = if parts.len() > 1 { Tensor::try_cat(&parts, dim)? } else { self.clone() };
        for _ in 0..n {
            let size = y.shape()[dim];
            if size < 2 {
                return y.try_narrow(dim, 0, 0);
            }
            let (next, own) = (y.try_narrow(dim, 1, size - 1)?, y.try_narrow(dim, 0, size - 1)?);
            y = if y.dtype() == DType::Bool { next.try_logical_xor(&own)? } else { next.try_sub(own)? };
        }
        Ok(y)
    }

    /// The integral along `dim` by trapezoids, at places `x` or at distance `dx`.
    #[op(rename(self = "y"), torch = ["trapezoid", "trapz"], default(dim = -1, dx = 1.0))]
    pub fn trapezoid(&self, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
        trapezoids(self, x, dim, dx)?.try_sum(dim)
    }

    /// The running integral along `dim` by trapezoids.
    #[op(rename(self = "y"), default(dim = -1, dx = 1.0))]
    pub fn cumulative_trapezoid(&self, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
        trapezoids(self, x, dim, dx)?.try_cumsum(dim)
    }

    /// Second-order accurate derivatives along `dims` of values at places `spacing` apart.
    #[op(call = call_gradient)]
    pub fn gradient(&self, spacing: f64, dims: &[i64]) -> Result<Vec<Tensor>> {
        dims.iter().map(|&dim| derivative(self, &Spacing::Even(spacing), dim, 1)).collect()
    }
}

/// The areas between neighbours.
#[track_caller]
fn trapezoids(y: &Tensor, x: Option<&Tensor>, dim: i64, dx: f64) -> Result<Tensor> {
    let axis = resolve_dim("trapezoid", dim, y.shape())?;
    let size = y.shape().get(axis).copied().unwrap_or(1);
    let pair = size.saturating_sub(1);
    let heights =
        y.try_narrow(axis, (size - pair) as i64, pair)?.try_add(y.try_narrow(axis, 0, pair)?)?.try_div(2.0)?;
    let Some(x) = x else { return heights.try_mul(dx) };
    let x = if x.rank() == 1 {
        let mut shape = Shape::from(Dims::from_elem(1, y.rank()));
        shape.dims_mut()[axis] = x.numel();
        reshape(x, &shape)?
    } else {
        x.clone()
    };
    let x_axis = resolve_dim("trapezoid", axis as i64 - y.rank() as i64, x.shape())?;
    heights.try_mul(x.try_diff(1, x_axis, None, None)?)
}

/// Where values stand along a dim.
enum Spacing {
    /// So far apart.
    Even(f64),
    /// At these places.
    Places(Tensor),
}

#[track_caller]
fn derivative(x: &Tensor, spacing: &Spacing, dim: i64, edge_order: i64) -> Result<Tensor> {
    let axis = resolve_dim("gradient", dim, x.shape())?;
    if x.rank() == 0 || !(1..=2).contains(&edge_order) {
        let message = format!("of {} with edges of order {edge_order}: needs a dim, and order 1 or 2", x.shape());
        return Err(Error::argument("gradient", message));
    }
    let n = x.shape()[axis];
    if n < edge_order as usize + 1 {
        return Err(Error::shape("gradient", format!("dim {axis} of {} is too short", x.shape())));
    }
    let x = float(x)?;
    let part = |start: usize, count: usize| x.try_narrow(axis, start as i64, count);
    // Distances between neighbours, shaped to stand along the dim.
    let steps = |places: &Tensor| -> Result<Tensor> {
        let mut shape = Shape::from(Dims::from_elem(1, x.rank()));
        shape.dims_mut()[axis] = n - 1;
        cast(&places.try_diff(1, 0, None, None)?, x.dtype())?.try_reshape(shape)
    };
    let distances = match spacing {
        Spacing::Even(distance) => {
            let mut shape = Shape::from(Dims::from_elem(1, x.rank()));
            shape.dims_mut()[axis] = n - 1;
            Tensor::full(shape, *distance, x.dtype(), x.device())
        }
        Spacing::Places(places) => steps(places)?,
    };
    let step = |i: usize| distances.try_narrow(axis, i as i64, 1);
    let slope = |from: usize, i: usize| part(from + 1, 1)?.try_sub(part(from, 1)?)?.try_div(step(i)?);
    let mut pieces = Vec::new();
    let edge = |near: [usize; 3], first: usize, second: usize, sign: f64| -> Result<Tensor> {
        let (d1, d2) = (step(first)?, step(second)?);
        let sum = d1.try_add(&d2)?;
        let a = d1.try_mul(2.0)?.try_add(&d2)?.try_div(d1.try_mul(&sum)?)?.try_neg()?;
        let b = sum.try_div(d1.try_mul(&d2)?)?;
        let c = d1.try_div(d2.try_mul(&sum)?)?.try_neg()?;
        let value = part(near[0], 1)?
            .try_mul(a)?
            .try_add(part(near[1], 1)?.try_mul(b)?)?
            .try_add(part(near[2], 1)?.try_mul(c)?)?;
        value.try_mul(sign)
    };
    pieces.push(if edge_order == 2 { edge([0, 1, 2], 0, 1, 1.0)? } else { slope(0, 0)? });
    if n > 2 {
        let (before, after) = (distances.try_narrow(axis, 0, n - 2)?, distances.try_narrow(axis, 1, n - 2)?);
        let sum = before.try_add(&after)?;
        let a = after.try_div(before.try_mul(&sum)?)?.try_neg()?;
        let b = after.try_sub(&before)?.try_div(before.try_mul(&after)?)?;
        let c = before.try_div(after.try_mul(&sum)?)?;
        let inner =
            part(0, n - 2)?.try_mul(a)?.try_add(part(1, n - 2)?.try_mul(b)?)?.try_add(part(2, n - 2)?.try_mul(c)?)?;
        pieces.push(inner);
    }
    pieces.push(if edge_order == 2 { edge([n - 1, n - 2, n - 3], n - 2, n - 3, -1.0)? } else { slope(n - 2, n - 2)? });
    Tensor::try_cat(&pieces.iter().collect::<Vec<_>>(), axis)
}

fn call_gradient(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let dims = args.get::<Option<Vec<i64>>>("dim")?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    let edge_order = args.get::<Option<i64>>("edge_order")?.unwrap_or(1);
    let spacing: Vec<Arg> = match args.get::<Arg>("spacing")? {
        Arg::None => vec![Arg::Float(1.0)],
        Arg::List(list) => list,
        one => vec![one],
    };
    let mut slopes = Vec::new();
    for (i, &dim) in dims.iter().enumerate() {
        let spacing = match &spacing[i.min(spacing.len() - 1)] {
            Arg::Tensor(places) if places.rank() == 1 => Spacing::Places(places.clone()),
            Arg::List(places) => {
                let places: Vec<f64> = places.iter().filter_map(f64::from_arg).collect();
                let count = places.len();
                Spacing::Places(Tensor::from_vec(places, [count], x.device()))
            }
            number => Spacing::Even(f64::from_arg(number).unwrap_or(1.0)),
        };
        slopes.push(derivative(&x, &spacing, dim, edge_order)?);
    }
    Ok(slopes)
}
