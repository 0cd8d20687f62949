//! Suites of cases: their manifest, their tensors, and comparing.

use fornax_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;

pub type Tensors = HashMap<String, Tensor>;

pub struct Suite {
    root: PathBuf,
    name: &'static str,
    cases: Vec<Value>,
    files: RefCell<HashMap<String, Rc<Tensors>>>,
    pub device: Device,
}

impl Suite {
    /// Reads `NAME/manifest.json`.
    pub fn read(name: &'static str) -> Suite {
        let root = std::env::var_os("FORNAX_CONFORMANCE")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata"), PathBuf::from);
        let text = std::fs::read_to_string(root.join(name).join("manifest.json")).unwrap();
        let mut manifest: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(manifest["format"], 1);
        let Value::Array(cases) = manifest["cases"].take() else { panic!("no list `cases`") };
        let device = Device::from_name(&std::env::var("FORNAX_DEVICE").unwrap_or("cpu".into())).unwrap();
        Suite { root, name, cases, files: RefCell::default(), device }
    }

    /// The tensors of a file.
    pub fn file(&self, file: &str) -> Rc<Tensors> {
        if let Some(tensors) = self.files.borrow().get(file) {
            return tensors.clone();
        }
        let bytes = std::fs::read(self.root.join(file)).unwrap();
        let read = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            let dtype = DType::from_name(&format!("{:?}", view.dtype()).to_ascii_lowercase()).unwrap();
            (name, Tensor::from_bytes(dtype, view.shape(), view.data(), &self.device))
        };
        let tensors = Rc::new(SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(read).collect());
        self.files.borrow_mut().insert(file.to_string(), Rc::clone(&tensors));
        tensors
    }

    /// Checks every case, and fails with all that went wrong.
    pub fn check(&self, check: impl Fn(&Value, &Suite) -> Result<(), String>) {
        let mut wrong = Vec::new();
        for case in &self.cases {
            let outcome = catch_unwind(AssertUnwindSafe(|| check(case, self)));
            let outcome = outcome.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
            });
            if let Err(why) = outcome {
                wrong.push(format!("{}: {why}", case["id"].as_str().unwrap_or_default()));
            }
        }
        let count = self.cases.len();
        println!("{}: {} of {count} passed on {}", self.name, count - wrong.len(), self.device);
        assert!(wrong.is_empty(), "{} of {count} cases failed:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Shape, dtype and `|got − want| ≤ atol + rtol · |want|`; NaN equals NaN.
pub fn compare(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
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

/// Settings of a case under PyTorch's names, with defaults for what is not given.
pub struct Config<'a>(pub &'a Value);

impl Config<'_> {
    pub fn f64(&self, name: &str, default: f64) -> f64 {
        self.0[name].as_f64().unwrap_or(default)
    }
    pub fn usize(&self, name: &str, default: usize) -> usize {
        self.0[name].as_u64().map_or(default, |value| value as usize)
    }
    pub fn bool(&self, name: &str, default: bool) -> bool {
        self.0[name].as_bool().unwrap_or(default)
    }
    pub fn str(&self, name: &str, default: &'static str) -> &str {
        self.0[name].as_str().unwrap_or(default)
    }
    pub fn pair(&self, name: &str, default: (f64, f64)) -> (f64, f64) {
        match self.0[name].as_array() {
            Some(pair) => (pair[0].as_f64().unwrap_or(default.0), pair[1].as_f64().unwrap_or(default.1)),
            None => default,
        }
    }
}
