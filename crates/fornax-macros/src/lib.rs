//! The macros of Fornax: `#[ops]` for the ops of a tensor, `#[derive(Module)]` for models.

mod module;
mod ops;
mod traced;

use proc_macro::TokenStream;

/// Turns the methods of an `impl Tensor` block into ops: public methods, `try_` twins, and a list of records.
///
/// `group` is the family the ops are listed under, `records` the name of the list. Each method marked `#[op]` is an op;
/// all others stay as they are. For
///
/// ```ignore
/// #[ops(group = "unary", records = RECORDS)]
/// impl Tensor {
///     /// `√self`.
///     #[op(domain = (0.1, 4.0), torch = ["sqrt"])]
///     pub fn sqrt(&self) -> Result<Tensor> { unary(UnaryOp::Sqrt, self) }
/// }
/// ```
///
/// it expands to
///
/// ```ignore
/// impl Tensor {
///     /// `√self`.
///     ///
///     /// # Errors … as [`Tensor::sqrt`]
///     #[track_caller]
///     pub fn try_sqrt(&self) -> Result<Tensor> { unary(UnaryOp::Sqrt, self) }
///
///     /// `√self`.
///     #[track_caller]
///     #[must_use]
///     pub fn sqrt(&self) -> Tensor {
///         match self.try_sqrt() { Ok(value) => value, Err(error) => error.raise() }
///     }
/// }
/// pub(crate) static RECORDS: &[OpRecord] = &[OpRecord {
///     name: "sqrt", group: "unary", torch: &["sqrt"], domain: (0.1, 4.0), doc: "`√self`.", grad: true,
///     call: |args| Ok(args.get::<Tensor>("input")?.try_sqrt()?.into_outputs()),
/// }];
/// ```
///
/// A method that does not return a `Result` has no twin. The settings of `#[op]`, all optional:
/// - `torch = ["div.no_rounding_mode"]`: PyTorch's names; the method's own by default;
/// - `domain = (−3.0, 3.0)`: where tests sample floats;
/// - `grad = false`: no gradient flows;
/// - `with(dim = Vec<i64>)`: what to read for a parameter of type `impl Trait`;
/// - `rename(rhs = "other", self = "condition")`: the argument's name in PyTorch;
/// - `default(min_val = -1.0)`: what an argument is that is not given, as in PyTorch;
/// - `autocast = low` (or `high`): inside `autocast`, tensors are converted to the scope's dtype (or halves to `f32`) first;
/// - `call = path`: a function `fn(&Args) -> Result<Vec<Tensor>>` in place of the generated call.
#[proc_macro_attribute]
pub fn ops(settings: TokenStream, item: TokenStream) -> TokenStream {
    ops::expand(settings.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct or enum of layers a module: every field is visited under its name, and the parameters in it get
/// dotted paths such as `encoder.0.weight`.
///
/// Fields may be parameters, buffers, other modules, options, lists, arrays, tuples and maps of them, and plain settings
/// (numbers, truth values, strings), which hold nothing to visit. At a field, `#[module(skip)]` leaves it out,
/// `#[module(rename = "weight_ih_l0")]` gives it another name, and `#[module(flatten)]` adds no segment to the path.
///
/// ```ignore
/// #[derive(Module, Debug, Clone)]
/// struct Mlp { fc1: Linear, fc2: Linear }
/// ```
///
/// expands to
///
/// ```ignore
/// impl Module for Mlp {
///     fn visit<'module>(&'module self, path: &mut Path, visitor: &mut dyn Visitor<'module>) {
///         visitor.enter(path, "Mlp");
///         path.push("fc1");
///         Module::visit(&self.fc1, path, visitor);
///         path.pop();
///         // … fc2
///         visitor.leave(path);
///     }
///     // … visit_mut
/// }
/// impl Display for Mlp { /* the tree of its layers */ }
/// ```
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    module::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// For layers of `fornax-nn`: `forward` tells a running summary that it was called, and what came out.
///
/// `#[traced] pub fn forward(&self, x: &Tensor) -> Tensor { body }` becomes a `forward` that calls `forward_untraced`, which
/// has the body.
#[proc_macro_attribute]
pub fn traced(_: TokenStream, item: TokenStream) -> TokenStream {
    traced::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
