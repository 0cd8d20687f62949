//! [`Checkpoint`]: everything that a training run needs to go on, in one file.

use crate::{Error, ErrorKind, Weights, atomic, to_bytes};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;
use fornax_nn::Module;
use fornax_nn::optim::Optimizer;
use fornax_tensor::{Device, Tensor};
use std::io::Write;
use std::path::Path;

/// The version that is written; older ones are read.
const VERSION: u32 = 1;
/// The names under which a file says its version and the step.
const VERSION_KEY: &str = "fornax.checkpoint";
const STEP_KEY: &str = "fornax.step";

/// A saved training run: models, optimizers, schedules, random state, the place in the data, the step, and whatever else
/// is put there, under names. A run that goes on from it does bit for bit what it would have done without the stop.
///
/// It is a safetensors file, so other programs can read its tensors: those of a model `"model"` are called `model.…`.
///
/// ```
/// use fornax_nn::{Linear, optim::{AdamW, Optimizer}};
/// use fornax_store::Checkpoint;
/// use fornax_tensor::Device;
/// # let dir = std::env::temp_dir().join("fornax-store-doc-checkpoint");
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let path = dir.join("run.safetensors");
/// let device = Device::cpu();
/// let mut model = Linear::new(4, 2, &device);
/// let mut optimizer = AdamW::new(1e-3);
/// let step = 100;
/// Checkpoint::at_step(step)
///     .model("model", &model)
///     .optimizer("optimizer", &optimizer)
///     .random_state("random", &device)
///     .value("best loss", 0.25) // also `loader.state()`
///     .save(&path)?;
///
/// let checkpoint = Checkpoint::open(&path)?;
/// checkpoint.load_model("model", &mut model)?;
/// checkpoint.load_optimizer("optimizer", &mut optimizer, &device)?;
/// checkpoint.load_random_state("random", &device)?;
/// let best: f64 = checkpoint.get("best loss")?;
/// assert_eq!((checkpoint.step(), best), (100, 0.25));
/// # Ok::<(), fornax_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    weights: Weights,
    step: u64,
}

/// A [`Checkpoint`] that is being put together.
#[must_use]
#[derive(Clone, Debug)]
pub struct CheckpointBuilder {
    tensors: Vec<(String, Tensor)>,
    values: Vec<(String, String)>,
}

impl CheckpointBuilder {
    /// Adds the parameters and buffers of a model.
    pub fn model(self, name: &str, model: &(impl Module + ?Sized)) -> CheckpointBuilder {
        self.tensors(name, &model.state_dict())
    }

    /// Adds what an optimizer remembers, and its learning rate.
    pub fn optimizer(self, name: &str, optimizer: &dyn Optimizer) -> CheckpointBuilder {
        self.tensors(name, &optimizer.state().state_dict()).value(&format!("{name}.lr"), optimizer.lr())
    }

    /// Adds the state of a device's random numbers.
    pub fn random_state(self, name: &str, device: &Device) -> CheckpointBuilder {
        let (seed, offset) = device.random_state();
        self.value(name, format_args!("{seed} {offset}"))
    }

    /// Adds tensors.
    pub fn tensors(mut self, name: &str, tensors: &[(String, Tensor)]) -> CheckpointBuilder {
        self.tensors.extend(tensors.iter().map(|(path, tensor)| (format!("{name}.{path}"), tensor.clone())));
        self
    }

    /// Adds numbers, such as `plateau.state.to_numbers()`: what a schedule has seen.
    pub fn numbers(self, name: &str, numbers: &[f64]) -> CheckpointBuilder {
        let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        self.value(name, words.join(" "))
    }

    /// Adds a value that can be written as text and parsed: a number, or where a data loader is.
    pub fn value(mut self, name: &str, value: impl Display) -> CheckpointBuilder {
        self.values.push((name.to_string(), value.to_string()));
        self
    }

    /// Writes the file. It appears whole or not at all: what was there before stays until the new one is on the disk.
    ///
    /// # Errors
    /// If the work behind a tensor failed, two things have one name, or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let mut names: Vec<&str> = self.values.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(ErrorKind::Format, format!("{}: two values have this name", pair[0])).at(path));
        }
        let values: Vec<(&str, &str)> = self.values.iter().map(|(name, value)| (&**name, &**value)).collect();
        let bytes = to_bytes(&self.tensors, &values).map_err(|error| error.at(path))?;
        atomic::write_atomically(path, |writer| writer.write_all(&bytes))
    }
}

impl Checkpoint {
    /// Begins a checkpoint after `step` steps.
    pub fn at_step(step: u64) -> CheckpointBuilder {
        let values =
            Vec::from([(VERSION_KEY.to_string(), VERSION.to_string()), (STEP_KEY.to_string(), step.to_string())]);
        CheckpointBuilder { tensors: Vec::new(), values }
    }

    /// Opens a checkpoint. Tensors are read when they are loaded.
    ///
    /// # Errors
    /// If the file cannot be read, is no checkpoint, or is one of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let weights = Weights::open(path)?;
        let Some(version) = weights.value(VERSION_KEY).and_then(|version| version.as_text()) else {
            return Err(weights.at(Error::new(ErrorKind::Format, "not a checkpoint: it does not say its version")));
        };
        if version.parse().is_ok_and(|version: u32| version > VERSION) {
            let message = format!("a checkpoint of version {version}; this program reads up to {VERSION}");
            return Err(weights.at(Error::new(ErrorKind::Unsupported, message)));
        }
        let mut checkpoint = Checkpoint { weights, step: 0 };
        checkpoint.step = checkpoint.get(STEP_KEY)?;
        Ok(checkpoint)
    }

    /// How many steps were taken.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Loads a model, strictly.
    ///
    /// # Errors
    /// If the file is damaged, or does not fit: the message lists every entry by its full path.
    pub fn load_model(&self, name: &str, model: &mut (impl Module + ?Sized)) -> Result<(), Error> {
        self.weights.under(name).load_into(model)
    }

    /// Loads an optimizer: what it remembers, on `device`, and its learning rate.
    ///
    /// # Errors
    /// If the file is damaged, or holds no optimizer of this name.
    pub fn load_optimizer(&self, name: &str, optimizer: &mut dyn Optimizer, device: &Device) -> Result<(), Error> {
        let lr = self.get(&format!("{name}.lr"))?;
        let state = self.tensors(name, device)?;
        optimizer.state_mut().load_state_dict(&state).map_err(|error| {
            self.weights.at(Error::new(ErrorKind::Mismatch, format!("{name}: {error}")).caused_by(error))
        })?;
        optimizer.set_lr(lr);
        Ok(())
    }

    /// Takes up a device's random numbers where they were.
    ///
    /// # Errors
    /// If there is no random state of this name.
    pub fn load_random_state(&self, name: &str, device: &Device) -> Result<(), Error> {
        let text: String = self.get(name)?;
        let numbers = text.split_once(' ').and_then(|(seed, offset)| Some((seed.parse().ok()?, offset.parse().ok()?)));
        let Some(state) = numbers else {
            return Err(self.weights.at(Error::new(ErrorKind::Format, format!("{name}: {text:?} is no random state"))));
        };
        device.set_random_state(state);
        Ok(())
    }

    /// The tensors that were put under `name`.
    ///
    /// # Errors
    /// If the file is damaged, or the device has no room.
    pub fn tensors(&self, name: &str, device: &Device) -> Result<Vec<(String, Tensor)>, Error> {
        self.weights.under(name).read_all(device)
    }

    /// The numbers that were put under `name`.
    ///
    /// # Errors
    /// If there are none, or not `N`.
    pub fn numbers<const N: usize>(&self, name: &str) -> Result<[f64; N], Error> {
        let text: String = self.get(name)?;
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
            self.weights.at(Error::new(ErrorKind::Mismatch, format!("{name}: {text:?} is no list of {N} numbers")))
        })
    }

    /// The value that was put under `name`.
    ///
    /// # Errors
    /// If there is none, or it is of another kind.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        let Some(text) = self.weights.value(name).and_then(|value| value.as_text()) else {
            return Err(self.weights.at(Error::new(ErrorKind::Mismatch, format!("there is no value {name}"))));
        };
        text.parse().map_err(|_| {
            let message = format!("{name}: {text:?} is no {}", core::any::type_name::<T>());
            self.weights.at(Error::new(ErrorKind::Mismatch, message))
        })
    }
}
