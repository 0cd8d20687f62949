//! Special functions: error functions, Bessel functions, and what statistics makes of them. They are computed
//! in `f64` and rounded once: their series and quotients lose more digits than `f32` has to spare.

use super::elementwise::float;
use crate::autodiff::{Reads, with_rule};
use crate::primitive::cast;
use crate::{DType, Result, Tensor};
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};
use fornax_macros::ops;

#[ops(group = "unary", records = RECORDS)]
impl Tensor {
    /// `ln(p / (1 − p))`; with `eps`, `p` is first cut off at `eps` and `1 − eps`.
    #[op(domain = (0.1, 0.9), torch = ["logit", "special.logit"])]
    pub fn logit(&self, eps: Option<f64>) -> Result<Tensor> {
        let x = float(self)?;
        let p = match eps {
            Some(eps) => {
                let high = x.try_gt(1.0 - eps)?.try_where_(1.0 - eps, &x)?;
                x.try_lt(eps)?.try_where_(eps, &high)?.try_to_dtype(x.dtype())?
            }
            None => x,
        };
        special(
            &p,
            |p| {
                // Near ½ the quotient is near 1, where only its distance from 1 has all digits.
                let is_near = p.ge(0.3).logical_and(&p.le(0.65));
                let odds = p / (1.0 - p);
                is_near.where_(((p * 2.0 - 1.0) / (1.0 - p)).log1p(), odds.log())
            },
            |p| {
                let slope = (p * (1.0 - p)).reciprocal();
                slope.lt(0.0).where_(f64::NAN, slope)
            },
        )
    }

    /// `sin(πx) / (πx)`, 1 at 0.
    #[op(torch = ["sinc", "special.sinc"])]
    pub fn sinc(&self) -> Result<Tensor> {
        special(
            self,
            |x| x.eq(0.0).where_(1.0, sin_pi(x) / (x * PI)),
            |x| {
                let t = x * PI;
                let square = &t * &t;
                // Near 0 the two terms cancel.
                let near = &t * polynomial(&square, &[-1.0 / 3.0, 1.0 / 30.0, -1.0 / 840.0, 1.0 / 45360.0]);
                let is_near = t.abs().lt(0.1);
                let safe = is_near.where_(1.0, &t);
                is_near.where_(near, (&safe * safe.cos() - safe.sin()) / (&safe * &safe)) * PI
            },
        )
    }

    /// `−x ln x`, 0 at 0, −∞ below.
    #[op(torch = ["special.entr"], domain = (0.1, 3.0))]
    pub fn entr(&self) -> Result<Tensor> {
        special(
            self,
            |x| {
                let y = x.gt(0.0).where_(x.neg() * x.log(), x.neg() * 0.0);
                x.lt(0.0).where_(f64::NEG_INFINITY, y)
            },
            |x| (x.log() + 1.0).neg(),
        )
    }

    /// `1 − erf x`, accurate where that is small.
    #[op(torch = ["erfc", "special.erfc"])]
    pub fn erfc(&self) -> Result<Tensor> {
        special(self, erfc, |x| (x * x).neg().exp() * -FRAC_2_SQRT_PI)
    }

    /// `e^(x²) · erfc x`.
    #[op(torch = ["special.erfcx"])]
    pub fn erfcx(&self) -> Result<Tensor> {
        special(self, erfcx, |x| x * 2.0 * x.erfcx() - FRAC_2_SQRT_PI)
    }

    /// The number whose error function this is; ±∞ at ±1, NaN beyond.
    #[op(torch = ["erfinv", "special.erfinv"], domain = (-0.9, 0.9), autocast = high)]
    pub fn erfinv(&self) -> Result<Tensor> {
        special(
            self,
            |x| normal_quantile(&(x * 0.5), &((1.0 - x.abs()) * 0.5)) * FRAC_1_SQRT_2,
            |x| x.erfinv().square().exp() * (1.0 / FRAC_2_SQRT_PI),
        )
    }

    /// The normal distribution function.
    #[op(torch = ["special.ndtr"])]
    pub fn ndtr(&self) -> Result<Tensor> {
        special(self, ndtr, density)
    }

    /// The logarithm of the normal distribution function.
    #[op(torch = ["special.log_ndtr"])]
    pub fn log_ndtr(&self) -> Result<Tensor> {
        special(
            self,
            |x| {
                let t = x * FRAC_1_SQRT_2;
                let low = (erfcx(&t.neg()) * 0.5).log() - &t * &t;
                x.lt(-1.0).where_(low, ndtr(&x.neg()).neg().log1p())
            },
            // The density over the distribution function, where the latter underflows too.
            |x| {
                let low = (x * -FRAC_1_SQRT_2).erfcx().reciprocal() * SQRT_2 * (0.5 * FRAC_2_SQRT_PI);
                x.lt(-1.0).where_(low, density(x) / x.ndtr())
            },
        )
    }

    /// The number whose normal distribution function this is; ±∞ at 0 and 1, NaN beyond.
    #[op(torch = ["special.ndtri"], domain = (0.1, 0.9))]
    pub fn ndtri(&self) -> Result<Tensor> {
        special(self, |p| normal_quantile(&(p - 0.5), &p.minimum(1.0 - p)), |p| density(&p.ndtri()).reciprocal())
    }

    /// The modified Bessel function of the first kind of order 0.
    #[op(torch = ["i0", "special.i0"])]
    pub fn i0(&self) -> Result<Tensor> {
        special(self, |x| unscaled(x, bessel(x, 0)), Tensor::i1)
    }

    /// `e^(−|x|) · i0(x)`.
    #[op(torch = ["special.i0e"])]
    pub fn i0e(&self) -> Result<Tensor> {
        special(self, |x| bessel(x, 0), |x| x.i1e() - x.sign() * x.i0e())
    }

    /// The modified Bessel function of the first kind of order 1.
    #[op(torch = ["special.i1"])]
    pub fn i1(&self) -> Result<Tensor> {
        special(self, |x| unscaled(x, bessel(x, 1)), |x| x.i0() - over(&x.i1(), x))
    }

    /// `e^(−|x|) · i1(x)`.
    #[op(torch = ["special.i1e"])]
    pub fn i1e(&self) -> Result<Tensor> {
        special(self, |x| bessel(x, 1), |x| x.i0e() - x.sign() * x.i1e() - over(&x.i1e(), x))
    }
}

/// `f`, computed in `f64` off the tape, with the slope given by another function, in `f64` as well.
#[track_caller]
pub(super) fn special(
    x: &Tensor,
    f: impl FnOnce(&Tensor) -> Tensor,
    slope: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Result<Tensor> {
    let x = float(x)?;
    let y = cast(&f(&cast(&x.detach(), DType::F64)?), x.dtype())?;
    Ok(with_rule(&x, y, Reads::Input, move |x, dy| dy * slope(&x.to_dtype(DType::F64)).to_dtype(dy.dtype())))
}

/// Computed in `f64`; the tape goes through.
#[track_caller]
pub(crate) fn in_f64(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Result<Tensor> {
    cast(&f(&cast(x, DType::F64)?), x.dtype())
}

/// The normal density.
#[track_caller]
fn density(x: &Tensor) -> Tensor {
    (x * x * -0.5).exp() * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5)
}

/// `I₁(x) / x`, ½ at 0.
#[track_caller]
fn over(y: &Tensor, x: &Tensor) -> Tensor {
    let is_zero = x.eq(0.0);
    is_zero.where_(0.5, y / is_zero.where_(1.0, x))
}

/// `y e^|x|` in two steps, for a product that is finite where the exponential is not.
#[track_caller]
fn unscaled(x: &Tensor, y: Tensor) -> Tensor {
    let half = (x.abs() * 0.5).exp();
    y * &half * &half
}

/// `c₀ + x (c₁ + x (…))`.
#[track_caller]
pub(super) fn polynomial(x: &Tensor, coefficients: &[f64]) -> Tensor {
    let mut rest = coefficients.iter().rev();
    let mut sum = x.full_like(*rest.next().unwrap_or(&0.0));
    for &coefficient in rest {
        sum = sum * x + coefficient;
    }
    sum
}

/// `e^(x²) erfc(x)`.
///
/// Cody (1969), *Rational Chebyshev Approximations for the Error Function*.
#[track_caller]
fn erfcx(x: &Tensor) -> Tensor {
    let y = x.abs();
    // Near 0 by way of the error function itself.
    let near = (&y * &y).exp() * (1.0 - y.erf());
    let middle = polynomial(
        &y,
        &[
            1.230_339_354_797_997_2e3,
            2.051_078_377_826_071_5e3,
            1.712_047_612_634_070_6e3,
            8.819_522_212_417_69e2,
            2.986_351_381_974_001e2,
            6.611_919_063_714_163e1,
            8.883_149_794_388_376,
            5.641_884_969_886_7e-1,
            2.153_115_354_744_038_5e-8,
        ],
    ) / polynomial(
        &y,
        &[
            1.230_339_354_803_749_4e3,
            3.439_367_674_143_721_6e3,
            4.362_619_090_143_247e3,
            3.290_799_235_733_459_6e3,
            1.621_389_574_566_690_2e3,
            5.371_811_018_620_098e2,
            1.176_939_508_913_125e2,
            1.574_492_611_070_983_5e1,
            1.0,
        ],
    );
    let inverse = (&y * &y).reciprocal();
    let tail = &inverse
        * polynomial(
            &inverse,
            &[
                6.587_491_615_298_378e-4,
                1.608_378_514_874_228e-2,
                1.257_817_261_112_292_6e-1,
                3.603_448_999_498_044_4e-1,
                3.053_266_349_612_323_4e-1,
                1.631_538_713_730_209_8e-2,
            ],
        )
        / polynomial(
            &inverse,
            &[
                2.335_204_976_268_691_8e-3,
                6.051_834_131_244_132e-2,
                5.279_051_029_514_284e-1,
                1.872_952_849_923_467_3,
                2.568_520_192_289_822,
                1.0,
            ],
        );
    let far = (tail.neg() + 0.5 * FRAC_2_SQRT_PI) / &y;
    let right = y.lt(0.468_75).where_(near, y.le(4.0).where_(middle, far));
    x.lt(0.0).where_(exp_square(x, 1.0) * 2.0 - &right, &right)
}

/// `e^(sign · x²)`. The square in two parts, the first of few bits: rounded in one, a large square costs as many digits of
/// the result as it has itself. For |x| beyond 40 the result is 0 or infinite, for a `sign` of ±½ as well.
#[track_caller]
fn exp_square(x: &Tensor, sign: f64) -> Tensor {
    let y = x.abs().minimum(40.0);
    let head = (&y * 16.0).floor() * (1.0 / 16.0);
    let rest = (&y - &head) * (&y + &head);
    (&head * &head * sign).exp() * (rest * sign).exp()
}

#[track_caller]
fn erfc(x: &Tensor) -> Tensor {
    let y = x.abs();
    let right = exp_square(&y, -1.0) * erfcx(&y);
    let right = y.gt(27.0).where_(0.0, right);
    x.lt(0.0).where_(2.0 - &right, &right)
}

/// The normal distribution function: the square is that of `x`, as that of `x / √2` would be rounded.
#[track_caller]
fn ndtr(x: &Tensor) -> Tensor {
    let tail = exp_square(x, -0.5) * erfcx(&(x.abs() * FRAC_1_SQRT_2)) * 0.5;
    x.lt(0.0).where_(&tail, 1.0 - &tail)
}

/// The normal quantile of ½ + `q`, where `rest` is the smaller of that and what is missing to 1.
///
/// Wichura (1988), *Algorithm AS 241: The Percentage Points of the Normal Distribution*, PPND16.
#[track_caller]
fn normal_quantile(q: &Tensor, rest: &Tensor) -> Tensor {
    let r = (q * q).neg() + 0.180_625;
    let centre = q * polynomial(&r, &CENTRE[0]) / polynomial(&r, &CENTRE[1]);
    let r = rest.log().neg().sqrt();
    let (near, far) = (&r - 1.6, &r - 5.0);
    let near = polynomial(&near, &NEAR[0]) / polynomial(&near, &NEAR[1]);
    let far = polynomial(&far, &FAR[0]) / polynomial(&far, &FAR[1]);
    let size = r.le(5.0).where_(near, far);
    let size = rest.eq(0.0).where_(f64::INFINITY, size);
    let tail = q.lt(0.0).where_(size.neg(), &size);
    q.abs().le(0.425).where_(centre, tail)
}

/// Numerators and denominators of AS 241.
const CENTRE: [[f64; 8]; 2] = [
    [
        3.387_132_872_796_366_5,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_3e3,
        1.373_169_376_550_946_2e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
];
const NEAR: [[f64; 8]; 2] = [
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_4e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
];
const FAR: [[f64; 8]; 2] = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

/// `sin(πx)` with the argument reduced first.
#[track_caller]
pub(super) fn sin_pi(x: &Tensor) -> Tensor {
    let whole = x.round();
    let sign = 1.0 - whole.remainder(2.0) * 2.0;
    ((x - whole) * PI).sin() * sign
}

/// `e^(−|x|) I_ν(x)`: the power series up to 20, the asymptotic one beyond; both reach 1e-15 there.
///
/// Abramowitz, Stegun (1964), *Handbook of Mathematical Functions*, 9.6.10 and 9.7.1.
#[track_caller]
fn bessel(x: &Tensor, order: u32) -> Tensor {
    let y = x.abs();
    let quarter = (&y * &y) * 0.25;
    let mut power = y.ones_like();
    for k in (1..=50u32).rev() {
        power = &power * &quarter * (1.0 / (f64::from(k) * f64::from(k + order))) + 1.0;
    }
    let near = y.neg().exp() * if order == 1 { power * &y * 0.5 } else { power };
    let mu = f64::from(4 * order * order);
    let mut far = y.ones_like();
    for k in (1..=20u32).rev() {
        let odd = f64::from(2 * k - 1);
        far = 1.0 - &far * (mu - odd * odd) / (&y * (8.0 * f64::from(k)));
    }
    let far = far / (&y * (2.0 * PI)).sqrt();
    let size = y.le(20.0).where_(near, far);
    if order == 1 { x.lt(0.0).where_(size.neg(), &size) } else { size }
}
