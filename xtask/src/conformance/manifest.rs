//! Reading a suite: its manifest, and the cases of `ops` and `edge`.

use fornax_tensor::ops::Arg;
use fornax_tensor::{DType, Tensor};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A suite: `manifest.json` and the files beside it.
pub struct Suite {
    /// The folder that file names are relative to.
    pub root: PathBuf,
    /// The suite's name: `ops`, `edge`, `nn`, …
    pub name: String,
    cases: Vec<Value>,
}

impl Suite {
    /// Reads `DIR/manifest.json`.
    pub fn read(dir: &Path) -> Result<Suite, String> {
        let path = dir.join("manifest.json");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // File names are relative to the folder that holds the suite's.
        let root = dir.join("..");
        Suite::parse(&text, root).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str, root: PathBuf) -> Result<Suite, String> {
        let mut manifest: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if manifest["format"] != 1 {
            return Err(format!("format {} is not 1", manifest["format"]));
        }
        let name = string(&manifest, "suite")?;
        let Value::Array(cases) = manifest["cases"].take() else {
            return Err(String::from("no list `cases`"));
        };
        Ok(Suite { root, name, cases })
    }

    /// The cases of an op suite, in the order of the manifest.
    pub fn cases(&self) -> Result<Vec<Case>, String> {
        let case =
            |value: &Value| Case::parse(value).map_err(|error| format!("{} {}: {error}", self.name, value["id"]));
        self.cases.iter().map(case).collect()
    }
}

/// One call of an operator, and what must come of it.
#[derive(Debug)]
pub struct Case {
    /// Unique in the suite.
    pub id: String,
    /// The operator with its variant: `div.floor_rounding`.
    pub op: String,
    /// The family it is counted under.
    pub group: String,
    /// The file that holds its tensors.
    pub file: String,
    /// Arguments by name, for [`argument`].
    pub args: Vec<(String, Value)>,
    /// Whether the call must be refused.
    pub is_error: bool,
    /// What must come out.
    pub outputs: Vec<Output>,
    /// Gradients of the outputs weighted by their cotangents.
    pub grads: Vec<Grad>,
    /// Tolerance of outputs.
    pub tolerance: Tolerance,
    /// Tolerance of gradients.
    pub grad_tolerance: Tolerance,
}

/// A result of a case.
#[derive(Debug)]
pub struct Output {
    /// Its name in messages.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its element type.
    pub dtype: DType,
    /// How it is compared.
    pub check: Check,
    /// The tensor it is compared with.
    pub tensor: Option<String>,
    /// Its weight in the sum that gradients are of.
    pub cotangent: Option<String>,
}

/// A gradient of a case.
#[derive(Debug)]
pub struct Grad {
    /// The tensor it belongs to.
    pub input: String,
    /// What it must be.
    pub tensor: String,
}

/// `|got − want| ≤ absolute + relative · |want|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed a unit of the value.
    pub relative: f64,
    /// Allowed whatever the value.
    pub absolute: f64,
}

/// How an output is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// Within the tolerance; NaN equals NaN, infinities are equal.
    Close,
    /// Equal; NaN equals NaN.
    Exact {
        /// Whether +0 and −0 differ.
        signed_zero: bool,
    },
    /// Positions, where ties leave the choice open.
    Index,
    /// Not unique: shape and dtype, and what [`super::decompose`] checks.
    None,
}

impl Case {
    fn parse(value: &Value) -> Result<Case, String> {
        let entries = |key: &str| value[key].as_array().ok_or_else(|| format!("no list `{key}`"));
        let tolerance = |relative: &str, absolute: &str| {
            let number = |key: &str| value["tol"][key].as_f64().ok_or_else(|| format!("no number `tol.{key}`"));
            Ok::<_, String>(Tolerance { relative: number(relative)?, absolute: number(absolute)? })
        };
        let is_error = value["error"] == true;
        // A call that must fail has nothing to compare.
        let outputs = if is_error { &Vec::new() } else { entries("outputs")? };
        let grads = if is_error { &Vec::new() } else { entries("grads")? };
        let outputs = outputs.iter().map(Output::parse).collect::<Result<Vec<_>, _>>()?;
        let is_close = outputs.iter().any(|output| output.check == Check::Close);
        // A case that compares nothing within a tolerance names none.
        let nothing = Tolerance { relative: 0.0, absolute: 0.0 };
        Ok(Case {
            id: string(value, "id")?,
            op: string(value, "op")?,
            group: string(value, "group")?,
            file: string(value, "file")?,
            args: entries("args")?
                .iter()
                .map(|arg| Ok((string(arg, "name")?, arg["value"].clone())))
                .collect::<Result<_, String>>()?,
            is_error,
            outputs,
            grads: grads
                .iter()
                .map(|grad| Ok(Grad { input: string(grad, "input")?, tensor: string(grad, "tensor")? }))
                .collect::<Result<_, String>>()?,
            tolerance: if is_close { tolerance("rtol", "atol")? } else { nothing },
            grad_tolerance: if grads.is_empty() { nothing } else { tolerance("grad_rtol", "grad_atol")? },
        })
    }
}

impl Output {
    fn parse(value: &Value) -> Result<Output, String> {
        let sizes = value["shape"].as_array().ok_or("an output without `shape`")?;
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
        let dtype = string(value, "dtype")?;
        let optional = |key: &str| value[key].as_str().map(String::from);
        Ok(Output {
            name: string(value, "name")?,
            shape: sizes.iter().map(size).collect::<Option<_>>().ok_or("a size that is no number")?,
            dtype: DType::from_name(&dtype).ok_or_else(|| format!("there is no dtype {dtype:?}"))?,
            check: match string(value, "check")?.as_str() {
                "close" => Check::Close,
                "exact" => Check::Exact { signed_zero: value["signed_zero"] == true },
                "index" => Check::Index,
                "none" => Check::None,
                other => return Err(format!("there is no check {other:?}")),
            },
            tensor: optional("tensor"),
            cotangent: optional("cotangent"),
        })
    }
}

/// An argument of a case. `tensor` makes (or finds again) the tensor of a name.
pub fn argument(value: &Value, tensor: &mut dyn FnMut(&str) -> Result<Tensor, String>) -> Result<Arg, String> {
    Ok(match value {
        Value::Null => Arg::None,
        Value::Bool(value) => Arg::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Arg::Int(value),
            None => Arg::Float(number.as_f64().ok_or("a number that is no f64")?),
        },
        Value::String(value) => Arg::Str(value.clone()),
        Value::Array(list) => Arg::List(list.iter().map(|entry| argument(entry, tensor)).collect::<Result<_, _>>()?),
        Value::Object(object) => {
            let (kind, inner) = object.iter().next().ok_or("an empty object")?;
            match (kind.as_str(), inner) {
                ("tensor", Value::String(name)) => Arg::Tensor(tensor(name)?),
                ("dtype", Value::String(name)) => {
                    Arg::DType(DType::from_name(name).ok_or_else(|| format!("there is no dtype {name:?}"))?)
                }
                ("float", Value::String(name)) => Arg::Float(match name.as_str() {
                    "nan" => f64::NAN,
                    "inf" => f64::INFINITY,
                    "-inf" => f64::NEG_INFINITY,
                    _ => return Err(format!("there is no float {name:?}")),
                }),
                ("slice", Value::Array(bounds)) => {
                    let bounds: Vec<Option<i64>> = bounds.iter().map(Value::as_i64).collect();
                    let &[start, stop, step] = bounds.as_slice() else {
                        return Err(String::from("a slice without start, stop and step"));
                    };
                    Arg::Slice { start, stop, step }
                }
                ("ellipsis", _) => Arg::Ellipsis,
                _ => return Err(format!("there is no kind of argument {kind:?}")),
            }
        }
    })
}

fn string(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(String::from).ok_or_else(|| format!("no string `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = r#"{"id": "sum/1", "op": "sum", "fn": "sum", "group": "reduce", "file": "ops/sum.safetensors",
        "args": [{"name": "input", "value": {"tensor": "1.in0"}}, {"name": "dim", "value": [1, 3]}],
        "outputs": [{"name": "out", "shape": [3, 1], "dtype": "f32", "check": "close", "tensor": "1.out"}],
        "grads": [{"input": "1.in0", "tensor": "1.grad.in0"}],
        "tol": {"rtol": 1e-5, "atol": 1.7e-5, "grad_rtol": 1e-4, "grad_atol": 1e-6}}"#;

    fn suite(case: &str) -> Result<Vec<Case>, String> {
        let text = format!(r#"{{"format": 1, "suite": "ops", "cases": [{case}]}}"#);
        Suite::parse(&text, PathBuf::new())?.cases()
    }

    #[test]
    fn a_case_is_read() {
        let cases = suite(CASE).unwrap();
        let case = &cases[0];
        assert_eq!((case.id.as_str(), case.op.as_str(), case.args.len()), ("sum/1", "sum", 2));
        assert_eq!((&case.outputs[0].shape[..], case.outputs[0].check), (&[3, 1][..], Check::Close));
        assert_eq!(case.tolerance, Tolerance { relative: 1e-5, absolute: 1.7e-5 });
        assert_eq!(case.grad_tolerance, Tolerance { relative: 1e-4, absolute: 1e-6 });
    }

    #[test]
    fn a_case_that_would_compare_nothing_is_refused() {
        let spoilt = |from: &str, to: &str| suite(&CASE.replace(from, to)).unwrap_err();
        assert_eq!(spoilt("\"outputs\"", "\"output\""), "ops \"sum/1\": no list `outputs`");
        assert_eq!(spoilt("\"grads\"", "\"grad\""), "ops \"sum/1\": no list `grads`");
        assert_eq!(spoilt("\"close\"", "\"clos\""), "ops \"sum/1\": there is no check \"clos\"");
        assert_eq!(spoilt("grad_rtol", "rtol_grad"), "ops \"sum/1\": no number `tol.grad_rtol`");
    }

    #[test]
    fn arguments_of_every_kind_are_read() {
        let parse = |text: &str| argument(&serde_json::from_str(text).unwrap(), &mut |_| Err(String::from("none")));
        assert!(matches!(parse("null"), Ok(Arg::None)));
        assert!(matches!(parse("2"), Ok(Arg::Int(2))));
        assert!(matches!(parse("2.5"), Ok(Arg::Float(2.5))));
        assert!(matches!(parse(r#"{"float": "-inf"}"#), Ok(Arg::Float(f64::NEG_INFINITY))));
        assert!(matches!(parse(r#"{"float": "nan"}"#), Ok(Arg::Float(value)) if value.is_nan()));
        assert!(matches!(parse(r#"{"dtype": "bf16"}"#), Ok(Arg::DType(DType::BF16))));
        assert!(matches!(parse(r#"{"ellipsis": true}"#), Ok(Arg::Ellipsis)));
        assert!(matches!(parse(r#"[1, "mean", true]"#), Ok(Arg::List(list)) if list.len() == 3));
        let slice = parse(r#"{"slice": [null, 3, -1]}"#);
        assert!(matches!(slice, Ok(Arg::Slice { start: None, stop: Some(3), step: Some(-1) })));
        assert_eq!(parse(r#"{"slice": [3]}"#).unwrap_err(), "a slice without start, stop and step");
        assert_eq!(parse(r#"{"tensor": "1.in0"}"#).unwrap_err(), "none");
        assert!(parse(r#"{"complex": 1}"#).is_err());
    }
}
