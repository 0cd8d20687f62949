//! [`GradScaler`].

use super::Optimizer;
use crate::Module;
use fornax_tensor::{Gradients, Tensor};

/// Keeps small gradients of `f16` from vanishing: the loss is multiplied with a scale before `backward`, and gradients are
/// divided by it before the step. A step with gradients that are not finite is left out, and the scale is halved; it
/// doubles after many good steps.
///
/// ```
/// use fornax_nn::{Linear, optim::{GradScaler, Sgd}};
/// use fornax_tensor::{Device, Tensor};
/// let mut model = Linear::new(2, 1, &Device::cpu());
/// let (mut optimizer, mut scaler) = (Sgd::new(0.1), GradScaler::new());
/// let loss = model.forward(&Tensor::from([[1.0, 2.0]])).square().mean(());
/// let gradients = scaler.scale(&loss).backward();
/// assert!(scaler.step(&mut optimizer, &mut model, gradients));
/// ```
///
/// # References
/// Micikevicius et al. (2017), *Mixed Precision Training*, arXiv:1710.03740, section 3.2.
#[derive(Clone, Debug, PartialEq)]
pub struct GradScaler {
    /// What losses are multiplied with; 65,536 at first.
    pub scale: f64,
    /// What the scale is multiplied with after `growth_interval` good steps; 2.
    pub growth_factor: f64,
    /// What the scale is multiplied with after a bad step; 0.5.
    pub backoff_factor: f64,
    /// Good steps in a row until the scale grows; 2000.
    pub growth_interval: u64,
    /// Good steps since the scale changed. With `scale` it is all there is to save.
    pub good_steps: u64,
}

impl Default for GradScaler {
    fn default() -> GradScaler {
        GradScaler::new()
    }
}

impl GradScaler {
    /// With PyTorch's settings.
    pub fn new() -> GradScaler {
        GradScaler { scale: 65_536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000, good_steps: 0 }
    }

    /// The loss to call `backward` on.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        loss * self.scale
    }

    /// Divides gradients by the scale, as clipping needs it. Whether all of them are finite, it reads from the device.
    #[track_caller]
    pub fn unscale(&self, gradients: &mut Gradients) -> bool {
        let mut worst: Option<Tensor> = None;
        for gradient in gradients.values_mut() {
            // 0 · x is 0, but for infinities and NaN.
            let bad = (&*gradient * 0.0).sum(()).to_dtype(fornax_tensor::DType::F32);
            worst = Some(worst.map_or(bad.clone(), |worst| worst + bad));
            *gradient = &*gradient * (1.0 / self.scale);
        }
        worst.is_none_or(|worst| worst.item::<f32>() == 0.0)
    }

    /// Takes the optimizer's step with unscaled gradients, unless one is not finite; adapts the scale. Whether the step was
    /// taken.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, model: &mut dyn Module, mut gradients: Gradients) -> bool {
        let is_finite = self.unscale(&mut gradients);
        if is_finite {
            optimizer.step(model, &gradients);
        }
        self.update(is_finite);
        is_finite
    }

    /// Adapts the scale after a step of one's own: whether its gradients were finite.
    pub fn update(&mut self, is_finite: bool) {
        if !is_finite {
            self.scale *= self.backoff_factor;
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps == self.growth_interval {
            self.scale *= self.growth_factor;
            self.good_steps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Linear, optim::Sgd};
    use fornax_tensor::Device;

    #[test]
    fn steps_with_infinite_gradients_are_left_out() {
        let device = Device::reference();
        let mut model = Linear::new(2, 1, &device);
        let (mut optimizer, mut scaler) = (Sgd::new(0.1), GradScaler { growth_interval: 2, ..GradScaler::new() });
        let x = Tensor::from_vec(alloc::vec![1.0f32, f32::INFINITY], [1, 2], &device);
        let before = model.weight.to_vec::<f32>();
        let gradients = scaler.scale(&model.forward(&x).sum(())).backward();
        assert!(!scaler.step(&mut optimizer, &mut model, gradients));
        assert_eq!((scaler.scale, optimizer.state.step), (32_768.0, 0));
        assert_eq!(model.weight.to_vec::<f32>(), before);

        let x = Tensor::from_vec(alloc::vec![1.0f32, 2.0], [1, 2], &device);
        for scale in [32_768.0, 65_536.0] {
            let before = model.weight.to_vec::<f32>();
            let gradients = scaler.scale(&model.forward(&x).sum(())).backward();
            assert!(scaler.step(&mut optimizer, &mut model, gradients));
            assert_eq!(scaler.scale, scale);
            let after = model.weight.to_vec::<f32>();
            assert!((before[1] - after[1] - 0.2).abs() < 1e-6);
        }
    }
}
