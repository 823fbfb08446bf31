//! Applies signals, edits, and answers of the answerer to an active run.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::Id;

use super::RunDriver;
use crate::ask::{Answer, QuestionKind};
use crate::engine::fold::{check_signal, full_id};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::log::check_size;
use crate::past::questions;
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, Signal, SignalKind};
use crate::record::pause::EditRecord;
use crate::runtime::inbox::check_room;
use crate::runtime::outbox;
use crate::runtime::signals::signal::{at_work, revives};
use crate::runtime::writes::run_writer::ConflictRetries;
use crate::runtime::writes::run_writer::caller_error;
use crate::runtime::writes::system_runs::hold_for_queue;
use crate::state::{Patch, State};

impl<S: State> RunDriver<S> {
    /// Handles a signal from a caller in this process. The inner result is the reply to the caller. The outer error stops the driver.
    pub(super) async fn signal(&mut self, mut signal: Signal) -> Result<Result<()>> {
        if matches!(signal.what, SignalKind::GoTo { .. }) {
            return Ok(Err(at_work().with_run(self.journal.run())));
        }
        match self.machine.was_sent(&signal.what) {
            // Its record may be pending: before it is durable, the sender must not get a reply.
            Ok(true) => return self.wait_durable().await,
            Ok(false) => {}
            Err(error) => return Ok(Err(error.with_run(self.journal.run()))),
        }
        let most = self.shared.limits.max_waiting_messages;
        let checked = check_signal(&self.machine, &signal, self.shared.clock.now())
            .and_then(|()| check_room(&self.machine, &signal.what, most))
            .and_then(|()| full_id(&self.machine, &mut signal.what));
        if let Err(error) = checked {
            return Ok(Err(error.with_run(self.journal.run())));
        }
        self.break_transaction();
        let aside = self.last_rejected(&signal.what);
        // The run failed and a node is still finishing: activations of the retry wait for a slot.
        let hold = match revives(&signal.what) {
            true => hold_for_queue(&self.machine, Some(&self.scope.facts), self.shared.clock.now()),
            false => Vec::new(),
        };
        self.write_event(&RecordEvent::Signal(signal), None, false)?;
        // The run becomes idle when no node runs.
        for event in hold.iter().filter(|event| matches!(event, RecordEvent::Signal(_))) {
            self.write_event(event, None, false)?;
        }
        let said = self.wait_durable().await?;
        if let (Ok(()), Some(to)) = (&said, aside) {
            outbox::queue_messages(&self.shared, self.journal.run(), &self.machine, to);
        }
        Ok(said)
    }

    /// Handles an edit of the state. The inner result is the reply to the caller. The outer error stops the driver.
    pub(super) async fn edit(&mut self, patch: Patch, by: Option<String>) -> Result<Result<()>> {
        let run = self.journal.run().clone();
        let status = self.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; its state is final");
            return Ok(Err(Error::new(ErrorKind::WrongStatus, message).with_run(&run)));
        }
        let state = match self.state_after_patch(&patch) {
            Ok(state) => state,
            Err(error) => return Ok(Err(caller_error(error).with_run(&run))),
        };
        let text = state.to_channels_json()?;
        if let Err(error) = check_size(&text, self.shared.limits.max_body) {
            return Ok(Err(error.with_run(&run)));
        }
        self.break_transaction();
        // In the log, held records belong before the edit, as in the state.
        self.flush(true)?;
        self.state = Arc::new(state);
        self.write_event(&RecordEvent::Edit(EditRecord { patch, by }), None, false)?;
        self.wait_durable().await
    }

    /// Waits until the signal is durable, so that a write conflict is detected before the signal has an effect.
    async fn wait_durable(&mut self) -> Result<Result<()>> {
        while self.journal.pending() > 0 {
            match self.acknowledged().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // The signaller decides again on the current log.
                    self.rebase().await?;
                    return Ok(Err(error.with_run(self.journal.run())));
                }
                // The signaller gets an unknown outcome; the driver stops with the error itself.
                Err(error) if error.kind() == ErrorKind::Fenced => {
                    let in_doubt = unknown_outcome_error(&error).with_run(self.journal.run());
                    self.stopping.set_stop_error(error.with_run(self.journal.run()));
                    return Ok(Err(in_doubt));
                }
                answer => self.acknowledge(answer).await?,
            }
        }
        let is_bounded = |node| self.plan.most_running(node).is_some();
        self.ready_queue.push_all((&self.machine, &self.state), self.shared.clock.now(), is_bounded);
        let in_flight = self.machine.in_flight();
        self.waits.refresh(|key| in_flight.contains_key(&key));
        Ok(Ok(()))
    }

    /// Passes new questions to the answerer, and withdraws closed ones.
    pub(super) fn pose(&mut self) {
        let Some(answerer) = &self.shared.services.answerer else { return };
        let mut open = questions(&self.machine);
        open.retain(|question| question.kind != QuestionKind::Doubt);
        self.answerer_tasks.pose(self.journal.run(), answerer, open);
    }

    /// Handles an answer of the answerer.
    pub(super) async fn handle_answer(
        &mut self,
        task: Id,
        question: String,
        answer: Option<(Answer, String)>,
    ) -> Result<()> {
        let is_current = self.answerer_tasks.is_current(task, &question);
        let Some((answer, by)) = answer.filter(|_| is_current) else { return Ok(()) };
        let what = match SignalKind::answer(question.clone(), answer) {
            Ok(what) => what,
            Err(error) => {
                self.warn_of_refusal(&question, &error);
                return Ok(());
            }
        };
        let signal = Signal { what, by: Some(by), at: self.shared.clock.now(), of_parent: false };
        let mut races = ConflictRetries::new();
        loop {
            match self.signal(signal.clone()).await? {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.journal.detach_append();
                    if races.count_conflict(self.journal.run()).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    self.warn_of_refusal(&question, &error);
                    return Ok(());
                }
            }
        }
        // The next turn poses the question again.
        self.answerer_tasks.allow_again(&question);
        Ok(())
    }

    fn warn_of_refusal(&self, question: &str, error: &Error) {
        tracing::warn!(run = %self.journal.run(), question, %error, "the answer of an answerer was rejected; the question stays open");
    }
}

/// Replies to the caller even if the driver stops. If the outcome of the signal is unknown, the reply must not look like a refusal.
pub(super) fn reply_to_signaller(said: Result<Result<()>>, reply: oneshot::Sender<Result<()>>) -> Result<()> {
    let (answer, result) = match said {
        Ok(answer) => (answer, Ok(())),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    // The signaller may be gone.
    drop(reply.send(answer));
    result
}

/// Returns the error for a caller whose signal was being written when the process lost the run. If the caller sends the signal again, the next owner
/// may refuse it because the first signal was appended after all.
fn unknown_outcome_error(error: &Error) -> Error {
    let message = format!(
        "the process lost the run during the write, so its outcome is unknown; read the run before you repeat the call ({})",
        error.message()
    );
    Error::new(ErrorKind::Indeterminate, message).with_source(error.clone())
}
