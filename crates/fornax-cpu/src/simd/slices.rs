//! The functions of [`math`] over slices, and their `f64` twins.
//!
//! `name(isa, dst, src)` writes `dst[i] = name(src[i])`; `name_in_place(isa, x)` overwrites its argument. Every
//! function panics if the two lengths differ. The `f64` functions call `libm` element by element for now.

use super::math;
use crate::multiversion;

/// Elements between two looks for large arguments of sine and cosine.
const BLOCK: usize = 128;

macro_rules! vectorized {
    ($($name:ident, $in_place:ident;)*) => {
        multiversion! {$(
            #[doc = concat!("`dst[i] = ", stringify!($name), "(src[i])`, bit for bit [`math::", stringify!($name), "`].")]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                assert_eq!(dst.len(), src.len(), concat!(stringify!($name), ": lengths differ"));
                for (d, s) in dst.iter_mut().zip(src) {
                    *d = math::$name(*s);
                }
            }

            #[doc = concat!("`x[i] = ", stringify!($name), "(x[i])`.")]
            pub fn $in_place(x: &mut [f32]) {
                for v in x {
                    *v = math::$name(*v);
                }
            }
        )*}
    };
}

vectorized! {
    exp, exp_in_place;
    exp2, exp2_in_place;
    expm1, expm1_in_place;
    log, log_in_place;
    log2, log2_in_place;
    log1p, log1p_in_place;
    tanh, tanh_in_place;
    erf, erf_in_place;
}

macro_rules! trigonometric {
    ($($name:ident, $in_place:ident, $small:ident, $slow:path;)*) => {
        multiversion! {$(
            #[doc = concat!("`dst[i] = ", stringify!($name), "(src[i])`, bit for bit [`math::", stringify!($name), "`].")]
            pub fn $name(dst: &mut [f32], src: &[f32]) {
                assert_eq!(dst.len(), src.len(), concat!(stringify!($name), ": lengths differ"));
                for (dst, src) in dst.chunks_mut(BLOCK).zip(src.chunks(BLOCK)) {
                    let mut large = false;
                    for (d, s) in dst.iter_mut().zip(src) {
                        large |= s.abs() > math::TRIG_LIMIT;
                        *d = math::$small(*s);
                    }
                    if large {
                        for (d, s) in dst.iter_mut().zip(src) {
                            if s.abs() > math::TRIG_LIMIT {
                                *d = $slow(*s);
                            }
                        }
                    }
                }
            }

            #[doc = concat!("`x[i] = ", stringify!($name), "(x[i])`.")]
            pub fn $in_place(x: &mut [f32]) {
                for x in x.chunks_mut(BLOCK) {
                    let large = x.iter().fold(false, |large, v| large | (v.abs() > math::TRIG_LIMIT));
                    if large {
                        for v in x {
                            *v = math::$name(*v);
                        }
                    } else {
                        for v in x {
                            *v = math::$small(*v);
                        }
                    }
                }
            }
        )*}
    };
}

trigonometric! {
    sin, sin_in_place, sin_small, libm::sinf;
    cos, cos_in_place, cos_small, libm::cosf;
}

macro_rules! through_libm {
    ($($name:ident, $libm:ident;)*) => {$(
        #[doc = concat!("`dst[i] = ", stringify!($libm), "(src[i])` in `f64`.")]
        pub fn $name(dst: &mut [f64], src: &[f64]) {
            assert_eq!(dst.len(), src.len(), concat!(stringify!($name), ": lengths differ"));
            for (d, s) in dst.iter_mut().zip(src) {
                *d = libm::$libm(*s);
            }
        }
    )*};
}

through_libm! {
    exp_f64, exp;
    exp2_f64, exp2;
    expm1_f64, expm1;
    log_f64, log;
    log2_f64, log2;
    log1p_f64, log1p;
    sin_f64, sin;
    cos_f64, cos;
    tanh_f64, tanh;
    erf_f64, erf;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;
    use std::vec::Vec;

    struct Case {
        name: &'static str,
        slice: fn(Isa, &mut [f32], &[f32]),
        in_place: fn(Isa, &mut [f32]),
        scalar: fn(f32) -> f32,
        reference: fn(f64) -> f64,
        /// Worst error allowed, in units in the last place of the result.
        ulp: f64,
    }

    macro_rules! case {
        ($name:ident, $in_place:ident, $ulp:expr) => {
            Case {
                name: stringify!($name),
                slice: $name,
                in_place: $in_place,
                scalar: math::$name,
                reference: libm::$name,
                ulp: $ulp,
            }
        };
    }

    fn cases() -> [Case; 10] {
        [
            case!(exp, exp_in_place, 2.0),
            case!(exp2, exp2_in_place, 2.0),
            case!(expm1, expm1_in_place, 2.0),
            case!(log, log_in_place, 2.0),
            case!(log2, log2_in_place, 2.0),
            case!(log1p, log1p_in_place, 2.0),
            case!(sin, sin_in_place, 2.0),
            case!(cos, cos_in_place, 2.0),
            case!(tanh, tanh_in_place, 2.0),
            case!(erf, erf_in_place, 2.0),
        ]
    }

    /// Every exponent and sign with many mantissas, then denser cover of where functions are interesting.
    fn samples() -> Vec<f32> {
        let specials =
            [0.0, 1.0, 88.722_84, 88.72283, 103.97, 104.1, 87.33, 126.0, 128.0, 149.0, 149.5, 150.0, 16.6, 9.02];
        let mut x: Vec<f32> = specials.iter().flat_map(|&x| [x, -x]).collect();
        x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, f32::MIN_POSITIVE]);
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 9
        };
        for exponent in 0..255u32 {
            for mantissa in [0, 1, 0x40_0000, 0x35_04f3, 0x35_04f2, 0x7f_ffff] {
                x.extend([f32::from_bits(exponent << 23 | mantissa), -f32::from_bits(exponent << 23 | mantissa)]);
            }
            // The interesting range is 2⁻¹²..2⁸; sin and cos go further.
            let n = if (115..135).contains(&exponent) { 10_000 } else { 300 };
            for i in 0..n {
                let v = f32::from_bits(exponent << 23 | random());
                x.push(if i % 2 == 0 { v } else { -v });
            }
        }
        // Next to multiples of π/2, where sine and cosine cancel.
        for n in 1..20_000 {
            let v = (n as f64 * core::f64::consts::FRAC_PI_2) as f32;
            x.extend([v, f32::from_bits(v.to_bits() + 1), f32::from_bits(v.to_bits() - 1)]);
        }
        x
    }

    fn ulp_error(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if rounded.is_nan() || got.is_nan() {
            return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if rounded.is_infinite() || got.is_infinite() || rounded == 0.0 {
            let exact = got == rounded && got.is_sign_negative() == rounded.is_sign_negative();
            // A result on the other side of overflow or underflow is one ulp off.
            let next = (got.abs() == f32::MAX && rounded.is_infinite()) || got.to_bits() & 0x7fff_ffff <= 1;
            return if exact {
                0.0
            } else if next {
                1.0
            } else {
                f64::INFINITY
            };
        }
        let exponent = ((rounded.to_bits() >> 23) & 0xff).max(1) as i32 - 127 - 23;
        (got as f64 - want).abs() / 2f64.powi(exponent)
    }

    #[test]
    fn functions_are_within_their_ulp_bound() {
        let x = samples();
        for case in cases() {
            let (mut worst, mut at, mut sum) = (0.0, 0.0, 0.0);
            for &x in &x {
                let error = ulp_error((case.scalar)(x), (case.reference)(x as f64));
                sum += error;
                if error > worst {
                    (worst, at) = (error, x);
                }
            }
            std::println!("{:6} worst {worst:.3} ulp at {at:e}, mean {:.3}", case.name, sum / x.len() as f64);
            assert!(
                worst <= case.ulp,
                "{}({at:e}): {worst} ulp, got {:e}, expected {:e}",
                case.name,
                (case.scalar)(at),
                (case.reference)(at as f64)
            );
        }
    }

    #[test]
    fn slices_equal_scalars_bit_for_bit_on_every_isa() {
        let x = samples();
        for case in cases() {
            for isa in Isa::available() {
                let mut y = std::vec![0.0; x.len()];
                (case.slice)(isa, &mut y, &x);
                let mut z = x.clone();
                (case.in_place)(isa, &mut z);
                for ((x, y), z) in x.iter().zip(&y).zip(&z) {
                    let want = (case.scalar)(*x);
                    // The sign and payload of a NaN are not promised.
                    let same = |a: f32| a.to_bits() == want.to_bits() || (a.is_nan() && want.is_nan());
                    assert!(same(*y) && same(*z), "{} {}({x:e}): {y:e}, {z:e}, scalar {want:e}", isa.name(), case.name);
                }
            }
        }
    }
}
