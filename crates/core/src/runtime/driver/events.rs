//! The events for which a driver waits, and how it reacts to each of them.
//!
//! Two separate functions wait and react, and futures that are rarely needed are boxed. The reason is memory: the future of a driver is as large as
//! the largest future that it awaits, for the whole time in which the run is active. The benchmark row `memory/peak` checks the size.

use std::sync::Arc;

use super::RunDriver;
use super::answerer_tasks::AnswererResult;
use super::transactions::EndWithin;
use crate::error::Result;
use crate::id::HeadRef;
use crate::kernel::commands::DriverCommand;
use crate::state::State;

/// The work that remains after an event, which `follow` does.
pub(super) enum NextWork<S: State> {
    /// The store has answered an append.
    Acknowledge(Result<HeadRef>),
    /// An attempt has ended.
    Settle(Option<Box<EndWithin<S>>>),
    /// The answerer has answered.
    Answer(Box<AnswererResult>),
    /// Another task of this process sent a command.
    Control(DriverCommand),
    /// A time for which the run waits has passed, or a periodic check is due.
    Time,
    /// No event is expected, so the driver checks what to do next.
    Turn,
}

impl<S: State> RunDriver<S> {
    /// Waits for the next event, and handles it up to the first point where it must wait again.
    pub(super) async fn wait(&mut self) -> Result<NextWork<S>> {
        let clock = Arc::clone(&self.shared.clock);
        let now = clock.monotonic();
        let wake = self.next_wake(now).min(now.saturating_add(self.shared.poll()));
        let sleep = clock.sleep(wake.saturating_sub(now));
        tokio::select! {
            biased;
            answer = self.journal.acknowledged() => Ok(NextWork::Acknowledge(answer)),
            Some(ended) = self.ready_queue.next_end() => match ended {
                Ok(ended) => self.handle_end(ended).map(NextWork::Settle),
                // Aborted on purpose: the task of a node catches its panics.
                Err(gone) => {
                    self.restart_broken(gone.id());
                    Ok(NextWork::Turn)
                }
            },
            Some(answered) = self.answerer_tasks.next_answer() => Ok(match answered {
                Ok(answered) => NextWork::Answer(Box::new(answered)),
                // Another answer came first.
                Err(error) if error.is_cancelled() => NextWork::Turn,
                Err(error) => {
                    tracing::error!(run = %self.journal.run(), %error, "the answerer panicked; its question stays open");
                    NextWork::Turn
                }
            }),
            Some(event) = self.waits.next_of_child() => {
                let mut next = Some(event);
                while let Some(event) = next {
                    // If a check panicked, for example in a store, the next owner repeats it.
                    if let Ok(event) = event {
                        self.absorb_child_event(event)?;
                    }
                    next = self.waits.children().try_next();
                }
                Ok(NextWork::Turn)
            }
            command = self.commands.recv() => {
                self.command(command)?;
                // Consider concurrent commands of other attempts together.
                self.take_commands()?;
                Ok(NextWork::Turn)
            }
            control = self.registration.control.recv() => Ok(NextWork::Control(control)),
            () = sleep => Ok(NextWork::Time),
        }
    }

    /// Does the remaining work of an event.
    pub(super) async fn follow(&mut self, next: NextWork<S>) -> Result<()> {
        match next {
            NextWork::Acknowledge(answer) => self.acknowledge(answer).await,
            NextWork::Settle(within) => self.finish_end(within).await,
            NextWork::Answer(answered) => {
                let (task, (question, answer)) = *answered;
                Box::pin(self.handle_answer(task, question, answer)).await
            }
            NextWork::Control(control) => Box::pin(self.control(control)).await,
            NextWork::Time => self.on_timer().await,
            NextWork::Turn => Ok(()),
        }
    }
}
