//! Fornax: reading and writing weights.
