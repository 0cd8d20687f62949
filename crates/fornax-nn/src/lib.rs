//! What models are made of: modules, initializers, optimizers.
//!
//! A model is a plain struct with `#[derive(Module)]` and a `forward` method. Parameters have PyTorch's names, shapes and
//! layouts, so that weights load without adapters. Start at [`Module`]; layers are plain structs with a `forward`, and
//! [`optim`] has what trains them.
//!
//! This crate does not know devices, kernels or files. It builds with `alloc` alone when the feature `std` is off.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// `#[derive(Module)]` writes paths for users of the facade; inside this crate they lead back here.
extern crate self as fornax;
#[doc(hidden)]
pub mod nn {
    pub use crate::{Module, Path, Visitor, VisitorMut, fmt_tree};
}

mod activation;
mod attention;
mod conv;
mod dropout;
mod embedding;
pub mod init;
mod linear;
mod loss;
mod module;
mod norm;
pub mod optim;
mod pad;
mod pool;
mod recurrent;
pub mod schedule;
mod sequence;
mod shape;
mod state;
mod transformer;

pub use activation::{
    Celu, Elu, Gelu, GeluTanh, Glu, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, Identity, LeakyRelu, LogSigmoid,
    LogSoftmax, Mish, PRelu, RRelu, Relu, Relu6, Selu, Sigmoid, Silu, Softmax, Softmin, Softplus, Softshrink, Softsign,
    Tanh, Tanhshrink, Threshold,
};
pub use attention::{AttentionConfig, AttentionMask, MultiheadAttention};
pub use conv::{
    Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeConfig,
    PaddingMode,
};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{Embedding, EmbeddingBag};
pub use fornax_macros::Module;
pub use linear::{Bilinear, Linear};
pub use loss::{
    BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, CtcLoss, GaussianNllLoss,
    HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, MarginRankingLoss, MseLoss, MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, NllLoss, PairwiseDistance, PoissonNllLoss, SmoothL1Loss, SoftMarginLoss,
    TripletMarginLoss,
};
pub use module::{Buffer, Mode, Module, Param, Path, Visitor, VisitorMut, fmt_tree};
pub use norm::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm,
    LocalResponseNorm, RmsNorm, RunningStats,
};
pub use pad::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, ReflectionPad1d,
    ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, ZeroPad1d, ZeroPad2d,
    ZeroPad3d,
};
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, LpPool1d, LpPool2d, LpPool3d, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool,
};
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, Nonlinearity, RecurrentConfig, Rnn, RnnCell};
pub use sequence::Layer;
pub use shape::{ChannelShuffle, Flatten, Fold, PixelShuffle, PixelUnshuffle, Unflatten, Unfold, Upsample};
pub use state::{LoadError, LoadReport, Mismatch};
pub use transformer::{
    FeedForwardActivation, Transformer, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer, TransformerMasks,
};
