//! Waits of a node for time and for messages. Both survive a restart.

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::NodeContext;
use super::wish::{Given, Wish};
use crate::clock::Timestamp;
use crate::error::Result;

impl NodeContext {
    /// Waits for a time that survives a restart: the claimer of the run waits for what is left of it.
    ///
    /// A long wait lets go of the run's memory; the activation then runs again from its start, and comes back here at once.
    /// So what stands before it must be repeatable, or be a [`step`](Self::step).
    ///
    /// Beside other waits, in a `select!` say, whichever ends first is recorded, and ends first again whenever the activation runs.
    /// Timers are found again by the order of the calls, not of the polls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the run is left; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in an `External` node.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the timer stays noted, and wakes nothing.
    ///
    /// <!-- held by: pauses::a_long_sleep_lets_go_of_the_run_and_a_short_one_does_not, choices::timers_beside_each_other_keep_their_times -->
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<()>> + Send + use<'_> {
        self.sleep_until(self.scope.run.clock.now().plus(time))
    }

    /// Waits until a moment, like [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the timer stays noted.
    ///
    /// <!-- held by: recovery::a_sleeping_run_is_woken_when_its_time_has_come_and_not_before -->
    pub fn sleep_until(&self, moment: Timestamp) -> impl Future<Output = Result<()>> + Send + use<'_> {
        // Counted when it is called: a `select!` polls its branches in any order, but calls them in the order they are written in.
        let number = self.scope.waits.next_sleep();
        async move { self.wish(format!("#sleep{number}"), Wish::Until(moment)).await.map(|_| ()) }
    }

    /// Waits like [`sleep`](Self::sleep), by a timer with a name instead of a number: for what an activation may begin anew, with a time of
    /// its own. Named as a step is, after what it is for; the same name finds the same timer whenever the activation runs again, and also
    /// after a retry of the run.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or cannot name a step.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the timer stays noted, and wakes nothing.
    ///
    /// <!-- held by: manager::a_manager_that_failed_is_retried_with_a_child_of_its_own_time -->
    pub async fn sleep_as(&self, name: impl Into<String>, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        let name = self.claim(name.into())?;
        self.wish(format!("#sleep.{name}"), Wish::Until(moment)).await.map(|_| ())
    }

    /// Waits for the time of an attempt that has no other timer. Attempts are counted anew after a retry of the run, rounds of its child are not.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    pub(crate) async fn sleep_in_round(&self, round: u32, time: Duration) -> Result<()> {
        let moment = self.scope.run.clock.now().plus(time);
        self.wish(format!("#sleep{round}"), Wish::Until(moment)).await.map(|_| ())
    }

    /// Takes the next message that was sent to the run, waiting for one if there is none.
    ///
    /// A message is taken once: that it was is recorded, and the activation finds it again when it runs again. Messages wait in
    /// the order in which they were sent, also those sent before a node receives. One that is not of type `M` is set aside, on
    /// the record, with a warning.
    ///
    /// While nothing but messages can move the run, it is `AwaitingInput` and uses no memory; see [`sleep`](Self::sleep) for
    /// what that means for what stands before.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// Dropped because a wait beside it ended first, it takes no message. Dropped otherwise, one that was taken stays with the
    /// activation: the same call of the next attempt returns it.
    ///
    /// <!-- held by: pauses::messages_are_taken_once_in_order_and_unreadable_ones_set_aside -->
    pub fn receive<M: DeserializeOwned>(&self) -> impl Future<Output = Result<M>> + Send + use<'_, M> {
        let next = self.next_message(None);
        async move { next.await?.ok_or_else(|| self.gone()) }
    }

    /// Takes the next message, waiting at most this long; `None` if none came. The time survives a restart.
    ///
    /// It begins anew after a message that is set aside. A message that comes late, but before a process took the run up to notice,
    /// is taken all the same.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// As [`receive`](Self::receive).
    ///
    /// <!-- held by: pauses::patience_ends_after_days_without_any_process -->
    pub fn receive_within<M: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        self.next_message(Some(patience))
    }

    /// Takes the next message like [`receive`](Self::receive), by a wait with a name instead of a number. When the activation runs again, the name
    /// finds the message, in any order of the calls. With a `patience` it is `None` if no message came in time.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is used twice or cannot name a step.
    ///
    /// # Cancel safety
    ///
    /// As [`receive`](Self::receive).
    ///
    /// <!-- held by: named_receives::message_is_found_by_name -->
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

    /// Takes the next message that `read` can read, setting aside those it cannot.
    pub(super) fn next_message_as<'a, M, R>(
        &'a self,
        patience: Option<Duration>,
        read: R,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'a, M, R>
    where
        R: Fn(&str) -> Result<M, String> + Send,
    {
        // Counted when it is called, like `sleep_until`.
        let number = self.scope.waits.next_receive();
        self.take_message(format!("#receive{number}"), patience, read)
    }

    /// Takes the next message that `read` can read by the wait of this name.
    async fn take_message<M>(
        &self,
        name: String,
        patience: Option<Duration>,
        read: impl Fn(&str) -> Result<M, String> + Send,
    ) -> Result<Option<M>> {
        let mut wish = Wish::Message { patience };
        loop {
            let message = match self.wish(name.clone(), wish).await? {
                Given::Message(message) => message,
                _ => return Ok(None),
            };
            match read(message.body.get()) {
                Ok(content) => return Ok(Some(content)),
                Err(why) => wish = Wish::Refuse { message: message.number, why, patience },
            }
        }
    }
}

fn read_message<M: DeserializeOwned>(text: &str) -> Result<M, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("it is not of type {}: {error}", std::any::type_name::<M>()))
}
