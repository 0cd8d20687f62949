//! The text form of graphs: [`Graph`] prints as it and [`Graph::parse`] reads it back, bit for bit.
//!
//! ```text
//! # A node a line: number, op, operands, attributes, then dtype and shape of the result.
//! %0 = input 0 : f32[4, 3]
//! %1 = mul %0, %0 : f32[4, 3]
//! %2 = sum %1, dims=[1] : f32[4, 1]
//! return %2
//! ```
//!
//! Numbers count up from 0; `#` starts a comment; space and line ends separate and mean nothing else. The dtype that
//! `cast`, `bitcast` and `matmul` make is the one of their result. Constants are `true`, `7`, `7u` (an unsigned
//! scalar), `7.0`, `1e-3`, `-inf`, `nan`, or `nan:0x7ff8000000000001` for the bits of another NaN.

use crate::{
    BinaryOp, CompareOp, ConvSpec, DType, Dims, FftKind, Graph, LinalgOp, Node, NodeId, Op, ReduceOp, Scalar, ScanOp,
    ScatterMode, Shape, Source, UnaryOp, WindowDim, WindowSpec,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::{format, vec::Vec};
use core::fmt::{self, Write};
use core::str::FromStr;
use smallvec::SmallVec;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, node) in self.iter() {
            write!(f, "%{} = {}", id.0, node.op.name())?;
            let mut items = Items { f, empty: true };
            for operand in &node.inputs {
                items.item(format_args!("%{}", operand.0))?;
            }
            items.attributes(&node.op)?;
            writeln!(f, " : {}{}", node.dtype, node.shape)?;
        }
        f.write_str("return")?;
        let mut items = Items { f, empty: true };
        for id in &self.outputs {
            items.item(format_args!("%{}", id.0))?;
        }
        f.write_char('\n')
    }
}

/// Writes operands and attributes, with commas between them.
struct Items<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    empty: bool,
}

impl Items<'_, '_> {
    fn item(&mut self, item: fmt::Arguments<'_>) -> fmt::Result {
        self.f.write_str(if self.empty { " " } else { ", " })?;
        self.empty = false;
        self.f.write_fmt(item)
    }

    fn list<T: fmt::Display>(&mut self, name: &str, items: impl IntoIterator<Item = T>) -> fmt::Result {
        self.item(format_args!("{name}=["))?;
        for (i, item) in items.into_iter().enumerate() {
            write!(self.f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        self.f.write_char(']')
    }

    fn window(&mut self, spec: &WindowSpec) -> fmt::Result {
        self.list("size", spec.dims.iter().map(|dim| dim.size))?;
        self.list("step", spec.dims.iter().map(|dim| dim.step))?;
        self.list("dilation", spec.dims.iter().map(|dim| dim.dilation))
    }

    fn attributes(&mut self, op: &Op) -> fmt::Result {
        match op {
            Op::Input(slot) => self.item(format_args!("{slot}")),
            Op::Const(scalar) => self.item(format_args!("{}", ScalarText(*scalar))),
            Op::Iota { dim } | Op::Concat { dim } | Op::Scan { op: _, dim } | Op::Gather { dim } => {
                self.item(format_args!("dim={dim}"))
            }
            Op::Scatter { dim, mode: _ } => self.item(format_args!("dim={dim}")),
            Op::Random { seed, offset } => {
                self.item(format_args!("seed={seed}"))?;
                self.item(format_args!("offset={offset}"))
            }
            Op::Permute(perm) => self.list("perm", perm),
            Op::Slice { starts, steps } => {
                self.list("starts", starts)?;
                self.list("steps", steps)
            }
            Op::Pad { low, value } => {
                self.list("low", low)?;
                self.item(format_args!("value={}", ScalarText(*value)))
            }
            Op::Window(spec) | Op::Fold(spec) => self.window(spec),
            Op::Reduce { op: _, dims } => self.list("dims", dims),
            Op::ArgSort { dim, descending } => {
                self.item(format_args!("dim={dim}"))?;
                self.item(format_args!("descending={descending}"))
            }
            Op::TopK { dim, largest } => {
                self.item(format_args!("dim={dim}"))?;
                self.item(format_args!("largest={largest}"))
            }
            Op::Conv(spec) => {
                self.list("stride", &spec.stride)?;
                self.list("padding", spec.padding.iter().map(|(low, high)| format!("({low}, {high})")))?;
                self.list("dilation", &spec.dilation)?;
                self.list("input_dilation", &spec.input_dilation)?;
                self.item(format_args!("groups={}", spec.groups))
            }
            Op::Fft { dim, kind } => {
                self.item(format_args!("dim={dim}"))?;
                self.item(format_args!("inverse={}", *kind == FftKind::Inverse))
            }
            Op::Linalg(LinalgOp::TriangularSolve { upper, unit_diagonal }) => {
                self.item(format_args!("upper={upper}"))?;
                self.item(format_args!("unit_diagonal={unit_diagonal}"))
            }
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Bitcast(_)
            | Op::Reshape
            | Op::Expand
            | Op::Matmul { out: _ }
            | Op::Linalg(
                LinalgOp::Cholesky | LinalgOp::Lu | LinalgOp::Qr | LinalgOp::Svd | LinalgOp::Eigh | LinalgOp::Eig,
            ) => Ok(()),
        }
    }
}

/// A scalar such that its variant and bits can be read back.
struct ScalarText(Scalar);

impl fmt::Display for ScalarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::UInt(value) => write!(f, "{value}u"),
            Scalar::Float(value) if value.to_bits() == f64::NAN.to_bits() => f.write_str("nan"),
            Scalar::Float(value) if value.is_nan() => write!(f, "nan:{:#018x}", value.to_bits()),
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

fn parse_scalar(text: &str) -> Option<Scalar> {
    match text {
        "true" => return Some(Scalar::Bool(true)),
        "false" => return Some(Scalar::Bool(false)),
        "nan" => return Some(Scalar::Float(f64::NAN)),
        "inf" => return Some(Scalar::Float(f64::INFINITY)),
        "-inf" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    if let Some(bits) = text.strip_prefix("nan:0x") {
        let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
        return value.is_nan().then_some(Scalar::Float(value));
    }
    if let Some(unsigned) = text.strip_suffix('u') {
        return unsigned.parse().ok().map(Scalar::UInt);
    }
    match text.parse() {
        Ok(int) => Some(Scalar::Int(int)),
        // The digits only: Rust would also take `infinity` and `NaN`.
        Err(_) if text.contains(['.', 'e']) && !text.contains(|c: char| c.is_alphabetic() && c != 'e') => {
            text.parse().ok().map(Scalar::Float)
        }
        Err(_) => None,
    }
}

/// Why a text is no graph, and where.
///
/// ```
/// let error = fornax_ir::Graph::parse("%0 = input 0 : f32[4]\n%1 = sqrt %7 : f32[4]\n").unwrap_err();
/// assert_eq!((error.line(), error.column()), (2, 11));
/// assert_eq!(error.to_string(), "2:11: %7 does not come before its use");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    line: usize,
    column: usize,
    message: String,
}

impl ParseError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl core::error::Error for ParseError {}

impl FromStr for Graph {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Graph, ParseError> {
        Graph::parse(text)
    }
}

impl Graph {
    /// Reads the text form. What comes back verifies.
    ///
    /// ```
    /// use fornax_ir::Graph;
    /// let text = "%0 = input 0 : f32[4, 3]\n%1 = sum %0, dims=[1] : f32[4, 1]\nreturn %1\n";
    /// let graph = Graph::parse(text)?;
    /// assert_eq!(graph.to_string(), text);
    /// # Ok::<(), fornax_ir::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// The first place where the text is no graph, or where a node breaks its op's rule.
    pub fn parse(text: &str) -> Result<Graph, ParseError> {
        let mut parser = Parser { text, at: 0 };
        let mut graph = Graph::default();
        while parser.peek() == Some('%') {
            let start = parser.at;
            let node = parser.node(&graph)?;
            let id = graph.push_node(node);
            graph.verify_node(id).map_err(|error| parser.error(start, format!("{error}")))?;
        }
        let start = parser.at;
        if parser.word() != "return" {
            return Err(parser.error(start, "expected a node or `return`"));
        }
        while parser.peek().is_some() {
            if !graph.outputs.is_empty() {
                parser.expect(',')?;
            }
            let id = parser.operand(&graph)?;
            graph.outputs.push(id);
        }
        graph.verify().map_err(|error| parser.error(start, format!("{error}")))?;
        Ok(graph)
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Bytes read.
    at: usize,
}

/// The value of `name=value`, not yet understood.
enum Attribute<'a> {
    Word(&'a str),
    List(Vec<&'a str>),
    Pairs(Vec<(&'a str, &'a str)>),
}

impl<'a> Parser<'a> {
    fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        let before = &self.text[..at];
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        ParseError { line: before.matches('\n').count() + 1, column, message: message.into() }
    }

    /// The next character that is neither space nor comment.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = &self.text[self.at..];
            let next = rest.chars().next()?;
            match next {
                '#' => self.at += rest.find('\n').unwrap_or(rest.len()),
                space if space.is_whitespace() => self.at += space.len_utf8(),
                other => return Some(other),
            }
        }
    }

    fn expect(&mut self, want: char) -> Result<(), ParseError> {
        match self.peek() {
            Some(next) if next == want => {
                self.at += next.len_utf8();
                Ok(())
            }
            _ => Err(self.error(self.at, format!("expected `{want}`"))),
        }
    }

    /// Letters, digits and what numbers need; may be empty.
    fn word(&mut self) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_.+-".contains(c) || c == ':')).unwrap_or(rest.len());
        // The colon belongs to `nan:0x…` alone.
        let colon = rest[..end].find(':').filter(|_| !rest.starts_with("nan:0x"));
        let word = &rest[..colon.unwrap_or(end)];
        self.at += word.len();
        word
    }

    fn parse<T: FromStr>(&mut self, what: &str) -> Result<T, ParseError> {
        self.peek();
        let start = self.at;
        let word = self.word();
        word.parse().map_err(|_| self.error(start, format!("expected {what}, found `{word}`")))
    }

    fn operand(&mut self, graph: &Graph) -> Result<NodeId, ParseError> {
        self.peek();
        let start = self.at;
        self.expect('%')?;
        let number: u32 = self.parse("a node's number")?;
        if number as usize >= graph.nodes.len() {
            return Err(self.error(start, format!("%{number} does not come before its use")));
        }
        Ok(NodeId(number))
    }

    fn node(&mut self, graph: &Graph) -> Result<Node, ParseError> {
        let start = self.at;
        self.expect('%')?;
        let number: usize = self.parse("a node's number")?;
        if number != graph.nodes.len() {
            return Err(self.error(start, format!("expected node %{}, found %{number}", graph.nodes.len())));
        }
        self.expect('=')?;
        self.peek();
        let start = self.at;
        let name = self.word();
        let mut inputs = SmallVec::new();
        let mut attributes = Attributes { list: Vec::new(), start, name };
        if let "input" | "const" = name {
            self.peek();
            let at = self.at;
            attributes.list.push((at, "", Attribute::Word(self.word())));
        } else if self.peek() != Some(':') {
            loop {
                match self.peek() {
                    Some('%') => inputs.push(self.operand(graph)?),
                    _ => attributes.list.push(self.attribute()?),
                }
                if self.peek() != Some(',') {
                    break;
                }
                self.expect(',')?;
            }
        }
        self.expect(':')?;
        self.peek();
        let at = self.at;
        let word = self.word();
        let dtype = DType::from_name(word).ok_or_else(|| self.error(at, format!("`{word}` is no dtype")))?;
        let mut shape = Dims::new();
        self.expect('[')?;
        while self.peek() != Some(']') {
            if !shape.is_empty() {
                self.expect(',')?;
            }
            shape.push(self.parse("a size")?);
        }
        self.expect(']')?;
        let op = attributes.op(dtype).and_then(|op| match attributes.list.first() {
            Some((at, name, _)) => Err((*at, format!("{} has no attribute `{name}`", attributes.name))),
            None => Ok(op),
        });
        let op = op.map_err(|(at, message)| self.error(at, message))?;
        Ok(Node { op, inputs, dtype, shape: Shape::from(shape), source: Source::default() })
    }

    fn attribute(&mut self) -> Result<(usize, &'a str, Attribute<'a>), ParseError> {
        let start = self.at;
        let name = self.word();
        if name.is_empty() {
            return Err(self.error(start, "expected an operand, an attribute or `:`"));
        }
        self.expect('=')?;
        if self.peek() != Some('[') {
            return Ok((start, name, Attribute::Word(self.word())));
        }
        self.expect('[')?;
        let (mut list, mut pairs) = (Vec::new(), Vec::new());
        while self.peek() != Some(']') {
            if !(list.is_empty() && pairs.is_empty()) {
                self.expect(',')?;
            }
            if self.peek() == Some('(') {
                self.expect('(')?;
                let low = self.word();
                self.expect(',')?;
                pairs.push((low, self.word()));
                self.expect(')')?;
            } else {
                let at = self.at;
                list.push(self.word());
                if list.last() == Some(&"") {
                    return Err(self.error(at, "expected a number or `]`"));
                }
            }
        }
        self.expect(']')?;
        match (list.is_empty(), pairs.is_empty()) {
            (_, true) => Ok((start, name, Attribute::List(list))),
            (true, false) => Ok((start, name, Attribute::Pairs(pairs))),
            (false, false) => Err(self.error(start, "numbers and pairs in one list")),
        }
    }
}

/// What a node's line says besides operands. Taking an attribute removes it, so that what is left is unknown.
struct Attributes<'a> {
    list: Vec<(usize, &'a str, Attribute<'a>)>,
    /// Where the op's name stands.
    start: usize,
    name: &'a str,
}

/// A place in the text and what is wrong there.
type Wrong = (usize, String);

impl<'a> Attributes<'a> {
    fn take(&mut self, name: &str) -> Result<(usize, Attribute<'a>), Wrong> {
        let Some(i) = self.list.iter().position(|(_, found, _)| *found == name) else {
            return Err((self.start, format!("{} lacks the attribute `{name}`", self.name)));
        };
        let (at, _, attribute) = self.list.remove(i);
        Ok((at, attribute))
    }

    fn word<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Wrong> {
        let (at, attribute) = self.take(name)?;
        let parsed = match attribute {
            Attribute::Word(word) => parse(word),
            Attribute::List(_) | Attribute::Pairs(_) => None,
        };
        let what = if name.is_empty() { self.name } else { name };
        parsed.ok_or_else(|| (at, format!("the value of `{what}` is wrong")))
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Result<T, Wrong> {
        self.word(name, |word| word.parse().ok())
    }

    fn numbers<T: FromStr, C: FromIterator<T>>(&mut self, name: &str) -> Result<C, Wrong> {
        let (at, attribute) = self.take(name)?;
        let parsed = match attribute {
            Attribute::List(list) => list.into_iter().map(|word| word.parse().ok()).collect(),
            Attribute::Word(_) | Attribute::Pairs(_) => None,
        };
        parsed.ok_or_else(|| (at, format!("`{name}` is no list of numbers")))
    }

    fn pairs(&mut self, name: &str) -> Result<SmallVec<[(isize, isize); 3]>, Wrong> {
        let (at, attribute) = self.take(name)?;
        let parsed = match attribute {
            Attribute::Pairs(pairs) => {
                pairs.into_iter().map(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?))).collect()
            }
            Attribute::List(list) if list.is_empty() => Some(SmallVec::new()),
            Attribute::List(_) | Attribute::Word(_) => None,
        };
        parsed.ok_or_else(|| (at, format!("`{name}` is no list of pairs")))
    }

    fn window(&mut self) -> Result<WindowSpec, Wrong> {
        let (size, step): (Dims, Dims) = (self.numbers("size")?, self.numbers("step")?);
        let dilation: Dims = self.numbers("dilation")?;
        if size.len() != step.len() || size.len() != dilation.len() {
            return Err((self.start, "size, step and dilation differ in length".into()));
        }
        let dim = |i: usize| WindowDim { size: size[i], step: step[i], dilation: dilation[i] };
        Ok(WindowSpec { dims: (0..size.len()).map(dim).collect() })
    }

    /// The op of this name.
    fn op(&mut self, dtype: DType) -> Result<Op, Wrong> {
        fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, want: &str) -> Option<T> {
            all.iter().copied().find(|&op| name(op) == want)
        }
        Ok(match self.name {
            "input" => Op::Input(self.number("")?),
            "const" => Op::Const(self.word("", parse_scalar)?),
            "iota" => Op::Iota { dim: self.number("dim")? },
            "random" => Op::Random { seed: self.number("seed")?, offset: self.number("offset")? },
            "select" => Op::Select,
            "cast" => Op::Cast(dtype),
            "bitcast" => Op::Bitcast(dtype),
            "reshape" => Op::Reshape,
            "permute" => Op::Permute(self.numbers("perm")?),
            "expand" => Op::Expand,
            "slice" => Op::Slice { starts: self.numbers("starts")?, steps: self.numbers("steps")? },
            "pad" => Op::Pad { low: self.numbers("low")?, value: self.word("value", parse_scalar)? },
            "concat" => Op::Concat { dim: self.number("dim")? },
            "window" => Op::Window(self.window()?),
            "argsort" => Op::ArgSort { dim: self.number("dim")?, descending: self.number("descending")? },
            "topk" => Op::TopK { dim: self.number("dim")?, largest: self.number("largest")? },
            "gather" => Op::Gather { dim: self.number("dim")? },
            "matmul" => Op::Matmul { out: dtype },
            "conv" => Op::Conv(Box::new(ConvSpec {
                stride: self.numbers("stride")?,
                padding: self.pairs("padding")?,
                dilation: self.numbers("dilation")?,
                input_dilation: self.numbers("input_dilation")?,
                groups: self.number("groups")?,
            })),
            "fold" => Op::Fold(self.window()?),
            "fft" => {
                let kind = if self.number("inverse")? { FftKind::Inverse } else { FftKind::Forward };
                Op::Fft { dim: self.number("dim")?, kind }
            }
            "cholesky" => Op::Linalg(LinalgOp::Cholesky),
            "lu" => Op::Linalg(LinalgOp::Lu),
            "qr" => Op::Linalg(LinalgOp::Qr),
            "svd" => Op::Linalg(LinalgOp::Svd),
            "eigh" => Op::Linalg(LinalgOp::Eigh),
            "eig" => Op::Linalg(LinalgOp::Eig),
            "triangular_solve" => Op::Linalg(LinalgOp::TriangularSolve {
                upper: self.number("upper")?,
                unit_diagonal: self.number("unit_diagonal")?,
            }),
            name => {
                if let Some(op) = named(UnaryOp::ALL, UnaryOp::name, name) {
                    Op::Unary(op)
                } else if let Some(op) = named(BinaryOp::ALL, BinaryOp::name, name) {
                    Op::Binary(op)
                } else if let Some(op) = named(CompareOp::ALL, CompareOp::name, name) {
                    Op::Compare(op)
                } else if let Some(op) = named(ReduceOp::ALL, ReduceOp::name, name) {
                    Op::Reduce { op, dims: self.numbers("dims")? }
                } else if let Some(op) = named(ScanOp::ALL, ScanOp::name, name) {
                    Op::Scan { op, dim: self.number("dim")? }
                } else if let Some(mode) = named(ScatterMode::ALL, ScatterMode::name, name) {
                    Op::Scatter { mode, dim: self.number("dim")? }
                } else {
                    return Err((self.start, format!("there is no op `{name}`")));
                }
            }
        })
    }
}
