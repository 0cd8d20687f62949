//! [`Maker`]: a function and the arguments of its launch, made side by side.

use super::space::Loop;
use crate::ir::{Builder, Function, Memory, Mode, Special, Val};
use crate::program::{Arg, BufferId};
use fornax_compile::Level;
use fornax_ir::{DType, NodeId};
use std::collections::HashMap;

/// Most blocks along the second and third dim of a grid.
pub(crate) const MAX_GRID_YZ: usize = 65535;

/// A function in the making; sizes and strides become parameters, so that other sizes make the same function.
pub(crate) struct Maker {
    pub b: Builder,
    pub args: Vec<Arg>,
    /// The dtype of places: `i32` where all fit, else `i64`.
    pub index: DType,
    memories: HashMap<Arg, Memory>,
    scalars: HashMap<(Arg, DType), Val>,
}

impl Maker {
    pub fn new(name: impl Into<String>, threads: u32, index: DType) -> Maker {
        let b = Builder::new(name, threads);
        Maker { b, args: Vec::new(), index, memories: HashMap::new(), scalars: HashMap::new() }
    }

    pub fn finish(self) -> (Function, Vec<Arg>) {
        (self.b.finish(), self.args)
    }

    /// A buffer parameter; the same one for the same buffer.
    pub fn buffer(&mut self, buffer: BufferId, dtype: DType, mode: Mode) -> Memory {
        self.memory(Arg::Buffer(buffer), dtype, mode)
    }

    /// The fault buffer.
    pub fn faults(&mut self) -> Memory {
        self.memory(Arg::Faults, DType::U64, Mode::ReadWrite)
    }

    fn memory(&mut self, arg: Arg, dtype: DType, mode: Mode) -> Memory {
        if let Some(&memory) = self.memories.get(&arg) {
            return memory;
        }
        self.args.push(arg);
        let memory = self.b.buffer(dtype, mode);
        self.memories.insert(arg, memory);
        memory
    }

    /// A scalar argument that a graph brings along.
    pub fn argument(&mut self, arg: Arg, dtype: DType) -> Val {
        if let Some(&value) = self.scalars.get(&(arg, dtype)) {
            return value;
        }
        self.args.push(arg);
        let value = self.b.scalar(dtype);
        self.scalars.insert((arg, dtype), value);
        value
    }

    /// The value of a constant, in the dtype of its node.
    pub fn scalar(&mut self, node: NodeId, dtype: DType) -> Val {
        self.argument(Arg::Scalar(node), dtype)
    }

    /// A size, as a parameter of its own.
    pub fn size(&mut self, size: usize) -> Val {
        self.number(size as i64)
    }

    /// A number that changes with sizes, as a parameter of its own.
    pub fn number(&mut self, number: i64) -> Val {
        self.args.push(Arg::Int(number));
        self.b.scalar(self.index)
    }

    /// A stride: 0 and 1 are known to the function, others are parameters.
    pub fn stride(&mut self, stride: isize) -> Val {
        match stride {
            0 | 1 => self.int(stride as i64),
            _ => self.number(stride as i64),
        }
    }

    /// An offset: 0 is known to the function.
    pub fn offset(&mut self, offset: isize) -> Val {
        if offset == 0 { self.int(0) } else { self.number(offset as i64) }
    }

    /// A constant place or count.
    pub fn int(&mut self, value: i64) -> Val {
        self.b.int(self.index, value)
    }

    /// `u32` specials as places.
    pub fn special(&mut self, special: Special) -> Val {
        let value = self.b.special(special);
        self.b.cast(value, self.index)
    }

    /// The number of the thread in the launch, blocks along the first dim of the grid.
    pub fn thread_of_grid(&mut self) -> Val {
        let (block, thread) = (self.special(Special::Block(0)), self.special(Special::Thread));
        let threads = self.int(self.b.threads().into());
        let first = self.b.mul(block, threads);
        self.b.add(first, thread)
    }

    /// Quotient and remainder of numbers that are not negative.
    pub fn div_rem(&mut self, a: Val, b: Val) -> (Val, Val) {
        let unsigned = if self.index == DType::I64 { DType::U64 } else { DType::U32 };
        let (n, d) = (self.b.cast(a, unsigned), self.b.cast(b, unsigned));
        let quotient = self.b.div(n, d);
        let quotient = self.b.cast(quotient, self.index);
        let whole = self.b.mul(quotient, b);
        (quotient, self.b.sub(a, whole))
    }

    /// A size for each loop, as [`Maker::coordinates`] wants them: the first does not matter.
    pub fn loop_sizes(&mut self, loops: &[Loop]) -> Vec<Val> {
        let size = |(dim, one): (usize, &Loop)| if dim == 0 { self.int(0) } else { self.size(one.size) };
        loops.iter().enumerate().map(size).collect()
    }

    /// The row-major coordinates of `linear` in dims of these sizes.
    pub fn coordinates(&mut self, linear: Val, sizes: &[Val]) -> Vec<Val> {
        let mut coordinates = vec![linear; sizes.len()];
        let mut rest = linear;
        for dim in (1..sizes.len()).rev() {
            (rest, coordinates[dim]) = self.div_rem(rest, sizes[dim]);
        }
        if let Some(first) = coordinates.first_mut() {
            *first = rest;
        }
        coordinates
    }

    /// `start + Σ coordinate · stride`.
    pub fn place(&mut self, start: Val, coordinates: &[Val], strides: &[Val]) -> Val {
        coordinates.iter().zip(strides).fold(start, |place, (&coordinate, &stride)| {
            let term = self.b.mul(coordinate, stride);
            self.b.add(place, term)
        })
    }

    /// Parameters for index maps.
    pub fn levels(&mut self, levels: &[Level]) -> Vec<LevelVals> {
        let level = |level: &Level| LevelVals {
            sizes: level.dims.iter().map(|&(size, _)| self.number(size)).collect(),
            strides: level.dims.iter().map(|&(_, stride)| self.stride(stride as isize)).collect(),
            offset: self.offset(level.offset as isize),
        };
        levels.iter().map(level).collect()
    }

    /// A place led through index maps.
    pub fn through(&mut self, place: Val, levels: &[LevelVals]) -> Val {
        levels.iter().fold(place, |place, level| {
            let coordinates = self.coordinates(place, &level.sizes);
            self.place(level.offset, &coordinates, &level.strides)
        })
    }
}

/// A [`Level`] as parameters.
pub(crate) struct LevelVals {
    sizes: Vec<Val>,
    strides: Vec<Val>,
    offset: Val,
}
