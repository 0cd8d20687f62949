//! Asking for a GPU: by index or name, with the feature `cuda` and without.

use fornax_tensor::{Device, DeviceErrorKind};

#[test]
fn a_gpu_is_there_or_the_error_tells_why_not() {
    let error = match Device::from_name("cuda") {
        Ok(device) => {
            assert_eq!(device.name(), "cuda:0");
            return;
        }
        Err(error) => error,
    };
    assert_eq!(error.kind(), DeviceErrorKind::Unavailable);
    let wanted = if cfg!(feature = "cuda") { "driver" } else { "the feature `cuda` of `fornax`" };
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn an_index_that_is_no_number_is_no_device() {
    for name in ["cuda:", "cuda:x", "cuda:-1", "cuda0", "Cuda"] {
        let error = Device::from_name(name).unwrap_err();
        assert!(error.to_string().starts_with(&format!("there is no device {name:?}")), "{error}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn all_handles_to_a_gpu_are_one_device() {
    use fornax_tensor::Tensor;
    let Ok(device) = Device::cuda(0) else { return };
    let x = Tensor::from_vec(vec![1.0f32, 2.0], [2], &device);
    let y = Tensor::from_vec(vec![3.0f32, 4.0], [2], &Device::from_name("cuda:0").unwrap());
    assert_eq!((x + y).to_vec::<f32>(), [4.0, 6.0]);
    assert!(Device::cuda(1000).is_err());
    let moved = Tensor::from([1.0f32, 2.0]).to_device(&device).to_device(&Device::cpu());
    assert_eq!(moved.to_vec::<f32>(), [1.0, 2.0]);
}
