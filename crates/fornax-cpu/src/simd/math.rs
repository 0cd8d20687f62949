//! Transcendental functions of one `f32`, written so that loops over them vectorize.
//!
//! Each function is branch-free, correct within 2 ulp over its whole domain (the tests print and bound the worst case), right at
//! ±0, ±∞, NaN, subnormal arguments and results, and gives the same bits on every instruction set. [`sin`] and [`cos`]
//! are the exception to branch-free: arguments beyond [`TRIG_LIMIT`] take a slow path. Loops should call [`sin_small`]
//! and patch large arguments afterwards, as [`slices`](super::slices) does.
//!
//! Only `+ - * /`, comparisons and integer operations are used: no fused multiply-add, since hardware without it
//! would call a library. Polynomial coefficients are minimax fits with coefficients rounded to `f32` one after another, unless
//! a source is named.

/// Adding and subtracting it rounds `|x| < 2²²` to an integer, ties to even; the low mantissa bits then hold it.
const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³

/// ln 2 in 15 bits, so that its product with an exponent is exact, and the rest (fdlibm).
const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);

/// `(n, n as i32)` for the integer `n` nearest to `x`.
#[inline(always)]
fn round(x: f32) -> (f32, i32) {
    let shifted = x + ROUND;
    (shifted - ROUND, (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
}

/// `x` limited to `lo..=hi`, where NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x < lo { lo } else { x };
    if x > hi { hi } else { x }
}

/// `2ᵏ` for `-126 ≤ k ≤ 127`; some number for any other `k`.
#[inline(always)]
fn pow2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// `y · 2ᵏ` for `|k| ≤ 252`, rounded once: the first factor cannot leave the normal range.
#[inline(always)]
fn scale(y: f32, k: i32) -> f32 {
    let half = k >> 1;
    y * pow2(half) * pow2(k.wrapping_sub(half))
}

#[inline(always)]
fn abs(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7fff_ffff)
}

/// `magnitude` with the sign of `sign`.
#[inline(always)]
fn copysign(magnitude: f32, sign: f32) -> f32 {
    f32::from_bits((magnitude.to_bits() & 0x7fff_ffff) | (sign.to_bits() & 0x8000_0000))
}

/// `eˣ` split as `(1 + y) · 2ᵏ`, given `|x| ≤ 110`.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, i32) {
    let (n, k) = round(x * core::f32::consts::LOG2_E);
    let r = (x - n * LN2_HI) - n * LN2_LO;
    // By pairs rather than by Horner's rule: a shorter chain of operations that wait for each other.
    let r2 = r * r;
    let high = r2 * 0.001_382_355_2 + (r * 0.008_368_824 + 0.041_668_236);
    let p = r2 * high + (r * 0.166_665_2 + 0.499_999_94);
    (r + r2 * p, k)
}

/// `eˣ`.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // e⁻¹⁰⁴ rounds to 0 and e⁸⁹ to ∞.
    let (y, k) = exp_parts(clamp(x, -104.0, 89.0));
    scale(1.0 + y, k)
}

/// `2ˣ`.
#[inline(always)]
#[must_use]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, k) = round(x);
    let r = x - n;
    let p = 0.000_153_282_44 * r + 0.001_339_099_7;
    let p = p * r + 0.009_618_502;
    let p = p * r + 0.055_503_596;
    let p = p * r + 0.240_226_48;
    let p = p * r + core::f32::consts::LN_2;
    scale(1.0 + r * p, k)
}

/// `eˣ − 1` for `-20 ≤ x ≤ 89`, up to the sign of zero.
#[inline(always)]
fn expm1_core(x: f32) -> f32 {
    let (n, k) = round(x * core::f32::consts::LOG2_E);
    let hi = x - n * LN2_HI;
    let lo = n * LN2_LO;
    let r = hi - lo;
    let r_err = (hi - r) - lo;
    let p = 0.000_197_592_35 * r + 0.001_393_268_5;
    let p = p * r + 0.008_333_549;
    let p = p * r + 0.041_666_49;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    // eˣ − 1 = 2ᵏ·((1 − 2⁻ᵏ) + r + r²p). The first sum may cancel (k = 1), so its rounding error is kept.
    let one = 1.0 - pow2(if k > 30 { -30 } else { k.wrapping_neg() });
    let sum = one + r;
    let r_seen = sum - one;
    let sum_err = (one - (sum - r_seen)) + (r - r_seen);
    scale(sum + (sum_err + (r_err + r * r * p)), k)
}

/// `eˣ − 1`, accurate near 0.
#[inline(always)]
#[must_use]
pub fn expm1(x: f32) -> f32 {
    let y = expm1_core(clamp(x, -20.0, 89.0));
    if x == 0.0 { x } else { y }
}

/// `x = 2ᵏ · (1 + f)` with `√½ ≤ 1 + f < √2`, for finite `x > 0`.
#[inline(always)]
fn log_parts(x: f32) -> (f32, f32) {
    let subnormal = x < f32::MIN_POSITIVE;
    let x = if subnormal { x * 33_554_432.0 } else { x }; // 2²⁵
    let bias = if subnormal { -25 } else { 0 };
    let bits = (x.to_bits() as i32).wrapping_sub(SQRT_HALF);
    let k = (bits >> 23).wrapping_add(bias);
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF) as u32);
    (k as f32, m - 1.0)
}

const SQRT_HALF: i32 = 0x3f35_04f3;

/// `s·(f²/2 + R)` of fdlibm's `log(1 + f) = f − f²/2 + s·(f²/2 + R)`, `s = f/(2 + f)`.
#[inline(always)]
fn log_tail(f: f32, half_square: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    // Coefficients of FreeBSD's k_logf.h.
    let even = w * (f32::from_bits(0x3ecc_ce13) + w * f32::from_bits(0x3e78_9e26));
    let odd = z * (f32::from_bits(0x3f2a_aaaa) + w * f32::from_bits(0x3e91_e9ee));
    s * (half_square + (odd + even))
}

/// `y`, the logarithm of finite `x > 0`, or what belongs to any other `x`.
#[inline(always)]
fn log_special(x: f32, y: f32) -> f32 {
    let y = if x < f32::INFINITY { y } else { x }; // ∞ and NaN
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 { f32::NAN } else { y }
}

/// `ln x`.
#[inline(always)]
#[must_use]
pub fn log(x: f32) -> f32 {
    let (k, f) = log_parts(x);
    let half_square = 0.5 * f * f;
    let y = k * LN2_HI - ((half_square - (log_tail(f, half_square) + k * LN2_LO)) - f);
    log_special(x, y)
}

/// `log₂ x`.
#[inline(always)]
#[must_use]
pub fn log2(x: f32) -> f32 {
    // 1/ln 2 in 12 bits and the rest; with `hi` cut to 12 bits their product is exact (FreeBSD's e_log2f.c).
    const INV_LN2_HI: f32 = f32::from_bits(0x3fb8_b000);
    const INV_LN2_LO: f32 = f32::from_bits(0xb938_9ad4);
    let (k, f) = log_parts(x);
    let half_square = 0.5 * f * f;
    let hi = f32::from_bits((f - half_square).to_bits() & 0xffff_f000);
    let lo = ((f - hi) - half_square) + log_tail(f, half_square);
    let y = (lo + hi) * INV_LN2_LO + lo * INV_LN2_HI + hi * INV_LN2_HI + k;
    log_special(x, y)
}

/// `ln(1 + x)`, accurate near 0.
#[inline(always)]
#[must_use]
pub fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    let (k, f) = log_parts(u);
    // What rounding `1 + x` lost (each difference is exact in its range), relative to `u`. For k = 0 nothing need be
    // lost: f is x itself.
    let lost = if x > 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let c = if k == 0.0 { 0.0 } else { lost / u };
    let f = if k == 0.0 { x } else { f };
    let half_square = 0.5 * f * f;
    let y = k * LN2_HI - ((half_square - (log_tail(f, half_square) + (k * LN2_LO + c))) - f);
    let y = log_special(u, y);
    if x == 0.0 { x } else { y }
}

/// Largest `|x|` for which [`sin_small`] and [`cos_small`] hold.
pub const TRIG_LIMIT: f32 = 131_072.0;

/// `x` less the nearest multiple `n` of π/2, and the low bits of `n`.
#[inline(always)]
fn trig_parts(x: f32) -> (f32, u32) {
    // π/2 in 25 bits, so that its product with n is exact, and the rest (fdlibm's e_rem_pio2f.c). One subtraction in
    // f64 costs less than the three-step reduction f32 would need.
    const PIO2_HI: f64 = f64::from_bits(0x3ff9_21fb_5000_0000);
    const PIO2_LO: f64 = f64::from_bits(0x3e51_10b4_611a_6263);
    let shifted = x * core::f32::consts::FRAC_2_PI + ROUND;
    let n = (shifted - ROUND) as f64;
    let r = (x as f64 - n * PIO2_HI) - n * PIO2_LO;
    (r as f32, shifted.to_bits())
}

/// Sine of `x` plus `quadrants` right angles, up to the sign of zero.
#[inline(always)]
fn trig(x: f32, quadrants: u32) -> f32 {
    let (r, n) = trig_parts(x);
    let n = n.wrapping_add(quadrants);
    let z = r * r;
    let s = 2.820_560_4e-6 * z - 0.000_198_520_81;
    let s = s * z + 0.008_333_378;
    let s = s * z - 0.166_666_67;
    let sin = r + r * (z * s);
    let c = 2.442_821e-5 * z - 0.001_388_728_9;
    let c = c * z + 0.041_666_646;
    let cos = 1.0 - (0.5 * z - z * (z * c));
    let y = if n & 1 == 0 { sin } else { cos };
    f32::from_bits(y.to_bits() ^ ((n & 2) << 30))
}

/// `sin x` for `|x| ≤` [`TRIG_LIMIT`], branch-free.
#[inline(always)]
#[must_use]
pub fn sin_small(x: f32) -> f32 {
    let y = trig(x, 0);
    if x == 0.0 { x } else { y }
}

/// `cos x` for `|x| ≤` [`TRIG_LIMIT`], branch-free.
#[inline(always)]
#[must_use]
pub fn cos_small(x: f32) -> f32 {
    trig(x, 1)
}

/// `sin x` (radians).
#[inline(always)]
#[must_use]
pub fn sin(x: f32) -> f32 {
    if abs(x) > TRIG_LIMIT { libm::sinf(x) } else { sin_small(x) }
}

/// `cos x` (radians).
#[inline(always)]
#[must_use]
pub fn cos(x: f32) -> f32 {
    if abs(x) > TRIG_LIMIT { libm::cosf(x) } else { cos_small(x) }
}

/// Hyperbolic tangent.
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let a = clamp(abs(x), 0.0, 10.0); // tanh 10 rounds to 1
    let z = a * a;
    let p = -0.005_689_506_4 * z + 0.020_626_366;
    let p = p * z - 0.053_736_184;
    let p = p * z + 0.133_314_04;
    let p = p * z - 0.333_332_8;
    let near = a + a * (z * p);
    let (y, k) = exp_parts(2.0 * a);
    let far = 1.0 - 2.0 / (scale(1.0 + y, k) + 1.0);
    copysign(if a < 0.625 { near } else { far }, x)
}

/// Error function `2/√π · ∫₀ˣ e^(−t²) dt`.
#[inline(always)]
#[must_use]
pub fn erf(x: f32) -> f32 {
    let a = clamp(abs(x), 0.0, 4.0); // erf 4 rounds to 1
    // Polynomials by pairs, but for the last steps, whose rounding errors count.
    let z = a * a;
    let z2 = z * z;
    let p = z2 * (-0.000_613_333_8 * z + 0.005_017_476) + (-0.026_780_5 * z + 0.112_821_154);
    let p = (p * z - 0.376_125_13) * z + 0.128_379_15;
    let near = a + a * p;
    // erf a = 1 − t(a)⁴, a polynomial in a − 7/8.
    let u = a - 0.875;
    let u2 = u * u;
    let low = u2 * (-0.006_106_863 * u - 0.000_351_924_25) + (0.051_964_648 * u - 0.015_025_165);
    let high = u2 * -3.214_708_3e-5 + (0.000_108_055_49 * u + 0.001_088_123_8);
    let t = ((u2 * u2) * high + low) * u - 0.414_154_62;
    let t = t * u + 0.681_672_4;
    let t2 = t * t;
    let far = 1.0 - t2 * t2;
    copysign(if a < 0.875 { near } else { far }, x)
}
