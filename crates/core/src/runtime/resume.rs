//! Taking a run up: claiming it, and going on from its last record.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::admission::Permit;
use super::driver::Outbox;
use super::event::Event as RunEventKind;
use super::handle::{Link, RunHandle};
use super::life::{self, Tenure};
use super::load::{Loaded, load, missing};
use super::log::{About, LogWriter};
use super::shared::Shared;
use super::start::{Parts, drive};
use super::tasks::finish;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{Epoch, RunKey};
use crate::record::RunStatus;
use crate::record::body::{Claimed, Event, StatusChange};
use crate::state::State;
use crate::store::{RunAppend, RunHead};

/// How often a claim is tried again because others speak to the run at the same time.
const RACES: u32 = 32;

/// On which terms a run is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) allow_changed_graph: bool,
    pub(crate) take_over: bool,
    /// Whether nobody asked for it: then a run that makes no progress is parked.
    pub(crate) recovery: bool,
}

/// A resume that is being prepared; `.await` takes the run.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it.
#[must_use = "a resume does nothing until it is awaited"]
pub struct ResumeRequest<S: State> {
    shared: Arc<Shared>,
    graph: Graph<S>,
    run: Result<RunKey>,
    policy: CheckpointPolicy,
    terms: Terms,
}

impl<S: State> ResumeRequest<S> {
    pub(crate) fn new(shared: Arc<Shared>, graph: Graph<S>, run: Result<RunKey>) -> Self {
        Self { shared, graph, run, policy: CheckpointPolicy::default(), terms: Terms::default() }
    }

    /// Goes on although nodes of the frontier differ from those that the run was recorded with.
    pub fn allow_changed_graph(mut self) -> Self {
        self.terms.allow_changed_graph = true;
        self
    }

    /// Takes the run even from an owner that is alive; that one stops at its next record, with nothing lost.
    pub fn take_over(mut self) -> Self {
        self.terms.take_over = true;
        self
    }

    /// Sets when the run writes checkpoints; after every node unless set.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }
}

/// Refuses what cannot be resumed, and says what can be done instead.
fn check(head: &RunHead, shared: &Shared, terms: &Terms) -> Result<()> {
    let refuse = |kind, message: String| Err(Error::new(kind, message).with_run(&head.run));
    match head.status {
        RunStatus::Completed | RunStatus::Cancelled => {
            refuse(ErrorKind::WrongStatus, format!("the run is {}; there is nothing to resume", head.status))
        }
        RunStatus::Failed => {
            refuse(ErrorKind::WrongStatus, "the run is failed; call `Runtime::retry`, then resume it".into())
        }
        _ => match head.owner {
            Some(owner) if head.owner_alive && owner != shared.executor && !terms.take_over => {
                let message = format!(
                    "executor {owner} is alive and has the run; wait for it, or resume with `.take_over()` to take it away"
                );
                refuse(ErrorKind::Conflict, message)
            }
            _ => Ok(()),
        },
    }
}

/// Claims a run and drives it. A run that waits for an answer, a message or a time to come is not claimed: the handle tells
/// what it waits for.
///
/// `known` is the head as it was listed, which spares a look; `permit` the room that was taken for the run.
pub(crate) async fn resume<S: State>(
    shared: &Arc<Shared>,
    graph: &Graph<S>,
    run: &RunKey,
    policy: CheckpointPolicy,
    terms: &Terms,
    mut known: Option<RunHead>,
    mut permit: Option<Permit>,
) -> Result<RunHandle<S>> {
    for _ in 0..RACES {
        let head = match known.take() {
            Some(head) => head,
            None => shared.store.head(run).await?.ok_or_else(|| missing(run))?,
        };
        match claim(shared, graph, head, policy, terms, &mut permit).await? {
            Claim::Taken(handle) => return Ok(handle),
            Claim::Overtaken(epoch) => {
                let head = shared.store.head(run).await?.ok_or_else(|| missing(run))?;
                // A claim of before may have been done although its reply was lost: then the run is this executor's, and free.
                if head.epoch != epoch && head.owner != Some(shared.executor) {
                    let message = "another executor took the run at the same moment; it goes on there";
                    return Err(Error::new(ErrorKind::Conflict, message).with_run(run));
                }
            }
        }
    }
    let message = "others keep writing to the run; try again";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

/// What became of one try to claim a run.
enum Claim<S: State> {
    /// It is claimed, or there is nothing to claim it for.
    Taken(RunHandle<S>),
    /// Somebody wrote first, to a run of this epoch: a claim of their own, or no more than a signal. If it was purged and started anew
    /// meanwhile, the next try looks at the run that there is now.
    Overtaken(Epoch),
}

async fn claim<S: State>(
    shared: &Arc<Shared>,
    graph: &Graph<S>,
    head: RunHead,
    policy: CheckpointPolicy,
    terms: &Terms,
    permit: &mut Option<Permit>,
) -> Result<Claim<S>> {
    let run = &head.run;
    check(&head, shared, terms)?;
    if head.facts.workflow != *graph.name() {
        let message = format!("the run is one of `{}`, not of `{}`", head.facts.workflow, graph.name());
        return Err(Error::new(ErrorKind::Invalid, message).with_run(run));
    }
    let due = head.wake_at.is_some_and(|wake| wake <= shared.clock.now());
    let asleep = head.owner.is_none() && head.wake_at.is_some();
    if (head.status != RunStatus::InProgress || asleep) && !due {
        return Ok(Claim::Taken(RunHandle::new(
            Arc::clone(shared),
            graph.clone(),
            run.clone(),
            Link::Elsewhere,
        )));
    }
    // Kept over further tries, so that nobody else takes the room meanwhile.
    let room = permit.get_or_insert_with(|| shared.admission.take(run, &head.facts)).clone();
    let mut driven = shared.enter(run, room)?;
    let mut weight = match terms.recovery {
        true => Some(shared.recovery.scales.put().await),
        false => None,
    };
    let Loaded { folded, state } = load(&*shared.store, graph, run).await?;
    if let Some(weight) = &mut weight {
        weight.is(folded.base_bytes + folded.since_bytes);
    }
    if (folded.last.status, folded.last.owner) != (head.status, head.owner) {
        // It came to rest, ended, or was taken since it was looked at: what was checked does not hold any more.
        return Ok(Claim::Overtaken(head.epoch));
    }
    let mut machine = folded.machine.clone();
    let misfits = machine.misfits();
    if !(misfits.is_empty()
        || terms.allow_changed_graph
            && misfits.iter().all(|(name, _)| graph.plan().find(name.as_str()).is_some()))
    {
        let listed: Vec<_> = misfits.iter().map(|(name, why)| format!("`{name}` {why}")).collect();
        let message = format!(
            "the graph changed where the run is: {}; resume with the graph of before, or with `.allow_changed_graph()`",
            listed.join(", ")
        );
        return Err(Error::new(ErrorKind::GraphChanged, message).with_run(run).with_seq(folded.last.seq));
    }
    if terms.recovery && machine.claims_without_progress() >= shared.limits.max_claims {
        drop(driven);
        let reason = format!(
            "taken up {} times without any progress; look at its node, then unpause it",
            machine.claims_without_progress()
        );
        return park(shared, graph, run, reason).await.map(Claim::Taken);
    }
    let changed = machine.changed_graph();
    let (settled, unmet) = machine.resettle();
    let (clock, ids) = (Arc::clone(&shared.clock), Arc::clone(&shared.ids));
    let mut log = LogWriter::new(run.clone(), shared.executor, shared.limits.max_body, clock, ids);
    log.follow(&folded);
    log.epoch = next_epoch(folded.last.epoch).map_err(|error| error.with_run(run))?;
    log.state_version = graph.schema().version();
    // The original stays as it is until the new form is written whole.
    let migrated = folded.version != log.state_version;
    if migrated {
        machine.bring_forward(|patch| graph.migrated_patch(&folded.channels, folded.version, patch));
    }
    let graph_changed = changed.is_some();
    let mut events = vec![Event::Claim(Claimed { executor: shared.executor, graph: changed, settled })];
    events.extend(
        unmet
            .filter(|_| machine.in_flight().is_empty())
            .map(|failure| Event::Status(StatusChange::Failed(failure))),
    );
    let mut records = Vec::new();
    for event in events {
        machine.absorb(&event)?;
        let about = About { base: migrated && records.is_empty(), ..About::default() };
        records.push(log.record(&event, about, &machine, || state.to_channels_json())?);
    }
    let append = RunAppend { run: run.clone(), expected: Some(folded.last.head()), records, facts: None };
    let tenure = Tenure { life: machine.life(), epoch: log.epoch };
    driven.owe(Some(tenure));
    let gone = |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
    let durable = match shared.committer.submit(append.clone(), Some(driven.term)).await.unwrap_or_else(gone)
    {
        Ok(durable) => durable,
        Err(error) => {
            driven.owe(None);
            drop(driven);
            if error.kind() == ErrorKind::Conflict {
                return Ok(Claim::Overtaken(folded.last.epoch));
            }
            life::settle_doubt(shared, append, tenure, &error);
            return Err(not_taken(error).with_run(run));
        }
    };
    shared.admission.leave(run, &head.facts);
    let (epoch, recorded) = (log.epoch, machine.tick());
    shared.emit(run, || RunEventKind::Resumed { epoch, recorded, graph_changed });
    let outbox = Outbox::new(run.clone(), shared.committer.clone(), None, Some(durable), driven.term);
    let parts = Parts { machine, state, log, outbox, first: None, created: head.facts.created };
    Ok(Claim::Taken(drive(Arc::clone(shared), graph.clone(), policy, driven, parts)))
}

/// Counts a claim. An epoch that cannot be counted on would be that of the claim before, which could not be told from this one.
fn next_epoch(epoch: Epoch) -> Result<Epoch> {
    if epoch.next() > epoch {
        return Ok(epoch.next());
    }
    let message = format!(
        "the run was claimed {epoch} times by its log, and no further claim can be counted; fork it, and go on with the fork"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Says of a run that is not taken yet what being fenced means for it: nothing was written, and it may be tried again.
pub(crate) fn not_taken(error: Error) -> Error {
    if error.kind() != ErrorKind::Fenced {
        return error;
    }
    let message = "this process cannot say that it is alive, and takes no runs until it can; try again";
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

/// Pauses a run that keeps ending its process.
async fn park<S: State>(
    shared: &Arc<Shared>,
    graph: &Graph<S>,
    run: &RunKey,
    reason: String,
) -> Result<RunHandle<S>> {
    tracing::error!(%run, reason, "the run is parked");
    super::signal::park(shared, run, reason).await?;
    Ok(RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), Link::Elsewhere))
}

impl<S: State> IntoFuture for ResumeRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(async move {
            let run = self.run?;
            resume(&self.shared, &self.graph, &run, self.policy, &self.terms, None, None).await
        }))
    }
}

impl<S: State> std::fmt::Debug for ResumeRequest<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResumeRequest")
            .field("workflow", self.graph.name())
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
