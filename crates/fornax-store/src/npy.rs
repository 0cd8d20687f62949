//! NumPy's NPY files, and NPZ archives of them.
//!
//! # References
//! `numpy.lib.format`, versions 1.0 to 3.0.

use crate::archive::{Archive, ArchiveWriter};
use crate::atomic::write_atomically;
use crate::lazy::{LazyTensor, on_device, size_in_bytes, tensor_of};
use crate::source::{Cursor, Source};
use crate::{Error, ErrorKind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Shape, Tensor};
use std::path::Path;

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are short; the format's older version allows 65535 bytes.
const MAX_HEADER: usize = 65_536;
/// Where data begin, so that mapped arrays are aligned.
const ALIGNMENT: usize = 64;

/// The array of an NPY file.
pub(crate) fn open(source: &Arc<Source>) -> Result<LazyTensor, Error> {
    let header = Header::read(source)?;
    let size = header.size()?;
    Cursor::new(source, header.start).take(size)?;
    let (source, range) = (Arc::clone(source), header.start..header.start + size);
    Ok(header.lazy(move |header, device| header.tensor(source.slice(range.clone())?, device)))
}

/// The arrays of an NPZ archive.
pub(crate) fn open_zip(archive: &Arc<Archive>) -> Result<Vec<(String, LazyTensor)>, Error> {
    let mut tensors = Vec::new();
    for member in archive.names() {
        let Some(name) = member.strip_suffix(".npy").map(ToString::to_string) else {
            return Err(Error::new(ErrorKind::Format, format!("member {member} is no array: not an NPZ file")));
        };
        let header = archive.head(member, MAX_HEADER).and_then(|head| Header::read(&head));
        let header = header.map_err(|error| error.within(&name))?;
        let end = header.size()?.checked_add(header.start);
        if end.is_none() || end != archive.size(member) {
            let message = format!("{name}: {}{} is not what the member holds", header.dtype, header.shape);
            return Err(Error::new(ErrorKind::Format, message));
        }
        let (archive, member, start) = (Arc::clone(archive), member.to_string(), header.start);
        let tensor = header.lazy(move |header, device| header.tensor(&archive.read(&member)?[start..], device));
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

/// Writes tensors to an NPZ archive that `numpy.load` reads. `bf16`, which NumPy does not have, is written as `f32`. The
/// file appears whole or not at all.
///
/// # Errors
/// If the work behind a tensor failed, two have one name, or the file cannot be written.
pub fn save_npz(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let path = path.as_ref();
    let mut names = BTreeSet::new();
    if let Some((name, _)) = tensors.iter().find(|(name, _)| !names.insert(name)) {
        return Err(Error::new(ErrorKind::Format, format!("{name}: two tensors have this name")).at(path));
    }
    write_atomically(path, |writer| {
        let mut archive = ArchiveWriter::new(writer);
        for (name, tensor) in tensors {
            let tensor = if tensor.dtype() == DType::BF16 { tensor.to_dtype(DType::F32) } else { tensor.clone() };
            let mut bytes = header(&tensor);
            bytes.extend(tensor.try_to_bytes().map_err(|error| std::io::Error::other(on_device(error)))?);
            archive.member(&format!("{name}.npy"), &bytes)?;
        }
        archive.finish().map(drop)
    })
}

fn header(tensor: &Tensor) -> Vec<u8> {
    let sizes: String = tensor.shape().iter().map(|size| format!("{size}, ")).collect();
    let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({sizes}), }}", code(tensor.dtype()));
    let length = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.extend(core::iter::repeat_n(' ', length - MAGIC.len() - 4 - text.len() - 1));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn code(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::BF16 => unreachable!("written as f32"),
    }
}

#[derive(Clone)]
struct Header {
    dtype: DType,
    /// As NumPy gives it.
    shape: Shape,
    /// Whether the first dim is the one that lies together.
    is_fortran: bool,
    /// Where the data begin.
    start: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Header, Error> {
        if !bytes.starts_with(MAGIC) {
            return Err(wrong("not an NPY file"));
        }
        let mut cursor = Cursor::new(bytes, MAGIC.len());
        let length = match cursor.array()? {
            [1, _] => u16::from_le_bytes(cursor.array()?).into(),
            [2 | 3, _] => cursor.u32()? as usize,
            [version, _] => {
                return Err(Error::new(ErrorKind::Unsupported, format!("version {version} of NPY")));
            }
        };
        let text = cursor.take(length)?;
        let text = core::str::from_utf8(text).map_err(|_| wrong("a header that is not text"))?;
        let mut header = Dict(text).read()?;
        header.start = cursor.position;
        Ok(header)
    }

    fn size(&self) -> Result<usize, Error> {
        size_in_bytes(self.dtype, &self.shape)
    }

    fn lazy(self, read: impl Fn(&Header, &Device) -> Result<Tensor, Error> + Send + Sync + 'static) -> LazyTensor {
        LazyTensor::new(self.dtype, self.shape.clone(), move |device| read(&self, device))
    }

    fn tensor(&self, bytes: &[u8], device: &Device) -> Result<Tensor, Error> {
        if !self.is_fortran {
            return tensor_of(self.dtype, &self.shape, bytes, device);
        }
        let turned: Shape = self.shape.iter().rev().copied().collect();
        let order: Vec<i64> = (0..self.shape.len() as i64).rev().collect();
        tensor_of(self.dtype, &turned, bytes, device)?.try_permute(&order).map_err(on_device)
    }
}

/// The Python dict of a header: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
struct Dict<'a>(&'a str);

impl<'a> Dict<'a> {
    fn read(mut self) -> Result<Header, Error> {
        let (mut dtype, mut is_fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.skip("}") {
            let key = self.quoted()?;
            self.expect(":")?;
            let is_new = match key {
                "descr" => dtype.replace(self.dtype()?).is_none(),
                "fortran_order" => is_fortran.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => false,
            };
            if !is_new {
                return Err(wrong(&format!("a header with a second or unknown key {key}")));
            }
            if !self.skip(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.0.trim().is_empty() {
            return Err(wrong("a header with more than its dict"));
        }
        match (dtype, is_fortran, shape) {
            (Some(dtype), Some(is_fortran), Some(shape)) => Ok(Header { dtype, shape, is_fortran, start: 0 }),
            _ => Err(wrong("a header without dtype, order or shape")),
        }
    }

    /// Passes over a token, if it comes next.
    fn skip(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), Error> {
        if self.skip(token) { Ok(()) } else { Err(wrong(&format!("a header without {token} where it should be"))) }
    }

    fn quoted(&mut self) -> Result<&'a str, Error> {
        self.expect("'")?;
        let (text, rest) = self.0.split_once('\'').ok_or_else(|| wrong("a header with an open quote"))?;
        self.0 = rest;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, Error> {
        if self.skip("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn dtype(&mut self) -> Result<DType, Error> {
        if !self.0.trim_start().starts_with('\'') {
            return Err(Error::new(ErrorKind::Unsupported, "an array of records"));
        }
        let given = self.quoted()?;
        let known = DType::ALL.into_iter().filter(|&dtype| dtype != DType::BF16);
        if let Some(dtype) = known.into_iter().find(|&dtype| given == code(dtype)) {
            return Ok(dtype);
        }
        let what = match given {
            _ if given.starts_with('>') => "; help: big-endian arrays can be saved again with `.astype('<f4')`",
            "|O" => "; arrays of Python objects are never read",
            _ => "",
        };
        Err(Error::new(ErrorKind::Unsupported, format!("values of kind {given}{what}")))
    }

    fn shape(&mut self) -> Result<Shape, Error> {
        self.expect("(")?;
        let mut sizes = Vec::new();
        while !self.skip(")") {
            self.0 = self.0.trim_start();
            let length = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.0.split_at(length);
            sizes.push(number.parse().map_err(|_| wrong("a shape that is none"))?);
            self.0 = rest;
            if sizes.len() > 64 {
                return Err(wrong("a shape of more than 64 dims"));
            }
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Shape::from(sizes))
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Format, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_or_refused() {
        let header = Dict("{'shape': (2, 3), 'fortran_order': True, 'descr': '<f8'}  \n").read().unwrap();
        assert_eq!((header.dtype, &header.shape[..], header.is_fortran), (DType::F64, &[2, 3][..], true));
        assert!(Dict("{'descr': '|b1', 'fortran_order': False, 'shape': (), }").read().unwrap().shape.is_empty());
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
            "{'descr': '<f4",
        ] {
            assert_eq!(Dict(text).read().err().map(|error| error.kind()), Some(ErrorKind::Format), "{text}");
        }
        for descr in ["'>f4'", "'|O'", "'<c8'", "[('x', '<f4')]"] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}");
            assert_eq!(Dict(&text).read().err().map(|error| error.kind()), Some(ErrorKind::Unsupported), "{text}");
        }
    }
}
