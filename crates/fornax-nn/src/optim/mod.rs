//! Optimizers: from gradients to better parameters.
//!
//! `optimizer.step(&mut model, &gradients)` records the update of every parameter and runs it with all pending work: a
//! training step is one program. Learning rates and step counts enter as run-time values; changing them compiles nothing.

mod adam;
mod sgd;

pub use adam::{Adam, AdamW};
pub use sgd::Sgd;

use crate::module::{Module, Param, Path, VisitorMut};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fornax_tensor::{Device, Gradients, Tensor, no_grad};

/// What an optimizer remembers: tensors by parameter path and name, and how many steps it took.
#[derive(Clone, Debug, Default)]
pub struct OptimizerState {
    /// Steps taken.
    pub step: u64,
    /// For each parameter, its tensors in the optimizer's order.
    slots: BTreeMap<String, Vec<Tensor>>,
}

impl OptimizerState {
    /// The tensors as `path.name`, to save.
    pub fn named_tensors(&self, names: &[&str]) -> Vec<(String, Tensor)> {
        let entry = |(path, tensors): (&String, &Vec<Tensor>)| {
            tensors
                .iter()
                .zip(names)
                .map(|(tensor, name)| (format!("{path}.{name}"), tensor.clone()))
                .collect::<Vec<_>>()
        };
        self.slots.iter().flat_map(entry).collect()
    }

    /// Takes over tensors that [`OptimizerState::named_tensors`] gave.
    pub fn load(&mut self, step: u64, named: &[(String, Tensor)], names: &[&str]) {
        self.step = step;
        self.slots.clear();
        for (key, _) in named {
            let Some((path, _)) = key.rsplit_once('.') else { continue };
            let find = |name: &&str| named.iter().find(|(key, _)| *key == format!("{path}.{name}"));
            let tensors: Vec<Tensor> = names.iter().filter_map(find).map(|(_, tensor)| tensor.clone()).collect();
            self.slots.insert(path.to_string(), tensors);
        }
    }

    /// Counts a step and updates every trained parameter that has a gradient. `update` gets the value, the gradient and
    /// the remembered tensors (none at first) and gives the new value.
    ///
    /// # Panics
    /// If a gradient does not fit its parameter.
    #[track_caller]
    fn step(
        &mut self,
        model: &mut (impl Module + ?Sized),
        gradients: &Gradients,
        update: impl FnMut(&Tensor, &Tensor, &mut Vec<Tensor>) -> Tensor,
    ) {
        struct Update<'a, F> {
            gradients: &'a Gradients,
            slots: &'a mut BTreeMap<String, Vec<Tensor>>,
            devices: Vec<Device>,
            update: F,
        }
        impl<F: FnMut(&Tensor, &Tensor, &mut Vec<Tensor>) -> Tensor> VisitorMut for Update<'_, F> {
            fn param(&mut self, path: &Path, param: &mut Param) {
                let Some(gradient) = self.gradients.get(param) else { return };
                let slots = match self.slots.get_mut(path.as_str()) {
                    Some(slots) => slots,
                    None => self.slots.entry(path.to_string()).or_default(),
                };
                let value = (self.update)(&param.detach(), gradient, slots);
                param.set(&value);
                if !self.devices.contains(param.device()) {
                    self.devices.push(param.device().clone());
                }
            }
        }
        self.step += 1;
        let mut visitor = Update { gradients, slots: &mut self.slots, devices: Vec::new(), update };
        no_grad(|| model.visit_mut(&mut Path::default(), &mut visitor));
        for device in visitor.devices {
            device.flush();
        }
    }
}
