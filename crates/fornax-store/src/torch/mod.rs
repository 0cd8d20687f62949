//! PyTorch's `.pt` and `.pth` files, of both formats.
//!
//! A zip archive has a pickle `data.pkl` and a member `data/KEY` for each storage. The older format is a chain of pickles
//! (magic number, version, machine, the object, keys of storages), then the storages. Either way the object is a graph of
//! plain values and views into storages: `tree.rs` makes it a tree, with bounds; `view.rs` reads the views.

mod tree;
mod view;
mod write;

pub use write::{save_torch, save_torch_legacy};

use crate::archive::{self, Archive};
use crate::pickle::{self, Node};
use crate::source::{Cursor, Source};
use crate::value::{Key, Value};
use crate::weights::Contents;
use crate::{Error, ErrorKind};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use fornax_tensor::{DType, Device, Tensor};
use std::path::Path;
use view::{Stored, View};

/// The first pickle of the older format, little-endian.
const MAGIC: [u8; 10] = 0x1950_a86a_20f9_469c_fc6c_u128.to_le_bytes().first_chunk::<10>().copied().unwrap();
/// The version of the older format.
const LEGACY_VERSION: i64 = 1001;
/// How much longer than the file all tensors may be: views may share or repeat elements.
const MAX_RATIO: usize = 8;
const SLACK: usize = 64 << 20;

/// Reads a PyTorch file whole, with all its dicts and lists, to `device`: `torch.load`. Tensors that share all their
/// elements share them here. Nothing in the file is executed.
///
/// ```no_run
/// use fornax_store::load_torch;
/// use fornax_tensor::Device;
/// let checkpoint = load_torch("checkpoint.pt", &Device::cpu())?;
/// let state = checkpoint.get("optimizer").and_then(|optimizer| optimizer.get("state"));
/// let first = state.and_then(|state| state.get(0)).and_then(|slot| slot.get("exp_avg"));
/// # Ok::<(), fornax_store::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is no PyTorch file, holds what is not allowed, or the device has no room.
pub fn load_torch(path: impl AsRef<Path>, device: &Device) -> Result<Value, Error> {
    let path = path.as_ref();
    let read = || -> Result<Value, Error> {
        let source = Arc::new(Source::open(path)?);
        let file = if source.starts_with(archive::MAGIC) {
            open_zip(&Arc::new(Archive::open(source)?))?
        } else {
            open_legacy(&source)?
        };
        let mut seen: BTreeMap<View, Tensor> = BTreeMap::new();
        file.tree.try_map(&mut |view| {
            if let Some(tensor) = seen.get(view) {
                return Ok(tensor.clone());
            }
            let tensor = view.lazy(&file.storages)?.read(device)?;
            seen.insert(view.clone(), tensor.clone());
            Ok(tensor)
        })
    };
    read().map_err(|error| error.at(path))
}

/// A PyTorch file whose storages are not read yet.
pub(crate) struct TorchFile {
    tree: Value<View>,
    storages: Arc<BTreeMap<String, Stored>>,
}

/// Opens a file of the zip format.
pub(crate) fn open_zip(archive: &Arc<Archive>) -> Result<TorchFile, Error> {
    // All members lie in one folder, whose name is free.
    let Some(folder) = archive.names().find_map(|name| name.strip_suffix("data.pkl")).map(ToString::to_string) else {
        return Err(Error::new(ErrorKind::Format, "a zip archive without `data.pkl`: not a PyTorch file"));
    };
    if let Some(order) = archive.size(&format!("{folder}byteorder"))
        && (order > 16 || archive.read(&format!("{folder}byteorder"))?.trim_ascii() != b"little")
    {
        return Err(big_endian());
    }
    let name = format!("{folder}data.pkl");
    let pickle = archive.read(&name)?;
    let graph = pickle::read(&mut Cursor::new(&pickle, 0))?;
    let mut storages = BTreeMap::new();
    let tree = tree::read(&graph, &mut |key: &str| {
        if !storages.contains_key(key) {
            let member = format!("{folder}data/{key}");
            let Some(size) = archive.size(&member) else {
                return Err(Error::new(ErrorKind::Format, format!("the archive has no storage {key}")));
            };
            storages.insert(key.to_string(), Stored::Member(Arc::clone(archive), member, size));
        }
        Ok(())
    })?;
    TorchFile { tree, storages: Arc::new(storages) }.checked(archive.file_len())
}

/// Whether it begins as a pickle of a number does: the protocol, then a whole number or a frame. Fewer bytes could be the
/// length of a safetensors header.
pub(crate) fn is_legacy(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, 0x8a | 0x95, 1..=255, ..])
}

/// Opens a file of the older format.
pub(crate) fn open_legacy(source: &Arc<Source>) -> Result<TorchFile, Error> {
    let cursor = &mut Cursor::new(source, 0);
    if *pickle::read(cursor)?.root() != Node::Big(MAGIC.into()) {
        return Err(Error::new(ErrorKind::Format, "a pickle that is not a PyTorch file"));
    }
    match pickle::read(cursor)?.root() {
        Node::Int(LEGACY_VERSION) => {}
        other => {
            return Err(Error::new(ErrorKind::Unsupported, format!("version {other:?} of PyTorch's older format")));
        }
    }
    let machine = pickle::read(cursor)?;
    if let Node::Dict(entries) = machine.root()
        && entries.iter().any(|&(key, value)| {
            machine.text(key) == Some("little_endian") && *machine.node(value) == Node::Bool(false)
        })
    {
        return Err(big_endian());
    }
    let graph = pickle::read(cursor)?;
    let keys = pickle::read(cursor)?;
    let mut dtypes = BTreeMap::new();
    tree::storages(&graph, &mut |key, dtype| {
        dtypes.insert(key.to_string(), dtype);
    })?;
    let mut storages = BTreeMap::new();
    for &key in keys.sequence(keys.root).unwrap_or_default() {
        let Some(key) = keys.text(key) else {
            return Err(Error::new(ErrorKind::Format, "the key of a storage is not text"));
        };
        let Some(dtype) = dtypes.get(key) else {
            return Err(Error::new(ErrorKind::Format, format!("storage {key} belongs to no tensor")));
        };
        let numel = cursor.length()?;
        let size = numel.saturating_mul(dtype.size());
        let start = cursor.position;
        cursor.take(size).map_err(|error| error.within(&format!("storage {key}")))?;
        let stored = Stored::Range(Arc::clone(source), start..start + size);
        if storages.insert(key.to_string(), stored).is_some() {
            return Err(Error::new(ErrorKind::Format, format!("two storages have the key {key}")));
        }
    }
    let tree = tree::read(&graph, &mut |key: &str| match storages.contains_key(key) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Format, format!("the file has no storage {key}"))),
    })?;
    TorchFile { tree, storages: Arc::new(storages) }.checked(source.len())
}

impl TorchFile {
    /// All tensors and plain values by their paths: keys and positions, joined by dots.
    pub fn flat(&self) -> Result<Contents, Error> {
        let mut flat = (Vec::new(), Vec::new());
        let mut bytes = 0;
        self.flatten(&self.tree, &mut String::new(), &mut bytes, &mut flat)?;
        Ok(flat)
    }

    fn flatten(
        &self,
        value: &Value<View>,
        path: &mut String,
        bytes: &mut usize,
        flat: &mut Contents,
    ) -> Result<(), Error> {
        *bytes += path.len();
        if *bytes > SLACK {
            return Err(Error::new(ErrorKind::Limit, format!("more than {SLACK} bytes of names")));
        }
        let mut down = |segment: &dyn core::fmt::Display, value: &Value<View>, flat: &mut Contents| {
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(&segment.to_string());
            let result = self.flatten(value, path, bytes, flat);
            path.truncate(length);
            result
        };
        match value {
            Value::Plain(plain) => flat.1.push((path.clone(), plain.clone())),
            Value::List(values) => {
                values.iter().enumerate().try_for_each(|(i, value)| down(&i, value, flat))?;
            }
            Value::Dict(entries) => entries.iter().try_for_each(|(key, value): &(Key, _)| down(key, value, flat))?,
            Value::Tensor(view) => flat.0.push((path.clone(), view.lazy(&self.storages)?)),
        }
        Ok(())
    }

    /// Every view lies in its storage, and together they are not much more than the file.
    fn checked(self, file: usize) -> Result<TorchFile, Error> {
        let mut seen = alloc::collections::BTreeSet::new();
        let mut total = 0_usize;
        self.tree.try_map(&mut |view| {
            view.check(&self.storages)?;
            if seen.insert(view.clone()) {
                total = total.saturating_add(crate::lazy::size_in_bytes(view.dtype, &view.shape())?);
            }
            Ok::<(), Error>(())
        })?;
        if total > file.saturating_mul(MAX_RATIO).saturating_add(SLACK) {
            let message = format!("tensors of {total} bytes in a file of {file}");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(self)
    }
}

/// The dtype of a kind of storage or a dtype's own name; none for an untyped storage.
fn dtype_of(global: &str) -> Result<Option<DType>, Error> {
    Ok(Some(match global {
        "torch.storage.UntypedStorage" => return Ok(None),
        "torch.FloatStorage" | "torch.float32" => DType::F32,
        "torch.DoubleStorage" | "torch.float64" => DType::F64,
        "torch.HalfStorage" | "torch.float16" => DType::F16,
        "torch.BFloat16Storage" | "torch.bfloat16" => DType::BF16,
        "torch.LongStorage" | "torch.int64" => DType::I64,
        "torch.IntStorage" | "torch.int32" => DType::I32,
        "torch.ShortStorage" | "torch.int16" => DType::I16,
        "torch.CharStorage" | "torch.int8" => DType::I8,
        "torch.ByteStorage" | "torch.uint8" => DType::U8,
        "torch.BoolStorage" | "torch.bool" => DType::Bool,
        "torch.uint16" => DType::U16,
        "torch.uint32" => DType::U32,
        "torch.uint64" => DType::U64,
        other => return Err(Error::new(ErrorKind::Format, format!("{other} is no dtype"))),
    }))
}

fn big_endian() -> Error {
    Error::new(ErrorKind::Unsupported, "written on a big-endian machine; help: save it again on a little-endian one")
}

/// A part of a file.
type Bytes = Range<usize>;
