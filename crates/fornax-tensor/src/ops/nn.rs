//! Convolution, pooling, normalization, activations and losses as functions of tensors.

use super::elementwise::float;
use crate::autodiff::{Reads, with_rule};
use crate::dims::{IntoDim, keepdim, resolve_dim};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{self, cast, reduce, reshape};
use crate::{DType, Error, Result, Shape, Tensor};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{ConvSpec, Dims, Op, ReduceOp, WindowDim, WindowSpec};
use fornax_macros::ops;
use smallvec::SmallVec;

/// One setting for all spatial dims, or one for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerDim(SmallVec<[usize; 3]>);

impl PerDim {
    /// The one setting, or those of each dim.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// The settings for `dims` spatial dims.
    pub(crate) fn resolve(&self, op: &str, what: &str, dims: usize) -> Result<Dims> {
        match self.0.len() {
            1 => Ok(Dims::from_elem(self.0[0], dims)),
            len if len == dims => Ok(self.0.iter().copied().collect()),
            len => Err(Error::argument(op, format!("{what} has {len} entries for {dims} spatial dims"))),
        }
    }
}

impl From<usize> for PerDim {
    fn from(value: usize) -> PerDim {
        PerDim(SmallVec::from_slice(&[value]))
    }
}

impl<const N: usize> From<[usize; N]> for PerDim {
    fn from(values: [usize; N]) -> PerDim {
        PerDim(SmallVec::from_slice(&values))
    }
}

impl From<Vec<usize>> for PerDim {
    fn from(values: Vec<usize>) -> PerDim {
        PerDim(values.into_iter().collect())
    }
}

/// Zeros around the input of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// As many before as after.
    Each(PerDim),
    /// As many as keep the size, for stride 1; an odd one goes behind.
    Same,
    /// None.
    Valid,
}

impl<T: Into<PerDim>> From<T> for Padding {
    fn from(padding: T) -> Padding {
        Padding::Each(padding.into())
    }
}

/// Settings of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvOptions {
    /// Distance between positions of the kernel; 1.
    pub stride: PerDim,
    /// Zeros around the input; none.
    pub padding: Padding,
    /// Distance between elements of the kernel; 1.
    pub dilation: PerDim,
    /// Independent groups of channels; 1.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions { stride: 1.into(), padding: Padding::Valid, dilation: 1.into(), groups: 1 }
    }
}

/// Settings of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeOptions {
    /// Distance between elements of the input in the result; 1.
    pub stride: PerDim,
    /// How much is cut off on each side of the result; none.
    pub padding: PerDim,
    /// How much longer the result is at its end; none. Less than the stride or the dilation.
    pub output_padding: PerDim,
    /// Distance between elements of the kernel; 1.
    pub dilation: PerDim,
    /// Independent groups of channels; 1.
    pub groups: usize,
}

impl Default for ConvTransposeOptions {
    fn default() -> ConvTransposeOptions {
        ConvTransposeOptions {
            stride: 1.into(),
            padding: 0.into(),
            output_padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
        }
    }
}

/// Settings of max pooling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Size of a window.
    pub kernel_size: PerDim,
    /// Distance between windows; the window's size if not given.
    pub stride: Option<PerDim>,
    /// Border that counts as −∞ (max) or 0 (average); none.
    pub padding: PerDim,
    /// Distance between elements of a window; 1.
    pub dilation: PerDim,
    /// Whether a window may hang over the end; false.
    pub ceil_mode: bool,
}

impl PoolOptions {
    /// Windows of `kernel_size`, side by side.
    pub fn new(kernel_size: impl Into<PerDim>) -> PoolOptions {
        PoolOptions {
            kernel_size: kernel_size.into(),
            stride: None,
            padding: 0.into(),
            dilation: 1.into(),
            ceil_mode: false,
        }
    }
}

/// What becomes of the losses of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// They stay.
    None,
    /// Their mean (weighted, where there are weights).
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// The mean, the sum, or all.
    #[track_caller]
    pub(crate) fn apply(self, losses: &Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Mean => losses.try_mean(()),
            Reduction::Sum => losses.try_sum(()),
        }
    }

    /// PyTorch's name of it.
    pub(crate) fn from_name(name: &str) -> Result<Reduction> {
        match name {
            "none" => Ok(Reduction::None),
            "mean" => Ok(Reduction::Mean),
            "sum" => Ok(Reduction::Sum),
            _ => Err(Error::argument("loss", format!("there is no reduction {name:?}; there are none, mean, sum"))),
        }
    }
}

/// Settings of cross entropy.
#[derive(Clone, Debug)]
pub struct CrossEntropyOptions {
    /// A weight for each class.
    pub weight: Option<Tensor>,
    /// Targets of this class count for nothing; −100.
    pub ignore_index: i64,
    /// Mean, sum, or all.
    pub reduction: Reduction,
    /// How much of the target is spread over all classes; 0.
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions {
    fn default() -> CrossEntropyOptions {
        CrossEntropyOptions { weight: None, ignore_index: -100, reduction: Reduction::Mean, label_smoothing: 0.0 }
    }
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `max(self, 0)`.
    #[op(torch = ["nn.functional.relu", "relu"])]
    pub fn relu(&self) -> Result<Tensor> {
        // Not `maximum`: its gradient at 0 is 1/2, that of relu is 0.
        self.try_le(0.0)?.try_where_(0.0, self)?.try_to_dtype(self.dtype())
    }

    /// `1 / (1 + e^(−self))`.
    #[op(torch = ["sigmoid", "special.expit", "nn.functional.sigmoid"])]
    pub fn sigmoid(&self) -> Result<Tensor> {
        let x = float(self)?;
        let y = wide(&x.detach(), |x| (x.neg().exp() + 1.0).reciprocal());
        // From the result: through the exponential, 0 · ∞ would be NaN for large inputs.
        Ok(with_rule(&x, y, Reads::Output, |y, dy| dy * y * (1.0 - y)))
    }

    /// `self · sigmoid(self)`, also called swish.
    #[op(torch = ["nn.functional.silu"])]
    pub fn silu(&self) -> Result<Tensor> {
        let x = float(self)?;
        Ok(wide(&x, |x| x * x.sigmoid()))
    }

    /// `self · Φ(self)` with the normal distribution function Φ, by the error function.
    ///
    /// # References
    /// Hendrycks, Gimpel (2016), *Gaussian Error Linear Units*, arXiv:1606.08415.
    #[op(torch = ["nn.functional.gelu"], call = call_gelu)]
    pub fn gelu(&self) -> Result<Tensor> {
        let x = float(self)?;
        Ok(wide(&x, |x| x * 0.5 * ((x * core::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)))
    }

    /// GELU with `Φ` by the hyperbolic tangent: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    #[op(torch = [])]
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        let x = float(self)?;
        Ok(wide(&x, |x| {
            let inner =
                (x + x * x * x * 0.044_715) * (core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::FRAC_1_SQRT_2);
            x * 0.5 * (inner.tanh() + 1.0)
        }))
    }

    /// `e^(x_i) / Σ e^x` along `dim`.
    #[op(with(dim = i64), torch = ["softmax", "nn.functional.softmax", "special.softmax"], call = call_softmax, autocast = high)]
    pub fn softmax(&self, dim: impl IntoDim) -> Result<Tensor> {
        let x = float(self)?;
        let axis = resolve_dim("softmax", dim.into_dim(), x.shape())?;
        if x.rank() == 0 || x.numel() == 0 {
            return Ok(x.ones_like());
        }
        let y = wide(&x.detach(), |x| {
            let e = (x - x.amax(keepdim(axis))).exp();
            &e / e.sum(keepdim(axis))
        });
        Ok(with_rule(&x, y, Reads::Output, move |y, dy| {
            let weighted = dy * y;
            &weighted - y * weighted.sum(keepdim(axis))
        }))
    }

    /// `x_i − ln Σ e^x` along `dim`.
    #[op(with(dim = i64), torch = ["log_softmax", "nn.functional.log_softmax", "special.log_softmax"], call = call_log_softmax, autocast = high)]
    pub fn log_softmax(&self, dim: impl IntoDim) -> Result<Tensor> {
        let x = float(self)?;
        let axis = resolve_dim("log_softmax", dim.into_dim(), x.shape())?;
        if x.rank() == 0 || x.numel() == 0 {
            return Ok(x.zeros_like());
        }
        let y = wide(&x.detach(), |x| {
            let shifted = x - x.amax(keepdim(axis));
            &shifted - shifted.exp().sum(keepdim(axis)).log()
        });
        Ok(with_rule(&x, y, Reads::Output, move |y, dy| dy - y.exp() * dy.sum(keepdim(axis))))
    }

    /// `self · weightᵀ + bias`: `[…, in]` with `weight [out, in]`, `bias [out]` gives `[…, out]`.
    #[op(torch = ["nn.functional.linear"], autocast = low)]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let y = self.try_matmul(&weight.try_t()?).map_err(|error| error.named("linear"))?;
        match bias {
            Some(bias) => y.try_add(bias),
            None => Ok(y),
        }
    }

    /// Cross-correlation of `[n, in, length]` with `weight [out, in / groups, kernel]`.
    #[op(torch = ["nn.functional.conv1d"], autocast = low)]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Result<Tensor> {
        conv("conv1d", 1, self, weight, bias, options)
    }

    /// Cross-correlation of `[n, in, height, width]` with `weight [out, in / groups, kernel…]`.
    #[op(torch = ["nn.functional.conv2d"], autocast = low)]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Result<Tensor> {
        conv("conv2d", 2, self, weight, bias, options)
    }

    /// Cross-correlation of `[n, in, depth, height, width]` with `weight [out, in / groups, kernel…]`.
    #[op(torch = ["nn.functional.conv3d"], autocast = low)]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Result<Tensor> {
        conv("conv3d", 3, self, weight, bias, options)
    }

    /// The transpose of [`Tensor::conv1d`]: `[n, in, length]` with `weight [in, out / groups, kernel]`.
    #[op(torch = ["nn.functional.conv_transpose1d"], autocast = low)]
    pub fn conv_transpose1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions,
    ) -> Result<Tensor> {
        conv_transpose("conv_transpose1d", 1, self, weight, bias, options)
    }

    /// The transpose of [`Tensor::conv2d`]: `[n, in, height, width]` with `weight [in, out / groups, kernel…]`.
    #[op(torch = ["nn.functional.conv_transpose2d"], autocast = low)]
    pub fn conv_transpose2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions,
    ) -> Result<Tensor> {
        conv_transpose("conv_transpose2d", 2, self, weight, bias, options)
    }

    /// The transpose of [`Tensor::conv3d`]: `[n, in, depth, height, width]` with `weight [in, out / groups, kernel…]`.
    #[op(torch = ["nn.functional.conv_transpose3d"], autocast = low)]
    pub fn conv_transpose3d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions,
    ) -> Result<Tensor> {
        conv_transpose("conv_transpose3d", 3, self, weight, bias, options)
    }

    /// Largest of each window of `[n, c, length]`, and its position in the (flattened) spatial dims.
    #[op(torch = ["nn.functional.max_pool1d"], call = call_max_pool1d)]
    pub fn max_pool1d(&self, options: &PoolOptions) -> Result<(Tensor, Tensor)> {
        max_pool("max_pool1d", 1, self, options)
    }

    /// Largest of each window of `[n, c, height, width]`, and its position in the flattened spatial dims.
    #[op(torch = ["nn.functional.max_pool2d"], call = call_max_pool2d)]
    pub fn max_pool2d(&self, options: &PoolOptions) -> Result<(Tensor, Tensor)> {
        max_pool("max_pool2d", 2, self, options)
    }

    /// Largest of each window of `[n, c, depth, height, width]`, and its position in the flattened spatial dims.
    #[op(torch = ["nn.functional.max_pool3d"], call = call_max_pool3d)]
    pub fn max_pool3d(&self, options: &PoolOptions) -> Result<(Tensor, Tensor)> {
        max_pool("max_pool3d", 3, self, options)
    }

    /// Cross entropy of logits `[n, classes, …]` with class numbers `[n, …]` or class probabilities `[n, classes, …]`;
    /// without the batch dim: `[classes]` with `[]`.
    #[op(torch = ["nn.functional.cross_entropy"], autocast = high)]
    pub fn cross_entropy_with(&self, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
        cross_entropy(self, target, options)
    }

    /// Each element is 0 with probability `p`, else divided by `1 − p`. The mask is computed again for the gradient,
    /// not kept.
    #[op(torch = [])]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument("dropout", format!("probability {p} is not between 0 and 1")));
        }
        if p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return Ok(self * 0.0);
        }
        let keep = Tensor::rand(self.shape(), self.device()).ge(p);
        keep.try_where_(self.try_mul(1.0 / (1.0 - p))?, 0.0)?.try_to_dtype(self.dtype())
    }
}

impl Tensor {
    /// Mean cross entropy of logits `[n, classes, …]` with class numbers `[n, …]` or probabilities `[n, classes, …]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    #[must_use]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        self.cross_entropy_with(target, &CrossEntropyOptions::default())
    }
}

/// Computed in `f32` for halves and rounded once.
#[track_caller]
pub(crate) fn wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    if x.dtype().compute() == x.dtype() {
        return f(x);
    }
    f(&x.to_dtype(x.dtype().compute())).to_dtype(x.dtype())
}

#[track_caller]
fn conv(
    op: &str,
    spatial: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvOptions,
) -> Result<Tensor> {
    // A single image without the batch dim is taken as a batch of one.
    if x.rank() == spatial + 1 {
        let y = conv(op, spatial, &x.try_unsqueeze(0)?, weight, bias, options)?;
        return y.try_squeeze(0);
    }
    let stride = options.stride.resolve(op, "stride", spatial)?;
    let dilation = options.dilation.resolve(op, "dilation", spatial)?;
    let padding = match &options.padding {
        Padding::Valid => SmallVec::from_elem((0, 0), spatial),
        Padding::Each(padding) => {
            padding.resolve(op, "padding", spatial)?.iter().map(|&n| (n as isize, n as isize)).collect()
        }
        Padding::Same => {
            if stride.iter().any(|&stride| stride != 1) {
                return Err(Error::argument(op, "padding `same` goes with stride 1 only"));
            }
            if weight.rank() != spatial + 2 {
                return Err(Error::shape(op, format!("weight {} is not of rank {}", weight.shape(), spatial + 2)));
            }
            let span = |dim: usize| dilation[dim] * weight.shape()[dim + 2].saturating_sub(1);
            (0..spatial).map(|dim| ((span(dim) / 2) as isize, (span(dim) - span(dim) / 2) as isize)).collect()
        }
    };
    let input_dilation = Dims::from_elem(1, spatial);
    let spec = ConvSpec { stride, padding, dilation, input_dilation, groups: options.groups };
    let y = primitive::record(Op::Conv(Box::new(spec)), &[x, weight], None).map_err(|error| error.named(op))?;
    match bias {
        Some(bias) => add_bias(op, &y, bias, weight.shape()[0]),
        None => Ok(y),
    }
}

/// A convolution over the input with zeros between its elements, under the flipped kernel.
#[track_caller]
fn conv_transpose(
    op: &str,
    spatial: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvTransposeOptions,
) -> Result<Tensor> {
    if x.rank() == spatial + 1 {
        return conv_transpose(op, spatial, &x.try_unsqueeze(0)?, weight, bias, options)?.try_squeeze(0);
    }
    let stride = options.stride.resolve(op, "stride", spatial)?;
    let padding = options.padding.resolve(op, "padding", spatial)?;
    let extra = options.output_padding.resolve(op, "output_padding", spatial)?;
    let dilation = options.dilation.resolve(op, "dilation", spatial)?;
    let groups = options.groups;
    if x.rank() != spatial + 2 || weight.rank() != spatial + 2 {
        let message = format!("x {} and weight {} are not of rank {}", x.shape(), weight.shape(), spatial + 2);
        return Err(Error::shape(op, message));
    }
    let (inputs, out_group) = (weight.shape()[0], weight.shape()[1]);
    if groups == 0 || x.shape()[1] != inputs || inputs % groups != 0 {
        let message = format!("x {} does not fit weight {} in {groups} groups", x.shape(), weight.shape());
        return Err(Error::shape(op, message));
    }
    if (0..spatial).any(|dim| extra[dim] >= stride[dim].max(dilation[dim])) {
        let message = format!("output padding {extra:?} is not less than stride {stride:?} or dilation {dilation:?}");
        return Err(Error::argument(op, message));
    }
    // [in, out / g, k…] to [out, in / g, k…], flipped.
    let kernel = &weight.shape()[2..];
    let grouped: Shape = [groups, inputs / groups, out_group].into_iter().chain(kernel.iter().copied()).collect();
    let swapped: Shape = [groups * out_group, inputs / groups].into_iter().chain(kernel.iter().copied()).collect();
    let mut perm: Dims = (0..grouped.rank()).collect();
    perm.swap(1, 2);
    let turned = reshape(&primitive::permute(&reshape(weight, &grouped)?, &perm)?, &swapped)?;
    let turned = turned.try_flip((2..spatial + 2).map(|dim| dim as i64).collect::<Vec<_>>())?;
    let border = (0..spatial).map(|dim| {
        let span = (dilation[dim] * kernel[dim].saturating_sub(1)) as isize;
        (span - padding[dim] as isize, span - padding[dim] as isize + extra[dim] as isize)
    });
    let spec = ConvSpec {
        stride: Dims::from_elem(1, spatial),
        padding: border.collect(),
        dilation,
        input_dilation: stride,
        groups,
    };
    let y = primitive::record(Op::Conv(Box::new(spec)), &[x, &turned], None).map_err(|error| error.named(op))?;
    match bias {
        Some(bias) => add_bias(op, &y, bias, groups * out_group),
        None => Ok(y),
    }
}

/// A number for each channel.
#[track_caller]
fn add_bias(op: &str, y: &Tensor, bias: &Tensor, channels: usize) -> Result<Tensor> {
    if bias.shape()[..] != [channels] {
        return Err(Error::shape(op, format!("bias {} does not fit {channels} channels", bias.shape())));
    }
    let mut shape = Shape::from(Dims::from_elem(1, y.rank() - 1));
    shape.dims_mut()[0] = channels;
    y.try_add(reshape(bias, &shape)?)
}

/// Padding before and after each dim.
type Border = Vec<(usize, usize)>;

/// Windows over the last `spatial` dims, after padding with `border`; the numbers of windows fit PyTorch's rule.
#[track_caller]
pub(crate) fn windows(
    op: &str,
    spatial: usize,
    x: &Tensor,
    options: &PoolOptions,
    border: f64,
) -> Result<(Tensor, WindowSpec, Border)> {
    if x.rank() != spatial + 1 && x.rank() != spatial + 2 {
        let message = format!("x {} is not of rank {} or {}", x.shape(), spatial + 1, spatial + 2);
        return Err(Error::shape(op, message));
    }
    let size = options.kernel_size.resolve(op, "kernel_size", spatial)?;
    let step = match &options.stride {
        Some(stride) => stride.resolve(op, "stride", spatial)?,
        None => size.clone(),
    };
    let padding = options.padding.resolve(op, "padding", spatial)?;
    let dilation = options.dilation.resolve(op, "dilation", spatial)?;
    let outer = x.rank() - spatial;
    let mut pads = vec![(0, 0); x.rank()];
    let mut spec = WindowSpec { dims: SmallVec::new() };
    for dim in 0..spatial {
        if size[dim] == 0 || step[dim] == 0 || dilation[dim] == 0 {
            return Err(Error::argument(op, "kernel size, stride and dilation are at least 1"));
        }
        if padding[dim] * 2 > size[dim] {
            let message = format!("padding {} is more than half of kernel size {}", padding[dim], size[dim]);
            return Err(Error::argument(op, message));
        }
        let window = WindowDim { size: size[dim], step: step[dim], dilation: dilation[dim] };
        let n = x.shape()[outer + dim];
        let padded = n + 2 * padding[dim];
        if padded < window.span() {
            let message =
                format!("a window of {} does not fit padded x {} (spatial dim {dim})", window.span(), x.shape());
            return Err(Error::shape(op, message));
        }
        let mut extra = 0;
        if options.ceil_mode {
            let mut count = (padded - window.span()).div_ceil(window.step) + 1;
            // The last window must begin inside the input or its left border.
            if (count - 1) * window.step >= n + padding[dim] {
                count -= 1;
            }
            extra = ((count - 1) * window.step + window.span()).saturating_sub(padded);
        }
        pads[outer + dim] = (padding[dim], padding[dim] + extra);
        spec.dims.push(window);
    }
    let padded = if pads.iter().all(|&pad| pad == (0, 0)) { x.clone() } else { x.pad_dims(&pads, border) };
    Ok((primitive::window(&padded, spec.clone())?, spec, pads))
}

#[track_caller]
fn max_pool(op: &str, spatial: usize, x: &Tensor, options: &PoolOptions) -> Result<(Tensor, Tensor)> {
    let detached = x.detach();
    let (windows, spec, pads) = windows(op, spatial, &detached, options, f64::NEG_INFINITY)?;
    let rank = windows.rank();
    let inner: Dims = (rank - spatial..rank).collect();
    let best = reduce(ReduceOp::ArgMax, &windows, &inner)?;
    let outer = x.rank() - spatial;
    let count_shape: Shape = windows.shape()[..rank - spatial].into();
    let best = reshape(&best, &count_shape)?;
    // From the position within a window to that in the flattened spatial dims.
    let mut flat = Tensor::full(&count_shape, 0, DType::I64, x.device());
    let mut below: usize = spec.dims.iter().map(|window| window.size).product();
    for (dim, window) in spec.dims.iter().enumerate() {
        below /= window.size;
        let within = best.try_div_floor(below as i64)?.try_remainder(window.size as i64)?;
        let number = primitive::source(Op::Iota { dim: outer + dim }, DType::I64, count_shape.clone(), x.device());
        let place = within.try_mul(window.dilation as i64)?.try_add(number.try_mul(window.step as i64)?)?;
        let place = place.try_sub(pads[outer + dim].0 as i64)?;
        flat = flat.try_mul(x.shape()[outer + dim] as i64)?.try_add(&place)?;
    }
    let plane: usize = x.shape()[outer..].iter().product();
    let planes: Shape = x.shape()[..outer].iter().copied().chain([plane]).collect();
    let picks: Shape = count_shape[..outer].iter().copied().chain([count_shape[outer..].iter().product()]).collect();
    let values = if x.is_tracked() {
        primitive::gather(&reshape(x, &planes)?, outer, &reshape(&flat, &picks)?)?
    } else {
        reduce(ReduceOp::Max, &windows, &inner)?
    };
    Ok((reshape(&values, &count_shape)?, flat))
}

#[track_caller]
fn cross_entropy(logits: &Tensor, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
    let class_dim = usize::from(logits.rank() > 1);
    if logits.rank() == 0 {
        return Err(Error::shape("cross_entropy", "logits need a class dim, got []"));
    }
    let classes = logits.shape()[class_dim];
    let log_p = logits.try_log_softmax(class_dim)?;
    // A weight for each class, shaped to stand along the class dim.
    let mut class_shape = Shape::from(Dims::from_elem(1, logits.rank()));
    class_shape.dims_mut()[class_dim] = classes;
    let weight = options.weight.as_ref().map(|weight| weight.try_reshape(&class_shape)).transpose()?;
    let smoothing = options.label_smoothing;
    if target.dtype().is_float() {
        if target.shape() != logits.shape() {
            let message = format!("probabilities {} do not fit logits {}", target.shape(), logits.shape());
            return Err(Error::shape("cross_entropy", message));
        }
        let smooth = target.try_mul(1.0 - smoothing)?.try_add(smoothing / classes as f64)?;
        let weighted = match &weight {
            Some(weight) => smooth.try_mul(weight)?,
            None => smooth,
        };
        let losses = weighted.try_mul(&log_p)?.try_sum(class_dim)?.try_neg()?;
        let batch = losses.numel();
        return match options.reduction {
            Reduction::Mean => losses.try_sum(())?.try_div(batch as f64),
            other => other.apply(&losses),
        };
    }
    let expected: Shape = (0..logits.rank()).filter(|&dim| dim != class_dim).map(|dim| logits.shape()[dim]).collect();
    if *target.shape() != expected {
        let message = format!("targets {} do not fit logits {}; expected {expected}", target.shape(), logits.shape());
        return Err(Error::shape("cross_entropy", message));
    }
    let target = cast(target, DType::I64)?.try_unsqueeze(class_dim)?;
    let valid = target.try_ne(options.ignore_index)?;
    let safe = valid.try_where_(&target, 0)?;
    let picked_weight = match &weight {
        Some(weight) => {
            let full = weight.try_expand(logits.shape())?;
            primitive::gather(&cast(&full, log_p.dtype())?, class_dim, &safe)?
        }
        None => Tensor::full(safe.shape(), 1.0, log_p.dtype(), logits.device()),
    };
    let picked_weight = valid.try_where_(&picked_weight, 0.0)?.try_to_dtype(log_p.dtype())?;
    let nll = primitive::gather(&log_p, class_dim, &safe)?.try_neg()?;
    let mut losses = valid.try_where_(nll.try_mul(&picked_weight)?, 0.0)?;
    if smoothing > 0.0 {
        let spread = match &weight {
            Some(weight) => log_p.try_mul(weight)?,
            None => log_p.clone(),
        };
        let smooth = valid.try_where_(spread.try_sum(keepdim(class_dim))?.try_neg()?, 0.0)?;
        losses = losses.try_mul(1.0 - smoothing)?.try_add(smooth.try_mul(smoothing / classes as f64)?)?;
    }
    match options.reduction {
        Reduction::None => losses.try_squeeze(class_dim),
        Reduction::Sum => losses.try_sum(()),
        Reduction::Mean => losses.try_sum(())?.try_div(picked_weight.try_sum(())?),
    }
}

fn call_gelu(args: &Args) -> Result<Vec<Tensor>> {
    let x = args.get::<Tensor>("input")?;
    let y = match args.get::<Option<String>>("approximate")?.as_deref() {
        None | Some("none") => x.try_gelu()?,
        Some("tanh") => x.try_gelu_tanh()?,
        Some(other) => return Err(Error::argument("gelu", format!("there is no approximation {other:?}"))),
    };
    Ok(vec![y])
}

/// The input, in the dtype that the argument `dtype` asks for.
fn converted(args: &Args) -> Result<Tensor> {
    let input = args.get::<Tensor>("input")?;
    match args.get::<Option<DType>>("dtype")? {
        Some(dtype) => cast(&input, dtype),
        None => Ok(input),
    }
}

fn call_softmax(args: &Args) -> Result<Vec<Tensor>> {
    Ok(vec![converted(args)?.try_softmax(args.get::<i64>("dim")?)?])
}

fn call_log_softmax(args: &Args) -> Result<Vec<Tensor>> {
    Ok(vec![converted(args)?.try_log_softmax(args.get::<i64>("dim")?)?])
}

/// The values, and the positions if `return_indices` asks for them.
fn pooled(args: &Args, (values, positions): (Tensor, Tensor)) -> Result<Vec<Tensor>> {
    let both = args.get::<Option<bool>>("return_indices")?.unwrap_or(false);
    Ok(if both { vec![values, positions] } else { vec![values] })
}

fn call_max_pool1d(args: &Args) -> Result<Vec<Tensor>> {
    pooled(args, args.get::<Tensor>("input")?.try_max_pool1d(&args.get("options")?)?)
}

fn call_max_pool2d(args: &Args) -> Result<Vec<Tensor>> {
    pooled(args, args.get::<Tensor>("input")?.try_max_pool2d(&args.get("options")?)?)
}

fn call_max_pool3d(args: &Args) -> Result<Vec<Tensor>> {
    pooled(args, args.get::<Tensor>("input")?.try_max_pool3d(&args.get("options")?)?)
}

impl FromArg for PerDim {
    fn from_arg(arg: &Arg) -> Option<PerDim> {
        Some(PerDim::from(Vec::<usize>::from_arg(arg)?))
    }
}

/// The argument called `name`, or `default` where it is missing or an empty list.
fn per_dim(args: &Args, name: &str, default: usize) -> Option<PerDim> {
    let list = args.get::<Option<Vec<usize>>>(name).ok()?.unwrap_or_default();
    Some(if list.is_empty() { default.into() } else { list.into() })
}

/// Read from the arguments `stride`, `padding`, `dilation` and `groups`.
impl FromArg for ConvOptions {
    fn from_arg(_: &Arg) -> Option<ConvOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<ConvOptions> {
        let padding = match args.get::<Arg>("padding").ok()? {
            Arg::Str(name) if name == "same" => Padding::Same,
            Arg::Str(name) if name == "valid" => Padding::Valid,
            Arg::Str(_) => return None,
            _ => Padding::Each(per_dim(args, "padding", 0)?),
        };
        Some(ConvOptions {
            stride: per_dim(args, "stride", 1)?,
            padding,
            dilation: per_dim(args, "dilation", 1)?,
            groups: args.get::<Option<usize>>("groups").ok()?.unwrap_or(1),
        })
    }
}

/// Read from the arguments of the same names.
impl FromArg for ConvTransposeOptions {
    fn from_arg(_: &Arg) -> Option<ConvTransposeOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<ConvTransposeOptions> {
        Some(ConvTransposeOptions {
            stride: per_dim(args, "stride", 1)?,
            padding: per_dim(args, "padding", 0)?,
            output_padding: per_dim(args, "output_padding", 0)?,
            dilation: per_dim(args, "dilation", 1)?,
            groups: args.get::<Option<usize>>("groups").ok()?.unwrap_or(1),
        })
    }
}

/// Read from the arguments `kernel_size`, `stride`, `padding`, `dilation` and `ceil_mode`.
impl FromArg for PoolOptions {
    fn from_arg(_: &Arg) -> Option<PoolOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<PoolOptions> {
        let stride = args.get::<Option<Vec<usize>>>("stride").ok()?.unwrap_or_default();
        Some(PoolOptions {
            kernel_size: args.get("kernel_size").ok()?,
            stride: (!stride.is_empty()).then(|| stride.into()),
            padding: per_dim(args, "padding", 0)?,
            dilation: per_dim(args, "dilation", 1)?,
            ceil_mode: args.get::<Option<bool>>("ceil_mode").ok()?.unwrap_or(false),
        })
    }
}

/// Read from the arguments `weight`, `ignore_index`, `reduction` and `label_smoothing`.
impl FromArg for CrossEntropyOptions {
    fn from_arg(_: &Arg) -> Option<CrossEntropyOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<CrossEntropyOptions> {
        let reduction = args.get::<Option<String>>("reduction").ok()?;
        Some(CrossEntropyOptions {
            weight: args.get("weight").ok()?,
            ignore_index: args.get::<Option<i64>>("ignore_index").ok()?.unwrap_or(-100),
            reduction: reduction.map_or(Ok(Reduction::Mean), |name| Reduction::from_name(&name)).ok()?,
            label_smoothing: args.get::<Option<f64>>("label_smoothing").ok()?.unwrap_or(0.0),
        })
    }
}
