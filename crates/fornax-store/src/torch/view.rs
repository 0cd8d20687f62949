//! [`View`]: elements of a storage by offset and strides, as tensors are in PyTorch.

use super::Bytes;
use crate::archive::Archive;
use crate::lazy::{LazyTensor, size_in_bytes, tensor_of};
use crate::source::Source;
use crate::{Error, ErrorKind};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fornax_tensor::{DType, Shape};

/// Where the bytes of a storage are.
pub(crate) enum Stored {
    /// A member of an archive, and its size.
    Member(Arc<Archive>, String, usize),
    /// A part of a file.
    Range(Arc<Source>, Bytes),
}

impl Stored {
    fn size(&self) -> usize {
        match self {
            Stored::Member(_, _, size) => *size,
            Stored::Range(_, range) => range.len(),
        }
    }

    fn read(&self) -> Result<Cow<'_, [u8]>, Error> {
        match self {
            Stored::Member(archive, name, _) => archive.read(name),
            Stored::Range(source, range) => source.slice(range.clone()).map(Cow::Borrowed),
        }
    }
}

/// Elements of a storage. Offset and strides count elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct View {
    pub storage: String,
    pub dtype: DType,
    pub offset: usize,
    pub sizes: Vec<usize>,
    pub strides: Vec<usize>,
}

impl View {
    pub fn shape(&self) -> Shape {
        Shape::from(&self.sizes[..])
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let is_next = size == 1 || stride == expected;
            expected *= size;
            is_next
        })
    }

    /// That every element lies in the storage.
    pub fn check(&self, storages: &BTreeMap<String, Stored>) -> Result<(), Error> {
        let size = size_in_bytes(self.dtype, &self.shape())?;
        let stored = storages.get(&self.storage).map_or(0, Stored::size);
        let last = self.sizes.iter().zip(&self.strides).try_fold(self.offset, |last, (&size, &stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(stride)?)
        });
        let end = last.and_then(|last| last.checked_add(1)?.checked_mul(self.dtype.size()));
        if size > 0 && end.is_none_or(|end| end > stored) {
            let message = format!(
                "a view of {}{} with strides {:?} from {} leaves its storage {} of {stored} bytes",
                self.dtype,
                self.shape(),
                self.strides,
                self.offset,
                self.storage
            );
            return Err(Error::new(ErrorKind::Format, message));
        }
        Ok(())
    }

    /// The tensor, not read yet. The view was checked.
    pub fn lazy(&self, storages: &Arc<BTreeMap<String, Stored>>) -> Result<LazyTensor, Error> {
        let (view, storages) = (self.clone(), Arc::clone(storages));
        let size = size_in_bytes(self.dtype, &self.shape())?;
        Ok(LazyTensor::new(self.dtype, self.shape(), move |device| {
            if size == 0 {
                return tensor_of(view.dtype, &view.shape(), &[], device);
            }
            let bytes = storages[&view.storage].read()?;
            if view.is_contiguous() {
                let start = view.offset * view.dtype.size();
                return tensor_of(view.dtype, &view.shape(), &bytes[start..start + size], device);
            }
            let mut gathered = Vec::with_capacity(size);
            view.gather(0, view.offset, &bytes, &mut gathered);
            tensor_of(view.dtype, &view.shape(), &gathered, device)
        }))
    }

    fn gather(&self, dim: usize, start: usize, bytes: &[u8], out: &mut Vec<u8>) {
        let width = self.dtype.size();
        let Some((&size, &stride)) = self.sizes.get(dim).zip(self.strides.get(dim)) else {
            out.extend_from_slice(&bytes[start * width..(start + 1) * width]);
            return;
        };
        if dim + 1 == self.sizes.len() && stride == 1 {
            out.extend_from_slice(&bytes[start * width..(start + size) * width]);
            return;
        }
        for i in 0..size {
            self.gather(dim + 1, start + i * stride, bytes, out);
        }
    }
}
