//! Movement and indexed access: elements in other places, found by literal index arithmetic. Nothing here uses strides,
//! so that it can be held against code that does.

use super::value::{Number, Numbers, Value, for_each_index, place};
use crate::{Dims, Scalar, ScatterMode, Shape, WindowSpec};
use alloc::string::String;
use alloc::{format, vec::Vec};

/// Element `index` of the result is element `from(index)` of `x`.
fn moved(x: &Value, shape: &Shape, from: impl Fn(&[usize]) -> Dims) -> Value {
    let mut data = Vec::with_capacity(shape.numel() * x.dtype.size());
    for_each_index(shape, |index| data.extend_from_slice(x.element(place(&x.shape, &from(index)))));
    Value { dtype: x.dtype, shape: shape.clone(), data }
}

pub(crate) fn permute(x: &Value, perm: &[usize], shape: &Shape) -> Value {
    moved(x, shape, |index| {
        let mut from = Dims::from_elem(0, perm.len());
        for (i, &dim) in perm.iter().enumerate() {
            from[dim] = index[i];
        }
        from
    })
}

pub(crate) fn expand(x: &Value, shape: &Shape) -> Value {
    let new = shape.rank() - x.shape.rank();
    moved(x, shape, |index| {
        index[new..].iter().zip(x.shape.iter()).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect()
    })
}

pub(crate) fn slice(x: &Value, starts: &[usize], steps: &[i64], shape: &Shape) -> Value {
    moved(x, shape, |index| {
        let position = |dim: usize| starts[dim] as i128 + i128::from(steps[dim]) * index[dim] as i128;
        (0..index.len()).map(|dim| usize::try_from(position(dim)).expect("infer keeps slices inside")).collect()
    })
}

pub(crate) fn pad(x: &Value, low: &[usize], scalar: Scalar, shape: &Shape) -> Value {
    let border = scalar.to_le_bytes(x.dtype);
    let mut data = Vec::with_capacity(shape.numel() * x.dtype.size());
    for_each_index(shape, |index| {
        let inside = (0..index.len()).all(|dim| (low[dim]..low[dim] + x.shape[dim]).contains(&index[dim]));
        if inside {
            let from: Dims = index.iter().zip(low).map(|(i, low)| i - low).collect();
            data.extend_from_slice(x.element(place(&x.shape, &from)));
        } else {
            data.extend_from_slice(&border[..x.dtype.size()]);
        }
    });
    Value { dtype: x.dtype, shape: shape.clone(), data }
}

pub(crate) fn concat(operands: &[&Value], dim: usize, shape: &Shape) -> Value {
    let dtype = operands[0].dtype;
    let mut data = Vec::with_capacity(shape.numel() * dtype.size());
    for_each_index(shape, |index| {
        let mut from = Dims::from_slice(index);
        for operand in operands {
            if from[dim] < operand.shape[dim] {
                data.extend_from_slice(operand.element(place(&operand.shape, &from)));
                return;
            }
            from[dim] -= operand.shape[dim];
        }
        unreachable!("infer adds up the sizes");
    });
    Value { dtype, shape: shape.clone(), data }
}

/// The index in the operand of the window element `index`.
pub(crate) fn window_source(spec: &WindowSpec, index: &[usize]) -> Dims {
    let (windows, inside) = index.split_at(index.len() - spec.dims.len());
    let mut from = Dims::from_slice(windows);
    let outer = from.len() - spec.dims.len();
    for (dim, window) in spec.dims.iter().enumerate() {
        from[outer + dim] = windows[outer + dim] * window.step + inside[dim] * window.dilation;
    }
    from
}

pub(crate) fn window(x: &Value, spec: &WindowSpec, shape: &Shape) -> Value {
    moved(x, shape, |index| window_source(spec, index))
}

/// Where `index` points, or a fault.
fn target(index: i128, dim: usize, size: usize, fault: &mut Option<String>) -> Option<usize> {
    let position = usize::try_from(index).ok().filter(|&position| position < size);
    if position.is_none() {
        super::note(fault, || format!("index {index} is out of range for dim {dim} of size {size}"));
    }
    position
}

/// An index out of range gives zero and a fault.
pub(crate) fn gather(x: &Value, index: &Value, dim: usize, fault: &mut Option<String>) -> Value {
    let ints = index.ints();
    let mut data = Vec::with_capacity(ints.len() * x.dtype.size());
    for_each_index(&index.shape, |at| match target(ints[place(&index.shape, at)], dim, x.shape[dim], fault) {
        Some(position) => {
            let mut from = Dims::from_slice(at);
            from[dim] = position;
            data.extend_from_slice(x.element(place(&x.shape, &from)));
        }
        None => data.resize(data.len() + x.dtype.size(), 0),
    });
    Value { dtype: x.dtype, shape: index.shape.clone(), data }
}

/// An index out of range skips its element, with a fault. Results are rounded once, at the end.
pub(crate) fn scatter(operands: &[&Value], dim: usize, mode: ScatterMode, fault: &mut Option<String>) -> Value {
    let [x, index, source] = [operands[0], operands[1], operands[2]];
    let ints = index.ints();
    // Pairs of places, in the result and in the source.
    let mut pairs = Vec::with_capacity(ints.len());
    for_each_index(&index.shape, |at| {
        let from = place(&index.shape, at);
        if let Some(position) = target(ints[from], dim, x.shape[dim], fault) {
            let mut to = Dims::from_slice(at);
            to[dim] = position;
            pairs.push((place(&x.shape, &to), from));
        }
    });
    match (mode, x.numbers(), source.numbers()) {
        (ScatterMode::Set, _, _) => {
            let mut result = x.clone();
            let size = x.dtype.size();
            for (to, from) in pairs {
                result.data[to * size..][..size].copy_from_slice(source.element(from));
            }
            result
        }
        (_, Numbers::Ints(numbers), Numbers::Ints(source)) => scatter_numbers(x, numbers, &source, mode, &pairs),
        (_, Numbers::Floats(numbers), Numbers::Floats(source)) => scatter_numbers(x, numbers, &source, mode, &pairs),
        (_, Numbers::Ints(_), Numbers::Floats(_)) | (_, Numbers::Floats(_), Numbers::Ints(_)) => {
            unreachable!("infer gives x and source one dtype")
        }
    }
}

fn scatter_numbers<N: Number>(
    x: &Value,
    mut numbers: Vec<N>,
    source: &[N],
    mode: ScatterMode,
    pairs: &[(usize, usize)],
) -> Value {
    for &(to, from) in pairs {
        let (old, new) = (numbers[to], source[from]);
        numbers[to] = match mode {
            ScatterMode::Set => new,
            ScatterMode::Add => old.add(new),
            ScatterMode::Mul => old.mul(new),
            ScatterMode::Max => {
                if new.beats(old) {
                    new
                } else {
                    old
                }
            }
            ScatterMode::Min => {
                if new.undercuts(old) {
                    new
                } else {
                    old
                }
            }
        };
    }
    N::into_value(x.dtype, &x.shape, &numbers)
}
