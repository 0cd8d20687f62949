//! Reverse-mode differentiation over the tape.
//!
//! Every recorded op with a tracked operand leaves a [`Tape`] entry: the op, and of its operands and result what its
//! rule needs. [`Tensor::backward`] walks the entries from the newest to the oldest. Rules ([`rules`]) are written in
//! ordinary tensor ops, so gradients fuse with the forward pass, and gradients of gradients work.

mod rules;
mod scope;

pub(crate) use scope::Scope;

use crate::node::Value;
use crate::sync::{Mutex, grad_mode};
use crate::transforms::Level;
use crate::{Tensor, primitive};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use fornax_ir::{BinaryOp, DType, Error, ErrorKind, Op, Result, Scalar, Shape};
use smallvec::SmallVec;

/// Numbers entries; an op's entry is newer than those of its operands.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Where a tracked tensor came from.
pub(crate) struct Tape {
    pub(crate) id: u64,
    rule: Mutex<Rule>,
}

#[expect(clippy::large_enum_variant, reason = "primitives are the common case; a box would cost every one of them")]
enum Rule {
    /// A tensor that the user asked gradients for.
    Leaf,
    /// A primitive.
    Primitive { op: Op, inputs: SmallVec<[Saved; 3]>, output: Option<Value> },
    /// A function of one tensor, with a rule in terms of its operand or its result.
    Unary { input: Saved, output: Option<Value>, rule: UnaryRule },
    /// A function with its own rule, with `outputs` results.
    Custom { inputs: Vec<Saved>, outputs: usize, rule: CustomRule },
    /// One result of a custom function.
    Part { of: Arc<Tape>, index: usize },
    /// Used by a backward pass that did not keep it.
    Freed,
}

/// From the gradients of the results (where there are any) to those of the inputs.
type CustomRule = Arc<dyn Fn(&[Option<Tensor>]) -> Vec<Option<Tensor>> + Send + Sync>;

/// From the operand or the result, and the gradient of the result, to that of the operand.
type UnaryRule = Arc<dyn Fn(&Tensor, &Tensor) -> Tensor + Send + Sync>;

/// What a rule of [`with_rule`] reads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Reads {
    /// The operand.
    Input,
    /// The result.
    Output,
}

/// What is kept of an operand.
pub(crate) struct Saved {
    /// The value, if the rule reads it.
    value: Option<Value>,
    dtype: DType,
    shape: Shape,
    tape: Option<Arc<Tape>>,
}

impl Saved {
    fn new(tensor: &Tensor, keep_value: bool) -> Saved {
        Saved {
            value: keep_value.then(|| tensor.value.clone()),
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
            tape: tensor.tape.clone(),
        }
    }

    fn tensor(&self) -> Tensor {
        let value = self.value.clone().expect("`rules::needs` names every value that a rule reads");
        Tensor { value, tape: self.tape.clone() }
    }
}

impl Tape {
    fn new(rule: Rule) -> Arc<Tape> {
        Arc::new(Tape { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), rule: Mutex::new(rule) })
    }

    pub(crate) fn leaf() -> Arc<Tape> {
        Tape::new(Rule::Leaf)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        matches!(*self.rule.lock(), Rule::Leaf)
    }

    /// The result of a primitive, tracked.
    pub(crate) fn primitive(op: Op, inputs: &[&Tensor], value: Value) -> Tensor {
        let needs = rules::needs(&op);
        let tracked = |i: usize| inputs[i].tape.is_some();
        let saved = inputs.iter().enumerate().map(|(i, x)| Saved::new(x, needs.input(i, &tracked))).collect();
        let output = needs.output.then(|| value.clone());
        Tensor { value, tape: Some(Tape::new(Rule::Primitive { op, inputs: saved, output })) }
    }
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tape({})", self.id)
    }
}

impl Drop for Tape {
    /// Takes long chains apart in a loop: by recursion they would overflow the stack.
    fn drop(&mut self) {
        let mut stack: Vec<Arc<Tape>> = Vec::new();
        core::mem::replace(&mut *self.rule.lock(), Rule::Freed).push_parents(&mut stack);
        while let Some(tape) = stack.pop() {
            if let Some(tape) = Arc::into_inner(tape) {
                core::mem::replace(&mut *tape.rule.lock(), Rule::Freed).push_parents(&mut stack);
            }
        }
    }
}

impl Rule {
    fn push_parents(self, stack: &mut Vec<Arc<Tape>>) {
        match self {
            Rule::Leaf | Rule::Freed => {}
            Rule::Unary { input, .. } => stack.extend(input.tape),
            Rule::Primitive { inputs, .. } => stack.extend(inputs.into_iter().filter_map(|saved| saved.tape)),
            Rule::Custom { inputs, .. } => stack.extend(inputs.into_iter().filter_map(|saved| saved.tape)),
            Rule::Part { of, .. } => stack.push(of),
        }
    }
}

/// Whether an op on these operands belongs on the tape.
pub(crate) fn is_recorded(op: &Op, dtype: DType, inputs: &[&Tensor]) -> bool {
    inputs.iter().any(|x| x.tape.is_some()) && dtype.is_float() && grad_mode::get() && !matches!(op, Op::Bitcast(_))
}

/// Whether ops on tracked tensors are recorded for gradients on this thread.
pub fn is_grad_enabled() -> bool {
    grad_mode::get()
}

/// Runs `f` without recording gradients on this thread; what it returns is untracked.
///
/// ```
/// use fornax_tensor::{Tensor, no_grad};
/// let w = Tensor::from([1.0, 2.0]).requires_grad();
/// let y = no_grad(|| &w * 2.0);
/// assert!(!y.is_tracked());
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(false, f)
}

/// Runs `f` with the recording of gradients switched on or off on this thread.
pub fn with_grad<T>(enabled: bool, f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            grad_mode::replace(self.0);
        }
    }
    let _restore = Restore(grad_mode::replace(enabled));
    f()
}

/// Gradients by the leaf they belong to.
#[derive(Debug, Default)]
pub struct Gradients(BTreeMap<u64, Tensor>);

impl Gradients {
    /// The gradient of a leaf (a tensor from [`Tensor::requires_grad`]); `None` if the loss does not depend on it.
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.0.get(&leaf.tape.as_ref()?.id)
    }

    /// Takes the gradient of a leaf out.
    pub fn remove(&mut self, leaf: &Tensor) -> Option<Tensor> {
        self.0.remove(&leaf.tape.as_ref()?.id)
    }

    /// Puts a gradient in the place of a leaf's, as clipping and scaling do.
    pub fn insert(&mut self, leaf: &Tensor, gradient: Tensor) {
        if let Some(tape) = &leaf.tape {
            self.0.insert(tape.id, gradient);
        }
    }

    /// Adds the gradients of another loss: those of several batches become those of one large batch.
    ///
    /// ```
    /// use fornax_tensor::{Gradients, Tensor};
    /// let w = Tensor::from([1.0, 2.0]).requires_grad();
    /// let mut gradients = Gradients::default();
    /// for batch in [[1.0, 0.0], [3.0, 5.0]] {
    ///     gradients.accumulate((&w * Tensor::from(batch)).sum(()).backward());
    /// }
    /// assert_eq!(gradients.get(&w).unwrap().to_vec::<f32>(), [4.0, 5.0]);
    /// ```
    #[track_caller]
    pub fn accumulate(&mut self, other: Gradients) {
        for (id, gradient) in other.0 {
            let sum = match self.0.get(&id) {
                Some(own) => no_grad(|| own + gradient),
                None => gradient,
            };
            self.0.insert(id, sum);
        }
    }

    /// Number of leaves with a gradient.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no gradient at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All gradients, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.0.values_mut()
    }

    /// All gradients.
    pub fn values(&self) -> impl Iterator<Item = &Tensor> {
        self.0.values()
    }
}

impl Tensor {
    /// The gradients of this scalar with respect to every leaf it depends on. Frees the tape behind it.
    ///
    /// # Panics
    /// If this is not a single element, is not tracked, or its tape was freed by an earlier call.
    ///
    /// ```
    /// use fornax_tensor::Tensor;
    /// let x = Tensor::from([1.0, 2.0, 3.0]).requires_grad();
    /// let loss = (&x * &x).sum(());
    /// let gradients = loss.backward();
    /// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), [2.0, 4.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn backward(&self) -> Gradients {
        match self.try_backward() {
            Ok(gradients) => gradients,
            Err(error) => error.raise(),
        }
    }

    /// As [`Tensor::backward`].
    ///
    /// # Errors
    /// If this is not a single element, is not tracked, or its tape was freed by an earlier call.
    #[track_caller]
    pub fn try_backward(&self) -> Result<Gradients> {
        if self.shape().numel() != 1 {
            let message = format!("needs a single element, got {}", self.shape());
            return Err(Error::shape("backward", message).help("reduce the loss with `mean` or `sum`"));
        }
        let ones = primitive::constant(Scalar::Float(1.0), self.dtype(), self.shape(), self.device());
        no_grad(|| walk(&[self], &[ones], &[], 0, Keep::No)).map(Gradients)
    }
}

/// Gradients of `outputs`, weighted by ones, with respect to `inputs`: differentiable again.
///
/// Each result is shaped like its input, `None` where the outputs do not depend on it.
///
/// # Errors
/// If an output is not tracked.
///
/// ```
/// use fornax_tensor::{Tensor, grad};
/// let x = Tensor::from([2.0]).requires_grad();
/// let y = &x * &x * &x;
/// let dy = grad(&[&y], &[&x])?[0].clone().unwrap();          // 3 x²
/// let ddy = grad(&[&dy], &[&x])?[0].clone().unwrap();        // 6 x
/// assert_eq!((dy.item::<f32>(), ddy.item::<f32>()), (12.0, 12.0));
/// # Ok::<(), fornax_tensor::Error>(())
/// ```
#[track_caller]
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    let ones: Vec<Tensor> = outputs
        .iter()
        .map(|output| primitive::constant(Scalar::Float(1.0), output.dtype(), output.shape(), output.device()))
        .collect();
    grad_with(outputs, inputs, &ones.iter().collect::<Vec<_>>())
}

/// As [`grad`], with a cotangent for each output in place of ones.
///
/// # Errors
/// If an output is not tracked, or a cotangent is not shaped like its output.
#[track_caller]
pub fn grad_with(outputs: &[&Tensor], inputs: &[&Tensor], cotangents: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    if outputs.len() != cotangents.len() {
        let message = format!("{} outputs, but {} cotangents", outputs.len(), cotangents.len());
        return Err(Error::argument("grad", message));
    }
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        if output.shape() != cotangent.shape() {
            let message = format!("output {} with cotangent {}", output.shape(), cotangent.shape());
            return Err(Error::shape("grad", message));
        }
    }
    let mut wanted = Vec::new();
    for input in inputs {
        match &input.tape {
            Some(tape) => wanted.push(tape.id),
            None => return Err(untracked("grad")),
        }
    }
    let cotangents: Vec<Tensor> = cotangents.iter().map(|&cotangent| cotangent.clone()).collect();
    // Entries are newer than what they read: nothing older than the oldest input leads to one.
    let floor = wanted.iter().min().map_or(0, |oldest| oldest + 1);
    let found = with_grad(true, || walk(outputs, &cotangents, &wanted, floor, Keep::Yes))?;
    Ok(wanted.iter().map(|id| found.get(id).cloned()).collect())
}

/// Calls `forward` on untracked inputs; gradients of its results go through `backward` instead of its ops.
///
/// `backward` gets the gradient of each result (`None` where there is none) and gives one for each input (`None` for
/// zero). To be differentiable again, it must be written in terms of tracked tensors it captured.
///
/// ```
/// use fornax_tensor::{Tensor, custom_gradient};
/// // Identity forward, gradient halved.
/// let x = Tensor::from([1.0, 2.0]).requires_grad();
/// let y = custom_gradient(&[&x], |x| vec![x[0].clone()], |dy| vec![dy[0].as_ref().map(|dy| dy * 0.5)]);
/// let gradients = y[0].sum(()).backward();
/// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), [0.5, 0.5]);
/// ```
#[track_caller]
pub fn custom_gradient(
    inputs: &[&Tensor],
    forward: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
    backward: impl Fn(&[Option<Tensor>]) -> Vec<Option<Tensor>> + Send + Sync + 'static,
) -> Vec<Tensor> {
    let detached: Vec<Tensor> = inputs.iter().map(|x| x.detach()).collect();
    let outputs = no_grad(|| forward(&detached));
    if grad_mode::get() { attach(inputs, outputs, Arc::new(backward)) } else { outputs }
}

/// Puts a rule behind `outputs`, on the tape of every level of `vmap` that the inputs or outputs belong to.
#[track_caller]
fn attach(inputs: &[&Tensor], mut outputs: Vec<Tensor>, rule: CustomRule) -> Vec<Tensor> {
    if let Some(level) = Level::innermost(inputs.iter().copied().chain(&outputs)) {
        let whole: Vec<Tensor> = inputs.iter().map(|&x| level.batch(x).unwrap_or(x).clone()).collect();
        let is_batched: Vec<bool> = inputs.iter().map(|&x| level.batch(x).is_some()).collect();
        let rule = rule.clone();
        let batched = move |dy: &[Option<Tensor>]| -> Vec<Option<Tensor>> {
            let dy: Vec<Option<Tensor>> = dy.iter().map(|dy| dy.clone().map(|dy| level.example(dy))).collect();
            let dx = rule(&dy).into_iter().zip(&is_batched);
            dx.map(|(dx, &is_batched)| dx.map(|dx| level.gradient(&dx, is_batched))).collect()
        };
        let batches = outputs.iter().map(|y| level.all(y)).collect();
        let tracked = attach(&whole.iter().collect::<Vec<_>>(), batches, Arc::new(batched));
        outputs = tracked.into_iter().map(|y| level.example(y)).collect();
    }
    if inputs.iter().all(|x| x.tape.is_none()) {
        return outputs;
    }
    track(inputs.iter().map(|x| Saved::new(x, false)).collect(), outputs, rule)
}

/// A custom rule's entry, and one for each of its results.
fn track(inputs: Vec<Saved>, outputs: Vec<Tensor>, rule: CustomRule) -> Vec<Tensor> {
    let whole = Tape::new(Rule::Custom { inputs, outputs: outputs.len(), rule });
    let track = |(index, output): (usize, Tensor)| {
        let tracked = output.dtype().is_float();
        let tape = tracked.then(|| Tape::new(Rule::Part { of: whole.clone(), index }));
        Tensor { value: output.value.clone(), tape }
    };
    outputs.into_iter().enumerate().map(track).collect()
}

/// `y`, computed from `x` off the tape, with a gradient rule of its own: from the operand or the result (whichever it
/// `reads`) and `dy`. Rules in tensor ops are differentiable again.
#[track_caller]
pub(crate) fn with_rule(
    x: &Tensor,
    y: Tensor,
    reads: Reads,
    rule: impl Fn(&Tensor, &Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    if !grad_mode::get() || (x.tape.is_none() && Level::innermost([x, &y]).is_none()) {
        return y;
    }
    attach_unary(x, y, reads, Arc::new(rule))
}

/// As [`attach`].
#[track_caller]
fn attach_unary(x: &Tensor, mut y: Tensor, reads: Reads, rule: UnaryRule) -> Tensor {
    if let Some(level) = Level::innermost([x, &y]) {
        let is_batched = level.batch(x).is_some();
        let rule = rule.clone();
        let batched = move |read: &Tensor, dy: &Tensor| {
            let is_example = is_batched || reads == Reads::Output;
            let read = if is_example { level.example(read.clone()) } else { read.clone() };
            level.gradient(&rule(&read, &level.example(dy.clone())), is_batched)
        };
        let whole = level.batch(x).unwrap_or(x);
        y = level.example(attach_unary(whole, level.all(&y), reads, Arc::new(batched)));
    }
    if x.tape.is_none() {
        return y;
    }
    let input = Saved::new(x, reads == Reads::Input);
    let output = (reads == Reads::Output).then(|| y.value.clone());
    Tensor { value: y.value.clone(), tape: Some(Tape::new(Rule::Unary { input, output, rule })) }
}

/// Whether the tape survives the walk.
#[derive(Clone, Copy, PartialEq)]
enum Keep {
    Yes,
    No,
}

/// Gradients by tape id: of all leaves, and of the `wanted` entries. Stops at entries older than `floor`.
#[track_caller]
fn walk(
    outputs: &[&Tensor],
    cotangents: &[Tensor],
    wanted: &[u64],
    floor: u64,
    keep: Keep,
) -> Result<BTreeMap<u64, Tensor>> {
    let mut found = BTreeMap::new();
    let mut pending = Pending::default();
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        let tape = output.tape.as_ref().ok_or_else(|| untracked("backward"))?;
        pending.add(tape, 0, 1, primitive::cast(cotangent, output.dtype())?)?;
    }
    while let Some((_, (tape, mut gradients))) = pending.0.pop_last() {
        let mut rule = tape.rule.lock();
        if let (true, Some(gradient)) = (wanted.contains(&tape.id) || matches!(*rule, Rule::Leaf), &gradients[0]) {
            found.insert(tape.id, gradient.clone());
        }
        if tape.id < floor {
            continue;
        }
        match &*rule {
            Rule::Leaf => continue,
            Rule::Freed => return Err(freed()),
            Rule::Primitive { op, inputs, output } => {
                let Some(dy) = gradients[0].take() else { continue };
                let output = output.clone().map(|value| Tensor { value, tape: Some(tape.clone()) });
                let results = rules::vjp(op, inputs, output.as_ref(), &dy)?;
                for (input, gradient) in inputs.iter().zip(results) {
                    if let (Some(parent), Some(gradient)) = (&input.tape, gradient) {
                        pending.add(parent, 0, 1, gradient)?;
                    }
                }
            }
            Rule::Unary { input, output, rule } => {
                if let (Some(parent), Some(dy)) = (&input.tape, gradients[0].take()) {
                    let read = match output {
                        Some(value) => Tensor { value: value.clone(), tape: Some(tape.clone()) },
                        None => input.tensor(),
                    };
                    pending.add(parent, 0, 1, rule(&read, &dy))?;
                }
            }
            Rule::Custom { inputs, outputs, rule } => {
                gradients.resize(*outputs, None);
                for (input, gradient) in inputs.iter().zip(rule(&gradients)) {
                    if let (Some(parent), Some(gradient)) = (&input.tape, gradient) {
                        if *gradient.shape() != input.shape {
                            let message = format!("gradient {} of an input {}", gradient.shape(), input.shape);
                            return Err(Error::shape("custom gradient", message));
                        }
                        pending.add(parent, 0, 1, primitive::cast(&gradient, input.dtype)?)?;
                    }
                }
            }
            Rule::Part { of, index } => {
                let outputs = match &*of.rule.lock() {
                    Rule::Custom { outputs, .. } => *outputs,
                    _ => return Err(freed()),
                };
                if let Some(gradient) = gradients[0].take() {
                    pending.add(of, *index, outputs, gradient)?;
                }
            }
        }
        if keep == Keep::No {
            let freed = core::mem::replace(&mut *rule, Rule::Freed);
            drop(rule);
            drop(freed);
        }
    }
    Ok(found)
}

/// Entries to visit, newest last, with the gradients that arrived so far.
#[derive(Default)]
struct Pending(BTreeMap<u64, (Arc<Tape>, Vec<Option<Tensor>>)>);

impl Pending {
    #[track_caller]
    fn add(&mut self, tape: &Arc<Tape>, index: usize, outputs: usize, gradient: Tensor) -> Result<()> {
        let entry = self.0.entry(tape.id).or_insert_with(|| (tape.clone(), vec![None; outputs]));
        let slot = &mut entry.1[index];
        *slot = Some(match slot.take() {
            None => gradient,
            Some(sum) => primitive::record(Op::Binary(BinaryOp::Add), &[&sum, &gradient], None)?,
        });
        Ok(())
    }
}

#[cold]
fn freed() -> Error {
    Error::new(ErrorKind::Gradient, "backward", "the tape was freed by an earlier backward")
        .help("use `grad`, which keeps it, for all but the last pass")
}

#[cold]
fn untracked(op: &str) -> Error {
    Error::new(ErrorKind::Gradient, op, "the tensor is not tracked: no operand has `requires_grad`")
        .help("was it made inside `no_grad`, detached, or computed from integers?")
}
