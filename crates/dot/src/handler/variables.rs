//! Context keys as environment variables of a command. A shell never interprets these values as code, unlike text that is inserted into the command.

use std::collections::BTreeMap;
use std::ffi::OsString;

use ferrata_core::state::Context;
use serde_json::Value as Json;

/// Maximum size of one value. The next constant limits all values together. Linux does not start a command with a variable of 128 KiB, or with
/// several megabytes of variables.
const MOST: usize = 96 << 10;
const MOST_OF_ALL: usize = 512 << 10;

/// Prefixes of keys that the engine and its handlers set, in addition to [`ENGINE`].
const OF_ENGINE: [&str; 7] = ["graph.", "human.", "parallel.", "response.", "stack.", "tool.", "usage."];

/// The keys that the engine sets after each node.
const ENGINE: [&str; 4] = ["current_node", "outcome", "preferred_label", "failure_reason"];

/// Maximum number of colliding keys that are reported.
const TOLD: usize = 50;

fn name(key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    "FERRATA_CONTEXT_".chars().chain(key.chars().map(plain)).collect()
}

/// The keys of a context, grouped by the name of their environment variable.
struct ContextVariables<'a>(BTreeMap<String, Vec<&'a str>>);

impl<'a> ContextVariables<'a> {
    fn of(context: &'a Context) -> Self {
        let mut named: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (key, _) in
            context.iter().filter(|(key, value)| !key.starts_with("internal.") && !value.is_null())
        {
            named.entry(name(key)).or_default().push(key);
        }
        Self(named)
    }

    /// Returns whether the variable `name` gets the value of `key`. The answer of a model may set a key that only looks like a key of the engine.
    /// Such a key must not replace the key of the engine.
    fn tells(&self, name: &str, key: &str) -> bool {
        match self.0.get(name).map(Vec::as_slice) {
            None | Some([_]) => true,
            Some(keys) => is_of_engine(key) && keys.iter().filter(|key| is_of_engine(key)).count() == 1,
        }
    }

    /// Returns the keys that get no variable, because another key has the same variable name.
    fn colliding(&self) -> Vec<&'a str> {
        let all = self.0.iter().flat_map(|(name, keys)| keys.iter().map(move |key| (name, *key)));
        all.filter(|(name, key)| !self.tells(name, key)).map(|(_, key)| key).take(TOLD).collect()
    }
}

/// Returns the keys of a context that get no variable because of name collisions.
pub(super) fn colliding(context: &Context) -> Vec<&str> {
    ContextVariables::of(context).colliding()
}

/// Returns the environment variables, in the order of the keys.
pub(super) fn of(context: &Context) -> Vec<(OsString, OsString)> {
    let named = ContextVariables::of(context);
    let mut variables = Vec::new();
    let mut room = MOST_OF_ALL;
    for (key, value) in context.iter().filter(|(key, _)| !key.starts_with("internal.")) {
        let name = name(key);
        if !named.tells(&name, key) {
            continue;
        }
        let text = match value {
            Json::Null => continue,
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let size = key.len() + text.len();
        if text.len() > MOST || size > room || text.contains('\0') {
            continue;
        }
        room -= size;
        variables.push((name.into(), text.into()));
    }
    let colliding = named.colliding();
    if !colliding.is_empty() {
        variables.push(("FERRATA_COLLIDING_KEYS".into(), Json::from(colliding).to_string().into()));
    }
    variables
}

fn is_of_engine(key: &str) -> bool {
    ENGINE.contains(&key) || OF_ENGINE.iter().any(|begins| key.starts_with(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_can_be_told_is_told() {
        let mut context = Context::new();
        context.set("dir", "a b").unwrap();
        context.set("tool.exit_code", 3).unwrap();
        context.set("list", ["x"]).unwrap();
        context.set("internal.x", "no").unwrap();
        context.set("gone", Json::Null).unwrap();
        context.set("zero", "a\0b").unwrap();
        context.set("big", "x".repeat(MOST + 1)).unwrap();
        let told: Vec<String> = of(&context)
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected =
            ["FERRATA_CONTEXT_dir=a b", "FERRATA_CONTEXT_list=[\"x\"]", "FERRATA_CONTEXT_tool_exit_code=3"];
        assert_eq!(told, expected);
        let mut context = Context::new();
        for at in 0..20 {
            context.set(format!("k{at}"), "x".repeat(MOST)).unwrap();
        }
        let total: usize = of(&context).iter().map(|(_, value)| value.len()).sum();
        assert!((MOST..=MOST_OF_ALL).contains(&total), "{total}");
    }

    /// An answer of a model with the key `tool_exit_code` must not replace the exit code of the last tool.
    #[test]
    fn engine_like_key_does_not_shadow_engine_key() {
        let mut context = Context::new();
        for key in ["tool.exit_code", "tool_exit_code", "tool exit code", "tool-exit.code"] {
            context.set(key, key).unwrap();
        }
        for key in ["outcome", "a.b", "a_b", "a-b", "current.node", "current_node", "zz"] {
            context.set(key, key).unwrap();
        }
        let told: Vec<String> =
            of(&context).into_iter().map(|(_, value)| value.display().to_string()).collect();
        let colliding =
            r#"["a-b","a.b","a_b","current.node","tool exit code","tool-exit.code","tool_exit_code"]"#;
        assert_eq!(told, ["current_node", "outcome", "tool.exit_code", "zz", colliding]);
    }
}
