//! Which micro-op does an op on a dtype.

use super::micro::{self, Float, Half, Int, Map1, Map2, Micro, Num, Tile, TileTile, TileUniform, UniformTile, pick};
use crate::simd::Isa;
use fornax_ir::{BinaryOp, CompareOp, DType, ReduceOp, UnaryOp};
use half::{bf16, f16};

/// How a register holds an element of `dtype`: its size in bytes.
pub(crate) fn register_size(dtype: DType) -> usize {
    match dtype {
        DType::F16 | DType::BF16 => 4,
        other => other.size(),
    }
}

/// Whether elements of `dtype` lie in memory as registers hold them.
pub(crate) fn is_plain(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

/// Which operands of a micro-op are one element for all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    None,
    First,
    Second,
}

pub(crate) fn unary(op: UnaryOp, dtype: DType, isa: Isa) -> Micro {
    fn float<T: Float>(op: UnaryOp, isa: Isa) -> Micro {
        match op {
            UnaryOp::Neg => pick::<Tile<micro::Neg<T>>>(isa),
            UnaryOp::Abs => pick::<Tile<micro::Abs<T>>>(isa),
            UnaryOp::Sign => pick::<Tile<micro::Sign<T>>>(isa),
            UnaryOp::Recip => pick::<Tile<micro::Recip<T>>>(isa),
            UnaryOp::Sqrt => pick::<Tile<micro::Sqrt<T>>>(isa),
            UnaryOp::Rsqrt => pick::<Tile<micro::Rsqrt<T>>>(isa),
            UnaryOp::Exp => pick::<Tile<micro::Exp<T>>>(isa),
            UnaryOp::Exp2 => pick::<Tile<micro::Exp2<T>>>(isa),
            UnaryOp::Expm1 => pick::<Tile<micro::Expm1<T>>>(isa),
            UnaryOp::Log => pick::<Tile<micro::Log<T>>>(isa),
            UnaryOp::Log2 => pick::<Tile<micro::Log2<T>>>(isa),
            UnaryOp::Log1p => pick::<Tile<micro::Log1p<T>>>(isa),
            UnaryOp::Sin => pick::<Tile<micro::Sin<T>>>(isa),
            UnaryOp::Cos => pick::<Tile<micro::Cos<T>>>(isa),
            UnaryOp::Tanh => pick::<Tile<micro::Tanh<T>>>(isa),
            UnaryOp::Erf => pick::<Tile<micro::Erf<T>>>(isa),
            UnaryOp::Floor => pick::<Tile<micro::Floor<T>>>(isa),
            UnaryOp::Ceil => pick::<Tile<micro::Ceil<T>>>(isa),
            UnaryOp::Trunc => pick::<Tile<micro::Trunc<T>>>(isa),
            UnaryOp::Round => pick::<Tile<micro::Round<T>>>(isa),
            UnaryOp::Not => unreachable!("not takes no floats"),
        }
    }
    fn half<H: Half>(op: UnaryOp, isa: Isa) -> Micro {
        fn rounded<F: Map1<X = f32, Y = f32>, H: Half>(isa: Isa) -> Micro {
            pick::<Tile<micro::Rounded<F, H>>>(isa)
        }
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => float::<f32>(op, isa),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => float::<f32>(op, isa),
            UnaryOp::Recip => rounded::<micro::Recip<f32>, H>(isa),
            UnaryOp::Sqrt => rounded::<micro::Sqrt<f32>, H>(isa),
            UnaryOp::Rsqrt => rounded::<micro::Rsqrt<f32>, H>(isa),
            UnaryOp::Exp => rounded::<micro::Exp<f32>, H>(isa),
            UnaryOp::Exp2 => rounded::<micro::Exp2<f32>, H>(isa),
            UnaryOp::Expm1 => rounded::<micro::Expm1<f32>, H>(isa),
            UnaryOp::Log => rounded::<micro::Log<f32>, H>(isa),
            UnaryOp::Log2 => rounded::<micro::Log2<f32>, H>(isa),
            UnaryOp::Log1p => rounded::<micro::Log1p<f32>, H>(isa),
            UnaryOp::Sin => rounded::<micro::Sin<f32>, H>(isa),
            UnaryOp::Cos => rounded::<micro::Cos<f32>, H>(isa),
            UnaryOp::Tanh => rounded::<micro::Tanh<f32>, H>(isa),
            UnaryOp::Erf => rounded::<micro::Erf<f32>, H>(isa),
            UnaryOp::Not => unreachable!("not takes no floats"),
        }
    }
    fn int<T: Int>(op: UnaryOp, isa: Isa) -> Micro {
        match op {
            UnaryOp::Neg => pick::<Tile<micro::Neg<T>>>(isa),
            UnaryOp::Abs => pick::<Tile<micro::Abs<T>>>(isa),
            UnaryOp::Sign => pick::<Tile<micro::Sign<T>>>(isa),
            UnaryOp::Not => pick::<Tile<micro::NotInt<T>>>(isa),
            _ => unreachable!("{} takes no integers", op.name()),
        }
    }
    match dtype {
        DType::Bool => pick::<Tile<micro::NotBool>>(isa),
        DType::U8 => int::<u8>(op, isa),
        DType::U16 => int::<u16>(op, isa),
        DType::U32 => int::<u32>(op, isa),
        DType::U64 => int::<u64>(op, isa),
        DType::I8 => int::<i8>(op, isa),
        DType::I16 => int::<i16>(op, isa),
        DType::I32 => int::<i32>(op, isa),
        DType::I64 => int::<i64>(op, isa),
        DType::F16 => half::<f16>(op, isa),
        DType::BF16 => half::<bf16>(op, isa),
        DType::F32 => float::<f32>(op, isa),
        DType::F64 => float::<f64>(op, isa),
    }
}

/// Whether `op` on `dtype` has micro-ops with one uniform operand.
pub(crate) fn takes_uniform(op: BinaryOp, dtype: DType) -> bool {
    dtype.is_float() && !matches!(op, BinaryOp::Rem | BinaryOp::Pow | BinaryOp::Atan2)
}

fn by_kinds<F: Map2>(kinds: Kinds, isa: Isa) -> Micro {
    match kinds {
        Kinds::None => pick::<TileTile<F>>(isa),
        Kinds::First => pick::<UniformTile<F>>(isa),
        Kinds::Second => pick::<TileUniform<F>>(isa),
    }
}

pub(crate) fn binary(op: BinaryOp, dtype: DType, kinds: Kinds, isa: Isa) -> Micro {
    fn float<T: Float>(op: BinaryOp, kinds: Kinds, isa: Isa) -> Micro {
        match op {
            BinaryOp::Add => by_kinds::<micro::Add<T>>(kinds, isa),
            BinaryOp::Sub => by_kinds::<micro::Sub<T>>(kinds, isa),
            BinaryOp::Mul => by_kinds::<micro::Mul<T>>(kinds, isa),
            BinaryOp::Div => by_kinds::<micro::Div<T>>(kinds, isa),
            BinaryOp::Max => by_kinds::<micro::Max<T>>(kinds, isa),
            BinaryOp::Min => by_kinds::<micro::Min<T>>(kinds, isa),
            BinaryOp::Rem => pick::<TileTile<micro::Rem<T>>>(isa),
            BinaryOp::Pow => pick::<TileTile<micro::Pow<T>>>(isa),
            BinaryOp::Atan2 => pick::<TileTile<micro::Atan2<T>>>(isa),
            _ => unreachable!("{} takes no floats", op.name()),
        }
    }
    fn half<H: Half>(op: BinaryOp, kinds: Kinds, isa: Isa) -> Micro {
        match op {
            BinaryOp::Add => by_kinds::<micro::Rounded<micro::Add<f32>, H>>(kinds, isa),
            BinaryOp::Sub => by_kinds::<micro::Rounded<micro::Sub<f32>, H>>(kinds, isa),
            BinaryOp::Mul => by_kinds::<micro::Rounded<micro::Mul<f32>, H>>(kinds, isa),
            BinaryOp::Div => by_kinds::<micro::Rounded<micro::Div<f32>, H>>(kinds, isa),
            BinaryOp::Max | BinaryOp::Min => float::<f32>(op, kinds, isa),
            BinaryOp::Rem => pick::<TileTile<micro::Rounded<micro::Rem<f32>, H>>>(isa),
            BinaryOp::Pow => pick::<TileTile<micro::Rounded<micro::Pow<f32>, H>>>(isa),
            BinaryOp::Atan2 => pick::<TileTile<micro::Rounded<micro::Atan2<f32>, H>>>(isa),
            _ => unreachable!("{} takes no floats", op.name()),
        }
    }
    fn int<T: Int>(op: BinaryOp, isa: Isa) -> Micro {
        match op {
            BinaryOp::Add => pick::<TileTile<micro::Add<T>>>(isa),
            BinaryOp::Sub => pick::<TileTile<micro::Sub<T>>>(isa),
            BinaryOp::Mul => pick::<TileTile<micro::Mul<T>>>(isa),
            BinaryOp::Div => pick::<micro::Checked<micro::DivInt<T>>>(isa),
            BinaryOp::Rem => pick::<micro::Checked<micro::RemInt<T>>>(isa),
            BinaryOp::Pow => pick::<TileTile<micro::PowInt<T>>>(isa),
            BinaryOp::Max => pick::<TileTile<micro::Max<T>>>(isa),
            BinaryOp::Min => pick::<TileTile<micro::Min<T>>>(isa),
            BinaryOp::And => pick::<TileTile<micro::And<T>>>(isa),
            BinaryOp::Or => pick::<TileTile<micro::Or<T>>>(isa),
            BinaryOp::Xor => pick::<TileTile<micro::Xor<T>>>(isa),
            BinaryOp::Shl => pick::<TileTile<micro::Shl<T>>>(isa),
            BinaryOp::Shr => pick::<TileTile<micro::Shr<T>>>(isa),
            BinaryOp::Atan2 => unreachable!("atan2 takes no integers"),
        }
    }
    match dtype {
        // Bytes of 0 and 1: or and and are also maximum and minimum, addition and multiplication.
        DType::Bool => match op {
            BinaryOp::Add | BinaryOp::Or | BinaryOp::Max => int::<u8>(BinaryOp::Or, isa),
            BinaryOp::Mul | BinaryOp::And | BinaryOp::Min => int::<u8>(BinaryOp::And, isa),
            _ => int::<u8>(op, isa),
        },
        DType::U8 => int::<u8>(op, isa),
        DType::U16 => int::<u16>(op, isa),
        DType::U32 => int::<u32>(op, isa),
        DType::U64 => int::<u64>(op, isa),
        DType::I8 => int::<i8>(op, isa),
        DType::I16 => int::<i16>(op, isa),
        DType::I32 => int::<i32>(op, isa),
        DType::I64 => int::<i64>(op, isa),
        DType::F16 => half::<f16>(op, kinds, isa),
        DType::BF16 => half::<bf16>(op, kinds, isa),
        DType::F32 => float::<f32>(op, kinds, isa),
        DType::F64 => float::<f64>(op, kinds, isa),
    }
}

/// The first of two ops of a superinstruction, on `f32` tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    op: BinaryOp,
    /// Whether the second operand is one element for all lanes.
    uniform: bool,
}

impl First {
    /// `op` with operands of these kinds, if superinstructions begin so; and whether its operands must change places.
    pub fn new(op: BinaryOp, kinds: Kinds) -> Option<(First, bool)> {
        match (op, kinds) {
            (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, Kinds::None) => Some((First { op, uniform: false }, false)),
            (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, Kinds::Second) => {
                Some((First { op, uniform: true }, false))
            }
            (BinaryOp::Add | BinaryOp::Mul, Kinds::First) => Some((First { op, uniform: true }, true)),
            _ => None,
        }
    }
}

/// `op` on the result of `first` (its left operand, or its right one if `flip`) and a third operand, which may be
/// `uniform`.
pub(crate) fn pair(first: First, op: BinaryOp, flip: bool, uniform: bool, isa: Isa) -> Option<Micro> {
    use micro::{Add, All, Each, Flip, Max, Mul, Pair, Sub};
    fn reach<F: Map2<X = f32, Y = f32>, G: Map2<X = f32>>(b: bool, c: bool, isa: Isa) -> Micro {
        match (b, c) {
            (false, false) => pick::<Pair<F, G, Each<f32>, Each<f32>>>(isa),
            (false, true) => pick::<Pair<F, G, Each<f32>, All<f32>>>(isa),
            (true, false) => pick::<Pair<F, G, All<f32>, Each<f32>>>(isa),
            (true, true) => pick::<Pair<F, G, All<f32>, All<f32>>>(isa),
        }
    }
    fn second<F: Map2<X = f32, Y = f32>>(op: BinaryOp, flip: bool, b: bool, c: bool, isa: Isa) -> Option<Micro> {
        Some(match (op, flip) {
            (BinaryOp::Add, _) => reach::<F, Add<f32>>(b, c, isa),
            (BinaryOp::Mul, _) => reach::<F, Mul<f32>>(b, c, isa),
            (BinaryOp::Sub, false) => reach::<F, Sub<f32>>(b, c, isa),
            (BinaryOp::Sub, true) => reach::<F, Flip<Sub<f32>>>(b, c, isa),
            (BinaryOp::Max, false) => reach::<F, Max<f32>>(b, c, isa),
            _ => return None,
        })
    }
    match first.op {
        BinaryOp::Add => second::<Add<f32>>(op, flip, first.uniform, uniform, isa),
        BinaryOp::Sub => second::<Sub<f32>>(op, flip, first.uniform, uniform, isa),
        _ => second::<Mul<f32>>(op, flip, first.uniform, uniform, isa),
    }
}

/// The square of the result of `first`.
pub(crate) fn squared(first: First, isa: Isa) -> Micro {
    use micro::{Add, All, Each, Mul, Squared, Sub};
    match (first.op, first.uniform) {
        (BinaryOp::Add, false) => pick::<Squared<Add<f32>, Each<f32>>>(isa),
        (BinaryOp::Add, true) => pick::<Squared<Add<f32>, All<f32>>>(isa),
        (BinaryOp::Sub, false) => pick::<Squared<Sub<f32>, Each<f32>>>(isa),
        (BinaryOp::Sub, true) => pick::<Squared<Sub<f32>, All<f32>>>(isa),
        (_, false) => pick::<Squared<Mul<f32>, Each<f32>>>(isa),
        (_, true) => pick::<Squared<Mul<f32>, All<f32>>>(isa),
    }
}

/// `op` on the result of `first`.
pub(crate) fn unary_of(first: First, op: UnaryOp, isa: Isa) -> Option<Micro> {
    use micro::{Erf, Exp, MapOf, Mul, Sub, Tanh};
    Some(match (first.op, first.uniform, op) {
        (BinaryOp::Sub, true, UnaryOp::Exp) => pick::<MapOf<Sub<f32>, Exp<f32>>>(isa),
        (BinaryOp::Mul, true, UnaryOp::Exp) => pick::<MapOf<Mul<f32>, Exp<f32>>>(isa),
        (BinaryOp::Mul, true, UnaryOp::Erf) => pick::<MapOf<Mul<f32>, Erf<f32>>>(isa),
        (BinaryOp::Mul, true, UnaryOp::Tanh) => pick::<MapOf<Mul<f32>, Tanh<f32>>>(isa),
        _ => return None,
    })
}

/// `dtype` is that of the operands.
pub(crate) fn compare(op: CompareOp, dtype: DType, kinds: Kinds, isa: Isa) -> Micro {
    fn of<T: Num>(op: CompareOp, kinds: Kinds, isa: Isa) -> Micro {
        match op {
            CompareOp::Eq => by_kinds::<micro::Eq<T>>(kinds, isa),
            CompareOp::Lt => by_kinds::<micro::Lt<T>>(kinds, isa),
            CompareOp::Le => by_kinds::<micro::Le<T>>(kinds, isa),
        }
    }
    match dtype {
        DType::Bool | DType::U8 => of::<u8>(op, kinds, isa),
        DType::U16 => of::<u16>(op, kinds, isa),
        DType::U32 => of::<u32>(op, kinds, isa),
        DType::U64 => of::<u64>(op, kinds, isa),
        DType::I8 => of::<i8>(op, kinds, isa),
        DType::I16 => of::<i16>(op, kinds, isa),
        DType::I32 => of::<i32>(op, kinds, isa),
        DType::I64 => of::<i64>(op, kinds, isa),
        DType::F16 | DType::BF16 | DType::F32 => of::<f32>(op, kinds, isa),
        DType::F64 => of::<f64>(op, kinds, isa),
    }
}

macro_rules! by_size {
    ($size:expr, $isa:expr, $m:ident) => {
        match $size {
            1 => pick::<micro::$m<u8>>($isa),
            2 => pick::<micro::$m<u16>>($isa),
            4 => pick::<micro::$m<u32>>($isa),
            _ => pick::<micro::$m<u64>>($isa),
        }
    };
}

pub(crate) fn select(dtype: DType, isa: Isa) -> Micro {
    by_size!(register_size(dtype), isa, Select)
}

/// `size` is that of a register's element.
pub(crate) fn splat(size: usize, isa: Isa) -> Micro {
    by_size!(size, isa, Splat)
}

/// A contiguous copy of plain elements.
fn copy(size: usize, isa: Isa) -> Micro {
    match size {
        1 => pick::<Tile<micro::Same<u8>>>(isa),
        2 => pick::<Tile<micro::Same<u16>>>(isa),
        4 => pick::<Tile<micro::Same<u32>>>(isa),
        _ => pick::<Tile<micro::Same<u64>>>(isa),
    }
}

macro_rules! memory {
    ($dtype:expr, $isa:expr, $m:ident, $half:ident) => {
        match $dtype {
            DType::F16 => pick::<micro::$m<micro::$half<f16>>>($isa),
            DType::BF16 => pick::<micro::$m<micro::$half<bf16>>>($isa),
            other => match other.size() {
                1 => pick::<micro::$m<micro::Same<u8>>>($isa),
                2 => pick::<micro::$m<micro::Same<u16>>>($isa),
                4 => pick::<micro::$m<micro::Same<u32>>>($isa),
                _ => pick::<micro::$m<micro::Same<u64>>>($isa),
            },
        }
    };
}

/// From consecutive elements in memory to a register.
pub(crate) fn load(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, Tile, Widen)
}

/// From elements in memory at a fixed distance to a register.
pub(crate) fn load_strided(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, LoadStrided, Widen)
}

/// From elements in memory along a short loop and the loop around it to a register.
pub(crate) fn load_pattern(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, LoadPattern, Widen)
}

/// From runs of elements in memory, a lane each, to a tile for each place of the runs.
pub(crate) fn load_block(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, LoadBlock, Widen)
}

/// From elements in memory at given places to a register.
pub(crate) fn load_places(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, LoadPlaces, Widen)
}

/// From a register to consecutive elements in memory.
pub(crate) fn store(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, Tile, Narrow)
}

/// From a register to elements in memory at a fixed distance.
pub(crate) fn store_strided(dtype: DType, isa: Isa) -> Micro {
    memory!(dtype, isa, StoreStrided, Narrow)
}

pub(crate) fn bitcast(from: DType, to: DType, isa: Isa) -> Micro {
    match (from, to) {
        (DType::F16, DType::BF16) => pick::<Tile<micro::Reinterpret<f16, bf16>>>(isa),
        (DType::BF16, DType::F16) => pick::<Tile<micro::Reinterpret<bf16, f16>>>(isa),
        (DType::F16 | DType::BF16, DType::F16 | DType::BF16) => copy(4, isa),
        (DType::F16 | DType::BF16, _) => store(from, isa),
        (_, DType::F16 | DType::BF16) => load(to, isa),
        _ => copy(from.size(), isa),
    }
}

pub(crate) fn cast(from: DType, to: DType, isa: Isa) -> Micro {
    fn out<X>(from_half: bool, to: DType, isa: Isa) -> Micro
    where
        X: Copy + Default + PartialEq + micro::To<u8> + micro::To<u16> + micro::To<u32> + micro::To<u64>,
        X: micro::To<i8> + micro::To<i16> + micro::To<i32> + micro::To<i64> + micro::To<f32> + micro::To<f64>,
    {
        match to {
            DType::Bool => pick::<Tile<micro::IsTrue<X>>>(isa),
            DType::U8 => pick::<Tile<micro::Convert<X, u8>>>(isa),
            DType::U16 => pick::<Tile<micro::Convert<X, u16>>>(isa),
            DType::U32 => pick::<Tile<micro::Convert<X, u32>>>(isa),
            DType::U64 => pick::<Tile<micro::Convert<X, u64>>>(isa),
            DType::I8 => pick::<Tile<micro::Convert<X, i8>>>(isa),
            DType::I16 => pick::<Tile<micro::Convert<X, i16>>>(isa),
            DType::I32 => pick::<Tile<micro::Convert<X, i32>>>(isa),
            DType::I64 => pick::<Tile<micro::Convert<X, i64>>>(isa),
            DType::F32 => pick::<Tile<micro::Convert<X, f32>>>(isa),
            DType::F64 => pick::<Tile<micro::Convert<X, f64>>>(isa),
            DType::F16 if from_half => pick::<Tile<micro::Rounded<micro::Same<f32>, f16>>>(isa),
            DType::BF16 if from_half => pick::<Tile<micro::Rounded<micro::Same<f32>, bf16>>>(isa),
            DType::F16 => pick::<Tile<micro::ToHalf<X, f16>>>(isa),
            DType::BF16 => pick::<Tile<micro::ToHalf<X, bf16>>>(isa),
        }
    }
    match from {
        DType::Bool | DType::U8 => out::<u8>(false, to, isa),
        DType::U16 => out::<u16>(false, to, isa),
        DType::U32 => out::<u32>(false, to, isa),
        DType::U64 => out::<u64>(false, to, isa),
        DType::I8 => out::<i8>(false, to, isa),
        DType::I16 => out::<i16>(false, to, isa),
        DType::I32 => out::<i32>(false, to, isa),
        DType::I64 => out::<i64>(false, to, isa),
        DType::F16 | DType::BF16 | DType::F32 => out::<f32>(true, to, isa),
        DType::F64 => out::<f64>(false, to, isa),
    }
}

pub(crate) fn count(isa: Isa) -> Micro {
    pick::<micro::Count>(isa)
}

pub(crate) fn places(isa: Isa) -> Micro {
    pick::<micro::Places>(isa)
}

pub(crate) fn random_run(isa: Isa) -> Micro {
    pick::<micro::RandomRun>(isa)
}

pub(crate) fn random_places(isa: Isa) -> Micro {
    pick::<micro::RandomPlaces>(isa)
}

/// How a reduction runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folding {
    /// Size of an element of the accumulator.
    pub size: usize,
    /// What accumulators start with (little-endian).
    pub start: u64,
    /// Whether there is a second accumulator of places (`i64`, starting at −1).
    pub places: bool,
    /// Takes a tile into an accumulator of one element.
    pub along: Micro,
    /// Takes a tile into an accumulator tile: of `front` (`f32`, starting at `start`) where there is one.
    pub fold: Micro,
    /// Empties the `f32` front tile into the accumulator every few steps.
    pub flush: Option<Micro>,
    /// Takes another accumulator in (and its places).
    pub join: Micro,
    /// From accumulator to register.
    pub finish: Micro,
}

pub(crate) fn folding(op: ReduceOp, from: DType, isa: Isa) -> Folding {
    fn same<F: Map2<Y = <F as Map2>::X>>(size: usize, start: u64, isa: Isa) -> Folding {
        Folding {
            size,
            start,
            places: false,
            along: pick::<micro::Along<F>>(isa),
            fold: pick::<micro::Fold<F>>(isa),
            flush: None,
            join: pick::<micro::Fold<F>>(isa),
            finish: copy(size, isa),
        }
    }
    fn arg<T: Num>(op: ReduceOp, size: usize, isa: Isa) -> Folding {
        let (along, fold, join) = match op {
            ReduceOp::ArgMin => (
                pick::<micro::ArgAlong<T, micro::Smaller>>(isa),
                pick::<micro::ArgFold<T, micro::Smaller>>(isa),
                pick::<micro::ArgJoin<T, micro::Smaller>>(isa),
            ),
            _ => (
                pick::<micro::ArgAlong<T, micro::Larger>>(isa),
                pick::<micro::ArgFold<T, micro::Larger>>(isa),
                pick::<micro::ArgJoin<T, micro::Larger>>(isa),
            ),
        };
        Folding { size, start: 0, places: true, along, fold, flush: None, join, finish: copy(8, isa) }
    }
    fn number<T: Num>(op: ReduceOp, size: usize, ends: [u64; 3], isa: Isa) -> Folding {
        let [one, lowest, highest] = ends;
        match op {
            ReduceOp::Sum => same::<micro::Add<T>>(size, 0, isa),
            ReduceOp::Prod => same::<micro::Mul<T>>(size, one, isa),
            ReduceOp::Max => same::<micro::Max<T>>(size, lowest, isa),
            ReduceOp::Min => same::<micro::Min<T>>(size, highest, isa),
            ReduceOp::ArgMax | ReduceOp::ArgMin => arg::<T>(op, size, isa),
        }
    }
    macro_rules! int {
        ($ty:ty) => {
            number::<$ty>(op, size_of::<$ty>(), [1, <$ty>::MIN as u64, <$ty>::MAX as u64], isa)
        };
    }
    let bits32 = |x: f32| u64::from(x.to_bits());
    match from {
        DType::Bool => match op {
            ReduceOp::Min => same::<micro::And<u8>>(1, 1, isa),
            ReduceOp::ArgMax | ReduceOp::ArgMin => arg::<u8>(op, 1, isa),
            _ => same::<micro::Or<u8>>(1, 0, isa),
        },
        DType::U8 => int!(u8),
        DType::U16 => int!(u16),
        DType::U32 => int!(u32),
        DType::U64 => int!(u64),
        DType::I8 => int!(i8),
        DType::I16 => int!(i16),
        DType::I32 => int!(i32),
        DType::I64 => int!(i64),
        DType::F64 => {
            let ends = [1.0f64.to_bits(), f64::NEG_INFINITY.to_bits(), f64::INFINITY.to_bits()];
            number::<f64>(op, 8, ends, isa)
        }
        DType::F16 | DType::BF16 | DType::F32 => match op {
            // Partial sums are `f32`, their totals `f64`: no rounding error worth the name, however long the sum.
            ReduceOp::Sum => Folding {
                size: 8,
                start: 0,
                places: false,
                along: pick::<micro::AlongWide<micro::Add<f32>, micro::Add<f64>>>(isa),
                fold: pick::<micro::Fold<micro::Add<f32>>>(isa),
                flush: Some(pick::<micro::Flush>(isa)),
                join: pick::<micro::Fold<micro::Add<f64>>>(isa),
                finish: match from {
                    DType::F16 => pick::<Tile<micro::ToHalf<f64, f16>>>(isa),
                    DType::BF16 => pick::<Tile<micro::ToHalf<f64, bf16>>>(isa),
                    _ => pick::<Tile<micro::Convert<f64, f32>>>(isa),
                },
            },
            _ => {
                let ends = [bits32(1.0), bits32(f32::NEG_INFINITY), bits32(f32::INFINITY)];
                let mut folding = number::<f32>(op, 4, ends, isa);
                if op == ReduceOp::Prod && !is_plain(from) {
                    folding.finish = cast(DType::F32, from, isa);
                }
                folding
            }
        },
    }
}
