//! Resampling of images: interpolation, grid sampling, padding by rule, and rearranging of channels.

use super::pool::weighted_gather;
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{self, cast, gather, permute, reshape};
use crate::{DType, Error, Result, Scalar, Shape, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Dims;
use fornax_macros::ops;

/// How values between pixels are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InterpolateMode {
    /// The pixel at `⌊i · scale⌋`, as older PyTorch and OpenCV choose.
    #[default]
    Nearest,
    /// The nearest pixel centre, as PIL and scikit-image choose.
    NearestExact,
    /// Linear along each dim (bilinear, trilinear).
    Linear,
    /// Cubic convolution with a = −0.75 along each dim.
    ///
    /// Keys (1981), *Cubic Convolution Interpolation for Digital Image Processing*.
    Cubic,
    /// Means over the area of each new pixel.
    Area,
}

/// How many pixels the result has.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeTo {
    /// So many in each spatial dim.
    Size(Vec<usize>),
    /// So many times as many; one factor for all spatial dims, or one for each. Coordinates use the factor itself.
    Scale(Vec<f64>),
    /// So many in each spatial dim, with coordinates by factors that need not fit the sizes.
    SizeByScale(Vec<usize>, Vec<f64>),
}

/// Settings of interpolation.
#[derive(Clone, Debug, PartialEq)]
pub struct InterpolateOptions {
    /// The new sizes.
    pub to: ResizeTo,
    /// How values between pixels are found; nearest.
    pub mode: InterpolateMode,
    /// Whether the centres of the corner pixels stay (linear and cubic); false: the outer edges stay.
    pub align_corners: bool,
    /// Whether a scale factor only sets the sizes, and coordinates use their ratio; false.
    pub recompute_scale_factor: bool,
    /// Whether shrinking averages over all pixels that a new one covers (linear and cubic); false.
    pub antialias: bool,
}

impl InterpolateOptions {
    /// To new sizes or by factors, in a mode.
    pub fn new(to: ResizeTo, mode: InterpolateMode) -> InterpolateOptions {
        InterpolateOptions { to, mode, align_corners: false, recompute_scale_factor: false, antialias: false }
    }
}

/// What lies outside an image that is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image mirrored at its edges.
    Reflection,
}

/// Settings of grid sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GridSampleOptions {
    /// Linear, nearest or cubic; linear in PyTorch, nearest by [`Default`] of the mode.
    pub mode: InterpolateMode,
    /// What lies outside; zeros.
    pub padding: GridPadding,
    /// Whether −1 and 1 are the centres of the corner pixels, or their outer edges; false.
    pub align_corners: bool,
}

/// How a border is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// With one value.
    Constant(f64),
    /// With the elements mirrored at the edge, which stands once.
    Reflect,
    /// With the edge.
    Replicate,
    /// With the other end.
    Circular,
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `[n, c, spatial…]` with other spatial sizes.
    #[op(torch = ["nn.functional.interpolate.nearest", "nn.functional.interpolate.nearest-exact",
        "nn.functional.interpolate.linear", "nn.functional.interpolate.bilinear",
        "nn.functional.interpolate.trilinear", "nn.functional.interpolate.bicubic",
        "nn.functional.interpolate.area", "nn.functional.interpolate", "_upsample_bilinear2d_aa"])]
    pub fn interpolate(&self, options: &InterpolateOptions) -> Result<Tensor> {
        let Some(spatial) = self.rank().checked_sub(2).filter(|&spatial| (1..=3).contains(&spatial)) else {
            let message = format!("{} is not [n, c, spatial…] with 1 to 3 spatial dims", self.shape());
            return Err(Error::shape("interpolate", message));
        };
        let input = &self.shape()[2..];
        let (sizes, factors) = target_sizes(options, input)?;
        if sizes.contains(&0) || input.contains(&0) {
            return Err(Error::shape("interpolate", format!("from {input:?} to {sizes:?}: sizes are at least 1")));
        }
        if options.mode == InterpolateMode::Area {
            let parts: Vec<Option<usize>> = sizes.iter().map(|&size| Some(size)).collect();
            return match spatial {
                1 => self.try_adaptive_avg_pool1d(&parts),
                2 => self.try_adaptive_avg_pool2d(&parts),
                _ => self.try_adaptive_avg_pool3d(&parts),
            };
        }
        let mut y = cast(self, self.dtype().compute())?;
        for dim in 0..spatial {
            let scale =
                Scale { from: input[dim], to: sizes[dim], factor: factors[dim], corners: options.align_corners };
            if scale.is_identity() {
                continue;
            }
            let (positions, weights) = taps(options, &scale);
            y = weighted_gather(&y, 2 + dim, &positions, &weights, sizes[dim])?;
        }
        cast(&y, self.dtype())
    }

    /// Values of `[n, c, height, width]` (or `[n, c, depth, height, width]`) at the places that `grid [n, …, 2 or 3]`
    /// names: the last dim holds x, y (z) from −1 to 1. Places that are not finite are taken as the border.
    #[op(torch = ["nn.functional.grid_sample"])]
    pub fn grid_sample(&self, grid: &Tensor, options: &GridSampleOptions) -> Result<Tensor> {
        grid_sample(self, grid, options)
    }

    /// Grids for [`Tensor::grid_sample`] of affine maps `theta [n, 2, 3]` (or `[n, 3, 4]`): `size` is that of the
    /// sampled result, `[n, c, height, width]` (or `[n, c, depth, height, width]`).
    #[op(torch = ["nn.functional.affine_grid"], rename(self = "theta"), default(align_corners = false))]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        let spatial = size.len().saturating_sub(2);
        if !(2..=3).contains(&spatial) || self.shape()[..] != [size[0], spatial, spatial + 1] {
            let message = format!("theta {} does not fit the size {size:?}", self.shape());
            return Err(Error::shape("affine_grid", message));
        }
        let dims = &size[2..];
        let full: Shape = dims.iter().copied().collect();
        let mut columns = Vec::new();
        // x belongs to the last dim, y to the one before.
        for dim in (0..spatial).rev() {
            let n = dims[dim];
            let place = |i: usize| match (align_corners, n) {
                (_, 1) if align_corners => 0.0,
                (true, _) => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
                (false, _) => (2.0 * i as f64 + 1.0) / n as f64 - 1.0,
            };
            let mut shape = Shape::from(Dims::from_elem(1, spatial));
            shape.dims_mut()[dim] = n;
            let places: Vec<f64> = (0..n).map(place).collect();
            columns.push(Tensor::from_vec(places, shape, self.device()).try_expand(&full)?);
        }
        columns.push(Tensor::full(&full, 1.0, DType::F64, self.device()));
        let base = Tensor::try_stack(&columns.iter().collect::<Vec<_>>(), -1)?; // […, spatial + 1]
        let points: usize = dims.iter().product();
        let base = cast(&base.try_reshape([1, points, spatial + 1])?, self.dtype())?;
        let base = base.try_expand([size[0], points, spatial + 1])?;
        let grid = base.try_matmul(&self.try_mt()?)?;
        let shape: Shape = [size[0]].into_iter().chain(dims.iter().copied()).chain([spatial]).collect();
        reshape(&grid, &shape)
    }

    /// A border around the last dims: `pad` lists (before, after) pairs from the last dim backwards. Negative counts of a
    /// constant border cut off.
    #[op(torch = ["nn.functional.pad.constant", "nn.functional.pad.reflect", "nn.functional.pad.replicate",
        "nn.functional.pad.circular", "nn.functional.pad"])]
    pub fn pad(&self, pad: &[i64], mode: PadMode) -> Result<Tensor> {
        if !pad.len().is_multiple_of(2) || pad.len() / 2 > self.rank() {
            let message = format!("{pad:?} does not list (before, after) for dims of {}", self.shape());
            return Err(Error::argument("pad", message));
        }
        let mut y = self.clone();
        for (i, pair) in pad.chunks(2).enumerate() {
            let dim = self.rank() - 1 - i;
            y = pad_dim(&y, dim, pair[0], pair[1], mode)?;
        }
        Ok(y)
    }

    /// Channels dealt out to groups and back: `[n, groups · k, …]` as `[n, k · groups, …]`.
    ///
    /// # References
    /// Zhang, Zhou, Lin, Sun (2017), *ShuffleNet*, arXiv:1707.01083.
    #[op(torch = ["nn.functional.channel_shuffle"])]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let channels = self.shape().get(1).copied().unwrap_or(0);
        if groups == 0 || self.rank() < 2 || channels % groups != 0 {
            let message = format!("the channels of {} do not split into {groups} groups", self.shape());
            return Err(Error::shape("channel_shuffle", message));
        }
        let mut split = self.shape().with_dim(1, groups);
        split.dims_mut().insert(2, channels / groups);
        let mut perm: Vec<usize> = (0..split.rank()).collect();
        perm.swap(1, 2);
        reshape(&permute(&reshape(self, &split)?, &perm)?, self.shape())
    }

    /// `[…, c · r², height, width]` as `[…, c, height · r, width · r]`.
    ///
    /// # References
    /// Shi et al. (2016), *Real-Time Single Image and Video Super-Resolution*, arXiv:1609.05158.
    #[op(torch = ["nn.functional.pixel_shuffle"], rename(factor = "upscale_factor"))]
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Tensor> {
        let &[ref outer @ .., channels, height, width] = self.shape().dims() else {
            return Err(Error::shape("pixel_shuffle", format!("{} is not […, c, height, width]", self.shape())));
        };
        if factor == 0 || channels % (factor * factor) != 0 {
            let message = format!("the channels of {} do not split into squares of {factor}", self.shape());
            return Err(Error::shape("pixel_shuffle", message));
        }
        let c = channels / (factor * factor);
        let shape = |tail: &[usize]| -> Shape { outer.iter().chain(tail).copied().collect() };
        let split = reshape(self, &shape(&[c, factor, factor, height, width]))?;
        let at = outer.len();
        let order = (0..=at).chain([at + 3, at + 1, at + 4, at + 2]).collect::<Vec<_>>();
        reshape(&permute(&split, &order)?, &shape(&[c, height * factor, width * factor]))
    }

    /// `[…, c, height · r, width · r]` as `[…, c · r², height, width]`.
    #[op(torch = ["nn.functional.pixel_unshuffle"], rename(factor = "downscale_factor"))]
    pub fn pixel_unshuffle(&self, factor: usize) -> Result<Tensor> {
        let &[ref outer @ .., c, height, width] = self.shape().dims() else {
            return Err(Error::shape("pixel_unshuffle", format!("{} is not […, c, height, width]", self.shape())));
        };
        if factor == 0 || height % factor != 0 || width % factor != 0 {
            let message = format!("{} does not split into squares of {factor}", self.shape());
            return Err(Error::shape("pixel_unshuffle", message));
        }
        let (rows, columns) = (height / factor, width / factor);
        let shape = |tail: &[usize]| -> Shape { outer.iter().chain(tail).copied().collect() };
        let split = reshape(self, &shape(&[c, rows, factor, columns, factor]))?;
        let at = outer.len();
        let order = (0..=at).chain([at + 2, at + 4, at + 1, at + 3]).collect::<Vec<_>>();
        reshape(&permute(&split, &order)?, &shape(&[c * factor * factor, rows, columns]))
    }

    /// `Σ x1 · weight_k · x2 + bias_k` for `x1 […, a]` (this tensor), `x2 […, b]`, `weight [out, a, b]`: `[…, out]`.
    #[op(torch = ["nn.functional.bilinear"], rename(self = "input1", other = "input2"), autocast = low)]
    pub fn bilinear(&self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let &[out, a, b] = weight.shape().dims() else {
            return Err(Error::shape("bilinear", format!("weight {} is not [out, a, b]", weight.shape())));
        };
        let fits = self.rank() == other.rank()
            && self.shape().last() == Some(&a)
            && other.shape().last() == Some(&b)
            && self.shape()[..self.rank() - 1] == other.shape()[..other.rank() - 1];
        if !fits {
            let message = format!("{} and {} do not fit weight {}", self.shape(), other.shape(), weight.shape());
            return Err(Error::shape("bilinear", message));
        }
        let outer = &self.shape()[..self.rank() - 1];
        let count: usize = outer.iter().product();
        let flat = weight.try_permute([1, 0, 2])?.try_reshape([a, out * b])?;
        let half = self.try_reshape([count, a])?.try_matmul(&flat)?.try_reshape([count, out, b])?;
        let y = half.try_matmul(&other.try_reshape([count, b, 1])?)?;
        let y = reshape(&y, &outer.iter().copied().chain([out]).collect())?;
        match bias {
            Some(bias) => y.try_add(bias),
            None => Ok(y),
        }
    }
}

/// The new sizes, and for each dim the factor that coordinates use (0: the ratio of the sizes).
fn target_sizes(options: &InterpolateOptions, input: &[usize]) -> Result<(Vec<usize>, Vec<f64>)> {
    let spatial = input.len();
    match &options.to {
        ResizeTo::Size(sizes) if sizes.len() == spatial => Ok((sizes.clone(), vec![0.0; spatial])),
        ResizeTo::Scale(factors) if factors.len() == spatial || factors.len() == 1 => {
            let factor = |dim: usize| factors[dim.min(factors.len() - 1)];
            let sizes = (0..spatial).map(|dim| (input[dim] as f64 * factor(dim)) as usize).collect();
            let used = (0..spatial).map(|dim| if options.recompute_scale_factor { 0.0 } else { factor(dim) });
            Ok((sizes, used.collect()))
        }
        ResizeTo::SizeByScale(sizes, factors) if sizes.len() == spatial && factors.len() == spatial => {
            Ok((sizes.clone(), factors.clone()))
        }
        other => Err(Error::argument("interpolate", format!("{other:?} does not fit {spatial} spatial dims"))),
    }
}

/// How the pixels of one dim map.
struct Scale {
    from: usize,
    to: usize,
    /// New pixels to an old one; 0 stands for the ratio of the sizes.
    factor: f64,
    corners: bool,
}

impl Scale {
    /// Old pixels to a new one.
    fn step(&self) -> f64 {
        if self.corners {
            return if self.to > 1 { (self.from - 1) as f64 / (self.to - 1) as f64 } else { 0.0 };
        }
        if self.factor > 0.0 { 1.0 / self.factor } else { self.from as f64 / self.to as f64 }
    }

    /// Where the centre of new pixel `i` lies among the old ones.
    fn centre(&self, i: usize) -> f64 {
        if self.corners { i as f64 * self.step() } else { (i as f64 + 0.5) * self.step() - 0.5 }
    }

    fn is_identity(&self) -> bool {
        self.from == self.to && (self.factor == 0.0 || self.factor == 1.0)
    }
}

/// For each new pixel the old ones it is made of, and their weights; as many for each.
fn taps(options: &InterpolateOptions, scale: &Scale) -> (Vec<i64>, Vec<f64>) {
    let last = scale.from as i64 - 1;
    let (mut positions, mut weights) = (Vec::new(), Vec::new());
    if options.antialias && matches!(options.mode, InterpolateMode::Linear | InterpolateMode::Cubic) {
        return antialiased_taps(options.mode, scale);
    }
    for i in 0..scale.to {
        match options.mode {
            InterpolateMode::Nearest => {
                // In f32, as PyTorch: at exact multiples rounding decides.
                let step =
                    if scale.factor > 0.0 { (1.0 / scale.factor) as f32 } else { scale.from as f32 / scale.to as f32 };
                positions.push((libm::floorf(i as f32 * step) as i64).min(last));
                weights.push(1.0);
            }
            InterpolateMode::NearestExact => {
                let step =
                    if scale.factor > 0.0 { (1.0 / scale.factor) as f32 } else { scale.from as f32 / scale.to as f32 };
                positions.push((libm::floorf((i as f32 + 0.5) * step) as i64).min(last));
                weights.push(1.0);
            }
            InterpolateMode::Linear => {
                let centre = scale.centre(i).max(0.0);
                let low = (centre as i64).min(last);
                positions.extend([low, (low + 1).min(last)]);
                let part = (centre - low as f64).min(1.0);
                weights.extend([1.0 - part, part]);
            }
            InterpolateMode::Cubic => {
                let centre = scale.centre(i);
                let low = libm::floor(centre);
                let part = centre - low;
                positions.extend((-1..3).map(|j| (low as i64 + j).clamp(0, last)));
                weights.extend(cubic_weights(part));
            }
            InterpolateMode::Area => unreachable!("areas are pooled"),
        }
    }
    (positions, weights)
}

/// Weights of the four neighbours at distances `1 + t, t, 1 − t, 2 − t`.
fn cubic_weights(t: f64) -> [f64; 4] {
    [cubic(1.0 + t, -0.75), cubic(t, -0.75), cubic(1.0 - t, -0.75), cubic(2.0 - t, -0.75)]
}

/// Keys' kernel.
fn cubic(x: f64, a: f64) -> f64 {
    let x = libm::fabs(x);
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

/// The kernel widened by the step, as PIL resizes.
fn antialiased_taps(mode: InterpolateMode, scale: &Scale) -> (Vec<i64>, Vec<f64>) {
    let step = scale.step();
    let widening = step.max(1.0);
    let reach = if mode == InterpolateMode::Linear { 1.0 } else { 2.0 } * widening;
    let window = |i: usize| {
        let centre = step * (i as f64 + 0.5);
        let start = ((centre - reach + 0.5) as i64).max(0);
        let end = ((centre + reach + 0.5) as i64).min(scale.from as i64);
        (centre, start, end)
    };
    let longest = (0..scale.to).map(window).map(|(_, start, end)| end - start).max().unwrap_or(1).max(1);
    let (mut positions, mut weights) = (Vec::new(), Vec::new());
    for i in 0..scale.to {
        let (centre, start, end) = window(i);
        let weight = |j: i64| {
            let x = ((start + j) as f64 - centre + 0.5) / widening;
            match mode {
                _ if start + j >= end => 0.0,
                InterpolateMode::Linear => (1.0 - libm::fabs(x)).max(0.0),
                // PIL's constant.
                _ => cubic(x, -0.5),
            }
        };
        let total: f64 = (0..longest).map(weight).sum();
        for j in 0..longest {
            positions.push((start + j).min(scale.from as i64 - 1));
            weights.push(if total == 0.0 { 0.0 } else { weight(j) / total });
        }
    }
    (positions, weights)
}

#[track_caller]
fn grid_sample(x: &Tensor, grid: &Tensor, options: &GridSampleOptions) -> Result<Tensor> {
    let spatial = x.rank().saturating_sub(2);
    let fits = (2..=3).contains(&spatial)
        && grid.rank() == x.rank()
        && grid.shape()[0] == x.shape()[0]
        && grid.shape()[grid.rank() - 1] == spatial;
    if !fits {
        return Err(Error::shape("grid_sample", format!("grid {} does not fit x {}", grid.shape(), x.shape())));
    }
    let (n, c, sizes) = (x.shape()[0], x.shape()[1], &x.shape()[2..]);
    let out: Vec<usize> = grid.shape()[1..grid.rank() - 1].to_vec();
    let points: usize = out.iter().product();
    let wide = cast(x, x.dtype().compute())?;
    let grid = cast(grid, wide.dtype())?.try_reshape([n, points, spatial])?;
    let plane: usize = sizes.iter().product();
    let flat = wide.try_reshape([n, c, plane])?;
    // Along each spatial dim (outermost first): candidates, as (position, weight, inside), each [n, points].
    let mut dims: Vec<Vec<Candidate>> = Vec::new();
    for (dim, &size) in sizes.iter().enumerate() {
        let coordinate = grid.try_narrow(-1, (spatial - 1 - dim) as i64, 1)?.try_squeeze(-1)?;
        let place = if options.align_corners {
            coordinate.try_add(1.0)?.try_mul((size as f64 - 1.0) / 2.0)?
        } else {
            coordinate.try_add(1.0)?.try_mul(size as f64)?.try_sub(1.0)?.try_div(2.0)?
        };
        dims.push(candidates(&place, size, options)?);
    }
    // Every combination of candidates contributes the product of its weights.
    let mut sum: Option<Tensor> = None;
    let combinations: usize = dims.iter().map(Vec::len).product();
    for combination in 0..combinations {
        let mut left = combination;
        let mut index = Tensor::full([n, points], 0, DType::I64, x.device());
        let mut weight: Option<Tensor> = None;
        let mut inside: Option<Tensor> = None;
        for (dim, list) in dims.iter().enumerate() {
            let (position, own, valid) = &list[left % list.len()];
            left /= list.len();
            index = index.try_mul(sizes[dim] as i64)?.try_add(position)?;
            weight = Some(match weight {
                Some(weight) => weight.try_mul(own)?,
                None => own.clone(),
            });
            inside = match (inside, valid) {
                (Some(inside), Some(valid)) => Some(inside.try_logical_and(valid)?),
                (inside, valid) => inside.or_else(|| valid.clone()),
            };
        }
        let mut weight = weight.ok_or_else(|| Error::shape("grid_sample", "no spatial dims"))?;
        if let Some(inside) = inside {
            weight = inside.try_where_(&weight, 0.0)?;
        }
        let index = index.try_unsqueeze(1)?.try_expand([n, c, points])?;
        let term = gather(&flat, 2, &index)?.try_mul(weight.try_unsqueeze(1)?)?;
        sum = Some(match sum {
            Some(sum) => sum.try_add(&term)?,
            None => term,
        });
    }
    let sum = sum.ok_or_else(|| Error::shape("grid_sample", "no spatial dims"))?;
    let shape: Shape = [n, c].into_iter().chain(out).collect();
    cast(&reshape(&sum, &shape)?, x.dtype())
}

type Candidate = (Tensor, Tensor, Option<Tensor>);

/// The pixels that a place along one dim is made of: position (in range), weight, and whether it lies inside.
#[track_caller]
fn candidates(place: &Tensor, size: usize, options: &GridSampleOptions) -> Result<Vec<Candidate>> {
    let last = size as f64 - 1.0;
    let settle = |place: &Tensor| -> Result<Tensor> {
        match options.padding {
            GridPadding::Zeros => Ok(place.clone()),
            GridPadding::Border => clip(place, last),
            GridPadding::Reflection => {
                let (low, high) = if options.align_corners { (0.0, last) } else { (-0.5, last + 0.5) };
                clip(&reflect(place, low, high)?, last)
            }
        }
    };
    let candidate = |position: &Tensor, weight: Tensor, settled: bool| -> Result<Candidate> {
        let position = if settled { position.clone() } else { settle(position)? };
        let inside = match options.padding {
            GridPadding::Zeros => Some(position.try_ge(0.0)?.try_logical_and(&position.try_le(last)?)?),
            GridPadding::Border | GridPadding::Reflection => None,
        };
        // NaN and whatever is outside is clamped for the read: its weight is 0, or it is the border.
        let safe = clip(&position.detach(), last)?;
        Ok((cast(&safe, DType::I64)?, weight, inside))
    };
    match options.mode {
        InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => {
            let nearest = settle(place)?.try_round()?.detach();
            let weight = nearest.ones_like();
            Ok(vec![candidate(&nearest, weight, true)?])
        }
        InterpolateMode::Linear => {
            let place = settle(place)?;
            let low = place.detach().try_floor()?;
            let part = place.try_sub(&low)?;
            let rest = part.try_neg()?.try_add(1.0)?;
            Ok(vec![candidate(&low, rest, true)?, candidate(&low.try_add(1.0)?, part, true)?])
        }
        InterpolateMode::Cubic => {
            let low = place.detach().try_floor()?;
            let t = place.try_sub(&low)?;
            let one = |x: &Tensor| -> Result<Tensor> {
                // |x| ≤ 1: ((a + 2) x − (a + 3)) x² + 1.
                x.try_mul(1.25)?.try_sub(2.25)?.try_mul(x)?.try_mul(x)?.try_add(1.0)
            };
            let two = |x: &Tensor| -> Result<Tensor> {
                x.try_sub(5.0)?.try_mul(x)?.try_add(8.0)?.try_mul(x)?.try_sub(4.0)?.try_mul(-0.75)
            };
            let rest = t.try_neg()?.try_add(1.0)?;
            let weights = [two(&t.try_add(1.0)?)?, one(&t)?, one(&rest)?, two(&rest.try_add(1.0)?)?];
            let mut list = Vec::new();
            for (j, weight) in weights.into_iter().enumerate() {
                list.push(candidate(&low.try_add(j as f64 - 1.0)?, weight, false)?);
            }
            Ok(list)
        }
    }
}

/// Between 0 and `last`; NaN becomes 0. No gradient outside.
#[track_caller]
fn clip(x: &Tensor, last: f64) -> Result<Tensor> {
    let low = x.try_gt(0.0)?.try_where_(x, 0.0)?;
    low.try_lt(last)?.try_where_(&low, last)?.try_to_dtype(x.dtype())
}

/// Mirrored at `low` and `high` until it lies between.
#[track_caller]
fn reflect(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let span = high - low;
    if span <= 0.0 {
        return Ok(x.zeros_like());
    }
    let distance = x.try_sub(low)?.try_abs()?;
    let turns = distance.detach().try_div(span)?.try_floor()?;
    let extra = distance.try_sub(turns.try_mul(span)?)?;
    let is_even = turns.try_remainder(2.0)?.try_eq(0.0)?;
    is_even.try_where_(extra.try_add(low)?, extra.try_neg()?.try_add(high)?)
}

#[track_caller]
fn pad_dim(x: &Tensor, dim: usize, before: i64, after: i64, mode: PadMode) -> Result<Tensor> {
    if before == 0 && after == 0 {
        return Ok(x.clone());
    }
    let n = x.shape()[dim] as i64;
    let size = n + before + after;
    let bad = |why: &str| {
        Err(Error::argument("pad", format!("({before}, {after}) around dim {dim} of {}: {why}", x.shape())))
    };
    if size < 0 {
        return bad("more is cut off than there is");
    }
    let source = |i: i64| -> i64 {
        match mode {
            PadMode::Constant(_) => i,
            PadMode::Replicate => i.clamp(0, n - 1),
            PadMode::Circular => i.rem_euclid(n),
            PadMode::Reflect => {
                let i = i.abs();
                if i < n { i } else { 2 * (n - 1) - i }
            }
        }
    };
    match mode {
        PadMode::Constant(value) => {
            let (cut_low, cut_high) = ((-before).max(0), (-after).max(0));
            let kept = x.try_narrow(dim, cut_low.min(n), (n - cut_low - cut_high).max(0) as usize)?;
            let kept_size = kept.shape()[dim] as i64;
            let (low, high) = (before.max(0), after.max(0));
            let (low, high) = if low + kept_size + high > size { (size - kept_size - high, high) } else { (low, high) };
            let mut low_dims = Dims::from_elem(0, x.rank());
            low_dims[dim] = low.max(0) as usize;
            let shape = x.shape().with_dim(dim, (low.max(0) + kept_size + high) as usize);
            primitive::pad(&kept, &low_dims, &shape, Scalar::Float(value))
        }
        PadMode::Reflect if before >= n || after >= n => bad("a mirror reaches less far than the size"),
        PadMode::Circular if before > n || after > n => bad("the border is longer than the size"),
        PadMode::Replicate if n == 0 => bad("there is no edge to repeat"),
        PadMode::Reflect | PadMode::Circular | PadMode::Replicate => {
            let positions: Vec<i64> = (-before..n + after).map(source).collect();
            let count = positions.len();
            x.try_index_select(dim, &Tensor::from_vec(positions, [count], x.device()))
        }
    }
}

/// Read from the arguments of `interpolate`, or of `_upsample_bilinear2d_aa`.
impl FromArg for InterpolateOptions {
    fn from_arg(_: &Arg) -> Option<InterpolateOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<InterpolateOptions> {
        let align_corners = args.get::<Option<bool>>("align_corners").ok()?.unwrap_or(false);
        if args.has("output_size") || args.has("scale_factors") {
            // Only the ratio of the sizes, or the scales, count; corners do so without antialiasing alone.
            let to = match args.get::<Option<Vec<usize>>>("output_size").ok()? {
                Some(sizes) => {
                    let factor = |name: &str| Some(args.get::<Option<f64>>(name).ok()?.unwrap_or(0.0));
                    ResizeTo::SizeByScale(sizes, vec![factor("scales_h")?, factor("scales_w")?])
                }
                None => ResizeTo::Scale(args.get("scale_factors").ok()?),
            };
            let options = InterpolateOptions::new(to, InterpolateMode::Linear);
            return Some(InterpolateOptions { align_corners, antialias: true, ..options });
        }
        let mode = match args.get::<Option<String>>("mode").ok()?.as_deref() {
            None | Some("nearest") => InterpolateMode::Nearest,
            Some("nearest-exact") => InterpolateMode::NearestExact,
            Some("linear" | "bilinear" | "trilinear") => InterpolateMode::Linear,
            Some("bicubic") => InterpolateMode::Cubic,
            Some("area") => InterpolateMode::Area,
            Some(_) => return None,
        };
        let spatial = args.get::<Tensor>("input").ok()?.rank().checked_sub(2)?;
        let to = match args.get::<Option<Vec<usize>>>("size").ok()? {
            Some(sizes) if sizes.len() == 1 => ResizeTo::Size(vec![sizes[0]; spatial]),
            Some(sizes) => ResizeTo::Size(sizes),
            None => ResizeTo::Scale(args.get("scale_factor").ok()?),
        };
        Some(InterpolateOptions {
            to,
            mode,
            align_corners,
            recompute_scale_factor: args.get::<Option<bool>>("recompute_scale_factor").ok()?.unwrap_or(false),
            antialias: args.get::<Option<bool>>("antialias").ok()?.unwrap_or(false),
        })
    }
}

/// Read from the arguments `mode`, `padding_mode` and `align_corners`.
impl FromArg for GridSampleOptions {
    fn from_arg(_: &Arg) -> Option<GridSampleOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<GridSampleOptions> {
        let mode = match args.get::<Option<String>>("mode").ok()?.as_deref() {
            None | Some("bilinear") => InterpolateMode::Linear,
            Some("nearest") => InterpolateMode::Nearest,
            Some("bicubic") => InterpolateMode::Cubic,
            Some(_) => return None,
        };
        let padding = match args.get::<Option<String>>("padding_mode").ok()?.as_deref() {
            None | Some("zeros") => GridPadding::Zeros,
            Some("border") => GridPadding::Border,
            Some("reflection") => GridPadding::Reflection,
            Some(_) => return None,
        };
        let align_corners = args.get::<Option<bool>>("align_corners").ok()?.unwrap_or(false);
        Some(GridSampleOptions { mode, padding, align_corners })
    }
}

/// Read from the arguments `mode` and `value`.
impl FromArg for PadMode {
    fn from_arg(_: &Arg) -> Option<PadMode> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<PadMode> {
        Some(match args.get::<Option<String>>("mode").ok()?.as_deref() {
            None | Some("constant") => PadMode::Constant(args.get::<Option<f64>>("value").ok()?.unwrap_or(0.0)),
            Some("reflect") => PadMode::Reflect,
            Some("replicate") => PadMode::Replicate,
            Some("circular") => PadMode::Circular,
            Some(_) => return None,
        })
    }
}
