//! A run that goes on from a checkpoint does what it would have done without the stop.

use crate::scratch;
use fornax_data::{DataLoader, InMemory};
use fornax_nn::optim::{Adam, AdamW, Optimizer};
use fornax_nn::schedule::{
    CosineAnnealing, Linear as LinearSchedule, PlateauState, ReduceOnPlateau, Schedule, Sequential,
};
use fornax_nn::{BatchNorm1d, Dropout, Layer, Linear, Module, Relu};
use fornax_store::{Checkpoint, ErrorKind, save};
use fornax_tensor::{DType, Device, Tensor};

type Model = (Linear, BatchNorm1d, Relu, Dropout, Linear);

/// A run of 11 items in batches of 3, so that it can be stopped in the middle of an epoch.
struct Run {
    model: Model,
    optimizer: AdamW,
    plateau: ReduceOnPlateau,
    loader: DataLoader<Vec<f32>>,
    device: Device,
    step: u64,
}

impl Run {
    fn new(device: &Device, seed: u64) -> Run {
        device.seed(seed);
        let items: Vec<f32> = (0..11).map(|i| i as f32 / 11.0).collect();
        Run {
            model: (
                Linear::new(1, 8, device),
                BatchNorm1d::new(8, device),
                Relu,
                Dropout::new(0.5),
                Linear::new(8, 1, device),
            ),
            optimizer: AdamW::new(0.01),
            plateau: ReduceOnPlateau { patience: 1, factor: 0.5, ..ReduceOnPlateau::default() },
            loader: DataLoader::builder(InMemory::new(items)).batch_size(3).shuffle(7).build(),
            device: device.clone(),
            step: 0,
        }
    }

    /// Takes steps, over the ends of epochs, and gives the losses.
    fn steps(&mut self, count: usize) -> Vec<f32> {
        let warm_up = LinearSchedule { start_factor: 0.1, end_factor: 1.0, total_iters: 4 };
        let schedule = Sequential::new(warm_up).then(4, CosineAnnealing { t_max: 10, eta_min: 0.0 });
        let mut losses = Vec::new();
        while losses.len() < count {
            for batch in self.loader.iter() {
                let n = batch.len();
                let x = Tensor::from_vec(batch, [n, 1], &self.device);
                let target = (&x * 3.0).sin();
                let loss = (self.model.forward(&x) - target).square().mean(());
                self.optimizer.set_lr(schedule.lr(0.01, self.step));
                let gradients = loss.backward();
                self.optimizer.step(&mut self.model, &gradients);
                losses.push(loss.item::<f32>());
                self.plateau.step(losses[losses.len() - 1].into(), 1.0);
                self.step += 1;
                if losses.len() == count {
                    break;
                }
            }
        }
        losses
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        self.model.state_dict().iter().map(|(_, value)| value.to_bytes()).collect()
    }
}

#[test]
fn a_run_resumed_within_an_epoch_equals_one_that_was_not_stopped() {
    // A device of its own: other tests draw random numbers, too.
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let path = scratch("resume", "run.safetensors");
    let mut straight = Run::new(&device, 1);
    let losses = straight.steps(13);

    let mut first = Run::new(&device, 1);
    assert_eq!(first.steps(6), losses[..6]);
    assert_eq!(first.loader.state().position, 6, "in the middle of the second epoch");
    Checkpoint::at_step(first.step)
        .model("model", &first.model)
        .optimizer("optimizer", &first.optimizer)
        .random_state("random", &device)
        .value("loader", first.loader.state())
        .numbers("plateau", &first.plateau.state.to_numbers())
        .save(&path)
        .unwrap();
    drop(first);

    // Everything is made anew, from another seed.
    let mut resumed = Run::new(&device, 2);
    let checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.load_model("model", &mut resumed.model).unwrap();
    checkpoint.load_optimizer("optimizer", &mut resumed.optimizer, &device).unwrap();
    checkpoint.load_random_state("random", &device).unwrap();
    resumed.loader.restore(&checkpoint.get("loader").unwrap()).unwrap();
    resumed.plateau.state = PlateauState::from_numbers(checkpoint.numbers("plateau").unwrap());
    resumed.step = checkpoint.step();
    assert_eq!(resumed.steps(7), losses[6..]);
    assert_eq!(resumed.bits(), straight.bits());
    assert_eq!(resumed.plateau.state, straight.plateau.state);
    let state = |run: &Run| -> Vec<(String, Vec<u8>)> {
        run.optimizer.state().state_dict().into_iter().map(|(name, x)| (name, x.to_bytes())).collect()
    };
    assert_eq!(state(&resumed), state(&straight));
    std::fs::remove_file(path).unwrap();
}

// burn PR#4527: the state stayed on the device where it was saved.
#[test]
fn a_run_goes_on_on_another_device() {
    let (first, second) = (Device::cpu(), Device::reference());
    let path = scratch("device", "run.safetensors");
    let x = |device: &Device| Tensor::from_vec(vec![1.0f32, -2.0, 0.5], [1, 3], device);
    let step = |model: &mut Linear, optimizer: &mut Adam, device: &Device| {
        let gradients = model.forward(&x(device)).square().sum(()).backward();
        optimizer.step(model, &gradients);
    };
    let (mut model, mut optimizer) = (Linear::new(3, 2, &first), Adam::new(0.1));
    step(&mut model, &mut optimizer, &first);
    Checkpoint::at_step(1).model("m", &model).optimizer("o", &optimizer).save(&path).unwrap();

    let (mut moved, mut moved_optimizer) = (Linear::new(3, 2, &second), Adam::new(0.5));
    let checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.load_model("m", &mut moved).unwrap();
    checkpoint.load_optimizer("o", &mut moved_optimizer, &second).unwrap();
    assert_eq!(moved_optimizer.lr, 0.1);
    step(&mut model, &mut optimizer, &first);
    step(&mut moved, &mut moved_optimizer, &second);
    let slot = moved_optimizer.state.get("weight").unwrap();
    assert_eq!(slot.get("exp_avg").unwrap().device(), &second);
    for (a, b) in moved.weight.to_vec::<f32>().iter().zip(model.weight.to_vec::<f32>()) {
        assert!((a - b).abs() <= 1e-6, "{a} {b}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_is_no_checkpoint_of_this_version_is_refused() {
    let device = Device::reference();
    let path = scratch("versions", "x.safetensors");
    save(&path, &[("x".to_string(), Tensor::ones([1], &device))]).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap_err().kind(), ErrorKind::Format);

    Checkpoint::at_step(3).value("n", 5).save(&path).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!((checkpoint.step(), checkpoint.get::<u8>("n").unwrap()), (3, 5));
    assert_eq!(checkpoint.get::<u8>("m").unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(checkpoint.numbers::<2>("n").unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(checkpoint.get::<bool>("n").unwrap_err().kind(), ErrorKind::Mismatch);
    let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
    std::fs::write(&path, text.replace(r#""fornax.checkpoint":"1""#, r#""fornax.checkpoint":"9""#)).unwrap();
    let error = Checkpoint::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().ends_with("a checkpoint of version 9; this program reads up to 1"), "{error}");

    let twice = Checkpoint::at_step(0).value("n", 1).value("n", 2).save(&path);
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Format);
    let tensor = [("x".to_string(), Tensor::full([1], 1, DType::F32, &device))];
    let twice = Checkpoint::at_step(0).tensors("a", &tensor).tensors("a", &tensor).save(&path);
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Format);
    // The file that was there is there still.
    assert!(Checkpoint::open(&path).is_err_and(|error| error.kind() == ErrorKind::Unsupported));
    std::fs::remove_file(path).unwrap();
}
