//! Fornax: a deep learning framework that trains and serves from one program.
//!
//! Tensors feel eager, as in PyTorch: dynamic shapes, ordinary control flow. Underneath, ops are recorded and whole
//! training steps run as fused programs, on any device, without annotations.
//!
//! ```
//! use fornax::prelude::*;
//! let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
//! let w = Tensor::from([[0.5], [-0.5]]).requires_grad();
//! let loss = x.matmul(&w).square().mean(());
//! let gradients = loss.backward();
//! assert_eq!(gradients.get(&w).unwrap().to_vec::<f32>(), [-2.0, -3.0]);
//! ```
//!
//! This crate has no code of its own: it re-exports [`fornax_tensor`], [`nn`], [`store`] and [`data`].
#![no_std]

pub use fornax_tensor::*;

/// Modules, losses, initializers, optimizers and schedules.
pub use fornax_nn as nn;
/// Reading and writing weights.
pub use fornax_store as store;

/// Data sets and data loading.
#[cfg(feature = "std")]
pub use fornax_data as data;

/// NVIDIA GPUs: options of a device, and what was found.
#[cfg(feature = "cuda")]
pub use fornax_cuda as cuda;

/// What most programs need: `use fornax::prelude::*;`
pub mod prelude {
    pub use crate::nn::optim::{
        Adam, AdamW, Muon, Optimizer, RmsProp, Selection, Sgd, clip_grad_norm, clip_grad_value,
    };
    pub use crate::nn::schedule::Schedule;
    pub use crate::nn::{
        AttentionConfig, AttentionMask, Average, Averaging, AvgPool2d, BatchNorm1d, BatchNorm2d, Buffer, Conv1d,
        Conv2d, ConvConfig, ConvTranspose2d, CrossEntropyLoss, Dropout, Embedding, Flatten, Gelu, GroupNorm, Gru,
        Layer, LayerNorm, Linear, Lstm, MaxPool2d, Module, MultiheadAttention, Param, RecurrentConfig, Relu, RmsNorm,
        Sigmoid, Silu, Tanh, TransformerConfig, TransformerEncoder, TransformerEncoderLayer, init, summary,
    };
    #[cfg(feature = "std")]
    pub use crate::store::ModuleFiles;
    pub use crate::{
        ConvOptions, DType, Device, Gradients, NewDim, PoolOptions, Reduction, Rest, Shape, Tensor, autocast, grad,
        keepdim, no_grad, step,
    };
}
