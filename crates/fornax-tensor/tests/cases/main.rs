//! Small inputs from public bug reports of other frameworks, with the right results: each stands for its kind.
//!
//! The name of a test says what was wrong elsewhere; the comment names the report.

mod gradients;
mod layers;
mod plans;
mod tensors;

use fornax_tensor::{DType, Device, Tensor};

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
