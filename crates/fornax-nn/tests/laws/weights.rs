//! Weights that are computed, averaged, adapted, quantized; embeddings with limits.

use super::{close, same, wave};
use fornax_nn::optim::Sgd;
use fornax_nn::*;
use fornax_tensor::{DType, Device, Tensor, autocast};

#[test]
fn weight_norm_is_that_of_pytorch() {
    let device = Device::cpu();
    let mut layer = WeightNorm::new(Conv1d::new(2, 3, [2], &ConvConfig::default(), &device));
    let state = [
        ("bias", wave([3])),
        ("parametrizations.weight.original0", Tensor::from([1.0, 2.0, 3.0]).reshape([3, 1, 1])),
        ("parametrizations.weight.original1", wave([3, 2, 2])),
    ];
    layer.load_state_dict(&state.map(|(name, value)| (name.to_string(), value))).unwrap();
    let y = layer.forward(&wave([1, 2, 3]));
    close(&y, &[0.863449, -0.48981, 2.659235, 0.162065, 2.172651, -0.133949]);
    let gradients = y.square().sum(()).backward();
    close(gradients.get(&layer.g).unwrap(), &[1.75008, 4.532395, 3.87902]);
    let v = [
        -0.572786, 0.672722, -1.012891, 1.267011, -0.919993, 4.01464, -1.323106, 7.932131, -3.49805, 8.096224,
        -1.697767, 5.540227,
    ];
    close(gradients.get(&layer.v).unwrap(), &v);
    same(&layer.clone().into_layer().forward(&wave([1, 2, 3])), &y);
}

#[test]
fn spectral_norm_is_that_of_pytorch() {
    let device = Device::cpu();
    let mut layer = SpectralNorm::new(Linear::new(3, 2, &device));
    let state = [
        ("bias", wave([2])),
        ("parametrizations.weight.original", wave([2, 3])),
        ("parametrizations.weight.0._u", Tensor::from([0.6, 0.8])),
        ("parametrizations.weight.0._v", Tensor::from([1.0, 0.0, 0.0])),
    ];
    layer.load_state_dict(&state.map(|(name, value)| (name.to_string(), value))).unwrap();
    let y = layer.forward(&wave([1, 3]));
    close(&y, &[1.323005, 1.016418]);
    close(&layer.vectors.u.get(), &[0.357192, -0.934031]);
    close(&layer.vectors.v.get(), &[0.711437, -0.306201, -0.632533]);
    let gradients = y.sum(()).backward();
    close(gradients.get(&layer.original).unwrap(), &[0.006187, 0.88862, -0.235174, 0.902446, 0.502872, -1.032031]);
    // In evaluation the vectors stay.
    layer.eval().forward(&wave([1, 3])).to_vec::<f32>();
    close(&layer.vectors.u.get(), &[0.357192, -0.934031]);
}

#[test]
fn embeddings_are_shortened_and_shared_as_in_pytorch() {
    let mut table = Embedding::from_pretrained(&(wave([4, 2]) * 2.0)).max_norm(1.0).scale_grad_by_freq();
    let y = table.forward(&Tensor::from([1i64, 2, 1]));
    close(&y, &[-0.565485, -0.824758, 0.779959, 0.625831, -0.565485, -0.824758]);
    let gradients = y.square().sum(()).backward();
    let want = [0.0, 0.0, -1.130971, -1.649516, 1.559918, 1.251661, 0.0, 0.0];
    close(gradients.get(&table.weight).unwrap(), &want);
    Sgd::new(0.1).step(&mut table, &gradients);
}

#[test]
fn a_merged_adapter_gives_the_same() {
    let device = Device::cpu();
    let mut lora = Lora::new(Linear::new(6, 4, &device), 2, 4.0);
    let x = wave([3, 6]);
    let base = lora.base_layer.weight.to_vec::<f32>();
    for _ in 0..3 {
        let gradients = lora.forward(&x).square().sum(()).backward();
        Sgd::new(0.01).step(&mut lora, &gradients);
    }
    assert_eq!(lora.base_layer.weight.to_vec::<f32>(), base, "the base is frozen");
    assert!(lora.b.weight.abs().amax(()).item::<f32>() > 0.0, "the change is trained");
    same(&lora.merged().forward(&x), &lora.forward(&x));
}

#[test]
fn four_bits_stand_for_the_nearest_values() {
    let device = Device::cpu();
    let mut linear = Linear::without_bias(64, 2, &device);
    // The first block holds all 16 values, times 3; codes must be exact there.
    let values = [
        -1.0,
        -0.6961928,
        -0.52507305,
        -0.3949175,
        -0.28444138,
        -0.18477343,
        -0.09105004,
        0.0,
        0.0795803,
        0.1609302,
        0.2461123,
        0.33791524,
        0.44070983,
        0.562617,
        0.72295684,
        1.0f32,
    ];
    let rows: Vec<f32> = (0..64).map(|i| values[i % 16] * 3.0).chain((0..64).map(|i| (i as f32).sin())).collect();
    linear.weight.set(&Tensor::from_vec(rows.clone(), [2, 64], &device));
    let quantized = Nf4Linear::from_linear(&linear);
    assert_eq!((quantized.codes.get().shape().numel(), quantized.codes.get().dtype()), (64, DType::U8));
    let weight = quantized.weight().to_vec::<f32>();
    for (i, (got, want)) in weight.iter().zip(&rows).enumerate() {
        let allowed = if i < 64 { 1e-6 } else { 0.153 };
        assert!((got - want).abs() <= allowed, "{i}: {got} against {want}");
    }
    let x = wave([3, 64]).requires_grad();
    let y = Lora::new(quantized, 2, 2.0).forward(&x);
    assert!(y.sum(()).backward().get(&x).is_some());
}

#[test]
fn averages_of_models() {
    let device = Device::cpu();
    let model = |value: f32| {
        let mut model = Linear::without_bias(1, 1, &device);
        model.weight.set(&Tensor::from([[value]]));
        model
    };
    let mut equal = Average::new(&model(9.0), Averaging::Equal);
    let mut exponential = Average::new(&model(9.0), Averaging::Exponential(0.75));
    for value in [1.0, 2.0, 6.0] {
        equal.update(&model(value));
        exponential.update(&model(value));
    }
    close(&equal.model.weight, &[3.0]);
    close(&exponential.model.weight, &[(1.0 * 0.75 + 2.0 * 0.25) * 0.75 + 6.0 * 0.25]);
}

#[test]
fn models_train_in_mixed_precision() {
    let device = Device::cpu();
    let mut model = (Linear::new(3, 16, &device), LayerNorm::new(16, &device), Gelu, Linear::new(16, 2, &device));
    let (x, y) = (wave([8, 3]), wave([8, 2]));
    let mut optimizer = optim::AdamW::new(0.02);
    let mut losses = Vec::new();
    for _ in 0..40 {
        let loss = autocast(DType::BF16, || {
            let output = model.forward(&x);
            assert_eq!(output.dtype(), DType::BF16);
            MseLoss::new().forward(&output, &y)
        });
        let gradients = loss.backward();
        assert!(gradients.values().all(|gradient| gradient.dtype() == DType::F32));
        optimizer.step(&mut model, &gradients);
        losses.push(loss.item::<f32>());
    }
    assert!(losses[39] < 0.3 * losses[0], "{losses:?}");
}
