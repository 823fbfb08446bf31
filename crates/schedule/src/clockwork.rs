//! The workflow that a schedule is: it waits for a tick, starts the run of it, and waits for the next.
//!
//! Every decision is recorded before anything rests on it: what is waited for, which ticks have come, when a run ended. So whoever takes
//! the schedule up after a crash finds what was decided, and the run of a tick is a child, of which the protocol starts one.

use std::sync::Arc;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{ChildError, OnParentEnd};
use ferrata_core::state::{Context, Draft, State};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Error, ErrorKind, Result, RunKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::Definition;
use crate::policy::Overlap;
use crate::progress::{Progress, Span, TickEnd};
use crate::times::{Times, name_of};

/// The channels.
pub(crate) const DEFINITION: &str = "definition";
pub(crate) const PROGRESS: &str = "progress";
const SUCCESSOR: &str = "successor";

/// The labels of the runs of a schedule: which one, whether the run is the schedule or of a tick, and of which tick.
pub(crate) const SCHEDULE: &str = "schedule";
pub(crate) const ROLE: &str = "schedule.role";
pub(crate) const CLOCK: &str = "clock";
pub(crate) const TICK: &str = "tick";
const TICK_AT: &str = "schedule.tick";

/// After how many ticks a schedule goes on in a new log: each activation is kept in the history of a log.
const TICKS_OF_A_LOG: u32 = 250;

/// What the nodes of a schedule know.
pub(crate) struct Clockwork<S: State> {
    pub(crate) definition: Definition,
    pub(crate) times: Times,
    pub(crate) workflow: String,
    pub(crate) graph: Graph<S>,
    pub(crate) input: S,
    pub(crate) store: Arc<dyn CheckpointStore>,
}

/// What an activation waits for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Plan {
    /// The version of the definition by which it was planned.
    version: u32,
    /// From which moment on ticks are looked for.
    decided: Timestamp,
    tick: Option<Timestamp>,
}

/// Makes the workflow of a schedule. Its state has the version of the definition: a process that knows an older one leaves the run alone,
/// and one that knows a newer one brings the state forward, which is to put its own definition into it.
pub(crate) fn graph<S: State>(work: &Arc<Clockwork<S>>) -> Result<Graph<Context>> {
    let patient = RetryPolicy::standard().with_attempts(u32::MAX);
    let definition = serde_json::to_value(&work.definition).map_err(|source| {
        Error::new(ErrorKind::Invalid, "the schedule cannot be stored").with_source(source)
    })?;
    let version = work.definition.version;
    let (waiting, ticking) = (Arc::clone(work), Arc::clone(work));
    let mut builder = Graph::<Context>::builder(&work.workflow)
        .state_version(version)
        .unlimited_steps()
        .node("wait", move |cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&waiting);
            async move { wait(&work, &cx, s).await }
        })
        .retry(patient)
        .node("tick", move |cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&ticking);
            async move { tick(&work, &cx, s).await }
        })
        .retry(patient)
        .node("moved", async |_cx, s| Ok(s))
        .entry("wait")
        .edge("tick", "wait")
        .route("wait", ["wait", "tick", "moved"], |s: &Context, _| {
            let progress = s.get::<Progress>(PROGRESS).ok().flatten().unwrap_or_default();
            match progress.due.is_empty() {
                false => "tick",
                true if s.contains_key(SUCCESSOR) => "moved",
                true => "wait",
            }
        });
    for from in 1..version {
        let definition = definition.clone();
        builder = builder.migrate(from, move |channels| {
            let times =
                |definition: &Value| (definition.get("cron").cloned(), definition.get("timezone").cloned());
            let before = channels.insert(DEFINITION.to_owned(), definition.clone());
            // Other times count from now on, and not for days on which they did not hold.
            if before.is_none_or(|before| times(&before) != times(&definition))
                && let Some(Value::Object(progress)) = channels.get_mut(PROGRESS)
            {
                progress.insert("decided".to_owned(), Value::Null);
            }
            Ok(())
        });
    }
    builder.build().map_err(|error| {
        Error::new(ErrorKind::Invalid, "the schedule cannot be made a workflow").with_source(error)
    })
}

/// Returns the state in which a log begins.
pub(crate) fn first(definition: &Definition, progress: &Progress) -> Result<Context> {
    let mut state = Context::new();
    state.set(DEFINITION, definition)?;
    state.set(PROGRESS, progress)?;
    Ok(state)
}

/// Waits until the next tick is due, and says which ticks start runs then.
async fn wait<S: State>(
    work: &Arc<Clockwork<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<Progress>(PROGRESS)?.unwrap_or_default();
    if !progress.due.is_empty() {
        return Ok(state.into());
    }
    if progress.ticks >= TICKS_OF_A_LOG {
        move_on(work, cx, &progress).await?;
        state.set(SUCCESSOR, true)?;
        return Ok(state.into());
    }
    let plan: Plan = cx
        .step("plan", async || {
            let decided = progress.decided.unwrap_or_else(|| cx.now());
            let tick = work.times.after(decided);
            Ok::<_, NodeError>(Plan { version: work.definition.version, decided, tick })
        })
        .await?;
    if plan.version != work.definition.version {
        // A newer definition has come, and the activation with it. The next one plans by it.
        return Ok(state.into());
    }
    progress.decided = Some(plan.decided);
    let Some(planned) = plan.tick else {
        // Behind the end of the calendar there is nothing to wait for but another definition.
        cx.receive::<Value>().await?;
        return Ok(state.into());
    };
    tokio::select! {
        // Another definition: what is waited for is planned anew.
        told = cx.receive::<Value>() => {
            told?;
        }
        slept = cx.sleep_until(work.definition.start_of(planned)) => {
            slept?;
            let decided = cx.step("due", async || {
                let mut decided = progress.clone();
                decided.come_due(&work.definition, &work.times, planned, cx.now());
                Ok::<_, NodeError>(decided)
            });
            progress = decided.await?;
        }
    }
    state.set(PROGRESS, &progress)?;
    Ok(state.into())
}

/// Goes on in a new log: a run of the same workflow, of which this one starts exactly one.
async fn move_on<S: State>(
    work: &Arc<Clockwork<S>>,
    cx: &NodeContext,
    progress: &Progress,
) -> Result<(), NodeError> {
    let next = Progress { generation: progress.generation + 1, ticks: 0, ..progress.clone() };
    let state = first(&work.definition, &next)?;
    let graph = graph(work)?;
    cx.spawn(&graph, state)
        .name("successor")
        .label(SCHEDULE, &work.definition.name)
        .label(ROLE, CLOCK)
        .await?;
    Ok(())
}

/// Starts the run of the first tick that is due, and waits for its end where the policy asks for it.
async fn tick<S: State>(
    work: &Arc<Clockwork<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<Progress>(PROGRESS)?.unwrap_or_default();
    let definition = &work.definition;
    let Some(&tick) = progress.due.front() else { return Ok(state.into()) };
    let (run, end) = match definition.overlap {
        Overlap::Allow => beside(work, cx, tick).await?,
        Overlap::CancelOld => until_the_next(work, cx, tick).await?,
        Overlap::Skip | Overlap::Queue(_) => to_the_end(work, cx, tick).await?,
    };
    let span: Span = cx
        .step("ended", async || {
            let head = match &run {
                Some(run) => work.store.head(run).await?,
                None => None,
            };
            let now = cx.now();
            let began = head.as_ref().map_or(now, |head| head.facts.created.min(now));
            let ended =
                head.filter(|head| head.status.is_finished()).map_or(now, |head| head.updated.min(now));
            Ok::<_, Error>(Span { began, ended })
        })
        .await?;
    progress.ended(definition, &work.times, end, span);
    state.set(PROGRESS, &progress)?;
    Ok(state.into())
}

type Ended = (Option<RunKey>, TickEnd);

/// Returns the id of the run of a tick.
fn id_of(definition: &Definition, tick: Timestamp) -> String {
    format!("{}.{}", definition.name, name_of(tick))
}

/// Starts a run that is nothing to the schedule from then on.
async fn beside<S: State>(
    work: &Clockwork<S>,
    cx: &NodeContext,
    tick: Timestamp,
) -> Result<Ended, NodeError> {
    let started = cx
        .spawn(&work.graph, work.input.clone())
        .name("beside")
        .id(id_of(&work.definition, tick))
        .label(SCHEDULE, &work.definition.name)
        .label(ROLE, TICK)
        .label(TICK_AT, name_of(tick))
        .await;
    match started {
        Ok(run) => Ok((Some(run), TickEnd::Started)),
        Err(error) => Ok((None, end_of(error)?)),
    }
}

/// Starts a run and waits for its end.
async fn to_the_end<S: State>(
    work: &Clockwork<S>,
    cx: &NodeContext,
    tick: Timestamp,
) -> Result<Ended, NodeError> {
    let handle = match child(work, cx, tick, OnParentEnd::Leave).start().await {
        Ok(handle) => handle,
        Err(error) => return Ok((None, end_of(error)?)),
    };
    let end = match handle.result().await {
        Ok(_) => TickEnd::Completed,
        Err(error) => end_of(error)?,
    };
    Ok((Some(handle.run().clone()), end))
}

/// Starts a run that is cancelled when the next tick comes, and waits for either.
async fn until_the_next<S: State>(
    work: &Clockwork<S>,
    cx: &NodeContext,
    tick: Timestamp,
) -> Result<Ended, NodeError> {
    let handle = match child(work, cx, tick, OnParentEnd::Cancel).start().await {
        Ok(handle) => handle,
        Err(error) => return Ok((None, end_of(error)?)),
    };
    let Some(next) = work.times.after(tick) else { return to_the_end(work, cx, tick).await };
    let end = tokio::select! {
        ended = handle.result() => match ended {
            Ok(_) => TickEnd::Completed,
            Err(error) => end_of(error)?,
        },
        slept = cx.sleep_until(work.definition.start_of(next)) => {
            slept?;
            // The end of the activation cancels the child that belongs to it.
            TickEnd::Overtaken
        }
    };
    Ok((Some(handle.run().clone()), end))
}

fn child<S: State>(
    work: &Clockwork<S>,
    cx: &NodeContext,
    tick: Timestamp,
    bond: OnParentEnd,
) -> ferrata_core::runtime::ChildRequest<S> {
    cx.child(&work.graph, work.input.clone())
        .name("run")
        .id(id_of(&work.definition, tick))
        .label(SCHEDULE, &work.definition.name)
        .label(ROLE, TICK)
        .label(TICK_AT, name_of(tick))
        .on_parent_end(bond)
}

/// Says what came of a tick whose run brought no result.
///
/// # Errors
///
/// What may be otherwise at the next attempt.
fn end_of(error: ChildError) -> Result<TickEnd, NodeError> {
    match error {
        ChildError::Failed { .. } => Ok(TickEnd::Failed),
        ChildError::Cancelled { .. } => Ok(TickEnd::Cancelled),
        ChildError::Gone { .. } => Ok(TickEnd::Purged),
        ChildError::Refused(error) if is_final(error.kind()) => Ok(TickEnd::Refused(error.to_string())),
        error => Err(error.into()),
    }
}

/// Whether a start that was refused so is refused again.
fn is_final(kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, Corrupt, GraphChanged, Invalid, TooLarge, Unsupported};
    matches!(kind, AlreadyExists | Corrupt | GraphChanged | Invalid | TooLarge | Unsupported)
}
