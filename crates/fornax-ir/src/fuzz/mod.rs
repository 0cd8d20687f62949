//! Random graphs, and what a device must make of them: the parts of a differential fuzzer.
//!
//! [`case`] draws a valid graph and its inputs from a seed. [`expect`] runs it on the interpreter and says for each
//! element of each output how far off a device may be. [`shrink`] makes a failing case small.
//!
//! ```
//! use fornax_ir::{fuzz, interpret};
//! let fails = |graph: &fornax_ir::Graph, inputs: &[Vec<u8>]| {
//!     // Here a device would run the graph.
//!     let got = interpret(graph, inputs).unwrap().outputs;
//!     let expected = fuzz::expect(graph, inputs).unwrap();
//!     expected.iter().zip(&got).any(|(expected, got)| expected.compare(got).is_some())
//! };
//! for seed in 0..20 {
//!     let (graph, inputs) = fuzz::case(seed);
//!     if fails(&graph, &inputs) {
//!         let (graph, _) = fuzz::shrink(graph, inputs, &mut |graph, inputs| fails(graph, inputs));
//!         panic!("seed {seed} fails:\n{graph}");
//!     }
//! }
//! ```

mod generate;
mod known;
mod shrink;

pub use generate::{Settings, case, case_with};
pub use shrink::shrink;

use crate::interp::value::{Numbers, Value};
use crate::{DType, Graph, LinalgOp, Op, Result, Scalar, Shape};
use alloc::vec::Vec;
use core::fmt;
use known::World;

/// An output as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Dtype of the output.
    pub dtype: DType,
    /// Shape of the output.
    pub shape: Shape,
    /// Its bytes: row-major, little-endian.
    pub bytes: Vec<u8>,
    /// How far off a device may be.
    pub tolerance: Tolerance,
}

impl Expected {
    /// The worst element that is too far off, if there is one.
    pub fn compare(&self, got: &[u8]) -> Option<Mismatch> {
        compare(self.dtype, got, &self.bytes, &self.tolerance)
    }
}

/// How far off a device may be.
#[derive(Clone, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all; but zeros and NaNs are alike.
    Exact,
    /// `absolute + relative · |want|`.
    Close {
        /// Allowed whatever the value.
        absolute: f64,
        /// Allowed a unit of the value.
        relative: f64,
    },
    /// This much, for each element.
    Elements(Vec<f64>),
}

/// An element that is too far off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch {
    /// Its row-major number.
    pub index: usize,
    /// What the device gave; `None` if its output ends before.
    pub got: Option<Scalar>,
    /// What it should have given; `None` if the output should have ended before.
    pub want: Option<Scalar>,
    /// What it might have been off.
    pub tolerance: f64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {}: ", self.index)?;
        match (self.got, self.want) {
            (Some(got), Some(want)) => write!(f, "got {got}, want {want} ± {:e}", self.tolerance),
            (None, _) => f.write_str("the output is too short"),
            (_, None) => f.write_str("the output is too long"),
        }
    }
}

/// The worst element of `got` that is too far from `want`, if there is one. NaN equals NaN, −0 equals 0, and infinities
/// equal themselves only.
///
/// ```
/// use fornax_ir::{DType, Element, fuzz};
/// let bytes = |values: &[f32]| {
///     let mut bytes = Vec::new();
///     f32::write_le(values, &mut bytes);
///     bytes
/// };
/// let tolerance = fuzz::Tolerance::Close { absolute: 0.0, relative: 0.01 };
/// let (got, want) = (bytes(&[1.0, 2.1, f32::NAN]), bytes(&[1.001, 2.0, f32::NAN]));
/// let worst = fuzz::compare(DType::F32, &got, &want, &tolerance).unwrap();
/// assert_eq!(worst.index, 1);
/// ```
pub fn compare(dtype: DType, got: &[u8], want: &[u8], tolerance: &Tolerance) -> Option<Mismatch> {
    let elements = |bytes: &[u8]| -> Vec<Scalar> {
        let shape = Shape::from(bytes.len() / dtype.size());
        // Not by way of `from_bytes`, which would mend a wrong `bool`.
        let dtype = if dtype == DType::Bool { DType::U8 } else { dtype };
        let whole = bytes[..shape.numel() * dtype.size()].to_vec();
        match (Value { dtype, shape, data: whole }).numbers() {
            Numbers::Floats(floats) => floats.into_iter().map(Scalar::Float).collect(),
            Numbers::Ints(ints) => {
                ints.into_iter().map(|int| i64::try_from(int).map_or(Scalar::UInt(int as u64), Scalar::Int)).collect()
            }
        }
    };
    let (got_elements, want_elements) = (elements(got), elements(want));
    let mut worst: Option<(f64, Mismatch)> = None;
    for (index, (&got, &want)) in got_elements.iter().zip(&want_elements).enumerate() {
        let allowed = match tolerance {
            Tolerance::Exact => 0.0,
            Tolerance::Close { absolute, relative } => absolute + relative * want.to_f64().abs(),
            Tolerance::Elements(elements) => elements.get(index).copied().unwrap_or(0.0),
        };
        let (a, b) = (got.to_f64(), want.to_f64());
        if got == want || (a.is_nan() && b.is_nan()) {
            continue;
        }
        // Integers that differ may be the same as `f64`.
        let off = if dtype.is_float() { (a - b).abs() } else { (a - b).abs().max(1.0) };
        if off <= allowed && b.is_finite() {
            continue;
        }
        // NaN on one side only is worst.
        let badness = if off.is_finite() { off / allowed.max(f64::MIN_POSITIVE) } else { f64::INFINITY };
        if worst.is_none_or(|(known, _)| badness > known) {
            worst = Some((badness, Mismatch { index, got: Some(got), want: Some(want), tolerance: allowed }));
        }
    }
    if worst.is_none() && got.len() != want.len() {
        let index = got_elements.len().min(want_elements.len());
        let (got, want) = (got_elements.get(index).copied(), want_elements.get(index).copied());
        return Some(Mismatch { index, got, want, tolerance: 0.0 });
    }
    worst.map(|(_, mismatch)| mismatch)
}

/// Runs `graph` on the interpreter, and a few times more with every rounding disturbed; how far that moves an element
/// tells its tolerance. Values that are the same on every device, since nothing rounds on the way to them, must be met
/// exactly.
///
/// # Errors
/// Those of [`crate::interpret`].
pub fn expect(graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Expected>> {
    // Checks graph and inputs, too.
    let result = crate::interpret(graph, inputs)?;
    let mut world = World::new(inputs.to_vec());
    for node in &graph.nodes {
        world.add(node.clone());
    }
    let expected = graph.outputs.iter().zip(result.outputs).map(|(&id, bytes)| {
        let node = &graph[id];
        Expected { dtype: node.dtype, shape: node.shape.clone(), bytes, tolerance: world.tolerance(id) }
    });
    Ok(expected.collect())
}

/// For each node, whether its value is the only right one. Factors of a matrix (their signs) and what is computed from
/// them are not, up to a product, which puts them together again.
pub fn unique(graph: &Graph) -> Vec<bool> {
    let mut unique: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let is_unique = match &node.op {
            Op::Linalg(LinalgOp::Qr | LinalgOp::Svd | LinalgOp::Eigh | LinalgOp::Eig) => false,
            Op::Matmul { .. } => true,
            _ => node.inputs.iter().all(|operand| unique[operand.idx()]),
        };
        unique.push(is_unique);
    }
    unique
}
