//! What is said to a run that goes on here: signals, edits, and the answers of the answerer.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::task::Id;

use super::Driver;
use crate::ask::{Answer, Asking, QuestionKind};
use crate::engine::fold::{check_signal, full_id};
use crate::error::{Error, ErrorKind, Result};
use crate::record::RunStatus;
use crate::record::body::{Event, Signal, SignalKind};
use crate::record::pause::Edited;
use crate::runtime::edit::misfit;
use crate::runtime::inbox::check_room;
use crate::runtime::outcome::questions;
use crate::state::{Patch, State};

/// How often an answer is given again because others write to the run at the same time.
const RACES: u32 = 8;

impl<S: State> Driver<S> {
    /// Takes in what somebody in this process says to the run. The inner result is for whoever said it.
    pub(super) async fn signal(&mut self, mut signal: Signal) -> Result<Result<()>> {
        let most = self.shared.limits.max_waiting_messages;
        let checked = check_signal(&self.machine, &signal.what, self.shared.clock.now())
            .and_then(|()| check_room(&self.machine, &signal.what, most))
            .and_then(|()| full_id(&self.machine, &mut signal.what));
        if let Err(error) = checked {
            return Ok(Err(error.with_run(&self.log.run)));
        }
        self.note(&Event::Signal(signal), None, false)?;
        self.said().await
    }

    /// Takes in a change of the state by an operator. The inner result is for whoever made it.
    pub(super) async fn edit(&mut self, patch: Patch, by: Option<String>) -> Result<Result<()>> {
        let run = self.log.run.clone();
        let status = self.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; its state is final");
            return Ok(Err(Error::new(ErrorKind::WrongStatus, message).with_run(&run)));
        }
        let state = match self.patched(&patch) {
            Ok(state) => state,
            Err(error) => return Ok(Err(misfit(error).with_run(&run))),
        };
        // What is held back belongs before the edit, in the log as in the state.
        self.flush(true)?;
        self.state = Arc::new(state);
        self.note(&Event::Edit(Edited { patch, by }), None, false)?;
        self.said().await
    }

    /// Waits until what was said is durable, so that a conflict is met before anything rests on it.
    async fn said(&mut self) -> Result<Result<()>> {
        while !self.outbox.is_empty() {
            match self.outbox.acknowledged().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // Whoever said it decides anew on the log as it is now.
                    self.rebase().await?;
                    return Ok(Err(error.with_run(&self.log.run)));
                }
                answer => self.acknowledge(answer).await?,
            }
        }
        self.schedule_all();
        self.serve_all();
        Ok(Ok(()))
    }

    /// Hands questions that are new to the answerer, and takes back those that are closed.
    pub(super) fn pose(&mut self) {
        let Some(answerer) = self.shared.answerer.clone() else { return };
        let mut open = questions(&self.machine);
        open.retain(|question| question.kind != QuestionKind::Doubt);
        self.posed.retain(|id, task| {
            let stays = open.iter().any(|question| question.id == *id);
            if !stays {
                task.abort();
            }
            stays
        });
        for question in open {
            if let Entry::Vacant(place) = self.posed.entry(question.id.clone()) {
                let (run, answerer) = (self.log.run.clone(), Arc::clone(&answerer));
                place.insert(self.answering.spawn(async move {
                    let id = question.id.clone();
                    (id, answerer.answer(&Asking { run, question }).await)
                }));
            }
        }
    }

    /// Takes a question back from the answerer, because it is asked anew.
    pub(super) fn unpose(&mut self, question: &str) {
        if let Some(task) = self.posed.remove(question) {
            task.abort();
        }
    }

    /// Takes in what the answerer answered.
    pub(super) async fn answered(
        &mut self,
        task: Id,
        question: String,
        answer: Option<Answer>,
    ) -> Result<()> {
        // What it says to a question that was closed meanwhile, or asked anew, is no answer to what is asked now.
        let asked = self.posed.get(&question).is_some_and(|posed| posed.id() == task);
        let Some(answer) = answer.filter(|_| asked) else { return Ok(()) };
        let by = self.shared.answerer.as_ref().map(|answerer| answerer.name());
        let what = SignalKind::Answer { question: question.clone(), answer };
        let signal = Signal { what, by, at: self.shared.clock.now() };
        for _ in 0..RACES {
            match self.signal(signal.clone()).await? {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => {
                    tracing::warn!(run = %self.log.run, question, %error, "the answerer's answer is refused");
                    return Ok(());
                }
            }
        }
        // Posed again at the next turn.
        self.posed.remove(&question);
        Ok(())
    }
}
