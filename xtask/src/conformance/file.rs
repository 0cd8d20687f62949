//! [`Data`]: a tensor as plain bytes, and the safetensors files that hold them.

use fornax_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The tensors of a file, by name.
pub type Tensors = HashMap<String, Data>;

/// A tensor outside any device.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Row-major, little-endian.
    pub bytes: Vec<u8>,
}

impl Data {
    /// Reads a tensor back from its device.
    pub fn of(tensor: &Tensor) -> Result<Data, String> {
        let bytes = tensor.detach().try_to_bytes().map_err(|error| format!("cannot be read: {error}"))?;
        Ok(Data { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), bytes })
    }

    /// A tensor on `device`.
    pub fn upload(&self, device: &Device) -> Tensor {
        Tensor::from_bytes(self.dtype, self.shape.as_slice(), &self.bytes, device)
    }
}

/// Reads a safetensors file. The `safetensors` crate holds lengths against the file and sizes against shapes.
pub fn read(path: &Path) -> Result<Tensors, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(bytes: &[u8]) -> Result<Tensors, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut tensors = HashMap::new();
    for (name, view) in file.iter() {
        let dtype = format!("{:?}", view.dtype()).to_ascii_lowercase();
        let dtype = DType::from_name(&dtype).ok_or_else(|| format!("{name}: there is no dtype {dtype}"))?;
        tensors.insert(name.to_string(), Data { dtype, shape: view.shape().to_vec(), bytes: view.data().to_vec() });
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn tensors_are_read() {
        let header = r#"{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},
            "y":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}}"#;
        let tensors = parse(&file(header, &[1, 2, 3, 4, 1])).unwrap();
        assert_eq!(tensors["x"], Data { dtype: DType::BF16, shape: vec![2], bytes: vec![1, 2, 3, 4] });
        assert_eq!(tensors["y"], Data { dtype: DType::Bool, shape: vec![], bytes: vec![1] });
    }

    #[test]
    fn hostile_files_are_refused() {
        let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        assert!(parse(&file(header, &[0; 8])).is_ok());
        assert!(parse(&file(header, &[0; 4])).is_err(), "the data is cut off");
        assert!(parse(b"").is_err());
        assert!(parse(&u64::MAX.to_le_bytes()).is_err(), "a header longer than the file");
        let header = header.replace("[2]", "[3]");
        assert!(parse(&file(&header, &[0; 8])).is_err(), "the shape does not fit the data");
        let header = header.replace("[3]", "[4611686018427387904, 8]");
        assert!(parse(&file(&header, &[0; 8])).is_err(), "the shape overflows");
    }
}
