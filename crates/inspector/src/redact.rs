//! Hides values: fields of the state by their paths, and texts for which a hook of the service returns a replacement.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::app::AppContext;
use crate::problem::Problem;
use crate::view::text::cut;

/// The replacement for a hidden value.
pub(crate) const HIDDEN: &str = "[redacted]";

/// Fields that are never hidden: identifiers, and words of the API that the page needs.
const NAMES: [&str; 26] = [
    "at", "code", "cursor", "doing", "from", "head", "id", "joins", "kind", "led_to", "look", "name", "next",
    "node", "options", "owner", "path", "phase", "question", "queue", "self", "status", "tenant", "to",
    "version", "workflow",
];

type Hook = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The redaction settings.
#[derive(Clone, Default)]
pub(crate) struct Redaction {
    /// JSON pointers into the state, in which `*` matches any name or number.
    paths: Vec<Vec<String>>,
    hooks: Vec<Arc<Hook>>,
}

impl Redaction {
    /// Adds a path.
    pub(crate) fn add(&mut self, path: &str) {
        let parts = path.split('/').skip(usize::from(path.starts_with('/')));
        self.paths.push(parts.map(unescaped).collect());
    }

    /// Adds a hook.
    pub(crate) fn add_hook(&mut self, hook: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        self.hooks.push(Arc::new(hook));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.hooks.is_empty()
    }

    /// Hides values of a state, by path and by the hooks. Call this before any text of the state is shortened.
    pub(crate) fn apply(&self, state: &mut Value) {
        self.paths.iter().for_each(|path| hide(state, path));
        self.value(state);
    }

    /// Applies the hooks to every text, number and field name of a value.
    pub(crate) fn value(&self, value: &mut Value) {
        if self.hooks.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.replace(text),
            Value::Number(number) => {
                let plain = number.to_string();
                if let Cow::Owned(said) = self.text(&plain) {
                    *value = said.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                let all = std::mem::take(fields);
                fields.extend(all.into_iter().map(|(name, mut inner)| {
                    self.value(&mut inner);
                    (self.text(&name).into_owned(), inner)
                }));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Returns whether a change contains the replacement of a hidden text of this state. A viewer who edits the displayed text would otherwise write
    /// the replacement into the state.
    pub(crate) fn holds_shown(&self, change: &Value, state: &Value) -> bool {
        let mut shown = BTreeSet::new();
        if !self.hooks.is_empty() {
            each_text(state, &mut |text| match self.text(text) {
                Cow::Owned(said) if said != text => _ = shown.insert(said),
                _ => {}
            });
        }
        let mut holds = false;
        each_text(change, &mut |text| holds |= shown.contains(text));
        holds
    }

    /// Applies the hooks to a text.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.hooks.iter().fold(Cow::Borrowed(text), |text, hook| match hook(&text) {
            Some(said) => Cow::Owned(said),
            None => text,
        })
    }

    fn replace(&self, text: &mut String) {
        if let Cow::Owned(said) = self.text(text) {
            *text = said;
        }
    }

    /// Returns the beginning of an untrusted text. The hooks are applied before the text is cut, so that no part of a secret remains at the cut.
    pub(crate) fn cut(&self, text: &str, most: usize) -> String {
        cut(&self.text(text), most)
    }

    /// Hides the remaining texts of an answer: every text except identifiers.
    fn seal(&self, answer: &mut Value) {
        match answer {
            Value::String(text) => self.replace(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.seal(item)),
            Value::Object(fields) => {
                for (name, inner) in fields.iter_mut() {
                    let is_text = |value: &Value| value.is_string();
                    let is_name = NAMES.contains(&name.as_str())
                        && (is_text(inner) || inner.as_array().is_some_and(|all| all.iter().all(is_text)));
                    match name.as_str() {
                        // The application chooses the names of labels, and such a name may equal one of these fields.
                        "labels" => self.value(inner),
                        _ if is_name => {}
                        _ => self.seal(inner),
                    }
                }
            }
            _ => {}
        }
    }

    /// Hides texts in a frame of server-sent events. The data of a frame is JSON in one line.
    pub(crate) fn frame(&self, frame: String) -> String {
        if self.hooks.is_empty() {
            return frame;
        }
        let line = |line: &str| match line.strip_prefix("data: ").map(serde_json::from_str::<Value>) {
            Some(Ok(mut data)) => {
                self.seal(&mut data);
                format!("data: {data}")
            }
            Some(Err(_)) => format!("data: {}", self.text(&line["data: ".len()..])),
            None => line.to_owned(),
        };
        frame.split('\n').map(line).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").field("paths", &self.paths).field("hooks", &self.hooks.len()).finish()
    }
}

/// Calls `with` for every text, number and field name of a value.
fn each_text(value: &Value, with: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => with(text),
        Value::Number(number) => with(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, with)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| {
            with(name);
            each_text(inner, with);
        }),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Applies the hooks to every JSON answer, including answers of routes that do not call them.
pub(crate) async fn seal(State(app): State<Arc<AppContext>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if app.redaction.hooks.is_empty() || !is_json {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let read = to_bytes(body, usize::MAX).await.ok();
    let Some(mut answer) = read.and_then(|read| serde_json::from_slice::<Value>(&read).ok()) else {
        return Problem::internal().into_response();
    };
    app.redaction.seal(&mut answer);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(answer.to_string()))
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

/// Unescapes a part of a JSON pointer.
pub(crate) fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Escapes a part of a JSON pointer.
pub(crate) fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Finds the value at a JSON pointer.
pub(crate) fn at<'a>(state: &'a Value, path: &str) -> Result<&'a Value, Problem> {
    if !path.is_empty() && !path.starts_with('/') {
        return Err(Problem::invalid("`path` is a JSON pointer: empty, or beginning with `/`"));
    }
    state.pointer(path).ok_or_else(|| Problem::not_found("the state has no value at this path"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redaction_matches_names_indexes_and_wildcards() {
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
