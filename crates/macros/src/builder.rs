//! Generates the methods of the typed update: one for each channel.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Path, Type, Visibility};

use crate::channel::{Channel, arguments, type_span};
use crate::options::ReducerKind;

/// Types whose literals would need a type annotation if the argument were `impl Into<T>`.
const BY_VALUE: [&str; 16] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64",
    "bool", "char",
];

/// Returns the declaration and the conversion of an argument of type `ty`.
fn argument(ty: &TokenStream) -> (TokenStream, TokenStream) {
    if BY_VALUE.contains(&&*ty.to_string()) {
        (ty.clone(), quote!(::std::convert::identity))
    } else {
        (quote!(impl ::std::convert::Into<#ty>), quote!(::std::convert::Into::<#ty>::into))
    }
}

/// Returns the method of one channel.
pub(crate) fn method(
    channel: &Channel<'_>,
    vis: &Visibility,
    krate: &Path,
    marker: &TokenStream,
) -> TokenStream {
    let Channel { ident, ty, .. } = channel;
    let plain: &Type = ty;
    let span = type_span(ty);
    let reduce = quote!(#krate::state::reduce);
    let call = quote_spanned!(span=> self.#ident.reduce::<#marker>);
    let (what, parameter, body) = match &channel.reducer.kind {
        ReducerKind::Last => {
            let (declared, convert) = argument(&quote!(#plain));
            ("Replaces", quote!(value: #declared), quote!(self.#ident.overwrite(#convert(value))))
        }
        ReducerKind::Append | ReducerKind::Union => {
            let item = match arguments(ty, &["Vec", "VecDeque", "BTreeSet"])[..] {
                [item] => quote!(#item),
                _ if matches!(channel.reducer.kind, ReducerKind::Append) => {
                    quote_spanned!(span=> <#ty as #reduce::AppendChannel>::Item)
                }
                _ => quote_spanned!(span=> <#ty as #reduce::UnionChannel>::Item),
            };
            let (declared, convert) = argument(&item);
            let what = if matches!(channel.reducer.kind, ReducerKind::Append) {
                "Adds items at the end of"
            } else {
                "Adds the items that are not yet in"
            };
            let parameter = quote!(items: impl ::std::iter::IntoIterator<Item = #declared>);
            let items =
                quote!(::std::iter::Iterator::map(::std::iter::IntoIterator::into_iter(items), #convert));
            (what, parameter, quote!(#call(::std::iter::Iterator::collect(#items))))
        }
        ReducerKind::Merge => {
            let (key, value) = match arguments(ty, &["BTreeMap", "HashMap", "Map"])[..] {
                [key, value, ..] => (quote!(#key), quote!(#value)),
                _ => {
                    let map = quote_spanned!(span=> <#ty as #reduce::MergeChannel>);
                    (quote!(#map::Key), quote!(#map::Value))
                }
            };
            let (key, key_into) = argument(&key);
            let (value, value_into) = argument(&value);
            let parameter = quote!(entries: impl ::std::iter::IntoIterator<Item = (#key, #value)>);
            let entries = quote! {
                ::std::iter::Iterator::map(
                    ::std::iter::IntoIterator::into_iter(entries),
                    |(key, value)| (#key_into(key), #value_into(value)),
                )
            };
            ("Puts entries into", parameter, quote!(#call(#reduce::MergeInput::entries(#entries))))
        }
        ReducerKind::Max | ReducerKind::Min => {
            let input = channel.option().unwrap_or(ty);
            let what = if matches!(channel.reducer.kind, ReducerKind::Max) {
                "Raises, if the value is greater,"
            } else {
                "Lowers, if the value is lesser,"
            };
            (what, quote!(value: #input), quote!(#call(value)))
        }
        ReducerKind::Sum => ("Adds to", quote!(value: #plain), quote!(#call(::std::vec![value]))),
        ReducerKind::First => {
            let input = channel.option().map_or_else(
                || quote_spanned!(span=> <#ty as #reduce::FirstChannel>::Value),
                |inner| quote!(#inner),
            );
            let (declared, convert) = argument(&input);
            ("Sets, if it is still unset,", quote!(value: #declared), quote!(#call(#convert(value))))
        }
        ReducerKind::Custom(_) => (
            "Joins a value, by its own reducer, into",
            quote!(value: #plain),
            quote!(#call(::std::vec![value])),
        ),
    };
    let stored = if channel.ephemeral.is_some() { ", which is not stored" } else { "" };
    let doc = format!("{what} the channel `{}`{stored}.", channel.name);
    quote! {
        #[doc = #doc]
        #vis fn #ident(mut self, #parameter) -> Self {
            #body;
            self
        }
    }
}
