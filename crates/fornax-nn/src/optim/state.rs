//! [`OptimizerState`]: what an optimizer remembers of each parameter, by path, to save and load.

use super::Selection;
use crate::Module;
use crate::module::{Param, Path, VisitorMut};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use fornax_tensor::{DType, Device, Error, Gradients, Tensor, no_grad};

/// What an optimizer remembers of one parameter: how many steps it took, tensors and numbers by name.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    step: u64,
    tensors: BTreeMap<String, Tensor>,
    numbers: BTreeMap<String, f64>,
}

impl Slot {
    /// Steps taken, the current one included.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Remembers a tensor.
    pub fn set(&mut self, name: &str, value: &Tensor) {
        match self.tensors.get_mut(name) {
            Some(tensor) => *tensor = value.clone(),
            None => drop(self.tensors.insert(name.to_string(), value.clone())),
        }
    }

    /// The number called `name`.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// Remembers a number.
    pub fn set_number(&mut self, name: &str, value: f64) {
        match self.numbers.get_mut(name) {
            Some(number) => *number = value,
            None => drop(self.numbers.insert(name.to_string(), value)),
        }
    }
}

/// What an optimizer remembers, by the paths of the parameters: stable over saving, loading and rebuilding the model.
#[derive(Clone, Debug, Default)]
pub struct OptimizerState {
    /// Steps taken.
    pub step: u64,
    slots: BTreeMap<String, Slot>,
}

/// A saved state that is not one.
#[derive(Clone, Debug, PartialEq)]
pub struct StateError {
    /// The entry that is wrong.
    pub key: String,
    /// Why.
    pub message: String,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "optimizer state: {}: {}", self.key, self.message)
    }
}

impl core::error::Error for StateError {}

impl OptimizerState {
    /// What is remembered of the parameter at `path`.
    pub fn get(&self, path: &str) -> Option<&Slot> {
        self.slots.get(path)
    }

    /// Everything as tensors called `path.name`, to save; step counts (`i64`) and numbers (`f64`) are scalars.
    ///
    /// ```
    /// use fornax_nn::{Linear, optim::Sgd};
    /// use fornax_tensor::{Device, Tensor};
    /// let mut model = Linear::without_bias(2, 1, &Device::cpu());
    /// let mut optimizer = Sgd::new(0.1).momentum(0.9);
    /// let gradients = model.forward(&Tensor::from([[1.0, 2.0]])).sum(()).backward();
    /// optimizer.step(&mut model, &gradients);
    /// let saved = optimizer.state.state_dict();
    /// let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
    /// assert_eq!(names, ["weight.step", "weight.momentum_buffer"]);
    ///
    /// let mut resumed = Sgd::new(0.1).momentum(0.9);
    /// resumed.state.load_state_dict(&saved).unwrap();
    /// assert_eq!(resumed.state.step, 1);
    /// ```
    pub fn state_dict(&self) -> Vec<(String, Tensor)> {
        let mut entries = Vec::new();
        for (path, slot) in &self.slots {
            let device = slot.tensors.values().next().map_or_else(Device::cpu, |tensor| tensor.device().clone());
            entries.push((format!("{path}.step"), Tensor::full((), slot.step, DType::I64, &device)));
            for (name, &number) in &slot.numbers {
                entries.push((format!("{path}.{name}"), Tensor::full((), number, DType::F64, &device)));
            }
            for (name, tensor) in &slot.tensors {
                entries.push((format!("{path}.{name}"), tensor.clone()));
            }
        }
        entries
    }

    /// Takes over what [`OptimizerState::state_dict`] gave. Nothing changes if it is not that.
    ///
    /// # Errors
    /// If a name has no path, a parameter has no step count, or a scalar cannot be read.
    pub fn load_state_dict(&mut self, entries: &[(String, Tensor)]) -> Result<(), StateError> {
        let wrong = |key: &str, message: String| Err(StateError { key: key.to_string(), message });
        let mut slots: BTreeMap<String, Slot> = BTreeMap::new();
        let mut counted = Vec::new();
        for (key, tensor) in entries {
            let Some((path, name)) = key.rsplit_once('.') else {
                return wrong(key, String::from("the name is not `path.name`"));
            };
            let slot = slots.entry(path.to_string()).or_default();
            match (name, tensor.rank(), tensor.dtype()) {
                ("step", 0, DType::I64) => match tensor.try_to_vec::<i64>().map(|steps| u64::try_from(steps[0])) {
                    Ok(Ok(step)) => {
                        slot.step = step;
                        counted.push(path);
                    }
                    Ok(Err(_)) => return wrong(key, String::from("a negative step count")),
                    Err(error) => return wrong(key, error.to_string()),
                },
                ("step", ..) => {
                    return wrong(key, format!("{}{} is not a step count", tensor.dtype(), tensor.shape()));
                }
                // Parameters are never `f64` scalars and something remembered of them at once: numbers are.
                (_, 0, DType::F64) => match tensor.try_to_vec::<f64>() {
                    Ok(number) => slot.set_number(name, number[0]),
                    Err(error) => return wrong(key, error.to_string()),
                },
                _ => slot.set(name, &tensor.detach()),
            }
        }
        if let Some(path) = slots.keys().find(|path| !counted.contains(&path.as_str())) {
            return wrong(path, String::from("no step count"));
        }
        self.step = slots.values().map(|slot| slot.step).max().unwrap_or(0);
        self.slots = slots;
        Ok(())
    }

    /// Updates every selected parameter that has a gradient, and runs all pending work. `update` gets the path, the value,
    /// the gradient and what is remembered, and gives the new value.
    #[track_caller]
    pub(super) fn step(
        &mut self,
        model: &mut dyn Module,
        gradients: &Gradients,
        only: &Selection,
        maximize: bool,
        update: impl FnMut(&str, &Tensor, &Tensor, &mut Slot) -> Tensor,
    ) {
        struct Update<'a, F> {
            gradients: &'a Gradients,
            slots: &'a mut BTreeMap<String, Slot>,
            only: &'a Selection,
            maximize: bool,
            devices: Vec<Device>,
            update: F,
        }
        impl<F: FnMut(&str, &Tensor, &Tensor, &mut Slot) -> Tensor> VisitorMut for Update<'_, F> {
            fn param(&mut self, path: &Path, param: &mut Param) {
                let Some(gradient) = self.gradients.get(param) else { return };
                if !self.only.includes(path.as_str(), param) {
                    return;
                }
                if gradient.shape() != param.shape() {
                    let message = format!("{path}: gradient {} of parameter {}", gradient.shape(), param.shape());
                    Error::shape("step", message).raise();
                }
                let slot = match self.slots.get_mut(path.as_str()) {
                    Some(slot) => slot,
                    None => self.slots.entry(path.to_string()).or_default(),
                };
                slot.step += 1;
                let gradient = if self.maximize { -gradient } else { gradient.clone() };
                let value = (self.update)(path.as_str(), &param.detach(), &gradient, slot);
                param.set(&value);
                if !self.devices.contains(param.device()) {
                    self.devices.push(param.device().clone());
                }
            }
        }
        self.step += 1;
        let mut visitor = Update { gradients, slots: &mut self.slots, only, maximize, devices: Vec::new(), update };
        no_grad(|| model.visit_mut(&mut Path::default(), &mut visitor));
        for device in visitor.devices {
            device.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linear;
    use crate::optim::{NAdam, Sgd};

    fn gradients(model: &Linear) -> Gradients {
        let x = Tensor::from_vec(alloc::vec![1.0f32, -2.0], [1, 2], model.weight.device());
        model.forward(&x).square().sum(()).backward()
    }

    #[test]
    fn a_resumed_run_equals_an_uninterrupted_one() {
        let device = Device::reference();
        let mut model = Linear::new(2, 2, &device);
        let mut optimizer = NAdam::new(0.1);
        for _ in 0..2 {
            let gradients = gradients(&model);
            optimizer.step(&mut model, &gradients);
        }
        let mut resumed_model = model.clone();
        let mut resumed = NAdam::new(0.1);
        resumed.state.load_state_dict(&optimizer.state.state_dict()).unwrap();
        for (model, optimizer) in [(&mut model, &mut optimizer), (&mut resumed_model, &mut resumed)] {
            let gradients = gradients(model);
            optimizer.step(model, &gradients);
        }
        assert_eq!(model.weight.to_vec::<f32>(), resumed_model.weight.to_vec::<f32>());
        assert_eq!(resumed.state.step, 3);
    }

    #[test]
    fn a_saved_state_that_is_none_is_refused() {
        let one = Tensor::ones((), &Device::reference());
        let mut state = OptimizerState::default();
        for key in ["weight", "weight.exp_avg", "weight.step"] {
            let error = state.load_state_dict(&[(key.to_string(), one.clone())]).unwrap_err();
            assert!(key.starts_with(&error.key), "{error}");
        }
        assert_eq!(state.step, 0);
    }

    #[test]
    fn only_selected_parameters_move() {
        let device = Device::reference();
        let mut model = Linear::new(2, 2, &device);
        let before = model.bias.as_ref().unwrap().to_vec::<f32>();
        let weight = model.weight.to_vec::<f32>();
        let gradients = gradients(&model);
        Sgd::new(0.1).only(Selection::under("weight")).step(&mut model, &gradients);
        assert_eq!(model.bias.as_ref().unwrap().to_vec::<f32>(), before);
        assert_ne!(model.weight.to_vec::<f32>(), weight);
    }
}
