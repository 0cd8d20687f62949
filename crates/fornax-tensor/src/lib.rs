//! Fornax: tensors, devices, laziness and autodiff.
