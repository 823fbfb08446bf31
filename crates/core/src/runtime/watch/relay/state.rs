//! What is to be said to other processes, what they want to hear, and up to where streams of theirs were heard.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use uuid::Uuid;

use super::text::Stream;
use crate::id::{Epoch, NodeName, RunKey, Visit};

/// How many bytes of chunks may wait to be said: then the oldest are dropped.
const WAITING: usize = 256 * 1024;

/// How many watched runs of others are remembered by name; with more, all are taken for watched.
const WANTED: usize = 10_000;

/// How many streams are remembered that were heard.
const STREAMS: usize = 10_000;

/// How long after the question what others watch is taken for known.
pub(super) const GRACE: Duration = Duration::from_millis(200);

/// How long others take a run for watched. They are told three times as often.
pub(super) const LASTS: Duration = Duration::from_secs(15);

/// A chunk on its way out.
pub(super) type Chunk = (Arc<Stream>, u64, Arc<RawValue>);

/// How much was said, or given up: of what is watched here, and of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) wants: u64,
    pub(super) chunks: u64,
}

/// Whether it is known what others watch.
#[derive(Clone, Copy, Debug, Default)]
enum RelayInterest {
    /// Nothing was streamed here yet.
    #[default]
    No,
    /// They are asked as soon as something is said.
    Asking,
    /// They were asked at this time: chunks wait until the answers have come.
    Asked(Duration),
    Yes,
}

/// What is to be said, and what was heard.
#[derive(Debug, Default)]
pub(super) struct State {
    known: RelayInterest,
    wanted: RemoteInterest,
    pub(super) streams: Streams,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    wants_all: bool,
    wants: BTreeSet<RunKey>,
    /// How many streams were begun here.
    rounds: u64,
    /// How much was ever to be said.
    pub(super) all: Progress,
}

/// What is said next.
#[derive(Default)]
pub(super) struct RelayBatch {
    pub(super) asks: bool,
    /// Which runs are watched here, and whether all are.
    pub(super) wants: Option<(bool, Vec<RunKey>)>,
    pub(super) chunks: VecDeque<Chunk>,
    /// How much was said once this is.
    pub(super) after: Progress,
    /// Whether chunks wait for answers.
    pub(super) holds: bool,
}

impl State {
    /// Has others asked what they watch, the first time. Returns whether it is that.
    pub(super) fn ask(&mut self) -> bool {
        let is_first = matches!(self.known, RelayInterest::No);
        if is_first {
            self.known = RelayInterest::Asking;
        }
        is_first
    }

    /// Returns the number of a stream that begins.
    pub(super) fn next_round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// Whether a chunk of this run is to be said, or may be.
    pub(super) fn is_wanted(&self, run: &RunKey, now: impl Fn() -> Duration) -> bool {
        match self.known {
            RelayInterest::Yes => self.wanted.has(run, now),
            _ => true,
        }
    }

    /// Has a chunk said, in place of the oldest if there are too many, unless it is too large alone.
    pub(super) fn push(&mut self, (stream, number, data): Chunk) {
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

    /// Has others told that these runs are watched here, or all.
    pub(super) fn announce(&mut self, all: bool, runs: impl IntoIterator<Item = RunKey>) {
        self.wants_all |= all;
        self.wants.extend(runs);
        self.all.wants += 1;
    }

    /// Notes what another process watches.
    pub(super) fn note(&mut self, all: bool, runs: Vec<RunKey>, now: Duration) {
        self.wanted.add(all, runs, now);
    }

    /// Returns how much is said, or given up, once nothing waits but what is held until others have answered.
    pub(super) fn due(&self, now: Duration) -> u64 {
        let is_held = |(of, ..): &&Chunk| !self.wanted.has(&of.run, || now);
        self.all.chunks - self.chunks.iter().filter(is_held).count() as u64
    }

    /// Takes what is to be said now.
    pub(super) fn take(&mut self, now: Duration) -> RelayBatch {
        let mut taken = RelayBatch { after: self.all, ..RelayBatch::default() };
        match self.known {
            RelayInterest::Asking => {
                (taken.asks, self.known) = (true, RelayInterest::Asked(now));
            }
            RelayInterest::Asked(at) if now.saturating_sub(at) >= GRACE => self.known = RelayInterest::Yes,
            _ => {}
        }
        if self.wants_all || !self.wants.is_empty() {
            let runs = std::mem::take(&mut self.wants).into_iter().collect();
            taken.wants = Some((std::mem::take(&mut self.wants_all), runs));
        }
        let wanted = &mut self.wanted;
        let (now_wanted, rest) =
            std::mem::take(&mut self.chunks).into_iter().partition(|(of, ..)| wanted.has(&of.run, || now));
        taken.chunks = now_wanted;
        match self.known {
            // Nobody wants the others.
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

/// What is watched in other processes, and until when.
#[derive(Debug, Default)]
struct RemoteInterest {
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

    fn add(&mut self, all: bool, runs: Vec<RunKey>, now: Duration) {
        let until = now.saturating_add(LASTS);
        if self.runs.len() + runs.len() > WANTED {
            self.runs.retain(|_, until| *until > now);
        }
        if all || self.runs.len() + runs.len() > WANTED {
            self.all = until;
        } else {
            self.runs.extend(runs.into_iter().map(|run| (run, until)));
        }
    }
}

/// Up to where the streams of other processes were heard.
#[derive(Debug, Default)]
pub(super) struct Streams(HashMap<(RunKey, NodeName, Visit, Arc<str>), RemoteStream>);

#[derive(Clone, Copy, Debug)]
struct RemoteStream {
    life: Uuid,
    /// Which claim of the run, and which beginning of the stream in the process that made it. A process of an older version counts no
    /// beginnings: of it, the attempts tell.
    attempt: (Epoch, u64, u32),
    next: u64,
}

impl Streams {
    /// Notes chunks of a stream. Returns how many were lost before them, and how many of them were heard before; nothing if they are of an
    /// attempt that another has followed.
    pub(super) fn heard(&mut self, stream: &Stream, first: u64, count: u64) -> Option<(u64, u64)> {
        let key = (stream.run.clone(), stream.node.clone(), stream.visit, Arc::clone(&stream.name));
        let (life, attempt) = (stream.life, (stream.epoch, stream.round, stream.attempt));
        // No stream is that long, whoever says so.
        first.checked_add(count)?.checked_add(1)?;
        let next = match self.0.get(&key).filter(|heard| heard.life == life) {
            Some(heard) if heard.attempt > attempt => return None,
            Some(heard) if heard.attempt == attempt => heard.next,
            // What was said before anyone listened is not missing.
            _ => first,
        };
        if self.0.len() >= STREAMS && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, RemoteStream { life, attempt, next: next.max(first + count) });
        Some((first.saturating_sub(next), next.saturating_sub(first).min(count)))
    }

    /// Forgets the streams of a run, or of all, which nobody watched so far.
    pub(super) fn forget(&mut self, run: Option<&RunKey>) {
        self.0.retain(|(of, ..), _| run.is_some_and(|run| of != run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn run(name: &str) -> RunKey {
        RunId::new(name).unwrap().into()
    }

    fn stream(of: &str, epoch: u32, attempt: u32) -> Stream {
        Stream {
            run: run(of),
            life: Uuid::nil(),
            epoch: Epoch::new(epoch),
            node: NodeName::new("n").unwrap(),
            visit: Visit::new(1),
            attempt,
            name: "tokens".into(),
            round: 0,
        }
    }

    fn chunk(of: &str, number: u64, bytes: usize) -> Chunk {
        let data = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        (Arc::new(stream(of, 1, 1)), number, data.into())
    }

    fn numbers(taken: &RelayBatch) -> Vec<u64> {
        taken.chunks.iter().map(|(_, number, _)| *number).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn chunks_wait_until_it_is_known_who_wants_them_and_are_dropped_then() {
        let mut state = State::default();
        assert!(state.ask() && !state.ask());
        assert!(state.is_wanted(&run("a"), || SECOND) && state.is_wanted(&run("b"), || SECOND));
        (0..3).for_each(|number| state.push(chunk("a", number, 5)));
        state.push(chunk("b", 0, 5));
        let taken = state.take(SECOND);
        assert!(taken.asks && taken.holds && taken.chunks.is_empty() && taken.after.chunks == 0);
        state.note(false, vec![run("a")], SECOND);
        let taken = state.take(SECOND);
        assert_eq!((numbers(&taken), taken.holds, taken.after.chunks), (vec![0, 1, 2], true, 3));
        let taken = state.take(SECOND + GRACE);
        assert_eq!((numbers(&taken), taken.holds, taken.after.chunks), (vec![], false, 4));
        assert!(state.is_wanted(&run("a"), || SECOND) && !state.is_wanted(&run("b"), || SECOND));
        assert!(!state.is_wanted(&run("a"), || SECOND + LASTS), "it is wanted as long as it is said again");
        assert!(!taken.asks && !state.take(SECOND).asks, "one question is enough");
    }

    #[test]
    fn memory_is_bounded_whatever_is_said_and_wanted() {
        let mut state = State::default();
        state.ask();
        (0..1_000).for_each(|number| state.push(chunk("a", number, 1_000)));
        assert!(state.chunks.len() < 270 && state.bytes <= WAITING);
        state.push(chunk("a", 1_000, WAITING));
        assert_eq!(state.chunks.back().unwrap().1, 999, "what is too large alone is lost alone");
        for many in 0..20 {
            let runs = (0..999).map(|number| run(&format!("{many}-{number}"))).collect();
            state.note(false, runs, SECOND);
        }
        assert!(state.wanted.runs.len() <= WANTED);
        state.take(SECOND + GRACE);
        state.take(SECOND + GRACE + GRACE);
        assert!(state.is_wanted(&run("19-998"), || SECOND), "with more, all are taken for watched");
        for number in 0..30_000 {
            state.streams.heard(&stream(&number.to_string(), 1, 1), 0, 1);
        }
        assert!(state.streams.0.len() <= STREAMS);
    }

    #[test]
    fn what_is_lost_doubled_or_of_a_dead_attempt_is_seen() {
        let mut streams = Streams::default();
        let (of, again) = (stream("a", 1, 1), stream("a", 1, 2));
        assert_eq!(streams.heard(&of, 10, 5), Some((0, 0)), "heard from its middle on");
        assert_eq!(streams.heard(&of, 12, 5), Some((0, 3)), "three are doubled");
        assert_eq!(streams.heard(&of, 10, 2), Some((0, 2)), "all are doubled");
        assert_eq!(streams.heard(&of, 20, 1), Some((3, 0)), "three are lost");
        assert_eq!(streams.heard(&again, 0, 1), Some((0, 0)));
        assert_eq!(streams.heard(&of, 21, 1), None, "another attempt has followed");
        assert_eq!(
            streams.heard(&stream("a", 2, 1), 0, 1),
            Some((0, 0)),
            "another process has claimed the run"
        );
        assert_eq!(streams.heard(&again, 1, 1), None, "and the one before has not noticed");
        let anew = Stream { life: Uuid::from_u128(1), ..of.clone() };
        assert_eq!(streams.heard(&anew, 0, 1), Some((0, 0)), "the run was purged and started anew");
        assert_eq!(streams.heard(&stream("b", 1, 1), 3, 1), Some((0, 0)));
        let begun = |round, attempt| Stream { round, ..stream("c", 1, attempt) };
        assert_eq!(streams.heard(&begun(3, 2), 0, 5), Some((0, 0)));
        assert_eq!(streams.heard(&begun(4, 2), 0, 2), Some((0, 0)), "the same attempt has begun again");
        assert_eq!(streams.heard(&begun(3, 2), 0, 5), None, "what it said before is doubled, or late");
        assert_eq!(streams.heard(&begun(4, 2), 0, 2), Some((0, 2)), "all are doubled");
        assert_eq!(streams.heard(&begun(6, 1), 0, 1), Some((0, 0)), "a retry counts attempts anew");
        assert_eq!(streams.heard(&begun(4, 2), 2, 1), None);
        streams.forget(Some(&run("b")));
        assert_eq!(streams.heard(&stream("b", 1, 1), 9, 1), Some((0, 0)), "nobody watched meanwhile");
        assert_eq!(streams.heard(&anew, 2, 1), Some((1, 0)));
    }
}
