//! [`Sgd`].

use super::OptimizerState;
use crate::Module;
use alloc::vec::Vec;
use fornax_tensor::{Gradients, Tensor};

/// Stochastic gradient descent, with momentum if asked for.
///
/// `g ← gradient + weight_decay · p`, `v ← momentum · v + (1 − dampening) · g` (`v = g` at first), and `p ← p − lr · v`,
/// or with `nesterov` `p ← p − lr · (g + momentum · v)`.
///
/// # References
/// Sutskever, Martens, Dahl, Hinton (2013), *On the Importance of Initialization and Momentum in Deep Learning*.
#[derive(Clone, Debug)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last update stays; 0.
    pub momentum: f64,
    /// How much of the gradient does not enter the momentum; 0.
    pub dampening: f64,
    /// L2 penalty; 0.
    pub weight_decay: f64,
    /// Looks ahead along the momentum; false.
    pub nesterov: bool,
    /// What it remembers.
    pub state: OptimizerState,
}

impl Sgd {
    /// Plain descent with learning rate `lr`.
    pub fn new(lr: f64) -> Sgd {
        Sgd { lr, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, state: OptimizerState::default() }
    }

    /// Keeps so much of the last update.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.momentum = momentum;
        self
    }

    /// L2 penalty.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Sgd {
        self.weight_decay = weight_decay;
        self
    }

    /// Updates the parameters that have a gradient, and runs all pending work.
    #[track_caller]
    pub fn step(&mut self, model: &mut (impl Module + ?Sized), gradients: &Gradients) {
        let (lr, momentum, dampening) = (self.lr, self.momentum, self.dampening);
        let (weight_decay, nesterov) = (self.weight_decay, self.nesterov);
        self.state.step(model, gradients, |p, gradient, slots: &mut Vec<Tensor>| {
            let g = if weight_decay == 0.0 { gradient.clone() } else { gradient + p * weight_decay };
            if momentum == 0.0 {
                return p - g * lr;
            }
            let v = match slots.first() {
                Some(v) => v * momentum + &g * (1.0 - dampening),
                None => g.clone(),
            };
            let direction = if nesterov { g + &v * momentum } else { v.clone() };
            *slots = Vec::from([v]);
            p - direction * lr
        });
    }
}
