//! [`Scope`]: a stretch of the tape, from the inputs of a function to its results.

use super::{Keep, NEXT_ID, Rule, Saved, Tape, track, walk};
use crate::sync::grad_mode;
use crate::{Tensor, primitive, with_grad};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use fornax_ir::{DType, Op, Result, Scalar, Shape};

/// The entries made since it was opened. Below it lie stand-ins for the inputs, and whatever the function captures.
pub(crate) struct Scope {
    /// A stand-in for each input. What flows to one does not count for other uses of the same input.
    pub(crate) inputs: Vec<Tensor>,
    /// Entries of the function are not older than this, all others are.
    floor: u64,
    /// Leaves that only this scope knows.
    own: Vec<u64>,
}

impl Scope {
    /// Untracked inputs become leaves; tracked ones stay connected, so that results are differentiable again.
    #[track_caller]
    pub(crate) fn open(inputs: &[&Tensor]) -> Scope {
        let mut scope = Scope { inputs: Vec::new(), floor: 0, own: Vec::new() };
        for &x in inputs {
            let input = if x.tape.is_some() { connected(x) } else { scope.leaf(x) };
            scope.inputs.push(input);
        }
        scope.floor = NEXT_ID.load(Ordering::Relaxed);
        scope
    }

    /// As [`Scope::open`], but untracked inputs stay untracked.
    pub(crate) fn pass(inputs: &[Tensor]) -> Scope {
        let inputs = inputs.iter().map(|x| if x.tape.is_some() { connected(x) } else { x.clone() }).collect();
        Scope { inputs, floor: NEXT_ID.load(Ordering::Relaxed), own: Vec::new() }
    }

    /// Every float becomes a leaf, whatever is behind it.
    #[track_caller]
    pub(crate) fn leaves(inputs: &[Tensor]) -> Scope {
        let mut scope = Scope { inputs: Vec::new(), floor: 0, own: Vec::new() };
        for x in inputs {
            let input = if x.dtype().is_float() { scope.leaf(x) } else { x.clone() };
            scope.inputs.push(input);
        }
        scope.floor = NEXT_ID.load(Ordering::Relaxed);
        scope
    }

    /// Counts the leaves of another scope as its own.
    pub(crate) fn adopt(&mut self, other: &Scope) {
        self.own.extend(&other.own);
    }

    /// A leaf that counts as the scope's own.
    #[track_caller]
    fn leaf(&mut self, x: &Tensor) -> Tensor {
        // Inside `vmap` this cuts the tape of the example only: that of the batch belongs to whoever called `vmap`.
        let Tensor { tape, .. } = x.requires_grad();
        self.own.extend(tape.as_ref().map(|tape| tape.id));
        Tensor { value: x.value.clone(), tape }
    }

    /// Gradients of the stand-ins, `None` where `outputs` do not depend on one. The tape is kept.
    #[track_caller]
    pub(crate) fn gradients(&self, outputs: &[Tensor], cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let wanted: Vec<Option<u64>> = self.inputs.iter().map(|x| x.tape.as_ref().map(|tape| tape.id)).collect();
        let named: Vec<u64> = wanted.iter().copied().flatten().collect();
        let found = walk_tracked(outputs, cotangents, &named, self.floor, Keep::Yes)?;
        Ok(wanted.iter().map(|id| id.and_then(|id| found.get(&id).cloned())).collect())
    }

    /// Cut off from the tape if nothing but this scope's own leaves is behind it: otherwise a result would keep all
    /// that it was computed from alive.
    pub(crate) fn close(&self, output: &Tensor) -> Tensor {
        let is_open = grad_mode::get() && !self.sources(core::slice::from_ref(output)).is_empty();
        if is_open { output.clone() } else { Tensor::untracked(output.value.clone()) }
    }

    /// Replaces the entries behind `outputs` by one that runs `again` when a gradient arrives.
    ///
    /// `again` opens a scope and computes the outputs anew in it.
    pub(crate) fn recompute(
        self,
        outputs: Vec<Tensor>,
        again: impl Fn() -> (Scope, Vec<Tensor>) + Send + Sync + 'static,
    ) -> Vec<Tensor> {
        let sources: Vec<Saved> =
            self.sources(&outputs).into_iter().filter(|source| source.id() < self.floor).collect();
        if sources.is_empty() {
            return outputs.into_iter().map(|y| Tensor::untracked(y.value.clone())).collect();
        }
        // Where each gradient is found after the second run: captured entries are the same, stand-ins are new.
        let id_of = |x: &Tensor| x.tape.as_ref().map(|tape| tape.id);
        let places: Vec<(Option<usize>, u64)> = sources
            .iter()
            .map(|source| (self.inputs.iter().position(|x| id_of(x) == Some(source.id())), source.id()))
            .collect();
        let rule = move |dy: &[Option<Tensor>]| {
            let keep = if grad_mode::get() { Keep::Yes } else { Keep::No };
            let (scope, outputs) = with_grad(true, &again);
            let (outputs, dy): (Vec<Tensor>, Vec<Tensor>) =
                outputs.into_iter().zip(dy).filter_map(|(y, dy)| Some((y, dy.clone()?))).unzip();
            let id = |&(input, captured): &(Option<usize>, u64)| match input {
                Some(input) => id_of(&scope.inputs[input]),
                None => Some(captured),
            };
            let wanted: Vec<u64> = places.iter().filter_map(id).collect();
            let found = match walk_tracked(&outputs, &dy, &wanted, scope.floor, keep) {
                Ok(found) => found,
                Err(error) => error.raise(),
            };
            places.iter().map(|place| found.get(&id(place)?).cloned()).collect()
        };
        let is_tracked: Vec<bool> = outputs.iter().map(|y| y.tape.is_some()).collect();
        let tracked = track(sources, outputs, Arc::new(rule)).into_iter().zip(is_tracked);
        tracked.map(|(y, is_tracked)| if is_tracked { y } else { Tensor::untracked(y.value.clone()) }).collect()
    }

    /// What `outputs` depend on from outside: entries below the scope, and leaves that are not its own.
    fn sources(&self, outputs: &[Tensor]) -> Vec<Saved> {
        let mut search =
            Search { floor: self.floor, own: &self.own, seen: BTreeSet::new(), inside: Vec::new(), found: Vec::new() };
        for output in outputs {
            search.meet(output.tape.as_ref(), output.dtype(), output.shape());
        }
        while let Some(tape) = search.inside.pop() {
            match &*tape.rule.lock() {
                Rule::Leaf | Rule::Freed => {}
                Rule::Unary { input, .. } => search.meet_saved(input),
                Rule::Primitive { inputs, .. } => inputs.iter().for_each(|input| search.meet_saved(input)),
                Rule::Custom { inputs, .. } => inputs.iter().for_each(|input| search.meet_saved(input)),
                Rule::Part { of, .. } => search.inside.push(of.clone()),
            }
        }
        search.found
    }
}

struct Search<'a> {
    floor: u64,
    own: &'a [u64],
    seen: BTreeSet<u64>,
    inside: Vec<Arc<Tape>>,
    found: Vec<Saved>,
}

impl Search<'_> {
    fn meet_saved(&mut self, saved: &Saved) {
        self.meet(saved.tape.as_ref(), saved.dtype, &saved.shape);
    }

    fn meet(&mut self, tape: Option<&Arc<Tape>>, dtype: DType, shape: &Shape) {
        let Some(tape) = tape.filter(|tape| !self.own.contains(&tape.id)) else { return };
        if !self.seen.insert(tape.id) {
            return;
        }
        if tape.id < self.floor || tape.is_leaf() {
            self.found.push(Saved { value: None, dtype, shape: shape.clone(), tape: Some(tape.clone()) });
        } else {
            self.inside.push(tape.clone());
        }
    }
}

impl Saved {
    fn id(&self) -> u64 {
        self.tape.as_ref().map_or(0, |tape| tape.id)
    }
}

/// The same value with an entry of its own; its gradient goes on to `x`.
fn connected(x: &Tensor) -> Tensor {
    Tape::primitive(Op::Reshape, &[x], x.value.clone())
}

/// [`walk`] from those outputs that are tracked.
#[track_caller]
fn walk_tracked(
    outputs: &[Tensor],
    cotangents: &[Tensor],
    wanted: &[u64],
    floor: u64,
    keep: Keep,
) -> Result<BTreeMap<u64, Tensor>> {
    let tracked = outputs.iter().zip(cotangents).filter(|(y, _)| y.tape.is_some());
    let (outputs, cotangents): (Vec<&Tensor>, Vec<Tensor>) = tracked.map(|(y, dy)| (y, dy.clone())).unzip();
    walk(&outputs, &cotangents, wanted, floor, keep)
}

impl Tensor {
    /// `gradient`, or zeros like this.
    #[track_caller]
    pub(crate) fn gradient_or_zeros(&self, gradient: Option<Tensor>) -> Tensor {
        gradient.unwrap_or_else(|| primitive::constant(Scalar::Float(0.0), self.dtype(), self.shape(), self.device()))
    }
}
