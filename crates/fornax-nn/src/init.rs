//! Initial values of parameters, drawn from the device's random stream.
//!
//! As everything else they are lazy: a model of any size is described at once, and computed on its device when its
//! values are first needed. Plain draws and constants are [`Tensor::uniform`], [`Tensor::normal`], [`Tensor::full`],
//! [`Tensor::ones`] and [`Tensor::zeros`].

use fornax_tensor::{DType, Device, Shape, Tensor};

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

/// Which fan keeps its variance: forwards that of the inputs, backwards that of the outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The number of inputs: activations keep their size.
    #[default]
    In,
    /// The number of outputs: gradients keep their size.
    Out,
}

impl Fan {
    #[track_caller]
    fn of(self, shape: &Shape) -> f64 {
        let (fan_in, fan_out) = fans(shape);
        match self {
            Fan::In => fan_in as f64,
            Fan::Out => fan_out as f64,
        }
    }
}

/// By how much a weight must be larger for what a nonlinearity takes away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// None, or a sigmoid: 1.
    Linear,
    /// `tanh`: 5/3.
    Tanh,
    /// ReLU: √2.
    Relu,
    /// Leaky ReLU with this slope: `√(2 / (1 + slope²))`.
    LeakyRelu(
        /// The slope below 0.
        f64,
    ),
    /// SELU: 3/4.
    Selu,
}

impl Gain {
    /// The factor.
    pub fn value(self) -> f64 {
        match self {
            Gain::Linear => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => core::f64::consts::SQRT_2,
            Gain::LeakyRelu(slope) => libm::sqrt(2.0 / (1.0 + slope * slope)),
            Gain::Selu => 0.75,
        }
    }
}

/// Uniform in `±gain · √(3 / fan)`.
///
/// # References
/// He, Zhang, Ren, Sun (2015), *Delving Deep into Rectifiers*, arXiv:1502.01852.
#[track_caller]
pub fn kaiming_uniform(shape: impl Into<Shape>, gain: Gain, fan: Fan, device: &Device) -> Tensor {
    let shape = shape.into();
    let bound = gain.value() * libm::sqrt(3.0 / fan.of(&shape));
    Tensor::uniform(shape, -bound, bound, device)
}

/// Normal with standard deviation `gain / √fan`.
///
/// # References
/// He, Zhang, Ren, Sun (2015), *Delving Deep into Rectifiers*, arXiv:1502.01852.
#[track_caller]
pub fn kaiming_normal(shape: impl Into<Shape>, gain: Gain, fan: Fan, device: &Device) -> Tensor {
    let shape = shape.into();
    let std = gain.value() / libm::sqrt(fan.of(&shape));
    Tensor::normal(shape, 0.0, std, device)
}

/// Uniform in `±√(3 / fan_in)`, for SELU and tanh.
///
/// # References
/// LeCun, Bottou, Orr, Müller (1998), *Efficient BackProp*, section 4.6.
#[track_caller]
pub fn lecun_uniform(shape: impl Into<Shape>, device: &Device) -> Tensor {
    kaiming_uniform(shape, Gain::Linear, Fan::In, device)
}

/// Normal with standard deviation `√(1 / fan_in)`, for SELU and tanh.
///
/// # References
/// LeCun, Bottou, Orr, Müller (1998), *Efficient BackProp*, section 4.6.
#[track_caller]
pub fn lecun_normal(shape: impl Into<Shape>, device: &Device) -> Tensor {
    kaiming_normal(shape, Gain::Linear, Fan::In, device)
}

/// Normal, cut off at `low` and `high`: every value comes from within.
///
/// # Panics
/// If nothing lies within.
#[track_caller]
pub fn trunc_normal(
    shape: impl Into<Shape>,
    (mean, std): (f64, f64),
    (low, high): (f64, f64),
    device: &Device,
) -> Tensor {
    assert!(low < high && std > 0.0, "trunc_normal: nothing lies between {low} and {high} with deviation {std}");
    // Uniform between the distribution function's values at the limits, through its inverse.
    let cdf = |x: f64| libm::erf((x - mean) / (std * core::f64::consts::SQRT_2));
    let u = Tensor::uniform(shape, cdf(low), cdf(high), device);
    (u.erfinv() * (std * core::f64::consts::SQRT_2) + mean).maximum(low).minimum(high)
}

/// Ones on the diagonal: `[rows, columns]` that keeps its input as far as it goes.
#[track_caller]
pub fn eye(rows: usize, columns: usize, device: &Device) -> Tensor {
    let count = |n: usize| Tensor::arange(0, n, 1, DType::I64, device);
    count(rows).unsqueeze(1).eq(count(columns)).to_dtype(DType::F32)
}

/// A convolution's weight `[out, in / groups, kernel…]` that keeps its input: a one in the middle of the kernel of each
/// channel.
///
/// # Panics
/// If there are no kernel dims, or the channels do not split into the groups.
#[track_caller]
pub fn dirac(shape: impl Into<Shape>, groups: usize, device: &Device) -> Tensor {
    let shape = shape.into();
    let &[out, input, ref kernel @ ..] = shape.dims() else {
        panic!("dirac: {shape} is not [out, in, kernel…]");
    };
    assert!(
        !kernel.is_empty() && groups > 0 && out.is_multiple_of(groups),
        "dirac: {shape} is not [out, in, kernel…] whose outputs split into {groups} groups"
    );
    let per_group = out / groups;
    let mut weight = eye(per_group, input, device); // [out / groups, in]
    let mut sizes = alloc::vec![1, per_group, input];
    for &size in kernel {
        let middle = Tensor::arange(0, size, 1, DType::I64, device).eq((size / 2) as i64).to_dtype(DType::F32);
        weight = weight.unsqueeze(-1) * middle;
        sizes.push(size);
    }
    let weight = weight.reshape(Shape::from(sizes.as_slice()));
    sizes[0] = groups;
    weight.expand(Shape::from(sizes)).reshape(&shape)
}

/// A (semi-)orthogonal matrix times `gain`; dims after the first are one.
///
/// # Panics
/// If the shape has fewer than two dims.
///
/// # References
/// Saxe, McClelland, Ganguli (2013), *Exact Solutions to the Nonlinear Dynamics of Learning in Deep Linear Neural
/// Networks*, arXiv:1312.6120.
#[track_caller]
pub fn orthogonal(shape: impl Into<Shape>, gain: f64, device: &Device) -> Tensor {
    let shape = shape.into();
    let &[rows, ref rest @ ..] = shape.dims() else { panic!("orthogonal: {shape} has fewer than two dims") };
    assert!(!rest.is_empty(), "orthogonal: {shape} has fewer than two dims");
    let columns: usize = rest.iter().product();
    let (long, short) = (rows.max(columns), rows.min(columns));
    let (q, r) = Tensor::randn([long, short], device).qr();
    // Signs by the diagonal of R make the distribution uniform over all orthogonal matrices.
    let signs = (r * eye(short, short, device)).sum(-1).lt(0.0).where_(-1.0, 1.0).to_dtype(DType::F32);
    let q = q * signs;
    let q = if rows < columns { q.t() } else { q };
    q.reshape(&shape) * gain
}

/// Normal with standard deviation `std`, of a matrix in whose every column the part `sparsity` of elements is 0.
///
/// # Panics
/// If `sparsity` is not between 0 and 1.
///
/// # References
/// Martens (2010), *Deep Learning via Hessian-Free Optimization*.
#[track_caller]
pub fn sparse([rows, columns]: [usize; 2], sparsity: f64, std: f64, device: &Device) -> Tensor {
    assert!((0.0..=1.0).contains(&sparsity), "sparse: sparsity {sparsity} is not between 0 and 1");
    let zeros = libm::ceil(sparsity * rows as f64);
    let rank = Tensor::rand([rows, columns], device).argsort(0, false).argsort(0, false);
    let values = Tensor::normal([rows, columns], 0.0, std, device);
    values.masked_fill(&rank.lt(zeros as i64), 0.0)
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

    #[test]
    fn orthogonal_rows_are_orthonormal() {
        let device = Device::reference();
        for shape in [[3, 5], [5, 3], [4, 4]] {
            let q = orthogonal(shape, 1.0, &device);
            let gram = if shape[0] < shape[1] { q.matmul(&q.t()) } else { q.t().matmul(&q) };
            let n = shape[0].min(shape[1]);
            for (got, want) in gram.to_vec::<f32>().into_iter().zip(eye(n, n, &device).to_vec::<f32>()) {
                assert!((got - want).abs() < 1e-5, "{got} against {want}");
            }
        }
    }

    #[test]
    fn a_dirac_convolution_keeps_its_input() {
        let device = Device::reference();
        let x = Tensor::randn([1, 4, 6], &device);
        for groups in [1, 2] {
            let weight = dirac([4, 4 / groups, 3], groups, &device);
            let options = fornax_tensor::ConvOptions { padding: 1.into(), groups, ..Default::default() };
            assert_eq!(x.conv1d(&weight, None, &options).to_vec::<f32>(), x.to_vec::<f32>());
        }
    }

    #[test]
    fn truncated_normals_stay_within_and_fill_it() {
        let device = Device::reference();
        let x = trunc_normal([4000], (1.0, 2.0), (-1.0, 2.0), &device).to_vec::<f32>();
        assert!(x.iter().all(|value| (-1.0..=2.0).contains(value)));
        // The mean of N(1, 2) cut off at −1 and 2.
        let mean = x.iter().sum::<f32>() / 4000.0;
        assert!((mean - 0.587).abs() < 0.05, "{mean}");
    }

    #[test]
    fn sparse_columns_have_so_many_zeros() {
        let device = Device::reference();
        let x = sparse([10, 3], 0.25, 0.01, &device);
        let zeros = x.eq(0.0).to_dtype(DType::I64).sum(0).to_vec::<i64>();
        assert_eq!(zeros, [3, 3, 3]);
    }
}
