//! Fornax: the CPU device.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod gemm;
pub mod simd;
