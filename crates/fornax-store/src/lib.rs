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
//! # Formats
//!
//! | format | read | written by |
//! |---|---|---|
//! | safetensors | mapped, lazily | [`save`], [`ModuleFiles::save`] |
//! | safetensors in several files, with an index | mapped, lazily | [`save_sharded`] |
//! | PyTorch `.pt`, `.pth`, zip format | mapped, lazily; digests are checked | [`save_torch`] |
//! | PyTorch before 1.6 | mapped, lazily | [`save_torch_legacy`] |
//! | GGUF 2 and 3: f16, bf16, f32, Q4_0 to Q8_0, Q2_K to Q6_K | mapped, lazily; quantized values become `f32` | |
//! | NPY, NPZ | mapped, lazily | [`save_npz`] |
//! | checkpoints: a run that can go on | [`Checkpoint::open`] | [`Checkpoint::at_step`] |
//!
//! [`Weights::open`] tells them apart. [`Weights`] picks tensors by name ([`Weights::under`], [`Weights::filter`]), changes
//! names and layouts ([`Weights::apply`] with [`Rule`]s), and reads what is asked for. [`load_torch`] reads a PyTorch file
//! with all its dicts and lists.
//!
//! # From PyTorch
//!
//! | PyTorch | here |
//! |---|---|
//! | `torch.load(path)` | `load_torch(path, &device)?` |
//! | `model.load_state_dict(torch.load(path))` | `model.load(path)?` |
//! | `….load_state_dict(torch.load(path)["model"])` | `Weights::open(path)?.under("model").load_into(&mut model)?` |
//! | `load_state_dict(…, strict=False)` | `model.load_lenient(path)?` |
//! | `torch.save(model.state_dict(), path)` | `save_torch(path, &Value::state_dict(&model.state_dict()))?` |
//! | `safetensors.safe_open(path).get_tensor(name)` | `Weights::open(path)?.read(name, &device)?` |
//!
//! # Files are not trusted
//!
//! No file makes a reader panic, run code, or take time or memory out of proportion to its size: lengths are checked before
//! anything is reserved, pickles are data for a small machine that calls nothing, nesting, sharing and compression have
//! limits. What is wrong is an [`Error`] with its [`ErrorKind`] and the file's path.
//!
//! The from-bytes part ([`to_bytes`], [`from_bytes`]) builds with `alloc` alone; files need the feature `std`.
//! This crate does not know devices or kernels. Start reading at `weights.rs`.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod bytes;
mod error;
mod json;
mod lazy;

#[cfg(feature = "std")]
mod archive;
#[cfg(feature = "std")]
mod atomic;
#[cfg(feature = "std")]
mod checkpoint;
#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
mod gguf;
#[cfg(feature = "std")]
mod npy;
#[cfg(feature = "std")]
mod pickle;
#[cfg(feature = "std")]
mod rules;
#[cfg(feature = "std")]
mod sharded;
#[cfg(feature = "std")]
mod source;
#[cfg(feature = "std")]
mod torch;
#[cfg(feature = "std")]
mod value;
#[cfg(feature = "std")]
mod weights;

pub use bytes::{from_bytes, to_bytes};
pub use error::{Error, ErrorKind};
#[cfg(feature = "std")]
pub use {
    checkpoint::{Checkpoint, CheckpointBuilder},
    file::{ModuleFiles, load, save},
    lazy::LazyTensor,
    npy::save_npz,
    rules::Rule,
    sharded::save_sharded,
    torch::{load_torch, save_torch, save_torch_legacy},
    value::{Key, Plain, Value},
    weights::Weights,
};
