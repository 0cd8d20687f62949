//! Training as a whole: what a step costs, and that models learn.

// `#[derive(Module)]` writes paths into the facade.
extern crate fornax_nn as fornax;

use fornax_nn::optim::*;
use fornax_nn::schedule::{CosineAnnealing, Schedule};
use fornax_nn::{Layer, Linear, LstmCell, Module, Tanh};
use fornax_tensor::{Device, Tensor};

type Mlp = (Linear, Tanh, Linear);

fn mlp(device: &Device) -> Mlp {
    (Linear::without_bias(3, 8, device), Tanh, Linear::without_bias(8, 1, device))
}

/// Three inputs, and whether their sum is positive, as −1 or 1.
fn data(device: &Device) -> (Tensor, Tensor) {
    let x = Tensor::uniform([64, 3], -1.0, 1.0, device);
    let y = x.sum(fornax_tensor::keepdim(-1)).sign();
    (x, y)
}

fn loss(model: &Mlp, (x, y): &(Tensor, Tensor)) -> Tensor {
    (model.forward(x) - y).square().mean(())
}

fn optimizers() -> Vec<Box<dyn Optimizer>> {
    vec![
        Box::new(Sgd::new(0.3).momentum(0.9).nesterov(true)),
        Box::new(Adam::new(0.05).amsgrad(true)),
        Box::new(AdamW::new(0.05)),
        Box::new(Adamax::new(0.05)),
        Box::new(NAdam::new(0.05)),
        Box::new(RAdam::new(0.1)),
        Box::new(Lamb::new(0.05)),
        Box::new(Adagrad::new(0.1)),
        Box::new(Adadelta::new(3.0)),
        Box::new(RmsProp::new(0.01).centered(true).momentum(0.5)),
        Box::new(Rprop::new(0.01)),
        Box::new(Lion::new(0.01)),
        Box::new(Asgd::new(0.5).t0(3.0)),
        Box::new(Adafactor::new(0.05)),
        Box::new(Muon::new(0.05)),
        Box::new(Adan::new(0.02)),
        Box::new(Soap::new(0.05).precondition_frequency(1)),
        Box::new(ScheduleFreeAdamW::new(0.1)),
    ]
}

#[test]
fn every_optimizer_learns_and_compiles_nothing_once_warm() {
    // A device of its own, so that nobody else compiles on it.
    let device = Device::new(fornax_cpu::CpuBackend::new());
    device.seed(1);
    let data = data(&device);
    let schedule = CosineAnnealing { t_max: 60, eta_min: 0.0 };
    for mut optimizer in optimizers() {
        let mut model = mlp(&device);
        let first = loss(&model, &data).item::<f32>();
        let base = optimizer.lr();
        let mut warm = None;
        for step in 0..60 {
            if step == 4 {
                warm = Some(device.report());
            }
            optimizer.set_lr(schedule.lr(base, step));
            let gradients = loss(&model, &data).backward();
            optimizer.step(&mut model, &gradients);
        }
        let warm = warm.unwrap();
        assert!(warm.counter("plans_compiled") > 0);
        let report = device.report().since(&warm);
        assert_eq!(report.counter("plans_compiled"), 0, "learning rate {base} compiles");
        let last = loss(&model, &data).item::<f32>();
        assert!(last < 0.7 * first, "from {first} to {last} with learning rate {base}");
    }
}

#[test]
fn clipped_gradients_train_a_recurrent_cell() {
    let device = Device::cpu();
    let mut cell = LstmCell::new(2, 4, &device);
    let mut optimizer = AdamW::new(0.05);
    let x = Tensor::uniform([5, 3, 2], -1.0, 1.0, &device);
    let mut losses = Vec::new();
    for _ in 0..20 {
        let mut state: Option<(Tensor, Tensor)> = None;
        for step in 0..5 {
            let now = x.narrow(0, step, 1).squeeze(0);
            state = Some(cell.forward(&now, state.as_ref().map(|(h, c)| (h, c))));
        }
        let loss = (state.unwrap().0 - 0.5).square().mean(());
        let mut gradients = loss.backward();
        clip_grad_norm(&mut gradients, 1.0);
        optimizer.step(&mut cell, &gradients);
        losses.push(loss.item::<f32>());
    }
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
}

#[test]
fn a_clone_is_a_snapshot() {
    let device = Device::cpu();
    let mut model = mlp(&device);
    let data = data(&device);
    let snapshot = model.clone();
    let before = snapshot.0.weight.to_vec::<f32>();
    let gradients = loss(&model, &data).backward();
    Sgd::new(0.1).step(&mut model, &gradients);
    assert_eq!(snapshot.0.weight.to_vec::<f32>(), before);
    assert_ne!(model.0.weight.to_vec::<f32>(), before);
    assert_eq!(snapshot.num_parameters(), model.num_parameters());
}
