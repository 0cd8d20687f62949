//! [`autocast`]: mixed precision for the ops of a scope.

use crate::Tensor;
use crate::primitive::cast;
use crate::sync::autocast_mode as mode;
use fornax_ir::DType;

/// Runs `f` in mixed precision: products, convolutions and attention convert their tensors to `dtype` (`bf16` or `f16`);
/// exponentials, powers, sums, norms, softmaxes and losses convert halves to `f32`; all other ops take what comes, and
/// where halves meet `f32` the result is `f32`. `f64` is left alone. Parameters stay as they are: their gradients are
/// theirs.
///
/// Which ops do what stands at each op (`autocast = low` or `high`), and follows PyTorch's `torch.autocast`; batch norm,
/// binary cross entropy and the logarithm of sums count to those that compute in `f32`, too.
///
/// ```
/// use fornax_tensor::{DType, Tensor, autocast};
/// let w = Tensor::from([[1.0, 2.0], [3.0, 4.0]]).requires_grad();
/// let x = Tensor::from([[1.0, 1.0]]);
/// let (y, loss) = autocast(DType::BF16, || {
///     let y = x.matmul(&w);
///     let loss = y.mse_loss(&Tensor::from([[0.0, 0.0]]), None, Default::default());
///     (y, loss)
/// });
/// assert_eq!((y.dtype(), loss.dtype()), (DType::BF16, DType::F32));
/// assert_eq!(loss.backward().get(&w).unwrap().dtype(), DType::F32);
/// ```
///
/// `f16` has a small range: scale the loss, as `fornax_nn::optim::GradScaler` does.
///
/// # Panics
/// If `dtype` is neither `bf16` nor `f16`.
#[track_caller]
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> T) -> T {
    assert!(matches!(dtype, DType::BF16 | DType::F16), "autocast: {dtype} is neither bf16 nor f16");
    let _outer = Restore(mode::replace(Some(dtype)));
    f()
}

/// Puts the dtype of the scope around back.
struct Restore(Option<DType>);

impl Drop for Restore {
    fn drop(&mut self) {
        mode::replace(self.0);
    }
}

/// An op inside `autocast`, while it runs on converted tensors: what it is composed of is not converted again.
pub(crate) struct Paused {
    dtype: DType,
    _outer: Restore,
}

/// Suspends the `autocast` around, if there is one, until the result is dropped.
pub(crate) fn pause() -> Option<Paused> {
    let dtype = mode::get()?;
    Some(Paused { dtype, _outer: Restore(mode::replace(None)) })
}

impl Paused {
    /// In the dtype of the scope.
    pub fn low(&self, x: &Tensor) -> Tensor {
        convert(x, self.dtype)
    }

    /// In `f32`.
    pub fn high(&self, x: &Tensor) -> Tensor {
        convert(x, DType::F32)
    }
}

fn convert(x: &Tensor, to: DType) -> Tensor {
    match x.dtype() {
        dtype @ (DType::F16 | DType::BF16 | DType::F32) if dtype != to => {
            cast(x, to).expect("floats are converted to one another")
        }
        _ => x.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionOptions, Device};

    #[test]
    fn ops_convert_as_their_list_says_and_all_others_promote() {
        let device = Device::reference();
        let x = Tensor::ones([2, 3], &device);
        let y = autocast(DType::F16, || {
            let product = x.matmul(&x.t());
            assert_eq!(product.dtype(), DType::F16);
            assert_eq!(product.softmax(-1).dtype(), DType::F32);
            assert_eq!(product.relu().dtype(), DType::F16);
            assert_eq!((&product + Tensor::ones([2, 2], &device)).dtype(), DType::F32);
            let bias = Tensor::ones([2], &device);
            assert_eq!(x.linear(&x, Some(&bias)).dtype(), DType::F16);
            let attended = x.scaled_dot_product_attention(&x, &x, &AttentionOptions::default());
            assert_eq!(attended.dtype(), DType::F16);
            assert_eq!(x.to_dtype(DType::F64).matmul(&x.t().to_dtype(DType::F64)).dtype(), DType::F64);
            product
        });
        // Outside, nothing is converted.
        assert_eq!(y.matmul(&y).dtype(), DType::F16);
        assert_eq!(x.matmul(&x.t()).dtype(), DType::F32);
        assert_eq!(y.softmax(-1).dtype(), DType::F16);
    }
}
