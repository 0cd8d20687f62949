//! [`World`]: a graph with everything known about its values: what they are, whether they are the same on every device,
//! and what becomes of them when roundings on the way fall differently.

use super::Tolerance;
use crate::interp::{self, value::Number, value::Numbers, value::Value};
use crate::{BinaryOp, DType, Graph, Node, NodeId, Op, ReduceOp, ScanOp, ScatterMode, UnaryOp, random_word};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Disturbed runs.
const RUNS: usize = 8;

pub(super) struct World {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<Vec<u8>>,
    known: Vec<Known>,
    /// Tells worlds with other disturbances apart.
    salt: u64,
}

/// What is known of a node.
struct Known {
    value: Value,
    disturbed: [Value; RUNS],
    /// Every device must give these very numbers.
    exact: bool,
    /// Data was wrong, in some run.
    faulty: bool,
}

impl World {
    pub(super) fn new(inputs: Vec<Vec<u8>>) -> World {
        World { graph: Graph::default(), inputs, known: Vec::new(), salt: 0 }
    }

    /// Adds a node that verifies.
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        let operands = |run: Option<usize>| -> SmallVec<[&Value; 3]> {
            let known = node.inputs.iter().map(|id| &self.known[id.idx()]);
            known.map(|known| run.map_or(&known.value, |run| &known.disturbed[run])).collect()
        };
        let mut fault = None;
        let value = interp::run(&node, &operands(None), &self.inputs, &mut fault);
        let inputs_exact = node.inputs.iter().all(|id| self.known[id.idx()].exact);
        let exact = inputs_exact && keeps_exact(&node, &operands(None));
        let disturbed = core::array::from_fn(|run| match exact {
            true => value.clone(),
            false => {
                disturb(&node, &operands(Some(run)), self.salt + (self.known.len() * RUNS + run) as u64, &mut fault)
            }
        });
        self.known.push(Known { value, disturbed, exact, faulty: fault.is_some() });
        self.graph.push_node(node)
    }

    /// Takes the last node back.
    pub(super) fn pop(&mut self) {
        self.graph.nodes.pop();
        self.known.pop();
    }

    pub(super) fn exact(&self, id: NodeId) -> bool {
        self.known[id.idx()].exact
    }

    pub(super) fn faulty(&self, id: NodeId) -> bool {
        self.known[id.idx()].faulty
    }

    pub(super) fn value(&self, id: NodeId) -> &Value {
        &self.known[id.idx()].value
    }

    /// Whether a product might overflow on its way, in some order, though not in the end.
    pub(super) fn may_overflow(&self, id: NodeId) -> bool {
        let node = &self.graph[id];
        let multiplies = matches!(
            node.op,
            Op::Reduce { op: ReduceOp::Prod, .. }
                | Op::Scan { op: ScanOp::Prod, .. }
                | Op::Scatter { mode: ScatterMode::Mul, .. }
        );
        if !multiplies || !node.dtype.is_float() {
            return false;
        }
        let growing: Vec<Value> = node.inputs.iter().map(|id| map(self.value(*id), |x| x.abs().max(1.0))).collect();
        let growing: SmallVec<[&Value; 3]> = growing.iter().collect();
        let no_inputs: &[Vec<u8>] = &[];
        let product = interp::run(node, &growing, no_inputs, &mut None);
        product.floats().iter().any(|x| !x.is_finite())
    }

    pub(super) fn tolerance(&self, id: NodeId) -> Tolerance {
        let known = &self.known[id.idx()];
        let (Numbers::Floats(value), false) = (known.value.numbers(), known.exact) else {
            return Tolerance::Exact;
        };
        let mut spread = alloc::vec![0.0f64; value.len()];
        for disturbed in &known.disturbed {
            for (spread, (a, b)) in spread.iter_mut().zip(value.iter().zip(disturbed.floats())) {
                let same = *a == b || (a.is_nan() && b.is_nan());
                let off = if same { 0.0 } else { (a - b).abs() };
                *spread = if off.is_nan() { f64::INFINITY } else { spread.max(off) };
            }
        }
        // Some elements stay where they were by chance: none is trusted more than the ordinary one that moved, by size
        // and by ratio, or than a few units in the last place.
        let moved = || spread.iter().zip(&value).filter(|(spread, _)| **spread > 0.0);
        let size = median(moved().map(|(spread, _)| *spread));
        let ratio = median(moved().map(|(spread, value)| spread / value.abs())).max(epsilon(known.value.dtype));
        // Inputs are around 1; what is that much smaller than their roundings is what cancellation left.
        let smallest = epsilon(known.value.dtype) / 128.0;
        // How much further than the disturbed runs a device may be off. Halves have no room for more.
        let margin = if is_half(known.value.dtype) { 6.0 } else { 8.0 };
        let tolerance = |(spread, value): (&f64, &f64)| {
            let ordinary = if value.is_finite() { size.max(ratio * value.abs()) } else { 0.0 };
            smallest + margin * spread.max(ordinary)
        };
        Tolerance::Elements(spread.iter().zip(&value).map(tolerance).collect())
    }
}

/// 0 for nothing.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

fn is_half(dtype: DType) -> bool {
    dtype.compute() != dtype
}

/// The distance of 1 from the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => libm::exp2(-10.0),
        DType::BF16 => libm::exp2(-7.0),
        DType::F32 => libm::exp2(-23.0),
        _ => f64::EPSILON,
    }
}

/// Whether exact operands give an exact result: it is the same in every order of work and with every contraction.
fn keeps_exact(node: &Node, operands: &[&Value]) -> bool {
    let grain = |i: usize| Grain::of(operands[i]);
    let longest = operands.iter().map(|operand| operand.shape.numel()).max().unwrap_or(0);
    let fits = |grain: Grain| !node.dtype.is_float() || grain.fits(node.dtype);
    match &node.op {
        Op::Unary(op) => match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Not => true,
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => true,
            UnaryOp::Recip | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Expm1 => false,
            UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tanh => false,
            UnaryOp::Erf => false,
        },
        Op::Binary(op) => match op {
            BinaryOp::Add | BinaryOp::Sub => fits(grain(0).sum(grain(1))),
            BinaryOp::Mul => fits(grain(0).product(grain(1))),
            BinaryOp::Div | BinaryOp::Pow | BinaryOp::Atan2 => !node.dtype.is_float(),
            BinaryOp::Rem => fits(grain(0)) && fits(grain(1)),
            BinaryOp::Max | BinaryOp::Min => true,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => true,
        },
        Op::Reduce { op, .. } => match op {
            ReduceOp::Sum => fits(grain(0).times(longest)),
            ReduceOp::Prod => fits(grain(0).power(longest / node.shape.numel().max(1))),
            ReduceOp::Max | ReduceOp::Min | ReduceOp::ArgMax | ReduceOp::ArgMin => true,
        },
        Op::Scan { op, dim } => match op {
            ScanOp::Sum => fits(grain(0).times(longest)),
            ScanOp::Prod => fits(grain(0).power(node.shape[*dim])),
            ScanOp::Max | ScanOp::Min => true,
        },
        Op::Scatter { mode, .. } => match mode {
            ScatterMode::Set | ScatterMode::Max | ScatterMode::Min => true,
            ScatterMode::Add => fits(grain(0).sum(grain(2).times(longest))),
            ScatterMode::Mul => fits(grain(0).product(grain(2).power(longest))),
        },
        Op::Matmul { .. } | Op::Conv(_) => fits(grain(0).product(grain(1)).times(longest)),
        Op::Fold(_) => fits(grain(0).times(longest)),
        Op::Fft { .. } | Op::Linalg(_) => false,
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => true,
        Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_) => true,
        Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. } | Op::Pad { .. } | Op::Concat { .. } => true,
        Op::Window(_) | Op::ArgSort { .. } | Op::TopK { .. } | Op::Gather { .. } => true,
    }
}

/// All finite elements are multiples of `2^-bits` and at most `max` in size.
#[derive(Clone, Copy)]
struct Grain {
    bits: f64,
    max: f64,
}

impl Grain {
    fn of(value: &Value) -> Grain {
        let Numbers::Floats(floats) = value.numbers() else {
            return Grain { bits: 0.0, max: 0.0 };
        };
        let finite = floats.into_iter().filter(|x| x.is_finite() && *x != 0.0);
        finite.fold(Grain { bits: 0.0, max: 0.0 }, |grain, x| {
            // Subnormals of f64 count as if they had an exponent of their own: far too fine in any case.
            let bits = x.to_bits();
            let exponent = (bits >> 52 & 0x7FF) as i32 - 1075;
            let fraction = bits & ((1 << 52) - 1) | 1 << 52;
            let finest = f64::from(-(exponent + fraction.trailing_zeros() as i32));
            Grain { bits: grain.bits.max(finest), max: grain.max.max(x.abs()) }
        })
    }

    fn sum(self, other: Grain) -> Grain {
        Grain { bits: self.bits.max(other.bits), max: self.max + other.max }
    }

    fn product(self, other: Grain) -> Grain {
        Grain { bits: self.bits + other.bits, max: self.max * other.max }
    }

    fn times(self, n: usize) -> Grain {
        Grain { max: self.max * n as f64, ..self }
    }

    fn power(self, n: usize) -> Grain {
        Grain { bits: self.bits * n as f64, max: libm::pow(self.max.max(1.0), n as f64) }
    }

    /// Whether every such number is an element of `dtype`.
    fn fits(self, dtype: DType) -> bool {
        self.max * libm::exp2(self.bits) <= 1.0 / epsilon(dtype)
    }
}

/// The node's value on disturbed operands, disturbed itself where it rounds.
fn disturb(node: &Node, operands: &[&Value], seed: u64, fault: &mut Option<alloc::string::String>) -> Value {
    let no_inputs: &[Vec<u8>] = &[];
    // From −1 to 1 without gaps, so that two errors hardly cancel in all runs.
    let mut shares = (0..).map(|i| f64::from(random_word(seed, 0, i)) / f64::from(u32::MAX) * 2.0 - 1.0);
    let mut jitter = |value: &Value, amplitudes: &mut dyn Iterator<Item = f64>| {
        let floats: Vec<f64> = value
            .floats()
            .into_iter()
            .zip(amplitudes)
            .map(|(x, amplitude)| {
                let share = shares.next().expect("the stream has no end");
                if x.is_finite() && amplitude.is_finite() { x + share * amplitude } else { x }
            })
            .collect();
        Value::from_floats(value.dtype, &value.shape, &floats)
    };
    // Factorizations are backward stable: what they do amounts to a small change of the matrix.
    if let Op::Linalg(_) = node.op {
        let changed: Vec<Value> = operands
            .iter()
            .map(|operand| {
                let size = *operand.shape.last().unwrap_or(&1) as f64;
                let amplitude = 4.0 * size * epsilon(operand.dtype) * max_abs(operand);
                jitter(operand, &mut core::iter::repeat(amplitude))
            })
            .collect();
        let changed: SmallVec<[&Value; 3]> = changed.iter().collect();
        return interp::run(node, &changed, no_inputs, fault);
    }
    let value = interp::run(node, operands, no_inputs, fault);
    if !node.dtype.is_float() {
        return value;
    }
    // One unit in the last place of a half, four of wider floats: what functions may be off.
    let ulps = if is_half(node.dtype) { 1.0 } else { 4.0 };
    let relative = ulps * epsilon(node.dtype);
    let own = value.floats().into_iter().map(|x| relative * x.abs());
    match accumulates(&node.op) {
        Rounding::Never => value,
        Rounding::Once => jitter(&value, &mut own.collect::<Vec<_>>().into_iter()),
        Rounding::ManyTimes => {
            // Errors of a sum grow with the size of its terms, not of itself.
            let sizes: Vec<Value> = operands.iter().map(|operand| map(operand, f64::abs)).collect();
            let sizes: SmallVec<[&Value; 3]> = sizes.iter().collect();
            let sizes = interp::run(node, &sizes, no_inputs, fault);
            let n = operands.iter().map(|operand| operand.shape.numel()).max().unwrap_or(1) as f64;
            let growth = epsilon(node.dtype.compute()) * (libm::sqrt(n) + 4.0);
            // The terms of a transform cancel in most elements, so that only the largest tells their size.
            let largest = if let Op::Fft { .. } = node.op { max_abs(&sizes) } else { 0.0 };
            let terms = sizes.floats().into_iter().map(|x| growth * x.abs().max(largest));
            jitter(&value, &mut own.zip(terms).map(|(own, terms)| own + terms).collect::<Vec<_>>().into_iter())
        }
    }
}

enum Rounding {
    Never,
    Once,
    ManyTimes,
}

fn accumulates(op: &Op) -> Rounding {
    match op {
        Op::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Not) => Rounding::Never,
        Op::Unary(UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round) => Rounding::Never,
        Op::Binary(BinaryOp::Max | BinaryOp::Min) => Rounding::Never,
        Op::Unary(_) | Op::Binary(_) | Op::Cast(_) => Rounding::Once,
        Op::Reduce { op: ReduceOp::Sum | ReduceOp::Prod, .. } => Rounding::ManyTimes,
        Op::Scan { op: ScanOp::Sum | ScanOp::Prod, .. } => Rounding::ManyTimes,
        Op::Scatter { mode: ScatterMode::Add | ScatterMode::Mul, .. } => Rounding::ManyTimes,
        Op::Matmul { .. } | Op::Conv(_) | Op::Fold(_) | Op::Fft { .. } => Rounding::ManyTimes,
        Op::Reduce { .. } | Op::Scan { .. } | Op::Scatter { .. } | Op::Linalg(_) => Rounding::Never,
        Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. } => Rounding::Never,
        Op::Compare(_) | Op::Select | Op::Bitcast(_) => Rounding::Never,
        Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. } | Op::Pad { .. } | Op::Concat { .. } => {
            Rounding::Never
        }
        Op::Window(_) | Op::ArgSort { .. } | Op::TopK { .. } | Op::Gather { .. } => Rounding::Never,
    }
}

/// Floats changed; indices are left alone.
fn map(value: &Value, change: impl Fn(f64) -> f64) -> Value {
    match value.numbers() {
        Numbers::Floats(floats) => {
            f64::into_value(value.dtype, &value.shape, &floats.into_iter().map(change).collect::<Vec<_>>())
        }
        Numbers::Ints(_) => value.clone(),
    }
}

/// The largest finite absolute value.
pub(super) fn max_abs(value: &Value) -> f64 {
    match value.numbers() {
        Numbers::Floats(floats) => floats.into_iter().filter(|x| x.is_finite()).fold(0.0, |max, x| max.max(x.abs())),
        Numbers::Ints(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{case, compare};

    /// What other disturbances of the same size do stays within tolerance, and integers and `bool`s do not move at all.
    #[test]
    fn tolerances_cover_devices_that_round_otherwise() {
        for seed in 0..300 {
            let (graph, inputs) = case(seed);
            let worlds = [0, 1 << 40, 2 << 40, 3 << 40].map(|salt| {
                let mut world = World { salt, ..World::new(inputs.clone()) };
                for node in &graph.nodes {
                    world.add(node.clone());
                }
                world
            });
            for &id in &graph.outputs {
                let (node, want, tolerance) = (&graph[id], worlds[0].value(id), worlds[0].tolerance(id));
                let devices = worlds[1..].iter().flat_map(|world| &world.known[id.idx()].disturbed);
                for device in devices {
                    let off = compare(node.dtype, &device.data, &want.data, &tolerance);
                    assert_eq!(off, None, "seed {seed}, %{}\n{graph}", id.0);
                }
            }
        }
    }
}
