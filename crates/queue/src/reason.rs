//! The reasons why a queue holds up a run.

use ferrata_core::Timestamp;
use ferrata_core::runtime::{ReasonKind, RunReason, queue_pause_reason};
use ferrata_core::wording::count;

use crate::overview::QueueMembership;
use crate::queue::QueueStatus;
use crate::state::SlotKind;
impl QueueMembership {
    /// Returns the reason why the run waits, or `None` if it does not wait. `status` contains the queue's limits, if the caller may see them.
    /// `is_paused` is whether the run is paused. If a waiting run is not paused, a person has unpaused it before it got its slot.
    #[must_use]
    #[doc(hidden)]
    pub fn reason(&self, status: Option<&QueueStatus>, is_paused: bool) -> Option<RunReason> {
        let before = self.before?;
        let queue = &self.queue;
        let slots = match self.places {
            1 => format!("a slot of queue `{queue}`"),
            places => format!("{} of queue `{queue}`", count(places as usize, "slot")),
        };
        let ahead = |status: &QueueStatus| {
            let held: usize = status.held.iter().map(|held| held.places as usize).sum();
            let held = match status.limits().at_once {
                Some(most) => format!("{held} of {} held", count(most as usize, "slot")),
                None => format!("{} held", count(held, "slot")),
            };
            let ahead = if before == 0 { "next in line".to_owned() } else { format!("{before} ahead") };
            format!(" ({ahead}, {held})")
        };
        let ahead = status.map(ahead).unwrap_or_default();
        if self.kind == SlotKind::Run && !is_paused {
            let text = format!(
                "runs without {slots}: it was unpaused while it waited, and takes the slot when granted{ahead}"
            );
            return Some(RunReason::new(ReasonKind::Queue, text));
        }
        let who = if self.kind == SlotKind::Run { "waits for" } else { "has a node that waits for" };
        let mut text = format!("{who} {slots}{ahead}");
        let mut until: Option<Timestamp> = None;
        if let Some(why) = status.and_then(|status| status.overrides.paused.as_ref()) {
            text.push_str(&format!("; the queue is paused: {why}"));
        } else if !self.lacks.is_empty() {
            let tags = self.lacks.join(",");
            text.push_str(&format!("; a slot is free, and no process with the tags `{tags}` runs"));
        } else if let Some(closed) = status.and_then(|status| status.closed_until) {
            text.push_str("; the queue is closed, and opens");
            until = Some(closed);
        } else if self.not_before.is_some() {
            text.push_str("; it gets the slot at the earliest");
            until = self.not_before;
        } else if self.deadline.is_some() {
            text.push_str("; it is cancelled without a slot");
            until = self.deadline;
        }
        if until.is_none() {
            text.push_str(", since");
            until = Some(self.since);
        }
        Some(RunReason::new(ReasonKind::Queue, text).until(until))
    }
}

/// Adds the queues' reasons to the reasons of a run. The queues' reasons replace the reasons from the log for the same wait: the initial pause of a
/// queued run, and the question that a grant answers. `status` returns the status of a queue, if the caller may see it.
#[doc(hidden)]
pub fn explain_memberships(
    reasons: &mut Vec<RunReason>,
    standings: &[QueueMembership],
    status: impl Fn(&QueueMembership) -> Option<QueueStatus>,
) {
    let is_paused = reasons.iter().any(|reason| reason.kind == ReasonKind::Paused);
    let mut told = Vec::new();
    for standing in standings {
        let Some(reason) = standing.reason(status(standing).as_ref(), is_paused) else { continue };
        let own_pause = format!("is paused: {}", queue_pause_reason(&standing.queue));
        let own_question = format!(":queue.{}.", standing.queue);
        reasons.retain(|known| match known.kind {
            ReasonKind::Paused => known.text != own_pause,
            ReasonKind::Question => {
                known.question.as_ref().is_none_or(|question| !question.contains(&own_question))
            }
            _ => true,
        });
        told.push(reason);
    }
    // The queue's reasons come after failures and after questions that a person must answer.
    let at = reasons.iter().take_while(|reason| is_before(reason.kind)).count();
    reasons.splice(at..at, told);
}

const fn is_before(kind: ReasonKind) -> bool {
    matches!(
        kind,
        ReasonKind::Failed
            | ReasonKind::Cancelled
            | ReasonKind::Paused
            | ReasonKind::Doubt
            | ReasonKind::Question
    )
}
