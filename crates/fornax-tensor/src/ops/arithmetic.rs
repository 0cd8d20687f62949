//! Arithmetic of two operands, comparisons and logic: promotion and broadcasting as in PyTorch.

use crate::operand::{IntoOperand, Operand};
use crate::primitive::{binary, binary_with, cast, compare, select, unary};
use crate::{DType, Result, Scalar, Tensor};
use fornax_ir::{BinaryOp, CompareOp, Error, UnaryOp};
use fornax_macros::ops;

#[ops(group = "binary", records = RECORDS)]
impl Tensor {
    /// `self + other`.
    #[op(with(other = Operand), call = add_scaled)]
    pub fn add(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary_with(BinaryOp::Add, self, other)
    }

    /// `self − other`.
    #[op(with(other = Operand), call = sub_scaled)]
    pub fn sub(&self, other: impl IntoOperand) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            let other = other.into_operand();
            if other.dtype() == DType::Bool {
                return Err(Error::dtype("sub", "does not take bool").help("use `logical_xor`"));
            }
            return binary(BinaryOp::Sub, &self.into_operand(), &other);
        }
        binary_with(BinaryOp::Sub, self, other)
    }

    /// `self · other`. A number beside a half keeps its digits: the product is rounded once.
    #[op(with(other = Operand))]
    pub fn mul(&self, other: impl IntoOperand) -> Result<Tensor> {
        scale(BinaryOp::Mul, self, other)
    }

    /// `self / other`; integers are divided as `f32`. A number beside a half keeps its digits.
    #[op(with(other = Operand), torch = ["div.no_rounding_mode", "div", "div.floor_rounding", "div.trunc_rounding"], call = div_rounded)]
    pub fn div(&self, other: impl IntoOperand) -> Result<Tensor> {
        if self.dtype().is_float() && other.as_tensor().is_some_and(|other| other.dtype() == self.dtype()) {
            return binary_with(BinaryOp::Div, self, other);
        }
        let (lhs, rhs) = (self.into_operand(), other.into_operand());
        let dtype = crate::operand::promote(&lhs, &rhs);
        if dtype.is_float() {
            return scale(BinaryOp::Div, self, rhs);
        }
        let (lhs, rhs) = crate::primitive::broadcast("div", &lhs, &rhs, DType::F32)?;
        binary(BinaryOp::Div, &lhs.into_operand(), &rhs.into_operand())
    }

    /// `⌊self / other⌋`, as PyTorch's `div(rounding_mode="floor")`: consistent with [`Tensor::remainder`].
    #[op(with(other = Operand), torch = ["floor_divide"], call = floor_divide)]
    pub fn div_floor(&self, other: impl IntoOperand) -> Result<Tensor> {
        let (lhs, rhs) = (self.into_operand(), other.into_operand());
        let dtype = crate::operand::promote(&lhs, &rhs);
        let (a, b) = crate::primitive::broadcast("div", &lhs, &rhs, dtype)?;
        let remainder = binary(BinaryOp::Rem, &of(&a), &of(&b))?;
        if !dtype.is_float() {
            let quotient = binary(BinaryOp::Div, &of(&a), &of(&b))?;
            let inexact = remainder.try_ne(0)?.try_logical_and(&remainder.try_lt(0)?.try_ne(b.try_lt(0)?)?)?;
            return inexact.try_where_(quotient.try_sub(1)?, &quotient);
        }
        // Division of what is left without the remainder is exact but for rounding, which is repaired.
        let inexact = remainder.try_ne(0.0)?.try_logical_and(&remainder.try_lt(0.0)?.try_ne(b.try_lt(0.0)?)?)?;
        let quotient = a.try_sub(&remainder)?.try_div(&b)?;
        let quotient = inexact.try_where_(quotient.try_sub(1.0)?, &quotient)?;
        let floor = quotient.try_floor()?;
        let floor = quotient.try_sub(&floor)?.try_gt(0.5)?.try_where_(floor.try_add(1.0)?, &floor)?;
        let exact = a.try_div(&b)?;
        // A zero keeps the sign of the quotient; division by zero and by infinities is plain division.
        let floor = quotient.try_eq(0.0)?.try_where_(exact.try_mul(0.0)?, &floor)?;
        b.try_eq(0.0)?.try_where_(&exact, &floor)
    }

    /// `self − ⌊self / other⌋ · other`: has the sign of `other`, as Python's `%`.
    #[op(with(other = Operand))]
    pub fn remainder(&self, other: impl IntoOperand) -> Result<Tensor> {
        let (lhs, rhs) = (self.into_operand(), other.into_operand());
        let dtype = crate::operand::promote(&lhs, &rhs);
        let (a, b) = crate::primitive::broadcast("remainder", &lhs, &rhs, dtype)?;
        let remainder = binary(BinaryOp::Rem, &of(&a), &of(&b))?;
        let wrong_side = remainder.try_ne(0)?.try_logical_and(&remainder.try_lt(0)?.try_ne(b.try_lt(0)?)?)?;
        wrong_side.try_where_(remainder.try_add(&b)?, &remainder)
    }

    /// The remainder with the sign of `self`, as C's `fmod`.
    #[op(with(other = Operand))]
    pub fn fmod(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary_with(BinaryOp::Rem, self, other)
    }

    /// The larger of each pair; NaN if either is NaN.
    #[op(with(other = Operand))]
    pub fn maximum(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary_with(BinaryOp::Max, self, other)
    }

    /// The smaller of each pair; NaN if either is NaN.
    #[op(with(other = Operand))]
    pub fn minimum(&self, other: impl IntoOperand) -> Result<Tensor> {
        binary_with(BinaryOp::Min, self, other)
    }

    /// `selfᵉ` elementwise.
    #[op(with(exponent = Operand), domain = (0.1, 3.0), autocast = high)]
    pub fn pow(&self, exponent: impl IntoOperand) -> Result<Tensor> {
        let exponent = exponent.into_operand();
        if let Operand::Scalar(scalar) = exponent
            && self.dtype().is_float()
        {
            // Products are exact where a power is not, and their gradients have no 0 · ∞.
            match scalar.to_f64() {
                1.0 => return Ok(self.clone()),
                2.0 => return self.try_mul(self),
                3.0 => return self.try_mul(self)?.try_mul(self),
                0.5 => return unary(UnaryOp::Sqrt, self),
                -0.5 => return unary(UnaryOp::Rsqrt, self),
                -1.0 => return unary(UnaryOp::Recip, self),
                _ => {}
            }
        }
        let integers = !crate::operand::promote(&self.into_operand(), &exponent).is_float();
        if let (true, Operand::Scalar(scalar)) = (integers, &exponent)
            && scalar.to_i64() < 0
        {
            return Err(Error::argument("pow", "integers to negative integer powers are not integers"));
        }
        binary(BinaryOp::Pow, &self.into_operand(), &exponent)
    }

    /// `self = other`, elementwise.
    #[op(with(other = Operand), grad = false)]
    pub fn eq(&self, other: impl IntoOperand) -> Result<Tensor> {
        compare(CompareOp::Eq, &self.into_operand(), &other.into_operand())
    }

    /// `self ≠ other`, elementwise; true for NaN.
    #[op(with(other = Operand), grad = false)]
    pub fn ne(&self, other: impl IntoOperand) -> Result<Tensor> {
        unary(UnaryOp::Not, &self.try_eq(other)?)
    }

    /// `self < other`, elementwise.
    #[op(with(other = Operand), grad = false)]
    pub fn lt(&self, other: impl IntoOperand) -> Result<Tensor> {
        compare(CompareOp::Lt, &self.into_operand(), &other.into_operand())
    }

    /// `self ≤ other`, elementwise.
    #[op(with(other = Operand), grad = false)]
    pub fn le(&self, other: impl IntoOperand) -> Result<Tensor> {
        compare(CompareOp::Le, &self.into_operand(), &other.into_operand())
    }

    /// `self > other`, elementwise.
    #[op(with(other = Operand), grad = false)]
    pub fn gt(&self, other: impl IntoOperand) -> Result<Tensor> {
        turned("gt", CompareOp::Lt, self, &other.into_operand())
    }

    /// `self ≥ other`, elementwise.
    #[op(with(other = Operand), grad = false)]
    pub fn ge(&self, other: impl IntoOperand) -> Result<Tensor> {
        turned("ge", CompareOp::Le, self, &other.into_operand())
    }

    /// Both are anything but zero.
    #[op(grad = false)]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        binary(BinaryOp::And, &truth(self)?, &truth(other)?)
    }

    /// One is anything but zero.
    #[op(grad = false)]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        binary(BinaryOp::Or, &truth(self)?, &truth(other)?)
    }

    /// Exactly one is anything but zero.
    #[op(grad = false)]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        binary(BinaryOp::Xor, &truth(self)?, &truth(other)?)
    }

    /// Zero becomes true, all else false.
    #[op(grad = false)]
    pub fn logical_not(&self) -> Result<Tensor> {
        unary(UnaryOp::Not, &cast(self, DType::Bool)?)
    }

    /// `self ? a : b`, elementwise, for a `bool` tensor; all three broadcast.
    #[op(with(a = Operand, b = Operand), rename(self = "condition", a = "input", b = "other"), torch = ["where"])]
    pub fn where_(&self, a: impl IntoOperand, b: impl IntoOperand) -> Result<Tensor> {
        select(self, &a.into_operand(), &b.into_operand()).map_err(|error| error.named("where_"))
    }

    /// `value` where `mask` is true.
    #[op(with(value = Operand))]
    pub fn masked_fill(&self, mask: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let value = match value.into_operand() {
            Operand::Tensor(value) => cast(&value, self.dtype())?.into_operand(),
            Operand::Scalar(value) => Operand::Scalar(value.cast(self.dtype())),
        };
        let filled = select(mask, &value, &self.into_operand())?;
        cast(&filled, self.dtype())
    }
}

/// A product or quotient. A half and a number that is none, or a 0-d tensor of a wider float, meet in `f32`, as in
/// PyTorch.
#[track_caller]
fn scale(op: BinaryOp, x: &Tensor, other: impl IntoOperand) -> Result<Tensor> {
    let is_half = matches!(x.dtype(), DType::F16 | DType::BF16);
    if !is_half || other.as_tensor().is_some_and(|other| other.dtype() == x.dtype()) {
        return binary_with(op, x, other);
    }
    let factor = match other.into_operand() {
        Operand::Scalar(number) if number.cast(x.dtype()).to_f64() != number.to_f64() => Operand::Scalar(number),
        Operand::Tensor(wide) if x.rank() > 0 && wide.rank() == 0 && wide.dtype().is_float() => {
            cast(&wide, DType::F32)?.into_operand()
        }
        other => return binary(op, &x.into_operand(), &other),
    };
    let wide = binary(op, &cast(x, DType::F32)?.into_operand(), &factor)?;
    cast(&wide, x.dtype())
}

/// `other op x`, told as `name` of `x` and `other`.
#[track_caller]
fn turned(name: &str, op: CompareOp, x: &Tensor, other: &Operand) -> Result<Tensor> {
    let x = x.into_operand();
    let (x, other) = crate::primitive::broadcast(name, &x, other, crate::operand::promote(&x, other))?;
    compare(op, &other.into_operand(), &x.into_operand()).map_err(|error| error.named(name))
}

fn of(x: &Tensor) -> Operand {
    x.into_operand()
}

fn truth(x: &Tensor) -> Result<Operand> {
    Ok(cast(x, DType::Bool)?.into_operand())
}

fn add_scaled(args: &crate::ops::Args) -> Result<alloc::vec::Vec<Tensor>> {
    Ok(alloc::vec![args.get::<Tensor>("input")?.try_add(scaled(args)?)?])
}

fn sub_scaled(args: &crate::ops::Args) -> Result<alloc::vec::Vec<Tensor>> {
    Ok(alloc::vec![args.get::<Tensor>("input")?.try_sub(scaled(args)?)?])
}

/// PyTorch's `alpha · other`.
fn scaled(args: &crate::ops::Args) -> Result<Operand> {
    let other = args.get::<Operand>("other")?;
    let alpha = args.get::<Option<Scalar>>("alpha")?.unwrap_or(Scalar::Int(1));
    if alpha.to_f64() == 1.0 {
        return Ok(other);
    }
    let integers = !args.get::<Tensor>("input")?.dtype().is_float() && !other.dtype().is_float();
    if integers && matches!(alpha, Scalar::Float(_)) {
        return Err(Error::argument("add", alloc::format!("integers do not take an alpha of {alpha}")));
    }
    match other {
        Operand::Tensor(other) => Ok(Operand::Tensor(other.try_mul(alpha)?)),
        Operand::Scalar(Scalar::Int(other)) if integers => {
            Ok(Operand::Scalar(Scalar::Int(other.wrapping_mul(alpha.to_i64()))))
        }
        Operand::Scalar(other) => Ok(Operand::Scalar(Scalar::Float(other.to_f64() * alpha.to_f64()))),
    }
}

fn div_rounded(args: &crate::ops::Args) -> Result<alloc::vec::Vec<Tensor>> {
    let (x, other) = (args.get::<Tensor>("input")?, args.get::<Operand>("other")?);
    Ok(alloc::vec![match args.get::<Option<alloc::string::String>>("rounding_mode")?.as_deref() {
        None => x.try_div(other)?,
        Some("floor") => x.try_div_floor(other)?,
        Some("trunc") => x.try_div_trunc(other)?,
        Some(mode) => return Err(Error::argument("div", alloc::format!("there is no rounding mode {mode:?}"))),
    }])
}

fn floor_divide(args: &crate::ops::Args) -> Result<alloc::vec::Vec<Tensor>> {
    Ok(alloc::vec![args.get::<Tensor>("input")?.try_div_floor(args.get::<Operand>("other")?)?])
}

/// `&a + &b`, `a + 1.0`, `2 - &a`, … for tensors by value and by reference. On the left, numbers are `f64` or `i64`
/// alone: with more impls, the type of a literal would be ambiguous.
macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident |$number:ident, $x:ident| $body:block),*) => {$(
        impl<R: IntoOperand> core::ops::$trait<R> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: R) -> Tensor {
                Tensor::$method(&self, rhs)
            }
        }
        impl<R: IntoOperand> core::ops::$trait<R> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: R) -> Tensor {
                Tensor::$method(self, rhs)
            }
        }
        impl<R: IntoOperand> core::ops::$assign<R> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, rhs: R) {
                *self = Tensor::$method(self, rhs);
            }
        }
        operators!(@scalars $trait $method $number $x $body f64 i64);
    )*};
    (@scalars $trait:ident $method:ident $number:ident $x:ident $body:block $($ty:ty)*) => {$(
        impl core::ops::$trait<Tensor> for $ty {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor {
                <$ty as core::ops::$trait<&Tensor>>::$method(self, &rhs)
            }
        }
        impl core::ops::$trait<&Tensor> for $ty {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, $x: &Tensor) -> Tensor {
                let $number = Scalar::from(self);
                $body
            }
        }
    )*};
}

operators!(
    Add add AddAssign add_assign |number, x| { Tensor::add(x, number) },
    Sub sub SubAssign sub_assign |number, x| { Tensor::sub(&x.beside(number), x) },
    Mul mul MulAssign mul_assign |number, x| { Tensor::mul(x, number) },
    Div div DivAssign div_assign |number, x| { Tensor::div(&x.beside(number), x) }
);

impl core::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}

impl core::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}

impl Tensor {
    /// A number in the shape and the common dtype that it takes beside this tensor.
    #[track_caller]
    fn beside(&self, number: Scalar) -> Tensor {
        let dtype = crate::operand::promote(&self.into_operand(), &Operand::Scalar(number));
        Tensor::full(self.shape(), number, dtype, self.device())
    }
}
