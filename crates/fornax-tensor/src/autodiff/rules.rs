//! The gradient rule of every primitive, in ordinary tensor ops.
//!
//! `vjp` gets `dy`, the gradient of the result, and gives that of each operand; `None` stands for zero. `needs` says
//! which values a rule reads: the others are not kept alive by the tape.

use super::{Saved, is_grad_enabled};
use crate::operand::Operand;
use crate::primitive::{
    self, binary, broadcast_dims, cast, compare, expand, fold, gather, matmul, pad, permute, reduce, reshape, scan,
    scatter, select, slice, unary, window,
};
use crate::{DType, Tensor};
use alloc::boxed::Box;
use fornax_ir::{
    BinaryOp, CompareOp, ConvSpec, Dims, Error, ErrorKind, FftKind, Op, ReduceOp, Result, Scalar, ScanOp, ScatterMode,
    Shape, UnaryOp,
};
use smallvec::{SmallVec, smallvec};

type Gradients = SmallVec<[Option<Tensor>; 3]>;

/// Which values a rule reads.
pub(super) struct Needs {
    inputs: Reads,
    /// The result.
    pub(super) output: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Reads {
    None,
    All,
    /// Of a product: each operand only for the gradient of the other.
    Other,
    /// Only operand 0 (a condition), or 1 (an index).
    Only(usize),
}

impl Needs {
    /// Whether the value of operand `i` is read, given which operands are tracked.
    pub(super) fn input(&self, i: usize, tracked: &dyn Fn(usize) -> bool) -> bool {
        match self.inputs {
            Reads::None => false,
            Reads::All => true,
            Reads::Other => tracked(1 - i),
            Reads::Only(only) => i == only,
        }
    }
}

pub(super) fn needs(op: &Op) -> Needs {
    let (inputs, output) = match op {
        Op::Unary(op) => match op {
            UnaryOp::Neg | UnaryOp::Not | UnaryOp::Sign => (Reads::None, false),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => (Reads::None, false),
            UnaryOp::Abs | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p => (Reads::All, false),
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Erf => (Reads::All, false),
            UnaryOp::Recip | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Tanh => (Reads::None, true),
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Expm1 => (Reads::None, true),
        },
        Op::Binary(op) => match op {
            BinaryOp::Add | BinaryOp::Sub => (Reads::None, false),
            BinaryOp::Mul => (Reads::Other, false),
            BinaryOp::Div | BinaryOp::Rem | BinaryOp::Max | BinaryOp::Min | BinaryOp::Atan2 => (Reads::All, false),
            BinaryOp::Pow => (Reads::All, true),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => (Reads::None, false),
        },
        Op::Select => (Reads::Only(0), false),
        Op::Matmul { .. } | Op::Conv(_) => (Reads::Other, false),
        Op::Reduce { op: ReduceOp::Sum, .. } | Op::Scan { op: ScanOp::Sum, .. } => (Reads::None, false),
        Op::Reduce { .. } | Op::Scan { .. } => (Reads::All, true),
        Op::Gather { .. } => (Reads::Only(1), false),
        Op::Scatter { mode: ScatterMode::Set | ScatterMode::Add, .. } => (Reads::Only(1), false),
        Op::Scatter { .. } => (Reads::All, true),
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => (Reads::None, false),
        Op::Compare(_) | Op::Cast(_) | Op::Bitcast(_) => (Reads::None, false),
        Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. } | Op::Pad { .. } => (Reads::None, false),
        Op::Concat { .. } | Op::Window(_) | Op::Fold(_) => (Reads::None, false),
        Op::ArgSort { .. } | Op::TopK { .. } | Op::Fft { .. } | Op::Linalg(_) => (Reads::None, false),
    };
    Needs { inputs, output }
}

/// The gradients of the operands.
#[track_caller]
pub(super) fn vjp(op: &Op, inputs: &[Saved], output: Option<&Tensor>, dy: &Tensor) -> Result<Gradients> {
    let x = |i: usize| inputs[i].tensor();
    let y = || output.expect("`needs` asked for the result").clone();
    let one = |gradient: Tensor| Ok(smallvec![Some(gradient)]);
    match op {
        Op::Unary(op) => Ok(smallvec![unary_vjp(*op, &inputs[0], output, dy)?]),
        Op::Binary(op) => binary_vjp(*op, inputs, output, dy),
        Op::Select => {
            let zero = scalar(0.0);
            let (a, b) = (select(&x(0), &of(dy), &zero)?, select(&x(0), &zero, &of(dy))?);
            Ok(smallvec![None, Some(a), Some(b)])
        }
        Op::Cast(_) => one(cast(dy, inputs[0].dtype)?),
        Op::Reshape => one(reshape(dy, &inputs[0].shape)?),
        Op::Permute(perm) => {
            let mut inverse: Dims = perm.clone();
            for (i, &dim) in perm.iter().enumerate() {
                inverse[dim] = i;
            }
            one(permute(dy, &inverse)?)
        }
        Op::Expand => {
            let summed = reduce(ReduceOp::Sum, dy, &broadcast_dims(&inputs[0].shape, dy.shape()))?;
            one(reshape(&summed, &inputs[0].shape)?)
        }
        Op::Slice { starts, steps } => one(unslice(dy, starts, steps, &inputs[0].shape)?),
        Op::Pad { low, .. } => one(slice(dy, low, &ones(low.len()), &inputs[0].shape)?),
        Op::Concat { dim } => {
            let mut starts: Dims = smallvec![0; dy.shape().rank()];
            let mut parts = Gradients::new();
            for input in inputs {
                parts.push(Some(slice(dy, &starts, &ones(starts.len()), &input.shape)?));
                starts[*dim] += input.shape[*dim];
            }
            Ok(parts)
        }
        Op::Window(spec) => one(fold(dy, spec.clone(), &inputs[0].shape)?),
        Op::Fold(spec) => one(window(dy, spec.clone())?),
        Op::Reduce { op, dims } => Ok(smallvec![reduce_vjp(*op, dims, &inputs[0], output, dy)?]),
        Op::Scan { op, dim } => match op {
            ScanOp::Sum => one(reverse_cumsum(dy, *dim)?),
            ScanOp::Prod => one(cumprod_vjp(&x(0), &y(), dy, *dim)?),
            ScanOp::Max | ScanOp::Min => {
                // The newest position where the running extreme was set.
                let (x, y) = (x(0), y());
                let hit = &x.is_same(&y)?;
                let positions = primitive::source(Op::Iota { dim: *dim }, DType::I64, x.shape().clone(), x.device());
                let newest = scan(ScanOp::Max, &select(hit, &of(&positions), &Operand::Scalar(Scalar::Int(0)))?, *dim)?;
                one(scatter(ScatterMode::Add, &zeros(dy, x.shape()), *dim, &newest, dy)?)
            }
        },
        Op::Gather { dim } => {
            let dx = scatter(ScatterMode::Add, &zeros(dy, &inputs[0].shape), *dim, &x(1), dy)?;
            Ok(smallvec![Some(dx), None])
        }
        Op::Scatter { dim, mode } => scatter_vjp(*mode, *dim, inputs, output, dy),
        Op::Matmul { out: _ } => {
            let dy = cast(dy, inputs[0].dtype)?;
            let rank = dy.shape().rank();
            let swap = |x: &Tensor| {
                let mut perm: Dims = (0..rank).collect();
                perm.swap(rank - 2, rank - 1);
                permute(x, &perm)
            };
            let dtype = inputs[0].dtype;
            let lhs = inputs[0].tape.is_some().then(|| matmul(&dy, &swap(&x(1))?, dtype)).transpose()?;
            let rhs = inputs[1].tape.is_some().then(|| matmul(&swap(&x(0))?, &dy, dtype)).transpose()?;
            Ok(smallvec![lhs, rhs])
        }
        Op::Conv(spec) => {
            let dx = inputs[0].tape.is_some().then(|| conv_input_vjp(spec, &inputs[0].shape, &x(1), dy)).transpose()?;
            let dw =
                inputs[1].tape.is_some().then(|| conv_weight_vjp(spec, &x(0), &inputs[1].shape, dy)).transpose()?;
            Ok(smallvec![dx, dw])
        }
        Op::Fft { dim, kind } => {
            // The adjoint of the (symmetric) transform is its conjugate: the other direction, not normalized either.
            let kind = match kind {
                FftKind::Forward => FftKind::Inverse,
                FftKind::Inverse => FftKind::Forward,
            };
            one(primitive::record(Op::Fft { dim: *dim, kind }, &[dy], None)?)
        }
        Op::Linalg(op) => {
            let message = "the bare factorization has no gradient rule";
            Err(Error::new(ErrorKind::Gradient, op.name(), message).help("use the functions of `linalg`, which have"))
        }
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => Ok(smallvec![]),
        Op::Compare(_) | Op::Bitcast(_) | Op::ArgSort { .. } | Op::TopK { .. } => {
            unreachable!("results that are not floats are not on the tape")
        }
    }
}

#[track_caller]
fn unary_vjp(op: UnaryOp, input: &Saved, output: Option<&Tensor>, dy: &Tensor) -> Result<Option<Tensor>> {
    let x = || input.tensor();
    let y = || output.expect("`needs` asked for the result").clone();
    Ok(Some(match op {
        UnaryOp::Neg => unary(UnaryOp::Neg, dy)?,
        UnaryOp::Abs => mul(dy, &unary(UnaryOp::Sign, &x())?)?,
        UnaryOp::Recip => neg(&mul(&mul(dy, &y())?, &y())?)?,
        UnaryOp::Sqrt => div(&scale(dy, 0.5)?, &y())?,
        UnaryOp::Rsqrt => scale(&mul(dy, &mul(&mul(&y(), &y())?, &y())?)?, -0.5)?,
        UnaryOp::Exp => mul(dy, &y())?,
        UnaryOp::Exp2 => mul(dy, &scale(&y(), core::f64::consts::LN_2)?)?,
        UnaryOp::Expm1 => mul(dy, &shift(&y(), 1.0)?)?,
        UnaryOp::Log => div(dy, &x())?,
        UnaryOp::Log2 => div(dy, &scale(&x(), core::f64::consts::LN_2)?)?,
        UnaryOp::Log1p => div(dy, &shift(&x(), 1.0)?)?,
        UnaryOp::Sin => mul(dy, &unary(UnaryOp::Cos, &x())?)?,
        UnaryOp::Cos => neg(&mul(dy, &unary(UnaryOp::Sin, &x())?)?)?,
        UnaryOp::Tanh => mul(dy, &binary(BinaryOp::Sub, &scalar(1.0), &of(&mul(&y(), &y())?))?)?,
        UnaryOp::Erf => {
            let x = x();
            let bell = unary(UnaryOp::Exp, &neg(&mul(&x, &x)?)?)?;
            mul(dy, &scale(&bell, core::f64::consts::FRAC_2_SQRT_PI)?)?
        }
        UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => zeros(dy, dy.shape()),
        UnaryOp::Not => return Ok(None),
    }))
}

#[track_caller]
fn binary_vjp(op: BinaryOp, inputs: &[Saved], output: Option<&Tensor>, dy: &Tensor) -> Result<Gradients> {
    let x = |i: usize| inputs[i].tensor();
    let tracked = |i: usize| inputs[i].tape.is_some();
    let (a, b) = match op {
        BinaryOp::Add => (Some(dy.clone()), Some(dy.clone())),
        BinaryOp::Sub => (Some(dy.clone()), Some(neg(dy)?)),
        BinaryOp::Mul => {
            let a = tracked(0).then(|| mul(dy, &x(1))).transpose()?;
            let b = tracked(1).then(|| mul(dy, &x(0))).transpose()?;
            (a, b)
        }
        BinaryOp::Div => {
            let (a, b) = (x(0), x(1));
            let db = tracked(1).then(|| neg(&mul(dy, &div(&div(&a, &b)?, &b)?)?)).transpose()?;
            (Some(div(dy, &b)?), db)
        }
        BinaryOp::Rem => {
            let quotient = unary(UnaryOp::Trunc, &div(&x(0), &x(1))?)?;
            (Some(dy.clone()), Some(neg(&mul(dy, &quotient)?)?))
        }
        BinaryOp::Pow => {
            let (a, b) = (x(0), x(1));
            let da = || {
                let power = binary(BinaryOp::Pow, &of(&a), &of(&shift(&b, -1.0)?))?;
                let slope = mul(&b, &power)?;
                select(&compare(CompareOp::Eq, &of(&b), &scalar(0.0))?, &scalar(0.0), &of(&mul(dy, &slope)?))
            };
            let db = || {
                let slope = mul(output.expect("`needs` asked for the result"), &unary(UnaryOp::Log, &a)?)?;
                let base_is_zero = compare(CompareOp::Eq, &of(&a), &scalar(0.0))?;
                let not_negative = compare(CompareOp::Le, &scalar(0.0), &of(&b))?;
                let flat = binary(BinaryOp::And, &of(&base_is_zero), &of(&not_negative))?;
                select(&flat, &scalar(0.0), &of(&mul(dy, &slope)?))
            };
            (tracked(0).then(da).transpose()?, tracked(1).then(db).transpose()?)
        }
        BinaryOp::Max | BinaryOp::Min => {
            // Ties share; NaN passes the gradient to both, as in PyTorch.
            let (a, b) = (of(&x(0)), of(&x(1)));
            let tie = compare(CompareOp::Eq, &a, &b)?;
            let shared = select(&tie, &of(&scale(dy, 0.5)?), &of(dy))?;
            let (a_less, b_less) = (compare(CompareOp::Lt, &a, &b)?, compare(CompareOp::Lt, &b, &a)?);
            let (a_loses, b_loses) = if op == BinaryOp::Max { (a_less, b_less) } else { (b_less, a_less) };
            let da = select(&a_loses, &scalar(0.0), &of(&shared))?;
            let db = select(&b_loses, &scalar(0.0), &of(&shared))?;
            (Some(da), Some(db))
        }
        BinaryOp::Atan2 => {
            let (a, b) = (x(0), x(1));
            let norm = add(&mul(&a, &a)?, &mul(&b, &b)?)?;
            (Some(mul(dy, &div(&b, &norm)?)?), Some(neg(&mul(dy, &div(&a, &norm)?)?)?))
        }
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => (None, None),
    };
    Ok(smallvec![a, b])
}

#[track_caller]
fn reduce_vjp(
    op: ReduceOp,
    dims: &[usize],
    input: &Saved,
    output: Option<&Tensor>,
    dy: &Tensor,
) -> Result<Option<Tensor>> {
    let y = || output.expect("`needs` asked for the result").clone();
    Ok(Some(match op {
        ReduceOp::Sum => expand(dy, &input.shape)?,
        ReduceOp::Prod => prod_vjp(&input.tensor(), dims, dy)?,
        ReduceOp::Max | ReduceOp::Min => {
            // All places of the extreme share, as in PyTorch's `amax`.
            let hit = input.tensor().is_same(&expand(&y(), &input.shape)?)?;
            let hit = cast(&hit, dy.dtype())?;
            let share = div(dy, &reduce(ReduceOp::Sum, &hit, dims)?)?;
            mul(&hit, &expand(&share, &input.shape)?)?
        }
        ReduceOp::ArgMax | ReduceOp::ArgMin => return Ok(None),
    }))
}

/// `dy ·` the product of all other elements: what is left of each, times what is right of it. Exact with zeros.
#[track_caller]
fn prod_vjp(x: &Tensor, dims: &[usize], dy: &Tensor) -> Result<Tensor> {
    let rank = x.shape().rank();
    let kept: Dims = (0..rank).filter(|dim| !dims.contains(dim)).collect();
    let perm: Dims = kept.iter().chain(dims).copied().collect();
    let moved = permute(x, &perm)?;
    let flat_shape: Shape =
        kept.iter().map(|&dim| x.shape()[dim]).chain([dims.iter().map(|&d| x.shape()[d]).product()]).collect();
    let flat = reshape(&moved, &flat_shape)?;
    let dim = flat_shape.rank() - 1;
    let others = mul(&exclusive_cumprod(&flat, dim)?, &flip(&exclusive_cumprod(&flip(&flat, dim)?, dim)?, dim)?)?;
    let mut inverse: Dims = perm.clone();
    for (i, &dim) in perm.iter().enumerate() {
        inverse[dim] = i;
    }
    let others = permute(&reshape(&others, moved.shape())?, &inverse)?;
    mul(&expand(dy, x.shape())?, &others)
}

#[track_caller]
fn exclusive_cumprod(x: &Tensor, dim: usize) -> Result<Tensor> {
    let size = x.shape()[dim];
    if size == 0 {
        return Ok(x.clone());
    }
    let mut low: Dims = smallvec![0; x.shape().rank()];
    let shorter = slice(x, &low, &ones(low.len()), &x.shape().with_dim(dim, size - 1))?;
    low[dim] = 1;
    scan(ScanOp::Prod, &pad(&shorter, &low, x.shape(), Scalar::Float(1.0))?, dim)
}

/// By what comes before an element, `Π_{j < i} x_j`, times `s_i = dy_i + x_{i+1} s_{i+1}`, a recurrence solved by doubling
/// strides. No division: differentiable again, zeros included.
#[track_caller]
fn cumprod_vjp_again(x: &Tensor, dy: &Tensor, dim: usize) -> Result<Tensor> {
    let size = x.shape()[dim];
    // The element `by` places further, or `border` behind the end.
    let ahead = |x: &Tensor, by: usize, border: f64| -> Result<Tensor> {
        let mut starts: Dims = smallvec![0; x.shape().rank()];
        starts[dim] = by;
        let tail = slice(x, &starts, &ones(starts.len()), &x.shape().with_dim(dim, size - by))?;
        starts[dim] = 0;
        pad(&tail, &starts, x.shape(), Scalar::Float(border))
    };
    if size < 2 {
        return Ok(dy.clone());
    }
    // s_i = sum_i + factor_i · s_{i + by}
    let (mut factor, mut sum) = (ahead(x, 1, 0.0)?, dy.clone());
    let mut by = 1;
    while by < size {
        sum = add(&sum, &mul(&factor, &ahead(&sum, by, 0.0)?)?)?;
        factor = mul(&factor, &ahead(&factor, by, 0.0)?)?;
        by *= 2;
    }
    mul(&exclusive_cumprod(x, dim)?, &sum)
}

/// With no zero, `Σ_{k ≥ i} dy_k y_k / x_i`. The first zero of a row gets the sum over what follows with itself left
/// out; everything behind it gets nothing.
#[track_caller]
fn cumprod_vjp(x: &Tensor, y: &Tensor, dy: &Tensor, dim: usize) -> Result<Tensor> {
    if is_grad_enabled() && x.is_tracked() {
        return cumprod_vjp_again(x, dy, dim);
    }
    let zero = scalar(0.0);
    let is_zero = compare(CompareOp::Eq, &of(x), &zero)?;
    let zeros_so_far = scan(ScanOp::Sum, &cast(&is_zero, DType::I64)?, dim)?;
    let before = compare(CompareOp::Eq, &of(&zeros_so_far), &Operand::Scalar(Scalar::Int(0)))?;
    let one_so_far = compare(CompareOp::Eq, &of(&zeros_so_far), &Operand::Scalar(Scalar::Int(1)))?;
    let is_first = binary(BinaryOp::And, &of(&is_zero), &of(&one_so_far))?;
    let ordinary = div(&reverse_cumsum(&mul(dy, y)?, dim)?, x)?;
    let without = scan(ScanOp::Prod, &select(&is_first, &scalar(1.0), &of(x))?, dim)?;
    let at_first = reverse_cumsum(&mul(dy, &without)?, dim)?;
    select(&before, &of(&ordinary), &of(&select(&is_first, &of(&at_first), &zero)?))
}

#[track_caller]
fn scatter_vjp(
    mode: ScatterMode,
    dim: usize,
    inputs: &[Saved],
    output: Option<&Tensor>,
    dy: &Tensor,
) -> Result<Gradients> {
    let index = inputs[1].tensor();
    let y = || output.expect("`needs` asked for the result").clone();
    let (dx, dsource) = match mode {
        ScatterMode::Set => {
            let none = zeros(dy, index.shape());
            (scatter(ScatterMode::Set, dy, dim, &index, &none)?, gather(dy, dim, &index)?)
        }
        ScatterMode::Add => (dy.clone(), gather(dy, dim, &index)?),
        ScatterMode::Mul => {
            // A factor gets the product of all others: the whole product over itself, or, if it is the only 0, the
            // product without it. Of two zeros each gets the other times the rest: nothing, but with a slope.
            let (x, source) = (inputs[0].tensor(), inputs[2].tensor());
            let zero = scalar(0.0);
            let is_zero = |x: &Tensor| compare(CompareOp::Eq, &of(x), &zero);
            let (x_zero, source_zero) = (is_zero(&x)?, is_zero(&source)?);
            let safe_x = select(&x_zero, &scalar(1.0), &of(&x))?;
            let safe_source = select(&source_zero, &scalar(1.0), &of(&source))?;
            let rest = scatter(mode, &safe_x, dim, &index, &safe_source)?;
            let count = |x: &Tensor| cast(x, DType::I64);
            let zeros = scatter(ScatterMode::Add, &count(&x_zero)?, dim, &index, &count(&source_zero)?)?;
            let zeros_are = |count: i64| compare(CompareOp::Eq, &of(&zeros), &Operand::Scalar(Scalar::Int(count)));
            let at = |x: &Tensor| gather(x, dim, &index);
            let alone = select(&zeros_are(1)?, &of(&rest), &zero)?;
            let (mut x_at_zero, mut source_at_zero) = (alone.clone(), at(&alone)?);
            if is_grad_enabled() && (x.is_tracked() || source.is_tracked()) {
                let only = |is_zero: &Tensor, x: &Tensor| select(is_zero, &of(x), &zero);
                let (x_zeros, source_zeros) = (only(&x_zero, &x)?, only(&source_zero, &source)?);
                let sum = scatter(ScatterMode::Add, &x_zeros, dim, &index, &source_zeros)?;
                let rest = select(&zeros_are(2)?, &of(&rest), &zero)?;
                let others = |sum: &Tensor, own: &Tensor| binary(BinaryOp::Sub, &of(sum), &of(own));
                x_at_zero = add(&x_at_zero, &mul(&rest, &others(&sum, &x_zeros)?)?)?;
                source_at_zero = add(&source_at_zero, &mul(&at(&rest)?, &others(&at(&sum)?, &source_zeros)?)?)?;
            }
            let y = y();
            let dx = select(&x_zero, &of(&x_at_zero), &of(&div(&y, &safe_x)?))?;
            let dsource = select(&source_zero, &of(&source_at_zero), &of(&div(&at(&y)?, &safe_source)?))?;
            (mul(dy, &dx)?, mul(&at(dy)?, &dsource)?)
        }
        ScatterMode::Max | ScatterMode::Min => {
            let (x, source) = (inputs[0].tensor(), inputs[2].tensor());
            let kept = cast(&x.is_same(&y())?, dy.dtype())?;
            let taken = cast(&source.is_same(&gather(&y(), dim, &index)?)?, dy.dtype())?;
            let share = div(dy, &scatter(ScatterMode::Add, &kept, dim, &index, &taken)?)?;
            (mul(&kept, &share)?, mul(&taken, &gather(&share, dim, &index)?)?)
        }
    };
    Ok(smallvec![Some(dx), None, Some(dsource)])
}

/// The transpose of a slice: elements back in their places, zeros elsewhere.
#[track_caller]
fn unslice(dy: &Tensor, starts: &[usize], steps: &[i64], shape: &Shape) -> Result<Tensor> {
    if dy.shape().contains(&0) {
        return Ok(zeros(dy, shape));
    }
    let mut dy = dy.clone();
    let mut low: Dims = starts.into();
    for dim in 0..shape.rank() {
        let count = dy.shape()[dim];
        let step = steps[dim].unsigned_abs() as usize;
        if steps[dim] < 0 {
            dy = flip(&dy, dim)?;
            low[dim] = starts[dim] - (count - 1) * step;
        }
        if step > 1 && count > 1 {
            dy = dilate(&dy, dim, step)?;
        }
    }
    pad(&dy, &low, shape, Scalar::Float(0.0))
}

/// `step − 1` zeros between neighbours along `dim`.
#[track_caller]
fn dilate(x: &Tensor, dim: usize, step: usize) -> Result<Tensor> {
    let count = x.shape()[dim];
    let mut split = x.shape().clone();
    split.dims_mut().insert(dim + 1, 1);
    let wide = split.with_dim(dim + 1, step);
    let zeros: Dims = smallvec![0; wide.rank()];
    let padded = pad(&reshape(x, &split)?, &zeros, &wide, Scalar::Float(0.0))?;
    let merged = reshape(&padded, &x.shape().with_dim(dim, count * step))?;
    let starts: Dims = smallvec![0; x.shape().rank()];
    slice(&merged, &starts, &ones(starts.len()), &x.shape().with_dim(dim, (count - 1) * step + 1))
}

/// `dx`: the result's gradient, dilated by the stride, under the flipped kernel.
#[track_caller]
fn conv_input_vjp(spec: &ConvSpec, x: &Shape, weight: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (spatial, w) = (spec.stride.len(), weight.shape().clone());
    // [o, c / g, k…] to [c, o / g, k…], flipped.
    let (groups, out_group, in_group) = (spec.groups, w[0] / spec.groups, w[1]);
    let grouped: Shape = [groups, out_group, in_group].into_iter().chain(w[2..].iter().copied()).collect();
    let mut perm: Dims = (0..grouped.rank()).collect();
    perm.swap(1, 2);
    let swapped: Shape = [groups * in_group, out_group].into_iter().chain(w[2..].iter().copied()).collect();
    let mut kernel = reshape(&permute(&reshape(weight, &grouped)?, &perm)?, &swapped)?;
    for dim in 2..spatial + 2 {
        kernel = flip(&kernel, dim)?;
    }
    let padding = (0..spatial).map(|dim| {
        let span = (spec.dilation[dim] * (w[dim + 2] - 1)) as isize;
        let dilated_x = dilated(x[dim + 2], spec.input_dilation[dim]);
        let dilated_dy = dilated(dy.shape()[dim + 2], spec.stride[dim]);
        let low = span - spec.padding[dim].0;
        (low, dilated_x + span - dilated_dy - low)
    });
    let transposed = ConvSpec {
        stride: spec.input_dilation.clone(),
        padding: padding.collect(),
        dilation: spec.dilation.clone(),
        input_dilation: spec.stride.clone(),
        groups,
    };
    primitive::record(Op::Conv(Box::new(transposed)), &[dy, &kernel], None)
}

/// `dw`: the input under the result's gradient as kernel, batch and channels swapped.
#[track_caller]
fn conv_weight_vjp(spec: &ConvSpec, x: &Tensor, weight: &Shape, dy: &Tensor) -> Result<Tensor> {
    let (spatial, groups) = (spec.stride.len(), spec.groups);
    let (batch, in_group, out_group) = (x.shape()[0], weight[1], weight[0] / groups);
    let shape = |head: &[usize], tail: &Shape| -> Shape { head.iter().chain(&tail[2..]).copied().collect() };
    let order = |head: &[usize]| -> Dims { head.iter().copied().chain(3..spatial + 3).collect() };
    // [n, g·c, …] to [c, g·n, …]; [n, g·o, …] to [g·o, n, …].
    let images = permute(&reshape(x, &shape(&[batch, groups, in_group], x.shape()))?, &order(&[2, 1, 0]))?;
    let images = reshape(&images, &shape(&[in_group, groups * batch], x.shape()))?;
    let kernels = permute(&reshape(dy, &shape(&[batch, groups, out_group], dy.shape()))?, &order(&[1, 2, 0]))?;
    let kernels = reshape(&kernels, &shape(&[groups * out_group, batch], dy.shape()))?;
    let padding = (0..spatial).map(|dim| {
        let needed = (weight[dim + 2] - 1) * spec.dilation[dim];
        let low = spec.padding[dim].0;
        let needed = needed as isize + dilated(dy.shape()[dim + 2], spec.stride[dim]);
        (low, needed - dilated(x.shape()[dim + 2], spec.input_dilation[dim]) - low)
    });
    let correlation = ConvSpec {
        stride: spec.dilation.clone(),
        padding: padding.collect(),
        dilation: spec.stride.clone(),
        input_dilation: spec.input_dilation.clone(),
        groups,
    };
    let dw = primitive::record(Op::Conv(Box::new(correlation)), &[&images, &kernels], None)?; // [c, g·o, k…]
    let mut perm: Dims = (0..spatial + 2).collect();
    perm.swap(0, 1);
    permute(&dw, &perm)
}

fn dilated(size: usize, dilation: usize) -> isize {
    if size == 0 { 0 } else { ((size - 1) * dilation + 1) as isize }
}

fn of(x: &Tensor) -> Operand {
    Operand::Tensor(x.clone())
}

fn scalar(value: f64) -> Operand {
    Operand::Scalar(Scalar::Float(value))
}

fn ones(rank: usize) -> SmallVec<[i64; 6]> {
    smallvec![1; rank]
}

#[track_caller]
fn zeros(like: &Tensor, shape: &Shape) -> Tensor {
    primitive::constant(Scalar::Float(0.0), like.dtype(), shape, like.device())
}

#[track_caller]
fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(BinaryOp::Add, &of(a), &of(b))
}

#[track_caller]
fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(BinaryOp::Mul, &of(a), &of(b))
}

#[track_caller]
fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(BinaryOp::Div, &of(a), &of(b))
}

#[track_caller]
fn neg(x: &Tensor) -> Result<Tensor> {
    unary(UnaryOp::Neg, x)
}

#[track_caller]
fn scale(x: &Tensor, factor: f64) -> Result<Tensor> {
    binary(BinaryOp::Mul, &of(x), &scalar(factor))
}

#[track_caller]
fn shift(x: &Tensor, offset: f64) -> Result<Tensor> {
    binary(BinaryOp::Add, &of(x), &scalar(offset))
}

#[track_caller]
fn flip(x: &Tensor, dim: usize) -> Result<Tensor> {
    let rank = x.shape().rank();
    let mut starts: Dims = smallvec![0; rank];
    let mut steps = ones(rank);
    starts[dim] = x.shape()[dim].saturating_sub(1);
    steps[dim] = -1;
    if x.shape()[dim] <= 1 { Ok(x.clone()) } else { slice(x, &starts, &steps, x.shape()) }
}

#[track_caller]
fn reverse_cumsum(x: &Tensor, dim: usize) -> Result<Tensor> {
    flip(&scan(ScanOp::Sum, &flip(x, dim)?, dim)?, dim)
}

impl Tensor {
    /// Equal, or NaN both. Not tracked.
    #[track_caller]
    fn is_same(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.detach(), other.detach());
        let equal = compare(CompareOp::Eq, &of(&a), &of(&b))?;
        let is_nan = |x: &Tensor| unary(UnaryOp::Not, &compare(CompareOp::Eq, &of(x), &of(x))?);
        let both = binary(BinaryOp::And, &of(&is_nan(&a)?), &of(&is_nan(&b)?))?;
        binary(BinaryOp::Or, &of(&equal), &of(&both))
    }
}
