//! Losses, attention, norms and pools.

use super::{assert_close, counted, devices};
use fornax_tensor::{AttentionOptions, AvgPoolOptions, CrossEntropyOptions, DType, Reduction, Tensor, grad};

/// burn PR#4829, candle: logits and probabilities.
#[test]
fn cross_entropy_of_peaked_logits() {
    let rows =
        [[0.1, 0.2, 0.7, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.3, 0.3, 0.2, 0.2]];
    for device in devices() {
        let logits = Tensor::of(&rows, &device);
        let target = Tensor::of(&[2i64, 0, 4, 1], &device);
        assert_close(&logits.cross_entropy(&target), &[1.354197], 1e-6);
        let options = CrossEntropyOptions { reduction: Reduction::None, ..CrossEntropyOptions::default() };
        assert_eq!(logits.cross_entropy_with(&target, &options).dims(), [4]);
    }
}

/// burn#2739: NaN for certain probabilities.
#[test]
fn binary_cross_entropy_of_certainties_is_finite() {
    for device in devices() {
        let p = Tensor::of(&[1.0, 0.0, 0.0], &device).requires_grad();
        let t = Tensor::of(&[1.0, 0.0, 1.0], &device);
        let loss = p.binary_cross_entropy(&t, None, Reduction::None);
        assert_close(&loss, &[0.0, 0.0, 100.0], 0.0);
        let gradients = loss.sum(()).backward();
        assert!(gradients.get(&p).unwrap().to_vec::<f32>().iter().all(|g| g.is_finite()));
        let logits = Tensor::of(&[1000.0, -1000.0], &device).requires_grad();
        let t = Tensor::of(&[0.0, 0.0], &device);
        let loss = logits.binary_cross_entropy_with_logits(&t, None, None, Reduction::None);
        assert_close(&loss, &[1000.0, 0.0], 0.0);
        let gradients = loss.sum(()).backward();
        assert_close(gradients.get(&logits).unwrap(), &[1.0, 0.0], 0.0);
    }
}

/// burn PR#4121: the wrong axis was halved.
#[test]
fn gated_linear_units_along_each_dim() {
    for device in devices() {
        let want = [0.952574, 1.964028];
        let row = Tensor::of(&[[1.0, 2.0, 3.0, 4.0]], &device);
        assert_close(&row.glu(1), &want, 1e-6);
        assert_close(&row.glu(-1), &want, 1e-6);
        assert_close(&row.t().glu(0), &want, 1e-6);
    }
}

/// burn#4694, candle PR#3625: NaN in masked rows; an explicit mask beside the causal flag.
#[test]
fn attention_with_nothing_to_attend_to_gives_zero() {
    for device in devices() {
        device.seed(3);
        let make = || Tensor::randn([1, 1, 4, 8], &device).requires_grad();
        let (q, k, v) = (make(), make(), make());
        let mask = [[true; 4], [true; 4], [false; 4], [true; 4]];
        for is_causal in [false, true] {
            let options =
                AttentionOptions { mask: Some(Tensor::of(&mask, &device)), is_causal, ..AttentionOptions::default() };
            let y = q.scaled_dot_product_attention(&k, &v, &options);
            assert_eq!(y.i((0, 0, 2)).to_vec::<f32>(), [0.0; 8]);
            assert!(y.to_vec::<f32>().iter().all(|y| y.is_finite()));
            let found = grad(&[&y.square().sum(())], &[&q, &k, &v]).unwrap();
            for gradient in found {
                assert!(gradient.unwrap().to_vec::<f32>().iter().all(|g| g.is_finite()));
            }
        }
        for length in [1usize, 7, 64, 65, 130] {
            let x = Tensor::randn([1, 1, length, 4], &device);
            let lower = Tensor::full([length, length], true, DType::Bool, &device)
                .to_dtype(DType::I64)
                .tril(0)
                .to_dtype(DType::Bool);
            let both = AttentionOptions { mask: Some(lower), is_causal: true, ..AttentionOptions::default() };
            let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
            let difference =
                x.scaled_dot_product_attention(&x, &x, &both) - x.scaled_dot_product_attention(&x, &x, &causal);
            assert!(difference.abs().amax(()).item::<f32>() < 1e-6);
        }
    }
}

/// burn PR#5410: sums of halves overflowed in group norm.
#[test]
fn group_norm_of_equal_halves() {
    for device in devices() {
        let x = Tensor::full([1, 4, 32, 32], 100.0, DType::F16, &device);
        let y = x.group_norm(1, &fornax_tensor::Affine::default(), 1e-5);
        assert!(y.to_vec::<f32>().iter().all(|&y| y == 0.0));
        let half = counted(4096, &[1, 4, 32, 32], &device).lt(2048.0).to_dtype(DType::F16) * 0.5;
        let y = (x + half).group_norm(1, &fornax_tensor::Affine::default(), 1e-5).to_vec::<f32>();
        assert!((y[0] - 1.0).abs() < 1e-3 && (y[4095] + 1.0).abs() < 1e-3, "{} {}", y[0], y[4095]);
    }
}

/// coremltools PR#2844: what hangs over the end was counted.
#[test]
fn average_pooling_in_ceil_mode_counts_no_overhang() {
    for device in devices() {
        let x = counted(49, &[1, 1, 7, 7], &device);
        let mut options = AvgPoolOptions::new(2);
        options.windows.stride = Some(3.into());
        options.windows.ceil_mode = true;
        let want = [4.0, 7.0, 9.5, 25.0, 28.0, 30.5, 42.5, 45.5, 48.0];
        assert_close(&x.avg_pool2d(&options), &want, 1e-6);
    }
}
