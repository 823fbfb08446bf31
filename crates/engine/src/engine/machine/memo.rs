//! Creates and changes the memos of an activation. A memo is a result that the activation recorded under a name.
//!
//! The memos belong to the activation. When the activation runs again (after a crash, a failed attempt, or an idle time), it finds every memo under
//! its name.

use std::sync::Arc;

use super::Machine;
use crate::ask::{Answer, OnDeadline};
use crate::engine::questions::ClosedQuestion;
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::{AskedQuestion, Memo, Memos, Reply, end_note};
use crate::record::pause::{ActivationNote, ExpiredRecord, QuestionRecord, Receiver, StepRecord};

impl Machine {
    /// Stores a result that an activation recorded under a name.
    pub(super) fn absorb_step(&mut self, step: &StepRecord) -> Result<()> {
        let memo = match &step.what {
            ActivationNote::Result(text) => Memo::Result(Arc::clone(text)),
            ActivationNote::Until(until) => Memo::Until(*until),
            ActivationNote::Idle => Memo::Idle,
            ActivationNote::Took(number) => Memo::Message(self.inbox.take(*number)?),
            ActivationNote::Refused { .. } => {
                self.memos(&step.node, step.visit)?.remove_memo(&step.name);
                return Ok(());
            }
        };
        let memos = self.memos(&step.node, step.visit)?;
        let is_start = memos.is_start(&step.name, &memo);
        if step.first {
            let place = memos.next_ended();
            memos.insert(place, Memo::Result(end_note(&step.name)?));
        }
        memos.insert(step.name.clone(), memo);
        self.children_started += u64::from(is_start);
        Ok(())
    }

    /// Stores a question that was asked or asked again.
    pub(super) fn absorb_asked(&mut self, asking: &QuestionRecord) -> Result<()> {
        let asked = AskedQuestion { ask: asking.ask.clone(), reply: Reply::Open };
        let memos = self.memos(&asking.node, asking.visit)?;
        memos.remove_memo(&asking.name);
        memos.insert(asking.name.clone(), Memo::Asked(Arc::new(asked)));
        Ok(())
    }

    /// Marks a question as expired.
    pub(super) fn absorb_expired(&mut self, expired: &ExpiredRecord) -> Result<()> {
        let ExpiredRecord { node, visit, name, at } = expired;
        let missing = || {
            Error::new(
                ErrorKind::Corrupt,
                format!("the log expires the question `{name}`, which was not asked"),
            )
        };
        let memos = self.memos(node, *visit)?;
        let Some(Memo::Asked(asked)) = memos.get_mut(name) else { return Err(missing()) };
        let asked = Arc::make_mut(asked);
        asked.reply = match &asked.ask.on_deadline {
            OnDeadline::Tell => Reply::Expired { at: *at },
            OnDeadline::Default(text) => {
                let answer = Answer::Accept(text.as_ref().to_owned());
                Reply::Answered { answer, by: Some("deadline".into()), at: *at }
            }
        };
        let (by, is_expired) = match &asked.reply {
            Reply::Answered { by, .. } => (by.clone(), false),
            _ => (None, true),
        };
        self.remember(ClosedQuestion { id: expired.id(), by, at: *at, expired: is_expired });
        self.standing.wake_up();
        Ok(())
    }

    /// Stores which activations wait for a message, ordered from the longest wait to the shortest.
    pub(super) fn note_receivers(&mut self, receivers: &[Receiver]) -> Result<()> {
        let local = |(node, visit, name): &Receiver| Ok(((self.nodes.known(node)?, *visit), name.clone()));
        let receivers = receivers.iter().map(local).collect::<Result<_>>()?;
        self.standing.set_receivers(receivers);
        Ok(())
    }

    /// Returns the memos of an activation for changes.
    fn memos(&mut self, node: &crate::id::NodeName, visit: crate::id::Visit) -> Result<&mut Memos> {
        Ok(&mut self.in_flight_mut(node, visit)?.memos)
    }
}

/// Drops the questions that were not answered with a value, so that the next attempt asks them again. Children that did not complete are started
/// again too.
///
/// # Errors
///
/// Returns the errors of [`Memos::retry_children`].
pub(super) fn reset_for_retry(memos: &mut Memos) -> Result<()> {
    memos.remove_memos(|_, memo| matches!(memo, Memo::Asked(asked) if !asked.reply.is_good()));
    memos.retry_children()
}

/// Drops the questions that were not answered with a value, and the children that did not complete. A fork asks these questions again, and starts
/// children of its own.
pub(super) fn reset_for_fork(memos: &mut Memos) {
    memos.drop_unfinished_children();
    memos.remove_memos(
        |_, memo| matches!(memo, Memo::Asked(asked) if asked.reply.is_open() || !asked.reply.is_good()),
    );
}
