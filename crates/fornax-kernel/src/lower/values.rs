//! Values of fused kernels: how each op of a plan is computed in the kernel IR, and how reductions fold.
//!
//! `f16` and `bf16` are converted to `f32` for arithmetic and rounded after every op, so that a fused chain has the bits of
//! the unfused one; loads, choices and stores keep their bits.

use super::maker::Maker;
use crate::ir::{Builder, Val};
use fornax_compile::ValueOp;
use fornax_ir::{BinaryOp, DType, ReduceOp};

/// Computes `op` of `operands`. Loads and the like are for the caller.
pub(crate) fn compute(b: &mut Builder, op: &ValueOp, dtype: DType, operands: &[Val]) -> Val {
    let wide = |b: &mut Builder, value: Val| {
        let compute = b.dtype(value).compute();
        b.cast(value, compute)
    };
    match (op, operands) {
        (ValueOp::Unary(op, _), &[a]) => {
            let a = wide(b, a);
            let result = b.unary(*op, a);
            b.cast(result, dtype)
        }
        (ValueOp::Binary(op, ..), &[x, y]) => {
            let (x, y) = (wide(b, x), wide(b, y));
            let result = b.binary(*op, x, y);
            b.cast(result, dtype)
        }
        (ValueOp::Compare(op, ..), &[x, y]) => {
            let (x, y) = (wide(b, x), wide(b, y));
            b.compare(*op, x, y)
        }
        (ValueOp::Select(..), &[c, x, y]) => b.select(c, x, y),
        (ValueOp::Cast(_), &[a]) => b.cast(a, dtype),
        (ValueOp::Bitcast(_), &[a]) => b.bitcast(a, dtype),
        _ => unreachable!("other values are not computed from operands"),
    }
}

/// The integer division whose divisor must not be 0.
pub(crate) fn divides(op: &ValueOp, dtype: DType) -> bool {
    matches!(op, ValueOp::Binary(BinaryOp::Div | BinaryOp::Rem, ..)) && !dtype.is_float()
}

/// Random bits: the word at place `i` under `seed` and `offset`, or the four words from there on if `i` is a multiple of 4.
pub(crate) fn random(m: &mut Maker, seed: Val, offset: Val, i: Val, lanes: usize) -> Vec<Val> {
    let place = m.b.cast(i, DType::U64);
    let two = m.b.int(DType::U64, 2);
    let block = m.b.binary(BinaryOp::Shr, place, two);
    let counter = m.b.add(offset, block);
    let halves = |m: &mut Maker, value: Val| {
        let width = m.b.int(DType::U64, 32);
        let high = m.b.binary(BinaryOp::Shr, value, width);
        [m.b.cast(value, DType::U32), m.b.cast(high, DType::U32)]
    };
    let zero = m.b.int(DType::U32, 0);
    let [low, high] = halves(m, counter);
    let key = halves(m, seed);
    let words = philox(&mut m.b, [low, high, zero, zero], key);
    if lanes == 4 {
        return words.to_vec();
    }
    let three = m.b.int(DType::U64, 3);
    let word = m.b.and(place, three);
    let mut result = words[0];
    for (k, &other) in words.iter().enumerate().skip(1) {
        let number = m.b.int(DType::U64, k as i64);
        let here = m.b.eq(word, number);
        result = m.b.select(here, other, result);
    }
    vec![result]
}

/// Philox4x32-10, see [`fornax_ir::philox4x32`].
fn philox(b: &mut Builder, counter: [Val; 4], key: [Val; 2]) -> [Val; 4] {
    let multipliers = [0xD251_1F53, 0xCD9E_8D57].map(|word| b.int(DType::U32, word));
    let weyl = [0x9E37_79B9, 0xBB67_AE85].map(|word| b.int(DType::U32, word));
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let low = [b.mul(multipliers[0], c[0]), b.mul(multipliers[1], c[2])];
        let high = [b.mul_high(multipliers[0], c[0]), b.mul_high(multipliers[1], c[2])];
        let mut mix = |x: Val, y: Val, z: Val| {
            let xy = b.binary(BinaryOp::Xor, x, y);
            b.binary(BinaryOp::Xor, xy, z)
        };
        c = [mix(high[1], c[1], k[0]), low[1], mix(high[0], c[3], k[1]), low[0]];
        k = [b.add(k[0], weyl[0]), b.add(k[1], weyl[1])];
    }
    c
}

/// What a reduction keeps while it runs: a total and, for searches, where it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub value: Val,
    pub at: Option<Val>,
}

impl Total {
    pub fn parts(self) -> impl Iterator<Item = Val> {
        [Some(self.value), self.at].into_iter().flatten()
    }

    pub fn from_parts(parts: &[Val]) -> Total {
        Total { value: parts[0], at: parts.get(1).copied() }
    }
}

/// How a reduction of elements of `dtype` folds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    pub op: ReduceOp,
    /// The dtype of totals.
    pub dtype: DType,
    /// The dtype of places.
    pub index: DType,
}

impl Fold {
    pub fn new(op: ReduceOp, input: DType, index: DType) -> Fold {
        Fold { op, dtype: input.compute(), index }
    }

    pub fn searches(&self) -> bool {
        matches!(self.op, ReduceOp::ArgMax | ReduceOp::ArgMin)
    }

    /// The dtypes of a total's parts.
    pub fn dtypes(&self) -> Vec<DType> {
        if self.searches() { vec![self.dtype, self.index] } else { vec![self.dtype] }
    }

    /// The total of nothing.
    pub fn start(&self, b: &mut Builder) -> Total {
        let dtype = self.dtype;
        let (least, most) = limits(dtype);
        let value = match self.op {
            ReduceOp::Sum => b.number(dtype, 0),
            ReduceOp::Prod => b.number(dtype, 1),
            ReduceOp::Max | ReduceOp::ArgMax => b.constant(dtype, least),
            ReduceOp::Min | ReduceOp::ArgMin => b.constant(dtype, most),
        };
        let (_, last) = limits(self.index);
        Total { value, at: self.searches().then(|| b.constant(self.index, last)) }
    }

    /// The total of one element.
    pub fn element(&self, b: &mut Builder, value: Val, at: Val) -> Total {
        Total { value: b.cast(value, self.dtype), at: self.searches().then_some(at) }
    }

    /// The total of two.
    pub fn join(&self, b: &mut Builder, x: Total, y: Total) -> Total {
        let op = match self.op {
            ReduceOp::Sum => BinaryOp::Add,
            ReduceOp::Prod => BinaryOp::Mul,
            ReduceOp::Max => BinaryOp::Max,
            ReduceOp::Min => BinaryOp::Min,
            ReduceOp::ArgMax | ReduceOp::ArgMin => return self.search(b, x, y),
        };
        Total { value: b.binary(op, x.value, y.value), at: None }
    }

    /// The better of two; NaN is better than all else, the lower place decides between equals.
    fn search(&self, b: &mut Builder, x: Total, y: Total) -> Total {
        let (Some(x_at), Some(y_at)) = (x.at, y.at) else { unreachable!("searches keep places") };
        let beats = match self.op {
            ReduceOp::ArgMin => b.lt(y.value, x.value),
            _ => b.lt(x.value, y.value),
        };
        let equal = b.eq(x.value, y.value);
        let (beats, equal) = match self.dtype.is_float() {
            false => (beats, equal),
            true => {
                let (x_number, y_number) = (b.eq(x.value, x.value), b.eq(y.value, y.value));
                let (x_nan, y_nan) = (b.not(x_number), b.not(y_number));
                let first_nan = b.and(x_number, y_nan);
                let both_nan = b.and(x_nan, y_nan);
                (b.or(beats, first_nan), b.or(equal, both_nan))
            }
        };
        let lower = b.lt(y_at, x_at);
        let first = b.and(equal, lower);
        let take = b.or(beats, first);
        Total { value: b.select(take, y.value, x.value), at: Some(b.select(take, y_at, x_at)) }
    }

    /// The result, as an element of `dtype`.
    pub fn finish(&self, b: &mut Builder, total: Total, dtype: DType) -> Val {
        b.cast(total.at.unwrap_or(total.value), dtype)
    }
}

/// The bits of the least and the largest value.
pub(crate) fn limits(dtype: DType) -> (u64, u64) {
    let (mask, bits) = (fornax_ir::bits::mask(dtype), 8 * dtype.size());
    match dtype {
        DType::Bool => (0, 1),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, mask),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (1 << (bits - 1), mask >> 1),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            let infinity = |x: f64| fornax_ir::bits::from_float(dtype, x);
            (infinity(f64::NEG_INFINITY), infinity(f64::INFINITY))
        }
    }
}
