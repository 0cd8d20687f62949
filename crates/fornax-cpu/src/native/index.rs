//! Gather and scatter. Where an index only repeats along the trailing dims (embeddings, `index_select`), whole rows are
//! moved at once. Along the last dim of row-major tensors (max pooling and its gradient), each row is work of its own.

use super::movement::{list_places, materialize, positions, row_major};
use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::sync::atomic::{AtomicUsize, Ordering};
use fornax_ir::{DType, Layout, ScatterMode, Shape};
use half::{bf16, f16};

fn out_of_range(index: i64, dim: usize, size: usize) -> String {
    format!("index {index} is out of range for dim {dim} of size {size}")
}

/// Where the elements of the index's shape lie in a tensor of `layout`, but for the indexed dim; rows of `repeats`
/// elements count once.
fn places(layout: &Layout, shape: &Shape, dim: usize, repeats: usize) -> Vec<usize> {
    let mut strides = layout.strides.clone();
    strides[dim] = 0;
    let mut shape = shape.clone();
    let mut left = repeats;
    while left > 1 || shape.last().is_some_and(|&size| size == 1 && shape.rank() > dim + 1) {
        let Some(last) = shape.dims_mut().pop() else { break };
        strides.pop();
        left /= last.max(1);
    }
    list_places(&Layout { shape, strides, offset: layout.offset })
}

/// Whether the trailing dims over which an index repeats lie behind the indexed dim, and without gaps in `layout`.
fn rows_are_whole(layout: &Layout, shape: &Shape, dim: usize, repeats: usize) -> bool {
    let (mut run, mut at) = (1usize, shape.rank());
    while run < repeats {
        at -= 1;
        if at <= dim || (shape[at] != 1 && layout.strides[at] != run as isize) {
            return false;
        }
        run *= shape[at];
    }
    run == repeats
}

pub(super) fn gather(
    x: &Operand<'_>,
    index: &Operand<'_>,
    dim: usize,
    output: &mut [u8],
    threads: &Threads,
) -> Result<(), String> {
    let shape = &index.layout.shape;
    if shape.contains(&0) {
        return Ok(());
    }
    let (size, step) = (x.layout.shape[dim], x.layout.strides[dim]);
    if dim + 1 == shape.rank() && index.layout.is_contiguous() {
        let bad = match (x.dtype.size(), index.dtype) {
            (1, DType::I32) => along_rows::<u8, i32>(x, index, output, threads),
            (1, _) => along_rows::<u8, i64>(x, index, output, threads),
            (2, DType::I32) => along_rows::<u16, i32>(x, index, output, threads),
            (2, _) => along_rows::<u16, i64>(x, index, output, threads),
            (4, DType::I32) => along_rows::<u32, i32>(x, index, output, threads),
            (4, _) => along_rows::<u32, i64>(x, index, output, threads),
            (_, DType::I32) => along_rows::<u64, i32>(x, index, output, threads),
            (_, _) => along_rows::<u64, i64>(x, index, output, threads),
        };
        return bad.map_or(Ok(()), |pick| Err(out_of_range(pick, dim, size)));
    }
    let (mut picks, mut repeats) = positions(index);
    if !rows_are_whole(&x.layout, shape, dim, repeats) {
        picks = picks.iter().flat_map(|&pick| core::iter::repeat_n(pick, repeats)).collect();
        repeats = 1;
    }
    let places = places(&x.layout, shape, dim, repeats);
    debug_assert_eq!(places.len(), picks.len());
    let bytes = x.dtype.size() * repeats;
    let width = x.dtype.size();
    for ((out, &pick), &place) in output.chunks_exact_mut(bytes).zip(&picks).zip(&places) {
        if pick < 0 || pick as usize >= size {
            return Err(out_of_range(pick, dim, size));
        }
        let from = (place as isize + pick as isize * step) as usize * width;
        out.copy_from_slice(&x.bytes[from..from + bytes]);
    }
    Ok(())
}

/// Where rows of the last dim start, for those that an index of `shape` names: it may be smaller along the other dims.
fn row_starts(layout: &Layout, shape: &Shape) -> Vec<usize> {
    let outer = shape.rank() - 1;
    let strides = layout.strides[..outer].iter().copied().collect();
    list_places(&Layout { shape: shape[..outer].into(), strides, offset: layout.offset })
}

/// Gathers along the last dim, with an index that lies row-major. Gives an index that is out of range, if there is one:
/// the first.
fn along_rows<T: Pod + Send + Sync, I: Pod + Sync + Into<i64>>(
    x: &Operand<'_>,
    index: &Operand<'_>,
    output: &mut [u8],
    threads: &Threads,
) -> Option<i64> {
    let shape = &index.layout.shape;
    let (data, picks) = (bytemuck::cast_slice::<u8, T>(x.bytes), bytemuck::cast_slice::<u8, I>(index.bytes));
    let picks = &picks[index.layout.offset..][..shape.numel()];
    let (row, last) = (shape[shape.rank() - 1], shape.rank() - 1);
    let (size, step) = (x.layout.shape[last], x.layout.strides[last]);
    let starts = row_starts(&x.layout, shape);
    let results = SharedSlice::new(bytemuck::cast_slice_mut::<u8, T>(output));
    let first_bad = AtomicUsize::new(usize::MAX);
    threads.deal(picks.len(), picks.len(), |part| {
        for at in part {
            let pick: i64 = picks[at].into();
            if pick < 0 || pick as usize >= size {
                first_bad.fetch_min(at, Ordering::Relaxed);
                return;
            }
            let from = starts[at / row] as isize + pick as isize * step;
            // SAFETY: each place is dealt out once.
            unsafe { results.set(at, data[from as usize]) };
        }
    });
    picks.get(first_bad.into_inner()).map(|&pick| pick.into())
}

pub(super) fn scatter(
    x: &Operand<'_>,
    index: &Operand<'_>,
    source: &Operand<'_>,
    dim: usize,
    mode: ScatterMode,
    output: &mut [u8],
    threads: &Threads,
) -> Result<(), String> {
    materialize(x, output);
    macro_rules! by_type {
        ($ty:ty, $add:expr, $mul:expr, $max:expr, $min:expr) => {{
            let output: &mut [$ty] = bytemuck::cast_slice_mut(output);
            match mode {
                ScatterMode::Set => each(x, index, source, dim, output, threads, |_, new: $ty| new),
                ScatterMode::Add => each(x, index, source, dim, output, threads, $add),
                ScatterMode::Mul => each(x, index, source, dim, output, threads, $mul),
                ScatterMode::Max => each(x, index, source, dim, output, threads, $max),
                ScatterMode::Min => each(x, index, source, dim, output, threads, $min),
            }
        }};
    }
    macro_rules! integer {
        ($ty:ty) => {
            by_type!($ty, <$ty>::wrapping_add, <$ty>::wrapping_mul, |a: $ty, b| a.max(b), |a: $ty, b| a.min(b))
        };
    }
    macro_rules! float {
        ($ty:ty) => {
            by_type!(
                $ty,
                |a, b| a + b,
                |a, b| a * b,
                |a: $ty, b: $ty| if a.is_nan() || a > b { a } else { b },
                |a: $ty, b: $ty| if a.is_nan() || a < b { a } else { b }
            )
        };
    }
    match x.dtype {
        DType::Bool => by_type!(u8, |a, b| a | b, |a, b| a & b, |a: u8, b| a.max(b), |a: u8, b| a.min(b)),
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F32 => float!(f32),
        DType::F64 => float!(f64),
        DType::F16 => through_f32(
            x,
            index,
            source,
            dim,
            mode,
            bytemuck::cast_slice_mut(output),
            threads,
            f16::to_f32,
            f16::from_f32,
        ),
        DType::BF16 => through_f32(
            x,
            index,
            source,
            dim,
            mode,
            bytemuck::cast_slice_mut(output),
            threads,
            bf16::to_f32,
            bf16::from_f32,
        ),
    }
}

/// Halves accumulate in `f32` and are rounded once.
#[expect(clippy::too_many_arguments, reason = "one call, with the conversions beside it")]
fn through_f32<H: Pod>(
    x: &Operand<'_>,
    index: &Operand<'_>,
    source: &Operand<'_>,
    dim: usize,
    mode: ScatterMode,
    output: &mut [H],
    threads: &Threads,
    widen: fn(H) -> f32,
    narrow: fn(f32) -> H,
) -> Result<(), String> {
    let wide = |values: &[H]| -> Vec<f32> { values.iter().map(|&value| widen(value)).collect() };
    let mut sums = wide(output);
    let source_wide = wide(bytemuck::cast_slice(source.bytes));
    // Of `x` only the shape is read from here on.
    let x_wide = Operand { bytes: &[], dtype: DType::F32, layout: x.layout.clone() };
    let source_operand =
        Operand { bytes: bytemuck::cast_slice(&source_wide), dtype: DType::F32, layout: source.layout.clone() };
    let result = {
        let sums = &mut sums[..];
        match mode {
            ScatterMode::Set => each(&x_wide, index, &source_operand, dim, sums, threads, |_, new: f32| new),
            ScatterMode::Add => each(&x_wide, index, &source_operand, dim, sums, threads, |a, b| a + b),
            ScatterMode::Mul => each(&x_wide, index, &source_operand, dim, sums, threads, |a, b| a * b),
            ScatterMode::Max => {
                each(
                    &x_wide,
                    index,
                    &source_operand,
                    dim,
                    sums,
                    threads,
                    |a: f32, b: f32| if a.is_nan() || a > b { a } else { b },
                )
            }
            ScatterMode::Min => {
                each(
                    &x_wide,
                    index,
                    &source_operand,
                    dim,
                    sums,
                    threads,
                    |a: f32, b: f32| if a.is_nan() || a < b { a } else { b },
                )
            }
        }
    };
    for (out, sum) in output.iter_mut().zip(sums) {
        *out = narrow(sum);
    }
    result
}

/// `output[index] = combine(output[index], source)` for each element of the source, row-major.
fn each<T: Pod + Send + Sync>(
    x: &Operand<'_>,
    index: &Operand<'_>,
    source: &Operand<'_>,
    dim: usize,
    output: &mut [T],
    threads: &Threads,
    combine: impl Fn(T, T) -> T + Sync,
) -> Result<(), String> {
    let shape = &index.layout.shape;
    if shape.contains(&0) {
        return Ok(());
    }
    let target = Layout::contiguous(&x.layout.shape);
    let values: &[T] = bytemuck::cast_slice(source.bytes);
    if dim + 1 == shape.rank() && index.layout.is_contiguous() {
        let values = row_major(values, &source.layout);
        let bad = match index.dtype {
            DType::I32 => scatter_rows::<T, i32>(x, index, &values, output, threads, combine),
            _ => scatter_rows::<T, i64>(x, index, &values, output, threads, combine),
        };
        return bad.map_or(Ok(()), |pick| Err(out_of_range(pick, dim, x.layout.shape[dim])));
    }
    let (mut picks, mut repeats) = positions(index);
    let whole = rows_are_whole(&target, shape, dim, repeats) && rows_are_whole(&source.layout, shape, dim, repeats);
    if !whole {
        picks = picks.iter().flat_map(|&pick| core::iter::repeat_n(pick, repeats)).collect();
        repeats = 1;
    }
    let to = places(&target, shape, dim, repeats);
    let from = if repeats == 1 {
        list_places(&source.layout)
    } else {
        let starts: Vec<usize> = source.layout.places().step_by(repeats).collect();
        starts
    };
    let (size, step) = (x.layout.shape[dim], target.strides[dim] as usize);
    for ((&pick, &to), &from) in picks.iter().zip(&to).zip(&from) {
        if pick < 0 || pick as usize >= size {
            return Err(out_of_range(pick, dim, size));
        }
        let start = to + pick as usize * step;
        for (out, &value) in output[start..start + repeats].iter_mut().zip(&values[from..from + repeats]) {
            *out = combine(*out, value);
        }
    }
    Ok(())
}

/// Scatters `values` along the last dim, with an index that lies row-major. Gives an index that is out of range, if there
/// is one: the first.
fn scatter_rows<T: Pod + Send + Sync, I: Pod + Sync + Into<i64>>(
    x: &Operand<'_>,
    index: &Operand<'_>,
    values: &[T],
    output: &mut [T],
    threads: &Threads,
    combine: impl Fn(T, T) -> T + Sync,
) -> Option<i64> {
    let shape = &index.layout.shape;
    let last = shape.rank() - 1;
    let picks = &bytemuck::cast_slice::<u8, I>(index.bytes)[index.layout.offset..][..shape.numel()];
    let (row, size) = (shape[last], x.layout.shape[last]);
    let starts = row_starts(&Layout::contiguous(&x.layout.shape), shape);
    let results = SharedSlice::new(output);
    let first_bad = AtomicUsize::new(usize::MAX);
    threads.deal(starts.len(), picks.len(), |part| {
        for number in part {
            // SAFETY: each row is dealt out once.
            let output = unsafe { results.part(starts[number], size) };
            for at in number * row..(number + 1) * row {
                let pick: i64 = picks[at].into();
                let Some(out) = usize::try_from(pick).ok().and_then(|pick| output.get_mut(pick)) else {
                    first_bad.fetch_min(at, Ordering::Relaxed);
                    return;
                };
                *out = combine(*out, values[at]);
            }
        }
    });
    picks.get(first_bad.into_inner()).map(|&pick| pick.into())
}
