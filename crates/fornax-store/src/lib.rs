//! Reading and writing weights, strictly.
//!
//! ```
//! use fornax_nn::{Linear, Module};
//! use fornax_store::ModuleFiles;
//! use fornax_tensor::Device;
//! # let dir = std::env::temp_dir().join("fornax-store-doc");
//! # std::fs::create_dir_all(&dir).unwrap();
//! let path = dir.join("layer.safetensors");
//! let device = Device::cpu();
//! let layer = Linear::new(4, 2, &device);
//! layer.save(&path)?;
//!
//! let mut copy = Linear::new(4, 2, &device);
//! copy.load(&path)?;
//! assert_eq!(copy.weight.to_vec::<f32>(), layer.weight.to_vec::<f32>());
//! # Ok::<(), fornax_store::Error>(())
//! ```
//!
//! The from-bytes part ([`to_bytes`], [`from_bytes`]) builds with `alloc` alone; files need the feature `std`.
//! This crate does not know devices or kernels.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod bytes;
mod error;
#[cfg(feature = "std")]
mod file;

pub use bytes::{from_bytes, to_bytes};
pub use error::{Error, ErrorKind};
#[cfg(feature = "std")]
pub use file::{ModuleFiles, load, save};
