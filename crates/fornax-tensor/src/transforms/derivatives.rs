//! Derivatives of functions: [`vjp`] is the walk over the tape, everything else is made of it.

use super::{Outputs, vmap};
use crate::autodiff::Scope;
use crate::primitive::{cast, constant, reshape, source};
use crate::{DType, Error, Result, Scalar, Shape, Tensor, is_grad_enabled, no_grad, with_grad};
use alloc::format;
use alloc::vec::Vec;
use fornax_ir::Op;

/// The value of a scalar function, and its gradient with respect to each input.
///
/// Gradients are differentiable again with respect to tracked inputs, and to tracked tensors that `f` captures; if
/// there are none, the results are untracked. Zeros where `f` does not depend on an input.
///
/// # Shapes
/// - `f(inputs)`: one element; `gradients[i]`: as `inputs[i]`.
///
/// # Panics
/// If `f` returns more or less than one element, or an input is not a float.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, value_and_grad};
/// let x = Tensor::from([1.0, 2.0]);
/// let (value, gradients) = value_and_grad(|x| x[0].square().sum(()), &[&x]);
/// assert_eq!(value.item::<f32>(), 5.0);
/// assert_eq!(gradients[0].to_vec::<f32>(), [2.0, 4.0]);
/// ```
#[track_caller]
pub fn value_and_grad(f: impl FnOnce(&[Tensor]) -> Tensor, inputs: &[&Tensor]) -> (Tensor, Vec<Tensor>) {
    let (value, pullback) = vjp(f, inputs);
    if value.numel() != 1 {
        let error = Error::shape("value_and_grad", format!("f returns {}, not a single element", value.shape()));
        error.help("reduce it with `mean` or `sum`").raise();
    }
    let one = constant(Scalar::Float(1.0), value.dtype(), value.shape(), value.device());
    let gradients = pullback.call(&[&one]);
    (value, gradients)
}

/// The results of `f`, and its pullback: the map from cotangents of the results to those of the inputs.
///
/// With `J` the Jacobian of `f` at `inputs`, the pullback is `u ↦ Jᵀ u`. It may be called any number of times, and is
/// differentiable: with respect to the cotangents, to tracked inputs, and to tracked tensors that `f` captures.
///
/// # Panics
/// If an input is not a float.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, vjp};
/// let x = Tensor::from([1.0, 2.0]);
/// let (y, pullback) = vjp(|x| &x[0] * &x[0], &[&x]);
/// assert_eq!(y.to_vec::<f32>(), [1.0, 4.0]);
/// assert_eq!(pullback.call(&[&Tensor::from([1.0, 10.0])])[0].to_vec::<f32>(), [2.0, 40.0]);
/// ```
#[track_caller]
pub fn vjp<R: Outputs>(f: impl FnOnce(&[Tensor]) -> R, inputs: &[&Tensor]) -> (R, Pullback) {
    let scope = Scope::open(inputs);
    let outputs = with_grad(true, || f(&scope.inputs)).into_vec();
    let closed = outputs.iter().map(|y| scope.close(y)).collect();
    (R::from_vec(closed), Pullback { scope, outputs })
}

/// The map from cotangents of a function's results to those of its inputs; made by [`vjp`].
pub struct Pullback {
    scope: Scope,
    outputs: Vec<Tensor>,
}

impl Pullback {
    /// The cotangent of each input, zeros where the results do not depend on it.
    ///
    /// # Panics
    /// If there is not one cotangent a result, or one is not shaped like its result.
    #[track_caller]
    pub fn call(&self, cotangents: &[&Tensor]) -> Vec<Tensor> {
        let pulled = self.pull("vjp", cotangents);
        pulled.iter().map(|dx| self.scope.close(dx)).collect()
    }

    #[track_caller]
    fn pull(&self, op: &str, cotangents: &[&Tensor]) -> Vec<Tensor> {
        if let Err(error) = check(op, "result", "cotangent", &self.outputs, cotangents) {
            error.raise();
        }
        let cotangents: Vec<Tensor> = cotangents.iter().map(|&dy| dy.clone()).collect();
        match self.scope.gradients(&self.outputs, &cotangents) {
            Ok(found) => self.scope.inputs.iter().zip(found).map(|(x, dx)| x.gradient_or_zeros(dx)).collect(),
            Err(error) => error.raise(),
        }
    }
}

impl core::fmt::Debug for Pullback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pullback").field("inputs", &self.scope.inputs).field("outputs", &self.outputs).finish()
    }
}

/// The results of `f`, and how they change when the inputs move along `tangents`: `J · tangents`.
///
/// The pullback `u ↦ Jᵀ u` is linear, so its own pullback is `t ↦ J t`, exactly, at any `u`. Only the rules of reverse
/// mode are needed; what computes `Jᵀ u` itself is never run.
///
/// # Shapes
/// - `tangents[i]`: as `inputs[i]`; second result: as the first.
///
/// # Panics
/// If there is not one tangent an input, one is not shaped like its input, or an input is not a float.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, jvp};
/// let x = Tensor::from([1.0, 2.0]);
/// let t = Tensor::from([1.0, 0.5]);
/// let (y, dy) = jvp(|x| x[0].square(), &[&x], &[&t]);
/// assert_eq!(y.to_vec::<f32>(), [1.0, 4.0]);
/// assert_eq!(dy.to_vec::<f32>(), [2.0, 2.0]);
/// ```
///
/// # References
/// Townsend (2017), *A new trick for calculating Jacobian vector products*.
#[track_caller]
pub fn jvp<R: Outputs>(f: impl FnOnce(&[Tensor]) -> R, inputs: &[&Tensor], tangents: &[&Tensor]) -> (R, R) {
    let (outputs, mut pullback) = vjp(|x| f(x).into_vec(), inputs);
    if let Err(error) = check("jvp", "input", "tangent", &pullback.scope.inputs, tangents) {
        error.raise();
    }
    let zeros = outputs.iter().map(|y| constant(Scalar::Float(0.0), y.dtype(), y.shape(), y.device()));
    let inner = Scope::leaves(&zeros.collect::<Vec<_>>());
    let pulled = with_grad(true, || pullback.pull("jvp", &inner.inputs.iter().collect::<Vec<_>>()));
    let tangents: Vec<Tensor> = tangents.iter().map(|&t| t.clone()).collect();
    let pushed = match inner.gradients(&pulled, &tangents) {
        Ok(pushed) => pushed,
        Err(error) => error.raise(),
    };
    pullback.scope.adopt(&inner);
    let moved = inner.inputs.iter().zip(pushed).map(|(u, dy)| pullback.scope.close(&u.gradient_or_zeros(dy))).collect();
    (R::from_vec(outputs), R::from_vec(moved))
}

/// The Jacobian of `f` with respect to each input: all partial derivatives, computed as one batch.
///
/// `J[i…, j…] = ∂ f(x)[i…] / ∂ x[j…]`, by [`vmap`] of the pullback over the unit cotangents.
///
/// # Shapes
/// - result `i`: the dims of `f(inputs)`, then those of `inputs[i]`.
///
/// # Panics
/// If an input or the result of `f` is not a float.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, jacobian};
/// let x = Tensor::from([1.0, 2.0]);
/// let j = jacobian(|x| x[0].square(), &[&x]);
/// assert_eq!(j[0].to_vec::<f32>(), [2.0, 0.0, 0.0, 4.0]);
/// ```
#[track_caller]
pub fn jacobian(f: impl FnOnce(&[Tensor]) -> Tensor, inputs: &[&Tensor]) -> Vec<Tensor> {
    jacobians(|x| alloc::vec![f(x)], inputs).swap_remove(0)
}

/// The Hessian of a scalar function, a block for each pair of inputs.
///
/// `H[a][b][i…, j…] = ∂² f / ∂ x_a[i…] ∂ x_b[j…]`: the Jacobian of the gradient.
///
/// # Shapes
/// - `H[a][b]`: the dims of `inputs[a]`, then those of `inputs[b]`.
///
/// # Panics
/// If `f` returns more or less than one element, or an input is not a float.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, hessian};
/// let x = Tensor::from([1.0, 2.0]);
/// let h = hessian(|x| (x[0].square() * &x[0]).sum(()), &[&x]);
/// assert_eq!(h[0][0].to_vec::<f32>(), [6.0, 0.0, 0.0, 12.0]);
/// ```
#[track_caller]
pub fn hessian(f: impl FnOnce(&[Tensor]) -> Tensor, inputs: &[&Tensor]) -> Vec<Vec<Tensor>> {
    jacobians(|x| value_and_grad(f, &x.iter().collect::<Vec<_>>()).1, inputs)
}

/// The gradient of a scalar function, and the product of its Hessian with `vectors`, without forming the Hessian.
///
/// `H v = ∇(∇f · v)`: the pullback of the gradient, since `H` is symmetric. Costs a few times what `f` does.
///
/// # Shapes
/// - `vectors[i]` and both results: as `inputs[i]`.
///
/// # Panics
/// If `f` returns more or less than one element, an input is not a float, or a vector is not shaped like its input.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, hvp};
/// let x = Tensor::from([1.0, 2.0]);
/// let v = Tensor::from([1.0, 1.0]);
/// let (gradient, product) = hvp(|x| (x[0].square() * &x[0]).sum(()), &[&x], &[&v]);
/// assert_eq!(gradient[0].to_vec::<f32>(), [3.0, 12.0]);
/// assert_eq!(product[0].to_vec::<f32>(), [6.0, 12.0]);
/// ```
///
/// # References
/// Pearlmutter (1994), *Fast Exact Multiplication by the Hessian*.
#[track_caller]
pub fn hvp(f: impl FnOnce(&[Tensor]) -> Tensor, inputs: &[&Tensor], vectors: &[&Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
    let (gradient, pullback) = vjp(|x| value_and_grad(f, &x.iter().collect::<Vec<_>>()).1, inputs);
    if let Err(error) = check("hvp", "input", "vector", &pullback.scope.inputs, vectors) {
        error.raise();
    }
    let product = pullback.call(vectors);
    (gradient, product)
}

/// `[result][input]`.
#[track_caller]
fn jacobians(f: impl FnOnce(&[Tensor]) -> Vec<Tensor>, inputs: &[&Tensor]) -> Vec<Vec<Tensor>> {
    let (outputs, pullback) = vjp(f, inputs);
    let zeros: Vec<Tensor> =
        outputs.iter().map(|y| constant(Scalar::Float(0.0), y.dtype(), y.shape(), y.device())).collect();
    let rows = |i: usize| -> Result<Vec<Tensor>> {
        let y = &outputs[i];
        let unit = |u: &[Tensor]| {
            let cotangents: Vec<&Tensor> = (0..zeros.len()).map(|j| if j == i { &u[0] } else { &zeros[j] }).collect();
            pullback.pull("jacobian", &cotangents)
        };
        let rows = vmap(unit, &[&units(y)?], &[Some(0)]);
        let fit = |(row, x): (&Tensor, &Tensor)| {
            let shape: Shape = y.shape().iter().chain(x.shape().iter()).copied().collect();
            Ok(pullback.scope.close(&reshape(row, &shape)?))
        };
        rows.iter().zip(&pullback.scope.inputs).map(fit).collect()
    };
    let all = || (0..outputs.len()).map(rows).collect::<Result<_>>();
    match if is_grad_enabled() { all() } else { no_grad(all) } {
        Ok(blocks) => blocks,
        Err(error) => error.raise(),
    }
}

/// Every tensor of `y`'s shape with a single one, zeros elsewhere: `[numel, …]`.
#[track_caller]
fn units(y: &Tensor) -> Result<Tensor> {
    let square = Shape::from([y.numel(), y.numel()]);
    let place = |dim: usize| source(Op::Iota { dim }, DType::I64, square.clone(), y.device());
    let shape = core::iter::once(y.numel()).chain(y.shape().iter().copied()).collect();
    reshape(&cast(&place(0).try_eq(place(1))?, y.dtype())?, &shape)
}

/// One of `given` for each of `wanted`, of the same shape.
fn check(op: &str, what: &str, name: &str, wanted: &[Tensor], given: &[&Tensor]) -> Result<()> {
    if wanted.len() != given.len() {
        let message = format!("{} {what}s, but {} {name}s", wanted.len(), given.len());
        return Err(Error::argument(op, message));
    }
    match wanted.iter().zip(given).find(|(wanted, given)| wanted.shape() != given.shape()) {
        Some((wanted, given)) => {
            Err(Error::shape(op, format!("{what} {} with {name} {}", wanted.shape(), given.shape())))
        }
        None => Ok(()),
    }
}
