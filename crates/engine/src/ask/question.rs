//! Open questions, as signallers see them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shape;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::id::{NodeName, RunKey, Visit};

/// A question that a signaller must answer before the run can continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// The id for the answer: `node@visit` for an unknown outcome, `node@visit:name` otherwise. The id of a descendant's question begins with the
    /// path to the descendant, `node@visit:child/` for each level.
    pub id: String,
    /// The descendant that asks, or `None` if the run itself does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<RunKey>,
    /// The node of the question.
    pub node: NodeName,
    /// The visit of the node.
    pub visit: Visit,
    /// The reason for the question.
    pub kind: QuestionKind,
    /// The question as JSON text, or `None` if the kind is enough. For an unknown outcome, a sentence about the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The expected shape of the answer, or `None` if the kind is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<Shape>,
    /// The deadline for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The answer after the deadline, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The problem of an earlier answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The failure of the attempt with unknown outcome. `None` for other questions, or if the process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// The reason for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// An attempt of an `External` node ended with unknown outcome: its process ended, it timed out or panicked, or it failed without the mark not
    /// done. The log does not have the outcome, and the node must not run twice. Answer with a
    /// [`Resolution`](super::Resolution).
    Doubt,
    /// A node asks.
    Asked,
    /// Asks whether to start the node, which is declared with `interrupt_before`.
    Before,
    /// Asks whether to continue after the node, which is declared with `interrupt_after`.
    After,
}

/// Formats the kind as stored, such as `asked`.
impl std::fmt::Display for QuestionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

impl Question {
    /// Creates a question of the run itself without a text.
    #[doc(hidden)]
    pub const fn new(id: String, node: NodeName, visit: Visit, kind: QuestionKind) -> Self {
        Self {
            id,
            asked_by: None,
            node,
            visit,
            kind,
            text: None,
            expects: None,
            deadline: None,
            default: None,
            problem: None,
            failure: None,
        }
    }

    /// Returns the question as an ancestor shows it: `path` leads to the descendant that asks.
    #[doc(hidden)]
    #[must_use]
    pub fn below(mut self, path: &str, asked_by: Option<RunKey>) -> Self {
        self.id.insert_str(0, path);
        self.asked_by = asked_by;
        self
    }

    /// Returns the question for display: the text itself, the field `text` of an object, or the JSON of any other value. Without a text, the kind
    /// provides the words.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::ask::Ask;
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let ask = |_: &Context| Ask::<bool>::new("Pay 120 EUR?");
    /// # let graph = Graph::<Context>::builder("pay").gate("ok", ask, |_, _| ()).entry("ok").build()?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?;
    /// assert_eq!(runtime.questions(run.run()).await?[0].prompt(), "Pay 120 EUR?");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prompt(&self) -> String {
        match (&self.text, self.kind) {
            (Some(text), _) => prompt_of(text),
            (None, QuestionKind::Before) => format!("May `{}` start?", self.node),
            (None, QuestionKind::After) => format!("May the run continue after `{}`?", self.node),
            (None, QuestionKind::Doubt) => format!("Was the work of `{}` done?", self.node),
            (None, QuestionKind::Asked) => format!("`{}` asks", self.node),
        }
    }

    /// Decodes the question as the type that the node used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the question has no text, [`ErrorKind::Invalid`] if the text is of another type.
    pub fn read<Q: DeserializeOwned>(&self) -> Result<Q> {
        let text = self
            .text
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "the question has no text; read its `kind`"))?;
        serde_json::from_str(text).map_err(|source| {
            let message = format!(
                "the text of the question `{}` is not of type {}",
                self.id,
                std::any::type_name::<Q>()
            );
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }

    /// Returns a JSON Schema (dialect 2020-12) of the answer, for user interfaces that generate a form.
    ///
    /// | [`kind`](Self::kind) | the schema is of |
    /// |---|---|
    /// | [`Asked`](QuestionKind::Asked) | the value of an [`Answer::Accept`](super::Answer::Accept): its [schema](Shape::json_schema) |
    /// | [`Before`](QuestionKind::Before), [`After`](QuestionKind::After) | the same; any value agrees, the schema has `true` |
    /// | [`Doubt`](QuestionKind::Doubt) | a [`Resolution`](super::Resolution); the operations of its patch are a list without further detail |
    ///
    /// The schema's `title` is the question, if that is a text. Its `default` is the answer after the deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::ask::Ask;
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let ask = |_: &Context| Ask::<bool>::new("Pay 120 EUR?");
    /// # let graph = Graph::<Context>::builder("pay").gate("ok", ask, |_, _| ()).entry("ok").build()?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?;
    /// let schema = runtime.questions(run.run()).await?[0].answer_schema();
    /// assert_eq!((&schema["title"], &schema["type"]), (&json!("Pay 120 EUR?"), &json!("boolean")));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn answer_schema(&self) -> Value {
        let read = |text: &Option<String>| text.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let mut schema = match self.kind {
            QuestionKind::Doubt => resolution(),
            QuestionKind::Before | QuestionKind::After => Shape::of::<bool>().json_schema(),
            QuestionKind::Asked => self.expects.clone().unwrap_or_else(Shape::any).json_schema(),
        };
        if matches!(self.kind, QuestionKind::Before | QuestionKind::After) {
            schema["const"] = true.into();
        }
        if let Some(title @ Value::String(_)) = read(&self.text) {
            schema["title"] = title;
        }
        if let Some(default) = read(&self.default) {
            schema["default"] = default;
        }
        schema
    }
}

/// Returns the question for display, from its JSON text.
#[doc(hidden)]
pub fn prompt_of(text: &str) -> String {
    match serde_json::from_str(text) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(mut fields)) => match fields.remove("text") {
            Some(Value::String(text)) => text,
            _ => text.to_owned(),
        },
        _ => text.to_owned(),
    }
}

/// The schema of a [`Resolution`](super::Resolution).
fn resolution() -> Value {
    let says = |word: &str, what: Value| json!({ "type": "object", "properties": { word: what }, "required": [word], "additionalProperties": false });
    let mut schema = Shape::any().json_schema();
    schema["anyOf"] = json!([
        { "enum": ["retry", "skip"] },
        says("fail", json!({ "type": "string" })),
        says("supply", json!({ "type": "array", "items": { "type": "object" } })),
    ]);
    schema
}
