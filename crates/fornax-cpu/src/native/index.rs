//! Gather and scatter. Where an index only repeats along the trailing dims (embeddings, `index_select`), whole rows are
//! moved at once.

use super::Operand;
use super::movement::{list_places, materialize, positions};
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

/// Elements worth a task for another thread.
const TASK: usize = 1 << 14;

/// The output, of which every task writes its own part.
struct Parts<T>(*mut T);
// SAFETY: tasks write disjoint elements.
unsafe impl<T: Send> Sync for Parts<T> {}

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
    let (row, rank) = (shape[shape.rank() - 1], shape.rank());
    let (size, step) = (x.layout.shape[rank - 1], x.layout.strides[rank - 1]);
    // The index may be smaller than `x` along the other dims.
    let outer = Layout {
        shape: shape[..rank - 1].into(),
        strides: x.layout.strides[..rank - 1].iter().copied().collect(),
        offset: x.layout.offset,
    };
    let starts = list_places(&outer);
    let parts = Parts(bytemuck::cast_slice_mut::<u8, T>(output).as_mut_ptr());
    let tasks = picks.len().div_ceil(TASK);
    let first_bad = AtomicUsize::new(usize::MAX);
    threads.each(tasks, &|task| {
        let parts = &parts;
        for at in picks.len() * task / tasks..picks.len() * (task + 1) / tasks {
            let pick: i64 = picks[at].into();
            if pick < 0 || pick as usize >= size {
                first_bad.fetch_min(at, Ordering::Relaxed);
                return;
            }
            let from = starts[at / row] as isize + pick as isize * step;
            // SAFETY: tasks are disjoint, and there is an output for every index.
            unsafe { parts.0.add(at).write(data[from as usize]) };
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
) -> Result<(), String> {
    materialize(x, output);
    macro_rules! by_type {
        ($ty:ty, $add:expr, $mul:expr, $max:expr, $min:expr) => {{
            let output: &mut [$ty] = bytemuck::cast_slice_mut(output);
            match mode {
                ScatterMode::Set => each(x, index, source, dim, output, |_, new: $ty| new),
                ScatterMode::Add => each(x, index, source, dim, output, $add),
                ScatterMode::Mul => each(x, index, source, dim, output, $mul),
                ScatterMode::Max => each(x, index, source, dim, output, $max),
                ScatterMode::Min => each(x, index, source, dim, output, $min),
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
        DType::F16 => {
            through_f32(x, index, source, dim, mode, bytemuck::cast_slice_mut(output), f16::to_f32, f16::from_f32)
        }
        DType::BF16 => {
            through_f32(x, index, source, dim, mode, bytemuck::cast_slice_mut(output), bf16::to_f32, bf16::from_f32)
        }
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
            ScatterMode::Set => each(&x_wide, index, &source_operand, dim, sums, |_, new: f32| new),
            ScatterMode::Add => each(&x_wide, index, &source_operand, dim, sums, |a, b| a + b),
            ScatterMode::Mul => each(&x_wide, index, &source_operand, dim, sums, |a, b| a * b),
            ScatterMode::Max => {
                each(
                    &x_wide,
                    index,
                    &source_operand,
                    dim,
                    sums,
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
fn each<T: Pod>(
    x: &Operand<'_>,
    index: &Operand<'_>,
    source: &Operand<'_>,
    dim: usize,
    output: &mut [T],
    combine: impl Fn(T, T) -> T,
) -> Result<(), String> {
    let shape = &index.layout.shape;
    if shape.contains(&0) {
        return Ok(());
    }
    let values: &[T] = bytemuck::cast_slice(source.bytes);
    let target = Layout::contiguous(&x.layout.shape);
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
