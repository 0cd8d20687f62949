//! Reading a suite: its manifest, and the tensors of its cases.

use fornax_tensor::ops::Arg;
use fornax_tensor::{DType, Device, Tensor};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A suite's cases, grouped by the file that holds their tensors.
pub struct Suite {
    /// The folder that file names are relative to.
    pub root: PathBuf,
    /// The suite's name: `ops`, `edge`, `nn`, …
    pub name: String,
    /// The cases, in the order of the manifest.
    pub cases: Vec<Value>,
}

impl Suite {
    /// Reads `DIR/manifest.json`.
    pub fn read(dir: &Path) -> Result<Suite, String> {
        let path = dir.join("manifest.json");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut manifest: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if manifest["format"] != 1 {
            return Err(format!("{}: format {} is not 1", path.display(), manifest["format"]));
        }
        let Value::Array(cases) = manifest["cases"].take() else {
            return Err(format!("{}: no list `cases`", path.display()));
        };
        let name = manifest["suite"].as_str().unwrap_or_default().to_string();
        let root = dir.parent().map_or(PathBuf::from("."), Path::to_path_buf);
        let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
        Ok(Suite { root, name, cases })
    }
}

/// One tensor of a file.
#[derive(Clone)]
pub struct Data {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Row-major, little-endian.
    pub bytes: Vec<u8>,
}

impl Data {
    /// A tensor on `device`.
    pub fn upload(&self, device: &Device) -> Tensor {
        Tensor::from_bytes(self.dtype, self.shape.as_slice(), &self.bytes, device)
    }
}

/// The tensors of a safetensors file.
pub fn read_safetensors(path: &Path) -> Result<HashMap<String, Data>, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse_safetensors(&bytes).ok_or_else(|| format!("{}: not a safetensors file", path.display()))
}

fn parse_safetensors(bytes: &[u8]) -> Option<HashMap<String, Data>> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (header, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    let mut tensors = HashMap::new();
    for (name, entry) in header.as_object()? {
        if name == "__metadata__" {
            continue;
        }
        let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let dtype = DType::from_name(&entry["dtype"].as_str()?.to_ascii_lowercase())?;
        let shape: Vec<usize> = entry["shape"].as_array()?.iter().map(number).collect::<Option<_>>()?;
        let offsets = entry["data_offsets"].as_array()?;
        let bytes = data.get(number(offsets.first()?)?..number(offsets.get(1)?)?)?.to_vec();
        tensors.insert(name.clone(), Data { dtype, shape, bytes });
    }
    Some(tensors)
}

/// An argument of a case. `leaf` makes (or finds again) the tensor of a name.
pub fn argument(value: &Value, leaf: &mut dyn FnMut(&str) -> Result<Tensor, String>) -> Result<Arg, String> {
    Ok(match value {
        Value::Null => Arg::None,
        Value::Bool(value) => Arg::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Arg::Int(value),
            None => Arg::Float(number.as_f64().ok_or("a number that is no f64")?),
        },
        Value::String(value) => Arg::Str(value.clone()),
        Value::Array(list) => Arg::List(list.iter().map(|entry| argument(entry, leaf)).collect::<Result<_, _>>()?),
        Value::Object(object) => {
            let (kind, inner) = object.iter().next().ok_or("an empty object")?;
            match (kind.as_str(), inner) {
                ("tensor", Value::String(name)) => Arg::Tensor(leaf(name)?),
                ("dtype", Value::String(name)) => {
                    Arg::DType(DType::from_name(name).ok_or_else(|| format!("no dtype {name}"))?)
                }
                ("float", Value::String(name)) => Arg::Float(match name.as_str() {
                    "nan" => f64::NAN,
                    "inf" => f64::INFINITY,
                    "-inf" => f64::NEG_INFINITY,
                    _ => return Err(format!("no float {name}")),
                }),
                ("slice", Value::Array(bounds)) => {
                    let bound = |i: usize| bounds.get(i).and_then(Value::as_i64);
                    Arg::Slice { start: bound(0), stop: bound(1), step: bound(2) }
                }
                ("ellipsis", _) => Arg::Ellipsis,
                _ => return Err(format!("no argument kind {kind}")),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_safetensors_are_refused() {
        assert!(parse_safetensors(b"").is_none());
        assert!(parse_safetensors(&u64::MAX.to_le_bytes()).is_none());
        let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header);
        file.extend_from_slice(&[0; 4]);
        assert!(parse_safetensors(&file).is_none());
        file.extend_from_slice(&[0; 4]);
        assert_eq!(parse_safetensors(&file).unwrap()["x"].shape, [2]);
    }

    #[test]
    fn special_arguments_are_read() {
        let parse = |text: &str| argument(&serde_json::from_str(text).unwrap(), &mut |_| Err(String::from("none")));
        assert!(matches!(parse(r#"{"float": "-inf"}"#), Ok(Arg::Float(f64::NEG_INFINITY))));
        assert!(matches!(parse("[1, 2.5]"), Ok(Arg::List(list)) if list.len() == 2));
        let slice = parse(r#"{"slice": [null, 3, -1]}"#);
        assert!(matches!(slice, Ok(Arg::Slice { start: None, stop: Some(3), step: Some(-1) })));
    }
}
