//! Takes over the delivery of outbox messages of a run that is idle or has ended.

use std::sync::Arc;

use super::lane::signal;
use super::queue_messages;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::record::body::RecordEvent;
use crate::record::outbox::LetterChange;
use crate::store::RunHead;

/// Takes over the messages of a run without claiming the run.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if this process has no sink for any of the messages. Returns [`ErrorKind::Conflict`] if another writer was
/// first. Also returns the errors of the store.
pub(crate) async fn take(shared: &Arc<RuntimeInner>, tip: &mut RunWriter) -> Result<()> {
    if !has_work(shared, &tip.folded.machine)? {
        return Ok(());
    }
    // The record tells other processes that this process delivers the messages, and until when.
    let taken = signal(Some(tip.folded.machine.start_id()), LetterChange::Taken, shared.clock.now());
    tip.append(shared, None, &[RecordEvent::Signal(taken)]).await?;
    queue_messages(shared, &tip.log.run, &tip.folded.machine, u64::MAX);
    Ok(())
}

/// Returns whether this process has a sink for a waiting message of a run. Returns false if only rejected messages wait.
fn has_work(shared: &RuntimeInner, machine: &Machine) -> Result<bool> {
    let waiting = machine.letters().map_or(&[][..], |letters| letters.waiting());
    let mut topic = None;
    for letter in waiting.iter().filter(|letter| !letter.dead) {
        if shared.post().routes.contains_key(&*letter.topic) {
            return Ok(true);
        }
        topic.get_or_insert(&letter.topic);
    }
    let Some(topic) = topic else { return Ok(false) };
    let message = format!(
        "the run has outbox messages for the topic `{topic}`, and this process has no sink for it; add the sink with \
         `Runtime::builder(..).sink(..)` in a process that serves a workflow"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Takes over the messages of an ended run that a listing found, like [`take`].
pub(crate) async fn take_listed(shared: &Arc<RuntimeInner>, head: &RunHead) -> Result<()> {
    let mut tip = match RunWriter::load(shared, &head.run, None).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        tip => tip?,
    };
    if tip.folded.last.head() != head.head() {
        // The run was written to since the listing.
        return Ok(());
    }
    match take(shared, &mut tip).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        taken => taken.map_err(|error| error.with_run(&head.run)),
    }
}
