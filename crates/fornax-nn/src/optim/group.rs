//! [`Selection`] and [`Group`]: which parameters, and what is done differently with them.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use fornax_tensor::Tensor;

/// Which parameters an optimizer trains, by path and value; all by default.
///
/// ```
/// use fornax_nn::optim::{AdamW, Selection};
/// let optimizer = AdamW::new(1e-3)
///     .only(Selection::under("decoder"))
///     .group(Selection::of(|_, value| value.rank() < 2), |group| group.weight_decay(0.0))
///     .group(Selection::regex(r"^decoder\.layers\.[01]\.").unwrap(), |group| group.lr(1e-4));
/// ```
#[derive(Clone, Default)]
pub struct Selection(Option<Arc<Select>>);

type Select = dyn Fn(&str, &Tensor) -> bool + Send + Sync;

impl Selection {
    /// Those for which `select` is true, given their path and value.
    pub fn of(select: impl Fn(&str, &Tensor) -> bool + Send + Sync + 'static) -> Selection {
        Selection(Some(Arc::new(select)))
    }

    /// The parameter at `path`, and all parameters below it.
    pub fn under(path: &str) -> Selection {
        let path = String::from(path);
        Selection::of(move |other, _| is_under(other, &path))
    }

    /// Those whose path matches a regular expression somewhere.
    ///
    /// # Errors
    /// If the expression is none, with what is wrong about it.
    #[cfg(feature = "std")]
    pub fn regex(pattern: &str) -> Result<Selection, String> {
        let regex = regex_lite::Regex::new(pattern).map_err(|error| alloc::format!("{error}"))?;
        Ok(Selection::of(move |path, _| regex.is_match(path)))
    }

    /// Whether a parameter is one of them.
    pub fn includes(&self, path: &str, param: &Tensor) -> bool {
        self.0.as_ref().is_none_or(|select| select(path, param))
    }
}

/// All others.
impl core::ops::Not for Selection {
    type Output = Selection;
    fn not(self) -> Selection {
        Selection::of(move |path, param| !self.includes(path, param))
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Selection(by function)" } else { "Selection(all)" })
    }
}

/// Whether `path` is `prefix` or lies below it; everything lies below `""`.
pub(crate) fn is_under(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// Parameters that an optimizer treats with settings of their own.
#[derive(Clone, Debug)]
pub struct Group<O> {
    /// Which.
    pub select: Selection,
    /// The settings; their `lr` follows from `lr_scale`.
    pub settings: O,
    /// Its learning rate, as a multiple of the optimizer's: what schedules do to the one they do to the other.
    pub lr_scale: f64,
}
