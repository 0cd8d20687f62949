//! [`Error`]: what can be wrong with files and saved positions.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something outside the program is not as it should be: a file, its contents, a saved position.
///
/// # Example
/// ```
/// use fornax_data::ErrorKind;
/// use fornax_data::idx::Idx;
/// let error = Idx::read(&b"not an IDX file"[..], 1 << 20).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::BadMagic);
/// assert_eq!(error.offset(), Some(0));
/// ```
#[derive(Debug)]
pub struct Error {
    // Boxed: a `Result` of a large error is copied on every return of the happy path.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<std::io::Error>,
}

/// What went wrong, for programs; the message of the [`Error`] is for people.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The operating system could not read; `source()` has its error.
    Io,
    /// None of the expected files is in the folder.
    Missing,
    /// The first bytes are not those of the format.
    BadMagic,
    /// The element type code of an IDX file is not one of the format's.
    UnknownType,
    /// The declared size is beyond 64 bits.
    Overflow,
    /// The declared size is above the limit that the caller set.
    TooLarge,
    /// The data ends before the declared size.
    Truncated,
    /// The data goes on after the declared size.
    TrailingData,
    /// The gzip stream is damaged.
    Compression,
    /// The file is compressed and the feature `gzip` is off.
    Unsupported,
    /// The dims or the element type are not those of this kind of data set.
    Shape,
    /// Two files that belong together have different numbers of items.
    Count,
    /// A label is out of range.
    Label,
    /// A saved position belongs to another data set, sampler or seed.
    State,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), path: None, offset: None, source: None }) }
    }

    pub(crate) fn with_path(mut self, path: &Path) -> Self {
        self.inner.path = Some(path.to_owned());
        self
    }

    pub(crate) fn with_offset(mut self, offset: u64) -> Self {
        self.inner.offset = Some(offset);
        self
    }

    pub(crate) fn with_source(mut self, source: std::io::Error) -> Self {
        self.inner.source = Some(source);
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The file or folder concerned, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The byte at which the data stops making sense, counted after decompression.
    pub fn offset(&self) -> Option<u64> {
        self.inner.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.inner.path {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&self.inner.message)?;
        match self.inner.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source as _)
    }
}
