//! [`Source`]: the bytes of a file, mapped into memory, so that only what is read takes room.

use crate::{Error, ErrorKind};
use alloc::format;
use alloc::vec::Vec;
use core::ops::{Deref, Range};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// Bytes that are mapped or owned.
pub(crate) enum Source {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Source {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<Source, Error> {
        let io = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot be read: {error}")).caused_by(error).at(path)
        };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::new(ErrorKind::Io, "cannot be read: not a file").at(path));
        }
        map(&file).map(Source::Mapped).map_err(io)
    }

    /// The bytes of a range that was read from the file, and is thus not to be trusted.
    pub fn slice(&self, range: Range<usize>) -> Result<&[u8], Error> {
        self.get(range.clone()).ok_or_else(|| {
            let message = format!("bytes {}..{} of a file of {}", range.start, range.end, self.len());
            Error::new(ErrorKind::Format, message)
        })
    }
}

impl Deref for Source {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Source::Mapped(map) => map,
            Source::Owned(bytes) => bytes,
        }
    }
}

#[expect(unsafe_code, reason = "mapping a file is the one thing that the standard library has no safe function for")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the bytes must not change while they are mapped. No process can promise that for a file; as everywhere where
    // files are mapped, `Weights::open` says that the file must be left alone, and own writes replace files by renaming.
    // Bytes are only ever copied out or parsed with checks, so a change gives wrong numbers or an error.
    unsafe { Mmap::map(file) }
}

/// Reads numbers one after another from bytes that are not to be trusted.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub position: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], position: usize) -> Cursor<'a> {
        Cursor { bytes, position }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.position.checked_add(count);
        let Some(bytes) = end.and_then(|end| self.bytes.get(self.position..end)) else {
            let message = format!("truncated: {count} bytes wanted at {}, {} are left", self.position, self.left());
            return Err(Error::new(ErrorKind::Format, message));
        };
        self.position += count;
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("`take` gives as many as asked"))
    }

    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length in 8 bytes. What is longer than memory can be is longer than the file, too.
    pub fn length(&mut self) -> Result<usize, Error> {
        Ok(usize::try_from(self.u64()?).unwrap_or(usize::MAX))
    }

    /// Up to and without a line's end.
    pub fn line(&mut self) -> Result<&'a [u8], Error> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            return Err(Error::new(ErrorKind::Format, format!("truncated: no end of line after {}", self.position)));
        };
        self.position += length + 1;
        Ok(&rest[..length])
    }
}
