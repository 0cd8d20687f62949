//! Gamma functions, and Hurwitz's zeta function, computed in `f64` and rounded once.

use super::binary::pair;
use super::elementwise::float;
use super::special::{in_f64, polynomial, sin_pi, special};
use crate::operand::{IntoOperand, Operand};
use crate::ops::Args;
use crate::primitive::broadcast;
use crate::{DType, Error, Result, Tensor};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;
use fornax_macros::ops;

#[ops(group = "unary", records = RECORDS)]
impl Tensor {
    /// `ln |Γ(x)|`.
    #[op(torch = ["lgamma", "special.gammaln"], domain = (0.3, 4.0))]
    pub fn lgamma(&self) -> Result<Tensor> {
        special(self, lgamma, Tensor::digamma)
    }

    /// The derivative of `ln Γ(x)`.
    #[op(torch = ["digamma", "special.digamma", "special.psi"], domain = (0.3, 4.0))]
    pub fn digamma(&self) -> Result<Tensor> {
        special(self, digamma, Tensor::trigamma)
    }

    /// The second derivative of `ln Γ(x)`.
    #[op(torch = [], domain = (0.3, 4.0))]
    pub fn trigamma(&self) -> Result<Tensor> {
        in_f64(&float(self)?, trigamma)
    }

    /// The derivative of order `n` of [`Tensor::digamma`].
    #[op(torch = ["polygamma", "special.polygamma"], domain = (0.3, 4.0), call = call_polygamma)]
    pub fn polygamma(&self, n: u32) -> Result<Tensor> {
        match n {
            0 => return self.try_digamma(),
            1 => return self.try_trigamma(),
            _ => {}
        }
        special(self, |x| polygamma(x, n), move |x| x.polygamma(n + 1))
    }

    /// `ln Γₚ(x)`, of the multivariate gamma function: `¼ p (p − 1) ln π + Σ ln Γ(x + (1 − j) / 2)` over `j` from 1 to `p`.
    #[op(torch = ["mvlgamma", "special.multigammaln"], domain = (1.2, 4.0), call = call_multigammaln)]
    pub fn multigammaln(&self, p: u32) -> Result<Tensor> {
        if p == 0 {
            return Err(Error::argument("multigammaln", "p is at least 1"));
        }
        in_f64(&float(self)?, |x| {
            let mut sum = x.full_like(0.25 * f64::from(p) * f64::from(p - 1) * libm::log(PI));
            for j in 0..p {
                sum += (x - 0.5 * f64::from(j)).lgamma();
            }
            sum
        })
    }
}

#[ops(group = "binary", records = BINARY)]
impl Tensor {
    /// Hurwitz's zeta function `Σ (k + other)^(−self)` over `k ≥ 0`, by the Euler–Maclaurin formula; NaN for `other` below −3.
    #[op(torch = ["special.zeta"], with(other = Operand), call = call_zeta, grad = false)]
    pub fn zeta(&self, other: impl IntoOperand) -> Result<Tensor> {
        let other = other.into_operand();
        let x = float(self)?;
        let (x, q) = pair("zeta", &x, &other)?;
        let q = q.try_to_dtype(DType::F64)?;
        in_f64(&x, |x| zeta(x, &q))
    }

    /// The regularized lower incomplete gamma function `P(self, other)`.
    #[op(torch = ["igamma", "special.gammainc"], grad = false)]
    pub fn igamma(&self, other: &Tensor) -> Result<Tensor> {
        let (a, x) = broadcast("igamma", &self.into_operand(), &other.into_operand(), self.dtype())?;
        let x = x.try_to_dtype(DType::F64)?;
        in_f64(&a, |a| igamma(a, &x, Tail::Lower))
    }

    /// The regularized upper incomplete gamma function `Q(self, other) = 1 − P(self, other)`, accurate where that is small.
    #[op(torch = ["igammac", "special.gammaincc"], grad = false)]
    pub fn igammac(&self, other: &Tensor) -> Result<Tensor> {
        let (a, x) = broadcast("igammac", &self.into_operand(), &other.into_operand(), self.dtype())?;
        let x = x.try_to_dtype(DType::F64)?;
        in_f64(&a, |a| igamma(a, &x, Tail::Upper))
    }
}

/// Stirling's series from 8 on; below, down the recurrence to the Taylor series at 2, so that the zeros at 1 and 2 keep
/// their digits; the reflection formula below ½.
#[track_caller]
fn lgamma(x: &Tensor) -> Tensor {
    let reflected = x.lt(0.5);
    let z = reflected.where_(1.0 - x, x);
    let is_far = z.ge(8.0);
    let up = z.maximum(8.0);
    let inverse = up.reciprocal();
    let series = polynomial(&(&inverse * &inverse), &STIRLING) * &inverse;
    let far = (&up - 0.5) * up.log() - &up + 0.918_938_533_204_672_7 + series;

    // z = u + 2 + a whole number, u in ±½; the whole number is −1 to 6.
    let near = z.minimum(8.0);
    let whole = (&near - 1.5).floor();
    let u = &near - (&whole + 2.0);
    let mut product = u.ones_like();
    for step in 1..=6 {
        let factor = &near - f64::from(step);
        product *= whole.ge(f64::from(step)).where_(factor, 1.0);
    }
    let below = whole.lt(0.0).where_(u.log1p(), 0.0);
    let near = polynomial(&u, &LN_GAMMA_AT_2) * &u + product.log() - below;

    let right = is_far.where_(far, near);
    let left = (sin_pi(x).abs().reciprocal() * PI).log() - &right;
    let y = reflected.where_(left, right);
    x.abs().eq(f64::INFINITY).where_(f64::INFINITY, y)
}

/// `B₂ₙ / (2n (2n − 1))`, the series of `ln Γ(z)` in `z^(1 − 2n)`.
const STIRLING: [f64; 8] = [
    1.0 / 12.0,
    -1.0 / 360.0,
    1.0 / 1260.0,
    -1.0 / 1680.0,
    1.0 / 1188.0,
    -691.0 / 360_360.0,
    1.0 / 156.0,
    -3617.0 / 122_400.0,
];

/// Taylor coefficients of `ln Γ(2 + u) / u`: `1 − γ`, then `(−1)ᵏ (ζ(k) − 1) / k`.
const LN_GAMMA_AT_2: [f64; 26] = [
    0.422_784_335_098_467_13,
    0.322_467_033_424_113_2,
    -0.067_352_301_053_198_1,
    0.020_580_808_427_784_546,
    -0.007_385_551_028_673_986,
    0.002_890_510_330_741_523_4,
    -0.001_192_753_911_703_261,
    0.000_509_669_524_743_042_5,
    -0.000_223_154_758_453_579_39,
    9.945_751_278_180_853e-05,
    -4.492_623_673_813_314e-05,
    2.050_721_277_567_069e-05,
    -9.439_488_275_268_397e-06,
    4.374_866_789_907_488e-06,
    -2.039_215_753_801_366e-06,
    9.551_412_130_407_42e-07,
    -4.492_469_198_764_566e-07,
    2.120_718_480_555_466_5e-07,
    -1.004_322_482_396_809_9e-07,
    4.769_810_169_363_980_4e-08,
    -2.271_109_460_894_316_4e-08,
    1.083_865_921_489_695_5e-08,
    -5.183_475_041_970_047e-09,
    2.483_674_543_802_478_5e-09,
    -1.192_140_140_586_091_2e-09,
    5.731_367_241_678_862e-10,
];

/// The asymptotic series eight steps up the recurrence; the reflection formula below 0.
#[track_caller]
fn digamma(x: &Tensor) -> Tensor {
    let reflected = x.lt(0.0);
    let z = reflected.where_(1.0 - x, x);
    let mut steps = z.reciprocal();
    for step in 1..8 {
        steps += (&z + f64::from(step)).reciprocal();
    }
    let up = &z + 8.0;
    let inverse = up.reciprocal();
    let square = &inverse * &inverse;
    let series = polynomial(
        &square,
        &[
            1.0 / 12.0,
            -1.0 / 120.0,
            1.0 / 252.0,
            -1.0 / 240.0,
            1.0 / 132.0,
            -691.0 / 32_760.0,
            1.0 / 12.0,
            -3617.0 / 8160.0,
        ],
    ) * &square;
    let right = up.log() - inverse * 0.5 - series - steps;
    let whole = x.round();
    let turn = (x - &whole) * PI;
    let left = &right - turn.cos() / turn.sin() * PI;
    let y = reflected.where_(left, right);
    let y = x.eq(whole).logical_and(&reflected).where_(f64::NAN, y);
    // A zero has a sign: the pole is −∞ at +0, +∞ at −0.
    let pole = x.signbit().where_(x.full_like(f64::INFINITY), f64::NEG_INFINITY);
    x.eq(0.0).where_(pole, y)
}

/// The asymptotic series ten steps up the recurrence; the reflection formula below ½.
#[track_caller]
fn trigamma(x: &Tensor) -> Tensor {
    let reflected = x.lt(0.5);
    let z = reflected.where_(1.0 - x, x);
    let mut steps = z.square().reciprocal();
    for step in 1..10 {
        steps += (&z + f64::from(step)).square().reciprocal();
    }
    let inverse = (&z + 10.0).reciprocal();
    let square = &inverse * &inverse;
    let series = polynomial(
        &square,
        &[1.0, 1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0],
    );
    let right = &inverse * series + &square * 0.5 + steps;
    // What is not reflected must not pass a pole: its slope would be 0 · ∞.
    let left = (sin_pi(&reflected.where_(x, 0.25)).reciprocal() * PI).square() - &right;
    reflected.where_(left, right)
}

/// `(−1)ⁿ⁺¹ n! ζ(n + 1, x)`; the reflection formula below 0.
///
/// Abramowitz, Stegun (1964), *Handbook of Mathematical Functions*, 6.4.7 and 6.4.10.
#[track_caller]
fn polygamma(x: &Tensor, n: u32) -> Tensor {
    let sign = if n.is_multiple_of(2) { 1.0 } else { -1.0 };
    let factor = (2..=n).fold(-sign, |product, k| product * f64::from(k));
    let reflected = x.lt(0.0);
    let z = reflected.where_(1.0 - x, x);
    let right = zeta(&z.full_like(f64::from(n) + 1.0), &z) * factor;

    // The n-th derivative of π cot(πx) is πⁿ⁺¹ times a polynomial of c = cot(πx): c' = −π (1 + c²).
    let mut powers = vec![0.0, 1.0];
    for _ in 0..n {
        let mut next = vec![0.0; powers.len() + 1];
        for (k, &coefficient) in powers.iter().enumerate().skip(1) {
            next[k - 1] -= k as f64 * coefficient;
            next[k + 1] -= k as f64 * coefficient;
        }
        powers = next;
    }
    let turn = (x - x.round()) * PI;
    let cot = turn.cos() / turn.sin();
    let left = &right * sign - polynomial(&cot, &powers) * libm::pow(PI, f64::from(n) + 1.0);
    let y = reflected.where_(left, right);
    let is_pole = x.le(0.0).logical_and(&x.eq(x.round()));
    is_pole.where_(factor * f64::INFINITY, y)
}

/// Bernoulli numbers `B₂ⱼ / (2j)!` of the Euler–Maclaurin formula.
const EULER_MACLAURIN: [f64; 7] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
];

#[track_caller]
fn zeta(x: &Tensor, q: &Tensor) -> Tensor {
    let steps = 12;
    let minus_x = x.neg();
    let mut sum = q.pow(&minus_x);
    for k in 1..steps {
        sum += (q + f64::from(k)).pow(&minus_x);
    }
    let end = q + f64::from(steps);
    let power = end.pow(&minus_x);
    sum = sum + &end * &power / (x - 1.0) + &power * 0.5;
    let mut factor = x * &power / &end;
    for (j, coefficient) in EULER_MACLAURIN.into_iter().enumerate() {
        sum += &factor * coefficient;
        let j = j as f64;
        factor = factor * (x + (2.0 * j + 1.0)) * (x + (2.0 * j + 2.0)) / (&end * &end);
    }
    let is_whole = q.eq(q.floor());
    let left = q.le(0.0);
    let broken = left.logical_and(&is_whole.logical_not()).logical_and(&x.ne(x.floor()));
    // Further left the formula would begin too near to 0.
    let broken = broken.logical_or(&q.lt(-3.0));
    let y = broken.where_(f64::NAN, sum);
    let y = left.logical_and(&is_whole).where_(f64::INFINITY, y);
    let y = x.lt(1.0).where_(f64::NAN, y);
    x.eq(1.0).where_(f64::INFINITY, y)
}

/// Which part of the integral.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    /// From 0 to `x`: `P`.
    Lower,
    /// From `x` on: `Q`.
    Upper,
}

impl Tail {
    /// Of `p` where `is_p`, else of `q`: the one that was computed, or what it leaves of 1.
    #[track_caller]
    fn of(self, is_p: &Tensor, p: &Tensor, q: &Tensor) -> Tensor {
        match self {
            Tail::Lower => is_p.where_(p, 1.0 - q),
            Tail::Upper => is_p.where_(1.0 - p, q),
        }
    }

    /// This tail where there is all of the integral below `x` (1), or none (0).
    fn of_whole(self, below: bool) -> f64 {
        if below == (self == Tail::Lower) { 1.0 } else { 0.0 }
    }
}

/// The series up to `a + 1` and Lentz's continued fraction beyond; for `a` from 100 on, the series up to `0.6 a` and the
/// tail of the integral beyond.
///
/// Press et al. (2007), *Numerical Recipes*, section 6.2.
#[track_caller]
fn igamma(a: &Tensor, x: &Tensor, tail: Tail) -> Tensor {
    let (none, all) = (tail.of_whole(false), tail.of_whole(true));
    let is_large = a.ge(100.0);
    let is_middle = is_large.logical_and(&x.ge(a * 0.6));
    let small = igamma_small(&is_middle.where_(1.0, a), x, tail);
    let y = is_middle.where_(igamma_large(&is_middle.where_(a, 100.0), x, tail), small);
    let y = x.eq(0.0).where_(none, y);
    let y = x.eq(f64::INFINITY).where_(all, y);
    let y = a.eq(f64::INFINITY).logical_and(&x.lt(f64::INFINITY)).where_(none, y);
    let y = a.eq(0.0).logical_and(&x.gt(0.0)).where_(all, y);
    let undefined = a.lt(0.0).logical_or(&x.lt(0.0)).logical_or(&x.isnan()).logical_or(&a.isnan());
    let undefined = undefined.logical_or(&a.eq(0.0).logical_and(&x.eq(0.0)));
    undefined.logical_or(&a.eq(f64::INFINITY).logical_and(&x.eq(f64::INFINITY))).where_(f64::NAN, y)
}

#[track_caller]
fn igamma_small(a: &Tensor, x: &Tensor, tail: Tail) -> Tensor {
    // A far `x` would only overflow on the way to 1.
    let x = &x.minimum(1e4);
    let front = (x.log() * a - x - a.lgamma()).exp();
    // Where large numbers would cancel: from Stirling's series.
    let part = x / a;
    let far = (part.log() + 1.0 - part) * a - (a.reciprocal() - (a * a * a * 30.0).reciprocal()) * (1.0 / 12.0);
    let far = far.exp() * (a * (0.5 * core::f64::consts::FRAC_1_PI)).sqrt();
    let front = a.ge(100.0).where_(far, front);
    let mut term = a.reciprocal();
    let mut sum = term.clone();
    for n in 1..=128 {
        term = term * x / (a + f64::from(n));
        sum += &term;
    }
    let series = &front * sum;
    let mut b = x + 1.0 - a;
    let mut c = Tensor::full(b.shape(), 1e300, DType::F64, b.device());
    let mut d = b.reciprocal();
    let mut h = d.clone();
    for i in 1..=96 {
        let i = f64::from(i);
        let an = (a - i) * i;
        b += 2.0;
        d = (&an * d + &b).reciprocal();
        c = &b + an / c;
        h = h * &d * &c;
    }
    tail.of(&x.lt(a + 1.0), &series, &(front * h))
}

/// `∫ t^(a−1) e^(−t) dt` from `x` to where nothing is left, away from the peak at `a − 1`.
#[track_caller]
fn igamma_large(a: &Tensor, x: &Tensor, tail: Tail) -> Tensor {
    let peak = a - 1.0;
    let width = peak.sqrt();
    let is_right = x.gt(&peak);
    let right = (&peak + &width * 11.5).maximum(x + &width * 6.0);
    let left = (&peak - &width * 7.5).minimum(x - &width * 5.0).maximum(0.0);
    let length = is_right.where_(right, left) - x;
    let mut sum = x.zeros_like();
    for (node, weight) in GAUSS_LEGENDRE {
        // The integrand over its peak, in which no large numbers cancel.
        let u = (x + &length * node - &peak) / &peak;
        sum += ((u.log1p() - &u) * &peak).exp() * weight;
    }
    let stirling = (peak.reciprocal() * (-1.0 / 12.0) + (&peak * &peak * &peak * 360.0).reciprocal()).exp();
    let area = sum * length * stirling / (peak * (2.0 * PI)).sqrt();
    let y = tail.of(&is_right.logical_not(), &area.neg(), &area);
    // So far out that even the length is not a number.
    x.gt(a * 4.0).where_(tail.of_whole(true), y)
}

/// Nodes and weights of Gauss's quadrature of 24 points on [0, 1].
const GAUSS_LEGENDRE: [(f64, f64); 24] = [
    (0.002_406_390_001_489_32, 0.006_170_614_899_993_6),
    (0.012_635_722_014_345_251, 0.014_265_694_314_466_832),
    (0.030_862_723_998_633_622, 0.022_138_719_408_709_904),
    (0.056_792_236_497_799_485, 0.029_649_292_457_718_39),
    (0.089_999_007_013_048_54, 0.036_673_240_705_540_15),
    (0.129_937_904_210_722_82, 0.043_095_080_765_976_64),
    (0.175_953_174_031_512_23, 0.048_809_326_052_056_94),
    (0.227_289_264_305_580_22, 0.053_722_135_057_982_82),
    (0.283_103_246_186_977_4, 0.057_752_834_026_862_8),
    (0.342_478_660_151_918_3, 0.060_835_236_463_901_696),
    (0.404_440_566_263_191_86, 0.062_918_728_173_414_15),
    (0.467_971_553_568_697_2, 0.063_969_097_673_376_08),
    (0.532_028_446_431_302_8, 0.063_969_097_673_376_08),
    (0.595_559_433_736_808_2, 0.062_918_728_173_414_15),
    (0.657_521_339_848_081_7, 0.060_835_236_463_901_696),
    (0.716_896_753_813_022_5, 0.057_752_834_026_862_8),
    (0.772_710_735_694_419_7, 0.053_722_135_057_982_82),
    (0.824_046_825_968_487_8, 0.048_809_326_052_056_94),
    (0.870_062_095_789_277_2, 0.043_095_080_765_976_64),
    (0.910_000_992_986_951_5, 0.036_673_240_705_540_15),
    (0.943_207_763_502_200_5, 0.029_649_292_457_718_39),
    (0.969_137_276_001_366_3, 0.022_138_719_408_709_904),
    (0.987_364_277_985_654_7, 0.014_265_694_314_466_832),
    (0.997_593_609_998_510_7, 0.006_170_614_899_993_6),
];

fn call_zeta(args: &Args) -> Result<Vec<Tensor>> {
    let other = args.get::<Operand>("other")?;
    let x = match args.get::<Operand>("input")? {
        Operand::Tensor(x) => x,
        Operand::Scalar(x) => match &other {
            Operand::Tensor(other) => Tensor::full((), x, other.dtype(), other.device()),
            Operand::Scalar(_) => return Err(Error::argument("zeta", String::from("one operand must be a tensor"))),
        },
    };
    Ok(vec![x.try_zeta(other)?])
}

fn call_polygamma(args: &Args) -> Result<Vec<Tensor>> {
    Ok(vec![args.get::<Tensor>("input")?.try_polygamma(args.get::<i64>("n")? as u32)?])
}

fn call_multigammaln(args: &Args) -> Result<Vec<Tensor>> {
    Ok(vec![args.get::<Tensor>("input")?.try_multigammaln(args.get::<i64>("p")? as u32)?])
}
