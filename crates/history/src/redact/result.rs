//! Redacts the results that activations recorded: those of steps, of children, of streams and of durable functions.

use serde_json::Value;

use super::LogRedactor;
use super::form::RecordForm::Keep;
use super::form::{CHILD_END, CHILD_NOTE, FLOW_FAILURE, MEMO, STEP, STREAM};

/// The kinds of operations of durable functions.
const FLOW_OPERATIONS: [&str; 8] =
    ["step", "value", "undo", "patch", "timer", "question", "message", "child"];

/// The kinds of errors of durable functions.
const FLOW_ERRORS: [&str; 7] =
    ["failed", "timed_out", "rejected", "expired", "child_failed", "child_cancelled", "child_gone"];

impl LogRedactor {
    pub(super) fn step(&mut self, step: Value) -> Value {
        let Value::Object(mut step) = step else { return self.value(step) };
        let name = step.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(Value::Object(what)) = step.get_mut("what")
            && let Some(result) = what.get_mut("result")
        {
            *result = self.result(&name, result.take());
        }
        self.apply(STEP, Value::Object(step))
    }

    /// Redacts the memos of an activation in a base.
    pub(super) fn memos(&mut self, memos: Value) -> Value {
        let Value::Object(memos) = memos else { return self.value(memos) };
        let redacted = memos.into_iter().map(|(name, memo)| {
            let memo = match memo {
                Value::Object(mut fields) if fields.contains_key("result") => {
                    for (_, result) in &mut fields {
                        *result = self.result(&name, result.take());
                    }
                    Value::Object(fields)
                }
                other => self.apply(MEMO, other),
            };
            (name, memo)
        });
        Value::Object(redacted.collect())
    }

    /// Redacts a recorded result. Names that begin with `#` are those of Ferrata's own results.
    fn result(&mut self, name: &str, result: Value) -> Value {
        let form = [
            // The name of a wait that ended.
            ("#ended", Keep),
            ("#child", CHILD_NOTE),
            ("#told", CHILD_END),
            ("#stream", STREAM),
        ];
        match form.into_iter().find(|(prefix, _)| name.starts_with(prefix)) {
            Some((_, form)) => self.apply(form, result),
            None => self.flow_entry(result),
        }
    }

    /// Redacts the result of a step, which may be the record of a durable function. The words and counts of the record of a function stay.
    fn flow_entry(&mut self, result: Value) -> Value {
        let Value::Object(fields) = result else { return self.value(result) };
        if fields.len() != 1 {
            return self.fields(fields);
        }
        let redacted = fields.into_iter().map(|(tag, content)| {
            let content = match (&*tag, content) {
                ("begun", Value::Number(count)) => Value::Number(count),
                ("failed", Value::Array(parts)) if is_flow_failure(&parts) => {
                    self.apply(FLOW_FAILURE, Value::Array(parts))
                }
                (_, content) => self.value_of(&tag, content),
            };
            (self.placeholders.name(&tag), content)
        });
        Value::Object(redacted.collect())
    }
}

/// Returns whether a result has the form of a failed operation of a durable function.
fn is_flow_failure(parts: &[Value]) -> bool {
    let [operation, failure] = parts else { return false };
    let is = |value: Option<&Value>, words: &[&str]| {
        value.and_then(Value::as_str).is_some_and(|word| words.contains(&word))
    };
    is(Some(operation), &FLOW_OPERATIONS) && is(failure.get("kind"), &FLOW_ERRORS)
}
