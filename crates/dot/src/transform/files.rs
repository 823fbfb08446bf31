//! Prompts in their own files, for example `prompt="@prompts/plan.md"`.

use std::path::PathBuf;

use ferrata_core::{Error, ErrorKind};

use super::Transform;
use super::variables::{MAX_PROMPT, MAX_PROMPTS};
use crate::pipeline::Pipeline;
use crate::run_dir::files;
use crate::suggest::beginning_for_message;
use crate::value::Value;

/// The attribute that names the file of a prompt in another dialect.
const FILE: &str = "prompt_file";

/// Replaces each `prompt` of the form `@path` (without a blank) by the text of this file. The attribute `prompt_file` names a file in the same way.
///
/// A relative path starts at the given directory. The default is the working directory of the process. If a file is missing, is not a regular file,
/// is not UTF-8, or is larger than 1 MiB, the transform fails. Otherwise a model would receive the path as its prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptFiles {
    directory: Option<PathBuf>,
}

impl PromptFiles {
    /// Creates the transform, with the directory at which relative paths start.
    pub fn in_directory(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }
}

/// Returns the path that a prompt names; `None` if the prompt is a text.
fn named(prompt: &str) -> Option<&str> {
    let path = prompt.trim().strip_prefix('@')?;
    (!path.is_empty() && !path.contains(char::is_whitespace)).then_some(path)
}

impl Transform for PromptFiles {
    fn name(&self) -> &str {
        "prompt files"
    }

    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let mut total = 0;
        for node in pipeline.nodes_mut() {
            let (prompt, file) =
                (node.attributes.text("prompt").into_owned(), node.attributes.text(FILE).into_owned());
            let path = match (named(&prompt), file.trim()) {
                (Some(path), "") => path,
                (_, "") => continue,
                (_, path) if prompt.is_empty() => path,
                _ => {
                    let message =
                        format!("node {}: `prompt` and `{FILE}` are both set; keep one of them", node.id());
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
            };
            let refuse = |why: &dyn std::fmt::Display| {
                let message = format!(
                    "node {}: cannot read the prompt file `{}`: {why}",
                    node.id(),
                    beginning_for_message(path)
                );
                Error::new(ErrorKind::Invalid, message)
            };
            let place = self.directory.as_ref().map_or_else(|| path.into(), |directory| directory.join(path));
            let text = files::read_any(&place, MAX_PROMPT as u64).map_err(|error| refuse(&error))?;
            total += text.len();
            if total > MAX_PROMPTS {
                return Err(refuse(&"all prompts together are too long"));
            }
            let text = String::from_utf8(text).map_err(|_| refuse(&"the file is not UTF-8 text"))?;
            match file.is_empty() {
                true => node.attributes.replace("prompt", Value::string(text)),
                // The file replaces the prompt of the node if the node itself names the file. If a scope names it, the file is a default.
                false if node.attributes.is_own(FILE) => node.attributes.set("prompt", Value::string(text)),
                false => node.attributes.set_below("prompt", Value::string(text)),
            }
        }
        Ok(())
    }
}
