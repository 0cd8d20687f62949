//! Python's pickle format, read without running anything, and written.
//!
//! A pickle is a program for a stack machine. [`read`] runs it to a graph of plain data: globals must be on a list, and
//! calling one gives a record of the call. Each instruction does work in proportion to the bytes it takes, the number of
//! values is bounded, and shared values stay shared, so no pickle takes long or much memory. What it means is decided
//! elsewhere (`torch/tree.rs`), again with bounds, since a small graph can be a large tree.

mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::PickleWriter;

use crate::{Error, ErrorKind};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

/// A value of the graph, by its place in it.
pub(crate) type Id = u32;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// A whole number beyond 64 bits, little-endian.
    Big(Box<[u8]>),
    Float(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    /// Also sets.
    List(Vec<Id>),
    Tuple(Box<[Id]>),
    Dict(Vec<(Id, Id)>),
    /// A function or class, as `module.name`.
    Global(&'static str),
    /// A function or class that would be called, with a tuple.
    Call(&'static str, Id),
    /// What lies outside the pickle.
    Persistent(Id),
}

/// The values of a pickle.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    pub root: Id,
}

/// What may occur in a pickle that [`read`] takes; all else is refused by name.
const GLOBALS: &[&str] = &[
    "collections.OrderedDict",
    "collections.defaultdict",
    "builtins.dict",
    "builtins.list",
    "builtins.set",
    "__builtin__.dict",
    "__builtin__.list",
    "__builtin__.set",
    "torch.Size",
    "torch.Tensor",
    "torch.device",
    "torch.nn.parameter.Parameter",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.storage.UntypedStorage",
    "torch.FloatStorage",
    "torch.DoubleStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.float32",
    "torch.float64",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch.bool",
];

impl Graph {
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn root(&self) -> &Node {
        self.node(self.root)
    }

    /// All values, in the order in which they were made.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        0..self.nodes.len() as Id
    }

    /// The parts of a tuple or list.
    pub fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Tuple(parts) => Some(parts),
            Node::List(parts) => Some(parts),
            _ => None,
        }
    }

    pub fn int(&self, id: Id) -> Option<i64> {
        if let Node::Int(value) = self.node(id) { Some(*value) } else { None }
    }

    pub fn text(&self, id: Id) -> Option<&str> {
        if let Node::Text(text) = self.node(id) { Some(text) } else { None }
    }
}

fn global(module: &str, name: &str) -> Result<&'static str, Error> {
    let found = GLOBALS.iter().find(|global| {
        let rest = global.strip_prefix(module).and_then(|rest| rest.strip_prefix('.'));
        rest == Some(name)
    });
    found.copied().ok_or_else(|| {
        let shown = |text: &str| text.chars().take(80).flat_map(char::escape_debug).collect::<alloc::string::String>();
        let message = format!("refers to {}.{}, which is not allowed", shown(module), shown(name));
        Error::new(ErrorKind::Unsupported, message)
    })
}
