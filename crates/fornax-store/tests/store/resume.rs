//! A run that is saved and resumed equals one that was not interrupted, bit for bit.

use fornax_nn::optim::{Adam, Asgd, Lion, NAdam, Optimizer, RmsProp, Sgd};
use fornax_nn::{Layer, Linear, Module, Tanh};
use fornax_store::ModuleFiles;
use fornax_tensor::{Device, Tensor};

type Mlp = (Linear, Tanh, Linear);

fn mlp(device: &Device) -> Mlp {
    (Linear::new(3, 4, device), Tanh, Linear::new(4, 1, device))
}

fn train(model: &mut Mlp, optimizer: &mut dyn Optimizer, x: &Tensor) {
    for _ in 0..3 {
        let gradients = model.forward(x).square().mean(()).backward();
        optimizer.step(model, &gradients);
    }
}

fn bits(model: &Mlp) -> Vec<Vec<u8>> {
    model.state_dict().into_iter().map(|(_, value)| value.to_bytes()).collect()
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let device = Device::cpu();
    let dir = std::env::temp_dir().join(format!("fornax-store-resume-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (weights, memory) = (dir.join("model.safetensors"), dir.join("optimizer.safetensors"));
    let x = Tensor::uniform([8, 3], -1.0, 1.0, &device);
    let kinds: [fn() -> Box<dyn Optimizer>; 6] = [
        || Box::new(Sgd::new(0.1).momentum(0.9)),
        || Box::new(Adam::new(0.1).amsgrad(true)),
        || Box::new(NAdam::new(0.1)),
        || Box::new(Asgd::new(0.1).t0(2.0)),
        || Box::new(RmsProp::new(0.01).centered(true)),
        || Box::new(Lion::new(0.01)),
    ];
    for kind in kinds {
        let (mut model, mut optimizer) = (mlp(&device), kind());
        train(&mut model, &mut *optimizer, &x);
        model.save(&weights).unwrap();
        fornax_store::save(&memory, &optimizer.state().state_dict()).unwrap();

        let (mut resumed, mut resumed_optimizer) = (mlp(&device), kind());
        resumed.load(&weights).unwrap();
        let saved = fornax_store::load(&memory, &device).unwrap();
        resumed_optimizer.state_mut().load_state_dict(&saved).unwrap();
        assert_eq!(bits(&resumed), bits(&model));

        train(&mut model, &mut *optimizer, &x);
        train(&mut resumed, &mut *resumed_optimizer, &x);
        assert_eq!(bits(&resumed), bits(&model));
    }
    std::fs::remove_dir_all(dir).unwrap();
}
