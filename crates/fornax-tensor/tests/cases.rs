//! Small inputs from public bug reports of other frameworks, with the right results: each stands for its kind.
//!
//! The name of a test says what was wrong elsewhere; the comment names the report.

use fornax_tensor::{
    AttentionOptions, AvgPoolOptions, ConvOptions, CrossEntropyOptions, DType, Device, GridPadding, GridSampleOptions,
    InterpolateMode, InterpolateOptions, PoolOptions, Reduction, ResizeTo, Tensor, grad, keepdim,
};

fn devices() -> [Device; 2] {
    [Device::cpu(), Device::reference()]
}

#[track_caller]
fn assert_close(got: &Tensor, want: &[f64], tolerance: f64) {
    let got = got.to_vec::<f64>();
    assert_eq!(got.len(), want.len(), "{got:?} against {want:?}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        let near = (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(near, "element {i}: got {a}, want {b} in {got:?}");
    }
}

fn counted(count: usize, shape: &[usize], device: &Device) -> Tensor {
    Tensor::arange(0, count, 1, DType::F32, device).reshape(shape)
}

/// burn#4814: NaN was skipped by some backends.
#[test]
fn extremes_propagate_nan_and_find_the_first() {
    for device in devices() {
        let x = Tensor::of(&[[1.0, f64::NAN, -3.0]], &device);
        assert!(x.amax(1).item::<f32>().is_nan());
        assert!(x.amin(1).item::<f32>().is_nan());
        assert_eq!((x.argmax(1).item::<i64>(), x.argmin(1).item::<i64>()), (1, 1));
    }
}

/// burn PR#5290: ties depended on the shape of the reduction tree.
#[test]
fn ties_give_the_lowest_position() {
    for device in devices() {
        let x = Tensor::of(&[[3.0, 3.0, -2.0, -2.0]], &device);
        assert_eq!((x.argmax(1).item::<i64>(), x.argmin(1).item::<i64>()), (0, 2));
        assert_eq!((x.max(1).1.item::<i64>(), x.min(1).1.item::<i64>()), (0, 2));
        for width in [1usize, 2, 4, 8, 64, 1000] {
            let same = Tensor::full([2, width], 7.0, DType::F32, &device);
            assert_eq!(same.argmax(1).to_vec::<i64>(), [0, 0]);
        }
    }
}

/// burn#5334: the larger of 1 and 0 was taken as the broadcast size.
#[test]
fn sizes_of_one_shrink_to_zero() {
    for device in devices() {
        let zeros = |shape: [usize; 2]| Tensor::zeros(shape, &device);
        assert_eq!((zeros([2, 1]) + zeros([2, 0])).dims(), [2, 0]);
        assert_eq!((zeros([0, 3]) + zeros([1, 3])).dims(), [0, 3]);
        let compared = zeros([2, 0]).gt(zeros([2, 1]));
        assert_eq!(compared.dims(), [2, 0]);
        assert!(compared.to_vec::<bool>().is_empty());
    }
}

/// burn PR#5071: the stride of a size-1 dim leaked, and all indices read element 0.
#[test]
fn scatter_through_expanded_indices_reads_each_index() {
    for device in devices() {
        let x = Tensor::of(&[[[1.0]], [[2.0]], [[3.0]], [[4.0]]], &device);
        let index = Tensor::of(&[2i64, 0], &device).unsqueeze(1).expand([2, 1]).unsqueeze(2).expand([2, 1, 1]);
        let y = x.scatter_add(0, &index, Tensor::of(&[[[10.0]], [[20.0]]], &device));
        assert_close(&y, &[21.0, 2.0, 13.0, 4.0], 0.0);
    }
}

/// burn PR#5002, PR#4015: no broadcast; the sign of C's remainder.
#[test]
fn remainder_has_the_sign_of_the_divisor() {
    for device in devices() {
        let y = Tensor::of(&[[10i64, 20, 30]], &device).remainder(Tensor::of(&[[7i64]], &device));
        assert_eq!(y.to_vec::<i64>(), [3, 6, 2]);
        let x = Tensor::of(&[-3i64, -2, -1, 1, 2, 3], &device);
        assert_eq!(x.remainder(Tensor::of(&[2i64, 3, 1, 2, 1, 3], &device)).to_vec::<i64>(), [1, 1, 0, 1, 0, 0]);
    }
}

/// burn PR#4486: a debug panic.
#[test]
fn the_absolute_value_of_the_least_integer_wraps() {
    for device in devices() {
        assert_eq!(Tensor::of(&[i64::MIN], &device).abs().item::<i64>(), i64::MIN);
    }
}

/// burn PR#3337: gather along a middle dim with a broadcast index, and the same after a permutation.
#[test]
fn gather_with_broadcast_index_on_permuted_input() {
    let want = [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0, 12.0, 13.0, 10.0, 11.0, 14.0, 15.0];
    for device in devices() {
        let x = counted(24, &[3, 4, 2], &device);
        let index = Tensor::of(&[[[0i64], [2], [1], [3]]], &device).expand([3, 4, 2]);
        assert_close(&x.gather(1, &index).i((0..2,)), &want, 0.0);
        let turned = x.permute([0, 2, 1]).gather(2, &index.permute([0, 2, 1])).permute([0, 2, 1]);
        assert_close(&turned.i((0..2,)), &want, 0.0);
    }
}

/// burn#4850: unimplemented panic.
#[test]
fn cross_products_along_any_dim() {
    for device in devices() {
        let a = Tensor::of(&[[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], &device);
        let b = Tensor::of(&[[[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]], &device);
        assert_close(&a.cross(&b, 1), &[0.0, 0.0, -1.0, 0.0, 0.0, -1.0], 0.0);
        let (a, b) = (counted(3, &[3, 1], &device), counted(12, &[3, 4], &device));
        let wide = a.cross(&b, 0);
        let turned = a.expand([3, 4]).t().cross(&b.t(), -1).t();
        assert_eq!(wide.to_vec::<f32>(), turned.to_vec::<f32>());
    }
}

/// burn PR#3241: a comparison ignored the layout.
#[test]
fn comparisons_of_transposed_tensors() {
    for device in devices() {
        let x = Tensor::of(&[[1.0, 2.0], [3.0, 4.0]], &device).t();
        let mask = x.gt(2.0);
        assert_eq!(mask.to_vec::<bool>(), [false, true, false, true]);
        assert_close(&x.masked_fill(&mask, 0.0), &[1.0, 0.0, 2.0, 0.0], 0.0);
    }
}

/// burn PR#3523: NaN or out of range.
#[test]
fn sampling_at_infinity_stays_at_the_border() {
    for device in devices() {
        let image = counted(9, &[1, 1, 3, 3], &device);
        let grid = Tensor::of(&[[[[0.0, f64::INFINITY]]]], &device);
        let options = GridSampleOptions {
            mode: InterpolateMode::Linear,
            padding: GridPadding::Border,
            ..GridSampleOptions::default()
        };
        assert_close(&image.grid_sample(&grid, &options), &[7.0], 1e-6);
    }
}

/// burn#4510: corners could not be aligned.
#[test]
fn linear_resizing_with_and_without_aligned_corners() {
    for device in devices() {
        let x = Tensor::of(&[[[0.0, 3.0]]], &device);
        let mut options = InterpolateOptions::new(ResizeTo::Size(vec![4]), InterpolateMode::Linear);
        assert_close(&x.interpolate(&options), &[0.0, 0.75, 2.25, 3.0], 1e-6);
        options.align_corners = true;
        assert_close(&x.interpolate(&options), &[0.0, 1.0, 2.0, 3.0], 1e-6);
    }
}

/// candle PR#1037: a GPU used the wrong size for the indexed dim.
#[test]
fn columns_selected_more_often_than_there_are() {
    for device in devices() {
        let x = Tensor::of(&[[1.0, 2.0], [3.0, 4.0]], &device);
        let y = x.index_select(1, &Tensor::of(&[1i64, 0, 1], &device));
        assert_close(&y, &[2.0, 1.0, 2.0, 4.0, 3.0, 4.0], 0.0);
    }
}

/// candle PR#2367: ±∞ in place of large sums.
#[test]
fn logsumexp_without_overflow() {
    let rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [-1000.0, -999.0, -1001.0], [1000.0, 999.0, 1001.0]];
    for device in devices() {
        let y = Tensor::of(&rows, &device).logsumexp(-1);
        assert_close(&y, &[3.407606, 6.407606, -998.592394, 1001.407606], 1e-6);
        let empty = Tensor::full([1, 3], f64::NEG_INFINITY, DType::F32, &device).requires_grad();
        let y = empty.logsumexp(-1);
        assert_eq!(y.to_vec::<f32>(), [f32::NEG_INFINITY]);
        let gradients = y.sum(()).backward();
        assert!(gradients.get(&empty).unwrap().to_vec::<f32>().iter().all(|g| !g.is_nan()));
    }
}

/// candle#3735: the offset of a slice was applied to a copied buffer.
#[test]
fn convolution_with_a_sliced_weight() {
    for device in devices() {
        let weight = Tensor::of(&[[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]], &device).i((.., 2..4));
        let x = counted(8, &[1, 2, 2, 2], &device).requires_grad();
        let y = x.conv2d(&weight, None, &ConvOptions::default());
        assert_close(&y, &[16.0, 23.0, 30.0, 37.0], 0.0);
        let gradients = y.sum(()).backward();
        assert_close(gradients.get(&x).unwrap(), &[3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0], 0.0);
    }
}

/// candle#3404: the layout was guessed from equal sizes.
#[test]
fn convolution_where_all_sizes_are_equal() {
    for device in devices() {
        let x = counted(27, &[1, 3, 3, 3], &device);
        let weight = Tensor::ones([1, 3, 3, 3], &device);
        let options = ConvOptions { padding: 1.into(), ..ConvOptions::default() };
        let want = [132.0, 207.0, 144.0, 225.0, 351.0, 243.0, 168.0, 261.0, 180.0];
        assert_close(&x.conv2d(&weight, None, &options), &want, 0.0);
    }
}

/// burn PR#5665: ±1 by the sign bit of NaN; a gradient of −2.
#[test]
fn the_sign_of_nan_is_zero() {
    for device in devices() {
        let x = Tensor::from_vec(vec![f32::NAN, f32::from_bits(f32::NAN.to_bits() | 1 << 31)], [2], &device);
        assert_eq!(x.sign().to_vec::<f32>(), [0.0, 0.0]);
        let x = Tensor::of(&[-0.5], &device).requires_grad();
        let gradients = x.log().abs().sum(()).backward();
        let gradient = gradients.get(&x).unwrap().item::<f32>();
        assert!(gradient == 0.0 || gradient.is_nan());
    }
}

/// tinygrad#2194: reading the border of a pad gave 0.
#[test]
fn padding_holds_its_value() {
    for device in devices() {
        let x = Tensor::of(&[5.0, 6.0], &device).pad_dims(&[(0, 1)], 2.0);
        assert_eq!(x.i(2).item::<f32>(), 2.0);
        assert_eq!(Tensor::zeros([2], &device).pad_dims(&[(0, 1)], 1.0).i(2).item::<f32>(), 1.0);
    }
}

/// tensorflow#24374: 45 in place of the trace.
#[test]
fn einsum_takes_diagonals_of_repeated_letters() {
    for device in devices() {
        let x = counted(9, &[3, 3], &device) + 1.0;
        assert_eq!(Tensor::einsum("ii->", &[&x]).item::<f32>(), 15.0);
        assert_eq!(Tensor::einsum("ij,ij->", &[&x, &x]).item::<f32>(), 285.0);
        assert_close(&Tensor::einsum("ii->i", &[&x]), &[1.0, 5.0, 9.0], 0.0);
        let batch = counted(18, &[2, 3, 3], &device);
        let product = Tensor::einsum("...ij,jk->...ik", &[&batch, &x]);
        assert_eq!(product.to_vec::<f32>(), batch.matmul(&x).to_vec::<f32>());
    }
}

/// burn PR#5269: a panic on negative numbers; 0.5 became false.
#[test]
fn anything_but_zero_is_true() {
    for device in devices() {
        let x = Tensor::of(&[-1.0, 0.0, 0.5, 2.0, f64::NAN], &device).to_dtype(DType::Bool);
        assert_eq!(x.to_vec::<bool>(), [true, false, true, true, true]);
    }
}

/// candle#1914: the first operand was returned.
#[test]
fn sums_of_views_of_one_element() {
    for device in devices() {
        let (a, b) = (Tensor::of(&[-355.3564, 1.0], &device).i(0), Tensor::of(&[-2879.0269, 1.0], &device).i(0));
        assert_close(&(a + b), &[-3234.3833], 1e-6);
    }
}

/// cubek PR#80, burn PR#5211: sums in f16 overflowed.
#[test]
fn halves_accumulate_in_f32() {
    for device in devices() {
        let x = counted(1024, &[2, 512], &device).to_dtype(DType::F16);
        assert_close(&x.mean(1), &[255.5, 767.5], 0.0);
        assert_eq!(x.mean(1).dtype(), DType::F16);
    }
}

/// candle PR#3873: reads out of bounds at rank 5 and more.
#[test]
fn sums_of_rank_six_permuted() {
    for device in devices() {
        let x = counted(64, &[2, 2, 2, 2, 2, 2], &device);
        let turned = x.permute([5, 4, 3, 2, 1, 0]);
        let sum = turned.sum([1, 4]);
        let copy = Tensor::from_vec(turned.to_vec::<f32>(), [2, 2, 2, 2, 2, 2], &device).sum([1, 4]);
        assert_eq!(sum.to_vec::<f32>(), copy.to_vec::<f32>());
        assert_eq!(sum.sum(()).item::<f32>(), 2016.0);
    }
}

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

/// burn PR#4829, candle: logits and probabilities.
#[test]
fn cross_entropy_of_peaked_logits() {
    let rows =
        [[0.1, 0.2, 0.7, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.3, 0.3, 0.2, 0.2]];
    for device in devices() {
        let logits = Tensor::of(&rows, &device);
        let target = Tensor::of(&[2i64, 0, 4, 1], &device);
        assert_close(&logits.cross_entropy(&target), &[1.354197], 1e-6);
        let options = CrossEntropyOptions { reduction: Reduction::None, ..CrossEntropyOptions::default() };
        assert_eq!(logits.cross_entropy_with(&target, &options).dims(), [4]);
    }
}

/// burn#2739: NaN for certain probabilities.
#[test]
fn binary_cross_entropy_of_certainties_is_finite() {
    for device in devices() {
        let p = Tensor::of(&[1.0, 0.0, 0.0], &device).requires_grad();
        let t = Tensor::of(&[1.0, 0.0, 1.0], &device);
        let loss = p.binary_cross_entropy(&t, None, Reduction::None);
        assert_close(&loss, &[0.0, 0.0, 100.0], 0.0);
        let gradients = loss.sum(()).backward();
        assert!(gradients.get(&p).unwrap().to_vec::<f32>().iter().all(|g| g.is_finite()));
        let logits = Tensor::of(&[1000.0, -1000.0], &device).requires_grad();
        let t = Tensor::of(&[0.0, 0.0], &device);
        let loss = logits.binary_cross_entropy_with_logits(&t, None, None, Reduction::None);
        assert_close(&loss, &[1000.0, 0.0], 0.0);
        let gradients = loss.sum(()).backward();
        assert_close(gradients.get(&logits).unwrap(), &[1.0, 0.0], 0.0);
    }
}

/// burn PR#4121: the wrong axis was halved.
#[test]
fn gated_linear_units_along_each_dim() {
    for device in devices() {
        let want = [0.952574, 1.964028];
        let row = Tensor::of(&[[1.0, 2.0, 3.0, 4.0]], &device);
        assert_close(&row.glu(1), &want, 1e-6);
        assert_close(&row.glu(-1), &want, 1e-6);
        assert_close(&row.t().glu(0), &want, 1e-6);
    }
}

/// burn#4694, candle PR#3625: NaN in masked rows; an explicit mask beside the causal flag.
#[test]
fn attention_with_nothing_to_attend_to_gives_zero() {
    for device in devices() {
        device.seed(3);
        let make = || Tensor::randn([1, 1, 4, 8], &device).requires_grad();
        let (q, k, v) = (make(), make(), make());
        let mask = [[true; 4], [true; 4], [false; 4], [true; 4]];
        for is_causal in [false, true] {
            let options =
                AttentionOptions { mask: Some(Tensor::of(&mask, &device)), is_causal, ..AttentionOptions::default() };
            let y = q.scaled_dot_product_attention(&k, &v, &options);
            assert_eq!(y.i((0, 0, 2)).to_vec::<f32>(), [0.0; 8]);
            assert!(y.to_vec::<f32>().iter().all(|y| y.is_finite()));
            let found = grad(&[&y.square().sum(())], &[&q, &k, &v]).unwrap();
            for gradient in found {
                assert!(gradient.unwrap().to_vec::<f32>().iter().all(|g| g.is_finite()));
            }
        }
        for length in [1usize, 7, 64, 65, 130] {
            let x = Tensor::randn([1, 1, length, 4], &device);
            let lower = Tensor::full([length, length], true, DType::Bool, &device)
                .to_dtype(DType::I64)
                .tril(0)
                .to_dtype(DType::Bool);
            let both = AttentionOptions { mask: Some(lower), is_causal: true, ..AttentionOptions::default() };
            let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
            let difference =
                x.scaled_dot_product_attention(&x, &x, &both) - x.scaled_dot_product_attention(&x, &x, &causal);
            assert!(difference.abs().amax(()).item::<f32>() < 1e-6);
        }
    }
}

/// burn PR#5410: sums of halves overflowed in group norm.
#[test]
fn group_norm_of_equal_halves() {
    for device in devices() {
        let x = Tensor::full([1, 4, 32, 32], 100.0, DType::F16, &device);
        let y = x.group_norm(1, &fornax_tensor::Affine::default(), 1e-5);
        assert!(y.to_vec::<f32>().iter().all(|&y| y == 0.0));
        let half = counted(4096, &[1, 4, 32, 32], &device).lt(2048.0).to_dtype(DType::F16) * 0.5;
        let y = (x + half).group_norm(1, &fornax_tensor::Affine::default(), 1e-5).to_vec::<f32>();
        assert!((y[0] - 1.0).abs() < 1e-3 && (y[4095] + 1.0).abs() < 1e-3, "{} {}", y[0], y[4095]);
    }
}

/// coremltools PR#2844: what hangs over the end was counted.
#[test]
fn average_pooling_in_ceil_mode_counts_no_overhang() {
    for device in devices() {
        let x = counted(49, &[1, 1, 7, 7], &device);
        let mut options = AvgPoolOptions::new(2);
        options.windows.stride = Some(3.into());
        options.windows.ceil_mode = true;
        let want = [4.0, 7.0, 9.5, 25.0, 28.0, 30.5, 42.5, 45.5, 48.0];
        assert_close(&x.avg_pool2d(&options), &want, 1e-6);
    }
}

/// burn PR#5290: NaN dropped in a fused reduction.
#[test]
fn fused_maxima_keep_nan() {
    for device in devices() {
        let a = Tensor::of(&[[1.0, f64::NAN, 3.0, 2.0], [1.0, 4.0, 3.0, 2.0]], &device);
        let chain = (0.0 + &a).amax(keepdim(1)) + 0.0 + &a + 1.0;
        let got = chain.to_vec::<f32>();
        assert!(got[..4].iter().all(|value| value.is_nan()));
        assert_eq!(got[4..], [6.0, 9.0, 8.0, 7.0]);
    }
}

/// burn#4461: a vector width over a strided axis.
#[test]
fn fused_means_of_permuted_tensors() {
    for device in devices() {
        let x = counted(1024, &[2, 2, 256], &device);
        assert_close(&x.permute([1, 0, 2]).mean(2), &[127.5, 639.5, 383.5, 895.5], 1e-6);
        assert_close(&x.permute([2, 0, 1]).mean(0), &[127.5, 383.5, 639.5, 895.5], 1e-6);
    }
}

/// tinygrad#7020, #10850: one buffer for two results; arguments frozen at the first call.
#[test]
fn plans_freeze_no_value() {
    for device in devices() {
        let f = |x: f64| Tensor::full([3], x, DType::F32, &device) + 1.0;
        let (u, v) = (f(1.1), f(1.2));
        device.flush();
        assert!(!u.eq(&v).any(()).item::<bool>());
        assert_close(&u, &[2.1; 3], 1e-6);
        for i in 0..5 {
            assert_eq!(f(f64::from(i)).to_vec::<f32>()[0], i as f32 + 1.0);
        }
    }
}

/// tinygrad#14689: elements of the next call in a shifted buffer.
#[test]
fn shifting_a_buffer_reads_before_it_writes() {
    let device = Device::cpu();
    let n = 1usize << 16;
    let mut buffer = Tensor::zeros([n], &device);
    for i in 0..6 {
        let new = Tensor::full([n / 2], f64::from(i + 1), DType::F32, &device);
        buffer = Tensor::cat(&[&buffer.i(n / 2..), &new], 0);
        device.flush();
        let first = buffer.i(..n / 2);
        assert_eq!(first.amin(()).item::<f32>(), i as f32);
        assert_eq!(first.amax(()).item::<f32>(), i as f32);
    }
}

/// mlx#4234: a random number frozen into a compiled function.
#[test]
fn random_numbers_differ_and_repeat_from_a_seed() {
    for device in devices() {
        let draw = || Tensor::rand([4], &device).to_vec::<f32>();
        device.seed(11);
        let first: Vec<Vec<f32>> = (0..3).map(|_| draw()).collect();
        assert!(first[0] != first[1] && first[1] != first[2]);
        device.seed(11);
        assert_eq!(first, (0..3).map(|_| draw()).collect::<Vec<_>>());
    }
    let [cpu, reference] = devices();
    cpu.seed(5);
    reference.seed(5);
    assert_eq!(Tensor::rand([1000], &cpu).to_vec::<f32>(), Tensor::rand([1000], &reference).to_vec::<f32>());
}

/// pytorch#163435: a value reassociated in one place only.
#[test]
fn a_value_minus_itself_is_zero() {
    for device in devices() {
        device.seed(1);
        let draw = || Tensor::randn([64], &device).to_dtype(DType::F16);
        let (a, b, c, d) = (draw(), draw(), draw(), draw());
        let t = a.tanh().square() * (&a + b + c + &a + d);
        assert!((&t - &t).to_vec::<f32>().iter().all(|&x| x == 0.0));
    }
}
