//! [`DeformConv2d`].

use crate::{ConvConfig, Module, Param, init};
use alloc::format;
use fornax_tensor::{DType, Device, Error, Padding, Tensor};

/// Convolution over height and width whose kernel reads at places moved by learned offsets, between pixels.
///
/// # Shapes
/// - `weight`: `[out, in / groups, kh, kw]`, `bias`: `[out]`;
/// - input `[n, in, height, width]`, result `[n, out, oh, ow]`;
/// - offsets `[n, 2 · offset_groups · kh · kw, oh, ow]`: for each group of channels and place of the kernel, how far down
///   and how far right; in the order of `torchvision.ops.deform_conv2d`;
/// - mask `[n, offset_groups · kh · kw, oh, ow]`, if given: multiplies what is read.
///
/// The number of offset groups follows from the offsets. Pixels outside the input are 0.
///
/// # References
/// Dai et al. (2017), *Deformable Convolutional Networks*, arXiv:1703.06211; mask: Zhu et al. (2018), *Deformable ConvNets
/// v2*, arXiv:1811.11168.
#[derive(Module, Clone, Debug)]
pub struct DeformConv2d {
    /// `[out, in / groups, kh, kw]`.
    pub weight: Param,
    /// `[out]`, if there is one.
    pub bias: Option<Param>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
}

impl DeformConv2d {
    /// A layer from `in_channels` to `out_channels`. The padding consists of zeros.
    ///
    /// # Panics
    /// If the channels do not split into the groups, or the padding is not given by numbers.
    #[track_caller]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel_size: [usize; 2],
        config: &ConvConfig,
        device: &Device,
    ) -> DeformConv2d {
        let groups = config.options.groups;
        assert!(
            groups > 0 && in_channels.is_multiple_of(groups) && out_channels.is_multiple_of(groups),
            "DeformConv2d: {in_channels} and {out_channels} channels do not split into {groups} groups"
        );
        let pair = |sizes: &[usize]| match *sizes {
            [both] => [both, both],
            [height, width] => [height, width],
            _ => panic!("DeformConv2d: {sizes:?} are not sizes of 2 dims"),
        };
        let padding = match &config.options.padding {
            Padding::Each(sizes) => pair(sizes.as_slice()),
            Padding::Valid => [0, 0],
            Padding::Same => panic!("DeformConv2d: the padding is given by numbers"),
        };
        let fan_in = in_channels / groups * kernel_size[0] * kernel_size[1];
        let shape = [out_channels, in_channels / groups, kernel_size[0], kernel_size[1]];
        let bias = config.bias.then(|| Param::new(&init::fan_in_uniform([out_channels], fan_in, device)));
        DeformConv2d {
            weight: Param::new(&init::fan_in_uniform(shape, fan_in, device)),
            bias,
            kernel_size,
            stride: pair(config.options.stride.as_slice()),
            padding,
            dilation: pair(config.options.dilation.as_slice()),
            groups,
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the shapes do not fit together.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor, offset: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let ([kh, kw], places) = (self.kernel_size, self.kernel_size[0] * self.kernel_size[1]);
        let [out, per_group, ..] = self.weight.dims::<4>();
        let channels = per_group * self.groups;
        let refuse = |message| Error::shape("DeformConv2d", message).raise();
        if x.rank() != 4 || x.shape()[1] != channels {
            refuse(format!("x {} is not [n, {channels}, height, width]", x.shape()));
        }
        let [n, _, height, width] = x.dims();
        let reach = |i: usize, size: usize| {
            let kernel = self.dilation[i] * (self.kernel_size[i] - 1) + 1;
            (size + 2 * self.padding[i]).checked_sub(kernel).map(|rest| rest / self.stride[i] + 1)
        };
        let (Some(oh), Some(ow)) = (reach(0, height), reach(1, width)) else {
            refuse(format!("x {} is smaller than the kernel", x.shape()))
        };
        let offset_groups = if offset.rank() == 4 { offset.shape()[1] / (2 * places).max(1) } else { 0 };
        let fits = offset_groups > 0 && channels.is_multiple_of(offset_groups);
        if !fits || offset.shape()[..] != [n, 2 * offset_groups * places, oh, ow] {
            refuse(format!("offset {} is not [{n}, 2 · groups · {places}, {oh}, {ow}]", offset.shape()));
        }
        // Where each place of the kernel reads, in pixels: [n, groups, places, oh, ow].
        let moved = offset.reshape([n, offset_groups, places, 2, oh, ow]);
        let grid = |i: usize, kernel: &Tensor, outputs: usize| {
            let position = Tensor::arange(0, outputs, 1, DType::I64, x.device()) * self.stride[i] as i64;
            let start = kernel * self.dilation[i] as i64 - self.padding[i] as i64; // [places]
            (start.reshape([places, 1]) + position).to_dtype(offset.dtype()) // [places, outputs]
        };
        let place = Tensor::arange(0, places, 1, DType::I64, x.device());
        let column = place.remainder(kw as i64);
        let row = (&place - &column).div_trunc(kw as i64);
        let y = moved.select(3, 0) + grid(0, &row, oh).unsqueeze(-1);
        let x_at = moved.select(3, 1) + grid(1, &column, ow).unsqueeze(1);
        let read = self.read(x, &y, &x_at, offset_groups); // [n, groups, channels / groups, places, oh, ow]
        let read = match mask {
            None => read,
            Some(mask) if mask.shape()[..] == [n, offset_groups * places, oh, ow] => {
                read * mask.reshape([n, offset_groups, 1, places, oh, ow])
            }
            Some(mask) => refuse(format!("mask {} is not [{n}, groups · {places}, {oh}, {ow}]", mask.shape())),
        };
        let columns = read.reshape([n, self.groups, per_group * kh * kw, oh * ow]);
        let weight = self.weight.reshape([self.groups, out / self.groups, per_group * kh * kw]);
        let result = weight.matmul(&columns).reshape([n, out, oh, ow]);
        match &self.bias {
            Some(bias) => result + bias.reshape([out, 1, 1]),
            None => result,
        }
    }

    /// Bilinear reads of `[n, c, height, width]` at `y` and `x` `[n, groups, places, oh, ow]`.
    #[track_caller]
    fn read(&self, image: &Tensor, y: &Tensor, x: &Tensor, groups: usize) -> Tensor {
        let [n, channels, height, width] = image.dims();
        let [_, _, places, oh, ow] = y.dims();
        let flat = image.reshape([n, groups, channels / groups, height * width]);
        let (top, left) = (y.detach().floor(), x.detach().floor());
        let mut sum: Option<Tensor> = None;
        for (down, right) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
            let (row, column) = (&top + down, &left + right);
            let weight = (1.0 - (y - &row).abs()) * (1.0 - (x - &column).abs());
            let within = |at: &Tensor, size: usize| at.ge(0.0).logical_and(&at.lt(size as f64));
            let inside = within(&row, height).logical_and(&within(&column, width));
            let weight = inside.where_(weight, 0.0).to_dtype(image.dtype());
            let limit = |at: &Tensor, size: usize| at.maximum(0.0).minimum(size as f64 - 1.0).to_dtype(DType::I64);
            let index = limit(&row, height) * width as i64 + limit(&column, width);
            let index = index.reshape([n, groups, 1, places * oh * ow]);
            let index = index.expand([n, groups, channels / groups, places * oh * ow]);
            let read = flat.gather(-1, &index).reshape([n, groups, channels / groups, places, oh, ow]);
            let term = read * weight.unsqueeze(2);
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        sum.expect("there are four corners")
    }
}
