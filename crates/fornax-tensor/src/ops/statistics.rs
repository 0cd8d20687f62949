//! Statistics: moments, covariances, histograms, sums and means without NaN.

use super::elementwise::float;
use super::reduction::converted;
use super::reduction::squeeze_reduced;
use crate::autodiff::{Reads, with_rule};
use crate::dims::ReduceDims;
use crate::ops::Args;
use crate::primitive::{cast, reduce, reshape, scatter};
use crate::{DType, Error, Result, Shape, Tensor, keepdim};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{ReduceOp, ScatterMode};
use fornax_macros::ops;

#[ops(group = "reduce", records = RECORDS)]
impl Tensor {
    /// Variance over `dims`, divided by their number less `correction` (1: unbiased, 0: biased).
    #[op(with(dims = ReduceDims), torch = ["var", "var.unbiased"], call = call_var)]
    pub fn var(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<Tensor> {
        cast(&moments("var", self, &dims.into(), correction)?.1, self.dtype())
    }

    /// Standard deviation over `dims`: the root of [`Tensor::var`].
    #[op(with(dims = ReduceDims), torch = ["std", "std.unbiased"], call = call_std)]
    pub fn std(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<Tensor> {
        cast(&root(&moments("std", self, &dims.into(), correction)?.1), self.dtype())
    }

    /// Variance and mean over `dims`.
    #[op(with(dims = ReduceDims), call = call_var_mean)]
    pub fn var_mean(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<(Tensor, Tensor)> {
        let (mean, var) = moments("var_mean", self, &dims.into(), correction)?;
        Ok((cast(&var, self.dtype())?, cast(&mean, self.dtype())?))
    }

    /// Standard deviation and mean over `dims`.
    #[op(with(dims = ReduceDims), call = call_std_mean)]
    pub fn std_mean(&self, dims: impl Into<ReduceDims>, correction: f64) -> Result<(Tensor, Tensor)> {
        let (mean, var) = moments("std_mean", self, &dims.into(), correction)?;
        Ok((cast(&root(&var), self.dtype())?, cast(&mean, self.dtype())?))
    }

    /// Smallest and largest over `dims`.
    #[op(with(dims = ReduceDims), rename(dims = "dim"))]
    pub fn aminmax(&self, dims: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        let dims = dims.into();
        Ok((self.try_amin(dims.clone())?, self.try_amax(dims)?))
    }

    /// Number of elements over `dims` that are not zero (`i64`).
    #[op(with(dims = ReduceDims), rename(dims = "dim"), grad = false)]
    pub fn count_nonzero(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        cast(self, DType::Bool)?.try_sum(dims)
    }

    /// Sum over `dims` with NaN as 0.
    #[op(call = call_nansum)]
    pub fn nansum(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.try_masked_fill(&self.try_isnan()?, 0.0)? } else { self.clone() };
        x.try_sum(dims)
    }

    /// Mean over `dims` of what is not NaN.
    #[op(call = call_nanmean)]
    pub fn nanmean(&self, dims: impl Into<ReduceDims>) -> Result<Tensor> {
        let dims = dims.into();
        if !self.dtype().is_float() {
            return Err(Error::dtype("nanmean", format!("needs a float, got {}", self.dtype())));
        }
        let count = self.try_isnan()?.try_logical_not()?.try_sum(dims.clone())?;
        let sum = cast(self, self.dtype().compute())?.try_nansum(dims)?;
        cast(&sum.try_div(&count.try_to_dtype(sum.dtype())?)?, self.dtype())
    }

    /// Sum of the main diagonal of a matrix.
    #[op]
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::shape("trace", format!("{} is not a matrix", self.shape())));
        }
        self.try_diagonal(0, 0, 1)?.try_sum(0)
    }

    /// How many elements fall into each of `bins` equal parts of `[min, max]` (of all, if both are 0).
    #[op(grad = false, default(bins = 100, min = 0.0, max = 0.0))]
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        let flat = self.detach().try_reshape([-1])?.try_to_dtype(DType::F64)?;
        if bins == 0 {
            return Err(Error::argument("histc", "needs at least one bin"));
        }
        if !(min.is_finite() && max.is_finite() && min <= max) {
            return Err(Error::argument("histc", format!("[{min}, {max}] is no range")));
        }
        let (mut low, mut high) =
            (Tensor::full((), min, DType::F64, self.device()), Tensor::full((), max, DType::F64, self.device()));
        if min == max && flat.numel() > 0 {
            (low, high) = (flat.try_amin(())?, flat.try_amax(())?);
        }
        let same = low.try_eq(&high)?;
        let (low, high) = (same.try_where_(low.try_sub(1.0)?, &low)?, same.try_where_(high.try_add(1.0)?, &high)?);
        let share = flat.try_sub(&low)?.try_div(high.try_sub(&low)?)?.try_mul(bins as f64)?;
        let inside = flat.try_ge(&low)?.try_logical_and(&flat.try_le(&high)?)?;
        let bin = share.try_floor()?.try_clamp(Some(0.0), Some(bins as f64 - 1.0))?.try_to_dtype(DType::I64)?;
        let bin = inside.try_where_(&bin, 0)?;
        let zeros = Tensor::full([bins], 0, self.dtype(), self.device());
        scatter(ScatterMode::Add, &zeros, 0, &bin, &inside.try_to_dtype(self.dtype())?)
    }

    /// How often each integer from 0 on occurs in a list, or the sum of its weights. Waits for the values, since they
    /// set the size.
    #[op(grad = false, default(minlength = 0))]
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        let values = self.try_to_vec::<i64>()?;
        if self.rank() != 1 || values.iter().any(|&value| value < 0) {
            return Err(Error::argument(
                "bincount",
                format!("needs a list of integers from 0 on, got {}", self.shape()),
            ));
        }
        let size = values.iter().max().map_or(0, |&largest| largest as usize + 1).max(minlength);
        let index = cast(self, DType::I64)?;
        let (dtype, source) = match weights {
            Some(weights) if weights.dtype() == DType::F32 => (DType::F32, weights.clone()),
            Some(weights) => (DType::F64, cast(weights, DType::F64)?),
            None => (DType::I64, Tensor::full(self.shape(), 1, DType::I64, self.device())),
        };
        scatter(ScatterMode::Add, &Tensor::full([size], 0, dtype, self.device()), 0, &index, &source)
    }

    /// Covariances of the rows of `[variables, observations]`; of a single row, its variance.
    #[op(call = call_cov)]
    pub fn cov(&self, correction: f64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
        cov(self, correction, fweights, aweights)
    }

    /// Correlations of the rows of `[variables, observations]`.
    #[op]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let cov = self.try_cov(1.0, None, None)?;
        if cov.rank() == 0 {
            return cov.try_div(&cov);
        }
        let deviation = cov.try_diagonal(0, 0, 1)?.try_sqrt()?;
        let scaled = cov.try_div(deviation.try_unsqueeze(1)?)?.try_div(&deviation)?;
        scaled.try_clamp(Some(-1.0), Some(1.0))
    }

    /// Summed to a shape that broadcasts to this one's. `bool` and integers sum as `i64`.
    #[op]
    pub fn sum_to_size(&self, size: &[usize]) -> Result<Tensor> {
        let target = Shape::from(size);
        if fornax_ir::broadcast_shapes("sum_to_size", &target, self.shape())? != *self.shape() {
            return Err(Error::shape("sum_to_size", format!("{target} does not expand to {}", self.shape())));
        }
        let dims = crate::primitive::broadcast_dims(&target, self.shape());
        let summed = match (target.rank(), dims.is_empty()) {
            (0, _) => return self.try_sum(()),
            (_, true) => self.clone(),
            (_, false) => self.try_sum(keepdim(dims))?,
        };
        reshape(&summed, &target)
    }
}

/// Mean and variance, in `f32` for halves.
#[track_caller]
fn moments(op: &str, x: &Tensor, dims: &ReduceDims, correction: f64) -> Result<(Tensor, Tensor)> {
    if !x.dtype().is_float() {
        return Err(Error::dtype(op, format!("needs a float, got {}", x.dtype())));
    }
    let axes = dims.resolve(op, x.shape())?;
    let count: usize = axes.iter().map(|&dim| x.shape()[dim]).product();
    let wide = cast(x, x.dtype().compute())?;
    let sum = |x: &Tensor| reduce(ReduceOp::Sum, x, &axes);
    let mean = sum(&wide)?.try_div(count as f64)?;
    let squares = sum(&wide.try_sub(&mean)?.try_square()?)?;
    let var = squares.try_div((count as f64 - correction).max(0.0))?;
    Ok((squeeze_reduced(&mean, &axes, dims.keepdim)?, squeeze_reduced(&var, &axes, dims.keepdim)?))
}

/// The square root; where it is 0 the gradient is 0, so that constant values do not spoil a model with NaN.
#[track_caller]
fn root(var: &Tensor) -> Tensor {
    with_rule(var, var.detach().sqrt(), Reads::Output, |y, dy| {
        let slope = dy / (y * 2.0);
        y.eq(0.0).where_(0.0, slope).to_dtype(dy.dtype())
    })
}

#[track_caller]
fn cov(x: &Tensor, correction: f64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
    if x.rank() > 2 {
        return Err(Error::shape("cov", format!("{} has more than two dims", x.shape())));
    }
    let rows = if x.rank() < 2 { x.try_reshape([1, -1])? } else { x.clone() };
    let rows = float(&rows)?;
    let count = rows.shape()[1];
    let weights = match (fweights, aweights) {
        (None, None) => None,
        (Some(f), None) => Some(f.try_to_dtype(rows.dtype())?),
        (None, Some(a)) => Some(a.try_to_dtype(rows.dtype())?),
        (Some(f), Some(a)) => Some(f.try_to_dtype(rows.dtype())?.try_mul(a)?),
    };
    let total = match &weights {
        Some(weights) => weights.try_sum(())?,
        None => Tensor::full((), count as f64, rows.dtype(), x.device()),
    };
    let weighted = match &weights {
        Some(weights) => rows.try_mul(weights)?,
        None => rows.clone(),
    };
    let mean = weighted.try_sum(keepdim(1))?.try_div(&total)?;
    let centred = rows.try_sub(&mean)?;
    let scaled = match &weights {
        Some(weights) => centred.try_mul(weights)?,
        None => centred.clone(),
    };
    let norm = match (&weights, aweights) {
        (Some(weights), Some(a)) if correction != 0.0 => {
            let share = weights.try_mul(a)?.try_sum(())?.try_div(&total)?.try_mul(correction)?;
            total.try_sub(share)?
        }
        _ => total.try_sub(correction)?,
    };
    let norm = norm.try_clamp_min(0.0)?;
    let cov = scaled.try_matmul(&centred.try_t()?)?.try_div(norm)?;
    cov.try_squeeze(())
}

/// PyTorch's `unbiased` and `correction`.
fn correction(args: &Args) -> Result<f64> {
    let unbiased = args.get::<Option<bool>>("unbiased")?;
    let given = args.get::<Option<f64>>("correction")?;
    Ok(given.unwrap_or(match unbiased {
        Some(false) => 0.0,
        _ => 1.0,
    }))
}

fn spread(args: &Args) -> Result<(Tensor, ReduceDims, f64)> {
    Ok((args.get("input")?, args.get("dim")?, correction(args)?))
}

fn call_var(args: &Args) -> Result<Vec<Tensor>> {
    let (x, dims, correction) = spread(args)?;
    Ok(vec![x.try_var(dims, correction)?])
}

fn call_std(args: &Args) -> Result<Vec<Tensor>> {
    let (x, dims, correction) = spread(args)?;
    Ok(vec![x.try_std(dims, correction)?])
}

fn call_var_mean(args: &Args) -> Result<Vec<Tensor>> {
    let (x, dims, correction) = spread(args)?;
    let (var, mean) = x.try_var_mean(dims, correction)?;
    Ok(vec![var, mean])
}

fn call_std_mean(args: &Args) -> Result<Vec<Tensor>> {
    let (x, dims, correction) = spread(args)?;
    let (std, mean) = x.try_std_mean(dims, correction)?;
    Ok(vec![std, mean])
}

fn call_nansum(args: &Args) -> Result<Vec<Tensor>> {
    let sum = converted(args)?.try_nansum(args.get::<ReduceDims>("dim")?)?;
    Ok(vec![cast(&sum, args.get::<Option<DType>>("dtype")?.unwrap_or(sum.dtype()))?])
}

fn call_nanmean(args: &Args) -> Result<Vec<Tensor>> {
    Ok(vec![converted(args)?.try_nanmean(args.get::<ReduceDims>("dim")?)?])
}

fn call_cov(args: &Args) -> Result<Vec<Tensor>> {
    let (f, a) = (args.get::<Option<Tensor>>("fweights")?, args.get::<Option<Tensor>>("aweights")?);
    let correction = args.get::<Option<f64>>("correction")?.unwrap_or(1.0);
    Ok(vec![args.get::<Tensor>("input")?.try_cov(correction, f.as_ref(), a.as_ref())?])
}
