//! Positions (`check` = `index`) where ties leave the choice open: what lies there must be what the values say.

use super::compare::compare;
use super::file::Data;
use super::manifest::{Check, Tolerance};
use fornax_tensor::ops::Args;
use fornax_tensor::{DType, Device, Tensor};

/// Checks `positions` of a call with `args`; `values` is the output that holds what lies there, if there is one, else
/// what lies there must be sorted. All of it is read off on the reference interpreter, whichever device made it.
pub fn check(positions: &Data, values: Option<&Data>, args: &Args) -> Result<(), String> {
    let reference = Device::reference();
    let input: Tensor = args.get("input").map_err(|error| error.to_string())?;
    let input = Data::of(&input)?.upload(&reference);
    let dim: Option<i64> = args.get("dim").map_err(|error| error.to_string())?;
    let descending: Option<bool> = args.get("descending").map_err(|error| error.to_string())?;
    let dim = dim.ok_or("positions without a dim")?;
    let size = if input.rank() == 0 { 1 } else { input.shape()[normal(dim, input.rank())?] };
    let index = positions.upload(&reference).to_dtype(DType::I64);
    if let Some(found) = index.to_vec::<i64>().into_iter().find(|&at| at < 0 || at >= size as i64) {
        return Err(format!("position {found} is out of range for size {size}"));
    }
    if input.rank() == 0 {
        return Ok(());
    }
    let is_reduced = index.rank() < input.rank();
    let found = input.gather(dim, &if is_reduced { index.unsqueeze(dim) } else { index });
    let want = match values {
        Some(values) => values.clone(),
        None => Data::of(&found.sort(dim, descending.unwrap_or(false)).0)?,
    };
    let found = Data::of(&if is_reduced { found.squeeze(dim) } else { found })?;
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    compare(&found, &want, Check::Exact { signed_zero: false }, exact).map_err(|why| format!("what lies there: {why}"))
}

fn normal(dim: i64, rank: usize) -> Result<usize, String> {
    let normal = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(normal).ok().filter(|&dim| dim < rank).ok_or_else(|| format!("dim {dim} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_tensor::ops::Arg;

    fn run(positions: &[i64], values: Option<&[f32]>) -> Result<(), String> {
        let device = Device::reference();
        let input = Tensor::from_slice(&[3.0f32, 1.0, 1.0, 2.0, 2.0, 0.0], [2, 3], &device);
        let named = vec![(String::from("input"), Arg::Tensor(input)), (String::from("dim"), Arg::Int(-1))];
        let shape: &[usize] = if values.is_some() { &[2] } else { &[2, 3] };
        let positions = Data::of(&Tensor::from_slice(positions, shape, &device))?;
        let values = values.map(|values| Data::of(&Tensor::from_slice(values, [2], &device)).unwrap());
        check(&positions, values.as_ref(), &Args::new(&device, named))
    }

    #[test]
    fn ties_leave_the_choice_open() {
        assert_eq!(run(&[1, 2], Some(&[1.0, 0.0])), Ok(()));
        assert_eq!(run(&[2, 2], Some(&[1.0, 0.0])), Ok(()));
        assert_eq!(run(&[0, 2], Some(&[1.0, 0.0])).unwrap_err(), "what lies there: element [0]: got 3.0, want 1.0");
        assert_eq!(run(&[3, 2], Some(&[1.0, 0.0])).unwrap_err(), "position 3 is out of range for size 3");
        assert_eq!(run(&[-1, 2], Some(&[1.0, 0.0])).unwrap_err(), "position -1 is out of range for size 3");
    }

    #[test]
    fn positions_alone_must_sort() {
        assert_eq!(run(&[2, 1, 0, 2, 0, 1], None), Ok(()));
        assert!(run(&[0, 1, 2, 2, 0, 1], None).is_err());
    }
}
