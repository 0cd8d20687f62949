//! Network parts on the kernels of a GPU, run in lockstep, against the interpreter: sizes around every edge of how threads
//! share the work.

use fornax_kernel::lockstep::LockstepBackend;
use fornax_tensor::ops::{ConvOptions, FftNorm};
use fornax_tensor::{DType, Device, Element, Tensor};

type Make = fn(&Device, &[usize]) -> Vec<Tensor>;

/// Runs `make` on both devices; gives the number of launches.
#[track_caller]
fn check(make: Make, shape: &[usize], tolerance: f64) -> u64 {
    let (device, reference) = (Device::new(LockstepBackend::default()), Device::reference());
    let (got, want) = (make(&device, shape), make(&reference, shape));
    for (nth, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
        let numbers = |tensor: &Tensor| tensor.to_dtype(DType::F64).to_vec::<f64>();
        let (got, want) = (numbers(got), numbers(want));
        let largest = want.iter().filter(|x| x.is_finite()).fold(0.0f64, |max, x| max.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let close = (got - want).abs() <= tolerance * (want.abs() + largest) || got == want;
            assert!(close || got.is_nan() && want.is_nan(), "{shape:?}, result {nth}, element {i}: {got}, not {want}");
        }
    }
    let counters = device.backend().counters();
    let count = |name: &str| counters.iter().find(|(other, _)| *other == name).unwrap().1;
    assert_eq!(count("host"), 0, "the host ran an op");
    count("launches")
}

fn random(device: &Device, shape: &[usize]) -> Tensor {
    device.seed(7);
    // By way of the host, so that both devices see the same bits.
    let bytes = Tensor::randn(shape, &Device::reference()).to_bytes();
    let mut bits: u32 = 12345;
    let mut values = f32::read_le(&bytes);
    for value in &mut values {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *value = (bits >> 8) as f32 / 8_388_608.0 - 1.0;
    }
    Tensor::from_vec(values, shape, device)
}

fn gradients(loss: &Tensor, inputs: &[&Tensor]) -> Vec<Tensor> {
    let grads = fornax_tensor::grad(&[loss], inputs).unwrap();
    grads.into_iter().map(|grad| grad.unwrap().detach()).collect()
}

fn integers(device: &Device, shape: &[usize], below: u32) -> Tensor {
    let mut bits: u32 = 99;
    let values: Vec<i64> = (0..shape.iter().product())
        .map(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i64::from((bits >> 8) % below)
        })
        .collect();
    Tensor::from_vec(values, shape, device)
}

#[test]
fn softmax_of_rows_of_any_length() {
    let softmax: Make = |device, shape| vec![random(device, shape).softmax(-1)];
    // Held by a warp, by blocks of every size; too long to hold; few and very long: split into launches for each pass.
    for (shape, launches) in [
        (&[5, 1][..], 1),
        (&[5, 7], 1),
        (&[300, 10], 1),
        (&[9, 260], 1),
        (&[4, 1000], 1),
        (&[3, 1025], 1),
        (&[2, 4096], 1),
        (&[2, 16384], 1),
        (&[1, 16388], 1),
        (&[2, 40001], 5),
    ] {
        assert_eq!(check(softmax, shape, 1e-5), launches, "{shape:?}");
    }
}

#[test]
fn softmax_of_columns() {
    let softmax: Make = |device, shape| vec![random(device, shape).softmax(0)];
    for shape in [[3, 70], [9, 33], [200, 128], [1000, 3], [70, 2050]] {
        check(softmax, &shape, 1e-5);
    }
}

#[test]
fn layer_norm_forward_and_backward() {
    let norm: Make = |device, shape| {
        let (x, w) = (random(device, shape).requires_grad(), random(device, &shape[1..]).requires_grad());
        let mean = x.mean(-1).unsqueeze(-1);
        let centered = &x - mean;
        let var = (&centered * &centered).mean(-1).unsqueeze(-1);
        let y = centered / (var + 1e-5).sqrt() * &w;
        let loss = (&y * &y * &y).sum(());
        let grads = gradients(&loss, &[&x, &w]);
        [vec![y.detach()], grads].concat()
    };
    for shape in [[4, 8], [33, 96], [2, 3000], [130, 5]] {
        check(norm, &shape, 2e-4);
    }
}

#[test]
fn sums_over_rows_columns_and_all() {
    let sums: Make = |device, shape| {
        let x = random(device, shape);
        vec![x.sum(1), x.sum(0), x.sum(()), x.amax(0), x.argmax(1), x.argmax(0), x.argmax(())]
    };
    for shape in [[1, 1], [7, 9], [64, 4096], [4096, 8], [3, 70_000], [70_000, 3], [513, 257]] {
        check(sums, &shape, 1e-5);
    }
    let halves: Make = |device, shape| {
        let x = random(device, shape).to_dtype(DType::BF16);
        vec![x.sum(1), x.sum(0), x.sum(()), (&x * &x + &x).to_dtype(DType::F16).amax(1)]
    };
    for shape in [[7, 9], [64, 2048], [2048, 16]] {
        check(halves, &shape, 1e-2);
    }
}

#[test]
fn products_of_every_orientation() {
    let products: Make = |device, shape| {
        let [m, k, n] = shape[..] else { unreachable!() };
        let (a, b) = (random(device, &[2, m, k]), random(device, &[2, k, n]));
        let (at, bt) = (random(device, &[2, k, m]).mt(), random(device, &[n, k]).mt());
        let (ah, bh) = (a.to_dtype(DType::BF16), b.to_dtype(DType::BF16));
        let ints = integers(device, &[m, k], 100).matmul(&integers(device, &[k, n], 100));
        vec![a.matmul(&b), at.matmul(&bt), a.matmul(&bt), at.matmul(&b), ah.matmul(&bh), ints]
    };
    // The last is shared along its depth.
    for shape in [[1, 1, 1], [64, 16, 64], [65, 17, 130], [3, 100, 70], [5, 1100, 3]] {
        check(products, &shape, 1e-2);
    }
}

#[test]
fn convolutions_and_their_gradients() {
    let conv: Make = |device, shape| {
        let [n, c, h, w] = shape[..] else { unreachable!() };
        let x = random(device, &[n, c, h, w]).requires_grad();
        let weight = random(device, &[6, c / 2, 3, 2]).requires_grad();
        let options = ConvOptions { stride: [2, 1].into(), padding: [1, 0].into(), dilation: [1, 2].into(), groups: 2 };
        let y = x.conv2d(&weight, None, &options);
        let grads = gradients(&(&y * &y).sum(()), &[&x, &weight]);
        [vec![y.detach()], grads].concat()
    };
    for shape in [[1, 2, 5, 5], [3, 4, 13, 9]] {
        check(conv, &shape, 1e-4);
    }
}

#[test]
fn lookups_and_their_gradients() {
    let lookups: Make = |device, shape| {
        let [rows, width, n] = shape[..] else { unreachable!() };
        let table = random(device, &[rows, width]).requires_grad();
        let index = integers(device, &[n], rows as u32);
        let y = index.embedding(&table, None);
        let grads = gradients(&(&y * &y).sum(()), &[&table]);
        let wide = integers(device, &[n, width], rows as u32);
        [vec![y.detach(), table.detach().gather(0, &wide)], grads].concat()
    };
    for shape in [[3, 5, 7], [50, 64, 300], [700, 8, 1000]] {
        check(lookups, &shape, 1e-5);
    }
}

#[test]
fn order_and_running_totals_of_lanes_of_any_length() {
    let order: Make = |device, shape| {
        let x = (random(device, shape) * 50.0).round();
        let k = shape[1].min(5);
        vec![
            x.argsort(1, false),
            x.argsort(1, true),
            x.argsort(0, false),
            x.topk(k, 1, true).1,
            x.cumsum(1),
            x.cumsum(0),
        ]
    };
    for shape in [[1, 1], [3, 64], [2, 65], [2, 513], [1, 2049], [2, 5000]] {
        check(order, &shape, 1e-5);
    }
}

#[test]
fn transforms_along_any_dim() {
    let transforms: Make = |device, shape| {
        let x = random(device, &[shape, &[2]].concat());
        vec![x.fft_complex(None, 0, FftNorm::Backward), x.ifft_complex(None, 1, FftNorm::Ortho)]
    };
    for shape in [[1, 1], [3, 8], [30, 17]] {
        check(transforms, &shape, 1e-5);
    }
}

#[test]
fn out_of_range_is_a_fault_that_tells_the_index() {
    let device = Device::new(LockstepBackend::default());
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], [3], &device);
    let index = Tensor::from_vec(vec![0i64, -4], [2], &device);
    let error = x.gather(0, &index).try_to_vec::<f32>().unwrap_err();
    assert!(error.to_string().contains("index -4 is out of range for dim 0 of size 3"), "{error}");
}
