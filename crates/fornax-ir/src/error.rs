//! [`Error`]: a broken rule of an op, told with the op, the rule and every shape involved.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// The result of checking a rule.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What kind of rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Sizes or ranks do not fit together.
    Shape,
    /// A dtype that the op does not take, or two that do not agree.
    DType,
    /// A dim or an index out of range.
    Index,
    /// Tensors on different devices, or a device that is not there.
    Device,
    /// An argument outside its domain.
    Argument,
    /// A gradient that does not exist.
    Gradient,
    /// The device could not run the work.
    Execution,
}

/// A broken rule: `op: rule that failed: names and values`.
///
/// ```
/// use fornax_ir::{Error, ErrorKind};
/// let error = Error::shape("matmul", "inner sizes differ: lhs [8, 64, 32], rhs [64, 10]");
/// assert_eq!(error.kind(), ErrorKind::Shape);
/// assert_eq!(error.to_string(), "matmul: inner sizes differ: lhs [8, 64, 32], rhs [64, 10]");
/// ```
#[derive(Clone, PartialEq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    kind: ErrorKind,
    op: String,
    message: String,
    help: Option<String>,
}

impl Error {
    /// An error of `kind` in `op`.
    #[cold]
    pub fn new(kind: ErrorKind, op: impl Into<String>, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, op: op.into(), message: message.into(), help: None }))
    }

    /// Sizes or ranks do not fit together.
    #[cold]
    pub fn shape(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Shape, op, message)
    }

    /// A dtype that `op` does not take.
    #[cold]
    pub fn dtype(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::DType, op, message)
    }

    /// A dim or an index out of range.
    #[cold]
    pub fn index(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Index, op, message)
    }

    /// An argument outside its domain.
    #[cold]
    pub fn argument(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Argument, op, message)
    }

    /// Adds a hint, for when one fix is likely.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// The same error, told of the op that the user called rather than of a primitive inside it.
    #[must_use]
    pub fn named(mut self, op: &str) -> Error {
        self.0.op = op.into();
        self
    }

    /// What kind of rule was broken.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The op that complained.
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// Panics with this error, at the caller's line.
    ///
    /// # Panics
    /// Always.
    #[cold]
    #[track_caller]
    pub fn raise(self) -> ! {
        panic!("{self}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.op, self.0.message)?;
        if let Some(help) = &self.0.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}
