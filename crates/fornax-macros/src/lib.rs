//! Fornax: the derive and attribute macros.
