//! Values of tensor ops.

use super::{assert_close, counted, devices};
use fornax_tensor::{
    ConvOptions, DType, GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions, PadMode, ResizeTo, Tensor,
};

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

/// burn#5334: reading with a mask that is false everywhere.
#[test]
fn an_empty_selection_has_a_gradient() {
    for device in devices() {
        let x = counted(3, &[3], &device).requires_grad();
        let chosen = x.masked_select(&x.gt(5.0));
        assert_eq!(chosen.dims(), [0]);
        assert_close(chosen.sum(()).backward().get(&x).unwrap(), &[0.0; 3], 0.0);
    }
}

/// burn PR#5027: the sum of a long tensor overflowed to ∞ − ∞, in a question whose answer is in the elements.
#[test]
fn elements_are_finite_though_their_sum_is_not() {
    for device in devices() {
        let half = |value: f64| Tensor::full([2048], value, DType::F16, &device);
        let x = Tensor::cat(&[&half(60000.0), &half(-60000.0)], 0);
        assert!(!x.isnan().any(()).item::<bool>());
        assert!(!x.isinf().any(()).item::<bool>());
        assert_eq!(x.sum(()).item::<f32>(), 0.0);
    }
}

/// burn PR#4216, candle PR#3877: a factor of 0 was an error, or ignored.
#[test]
fn nothing_is_repeated_or_met() {
    for device in devices() {
        assert_eq!(counted(48, &[2, 3, 8], &device).repeat([1, 0, 1]).dims(), [2, 0, 8]);
        let x = counted(4, &[2, 2], &device);
        assert_eq!(x.repeat([0, 2]).dims(), [0, 4]);
        assert_eq!(x.repeat([2, 0]).dims(), [4, 0]);
        assert!(x.repeat([2, 0]).to_vec::<f32>().is_empty());
        let grids = Tensor::meshgrid(&[&Tensor::zeros([0], &device), &counted(3, &[3], &device)], false);
        assert_eq!((grids[0].dims(), grids[1].dims()), ([0, 3], [0, 3]));
    }
}

/// burn PR#5211: the squares of numbers whose norm a half can hold.
#[test]
fn norms_of_halves() {
    for device in devices() {
        let x = Tensor::full([4], 300.0, DType::F16, &device);
        let norm = x.vector_norm(2.0, ());
        assert_eq!((norm.item::<f32>(), norm.dtype()), (600.0, DType::F16));
    }
}

/// burn PR#5386: a result of the default dtype.
#[test]
fn halves_stay_halves() {
    for device in devices() {
        let x = counted(4, &[1, 1, 2, 2], &device).to_dtype(DType::F16);
        for mode in [PadMode::Constant(0.5), PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
            let padded = x.pad(&[1, 1, 1, 1], mode);
            assert_eq!((padded.dtype(), padded.dims()), (DType::F16, [1, 1, 4, 4]), "{mode:?}");
        }
        for y in [x.zeros_like(), x.ones_like(), x.full_like(3), x.rand_like(), x.randn_like()] {
            assert_eq!(y.dtype(), DType::F16);
        }
    }
}

/// burn PR#3341: ∞ − ∞ in a comparison.
#[test]
fn infinities_are_close_to_themselves() {
    for device in devices() {
        let close = |a: [f64; 2], b: [f64; 2], equal_nan: bool| {
            Tensor::of(&a, &device).allclose(&Tensor::of(&b, &device), 1e-5, 1e-8, equal_nan).item::<bool>()
        };
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert!(close([inf, 1.0], [inf, 1.0], false));
        assert!(!close([inf, 1.0], [-inf, 1.0], false));
        assert!(!close([nan, 1.0], [nan, 1.0], false) && close([nan, 1.0], [nan, 1.0], true));
        assert_eq!(Tensor::of(&[1.0, inf, nan], &device).isfinite().to_vec::<bool>(), [true, false, false]);
    }
}

/// burn PR#5307: the bound of k was off by one.
#[test]
fn the_largest_of_all_and_of_none() {
    for device in devices() {
        let x = Tensor::of(&[3.0, 1.0, 2.0], &device);
        let (values, positions) = x.topk(3, 0, true);
        assert_eq!((values.to_vec::<f32>(), positions.to_vec::<i64>()), (vec![3.0, 2.0, 1.0], vec![0, 2, 1]));
        assert_eq!(x.topk(0, 0, true).0.dims(), [0]);
        let refused = x.try_topk(4, 0, true).unwrap_err().to_string();
        assert!(refused.contains('4') && refused.contains('3'), "{refused}");
    }
}

/// candle PR#1358: a step count of 0 or 1.
#[test]
fn evenly_spaced_numbers_of_any_count() {
    for device in devices() {
        let spaced = |steps| Tensor::linspace(0.0, 1.0, steps, DType::F32, &device).to_vec::<f32>();
        assert_eq!(spaced(0), []);
        assert_eq!(spaced(1), [0.0]);
        assert_eq!(spaced(2), [0.0, 1.0]);
        assert_eq!(spaced(5), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }
}
