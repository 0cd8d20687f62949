//! Schedules of the learning rate: functions of the step.
//!
//! Step 0 is the first. Nothing is kept between calls (but in [`ReduceOnPlateau`], which looks at losses), so a resumed
//! run needs the step only.
//!
//! ```
//! use fornax_nn::optim::Sgd;
//! use fornax_nn::schedule::{CosineAnnealing, Linear, Schedule, Sequential};
//! let warm_up = Linear { start_factor: 0.1, end_factor: 1.0, total_iters: 5 };
//! let schedule = Sequential::new(warm_up).then(5, CosineAnnealing { t_max: 20, eta_min: 0.0 });
//! let mut optimizer = Sgd::new(0.1);
//! for step in 0..25 {
//!     optimizer.lr = schedule.lr(0.1, step);
//!     // … optimizer.step(&mut model, &gradients);
//! }
//! assert!((schedule.lr(0.1, 0) - 0.01).abs() < 1e-12);
//! assert_eq!(schedule.lr(0.1, 5), 0.1);
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::f64::consts::PI;

/// The learning rate at a step.
pub trait Schedule {
    /// What the base rate is multiplied with at `step`, for schedules that do nothing else.
    fn factor(&self, _step: u64) -> Option<f64> {
        None
    }

    /// The rate at `step` where the base rate is `base`.
    fn lr(&self, base: f64, step: u64) -> f64;

    /// The rate at `step`, given the rate just before it (of the step before, changed by schedules in front of this one):
    /// how schedules act on one another in [`Chained`].
    fn next(&self, base: f64, step: u64, current: f64) -> f64 {
        let Some(factor) = self.factor(step) else { return self.lr(base, step) };
        let before = if step == 0 { 1.0 } else { self.factor(step - 1).unwrap_or(1.0) };
        if factor == before { current } else { current * factor / before }
    }
}

/// A function of the step is a schedule: what the base rate is multiplied with (PyTorch's `LambdaLR`).
impl<F: Fn(u64) -> f64> Schedule for F {
    fn factor(&self, step: u64) -> Option<f64> {
        Some(self(step))
    }
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self(step)
    }
}

impl Schedule for Box<dyn Schedule> {
    fn factor(&self, step: u64) -> Option<f64> {
        (**self).factor(step)
    }
    fn lr(&self, base: f64, step: u64) -> f64 {
        (**self).lr(base, step)
    }
    fn next(&self, base: f64, step: u64, current: f64) -> f64 {
        (**self).next(base, step, current)
    }
}

/// Schedules that multiply the base rate: `name { settings } => |self, step| factor`.
macro_rules! factors {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $field:ident: $ty:ty, )* }
        |$this:ident, $step:ident| $factor:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $ty, )*
        }

        impl Schedule for $name {
            fn factor(&self, $step: u64) -> Option<f64> {
                let $this = self;
                Some($factor)
            }
            fn lr(&self, base: f64, $step: u64) -> f64 {
                let $this = self;
                base * $factor
            }
        }
    )*};
}

factors! {
    /// Times `gamma` every `step_size` steps (PyTorch's `StepLR`).
    Step {
        /// Steps between changes.
        step_size: u64,
        /// What each change multiplies with; PyTorch's default is 0.1.
        gamma: f64,
    }
    |this, step| libm::pow(this.gamma, (step / this.step_size.max(1)) as f64);

    /// Times `gamma` at each of the milestones (PyTorch's `MultiStepLR`).
    MultiStep {
        /// When.
        milestones: Vec<u64>,
        /// What each change multiplies with; PyTorch's default is 0.1.
        gamma: f64,
    }
    |this, step| libm::pow(this.gamma, this.milestones.iter().filter(|&&milestone| milestone <= step).count() as f64);

    /// Times `factor` for the first `total_iters` steps (PyTorch's `ConstantLR`).
    Constant {
        /// What it multiplies with; PyTorch's default is 1/3.
        factor: f64,
        /// For how many steps; PyTorch's default is 5.
        total_iters: u64,
    }
    |this, step| if step < this.total_iters { this.factor } else { 1.0 };

    /// From one factor to another along a line (PyTorch's `LinearLR`).
    Linear {
        /// At step 0; PyTorch's default is 1/3.
        start_factor: f64,
        /// From `total_iters` on; PyTorch's default is 1.
        end_factor: f64,
        /// How many steps it takes; PyTorch's default is 5.
        total_iters: u64,
    }
    |this, step| {
        let done = step.min(this.total_iters) as f64 / this.total_iters.max(1) as f64;
        this.start_factor + (this.end_factor - this.start_factor) * done
    };

    /// Times `gamma` at every step (PyTorch's `ExponentialLR`).
    Exponential {
        /// What each step multiplies with.
        gamma: f64,
    }
    |this, step| libm::pow(this.gamma, step as f64);

    /// Falls to 0 in `total_iters` steps along a power (PyTorch's `PolynomialLR`).
    Polynomial {
        /// How many steps it takes; PyTorch's default is 5.
        total_iters: u64,
        /// 1 is a line; PyTorch's default is 1.
        power: f64,
    }
    |this, step| {
        let done = step.min(this.total_iters) as f64 / this.total_iters.max(1) as f64;
        libm::pow(1.0 - done, this.power)
    };
}

/// Rises along a line for `warmup_steps`, then falls as one over the root of the step. The base rate does not matter: with
/// `scale` 1 the highest rate is `1 / √(width · warmup_steps)`.
///
/// # References
/// Vaswani et al. (2017), *Attention Is All You Need*, arXiv:1706.03762, equation 3, whose first step is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Noam {
    /// Width of the model.
    pub width: usize,
    /// How many steps it rises.
    pub warmup_steps: u64,
    /// Multiplies the rate; 1 in the paper.
    pub scale: f64,
}

impl Schedule for Noam {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        let (step, warmup) = ((step + 1) as f64, self.warmup_steps.max(1) as f64);
        self.scale / libm::sqrt(self.width.max(1) as f64)
            * (1.0 / libm::sqrt(step)).min(step / (warmup * libm::sqrt(warmup)))
    }
}

/// Rises along a line from near 0 to the base rate in `steps` steps, the first of which counts; then another schedule
/// counts from its own beginning.
///
/// ```
/// use fornax_nn::schedule::{CosineAnnealing, Schedule, WarmUp};
/// let schedule = WarmUp::new(4, CosineAnnealing { t_max: 10, eta_min: 0.0 });
/// let rates: Vec<f64> = (0..5).map(|step| schedule.lr(1.0, step)).collect();
/// assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WarmUp<S> {
    /// How many steps it rises.
    pub steps: u64,
    /// What follows.
    pub then: S,
}

impl<S: Schedule> WarmUp<S> {
    /// So many steps up, then another schedule.
    pub fn new(steps: u64, then: S) -> WarmUp<S> {
        WarmUp { steps, then }
    }
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        match step.checked_sub(self.steps) {
            Some(step) => self.then.lr(base, step),
            None => base * (step + 1) as f64 / self.steps as f64,
        }
    }
}

/// From the base rate to `swa_lr` in `anneal_steps`, then constant, while models are averaged (PyTorch's `SWALR`).
///
/// # References
/// Izmailov et al. (2018), *Averaging Weights Leads to Wider Optima and Better Generalization*, arXiv:1803.05407.
#[derive(Clone, Debug, PartialEq)]
pub struct Swa {
    /// The rate that stays.
    pub swa_lr: f64,
    /// How many steps it takes; PyTorch's default is 10.
    pub anneal_steps: u64,
    /// Along half a cosine or a line; half a cosine.
    pub anneal: Anneal,
}

impl Schedule for Swa {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let done = (step as f64 / self.anneal_steps.max(1) as f64).min(1.0);
        self.anneal.between(base, self.swa_lr, if self.anneal_steps == 0 { 1.0 } else { done })
    }
}

/// Times a function of the step at every step from 1 on (PyTorch's `MultiplicativeLR`). It is evaluated for all steps so
/// far.
#[derive(Clone, Debug)]
pub struct Multiplicative<F>(
    /// What the step multiplies with.
    pub F,
);

impl<F: Fn(u64) -> f64> Schedule for Multiplicative<F> {
    fn factor(&self, step: u64) -> Option<f64> {
        Some((1..=step).map(&self.0).product())
    }
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (1..=step).map(&self.0).product::<f64>()
    }
}

/// Half a cosine from the base rate down to `eta_min` in `t_max` steps, and back (PyTorch's `CosineAnnealingLR`).
///
/// # References
/// Loshchilov, Hutter (2016), *SGDR: Stochastic Gradient Descent with Warm Restarts*, arXiv:1608.03983, equation 5.
#[derive(Clone, Debug, PartialEq)]
pub struct CosineAnnealing {
    /// Steps of one way.
    pub t_max: u64,
    /// Lowest rate; PyTorch's default is 0.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealing {
    fn lr(&self, base: f64, step: u64) -> f64 {
        // The period keeps the argument small, and the ends exact.
        cosine(base, self.eta_min, (step % (2 * self.t_max.max(1))) as f64 / self.t_max.max(1) as f64)
    }

    fn next(&self, base: f64, step: u64, current: f64) -> f64 {
        let t_max = self.t_max.max(1);
        let height = |step: u64| 1.0 + libm::cos(PI * step as f64 / t_max as f64);
        if step == 0 {
            return current;
        }
        if step > t_max && (step - 1 - t_max).is_multiple_of(2 * t_max) {
            return current + (base - self.eta_min) * (1.0 - libm::cos(PI / t_max as f64)) / 2.0;
        }
        height(step) / height(step - 1) * (current - self.eta_min) + self.eta_min
    }
}

/// Half cosines from the base rate down to `eta_min`, each `t_mult` times as long as the one before (PyTorch's
/// `CosineAnnealingWarmRestarts`).
///
/// # References
/// Loshchilov, Hutter (2016), *SGDR: Stochastic Gradient Descent with Warm Restarts*, arXiv:1608.03983.
#[derive(Clone, Debug, PartialEq)]
pub struct CosineAnnealingWarmRestarts {
    /// Steps of the first one.
    pub t_0: u64,
    /// How much longer the next one is; PyTorch's default is 1.
    pub t_mult: u64,
    /// Lowest rate; PyTorch's default is 0.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let (mut length, mut step) = (self.t_0.max(1), step);
        if self.t_mult <= 1 {
            step %= length;
        }
        while step >= length {
            step -= length;
            length = length.saturating_mul(self.t_mult);
        }
        cosine(base, self.eta_min, step as f64 / length as f64)
    }
}

/// How a rate goes from one value to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anneal {
    /// Along half a cosine.
    #[default]
    Cosine,
    /// Along a line.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, done: f64) -> f64 {
        match self {
            Anneal::Cosine => cosine(start, end, done),
            Anneal::Linear => start + (end - start) * done,
        }
    }
}

/// Up to `max_lr` and down far below the start (PyTorch's `OneCycleLR`). The base rate does not matter.
///
/// # References
/// Smith, Topin (2017), *Super-Convergence*, arXiv:1708.07120.
#[derive(Clone, Debug, PartialEq)]
pub struct OneCycle {
    /// Highest rate.
    pub max_lr: f64,
    /// Steps in all; the rate stays where it is afterwards.
    pub total_steps: u64,
    /// Part of the steps that go up; 0.3.
    pub pct_start: f64,
    /// Along half cosines or lines; half cosines.
    pub anneal: Anneal,
    /// The first rate is `max_lr / div_factor`; 25.
    pub div_factor: f64,
    /// The last rate is the first divided by it; 1e4.
    pub final_div_factor: f64,
    /// Whether it comes down to the first rate as fast as it went up, then down to the last; false.
    pub three_phase: bool,
}

impl OneCycle {
    /// With the usual settings.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycle {
        OneCycle {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal: Anneal::Cosine,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

impl Schedule for OneCycle {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        let total = self.total_steps as f64;
        let (up, end) = (self.pct_start * total - 1.0, total - 1.0);
        let down = 2.0 * self.pct_start * total - 2.0;
        let two = [(up, first, self.max_lr), (end, self.max_lr, last)];
        let three = [(up, first, self.max_lr), (down, self.max_lr, first), (end, first, last)];
        let phases = if self.three_phase { &three[..] } else { &two[..] };
        let step = step as f64;
        let mut begin = 0.0;
        for &(end, from, to) in phases {
            if step <= end {
                return self.anneal.between(from, to, (step - begin) / (end - begin));
            }
            begin = end;
        }
        last
    }
}

/// How the peaks of a cyclic schedule change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Peaks {
    /// They stay.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// Times `gamma` to the power of the step.
    ExpRange(
        /// `gamma`.
        f64,
    ),
}

/// Up and down between two rates, along lines (PyTorch's `CyclicLR`). The optimizer's base rate does not matter.
///
/// # References
/// Smith (2015), *Cyclical Learning Rates for Training Neural Networks*, arXiv:1506.01186.
#[derive(Clone, Debug, PartialEq)]
pub struct Cyclic {
    /// Lowest rate.
    pub base_lr: f64,
    /// Highest rate.
    pub max_lr: f64,
    /// Steps up; 2000.
    pub step_size_up: u64,
    /// Steps down; as many as up if not given.
    pub step_size_down: Option<u64>,
    /// How the peaks change; they stay.
    pub peaks: Peaks,
}

impl Cyclic {
    /// With the usual settings.
    pub fn new(base_lr: f64, max_lr: f64) -> Cyclic {
        Cyclic { base_lr, max_lr, step_size_up: 2000, step_size_down: None, peaks: Peaks::Triangular }
    }
}

impl Schedule for Cyclic {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        let down = self.step_size_down.unwrap_or(self.step_size_up);
        let total = (self.step_size_up + down).max(1);
        let (cycle, within) = (step / total, step % total);
        let height = if within <= self.step_size_up {
            within as f64 / self.step_size_up.max(1) as f64
        } else {
            (total - within) as f64 / down as f64
        };
        let scale = match self.peaks {
            Peaks::Triangular => 1.0,
            Peaks::Triangular2 => libm::exp2(-(cycle as f64)),
            Peaks::ExpRange(gamma) => libm::pow(gamma, step as f64),
        };
        self.base_lr + (self.max_lr - self.base_lr) * height * scale
    }
}

/// One schedule after another, each counting from its own beginning (PyTorch's `SequentialLR`).
pub struct Sequential {
    /// When each begins.
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl Sequential {
    /// Begins with this one.
    pub fn new(first: impl Schedule + 'static) -> Sequential {
        Sequential { parts: Vec::from([(0, Box::new(first) as Box<dyn Schedule>)]) }
    }

    /// Goes on with another from step `milestone`.
    #[must_use]
    pub fn then(mut self, milestone: u64, next: impl Schedule + 'static) -> Sequential {
        self.parts.push((milestone, Box::new(next)));
        self
    }
}

impl Schedule for Sequential {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let current = self.parts.iter().rev().find(|(begin, _)| *begin <= step);
        current.map_or(base, |(begin, schedule)| schedule.lr(base, step - begin))
    }
}

/// Several schedules at once, each acting on what those before it made of the rate (PyTorch's `ChainedScheduler`).
///
/// If one of them does more than multiply, all steps so far are gone through.
pub struct Chained {
    parts: Vec<Box<dyn Schedule>>,
}

impl Chained {
    /// These, in this order.
    pub fn new(parts: Vec<Box<dyn Schedule>>) -> Chained {
        Chained { parts }
    }
}

impl Schedule for Chained {
    fn factor(&self, step: u64) -> Option<f64> {
        self.parts.iter().map(|part| part.factor(step)).product()
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        match self.factor(step) {
            Some(factor) => base * factor,
            None => (0..=step).fold(base, |lr, step| self.next(base, step, lr)),
        }
    }

    fn next(&self, base: f64, step: u64, current: f64) -> f64 {
        self.parts.iter().fold(current, |lr, part| part.next(base, step, lr))
    }
}

/// Whether a metric is better when it is smaller or larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    /// Smaller, as losses.
    #[default]
    Smaller,
    /// Larger, as accuracies.
    Larger,
}

/// By how much a metric must be better to count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// By this part of the best.
    Relative(f64),
    /// By this much.
    Absolute(f64),
}

/// Lowers the rate when a metric does not improve any more (PyTorch's `ReduceLROnPlateau`).
///
/// ```
/// use fornax_nn::schedule::ReduceOnPlateau;
/// let mut plateau = ReduceOnPlateau { factor: 0.5, patience: 1, ..ReduceOnPlateau::default() };
/// let mut lr = 0.1;
/// for loss in [1.0, 0.9, 0.9, 0.9] {
///     lr = plateau.step(loss, lr);
/// }
/// assert_eq!(lr, 0.05);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceOnPlateau {
    /// Smaller or larger; smaller.
    pub better: Better,
    /// What the rate is multiplied with; 0.1.
    pub factor: f64,
    /// How many steps without improvement are borne; 10.
    pub patience: u64,
    /// How much better counts; 1e-4 of the best.
    pub threshold: Threshold,
    /// Steps to wait after a change; 0.
    pub cooldown: u64,
    /// Lowest rate; 0.
    pub min_lr: f64,
    /// Smaller changes are not made; 1e-8.
    pub eps: f64,
    /// What it has seen, to save with a checkpoint.
    pub state: PlateauState,
}

/// What [`ReduceOnPlateau`] has seen: plain numbers, to save; [`PlateauState::to_numbers`] gives them as a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlateauState {
    /// The best metric so far.
    pub best: Option<f64>,
    /// Steps without improvement.
    pub bad_steps: u64,
    /// Steps still to wait.
    pub cooldown: u64,
}

impl PlateauState {
    /// As numbers: the best metric (NaN if there is none), steps without improvement, steps still to wait.
    pub fn to_numbers(&self) -> [f64; 3] {
        [self.best.unwrap_or(f64::NAN), self.bad_steps as f64, self.cooldown as f64]
    }

    /// What [`PlateauState::to_numbers`] gave.
    pub fn from_numbers([best, bad_steps, cooldown]: [f64; 3]) -> PlateauState {
        let best = (!best.is_nan()).then_some(best);
        PlateauState { best, bad_steps: bad_steps as u64, cooldown: cooldown as u64 }
    }
}

impl Default for ReduceOnPlateau {
    fn default() -> ReduceOnPlateau {
        ReduceOnPlateau {
            better: Better::Smaller,
            factor: 0.1,
            patience: 10,
            threshold: Threshold::Relative(1e-4),
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            state: PlateauState::default(),
        }
    }
}

impl ReduceOnPlateau {
    /// Takes the metric into account, and gives the rate that follows `lr`.
    pub fn step(&mut self, metric: f64, lr: f64) -> f64 {
        if self.is_better(metric) {
            self.state.best = Some(metric);
            self.state.bad_steps = 0;
        } else {
            self.state.bad_steps += 1;
        }
        if self.state.cooldown > 0 {
            self.state.cooldown -= 1;
            self.state.bad_steps = 0;
        }
        if self.state.bad_steps <= self.patience {
            return lr;
        }
        self.state.cooldown = self.cooldown;
        self.state.bad_steps = 0;
        let lower = (lr * self.factor).max(self.min_lr);
        if lr - lower > self.eps { lower } else { lr }
    }

    fn is_better(&self, metric: f64) -> bool {
        let Some(best) = self.state.best else { return !metric.is_nan() };
        match (self.better, self.threshold) {
            (Better::Smaller, Threshold::Relative(part)) => metric < best * (1.0 - part),
            (Better::Smaller, Threshold::Absolute(amount)) => metric < best - amount,
            (Better::Larger, Threshold::Relative(part)) => metric > best * (1.0 + part),
            (Better::Larger, Threshold::Absolute(amount)) => metric > best + amount,
        }
    }
}

/// From `start` (at 0) to `end` (at 1) along half a cosine.
fn cosine(start: f64, end: f64, done: f64) -> f64 {
    end + (start - end) * (1.0 + libm::cos(PI * done)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_come_back_without_a_jump() {
        // Case C89.
        let rates = |t_max, count: u64| -> Vec<f64> {
            (0..count).map(|step| CosineAnnealing { t_max, eta_min: 0.1 }.lr(0.5, step)).collect()
        };
        for (got, want) in rates(2, 5).into_iter().zip([0.5, 0.3, 0.1, 0.3, 0.5]) {
            assert!((got - want).abs() < 1e-12);
        }
        for (got, want) in rates(4, 6).into_iter().zip([0.5, 0.441_421, 0.3, 0.158_579, 0.1, 0.158_579]) {
            assert!((got - want).abs() < 1e-6);
        }
    }

    #[test]
    fn rates_for_averaging_are_those_of_pytorch() {
        let swa = Swa { swa_lr: 0.1, anneal_steps: 4, anneal: Anneal::Cosine };
        let want = [1.0, 0.868_198_051_533_946_4, 0.55, 0.231_801_948_466_053_65, 0.1, 0.1, 0.1];
        for (step, want) in want.into_iter().enumerate() {
            assert!((swa.lr(1.0, step as u64) - want).abs() < 1e-12);
        }
    }

    #[test]
    fn noam_peaks_at_the_end_of_its_warm_up() {
        let noam = Noam { width: 512, warmup_steps: 4000, scale: 1.0 };
        let peak = noam.lr(1.0, 3999);
        assert!((peak - 1.0 / libm::sqrt(512.0 * 4000.0)).abs() < 1e-12);
        assert!((noam.lr(1.0, 0) - peak / 4000.0).abs() < 1e-12);
        assert!((noam.lr(1.0, 15_999) - peak / 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_saved_schedule_goes_on_as_if_nothing_happened() {
        // Case C91: what depends on losses too.
        let losses = [1.0, 0.9, 0.95, 0.92, 0.91, 0.93, 0.8, 0.85, 0.86, 0.87, 0.88, 0.9, 0.9, 0.9];
        let plateau = || ReduceOnPlateau { patience: 1, factor: 0.5, cooldown: 1, ..ReduceOnPlateau::default() };
        let run = |plateau: &mut ReduceOnPlateau, lr: &mut f64, losses: &[f64]| -> Vec<f64> {
            let next = |&loss| {
                *lr = plateau.step(loss, *lr);
                *lr
            };
            losses.iter().map(next).collect()
        };
        let (mut whole, mut lr) = (plateau(), 0.1);
        let want = run(&mut whole, &mut lr, &losses);
        let (mut first, mut lr) = (plateau(), 0.1);
        let mut got = run(&mut first, &mut lr, &losses[..7]);
        let mut second = ReduceOnPlateau { state: PlateauState::from_numbers(first.state.to_numbers()), ..plateau() };
        got.extend(run(&mut second, &mut lr, &losses[7..]));
        assert_eq!(got, want);
        assert!(want[13] < 0.1);
    }
}
