//! Weights in several files, with an index: `model.safetensors.index.json` says in which file each tensor is.

use crate::json::unique;
use crate::lazy::{LazyTensor, size_in_bytes};
use crate::source::Source;
use crate::{Error, ErrorKind, Weights, atomic, save};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fornax_tensor::Tensor;
use serde::Deserialize;
use serde_json::json;
use std::io::Write;
use std::path::{Component, Path};

/// An index of a million tensors has about this many bytes.
const MAX_INDEX: usize = 64 << 20;

#[derive(Deserialize)]
struct Index {
    #[serde(deserialize_with = "unique")]
    weight_map: Vec<(String, String)>,
}

/// Whether it is a JSON object: text, where a safetensors file has a length with zeros.
pub(crate) fn is_index(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{") && !bytes.iter().take(8).any(|&byte| byte == 0)
}

/// Opens all files of an index. Each must hold the tensors that the index says, and none beside.
pub(crate) fn open(index: &Source, path: &Path) -> Result<Weights, Error> {
    if index.len() > MAX_INDEX {
        return Err(Error::new(ErrorKind::Limit, format!("an index of more than {MAX_INDEX} bytes")));
    }
    let index: Index = serde_json::from_slice(index)
        .map_err(|error| Error::new(ErrorKind::Format, format!("not an index of weights: {error}")).caused_by(error))?;
    let mut files: BTreeMap<&str, BTreeMap<String, LazyTensor>> = BTreeMap::new();
    for (_, file) in &index.weight_map {
        if files.contains_key(file.as_str()) {
            continue;
        }
        // A file beside the index, and no other.
        if !Path::new(file).components().eq([Component::Normal(file.as_ref())]) {
            return Err(Error::new(ErrorKind::Format, format!("{file:?} is no file beside the index")));
        }
        if file.ends_with(".json") {
            return Err(Error::new(ErrorKind::Format, format!("{file:?}: an index of an index")));
        }
        let weights = Weights::open(path.with_file_name(file))?;
        files.insert(file, weights.tensors().iter().cloned().collect());
    }
    let mut tensors = Vec::new();
    for (name, file) in &index.weight_map {
        let Some(tensor) = files.get_mut(file.as_str()).and_then(|tensors| tensors.remove(name)) else {
            return Err(Error::new(ErrorKind::Format, format!("{file} does not hold {name}, as the index says")));
        };
        tensors.push((name.clone(), tensor));
    }
    if let Some((file, rest)) = files.iter().find(|(_, rest)| !rest.is_empty()) {
        let name = rest.keys().next().expect("`find` looked for one that is not empty");
        return Err(Error::new(ErrorKind::Format, format!("{file} holds {name}, which the index does not have")));
    }
    Weights::new(tensors, Vec::new())
}

/// Writes tensors to several safetensors files of at most `max_bytes` each (more, if one tensor is larger), and an index
/// to `path`, whose name must end in `.index.json`. The index comes last: while it is not there, nothing is.
///
/// # Errors
/// If the name is another, the work behind a tensor failed, two have one name, or a file cannot be written.
pub fn save_sharded(path: impl AsRef<Path>, tensors: &[(String, Tensor)], max_bytes: usize) -> Result<(), Error> {
    let path = path.as_ref();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".index.json").and_then(|stem| stem.strip_suffix(".safetensors"));
    let Some(stem) = stem else {
        return Err(Error::new(ErrorKind::Io, "the name must end in `.safetensors.index.json`").at(path));
    };
    let mut shards: Vec<Vec<(String, Tensor)>> = Vec::new();
    let (mut total, mut filled) = (0, 0);
    for (name, tensor) in tensors {
        let size = size_in_bytes(tensor.dtype(), tensor.shape())?;
        if shards.is_empty() || filled + size > max_bytes && filled > 0 {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += size;
        total += size;
        shards.last_mut().expect("pushed above").push((name.clone(), tensor.clone()));
    }
    let mut map = BTreeMap::new();
    for (i, shard) in shards.iter().enumerate() {
        let file = format!("{stem}-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        save(path.with_file_name(&file), shard)?;
        for (name, _) in shard {
            if map.insert(name, file.clone()).is_some() {
                return Err(Error::new(ErrorKind::Format, format!("{name}: two tensors have this name")).at(path));
            }
        }
    }
    let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
    atomic::write_atomically(path, |writer| writer.write_all(index.to_string().as_bytes()))
}
