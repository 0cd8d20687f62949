//! IDX, the file format of MNIST: arrays of numbers with a short header.
//!
//! ```text
//! 0, 0, type code, rank          four bytes
//! dims                           rank × u32, big endian
//! elements                       row-major, big endian
//! ```
//!
//! Files are taken as hostile. Memory grows with the bytes that are really there and never beyond the limit that
//! the caller gives, whatever the header says; everything else that is wrong is an [`Error`].

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use crate::{Error, ErrorKind};

/// An array read from an IDX file.
///
/// # Example
/// ```
/// use fornax_data::idx::{Elements, Idx};
/// let bytes = [0, 0, 0x08, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30];
/// let array = Idx::read(&bytes[..], 1 << 20)?;
/// assert_eq!(array.dims(), [1, 3]);
/// assert_eq!(array.elements(), &Elements::U8(vec![10, 20, 30]));
/// # Ok::<(), fornax_data::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Idx {
    /// Their product is `elements.len()`.
    dims: Vec<usize>,
    elements: Elements,
}

/// The elements of an [`Idx`], row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// Type code 0x08.
    U8(Vec<u8>),
    /// Type code 0x09.
    I8(Vec<i8>),
    /// Type code 0x0B.
    I16(Vec<i16>),
    /// Type code 0x0C.
    I32(Vec<i32>),
    /// Type code 0x0D.
    F32(Vec<f32>),
    /// Type code 0x0E.
    F64(Vec<f64>),
}

impl Elements {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn code(&self) -> u8 {
        match self {
            Self::U8(_) => 0x08,
            Self::I8(_) => 0x09,
            Self::I16(_) => 0x0B,
            Self::I32(_) => 0x0C,
            Self::F32(_) => 0x0D,
            Self::F64(_) => 0x0E,
        }
    }
}

impl Idx {
    /// An array to be written.
    ///
    /// # Panics
    /// If the product of `dims` is not the number of elements, or the format cannot hold them: more than 255 dims
    /// or one above `u32::MAX`.
    ///
    /// # Example
    /// ```
    /// use fornax_data::idx::{Elements, Idx};
    /// let array = Idx::new([2, 2], Elements::I16(vec![1, 2, 3, 4]));
    /// let mut bytes = vec![];
    /// array.write(&mut bytes).unwrap();
    /// assert_eq!(Idx::read(&bytes[..], 100).unwrap(), array);
    /// ```
    #[track_caller]
    pub fn new(dims: impl Into<Vec<usize>>, elements: Elements) -> Self {
        let (dims, n_elements) = (dims.into(), elements.len());
        let product = dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
        assert!(product == Some(n_elements), "idx: dims {dims:?} do not hold {n_elements} elements");
        assert!(dims.len() <= 255, "idx: {} dims, the format allows 255", dims.len());
        assert!(dims.iter().all(|&dim| u32::try_from(dim).is_ok()), "idx: a dim of {dims:?} is beyond 32 bits");
        Self { dims, elements }
    }

    /// Reads the file at `path`, plain or gzipped. See [`Idx::read`].
    ///
    /// # Errors
    /// Those of [`Idx::read`], with the path.
    ///
    /// # Example
    /// ```no_run
    /// let images = fornax_data::idx::Idx::open("train-images-idx3-ubyte.gz", 100 << 20)?;
    /// # Ok::<(), fornax_data::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| read_error(error, Encoding::Plain).with_path(path))?;
        Self::read(file, max_bytes).map_err(|error| error.with_path(path))
    }

    /// Reads an array, plain or gzipped; the first two bytes tell which.
    ///
    /// `max_bytes` limits the memory for the elements. The reader must end where the array ends.
    ///
    /// # Errors
    /// - [`Io`](ErrorKind::Io): the reader failed.
    /// - [`BadMagic`](ErrorKind::BadMagic), [`UnknownType`](ErrorKind::UnknownType): not an IDX file.
    /// - [`Overflow`](ErrorKind::Overflow), [`TooLarge`](ErrorKind::TooLarge): the header declares more than 64 bits
    ///   count, or more than `max_bytes`. Elements are not read then.
    /// - [`Truncated`](ErrorKind::Truncated), [`TrailingData`](ErrorKind::TrailingData): there is less or more data
    ///   than declared.
    /// - [`Compression`](ErrorKind::Compression): the gzip stream is damaged.
    /// - [`Unsupported`](ErrorKind::Unsupported): gzipped, and the feature `gzip` is off.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{ErrorKind, idx::Idx};
    /// let promises_4_gib = [0, 0, 0x08, 1, 0xff, 0xff, 0xff, 0xff];
    /// let error = Idx::read(&promises_4_gib[..], 1 << 20).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TooLarge);
    /// ```
    pub fn read(mut reader: impl Read, max_bytes: u64) -> Result<Self, Error> {
        let mut head = Vec::new();
        reader.by_ref().take(2).read_to_end(&mut head).map_err(|error| read_error(error, Encoding::Plain))?;
        let mut whole = BufReader::new(head.chain(reader));
        if head == [0x1f, 0x8b] {
            read_gzip(&mut whole, max_bytes)
        } else {
            read_array(&mut whole, Encoding::Plain, max_bytes)
        }
    }

    /// Writes the array, plain.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, mut writer: impl Write) -> io::Result<()> {
        let rank = u8::try_from(self.dims.len()).expect("checked by `new` and `read`");
        let mut bytes = vec![0, 0, self.elements.code(), rank];
        for &dim in &self.dims {
            bytes.extend(u32::try_from(dim).expect("checked by `new` and `read`").to_be_bytes());
        }
        match &self.elements {
            Elements::U8(values) => bytes.extend(values),
            Elements::I8(values) => bytes.extend(values.iter().flat_map(|value| value.to_be_bytes())),
            Elements::I16(values) => bytes.extend(values.iter().flat_map(|value| value.to_be_bytes())),
            Elements::I32(values) => bytes.extend(values.iter().flat_map(|value| value.to_be_bytes())),
            Elements::F32(values) => bytes.extend(values.iter().flat_map(|value| value.to_be_bytes())),
            Elements::F64(values) => bytes.extend(values.iter().flat_map(|value| value.to_be_bytes())),
        }
        writer.write_all(&bytes)
    }

    /// The size of each dim; empty for a single number.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The elements, row-major.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Dims and elements, without a copy.
    pub fn into_parts(self) -> (Vec<usize>, Elements) {
        (self.dims, self.elements)
    }
}

#[cfg(feature = "gzip")]
fn read_gzip(reader: &mut dyn Read, max_bytes: u64) -> Result<Idx, Error> {
    // All members, so that bytes after the first one count as data, and the checksum at the end is compared.
    read_array(&mut flate2::read::MultiGzDecoder::new(reader), Encoding::Gzip, max_bytes)
}

#[cfg(not(feature = "gzip"))]
fn read_gzip(_reader: &mut dyn Read, _max_bytes: u64) -> Result<Idx, Error> {
    Err(Error::new(ErrorKind::Unsupported, "idx: the file is gzipped and the feature `gzip` is off"))
}

fn read_array(reader: &mut dyn Read, encoding: Encoding, max_bytes: u64) -> Result<Idx, Error> {
    let mut source = Source { reader, offset: 0, encoding };
    let [zero0, zero1, code, rank] = source.take(4, "magic number")?[..] else { unreachable!("asked for 4 bytes") };
    if [zero0, zero1] != [0, 0] {
        let message = format!("idx: an IDX file begins with two zero bytes, this one with {zero0:#04x} {zero1:#04x}");
        return Err(Error::new(ErrorKind::BadMagic, message).with_offset(0));
    }
    let element_size = match code {
        0x08 | 0x09 => 1,
        0x0B => 2,
        0x0C | 0x0D => 4,
        0x0E => 8,
        _ => {
            return Err(Error::new(ErrorKind::UnknownType, format!("idx: no type has code {code:#04x}")).with_offset(2));
        }
    };
    let dims = source.take(4 * u64::from(rank), "dims")?;
    let dims: Vec<u64> = dims.as_chunks().0.iter().map(|&dim| u64::from(u32::from_be_bytes(dim))).collect();
    let n_bytes = match byte_count(&dims, element_size) {
        None => {
            let message = format!("idx: dims {dims:?} multiply to more than 64 bits hold");
            return Err(Error::new(ErrorKind::Overflow, message).with_offset(4));
        }
        Some(n_bytes) if n_bytes > max_bytes || usize::try_from(n_bytes).is_err() => {
            let message = format!("idx: dims {dims:?} declare {n_bytes} bytes, the limit is {max_bytes}");
            return Err(Error::new(ErrorKind::TooLarge, message).with_offset(4));
        }
        Some(n_bytes) => n_bytes,
    };
    // A zero among the dims makes the product small whatever the others are.
    let to_usize = |&dim: &u64| usize::try_from(dim);
    let Ok(dims) = dims.iter().map(to_usize).collect::<Result<Vec<_>, _>>() else {
        return Err(Error::new(ErrorKind::TooLarge, format!("idx: a dim of {dims:?} is too large")).with_offset(4));
    };

    let bytes = source.take(n_bytes, "elements")?;
    source.expect_end()?;
    let elements = match code {
        0x08 => Elements::U8(bytes),
        0x09 => Elements::I8(bytes.iter().map(|&byte| byte.cast_signed()).collect()),
        0x0B => Elements::I16(bytes.as_chunks().0.iter().map(|&b| i16::from_be_bytes(b)).collect()),
        0x0C => Elements::I32(bytes.as_chunks().0.iter().map(|&b| i32::from_be_bytes(b)).collect()),
        0x0D => Elements::F32(bytes.as_chunks().0.iter().map(|&b| f32::from_be_bytes(b)).collect()),
        0x0E => Elements::F64(bytes.as_chunks().0.iter().map(|&b| f64::from_be_bytes(b)).collect()),
        _ => unreachable!("the type code was checked above"),
    };
    Ok(Idx { dims, elements })
}

fn byte_count(dims: &[u64], element_size: u64) -> Option<u64> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(element_size, |product, &dim| product.checked_mul(dim))
}

/// A reader that knows how far it is.
struct Source<'a> {
    reader: &'a mut dyn Read,
    offset: u64,
    encoding: Encoding,
}

#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    Plain,
    #[cfg(feature = "gzip")]
    Gzip,
}

impl Source<'_> {
    /// The next `n` bytes, or all that are left. The buffer grows as they arrive, so a false `n` costs nothing.
    fn take_up_to(&mut self, n: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let result = self.reader.take(n).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match result {
            Ok(_) => Ok(bytes),
            Err(error) => Err(read_error(error, self.encoding).with_offset(self.offset)),
        }
    }

    fn take(&mut self, n: u64, what: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = self.take_up_to(n)?;
        if (bytes.len() as u64) < n {
            let message = format!("idx: the {what} should take {n} bytes and end after {}", bytes.len());
            return Err(Error::new(ErrorKind::Truncated, message).with_offset(self.offset));
        }
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    /// For gzip, this read is also the one that compares the checksum.
    fn expect_end(&mut self) -> Result<(), Error> {
        let end = self.offset;
        if self.take_up_to(1)?.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TrailingData, "idx: data goes on after the last element").with_offset(end))
    }
}

fn read_error(error: io::Error, encoding: Encoding) -> Error {
    // The kinds are those with which `flate2` reports a bad stream, and one that ends early.
    let (kind, message) = match (encoding, error.kind()) {
        #[cfg(feature = "gzip")]
        (Encoding::Gzip, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            (ErrorKind::Compression, "the gzip stream is damaged")
        }
        #[cfg(feature = "gzip")]
        (Encoding::Gzip, io::ErrorKind::UnexpectedEof) => (ErrorKind::Truncated, "the gzip stream ends early"),
        _ => (ErrorKind::Io, "cannot read"),
    };
    Error::new(kind, format!("idx: {message}: {error}")).with_source(error)
}
