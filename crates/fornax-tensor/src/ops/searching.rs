//! Searching in sorted rows, and sets of elements.

use crate::dims::resolve_dim;
use crate::ops::Args;
use crate::primitive::{cast, gather, scatter};
use crate::{DType, Error, Result, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::ScatterMode;
use fornax_macros::ops;

/// Elements up to which comparing with each is quicker than searching in sorted ones.
const FEW: usize = 32;

#[ops(group = "index", records = RECORDS)]
impl Tensor {
    /// Sorted along the first dim.
    #[op]
    pub fn msort(&self) -> Result<Tensor> {
        Ok(self.try_sort(0, false)?.0)
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
        let list = test_elements.try_reshape([-1])?;
        if list.numel() <= FEW {
            return self.try_unsqueeze(-1)?.try_eq(list)?.try_any(-1);
        }
        let dtype = self.dtype().promote(list.dtype());
        let (elements, sorted) = (cast(self, dtype)?, cast(&list, dtype)?.try_sort(0, false)?.0);
        let place = sorted.try_searchsorted(&elements, false)?.try_clamp(Some(0), Some(list.numel() as i64 - 1))?;
        let there = sorted.try_index_select(0, &place.try_reshape([-1])?)?.try_reshape(self.shape())?;
        there.try_eq(&elements)
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

/// `out_int32`, `side` beside `right`, and a `sorter` of rows that are not sorted.
fn call_searchsorted(args: &Args) -> Result<Vec<Tensor>> {
    let mut rows = args.get::<Tensor>("sorted_sequence")?;
    let values = args.get::<Option<Tensor>>("input")?.map_or_else(|| args.get::<Tensor>("self"), Ok)?;
    if let Some(sorter) = args.get::<Option<Tensor>>("sorter")? {
        rows = rows.try_gather(-1, &sorter)?;
    }
    let side = args.get::<Option<String>>("side")?;
    let right = args.get::<Option<bool>>("right")?.unwrap_or(false) || side.as_deref() == Some("right");
    narrow_indices(args, rows.try_searchsorted(&values, right)?)
}

fn call_bucketize(args: &Args) -> Result<Vec<Tensor>> {
    let right = args.get::<Option<bool>>("right")?.unwrap_or(false);
    narrow_indices(args, args.get::<Tensor>("input")?.try_bucketize(&args.get("boundaries")?, right)?)
}

fn narrow_indices(args: &Args, index: Tensor) -> Result<Vec<Tensor>> {
    let narrow = args.get::<Option<bool>>("out_int32")?.unwrap_or(false);
    Ok(vec![if narrow { index.try_to_dtype(DType::I32)? } else { index }])
}

fn call_isin(args: &Args) -> Result<Vec<Tensor>> {
    let found = args.get::<Tensor>("elements")?.try_isin(&args.get("test_elements")?)?;
    let invert = args.get::<Option<bool>>("invert")?.unwrap_or(false);
    Ok(vec![if invert { found.try_logical_not()? } else { found }])
}

/// The results that were asked for; along `dim`, slices count as elements.
fn unique_results(args: &Args, sorted: bool) -> Result<Vec<Tensor>> {
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
    let Some(&n) = x.shape().get(axis) else {
        return Err(Error::shape("unique", "a 0-d tensor has no slices"));
    };
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

fn call_unique(args: &Args) -> Result<Vec<Tensor>> {
    unique_results(args, true)
}

fn call_unique_consecutive(args: &Args) -> Result<Vec<Tensor>> {
    unique_results(args, false)
}
