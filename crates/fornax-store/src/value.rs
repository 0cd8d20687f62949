//! [`Value`]: nested dicts and lists of tensors and plain values, as `torch.save` writes them.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use fornax_tensor::Tensor;

/// A value that is no tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// Python's `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Several; only in GGUF files, where lists may be long.
    List(Vec<Plain>),
}

impl Plain {
    /// The number, if it is a whole one.
    pub fn as_int(&self) -> Option<i64> {
        if let Plain::Int(value) = self { Some(*value) } else { None }
    }

    /// The number, if it is one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Plain::Int(value) => Some(*value as f64),
            Plain::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        if let Plain::Text(text) = self { Some(text) } else { None }
    }
}

/// A key of a [`Value::Dict`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Text.
    Text(String),
    /// A whole number, such as a parameter's in the state of an optimizer.
    Int(i64),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Text(text) => f.write_str(text),
            Key::Int(value) => write!(f, "{value}"),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::Text(text.to_string())
    }
}

impl From<i64> for Key {
    fn from(value: i64) -> Key {
        Key::Int(value)
    }
}

/// Nested dicts and lists of tensors and plain values.
#[derive(Clone, Debug)]
pub enum Value<T = Tensor> {
    /// Neither tensor nor container.
    Plain(Plain),
    /// A list or tuple.
    List(Vec<Value<T>>),
    /// A dict, in order.
    Dict(Vec<(Key, Value<T>)>),
    /// A tensor.
    Tensor(T),
}

impl Value {
    /// A dict of tensors, such as [`fornax_nn::Module::state_dict`] gives.
    pub fn state_dict(tensors: &[(String, Tensor)]) -> Value {
        Value::Dict(tensors.iter().map(|(name, x)| (Key::Text(name.clone()), Value::Tensor(x.clone()))).collect())
    }
}

impl<T> Value<T> {
    /// The value under a key of a dict.
    pub fn get(&self, key: impl Into<Key>) -> Option<&Value<T>> {
        let Value::Dict(entries) = self else { return None };
        let key = key.into();
        entries.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// The plain value, if it is one.
    pub fn as_plain(&self) -> Option<&Plain> {
        if let Value::Plain(plain) = self { Some(plain) } else { None }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&T> {
        if let Value::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The values of a list.
    pub fn as_list(&self) -> Option<&[Value<T>]> {
        if let Value::List(values) = self { Some(values) } else { None }
    }

    /// Another kind of tensor at each place.
    pub(crate) fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Value<U>, E> {
        Ok(match self {
            Value::Plain(plain) => Value::Plain(plain.clone()),
            Value::List(values) => Value::List(values.iter().map(|value| value.try_map(f)).collect::<Result<_, E>>()?),
            Value::Dict(entries) => Value::Dict(
                entries.iter().map(|(key, value)| Ok((key.clone(), value.try_map(f)?))).collect::<Result<_, E>>()?,
            ),
            Value::Tensor(tensor) => Value::Tensor(f(tensor)?),
        })
    }
}
