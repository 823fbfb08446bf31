//! The language of conditions on edges. A condition tests the last outcome and the context.

mod eval;
mod parse;

use std::fmt;

use ferrata_core::{Error, ErrorKind};
use regex_lite::Regex;

pub use eval::ConditionFacts;

/// Maximum length of a condition. Anything longer is a program and belongs into a node.
pub(crate) const MAX_LENGTH: usize = 4096;

/// Maximum nesting of parentheses and negations. The parser recurses once for each level.
pub(crate) const MAX_DEPTH: usize = 32;

/// A parsed condition that can be evaluated.
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
    /// The root of the tree. `None` for the empty condition, which always holds.
    root: Option<Expression>,
    text: String,
    /// The texts that are compared with the outcome, as written in the source.
    outcomes: Vec<String>,
}

impl Condition {
    /// Parses a condition. An empty condition always holds.
    ///
    /// # Errors
    ///
    /// Returns [`ConditionError`] for the first mistake in the text.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (root, outcomes) = parse::parse(text)?;
        Ok(Self { root, text: text.trim().to_owned(), outcomes })
    }

    /// Returns whether the condition holds. The evaluation never fails: values that cannot be compared count as different.
    pub fn holds(&self, facts: &ConditionFacts<'_>) -> bool {
        self.root.as_ref().is_none_or(|root| eval::holds(root, facts))
    }

    /// Returns whether this is the empty condition.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns whether the condition only tests for the outcome `fail`. Such an edge handles failures, in the form of the specification.
    pub fn is_fail_edge(&self) -> bool {
        matches!(&self.root, Some(Expression::Compare(key, Operator::Equal, Literal(value)))
            if key == "outcome" && value == "fail")
    }

    /// Returns the texts that `=` and `!=` compare with the outcome, as written in the source.
    pub fn outcomes(&self) -> &[String] {
        &self.outcomes
    }

    /// Returns whether the condition tests only the outcome.
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

    /// Returns the keys that the condition reads, in order and with repetitions.
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

    /// Returns the condition as written in the source, without surrounding blanks.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A condition as a tree of expressions.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// Holds if any of these expressions holds.
    Any(Vec<Expression>),
    /// Holds if all of these expressions hold.
    All(Vec<Expression>),
    Not(Box<Expression>),
    /// Holds if the key has a value that is not empty, `false` or `0`.
    Truthy(String),
    Compare(String, Operator, Literal),
    Matches(String, Regex),
}

/// The right side of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Literal(pub(crate) String);

/// How a key is compared with a literal.
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

/// The mistake for which a text is not a valid condition.
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

    /// Returns the position of the mistake, as a byte offset in the condition.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the description of the mistake.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the suggested replacement; empty if there is none.
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
