//! Fused plans, their reuse, and random numbers in them.

use super::{assert_close, counted, devices};
use fornax_tensor::{
    ConvTransposeOptions, DType, Device, InterpolateMode, InterpolateOptions, ResizeTo, Tensor, keepdim,
};

/// burn PR#5290: NaN dropped in a fused reduction.
#[test]
fn fused_maxima_keep_nan() {
    for device in devices() {
        let a = Tensor::of(&[[1.0, f64::NAN, 3.0, 2.0], [1.0, 4.0, 3.0, 2.0]], &device);
        let chain = (0.0 + &a).amax(keepdim(1)) + 0.0 + &a + 1.0;
        let got = chain.to_vec::<f32>();
        assert!(got[..4].iter().all(|value| value.is_nan()));
        assert_eq!(got[4..], [6.0, 9.0, 8.0, 7.0]);
    }
}

/// burn#4461: a vector width over a strided axis.
#[test]
fn fused_means_of_permuted_tensors() {
    for device in devices() {
        let x = counted(1024, &[2, 2, 256], &device);
        assert_close(&x.permute([1, 0, 2]).mean(2), &[127.5, 639.5, 383.5, 895.5], 1e-6);
        assert_close(&x.permute([2, 0, 1]).mean(0), &[127.5, 383.5, 639.5, 895.5], 1e-6);
    }
}

/// tinygrad#7020, #10850: one buffer for two results; arguments frozen at the first call.
#[test]
fn plans_freeze_no_value() {
    for device in devices() {
        let f = |x: f64| Tensor::full([3], x, DType::F32, &device) + 1.0;
        let (u, v) = (f(1.1), f(1.2));
        device.flush();
        assert!(!u.eq(&v).any(()).item::<bool>());
        assert_close(&u, &[2.1; 3], 1e-6);
        for i in 0..5 {
            assert_eq!(f(f64::from(i)).to_vec::<f32>()[0], i as f32 + 1.0);
        }
    }
}

/// tinygrad#14689: elements of the next call in a shifted buffer.
#[test]
fn shifting_a_buffer_reads_before_it_writes() {
    let device = Device::cpu();
    let n = 1usize << 16;
    let mut buffer = Tensor::zeros([n], &device);
    for i in 0..6 {
        let new = Tensor::full([n / 2], f64::from(i + 1), DType::F32, &device);
        buffer = Tensor::cat(&[&buffer.i(n / 2..), &new], 0);
        device.flush();
        let first = buffer.i(..n / 2);
        assert_eq!(first.amin(()).item::<f32>(), i as f32);
        assert_eq!(first.amax(()).item::<f32>(), i as f32);
    }
}

/// mlx#4234: a random number frozen into a compiled function.
#[test]
fn random_numbers_differ_and_repeat_from_a_seed() {
    for device in devices() {
        let draw = || Tensor::rand([4], &device).to_vec::<f32>();
        device.seed(11);
        let first: Vec<Vec<f32>> = (0..3).map(|_| draw()).collect();
        assert!(first[0] != first[1] && first[1] != first[2]);
        device.seed(11);
        assert_eq!(first, (0..3).map(|_| draw()).collect::<Vec<_>>());
    }
    let [cpu, reference] = devices();
    cpu.seed(5);
    reference.seed(5);
    assert_eq!(Tensor::rand([1000], &cpu).to_vec::<f32>(), Tensor::rand([1000], &reference).to_vec::<f32>());
}

/// pytorch#163435: a value reassociated in one place only.
#[test]
fn a_value_minus_itself_is_zero() {
    for device in devices() {
        device.seed(1);
        let draw = || Tensor::randn([64], &device).to_dtype(DType::F16);
        let (a, b, c, d) = (draw(), draw(), draw(), draw());
        let t = a.tanh().square() * (&a + b + c + &a + d);
        assert!((&t - &t).to_vec::<f32>().iter().all(|&x| x == 0.0));
    }
}

/// burn PR#5289, #5136: what was tuned for one size was used for another.
#[test]
fn other_sizes_after_the_first() {
    let [cpu, reference] = devices();
    for channels in [8usize, 64] {
        let y = |device: &Device| {
            let x = counted(2 * channels * 9, &[2, channels, 3, 3], device) * 0.01;
            let w = counted(channels * 4 * 4, &[channels, 4, 2, 2], device) * 0.01;
            let options = ConvTransposeOptions { stride: 2.into(), ..ConvTransposeOptions::default() };
            x.conv_transpose2d(&w, None, &options)
        };
        assert_close(&y(&cpu), &y(&reference).to_vec::<f64>(), 1e-5);
    }
    for size in [5usize, 9] {
        let y = |device: &Device| {
            let to = ResizeTo::Size(vec![size, size + 1]);
            counted(24, &[1, 2, 3, 4], device).interpolate(&InterpolateOptions::new(to, InterpolateMode::Linear))
        };
        assert_close(&y(&cpu), &y(&reference).to_vec::<f64>(), 1e-5);
    }
}
