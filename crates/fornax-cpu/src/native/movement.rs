//! Ops that move elements: whatever their type, they are copied by their size.

use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::Pod;
use fornax_ir::{DType, Layout, Scalar, Shape};
use smallvec::SmallVec;

/// Copies every element of `source` to the same index of a strided part of `target`.
fn copy(size: usize, source: &[u8], from: &Layout, target: &mut [u8], to: &Layout) {
    match size {
        1 => copy_sized::<1>(source, from, target, to),
        2 => copy_sized::<2>(source, from, target, to),
        4 => copy_sized::<4>(source, from, target, to),
        _ => copy_sized::<8>(source, from, target, to),
    }
}

fn copy_sized<const N: usize>(source: &[u8], from: &Layout, target: &mut [u8], to: &Layout) {
    if from.shape.contains(&0) {
        return;
    }
    // The inner dims that lie without gaps on both sides are one run.
    let rank = from.shape.rank();
    let mut run = 1usize;
    let mut outer = rank;
    while outer > 0 {
        let (dim, size) = (outer - 1, from.shape[outer - 1]);
        if size != 1 && (from.strides[dim] != run as isize || to.strides[dim] != run as isize) {
            break;
        }
        run *= size;
        outer -= 1;
    }
    let (inner, from_step, to_step) = if run == 1 && outer > 0 {
        outer -= 1;
        (from.shape[outer], from.strides[outer], to.strides[outer])
    } else {
        (1, 0, 0)
    };
    let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer);
    let (mut read, mut write) = (from.offset as isize, to.offset as isize);
    loop {
        if inner == 1 {
            let (read, write) = (read as usize * N, write as usize * N);
            target[write..write + run * N].copy_from_slice(&source[read..read + run * N]);
        } else {
            for i in 0..inner as isize {
                let (read, write) = ((read + i * from_step) as usize * N, (write + i * to_step) as usize * N);
                let element: [u8; N] = source[read..read + N].try_into().expect("N bytes");
                target[write..write + N].copy_from_slice(&element);
            }
        }
        let mut dim = outer;
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            read += from.strides[dim];
            write += to.strides[dim];
            if index[dim] < from.shape[dim] {
                break;
            }
            read -= from.strides[dim] * from.shape[dim] as isize;
            write -= to.strides[dim] * from.shape[dim] as isize;
            index[dim] = 0;
        }
    }
}

pub(super) fn concat(operands: &[Operand<'_>], dim: usize, dtype: DType, shape: &Shape, output: &mut [u8]) {
    let strides = shape.strides();
    let mut start = 0;
    for operand in operands {
        let to = Layout {
            shape: operand.layout.shape.clone(),
            strides: strides.clone(),
            offset: start * strides[dim] as usize,
        };
        copy(dtype.size(), operand.bytes, &operand.layout, output, &to);
        start += operand.layout.shape[dim];
    }
}

/// Bytes of a result from which several threads write it.
const PARALLEL_BYTES: usize = 1 << 18;

/// Outer slices of the result are tasks.
pub(super) fn pad(x: &Operand<'_>, low: &[usize], value: Scalar, shape: &Shape, output: &mut [u8], threads: &Threads) {
    let size = x.dtype.size();
    let bytes = value.to_le_bytes(x.dtype);
    let fill = |out: &mut [u8]| {
        for element in out.chunks_exact_mut(size) {
            element.copy_from_slice(&bytes[..size]);
        }
    };
    if shape.rank() < 2 || output.len() < PARALLEL_BYTES {
        fill(output);
        let strides = shape.strides();
        let offset = low.iter().zip(&strides).map(|(&low, &stride)| low * stride as usize).sum();
        return copy(size, x.bytes, &x.layout, output, &Layout { shape: x.layout.shape.clone(), strides, offset });
    }
    let inner = Shape::from(&shape[1..]);
    let slice = inner.numel() * size;
    let results = SharedSlice::new(output);
    threads.each(shape[0], &|outer| {
        // SAFETY: each slice is dealt out once.
        let out = unsafe { results.part(outer * slice, slice) };
        let Some(from) = outer.checked_sub(low[0]).filter(|&from| from < x.layout.shape[0]) else { return fill(out) };
        let layout = Layout {
            shape: Shape::from(&x.layout.shape[1..]),
            strides: x.layout.strides[1..].iter().copied().collect(),
            offset: (x.layout.offset as isize + from as isize * x.layout.strides[0]) as usize,
        };
        let x = Operand { bytes: x.bytes, dtype: x.dtype, layout };
        pad(&x, &low[1..], value, &inner, out, &Threads::new(1));
    });
}

/// The elements of a layout, row-major: borrowed where they lie so already.
pub(super) fn row_major<'a, T: Pod>(data: &'a [T], layout: &Layout) -> Cow<'a, [T]> {
    let count = layout.shape.numel();
    if layout.is_contiguous() {
        let start = if count == 0 { 0 } else { layout.offset };
        return Cow::Borrowed(&data[start..start + count]);
    }
    let mut copied = vec![T::zeroed(); count];
    let target = bytemuck::cast_slice_mut(&mut copied);
    copy(size_of::<T>(), bytemuck::cast_slice(data), layout, target, &Layout::contiguous(&layout.shape));
    Cow::Owned(copied)
}

/// `x`, row-major.
pub(super) fn materialize(x: &Operand<'_>, output: &mut [u8]) {
    copy(x.dtype.size(), x.bytes, &x.layout, output, &Layout::contiguous(&x.layout.shape));
}

/// The places of all elements, in row-major order; quicker than [`Layout::places`] by a row at a time.
pub(super) fn list_places(layout: &Layout) -> Vec<usize> {
    let mut rows = layout.clone();
    let (Some(size), Some(stride)) = (rows.shape.dims_mut().pop(), rows.strides.pop()) else {
        return vec![layout.offset];
    };
    let mut places = Vec::with_capacity(layout.shape.numel());
    for start in rows.places() {
        places.extend((0..size as isize).map(|i| (start as isize + i * stride) as usize));
    }
    places
}

/// The values of an index tensor in row-major order, with how often each stands in a row: trailing dims along which it
/// only repeats are counted, not listed.
pub(super) fn positions(index: &Operand<'_>) -> (Vec<i64>, usize) {
    let layout = &index.layout;
    let mut repeats = 1;
    let mut rank = layout.shape.rank();
    while rank > 0 && (layout.strides[rank - 1] == 0 || layout.shape[rank - 1] == 1) {
        repeats *= layout.shape[rank - 1];
        rank -= 1;
    }
    let listed = Layout {
        shape: layout.shape[..rank].into(),
        strides: layout.strides[..rank].iter().copied().collect(),
        offset: layout.offset,
    };
    let size = index.dtype.size();
    let read = |place: usize| {
        let bytes = &index.bytes[place * size..(place + 1) * size];
        match index.dtype {
            DType::I32 => i64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes"))),
            _ => i64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        }
    };
    (list_places(&listed).into_iter().map(read).collect(), repeats)
}
