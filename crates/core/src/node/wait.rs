//! Durable waits of a node for time and for messages.

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::NodeContext;
use super::requests::{NodeReply, NodeRequest};
use crate::clock::Timestamp;
use crate::error::Result;

impl NodeContext {
    /// Waits for the duration `time`. The timer is recorded: after a restart, the process that claims the run waits only for the remaining time.
    ///
    /// During a long wait the run leaves the memory of the process. When the time has passed, the activation runs again from its start, and this call
    /// returns at once. The code before the call therefore runs twice: make it repeatable, or put it into a [`step`](Self::step).
    ///
    /// If the node waits for several events at once, for example in a `select!`, the run records which wait ends first. The same wait ends first
    /// whenever the activation runs again. The first call of `sleep` in an activation finds the first recorded timer, the second call finds the
    /// second timer, and so on. The order in which the futures are polled does not matter.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`](crate::ErrorKind::Closed) if this process no longer drives the run, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in an `External` node.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the timer stays recorded, but it wakes no node.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<()>> + Send + use<'_> {
        self.sleep_until(self.scope.run.clock.now().plus(time))
    }

    /// Waits until the time `moment`. The timer is recorded, as for [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the timer stays recorded, but it wakes no node.
    pub fn sleep_until(&self, moment: Timestamp) -> impl Future<Output = Result<()>> + Send + use<'_> {
        // Count at the call: a `select!` polls its branches in any order, but calls them in source order.
        let number = self.scope.waits.next_sleep();
        async move { self.request(format!("#sleep{number}"), NodeRequest::Until(moment)).await.map(|_| ()) }
    }

    /// Waits like [`sleep`](Self::sleep), with a timer that is found by its name and not by the order of the calls.
    ///
    /// Use a named timer if the order of the calls may differ when the activation runs again. The rules for names are those of [`step`](Self::step).
    /// Whenever the activation runs again, even after a retry of the run, the same name finds the same timer.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or is not a
    /// valid step name.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the timer stays recorded, but it wakes no node.
    pub async fn sleep_as(&self, name: impl Into<String>, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        let name = self.claim(name.into())?;
        self.request(format!("#sleep.{name}"), NodeRequest::Until(moment)).await.map(|_| ())
    }

    /// Waits for a time with a timer that belongs to one start (round) of a child. The round, and not the attempt, identifies the timer, because a
    /// retry of the run counts attempts from the beginning again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep).
    pub(crate) async fn sleep_in_round(&self, round: u32, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        self.request(format!("#sleep{round}"), NodeRequest::Until(moment)).await.map(|_| ())
    }

    /// Takes the next message that was sent to the run. If there is no message, the call waits for one.
    ///
    /// Only one call takes each message. The run records the message, and the same call returns it again when the activation runs again. The run
    /// queues messages in the order in which they were sent, even before a node calls `receive`. A message that is not of type `M` is set aside, with
    /// a record and a warning in the log.
    ///
    /// When the whole run waits only for messages, its status is `AwaitingInput` and it leaves the memory. After a message arrives, the activation
    /// runs again from its start, so the code before this call runs again; see [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped because another wait ended first, the call takes no message. In other cases a message that was already taken belongs
    /// to the activation, and the same call of the next attempt returns it.
    pub fn receive<M: DeserializeOwned>(&self) -> impl Future<Output = Result<M>> + Send + use<'_, M> {
        let next = self.next_message(None);
        async move { next.await?.ok_or_else(|| self.driver_gone_error()) }
    }

    /// Takes the next message, and waits at most `patience` for it. Returns `None` if no message arrived. The timer is recorded and continues after a
    /// restart.
    ///
    /// If a message is set aside, the timer starts again. If a message arrives after the time has passed, but before a process has claimed the run
    /// because of the timer, the call still takes the message.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// The rules of [`receive`](Self::receive) apply.
    pub fn receive_within<M: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        self.next_message(Some(patience))
    }

    /// Takes the next message like [`receive`](Self::receive), with a wait that is found by its name and not by the order of the calls.
    ///
    /// When the activation runs again, the same name finds the same message, even if the calls come in another order. If `patience` is set and no
    /// message arrives in this time, the result is `None`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or is not a
    /// valid step name.
    ///
    /// # Cancel safety
    ///
    /// The rules of [`receive`](Self::receive) apply.
    pub async fn receive_as<M: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        patience: Option<Duration>,
    ) -> Result<Option<M>> {
        let name = self.claim(name.into())?;
        self.take_message(format!("#receive.{name}"), patience, read_message::<M>).await
    }

    fn next_message<M: DeserializeOwned>(
        &self,
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        self.next_message_as(patience, read_message::<M>)
    }

    /// Takes the next message that `read` can decode. Messages that it cannot decode are set aside.
    pub(super) fn next_message_as<'a, M, R>(
        &'a self,
        patience: Option<Duration>,
        read: R,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'a, M, R>
    where
        R: Fn(&str) -> Result<M, String> + Send,
    {
        // Count at the call, like `sleep_until`.
        let number = self.scope.waits.next_receive();
        self.take_message(format!("#receive{number}"), patience, read)
    }

    /// Takes the next message that `read` can decode, by the wait of this name.
    async fn take_message<M>(
        &self,
        name: String,
        patience: Option<Duration>,
        read: impl Fn(&str) -> Result<M, String> + Send,
    ) -> Result<Option<M>> {
        let mut wish = NodeRequest::Message { patience };
        loop {
            let message = match self.request(name.clone(), wish).await? {
                NodeReply::Message(message) => message,
                _ => return Ok(None),
            };
            match read(message.body.get()) {
                Ok(content) => return Ok(Some(content)),
                Err(why) => wish = NodeRequest::Refuse { message: message.number, why, patience },
            }
        }
    }
}

fn read_message<M: DeserializeOwned>(text: &str) -> Result<M, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("it is not of type {}: {error}", std::any::type_name::<M>()))
}
