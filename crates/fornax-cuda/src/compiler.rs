//! [`Compiler`]: from CUDA C++ to machine code, by NVRTC, several kernels at a time, with a disk cache.

use crate::cache::DiskCache;
use crate::error::{Error, ErrorKind, Result};
use crate::libraries::Library;
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A kernel's source.
#[derive(Clone, Debug)]
pub struct Source {
    /// The entry point.
    pub name: String,
    /// CUDA C++ that includes nothing.
    pub text: String,
}

/// Compiles for one kind of device.
#[derive(Debug)]
pub struct Compiler {
    capability: (i32, i32),
    driver: i32,
    options: &'static [&'static str],
    cache: DiskCache,
    compiled: AtomicU64,
    cache_hits: AtomicU64,
}

impl Compiler {
    /// For devices of a compute capability, under a driver that serves that version of CUDA.
    pub fn new(capability: (i32, i32), driver: i32, options: &'static [&'static str], cache: DiskCache) -> Compiler {
        let (compiled, cache_hits) = Default::default();
        Compiler { capability, driver, options, cache, compiled, cache_hits }
    }

    /// The disk cache.
    pub fn cache(&self) -> &DiskCache {
        &self.cache
    }

    /// Kernels compiled, and kernels found on disk.
    pub fn counts(&self) -> (u64, u64) {
        (self.compiled.load(Ordering::Relaxed), self.cache_hits.load(Ordering::Relaxed))
    }

    /// Machine code for each source: from the disk, or compiled now, on all cores.
    ///
    /// # Errors
    /// If there is no compiler and one is not on disk, or one does not compile.
    pub fn compile(&self, sources: &[Source]) -> Result<Vec<Vec<u8>>> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<Vec<u8>>>>> = sources.iter().map(|_| Mutex::default()).collect();
        let work = || {
            loop {
                let idx = next.fetch_add(1, Ordering::Relaxed);
                let Some(source) = sources.get(idx) else { break };
                let code = self.one(source);
                *results[idx].lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(sources.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let results = results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
        results.map(|result| result.expect("every source was compiled")).collect()
    }

    fn one(&self, source: &Source) -> Result<Vec<u8>> {
        // Without a compiler, code of whatever compiler made it before serves as well.
        let version = version();
        let key = self.key(source, version.as_ref().ok());
        if let Some(code) = self.cache.read(&key) {
            self.cache_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(code);
        }
        let version = version?;
        let code = compile(source, &self.arch(version)?, self.options)?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        self.cache.write(&key, &code);
        if self.cache.folder().is_some() {
            self.cache.write(&self.key(source, None), &code);
        }
        Ok(code)
    }

    fn key(&self, source: &Source, version: Option<&(i32, i32)>) -> String {
        let (major, minor) = self.capability;
        let compiler = version.map_or("any".to_string(), |(major, minor)| format!("{major}.{minor}"));
        let options = self.options.join(" ");
        format!("sm {major}.{minor}; driver {}; nvrtc {compiler}; {options}\n{}", self.driver, source.text)
    }

    /// `sm_90`, or, for a device that the compiler does not know yet, the newest `compute_…` that it does.
    fn arch(&self, version: (i32, i32)) -> Result<String> {
        let device = self.capability.0 * 10 + self.capability.1;
        let known = supported_archs()?;
        if known.contains(&device) {
            return Ok(format!("sm_{device}"));
        }
        let newest = known.iter().filter(|&&arch| arch < device).max();
        newest.map(|arch| format!("compute_{arch}")).ok_or_else(|| {
            let (major, minor) = version;
            let message =
                format!("NVRTC {major}.{minor} does not compile for compute capability {device}; install an older one");
            Error::new(ErrorKind::Compile, message)
        })
    }
}

/// The version of NVRTC.
///
/// # Errors
/// If it is not there.
pub fn version() -> Result<(i32, i32)> {
    static VERSION: OnceLock<Result<(i32, i32)>> = OnceLock::new();
    let find = || {
        Library::Nvrtc.load()?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is loaded; it writes two integers.
        unsafe { check(sys::nvrtcVersion(&mut major, &mut minor), "nvrtcVersion")? };
        Ok((major, minor))
    };
    VERSION.get_or_init(find).clone()
}

fn supported_archs() -> Result<Vec<i32>> {
    let mut count = 0;
    // SAFETY: the library is loaded; it writes as many integers as it told.
    unsafe {
        check(sys::nvrtcGetNumSupportedArchs(&mut count), "nvrtcGetNumSupportedArchs")?;
        let mut archs = vec![0; count as usize];
        check(sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()), "nvrtcGetSupportedArchs")?;
        Ok(archs)
    }
}

fn check(result: nvrtcResult, call: &str) -> Result<()> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library is loaded, for it gave `result`; the string is static.
    let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) }.to_string_lossy();
    Err(Error::new(ErrorKind::Compile, format!("{call}: {text}")))
}

/// A program of NVRTC, destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made by the library and is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// Machine code (`sm_…`) or PTX (`compute_…`).
fn compile(source: &Source, arch: &str, options: &[&str]) -> Result<Vec<u8>> {
    let c_string = |text: &str| CString::new(text).map_err(|_| Error::new(ErrorKind::Compile, "a 0 in the source"));
    let (text, name) = (c_string(&source.text)?, c_string(&format!("{}.cu", source.name))?);
    let mut program = ptr::null_mut();
    // SAFETY: the strings live through the call.
    let created =
        unsafe { sys::nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
    check(created, "nvrtcCreateProgram")?;
    let program = Program(program);
    let options =
        options.iter().map(|option| c_string(option)).chain([c_string(&format!("--gpu-architecture={arch}"))]);
    let options: Vec<CString> = options.collect::<Result<_>>()?;
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the options live through the call.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    if let Err(error) = check(compiled, "compiling a kernel") {
        let log = output(&program, sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches(['\0', '\n']);
        return Err(Error::new(ErrorKind::Compile, format!("{error} in {}:\n{log}\n{}", source.name, source.text)));
    }
    match arch.starts_with("sm_") {
        true => output(&program, sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN),
        false => output(&program, sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
    }
}

fn output(
    program: &Program,
    size: unsafe fn(sys::nvrtcProgram, *mut usize) -> nvrtcResult,
    read: unsafe fn(sys::nvrtcProgram, *mut c_char) -> nvrtcResult,
) -> Result<Vec<u8>> {
    let mut len = 0;
    // SAFETY: the program lives; the library writes as many bytes as it told.
    unsafe {
        check(size(program.0, &mut len), "reading what NVRTC made")?;
        let mut bytes = vec![0u8; len];
        check(read(program.0, bytes.as_mut_ptr().cast()), "reading what NVRTC made")?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source { name: "twice".into(), text: text.into() }
    }

    fn compiler(folder: Option<std::path::PathBuf>) -> Compiler {
        Compiler::new((9, 0), 13_000, &["--std=c++17"], DiskCache::new(folder))
    }

    const TWICE: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] += x[threadIdx.x]; }";

    #[test]
    fn kernels_are_compiled_without_a_device_and_found_again() {
        if let Err(error) = version() {
            eprintln!("skipped: {error}");
            return;
        }
        let folder = std::env::temp_dir().join(format!("fornax-nvrtc-{}", std::process::id()));
        let first = compiler(Some(folder.clone()));
        let sources: Vec<Source> = (0..5).map(|i| source(&format!("// {i}\n{TWICE}"))).collect();
        let code = first.compile(&sources).unwrap();
        assert!(code.iter().all(|code| code.starts_with(b"\x7fELF")));
        assert_eq!(first.counts(), (5, 0));
        let second = compiler(Some(folder.clone()));
        assert_eq!(second.compile(&sources).unwrap(), code);
        assert_eq!(second.counts(), (0, 5));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_device_newer_than_the_compiler_gets_ptx() {
        if version().is_err() {
            return;
        }
        let future = Compiler::new((99, 0), 13_000, &[], DiskCache::new(None));
        let code = future.compile(&[source(TWICE)]).unwrap().remove(0);
        assert!(String::from_utf8_lossy(&code).contains(".visible .entry twice"));
    }

    #[test]
    fn a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words() {
        if version().is_err() {
            return;
        }
        let error = compiler(None).compile(&[source("extern \"C\" __global__ void twice() { y = 1; }")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Compile);
        assert!(error.to_string().contains("\"y\" is undefined"), "{error}");
    }
}
