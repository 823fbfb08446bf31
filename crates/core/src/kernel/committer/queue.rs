//! The queue of the appends that wait for one part (shard) of the store, and the rules for when a new lane starts.

use std::collections::{HashSet, VecDeque};

use tokio::sync::oneshot;
use tracing::Span;

use crate::error::Result;
use crate::id::HeadRef;
use crate::store::RunAppend;

/// The number of concurrent batches for one part of the store. It is high enough to keep a store busy while replies are on the network, and low
/// enough to let batches grow.
const LANES: usize = 4;

/// The maximum number of runs in a batch. It limits the size of the store's statement, and the number of runs that a lost reply affects.
const MAX_RUNS: usize = 256;

/// The maximum total size of the bodies in a batch. A batch with a single run may be larger.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The number of queued appends for which memory is always retained after a burst.
const ROOM: usize = 16;

/// A submitted append of one run, until its result is certain.
pub(super) struct PendingAppend {
    pub(super) append: RunAppend,
    pub(super) failed: u32,
    /// Whether an earlier attempt of the append may have succeeded.
    pub(super) in_doubt: bool,
    /// The heartbeat term of the claim. After this term has ended, the append is not sent. `None` if the writer is not the owner of the run.
    pub(super) term: Option<u64>,
    pub(super) reply: oneshot::Sender<Result<HeadRef>>,
    /// The span that the append belongs to.
    pub(super) origin: Span,
}

impl PendingAppend {
    /// Creates an append that was not attempted yet, and the receiver of its answer.
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
    /// Whether a lane is about to take the waiting appends.
    taking: bool,
    /// The number of pending appends.
    sent: usize,
    /// Size of the last batch.
    last: usize,
}

impl AppendQueue {
    /// Adds an append to the queue. Returns whether a lane must be started for it.
    pub(super) fn push(&mut self, submission: PendingAppend) -> bool {
        self.waiting.push_back(submission);
        self.open_lane()
    }

    /// Returns whether the waiting appends must be sent although others are pending. If so, the caller must start a lane for them.
    fn open_lane(&mut self) -> bool {
        let enough = self.waiting.len() * self.lanes >= self.sent;
        let opens = enough && !self.taking && self.lanes < LANES;
        if opens {
            self.lanes += 1;
            self.taking = true;
        }
        opens
    }

    /// Reserves a lane for a single append if no append is pending. The queue is empty in this case. A burst is not expected, because the lane of the
    /// last batch has yielded once to other tasks.
    pub(super) fn opens_alone(&mut self) -> bool {
        let alone = self.lanes == 0;
        if alone {
            (self.lanes, self.sent, self.last) = (1, 1, 1);
        }
        alone
    }

    /// Returns whether the callers of the last batch may join the next one.
    pub(super) fn has_crowd(&self) -> bool {
        self.last > 1
    }

    /// Takes the next batch for a lane. If the batch is empty, the lane ends. The flag says whether a further lane must be started.
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
            // Concurrent signallers of a run without a driver submit at once. A batch contains a run only once, so the others take the next batch
            // and learn from it that they were not first.
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
            // Shrink after a burst, but keep twice the last batch so that capacity does not oscillate.
            self.waiting.shrink_to(2 * few);
        }
        self.taking = false;
        self.sent += batch.len();
        self.last = batch.len();
        if batch.is_empty() {
            self.lanes -= 1;
            return (batch, false);
        }
        let opens = full && self.open_lane();
        (batch, opens)
    }

    /// Stops counting `held` appends as pending, because they are delayed. If `takes_next` is set, their lane takes the next batch.
    pub(super) fn hold_back(&mut self, held: usize, takes_next: bool) {
        self.sent -= held;
        self.taking |= takes_next;
    }

    /// Counts a batch as answered. Its lane will take the next batch.
    pub(super) fn count_answered(&mut self, counted: usize) {
        self.sent -= counted;
        self.taking = true;
    }

    /// Counts a single append as answered, whose lane ends. Returns whether a lane must be started for waiting appends.
    pub(super) fn answered_alone(&mut self, counted: usize) -> bool {
        self.sent -= counted;
        self.lanes -= 1;
        !self.waiting.is_empty() && self.open_lane()
    }

    /// Stops counting a slow batch as pending, so that waiting appends can be sent. Returns whether a lane must be started for them.
    pub(super) fn count_out(&mut self, slow: usize) -> bool {
        self.sent -= slow;
        !self.waiting.is_empty() && self.open_lane()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrata_testing::Log;

    fn submission(run: &str) -> PendingAppend {
        let append = Log::new(crate::id::RunId::new(run).unwrap()).next(1);
        PendingAppend::new(append, None, Span::none()).0
    }

    #[test]
    fn single_append_bypasses_idle_queue() {
        let mut queue = AppendQueue::default();
        assert!(queue.opens_alone() && !queue.opens_alone());
        assert!(queue.push(submission("a")), "it does not wait for the batch of one append");
        let (batch, opens) = queue.take();
        assert_eq!((batch.len(), opens), (1, false));
        assert!(!queue.answered_alone(1), "nothing waits");
        queue.count_answered(1);
        assert!(queue.take().0.is_empty());
        assert!(queue.opens_alone(), "both lanes have ended");
    }

    /// A single append has no next batch: appends that gathered meanwhile would never leave.
    #[test]
    fn appends_behind_single_append_get_lane() {
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

    /// The buffer of a burst, with hundreds of bytes per append, is released.
    #[test]
    fn queue_shrinks_after_append_burst() {
        let mut queue = AppendQueue::default();
        let crowd = |queue: &mut AppendQueue, runs: usize| {
            (0..runs).for_each(|run| _ = queue.push(submission(&format!("r{run}"))));
            while !queue.take().0.is_empty() {}
        };
        crowd(&mut queue, 4 * MAX_RUNS);
        assert!(queue.waiting.capacity() <= 2 * MAX_RUNS, "{} places", queue.waiting.capacity());
        crowd(&mut queue, MAX_RUNS);
        let kept = queue.waiting.capacity();
        assert!(kept >= MAX_RUNS, "another burst of this size may follow");
        crowd(&mut queue, kept / 4 + 1);
        assert_eq!(queue.waiting.capacity(), kept, "the buffer may be needed again soon");
        crowd(&mut queue, 1);
        assert!(queue.waiting.capacity() <= 2 * ROOM, "{} places", queue.waiting.capacity());
    }

    #[test]
    fn lane_about_to_take_is_not_idle() {
        let mut queue = AppendQueue::default();
        assert!(queue.push(submission("a")) && !queue.push(submission("b")) && !queue.opens_alone());
        assert_eq!(queue.take().0.len(), 2);
        queue.count_answered(2);
        assert!(queue.has_crowd() && !queue.opens_alone(), "notified waiters will join the batch");
        assert!(!queue.push(submission("c")));
    }
}
