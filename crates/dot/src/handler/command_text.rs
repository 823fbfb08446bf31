//! Prepares the command of a tool. Its variables become environment variables, so that the shell never interprets a value as code.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use ferrata_core::state::Context;

use super::inherit::InheritedNames;
use crate::pipeline::Node;
use crate::shell::{self, ShellQuote, is_looked_up, is_of_shells, lookup_name};
use crate::variable::{VariableForm, resolve, text_of, value};

/// Maximum length of a value in bytes. Linux does not start a command with an environment variable of 128 KiB.
const MAX_VALUE: usize = 96 << 10;

/// Names that never refer to a context key, because environment variables with these names change how programs run.
const RESERVED: [&str; 15] = [
    "CDPATH",
    "EDITOR",
    "ENV",
    "HOME",
    "IFS",
    "NODE_OPTIONS",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PS4",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "SHELL",
    "TMPDIR",
];
const RESERVED_PREFIXES: [&str; 6] = ["BASH_", "DYLD_", "FERRATA_", "GIT_", "LD_", "SSH_"];

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// A command, and the environment variables that it needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandText {
    pub(super) line: String,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl CommandText {
    /// Creates the command from a text in a language other than shell. Such a program reads the context from its environment.
    pub(super) fn of_other_language(text: &str) -> Self {
        Self { line: text.to_owned(), environment: Vec::new() }
    }
}

/// Creates the command from a shell text. `$name` and `${name}` stay in the text; if the context has the name and the environment does not, the shell
/// gets an environment variable with the value. `{{ name }}` and names with dots become quoted references to environment variables.
///
/// # Errors
///
/// Fails if a name has no value, because the shell would insert an empty text. Also fails if a value cannot be passed to a command.
pub(super) fn prepare(
    text: &str,
    node: &Node,
    inherit: &InheritedNames,
    context: &Context,
) -> Result<CommandText, String> {
    let read = shell::read(text);
    let inherited: BTreeSet<OsString> = if read.found.is_empty() {
        BTreeSet::new()
    } else {
        inherit.of_process().map(|(name, _)| name).collect()
    };
    let in_environment = |name: &str| {
        node.attributes.get(&format!("env.{name}")).is_some()
            || name.starts_with("FERRATA_")
            || is_of_shells(name)
            || inherited.contains(OsStr::new(name))
    };
    let mut command = CommandText { line: String::new(), environment: Vec::new() };
    let mut copied = 0;
    for one in &read.found {
        let reference = one.variable;
        let name = lookup_name(one);
        let written = &text[reference.start..reference.end];
        if one.quote == ShellQuote::Comment {
            continue;
        }
        let whole = resolve(context, &reference).filter(|(_, end)| *end == reference.end);
        let is_reference = match reference.form {
            VariableForm::Template => true,
            _ if !reference.name.contains('.') || !is_replaced(one.quote) => false,
            VariableForm::Braces => true,
            // If the context has `dir`, `$dir.bak` means `$dir` followed by `.bak`.
            VariableForm::Dollar => {
                whole.is_some()
                    && value(context, name).is_none()
                    && !in_environment(name)
                    && !read.may_set(name)
            }
        };
        if is_reference {
            let Some((value, _)) = whole else {
                return Err(format!(
                    "the command uses `{written}`, which has no value{}",
                    remedy(reference.name)
                ));
            };
            let variable = format!("FERRATA_VARIABLE_{}", command.environment.len() + 1);
            command.line += &text[copied..reference.start];
            command.line += &match one.quote {
                ShellQuote::Plain => format!("\"${{{variable}}}\""),
                ShellQuote::Single => format!("'\"${{{variable}}}\"'"),
                ShellQuote::QuotedHereDocument => {
                    return Err(format!(
                        "the command uses `{written}` in a here-document with a quoted delimiter; write the delimiter without quotes"
                    ));
                }
                _ => format!("${{{variable}}}"),
            };
            copied = reference.end;
            add(&mut command, &variable, &text_of(value), written)?;
        } else if is_looked_up(one) && !in_environment(name) && !read.may_set(name) {
            match value(context, name) {
                Some(value) if !is_reserved(name) => add(&mut command, name, &text_of(value), written)?,
                None if !name.contains(|c: char| c.is_ascii_uppercase()) => {
                    return Err(format!(
                        "the command uses `{written}`, which has no value{}, or write `${{{name}:-}}` if it may be empty",
                        remedy(name)
                    ));
                }
                _ => {}
            }
        }
    }
    command.line += &text[copied..];
    Ok(command)
}

fn is_replaced(quote: ShellQuote) -> bool {
    !matches!(quote, ShellQuote::Single | ShellQuote::QuotedHereDocument)
}

fn remedy(name: &str) -> String {
    match name.strip_prefix("inputs.").unwrap_or(name) {
        "goal" => "; set `goal` in the graph, or pass `--goal`".to_owned(),
        name => format!("; pass `--var {name}=..`, let a node set it"),
    }
}

fn add(command: &mut CommandText, name: &str, value: &str, written: &str) -> Result<(), String> {
    if value.len() > MAX_VALUE || value.contains('\0') {
        return Err(format!(
            "the value of `{written}` has {} bytes; a command takes at most {MAX_VALUE} bytes without NUL, so let the previous node write a file",
            value.len()
        ));
    }
    if command.environment.iter().all(|(known, _)| known != name) {
        command.environment.push((name.into(), value.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use serde_json::json;

    fn prepared(text: &str) -> Result<(String, Vec<String>), String> {
        let mut context = Context::new();
        for (key, value) in [
            ("dir", json!("/tmp/a b")),
            ("response.plan", json!("it's; rm -rf /")),
            ("item", json!({"n": 3})),
            ("graph.goal", json!("ship")),
            ("PATH", json!("/evil")),
            ("LD_PRELOAD", json!("/evil")),
            ("big", json!("x".repeat(MAX_VALUE + 1))),
        ] {
            context.set(key, value).unwrap();
        }
        let mut node = Node::new("t");
        node.attributes.set("env.COLOR", Value::string("red"));
        prepare(text, &node, &InheritedNames::plain(), &context).map(|command| {
            let shown =
                |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
            (command.line, command.environment.into_iter().map(shown).collect())
        })
    }

    #[test]
    fn names_of_context_are_variables_of_shell() {
        let (line, environment) =
            prepared("rm $dir/build \"${dir}\" '$dir' $dir.bak $PATH $COLOR $LD_PRELOAD ${none:-}").unwrap();
        assert_eq!(line, "rm $dir/build \"${dir}\" '$dir' $dir.bak $PATH $COLOR $LD_PRELOAD ${none:-}");
        assert_eq!(environment, ["dir=/tmp/a b"]);
        assert_eq!(prepared("echo $goal").unwrap().1, ["goal=ship"]);
    }

    /// A template always becomes a reference to a variable in quotes that fit its position, whatever the value contains.
    #[test]
    fn templates_are_quoted_references() {
        for (text, line) in [
            ("echo {{ response.plan }}", "echo \"${FERRATA_VARIABLE_1}\""),
            ("echo \"a {{ response.plan }}\"", "echo \"a ${FERRATA_VARIABLE_1}\""),
            ("echo 'a {{ response.plan }}'", "echo 'a '\"${FERRATA_VARIABLE_1}\"''"),
            ("cat <<E\n{{ response.plan }}\nE", "cat <<E\n${FERRATA_VARIABLE_1}\nE"),
            (
                "echo ${response.plan} $response.plan",
                "echo \"${FERRATA_VARIABLE_1}\" \"${FERRATA_VARIABLE_2}\"",
            ),
        ] {
            let (found, environment) = prepared(text).unwrap();
            assert_eq!(found, line, "{text}");
            assert!(environment.iter().all(|one| one.ends_with("=it's; rm -rf /")), "{environment:?}");
        }
        assert_eq!(
            prepared("echo {{ inputs.dir }} {{ item.n }} # {{ none }}").unwrap().1,
            ["FERRATA_VARIABLE_1=/tmp/a b", "FERRATA_VARIABLE_2=3"]
        );
    }

    /// The shell treats a name without a value as an empty text: `rm -rf $dir/build` would become `rm -rf /build`.
    #[test]
    fn name_without_value_is_refused() {
        for (text, part) in [
            ("rm -rf $target/build", "uses `$target`, which has no value; pass `--var target=..`"),
            ("rm -rf \"${target}\"", "or write `${target:-}` if it may be empty"),
            (
                "echo {{ inputs.target }}",
                "uses `{{ inputs.target }}`, which has no value; pass `--var target=..`",
            ),
            ("cat <<'E'\n{{ dir }}\nE", "in a here-document with a quoted delimiter"),
            ("echo $big", "has 98305 bytes"),
        ] {
            assert!(prepared(text).is_err_and(|error| error.contains(part)), "{text}: {:?}", prepared(text));
        }
        for text in [
            "echo $UNKNOWN",
            "target=1; rm $target",
            ". ./env; rm $target",
            "echo '$target' \\$target",
            "rm ${target:-x}",
        ] {
            assert!(prepared(text).is_ok_and(|(line, _)| line == text), "{text}");
        }
    }
}
