//! Source text of functions: one emitter walks the statements, a [`Dialect`] says how its language spells each of them.

mod cuda;

pub use cuda::Cuda;

use crate::ir::{AtomicOp, Function, Inst, Region, Shuffle, Special, Stmt, Val};
use fornax_ir::{BinaryOp, CompareOp, DType, UnaryOp};
use std::fmt::Write;

/// A language with expressions and statements like C's.
///
/// Operands come as expressions that may stand anywhere: names, literals, calls. What is returned may not: the emitter
/// gives it a name first.
pub trait Dialect {
    /// The type of a value.
    fn type_name(&self, dtype: DType) -> &'static str;
    /// A literal.
    fn literal(&self, dtype: DType, bits: u64) -> String;
    /// Where the thread stands.
    fn special(&self, special: Special) -> String;
    /// One operand.
    fn unary(&self, op: UnaryOp, dtype: DType, a: &str) -> String;
    /// Two operands.
    fn binary(&self, op: BinaryOp, dtype: DType, a: &str, b: &str) -> String;
    /// A comparison.
    fn compare(&self, op: CompareOp, a: &str, b: &str) -> String;
    /// `condition ? a : b`.
    fn select(&self, condition: &str, a: &str, b: &str) -> String;
    /// Conversion.
    fn cast(&self, from: DType, to: DType, a: &str) -> String;
    /// The same bits.
    fn bitcast(&self, from: DType, to: DType, a: &str) -> String;
    /// `a · b + c`, rounded once.
    fn fma(&self, dtype: DType, operands: [&str; 3]) -> String;
    /// The high half of a product of `u32`.
    fn mul_high(&self, a: &str, b: &str) -> String;
    /// Another lane's value.
    fn shuffle(&self, kind: Shuffle, dtype: DType, value: &str, lane: &str) -> String;
    /// A statement that changes an element of memory.
    fn atomic(&self, op: AtomicOp, dtype: DType, memory: &str, index: &str, value: &str) -> String;
    /// A statement that waits for the block.
    fn barrier(&self) -> &'static str;
    /// A variable that is set once.
    fn let_(&self, dtype: DType, name: &str, value: &str) -> String;
    /// A variable that changes.
    fn var(&self, dtype: DType, name: &str, value: &str) -> String;
    /// The head of a counting loop, up to its brace.
    fn for_(&self, dtype: DType, counter: &str, bounds: [&str; 3]) -> String;
    /// One element of memory, to read.
    fn load(&self, dtype: DType, memory: &str, index: &str) -> String;
    /// A statement that writes one element.
    fn store(&self, dtype: DType, memory: &str, index: &str, value: &str) -> String;
    /// Statements that load `lanes` elements where `mask` holds, and the expressions for them; `name` is free to use.
    fn load_vector(&self, dtype: DType, lanes: usize, at: Place<'_>, name: &str) -> (String, Vec<String>);
    /// A statement that stores elements side by side.
    fn store_vector(&self, dtype: DType, at: Place<'_>, values: &[String], name: &str) -> String;
    /// The whole source around a body.
    fn wrap(&self, function: &Function, body: &str) -> String;
}

/// Where a vector lies.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The memory's name.
    pub memory: &'a str,
    /// The first element.
    pub index: &'a str,
    /// Which threads take part.
    pub mask: Option<&'a str>,
}

/// The source of `function`; its entry point bears the function's name.
///
/// ```
/// use fornax_kernel::{emit, ir::Function};
/// let text = "kernel f threads 32 (p0: write u32) {\n  v0: u32 = thread\n  store p0 v0, v0\n}\n";
/// let source = emit::emit(&Function::parse(text)?, &emit::Cuda);
/// assert!(source.contains("p0[(unsigned int)threadIdx.x] = (unsigned int)threadIdx.x;"), "{source}");
/// # Ok::<(), fornax_kernel::ir::ParseError>(())
/// ```
pub fn emit(function: &Function, dialect: &dyn Dialect) -> String {
    let mut emitter =
        Emitter { function, dialect, names: vec![String::new(); function.types.len()], text: String::new(), depth: 1 };
    emitter.region(&function.body, &[]);
    dialect.wrap(function, &emitter.text)
}

struct Emitter<'a> {
    function: &'a Function,
    dialect: &'a dyn Dialect,
    /// The expression for each value.
    names: Vec<String>,
    text: String,
    depth: usize,
}

impl Emitter<'_> {
    fn name(&self, value: Val) -> &str {
        &self.names[value.idx()]
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{:1$}{line}", "", 2 * self.depth).expect("strings take all text");
    }

    /// Defines a value by an expression.
    fn define(&mut self, value: Val, expression: &str) {
        let name = value.to_string();
        self.line(&self.dialect.let_(self.function.dtype(value), &name, expression));
        self.names[value.idx()] = name;
    }

    /// A variable for a value that is set in regions.
    fn declare(&mut self, value: Val, start: &str) {
        let name = value.to_string();
        self.line(&self.dialect.var(self.function.dtype(value), &name, start));
        self.names[value.idx()] = name;
    }

    /// The statements of a region, and its yields assigned to `targets`.
    fn region(&mut self, region: &Region, targets: &[Val]) {
        region.stmts.iter().for_each(|stmt| self.stmt(stmt));
        let yields: Vec<String> = region.yields.iter().map(|&value| self.name(value).to_string()).collect();
        let targets: Vec<String> = targets.iter().map(|&value| self.name(value).to_string()).collect();
        // Carried values that swap places need their old values until all are read.
        let mixed = yields.iter().enumerate().any(|(i, value)| targets[..i].contains(value));
        let mut sources = yields;
        if mixed {
            for (i, source) in sources.iter_mut().enumerate() {
                let (dtype, name) = (self.function.dtype(region.yields[i]), format!("{}_next", targets[i]));
                let line = self.dialect.let_(dtype, &name, source);
                self.line(&line);
                *source = name;
            }
        }
        for (target, source) in targets.iter().zip(&sources).filter(|(target, source)| target != source) {
            self.line(&format!("{target} = {source};"));
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let (function, dialect) = (self.function, self.dialect);
        let dtype = |value: Val| function.dtype(value);
        let result = stmt.results.first().copied();
        let named = |value: Val| self.name(value);
        let expression = match &stmt.inst {
            Inst::Const(bits) => {
                let result = stmt.results[0];
                self.names[result.idx()] = dialect.literal(dtype(result), *bits);
                return;
            }
            Inst::Param(param) => {
                self.names[stmt.results[0].idx()] = format!("p{param}");
                return;
            }
            Inst::Special(special) => {
                self.names[stmt.results[0].idx()] = dialect.special(*special);
                return;
            }
            Inst::Unary(op, a) => dialect.unary(*op, dtype(*a), named(*a)),
            Inst::Binary(op, a, b) => dialect.binary(*op, dtype(*a), named(*a), named(*b)),
            Inst::Compare(op, a, b) => dialect.compare(*op, named(*a), named(*b)),
            Inst::Select(c, a, b) => dialect.select(named(*c), named(*a), named(*b)),
            Inst::Cast(a) => dialect.cast(dtype(*a), dtype(stmt.results[0]), named(*a)),
            Inst::Bitcast(a) => dialect.bitcast(dtype(*a), dtype(stmt.results[0]), named(*a)),
            Inst::Fma(a, b, c) => dialect.fma(dtype(*a), [named(*a), named(*b), named(*c)]),
            Inst::MulHigh(a, b) => dialect.mul_high(named(*a), named(*b)),
            Inst::Shuffle { kind, value, lane } => dialect.shuffle(*kind, dtype(*value), named(*value), named(*lane)),
            Inst::Load { memory, index, mask } => {
                let (memory, index) = (memory.to_string(), self.name(*index).to_string());
                let mask = mask.map(|mask| self.name(mask).to_string());
                self.load(&stmt.results, &memory, &index, mask.as_deref());
                return;
            }
            Inst::Store { memory, index, values, mask } => {
                let element = dtype(values[0]);
                let (memory, index) = (memory.to_string(), self.name(*index).to_string());
                let expressions: Vec<String> = values.iter().map(|&value| self.name(value).to_string()).collect();
                let mask = mask.map(|mask| self.name(mask).to_string());
                let place = Place { memory: &memory, index: &index, mask: None };
                let line = match &expressions[..] {
                    [value] => dialect.store(element, &memory, &index, value),
                    _ => dialect.store_vector(element, place, &expressions, &format!("t{}", self.text.len())),
                };
                self.masked(mask.as_deref(), &line);
                return;
            }
            Inst::Atomic { op, memory, index, value, mask } => {
                let line =
                    dialect.atomic(*op, dtype(*value), &memory.to_string(), self.name(*index), self.name(*value));
                let mask = mask.map(|mask| self.name(mask).to_string());
                self.masked(mask.as_deref(), &line);
                return;
            }
            Inst::Barrier => {
                self.line(dialect.barrier());
                return;
            }
            Inst::If { condition, then, otherwise } => {
                for &result in &stmt.results {
                    self.declare(result, &dialect.literal(dtype(result), 0));
                }
                self.line(&format!("if ({}) {{", self.name(*condition)));
                self.inner(then, &stmt.results);
                if !otherwise.stmts.is_empty() || !otherwise.yields.is_empty() {
                    self.line("} else {");
                    self.inner(otherwise, &stmt.results);
                }
                self.line("}");
                return;
            }
            Inst::For { start, end, step, init, body } => {
                for (i, (&result, &init)) in stmt.results.iter().zip(init).enumerate() {
                    let init = self.name(init).to_string();
                    self.declare(result, &init);
                    self.names[body.args[1 + i].idx()] = result.to_string();
                }
                let counter = body.args[0];
                self.names[counter.idx()] = counter.to_string();
                let bounds = [self.name(*start), self.name(*end), self.name(*step)];
                let head = dialect.for_(dtype(counter), self.name(counter), bounds);
                self.line(&head);
                self.inner(body, &stmt.results);
                self.line("}");
                return;
            }
        };
        self.define(result.expect("it has one result"), &expression);
    }

    fn inner(&mut self, region: &Region, targets: &[Val]) {
        self.depth += 1;
        self.region(region, targets);
        self.depth -= 1;
    }

    fn masked(&mut self, mask: Option<&str>, line: &str) {
        match mask {
            Some(mask) => self.line(&format!("if ({mask}) {{ {line} }}")),
            None => self.line(line),
        }
    }

    fn load(&mut self, results: &[Val], memory: &str, index: &str, mask: Option<&str>) {
        let dialect = self.dialect;
        let dtype = self.function.dtype(results[0]);
        match (results, mask) {
            ([result], None) => self.define(*result, &dialect.load(dtype, memory, index)),
            ([result], Some(mask)) => {
                self.declare(*result, &dialect.literal(dtype, 0));
                self.line(&format!("if ({mask}) {{ {result} = {}; }}", dialect.load(dtype, memory, index)));
            }
            _ => {
                let name = results[0].to_string();
                let place = Place { memory, index, mask };
                let (lines, elements) = dialect.load_vector(dtype, results.len(), place, &name);
                lines.lines().for_each(|line| self.line(line));
                for (&result, element) in results.iter().zip(elements) {
                    self.names[result.idx()] = element;
                }
            }
        }
    }
}
