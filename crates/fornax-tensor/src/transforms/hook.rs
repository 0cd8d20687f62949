//! Hooks: seeing or replacing a gradient on its way.

use crate::{Tensor, custom_gradient};

impl Tensor {
    /// The same value; `hook` sees the gradient that flows back through it, and may return another in its place.
    ///
    /// The hook runs once in a backward pass, on the sum over all uses of the result. Uses of `self` itself do not pass
    /// through it. A tensor that is not tracked never calls its hook.
    ///
    /// # Shapes
    /// - result, gradient and replacement: as `self`.
    ///
    /// # Panics
    /// A backward pass panics if the replacement is not shaped like the tensor.
    ///
    /// # Example
    /// ```
    /// use fornax_tensor::Tensor;
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// let y = x.register_hook(|dy| Some(dy.minimum(1.0)));
    /// let gradients = (y * Tensor::from([0.5, 9.0])).sum(()).backward();
    /// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>(), [0.5, 1.0]);
    /// ```
    #[track_caller]
    #[must_use = "the hook belongs to the result, not to this tensor"]
    pub fn register_hook(&self, hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static) -> Tensor {
        let backward = move |dy: &[Option<Tensor>]| {
            let dy = dy[0].as_ref();
            alloc::vec![dy.map(|dy| hook(dy).unwrap_or_else(|| dy.clone()))]
        };
        custom_gradient(&[self], <[Tensor]>::to_vec, backward).swap_remove(0)
    }
}
