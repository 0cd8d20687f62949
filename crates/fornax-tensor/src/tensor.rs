//! [`Tensor`]: the struct, making tensors from host data, and reading them back. Ops live in `ops`.

use crate::autodiff::Tape;
use crate::node::Value;
use crate::sync::block_on;
use crate::{Device, primitive};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::panic::Location;
use fornax_ir::{DType, Element, Error, ErrorKind, Result, Scalar, Shape};

/// An array of numbers on a device: lazy, differentiable, cheap to clone.
///
/// Rank, sizes, dtype and device are known at run time. Ops record work; it runs when a value is read, at
/// [`Device::flush`], or at the end of an optimizer step, and then as one fused program.
///
/// ```
/// use fornax_tensor::Tensor;
/// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let y = (&x + 1.0).matmul(&x);
/// assert_eq!(y.dims(), [2, 2]);
/// assert_eq!(y.to_vec::<f32>(), [11.0, 16.0, 19.0, 28.0]);
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) value: Value,
    pub(crate) tape: Option<Arc<Tape>>,
}

impl Tensor {
    pub(crate) fn untracked(value: Value) -> Tensor {
        Tensor { value, tape: None }
    }

    /// The sizes of the dims.
    pub fn shape(&self) -> &Shape {
        &self.value.node.shape
    }

    /// The sizes of the dims as an array.
    ///
    /// # Panics
    /// If the rank is not `N`.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        match self.shape().dims().try_into() {
            Ok(dims) => dims,
            Err(_) => Error::shape("dims", format!("expected rank {N}, got {}", self.shape())).raise(),
        }
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape().numel()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.value.node.dtype
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.value.device
    }

    /// A new leaf with this value: gradients will be collected for it.
    ///
    /// # Panics
    /// If the dtype is not a float.
    #[track_caller]
    #[must_use]
    pub fn requires_grad(&self) -> Tensor {
        if !self.dtype().is_float() {
            Error::new(
                ErrorKind::Gradient,
                "requires_grad",
                format!("only floats have gradients, not {}", self.dtype()),
            )
            .raise();
        }
        Tensor { value: self.detach().value, tape: Some(Tape::leaf()) }
    }

    /// Whether gradients flow through this tensor.
    pub fn is_tracked(&self) -> bool {
        // Inside `vmap` they may flow through the batch alone.
        self.tape.is_some() || self.value.node.batched.as_ref().is_some_and(|batched| batched.tensor.is_tracked())
    }

    /// Whether this is a leaf: a tensor from [`Tensor::requires_grad`].
    pub fn is_leaf(&self) -> bool {
        self.tape.as_ref().is_some_and(|tape| tape.is_leaf())
    }

    /// The same value, cut off from the tape.
    #[must_use]
    pub fn detach(&self) -> Tensor {
        match &self.value.node.batched {
            None => Tensor::untracked(self.value.clone()),
            Some(batched) => batched.level.example_at(batched.tensor.detach(), self.value.node.source),
        }
    }

    /// A tensor of host data, row-major.
    ///
    /// # Panics
    /// If `data` does not hold as many elements as `shape`, or the device has no room.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "reads better at call sites than a borrowed `vec!`")]
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Tensor {
        Tensor::from_slice(&data, shape, device)
    }

    /// A tensor of host data, row-major.
    ///
    /// # Panics
    /// If `data` does not hold as many elements as `shape`, or the device has no room.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>, device: &Device) -> Tensor {
        let mut bytes = Vec::new();
        T::write_le(data, &mut bytes);
        Tensor::from_bytes(T::DTYPE, shape, &bytes, device)
    }

    /// A tensor of little-endian bytes, row-major.
    ///
    /// # Panics
    /// If `bytes` is not as long as `shape` needs, or the device has no room.
    #[track_caller]
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8], device: &Device) -> Tensor {
        match Tensor::try_from_bytes(dtype, shape, bytes, device) {
            Ok(tensor) => tensor,
            Err(error) => error.raise(),
        }
    }

    /// As [`Tensor::from_bytes`].
    ///
    /// # Errors
    /// If `bytes` is not as long as `shape` needs, or the device has no room.
    #[track_caller]
    pub fn try_from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8], device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        let needed = shape.checked_numel().and_then(|numel| numel.checked_mul(dtype.size()));
        if needed != Some(bytes.len()) {
            let message = format!("{} bytes of data for {dtype}{shape}", bytes.len());
            return Err(Error::shape("from data", message));
        }
        match device.upload(bytes, dtype, shape, Location::caller()) {
            Ok(value) => Ok(Tensor::untracked(value)),
            Err(error) => Err(Error::new(ErrorKind::Execution, "from data", format!("{error}"))),
        }
    }

    /// `value` in every element.
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, value: impl Into<Scalar>, dtype: DType, device: &Device) -> Tensor {
        primitive::constant(value.into(), dtype, &checked("full", shape.into()), device)
    }

    /// Zeros of dtype `f32`.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, device: &Device) -> Tensor {
        Tensor::full(shape, 0.0, DType::F32, device)
    }

    /// Ones of dtype `f32`.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, device: &Device) -> Tensor {
        Tensor::full(shape, 1.0, DType::F32, device)
    }

    /// The elements, row-major, converted to `T` as a cast does if the dtype is another one.
    ///
    /// Waits for the work behind it.
    ///
    /// # Panics
    /// If that work failed, with the line that recorded it.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        match self.try_to_vec() {
            Ok(data) => data,
            Err(error) => error.raise(),
        }
    }

    /// As [`Tensor::to_vec`].
    ///
    /// # Errors
    /// If the work behind it failed.
    #[track_caller]
    pub fn try_to_vec<T: Element>(&self) -> Result<Vec<T>> {
        block_on(self.read::<T>())
    }

    /// The elements, row-major, converted to `T` if the dtype is another one.
    ///
    /// # Errors
    /// If the work behind it failed.
    pub async fn read<T: Element>(&self) -> Result<Vec<T>> {
        let bytes = primitive::cast(&self.detach(), T::DTYPE)?.read_bytes().await?;
        Ok(T::read_le(&bytes))
    }

    /// The elements as little-endian bytes, row-major.
    ///
    /// # Panics
    /// If the work behind it failed.
    #[track_caller]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.try_to_bytes() {
            Ok(bytes) => bytes,
            Err(error) => error.raise(),
        }
    }

    /// As [`Tensor::to_bytes`].
    ///
    /// # Errors
    /// If the work behind it failed.
    pub fn try_to_bytes(&self) -> Result<Vec<u8>> {
        block_on(self.read_bytes())
    }

    /// The elements as little-endian bytes, row-major.
    ///
    /// # Errors
    /// If the work behind it failed.
    pub async fn read_bytes(&self) -> Result<Vec<u8>> {
        let buffer = self.device().buffer(&self.value.node)?;
        let len = self.numel() * self.dtype().size();
        let bytes = self.device().backend().download(&buffer, len).await;
        bytes.map_err(|error| Error::new(ErrorKind::Execution, "read", format!("{error}")))
    }

    /// The only element.
    ///
    /// # Panics
    /// If there is not exactly one, or the work behind it failed.
    #[track_caller]
    pub fn item<T: Element>(&self) -> T {
        if self.numel() != 1 {
            Error::shape("item", format!("needs a single element, got {}", self.shape())).raise();
        }
        self.to_vec()[0]
    }

    /// The same elements on another device (or this tensor, if it is there already). Gradients flow back.
    ///
    /// # Panics
    /// If the work behind it failed, or the device has no room.
    #[track_caller]
    #[must_use]
    pub fn to_device(&self, device: &Device) -> Tensor {
        if self.device() == device {
            return self.clone();
        }
        let (home, target) = (self.device().clone(), device.clone());
        let location = Location::caller();
        let copy = move |x: &Tensor, device: &Device| {
            let bytes = x.to_bytes();
            match device.upload(&bytes, x.dtype(), x.shape().clone(), location) {
                Ok(value) => Tensor::untracked(value),
                Err(error) => Error::new(ErrorKind::Execution, "to_device", format!("{error}")).raise(),
            }
        };
        let forward = |x: &[Tensor]| alloc::vec![copy(&x[0], &target)];
        let backward = move |dy: &[Option<Tensor>]| alloc::vec![dy[0].as_ref().map(|dy| copy(dy, &home))];
        crate::custom_gradient(&[self], forward, backward).swap_remove(0)
    }
}

impl Tensor {
    /// Whether both are handles to one value.
    pub fn is_same_value(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.value.node, &other.value.node)
    }
}

#[track_caller]
fn checked(op: &str, shape: Shape) -> Shape {
    if shape.checked_numel().is_none() {
        Error::shape(op, format!("{shape} has more elements than memory can address")).raise();
    }
    shape
}
