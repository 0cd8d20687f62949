//! `#[traced]`: a layer's `forward` that tells a summary of its calls.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{FnArg, ImplItemFn, Pat, Result, Visibility};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let mut method: ImplItemFn = syn::parse2(item)?;
    let mut inner = method.clone();
    inner.sig.ident = format_ident!("{}_untraced", method.sig.ident);
    inner.vis = Visibility::Inherited;
    inner.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
    let name = &inner.sig.ident;
    let arguments = method.sig.inputs.iter().filter_map(|argument| match argument {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(pattern) => Some(pattern.ident.clone()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    let arguments: Vec<_> = arguments.collect();
    // A method, not a closure: the caller's line is passed on.
    method.block = syn::parse_quote!({
        if !crate::trace::is_on() {
            return self.#name(#(#arguments),*);
        }
        let call = crate::trace::enter(self);
        let result = self.#name(#(#arguments),*);
        call.leave(&result);
        result
    });
    Ok(quote!(#method #inner))
}
