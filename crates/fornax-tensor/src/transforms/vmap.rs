//! [`vmap`]: a function of one example becomes a function of a batch.
//!
//! Inside `vmap` a tensor stands for one example: it has an example's shape, and holds the tensor of all examples
//! ([`Batched`]). An op on examples is recorded once, on their batches, in the form that [`batching`](super::batching)
//! gives it; the device's log never sees an example. The batches carry the tape of whoever called `vmap`, the examples
//! that of gradients taken inside: so both nest in any order, as `vmap` does in `vmap`.

use super::Outputs;
use crate::node::{Node, Value};
use crate::{Tensor, primitive};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};
use fornax_ir::{Dims, Error, ReduceOp, Result, Shape};

/// Calls `f` on one example and runs it on all of them at once: for each op of `f` one op on the whole batch.
///
/// `in_dims` names the dim of each input that counts the examples (negative from the end); `None` is an input that all
/// examples share. The results count the examples in dim 0. What `f` captures is shared too.
///
/// # Shapes
/// - `inputs[i]`: `[…, b, …]` with `b` at `in_dims[i]`; inside `f` this dim is gone.
/// - result: `[b, …]` for each result `[…]` of `f`.
///
/// # Notes
/// - `f` runs once, on tensors that have no value yet: it must not read one ([`Tensor::to_vec`], [`Tensor::item`]).
/// - Random numbers drawn inside are the same for each example; pass a batch of them in for different ones.
/// - Gradients flow through it, and can be taken inside: `vmap` of a gradient gives a gradient for each example.
///   A gradient through an input that is shared is summed over the examples.
///
/// # Panics
/// If `in_dims` has not one entry an input, names no dim at all, or if the numbers of examples differ.
///
/// # Example
/// ```
/// use fornax_tensor::{Tensor, value_and_grad, vmap};
/// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let w = Tensor::from([1.0, -1.0]);
/// // The dot product of each row with `w`.
/// let y = vmap(|v| (&v[0] * &v[1]).sum(()), &[&x, &w], &[Some(0), None]);
/// assert_eq!(y.to_vec::<f32>(), [-1.0, -1.0]);
/// // The gradient of a loss for each example.
/// let loss = |w: &[Tensor], x: &Tensor| (&w[0] * x).sum(()).square();
/// let dw = vmap(|v| value_and_grad(|w| loss(w, &v[0]), &[&w]).1, &[&x], &[Some(0)]);
/// assert_eq!(dw[0].to_vec::<f32>(), [-2.0, -4.0, -6.0, -8.0]);
/// ```
///
/// # References
/// Frostig, Johnson, Leary (2018), *Compiling machine learning programs via high-level tracing*;
/// `torch.func.vmap`, `jax.vmap`.
#[track_caller]
pub fn vmap<R: Outputs>(f: impl FnOnce(&[Tensor]) -> R, inputs: &[&Tensor], in_dims: &[Option<isize>]) -> R {
    let (level, batches) = match batches(inputs, in_dims) {
        Ok(found) => found,
        Err(error) => error.raise(),
    };
    let examples: Vec<Tensor> =
        batches.into_iter().zip(in_dims).map(|(x, dim)| if dim.is_some() { level.example(x) } else { x }).collect();
    R::from_vec(f(&examples).into_vec().iter().map(|y| level.all(y)).collect())
}

/// The inputs with their batch dim in front, and a level for them.
#[track_caller]
fn batches(inputs: &[&Tensor], in_dims: &[Option<isize>]) -> Result<(Level, Vec<Tensor>)> {
    if inputs.len() != in_dims.len() {
        return Err(Error::argument("vmap", format!("{} inputs, but {} in_dims", inputs.len(), in_dims.len())));
    }
    let mut size = None;
    let mut moved = Vec::new();
    for (&x, dim) in inputs.iter().zip(in_dims) {
        let Some(dim) = *dim else {
            moved.push(x.clone());
            continue;
        };
        let rank = x.rank();
        let place = if dim < 0 { dim + rank as isize } else { dim };
        if !(0..rank as isize).contains(&place) {
            return Err(Error::index("vmap", format!("dim {dim} is out of range for {}", x.shape())));
        }
        let place = place as usize;
        let count = *size.get_or_insert(x.shape()[place]);
        if count != x.shape()[place] {
            let message = format!("{count} examples, but {} in dim {dim} of {}", x.shape()[place], x.shape());
            return Err(Error::shape("vmap", message));
        }
        let perm: Dims = core::iter::once(place).chain((0..rank).filter(|&other| other != place)).collect();
        moved.push(primitive::permute(x, &perm)?);
    }
    match size {
        Some(size) => Ok((Level::new(size), moved)),
        None => Err(Error::argument("vmap", "in_dims names no dim")),
    }
}

/// One call of [`vmap`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Inner calls have larger numbers.
    id: u64,
    /// Number of examples.
    pub(crate) size: usize,
}

/// What an example is one of.
#[derive(Debug)]
pub(crate) struct Batched {
    pub(crate) level: Level,
    /// `[size, …]`.
    pub(crate) tensor: Tensor,
}

impl Level {
    fn new(size: usize) -> Level {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Level { id: NEXT.fetch_add(1, Ordering::Relaxed), size }
    }

    /// The innermost level that one of these is an example of.
    pub(crate) fn innermost<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Option<Level> {
        let levels = tensors.into_iter().filter_map(|x| x.value.node.batched.as_ref().map(|batched| batched.level));
        levels.max_by_key(|level| level.id)
    }

    /// One example of a batch.
    #[track_caller]
    pub(crate) fn example(self, tensor: Tensor) -> Tensor {
        self.example_at(tensor, Location::caller())
    }

    /// As [`Level::example`], from another line.
    pub(crate) fn example_at(self, tensor: Tensor, source: &'static Location<'static>) -> Tensor {
        let (shape, device) = (Shape::from(&tensor.shape()[1..]), tensor.device().clone());
        let node = Node::example(Batched { level: self, tensor }, shape, source);
        Tensor::untracked(Value::new(Arc::new(node), device))
    }

    /// The batch of an example of this level; `None` for what all examples share.
    pub(crate) fn batch(self, x: &Tensor) -> Option<&Tensor> {
        let batched = x.value.node.batched.as_ref().filter(|batched| batched.level.id == self.id)?;
        Some(&batched.tensor)
    }

    /// The batch of an example; what all examples share is repeated.
    #[track_caller]
    pub(crate) fn all(self, x: &Tensor) -> Tensor {
        if let Some(batch) = self.batch(x) {
            return batch.clone();
        }
        let shape = core::iter::once(self.size).chain(x.shape().iter().copied()).collect();
        match primitive::expand(x, &shape) {
            Ok(batch) => batch,
            Err(error) => error.raise(),
        }
    }

    /// The gradient of a batch from that of an example; of a shared value the sum over the examples.
    #[track_caller]
    pub(crate) fn gradient(self, dx: &Tensor, is_batched: bool) -> Tensor {
        let all = self.all(dx);
        if is_batched {
            return all;
        }
        let sum = primitive::reduce(ReduceOp::Sum, &all, &[0]);
        match sum.and_then(|sum| primitive::reshape(&sum, dx.shape())) {
            Ok(sum) => sum,
            Err(error) => error.raise(),
        }
    }
}
