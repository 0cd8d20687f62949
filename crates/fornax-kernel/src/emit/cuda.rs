//! CUDA C++ for NVRTC: no header is included, so no toolkit is needed where programs run.
//!
//! Halves are `unsigned short`, converted by PTX instructions. Compile with [`Cuda::OPTIONS`]: without them products and
//! sums would be contracted.

use super::{Dialect, Place};
use crate::ir::{AtomicOp, Function, Mode, Param, Shuffle, Special};
use fornax_ir::{BinaryOp, CompareOp, DType, DTypeKind, UnaryOp, bits};
use std::fmt::Write;

/// CUDA C++.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuda;

impl Cuda {
    /// What NVRTC must be told, besides the architecture.
    pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false", "--device-as-default-execution-space"];
}

/// Functions that expressions call, by name; each may call those above it.
const HELPERS: &[(&str, &str)] = &[
    ("fx_vec", "template <class T, int N> struct alignas(sizeof(T) * N) fx_vec { T e[N]; };"),
    (
        "fx_f16_to_f32",
        "inline float fx_f16_to_f32(unsigned short x) { float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); return y; }",
    ),
    (
        "fx_f32_to_f16",
        "inline unsigned short fx_f32_to_f16(float x) { unsigned short y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y; }",
    ),
    (
        "fx_bf16_to_f32",
        "inline float fx_bf16_to_f32(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }",
    ),
    (
        "fx_f32_to_bf16",
        "inline unsigned short fx_f32_to_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short y; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y;
#else
  unsigned int u = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
#endif
}",
    ),
    ("fx_max", "template <class T> inline T fx_max(T a, T b) { return a > b || a != a ? a : b; }"),
    ("fx_min", "template <class T> inline T fx_min(T a, T b) { return a < b || a != a ? a : b; }"),
    ("fx_udiv", "template <class T> inline T fx_udiv(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }"),
    ("fx_urem", "template <class T> inline T fx_urem(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }"),
    (
        "fx_sdiv",
        "template <class T, class U> inline T fx_sdiv(T a, T b) { return b == 0 ? (T)0 : b == -1 ? (T)((U)0 - (U)a) : (T)(a / b); }",
    ),
    ("fx_srem", "template <class T> inline T fx_srem(T a, T b) { return b == 0 || b == -1 ? (T)0 : (T)(a % b); }"),
    (
        "fx_pow",
        "template <class T, class U> inline T fx_pow(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (T)(b & 1 ? -1 : 1) : (T)0;
  U power = 1, square = (U)a;
  for (U n = (U)b; n != 0; n >>= 1) { if (n & 1) power *= square; square *= square; }
  return (T)power;
}",
    ),
    (
        "fx_shl",
        "template <class T, class U> inline T fx_shl(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)0 : (T)((U)a << b); }",
    ),
    (
        "fx_shr",
        "template <class T> inline T fx_shr(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)(a < 0 ? -1 : 0) : (T)(a >> b); }",
    ),
    ("fx_clamp", "inline int fx_clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }"),
    ("fx_f32_i32", "inline int fx_f32_i32(float x) { return x != x ? 0 : __float2int_rz(x); }"),
    ("fx_f32_u32", "inline unsigned int fx_f32_u32(float x) { return x != x ? 0u : __float2uint_rz(x); }"),
    ("fx_f32_i64", "inline long long fx_f32_i64(float x) { return x != x ? 0ll : __float2ll_rz(x); }"),
    ("fx_f32_u64", "inline unsigned long long fx_f32_u64(float x) { return x != x ? 0ull : __float2ull_rz(x); }"),
    ("fx_f64_i32", "inline int fx_f64_i32(double x) { return x != x ? 0 : __double2int_rz(x); }"),
    ("fx_f64_u32", "inline unsigned int fx_f64_u32(double x) { return x != x ? 0u : __double2uint_rz(x); }"),
    ("fx_f64_i64", "inline long long fx_f64_i64(double x) { return x != x ? 0ll : __double2ll_rz(x); }"),
    ("fx_f64_u64", "inline unsigned long long fx_f64_u64(double x) { return x != x ? 0ull : __double2ull_rz(x); }"),
];

/// The unsigned type in which integers of `dtype` wrap.
fn unsigned(dtype: DType) -> &'static str {
    if dtype.size() == 8 { "unsigned long long" } else { "unsigned int" }
}

/// The C library's suffix for floats of this width.
fn suffix(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "" } else { "f" }
}

impl Dialect for Cuda {
    fn type_name(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::Bool => "bool",
            DType::U8 => "unsigned char",
            DType::U16 | DType::F16 | DType::BF16 => "unsigned short",
            DType::U32 => "unsigned int",
            DType::U64 => "unsigned long long",
            DType::I8 => "signed char",
            DType::I16 => "short",
            DType::I32 => "int",
            DType::I64 => "long long",
            DType::F32 => "float",
            DType::F64 => "double",
        }
    }

    fn literal(&self, dtype: DType, value: u64) -> String {
        let int = bits::to_int(dtype, value);
        match dtype {
            DType::Bool => (if value != 0 { "true" } else { "false" }).to_string(),
            DType::U8 | DType::U16 | DType::F16 | DType::BF16 | DType::I8 | DType::I16 => {
                format!("({})({int})", self.type_name(dtype))
            }
            DType::U32 => format!("{int}u"),
            DType::U64 => format!("{int}ull"),
            DType::I32 if int == i32::MIN.into() => "(-2147483647 - 1)".to_string(),
            DType::I64 if int == i64::MIN.into() => "(-9223372036854775807ll - 1)".to_string(),
            DType::I32 => format!("({int})"),
            DType::I64 => format!("({int}ll)"),
            DType::F32 => match f32::from_bits(value as u32) {
                x if x.is_finite() => format!("({x:?}f)"),
                _ => format!("__uint_as_float({value:#x}u)"),
            },
            DType::F64 => match f64::from_bits(value) {
                x if x.is_finite() => format!("({x:?})"),
                _ => format!("__longlong_as_double({value:#x}ll)"),
            },
        }
    }

    fn special(&self, special: Special) -> String {
        let axis = |dim: u8| ['x', 'y', 'z'][dim as usize];
        match special {
            Special::Thread => "(unsigned int)threadIdx.x".to_string(),
            Special::Lane => "(unsigned int)(threadIdx.x & 31u)".to_string(),
            Special::Block(dim) => format!("(unsigned int)blockIdx.{}", axis(dim)),
            Special::Grid(dim) => format!("(unsigned int)gridDim.{}", axis(dim)),
        }
    }

    fn unary(&self, op: UnaryOp, dtype: DType, a: &str) -> String {
        let (ty, f) = (self.type_name(dtype), suffix(dtype));
        let float = dtype.is_float();
        match op {
            UnaryOp::Neg if float => format!("-({a})"),
            UnaryOp::Neg => format!("({ty})(0 - ({})({a}))", unsigned(dtype)),
            UnaryOp::Abs if float => format!("fabs{f}({a})"),
            UnaryOp::Abs if dtype.kind() == DTypeKind::Unsigned => a.to_string(),
            UnaryOp::Abs => format!("({a}) < 0 ? ({ty})(0 - ({})({a})) : ({a})", unsigned(dtype)),
            UnaryOp::Sign => format!("({ty})((({a}) > 0) - (({a}) < 0))"),
            UnaryOp::Not if dtype == DType::Bool => format!("!({a})"),
            UnaryOp::Not => format!("({ty})(~({a}))"),
            UnaryOp::Recip => format!("1.0{f} / ({a})"),
            UnaryOp::Sqrt => format!("sqrt{f}({a})"),
            UnaryOp::Rsqrt => format!("rsqrt{f}({a})"),
            UnaryOp::Exp => format!("exp{f}({a})"),
            UnaryOp::Exp2 => format!("exp2{f}({a})"),
            UnaryOp::Expm1 => format!("expm1{f}({a})"),
            UnaryOp::Log => format!("log{f}({a})"),
            UnaryOp::Log2 => format!("log2{f}({a})"),
            UnaryOp::Log1p => format!("log1p{f}({a})"),
            UnaryOp::Sin => format!("sin{f}({a})"),
            UnaryOp::Cos => format!("cos{f}({a})"),
            UnaryOp::Tanh => format!("tanh{f}({a})"),
            UnaryOp::Erf => format!("erf{f}({a})"),
            UnaryOp::Floor => format!("floor{f}({a})"),
            UnaryOp::Ceil => format!("ceil{f}({a})"),
            UnaryOp::Trunc => format!("trunc{f}({a})"),
            UnaryOp::Round => format!("rint{f}({a})"),
        }
    }

    fn binary(&self, op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
        let (ty, f, kind) = (self.type_name(dtype), suffix(dtype), dtype.kind());
        let (wrap, float) = (unsigned(dtype), dtype.is_float());
        let plain = |sign: &str| match kind {
            DTypeKind::Float => format!("({a}) {sign} ({b})"),
            _ => format!("({ty})(({wrap})({a}) {sign} ({wrap})({b}))"),
        };
        match (op, kind) {
            (BinaryOp::Add | BinaryOp::Max | BinaryOp::Or, DTypeKind::Bool) => format!("({a}) || ({b})"),
            (BinaryOp::Mul | BinaryOp::Min | BinaryOp::And, DTypeKind::Bool) => format!("({a}) && ({b})"),
            (BinaryOp::Xor, DTypeKind::Bool) => format!("({a}) != ({b})"),
            (BinaryOp::Add, _) => plain("+"),
            (BinaryOp::Sub, _) => plain("-"),
            (BinaryOp::Mul, _) => plain("*"),
            (BinaryOp::Div, DTypeKind::Float) => plain("/"),
            (BinaryOp::Div, DTypeKind::Signed) => format!("fx_sdiv<{ty}, {wrap}>({a}, {b})"),
            (BinaryOp::Div, _) => format!("fx_udiv<{ty}>({a}, {b})"),
            (BinaryOp::Rem, DTypeKind::Float) => format!("fmod{f}({a}, {b})"),
            (BinaryOp::Rem, DTypeKind::Signed) => format!("fx_srem<{ty}>({a}, {b})"),
            (BinaryOp::Rem, _) => format!("fx_urem<{ty}>({a}, {b})"),
            (BinaryOp::Pow, _) if float => format!("pow{f}({a}, {b})"),
            (BinaryOp::Pow, _) => format!("fx_pow<{ty}, {wrap}>({a}, {b})"),
            (BinaryOp::Max, _) => format!("fx_max<{ty}>({a}, {b})"),
            (BinaryOp::Min, _) => format!("fx_min<{ty}>({a}, {b})"),
            (BinaryOp::And, _) => plain("&"),
            (BinaryOp::Or, _) => plain("|"),
            (BinaryOp::Xor, _) => plain("^"),
            (BinaryOp::Shl, _) => format!("fx_shl<{ty}, {wrap}>({a}, {b})"),
            (BinaryOp::Shr, _) => format!("fx_shr<{ty}>({a}, {b})"),
            (BinaryOp::Atan2, _) => format!("atan2{f}({a}, {b})"),
        }
    }

    fn compare(&self, op: CompareOp, a: &str, b: &str) -> String {
        match op {
            CompareOp::Eq => format!("({a}) == ({b})"),
            CompareOp::Lt => format!("({a}) < ({b})"),
            CompareOp::Le => format!("({a}) <= ({b})"),
        }
    }

    fn select(&self, condition: &str, a: &str, b: &str) -> String {
        format!("({condition}) ? ({a}) : ({b})")
    }

    fn cast(&self, from: DType, to: DType, a: &str) -> String {
        let ty = self.type_name(to);
        match (from, to) {
            _ if from == to => a.to_string(),
            (DType::F16, _) => self.cast(DType::F32, to, &format!("fx_f16_to_f32({a})")),
            (DType::BF16, _) => self.cast(DType::F32, to, &format!("fx_bf16_to_f32({a})")),
            (_, DType::F16) => format!("fx_f32_to_f16({})", self.cast(from, DType::F32, a)),
            (_, DType::BF16) => format!("fx_f32_to_bf16({})", self.cast(from, DType::F32, a)),
            (_, DType::Bool) => format!("({a}) != 0"),
            (_, DType::F32 | DType::F64) => format!("({ty})({a})"),
            (DType::F32 | DType::F64, DType::U8) => format!("({ty})fx_clamp(fx_{from}_i32({a}), 0, 255)"),
            (DType::F32 | DType::F64, DType::U16) => format!("({ty})fx_clamp(fx_{from}_i32({a}), 0, 65535)"),
            (DType::F32 | DType::F64, DType::I8) => format!("({ty})fx_clamp(fx_{from}_i32({a}), -128, 127)"),
            (DType::F32 | DType::F64, DType::I16) => format!("({ty})fx_clamp(fx_{from}_i32({a}), -32768, 32767)"),
            (DType::F32 | DType::F64, DType::U32 | DType::U64 | DType::I32 | DType::I64) => {
                format!("fx_{from}_{to}({a})")
            }
            (
                DType::Bool
                | DType::U8
                | DType::U16
                | DType::U32
                | DType::U64
                | DType::I8
                | DType::I16
                | DType::I32
                | DType::I64,
                DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::I8 | DType::I16 | DType::I32 | DType::I64,
            ) => format!("({ty})({a})"),
        }
    }

    fn bitcast(&self, from: DType, to: DType, a: &str) -> String {
        let integer = match from {
            DType::F32 => format!("__float_as_uint({a})"),
            DType::F64 => format!("__double_as_longlong({a})"),
            _ => a.to_string(),
        };
        match to {
            DType::F32 => format!("__uint_as_float((unsigned int)({integer}))"),
            DType::F64 => format!("__longlong_as_double((long long)({integer}))"),
            DType::Bool => format!("({integer}) != 0"),
            _ => format!("({})({integer})", self.type_name(to)),
        }
    }

    fn fma(&self, dtype: DType, [a, b, c]: [&str; 3]) -> String {
        format!("fma{}({a}, {b}, {c})", suffix(dtype))
    }

    fn mul_high(&self, a: &str, b: &str) -> String {
        format!("__umulhi({a}, {b})")
    }

    fn shuffle(&self, kind: Shuffle, dtype: DType, value: &str, lane: &str) -> String {
        let function = match kind {
            Shuffle::Xor => "__shfl_xor_sync",
            Shuffle::Up => "__shfl_up_sync",
            Shuffle::Lane => "__shfl_sync",
        };
        let ty = self.type_name(dtype);
        let value = if dtype.size() < 4 { format!("(int)({value})") } else { value.to_string() };
        format!("({ty}){function}(0xffffffffu, {value}, {lane})")
    }

    fn atomic(&self, op: AtomicOp, dtype: DType, memory: &str, index: &str, value: &str) -> String {
        let function = match op {
            AtomicOp::Add => "atomicAdd",
            AtomicOp::Max => "atomicMax",
            AtomicOp::Min => "atomicMin",
        };
        match (op, dtype) {
            (AtomicOp::Add, DType::I64) => {
                format!("{function}((unsigned long long*)&{memory}[{index}], (unsigned long long)({value}));")
            }
            _ => format!("{function}(&{memory}[{index}], {value});"),
        }
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn let_(&self, dtype: DType, name: &str, value: &str) -> String {
        format!("const {} {name} = {value};", self.type_name(dtype))
    }

    fn var(&self, dtype: DType, name: &str, value: &str) -> String {
        format!("{} {name} = {value};", self.type_name(dtype))
    }

    fn for_(&self, dtype: DType, counter: &str, [start, end, step]: [&str; 3]) -> String {
        format!("for ({} {counter} = {start}; {counter} < {end}; {counter} += {step}) {{", self.type_name(dtype))
    }

    fn load(&self, _: DType, memory: &str, index: &str) -> String {
        format!("{memory}[{index}]")
    }

    fn store(&self, _: DType, memory: &str, index: &str, value: &str) -> String {
        format!("{memory}[{index}] = {value};")
    }

    fn load_vector(&self, dtype: DType, lanes: usize, at: Place<'_>, name: &str) -> (String, Vec<String>) {
        let ty = format!("fx_vec<{}, {lanes}>", self.type_name(dtype));
        let value = format!("*(const {ty}*)&{}[{}]", at.memory, at.index);
        let lines = match at.mask {
            Some(mask) => format!("{ty} {name} = {{}};\nif ({mask}) {{ {name} = {value}; }}"),
            None => format!("const {ty} {name} = {value};"),
        };
        (lines, (0..lanes).map(|lane| format!("{name}.e[{lane}]")).collect())
    }

    fn store_vector(&self, dtype: DType, at: Place<'_>, values: &[String], name: &str) -> String {
        let ty = format!("fx_vec<{}, {}>", self.type_name(dtype), values.len());
        format!("{ty} {name} = {{{{{}}}}}; *({ty}*)&{}[{}] = {name};", values.join(", "), at.memory, at.index)
    }

    fn wrap(&self, function: &Function, body: &str) -> String {
        let mut text = String::new();
        for (name, source) in needed(body) {
            let _ = name;
            text.push_str(source);
            text.push('\n');
        }
        let params = function.params.iter().enumerate().map(|(i, param)| match param {
            Param::Buffer { dtype, mode: Mode::Read } => format!("const {}* p{i}", self.type_name(*dtype)),
            Param::Buffer { dtype, .. } => format!("{}* p{i}", self.type_name(*dtype)),
            Param::Scalar(dtype) => format!("const {} p{i}", self.type_name(*dtype)),
        });
        let params = params.collect::<Vec<_>>().join(", ");
        let (name, threads) = (&function.name, function.threads);
        writeln!(text, "extern \"C\" __global__ void __launch_bounds__({threads}) {name}({params}) {{").expect("text");
        for (i, array) in function.shared.iter().enumerate() {
            let ty = self.type_name(array.dtype);
            writeln!(text, "  __shared__ alignas(16) {ty} s{i}[{}];", array.len).expect("text");
        }
        text.push_str(body);
        text.push_str("}\n");
        text
    }
}

/// The helpers that `body` calls, and those that they call, in the order of the table.
fn needed(body: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let mut used = vec![false; HELPERS.len()];
    for idx in (0..HELPERS.len()).rev() {
        let (name, _) = HELPERS[idx];
        let by_later = (idx + 1..HELPERS.len()).any(|later| used[later] && HELPERS[later].1.contains(name));
        used[idx] = body.contains(name) || by_later;
    }
    HELPERS.iter().zip(used).filter_map(|(helper, used)| used.then_some(helper))
}
