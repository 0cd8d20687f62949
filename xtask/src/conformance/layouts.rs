//! Every op on views: the CPU device against the reference, forward and gradient.
//!
//! A recorded case gives each op its arguments. The CPU gets them as views of other memory (permuted, cut out, stepped,
//! reversed, …), the reference as plain tensors of the same values; both must say the same, a refusal included. Each
//! layout meets another dtype, so that all of both meet over the ops.

use super::file::{self, Data, Tensors};
use super::manifest::{Case, Check, Suite, argument};
use crate::root;
use fornax_tensor::ops::{Arg, Args, OpRecord, records};
use fornax_tensor::{DType, Device, Tensor, grad_with};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Elements that the tensors of a case may have together.
const LARGEST: usize = 600;

#[derive(Clone, Copy, Debug)]
enum Layout {
    Contiguous,
    Permuted,
    Transposed,
    CutOut,
    Stepped,
    Reversed,
    Broadcast,
    UnitDims,
    Empty,
    Scalar,
}

use Layout::{Broadcast, Contiguous, CutOut, Empty, Permuted, Reversed, Scalar, Stepped, Transposed, UnitDims};

const LAYOUTS: [Layout; 10] =
    [Contiguous, Permuted, Transposed, CutOut, Stepped, Reversed, Broadcast, UnitDims, Empty, Scalar];

type View = Box<dyn Fn(&Tensor) -> Tensor>;

impl Layout {
    /// What is in memory, and how it is looked at. Some layouts take part of the values.
    fn split(self, x: &Tensor) -> (Tensor, View) {
        let rank = x.rank() as i64;
        let shape = x.shape().to_vec();
        let all: Vec<i64> = (0..rank).collect();
        match self {
            Empty if rank > 0 => (x.narrow(0, 0, 0), Box::new(Tensor::clone)),
            UnitDims if rank > 0 && shape[0] > 0 => {
                (x.narrow(0, 0, 1).unsqueeze(0).unsqueeze(-1), Box::new(|x| x.squeeze([0, -1]).unsqueeze(0)))
            }
            Scalar if x.numel() > 0 => (x.reshape([-1]).narrow(0, 0, 1), Box::new(|x| x.reshape(()))),
            Permuted if rank > 1 => {
                let turned: Vec<i64> = (1..rank).chain([0]).collect();
                let back: Vec<i64> = [rank - 1].into_iter().chain(0..rank - 1).collect();
                (x.permute(turned), Box::new(move |x| x.permute(&back)))
            }
            Transposed if rank > 1 => (x.transpose(-1, -2), Box::new(|x| x.transpose(-1, -2))),
            CutOut if rank > 0 => {
                let cut = move |x: &Tensor| (0..rank).zip(&shape).fold(x.clone(), |x, (dim, &n)| x.narrow(dim, 2, n));
                (x.pad_dims(&vec![(2, 1); rank as usize], 1), Box::new(cut))
            }
            Stepped if rank > 0 => (Tensor::stack(&[x, &x.zeros_like()], -1), Box::new(|x| x.select(-1, 0))),
            Reversed => (x.flip(&all), Box::new(move |x| x.flip(&all))),
            Broadcast if rank > 0 && shape[shape.len() - 1] > 0 => {
                (x.narrow(-1, 0, 1), Box::new(move |x| x.expand(shape.as_slice())))
            }
            _ => (x.clone(), Box::new(Tensor::clone)),
        }
    }
}

/// The tests share the CPU's queue; one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_op_reads_every_layout() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let suite = Suite::read(&root().join("testdata/conformance/ops")).unwrap();
    let by_name: HashMap<&str, &OpRecord> =
        records().flat_map(|record| record.torch.iter().map(move |&name| (name, record))).collect();
    let (mut files, mut used, mut ran) = (HashMap::new(), HashMap::new(), 0);
    let mut complaints = Vec::new();
    for case in suite.cases().unwrap() {
        let Some(&record) = by_name.get(case.op.as_str()) else { continue };
        let used: &mut usize = used.entry(record.name).or_default();
        if *used == 1 || case.is_error {
            continue;
        }
        let tensors =
            files.entry(case.file.clone()).or_insert_with(|| file::read(&suite.root.join(&case.file)).unwrap());
        let names = tensor_names(&case, tensors);
        let elements: usize = names.iter().map(|name| tensors[name].shape.iter().product::<usize>()).sum();
        let largest_rank = names.iter().map(|name| tensors[name].shape.len()).max();
        if elements == 0 || elements > LARGEST || largest_rank < Some(1) {
            continue;
        }
        *used += 1;
        for (i, layout) in LAYOUTS.into_iter().enumerate() {
            // The dtypes go round, in another order for each op.
            // Broadcast, a matrix is singular.
            if matches!(layout, Broadcast) && record.group == "linalg" {
                continue;
            }
            let turn = i + record.name.bytes().map(usize::from).sum::<usize>();
            ran += 1;
            if let Err(why) = case_in(layout, turn, &case, record, tensors, &names) {
                complaints.push(format!("{} {layout:?}, turn {}: {why}", case.id, turn % 4));
            }
        }
    }
    assert!(ran > 2000, "only {ran} calls");
    assert!(complaints.is_empty(), "{} of {ran} differ:\n{}", complaints.len(), complaints.join("\n"));
}

/// The tensors among the arguments.
fn tensor_names(case: &Case, tensors: &Tensors) -> Vec<String> {
    let mut names = Vec::new();
    let device = Device::reference();
    for (_, value) in &case.args {
        argument(value, &mut |name| {
            names.push(name.to_string());
            Ok(tensors[name].upload(&device))
        })
        .unwrap();
    }
    names.sort();
    names.dedup();
    names
}

/// Outputs, then gradients; or that the call was refused.
type Results = Option<Vec<Option<Data>>>;

fn case_in(
    layout: Layout,
    turn: usize,
    case: &Case,
    record: &OpRecord,
    tensors: &Tensors,
    names: &[String],
) -> Result<(), String> {
    let (reference, cpu) = (Device::reference(), Device::cpu());
    let mut stored = HashMap::new();
    for name in names {
        let x = tensors[name].upload(&reference);
        // Integers are mostly positions, whose dtype an op may care for.
        let dtype = match x.dtype() {
            dtype if dtype.is_float() => [DType::F32, DType::F64, DType::F16, DType::BF16][turn % 4],
            dtype => dtype,
        };
        let (memory, view) = layout.split(&x.to_dtype(dtype));
        stored.insert(name.as_str(), (Data::of(&memory)?, view));
    }
    let results = |device: &Device| -> Result<Results, String> {
        let plain = *device == reference;
        let inputs: HashMap<&str, Tensor> = stored
            .iter()
            .map(|(&name, (memory, view))| {
                let x = view(&memory.upload(device));
                // Read back, the reference has no view left.
                let x = if plain { Data::of(&x).unwrap().upload(device) } else { x };
                (name, if x.dtype().is_float() { x.requires_grad() } else { x })
            })
            .collect();
        let mut find = |name: &str| Ok(inputs[name].clone());
        let named = case.args.iter().map(|(name, value)| Ok((name.clone(), argument(value, &mut find)?)));
        let args = Args::new(device, named.collect::<Result<_, String>>()?);
        let Ok(outputs) = (record.call)(&args) else { return Ok(None) };
        let is_unique = |i: usize| case.outputs.get(i).is_none_or(|output| output.check != Check::None);
        let outputs: Vec<Tensor> =
            outputs.into_iter().enumerate().filter(|(i, _)| is_unique(*i)).map(|(_, output)| output).collect();
        let tracked: Vec<&Tensor> = outputs.iter().filter(|output| output.is_tracked()).collect();
        let weights: Vec<Tensor> = tracked
            .iter()
            .map(|output| {
                let weights: Vec<f64> = (0..output.numel()).map(|i| 1.5 + (0.7 * i as f64).cos()).collect();
                Tensor::from_vec(weights, output.shape(), device).to_dtype(output.dtype())
            })
            .collect();
        let leaves: Vec<&Tensor> =
            names.iter().map(|name| &inputs[name.as_str()]).filter(|leaf| leaf.is_tracked()).collect();
        let gradients = if tracked.is_empty() || leaves.is_empty() || case.grads.is_empty() {
            Vec::new()
        } else {
            grad_with(&tracked, &leaves, &weights.iter().collect::<Vec<_>>()).map_err(|error| error.to_string())?
        };
        let read = |x: &Tensor| Data::of(x).ok();
        Ok(Some(outputs.iter().map(read).chain(gradients.iter().flatten().map(read)).collect()))
    };
    let run = |device: &Device| {
        catch_unwind(AssertUnwindSafe(|| results(device))).unwrap_or_else(|_| Err(String::from("panicked")))
    };
    match (run(&cpu)?, run(&reference)?) {
        (None, None) => Ok(()),
        (Some(got), Some(want)) if got.len() == want.len() => {
            got.iter().zip(&want).enumerate().try_for_each(|(i, pair)| match pair {
                (Some(got), Some(want)) => near(got, want).map_err(|why| format!("result {i}: {why}")),
                (None, None) => Ok(()),
                (got, _) => Err(format!("result {i}: one device faults, the CPU: {}", got.is_none())),
            })
        }
        _ => Err(String::from("one device refuses, or has more results")),
    }
}

/// Within a few units of rounding of the largest element.
fn near(got: &Data, want: &Data) -> Result<(), String> {
    if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
        return Err(format!("{} {:?} against {} {:?}", got.dtype, got.shape, want.dtype, want.shape));
    }
    if !got.dtype.is_float() {
        return if got == want { Ok(()) } else { Err(String::from("other numbers")) };
    }
    let values = |data: &Data| data.upload(&Device::reference()).to_dtype(DType::F64).to_vec::<f64>();
    let (got_values, want_values) = (values(got), values(want));
    let largest = want_values.iter().filter(|value| value.is_finite()).fold(0.0f64, |a, b| a.max(b.abs()));
    let unit = match got.dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 1e-5,
        _ => 1e-10,
    };
    for (i, (&a, &b)) in got_values.iter().zip(&want_values).enumerate() {
        if !(a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= unit * largest) {
            return Err(format!("{} {:?}, element {i}: {a:e} against {b:e}", got.dtype, got.shape));
        }
    }
    Ok(())
}

/// Every op that takes one or two tensors of integers, on all pairs of the ends of their range.
#[test]
fn integers_at_their_limits() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut complaints = Vec::new();
    let mut ran = 0;
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let bits = 8 * dtype.size() as u32;
        let is_signed = dtype.name().starts_with('i');
        let low = if is_signed { (-1i64) << (bits - 1) } else { 0 };
        // The bits of all ones for `u64`, which wrap into it.
        let high = if is_signed { !low } else { ((1i128 << bits) - 1) as i64 };
        let ends = [low, low.wrapping_add(1), 0, 1, 2, high.wrapping_sub(1), high];
        let pairs: Vec<(i64, i64)> = ends.iter().flat_map(|&a| ends.map(|b| (a, b))).collect();
        let tensor = |values: Vec<i64>, device: &Device| Tensor::from_vec(values, [7, 7], device).to_dtype(dtype);
        for record in records() {
            for operands in 1..=2 {
                let results = |device: &Device| -> Option<Vec<Option<Data>>> {
                    let a = tensor(pairs.iter().map(|pair| pair.0).collect(), device);
                    let b = tensor(pairs.iter().map(|pair| pair.1).collect(), device);
                    let named = [("input", a), ("other", b)].into_iter().take(operands);
                    let named = named.map(|(name, x)| (name.to_string(), Arg::Tensor(x))).collect();
                    let outputs = (record.call)(&Args::new(device, named)).ok()?;
                    Some(outputs.iter().map(|output| Data::of(output).ok()).collect())
                };
                let run = |device: &Device| catch_unwind(AssertUnwindSafe(|| results(device)));
                let name = format!("{} of {operands} {dtype}", record.name);
                match (run(&Device::cpu()), run(&Device::reference())) {
                    (Ok(Some(got)), Ok(Some(want))) if got.len() == want.len() => {
                        ran += 1;
                        for pair in got.iter().zip(&want) {
                            match pair {
                                (Some(got), Some(want)) => {
                                    complaints.extend(near(got, want).err().map(|why| format!("{name}: {why}")));
                                }
                                (None, None) => {}
                                _ => complaints.push(format!("{name}: one device faults")),
                            }
                        }
                    }
                    (Ok(None), Ok(None)) => {}
                    (Err(_), _) | (_, Err(_)) => complaints.push(format!("{name}: panicked")),
                    _ => complaints.push(format!("{name}: one device refuses")),
                }
            }
        }
    }
    assert!(ran > 500, "only {ran} calls");
    assert!(complaints.is_empty(), "{} of {ran} differ:\n{}", complaints.len(), complaints.join("\n"));
}
