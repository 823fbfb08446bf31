//! Attempts that must not be repeated. This module decides when their outcome is unknown, and applies the answers about it.
//!
//! There is one rule for all cases. The log contains an intent before such an attempt starts. The intent remains until the log contains the outcome,
//! or says that nothing was done. Any other end of the attempt leaves the intent in place. If there is an intent and no running attempt, the run asks
//! a question.

use super::Machine;
use super::snapshot::MOST;
use crate::ask::Resolution;
use crate::engine::frontier::Activation;
use crate::engine::questions::ClosedQuestion;
use crate::error::{Error, ErrorKind, Result};
use crate::record::Failure;
use crate::record::body::{AttemptFailed, Intent, Signal};

impl Machine {
    /// Applies a failed attempt to the machine. Another attempt follows, unless the work must not be repeated and may have been done.
    pub(super) fn absorb_attempt(&mut self, attempt: &AttemptFailed) -> Result<()> {
        let activation = self.in_flight_mut(&attempt.node, attempt.visit)?;
        if attempt.failed > MOST {
            let message = format!("the log counts {} failed attempts", attempt.failed);
            return Err(Error::new(ErrorKind::Corrupt, message).with_node(&attempt.node));
        }
        activation.failed = attempt.failed;
        activation.retry_at = attempt.retry_at;
        if activation.is_doubted(&attempt.failure) {
            activation.mark_unknown(Some(&attempt.failure));
        } else {
            activation.intent = false;
        }
        Ok(())
    }

    pub(super) fn absorb_intent(&mut self, intent: &Intent) -> Result<()> {
        let activation = self.in_flight_mut(&intent.node, intent.visit)?;
        activation.intent = true;
        // Logs from older versions without doubts about failed attempts continue here without an answer.
        (activation.in_doubt, activation.why) = (false, None);
        Ok(())
    }

    /// Marks the outcome of attempts in the former owner's process as unknown.
    pub(super) fn mark_intents_unknown(&mut self) {
        let begun = |a: &&mut Activation| a.intent && !a.in_doubt && a.resolution.is_none();
        self.frontier.activations_mut().filter(begun).for_each(|activation| activation.mark_unknown(None));
    }

    /// Applies the answer about an activation with unknown outcome to the machine.
    pub(super) fn absorb_resolution(
        &mut self,
        question: &str,
        resolution: &Resolution,
        signal: &Signal,
    ) -> Result<()> {
        let key = self.doubted_activation(question).ok_or_else(|| {
            let message = format!("the log answers the question `{question}`, which was not open");
            Error::new(ErrorKind::Corrupt, message)
        })?;
        if let Some(activation) = self.frontier.activation_mut(&key) {
            (activation.in_doubt, activation.intent, activation.why) = (false, false, None);
            activation.resolution = (*resolution != Resolution::Retry).then(|| resolution.clone());
        }
        let (id, by) = (question.to_owned(), signal.by.clone());
        self.remember(ClosedQuestion { id, by, at: signal.at, expired: false });
        self.standing.wake_up();
        Ok(())
    }
}

impl Activation {
    /// Returns whether an attempt that ended with this failure may have done work that must not be repeated.
    pub fn is_doubted(&self, failure: &Failure) -> bool {
        self.intent && !failure.not_done
    }

    /// Returns whether the activation has done or may have done work that must not be repeated. This is so if its intent remains, or if an answer
    /// contained the outcome.
    pub fn may_be_done(&self) -> bool {
        self.intent || self.in_doubt || self.why.is_some() || self.resolution.is_some()
    }

    fn mark_unknown(&mut self, why: Option<&Failure>) {
        self.in_doubt = true;
        self.why = why.map(|why| Box::new(why.clone()));
    }

    /// Converts an activation that failed the run into the form that a retry needs.
    pub(super) fn stopped(mut self, failure: &Failure) -> Self {
        if self.is_doubted(failure) || self.resolution.is_some() {
            self.why = Some(Box::new(failure.clone()));
        } else {
            self.intent = false;
        }
        self
    }

    /// Converts an activation that failed the run into the activation that a retry starts. If its work was or may have been done, or if an answer
    /// contained its outcome, the retry asks a question first, because only an answer may decide to repeat the work.
    pub(super) fn tried_again(mut self) -> Self {
        let was_resolved = self.resolution.take().is_some();
        self.in_doubt = was_resolved || self.intent;
        self.failed = 0;
        self
    }
}
