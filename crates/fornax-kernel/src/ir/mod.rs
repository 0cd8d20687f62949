//! The kernel IR: what one thread of a launch does, as structured SSA in plain enums.
//!
//! A [`Function`] is run by every thread of every block of a launch. Its statements stand in [`Region`]s that nest (loops,
//! conditions); a value is defined once and seen by what follows it in its region and in regions inside. Statements have
//! any number of results: a vector load gives several scalars, a condition several values.
//!
//! Values are scalars. Arithmetic has the meaning of `docs/semantics.md`, with two differences: an integer division by
//! zero gives 0, and `f16` and `bf16` are for loading, storing, converting and choosing only, they are computed in `f32`.
//!
//! Text (`Display`, [`Function::parse`]) and [`verify`](Function::verify) stand beside; [`Builder`] makes functions.

mod build;
mod parse;
mod print;
mod verify;

pub use build::{Builder, Loop};
pub use parse::ParseError;
pub use verify::VerifyError;

use fornax_ir::{BinaryOp, CompareOp, DType, UnaryOp};
use smallvec::SmallVec;

/// Threads that run in step with each other and can shuffle values.
pub const WARP: u32 = 32;

/// A value of a function, by its place in [`Function::types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Val(pub u32);

impl Val {
    /// The place in [`Function::types`].
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// A few values.
pub type Vals = SmallVec<[Val; 2]>;

/// What each thread of a launch does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// A name for reports; it has no part in what the function does.
    pub name: String,
    /// Threads of a block: a multiple of [`WARP`].
    pub threads: u32,
    /// What a launch passes, in order.
    pub params: Vec<Param>,
    /// Arrays that the threads of a block share. Their elements start out undefined.
    pub shared: Vec<SharedArray>,
    /// The dtype of each value.
    pub types: Vec<DType>,
    /// What is done; it yields nothing.
    pub body: Region,
}

/// What a launch passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// Device memory, aligned to at least 16 bytes.
    Buffer {
        /// Dtype of the elements.
        dtype: DType,
        /// What the function does with it.
        mode: Mode,
    },
    /// One value for all threads.
    Scalar(DType),
}

/// What a function does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Loads only.
    Read,
    /// Stores only.
    Write,
    /// Both.
    ReadWrite,
}

/// An array that the threads of a block share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedArray {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub len: u32,
}

/// Statements in a row, with values that come in and go out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// Values that hold in the region only: the counter and the carried values of a loop.
    pub args: Vals,
    /// What is done.
    pub stmts: Vec<Stmt>,
    /// What the region hands on: to the next turn of a loop, or out of it.
    pub yields: Vals,
}

/// An instruction and what it defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stmt {
    /// New values.
    pub results: Vals,
    /// What to do.
    pub inst: Inst,
}

/// Memory that a function can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// The buffer parameter of this number.
    Param(u32),
    /// The shared array of this number.
    Shared(u32),
}

/// Where a thread stands; all are `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// The thread in its block.
    Thread,
    /// The thread in its warp.
    Lane,
    /// The block, along the first, second or third dim of the grid.
    Block(u8),
    /// Blocks of the grid along that dim.
    Grid(u8),
}

/// Whose value a thread gets in a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// Of the lane whose number differs in these bits.
    Xor,
    /// Of the lane so many lower; its own where there is none.
    Up,
    /// Of the lane of this number.
    Lane,
}

/// Read-modify-write that no other thread interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Sum. Integers of 32 and 64 bits wrap; floats add in any order.
    Add,
    /// The larger, of integers of 32 and 64 bits.
    Max,
    /// The smaller, of integers of 32 and 64 bits.
    Min,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// A value by its bits, in the dtype of the result.
    Const(u64),
    /// The scalar parameter of this number.
    Param(u32),
    /// Where the thread stands.
    Special(Special),
    /// One operand.
    Unary(UnaryOp, Val),
    /// Two operands of one dtype.
    Binary(BinaryOp, Val, Val),
    /// Two operands of one dtype; the result is `bool`.
    Compare(CompareOp, Val, Val),
    /// `condition ? a : b`.
    Select(Val, Val, Val),
    /// Conversion to the dtype of the result.
    Cast(Val),
    /// The same bits as the dtype of the result.
    Bitcast(Val),
    /// `a · b + c`, rounded once, of `f32` or `f64`.
    Fma(Val, Val, Val),
    /// The high half of the product of two `u32`.
    MulHigh(Val, Val),
    /// Elements from `index` on, as many as there are results (1, 2, 4, 8 or 16, at most 16 bytes; `index` is a multiple
    /// of that). Where `mask` is false nothing is read and the results are 0.
    Load {
        /// From where.
        memory: Memory,
        /// The first element: an integer of 32 or 64 bits.
        index: Val,
        /// Which threads load.
        mask: Option<Val>,
    },
    /// The values go to the elements from `index` on, under the rules of loads.
    Store {
        /// To where.
        memory: Memory,
        /// The first element.
        index: Val,
        /// What is stored.
        values: Vals,
        /// Which threads store.
        mask: Option<Val>,
    },
    /// Changes one element of a buffer or shared array; other threads may do so too.
    Atomic {
        /// How.
        op: AtomicOp,
        /// Where.
        memory: Memory,
        /// The element.
        index: Val,
        /// With what.
        value: Val,
        /// Which threads do.
        mask: Option<Val>,
    },
    /// The value that another lane of the warp has. All lanes take part.
    Shuffle {
        /// Which lane.
        kind: Shuffle,
        /// What is handed around.
        value: Val,
        /// Number for `kind`: `u32`, the same in all lanes but for [`Shuffle::Lane`].
        lane: Val,
    },
    /// All threads of the block arrive before any goes on, and see what was stored before.
    Barrier,
    /// One of two regions. Both yield the results.
    If {
        /// `bool`.
        condition: Val,
        /// Where it is true.
        then: Region,
        /// Where it is false.
        otherwise: Region,
    },
    /// `body` for `start`, `start + step`, … below `end`. Arguments of the body: the counter, then the carried values, which
    /// start as `init`, go from turn to turn by the yields, and end as the results.
    For {
        /// The first value of the counter.
        start: Val,
        /// The bound.
        end: Val,
        /// Positive.
        step: Val,
        /// Carried values at the start.
        init: Vals,
        /// What is done each turn.
        body: Region,
    },
}

impl Inst {
    /// The operands, those inside regions left out.
    pub fn operands(&self) -> Vals {
        match self {
            Inst::Const(_) | Inst::Param(_) | Inst::Special(_) | Inst::Barrier => Vals::new(),
            Inst::Unary(_, a) | Inst::Cast(a) | Inst::Bitcast(a) => Vals::from_slice(&[*a]),
            Inst::Binary(_, a, b) | Inst::Compare(_, a, b) | Inst::MulHigh(a, b) => Vals::from_slice(&[*a, *b]),
            Inst::Select(a, b, c) | Inst::Fma(a, b, c) => Vals::from_slice(&[*a, *b, *c]),
            Inst::Load { index, mask, .. } => [*index].into_iter().chain(*mask).collect(),
            Inst::Store { index, values, mask, .. } => {
                [*index].into_iter().chain(values.iter().copied()).chain(*mask).collect()
            }
            Inst::Atomic { index, value, mask, .. } => [*index, *value].into_iter().chain(*mask).collect(),
            Inst::Shuffle { value, lane, .. } => Vals::from_slice(&[*value, *lane]),
            Inst::If { condition, .. } => Vals::from_slice(&[*condition]),
            Inst::For { start, end, step, init, .. } => {
                [*start, *end, *step].into_iter().chain(init.iter().copied()).collect()
            }
        }
    }

    /// The regions inside.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        let regions: [Option<&Region>; 2] = match self {
            Inst::If { then, otherwise, .. } => [Some(then), Some(otherwise)],
            Inst::For { body, .. } => [Some(body), None],
            Inst::Const(_)
            | Inst::Param(_)
            | Inst::Special(_)
            | Inst::Unary(..)
            | Inst::Binary(..)
            | Inst::Compare(..)
            | Inst::Select(..)
            | Inst::Cast(_)
            | Inst::Bitcast(_)
            | Inst::Fma(..)
            | Inst::MulHigh(..)
            | Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::Atomic { .. }
            | Inst::Shuffle { .. }
            | Inst::Barrier => [None, None],
        };
        regions.into_iter().flatten()
    }

    /// Whether the results depend on the operands alone.
    pub fn is_pure(&self) -> bool {
        match self {
            Inst::Const(_)
            | Inst::Param(_)
            | Inst::Special(_)
            | Inst::Unary(..)
            | Inst::Binary(..)
            | Inst::Compare(..)
            | Inst::Select(..)
            | Inst::Cast(_)
            | Inst::Bitcast(_)
            | Inst::Fma(..)
            | Inst::MulHigh(..) => true,
            Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::Atomic { .. }
            | Inst::Shuffle { .. }
            | Inst::Barrier
            | Inst::If { .. }
            | Inst::For { .. } => false,
        }
    }
}

impl Function {
    /// The dtype of a value.
    pub fn dtype(&self, value: Val) -> DType {
        self.types[value.idx()]
    }

    /// The dtype of the elements of `memory`, if there is such memory.
    pub fn memory(&self, memory: Memory) -> Option<DType> {
        match memory {
            Memory::Param(param) => match self.params.get(param as usize)? {
                Param::Buffer { dtype, .. } => Some(*dtype),
                Param::Scalar(_) => None,
            },
            Memory::Shared(array) => Some(self.shared.get(array as usize)?.dtype),
        }
    }

    /// Bytes of shared memory that a block needs.
    pub fn shared_bytes(&self) -> usize {
        self.shared.iter().map(|array| array.len as usize * array.dtype.size()).sum()
    }
}
