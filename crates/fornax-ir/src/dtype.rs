//! Element types: the [`DType`] of a tensor, sets of them, promotion, and the Rust types behind them.

use alloc::vec::Vec;
use core::fmt;
use half::{bf16, f16};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum DType {
    /// A truth value, stored as one byte that is 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer, the dtype of indices.
    I64,
    /// IEEE 754 half precision: 1 sign, 5 exponent, 10 fraction bits.
    F16,
    /// Brain float: 1 sign, 8 exponent, 7 fraction bits.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

/// The four families of dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DTypeKind {
    /// `bool`.
    Bool,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Floating point numbers.
    Float,
}

impl DType {
    /// Every dtype, in the order of the enum.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }

    /// The family this dtype belongs to.
    pub const fn kind(self) -> DTypeKind {
        match self {
            DType::Bool => DTypeKind::Bool,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => DTypeKind::Unsigned,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => DTypeKind::Signed,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => DTypeKind::Float,
        }
    }

    /// Whether this is a floating point dtype.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), DTypeKind::Float)
    }

    /// Whether this is a signed or unsigned integer dtype (`bool` is not).
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), DTypeKind::Signed | DTypeKind::Unsigned)
    }

    /// The dtype in which sums, products and special functions of this dtype are computed:
    /// `f32` for `f16` and `bf16`, itself otherwise.
    pub const fn compute(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// The short name: `f32`, `i64`, `bool`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// The dtype with this short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The common dtype of two tensors, as PyTorch promotes them.
    ///
    /// A float wins over an integer, an integer over `bool`; of two floats the wider wins, `f16` with `bf16` gives
    /// `f32`; of an unsigned and a signed integer the result is signed and wide enough, `i64` at most.
    pub fn promote(self, other: DType) -> DType {
        use DType::{BF16, F16, F32, I16, I32, I64};
        if self == other {
            return self;
        }
        let (low, high) = if self.kind() <= other.kind() { (self, other) } else { (other, self) };
        match (low.kind(), high.kind()) {
            (DTypeKind::Float, DTypeKind::Float) => match (low, high) {
                (F16, BF16) | (BF16, F16) => F32,
                _ => low.max(high),
            },
            (_, DTypeKind::Float) | (DTypeKind::Bool, _) => high,
            (DTypeKind::Unsigned, DTypeKind::Signed) => {
                let wide = match low.size() {
                    1 => I16,
                    2 => I32,
                    _ => I64,
                };
                wide.max(high)
            }
            _ => low.max(high),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of dtypes, as ops declare what they accept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DTypeSet(u32);

impl DTypeSet {
    /// No dtype.
    pub const EMPTY: DTypeSet = DTypeSet(0);
    /// `bool` alone.
    pub const BOOL: DTypeSet = DTypeSet::of(&[DType::Bool]);
    /// All floats.
    pub const FLOATS: DTypeSet = DTypeSet::of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
    /// All signed and unsigned integers.
    pub const INTS: DTypeSet =
        DTypeSet::of(&[DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64]);
    /// Integers and floats.
    pub const NUMERIC: DTypeSet = DTypeSet::INTS.union(DTypeSet::FLOATS);
    /// Integers and `bool`.
    pub const BITS: DTypeSet = DTypeSet::INTS.union(DTypeSet::BOOL);
    /// Every dtype.
    pub const ALL: DTypeSet = DTypeSet::NUMERIC.union(DTypeSet::BOOL);

    /// The set of the listed dtypes.
    pub const fn of(dtypes: &[DType]) -> DTypeSet {
        let mut bits = 0;
        let mut i = 0;
        while i < dtypes.len() {
            bits |= 1 << dtypes[i] as u32;
            i += 1;
        }
        DTypeSet(bits)
    }

    /// Dtypes in either set.
    pub const fn union(self, other: DTypeSet) -> DTypeSet {
        DTypeSet(self.0 | other.0)
    }

    /// Whether `dtype` is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & (1 << dtype as u32) != 0
    }

    /// The members, in the order of [`DType::ALL`].
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |&dtype| self.contains(dtype))
    }
}

impl fmt::Debug for DTypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for DTypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, dtype) in self.iter().enumerate() {
            write!(f, "{}{dtype}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A Rust type that can be an element of a tensor.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + 'static {
    /// Its dtype.
    const DTYPE: DType;
    /// Appends the little-endian bytes of `values` to `out`.
    fn write_le(values: &[Self], out: &mut Vec<u8>);
    /// Reads elements from little-endian bytes; a tail shorter than one element is ignored.
    fn read_le(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn write_le(values: &[Self], out: &mut alloc::vec::Vec<u8>) {
                out.reserve(core::mem::size_of_val(values));
                for value in values {
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            fn read_le(bytes: &[u8]) -> alloc::vec::Vec<Self> {
                let (chunks, _) = bytes.as_chunks::<{ size_of::<$ty>() }>();
                chunks.iter().map(|&chunk| <$ty>::from_le_bytes(chunk)).collect()
            }
        }
    )*};
}

elements!(
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn write_le(values: &[Self], out: &mut Vec<u8>) {
        out.extend(values.iter().map(|&value| u8::from(value)));
    }
    fn read_le(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&byte| byte != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_pytorch() {
        use DType::*;
        for (a, b, want) in [
            (Bool, U8, U8),
            (U8, I8, I16),
            (U8, I64, I64),
            (U32, I8, I64),
            (I64, F16, F16),
            (F16, BF16, F32),
            (BF16, F32, F32),
            (F32, F64, F64),
            (U8, U16, U16),
            (I32, I16, I32),
        ] {
            assert_eq!(a.promote(b), want, "{a} with {b}");
            assert_eq!(b.promote(a), want, "{b} with {a}");
        }
    }

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
    }
}
