//! Shows one level of a value of any size. Small parts are complete, large parts are shortened, and each has a path with which the page requests its
//! content.

use serde_json::{Map, Value, json};

use super::text::cut;
use crate::redact::escaped;

/// Maximum number of entries of a level in an answer.
pub(crate) const ENTRIES: usize = 200;

/// Maximum number of characters of a text in an answer.
pub(crate) const TEXT: usize = 8_000;

/// Maximum size in bytes of an entry that is shown completely.
const WHOLE: usize = 400;

/// Maximum depth of a value that is shown completely. Most JSON parsers accept 128 levels, and an answer adds several.
const LEVELS: usize = 100;

/// Shows a part of a value: the entries of a list or an object from `offset` on, or the characters of a text from `offset` on.
pub(crate) fn tree(path: &str, value: &Value, offset: usize, limit: usize) -> Value {
    let mut shown = Map::new();
    shown.insert("path".into(), path.into());
    shown.insert("kind".into(), kind(value).into());
    shown.insert("bytes".into(), bytes(value).into());
    let mut paged = |total: usize, end: usize| {
        shown.insert("total".into(), total.into());
        if end < total {
            shown.insert("next".into(), end.into());
        }
    };
    match value {
        Value::Object(fields) => {
            let all = fields.iter().skip(offset).take(limit);
            let entries: Vec<Value> = all
                .map(|(key, inner)| entry(&key.clone().into(), &format!("{path}/{}", escaped(key)), inner))
                .collect();
            paged(fields.len(), offset.saturating_add(entries.len()));
            shown.insert("entries".into(), entries.into());
        }
        Value::Array(items) => {
            let all = items.iter().enumerate().skip(offset).take(limit);
            let entries: Vec<Value> =
                all.map(|(at, inner)| entry(&at.into(), &format!("{path}/{at}"), inner)).collect();
            paged(items.len(), offset.saturating_add(entries.len()));
            shown.insert("entries".into(), entries.into());
        }
        Value::String(text) => {
            let part: String = text.chars().skip(offset).take(TEXT).collect();
            let total = text.chars().count();
            paged(total, offset.saturating_add(part.chars().count()).min(total));
            shown.insert("value".into(), part.into());
        }
        scalar => _ = shown.insert("value".into(), scalar.clone()),
    }
    Value::Object(shown)
}

fn entry(key: &Value, path: &str, value: &Value) -> Value {
    let bytes = bytes(value);
    let mut shown = json!({ "key": key, "path": path, "kind": kind(value), "bytes": bytes });
    match value {
        // The name of a field may be very long, because the page requests the field's value by the path in this answer.
        _ if bytes <= WHOLE && is_shallow(value, LEVELS) => shown["value"] = value.clone(),
        Value::String(text) => shown["preview"] = cut(text, 120).into(),
        Value::Object(fields) => shown["total"] = fields.len().into(),
        Value::Array(items) => shown["total"] = items.len().into(),
        _ => {}
    }
    shown
}

/// Returns the whole value if it is small, and its beginning otherwise.
pub(crate) fn small(value: &Value) -> Value {
    let bytes = bytes(value);
    if bytes <= 4 * WHOLE && is_shallow(value, LEVELS) {
        return json!({ "value": value, "bytes": bytes });
    }
    let preview = match value {
        Value::String(text) => cut(text, 200),
        other => cut(&beginning(other), 200),
    };
    json!({ "kind": kind(value), "bytes": bytes, "preview": preview })
}

/// Returns whether the whole value takes at most `most` bytes.
pub(crate) fn fits(value: &Value, most: usize) -> bool {
    bytes(value) <= most && is_shallow(value, LEVELS)
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    let within = |inner: &Value| levels.checked_sub(1).is_some_and(|levels| is_shallow(inner, levels));
    match value {
        Value::Array(items) => items.iter().all(within),
        Value::Object(fields) => fields.values().all(within),
        _ => true,
    }
}

/// Returns the word for the kind of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Counts the bytes of a value as JSON without writing it.
pub(crate) fn bytes(value: &Value) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(0);
    // A value can always be written as JSON, and counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Writes the beginning of a value for a preview.
fn beginning(value: &Value) -> String {
    struct PreviewWriter(Vec<u8>);
    impl std::io::Write for PreviewWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > 2_000 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut first = PreviewWriter(Vec::new());
    // The writer stops early on purpose.
    let _ = serde_json::to_writer(&mut first, value);
    String::from_utf8_lossy(&first.0).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_tree_is_shown_one_level_each() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let shown = |levels| tree("", &json!({ "deep": nested(levels) }), 0, 1)["entries"][0].clone();
        assert_eq!(shown(100)["value"], nested(100));
        assert_eq!((&shown(101)["value"], &shown(101)["total"]), (&Value::Null, &json!(1)));
        assert!(small(&nested(101))["preview"].is_string() && !fits(&nested(101), 10_000));
    }
}
