//! The names of graphs and nodes: ids, and quoted names, from which ids are made.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::cursor::SourceCursor;
use super::error::{ParseError, ParseErrorKind as Kind};
use crate::source::{Span, SpannedValue};
use crate::suggest::beginning_for_message;
use crate::syntax::id_of_name;
use crate::tolerance::{Tolerance, note};

/// The names in a source. The table ensures that no two names have the same id.
#[derive(Default)]
pub(super) struct NameTable<'a> {
    /// The ids that are written without quotes.
    bare: HashSet<&'a str>,
    /// The quoted names, each with its id.
    quoted: HashMap<Arc<str>, String>,
}

impl<'a> NameTable<'a> {
    /// Registers a quoted name, and returns its id together with the name.
    pub(super) fn take_quoted(
        &mut self,
        cursor: &mut SourceCursor<'a>,
    ) -> Result<(SpannedValue<Arc<str>>, String), ParseError> {
        let SpannedValue { value, span } = cursor.value()?;
        let name = value.text().into_owned();
        if name.trim().is_empty() {
            let error = cursor.error(Kind::Unexpected, span, "a name is empty", "an empty name");
            return Err(error.suggest("name it"));
        }
        let id: Arc<str> = Arc::from(id_of_name(&name));
        if let Some(other) = self.quoted.get(&id).filter(|other| **other != name) {
            return Err(one_id(cursor, &id, other, &name, span));
        }
        if *id != *name && self.bare.contains(&*id) {
            return Err(one_id(cursor, &id, &id, &name, span));
        }
        self.quoted.insert(Arc::clone(&id), name.clone());
        note(&mut cursor.tolerated, || {
            if *id == *name {
                let message = "quotes around an id are ignored";
                return Tolerance::new("quoted_id", span, message, "remove them");
            }
            let message = format!(
                "the name `{}` in quotes is read as `{}`",
                beginning_for_message(&name),
                beginning_for_message(&id)
            );
            Tolerance::new(
                "quoted_id",
                span,
                message,
                format!("write `{}`, and the text as its `label`", beginning_for_message(&id)),
            )
        });
        Ok((SpannedValue::new(id, span), name))
    }

    /// Registers an id that is written without quotes.
    pub(super) fn take_bare(
        &mut self,
        cursor: &SourceCursor<'a>,
        word: SpannedValue<&'a str>,
    ) -> Result<SpannedValue<Arc<str>>, ParseError> {
        if let Some(name) = self.quoted.get(word.value).filter(|name| **name != *word.value) {
            return Err(one_id(cursor, word.value, name, word.value, word.span));
        }
        self.bare.insert(word.value);
        Ok(SpannedValue::new(Arc::from(word.value), word.span))
    }
}

/// Returns the error for two names that have the same id.
fn one_id(cursor: &SourceCursor<'_>, id: &str, one: &str, other: &str, span: Span) -> ParseError {
    let message = format!(
        "`{}` and `{}` are both read as `{}`",
        beginning_for_message(one),
        beginning_for_message(other),
        beginning_for_message(id)
    );
    let error = cursor.error(Kind::Unexpected, span, &message, "the second one");
    error.suggest("rename one of them; ids differ only by letters, digits and `_`")
}
