//! Fields of the state that no answer holds.

use serde_json::Value;

use crate::problem::Problem;

/// What stands in the place of a hidden value.
pub(crate) const HIDDEN: &str = "[redacted]";

/// The fields to hide, each a JSON pointer in which `*` stands for any one name or number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redaction(Vec<Vec<String>>);

impl Redaction {
    /// Adds a path.
    pub(crate) fn add(&mut self, path: &str) {
        let parts = path.split('/').skip(usize::from(path.starts_with('/')));
        self.0.push(parts.map(unescaped).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hides what is to be hidden of a state.
    pub(crate) fn apply(&self, state: &mut Value) {
        self.0.iter().for_each(|path| hide(state, path));
    }
}

fn hide(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else {
        *value = Value::String(HIDDEN.to_owned());
        return;
    };
    match value {
        Value::Object(fields) if first == "*" => fields.values_mut().for_each(|inner| hide(inner, rest)),
        Value::Array(items) if first == "*" => items.iter_mut().for_each(|inner| hide(inner, rest)),
        Value::Object(fields) => {
            if let Some(inner) = fields.get_mut(first) {
                hide(inner, rest);
            }
        }
        Value::Array(items) => {
            if let Some(inner) = first.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                hide(inner, rest);
            }
        }
        _ => {}
    }
}

/// Reads a part of a JSON pointer.
pub(crate) fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Writes a part of a JSON pointer.
pub(crate) fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Finds the value at a JSON pointer.
pub(crate) fn at<'a>(state: &'a Value, path: &str) -> Result<&'a Value, Problem> {
    if !path.is_empty() && !path.starts_with('/') {
        return Err(Problem::invalid("`path` is a JSON pointer: empty, or beginning with `/`"));
    }
    state.pointer(path).ok_or_else(|| Problem::not_found("there is nothing at this path in the state"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_hidden_by_name_by_number_and_by_any() {
        let mut redaction = Redaction::default();
        ["/password", "/cards/*/number", "/list/1", "/a~1b", "/gone/x", "/text/deep"]
            .iter()
            .for_each(|p| redaction.add(p));
        let mut state = json!({
            "password": { "deep": 1 }, "cards": [{ "number": 1, "name": "n" }, 7], "list": [1, 2], "a/b": 1, "text": "t"
        });
        redaction.apply(&mut state);
        let hidden = HIDDEN;
        assert_eq!(
            state,
            json!({
                "password": hidden, "cards": [{ "number": hidden, "name": "n" }, 7], "list": [1, hidden], "a/b": hidden,
                "text": "t"
            })
        );
    }
}
