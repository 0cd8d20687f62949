//! Printing tensors as PyTorch does: aligned columns, long dims shortened to their ends.

use crate::{DType, Tensor};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Tensors with more elements than this are shortened.
const THRESHOLD: usize = 1000;
/// Elements shown at each end of a shortened dim.
const EDGE: usize = 3;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = match self.detach().try_to_vec::<f64>() {
            Ok(_) if self.dtype().is_float() => format_floats(&self.to_vec::<f64>()),
            Ok(_) if self.dtype() == DType::Bool => self.to_vec::<bool>().iter().map(bool::to_string).collect(),
            Ok(_) if self.dtype() == DType::U64 => self.to_vec::<u64>().iter().map(u64::to_string).collect(),
            Ok(_) => self.to_vec::<i64>().iter().map(i64::to_string).collect(),
            Err(error) => return write!(f, "tensor({error})"),
        };
        let width = shown(self, &values).map(|text| text.chars().count()).max().unwrap_or(0);
        f.write_str("tensor(")?;
        write_dim(f, self, &values, width, 0, 0)?;
        if self.dtype() != DType::F32 && self.dtype() != DType::I64 && self.dtype() != DType::Bool {
            write!(f, ", dtype={}", self.dtype())?;
        }
        if self.numel() == 0 && self.rank() != 1 {
            write!(f, ", size={}", self.shape())?;
        }
        if self.device().name() != "cpu" {
            write!(f, ", device={}", self.device())?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor {}{} on {}", self.dtype(), self.shape(), self.device())?;
        if self.is_tracked() { f.write_str(", tracked") } else { Ok(()) }
    }
}

/// The texts that will be shown.
fn shown<'a>(tensor: &Tensor, values: &'a [String]) -> impl Iterator<Item = &'a String> {
    let strides = tensor.shape().strides();
    let shape = tensor.shape().clone();
    let short = tensor.numel() > THRESHOLD;
    values.iter().enumerate().filter_map(move |(place, text)| {
        let visible = !short
            || (0..shape.rank()).all(|dim| {
                let position = place / strides[dim] as usize % shape[dim];
                position < EDGE || position >= shape[dim].saturating_sub(EDGE)
            });
        visible.then_some(text)
    })
}

fn write_dim(
    f: &mut fmt::Formatter<'_>,
    tensor: &Tensor,
    values: &[String],
    width: usize,
    dim: usize,
    place: usize,
) -> fmt::Result {
    if dim == tensor.rank() {
        return write!(f, "{:>width$}", values[place]);
    }
    let size = tensor.shape()[dim];
    let stride = tensor.shape().strides()[dim] as usize;
    let is_last = dim + 1 == tensor.rank();
    let short = tensor.numel() > THRESHOLD && size > 2 * EDGE;
    let separator = if is_last {
        String::from(", ")
    } else {
        format!(",{}{}", "\n".repeat(tensor.rank() - dim - 1), " ".repeat("tensor(".len() + dim + 1))
    };
    f.write_str("[")?;
    let positions: Vec<Option<usize>> = if short {
        (0..EDGE).map(Some).chain([None]).chain((size - EDGE..size).map(Some)).collect()
    } else {
        (0..size).map(Some).collect()
    };
    for (i, position) in positions.into_iter().enumerate() {
        if i > 0 {
            f.write_str(&separator)?;
        }
        match position {
            Some(position) => write_dim(f, tensor, values, width, dim + 1, place + position * stride)?,
            None => f.write_str("...")?,
        }
    }
    f.write_str("]")
}

/// Four digits behind the point; whole numbers as `1.`; powers of ten when sizes are far apart, as PyTorch chooses.
fn format_floats(values: &[f64]) -> Vec<String> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let magnitudes = || finite().filter(|&value| value != 0.0).map(f64::abs);
    let whole = finite().all(|value| value as i64 as f64 == value);
    let (least, largest) =
        magnitudes().fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)));
    let scientific = largest > 0.0 && (largest / least > 1000.0 && !whole || largest > 1e8 || least < 1e-4);
    let format = |&value: &f64| {
        if value.is_nan() {
            String::from("nan")
        } else if value.is_infinite() {
            String::from(if value > 0.0 { "inf" } else { "-inf" })
        } else if scientific {
            scientific_text(value)
        } else if whole {
            format!("{value:.0}.")
        } else {
            format!("{value:.4}")
        }
    };
    values.iter().map(format).collect()
}

/// `1.2340e+05`.
fn scientific_text(value: f64) -> String {
    let text = format!("{value:.4e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}
