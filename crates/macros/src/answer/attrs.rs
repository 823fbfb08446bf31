//! Parses `#[answer(...)]`, and the serde attributes of a deserialized type: those that set its names or its form, and those that would make the
//! shape wrong.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, LitStr, Path, Token, Type};

use crate::rename::RenameRule;
use crate::serde_attr::{each, skip};
use crate::suggest::nearest;

/// `#[answer(...)]` on a type, a variant or a field.
pub(super) struct AnswerOptions {
    /// A type that accepts the same JSON.
    pub(super) like: Option<Type>,
    pub(super) krate: Path,
}

impl AnswerOptions {
    pub(super) fn read(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut options = Self { like: None, krate: syn::parse_quote!(::ferrata) };
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("answer")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("as") {
                    options.like = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("crate") {
                    options.krate = meta.value()?.parse::<LitStr>()?.parse()?;
                } else {
                    let given = word(&meta);
                    let hint = match nearest(&given, &["as", "crate"]) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "known are `as = Type` and, on a type, `crate = \"path\"`".to_owned(),
                    };
                    return Err(meta.error(format!("`#[answer({given})]` is not known; {hint}")));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

/// The serde attributes of a type.
#[derive(Default)]
pub(super) struct AnswerContainer {
    /// The rename rule for the fields of a struct, or the variants of an enum.
    pub(super) rule: RenameRule,
    /// The rename rule for the fields of an enum's variants.
    pub(super) field_rule: RenameRule,
    pub(super) tag: Option<LitStr>,
    pub(super) content: Option<LitStr>,
    pub(super) is_untagged: bool,
    pub(super) is_transparent: bool,
    /// The type that serde reads and converts into this one.
    pub(super) from: Option<Type>,
    pub(super) has_default: bool,
    pub(super) is_closed: bool,
}

impl AnswerContainer {
    pub(super) fn read(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut container = Self::default();
        each(attrs, |meta| {
            match &*word(&meta) {
                "rename_all" => container.rule = rule(&meta)?,
                "rename_all_fields" => container.field_rule = rule(&meta)?,
                "tag" => container.tag = Some(meta.value()?.parse()?),
                "content" => container.content = Some(meta.value()?.parse()?),
                "untagged" => container.is_untagged = true,
                "transparent" => container.is_transparent = true,
                "from" | "try_from" => container.from = Some(meta.value()?.parse::<LitStr>()?.parse()?),
                "deny_unknown_fields" => container.is_closed = true,
                "default" => {
                    container.has_default = true;
                    skip(&meta)?;
                }
                name @ ("remote" | "variant_identifier" | "field_identifier") => {
                    return Err(meta.error(format!(
                        "what JSON is taken under `#[serde({name})]` is not known here; name a type that takes the same with \
                         `#[answer(as = Type)]`, or implement `AnswerShape` by hand"
                    )));
                }
                _ => skip(&meta)?,
            }
            Ok(())
        })?;
        Ok(container)
    }
}

/// The serde attributes of a field or a variant.
#[derive(Default)]
pub(super) struct Part {
    pub(super) rename: Option<String>,
    /// The rename rule for the fields of a variant.
    pub(super) rule: Option<RenameRule>,
    pub(super) is_skipped: bool,
    pub(super) has_default: bool,
    /// Whether a custom function deserializes the field.
    pub(super) has_reader: bool,
}

impl Part {
    /// Parses the attributes. `has_shape` is true if `#[answer(as = Type)]` sets the shape.
    pub(super) fn read(attrs: &[Attribute], has_shape: bool) -> syn::Result<Self> {
        let mut part = Self::default();
        each(attrs, |meta| {
            match &*word(&meta) {
                "rename" => {
                    if let Some(name) = read_name(&meta)? {
                        part.rename = Some(name.value());
                    }
                }
                "rename_all" => part.rule = Some(rule(&meta)?),
                "skip" | "skip_deserializing" => part.is_skipped = true,
                "default" => {
                    part.has_default = true;
                    skip(&meta)?;
                }
                name @ ("with" | "deserialize_with") => {
                    if !has_shape {
                        return Err(meta.error(format!(
                            "what JSON is taken under `#[serde({name})]` is not known here; name a type that takes the same beside it: \
                             `#[answer(as = String)]`"
                        )));
                    }
                    part.has_reader = true;
                    skip(&meta)?;
                }
                "flatten" => {
                    return Err(meta.error(
                        "the fields that are flattened in are not known here; write them into this type, or implement `AnswerShape` \
                         by hand with `Shape::object`",
                    ));
                }
                "alias" => {
                    return Err(meta.error(
                        "a shape has one name for a field, and an answer by the alias would be refused; remove `#[serde(alias)]`, or \
                         implement `AnswerShape` by hand",
                    ));
                }
                "other" => {
                    return Err(meta.error(
                        "a shape lists the variants, and an answer with another would be refused; remove `#[serde(other)]`, or \
                         implement `AnswerShape` by hand",
                    ));
                }
                "untagged" => {
                    return Err(meta.error(
                        "one untagged variant among others has no shape; put `#[serde(untagged)]` on the enum, or implement \
                         `AnswerShape` by hand with `Shape::any_of`",
                    ));
                }
                _ => skip(&meta)?,
            }
            Ok(())
        })?;
        Ok(part)
    }
}

fn word(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

fn rule(meta: &ParseNestedMeta<'_>) -> syn::Result<RenameRule> {
    read_name(meta)?.map_or(Ok(RenameRule::default()), |text| RenameRule::parse(&text))
}

/// Parses `key = "name"`, or the name for deserialization in `key(serialize = "name", deserialize = "name")`.
fn read_name(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<LitStr>> {
    if meta.input.peek(Token![=]) {
        return Ok(Some(meta.value()?.parse()?));
    }
    let mut name = None;
    meta.parse_nested_meta(|inner| {
        let text = inner.value()?.parse()?;
        if inner.path.is_ident("deserialize") {
            name = Some(text);
        }
        Ok(())
    })?;
    Ok(name)
}
