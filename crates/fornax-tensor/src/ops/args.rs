//! [`Args`]: named arguments of any kind, by which an op can be called through its record.

use crate::dims::{ReduceDims, Sizes};
use crate::{Device, IntoOperand, Operand, Tensor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::{DType, Error, Result, Scalar, Shape};

/// One argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// Not given.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating point number.
    Float(f64),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A tensor.
    Tensor(Tensor),
    /// `start:stop:step` of an index.
    Slice {
        /// First position.
        start: Option<i64>,
        /// Position after the last.
        stop: Option<i64>,
        /// Distance.
        step: Option<i64>,
    },
    /// All dims not named in an index.
    Ellipsis,
    /// Several.
    List(Vec<Arg>),
}

/// Named arguments, in PyTorch's order and under PyTorch's names, and the device for ops that take one.
#[derive(Clone, Debug)]
pub struct Args {
    named: Vec<(String, Arg)>,
    device: Device,
}

impl Args {
    /// Arguments for a call on `device`.
    pub fn new(device: &Device, named: Vec<(String, Arg)>) -> Args {
        Args { named, device: device.clone() }
    }

    /// Where results without operands are made.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The argument called `name`. `input` stands for the first one, whatever it is called.
    ///
    /// # Errors
    /// If it is there but is not a `T`, or is missing and `T` needs it.
    pub fn get<T: FromArg>(&self, name: &str) -> Result<T> {
        T::from_args(self, name)
            .ok_or_else(|| Error::argument("call", format!("argument `{name}` does not take {:?}", self.find(name))))
    }

    fn find(&self, name: &str) -> &Arg {
        let first = if name == "input" { self.named.first() } else { None };
        self.named.iter().find(|(named, _)| named == name).or(first).map_or(&Arg::None, |(_, arg)| arg)
    }

    /// Whether the argument is there and is not [`Arg::None`].
    pub fn has(&self, name: &str) -> bool {
        self.named.iter().any(|(named, arg)| named == name && !matches!(arg, Arg::None))
    }
}

/// A type that an argument can be read as.
pub trait FromArg: Sized {
    /// The value, or `None` if `arg` is of another kind.
    fn from_arg(arg: &Arg) -> Option<Self>;

    /// The value of the argument called `name`, for types that read more than that one.
    fn from_args(args: &Args, name: &str) -> Option<Self> {
        Self::from_arg(args.find(name))
    }
}

impl FromArg for Arg {
    fn from_arg(arg: &Arg) -> Option<Arg> {
        Some(arg.clone())
    }
}

impl FromArg for Tensor {
    fn from_arg(arg: &Arg) -> Option<Tensor> {
        match arg {
            Arg::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        }
    }
}

impl FromArg for Operand {
    fn from_arg(arg: &Arg) -> Option<Operand> {
        match arg {
            Arg::Tensor(tensor) => Some(tensor.into_operand()),
            _ => Scalar::from_arg(arg).map(Operand::Scalar),
        }
    }
}

impl FromArg for Scalar {
    fn from_arg(arg: &Arg) -> Option<Scalar> {
        match *arg {
            Arg::Bool(value) => Some(Scalar::Bool(value)),
            Arg::Int(value) => Some(Scalar::Int(value)),
            Arg::Float(value) => Some(Scalar::Float(value)),
            _ => None,
        }
    }
}

impl FromArg for bool {
    fn from_arg(arg: &Arg) -> Option<bool> {
        match *arg {
            Arg::Bool(value) => Some(value),
            Arg::Int(value) => Some(value != 0),
            _ => None,
        }
    }
}

/// A tensor of one element counts as its value, which is read.
impl FromArg for f64 {
    fn from_arg(arg: &Arg) -> Option<f64> {
        match *arg {
            Arg::Tensor(ref tensor) if tensor.numel() == 1 => tensor.try_to_vec::<f64>().ok()?.first().copied(),
            Arg::Float(value) => Some(value),
            Arg::Int(value) => Some(value as f64),
            _ => None,
        }
    }
}

/// A tensor of one integer counts as its value, which is read.
impl FromArg for i64 {
    fn from_arg(arg: &Arg) -> Option<i64> {
        match *arg {
            Arg::Tensor(ref tensor) if tensor.numel() == 1 && tensor.dtype().is_int() => {
                tensor.try_to_vec::<i64>().ok()?.first().copied()
            }
            Arg::Int(value) => Some(value),
            Arg::Float(value) if value as i64 as f64 == value => Some(value as i64),
            _ => None,
        }
    }
}

impl FromArg for isize {
    fn from_arg(arg: &Arg) -> Option<isize> {
        i64::from_arg(arg)?.try_into().ok()
    }
}

impl FromArg for usize {
    fn from_arg(arg: &Arg) -> Option<usize> {
        i64::from_arg(arg)?.try_into().ok()
    }
}

impl FromArg for String {
    fn from_arg(arg: &Arg) -> Option<String> {
        match arg {
            Arg::Str(value) => Some(value.clone()),
            _ => None,
        }
    }
}

impl FromArg for DType {
    fn from_arg(arg: &Arg) -> Option<DType> {
        match *arg {
            Arg::DType(dtype) => Some(dtype),
            _ => None,
        }
    }
}

impl FromArg for Sizes {
    fn from_arg(arg: &Arg) -> Option<Sizes> {
        Some(Sizes::from(Vec::<i64>::from_arg(arg)?))
    }
}

/// Reads `keepdim` beside the dims.
impl FromArg for ReduceDims {
    fn from_arg(arg: &Arg) -> Option<ReduceDims> {
        match arg {
            Arg::None => Some(ReduceDims::default()),
            arg => Some(ReduceDims::from(Vec::<i64>::from_arg(arg)?)),
        }
    }

    fn from_args(args: &Args, name: &str) -> Option<ReduceDims> {
        let keepdim = Option::<bool>::from_arg(args.find("keepdim"))?.unwrap_or(false);
        Some(ReduceDims { keepdim, ..ReduceDims::from_arg(args.find(name))? })
    }
}

impl FromArg for Shape {
    fn from_arg(arg: &Arg) -> Option<Shape> {
        Some(Vec::<usize>::from_arg(arg)?.into())
    }
}

impl<T: FromArg> FromArg for Option<T> {
    fn from_arg(arg: &Arg) -> Option<Option<T>> {
        match arg {
            Arg::None => Some(None),
            arg => T::from_arg(arg).map(Some),
        }
    }
}

/// A single value counts as a list of one, a list tensor of integers as its values, which are read.
impl<T: FromArg> FromArg for Vec<T> {
    fn from_arg(arg: &Arg) -> Option<Vec<T>> {
        match arg {
            Arg::Tensor(tensor) if tensor.rank() == 1 && T::from_arg(arg).is_none() && tensor.dtype().is_int() => {
                tensor.try_to_vec::<i64>().ok()?.into_iter().map(|value| T::from_arg(&Arg::Int(value))).collect()
            }
            Arg::List(list) => list.iter().map(T::from_arg).collect(),
            one => Some(vec![T::from_arg(one)?]),
        }
    }
}

/// What an op may return, as a list of tensors.
pub trait IntoOutputs {
    /// The tensors.
    fn into_outputs(self) -> Vec<Tensor>;
}

impl IntoOutputs for Tensor {
    fn into_outputs(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl IntoOutputs for Vec<Tensor> {
    fn into_outputs(self) -> Vec<Tensor> {
        self
    }
}

impl<const N: usize> IntoOutputs for [Tensor; N] {
    fn into_outputs(self) -> Vec<Tensor> {
        self.into()
    }
}

impl IntoOutputs for (Tensor, Tensor) {
    fn into_outputs(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl IntoOutputs for (Tensor, Tensor, Tensor) {
    fn into_outputs(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

impl IntoOutputs for (Tensor, Tensor, Tensor, Tensor) {
    fn into_outputs(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2, self.3]
    }
}

impl IntoOutputs for bool {
    fn into_outputs(self) -> Vec<Tensor> {
        vec![Tensor::from_vec(vec![self], (), &Device::cpu())]
    }
}
