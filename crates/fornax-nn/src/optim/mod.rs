//! Optimizers: from gradients to better parameters.
//!
//! `optimizer.step(&mut model, &gradients)` records the update of every parameter and runs it with all pending work: a
//! training step is one program. Learning rates and step counts enter as run-time values; changing them compiles nothing.
//!
//! ```
//! use fornax_nn::{Linear, optim::AdamW};
//! use fornax_tensor::{Device, Tensor};
//! let device = Device::cpu();
//! let mut model = Linear::new(2, 1, &device);
//! let mut optimizer = AdamW::new(0.1).betas((0.9, 0.99)).weight_decay(0.0);
//! let (x, y) = (Tensor::from([[1.0, 2.0], [3.0, 1.0]]), Tensor::from([[1.0], [2.0]]));
//! for _ in 0..100 {
//!     let loss = (model.forward(&x) - &y).square().mean(());
//!     let gradients = loss.backward();
//!     optimizer.step(&mut model, &gradients);
//! }
//! assert!((model.forward(&x) - &y).square().mean(()).item::<f32>() < 0.01);
//! ```
//!
//! - Schedules of the learning rate are in [`crate::schedule`]: functions of the step whose value goes to `optimizer.lr`.
//! - `only` says which parameters an optimizer trains, `group` which have settings of their own; see [`Selection`].
//! - Gradients of several batches add up with [`Gradients::accumulate`]; [`clip_grad_norm`] and its like limit them.
//! - [`GradScaler`] keeps gradients of half precision in range. [`crate::Average`] averages models.

mod adafactor;
mod adam;
mod adan;
mod adaptive;
mod asgd;
mod clip;
mod group;
mod lbfgs;
mod muon;
mod scaler;
mod schedule_free;
mod sgd;
mod sign;
mod soap;
mod state;

pub use adafactor::Adafactor;
pub use adam::{Adam, AdamW, Adamax, Lamb, NAdam, RAdam};
pub use adan::Adan;
pub use adaptive::{Adadelta, Adagrad, RmsProp};
pub use asgd::Asgd;
pub use clip::{clip_grad_norm, clip_grad_value};
pub(crate) use group::is_under;
pub use group::{Group, Selection};
pub use lbfgs::{Lbfgs, LineSearch};
pub use muon::{AdjustLr, Muon};
pub use scaler::GradScaler;
pub use schedule_free::ScheduleFreeAdamW;
pub use sgd::Sgd;
pub use sign::{Lion, Rprop};
pub use soap::Soap;
pub use state::{OptimizerState, Slot, StateError};

use crate::Module;
use fornax_tensor::{Gradients, Tensor};

/// What all optimizers with a learning rate have in common, for training loops that take any of them.
pub trait Optimizer {
    /// Updates the parameters that have a gradient, and runs all pending work.
    ///
    /// # Panics
    /// If a gradient or the optimizer's state does not fit its parameter.
    #[track_caller]
    fn step(&mut self, model: &mut dyn Module, gradients: &Gradients);

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate, as schedules do.
    fn set_lr(&mut self, lr: f64);

    /// What it remembers, to save.
    fn state(&self) -> &OptimizerState;

    /// What it remembers, to load.
    fn state_mut(&mut self) -> &mut OptimizerState;
}

/// Defines an optimizer: its struct, `new(lr)`, a setter for each setting, `step`, and [`Optimizer`]. The rule itself is
/// a method `update(&self, p, g, slot) -> Tensor` written beside it: from value, gradient and what is remembered of the
/// parameter (its `step` counted already) to the new value.
///
/// `optimizer! { /** docs */ Sgd { /** How much … */ momentum: f64 = 0.0, } }` becomes
///
/// ```ignore
/// pub struct Sgd {
///     pub lr: f64,
///     pub momentum: f64,
///     pub maximize: bool,
///     pub only: Selection,
///     pub groups: Vec<Group<Sgd>>,
///     pub state: OptimizerState,
/// }
/// impl Sgd {
///     pub fn new(lr: f64) -> Sgd { … }
///     pub fn momentum(mut self, momentum: f64) -> Sgd { … }
///     pub fn step(&mut self, model: &mut dyn Module, gradients: &Gradients) { … }
/// }
/// impl Optimizer for Sgd { … }
/// ```
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr, )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            /// Learning rate.
            pub lr: f64,
            $( $(#[$field_doc])* pub $field: $ty, )*
            /// Whether it climbs in place of descending; false.
            pub maximize: bool,
            /// Which parameters it trains; all.
            pub only: $crate::optim::Selection,
            /// Parameters with settings of their own; the first group that includes one counts.
            pub groups: alloc::vec::Vec<$crate::optim::Group<$name>>,
            /// What it remembers of each parameter.
            pub state: $crate::optim::OptimizerState,
        }

        impl $name {
            /// With learning rate `lr` and the usual settings.
            pub fn new(lr: f64) -> $name {
                $name {
                    lr,
                    $( $field: $default, )*
                    maximize: false,
                    only: $crate::optim::Selection::default(),
                    groups: alloc::vec::Vec::new(),
                    state: $crate::optim::OptimizerState::default(),
                }
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(mut self, $field: $ty) -> $name {
                    self.$field = $field;
                    self
                }
            )*

            /// Whether it climbs in place of descending; false.
            #[must_use]
            pub fn maximize(mut self, maximize: bool) -> $name {
                self.maximize = maximize;
                self
            }

            /// Learning rate.
            #[must_use]
            pub fn lr(mut self, lr: f64) -> $name {
                self.lr = lr;
                self
            }

            /// Trains only these parameters.
            #[must_use]
            pub fn only(mut self, select: $crate::optim::Selection) -> $name {
                self.only = select;
                self
            }

            /// Gives some parameters settings of their own: `change` gets those of the optimizer as they are now. The
            /// first group that includes a parameter counts. Its learning rate stays in proportion to the optimizer's.
            #[must_use]
            pub fn group(
                mut self,
                select: $crate::optim::Selection,
                change: impl FnOnce($name) -> $name,
            ) -> $name {
                let mut settings = $name { groups: alloc::vec::Vec::new(), ..self.clone() };
                settings.state = $crate::optim::OptimizerState::default();
                let settings = change(settings);
                let lr_scale = if self.lr == 0.0 { 1.0 } else { settings.lr / self.lr };
                self.groups.push($crate::optim::Group { select, settings, lr_scale });
                self
            }

            /// Updates the parameters that have a gradient, and runs all pending work.
            ///
            /// # Panics
            /// If a gradient or the optimizer's state does not fit its parameter.
            #[track_caller]
            pub fn step(&mut self, model: &mut dyn $crate::Module, gradients: &fornax_tensor::Gradients) {
                for group in &mut self.groups {
                    group.settings.lr = self.lr * group.lr_scale;
                }
                let mut state = core::mem::take(&mut self.state);
                state.step(model, gradients, &self.only, self.maximize, |path, p, g, slot| {
                    let group = self.groups.iter().find(|group| group.select.includes(path, p));
                    group.map_or(&*self, |group| &group.settings).update(p, g, slot)
                });
                self.state = state;
            }
        }

        impl $crate::optim::Optimizer for $name {
            #[track_caller]
            fn step(&mut self, model: &mut dyn $crate::Module, gradients: &fornax_tensor::Gradients) {
                $name::step(self, model, gradients);
            }
            fn lr(&self) -> f64 {
                self.lr
            }
            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }
            fn state(&self) -> &$crate::optim::OptimizerState {
                &self.state
            }
            fn state_mut(&mut self) -> &mut $crate::optim::OptimizerState {
                &mut self.state
            }
        }
    };
}
use optimizer;

/// `g + weight_decay · p`: the gradient with an L2 penalty.
#[track_caller]
fn with_penalty(g: &Tensor, p: &Tensor, weight_decay: f64) -> Tensor {
    if weight_decay == 0.0 { g.clone() } else { g + p * weight_decay }
}

/// `p · (1 − lr · weight_decay)`: decay that is not part of the gradient.
#[track_caller]
fn decayed(p: &Tensor, lr: f64, weight_decay: f64) -> Tensor {
    if weight_decay == 0.0 { p.clone() } else { p * (1.0 - lr * weight_decay) }
}

/// The running mean called `name`, moved towards `value` and remembered; it starts at 0.
#[track_caller]
fn running_mean(slot: &mut Slot, name: &str, value: &Tensor, keep: f64) -> Tensor {
    let mean = match slot.get(name) {
        Some(mean) => mean * keep + value * (1.0 - keep),
        None => value * (1.0 - keep),
    };
    slot.set(name, &mean);
    mean
}
