//! Fourier transforms. Complex numbers are real pairs: a last dim of 2 holds the real and the imaginary part.

use crate::dims::{IntoDim, resolve_dim, resolve_dim_in};
use crate::ops::{Arg, Args, FromArg, PadMode};
use crate::primitive::{pad, record};
use crate::{DType, Device, Error, Result, Scalar, Tensor};
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

/// Settings of the short-time Fourier transform.
#[derive(Clone, Debug)]
pub struct StftOptions {
    /// Samples in a piece.
    pub n_fft: usize,
    /// Samples between pieces; a quarter of a piece.
    pub hop_length: Option<usize>,
    /// Samples of a piece that the window covers; all.
    pub win_length: Option<usize>,
    /// Multiplies each piece; ones.
    pub window: Option<Tensor>,
    /// Whether the signal is padded so that piece `i` is centred at sample `i · hop`; true.
    pub center: bool,
    /// How it is padded; reflect.
    pub pad_mode: PadMode,
    /// Whether results are divided by `√n_fft`; false.
    pub normalized: bool,
    /// Whether only the first `n_fft / 2 + 1` frequencies are given; true.
    pub onesided: bool,
}

impl StftOptions {
    /// Pieces of `n_fft` samples and the usual settings.
    pub fn new(n_fft: usize) -> StftOptions {
        StftOptions {
            n_fft,
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            pad_mode: PadMode::Reflect,
            normalized: false,
            onesided: true,
        }
    }
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
    #[op(torch = ["fft.irfft"], call = call_irfft)]
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

    /// [`Tensor::fft`] over several dims of a real tensor; `sizes` cuts or pads them first.
    #[op(torch = ["fft.fft2", "fft.fftn"], call = call_fft2)]
    pub fn fftn(&self, sizes: Option<&[usize]>, dims: &[i64], norm: FftNorm) -> Result<Tensor> {
        let axes = fft_dims("fftn", self, sizes, dims)?;
        let mut y = real_pair(self)?;
        for (i, &dim) in axes.iter().enumerate().rev() {
            let n = sizes.map(|sizes| sizes[i]);
            y = complex_fft(&y, n, dim as i64, self.rank(), norm, FftKind::Forward)?;
        }
        Ok(y)
    }

    /// [`Tensor::rfft`] over the last of `dims`, [`Tensor::fft`] over the others.
    #[op(torch = ["fft.rfft2", "fft.rfftn"], call = call_rfft2)]
    pub fn rfftn(&self, sizes: Option<&[usize]>, dims: &[i64], norm: FftNorm) -> Result<Tensor> {
        let axes = fft_dims("rfftn", self, sizes, dims)?;
        let Some((&last, others)) = axes.split_last() else {
            return Err(Error::argument("rfftn", "needs at least one dim"));
        };
        let mut y = self.try_rfft(sizes.map(|sizes| sizes[others.len()]), last, norm)?;
        for (i, &dim) in others.iter().enumerate().rev() {
            let n = sizes.map(|sizes| sizes[i]);
            y = complex_fft(&y, n, dim as i64, self.rank(), norm, FftKind::Forward)?;
        }
        Ok(y)
    }

    /// Fourier transforms of overlapping pieces of `[…, length]`: `[…, frequencies, pieces, 2]`.
    #[op(torch = ["stft"])]
    pub fn stft(&self, options: &StftOptions) -> Result<Tensor> {
        let StftOptions { n_fft, center, normalized, onesided, .. } = *options;
        let hop = options.hop_length.unwrap_or(n_fft / 4);
        let length = options.win_length.unwrap_or(n_fft);
        if n_fft == 0 || hop == 0 || length > n_fft || self.rank() == 0 || self.rank() > 2 {
            let message = format!("n_fft {n_fft}, hop {hop}, window {length} for {}", self.shape());
            return Err(Error::argument("stft", message));
        }
        let mut x = if center {
            let half = (n_fft / 2) as i64;
            self.try_pad(&[half, half], options.pad_mode).map_err(|error| error.named("stft"))?
        } else {
            self.clone()
        };
        let size = x.shape()[x.rank() - 1];
        if size < n_fft {
            return Err(Error::shape("stft", format!("{size} samples are less than a piece of {n_fft}")));
        }
        let dim = fornax_ir::WindowDim { size: n_fft, step: hop, dilation: 1 };
        let spec = fornax_ir::WindowSpec { dims: smallvec::smallvec![dim] };
        x = crate::primitive::window(&x, spec)?; // […, pieces, n_fft]
        if let Some(window) = &options.window {
            if window.shape()[..] != [length] {
                return Err(Error::shape("stft", format!("window {} is not [{length}]", window.shape())));
            }
            // A shorter window stands in the middle.
            let before = (n_fft - length) / 2;
            let whole = window.pad_dims(&[(before, n_fft - length - before)], 0);
            x = x.try_mul(whole)?;
        } else if length < n_fft {
            let before = (n_fft - length) / 2;
            let ones = Tensor::ones([length], x.device()).try_to_dtype(x.dtype())?;
            x = x.try_mul(ones.pad_dims(&[(before, n_fft - length - before)], 0))?;
        }
        let norm = if normalized { FftNorm::Ortho } else { FftNorm::Backward };
        let spectrum = if onesided { x.try_rfft(None, -1, norm)? } else { x.try_fft(None, -1, norm)? };
        spectrum.try_transpose(-3, -2)
    }

    /// Hann's window of `m` points: `sin²(πi / (m − 1))`, or over `m` if not symmetric.
    #[op(torch = ["signal.windows.hann"], call = call_hann, grad = false)]
    pub fn hann_window(m: usize, symmetric: bool, device: &Device) -> Result<Tensor> {
        cosine_window(m, symmetric, &[0.5, 0.5], device)
    }

    /// Hamming's window of `m` points: `0.54 − 0.46 cos(2πi / (m − 1))`, or over `m` if not symmetric.
    #[op(torch = ["signal.windows.hamming"], call = call_hamming, grad = false)]
    pub fn hamming_window(m: usize, symmetric: bool, device: &Device) -> Result<Tensor> {
        cosine_window(m, symmetric, &[0.54, 0.46], device)
    }

    /// Blackman's window of `m` points.
    #[op(torch = ["signal.windows.blackman"], call = call_blackman, grad = false)]
    pub fn blackman_window(m: usize, symmetric: bool, device: &Device) -> Result<Tensor> {
        cosine_window(m, symmetric, &[0.42, 0.5, 0.08], device)
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

    /// What [`Tensor::fftshift`] moved, moved back.
    #[op(torch = ["fft.ifftshift"], call = call_ifftshift)]
    pub fn ifftshift(&self, dims: &[i64]) -> Result<Tensor> {
        let mut y = self.clone();
        for &dim in dims {
            let dim = resolve_dim("ifftshift", dim, self.shape())? as i64;
            let n = self.shape().get(dim as usize).copied().unwrap_or(1);
            y = y.try_roll(&[-((n / 2) as i64)], &[dim])?;
        }
        Ok(y)
    }

    /// The frequencies of [`Tensor::fft`] of `n` samples, `spacing` apart: `[0, 1, …, −2, −1] / (n · spacing)`, dtype `f64`.
    #[op(torch = ["fft.fftfreq"], call = call_fftfreq, grad = false)]
    pub fn fftfreq(n: usize, spacing: f64, device: &Device) -> Result<Tensor> {
        let positive = n.div_ceil(2) as i64;
        let value = |i: i64| if i < positive { i } else { i - n as i64 };
        let values: Vec<f64> = (0..n as i64).map(|i| value(i) as f64 / (n as f64 * spacing)).collect();
        Ok(Tensor::from_vec(values, [n], device))
    }

    /// The frequencies of [`Tensor::rfft`] of `n` samples, `spacing` apart: `[0, 1, …, n / 2] / (n · spacing)`, dtype `f64`.
    #[op(torch = ["fft.rfftfreq"], call = call_rfftfreq, grad = false)]
    pub fn rfftfreq(n: usize, spacing: f64, device: &Device) -> Result<Tensor> {
        let values: Vec<f64> = (0..=n / 2).map(|i| i as f64 / (n as f64 * spacing)).collect();
        Ok(Tensor::from_vec(values, [n / 2 + 1], device))
    }
}

fn fft_dims(op: &str, x: &Tensor, sizes: Option<&[usize]>, dims: &[i64]) -> Result<Vec<usize>> {
    if sizes.is_some_and(|sizes| sizes.len() != dims.len()) {
        return Err(Error::argument(op, format!("{sizes:?} does not fit dims {dims:?}")));
    }
    dims.iter().map(|&dim| resolve_dim(op, dim, x.shape())).collect()
}

/// `Σ ±aⱼ cos(2πij / (m − 1))` with alternating signs, dtype `f64`.
fn cosine_window(m: usize, symmetric: bool, parts: &[f64], device: &Device) -> Result<Tensor> {
    let span = if symmetric { m.saturating_sub(1) } else { m }.max(1) as f64;
    let value = |i: usize| {
        let term = |(j, &a): (usize, &f64)| {
            let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
            sign * a * libm::cos(core::f64::consts::TAU * (i * j) as f64 / span)
        };
        if m == 1 { 1.0 } else { parts.iter().enumerate().map(term).sum() }
    };
    Ok(Tensor::from_vec((0..m).map(value).collect::<Vec<f64>>(), [m], device))
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

impl FromArg for FftNorm {
    fn from_arg(arg: &Arg) -> Option<FftNorm> {
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
    let (x, dims) = shifted_dims(args)?;
    Ok(vec![x.try_fftshift(&dims)?])
}

fn call_ifftshift(args: &Args) -> Called {
    let (x, dims) = shifted_dims(args)?;
    Ok(vec![x.try_ifftshift(&dims)?])
}

/// What is shifted, and along which dims: all if none is named.
fn shifted_dims(args: &Args) -> Result<(Tensor, Vec<i64>)> {
    let x = args.get::<Tensor>("input")?;
    let dims = match args.get::<Option<Vec<i64>>>("dim")? {
        Some(dims) => dims,
        None => (0..x.rank() as i64).collect(),
    };
    Ok((x, dims))
}

fn call_fftfreq(args: &Args) -> Called {
    let spacing = args.get::<Option<f64>>("d")?.unwrap_or(1.0);
    Ok(vec![Tensor::try_fftfreq(args.get::<usize>("n")?, spacing, args.device())?])
}

fn call_rfftfreq(args: &Args) -> Called {
    let spacing = args.get::<Option<f64>>("d")?.unwrap_or(1.0);
    Ok(vec![Tensor::try_rfftfreq(args.get::<usize>("n")?, spacing, args.device())?])
}

/// The input, its new sizes, the dims and the scaling.
type Several = (Tensor, Option<Vec<usize>>, Vec<i64>, FftNorm);

fn several_dims(args: &Args) -> Result<Several> {
    let dims = args.get::<Option<Vec<i64>>>("dim")?.unwrap_or_else(|| vec![-2, -1]);
    Ok((args.get("input")?, args.get("s")?, dims, args.get("norm")?))
}

fn call_fft2(args: &Args) -> Called {
    let (x, sizes, dims, norm) = several_dims(args)?;
    Ok(vec![x.try_fftn(sizes.as_deref(), &dims, norm)?])
}

fn call_rfft2(args: &Args) -> Called {
    let (x, sizes, dims, norm) = several_dims(args)?;
    Ok(vec![x.try_rfftn(sizes.as_deref(), &dims, norm)?])
}

fn typed_window(args: &Args, make: fn(usize, bool, &Device) -> Result<Tensor>) -> Called {
    let symmetric = args.get::<Option<bool>>("sym")?.unwrap_or(true);
    let window = make(args.get("M")?, symmetric, args.device())?;
    Ok(vec![window.try_to_dtype(args.get::<Option<DType>>("dtype")?.unwrap_or(DType::F32))?])
}

fn call_hann(args: &Args) -> Called {
    typed_window(args, Tensor::try_hann_window)
}

fn call_hamming(args: &Args) -> Called {
    typed_window(args, Tensor::try_hamming_window)
}

fn call_blackman(args: &Args) -> Called {
    typed_window(args, Tensor::try_blackman_window)
}

/// Read from the arguments of the same names.
impl FromArg for StftOptions {
    fn from_arg(_: &Arg) -> Option<StftOptions> {
        None
    }

    fn from_args(args: &Args, _: &str) -> Option<StftOptions> {
        let pad_mode = match args.get::<Option<String>>("pad_mode").ok()?.as_deref() {
            None | Some("reflect") => PadMode::Reflect,
            Some("constant") => PadMode::Constant(0.0),
            Some("replicate") => PadMode::Replicate,
            Some("circular") => PadMode::Circular,
            Some(_) => return None,
        };
        Some(StftOptions {
            n_fft: args.get("n_fft").ok()?,
            hop_length: args.get("hop_length").ok()?,
            win_length: args.get("win_length").ok()?,
            window: args.get("window").ok()?,
            center: args.get::<Option<bool>>("center").ok()?.unwrap_or(true),
            pad_mode,
            normalized: args.get::<Option<bool>>("normalized").ok()?.unwrap_or(false),
            onesided: args.get::<Option<bool>>("onesided").ok()?.unwrap_or(true),
        })
    }
}
