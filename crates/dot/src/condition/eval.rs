//! Evaluates conditions: reads the values of keys, and compares them.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::{Expression, Literal, Operator};

/// The input of a condition: the outcome of the node that has just ended, and the context after this outcome.
#[derive(Clone, Copy)]
pub struct ConditionFacts<'a> {
    outcome: &'a str,
    preferred_label: &'a str,
    context: &'a dyn Fn(&str) -> Option<Value>,
}

impl<'a> ConditionFacts<'a> {
    /// Creates the facts from the status of the outcome, its preferred label, and a function that returns the value of a context key.
    pub fn new(
        outcome: &'a str,
        preferred_label: &'a str,
        context: &'a dyn Fn(&str) -> Option<Value>,
    ) -> Self {
        Self { outcome, preferred_label, context }
    }

    /// Returns the value of a key. A missing key has an empty text as its value.
    fn resolve(&self, key: &str) -> Value {
        match key {
            "outcome" => self.outcome.into(),
            "preferred_label" => self.preferred_label.into(),
            key => {
                let direct = (self.context)(key);
                let short = || key.strip_prefix("context.").and_then(|short| (self.context)(short));
                direct.or_else(short).unwrap_or_else(|| "".into())
            }
        }
    }
}

impl fmt::Debug for ConditionFacts<'_> {
    /// Omits the context from the output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// Evaluates an expression. The parser limits the depth of its tree.
pub(super) fn holds(expression: &Expression, facts: &ConditionFacts<'_>) -> bool {
    match expression {
        Expression::Any(parts) => parts.iter().any(|part| holds(part, facts)),
        Expression::All(parts) => parts.iter().all(|part| holds(part, facts)),
        Expression::Not(inner) => !holds(inner, facts),
        Expression::Truthy(key) => is_truthy(&text_of(&facts.resolve(key))),
        Expression::Compare(key, operator, Literal(literal)) => {
            compare(&facts.resolve(key), *operator, literal)
        }
        Expression::Matches(key, regex) => regex.is_match(&text_of(&facts.resolve(key))),
    }
}

fn compare(value: &Value, operator: Operator, literal: &str) -> bool {
    let text = text_of(value);
    let ordered = |holds: fn(&f64, &f64) -> bool| match (text.trim().parse(), literal.parse()) {
        (Ok(left), Ok(right)) => holds(&left, &right),
        _ => false,
    };
    match operator {
        Operator::Equal => text == literal,
        Operator::NotEqual => text != literal,
        Operator::Less => ordered(f64::lt),
        Operator::LessOrEqual => ordered(f64::le),
        Operator::Greater => ordered(f64::gt),
        Operator::GreaterOrEqual => ordered(f64::ge),
        Operator::Contains => match value {
            Value::Array(items) => items.iter().any(|item| text_of(item) == literal),
            Value::Object(entries) => entries.contains_key(literal),
            _ => text.contains(literal),
        },
    }
}

/// Returns the text of a value for a comparison. `null` becomes an empty text, and lists and objects become their JSON.
fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => "".into(),
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    }
}

/// Returns whether a key that stands alone as a condition holds with this text.
fn is_truthy(text: &str) -> bool {
    !matches!(text, "" | "false" | "0")
}
