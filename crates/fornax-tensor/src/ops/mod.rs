//! Every op of a tensor, one record each.
//!
//! An op is a method in an `#[ops] impl Tensor` block: the macro turns it into the public method, its `try_` twin
//! where it can fail, and an [`OpRecord`]. Conformance tests, gradient checks, the coverage table and the PyTorch
//! translation table are made from [`records`]. To add an op, write its method; nothing else needs to know.

mod activation;
mod args;
mod arithmetic;
mod arranging;
mod attention;
mod binary;
mod create;
mod diagonals;
mod differences;
mod einsum;
mod elementwise;
mod fft;
mod gamma;
mod indexing;
mod joining;
mod linalg;
mod linear;
mod loss;
mod movement;
mod nn;
mod norm;
mod picking;
mod pool;
mod ranking;
mod reduction;
mod resize;
mod rounding;
mod sampling;
mod searching;
mod sequences;
mod special;
mod statistics;
mod trigonometry;
mod vector_norm;
mod writing;

pub use args::{Arg, Args, FromArg, IntoOutputs};
pub use attention::{AttentionOptions, BagMode, EmbeddingBagOptions};
pub use create::Nested;
pub use fft::{FftNorm, StftOptions};
pub use loss::TripletMarginOptions;
pub use nn::{ConvOptions, ConvTransposeOptions, CrossEntropyOptions, Padding, PerDim, PoolOptions, Reduction};
pub use norm::Affine;
pub use pool::{AvgPoolOptions, UnfoldOptions};

pub use ranking::Interpolation;
pub use resize::{GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions, PadMode, ResizeTo};
pub use vector_norm::MatrixNorm;

use crate::Tensor;
use fornax_ir::Result;

/// What is known about an op.
#[derive(Clone, Copy)]
pub struct OpRecord {
    /// The method's name.
    pub name: &'static str,
    /// The family it is listed under.
    pub group: &'static str,
    /// The names PyTorch has for it, with variants as in `div.floor_rounding`.
    pub torch: &'static [&'static str],
    /// Where tests sample its operands.
    pub domain: (f64, f64),
    /// The first line of its docs.
    pub doc: &'static str,
    /// Whether gradients flow through it.
    pub grad: bool,
    /// Calls it with named arguments.
    pub call: fn(&Args) -> Result<alloc::vec::Vec<Tensor>>,
}

/// Every op.
pub fn records() -> impl Iterator<Item = &'static OpRecord> {
    GROUPS.iter().copied().flatten()
}

/// The record lists of all `#[ops]` blocks.
static GROUPS: &[&[OpRecord]] = &[
    activation::RECORDS,
    arithmetic::RECORDS,
    arranging::RECORDS,
    attention::RECORDS,
    binary::RECORDS,
    create::RECORDS,
    diagonals::RECORDS,
    differences::RECORDS,
    einsum::RECORDS,
    elementwise::RECORDS,
    fft::RECORDS,
    gamma::RECORDS,
    gamma::BINARY,
    indexing::RECORDS,
    joining::RECORDS,
    linalg::RECORDS,
    linear::RECORDS,
    loss::RECORDS,
    movement::RECORDS,
    nn::RECORDS,
    norm::RECORDS,
    picking::RECORDS,
    pool::RECORDS,
    ranking::RECORDS,
    reduction::RECORDS,
    resize::RECORDS,
    rounding::RECORDS,
    searching::RECORDS,
    sequences::RECORDS,
    special::RECORDS,
    statistics::RECORDS,
    trigonometry::RECORDS,
    vector_norm::RECORDS,
    writing::RECORDS,
];
