//! What operators ask of letters.

use super::OutboxMessage;
use crate::error::Result;
use crate::id::RunKey;
use crate::past::folded_at;
use crate::record::body::SignalKind;
use crate::record::letter::LetterChange;
use crate::runtime::requests::SignalRequest;
use crate::runtime::runtime::Runtime;
use crate::store::At;

/// Letters.
impl Runtime {
    /// Lists the letters of a run that no outlet has taken, in order, also those that were put aside.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): there is no such run. What the store says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// <!-- held by: letters::a_letter_that_is_refused_is_put_aside_and_an_operator_has_it_delivered_or_drops_it -->
    pub async fn letters(&self, run: &RunKey) -> Result<Vec<OutboxMessage>> {
        let machine = folded_at(&**self.store(), run, At::Latest, None).await?.machine;
        let waiting = machine.letters().map_or(&[][..], |letters| letters.waiting());
        Ok(waiting.iter().map(|posted| OutboxMessage::new(run, machine.life(), posted)).collect())
    }

    /// Has letters that were put aside delivered after all; all of the run's if `numbers` is empty. A process that has their outlet and
    /// serves a workflow delivers them at its next look; the one that drives the run does so at once if the caller is in it, unless one of
    /// the topic that was sent before waits for its next try. Those that were sent after them may have been delivered before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): there is no such run, or a letter of this number was not put aside.
    ///
    /// <!-- held by: letters::a_letter_that_is_refused_is_put_aside_and_an_operator_has_it_delivered_or_drops_it, letters_of_two::a_letter_that_an_operator_retries_is_delivered_while_its_run_is_driven, letters_of_two::a_letter_that_an_operator_retries_waits_for_none_that_was_sent_later -->
    pub fn retry_letters(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Retry { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { life: None, change }))
    }

    /// Drops letters: they are not delivered any more. If `numbers` is empty, all of the run's that were put aside; otherwise these, also
    /// if they were not put aside. One that is being delivered now may arrive all the same, and so may those that its process delivers with it
    /// or right behind it; one that waits for the next try does not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): there is no such run, or no letter of this number waits.
    ///
    /// <!-- held by: letters::a_letter_that_is_refused_is_put_aside_and_an_operator_has_it_delivered_or_drops_it, letters_of_two::a_letter_that_is_dropped_while_it_waits_for_the_next_try_is_not_delivered -->
    pub fn drop_letters(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Drop { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { life: None, change }))
    }
}
