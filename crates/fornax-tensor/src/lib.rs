//! Tensors: lazy, on any device, differentiable.
//!
//! Start at [`Tensor`]. [`Device`] says where tensors live and when their work runs; `autodiff` holds the gradient
//! rules of the primitives; `ops` holds everything composed from primitives, one record an op.
//!
//! This crate knows no device's inside (it hands graphs to a [`fornax_ir::Backend`]), no layers and no files.
//! It builds with `alloc` alone when the feature `std` is off.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod autocast;
mod autodiff;
mod device;
mod dims;
mod display;
mod index;
mod node;
mod operand;
pub mod ops;
mod primitive;
mod sync;
mod tensor;
mod transforms;

pub use autocast::autocast;
pub use autodiff::{Gradients, custom_gradient, grad, grad_with, is_grad_enabled, no_grad, with_grad};
pub use device::{Device, Report};
pub use dims::{IntoDim, ReduceDims, Sizes, keepdim};
pub use fornax_ir::{
    Backend, DType, DTypeKind, DTypeSet, DeviceError, DeviceErrorKind, Element, Error, ErrorKind, MetaBackend, Result,
    Scalar, Shape,
};
pub use index::{Index, IntoIndex, NewDim, Rest, step};
pub use operand::{IntoOperand, Operand};
pub use ops::{
    Affine, AttentionOptions, AvgPoolOptions, BagMode, ConvOptions, ConvTransposeOptions, CrossEntropyOptions,
    EmbeddingBagOptions, FftNorm, GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions, Interpolation,
    MatrixNorm, PadMode, Padding, PerDim, PoolOptions, Reduction, ResizeTo, StftOptions, TripletMarginOptions,
    UnfoldOptions,
};
pub use tensor::Tensor;
pub use transforms::{Outputs, Pullback, checkpoint, hessian, hvp, jacobian, jvp, value_and_grad, vjp, vmap};
