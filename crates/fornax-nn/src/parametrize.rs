//! Weights computed from other parameters: [`WeightNorm`], [`SpectralNorm`] around a layer.

use crate::module::{Path, Visitor, VisitorMut};
use crate::{Buffer, Layer, Mode, Module, Param};
use core::fmt;
use fornax_tensor::{Shape, Tensor, keepdim, no_grad};

/// A layer with one weight that may be computed.
pub trait Weighted: Layer + Clone {
    /// The dim of the weight that its outputs are along.
    const OUTPUT_DIM: usize;

    /// The weight.
    fn weight(&self) -> &Param;

    /// The weight, to change.
    fn weight_mut(&mut self) -> &mut Param;
}

macro_rules! weighted {
    ($($name:ident $dim:literal)*) => {$(
        impl Weighted for crate::$name {
            const OUTPUT_DIM: usize = $dim;
            fn weight(&self) -> &Param {
                &self.weight
            }
            fn weight_mut(&mut self) -> &mut Param {
                &mut self.weight
            }
        }
    )*};
}

weighted!(Linear 0 Conv1d 0 Conv2d 0 Conv3d 0 ConvTranspose1d 1 ConvTranspose2d 1 ConvTranspose3d 1 Embedding 0);

/// `layer` with another weight, in one call.
#[track_caller]
fn forward_with<L: Weighted>(layer: &L, weight: &Tensor, x: &Tensor) -> Tensor {
    let mut layer = layer.clone();
    *layer.weight_mut() = Param::computed(weight);
    layer.forward(x)
}

/// Sees all of a layer but its weight.
struct WithoutWeight<'v, V: ?Sized>(&'v mut V, usize);

impl<V: ?Sized> WithoutWeight<'_, V> {
    fn is_weight(&self, path: &Path) -> bool {
        path.depth() == self.1 + 1 && path.last() == "weight"
    }
}

impl<'a> Visitor<'a> for WithoutWeight<'_, dyn Visitor<'a> + '_> {
    fn param(&mut self, path: &Path, param: &'a Param) {
        if !self.is_weight(path) {
            self.0.param(path, param);
        }
    }
    fn buffer(&mut self, path: &Path, buffer: &'a Buffer) {
        self.0.buffer(path, buffer);
    }
    fn setting(&mut self, path: &Path, value: &dyn fmt::Debug) {
        self.0.setting(path, value);
    }
    fn enter(&mut self, path: &Path, type_name: &'static str, address: usize) {
        self.0.enter(path, type_name, address);
    }
    fn leave(&mut self, path: &Path) {
        self.0.leave(path);
    }
}

impl VisitorMut for WithoutWeight<'_, dyn VisitorMut + '_> {
    fn param(&mut self, path: &Path, param: &mut Param) {
        if !self.is_weight(path) {
            self.0.param(path, param);
        }
    }
    fn buffer(&mut self, path: &Path, buffer: &mut Buffer) {
        self.0.buffer(path, buffer);
    }
    fn mode(&mut self, path: &Path, mode: &mut Mode) {
        self.0.mode(path, mode);
    }
}

/// What stands under `parametrizations.weight` of both.
macro_rules! parametrized {
    ($name:ident { $($key:literal => $field:ident),* }) => {
        impl<L: Weighted> Module for $name<L> {
            fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
                let depth = path.depth();
                self.layer.visit(path, &mut WithoutWeight(&mut *visitor, depth));
                path.push("parametrizations");
                path.push("weight");
                $(
                    path.push($key);
                    self.$field.visit(path, visitor);
                    path.pop();
                )*
                path.pop();
                path.pop();
            }
            fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
                let depth = path.depth();
                self.layer.visit_mut(path, &mut WithoutWeight(&mut *visitor, depth));
                path.push("parametrizations");
                path.push("weight");
                $(
                    path.push($key);
                    self.$field.visit_mut(path, visitor);
                    path.pop();
                )*
                path.pop();
                path.pop();
            }
        }

        impl<L: Weighted> Layer for $name<L> {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                $name::forward(self, x)
            }
        }
    };
}

/// A layer whose weight is a direction times a length for each output: `weight = g · v / ‖v‖`.
///
/// Parameters have the names of `torch.nn.utils.parametrizations.weight_norm`: `parametrizations.weight.original0` is `g`,
/// `original1` is `v`.
///
/// ```
/// use fornax_nn::{Linear, Module, WeightNorm};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let linear = Linear::new(4, 3, &device);
/// let layer = WeightNorm::new(linear.clone());
/// let names: Vec<String> = layer.state_dict().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]);
/// let x = Tensor::randn([2, 4], &device);
/// assert!((layer.forward(&x) - linear.forward(&x)).abs().amax(()).item::<f32>() < 1e-6);
/// ```
///
/// # References
/// Salimans, Kingma (2016), *Weight Normalization*, arXiv:1602.07868.
#[derive(Clone, Debug)]
pub struct WeightNorm<L: Weighted> {
    /// The layer; its own weight is not used.
    pub layer: L,
    /// Lengths: the size of the weight along dim 0, 1 along the others.
    pub g: Param,
    /// Directions, shaped as the weight.
    pub v: Param,
}

parametrized!(WeightNorm { "original0" => g, "original1" => v });

impl<L: Weighted> WeightNorm<L> {
    /// Splits the weight of `layer` into lengths and directions, along dim 0.
    #[track_caller]
    pub fn new(layer: L) -> WeightNorm<L> {
        let weight = layer.weight().detach();
        WeightNorm { g: Param::new(&norms(&weight)), v: Param::new(&weight), layer }
    }

    /// The weight.
    #[track_caller]
    pub fn weight(&self) -> Tensor {
        &*self.v * (&*self.g / norms(&self.v))
    }

    /// The layer alone, with the weight as it is now.
    #[must_use]
    #[track_caller]
    pub fn into_layer(self) -> L {
        let weight = self.weight();
        let mut layer = self.layer;
        layer.weight_mut().set(&weight);
        layer
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` does not fit the layer.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        forward_with(&self.layer, &self.weight(), x)
    }
}

/// Norms over all dims but the first.
#[track_caller]
fn norms(weight: &Tensor) -> Tensor {
    let mut shape = alloc::vec![1; weight.rank()];
    shape[0] = weight.shape()[0];
    weight.reshape([shape[0] as i64, -1]).square().sum(keepdim(-1)).sqrt().reshape(Shape::from(shape))
}

/// A layer whose weight, as a matrix `[outputs, rest]`, is divided by its largest singular value.
///
/// The singular vectors are estimated by power iterations, `n_power_iterations` at each call in training, and kept in
/// buffers. Names are those of `torch.nn.utils.parametrizations.spectral_norm`: `parametrizations.weight.original`, and the
/// buffers `parametrizations.weight.0._u` and `_v`.
///
/// # References
/// Miyato, Kataoka, Koyama, Yoshida (2018), *Spectral Normalization for Generative Adversarial Networks*,
/// arXiv:1802.05957, algorithm 1.
#[derive(Clone, Debug)]
pub struct SpectralNorm<L: Weighted> {
    /// The layer; its own weight is not used.
    pub layer: L,
    /// The weight before it is divided.
    pub original: Param,
    /// The singular vectors.
    pub vectors: SingularVectors,
}

/// What [`SpectralNorm`] keeps of the weight.
#[derive(Module, Clone, Debug)]
pub struct SingularVectors {
    /// `[outputs]`.
    #[module(rename = "_u")]
    pub u: Buffer,
    /// `[rest]`.
    #[module(rename = "_v")]
    pub v: Buffer,
    /// Power iterations at each call in training; 1.
    pub n_power_iterations: usize,
    /// Smallest norm; 1e-12.
    pub eps: f64,
    mode: Mode,
}

parametrized!(SpectralNorm { "original" => original, "0" => vectors });

impl<L: Weighted> SpectralNorm<L> {
    /// Takes the weight of `layer`, and iterates 15 times from random vectors.
    #[track_caller]
    pub fn new(layer: L) -> SpectralNorm<L> {
        let matrix = as_matrix::<L>(&layer.weight().detach()); // [outputs, rest]
        let [outputs, rest] = matrix.dims();
        let random = |size: usize| Buffer::new(&Tensor::randn([size], matrix.device()).normalize(2.0, 0, 1e-12));
        let vectors = SingularVectors {
            u: random(outputs),
            v: random(rest),
            n_power_iterations: 1,
            eps: 1e-12,
            mode: Mode::default(),
        };
        vectors.iterate(&matrix, 15);
        SpectralNorm { original: Param::new(layer.weight()), layer, vectors }
    }

    /// The weight. In training, iterates first.
    #[track_caller]
    pub fn weight(&self) -> Tensor {
        let matrix = as_matrix::<L>(&self.original);
        if self.vectors.mode.is_training() {
            self.vectors.iterate(&matrix.detach(), self.vectors.n_power_iterations);
        }
        let sigma = (self.vectors.u.get() * matrix.matmul(&self.vectors.v.get())).sum(());
        &*self.original / sigma
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If `x` does not fit the layer.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        forward_with(&self.layer, &self.weight(), x)
    }
}

impl SingularVectors {
    #[track_caller]
    fn iterate(&self, matrix: &Tensor, times: usize) {
        no_grad(|| {
            for _ in 0..times {
                self.u.set(&matrix.matmul(&self.v.get()).normalize(2.0, 0, self.eps));
                self.v.set(&matrix.t().matmul(&self.u.get()).normalize(2.0, 0, self.eps));
            }
        });
    }
}

/// The weight with its outputs in front: `[outputs, rest]`.
#[track_caller]
fn as_matrix<L: Weighted>(weight: &Tensor) -> Tensor {
    weight.transpose(0, L::OUTPUT_DIM as i64).flatten(1, -1)
}
