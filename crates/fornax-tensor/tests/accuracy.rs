//! Elementwise functions against values of many digits, over wide ranges of operands.

use fornax_tensor::ops::{Arg, Args, OpRecord, records};
use fornax_tensor::{DType, Device, Tensor};
use std::collections::BTreeMap;

/// Ops with their operands and the value.
type Table = BTreeMap<&'static str, Vec<(Vec<f64>, f64)>>;

fn table() -> Table {
    let mut table = Table::new();
    for line in include_str!("../../../testdata/accuracy.txt").lines().filter(|line| !line.starts_with('#')) {
        let (op, numbers) = line.split_once(' ').unwrap();
        let mut numbers: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let value = numbers.pop().unwrap();
        table.entry(op).or_default().push((numbers, value));
    }
    table
}

/// Units in the last place by which results in `f64` may be off; those in `f32` may be by 4.
fn units_of_f64(op: &str) -> f64 {
    match op {
        // `a ln x − x − ln Γ(a)` is a difference of large numbers.
        "igamma" => 1000.0,
        // Sums of both signs for a negative operand, and quotients of them.
        "digamma" | "lgamma" | "trigamma" | "zeta" => 50.0,
        "i0" | "i0e" | "i1" | "i1e" => 16.0,
        _ => 6.0,
    }
}

fn call(record: &OpRecord, operands: &[Tensor], device: &Device) -> Tensor {
    let names: [&[&str]; 2] = [&["input"], &["other", "exponent"]];
    let named = names.iter().zip(operands).flat_map(|(names, x)| names.iter().map(move |name| (*name, x)));
    let named = named.map(|(name, x)| (name.to_string(), Arg::Tensor(x.clone()))).collect();
    (record.call)(&Args::new(device, named)).unwrap().swap_remove(0)
}

/// The distance of neighbours of `value` in a dtype with so many digits and so small a normal number.
fn unit(value: f64, epsilon: f64, smallest: f64) -> f64 {
    2f64.powf(value.abs().max(smallest).log2().floor()) * epsilon
}

#[test]
fn functions_are_within_a_few_units_in_the_last_place() {
    let mut complaints = Vec::new();
    for (op, rows) in table() {
        let record = records().find(|record| record.name == op).unwrap_or_else(|| panic!("no op {op}"));
        for device in [Device::cpu(), Device::reference()] {
            for dtype in [DType::F32, DType::F64] {
                let operands: Vec<Tensor> = (0..rows[0].0.len())
                    .map(|i| {
                        let column: Vec<f64> = rows.iter().map(|(operands, _)| operands[i]).collect();
                        Tensor::from_vec(column, [rows.len()], &device).to_dtype(dtype)
                    })
                    .collect();
                let got = call(record, &operands, &device).to_vec::<f64>();
                let (epsilon, smallest, largest, allowed) = match dtype {
                    DType::F32 => (f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX), 4.0),
                    _ => (f64::EPSILON, f64::MIN_POSITIVE, f64::MAX, units_of_f64(op)),
                };
                for ((operands, want), got) in rows.iter().zip(got) {
                    let off = (got - want).abs() / unit(*want, epsilon, smallest);
                    let overflows = want.abs() > largest && got.is_infinite();
                    if !(off <= allowed || overflows) {
                        complaints.push(format!(
                            "{op}{operands:?} in {dtype} on {device}: got {got:e}, want {want:e}, {off} units"
                        ));
                    }
                }
            }
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
