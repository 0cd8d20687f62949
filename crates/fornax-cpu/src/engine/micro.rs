//! Micro-ops: loops over one tile, each compiled for every element type and instruction set, called through a pointer.
//!
//! Registers hold elements as they lie in memory, except `f16` and `bf16`, which are `f32` whose every result is rounded
//! to the half's precision, and `bool`, which is a byte of 0 or 1. [`select`](super::select) picks micro-ops by name.
//!
//! A result never overlaps an operand, so that the loops vectorize without falling back to their scalar twin.

use crate::simd::Isa;
use crate::simd::half as halves;
use crate::simd::math;
use alloc::vec::Vec;
use core::marker::PhantomData;
use fornax_compile::Level;
use half::{bf16, f16};

/// `dst`, operands `a`, `b`, `c`, the number of elements, and an immediate whose meaning belongs to the micro-op.
///
/// # Safety
/// Every pointer that the micro-op uses covers `n` elements of the micro-op's types (one element for uniform operands)
/// and does not overlap `dst`, except where the micro-op says so.
pub(crate) type Micro = unsafe fn(*mut u8, *const u8, *const u8, *const u8, usize, u64);

/// A micro-op's body.
pub(crate) trait MicroOp {
    /// # Safety
    /// As [`Micro`].
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, imm: u64);
}

/// The copy of `M` for `isa`.
pub(crate) fn pick<M: MicroOp>(isa: Isa) -> Micro {
    unsafe fn scalar<M: MicroOp>(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, imm: u64) {
        // SAFETY: by the caller's contract.
        unsafe { M::run(dst, a, b, c, n, imm) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn avx2<M: MicroOp>(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, imm: u64) {
        // SAFETY: by the caller's contract.
        unsafe { M::run(dst, a, b, c, n, imm) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn avx512<M: MicroOp>(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, imm: u64) {
        // SAFETY: by the caller's contract.
        unsafe { M::run(dst, a, b, c, n, imm) }
    }
    match isa {
        Isa::Scalar => scalar::<M>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => avx2::<M>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => avx512::<M>,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => scalar::<M>,
    }
}

/// A function of one element.
pub(crate) trait Map1 {
    type X: Copy;
    type Y: Copy;
    fn f(x: Self::X) -> Self::Y;
}

/// A function of two elements.
pub(crate) trait Map2 {
    type X: Copy;
    type Y: Copy;
    fn f(a: Self::X, b: Self::X) -> Self::Y;
}

/// `dst[i] = f(a[i])`.
pub(crate) struct Tile<F>(PhantomData<F>);
/// `dst[i] = f(a[i], b[i])`.
pub(crate) struct TileTile<F>(PhantomData<F>);
/// `dst[i] = f(a[i], b[0])`.
pub(crate) struct TileUniform<F>(PhantomData<F>);
/// `dst[i] = f(a[0], b[i])`.
pub(crate) struct UniformTile<F>(PhantomData<F>);

// SAFETY (of all loops below): `i < n`, and the caller vouches for `n` elements.
impl<F: Map1> MicroOp for Tile<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a) = (dst.cast::<F::Y>(), a.cast::<F::X>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(*a.add(i)) };
        }
    }
}

impl<F: Map2> MicroOp for TileTile<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a, b) = (dst.cast::<F::Y>(), a.cast::<F::X>(), b.cast::<F::X>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(*a.add(i), *b.add(i)) };
        }
    }
}

impl<F: Map2> MicroOp for TileUniform<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: a uniform operand has one element.
        let (dst, a, b) = (dst.cast::<F::Y>(), a.cast::<F::X>(), unsafe { *b.cast::<F::X>() });
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(*a.add(i), b) };
        }
    }
}

impl<F: Map2> MicroOp for UniformTile<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: a uniform operand has one element.
        let (dst, a, b) = (dst.cast::<F::Y>(), unsafe { *a.cast::<F::X>() }, b.cast::<F::X>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(a, *b.add(i)) };
        }
    }
}

/// `f` with its operands the other way round.
pub(crate) struct Flip<F>(PhantomData<F>);
impl<F: Map2> Map2 for Flip<F> {
    type X = F::X;
    type Y = F::Y;
    #[inline(always)]
    fn f(a: F::X, b: F::X) -> F::Y {
        F::f(b, a)
    }
}

/// An operand of a superinstruction: a tile, or one element for all lanes.
pub(crate) trait Reach<T> {
    /// # Safety
    /// `x` covers at least one element.
    unsafe fn new(x: *const T) -> Self;
    /// The element of lane `i`.
    ///
    /// # Safety
    /// If it is a tile, it has a lane `i`.
    unsafe fn at(&self, i: usize) -> T;
}
/// An element for each lane.
pub(crate) struct Each<T>(*const T);
impl<T: Copy> Reach<T> for Each<T> {
    #[inline(always)]
    unsafe fn new(x: *const T) -> Self {
        Each(x)
    }
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> T {
        // SAFETY: by the caller's contract.
        unsafe { *self.0.add(i) }
    }
}
/// One element for all lanes.
pub(crate) struct All<T>(T);
impl<T: Copy> Reach<T> for All<T> {
    #[inline(always)]
    unsafe fn new(x: *const T) -> Self {
        // SAFETY: by the caller's contract.
        All(unsafe { *x })
    }
    #[inline(always)]
    unsafe fn at(&self, _: usize) -> T {
        self.0
    }
}

/// Two ops in one go: `dst[i] = g(f(a[i], b[i]), c[i])`, where `b` and `c` may be one element.
pub(crate) struct Pair<F, G, B, C>(PhantomData<(F, G, B, C)>);
impl<F, G, B, C> MicroOp for Pair<F, G, B, C>
where
    F: Map2<Y = <F as Map2>::X>,
    G: Map2<X = F::X>,
    B: Reach<F::X>,
    C: Reach<F::X>,
{
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
        let (dst, a) = (dst.cast::<G::Y>(), a.cast::<F::X>());
        // SAFETY: uniform operands have one element, and so has any tile.
        let (b, c) = unsafe { (B::new(b.cast::<F::X>()), C::new(c.cast::<F::X>())) };
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = G::f(F::f(*a.add(i), b.at(i)), c.at(i)) };
        }
    }
}

/// `dst[i] = f(a[i], b[i])²`, where `b` may be one element.
pub(crate) struct Squared<F, B>(PhantomData<(F, B)>);
impl<F: Map2<X = f32, Y = f32>, B: Reach<f32>> MicroOp for Squared<F, B> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a) = (dst.cast::<f32>(), a.cast::<f32>());
        // SAFETY: a uniform operand has one element, and so has any tile.
        let b = unsafe { B::new(b.cast::<f32>()) };
        for i in 0..n {
            // SAFETY: see above.
            unsafe {
                let x = F::f(*a.add(i), b.at(i));
                *dst.add(i) = x * x;
            }
        }
    }
}

/// `dst[i] = g(f(a[i], b[0]))`.
pub(crate) struct MapOf<F, G>(PhantomData<(F, G)>);
impl<F: Map2<Y = <F as Map2>::X>, G: Map1<X = F::X>> MicroOp for MapOf<F, G> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: a uniform operand has one element.
        let (dst, a, b) = (dst.cast::<G::Y>(), a.cast::<F::X>(), unsafe { *b.cast::<F::X>() });
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = G::f(F::f(*a.add(i), b)) };
        }
    }
}

/// `dst[i] = a[i] ? b[i] : c[i]`, by element size.
pub(crate) struct Select<T>(PhantomData<T>);
impl<T: Copy> MicroOp for Select<T> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
        let (dst, b, c) = (dst.cast::<T>(), b.cast::<T>(), c.cast::<T>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe {
                let (yes, no) = (*b.add(i), *c.add(i));
                *dst.add(i) = if *a.add(i) != 0 { yes } else { no };
            }
        }
    }
}

/// `dst[i] = a[0]`, by element size.
pub(crate) struct Splat<T>(PhantomData<T>);
impl<T: Copy> MicroOp for Splat<T> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: a uniform operand has one element.
        let (dst, a) = (dst.cast::<T>(), unsafe { *a.cast::<T>() });
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = a };
        }
    }
}

/// `dst[i] = f(a[i · imm])`, `imm` a signed distance in bytes. For loads.
pub(crate) struct LoadStrided<F>(PhantomData<F>);
impl<F: Map1> MicroOp for LoadStrided<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        let dst = dst.cast::<F::Y>();
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(*a.offset(i as isize * imm as isize).cast::<F::X>()) };
        }
    }
}

/// `dst[i] = f(a[i / size · outer + i % size · inner])`, `imm` the address of a [`Pattern`]; `n` is a multiple of its size.
pub(crate) struct LoadPattern<F>(PhantomData<F>);
/// What [`LoadPattern`] needs to know: a short loop and the loop around it, distances in bytes.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub size: usize,
    pub inner: isize,
    pub outer: isize,
}
impl<F: Map1> MicroOp for LoadPattern<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        // SAFETY: the kernel that carries this micro-op owns the pattern.
        let &Pattern { size, inner, outer } = unsafe { &*core::ptr::with_exposed_provenance::<Pattern>(imm as usize) };
        let dst = dst.cast::<F::Y>();
        for group in 0..n / size {
            let from = a.wrapping_offset(group as isize * outer);
            for i in 0..size {
                // SAFETY: see above.
                unsafe { *dst.add(group * size + i) = F::f(*from.offset(i as isize * inner).cast::<F::X>()) };
            }
        }
    }
}

/// `dst[r · c + i] = f(a[i · imm + r])` for `r < b`, with `b` and `c` numbers in the pointers' places, `imm` a signed
/// distance in bytes: consecutive elements of `n` lanes become consecutive rows of a tile each.
pub(crate) struct LoadBlock<F>(PhantomData<F>);
impl<F: Map1> MicroOp for LoadBlock<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, imm: u64) {
        let (dst, rows, pitch) = (dst.cast::<F::Y>(), b.addr(), c.addr());
        for i in 0..n {
            // SAFETY: see above.
            unsafe {
                let from = a.offset(i as isize * imm as isize).cast::<F::X>();
                if rows == super::BLOCK_ROWS {
                    let line = from.cast::<[F::X; super::BLOCK_ROWS]>().read_unaligned();
                    for (r, &x) in line.iter().enumerate() {
                        *dst.add(r * pitch + i) = F::f(x);
                    }
                } else {
                    for r in 0..rows {
                        *dst.add(r * pitch + i) = F::f(*from.add(r));
                    }
                }
            }
        }
    }
}

/// `dst[i · imm] = f(a[i])`, `imm` a signed distance in bytes. For stores.
pub(crate) struct StoreStrided<F>(PhantomData<F>);
impl<F: Map1> MicroOp for StoreStrided<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        let a = a.cast::<F::X>();
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.offset(i as isize * imm as isize).cast::<F::Y>() = F::f(*a.add(i)) };
        }
    }
}

/// `dst[i] = f(b[a[i]])`, `a` places (`i64`).
pub(crate) struct LoadPlaces<F>(PhantomData<F>);
impl<F: Map1> MicroOp for LoadPlaces<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a, b) = (dst.cast::<F::Y>(), a.cast::<i64>(), b.cast::<F::X>());
        for i in 0..n {
            // SAFETY: see above; places lie in the buffer.
            unsafe { *dst.add(i) = F::f(*b.offset(*a.add(i) as isize)) };
        }
    }
}

/// `dst[i] = a + i · imm` (`i64`), `a` a number in the pointer's place.
pub(crate) struct Count;
impl MicroOp for Count {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        let (dst, start) = (dst.cast::<i64>(), a.addr() as i64);
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = start.wrapping_add((i as i64).wrapping_mul(imm as i64)) };
        }
    }
}

/// `dst[i] = levels(a + i · stride)`, `a` a number in the pointer's place, `imm` the address of a [`Levels`].
pub(crate) struct Places;
/// What [`Places`] needs to know.
#[derive(Debug)]
pub(crate) struct Levels {
    pub stride: i64,
    pub levels: Vec<Level>,
}
impl MicroOp for Places {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        // SAFETY: the kernel that carries this micro-op owns the map.
        let map = unsafe { &*core::ptr::with_exposed_provenance::<Levels>(imm as usize) };
        let (dst, start) = (dst.cast::<i64>(), a.addr() as i64);
        for i in 0..n {
            let mut place = start + i as i64 * map.stride;
            for level in &map.levels {
                let mut next = level.offset;
                for &(size, stride) in level.dims.iter().rev() {
                    next += place % size * stride;
                    place /= size;
                }
                place = next;
            }
            // SAFETY: see above.
            unsafe { *dst.add(i) = place };
        }
    }
}

/// Philox4x32-10: the four words at `counter` under `key`.
#[inline(always)]
pub(crate) fn philox(key: u64, counter: u64) -> [u32; 4] {
    let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
    let mut c = [counter as u32, (counter >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let p0 = u64::from(c[0]) * 0xd251_1f53;
        let p1 = u64::from(c[2]) * 0xcd9e_8d57;
        c = [(p1 >> 32) as u32 ^ c[1] ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k1, p0 as u32];
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    c
}

/// `dst[i]` = random word `a + i`, `a` a number in the pointer's place; `b` points to seed and offset.
pub(crate) struct RandomRun;
impl MicroOp for RandomRun {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: `b` covers two words.
        let [seed, offset] = unsafe { *b.cast::<[u64; 2]>() };
        let (dst, start) = (dst.cast::<u32>(), a.addr() as u64);
        let word = |place: u64| philox(seed, offset.wrapping_add(place / 4))[place as usize % 4];
        let mut i = 0;
        while i < n && !(start + i as u64).is_multiple_of(4) {
            // SAFETY: see above.
            unsafe { *dst.add(i) = word(start + i as u64) };
            i += 1;
        }
        // Lanes are counters, so that multiplications vectorize.
        const LANES: usize = 16;
        while i + 4 * LANES <= n {
            let first = offset.wrapping_add((start + i as u64) / 4);
            let mut words = [[0u32; 4]; LANES];
            for (lane, words) in words.iter_mut().enumerate() {
                *words = philox(seed, first.wrapping_add(lane as u64));
            }
            // SAFETY: `4 · LANES` more elements fit.
            unsafe { dst.add(i).cast::<[[u32; 4]; LANES]>().write_unaligned(words) };
            i += 4 * LANES;
        }
        while i < n {
            let place = start + i as u64;
            let w = philox(seed, offset.wrapping_add(place / 4));
            for (k, &w) in w.iter().enumerate().take(n - i) {
                // SAFETY: see above.
                unsafe { *dst.add(i + k) = w };
            }
            i += 4;
        }
    }
}

/// `dst[i]` = random word `a[i]` (`i64` places); `b` points to seed and offset.
pub(crate) struct RandomPlaces;
impl MicroOp for RandomPlaces {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize, _: u64) {
        // SAFETY: `b` covers two words.
        let [seed, offset] = unsafe { *b.cast::<[u64; 2]>() };
        let (dst, a) = (dst.cast::<u32>(), a.cast::<u64>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe {
                let place = *a.add(i);
                *dst.add(i) = philox(seed, offset.wrapping_add(place / 4))[place as usize % 4];
            }
        }
    }
}

// --- element arithmetic ---

/// Arithmetic that all numbers have. Integers wrap.
pub(crate) trait Num: Copy + PartialEq + PartialOrd {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// NaN if either is.
    fn max(self, other: Self) -> Self;
    /// NaN if either is.
    fn min(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn is_nan(self) -> bool;
}

/// Integers.
pub(crate) trait Int: Num {
    const ZERO: Self;
    /// 0 for a divisor of 0, whose fault is told apart.
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shl(self, other: Self) -> Self;
    fn shr(self, other: Self) -> Self;
    fn not(self) -> Self;
}

/// Floats.
pub(crate) trait Float: Num {
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    fn atan2(self, other: Self) -> Self;
    fn recip(self) -> Self;
    fn sqrt(self) -> Self;
    fn rsqrt(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn expm1(self) -> Self;
    fn log(self) -> Self;
    fn log2(self) -> Self;
    fn log1p(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn round(self) -> Self;
}

macro_rules! ints {
    ($($ty:ident $signed:literal),*) => {$(
        impl Num for $ty {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { Ord::max(self, other) }
            #[inline(always)]
            fn min(self, other: Self) -> Self { Ord::min(self, other) }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn abs(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn sign(self) -> Self { if self > 0 { 1 } else if self < 0 { (0 as $ty).wrapping_sub(1) } else { 0 } }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
        }
        impl Int for $ty {
            const ZERO: Self = 0;
            #[inline(always)]
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_rem(other) } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn pow(self, other: Self) -> Self {
                if other < 0 {
                    return match self {
                        1 => 1,
                        _ if $signed && self == (0 as $ty).wrapping_sub(1) => if other & 1 == 0 { 1 } else { self },
                        _ => 0,
                    };
                }
                let (mut base, mut exponent, mut result) = (self, other, 1 as $ty);
                while exponent != 0 {
                    if exponent & 1 == 1 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                result
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn shl(self, other: Self) -> Self {
                let shifted = self.wrapping_shl(other as u32);
                if other < 0 || other as u64 >= $ty::BITS as u64 { 0 } else { shifted }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn shr(self, other: Self) -> Self {
                let shifted = self.wrapping_shr(other as u32);
                let far = self >> ($ty::BITS - 1);
                if other < 0 || other as u64 >= $ty::BITS as u64 { if $signed { far } else { 0 } } else { shifted }
            }
            #[inline(always)]
            fn not(self) -> Self { !self }
        }
    )*};
}

ints!(u8 false, u16 false, u32 false, u64 false, i8 true, i16 true, i32 true, i64 true);

macro_rules! floats {
    ($ty:ident; $($name:ident: $path:path),*; $rem:path, $pow:path, $atan2:path; $floor:path, $ceil:path, $trunc:path, $rint:path, $sqrt:path) => {
        impl Num for $ty {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn max(self, other: Self) -> Self { if (self > other) | (self != self) { self } else { other } }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn min(self, other: Self) -> Self { if (self < other) | (self != self) { self } else { other } }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn abs(self) -> Self { self.abs() }
            #[inline(always)]
            fn sign(self) -> Self { if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else { 0.0 } }
            #[inline(always)]
            fn is_nan(self) -> bool { self.is_nan() }
        }
        impl Float for $ty {
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { $rem(self, other) }
            #[inline(always)]
            fn pow(self, other: Self) -> Self { $pow(self, other) }
            #[inline(always)]
            fn atan2(self, other: Self) -> Self { $atan2(self, other) }
            #[inline(always)]
            fn recip(self) -> Self { 1.0 / self }
            #[inline(always)]
            fn sqrt(self) -> Self { $sqrt(self) }
            #[inline(always)]
            fn rsqrt(self) -> Self { 1.0 / $sqrt(self) }
            $(
                #[inline(always)]
                fn $name(self) -> Self { $path(self) }
            )*
            #[inline(always)]
            fn floor(self) -> Self { $floor(self) }
            #[inline(always)]
            fn ceil(self) -> Self { $ceil(self) }
            #[inline(always)]
            fn trunc(self) -> Self { $trunc(self) }
            #[inline(always)]
            fn round(self) -> Self { $rint(self) }
        }
    };
}

/// Rounding functions by the compiler where there is `std` (one instruction each), by `libm` elsewhere.
mod rounding {
    macro_rules! functions {
        ($($name:ident $ty:ident $method:ident $libm:ident;)*) => {$(
            #[inline(always)]
            pub fn $name(x: $ty) -> $ty {
                #[cfg(feature = "std")]
                {
                    x.$method()
                }
                #[cfg(not(feature = "std"))]
                {
                    libm::$libm(x)
                }
            }
        )*};
    }
    functions! {
        floor32 f32 floor floorf; ceil32 f32 ceil ceilf; trunc32 f32 trunc truncf; sqrt32 f32 sqrt sqrtf;
        round32 f32 round_ties_even rintf;
        floor64 f64 floor floor; ceil64 f64 ceil ceil; trunc64 f64 trunc trunc; sqrt64 f64 sqrt sqrt;
        round64 f64 round_ties_even rint;
    }
}

use rounding::{ceil32, ceil64, floor32, floor64, round32, round64, sqrt32, sqrt64, trunc32, trunc64};

floats!(f32; exp: math::exp, exp2: math::exp2, expm1: math::expm1, log: math::log, log2: math::log2,
    log1p: math::log1p, sin: math::sin, cos: math::cos, tanh: math::tanh, erf: math::erf;
    libm::fmodf, libm::powf, libm::atan2f; floor32, ceil32, trunc32, round32, sqrt32);
floats!(f64; exp: libm::exp, exp2: libm::exp2, expm1: libm::expm1, log: libm::log, log2: libm::log2,
    log1p: libm::log1p, sin: libm::sin, cos: libm::cos, tanh: libm::tanh, erf: libm::erf;
    libm::fmod, libm::pow, libm::atan2; floor64, ceil64, trunc64, round64, sqrt64);

/// Declares functions as types.
macro_rules! map1 {
    ($($name:ident: $bound:ident |$x:ident| $body:expr;)*) => {$(
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Map1 for $name<T> {
            type X = T;
            type Y = T;
            #[inline(always)]
            fn f($x: T) -> T { $body }
        }
    )*};
}
macro_rules! map2 {
    ($($name:ident: $bound:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Map2 for $name<T> {
            type X = T;
            type Y = T;
            #[inline(always)]
            fn f($a: T, $b: T) -> T { $body }
        }
    )*};
}
macro_rules! compare {
    ($($name:ident: |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: Num> Map2 for $name<T> {
            type X = T;
            type Y = u8;
            #[inline(always)]
            fn f($a: T, $b: T) -> u8 { u8::from($body) }
        }
    )*};
}

map1! {
    Neg: Num |x| x.neg(); Abs: Num |x| x.abs(); Sign: Num |x| x.sign(); NotInt: Int |x| x.not();
    Recip: Float |x| x.recip(); Sqrt: Float |x| x.sqrt(); Rsqrt: Float |x| x.rsqrt();
    Exp: Float |x| x.exp(); Exp2: Float |x| x.exp2(); Expm1: Float |x| x.expm1();
    Log: Float |x| x.log(); Log2: Float |x| x.log2(); Log1p: Float |x| x.log1p();
    Sin: Float |x| x.sin(); Cos: Float |x| x.cos(); Tanh: Float |x| x.tanh(); Erf: Float |x| x.erf();
    Floor: Float |x| x.floor(); Ceil: Float |x| x.ceil(); Trunc: Float |x| x.trunc(); Round: Float |x| x.round();
}
map2! {
    Add: Num |a, b| a.add(b); Sub: Num |a, b| a.sub(b); Mul: Num |a, b| a.mul(b);
    Max: Num |a, b| a.max(b); Min: Num |a, b| a.min(b);
    Div: Float |a, b| a.div(b); Rem: Float |a, b| a.rem(b); Pow: Float |a, b| a.pow(b); Atan2: Float |a, b| a.atan2(b);
    PowInt: Int |a, b| a.pow(b); And: Int |a, b| a.and(b); Or: Int |a, b| a.or(b); Xor: Int |a, b| a.xor(b);
    Shl: Int |a, b| a.shl(b); Shr: Int |a, b| a.shr(b);
}
compare! {
    Eq: |a, b| a == b;
    Lt: |a, b| a < b;
    Le: |a, b| a <= b;
}

/// Logical not of a byte that is 0 or 1.
pub(crate) struct NotBool;
impl Map1 for NotBool {
    type X = u8;
    type Y = u8;
    #[inline(always)]
    fn f(x: u8) -> u8 {
        x ^ 1
    }
}

/// The same bits.
pub(crate) struct Same<T>(PhantomData<T>);
impl<T: Copy> Map1 for Same<T> {
    type X = T;
    type Y = T;
    #[inline(always)]
    fn f(x: T) -> T {
        x
    }
}

/// A half-precision type: how `f32` registers stand for it.
pub(crate) trait Half: Copy {
    fn round(x: f32) -> f32;
    fn widen(self) -> f32;
    fn narrow(x: f32) -> Self;
}
impl Half for f16 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        halves::round_to_f16(x)
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        halves::f16_to_f32(self)
    }
    #[inline(always)]
    fn narrow(x: f32) -> f16 {
        halves::f32_to_f16(x)
    }
}
impl Half for bf16 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        halves::round_to_bf16(x)
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        halves::bf16_to_f32(self)
    }
    #[inline(always)]
    fn narrow(x: f32) -> bf16 {
        halves::f32_to_bf16(x)
    }
}

/// `F` in `f32`, rounded to the half `H`.
pub(crate) struct Rounded<F, H>(PhantomData<(F, H)>);
impl<F: Map1<X = f32, Y = f32>, H: Half> Map1 for Rounded<F, H> {
    type X = f32;
    type Y = f32;
    #[inline(always)]
    fn f(x: f32) -> f32 {
        H::round(F::f(x))
    }
}
impl<F: Map2<X = f32, Y = f32>, H: Half> Map2 for Rounded<F, H> {
    type X = f32;
    type Y = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> f32 {
        H::round(F::f(a, b))
    }
}

/// From memory to a register.
pub(crate) struct Widen<H>(PhantomData<H>);
impl<H: Half> Map1 for Widen<H> {
    type X = H;
    type Y = f32;
    #[inline(always)]
    fn f(x: H) -> f32 {
        x.widen()
    }
}
/// From a register to memory.
pub(crate) struct Narrow<H>(PhantomData<H>);
impl<H: Half> Map1 for Narrow<H> {
    type X = f32;
    type Y = H;
    #[inline(always)]
    fn f(x: f32) -> H {
        H::narrow(x)
    }
}
/// The bits of half `A` as half `B`, both in registers.
pub(crate) struct Reinterpret<A, B>(PhantomData<(A, B)>);
impl Map1 for Reinterpret<f16, bf16> {
    type X = f32;
    type Y = f32;
    #[inline(always)]
    fn f(x: f32) -> f32 {
        bf16::from_bits(f16::narrow(x).to_bits()).widen()
    }
}
impl Map1 for Reinterpret<bf16, f16> {
    type X = f32;
    type Y = f32;
    #[inline(always)]
    fn f(x: f32) -> f32 {
        f16::from_bits(bf16::narrow(x).to_bits()).widen()
    }
}

/// Conversion between register types.
pub(crate) trait To<Y>: Copy {
    fn to(self) -> Y;
}
macro_rules! to {
    ($($x:ident => $($y:ident)*;)*) => {$($(
        impl To<$y> for $x {
            #[inline(always)]
            fn to(self) -> $y { self as $y }
        }
    )*)*};
}
to! {
    u8 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64; u16 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    u32 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64; u64 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    i8 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64; i16 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    i32 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64; i64 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    f32 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64; f64 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
}
pub(crate) struct Convert<X, Y>(PhantomData<(X, Y)>);
impl<X: To<Y>, Y: Copy> Map1 for Convert<X, Y> {
    type X = X;
    type Y = Y;
    #[inline(always)]
    fn f(x: X) -> Y {
        x.to()
    }
}
/// Anything but zero is true.
pub(crate) struct IsTrue<X>(PhantomData<X>);
impl<X: To<f64> + Default + PartialEq> Map1 for IsTrue<X> {
    type X = X;
    type Y = u8;
    #[inline(always)]
    fn f(x: X) -> u8 {
        u8::from(x != X::default())
    }
}
/// To a half, by way of `f32` as in PyTorch.
pub(crate) struct ToHalf<X, H>(PhantomData<(X, H)>);
impl<X: To<f32>, H: Half> Map1 for ToHalf<X, H> {
    type X = X;
    type Y = f32;
    #[inline(always)]
    fn f(x: X) -> f32 {
        H::round(x.to())
    }
}

/// Integer division or remainder; `c` points to a flag (`AtomicU32`) that a divisor of zero sets.
pub(crate) struct Checked<F>(PhantomData<F>);
macro_rules! checked {
    ($name:ident, $method:ident) => {
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: Int> MicroOp for Checked<$name<T>> {
            #[inline(always)]
            unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
                let (dst, a, b) = (dst.cast::<T>(), a.cast::<T>(), b.cast::<T>());
                let mut zero = false;
                for i in 0..n {
                    // SAFETY: see above.
                    unsafe {
                        let divisor = *b.add(i);
                        zero |= divisor == T::ZERO;
                        *dst.add(i) = (*a.add(i)).$method(divisor);
                    }
                }
                if zero {
                    // SAFETY: `c` points to a flag.
                    unsafe { &*c.cast::<core::sync::atomic::AtomicU32>() }
                        .store(1, core::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    };
}
checked!(DivInt, div);
checked!(RemInt, rem);

// --- reductions ---

/// `dst[i] = f(dst[i], a[i])`: one step of a reduction over tiles.
pub(crate) struct Fold<F>(PhantomData<F>);
impl<F: Map2<Y = <F as Map2>::X>> MicroOp for Fold<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a) = (dst.cast::<F::X>(), a.cast::<F::X>());
        for i in 0..n {
            // SAFETY: see above.
            unsafe { *dst.add(i) = F::f(*dst.add(i), *a.add(i)) };
        }
    }
}

/// `dst[i] += a[i]` in `f64`, and `a[i] = 0`: empties `f32` partial sums.
pub(crate) struct Flush;
impl MicroOp for Flush {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, _: u64) {
        let (dst, a) = (dst.cast::<f64>(), a.cast_mut().cast::<f32>());
        for i in 0..n {
            // SAFETY: see above; `a` is an accumulator, which is writable.
            unsafe {
                *dst.add(i) += f64::from(*a.add(i));
                *a.add(i) = 0.0;
            }
        }
    }
}

/// Asks for the cache line at `place`, which need not be in any buffer.
#[inline(always)]
fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which no address can make fail.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Lanes of partial results in reductions along a tile.
const LANES: usize = 64;

/// `dst[0] = f(dst[0], a[0], …, a[n − 1])` by lanes that are joined pairwise. Cache lines `imm` bytes ahead are asked for.
pub(crate) struct Along<F>(PhantomData<F>);

/// # Safety
/// `a` covers `n` elements.
#[inline(always)]
unsafe fn reduce_lanes<F: Map2<Y = <F as Map2>::X>>(a: *const F::X, n: usize, ahead: usize) -> Option<F::X> {
    if n < LANES {
        let mut result = None;
        for i in 0..n {
            // SAFETY: `i < n`.
            let x = unsafe { *a.add(i) };
            result = Some(result.map_or(x, |result| F::f(result, x)));
        }
        return result;
    }
    // SAFETY: there are `LANES` elements at least.
    let mut lanes: [F::X; LANES] = unsafe { a.cast::<[F::X; LANES]>().read_unaligned() };
    let mut i = LANES;
    while i + LANES <= n {
        for line in 0..LANES * size_of::<F::X>() / 64 {
            prefetch(a.wrapping_add(i).cast::<u8>().wrapping_add(ahead + line * 64));
        }
        for (lane, total) in lanes.iter_mut().enumerate() {
            // SAFETY: `i + lane < n`.
            *total = F::f(*total, unsafe { *a.add(i + lane) });
        }
        i += LANES;
    }
    for (lane, total) in lanes.iter_mut().enumerate().take(n - i) {
        // SAFETY: `i + lane < n`.
        *total = F::f(*total, unsafe { *a.add(i + lane) });
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = F::f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    Some(lanes[0])
}

impl<F: Map2<Y = <F as Map2>::X>> MicroOp for Along<F> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        let dst = dst.cast::<F::X>();
        // SAFETY: see above.
        unsafe {
            if let Some(total) = reduce_lanes::<F>(a.cast(), n, imm as usize) {
                *dst = F::f(*dst, total);
            }
        }
    }
}

/// `dst[0] = f(dst[0], a[0], …)`: lanes in `f32`, the total in `f64`.
pub(crate) struct AlongWide<F, G>(PhantomData<(F, G)>);
impl<F: Map2<X = f32, Y = f32>, G: Map2<X = f64, Y = f64>> MicroOp for AlongWide<F, G> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize, imm: u64) {
        let dst = dst.cast::<f64>();
        // SAFETY: see above.
        unsafe {
            if let Some(total) = reduce_lanes::<F>(a.cast(), n, imm as usize) {
                *dst = G::f(*dst, f64::from(total));
            }
        }
    }
}

/// Whether an element beats the best so far.
pub(crate) trait Beats<T> {
    fn beats(x: T, best: T) -> bool;
}
pub(crate) struct Larger;
pub(crate) struct Smaller;
impl<T: Num> Beats<T> for Larger {
    #[inline(always)]
    fn beats(x: T, best: T) -> bool {
        (x > best) | (x.is_nan() & !best.is_nan())
    }
}
impl<T: Num> Beats<T> for Smaller {
    #[inline(always)]
    fn beats(x: T, best: T) -> bool {
        (x < best) | (x.is_nan() & !best.is_nan())
    }
}

/// Best values in `dst`, their places (`i64`, −1 for none yet) in `c`: a step with values `a`, all at place `b` (a
/// number).
pub(crate) struct ArgFold<T, B>(PhantomData<(T, B)>);
impl<T: Num, B: Beats<T>> MicroOp for ArgFold<T, B> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
        let (dst, a, c) = (dst.cast::<T>(), a.cast::<T>(), c.cast_mut().cast::<i64>());
        let place = b.addr() as i64;
        for i in 0..n {
            // SAFETY: see above; `c` is an accumulator, which is writable.
            unsafe {
                let (x, best, at) = (*a.add(i), *dst.add(i), *c.add(i));
                let better = (at < 0) | B::beats(x, best);
                *dst.add(i) = if better { x } else { best };
                *c.add(i) = if better { place } else { at };
            }
        }
    }
}

/// The best of a tile: value in `dst[0]`, place in `c[0]`; `a[0]` stands at place `b` (a number).
pub(crate) struct ArgAlong<T, B>(PhantomData<(T, B)>);
impl<T: Num, B: Beats<T>> MicroOp for ArgAlong<T, B> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
        let (dst, a, c) = (dst.cast::<T>(), a.cast::<T>(), c.cast_mut().cast::<i64>());
        // SAFETY: see above; accumulators are one element.
        unsafe {
            let (mut best, mut at) = (*dst, *c);
            for block in (0..n).step_by(LANES) {
                let end = (block + LANES).min(n);
                let mut any = at < 0;
                for i in block..end {
                    any |= B::beats(*a.add(i), best);
                }
                if any {
                    for i in block..end {
                        if at < 0 || B::beats(*a.add(i), best) {
                            (best, at) = (*a.add(i), b.addr() as i64 + i as i64);
                        }
                    }
                }
            }
            (*dst, *c) = (best, at);
        }
    }
}

/// Joins two partial searches: `dst` and places `c` with later values `a` and places `b`.
pub(crate) struct ArgJoin<T, B>(PhantomData<(T, B)>);
impl<T: Num, B: Beats<T>> MicroOp for ArgJoin<T, B> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize, _: u64) {
        let (dst, a, c) = (dst.cast::<T>(), a.cast::<T>(), c.cast_mut().cast::<i64>());
        let b = b.cast::<i64>();
        for i in 0..n {
            // SAFETY: see above; `c` is an accumulator, which is writable.
            unsafe {
                let better = *b.add(i) >= 0 && (*c.add(i) < 0 || B::beats(*a.add(i), *dst.add(i)));
                if better {
                    *dst.add(i) = *a.add(i);
                    *c.add(i) = *b.add(i);
                }
            }
        }
    }
}
