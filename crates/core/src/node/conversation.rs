//! Conversations: nodes that handle one message per activation until an end condition holds.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::{Node, NodeContext, NodeError, NodeResult};
use crate::record::pause::ConversationEnd;
use crate::state::{Draft, IntoUpdate, State, Update};

type Over<S> = dyn Fn(&S) -> bool + Send + Sync;

/// The end conditions of a conversation. The first condition that becomes true ends the conversation. Without a condition, the conversation continues
/// until the run is cancelled.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::node::Conversation;
/// use ferrata_core::state::Context;
///
/// let policy = Conversation::<Context>::new()
///     .max_messages(20)
///     .idle_timeout(Duration::from_secs(3_600))
///     .exit_on("/quit")
///     .until(|s| s.contains_key("solved"));
/// # let _ = policy;
/// ```
#[must_use]
pub struct Conversation<S> {
    pub(crate) turns: Option<u32>,
    pub(crate) idle: Option<Duration>,
    pub(crate) commands: Vec<String>,
    pub(crate) over: Option<Arc<Over<S>>>,
}

impl<S> Conversation<S> {
    /// Creates a conversation without an end condition.
    pub fn new() -> Self {
        Self { turns: None, idle: None, commands: Vec::new(), over: None }
    }

    /// Ends the conversation after `most` messages. Messages are counted over the whole run, even if the run enters the conversation several times.
    /// If the limit is already reached, the conversation ends at once and takes no message.
    pub fn max_messages(mut self, most: u32) -> Self {
        self.turns = Some(most);
        self
    }

    /// Ends the conversation when no message arrives for `time`. The timer survives a restart.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Ends the conversation when it receives a message with this text. The text does not count as a message. To set several texts, call the method
    /// once for each.
    pub fn exit_on(mut self, text: impl Into<String>) -> Self {
        self.commands.push(text.into());
        self
    }

    /// Ends the conversation when `over` returns true for the state after a message.
    pub fn until(mut self, over: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.over = Some(Arc::new(over));
        self
    }
}

impl<S> Default for Conversation<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Clone for Conversation<S> {
    fn clone(&self) -> Self {
        Self { turns: self.turns, idle: self.idle, commands: self.commands.clone(), over: self.over.clone() }
    }
}

impl<S> fmt::Debug for Conversation<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("turns", &self.turns)
            .field("idle", &self.idle)
            .field("commands", &self.commands)
            .field("until", &self.over.is_some())
            .finish()
    }
}

/// The node of a conversation.
pub(crate) struct TalkNode<S, M, F> {
    pub(crate) policy: Conversation<S>,
    pub(crate) handle: F,
    pub(crate) message: PhantomData<fn() -> M>,
}

#[async_trait]
impl<S, M, F, Fut, R> Node<S> for TalkNode<S, M, F>
where
    S: State,
    M: DeserializeOwned + Send + 'static,
    F: Fn(NodeContext, Draft<S>, M) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
    R: IntoUpdate<S>,
{
    async fn run(&self, cx: NodeContext, state: Draft<S>) -> NodeResult<S> {
        if self.policy.turns.is_some_and(|most| cx.scope.message_count >= most) {
            return Ok(Update::leaving(ConversationEnd::Turns));
        }
        let commands = &self.policy.commands;
        let read = |text: &str| {
            if serde_json::from_str::<String>(text).is_ok_and(|said| commands.contains(&said)) {
                return Ok(None);
            }
            serde_json::from_str(text)
                .map(Some)
                .map_err(|error| format!("it is not of type {}: {error}", std::any::type_name::<M>()))
        };
        let left = match cx.next_message_as(self.policy.idle, read).await? {
            Some(Some(message)) => {
                return Ok((self.handle)(cx, state, message).await?.into_update());
            }
            Some(None) => ConversationEnd::Command,
            None => ConversationEnd::Idle,
        };
        Ok(Update::leaving(left))
    }
}
