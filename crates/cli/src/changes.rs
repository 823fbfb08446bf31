//! Changes of a state from the command line, converted to the patch that is recorded.

use ferrata::state::{Channels, Op};
use ferrata::{Patch, RunKey};
use serde_json::Value;

use crate::args::StateChanges;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::input;

impl StateChanges {
    /// Returns whether the command line contains no change.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty() && self.patch.is_none()
    }

    /// Returns the patch that makes these changes to `state`.
    ///
    /// The command cannot check whether the run's code can read the result. So `--force` is required to change the type of a value, or to add a
    /// channel.
    pub(crate) fn patch(&self, run: &RunKey, state: &Channels) -> Result<Patch, CommandFailure> {
        self.checked(run, state, false)
    }

    /// Returns the patch that makes the changes of a node to `state`. A node may add channels without `--force`.
    pub(crate) fn patch_of_node(&self, run: &RunKey, state: &Channels) -> Result<Patch, CommandFailure> {
        self.checked(run, state, true)
    }

    fn checked(&self, run: &RunKey, state: &Channels, new_channels: bool) -> Result<Patch, CommandFailure> {
        let next = format!("ferrata state {}", display_key(run));
        let mut ops: Vec<Op> = Vec::new();
        if let Some(path) = &self.patch {
            let text = input::text(path)?;
            let patch =
                Patch::from_json(&text).map_err(|error| CommandFailure::from(error).or_type(next.clone()))?;
            ops.extend(patch.ops()?);
        }
        for channel in &self.remove {
            if state.get(channel).is_none() && !self.force {
                let message = format!(
                    "cannot remove the channel `{}`; the state does not have it",
                    channel.escape_debug()
                );
                return Err(CommandFailure::usage(message, next));
            }
            ops.push(Op::Remove(channel.clone(), Vec::new()));
        }
        let mut after = state.clone();
        for op in &ops {
            after.apply_op(op.clone()).map_err(|error| {
                let message = format!("cannot apply the changes to the state: {}", error.message());
                CommandFailure::usage(message, next.clone())
            })?;
        }
        for (place, value) in &self.set {
            let value = input::json_or_text(&input::value(value)?);
            let (channel, rest) = split(place);
            let changed = match (after.get(&channel), rest.is_empty()) {
                (_, true) => value,
                (Some(there), false) => placed(there, &rest, value).ok_or_else(|| {
                    let message =
                        format!("cannot change `{}`; the state has no such path", place.escape_debug());
                    CommandFailure::usage(message, next.clone())
                })?,
                (None, false) => {
                    let message =
                        format!("cannot find the channel `{}` in the state", channel.escape_debug());
                    return Err(CommandFailure::usage(message, next));
                }
            };
            after.insert(channel.clone(), changed.clone());
            ops.push(Op::Set(channel, changed));
        }
        if !self.force {
            check(state, &after, new_channels).map_err(|message| CommandFailure::usage(message, next))?;
        }
        Ok(Patch::from_ops(&ops)?)
    }
}

/// Splits a path into the channel and the JSON pointer inside the channel.
fn split(place: &str) -> (String, String) {
    let Some(pointer) = place.strip_prefix('/') else { return (place.to_owned(), String::new()) };
    let (channel, rest) = pointer.split_once('/').map_or((pointer, ""), |(channel, rest)| (channel, rest));
    let rest = if pointer.contains('/') { format!("/{rest}") } else { String::new() };
    (channel.replace("~1", "/").replace("~0", "~"), rest)
}

/// Returns a copy of `there` with `value` at a position: an existing path, a new name in an object, or the end of a list. Returns `None` for another
/// position.
fn placed(there: &Value, pointer: &str, value: Value) -> Option<Value> {
    let mut whole = there.clone();
    if let Some(place) = whole.pointer_mut(pointer) {
        *place = value;
        return Some(whole);
    }
    let (parent, last) = pointer.rsplit_once('/')?;
    match whole.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(last.replace("~1", "/").replace("~0", "~"), value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        _ => return None,
    }
    Some(whole)
}

/// Fails if a channel gets a value that the run's code probably does not expect.
fn check(before: &Channels, after: &Channels, new_channels: bool) -> Result<(), String> {
    for (name, value) in after {
        match before.get(name) {
            None if new_channels => {}
            None => {
                return Err(format!(
                    "cannot find the channel `{}` in the state; add --force to create it",
                    name.escape_debug()
                ));
            }
            Some(there) if kind(there) != kind(value) && !there.is_null() => {
                return Err(format!(
                    "channel `{}` has {} and would get {}, which its code may not read; add --force to change it",
                    name.escape_debug(),
                    kind(there),
                    kind(value)
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(set: &[(&str, &str)], force: bool) -> Result<String, String> {
        let state = Channels::from_json(r#"{"n":1,"a/b":{"x":[1,2]},"none":null}"#).unwrap();
        let set = set.iter().map(|(place, value)| ((*place).to_owned(), (*value).to_owned())).collect();
        let changes = StateChanges { set, force, ..StateChanges::default() };
        let run = RunKey::try_from("r").unwrap();
        let patch = changes.patch(&run, &state).map_err(|failure| failure.message().to_owned())?;
        let mut after = state;
        after.apply(&patch).unwrap();
        Ok(after.to_json().unwrap())
    }

    #[test]
    fn a_place_is_a_channel_or_a_pointer() {
        assert_eq!(changed(&[("n", "2")], false).unwrap(), r#"{"a/b":{"x":[1,2]},"n":2,"none":null}"#);
        assert_eq!(
            changed(&[("/a~1b/x/1", "3"), ("/a~1b/y", "new"), ("/a~1b/x/-", "4")], false).unwrap(),
            r#"{"a/b":{"x":[1,3,4],"y":"new"},"n":1,"none":null}"#
        );
        assert_eq!(
            changed(&[("none", "text")], false).unwrap(),
            r#"{"a/b":{"x":[1,2]},"n":1,"none":"text"}"#
        );
        assert_eq!(split("/a~1b"), ("a/b".to_owned(), String::new()));
        assert_eq!(placed(&json!([1]), "/7", json!(2)), None);
    }

    #[test]
    fn what_its_code_would_not_expect_takes_force() {
        assert!(changed(&[("n", "two")], false).unwrap_err().contains("--force"));
        assert!(changed(&[("m", "2")], false).unwrap_err().contains("the channel `m`"));
        assert!(changed(&[("/m/x", "2")], true).is_err());
        assert!(changed(&[("n", "two"), ("m", "2")], true).is_ok());
    }
}
