//! Fornax: the CPU device.
//!
//! [`CpuBackend`] runs graphs: `backend` binds and runs plans, `engine` runs their fused kernels tile by tile, `native`
//! and [`gemm`] the ops that are not fused, [`simd`] holds vectorized loops, `memory` the buffer pool.
//!
//! This crate does not know tensors, layers or autodiff. It builds with `alloc` alone when the feature `std` is off: the
//! same engine, scalar, on one thread.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod backend;
mod counter;
mod engine;
pub mod gemm;
mod lock;
mod memory;
mod native;
pub mod simd;
mod threads;

pub use backend::CpuBackend;
