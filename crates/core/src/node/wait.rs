//! Durable waits of a node for time and for messages.

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::NodeContext;
use super::requests::{NodeReply, NodeRequest};
use crate::clock::Timestamp;
use crate::error::Result;

impl NodeContext {
    /// Waits for a time that survives a restart. The claimer of the run waits for the rest of the time.
    ///
    /// During a long wait the run leaves memory. The activation then runs again from its start, and this call returns at once. Make the code before
    /// the call repeatable, or put it into a [`step`](Self::step).
    ///
    /// Next to other waits, for example in a `select!`, the wait that ends first is recorded, and ends first again whenever the activation runs.
    /// Timers are matched by the order of the calls, not of the polls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if this process no longer drives the run;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in an `External` node.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the timer stays recorded, and wakes no node.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<()>> + Send + use<'_> {
        self.sleep_until(self.scope.run.clock.now().plus(time))
    }

    /// Waits until `moment`, like [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// If dropped, the timer stays recorded.
    pub fn sleep_until(&self, moment: Timestamp) -> impl Future<Output = Result<()>> + Send + use<'_> {
        // Count at the call: a `select!` polls its branches in any order, but calls them in source order.
        let number = self.scope.waits.next_sleep();
        async move { self.request(format!("#sleep{number}"), NodeRequest::Until(moment)).await.map(|_| ()) }
    }

    /// Waits like [`sleep`](Self::sleep), with a named timer instead of a numbered one.
    ///
    /// Use a name for a wait that an activation may start again with a time of its own. The rules for names are those of steps. The same name finds
    /// the same timer whenever the activation runs again, even after a retry of the run.
    ///
    /// # Errors
    ///
    /// The errors of [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or is not a valid step
    /// name.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the timer stays recorded, and wakes no node.
    pub async fn sleep_as(&self, name: impl Into<String>, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        let name = self.claim(name.into())?;
        self.request(format!("#sleep.{name}"), NodeRequest::Until(moment)).await.map(|_| ())
    }

    /// Waits for the time of an attempt without another timer. A retry of the run restarts the count of attempts, but not the rounds of the run's
    /// child.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    pub(crate) async fn sleep_in_round(&self, round: u32, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        self.request(format!("#sleep{round}"), NodeRequest::Until(moment)).await.map(|_| ())
    }

    /// Takes the next message of the run, and waits for one if there is none.
    ///
    /// Each message is taken once. The run records it, and the activation finds it again in its next run. Messages queue in the order in which they
    /// were sent, even before a node receives. A message that is not of type `M` is set aside, with a record and a warning.
    ///
    /// While only messages can advance the run, it is `AwaitingInput` and uses no memory. The code before the call then runs again; see
    /// [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// If dropped because another wait ended first, the call takes no message. Otherwise a message already taken stays with the activation, and the
    /// same call of the next attempt returns it.
    pub fn receive<M: DeserializeOwned>(&self) -> impl Future<Output = Result<M>> + Send + use<'_, M> {
        let next = self.next_message(None);
        async move { next.await?.ok_or_else(|| self.driver_gone_error()) }
    }

    /// Takes the next message, and waits at most `patience` for it. Returns `None` if none arrived. The timer survives a restart.
    ///
    /// The timer restarts after a message that is set aside. A message that arrives late, but before a process claims the run for the expired timer,
    /// is still taken.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_within<M: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        self.next_message(Some(patience))
    }

    /// Takes the next message like [`receive`](Self::receive), with a named wait instead of a numbered one.
    ///
    /// When the activation runs again, the name finds the message in any order of the calls. With a `patience`, the result is `None` if no message
    /// arrived in time.
    ///
    /// # Errors
    ///
    /// The errors of [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or is not a valid step
    /// name.
    ///
    /// # Cancel safety
    ///
    /// As [`receive`](Self::receive).
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

    /// Takes the next message that `read` can decode, and sets others aside.
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
