//! Properties for any bytes. `fuzz/` includes this file.

use std::hash::{DefaultHasher, Hash, Hasher};

use ferrata_dot::compile::Compiler;
use ferrata_dot::condition::{Condition, ConditionFacts};
use ferrata_dot::lint::{Linter, Severity};
use ferrata_dot::outcome::StageOutcome;
use ferrata_dot::transform::Transforms;
use ferrata_dot::{Document, ParseError, Pipeline};

/// The result of an input.
pub(crate) struct Answer {
    /// Whether it parses as a pipeline.
    #[allow(dead_code, reason = "fuzz/ does not look at it")]
    pub(crate) read: bool,
    /// A hash of the answers.
    #[allow(dead_code, reason = "fuzz/ does not look at it")]
    pub(crate) trace: u64,
}

/// Properties of every error, for any source.
fn sane(source: &[u8], error: &ParseError) {
    assert!(error.span().start <= source.len(), "{error:?}");
    assert!(!error.message().is_empty() && !error.message().contains('\n'), "{error:?}");
    assert!(error.report("x").ends_with('\n'));
}

/// Returns a text without its variable parts.
fn plain(text: &str) -> String {
    // Names and numbers are in backquotes, or are digits.
    let outside = text.split('`').step_by(2).collect::<String>();
    outside.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Parses, prints, transforms, lints and compiles the source as far as possible.
pub(crate) fn exercise(source: &[u8]) -> Answer {
    let mut trace = DefaultHasher::new();
    let mut read = false;
    match Document::parse(source) {
        Err(error) => {
            sane(source, &error);
            plain(error.message()).hash(&mut trace);
        }
        Ok(document) => {
            let printed = document.to_string();
            let again = Document::parse(printed.as_bytes());
            assert_eq!(again.as_ref(), Ok(&document), "{printed}");
            assert_eq!(again.map(|again| again.to_string()), Ok(printed));
            match Pipeline::parse(source) {
                Err(error) => {
                    sane(source, &error);
                    plain(error.message()).hash(&mut trace);
                }
                Ok(pipeline) => {
                    read = true;
                    judged(pipeline, source, &mut trace);
                }
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(source) {
        others(text, &mut trace);
    }
    Answer { read, trace: trace.finish() }
}

fn judged(mut pipeline: Pipeline, source: &[u8], trace: &mut DefaultHasher) {
    if let Err(error) = Transforms::default().apply(&mut pipeline) {
        plain(error.message()).hash(trace);
    }
    for found in Linter::default().lint(&pipeline) {
        assert!(!found.report("x", source).is_empty());
        found.rule.hash(trace);
    }
    // Lint agrees with the compiler: a pipeline compiles if and only if lint finds no error.
    let told = Compiler::default().diagnose(&pipeline);
    let compiled = Compiler::default().compile(&pipeline);
    let error = told.iter().find(|one| one.severity == Severity::Error);
    assert_eq!(error.is_none(), compiled.is_ok(), "{error:?} {:?}", compiled.err());
    match compiled {
        Ok(graph) => graph.name().as_str().is_empty().hash(trace),
        Err(error) => plain(error.message()).hash(trace),
    }
}

/// Also parses the source as a condition and as an outcome.
fn others(text: &str, trace: &mut DefaultHasher) {
    match Condition::parse(text) {
        Ok(condition) => {
            let value = serde_json::json!("a warm day");
            let holds = condition
                .holds(&ConditionFacts::new("success", "", &|key| (key.len() > 3).then(|| value.clone())));
            assert_eq!(condition.text(), text.trim());
            holds.hash(trace);
        }
        Err(error) => {
            assert!(error.offset() <= text.len(), "{error:?}");
            plain(error.message()).hash(trace);
        }
    }
    StageOutcome::from_json(text.as_bytes()).is_ok().hash(trace);
}
