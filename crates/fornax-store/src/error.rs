//! [`Error`]: why weights could not be read or written.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use fornax_nn::LoadError;

/// Kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file could not be read or written.
    Io,
    /// The bytes are not what they should be: truncated, overlapping, of an unknown kind.
    Format,
    /// The file may be sound, but is more than a reader takes on: nested too deep, swelling too much.
    Limit,
    /// The file may be sound, but needs what is not there: big-endian numbers, other dtypes, Python objects.
    Unsupported,
    /// A rule does not fit what it is applied to.
    Rule,
    /// The weights do not fit the model.
    Mismatch,
    /// The device could not take or give the values.
    Device,
}

/// Why weights could not be read or written.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    path: Option<String>,
    message: String,
    source: Option<Box<dyn core::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, path: None, message: message.into(), source: None }
    }

    pub(crate) fn caused_by(mut self, source: impl core::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }

    /// Says in which part of a file it is.
    pub(crate) fn within(mut self, part: &str) -> Error {
        self.message = alloc::format!("{part}: {}", self.message);
        self
    }

    #[cfg(feature = "std")]
    pub(crate) fn at(mut self, path: &std::path::Path) -> Error {
        self.path = Some(path.display().to_string());
        self
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What did not fit, if the weights do not fit the model.
    pub fn load_error(&self) -> Option<&LoadError> {
        self.source.as_ref()?.downcast_ref()
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        Error::new(ErrorKind::Mismatch, error.to_string()).caused_by(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn core::error::Error + 'static))
    }
}
