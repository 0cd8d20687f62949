//! The text form of functions. [`Function::parse`] reads it back.

use super::{AtomicOp, Function, Inst, Memory, Mode, Param, Region, Shuffle, Special, Stmt, Val};
use fornax_ir::DType;
use std::fmt;

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Param(param) => write!(f, "p{param}"),
            Memory::Shared(array) => write!(f, "s{array}"),
        }
    }
}

impl Mode {
    /// How text spells it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Write => "write",
            Mode::ReadWrite => "change",
        }
    }
}

impl Shuffle {
    /// How text spells it.
    pub fn name(self) -> &'static str {
        match self {
            Shuffle::Xor => "xor",
            Shuffle::Up => "up",
            Shuffle::Lane => "lane",
        }
    }
}

impl AtomicOp {
    /// How text spells it.
    pub fn name(self) -> &'static str {
        match self {
            AtomicOp::Add => "add",
            AtomicOp::Max => "maximum",
            AtomicOp::Min => "minimum",
        }
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Special::Thread => f.write_str("thread"),
            Special::Lane => f.write_str("lane"),
            Special::Block(dim) => write!(f, "block.{dim}"),
            Special::Grid(dim) => write!(f, "grid.{dim}"),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {} threads {} (", self.name, self.threads)?;
        for (i, param) in self.params.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match param {
                Param::Buffer { dtype, mode } => write!(f, "p{i}: {} {dtype}", mode.name())?,
                Param::Scalar(dtype) => write!(f, "p{i}: {dtype}")?,
            }
        }
        writeln!(f, ") {{")?;
        for (i, array) in self.shared.iter().enumerate() {
            writeln!(f, "  shared s{i}: {} {}", array.dtype, array.len)?;
        }
        write_stmts(f, self, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, values: &[Val]) -> fmt::Result {
    for (i, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn write_stmts(f: &mut fmt::Formatter<'_>, function: &Function, region: &Region, depth: usize) -> fmt::Result {
    for stmt in &region.stmts {
        write_stmt(f, function, stmt, depth)?;
    }
    if !region.yields.is_empty() {
        write!(f, "{:1$}yield ", "", 2 * depth)?;
        write_list(f, &region.yields)?;
        writeln!(f)?;
    }
    Ok(())
}

fn write_mask(f: &mut fmt::Formatter<'_>, mask: Option<Val>) -> fmt::Result {
    match mask {
        Some(mask) => write!(f, " when {mask}"),
        None => Ok(()),
    }
}

fn write_constant(f: &mut fmt::Formatter<'_>, dtype: DType, bits: u64) -> fmt::Result {
    if dtype.is_float() {
        write!(f, "const {bits:#x}")
    } else {
        write!(f, "const {}", fornax_ir::bits::to_int(dtype, bits))
    }
}

fn write_stmt(f: &mut fmt::Formatter<'_>, function: &Function, stmt: &Stmt, depth: usize) -> fmt::Result {
    let indent = 2 * depth;
    write!(f, "{:indent$}", "")?;
    for (i, &result) in stmt.results.iter().enumerate() {
        write!(f, "{}{result}: {}", if i == 0 { "" } else { ", " }, function.dtype(result))?;
    }
    if !stmt.results.is_empty() {
        f.write_str(" = ")?;
    }
    match &stmt.inst {
        Inst::Const(bits) => write_constant(f, function.dtype(stmt.results[0]), *bits)?,
        Inst::Param(param) => write!(f, "p{param}")?,
        Inst::Special(special) => write!(f, "{special}")?,
        Inst::Unary(op, a) => write!(f, "{} {a}", op.name())?,
        Inst::Binary(op, a, b) => write!(f, "{} {a}, {b}", op.name())?,
        Inst::Compare(op, a, b) => write!(f, "{} {a}, {b}", op.name())?,
        Inst::Select(c, a, b) => write!(f, "select {c}, {a}, {b}")?,
        Inst::Cast(a) => write!(f, "cast {a}")?,
        Inst::Bitcast(a) => write!(f, "bitcast {a}")?,
        Inst::Fma(a, b, c) => write!(f, "fma {a}, {b}, {c}")?,
        Inst::MulHigh(a, b) => write!(f, "mul_high {a}, {b}")?,
        Inst::Load { memory, index, mask } => {
            write!(f, "load {memory} {index}")?;
            write_mask(f, *mask)?;
        }
        Inst::Store { memory, index, values, mask } => {
            write!(f, "store {memory} {index}, ")?;
            write_list(f, values)?;
            write_mask(f, *mask)?;
        }
        Inst::Atomic { op, memory, index, value, mask } => {
            write!(f, "atomic {} {memory} {index}, {value}", op.name())?;
            write_mask(f, *mask)?;
        }
        Inst::Shuffle { kind, value, lane } => write!(f, "shuffle {} {value}, {lane}", kind.name())?,
        Inst::Barrier => f.write_str("barrier")?,
        Inst::If { condition, then, otherwise } => {
            writeln!(f, "if {condition} {{")?;
            write_stmts(f, function, then, depth + 1)?;
            if !otherwise.stmts.is_empty() || !otherwise.yields.is_empty() {
                writeln!(f, "{:indent$}}} else {{", "")?;
                write_stmts(f, function, otherwise, depth + 1)?;
            }
            write!(f, "{:indent$}}}", "")?;
        }
        Inst::For { start, end, step, init, body } => {
            let counter = body.args[0];
            write!(f, "for {counter}: {} in {start}, {end}, {step}", function.dtype(counter))?;
            for (i, (arg, init)) in body.args[1..].iter().zip(init).enumerate() {
                write!(f, "{} {arg}: {} = {init}", if i == 0 { " with" } else { "," }, function.dtype(*arg))?;
            }
            writeln!(f, " {{")?;
            write_stmts(f, function, body, depth + 1)?;
            write!(f, "{:indent$}}}", "")?;
        }
    }
    writeln!(f)
}
