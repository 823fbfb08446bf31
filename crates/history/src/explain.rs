//! Explains why a run has its status, including the reasons in its children. The inspector and the command show this text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ask::Question;
use crate::checkpoint::{Checkpoint, PendingActivation, PendingChild};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, RecordId, RunId, RunKey, Visit};
use crate::reason::{ChildReasons, ReasonFacts, ReasonKind, RunReason, shortened};
use crate::record::RunStatus;
use crate::record::parent_link::{CHILD, PARENT};
use crate::store::{CheckpointStore, Page, RunHead, RunQuery};
use crate::wording::count;

/// The capacity of a cache in runs. The second constant is the maximum number of bytes for each run.
const KNOWN: usize = 256;
const SIZE: usize = 64 * 1024;

/// The maximum number of children whose heads the code loads one by one. If there are more, it uses a listing.
const SINGLE: usize = 20;

/// The number of children of a run that an explanation covers. It is also the number of levels of the run tree.
const EXPLAINED: usize = 3;
const LEVELS: usize = 6;

/// The reasons why a run has its status, and the questions of its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)]
pub struct RunExplanation {
    /// The reasons, with the most urgent reason first. Empty for a completed run.
    pub reasons: Vec<RunReason>,
    /// The open questions of the descendants that the reasons name. Their ids contain the path to the descendant, as in `Runtime::questions`.
    pub questions: Vec<Question>,
}

/// A cache of the data that explanations need from logs. An entry is valid while the head of its run stays the same.
///
/// If a caller explains the same runs repeatedly, a log is loaded again only after the run has changed.
#[derive(Default)]
#[doc(hidden)]
pub struct ReasonCache(Mutex<VecDeque<KnownRun>>);

struct KnownRun {
    run: RunKey,
    /// The newest record at the time of the read.
    record: RecordId,
    facts: Arc<ReasonFacts>,
}

impl ReasonCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the data of a checkpoint to the cache, so that an explanation does not need to read the log.
    pub fn insert(&self, now: &Checkpoint) {
        self.insert_facts(&now.run, now.record, ReasonFacts::of(now));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<KnownRun>> {
        // Every entry is valid at any time, so a poisoned lock is safe.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert_facts(&self, run: &RunKey, record: RecordId, facts: ReasonFacts) -> Arc<ReasonFacts> {
        let facts = Arc::new(facts);
        let mut known = self.lock();
        known.retain(|known| known.run != *run);
        if facts.size() <= SIZE {
            known.push_back(KnownRun { run: run.clone(), record, facts: Arc::clone(&facts) });
        }
        if known.len() > KNOWN {
            known.pop_front();
        }
        facts
    }

    async fn read(&self, store: &dyn CheckpointStore, head: &RunHead) -> Result<Arc<ReasonFacts>> {
        let is_it = |known: &&KnownRun| known.record == head.id && known.run == head.run;
        if let Some(known) = self.lock().iter().find(is_it) {
            return Ok(Arc::clone(&known.facts));
        }
        let facts = ReasonFacts::read(store, head).await?;
        Ok(self.insert_facts(&head.run, head.id, facts))
    }
}

impl fmt::Debug for ReasonCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReasonCache").field("runs", &self.lock().len()).finish()
    }
}

/// Returns why a run has its status.
///
/// # Errors
///
/// Returns the errors of the store, and an error if the log of the run is unreadable. An unreadable child is reported as a reason and not as an
/// error.
pub async fn explain(
    store: &dyn CheckpointStore,
    head: &RunHead,
    cache: &ReasonCache,
    now: Timestamp,
) -> Result<RunExplanation> {
    ExplanationReader { store, cache, now }.explain(head, String::new(), 0).await
}

struct ExplanationReader<'a> {
    store: &'a dyn CheckpointStore,
    cache: &'a ReasonCache,
    now: Timestamp,
}

/// A child that its parent waits for.
struct AwaitedChild<'a> {
    node: &'a NodeName,
    visit: Visit,
    child: &'a PendingChild,
    head: Option<RunHead>,
}

impl AwaitedChild<'_> {
    /// Returns a number that says how urgently an operator must act on the child.
    fn urgency(&self, now: Timestamp) -> u8 {
        let Some(head) = &self.head else { return 1 };
        match head.status {
            RunStatus::Interrupted | RunStatus::AwaitingInput => 0,
            RunStatus::InProgress if head.owner_alive => 4,
            RunStatus::InProgress if head.wake_at.is_some_and(|at| at > now) => 3,
            RunStatus::InProgress => 2,
            _ => 1,
        }
    }
}

impl ExplanationReader<'_> {
    async fn explain(&self, head: &RunHead, path: String, level: usize) -> Result<RunExplanation> {
        let facts = self.cache.read(self.store, head).await?;
        if facts.children().next().is_none() || head.status.is_finished() {
            let reasons = facts.reasons(head, self.now, ChildReasons::default());
            return Ok(RunExplanation { reasons, questions: Vec::new() });
        }
        let mut children = self.children(head, &facts).await?;
        children.sort_by_key(|child| child.urgency(self.now));
        let go_on =
            children.iter().filter_map(|child| child.head.as_ref()).any(|head| !head.status.is_finished());
        let (mut reasons, mut questions) = (Vec::new(), Vec::new());
        let explained = if level < LEVELS { EXPLAINED } else { 0 };
        let more = children.len().saturating_sub(explained);
        for child in children.iter().take(explained) {
            let below = Box::pin(self.child(head, child, &path, level)).await?;
            reasons.extend(below.reasons);
            questions.extend(below.questions);
        }
        if more > 0 {
            let text = match explained {
                0 => format!("waits for {} that it started", count(more, "run")),
                _ => format!("waits for {} more that it started", count(more, "run")),
            };
            reasons.push(RunReason::new(ReasonKind::Child, text));
        }
        let children = ChildReasons { reasons, go_on };
        Ok(RunExplanation { reasons: facts.reasons(head, self.now, children), questions })
    }

    /// Returns the state of an awaited child as a reason of the run.
    async fn child(
        &self,
        parent: &RunHead,
        awaited: &AwaitedChild<'_>,
        path: &str,
        level: usize,
    ) -> Result<RunExplanation> {
        let AwaitedChild { node, visit, child, head } = awaited;
        let run = RunKey::new(parent.run.tenant.clone(), child.run.clone());
        let waits = format!("waits at `{node}@{visit}` for `{}`, which", shortened(&child.run));
        let alone = |predicate: &str| {
            let reason = RunReason::new(ReasonKind::Child, format!("{waits} {predicate}"));
            let reasons = vec![RunReason { run: Some(run.clone()), ..reason }];
            RunExplanation { reasons, ..RunExplanation::default() }
        };
        let Some(head) = head else { return Ok(alone("is not in the store")) };
        if head.status == RunStatus::Completed {
            return Ok(alone("is completed: the run has not yet received its result"));
        }
        let path = format!("{path}{node}@{visit}:{}/", child.name);
        let below = match self.explain(head, path.clone(), level + 1).await {
            Ok(below) => below,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(alone("was purged")),
            Err(error) if is_unreadable(&error) => {
                return Ok(alone(&format!("cannot be read: {}", error.message())));
            }
            Err(error) => return Err(error),
        };
        let mut questions = self.questions(head, &path).await?;
        questions.extend(below.questions);
        let Some(first) = below.reasons.into_iter().next() else {
            return Ok(RunExplanation { questions, ..alone(&format!("is {}", head.status)) });
        };
        let reason = RunReason {
            text: format!("{waits} {}", first.text),
            kind: ReasonKind::Child,
            run: first.run.or(Some(run)),
            ..first
        };
        Ok(RunExplanation { reasons: vec![reason], questions })
    }

    /// Returns the questions of the child itself, with the path to it.
    async fn questions(&self, head: &RunHead, path: &str) -> Result<Vec<Question>> {
        let facts = self.cache.read(self.store, head).await?;
        let below = |question: &Question| question.clone().below(path, Some(head.run.clone()));
        Ok(facts.questions.iter().map(below).collect())
    }

    /// Returns the children that a run waits for, with their heads.
    async fn children<'f>(&self, head: &RunHead, facts: &'f ReasonFacts) -> Result<Vec<AwaitedChild<'f>>> {
        let awaited: Vec<_> = facts.children().collect();
        let mut heads: BTreeMap<RunKey, RunHead> = BTreeMap::new();
        if awaited.len() <= SINGLE {
            for (_, child) in &awaited {
                let run = RunKey::new(head.run.tenant.clone(), child.run.clone());
                if let Some(found) = self.store.head(&run).await? {
                    heads.insert(run, found);
                }
            }
        } else {
            heads = self.listed(head, &awaited.iter().map(|(_, child)| &child.run).collect()).await?;
        }
        let with_head = |(pending, child): (&'f PendingActivation, &'f PendingChild)| {
            let run = RunKey::new(head.run.tenant.clone(), child.run.clone());
            let is_child = |head: &RunHead| head.facts.labels.get(CHILD) == Some(&child.start);
            let head = heads.remove(&run).filter(is_child);
            AwaitedChild { node: &pending.node, visit: pending.visit, child, head }
        };
        Ok(awaited.into_iter().map(with_head).collect())
    }

    /// Lists the wanted children of a run.
    async fn listed(&self, head: &RunHead, wanted: &BTreeSet<&RunId>) -> Result<BTreeMap<RunKey, RunHead>> {
        let mut query = RunQuery::default();
        query.tenant = Some(head.run.tenant.clone());
        query.labels = vec![(PARENT.to_owned(), head.run.run.to_string())];
        let (mut found, mut page) = (BTreeMap::new(), Page::first(Page::MAX));
        loop {
            let listed = self.store.runs(&query, page).await?;
            let wanted = listed.items.into_iter().filter(|head| wanted.contains(&head.run.run));
            found.extend(wanted.map(|head| (head.run.clone(), head)));
            match listed.next {
                Some(next) => page = Page::first(Page::MAX).with_cursor(next),
                None => return Ok(found),
            }
        }
    }
}

fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
