//! [`Weights`]: the tensors of a file of any format, by name, read when they are asked for.

use crate::archive::{self, Archive};
use crate::lazy::LazyTensor;
use crate::source::Source;
use crate::value::Plain;
use crate::{Error, ErrorKind, bytes, gguf, npy, sharded, torch};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use fornax_nn::{LoadReport, Module};
use fornax_tensor::{Device, Tensor};
use std::path::Path;

/// Named tensors and plain values of a file, not read yet. Names of nested entries are joined by dots.
///
/// ```
/// use fornax_nn::{Linear, Module};
/// use fornax_store::{ModuleFiles, Rule, Weights};
/// use fornax_tensor::Device;
/// # let dir = std::env::temp_dir().join("fornax-store-doc-weights");
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let path = dir.join("layer.safetensors");
/// let device = Device::cpu();
/// Linear::new(4, 2, &device).save(&path)?;
///
/// let weights = Weights::open(&path)?; // reads the header
/// assert_eq!(weights.get("weight").unwrap().shape()[..], [2, 4]);
/// let bias = weights.read("bias", &device)?; // reads this tensor
///
/// let mut model = vec![Linear::new(4, 2, &device)];
/// weights.apply(&[Rule::rename("(.*)", "0.$1")])?.load_into(&mut model)?;
/// assert_eq!(model[0].bias.as_ref().unwrap().to_vec::<f32>(), bias.to_vec::<f32>());
/// # Ok::<(), fornax_store::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Weights {
    tensors: Vec<(String, LazyTensor)>,
    values: Vec<(String, Plain)>,
    path: Option<String>,
}

/// Tensors and plain values by name: what a reader finds in a file.
pub(crate) type Contents = (Vec<(String, LazyTensor)>, Vec<(String, Plain)>);

impl Weights {
    /// Opens a file: safetensors, an index of several files (`….index.json`), PyTorch's `.pt` of both formats, GGUF, NPZ
    /// or NPY (one tensor, called `array`), told apart by their contents. It reads what the file says of its tensors, and
    /// maps the rest. The file must not be changed in place while it is used; replacing it by another is fine.
    ///
    /// # Errors
    /// If the file cannot be read, or is malformed, hostile, or of none of these formats.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, Error> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let weights =
            if sharded::is_index(&source) { sharded::open(&source, path) } else { Weights::of(Arc::new(source)) };
        let mut weights = weights.map_err(|error| if error.path().is_some() { error } else { error.at(path) })?;
        weights.path = Some(path.display().to_string());
        Ok(weights)
    }

    /// As [`Weights::open`], from bytes in memory; an index of files is none.
    ///
    /// # Errors
    /// As [`Weights::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Weights, Error> {
        Weights::of(Arc::new(Source::Owned(bytes)))
    }

    fn of(source: Arc<Source>) -> Result<Weights, Error> {
        let (tensors, values) = if source.starts_with(archive::MAGIC) {
            let archive = Arc::new(Archive::open(source)?);
            if archive.names().any(|name| name.ends_with("data.pkl")) {
                torch::open_zip(&archive)?.flat()?
            } else {
                (npy::open_zip(&archive)?, Vec::new())
            }
        } else if source.starts_with(gguf::MAGIC) {
            gguf::open(&source)?
        } else if source.starts_with(npy::MAGIC) {
            (Vec::from([("array".to_string(), npy::open(&source)?)]), Vec::new())
        } else if torch::is_legacy(&source) {
            torch::open_legacy(&source)?.flat()?
        } else {
            bytes::open(&source)?
        };
        Weights::new(tensors, values)
    }

    /// Names must be different.
    pub(crate) fn new(tensors: Vec<(String, LazyTensor)>, values: Vec<(String, Plain)>) -> Result<Weights, Error> {
        let mut names = BTreeSet::new();
        let all = tensors.iter().map(|(name, _)| name).chain(values.iter().map(|(name, _)| name));
        if let Some(name) = all.into_iter().find(|name| !names.insert(name.as_str())) {
            return Err(Error::new(ErrorKind::Format, format!("{name}: two entries have this name")));
        }
        Ok(Weights { tensors, values, path: None })
    }

    /// The names of all tensors, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name.as_str())
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[(String, LazyTensor)] {
        &self.tensors
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&LazyTensor> {
        self.tensors.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor)
    }

    /// What is in the file beside tensors: metadata, settings of an optimizer.
    pub fn values(&self) -> &[(String, Plain)] {
        &self.values
    }

    /// The plain value called `name`.
    pub fn value(&self, name: &str) -> Option<&Plain> {
        self.values.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// Reads one tensor.
    ///
    /// # Errors
    /// If there is none of this name, the file is damaged there, or the device has no room.
    pub fn read(&self, name: &str, device: &Device) -> Result<Tensor, Error> {
        let Some(tensor) = self.get(name) else {
            return Err(self.at(Error::new(ErrorKind::Mismatch, format!("there is no tensor {name}"))));
        };
        self.read_entry(name, tensor, device)
    }

    /// Reads all tensors.
    ///
    /// # Errors
    /// If the file is damaged, or the device has no room.
    pub fn read_all(&self, device: &Device) -> Result<Vec<(String, Tensor)>, Error> {
        self.tensors.iter().map(|(name, tensor)| Ok((name.clone(), self.read_entry(name, tensor, device)?))).collect()
    }

    /// Those tensors and values for whose names `keep` is true.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&str) -> bool) -> Weights {
        Weights {
            tensors: self.tensors.iter().filter(|(name, _)| keep(name)).cloned().collect(),
            values: self.values.iter().filter(|(name, _)| keep(name)).cloned().collect(),
            path: self.path.clone(),
        }
    }

    /// Those tensors and values whose names begin with `prefix` and a dot, without that: `under("model")` of a file that
    /// holds a model and its optimizer.
    #[must_use]
    pub fn under(&self, prefix: &str) -> Weights {
        fn cut<T: Clone>(entries: &[(String, T)], prefix: &str) -> Vec<(String, T)> {
            let rest = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_string());
            entries.iter().filter_map(|(name, entry)| Some((rest(name)?, entry.clone()))).collect()
        }
        Weights { tensors: cut(&self.tensors, prefix), values: cut(&self.values, prefix), path: self.path.clone() }
    }

    /// Loads a model. Strict: nothing changes unless every entry of the model is there, fits in shape and dtype, and
    /// nothing is left over.
    ///
    /// # Errors
    /// If the file is damaged, or does not fit: the message lists every entry by its full path.
    pub fn load_into(&self, model: &mut (impl Module + ?Sized)) -> Result<(), Error> {
        let state = self.state_for(model)?;
        model.load_state_dict(&state).map_err(|error| self.at(Error::from(error)))
    }

    /// Loads what fits, cast to the model's dtypes, and tells what did not.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn load_into_lenient(&self, model: &mut (impl Module + ?Sized)) -> Result<LoadReport, Error> {
        let state = self.state_for(model)?;
        Ok(model.load_state_dict_lenient(&state))
    }

    /// All tensors, of which only those that the model takes are read: the others stand in for themselves as zeros, which
    /// take no memory since nobody asks for them.
    fn state_for(&self, model: &(impl Module + ?Sized)) -> Result<Vec<(String, Tensor)>, Error> {
        let own: BTreeMap<String, Tensor> = model.state_dict().into_iter().collect();
        let device = own.values().next().map_or_else(Device::cpu, |tensor| tensor.device().clone());
        self.tensors
            .iter()
            .map(|(name, tensor)| {
                let value = match own.get(name) {
                    Some(own) if own.shape() == tensor.shape() => self.read_entry(name, tensor, own.device())?,
                    _ => Tensor::full(tensor.shape(), 0, tensor.dtype(), &device),
                };
                Ok((name.clone(), value))
            })
            .collect()
    }

    fn read_entry(&self, name: &str, tensor: &LazyTensor, device: &Device) -> Result<Tensor, Error> {
        tensor.read(device).map_err(|error| self.at(error.within(name)))
    }

    /// Other tensors of the same file.
    pub(crate) fn with_tensors(&self, tensors: Vec<(String, LazyTensor)>) -> Result<Weights, Error> {
        let mut weights = Weights::new(tensors, self.values.clone()).map_err(|error| self.at(error))?;
        weights.path.clone_from(&self.path);
        Ok(weights)
    }

    pub(crate) fn at(&self, error: Error) -> Error {
        match &self.path {
            Some(path) => error.at(Path::new(path)),
            None => error,
        }
    }
}
