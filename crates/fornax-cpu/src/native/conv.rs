//! Convolution as a matrix product over patches that are gathered on the way in, or directly.
//!
//! *Product*: for each group, `weight [out, c · kernel] · patches [c · kernel, batch · positions]`. An element of the patches
//! lies at the sum of two offsets, of its position and of its tap, in the input itself or, where there is padding or a
//! step, in a padded copy of it ([`Geometry::pad`]); so panels are packed by copying runs, without a bound to check.
//! Gradients have this form too: that of a weight has few positions and a "kernel" as large as the image.
//! *Direct*: a depthwise convolution sums shifted copies of the padded image.

use super::{Operand, SharedSlice};
use crate::gemm::scratch::{self, Use};
use crate::gemm::{
    Arith, F32, F64, PackOffsets, Plain, Shifted, Threads as Hands, Tile, gemm_offsets, gemm_shifted, is_large,
};
use crate::multiversion;
use crate::simd::Isa;
use crate::threads::Threads;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::ops::{Add, Mul};
use fornax_ir::{ConvSpec, DType, Layout, Shape};
use half::{bf16, f16};

/// Elements up to which a padded copy may be larger than input and result together, many times over.
const MAX_PADDED: usize = 1 << 26;
/// See [`Geometry::pitch`].
const PACK_ROWS: usize = 24;
/// Elements from which several threads make the padded copy.
const PARALLEL_COPY: usize = 1 << 16;
/// Results of one input channel up to which a product would have too few rows, and taps that they may have.
const DIRECT_CHANNELS: usize = 2;
const DIRECT_TAPS: usize = 64;
/// Results that the direct form sums in registers.
const DIRECT_BLOCK: usize = 64;

/// Runs a convolution of at most three spatial dims; tells whether it did.
pub(super) fn run(
    spec: &ConvSpec,
    x: &Operand<'_>,
    weight: &Operand<'_>,
    dtype: DType,
    shape: &Shape,
    output: &mut [u8],
    threads: &Threads,
) -> bool {
    if spec.stride.len() > 3 {
        return false;
    }
    match dtype {
        DType::F32 => convolve::<F32, f32>(spec, typed(x), x, typed(weight), weight, shape, cast(output), threads),
        DType::F64 => convolve::<F64, f64>(spec, typed(x), x, typed(weight), weight, shape, cast(output), threads),
        DType::F16 => through_f32::<f16>(spec, x, weight, shape, cast(output), threads, f16::to_f32, f16::from_f32),
        DType::BF16 => through_f32::<bf16>(spec, x, weight, shape, cast(output), threads, bf16::to_f32, bf16::from_f32),
        _ => false,
    }
}

fn cast<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn typed<'a, T: Pod>(operand: &Operand<'a>) -> &'a [T] {
    bytemuck::cast_slice(operand.bytes)
}

/// Halves are convolved in `f32` and rounded once.
#[expect(clippy::too_many_arguments, reason = "one call, with the conversions beside it")]
fn through_f32<H: Pod>(
    spec: &ConvSpec,
    x: &Operand<'_>,
    weight: &Operand<'_>,
    shape: &Shape,
    output: &mut [H],
    threads: &Threads,
    widen: fn(H) -> f32,
    narrow: fn(f32) -> H,
) -> bool {
    let wide = |operand: &Operand<'_>| -> Vec<f32> {
        bytemuck::cast_slice::<u8, H>(operand.bytes).iter().map(|&value| widen(value)).collect()
    };
    let mut result = vec![0.0f32; output.len()];
    let done = convolve::<F32, f32>(spec, &wide(x), x, &wide(weight), weight, shape, &mut result, threads);
    for (out, value) in output.iter_mut().zip(result) {
        *out = narrow(value);
    }
    done
}

/// Sizes and strides, with missing spatial dims in front filled up with 1.
struct Geometry {
    /// Spatial sizes of the input, and their strides.
    size: [usize; 3],
    size_strides: [isize; 3],
    kernel: [usize; 3],
    out: [usize; 3],
    stride: [isize; 3],
    dilation: [isize; 3],
    input_dilation: [isize; 3],
    low: [isize; 3],
    batch_stride: isize,
    channel_stride: isize,
    offset: isize,
    /// Channels of a group.
    channels: usize,
}

#[expect(clippy::too_many_arguments, reason = "data and layout of two operands")]
fn convolve<R, T>(
    spec: &ConvSpec,
    x_data: &[T],
    x: &Operand<'_>,
    weight_data: &[T],
    weight: &Operand<'_>,
    shape: &Shape,
    output: &mut [T],
    threads: &Threads,
) -> bool
where
    T: Pod + Default + Plain + Mul<Output = T> + Add<Output = T>,
    R: Arith<Packed = T, Acc = T>,
{
    let spatial = spec.stride.len();
    let lift = |value: &dyn Fn(usize) -> isize, default: isize| -> [isize; 3] {
        core::array::from_fn(|dim| if dim + spatial < 3 { default } else { value(dim + spatial - 3) })
    };
    let sizes = |shape: &Shape| lift(&|dim| shape[dim + 2] as isize, 1).map(|size| size as usize);
    let geometry = Geometry {
        size: sizes(&x.layout.shape),
        size_strides: lift(&|dim| x.layout.strides[dim + 2], 0),
        kernel: sizes(&weight.layout.shape),
        out: sizes(shape),
        stride: lift(&|dim| spec.stride[dim] as isize, 1),
        dilation: lift(&|dim| spec.dilation[dim] as isize, 1),
        input_dilation: lift(&|dim| spec.input_dilation[dim] as isize, 1),
        low: lift(&|dim| spec.padding[dim].0, 0),
        batch_stride: x.layout.strides[0],
        channel_stride: x.layout.strides[1],
        offset: x.layout.offset as isize,
        channels: weight.layout.shape[1],
    };
    let (batch, groups) = (shape[0], spec.groups);
    let out_group = shape[1] / groups;
    let positions: usize = geometry.out.iter().product();
    let depth = geometry.channels * geometry.kernel.iter().product::<usize>();
    if output.is_empty() {
        return true;
    }
    if depth == 0 {
        output.fill(T::default());
        return true;
    }
    let isa = Isa::best();
    let results = SharedSlice::new(output);
    let direct = geometry.channels == 1 && out_group <= DIRECT_CHANNELS && depth <= DIRECT_TAPS;
    let all_channels = groups * geometry.channels;
    let padded = (direct || geometry.needs_copy()).then(|| Padded::new(&geometry));
    let planes = batch * all_channels;
    let padded_len = match &padded {
        Some(padded) => match padded.plane.checked_mul(planes) {
            Some(len) if len <= MAX_PADDED || len / 16 <= x_data.len() + results.len => len,
            _ => return false,
        },
        None => 0,
    };
    if let (true, Some(padded)) = (direct, &padded) {
        let weights = super::movement::row_major(weight_data, &weight.layout);
        let run = |task: usize| {
            // SAFETY: each task has its own image and group.
            let result = unsafe { results.part(task * out_group * positions, out_group * positions) };
            let group = task % groups;
            scratch::with(Use::Padded, padded.plane, |plane: &mut [T]| {
                geometry.pad(padded, x_data, task / groups, group, plane);
                let weights = weights[group * out_group * depth..].chunks_exact(depth);
                for (out, weights) in result.chunks_exact_mut(positions).zip(weights) {
                    geometry.direct(isa, padded, plane, weights, out);
                }
            });
        };
        if padded_len >= PARALLEL_COPY {
            threads.each(planes, &run);
        } else {
            (0..planes).for_each(run);
        }
        return true;
    }
    scratch::with(Use::Padded, padded_len, |copy: &mut [T]| {
        if let Some(padded) = &padded {
            let copies = SharedSlice::new(copy);
            let fill = |plane: usize| {
                // SAFETY: each call has its own plane.
                let out = unsafe { copies.part(plane * padded.plane, padded.plane) };
                geometry.pad(padded, x_data, plane / all_channels, plane % all_channels, out);
            };
            if padded_len >= PARALLEL_COPY { threads.each(planes, &fill) } else { (0..planes).for_each(fill) }
        }
        let (data, places) = match &padded {
            Some(padded) => (&*copy, padded.places(all_channels)),
            None => (x_data, geometry.places()),
        };
        let pitch = geometry.pitch(&places, out_group, R::kernel(isa).group);
        let multiply = |group: usize, hands: Hands| {
            let lhs = geometry.weights::<R>(weight_data, &weight.layout, group * out_group, out_group, isa);
            let result = |image: usize, row: usize, at: usize, run: usize| {
                let channel = (image * groups + group) * out_group + row;
                // SAFETY: tiles of a group are disjoint, and so are groups.
                unsafe { results.part(channel * positions + at, run) }
            };
            if let Some(pitch) = pitch {
                let patches = geometry.shifted(&places, data, batch, group, pitch);
                let store = |mut tile: Tile<'_, T>| {
                    let (image, first) = (tile.col / patches.cols, tile.col % patches.cols);
                    let mut at = first;
                    while at < first + tile.cols {
                        // Positions of a row, and what lies between it and the next.
                        let (x, y, z) = (at % pitch[1], at % pitch[0] / pitch[1], at / pitch[0]);
                        let row = (pitch[1] - x).min(first + tile.cols - at);
                        let run = row.min(geometry.out[2].saturating_sub(x));
                        if y < geometry.out[1] && run > 0 {
                            let position = (z * geometry.out[1] + y) * geometry.out[2] + x;
                            for i in 0..tile.rows {
                                let out = result(image, tile.row + i, position, run);
                                out.copy_from_slice(&tile.row_mut(i)[at - first..][..run]);
                            }
                        }
                        at += row;
                    }
                };
                return gemm_shifted::<R>(isa, hands, &lhs, &patches, &store);
            }
            let patches = geometry.patches::<R>(&places, data, batch, group, isa);
            let store = |mut tile: Tile<'_, T>| {
                let (first, end) = (tile.col, tile.col + tile.cols);
                let mut col = first;
                while col < end {
                    let (image, at) = (col / positions, col % positions);
                    let run = (positions - at).min(end - col);
                    for i in 0..tile.rows {
                        let out = result(image, tile.row + i, at, run);
                        out.copy_from_slice(&tile.row_mut(i)[col - first..][..run]);
                    }
                    col += run;
                }
            };
            gemm_offsets::<R>(isa, hands, &lhs, &patches, &store);
        };
        let large = threads.count() > 1 && is_large::<T, T>(groups, [out_group, batch * positions, depth]);
        if large && groups >= 2 * threads.count() {
            threads.each(groups, &|group| multiply(group, Hands::One));
        } else if large {
            threads.install(|| (0..groups).for_each(|group| multiply(group, Hands::All)));
        } else {
            (0..groups).for_each(|group| multiply(group, Hands::One));
        }
    });
    true
}

/// Where elements of the patches lie: offsets to add up.
struct Places {
    start: isize,
    image: isize,
    channel: isize,
    position: [isize; 3],
    /// For each tap along a dim.
    taps: [Vec<isize>; 3],
}

/// The layout of a padded copy: planes `[image, channel]`, each cut by *phase*, the remainder of a coordinate by the stride,
/// so that what neighboring positions read lies side by side.
struct Padded {
    /// For each dim, the phases that some tap reads.
    phases: [Vec<usize>; 3],
    /// Sizes of one phase of a plane.
    size: [usize; 3],
    /// Elements of a plane.
    plane: usize,
    taps: [Vec<isize>; 3],
}

impl Padded {
    fn new(geometry: &Geometry) -> Padded {
        let extent = geometry.extent();
        let stride = geometry.stride.map(|stride| stride as usize);
        let size: [usize; 3] = core::array::from_fn(|dim| extent[dim].div_ceil(stride[dim]));
        let reach = |dim: usize, tap: usize| tap * geometry.dilation[dim] as usize;
        let phases: [Vec<usize>; 3] = core::array::from_fn(|dim| {
            let mut phases: Vec<usize> = (0..geometry.kernel[dim]).map(|tap| reach(dim, tap) % stride[dim]).collect();
            phases.sort_unstable();
            phases.dedup();
            phases
        });
        let volume = size.iter().fold(1usize, |product, &size| product.saturating_mul(size));
        let phase_steps = [phases[1].len() * phases[2].len(), phases[2].len(), 1];
        let steps = [size[1] * size[2], size[2], 1];
        let taps = core::array::from_fn(|dim| {
            let place = |tap: usize| {
                let phase = phases[dim].binary_search(&(reach(dim, tap) % stride[dim])).expect("phases of all taps");
                (phase * phase_steps[dim] * volume + reach(dim, tap) / stride[dim] * steps[dim]) as isize
            };
            (0..geometry.kernel[dim]).map(place).collect()
        });
        let plane = phases.iter().fold(volume, |product, phases| product.saturating_mul(phases.len()));
        Padded { phases, size, plane, taps }
    }

    fn places(&self, channels: usize) -> Places {
        let [_, rows, columns] = self.size.map(|size| size as isize);
        Places {
            start: 0,
            image: (channels * self.plane) as isize,
            channel: self.plane as isize,
            position: [rows * columns, columns, 1],
            taps: self.taps.clone(),
        }
    }
}

multiversion! {
    /// `out[i] = Σ weights[tap] · data[offsets[tap] + i]`.
    fn sum_shifted<T>(out: &mut [T], data: &[T], weights: &[T], offsets: &[isize])
    where [T: Copy + Default + Mul<Output = T> + Add<Output = T>]
    {
        let mut start = 0;
        let mut blocks = out.chunks_exact_mut(DIRECT_BLOCK);
        for block in &mut blocks {
            let mut sums = [T::default(); DIRECT_BLOCK];
            for (&weight, &offset) in weights.iter().zip(offsets) {
                let data = &data[offset as usize + start..][..DIRECT_BLOCK];
                for (sum, &value) in sums.iter_mut().zip(data) {
                    *sum = *sum + weight * value;
                }
            }
            block.copy_from_slice(&sums);
            start += DIRECT_BLOCK;
        }
        let rest = blocks.into_remainder();
        rest.fill(T::default());
        for (&weight, &offset) in weights.iter().zip(offsets) {
            for (sum, &value) in rest.iter_mut().zip(&data[offset as usize + start..]) {
                *sum = *sum + weight * value;
            }
        }
    }
}

impl Geometry {
    /// Whether windows leave the input, or positions next to each other read elements that are not.
    fn needs_copy(&self) -> bool {
        let extent = self.extent();
        let inside = (0..3).all(|dim| {
            self.input_dilation[dim] == 1
                && self.low[dim] <= 0
                && extent[dim] as isize - self.low[dim] <= self.size[dim] as isize
        });
        !inside || self.stride[2] * self.size_strides[2] != 1
    }

    /// Where patches lie in the input itself.
    fn places(&self) -> Places {
        let tap = |dim: usize, tap: usize| (tap as isize * self.dilation[dim] - self.low[dim]) * self.size_strides[dim];
        Places {
            start: self.offset,
            image: self.batch_stride,
            channel: self.channel_stride,
            position: core::array::from_fn(|dim| self.stride[dim] * self.size_strides[dim]),
            taps: core::array::from_fn(|dim| (0..self.kernel[dim]).map(|at| tap(dim, at)).collect()),
        }
    }

    /// The right operand: a lane is a position of an image, depth runs over the channels of the group and the kernel.
    fn patches<'a, R: Arith>(
        &self,
        places: &Places,
        data: &'a [R::Packed],
        batch: usize,
        group: usize,
        isa: Isa,
    ) -> PackOffsets<'a, R> {
        let start = places.start + (group * self.channels) as isize * places.channel;
        let positions: [Vec<isize>; 3] =
            core::array::from_fn(|dim| (0..self.out[dim] as isize).map(|at| at * places.position[dim]).collect());
        let lanes = offsets(start, (batch, places.image), &positions);
        let depths = offsets(0, (self.channels, places.channel), &places.taps);
        PackOffsets::new(data, lanes, depths, isa)
    }

    /// Distances from plane to plane and row to row of positions, if the patches of an image can be read in place: positions
    /// lie in order and side by side, but for gaps that cost less to compute too than packing would: a packed element takes
    /// as long as [`PACK_ROWS`] products.
    fn pitch(&self, places: &Places, out_group: usize, group: usize) -> Option<[usize; 2]> {
        let [planes, rows, columns] = self.out;
        let row = if rows * planes == 1 { columns as isize } else { places.position[1].max(0) };
        let plane = if planes == 1 { rows as isize * row } else { places.position[0].max(0) };
        let [plane, row] = [plane as usize, row as usize];
        let fits = places.position[2] == 1 && row >= columns && plane >= rows * row && group == 1;
        let dense = ((planes - 1) * plane).checked_add((rows - 1) * row + columns)?;
        let positions: usize = self.out.iter().product();
        (fits && (dense - positions).saturating_mul(out_group) <= positions.saturating_mul(PACK_ROWS))
            .then_some([plane, row])
    }

    /// The right operand in place: a strip is an image, a column a position or in a gap between rows.
    fn shifted<'a, T>(
        &self,
        places: &Places,
        data: &'a [T],
        batch: usize,
        group: usize,
        [plane, row]: [usize; 2],
    ) -> Shifted<'a, T> {
        let start = places.start + (group * self.channels) as isize * places.channel;
        let cols = (self.out[0] - 1) * plane + (self.out[1] - 1) * row + self.out[2];
        Shifted::new(
            data,
            start,
            (batch, places.image),
            cols,
            offsets(0, (self.channels, places.channel), &places.taps),
        )
    }

    /// The left operand: a lane is a result channel.
    fn weights<'a, R: Arith>(
        &self,
        data: &'a [R::Packed],
        layout: &Layout,
        first: usize,
        count: usize,
        isa: Isa,
    ) -> PackOffsets<'a, R> {
        let lift = 5 - layout.strides.len();
        let lanes = (first..first + count).map(|lane| layout.offset as isize + lane as isize * layout.strides[0]);
        let taps: [Vec<isize>; 3] = core::array::from_fn(|dim| {
            let stride = if dim < lift { 0 } else { layout.strides[dim - lift + 2] };
            (0..self.kernel[dim] as isize).map(|tap| tap * stride).collect()
        });
        PackOffsets::new(data, lanes.collect(), offsets(0, (self.channels, layout.strides[1]), &taps), isa)
    }

    /// Writes the padded copy of one plane.
    fn pad<T: Pod>(&self, padded: &Padded, data: &[T], image: usize, channel: usize, out: &mut [T]) {
        let base = self.offset + image as isize * self.batch_stride + channel as isize * self.channel_stride;
        let [depth, rows, columns] = padded.size;
        let mut out = out.chunks_exact_mut(columns);
        for &phase_z in &padded.phases[0] {
            for &phase_y in &padded.phases[1] {
                for &phase_x in &padded.phases[2] {
                    for z in 0..depth {
                        let z = self.source(0, phase_z + z * self.stride[0] as usize);
                        for y in 0..rows {
                            let out = out.next().expect("as many rows as the plane has");
                            match (z, self.source(1, phase_y + y * self.stride[1] as usize)) {
                                (Some(z), Some(y)) => {
                                    let row = base + z * self.size_strides[0] + y * self.size_strides[1];
                                    self.pad_row(data, row, phase_x as isize, out);
                                }
                                _ => out.fill(T::zeroed()),
                            }
                        }
                    }
                }
            }
        }
    }

    /// Writes one phase of the padded row whose input begins at `row`.
    fn pad_row<T: Pod>(&self, data: &[T], row: isize, phase: isize, out: &mut [T]) {
        let (stride, step) = (self.stride[2], self.size_strides[2]);
        if self.input_dilation[2] != 1 {
            for (i, out) in out.iter_mut().enumerate() {
                let source = self.source(2, (phase + i as isize * stride) as usize);
                *out = source.map_or(T::zeroed(), |x| data[(row + x * step) as usize]);
            }
            return;
        }
        // Elements `begin..end` are those with `0 ≤ first + i · stride < size`.
        let first = phase - self.low[2];
        let reach = |bound: isize| ((bound - first + stride - 1).div_euclid(stride).max(0) as usize).min(out.len());
        let (begin, end) = (reach(0), reach(self.size[2] as isize));
        out[..begin].fill(T::zeroed());
        out[end..].fill(T::zeroed());
        if begin == end {
            return;
        }
        let start = row + (first + begin as isize * stride) * step;
        let inner = &mut out[begin..end];
        if stride * step == 1 {
            inner.copy_from_slice(&data[start as usize..][..inner.len()]);
        } else {
            for (i, out) in inner.iter_mut().enumerate() {
                *out = data[(start + i as isize * stride * step) as usize];
            }
        }
    }

    /// What of the input lies at a coordinate of the dilated, padded input; `None` in the padding and between dilated
    /// elements.
    fn source(&self, dim: usize, coordinate: usize) -> Option<isize> {
        let dilated = coordinate as isize - self.low[dim];
        let step = self.input_dilation[dim];
        let source = dilated.div_euclid(step);
        (dilated.rem_euclid(step) == 0 && (0..self.size[dim] as isize).contains(&source)).then_some(source)
    }

    /// Sizes of the part of the dilated, padded input that the windows see.
    fn extent(&self) -> [usize; 3] {
        core::array::from_fn(|dim| {
            (self.out[dim] - 1) * self.stride[dim] as usize + (self.kernel[dim] - 1) * self.dilation[dim] as usize + 1
        })
    }

    /// One channel of the result: the sum of shifted planes. Positions are summed densely, also between rows.
    fn direct<T>(&self, isa: Isa, padded: &Padded, plane: &[T], weights: &[T], out: &mut [T])
    where
        T: Plain + Default + Mul<Output = T> + Add<Output = T>,
    {
        let [_, height, width] = padded.size;
        let [planes, rows, columns] = self.out;
        let shifts = offsets(0, (1, 0), &padded.taps);
        let dense = (rows - 1) * width + columns;
        scratch::with(Use::Tile, dense, |sums: &mut [T]| {
            for (z, out) in out.chunks_exact_mut(rows * columns).enumerate().take(planes) {
                sum_shifted(isa, sums, &plane[z * height * width..], weights, &shifts);
                for (out, sums) in out.chunks_exact_mut(columns).zip(sums.chunks(width)) {
                    out.copy_from_slice(&sums[..columns]);
                }
            }
        });
    }
}

/// `start` plus one of `count` steps and one offset of each dim, the last dim fastest.
fn offsets(start: isize, (count, step): (usize, isize), dims: &[Vec<isize>; 3]) -> Vec<isize> {
    let mut all = Vec::with_capacity(count * dims.iter().map(Vec::len).product::<usize>());
    for outer in 0..count as isize {
        for z in &dims[0] {
            for y in &dims[1] {
                let row = start + outer * step + z + y;
                all.extend(dims[2].iter().map(|x| row + x));
            }
        }
    }
    all
}
