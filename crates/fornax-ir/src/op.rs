//! [`Op`]: the primitive op set. Everything else a user sees is composed from these.
//!
//! Rules that hold for every primitive:
//! - it has one result; what has several (a factorization) packs them along the last dim;
//! - operands of elementwise ops have the same dtype and shape: broadcasting is an explicit [`Op::Expand`], promotion
//!   an explicit [`Op::Cast`];
//! - reduced dims stay, with size 1;
//! - the values named *argument* below (scalars, slice starts, seeds) do not shape the plan: two graphs that differ
//!   only in them, or in sizes, share one plan. [`Op::push_key`] writes down what does count.
//!
//! Shape and dtype rules stand in [`crate::infer`], meanings in the reference interpreter and `docs/semantics.md`.

use crate::{DType, Dims, Scalar};
use alloc::boxed::Box;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// A primitive operation.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Op {
    // --- sources ---
    /// A value from outside the graph: input number `0`. Shape and dtype are given.
    Input(u32),
    /// One value (an argument) in every element.
    Const(Scalar),
    /// `0, 1, 2, …` along `dim`, the same along all others.
    Iota {
        /// The dim that counts.
        dim: usize,
    },
    /// `u32` random bits: element `i` (row-major) is word `i % 4` of Philox4x32-10 under key `seed` at counter
    /// `offset + i / 4`. Both are arguments.
    Random {
        /// The key.
        seed: u64,
        /// First counter; one counter gives four words.
        offset: u64,
    },

    // --- elementwise ---
    /// One operand.
    Unary(UnaryOp),
    /// Two operands of the same dtype.
    Binary(BinaryOp),
    /// Two operands of the same dtype; the result is `bool`.
    Compare(CompareOp),
    /// `condition ? a : b`; operands: `bool`, `a`, `b`.
    Select,
    /// Conversion to another dtype: floats round to nearest even (`f16` and `bf16` by way of `f32`), floats saturate
    /// into integers (NaN becomes 0), integers wrap, anything but zero is `true`.
    Cast(DType),
    /// The same bits as another dtype of the same size; not to `bool`, whose bytes are 0 or 1.
    Bitcast(DType),

    // --- movement: no arithmetic, only other places ---
    /// Row-major order kept, other sizes. The target is the node's shape (an argument).
    Reshape,
    /// Dim `i` of the result is dim `perm[i]` of the operand.
    Permute(Dims),
    /// Sizes of 1 are repeated to the target, new dims come in front. The target is the node's shape (an argument).
    Expand,
    /// `start + step · i` along every dim, `step ≠ 0`. Starts (arguments) are positions of the first element, sizes
    /// come from the node's shape.
    Slice {
        /// Position of the first element, per dim.
        starts: Dims,
        /// Distance of elements, per dim; negative runs backwards.
        steps: SmallVec<[i64; 6]>,
    },
    /// `value` (an argument) before and after, per dim. Counts are arguments too; the high one comes from the shape.
    Pad {
        /// Elements before, per dim.
        low: Dims,
        /// What the border holds.
        value: Scalar,
    },
    /// Operands one after the other along `dim`.
    Concat {
        /// The dim that grows.
        dim: usize,
    },
    /// Sliding windows over the last `dims.len()` dims: `[…, d]` becomes `[…, windows, size]`; all window-count
    /// dims come first, then all size dims, in order. Windows may overlap; nothing is copied.
    Window(WindowSpec),

    // --- reductions and scans ---
    /// Over `dims` (ascending), which stay with size 1.
    Reduce {
        /// What to do.
        op: ReduceOp,
        /// The dims to reduce, ascending, at least one.
        dims: Dims,
    },
    /// Running totals along `dim`, inclusive.
    Scan {
        /// What to do.
        op: ScanOp,
        /// The dim to run along.
        dim: usize,
    },

    // --- order ---
    /// Positions (`i64`) that sort `dim`; stable; NaN counts as larger than everything.
    ArgSort {
        /// The dim to sort.
        dim: usize,
        /// Largest first.
        descending: bool,
    },
    /// Positions (`i64`) of the `k` largest or smallest of `dim`, sorted, the lowest position first among equals.
    /// `k` is the size of `dim` in the node's shape.
    TopK {
        /// The dim to search.
        dim: usize,
        /// Largest, or smallest.
        largest: bool,
    },

    // --- indexed access ---
    /// `out[i, j, k] = x[i, index[i, j, k], k]` for `dim = 1`; operands `x`, `index` (`i32` or `i64`). Other dims of
    /// `index` are at most those of `x`. An index out of range (negative included) is a fault at run time.
    Gather {
        /// The indexed dim.
        dim: usize,
    },
    /// `out = x; out[i, index[i, j, k], k] ⊕= source[i, j, k]` for `dim = 1`; operands `x`, `index`, `source`.
    /// With [`ScatterMode::Set`] and repeated indices the last one in row-major order stays.
    Scatter {
        /// The indexed dim.
        dim: usize,
        /// What to do where the index points.
        mode: ScatterMode,
    },

    // --- contractions ---
    /// `[batch…, m, k] · [batch…, k, n]` to `[batch…, m, n]` in dtype `out`: the operands' dtype, `f32` for `f16` and
    /// `bf16`, or `i32` for `i8` and `u8`. Halves accumulate in `f32`.
    Matmul {
        /// Dtype of the result.
        out: DType,
    },
    /// Cross-correlation of `x [n, c, spatial…]` with `weight [o, c / groups, kernel…]`. Whether the zeros of padding and
    /// dilation are multiplied or skipped is open: it shows only where a weight is not finite.
    /// (Boxed: its settings would make every op large.)
    Conv(Box<ConvSpec>),
    /// Sum of overlapping windows: the transpose of [`Op::Window`]. The node's shape gives the result's sizes.
    Fold(WindowSpec),

    // --- transforms and factorizations ---
    /// Discrete Fourier transform along dim `dim` of complex numbers `[…, 2]` (real, imaginary), not normalized.
    Fft {
        /// The transformed dim (not the last).
        dim: usize,
        /// Sign of the exponent.
        kind: FftKind,
    },
    /// Dense linear algebra on the last two dims.
    Linalg(LinalgOp),
}

/// Elementwise ops of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum UnaryOp {
    /// `−x`; integers wrap.
    Neg,
    /// `|x|`; integers wrap at the minimum.
    Abs,
    /// −1, 0 or 1; 0 for NaN.
    Sign,
    /// Logical not for `bool`, bitwise not for integers.
    Not,
    /// `1 / x`.
    Recip,
    /// `√x`.
    Sqrt,
    /// `1 / √x`.
    Rsqrt,
    /// `eˣ`.
    Exp,
    /// `2ˣ`.
    Exp2,
    /// `eˣ − 1`, accurate near 0.
    Expm1,
    /// `ln x`.
    Log,
    /// `log₂ x`.
    Log2,
    /// `ln(1 + x)`, accurate near 0.
    Log1p,
    /// `sin x`, radians.
    Sin,
    /// `cos x`, radians.
    Cos,
    /// `tanh x`.
    Tanh,
    /// The error function.
    Erf,
    /// Down to an integer.
    Floor,
    /// Up to an integer.
    Ceil,
    /// Towards zero to an integer.
    Trunc,
    /// To the nearest integer, ties to even.
    Round,
}

/// Elementwise ops of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BinaryOp {
    /// `a + b`; for `bool` logical or.
    Add,
    /// `a − b`.
    Sub,
    /// `a · b`; for `bool` logical and.
    Mul,
    /// `a / b`; integers truncate towards zero, division by zero is a fault.
    Div,
    /// Remainder with the sign of `a`, as C's `fmod`; integer division by zero is a fault.
    Rem,
    /// `aᵇ`; for integers wrapping, a negative exponent gives 0 (±1 for a base of ±1).
    Pow,
    /// The larger; NaN if either is NaN.
    Max,
    /// The smaller; NaN if either is NaN.
    Min,
    /// Bitwise and; logical for `bool`.
    And,
    /// Bitwise or; logical for `bool`.
    Or,
    /// Bitwise exclusive or; logical for `bool`.
    Xor,
    /// `a << b`; 0 for `b` negative or at least the width.
    Shl,
    /// `a >> b`, arithmetic for signed integers; 0 (−1 for negative `a`) for `b` negative or at least the width.
    Shr,
    /// The angle of the point (b, a): `atan2(a, b)`.
    Atan2,
}

/// Elementwise comparisons; false if either operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CompareOp {
    /// `a = b`.
    Eq,
    /// `a < b`.
    Lt,
    /// `a ≤ b`.
    Le,
}

/// Reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReduceOp {
    /// Sum; 0 over nothing; `f16` and `bf16` accumulate in `f32`.
    Sum,
    /// Product; 1 over nothing; `f16` and `bf16` accumulate in `f32`.
    Prod,
    /// Largest (or, for `bool`, any); NaN if there is one; an error over nothing but for `bool`.
    Max,
    /// Smallest (or, for `bool`, all); NaN if there is one; an error over nothing but for `bool`.
    Min,
    /// Position (`i64`, row-major over the reduced dims) of the first largest element, of the first NaN if there is one.
    ArgMax,
    /// Position (`i64`, row-major over the reduced dims) of the first smallest element, of the first NaN if there is one.
    ArgMin,
}

/// Running totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ScanOp {
    /// Running sum; `f16` and `bf16` accumulate in `f32`.
    Sum,
    /// Running product; `f16` and `bf16` accumulate in `f32`.
    Prod,
    /// Running maximum; NaN from the first NaN on.
    Max,
    /// Running minimum; NaN from the first NaN on.
    Min,
}

/// What [`Op::Scatter`] does where an index points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ScatterMode {
    /// Replaces.
    Set,
    /// Adds, in row-major order of the source.
    Add,
    /// Multiplies, in row-major order of the source.
    Mul,
    /// Keeps the larger; NaN wins.
    Max,
    /// Keeps the smaller; NaN wins.
    Min,
}

/// Sliding windows over the last `dims.len()` dims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowSpec {
    /// One entry a windowed dim, outermost first.
    pub dims: SmallVec<[WindowDim; 2]>,
}

/// How windows slide along one dim. A dim of `n` holds `(n − (size − 1) · dilation − 1) / step + 1` windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowDim {
    /// Elements in a window, at least 1.
    pub size: usize,
    /// Distance between windows, at least 1.
    pub step: usize,
    /// Distance between elements of a window, at least 1.
    pub dilation: usize,
}

impl WindowDim {
    /// Elements from the first to the last of a window, both included; `usize::MAX` if that many cannot be counted.
    pub fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Windows in a dim of `n` elements.
    pub fn count(&self, n: usize) -> usize {
        if n < self.span() { 0 } else { (n - self.span()) / self.step + 1 }
    }
}

/// Settings of [`Op::Conv`]; each list has one entry a spatial dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConvSpec {
    /// Distance between positions of the kernel.
    pub stride: Dims,
    /// Zeros before and after each spatial dim of `x` (after its dilation). Negative values crop.
    pub padding: SmallVec<[(isize, isize); 3]>,
    /// Distance between elements of the kernel.
    pub dilation: Dims,
    /// Distance between elements of `x`, zeros in between: 1 is none. With it a convolution is transposed.
    pub input_dilation: Dims,
    /// Channels are split into this many independent groups.
    pub groups: usize,
}

/// Direction of a discrete Fourier transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FftKind {
    /// `Σ x e^(−2πi jk/n)`.
    Forward,
    /// `Σ x e^(+2πi jk/n)`, not divided by `n`.
    Inverse,
}

/// Dense linear algebra on the last two dims, of `f32` or `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LinalgOp {
    /// Lower factor `L` of `[…, n, n] = L · Lᵀ`, zeros above. Reads the lower triangle. Not positive definite: a fault.
    Cholesky,
    /// `P · A = L · U` of `[…, m, n]` with partial pivoting: `[…, m, n + 1]`, `L` below the diagonal of `U` (its ones
    /// left out), and in the last column row `i` of `P·A` as a row number of `A`. Singular: a zero on the diagonal of
    /// `U`, not a fault.
    Lu,
    /// `A = Q · R` of `[…, m, n]`, `k = min(m, n)`: `[…, m + n, k]`, rows: `Q [m, k]`, then `Rᵀ [n, k]`. The signs of
    /// the diagonal of `R` are left open.
    Qr,
    /// `A = U · diag(S) · V` of `[…, m, n]`, `k = min(m, n)`, `S` descending: `[…, m + 1 + n, k]`, rows: `U [m, k]`,
    /// `S`, `Vᵀ [n, k]`. Not finite: a fault, as in the next two.
    Svd,
    /// `A = V · diag(w) · Vᵀ` of a symmetric `[…, n, n]` (lower triangle read), `w` ascending: `[…, n + 1, n]`, rows:
    /// `w`, then `V`.
    Eigh,
    /// Eigenvalues and right eigenvectors of a general `[…, n, n]`, as (real, imaginary): `[…, n + 1, n, 2]`, rows: the
    /// values, then the vectors as columns, each of unit length. The order of the values is left open.
    Eig,
    /// `X` of `A · X = B` with triangular `A […, n, n]`, `B […, n, k]`; operands `A`, `B`. A zero on the diagonal: a
    /// fault.
    TriangularSolve {
        /// The upper triangle is read, or the lower.
        upper: bool,
        /// The diagonal counts as ones.
        unit_diagonal: bool,
    },
}

impl Op {
    /// The op's name, as the text form spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::Const(_) => "const",
            Op::Iota { .. } => "iota",
            Op::Random { .. } => "random",
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Compare(op) => op.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Bitcast(_) => "bitcast",
            Op::Reshape => "reshape",
            Op::Permute(_) => "permute",
            Op::Expand => "expand",
            Op::Slice { .. } => "slice",
            Op::Pad { .. } => "pad",
            Op::Concat { .. } => "concat",
            Op::Window(_) => "window",
            Op::Reduce { op, .. } => op.name(),
            Op::Scan { op, .. } => op.name(),
            Op::ArgSort { .. } => "argsort",
            Op::TopK { .. } => "topk",
            Op::Gather { .. } => "gather",
            Op::Scatter { mode, .. } => mode.name(),
            Op::Matmul { .. } => "matmul",
            Op::Conv(_) => "conv",
            Op::Fold(_) => "fold",
            Op::Fft { .. } => "fft",
            Op::Linalg(op) => op.name(),
        }
    }

    /// Whether each element of the result depends only on the same element of the operands.
    pub fn is_elementwise(&self) -> bool {
        matches!(self, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_))
    }

    /// Whether the result is the operand's elements in other places, readable through strides alone.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. } | Op::Window(_))
    }

    /// Whether this is a source: a value without operands.
    pub fn is_source(&self) -> bool {
        matches!(self, Op::Input(_) | Op::Const(_) | Op::Iota { .. } | Op::Random { .. })
    }

    /// Whether running it can meet a [`crate::Fault`]: the data itself can be wrong.
    pub fn can_fault(&self, dtype: DType) -> bool {
        match self {
            Op::Gather { .. } | Op::Scatter { .. } | Op::Linalg(_) => true,
            Op::Binary(BinaryOp::Div | BinaryOp::Rem) => !dtype.is_float(),
            _ => false,
        }
    }

    /// Appends what of this op shapes a plan: all but the arguments (scalars, slice starts, padding counts, seeds).
    pub fn push_key(&self, key: &mut Vec<u64>) {
        // A tag apart for each variant; small attributes share its word.
        let mut tag = |tag: u64, attribute: u64| key.push(tag << 32 | attribute);
        match self {
            Op::Input(slot) => tag(1, u64::from(*slot)),
            Op::Const(_) => tag(2, 0),
            Op::Iota { dim } => tag(3, *dim as u64),
            Op::Random { .. } => tag(4, 0),
            Op::Unary(op) => tag(5, *op as u64),
            Op::Binary(op) => tag(6, *op as u64),
            Op::Compare(op) => tag(7, *op as u64),
            Op::Select => tag(8, 0),
            Op::Cast(dtype) => tag(9, *dtype as u64),
            Op::Bitcast(dtype) => tag(10, *dtype as u64),
            Op::Reshape => tag(11, 0),
            Op::Permute(perm) => {
                tag(12, perm.len() as u64);
                key.extend(perm.iter().map(|&dim| dim as u64));
            }
            Op::Expand => tag(13, 0),
            Op::Slice { steps, .. } => {
                tag(14, steps.len() as u64);
                key.extend(steps.iter().map(|&step| step as u64));
            }
            Op::Pad { low, .. } => tag(15, low.len() as u64),
            Op::Concat { dim } => tag(16, *dim as u64),
            Op::Window(spec) => {
                tag(17, spec.dims.len() as u64);
                spec.push_key(key);
            }
            Op::Reduce { op, dims } => {
                tag(18, (*op as u64) << 16 | dims.len() as u64);
                key.extend(dims.iter().map(|&dim| dim as u64));
            }
            Op::Scan { op, dim } => tag(19, (*op as u64) << 16 | *dim as u64),
            Op::ArgSort { dim, descending } => tag(20, (*dim as u64) << 1 | u64::from(*descending)),
            Op::TopK { dim, largest } => tag(21, (*dim as u64) << 1 | u64::from(*largest)),
            Op::Gather { dim } => tag(22, *dim as u64),
            Op::Scatter { dim, mode } => tag(23, (*mode as u64) << 16 | *dim as u64),
            Op::Matmul { out } => tag(24, *out as u64),
            Op::Conv(spec) => {
                tag(25, spec.stride.len() as u64);
                key.extend(spec.stride.iter().map(|&n| n as u64));
                key.extend(spec.padding.iter().flat_map(|&(low, high)| [low as u64, high as u64]));
                key.extend(spec.dilation.iter().map(|&n| n as u64));
                key.extend(spec.input_dilation.iter().map(|&n| n as u64));
                key.push(spec.groups as u64);
            }
            Op::Fold(spec) => {
                tag(26, spec.dims.len() as u64);
                spec.push_key(key);
            }
            Op::Fft { dim, kind } => tag(27, (*dim as u64) << 1 | *kind as u64),
            Op::Linalg(op) => tag(28, op.key()),
        }
    }
}

impl WindowSpec {
    fn push_key(&self, key: &mut Vec<u64>) {
        key.extend(self.dims.iter().flat_map(|dim| [dim.size as u64, dim.step as u64, dim.dilation as u64]));
    }
}

impl LinalgOp {
    fn key(self) -> u64 {
        match self {
            LinalgOp::Cholesky => 0,
            LinalgOp::Lu => 1,
            LinalgOp::Qr => 2,
            LinalgOp::Svd => 3,
            LinalgOp::Eigh => 4,
            LinalgOp::Eig => 5,
            LinalgOp::TriangularSolve { upper, unit_diagonal } => 8 | u64::from(upper) << 1 | u64::from(unit_diagonal),
        }
    }

    /// The op's name, as the text form spells it.
    pub fn name(self) -> &'static str {
        match self {
            LinalgOp::Cholesky => "cholesky",
            LinalgOp::Lu => "lu",
            LinalgOp::Qr => "qr",
            LinalgOp::Svd => "svd",
            LinalgOp::Eigh => "eigh",
            LinalgOp::Eig => "eig",
            LinalgOp::TriangularSolve { .. } => "triangular_solve",
        }
    }
}

/// Gives an enum of plain variants its list and its names.
macro_rules! names {
    ($($ty:ident { $($variant:ident => $name:literal),* $(,)? })*) => {$(
        impl $ty {
            /// Every variant.
            pub const ALL: &[$ty] = &[$($ty::$variant),*];

            /// The op's name, as the text form spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($ty::$variant => $name,)*
                }
            }
        }
    )*};
}

names! {
    UnaryOp {
        Neg => "neg", Abs => "abs", Sign => "sign", Not => "not", Recip => "recip", Sqrt => "sqrt", Rsqrt => "rsqrt",
        Exp => "exp", Exp2 => "exp2", Expm1 => "expm1", Log => "log", Log2 => "log2", Log1p => "log1p", Sin => "sin",
        Cos => "cos", Tanh => "tanh", Erf => "erf", Floor => "floor", Ceil => "ceil", Trunc => "trunc",
        Round => "round",
    }
    BinaryOp {
        Add => "add", Sub => "sub", Mul => "mul", Div => "div", Rem => "rem", Pow => "pow", Max => "maximum",
        Min => "minimum", And => "and", Or => "or", Xor => "xor", Shl => "shl", Shr => "shr", Atan2 => "atan2",
    }
    CompareOp { Eq => "eq", Lt => "lt", Le => "le" }
    ReduceOp {
        Sum => "sum", Prod => "prod", Max => "max", Min => "min", ArgMax => "argmax", ArgMin => "argmin",
    }
    ScanOp { Sum => "cumsum", Prod => "cumprod", Max => "cummax", Min => "cummin" }
    ScatterMode {
        Set => "scatter", Add => "scatter_add", Mul => "scatter_mul", Max => "scatter_max", Min => "scatter_min",
    }
}
