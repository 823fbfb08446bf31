//! An open question, as signallers that may answer it see it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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

impl Question {
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
}
