//! GGUF files, versions 2 and 3: metadata, and tensors, of which quantized ones become `f32`.
//!
//! # References
//! The format's description in the ggml project: `docs/gguf.md`.

mod quant;

use crate::lazy::{LazyTensor, tensor_of};
use crate::source::{Cursor, Source};
use crate::value::Plain;
use crate::weights::Contents;
use crate::{Error, ErrorKind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use fornax_tensor::{DType, Shape};
use quant::Kind;

pub(crate) const MAGIC: &[u8] = b"GGUF";
/// How many values all lists may have; vocabularies have some hundred thousand.
const MAX_LISTED: usize = 4_000_000;
/// How deep lists may be nested.
const MAX_DEPTH: usize = 4;
/// The format has tensors of at most 4 dims.
const MAX_RANK: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;

/// Reads metadata and the list of tensors. Shapes are given as elsewhere: the last dim is the one that lies together.
pub(crate) fn open(source: &Arc<Source>) -> Result<Contents, Error> {
    let mut reader = Reader { cursor: Cursor::new(source, MAGIC.len()), listed: 0 };
    match reader.cursor.u32()? {
        2 | 3 => {}
        version if (1..1 << 16).contains(&version.swap_bytes()) => {
            return Err(Error::new(ErrorKind::Unsupported, "a big-endian GGUF file"));
        }
        version => return Err(Error::new(ErrorKind::Unsupported, format!("version {version} of GGUF"))),
    }
    let n_tensors = reader.cursor.length()?;
    let n_values = reader.cursor.length()?;
    let mut values = Vec::new();
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..n_values {
        let name = reader.text()?;
        let value = reader.value().map_err(|error| error.within(&name))?;
        if name == "general.alignment" {
            let given = value.as_int().and_then(|value| usize::try_from(value).ok());
            alignment = given
                .filter(|value| value.is_power_of_two() && *value <= 1 << 20)
                .ok_or_else(|| Error::new(ErrorKind::Format, format!("{name}: {value:?} is no alignment")))?;
        }
        values.push((name, value));
    }
    let mut infos = Vec::new();
    for _ in 0..n_tensors {
        let name = reader.text()?;
        infos.push(reader.info(&name).map_err(|error| error.within(&name))?.named(name));
    }
    let start = reader.cursor.position.next_multiple_of(alignment);
    let data = source.len().saturating_sub(start);
    let mut names = BTreeSet::new();
    let (mut tensors, mut total) = (Vec::new(), 0_usize);
    for info in &infos {
        let fail = |what: &str| Err(Error::new(ErrorKind::Format, format!("{}: {what}", info.name)));
        if !names.insert(&info.name) {
            return fail("two tensors have this name");
        }
        let Some(size) = info.kind.size(&info.shape) else { return fail("its rows are not whole blocks") };
        if info.offset % alignment != 0 || info.offset > data || size > data - info.offset {
            return fail(&format!("{size} bytes from {} leave the data of {data} bytes", info.offset));
        }
        total = total.saturating_add(size);
        if total > data {
            return fail("tensors overlap");
        }
        tensors.push((info.name.clone(), info.lazy(source, start + info.offset, size)));
    }
    Ok((tensors, values))
}

struct Info {
    name: String,
    shape: Shape,
    kind: Kind,
    offset: usize,
}

impl Info {
    fn named(mut self, name: String) -> Info {
        self.name = name;
        self
    }

    fn lazy(&self, source: &Arc<Source>, start: usize, size: usize) -> LazyTensor {
        let (source, kind, shape) = (Arc::clone(source), self.kind, self.shape.clone());
        LazyTensor::new(kind.dtype(), self.shape.clone(), move |device| {
            let bytes = source.slice(start..start + size)?;
            match kind {
                Kind::Plain(dtype) => tensor_of(dtype, &shape, bytes, device),
                Kind::Quantized(quant) => {
                    let values: Vec<u8> = quant.dequantize(bytes).into_iter().flat_map(f32::to_le_bytes).collect();
                    tensor_of(DType::F32, &shape, &values, device)
                }
            }
        })
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    listed: usize,
}

impl Reader<'_> {
    fn text(&mut self) -> Result<String, Error> {
        let length = self.cursor.length()?;
        let bytes = self.cursor.take(length)?;
        // Vocabularies of byte-level tokenizers have tokens that are no text alone.
        Ok(String::from_utf8_lossy(bytes).to_string())
    }

    fn info(&mut self, name: &str) -> Result<Info, Error> {
        let rank = self.cursor.u32()?;
        if rank > MAX_RANK {
            return Err(Error::new(ErrorKind::Format, format!("{rank} dims")));
        }
        let mut sizes = (0..rank).map(|_| self.cursor.length()).collect::<Result<Vec<_>, _>>()?;
        sizes.reverse();
        let kind = self.cursor.u32()?;
        let Some(kind) = Kind::of(kind) else {
            return Err(Error::new(ErrorKind::Unsupported, format!("{name}: values of kind {kind}")));
        };
        Ok(Info { name: String::new(), shape: Shape::from(sizes), kind, offset: self.cursor.length()? })
    }

    fn value(&mut self) -> Result<Plain, Error> {
        let kind = self.cursor.u32()?;
        self.value_of(kind, 0)
    }

    fn value_of(&mut self, kind: u32, depth: usize) -> Result<Plain, Error> {
        let cursor = &mut self.cursor;
        Ok(match kind {
            0 => Plain::Int(cursor.u8()?.into()),
            1 => Plain::Int(i8::from_le_bytes(cursor.array()?).into()),
            2 => Plain::Int(u16::from_le_bytes(cursor.array()?).into()),
            3 => Plain::Int(i16::from_le_bytes(cursor.array()?).into()),
            4 => Plain::Int(cursor.u32()?.into()),
            5 => Plain::Int(i32::from_le_bytes(cursor.array()?).into()),
            6 => Plain::Float(f32::from_le_bytes(cursor.array()?).into()),
            7 => match cursor.u8()? {
                0 => Plain::Bool(false),
                1 => Plain::Bool(true),
                other => return Err(Error::new(ErrorKind::Format, format!("{other} is no truth value"))),
            },
            8 => Plain::Text(self.text()?),
            9 => return self.list(depth + 1),
            10 => match i64::try_from(cursor.u64()?) {
                Ok(value) => Plain::Int(value),
                Err(_) => return Err(Error::new(ErrorKind::Unsupported, "a whole number beyond 63 bits")),
            },
            11 => Plain::Int(i64::from_le_bytes(cursor.array()?)),
            12 => Plain::Float(f64::from_le_bytes(cursor.array()?)),
            other => return Err(Error::new(ErrorKind::Format, format!("there is no kind {other} of metadata"))),
        })
    }

    fn list(&mut self, depth: usize) -> Result<Plain, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::Limit, format!("lists nested deeper than {MAX_DEPTH}")));
        }
        let kind = self.cursor.u32()?;
        let length = self.cursor.length()?;
        self.listed = self.listed.saturating_add(length);
        if self.listed > MAX_LISTED {
            return Err(Error::new(ErrorKind::Limit, format!("lists of more than {MAX_LISTED} values")));
        }
        // Each value takes a byte at least.
        if length > self.cursor.left() {
            return Err(Error::new(ErrorKind::Format, format!("truncated: a list of {length} values")));
        }
        (0..length).map(|_| self.value_of(kind, depth)).collect::<Result<_, _>>().map(Plain::List)
    }
}
