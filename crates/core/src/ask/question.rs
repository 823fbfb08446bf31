//! An open question, as signallers that may answer it see it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shape;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::id::{NodeName, RunKey, Visit};

/// What a signaller must answer before the run can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// What to answer it by: `node@visit` for a doubt, `node@visit:name` otherwise. Before that of a descendant stands the way down to it,
    /// `node@visit:child/` for each level.
    pub id: String,
    /// The descendant that asks; none if the run itself does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<RunKey>,
    /// The node it is about.
    pub node: NodeName,
    /// Which visit of it.
    pub visit: Visit,
    /// Why it is asked.
    pub kind: QuestionKind,
    /// What is asked, as JSON text; none where the kind says it all. Of a doubt, a sentence that says how the work ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What an answer must look like; none where the kind says it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<Shape>,
    /// Until when it can be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What is taken as the answer then, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What was wrong with an answer that it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How the attempt in doubt ended; none if it is no doubt, or its process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Why a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// An attempt of an `External` node ended without saying whether its work was done: its process ended, its time was up, it
    /// panicked, or it failed without saying that [nothing was done](crate::node::NodeError::not_done). The log does not tell, and it
    /// must not be done twice. Answer with a [`Resolution`](super::Resolution).
    Doubt,
    /// A node asks.
    Asked,
    /// Whether to start the node, which is declared with
    /// [`interrupt_before`](crate::graph::GraphBuilder::interrupt_before).
    Before,
    /// Whether to go on behind the node, which is declared with
    /// [`interrupt_after`](crate::graph::GraphBuilder::interrupt_after).
    After,
}

/// The word by which it is stored, such as `asked`.
impl std::fmt::Display for QuestionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

impl Question {
    /// Returns what is asked, as people read it: the text itself, or the field `text` of an object, or the JSON of anything else. A question without
    /// a text is put into words by its kind.
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

    /// Reads what is asked, as the type that the node asked with.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the question has no text, [`ErrorKind::Invalid`] if it is of another type.
    pub fn read<Q: DeserializeOwned>(&self) -> Result<Q> {
        let text = self.text.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the question has no text; its kind says what is asked")
        })?;
        serde_json::from_str(text).map_err(|source| {
            let message =
                format!("what is asked by `{}` is not of type {}", self.id, std::any::type_name::<Q>());
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }

    /// Returns a JSON Schema, of dialect 2020-12, of what it takes: what a user interface makes a form of.
    ///
    /// | [`kind`](Self::kind) | the schema is of |
    /// |---|---|
    /// | [`Asked`](QuestionKind::Asked) | the value of an [`Answer::Accept`](super::Answer::Accept): the [schema](Shape::json_schema) of what it `expects` |
    /// | [`Before`](QuestionKind::Before), [`After`](QuestionKind::After) | the same; any value agrees, the schema has `true` |
    /// | [`Doubt`](QuestionKind::Doubt) | a [`Resolution`](super::Resolution); of the operations of its patch it only says that they are a list |
    ///
    /// Its `title` is what is asked, if that is a text, and its `default` what is taken as the answer when the deadline is over.
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
    ///
    /// <!-- held by: schemas::each_kind_of_question_has_a_schema_of_its_answer -->
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

/// Returns a question as people read it, of its JSON text.
pub(crate) fn prompt_of(text: &str) -> String {
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
