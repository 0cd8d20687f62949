//! Normalization. Statistics of halves are computed in `f32` and results rounded once.

use crate::dims::keepdim;
use crate::ops::{Arg, Args, FromArg};
use crate::primitive::{cast, reshape};
use crate::{Error, Result, Shape, Tensor};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::Dims;
use fornax_macros::ops;

/// Scale and shift after normalization.
#[derive(Clone, Debug, Default)]
pub struct Affine {
    /// Multiplies.
    pub weight: Option<Tensor>,
    /// Is added.
    pub bias: Option<Tensor>,
}

#[ops(group = "nn", records = RECORDS)]
impl Tensor {
    /// `(x − mean) / √(var + eps) · weight + bias` over the last dims, which must be `normalized_shape`; biased variance.
    ///
    /// # References
    /// Ba, Kiros, Hinton (2016), *Layer Normalization*, arXiv:1607.06450.
    #[op(torch = ["nn.functional.layer_norm"], default(eps = 1e-5), autocast = high)]
    pub fn layer_norm(&self, normalized_shape: &[usize], affine: &Affine, eps: f64) -> Result<Tensor> {
        let dims = last_dims("layer_norm", self, normalized_shape)?;
        let x = cast(self, self.dtype().compute())?;
        affine.apply(&standardize(&x, &dims, eps)?, self, None)
    }

    /// `x / √(mean(x²) + eps) · weight` over the last dims. Without `eps`, the machine epsilon.
    ///
    /// # References
    /// Zhang, Sennrich (2019), *Root Mean Square Layer Normalization*, arXiv:1910.07467.
    #[op(torch = ["nn.functional.rms_norm"], autocast = high)]
    pub fn rms_norm(&self, normalized_shape: &[usize], weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
        let dims = last_dims("rms_norm", self, normalized_shape)?;
        let x = cast(self, self.dtype().compute())?;
        let eps = eps.unwrap_or(match self.dtype() {
            crate::DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        });
        let scale = x.try_square()?.try_mean(keepdim(&dims[..]))?.try_add(eps)?.try_rsqrt()?;
        Affine { weight: weight.cloned(), bias: None }.apply(&x.try_mul(&scale)?, self, None)
    }

    /// Layer normalization over groups of channels of `[n, c, …]`, with a weight and bias for each channel.
    ///
    /// # References
    /// Wu, He (2018), *Group Normalization*, arXiv:1803.08494.
    #[op(torch = ["nn.functional.group_norm"], default(eps = 1e-5), autocast = high)]
    pub fn group_norm(&self, num_groups: usize, affine: &Affine, eps: f64) -> Result<Tensor> {
        let channels = channels("group_norm", self)?;
        if num_groups == 0 || channels % num_groups != 0 {
            let message = format!("{channels} channels of {} do not split into {num_groups} groups", self.shape());
            return Err(Error::shape("group_norm", message));
        }
        let x = cast(self, self.dtype().compute())?;
        let n = self.shape()[0];
        let rest: usize = self.shape()[1..].iter().product();
        let groups = reshape(&x, &Shape::from([n, num_groups, rest / num_groups]))?;
        let y = reshape(&standardize(&groups, &[2], eps)?, self.shape())?;
        affine.apply(&y, self, Some(1))
    }

    /// Normalization of each channel of each item of `[n, c, …]` on its own.
    ///
    /// # References
    /// Ulyanov, Vedaldi, Lempitsky (2016), *Instance Normalization*, arXiv:1607.08022.
    #[op(torch = ["nn.functional.instance_norm"], call = call_instance_norm, autocast = high)]
    pub fn instance_norm(&self, affine: &Affine, eps: f64) -> Result<Tensor> {
        channels("instance_norm", self)?;
        let x = cast(self, self.dtype().compute())?;
        let dims: Dims = (2..self.rank()).collect();
        affine.apply(&standardize(&x, &dims, eps)?, self, Some(1))
    }

    /// Normalization of each channel of `[n, c, …]` with the given statistics.
    ///
    /// # References
    /// Ioffe, Szegedy (2015), *Batch Normalization*, arXiv:1502.03167.
    #[op(torch = ["nn.functional.batch_norm"], call = call_batch_norm, autocast = high)]
    pub fn batch_norm(&self, mean: &Tensor, var: &Tensor, affine: &Affine, eps: f64) -> Result<Tensor> {
        channels("batch_norm", self)?;
        let x = cast(self, self.dtype().compute())?;
        let (mean, var) = (along(&x, mean, 1)?, along(&x, var, 1)?);
        let y = x.try_sub(mean)?.try_mul(var.try_add(eps)?.try_rsqrt()?)?;
        affine.apply(&y, self, Some(1))
    }

    /// Mean and biased variance of each channel of `[n, c, …]`, in `f32` for halves.
    #[op(torch = [])]
    pub fn batch_statistics(&self) -> Result<(Tensor, Tensor)> {
        channels("batch_statistics", self)?;
        let x = cast(self, self.dtype().compute())?;
        let dims: Vec<usize> = (0..self.rank()).filter(|&dim| dim != 1).collect();
        let mean = x.try_mean(keepdim(dims.clone()))?;
        let var = x.try_sub(&mean)?.try_square()?.try_mean(dims)?;
        Ok((mean.try_reshape([-1])?, var))
    }

    /// Divided by `(k + alpha · mean of squares over size neighbouring channels)^beta`.
    ///
    /// # References
    /// Krizhevsky, Sutskever, Hinton (2012), *ImageNet Classification with Deep Convolutional Neural Networks*, 3.3.
    #[op(torch = ["nn.functional.local_response_norm"], default(alpha = 1e-4, beta = 0.75, k = 1.0))]
    pub fn local_response_norm(&self, size: usize, alpha: f64, beta: f64, k: f64) -> Result<Tensor> {
        channels("local_response_norm", self)?;
        if self.rank() < 3 || size == 0 {
            let message = format!("{} needs at least 3 dims, and the size {size} at least 1", self.shape());
            return Err(Error::shape("local_response_norm", message));
        }
        let mut padding = vec![(0, 0); self.rank()];
        padding[1] = (size / 2, (size - 1) / 2);
        let squares = self.try_square()?.pad_dims(&padding, 0).try_transpose(1, -1)?;
        let spec =
            fornax_ir::WindowSpec { dims: smallvec::smallvec![fornax_ir::WindowDim { size, step: 1, dilation: 1 }] };
        let sums = crate::primitive::window(&squares, spec)?.try_mean(-1)?.try_transpose(1, -1)?;
        self.try_div(sums.try_mul(alpha)?.try_add(k)?.try_pow(beta)?)
    }
}

impl Affine {
    /// A weight and a bias.
    pub fn new(weight: &Tensor, bias: &Tensor) -> Affine {
        Affine { weight: Some(weight.clone()), bias: Some(bias.clone()) }
    }

    /// `y · weight + bias` in the dtype of `like`, along one dim or along the last ones.
    #[track_caller]
    fn apply(&self, y: &Tensor, like: &Tensor, dim: Option<usize>) -> Result<Tensor> {
        let mut y = y.clone();
        let fit = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
            let x = cast(x, y.dtype())?;
            match dim {
                Some(dim) => along(y, &x, dim),
                None => Ok(x),
            }
        };
        if let Some(weight) = &self.weight {
            y = y.try_mul(fit(weight, &y)?)?;
        }
        if let Some(bias) = &self.bias {
            y = y.try_add(fit(bias, &y)?)?;
        }
        cast(&y, like.dtype())
    }
}

/// `(x − mean) / √(var + eps)` over `dims`.
#[track_caller]
fn standardize(x: &Tensor, dims: &[usize], eps: f64) -> Result<Tensor> {
    if dims.is_empty() {
        return x.try_sub(x);
    }
    let centered = x.try_sub(x.try_mean(keepdim(dims))?)?;
    let var = centered.try_square()?.try_mean(keepdim(dims))?;
    centered.try_mul(var.try_add(eps)?.try_rsqrt()?)
}

/// A list shaped to stand along `dim` of `x`.
#[track_caller]
fn along(x: &Tensor, list: &Tensor, dim: usize) -> Result<Tensor> {
    if list.numel() != x.shape()[dim] {
        let message = format!("{} does not fit dim {dim} of {}", list.shape(), x.shape());
        return Err(Error::shape("norm", message));
    }
    let mut shape = Shape::from(Dims::from_elem(1, x.rank()));
    shape.dims_mut()[dim] = list.numel();
    cast(&reshape(list, &shape)?, x.dtype())
}

fn channels(op: &str, x: &Tensor) -> Result<usize> {
    match x.shape().get(1) {
        Some(&channels) => Ok(channels),
        None => Err(Error::shape(op, format!("{} has no channel dim (dim 1)", x.shape()))),
    }
}

fn last_dims(op: &str, x: &Tensor, normalized: &[usize]) -> Result<Dims> {
    if normalized.is_empty() || !x.shape().ends_with(normalized) {
        return Err(Error::shape(op, format!("x {} does not end in {normalized:?}", x.shape())));
    }
    Ok((x.rank() - normalized.len()..x.rank()).collect())
}

/// Read from the arguments `weight` and `bias`.
impl FromArg for Affine {
    fn from_arg(_: &Arg) -> Option<Affine> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<Affine> {
        Some(Affine { weight: args.get("weight").ok()?, bias: args.get("bias").ok()? })
    }
}

type Called = Result<Vec<Tensor>>;

fn call_batch_norm(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    if x.numel() == 0 {
        return Ok(vec![x.try_mul(1.0)?]);
    }
    let (affine, eps) = (args.get("affine")?, args.get::<Option<f64>>("eps")?.unwrap_or(1e-5));
    let given = args.get::<Option<Tensor>>("running_mean")?.zip(args.get::<Option<Tensor>>("running_var")?);
    let training = args.get::<Option<bool>>("training")?.unwrap_or(false);
    let (mean, var) = match given {
        Some(statistics) if !training => statistics,
        _ => x.try_batch_statistics()?,
    };
    Ok(vec![x.try_batch_norm(&mean, &var, &affine, eps)?])
}

fn call_instance_norm(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    let (affine, eps) = (args.get("affine")?, args.get::<Option<f64>>("eps")?.unwrap_or(1e-5));
    let given = args.get::<Option<Tensor>>("running_mean")?.zip(args.get::<Option<Tensor>>("running_var")?);
    let own = args.get::<Option<bool>>("use_input_stats")?.unwrap_or(true);
    Ok(vec![match given {
        Some((mean, var)) if !own => x.try_batch_norm(&mean, &var, &affine, eps)?,
        _ => x.try_instance_norm(&affine, eps)?,
    }])
}
