//! The context as variables of a command's environment: safe from a shell, unlike text put into the command.

use std::ffi::OsString;

use ferrata_core::state::Context;
use serde_json::Value as Json;

/// How long a value may be, and all together: Linux starts no command with a variable of 128 KiB, or with some megabytes of them.
const MOST: usize = 96 << 10;
const MOST_OF_ALL: usize = 512 << 10;

/// Returns the variables, in the order of the keys.
pub(super) fn of(context: &Context) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    let mut room = MOST_OF_ALL;
    for (key, value) in context.iter().filter(|(key, _)| !key.starts_with("internal.")) {
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
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = "FERRATA_CONTEXT_".chars().chain(key.chars().map(plain)).collect();
        variables.push((name.into(), text.into()));
    }
    variables
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
}
