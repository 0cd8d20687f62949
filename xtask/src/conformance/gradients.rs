//! Gradients of every differentiable op against differences in `f64`, first and second order.
//!
//! The recorded cases give each op arguments that mean something; some ops are called by hand, the rest with one or
//! two tensors of their domain. At such a point, along a random direction, the slope of the weighted outputs is compared
//! with the gradient, and the slope of the weighted gradient with the gradient's gradient. Points at kinks and jumps
//! are left out, but an op of which nothing is left fails.

use super::file::{self, Data, Tensors};
use super::manifest::{Case, Suite, argument};
use crate::root;
use fornax_tensor::ops::{Arg, Args, OpRecord, records};
use fornax_tensor::{DType, Device, PoolOptions, Reduction, Tensor, grad_with};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Distance of the outer points; the inner ones are at half of it.
const STEP: f64 = 2e-4;

/// Checked points for a name that the cases know, as `div.floor_rounding`.
const POINTS: usize = 6;

/// Elements of the tensors that a point may differentiate by.
const LARGEST: usize = 3000;

/// Ops whose recorded arguments are no points, with the reason; [`by_hand`] has points for them.
const NOT_BY_CASES: &[(&str, &str)] = &[
    ("cholesky_inverse", "one triangle is read, and the gradient is that of the symmetric matrix"),
    ("cholesky_solve", "as cholesky_inverse"),
    ("eigh", "one triangle is read, and the gradient is that of the symmetric matrix"),
    ("eigvalsh", "as eigh"),
    ("max_unpool", "recorded positions repeat: the last one stays, but like in PyTorch all have a gradient"),
    ("ctc_loss", "like PyTorch's, the gradient is that of normalized log-probabilities"),
];

/// Arguments that by definition alter the gradient and not the value.
const ALTERING: &[&str] = &["padding_idx", "scale_grad_by_freq", "max_norm"];

type ByHand = (&'static str, fn(&[Tensor]) -> Tensor, &'static [&'static [usize]]);

/// Calls for ops that no case and no default calls: each with its name and shapes.
fn by_hand() -> Vec<ByHand> {
    fn symmetric(x: &Tensor) -> Tensor {
        x + x.mt() + Tensor::arange(0, x.shape()[0], 1, DType::F64, x.device()).diag_embed(0, -2, -1) * 3.0
    }
    fn lower(x: &Tensor) -> Tensor {
        x.tril(0) + Tensor::eye(x.shape()[0], x.shape()[0], DType::F64, x.device()) * 3.0
    }
    fn whole(values: &[i64], x: &Tensor) -> Tensor {
        Tensor::from_slice(values, [values.len()], x.device())
    }
    vec![
        ("svdvals", |x| x[0].svdvals(), &[&[4, 3]]),
        ("solve", |x| x[0].solve(&x[1], true) + x[0].solve(&x[1].mt(), false).mt(), &[&[3, 3], &[3, 2]]),
        ("solve_triangular", |x| lower(&x[0]).solve_triangular(&x[1], false, true, false), &[&[3, 3], &[3, 2]]),
        ("cholesky_inverse", |x| lower(&x[0]).cholesky_inverse(false), &[&[3, 3]]),
        ("cholesky_solve", |x| x[0].cholesky_solve(&lower(&x[1]), false), &[&[3, 2], &[3, 3]]),
        ("eigvalsh", |x| symmetric(&x[0]).eigvalsh(false), &[&[3, 3]]),
        (
            "eigh",
            |x| {
                let (values, vectors) = symmetric(&x[0]).eigh(true);
                // The sign of a vector is free.
                values + vectors.square()
            },
            &[&[3, 3]],
        ),
        (
            "max_unpool",
            |x| {
                let (y, positions) = x[0].max_pool2d(&PoolOptions::new([2, 2]));
                y.square().max_unpool(&positions, &[4, 4])
            },
            &[&[1, 2, 4, 4]],
        ),
        (
            "ctc_loss",
            |x| {
                let logs = x[0].log_softmax(-1);
                let targets = Tensor::from_slice(&[1i64, 2, 2, 1], [2, 2], x[0].device());
                logs.ctc_loss(&targets, vec![5, 4], vec![2, 1], 0, Reduction::Sum, false)
            },
            &[&[5, 2, 3]],
        ),
        ("soft_margin_loss", |x| x[0].soft_margin_loss(&x[1].sign(), Reduction::Sum), &[&[2, 3], &[2, 3]]),
        ("quiet_softmax", |x| x[0].quiet_softmax(-1), &[&[2, 3]]),
        ("polygamma", |x| (x[0].exp() + 0.5).polygamma(2), &[&[2, 3]]),
        ("multigammaln", |x| (x[0].exp() + 1.0).multigammaln(3), &[&[2, 3]]),
        ("slice_scatter", |x| x[0].slice_scatter(&x[1], 1, Some(1), None, 2).square(), &[&[2, 5], &[2, 2]]),
        ("tensor_split_at", |x| x[0].tensor_split_at(&[1, 3], 0)[1].square(), &[&[5, 2]]),
        ("repeat_interleave_each", |x| x[0].repeat_interleave_each(&whole(&[2, 0, 3], &x[0]), 0).square(), &[&[3, 2]]),
        ("to_dtype", |x| x[0].to_dtype(DType::F64).square(), &[&[2, 3]]),
        ("matmul_to", |x| x[0].matmul_to(&x[1], DType::F64), &[&[2, 3], &[3, 2]]),
        (
            "dropout",
            |x| {
                x[0].device().seed(3);
                x[0].square().dropout(0.5)
            },
            &[&[4, 5]],
        ),
    ]
}

#[test]
fn every_gradient_agrees_with_differences() {
    let device = Device::reference();
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let suite = Suite::read(&root().join("testdata/conformance/ops")).unwrap();
    let by_name: HashMap<&str, &OpRecord> =
        records().flat_map(|record| record.torch.iter().map(move |&name| (name, record))).collect();
    let (mut files, mut used) = (HashMap::new(), HashMap::new());
    for case in suite.cases().unwrap() {
        let Some(&record) = by_name.get(case.op.as_str()).filter(|record| record.grad) else { continue };
        let used: &mut usize = used.entry(case.op.clone()).or_default();
        let is_altered = |(name, value): &(String, Value)| {
            ALTERING.contains(&name.as_str()) && !value.is_null() && *value != Value::Bool(false)
        };
        let is_point = !NOT_BY_CASES.iter().any(|(name, _)| *name == record.name) && !case.args.iter().any(is_altered);
        if case.grads.is_empty() || *used == POINTS || !is_point {
            continue;
        }
        let tensors =
            files.entry(case.file.clone()).or_insert_with(|| file::read(&suite.root.join(&case.file)).unwrap());
        if Point::of_case(&case, record, tensors, &device)
            .is_some_and(|point| found.entry(record.name).or_default().add(&case.id, &point))
        {
            *used += 1;
        }
    }
    for (name, f, shapes) in by_hand() {
        let at = shapes.iter().enumerate().map(|(i, shape)| noise(shape, i, (-1.0, 1.0), &device)).collect();
        let weighted = |x: &[Tensor]| {
            let y = f(x);
            Some((&y * noise(y.shape(), 9, (0.5, 1.5), y.device())).sum(()))
        };
        found.entry(name).or_default().add("by hand", &Point { f: Box::new(weighted), at });
    }
    for record in records().filter(|record| record.grad) {
        for operands in [2, 1] {
            if found.contains_key(record.name) {
                break;
            }
            let mut sampled = Found::default();
            if sampled.add("sampled", &Point::sampled(record, operands, &device)) {
                found.insert(record.name, sampled);
            }
        }
    }

    let mut complaints = Vec::new();
    for record in records().filter(|record| record.grad) {
        let found = found.remove(record.name).unwrap_or_default();
        complaints.extend(found.wrong.iter().map(|wrong| format!("{} {wrong}", record.name)));
        for (order, agreed) in ["first", "second"].into_iter().zip(found.agreed) {
            if agreed == 0 {
                complaints.push(format!("{}: no point of {order} order", record.name));
            }
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// What came of the points of an op.
#[derive(Default)]
struct Found {
    /// Points that agreed, by order.
    agreed: [usize; 2],
    wrong: Vec<String>,
}

impl Found {
    /// Tells whether the point said anything.
    fn add(&mut self, name: &str, point: &Point) -> bool {
        let verdicts = match catch_unwind(AssertUnwindSafe(|| point.verdicts())) {
            Ok(verdicts) => verdicts,
            Err(_) => {
                self.wrong.push(format!("{name}: panicked"));
                return true;
            }
        };
        for (order, verdict) in verdicts.iter().enumerate() {
            match verdict {
                Verdict::Agrees => self.agreed[order] += 1,
                Verdict::Differs { slope, gradient } => {
                    self.wrong.push(format!("{name}, order {}: slope {slope}, gradient {gradient}", order + 1));
                }
                Verdict::Rough => {}
            }
        }
        verdicts.iter().any(|verdict| *verdict != Verdict::Rough)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Agrees,
    Differs {
        slope: f64,
        gradient: f64,
    },
    /// The point is at a kink or a jump, or outside the domain.
    Rough,
}

/// None outside the domain.
type Function<'a> = Box<dyn Fn(&[Tensor]) -> Option<Tensor> + 'a>;

/// A function of tensors at a point: the sum of the op's outputs, weighted.
struct Point<'a> {
    f: Function<'a>,
    at: Vec<Tensor>,
}

impl<'a> Point<'a> {
    /// The point of a case, its floats in `f64`; none where it is large or where some result is of a dtype that the case names.
    fn of_case(case: &'a Case, record: &'a OpRecord, tensors: &'a Tensors, device: &'a Device) -> Option<Point<'a>> {
        let wide = |data: &Data| {
            let tensor = data.upload(device);
            if tensor.dtype().is_float() { tensor.to_dtype(DType::F64) } else { tensor }
        };
        let at: Vec<Tensor> = case.grads.iter().map(|grad| wide(&tensors[&grad.input])).collect();
        if at.iter().map(Tensor::numel).sum::<usize>() > LARGEST || at.iter().all(|x| x.numel() == 0) {
            return None;
        }
        let f = move |x: &[Tensor]| {
            let mut tensor = |name: &str| {
                let own = case.grads.iter().position(|grad| grad.input == name);
                Ok(own.map_or_else(|| wide(&tensors[name]), |i| x[i].clone()))
            };
            let named = case.args.iter().map(|(name, value)| Ok((name.clone(), argument(value, &mut tensor)?)));
            let args = Args::new(device, named.collect::<Result<_, String>>().unwrap());
            let outputs = (record.call)(&args).ok()?;
            let mut sum = Tensor::full((), 0.0, DType::F64, device);
            for (want, output) in case.outputs.iter().zip(outputs) {
                let Some(weights) = &want.cotangent else { continue };
                if output.dtype() != DType::F64 {
                    return None;
                }
                sum += (output * wide(&tensors[weights])).sum(());
            }
            Some(sum)
        };
        Some(Point { f: Box::new(f), at })
    }

    /// A call with tensors of the op's domain, all else at its default.
    fn sampled(record: &'a OpRecord, operands: usize, device: &'a Device) -> Point<'a> {
        let at = (0..operands).map(|i| noise(&[2, 3], i, record.domain, device)).collect();
        let f = move |x: &[Tensor]| {
            let named = ["input", "other"].iter().zip(x).map(|(name, x)| (name.to_string(), Arg::Tensor(x.clone())));
            let output = (record.call)(&Args::new(device, named.collect())).ok()?.swap_remove(0);
            let uses_all = output.dtype() == DType::F64;
            uses_all.then(|| (&output * noise(output.shape(), 9, (0.5, 1.5), device)).sum(()))
        };
        Point { f: Box::new(f), at }
    }

    /// First and second order, beside the point, or, if that is outside the domain, at it.
    fn verdicts(&self) -> [Verdict; 2] {
        let beside: Vec<Tensor> = self.random(1).iter().zip(&self.at).map(|(r, x)| x + r * 0.01).collect();
        let beside = self.verdicts_at(&beside);
        let at = if beside.contains(&Verdict::Rough) { self.verdicts_at(&self.at) } else { beside };
        std::array::from_fn(|order| if beside[order] == Verdict::Rough { at[order] } else { beside[order] })
    }

    fn verdicts_at(&self, at: &[Tensor]) -> [Verdict; 2] {
        let weights = self.random(3);
        let first = compare(&*self.f, at, &self.random(2));
        if first == Verdict::Rough {
            return [Verdict::Rough; 2];
        }
        let slope = |x: &[Tensor]| {
            let gradients = gradients(&(self.f)(x)?, x);
            let terms = gradients.iter().zip(&weights).map(|(gradient, weights)| (gradient * weights).sum(()));
            terms.reduce(|a, b| a + b)
        };
        [first, compare(&slope, at, &self.random(4))]
    }

    /// Random tensors like those of the point, symmetric where its matrices are: some ops read one triangle.
    fn random(&self, salt: usize) -> Vec<Tensor> {
        let random = |(i, x): (usize, &Tensor)| {
            let r = noise(x.shape(), 10 * salt + i, (-1.0, 1.0), x.device());
            let is_square = x.rank() >= 2 && x.shape()[x.rank() - 1] == x.shape()[x.rank() - 2];
            if is_square && x.allclose(&x.mt(), 1e-6, 1e-6, false).item::<bool>() { (&r + r.mt()) * 0.5 } else { r }
        };
        self.at.iter().enumerate().map(random).collect()
    }
}

/// Holds the gradient of `f` along `direction` against its slope.
fn compare(f: &dyn Fn(&[Tensor]) -> Option<Tensor>, at: &[Tensor], direction: &[Tensor]) -> Verdict {
    let value = |distance: f64| {
        let moved = at.iter().zip(direction).map(|(x, along)| (x + along * distance).requires_grad());
        f(&moved.collect::<Vec<_>>())?.detach().try_to_vec::<f64>().ok().map(|value| value[0])
    };
    let values = [-STEP, -STEP / 2.0, 0.0, STEP / 2.0, STEP].map(value);
    let [Some(a), Some(b), Some(middle), Some(c), Some(d)] = values else { return Verdict::Rough };
    let (outer, inner) = ((d - a) / (2.0 * STEP), (c - b) / STEP);
    // Richardson's extrapolation.
    let slope = (4.0 * inner - outer) / 3.0;

    let leaves: Vec<Tensor> = at.iter().map(|x| x.detach().requires_grad()).collect();
    let Some(y) = f(&leaves) else { return Verdict::Rough };
    let terms = gradients(&y, &leaves);
    let terms: Option<Vec<f64>> = terms
        .iter()
        .zip(direction)
        .flat_map(|(gradient, along)| match (gradient.detach() * along).try_to_vec::<f64>() {
            Ok(terms) => terms.into_iter().map(Some).collect(),
            Err(_) => vec![None],
        })
        .collect();
    let Some(terms) = terms else { return Verdict::Rough };
    let gradient: f64 = terms.iter().sum();
    let scale = terms.iter().map(|term| term.abs()).sum::<f64>().max(slope.abs()).max(1e-3);

    // Halving the step halves the bend of a smooth function, not that of a kink; at a jump the slopes disagree.
    let bend = |low: f64, high: f64, step: f64| ((high - middle) - (middle - low)).abs() / step;
    let is_kink = bend(b, c, STEP / 2.0) > 0.75 * bend(a, d, STEP) + 1e-6 * scale.max(middle.abs());
    let doubt = (outer - inner).abs();
    if !slope.is_finite() || is_kink || doubt > 1e-3 * scale {
        return Verdict::Rough;
    }
    if (slope - gradient).abs() <= 1e-5 * scale + 1e-9 * middle.abs() + doubt {
        Verdict::Agrees
    } else {
        Verdict::Differs { slope, gradient }
    }
}

/// Zeros where `y` does not depend on a leaf.
fn gradients(y: &Tensor, leaves: &[Tensor]) -> Vec<Tensor> {
    if !y.is_tracked() {
        return leaves.iter().map(Tensor::zeros_like).collect();
    }
    let found = grad_with(&[y], &leaves.iter().collect::<Vec<_>>(), &[&y.ones_like()]).unwrap();
    found.into_iter().zip(leaves).map(|(gradient, leaf)| gradient.unwrap_or_else(|| leaf.zeros_like())).collect()
}

/// Reproducible numbers of a range, none of them special.
fn noise(shape: &[usize], salt: usize, (low, high): (f64, f64), device: &Device) -> Tensor {
    let value = |i: usize| {
        let mut x =
            (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 29;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 32;
        low + (high - low) * (x >> 11) as f64 / (1u64 << 53) as f64
    };
    Tensor::from_vec((0..shape.iter().product()).map(value).collect::<Vec<f64>>(), shape, device)
}
