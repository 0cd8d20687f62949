//! Reductions, scans and order.

use super::value::{Number, Numbers, Value, for_each_index, place};
use crate::{DType, Dims, ReduceOp, ScanOp, Shape};
use alloc::vec::Vec;
use core::cmp::Ordering;

pub(crate) fn reduce(op: ReduceOp, x: &Value, dims: &[usize], dtype: DType, shape: &Shape) -> Value {
    match x.numbers() {
        Numbers::Ints(numbers) => reduce_numbers(op, &numbers, &x.shape, dims, dtype, shape),
        Numbers::Floats(numbers) => reduce_numbers(op, &numbers, &x.shape, dims, dtype, shape),
    }
}

fn reduce_numbers<N: Number>(
    op: ReduceOp,
    x: &[N],
    from: &Shape,
    dims: &[usize],
    dtype: DType,
    shape: &Shape,
) -> Value {
    // Total, and the position that it was found at. Only `bool` has a largest and smallest over nothing.
    let identity = match op {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::ArgMax => N::ZERO,
        ReduceOp::Prod | ReduceOp::Min | ReduceOp::ArgMin => N::ONE,
    };
    let mut totals: Vec<(N, Option<usize>)> = alloc::vec![(identity, None); shape.numel()];
    for_each_index(from, |index| {
        let number = x[place(from, index)];
        let mut to = Dims::from_slice(index);
        let mut position = 0;
        for &dim in dims {
            position = position * from[dim] + index[dim];
            to[dim] = 0;
        }
        let (total, at) = &mut totals[place(shape, &to)];
        let replace = match op {
            ReduceOp::Sum => {
                *total = total.add(number);
                false
            }
            ReduceOp::Prod => {
                *total = total.mul(number);
                false
            }
            ReduceOp::Max | ReduceOp::ArgMax => at.is_none() || number.beats(*total),
            ReduceOp::Min | ReduceOp::ArgMin => at.is_none() || number.undercuts(*total),
        };
        if replace {
            (*total, *at) = (number, Some(position));
        }
    });
    match op {
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => {
            let totals: Vec<N> = totals.into_iter().map(|(total, _)| total).collect();
            N::into_value(dtype, shape, &totals)
        }
        ReduceOp::ArgMax | ReduceOp::ArgMin => {
            let position = |at: Option<usize>| at.expect("infer refuses positions in nothing") as i128;
            let positions: Vec<i128> = totals.into_iter().map(|(_, at)| position(at)).collect();
            Value::from_ints(dtype, shape, &positions)
        }
    }
}

pub(crate) fn scan(op: ScanOp, x: &Value, dim: usize) -> Value {
    match x.numbers() {
        Numbers::Ints(numbers) => scan_numbers(op, x, numbers, dim),
        Numbers::Floats(numbers) => scan_numbers(op, x, numbers, dim),
    }
}

/// Totals stay wide along the dim; each element is rounded once.
fn scan_numbers<N: Number>(op: ScanOp, x: &Value, mut numbers: Vec<N>, dim: usize) -> Value {
    for_each_index(&x.shape, |index| {
        if index[dim] == 0 {
            return;
        }
        let mut before = Dims::from_slice(index);
        before[dim] -= 1;
        let (total, here) = (numbers[place(&x.shape, &before)], place(&x.shape, index));
        let number = numbers[here];
        numbers[here] = match op {
            ScanOp::Sum => total.add(number),
            ScanOp::Prod => total.mul(number),
            ScanOp::Max => {
                if number.beats(total) {
                    number
                } else {
                    total
                }
            }
            ScanOp::Min => {
                if number.undercuts(total) {
                    number
                } else {
                    total
                }
            }
        };
    });
    N::into_value(x.dtype, &x.shape, &numbers)
}

/// The first `shape[dim]` positions of the stable order along `dim`; all of them sort.
pub(crate) fn order(x: &Value, dim: usize, descending: bool, shape: &Shape) -> Value {
    match x.numbers() {
        Numbers::Ints(numbers) => order_numbers(&numbers, &x.shape, dim, descending, shape),
        Numbers::Floats(numbers) => order_numbers(&numbers, &x.shape, dim, descending, shape),
    }
}

fn order_numbers<N: Number>(x: &[N], from: &Shape, dim: usize, descending: bool, shape: &Shape) -> Value {
    let mut positions = alloc::vec![0; shape.numel()];
    let lanes = if shape[dim] == 0 { shape.clone() } else { shape.with_dim(dim, 1) };
    for_each_index(&lanes, |lane| {
        let at = |shape: &Shape, position: usize| {
            let mut index = Dims::from_slice(lane);
            index[dim] = position;
            place(shape, &index)
        };
        let mut order: Vec<usize> = (0..from[dim]).collect();
        order.sort_by(|&a, &b| {
            let ascending = nan_last(x[at(from, a)], x[at(from, b)]);
            if descending { ascending.reverse() } else { ascending }
        });
        for (i, &position) in order[..shape[dim]].iter().enumerate() {
            positions[at(shape, i)] = position as i128;
        }
    });
    Value::from_ints(DType::I64, shape, &positions)
}

/// NaN is larger than everything and equal to itself.
fn nan_last<N: Number>(a: N, b: N) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
