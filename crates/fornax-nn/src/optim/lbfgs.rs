//! [`Lbfgs`]: a quasi-Newton method for full batches.

use crate::Module;
use crate::module::{Param, Path, VisitorMut};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use fornax_tensor::{Tensor, no_grad};

/// How the length of a step is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineSearch {
    /// The learning rate is the length.
    #[default]
    None,
    /// A length that satisfies the strong Wolfe conditions, found by cubic interpolation.
    StrongWolfe,
}

/// Limited-memory BFGS: steps along an estimate of the inverse Hessian times the gradient, made of the last
/// `history_size` differences of gradients. It evaluates the loss several times a step, and reads it.
///
/// ```
/// use fornax_nn::{Module, Param, optim::{Lbfgs, LineSearch}};
/// use fornax_tensor::Tensor;
/// let mut x = Param::new(&Tensor::from([-1.0, 2.0]));
/// let mut optimizer = Lbfgs::new(1.0).line_search(LineSearch::StrongWolfe);
/// let rosenbrock = |x: &Param| {
///     let (a, b) = (x.narrow(0, 0, 1), x.narrow(0, 1, 1));
///     ((1.0 - &a).square() + (b - a.square()).square() * 100.0).sum(())
/// };
/// for _ in 0..4 {
///     optimizer.step(&mut x, rosenbrock);
/// }
/// assert!(rosenbrock(&x).item::<f32>() < 1e-6);
/// ```
///
/// # References
/// Liu, Nocedal (1989), *On the Limited Memory BFGS Method for Large Scale Optimization*; line search: Nocedal, Wright
/// (2006), *Numerical Optimization*, algorithms 3.5 and 3.6.
#[derive(Clone, Debug)]
pub struct Lbfgs {
    /// Learning rate: the first length tried.
    pub lr: f64,
    /// Iterations a step; 20.
    pub max_iter: usize,
    /// Evaluations of the loss a step; `max_iter · 5 / 4` if not given.
    pub max_eval: Option<usize>,
    /// Stops when no element of the gradient is larger; 1e-7.
    pub tolerance_grad: f64,
    /// Stops when loss and parameters change by less; 1e-9.
    pub tolerance_change: f64,
    /// Differences kept; 100.
    pub history_size: usize,
    /// How the length of a step is found.
    pub line_search: LineSearch,
    memory: Option<Memory>,
}

/// What is known of the curvature.
#[derive(Clone, Debug)]
struct Memory {
    /// Direction and length of the last iteration.
    direction: Tensor,
    length: f64,
    previous_gradient: Tensor,
    /// (gradient difference `y`, step `s`, `1 / y·s`), oldest first.
    history: VecDeque<(Tensor, Tensor, f64)>,
    /// Scale of the first estimate.
    diagonal: f64,
}

impl Lbfgs {
    /// With learning rate `lr` and the usual settings.
    pub fn new(lr: f64) -> Lbfgs {
        Lbfgs {
            lr,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            line_search: LineSearch::None,
            memory: None,
        }
    }

    /// Iterations a step; 20.
    #[must_use]
    pub fn max_iter(mut self, max_iter: usize) -> Lbfgs {
        self.max_iter = max_iter;
        self
    }

    /// Evaluations of the loss a step; `max_iter · 5 / 4` if not given.
    #[must_use]
    pub fn max_eval(mut self, max_eval: usize) -> Lbfgs {
        self.max_eval = Some(max_eval);
        self
    }

    /// Stops when no element of the gradient is larger; 1e-7.
    #[must_use]
    pub fn tolerance_grad(mut self, tolerance_grad: f64) -> Lbfgs {
        self.tolerance_grad = tolerance_grad;
        self
    }

    /// Stops when loss and parameters change by less; 1e-9.
    #[must_use]
    pub fn tolerance_change(mut self, tolerance_change: f64) -> Lbfgs {
        self.tolerance_change = tolerance_change;
        self
    }

    /// Differences kept; 100.
    #[must_use]
    pub fn history_size(mut self, history_size: usize) -> Lbfgs {
        self.history_size = history_size;
        self
    }

    /// How the length of a step is found.
    #[must_use]
    pub fn line_search(mut self, line_search: LineSearch) -> Lbfgs {
        self.line_search = line_search;
        self
    }

    /// Up to `max_iter` iterations on the loss that `loss` computes. Gives the loss before the step.
    ///
    /// # Panics
    /// If the loss is not a single element, or depends on no parameter.
    #[track_caller]
    pub fn step<M: Module>(&mut self, model: &mut M, loss: impl Fn(&M) -> Tensor) -> f64 {
        let problem = Problem { loss };
        let max_eval = self.max_eval.unwrap_or(self.max_iter * 5 / 4);
        let (first, mut gradient) = problem.evaluate(model);
        let mut value = first;
        let mut evaluations = 1;
        if largest(&gradient) <= self.tolerance_grad {
            return first;
        }
        for iteration in 1..=self.max_iter {
            let is_first = self.memory.is_none();
            let memory = self.memory.get_or_insert_with(|| Memory::new(&gradient));
            if !is_first {
                memory.learn(&gradient, self.history_size);
            }
            memory.previous_gradient = gradient.clone();
            let direction = memory.direction.clone();
            let previous = value;
            let mut length =
                if is_first { (1.0 / gradient.abs().sum(()).item::<f64>()).min(1.0) } else { 1.0 } * self.lr;
            let slope = dot(&gradient, &direction);
            memory.length = length;
            if slope > -self.tolerance_change {
                break;
            }
            let start = flatten(model);
            match self.line_search {
                LineSearch::StrongWolfe => {
                    let mut probe = |length: f64| {
                        move_to(model, &(&start + &direction * length));
                        let (value, gradient) = problem.evaluate(model);
                        let slope = dot(&gradient, &direction);
                        Point { length, value, gradient, slope }
                    };
                    let origin = Point { length: 0.0, value, gradient: gradient.clone(), slope };
                    let (point, probes) =
                        strong_wolfe(&origin, length, largest(&direction), self.tolerance_change, &mut probe);
                    evaluations += probes;
                    (length, value, gradient) = (point.length, point.value, point.gradient);
                    move_to(model, &(&start + &direction * length));
                }
                LineSearch::None => {
                    move_to(model, &(&start + &direction * length));
                    // The last value would not be looked at.
                    if iteration != self.max_iter {
                        (value, gradient) = problem.evaluate(model);
                        evaluations += 1;
                    }
                }
            }
            memory.length = length;
            let is_done = iteration == self.max_iter
                || evaluations >= max_eval
                || largest(&gradient) <= self.tolerance_grad
                || largest(&direction) * length.abs() <= self.tolerance_change
                || (value - previous).abs() < self.tolerance_change;
            if is_done {
                break;
            }
        }
        first
    }
}

impl Memory {
    fn new(gradient: &Tensor) -> Memory {
        Memory {
            direction: -gradient,
            length: 0.0,
            previous_gradient: gradient.clone(),
            history: VecDeque::new(),
            diagonal: 1.0,
        }
    }

    /// Takes the last step into account and finds the next direction (the two-loop recursion).
    fn learn(&mut self, gradient: &Tensor, history_size: usize) {
        let y = gradient - &self.previous_gradient;
        let s = &self.direction * self.length;
        let ys = dot(&y, &s);
        if ys > 1e-10 {
            if self.history.len() == history_size {
                self.history.pop_front();
            }
            self.diagonal = ys / dot(&y, &y);
            self.history.push_back((y, s, 1.0 / ys));
        }
        let mut q = -gradient;
        let mut weights = Vec::new();
        for (y, s, rho) in self.history.iter().rev() {
            let weight = dot(s, &q) * rho;
            q -= y * weight;
            weights.push(weight);
        }
        let mut r = q * self.diagonal;
        for ((y, s, rho), weight) in self.history.iter().zip(weights.iter().rev()) {
            let back = dot(y, &r) * rho;
            r += s * (weight - back);
        }
        self.direction = r;
    }
}

struct Problem<L> {
    loss: L,
}

impl<L> Problem<L> {
    /// Loss and gradient, the gradient as one vector.
    #[track_caller]
    fn evaluate<M: Module>(&self, model: &M) -> (f64, Tensor)
    where
        L: Fn(&M) -> Tensor,
    {
        let loss = (self.loss)(model);
        let gradients = loss.backward();
        let parts: Vec<Tensor> = trained(model)
            .into_iter()
            .map(|param| gradients.get(param).map_or_else(|| param.zeros_like(), Tensor::clone).reshape(-1))
            .collect();
        let flat = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0);
        (loss.item::<f64>(), flat)
    }
}

fn trained(model: &dyn Module) -> Vec<&Param> {
    model.named_parameters().into_iter().map(|(_, param)| param).filter(|param| param.is_trainable()).collect()
}

/// All trained parameters as one vector.
fn flatten(model: &dyn Module) -> Tensor {
    let parts: Vec<Tensor> = trained(model).into_iter().map(|param| param.detach().reshape(-1)).collect();
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)
}

/// Sets all trained parameters from one vector.
fn move_to(model: &mut dyn Module, flat: &Tensor) {
    struct Take<'a>(&'a Tensor, usize);
    impl VisitorMut for Take<'_> {
        fn param(&mut self, _: &Path, param: &mut Param) {
            if param.is_trainable() {
                let count = param.numel();
                let value = self.0.narrow(0, self.1 as i64, count).reshape(param.shape());
                param.set(&value);
                self.1 += count;
            }
        }
    }
    no_grad(|| model.visit_mut(&mut Path::default(), &mut Take(flat, 0)));
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    (a * b).sum(()).item()
}

fn largest(x: &Tensor) -> f64 {
    x.abs().amax(()).item()
}

/// A place on the line: length, loss, gradient, and slope along the line.
#[derive(Clone)]
struct Point {
    length: f64,
    value: f64,
    gradient: Tensor,
    slope: f64,
}

/// A point that satisfies the strong Wolfe conditions (or the best found), and how many were tried.
fn strong_wolfe(
    origin: &Point,
    length: f64,
    direction_size: f64,
    tolerance: f64,
    probe: &mut dyn FnMut(f64) -> Point,
) -> (Point, usize) {
    const SUFFICIENT_DECREASE: f64 = 1e-4;
    const CURVATURE: f64 = 0.9;
    const MAX_PROBES: usize = 25;
    let too_high = |point: &Point| point.value > origin.value + SUFFICIENT_DECREASE * point.length * origin.slope;
    let is_flat = |point: &Point| point.slope.abs() <= -CURVATURE * origin.slope;

    // First go outwards until a minimum is bracketed.
    let mut previous = origin.clone();
    let mut point = probe(length);
    let mut iteration = 0;
    let mut bracket = loop {
        if iteration == MAX_PROBES {
            break [origin.clone(), point];
        }
        if too_high(&point)
            || (iteration > 1 && point.value >= previous.value)
            || point.slope >= 0.0 && !is_flat(&point)
        {
            break [previous, point];
        }
        if is_flat(&point) {
            return (point, iteration + 1);
        }
        let bounds = (point.length + 0.01 * (point.length - previous.length), point.length * 10.0);
        let next = probe(cubic_minimum(&previous, &point, bounds));
        previous = core::mem::replace(&mut point, next);
        iteration += 1;
    };

    // Then shrink the bracket.
    let mut is_stuck = false;
    let mut low = usize::from(bracket[0].value > bracket[1].value);
    while iteration < MAX_PROBES {
        let (left, right) = (bracket[0].length.min(bracket[1].length), bracket[0].length.max(bracket[1].length));
        if (right - left) * direction_size < tolerance {
            break;
        }
        let mut length = cubic_minimum(&bracket[0], &bracket[1], (left, right));
        // Too near to an end twice in a row, or beyond it: a tenth inwards.
        let margin = 0.1 * (right - left);
        if (right - length).min(length - left) < margin {
            if is_stuck || length >= right || length <= left {
                length = if (length - right).abs() < (length - left).abs() { right - margin } else { left + margin };
                is_stuck = false;
            } else {
                is_stuck = true;
            }
        } else {
            is_stuck = false;
        }
        let point = probe(length);
        iteration += 1;
        let high = 1 - low;
        if too_high(&point) || point.value >= bracket[low].value {
            bracket[high] = point;
            low = usize::from(bracket[0].value > bracket[1].value);
            continue;
        }
        let is_done = is_flat(&point);
        if !is_done && point.slope * (bracket[high].length - bracket[low].length) >= 0.0 {
            bracket[high] = bracket[low].clone();
        }
        bracket[low] = point;
        if is_done {
            break;
        }
    }
    let [first, second] = bracket;
    (if low == 0 { first } else { second }, iteration + 1)
}

/// Where the cubic through two points with slopes is least, within bounds.
fn cubic_minimum(a: &Point, b: &Point, (least, most): (f64, f64)) -> f64 {
    let d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.length - b.length);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 {
        return f64::midpoint(least, most);
    }
    let (a, b) = if a.length <= b.length { (a, b) } else { (b, a) };
    let d2 = libm::sqrt(square);
    let minimum = b.length - (b.length - a.length) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2));
    minimum.max(least).min(most)
}
