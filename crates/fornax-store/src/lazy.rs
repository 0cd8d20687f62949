//! [`LazyTensor`]: a tensor whose values are read from its file when they are asked for.

use crate::{Error, ErrorKind};
use alloc::format;
#[cfg(feature = "std")]
use alloc::sync::Arc;
#[cfg(feature = "std")]
use core::fmt;
use fornax_tensor::{DType, Device, Shape, Tensor};

#[cfg(feature = "std")]
type Read = dyn Fn(&Device) -> Result<Tensor, Error> + Send + Sync;

#[cfg(feature = "std")]
/// Dtype and shape of a tensor, and the way to its values. Cloning it is cheap.
#[derive(Clone)]
pub struct LazyTensor {
    dtype: DType,
    shape: Shape,
    read: Arc<Read>,
}

#[cfg(feature = "std")]
impl LazyTensor {
    pub(crate) fn new(
        dtype: DType,
        shape: Shape,
        read: impl Fn(&Device) -> Result<Tensor, Error> + Send + Sync + 'static,
    ) -> LazyTensor {
        LazyTensor { dtype, shape, read: Arc::new(read) }
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Reads the values to a device.
    ///
    /// # Errors
    /// If the file is damaged there, or the device has no room.
    pub fn read(&self, device: &Device) -> Result<Tensor, Error> {
        (self.read)(device)
    }

    /// What becomes of it by tensor ops, which `shape` says before they are run.
    pub(crate) fn then(
        &self,
        dtype: DType,
        shape: Shape,
        f: impl Fn(&Tensor) -> fornax_tensor::Result<Tensor> + Send + Sync + 'static,
    ) -> LazyTensor {
        let before = self.clone();
        LazyTensor::new(dtype, shape, move |device| f(&before.read(device)?).map_err(on_device))
    }
}

#[cfg(feature = "std")]
impl fmt::Debug for LazyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LazyTensor({}{})", self.dtype, self.shape)
    }
}

pub(crate) fn on_device(error: fornax_tensor::Error) -> Error {
    Error::new(ErrorKind::Device, format!("{error}")).caused_by(error)
}

#[cfg(feature = "std")]
/// The bytes that a tensor takes, if they can be counted.
pub(crate) fn size_in_bytes(dtype: DType, shape: &Shape) -> Result<usize, Error> {
    let size = shape.checked_numel().and_then(|numel| numel.checked_mul(dtype.size()));
    size.ok_or_else(|| Error::new(ErrorKind::Format, format!("{dtype}{shape} has more elements than can be counted")))
}

/// A tensor of little-endian bytes; bytes that are no truth values are refused.
pub(crate) fn tensor_of(dtype: DType, shape: &Shape, bytes: &[u8], device: &Device) -> Result<Tensor, Error> {
    if dtype == DType::Bool
        && let Some(position) = bytes.iter().position(|&byte| byte > 1)
    {
        let message = format!("byte {position} is {}, no truth value", bytes[position]);
        return Err(Error::new(ErrorKind::Format, message));
    }
    Tensor::try_from_bytes(dtype, shape, bytes, device).map_err(on_device)
}
