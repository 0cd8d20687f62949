//! The waist of Fornax: dtypes, shapes, the primitive op set, graphs, and what they mean.
//!
//! Everything above this crate builds [`Graph`]s of primitive ops; everything below consumes them.
//! Start at [`Op`] for the list of primitives, at [`Graph`] for how they are put together, at [`infer`] for the
//! shape and dtype rules, and at [`Backend`] for how a device runs a graph. [`interpret`] is the meaning of a graph as
//! code, `docs/semantics.md` in words; [`Graph::parse`] reads the text form that a graph prints as, and [`fuzz`] draws
//! random graphs to hold devices against the interpreter.
//!
//! This crate does not know how anything is executed fast: no threads, files, clocks or devices.
//! It builds with `alloc` alone when the feature `std` is off.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod backend;
pub mod bits;
mod dtype;
mod error;
pub mod fuzz;
mod graph;
mod infer;
mod interp;
mod layout;
mod meta;
mod op;
mod philox;
mod reference;
mod scalar;
mod shape;
mod text;
mod verify;

pub use backend::{Backend, BoxFuture, Buffer, DeviceBuffer, DeviceError, DeviceErrorKind, Fault, Memory, Outcome};
pub use dtype::{DType, DTypeKind, DTypeSet, Element};
pub use error::{Error, ErrorKind, Result};
pub use graph::{Graph, Node, NodeId, Source};
pub use infer::{broadcast_shapes, infer};
pub use interp::{Interpreted, interpret};
pub use layout::Layout;
pub use meta::MetaBackend;
pub use op::{
    BinaryOp, CompareOp, ConvSpec, FftKind, LinalgOp, Op, ReduceOp, ScanOp, ScatterMode, UnaryOp, WindowDim, WindowSpec,
};
pub use philox::{philox4x32, random_word};
pub use reference::ReferenceBackend;
pub use scalar::Scalar;
pub use shape::{Dims, Shape};
pub use text::ParseError;
