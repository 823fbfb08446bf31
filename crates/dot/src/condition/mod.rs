//! The language of edge conditions on the last outcome and the context.

mod eval;
mod parse;

use std::fmt;

use ferrata_core::{Error, ErrorKind};
use regex_lite::Regex;

pub use eval::ConditionFacts;

/// Maximum length of a condition: longer ones are programs, which belong in a node.
pub(crate) const MAX_LENGTH: usize = 4096;

/// Maximum nesting of parentheses and negations; each level nests the parser once more.
pub(crate) const MAX_DEPTH: usize = 32;

/// A condition, ready to be evaluated.
///
/// # Examples
///
/// ```
/// use ferrata_dot::condition::{Condition, ConditionFacts};
/// use serde_json::json;
///
/// let condition = Condition::parse("outcome=success && context.tests_passed=true")?;
/// let context = |key: &str| (key == "tests_passed").then(|| json!(true));
/// assert!(condition.holds(&ConditionFacts::new("success", "", &context)));
/// assert!(!condition.holds(&ConditionFacts::new("fail", "", &context)));
/// # Ok::<(), ferrata_dot::condition::ConditionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    /// `None` for the empty condition, which always holds.
    root: Option<Expression>,
    text: String,
    /// The texts compared with the outcome, as written.
    outcomes: Vec<String>,
}

impl Condition {
    /// Reads a condition; an empty one always holds.
    ///
    /// # Errors
    ///
    /// Returns [`ConditionError`] for the first mistake.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (root, outcomes) = parse::parse(text)?;
        Ok(Self { root, text: text.trim().to_owned(), outcomes })
    }

    /// Returns whether the condition holds. There is always an answer: values that cannot be compared are unequal.
    pub fn holds(&self, facts: &ConditionFacts<'_>) -> bool {
        self.root.as_ref().is_none_or(|root| eval::holds(root, facts))
    }

    /// Returns whether it is the empty condition.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns whether it only tests for the outcome `fail`: the edge for failures, as the specification writes it.
    pub fn is_fail_edge(&self) -> bool {
        matches!(&self.root, Some(Expression::Compare(key, Operator::Equal, Literal(value)))
            if key == "outcome" && value == "fail")
    }

    /// Returns the texts compared with the outcome by `=` and `!=`, as written.
    pub fn outcomes(&self) -> &[String] {
        &self.outcomes
    }

    /// Returns whether it tests only the outcome.
    pub(crate) fn is_of_outcome(&self) -> bool {
        fn only(expression: &Expression) -> bool {
            match expression {
                Expression::Any(parts) | Expression::All(parts) => parts.iter().all(only),
                Expression::Not(inner) => only(inner),
                Expression::Truthy(key) | Expression::Compare(key, ..) | Expression::Matches(key, _) => {
                    key == "outcome"
                }
            }
        }
        self.root.as_ref().is_some_and(only)
    }

    /// Returns the keys that it reads, with repetitions.
    pub(crate) fn keys(&self) -> Vec<&str> {
        fn add<'a>(expression: &'a Expression, keys: &mut Vec<&'a str>) {
            match expression {
                Expression::Any(parts) | Expression::All(parts) => {
                    parts.iter().for_each(|part| add(part, keys))
                }
                Expression::Not(inner) => add(inner, keys),
                Expression::Truthy(key) | Expression::Compare(key, ..) | Expression::Matches(key, _) => {
                    keys.push(key)
                }
            }
        }
        let mut keys = Vec::new();
        self.root.iter().for_each(|root| add(root, &mut keys));
        keys
    }

    /// Returns the condition as written, trimmed.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A condition as a tree.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// Any of them.
    Any(Vec<Expression>),
    /// All of them.
    All(Vec<Expression>),
    Not(Box<Expression>),
    /// The key has a value that is neither empty nor `false` nor `0`.
    Truthy(String),
    Compare(String, Operator, Literal),
    Matches(String, Regex),
}

/// The right side of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Literal(pub(crate) String);

/// The comparison of a key with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

/// The reason why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionError {
    at: usize,
    message: String,
    suggestion: String,
}

impl ConditionError {
    pub(crate) fn new(at: usize, message: impl Into<String>, suggestion: impl Into<String>) -> Self {
        Self { at, message: message.into(), suggestion: suggestion.into() }
    }

    /// Returns the byte offset of the mistake in the condition.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the description of the mistake.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the suggested replacement.
    pub fn suggestion(&self) -> &str {
        &self.suggestion
    }
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition, byte {}: {}; {}", self.at, self.message, self.suggestion)
    }
}

impl std::error::Error for ConditionError {}

impl From<ConditionError> for Error {
    fn from(error: ConditionError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string()).with_operation("dot.condition").with_source(error)
    }
}
