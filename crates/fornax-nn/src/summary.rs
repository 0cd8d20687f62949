//! [`summary`]: a model as a table.

use crate::module::{Buffer, Param, Path, Visitor, VisitorMut};
use crate::{Module, trace};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use fornax_tensor::{Device, MetaBackend, Tensor, no_grad};

/// What a model consists of: its modules with the shapes of their results, parameters, memory and arithmetic.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The modules, in the order of the fields; those inside a module after it.
    pub rows: Vec<SummaryRow>,
    /// Elements of all parameters.
    pub parameters: usize,
    /// Those of them that are trained.
    pub trainable: usize,
    /// Bytes of all parameters and buffers.
    pub bytes: usize,
    /// Arithmetic of one pass: two for a product and a sum, one for every other element.
    pub flops: u64,
}

/// A module of a [`Summary`].
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// Its path; empty for the model itself.
    pub path: String,
    /// How deep it lies.
    pub depth: usize,
    /// Its type.
    pub type_name: &'static str,
    /// Shapes of its results, one for each call.
    pub outputs: Vec<String>,
    /// Elements of its parameters, those of modules inside included.
    pub parameters: usize,
    /// Bytes of its parameters and buffers, those of modules inside included.
    pub bytes: usize,
    /// Arithmetic of all calls; 0 if it is no layer of this crate, whose calls are not seen.
    pub flops: u64,
}

/// Works out what `forward` does with the model, without memory or arithmetic: it runs on a copy on a device of shapes,
/// where its inputs must be made.
///
/// ```
/// use fornax_nn::{Linear, Relu, Layer, summary};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let model = (Linear::new(784, 128, &device), Relu, Linear::new(128, 10, &device));
/// let summary = summary(&model, |model, device| drop(model.forward(&Tensor::zeros([64, 784], device))));
/// assert_eq!(summary.parameters, 784 * 128 + 128 + 128 * 10 + 10);
/// assert_eq!(summary.rows[0].outputs, ["[64, 128]"]);
/// // Products and sums, biases; the activation compares and chooses.
/// assert_eq!(summary.flops, 64 * (2 * 784 * 128 + 128 + 2 * 128 + 2 * 128 * 10 + 10));
/// println!("{summary}");
/// ```
///
/// # Panics
/// If `forward` does, or reads a value.
#[track_caller]
pub fn summary<M: Module + Clone>(model: &M, forward: impl FnOnce(&M, &Device)) -> Summary {
    let device = Device::new(MetaBackend::default());
    let mut model = model.clone();
    model.visit_mut(&mut Path::default(), &mut Shapes(&device));
    device.flush();
    let (records, flops) = trace::record(&device, || no_grad(|| forward(&model, &device)));
    let mut table = Table { records, open: Vec::new(), rows: Vec::new(), trainable: 0, parameters: 0, bytes: 0 };
    model.visit(&mut Path::default(), &mut table);
    let Table { rows, parameters, trainable, bytes, .. } = table;
    Summary { rows, parameters, trainable, bytes, flops }
}

/// Puts values without memory in the place of all others.
struct Shapes<'a>(&'a Device);

impl Shapes<'_> {
    fn of(&self, x: &Tensor) -> Tensor {
        Tensor::full(x.shape(), 0, x.dtype(), self.0)
    }
}

impl VisitorMut for Shapes<'_> {
    fn param(&mut self, _: &Path, param: &mut Param) {
        param.set(&self.of(param));
    }
    fn buffer(&mut self, _: &Path, buffer: &mut Buffer) {
        buffer.set(&self.of(&buffer.get()));
    }
}

struct Table {
    records: Vec<trace::Record>,
    /// The rows of the modules around the place at hand.
    open: Vec<usize>,
    rows: Vec<SummaryRow>,
    parameters: usize,
    trainable: usize,
    bytes: usize,
}

impl Table {
    fn count(&mut self, parameters: usize, bytes: usize) {
        self.parameters += parameters;
        self.bytes += bytes;
        for &row in &self.open {
            self.rows[row].parameters += parameters;
            self.rows[row].bytes += bytes;
        }
    }
}

impl<'a> Visitor<'a> for Table {
    fn enter(&mut self, path: &Path, type_name: &'static str, address: usize) {
        let is_own = |record: &&trace::Record| record.address == address && record.type_name == type_name;
        let calls: Vec<&trace::Record> = self.records.iter().filter(is_own).collect();
        let row = SummaryRow {
            path: path.to_string(),
            depth: self.open.len(),
            type_name,
            outputs: calls.iter().map(|call| call.output.clone()).collect(),
            parameters: 0,
            bytes: 0,
            flops: calls.iter().map(|call| call.flops).sum(),
        };
        self.open.push(self.rows.len());
        self.rows.push(row);
    }
    fn leave(&mut self, _: &Path) {
        self.open.pop();
    }
    fn param(&mut self, _: &Path, param: &'a Param) {
        if param.is_trainable() {
            self.trainable += param.numel();
        }
        self.count(param.numel(), param.numel() * param.dtype().size());
    }
    fn buffer(&mut self, _: &Path, buffer: &'a Buffer) {
        let value = buffer.get();
        self.count(0, value.numel() * value.dtype().size());
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |row: &SummaryRow| {
            let last = row.path.rsplit('.').next().unwrap_or_default();
            let own = if last.is_empty() { String::new() } else { format!("{}: ", row.path) };
            format!("{}{own}{}", "  ".repeat(row.depth), row.type_name)
        };
        let output = |row: &SummaryRow| match row.outputs.as_slice() {
            [] => String::from("–"),
            [first, rest @ ..] if rest.iter().all(|output| output == first) && !rest.is_empty() => {
                format!("{first} × {}", rest.len() + 1)
            }
            outputs => outputs.join("; "),
        };
        let lines: Vec<[String; 5]> = self
            .rows
            .iter()
            .map(|row| {
                let flops = if row.outputs.is_empty() { String::from("–") } else { grouped(row.flops) };
                [name(row), output(row), grouped(row.parameters as u64), grouped(row.bytes as u64), flops]
            })
            .collect();
        let titles = ["module", "output", "parameters", "bytes", "operations"].map(String::from);
        let width = |column: usize| {
            lines.iter().chain([&titles]).map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..5).map(width).collect();
        let mut print = |line: &[String; 5]| {
            let [a, b, c, d, e] = [widths[0], widths[1], widths[2], widths[3], widths[4]];
            writeln!(f, "{:a$}  {:b$}  {:>c$}  {:>d$}  {:>e$}", line[0], line[1], line[2], line[3], line[4])
        };
        print(&titles)?;
        lines.iter().try_for_each(&mut print)?;
        let (trainable, parameters) = (grouped(self.trainable as u64), grouped(self.parameters as u64));
        let (bytes, flops) = (grouped(self.bytes as u64), grouped(self.flops));
        write!(f, "{parameters} parameters ({trainable} trained), {bytes} bytes; {flops} operations a pass")
    }
}

/// `1234567` as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
