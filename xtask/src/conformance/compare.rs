//! Whether a result is the expected one, and where it is not.

use super::file::Data;
use super::manifest::{Check, Tolerance};
use fornax_ir::DType;
use fornax_ir::fuzz;

/// Compares dtype, shape and every element; tells the worst one.
pub fn compare(got: &Data, want: &Data, check: Check, tolerance: Tolerance) -> Result<(), String> {
    same_kind(got, want.dtype, &want.shape)?;
    let Tolerance { relative, absolute } = tolerance;
    let allowed = match check {
        Check::Close => fuzz::Tolerance::Close { absolute, relative },
        Check::Exact { .. } => fuzz::Tolerance::Exact,
        Check::Index | Check::None => return Err(String::from("is not to be compared element by element")),
    };
    if let Some(worst) = fuzz::compare(want.dtype, &got.bytes, &want.bytes, &allowed) {
        let value = |value: Option<fornax_ir::Scalar>| value.map_or_else(|| String::from("nothing"), |x| x.to_string());
        let (found, wanted) = (value(worst.got), value(worst.want));
        return Err(format!("element {:?}: got {found}, want {wanted}", position(worst.index, &want.shape)));
    }
    if check == (Check::Exact { signed_zero: true })
        && let Some(index) = other_zero(got, want)
    {
        return Err(format!("element {:?}: a zero of the wrong sign", position(index, &want.shape)));
    }
    Ok(())
}

/// Compares dtype and shape.
pub fn same_kind(got: &Data, dtype: DType, shape: &[usize]) -> Result<(), String> {
    if got.dtype != dtype {
        return Err(format!("got dtype {}, want {dtype}", got.dtype));
    }
    if got.shape != shape {
        return Err(format!("got shape {:?}, want {shape:?}", got.shape));
    }
    Ok(())
}

/// The first zero whose sign is another.
fn other_zero(got: &Data, want: &Data) -> Option<usize> {
    let size = want.dtype.size();
    let is_zero = |element: &[u8]| {
        let (sign, rest) = element.split_last().expect("an element has bytes");
        sign & 0x7f == 0 && rest.iter().all(|&byte| byte == 0)
    };
    let mut pairs = got.bytes.chunks_exact(size).zip(want.bytes.chunks_exact(size));
    if want.dtype.is_float() { pairs.position(|(got, want)| is_zero(want) && got != want) } else { None }
}

/// The place in `shape` of a row-major number.
fn position(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (at, &size) in place.iter_mut().zip(shape).rev() {
        *at = index % size.max(1);
        index /= size.max(1);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(values: &[f32]) -> Data {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Data { dtype: DType::F32, shape: vec![values.len()], bytes }
    }

    fn check(got: &[f32], want: &[f32], check: Check) -> Result<(), String> {
        compare(&data(got), &data(want), check, Tolerance { relative: 1e-3, absolute: 1e-6 })
    }

    #[test]
    fn close_elements_pass() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
        assert_eq!(check(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0005], &special, Check::Close), Ok(()));
        assert_eq!(check(&[], &[], Check::Close), Ok(()));
    }

    #[test]
    fn the_worst_element_is_told() {
        let error = check(&[1.01, 3.0, 2.5], &[1.0, 3.0, 2.0], Check::Close).unwrap_err();
        assert_eq!(error, "element [2]: got 2.5, want 2.0");
        assert!(check(&[f32::NAN], &[1.0], Check::Close).is_err());
        assert!(check(&[1.0], &[f32::NAN], Check::Close).is_err());
        assert!(check(&[1.0], &[f32::INFINITY], Check::Close).is_err());
        assert!(check(&[f32::MAX], &[f32::INFINITY], Check::Close).is_err());
        assert!(check(&[f32::NEG_INFINITY], &[f32::INFINITY], Check::Close).is_err());
    }

    #[test]
    fn exact_is_exact() {
        let exact = Check::Exact { signed_zero: false };
        assert_eq!(check(&[f32::NAN, 0.0], &[-f32::NAN, -0.0], exact), Ok(()));
        assert!(check(&[1.0 + f32::EPSILON], &[1.0], exact).is_err());
    }

    #[test]
    fn signs_of_zeros_count_if_asked_for() {
        let signed = Check::Exact { signed_zero: true };
        let error = check(&[1.0, 0.0], &[1.0, -0.0], signed).unwrap_err();
        assert_eq!(error, "element [1]: a zero of the wrong sign");
        assert_eq!(check(&[-0.0, 1.0], &[-0.0, 1.0], signed), Ok(()));
    }

    #[test]
    fn dtype_and_shape_count_always() {
        let one = data(&[1.0]);
        let scalar = Data { shape: vec![], ..one.clone() };
        let tolerance = Tolerance { relative: 1.0, absolute: 1.0 };
        let error = compare(&scalar, &one, Check::Close, tolerance).unwrap_err();
        assert_eq!(error, "got shape [], want [1]");
        let integer = Data { dtype: DType::I32, ..one.clone() };
        assert_eq!(compare(&integer, &one, Check::Close, tolerance).unwrap_err(), "got dtype i32, want f32");
        let empty = Data { shape: vec![0, 3], bytes: vec![], ..one.clone() };
        let other = Data { shape: vec![3, 0], ..empty.clone() };
        assert!(compare(&empty, &other, Check::Close, tolerance).is_err());
    }

    #[test]
    fn positions_are_those_of_the_shape() {
        assert_eq!(position(7, &[2, 1, 5]), [1, 0, 2]);
        assert_eq!(position(0, &[]), Vec::<usize>::new());
    }
}
