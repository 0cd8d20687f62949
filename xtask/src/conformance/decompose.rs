//! Factorizations are unique up to signs and order: what is compared of them, and what the rest must fulfil.

use super::file::Data;
use super::manifest::Case;
use fornax_tensor::ops::Args;
use fornax_tensor::{DType, Device, Tensor};

/// Checks what a factorization promises and gives its outputs as the case has them: of `qr` with no negative diagonal
/// in R. Outputs of other operators come back as they are.
pub fn settled(case: &Case, args: &Args, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    let tolerance = case.tolerance.absolute.max(1e-4);
    match (case.op.as_str(), outputs.as_slice()) {
        ("linalg.qr", [q, r]) => {
            let signs = signs(r)?;
            // In mode `r` the case has no Q, and the op's may be empty.
            if q.numel() > 0 {
                orthonormal(&host(q)?, tolerance)?;
                near(&host(q)?.matmul(&host(r)?), &input(args, "A")?, tolerance)?;
            }
            let r = r * signs.unsqueeze(-1);
            Ok(if case.outputs.len() == 1 { vec![r] } else { vec![q * signs.unsqueeze(-2), r] })
        }
        ("linalg.svd", [u, s, vh]) => {
            let (u, s, vh) = (host(u)?, host(s)?, host(vh)?);
            orthonormal(&u, tolerance)?;
            orthonormal(&vh.mt(), tolerance)?;
            let k = s.shape()[s.rank() - 1];
            let rebuilt = (u.narrow(-1, 0, k) * s.unsqueeze(-2)).matmul(&vh.narrow(-2, 0, k));
            near(&rebuilt, &input(args, "A")?, tolerance)?;
            Ok(outputs)
        }
        ("linalg.eigh", [w, v]) => {
            let (w, v) = (host(w)?, host(v)?);
            orthonormal(&v, tolerance)?;
            let triangle: Option<String> = args.get("UPLO").map_err(|error| error.to_string())?;
            let a = input(args, "input")?;
            let whole =
                if triangle.as_deref() == Some("U") { a.triu(0) + a.triu(1).mt() } else { a.tril(0) + a.tril(-1).mt() };
            near(&(&v * w.unsqueeze(-2)).matmul(&v.mt()), &whole, tolerance)?;
            Ok(outputs)
        }
        _ => Ok(outputs),
    }
}

/// −1 for each negative element of the diagonal of R, else 1; a constant to gradients.
fn signs(r: &Tensor) -> Result<Tensor, String> {
    let (rows, columns) = (r.shape()[r.rank() - 2], r.shape()[r.rank() - 1]);
    let count = |n: usize| Tensor::arange(0, n, 1, DType::I64, &Device::reference());
    let eye = count(rows).unsqueeze(1).eq(count(columns)).to_dtype(r.dtype());
    let diagonal = (host(r)? * eye).sum(-1);
    let signs = diagonal.lt(0.0).where_(-1.0, 1.0).to_dtype(r.dtype());
    Ok(Data::of(&signs)?.upload(r.device()))
}

/// The tensor on the reference interpreter: whether parts make a whole is no question to the device under test.
fn host(tensor: &Tensor) -> Result<Tensor, String> {
    Ok(Data::of(tensor)?.upload(&Device::reference()))
}

fn input(args: &Args, name: &str) -> Result<Tensor, String> {
    host(&args.get::<Tensor>(name).map_err(|error| error.to_string())?)
}

fn orthonormal(q: &Tensor, tolerance: f64) -> Result<(), String> {
    let n = q.shape()[q.rank() - 1];
    let count = Tensor::arange(0, n, 1, DType::I64, q.device());
    let gram = q.mt().matmul(q);
    let eye = count.unsqueeze(1).eq(&count).to_dtype(q.dtype()).expand(gram.shape());
    near(&gram, &eye, tolerance).map_err(|why| format!("columns are not orthonormal: {why}"))
}

/// Whether `got` is off `want` by no more than `tolerance` times the largest element, or 1.
fn near(got: &Tensor, want: &Tensor, tolerance: f64) -> Result<(), String> {
    let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    if got.len() != want.len() {
        return Err(format!("{} elements in place of {}", got.len(), want.len()));
    }
    let scale = want.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
    let is_off = |(got, want): (&f64, &f64)| (got - want).is_nan() || (got - want).abs() > tolerance * scale;
    match got.iter().zip(&want).position(is_off) {
        Some(i) => Err(format!("the parts do not make the whole: element {i}: got {}, want {}", got[i], want[i])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_must_make_the_whole() {
        let matrix = |values: &[f32]| Tensor::from_slice(values, [2, 2], &Device::reference());
        let turn = matrix(&[0.6, -0.8, 0.8, 0.6]);
        assert_eq!(orthonormal(&turn, 1e-4), Ok(()));
        assert!(orthonormal(&matrix(&[0.6, -0.8, 0.8, 0.7]), 1e-4).is_err());
        assert_eq!(near(&turn, &turn, 0.0), Ok(()));
        let spoilt = matrix(&[0.6, f32::NAN, 0.8, 0.6]);
        assert_eq!(
            near(&spoilt, &turn, 1.0).unwrap_err(),
            "the parts do not make the whole: element 1: got NaN, want -0.800000011920929"
        );
    }

    #[test]
    fn a_zero_on_the_diagonal_counts_as_positive() {
        let r = Tensor::from_slice(&[-2.0f32, 1.0, 3.0, 0.0, 0.0, 5.0], [2, 3], &Device::reference());
        assert_eq!(signs(&r).unwrap().to_vec::<f32>(), [-1.0, 1.0]);
    }
}
