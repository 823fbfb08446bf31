//! Two bounds: the number of records per unit of work, and the time until a run that is not idle advances.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ferrata_core::record::{RecordHeader, RecordKind, RunStatus};
use ferrata_core::store::{CheckpointStore, Page, Paged, RunAppend, RunFilter, RunHead, RunQuery};
use ferrata_core::{HeadRef, Result, RunKey, Timestamp};
use serde_json::Value;

use super::log::Log;

/// Maximum number of records without progress: those of claims, retries and questions that one piece of work can need when its processes are killed
/// repeatedly.
const IDLE: u32 = 60;

/// Maximum number of fruitless claims: one can follow a step of the clock.
const FRUITLESS: u32 = 2;

/// Maximum number of records of work after the deadline, which were in flight.
const LATE: u32 = 3;

/// The number of records per unit of work.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The time by which the run must have ended by any writer's clock, if the graph has a deadline and clocks do not step.
    pub(crate) deadline: Option<i64>,
    pub(crate) is_paused: bool,
    /// Whether the last failure of the run was its deadline.
    pub(crate) is_overdue: bool,
    is_cancelled: bool,
    last: Option<RecordKind>,
    /// Number of consecutive records of work after the deadline.
    late: u32,
    /// Number of records since the last progress or signal.
    idle: u32,
    /// Number of fruitless claims since then.
    fruitless: u32,
}

impl Bounds {
    /// Adds the next record. Returns the bounds that it violates.
    pub(crate) fn add(&mut self, header: &RecordHeader, body: &Value) -> Vec<String> {
        let (at, status, change) = (header.seq, header.status, &body["change"]);
        let mut broken = Vec::new();
        let rests = change == "interrupted" || change["rested"].is_object();
        let works = matches!(header.kind, RecordKind::Node | RecordKind::Step | RecordKind::Intent);
        let is_said = matches!(header.kind, RecordKind::Signal | RecordKind::Edit | RecordKind::Start);
        match header.kind {
            RecordKind::Claim => {}
            _ if rests && self.last == Some(RecordKind::Claim) => self.fruitless += 1,
            _ => self.fruitless = 0,
        }
        if self.fruitless > FRUITLESS {
            broken.push(format!("at record {at} it was claimed {} times to rest as it was", self.fruitless));
        }
        self.idle = if works || is_said { 0 } else { self.idle + 1 };
        if self.idle > IDLE {
            broken.push(format!("at record {at}: {} records since anything was done or said", self.idle));
        }
        let is_late = self.deadline.is_some_and(|deadline| header.at.unix_ms() > deadline);
        let is_held = self.is_paused || self.is_cancelled || status.is_finished();
        self.late = match works {
            true if is_late && !is_held => self.late + 1,
            true => 0,
            false if header.kind == RecordKind::Claim => 0,
            false => self.late,
        };
        if self.late > LATE {
            broken.push(format!("at record {at} it works, and its time was over"));
        }
        self.follow(header.kind, change);
        broken
    }

    /// Applies a signal.
    fn follow(&mut self, kind: RecordKind, change: &Value) {
        self.last = Some(kind);
        if let Some(failure) = change["failed"].get("kind") {
            self.is_overdue = failure == "deadline";
        }
        let what = &change["what"];
        let is_cancel = what.get("cancel").is_some() || what["answer"]["answer"].get("cancel").is_some();
        self.is_cancelled |= is_cancel;
        self.is_paused = match what {
            what if what.get("pause").is_some() => true,
            what if what == "unpause" => false,
            _ => self.is_paused,
        };
    }
}

/// The bounds of all runs of a store, checked as records are written.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    runs: BTreeMap<RunKey, (u64, Bounds)>,
    broken: Vec<String>,
}

impl Watch {
    /// Adds an append and its result.
    pub(crate) fn appended(&self, append: &RunAppend, result: &Result<HeadRef>) {
        if result.is_err() {
            return;
        }
        let Watched { runs, broken } = &mut *self.0.lock().unwrap();
        for record in &append.records {
            let seq = record.header.seq.get();
            if record.header.kind == RecordKind::Start {
                // A purged run may be started again.
                runs.remove(&append.run);
            }
            let (next, bounds) = runs.entry(append.run.clone()).or_default();
            // The same record again, as after a lost reply.
            if seq < *next {
                continue;
            }
            *next = seq + 1;
            let body = serde_json::from_slice(&record.body).unwrap();
            broken.extend(
                bounds.add(&record.header, &body).iter().map(|what| format!("{}: {what}", append.run)),
            );
        }
    }

    /// Fails if a bound was violated, or if a run that is not idle can never advance.
    pub(crate) async fn hold(&self, store: &dyn CheckpointStore, now: Timestamp) {
        assert_eq!(self.0.lock().unwrap().broken, Vec::<String>::new());
        let lists = Lists::of(store).await;
        for head in &lists.all {
            assert_eq!(lists.stuck(head, now, 0), None, "{}", head.run);
        }
    }
}

/// Fails if any run of a store violates a bound.
pub(crate) async fn hold(store: &dyn CheckpointStore, now: Timestamp, label: &str) {
    let lists = Lists::of(store).await;
    for head in &lists.all {
        let log = Log::read(store, &head.run).await;
        assert_eq!(log.broken, Vec::<String>::new(), "{label}: {}: {:#?}", head.run, log.show());
        let stuck = lists.stuck(head, now, log.unread());
        assert_eq!(stuck, None, "{label}: {}: {:#?}", head.run, log.show());
    }
}

/// The runs of a store, and those that it lists for a sweep.
pub(crate) struct Lists {
    all: Vec<RunHead>,
    orphaned: BTreeSet<RunKey>,
    due: BTreeSet<RunKey>,
}

impl Lists {
    pub(crate) async fn of(store: &dyn CheckpointStore) -> Self {
        let keys = |heads: Vec<RunHead>| heads.into_iter().map(|head| head.run).collect();
        let orphaned = keys(listed(store, RunFilter::Orphaned).await);
        let due = keys(listed(store, RunFilter::Due).await);
        Self { all: listed(store, RunFilter::Any).await, orphaned, due }
    }

    /// Returns why a run that is not idle can never advance, if that is so.
    pub(crate) fn stuck(&self, head: &RunHead, now: Timestamp, unread: usize) -> Option<String> {
        let moves = match head.status {
            RunStatus::InProgress if head.owner_alive => true,
            RunStatus::InProgress => match head.wake_at {
                None => self.orphaned.contains(&head.run),
                Some(at) => at > now || self.due.contains(&head.run),
            },
            RunStatus::AwaitingInput => unread == 0,
            _ => true,
        };
        (!moves).then(|| format!("{} and nothing will wake it; {unread} unread", head.status))
    }
}

async fn listed(store: &dyn CheckpointStore, filter: RunFilter) -> Vec<RunHead> {
    let mut query = RunQuery::default();
    query.filter = filter;
    let (mut heads, mut page) = (Vec::new(), Page::first(Page::MAX));
    loop {
        let Paged { items, next } = store.runs(&query, page.clone()).await.unwrap();
        heads.extend(items);
        match next {
            Some(cursor) => page.cursor = Some(cursor),
            None => return heads,
        }
    }
}
