//! Applies reducers to JSON values.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::state::schema::Reducer;

/// The result of a reducer on a value.
pub(super) enum ReducerResult {
    Keep,
    Replace(Value),
    Append(Vec<Value>),
    Merge(serde_json::Map<String, Value>),
}

/// Joins `input` into the current value by the declared reducer. `None` is an absent key.
pub(super) fn join(
    key: &str,
    reducer: &Reducer,
    current: Option<&Value>,
    input: &Value,
) -> Result<(ReducerResult, bool)> {
    let joined = match reducer {
        Reducer::Last => return Ok((ReducerResult::Replace(input.clone()), true)),
        Reducer::Append => ReducerResult::Append(items(input)),
        Reducer::Union => ReducerResult::Append(missing(current, items(input))),
        Reducer::Merge => match input {
            Value::Object(entries) => ReducerResult::Merge(entries.clone()),
            other => return Err(mismatch(key, "merge", "an object as update", other)),
        },
        Reducer::Max | Reducer::Min => {
            let wanted = if *reducer == Reducer::Max { Ordering::Greater } else { Ordering::Less };
            match current {
                None | Some(Value::Null) => ReducerResult::Replace(input.clone()),
                Some(current) => match compare(input, current) {
                    Some(order) if order == wanted => ReducerResult::Replace(input.clone()),
                    Some(_) => ReducerResult::Keep,
                    None => {
                        return Err(mismatch(key, &reducer.to_string(), "two numbers or two texts", input));
                    }
                },
            }
        }
        Reducer::Sum => match (current, input) {
            (Some(Value::Number(_)), Value::Number(more)) if is_zero(more) => ReducerResult::Keep,
            (None | Some(Value::Null), Value::Number(_)) => ReducerResult::Replace(input.clone()),
            (Some(Value::Number(sum)), Value::Number(more)) => ReducerResult::Replace(add(key, sum, more)?),
            (Some(Value::Number(_)) | None, other) | (Some(other), _) => {
                return Err(mismatch(key, "sum", "numbers", other));
            }
        },
        Reducer::First => match current {
            None | Some(Value::Null) => ReducerResult::Replace(input.clone()),
            Some(_) => ReducerResult::Keep,
        },
        Reducer::Custom { with } => {
            let message = format!(
                "channel \"{key}\": a context cannot call the reducer {with}; \
                 declare another, or use a struct with `#[derive(State)]`"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    };
    Ok((joined, false))
}

/// Returns the items of an array, or any other value as one item.
fn items(input: &Value) -> Vec<Value> {
    match input {
        Value::Array(items) => items.clone(),
        other => vec![other.clone()],
    }
}

fn missing(current: Option<&Value>, items: Vec<Value>) -> Vec<Value> {
    let there = current.and_then(Value::as_array).map_or(&[][..], |items| &**items);
    let mut new: Vec<Value> = Vec::new();
    for item in items {
        if !there.contains(&item) && !new.contains(&item) {
            new.push(item);
        }
    }
    new
}

/// Compares numbers by value and texts by bytes. Other values have no order.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (integer(left), integer(right)) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_zero(number: &Number) -> bool {
    number.as_f64() == Some(0.0)
}

fn from_integer(value: i128) -> Option<Number> {
    let signed = i64::try_from(value).map(Number::from);
    signed.or_else(|_| u64::try_from(value).map(Number::from)).ok()
}

fn combine(
    left: &Number,
    right: &Number,
    integers: fn(i128, i128) -> i128,
    floats: fn(f64, f64) -> f64,
) -> Option<Number> {
    match (integer(left), integer(right)) {
        // Both are within 65 bits, so the sum cannot overflow.
        (Some(left), Some(right)) => from_integer(integers(left, right)),
        // `from_f64` rejects values that are not finite.
        _ => Number::from_f64(floats(left.as_f64()?, right.as_f64()?)),
    }
}

fn add(key: &str, sum: &Number, more: &Number) -> Result<Value> {
    combine(sum, more, |a, b| a + b, |a, b| a + b).map(Value::Number).ok_or_else(|| overflow(key))
}

/// Returns the number to add to `before` to get `after`.
pub(super) fn difference(key: &str, before: &Number, after: &Number) -> Result<Value> {
    combine(after, before, |a, b| a - b, |a, b| a - b).map(Value::Number).ok_or_else(|| overflow(key))
}

fn overflow(key: &str) -> Error {
    let message = format!("channel \"{key}\": the sum does not fit a JSON number; add less");
    Error::new(ErrorKind::Invalid, message)
}

pub(super) fn mismatch(key: &str, verb: &str, wanted: &str, found: &Value) -> Error {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Error::new(ErrorKind::Invalid, format!("channel \"{key}\": {verb} needs {wanted} and found {found}"))
}
