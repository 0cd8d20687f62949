//! Memory that knows who wrote what.

/// A thread of a launch, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who(pub u64);

/// More than one thread.
const MANY: Who = Who(u64::MAX);

/// Threads that changed an element atomically.
const ATOMIC: Who = Who(u64::MAX - 1);

const NOBODY: Who = Who(0);

/// Device memory. Every element is accessed by its whole size, so what is known is kept at its first byte.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Whether a byte was ever written.
    known: Vec<bool>,
    /// The last to write and to read an element in the launch at hand.
    writer: Vec<Who>,
    reader: Vec<Who>,
}

impl Buffer {
    /// `len` bytes that nobody has written.
    pub fn new(len: usize) -> Buffer {
        Buffer { bytes: vec![0xA5; len], known: vec![false; len], writer: Vec::new(), reader: Vec::new() }
    }

    /// A copy of bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Buffer {
        Buffer { known: vec![true; bytes.len()], bytes, writer: Vec::new(), reader: Vec::new() }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first byte that nobody has written.
    pub fn unknown(&self) -> Option<usize> {
        self.known.iter().position(|&known| !known)
    }

    /// Begins a launch.
    pub(super) fn begin(&mut self) {
        self.writer.clear();
        self.writer.resize(self.bytes.len(), NOBODY);
        self.reader.clear();
        self.reader.resize(self.bytes.len(), NOBODY);
    }

    fn bits(&self, first: usize, size: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&self.bytes[first..first + size]);
        u64::from_le_bytes(bytes)
    }

    fn put(&mut self, first: usize, size: usize, bits: u64) {
        self.bytes[first..first + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        self.known[first..first + size].fill(true);
    }

    pub(super) fn load(&mut self, at: usize, size: usize, who: Who) -> Result<u64, &'static str> {
        let first = at * size;
        if !self.known[first] {
            return Err("which nobody has written");
        }
        if ![NOBODY, who].contains(&self.writer[first]) {
            return Err("which another thread writes in this launch");
        }
        let reader = &mut self.reader[first];
        *reader = if [NOBODY, who].contains(reader) { who } else { MANY };
        Ok(self.bits(first, size))
    }

    pub(super) fn store(&mut self, at: usize, size: usize, bits: u64, who: Who) -> Result<(), &'static str> {
        let first = at * size;
        if ![NOBODY, who].contains(&self.writer[first]) {
            return Err("which another thread writes in this launch");
        }
        if ![NOBODY, who].contains(&self.reader[first]) {
            return Err("which another thread reads in this launch");
        }
        self.writer[first] = who;
        self.put(first, size, bits);
        Ok(())
    }

    pub(super) fn change(&mut self, at: usize, size: usize, change: impl Fn(u64) -> u64) -> Result<(), &'static str> {
        let first = at * size;
        if !self.known[first] {
            return Err("which nobody has written");
        }
        if ![NOBODY, ATOMIC].contains(&self.writer[first]) || self.reader[first] != NOBODY {
            return Err("which a thread reads or writes otherwise in this launch");
        }
        self.writer[first] = ATOMIC;
        let bits = change(self.bits(first, size));
        self.put(first, size, bits);
        Ok(())
    }
}

/// An array that the threads of a block share; a barrier ends what threads did before it.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    cells: Vec<Cell>,
    /// Barriers so far.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    bits: u64,
    known: bool,
    writer: Who,
    written: u64,
    reader: Who,
    read: u64,
}

impl Shared {
    pub fn new(len: usize) -> Shared {
        Shared { cells: vec![Cell::default(); len], epoch: 1 }
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    pub fn load(&mut self, at: usize, thread: usize) -> Result<u64, &'static str> {
        let (cell, who) = (&mut self.cells[at], Who(thread as u64 + 1));
        if !cell.known {
            return Err("which nobody has written");
        }
        if cell.written == self.epoch && cell.writer != who {
            return Err("which another thread has written since the last barrier");
        }
        cell.reader = if cell.read == self.epoch && cell.reader != who { MANY } else { who };
        cell.read = self.epoch;
        Ok(cell.bits)
    }

    pub fn store(&mut self, at: usize, bits: u64, thread: usize) -> Result<(), &'static str> {
        let (cell, who) = (&mut self.cells[at], Who(thread as u64 + 1));
        if cell.written == self.epoch && cell.writer != who {
            return Err("which another thread has written since the last barrier");
        }
        if cell.read == self.epoch && cell.reader != who {
            return Err("which another thread has read since the last barrier");
        }
        (cell.bits, cell.known, cell.writer, cell.written) = (bits, true, who, self.epoch);
        Ok(())
    }

    pub fn change(&mut self, at: usize, change: impl Fn(u64) -> u64) -> Result<(), &'static str> {
        let cell = &mut self.cells[at];
        if !cell.known {
            return Err("which nobody has written");
        }
        if cell.written == self.epoch && cell.writer != ATOMIC || cell.read == self.epoch {
            return Err("which a thread reads or writes otherwise since the last barrier");
        }
        (cell.bits, cell.writer, cell.written) = (change(cell.bits), ATOMIC, self.epoch);
        Ok(())
    }
}
