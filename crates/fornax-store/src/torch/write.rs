//! Writing PyTorch files.

use super::{LEGACY_VERSION, MAGIC};
use crate::archive::ArchiveWriter;
use crate::atomic::write_atomically;
use crate::lazy::on_device;
use crate::pickle::PickleWriter;
use crate::value::{Key, Plain, Value};
use crate::{Error, ErrorKind};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use fornax_tensor::{DType, Tensor};
use std::io::{self, Write};
use std::path::Path;

/// Writes values to a PyTorch file of the zip format, which `torch.load` reads. Tensors that are one value
/// ([`Tensor::is_same_value`]) share a storage. The file appears whole or not at all.
///
/// ```
/// use fornax_nn::{Linear, Module};
/// use fornax_store::{Value, Weights, save_torch};
/// use fornax_tensor::Device;
/// # let dir = std::env::temp_dir().join("fornax-store-doc-torch");
/// # std::fs::create_dir_all(&dir).unwrap();
/// let path = dir.join("layer.pt");
/// let layer = Linear::new(4, 2, &Device::cpu());
/// save_torch(&path, &Value::state_dict(&layer.state_dict()))?;
/// let weights = Weights::open(&path)?;
/// assert_eq!(weights.names().collect::<Vec<_>>(), ["weight", "bias"]);
/// # Ok::<(), fornax_store::Error>(())
/// ```
///
/// # Errors
/// If the work behind a tensor failed, a list is too deep, or the file cannot be written.
pub fn save_torch(path: impl AsRef<Path>, value: &Value) -> Result<(), Error> {
    let path = path.as_ref();
    let (pickle, storages) = pickled(value, Format::Zip).map_err(|error| error.at(path))?;
    write_atomically(path, |writer| {
        let mut archive = ArchiveWriter::new(writer);
        archive.member("archive/data.pkl", &pickle)?;
        archive.member("archive/byteorder", b"little")?;
        for (key, tensor) in storages.iter().enumerate() {
            archive.member(&format!("archive/data/{key}"), &bytes_of(tensor)?)?;
        }
        archive.member("archive/version", b"3\n")?;
        archive.finish().map(drop)
    })
}

/// Writes values to a PyTorch file of the format before 1.6. As [`save_torch`].
///
/// # Errors
/// As [`save_torch`].
pub fn save_torch_legacy(path: impl AsRef<Path>, value: &Value) -> Result<(), Error> {
    let path = path.as_ref();
    let (pickle, storages) = pickled(value, Format::Legacy).map_err(|error| error.at(path))?;
    write_atomically(path, |writer| {
        let mut magic = PickleWriter::new();
        magic.long(&MAGIC);
        writer.write_all(&magic.finish())?;
        let mut version = PickleWriter::new();
        version.int(LEGACY_VERSION);
        writer.write_all(&version.finish())?;
        writer.write_all(&machine())?;
        writer.write_all(&pickle)?;
        let mut keys = PickleWriter::new();
        keys.empty_list();
        keys.mark();
        for key in 0..storages.len() {
            keys.text(&key.to_string());
        }
        keys.appends();
        writer.write_all(&keys.finish())?;
        for tensor in &storages {
            writer.write_all(&(storage_numel(tensor) as u64).to_le_bytes())?;
            writer.write_all(&bytes_of(tensor)?)?;
        }
        Ok(())
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Zip,
    Legacy,
}

/// What the older format says of the machine.
fn machine() -> Vec<u8> {
    let mut pickle = PickleWriter::new();
    pickle.empty_dict();
    pickle.mark();
    pickle.text("protocol_version");
    pickle.int(LEGACY_VERSION);
    pickle.text("little_endian");
    pickle.bool(true);
    pickle.text("type_sizes");
    pickle.empty_dict();
    pickle.mark();
    for (name, size) in [("short", 2), ("int", 4), ("long", 4)] {
        pickle.text(name);
        pickle.int(size);
    }
    pickle.set_items();
    pickle.set_items();
    pickle.finish()
}

/// The pickle of a value, and the tensors whose storages it names by their positions.
fn pickled(value: &Value, format: Format) -> Result<(Vec<u8>, Vec<Tensor>), Error> {
    let mut writer = Writer { pickle: PickleWriter::new(), storages: Vec::new(), format };
    writer.value(value)?;
    Ok((writer.pickle.finish(), writer.storages))
}

struct Writer {
    pickle: PickleWriter,
    storages: Vec<Tensor>,
    format: Format,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value {
            Value::Plain(plain) => self.plain(plain)?,
            Value::List(values) => {
                self.pickle.empty_list();
                self.pickle.mark();
                values.iter().try_for_each(|value| self.value(value))?;
                self.pickle.appends();
            }
            Value::Dict(entries) => {
                self.pickle.empty_dict();
                self.pickle.mark();
                for (key, value) in entries {
                    match key {
                        Key::Text(text) => self.text(text)?,
                        Key::Int(key) => self.pickle.int(*key),
                    }
                    self.value(value)?;
                }
                self.pickle.set_items();
            }
            Value::Tensor(tensor) => self.tensor(tensor),
        }
        Ok(())
    }

    fn plain(&mut self, plain: &Plain) -> Result<(), Error> {
        match plain {
            Plain::None => self.pickle.none(),
            Plain::Bool(value) => self.pickle.bool(*value),
            Plain::Int(value) => self.pickle.int(*value),
            Plain::Float(value) => self.pickle.float(*value),
            Plain::Text(text) => self.text(text)?,
            Plain::List(values) => {
                self.pickle.empty_list();
                self.pickle.mark();
                values.iter().try_for_each(|value| self.plain(value))?;
                self.pickle.appends();
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::new(ErrorKind::Limit, "text of more than 4 GiB"));
        }
        self.pickle.text(text);
        Ok(())
    }

    fn tensor(&mut self, tensor: &Tensor) {
        let key = self.storages.iter().position(|other| other.is_same_value(tensor)).unwrap_or_else(|| {
            self.storages.push(tensor.detach());
            self.storages.len() - 1
        });
        let pickle = &mut self.pickle;
        let (storage, name) = names(tensor.dtype());
        // Dtypes that have no kind of storage name themselves behind an untyped one.
        pickle.global("torch._utils", if storage.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" });
        pickle.mark();
        {
            pickle.mark();
            pickle.text("storage");
            match storage {
                Some(storage) => pickle.global("torch", storage),
                None => pickle.global("torch.storage", "UntypedStorage"),
            }
            pickle.text(&key.to_string());
            pickle.text("cpu");
            pickle.int(storage_numel(tensor) as i64);
            if self.format == Format::Legacy {
                pickle.none();
            }
            pickle.tuple();
            pickle.persistent();
        }
        pickle.int(0);
        let sizes: Vec<i64> = tensor.shape().iter().map(|&size| size as i64).collect();
        let strides: Vec<i64> = tensor.shape().strides().iter().map(|&stride| stride as i64).collect();
        for numbers in [sizes, strides] {
            pickle.mark();
            numbers.into_iter().for_each(|number| pickle.int(number));
            pickle.tuple();
        }
        pickle.bool(false);
        pickle.global("collections", "OrderedDict");
        pickle.mark();
        pickle.tuple();
        pickle.reduce();
        if storage.is_none() {
            pickle.global("torch", name);
        }
        pickle.tuple();
        pickle.reduce();
    }
}

/// The kind of storage, and the name of the dtype.
fn names(dtype: DType) -> (Option<&'static str>, &'static str) {
    match dtype {
        DType::Bool => (Some("BoolStorage"), "bool"),
        DType::U8 => (Some("ByteStorage"), "uint8"),
        DType::U16 => (None, "uint16"),
        DType::U32 => (None, "uint32"),
        DType::U64 => (None, "uint64"),
        DType::I8 => (Some("CharStorage"), "int8"),
        DType::I16 => (Some("ShortStorage"), "int16"),
        DType::I32 => (Some("IntStorage"), "int32"),
        DType::I64 => (Some("LongStorage"), "int64"),
        DType::F16 => (Some("HalfStorage"), "float16"),
        DType::BF16 => (Some("BFloat16Storage"), "bfloat16"),
        DType::F32 => (Some("FloatStorage"), "float32"),
        DType::F64 => (Some("DoubleStorage"), "float64"),
    }
}

/// Elements of a tensor's storage; bytes, if it is untyped.
fn storage_numel(tensor: &Tensor) -> usize {
    let (storage, _) = names(tensor.dtype());
    if storage.is_some() { tensor.numel() } else { tensor.numel() * tensor.dtype().size() }
}

fn bytes_of(tensor: &Tensor) -> io::Result<Vec<u8>> {
    tensor.try_to_bytes().map_err(|error| io::Error::other(on_device(error)))
}
