//! Data sets and data loading for Fornax: from items on disk or in memory to batches, in an order that can be
//! repeated and resumed.
//!
//! The crate is generic over items and batches. It does not know tensors, devices or models: the collate function
//! of a loader is where items become tensors. It depends on the standard library, and on `flate2` for gzip.
//!
//! # Train on batches
//!
//! ```
//! # #[cfg(feature = "gzip")] {
//! use fornax_data::mnist::{Mnist, MnistItem};
//! use fornax_data::{DataLoader, Dataset};
//!
//! struct Batch {
//!     pixels: Vec<f32>, // [batch, 784]
//!     labels: Vec<u8>,  // [batch]
//! }
//!
//! fn collate(items: Vec<MnistItem>) -> Batch {
//!     Batch {
//!         pixels: items.iter().flat_map(|item| item.image).map(|pixel| f32::from(pixel) / 255.0).collect(),
//!         labels: items.iter().map(|item| item.label).collect(),
//!     }
//! }
//!
//! let [train, valid] = Mnist::digits().train.random_split([7000, 1000], 42);
//! let loader = DataLoader::builder(train).batch_size(64).shuffle(42).drop_last().collate(collate).build();
//! for epoch in 0..2 {
//!     for batch in loader.iter() {
//!         assert_eq!((batch.pixels.len(), batch.labels.len()), (64 * 784, 64));
//!     }
//! }
//! # assert_eq!(valid.len(), 1000);
//! # }
//! ```
//!
//! # Use more cores
//!
//! `.workers(4)` on the builder. The threads stay for all epochs, and batches come in the same order, with the same
//! random numbers, as without them. They pay when an item takes longer to make than to hand over: decoding, disk.
//! For items that are in memory, `workers(0)`, the default, is as fast. The number of batches in memory is bounded
//! by [`prefetch`](DataLoaderBuilder::prefetch).
//!
//! # Make a data set
//!
//! Implement [`Dataset`]: `len` and `get`. Combine with [`map`](Dataset::map), [`subset`](Dataset::subset),
//! [`split`](Dataset::split), [`random_split`](Dataset::random_split) and [`concat`](Dataset::concat).
//!
//! # Stop and go on
//!
//! [`DataLoader::state`] says where the loader is, in the middle of an epoch too; [`DataLoader::restore`] goes there.
//! The run then sees the batches that it would have seen without the stop.
//!
//! # Random numbers
//!
//! All come from [`Philox`], whose output is fixed by its seed on every machine and for every number of threads.
//! For augmentation, [`collate_random`](DataLoaderBuilder::collate_random) gives each batch a generator of its own.
//!
//! # From PyTorch
//!
//! | PyTorch | here |
//! |---|---|
//! | `Dataset.__getitem__`, `__len__` | [`Dataset::get`], [`Dataset::len`] |
//! | `TensorDataset`, a list | [`InMemory`] |
//! | `Subset`, `random_split`, `ConcatDataset` | [`Dataset::subset`], [`Dataset::random_split`], [`Dataset::concat`] |
//! | `DataLoader(ds, batch_size=64, shuffle=True)` | `DataLoader::builder(ds).batch_size(64).shuffle(seed).build()` |
//! | `drop_last=True`, `num_workers=4` | `.drop_last()`, `.workers(4)` |
//! | `prefetch_factor=2` (per worker) | `.prefetch(8)` (in all) |
//! | `persistent_workers=True` | always so |
//! | `collate_fn=f` | `.collate(f)` |
//! | `worker_init_fn`, to seed workers | not needed: `.collate_random(seed, f)` |
//! | `SequentialSampler`, `RandomSampler` | [`Sequential`], [`Shuffled`] |
//! | `RandomSampler(ds, replacement=True, num_samples=n)` | [`WithReplacement`] |
//! | `RandomSampler(ds, num_samples=n)` | [`WithoutReplacement`] |
//! | `sampler.set_epoch(n)` | [`DataLoader::set_epoch`]; epochs count up without it |
//! | `StatefulDataLoader.state_dict` | [`DataLoader::state`], always |
//!
//! # Features
//!
//! - `gzip` (default): gzipped IDX files and the bundled digits, `Mnist::digits`. Costs `flate2` with
//!   its Rust backend, and 1.6 MB in programs that call `digits`.
//!
//! # Files
//!
//! Start reading at `dataset.rs`, then `loader.rs`.

#![forbid(unsafe_code)]

mod dataset;
mod error;
pub mod idx;
mod loader;
pub mod mnist;
mod pool;
mod random;
mod sampler;

pub use dataset::{Concat, Dataset, InMemory, Map, Subset};
pub use error::{Error, ErrorKind};
pub use loader::{Batches, DataLoader, DataLoaderBuilder, DataLoaderState};
pub use random::{Philox, philox4x32};
pub use sampler::{Indices, Sampler, Sequential, Shuffled, WithReplacement, WithoutReplacement};
