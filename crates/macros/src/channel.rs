//! One field of the state: its stored name, its reducer, and the form of its type.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{ExprPath, Field, GenericArgument, Ident, Path, PathArguments, Type};

use crate::fit;
use crate::options::{FieldOptions, ReducerKind, ReducerOption};
use crate::serde_attr::{self, MissingField, SerdeContainer};

pub(crate) struct Channel<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    /// The stored name.
    pub(crate) name: String,
    pub(crate) reducer: ReducerOption,
    pub(crate) serialize_with: Option<ExprPath>,
    /// The value in a state from the log, if the field is not stored.
    pub(crate) ephemeral: Option<TokenStream>,
    /// Whether views hide the values of the field.
    pub(crate) secret: bool,
}

impl<'a> Channel<'a> {
    pub(crate) fn read(field: &'a Field, container: &SerdeContainer) -> syn::Result<Self> {
        let Some(ident) = &field.ident else {
            return Err(syn::Error::new_spanned(field, "a channel needs a name"));
        };
        let FieldOptions { reducer, ephemeral, secret } = FieldOptions::read(ident, &field.attrs)?;
        fit::check(&reducer.kind, &field.ty)?;
        let serde = serde_attr::field(&field.attrs, ephemeral.is_some())?;
        if let Some(span) = ephemeral.filter(|_| !serde.skip) {
            let message = format!(
                "an ephemeral channel is not stored, so serde must leave it out; write `#[serde(skip)]` on `{ident}`, too"
            );
            return Err(syn::Error::new(span, message));
        }
        let in_parts = matches!(reducer.kind, ReducerKind::Append | ReducerKind::Merge | ReducerKind::Union);
        if in_parts && serde.serialize_with.is_some() {
            return Err(syn::Error::new(
                reducer.span,
                "items are stored one by one as their type serialises, so the field cannot be serialised by a function; \
                 give the items a type of their own that does it",
            ));
        }
        let name = serde.rename.unwrap_or_else(|| container.rule.apply(&ident.unraw().to_string()));
        let ephemeral =
            ephemeral.map(|_| missing(ident, &field.ty, serde.missing.as_ref(), container.missing.as_ref()));
        Ok(Self {
            ident,
            ty: &field.ty,
            name,
            reducer,
            serialize_with: serde.serialize_with,
            ephemeral,
            secret,
        })
    }

    /// Returns the marker type of the field's reducer. `custom` is the marker type of a custom reducer.
    pub(crate) fn marker(&self, krate: &Path, custom: &Ident) -> TokenStream {
        let option = self.option().is_some();
        // Use the span of the field's type, so that compiler errors point at the type.
        let span = type_span(self.ty);
        let name = match &self.reducer.kind {
            ReducerKind::Last => "Last",
            ReducerKind::Append => "Append",
            ReducerKind::Merge => "Merge",
            ReducerKind::Max if option => "MaxOption",
            ReducerKind::Max => "Max",
            ReducerKind::Min if option => "MinOption",
            ReducerKind::Min => "Min",
            ReducerKind::Sum => "Sum",
            ReducerKind::Union => "Union",
            ReducerKind::First => "First",
            ReducerKind::Custom(_) => return quote!(#krate::state::reduce::Custom<#custom>),
        };
        let name = Ident::new(name, span);
        quote_spanned!(span=> #krate::state::reduce::#name)
    }

    /// Returns the code of the `state::ChannelSpec` that describes the field.
    pub(crate) fn spec(&self, krate: &Path) -> TokenStream {
        let (name, reducer) = (&*self.name, self.described(krate));
        let secret = self.secret.then(|| quote!(.secret()));
        quote!(#krate::state::ChannelSpec::new(#name, #reducer)#secret)
    }

    /// Returns the code of the `state::Reducer` that describes the field's reducer.
    fn described(&self, krate: &Path) -> TokenStream {
        let name = match &self.reducer.kind {
            ReducerKind::Last => "Last",
            ReducerKind::Append => "Append",
            ReducerKind::Merge => "Merge",
            ReducerKind::Max => "Max",
            ReducerKind::Min => "Min",
            ReducerKind::Sum => "Sum",
            ReducerKind::Union => "Union",
            ReducerKind::First => "First",
            ReducerKind::Custom(path) => {
                let text = quote!(#path).to_string().replace(' ', "");
                return quote!(#krate::state::Reducer::Custom { with: ::std::borrow::Cow::Borrowed(#text) });
            }
        };
        let name = Ident::new(name, Span::call_site());
        quote!(#krate::state::Reducer::#name)
    }

    /// Returns the `T` of an `Option<T>`.
    ///
    /// Like serde, it finds `Option` by its name: a macro sees no types, and treats an alias of `Option` like any other type.
    pub(crate) fn option(&self) -> Option<&'a Type> {
        match arguments(self.ty, &["Option"])[..] {
            [inner] => Some(inner),
            _ => None,
        }
    }
}

/// Returns the value that serde gives a skipped field: from the field's attribute, the struct's attribute, or the type.
fn missing(
    ident: &Ident,
    ty: &Type,
    field: Option<&MissingField>,
    container: Option<&MissingField>,
) -> TokenStream {
    let of_type = quote_spanned!(type_span(ty)=> <#ty as ::std::default::Default>::default());
    match (field, container) {
        (Some(MissingField::Function(path)), _) => quote!(#path()),
        (None, Some(MissingField::Function(path))) => quote!({ let state: Self = #path(); state.#ident }),
        (None, Some(MissingField::Default)) => quote!(<Self as ::std::default::Default>::default().#ident),
        (Some(MissingField::Default), _) | (None, None) => of_type,
    }
}

/// Returns the type arguments of a path type whose last name is one of `names`.
pub(crate) fn arguments<'a>(ty: &'a Type, names: &[&str]) -> Vec<&'a Type> {
    let Type::Path(path) = ty else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    if !names.iter().any(|name| last.ident == name) {
        return Vec::new();
    }
    let PathArguments::AngleBracketed(list) = &last.arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

/// Returns the span of a type, so that compiler errors in generated code point at the type.
pub(crate) fn type_span(ty: &Type) -> Span {
    syn::spanned::Spanned::span(ty)
}
