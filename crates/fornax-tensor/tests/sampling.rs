//! Moments and ranges of random numbers, each within five standard errors.

use fornax_tensor::{DType, Device, Tensor};

const COUNT: usize = 100_000;

fn devices() -> [Device; 2] {
    let devices = [Device::cpu(), Device::reference()];
    for device in &devices {
        device.seed(7);
    }
    devices
}

#[track_caller]
fn assert_mean(x: &Tensor, mean: f64, deviation: f64) {
    let found = x.to_vec::<f32>().iter().map(|&value| f64::from(value)).sum::<f64>() / x.numel() as f64;
    let error = deviation / (x.numel() as f64).sqrt();
    assert!((found - mean).abs() < 5.0 * error, "mean {found}, want {mean} ± {error}");
}

#[test]
fn distributions_have_their_moments() {
    for device in devices() {
        let x = Tensor::exponential([COUNT], 2.0, &device);
        assert!(x.isfinite().all(()).item::<bool>() && x.ge(0.0).all(()).item::<bool>());
        assert_mean(&x, 0.5, 0.5);
        // E[x²] = 2 / rate², of which the variance is 20 / rate⁴.
        assert_mean(&x.square(), 0.5, 20f64.sqrt() / 4.0);

        let x = Tensor::geometric([COUNT], 0.25, &device);
        assert!(x.ge(1.0).all(()).item::<bool>() && x.eq(x.round()).all(()).item::<bool>());
        assert_mean(&x, 4.0, 12f64.sqrt());
        assert_mean(&x.eq(1.0).to_dtype(DType::F32), 0.25, 0.1875f64.sqrt());

        // A Cauchy has no mean; a quarter lies beyond each end of its half width.
        let x = Tensor::cauchy([COUNT], 3.0, 2.0, &device);
        for beyond in [x.gt(5.0), x.lt(1.0)] {
            assert_mean(&beyond.to_dtype(DType::F32), 0.25, 0.1875f64.sqrt());
        }

        assert_mean(&Tensor::log_normal([COUNT], 1.0, 0.5, &device).log(), 1.0, 0.5);
    }
}

#[test]
fn positions_are_drawn_by_weight() {
    for device in devices() {
        let weights = Tensor::from_slice(&[0.0f32, 1.0, 0.0, 3.0, 0.0], [5], &device);
        let drawn = weights.multinomial(10_000, true).to_vec::<i64>();
        assert!(drawn.iter().all(|&i| i == 1 || i == 3));
        let threes = drawn.iter().filter(|&&i| i == 3).count() as f64 / 10_000.0;
        assert!((threes - 0.75).abs() < 5.0 * (0.1875f64 / 10_000.0).sqrt(), "{threes}");

        let rows = Tensor::from_slice(&[1.0f32, 3.0, 0.0], [1, 3], &device).expand([10_000, 3]);
        let drawn = rows.multinomial(2, false);
        assert_eq!(drawn.dims(), [10_000, 2]);
        let drawn = drawn.to_vec::<i64>();
        assert!(drawn.chunks(2).all(|pair| pair[0] + pair[1] == 1), "each once, the third never");
        let ones = drawn.chunks(2).filter(|pair| pair[0] == 1).count() as f64 / 10_000.0;
        assert!((ones - 0.75).abs() < 5.0 * (0.1875f64 / 10_000.0).sqrt(), "{ones}");
    }
}

#[test]
#[should_panic(expected = "geometric: p = 1.5 is not in (0, 1)")]
fn a_probability_above_one_is_refused() {
    let _ = Tensor::geometric([1], 1.5, &Device::cpu());
}

#[test]
fn bernoulli_numbers_and_categories_follow_their_probabilities() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    device.seed(4);
    let p = Tensor::of(&[[0.0], [0.25], [1.0]], &device).expand([3, 40_000]);
    let means = p.bernoulli().mean(1).to_vec::<f64>();
    assert!(means[0] == 0.0 && means[2] == 1.0 && (means[1] - 0.25).abs() < 0.01, "{means:?}");

    let logits = Tensor::of(&[0.2, 0.3, 0.5], &device).log().expand([40_000, 3]).requires_grad();
    let hard = logits.gumbel_softmax(0.7, true, -1);
    let shares = hard.detach().mean(0).to_vec::<f64>();
    assert!(shares.iter().zip([0.2, 0.3, 0.5]).all(|(got, want)| (got - want).abs() < 0.01), "{shares:?}");
    assert!((hard * Tensor::of(&[1.0, 2.0, 4.0], &device)).sum(()).backward().get(&logits).is_some());

    let halves = Tensor::zeros([100_000], &device).to_dtype(DType::BF16).rand_like();
    assert!(
        halves.amax(()).item::<f32>() < 1.0 && (halves.to_dtype(DType::F32).mean(()).item::<f32>() - 0.5).abs() < 0.01
    );
}
