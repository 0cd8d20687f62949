//! Gradients.

use super::{assert_close, counted, devices};
use fornax_tensor::{ConvOptions, ConvTransposeOptions, DType, PoolOptions, Tensor};

/// burn#181: shapes of broadcast gradients.
#[test]
fn gradients_of_broadcast_operands_have_their_shapes() {
    for device in devices() {
        let x = Tensor::ones([2, 3], &device);
        let w = Tensor::zeros([3, 1], &device).requires_grad();
        let b = Tensor::zeros([1, 3], &device).requires_grad();
        let label = Tensor::of(&[[1.0], [2.0]], &device);
        let loss = (x.matmul(&w) + &b - label).square().sum(());
        let gradients = loss.backward();
        assert_close(gradients.get(&b).unwrap(), &[-6.0, -6.0, -6.0], 0.0);
        assert_close(gradients.get(&w).unwrap(), &[-18.0, -18.0, -18.0], 0.0);
        assert_eq!(gradients.get(&b).unwrap().dims(), [1, 3]);
        assert_eq!(gradients.get(&w).unwrap().dims(), [3, 1]);
    }
}

/// burn#3864: NaN where a factor is 0.
#[test]
fn gradients_of_running_products_with_zeros() {
    for device in devices() {
        for (x, want) in
            [(vec![2.0f32, 0.0, 3.0], vec![1.0, 8.0, 0.0]), (vec![2.0, 0.0, 3.0, 0.0], vec![1.0, 8.0, 0.0, 0.0])]
        {
            let len = x.len();
            let x = Tensor::from_vec(x, [len], &device).requires_grad();
            let gradients = x.cumprod(0).sum(()).backward();
            assert_close(gradients.get(&x).unwrap(), &want, 0.0);
        }
        let x = Tensor::of(&[2.0, 0.0, 3.0, 0.0], &device).requires_grad();
        let gradients = x.prod(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[0.0; 4], 0.0);
    }
}

/// burn#4799, candle#1212: inputs that no window reaches.
#[test]
fn gradients_of_strided_convolutions_with_a_tail() {
    for device in devices() {
        let x = counted(11, &[1, 1, 11], &device).requires_grad();
        let w = counted(4, &[1, 1, 4], &device).requires_grad();
        let options = ConvOptions { stride: 4.into(), ..ConvOptions::default() };
        let gradients = x.conv1d(&w, None, &options).sum(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0], 0.0);
        assert_close(gradients.get(&w).unwrap(), &[4.0, 6.0, 8.0, 10.0], 0.0);

        let x = counted(25, &[1, 1, 5, 5], &device).requires_grad();
        let w = Tensor::of(&[[[[1.0, 2.0], [3.0, 4.0]]]], &device).requires_grad();
        let options = ConvOptions { stride: 2.into(), ..ConvOptions::default() };
        let y = x.conv2d(&w, None, &options);
        assert_close(&y, &[41.0, 61.0, 141.0, 161.0], 0.0);
        let gradients = y.sum(()).backward();
        assert_close(gradients.get(&w).unwrap(), &[24.0, 28.0, 44.0, 48.0], 0.0);
    }
}

/// burn PR#3521: weight gradients sliced at the wrong group.
#[test]
fn gradients_of_grouped_convolutions() {
    for device in devices() {
        let x = counted(18, &[1, 2, 3, 3], &device).requires_grad();
        let w = (counted(8, &[2, 1, 2, 2], &device) + 1.0).requires_grad();
        let y = x.conv2d(&w, None, &ConvOptions { groups: 2, ..ConvOptions::default() });
        assert_close(&y, &[27.0, 37.0, 57.0, 67.0, 293.0, 319.0, 371.0, 397.0], 0.0);
        let gradients = y.sum(()).backward();
        let want = [1.0, 3.0, 2.0, 4.0, 10.0, 6.0, 3.0, 7.0, 4.0, 5.0, 11.0, 6.0, 12.0, 26.0, 14.0, 7.0, 15.0, 8.0];
        assert_close(gradients.get(&x).unwrap(), &want, 0.0);
        assert_close(gradients.get(&w).unwrap(), &[8.0, 12.0, 20.0, 24.0, 44.0, 48.0, 56.0, 60.0], 0.0);
    }
}

/// burn PR#4069: a cast detached.
#[test]
fn gradients_pass_through_casts() {
    for device in devices() {
        let x = Tensor::of(&[[1.0, 2.0], [3.0, 4.0]], &device).requires_grad();
        let gradients = x.to_dtype(DType::F16).to_dtype(DType::F32).sum(()).backward();
        let gradient = gradients.get(&x).unwrap();
        assert_eq!(gradient.dtype(), DType::F32);
        assert_close(gradient, &[1.0; 4], 0.0);
    }
}

/// burn PR#4064: a crash when sizes differ.
#[test]
fn gradients_of_scattered_values() {
    for device in devices() {
        let x = counted(6, &[6], &device).requires_grad();
        let values = Tensor::of(&[4.0, 5.0, 6.0], &device).requires_grad();
        let index = Tensor::of(&[2i64, 1, 0], &device);
        let weights = counted(6, &[6], &device) + 1.0;
        let gradients = (x.scatter_add(0, &index, &values) * weights).sum(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.0);
        assert_close(gradients.get(&values).unwrap(), &[3.0, 2.0, 1.0], 0.0);
    }
}

/// candle#3569: a fused softmax without a gradient.
#[test]
fn softmax_has_a_gradient() {
    for device in devices() {
        let x = Tensor::of(&[0.0, 1.0, 2.0], &device).requires_grad();
        let gradients = x.softmax(-1).square().sum(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[-0.075718, -0.130105, 0.205823], 1e-5);
    }
}

/// candle PR#2328: NaN in saturated activations.
#[test]
fn gradients_of_saturated_activations() {
    for device in devices() {
        let slope = |x: f64, f: fn(&Tensor) -> Tensor| {
            let x = Tensor::of(&[x], &device).requires_grad();
            f(&x).sum(()).backward().get(&x).unwrap().item::<f32>()
        };
        assert_eq!(slope(100.0, |x| x.elu(1.0)), 1.0);
        assert!(slope(-100.0, |x| x.elu(1.0)).abs() < 1e-40);
        assert_eq!(slope(0.0, Tensor::silu), 0.5);
        assert_eq!(slope(100.0, Tensor::sigmoid), 0.0);
        assert!(slope(-100.0, Tensor::sigmoid).abs() < 1e-40);
    }
}

/// mlx#504: NaN by way of a power of 0.
#[test]
fn the_gradient_of_a_square_at_zero() {
    for device in devices() {
        let y = Tensor::zeros([3], &device).requires_grad();
        let loss = (&y - Tensor::zeros([3], &device)).pow(2.0).sum(());
        assert_eq!(loss.item::<f32>(), 0.0);
        assert_close(loss.backward().get(&y).unwrap(), &[0.0; 3], 0.0);
        let y = Tensor::zeros([3], &device).requires_grad();
        let exponent = Tensor::full([3], 2.0, DType::F32, &device);
        assert_close(y.pow(&exponent).sum(()).backward().get(&y).unwrap(), &[0.0; 3], 0.0);
    }
}

/// mlx#610: 0 after a read in the middle of the forward pass.
#[test]
fn a_read_in_the_middle_changes_no_gradient() {
    for device in devices() {
        let a = Tensor::ones([3, 3], &device).requires_grad();
        let sum = &a + Tensor::ones([3, 3, 3], &device);
        assert!(sum.gt(1.5).all(()).item::<bool>());
        let gradients = sum.square().sum(()).backward();
        assert_close(gradients.get(&a).unwrap(), &[12.0; 9], 0.0);
    }
}

/// mxnet#18563: 1 in every cell of a maximum.
#[test]
fn equal_maxima_share_the_gradient() {
    for device in devices() {
        let x = Tensor::ones([4, 3], &device).requires_grad();
        let gradients = x.amax(0).sum(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[0.25; 12], 0.0);
        let x = Tensor::ones([4, 3], &device).requires_grad();
        let gradients = x.max(0).0.sum(()).backward();
        assert_close(&gradients.get(&x).unwrap().sum(0), &[1.0; 3], 0.0);
    }
}

/// pytorch#13669: a broadcast was not reduced in the gradient.
#[test]
fn a_scalar_used_by_one_and_by_a_thousand() {
    for device in devices() {
        let z = Tensor::of(&[1.0], &device).requires_grad();
        let f = (z.exp() - 0.0).sum(()) + (z.exp() - Tensor::zeros([1000], &device)).sum(());
        let gradients = f.backward();
        assert_close(&f, &[2721.0001], 1e-6);
        assert_close(gradients.get(&z).unwrap(), &[2721.0001], 1e-6);
    }
}

/// burn PR#4466, executorch#21686: the first dilation used twice; stale bytes in recycled buffers.
#[test]
fn dilated_max_pooling_backward_again_and_again() {
    let x = [[1.0, 9.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 0.0], [3.0, 2.0, 1.0, 10.0, 11.0]];
    let mut want = [0.0; 15];
    for (place, count) in [(1, 1.0), (7, 3.0), (13, 1.0), (14, 1.0)] {
        want[place] = count;
    }
    for device in devices() {
        for _ in 0..10 {
            let x = Tensor::of(&x, &device).reshape([1, 1, 3, 5]).requires_grad();
            let options = PoolOptions { stride: Some(1.into()), dilation: [1, 2].into(), ..PoolOptions::new(2) };
            let y = x.max_pool2d(&options).0;
            assert_close(&y, &[7.0, 9.0, 7.0, 7.0, 10.0, 11.0], 0.0);
            assert_close(y.sum(()).backward().get(&x).unwrap(), &want, 0.0);
        }
    }
}

/// burn PR#3840: a wrong vector width in the backward pass.
#[test]
fn adaptive_pooling_to_one_cell() {
    for device in devices() {
        let x = counted(24, &[1, 1, 4, 6], &device).requires_grad();
        let y = x.adaptive_avg_pool2d(&[Some(1), Some(1)]);
        assert_close(&y, &[11.5], 1e-6);
        assert_close(y.sum(()).backward().get(&x).unwrap(), &[1.0 / 24.0; 24], 1e-6);
    }
}

/// burn PR#5665: a slope by the sign bit of NaN.
#[test]
fn the_slope_through_nan_is_no_number_of_its_own() {
    for device in devices() {
        let x = Tensor::of(&[-0.5], &device).requires_grad();
        let slope = x.log().abs().sum(()).backward().get(&x).unwrap().item::<f32>();
        assert!(slope == 0.0 || slope.is_nan(), "{slope}");
    }
}

/// burn#4845: the gradient was longer than the operand.
#[test]
fn gradients_of_transposed_convolutions_with_output_padding() {
    for device in devices() {
        let x = counted(24, &[2, 2, 6], &device).requires_grad();
        let w = counted(12, &[2, 2, 3], &device).requires_grad();
        let options =
            ConvTransposeOptions { stride: 2.into(), output_padding: 1.into(), ..ConvTransposeOptions::default() };
        let y = x.conv_transpose1d(&w, None, &options);
        assert_eq!(y.dims(), [2, 2, 14]);
        let gradients = y.sum(()).backward();
        // Every element of x meets all weights of its channel: 0 + … + 5 and 6 + … + 11.
        let want: Vec<f64> = [15.0, 51.0, 15.0, 51.0].iter().flat_map(|&sum| [sum; 6]).collect();
        assert_close(gradients.get(&x).unwrap(), &want, 0.0);
        // And every weight all elements of its channel: (0 + … + 5) + (12 + … + 17), (6 + … + 11) + (18 + … + 23).
        let want: Vec<f64> = [102.0, 174.0].iter().flat_map(|&sum| [sum; 6]).collect();
        assert_close(gradients.get(&w).unwrap(), &want, 0.0);
        // Stride 1 leaves no place for output padding.
        let options = ConvTransposeOptions { output_padding: 1.into(), ..ConvTransposeOptions::default() };
        assert!(x.try_conv_transpose1d(&w, None, &options).is_err());
    }
}
