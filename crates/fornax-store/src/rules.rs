//! [`Rule`]: how the entries of a file become those of a model, as data.

use crate::lazy::LazyTensor;
use crate::{Error, ErrorKind, Weights};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fornax_tensor::{DType, Shape, Tensor};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// One step from the names and layouts of a file to those of a model. Patterns are regular expressions that match the
/// whole name; in replacements, `$1` or `${1}` is what the first group matched. Rules are data: they can be kept as JSON.
///
/// ```
/// use fornax_store::Rule;
/// let rules: Vec<Rule> = serde_json::from_str(r#"[
///     {"drop": {"pattern": ".*\\.position_ids"}},
///     {"rename": {"pattern": "transformer\\.h\\.(.*)", "to": "blocks.$1"}},
///     {"split": {"pattern": "(.*)\\.attn\\.qkv\\.(weight|bias)", "into": ["$1.q.$2", "$1.k.$2", "$1.v.$2"], "dim": 0}}
/// ]"#)?;
/// assert_eq!(rules[1], Rule::rename("transformer\\.h\\.(.*)", "blocks.$1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Rule {
    /// Another name.
    Rename {
        /// Which tensors.
        pattern: String,
        /// The new name.
        to: String,
    },
    /// Leaves all others out.
    Keep {
        /// Which tensors.
        pattern: String,
    },
    /// Leaves them out.
    Drop {
        /// Which tensors.
        pattern: String,
    },
    /// Swaps the last two dims.
    Transpose {
        /// Which tensors.
        pattern: String,
    },
    /// Puts dims in another order.
    Permute {
        /// Which tensors.
        pattern: String,
        /// The old dim at each place.
        dims: Vec<usize>,
    },
    /// Cuts each into equal parts.
    Split {
        /// Which tensors.
        pattern: String,
        /// The names of the parts.
        into: Vec<String>,
        /// Which dim is cut.
        dim: usize,
    },
    /// Joins several.
    Concat {
        /// A pattern for each part, in order; parts with the same new name belong together.
        parts: Vec<String>,
        /// The new name, from the groups of any part.
        to: String,
        /// Along which dim.
        dim: usize,
    },
    /// Converts to another dtype.
    Cast {
        /// Which tensors.
        pattern: String,
        /// The dtype's name, such as `f32`.
        dtype: String,
    },
}

impl Rule {
    /// [`Rule::Rename`].
    pub fn rename(pattern: &str, to: &str) -> Rule {
        Rule::Rename { pattern: pattern.to_string(), to: to.to_string() }
    }
}

type Entries = Vec<(String, LazyTensor)>;

impl Weights {
    /// Applies rules, one after another, each to what the one before left. Nothing is read.
    ///
    /// # Errors
    /// If a pattern is no regular expression, a rule does not fit the shape of what it matches, parts are missing, or two
    /// entries get one name.
    pub fn apply(&self, rules: &[Rule]) -> Result<Weights, Error> {
        rules.iter().try_fold(self.clone(), |weights, rule| {
            let tensors = apply(rule, weights.tensors()).map_err(|error| self.at(error))?;
            weights.with_tensors(tensors)
        })
    }
}

fn apply(rule: &Rule, tensors: &[(String, LazyTensor)]) -> Result<Entries, Error> {
    match rule {
        Rule::Rename { pattern, to } => {
            let pattern = whole(pattern)?;
            let renamed = |(name, tensor): &(String, LazyTensor)| {
                (expanded(&pattern, name, to).unwrap_or_else(|| name.clone()), tensor.clone())
            };
            Ok(tensors.iter().map(renamed).collect())
        }
        Rule::Keep { pattern } => {
            let pattern = whole(pattern)?;
            Ok(tensors.iter().filter(|(name, _)| pattern.is_match(name)).cloned().collect())
        }
        Rule::Drop { pattern } => {
            let pattern = whole(pattern)?;
            Ok(tensors.iter().filter(|(name, _)| !pattern.is_match(name)).cloned().collect())
        }
        Rule::Transpose { pattern } => each(tensors, pattern, |name, tensor| match tensor.shape().len() {
            rank @ 2.. => {
                let mut dims: Vec<usize> = (0..rank).collect();
                dims.swap(rank - 2, rank - 1);
                permuted(name, tensor, &dims)
            }
            _ => Err(unfit(name, tensor, "has no two dims to transpose")),
        }),
        Rule::Permute { pattern, dims } => each(tensors, pattern, |name, tensor| permuted(name, tensor, dims)),
        Rule::Cast { pattern, dtype } => {
            let Some(dtype) = DType::from_name(dtype) else { return Err(bad(format!("there is no dtype {dtype}"))) };
            each(tensors, pattern, |_, tensor| {
                Ok(tensor.then(dtype, tensor.shape().clone(), move |x| Ok(x.to_dtype(dtype))))
            })
        }
        Rule::Split { pattern, into, dim } => split(tensors, &whole(pattern)?, into, *dim),
        Rule::Concat { parts, to, dim } => concat(tensors, parts, to, *dim),
    }
}

fn each(
    tensors: &[(String, LazyTensor)],
    pattern: &str,
    f: impl Fn(&str, &LazyTensor) -> Result<LazyTensor, Error>,
) -> Result<Entries, Error> {
    let pattern = whole(pattern)?;
    let changed = |(name, tensor): &(String, LazyTensor)| {
        let tensor = if pattern.is_match(name) { f(name, tensor)? } else { tensor.clone() };
        Ok((name.clone(), tensor))
    };
    tensors.iter().map(changed).collect()
}

fn permuted(name: &str, tensor: &LazyTensor, dims: &[usize]) -> Result<LazyTensor, Error> {
    let shape = tensor.shape();
    let mut sorted = dims.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..shape.len()) {
        return Err(unfit(name, tensor, &format!("cannot be permuted by {dims:?}")));
    }
    let order: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    let shape = dims.iter().map(|&dim| shape[dim]).collect();
    Ok(tensor.then(tensor.dtype(), shape, move |x| x.try_permute(&order)))
}

fn split(tensors: &[(String, LazyTensor)], pattern: &Regex, into: &[String], dim: usize) -> Result<Entries, Error> {
    let mut result = Vec::new();
    for (name, tensor) in tensors {
        if !pattern.is_match(name) {
            result.push((name.clone(), tensor.clone()));
            continue;
        }
        let shape = tensor.shape();
        if into.is_empty() || dim >= shape.len() || !shape[dim].is_multiple_of(into.len()) {
            return Err(unfit(name, tensor, &format!("cannot be split into {} parts along dim {dim}", into.len())));
        }
        let size = shape[dim] / into.len();
        let part: Shape = shape.iter().enumerate().map(|(i, &old)| if i == dim { size } else { old }).collect();
        for (i, to) in into.iter().enumerate() {
            let start = (i * size) as i64;
            let part = tensor.then(tensor.dtype(), part.clone(), move |x| x.try_narrow(dim as i64, start, size));
            result.push((expanded(pattern, name, to).unwrap_or_default(), part));
        }
    }
    Ok(result)
}

fn concat(tensors: &[(String, LazyTensor)], parts: &[String], to: &str, dim: usize) -> Result<Entries, Error> {
    let patterns = parts.iter().map(|pattern| whole(pattern)).collect::<Result<Vec<_>, _>>()?;
    let mut joined: BTreeMap<String, Vec<Option<(&str, &LazyTensor)>>> = BTreeMap::new();
    // What is joined comes where its first part was.
    let mut order: Vec<(String, Option<&LazyTensor>)> = Vec::new();
    for (name, tensor) in tensors {
        let found = patterns.iter().enumerate().find_map(|(i, pattern)| Some((i, expanded(pattern, name, to)?)));
        let Some((i, target)) = found else {
            order.push((name.clone(), Some(tensor)));
            continue;
        };
        let slots = joined.entry(target.clone()).or_insert_with(|| {
            order.push((target.clone(), None));
            vec![None; patterns.len()]
        });
        if let Some((other, _)) = slots[i].replace((name, tensor)) {
            return Err(bad(format!("{other} and {name} are both part {i} of {target}")));
        }
    }
    let join = |(name, tensor): (String, Option<&LazyTensor>)| {
        let Some(slots) = joined.get(&name).filter(|_| tensor.is_none()) else {
            return Ok((name, tensor.expect("what is not joined is itself").clone()));
        };
        let mut found = Vec::new();
        for (slot, pattern) in slots.iter().zip(parts) {
            found.push(slot.ok_or_else(|| bad(format!("{name}: no part is called {pattern}")))?);
        }
        Ok((name, joint(&found, dim)?))
    };
    order.into_iter().map(join).collect()
}

fn joint(parts: &[(&str, &LazyTensor)], dim: usize) -> Result<LazyTensor, Error> {
    let Some(&(_, first)) = parts.first() else { return Err(bad("nothing to join".to_string())) };
    let mut size = 0;
    for &(name, part) in parts {
        let (shape, like) = (part.shape(), first.shape());
        let fits = shape.len() == like.len() && dim < like.len() && part.dtype() == first.dtype();
        if !fits || (0..like.len()).any(|i| i != dim && shape[i] != like[i]) {
            return Err(unfit(name, part, &format!("cannot be joined to {}{like} along dim {dim}", first.dtype())));
        }
        size += shape[dim];
    }
    let shape = first.shape().iter().enumerate().map(|(i, &old)| if i == dim { size } else { old }).collect();
    let parts: Vec<LazyTensor> = parts.iter().map(|(_, part)| (*part).clone()).collect();
    Ok(LazyTensor::new(first.dtype(), shape, move |device| {
        let read = parts.iter().map(|part| part.read(device)).collect::<Result<Vec<Tensor>, _>>()?;
        Tensor::try_cat(&read.iter().collect::<Vec<_>>(), dim as i64).map_err(crate::lazy::on_device)
    }))
}

/// A pattern that matches whole names.
fn whole(pattern: &str) -> Result<Regex, Error> {
    Regex::new(&format!("^(?:{pattern})$")).map_err(|error| bad(format!("pattern {pattern}: {error}")))
}

/// The replacement for a name, if the pattern matches it.
fn expanded(pattern: &Regex, name: &str, to: &str) -> Option<String> {
    let mut expanded = String::new();
    pattern.captures(name)?.expand(to, &mut expanded);
    Some(expanded)
}

fn unfit(name: &str, tensor: &LazyTensor, what: &str) -> Error {
    bad(format!("{name}: {}{} {what}", tensor.dtype(), tensor.shape()))
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::Rule, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_tensor::Device;

    fn weights(entries: &[(&str, &[usize])]) -> Weights {
        let tensors = entries.iter().map(|&(name, shape)| {
            let shape = Shape::from(shape);
            let values = shape.clone();
            let read = move |device: &Device| {
                Ok(Tensor::arange(0, values.numel() as i64, 1, DType::F32, device).reshape(&values))
            };
            (name.to_string(), LazyTensor::new(DType::F32, shape, read))
        });
        Weights::new(tensors.collect(), Vec::new()).unwrap()
    }

    fn names(weights: &Weights) -> Vec<&str> {
        weights.names().collect()
    }

    #[test]
    fn names_change_by_whole_patterns_in_turn() {
        let file = weights(&[("model.h.0.w", &[2]), ("h", &[1]), ("model.extra", &[1])]);
        let rules = [
            Rule::rename(r"model\.(.*)", "$1"),
            Rule::rename(r"h\.(\d+)\.(w)", "blocks.$1.${2}eight"),
            Rule::Drop { pattern: "ext.*".into() },
        ];
        assert_eq!(names(&file.apply(&rules).unwrap()), ["blocks.0.weight", "h"]);
        assert_eq!(names(&file.apply(&[Rule::Keep { pattern: "h|x".into() }]).unwrap()), ["h"]);
    }

    #[test]
    fn parts_are_split_joined_and_turned() {
        let device = Device::reference();
        let file = weights(&[("a.qkv", &[6, 2]), ("b.qkv", &[3, 1])]);
        let split = Rule::Split {
            pattern: r"(\w)\.qkv".into(),
            into: vec!["$1.q".into(), "$1.k".into(), "$1.v".into()],
            dim: 0,
        };
        let apart = file.apply(core::slice::from_ref(&split)).unwrap();
        assert_eq!(names(&apart), ["a.q", "a.k", "a.v", "b.q", "b.k", "b.v"]);
        assert_eq!(apart.read("a.k", &device).unwrap().to_vec::<f32>(), [4.0, 5.0, 6.0, 7.0]);

        let parts = vec![r"(\w)\.v".into(), r"(\w)\.q".into(), r"(\w)\.k".into()];
        let joined = apart.apply(&[Rule::Concat { parts, to: "$1.vqk".into(), dim: 0 }]).unwrap();
        assert_eq!(names(&joined), ["a.vqk", "b.vqk"]);
        assert_eq!(joined.get("a.vqk").unwrap().shape()[..], [6, 2]);
        assert_eq!(joined.read("b.vqk", &device).unwrap().to_vec::<f32>(), [2.0, 0.0, 1.0]);

        let turned = apart.apply(&[Rule::Transpose { pattern: r"a\..*".into() }]).unwrap();
        let turned = turned.read("a.q", &device).unwrap();
        assert_eq!(turned.dims(), [2, 2]);
        assert_eq!(turned.to_vec::<f32>(), [0.0, 2.0, 1.0, 3.0]);
        let cast = apart.apply(&[Rule::Cast { pattern: ".*".into(), dtype: "f16".into() }]).unwrap();
        assert_eq!(cast.read("b.q", &device).unwrap().dtype(), DType::F16);
    }

    #[test]
    fn rules_that_do_not_fit_say_why() {
        let file = weights(&[("a", &[3, 2]), ("b", &[4])]);
        for (rule, message) in [
            (Rule::rename("a|b", "c"), "c: two entries have this name"),
            (Rule::rename("(", "c"), "pattern (: "),
            (Rule::Transpose { pattern: ".*".into() }, "b: f32[4] has no two dims to transpose"),
            (Rule::Permute { pattern: "a".into(), dims: vec![0, 0] }, "a: f32[3, 2] cannot be permuted by [0, 0]"),
            (
                Rule::Split { pattern: "a".into(), into: vec!["x".into(), "y".into()], dim: 0 },
                "a: f32[3, 2] cannot be split into 2 parts along dim 0",
            ),
            (Rule::Concat { parts: vec!["a".into(), "z".into()], to: "c".into(), dim: 0 }, "c: no part is called z"),
            (
                Rule::Concat { parts: vec!["a".into(), "b".into()], to: "c".into(), dim: 0 },
                "b: f32[4] cannot be joined to f32[3, 2] along dim 0",
            ),
            (Rule::Cast { pattern: "a".into(), dtype: "f7".into() }, "there is no dtype f7"),
        ] {
            let error = file.apply(core::slice::from_ref(&rule)).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }
}
