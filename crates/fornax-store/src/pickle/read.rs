//! The stack machine.

use super::{Graph, Id, Node, global};
use crate::source::Cursor;
use crate::{Error, ErrorKind};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// How many values a pickle may have; the state of 100 000 tensors has about 1.5 million.
const MAX_VALUES: usize = 2_000_000;
/// How many bytes it may have. The tensors' values lie outside.
const MAX_BYTES: usize = 64 << 20;

/// Runs one pickle from where the cursor is, and leaves the cursor behind it.
///
/// # Errors
/// If it is truncated, malformed, too large, or refers to a global that is not allowed.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Graph, Error> {
    let start = cursor.position;
    let mut machine = Machine { nodes: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: BTreeMap::new() };
    loop {
        let position = cursor.position;
        let at = |error: Error| error.within(&format!("pickle, byte {position}"));
        if position - start > MAX_BYTES {
            return Err(at(Error::new(ErrorKind::Limit, format!("longer than {MAX_BYTES} bytes"))));
        }
        if let Some(root) = machine.step(cursor).map_err(at)? {
            return Ok(Graph { nodes: machine.nodes, root });
        }
    }
}

struct Machine {
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// The heights of the stack at each open mark.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Id>,
}

impl Machine {
    /// Runs one instruction; gives the result at the end.
    fn step(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Id>, Error> {
        let opcode = cursor.u8()?;
        match opcode {
            b'.' => return self.pop().map(Some),
            // Protocol and frames say nothing that is needed.
            0x80 => match cursor.u8()? {
                0..=5 => {}
                version => return unsupported(format!("protocol {version}")),
            },
            0x95 => drop(cursor.u64()?),

            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }

            b'N' => self.push(Node::None)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'J' => {
                let value = i32::from_le_bytes(cursor.array()?);
                self.push(Node::Int(value.into()))?;
            }
            b'K' => {
                let value = cursor.u8()?;
                self.push(Node::Int(value.into()))?;
            }
            b'M' => {
                let value = u16::from_le_bytes(cursor.array()?);
                self.push(Node::Int(value.into()))?;
            }
            0x8a => {
                let length = cursor.u8()?.into();
                self.push(whole_number(cursor.take(length)?))?;
            }
            0x8b => {
                let length = length32(cursor)?;
                self.push(whole_number(cursor.take(length)?))?;
            }
            // The one number that is big-endian.
            b'G' => {
                let value = f64::from_be_bytes(cursor.array()?);
                self.push(Node::Float(value))?;
            }
            b'I' | b'L' => {
                let node = match ascii(cursor.line()?)?.trim_end_matches('L') {
                    "00" if opcode == b'I' => Node::Bool(false),
                    "01" if opcode == b'I' => Node::Bool(true),
                    text => Node::Int(text.parse().map_err(|_| malformed("not a whole number"))?),
                };
                self.push(node)?;
            }
            b'F' => {
                let value = ascii(cursor.line()?)?.parse().map_err(|_| malformed("not a number"))?;
                self.push(Node::Float(value))?;
            }

            b'X' => {
                let length = length32(cursor)?;
                self.push_text(cursor.take(length)?)?;
            }
            0x8c => {
                let length = cursor.u8()?.into();
                self.push_text(cursor.take(length)?)?;
            }
            0x8d => {
                let length = cursor.length()?;
                self.push_text(cursor.take(length)?)?;
            }
            b'U' => {
                let length = cursor.u8()?.into();
                self.push_text(cursor.take(length)?)?;
            }
            b'T' => {
                let length = length32(cursor)?;
                self.push_text(cursor.take(length)?)?;
            }
            b'V' | b'S' => {
                let line = ascii(cursor.line()?)?;
                let text = if opcode == b'S' { unquoted(line)? } else { line };
                if text.contains('\\') {
                    return unsupported("escapes in text of protocol 0".to_string());
                }
                self.push_text(text.as_bytes())?;
            }
            b'B' => {
                let length = length32(cursor)?;
                self.push(Node::Bytes(cursor.take(length)?.into()))?;
            }
            b'C' => {
                let length = cursor.u8()?.into();
                self.push(Node::Bytes(cursor.take(length)?.into()))?;
            }
            0x8e | 0x96 => {
                let length = cursor.length()?;
                self.push(Node::Bytes(cursor.take(length)?.into()))?;
            }

            b']' | 0x8f => self.push(Node::List(Vec::new()))?,
            b'l' | 0x91 => {
                let parts = self.pop_mark()?;
                self.push(Node::List(parts))?;
            }
            b'a' => {
                let part = self.pop()?;
                self.append(vec![part])?;
            }
            b'e' | 0x90 => {
                let parts = self.pop_mark()?;
                self.append(parts)?;
            }
            b')' => self.push(Node::Tuple([].into()))?,
            b't' => {
                let parts = self.pop_mark()?;
                self.push(Node::Tuple(parts.into()))?;
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let height = self.stack.len().checked_sub(count).filter(|&height| height >= self.floor());
                let parts = self.stack.split_off(height.ok_or_else(underflow)?);
                self.push(Node::Tuple(parts.into()))?;
            }
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b'd' => {
                let parts = self.pop_mark()?;
                self.push(Node::Dict(pairs(&parts)?))?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.insert(&[key, value])?;
            }
            b'u' => {
                let parts = self.pop_mark()?;
                self.insert(&parts)?;
            }

            b'p' => {
                let index = ascii(cursor.line()?)?.parse().map_err(|_| malformed("not a place of the memo"))?;
                self.remember(index)?;
            }
            b'q' => {
                let index = cursor.u8()?.into();
                self.remember(index)?;
            }
            b'r' => {
                let index = cursor.u32()?;
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'g' => {
                let index = ascii(cursor.line()?)?.parse().map_err(|_| malformed("not a place of the memo"))?;
                self.recall(index)?;
            }
            b'h' => {
                let index = cursor.u8()?.into();
                self.recall(index)?;
            }
            b'j' => {
                let index = cursor.u32()?;
                self.recall(index)?;
            }

            b'c' => {
                let module = ascii(cursor.line()?)?;
                let name = ascii(cursor.line()?)?;
                self.push(Node::Global(global(module, name)?))?;
            }
            0x93 => {
                let name = self.pop()?;
                let module = self.pop()?;
                let (Node::Text(module), Node::Text(name)) = (self.node(module), self.node(name)) else {
                    return Err(malformed("the name of a global is not text"));
                };
                let global = global(module, name)?;
                self.push(Node::Global(global))?;
            }
            // Calls: of functions, and of classes to make objects.
            b'R' | 0x81 => {
                let args = self.pop()?;
                let what = self.pop()?;
                self.call(what, args)?;
            }
            0x92 => {
                let named = self.pop()?;
                let args = self.pop()?;
                let what = self.pop()?;
                if !matches!(self.node(named), Node::Dict(entries) if entries.is_empty()) {
                    return unsupported("a call with named arguments".to_string());
                }
                self.call(what, args)?;
            }
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.push(Node::Persistent(id))?;
            }

            b'P' | b'i' | b'o' | 0x82..=0x84 | 0x97 | 0x98 => {
                return unsupported(format!("instruction {:#04x}", opcode));
            }
            _ => return Err(malformed(&format!("there is no instruction {opcode:#04x}"))),
        }
        Ok(None)
    }

    fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn push(&mut self, node: Node) -> Result<(), Error> {
        if self.nodes.len() >= MAX_VALUES {
            return Err(Error::new(ErrorKind::Limit, format!("more than {MAX_VALUES} values")));
        }
        self.stack.push(self.nodes.len() as Id);
        self.nodes.push(node);
        Ok(())
    }

    /// Text, or bytes that are not text (Python 2 did not tell them apart).
    fn push_text(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.push(match core::str::from_utf8(bytes) {
            Ok(text) => Node::Text(text.into()),
            Err(_) => Node::Bytes(bytes.into()),
        })
    }

    /// The lowest height of the stack that may be popped: what lies under a mark belongs to others.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, Error> {
        self.stack[self.floor().min(self.stack.len())..].last().copied().ok_or_else(underflow)
    }

    fn pop(&mut self) -> Result<Id, Error> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>, Error> {
        let mark = self.marks.pop().ok_or_else(|| malformed("no mark"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn append(&mut self, parts: Vec<Id>) -> Result<(), Error> {
        let list = self.top()?;
        let Node::List(list) = &mut self.nodes[list as usize] else { return Err(malformed("append to no list")) };
        list.extend(parts);
        Ok(())
    }

    fn insert(&mut self, parts: &[Id]) -> Result<(), Error> {
        let dict = self.top()?;
        let Node::Dict(dict) = &mut self.nodes[dict as usize] else { return Err(malformed("insert into no dict")) };
        dict.extend(pairs(parts)?);
        Ok(())
    }

    fn remember(&mut self, index: u32) -> Result<(), Error> {
        let top = self.top()?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), Error> {
        let id = self.memo.get(&index).ok_or_else(|| malformed(&format!("nothing at place {index} of the memo")))?;
        self.stack.push(*id);
        Ok(())
    }

    /// Containers are made; other calls are written down.
    fn call(&mut self, what: Id, args: Id) -> Result<(), Error> {
        let Node::Global(what) = *self.node(what) else { return Err(malformed("a call of what is no global")) };
        let Node::Tuple(parts) = self.node(args) else { return Err(malformed("arguments that are no tuple")) };
        let node = match (what, &parts[..]) {
            ("collections.OrderedDict" | "builtins.dict" | "__builtin__.dict", []) => Node::Dict(Vec::new()),
            ("collections.defaultdict", [] | [_]) => Node::Dict(Vec::new()),
            ("builtins.list" | "__builtin__.list" | "builtins.set" | "__builtin__.set", []) => Node::List(Vec::new()),
            ("builtins.list" | "__builtin__.list" | "builtins.set" | "__builtin__.set", &[parts]) => {
                let (Node::List(_) | Node::Tuple(_)) = self.node(parts) else {
                    return Err(malformed("a list of what is none"));
                };
                // The same parts: nothing is copied, so that calls cannot multiply values.
                self.stack.push(parts);
                return Ok(());
            }
            ("torch.Size", &[sizes]) => {
                self.stack.push(sizes);
                return Ok(());
            }
            ("torch.device", [kind, ..]) => Node::Text(match self.node(*kind) {
                Node::Text(kind) => kind.clone(),
                _ => return Err(malformed("a device without a kind")),
            }),
            _ => Node::Call(what, args),
        };
        self.push(node)
    }

    /// The state of an object. Dicts with attributes (`OrderedDict._metadata`) are dicts; nothing else has a state.
    fn build(&mut self) -> Result<(), Error> {
        self.pop()?;
        match self.node(self.top()?) {
            Node::Dict(_) | Node::List(_) | Node::Call(..) => Ok(()),
            _ => Err(malformed("a state of what has none")),
        }
    }
}

fn pairs(parts: &[Id]) -> Result<Vec<(Id, Id)>, Error> {
    let (pairs, rest) = parts.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(malformed("a key without a value"));
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

/// A little-endian number in two's complement.
fn whole_number(bytes: &[u8]) -> Node {
    if bytes.len() > 8 {
        return Node::Big(bytes.into());
    }
    let fill = if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
    let mut full = [fill; 8];
    full[..bytes.len()].copy_from_slice(bytes);
    Node::Int(i64::from_le_bytes(full))
}

fn length32(cursor: &mut Cursor<'_>) -> Result<usize, Error> {
    Ok(usize::try_from(cursor.u32()?).unwrap_or(usize::MAX))
}

fn ascii(line: &[u8]) -> Result<&str, Error> {
    core::str::from_utf8(line).map_err(|_| malformed("a line that is not text"))
}

fn unquoted(line: &str) -> Result<&str, Error> {
    let inner = |quote| line.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    inner('\'').or_else(|| inner('"')).ok_or_else(|| malformed("text without quotes"))
}

fn underflow() -> Error {
    malformed("nothing on the stack")
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Format, what.to_string())
}

fn unsupported<T>(what: impl Into<Cow<'static, str>>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Unsupported, what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8]) -> Result<Graph, Error> {
        read(&mut Cursor::new(bytes, 0))
    }

    #[test]
    fn numbers_have_the_byte_order_of_their_instruction() {
        for (bytes, value) in [
            // Candle read `G` as another instruction, and in the wrong order.
            (&b"G\x3f\xb9\x99\x99\x99\x99\x99\x9a."[..], Node::Float(0.1)),
            (b"F0.5\n.", Node::Float(0.5)),
            (b"J\xfe\xff\xff\xff.", Node::Int(-2)),
            (b"M\x00\x01.", Node::Int(256)),
            (b"K\xff.", Node::Int(255)),
            (b"\x8a\x00.", Node::Int(0)),
            (b"\x8a\x01\xff.", Node::Int(-1)),
            (b"\x8a\x02\xff\x00.", Node::Int(255)),
            (
                b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.",
                Node::Big([255, 255, 255, 255, 255, 255, 255, 255, 0].into()),
            ),
            (b"I01\n.", Node::Bool(true)),
            (b"L-12L\n.", Node::Int(-12)),
        ] {
            assert_eq!(run(bytes).unwrap().root(), &value);
        }
    }

    #[test]
    fn nothing_is_executed() {
        for bytes in [
            &b"cos\nsystem\n(S'true'\ntR."[..],
            b"c__builtin__\neval\n(S'1'\ntR.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
            b"ctorch.storage\n_load_from_bytes\n(U\x01xtR.",
            b"(ios\nsystem\n.",
        ] {
            let error = run(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        assert_eq!(
            run(b"cos\nsystem\n.").unwrap_err().to_string(),
            "pickle, byte 0: refers to os.system, which is not allowed"
        );
    }

    #[test]
    fn malformed_programs_are_refused() {
        for bytes in [
            &b""[..],
            b".",
            b"(.",
            b"0.",
            b"t.",
            b"u.",
            b"N(0.",
            b"Na.",
            b"]N(u.",
            b"}(Nu.",
            b"h\x07.",
            b"\x86.",
            b"N(N\x86.",
            b"NR.",
            b"NNR.",
            b"X\xff\xff\xff\xffabc.",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.",
            b"\x8b\xff\xff\xff\xff.",
            b"\xff.",
            b"?.",
            b"I1",
            b"Ix\n.",
            b"NNb.",
        ] {
            let error = run(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Format, "{bytes:?}: {error}");
        }
    }

    #[test]
    fn many_values_are_refused_in_little_memory() {
        let bytes = vec![b']'; MAX_VALUES + 2];
        assert_eq!(run(&bytes).unwrap_err().kind(), ErrorKind::Limit);
    }
}
