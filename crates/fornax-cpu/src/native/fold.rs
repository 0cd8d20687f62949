//! Sums of overlapping windows. Sums of floats are `f64` and rounded once.

use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::vec;
use bytemuck::Pod;
use fornax_ir::{DType, Layout, Shape, WindowSpec};
use half::{bf16, f16};

/// Tells whether it ran. `shape` is the result's.
pub(super) fn run(spec: &WindowSpec, x: &Operand<'_>, shape: &Shape, output: &mut [u8], threads: &Threads) -> bool {
    macro_rules! by_type {
        ($ty:ty, $wide:ty, $widen:expr, $narrow:expr, $add:expr) => {{
            let (x_data, output) = (bytemuck::cast_slice(x.bytes), bytemuck::cast_slice_mut(output));
            fold::<$ty, $wide>(spec, x_data, &x.layout, shape, output, threads, $widen, $narrow, $add);
        }};
    }
    macro_rules! integer {
        ($ty:ty) => {
            by_type!($ty, $ty, |x| x, |x| x, <$ty>::wrapping_add)
        };
    }
    match x.dtype {
        DType::Bool => return false,
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F16 => by_type!(f16, f64, f16::to_f64, |x| f16::from_f32(x as f32), |a, b| a + b),
        DType::BF16 => by_type!(bf16, f64, bf16::to_f64, |x| bf16::from_f32(x as f32), |a, b| a + b),
        DType::F32 => by_type!(f32, f64, f64::from, |x| x as f32, |a, b| a + b),
        DType::F64 => by_type!(f64, f64, |x| x, |x| x, |a, b| a + b),
    }
    true
}

#[expect(clippy::too_many_arguments, reason = "one call, with the arithmetic beside it")]
fn fold<T: Pod + Send + Sync, W: Copy + Default>(
    spec: &WindowSpec,
    x: &[T],
    layout: &Layout,
    shape: &Shape,
    output: &mut [T],
    threads: &Threads,
    widen: impl Fn(T) -> W + Sync,
    narrow: impl Fn(W) -> T + Sync,
    add: impl Fn(W, W) -> W + Sync,
) {
    let slid = spec.dims.len();
    let outer = shape.rank() - slid;
    let plane: usize = shape[outer..].iter().product();
    if plane == 0 || output.is_empty() {
        return;
    }
    let planes = Layout {
        shape: layout.shape[..outer].into(),
        strides: layout.strides[..outer].iter().copied().collect(),
        offset: layout.offset,
    };
    // Counts of windows and places in a window, outermost first; of each where it moves in the source and in the plane.
    let mut loops: smallvec::SmallVec<[(usize, isize, usize); 6]> = smallvec::SmallVec::new();
    let strides = shape.strides();
    for dim in 0..slid {
        let inside = outer + slid + dim;
        let step = spec.dims[dim].dilation * strides[outer + dim] as usize;
        loops.push((layout.shape[inside], layout.strides[inside], step));
    }
    for dim in outer..outer + slid {
        loops.push((layout.shape[dim], layout.strides[dim], spec.dims[dim - outer].step * strides[dim] as usize));
    }
    let Some((&(count, from_step, to_step), around)) = loops.split_last() else { return };
    let around_count: usize = around.iter().map(|&(count, ..)| count).product();
    let shared = SharedSlice::new(output);
    threads.deal(planes.shape.numel(), layout.shape.numel(), |part| {
        let mut sums = vec![W::default(); plane];
        for number in part {
            sums.fill(W::default());
            for mut place in 0..if count == 0 { 0 } else { around_count } {
                let (mut from, mut to) = (planes.locate(number) as isize, 0);
                for &(count, from_step, to_step) in around.iter().rev() {
                    let i = place % count;
                    place /= count;
                    from += i as isize * from_step;
                    to += i * to_step;
                }
                for i in 0..count {
                    let sum = &mut sums[to + i * to_step];
                    *sum = add(*sum, widen(x[(from + i as isize * from_step) as usize]));
                }
            }
            // SAFETY: each plane is dealt out once.
            let output = unsafe { shared.part(number * plane, plane) };
            for (out, &sum) in output.iter_mut().zip(&sums) {
                *out = narrow(sum);
            }
        }
    });
}
