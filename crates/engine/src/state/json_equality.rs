//! Compares values by their stored form.

use serde_json::Value;

/// Returns whether two values have the same stored form. `==` treats `0.0` and `-0.0` as equal.
pub(crate) fn is_same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            a.as_f64().map(f64::to_bits) == b.as_f64().map(f64::to_bits)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && begins_with(a, b),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same_json(a, b)))
        }
        _ => one == other,
    }
}

/// Returns whether a list begins with all items of another.
pub(crate) fn begins_with(list: &[Value], first: &[Value]) -> bool {
    list.len() >= first.len() && list.iter().zip(first).all(|(a, b)| is_same_json(a, b))
}
