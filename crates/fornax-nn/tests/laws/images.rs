//! Deformable convolution, synchronized batch norm, noise.

use super::{close, same, wave};
use fornax_nn::*;
use fornax_tensor::{DType, Device, Tensor};
use std::sync::Arc;

#[test]
fn without_offsets_a_deformable_convolution_is_a_convolution() {
    let device = Device::cpu();
    for config in
        [ConvConfig::default(), ConvConfig::default().padding(1).stride(2).groups(2), ConvConfig::default().dilation(2)]
    {
        let plain = Conv2d::new(4, 6, [3, 2], &config, &device);
        let mut deform = DeformConv2d::new(4, 6, [3, 2], &config, &device);
        deform.load_state_dict(&plain.state_dict()).unwrap();
        let x = wave([2, 4, 7, 6]);
        let want = plain.forward(&x);
        let [n, _, oh, ow] = want.dims();
        // Two groups of offsets; the mask of ones changes nothing.
        let offset = Tensor::zeros([n, 2 * 2 * 6, oh, ow], &device);
        same(&deform.forward(&x, &offset, None), &want);
        let mask = Tensor::ones([n, 2 * 6, oh, ow], &device);
        same(&deform.forward(&x, &offset, Some(&(mask * 0.5))), &{
            let bias = plain.bias.as_ref().unwrap().reshape([6, 1, 1]);
            (want - &bias) * 0.5 + bias
        });
    }
}

#[test]
fn offsets_move_what_a_deformable_convolution_reads() {
    let device = Device::cpu();
    let mut deform = DeformConv2d::new(1, 1, [1, 1], &ConvConfig::default().without_bias(), &device);
    deform.weight.set(&Tensor::ones([1, 1, 1, 1], &device));
    let x = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).reshape([1, 1, 2, 3]);
    // Down by y, right by x: between pixels, and half outside.
    for (y, right, want) in [(1.0, 0.0, [4.0, 5.0, 6.0, 0.0, 0.0, 0.0]), (0.0, 0.5, [1.5, 2.5, 1.5, 4.5, 5.5, 3.0])] {
        let part = |value: f64| Tensor::full([1, 1, 2, 3], value, DType::F32, &device);
        let offset = Tensor::cat(&[&part(y), &part(right)], 1).requires_grad();
        let result = deform.forward(&x, &offset, None);
        close(&result, &want);
        if right == 0.5 {
            // The slope to the right is the difference of neighbours.
            let gradients = result.sum(()).backward();
            close(&gradients.get(&offset).unwrap().narrow(1, 1, 1), &[1.0, 1.0, -3.0, 1.0, 1.0, -6.0]);
        }
    }
}

#[test]
fn synchronized_batch_norm_sees_the_batches_of_all() {
    // Both "processes" lie in one tensor: the sum over them is that of halves, computed from what the other one knows.
    struct Halves(Tensor);
    impl AllReduce for Halves {
        fn all_reduce_sum(&self, x: &Tensor) -> Tensor {
            // Mean and variance of two equal batches are those of one.
            assert_eq!(self.0.rank(), 4);
            x * 2.0
        }
    }
    let device = Device::cpu();
    let x = wave([3, 2, 4, 5]);
    let joined = Tensor::cat(&[&x, &x], 0);
    let plain = BatchNorm2d::new(2, &device);
    let sync = SyncBatchNorm::new(2, Arc::new(Halves(x.clone())), &device);
    let want = plain.forward(&joined).narrow(0, 0, 3);
    same(&sync.forward(&x), &want);
    let (got, want) = (sync.stats.as_ref().unwrap(), plain.stats.as_ref().unwrap());
    same(&got.running_var.get(), &want.running_var.get());
    same(&got.running_mean.get(), &want.running_mean.get());
    let alone = SyncBatchNorm::new(2, Arc::new(SingleProcess), &device);
    same(&alone.forward(&x), &BatchNorm2d::new(2, &device).forward(&x));
}

#[test]
fn noise_is_there_in_training_only() {
    let x = Tensor::zeros([100, 100], &Device::cpu());
    let mut noise = GaussianNoise::new(0.5);
    let values = noise.forward(&x);
    let std = values.square().mean(()).sqrt().item::<f32>();
    assert!((std - 0.5).abs() < 0.02, "{std}");
    noise.eval();
    assert!(noise.forward(&x).is_same_value(&x));
}

#[test]
fn fractional_pools_give_values_and_where_they_were() {
    let x = wave([2, 3, 9, 8]);
    let pool = FractionalMaxPool2d::new([2, 2], FractionalSize::Ratio(vec![0.6, 0.5]));
    let (values, places) = pool.forward_with_indices(&x);
    assert_eq!(values.dims(), [2, 3, 5, 4]);
    same(&x.flatten(2, -1).gather(-1, &places.flatten(2, -1)), &values.flatten(2, -1));
    let back = MaxUnpool::new([9, 8]).forward(&values, &places);
    assert_eq!(back.dims(), [2, 3, 9, 8]);
}
