//! [`Average`]: the average of a model over training.

use crate::module::{Mode, Path, VisitorMut};
use crate::{Buffer, Module};
use fornax_tensor::{DType, Tensor, no_grad};

/// How models are averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// Exponentially: so much of the average stays at each update, 0.999 for example.
    Exponential(
        /// The part that stays.
        f64,
    ),
    /// All models count alike.
    ///
    /// # References
    /// Izmailov et al. (2018), *Averaging Weights Leads to Wider Optima and Better Generalization*, arXiv:1803.05407.
    Equal,
}

/// The average of a model's parameters (and float buffers) over training: exponential (EMA) or over all (SWA).
///
/// ```
/// use fornax_nn::{Average, Averaging, Linear, Module, update_batch_norm};
/// use fornax_tensor::{Device, Tensor};
/// let mut model = Linear::new(2, 2, &Device::cpu());
/// let mut average = Average::new(&model, Averaging::Equal);
/// for _ in 0..3 {
///     // … a training step or epoch …
///     average.update(&model);
/// }
/// let best = average.model.eval();
/// assert_eq!(best.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
/// ```
#[derive(Clone, Debug)]
pub struct Average<M> {
    /// The average.
    pub model: M,
    /// How it is made.
    pub averaging: Averaging,
    /// Models that count in it.
    pub updates: u64,
}

impl<M: Module + Clone> Average<M> {
    /// An average that begins as a copy of `model`, which does not count among equals.
    pub fn new(model: &M, averaging: Averaging) -> Average<M> {
        Average { model: model.clone(), averaging, updates: 0 }
    }

    /// Takes the model into account.
    ///
    /// # Panics
    /// If it has other parameters or shapes.
    #[track_caller]
    pub fn update(&mut self, model: &M) {
        self.updates += 1;
        let weight = match self.averaging {
            Averaging::Equal => 1.0 / self.updates as f64,
            // The first model is taken over, as it is by PyTorch's `AveragedModel`.
            Averaging::Exponential(_) if self.updates == 1 => 1.0,
            Averaging::Exponential(stays) => 1.0 - stays,
        };
        no_grad(|| self.model.blend(model, weight));
    }
}

/// Measures the running statistics of all batch norms anew, as the mean over `batches`: an averaged model's own do not fit
/// its parameters. `forward` runs the model.
///
/// ```
/// use fornax_nn::{BatchNorm1d, Module, update_batch_norm};
/// use fornax_tensor::{Device, Tensor};
/// let mut norm = BatchNorm1d::new(1, &Device::cpu());
/// let batches = [Tensor::from([[1.0], [3.0]]), Tensor::from([[5.0], [7.0]])];
/// update_batch_norm(&mut norm, &batches, |norm, x| drop(norm.forward(x)));
/// assert_eq!(norm.stats.unwrap().running_mean.get().to_vec::<f32>(), [4.0]);
/// ```
#[track_caller]
pub fn update_batch_norm<'a, M: Module, B: 'a>(
    model: &mut M,
    batches: impl IntoIterator<Item = &'a B>,
    mut forward: impl FnMut(&M, &B),
) {
    struct Measure(bool);
    impl VisitorMut for Measure {
        fn mode(&mut self, _: &Path, mode: &mut Mode) {
            mode.set_measuring(self.0);
        }
        fn buffer(&mut self, path: &Path, buffer: &mut Buffer) {
            let (old, value) = (
                buffer.get(),
                match path.last() {
                    "running_mean" | "num_batches_tracked" => 0.0,
                    "running_var" => 1.0,
                    _ => return,
                },
            );
            if self.0 {
                let zero = Tensor::full((), value, DType::F64, old.device()).to_dtype(old.dtype());
                buffer.set(&zero.expand(old.shape()));
            }
        }
    }
    model.visit_mut(&mut Path::default(), &mut Measure(true));
    no_grad(|| batches.into_iter().for_each(|batch| forward(model, batch)));
    model.visit_mut(&mut Path::default(), &mut Measure(false));
}
