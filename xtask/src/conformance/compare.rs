//! Whether a result is the expected one, and where it is not.

use super::manifest::Data;
use fornax_tensor::{DType, Tensor};

/// How two tensors are held against each other.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// `|got − want| ≤ atol + rtol · |want|`; NaN equals NaN, infinities are equal.
    Close {
        /// Relative tolerance.
        rtol: f64,
        /// Absolute tolerance.
        atol: f64,
    },
    /// Equal; NaN equals NaN; signs of zeros count if asked for.
    Exact {
        /// Whether +0 and −0 differ.
        signed_zero: bool,
    },
}

/// Compares shape, dtype and every element; tells the worst one.
pub fn compare(got: &Tensor, want: &Data, check: Check) -> Result<(), String> {
    same_kind(got, &want.shape, want.dtype)?;
    let got_bytes = got.to_bytes();
    if got_bytes == want.bytes {
        return Ok(());
    }
    if !want.dtype.is_float() {
        let (got, want) = (integers(&got_bytes, want.dtype), integers(&want.bytes, want.dtype));
        return match got.iter().zip(&want).position(|(got, want)| got != want) {
            Some(i) => Err(format!("element {i}: got {}, want {}", got[i], want[i])),
            None => Ok(()),
        };
    }
    let (got, want) = (floats(&got_bytes, want.dtype), floats(&want.bytes, want.dtype));
    let mut worst: Option<(usize, f64)> = None;
    for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
        let excess = match check {
            _ if got.is_nan() || want.is_nan() => bad_if(got.is_nan() != want.is_nan()),
            Check::Exact { signed_zero } => {
                bad_if(got != want || (signed_zero && got == 0.0 && got.is_sign_negative() != want.is_sign_negative()))
            }
            Check::Close { .. } if got.is_infinite() || want.is_infinite() => bad_if(got != want),
            Check::Close { rtol, atol } => (got - want).abs() / (atol + rtol * want.abs()),
        };
        if excess > 1.0 && worst.is_none_or(|(_, known)| excess > known) {
            worst = Some((i, excess));
        }
    }
    match worst {
        Some((i, _)) => Err(format!("element {i}: got {:e}, want {:e}", got[i], want[i])),
        None => Ok(()),
    }
}

/// Compares shape and dtype.
pub fn same_kind(got: &Tensor, shape: &[usize], dtype: DType) -> Result<(), String> {
    if got.dtype() != dtype {
        return Err(format!("dtype {} in place of {dtype}", got.dtype()));
    }
    if got.shape()[..] != *shape {
        return Err(format!("shape {} in place of {shape:?}", got.shape()));
    }
    Ok(())
}

fn bad_if(bad: bool) -> f64 {
    if bad { f64::INFINITY } else { 0.0 }
}

/// Elements of a float dtype.
pub fn floats(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let device = fornax_tensor::Device::reference();
    let count = bytes.len() / dtype.size();
    Tensor::from_bytes(dtype, [count], bytes, &device).to_vec::<f64>()
}

/// Elements of an integer dtype or `bool`; `u64` wraps.
pub fn integers(bytes: &[u8], dtype: DType) -> Vec<i64> {
    let device = fornax_tensor::Device::reference();
    let count = bytes.len() / dtype.size();
    Tensor::from_bytes(dtype, [count], bytes, &device).to_vec::<i64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_tensor::Device;

    fn data(values: &[f32]) -> Data {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Data { dtype: DType::F32, shape: vec![values.len()], bytes }
    }

    fn check(got: &[f32], want: &[f32], check: Check) -> Result<(), String> {
        compare(&Tensor::from_slice(got, [got.len()], &Device::reference()), &data(want), check)
    }

    #[test]
    fn tolerance_nan_and_infinity() {
        let close = Check::Close { rtol: 1e-3, atol: 0.0 };
        assert!(check(&[1.0, f32::NAN, f32::INFINITY], &[1.0005, f32::NAN, f32::INFINITY], close).is_ok());
        assert_eq!(
            check(&[1.0, 2.0], &[1.0, 2.1], close).unwrap_err(),
            "element 1: got 2e0, want 2.0999999046325684e0"
        );
        assert!(check(&[f32::NAN], &[1.0], close).is_err());
        assert!(check(&[1.0], &[f32::INFINITY], close).is_err());
    }

    #[test]
    fn signs_of_zeros_count_only_if_asked_for() {
        assert!(check(&[0.0], &[-0.0], Check::Exact { signed_zero: false }).is_ok());
        assert!(check(&[0.0], &[-0.0], Check::Exact { signed_zero: true }).is_err());
    }
}
