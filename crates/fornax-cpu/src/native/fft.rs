//! Discrete Fourier transforms of (real, imaginary) pairs, computed in `f64` and rounded once.

use super::movement::row_major;
use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::Pod;
use fornax_ir::{DType, FftKind, Shape};
use rustfft::num_complex::Complex;
use rustfft::{FftDirection, FftPlanner};

/// Pairs in row-major order as `[outer, len, inner]`: `count` lanes (`outer · inner`) of `len` pairs, `inner` apart.
#[derive(Clone, Copy)]
struct Lanes {
    count: usize,
    len: usize,
    inner: usize,
}

/// Tells whether it ran.
pub(super) fn run(
    x: &Operand<'_>,
    dim: usize,
    kind: FftKind,
    shape: &Shape,
    output: &mut [u8],
    threads: &Threads,
) -> bool {
    let direction = match kind {
        FftKind::Forward => FftDirection::Forward,
        FftKind::Inverse => FftDirection::Inverse,
    };
    // The last dim holds the pairs.
    let inner = shape[dim + 1..shape.rank() - 1].iter().product();
    let lanes = Lanes { count: shape[..dim].iter().product::<usize>() * inner, len: shape[dim], inner };
    macro_rules! by_type {
        ($ty:ty, $narrow:expr) => {{
            let x = row_major::<$ty>(bytemuck::cast_slice(x.bytes), &x.layout);
            transform::<$ty>(&x, lanes, direction, bytemuck::cast_slice_mut(output), threads, $narrow);
        }};
    }
    match x.dtype {
        DType::F32 => by_type!(f32, |wide| wide as f32),
        DType::F64 => by_type!(f64, |wide| wide),
        _ => return false,
    }
    true
}

fn transform<T: Pod + Into<f64> + Send + Sync>(
    x: &[T],
    lanes: Lanes,
    direction: FftDirection,
    output: &mut [T],
    threads: &Threads,
    narrow: impl Fn(f64) -> T + Sync,
) {
    let Lanes { count, len, inner } = lanes;
    if x.is_empty() {
        return;
    }
    let fft = FftPlanner::<f64>::new().plan_fft(len, direction);
    let shared = SharedSlice::new(output);
    threads.deal(count, x.len(), |part| {
        let mut scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        let mut lane_values: Vec<Complex<f64>> = Vec::with_capacity(len);
        for lane in part {
            let start = lane / inner * len * inner + lane % inner;
            let place = |i: usize| 2 * (start + i * inner);
            lane_values.clear();
            lane_values.extend((0..len).map(|i| Complex::new(x[place(i)].into(), x[place(i) + 1].into())));
            fft.process_with_scratch(&mut lane_values, &mut scratch);
            for (i, value) in lane_values.iter().enumerate() {
                // SAFETY: each lane is dealt out once, and has places of its own.
                unsafe {
                    shared.set(place(i), narrow(value.re));
                    shared.set(place(i) + 1, narrow(value.im));
                }
            }
        }
    });
}
