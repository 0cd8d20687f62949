//! [`checkpoint`]: memory for time.

use super::Outputs;
use crate::autodiff::Scope;
use crate::{Device, Tensor, is_grad_enabled};
use alloc::vec::Vec;

/// `f(inputs)`, keeping nothing for the backward pass but the inputs: there `f` is run a second time.
///
/// Gradients, also those of tensors that `f` captures, equal those of a plain call, and are differentiable again. The
/// random stream of the inputs' devices is set back for the second run, so that dropout drops the same elements.
///
/// # Notes
/// - `f` must do the same both times. What it does besides computing (counters, running statistics) happens twice.
/// - `f` must be `'static`: it captures by `move`, and cloning a tensor is cheap.
/// - Inside [`vmap`](crate::vmap), gradients taken outside it are right, but save no memory; those taken inside do.
///   Prefer `checkpoint` of `vmap`.
///
/// # Panics
/// If `f` does.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, checkpoint};
/// let x = Tensor::from([1.0, 2.0]).requires_grad();
/// let y = checkpoint(&[&x], |x| x[0].sin().exp());
/// let gradients = y.sum(()).backward();
/// let plain = x.sin().exp().sum(()).backward();
/// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), plain.get(&x).unwrap().to_vec::<f32>());
/// ```
///
/// # References
/// Chen, Xu, Zhang, Guestrin (2016), *Training Deep Nets with Sublinear Memory Cost*, arXiv:1604.06174;
/// `torch.utils.checkpoint`.
#[track_caller]
pub fn checkpoint<R: Outputs>(inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> R + Send + Sync + 'static) -> R {
    let inputs: Vec<Tensor> = inputs.iter().map(|&x| x.clone()).collect();
    if !is_grad_enabled() {
        return f(&inputs);
    }
    let random = RandomStates::of(&inputs);
    let scope = Scope::pass(&inputs);
    let outputs = f(&scope.inputs).into_vec();
    let again = move || {
        let scope = Scope::pass(&inputs);
        let _restore = Restore(RandomStates::of(&inputs));
        random.set();
        let outputs = f(&scope.inputs).into_vec();
        (scope, outputs)
    };
    R::from_vec(scope.recompute(outputs, again))
}

/// The random states of some devices.
struct RandomStates(Vec<(Device, (u64, u64))>);

/// Sets them back when dropped.
struct Restore(RandomStates);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl RandomStates {
    fn of(tensors: &[Tensor]) -> RandomStates {
        let mut states: Vec<(Device, (u64, u64))> = Vec::new();
        for device in tensors.iter().map(Tensor::device) {
            if !states.iter().any(|(other, _)| other == device) {
                states.push((device.clone(), device.random_state()));
            }
        }
        RandomStates(states)
    }

    fn set(&self) {
        self.0.iter().for_each(|(device, state)| device.set_random_state(*state));
    }
}
