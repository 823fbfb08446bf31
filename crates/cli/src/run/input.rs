//! The input of a run: `--input`, `--label`, and the file of answers.

use std::collections::BTreeMap;
use std::path::Path;

use ferrata::Context as State;
use ferrata_dot::attribute::is_read_of_graph;
use serde_json::{Map, Value as Json};

use crate::exit::ExitReason;
use crate::failure::CommandFailure;

const HELP: &str = "ferrata run --help";

/// The context key of the goal of a run. An input `goal` sets it, too.
const GOAL: &str = "graph.goal";

/// Formats a goal as an input.
pub(super) fn goal(text: &str) -> String {
    format!("{GOAL}={text}")
}

/// Parses inputs of the form `key=value` and `@file.json`. A later input replaces an earlier one with the same key.
pub(super) fn input(parts: &[String]) -> Result<State, CommandFailure> {
    let mut state = State::new();
    for part in parts {
        if let Some(path) = part.strip_prefix('@') {
            for (key, value) in object(Path::new(path), "an input")? {
                set(&mut state, key, &value)?;
            }
            continue;
        }
        let (key, value) = pair(part, "--input")?;
        set(&mut state, key, &Json::from(value))?;
    }
    Ok(state)
}

fn set(state: &mut State, key: String, value: &Json) -> Result<(), CommandFailure> {
    if key.starts_with("internal.") {
        let message = format!(
            "the input sets `{key}`, and keys that begin with `internal.` are reserved; use another key"
        );
        return Err(CommandFailure::usage(message, HELP));
    }
    if key.strip_prefix("graph.").is_some_and(is_read_of_graph) {
        let message =
            format!("the input sets `{key}`, which the pipeline reads only from its file; set it there");
        return Err(CommandFailure::usage(message, HELP));
    }
    if key == "goal" {
        state.set(GOAL, value).map_err(|error| CommandFailure::from(error).or_type(HELP))?;
    }
    state.set(key, value).map_err(|error| CommandFailure::from(error).or_type(HELP))
}

/// Parses labels of the form `key=value`.
pub(super) fn labels(parts: &[String]) -> Result<Vec<(String, String)>, CommandFailure> {
    parts.iter().map(|part| pair(part, "--label")).collect()
}

fn pair(text: &str, option: &str) -> Result<(String, String), CommandFailure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => {
            let message = format!("`{}` is not of the form KEY=VALUE", text.escape_debug());
            Err(CommandFailure::usage(format!("{option}: {message}"), HELP))
        }
    }
}

/// Reads a file that contains a JSON object.
fn object(path: &Path, what: &str) -> Result<Map<String, Json>, CommandFailure> {
    let text = std::fs::read(path).map_err(|error| {
        let exit = if error.kind() == std::io::ErrorKind::NotFound {
            ExitReason::NotFound
        } else {
            ExitReason::Internal
        };
        CommandFailure::new(exit, format!("cannot read `{}`: {error}", path.display()), HELP)
    })?;
    serde_json::from_slice(&text).map_err(|error| {
        let message =
            format!("cannot read `{}` as {what}, which must be a JSON object: {error}", path.display());
        CommandFailure::usage(message, HELP)
    })
}

/// The answers in a file for a node.
#[derive(Debug)]
pub(super) enum FileAnswer {
    /// One answer for all visits.
    Always(Json),
    /// A list with one answer for each visit.
    Each(Vec<Json>),
}

impl FileAnswer {
    /// Returns the answer for a visit. Visits are counted from 1.
    pub(super) fn of_visit(&self, visit: u32) -> Option<&Json> {
        match self {
            Self::Always(value) => Some(value),
            Self::Each(values) => values.get(usize::try_from(visit).ok()?.checked_sub(1)?),
        }
    }
}

/// The answers in a file, by the node that asks.
pub(super) type Answers = BTreeMap<String, FileAnswer>;

/// Reads the file of answers.
pub(super) fn answers(path: &Path) -> Result<Answers, CommandFailure> {
    let listed = object(path, "a file of answers")?;
    let each = |value: Json| match value {
        Json::Array(values) => FileAnswer::Each(values),
        value => FileAnswer::Always(value),
    };
    Ok(listed.into_iter().map(|(node, value)| (node, each(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_texts_or_objects_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.json");
        std::fs::write(&path, r#"{"n": 3, "tag": "v0"}"#).unwrap();
        let parts = [format!("@{}", path.display()), "tag=v1=x".to_owned(), "empty=".to_owned()];
        let state = input(&parts).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), r#"{"empty":"","n":3,"tag":"v1=x"}"#);
        for (bad, exit) in [
            ("novalue", ExitReason::Usage),
            ("=x", ExitReason::Usage),
            ("internal.x=1", ExitReason::Usage),
            ("graph.max_cost=1", ExitReason::Usage),
            ("@/nowhere/in.json", ExitReason::NotFound),
        ] {
            assert_eq!(input(&[bad.to_owned()]).unwrap_err().exit(), exit, "{bad}");
        }
        let state = input(&["goal=mine".to_owned(), "graph.mine=x".to_owned()]).unwrap();
        assert_eq!(
            serde_json::to_string(&state).unwrap(),
            r#"{"goal":"mine","graph.goal":"mine","graph.mine":"x"}"#
        );
        std::fs::write(&path, "[1]").unwrap();
        assert_eq!(input(&[format!("@{}", path.display())]).unwrap_err().exit(), ExitReason::Usage);
    }
}
