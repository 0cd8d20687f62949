//! Cases from public reports about other frameworks, each with its right value.

use super::{close, same, wave};
use fornax_nn::optim::{Adam, AdamW, Optimizer};
use fornax_nn::schedule::{CosineAnnealing, Schedule, WarmUp};
use fornax_nn::*;
use fornax_tensor::{AvgPoolOptions, DType, Device, Tensor};

#[test]
fn the_quiet_softmax_counts_its_one_before_the_shift() {
    // Case C76.
    let y = Tensor::from([[1.0, 7.0], [13.0, -3.0]]).quiet_softmax(1);
    close(&y, &[0.002_470, 0.996_621, 0.999_998, 1.1e-7]);
    close(&Tensor::from([-50.0, -50.0]).quiet_softmax(0), &[0.0, 0.0]);
    close(&Tensor::from([1000.0, 0.0]).quiet_softmax(-1), &[1.0, 0.0]);
}

#[test]
fn gated_units_split_the_dim_they_are_told() {
    // Case C77.
    let want = [0.952_574, 1.964_028];
    let x = Tensor::from([[1.0, 2.0, 3.0, 4.0]]);
    close(&Glu { dim: 1 }.forward(&x), &want);
    close(&Glu { dim: -1 }.forward(&x), &want);
    close(&Glu { dim: 0 }.forward(&x.reshape([4, 1])), &want);
}

#[test]
fn group_norm_of_halves_does_not_overflow() {
    // Case C83.
    let device = Device::cpu();
    let mut norm = GroupNorm::new(1, 4, &device);
    norm.to_dtype(DType::F16);
    let x = Tensor::full([1, 4, 32, 32], 100.0, DType::F16, &device);
    assert_eq!(norm.forward(&x).abs().amax(()).item::<f32>(), 0.0);
    let half = Tensor::full([1, 2, 32, 32], 0.5, DType::F16, &device);
    let x = Tensor::cat(&[&half, &half.zeros_like()], 1) + x;
    let y = norm.forward(&x).to_vec::<f32>();
    assert!(y.iter().enumerate().all(|(i, y)| (y.abs() - 1.0).abs() < 2e-3 && (*y > 0.0) == (i < 2048)));
}

#[test]
fn average_pools_do_not_count_what_hangs_over() {
    // Case C85.
    let mut options = AvgPoolOptions::new(2);
    options.windows.stride = Some(3.into());
    options.windows.ceil_mode = true;
    let x = Tensor::arange(0, 49, 1, DType::F32, &Device::cpu()).reshape([1, 1, 7, 7]);
    close(&AvgPool2d::new(options).forward(&x), &[4.0, 7.0, 9.5, 25.0, 28.0, 30.5, 42.5, 45.5, 48.0]);
}

#[test]
fn dropout_in_evaluation_gives_the_same_twice() {
    // Case C86.
    let device = Device::cpu();
    let mut model = (Linear::new(4, 64, &device), Dropout::new(0.5), Linear::new(64, 2, &device));
    let x = wave([3, 4]);
    assert_ne!(model.forward(&x).to_vec::<f32>(), model.forward(&x).to_vec::<f32>());
    model.eval();
    assert_eq!(model.forward(&x).to_vec::<f32>(), model.forward(&x).to_vec::<f32>());
    assert!(!fornax_tensor::no_grad(|| model.forward(&x)).is_tracked());
}

#[test]
fn a_state_saved_on_one_device_goes_on_on_another() {
    // Case C94.
    let (a, b) = (Device::cpu(), Device::new(fornax_cpu::CpuBackend::new()));
    let mut model = Linear::new(3, 2, &a);
    let mut optimizer = AdamW::new(0.1);
    let step = |model: &mut Linear, optimizer: &mut AdamW, device: &Device| {
        let gradients = model.forward(&wave([4, 3]).to_device(device)).square().sum(()).backward();
        optimizer.step(model, &gradients);
    };
    step(&mut model, &mut optimizer, &a);
    let mut moved = model.clone();
    moved.to_device(&b);
    let mut resumed = AdamW::new(0.1);
    let state = optimizer.state().state_dict().into_iter().map(|(name, value)| (name, value.to_device(&b)));
    resumed.state_mut().load_state_dict(&state.collect::<Vec<_>>()).unwrap();
    step(&mut model, &mut optimizer, &a);
    step(&mut moved, &mut resumed, &b);
    assert!(resumed.state.state_dict().iter().all(|(_, value)| *value.device() == b));
    assert_eq!(moved.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
}

#[test]
fn the_dtypes_of_a_state_are_kept_or_refused() {
    // Case C100.
    let device = Device::cpu();
    let mut model = Linear::new(2, 2, &device);
    let mut half = model.clone();
    half.to_dtype(DType::F16);
    let error = model.load_state_dict(&half.state_dict()).unwrap_err();
    assert_eq!(error.report.mismatched.len(), 2);
    assert_eq!(model.load_state_dict_lenient(&half.state_dict()).cast.len(), 2);
    assert_eq!(model.weight.dtype(), DType::F32);
}

#[test]
fn three_steps_a_rebuild_and_three_more_are_six() {
    // Cases C101 and C142: bit for bit, with warm-up, cosine and dropout.
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let schedule = WarmUp::new(2, CosineAnnealing { t_max: 10, eta_min: 0.0 });
    type Net = (Linear, Dropout, Linear);
    let build = || -> Net { (Linear::new(3, 8, &device), Dropout::new(0.3), Linear::new(8, 1, &device)) };
    let train = |model: &mut Net, optimizer: &mut Adam, steps: std::ops::Range<u64>| -> Vec<f32> {
        steps
            .map(|step| {
                optimizer.lr = schedule.lr(0.05, step);
                let loss = model.forward(&wave([5, 3]).to_device(&device)).square().mean(());
                let gradients = loss.backward();
                optimizer.step(model, &gradients);
                loss.item()
            })
            .collect()
    };
    device.seed(3);
    let mut straight = build();
    let start = straight.state_dict();
    let random = device.random_state();
    let want = train(&mut straight, &mut Adam::new(0.05), 0..6);

    let (mut model, mut optimizer) = (build(), Adam::new(0.05));
    model.load_state_dict(&start).unwrap();
    device.set_random_state(random);
    let mut got = train(&mut model, &mut optimizer, 0..3);
    let (saved, state, random) = (model.state_dict(), optimizer.state.state_dict(), device.random_state());
    let (mut model, mut optimizer) = (build(), Adam::new(0.05));
    model.load_state_dict(&saved).unwrap();
    optimizer.state.load_state_dict(&state).unwrap();
    device.set_random_state(random);
    got.extend(train(&mut model, &mut optimizer, 3..6));
    assert_eq!(got, want);
    assert_eq!(model.0.weight.to_vec::<f32>(), straight.0.weight.to_vec::<f32>());
}

#[test]
fn keys_of_a_sequence_go_to_their_own_layer() {
    // Case C104: layers that are alternatives of one enum.
    #[derive(Module, Clone, Debug)]
    enum Block {
        Full(Linear),
        Local(Conv1d),
    }
    #[derive(Module, Clone, Debug)]
    struct Model {
        seq: Vec<Block>,
        #[module(rename = "extra")]
        other: Option<std::collections::BTreeMap<String, Linear>>,
    }
    let device = Device::cpu();
    let conv = Conv1d::new(4, 4, [3], &ConvConfig::default(), &device);
    let mut model = Model { seq: vec![Block::Full(Linear::new(8, 4, &device)), Block::Local(conv)], other: None };
    let state = model.state_dict();
    let names: Vec<&str> = state.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["seq.0.weight", "seq.0.bias", "seq.1.weight", "seq.1.bias"]);
    let changed: Vec<_> = state.iter().map(|(name, value)| (name.clone(), value + 1.0)).collect();
    model.load_state_dict(&changed).unwrap();
    for (name, value) in model.state_dict() {
        same(&value, &changed.iter().find(|(other, _)| *other == name).unwrap().1);
    }
    model.other = Some([(String::from("head"), Linear::without_bias(1, 1, &device))].into());
    assert_eq!(model.state_dict()[4].0, "extra.head.weight");
}
