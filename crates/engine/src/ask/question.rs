//! Open questions of a run, in the form in which people and programs read and answer them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shape;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::id::{NodeName, RunKey, Visit};

/// A question that a person or a program must answer before the run can continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// The id of the question, which an answer must name. It is `node@visit` for a question about an unknown outcome, and `node@visit:name` for other
    /// questions. If a descendant of the run asks, the id begins with the path to the descendant, which has the form `node@visit:child/` for each
    /// level.
    pub id: String,
    /// The descendant that asks, or `None` if the run itself asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<RunKey>,
    /// The node that asks, or that the question is about.
    pub node: NodeName,
    /// The visit of the node.
    pub visit: Visit,
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The question as JSON text. For a question about an unknown outcome, it is a sentence that describes how the attempt ended. `None` if the kind
    /// of the question already says what is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The shape that the answer must have, or `None` if the kind of the question determines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<Shape>,
    /// The deadline for the answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The answer that is used after the deadline, as JSON text, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The reason why an earlier answer could not be used, if the question is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The failure of the attempt whose outcome is unknown. `None` for other questions, and if the process died during the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// The question asks for the outcome of an attempt of an `External` node, which must not run twice. The outcome is unknown because the process of
    /// the attempt died, the attempt timed out or panicked, or it failed with an error that is not marked as not done. Answer with a
    /// [`Resolution`](super::Resolution).
    Doubt,
    /// A node asked the question.
    Asked,
    /// The question asks whether the node may start. The node is declared with `interrupt_before`.
    Before,
    /// The question asks whether the run may continue after the node. The node is declared with `interrupt_after`.
    After,
}

/// Formats the kind as stored, such as `asked`.
impl std::fmt::Display for QuestionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

impl Question {
    /// Creates a question without text that the run itself asks.
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

    /// Returns the question in the form in which an ancestor of the asking run lists it. `path` is the path from the ancestor to the run that asks.
    #[doc(hidden)]
    #[must_use]
    pub fn below(mut self, path: &str, asked_by: Option<RunKey>) -> Self {
        self.id.insert_str(0, path);
        self.asked_by = asked_by;
        self
    }

    /// Returns the question for display. If the question is a text, this text is returned. If it is an object with a field `text`, the field is
    /// returned. Any other value is returned as JSON. For a question without text, the kind determines the words.
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

    /// Decodes the question as type `Q`, the type with which the node asked it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the question has no text, and [`ErrorKind::Invalid`] if it is not of type `Q`.
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
    /// If the question is a text, the schema has it as `title`. If there is an answer for the case that the deadline passes, the schema has it as
    /// `default`.
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

/// Returns a question for display, from the JSON text of the question.
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
