//! Explains why a run has its status, from its own log and head. Each reason is one sentence.

use serde::Serialize;

use crate::ask::{Question, QuestionKind};
use crate::checkpoint::{Checkpoint, PendingActivation, PendingChild, pending};
use crate::clock::Timestamp;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::Result;
use crate::id::{NodeName, RunId, RunKey, Visit};
use crate::questions::questions;
use crate::record::body::RecordEvent;
use crate::record::{Failure, RecordKind, RunStatus, codec};
use crate::store::{At, CheckpointStore, RunHead};
use crate::wording::count;

/// Maximum number of reasons of one kind that are listed one by one.
const LISTED: usize = 3;

/// A reason why a run has its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunReason {
    /// The kind of the reason.
    pub kind: ReasonKind,
    /// A sentence about the run without its subject, such as "waits for a message at `chat@1`". It may contain text that nodes and callers wrote.
    pub text: String,
    /// The time until which the reason holds, if there is one. It is shown at the end of the sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The descendant that the reason is about, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunKey>,
    /// The id of the question to answer, if the reason is a question. The answer goes to the run, or to the descendant in `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

/// The kind of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonKind {
    /// The run failed.
    Failed,
    /// The run was cancelled, or a cancellation was requested.
    Cancelled,
    /// The run is paused.
    Paused,
    /// An operator must decide whether work that must not be repeated took effect.
    Doubt,
    /// The run waits for an answer.
    Question,
    /// The run waits for a message.
    Message,
    /// The run waits for a child run.
    Child,
    /// The run waits for a slot of a queue.
    Queue,
    /// An activation waits for its next attempt.
    Retry,
    /// An activation waits for a timer.
    Timer,
    /// The run is recorded, but no process has started it.
    Queued,
    /// The run needs a process, but no live process owns it.
    Orphaned,
    /// A live process owns the run and works on it.
    Working,
    /// The log of the run is unreadable.
    Unreadable,
}

impl RunReason {
    /// Creates a reason. `text` is a sentence about the run without its subject.
    #[doc(hidden)]
    pub fn new(kind: ReasonKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), until: None, run: None, question: None }
    }

    /// Sets the time until which the reason holds, which is shown at the end of the sentence.
    #[must_use]
    #[doc(hidden)]
    pub fn until(mut self, until: Option<Timestamp>) -> Self {
        self.until = until;
        self
    }
}

/// Returns the last failure of each activation, from the failures of a run in order.
fn last_failures<'a>(
    next: &[PendingActivation],
    failed: &(impl DoubleEndedIterator<Item = (&'a NodeName, Visit, &'a Failure)> + Clone),
) -> Vec<(NodeName, Visit, String)> {
    let last = |pending: &PendingActivation| {
        let of_it =
            |(node, visit, _): &(&NodeName, Visit, _)| **node == pending.node && *visit == pending.visit;
        let (node, visit, failure) = failed.clone().rev().find(of_it)?;
        Some((node.clone(), visit, failure.message.clone()))
    };
    next.iter().filter(|pending| pending.failed > 0).filter_map(last).collect()
}

/// The reasons why a run waits for its children.
#[derive(Debug, Default)]
pub(crate) struct ChildReasons {
    pub(crate) reasons: Vec<RunReason>,
    /// Whether one of the children is active.
    pub(crate) go_on: bool,
}

/// The log data that explains a run's status.
#[derive(Clone, Debug)]
pub(crate) struct ReasonFacts {
    status: RunStatus,
    failure: Option<Failure>,
    cancelled: Option<String>,
    paused: Option<String>,
    pub(crate) questions: Vec<Question>,
    /// The pending activations, without items and progress.
    pub(crate) next: Vec<PendingActivation>,
    /// The last failure of each activation that has failed at least once.
    failed: Vec<(NodeName, Visit, String)>,
}

impl Checkpoint {
    /// Returns the reasons why the run has its status at the time `now`, from its own log and `head`. The most urgent reason comes first. To include
    /// the reasons of its children, use `Runtime::explain`.
    #[must_use]
    pub fn reasons(&self, head: &RunHead, now: Timestamp) -> Vec<RunReason> {
        let facts = ReasonFacts::of(self);
        let waits = |pending: &PendingActivation| {
            let text = match &*pending.children {
                [] => return None,
                [child] => {
                    format!("waits at `{}@{}` for `{}`", pending.node, pending.visit, shortened(&child.run))
                }
                many => {
                    let runs = count(many.len(), "run");
                    format!("waits at `{}@{}` for {runs} that it started", pending.node, pending.visit)
                }
            };
            Some(RunReason::new(ReasonKind::Child, text))
        };
        let reasons: Vec<RunReason> = facts.next.iter().filter_map(waits).take(LISTED).collect();
        let go_on = !reasons.is_empty();
        facts.reasons(head, now, ChildReasons { reasons, go_on })
    }
}

impl ReasonFacts {
    pub(crate) fn of(now: &Checkpoint) -> Self {
        let next = now.next.iter().map(|pending| PendingActivation {
            item: None,
            progress: None,
            ..pending.clone()
        });
        let failed = now.diagnostics.iter().map(|one| (&one.node, one.visit, &one.failure));
        Self {
            status: now.status,
            failure: now.failure.clone(),
            cancelled: now.cancelled.clone(),
            paused: now.paused.clone(),
            questions: now.questions.clone(),
            next: next.collect(),
            failed: last_failures(&now.next, &failed),
        }
    }

    /// Reads the data from the last segment of a log. Failures before that segment are missing.
    pub(crate) async fn read(store: &dyn CheckpointStore, head: &RunHead) -> Result<Self> {
        let run = &head.run;
        let records = store.load(run, At::Record(head.id)).await?.ok_or_else(|| missing(run))?;
        let ReplayedRun { machine, last, .. } = fold(run, &records, None)?;
        let mut next = pending(run, &machine, last.at)?;
        next.iter_mut().for_each(|one| (one.item, one.progress) = (None, None));
        let mut attempts = Vec::new();
        for record in records.iter().filter(|record| record.header.kind == RecordKind::Attempt) {
            if let RecordEvent::Attempt(attempt) = codec::decode(run, record)?.event {
                attempts.push(attempt);
            }
        }
        let failed = attempts.iter().map(|one| (&one.node, one.visit, &one.failure));
        Ok(Self {
            status: machine.status(),
            failure: machine.failure().cloned(),
            cancelled: machine.cancel().map(str::to_owned),
            paused: machine.paused().map(str::to_owned),
            questions: questions(&machine),
            failed: last_failures(&next, &failed),
            next,
        })
    }

    /// Lists the runs that activations wait for.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&PendingActivation, &PendingChild)> {
        let of = |pending: &'_ PendingActivation| !pending.stopped;
        self.next
            .iter()
            .filter(move |pending| of(pending))
            .flat_map(|pending| pending.children.iter().map(move |child| (pending, child)))
    }

    /// Returns the size in bytes of the text that nodes and callers wrote.
    pub(crate) fn size(&self) -> usize {
        let questions = self.questions.iter().map(|one| one.text.as_ref().map_or(0, String::len) + 200);
        let next = self.next.iter().map(|one| 200 + one.steps.len() * 20 + one.children.len() * 120);
        let failed = self.failed.iter().map(|(.., why)| why.len());
        questions.chain(next).chain(failed).sum()
    }

    /// Returns why the run has its status, the most urgent reason first.
    pub(crate) fn reasons(&self, head: &RunHead, now: Timestamp, children: ChildReasons) -> Vec<RunReason> {
        let mut all = Vec::new();
        if let Some(failure) = self.failure.as_ref().filter(|_| self.status == RunStatus::Failed) {
            all.push(RunReason::new(ReasonKind::Failed, self.failed_at(failure)));
        }
        if let Some(reason) = &self.cancelled {
            let text = match self.status {
                RunStatus::Cancelled => format!("was cancelled: {reason}"),
                _ => format!("is being cancelled: {reason}"),
            };
            // A run may fail or complete before a cancellation stops it.
            let is_over = self.status.is_finished() && self.status != RunStatus::Cancelled;
            all.extend((!is_over).then(|| RunReason::new(ReasonKind::Cancelled, text)));
        }
        if self.status.is_finished() {
            return all;
        }
        if let Some(reason) = &self.paused {
            all.push(RunReason::new(ReasonKind::Paused, format!("is paused: {reason}")));
        }
        all.extend(self.question_reasons());
        all.extend(self.receives(now));
        all.extend(children.reasons);
        all.extend(self.retries(now));
        all.extend(self.sleeps(now));
        if self.status != RunStatus::InProgress {
            return all;
        }
        let driver = self.driver(head);
        match head.wake_at {
            _ if driver.kind != ReasonKind::Orphaned => all.push(driver),
            Some(at) if at > now => {
                if all.is_empty() {
                    all.push(RunReason::new(ReasonKind::Timer, "continues").until(Some(at)));
                }
            }
            // This timer only polls the children. It cannot be late while the children are active.
            Some(_) if children.go_on => {}
            _ => all.push(driver),
        }
        all
    }

    fn failed_at(&self, failure: &Failure) -> String {
        let stopped = self.next.iter().find(|pending| pending.stopped);
        match (stopped, &failure.node) {
            (Some(pending), node) if node.as_ref().is_none_or(|node| *node == pending.node) => {
                format!("failed at `{}@{}`: {}", pending.node, pending.visit, failure.message)
            }
            (_, Some(node)) => format!("failed at `{node}`: {}", failure.message),
            _ => format!("failed: {}", failure.message),
        }
    }

    fn question_reasons(&self) -> Vec<RunReason> {
        let one = |question: &Question| {
            let (kind, text) = match question.kind {
                QuestionKind::Doubt => {
                    (ReasonKind::Doubt, format!("asks about `{}`: {}", question.id, question.prompt()))
                }
                _ => (ReasonKind::Question, format!("asks `{}`: {}", question.id, question.prompt())),
            };
            RunReason { question: Some(question.id.clone()), ..RunReason::new(kind, text) }
        };
        // Work with unknown outcome may have cost money.
        let (doubts, plain): (Vec<_>, Vec<_>) =
            self.questions.iter().partition(|question| question.kind == QuestionKind::Doubt);
        let more = self.questions.len().saturating_sub(LISTED);
        let listed = doubts.into_iter().chain(plain).take(LISTED).map(one);
        let rest = (more > 0)
            .then(|| RunReason::new(ReasonKind::Question, format!("asks {} more", count(more, "question"))));
        listed.chain(rest).collect()
    }

    fn receives(&self, now: Timestamp) -> Vec<RunReason> {
        let reason = |pending: &PendingActivation| {
            let text = format!("waits for a message at `{}@{}`", pending.node, pending.visit);
            match pending.timers.iter().find(|at| **at > now) {
                Some(until) => {
                    RunReason::new(ReasonKind::Message, format!("{text}, at the latest")).until(Some(*until))
                }
                None => RunReason::new(ReasonKind::Message, text),
            }
        };
        let all: Vec<RunReason> =
            self.next.iter().filter(|one| one.receiving).take(LISTED).map(reason).collect();
        if all.is_empty() && self.status == RunStatus::AwaitingInput {
            return vec![RunReason::new(ReasonKind::Message, "waits for a message")];
        }
        all
    }

    fn retries(&self, now: Timestamp) -> impl Iterator<Item = RunReason> {
        let due = self.next.iter().filter(move |one| one.retry_at.is_some_and(|at| at > now));
        due.take(LISTED).map(|pending| {
            let (node, visit) = (&pending.node, pending.visit);
            let last = self.failed.iter().find(|(of, nth, _)| of == node && *nth == visit);
            let why = last.map(|(.., why)| format!(" ({why})")).unwrap_or_default();
            let attempts = count(pending.failed as usize, "failed attempt");
            let text = format!("tries `{node}@{visit}` again after {attempts}{why}");
            RunReason::new(ReasonKind::Retry, text).until(pending.retry_at)
        })
    }

    fn sleeps(&self, now: Timestamp) -> impl Iterator<Item = RunReason> {
        let next = move |pending: &PendingActivation| pending.timers.iter().copied().find(|at| *at > now);
        let asleep = self.next.iter().filter(|one| !one.receiving && !one.stopped && one.children.is_empty());
        asleep.filter_map(move |one| next(one).map(|at| (one, at))).take(LISTED).map(|(one, at)| {
            let text = format!("sleeps at `{}@{}` and continues", one.node, one.visit);
            RunReason::new(ReasonKind::Timer, text).until(Some(at))
        })
    }

    /// Returns a reason which says which process owns the active run, or that no process owns it.
    fn driver(&self, head: &RunHead) -> RunReason {
        let workflow = &head.facts.workflow;
        match head.owner {
            _ if head.is_queued() => RunReason::new(
                ReasonKind::Queued,
                format!("is not started: it waits for capacity, or for a process that serves `{workflow}`"),
            ),
            Some(owner) if head.owner_alive => {
                RunReason::new(ReasonKind::Working, format!("is running in process {owner}"))
            }
            Some(owner) => RunReason::new(
                ReasonKind::Orphaned,
                format!(
                    "has no process: the heartbeat of process {owner} has expired; a process that serves `{workflow}` claims it"
                ),
            ),
            None => RunReason::new(
                ReasonKind::Orphaned,
                format!("has no process; one that serves `{workflow}` claims it"),
            ),
        }
    }
}

/// Returns an id in the form for sentences. An id generated for a child is shortened to its distinctive part.
pub(crate) fn shortened(run: &RunId) -> String {
    const HASH: usize = 32;
    const SHOWN: usize = 6;
    let id = run.as_str();
    match id.rsplit_once('-') {
        Some((name, hash)) if hash.len() == HASH && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("{name}-{}…", &hash[..SHOWN])
        }
        _ => id.to_owned(),
    }
}
