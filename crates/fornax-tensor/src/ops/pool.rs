//! Pooling, unfolding and their inverses, by sliding windows.

use super::nn::{PerDim, PoolOptions, windows};
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{self, fold, gather, reduce, reshape, scatter};
use crate::{Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, ReduceOp, ScatterMode, WindowDim, WindowSpec};
use fornax_macros::ops;

/// Settings of average pooling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AvgPoolOptions {
    /// Window, stride, zeros around, and whether windows may hang over the end. No dilation.
    pub windows: PoolOptions,
    /// Whether the zeros of the padding count as elements; true.
    pub count_include_pad: bool,
    /// Divides by this in place of the number of elements.
    pub divisor_override: Option<i64>,
}

impl AvgPoolOptions {
    /// Windows of `kernel_size`, side by side.
    pub fn new(kernel_size: impl Into<PerDim>) -> AvgPoolOptions {
        AvgPoolOptions { windows: PoolOptions::new(kernel_size), count_include_pad: true, divisor_override: None }
    }
}

/// Settings of unfolding and folding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnfoldOptions {
    /// Size of a block.
    pub kernel_size: PerDim,
    /// Distance between elements of a block; 1.
    pub dilation: PerDim,
    /// Zeros around; none.
    pub padding: PerDim,
    /// Distance between blocks; 1.
    pub stride: PerDim,
}

impl UnfoldOptions {
    /// Blocks of `kernel_size`, at every position.
    pub fn new(kernel_size: impl Into<PerDim>) -> UnfoldOptions {
        UnfoldOptions { kernel_size: kernel_size.into(), dilation: 1.into(), padding: 0.into(), stride: 1.into() }
    }
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// Mean of each window of `[n, c, length]`.
    #[op(torch = ["nn.functional.avg_pool1d"])]
    pub fn avg_pool1d(&self, options: &AvgPoolOptions) -> Result<Tensor> {
        avg_pool("avg_pool1d", 1, self, options)
    }

    /// Mean of each window of `[n, c, height, width]`.
    #[op(torch = ["nn.functional.avg_pool2d"])]
    pub fn avg_pool2d(&self, options: &AvgPoolOptions) -> Result<Tensor> {
        avg_pool("avg_pool2d", 2, self, options)
    }

    /// Mean of each window of `[n, c, depth, height, width]`.
    #[op(torch = ["nn.functional.avg_pool3d"])]
    pub fn avg_pool3d(&self, options: &AvgPoolOptions) -> Result<Tensor> {
        avg_pool("avg_pool3d", 3, self, options)
    }

    /// Means over as many parts of `[n, c, length]` as `output_size` asks for.
    #[op(torch = ["nn.functional.adaptive_avg_pool1d"], call = call_adaptive_avg_pool1d)]
    pub fn adaptive_avg_pool1d(&self, output_size: &[Option<usize>]) -> Result<Tensor> {
        adaptive_avg_pool("adaptive_avg_pool1d", 1, self, output_size)
    }

    /// Means over as many parts of `[n, c, height, width]` as `output_size` asks for; `None` keeps a size.
    #[op(torch = ["nn.functional.adaptive_avg_pool2d"], call = call_adaptive_avg_pool2d)]
    pub fn adaptive_avg_pool2d(&self, output_size: &[Option<usize>]) -> Result<Tensor> {
        adaptive_avg_pool("adaptive_avg_pool2d", 2, self, output_size)
    }

    /// Means over as many parts of `[n, c, depth, height, width]` as `output_size` asks for; `None` keeps a size.
    #[op(torch = ["nn.functional.adaptive_avg_pool3d"], call = call_adaptive_avg_pool3d)]
    pub fn adaptive_avg_pool3d(&self, output_size: &[Option<usize>]) -> Result<Tensor> {
        adaptive_avg_pool("adaptive_avg_pool3d", 3, self, output_size)
    }

    /// Largest of as many parts as `output_size` asks for, and where they are in the flattened spatial dims.
    #[op(torch = ["nn.functional.adaptive_max_pool1d"], call = call_adaptive_max_pool1d)]
    pub fn adaptive_max_pool1d(&self, output_size: &[Option<usize>]) -> Result<(Tensor, Tensor)> {
        adaptive_max_pool("adaptive_max_pool1d", 1, self, output_size)
    }

    /// Largest of as many parts as `output_size` asks for, and where they are in the flattened spatial dims.
    #[op(torch = ["nn.functional.adaptive_max_pool2d"], call = call_adaptive_max_pool2d)]
    pub fn adaptive_max_pool2d(&self, output_size: &[Option<usize>]) -> Result<(Tensor, Tensor)> {
        adaptive_max_pool("adaptive_max_pool2d", 2, self, output_size)
    }

    /// Largest of as many parts as `output_size` asks for, and where they are in the flattened spatial dims.
    #[op(torch = ["nn.functional.adaptive_max_pool3d"], call = call_adaptive_max_pool3d)]
    pub fn adaptive_max_pool3d(&self, output_size: &[Option<usize>]) -> Result<(Tensor, Tensor)> {
        adaptive_max_pool("adaptive_max_pool3d", 3, self, output_size)
    }

    /// Pooled values back at the positions they came from, zeros elsewhere; `output_size` gives the spatial sizes.
    #[op(torch = ["nn.functional.max_unpool1d", "nn.functional.max_unpool2d", "nn.functional.max_unpool3d"],
        call = call_max_unpool)]
    pub fn max_unpool(&self, indices: &Tensor, output_size: &[usize]) -> Result<Tensor> {
        let Some(outer) = self.rank().checked_sub(output_size.len()).filter(|_| self.shape() == indices.shape()) else {
            let message = format!("indices {} do not fit {}", indices.shape(), self.shape());
            return Err(Error::shape("max_unpool", message));
        };
        let head = &self.shape()[..outer];
        let plane: usize = output_size.iter().product();
        let flat = |inner: usize| -> Shape { head.iter().copied().chain([inner]).collect() };
        let count: usize = self.shape()[outer..].iter().product();
        let (values, index) = (reshape(self, &flat(count))?, reshape(indices, &flat(count))?);
        let base = Tensor::full(flat(plane), 0, self.dtype(), self.device());
        let whole = scatter(ScatterMode::Set, &base, outer, &index, &values)?;
        reshape(&whole, &head.iter().chain(output_size).copied().collect())
    }

    /// Blocks of `[n, c, height, width]` as columns: `[n, c · kernel, blocks]`.
    #[op(torch = ["nn.functional.unfold"])]
    pub fn unfold_blocks(&self, options: &UnfoldOptions) -> Result<Tensor> {
        if self.rank() == 3 {
            return self.try_unsqueeze(0)?.try_unfold_blocks(options)?.try_squeeze(0);
        }
        let (spec, padding) = block_windows("unfold", options)?;
        let [n, c, _, _] = self.shape()[..] else {
            return Err(Error::shape("unfold", format!("{} is not [n, c, height, width]", self.shape())));
        };
        let padded = self.pad_dims(&[(0, 0), (0, 0), (padding[0], padding[0]), (padding[1], padding[1])], 0);
        let blocks = primitive::window(&padded, spec)?; // [n, c, rows, columns, kernel, kernel]
        let [_, _, rows, columns, height, width] = blocks.dims();
        let ordered = primitive::permute(&blocks, &[0, 1, 4, 5, 2, 3])?;
        ordered.try_reshape([n, c * height * width, rows * columns])
    }

    /// The sum of blocks at their places, the transpose of [`Tensor::unfold_blocks`]: `[n, c · kernel, blocks]` gives
    /// `[n, c, height, width]`.
    #[op(torch = ["nn.functional.fold"], with(output_size = Vec<usize>))]
    pub fn fold_blocks(&self, output_size: impl AsRef<[usize]>, options: &UnfoldOptions) -> Result<Tensor> {
        let output_size = output_size.as_ref();
        if self.rank() == 2 {
            return self.try_unsqueeze(0)?.try_fold_blocks(output_size, options)?.try_squeeze(0);
        }
        let (spec, padding) = block_windows("fold", options)?;
        let (&[n, rows, count], &[height, width]) = (self.shape().dims(), output_size) else {
            let message =
                format!("{} to {output_size:?}: needs [n, c · kernel, blocks] and [height, width]", self.shape());
            return Err(Error::shape("fold", message));
        };
        let (padded_height, padded_width) = (height + 2 * padding[0], width + 2 * padding[1]);
        let (down, across) = (spec.dims[0].count(padded_height), spec.dims[1].count(padded_width));
        let kernel = spec.dims[0].size * spec.dims[1].size;
        if down * across != count || rows % kernel != 0 {
            let message = format!("{} does not hold the {down} × {across} blocks of {output_size:?}", self.shape());
            return Err(Error::shape("fold", message));
        }
        let c = rows / kernel;
        let blocks = self.try_reshape([n, c, spec.dims[0].size, spec.dims[1].size, down, across])?;
        let blocks = primitive::permute(&blocks, &[0, 1, 4, 5, 2, 3])?;
        let whole = fold(&blocks, spec, &Shape::from([n, c, padded_height, padded_width]))?;
        let starts = Dims::from_slice(&[0, 0, padding[0], padding[1]]);
        primitive::slice(&whole, &starts, &[1; 4], &Shape::from([n, c, height, width]))
    }
}

fn block_windows(op: &str, options: &UnfoldOptions) -> Result<(WindowSpec, Dims)> {
    let size = options.kernel_size.resolve(op, "kernel_size", 2)?;
    let step = options.stride.resolve(op, "stride", 2)?;
    let dilation = options.dilation.resolve(op, "dilation", 2)?;
    let padding = options.padding.resolve(op, "padding", 2)?;
    if [&size, &step, &dilation].iter().any(|list| list.contains(&0)) {
        return Err(Error::argument(op, "kernel size, stride and dilation are at least 1"));
    }
    let dims = (0..2).map(|dim| WindowDim { size: size[dim], step: step[dim], dilation: dilation[dim] });
    Ok((WindowSpec { dims: dims.collect() }, padding))
}

#[track_caller]
fn avg_pool(op: &str, spatial: usize, x: &Tensor, options: &AvgPoolOptions) -> Result<Tensor> {
    let (windows, spec, pads) = windows(op, spatial, x, &options.windows, 0.0)?;
    let rank = windows.rank();
    let inner: Dims = (rank - spatial..rank).collect();
    let wide = primitive::cast(&windows, x.dtype().compute())?;
    let sum = reduce(ReduceOp::Sum, &wide, &inner)?;
    let sum = reshape(&sum, &windows.shape()[..rank - spatial].into())?;
    let outer = x.rank() - spatial;
    let size: usize = spec.dims.iter().map(|window| window.size).product();
    if let Some(divisor) = options.divisor_override {
        if divisor == 0 {
            return Err(Error::argument(op, "a divisor of 0"));
        }
        return primitive::cast(&sum.try_div(divisor as f64)?, x.dtype());
    }
    let padding = options.windows.padding.resolve(op, "padding", spatial)?;
    let overhangs = (0..spatial).any(|dim| pads[outer + dim].1 > padding[dim]);
    let padded = padding.iter().any(|&n| n > 0);
    if !overhangs && (options.count_include_pad || !padded) {
        return primitive::cast(&sum.try_div(size as f64)?, x.dtype());
    }
    // How many elements count in each window: a product over the dims. What hangs over the end never counts.
    let mut mean = sum;
    for (dim, window) in spec.dims.iter().enumerate() {
        let (n, low) = (x.shape()[outer + dim], padding[dim]);
        let counts = (0..mean.shape()[outer + dim]).map(|i| {
            let start = i * window.step;
            let end = (start + window.size).min(n + 2 * low);
            let (start, end) =
                if options.count_include_pad { (start, end) } else { (start.max(low), end.min(n + low)) };
            end.saturating_sub(start) as f32
        });
        let mut shape = Shape::from(Dims::from_elem(1, mean.rank()));
        shape.dims_mut()[outer + dim] = mean.shape()[outer + dim];
        let counts = Tensor::from_vec(counts.collect::<Vec<f32>>(), shape, x.device());
        mean = mean.try_div(primitive::cast(&counts, mean.dtype())?)?;
    }
    primitive::cast(&mean, x.dtype())
}

/// Begin and end of part `i` of `n` elements dealt out to `parts`.
fn part(i: usize, n: usize, parts: usize) -> (usize, usize) {
    (i * n / parts, ((i + 1) * n).div_ceil(parts))
}

fn adaptive_sizes(op: &str, spatial: usize, x: &Tensor, output_size: &[Option<usize>]) -> Result<Vec<usize>> {
    if x.rank() != spatial + 1 && x.rank() != spatial + 2 {
        let message = format!("x {} is not of rank {} or {}", x.shape(), spatial + 1, spatial + 2);
        return Err(Error::shape(op, message));
    }
    if output_size.len() != spatial && output_size.len() != 1 {
        return Err(Error::argument(op, format!("{output_size:?} is not one size, or one for each of {spatial} dims")));
    }
    let outer = x.rank() - spatial;
    let size = |dim: usize| output_size[dim.min(output_size.len() - 1)].unwrap_or(x.shape()[outer + dim]);
    Ok((0..spatial).map(size).collect())
}

/// The mean over a box is the mean of means along its dims, so each dim is taken on its own.
#[track_caller]
fn adaptive_avg_pool(op: &str, spatial: usize, x: &Tensor, output_size: &[Option<usize>]) -> Result<Tensor> {
    let sizes = adaptive_sizes(op, spatial, x, output_size)?;
    let outer = x.rank() - spatial;
    let mut y = primitive::cast(x, x.dtype().compute())?;
    for (dim, &parts) in sizes.iter().enumerate() {
        let dim = outer + dim;
        let n = y.shape()[dim];
        if parts > 0 && n % parts == 0 {
            let mut split = y.shape().with_dim(dim, parts);
            split.dims_mut().insert(dim + 1, n / parts);
            let target = y.shape().with_dim(dim, parts);
            let sum = reduce(ReduceOp::Sum, &reshape(&y, &split)?, &[dim + 1])?;
            y = reshape(&sum, &target)?.try_div((n / parts) as f64)?;
            continue;
        }
        let (positions, weights) = parts_table(n, parts);
        y = weighted_gather(&y, dim, &positions, &weights, parts)?;
    }
    primitive::cast(&y, x.dtype())
}

/// For each part its positions, as many as the longest has, and their weights: equal inside the part, 0 beyond.
fn parts_table(n: usize, parts: usize) -> (Vec<i64>, Vec<f64>) {
    let longest = (0..parts).map(|i| part(i, n, parts)).map(|(start, end)| end - start).max().unwrap_or(0);
    let (mut positions, mut weights) = (Vec::new(), Vec::new());
    for (start, end) in (0..parts).map(|i| part(i, n, parts)) {
        for j in 0..longest {
            positions.push((start + j).min(n.saturating_sub(1)) as i64);
            weights.push(if start + j < end { 1.0 / (end - start) as f64 } else { 0.0 });
        }
    }
    (positions, weights)
}

/// For each of `count` results the weighted sum of as many positions along `dim`.
#[track_caller]
pub(crate) fn weighted_gather(
    x: &Tensor,
    dim: usize,
    positions: &[i64],
    weights: &[f64],
    count: usize,
) -> Result<Tensor> {
    let taps = positions.len() / count.max(1);
    let index = Tensor::from_slice(positions, [positions.len()], x.device());
    let picked = x.try_index_select(dim, &index)?;
    let mut split = x.shape().with_dim(dim, count);
    split.dims_mut().insert(dim + 1, taps);
    let mut along = Shape::from(Dims::from_elem(1, split.rank()));
    along.dims_mut()[dim] = count;
    along.dims_mut()[dim + 1] = taps;
    let weights = primitive::cast(&Tensor::from_slice(weights, along, x.device()), x.dtype())?;
    let products = reshape(&picked, &split)?.try_mul(&weights)?;
    reshape(&reduce(ReduceOp::Sum, &products, &[dim + 1])?, &x.shape().with_dim(dim, count))
}

#[track_caller]
fn adaptive_max_pool(op: &str, spatial: usize, x: &Tensor, output_size: &[Option<usize>]) -> Result<(Tensor, Tensor)> {
    let sizes = adaptive_sizes(op, spatial, x, output_size)?;
    let outer = x.rank() - spatial;
    let input = &x.shape()[outer..];
    if input.contains(&0) {
        return Err(Error::shape(op, format!("{} has nothing to pool", x.shape())));
    }
    // Flat positions of every part, row-major, filled up with its last one: it changes no maximum.
    let cells: usize = sizes.iter().product();
    let longest: Vec<usize> = (0..spatial)
        .map(|dim| (0..sizes[dim]).map(|i| part(i, input[dim], sizes[dim])).map(|(a, b)| b - a).max().unwrap_or(0))
        .collect();
    let taps: usize = longest.iter().product();
    let mut positions = Vec::with_capacity(cells * taps);
    for cell in 0..cells {
        for tap in 0..taps {
            let (mut cell_left, mut tap_left) = (cell, tap);
            let mut place = 0;
            let mut stride = 1;
            for dim in (0..spatial).rev() {
                let (start, end) = part(cell_left % sizes[dim], input[dim], sizes[dim]);
                place += (start + tap_left % longest[dim]).min(end - 1) * stride;
                cell_left /= sizes[dim];
                tap_left /= longest[dim];
                stride *= input[dim];
            }
            positions.push(place as i64);
        }
    }
    let head = &x.shape()[..outer];
    let plane: usize = input.iter().product();
    let flat = reshape(x, &head.iter().copied().chain([plane]).collect())?;
    let index = Tensor::from_vec(positions, [cells * taps], x.device());
    let candidates = flat.detach().try_index_select(outer, &index)?;
    let split: Shape = head.iter().copied().chain([cells, taps]).collect();
    let best = reduce(ReduceOp::ArgMax, &reshape(&candidates, &split)?, &[outer + 1])?;
    let table = index.try_reshape([cells, taps])?.try_expand(&split)?;
    let picks = gather(&table, outer + 1, &best)?;
    let picks = reshape(&picks, &head.iter().copied().chain([cells]).collect())?;
    let values = gather(&flat, outer, &picks)?;
    let shape: Shape = head.iter().chain(&sizes).copied().collect();
    Ok((reshape(&values, &shape)?, reshape(&picks, &shape)?))
}

type Called = Result<Vec<Tensor>>;

fn output_sizes(args: &Args) -> Result<Vec<Option<usize>>> {
    args.get::<Vec<Option<usize>>>("output_size")
}

fn call_adaptive_avg_pool1d(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_adaptive_avg_pool1d(&output_sizes(args)?)?])
}

fn call_adaptive_avg_pool2d(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_adaptive_avg_pool2d(&output_sizes(args)?)?])
}

fn call_adaptive_avg_pool3d(args: &Args) -> Called {
    Ok(vec![args.get::<Tensor>("input")?.try_adaptive_avg_pool3d(&output_sizes(args)?)?])
}

fn both(args: &Args, (values, positions): (Tensor, Tensor)) -> Called {
    let indices = args.get::<Option<bool>>("return_indices")?.unwrap_or(false);
    Ok(if indices { vec![values, positions] } else { vec![values] })
}

fn call_adaptive_max_pool1d(args: &Args) -> Called {
    both(args, args.get::<Tensor>("input")?.try_adaptive_max_pool1d(&output_sizes(args)?)?)
}

fn call_adaptive_max_pool2d(args: &Args) -> Called {
    both(args, args.get::<Tensor>("input")?.try_adaptive_max_pool2d(&output_sizes(args)?)?)
}

fn call_adaptive_max_pool3d(args: &Args) -> Called {
    both(args, args.get::<Tensor>("input")?.try_adaptive_max_pool3d(&output_sizes(args)?)?)
}

/// Without `output_size`, the sizes that pooling with these settings came from.
fn call_max_unpool(args: &Args) -> Called {
    let (x, indices) = (args.get::<Tensor>("input")?, args.get::<Tensor>("indices")?);
    let kernel = args.get::<Vec<usize>>("kernel_size")?;
    let spatial = match args.get::<Option<Vec<usize>>>("output_size")? {
        Some(sizes) if sizes.len() < x.rank() => sizes.len(),
        _ if kernel.len() > 1 => kernel.len(),
        _ => x.rank().saturating_sub(2).max(1),
    };
    let pick = |list: &[usize], dim: usize| list[dim.min(list.len() - 1)];
    let mut stride = args.get::<Option<Vec<usize>>>("stride")?.unwrap_or_default();
    if stride.is_empty() {
        stride.clone_from(&kernel);
    }
    let padding = args.get::<Option<Vec<usize>>>("padding")?.unwrap_or_else(|| vec![0]);
    let sizes = match args.get::<Option<Vec<usize>>>("output_size")? {
        Some(sizes) => sizes[sizes.len().saturating_sub(spatial)..].to_vec(),
        None => (0..spatial)
            .map(|dim| {
                let n = x.shape()[x.rank() - spatial + dim];
                ((n - 1) * pick(&stride, dim) + pick(&kernel, dim)).saturating_sub(2 * pick(&padding, dim))
            })
            .collect(),
    };
    Ok(vec![x.try_max_unpool(&indices, &sizes)?])
}

/// Read from the arguments of [`PoolOptions`], `count_include_pad` and `divisor_override`.
impl FromArg for AvgPoolOptions {
    fn from_arg(_: &Arg) -> Option<AvgPoolOptions> {
        None
    }

    fn from_args(args: &Args, name: &str) -> Option<AvgPoolOptions> {
        Some(AvgPoolOptions {
            windows: PoolOptions::from_args(args, name)?,
            count_include_pad: args.get::<Option<bool>>("count_include_pad").ok()?.unwrap_or(true),
            divisor_override: args.get("divisor_override").ok()?,
        })
    }
}

/// Read from the arguments `kernel_size`, `dilation`, `padding` and `stride`.
impl FromArg for UnfoldOptions {
    fn from_arg(_: &Arg) -> Option<UnfoldOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<UnfoldOptions> {
        let list = |name: &str, default: usize| -> Option<PerDim> {
            Some(args.get::<Option<PerDim>>(name).ok()?.unwrap_or_else(|| default.into()))
        };
        Some(UnfoldOptions {
            kernel_size: args.get("kernel_size").ok()?,
            dilation: list("dilation", 1)?,
            padding: list("padding", 0)?,
            stride: list("stride", 1)?,
        })
    }
}
