//! Applies a signal, such as a pause or a message, to the machine of a run.

use std::sync::Arc;

use super::Machine;
use crate::engine::machine::memo::reset_for_retry;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Seq;
use crate::record::RunStatus;
use crate::record::body::{Signal, SignalKind};
use crate::record::pause::MessageRecord;

impl Machine {
    pub(super) fn absorb_signal(&mut self, signal: &Signal) -> Result<()> {
        match &signal.what {
            SignalKind::Respond { question, resolution } => {
                return self.absorb_resolution(question, resolution, signal);
            }
            SignalKind::Answer { question, answer } => {
                return self.absorb_answer(question, answer, signal.by.as_ref(), signal.at);
            }
            SignalKind::Message { body, key } => {
                let (body, by) = (Arc::clone(body), signal.by.clone());
                self.inbox.push(|number| MessageRecord { number, body, by, at: signal.at });
                if let Some(key) = key {
                    self.inbox.remember(key.clone());
                }
                if self.standing.is_receiving() {
                    self.standing.wake_up();
                }
            }
            SignalKind::Letters { start_id, change } => {
                if start_id.is_none_or(|start_id| start_id == self.start_id)
                    && let Some(letters) = &mut self.letters
                {
                    letters.change(change, signal.at);
                }
            }
            SignalKind::Pin { seq } => drop(self.pins.insert(*seq)),
            SignalKind::Unpin { seq } => drop(self.pins.remove(seq)),
            SignalKind::Pause { reason } => self.standing.pause(reason.clone(), signal.of_parent),
            SignalKind::Unpause => {
                self.standing.unpause(signal.of_parent);
                if self.paused().is_none() && self.status() == RunStatus::InProgress && self.is_over() {
                    // Its last node ended during the pause.
                    self.standing.complete();
                }
            }
            SignalKind::Cancel { reason } => self.standing.ask_to_cancel(reason.clone()),
            SignalKind::GoTo { nodes, reason } => return self.go_to(nodes, reason),
            SignalKind::Retry { settled } => {
                self.standing.retry();
                self.frontier
                    .activations_mut()
                    .try_for_each(|activation| reset_for_retry(&mut activation.memos))?;
                for (key, mut activation) in self.frontier.take_stopped() {
                    reset_for_retry(&mut activation.memos)?;
                    self.frontier.start(key, activation.tried_again(), self.nodes.index(key.0));
                }
                return self.begin(settled, 0, &[]);
            }
        }
        Ok(())
    }

    /// Returns whether a message with the same key was already sent, as far as the run remembers the key.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::AlreadyExists`] if another message has the key.
    pub fn was_sent(&self, what: &SignalKind) -> Result<bool> {
        let SignalKind::Message { key: Some(key), .. } = what else { return Ok(false) };
        match self.inbox.keys().iter().find(|sent| sent.name == key.name) {
            None => Ok(false),
            Some(sent) if sent.print == key.print => Ok(true),
            Some(_) => {
                let message =
                    format!("another message has the key `{}`; send this message with another key", key.name);
                Err(Error::new(ErrorKind::AlreadyExists, message))
            }
        }
    }

    /// Renumbers the pins after an import, which numbers records from zero. Returns whether there are any.
    pub fn renumber_pins(&mut self, renumbered: impl Fn(Seq) -> Seq) -> bool {
        self.pins = std::mem::take(&mut self.pins).into_iter().map(renumbered).collect();
        !self.pins.is_empty()
    }
}
