//! Fornax: data sets and data loading.
#![forbid(unsafe_code)]

mod dataset;
mod error;
pub mod idx;
pub mod mnist;
mod random;
mod sampler;

pub use dataset::{Concat, Dataset, InMemory, Map, Subset};
pub use error::{Error, ErrorKind};
pub use random::{Philox, philox4x32};
pub use sampler::{Indices, Sampler, Sequential, Shuffled, WithReplacement, WithoutReplacement};
