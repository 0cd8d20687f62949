//! `argsort` and `topk`: numbers become unsigned keys in whose order they stand; a key and its position are packed into
//! one integer, so that equal numbers keep their order however the integers are sorted.

use super::movement::row_major;
use super::{Operand, SharedSlice};
use crate::threads::Threads;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::Pod;
use fornax_ir::{DType, Shape};
use half::{bf16, f16};

/// Elements of a lane from which sorting by digits is quicker than by comparison.
const MIN_RADIX: usize = 1 << 10;

/// Elements worth a task for another thread.
const TASK: usize = 1 << 12;

/// The first `shape[dim]` positions (`i64`) of the stable order along `dim`. NaN is larger than everything.
pub(super) fn order(
    x: &Operand<'_>,
    dim: usize,
    descending: bool,
    shape: &Shape,
    output: &mut [u8],
    threads: &Threads,
) {
    let output: &mut [i64] = bytemuck::cast_slice_mut(output);
    macro_rules! wide {
        ($ty:ty, $key:expr) => {
            lanes::<$ty, u128>(x, dim, descending, shape, output, threads, $key)
        };
    }
    macro_rules! narrow {
        ($ty:ty, $key:expr) => {
            match u32::try_from(x.layout.shape[dim]) {
                Ok(_) => lanes::<$ty, u64>(x, dim, descending, shape, output, threads, |x| u64::from($key(x))),
                Err(_) => wide!($ty, |x| u64::from($key(x))),
            }
        };
    }
    match x.dtype {
        DType::Bool | DType::U8 => narrow!(u8, u32::from),
        DType::U16 => narrow!(u16, u32::from),
        DType::U32 => narrow!(u32, u32::from),
        DType::U64 => wide!(u64, u64::from),
        DType::I8 => narrow!(i8, |x: i8| signed32(x.into())),
        DType::I16 => narrow!(i16, |x: i16| signed32(x.into())),
        DType::I32 => narrow!(i32, signed32),
        DType::I64 => wide!(i64, |x: i64| x as u64 ^ 1 << 63),
        DType::F16 => narrow!(f16, |x: f16| key32(x.to_f32())),
        DType::BF16 => narrow!(bf16, |x: bf16| key32(x.to_f32())),
        DType::F32 => narrow!(f32, key32),
        DType::F64 => wide!(f64, key64),
    }
}

fn signed32(x: i32) -> u32 {
    x as u32 ^ 1 << 31
}

/// Zeros are equal, and so are NaNs, which come last.
fn key32(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    // Without branches on signs, which nobody can predict: all bits of negative numbers turn, the sign of others.
    let key = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
    if x.is_nan() { u32::MAX } else { key }
}

/// As [`key32`].
fn key64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let key = bits ^ ((bits as i64 >> 63) as u64 | 1 << 63);
    if x.is_nan() { u64::MAX } else { key }
}

/// A key above a position.
trait Packed: Copy + Ord + Send {
    /// Bits of the key.
    const KEY: u32;
    fn pack(key: u64, position: usize) -> Self;
    fn position(self) -> usize;
    /// Byte `place` of the key, from the lowest on.
    fn digit(self, place: u32) -> usize;
}
impl Packed for u64 {
    const KEY: u32 = 32;
    fn pack(key: u64, position: usize) -> u64 {
        key << 32 | position as u64
    }
    fn position(self) -> usize {
        (self & 0xffff_ffff) as usize
    }
    fn digit(self, place: u32) -> usize {
        (self >> (32 + 8 * place)) as usize & 0xff
    }
}
impl Packed for u128 {
    const KEY: u32 = 64;
    fn pack(key: u64, position: usize) -> u128 {
        u128::from(key) << 64 | position as u128
    }
    fn position(self) -> usize {
        self as u64 as usize
    }
    fn digit(self, place: u32) -> usize {
        ((self >> 64) as u64 >> (8 * place)) as usize & 0xff
    }
}

fn lanes<T: Pod + Sync, P: Packed>(
    x: &Operand<'_>,
    dim: usize,
    descending: bool,
    shape: &Shape,
    output: &mut [i64],
    threads: &Threads,
    key: impl Fn(T) -> u64 + Sync,
) {
    if output.is_empty() {
        return;
    }
    let data = row_major::<T>(bytemuck::cast_slice(x.bytes), &x.layout);
    let (data, parts) = (&data[..], SharedSlice::new(output));
    let (size, wanted) = (x.layout.shape[dim], shape[dim]);
    let inner: usize = shape[dim + 1..].iter().product();
    let count = data.len() / size;
    let tasks = (data.len() / TASK).clamp(1, count);
    let mask = u64::MAX >> (64 - P::KEY);
    threads.each(tasks, &|task| {
        let (mut items, mut spare): (Vec<P>, Vec<P>) = (Vec::new(), Vec::new());
        for lane in count * task / tasks..count * (task + 1) / tasks {
            let (outer, behind) = (lane / inner, lane % inner);
            items.clear();
            // Where few are wanted, those that are behind enough others are never kept.
            let room = if wanted == size { usize::MAX } else { (4 * wanted).max(1 << 10) };
            let mut bound: Option<P> = None;
            for position in 0..size {
                let key = key(data[(outer * size + position) * inner + behind]);
                let item = P::pack(if descending { !key & mask } else { key }, position);
                if bound.is_none_or(|bound| item < bound) {
                    items.push(item);
                    if items.len() == room {
                        bound = Some(*items.select_nth_unstable(wanted - 1).1);
                        items.truncate(wanted);
                    }
                }
            }
            if wanted < items.len() {
                items.select_nth_unstable(wanted - 1);
                items.truncate(wanted);
            }
            sort(&mut items, &mut spare);
            for (i, item) in items.iter().enumerate() {
                let place = (outer * wanted + i) * inner + behind;
                // SAFETY: lanes are disjoint, and `place` lies in the output, whose shape has `wanted` along the dim.
                unsafe { parts.set(place, item.position() as i64) };
            }
        }
    });
}

/// Sorts items that stand in order of position, unless they are few.
fn sort<P: Packed>(items: &mut Vec<P>, spare: &mut Vec<P>) {
    if items.len() < MIN_RADIX || !items.is_sorted_by_key(|item| item.position()) {
        return items.sort_unstable();
    }
    // Digit by digit from the lowest on, each time stably.
    let digits = P::KEY / 8;
    let mut counts = vec![[0usize; 256]; digits as usize];
    for item in items.iter() {
        for (place, counts) in counts.iter_mut().enumerate() {
            counts[item.digit(place as u32)] += 1;
        }
    }
    spare.clone_from(items);
    for (place, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&items.len()) {
            continue; // all alike
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            (start, *count) = (start + *count, start);
        }
        for &item in items.iter() {
            let to = &mut counts[item.digit(place as u32)];
            spare[*to] = item;
            *to += 1;
        }
        core::mem::swap(items, spare);
    }
}
