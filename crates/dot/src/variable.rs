//! Variables in texts: `$name`, `${name}` and `{{ name }}`, with their positions and values.

use std::borrow::Cow;

use ferrata_core::state::Context;
use serde_json::Value as Json;

/// The context key of the goal of the run.
pub(crate) const GOAL: &str = "graph.goal";

/// Maximum length of a text after replacement. A short text can name a long value very often.
const MAX_EXPANDED: usize = 16 << 20;

/// The notation of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableForm {
    /// `$name`, or `$name.more`.
    Dollar,
    /// `${name}`.
    Braces,
    /// `{{ name }}`.
    Template,
}

/// A variable in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariableRef<'a> {
    pub(crate) form: VariableForm,
    /// The name, with all parts that may belong to it. For `$a.b` the variable is `a.b` if it exists, and otherwise `a`.
    pub(crate) name: &'a str,
    /// The position where the variable begins in the text.
    pub(crate) start: usize,
    /// The position where it ends.
    pub(crate) end: usize,
}

/// Finds the variables of a text, in order. `${{ .. }}` is not a variable, because it belongs to another program.
pub(crate) fn variables(text: &str) -> impl Iterator<Item = VariableRef<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[at..];
            let start = at + rest.find(['$', '{'])?;
            let found = variable_at(text, start);
            at = match &found {
                Some(found) => found.end,
                None if text[start..].starts_with("${{") => start + 3,
                None => start + 1,
            };
            if found.is_some() {
                return found;
            }
        }
    })
}

/// Parses the variable that begins at this position, at a `$` or a brace.
pub(crate) fn variable_at(text: &str, start: usize) -> Option<VariableRef<'_>> {
    let rest = &text[start..];
    let new = |form, name, length| Some(VariableRef { form, name, start, end: start + length });
    if let Some(inner) = rest.strip_prefix("${") {
        let (name, _) = inner.split_once('}')?;
        return if is_path(name) { new(VariableForm::Braces, name, name.len() + 3) } else { None };
    }
    if let Some(inner) = rest.strip_prefix("{{") {
        let (name, _) = inner.split_once("}}")?;
        return if is_path(name.trim()) {
            new(VariableForm::Template, name.trim(), name.len() + 4)
        } else {
            None
        };
    }
    let inner = rest.strip_prefix('$')?;
    let mut length = word(inner);
    if length == 0 || inner.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    while let Some(more) = inner[length..].strip_prefix('.') {
        match word(more) {
            0 => break,
            part => length += 1 + part,
        }
    }
    new(VariableForm::Dollar, &inner[..length], length + 1)
}

fn word(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

/// Returns whether a name consists of words with dots between them and does not begin with a digit.
fn is_path(name: &str) -> bool {
    let is_word = |part: &str| !part.is_empty() && word(part) == part.len();
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.split('.').all(is_word)
}

/// Returns the first statement of a template language in a text, such as `{% if x %}`. The dialect has no such statements.
pub(crate) fn template_statement(text: &str) -> Option<&str> {
    let start = text.find("{%")?;
    let length = text[start..].find("%}")?;
    Some(&text[start..start + length + 2])
}

/// Returns the value that a context has for a complete name: the value of a key, or a part of this value. `inputs.x` and `context.x` are the same as
/// `x`, and `goal` is the goal of the run.
pub(crate) fn value<'a>(context: &'a Context, name: &str) -> Option<&'a Json> {
    let known = |name: &str| {
        let value = context.get_value(name)?;
        (!value.is_null()).then_some(value)
    };
    if name == "goal" {
        let goal = known(GOAL).filter(|goal| goal.as_str() != Some(""));
        return goal.or_else(|| known("goal"));
    }
    let within = |name: &str| {
        // Try the longest existing key first, and then a part of its value.
        let ends = name.match_indices('.').map(|(at, _)| at).rev();
        let parts = ends.filter_map(|at| Some((known(&name[..at])?, &name[at + 1..])));
        parts.filter_map(|(value, rest)| part_of(value, rest)).next()
    };
    let found = known(name).or_else(|| within(name));
    let plain = || ["inputs.", "context."].iter().find_map(|prefix| name.strip_prefix(prefix));
    found.or_else(|| plain().and_then(|name| known(name).or_else(|| within(name))))
}

fn part_of<'a>(value: &'a Json, path: &str) -> Option<&'a Json> {
    let part = path.split('.').try_fold(value, |value, key| match value {
        Json::Array(items) => items.get(key.parse::<usize>().ok()?),
        value => value.get(key),
    })?;
    (!part.is_null()).then_some(part)
}

/// Returns a value as text: a text verbatim, and any other value as JSON.
pub(crate) fn text_of(value: &Json) -> Cow<'_, str> {
    match value {
        Json::String(text) => text.into(),
        other => other.to_string().into(),
    }
}

/// Finds the value of a variable, and the end of the text that the value replaces. For `$a.b` this may be the end of `$a`.
pub(crate) fn resolve<'a>(context: &'a Context, reference: &VariableRef<'_>) -> Option<(&'a Json, usize)> {
    let mut name = reference.name;
    loop {
        if let Some(value) = value(context, name) {
            return Some((value, reference.end - (reference.name.len() - name.len())));
        }
        if reference.form != VariableForm::Dollar {
            return None;
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// Replaces the variables in a text by values of the context. A variable without a value stays in the text. Variables in inserted values are not
/// replaced.
///
/// # Errors
///
/// Returns a message for the author if a named input is missing, or if the text would become too long.
pub(crate) fn expand<'a>(text: &'a str, context: &Context) -> Result<Cow<'a, str>, String> {
    let (mut expanded, mut copied) = (String::new(), 0);
    for reference in variables(text) {
        let Some((value, end)) = resolve(context, &reference) else {
            if let Some(input) = reference.name.strip_prefix("inputs.") {
                return Err(format!(
                    "the run has no input `{}`; pass `--input {input}=..`",
                    &text[reference.start..reference.end]
                ));
            }
            continue;
        };
        expanded += &text[copied..reference.start];
        expanded += &text_of(value);
        if expanded.len() > MAX_EXPANDED {
            return Err(format!(
                "the expanded text exceeds {MAX_EXPANDED} bytes; use `{}` less often, or put its value into a file",
                reference.name
            ));
        }
        copied = end;
    }
    if copied == 0 {
        return Ok(text.into());
    }
    expanded += &text[copied..];
    Ok(expanded.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn context() -> Context {
        let mut context = Context::new();
        for (key, value) in [
            (GOAL, json!("ship")),
            ("plan", json!("the plan")),
            ("response.plan", json!("1. parse")),
            ("item", json!({"title": "one", "tags": ["x", "y"]})),
            ("count", json!(3)),
            ("gone", Json::Null),
            ("code", json!("$plan")),
        ] {
            context.set(key, value).unwrap();
        }
        context
    }

    #[test]
    fn variables_have_three_forms() {
        let found = |text: &'static str| variables(text).map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(found("$a, $b.c. ${d} ${e.f} {{ g }} {{h.i}} $"), ["a", "b.c", "d", "e.f", "g", "h.i"]);
        assert_eq!(
            found("$5 ${} ${A:-x} ${a b} {{ a | upper }} {{}} ${{ secrets.x }} {{\"k\": 1}} a{b}"),
            [""; 0]
        );
        assert_eq!(found("$a.$b ${a"), ["a", "b"]);
    }

    #[test]
    fn variables_stand_for_the_context() {
        let context = context();
        for (text, expected) in [
            ("Do $goal and ${goal} and {{ goal }}", "Do ship and ship and ship"),
            ("Do $plan.", "Do the plan."),
            ("$response.plan|${response.plan}|{{ response.plan }}", "1. parse|1. parse|1. parse"),
            ("$plan.txt ${plan.txt}", "the plan.txt ${plan.txt}"),
            (
                "$item.title $item.tags.1 $item.none ${item.none}",
                "one y {\"tags\":[\"x\",\"y\"],\"title\":\"one\"}.none ${item.none}",
            ),
            ("{{ inputs.plan }} ${context.count}", "the plan 3"),
            ("$gone $nobody {{ nobody }}", "$gone $nobody {{ nobody }}"),
            ("$code", "$plan"),
        ] {
            assert_eq!(expand(text, &context).unwrap(), expected, "{text}");
        }
        let missing = expand("for {{ inputs.customer }}", &context).unwrap_err();
        assert_eq!(missing, "the run has no input `{{ inputs.customer }}`; pass `--input customer=..`");
        assert_eq!(expand("$goals", &Context::new()).unwrap(), "$goals");
    }

    /// If a short text names a long value too often, the replacement fails, and no text is lost.
    #[test]
    fn expanded_text_has_a_bound() {
        let mut context = Context::new();
        context.set("long", "x".repeat(1 << 20)).unwrap();
        assert!(expand(&"$long ".repeat(17), &context).unwrap_err().contains("use `long` less often"));
        assert_eq!(expand(&"$long ".repeat(15), &context).unwrap().len(), 15 * ((1 << 20) + 1));
    }

    #[test]
    fn template_statements_are_found() {
        assert_eq!(template_statement("a {% if x %} b"), Some("{% if x %}"));
        assert_eq!(template_statement("date +{%Y} ${x%.*} {%"), None);
    }
}
