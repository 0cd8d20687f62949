//! [`Scalar`]: one value of any dtype, as graphs carry constants.

use crate::DType;
use core::fmt;
use half::{bf16, f16};

/// One number or truth value, wide enough for every dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An unsigned integer, for values beyond `i64`.
    UInt(u64),
    /// A floating point number.
    Float(f64),
}

impl Scalar {
    /// The dtype that a bare scalar of this kind has before it meets a tensor: `bool`, `i64`, `u64` or `f32`.
    pub const fn default_dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::UInt(_) => DType::U64,
            Scalar::Float(_) => DType::F32,
        }
    }

    /// The value as `f64`; integers beyond 2^53 are rounded.
    pub const fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => value as u8 as f64,
            Scalar::Int(value) => value as f64,
            Scalar::UInt(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// The value as `f32`, rounded once.
    pub const fn to_f32(self) -> f32 {
        match self {
            Scalar::Bool(value) => value as u8 as f32,
            Scalar::Int(value) => value as f32,
            Scalar::UInt(value) => value as f32,
            Scalar::Float(value) => value as f32,
        }
    }

    /// The value as `i64`; floats are truncated and saturate, `u64` wraps.
    pub const fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => value as i64,
            Scalar::Int(value) => value,
            Scalar::UInt(value) => value as i64,
            Scalar::Float(value) => value as i64,
        }
    }

    /// The value as a truth value: anything but zero is true, NaN too.
    pub const fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(value) => value,
            Scalar::Int(value) => value != 0,
            Scalar::UInt(value) => value != 0,
            Scalar::Float(value) => value != 0.0,
        }
    }

    /// The value as an element of `dtype` sees it: rounded, wrapped or saturated as a cast does.
    pub fn cast(self, dtype: DType) -> Scalar {
        // Floats saturate into integers; integers wrap into narrower ones.
        macro_rules! int {
            ($ty:ty, $variant:ident, $wide:ty) => {
                Scalar::$variant(match self {
                    Scalar::Bool(value) => value as $wide,
                    Scalar::Int(value) => value as $ty as $wide,
                    Scalar::UInt(value) => value as $ty as $wide,
                    Scalar::Float(value) => value as $ty as $wide,
                })
            };
        }
        match dtype {
            DType::Bool => Scalar::Bool(self.to_bool()),
            DType::U8 => int!(u8, Int, i64),
            DType::U16 => int!(u16, Int, i64),
            DType::U32 => int!(u32, Int, i64),
            DType::U64 => int!(u64, UInt, u64),
            DType::I8 => int!(i8, Int, i64),
            DType::I16 => int!(i16, Int, i64),
            DType::I32 => int!(i32, Int, i64),
            DType::I64 => int!(i64, Int, i64),
            DType::F16 => Scalar::Float(f16::from_f32(self.to_f32()).to_f64()),
            DType::BF16 => Scalar::Float(bf16::from_f32(self.to_f32()).to_f64()),
            DType::F32 => Scalar::Float(f64::from(self.to_f32())),
            DType::F64 => Scalar::Float(self.to_f64()),
        }
    }

    /// The little-endian bytes of this value as an element of `dtype`, in the first `dtype.size()` places.
    pub fn to_le_bytes(self, dtype: DType) -> [u8; 8] {
        let mut out = [0; 8];
        match dtype {
            DType::F16 => out[..2].copy_from_slice(&f16::from_f32(self.to_f32()).to_le_bytes()),
            DType::BF16 => out[..2].copy_from_slice(&bf16::from_f32(self.to_f32()).to_le_bytes()),
            DType::F32 => out[..4].copy_from_slice(&self.to_f32().to_le_bytes()),
            DType::F64 => out.copy_from_slice(&self.to_f64().to_le_bytes()),
            DType::Bool
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64 => out.copy_from_slice(&self.cast(dtype).to_i64().to_le_bytes()),
        }
        out
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::UInt(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident as $wide:ty),* $(,)?) => {$(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Scalar {
                Scalar::$variant(value as $wide)
            }
        }
    )*};
}

from!(
    bool => Bool as bool,
    u8 => Int as i64, u16 => Int as i64, u32 => Int as i64, u64 => UInt as u64, usize => Int as i64,
    i8 => Int as i64, i16 => Int as i64, i32 => Int as i64, i64 => Int as i64,
    f32 => Float as f64, f64 => Float as f64,
);

impl From<f16> for Scalar {
    fn from(value: f16) -> Scalar {
        Scalar::Float(value.to_f64())
    }
}

impl From<bf16> for Scalar {
    fn from(value: bf16) -> Scalar {
        Scalar::Float(value.to_f64())
    }
}
