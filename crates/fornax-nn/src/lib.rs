//! What models are made of: modules, initializers, optimizers.
//!
//! A model is a plain struct with `#[derive(Module)]` and a `forward` method. Parameters have PyTorch's names, shapes and
//! layouts, so that weights load without adapters. Start at [`Module`]; layers are plain structs with a `forward`, and
//! [`optim`] has what trains them.
//!
//! This crate does not know devices, kernels or files. It builds with `alloc` alone when the feature `std` is off.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// `#[derive(Module)]` writes paths for users of the facade; inside this crate they lead back here.
extern crate self as fornax;
#[doc(hidden)]
pub mod nn {
    pub use crate::{Module, Path, Visitor, VisitorMut, fmt_tree};
}

mod activation;
mod conv;
mod dropout;
mod embedding;
pub mod init;
mod linear;
mod module;
mod norm;
pub mod optim;
mod pool;
pub mod schedule;
mod state;

pub use activation::{Gelu, Relu, Sigmoid, Silu, Tanh};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvConfig};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use fornax_macros::Module;
pub use linear::Linear;
pub use module::{Buffer, Mode, Module, Param, Path, Visitor, VisitorMut, fmt_tree};
pub use norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RmsNorm};
pub use pool::{AvgPool2d, MaxPool2d};
pub use state::{LoadError, LoadReport, Mismatch};
