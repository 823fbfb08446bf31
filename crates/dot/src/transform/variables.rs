//! Variables in prompts: `$goal`, and those that the application adds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ferrata_core::{Error, ErrorKind};

use super::Transform;
use crate::pipeline::Pipeline;
use crate::value::Value;

/// How many bytes a prompt may have once its variables are replaced, and all prompts together. A short prompt can ask for a
/// long goal a million times.
pub(super) const MAX_PROMPT: usize = 1 << 20;
pub(super) const MAX_PROMPTS: usize = 1 << 28;

/// Replaces variables in the `prompt` of every node: `$goal` by the graph's goal, and others by what was given.
///
/// A variable ends where no letter, digit or `_` follows: `$goals` is not `$goal`. What is put in is not looked through
/// again. A variable without a value is left as it is, and lint warns of it.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
}

impl Variables {
    /// Adds a variable; `goal` replaces what the graph says.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }
}

impl Transform for Variables {
    fn name(&self) -> &str {
        "variables"
    }

    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let goal = pipeline.goal().into_owned();
        let mut total = 0;
        for node in pipeline.nodes_mut() {
            let Some(prompt) = node.attributes.get("prompt").map(|prompt| prompt.text().into_owned()) else {
                continue;
            };
            let mut expanded = String::new();
            let mut copied = 0;
            for (at, name) in references(&prompt) {
                let value = match (self.values.get(name), name) {
                    (Some(value), _) => value,
                    (None, "goal") => &goal,
                    (None, _) => continue,
                };
                expanded += &prompt[copied..at];
                expanded += value;
                if expanded.len() > MAX_PROMPT || total + expanded.len() > MAX_PROMPTS {
                    let most = if expanded.len() > MAX_PROMPT { MAX_PROMPT } else { MAX_PROMPTS };
                    let message = format!(
                        "the prompt of `{}` is too long with its variables: at most {most} bytes; shorten it",
                        node.id()
                    );
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                copied = at + 1 + name.len();
            }
            if copied > 0 {
                total += expanded.len();
                expanded += &prompt[copied..];
                node.attributes.set("prompt", Value::string(expanded));
            }
        }
        Ok(())
    }
}

/// Returns a text with its variables replaced by what is known of them; others are left as they are. What is put in is not looked
/// through again, and what would be longer than a prompt may be is left out.
pub(crate) fn expanded(text: &str, value: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let (mut expanded, mut copied) = (String::new(), 0);
    for (at, name) in references(text) {
        let Some(value) = value(name).filter(|value| expanded.len() + value.len() <= MAX_PROMPT) else {
            continue;
        };
        expanded += &text[copied..at];
        expanded += &value;
        copied = at + 1 + name.len();
    }
    if copied == 0 {
        return text.into();
    }
    expanded += &text[copied..];
    expanded.into()
}

/// Returns the variables of a text: where each `$` is, and the name after it.
pub(crate) fn references(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('$').filter_map(|(at, _)| {
        let rest = &text[at + 1..];
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let begins = rest.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        begins.then(|| (at, &rest[..length]))
    })
}
