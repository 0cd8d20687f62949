//! `#[derive(Module)]`: visits every field under its name.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Index, LitStr, Result};

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let name = &input.ident;
    refuse_attributes(&input.attrs, "a type")?;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(::fornax::nn::Module));
    }
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let (visit, visit_mut) = match &input.data {
        Data::Struct(data) => struct_bodies(&data.fields)?,
        Data::Enum(data) => {
            let mut arms = Vec::new();
            let mut arms_mut = Vec::new();
            for variant in &data.variants {
                refuse_attributes(&variant.attrs, "a variant")?;
                let (pattern, visits, visits_mut) = variant_bodies(&variant.fields)?;
                let ident = &variant.ident;
                arms.push(quote!(#name::#ident #pattern => { #(#visits)* }));
                arms_mut.push(quote!(#name::#ident #pattern => { #(#visits_mut)* }));
            }
            // An empty enum has no value to match, but a reference to one is not known to be empty.
            let matched = if data.variants.is_empty() { quote!(*self) } else { quote!(self) };
            (quote!(match #matched { #(#arms)* }), quote!(match #matched { #(#arms_mut)* }))
        }
        Data::Union(_) => return Err(Error::new_spanned(name, "a union cannot be a module; use a struct or an enum")),
    };
    let text = name.to_string();
    Ok(quote! {
        impl #impl_generics ::fornax::nn::Module for #name #ty_generics #where_clause {
            fn visit<'module>(
                &'module self,
                path: &mut ::fornax::nn::Path,
                visitor: &mut dyn ::fornax::nn::Visitor<'module>,
            ) {
                visitor.enter(path, #text, ::core::ptr::from_ref(self).cast::<()>().addr());
                #visit
                visitor.leave(path);
            }
            fn visit_mut(&mut self, path: &mut ::fornax::nn::Path, visitor: &mut dyn ::fornax::nn::VisitorMut) {
                #visit_mut
            }
        }

        impl #impl_generics ::core::fmt::Display for #name #ty_generics #where_clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::fornax::nn::fmt_tree(self, f)
            }
        }
    })
}

fn struct_bodies(fields: &Fields) -> Result<(TokenStream, TokenStream)> {
    let mut visits = Vec::new();
    let mut visits_mut = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let settings = FieldSettings::of(field)?;
        if settings.skip {
            continue;
        }
        let access = match &field.ident {
            Some(ident) => quote!(self.#ident),
            None => {
                let index = Index::from(i);
                quote!(self.#index)
            }
        };
        let name = settings.name(field, i);
        visits.push(visit_field(&quote!(&#access), &name, &settings, &quote!(visit)));
        visits_mut.push(visit_field(&quote!(&mut #access), &name, &settings, &quote!(visit_mut)));
    }
    Ok((quote!(#(#visits)*), quote!(#(#visits_mut)*)))
}

/// A pattern that binds a variant's fields, and their visits. A single unnamed field adds nothing to the path.
fn variant_bodies(fields: &Fields) -> Result<(TokenStream, Vec<TokenStream>, Vec<TokenStream>)> {
    let mut bindings = Vec::new();
    let mut visits = Vec::new();
    let mut visits_mut = Vec::new();
    let single = matches!(fields, Fields::Unnamed(list) if list.unnamed.len() == 1);
    for (i, field) in fields.iter().enumerate() {
        let mut settings = FieldSettings::of(field)?;
        settings.flatten |= single;
        let binding = format_ident!("field_{i}");
        match (&field.ident, settings.skip) {
            (Some(ident), true) => bindings.push(quote!(#ident: _)),
            (Some(ident), false) => bindings.push(quote!(#ident: #binding)),
            (None, true) => bindings.push(quote!(_)),
            (None, false) => bindings.push(quote!(#binding)),
        }
        if settings.skip {
            continue;
        }
        let name = settings.name(field, i);
        visits.push(visit_field(&quote!(#binding), &name, &settings, &quote!(visit)));
        visits_mut.push(visit_field(&quote!(#binding), &name, &settings, &quote!(visit_mut)));
    }
    let pattern = match fields {
        Fields::Named(_) => quote!({ #(#bindings),* }),
        Fields::Unnamed(_) => quote!(( #(#bindings),* )),
        Fields::Unit => quote!(),
    };
    Ok((pattern, visits, visits_mut))
}

fn visit_field(access: &TokenStream, name: &str, settings: &FieldSettings, method: &TokenStream) -> TokenStream {
    let call = quote!(::fornax::nn::Module::#method(#access, path, visitor););
    if settings.flatten {
        return call;
    }
    quote! {
        path.push(#name);
        #call
        path.pop();
    }
}

/// What stands in `#[module(…)]` at a field.
#[derive(Default)]
struct FieldSettings {
    skip: bool,
    flatten: bool,
    rename: Option<LitStr>,
}

impl FieldSettings {
    fn of(field: &Field) -> Result<FieldSettings> {
        let mut settings = FieldSettings::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    settings.skip = true;
                } else if meta.path.is_ident("flatten") {
                    settings.flatten = true;
                } else if meta.path.is_ident("rename") {
                    let name: LitStr = meta.value()?.parse()?;
                    if name.value().is_empty() || name.value().contains('.') {
                        return Err(Error::new(
                            name.span(),
                            "a name is not empty, and has no dots: they separate names",
                        ));
                    }
                    settings.rename = Some(name);
                } else {
                    return Err(meta.error("expected `skip`, `flatten` or `rename = \"…\"`"));
                }
                Ok(())
            })?;
            let given = [settings.skip, settings.flatten, settings.rename.is_some()];
            if given.iter().filter(|&&given| given).count() > 1 {
                let message =
                    "`skip`, `flatten` and `rename` exclude one another: only a visited field with a path has a name";
                return Err(Error::new_spanned(attribute, message));
            }
        }
        Ok(settings)
    }

    fn name(&self, field: &Field, i: usize) -> String {
        match (&self.rename, &field.ident) {
            (Some(name), _) => name.value(),
            (None, Some(ident)) => ident.to_string().trim_start_matches("r#").to_string(),
            (None, None) => i.to_string(),
        }
    }
}

/// `#[module(…)]` belongs to fields.
fn refuse_attributes(attributes: &[Attribute], place: &str) -> Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("module")) {
        Some(attribute) => {
            Err(Error::new_spanned(attribute, format!("`#[module(…)]` stands at a field, not at {place}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(input: TokenStream, message: &str) {
        let error = expand(input).expect_err("this should be refused").to_string();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        refused(quote!(union U { a: u8 }), "a union cannot be a module");
        refused(
            quote!(
                struct S {
                    #[module(skipp)]
                    a: u8,
                }
            ),
            "expected `skip`, `flatten` or `rename",
        );
        refused(
            quote!(
                struct S {
                    #[module(rename = "a.b")]
                    a: u8,
                }
            ),
            "has no dots",
        );
        refused(
            quote!(
                struct S {
                    #[module(skip, rename = "b")]
                    a: u8,
                }
            ),
            "exclude one another",
        );
        refused(
            quote!(
                #[module(skip)]
                struct S;
            ),
            "not at a type",
        );
        refused(
            quote!(
                enum E {
                    #[module(skip)]
                    A,
                }
            ),
            "not at a variant",
        );
    }

    #[test]
    fn all_kinds_of_types_expand() {
        for input in [
            quote!(
                struct S;
            ),
            quote!(
                struct S(Linear, Relu);
            ),
            quote!(
                struct S<M, const N: usize>
                where
                    M: Clone,
                {
                    layers: [M; N],
                    r#type: u8,
                }
            ),
            quote!(
                struct S<'a> {
                    name: &'a str,
                }
            ),
            quote!(
                enum E {
                    A(Linear),
                    B {
                        x: Relu,
                        #[module(skip)]
                        y: Unknown,
                    },
                    C,
                }
            ),
            quote!(
                enum Never {}
            ),
        ] {
            let expanded = expand(input).unwrap();
            syn::parse2::<syn::File>(expanded).expect("the expansion is Rust");
        }
    }
}
