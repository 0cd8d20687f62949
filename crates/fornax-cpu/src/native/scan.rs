//! Running totals along a dim. Totals are wide (`f64` for floats); each element is rounded once.

use super::movement::row_major;
use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::vec;
use bytemuck::Pod;
use fornax_ir::{DType, ScanOp};
use half::{bf16, f16};

/// Elements behind the scanned dim that are totalled side by side.
const WIDTH: usize = 256;

/// Elements worth a task for another thread.
const TASK: usize = 1 << 15;

pub(super) fn scan(op: ScanOp, x: &Operand<'_>, dim: usize, output: &mut [u8], threads: &Threads) {
    macro_rules! integer {
        ($ty:ty) => {
            match op {
                ScanOp::Sum => run::<$ty, $ty>(x, dim, output, threads, |x| x, |x| x, <$ty>::wrapping_add),
                ScanOp::Prod => run::<$ty, $ty>(x, dim, output, threads, |x| x, |x| x, <$ty>::wrapping_mul),
                ScanOp::Max => run::<$ty, $ty>(x, dim, output, threads, |x| x, |x| x, Ord::max),
                ScanOp::Min => run::<$ty, $ty>(x, dim, output, threads, |x| x, |x| x, Ord::min),
            }
        };
    }
    macro_rules! float {
        ($ty:ty, $widen:expr, $narrow:expr) => {
            match op {
                ScanOp::Sum => run::<$ty, f64>(x, dim, output, threads, $widen, $narrow, |a, b| a + b),
                ScanOp::Prod => run::<$ty, f64>(x, dim, output, threads, $widen, $narrow, |a, b| a * b),
                ScanOp::Max => run::<$ty, f64>(x, dim, output, threads, $widen, $narrow, larger),
                ScanOp::Min => run::<$ty, f64>(x, dim, output, threads, $widen, $narrow, smaller),
            }
        };
    }
    match x.dtype {
        DType::Bool => unreachable!("scans take numbers"),
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F16 => float!(f16, |x| f64::from(f32::from(x)), |x| f16::from_f32(x as f32)),
        DType::BF16 => float!(bf16, |x| f64::from(f32::from(x)), |x| bf16::from_f32(x as f32)),
        DType::F32 => float!(f32, f64::from, |x| x as f32),
        DType::F64 => float!(f64, |x| x, |x| x),
    }
}

/// The earlier of equal numbers; NaN if either is.
fn larger(total: f64, x: f64) -> f64 {
    if total.is_nan() || total >= x { total } else { x }
}

/// The earlier of equal numbers; NaN if either is.
fn smaller(total: f64, x: f64) -> f64 {
    if total.is_nan() || total <= x { total } else { x }
}

fn run<T: Pod + Send + Sync, A: Copy + Send + Sync>(
    x: &Operand<'_>,
    dim: usize,
    output: &mut [u8],
    threads: &Threads,
    widen: impl Fn(T) -> A + Sync,
    narrow: impl Fn(A) -> T + Sync,
    join: impl Fn(A, A) -> A + Sync,
) {
    let shape = &x.layout.shape;
    if shape.contains(&0) {
        return;
    }
    let data = row_major::<T>(bytemuck::cast_slice(x.bytes), &x.layout);
    let (data, parts) = (&data[..], SharedSlice::new(bytemuck::cast_slice_mut::<u8, T>(output)));
    let (size, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
    let blocks = inner.div_ceil(WIDTH);
    let jobs = data.len() / (size * inner) * blocks;
    let tasks = (data.len() / TASK).clamp(1, jobs);
    threads.each(tasks, &|task| {
        for job in jobs * task / tasks..jobs * (task + 1) / tasks {
            let first = job % blocks * WIDTH;
            let start = job / blocks * size * inner + first;
            let width = WIDTH.min(inner - first);
            // SAFETY: jobs are disjoint, and lie within data and output, which are of one length.
            let put = |place: usize, total: A| unsafe { parts.set(place, narrow(total)) };
            if inner == 1 {
                let lane = &data[start..start + size];
                let mut total = widen(lane[0]);
                put(start, total);
                for (place, &x) in (start + 1..).zip(&lane[1..]) {
                    total = join(total, widen(x));
                    put(place, total);
                }
                continue;
            }
            let mut totals = vec![widen(data[start]); width];
            for step in 0..size {
                let row = start + step * inner;
                for (lane, (total, &x)) in totals.iter_mut().zip(&data[row..row + width]).enumerate() {
                    *total = if step == 0 { widen(x) } else { join(*total, widen(x)) };
                    put(row + lane, *total);
                }
            }
        }
    });
}
