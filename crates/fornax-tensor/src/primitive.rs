//! Recording primitives: every op of a tensor ends here.
//!
//! Each function checks the primitive's rule, records it on the device, and, if a gradient may be asked for, on the
//! tape. The functions that take [`Operand`]s also promote dtypes and broadcast shapes.

use crate::autodiff::{self, Tape};
use crate::node::Value;
use crate::operand::{IntoOperand, Operand, promote};
use crate::transforms::{Level, batching};
use crate::{Device, Tensor};
use alloc::format;
use alloc::vec::Vec;
use core::panic::Location;
use fornax_ir::{
    BinaryOp, CompareOp, DType, Error, ErrorKind, Op, ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, UnaryOp,
    WindowSpec, broadcast_shapes, infer,
};
use smallvec::SmallVec;

/// Records `op` on tensors of one device.
///
/// # Errors
/// If the op's rule is broken or the tensors live on different devices.
#[track_caller]
pub(crate) fn record(op: Op, inputs: &[&Tensor], shape: Option<&Shape>) -> Result<Tensor> {
    let operands: SmallVec<[(DType, &Shape); 3]> = inputs.iter().map(|x| (x.dtype(), x.shape())).collect();
    let (dtype, shape) = infer(&op, &operands, shape)?;
    let device = inputs[0].device();
    if let Some(other) = inputs.iter().find(|x| x.device() != device) {
        let message = format!("tensors are on different devices: {device} and {}", other.device());
        return Err(Error::new(ErrorKind::Device, op.name(), message).help("move one with `to_device`"));
    }
    let tape_op = autodiff::is_recorded(&op, dtype, inputs).then(|| op.clone());
    let value = match Level::innermost(inputs.iter().copied()) {
        Some(level) => level.example(batching::record(&op, inputs, &shape, level)?).value,
        None => {
            let edges = inputs.iter().map(|x| x.value.node.clone()).collect();
            device.record(op, edges, dtype, shape, Location::caller())
        }
    };
    Ok(match tape_op {
        Some(op) => Tape::primitive(op, inputs, value),
        None => Tensor::untracked(value),
    })
}

/// Records a source on a device.
#[track_caller]
pub(crate) fn source(op: Op, dtype: DType, shape: Shape, device: &Device) -> Tensor {
    Tensor::untracked(source_value(op, dtype, shape, device))
}

#[track_caller]
fn source_value(op: Op, dtype: DType, shape: Shape, device: &Device) -> Value {
    device.record(op, SmallVec::new(), dtype, shape, Location::caller())
}

/// `value` in every element.
#[track_caller]
pub(crate) fn constant(value: Scalar, dtype: DType, shape: &Shape, device: &Device) -> Tensor {
    source(Op::Const(value.cast(dtype)), dtype, shape.clone(), device)
}

#[track_caller]
pub(crate) fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    record(Op::Unary(op), &[x], None)
}

/// [`binary`] of a tensor and whatever stands beside it. The common case, equal dtypes and shapes, clones nothing.
#[track_caller]
pub(crate) fn binary_with(op: BinaryOp, lhs: &Tensor, rhs: impl IntoOperand) -> Result<Tensor> {
    if let Some(rhs) = rhs.as_tensor()
        && rhs.dtype() == lhs.dtype()
        && rhs.shape() == lhs.shape()
    {
        return record(Op::Binary(op), &[lhs, rhs], None);
    }
    binary(op, &lhs.into_operand(), &rhs.into_operand())
}

/// Elementwise with promotion and broadcasting.
#[track_caller]
pub(crate) fn binary(op: BinaryOp, lhs: &Operand, rhs: &Operand) -> Result<Tensor> {
    let dtype = promote(lhs, rhs);
    let (lhs, rhs) = broadcast(op.name(), lhs, rhs, dtype)?;
    record(Op::Binary(op), &[&lhs, &rhs], None)
}

/// Elementwise with promotion and broadcasting; the result is `bool`.
#[track_caller]
pub(crate) fn compare(op: CompareOp, lhs: &Operand, rhs: &Operand) -> Result<Tensor> {
    let dtype = promote(lhs, rhs);
    let (lhs, rhs) = broadcast(op.name(), lhs, rhs, dtype)?;
    record(Op::Compare(op), &[&lhs, &rhs], None)
}

/// Both operands in `dtype` and of one shape. One of them is a tensor.
#[track_caller]
pub(crate) fn broadcast(op: &str, lhs: &Operand, rhs: &Operand, dtype: DType) -> Result<(Tensor, Tensor)> {
    match (lhs, rhs) {
        (Operand::Tensor(lhs), Operand::Tensor(rhs)) => {
            let (lhs, rhs) = (cast(lhs, dtype)?, cast(rhs, dtype)?);
            if lhs.shape() == rhs.shape() {
                return Ok((lhs, rhs));
            }
            let shape = broadcast_shapes(op, lhs.shape(), rhs.shape())?;
            Ok((expand(&lhs, &shape)?, expand(&rhs, &shape)?))
        }
        (Operand::Tensor(lhs), &Operand::Scalar(rhs)) => {
            let rhs = constant(rhs, dtype, lhs.shape(), lhs.device());
            Ok((cast(lhs, dtype)?, rhs))
        }
        (&Operand::Scalar(lhs), Operand::Tensor(rhs)) => {
            let lhs = constant(lhs, dtype, rhs.shape(), rhs.device());
            Ok((lhs, cast(rhs, dtype)?))
        }
        (Operand::Scalar(_), Operand::Scalar(_)) => Err(Error::argument(op, "one operand must be a tensor")),
    }
}

/// `condition ? a : b` with promotion and broadcasting of all three.
#[track_caller]
pub(crate) fn select(condition: &Tensor, a: &Operand, b: &Operand) -> Result<Tensor> {
    let dtype = promote(a, b);
    let mut shape = condition.shape().clone();
    for operand in [a, b] {
        if let Operand::Tensor(tensor) = operand {
            shape = broadcast_shapes("where", &shape, tensor.shape())?;
        }
    }
    let device = condition.device();
    let fit = |operand: &Operand| match operand {
        Operand::Tensor(tensor) => expand(&cast(tensor, dtype)?, &shape),
        Operand::Scalar(scalar) => Ok(constant(*scalar, dtype, &shape, device)),
    };
    record(Op::Select, &[&expand(condition, &shape)?, &fit(a)?, &fit(b)?], None)
}

#[track_caller]
pub(crate) fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype { Ok(x.clone()) } else { record(Op::Cast(dtype), &[x], None) }
}

#[track_caller]
pub(crate) fn bitcast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    record(Op::Bitcast(dtype), &[x], None)
}

#[track_caller]
pub(crate) fn reshape(x: &Tensor, shape: &Shape) -> Result<Tensor> {
    if x.shape() == shape { Ok(x.clone()) } else { record(Op::Reshape, &[x], Some(shape)) }
}

#[track_caller]
pub(crate) fn permute(x: &Tensor, perm: &[usize]) -> Result<Tensor> {
    if perm.len() == x.shape().rank() && perm.iter().enumerate().all(|(i, &dim)| i == dim) {
        return Ok(x.clone());
    }
    record(Op::Permute(perm.into()), &[x], None)
}

#[track_caller]
pub(crate) fn expand(x: &Tensor, shape: &Shape) -> Result<Tensor> {
    if x.shape() == shape { Ok(x.clone()) } else { record(Op::Expand, &[x], Some(shape)) }
}

#[track_caller]
pub(crate) fn slice(x: &Tensor, starts: &[usize], steps: &[i64], shape: &Shape) -> Result<Tensor> {
    let whole = x.shape() == shape && starts.iter().all(|&start| start == 0) && steps.iter().all(|&step| step == 1);
    if whole {
        return Ok(x.clone());
    }
    record(Op::Slice { starts: starts.into(), steps: steps.into() }, &[x], Some(shape))
}

#[track_caller]
pub(crate) fn pad(x: &Tensor, low: &[usize], shape: &Shape, value: Scalar) -> Result<Tensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    record(Op::Pad { low: low.into(), value: value.cast(x.dtype()) }, &[x], Some(shape))
}

#[track_caller]
pub(crate) fn concat(tensors: &[&Tensor], dim: usize) -> Result<Tensor> {
    match tensors {
        [] => Err(Error::argument("concat", "needs at least one tensor")),
        [one] => Ok((*one).clone()),
        _ => record(Op::Concat { dim }, tensors, None),
    }
}

#[track_caller]
pub(crate) fn window(x: &Tensor, spec: WindowSpec) -> Result<Tensor> {
    record(Op::Window(spec), &[x], None)
}

#[track_caller]
pub(crate) fn fold(x: &Tensor, spec: WindowSpec, shape: &Shape) -> Result<Tensor> {
    record(Op::Fold(spec), &[x], Some(shape))
}

/// Over ascending `dims`, which stay with size 1.
#[track_caller]
pub(crate) fn reduce(op: ReduceOp, x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    if dims.is_empty() {
        return match op {
            ReduceOp::ArgMax | ReduceOp::ArgMin => Ok(constant(Scalar::Int(0), DType::I64, x.shape(), x.device())),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => Ok(x.clone()),
        };
    }
    record(Op::Reduce { op, dims: dims.into() }, &[x], None)
}

#[track_caller]
pub(crate) fn scan(op: ScanOp, x: &Tensor, dim: usize) -> Result<Tensor> {
    record(Op::Scan { op, dim }, &[x], None)
}

#[track_caller]
pub(crate) fn argsort(x: &Tensor, dim: usize, descending: bool) -> Result<Tensor> {
    record(Op::ArgSort { dim, descending }, &[x], None)
}

#[track_caller]
pub(crate) fn topk(x: &Tensor, k: usize, dim: usize, largest: bool) -> Result<Tensor> {
    if dim >= x.shape().rank() {
        return Err(Error::index("topk", format!("dim {dim} is out of range for {}", x.shape())));
    }
    record(Op::TopK { dim, largest }, &[x], Some(&x.shape().with_dim(dim, k)))
}

#[track_caller]
pub(crate) fn gather(x: &Tensor, dim: usize, index: &Tensor) -> Result<Tensor> {
    record(Op::Gather { dim }, &[x, index], None)
}

#[track_caller]
pub(crate) fn scatter(mode: ScatterMode, x: &Tensor, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    record(Op::Scatter { dim, mode }, &[x, index, source], None)
}

/// `[batch…, m, k] · [batch…, k, n]`, equal ranks, batch dims broadcast.
#[track_caller]
pub(crate) fn matmul(lhs: &Tensor, rhs: &Tensor, out: DType) -> Result<Tensor> {
    let (a, b) = (lhs.shape(), rhs.shape());
    if a.rank() >= 2 && b.rank() >= 2 && a[a.rank() - 1] == b[b.rank() - 2] {
        let batch = broadcast_shapes("matmul", &a[..a.rank() - 2].into(), &b[..b.rank() - 2].into())?;
        let full = |shape: &Shape| -> Shape { batch.iter().chain(&shape[shape.rank() - 2..]).copied().collect() };
        let (lhs, rhs) = (expand(lhs, &full(a))?, expand(rhs, &full(b))?);
        return record(Op::Matmul { out }, &[&lhs, &rhs], None);
    }
    record(Op::Matmul { out }, &[lhs, rhs], None)
}

/// The dims that broadcasting `from` to `to` repeated, as dims of `to`.
pub(crate) fn broadcast_dims(from: &Shape, to: &Shape) -> Vec<usize> {
    let new = to.rank() - from.rank();
    (0..to.rank()).filter(|&dim| dim < new || (from[dim - new] == 1 && to[dim] != 1)).collect()
}
