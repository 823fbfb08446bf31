//! The calls of the differential test: their random choice, their execution, and the parts of their answers that the test compares.

use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Labels, Order, Parent, PruneCut,
    Record, RecordHeader, RecordId, RunAppend, RunFacts, RunFilter, RunHead, RunKey, RunQuery, RunStatus,
    Seq, Timestamp,
};

use super::chance::RandomChoices;
use super::oracle::{ModelOracle, RunGeneration};
use crate::stage::{Log, PageWalk, TestStage, every_header_or, facts, key_in};

/// A call to the store.
#[derive(Debug)]
pub(super) enum ModelCall {
    Setup,
    Append(Vec<RunAppend>),
    Load(RunKey, At),
    /// Lists headers: from one end to the other if the flag is true, otherwise only this range.
    Headers(RunKey, HeaderRange, bool),
    Head(RunKey),
    /// Lists all pages, with this number of entries per page.
    Runs(RunQuery, Order, u32),
    Prune(RunKey, PruneCut),
    Purge(RunKey, Option<HeadRef>),
    Heartbeat(ExecutorId, Duration),
}

/// The part of an answer that the test compares.
#[expect(clippy::large_enum_variant, reason = "one is made for each call of a test and looked at once")]
#[derive(Debug, PartialEq)]
pub(super) enum CallAnswer {
    Heads(Vec<Result<HeadRef, CallRefusal>>),
    Records(Result<Option<Vec<Record>>, CallRefusal>),
    Headers(Result<Vec<RecordHeader>, CallRefusal>),
    Head(Result<Option<RunHead>, CallRefusal>),
    Runs(Result<Vec<RunHead>, CallRefusal>),
    /// The number of removed records, and the number of bytes if the contract defines it.
    Removed(Result<(u64, Option<u64>), CallRefusal>),
    Done(Result<(), CallRefusal>),
}

/// The part of an error that the test compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallRefusal {
    pub(super) kind: ErrorKind,
    /// The actual head that a conflict reports.
    pub(super) actual: Option<Option<HeadRef>>,
}

impl CallRefusal {
    pub(super) fn of(kind: ErrorKind) -> Self {
        Self { kind, actual: None }
    }
}

impl From<Error> for CallRefusal {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            // For a record that is not sealed, the contract defines one kind for the call and another for the record.
            ErrorKind::Corrupt => ErrorKind::Invalid,
            // For a known id with another body, the contract does not define which of the two kinds applies.
            ErrorKind::AlreadyExists => ErrorKind::Conflict,
            kind => kind,
        };
        Self { kind, actual: error.actual_head() }
    }
}

/// The runs of the test. They are few, so that many calls concern the same run.
pub(super) fn runs() -> Vec<RunKey> {
    [("a", "r-1"), ("a", "r-2"), ("b", "r-1"), ("b", "r-10")].map(|(t, r)| key_in(t, r)).into()
}

/// The executors of the test.
pub(super) fn executors() -> Vec<ExecutorId> {
    let ids = ["018f3a4e-0000-7000-8000-000000000001", "018f3a4e-0000-7000-8000-000000000002"];
    ids.map(|id| id.parse().expect("it is a UUID")).into()
}

/// Times of creation. Two runs may have the same time.
const CREATED: [i64; 3] = [-7, 10, 1_600_000_000_000];

impl ModelCall {
    /// The name of each call.
    pub(super) const NAMES: [&str; 9] =
        ["setup", "append", "load", "headers", "head", "runs", "prune", "purge", "heartbeat"];

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Append(_) => "append",
            Self::Load(..) => "load",
            Self::Headers(..) => "headers",
            Self::Head(_) => "head",
            Self::Runs(..) => "runs",
            Self::Prune(..) => "prune",
            Self::Purge(..) => "purge",
            Self::Heartbeat(..) => "heartbeat",
        }
    }

    /// Chooses a random call that is interesting in the current state.
    pub(super) fn draw(chance: &mut RandomChoices, oracle: &ModelOracle, stage: &TestStage) -> Self {
        let run = chance.pick(&runs()).clone();
        let generation = oracle.generation(&run);
        let order = *chance.pick(&[Order::NewestFirst, Order::OldestFirst]);
        let limit = *chance.pick(&[1, 2, 3, 50, 5_000]);
        match chance.below(100) {
            0..=2 => Self::Setup,
            3..=44 => {
                let count = *chance.pick(&[1, 1, 1, 2, 3, 5]);
                Self::Append((0..count).map(|_| entry(chance, oracle, stage)).collect())
            }
            45..=59 => Self::Load(run, position(chance, generation)),
            60..=67 => {
                let seq = Seq::new(chance.below(20));
                let range = match chance.below(4) {
                    0 => HeaderRange::oldest(limit),
                    1 => HeaderRange::newest(limit),
                    2 => HeaderRange::from(seq, limit),
                    _ => HeaderRange::up_to(seq, limit),
                };
                Self::Headers(run, range, chance.below(2) == 0)
            }
            68..=70 => Self::Head(run),
            71..=81 => Self::Runs(query(chance), order, limit),
            82..=91 => {
                let cut = cut(chance, generation);
                Self::Prune(run, cut)
            }
            92..=94 => {
                let expected = expected(chance, generation);
                Self::Purge(run, expected)
            }
            _ => {
                let ttl = *chance.pick(&[Duration::ZERO, Duration::from_secs(3_600)]);
                Self::Heartbeat(*chance.pick(&executors()), ttl)
            }
        }
    }

    /// Makes the call on a store.
    pub(super) async fn make(&self, store: &dyn CheckpointStore) -> CallAnswer {
        match self {
            Self::Setup => CallAnswer::Done(store.setup().await.map_err(CallRefusal::from)),
            Self::Append(batch) => {
                let results = store.append(batch.clone()).await;
                CallAnswer::Heads(
                    results.into_iter().map(|result| result.map_err(CallRefusal::from)).collect(),
                )
            }
            Self::Load(run, at) => CallAnswer::Records(store.load(run, *at).await.map_err(CallRefusal::from)),
            Self::Headers(run, range, is_walk) => {
                let found = match is_walk {
                    true => every_header_or(store, run, *range).await,
                    false => store.headers(run, *range).await.map(|answer| answer.items),
                };
                CallAnswer::Headers(found.map_err(CallRefusal::from))
            }
            Self::Head(run) => CallAnswer::Head(store.head(run).await.map_err(CallRefusal::from)),
            Self::Runs(query, order, limit) => {
                let (mut all, mut walk) = (Vec::new(), PageWalk::new(*order, *limit));
                while let Some(page) = walk.next() {
                    match store.runs(query, page).await {
                        Ok(page) => all.extend(walk.take_page(page)),
                        Err(error) => return CallAnswer::Runs(Err(error.into())),
                    }
                }
                CallAnswer::Runs(Ok(all))
            }
            Self::Prune(run, cut) => {
                let removed = store.prune(run, cut.clone()).await;
                // A base may have replaced a body. The contract does not define whether that body counts.
                let is_said = cut.base.is_none();
                let removed = removed.map(|removed| (removed.records, is_said.then_some(removed.bytes)));
                CallAnswer::Removed(removed.map_err(CallRefusal::from))
            }
            Self::Purge(run, expected) => {
                let removed = store.purge(run, *expected).await;
                CallAnswer::Removed(
                    removed.map(|removed| (removed.records, Some(removed.bytes))).map_err(CallRefusal::from),
                )
            }
            Self::Heartbeat(executor, ttl) => {
                CallAnswer::Done(store.heartbeat(executor, *ttl).await.map_err(CallRefusal::from))
            }
        }
    }
}

/// Chooses an entry of a batch. Most entries succeed; the others fail in every possible way.
fn entry(chance: &mut RandomChoices, oracle: &ModelOracle, stage: &TestStage) -> RunAppend {
    let run = chance.pick(&runs()).clone();
    let generation = oracle.generation(&run);
    let mut log = stage.log_of(run).with_facts(draw_facts(chance));
    if let Some(generation) = generation {
        log.records.clone_from(&generation.written);
    }
    let count = *chance.pick(&[1, 1, 2, 4]);
    let kind = chance.below(100);
    if let Some(generation) = generation.filter(|_| kind < 12) {
        return repeat(chance, generation, &log, count);
    }
    if (12..20).contains(&kind) {
        // A start of a run that exists, or an append that expects a record before the head.
        let kept = chance.index(log.records.len() + 1);
        log.records.truncate(kept);
    }
    let (status, owner) = (*chance.pick(&RunStatus::ALL), chance.maybe(&executors()));
    let wake = chance.maybe(&[0, 253_370_764_800_000]).map(Timestamp::from_unix_ms);
    let every = 1 + chance.below(5);
    let mut entry = log.next_with(count, |header| {
        (header.status, header.owner, header.wake_at) = (status, owner, wake);
        header.base = header.seq.get().is_multiple_of(every);
    });
    if (20..28).contains(&kind) {
        break_rule(chance, &mut entry);
    }
    entry
}

/// Repeats an append with which the log ends, sometimes with a change.
fn repeat(chance: &mut RandomChoices, generation: &RunGeneration, log: &Log, count: usize) -> RunAppend {
    let from = log.records.len().saturating_sub(count);
    let mut before = log.clone();
    before.records.truncate(from);
    let mut again = before.next(0);
    // A start is repeated with all of its original records, even if the log has pruned some. A part of a start is never repeated.
    again.records = log.records[from..].to_vec();
    if again.expected.is_none() {
        return log.next(1);
    }
    match chance.below(4) {
        0 => again.records.extend(log.next(1).records),
        // If a prune turned a record into a base, its original body is not known any more.
        1 if log.records.last() == Some(generation.record(generation.written.len() - 1)) => {
            let record = again.records.last_mut().expect("at least one record is repeated");
            let body = [record.body.as_ref(), b" "].concat();
            *record = Record::seal(record.header.clone(), body.into()).expect("the body is small");
        }
        _ => {}
    }
    again
}

/// Violates one of the rules that a store checks before it compares the head.
fn break_rule(chance: &mut RandomChoices, entry: &mut RunAppend) {
    let last = entry.records.len() - 1;
    let header = &mut entry.records[last].header;
    match chance.below(5) {
        0 => entry.records.clear(),
        1 => header.seq = header.seq.next(),
        2 => header.prev = Some(header.id),
        3 => header.body_crc ^= 1,
        _ => entry.facts = if entry.facts.is_some() { None } else { Some(facts("w", 0)) },
    }
}

/// Chooses the facts of a new run.
fn draw_facts(chance: &mut RandomChoices) -> RunFacts {
    let workflow = chance.pick(&["review", "publish"]);
    let said = facts(workflow, *chance.pick(&CREATED));
    let mut labels = Labels::default();
    for (key, value) in label_pool() {
        if chance.happens(40) {
            labels.insert(key, value).expect("the labels are valid");
        }
    }
    let mut said = said.with_labels(labels);
    if let Some(user) = chance.maybe(&USERS) {
        said = said.with_user(user).expect("the users are valid");
    }
    match chance.maybe(&runs()) {
        Some(run) => {
            let id = RecordId::from_uuid(*executors()[0].as_uuid());
            said.with_parent(Parent { run, at: HeadRef { seq: Seq::new(3), id } })
        }
        None => said,
    }
}

/// The users of the runs.
const USERS: [&str; 2] = ["ann", "%'"];

fn label_pool() -> Vec<(String, String)> {
    [("k", "v"), ("k", "w"), ("%", "'"), ("é", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

fn position(chance: &mut RandomChoices, generation: Option<&RunGeneration>) -> At {
    let length = generation.map_or(3, |generation| generation.written.len() + 2);
    let seq = chance.index(length);
    let id = generation.and_then(|generation| generation.written.get(seq)).map(|record| record.header.id);
    match (chance.below(3), id) {
        (0, _) => At::Latest,
        (1, Some(id)) => At::Record(id),
        (2, None) => At::Record(RecordId::from_uuid(*executors()[0].as_uuid())),
        _ => At::Seq(Seq::new(seq as u64)),
    }
}

fn query(chance: &mut RandomChoices) -> RunQuery {
    let mut query = RunQuery::default();
    query.tenant = chance.maybe(&runs()).map(|run| run.tenant);
    query.workflow = chance.maybe(&["review", "publish"]).map(|name| facts(name, 0).workflow);
    query.user = chance.maybe(&USERS).map(str::to_owned);
    query.statuses = (0..chance.below(3)).map(|_| *chance.pick(&RunStatus::ALL)).collect();
    query.labels = chance.maybe(&label_pool()).into_iter().collect();
    query.created_from = chance.maybe(&CREATED).map(Timestamp::from_unix_ms);
    query.created_before = chance.maybe(&CREATED).map(Timestamp::from_unix_ms);
    query.parent = chance.maybe(&runs());
    query.owner = chance.maybe(&executors());
    query.filter = *chance.pick(&[RunFilter::Any, RunFilter::Orphaned, RunFilter::Due]);
    if chance.happens(30) {
        query = RunQuery::default();
    }
    query
}

/// Chooses the head that a purge expects: none, the actual head, or an older one.
fn expected(chance: &mut RandomChoices, generation: Option<&RunGeneration>) -> Option<HeadRef> {
    let generation = generation.filter(|_| !chance.happens(40))?;
    let records = generation.written.len();
    let place = if chance.happens(50) { records - 1 } else { chance.index(records) };
    Some(generation.record(place).header.head())
}

/// Chooses a cut: at a base, at another record with or without a base, with a wrong base, or beyond the head.
fn cut(chance: &mut RandomChoices, generation: Option<&RunGeneration>) -> PruneCut {
    let Some(generation) = generation else { return PruneCut { at: Seq::new(0), base: None } };
    let seq = chance.index(generation.written.len() + 1);
    let at = Seq::new(seq as u64);
    if seq >= generation.written.len() || chance.happens(40) {
        return PruneCut { at, base: None };
    }
    // A store cannot compare a pruned record, so give wrong bases only for stored records.
    let is_kept = seq >= generation.first;
    let mut header = RecordHeader { base: true, ..generation.written[seq].header.clone() };
    match chance.below(12) {
        0 if is_kept => header.base = false,
        1 if is_kept => header.seq = header.seq.next(),
        2 if is_kept => header.id = RecordId::from_uuid(*executors()[0].as_uuid()),
        _ => {}
    }
    let base = Record::seal(header, format!("{{\"base\":{seq}}}").into()).expect("the body is small");
    PruneCut { at, base: Some(base) }
}
