//! [`SyncBatchNorm`]: batch norm whose batch lies on several devices.

use crate::norm::{RunningStats, affine_of};
use crate::{Mode, Module, Param};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use fornax_tensor::{DType, Device, Error, Tensor, no_grad};

/// Sums over all processes that train a model together. What runs between processes implements it.
pub trait AllReduce: Send + Sync {
    /// The sum of the tensors that all processes call this with, the same on each; differentiable: the gradient of the sum
    /// is the sum of the gradients.
    fn all_reduce_sum(&self, x: &Tensor) -> Tensor;
}

/// One process alone: the sum is the tensor.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl AllReduce for SingleProcess {
    fn all_reduce_sum(&self, x: &Tensor) -> Tensor {
        x.clone()
    }
}

/// Batch normalization of `[n, channels, …]` with mean and variance of the batches of all processes together.
///
/// Parameters, buffers and results are those of [`crate::BatchNorm2d`] on the joined batch.
///
/// # References
/// Ioffe, Szegedy (2015), *Batch Normalization*, arXiv:1502.03167.
#[derive(Module, Clone)]
pub struct SyncBatchNorm {
    /// `[channels]`, ones at first.
    pub weight: Option<Param>,
    /// `[channels]`, zeros at first.
    pub bias: Option<Param>,
    /// Running statistics; without them, those of the batch serve in evaluation too.
    #[module(flatten)]
    pub stats: Option<RunningStats>,
    /// Added to the variance; 1e-5.
    pub eps: f64,
    /// Weight of a new batch in the running statistics; 0.1. `None`: they are the mean over all batches.
    pub momentum: Option<f64>,
    /// Whom it synchronizes with.
    #[module(skip)]
    pub group: Arc<dyn AllReduce>,
    channels: usize,
    mode: Mode,
}

impl SyncBatchNorm {
    /// A layer for so many channels, synchronized with the processes of `group`.
    #[track_caller]
    pub fn new(channels: usize, group: Arc<dyn AllReduce>, device: &Device) -> SyncBatchNorm {
        SyncBatchNorm {
            weight: Some(Param::new(&Tensor::ones([channels], device))),
            bias: Some(Param::new(&Tensor::zeros([channels], device))),
            stats: Some(RunningStats::new(channels, device)),
            eps: 1e-5,
            momentum: Some(0.1),
            group,
            channels,
            mode: Mode::default(),
        }
    }

    /// Applies the layer; in training, updates the running statistics.
    ///
    /// # Panics
    /// If `x` is not `[n, channels, …]`.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if x.rank() < 2 || x.shape()[1] != self.channels {
            let message = format!("x {} is not [n, {}, …]", x.shape(), self.channels);
            Error::shape("SyncBatchNorm", message).raise();
        }
        let affine = affine_of(&self.weight, &self.bias);
        let is_training = self.mode.measures();
        if let (Some(stats), false) = (&self.stats, is_training) {
            return x.batch_norm(&stats.running_mean.get(), &stats.running_var.get(), &affine, self.eps);
        }
        let wide = x.to_dtype(x.dtype().compute());
        let dims: Vec<usize> = (0..x.rank()).filter(|&dim| dim != 1).collect();
        let own = Tensor::full((), (x.numel() / self.channels.max(1)) as f64, DType::F32, x.device());
        let count = self.group.all_reduce_sum(&own).to_dtype(wide.dtype());
        let mean = self.group.all_reduce_sum(&wide.sum(dims.clone())) / &count; // [channels]
        let mut shape = alloc::vec![1; x.rank()];
        shape[1] = self.channels;
        let centered = &wide - mean.reshape(fornax_tensor::Shape::from(shape));
        let var = self.group.all_reduce_sum(&centered.square().sum(dims)) / &count;
        if let (Some(stats), true) = (&self.stats, is_training) {
            no_grad(|| {
                stats.num_batches_tracked.set(&(stats.num_batches_tracked.get() + 1));
                let unbiased = var.detach() * (&count / (&count - 1.0).maximum(1.0));
                stats.update(&mean.detach(), &unbiased, self.mode.momentum(self.momentum));
            });
        }
        x.batch_norm(&mean.to_dtype(x.dtype()), &var.to_dtype(x.dtype()), &affine, self.eps)
    }
}

impl fmt::Debug for SyncBatchNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncBatchNorm")
            .field("weight", &self.weight)
            .field("bias", &self.bias)
            .field("stats", &self.stats)
            .field("eps", &self.eps)
            .field("momentum", &self.momentum)
            .finish_non_exhaustive()
    }
}
