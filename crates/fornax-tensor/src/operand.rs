//! [`IntoOperand`]: what may stand beside a tensor in an operation: a tensor, a reference to one, or a number.

use crate::Tensor;
use fornax_ir::{DType, DTypeKind, Scalar};
use half::{bf16, f16};

/// The other side of a binary operation.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// A number, which takes the tensor's dtype if its kind allows.
    Scalar(Scalar),
}

/// Whatever may stand beside a tensor in an operation.
pub trait IntoOperand {
    /// The operand.
    fn into_operand(self) -> Operand;

    /// The tensor, if it is one: most are, and need not be cloned to be looked at.
    fn as_tensor(&self) -> Option<&Tensor> {
        None
    }
}

impl IntoOperand for Operand {
    fn into_operand(self) -> Operand {
        self
    }
}

impl IntoOperand for &Operand {
    fn into_operand(self) -> Operand {
        self.clone()
    }
}

impl IntoOperand for Tensor {
    fn into_operand(self) -> Operand {
        Operand::Tensor(self)
    }

    fn as_tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

impl IntoOperand for &Tensor {
    fn into_operand(self) -> Operand {
        Operand::Tensor(self.clone())
    }

    fn as_tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl IntoOperand for $ty {
            fn into_operand(self) -> Operand {
                Operand::Scalar(Scalar::from(self))
            }
        }
    )*};
}

numbers!(bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, f16, bf16, f32, f64);

impl IntoOperand for Scalar {
    fn into_operand(self) -> Operand {
        Operand::Scalar(self)
    }
}

impl Operand {
    /// Rank that counts for promotion: tensors with dims go before 0-d tensors, these before numbers.
    fn priority(&self) -> u8 {
        match self {
            Operand::Tensor(tensor) if tensor.shape().rank() > 0 => 2,
            Operand::Tensor(_) => 1,
            Operand::Scalar(_) => 0,
        }
    }

    /// The dtype; for a number, the one it would have alone.
    pub fn dtype(&self) -> DType {
        match self {
            Operand::Tensor(tensor) => tensor.dtype(),
            Operand::Scalar(scalar) => scalar.default_dtype(),
        }
    }
}

/// The common dtype of two operands, as PyTorch promotes: an operand of lower priority (a number, a 0-d tensor) counts
/// only if its kind (bool, integer, float) is higher.
pub(crate) fn promote(lhs: &Operand, rhs: &Operand) -> DType {
    let (high, low) = if lhs.priority() >= rhs.priority() { (lhs, rhs) } else { (rhs, lhs) };
    let (high_dtype, low_dtype) = (high.dtype(), low.dtype());
    if high.priority() == low.priority() {
        return high_dtype.promote(low_dtype);
    }
    let category = |dtype: DType| match dtype.kind() {
        DTypeKind::Bool => 0,
        DTypeKind::Unsigned | DTypeKind::Signed => 1,
        DTypeKind::Float => 2,
    };
    if category(low_dtype) > category(high_dtype) { low_dtype } else { high_dtype }
}
