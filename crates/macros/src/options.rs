//! Parses `#[state(...)]` on the struct and on its fields.

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Ident, LitInt, LitStr, Path};

use crate::suggest::nearest;

/// `#[state(...)]` on the struct.
pub(crate) struct StateContainer {
    pub(crate) version: u32,
    pub(crate) krate: Path,
}

impl StateContainer {
    pub(crate) fn read(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut version = 1;
        let mut krate = syn::parse_quote!(::ferrata);
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("state")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("version") {
                    version = meta.value()?.parse::<LitInt>()?.base10_parse()?;
                } else if meta.path.is_ident("crate") {
                    krate = meta.value()?.parse::<LitStr>()?.parse()?;
                } else {
                    return Err(unknown(&meta, "struct", &["version", "crate"], &FIELD));
                }
                Ok(())
            })?;
        }
        Ok(Self { version, krate })
    }
}

/// The words that may stand on a field. `with` needs the path of a function, and the other words have no value. All words except `ephemeral` and
/// `secret` select a reducer.
const FIELD: [&str; 11] =
    ["last", "append", "merge", "max", "min", "sum", "union", "first", "with", "ephemeral", "secret"];

/// `#[state(...)]` on a field.
pub(crate) struct FieldOptions {
    pub(crate) reducer: ReducerOption,
    /// The span of `ephemeral`, if present.
    pub(crate) ephemeral: Option<Span>,
    /// Whether views hide the values of the field.
    pub(crate) secret: bool,
}

/// The reducer of a field, as the attribute spells it.
pub(crate) struct ReducerOption {
    pub(crate) kind: ReducerKind,
    /// The span for errors about the type of the field.
    pub(crate) span: Span,
}

pub(crate) enum ReducerKind {
    Last,
    Append,
    Merge,
    Max,
    Min,
    Sum,
    Union,
    First,
    Custom(Path),
}

impl FieldOptions {
    /// Parses `#[state(...)]` on a field. The default reducer is `last`.
    pub(crate) fn read(field: &Ident, attrs: &[Attribute]) -> syn::Result<Self> {
        let mut found: Option<(String, ReducerOption)> = None;
        let (mut ephemeral, mut secret) = (None, None);
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("state")) {
            attr.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let span = meta.path.get_ident().map_or_else(Span::call_site, Ident::span);
                let kind = match &*name {
                    "ephemeral" => {
                        ephemeral = Some(span);
                        return Ok(());
                    }
                    "secret" => {
                        secret = Some(span);
                        return Ok(());
                    }
                    "last" => ReducerKind::Last,
                    "append" => ReducerKind::Append,
                    "merge" => ReducerKind::Merge,
                    "max" => ReducerKind::Max,
                    "min" => ReducerKind::Min,
                    "sum" => ReducerKind::Sum,
                    "union" => ReducerKind::Union,
                    "first" => ReducerKind::First,
                    "with" => ReducerKind::Custom(meta.value()?.parse()?),
                    _ => return Err(unknown(&meta, "field", &FIELD, &["version", "crate"])),
                };
                if let Some((earlier, _)) = &found {
                    let message = format!(
                        "field `{field}` has two reducers, `{earlier}` and `{name}`, and a channel has one; remove one"
                    );
                    return Err(meta.error(message));
                }
                found = Some((name, ReducerOption { kind, span }));
                Ok(())
            })?;
        }
        if let (Some(_), Some(span)) = (ephemeral, secret) {
            let message = format!(
                "no record holds the ephemeral channel `{field}`, so no view shows it; remove `secret`"
            );
            return Err(syn::Error::new(span, message));
        }
        let plain = || ReducerOption { kind: ReducerKind::Last, span: field.span() };
        let reducer = found.map_or_else(plain, |(_, reducer)| reducer);
        Ok(Self { reducer, ephemeral, secret: secret.is_some() })
    }
}

/// Returns the error for an unknown word, with a suggestion.
fn unknown(meta: &ParseNestedMeta<'_>, place: &str, known: &[&str], elsewhere: &[&str]) -> syn::Error {
    let given = meta.path.get_ident().map(ToString::to_string).unwrap_or_else(|| "this".to_owned());
    let other = if place == "field" { "struct" } else { "field" };
    let hint = if elsewhere.contains(&&*given) {
        format!("it belongs on the {other}")
    } else if let Some(near) = nearest(&given, known) {
        format!("did you mean `{near}`?")
    } else {
        format!("known are {}", known.join(", "))
    };
    meta.error(format!("`#[state({given})]` is not known on a {place}; {hint}"))
}
