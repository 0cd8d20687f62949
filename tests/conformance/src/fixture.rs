//! [`Suite`]: its manifest, its tensors, running its cases; and comparing.

use crate::{nn, optim, sched};
use fornax_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Tensors by name.
pub(crate) type Tensors = HashMap<String, Tensor>;

/// What became of a case.
pub enum Outcome {
    /// Right.
    Passed,
    /// Wrong, and why.
    Failed(String),
    /// Fornax has no such module, optimizer or schedule.
    Missing,
}

/// Why a case does not pass.
pub(crate) enum Wrong {
    Missing,
    Failed(String),
}

impl From<String> for Wrong {
    fn from(why: String) -> Wrong {
        Wrong::Failed(why)
    }
}

/// The cases of a folder, and the device they run on.
pub struct Suite {
    root: PathBuf,
    kind: Kind,
    cases: Vec<Value>,
    files: RefCell<HashMap<String, Rc<Tensors>>>,
    pub(crate) device: Device,
}

/// Runs a case.
type Check = fn(&Value, &Suite) -> Result<(), Wrong>;

#[derive(Clone, Copy)]
enum Kind {
    Modules,
    Optimizers,
    Schedules,
}

impl Suite {
    /// Whether suites of this name are run here.
    pub fn is_known(name: &str) -> bool {
        Suite::kind(name).is_some()
    }

    fn kind(name: &str) -> Option<Kind> {
        match name {
            "nn" => Some(Kind::Modules),
            "optim" => Some(Kind::Optimizers),
            "sched" => Some(Kind::Schedules),
            _ => None,
        }
    }

    /// Reads `DIR/manifest.json`; the names of its files are relative to the folder around `dir`.
    ///
    /// # Errors
    /// If there is none, or it is none of a suite that is known.
    pub fn read(dir: &Path, device: &Device) -> Result<Suite, String> {
        let path = dir.join("manifest.json");
        let wrong = |why: String| format!("{}: {why}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let mut manifest: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest["format"] != 1 {
            return Err(wrong(format!("format {} is not 1", manifest["format"])));
        }
        let name = &manifest["suite"];
        let kind = name.as_str().and_then(Suite::kind).ok_or_else(|| wrong(format!("there is no suite {name}")))?;
        let Value::Array(cases) = manifest["cases"].take() else { return Err(wrong(String::from("no list `cases`"))) };
        Ok(Suite { root: dir.join(".."), kind, cases, files: RefCell::default(), device: device.clone() })
    }

    /// Runs the cases of all names (of module, optimizer or schedule) that are wanted. `report` gets each one's id and
    /// name.
    pub fn run(&self, is_wanted: impl Fn(&str) -> bool, mut report: impl FnMut(&str, &str, Outcome)) {
        let (key, check): (_, Check) = match self.kind {
            Kind::Modules => ("module", nn::check),
            Kind::Optimizers => ("optimizer", optim::check),
            Kind::Schedules => ("scheduler", |case, _| sched::check(case)),
        };
        for case in &self.cases {
            let (id, name) = (case["id"].as_str().unwrap_or_default(), case[key].as_str().unwrap_or_default());
            if !is_wanted(name) {
                continue;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| check(case, self))).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                Err(Wrong::Failed(format!("panicked: {}", text.unwrap_or_default())))
            });
            let outcome = match outcome {
                Ok(()) => Outcome::Passed,
                Err(Wrong::Missing) => Outcome::Missing,
                Err(Wrong::Failed(why)) => Outcome::Failed(why),
            };
            report(id, name, outcome);
        }
    }

    /// The state of a module, from a file of any format.
    pub(crate) fn state(&self, file: &str) -> Result<Vec<(String, Tensor)>, String> {
        fornax_store::load(self.root.join(file), &self.device).map_err(|error| error.to_string())
    }

    /// The tensors of a file.
    pub(crate) fn file(&self, file: &str) -> Result<Rc<Tensors>, String> {
        if let Some(tensors) = self.files.borrow().get(file) {
            return Ok(tensors.clone());
        }
        let path = self.root.join(file);
        let wrong = |why: String| format!("{}: {why}", path.display());
        let bytes = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        let mut tensors = Tensors::new();
        for (name, view) in SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?.tensors() {
            let dtype = format!("{:?}", view.dtype()).to_ascii_lowercase();
            let dtype = DType::from_name(&dtype).ok_or_else(|| wrong(format!("there is no dtype {dtype}")))?;
            tensors.insert(name, Tensor::from_bytes(dtype, view.shape(), view.data(), &self.device));
        }
        let tensors = Rc::new(tensors);
        self.files.borrow_mut().insert(file.to_string(), Rc::clone(&tensors));
        Ok(tensors)
    }
}

/// Shape, dtype and `|got − want| ≤ atol + rtol · |want|`; NaN equals NaN.
pub(crate) fn compare(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
    if (got.dtype(), got.shape()) != (want.dtype(), want.shape()) {
        return Err(format!("got {}{}, want {}{}", got.dtype(), got.shape(), want.dtype(), want.shape()));
    }
    let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    let excess = |(got, want): (&f64, &f64)| {
        let same = got == want || (got.is_nan() && want.is_nan());
        if same { 0.0 } else { (got - want).abs() / (atol + rtol * want.abs()) }
    };
    let worst = got.iter().zip(&want).map(excess).enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    match worst {
        Some((i, excess)) if excess.is_nan() || excess > 1.0 => {
            Err(format!("element {i}: got {:e}, want {:e} ({excess:.1} times the tolerance)", got[i], want[i]))
        }
        _ => Ok(()),
    }
}
