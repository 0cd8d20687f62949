//! Tensors made of a rule: even steps, the identity, positions of triangles.

use crate::ops::Args;
use crate::primitive::cast;
use crate::{DType, Device, Result, Scalar, Tensor};
use alloc::vec;
use alloc::vec::Vec;
use fornax_macros::ops;

#[ops(group = "create", records = RECORDS)]
impl Tensor {
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

fn triangle_args(args: &Args) -> Result<(usize, usize, i64, DType)> {
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(DType::I64);
    Ok((args.get("row")?, args.get("col")?, args.get::<Option<i64>>("offset")?.unwrap_or(0), dtype))
}

fn call_tril_indices(args: &Args) -> Result<Vec<Tensor>> {
    let (row, col, offset, dtype) = triangle_args(args)?;
    Ok(vec![cast(&Tensor::tril_indices(row, col, offset, args.device()), dtype)?])
}

fn call_triu_indices(args: &Args) -> Result<Vec<Tensor>> {
    let (row, col, offset, dtype) = triangle_args(args)?;
    Ok(vec![cast(&Tensor::triu_indices(row, col, offset, args.device()), dtype)?])
}

fn call_linspace(args: &Args) -> Result<Vec<Tensor>> {
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32);
    Ok(vec![Tensor::try_linspace(args.get("start")?, args.get("end")?, args.get("steps")?, dtype, args.device())?])
}

fn call_logspace(args: &Args) -> Result<Vec<Tensor>> {
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

fn call_eye(args: &Args) -> Result<Vec<Tensor>> {
    let n = args.get::<usize>("n")?;
    let m = args.get::<Option<usize>>("m")?.unwrap_or(n);
    Ok(vec![Tensor::try_eye(n, m, args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32), args.device())?])
}

/// Without `dtype`, that of the value.
fn call_full(args: &Args) -> Result<Vec<Tensor>> {
    let value = args.get::<Scalar>("fill_value")?;
    let dtype = args.get::<Option<DType>>("dtype")?.unwrap_or(value.default_dtype());
    Ok(vec![Tensor::full(args.get::<Vec<usize>>("size")?, value, dtype, args.device())])
}
