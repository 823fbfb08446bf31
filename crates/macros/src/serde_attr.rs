//! The serde attributes of a struct and its fields that affect the stored names and values.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, ExprPath, LitStr, Token};

use crate::rename::RenameRule;

/// The value that serde uses for a missing field.
pub(crate) enum MissingField {
    /// The default of the type.
    Default,
    /// The result of a function.
    Function(ExprPath),
}

impl MissingField {
    /// Parses `default` or `default = "path"`.
    fn read(meta: &ParseNestedMeta<'_>) -> syn::Result<Self> {
        if meta.input.peek(Token![=]) {
            return Ok(Self::Function(meta.value()?.parse::<LitStr>()?.parse()?));
        }
        Ok(Self::Default)
    }
}

/// The serde attributes of the struct.
#[derive(Default)]
pub(crate) struct SerdeContainer {
    pub(crate) rule: RenameRule,
    /// The source of values for missing fields, if the struct sets one.
    pub(crate) missing: Option<MissingField>,
}

/// Parses `rename_all` and `default`. Rejects attributes with which the struct would not be stored as an object of its fields.
pub(crate) fn container(attrs: &[Attribute]) -> syn::Result<SerdeContainer> {
    let mut container = SerdeContainer::default();
    each(attrs, |meta| {
        let Some(name) = meta.path.get_ident().map(ToString::to_string) else { return skip(&meta) };
        match &*name {
            "rename_all" => {
                if let Some(text) = one_name(&meta)? {
                    container.rule = RenameRule::parse(&text)?;
                }
                Ok(())
            }
            "default" => {
                container.missing = Some(MissingField::read(&meta)?);
                Ok(())
            }
            "tag" | "untagged" | "transparent" | "from" | "try_from" | "into" | "remote" => {
                let message = format!(
                    "a state is stored as an object with one entry per field, which `#[serde({name})]` would change; \
                     remove it, or use the other type as a field"
                );
                Err(meta.error(message))
            }
            _ => skip(&meta),
        }
    })?;
    Ok(container)
}

/// The serde attributes of one field.
#[derive(Default)]
pub(crate) struct Field {
    pub(crate) rename: Option<String>,
    /// The function that serializes the field instead of its type.
    pub(crate) serialize_with: Option<ExprPath>,
    /// The source of the field's value if the field is missing, if the field sets one.
    pub(crate) missing: Option<MissingField>,
    /// Whether serde skips the field when it serializes and when it deserializes.
    pub(crate) skip: bool,
}

/// Parses the attributes for the name and the encoding of a field. Rejects attributes that would omit the field, unless it is `ephemeral`.
pub(crate) fn field(attrs: &[Attribute], ephemeral: bool) -> syn::Result<Field> {
    let mut field = Field::default();
    each(attrs, |meta| {
        let Some(name) = meta.path.get_ident().map(ToString::to_string) else { return skip(&meta) };
        match &*name {
            "rename" => {
                if let Some(text) = one_name(&meta)? {
                    field.rename = Some(text.value());
                }
                Ok(())
            }
            "with" => {
                let mut path: ExprPath = meta.value()?.parse::<LitStr>()?.parse()?;
                path.path.segments.push(syn::Ident::new("serialize", proc_macro2::Span::call_site()).into());
                field.serialize_with = Some(path);
                Ok(())
            }
            "serialize_with" => {
                field.serialize_with = Some(meta.value()?.parse::<LitStr>()?.parse()?);
                Ok(())
            }
            "flatten" => Err(meta.error(
                "a flattened field is no channel: its entries would lie among the channels; \
                 remove `#[serde(flatten)]`, or write its fields into the state",
            )),
            "skip" if ephemeral => {
                field.skip = true;
                Ok(())
            }
            "default" => {
                field.missing = Some(MissingField::read(&meta)?);
                Ok(())
            }
            "skip" | "skip_serializing" | "skip_deserializing" => Err(meta.error(format!(
                "a field that is not stored is lost at a restart, so `#[serde({name})]` cannot be on a channel; \
                 keep what is not state in a resource of the runtime, or write `#[serde(skip)]` and `#[state(ephemeral)]` \
                 if every node can go on with the default"
            ))),
            "alias" => Err(meta.error(
                "a channel has one name, and a run whose log has both could not be read; remove `#[serde(alias)]`, \
                 and rename the channel in a migration: count `#[state(version)]` up and give the graph a `migrate`",
            )),
            "skip_serializing_if" => Err(meta.error(
                "a channel is always stored, or folding patches would give another state; \
                 remove `skip_serializing_if`, and keep `#[serde(default)]` if old runs lack the field",
            )),
            _ => skip(&meta),
        }
    })?;
    Ok(field)
}

pub(crate) fn each(
    attrs: &[Attribute],
    mut read: impl FnMut(ParseNestedMeta<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("serde"))
        .try_for_each(|attr| attr.parse_nested_meta(&mut read))
}

/// Parses `key = "name"` or `key(serialize = "name", deserialize = "name")`.
fn one_name(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<LitStr>> {
    if meta.input.peek(Token![=]) {
        return Ok(Some(meta.value()?.parse()?));
    }
    let mut write: Option<LitStr> = None;
    let mut read: Option<LitStr> = None;
    meta.parse_nested_meta(|inner| {
        let text = inner.value()?.parse()?;
        let target = if inner.path.is_ident("serialize") { &mut write } else { &mut read };
        *target = Some(text);
        Ok(())
    })?;
    if write.as_ref().map(LitStr::value) == read.as_ref().map(LitStr::value) {
        return Ok(write);
    }
    Err(meta.error(
        "a channel has one name, to be written and to be read; give `serialize` and `deserialize` the same",
    ))
}

/// Skips an attribute that affects neither names nor values.
pub(crate) fn skip(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<proc_macro2::TokenStream>()?;
    }
    Ok(())
}
