//! Transforms of functions, against closed forms, against each other, and against loops.

use fornax_tensor::{
    ConvOptions, ConvTransposeOptions, DType, Device, FftNorm, PoolOptions, Tensor, UnfoldOptions, checkpoint, grad,
    hessian, hvp, jacobian, jvp, keepdim, no_grad, value_and_grad, vjp, vmap,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A reproducible spread of numbers in a range, none of them special.
fn sample(shape: &[usize], salt: usize, (low, high): (f64, f64)) -> Tensor {
    let value = |i: usize| {
        let mut x =
            (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 29;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 32;
        low + (high - low) * (x >> 11) as f64 / (1u64 << 53) as f64
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_vec(values, shape, &Device::cpu())
}

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &Device::cpu())
}

/// `f64` throughout: what is left is a different order of sums.
#[track_caller]
fn assert_close(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{name}");
    let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    let scale = want.iter().filter(|value| value.is_finite()).fold(1.0f64, |largest, value| largest.max(value.abs()));
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-10 * scale;
        assert!(same, "{name}: element {i}: got {a}, want {b}");
    }
}

#[test]
fn gradients_are_those_of_the_closed_form() {
    let (x, y) = (f64s(&[1.0, 2.0]), f64s(&[3.0, 5.0]));
    let (value, gradients) = value_and_grad(|v| (v[0].square() * &v[1]).sum(()), &[&x, &y]);
    assert_eq!(value.item::<f64>(), 23.0);
    assert_eq!(gradients[0].to_vec::<f64>(), [6.0, 20.0]);
    assert_eq!(gradients[1].to_vec::<f64>(), [1.0, 4.0]);
    assert!(!value.is_tracked() && !gradients[0].is_tracked());
    let (_, gradients) = value_and_grad(|v| v[0].sum(()), &[&x, &y]);
    assert_eq!(gradients[1].to_vec::<f64>(), [0.0, 0.0]);
    // A gradient taken without gradients around it.
    let (_, gradients) = no_grad(|| value_and_grad(|v| v[0].square().sum(()), &[&x]));
    assert_eq!(gradients[0].to_vec::<f64>(), [2.0, 4.0]);
}

#[test]
fn gradients_stay_differentiable_in_what_is_tracked_outside() {
    let x = f64s(&[1.0, 2.0]);
    let w = f64s(&[3.0, 4.0]).requires_grad();
    // d/dx Σ w x² = 2 w x; its square summed, by w: 8 w x².
    let (_, dx) = value_and_grad(|v| (v[0].square() * &w).sum(()), &[&x]);
    let gradients = dx[0].square().sum(()).backward();
    assert_eq!(gradients.get(&w).unwrap().to_vec::<f64>(), [24.0, 128.0]);
    // Third derivative of x⁴ by nesting: 24 x.
    let quartic = |v: &[Tensor]| v[0].square().square().sum(());
    let first = |v: &[Tensor]| value_and_grad(quartic, &[&v[0]]).1[0].sum(());
    let second = |v: &[Tensor]| value_and_grad(first, &[&v[0]]).1[0].sum(());
    let (value, third) = value_and_grad(second, &[&x]);
    assert_eq!(value.item::<f64>(), 12.0 * 5.0);
    assert_eq!(third[0].to_vec::<f64>(), [24.0, 48.0]);
}

#[test]
fn what_flows_to_an_input_stops_there() {
    // y = x²; the function uses y as input and by capture: only the input counts.
    let x = f64s(&[3.0]).requires_grad();
    let y = x.square();
    let (_, dy) = value_and_grad(|v| (&v[0] * &y).sum(()), &[&y]);
    assert_eq!(dy[0].to_vec::<f64>(), [9.0]);
    let both = grad(&[&dy[0].sum(())], &[&x]).unwrap();
    assert_eq!(both[0].as_ref().unwrap().to_vec::<f64>(), [6.0]);
}

/// Functions of two vectors of 3, smooth in the domain.
type Function = fn(&[Tensor]) -> Tensor;
const FUNCTIONS: &[(&str, Function)] = &[
    ("product", |v| &v[0] * &v[1].sin()),
    ("outer", |v| v[0].unsqueeze(1).matmul(&v[1].exp().unsqueeze(0))),
    ("softmax", |v| (&v[0] * 2.0).softmax(0) * &v[1]),
    ("cumprod", |v| v[0].cumprod(0) + v[1].prod(())),
    ("sigmoid", |v| (&v[0] * &v[1]).sigmoid().sum(())),
    ("sort", |v| v[0].sort(0, true).0 * v[1].i(..2).sum(())),
    ("constant", |v| v[0].zeros_like()),
];

#[test]
fn rows_of_the_jacobian_are_vjps_and_columns_jvps() {
    let x = [sample(&[3], 1, (0.3, 1.5)), sample(&[3], 2, (0.3, 1.5))];
    let x: Vec<&Tensor> = x.iter().collect();
    for (name, f) in FUNCTIONS {
        let blocks = jacobian(f, &x);
        let (y, pullback) = vjp(f, &x);
        let rows = y.numel();
        for row in 0..rows {
            let mut unit = vec![0.0; rows];
            unit[row] = 1.0;
            let unit = Tensor::from_vec(unit, y.shape(), y.device());
            for (block, dx) in blocks.iter().zip(pullback.call(&[&unit])) {
                assert_close(name, &block.reshape([rows, 3]).i(row as isize), &dx);
            }
        }
        for (i, block) in blocks.iter().enumerate() {
            for column in 0..3 {
                let mut tangents = [f64s(&[0.0; 3]), f64s(&[0.0; 3])];
                let mut unit = [0.0; 3];
                unit[column] = 1.0;
                tangents[i] = f64s(&unit);
                let (value, dy) = jvp(f, &x, &tangents.iter().collect::<Vec<_>>());
                assert_close(name, &value, &y);
                assert_close(name, &block.reshape([rows, 3]).i((.., column as isize)), &dy.reshape([rows]));
                assert!(!dy.is_tracked() && !block.is_tracked(), "{name}");
            }
        }
    }
}

#[test]
fn the_hessian_of_a_quadratic_is_its_matrix() {
    let a = sample(&[4, 4], 3, (-1.0, 1.0));
    let (x, v) = (sample(&[4], 4, (-1.0, 1.0)), sample(&[4], 5, (-1.0, 1.0)));
    let quadratic = |x: &[Tensor]| (&x[0] * a.matmul(&x[0])).sum(());
    let symmetric = &a + a.mt();
    assert_close("hessian", &hessian(quadratic, &[&x])[0][0], &symmetric);
    let (gradient, product) = hvp(quadratic, &[&x], &[&v]);
    assert_close("gradient", &gradient[0], &symmetric.matmul(&x));
    assert_close("hvp", &product[0], &symmetric.matmul(&v));
    // Forward over reverse.
    let slope = |x: &[Tensor]| value_and_grad(quadratic, &[&x[0]]).1.swap_remove(0);
    assert_close("jvp of grad", &jvp(slope, &[&x], &[&v]).1, &symmetric.matmul(&v));
}

#[test]
fn hessian_blocks_of_two_inputs() {
    // f = Σ x² y: blocks 2y, 2x; 2x, 0.
    let (x, y) = (f64s(&[1.0, 2.0]), f64s(&[3.0, 5.0]));
    let blocks = hessian(|v| (v[0].square() * &v[1]).sum(()), &[&x, &y]);
    assert_eq!(blocks[0][0].to_vec::<f64>(), [6.0, 0.0, 0.0, 10.0]);
    assert_eq!(blocks[0][1].to_vec::<f64>(), [2.0, 0.0, 0.0, 4.0]);
    assert_eq!(blocks[1][0].to_vec::<f64>(), [2.0, 0.0, 0.0, 4.0]);
    assert_eq!(blocks[1][1].to_vec::<f64>(), [0.0; 4]);
}

/// `[result]` of each example, stacked.
fn stacked(f: &dyn Fn(&[Tensor]) -> Vec<Tensor>, inputs: &[&Tensor], batched: &[bool]) -> Vec<Tensor> {
    let size = inputs.iter().zip(batched).find(|(_, batched)| **batched).unwrap().0.shape()[0];
    let one = |i: usize| {
        let pick = |(&x, &batched): (&&Tensor, &bool)| if batched { x.i(i as isize) } else { x.clone() };
        f(&inputs.iter().zip(batched).map(pick).collect::<Vec<_>>())
    };
    let all: Vec<Vec<Tensor>> = (0..size).map(one).collect();
    (0..all[0].len()).map(|j| Tensor::stack(&all.iter().map(|y| &y[j]).collect::<Vec<_>>(), 0)).collect()
}

fn dims_of(batched: &[bool]) -> Vec<Option<isize>> {
    batched.iter().map(|&batched| batched.then_some(0)).collect()
}

/// `vmap(f)` is the stack of `f`: for every choice of which operands are batched; its gradients too, and gradients
/// taken for each example.
#[track_caller]
fn check(name: &str, f: fn(&[Tensor]) -> Tensor, shapes: &[&[usize]], domain: (f64, f64)) {
    for choice in 1..1u32 << shapes.len() {
        let batched: Vec<bool> = (0..shapes.len()).map(|i| choice >> i & 1 == 1).collect();
        let name = format!("{name}, batched {batched:?}");
        let make = |(i, shape): (usize, &&[usize])| {
            let shape: Vec<usize> = if batched[i] { [&[3], *shape].concat() } else { shape.to_vec() };
            sample(&shape, i, domain)
        };
        let x: Vec<Tensor> = shapes.iter().enumerate().map(make).collect();
        let inputs: Vec<&Tensor> = x.iter().collect();
        let got = vmap(f, &inputs, &dims_of(&batched));
        assert_close(&name, &got, &stacked(&|x| vec![f(x)], &inputs, &batched)[0]);
        assert!(!got.is_tracked());

        if !got.dtype().is_float()
            || !f(&x
                .iter()
                .zip(&batched)
                .map(|(x, &b)| if b { x.i(0) } else { x.clone() }.requires_grad())
                .collect::<Vec<_>>())
            .is_tracked()
        {
            continue;
        }
        let loss = |y: &Tensor| (y * sample(y.shape(), 9, (0.5, 1.5))).sum(());
        let together = value_and_grad(|x| loss(&vmap(f, &x.iter().collect::<Vec<_>>(), &dims_of(&batched))), &inputs).1;
        let looped = |x: &[Tensor]| loss(&stacked(&|x| vec![f(x)], &x.iter().collect::<Vec<_>>(), &batched)[0]);
        for (got, want) in together.iter().zip(value_and_grad(looped, &inputs).1) {
            assert_close(&format!("{name}, gradient of vmap"), got, &want);
        }
        let each = |x: &[Tensor]| value_and_grad(|x| loss(&f(x)), &x.iter().collect::<Vec<_>>()).1;
        let got = vmap(each, &inputs, &dims_of(&batched));
        for (got, want) in got.iter().zip(stacked(&each, &inputs, &batched)) {
            assert_close(&format!("{name}, vmap of gradient"), got, &want);
        }
    }
}

macro_rules! cases {
    ($($name:ident: |$x:ident| $body:expr, $shapes:expr, $domain:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), |$x: &[Tensor]| $body, $shapes, $domain);
        }
    )*};
}

cases! {
    unary_smooth: |x| {
        let x = &x[0];
        Tensor::stack(&[
            &-x, &x.abs(), &x.reciprocal(), &x.sqrt(), &x.rsqrt(), &x.exp(), &x.exp2(), &x.expm1(), &x.log(), &x.log2(),
            &x.log1p(), &x.sin(), &x.cos(), &x.tanh(), &x.erf(),
        ], -1)
    }, &[&[2]], (0.3, 2.0);
    unary_steps: |x| {
        let x = &x[0];
        Tensor::stack(&[&x.sign(), &x.floor(), &x.ceil(), &x.trunc(), &x.round()], 0)
    }, &[&[4]], (-3.0, 3.0);
    binary: |x| {
        let (a, b) = (&x[0], &x[1]);
        Tensor::stack(&[
            &(a + b), &(a - b), &(a * b), &(a / b), &a.fmod(b), &a.pow(b), &a.maximum(b), &a.minimum(b),
        ], 0)
    }, &[&[2, 2], &[2]], (0.6, 2.0);
    comparisons: |x| {
        let (a, b) = (&x[0].round(), &x[1].round());
        Tensor::stack(&[&a.eq(b), &a.lt(b), &a.le(b), &a.ne(b).logical_not()], 0)
    }, &[&[4], &[4]], (-1.0, 1.0);
    select_and_casts: |x| {
        let small = x[0].round().to_dtype(DType::F32).to_dtype(DType::F64);
        x[0].gt(&x[1]).where_(&x[0] * 2.0, x[1].square()) + small
    }, &[&[2, 3], &[3]], (-2.0, 2.0);
    sources: |x| {
        let count = Tensor::arange(0, 3, 1, DType::F64, x[0].device());
        &x[0] * count + x[0].full_like(2.0)
    }, &[&[2, 3]], (-2.0, 2.0);
    reshape_permute_expand: |x| {
        x[0].reshape([3, 2, 2]).permute([2, 0, 1]).unsqueeze(1).expand([4, 2, 5, 3, 2]).square()
    }, &[&[4, 3]], (-2.0, 2.0);
    slices: |x| x[0].i((1.., fornax_tensor::step(.., -2))).square(), &[&[3, 5]], (-2.0, 2.0);
    pad_concat: |x| {
        Tensor::cat(&[&x[0].pad_dims(&[(1, 0), (0, 2)], 1.0), &x[1]], 0).square()
    }, &[&[2, 1], &[1, 3]], (-2.0, 2.0);
    reductions: |x| {
        let x = &x[0];
        x.sum(0) + x.prod(0) + x.amax(keepdim(0)).sum(0) + x.amin([0]) + x.mean(()) + x.logsumexp(0)
    }, &[&[3, 2]], (0.5, 2.0);
    positions: |x| Tensor::stack(&[&x[0].argmax(1), &x[0].argmin(1)], 0), &[&[2, 4]], (-2.0, 2.0);
    scans: |x| {
        let x = &x[0];
        x.cumsum(1) + x.cumprod(0)
    }, &[&[3, 4]], (0.5, 2.0);
    sort_topk: |x| x[0].sort(1, true).0.square() + x[0].topk(2, 0, true).0.sum(keepdim(0)), &[&[3, 4]], (-2.0, 2.0);
    argsort: |x| x[0].argsort(0, false), &[&[5]], (-2.0, 2.0);
    gather: |x| {
        let index = (&x[1] * 3.0).to_dtype(DType::I64);
        x[0].square().gather(1, &index) * &x[1]
    }, &[&[2, 3, 2], &[2, 4, 1]], (0.0, 0.99);
    gather_outer: |x| x[0].square().gather(0, &(&x[1] * 3.0).to_dtype(DType::I64)), &[&[3, 2], &[2, 2]], (0.0, 0.99);
    embedding: |x| x[0].index_select(0, &(&x[1] * 4.0).to_dtype(DType::I64)).square(), &[&[4, 2], &[3]], (0.0, 0.99);
    scatter: |x| {
        // Each column to its own row: no index repeats.
        let index = x[1].argsort(0, false);
        x[0].scatter(0, &index, &x[1]).square()
    }, &[&[4, 2], &[3, 2]], (0.1, 0.99);
    scatter_add: |x| x[0].scatter_add(1, &(&x[1] * 3.0).to_dtype(DType::I64), &x[1]).square(),
        &[&[2, 3], &[2, 4]], (0.0, 0.99);
    matrix_products: |x| x[0].matmul(&x[1]).square(), &[&[2, 3], &[3, 4]], (-1.0, 1.0);
    batched_products: |x| x[0].matmul(&x[1]).square(), &[&[2, 2, 3], &[3, 2]], (-1.0, 1.0);
    vector_products: |x| x[0].matmul(&x[1]).matmul(&x[1]).square(), &[&[2, 3, 3], &[3]], (-1.0, 1.0);
    einsum: |x| {
        Tensor::einsum("bij,jk,k->bi", &[&x[0], &x[1], &x[2]]).square()
    }, &[&[2, 2, 3], &[3, 2], &[2]], (-1.0, 1.0);
    conv1d: |x| {
        let options = ConvOptions { stride: 2.into(), padding: 1.into(), ..ConvOptions::default() };
        x[0].conv1d(&x[1], Some(&x[2]), &options).square()
    }, &[&[2, 2, 6], &[2, 2, 3], &[2]], (-1.0, 1.0);
    conv2d_groups: |x| {
        let options = ConvOptions {
            groups: 2,
            dilation: [1, 2].into(),
            padding: [1, 0].into(),
            ..ConvOptions::default()
        };
        x[0].conv2d(&x[1], None, &options).square()
    }, &[&[2, 4, 3, 4], &[6, 2, 2, 2]], (-1.0, 1.0);
    conv_transpose2d: |x| {
        let options = ConvTransposeOptions { stride: 2.into(), padding: 1.into(), ..ConvTransposeOptions::default() };
        x[0].conv_transpose2d(&x[1], None, &options).square()
    }, &[&[1, 2, 2, 3], &[2, 2, 3, 3]], (-1.0, 1.0);
    pooling: |x| x[0].max_pool2d(&PoolOptions::new([2, 2])).0.square(), &[&[1, 2, 4, 4]], (-2.0, 2.0);
    windows: |x| {
        let options = UnfoldOptions::new([2, 2]);
        x[0].unfold_blocks(&options).square().fold_blocks([3, 3], &options).square()
    }, &[&[1, 1, 3, 3]], (-1.0, 1.0);
    fft: |x| x[0].fft(None, 0, FftNorm::Backward).square(), &[&[5, 2]], (-1.0, 1.0);
    rules_of_their_own: |x| x[0].softmax(1) + x[0].sigmoid() + x[0].log_softmax(0), &[&[2, 3]], (-2.0, 2.0);
    attention: |x| {
        let scores = x[0].matmul(&x[1].mt());
        scores.softmax(-1).matmul(&x[1])
    }, &[&[3, 2], &[4, 2]], (-1.0, 1.0);
    cholesky: |x| {
        let shift = Tensor::from([[2.0, 0.0], [0.0, 2.0]]).to_dtype(DType::F64);
        (x[0].matmul(&x[0].mt()) + shift).cholesky(false).square()
    }, &[&[2, 2]], (-1.0, 1.0);
    qr: |x| { let (q, r) = x[0].qr(); Tensor::cat(&[&q, &r], 0).square() }, &[&[3, 2]], (0.2, 2.0);
    svd: |x| x[0].svdvals(), &[&[3, 2]], (-1.0, 1.0);
    eigh: |x| (&x[0] + x[0].mt()).eigh(false).0, &[&[3, 3]], (-1.0, 1.0);
    solve: |x| x[0].solve(&x[1], true).square(), &[&[2, 2], &[2, 1]], (0.3, 2.0);
    det: |x| x[0].det(), &[&[3, 3]], (-1.0, 1.0);
}

#[test]
fn vmap_nests() {
    let (x, y) = (sample(&[3, 4], 1, (-1.0, 1.0)), sample(&[2, 4], 2, (-1.0, 1.0)));
    let product = |x: &Tensor, y: &Tensor| (x.tanh() * y).sum(());
    // All pairs of rows.
    let pairs = |x: &Tensor, y: &Tensor| vmap(|v| vmap(|w| product(&v[0], &w[0]), &[y], &[Some(0)]), &[x], &[Some(0)]);
    let want = x.tanh().matmul(&y.mt());
    assert_close("pairs", &pairs(&x, &y), &want);
    let got = value_and_grad(|v| pairs(&v[0], &v[1]).square().sum(()), &[&x, &y]).1;
    let want = value_and_grad(|v| v[0].tanh().matmul(&v[1].mt()).square().sum(()), &[&x, &y]).1;
    for (got, want) in got.iter().zip(&want) {
        assert_close("gradient of pairs", got, want);
    }
    // Rules of their own below two levels.
    let got = value_and_grad(
        |v| vmap(|v| vmap(|w| w[0].softmax(0), &[&v[0]], &[Some(1)]), &[&v[0]], &[Some(0)]).square().sum(()),
        &[&sample(&[2, 3, 4], 5, (-1.0, 1.0))],
    );
    let want = value_and_grad(|v| v[0].mt().softmax(2).square().sum(()), &[&sample(&[2, 3, 4], 5, (-1.0, 1.0))]);
    assert_close("softmax", &got.1[0], &want.1[0]);
}

#[test]
fn vmap_moves_the_named_dim_to_the_front() {
    let x = sample(&[2, 5, 3], 1, (-1.0, 1.0));
    let got = vmap(|v| v[0].mt().cumsum(0), &[&x], &[Some(-2)]);
    assert_eq!(got.dims(), [5, 3, 2]);
    assert_close("in_dims", &got, &x.permute([1, 2, 0]).cumsum(1));
    let pair = vmap(|v| (v[0].sum(()), f64s(&[7.0])), &[&x], &[Some(0)]);
    assert_eq!(pair.1.to_vec::<f64>(), [7.0, 7.0]);
    assert_eq!(pair.1.dims(), [2, 1]);
}

#[test]
fn vmap_records_one_op_for_all_examples() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let recorded = |batch: usize| {
        let x = Tensor::ones([batch, 4], &device);
        let before = device.report();
        let y = vmap(|v| v[0].sin().exp().sum(()), &[&x], &[Some(0)]);
        assert_eq!(y.dims(), [batch]);
        device.report().since(&before).ops_recorded
    };
    assert_eq!(recorded(2), recorded(64));
    assert_eq!(recorded(0), recorded(64));
}

#[test]
fn gradients_for_each_example_of_a_captured_weight() {
    let x = sample(&[5, 3], 1, (-1.0, 1.0));
    let w = sample(&[3, 2], 2, (-1.0, 1.0)).requires_grad();
    let each = |v: &[Tensor]| {
        let loss = v[0].unsqueeze(0).matmul(&w).tanh().square().sum(());
        grad(&[&loss], &[&w]).unwrap()[0].clone().unwrap()
    };
    let got = vmap(each, &[&x], &[Some(0)]).detach();
    let want: Vec<Tensor> = (0..5).map(|i| each(&[x.i(i)]).detach()).collect();
    assert_close("per-example", &got, &Tensor::stack(&want.iter().collect::<Vec<_>>(), 0));
    // Their sum is the gradient of the summed loss.
    let total = x.matmul(&w).tanh().square().sum(()).backward();
    assert_close("sum", &got.sum(0), total.get(&w).unwrap());
}

#[test]
fn detach_inside_vmap_cuts_the_tape_outside() {
    let x = f64s(&[1.0, 2.0, 3.0]);
    let f = |x: &[Tensor]| vmap(|v| &v[0] * v[0].detach(), &[&x[0]], &[Some(0)]).sum(());
    assert_close("detach", &value_and_grad(f, &[&x]).1[0], &x);
    let f = |x: &[Tensor]| vmap(|v| &v[0] * no_grad(|| &v[0] * 1.0), &[&x[0]], &[Some(0)]).sum(());
    assert_close("no_grad", &value_and_grad(f, &[&x]).1[0], &x);
}

#[test]
fn random_numbers_inside_vmap_are_shared() {
    let x = Tensor::zeros([4, 3], &Device::cpu());
    let y = vmap(|v| &v[0] + Tensor::rand([3], v[0].device()), &[&x], &[Some(0)]);
    let y = y.to_vec::<f32>();
    assert!(y.chunks(3).all(|row| row == &y[..3]) && y[0] != y[1]);
}

#[test]
fn reading_an_example_is_an_error_that_says_so() {
    let x = Tensor::ones([2, 3], &Device::cpu());
    vmap(
        |v| {
            let message = v[0].sum(()).try_to_vec::<f32>().unwrap_err().to_string();
            assert!(message.contains("vmap") && message.contains("transforms.rs"), "{message}");
            v[0].clone()
        },
        &[&x],
        &[Some(0)],
    );
}

#[test]
#[should_panic(expected = "vmap: 2 examples, but 3 in dim 1")]
fn vmap_names_the_input_that_does_not_fit() {
    let (x, y) = (Tensor::ones([2, 3], &Device::cpu()), Tensor::ones([2, 3], &Device::cpu()));
    vmap(|v| &v[0] + &v[1], &[&x, &y], &[Some(0), Some(1)]);
}

#[test]
fn hooks_see_and_replace_gradients() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let x = f64s(&[1.0, 2.0]).requires_grad();
    let log = seen.clone();
    let y = x.register_hook(move |dy| {
        log.lock().unwrap().push(dy.to_vec::<f64>());
        None
    });
    let gradients = (&y * 3.0 + &y).sum(()).backward();
    assert_eq!(gradients.get(&x).unwrap().to_vec::<f64>(), [4.0, 4.0]);
    assert_eq!(*seen.lock().unwrap(), [vec![4.0, 4.0]]);
    let z = x.register_hook(|dy| Some(dy * 10.0));
    assert_eq!(z.square().sum(()).backward().get(&x).unwrap().to_vec::<f64>(), [20.0, 40.0]);
    // Below vmap.
    let f = |x: &[Tensor]| vmap(|v| v[0].register_hook(|dy| Some(dy * 10.0)).square(), &[&x[0]], &[Some(0)]).sum(());
    assert_eq!(value_and_grad(f, &[&x.detach()]).1[0].to_vec::<f64>(), [20.0, 40.0]);
}

#[test]
fn a_checkpoint_has_the_gradients_of_a_plain_call() {
    let x = sample(&[4, 3], 1, (-1.0, 1.0)).requires_grad();
    let w = sample(&[3, 3], 2, (-1.0, 1.0)).requires_grad();
    let block = {
        let w = w.clone();
        move |x: &[Tensor]| {
            let h = x[0].matmul(&w).tanh();
            (h.matmul(&w).softmax(1), h)
        }
    };
    let loss = |(a, h): (Tensor, Tensor)| (a.square() + &h * &x).sum(());
    let (plain, kept) = (loss(block(std::slice::from_ref(&x))), loss(checkpoint(&[&x], block.clone())));
    assert_close("value", &kept.detach(), &plain.detach());
    let first = grad(&[&plain], &[&x, &w]).unwrap();
    let second = grad(&[&kept], &[&x, &w]).unwrap();
    for (got, want) in second.iter().zip(&first) {
        assert_close("grad", &got.as_ref().unwrap().detach(), &want.as_ref().unwrap().detach());
    }
    // Second order.
    let slope = |gradients: &[Option<Tensor>]| {
        let sum = gradients[0].as_ref().unwrap().square().sum(()) + gradients[1].as_ref().unwrap().square().sum(());
        grad(&[&sum], &[&x, &w]).unwrap()
    };
    for (got, want) in slope(&second).iter().zip(slope(&first)) {
        assert_close("second", &got.as_ref().unwrap().detach(), &want.unwrap().detach());
    }
    let (got, want) = (kept.backward(), plain.backward());
    assert_close("x", got.get(&x).unwrap(), want.get(&x).unwrap());
    assert_close("w", got.get(&w).unwrap(), want.get(&w).unwrap());
}

#[test]
fn checkpoints_in_a_chain_share_a_weight() {
    let x = sample(&[2, 3], 1, (-1.0, 1.0));
    let w = sample(&[3, 3], 2, (-1.0, 1.0)).requires_grad();
    let block = {
        let w = w.clone();
        move |x: &[Tensor]| x[0].matmul(&w).tanh()
    };
    let plain = (0..3).fold(x.clone(), |x, _| block(&[x]));
    let kept = (0..3).fold(x.clone(), |x, _| checkpoint(&[&x], block.clone()));
    let nested = {
        let block = block.clone();
        checkpoint(&[&x], move |x| (0..3).fold(x[0].clone(), |x, _| checkpoint(&[&x], block.clone())))
    };
    let want = plain.sum(()).backward();
    for (name, y) in [("chain", kept), ("nested", nested)] {
        assert_close(name, y.sum(()).backward().get(&w).unwrap(), want.get(&w).unwrap());
    }
}

#[test]
fn a_checkpoint_draws_the_same_numbers_again() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    device.seed(5);
    let x = Tensor::ones([64], &device).requires_grad();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let y = checkpoint(&[&x], move |x| {
        counter.fetch_add(1, Ordering::Relaxed);
        &x[0] * Tensor::rand([64], x[0].device())
    });
    let state = device.random_state();
    let gradients = y.sum(()).backward();
    assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), y.detach().to_vec::<f32>());
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(device.random_state(), state);
}

#[test]
fn a_checkpoint_keeps_no_intermediate_alive() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let in_use = |kept: bool| {
        let x = Tensor::ones([256, 256], &device).requires_grad();
        let block = |x: &[Tensor]| x[0].sin().matmul(&x[0].cos()).sin().matmul(&x[0]).sin().sum(());
        let y = if kept { checkpoint(&[&x], block) } else { block(std::slice::from_ref(&x)) };
        device.flush();
        let in_use = device.report().memory.in_use;
        let gradients = y.backward();
        assert_eq!(gradients.get(&x).unwrap().dims(), [256, 256]);
        in_use
    };
    let (plain, kept) = (in_use(false), in_use(true));
    // The input, and a scalar.
    let input = 256 * 256 * 4;
    assert!(kept < input + input / 2, "{kept} bytes in use");
    assert!(plain >= 4 * input, "{plain} bytes in use without a checkpoint");
}

#[test]
fn checkpoint_and_vmap_nest() {
    let x = sample(&[4, 3], 1, (-1.0, 1.0));
    let plain = |x: &[Tensor]| x[0].softmax(0).square().sum(());
    let want = value_and_grad(|x| vmap(plain, &[&x[0]], &[Some(0)]).square().sum(()), &[&x]).1;
    let inside = |x: &[Tensor]| vmap(|v| checkpoint(&[&v[0]], plain), &[&x[0]], &[Some(0)]).square().sum(());
    let outside = |x: &[Tensor]| checkpoint(&[&x[0]], move |x| vmap(plain, &[&x[0]], &[Some(0)])).square().sum(());
    assert_close("inside", &value_and_grad(inside, &[&x]).1[0], &want[0]);
    assert_close("outside", &value_and_grad(outside, &[&x]).1[0], &want[0]);
    let each = |v: &[Tensor]| value_and_grad(|v| checkpoint(&[&v[0]], plain), &[&v[0]]).1.swap_remove(0);
    let got = vmap(each, &[&x], &[Some(0)]);
    let want = vmap(|v| value_and_grad(plain, &[&v[0]]).1.swap_remove(0), &[&x], &[Some(0)]);
    assert_close("gradient inside", &got, &want);
}

#[test]
fn hessians_for_each_example() {
    // f = Σ x³: the Hessian is 6 diag(x).
    let x = f64s(&[1.0, 2.0, 3.0, 4.0]).reshape([2, 2]);
    let cube = |v: &[Tensor]| (v[0].square() * &v[0]).sum(());
    let got = vmap(|v| hessian(cube, &[&v[0]]).swap_remove(0).swap_remove(0), &[&x], &[Some(0)]);
    assert_eq!(got.to_vec::<f64>(), [6.0, 0.0, 0.0, 12.0, 18.0, 0.0, 0.0, 24.0]);
}

#[test]
fn jacobians_are_differentiable() {
    // J of w x² is diag(2 w x); the sum of its squares is Σ 4 w² x².
    let (x, w) = (f64s(&[1.0, 2.0]), f64s(&[3.0, 4.0]).requires_grad());
    let norm = |x: &[Tensor]| jacobian(|x| x[0].square() * &w, &[&x[0]])[0].square().sum(());
    let (value, dx) = value_and_grad(norm, &[&x]);
    assert_eq!(value.item::<f64>(), 36.0 + 256.0);
    assert_eq!(dx[0].to_vec::<f64>(), [72.0, 256.0]);
    assert_eq!(norm(&[x]).backward().get(&w).unwrap().to_vec::<f64>(), [24.0, 128.0]);
}

#[test]
fn jvp_and_vmap_nest() {
    let (x, t) = (sample(&[3, 4], 1, (-1.0, 1.0)), sample(&[3, 4], 2, (-1.0, 1.0)));
    let f = |x: &[Tensor]| x[0].softmax(0).square();
    let inside = vmap(|v| jvp(f, &[&v[0]], &[&v[1]]).1, &[&x, &t], &[Some(0), Some(0)]);
    let outside = jvp(|x| vmap(f, &[&x[0]], &[Some(0)]), &[&x], &[&t]).1;
    let want = jvp(|x| x[0].softmax(1).square(), &[&x], &[&t]).1;
    assert_close("vmap of jvp", &inside, &want);
    assert_close("jvp of vmap", &outside, &want);
    // The tangent of a tangent: d²/dx² of x³ is 6x.
    let x = f64s(&[2.0]);
    let one = f64s(&[1.0]);
    let cube = |x: &[Tensor]| x[0].square() * &x[0];
    let twice = jvp(|x| jvp(cube, &[&x[0]], &[&one]).1, &[&x], &[&one]).1;
    assert_eq!(twice.to_vec::<f64>(), [12.0]);
}

#[test]
fn jvp_of_results_that_are_no_floats_is_zero() {
    let x = f64s(&[1.0, 3.0]);
    let (y, dy) = jvp(|x| (x[0].argmax(0), x[0].square()), &[&x], &[&f64s(&[1.0, 1.0])]);
    assert_eq!((y.0.item::<i64>(), dy.0.item::<i64>()), (1, 0));
    assert_eq!(dy.1.to_vec::<f64>(), [2.0, 6.0]);
}

#[test]
fn backward_inside_vmap() {
    let x = f64s(&[1.0, 2.0, 3.0]);
    let each = |v: &[Tensor]| {
        let leaf = v[0].requires_grad();
        leaf.square().sum(()).backward().remove(&leaf).unwrap()
    };
    assert_eq!(vmap(each, &[&x], &[Some(0)]).to_vec::<f64>(), [2.0, 4.0, 6.0]);
}

#[test]
fn a_long_chain_inside_vmap_is_dropped_without_recursion() {
    let x = f64s(&[1.0, 2.0]).requires_grad();
    let chain = |v: &[Tensor]| {
        let leaf = v[0].requires_grad();
        let mut sums = [v[0].clone(), leaf];
        for _ in 0..20_000 {
            sums = sums.map(|sum| sum * 1.0);
        }
        sums
    };
    let [y, z] = vmap(chain, &[&x], &[Some(0)]);
    assert_eq!(y.to_vec::<f64>(), [1.0, 2.0]);
    assert!(y.is_tracked() && !z.is_tracked());
    drop(y);
}
