//! The workflow of a schedule: it waits for a tick, starts the run of the tick, and waits for the next tick.
//!
//! The schedule records each decision before it acts on the decision: the planned tick, the ticks that are due, and the end of a run. A process that
//! claims the schedule after a crash finds these decisions. The run of a tick is a child run, and a node starts each of its children exactly once.

use std::sync::Arc;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{ChildError, OnParentEnd};
use ferrata_core::state::{Context, Draft, State};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Error, ErrorKind, Result, RunKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::ScheduleDefinition;
use crate::opaque_state::{self, OpaqueState};
use crate::policy::Overlap;
use crate::progress::{RunSpan, ScheduleProgress, TickEnd};
use crate::times::{Times, name_of};

/// The channels of a schedule's state.
pub(crate) const DEFINITION: &str = "definition";
pub(crate) const PROGRESS: &str = "progress";
const SUCCESSOR: &str = "successor";

/// Labels of the runs of a schedule: the schedule's name, the kind of run, and the tick.
pub(crate) const SCHEDULE: &str = "schedule";
pub(crate) const ROLE: &str = "schedule.role";
pub(crate) const CLOCK: &str = "clock";
pub(crate) const TICK: &str = "tick";
const TICK_AT: &str = "schedule.tick";

/// Number of ticks in one log of a schedule. The limit exists because a log retains the history of each activation.
const TICKS_OF_A_LOG: u32 = 250;

/// Shared data of a schedule's nodes.
pub(crate) struct ScheduleNodes<S: State> {
    pub(crate) definition: ScheduleDefinition,
    pub(crate) times: Times,
    pub(crate) workflow: String,
    pub(crate) graph: Graph<S>,
    pub(crate) input: S,
    pub(crate) store: Arc<dyn CheckpointStore>,
}

/// The plan of an activation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct TickPlan {
    /// The version of the definition that was used for the plan.
    version: u32,
    /// The time after which the search for the tick began.
    decided: Timestamp,
    tick: Option<Timestamp>,
}

/// Creates the workflow of a schedule. The version of its state is the version of the definition. A process with an older definition does not claim
/// the run. A process with a newer definition migrates the state: it stores its own definition in it.
pub(crate) fn graph<S: State>(work: &Arc<ScheduleNodes<S>>) -> Result<Graph<Context>> {
    let patient = RetryPolicy::standard().with_attempts(u32::MAX);
    let definition = serde_json::to_value(&work.definition).map_err(|source| {
        Error::new(ErrorKind::Invalid, "cannot encode the schedule as JSON").with_source(source)
    })?;
    let version = work.definition.version;
    let (waiting, ticking) = (Arc::clone(work), Arc::clone(work));
    let mut builder = Graph::<Context>::builder(&work.workflow)
        .state_version(version)
        .unlimited_steps()
        .node("wait", move |cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&waiting);
            async move { wait_for_tick(&work, &cx, s).await }
        })
        .retry(patient)
        .node("tick", move |cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&ticking);
            async move { run_tick(&work, &cx, s).await }
        })
        .retry(patient)
        .node("moved", async |_cx, s| Ok(s))
        .entry("wait")
        .edge("tick", "wait")
        .route("wait", ["wait", "tick", "moved"], |s: &Context, _| {
            let progress = s.get::<ScheduleProgress>(PROGRESS).ok().flatten().unwrap_or_default();
            match progress.due.is_empty() {
                _ if s.contains_key(SUCCESSOR) => "moved",
                false => "tick",
                true => "wait",
            }
        });
    for from in 1..version {
        let definition = definition.clone();
        builder = builder.migrate(from, move |channels| {
            let times =
                |definition: &Value| (definition.get("cron").cloned(), definition.get("timezone").cloned());
            let before = channels.insert(DEFINITION.to_owned(), definition.clone());
            // If the times have changed, they apply from now on, and not to the past.
            if before.is_none_or(|before| times(&before) != times(&definition))
                && let Some(Value::Object(progress)) = channels.get_mut(PROGRESS)
            {
                progress.insert("decided".to_owned(), Value::Null);
            }
            Ok(())
        });
    }
    builder.build().map_err(|error| {
        Error::new(ErrorKind::Invalid, "cannot create the workflow of the schedule").with_source(error)
    })
}

/// Returns the initial state of a log.
pub(crate) fn initial_state(definition: &ScheduleDefinition, progress: &ScheduleProgress) -> Result<Context> {
    let mut state = Context::new();
    state.set(DEFINITION, definition)?;
    state.set(PROGRESS, progress)?;
    Ok(state)
}

/// Waits until the next tick is due, and records which ticks then start runs.
async fn wait_for_tick<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<ScheduleProgress>(PROGRESS)?.unwrap_or_default();
    // Do this first: the list of due ticks may never become empty. The new log then starts their runs.
    if progress.ticks >= TICKS_OF_A_LOG {
        move_on(work, cx, &progress).await?;
        state.set(SUCCESSOR, true)?;
        return Ok(state.into());
    }
    if !progress.due.is_empty() {
        return Ok(state.into());
    }
    let plan: TickPlan = cx
        .step("plan", async || {
            let decided = progress.decided.unwrap_or_else(|| cx.now());
            let tick = work.times.after(decided);
            Ok::<_, NodeError>(TickPlan { version: work.definition.version, decided, tick })
        })
        .await?;
    if plan.version != work.definition.version {
        // A process with a newer definition has claimed the run during this activation. The next activation plans with the new definition.
        return Ok(state.into());
    }
    progress.decided = Some(plan.decided);
    let Some(planned) = plan.tick else {
        // After the end of the calendar, only a new definition can make a tick.
        cx.receive::<Value>().await?;
        return Ok(state.into());
    };
    tokio::select! {
        // The definition changed, so plan again.
        told = cx.receive::<Value>() => {
            told?;
        }
        slept = cx.sleep_until(work.definition.start_of(planned)) => {
            slept?;
            let decided = cx.step("due", async || {
                let mut decided = progress.clone();
                decided.add_due(&work.definition, &work.times, planned, cx.now());
                Ok::<_, NodeError>(decided)
            });
            progress = decided.await?;
        }
    }
    state.set(PROGRESS, &progress)?;
    Ok(state.into())
}

/// Continues the schedule in a new log. The log is a run of the same workflow, and this run starts it exactly once.
async fn move_on<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    progress: &ScheduleProgress,
) -> Result<(), NodeError> {
    let next = ScheduleProgress { generation: progress.generation + 1, ticks: 0, ..progress.clone() };
    let state = initial_state(&work.definition, &next)?;
    let graph = graph(work)?;
    cx.spawn(&graph, state)
        .name("successor")
        .label(SCHEDULE, &work.definition.name)
        .label(ROLE, CLOCK)
        .await?;
    Ok(())
}

/// The options with which the run of a tick is started and awaited. These options stay the same even if a newer definition comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TickOptions {
    overlap: Overlap,
    workflow: String,
}

/// Starts the run of the first due tick. Waits for its end if the overlap policy requires it.
async fn run_tick<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<ScheduleProgress>(PROGRESS)?.unwrap_or_default();
    let Some(&tick) = progress.due.front() else { return Ok(state.into()) };
    let decided = match progress.decided {
        Some(decided) => decided,
        // A newer definition has changed the times. They apply from now on, even while a run is active.
        None => {
            let name = format!("times-{}", work.definition.version);
            cx.step(name, async || Ok::<_, NodeError>(cx.now())).await?
        }
    };
    progress.decided = Some(decided);
    let (by, (run, end)) = start_tick(work, cx, tick, decided).await?;
    let span: RunSpan = cx
        .step("ended", async || {
            let head = match &run {
                Some(run) => work.store.head(run).await?,
                None => None,
            };
            let now = cx.now();
            let began = head.as_ref().map_or(now, |head| head.facts.created.min(now));
            let ended =
                head.filter(|head| head.status.is_finished()).map_or(now, |head| head.updated.min(now));
            Ok::<_, Error>(RunSpan { began, ended })
        })
        .await?;
    progress.record_end(&by, &work.times, end, span);
    state.set(PROGRESS, &progress)?;
    Ok(state.into())
}

type EndedTick = (Option<RunKey>, TickEnd);

/// Starts the run of a tick, or finds the run that an earlier definition started. Returns its result and the definition that started it.
async fn start_tick<S: State>(
    work: &ScheduleNodes<S>,
    cx: &NodeContext,
    tick: Timestamp,
    decided: Timestamp,
) -> Result<(ScheduleDefinition, EndedTick), NodeError> {
    let definition = &work.definition;
    let mut round = 0;
    loop {
        let ours = TickOptions { overlap: definition.overlap, workflow: definition.workflow.clone() };
        let step = round_name("began", round);
        let terms = cx.step(step, async || Ok::<_, NodeError>(ours)).await?;
        let by = ScheduleDefinition { overlap: terms.overlap, ..definition.clone() };
        let start = TickStart { by: &by, times: &work.times, cx, tick, decided, round };
        if terms.workflow == definition.workflow {
            let ended = start.execute(&work.graph, &work.input).await?;
            return Ok((by, ended));
        }
        match start.execute(&opaque_state::graph(&terms.workflow)?, &OpaqueState).await? {
            // The run was not started before the newer definition came, so the newer definition starts its own run.
            (_, TickEnd::Refused(_)) => round += 1,
            ended => return Ok((by, ended)),
        }
    }
}

/// Returns the name of a step that runs once for each definition under which the tick's run was not yet started.
fn round_name(name: &str, round: u32) -> String {
    if round == 0 { name.to_owned() } else { format!("{name}-{round}") }
}

/// The start of the run of a tick.
struct TickStart<'a> {
    by: &'a ScheduleDefinition,
    times: &'a Times,
    cx: &'a NodeContext,
    tick: Timestamp,
    /// The time up to which the schedule has decided on all ticks. None of these ticks cancels the run.
    decided: Timestamp,
    round: u32,
}

impl TickStart<'_> {
    async fn execute<W: State>(&self, graph: &Graph<W>, input: &W) -> Result<EndedTick, NodeError> {
        match self.by.overlap {
            Overlap::Allow => self.start_detached(graph, input).await,
            Overlap::CancelOld => self.start_until_next(graph, input).await,
            Overlap::Skip | Overlap::Queue(_) => self.to_the_end(graph, input, OnParentEnd::Leave).await,
        }
    }

    /// Starts a run and does not wait for its end.
    async fn start_detached<W: State>(&self, graph: &Graph<W>, input: &W) -> Result<EndedTick, NodeError> {
        let started = self
            .cx
            .spawn(graph, input.clone())
            .name(round_name("beside", self.round))
            .id(self.id())
            .label(SCHEDULE, &self.by.name)
            .label(ROLE, TICK)
            .label(TICK_AT, name_of(self.tick))
            .await;
        match started {
            Ok(run) => Ok((Some(run), TickEnd::Started)),
            Err(error) => Ok((None, end_of(error)?)),
        }
    }

    /// Starts a run and waits for its end.
    async fn to_the_end<W: State>(
        &self,
        graph: &Graph<W>,
        input: &W,
        bond: OnParentEnd,
    ) -> Result<EndedTick, NodeError> {
        let handle = match self.child(graph, input, bond).start().await {
            Ok(handle) => handle,
            Err(error) => return Ok((None, end_of(error)?)),
        };
        let end = tick_end(handle.result().await)?;
        Ok((Some(handle.run().clone()), end))
    }

    /// Starts a run and waits for its end or for the next tick. The next tick cancels the run.
    async fn start_until_next<W: State>(&self, graph: &Graph<W>, input: &W) -> Result<EndedTick, NodeError> {
        let Some(next) = self.times.after(self.tick.max(self.decided)) else {
            return self.to_the_end(graph, input, OnParentEnd::Cancel).await;
        };
        let handle = match self.child(graph, input, OnParentEnd::Cancel).start().await {
            Ok(handle) => handle,
            Err(error) => return Ok((None, end_of(error)?)),
        };
        // The timer of an older definition may be set for a tick that no longer exists.
        let timer = format!("next-{}", self.by.version);
        let left = self.by.start_of(next).since(self.cx.now());
        let end = tokio::select! {
            ended = handle.result() => tick_end(ended)?,
            slept = self.cx.sleep_as(timer, left) => {
                slept?;
                // When the activation ends, the runtime cancels this child.
                TickEnd::Overtaken
            }
        };
        Ok((Some(handle.run().clone()), end))
    }

    fn child<W: State>(
        &self,
        graph: &Graph<W>,
        input: &W,
        bond: OnParentEnd,
    ) -> ferrata_core::runtime::ChildRequest<W> {
        self.cx
            .child(graph, input.clone())
            .name(round_name("run", self.round))
            .id(self.id())
            .label(SCHEDULE, &self.by.name)
            .label(ROLE, TICK)
            .label(TICK_AT, name_of(self.tick))
            .on_parent_end(bond)
    }

    /// Returns the id of this tick's run.
    fn id(&self) -> String {
        run_id(&self.by.name, self.tick)
    }
}

/// Returns the id of the run of a tick.
pub(crate) fn run_id(schedule: &str, tick: Timestamp) -> String {
    format!("{schedule}.{}", name_of(tick))
}

/// Returns the result of a started run.
///
/// # Errors
///
/// The errors of [`end_of`].
fn tick_end<W: State>(result: Result<W, ChildError>) -> Result<TickEnd, NodeError> {
    match result {
        Ok(_) => Ok(TickEnd::Completed),
        // The run completed with a state of an unknown type. The schedule does not need the state.
        Err(ChildError::Refused(error)) if is_final(error.kind()) => Ok(TickEnd::Completed),
        Err(error) => end_of(error),
    }
}

/// Returns the end of a tick whose run has no result, from the error of the child.
///
/// # Errors
///
/// An error that may not occur again at the next attempt.
fn end_of(error: ChildError) -> Result<TickEnd, NodeError> {
    match error {
        ChildError::Failed { .. } => Ok(TickEnd::Failed),
        ChildError::Cancelled { .. } => Ok(TickEnd::Cancelled),
        ChildError::Gone { .. } => Ok(TickEnd::Purged),
        ChildError::Refused(error) if is_final(error.kind()) => Ok(TickEnd::Refused(error.to_string())),
        error => Err(error.into()),
    }
}

/// Returns whether a start that failed with this error would fail again.
fn is_final(kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, Corrupt, GraphChanged, Invalid, TooLarge, Unsupported};
    matches!(kind, AlreadyExists | Corrupt | GraphChanged | Invalid | TooLarge | Unsupported)
}
