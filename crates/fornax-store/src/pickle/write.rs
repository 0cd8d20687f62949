//! Writing pickles of protocol 2, which every PyTorch reads.

use alloc::vec::Vec;

/// A pickle under way.
pub(crate) struct PickleWriter(Vec<u8>);

impl PickleWriter {
    pub fn new() -> PickleWriter {
        PickleWriter(Vec::from([0x80, 2]))
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'.');
        self.0
    }

    pub fn none(&mut self) {
        self.0.push(b'N');
    }

    pub fn bool(&mut self, value: bool) {
        self.0.push(if value { 0x88 } else { 0x89 });
    }

    pub fn int(&mut self, value: i64) {
        if let Ok(value) = i32::try_from(value) {
            self.0.push(b'J');
            self.0.extend(value.to_le_bytes());
        } else {
            self.long(&value.to_le_bytes());
        }
    }

    /// A whole number of at most 255 bytes, little-endian.
    pub fn long(&mut self, bytes: &[u8]) {
        self.0.extend([0x8a, bytes.len() as u8]);
        self.0.extend(bytes);
    }

    pub fn float(&mut self, value: f64) {
        self.0.push(b'G');
        self.0.extend(value.to_be_bytes());
    }

    /// Text of less than 4 GiB.
    pub fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    pub fn global(&mut self, module: &str, name: &str) {
        self.0.push(b'c');
        for line in [module, name] {
            self.0.extend(line.as_bytes());
            self.0.push(b'\n');
        }
    }

    pub fn mark(&mut self) {
        self.0.push(b'(');
    }

    /// Everything since the mark as a tuple.
    pub fn tuple(&mut self) {
        self.0.push(b't');
    }

    pub fn empty_list(&mut self) {
        self.0.push(b']');
    }

    /// Everything since the mark goes to the list under it.
    pub fn appends(&mut self) {
        self.0.push(b'e');
    }

    pub fn empty_dict(&mut self) {
        self.0.push(b'}');
    }

    /// Keys and values since the mark go to the dict under it.
    pub fn set_items(&mut self) {
        self.0.push(b'u');
    }

    /// Calls the function under the tuple.
    pub fn reduce(&mut self) {
        self.0.push(b'R');
    }

    pub fn persistent(&mut self) {
        self.0.push(b'Q');
    }
}
