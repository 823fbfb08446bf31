//! Variables that the application sets in the prompts of a pipeline, before the pipeline is compiled.

use std::collections::BTreeMap;

use ferrata_core::{Error, ErrorKind};

use super::Transform;
use crate::pipeline::Pipeline;
use crate::value::Value;
use crate::variable::{VariableForm, VariableRef, variables};

/// Maximum size of a prompt after replacement, in bytes. The next constant limits all prompts together. A short prompt can contain a long value very
/// often.
pub(super) const MAX_PROMPT: usize = 1 << 20;
pub(super) const MAX_PROMPTS: usize = 1 << 28;

/// Replaces the variables `$name`, `${name}` and `{{ name }}` in the `prompt` of every node by the given values.
///
/// A variable ends before any character other than a letter, a digit or `_`, so `$goals` is not `$goal`. Variables in inserted values are not
/// replaced. A variable without a value stays in the prompt. The run replaces it from its context when the task begins.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
}

impl Variables {
    /// Adds a variable. A variable `goal` replaces the goal of the graph.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// Returns the value of a variable, and the end of the text that the value replaces.
    fn resolve(&self, reference: &VariableRef<'_>) -> Option<(&str, usize)> {
        let mut name = reference.name;
        loop {
            if let Some(value) = self.values.get(name) {
                // In `$a.b`, the variable is `$a`, and the rest stays.
                let rest = if reference.form == VariableForm::Dollar {
                    reference.name.len() - name.len()
                } else {
                    0
                };
                return Some((value, reference.end - rest));
            }
            name = match reference.form {
                VariableForm::Dollar => name.rsplit_once('.')?.0,
                VariableForm::Template => name.strip_prefix("inputs.")?,
                VariableForm::Braces => return None,
            };
        }
    }
}

impl Transform for Variables {
    fn name(&self) -> &str {
        "variables"
    }

    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let mut total = 0;
        for node in pipeline.nodes_mut() {
            let Some(prompt) = node.attributes.get("prompt").map(|prompt| prompt.text().into_owned()) else {
                continue;
            };
            let mut expanded = String::new();
            let mut copied = 0;
            for reference in variables(&prompt) {
                let Some((value, end)) = self.resolve(&reference) else { continue };
                expanded += &prompt[copied..reference.start];
                expanded += value;
                if expanded.len() > MAX_PROMPT || total + expanded.len() > MAX_PROMPTS {
                    let most = if expanded.len() > MAX_PROMPT { MAX_PROMPT } else { MAX_PROMPTS };
                    let message = format!(
                        "the prompt of `{}` is too long with its variables: at most {most} bytes; shorten it",
                        node.id()
                    );
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                copied = end;
            }
            if copied > 0 {
                expanded += &prompt[copied..];
                total += expanded.len();
                node.attributes.replace("prompt", Value::string(expanded));
            }
        }
        Ok(())
    }
}
