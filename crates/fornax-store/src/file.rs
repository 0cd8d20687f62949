//! Saving and loading of models and lists of tensors.

use crate::atomic::write_atomically;
use crate::{Error, Weights, to_bytes};
use alloc::string::String;
use alloc::vec::Vec;
use fornax_nn::{LoadReport, Module};
use fornax_tensor::{Device, Tensor};
use std::io::Write;
use std::path::Path;

/// Writes tensors to a safetensors file. The file appears whole or not at all: it is written beside its place and
/// renamed.
///
/// # Errors
/// If the work behind a tensor failed, two have one name, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let path = path.as_ref();
    let bytes = to_bytes(tensors, &[("format", "pt")]).map_err(|error| error.at(path))?;
    write_atomically(path, |writer| writer.write_all(&bytes))
}

/// Reads the tensors of a file of any format that [`Weights::open`] knows to `device`.
///
/// # Errors
/// As [`Weights::open`]; or if the device has no room.
pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Vec<(String, Tensor)>, Error> {
    Weights::open(path)?.read_all(device)
}

/// Saving and loading of models.
pub trait ModuleFiles: Module {
    /// Writes all parameters and buffers to a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        save(path, &self.state_dict())
    }

    /// Takes over all parameters and buffers from a file of any format that [`Weights::open`] knows. Strict: nothing
    /// changes unless everything fits.
    ///
    /// # Errors
    /// If the file cannot be read, or does not fit: the message lists every entry by its full path.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        Weights::open(path)?.load_into(self)
    }

    /// Takes over what fits, cast to the model's dtypes, and tells what did not.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn load_lenient(&mut self, path: impl AsRef<Path>) -> Result<LoadReport, Error> {
        Weights::open(path)?.load_into_lenient(self)
    }
}

impl<M: Module + ?Sized> ModuleFiles for M {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use alloc::format;
    use fornax_nn::Linear;
    use std::fs;
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("fornax-store-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir.join(name)
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_path() {
        let error = load("no/such/file.safetensors", &Device::reference()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.path(), Some("no/such/file.safetensors"));
    }

    #[test]
    fn weights_of_another_model_name_the_entries() {
        let device = Device::reference();
        let path = scratch("other.safetensors");
        Linear::new(3, 2, &device).save(&path).unwrap();
        let mut model = Linear::without_bias(3, 4, &device);
        let error = model.load(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let report = &error.load_error().unwrap().report;
        assert_eq!(report.unexpected, ["bias"]);
        assert_eq!(report.mismatched[0].path, "weight");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let device = Device::reference();
        let dir = scratch("is-a-directory");
        fs::create_dir_all(dir.join("x")).unwrap();
        let error = Linear::new(1, 1, &device).save(&dir).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let leftovers = fs::read_dir(dir.parent().unwrap())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("is-a-directory."));
        assert_eq!(leftovers.count(), 0);
    }
}
