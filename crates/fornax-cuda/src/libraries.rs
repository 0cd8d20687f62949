//! Finding the driver, NVRTC and cuBLASLt at run time: where the system's loader looks first, then in the places where
//! toolkits, pip and conda put them.

use crate::error::{Error, ErrorKind, Result};
use cudarc::{cublaslt, driver, nvrtc};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library that is loaded when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver; nothing runs without it.
    Driver,
    /// The compiler; without it only kernels that are in the disk cache run.
    Nvrtc,
    /// Products; without it they run on kernels of Fornax, slower.
    CublasLt,
}

impl Library {
    /// All of them.
    pub const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

    /// The name that its file starts with, after `lib`.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublasLt",
        }
    }

    /// What is lost without it, and what helps.
    fn loss(self) -> &'static str {
        match self {
            Library::Driver => "no CUDA device can be used; install NVIDIA's driver",
            Library::Nvrtc => {
                "only kernels in the disk cache can run; `pip install nvidia-cuda-nvrtc` or CUDA's toolkit brings it"
            }
            Library::CublasLt => {
                "products run on kernels of Fornax, slower; `pip install nvidia-cublas` or CUDA's toolkit brings it"
            }
        }
    }

    /// Whether the loader finds it, by its name or because it is loaded already.
    fn is_loadable(self) -> bool {
        // SAFETY: loading runs the initializers of NVIDIA's libraries, which ask nothing of the caller.
        unsafe {
            match self {
                Library::Driver => driver::sys::is_culib_present(),
                Library::Nvrtc => nvrtc::sys::is_culib_present(),
                Library::CublasLt => cublaslt::sys::is_culib_present(),
            }
        }
    }

    /// Whether a file of this name is the library: `libnvrtc.so.13`, but not `libnvrtc-builtins.so.13.0`.
    fn is_file(self, file: &str) -> bool {
        let name = self.name();
        match cfg!(windows) {
            true => {
                let file = file.to_ascii_lowercase();
                let (name, start) = (name.to_ascii_lowercase(), format!("{}64_", name.to_ascii_lowercase()));
                file.ends_with(".dll") && (file == format!("nv{name}.dll") || file.starts_with(&start))
            }
            false => file.strip_prefix("lib").and_then(|file| file.strip_prefix(name)).is_some_and(|rest| {
                rest.strip_prefix(".so").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }),
        }
    }

    /// Makes the library usable; after that its functions can be called.
    ///
    /// # Errors
    /// If it is nowhere; the message tells what is lost and what brings it.
    pub fn load(self) -> Result<()> {
        static STATES: [OnceLock<Result<()>>; 3] = [const { OnceLock::new() }; 3];
        STATES[self as usize].get_or_init(|| self.find(&places())).clone()
    }

    fn find(self, places: &[PathBuf]) -> Result<()> {
        if self == Library::CublasLt {
            // It looks for NVRTC by name when it needs it; without, it has other algorithms.
            let _ = Library::Nvrtc.load();
        }
        if self.is_loadable() || places.iter().any(|place| self.load_from(place)) {
            return Ok(());
        }
        let kind = match self {
            Library::Driver => ErrorKind::NoDriver,
            Library::Nvrtc => ErrorKind::NoCompiler,
            Library::CublasLt => ErrorKind::Failed,
        };
        let message =
            format!("lib{} was not found, so {} (FORNAX_CUDA_PATH names more folders)", self.name(), self.loss());
        Err(Error::new(kind, message))
    }

    /// Whether the library opens this file by name when it works, and does not look beside itself for it.
    fn needs_file(self, file: &str) -> bool {
        self == Library::Nvrtc && (file.starts_with("libnvrtc-builtins.so") || file.starts_with("nvrtc-builtins64_"))
    }

    /// Loads it from a folder and keeps it loaded, so that the loader then knows it by name.
    fn load_from(self, folder: &Path) -> bool {
        let Ok(entries) = fs::read_dir(folder) else { return false };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let named = |is: &dyn Fn(&str) -> bool| -> Vec<&PathBuf> {
            let name = |file: &&PathBuf| file.file_name().and_then(|name| name.to_str()).is_some_and(is);
            files.iter().rev().filter(name).collect()
        };
        named(&|file| self.is_file(file)).into_iter().any(|file| {
            if !keep_loaded(file) {
                return false;
            }
            for needed in named(&|file| self.needs_file(file)) {
                keep_loaded(needed);
            }
            self.is_loadable()
        })
    }

    /// The file it was loaded from, where the system tells.
    pub fn path(self) -> Option<PathBuf> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let paths = maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])));
        paths
            .into_iter()
            .find(|path| path.file_name().and_then(|file| file.to_str()).is_some_and(|file| self.is_file(file)))
            .map(Path::to_path_buf)
    }
}

/// Loads a file for the rest of the process; tells whether that went well.
fn keep_loaded(file: &Path) -> bool {
    // SAFETY: loading runs the initializers of NVIDIA's libraries, which ask nothing of the caller.
    unsafe { libloading::Library::new(file) }.map(std::mem::forget).is_ok()
}

/// Folders where the libraries may lie, the likeliest first.
fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    let paths = |name: &str| env::var_os(name).map(|value| env::split_paths(&value).collect()).unwrap_or_default();
    let named: Vec<PathBuf> = paths("FORNAX_CUDA_PATH");
    places.extend(named);
    for name in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"] {
        for root in paths(name) as Vec<PathBuf> {
            places.extend(["lib64", "lib", "bin", "targets/x86_64-linux/lib"].map(|folder| root.join(folder)));
        }
    }
    // Pip's wheels lie in the environment of the Python that is active, or on the search path.
    let mut roots: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().flat_map(|name| paths(name)).collect();
    let pythons = paths("PATH").into_iter().map(|folder: PathBuf| folder.join("python3")).filter(|file| file.exists());
    for python in pythons {
        roots.extend(python.ancestors().nth(2).map(Path::to_path_buf));
        let real = fs::canonicalize(&python).ok();
        roots.extend(real.and_then(|python| Some(python.ancestors().nth(2)?.to_path_buf())));
    }
    roots.extend(env::home_dir().map(|home| home.join(".local")));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    for root in roots {
        for packages in ["site-packages", "dist-packages"] {
            let lib = root.join("lib");
            let pythons = folders(&lib, "python");
            for wheels in pythons.iter().map(|python| python.join(packages).join("nvidia")) {
                places.extend(folders(&wheels, "").into_iter().map(|wheel| wheel.join("lib")));
            }
        }
        let windows = root.join("Lib").join("site-packages").join("nvidia");
        places
            .extend(folders(&windows, "").into_iter().flat_map(|wheel| [wheel.join("bin"), wheel.join("bin/x86_64")]));
    }
    places.extend(folders(Path::new("/usr/local"), "cuda").into_iter().rev().map(|toolkit| toolkit.join("lib64")));
    let system = [
        "/usr/local/nvidia/lib64",
        "/usr/local/nvidia/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/wsl/lib",
        "/usr/lib64",
        "/opt/cuda/lib64",
    ];
    places.extend(system.map(PathBuf::from));
    let mut seen = std::collections::HashSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

/// The folders in `root` whose names start with `start`, sorted.
fn folders(root: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start)) && path.is_dir()
    };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(named).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_of_libraries_are_told_apart() {
        if cfg!(windows) {
            assert!(Library::Driver.is_file("nvcuda.dll"));
            assert!(Library::Nvrtc.is_file("nvrtc64_130_0.dll"));
            return;
        }
        assert!(Library::Nvrtc.is_file("libnvrtc.so.13"));
        assert!(Library::Nvrtc.is_file("libnvrtc.so"));
        assert!(!Library::Nvrtc.is_file("libnvrtc-builtins.so.13.0"));
        assert!(!Library::Nvrtc.is_file("libnvrtc.alt.so.13"));
        assert!(Library::Driver.is_file("libcuda.so.1"));
        assert!(!Library::Driver.is_file("libcudart.so.13"));
        assert!(!Library::CublasLt.is_file("libcublas.so.13"));
    }

    #[test]
    fn a_missing_library_is_an_error_that_tells_what_is_lost() {
        let folder = env::temp_dir();
        for library in Library::ALL.into_iter().filter(|library| !library.is_loadable()) {
            let error = library.find(&[folder.join("no-such-folder")]).unwrap_err();
            assert!(error.to_string().contains(library.name()), "{error}");
            assert!(error.to_string().contains("so "), "{error}");
            let kind = if library == Library::Driver { ErrorKind::NoDriver } else { error.kind() };
            assert_eq!(error.kind(), kind);
        }
    }
}
