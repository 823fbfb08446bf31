//! Lists the operations that an activation recorded before an attempt. Nodes that replay a user's function need the list.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::context::NodeContext;
use crate::clock::Timestamp;
use crate::record::memo::Memo;

/// The prefix of a timer with a name.
const TIMER: &str = "#sleep.";

/// The prefix of a named wait for a message.
const MESSAGE: &str = "#receive.";

/// An operation, such as a step or a timer, that an activation recorded before this attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub struct RecordedOperation {
    /// The name, as the node gave it.
    pub name: String,
    /// The kind, with the state of the operation.
    pub kind: RecordedKind,
    /// The position of the operation in the recorded order of results, counted from 0. The order contains the operations that ended while the
    /// activation had other work or waits. The driver delivers the results in this order again. `None` if the operation is unfinished, or if it was
    /// the only one when it ended.
    pub place: Option<usize>,
}

/// The kind of a [`RecordedOperation`], with its state.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub enum RecordedKind {
    /// A step, with its result as JSON.
    Step(Arc<RawValue>),
    /// A timer of [`NodeContext::sleep_as`].
    Timer {
        /// The time at which the timer ends.
        until: Timestamp,
    },
    /// A question.
    Question {
        /// Whether an answer, a rejection or the expiry of the question is recorded.
        is_closed: bool,
    },
    /// A wait of [`NodeContext::receive_as`].
    Message {
        /// Whether the wait has ended, either with a message or because its time had passed.
        has_ended: bool,
    },
    /// A child.
    Child {
        /// Whether the start of the child is recorded.
        has_begun: bool,
        /// Whether the result of the child is recorded.
        has_ended: bool,
        /// The position of the child's end in the recorded order of results, like [`RecordedOperation::place`].
        end_place: Option<usize>,
    },
}

impl NodeContext {
    /// Lists the operations that the activation recorded before this attempt: steps, questions, children, named timers and named waits for messages.
    /// An operation without a result is in the list if its wait had begun.
    ///
    /// Only a node that replays a user's function, as `ferrata-flow` does, needs this method.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::{Graph, RetryPolicy};
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("pay", async |cx, mut s| {
    ///         s.set("before", cx.recorded_operations().len())?;
    ///         cx.step("charge", async || Ok::<_, std::io::Error>(7)).await?;
    ///         if cx.attempt() == 1 { Err("once more".into()) } else { Ok(s) }
    ///     })
    ///     .retry(RetryPolicy::none().with_attempts(2))
    ///     .entry("pay")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let state = runtime.start(&graph, Context::new()).await?.completed().await?;
    /// assert_eq!(state.get::<u32>("before")?, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(hidden)]
    pub fn recorded_operations(&self) -> Vec<RecordedOperation> {
        let memos = &self.scope.memos;
        let place_of = |name: &str| self.scope.place_of(name);
        let mut all = Vec::with_capacity(memos.len());
        for (name, memo) in memos.iter() {
            let (own, kind) = match memo {
                Memo::Until(until) if name.starts_with(TIMER) => {
                    (name.strip_prefix(TIMER), RecordedKind::Timer { until: *until })
                }
                Memo::Until(_) => (name.strip_prefix(MESSAGE), RecordedKind::Message { has_ended: false }),
                Memo::Message(_) | Memo::Idle => {
                    (name.strip_prefix(MESSAGE), RecordedKind::Message { has_ended: true })
                }
                Memo::Asked(asked) => {
                    (Some(name.as_str()), RecordedKind::Question { is_closed: !asked.reply.is_open() })
                }
                Memo::Result(text) if !name.starts_with('#') => {
                    (Some(name.as_str()), RecordedKind::Step(Arc::clone(text)))
                }
                Memo::Result(_) => continue,
            };
            if let Some(own) = own {
                all.push(RecordedOperation { name: own.to_owned(), kind, place: place_of(name) });
            }
        }
        for child in memos.children() {
            let kind = RecordedKind::Child {
                has_begun: child.began,
                has_ended: child.told.is_some(),
                end_place: place_of(&child.end_note_name()),
            };
            let place = place_of(&child.note_name());
            all.push(RecordedOperation { name: child.name, kind, place });
        }
        all
    }
}
