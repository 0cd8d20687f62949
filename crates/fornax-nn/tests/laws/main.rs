//! Layers that the recorded suites do not know: against numbers of PyTorch, or against laws that they obey.

// `#[derive(Module)]` writes paths into the facade.
extern crate fornax_nn as fornax;

mod cases;
mod images;
mod losses;
mod sequences;
mod weights;

use fornax_tensor::{Device, Shape, Tensor};

/// `sin(1.7 i + 0.3)`, row by row: what the numbers of PyTorch were computed from.
fn wave(shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let values: Vec<f32> = (0..shape.numel()).map(|i| (i as f32 * 1.7 + 0.3).sin()).collect();
    Tensor::from_vec(values, shape, &Device::cpu())
}

#[track_caller]
fn close(got: &Tensor, want: &[f64]) {
    let got = got.to_vec::<f64>();
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 2e-5, "{got} against {want}");
    }
}

#[track_caller]
fn same(got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape(), want.shape());
    close(got, &want.to_vec::<f64>());
}
