//! The rules of functions: values are defined once and before their uses, dtypes fit, memory exists, and barriers and
//! shuffles stand where all threads come by.

use super::{AtomicOp, Function, Inst, Memory, Mode, Param, Region, Special, Stmt, Val, WARP};
use fornax_ir::{BinaryOp, DType, DTypeKind, UnaryOp};
use std::fmt;

/// A broken rule, with the statement that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError(String);

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for VerifyError {}

type Check = Result<(), String>;

impl Function {
    /// Checks every rule of the IR.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let mut verifier = Verifier {
            function: self,
            seen: vec![false; self.types.len()],
            visible: vec![false; self.types.len()],
            uniform: vec![false; self.types.len()],
        };
        let mut all = || {
            if self.threads == 0 || !self.threads.is_multiple_of(WARP) || self.threads > 1024 {
                return Err(format!("{} threads are no multiple of {WARP} up to 1024", self.threads));
            }
            verifier.region(&self.body, &[], true)?;
            rule(self.body.yields.is_empty(), "a function yields nothing")
        };
        all().map_err(|message| VerifyError(format!("kernel {}: {message}", self.name)))
    }
}

fn rule(holds: bool, message: &str) -> Check {
    if holds { Ok(()) } else { Err(message.to_string()) }
}

struct Verifier<'a> {
    function: &'a Function,
    /// Defined somewhere before.
    seen: Vec<bool>,
    /// Defined here or in a region around.
    visible: Vec<bool>,
    /// The same in all threads of a block, as far as one can tell.
    uniform: Vec<bool>,
}

impl Verifier<'_> {
    fn define(&mut self, value: Val, uniform: bool) -> Check {
        let Some(seen) = self.seen.get_mut(value.idx()) else { return Err(format!("{value} has no dtype")) };
        if std::mem::replace(seen, true) {
            return Err(format!("{value} is defined twice"));
        }
        self.visible[value.idx()] = true;
        self.uniform[value.idx()] = uniform;
        Ok(())
    }

    fn use_(&self, value: Val) -> Check {
        match self.visible.get(value.idx()) {
            Some(true) => Ok(()),
            _ => Err(format!("{value} is not defined here")),
        }
    }

    /// `together`: all threads of the block come by.
    fn region(&mut self, region: &Region, args: &[bool], together: bool) -> Check {
        if region.args.len() != args.len() {
            return Err(format!("a region has {} arguments, not {}", region.args.len(), args.len()));
        }
        for (&arg, &uniform) in region.args.iter().zip(args) {
            self.define(arg, uniform)?;
        }
        for stmt in &region.stmts {
            self.stmt(stmt, together).map_err(|message| {
                let names: Vec<String> = stmt.results.iter().map(Val::to_string).collect();
                if names.is_empty() { message } else { format!("{}: {message}", names.join(", ")) }
            })?;
        }
        region.yields.iter().try_for_each(|&value| self.use_(value))
    }

    /// Ends the sight of what a region defined.
    fn close(&mut self, region: &Region) {
        let results = region.stmts.iter().flat_map(|stmt| &stmt.results);
        region.args.iter().chain(results).for_each(|value| self.visible[value.idx()] = false);
    }

    fn stmt(&mut self, stmt: &Stmt, together: bool) -> Check {
        let operands = stmt.inst.operands();
        operands.iter().try_for_each(|&operand| self.use_(operand))?;
        for &result in &stmt.results {
            rule(result.idx() < self.function.types.len(), "a result has no dtype")?;
        }
        let results: Vec<DType> = stmt.results.iter().map(|&result| self.function.dtype(result)).collect();
        self.types(&stmt.inst, &results)?;
        let mut uniform = operands.iter().all(|operand| self.uniform[operand.idx()]);
        match &stmt.inst {
            Inst::Special(Special::Thread | Special::Lane) | Inst::Shuffle { .. } => uniform = false,
            Inst::If { condition, then, otherwise } => {
                let together = together && self.uniform[condition.idx()];
                for region in [then, otherwise] {
                    self.region(region, &[], together)?;
                    uniform &= region.yields.iter().all(|value| self.uniform[value.idx()]);
                    self.close(region);
                }
            }
            Inst::For { start, end, step, init, body } => {
                let counter = [start, end, step].iter().all(|value| self.uniform[value.idx()]);
                let mut args = vec![counter];
                let stable = counter && self.stays_uniform(body, init);
                args.resize(1 + init.len(), stable);
                self.region(body, &args, together && counter)?;
                uniform = stable;
                self.close(body);
            }
            // What was loaded from shared memory or a buffer by one index is one value.
            Inst::Load { .. } => {}
            Inst::Barrier => rule(together, "a barrier stands where not all threads of a block come by")?,
            _ => {}
        }
        stmt.results.iter().try_for_each(|&result| self.define(result, uniform))
    }

    /// Whether the carried values of a loop are the same in all threads: they start so and are yielded so.
    fn stays_uniform(&self, body: &Region, init: &[Val]) -> bool {
        if !init.iter().all(|value| self.uniform[value.idx()]) {
            return false;
        }
        let mut trial = Verifier {
            function: self.function,
            seen: self.seen.clone(),
            visible: self.visible.clone(),
            uniform: self.uniform.clone(),
        };
        trial.region(body, &vec![true; body.args.len()], true).is_ok()
            && body.yields.iter().all(|value| trial.uniform[value.idx()])
    }

    fn types(&self, inst: &Inst, results: &[DType]) -> Check {
        let function = self.function;
        let of = |value: Val| function.dtype(value);
        let one = || match results {
            [dtype] => Ok(*dtype),
            _ => Err(format!("{} results in place of one", results.len())),
        };
        let index = |value: Val| {
            rule(matches!(of(value), DType::I32 | DType::U32 | DType::I64 | DType::U64), "an index is an integer")
        };
        let condition =
            |value: Option<Val>| rule(value.is_none_or(|value| of(value) == DType::Bool), "a mask is a bool");
        let element = |memory: Memory, mode: Mode| {
            if let Memory::Param(param) = memory
                && let Some(Param::Buffer { mode: declared, .. }) = function.params.get(param as usize)
            {
                rule(*declared == Mode::ReadWrite || *declared == mode, "the buffer is not for that")?;
            }
            function.memory(memory).ok_or_else(|| format!("there is no memory {memory}"))
        };
        let lanes = |dtype: DType, lanes: usize| {
            rule(
                [1, 2, 4, 8, 16].contains(&lanes) && lanes * dtype.size() <= 16,
                "1, 2, 4, 8 or 16 elements of 16 bytes",
            )
        };
        match inst {
            Inst::Const(bits) => {
                let dtype = one()?;
                let max = if dtype == DType::Bool { 1 } else { fornax_ir::bits::mask(dtype) };
                rule(*bits <= max, "a constant has bits that its dtype has no place for")
            }
            Inst::Param(param) => {
                let dtype = one()?;
                rule(function.params.get(*param as usize) == Some(&Param::Scalar(dtype)), "no such scalar parameter")
            }
            Inst::Special(special) => {
                let dim = match special {
                    Special::Block(dim) | Special::Grid(dim) => *dim,
                    Special::Thread | Special::Lane => 0,
                };
                rule(one()? == DType::U32 && dim < 3, "a place is u32, a grid has 3 dims")
            }
            Inst::Unary(op, a) => {
                rule(one()? == of(*a), "the result is of the operand's dtype")?;
                rule(unary_takes(*op, of(*a)), &format!("{} does not take {}", op.name(), of(*a)))
            }
            Inst::Binary(op, a, b) => {
                rule(one()? == of(*a) && of(*a) == of(*b), "operands and result are of one dtype")?;
                rule(binary_takes(*op, of(*a)), &format!("{} does not take {}", op.name(), of(*a)))
            }
            Inst::Compare(_, a, b) => {
                rule(of(*a) == of(*b) && !is_half(of(*a)), "operands are of one dtype, no halves")?;
                rule(one()? == DType::Bool, "a comparison gives bool")
            }
            Inst::Select(c, a, b) => {
                rule(of(*c) == DType::Bool && one()? == of(*a) && of(*a) == of(*b), "bool, and values of one dtype")
            }
            Inst::Cast(_) => one().map(|_| ()),
            Inst::Bitcast(a) => rule(one()?.size() == of(*a).size(), "other bits need other sizes"),
            Inst::Fma(a, b, c) => {
                let dtype = one()?;
                rule(matches!(dtype, DType::F32 | DType::F64), "fma is for f32 and f64")?;
                rule([a, b, c].iter().all(|value| of(**value) == dtype), "operands and result are of one dtype")
            }
            Inst::MulHigh(a, b) => {
                rule(one()? == DType::U32 && of(*a) == DType::U32 && of(*b) == DType::U32, "mul_high is for u32")
            }
            Inst::Load { memory, index: at, mask } => {
                let dtype = element(*memory, Mode::Read)?;
                index(*at)?;
                condition(*mask)?;
                lanes(dtype, results.len())?;
                rule(results.iter().all(|result| *result == dtype), "results are of the memory's dtype")
            }
            Inst::Store { memory, index: at, values, mask } => {
                let dtype = element(*memory, Mode::Write)?;
                index(*at)?;
                condition(*mask)?;
                lanes(dtype, values.len())?;
                rule(
                    results.is_empty() && values.iter().all(|value| of(*value) == dtype),
                    "values are of the memory's dtype",
                )
            }
            Inst::Atomic { op, memory, index: at, value, mask } => {
                let dtype = element(*memory, Mode::ReadWrite)?;
                index(*at)?;
                condition(*mask)?;
                rule(results.is_empty() && of(*value) == dtype, "the value is of the memory's dtype")?;
                let wide = dtype.size() >= 4 && (dtype.is_int() || *op == AtomicOp::Add);
                rule(wide, &format!("atomic {} does not take {dtype}", op.name()))
            }
            Inst::Shuffle { value, lane, .. } => rule(
                one()? == of(*value) && of(*lane) == DType::U32,
                "the result is of the value's dtype, lanes are u32",
            ),
            Inst::Barrier => rule(results.is_empty(), "a barrier gives nothing"),
            Inst::If { condition: c, then, otherwise } => {
                condition(Some(*c))?;
                for region in [then, otherwise] {
                    let yields: Vec<DType> = region.yields.iter().map(|&value| of(value)).collect();
                    rule(yields == results, "both regions yield the dtypes of the results")?;
                }
                Ok(())
            }
            Inst::For { start, end, step, init, body } => {
                index(*start)?;
                rule(of(*end) == of(*start) && of(*step) == of(*start), "start, end and step are of one dtype")?;
                let dtypes = |values: &[Val]| values.iter().map(|&value| of(value)).collect::<Vec<_>>();
                rule(!body.args.is_empty() && of(body.args[0]) == of(*start), "the counter is of the bounds' dtype")?;
                let carried = dtypes(&body.args[1..]);
                rule(carried == dtypes(init) && carried == dtypes(&body.yields), "carried values keep their dtypes")?;
                rule(carried == results, "carried values are the results")
            }
        }
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

fn unary_takes(op: UnaryOp, dtype: DType) -> bool {
    let kind = dtype.kind();
    !is_half(dtype)
        && match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => kind != DTypeKind::Bool,
            UnaryOp::Not => kind != DTypeKind::Float,
            UnaryOp::Recip
            | UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Expm1
            | UnaryOp::Log
            | UnaryOp::Log2
            | UnaryOp::Log1p
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tanh
            | UnaryOp::Erf
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Trunc
            | UnaryOp::Round => kind == DTypeKind::Float,
        }
}

fn binary_takes(op: BinaryOp, dtype: DType) -> bool {
    let kind = dtype.kind();
    !is_half(dtype)
        && match op {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min => true,
            BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Pow => kind != DTypeKind::Bool,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => kind != DTypeKind::Float,
            BinaryOp::Shl | BinaryOp::Shr => dtype.is_int(),
            BinaryOp::Atan2 => kind == DTypeKind::Float,
        }
}
