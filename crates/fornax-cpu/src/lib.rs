//! Fornax: the CPU device.
