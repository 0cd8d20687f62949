//! Fornax on NVIDIA GPUs.
//!
//! [`CudaBackend`] is a [`fornax_ir::Backend`]. Graphs become plans (`fornax-compile`), plans become programs of kernels
//! (`fornax-kernel`), kernels are compiled by NVRTC and kept on disk ([`DiskCache`]), products go to cuBLASLt, and a
//! program that repeats becomes a CUDA graph. Start at `backend.rs` for what is cached, at `run.rs` for how a program runs,
//! at `memory.rs` for where its buffers come from, at `places.rs` for why they lie where they lay before.
//!
//! Nothing of CUDA is needed to build it: the driver, NVRTC and cuBLASLt are looked for when they are first needed
//! ([`Library`]). [`doctor`] tells what was found.
//!
//! This crate does not know tensors, layers or autodiff, nor how kernels are made.

mod backend;
mod batch;
mod cache;
mod compiler;
mod doctor;
mod driver;
mod error;
mod kernel;
mod libraries;
mod matmul;
mod memory;
mod places;
mod run;
mod transfer;

pub use backend::{CudaBackend, CudaOptions};
pub use cache::DiskCache;
pub use compiler::{Compiler, Source};
pub use doctor::doctor;
pub use driver::{DeviceInfo, device_count, driver_version};
pub use error::{Error, ErrorKind, Result};
pub use libraries::Library;
