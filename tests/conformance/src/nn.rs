//! Modules: state under PyTorch's names, outputs, gradients, changed buffers.

use crate::build::build;
use crate::config::Config;
use crate::fixture::{Suite, Tensors, Wrong, compare};
use fornax_nn::Module;
use fornax_tensor::{Tensor, grad_with};
use serde_json::Value;
use std::collections::HashMap;

/// The formats that the state of a case is there in.
const FORMATS: [&str; 3] = ["safetensors", "pt", "pt_legacy"];

/// Runs a case once for each file of its state.
pub(crate) fn check(case: &Value, suite: &Suite) -> Result<(), Wrong> {
    let files: Vec<&str> = FORMATS.iter().filter_map(|format| case["state"][format].as_str()).collect();
    if files.is_empty() {
        return check_with(case, suite, None);
    }
    if files.len() != FORMATS.len() {
        return Err(Wrong::Failed(format!("state in {} formats in place of {}", files.len(), FORMATS.len())));
    }
    for file in files {
        check_with(case, suite, Some(file)).map_err(|wrong| match wrong {
            Wrong::Failed(why) => Wrong::Failed(format!("{file}: {why}")),
            Wrong::Missing => Wrong::Missing,
        })?;
    }
    Ok(())
}

fn check_with(case: &Value, suite: &Suite, state: Option<&str>) -> Result<(), Wrong> {
    let data = suite.file(case["file"].as_str().unwrap_or_default())?;
    let list = |key: &str| case[key].as_array().map_or(&[][..], Vec::as_slice);
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_string();

    let mut model = build(case, &suite.device)?;
    if let Some(file) = state {
        model.load(&suite.state(file)?)?;
    }
    model.set_training(case["train"].as_bool().unwrap());

    let tracked: Vec<String> = list("input_grads").iter().map(|entry| text(entry, "input")).collect();
    let mut inputs = Inputs(HashMap::new());
    for input in list("inputs") {
        let name = text(input, "name");
        // Settings of the call are read where the module is built.
        let Some(tensor) = input["value"]["tensor"].as_str() else { continue };
        let tensor = data[tensor].clone();
        let tensor = if tracked.contains(&name) { tensor.requires_grad() } else { tensor };
        inputs.0.insert(name, tensor);
    }
    let outputs = model.run(&inputs);

    let tolerance = Config(&case["tol"]);
    let close = |got: &Tensor, want: &Tensor, what: String| {
        compare(got, want, tolerance.f64("rtol", 1e-5), tolerance.f64("atol", 1e-6))
            .map_err(|why| format!("{what}: {why}"))
    };
    let wanted = list("outputs");
    if outputs.len() != wanted.len() {
        return Err(format!("{} outputs in place of {}", outputs.len(), wanted.len()).into());
    }
    let (mut weighted, mut cotangents) = (Vec::new(), Vec::new());
    for (got, want) in outputs.iter().zip(wanted) {
        close(&got.detach(), &data[&text(want, "tensor")], text(want, "name"))?;
        if let Some(cotangent) = want["cotangent"].as_str() {
            weighted.push(got);
            cotangents.push(&data[cotangent]);
        }
    }
    for after in list("state_after") {
        let state = model.state();
        let key = text(after, "key");
        let (_, got) = state.iter().find(|(name, _)| *name == key).ok_or_else(|| format!("no state {key}"))?;
        close(got, &data[&text(after, "tensor")], key)?;
    }

    let params: HashMap<String, Tensor> = model.params();
    let mut leaves: Vec<(&Tensor, String, Tensor)> = Vec::new();
    for (entries, key, from) in [("input_grads", "input", &inputs.0), ("param_grads", "param", &params)] {
        for entry in list(entries) {
            let name = text(entry, key);
            let leaf = from.get(&name).ok_or_else(|| format!("no {key} {name}"))?;
            leaves.push((leaf, name, data[&text(entry, "tensor")].clone()));
        }
    }
    if leaves.is_empty() || weighted.is_empty() {
        return Ok(());
    }
    let found = grad_with(&weighted, &leaves.iter().map(|leaf| leaf.0).collect::<Vec<_>>(), &cotangents)
        .map_err(|error| error.to_string())?;
    for ((leaf, name, want), got) in leaves.iter().zip(found) {
        let got = got.unwrap_or_else(|| leaf.zeros_like()).detach();
        compare(&got, want, tolerance.f64("grad_rtol", 1e-5), tolerance.f64("grad_atol", 1e-6))
            .map_err(|why| format!("gradient of {name}: {why}"))?;
    }
    Ok(())
}

/// The inputs of a call, by name.
pub(crate) struct Inputs(Tensors);

impl Inputs {
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

impl std::ops::Index<&str> for Inputs {
    type Output = Tensor;
    fn index(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("no input {name}"))
    }
}

/// A module, and how it is called.
pub(crate) struct Call<M, F>(pub M, pub F);

pub(crate) trait Model {
    fn load(&mut self, state: &[(String, Tensor)]) -> Result<(), String>;
    fn set_training(&mut self, is_training: bool);
    fn run(&self, inputs: &Inputs) -> Vec<Tensor>;
    fn params(&self) -> Tensors;
    fn state(&self) -> Vec<(String, Tensor)>;
}

impl<M: Module, F: Fn(&M, &Inputs) -> Vec<Tensor>> Model for Call<M, F> {
    fn load(&mut self, state: &[(String, Tensor)]) -> Result<(), String> {
        self.0.load_state_dict(state).map_err(|error| error.to_string())
    }
    fn set_training(&mut self, is_training: bool) {
        if is_training {
            self.0.train()
        } else {
            self.0.eval()
        };
    }
    fn run(&self, inputs: &Inputs) -> Vec<Tensor> {
        (self.1)(&self.0, inputs)
    }
    fn params(&self) -> Tensors {
        self.0.named_parameters().into_iter().map(|(name, param)| (name, Tensor::clone(param))).collect()
    }
    fn state(&self) -> Vec<(String, Tensor)> {
        self.0.state_dict()
    }
}
