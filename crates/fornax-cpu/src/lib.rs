//! Fornax: the CPU device.
pub use fornax_ir::ReferenceBackend as CpuBackend;
