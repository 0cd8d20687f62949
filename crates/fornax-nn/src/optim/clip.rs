//! Limits on gradients.

use fornax_tensor::{DType, Gradients, Tensor};

/// Scales all gradients so that their common norm is at most `max_norm`, and gives the norm before. Nothing is read:
/// norm and scale stay on the device.
///
/// ```
/// use fornax_nn::optim::clip_grad_norm;
/// use fornax_tensor::Tensor;
/// let x = Tensor::from([3.0, 4.0]).requires_grad();
/// let mut gradients = x.square().sum(()).backward();
/// let norm = clip_grad_norm(&mut gradients, 5.0);
/// assert_eq!(norm.item::<f32>(), 10.0);
/// let clipped = gradients.get(&x).unwrap().to_vec::<f32>();
/// assert!((clipped[0] - 3.0).abs() < 1e-5 && (clipped[1] - 4.0).abs() < 1e-5);
/// ```
///
/// # Panics
/// If there are no gradients, or they are on several devices.
///
/// # References
/// Pascanu, Mikolov, Bengio (2013), *On the Difficulty of Training Recurrent Neural Networks*, arXiv:1211.5063.
#[track_caller]
pub fn clip_grad_norm(gradients: &mut Gradients, max_norm: f64) -> Tensor {
    let mut total: Option<Tensor> = None;
    for gradient in gradients.values() {
        let square = gradient.to_dtype(gradient.dtype().compute()).square().sum(()).to_dtype(DType::F32);
        total = Some(match total {
            Some(total) => total + square,
            None => square,
        });
    }
    let Some(total) = total else { panic!("clip_grad_norm: there are no gradients") };
    let norm = total.sqrt();
    let scale = ((&norm + 1e-6).reciprocal() * max_norm).minimum(1.0);
    for gradient in gradients.values_mut() {
        *gradient = &*gradient * scale.to_dtype(gradient.dtype());
    }
    norm
}

/// Cuts every element of every gradient off at `±limit`.
#[track_caller]
pub fn clip_grad_value(gradients: &mut Gradients, limit: f64) {
    for gradient in gradients.values_mut() {
        *gradient = gradient.maximum(-limit).minimum(limit);
    }
}
