//! Safetensors files.

use crate::{Error, ErrorKind, from_bytes, to_bytes};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fornax_nn::{LoadReport, Module};
use fornax_tensor::{Device, Tensor};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes tensors to a safetensors file. The file appears whole or not at all: it is written beside its place and
/// renamed.
///
/// # Errors
/// If the work behind a tensor failed, two have one name, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let path = path.as_ref();
    let bytes = to_bytes(tensors, &[("format", "pt")]).map_err(|error| error.at(path))?;
    let io = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot be written: {error}")).caused_by(error).at(path)
    };
    let temporary = beside(path);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        // The first error counts; that the leftover cannot be removed either adds nothing.
        let _ = fs::remove_file(&temporary);
        return Err(io(error));
    }
    Ok(())
}

/// Reads the tensors of a safetensors file, sorted by name, to `device`.
///
/// # Errors
/// If the file cannot be read or is no safetensors file.
pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Vec<(String, Tensor)>, Error> {
    let path = path.as_ref();
    let bytes = fs::read(path)
        .map_err(|error| Error::new(ErrorKind::Io, format!("cannot be read: {error}")).caused_by(error).at(path))?;
    from_bytes(&bytes, device).map_err(|error| error.at(path))
}

/// A name beside `path` that no other thread or process writes to.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}.partial", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
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

    /// Takes over all parameters and buffers from a safetensors file. Strict: nothing changes unless everything fits.
    ///
    /// # Errors
    /// If the file cannot be read, or does not fit: the message lists every entry by its full path.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let state = load(path, &self.home())?;
        self.load_state_dict(&state).map_err(|error| Error::from(error).at(path))
    }

    /// Takes over what fits, cast to the model's dtypes, and tells what did not.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn load_lenient(&mut self, path: impl AsRef<Path>) -> Result<LoadReport, Error> {
        let state = load(path, &self.home())?;
        Ok(self.load_state_dict_lenient(&state))
    }

    /// The device of the first parameter; the CPU if there is none.
    fn home(&self) -> Device {
        self.named_parameters().first().map_or_else(Device::cpu, |(_, param)| param.device().clone())
    }
}

impl<M: Module + ?Sized> ModuleFiles for M {}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_nn::Linear;

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
