//! Values and gradients at the edges of single ops: the ends of domains, ties, empty tensors, repeated positions, arguments
//! that must be refused. Numbers without a comment follow from a law; others name their source.

use fornax_tensor::{DType, Device, MatrixNorm, Tensor, grad, grad_with};

fn devices() -> [Device; 2] {
    [Device::cpu(), Device::reference()]
}

#[track_caller]
fn assert_close(got: &Tensor, want: &[f64], tolerance: f64) {
    let got = got.to_vec::<f64>();
    assert_eq!(got.len(), want.len(), "{got:?} against {want:?}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        let near = (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * b.abs();
        assert!(near, "element {i}: got {a:e}, want {b:e}");
    }
}

fn slope(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    let x = x.requires_grad();
    grad(&[&f(&x)], &[&x]).unwrap().remove(0).unwrap()
}

/// Values computed with mpmath 1.3 to 40 digits.
#[test]
fn special_functions_at_the_ends_of_their_ranges() {
    for device in devices() {
        let of = |values: &[f64]| Tensor::from_slice(values, [values.len()], &device);
        let inf = f64::INFINITY;
        assert_close(
            &of(&[1e-20, 1e-300, 0.0, 0.5, 1.0, 1.5]).ndtri(),
            &[-9.262_340_089_798_408, -37.047_096_299_361_2, -inf, 0.0, inf, f64::NAN],
            1e-14,
        );
        assert_close(
            &of(&[1e-30, 0.999_999, -1.0]).erfinv(),
            &[8.862_269_254_527_58e-31, 3.458_910_737_275_499, -inf],
            1e-12,
        );
        assert_close(
            &of(&[10.0, 26.0, -7.0]).erfc(),
            &[2.088_487_583_762_545e-45, 5.663_192_408_856_143e-296, 2.0],
            1e-12,
        );
        assert_close(&of(&[-40.0, 10.0]).log_ndtr(), &[-804.608_442_013_753_8, -7.619_853_024_160_526e-24], 1e-12);
        assert_close(
            &of(&[1.0, 2.0, 0.5, 1e300, -1.0]).lgamma(),
            &[0.0, 0.0, 0.572_364_942_924_700_1, 6.897_755_278_982_137e302, inf],
            1e-13,
        );
        assert_close(&of(&[-1e-20, 1.0, -3.0]).digamma(), &[1e20, -0.577_215_664_901_532_9, f64::NAN], 1e-13);
        assert_close(&of(&[0.0, 20.0, 700.0]).i0(), &[1.0, 4.355_828_255_955_353e7, 1.529_593_347_671_874e302], 1e-13);
        assert_close(&of(&[710.0, -0.0]).sinh(), &[1.116_997_383_080_855_5e308, -0.0], 1e-12);
        assert_close(&of(&[1e200, 1e-200]).asinh(), &[461.210_165_779_369_1, 1e-200], 1e-14);
        assert_close(&of(&[1000.0, 1e-3]).log10(), &[3.0, -3.0], 0.0);
    }
}

/// Values computed with mpmath 1.3 to 40 digits.
#[test]
fn incomplete_gamma_of_large_arguments() {
    for device in devices() {
        let a = Tensor::of(&[99.5f64, 100.0, 1000.0, 1e4, 0.0, 2.0], &device).to_dtype(DType::F64);
        let x = Tensor::of(&[100.0f64, 100.0, 5000.0, 1e4, 1.0, 0.0], &device).to_dtype(DType::F64);
        assert_close(
            &a.igamma(&x),
            &[0.533_254_256_498_600_8, 0.513_298_798_279_148_5, 1.0, 0.501_329_808_339_955, 1.0, 0.0],
            1e-9,
        );
    }
}

#[test]
fn the_derivative_of_digamma_is_finite_at_whole_numbers() {
    for device in devices() {
        let x = Tensor::from_vec(vec![1.0f64, 2.0, 3.0], [3], &device).requires_grad();
        let first = grad(&[&x.digamma()], &[&x]).unwrap()[0].clone().unwrap();
        let second = grad(&[&first], &[&x]).unwrap()[0].clone().unwrap();
        // π²/6, and −2 ζ(3): DLMF 5.15.
        assert_close(&first.narrow(0, 0, 1), &[core::f64::consts::PI.powi(2) / 6.0], 1e-12);
        assert_close(&second.narrow(0, 0, 1), &[-2.404_113_806_319_188_6], 1e-9);
        assert!(second.isfinite().all(()).item::<bool>());
    }
}

#[test]
fn the_slope_of_sinc_near_zero_keeps_its_digits() {
    for device in devices() {
        let x = Tensor::from_vec(vec![0.0f32, 1e-4], [2], &device);
        let third = core::f64::consts::PI.powi(2) / 3.0;
        assert_close(&slope(Tensor::sinc, &x), &[0.0, -third * 1e-4], 1e-5);
    }
}

#[test]
fn the_deviation_of_constants_has_gradient_zero() {
    for device in devices() {
        let x = Tensor::full([4], 3.0, DType::F32, &device);
        assert_eq!(slope(|x| x.std((), 1.0), &x).to_vec::<f32>(), [0.0; 4]);
        assert!(x.narrow(0, 0, 1).std((), 1.0).item::<f32>().is_nan());
    }
}

#[test]
fn halves_are_rounded_once() {
    for device in devices() {
        let half = |value: f64| Tensor::full([1], value, DType::F16, &device);
        // 60000 · 2 leaves f16, the weighted sum does not.
        assert_eq!(half(60000.0).addcmul(&half(-30000.0), &half(4.0), 0.5.into()).item::<f32>(), 0.0);
        // The deviation's square would leave it too.
        let x = Tensor::from_vec(vec![0.0f32, 2000.0], [2], &device).to_dtype(DType::F16);
        assert_eq!(x.std((), 0.0).item::<f32>(), 1000.0);
        let many = Tensor::full([100], 60000.0, DType::F16, &device);
        assert_eq!(many.nanmean(()).item::<f32>(), 60000.0);
        assert_eq!(half(180.0).deg2rad().item::<f32>(), 3.140_625);
    }
}

/// Values from PyTorch 2.15 on the CPU: a factor keeps its digits, any other number becomes a half first.
#[test]
fn numbers_beside_halves() {
    for device in devices() {
        let half = |value: f64| Tensor::full([1], value, DType::F16, &device);
        let factor = 1.100_327_656_25;
        let of = |y: Tensor| (y.dtype(), y.item::<f64>());
        assert_eq!(of(half(0.1) + 0.1), (DType::F16, half(0.199_951_171_875).item::<f64>()));
        assert!(half(0.1).eq(0.1).item::<bool>());
        for x in [2.0, 3.0, 1000.0, 0.1] {
            let x = half(x);
            let want = (x.to_dtype(DType::F32) * factor).to_dtype(DType::F16).item::<f64>();
            let number = Tensor::full((), factor, DType::F32, &device);
            for product in [&x * factor, factor * &x, &x * &number] {
                assert_eq!(of(product), (DType::F16, want));
            }
            let want = (x.to_dtype(DType::F32) / factor).to_dtype(DType::F16).item::<f64>();
            assert_eq!(of(&x / factor), (DType::F16, want));
        }
        // 2^-15 · 70000 fits, 70000 alone does not.
        assert_eq!((half(2f64.powi(-15)) * 70000.0).item::<f64>(), 2.136_718_75);
        assert_eq!(half(1.0).add(70000.0).item::<f64>(), f64::INFINITY);
    }
}

#[test]
fn products_of_zeros_have_gradients_to_second_order() {
    for device in devices() {
        let x = Tensor::from_vec(vec![2.0f64, 0.0, 3.0, 5.0], [4], &device).requires_grad();
        // y = x₀, x₀x₁, x₀x₁x₂, x₀x₁x₂x₃, summed.
        let first = grad(&[&x.cumprod(0).sum(())], &[&x]).unwrap()[0].clone().unwrap();
        assert_eq!(first.to_vec::<f64>(), [1.0, 2.0 * (1.0 + 3.0 + 15.0), 0.0, 0.0]);
        let second = grad_with(&[&first.i(3)], &[&x], &[&Tensor::full((), 1.0, DType::F64, &device)]).unwrap();
        // ∂/∂x₃ is x₀ x₁ x₂: its slopes are 0, x₀ x₂, 0, 0.
        assert_eq!(second[0].as_ref().unwrap().to_vec::<f64>(), [0.0, 6.0, 0.0, 0.0]);

        let source = Tensor::from_vec(vec![0.0f64, 3.0, 5.0, 7.0], [4], &device).requires_grad();
        let index = Tensor::from_vec(vec![0i64, 0, 1, 0], [4], &device);
        let ones = Tensor::full([2], 1.0, DType::F64, &device);
        let product = ones.scatter_reduce(0, &index, &source, "prod", true);
        let first = grad(&[&product.sum(())], &[&source]).unwrap()[0].clone().unwrap();
        assert_eq!(first.to_vec::<f64>(), [21.0, 0.0, 1.0, 0.0]);
        let second = grad(&[&first.i(0)], &[&source]).unwrap()[0].clone().unwrap();
        assert_eq!(second.to_vec::<f64>(), [0.0, 7.0, 0.0, 3.0]);
    }
}

/// Of y = x₀ x₁ x₂ at (0, 0, 3) the only second derivatives that are not 0 are ∂²y/∂x₀∂x₁ = 3.
#[test]
fn two_zeros_of_a_product_have_a_second_order() {
    for device in devices() {
        let x = Tensor::from_vec(vec![0.0f64, 0.0, 3.0], [3], &device).requires_grad();
        let together = Tensor::zeros([3], &device).to_dtype(DType::I64);
        let one = Tensor::full([1], 1.0, DType::F64, &device);
        let reduced = |x: &Tensor| one.scatter_reduce(0, &together, x, "prod", true).sum(());
        let products: [&dyn Fn(&Tensor) -> Tensor; 3] =
            [&|x| x.prod(()), &|x| x.cumprod(0).narrow(0, 2, 1).sum(()), &reduced];
        for product in products {
            let first = grad(&[&product(&x)], &[&x]).unwrap()[0].clone().unwrap();
            assert_eq!(first.to_vec::<f64>(), [0.0; 3]);
            for (i, want) in [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0; 3]].iter().enumerate() {
                let second = grad(&[&first.i(i as i64)], &[&x]).unwrap()[0].clone().unwrap();
                assert_eq!(second.to_vec::<f64>(), want, "row {i}");
            }
        }
    }
}

#[test]
fn a_position_filled_twice_counts_once() {
    for device in devices() {
        let x = Tensor::zeros([3], &device);
        let value = Tensor::full((), 2.0, DType::F32, &device).requires_grad();
        let y = x.index_fill(0, &Tensor::from_vec(vec![1i64, 1, -1], [3], &device), &value);
        assert_eq!(y.to_vec::<f32>(), [0.0, 2.0, 2.0]);
        assert_eq!(grad(&[&y.sum(())], &[&value]).unwrap()[0].as_ref().unwrap().item::<f32>(), 2.0);
    }
}

#[test]
fn empty_indices_read_and_write_nothing() {
    for device in devices() {
        let x = Tensor::of(&[1.0, 2.0, 3.0], &device).requires_grad();
        let none = Tensor::from_vec(Vec::<i64>::new(), [2, 0], &device);
        let picked = x.gather(0, &none);
        assert_eq!(picked.dims(), [2, 0]);
        assert_eq!(grad(&[&picked.sum(())], &[&x]).unwrap()[0].as_ref().unwrap().to_vec::<f32>(), [0.0; 3]);
        assert_eq!(x.scatter_add(0, &none, 1.0).to_vec::<f32>(), [1.0, 2.0, 3.0]);
        assert_eq!(x.masked_select(&x.lt(0.0)).dims(), [0]);
        assert_eq!(x.masked_scatter(&x.lt(0.0), &Tensor::zeros([0], &device)).to_vec::<f32>(), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_source_that_is_too_short_is_noticed() {
    for device in devices() {
        let x = Tensor::of(&[1.0, 2.0, 3.0], &device);
        for length in [0, 1] {
            let filled = x.masked_scatter(&x.gt(1.0), &Tensor::zeros([length], &device));
            assert!(filled.try_to_vec::<f32>().is_err());
        }
    }
}

#[test]
fn parts_by_counts_and_by_positions() {
    for device in devices() {
        let x = Tensor::of(&[1.0, 2.0, 3.0], &device);
        let counts = Tensor::from_vec(vec![2i64, 0, 1], [3], &device);
        assert_eq!(x.repeat_interleave_each(&counts, 0).to_vec::<f32>(), [1.0, 1.0, 3.0]);
        let parts = x.tensor_split_at(&[1, -1], 0);
        assert_eq!(parts.iter().map(Tensor::numel).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(x.tensor_split_at(&[2, 1], 0).iter().map(Tensor::numel).collect::<Vec<_>>(), [2, 0, 2]);
        assert!(x.try_repeat_interleave_each(&counts.narrow(0, 0, 2), 0).is_err());
    }
}

#[test]
fn norms_of_nothing_and_of_matrices() {
    for device in devices() {
        let empty = Tensor::zeros([0, 5], &device);
        assert_eq!(empty.linalg_norm(MatrixNorm::Order(f64::INFINITY), &[0, 1]).item::<f32>(), 0.0);
        assert!(empty.try_linalg_norm(MatrixNorm::Order(f64::NEG_INFINITY), &[0, 1]).is_err());
        let x = Tensor::of(&[[3.0, 0.0], [4.0, 0.0]], &device);
        assert_eq!(x.norm(2.0, 0).to_vec::<f32>(), [5.0, 0.0]);
        assert_eq!(x.linalg_norm(MatrixNorm::Order(1.0), &[0, 1]).item::<f32>(), 7.0);
        // The norm has no slope at 0; like PyTorch's, it counts as 0 there.
        assert_eq!(slope(|x| x.norm(2.0, 0).sum(()), &x).to_vec::<f32>(), [0.6, 0.0, 0.8, 0.0]);
    }
}

#[test]
fn arguments_out_of_range_are_refused() {
    let device = Device::cpu();
    let x = Tensor::zeros([3, 4], &device);
    let whole = x.to_dtype(DType::I64);
    assert!(x.try_histc(10, 2.0, 1.0).is_err());
    assert!(x.try_renorm(0.0, 0, 1.0).is_err());
    assert!(x.try_kthvalue(5, 1).is_err());
    assert!(x.try_unfold(0, 4, 1).is_err());
    assert!(x.try_chunk(0, 0).is_err());
    assert!(x.try_movedim(&[0, 0], &[0, 1]).is_err());
    assert!(x.try_select(1, 4).is_err());
    assert!(x.try_gcd(&x).is_err());
    assert!(whole.try_mean(()).is_err());
    assert!(whole.try_var((), 1.0).is_err());
    assert!(whole.try_quantile(&Tensor::full((), 0.5, DType::F32, &device), (), Default::default()).is_err());
    assert!(x.try_index_put(&[Some(whole.narrow(0, 0, 1))], &whole, false).is_err());
    assert!(
        x.quantile(&Tensor::full((), 1.5, DType::F32, &device), (), Default::default()).try_to_vec::<f32>().is_err()
    );
}

/// A few elements are compared one by one, many are searched: both find the same.
#[test]
fn isin_of_few_and_of_many() {
    for device in devices() {
        let elements = Tensor::from_slice(&[3.0, f64::NAN, -1.0, 0.5, 1000.0, -0.0], [2, 3], &device);
        for repeats in [1, 20] {
            let list = [f64::NAN, 3.0, 0.0, 7.0].repeat(repeats);
            let list = Tensor::from_slice(&list, [list.len()], &device);
            assert_eq!(elements.isin(&list).to_vec::<bool>(), [true, false, false, false, false, true]);
        }
        let large = Tensor::arange(0, 100, 1, DType::I64, &device);
        assert_eq!(elements.isin(&large).to_vec::<bool>(), [true, false, false, false, false, true]);
        assert_eq!(Tensor::from_slice(&[5i64, 100], [2], &device).isin(&large).to_vec::<bool>(), [true, false]);
    }
}

/// Values from mpmath; the derivative of one order is the next.
#[test]
fn gamma_functions_of_higher_order() {
    for device in [Device::cpu(), Device::reference()] {
        let x = Tensor::of(&[0.5, 1.0, 7.25], &device).to_dtype(DType::F64);
        assert_close(&x.polygamma(2), &[-16.82879664423432, -2.4041138063191885, -0.02182895229519774], 1e-13);
        assert_close(&x.polygamma(5), &[7691.113548602436, 122.0811674381339, 0.001667357519228256], 1e-13);
        assert_close(&(&x + 3.0).multigammaln(3), &[3.8958984821540388, 5.402975080909175, 38.47072356025262], 1e-13);
        let (a, far) = (Tensor::of(&[3.0, 150.0, 150.0], &device), Tensor::of(&[60.0, 120.0, 300.0], &device));
        let (a, far) = (a.to_dtype(DType::F64), far.to_dtype(DType::F64));
        let want = [1.6295866529378224e-23, 0.9954365586958488, 3.290836613617175e-22];
        let got = a.igammac(&far).to_vec::<f64>();
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() <= 1e-10 * want), "{got:?}");
        assert_close(&(a.igamma(&far) + a.igammac(&far)), &[1.0; 3], 1e-14);
        let left = Tensor::of(&[-0.25, -3.5, -40.75], &device).to_dtype(DType::F64);
        assert_close(&left.polygamma(2), &[122.69736678366236, -0.061556821321027695, -124.02569433001563], 1e-12);
        assert_close(&left.polygamma(3), &[1555.7633125348507, 194.7878595594625, 1558.5454280580982], 1e-12);
        let poles = Tensor::of(&[0.0, -2.0], &device).to_dtype(DType::F64);
        assert_close(&poles.polygamma(2), &[f64::NEG_INFINITY; 2], 0.0);
        let third = x.requires_grad();
        let slope = third.polygamma(2).sum(()).backward();
        assert_close(slope.get(&third).unwrap(), &x.polygamma(3).to_vec::<f64>(), 1e-12);
    }
}

/// `fftfreq` and the shifts, of odd and even counts.
#[test]
fn frequencies_and_shifts() {
    for device in [Device::cpu(), Device::reference()] {
        assert_close(&Tensor::fftfreq(4, 0.5, &device), &[0.0, 0.5, -1.0, -0.5], 0.0);
        assert_close(&Tensor::fftfreq(5, 1.0, &device), &[0.0, 0.2, 0.4, -0.4, -0.2], 1e-15);
        assert_close(&Tensor::rfftfreq(5, 1.0, &device), &[0.0, 0.2, 0.4], 1e-15);
        for n in [4, 5] {
            let x = Tensor::arange(0, n, 1, DType::I64, &device);
            assert_eq!(x.fftshift(&[0]).ifftshift(&[0]).to_vec::<i64>(), x.to_vec::<i64>());
        }
    }
}
