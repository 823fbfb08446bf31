//! Reads one run: its head, its records, or its headers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_store::{
    At, HeadRef, HeaderRange, Headers, Record, Result, RunHead, RunKey, Seq, check_loaded, refusal,
};

use crate::error::{NatsCallEffect, NatsStoreError};
use crate::message::{self, MessageContent, StoredMessage};
use crate::store::NatsInner;
use crate::stream::{BodyDelivery, ReadSource};

/// The maximum number of attempts of a call. A new attempt is needed if other callers changed the run meanwhile.
pub(crate) const ATTEMPTS: usize = 16;

/// How long a server that lost the connection to the other servers may still answer like their leader. It detects the loss after ten seconds.
const UNNOTICED: Duration = Duration::from_secs(15);

/// The pause before another read of the last message of a subject.
const AGAIN: Duration = Duration::from_millis(50);

/// The last message of a run's subject.
pub(crate) struct SubjectEnd {
    /// The position of the message; 0 if there is none.
    pub(crate) at: u64,
    /// The message; `None` if the run does not exist.
    pub(crate) stored: Option<StoredMessage>,
}

impl SubjectEnd {
    pub(crate) fn head(&self) -> Option<HeadRef> {
        self.stored.as_ref().map(|stored| stored.said.head.head())
    }
}

/// A record of a log.
pub(crate) struct LogEntry {
    /// The position of the message that has the current form of the record: its first message, or the last cut that replaced it.
    pub(crate) at: u64,
    pub(crate) record: Record,
}

/// The parts of a run's log that were read.
pub(crate) struct SubjectLog {
    pub(crate) end: u64,
    pub(crate) last: MessageContent,
    /// The retained records, in order.
    pub(crate) entries: Vec<LogEntry>,
    /// The positions of all messages that were read.
    pub(crate) messages: Vec<u64>,
}

impl SubjectLog {
    pub(crate) fn of(read: Vec<StoredMessage>) -> Option<Self> {
        let (end, last) = read.last().map(|stored| (stored.at, stored.said.clone()))?;
        let (mut entries, mut messages) = (Vec::<LogEntry>::new(), Vec::new());
        for stored in read {
            let at = stored.at;
            messages.push(at);
            for record in stored.into_records().filter(|record| record.header.seq >= last.first) {
                let seq = record.header.seq;
                let place = entries.partition_point(|entry| entry.record.header.seq < seq);
                match entries.get_mut(place).filter(|entry| entry.record.header.seq == seq) {
                    Some(entry) => *entry = LogEntry { at, record },
                    None => entries.insert(place, LogEntry { at, record }),
                }
            }
        }
        Some(Self { end, last, entries, messages })
    }

    /// Returns whether the log has all of these records.
    pub(crate) fn holds(&self, (begin, end): (Seq, Seq)) -> bool {
        let mut seqs = self
            .entries
            .iter()
            .map(|entry| entry.record.header.seq)
            .filter(|seq| (begin..=end).contains(seq));
        let mut wanted = (begin.get()..=end.get()).map(Seq::new);
        wanted.all(|seq| seqs.next() == Some(seq))
    }

    pub(crate) fn place(&self, seq: Seq) -> Option<usize> {
        self.entries.iter().position(|entry| entry.record.header.seq == seq)
    }

    /// Returns the index of the newest base at or before index `place`.
    pub(crate) fn base_up_to(&self, place: usize) -> Option<usize> {
        (0..=place).rev().find(|place| self.entries[*place].record.header.base)
    }
}

impl NatsInner {
    /// Reads the last message of a run's subject. Repeats the read while the result is older than what this process knows. Old results come from a
    /// server that lost the connection to the other servers and has not noticed it yet.
    pub(crate) async fn end(&self, subject: &str) -> Result<SubjectEnd, NatsStoreError> {
        let deadline = self.clock.monotonic().saturating_add(UNNOTICED);
        loop {
            let end = self.read_end_once(subject).await?;
            let is_passed = (1..self.known.last(subject)).contains(&end.at);
            if !is_passed || !self.is_replicated.load(Ordering::Relaxed) {
                return Ok(end);
            }
            if self.clock.monotonic() >= deadline {
                // The known message is lost.
                self.known.remove(subject);
                return Ok(end);
            }
            self.clock.sleep(AGAIN).await;
        }
    }

    async fn read_end_once(&self, subject: &str) -> Result<SubjectEnd, NatsStoreError> {
        let Some(got) = self.last(&self.layout.logs(), subject).await? else {
            self.check_missing(subject).await?;
            return Ok(SubjectEnd { at: 0, stored: None });
        };
        Ok(SubjectEnd { at: got.at, stored: message::read(got.at, got.said.as_deref(), &got.payload)? })
    }

    /// Reads a run from the message that `from` selects. Returns `None` if the run does not exist.
    pub(crate) async fn log(
        &self,
        subject: &str,
        from: impl Fn(&MessageContent, u64) -> u64,
        bodies: BodyDelivery,
    ) -> Result<Option<SubjectLog>, NatsStoreError> {
        for _ in 0..ATTEMPTS {
            let SubjectEnd { at, stored: Some(stored) } = self.end(subject).await? else { return Ok(None) };
            let from = from(&stored.said, at);
            if from >= at {
                return Ok(SubjectLog::of(vec![stored]));
            }
            let begin = if from <= 1 { stored.said.first } else { stored.said.base.record };
            let records = (begin, stored.said.head.seq);
            if let Some(log) = self.part(subject, (from, at), bodies, records, at).await? {
                return Ok(Some(log));
            }
        }
        Err(NatsStoreError::CHANGES)
    }

    /// Reads the messages with these records. Returns `None` if some are gone because `end` is no longer the run's last message. Reports damage
    /// only if the leader has it: a replica that was offline may lack acknowledged messages.
    async fn part(
        &self,
        subject: &str,
        between: (u64, u64),
        bodies: BodyDelivery,
        records: (Seq, Seq),
        end: u64,
    ) -> Result<Option<SubjectLog>, NatsStoreError> {
        let Some(messages) = self.scan(subject, between, bodies, ReadSource::Replica).await? else {
            return Ok(None);
        };
        let is_whole = |log: &SubjectLog| log.holds(records);
        if let Some(log) = SubjectLog::of(messages).filter(is_whole) {
            return Ok(Some(log));
        }
        let read = self.scan(subject, between, bodies, ReadSource::Leader).await?.and_then(SubjectLog::of);
        if !read.as_ref().is_some_and(is_whole) && self.end(subject).await?.at != end {
            return Ok(None);
        }
        Ok(read)
    }

    pub(crate) async fn run_head(&self, run: &RunKey) -> Result<Option<RunHead>, NatsStoreError> {
        let Some(stored) = self.end(&self.subject(run).await?).await?.stored else { return Ok(None) };
        let MessageContent { first, head, facts, .. } = stored.said;
        let is_alive = match &head.owner {
            Some(owner) => self.is_alive(owner).await?,
            None => false,
        };
        Ok(Some(RunHead::after(run.clone(), first, &head, is_alive, facts)))
    }

    pub(crate) async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        const OPERATION: &str = "store.load";
        let fail = |fault: NatsStoreError| fault.of_run(OPERATION, run, NatsCallEffect::None);
        let subject = self.subject(run).await.map_err(fail)?;
        let (log, last) = match at {
            At::Latest => {
                let Some(log) = self.log(&subject, from_base, BodyDelivery::With).await.map_err(fail)? else {
                    return Ok(None);
                };
                let last = log.last.head.seq;
                (log, last)
            }
            _ => {
                let mut tries = 0..ATTEMPTS;
                loop {
                    let Some(log) =
                        self.log(&subject, |_, _| 1, BodyDelivery::Without).await.map_err(fail)?
                    else {
                        return Ok(None);
                    };
                    let seq = sought(run, &log, at)?;
                    match self.bodies(&subject, &log, seq).await.map_err(fail)? {
                        Some(with) => break (with, seq),
                        // The run was pruned, purged or resealed since.
                        None if tries.next().is_some() => {}
                        None => return Err(fail(NatsStoreError::CHANGES)),
                    }
                }
            }
        };
        let end = log.entries.iter().rposition(|entry| entry.record.header.seq <= last);
        let begin = end.and_then(|end| log.base_up_to(end)).unwrap_or(0);
        let records: Vec<Record> = log.entries.into_iter().map(|entry| entry.record).collect();
        let records = records.get(begin..end.map_or(0, |end| end + 1)).unwrap_or_default().to_vec();
        let verified = records.iter().try_for_each(|record| record.verify(run));
        check_loaded(run, &records, last).and(verified).map_err(|error| error.with_operation(OPERATION))?;
        Ok(Some(records))
    }

    /// Reads the records that define the run as of `seq`, with their bodies. Returns `None` if they do not exist any more.
    async fn bodies(
        &self,
        subject: &str,
        log: &SubjectLog,
        seq: Seq,
    ) -> Result<Option<SubjectLog>, NatsStoreError> {
        let Some(place) = log.place(seq) else {
            return Ok(Some(SubjectLog { entries: Vec::new(), ..log.bare() }));
        };
        let begin = log.base_up_to(place).unwrap_or(place);
        let needed = &log.entries[begin..=place];
        // A replaced record is in a later message than the records that follow it.
        let from = needed.iter().map(|entry| entry.at).min().unwrap_or(1);
        let to = needed.iter().map(|entry| entry.at).max().unwrap_or(log.end);
        let first = needed[0].record.header.seq;
        self.part(subject, (from, to), BodyDelivery::With, (first, seq), log.end).await
    }

    pub(crate) async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        const OPERATION: &str = "store.headers";
        let fail = |fault: NatsStoreError| fault.of_run(OPERATION, run, NatsCallEffect::None);
        let generation = self.generation().await.map_err(fail)?;
        let from = |said: &MessageContent, at: u64| match range.within(said.first, said.head.seq) {
            Some((begin, _)) if begin >= said.base.record => from_base(said, at),
            Some(_) => 1,
            None => at,
        };
        let log =
            self.log(&self.layout.run(&generation, run), from, BodyDelivery::Without).await.map_err(fail)?;
        let Some(log) = log else { return Err(refusal::no_run(OPERATION, run)) };
        let kept = (log.last.first, log.last.head.seq);
        let items = match range.within(kept.0, kept.1) {
            Some((begin, end)) => {
                let headers = log.entries.into_iter().map(|entry| entry.record.header);
                headers.filter(|header| (begin..=end).contains(&header.seq)).collect()
            }
            None => Vec::new(),
        };
        Headers::checked(run, range, kept, items)
    }
}

impl SubjectLog {
    fn bare(&self) -> Self {
        Self { end: self.end, last: self.last.clone(), entries: Vec::new(), messages: Vec::new() }
    }
}

fn from_base(said: &MessageContent, at: u64) -> u64 {
    match said.base.at {
        0 => at,
        base => base,
    }
}

/// Returns the number of the record at position `at`.
fn sought(run: &RunKey, log: &SubjectLog, at: At) -> Result<Seq> {
    const OPERATION: &str = "store.load";
    let missing = || refusal::no_record(OPERATION, run, at);
    match at {
        At::Latest => Ok(log.last.head.seq),
        At::Seq(seq) if seq < log.last.first || seq > log.last.head.seq => Err(missing()),
        At::Seq(seq) => Ok(seq),
        At::Record(id) => {
            let found = log.entries.iter().find(|entry| entry.record.header.id == id);
            found.map(|entry| entry.record.header.seq).ok_or_else(missing)
        }
    }
}
