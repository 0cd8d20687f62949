//! The arithmetics a product can be computed in, and which element types go in and out.

use super::kernel::{self, Kernel};
use crate::simd::Isa;
use crate::simd::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use core::ops::{Add, Mul};
use half::{bf16, f16};

/// How a product is computed: the type panels are packed in, the type sums are kept in, and the kernel per
/// instruction set.
///
/// Sealed: kernels run on raw pointers and trust the constants of their type.
pub trait Arith: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Element of packed panels.
    type Packed: Plain;
    /// Element of sums.
    type Acc: Plain;
    /// The kernel for `isa`.
    #[doc(hidden)]
    fn kernel(isa: Isa) -> Kernel<Self>;
    /// `acc + a · b` in plain operations.
    #[doc(hidden)]
    fn mul_add(acc: Self::Acc, a: Self::Packed, b: Self::Packed) -> Self::Acc;
}

/// Plain numbers: every bit pattern is a value, and zero bits are zero. Sealed.
pub trait Plain: sealed::Sealed + Copy + Send + Sync + PartialEq + core::fmt::Debug + 'static {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Sum; integers wrap.
    #[must_use]
    fn add(self, other: Self) -> Self;
    /// Product; integers wrap.
    #[must_use]
    fn mul(self, other: Self) -> Self;
}

/// An element type that products in arithmetic `R` accept.
///
/// Sealed: operands in place trust `IS_PACKED`.
pub trait Input<R: Arith>: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Whether `Self` is `R::Packed`, so that an operand may be read in place.
    const IS_PACKED: bool = false;
    /// The value as it is packed.
    fn pack(self) -> R::Packed;
}

/// An element type that sums of type `Acc` are stored in.
///
/// Sealed, as [`Input`] is.
pub trait Output<Acc>: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Whether `Self` is `Acc`, so that sums may be kept in place.
    const IS_ACC: bool = false;
    /// Rounds a sum.
    fn from_acc(acc: Acc) -> Self;
    /// The value as a sum.
    fn into_acc(self) -> Acc;
}

mod sealed {
    pub trait Sealed {}
}

/// `f32` sums of `f32`, `f16` or `bf16` elements, in any mix.
#[derive(Clone, Copy, Debug)]
pub struct F32;

/// `f64` sums of `f64` elements.
#[derive(Clone, Copy, Debug)]
pub struct F64;

/// `i32` sums of `i8` or `u8` elements, in any mix; exact until the sum wraps.
#[derive(Clone, Copy, Debug)]
pub struct Int8;

/// `i32` sums of `i8` elements multiplied four at a time by one instruction, where [`Bytes::is_native`]: twice the speed
/// of [`Int8`], with the same results. Elsewhere this is slow; use [`Int8`].
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

impl Bytes {
    /// Whether `isa` on this machine has the instruction.
    #[must_use]
    pub fn is_native(isa: Isa) -> bool {
        kernel::bytes(isa).group == 4
    }
}

/// `f32` sums of `bf16` elements multiplied in pairs by one instruction, where [`Bf16::is_native`]: twice the speed of
/// [`F32`] on the same elements.
///
/// The instruction takes subnormal numbers for zero and rounds twice per pair. Elsewhere this is slow; use [`F32`].
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

impl Bf16 {
    /// Whether `isa` on this machine has the instruction.
    #[must_use]
    pub fn is_native(isa: Isa) -> bool {
        kernel::bf16(isa).group == 2
    }
}

/// Wrapping sums of integers in their own type.
#[derive(Clone, Copy, Debug)]
pub struct Wrapping<T>(core::marker::PhantomData<T>);

impl sealed::Sealed for F32 {}
impl sealed::Sealed for F64 {}
impl sealed::Sealed for Int8 {}
impl sealed::Sealed for Bytes {}
impl sealed::Sealed for Bf16 {}
impl sealed::Sealed for f16 {}

macro_rules! plain {
    ($($t:ty: $zero:expr, $one:expr, $add:expr, $mul:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Plain for $t {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                $mul(self, other)
            }
        }
        impl Output<$t> for $t {
            const IS_ACC: bool = true;
            #[inline(always)]
            fn from_acc(acc: $t) -> $t {
                acc
            }
            #[inline(always)]
            fn into_acc(self) -> $t {
                self
            }
        }
    )*};
}

plain! {
    f32: 0.0, 1.0, Add::add, Mul::mul;
    f64: 0.0, 1.0, Add::add, Mul::mul;
    bf16: bf16::ZERO, bf16::ONE, add_bf16, mul_bf16;
    i8: 0, 1, i8::wrapping_add, i8::wrapping_mul;
    i16: 0, 1, i16::wrapping_add, i16::wrapping_mul;
    i32: 0, 1, i32::wrapping_add, i32::wrapping_mul;
    i64: 0, 1, i64::wrapping_add, i64::wrapping_mul;
    u8: 0, 1, u8::wrapping_add, u8::wrapping_mul;
    u16: 0, 1, u16::wrapping_add, u16::wrapping_mul;
    u32: 0, 1, u32::wrapping_add, u32::wrapping_mul;
    u64: 0, 1, u64::wrapping_add, u64::wrapping_mul;
}

impl Arith for F32 {
    type Packed = f32;
    type Acc = f32;
    fn kernel(isa: Isa) -> Kernel<F32> {
        kernel::f32(isa)
    }
    #[inline(always)]
    fn mul_add(acc: f32, a: f32, b: f32) -> f32 {
        acc + a * b
    }
}

impl Arith for F64 {
    type Packed = f64;
    type Acc = f64;
    fn kernel(isa: Isa) -> Kernel<F64> {
        kernel::f64(isa)
    }
    #[inline(always)]
    fn mul_add(acc: f64, a: f64, b: f64) -> f64 {
        acc + a * b
    }
}

fn add_bf16(x: bf16, y: bf16) -> bf16 {
    f32_to_bf16(bf16_to_f32(x) + bf16_to_f32(y))
}

fn mul_bf16(x: bf16, y: bf16) -> bf16 {
    f32_to_bf16(bf16_to_f32(x) * bf16_to_f32(y))
}

impl Arith for Bf16 {
    type Packed = bf16;
    type Acc = f32;
    fn kernel(isa: Isa) -> Kernel<Bf16> {
        kernel::bf16(isa)
    }
    #[inline(always)]
    fn mul_add(acc: f32, a: bf16, b: bf16) -> f32 {
        acc + bf16_to_f32(a) * bf16_to_f32(b)
    }
}

impl Input<Bf16> for bf16 {
    const IS_PACKED: bool = true;
    #[inline(always)]
    fn pack(self) -> bf16 {
        self
    }
}

impl Arith for Int8 {
    // Two 16-bit products fit a 32-bit sum whatever the signs, so one instruction serves all four mixes.
    type Packed = i16;
    type Acc = i32;
    fn kernel(isa: Isa) -> Kernel<Int8> {
        kernel::int8(isa)
    }
    #[inline(always)]
    fn mul_add(acc: i32, a: i16, b: i16) -> i32 {
        acc.wrapping_add(a as i32 * b as i32)
    }
}

impl Arith for Bytes {
    type Packed = i8;
    type Acc = i32;
    fn kernel(isa: Isa) -> Kernel<Self> {
        kernel::bytes(isa)
    }
    #[inline(always)]
    fn mul_add(acc: i32, a: i8, b: i8) -> i32 {
        acc.wrapping_add(a as i32 * b as i32)
    }
}

impl Input<Bytes> for i8 {
    const IS_PACKED: bool = true;
    #[inline(always)]
    fn pack(self) -> i8 {
        self
    }
}

macro_rules! wrapping {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for Wrapping<$t> {}
        impl Arith for Wrapping<$t> {
            type Packed = $t;
            type Acc = $t;
            fn kernel(_: Isa) -> Kernel<Self> {
                kernel::portable::<Self>()
            }
            #[inline(always)]
            fn mul_add(acc: $t, a: $t, b: $t) -> $t {
                acc.wrapping_add(a.wrapping_mul(b))
            }
        }
        impl Input<Wrapping<$t>> for $t {
            const IS_PACKED: bool = true;
            #[inline(always)]
            fn pack(self) -> $t {
                self
            }
        }
    )*};
}

wrapping!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Input<F32> for f32 {
    const IS_PACKED: bool = true;
    #[inline(always)]
    fn pack(self) -> f32 {
        self
    }
}

impl Input<F32> for f16 {
    #[inline(always)]
    fn pack(self) -> f32 {
        f16_to_f32(self)
    }
}

impl Input<F32> for bf16 {
    #[inline(always)]
    fn pack(self) -> f32 {
        bf16_to_f32(self)
    }
}

impl Input<F64> for f64 {
    const IS_PACKED: bool = true;
    #[inline(always)]
    fn pack(self) -> f64 {
        self
    }
}

impl Input<Int8> for i8 {
    #[inline(always)]
    fn pack(self) -> i16 {
        self as i16
    }
}

impl Input<Int8> for u8 {
    #[inline(always)]
    fn pack(self) -> i16 {
        self as i16
    }
}

impl Output<f32> for f16 {
    #[inline(always)]
    fn from_acc(acc: f32) -> f16 {
        f32_to_f16(acc)
    }
    #[inline(always)]
    fn into_acc(self) -> f32 {
        f16_to_f32(self)
    }
}

impl Output<f32> for bf16 {
    #[inline(always)]
    fn from_acc(acc: f32) -> bf16 {
        f32_to_bf16(acc)
    }
    #[inline(always)]
    fn into_acc(self) -> f32 {
        bf16_to_f32(self)
    }
}
