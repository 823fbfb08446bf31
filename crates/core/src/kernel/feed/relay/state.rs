//! The state of the relay: the messages to send, the runs that other processes watch, and the positions in received streams.

use crate::claim::StartId;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::id::{Epoch, NodeName, RunKey, Visit};
use crate::kernel::feed::relay::text::RelayStream;

/// The maximum size of waiting chunks in bytes. If more chunks wait, the oldest are dropped.
const WAITING: usize = 256 * 1024;

/// The maximum number of runs watched by other processes that are stored. If there are more, all runs count as watched.
const WANTED: usize = 10_000;

/// The maximum number of remote streams to remember.
const STREAMS: usize = 10_000;

/// The time after the question, after which the watches of other processes count as known.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// How long a run counts as watched after an announcement. Announcements repeat three times as often.
pub(crate) const LASTS: Duration = Duration::from_secs(15);

/// An outgoing chunk.
pub(crate) type RelayChunk = (Arc<RelayStream>, u64, Arc<RawValue>);

/// Counts the messages (announcements and chunks) that were sent or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelayProgress {
    pub(crate) wants: u64,
    pub(crate) chunks: u64,
}

/// The knowledge of this process about the watches of other processes.
#[derive(Clone, Copy, Debug, Default)]
enum RelayInterest {
    /// No stream has started in this process yet, so the watches of other processes are not needed.
    #[default]
    No,
    /// The next message will ask other processes which runs they watch.
    Asking,
    /// The question was sent at this time, and chunks wait until the answers have arrived.
    Asked(Duration),
    Yes,
}

/// Outgoing messages and received information.
#[derive(Debug, Default)]
pub(crate) struct RelayState {
    known: RelayInterest,
    wanted: RemoteInterest,
    pub(crate) streams: Streams,
    chunks: VecDeque<RelayChunk>,
    bytes: usize,
    wants: BTreeSet<RunKey>,
    /// The number of streams that started here.
    rounds: u64,
    /// The total number of queued messages.
    pub(crate) all: RelayProgress,
}

/// The next messages to send.
#[derive(Default)]
pub(crate) struct RelayBatch {
    pub(crate) asks: bool,
    /// The runs that this process watches.
    pub(crate) wants: Vec<RunKey>,
    pub(crate) chunks: VecDeque<RelayChunk>,
    /// The progress after this batch is sent.
    pub(crate) after: RelayProgress,
    /// Whether chunks wait until other processes have answered.
    pub(crate) holds: bool,
}

impl RelayState {
    /// At the first call, queues a question to other processes about their watches. Returns whether it was the first call.
    pub(crate) fn ask(&mut self) -> bool {
        let is_first = matches!(self.known, RelayInterest::No);
        if is_first {
            self.known = RelayInterest::Asking;
        }
        is_first
    }

    /// Returns the number of a new stream.
    pub(crate) fn next_round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// Returns whether another process watches this run or may watch it, so that its chunks must be sent.
    pub(crate) fn is_wanted(&self, run: &RunKey, now: impl Fn() -> Duration) -> bool {
        match self.known {
            RelayInterest::Yes => self.wanted.has(run, now),
            _ => true,
        }
    }

    /// Queues a chunk. Drops the oldest ones if there are too many, and the chunk itself if it is too large alone.
    pub(crate) fn push(&mut self, (stream, number, data): RelayChunk) {
        self.all.chunks += 1;
        if data.get().len() > WAITING {
            return;
        }
        self.bytes += data.get().len();
        self.chunks.push_back((stream, number, data));
        while self.bytes > WAITING
            && let Some((_, _, oldest)) = self.chunks.pop_front()
        {
            self.bytes -= oldest.get().len();
        }
    }

    /// Queues an announcement that this process watches these runs.
    pub(crate) fn announce(&mut self, runs: impl IntoIterator<Item = RunKey>) {
        self.wants.extend(runs);
        self.all.wants += 1;
    }

    /// Stores the watches of another process.
    pub(crate) fn store_interest(&mut self, runs: Vec<RunKey>, now: Duration) {
        self.wanted.add(runs, now);
    }

    /// Returns the progress that is reached when all messages are sent or dropped, except messages that wait for answers.
    pub(crate) fn due(&self, now: Duration) -> u64 {
        let is_held = |(of, ..): &&RelayChunk| !self.wanted.has(&of.run, || now);
        self.all.chunks - self.chunks.iter().filter(is_held).count() as u64
    }

    /// Takes the messages to send now.
    pub(crate) fn take(&mut self, now: Duration) -> RelayBatch {
        let mut taken = RelayBatch { after: self.all, ..RelayBatch::default() };
        match self.known {
            RelayInterest::Asking => {
                (taken.asks, self.known) = (true, RelayInterest::Asked(now));
            }
            RelayInterest::Asked(at) if now.saturating_sub(at) >= GRACE => self.known = RelayInterest::Yes,
            _ => {}
        }
        taken.wants = std::mem::take(&mut self.wants).into_iter().collect();
        let wanted = &mut self.wanted;
        let (now_wanted, rest) =
            std::mem::take(&mut self.chunks).into_iter().partition(|(of, ..)| wanted.has(&of.run, || now));
        taken.chunks = now_wanted;
        match self.known {
            // No process wants the others.
            RelayInterest::Yes => self.bytes = 0,
            _ => {
                self.chunks = rest;
                self.bytes = self.chunks.iter().map(|(_, _, data)| data.get().len()).sum();
                taken.holds = !self.chunks.is_empty();
            }
        }
        if taken.holds {
            taken.after.chunks -= self.chunks.len() as u64;
        }
        taken
    }
}

/// The watches of another process, and the time at which they expire.
#[derive(Debug, Default)]
struct RemoteInterest {
    /// All runs count as watched until this time, because there are too many to remember.
    all: Duration,
    runs: HashMap<RunKey, Duration>,
}

impl RemoteInterest {
    fn has(&self, run: &RunKey, now: impl Fn() -> Duration) -> bool {
        if self.runs.is_empty() && self.all.is_zero() {
            return false;
        }
        let now = now();
        self.all > now || self.runs.get(run).is_some_and(|until| *until > now)
    }

    fn add(&mut self, runs: Vec<RunKey>, now: Duration) {
        let until = now.saturating_add(LASTS);
        if self.runs.len() + runs.len() > WANTED {
            self.runs.retain(|_, until| *until > now);
        }
        if self.runs.len() + runs.len() > WANTED {
            self.all = until;
        } else {
            self.runs.extend(runs.into_iter().map(|run| (run, until)));
        }
    }
}

/// The positions of other processes' streams.
#[derive(Debug, Default)]
pub(crate) struct Streams(HashMap<(RunKey, NodeName, Visit, Arc<str>), RemoteStream>);

#[derive(Clone, Copy, Debug)]
struct RemoteStream {
    start_id: StartId,
    /// The claim of the run, the number of the stream in its process, and the attempt. Processes of older versions do not number their streams, so
    /// the attempt distinguishes them.
    attempt: (Epoch, u64, u32),
    next: u64,
}

impl Streams {
    /// Records received chunks of a stream. Returns how many chunks were lost before them, and how many of them are duplicates. Returns `None` if
    /// chunks of a later attempt were already received.
    pub(crate) fn record_received(
        &mut self,
        stream: &RelayStream,
        first: u64,
        count: u64,
    ) -> Option<(u64, u64)> {
        let key = (stream.run.clone(), stream.node.clone(), stream.visit, Arc::clone(&stream.name));
        let (start_id, attempt) = (stream.start_id, (stream.epoch, stream.round, stream.attempt));
        // Overflow: the sender is faulty.
        first.checked_add(count)?.checked_add(1)?;
        let next = match self.0.get(&key).filter(|heard| heard.start_id == start_id) {
            Some(heard) if heard.attempt > attempt => return None,
            Some(heard) if heard.attempt == attempt => heard.next,
            // Chunks from before the first watch are not missing.
            _ => first,
        };
        if self.0.len() >= STREAMS && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, RemoteStream { start_id, attempt, next: next.max(first + count) });
        Some((first.saturating_sub(next), next.saturating_sub(first).min(count)))
    }

    /// Removes the streams of a newly watched run.
    pub(crate) fn remove_streams(&mut self, run: &RunKey) {
        self.0.retain(|(of, ..), _| of != run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn run(name: &str) -> RunKey {
        RunId::new(name).unwrap().into()
    }

    fn stream(of: &str, epoch: u32, attempt: u32) -> RelayStream {
        RelayStream {
            run: run(of),
            start_id: StartId::NONE,
            epoch: Epoch::new(epoch),
            node: NodeName::new("n").unwrap(),
            visit: Visit::new(1),
            attempt,
            name: "tokens".into(),
            round: 0,
        }
    }

    fn chunk(of: &str, number: u64, bytes: usize) -> RelayChunk {
        let data = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        (Arc::new(stream(of, 1, 1)), number, data.into())
    }

    fn numbers(taken: &RelayBatch) -> Vec<u64> {
        taken.chunks.iter().map(|(_, number, _)| *number).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn chunks_wait_for_subscriber_list_then_drop() {
        let mut state = RelayState::default();
        assert!(state.ask() && !state.ask());
        assert!(state.is_wanted(&run("a"), || SECOND) && state.is_wanted(&run("b"), || SECOND));
        (0..3).for_each(|number| state.push(chunk("a", number, 5)));
        state.push(chunk("b", 0, 5));
        let taken = state.take(SECOND);
        assert!(taken.asks && taken.holds && taken.chunks.is_empty() && taken.after.chunks == 0);
        state.store_interest(vec![run("a")], SECOND);
        let taken = state.take(SECOND);
        assert_eq!((numbers(&taken), taken.holds, taken.after.chunks), (vec![0, 1, 2], true, 3));
        let taken = state.take(SECOND + GRACE);
        assert_eq!((numbers(&taken), taken.holds, taken.after.chunks), (vec![], false, 4));
        assert!(state.is_wanted(&run("a"), || SECOND) && !state.is_wanted(&run("b"), || SECOND));
        assert!(
            !state.is_wanted(&run("a"), || SECOND + LASTS),
            "a registration lasts until it must be repeated"
        );
        assert!(!taken.asks && !state.take(SECOND).asks, "one request is enough");
    }

    #[test]
    fn memory_is_bounded_whatever_is_said_and_wanted() {
        let mut state = RelayState::default();
        state.ask();
        (0..1_000).for_each(|number| state.push(chunk("a", number, 1_000)));
        assert!(state.chunks.len() < 270 && state.bytes <= WAITING);
        state.push(chunk("a", 1_000, WAITING));
        assert_eq!(state.chunks.back().unwrap().1, 999, "only the oversized chunk is lost");
        for many in 0..20 {
            let runs = (0..999).map(|number| run(&format!("{many}-{number}"))).collect();
            state.store_interest(runs, SECOND);
        }
        assert!(state.wanted.runs.len() <= WANTED);
        state.take(SECOND + GRACE);
        state.take(SECOND + GRACE + GRACE);
        assert!(state.is_wanted(&run("19-998"), || SECOND), "above the limit, all runs count as watched");
        for number in 0..30_000 {
            state.streams.record_received(&stream(&number.to_string(), 1, 1), 0, 1);
        }
        assert!(state.streams.0.len() <= STREAMS);
    }

    #[test]
    fn relay_detects_lost_repeated_and_stale_chunks() {
        let mut streams = Streams::default();
        let (of, again) = (stream("a", 1, 1), stream("a", 1, 2));
        assert_eq!(streams.record_received(&of, 10, 5), Some((0, 0)), "received from its middle on");
        assert_eq!(streams.record_received(&of, 12, 5), Some((0, 3)), "three chunks are repeated");
        assert_eq!(streams.record_received(&of, 10, 2), Some((0, 2)), "all chunks are repeated");
        assert_eq!(streams.record_received(&of, 20, 1), Some((3, 0)), "three chunks are lost");
        assert_eq!(streams.record_received(&again, 0, 1), Some((0, 0)));
        assert_eq!(streams.record_received(&of, 21, 1), None, "another attempt has followed");
        assert_eq!(
            streams.record_received(&stream("a", 2, 1), 0, 1),
            Some((0, 0)),
            "another process has claimed the run"
        );
        assert_eq!(streams.record_received(&again, 1, 1), None, "the former owner has not noticed the claim");
        let anew = RelayStream { start_id: StartId::from_uuid(uuid::Uuid::from_u128(1)), ..of.clone() };
        assert_eq!(
            streams.record_received(&anew, 0, 1),
            Some((0, 0)),
            "the run was purged and started again"
        );
        assert_eq!(streams.record_received(&stream("b", 1, 1), 3, 1), Some((0, 0)));
        let begun = |round, attempt| RelayStream { round, ..stream("c", 1, attempt) };
        assert_eq!(streams.record_received(&begun(3, 2), 0, 5), Some((0, 0)));
        assert_eq!(
            streams.record_received(&begun(4, 2), 0, 2),
            Some((0, 0)),
            "the same attempt has started again"
        );
        assert_eq!(
            streams.record_received(&begun(3, 2), 0, 5),
            None,
            "its earlier chunks are repeated or late"
        );
        assert_eq!(streams.record_received(&begun(4, 2), 0, 2), Some((0, 2)), "all chunks are repeated");
        assert_eq!(
            streams.record_received(&begun(6, 1), 0, 1),
            Some((0, 0)),
            "a retry restarts the attempt numbers"
        );
        assert_eq!(streams.record_received(&begun(4, 2), 2, 1), None);
        streams.remove_streams(&run("b"));
        assert_eq!(
            streams.record_received(&stream("b", 1, 1), 9, 1),
            Some((0, 0)),
            "the run had no watcher in between"
        );
        assert_eq!(streams.record_received(&anew, 2, 1), Some((1, 0)));
    }
}
