//! Optimizers that PyTorch does not have against their papers' algorithms; groups, accumulation, averages.

use fornax_nn::optim::*;
use fornax_nn::{Linear, Module, Param};
use fornax_tensor::{Device, Gradients, Tensor};

const START: [f32; 6] = [0.5, -1.0, 2.0, 1.5, 0.25, -0.75];

/// Eight steps on a matrix of 2 × 3, with gradients `sin(1.3 i + 0.7 t (i + 1) + 0.2)`.
fn eight_steps<O: Optimizer>(mut optimizer: O) -> (Param, O) {
    let device = Device::cpu();
    let mut p = Param::new(&Tensor::from_vec(START.to_vec(), [2, 3], &device));
    for t in 0..8 {
        let g: Vec<f32> =
            (0..6).map(|i| (f64::from(i) * 1.3 + f64::from(t) * 0.7 * f64::from(i + 1) + 0.2).sin() as f32).collect();
        let mut gradients = Gradients::default();
        gradients.insert(&p, Tensor::from_vec(g, [2, 3], &device));
        optimizer.step(&mut p, &gradients);
    }
    (p, optimizer)
}

#[track_caller]
fn close(got: &Tensor, want: [f32; 6]) {
    for (got, want) in got.to_vec::<f32>().into_iter().zip(want) {
        assert!((got - want).abs() < 2e-5, "{got} against {want}");
    }
}

// The numbers are those of the algorithms as published, computed in f64 by a few lines of NumPy each.

#[test]
fn adan_takes_the_steps_of_its_paper() {
    let (p, _) = eight_steps(Adan::new(0.1).weight_decay(0.02));
    close(&p, [0.07143, -1.039786, 1.945208, 1.528113, 0.29864, -0.762603]);
}

#[test]
fn lion_takes_the_steps_of_its_paper() {
    let (p, _) = eight_steps(Lion::new(0.1).weight_decay(0.02));
    close(&p, [0.296434, -0.982521, 1.770215, 1.674575, 0.444436, -0.936092]);
}

#[test]
fn lamb_takes_the_steps_of_its_paper() {
    let (p, _) = eight_steps(Lamb::new(0.1).weight_decay(0.02));
    close(&p, [-0.869956, -1.391768, 1.873212, 1.855549, 0.687791, -0.730265]);
}

#[test]
fn soap_takes_the_steps_of_its_paper() {
    let (p, _) = eight_steps(Soap::new(0.1).precondition_frequency(2));
    close(&p, [0.011799, -0.762403, 2.14797, 1.567943, -0.070398, -0.561874]);
}

#[test]
fn schedule_free_adamw_takes_the_steps_of_its_paper() {
    let (mut p, optimizer) = eight_steps(ScheduleFreeAdamW::new(0.1).weight_decay(0.02).warmup_steps(3));
    let trained = [0.279837, -0.945543, 1.96746, 1.51186, 0.271486, -0.762573];
    close(&p, trained);
    optimizer.average(&mut p);
    close(&p, [0.25982, -0.954407, 1.961744, 1.505877, 0.265133, -0.768921]);
    optimizer.resume(&mut p);
    close(&p, trained);
}

#[test]
fn weight_decay_of_adam_is_a_penalty_and_that_of_adamw_a_decay() {
    // Case C92: learning rate 0.1, weight decay 0.1, from 1.
    let after = |optimizer: &mut dyn Optimizer, gradients: &[f32]| {
        let mut p = Param::new(&Tensor::from([1.0]));
        for &g in gradients {
            let mut gradients = Gradients::default();
            gradients.insert(&p, Tensor::from([g]));
            optimizer.step(&mut p, &gradients);
        }
        p.item::<f32>()
    };
    let adam = || Adam::new(0.1).weight_decay(0.1);
    let adamw = || AdamW::new(0.1).weight_decay(0.1);
    for (got, want) in [
        (after(&mut adam(), &[0.0]), 0.9),
        (after(&mut adamw(), &[0.0]), 0.99),
        (after(&mut adam(), &[0.5, -0.25]), 0.854_441),
        (after(&mut adamw(), &[0.5, -0.25]), 0.854_466),
    ] {
        assert!((got - want).abs() < 1e-5, "{got} against {want}");
    }
}

fn one_each(model: &Linear) -> Gradients {
    let mut gradients = Gradients::default();
    for param in model.parameters() {
        gradients.insert(param, param.ones_like());
    }
    gradients
}

#[test]
fn groups_have_settings_of_their_own_and_rates_in_proportion() {
    let device = Device::cpu();
    let mut model = Linear::new(2, 2, &device);
    let moved = |model: &mut Linear, optimizer: &mut Sgd| {
        let before = (model.weight.to_vec::<f32>()[0], model.bias.as_ref().unwrap().to_vec::<f32>()[0]);
        let gradients = one_each(model);
        optimizer.step(model, &gradients);
        let after = (model.weight.to_vec::<f32>()[0], model.bias.as_ref().unwrap().to_vec::<f32>()[0]);
        (before.0 - after.0, before.1 - after.1)
    };
    let close = |got: (f32, f32), want: (f32, f32)| {
        assert!((got.0 - want.0).abs() < 1e-5 && (got.1 - want.1).abs() < 1e-5, "{got:?} against {want:?}");
    };
    let groups: [Selection; 3] =
        [Selection::under("bias"), Selection::regex("^b.*s$").unwrap(), Selection::of(|_, value| value.rank() == 1)];
    for bias in groups {
        let mut optimizer = Sgd::new(0.1).group(bias, |group| group.lr(0.01).momentum(0.9));
        close(moved(&mut model, &mut optimizer), (0.1, 0.01));
        // A schedule halves the rate, of both; only the group has momentum.
        optimizer.lr = 0.05;
        close(moved(&mut model, &mut optimizer), (0.05, 0.005 * 1.9));
    }
    assert!(Selection::regex("(").is_err());
    assert!(!Selection::under("enc").includes("encoder.weight", &model.weight));
}

#[test]
fn gradients_of_small_batches_add_up_to_those_of_a_large_one() {
    let device = Device::cpu();
    let model = Linear::new(3, 2, &device);
    let x = Tensor::randn([4, 3], &device);
    let all = model.forward(&x).square().sum(()).backward();
    let mut parts = Gradients::default();
    for batch in 0..2 {
        parts.accumulate(model.forward(&x.narrow(0, batch * 2, 2)).square().sum(()).backward());
    }
    for param in model.parameters() {
        let (got, want) = (parts.get(param).unwrap().to_vec::<f32>(), all.get(param).unwrap().to_vec::<f32>());
        assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-4), "{got:?} against {want:?}");
    }
}

#[test]
fn a_step_over_many_tensors_is_one_launch() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let mut model: Vec<Param> = (0..40).map(|i| Param::new(&Tensor::randn([3, 100 * i + 1], &device))).collect();
    for mut optimizer in [
        Box::new(AdamW::new(1e-3)) as Box<dyn Optimizer>,
        Box::new(Sgd::new(1e-3).momentum(0.9)),
        Box::new(RmsProp::new(1e-3)),
        Box::new(Lion::new(1e-4)),
        Box::new(Adan::new(1e-3)),
    ] {
        for step in 0..3 {
            let mut gradients = Gradients::default();
            for param in &model {
                gradients.insert(param, param.ones_like());
            }
            device.flush();
            let before = device.report();
            optimizer.step(&mut model, &gradients);
            let report = device.report().since(&before);
            if step == 2 {
                assert_eq!((report.counter("kernels"), report.counter("launches")), (40, 1));
            }
        }
    }
}
