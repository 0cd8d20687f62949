//! The batching rule of every primitive: its form with the examples counted in dim 0.
//!
//! Where one operand is shared by all examples, products fold the batch into a dim they have anyway, so that neither
//! the operand nor its gradient is repeated.

use super::Level;
use crate::primitive::{self, constant, permute, reshape};
use crate::{DType, Scalar, Tensor};
use alloc::boxed::Box;
use fornax_ir::{ConvSpec, Dims, Op, Result, Shape};
use smallvec::SmallVec;

/// Records `op` for all examples of `level`. `shape` is the result's for one of them.
#[track_caller]
pub(crate) fn record(op: &Op, inputs: &[&Tensor], shape: &Shape, level: Level) -> Result<Tensor> {
    let target: Shape = core::iter::once(level.size).chain(shape.iter().copied()).collect();
    let behind = |dims: &Dims| -> Dims { dims.iter().map(|dim| dim + 1).collect() };
    let batch = |i: usize| level.batch(inputs[i]);
    // Most ops take the batch as one more outer dim; what all examples share is repeated along it.
    let op = match op {
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => {
            unreachable!("a source has no operand that could be an example")
        }
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_) => op.clone(),
        Op::Reshape => Op::Reshape,
        Op::Permute(perm) => Op::Permute(front(0, behind(perm))),
        Op::Expand => {
            // New dims stand between the batch and the operand's dims.
            let x = inputs[0].shape();
            let ones = core::iter::repeat_n(1, shape.rank() - x.rank());
            let aligned = core::iter::once(level.size).chain(ones).chain(x.iter().copied()).collect();
            return primitive::expand(&reshape(&level.all(inputs[0]), &aligned)?, &target);
        }
        Op::Slice { starts, steps } => {
            let steps = core::iter::once(1).chain(steps.iter().copied()).collect();
            Op::Slice { starts: front(0, starts.clone()), steps }
        }
        Op::Pad { low, value } => Op::Pad { low: front(0, low.clone()), value: *value },
        Op::Concat { dim } => Op::Concat { dim: dim + 1 },
        // Both count dims from the last, as does linear algebra.
        Op::Window(_) | Op::Fold(_) => op.clone(),
        Op::Reduce { op, dims } => Op::Reduce { op: *op, dims: behind(dims) },
        Op::Scan { op, dim } => Op::Scan { op: *op, dim: dim + 1 },
        Op::ArgSort { dim, descending } => Op::ArgSort { dim: dim + 1, descending: *descending },
        Op::TopK { dim, largest } => Op::TopK { dim: dim + 1, largest: *largest },
        Op::Gather { dim } => match (batch(0), batch(1)) {
            (None, Some(index)) => return gather_shared(inputs[0], *dim, index),
            (Some(_), _) | (None, None) => Op::Gather { dim: dim + 1 },
        },
        Op::Scatter { dim, mode } => Op::Scatter { dim: dim + 1, mode: *mode },
        Op::Matmul { out } => match (batch(0), batch(1)) {
            (Some(lhs), None) if shape.rank() == 2 => return matmul_shared_rhs(lhs, inputs[1], *out, &target),
            (None, Some(rhs)) if shape.rank() == 2 => return matmul_shared_lhs(inputs[0], rhs, *out),
            (Some(_) | None, Some(_) | None) => Op::Matmul { out: *out },
        },
        Op::Conv(spec) => match (batch(0), batch(1)) {
            (Some(x), None) => return conv_shared_weight(spec, x, inputs[1], &target),
            (None, Some(weight)) => return conv_shared_input(spec, inputs[0], weight, &target),
            (Some(x), Some(weight)) => return conv_in_groups(spec, x, weight, &target),
            (None, None) => unreachable!("one operand is an example"),
        },
        Op::Fft { dim, kind } => Op::Fft { dim: dim + 1, kind: *kind },
        Op::Linalg(op) => Op::Linalg(*op),
    };
    let mut all: SmallVec<[Tensor; 3]> = SmallVec::new();
    for x in inputs {
        all.push(level.all(x));
    }
    primitive::record(op, &all.iter().collect::<SmallVec<[&Tensor; 3]>>(), Some(&target))
}

/// All examples read one `x`: the batch joins the indexed dim of `index`.
#[track_caller]
fn gather_shared(x: &Tensor, dim: usize, index: &Tensor) -> Result<Tensor> {
    let rank = index.rank();
    // `[b, …, i, …]` to `[…, b, i, …]`.
    let perm: Dims = (1..=dim).chain([0]).chain(dim + 1..rank).collect();
    let moved = permute(index, &perm)?;
    let joined = join(moved.shape(), dim);
    let found = primitive::gather(x, dim, &reshape(&moved, &joined)?)?;
    let back: Dims = core::iter::once(dim).chain(0..dim).chain(dim + 1..rank).collect();
    permute(&reshape(&found, moved.shape())?, &back)
}

/// `[b, m, k] · [k, n]`: the batch joins the rows.
#[track_caller]
fn matmul_shared_rhs(lhs: &Tensor, rhs: &Tensor, out: DType, target: &Shape) -> Result<Tensor> {
    let rows = reshape(lhs, &join(lhs.shape(), 0))?; // [b · m, k]
    reshape(&primitive::matmul(&rows, rhs, out)?, target)
}

/// `[m, k] · [b, k, n]`: the batch joins the columns.
#[track_caller]
fn matmul_shared_lhs(lhs: &Tensor, rhs: &Tensor, out: DType) -> Result<Tensor> {
    let moved = permute(rhs, &[1, 0, 2])?; // [k, b, n]
    let columns = reshape(&moved, &join(moved.shape(), 1))?; // [k, b · n]
    let split: Shape = [lhs.shape()[0], rhs.shape()[0], rhs.shape()[2]].into();
    permute(&reshape(&primitive::matmul(lhs, &columns, out)?, &split)?, &[1, 0, 2])
}

/// `x [b, n, c, …]`: the batch joins `n`.
#[track_caller]
fn conv_shared_weight(spec: &ConvSpec, x: &Tensor, weight: &Tensor, target: &Shape) -> Result<Tensor> {
    let x = reshape(x, &join(x.shape(), 0))?;
    reshape(&conv(spec, &x, weight, spec.groups)?, target)
}

/// `weight [b, o, c / groups, …]`: the batch joins the output channels of each group.
#[track_caller]
fn conv_shared_input(spec: &ConvSpec, x: &Tensor, weight: &Tensor, target: &Shape) -> Result<Tensor> {
    let (w, groups) = (weight.shape(), spec.groups);
    let (size, out_group) = (w[0], w[1] / groups);
    let split: Shape = [size, groups, out_group].into_iter().chain(w[2..].iter().copied()).collect();
    let moved = permute(&reshape(weight, &split)?, &swapped(split.rank(), 0, 1))?; // [g, b, o / g, …]
    let joined: Shape = core::iter::once(groups * size * out_group).chain(w[2..].iter().copied()).collect();
    let y = conv(spec, x, &reshape(&moved, &joined)?, groups)?; // [n, g · b · o / g, …]
    let [batch, spatial] = [&target[1..2], &target[3..]];
    let split: Shape = [batch[0], groups, size, out_group].into_iter().chain(spatial.iter().copied()).collect();
    let perm: Dims = [2, 0, 1].into_iter().chain(3..split.rank()).collect();
    reshape(&permute(&reshape(&y, &split)?, &perm)?, target)
}

/// `x [b, n, c, …]`, `weight [b, o, …]`: each example is a group.
#[track_caller]
fn conv_in_groups(spec: &ConvSpec, x: &Tensor, weight: &Tensor, target: &Shape) -> Result<Tensor> {
    let size = target[0];
    if size == 0 {
        return Ok(constant(Scalar::Float(0.0), x.dtype(), target, x.device()));
    }
    let moved = permute(x, &swapped(x.rank(), 0, 1))?; // [n, b, c, …]
    let channels = reshape(&moved, &join(moved.shape(), 1))?; // [n, b · c, …]
    let weight = reshape(weight, &join(weight.shape(), 0))?; // [b · o, …]
    let y = conv(spec, &channels, &weight, size * spec.groups)?; // [n, b · o, …]
    let perm = swapped(target.rank(), 0, 1);
    let split: Shape = perm.iter().map(|&dim| target[dim]).collect(); // [n, b, o, …]
    permute(&reshape(&y, &split)?, &perm)
}

#[track_caller]
fn conv(spec: &ConvSpec, x: &Tensor, weight: &Tensor, groups: usize) -> Result<Tensor> {
    primitive::record(Op::Conv(Box::new(ConvSpec { groups, ..spec.clone() })), &[x, weight], None)
}

/// `first`, then `dims`.
fn front(first: usize, dims: Dims) -> Dims {
    core::iter::once(first).chain(dims).collect()
}

/// `dim` and the next one become one.
fn join(shape: &Shape, dim: usize) -> Shape {
    let mut joined = shape.clone();
    let size = joined.dims_mut().remove(dim + 1);
    joined.dims_mut()[dim] *= size;
    joined
}

/// The order that swaps two dims.
fn swapped(rank: usize, a: usize, b: usize) -> Dims {
    let mut perm: Dims = (0..rank).collect();
    perm.swap(a, b);
    perm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, vmap};
    use alloc::vec::Vec;
    use fornax_ir::{
        BinaryOp, CompareOp, ConvSpec, FftKind, LinalgOp, ReduceOp, ScanOp, ScatterMode, UnaryOp, WindowDim, WindowSpec,
    };
    use smallvec::smallvec;

    /// Numbers without a pattern, from 1 to 7; bools from their parity.
    fn operand(dtype: DType, shape: &[usize], salt: usize) -> Tensor {
        let count: usize = shape.iter().product();
        let value = |i: usize| ((i + 7 * salt) * (i + 3) % 11 * 5 % 7 + 1) as f64;
        let x = Tensor::from_vec((0..count).map(value).collect(), shape, &Device::reference());
        if dtype == DType::Bool { primitive::cast(&x.fmod(2.0), dtype).unwrap() } else { x.to_dtype(dtype) }
    }

    /// With every choice of batched operands, the batch is the stack of its examples.
    #[track_caller]
    fn check(op: &Op, operands: &[(DType, &[usize])], shape: Option<&[usize]>) {
        let shape = shape.map(Shape::from);
        let run = |x: &[Tensor]| primitive::record(op.clone(), &x.iter().collect::<Vec<_>>(), shape.as_ref()).unwrap();
        let has_index = matches!(op, Op::Gather { .. } | Op::Scatter { .. });
        for choice in 1..1u32 << operands.len() {
            let is_batched = |i: usize| choice >> i & 1 == 1;
            let make = |(i, &(dtype, shape)): (usize, &(DType, &[usize]))| {
                let full: Vec<usize> =
                    core::iter::repeat_n(3, usize::from(is_batched(i))).chain(shape.iter().copied()).collect();
                let x = operand(dtype, &full, i);
                if has_index && i == 1 { x.fmod(3.0).to_dtype(dtype) } else { x }
            };
            let x: Vec<Tensor> = operands.iter().enumerate().map(make).collect();
            let dims: Vec<Option<isize>> = (0..x.len()).map(|i| is_batched(i).then_some(0)).collect();
            let got = vmap(run, &x.iter().collect::<Vec<_>>(), &dims);
            let one = |j: isize| {
                let pick = |(i, x): (usize, &Tensor)| if is_batched(i) { x.i(j) } else { x.clone() };
                run(&x.iter().enumerate().map(pick).collect::<Vec<_>>())
            };
            let examples = [one(0), one(1), one(2)];
            let want = Tensor::stack(&examples.iter().collect::<Vec<_>>(), 0);
            assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{op:?}, batched {choice:b}");
            let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
            let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-9;
            assert!(got.iter().zip(&want).all(near), "{op:?}, batched {choice:b}: {got:?}, want {want:?}");
        }
    }

    #[test]
    fn elementwise() {
        use DType::{Bool, F64, I64};
        let shape: &[usize] = &[2, 3];
        for &op in UnaryOp::ALL {
            let dtype = if op.dtypes().contains(F64) { F64 } else { I64 };
            check(&Op::Unary(op), &[(dtype, shape)], None);
        }
        for &op in BinaryOp::ALL {
            let dtype = if op.dtypes().contains(F64) { F64 } else { I64 };
            check(&Op::Binary(op), &[(dtype, shape), (dtype, shape)], None);
        }
        for &op in CompareOp::ALL {
            check(&Op::Compare(op), &[(F64, shape), (F64, shape)], None);
        }
        check(&Op::Select, &[(Bool, shape), (F64, shape), (F64, shape)], None);
        check(&Op::Cast(I64), &[(F64, shape)], None);
        check(&Op::Bitcast(I64), &[(F64, shape)], None);
    }

    #[test]
    fn movement() {
        let x: (DType, &[usize]) = (DType::F64, &[2, 1, 5]);
        check(&Op::Reshape, &[x], Some(&[5, 2]));
        check(&Op::Permute(smallvec![2, 0, 1]), &[x], None);
        check(&Op::Expand, &[x], Some(&[4, 2, 3, 5]));
        check(&Op::Expand, &[(DType::F64, &[])], Some(&[4]));
        check(&Op::Slice { starts: smallvec![1, 0, 4], steps: smallvec![1, 1, -2] }, &[x], Some(&[1, 1, 3]));
        check(&Op::Pad { low: smallvec![1, 0, 0], value: Scalar::Float(9.0) }, &[x], Some(&[3, 2, 5]));
        check(&Op::Concat { dim: 1 }, &[x, (DType::F64, &[2, 3, 5])], None);
        let window = WindowDim { size: 2, step: 2, dilation: 1 };
        let spec = WindowSpec { dims: smallvec![WindowDim { size: 1, ..window }, window] };
        check(&Op::Window(spec.clone()), &[x], None);
        check(&Op::Fold(spec), &[(DType::F64, &[2, 1, 2, 1, 2])], Some(&[2, 1, 5]));
    }

    #[test]
    fn along_dims() {
        let x: (DType, &[usize]) = (DType::F64, &[2, 3, 4]);
        for &op in ReduceOp::ALL {
            check(&Op::Reduce { op, dims: smallvec![0, 2] }, &[x], None);
        }
        for &op in ScanOp::ALL {
            check(&Op::Scan { op, dim: 1 }, &[x], None);
        }
        check(&Op::ArgSort { dim: 0, descending: true }, &[x], None);
        check(&Op::TopK { dim: 2, largest: false }, &[x], Some(&[2, 3, 3]));
        for dim in 0..3 {
            let shape = Shape::from(x.1).with_dim(dim, 5);
            let table: &[usize] = &Shape::from(x.1).with_dim(dim, 3);
            check(&Op::Gather { dim }, &[(x.0, table), (DType::I64, &shape)], None);
            for &mode in ScatterMode::ALL {
                check(&Op::Scatter { dim, mode }, &[(x.0, table), (DType::I64, &shape), (x.0, &shape)], None);
            }
        }
        check(&Op::Fft { dim: 1, kind: FftKind::Forward }, &[(DType::F64, &[2, 3, 2])], None);
    }

    #[test]
    fn contractions() {
        let contract = |op: &Op, lhs: &[usize], rhs: &[usize]| check(op, &[(DType::F64, lhs), (DType::F64, rhs)], None);
        let matmul = Op::Matmul { out: DType::F64 };
        contract(&matmul, &[2, 3], &[3, 4]);
        contract(&matmul, &[2, 2, 3], &[2, 3, 1]);
        for (groups, weight) in [(1, [6, 4, 2, 2]), (2, [6, 2, 2, 2])] {
            let spec = ConvSpec {
                stride: smallvec![2, 1],
                padding: smallvec![(1, 0), (0, 1)],
                dilation: smallvec![1, 2],
                input_dilation: smallvec![2, 1],
                groups,
            };
            contract(&Op::Conv(Box::new(spec)), &[2, 4, 3, 4], &weight);
        }
    }

    #[test]
    fn linear_algebra() {
        let one = [LinalgOp::Lu, LinalgOp::Qr, LinalgOp::Svd, LinalgOp::Eigh];
        for op in one {
            check(&Op::Linalg(op), &[(DType::F64, &[2, 3, 3])], None);
        }
        for upper in [false, true] {
            let op = LinalgOp::TriangularSolve { upper, unit_diagonal: upper };
            check(&Op::Linalg(op), &[(DType::F64, &[3, 3]), (DType::F64, &[3, 2])], None);
        }
    }
}
