//! Functions on the host: all threads of a block advance together, statement by statement, and every access is checked.
//!
//! What a GPU would do silently is a [`Violation`] here: places out of bounds, misaligned vectors, reads of what nobody
//! wrote, two threads at one element without a barrier between (shared memory) or a launch between (buffers), barriers and
//! shuffles that not all threads reach. [`LockstepBackend`] runs whole graphs so.

mod backend;
mod memory;

pub use backend::LockstepBackend;
pub use memory::Buffer;

use crate::ir::{AtomicOp, Function, Inst, Memory, Param, Region, Shuffle, Special, Stmt, Val, WARP};
use fornax_ir::{BinaryOp, CompareOp, DType, bits};
use memory::{Shared, Who};
use std::fmt;

/// What a kernel must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Violation {}

/// What a parameter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The buffer of this number.
    Buffer(usize),
    /// A scalar by its bits.
    Scalar(u64),
}

/// Runs one launch: every block, one after the other.
///
/// # Errors
/// If a thread does what no thread may do; buffers are then in between.
///
/// # Panics
/// If `args` are not what the function takes.
///
/// ```
/// use fornax_kernel::ir::Function;
/// use fornax_kernel::lockstep::{Bound, Buffer, launch};
/// let function = Function::parse("kernel f threads 32 (p0: write u32) {\n v0: u32 = thread\n store p0 v0, v0\n}")?;
/// let mut buffers = [Buffer::new(31 * 4)];
/// let error = launch(&function, [1, 1, 1], &[Bound::Buffer(0)], &mut buffers).unwrap_err();
/// assert_eq!(error.to_string(), "kernel f, block 0, thread 31: store to element 31 of p0, which has 31");
/// # Ok::<(), fornax_kernel::ir::ParseError>(())
/// ```
pub fn launch(function: &Function, grid: [u32; 3], args: &[Bound], buffers: &mut [Buffer]) -> Result<(), Violation> {
    assert_eq!(args.len(), function.params.len(), "one argument for each parameter of {}", function.name);
    for (arg, param) in args.iter().zip(&function.params) {
        match (arg, param) {
            (Bound::Buffer(buffer), Param::Buffer { .. }) => buffers[*buffer].begin(),
            (Bound::Scalar(_), Param::Scalar(_)) => {}
            _ => panic!("an argument of {} is of the wrong kind", function.name),
        }
    }
    let threads = function.threads as usize;
    let mut block = Block {
        function,
        threads,
        grid,
        block: [0; 3],
        args,
        buffers,
        values: vec![0; function.types.len() * threads],
        shared: Vec::new(),
        thread: 0,
    };
    let all = vec![true; threads];
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                block.block = [x, y, z];
                block.shared = function.shared.iter().map(|array| Shared::new(array.len as usize)).collect();
                block.region(&function.body, &all).map_err(|message| {
                    let [x, y, z] = block.block;
                    let place = if (y, z) == (0, 0) { x.to_string() } else { format!("({x}, {y}, {z})") };
                    let message =
                        format!("kernel {}, block {place}, thread {}: {message}", function.name, block.thread);
                    Violation { message }
                })?;
            }
        }
    }
    Ok(())
}

type Step = Result<(), String>;

struct Block<'a> {
    function: &'a Function,
    threads: usize,
    grid: [u32; 3],
    block: [u32; 3],
    args: &'a [Bound],
    buffers: &'a mut [Buffer],
    /// Bits, by value and thread.
    values: Vec<u64>,
    shared: Vec<Shared>,
    /// The thread at hand, for messages.
    thread: usize,
}

impl Block<'_> {
    fn get(&self, value: Val, thread: usize) -> u64 {
        self.values[value.idx() * self.threads + thread]
    }

    fn set(&mut self, value: Val, thread: usize, bits: u64) {
        self.values[value.idx() * self.threads + thread] = bits;
    }

    fn region(&mut self, region: &Region, active: &[bool]) -> Step {
        region.stmts.iter().try_for_each(|stmt| self.stmt(stmt, active))
    }

    /// Copies values to others in all active threads, all at once.
    fn assign(&mut self, from: &[Val], to: &[Val], active: &[bool]) {
        for thread in (0..self.threads).filter(|&thread| active[thread]) {
            let bits: Vec<u64> = from.iter().map(|&value| self.get(value, thread)).collect();
            to.iter().zip(bits).for_each(|(&value, bits)| self.set(value, thread, bits));
        }
    }

    /// Sets the result of a statement in all active threads.
    fn each(&mut self, stmt: &Stmt, active: &[bool], compute: impl Fn(&Self, usize) -> u64) -> Step {
        for thread in (0..self.threads).filter(|&thread| active[thread]) {
            let bits = compute(self, thread);
            self.set(stmt.results[0], thread, bits);
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt, active: &[bool]) -> Step {
        let function = self.function;
        let dtype = |value: Val| function.dtype(value);
        match &stmt.inst {
            Inst::Const(bits) => self.each(stmt, active, |_, _| *bits),
            Inst::Param(param) => self.each(stmt, active, |this, _| match this.args[*param as usize] {
                Bound::Scalar(bits) => bits,
                Bound::Buffer(_) => unreachable!("parameters were checked"),
            }),
            Inst::Special(special) => self.each(stmt, active, |this, thread| {
                let number = match *special {
                    Special::Thread => thread as u32,
                    Special::Lane => thread as u32 % WARP,
                    Special::Block(dim) => this.block[dim as usize],
                    Special::Grid(dim) => this.grid[dim as usize],
                };
                number.into()
            }),
            Inst::Unary(op, a) => self.each(stmt, active, |this, t| bits::unary(*op, dtype(*a), this.get(*a, t))),
            Inst::Binary(op, a, b) => {
                let dtype = dtype(*a);
                self.each(stmt, active, |this, t| binary(*op, dtype, this.get(*a, t), this.get(*b, t)))
            }
            Inst::Compare(op, a, b) => {
                let dtype = dtype(*a);
                self.each(stmt, active, |this, t| compare(*op, dtype, this.get(*a, t), this.get(*b, t)).into())
            }
            Inst::Select(c, a, b) => {
                self.each(stmt, active, |this, t| if this.get(*c, t) != 0 { this.get(*a, t) } else { this.get(*b, t) })
            }
            Inst::Cast(a) => {
                let (from, to) = (dtype(*a), dtype(stmt.results[0]));
                self.each(stmt, active, |this, t| bits::cast(from, to, this.get(*a, t)))
            }
            Inst::Bitcast(a) => {
                let to_bool = dtype(stmt.results[0]) == DType::Bool;
                self.each(stmt, active, |this, t| if to_bool { (this.get(*a, t) != 0).into() } else { this.get(*a, t) })
            }
            Inst::Fma(a, b, c) => {
                let dtype = dtype(*a);
                self.each(stmt, active, |this, t| fma(dtype, [a, b, c].map(|value| this.get(*value, t))))
            }
            Inst::MulHigh(a, b) => self.each(stmt, active, |this, t| (this.get(*a, t) * this.get(*b, t)) >> 32),
            Inst::Load { memory, index, mask } => self.load(stmt, *memory, *index, *mask, active),
            Inst::Store { memory, index, values, mask } => self.store(*memory, *index, values, *mask, active),
            Inst::Atomic { op, memory, index, value, mask } => {
                self.atomic(*op, *memory, [*index, *value], *mask, active)
            }
            Inst::Shuffle { kind, value, lane } => self.shuffle(stmt, *kind, *value, *lane, active),
            Inst::Barrier => {
                if let Some(thread) = active.iter().position(|&active| !active) {
                    self.thread = thread;
                    return Err(String::from("does not come to a barrier that others of the block wait at"));
                }
                self.shared.iter_mut().for_each(Shared::barrier);
                Ok(())
            }
            Inst::If { condition, then, otherwise } => {
                for (region, wanted) in [(then, true), (otherwise, false)] {
                    let inside: Vec<bool> =
                        (0..self.threads).map(|t| active[t] && (self.get(*condition, t) != 0) == wanted).collect();
                    if inside.contains(&true) {
                        self.region(region, &inside)?;
                        self.assign(&region.yields, &stmt.results, &inside);
                    }
                }
                Ok(())
            }
            Inst::For { start, end, step, init, body } => {
                let counter = body.args[0];
                let dtype = dtype(counter);
                self.assign(&[*start], &[counter], active);
                self.assign(init, &body.args[1..], active);
                loop {
                    let mut inside = active.to_vec();
                    for thread in (0..self.threads).filter(|&thread| active[thread]) {
                        let [at, end, step] =
                            [counter, *end, *step].map(|value| bits::to_int(dtype, self.get(value, thread)));
                        if step <= 0 {
                            self.thread = thread;
                            return Err(format!("a loop with step {step}"));
                        }
                        inside[thread] = at < end;
                    }
                    if !inside.contains(&true) {
                        break;
                    }
                    self.region(body, &inside)?;
                    self.assign(&body.yields, &body.args[1..], &inside);
                    for thread in (0..self.threads).filter(|&thread| inside[thread]) {
                        let next = binary(BinaryOp::Add, dtype, self.get(counter, thread), self.get(*step, thread));
                        self.set(counter, thread, next);
                    }
                }
                self.assign(&body.args[1..], &stmt.results, active);
                Ok(())
            }
        }
    }

    /// The threads that take part in an access.
    fn masked(&self, mask: Option<Val>, active: &[bool]) -> Vec<usize> {
        let takes_part = |&thread: &usize| active[thread] && mask.is_none_or(|mask| self.get(mask, thread) != 0);
        (0..self.threads).filter(takes_part).collect()
    }

    /// The first element of an access of `lanes` elements, checked.
    fn place(&self, what: &str, memory: Memory, index: Val, lanes: usize, thread: usize) -> Result<usize, String> {
        let at = bits::to_int(self.function.dtype(index), self.get(index, thread));
        let size = self.function.memory(memory).expect("the function was verified").size();
        let len = match memory {
            Memory::Param(param) => self.buffer(param).map_or(0, |buffer| self.buffers[buffer].len() / size),
            Memory::Shared(array) => self.shared[array as usize].len(),
        };
        if at < 0 || at + lanes as i128 > len as i128 {
            let last = if lanes > 1 { format!("s {at} to {}", at + lanes as i128 - 1) } else { format!(" {at}") };
            return Err(format!("{what} element{last} of {memory}, which has {len}"));
        }
        if at % lanes as i128 != 0 {
            return Err(format!("{what} {lanes} elements from {at} on of {memory}, which is not aligned"));
        }
        Ok(at as usize)
    }

    fn buffer(&self, param: u32) -> Option<usize> {
        match self.args[param as usize] {
            Bound::Buffer(buffer) => Some(buffer),
            Bound::Scalar(_) => None,
        }
    }

    fn who(&self, thread: usize) -> Who {
        let [x, y, z] = self.block.map(u64::from);
        let block = (z * u64::from(self.grid[1]) + y) * u64::from(self.grid[0]) + x;
        Who(block * self.threads as u64 + thread as u64 + 1)
    }

    fn load(&mut self, stmt: &Stmt, memory: Memory, index: Val, mask: Option<Val>, active: &[bool]) -> Step {
        for thread in (0..self.threads).filter(|&thread| active[thread]) {
            stmt.results.iter().for_each(|&result| self.set(result, thread, 0));
        }
        let size = self.function.dtype(stmt.results[0]).size();
        for thread in self.masked(mask, active) {
            self.thread = thread;
            let at = self.place("load from", memory, index, stmt.results.len(), thread)?;
            for (lane, &result) in stmt.results.iter().enumerate() {
                let (who, at) = (self.who(thread), at + lane);
                let bits = match memory {
                    Memory::Param(param) => {
                        let buffer = self.buffer(param).expect("it was checked");
                        self.buffers[buffer].load(at, size, who)
                    }
                    Memory::Shared(array) => self.shared[array as usize].load(at, thread),
                };
                let bits = bits.map_err(|why| format!("load from element {at} of {memory}, {why}"))?;
                self.set(result, thread, bits);
            }
        }
        Ok(())
    }

    fn store(&mut self, memory: Memory, index: Val, values: &[Val], mask: Option<Val>, active: &[bool]) -> Step {
        let size = self.function.dtype(values[0]).size();
        for thread in self.masked(mask, active) {
            self.thread = thread;
            let at = self.place("store to", memory, index, values.len(), thread)?;
            for (lane, &value) in values.iter().enumerate() {
                let (who, at, bits) = (self.who(thread), at + lane, self.get(value, thread));
                let stored = match memory {
                    Memory::Param(param) => {
                        let buffer = self.buffer(param).expect("it was checked");
                        self.buffers[buffer].store(at, size, bits, who)
                    }
                    Memory::Shared(array) => self.shared[array as usize].store(at, bits, thread),
                };
                stored.map_err(|why| format!("store to element {at} of {memory}, {why}"))?;
            }
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        memory: Memory,
        [index, value]: [Val; 2],
        mask: Option<Val>,
        active: &[bool],
    ) -> Step {
        let dtype = self.function.dtype(value);
        let op = match op {
            AtomicOp::Add => BinaryOp::Add,
            AtomicOp::Max => BinaryOp::Max,
            AtomicOp::Min => BinaryOp::Min,
        };
        for thread in self.masked(mask, active) {
            self.thread = thread;
            let at = self.place("atomic change of", memory, index, 1, thread)?;
            let bits = self.get(value, thread);
            let change = |old: u64| binary(op, dtype, old, bits);
            let changed = match memory {
                Memory::Param(param) => {
                    let buffer = self.buffer(param).expect("it was checked");
                    self.buffers[buffer].change(at, dtype.size(), change)
                }
                Memory::Shared(array) => self.shared[array as usize].change(at, change),
            };
            changed.map_err(|why| format!("atomic change of element {at} of {memory}, {why}"))?;
        }
        Ok(())
    }

    fn shuffle(&mut self, stmt: &Stmt, kind: Shuffle, value: Val, lane: Val, active: &[bool]) -> Step {
        let width = WARP as usize;
        for first in (0..self.threads).step_by(width).filter(|&first| active[first..first + width].contains(&true)) {
            if let Some(missing) = (first..first + width).find(|&thread| !active[thread]) {
                self.thread = missing;
                return Err(String::from("does not come to a shuffle of its warp"));
            }
            let old: Vec<u64> = (first..first + width).map(|thread| self.get(value, thread)).collect();
            for (own, thread) in (first..first + width).enumerate() {
                let number = self.get(lane, thread) as usize;
                let source = match kind {
                    Shuffle::Xor => own ^ number,
                    Shuffle::Up => own.checked_sub(number).unwrap_or(own),
                    Shuffle::Lane => number,
                };
                let Some(&bits) = old.get(source) else {
                    self.thread = thread;
                    return Err(format!("a shuffle from lane {source}"));
                };
                self.set(stmt.results[0], thread, bits);
            }
        }
        Ok(())
    }
}

/// As [`bits::binary`], with a short way for the arithmetic of places.
fn binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    match op {
        BinaryOp::Add if dtype.is_int() => a.wrapping_add(b) & bits::mask(dtype),
        BinaryOp::Sub if dtype.is_int() => a.wrapping_sub(b) & bits::mask(dtype),
        BinaryOp::Mul if dtype.is_int() => a.wrapping_mul(b) & bits::mask(dtype),
        BinaryOp::Xor if dtype.is_int() => a ^ b,
        _ => bits::binary(op, dtype, a, b),
    }
}

fn compare(op: CompareOp, dtype: DType, a: u64, b: u64) -> bool {
    bits::compare(op, dtype, a, b)
}

fn fma(dtype: DType, operands: [u64; 3]) -> u64 {
    match dtype {
        DType::F32 => {
            let [a, b, c] = operands.map(|bits| f32::from_bits(bits as u32));
            libm::fmaf(a, b, c).to_bits().into()
        }
        _ => {
            let [a, b, c] = operands.map(f64::from_bits);
            libm::fma(a, b, c).to_bits()
        }
    }
}
