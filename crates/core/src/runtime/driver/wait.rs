//! What a driver waits for between its turns, and what it does when it comes.
//!
//! To wait and to follow are two functions, and what is rare is boxed: the future of a driver is as large as the largest of what it
//! awaits, for as long as its run goes on. `memory/peak` holds that.

use std::sync::Arc;

use super::RunDriver;
use super::asks::AnswererResult;
use super::transactions::EndWithin;
use crate::error::Result;
use crate::id::HeadRef;
use crate::runtime::shared::DriverCommand;
use crate::state::State;

/// What is left to do of what happened.
pub(super) enum Next<S: State> {
    /// The store has answered an append.
    Acknowledge(Result<HeadRef>),
    /// An attempt has ended.
    Settle(Option<Box<EndWithin<S>>>),
    /// The answerer has spoken.
    Answer(Box<AnswererResult>),
    /// Others in this process tell something.
    Control(DriverCommand),
    /// It is time for something, or to look.
    Time,
    /// Nothing.
    Turn,
}

impl<S: State> RunDriver<S> {
    /// Waits for the next thing to happen, and takes it in as far as nothing must be waited for.
    pub(super) async fn wait(&mut self) -> Result<Next<S>> {
        let clock = Arc::clone(&self.shared.clock);
        let now = clock.monotonic();
        let wake = self.next_wake(now).min(now.saturating_add(self.shared.poll()));
        let sleep = clock.sleep(wake.saturating_sub(now));
        tokio::select! {
            biased;
            answer = self.journal.acknowledged() => Ok(Next::Acknowledge(answer)),
            Some(ended) = self.line.next_end() => match ended {
                Ok(ended) => self.ended(ended).map(Next::Settle),
                // Aborted on purpose; a panic of a node is caught inside its task.
                Err(gone) => {
                    self.begin_broken_anew(gone.id());
                    Ok(Next::Turn)
                }
            },
            Some(answered) = self.asks.next_answer() => Ok(match answered {
                Ok(answered) => Next::Answer(Box::new(answered)),
                // Another answer came first.
                Err(error) if error.is_cancelled() => Next::Turn,
                Err(error) => {
                    tracing::error!(run = %self.journal.run(), %error, "the answerer panicked; its question stays open");
                    Next::Turn
                }
            }),
            Some(event) = self.waiters.next_of_child() => {
                let mut next = Some(event);
                while let Some(event) = next {
                    // The next owner looks again where a look panicked, in a store say.
                    if let Ok(event) = event {
                        self.absorb_child_event(event)?;
                    }
                    next = self.waiters.children().try_next();
                }
                Ok(Next::Turn)
            }
            command = self.commands.recv() => {
                self.command(command)?;
                // What others wish at the same time is weighed with it.
                self.take_commands()?;
                Ok(Next::Turn)
            }
            control = self.registration.control.recv() => Ok(Next::Control(control)),
            () = sleep => Ok(Next::Time),
        }
    }

    /// Does what is left to do of what happened.
    pub(super) async fn follow(&mut self, next: Next<S>) -> Result<()> {
        match next {
            Next::Acknowledge(answer) => self.acknowledge(answer).await,
            Next::Settle(within) => self.settle_end(within).await,
            Next::Answer(answered) => {
                let (task, (question, answer)) = *answered;
                Box::pin(self.answered(task, question, answer)).await
            }
            Next::Control(control) => Box::pin(self.control(control)).await,
            Next::Time => self.on_timer().await,
            Next::Turn => Ok(()),
        }
    }
}
