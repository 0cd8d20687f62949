//! What every primitive means, by hand-computed values. Cases named after issues come from other frameworks' bug
//! trackers.
#![expect(clippy::approx_constant, reason = "results stand as they come out")]
#![expect(clippy::needless_pass_by_value, reason = "a case reads better without borrows")]

use fornax_ir::{DType, Element, Graph, interpret, random_word};
use half::{bf16, f16};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// A tensor: dtype and shape in the text form, and its bytes.
#[derive(Clone, Debug)]
struct T {
    kind: String,
    dtype: DType,
    bytes: Vec<u8>,
}

fn t<E: Element, const N: usize>(shape: [usize; N], values: &[E]) -> T {
    assert_eq!(shape.iter().product::<usize>(), values.len());
    let mut bytes = Vec::new();
    E::write_le(values, &mut bytes);
    T { kind: format!("{}{shape:?}", E::DTYPE), dtype: E::DTYPE, bytes }
}

/// A vector.
fn v<E: Element>(values: &[E]) -> T {
    t([values.len()], values)
}

fn halves(values: &[f32]) -> T {
    v(&values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>())
}

fn bfloats(values: &[f32]) -> T {
    v(&values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
}

/// The numbers from 0.
fn arange<E: Element + From<u8>, const N: usize>(shape: [usize; N]) -> T {
    t(shape, &(0..shape.iter().product::<usize>()).map(|i| E::from(i as u8)).collect::<Vec<_>>())
}

/// What `op` on `inputs` gives in `kind`, and the faults.
#[track_caller]
fn run(op: &str, inputs: &[T], kind: &str) -> (Vec<u8>, Vec<String>) {
    let mut text = String::new();
    for (i, input) in inputs.iter().enumerate() {
        text += &format!("%{i} = input {i} : {}\n", input.kind);
    }
    let n = inputs.len();
    text += &format!("%{n} = {op} : {kind}\nreturn %{n}\n");
    let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"));
    assert_eq!(graph.to_string(), text);
    let bytes: Vec<&[u8]> = inputs.iter().map(|input| input.bytes.as_slice()).collect();
    let mut result = interpret(&graph, &bytes).unwrap();
    (result.outputs.remove(0), result.faults.into_iter().map(|fault| fault.message).collect())
}

/// Bits must agree, but any NaN is as good as another.
#[track_caller]
fn check(op: &str, inputs: &[T], want: T) {
    let (got, faults) = run(op, inputs, &want.kind);
    assert!(faults.is_empty(), "{faults:?}");
    let size = want.dtype.size();
    for (i, (got, want_bytes)) in got.chunks(size).zip(want.bytes.chunks(size)).enumerate() {
        let (a, b) = (number(want.dtype, got), number(want.dtype, want_bytes));
        assert!(got == want_bytes || (a.is_nan() && b.is_nan()), "{op}, element {i}: got {a}, want {b}");
    }
    assert_eq!(got.len(), want.bytes.len());
}

#[track_caller]
fn check_fault(op: &str, inputs: &[T], want: T, fault: &str) {
    assert_eq!(run(op, inputs, &want.kind), (want.bytes, vec![fault.to_string()]));
}

fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F16 => f16::read_le(bytes)[0].to_f64(),
        DType::BF16 => bf16::read_le(bytes)[0].to_f64(),
        DType::F32 => f64::from(f32::read_le(bytes)[0]),
        DType::F64 => f64::read_le(bytes)[0],
        _ => bytes.iter().rev().fold(0.0, |number, &byte| number * 256.0 + f64::from(byte)),
    }
}

#[test]
fn sources() {
    check("const 2.5", &[], v(&[2.5f32; 3]));
    check("const 300", &[], v(&[44u8; 2]));
    check("const nan", &[], v(&[f16::NAN]));
    check("const 18446744073709551615u", &[], v(&[u64::MAX]));
    check("const 1.0", &[], t([0, 3], &[0f32; 0]));
    check("iota dim=0", &[], t([2, 3], &[0i64, 0, 0, 1, 1, 1]));
    check("iota dim=1", &[], t([2, 3], &[0i64, 1, 2, 0, 1, 2]));
    // The first known-answer vector of Random123 is counter 0 under key 0.
    let words = [0x6627e8d5u32, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, random_word(0, 1, 0)];
    check("random seed=0, offset=0", &[], t([1, 5], &words));
}

#[test]
fn unary_ops_of_floats() {
    let x = || v(&[-2.5f32, -0.5, -0.0, 0.0, 0.5, 1.5, INF, NAN]);
    let ops: &[(&str, [f32; 8])] = &[
        ("neg", [2.5, 0.5, 0.0, -0.0, -0.5, -1.5, -INF, NAN]),
        ("abs", [2.5, 0.5, 0.0, 0.0, 0.5, 1.5, INF, NAN]),
        ("sign", [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]),
        ("recip", [-0.4, -2.0, -INF, INF, 2.0, 0.666_666_7, 0.0, NAN]),
        ("sqrt", [NAN, NAN, -0.0, 0.0, 0.707_106_77, 1.224_744_9, INF, NAN]),
        ("rsqrt", [NAN, NAN, -INF, INF, 1.414_213_5, 0.816_496_6, 0.0, NAN]),
        ("exp", [0.082_085, 0.606_530_67, 1.0, 1.0, 1.648_721_2, 4.481_689, INF, NAN]),
        ("exp2", [0.176_776_69, 0.707_106_77, 1.0, 1.0, 1.414_213_5, 2.828_427, INF, NAN]),
        ("expm1", [-0.917_915, -0.393_469_33, -0.0, 0.0, 0.648_721_3, 3.481_689, INF, NAN]),
        ("log", [NAN, NAN, -INF, -INF, -0.693_147_2, 0.405_465_1, INF, NAN]),
        ("log2", [NAN, NAN, -INF, -INF, -1.0, 0.584_962_5, INF, NAN]),
        ("log1p", [NAN, -0.693_147_2, -0.0, 0.0, 0.405_465_1, 0.916_290_76, INF, NAN]),
        ("sin", [-0.598_472_1, -0.479_425_55, -0.0, 0.0, 0.479_425_55, 0.997_495, NAN, NAN]),
        ("cos", [-0.801_143_6, 0.877_582_55, 1.0, 1.0, 0.877_582_55, 0.070_737_2, NAN, NAN]),
        ("tanh", [-0.986_614_3, -0.462_117_17, -0.0, 0.0, 0.462_117_17, 0.905_148_27, 1.0, NAN]),
        ("erf", [-0.999_593, -0.520_499_9, -0.0, 0.0, 0.520_499_9, 0.966_105_16, 1.0, NAN]),
        ("floor", [-3.0, -1.0, -0.0, 0.0, 0.0, 1.0, INF, NAN]),
        ("ceil", [-2.0, -0.0, -0.0, 0.0, 1.0, 2.0, INF, NAN]),
        ("trunc", [-2.0, -0.0, -0.0, 0.0, 0.0, 1.0, INF, NAN]),
        ("round", [-2.0, -0.0, -0.0, 0.0, 0.0, 2.0, INF, NAN]),
    ];
    for (op, want) in ops {
        check(&format!("{op} %0"), &[x()], v(want));
    }
    // burn PR#5665: not the sign bit of NaN.
    check("sign %0", &[v(&[-NAN])], v(&[0f32]));
    check("expm1 %0", &[v(&[1e-10f32])], v(&[1e-10f32]));
    check("log1p %0", &[v(&[1e-10f32])], v(&[1e-10f32]));
}

#[test]
fn unary_ops_of_integers() {
    check("neg %0", &[v(&[i32::MIN, -1, 0, 5])], v(&[i32::MIN, 1, 0, -5]));
    check("neg %0", &[v(&[1u8, 0])], v(&[255u8, 0]));
    // burn PR#4486.
    check("abs %0", &[v(&[i64::MIN, -7])], v(&[i64::MIN, 7]));
    check("sign %0", &[v(&[i8::MIN, 0, 3])], v(&[-1i8, 0, 1]));
    check("not %0", &[v(&[true, false])], v(&[false, true]));
    check("not %0", &[v(&[0u16, 0xFFF0])], v(&[0xFFFFu16, 0xF]));
    check("not %0", &[v(&[5i64])], v(&[-6i64]));
}

#[test]
fn arithmetic_of_integers() {
    let binary = |op: &str, a: T, b: T, want: T| check(&format!("{op} %0, %1"), &[a, b], want);
    binary("add", v(&[i32::MAX, 250]), v(&[1i32, 10]), v(&[i32::MIN, 260]));
    binary("add", v(&[250u8]), v(&[10u8]), v(&[4u8]));
    binary("sub", v(&[0u64]), v(&[1u64]), v(&[u64::MAX]));
    binary("mul", v(&[i64::MAX, 1 << 40]), v(&[2i64, 1 << 30]), v(&[-2i64, 0]));
    binary("mul", v(&[u64::MAX]), v(&[u64::MAX]), v(&[1u64]));
    binary("div", v(&[7i32, -7, 7, -7]), v(&[2i32, 2, -2, -2]), v(&[3i32, -3, -3, 3]));
    binary("div", v(&[i8::MIN]), v(&[-1i8]), v(&[i8::MIN]));
    // The sign of the dividend; burn PR#4015 composes the other one from this.
    binary("rem", v(&[-3i32, -2, -1, 1, 2, 3]), v(&[2i32, 3, 1, 2, 1, 3]), v(&[-1i32, -2, 0, 1, 0, 0]));
    binary("rem", v(&[i64::MIN, 5]), v(&[-1i64, -3]), v(&[0i64, 2]));
    binary("pow", v(&[3i32, -2, 2, 0, 7]), v(&[4i32, 3, 31, 0, 0]), v(&[81i32, -8, i32::MIN, 1, 1]));
    binary("pow", v(&[2i8, 1, -1, -1, 0]), v(&[-1i8, -5, -5, -4, -1]), v(&[0i8, 1, -1, 1, 0]));
    binary("pow", v(&[3u64]), v(&[u64::MAX]), v(&[12297829382473034411u64]));
    binary("maximum", v(&[3u64, u64::MAX]), v(&[4u64, 1]), v(&[4u64, u64::MAX]));
    binary("minimum", v(&[-3i16, 4]), v(&[2i16, 4]), v(&[-3i16, 4]));
    binary("and", v(&[12u8, 7]), v(&[10u8, 8]), v(&[8u8, 0]));
    binary("or", v(&[12i8, -128]), v(&[10i8, 1]), v(&[14i8, -127]));
    binary("xor", v(&[12i64, -1]), v(&[10i64, 1]), v(&[6i64, -2]));
    binary("shl", v(&[1i32, 1, 1, -1, 3]), v(&[31i32, 32, -1, 4, 31]), v(&[i32::MIN, 0, 0, -16, i32::MIN]));
    binary("shl", v(&[200u8]), v(&[1u8]), v(&[144u8]));
    binary("shr", v(&[-8i32, -8, -8, 8, 8]), v(&[1i32, 32, -1, 40, 2]), v(&[-4i32, -1, -1, 0, 2]));
    binary("shr", v(&[u64::MAX, 8]), v(&[63u64, 64]), v(&[1u64, 0]));
}

#[test]
fn logic_of_bool() {
    let (a, b) = (v(&[false, false, true, true]), v(&[false, true, false, true]));
    for (ops, want) in [
        (["add", "or", "maximum"].as_slice(), [false, true, true, true]),
        (&["mul", "and", "minimum"], [false, false, false, true]),
        (&["xor"], [false, true, true, false]),
        (&["eq"], [true, false, false, true]),
        (&["lt"], [false, true, false, false]),
        (&["le"], [true, true, false, true]),
    ] {
        for op in ops {
            check(&format!("{op} %0, %1"), &[a.clone(), b.clone()], v(&want));
        }
    }
}

#[test]
fn arithmetic_of_floats() {
    let binary = |op: &str, a: &[f32], b: &[f32], want: &[f32]| check(&format!("{op} %0, %1"), &[v(a), v(b)], v(want));
    binary("add", &[1.0, INF, 16_777_216.0], &[2.0, -INF, 1.0], &[3.0, NAN, 16_777_216.0]);
    binary("sub", &[0.3, 0.0], &[0.1, 0.0], &[0.200_000_02, 0.0]);
    binary("mul", &[0.1, INF, 1e-30], &[0.1, 0.0, 1e-10], &[0.010_000_001, NAN, 1e-40]);
    binary("div", &[1.0, -1.0, 0.0, 1.0], &[3.0, 0.0, 0.0, INF], &[0.333_333_34, -INF, NAN, 0.0]);
    binary(
        "rem",
        &[5.5, -5.5, 5.5, 1.0, INF, -4.0],
        &[2.0, 2.0, -2.0, INF, 1.0, 2.0],
        &[1.5, -1.5, 1.5, 1.0, NAN, -0.0],
    );
    binary("rem", &[1.0, 1e30], &[0.0, 7.0], &[NAN, 1.0]);
    binary(
        "pow",
        &[2.0, 2.0, 0.0, -8.0, 1.0, NAN],
        &[0.5, -1.0, 0.0, 0.333, NAN, 0.0],
        &[1.414_213_5, 0.5, 1.0, NAN, 1.0, 1.0],
    );
    binary("pow", &[-2.0, 0.0, -0.0, -INF], &[3.0, -1.0, -1.0, 3.0], &[-8.0, INF, -INF, -INF]);
    binary("maximum", &[1.0, NAN, 1.0, -INF], &[2.0, 1.0, NAN, -3.0], &[2.0, NAN, NAN, -3.0]);
    binary("minimum", &[1.0, NAN, 1.0, INF], &[2.0, 1.0, NAN, 3.0], &[1.0, NAN, NAN, 3.0]);
    binary(
        "atan2",
        &[1.0, 0.0, -0.0, 1.0],
        &[0.0, -1.0, -1.0, 1.0],
        &[1.570_796_4, 3.141_592_7, -3.141_592_7, 0.785_398_2],
    );
    // candle#1914.
    binary("add", &[-355.3564], &[-2879.0269], &[-3234.3833]);
}

#[test]
fn halves_compute_wide_and_round_to_even() {
    check(
        "add %0, %1",
        &[halves(&[2048.0, 2049.5, 65504.0]), halves(&[1.0, 1.0, 16.0])],
        halves(&[2048.0, 2052.0, INF]),
    );
    check("mul %0, %1", &[halves(&[300.0, 6e-8]), halves(&[300.0, 0.5])], halves(&[INF, 0.0]));
    check("add %0, %1", &[bfloats(&[256.0, 258.0]), bfloats(&[1.0, 1.0])], bfloats(&[256.0, 260.0]));
    check("exp %0", &[halves(&[1.0, -20.0, 12.0])], halves(&[2.71875, 0.0, INF]));
    check("cast %0", &[v(&[f64::from_bits(0x3FF0_0200_0000_0001)])], halves(&[1.0]));
}

#[test]
fn division_by_zero_of_integers_is_a_fault() {
    let message = "integer division by zero";
    check_fault("div %0, %1", &[v(&[6i32, 7]), v(&[0i32, 2])], v(&[0i32, 3]), message);
    check_fault("rem %0, %1", &[v(&[6u8, 7]), v(&[4u8, 0])], v(&[2u8, 0]), message);
}

#[test]
fn comparisons_are_false_for_nan() {
    let (a, b) = (v(&[1.0f32, NAN, 1.0, NAN, 0.0]), v(&[1.0f32, 1.0, NAN, NAN, -0.0]));
    check("eq %0, %1", &[a.clone(), b.clone()], v(&[true, false, false, false, true]));
    check("lt %0, %1", &[a.clone(), b.clone()], v(&[false; 5]));
    check("le %0, %1", &[a, b], v(&[true, false, false, false, true]));
    check("lt %0, %1", &[v(&[u64::MAX, 1]), v(&[1u64, u64::MAX])], v(&[false, true]));
    check("lt %0, %1", &[v(&[-1i8, 127]), v(&[1i8, -128])], v(&[true, false]));
}

#[test]
fn select_keeps_bits() {
    let quiet = f32::from_bits(0x7FC0_1234);
    let (got, _) = run("select %0, %1, %2", &[v(&[true, false]), v(&[quiet, 1.0]), v(&[2.0f32, -0.0])], "f32[2]");
    assert_eq!(got, v(&[0x7FC0_1234u32, 0x8000_0000]).bytes);
}

#[test]
fn casts() {
    let x = || v(&[-1.5f32, 0.5, 300.7, -INF, INF, NAN, 3e10, -0.0]);
    check("cast %0", &[x()], v(&[-1i8, 0, 127, -128, 127, 0, 127, 0]));
    check("cast %0", &[x()], v(&[0u8, 0, 255, 0, 255, 0, 255, 0]));
    check("cast %0", &[x()], v(&[-1, 0, 300, i32::MIN, i32::MAX, 0, i32::MAX, 0]));
    check("cast %0", &[x()], v(&[-1, 0, 300, i64::MIN, i64::MAX, 0, 30_000_001_024, 0]));
    check("cast %0", &[x()], v(&[0, 0, 300, 0, u64::MAX, 0, 30_000_001_024, 0]));
    // burn PR#5269.
    check("cast %0", &[x()], v(&[true, true, true, true, true, true, true, false]));
    check("cast %0", &[v(&[300i32, -1, 128])], v(&[44u8, 255, 128]));
    check("cast %0", &[v(&[-1i32])], v(&[u64::MAX]));
    check("cast %0", &[v(&[u64::MAX])], v(&[-1i64]));
    check("cast %0", &[v(&[true, false])], v(&[1.0f64, 0.0]));
    check("cast %0", &[v(&[-3i64, 0])], v(&[true, false]));
    check("cast %0", &[v(&[16_777_217i32, -16_777_219])], v(&[16_777_216.0f32, -16_777_220.0]));
    // 2^54 + 2^30 + 1: rounding to f64 first would give a tie.
    check("cast %0", &[v(&[(1i64 << 54) + (1 << 30) + 1])], v(&[(1u64 << 54) as f32 + 2f32.powi(31)]));
    check("cast %0", &[v(&[u64::MAX])], v(&[2f32.powi(64)]));
    check("cast %0", &[v(&[65_519i32, 65_520])], halves(&[65_504.0, INF]));
    check("cast %0", &[v(&[1e-50f64, 1.0 + 2f64.powi(-24), 1e300])], v(&[0f32, 1.0, INF]));
    check("cast %0", &[halves(&[0.1])], v(&[0.099_975_586f32]));
}

#[test]
fn bitcasts_keep_bits() {
    check("bitcast %0", &[v(&[1.0f32, -0.0])], v(&[0x3F80_0000u32, 0x8000_0000]));
    check("bitcast %0", &[v(&[0x7FF0_0000_0000_0001u64])], v(&[f64::NAN]));
    check("bitcast %0", &[v(&[-1i16])], v(&[0xFFFFu16]));
    check("bitcast %0", &[v(&[0x3C00u16])], halves(&[1.0]));
    check("bitcast %0", &[v(&[true, false])], v(&[1u8, 0]));
}

#[test]
fn movement() {
    let x = || arange::<u8, 2>([2, 3]);
    check("reshape %0", &[x()], t([3, 1, 2], &[0u8, 1, 2, 3, 4, 5]));
    check("reshape %0", &[v(&[7u8])], t([], &[7u8]));
    check("reshape %0", &[t([0, 3], &[0u8; 0])], t([5, 0], &[0u8; 0]));
    check("permute %0, perm=[1, 0]", &[x()], t([3, 2], &[0u8, 3, 1, 4, 2, 5]));
    let cube = (0..24u8).collect::<Vec<_>>();
    let turned: Vec<u8> = (0..24).map(|at| (at / 6 + at / 2 % 3 * 4 + at % 2 * 12) as u8).collect();
    check("permute %0, perm=[2, 1, 0]", &[t([2, 3, 4], &cube)], t([4, 3, 2], &turned));
    let rolled: Vec<u8> = (0..24).map(|at| (at / 6 + at % 6 / 3 * 12 + at % 3 * 4) as u8).collect();
    check("permute %0, perm=[2, 0, 1]", &[t([2, 3, 4], &cube)], t([4, 2, 3], &rolled));
    check("expand %0", &[t([2, 1], &[1u8, 2])], t([2, 2, 3], &[1u8, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]));
    check("expand %0", &[t([], &[9i64])], t([2], &[9i64, 9]));
    check("expand %0", &[t([1, 3], &[1u8, 2, 3])], t([0, 3], &[0u8; 0]));
    check("slice %0, starts=[0, 1], steps=[1, 1]", &[x()], t([2, 2], &[1u8, 2, 4, 5]));
    check("slice %0, starts=[1, 2], steps=[-1, -2]", &[x()], t([2, 2], &[5u8, 3, 2, 0]));
    check("slice %0, starts=[2, 0], steps=[1, 3]", &[x()], t([0, 1], &[0u8; 0]));
    check("pad %0, low=[1, 0], value=9", &[x()], t([3, 4], &[9u8, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9]));
    // tinygrad#2194.
    check("pad %0, low=[0], value=2.0", &[v(&[5f32, 6.0])], v(&[5f32, 6.0, 2.0]));
    check("pad %0, low=[1], value=-inf", &[v(&[f16::ONE; 0])], halves(&[-INF, -INF]));
    check("concat %0, %1, dim=1", &[x(), t([2, 1], &[8u8, 9])], t([2, 4], &[0u8, 1, 2, 8, 3, 4, 5, 9]));
    check("concat %0, %1, %0, dim=0", &[v(&[1i32]), v(&[0i32; 0])], v(&[1i32, 1]));
}

#[test]
fn windows_and_fold_are_transposes() {
    check(
        "window %0, size=[3], step=[2], dilation=[1]",
        &[arange::<f32, 1>([7])],
        t([3, 3], &[0f32, 1., 2., 2., 3., 4., 4., 5., 6.]),
    );
    check("window %0, size=[2], step=[1], dilation=[3]", &[arange::<u8, 1>([5])], t([2, 2], &[0u8, 3, 1, 4]));
    let image = arange::<u8, 3>([1, 3, 3]);
    let windows = [0u8, 1, 3, 4, 1, 2, 4, 5, 3, 4, 6, 7, 4, 5, 7, 8];
    check("window %0, size=[2, 2], step=[1, 1], dilation=[1, 1]", &[image], t([1, 2, 2, 2, 2], &windows));
    check("window %0, size=[4], step=[1], dilation=[1]", &[v(&[1u8, 2])], t([0, 4], &[0u8; 0]));
    check(
        "fold %0, size=[3], step=[2], dilation=[1]",
        &[t([2, 3], &[1f32, 2., 3., 10., 20., 30.])],
        v(&[1f32, 2., 13., 20., 30., 0.]),
    );
    let ones = t([2, 2, 2, 2], &[1i32; 16]);
    check("fold %0, size=[2, 2], step=[1, 1], dilation=[1, 1]", &[ones], t([3, 3], &[1i32, 2, 1, 2, 4, 2, 1, 2, 1]));
}

#[test]
fn sums_and_products() {
    let x = || arange::<i32, 2>([2, 3]);
    check("sum %0, dims=[0]", &[x()], t([1, 3], &[3i32, 5, 7]));
    check("sum %0, dims=[0, 1]", &[x()], t([1, 1], &[15i32]));
    check("prod %0, dims=[1]", &[x()], t([2, 1], &[0i32, 60]));
    check("sum %0, dims=[0]", &[t([0, 2], &[0f32; 0])], t([1, 2], &[0f32, 0.0]));
    check("prod %0, dims=[0]", &[t([0, 2], &[0i8; 0])], t([1, 2], &[1i8, 1]));
    check("sum %0, dims=[0]", &[v(&[200u8, 100])], v(&[44u8]));
    check("prod %0, dims=[0]", &[v(&[i64::MAX, 2, 3])], v(&[-6i64]));
    check("sum %0, dims=[0]", &[v(&[1f32, INF, -INF])], v(&[NAN]));
    // burn PR#5027: a sum in f16 would overflow on its way.
    let x = [[60_000.0; 2048], [-60_000.0; 2048]].concat();
    check("sum %0, dims=[0]", &[halves(&x)], halves(&[0.0]));
    // Rounded once: in f32 each 1 would be lost.
    let x = [vec![16_777_216.0f32], vec![1.0; 8]].concat();
    check("sum %0, dims=[0]", &[v(&x)], v(&[16_777_224.0f32]));
    // candle PR#3873.
    let x = arange::<f32, 6>([2; 6]);
    let at = |i: usize| (0..4).map(|k| (i & 32 | (k & 1) << 4 | i & 8 | i & 4 | (k & 2) | i & 1) as f32).sum::<f32>();
    let kept: Vec<f32> = [0, 1, 4, 5, 8, 9, 12, 13, 32, 33, 36, 37, 40, 41, 44, 45].into_iter().map(at).collect();
    assert_eq!(kept.iter().sum::<f32>(), 2016.0);
    check("sum %0, dims=[1, 4]", &[x], t([2, 1, 2, 2, 1, 2], &kept));
}

#[test]
fn extremes_propagate_nan_and_ties_take_the_lowest_index() {
    // burn#4814.
    let x = || t([1, 3], &[1f32, NAN, -3.0]);
    check("max %0, dims=[1]", &[x()], t([1, 1], &[NAN]));
    check("min %0, dims=[1]", &[x()], t([1, 1], &[NAN]));
    check("argmax %0, dims=[1]", &[x()], t([1, 1], &[1i64]));
    check("argmin %0, dims=[1]", &[x()], t([1, 1], &[1i64]));
    check("argmax %0, dims=[0]", &[v(&[1f32, NAN, INF, NAN])], v(&[1i64]));
    // burn PR#5290.
    let x = || t([1, 4], &[3i32, 3, -2, -2]);
    check("argmax %0, dims=[1]", &[x()], t([1, 1], &[0i64]));
    check("argmin %0, dims=[1]", &[x()], t([1, 1], &[2i64]));
    check("argmax %0, dims=[0]", &[v(&[5u8; 64])], v(&[0i64]));
    // Positions count row-major over all reduced dims.
    let x = || t([2, 2, 3], &[0i8, 1, 2, 9, 4, 5, 6, 7, 8, 3, 9, 9]);
    check("argmax %0, dims=[1, 2]", &[x()], t([2, 1, 1], &[3i64, 4]));
    check("argmax %0, dims=[0, 2]", &[x()], t([1, 2, 1], &[5i64, 0]));
    check("max %0, dims=[0]", &[x()], t([1, 2, 3], &[6i8, 7, 8, 9, 9, 9]));
    check("max %0, dims=[0]", &[v(&[-INF, -INF])], v(&[-INF]));
    check("max %0, dims=[0]", &[v(&[u64::MAX, 1])], v(&[u64::MAX]));
    check("argmax %0, dims=[0]", &[v(&[false, true, true])], v(&[1i64]));
}

#[test]
fn any_and_all() {
    check("max %0, dims=[0]", &[v(&[false, true])], v(&[true]));
    check("min %0, dims=[0]", &[v(&[false, true])], v(&[false]));
    check("max %0, dims=[0]", &[v(&[false; 0])], v(&[false]));
    check("min %0, dims=[0]", &[v(&[false; 0])], v(&[true]));
    check("max %0, dims=[1]", &[t([0, 0], &[0f32; 0])], t([0, 1], &[0f32; 0]));
}

#[test]
fn scans() {
    check("cumsum %0, dim=1", &[arange::<i16, 2>([2, 3])], t([2, 3], &[0i16, 1, 3, 3, 7, 12]));
    check("cumsum %0, dim=0", &[arange::<i16, 2>([2, 3])], t([2, 3], &[0i16, 1, 2, 3, 5, 7]));
    check("cumprod %0, dim=0", &[v(&[100i8, 2, 3])], v(&[100i8, -56, 88]));
    check("cummax %0, dim=0", &[v(&[1f32, NAN, 0.0])], v(&[1f32, NAN, NAN]));
    check("cummin %0, dim=0", &[v(&[3u8, 1, 2])], v(&[3u8, 1, 1]));
    check("cumsum %0, dim=0", &[halves(&[2048.0, 1.0, 1.0])], halves(&[2048.0, 2048.0, 2050.0]));
    check("cumsum %0, dim=1", &[t([2, 0], &[0f32; 0])], t([2, 0], &[0f32; 0]));
}

#[test]
fn order_is_stable_with_nan_largest() {
    let x = || v(&[2f32, NAN, -1.0, 2.0, INF, NAN, -0.0, 0.0]);
    check("argsort %0, dim=0, descending=false", &[x()], v(&[2i64, 6, 7, 0, 3, 4, 1, 5]));
    check("argsort %0, dim=0, descending=true", &[x()], v(&[1i64, 5, 4, 0, 3, 6, 7, 2]));
    check("topk %0, dim=0, largest=true", &[x()], v(&[1i64, 5, 4, 0]));
    check("topk %0, dim=0, largest=false", &[x()], v(&[2i64, 6, 7]));
    let x = || t([2, 3], &[3u8, 1, 2, 0, 1, 2]);
    check("argsort %0, dim=0, descending=false", &[x()], t([2, 3], &[1i64, 0, 0, 0, 1, 1]));
    check("topk %0, dim=1, largest=true", &[x()], t([2, 2], &[0i64, 2, 2, 1]));
    // burn PR#5307.
    check("topk %0, dim=1, largest=true", &[x()], t([2, 0], &[0i64; 0]));
    check("argsort %0, dim=0, descending=true", &[v(&[false, true, false])], v(&[1i64, 0, 2]));
}

#[test]
fn gather_along_a_dim() {
    // burn PR#3337.
    let index: Vec<i64> = (0..24).map(|at| [0, 2, 1, 3][at / 2 % 4]).collect();
    let want = [0u8, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 16, 17, 20, 21, 18, 19, 22, 23].map(f32::from);
    check("gather %0, %1, dim=1", &[arange::<f32, 3>([3, 4, 2]), t([3, 4, 2], &index)], t([3, 4, 2], &want));
    // candle PR#1037, with an index that repeats, and one that is smaller in the other dim.
    let x = || arange::<u8, 2>([2, 2]);
    check("gather %0, %1, dim=1", &[x(), t([2, 3], &[1i32, 0, 1, 1, 0, 1])], t([2, 3], &[1u8, 0, 1, 3, 2, 3]));
    check("gather %0, %1, dim=1", &[x(), t([1, 1], &[1i64])], t([1, 1], &[1u8]));
    let message = "index -1 is out of range for dim 1 of size 2";
    check_fault("gather %0, %1, dim=1", &[x(), t([1, 3], &[1i64, -1, 2])], t([1, 3], &[1u8, 0, 0]), message);
}

#[test]
fn scatter_along_a_dim() {
    let x = || v(&[1f32, 2.0, 3.0]);
    let scatter = |mode: &str, index: &[i64], source: &[f32], want: &[f32]| {
        check(&format!("scatter{mode} %0, %1, %2, dim=0"), &[x(), v(index), v(source)], v(want));
    };
    scatter("", &[2, 0, 2], &[10.0, 20.0, 30.0], &[20.0, 2.0, 30.0]);
    scatter("_add", &[2, 0, 2], &[10.0, 20.0, 30.0], &[21.0, 2.0, 43.0]);
    scatter("_mul", &[2, 0, 2], &[10.0, 20.0, 30.0], &[20.0, 2.0, 900.0]);
    scatter("_max", &[2, 0, 1, 1], &[10.0, -20.0, NAN, 5.0], &[1.0, NAN, 10.0]);
    scatter("_min", &[2, 0, 1, 1], &[10.0, -20.0, NAN, 5.0], &[-20.0, NAN, 3.0]);
    scatter("_add", &[], &[], &[1.0, 2.0, 3.0]);
    // burn PR#5071.
    let operands = [t([4, 1, 1], &[1i32, 2, 3, 4]), t([2, 1, 1], &[2i64, 0]), t([2, 1, 1], &[10i32, 20])];
    check("scatter_add %0, %1, %2, dim=0", &operands, t([4, 1, 1], &[21i32, 2, 13, 4]));
    // Added up wide, rounded once.
    let operands = [halves(&[2048.0]), v(&[0i32, 0]), halves(&[1.0, 1.0])];
    check("scatter_add %0, %1, %2, dim=0", &operands, halves(&[2050.0]));
    let operands = [v(&[false, true]), v(&[0i32, 1]), v(&[true, true])];
    check("scatter_add %0, %1, %2, dim=0", &operands, v(&[true, true]));
    let operands = [x(), v(&[0i64, 3]), v(&[5f32, 6.0])];
    let message = "index 3 is out of range for dim 0 of size 3";
    check_fault("scatter %0, %1, %2, dim=0", &operands, v(&[5f32, 2.0, 3.0]), message);
}

#[test]
fn matmuls() {
    let a = t([1, 2, 3], &[1f32, 2., 3., 4., 5., 6.]);
    let b = t([1, 3, 2], &[7f32, 8., 9., 10., 11., 12.]);
    check("matmul %0, %1", &[a, b], t([1, 2, 2], &[58f32, 64., 139., 154.]));
    check("matmul %0, %1", &[t([2, 0], &[0f32; 0]), t([0, 1], &[0f32; 0])], t([2, 1], &[0f32, 0.0]));
    check("matmul %0, %1", &[t([1, 2], &[100i8, 100]), t([2, 1], &[100i8, 100])], t([1, 1], &[20_000i32]));
    check("matmul %0, %1", &[t([1, 2], &[100i8, 100]), t([2, 1], &[100i8, 100])], t([1, 1], &[32i8]));
    check("matmul %0, %1", &[t([1, 2], &[200u8, 1]), t([2, 1], &[-100i8, 7])], t([1, 1], &[-19_993i32]));
    let half = |x: f32| f16::from_f32(x);
    let operands = [t([1, 2], &[half(300.0), half(1.0)]), t([2, 1], &[half(300.0), half(0.5)])];
    check("matmul %0, %1", &operands, t([1, 1], &[90_000.5f32]));
    check("matmul %0, %1", &operands, t([1, 1], &[f16::INFINITY]));
    let batch = [arange::<i64, 3>([2, 1, 2]), arange::<i64, 3>([2, 2, 1])];
    check("matmul %0, %1", &batch, t([2, 1, 1], &[1i64, 13]));
}

#[test]
fn convolutions() {
    let conv =
        |settings: &str, x: T, weight: T, want: T| check(&format!("conv %0, %1, {settings}"), &[x, weight], want);
    let plain = "stride=[1, 1], padding=[(0, 0), (0, 0)], dilation=[1, 1], input_dilation=[1, 1], groups=1";
    // candle PR#3736.
    conv(
        plain,
        arange::<f32, 4>([1, 2, 2, 2]),
        t([1, 2, 1, 1], &[3f32, 4.0]),
        t([1, 1, 2, 2], &[16f32, 23., 30., 37.]),
    );
    // candle PR#3405.
    let padded = "stride=[1, 1], padding=[(1, 1), (1, 1)], dilation=[1, 1], input_dilation=[1, 1], groups=1";
    let want = [132f32, 207., 144., 225., 351., 243., 168., 261., 180.];
    conv(padded, arange::<f32, 4>([1, 3, 3, 3]), t([1, 3, 3, 3], &[1f32; 27]), t([1, 1, 3, 3], &want));
    let x = || t([1, 1, 5], &[1f32, 2., 3., 4., 5.]);
    let w = || t([1, 1, 2], &[1f32, 10.0]);
    let line = |stride: usize, padding: &str, dilation: usize, input_dilation: usize| {
        format!(
            "stride=[{stride}], padding=[{padding}], dilation=[{dilation}], input_dilation=[{input_dilation}], groups=1"
        )
    };
    conv(&line(1, "(0, 0)", 1, 1), x(), w(), t([1, 1, 4], &[21f32, 32., 43., 54.]));
    conv(&line(2, "(1, 0)", 1, 1), x(), w(), t([1, 1, 3], &[10f32, 32., 54.]));
    conv(&line(1, "(0, 0)", 3, 1), x(), w(), t([1, 1, 2], &[41f32, 52.]));
    // Negative padding crops.
    conv(&line(1, "(-1, -2)", 1, 1), x(), w(), t([1, 1, 1], &[32f32]));
    conv(&line(1, "(-2, 1)", 1, 1), x(), w(), t([1, 1, 3], &[43f32, 54., 5.]));
    // 1 0 2 0 3 0 4 0 5: transposed convolutions.
    conv(&line(1, "(1, 1)", 1, 2), x(), w(), t([1, 1, 10], &[10f32, 1., 20., 2., 30., 3., 40., 4., 50., 5.]));
    conv(&line(3, "(-2, 0)", 2, 2), x(), w(), t([1, 1, 2], &[32f32, 0.]));
    let groups = "stride=[1], padding=[(0, 0)], dilation=[1], input_dilation=[1], groups=2";
    let x = t([1, 2, 2], &[1f32, 2., 3., 4.]);
    let w = t([4, 1, 1], &[1f32, 10., 100., 1000.]);
    conv(groups, x, w, t([1, 4, 2], &[1f32, 2., 10., 20., 300., 400., 3000., 4000.]));
    conv(
        "stride=[], padding=[], dilation=[], input_dilation=[], groups=1",
        t([1, 2], &[1f32, 2.0]),
        t([1, 2], &[3f32, 4.0]),
        t([1, 1], &[11f32]),
    );
}

#[test]
fn fourier_transforms() {
    let x = || t([4, 2], &[1f64, 0., 2., 0., 3., 0., 4., 0.]);
    let (got, _) = run("fft %0, dim=0, inverse=false", &[x()], "f64[4, 2]");
    let want = [10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0];
    assert!(f64::read_le(&got).iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-15));
    let (got, _) = run("fft %0, dim=0, inverse=true", &[x()], "f64[4, 2]");
    let want = [10.0, 0.0, -2.0, -2.0, -2.0, 0.0, -2.0, 2.0];
    assert!(f64::read_le(&got).iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-15));
    check("fft %0, dim=0, inverse=false", &[t([1, 2], &[3f32, 4.0])], t([1, 2], &[3f32, 4.0]));
    check("fft %0, dim=0, inverse=false", &[t([0, 2], &[0f32; 0])], t([0, 2], &[0f32; 0]));
}

#[test]
fn only_what_an_output_needs_runs() {
    let text = "%0 = input 0 : i32[1]\n%1 = div %0, %0 : i32[1]\n%2 = neg %0 : i32[1]\nreturn %2, %2\n";
    let result = interpret(&Graph::parse(text).unwrap(), &[[0u8; 4]]).unwrap();
    assert_eq!(result.outputs, [[0; 4], [0; 4]]);
    assert!(result.faults.is_empty());
}

#[test]
fn inputs_of_wrong_number_or_size_are_errors() {
    let graph = Graph::parse("%0 = input 0 : f32[2]\nreturn %0\n").unwrap();
    assert!(interpret::<Vec<u8>>(&graph, &[]).is_err());
    assert!(interpret(&graph, &[[0u8; 7]]).is_err());
    let huge = Graph::parse("%0 = const 0 : i8[1099511627776]\nreturn %0\n").unwrap();
    assert!(interpret::<Vec<u8>>(&huge, &[]).is_err());
}
