//! Transforms of functions: gradients, products with Jacobians, batching, recomputation.
//!
//! A function takes `&[Tensor]` and returns [`Outputs`]; a transform runs it, once, in a way of its own. All of them
//! nest in each other. Start at [`vjp`]; [`vmap`] is the one that is not about derivatives.

pub(crate) mod batching;
mod checkpoint;
mod derivatives;
mod hook;
mod vmap;

pub use checkpoint::checkpoint;
pub use derivatives::{Pullback, hessian, hvp, jacobian, jvp, value_and_grad, vjp};
pub use vmap::vmap;
pub(crate) use vmap::{Batched, Level};

use crate::Tensor;
use alloc::vec;
use alloc::vec::Vec;
use core::array;

/// What a transformed function may return.
pub trait Outputs: Sized {
    /// As a list.
    fn into_vec(self) -> Vec<Tensor>;

    /// From a list as long as [`Outputs::into_vec`] gave.
    fn from_vec(tensors: Vec<Tensor>) -> Self;
}

impl Outputs for Tensor {
    fn into_vec(self) -> Vec<Tensor> {
        vec![self]
    }

    fn from_vec(mut tensors: Vec<Tensor>) -> Tensor {
        tensors.swap_remove(0)
    }
}

impl Outputs for Vec<Tensor> {
    fn into_vec(self) -> Vec<Tensor> {
        self
    }

    fn from_vec(tensors: Vec<Tensor>) -> Vec<Tensor> {
        tensors
    }
}

impl<const N: usize> Outputs for [Tensor; N] {
    fn into_vec(self) -> Vec<Tensor> {
        self.into()
    }

    fn from_vec(tensors: Vec<Tensor>) -> [Tensor; N] {
        let mut tensors = tensors.into_iter();
        array::from_fn(|_| tensors.next().expect("as many tensors as `into_vec` gave"))
    }
}

impl Outputs for (Tensor, Tensor) {
    fn into_vec(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }

    fn from_vec(tensors: Vec<Tensor>) -> (Tensor, Tensor) {
        let [a, b] = Outputs::from_vec(tensors);
        (a, b)
    }
}
