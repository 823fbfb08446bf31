//! Questions that a node asks.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::NodeContext;
use super::requests::{NodeReply, NodeRequest};
use crate::ask::{Answer, AnswerShape, Ask, AskError};
use crate::error::{Error, ErrorKind};
use crate::record::memo::Reply;

/// The beginning of the problem text that a question shows if its default is not a valid answer.
const DEFAULT_REFUSED: &str = "its deadline has passed, and its default cannot be read: ";

impl NodeContext {
    /// Asks a question and waits for the answer, which may come after months and after restarts of the process.
    ///
    /// The id of the question is `node@visit:name`; see [`Runtime::respond`](crate::runtime::Runtime::respond).
    ///
    /// State the type of the answer, for example: `let yes = cx.ask::<bool>("mail", "Mail it?").await?`.
    ///
    /// Other branches of the run continue during the wait. When the whole run waits only for answers, its status is `Interrupted` and it leaves the
    /// memory. After the answer, the activation runs again from its start, so the code before this call runs again; see [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// Returns [`AskError::Rejected`] if the question was rejected. Returns [`AskError::Failed`] if the name was already used in this attempt or
    /// belongs to a recorded operation of another kind, or if this process no longer drives the run.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the question stays open.
    pub async fn ask<A: AnswerShape>(
        &self,
        name: impl Into<String>,
        question: impl Serialize,
    ) -> Result<A, AskError> {
        self.ask_with(name, Ask::new(question)).await
    }

    /// Asks a question and waits for the answer, like [`ask`](Self::ask). The question may have choices, a deadline or a default.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ask`](Self::ask), and [`AskError::Expired`] if the deadline expired.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the question stays open.
    pub async fn ask_with<A: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        ask: Ask<A>,
    ) -> Result<A, AskError> {
        self.ask_signed(name, ask).await.map(|(answer, _)| answer)
    }

    /// Asks a question and waits for the answer, like [`ask_with`](Self::ask_with). It also returns the author of the answer.
    ///
    /// The author is `None` if the call that answered gave no name, and if the default was used after the deadline. If an answerer decided without a
    /// person, the author is [`AUTOMATIC`](crate::ask::AUTOMATIC).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ask_with`](Self::ask_with).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the question stays open.
    pub async fn ask_signed<A: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        ask: Ask<A>,
    ) -> Result<(A, Option<String>), AskError> {
        let name = self.claim(name.into())?;
        let mut wish = NodeRequest::Ask(ask.into_request(self.scope.run.clock.now())?);
        loop {
            let asked = match self.request(name.clone(), wish).await? {
                NodeReply::Reply(asked) => asked,
                _ => return Err(self.mismatch(&name, "question").into()),
            };
            let deadline = asked.ask.deadline;
            match &asked.reply {
                Reply::Answered { answer: Answer::Accept(text), at, by } => {
                    match serde_json::from_str(text.get()) {
                        Ok(answer) => return Ok((answer, by.clone())),
                        // No other answer is accepted after the deadline, and the default would answer every repeated question.
                        Err(error) if deadline.is_some_and(|deadline| *at >= deadline) => {
                            let problem = format!("{DEFAULT_REFUSED}{error}");
                            wish = NodeRequest::AskAgain { problem, by_default: true };
                        }
                        // The answer fits the stored shape, but the type is stricter. To keep the run alive, ask again and state the problem.
                        Err(error) => {
                            wish = NodeRequest::AskAgain { problem: error.to_string(), by_default: false }
                        }
                    }
                }
                Reply::Answered { answer: Answer::Reject(comment), by, .. } => {
                    return Err(AskError::Rejected {
                        question: name,
                        comment: comment.clone(),
                        by: by.clone(),
                    });
                }
                Reply::Expired { .. } => {
                    if let Some(problem) =
                        asked.ask.problem.as_deref().filter(|said| said.starts_with(DEFAULT_REFUSED))
                    {
                        let message = format!(
                            "the question `{name}`: {problem}; give it a default that its type can read, and retry the run, which asks the \
                             question again"
                        );
                        return Err(Error::new(ErrorKind::Invalid, message).with_node(self.node()).into());
                    }
                    return Err(AskError::Expired { question: name, deadline: deadline.unwrap_or_default() });
                }
                _ => return Err(self.driver_gone_error().into()),
            }
        }
    }
}
