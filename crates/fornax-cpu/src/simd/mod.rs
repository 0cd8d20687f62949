//! Which instructions this machine has, and loops compiled once per instruction set.
//!
//! Start at [`Isa::best`] and the macro [`multiversion!`](crate::multiversion). [`math`] holds the scalar bodies
//! of the transcendental functions, [`slices`] applies them to slices, [`half`] converts `f16` and `bf16`.
//! Matrix products live in [`crate::gemm`].
//!
//! # Same bits everywhere
//! Nothing in this module contracts `a * b + c` into one rounding, so every [`Isa`] gives the same bits. Rust never
//! contracts by itself; do not write `mul_add` in a multiversioned body.

pub mod half;
pub mod math;
pub mod slices;

#[cfg(feature = "std")]
use std::sync::OnceLock;

/// An instruction set that the running machine is known to have.
///
/// The variants beyond [`Isa::Scalar`] carry a proof that only detection hands out, which is what makes it sound to
/// jump into code compiled for them. On aarch64 and wasm the baseline already holds NEON or (when the build enables it)
/// simd128, so [`Isa::Scalar`] is vectorized there too; a further level would be a new variant here and one arm in
/// [`multiversion!`](crate::multiversion).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What the compile target guarantees (SSE2 on x86-64, NEON on aarch64).
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2(Avx2),
    /// AVX-512 F, BW, DQ and VL, with FMA and F16C.
    Avx512(Avx512),
}

/// Proof that AVX2, FMA and F16C were detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2(());

/// Proof that AVX-512 F, BW, DQ, VL, AVX2, FMA and F16C were detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512(());

impl Isa {
    /// The widest instruction set of this machine, found once.
    ///
    /// The environment variable `FORNAX_SIMD` (`scalar`, `avx2` or `avx512`) lowers the choice; a value that is unknown
    /// or that the machine lacks is ignored. Without feature `std` this is [`Isa::Scalar`].
    ///
    /// ```
    /// let isa = fornax_cpu::simd::Isa::best();
    /// assert!(fornax_cpu::simd::Isa::available().contains(&isa));
    /// ```
    #[inline]
    #[must_use]
    pub fn best() -> Isa {
        #[cfg(feature = "std")]
        {
            static BEST: OnceLock<Isa> = OnceLock::new();
            *BEST.get_or_init(|| {
                let wanted = std::env::var("FORNAX_SIMD").unwrap_or_default();
                let available = Isa::available();
                let named = available.clone().find(|isa| isa.name() == wanted.trim());
                named.or(available.last()).unwrap_or(Isa::Scalar)
            })
        }
        #[cfg(not(feature = "std"))]
        Isa::Scalar
    }

    /// Every instruction set of this machine, narrowest first. Tests loop over it.
    #[must_use]
    pub fn available() -> Available {
        Available { isas: [Some(Isa::Scalar), detect_avx2(), detect_avx512()], next: 0 }
    }

    /// The name that `FORNAX_SIMD` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2(_) => "avx2",
            Isa::Avx512(_) => "avx512",
        }
    }
}

/// Iterator of [`Isa::available`].
#[derive(Clone, Debug)]
pub struct Available {
    isas: [Option<Isa>; 3],
    next: usize,
}

impl Available {
    /// Whether `isa` is still to come.
    #[must_use]
    pub fn contains(mut self, isa: &Isa) -> bool {
        self.any(|other| other == *isa)
    }
}

impl Iterator for Available {
    type Item = Isa;
    fn next(&mut self) -> Option<Isa> {
        while let Some(slot) = self.isas.get(self.next) {
            self.next += 1;
            if slot.is_some() {
                return *slot;
            }
        }
        None
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn detect_avx2() -> Option<Isa> {
    use std::arch::is_x86_feature_detected as has;
    (has!("avx2") && has!("fma") && has!("f16c")).then_some(Isa::Avx2(Avx2(())))
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn detect_avx512() -> Option<Isa> {
    use std::arch::is_x86_feature_detected as has;
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    (wide && detect_avx2().is_some()).then_some(Isa::Avx512(Avx512(())))
}

#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
fn detect_avx2() -> Option<Isa> {
    None
}

#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
fn detect_avx512() -> Option<Isa> {
    None
}

/// Compiles functions once per instruction set and picks one by a leading [`Isa`] argument.
///
/// The body is an ordinary loop over slices; LLVM vectorizes each copy for the instructions it may use. Write it so
/// that it can:
///
/// - no early exit, no panic inside the loop: iterate with `zip`, or cut all slices to one length first;
/// - no branch with side effects: `if c { a } else { b }` on plain values becomes a blend;
/// - functions called in the loop, closures included, must be inlined: mark them `#[inline(always)]`. A call that is
///   not inlined is compiled for the baseline. Operations are best passed as types implementing a trait with an
///   `#[inline(always)]` method;
/// - no `mul_add` (see [`simd`](crate::simd)).
///
/// # Form
/// `fn name<T, U; const N: usize>(args) -> R where [bounds] { body }`. Type parameters are plain names, then, after a
/// semicolon, come const ones; bounds go into the bracketed `where [..]`.
///
/// ```
/// use fornax_cpu::{multiversion, simd::Isa};
///
/// pub trait Map {
///     fn map(x: f32) -> f32;
/// }
/// pub struct Relu;
/// impl Map for Relu {
///     #[inline(always)]
///     fn map(x: f32) -> f32 {
///         if x < 0.0 { 0.0 } else { x }
///     }
/// }
///
/// multiversion! {
///     /// `dst[i] = M(src[i])`.
///     pub fn map<M>(dst: &mut [f32], src: &[f32]) where [M: Map] {
///         for (d, s) in dst.iter_mut().zip(src) {
///             *d = M::map(*s);
///         }
///     }
/// }
///
/// let mut dst = [0.0; 3];
/// map::<Relu>(Isa::best(), &mut dst, &[-1.0, 0.5, 2.0]);
/// assert_eq!(dst, [0.0, 0.5, 2.0]);
/// ```
///
/// expands (docs left out) to
///
/// ```ignore
/// pub fn map<M>(isa: Isa, dst: &mut [f32], src: &[f32]) where M: Map {
///     #[inline(always)]
///     fn body<M>(dst: &mut [f32], src: &[f32]) where M: Map { /* the loop */ }
///     #[target_feature(enable = "avx2,fma,f16c")]
///     fn avx2<M>(dst: &mut [f32], src: &[f32]) where M: Map { body::<M>(dst, src) }
///     #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
///     fn avx512<M>(dst: &mut [f32], src: &[f32]) where M: Map { body::<M>(dst, src) }
///     match isa {
///         Isa::Scalar => body::<M>(dst, src),
///         Isa::Avx2(_) => unsafe { avx2::<M>(dst, src) },     // SAFETY: the variant is the proof
///         Isa::Avx512(_) => unsafe { avx512::<M>(dst, src) },
///     }
/// }
/// ```
///
/// An `unsafe fn` is written as such; its body is then an unsafe context that needs its own `unsafe` blocks.
#[macro_export]
macro_rules! multiversion {
    ($(
        $(#[$attr:meta])*
        $vis:vis fn $name:ident $(<$($gen:ident),* $(; $(const $n:ident : $n_ty:ty),+)?>)?
        ($($arg:ident : $arg_ty:ty),* $(,)?) $(-> $ret:ty)? $(where [$($bounds:tt)*])? $body:block
    )*) => {$(
        $crate::multiversion!(@one [$(#[$attr])*] [$vis] [] $name
            [$($($gen,)* $($(const $n: $n_ty,)+)?)?] [$($($gen,)* $($($n,)+)?)?]
            [$($arg: $arg_ty),*] [$($arg),*] [$($ret)?] [$($($bounds)*)?] $body);
    )*};
    ($(
        $(#[$attr:meta])*
        $vis:vis unsafe fn $name:ident $(<$($gen:ident),* $(; $(const $n:ident : $n_ty:ty),+)?>)?
        ($($arg:ident : $arg_ty:ty),* $(,)?) $(-> $ret:ty)? $(where [$($bounds:tt)*])? $body:block
    )*) => {$(
        $crate::multiversion!(@one [$(#[$attr])*] [$vis] [unsafe] $name
            [$($($gen,)* $($(const $n: $n_ty,)+)?)?] [$($($gen,)* $($($n,)+)?)?]
            [$($arg: $arg_ty),*] [$($arg),*] [$($ret)?] [$($($bounds)*)?] $body);
    )*};
    (@one [$(#[$attr:meta])*] [$vis:vis] [$($unsafe:ident)?] $name:ident
        [$($decl:tt)*] [$($use:tt)*] [$($arg:ident : $arg_ty:ty),*] [$($pass:ident),*] [$($ret:ty)?]
        [$($bounds:tt)*] $body:block) => {
        $(#[$attr])*
        #[inline]
        $vis $($unsafe)? fn $name<$($decl)*>(isa: $crate::simd::Isa, $($arg: $arg_ty),*) $(-> $ret)?
        where $($bounds)*
        {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            $($unsafe)? fn body<$($decl)*>($($arg: $arg_ty),*) $(-> $ret)? where $($bounds)* $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            $($unsafe)? fn avx2<$($decl)*>($($arg: $arg_ty),*) $(-> $ret)? where $($bounds)* {
                $crate::multiversion!(@call [$($unsafe)?] body::<$($use)*>($($pass),*))
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            $($unsafe)? fn avx512<$($decl)*>($($arg: $arg_ty),*) $(-> $ret)? where $($bounds)* {
                $crate::multiversion!(@call [$($unsafe)?] body::<$($use)*>($($pass),*))
            }

            match isa {
                // SAFETY: a variant beyond `Scalar` is handed out only where its instructions were detected; what else
                // an `unsafe` body asks for is asked of the caller too.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx2(_) => unsafe { avx2::<$($use)*>($($pass),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx512(_) => unsafe { avx512::<$($use)*>($($pass),*) },
                #[cfg(not(target_arch = "x86_64"))]
                $crate::simd::Isa::Avx2(_) | $crate::simd::Isa::Avx512(_) => {
                    $crate::multiversion!(@call [$($unsafe)?] body::<$($use)*>($($pass),*))
                }
                $crate::simd::Isa::Scalar => {
                    $crate::multiversion!(@call [$($unsafe)?] body::<$($use)*>($($pass),*))
                }
            }
        }
    };
    (@call [] $call:expr) => { $call };
    // SAFETY: the caller of the multiversioned function vouches for what its body asks.
    (@call [unsafe] $call:expr) => { unsafe { $call } };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::multiversion! {
        fn sum_of_squares<T; const N: usize>(x: &[T]) -> T where [T: Copy + core::ops::Mul<Output = T> + core::iter::Sum] {
            x.chunks(N).map(|c| c.iter().map(|v| *v * *v).sum::<T>()).sum()
        }
    }

    crate::multiversion! {
        /// # Safety
        /// `x` points to one readable value.
        unsafe fn read(x: *const f32) -> f32 {
            // SAFETY: by contract.
            unsafe { *x }
        }
    }

    #[test]
    fn every_isa_runs_and_agrees() {
        let x: [f32; 100] = core::array::from_fn(|i| i as f32);
        for isa in Isa::available() {
            assert_eq!(sum_of_squares::<_, 8>(isa, &x), 328_350.0, "{}", isa.name());
            // SAFETY: `x` has elements.
            assert_eq!(unsafe { read(isa, x[3..].as_ptr()) }, 3.0);
        }
    }
}
