//! Convolution as a matrix product whose right operand is gathered on the way in: no patches are stored.
//!
//! Three forms. *Direct*: a depthwise convolution sums shifted copies of the padded image. *By image*: the result of one image and group is `weight [out, c · kernel] · patches [c · kernel, positions]`.
//! *Merged*: where an image has few positions but there are many images, as in the gradient of a weight (channels and
//! batch swapped, a "kernel" as large as the image), the positions of all images are the columns of one product.

use super::Operand;
use crate::gemm::{Arith, Config, F32, F64, Output, Pack, Panel, Plain, Threads as Hands, View, ViewMut, gemm_packed};
use crate::multiversion;
use crate::simd::Isa;
use crate::threads::Threads;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::ops::{Add, Mul};
use fornax_ir::{ConvSpec, DType, Shape};
use half::{bf16, f16};
use smallvec::SmallVec;

/// Positions of an image up to which all images are merged into one product.
const MERGED_POSITIONS: usize = 64;
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
        DType::F32 => convolve::<F32, f32>(spec, &typed(x), x, &typed(weight), weight, shape, cast(output), threads),
        DType::F64 => convolve::<F64, f64>(spec, &typed(x), x, &typed(weight), weight, shape, cast(output), threads),
        DType::F16 => through_f32::<f16>(spec, x, weight, shape, cast(output), threads, f16::to_f32, f16::from_f32),
        DType::BF16 => through_f32::<bf16>(spec, x, weight, shape, cast(output), threads, bf16::to_f32, bf16::from_f32),
        _ => return false,
    }
    true
}

fn cast<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn typed<'a, T: Pod>(operand: &Operand<'a>) -> alloc::borrow::Cow<'a, [T]> {
    alloc::borrow::Cow::Borrowed(bytemuck::cast_slice(operand.bytes))
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
) {
    let wide = |operand: &Operand<'_>| -> Vec<f32> {
        bytemuck::cast_slice::<u8, H>(operand.bytes).iter().map(|&value| widen(value)).collect()
    };
    let mut result = vec![0.0f32; output.len()];
    convolve::<F32, f32>(spec, &wide(x), x, &wide(weight), weight, shape, &mut result, threads);
    for (out, value) in output.iter_mut().zip(result) {
        *out = narrow(value);
    }
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
) where
    T: Pod + Default + Send + Sync + Output<R::Acc>,
    R: Arith<Packed = T, Acc = T>,
    T: crate::gemm::Input<R> + Plain + Mul<Output = T> + Add<Output = T>,
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
    // Weights row-major: small beside the images, or (as a gradient's) read more than once.
    let weights = super::movement::row_major(weight_data, &weight.layout);
    let (batch, groups) = (shape[0], spec.groups);
    let out_group = shape[1] / groups;
    let positions: usize = geometry.out.iter().product();
    let depth = geometry.channels * geometry.kernel.iter().product::<usize>();
    if output.is_empty() {
        return;
    }
    let isa = Isa::best();
    if geometry.channels == 1 && out_group <= DIRECT_CHANNELS && (1..=DIRECT_TAPS).contains(&depth) {
        let results = SharedSlice { ptr: output.as_mut_ptr(), len: output.len() };
        threads.each(batch * groups, &|task| {
            // SAFETY: each task has its own image and group.
            let result = unsafe { results.part(task * out_group * positions, out_group * positions) };
            let group = task % groups;
            let plane = geometry.padded_plane(x_data, task / groups, group);
            let weights = weights[group * out_group * depth..].chunks_exact(depth);
            for (out, weights) in result.chunks_exact_mut(positions).zip(weights) {
                geometry.direct(isa, &plane, weights, out);
            }
        });
        return;
    }
    let rows = |group: usize| &weights[group * out_group * depth..(group + 1) * out_group * depth];
    if positions <= MERGED_POSITIONS && batch >= 4 {
        let mut merged = vec![T::default(); out_group * batch * positions];
        for group in 0..groups {
            let hands = if threads.count() > 1 { Hands::All } else { Hands::One };
            let config = Config { isa, threads: hands, ..Config::default() };
            let patches = Patches { data: x_data, geometry: &geometry, group, image: None };
            let lhs = View::row_major(rows(group), &[out_group, depth]).pack_rows::<R>(isa);
            let result = ViewMut::row_major(&mut merged, &[out_group, batch * positions]);
            gemm_packed::<R, T>(&config, depth, &lhs, &patches, result, None);
            for image in 0..batch {
                for row in 0..out_group {
                    let from = (row * batch + image) * positions;
                    let to = ((image * groups + group) * out_group + row) * positions;
                    output[to..to + positions].copy_from_slice(&merged[from..from + positions]);
                }
            }
        }
        return;
    }
    let tasks = batch * groups;
    let alone = tasks == 1 && threads.count() > 1;
    let results = SharedSlice { ptr: output.as_mut_ptr(), len: output.len() };
    threads.each(tasks, &|task| {
        let (image, group) = (task / groups, task % groups);
        let config = Config { isa, threads: if alone { Hands::All } else { Hands::One }, ..Config::default() };
        let patches = Patches { data: x_data, geometry: &geometry, group, image: Some(image) };
        let lhs = View::row_major(rows(group), &[out_group, depth]).pack_rows::<R>(isa);
        // SAFETY: each task has its own image and group.
        let result = unsafe { results.part(task * out_group * positions, out_group * positions) };
        gemm_packed::<R, T>(&config, depth, &lhs, &patches, ViewMut::row_major(result, &[out_group, positions]), None);
    });
}

/// A slice that threads write disjoint parts of.
struct SharedSlice<T> {
    ptr: *mut T,
    len: usize,
}

// SAFETY: parts are handed out under the contract of `part`.
unsafe impl<T: Send> Sync for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    /// # Safety
    /// No two parts alive at one time overlap.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the contract")]
    unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start + len <= self.len);
        // SAFETY: in range, and by contract nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

/// The patches of one image, or of all, as the right operand of the product: a lane is a position, depth runs over the
/// channels of the group and the kernel.
struct Patches<'a, T> {
    data: &'a [T],
    geometry: &'a Geometry,
    group: usize,
    /// `None`: lanes run over all images.
    image: Option<usize>,
}

impl<T: Pod + Default + Send + Sync> Pack<T> for Patches<'_, T> {
    fn pack(&self, panel: Panel, out: &mut [T]) {
        match self.image {
            Some(image) => self.pack_rows(image, panel, out),
            None => self.pack_lanes(panel, out),
        }
    }
}

impl<T: Pod + Default + Send + Sync> Patches<'_, T> {
    /// Where channel `channel` of image `image` begins.
    fn plane(&self, image: usize, channel: usize) -> isize {
        let geometry = self.geometry;
        let channel = self.group * geometry.channels + channel;
        geometry.offset + image as isize * geometry.batch_stride + channel as isize * geometry.channel_stride
    }

    /// Depth by depth: a run of positions along the last dim is a run of the input.
    fn pack_rows(&self, image: usize, panel: Panel, out: &mut [T]) {
        let geometry = self.geometry;
        let [_, rows, columns] = geometry.out;
        let mut runs: SmallVec<[(usize, [usize; 3], usize); 16]> = SmallVec::new();
        let mut lane = 0;
        while lane < panel.lane_count {
            let position = panel.lane + lane;
            let at = [position / (rows * columns), position / columns % rows, position % columns];
            let run = (columns - at[2]).min(panel.lane_count - lane);
            runs.push((lane, at, run));
            lane += run;
        }
        let (mut channel, mut taps) = geometry.taps(panel.depth);
        for depth in 0..panel.depth_count {
            let plane = self.plane(image, channel);
            for &(lane, at, run) in &runs {
                let start = panel.index(lane, depth);
                if panel.group == 1 {
                    self.run(plane, at, taps, &mut out[start..start + run]);
                } else {
                    let mut row = vec![T::default(); run];
                    self.run(plane, at, taps, &mut row);
                    for (i, value) in row.into_iter().enumerate() {
                        out[panel.index(lane + i, depth)] = value;
                    }
                }
            }
            channel += usize::from(geometry.next_tap(&mut taps, 1));
        }
    }

    /// The input under one tap of the kernel, for positions next to each other along the last dim.
    #[inline]
    fn run(&self, plane: isize, at: [usize; 3], taps: [usize; 3], out: &mut [T]) {
        let geometry = self.geometry;
        let mut place = plane;
        for dim in 0..2 {
            match geometry.coordinate(dim, at[dim], taps[dim]) {
                Some(coordinate) => place += coordinate as isize * geometry.size_strides[dim],
                None => return out.fill(T::default()),
            }
        }
        let (stride, size, step) = (geometry.stride[2], geometry.size[2] as isize, geometry.size_strides[2]);
        let first = at[2] as isize * stride + taps[2] as isize * geometry.dilation[2] - geometry.low[2];
        if geometry.input_dilation[2] != 1 {
            for (i, value) in out.iter_mut().enumerate() {
                *value = match geometry.coordinate(2, at[2] + i, taps[2]) {
                    Some(coordinate) => self.data[(place + coordinate as isize * step) as usize],
                    None => T::default(),
                };
            }
            return;
        }
        // Positions `begin..end` lie inside the input.
        let ceil = |a: isize| match (a <= 0, stride) {
            (true, _) => 0,
            (false, 1) => a,
            _ => (a + stride - 1) / stride,
        };
        let begin = (ceil(-first) as usize).min(out.len());
        let end = (ceil(size - first) as usize).clamp(begin, out.len());
        out[..begin].fill(T::default());
        out[end..].fill(T::default());
        if begin == end {
            return;
        }
        let start = place + (first + begin as isize * stride) * step;
        if stride * step == 1 {
            out[begin..end].copy_from_slice(&self.data[start as usize..start as usize + end - begin]);
            return;
        }
        for (i, value) in out[begin..end].iter_mut().enumerate() {
            *value = self.data[(start + i as isize * stride * step) as usize];
        }
    }

    /// Lane by lane: depth runs along the last dim of the kernel.
    fn pack_lanes(&self, panel: Panel, out: &mut [T]) {
        let geometry = self.geometry;
        let [_, rows, columns] = geometry.out;
        let positions: usize = geometry.out.iter().product();
        let start = geometry.taps(panel.depth);
        for lane in 0..panel.lane_count {
            let (image, position) = ((panel.lane + lane) / positions, (panel.lane + lane) % positions);
            let at = [position / (rows * columns), position / columns % rows, position % columns];
            let mut depth = 0;
            let (mut channel, mut taps) = start;
            while depth < panel.depth_count {
                let run = (geometry.kernel[2] - taps[2]).min(panel.depth_count - depth);
                self.depth_run(self.plane(image, channel), at, taps, run, |i, value| {
                    out[panel.index(lane, depth + i)] = value;
                });
                depth += run;
                channel += usize::from(geometry.next_tap(&mut taps, run));
            }
        }
    }

    /// The input at one position under taps next to each other along the last dim of the kernel.
    #[inline]
    fn depth_run(&self, plane: isize, at: [usize; 3], taps: [usize; 3], run: usize, mut put: impl FnMut(usize, T)) {
        let geometry = self.geometry;
        let mut place = plane;
        for dim in 0..2 {
            match geometry.coordinate(dim, at[dim], taps[dim]) {
                Some(coordinate) => place += coordinate as isize * geometry.size_strides[dim],
                None => return (0..run).for_each(|i| put(i, T::default())),
            }
        }
        if geometry.input_dilation[2] == 1 {
            let (size, step, dilation) = (geometry.size[2] as isize, geometry.size_strides[2], geometry.dilation[2]);
            let first = at[2] as isize * geometry.stride[2] + taps[2] as isize * dilation - geometry.low[2];
            for i in 0..run {
                let coordinate = first + i as isize * dilation;
                let inside = (0..size).contains(&coordinate);
                put(i, if inside { self.data[(place + coordinate * step) as usize] } else { T::default() });
            }
            return;
        }
        for i in 0..run {
            let value = match geometry.coordinate(2, at[2], taps[2] + i) {
                Some(coordinate) => self.data[(place + coordinate as isize * geometry.size_strides[2]) as usize],
                None => T::default(),
            };
            put(i, value);
        }
    }
}

multiversion! {
    /// `out[i] = Σ weights[tap] · data[offsets[tap] + i]`.
    fn sum_shifted<T>(out: &mut [T], data: &[T], weights: &[T], offsets: &[usize])
    where [T: Copy + Default + Mul<Output = T> + Add<Output = T>]
    {
        let mut start = 0;
        let mut blocks = out.chunks_exact_mut(DIRECT_BLOCK);
        for block in &mut blocks {
            let mut sums = [T::default(); DIRECT_BLOCK];
            for (&weight, &offset) in weights.iter().zip(offsets) {
                let data = &data[offset + start..offset + start + DIRECT_BLOCK];
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
            for (sum, &value) in rest.iter_mut().zip(&data[offset + start..]) {
                *sum = *sum + weight * value;
            }
        }
    }
}

impl Geometry {
    /// Channel of the group and taps at a depth.
    fn taps(&self, depth: usize) -> (usize, [usize; 3]) {
        let [_, rows, columns] = self.kernel;
        let volume = (self.kernel[0] * rows * columns).max(1);
        let tap = depth % volume;
        (depth / volume, [tap / (rows * columns).max(1), tap / columns.max(1) % rows.max(1), tap % columns.max(1)])
    }

    /// Goes on by `run` taps within the last dim; tells whether that is the next channel.
    #[inline]
    fn next_tap(&self, taps: &mut [usize; 3], run: usize) -> bool {
        taps[2] += run;
        for dim in [2, 1, 0] {
            if taps[dim] < self.kernel[dim] {
                return false;
            }
            taps[dim] = 0;
            if dim == 0 {
                return true;
            }
            taps[dim - 1] += 1;
        }
        true
    }

    /// Sizes of the part of the dilated, padded input that the windows see.
    fn extent(&self) -> [usize; 3] {
        core::array::from_fn(|dim| {
            (self.out[dim] - 1) * self.stride[dim] as usize + (self.kernel[dim] - 1) * self.dilation[dim] as usize + 1
        })
    }

    /// One channel of one image as the windows see it: dilated, padded, row-major.
    fn padded_plane<T: Pod>(&self, data: &[T], image: usize, channel: usize) -> Vec<T> {
        let extent = self.extent();
        let mut plane = vec![T::zeroed(); extent.iter().product()];
        let base = self.offset + image as isize * self.batch_stride + channel as isize * self.channel_stride;
        // Coordinates of the input that land in the extent.
        let range = |dim: usize| {
            let (low, step) = (self.low[dim], self.input_dilation[dim]);
            let begin = if low >= 0 { 0 } else { (-low + step - 1) / step };
            let end = (extent[dim] as isize - low + step - 1).div_euclid(step).clamp(0, self.size[dim] as isize);
            begin..end
        };
        let target = |dim: usize, at: isize| (at * self.input_dilation[dim] + self.low[dim]) as usize;
        for z in range(0) {
            for y in range(1) {
                let from = base + z * self.size_strides[0] + y * self.size_strides[1];
                let to = (target(0, z) * extent[1] + target(1, y)) * extent[2];
                let columns = range(2);
                if self.input_dilation[2] == 1 && self.size_strides[2] == 1 && !columns.is_empty() {
                    let (start, count) = ((from + columns.start) as usize, columns.end - columns.start);
                    let to = to + target(2, columns.start);
                    plane[to..to + count as usize].copy_from_slice(&data[start..start + count as usize]);
                    continue;
                }
                for x in columns {
                    plane[to + target(2, x)] = data[(from + x * self.size_strides[2]) as usize];
                }
            }
        }
        plane
    }

    /// One channel of the result: the sum of shifted planes. Positions are summed densely, also between those wanted.
    fn direct<T>(&self, isa: Isa, plane: &[T], weights: &[T], out: &mut [T])
    where
        T: Pod + Default + Mul<Output = T> + Add<Output = T>,
    {
        let [_, height, width] = self.extent();
        let mut offsets: SmallVec<[usize; 32]> = SmallVec::new();
        let mut taps = [0; 3];
        for _ in weights {
            let [z, y, x]: [usize; 3] = core::array::from_fn(|dim| taps[dim] * self.dilation[dim] as usize);
            offsets.push((z * height + y) * width + x);
            self.next_tap(&mut taps, 1);
        }
        let [_, rows, columns] = self.out;
        let stride = self.stride.map(|stride| stride as usize);
        // Rows next to each other are one run.
        let merged = if stride[1] == 1 { rows } else { 1 };
        let mut dense = vec![T::default(); (merged - 1) * width + (columns - 1) * stride[2] + 1];
        for (block, out) in out.chunks_exact_mut(merged * columns).enumerate() {
            let (z, y) = (block * merged / rows, block * merged % rows);
            let start = (z * stride[0] * height + y * stride[1]) * width;
            sum_shifted(isa, &mut dense, &plane[start..], weights, &offsets);
            for (out, row) in out.chunks_exact_mut(columns).zip(dense.chunks(width)) {
                for (out, &value) in out.iter_mut().zip(row.iter().step_by(stride[2])) {
                    *out = value;
                }
            }
        }
    }

    /// Where position `at` meets tap `tap` in the input; `None` in the padding and between dilated elements.
    #[inline]
    fn coordinate(&self, dim: usize, at: usize, tap: usize) -> Option<usize> {
        let dilated = at as isize * self.stride[dim] + tap as isize * self.dilation[dim] - self.low[dim];
        let step = self.input_dilation[dim];
        if step == 1 {
            return (0..self.size[dim] as isize).contains(&dilated).then_some(dilated as usize);
        }
        if dilated < 0 || dilated % step != 0 || dilated / step >= self.size[dim] as isize {
            return None;
        }
        Some((dilated / step) as usize)
    }
}
