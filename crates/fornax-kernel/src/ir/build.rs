//! [`Builder`]: makes functions. Equal pure values are made once, constants are folded.

use super::{AtomicOp, Function, Inst, Memory, Mode, Param, Region, SharedArray, Shuffle, Special, Stmt, Val, Vals};
use fornax_ir::{BinaryOp, CompareOp, DType, UnaryOp, bits};
use std::collections::HashMap;

/// A function in the making.
///
/// ```
/// use fornax_ir::DType;
/// use fornax_kernel::ir::{Builder, Mode, Special};
/// let mut b = Builder::new("double", 64);
/// let x = b.buffer(DType::F32, Mode::ReadWrite);
/// let n = b.scalar(DType::U32);
/// let (block, thread) = (b.special(Special::Block(0)), b.special(Special::Thread));
/// let threads = b.int(DType::U32, 64);
/// let first = b.mul(block, threads);
/// let i = b.add(first, thread);
/// let inside = b.lt(i, n);
/// let value = b.load(x, i, Some(inside));
/// let value = b.add(value, value);
/// b.store(x, i, &[value], Some(inside));
/// let function = b.finish();
/// assert_eq!(function.verify(), Ok(()));
/// ```
#[derive(Debug)]
pub struct Builder {
    function: Function,
    /// Constants, parameters and the like: before all else.
    prologue: Vec<Stmt>,
    /// Regions that are open, outermost first.
    open: Vec<Vec<Stmt>>,
    /// Pure values of the open regions.
    known: Vec<HashMap<(Inst, DType), Val>>,
    constants: HashMap<Val, u64>,
}

impl Builder {
    /// An empty function, to run in blocks of `threads`.
    pub fn new(name: impl Into<String>, threads: u32) -> Builder {
        let (params, shared, types) = (Vec::new(), Vec::new(), Vec::new());
        let function = Function { name: name.into(), threads, params, shared, types, body: Region::default() };
        Builder {
            function,
            prologue: Vec::new(),
            open: vec![Vec::new()],
            known: vec![HashMap::new()],
            constants: HashMap::new(),
        }
    }

    /// The function.
    pub fn finish(mut self) -> Function {
        assert_eq!(self.open.len(), 1, "every region is closed");
        let mut stmts = self.prologue;
        stmts.append(&mut self.open[0]);
        self.function.body.stmts = stmts;
        self.function
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.function.threads
    }

    /// The next parameter, a buffer.
    pub fn buffer(&mut self, dtype: DType, mode: Mode) -> Memory {
        self.function.params.push(Param::Buffer { dtype, mode });
        Memory::Param(self.function.params.len() as u32 - 1)
    }

    /// The next parameter, a scalar.
    pub fn scalar(&mut self, dtype: DType) -> Val {
        self.function.params.push(Param::Scalar(dtype));
        self.first(Inst::Param(self.function.params.len() as u32 - 1), dtype)
    }

    /// A new shared array.
    pub fn shared(&mut self, dtype: DType, len: u32) -> Memory {
        self.function.shared.push(SharedArray { dtype, len });
        Memory::Shared(self.function.shared.len() as u32 - 1)
    }

    /// The dtype of a value.
    pub fn dtype(&self, value: Val) -> DType {
        self.function.dtype(value)
    }

    fn new_value(&mut self, dtype: DType) -> Val {
        self.function.types.push(dtype);
        Val(self.function.types.len() as u32 - 1)
    }

    /// A value of the prologue.
    fn first(&mut self, inst: Inst, dtype: DType) -> Val {
        if let Some(&value) = self.known[0].get(&(inst.clone(), dtype)) {
            return value;
        }
        let value = self.new_value(dtype);
        if let Inst::Const(bits) = inst {
            self.constants.insert(value, bits);
        }
        self.prologue.push(Stmt { results: Vals::from_slice(&[value]), inst: inst.clone() });
        self.known[0].insert((inst, dtype), value);
        value
    }

    fn push(&mut self, inst: Inst, results: &[Val]) {
        self.open.last_mut().expect("a region is open").push(Stmt { results: Vals::from_slice(results), inst });
    }

    fn pure(&mut self, inst: Inst, dtype: DType) -> Val {
        let key = (inst, dtype);
        if let Some(value) = self.known.iter().find_map(|known| known.get(&key)) {
            return *value;
        }
        let value = self.new_value(dtype);
        self.push(key.0.clone(), &[value]);
        self.known.last_mut().expect("a region is open").insert(key, value);
        value
    }

    /// A constant by its bits.
    pub fn constant(&mut self, dtype: DType, bits: u64) -> Val {
        self.first(Inst::Const(bits), dtype)
    }

    /// A constant integer (or `bool`).
    pub fn int(&mut self, dtype: DType, value: i64) -> Val {
        self.constant(dtype, bits::from_int(dtype, value.into()))
    }

    /// A constant of any dtype, rounded or wrapped as an element is.
    pub fn number(&mut self, dtype: DType, value: impl Into<fornax_ir::Scalar>) -> Val {
        self.constant(dtype, u64::from_le_bytes(value.into().to_le_bytes(dtype)) & bits::mask(dtype))
    }

    /// The bits of a constant.
    pub fn known(&self, value: Val) -> Option<u64> {
        self.constants.get(&value).copied()
    }

    /// Where the thread stands.
    pub fn special(&mut self, special: Special) -> Val {
        self.first(Inst::Special(special), DType::U32)
    }

    /// One operand.
    pub fn unary(&mut self, op: UnaryOp, a: Val) -> Val {
        let dtype = self.dtype(a);
        self.pure(Inst::Unary(op, a), dtype)
    }

    /// Two operands.
    pub fn binary(&mut self, op: BinaryOp, a: Val, b: Val) -> Val {
        let dtype = self.dtype(a);
        if dtype.is_int() {
            let (left, right) = (self.known(a), self.known(b));
            if let (Some(left), Some(right)) = (left, right) {
                return self.constant(dtype, bits::binary(op, dtype, left, right));
            }
            match (op, left, right) {
                (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) | (BinaryOp::Mul | BinaryOp::Div, _, Some(1)) => return a,
                (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => return b,
                (BinaryOp::Mul, Some(0), _) | (BinaryOp::Mul, _, Some(0)) => return self.int(dtype, 0),
                (BinaryOp::Rem, _, Some(1)) => return self.int(dtype, 0),
                _ => {}
            }
        }
        if dtype == DType::Bool && op == BinaryOp::And {
            if a == b {
                return a;
            }
            match (self.known(a), self.known(b)) {
                (Some(1), _) => return b,
                (_, Some(1)) => return a,
                _ => {}
            }
        }
        self.pure(Inst::Binary(op, a, b), dtype)
    }

    /// A comparison.
    pub fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        if let (Some(left), Some(right)) = (self.known(a), self.known(b)) {
            let holds = bits::compare(op, self.dtype(a), left, right);
            return self.int(DType::Bool, holds.into());
        }
        self.pure(Inst::Compare(op, a, b), DType::Bool)
    }

    /// `a + b`.
    pub fn add(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a − b`.
    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a · b`.
    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`.
    pub fn div(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Div, a, b)
    }

    /// The remainder of `a / b`.
    pub fn rem(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Rem, a, b)
    }

    /// The smaller.
    pub fn min(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Min, a, b)
    }

    /// Both.
    pub fn and(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::And, a, b)
    }

    /// Either.
    pub fn or(&mut self, a: Val, b: Val) -> Val {
        self.binary(BinaryOp::Or, a, b)
    }

    /// `¬a`.
    pub fn not(&mut self, a: Val) -> Val {
        self.unary(UnaryOp::Not, a)
    }

    /// `a < b`.
    pub fn lt(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Lt, a, b)
    }

    /// `a ≤ b`.
    pub fn le(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Le, a, b)
    }

    /// `a = b`.
    pub fn eq(&mut self, a: Val, b: Val) -> Val {
        self.compare(CompareOp::Eq, a, b)
    }

    /// `condition ? a : b`.
    pub fn select(&mut self, condition: Val, a: Val, b: Val) -> Val {
        match self.known(condition) {
            Some(0) => b,
            Some(_) => a,
            None if a == b => a,
            None => {
                let dtype = self.dtype(a);
                self.pure(Inst::Select(condition, a, b), dtype)
            }
        }
    }

    /// Conversion; nothing where the dtype is right already.
    pub fn cast(&mut self, a: Val, dtype: DType) -> Val {
        let from = self.dtype(a);
        match self.known(a) {
            _ if from == dtype => a,
            Some(bits) => self.constant(dtype, bits::cast(from, dtype, bits)),
            None => self.pure(Inst::Cast(a), dtype),
        }
    }

    /// The same bits.
    pub fn bitcast(&mut self, a: Val, dtype: DType) -> Val {
        if self.dtype(a) == dtype { a } else { self.pure(Inst::Bitcast(a), dtype) }
    }

    /// `a · b + c`, rounded once.
    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        let dtype = self.dtype(a);
        self.pure(Inst::Fma(a, b, c), dtype)
    }

    /// The high half of a product of `u32`.
    pub fn mul_high(&mut self, a: Val, b: Val) -> Val {
        self.pure(Inst::MulHigh(a, b), DType::U32)
    }

    fn element(&self, memory: Memory) -> DType {
        self.function.memory(memory).expect("the builder made this memory")
    }

    /// One element.
    pub fn load(&mut self, memory: Memory, index: Val, mask: Option<Val>) -> Val {
        self.load_vector(memory, index, 1, mask)[0]
    }

    /// `lanes` elements side by side.
    pub fn load_vector(&mut self, memory: Memory, index: Val, lanes: usize, mask: Option<Val>) -> Vals {
        let (dtype, mask) = (self.element(memory), self.mask(mask));
        let results: Vals = (0..lanes).map(|_| self.new_value(dtype)).collect();
        self.push(Inst::Load { memory, index, mask }, &results);
        results
    }

    /// Stores elements side by side.
    pub fn store(&mut self, memory: Memory, index: Val, values: &[Val], mask: Option<Val>) {
        let mask = self.mask(mask);
        self.push(Inst::Store { memory, index, values: Vals::from_slice(values), mask }, &[]);
    }

    /// Changes an element.
    pub fn atomic(&mut self, op: AtomicOp, memory: Memory, index: Val, value: Val, mask: Option<Val>) {
        let mask = self.mask(mask);
        self.push(Inst::Atomic { op, memory, index, value, mask }, &[]);
    }

    /// No mask where it is known to be true.
    fn mask(&self, mask: Option<Val>) -> Option<Val> {
        mask.filter(|&mask| self.known(mask) != Some(1))
    }

    /// Another lane's value.
    pub fn shuffle(&mut self, kind: Shuffle, value: Val, lane: Val) -> Val {
        let result = self.new_value(self.dtype(value));
        self.push(Inst::Shuffle { kind, value, lane }, &[result]);
        result
    }

    /// Waits for all threads of the block.
    pub fn barrier(&mut self) {
        self.push(Inst::Barrier, &[]);
    }

    fn open_region(&mut self) {
        self.open.push(Vec::new());
        self.known.push(HashMap::new());
    }

    fn close_region(&mut self, args: Vals, yields: Vals) -> Region {
        self.known.pop();
        let stmts = self.open.pop().expect("a region is open");
        Region { args, stmts, yields }
    }

    fn values_like(&mut self, values: &[Val]) -> Vals {
        let dtypes: Vec<DType> = values.iter().map(|&value| self.dtype(value)).collect();
        dtypes.into_iter().map(|dtype| self.new_value(dtype)).collect()
    }

    /// One of two regions; both give values of the same dtypes.
    pub fn if_else(
        &mut self,
        condition: Val,
        then: impl FnOnce(&mut Builder) -> Vals,
        otherwise: impl FnOnce(&mut Builder) -> Vals,
    ) -> Vals {
        self.open_region();
        let yields = then(self);
        let then = self.close_region(Vals::new(), yields);
        self.open_region();
        let yields = otherwise(self);
        let otherwise = self.close_region(Vals::new(), yields);
        let results = self.values_like(&then.yields);
        self.push(Inst::If { condition, then, otherwise }, &results);
        results
    }

    /// A region that only some threads enter.
    pub fn if_(&mut self, condition: Val, then: impl FnOnce(&mut Builder)) {
        let then = |b: &mut Builder| {
            then(b);
            Vals::new()
        };
        if self.known(condition) == Some(1) {
            then(self);
        } else {
            self.if_else(condition, then, |_| Vals::new());
        }
    }

    /// A loop with carried values; `body` gets the counter and what is carried, and gives what is carried on.
    pub fn for_each(
        &mut self,
        bounds: [Val; 3],
        init: &[Val],
        body: impl FnOnce(&mut Builder, Val, &[Val]) -> Vals,
    ) -> Vals {
        let head = self.open_for(bounds, init);
        let yields = body(self, head.counter(), head.carried());
        self.close_for(head, yields)
    }

    /// Begins a loop from start to end by step; statements up to [`Builder::close_for`] are its body.
    pub fn open_for(&mut self, bounds: [Val; 3], init: &[Val]) -> Loop {
        let counter = self.new_value(self.dtype(bounds[0]));
        let carried = self.values_like(init);
        self.open_region();
        let args = [counter].into_iter().chain(carried).collect();
        Loop { bounds, init: Vals::from_slice(init), args }
    }

    /// Ends the body of a loop, with what it carries on; gives what is carried at the end.
    pub fn close_for(&mut self, head: Loop, yields: Vals) -> Vals {
        let body = self.close_region(head.args, yields);
        let results = self.values_like(&head.init);
        let [start, end, step] = head.bounds;
        self.push(Inst::For { start, end, step, init: head.init, body }, &results);
        results
    }
}

/// A loop whose body is being made.
#[derive(Debug)]
#[must_use]
pub struct Loop {
    bounds: [Val; 3],
    init: Vals,
    args: Vals,
}

impl Loop {
    /// The counter.
    pub fn counter(&self) -> Val {
        self.args[0]
    }

    /// The carried values.
    pub fn carried(&self) -> &[Val] {
        &self.args[1..]
    }
}
