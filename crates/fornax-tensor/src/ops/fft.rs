//! Fourier transforms. Complex numbers are real pairs: a last dim of 2 holds the real and the imaginary part.

use crate::dims::{IntoDim, resolve_dim, resolve_dim_in};
use crate::ops::Args;
use crate::primitive::{pad, record};
use crate::{DType, Error, Result, Scalar, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{Dims, FftKind, Op};
use fornax_macros::ops;

/// How a transform is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FftNorm {
    /// Forward not at all, inverse by `1 / n`.
    #[default]
    Backward,
    /// Both by `1 / √n`.
    Ortho,
    /// Forward by `1 / n`, inverse not at all.
    Forward,
}

#[ops(group = "linalg", records = RECORDS)]
impl Tensor {
    /// Discrete Fourier transform along `dim` of a real tensor `[…]`: `[…, 2]`. `n` cuts or pads the dim first.
    #[op(torch = ["fft.fft"], call = call_fft)]
    pub fn fft(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        complex_fft(&real_pair(self)?, n, dim.into_dim(), self.rank(), norm, FftKind::Forward)
    }

    /// Inverse discrete Fourier transform along `dim` of a real tensor `[…]`: `[…, 2]`.
    #[op(torch = ["fft.ifft"], call = call_ifft)]
    pub fn ifft(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        complex_fft(&real_pair(self)?, n, dim.into_dim(), self.rank(), norm, FftKind::Inverse)
    }

    /// [`Tensor::fft`] of complex numbers `[…, 2]`; `dim` counts without the last dim.
    #[op(torch = [], call = call_fft)]
    pub fn fft_complex(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        complex_fft(self, n, dim.into_dim(), self.rank().saturating_sub(1), norm, FftKind::Forward)
    }

    /// [`Tensor::ifft`] of complex numbers `[…, 2]`; `dim` counts without the last dim.
    #[op(torch = [], call = call_ifft)]
    pub fn ifft_complex(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        complex_fft(self, n, dim.into_dim(), self.rank().saturating_sub(1), norm, FftKind::Inverse)
    }

    /// The first `n / 2 + 1` entries along `dim` of the transform of a real tensor: the others are their conjugates.
    #[op(torch = ["fft.rfft"], call = call_rfft)]
    pub fn rfft(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        let dim = resolve_dim("rfft", dim.into_dim(), self.shape())?;
        let whole = self.try_fft(n, dim, norm)?;
        let half = whole.shape()[dim] / 2 + 1;
        whole.try_narrow(dim, 0, half)
    }

    /// The real tensor whose half spectrum `[…, m, 2]` this is, `n` entries along `dim` (`2 (m − 1)` if not given).
    #[op(torch = [], call = call_irfft)]
    pub fn irfft(&self, n: Option<usize>, dim: impl IntoDim, norm: FftNorm) -> Result<Tensor> {
        if self.shape().last() != Some(&2) {
            return Err(Error::shape("irfft", format!("{} does not end in (real, imaginary)", self.shape())));
        }
        let dim = resolve_dim_in("irfft", dim.into_dim(), self.rank() - 1)?;
        let n = n.unwrap_or(2 * self.shape()[dim].saturating_sub(1));
        if n == 0 {
            return Err(Error::argument("irfft", format!("no entries along dim {dim} of {}", self.shape())));
        }
        let half = resized(self, dim, n / 2 + 1)?;
        // Entry n − k is the conjugate of entry k.
        let count = n - (n / 2 + 1);
        let mirrored = half.try_narrow(dim, 1, count)?.try_flip([dim as i64])?;
        let conjugate = mirrored.try_mul(Tensor::of(&[1.0, -1.0], self.device()).try_to_dtype(self.dtype())?)?;
        // The imaginary parts of the first and the middle entry count for nothing in a real result.
        let whole = Tensor::try_cat(&[&half, &conjugate], dim)?;
        let y = complex_fft(&whole, None, dim as i64, self.rank() - 1, norm, FftKind::Inverse)?;
        y.try_narrow(-1, 0, 1)?.try_squeeze(-1)
    }

    /// Zero frequency moved to the middle of `dims`.
    #[op(torch = ["fft.fftshift"], call = call_fftshift)]
    pub fn fftshift(&self, dims: &[i64]) -> Result<Tensor> {
        let mut y = self.clone();
        for &dim in dims {
            let dim = resolve_dim("fftshift", dim, self.shape())?;
            let n = self.shape().get(dim).copied().unwrap_or(1);
            let (head, tail) = (y.try_narrow(dim, 0, n - n / 2)?, y.try_narrow(dim, (n - n / 2) as i64, n / 2)?);
            y = Tensor::try_cat(&[&tail, &head], dim)?;
        }
        Ok(y)
    }
}

/// A real tensor as complex numbers with imaginary part 0.
#[track_caller]
fn real_pair(x: &Tensor) -> Result<Tensor> {
    let x = if x.dtype() == DType::F64 { x.clone() } else { x.try_to_dtype(DType::F32)? };
    let pair = x.try_unsqueeze(-1)?;
    let rank = pair.rank();
    let low = Dims::from_elem(0, rank);
    pad(&pair, &low, &pair.shape().with_dim(rank - 1, 2), Scalar::Float(0.0))
}

/// `dim` cut or padded with zeros to `n`.
#[track_caller]
fn resized(x: &Tensor, dim: usize, n: usize) -> Result<Tensor> {
    let size = x.shape()[dim];
    if n <= size {
        return x.try_narrow(dim, 0, n);
    }
    pad(x, &Dims::from_elem(0, x.rank()), &x.shape().with_dim(dim, n), Scalar::Float(0.0))
}

#[track_caller]
fn complex_fft(x: &Tensor, n: Option<usize>, dim: i64, rank: usize, norm: FftNorm, kind: FftKind) -> Result<Tensor> {
    let name = match kind {
        FftKind::Forward => "fft",
        FftKind::Inverse => "ifft",
    };
    if rank == 0 {
        return Err(Error::shape(name, "a 0-d tensor has no dim to transform"));
    }
    let dim = resolve_dim_in(name, dim, rank)?;
    let n = n.unwrap_or(x.shape()[dim]);
    if n == 0 {
        return Err(Error::argument(name, format!("no entries along dim {dim} of {}", x.shape())));
    }
    let y = record(Op::Fft { dim, kind }, &[&resized(x, dim, n)?], None)?;
    let scale = match (norm, kind) {
        (FftNorm::Backward, FftKind::Forward) | (FftNorm::Forward, FftKind::Inverse) => return Ok(y),
        (FftNorm::Backward, FftKind::Inverse) | (FftNorm::Forward, FftKind::Forward) => 1.0 / n as f64,
        (FftNorm::Ortho, _) => return y.try_div(Tensor::full((), n as f64, y.dtype(), y.device()).try_sqrt()?),
    };
    y.try_mul(scale)
}

type Called = Result<Vec<Tensor>>;

impl crate::ops::FromArg for FftNorm {
    fn from_arg(arg: &crate::ops::Arg) -> Option<FftNorm> {
        match Option::<String>::from_arg(arg)?.as_deref() {
            None | Some("backward") => Some(FftNorm::Backward),
            Some("ortho") => Some(FftNorm::Ortho),
            Some("forward") => Some(FftNorm::Forward),
            Some(_) => None,
        }
    }
}

fn one_dim(args: &Args) -> Result<(Tensor, Option<usize>, i64, FftNorm)> {
    let dim = args.get::<Option<i64>>("dim")?.unwrap_or(-1);
    Ok((args.get("input")?, args.get("n")?, dim, args.get("norm")?))
}

fn call_fft(args: &Args) -> Called {
    let (x, n, dim, norm) = one_dim(args)?;
    Ok(vec![x.try_fft(n, dim, norm)?])
}

fn call_ifft(args: &Args) -> Called {
    let (x, n, dim, norm) = one_dim(args)?;
    Ok(vec![x.try_ifft(n, dim, norm)?])
}

fn call_rfft(args: &Args) -> Called {
    let (x, n, dim, norm) = one_dim(args)?;
    Ok(vec![x.try_rfft(n, dim, norm)?])
}

/// PyTorch takes a real tensor as a half spectrum with imaginary part 0.
fn call_irfft(args: &Args) -> Called {
    let (x, n, dim, norm) = one_dim(args)?;
    Ok(vec![real_pair(&x)?.try_irfft(n, resolve_dim("irfft", dim, x.shape())?, norm)?])
}

fn call_fftshift(args: &Args) -> Called {
    let x = args.get::<Tensor>("input")?;
    let dims = match args.get::<Option<Vec<i64>>>("dim")? {
        Some(dims) => dims,
        None => (0..x.rank() as i64).collect(),
    };
    Ok(vec![x.try_fftshift(&dims)?])
}
