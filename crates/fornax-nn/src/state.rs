//! Taking over values by path, strictly: what is missing, unexpected or mismatched is told with full paths.

use crate::module::{Buffer, Module, Param, Path, VisitorMut};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use fornax_tensor::{DType, Shape, Tensor};

/// An entry whose shape or dtype is not the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The entry's path.
    pub path: String,
    /// What the model has.
    pub expected: (DType, Shape),
    /// What was given.
    pub found: (DType, Shape),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((dtype, shape), (found_dtype, found_shape)) = (&self.expected, &self.found);
        write!(f, "{}: the model has {dtype}{shape}, found {found_dtype}{found_shape}", self.path)
    }
}

/// What became of the entries of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Taken over.
    pub loaded: Vec<String>,
    /// Entries of the model that were not given, with the nearest unexpected name.
    pub missing: Vec<(String, Option<String>)>,
    /// Given, but not in the model.
    pub unexpected: Vec<String>,
    /// Of another shape; or, in a strict load, of another dtype.
    pub mismatched: Vec<Mismatch>,
    /// Taken over with another dtype (lenient loads only).
    pub cast: Vec<Mismatch>,
}

impl LoadReport {
    /// Whether every entry was taken over as it is.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty() && self.cast.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loaded", self.loaded.len())?;
        for (path, nearest) in &self.missing {
            write!(f, "\nmissing    {path}")?;
            if let Some(nearest) = nearest {
                write!(f, " (did you mean {nearest}?)")?;
            }
        }
        for path in &self.unexpected {
            write!(f, "\nunexpected {path}")?;
        }
        for mismatch in &self.mismatched {
            write!(f, "\nmismatched {mismatch}")?;
        }
        for mismatch in &self.cast {
            write!(f, "\ncast       {mismatch}")?;
        }
        Ok(())
    }
}

/// A strict load that did not fit; the model is unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadError {
    /// What did not fit.
    pub report: LoadReport,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the weights do not fit the model: {}", self.report)
    }
}

impl core::error::Error for LoadError {}

pub(crate) fn load(
    module: &mut (impl Module + ?Sized),
    state: &[(String, Tensor)],
    strict: bool,
) -> Result<LoadReport, LoadError> {
    let given: BTreeMap<&str, &Tensor> = state.iter().map(|(path, tensor)| (path.as_str(), tensor)).collect();
    let mut report = LoadReport::default();
    let own = module.state_dict();
    for (path, tensor) in &own {
        let Some(found) = given.get(path.as_str()) else {
            report.missing.push((path.clone(), None));
            continue;
        };
        let mismatch = || Mismatch {
            path: path.clone(),
            expected: (tensor.dtype(), tensor.shape().clone()),
            found: (found.dtype(), found.shape().clone()),
        };
        if found.shape() != tensor.shape() || (strict && found.dtype() != tensor.dtype()) {
            report.mismatched.push(mismatch());
            continue;
        }
        if found.dtype() != tensor.dtype() {
            report.cast.push(mismatch());
        }
        report.loaded.push(path.clone());
    }
    let known: BTreeSet<&str> = own.iter().map(|(path, _)| path.as_str()).collect();
    report.unexpected =
        state.iter().filter(|(path, _)| !known.contains(path.as_str())).map(|(path, _)| path.clone()).collect();
    for (path, nearest) in &mut report.missing {
        *nearest = nearest_name(path, &report.unexpected);
    }
    if strict && !report.is_clean() {
        return Err(LoadError { report });
    }
    struct Take<'a>(&'a BTreeMap<&'a str, &'a Tensor>, &'a BTreeSet<&'a str>);
    impl Take<'_> {
        fn value(&self, path: &Path, like: &Tensor) -> Option<Tensor> {
            let tensor = self.0.get(path.as_str()).filter(|_| self.1.contains(path.as_str()))?;
            Some(tensor.to_dtype(like.dtype()).to_device(like.device()))
        }
    }
    impl VisitorMut for Take<'_> {
        fn param(&mut self, path: &Path, param: &mut Param) {
            if let Some(value) = self.value(path, param) {
                param.set(&value);
            }
        }
        fn buffer(&mut self, path: &Path, buffer: &mut Buffer) {
            if let Some(value) = self.value(path, &buffer.get()) {
                buffer.set(&value);
            }
        }
    }
    let loaded: BTreeSet<&str> = report.loaded.iter().map(String::as_str).collect();
    module.visit_mut(&mut Path::default(), &mut Take(&given, &loaded));
    Ok(report)
}

/// The name that takes the fewest edits, if it takes less than half of the letters.
fn nearest_name(name: &str, candidates: &[String]) -> Option<String> {
    let limit = name.chars().count() / 2;
    let best = candidates.iter().map(|candidate| (edits(name, candidate), candidate)).min()?;
    (best.0 <= limit).then(|| best.1.clone())
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linear;
    use alloc::string::ToString;
    use fornax_tensor::Device;

    #[test]
    fn strict_loading_names_what_does_not_fit() {
        let device = Device::reference();
        let mut layer = Linear::new(2, 3, &device);
        let before = layer.weight.to_vec::<f32>();
        let state = [
            (String::from("wieght"), Tensor::zeros([3, 2], &device)),
            (String::from("bias"), Tensor::zeros([4], &device)),
        ];
        let error = layer.load_state_dict(&state).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the weights do not fit the model: 0 loaded\n\
             missing    weight (did you mean wieght?)\n\
             unexpected wieght\n\
             mismatched bias: the model has f32[3], found f32[4]"
        );
        assert_eq!(layer.weight.to_vec::<f32>(), before);
    }

    #[test]
    fn lenient_loading_casts_and_tells() {
        let device = Device::reference();
        let mut layer = Linear::new(2, 1, &device);
        let weight = Tensor::ones([1, 2], &device).to_dtype(DType::F16);
        let report = layer.load_state_dict_lenient(&[(String::from("weight"), weight)]);
        assert_eq!(report.cast.len(), 1);
        assert_eq!(report.missing.len(), 1);
        assert_eq!(layer.weight.dtype(), DType::F32);
        assert_eq!(layer.weight.to_vec::<f32>(), [1.0, 1.0]);
        assert_eq!(report.missing[0].0, "bias");
    }
}
