//! `#[ops]`: from methods to methods, twins and records.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use std::collections::HashMap;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Expr, ExprTuple, FnArg, GenericArgument, Ident, ImplItem, ImplItemFn, ItemImpl, LitBool, LitStr,
    Meta, Pat, Path, PathArguments, Result, ReturnType, Token, Type, bracketed, parenthesized,
};

pub(crate) fn expand(settings: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let block: BlockSettings = syn::parse2(settings)?;
    let mut item: ItemImpl = syn::parse2(item)?;
    let mut items = Vec::new();
    let mut records = Vec::new();
    for member in item.items {
        let ImplItem::Fn(mut method) = member else {
            items.push(member);
            continue;
        };
        let Some(position) = method.attrs.iter().position(|attr| attr.path().is_ident("op")) else {
            items.push(ImplItem::Fn(method));
            continue;
        };
        let settings = OpSettings::from_attribute(&method.attrs.remove(position))?;
        records.push(record(&block.group, &method, &settings)?);
        items.extend(methods(method, settings.autocast.as_ref()));
    }
    item.items = items;
    let list = block.records;
    Ok(quote! {
        #item

        pub(crate) static #list: &[crate::ops::OpRecord] = &[#(#records),*];
    })
}

/// `group = "unary", records = RECORDS`
struct BlockSettings {
    group: LitStr,
    records: Ident,
}

impl Parse for BlockSettings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut group, mut records) = (None, None);
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match key.to_string().as_str() {
                "group" => group = Some(input.parse()?),
                "records" => records = Some(input.parse()?),
                _ => return Err(Error::new(key.span(), "expected `group` or `records`")),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let missing = |what: &str| input.error(format!("missing `{what}`"));
        Ok(BlockSettings {
            group: group.ok_or_else(|| missing("group = \"…\""))?,
            records: records.ok_or_else(|| missing("records = …"))?,
        })
    }
}

/// What stands in `#[op(…)]`.
#[derive(Default)]
struct OpSettings {
    torch: Option<Vec<LitStr>>,
    domain: Option<ExprTuple>,
    grad: Option<LitBool>,
    with: HashMap<String, Type>,
    rename: HashMap<String, LitStr>,
    default: HashMap<String, Expr>,
    call: Option<Path>,
    autocast: Option<Ident>,
}

impl OpSettings {
    fn from_attribute(attribute: &Attribute) -> Result<Self> {
        match &attribute.meta {
            Meta::Path(_) => Ok(OpSettings::default()),
            Meta::List(list) => Parser::parse2(OpSettings::parse, list.tokens.clone()),
            Meta::NameValue(_) => Err(Error::new_spanned(attribute, "expected `#[op]` or `#[op(…)]`")),
        }
    }

    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut settings = OpSettings::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "torch" => {
                    input.parse::<Token![=]>()?;
                    let list;
                    bracketed!(list in input);
                    let names = Punctuated::<LitStr, Token![,]>::parse_terminated(&list)?;
                    settings.torch = Some(names.into_iter().collect());
                }
                "domain" => {
                    input.parse::<Token![=]>()?;
                    settings.domain = Some(input.parse()?);
                }
                "grad" => {
                    input.parse::<Token![=]>()?;
                    settings.grad = Some(input.parse()?);
                }
                "call" => {
                    input.parse::<Token![=]>()?;
                    settings.call = Some(input.parse()?);
                }
                "autocast" => {
                    input.parse::<Token![=]>()?;
                    let to: Ident = input.parse()?;
                    if to != "low" && to != "high" {
                        return Err(Error::new(to.span(), "expected `low` or `high`"));
                    }
                    settings.autocast = Some(to);
                }
                "with" => {
                    let list;
                    parenthesized!(list in input);
                    for pair in Punctuated::<Pair<Type>, Token![,]>::parse_terminated(&list)? {
                        settings.with.insert(pair.name, pair.value);
                    }
                }
                "rename" => {
                    let list;
                    parenthesized!(list in input);
                    for pair in Punctuated::<Pair<LitStr>, Token![,]>::parse_terminated(&list)? {
                        settings.rename.insert(pair.name, pair.value);
                    }
                }
                "default" => {
                    let list;
                    parenthesized!(list in input);
                    for pair in Punctuated::<Pair<Expr>, Token![,]>::parse_terminated(&list)? {
                        settings.default.insert(pair.name, pair.value);
                    }
                }
                _ => {
                    let message =
                        "expected `torch`, `domain`, `grad`, `with`, `rename`, `default`, `call` or `autocast`";
                    return Err(Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(settings)
    }
}

/// `name = value`, where the name may be `self`.
struct Pair<T> {
    name: String,
    value: T,
}

impl<T: Parse> Parse for Pair<T> {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = if input.peek(Token![self]) {
            input.parse::<Token![self]>()?;
            String::from("self")
        } else {
            input.parse::<Ident>()?.to_string()
        };
        input.parse::<Token![=]>()?;
        Ok(Pair { name, value: input.parse()? })
    }
}

/// The method itself, and its twin if it can fail. Inside `autocast` the twin converts its tensors and starts anew.
fn methods(method: ImplItemFn, autocast: Option<&Ident>) -> Vec<ImplItem> {
    let Some(success) = success_type(&method) else {
        let mut method = method;
        method.attrs.push(syn::parse_quote!(#[track_caller]));
        method.attrs.push(syn::parse_quote!(#[must_use]));
        return vec![ImplItem::Fn(method)];
    };
    let name = method.sig.ident.clone();
    let twin = format_ident!("try_{name}");
    let mut fallible = method.clone();
    fallible.sig.ident = twin.clone();
    let errors = format!(" Where [`Tensor::{name}`] panics.");
    fallible.attrs.push(syn::parse_quote!(#[doc = ""]));
    fallible.attrs.push(syn::parse_quote!(#[doc = " # Errors"]));
    fallible.attrs.push(syn::parse_quote!(#[doc = #errors]));
    fallible.attrs.push(syn::parse_quote!(#[track_caller]));
    if let Some(to) = autocast {
        let arguments = fallible.sig.inputs.iter().filter_map(parameter).map(|(name, ty)| {
            match ty.to_token_stream().to_string().as_str() {
                "& Tensor" => quote!(&scope.#to(#name)),
                "Option < & Tensor >" => quote!(#name.map(|x| scope.#to(x)).as_ref()),
                _ => quote!(#name),
            }
        });
        let body = &fallible.block;
        fallible.block = syn::parse_quote!({
            if let Some(scope) = crate::autocast::pause() {
                return scope.#to(self).#twin(#(#arguments),*);
            }
            #body
        });
    }

    let mut panicking = method;
    panicking.sig.output = syn::parse_quote!(-> #success);
    panicking.attrs.push(syn::parse_quote!(#[track_caller]));
    panicking.attrs.push(syn::parse_quote!(#[must_use]));
    let arguments: Vec<_> = panicking.sig.inputs.iter().filter_map(parameter).map(|(name, _)| name).collect();
    let receiver = if has_receiver(&panicking) { quote!(self.) } else { quote!(Self::) };
    panicking.block = syn::parse_quote!({
        match #receiver #twin(#(#arguments),*) {
            Ok(value) => value,
            Err(error) => error.raise(),
        }
    });
    vec![ImplItem::Fn(panicking), ImplItem::Fn(fallible)]
}

/// The `T` of a method that returns `Result<T>`.
fn success_type(method: &ImplItemFn) -> Option<Type> {
    let ReturnType::Type(_, output) = &method.sig.output else { return None };
    let Type::Path(path) = &**output else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Result" {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(success) => Some(success.clone()),
        _ => None,
    })
}

fn has_receiver(method: &ImplItemFn) -> bool {
    method.sig.receiver().is_some()
}

fn parameter(argument: &FnArg) -> Option<(Ident, Type)> {
    let FnArg::Typed(argument) = argument else { return None };
    let Pat::Ident(pattern) = &*argument.pat else { return None };
    Some((pattern.ident.clone(), (*argument.ty).clone()))
}

fn record(group: &LitStr, method: &ImplItemFn, settings: &OpSettings) -> Result<TokenStream> {
    let ident = &method.sig.ident;
    let name = ident.to_string();
    let torch = match &settings.torch {
        Some(names) => quote!(&[#(#names),*]),
        None => quote!(&[#name]),
    };
    let domain = settings.domain.as_ref().map_or(quote!((-3.0, 3.0)), ToTokens::to_token_stream);
    let grad = settings.grad.as_ref().map_or(quote!(true), ToTokens::to_token_stream);
    let doc = first_doc_line(method);
    let call = match &settings.call {
        Some(path) => quote!(#path),
        None => generated_call(method, settings)?,
    };
    Ok(quote! {
        crate::ops::OpRecord {
            name: #name,
            group: #group,
            torch: #torch,
            domain: #domain,
            doc: #doc,
            grad: #grad,
            call: #call,
        }
    })
}

/// A closure that reads each parameter by its name and calls the method, the `try_` twin if there is one.
fn generated_call(method: &ImplItemFn, settings: &OpSettings) -> Result<TokenStream> {
    let mut arguments = Vec::new();
    for (name, declared) in method.sig.inputs.iter().filter_map(parameter) {
        let key = settings.rename.get(&name.to_string()).map_or(name.to_string(), LitStr::value);
        let ty = settings.with.get(&name.to_string());
        let read = match (ty, settings.default.get(&name.to_string())) {
            (ty, Some(default)) => {
                let ty = ty.unwrap_or(&declared);
                quote!(args.get::<Option<#ty>>(#key)?.unwrap_or(#default))
            }
            (Some(ty), None) => quote!(args.get::<#ty>(#key)?),
            (None, None) => read_as(&declared, &key)?,
        };
        arguments.push(read);
    }
    let target = match success_type(method) {
        Some(_) => format_ident!("try_{}", method.sig.ident),
        None => method.sig.ident.clone(),
    };
    let question = success_type(method).map(|_| quote!(?));
    let called = if has_receiver(method) {
        let key = settings.rename.get("self").map_or(String::from("input"), LitStr::value);
        quote!(args.get::<Tensor>(#key)?.#target(#(#arguments),*))
    } else {
        quote!(Tensor::#target(#(#arguments),*))
    };
    Ok(quote!(|args: &crate::ops::Args| Ok(crate::ops::IntoOutputs::into_outputs(#called #question))))
}

/// How to read a parameter of a declared type: references are made of owned values.
fn read_as(declared: &Type, key: &str) -> Result<TokenStream> {
    match declared {
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("Device") => Ok(quote!(args.device())),
            Type::Path(path) if path.path.is_ident("str") => Ok(quote!(&args.get::<alloc::string::String>(#key)?)),
            Type::Slice(slice) => {
                let element = &slice.elem;
                Ok(quote!(&args.get::<alloc::vec::Vec<#element>>(#key)?))
            }
            owned => Ok(quote!(&args.get::<#owned>(#key)?)),
        },
        Type::Path(path) if is_option_of_reference(path) => Ok(quote!(args.get::<Option<Tensor>>(#key)?.as_ref())),
        Type::ImplTrait(_) => {
            Err(Error::new_spanned(declared, format!("say what to read for it: `#[op(with({key} = Type))]`")))
        }
        owned => Ok(quote!(args.get::<#owned>(#key)?)),
    }
}

fn is_option_of_reference(path: &syn::TypePath) -> bool {
    let Some(last) = path.path.segments.last() else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    last.ident == "Option" && matches!(arguments.args.first(), Some(GenericArgument::Type(Type::Reference(_))))
}

fn first_doc_line(method: &ImplItemFn) -> String {
    let line = method.attrs.iter().find_map(|attr| match &attr.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    line.map(|line| line.trim().to_string()).unwrap_or_default()
}
