//! Initial values of parameters, drawn from the device's random stream.
//!
//! As everything else they are lazy: a model of any size is described at once, and computed on its device when its
//! values are first needed.

use fornax_tensor::{Device, Shape, Tensor};

/// How many inputs feed one output, and how many outputs one input feeds, for a weight `[out, in, kernel…]`.
///
/// # Panics
/// If the shape has fewer than two dims.
#[track_caller]
pub fn fans(shape: &Shape) -> (usize, usize) {
    let &[out, input, ref kernel @ ..] = shape.dims() else {
        panic!("fans: {shape} has fewer than two dims");
    };
    let field: usize = kernel.iter().product();
    (input * field, out * field)
}

/// Uniform in `±√(1 / fan_in)`: PyTorch's default for linear and convolution layers, their biases included.
#[track_caller]
pub fn fan_in_uniform(shape: impl Into<Shape>, fan_in: usize, device: &Device) -> Tensor {
    let bound = 1.0 / libm::sqrt(fan_in.max(1) as f64);
    Tensor::uniform(shape, -bound, bound, device)
}

/// Uniform in `±gain · √(6 / (fan_in + fan_out))`.
///
/// # References
/// Glorot, Bengio (2010), *Understanding the Difficulty of Training Deep Feedforward Neural Networks*.
#[track_caller]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64, device: &Device) -> Tensor {
    let shape = shape.into();
    let (fan_in, fan_out) = fans(&shape);
    let bound = gain * libm::sqrt(6.0 / (fan_in + fan_out) as f64);
    Tensor::uniform(shape, -bound, bound, device)
}

/// Normal with standard deviation `gain · √(2 / (fan_in + fan_out))`.
///
/// # References
/// Glorot, Bengio (2010), *Understanding the Difficulty of Training Deep Feedforward Neural Networks*.
#[track_caller]
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64, device: &Device) -> Tensor {
    let shape = shape.into();
    let (fan_in, fan_out) = fans(&shape);
    Tensor::normal(shape, 0.0, gain * libm::sqrt(2.0 / (fan_in + fan_out) as f64), device)
}

/// Uniform in `±gain · √(3 / fan_in)`; the gain for ReLU is `√2`.
///
/// # References
/// He, Zhang, Ren, Sun (2015), *Delving Deep into Rectifiers*, arXiv:1502.01852.
#[track_caller]
pub fn kaiming_uniform(shape: impl Into<Shape>, gain: f64, device: &Device) -> Tensor {
    let shape = shape.into();
    let bound = gain * libm::sqrt(3.0 / fans(&shape).0 as f64);
    Tensor::uniform(shape, -bound, bound, device)
}

/// Normal with standard deviation `gain / √fan_in`; the gain for ReLU is `√2`.
///
/// # References
/// He, Zhang, Ren, Sun (2015), *Delving Deep into Rectifiers*, arXiv:1502.01852.
#[track_caller]
pub fn kaiming_normal(shape: impl Into<Shape>, gain: f64, device: &Device) -> Tensor {
    let shape = shape.into();
    let std = gain / libm::sqrt(fans(&shape).0 as f64);
    Tensor::normal(shape, 0.0, std, device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xavier_bounds_of_convolutions_count_the_kernel() {
        let device = Device::reference();
        for (shape, bound) in [([8, 3, 5], 0.330_289f32), ([2, 2, 1], 1.224_745)] {
            let mut values = alloc::vec::Vec::new();
            while values.len() < 2000 {
                values.extend(xavier_uniform(shape, 1.0, &device).to_vec::<f32>());
            }
            let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            assert!(largest <= bound && largest > 0.97 * bound, "{largest} against {bound}");
        }
    }
}
