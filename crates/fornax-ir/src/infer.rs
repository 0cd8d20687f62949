//! The shape and dtype rules: what comes out of an op, or which rule its operands break.
//!
//! [`infer`] is the only place that knows these rules: graphs, tensors, importers and the verifier all ask it.

use crate::{BinaryOp, CompareOp, ConvSpec, DType, DTypeSet, Error, LinalgOp, Op, ReduceOp, Result, Shape, UnaryOp};
use alloc::format;

/// Dtype and shape of the result of `op` on `operands`.
///
/// `shape` is the result's shape for ops whose result does not follow from their operands (see
/// [`crate::Graph::push_shaped`]); others must be given `None` or the right one.
///
/// # Errors
/// The rule that is broken, with every shape involved.
pub fn infer(op: &Op, operands: &[(DType, &Shape)], shape: Option<&Shape>) -> Result<(DType, Shape)> {
    let name = op.name();
    let arity = match op {
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => 0,
        Op::Unary(_) | Op::Cast(_) | Op::Bitcast(_) | Op::Reshape | Op::Permute(_) | Op::Expand => 1,
        Op::Slice { .. } | Op::Pad { .. } | Op::Window(_) | Op::Reduce { .. } | Op::Scan { .. } => 1,
        Op::ArgSort { .. } | Op::TopK { .. } | Op::Fold(_) | Op::Fft { .. } => 1,
        Op::Linalg(LinalgOp::TriangularSolve { .. }) => 2,
        Op::Linalg(_) => 1,
        Op::Binary(_) | Op::Compare(_) | Op::Gather { .. } | Op::Matmul { .. } | Op::Conv(_) => 2,
        Op::Select | Op::Scatter { .. } => 3,
        Op::Concat { .. } => operands.len().max(1),
    };
    if operands.len() != arity {
        return Err(Error::argument(name, format!("takes {arity} operands, got {}", operands.len())));
    }
    let given = |what: &str| shape.cloned().ok_or_else(|| Error::shape(name, format!("{what} needs a shape")));
    let (dtype, inferred) = match op {
        Op::Input(_) | Op::Const(_) => {
            return Err(Error::argument(name, "dtype and shape of a source are given, not inferred"));
        }
        Op::Iota { dim } => {
            let shape = given("iota")?;
            check_dim(name, *dim, &shape)?;
            (DType::I64, shape)
        }
        Op::Random { .. } => (DType::U32, given("random")?),
        Op::Unary(unary) => {
            let (dtype, shape) = operands[0];
            check_dtype(name, dtype, unary.dtypes())?;
            (dtype, shape.clone())
        }
        Op::Binary(binary) => {
            let (dtype, shape) = same(name, operands[0], operands[1])?;
            check_dtype(name, dtype, binary.dtypes())?;
            (dtype, shape.clone())
        }
        Op::Compare(CompareOp::Eq | CompareOp::Lt | CompareOp::Le) => {
            let (_, shape) = same(name, operands[0], operands[1])?;
            (DType::Bool, shape.clone())
        }
        Op::Select => {
            let (condition, condition_shape) = operands[0];
            check_dtype(name, condition, DTypeSet::BOOL)?;
            let (dtype, shape) = same(name, operands[1], operands[2])?;
            if condition_shape != shape {
                return Err(Error::shape(name, format!("condition {condition_shape} is not shaped {shape}")));
            }
            (dtype, shape.clone())
        }
        Op::Cast(dtype) => (*dtype, operands[0].1.clone()),
        Op::Bitcast(dtype) => {
            if dtype.size() != operands[0].0.size() {
                return Err(Error::dtype(name, format!("{} and {dtype} differ in size", operands[0].0)));
            }
            if *dtype == DType::Bool && operands[0].0 != DType::Bool {
                let message = format!("not every byte of {} is a bool", operands[0].0);
                return Err(Error::dtype(name, message).help("compare with 0?"));
            }
            (*dtype, operands[0].1.clone())
        }
        Op::Reshape => {
            let target = given("reshape")?;
            let (dtype, from) = operands[0];
            if target.checked_numel() != from.checked_numel() {
                return Err(Error::shape(name, format!("{from} does not have as many elements as {target}")));
            }
            (dtype, target)
        }
        Op::Permute(perm) => {
            let (dtype, from) = operands[0];
            let mut seen = alloc::vec![false; from.rank()];
            for &dim in perm {
                check_dim(name, dim, from)?;
                seen[dim] = true;
            }
            if perm.len() != from.rank() || seen.contains(&false) {
                return Err(Error::argument(name, format!("{perm:?} does not name each dim of {from} once")));
            }
            (dtype, perm.iter().map(|&dim| from[dim]).collect())
        }
        Op::Expand => {
            let target = given("expand")?;
            let (dtype, from) = operands[0];
            let fits = target.rank() >= from.rank()
                && from.iter().rev().zip(target.iter().rev()).all(|(&from, &to)| from == to || from == 1);
            if !fits {
                return Err(Error::shape(name, format!("{from} does not expand to {target}")));
            }
            (dtype, target)
        }
        Op::Slice { starts, steps } => {
            let target = given("slice")?;
            let (dtype, from) = operands[0];
            if starts.len() != from.rank() || steps.len() != from.rank() || target.rank() != from.rank() {
                return Err(Error::argument(name, format!("needs a start, step and size for each dim of {from}")));
            }
            for dim in 0..from.rank() {
                let (start, step, size) = (starts[dim] as i128, i128::from(steps[dim]), target[dim] as i128);
                let last = start + step * (size - 1);
                let inside = |place: i128| (0..from[dim] as i128).contains(&place);
                if step == 0 || (size > 0 && !(inside(start) && inside(last))) {
                    let message = format!("dim {dim} of {from} has no {size} elements from {start} with step {step}");
                    return Err(Error::index(name, message));
                }
            }
            (dtype, target)
        }
        Op::Pad { low, .. } => {
            let target = given("pad")?;
            let (dtype, from) = operands[0];
            let fits = low.len() == from.rank()
                && target.rank() == from.rank()
                && (0..from.rank()).all(|dim| low[dim].checked_add(from[dim]).is_some_and(|n| n <= target[dim]));
            if !fits {
                return Err(Error::shape(name, format!("{from} after {low:?} does not fit into {target}")));
            }
            (dtype, target)
        }
        Op::Concat { dim } => {
            let (dtype, first) = operands[0];
            check_dim(name, *dim, first)?;
            let mut size = 0usize;
            for &(other, shape) in operands {
                if other != dtype {
                    return Err(Error::dtype(name, format!("operands are {dtype} and {other}")));
                }
                if shape.rank() != first.rank() || (0..shape.rank()).any(|d| d != *dim && shape[d] != first[d]) {
                    return Err(Error::shape(name, format!("{first} and {shape} differ outside dim {dim}")));
                }
                size = size.saturating_add(shape[*dim]);
            }
            (dtype, first.with_dim(*dim, size))
        }
        Op::Window(spec) => {
            let (dtype, from) = operands[0];
            check_window(name, spec.dims.len(), from.rank())?;
            let outer = from.rank() - spec.dims.len();
            let mut result = from.clone();
            for (dim, window) in spec.dims.iter().enumerate() {
                if window.size == 0 || window.step == 0 || window.dilation == 0 {
                    return Err(Error::argument(name, "size, step and dilation are at least 1"));
                }
                result.dims_mut()[outer + dim] = window.count(from[outer + dim]);
            }
            result.dims_mut().extend(spec.dims.iter().map(|window| window.size));
            (dtype, result)
        }
        Op::Reduce { op, dims } => {
            let (dtype, from) = operands[0];
            check_dtype(name, dtype, op.dtypes())?;
            let mut result = from.clone();
            if dims.is_empty() {
                return Err(Error::argument(name, "needs a dim to reduce"));
            }
            for (i, &dim) in dims.iter().enumerate() {
                check_dim(name, dim, from)?;
                if i > 0 && dims[i - 1] >= dim {
                    return Err(Error::argument(name, format!("dims {dims:?} are not ascending")));
                }
                result.dims_mut()[dim] = 1;
            }
            let over_nothing = dims.iter().any(|&dim| from[dim] == 0);
            let has_identity = match op {
                ReduceOp::Sum | ReduceOp::Prod => true,
                ReduceOp::Max | ReduceOp::Min => dtype == DType::Bool,
                ReduceOp::ArgMax | ReduceOp::ArgMin => false,
            };
            if over_nothing && !has_identity && !result.contains(&0) {
                return Err(Error::shape(
                    name,
                    format!("dims {dims:?} of {from} hold no elements, and there is no identity"),
                ));
            }
            let dtype = match op {
                ReduceOp::ArgMax | ReduceOp::ArgMin => DType::I64,
                ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => dtype,
            };
            (dtype, result)
        }
        Op::Scan { dim, .. } => {
            let (dtype, shape) = operands[0];
            check_dtype(name, dtype, DTypeSet::NUMERIC)?;
            check_dim(name, *dim, shape)?;
            (dtype, shape.clone())
        }
        Op::ArgSort { dim, .. } => {
            check_dim(name, *dim, operands[0].1)?;
            (DType::I64, operands[0].1.clone())
        }
        Op::TopK { dim, .. } => {
            let target = given("topk")?;
            let from = operands[0].1;
            check_dim(name, *dim, from)?;
            if target.rank() != from.rank() || from.with_dim(*dim, target[*dim]) != target {
                return Err(Error::shape(name, format!("{target} differs from {from} outside dim {dim}")));
            }
            if target[*dim] > from[*dim] {
                let message = format!("k = {} exceeds size {} of dim {dim} of {from}", target[*dim], from[*dim]);
                return Err(Error::argument(name, message));
            }
            (DType::I64, target)
        }
        Op::Gather { dim } => {
            let ((dtype, x), (index_dtype, index)) = (operands[0], operands[1]);
            check_index(name, *dim, x, index_dtype, index)?;
            (dtype, index.clone())
        }
        Op::Scatter { dim, mode: _ } => {
            let ((dtype, x), (index_dtype, index), (source_dtype, source)) = (operands[0], operands[1], operands[2]);
            check_index(name, *dim, x, index_dtype, index)?;
            if source_dtype != dtype {
                return Err(Error::dtype(name, format!("x is {dtype}, source is {source_dtype}")));
            }
            if source != index {
                return Err(Error::shape(name, format!("source {source} is not shaped like index {index}")));
            }
            (dtype, x.clone())
        }
        Op::Matmul { out } => (*out, matmul(name, *out, operands[0], operands[1])?),
        Op::Conv(spec) => {
            let (dtype, x) = operands[0];
            if operands[1].0 != dtype {
                return Err(Error::dtype(name, format!("x is {dtype}, weight is {}", operands[1].0)));
            }
            check_dtype(name, dtype, DTypeSet::FLOATS)?;
            (dtype, conv(name, spec, x, operands[1].1)?)
        }
        Op::Fold(spec) => {
            let target = given("fold")?;
            let (dtype, windows) = operands[0];
            check_dtype(name, dtype, DTypeSet::NUMERIC)?;
            check_window(name, spec.dims.len(), target.rank())?;
            let (_, expected) = infer(&Op::Window(spec.clone()), &[(dtype, &target)], None)?;
            if expected != *windows {
                return Err(Error::shape(name, format!("windows {windows} are not the {expected} of {target}")));
            }
            (dtype, target)
        }
        Op::Fft { dim, .. } => {
            let (dtype, shape) = operands[0];
            check_dtype(name, dtype, DTypeSet::of(&[DType::F32, DType::F64]))?;
            check_dim(name, *dim, shape)?;
            if *dim + 1 == shape.rank() || shape.last() != Some(&2) {
                return Err(Error::shape(name, format!("{shape} does not end in a dim of 2 (real, imaginary)")));
            }
            (dtype, shape.clone())
        }
        Op::Linalg(op) => {
            let (dtype, a) = operands[0];
            check_dtype(name, dtype, DTypeSet::of(&[DType::F32, DType::F64]))?;
            (dtype, linalg(*op, a, operands.get(1).map(|&(dtype, shape)| (dtype, shape)), dtype)?)
        }
    };
    if inferred.checked_numel().is_none() {
        return Err(Error::shape(name, format!("{inferred} has more elements than memory can address")));
    }
    match shape {
        Some(shape) if *shape != inferred => Err(Error::shape(name, format!("the result is {inferred}, not {shape}"))),
        _ => Ok((dtype, inferred)),
    }
}

/// The shape that two shapes broadcast to, as NumPy does: aligned at the last dim, 1 stretches, missing dims count as 1.
///
/// # Errors
/// If sizes differ and neither is 1.
pub fn broadcast_shapes(op: &str, lhs: &Shape, rhs: &Shape) -> Result<Shape> {
    if lhs == rhs {
        return Ok(lhs.clone());
    }
    let rank = lhs.rank().max(rhs.rank());
    let size = |shape: &Shape, dim: usize| (dim + shape.rank()).checked_sub(rank).map_or(1, |dim| shape[dim]);
    (0..rank)
        .map(|dim| match (size(lhs, dim), size(rhs, dim)) {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            (a, b) => Err(Error::shape(op, format!("shapes do not broadcast: lhs {lhs}, rhs {rhs}; {a} ≠ {b}"))),
        })
        .collect()
}

fn check_dim(op: &str, dim: usize, shape: &Shape) -> Result<()> {
    if dim < shape.rank() {
        return Ok(());
    }
    Err(Error::index(op, format!("dim {dim} is out of range for {shape}")))
}

fn check_dtype(op: &str, dtype: DType, allowed: DTypeSet) -> Result<()> {
    if allowed.contains(dtype) {
        return Ok(());
    }
    Err(Error::dtype(op, format!("does not take {dtype}, only {allowed}")))
}

fn check_window(op: &str, dims: usize, rank: usize) -> Result<()> {
    if (1..=rank).contains(&dims) {
        return Ok(());
    }
    Err(Error::shape(op, format!("{dims} window dims do not fit rank {rank}")))
}

fn check_index(op: &str, dim: usize, x: &Shape, index_dtype: DType, index: &Shape) -> Result<()> {
    check_dim(op, dim, x)?;
    check_dtype(op, index_dtype, DTypeSet::of(&[DType::I32, DType::I64]))?;
    if index.rank() != x.rank() || (0..x.rank()).any(|d| d != dim && index[d] > x[d]) {
        return Err(Error::shape(op, format!("index {index} exceeds {x} outside dim {dim}")));
    }
    Ok(())
}

fn same<'a>(op: &str, lhs: (DType, &'a Shape), rhs: (DType, &Shape)) -> Result<(DType, &'a Shape)> {
    if lhs.0 != rhs.0 {
        return Err(Error::dtype(op, format!("operands are {} and {}", lhs.0, rhs.0)));
    }
    if lhs.1 != rhs.1 {
        return Err(Error::shape(op, format!("operands are {} and {}", lhs.1, rhs.1)));
    }
    Ok(lhs)
}

fn matmul(op: &str, out: DType, lhs: (DType, &Shape), rhs: (DType, &Shape)) -> Result<Shape> {
    let ((lhs_dtype, lhs), (rhs_dtype, rhs)) = (lhs, rhs);
    let wider = match lhs_dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::U8 => DType::I32,
        other => other,
    };
    let mixed_bytes = matches!(lhs_dtype, DType::I8 | DType::U8) && matches!(rhs_dtype, DType::I8 | DType::U8);
    if (lhs_dtype != rhs_dtype && !(mixed_bytes && out == DType::I32)) || (out != lhs_dtype && out != wider) {
        return Err(Error::dtype(op, format!("lhs is {lhs_dtype}, rhs is {rhs_dtype}, result is {out}")));
    }
    check_dtype(op, lhs_dtype, DTypeSet::NUMERIC)?;
    let rank = lhs.rank();
    if rank < 2 || rhs.rank() != rank {
        return Err(Error::shape(op, format!("ranks are not equal and at least 2: lhs {lhs}, rhs {rhs}")));
    }
    if lhs[rank - 1] != rhs[rank - 2] {
        let (a, b) = (lhs[rank - 1], rhs[rank - 2]);
        return Err(Error::shape(op, format!("inner sizes differ: lhs {lhs}, rhs {rhs}; {a} ≠ {b}")));
    }
    if lhs[..rank - 2] != rhs[..rank - 2] {
        return Err(Error::shape(op, format!("leading dims differ: lhs {lhs}, rhs {rhs}")));
    }
    Ok(lhs.with_dim(rank - 1, rhs[rank - 1]))
}

fn conv(op: &str, spec: &ConvSpec, x: &Shape, weight: &Shape) -> Result<Shape> {
    let spatial = spec.stride.len();
    if x.rank() != spatial + 2 || weight.rank() != spatial + 2 {
        let message = format!("x {x} and weight {weight} are not of rank {} ({spatial} spatial dims)", spatial + 2);
        return Err(Error::shape(op, message));
    }
    let lists = [spec.padding.len(), spec.dilation.len(), spec.input_dilation.len()];
    if lists != [spatial; 3] {
        return Err(Error::argument(op, format!("settings are not given for each of {spatial} spatial dims")));
    }
    let positive = [&spec.stride, &spec.dilation, &spec.input_dilation].iter().all(|list| !list.contains(&0));
    if !positive || spec.groups == 0 {
        return Err(Error::argument(op, "stride, dilation and groups are at least 1"));
    }
    let taken = weight[1].checked_mul(spec.groups);
    if taken != Some(x[1]) || !weight[0].is_multiple_of(spec.groups) {
        let message = format!(
            "x {x} has {} channels, weight {weight} with {} groups takes {} and gives {}",
            x[1],
            spec.groups,
            taken.unwrap_or(usize::MAX),
            weight[0]
        );
        return Err(Error::shape(op, message));
    }
    let mut result = x.with_dim(1, weight[0]);
    for dim in 0..spatial {
        // Saturating: a hostile graph may name sizes whose products overflow even this.
        let span = |n: usize, dilation: usize| {
            if n == 0 { 0 } else { (n as i128 - 1).saturating_mul(dilation as i128).saturating_add(1) }
        };
        let (low, high) = spec.padding[dim];
        let padded = span(x[dim + 2], spec.input_dilation[dim]).saturating_add(low as i128 + high as i128);
        let kernel = span(weight[dim + 2], spec.dilation[dim]);
        if weight[dim + 2] == 0 || padded < kernel {
            let message = format!("kernel {weight} spans {kernel} where padded x {x} has {padded} (spatial dim {dim})");
            return Err(Error::shape(op, message));
        }
        let count = (padded - kernel) / spec.stride[dim] as i128 + 1;
        result.dims_mut()[dim + 2] = usize::try_from(count).unwrap_or(usize::MAX);
    }
    Ok(result)
}

fn linalg(op: LinalgOp, a: &Shape, b: Option<(DType, &Shape)>, dtype: DType) -> Result<Shape> {
    let name = op.name();
    let rank = a.rank();
    if rank < 2 {
        return Err(Error::shape(name, format!("{a} is not a matrix or a batch of them")));
    }
    let (m, n) = (a[rank - 2], a[rank - 1]);
    let square = || {
        if m == n { Ok(()) } else { Err(Error::shape(name, format!("the matrices of {a} are not square"))) }
    };
    let rows = |count: usize, columns: usize| a.with_dim(rank - 2, count).with_dim(rank - 1, columns);
    // Saturating: a dim may be huge where another one is 0.
    let sum = |parts: [usize; 3]| parts.into_iter().fold(0, usize::saturating_add);
    Ok(match op {
        LinalgOp::Cholesky => {
            square()?;
            a.clone()
        }
        LinalgOp::Lu => rows(m, sum([n, 1, 0])),
        LinalgOp::Qr => rows(sum([m, n, 0]), m.min(n)),
        LinalgOp::Svd => rows(sum([m, 1, n]), m.min(n)),
        LinalgOp::Eigh => {
            square()?;
            rows(sum([n, 1, 0]), n)
        }
        LinalgOp::Eig => {
            square()?;
            let mut shape = rows(sum([n, 1, 0]), n);
            shape.dims_mut().push(2);
            shape
        }
        LinalgOp::TriangularSolve { .. } => {
            square()?;
            let (b_dtype, b) = b.expect("the number of operands was checked");
            if b_dtype != dtype {
                return Err(Error::dtype(name, format!("a is {dtype}, b is {b_dtype}")));
            }
            if b.rank() != rank || b[..rank - 1] != a[..rank - 1] {
                return Err(Error::shape(name, format!("b {b} does not fit a {a}")));
            }
            b.clone()
        }
    })
}

impl UnaryOp {
    /// The dtypes it takes.
    pub const fn dtypes(self) -> DTypeSet {
        match self {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => DTypeSet::NUMERIC,
            UnaryOp::Not => DTypeSet::BITS,
            UnaryOp::Recip
            | UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Expm1
            | UnaryOp::Log
            | UnaryOp::Log2
            | UnaryOp::Log1p
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tanh
            | UnaryOp::Erf
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Trunc
            | UnaryOp::Round => DTypeSet::FLOATS,
        }
    }
}

impl BinaryOp {
    /// The dtypes it takes.
    pub const fn dtypes(self) -> DTypeSet {
        match self {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min => DTypeSet::ALL,
            BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Pow => DTypeSet::NUMERIC,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => DTypeSet::BITS,
            BinaryOp::Shl | BinaryOp::Shr => DTypeSet::INTS,
            BinaryOp::Atan2 => DTypeSet::FLOATS,
        }
    }
}

impl ReduceOp {
    /// The dtypes it takes.
    pub const fn dtypes(self) -> DTypeSet {
        match self {
            ReduceOp::Sum | ReduceOp::Prod => DTypeSet::NUMERIC,
            ReduceOp::Max | ReduceOp::Min | ReduceOp::ArgMax | ReduceOp::ArgMin => DTypeSet::ALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn broadcast_keeps_zero_sized_dims() {
        let shape = |lhs: &[usize], rhs: &[usize]| broadcast_shapes("add", &lhs.into(), &rhs.into());
        assert_eq!(shape(&[2, 1], &[2, 0]).unwrap(), Shape::from([2, 0]));
        assert_eq!(shape(&[0, 3], &[1, 3]).unwrap(), Shape::from([0, 3]));
        assert_eq!(shape(&[], &[4]).unwrap(), Shape::from([4]));
        let error = shape(&[2, 3], &[4]).unwrap_err();
        assert_eq!(error.to_string(), "add: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4");
    }

    #[test]
    fn matmul_names_both_shapes() {
        let (lhs, rhs) = (Shape::from([8, 64, 32]), Shape::from([8, 64, 10]));
        let error =
            infer(&Op::Matmul { out: DType::F32 }, &[(DType::F32, &lhs), (DType::F32, &rhs)], None).unwrap_err();
        let message = error.to_string();
        assert_eq!(message, "matmul: inner sizes differ: lhs [8, 64, 32], rhs [8, 64, 10]; 32 ≠ 64");
    }

    #[test]
    fn slices_stay_inside() {
        let from = Shape::from([5]);
        let slice = |start: usize, step: i64, size: usize| {
            let op = Op::Slice { starts: [start].as_slice().into(), steps: [step].as_slice().into() };
            infer(&op, &[(DType::F32, &from)], Some(&Shape::from([size])))
        };
        assert!(slice(4, -1, 5).is_ok());
        assert!(slice(4, -1, 6).is_err());
        assert!(slice(5, 1, 0).is_ok());
        assert!(slice(0, 2, 3).is_ok());
        assert!(slice(0, i64::MAX, 2).is_err());
    }
}
