//! [`Function::parse`]: functions from their text form.

use super::{AtomicOp, Function, Inst, Memory, Mode, Param, Region, SharedArray, Shuffle, Special, Stmt, Val, Vals};
use fornax_ir::{BinaryOp, CompareOp, DType, UnaryOp, bits};
use std::fmt;

/// Text that is no function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    line: usize,
    message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Regions in regions beyond which text is refused, so that none can exhaust the stack.
const MAX_DEPTH: usize = 64;

type Parsed<T> = Result<T, ParseError>;

impl Function {
    /// Reads the text that a function prints as.
    ///
    /// # Errors
    /// If it is not of that form; [`Function::verify`] checks the rest.
    ///
    /// ```
    /// use fornax_kernel::ir::Function;
    /// let text = "kernel f threads 32 (p0: write u32) {\n  v0: u32 = thread\n  store p0 v0, v0\n}\n";
    /// let function = Function::parse(text)?;
    /// assert_eq!((function.verify(), function.to_string()), (Ok(()), text.to_string()));
    /// # Ok::<(), fornax_kernel::ir::ParseError>(())
    /// ```
    pub fn parse(text: &str) -> Parsed<Function> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, types: Vec::new(), max: text.len() };
        let function = parser.function()?;
        match parser.tokens.get(parser.next) {
            None => Ok(function),
            Some(_) => parser.fail("there is more after the kernel"),
        }
    }
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

fn tokens(text: &str) -> Parsed<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            let len = match first {
                '{' | '}' | '(' | ')' | ',' | ':' | '=' => 1,
                _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                _ => return Err(ParseError { line: number + 1, message: format!("unexpected {first:?}") }),
            };
            let (text, after) = rest.split_at(len);
            tokens.push(Token { text, line: number + 1 });
            rest = after.trim_start();
        }
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    types: Vec<Option<DType>>,
    /// More values than bytes of text there cannot be.
    max: usize,
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        let at = self.next.min(self.tokens.len().saturating_sub(1));
        let line = self.tokens.get(at).map_or(1, |token| token.line);
        Err(ParseError { line, message: message.into() })
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.next).map_or("", |token| token.text)
    }

    fn take(&mut self) -> &'a str {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, word: &str) -> Parsed<()> {
        if self.accept(word) { Ok(()) } else { self.fail(format!("expected {word:?}, found {:?}", self.peek())) }
    }

    /// The next word, as `read` understands it.
    fn read<T>(&mut self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Parsed<T> {
        match read(self.peek()) {
            Some(value) => {
                self.next += 1;
                Ok(value)
            }
            None => self.fail(format!("expected {what}, found {:?}", self.peek())),
        }
    }

    fn number(&mut self) -> Parsed<u32> {
        self.read("a number", |word| word.parse().ok())
    }

    fn dtype(&mut self) -> Parsed<DType> {
        self.read("a dtype", DType::from_name)
    }

    fn value(&mut self) -> Parsed<Val> {
        let max = self.max;
        let number = |word: &str| word.strip_prefix('v')?.parse().ok().filter(|&number: &u32| (number as usize) < max);
        Ok(Val(self.read("a value", number)?))
    }

    fn values(&mut self) -> Parsed<Vals> {
        let mut values = Vals::from_slice(&[self.value()?]);
        while self.accept(",") {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// `v3: f32`.
    fn definition(&mut self) -> Parsed<Val> {
        let value = self.value()?;
        self.expect(":")?;
        let dtype = self.dtype()?;
        if self.types.len() <= value.idx() {
            self.types.resize(value.idx() + 1, None);
        }
        self.types[value.idx()] = Some(dtype);
        Ok(value)
    }

    fn memory(&mut self) -> Parsed<Memory> {
        self.read("memory", |word| {
            let number = word.get(1..)?.parse().ok()?;
            match word.as_bytes()[0] {
                b'p' => Some(Memory::Param(number)),
                b's' => Some(Memory::Shared(number)),
                _ => None,
            }
        })
    }

    fn mask(&mut self) -> Parsed<Option<Val>> {
        if self.accept("when") { self.value().map(Some) } else { Ok(None) }
    }

    fn function(&mut self) -> Parsed<Function> {
        self.expect("kernel")?;
        let name = self.take().to_string();
        self.expect("threads")?;
        let threads = self.number()?;
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.accept(")") {
            if !params.is_empty() {
                self.expect(",")?;
            }
            self.expect(&format!("p{}", params.len()))?;
            self.expect(":")?;
            let modes = [Mode::Read, Mode::Write, Mode::ReadWrite];
            params.push(match modes.into_iter().find(|mode| self.accept(mode.name())) {
                Some(mode) => Param::Buffer { dtype: self.dtype()?, mode },
                None => Param::Scalar(self.dtype()?),
            });
        }
        self.expect("{")?;
        let mut shared = Vec::new();
        while self.accept("shared") {
            self.expect(&format!("s{}", shared.len()))?;
            self.expect(":")?;
            shared.push(SharedArray { dtype: self.dtype()?, len: self.number()? });
        }
        let body = self.region(Vals::new(), 0)?;
        let Some(types) = self.types.iter().copied().collect::<Option<Vec<_>>>() else {
            return self.fail("a value between others is not defined");
        };
        Ok(Function { name, threads, params, shared, types, body })
    }

    /// Statements up to the closing brace.
    fn region(&mut self, args: Vals, depth: usize) -> Parsed<Region> {
        if depth > MAX_DEPTH {
            return self.fail("regions are nested too deep");
        }
        let mut region = Region { args, ..Region::default() };
        while !self.accept("}") {
            if self.accept("yield") {
                region.yields = self.values()?;
                self.expect("}")?;
                break;
            }
            let mut results = Vals::new();
            let starts_with_value = self.peek().strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
            if starts_with_value {
                results.push(self.definition()?);
                while self.accept(",") {
                    results.push(self.definition()?);
                }
                self.expect("=")?;
            }
            let inst = self.inst(&results, depth)?;
            region.stmts.push(Stmt { results, inst });
        }
        Ok(region)
    }

    fn inst(&mut self, results: &[Val], depth: usize) -> Parsed<Inst> {
        let word = self.take();
        let dtype = results.first().and_then(|result| self.types[result.idx()]);
        if let Some(op) = UnaryOp::ALL.iter().copied().find(|op| op.name() == word) {
            return Ok(Inst::Unary(op, self.value()?));
        }
        if let Some(op) = BinaryOp::ALL.iter().copied().find(|op| op.name() == word) {
            let (a, b) = self.two()?;
            return Ok(Inst::Binary(op, a, b));
        }
        if let Some(op) = CompareOp::ALL.iter().copied().find(|op| op.name() == word) {
            let (a, b) = self.two()?;
            return Ok(Inst::Compare(op, a, b));
        }
        Ok(match word {
            "const" => {
                let Some(dtype) = dtype else { return self.fail("a constant has a result") };
                let parse = |word: &str| match word.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16).ok(),
                    None => Some(bits::from_int(dtype, word.parse::<i128>().ok()?)),
                };
                Inst::Const(self.read("a constant", parse)?)
            }
            "thread" => Inst::Special(Special::Thread),
            "lane" => Inst::Special(Special::Lane),
            "select" | "fma" => {
                let (a, b) = self.two()?;
                self.expect(",")?;
                let c = self.value()?;
                if word == "fma" { Inst::Fma(a, b, c) } else { Inst::Select(a, b, c) }
            }
            "cast" => Inst::Cast(self.value()?),
            "bitcast" => Inst::Bitcast(self.value()?),
            "mul_high" => {
                let (a, b) = self.two()?;
                Inst::MulHigh(a, b)
            }
            "load" => Inst::Load { memory: self.memory()?, index: self.value()?, mask: self.mask()? },
            "store" => {
                let (memory, index) = (self.memory()?, self.value()?);
                self.expect(",")?;
                Inst::Store { memory, index, values: self.values()?, mask: self.mask()? }
            }
            "atomic" => {
                let ops = [AtomicOp::Add, AtomicOp::Max, AtomicOp::Min];
                let op = self.read("an atomic op", |word| ops.into_iter().find(|op| op.name() == word))?;
                let (memory, index) = (self.memory()?, self.value()?);
                self.expect(",")?;
                Inst::Atomic { op, memory, index, value: self.value()?, mask: self.mask()? }
            }
            "shuffle" => {
                let kinds = [Shuffle::Xor, Shuffle::Up, Shuffle::Lane];
                let kind = self.read("a kind of shuffle", |word| kinds.into_iter().find(|kind| kind.name() == word))?;
                let (value, lane) = self.two()?;
                Inst::Shuffle { kind, value, lane }
            }
            "barrier" => Inst::Barrier,
            "if" => {
                let condition = self.value()?;
                self.expect("{")?;
                let then = self.region(Vals::new(), depth + 1)?;
                let otherwise = match self.accept("else") {
                    true => {
                        self.expect("{")?;
                        self.region(Vals::new(), depth + 1)?
                    }
                    false => Region::default(),
                };
                Inst::If { condition, then, otherwise }
            }
            "for" => {
                let mut args = Vals::from_slice(&[self.definition()?]);
                self.expect("in")?;
                let (start, end) = self.two()?;
                self.expect(",")?;
                let step = self.value()?;
                let mut init = Vals::new();
                if self.accept("with") {
                    loop {
                        args.push(self.definition()?);
                        self.expect("=")?;
                        init.push(self.value()?);
                        if !self.accept(",") {
                            break;
                        }
                    }
                }
                self.expect("{")?;
                Inst::For { start, end, step, init, body: self.region(args, depth + 1)? }
            }
            _ => match word.split_at_checked(1) {
                Some(("p", number)) if number.parse::<u32>().is_ok() => Inst::Param(number.parse().expect("it was")),
                _ => {
                    let dim = |prefix: &str| word.strip_prefix(prefix).and_then(|dim| dim.parse().ok());
                    match (dim("block."), dim("grid.")) {
                        (Some(dim), _) => Inst::Special(Special::Block(dim)),
                        (_, Some(dim)) => Inst::Special(Special::Grid(dim)),
                        _ => {
                            self.next -= 1;
                            return self.fail(format!("there is no instruction {word:?}"));
                        }
                    }
                }
            },
        })
    }

    fn two(&mut self) -> Parsed<(Val, Val)> {
        let a = self.value()?;
        self.expect(",")?;
        Ok((a, self.value()?))
    }
}
