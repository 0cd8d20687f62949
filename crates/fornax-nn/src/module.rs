//! [`Module`]: whatever holds parameters. A visitor walks them by path; everything else is built on it.

use crate::state::{LoadError, LoadReport};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, Range};
use fornax_tensor::{
    AvgPoolOptions, BagMode, ConvOptions, ConvTransposeOptions, DType, Device, InterpolateOptions, PadMode, Padding,
    PerDim, PoolOptions, Reduction, Scalar, Shape, Tensor, UnfoldOptions,
};

/// A trainable tensor: a leaf that gradients are collected for. Derefs to [`Tensor`].
///
/// ```
/// use fornax_nn::Param;
/// use fornax_tensor::{Device, Tensor};
/// let weight = Param::new(&Tensor::zeros([3], &Device::cpu()));
/// assert!(weight.is_tracked());
/// ```
#[derive(Clone, Debug)]
pub struct Param {
    tensor: Tensor,
    trainable: bool,
}

impl Param {
    /// A trainable parameter with this value.
    ///
    /// # Panics
    /// If the dtype is not a float.
    #[track_caller]
    pub fn new(value: &Tensor) -> Param {
        Param { tensor: value.detach().requires_grad(), trainable: true }
    }

    /// What a layer computes with in one call: `value` keeps its own gradient.
    pub(crate) fn computed(value: &Tensor) -> Param {
        Param { tensor: value.clone(), trainable: value.is_tracked() }
    }

    /// Gives it another value; whether it is trained stays as it was.
    #[track_caller]
    pub fn set(&mut self, value: &Tensor) {
        let value = value.detach();
        self.tensor = if self.trainable { value.requires_grad() } else { value };
    }

    /// Whether gradients are collected for it.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Starts or stops collecting gradients for it.
    pub fn set_trainable(&mut self, trainable: bool) {
        self.trainable = trainable;
        let value = self.tensor.detach();
        self.set(&value);
    }
}

impl Deref for Param {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

/// State that is saved with a model but not trained, such as running statistics. It can be set through `&self`, since
/// `forward` updates it.
pub struct Buffer {
    value: spin::Mutex<Tensor>,
    is_persistent: bool,
}

impl Buffer {
    /// A buffer with this value.
    pub fn new(value: &Tensor) -> Buffer {
        Buffer { value: spin::Mutex::new(value.detach()), is_persistent: true }
    }

    /// A buffer that is not saved, since it can be made again.
    pub fn transient(value: &Tensor) -> Buffer {
        Buffer { is_persistent: false, ..Buffer::new(value) }
    }

    /// Whether it is saved with a model.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// The value.
    pub fn get(&self) -> Tensor {
        self.value.lock().clone()
    }

    /// Gives it another value.
    pub fn set(&self, value: &Tensor) {
        // The old value is dropped outside the lock.
        let _old = core::mem::replace(&mut *self.value.lock(), value.detach());
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer { value: spin::Mutex::new(self.get()), is_persistent: self.is_persistent }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.get()).finish()
    }
}

/// Whether a layer trains or evaluates; [`Module::train`] and [`Module::eval`] switch all of a model at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    is_training: bool,
    /// Whether running statistics are the mean over all batches, whatever the layer's momentum: for
    /// [`crate::update_batch_norm`], which needs batch norms in training and all else in evaluation.
    is_measuring: bool,
}

impl Mode {
    /// Training: dropout drops, batch norm measures.
    pub fn is_training(self) -> bool {
        self.is_training
    }

    /// Switches to training or evaluation.
    pub fn set_training(&mut self, is_training: bool) {
        self.is_training = is_training;
    }

    pub(crate) fn set_measuring(&mut self, is_measuring: bool) {
        self.is_measuring = is_measuring;
    }

    /// Whether a layer with running statistics takes those of the batch.
    pub(crate) fn measures(self) -> bool {
        self.is_training || self.is_measuring
    }

    /// The momentum of running statistics, given that of the layer.
    pub(crate) fn momentum(self, own: Option<f64>) -> Option<f64> {
        if self.is_measuring { None } else { own }
    }
}

impl Default for Mode {
    /// Training, as in PyTorch.
    fn default() -> Mode {
        Mode { is_training: true, is_measuring: false }
    }
}

/// The dotted name of a place in a model: `encoder.0.weight`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    text: String,
    /// Length of the text before each segment.
    marks: Vec<usize>,
}

impl Path {
    /// Goes down to a field, list entry or key.
    pub fn push(&mut self, segment: &str) {
        self.marks.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(segment);
    }

    /// Goes back up.
    ///
    /// # Panics
    /// If it is at the top.
    pub fn pop(&mut self) {
        let mark = self.marks.pop().expect("every pop follows a push");
        self.text.truncate(mark);
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many segments it has.
    pub fn depth(&self) -> usize {
        self.marks.len()
    }

    /// The last segment.
    pub fn last(&self) -> &str {
        self.text.rsplit('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What is done at each place of a model. All methods do nothing by default.
pub trait Visitor<'a> {
    /// A parameter.
    fn param(&mut self, _path: &Path, _param: &'a Param) {}
    /// A buffer.
    fn buffer(&mut self, _path: &Path, _buffer: &'a Buffer) {}
    /// A plain setting, such as a number; the path's last segment is its name.
    fn setting(&mut self, _path: &Path, _value: &dyn fmt::Debug) {}
    /// A module begins; `address` is where it lies in memory.
    fn enter(&mut self, _path: &Path, _type_name: &'static str, _address: usize) {}
    /// A module ends.
    fn leave(&mut self, _path: &Path) {}
}

/// What is done at each place of a model that may change it. All methods do nothing by default.
pub trait VisitorMut {
    /// A parameter.
    fn param(&mut self, _path: &Path, _param: &mut Param) {}
    /// A buffer.
    fn buffer(&mut self, _path: &Path, _buffer: &mut Buffer) {}
    /// A layer's mode.
    fn mode(&mut self, _path: &Path, _mode: &mut Mode) {}
}

/// A layer or a model: whatever holds parameters, buffers and modes. Derive it.
///
/// ```
/// use fornax_nn::{Linear, Module};
/// use fornax_tensor::{Device, Tensor};
///
/// #[derive(Module, Debug, Clone)]
/// struct Mlp { fc1: Linear, fc2: Linear }
/// # extern crate fornax_nn as fornax;
///
/// let device = Device::cpu();
/// let model = Mlp { fc1: Linear::new(4, 8, &device), fc2: Linear::new(8, 2, &device) };
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
/// assert_eq!(model.num_parameters(), 4 * 8 + 8 + 8 * 2 + 2);
/// ```
pub trait Module {
    /// Shows the visitor every parameter and buffer, in the order of the fields.
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>);

    /// Shows the visitor every parameter, buffer and mode, to change.
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut);

    /// All parameters with their paths, in the order of the fields.
    fn named_parameters(&self) -> Vec<(String, &Param)> {
        struct Collect<'a>(Vec<(String, &'a Param)>);
        impl<'a> Visitor<'a> for Collect<'a> {
            fn param(&mut self, path: &Path, param: &'a Param) {
                self.0.push((path.to_string(), param));
            }
        }
        let mut collect = Collect(Vec::new());
        self.visit(&mut Path::default(), &mut collect);
        collect.0
    }

    /// All buffers with their paths, in the order of the fields.
    fn named_buffers(&self) -> Vec<(String, &Buffer)> {
        struct Collect<'a>(Vec<(String, &'a Buffer)>);
        impl<'a> Visitor<'a> for Collect<'a> {
            fn buffer(&mut self, path: &Path, buffer: &'a Buffer) {
                self.0.push((path.to_string(), buffer));
            }
        }
        let mut collect = Collect(Vec::new());
        self.visit(&mut Path::default(), &mut collect);
        collect.0
    }

    /// The parameters, in the order of the fields.
    fn parameters(&self) -> Vec<&Param> {
        self.named_parameters().into_iter().map(|(_, param)| param).collect()
    }

    /// The values of all parameters and persistent buffers by path, in the order of the fields: what is saved.
    fn state_dict(&self) -> Vec<(String, Tensor)> {
        struct Collect(Vec<(String, Tensor)>);
        impl<'a> Visitor<'a> for Collect {
            fn param(&mut self, path: &Path, param: &'a Param) {
                self.0.push((path.to_string(), param.detach()));
            }
            fn buffer(&mut self, path: &Path, buffer: &'a Buffer) {
                if buffer.is_persistent() {
                    self.0.push((path.to_string(), buffer.get()));
                }
            }
        }
        let mut collect = Collect(Vec::new());
        self.visit(&mut Path::default(), &mut collect);
        collect.0
    }

    /// Takes over values by path. Strict: nothing is changed unless every entry of the model is there, fits in shape and
    /// dtype, and nothing is left over.
    ///
    /// # Errors
    /// What is missing, unexpected or mismatched, with full paths and nearest names.
    fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<(), LoadError> {
        crate::state::load(self, state, true).map(|_| ())
    }

    /// Takes over those values that fit, cast to the model's dtypes, and tells what did not.
    fn load_state_dict_lenient(&mut self, state: &[(String, Tensor)]) -> LoadReport {
        match crate::state::load(self, state, false) {
            Ok(report) => report,
            Err(_) => unreachable!("a lenient load reports, it does not fail"),
        }
    }

    /// Number of parameters, in elements.
    fn num_parameters(&self) -> usize {
        self.named_parameters().iter().map(|(_, param)| param.numel()).sum()
    }

    /// Switches to training: dropout drops, batch norm measures.
    fn train(&mut self) -> &mut Self
    where
        Self: Sized,
    {
        set_training(self, true);
        self
    }

    /// Switches to evaluation.
    fn eval(&mut self) -> &mut Self
    where
        Self: Sized,
    {
        set_training(self, false);
        self
    }

    /// Moves all parameters and buffers to a device.
    fn to_device(&mut self, device: &Device) -> &mut Self
    where
        Self: Sized,
    {
        map_tensors(self, &mut |x| x.to_device(device));
        self
    }

    /// Converts all parameters and buffers of float dtype.
    fn to_dtype(&mut self, dtype: DType) -> &mut Self
    where
        Self: Sized,
    {
        map_tensors(self, &mut |x| if x.dtype().is_float() { x.to_dtype(dtype) } else { x.clone() });
        self
    }

    /// Moves all parameters and float buffers towards those of another model of the same structure: by `weight`, where 1
    /// takes them over. After each training step it makes `self` an exponential moving average. Other buffers are taken
    /// over.
    ///
    /// ```
    /// use fornax_nn::{Linear, Module};
    /// use fornax_tensor::Device;
    /// let model = Linear::new(2, 2, &Device::cpu());
    /// let mut average = model.clone();
    /// average.blend(&model, 0.01);
    /// ```
    ///
    /// # Panics
    /// If the other model has other parameters or shapes.
    #[track_caller]
    fn blend(&mut self, other: &dyn Module, weight: f64) -> &mut Self
    where
        Self: Sized,
    {
        let own: BTreeMap<String, Tensor> = self.state_dict().into_iter().collect();
        let blended: Vec<(String, Tensor)> = other
            .state_dict()
            .into_iter()
            .map(|(path, theirs)| {
                let value = match own.get(&path) {
                    Some(ours) if theirs.dtype().is_float() && ours.shape() == theirs.shape() => {
                        ours + (theirs - ours) * weight
                    }
                    _ => theirs,
                };
                (path, value)
            })
            .collect();
        if let Err(error) = self.load_state_dict(&blended) {
            panic!("blend: {error}");
        }
        self
    }

    /// Stops (or starts again) training the parameters whose path begins with `prefix`; `""` stands for all.
    fn set_trainable(&mut self, prefix: &str, trainable: bool) -> &mut Self
    where
        Self: Sized,
    {
        struct Set<'a>(&'a str, bool);
        impl VisitorMut for Set<'_> {
            fn param(&mut self, path: &Path, param: &mut Param) {
                if crate::optim::is_under(path.as_str(), self.0) {
                    param.set_trainable(self.1);
                }
            }
        }
        self.visit_mut(&mut Path::default(), &mut Set(prefix, trainable));
        self
    }
}

fn set_training(module: &mut (impl Module + ?Sized), is_training: bool) {
    struct Set(bool);
    impl VisitorMut for Set {
        fn mode(&mut self, _: &Path, mode: &mut Mode) {
            mode.is_training = self.0;
        }
    }
    module.visit_mut(&mut Path::default(), &mut Set(is_training));
}

fn map_tensors(module: &mut (impl Module + ?Sized), f: &mut dyn FnMut(&Tensor) -> Tensor) {
    struct Map<'a>(&'a mut dyn FnMut(&Tensor) -> Tensor);
    impl VisitorMut for Map<'_> {
        fn param(&mut self, _: &Path, param: &mut Param) {
            let value = (self.0)(&param.detach());
            param.set(&value);
        }
        fn buffer(&mut self, _: &Path, buffer: &mut Buffer) {
            buffer.set(&(self.0)(&buffer.get()));
        }
    }
    module.visit_mut(&mut Path::default(), &mut Map(f));
}

/// Writes a module as a tree: names, types, settings, and the shapes of parameters and buffers. It is what `{}` shows of a
/// derived module.
///
/// ```
/// use fornax_nn::LayerNorm;
/// use fornax_tensor::Device;
/// let norm = LayerNorm::new(8, &Device::cpu());
/// assert_eq!(norm.to_string(), "LayerNorm(eps: 1e-5, normalized_shape: [8])\n  weight: f32[8]\n  bias: f32[8]");
/// ```
///
/// # Errors
/// If the formatter does.
pub fn fmt_tree(module: &dyn Module, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    /// A module that is being visited.
    struct Open {
        line: usize,
        depth: usize,
        settings: Vec<(String, Vec<String>)>,
    }
    #[derive(Default)]
    struct Tree {
        lines: Vec<String>,
        open: Vec<Open>,
    }
    impl Tree {
        fn line(&mut self, path: &Path, text: &str) {
            let name = if path.depth() > 0 { format!("{}: ", path.last()) } else { String::new() };
            self.lines.push(format!("{}{name}{text}", "  ".repeat(path.depth())));
        }
    }
    impl<'a> Visitor<'a> for Tree {
        fn enter(&mut self, path: &Path, type_name: &'static str, _: usize) {
            // A module at the place of another is a flattened part of it.
            let line = match self.open.last() {
                Some(open) if open.depth == path.depth() => open.line,
                _ => {
                    self.line(path, type_name);
                    self.lines.len() - 1
                }
            };
            self.open.push(Open { line, depth: path.depth(), settings: Vec::new() });
        }
        fn leave(&mut self, _: &Path) {
            let Some(open) = self.open.pop() else { return };
            let show = |(name, values): (String, Vec<String>)| match values.as_slice() {
                [value] => format!("{name}: {value}"),
                values => format!("{name}: [{}]", values.join(", ")),
            };
            let settings: Vec<String> = open.settings.into_iter().map(show).collect();
            if !settings.is_empty() {
                self.lines[open.line].push_str(&format!("({})", settings.join(", ")));
            }
        }
        fn setting(&mut self, path: &Path, value: &dyn fmt::Debug) {
            let Some(open) = self.open.last_mut() else { return };
            // Entries of a list stand under the name of the list.
            let Some(name) = path.as_str().split('.').nth(open.depth) else { return };
            let value = format!("{value:?}");
            match open.settings.last_mut().filter(|(last, _)| last == name && path.depth() > open.depth + 1) {
                Some((_, values)) => values.push(value),
                None => open.settings.push((name.to_string(), Vec::from([value]))),
            }
        }
        fn param(&mut self, path: &Path, param: &'a Param) {
            let frozen = if param.is_trainable() { "" } else { ", frozen" };
            self.line(path, &format!("{}{}{frozen}", param.dtype(), param.shape()));
        }
        fn buffer(&mut self, path: &Path, buffer: &'a Buffer) {
            let value = buffer.get();
            self.line(path, &format!("{}{}, buffer", value.dtype(), value.shape()));
        }
    }
    let mut tree = Tree::default();
    module.visit(&mut Path::default(), &mut tree);
    f.write_str(&tree.lines.join("\n"))
}

impl Module for Param {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        visitor.param(path, self);
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visitor.param(path, self);
    }
}

impl Module for Buffer {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        visitor.buffer(path, self);
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visitor.buffer(path, self);
    }
}

impl Module for Mode {
    fn visit<'a>(&'a self, _: &mut Path, _: &mut dyn Visitor<'a>) {}
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visitor.mode(path, self);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        if let Some(module) = self {
            module.visit(path, visitor);
        }
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        if let Some(module) = self {
            module.visit_mut(path, visitor);
        }
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        (**self).visit(path, visitor);
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        (**self).visit_mut(path, visitor);
    }
}

/// Entries are named by their position.
impl<M: Module> Module for Vec<M> {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        for (i, module) in self.iter().enumerate() {
            path.push(&i.to_string());
            module.visit(path, visitor);
            path.pop();
        }
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        for (i, module) in self.iter_mut().enumerate() {
            path.push(&i.to_string());
            module.visit_mut(path, visitor);
            path.pop();
        }
    }
}

/// Entries are named by their position.
impl<M: Module, const N: usize> Module for [M; N] {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        for (i, module) in self.iter().enumerate() {
            path.push(&i.to_string());
            module.visit(path, visitor);
            path.pop();
        }
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        for (i, module) in self.iter_mut().enumerate() {
            path.push(&i.to_string());
            module.visit_mut(path, visitor);
            path.pop();
        }
    }
}

/// Entries are named by their key.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        for (key, module) in self {
            path.push(key);
            module.visit(path, visitor);
            path.pop();
        }
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        for (key, module) in self {
            path.push(key);
            module.visit_mut(path, visitor);
            path.pop();
        }
    }
}

/// Tuples of modules, named by position: a sequence of layers of different types.
macro_rules! tuples {
    ($(($($name:ident $index:tt)*))*) => {$(
        impl<$($name: Module),*> Module for ($($name,)*) {
            fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
                $(
                    path.push(stringify!($index));
                    self.$index.visit(path, visitor);
                    path.pop();
                )*
            }
            fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
                $(
                    path.push(stringify!($index));
                    self.$index.visit_mut(path, visitor);
                    path.pop();
                )*
            }
        }
    )*};
}

tuples!((A 0)(A 0 B 1)(A 0 B 1 C 2)(A 0 B 1 C 2 D 3)(A 0 B 1 C 2 D 3 E 4)(A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11));

/// Plain settings hold nothing but themselves.
macro_rules! settings {
    ($($ty:ty),* $(,)?) => {$(
        impl Module for $ty {
            fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
                visitor.setting(path, self);
            }
            fn visit_mut(&mut self, _: &mut Path, _: &mut dyn VisitorMut) {}
        }
    )*};
}

impl Module for () {
    fn visit<'a>(&'a self, _: &mut Path, _: &mut dyn Visitor<'a>) {}
    fn visit_mut(&mut self, _: &mut Path, _: &mut dyn VisitorMut) {}
}

impl<T: ?Sized> Module for PhantomData<T> {
    fn visit<'a>(&'a self, _: &mut Path, _: &mut dyn Visitor<'a>) {}
    fn visit_mut(&mut self, _: &mut Path, _: &mut dyn VisitorMut) {}
}

impl<T: fmt::Debug> Module for Range<T> {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        visitor.setting(path, self);
    }
    fn visit_mut(&mut self, _: &mut Path, _: &mut dyn VisitorMut) {}
}

settings!(
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    u128,
    i128,
    String,
    &'static str,
    Shape,
    Scalar,
    DType,
    PadMode,
    Padding,
    PerDim,
    BagMode,
    UnfoldOptions,
    InterpolateOptions,
    ConvOptions,
    ConvTransposeOptions,
    PoolOptions,
    AvgPoolOptions,
    Reduction,
);
