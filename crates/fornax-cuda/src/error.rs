//! [`Error`]: what can go wrong between a program and a CUDA device.

use cudarc::driver::sys::{self, CUresult};
use fornax_ir::{DeviceError, DeviceErrorKind};
use std::ffi::CStr;
use std::fmt;

/// Why a CUDA device is not there or could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The driver's library is not installed, or does not start.
    NoDriver,
    /// The driver is older than this crate needs.
    DriverTooOld,
    /// The driver sees no device.
    NoDevice,
    /// There are devices, but none of this index.
    NoSuchDevice,
    /// The device is older than this crate needs.
    DeviceTooOld,
    /// A kernel is needed that is not in the cache, and there is no compiler.
    NoCompiler,
    /// A kernel did not compile or load: a bug of this crate, or a compiler that does not fit the driver.
    Compile,
    /// No room for a buffer.
    OutOfMemory,
    /// A call with a wrong buffer or size.
    Misuse,
    /// A kernel or the driver failed; the device can do no more work in this process.
    Lost,
    /// Another failure of the driver or of a library.
    Failed,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for DeviceError {
    fn from(error: Error) -> DeviceError {
        let kind = match error.kind {
            ErrorKind::NoDriver
            | ErrorKind::DriverTooOld
            | ErrorKind::NoDevice
            | ErrorKind::NoSuchDevice
            | ErrorKind::DeviceTooOld => DeviceErrorKind::Unavailable,
            ErrorKind::NoCompiler | ErrorKind::Compile => DeviceErrorKind::Unsupported,
            ErrorKind::OutOfMemory => DeviceErrorKind::OutOfMemory,
            ErrorKind::Misuse => DeviceErrorKind::Misuse,
            ErrorKind::Lost | ErrorKind::Failed => DeviceErrorKind::Lost,
        };
        DeviceError::new(kind, error.message)
    }
}

/// What a driver call gave, as an error that names the call.
pub(crate) fn check(result: CUresult, call: &str) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(failure(result, call))
}

#[cold]
fn failure(result: CUresult, call: &str) -> Error {
    let kind = match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        CUresult::CUDA_ERROR_NO_DEVICE => ErrorKind::NoDevice,
        CUresult::CUDA_ERROR_INVALID_PTX
        | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_INVALID_IMAGE => ErrorKind::Compile,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_DEINITIALIZED => ErrorKind::Lost,
        _ => ErrorKind::Failed,
    };
    let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the driver is loaded, for it gave `result`; it writes a static string or null.
    let told = unsafe {
        let _ = sys::cuGetErrorName(result, &mut name);
        let _ = sys::cuGetErrorString(result, &mut text);
        [name, text].map(|told| (!told.is_null()).then(|| CStr::from_ptr(told).to_string_lossy()))
    };
    let [name, text] = told.map(Option::unwrap_or_default);
    let help = match result {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS | CUresult::CUDA_ERROR_LAUNCH_FAILED => {
            "; the process must be started anew, `compute-sanitizer` shows the kernel"
        }
        _ => "",
    };
    Error::new(kind, format!("{call}: {name} ({}): {text}{help}", result as u32))
}
