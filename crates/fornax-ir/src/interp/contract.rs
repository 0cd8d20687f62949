//! Contractions and the Fourier transform.

use super::movement::window_source;
use super::value::{Number, Numbers, Value, for_each_index, place};
use crate::{ConvSpec, DType, Dims, FftKind, Shape, WindowSpec};
use alloc::vec::Vec;
use core::f64::consts::TAU;

pub(crate) fn matmul(lhs: &Value, rhs: &Value, out: DType, shape: &Shape) -> Value {
    match (lhs.numbers(), rhs.numbers()) {
        (Numbers::Ints(a), Numbers::Ints(b)) => matmul_numbers((&a, &lhs.shape), (&b, &rhs.shape), out, shape),
        (Numbers::Floats(a), Numbers::Floats(b)) => matmul_numbers((&a, &lhs.shape), (&b, &rhs.shape), out, shape),
        (Numbers::Ints(_), Numbers::Floats(_)) | (Numbers::Floats(_), Numbers::Ints(_)) => {
            unreachable!("infer gives both operands one kind")
        }
    }
}

fn matmul_numbers<N: Number>(lhs: (&[N], &Shape), rhs: (&[N], &Shape), out: DType, shape: &Shape) -> Value {
    let ((a, a_shape), (b, b_shape)) = (lhs, rhs);
    let rank = shape.rank();
    let (n, inner) = (shape[rank - 1], a_shape[rank - 1]);
    let mut sums = Vec::with_capacity(shape.numel());
    for_each_index(shape, |index| {
        let (mut from_a, mut from_b) = (Dims::from_slice(index), Dims::from_slice(index));
        let mut sum = N::ZERO;
        if inner > 0 {
            // The row of `a` and the column of `b`, from their first elements on.
            (from_a[rank - 1], from_b[rank - 2]) = (0, 0);
            let (row, column) = (place(a_shape, &from_a), place(b_shape, &from_b));
            for k in 0..inner {
                sum = sum.add(a[row + k].mul(b[column + k * n]));
            }
        }
        sums.push(sum);
    });
    N::into_value(out, shape, &sums)
}

pub(crate) fn conv(x: &Value, weight: &Value, spec: &ConvSpec, shape: &Shape) -> Value {
    let (elements, weights) = (x.floats(), weight.floats());
    let per_group = shape[1] / spec.groups;
    let mut sums = Vec::with_capacity(shape.numel());
    for_each_index(shape, |index| {
        let (batch, channel) = (index[0], index[1]);
        let mut sum = 0.0;
        let kernel: Shape = weight.shape[1..].into();
        for_each_index(&kernel, |tap| {
            let mut from = Dims::from_slice(&[batch, channel / per_group * weight.shape[1] + tap[0]]);
            for dim in 0..spec.stride.len() {
                // Position in the dilated `x`, where only every `input_dilation`-th element is not zero.
                let position = index[dim + 2] as i128 * spec.stride[dim] as i128
                    + tap[dim + 1] as i128 * spec.dilation[dim] as i128
                    - spec.padding[dim].0 as i128;
                let dilation = spec.input_dilation[dim] as i128;
                if position % dilation != 0 || !(0..x.shape[dim + 2] as i128).contains(&(position / dilation)) {
                    return;
                }
                from.push((position / dilation) as usize);
            }
            let mut to = Dims::from_slice(&[channel]);
            to.extend_from_slice(tap);
            sum += elements[place(&x.shape, &from)] * weights[place(&weight.shape, &to)];
        });
        sums.push(sum);
    });
    Value::from_floats(x.dtype, shape, &sums)
}

pub(crate) fn fold(windows: &Value, spec: &WindowSpec, shape: &Shape) -> Value {
    match windows.numbers() {
        Numbers::Ints(numbers) => fold_numbers(windows, &numbers, spec, shape),
        Numbers::Floats(numbers) => fold_numbers(windows, &numbers, spec, shape),
    }
}

fn fold_numbers<N: Number>(windows: &Value, numbers: &[N], spec: &WindowSpec, shape: &Shape) -> Value {
    let mut sums = alloc::vec![N::ZERO; shape.numel()];
    for_each_index(&windows.shape, |index| {
        let to = place(shape, &window_source(spec, index));
        sums[to] = sums[to].add(numbers[place(&windows.shape, index)]);
    });
    N::into_value(windows.dtype, shape, &sums)
}

/// By the definition, in O(n²).
pub(crate) fn fft(x: &Value, dim: usize, kind: FftKind) -> Value {
    let (shape, numbers) = (&x.shape, x.floats());
    let n = shape[dim];
    let sign = match kind {
        FftKind::Forward => -1.0,
        FftKind::Inverse => 1.0,
    };
    let roots: Vec<(f64, f64)> = (0..n)
        .map(|i| {
            let angle = sign * TAU * i as f64 / n as f64;
            (libm::cos(angle), libm::sin(angle))
        })
        .collect();
    let mut sums = Vec::with_capacity(numbers.len());
    for_each_index(shape, |index| {
        let mut from = Dims::from_slice(index);
        let mut sum = 0.0;
        for j in 0..n {
            from[dim] = j;
            let (cos, sin) = roots[(j as u128 * index[dim] as u128 % n as u128) as usize];
            let part = |from: &mut Dims, part: usize| {
                from[shape.rank() - 1] = part;
                numbers[place(shape, from)]
            };
            let (re, im) = (part(&mut from, 0), part(&mut from, 1));
            sum += if index[shape.rank() - 1] == 0 { re * cos - im * sin } else { re * sin + im * cos };
        }
        sums.push(sum);
    });
    Value::from_floats(x.dtype, shape, &sums)
}
