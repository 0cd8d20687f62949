//! From the graph of a pickle to a tree of values, with bounds on size and depth.

use super::dtype_of;
use super::view::View;
use crate::pickle::{Graph, Id, Node};
use crate::value::{Key, Plain, Value};
use crate::{Error, ErrorKind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use fornax_tensor::DType;

/// How deep dicts and lists may be nested.
const MAX_DEPTH: usize = 100;
/// How many values a tree may have: a small graph of shared values can be a tree without end. The state of an optimizer of
/// 100 000 parameters has about this many.
const MAX_VALUES: usize = 500_000;
/// PyTorch has no tensors of more dims.
const MAX_RANK: usize = 64;

/// The tree of a graph; `open` sees the key of every storage that is used.
pub(crate) fn read(graph: &Graph, open: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<Value<View>, Error> {
    Reader { graph, open, left: MAX_VALUES }.value(graph.root, 0)
}

/// The key and dtype of every storage.
pub(crate) fn storages(graph: &Graph, found: &mut dyn FnMut(&str, DType)) -> Result<(), Error> {
    for id in graph.ids() {
        if let Node::Persistent(id) = graph.node(id) {
            let storage = Storage::of(graph, *id)?;
            found(storage.key, storage.dtype.unwrap_or(DType::U8));
        }
    }
    Ok(())
}

struct Reader<'a> {
    graph: &'a Graph,
    open: &'a mut dyn FnMut(&str) -> Result<(), Error>,
    left: usize,
}

/// What a persistent id says of a storage.
struct Storage<'a> {
    key: &'a str,
    /// None if it is untyped.
    dtype: Option<DType>,
    numel: usize,
}

impl Storage<'_> {
    /// Reads `("storage", type, key, location, numel)`; older files add `None` in the end.
    fn of(graph: &Graph, id: Id) -> Result<Storage<'_>, Error> {
        let parts = graph.sequence(id).unwrap_or_default();
        let &[kind, dtype, key, _, numel, ref rest @ ..] = parts else { return Err(wrong("a storage")) };
        let (Some("storage"), Node::Global(dtype), Some(key)) = (graph.text(kind), graph.node(dtype), graph.text(key))
        else {
            return Err(wrong("a storage"));
        };
        if rest.iter().any(|&rest| *graph.node(rest) != Node::None) {
            return Err(Error::new(ErrorKind::Unsupported, "a view of a storage, as PyTorch before 0.4 wrote it"));
        }
        Ok(Storage { key, dtype: dtype_of(dtype)?, numel: size(graph, numel)? })
    }
}

impl Reader<'_> {
    fn value(&mut self, id: Id, depth: usize) -> Result<Value<View>, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::Limit, format!("nested deeper than {MAX_DEPTH}, or in itself")));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            Error::new(ErrorKind::Limit, format!("more than {MAX_VALUES} values, or values that hold one another"))
        })?;
        let graph = self.graph;
        Ok(Value::Plain(match graph.node(id) {
            Node::None => Plain::None,
            Node::Bool(value) => Plain::Bool(*value),
            Node::Int(value) => Plain::Int(*value),
            Node::Float(value) => Plain::Float(*value),
            Node::Text(text) => Plain::Text(text.to_string()),
            Node::Global(name) => Plain::Text((*name).to_string()),
            Node::Big(_) => return Err(Error::new(ErrorKind::Unsupported, "a whole number of more than 64 bits")),
            Node::Bytes(_) => return Err(Error::new(ErrorKind::Unsupported, "bytes that are not text")),
            Node::List(parts) => return self.list(parts, depth),
            Node::Tuple(parts) => return self.list(parts, depth),
            Node::Dict(entries) => return self.dict(entries, depth),
            Node::Persistent(id) => {
                let storage = Storage::of(graph, *id)?;
                (self.open)(storage.key)?;
                return Ok(Value::Tensor(View {
                    storage: storage.key.to_string(),
                    dtype: storage.dtype.unwrap_or(DType::U8),
                    offset: 0,
                    sizes: vec![storage.numel],
                    strides: vec![1],
                }));
            }
            Node::Call(name, args) => return self.tensor(name, *args, depth).map(Value::Tensor),
        }))
    }

    fn list(&mut self, parts: &[Id], depth: usize) -> Result<Value<View>, Error> {
        Ok(Value::List(parts.iter().map(|&part| self.value(part, depth + 1)).collect::<Result<_, _>>()?))
    }

    fn dict(&mut self, entries: &[(Id, Id)], depth: usize) -> Result<Value<View>, Error> {
        let mut values = Vec::new();
        let mut keys = BTreeSet::new();
        for &(key, value) in entries {
            let key = match self.graph.node(key) {
                Node::Text(text) => Key::Text(text.to_string()),
                Node::Int(value) => Key::Int(*value),
                _ => return Err(Error::new(ErrorKind::Unsupported, "a key that is neither text nor a whole number")),
            };
            if !keys.insert(key.clone()) {
                return Err(Error::new(ErrorKind::Format, format!("{key}: two values have this key")));
            }
            let value = self.value(value, depth + 1).map_err(|error| error.within(&key.to_string()))?;
            values.push((key, value));
        }
        Ok(Value::Dict(values))
    }

    fn tensor(&mut self, name: &str, args: Id, depth: usize) -> Result<View, Error> {
        let graph = self.graph;
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::Limit, format!("nested deeper than {MAX_DEPTH}, or in itself")));
        }
        let args = graph.sequence(args).unwrap_or_default();
        match (name, args) {
            ("torch._utils._rebuild_tensor", &[storage, offset, sizes, strides]) => {
                self.view(storage, offset, [sizes, strides], None)
            }
            // The rest: whether it takes gradients, hooks, and, where it is a conjugate or negated, a dict that says so.
            ("torch._utils._rebuild_tensor_v2", &[storage, offset, sizes, strides, _, _, ref rest @ ..]) => {
                self.no_metadata(rest)?;
                self.view(storage, offset, [sizes, strides], None)
            }
            ("torch._utils._rebuild_tensor_v3", &[storage, offset, sizes, strides, _, _, dtype, ref rest @ ..]) => {
                self.no_metadata(rest)?;
                let Node::Global(dtype) = graph.node(dtype) else { return Err(wrong("a dtype")) };
                self.view(storage, offset, [sizes, strides], dtype_of(dtype)?)
            }
            ("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", &[inner, ..]) => {
                let Node::Call(name, args) = graph.node(inner) else { return Err(wrong("a parameter")) };
                self.tensor(name, *args, depth + 1)
            }
            ("torch._tensor._rebuild_from_type_v2", &[function, kind, args, ..]) => {
                let (Node::Global(function), Node::Global("torch.Tensor" | "torch.nn.parameter.Parameter")) =
                    (graph.node(function), graph.node(kind))
                else {
                    return Err(wrong("a tensor"));
                };
                self.tensor(function, args, depth + 1)
            }
            _ => Err(Error::new(ErrorKind::Unsupported, format!("a call of {name} with {} arguments", args.len()))),
        }
    }

    fn no_metadata(&self, rest: &[Id]) -> Result<(), Error> {
        let is_empty = |&id: &Id| match self.graph.node(id) {
            Node::None => true,
            Node::Dict(entries) => entries.is_empty(),
            _ => false,
        };
        if rest.iter().all(is_empty) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "a tensor that is conjugated or negated only when it is read"))
    }

    fn view(
        &mut self,
        storage: Id,
        offset: Id,
        [sizes, strides]: [Id; 2],
        dtype: Option<DType>,
    ) -> Result<View, Error> {
        let graph = self.graph;
        let Node::Persistent(id) = graph.node(storage) else { return Err(wrong("the storage of a tensor")) };
        let storage = Storage::of(graph, *id)?;
        let list = |id: Id| -> Result<Vec<usize>, Error> {
            let parts = graph.sequence(id).ok_or_else(|| wrong("a shape"))?;
            parts.iter().map(|&part| size(graph, part)).collect()
        };
        let (sizes, strides) = (list(sizes)?, list(strides)?);
        if sizes.len() != strides.len() || sizes.len() > MAX_RANK {
            return Err(wrong("a shape"));
        }
        (self.open)(storage.key)?;
        Ok(View {
            storage: storage.key.to_string(),
            dtype: dtype.or(storage.dtype).unwrap_or(DType::U8),
            offset: size(graph, offset)?,
            sizes,
            strides,
        })
    }
}

fn size(graph: &Graph, id: Id) -> Result<usize, Error> {
    graph.int(id).and_then(|value| usize::try_from(value).ok()).ok_or_else(|| wrong("a size"))
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Format, format!("{what} is not what it should be"))
}
