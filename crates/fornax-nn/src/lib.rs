//! What models are made of: modules, layers, losses, initializers, optimizers, schedules.
//!
//! A model is a plain struct with `#[derive(Module)]` and a `forward` method. Parameters have PyTorch's names, shapes and
//! layouts, so that weights load without adapters.
//!
//! ```
//! use fornax_nn::optim::AdamW;
//! use fornax_nn::schedule::{CosineAnnealing, Schedule};
//! use fornax_nn::{Dropout, Linear, Module};
//! use fornax_tensor::{Device, Tensor};
//! # extern crate fornax_nn as fornax;
//!
//! #[derive(Module, Debug, Clone)]
//! struct Mlp {
//!     fc1: Linear,
//!     fc2: Linear,
//!     dropout: Dropout,
//! }
//!
//! impl Mlp {
//!     fn forward(&self, x: &Tensor) -> Tensor {
//!         // [batch, 4]
//!         let x = self.dropout.forward(&self.fc1.forward(x).gelu()); // [batch, 16]
//!         self.fc2.forward(&x) // [batch, 3]
//!     }
//! }
//!
//! let device = Device::cpu();
//! let mut model =
//!     Mlp { fc1: Linear::new(4, 16, &device), fc2: Linear::new(16, 3, &device), dropout: Dropout::new(0.1) };
//! let mut optimizer = AdamW::new(1e-2);
//! let schedule = CosineAnnealing { t_max: 20, eta_min: 0.0 };
//! let images = Tensor::rand([8, 4], &device);
//! let labels = Tensor::from_vec(vec![0i64, 1, 2, 0, 1, 2, 0, 1], [8], &device);
//! for step in 0..20 {
//!     optimizer.lr = schedule.lr(1e-2, step);
//!     let loss = model.forward(&images).cross_entropy(&labels);
//!     let gradients = loss.backward();
//!     optimizer.step(&mut model, &gradients);
//! }
//! let snapshot = model.eval().clone(); // cheap: tensors are shared
//! assert_eq!(snapshot.forward(&images).dims(), [8, 3]);
//! println!("{snapshot}"); // the tree of its layers
//! ```
//!
//! # Where things are
//!
//! - [`Module`]: names, state, loading, modes, devices. [`Param`] is trained, [`Buffer`] is only saved.
//! - [`Layer`]: what turns one tensor into one; tuples and lists of layers are sequences.
//! - [`optim`]: all of `torch.optim`, and Lion, LAMB, Adan, SOAP, schedule-free AdamW; groups, clipping, gradient scaling.
//!   [`schedule`]: all of `torch.optim.lr_scheduler`, and Noam, warm-up. [`Average`]: averages of models.
//! - [`summary()`]: a model as a table. [`fornax_tensor::autocast`]: mixed precision.
//! - [`init`]: all of `torch.nn.init`.
//!
//! # Coming from PyTorch
//!
//! | PyTorch | here |
//! |---|---|
//! | `nn.Linear(4, 16)` | `Linear::new(4, 16, &device)`, `Linear::without_bias(…)` |
//! | `nn.Conv2d(3, 8, 3, padding=1)` | `Conv2d::new(3, 8, [3, 3], &ConvConfig::default().padding(1), &device)` |
//! | `nn.BatchNorm2d(8, affine=False)` | `BatchNorm2d::new(8, &device).without_affine()` |
//! | `nn.MaxPool2d(2)` | `MaxPool2d::new(PoolOptions::new(2))` |
//! | `nn.LSTM(4, 8, num_layers=2)` | `Lstm::new(4, 8, &RecurrentConfig { num_layers: 2, ..Default::default() }, &device)` |
//! | `nn.ReLU`, `nn.LSTM`, `nn.MSELoss` | `Relu`, `Lstm`, `MseLoss`: Rust's way to spell them |
//! | `nn.Sequential(a, b)` | the tuple `(a, b)`, or `Vec<Box<dyn Layer>>` |
//! | `nn.ModuleList`, `nn.ModuleDict` | `Vec<M>`, `BTreeMap<String, M>` |
//! | `register_buffer("mask", x)` | a field `mask: Buffer` |
//! | `model.to(device)`, `.half()` | `model.to_device(&device)`, `model.to_dtype(DType::F16)` |
//! | `p.requires_grad_(False)` | `model.set_trainable("encoder", false)` |
//! | `loss.backward(); opt.step(); opt.zero_grad()` | `let gradients = loss.backward(); opt.step(&mut model, &gradients);` |
//! | parameter groups | `opt.group(Selection::under("head"), \|group\| group.lr(1e-4))`; or two optimizers, each with its `only` |
//! | `scheduler.step()` | `opt.lr = schedule.lr(base, step)` |
//! | `copy.deepcopy(model)` | `model.clone()` |
//! | `swa_utils.AveragedModel` | `Average::new(&model, Averaging::Exponential(0.999))` |
//! | `pack_padded_sequence` | `lstm.forward_packed(&x, &lengths, None)` |
//! | `torch.autocast("cpu", torch.bfloat16)` | `autocast(DType::BF16, \|\| …)` |
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
mod average;
mod conv;
mod deform;
mod dropout;
mod embedding;
mod feed_forward;
pub mod init;
mod linear;
mod lora;
mod loss;
mod module;
mod norm;
pub mod optim;
mod pad;
mod parametrize;
mod pool;
mod position;
mod recurrent;
pub mod schedule;
mod sequence;
mod shape;
mod state;
mod summary;
mod sync_norm;
mod trace;
mod transformer;

pub use activation::{
    Celu, Elu, Gelu, GeluTanh, Glu, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, Identity, LeakyRelu, LogSigmoid,
    LogSoftmax, Mish, PRelu, QuietSoftmax, RRelu, Relu, Relu6, Selu, Sigmoid, Silu, Softmax, Softmin, Softplus,
    Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use attention::{AttentionConfig, AttentionMask, KvCache, MultiheadAttention};
pub use average::{Average, Averaging, update_batch_norm};
pub use conv::{
    Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeConfig,
    PaddingMode,
};
pub use deform::DeformConv2d;
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout, GaussianNoise};
pub use embedding::{Embedding, EmbeddingBag};
pub use feed_forward::{MixtureOfExperts, SwiGlu};
pub use fornax_macros::Module;
pub use linear::{Bilinear, Linear};
pub use lora::{LinearLike, Lora, Nf4Linear};
pub use loss::{
    AdaptiveLogSoftmaxWithLoss, BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss,
    CtcLoss, FocalLoss, GaussianNllLoss, GramMatrixLoss, HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, LpLoss,
    MarginRankingLoss, MseLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NllLoss,
    PairwiseDistance, PoissonNllLoss, RnntLoss, SigmoidFocalLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
    TripletMarginWithDistanceLoss,
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
pub use parametrize::{SingularVectors, SpectralNorm, WeightNorm, Weighted};
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, FractionalMaxPool2d, FractionalMaxPool3d, FractionalSize, LpPool1d, LpPool2d,
    LpPool3d, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool,
};
pub use position::{RotaryEncoding, RotaryPairs, SinusoidalEncoding};
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, Nonlinearity, RecurrentConfig, Rnn, RnnCell};
pub use sequence::Layer;
pub use shape::{ChannelShuffle, Flatten, Fold, PixelShuffle, PixelUnshuffle, Unflatten, Unfold, Upsample};
pub use state::{LoadError, LoadReport, Mismatch};
pub use summary::{Summary, SummaryRow, summary};
pub use sync_norm::{AllReduce, SingleProcess, SyncBatchNorm};
pub use transformer::{
    FeedForwardActivation, Transformer, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer, TransformerMasks,
};
