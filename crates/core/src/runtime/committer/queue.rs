//! What waits for a lane of one part of the store, and when a lane opens.

use std::collections::{HashSet, VecDeque};

use tokio::sync::oneshot;
use tracing::Span;

use crate::error::Result;
use crate::id::HeadRef;
use crate::store::RunAppend;

/// How many batches of one part of the store are under way at once: enough to keep a store busy while replies travel, few enough for batches to grow.
const LANES: usize = 4;

/// The most runs in one batch: bounds the store's statement and the harm of a lost reply.
const MAX_RUNS: usize = 256;

/// The most bytes of bodies in one batch, unless one run alone has more.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// For how many submissions memory is kept, whatever their number was.
const ROOM: usize = 16;

/// The records of one run, until it is certain what became of them.
pub(super) struct PendingAppend {
    pub(super) append: RunAppend,
    pub(super) failed: u32,
    /// Whether a try before may have been done after all.
    pub(super) in_doubt: bool,
    /// The term of heartbeats in which the run was taken; nothing is sent for it once that is over. Absent for signallers.
    pub(super) term: Option<u64>,
    pub(super) reply: oneshot::Sender<Result<HeadRef>>,
    /// What it is a part of.
    pub(super) origin: Span,
}

impl PendingAppend {
    /// Makes one that was not tried yet, and the way by which its answer comes.
    pub(super) fn new(
        append: RunAppend,
        term: Option<u64>,
        origin: Span,
    ) -> (Self, oneshot::Receiver<Result<HeadRef>>) {
        let (reply, answer) = oneshot::channel();
        (Self { append, failed: 0, in_doubt: false, term, reply, origin }, answer)
    }

    fn bytes(&self) -> usize {
        self.append.records.iter().map(|record| record.body.len()).sum()
    }
}

/// The appends to one part of the store.
#[derive(Default)]
pub(super) struct AppendQueue {
    waiting: VecDeque<PendingAppend>,
    lanes: usize,
    /// Whether a lane is about to take what waits.
    taking: bool,
    /// How many submissions are under way.
    sent: usize,
    /// How large the last batch was.
    last: usize,
}

impl AppendQueue {
    /// Puts a submission in line. Returns whether a lane must come and take it.
    pub(super) fn push(&mut self, submission: PendingAppend) -> bool {
        self.waiting.push_back(submission);
        self.opens()
    }

    /// Whether what waits is to leave beside what is under way; if so, a lane must come and take it.
    fn opens(&mut self) -> bool {
        let enough = self.waiting.len() * self.lanes >= self.sent;
        let opens = enough && !self.taking && self.lanes < LANES;
        if opens {
            self.lanes += 1;
            self.taking = true;
        }
        opens
    }

    /// Opens a lane for one append alone, if nothing is under way: then nothing waits, either, and no crowd is about to come, for the lane of
    /// the last batch gave it a turn.
    pub(super) fn opens_alone(&mut self) -> bool {
        let alone = self.lanes == 0;
        if alone {
            (self.lanes, self.sent, self.last) = (1, 1, 1);
        }
        alone
    }

    /// Whether those who were told by the last batch may come along with the next.
    pub(super) fn has_crowd(&self) -> bool {
        self.last > 1
    }

    /// Takes the next batch for a lane, which ends if there is none. Returns whether a further lane must come as well.
    pub(super) fn take(&mut self) -> (Vec<PendingAppend>, bool) {
        let mut full = false;
        let mut batch: Vec<PendingAppend> = Vec::new();
        let mut bytes = 0;
        let mut named = HashSet::new();
        let mut later = Vec::new();
        while let Some(next) = self.waiting.pop_front() {
            let more = next.bytes();
            if !batch.is_empty() && (batch.len() >= MAX_RUNS || bytes + more > MAX_BYTES) {
                self.waiting.push_front(next);
                full = true;
                break;
            }
            // Several who speak to a run that is not driven here submit at once. A batch names a run once, so the others
            // take the next one and learn from it that they were not the first.
            if !named.insert(next.append.run.clone()) {
                later.push(next);
                continue;
            }
            bytes += more;
            batch.push(next);
        }
        later.into_iter().rev().for_each(|submission| self.waiting.push_front(submission));
        let few = batch.len().max(ROOM);
        if self.waiting.is_empty() && !batch.is_empty() && 4 * few <= self.waiting.capacity() {
            // What a crowd took is not kept for good; twice of what came last is, so that room is not made and given back in turns.
            self.waiting.shrink_to(2 * few);
        }
        self.taking = false;
        self.sent += batch.len();
        self.last = batch.len();
        if batch.is_empty() {
            self.lanes -= 1;
            return (batch, false);
        }
        let opens = full && self.opens();
        (batch, opens)
    }

    /// Says that so many are not under way after all; with nothing else to send, their lane is about to take the next batch.
    pub(super) fn hold_back(&mut self, held: usize, takes_next: bool) {
        self.sent -= held;
        self.taking |= takes_next;
    }

    /// Says that a batch was answered; its lane is about to take the next.
    pub(super) fn answered(&mut self, counted: usize) {
        self.sent -= counted;
        self.taking = true;
    }

    /// Says that what was sent alone was answered; its lane ends. Returns whether another must come for what waits.
    pub(super) fn answered_alone(&mut self, counted: usize) -> bool {
        self.sent -= counted;
        self.lanes -= 1;
        !self.waiting.is_empty() && self.opens()
    }

    /// Lets others leave beside a batch that is slow, as if it were not there. Returns whether a lane must come for them.
    pub(super) fn count_out(&mut self, slow: usize) -> bool {
        self.sent -= slow;
        !self.waiting.is_empty() && self.opens()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrata_store::testing::Log;

    fn submission(run: &str) -> PendingAppend {
        let append = Log::new(crate::id::RunId::new(run).unwrap()).next(1);
        PendingAppend::new(append, None, Span::none()).0
    }

    #[test]
    fn one_leaves_alone_where_nothing_is_under_way_and_the_next_beside_it() {
        let mut queue = AppendQueue::default();
        assert!(queue.opens_alone() && !queue.opens_alone());
        assert!(queue.push(submission("a")), "it waits for no batch of one");
        let (batch, opens) = queue.take();
        assert_eq!((batch.len(), opens), (1, false));
        assert!(!queue.answered_alone(1), "nothing waits");
        queue.answered(1);
        assert!(queue.take().0.is_empty());
        assert!(queue.opens_alone(), "both lanes have ended");
    }

    /// Whoever was sent alone takes no next batch: what gathered meanwhile would never leave.
    #[test]
    fn what_waits_behind_one_alone_gets_a_lane_when_it_is_answered() {
        let mut queue = AppendQueue::default();
        assert!(queue.opens_alone());
        for run in ["a", "b", "c"] {
            assert!(queue.push(submission(run)));
            assert_eq!(queue.take().0.len(), 1);
        }
        assert!(!queue.push(submission("d")), "all lanes are taken");
        assert!(queue.answered_alone(1));
        assert_eq!(queue.take().0.len(), 1);
    }

    /// As many as a crowd was, and hundreds of bytes each.
    #[test]
    fn what_a_crowd_took_is_given_back_when_few_come() {
        let mut queue = AppendQueue::default();
        let crowd = |queue: &mut AppendQueue, runs: usize| {
            (0..runs).for_each(|run| _ = queue.push(submission(&format!("r{run}"))));
            while !queue.take().0.is_empty() {}
        };
        crowd(&mut queue, 4 * MAX_RUNS);
        assert!(queue.waiting.capacity() <= 2 * MAX_RUNS, "{} places", queue.waiting.capacity());
        crowd(&mut queue, MAX_RUNS);
        let kept = queue.waiting.capacity();
        assert!(kept >= MAX_RUNS, "as many come as before");
        crowd(&mut queue, kept / 4 + 1);
        assert_eq!(queue.waiting.capacity(), kept, "it may be needed again soon");
        crowd(&mut queue, 1);
        assert!(queue.waiting.capacity() <= 2 * ROOM, "{} places", queue.waiting.capacity());
    }

    #[test]
    fn a_lane_that_is_about_to_take_is_no_idle_one() {
        let mut queue = AppendQueue::default();
        assert!(queue.push(submission("a")) && !queue.push(submission("b")) && !queue.opens_alone());
        assert_eq!(queue.take().0.len(), 2);
        queue.answered(2);
        assert!(queue.has_crowd() && !queue.opens_alone(), "those who were told come along");
        assert!(!queue.push(submission("c")));
    }
}
