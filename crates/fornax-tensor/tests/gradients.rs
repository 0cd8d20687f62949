//! Gradients against central differences in `f64`, first and second order: every element for every primitive with a rule.
//! `cargo test -p xtask` checks all ops, along a direction.

use fornax_tensor::{
    ConvOptions, ConvTransposeOptions, DType, Device, PoolOptions, Tensor, UnfoldOptions, grad_with, keepdim, no_grad,
};

const STEP: f64 = 1e-6;

/// A reproducible spread of numbers in a range, none of them special.
fn sample(count: usize, salt: usize, (low, high): (f64, f64)) -> Vec<f64> {
    let value = |i: usize| {
        let seed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut x = seed ^ (salt as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 29;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 32;
        low + (high - low) * (x >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(value).collect()
}

/// `Σ f(x) · weights`, with fixed weights, so that every output counts differently.
fn scalar(f: &dyn Fn(&[Tensor]) -> Tensor, x: &[Tensor]) -> Tensor {
    let y = f(x);
    let weights = Tensor::from_vec(sample(y.numel(), 77, (0.5, 1.5)), y.shape(), y.device());
    (y * weights).sum(())
}

fn upload(values: &[Vec<f64>], shapes: &[&[usize]], device: &Device) -> Vec<Tensor> {
    values.iter().zip(shapes).map(|(values, &shape)| Tensor::from_slice(values, shape, device)).collect()
}

/// The gradient of a scalar function of several tensors, by central differences.
fn differences(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    values: &[Vec<f64>],
    shapes: &[&[usize]],
    device: &Device,
) -> Vec<Vec<f64>> {
    let at = |values: &[Vec<f64>]| f(&upload(values, shapes, device)).item::<f64>();
    let mut values = values.to_vec();
    let mut found = Vec::new();
    for i in 0..values.len() {
        let mut own = Vec::new();
        for j in 0..values[i].len() {
            let middle = values[i][j];
            values[i][j] = middle + STEP;
            let high = at(&values);
            values[i][j] = middle - STEP;
            let low = at(&values);
            values[i][j] = middle;
            own.push((high - low) / (2.0 * STEP));
        }
        found.push(own);
    }
    found
}

#[track_caller]
fn assert_near(name: &str, order: &str, got: &[Vec<f64>], want: &[Vec<f64>]) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let scale = want.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
        for (j, (a, b)) in got.iter().zip(want).enumerate() {
            let near = (a - b).abs() <= 2e-4 * scale;
            assert!(near, "{name}: {order} gradient of operand {i}, element {j}: got {a}, want {b}");
        }
    }
}

fn analytic(f: &dyn Fn(&[Tensor]) -> Tensor, x: &[Tensor]) -> Vec<Tensor> {
    let leaves: Vec<Tensor> = x.iter().map(Tensor::requires_grad).collect();
    gradients(&scalar(f, &leaves), &leaves)
}

fn gradients(y: &Tensor, leaves: &[Tensor]) -> Vec<Tensor> {
    if !y.is_tracked() {
        return leaves.iter().map(Tensor::zeros_like).collect();
    }
    let found = grad_with(&[y], &leaves.iter().collect::<Vec<_>>(), &[&y.ones_like()]).unwrap();
    found.into_iter().zip(leaves).map(|(gradient, leaf)| gradient.unwrap_or_else(|| leaf.zeros_like())).collect()
}

/// First order: the gradient of a weighted sum. Second order: the gradient of a weighted sum of the gradient.
#[track_caller]
fn check(name: &str, f: &dyn Fn(&[Tensor]) -> Tensor, shapes: &[&[usize]], domain: (f64, f64)) {
    let device = Device::cpu();
    let values: Vec<Vec<f64>> =
        shapes.iter().enumerate().map(|(i, shape)| sample(shape.iter().product(), i, domain)).collect();
    let x = upload(&values, shapes, &device);
    let first: Vec<Vec<f64>> = analytic(f, &x).iter().map(Tensor::to_vec).collect();
    let numeric = differences(&|x| no_grad(|| scalar(f, x)), &values, shapes, &device);
    assert_near(name, "first", &first, &numeric);

    let slope = |x: &[Tensor]| -> Tensor {
        let leaves: Vec<Tensor> =
            x.iter().map(|x| if x.is_tracked() { x.clone() } else { x.requires_grad() }).collect();
        let mut sum: Option<Tensor> = None;
        for (i, gradient) in gradients(&scalar(f, &leaves), &leaves).iter().enumerate() {
            let weights = Tensor::from_vec(sample(gradient.numel(), 31 + i, (0.5, 1.5)), gradient.shape(), &device);
            let term = (gradient * weights).sum(());
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        sum.unwrap()
    };
    let leaves: Vec<Tensor> = x.iter().map(Tensor::requires_grad).collect();
    let second: Vec<Vec<f64>> = gradients(&slope(&leaves), &leaves).iter().map(Tensor::to_vec).collect();
    let numeric = differences(&|x| slope(x).detach(), &values, shapes, &device);
    assert_near(name, "second", &second, &numeric);
}

macro_rules! cases {
    ($($name:ident: |$x:ident| $body:expr, $shapes:expr, $domain:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), &|$x: &[Tensor]| $body, $shapes, $domain);
        }
    )*};
}

cases! {
    add: |x| &x[0] + &x[1], &[&[2, 3], &[3]], (-2.0, 2.0);
    sub: |x| &x[0] - &x[1], &[&[2, 1], &[3]], (-2.0, 2.0);
    mul: |x| &x[0] * &x[1], &[&[2, 3], &[2, 1]], (-2.0, 2.0);
    div: |x| &x[0] / &x[1], &[&[2, 3], &[3]], (0.5, 2.0);
    pow: |x| x[0].pow(&x[1]), &[&[2, 3], &[3]], (0.5, 2.0);
    maximum: |x| x[0].maximum(&x[1]), &[&[2, 3], &[2, 3]], (-2.0, 2.0);
    minimum: |x| x[0].minimum(&x[1]), &[&[2, 3], &[2, 3]], (-2.0, 2.0);
    fmod: |x| x[0].fmod(&x[1]), &[&[2, 3], &[3]], (0.6, 2.0);
    select: |x| x[0].gt(&x[1]).where_(&x[0] * 2.0, x[1].square()), &[&[2, 3], &[2, 3]], (-2.0, 2.0);
    reshape_permute_flip: |x| x[0].reshape([3, 2, 2]).permute([2, 0, 1]).flip([0, 1]).square(), &[&[4, 3]], (-2.0, 2.0);
    slices: |x| x[0].i((1.., fornax_tensor::step(.., -2))).square(), &[&[3, 5]], (-2.0, 2.0);
    pad_concat: |x| {
        Tensor::cat(&[&x[0].pad_dims(&[(1, 0), (0, 2)], 1.0), &x[1]], 0).square()
    }, &[&[2, 1], &[1, 3]], (-2.0, 2.0);
    sum_mean: |x| x[0].sum(0).square() + x[0].mean([0]), &[&[3, 2]], (-2.0, 2.0);
    prod: |x| x[0].prod(1), &[&[2, 3]], (0.5, 2.0);
    amax: |x| x[0].amax(1).square(), &[&[2, 3]], (-2.0, 2.0);
    amin: |x| x[0].amin(keepdim(0)).square(), &[&[2, 3]], (-2.0, 2.0);
    max_with_index: |x| x[0].max(1).0.square(), &[&[2, 3]], (-2.0, 2.0);
    cumsum: |x| x[0].cumsum(1).square(), &[&[2, 4]], (-2.0, 2.0);
    cumprod: |x| x[0].cumprod(0), &[&[4, 2]], (0.5, 2.0);
    sort: |x| {
        x[0].sort(1, true).0.square() * Tensor::arange(0, 4, 1, DType::F64, x[0].device())
    }, &[&[2, 4]], (-2.0, 2.0);
    gather: |x| x[0].square().gather(1, &Tensor::from([[0i64, 2, 2], [1, 1, 0]])), &[&[2, 3]], (-2.0, 2.0);
    scatter: |x| x[0].scatter(1, &Tensor::from([[2i64], [0]]), &x[1]).square(), &[&[2, 3], &[2, 1]], (-2.0, 2.0);
    scatter_add: |x| {
        x[0].scatter_add(1, &Tensor::from([[2i64, 2], [0, 1]]), &x[1]).square()
    }, &[&[2, 3], &[2, 2]], (-2.0, 2.0);
    matmul: |x| x[0].matmul(&x[1]).square(), &[&[2, 3, 2], &[2, 4]], (-1.0, 1.0);
    batched_matmul: |x| x[0].matmul(&x[1]).square(), &[&[2, 2, 3], &[2, 3, 2]], (-1.0, 1.0);
    einsum: |x| {
        Tensor::einsum("bij,jk,k->bi", &[&x[0], &x[1], &x[2]]).square()
    }, &[&[2, 2, 3], &[3, 2], &[2]], (-1.0, 1.0);
    conv1d_stride: |x| {
        let options = ConvOptions { stride: 2.into(), padding: 1.into(), ..ConvOptions::default() };
        x[0].conv1d(&x[1], Some(&x[2]), &options).square()
    }, &[&[1, 2, 6], &[2, 2, 3], &[2]], (-1.0, 1.0);
    conv2d_groups_dilation: |x| {
        let options = ConvOptions {
            groups: 2,
            dilation: [1, 2].into(),
            padding: [1, 0].into(),
            ..ConvOptions::default()
        };
        x[0].conv2d(&x[1], None, &options).square()
    }, &[&[2, 2, 3, 4], &[2, 1, 2, 2]], (-1.0, 1.0);
    conv_transpose2d: |x| {
        let options = ConvTransposeOptions {
            stride: 2.into(),
            padding: 1.into(),
            output_padding: 1.into(),
            ..ConvTransposeOptions::default()
        };
        x[0].conv_transpose2d(&x[1], None, &options).square()
    }, &[&[1, 2, 2, 3], &[2, 2, 3, 3]], (-1.0, 1.0);
    max_pool2d: |x| x[0].max_pool2d(&PoolOptions::new([2, 2])).0.square(), &[&[1, 1, 4, 4]], (-2.0, 2.0);
    unfold_fold: |x| {
        let options = UnfoldOptions::new([2, 2]);
        x[0].unfold_blocks(&options).square().fold_blocks([3, 3], &options).square()
    }, &[&[1, 1, 3, 3]], (-1.0, 1.0);
    softmax: |x| x[0].softmax(1).square(), &[&[2, 4]], (-2.0, 2.0);
    log_softmax: |x| x[0].log_softmax(0).square(), &[&[4, 2]], (-2.0, 2.0);
    logsumexp: |x| x[0].logsumexp(1).square(), &[&[2, 4]], (-2.0, 2.0);
    cross_entropy: |x| x[0].cross_entropy(&Tensor::from([2i64, 0])), &[&[2, 3]], (-2.0, 2.0);
    cholesky: |x| {
        let shift = Tensor::from([[2.0, 0.0], [0.0, 2.0]]).to_dtype(DType::F64);
        (x[0].matmul(&x[0].mt()) + shift).cholesky(false).square()
    }, &[&[2, 2]], (-1.0, 1.0);
    qr: |x| x[0].qr().1.square(), &[&[3, 2]], (0.2, 2.0);
    solve: |x| x[0].solve(&x[1], true).square(), &[&[2, 2], &[2, 1]], (0.3, 2.0);
    det: |x| x[0].det(), &[&[3, 3]], (-1.0, 1.0);
    fft: |x| x[0].fft(None, -1, fornax_tensor::FftNorm::Backward).square(), &[&[5]], (-1.0, 1.0);
}
