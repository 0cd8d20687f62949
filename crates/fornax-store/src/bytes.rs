//! The safetensors format, from and to bytes.
//!
//! The `safetensors` crate parses and checks headers: lengths against the file, offsets against each other, sizes against
//! shapes. Nothing is allocated from a length that was not checked.

use crate::json::unique;
use crate::lazy::tensor_of;
use crate::{Error, ErrorKind};
#[cfg(feature = "std")]
use crate::{lazy::LazyTensor, source::Source, value::Plain, weights::Contents};
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
#[cfg(feature = "std")]
use alloc::sync::Arc;
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Shape, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::de::IgnoredAny;

/// The tensors of a safetensors file, by name, on `device`.
///
/// # Errors
/// If the bytes are no safetensors file, hold a dtype that tensors do not have, or the device has no room.
pub fn from_bytes(bytes: &[u8], device: &Device) -> Result<Vec<(String, Tensor)>, Error> {
    check_header(bytes)?;
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| Error::new(ErrorKind::Format, format!("not a safetensors file: {error}")).caused_by(error))?;
    let mut tensors = Vec::with_capacity(file.len());
    for (name, view) in file.iter() {
        let dtype = from_dtype(view.dtype()).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{name}: dtype {:?} is not supported", view.dtype()))
        })?;
        let tensor = tensor_of(dtype, &Shape::from(view.shape()), view.data(), device);
        let tensor = tensor.map_err(|error| error.within(name))?;
        tensors.push((name.to_string(), tensor));
    }
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(tensors)
}

/// A longer header is of no model: one of 100 000 tensors has 12 MB.
const MAX_HEADER: u64 = 32 << 20;

/// What `safetensors` does not check: that the header is not too long and names are different.
fn check_header(bytes: &[u8]) -> Result<(), Error> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Err(Error::new(ErrorKind::Format, "not a safetensors file: it is too short"));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        let message = format!("not a safetensors file: a header of {length} bytes");
        return Err(Error::new(ErrorKind::Format, message));
    }
    let header = rest.get(..length as usize);
    let header = header.ok_or_else(|| Error::new(ErrorKind::Format, "not a safetensors file: truncated"))?;
    let mut reader = serde_json::Deserializer::from_slice(header);
    unique::<IgnoredAny, _>(&mut reader)
        .and_then(|_| reader.end())
        .map_err(|error| Error::new(ErrorKind::Format, format!("not a safetensors file: {error}")).caused_by(error))
}

/// Reads the header; tensors and metadata in it.
#[cfg(feature = "std")]
pub(crate) fn open(source: &Arc<Source>) -> Result<Contents, Error> {
    check_header(source)?;
    let (length, metadata) = SafeTensors::read_metadata(source)
        .map_err(|error| Error::new(ErrorKind::Format, format!("not a safetensors file: {error}")).caused_by(error))?;
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("it has just given the name");
        let dtype = from_dtype(info.dtype).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{name}: dtype {:?} is not supported", info.dtype))
        })?;
        let start = 8 + length;
        let range = start + info.data_offsets.0..start + info.data_offsets.1;
        let (source, shape) = (Arc::clone(source), Shape::from(&info.shape[..]));
        let read_shape = shape.clone();
        let read = move |device: &Device| tensor_of(dtype, &read_shape, source.slice(range.clone())?, device);
        tensors.push((name, LazyTensor::new(dtype, shape, read)));
    }
    let texts = metadata.metadata().iter().flatten();
    let mut values: Vec<_> = texts.map(|(name, text)| (name.clone(), Plain::Text(text.clone()))).collect();
    values.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((tensors, values))
}

/// Tensors as the bytes of a safetensors file, with text metadata.
///
/// # Errors
/// If the work behind a tensor failed, or two have one name.
pub fn to_bytes(tensors: &[(String, Tensor)], metadata: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
    let mut names = BTreeSet::new();
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        if !names.insert(name.as_str()) {
            return Err(Error::new(ErrorKind::Format, format!("{name}: two tensors have this name")));
        }
        if name == "__metadata__" {
            return Err(Error::new(ErrorKind::Format, format!("{name}: the format uses this name itself")));
        }
        entries.push((name.as_str(), Entry::read(name, tensor)?));
    }
    let text = || metadata.iter().map(|&(key, value)| (key.to_string(), value.to_string())).collect();
    let metadata = (!metadata.is_empty()).then(text);
    safetensors::serialize(entries, metadata)
        .map_err(|error| Error::new(ErrorKind::Format, format!("cannot be written: {error}")).caused_by(error))
}

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Entry {
    fn read(name: &str, tensor: &Tensor) -> Result<Entry, Error> {
        let bytes = tensor
            .try_to_bytes()
            .map_err(|error| Error::new(ErrorKind::Device, format!("{name}: {error}")).caused_by(error))?;
        Ok(Entry { dtype: to_dtype(tensor.dtype()), shape: tensor.shape().to_vec(), bytes })
    }
}

impl View for Entry {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn to_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn from_dtype(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&own| to_dtype(own) == dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_dtype_survives_the_round_trip() {
        let device = Device::reference();
        let tensors: Vec<(String, Tensor)> = DType::ALL
            .into_iter()
            .map(|dtype| (dtype.name().to_string(), Tensor::arange(0, 6, 1, dtype, &device).reshape([2, 3])))
            .collect();
        let bytes = to_bytes(&tensors, &[("made by", "a test")]).unwrap();
        let back = from_bytes(&bytes, &device).unwrap();
        assert_eq!(back.len(), tensors.len());
        for (name, tensor) in &tensors {
            let (_, found) = back.iter().find(|(other, _)| other == name).unwrap();
            assert_eq!(found.dtype(), tensor.dtype());
            assert_eq!(found.shape(), tensor.shape());
            assert_eq!(found.to_bytes(), tensor.to_bytes());
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let device = Device::reference();
        let good = to_bytes(&[("x".to_string(), Tensor::ones([4], &device))], &[]).unwrap();
        for end in 0..good.len() {
            assert_eq!(from_bytes(&good[..end], &device).unwrap_err().kind(), ErrorKind::Format, "cut at {end}");
        }
        for header in [
            r#"{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}}"#,
            r#"{"x":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,16]}}"#,
            r#"{"x":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}"#,
            r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}}"#,
            r#"{"x":{"dtype":"Q7","shape":[4],"data_offsets":[0,16]}}"#,
            r#"{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"y":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
            "[[[[[[[[[[",
            "{",
        ] {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(&[0; 16]);
            assert_eq!(from_bytes(&bytes, &device).unwrap_err().kind(), ErrorKind::Format, "{header}");
        }
        let mut huge = vec![0xff; 8];
        huge.extend_from_slice(b"{}");
        assert_eq!(from_bytes(&huge, &device).unwrap_err().kind(), ErrorKind::Format);
    }

    #[test]
    fn bytes_that_are_no_truth_values_are_refused() {
        let device = Device::reference();
        let truth = Tensor::from_vec(vec![true, false, true], [3], &device);
        let mut bytes = to_bytes(&[("mask".to_string(), truth)], &[]).unwrap();
        assert!(from_bytes(&bytes, &device).is_ok());
        *bytes.last_mut().unwrap() = 7;
        let error = from_bytes(&bytes, &device).unwrap_err();
        assert_eq!(error.to_string(), "mask: byte 2 is 7, no truth value");
    }

    #[test]
    fn names_that_cannot_be_read_back_are_refused() {
        let one = Tensor::ones([1], &Device::reference());
        let twice = [("x".to_string(), one.clone()), ("x".to_string(), one.clone())];
        assert_eq!(to_bytes(&twice, &[]).unwrap_err().kind(), ErrorKind::Format);
        assert_eq!(to_bytes(&[("__metadata__".to_string(), one)], &[]).unwrap_err().kind(), ErrorKind::Format);
    }

    #[test]
    fn scalars_and_empty_tensors_survive_the_round_trip() {
        let device = Device::reference();
        let tensors = [
            ("empty".to_string(), Tensor::zeros([3, 0, 2], &device)),
            ("scalar".to_string(), Tensor::ones((), &device)),
        ];
        let back = from_bytes(&to_bytes(&tensors, &[]).unwrap(), &device).unwrap();
        assert_eq!(back[0].1.dims(), [3, 0, 2]);
        assert_eq!(back[1].1.item::<f32>(), 1.0);
        assert!(from_bytes(&to_bytes(&[], &[]).unwrap(), &device).unwrap().is_empty());
    }

    #[test]
    fn changed_headers_never_panic() {
        let device = Device::reference();
        let tensors = [
            ("a.weight".to_string(), Tensor::ones([2, 3], &device)),
            ("b".to_string(), Tensor::full([4], 1, DType::I64, &device)),
        ];
        let good = to_bytes(&tensors, &[("k", "v")]).unwrap();
        let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize + 8;
        for position in 0..header {
            for byte in [0, b'0', b'9', b'"', b'{', b']', b'-', 0xff, good[position] ^ 1] {
                let mut bytes = good.clone();
                bytes[position] = byte;
                // Either is fine; no panic, no giant allocation.
                drop(from_bytes(&bytes, &device));
            }
        }
    }
}
