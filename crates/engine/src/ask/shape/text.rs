//! Short descriptions of shapes for people.

use std::fmt;

use super::{IntegerType, Shape, ShapeField, ShapeForm};

/// The maximum number of entries that are listed. Further entries are only counted.
const LISTED: usize = 12;
/// The depth to which the content of a shape is described.
const DEPTH: usize = 2;

/// Formats the shape in a few words, such as `an object with amount (integer), note (text, optional)`. Large shapes are shortened.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.expected())
    }
}

impl ShapeForm {
    /// Returns the description with an article.
    pub(super) fn expected(&self) -> String {
        self.counted(DEPTH)
    }

    fn counted(&self, depth: usize) -> String {
        let words = self.words(depth);
        match self {
            Self::Int(_) | Self::Map(_) | Self::Object { .. } | Self::Tagged { .. } => format!("an {words}"),
            Self::Number | Self::List(_) | Self::Tuple { .. } => format!("a {words}"),
            Self::Nullable(inner) => or_null(inner.counted(depth)),
            _ => words,
        }
    }

    fn words(&self, depth: usize) -> String {
        let inner = |form: &Self| form.counted(depth.saturating_sub(1));
        let shallow = depth == 0;
        match self {
            Self::Any => "anything".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Int(int) => int.words(),
            Self::Number => "number".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Char => "one character".to_owned(),
            Self::Bytes => "bytes (a list or a text)".to_owned(),
            Self::Null => "null".to_owned(),
            Self::OneOf(names) | Self::Units(names) => one_of(names.iter().map(|name| short(name))),
            Self::Variants(variants) => one_of(variants.iter().map(|(name, form)| match form {
                Self::Null => short(name),
                _ if shallow => format!("{} with content", short(name)),
                form => format!("{} with {}", short(name), form.counted(depth - 1)),
            })),
            Self::Nullable(form) => or_null(form.words(depth)),
            Self::List(form) if shallow || **form == Self::Any => "list".to_owned(),
            Self::List(form) => format!("list, each {}", inner(form)),
            Self::Tuple { forms, .. } if forms.is_empty() => "list without elements".to_owned(),
            Self::Tuple { forms, .. } if shallow => format!("list of {}", forms.len()),
            Self::Tuple { forms, .. } => {
                format!("list of {}: {}", forms.len(), listed(forms.iter().map(inner)))
            }
            Self::Map(form) if shallow || **form == Self::Any => "object".to_owned(),
            Self::Map(form) => format!("object, each value {}", inner(form)),
            Self::Object { fields, .. } if shallow || fields.is_empty() => "object".to_owned(),
            Self::Object { fields, .. } => {
                format!(
                    "object with {}",
                    listed(fields.iter().map(|(name, field)| field.words(name, depth - 1)))
                )
            }
            Self::Tagged { tag, variants } => {
                let tag = short(tag);
                let names = variants.iter().map(|(name, form)| match form {
                    Self::Object { fields, .. } if !shallow && !fields.is_empty() => {
                        let fields = fields.iter().map(|(name, field)| field.words(name, depth - 1));
                        format!("{} with {}", short(name), listed(fields))
                    }
                    Self::Null | Self::Object { .. } => short(name),
                    form => format!("{} and {}", short(name), form.counted(depth.saturating_sub(1))),
                });
                format!("object with {tag} {}", one_of(names))
            }
            Self::AnyOf(forms) if forms.is_empty() => one_of(std::iter::empty()),
            Self::AnyOf(forms) => {
                let more = forms.len().saturating_sub(LISTED);
                let listed: Vec<_> = forms.iter().take(LISTED).map(|form| form.counted(depth)).collect();
                let more = if more > 0 { format!(" or {more} more") } else { String::new() };
                format!("{}{more}", listed.join(" or "))
            }
        }
    }
}

impl ShapeField {
    fn words(&self, name: &str, depth: usize) -> String {
        // Omit that an optional field may be null.
        let form = match &self.form {
            ShapeForm::Nullable(form) if !self.required => form,
            form => form,
        };
        let optional = if self.required { "" } else { ", optional" };
        format!("{} ({}{optional})", short(name), form.words(depth))
    }
}

impl IntegerType {
    /// Returns the description of an integer type. It contains the range if a person may enter a number outside of it.
    fn words(self) -> String {
        match self {
            Self::I32 | Self::I64 | Self::I128 => "integer".to_owned(),
            Self::U32 | Self::U64 | Self::U128 => "integer from 0".to_owned(),
            Self::I8 | Self::I16 | Self::U8 | Self::U16 => self.exactly(),
        }
    }

    pub(super) fn exactly(self) -> String {
        let (least, greatest) = self.range();
        format!("integer from {least} to {greatest}")
    }
}

/// Adds the words "or null" at most once.
fn or_null(words: String) -> String {
    if ["null", "anything"].iter().any(|end| words.ends_with(end)) {
        words
    } else {
        format!("{words} or null")
    }
}

fn one_of(names: impl ExactSizeIterator<Item = String>) -> String {
    if names.len() == 0 {
        "no value: there is no choice".to_owned()
    } else {
        format!("one of: {}", listed(names))
    }
}

fn listed(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(LISTED);
    let mut listed = words.take(LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        listed.push_str(&format!(" and {more} more"));
    }
    listed
}

/// Shortens a name of the application, which may have any length and line breaks.
fn short(name: &str) -> String {
    let mut short: String = name.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}
