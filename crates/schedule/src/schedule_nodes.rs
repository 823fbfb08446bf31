//! The workflow that a schedule is: it waits for a tick, starts the run of it, and waits for the next.
//!
//! The schedule records every decision before it acts on it: the planned tick, the ticks that are due, the end of a run. A process that claims the
//! schedule after a crash finds these decisions. The run of a tick is a child, which the protocol starts once.

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
use crate::opaque_state::{self, OpaqueState};
use crate::policy::Overlap;
use crate::progress::{Progress, RunSpan, TickEnd};
use crate::times::{Times, name_of};

/// The channels.
pub(crate) const DEFINITION: &str = "definition";
pub(crate) const PROGRESS: &str = "progress";
const SUCCESSOR: &str = "successor";

/// Labels of the runs of a schedule: the schedule's name, the kind of run, and the tick.
pub(crate) const SCHEDULE: &str = "schedule";
pub(crate) const ROLE: &str = "schedule.role";
pub(crate) const CLOCK: &str = "clock";
pub(crate) const TICK: &str = "tick";
const TICK_AT: &str = "schedule.tick";

/// Number of ticks in one log of a schedule: the history of a log retains each activation.
const TICKS_OF_A_LOG: u32 = 250;

/// Shared data of a schedule's nodes.
pub(crate) struct ScheduleNodes<S: State> {
    pub(crate) definition: Definition,
    pub(crate) times: Times,
    pub(crate) workflow: String,
    pub(crate) graph: Graph<S>,
    pub(crate) input: S,
    pub(crate) store: Arc<dyn CheckpointStore>,
}

/// The plan of an activation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct TickPlan {
    /// The version of the definition by which it was planned.
    version: u32,
    /// Start of the search for ticks.
    decided: Timestamp,
    tick: Option<Timestamp>,
}

/// Creates the workflow of a schedule. Its state has the version of the definition. A process with an older definition skips the run. A process
/// with a newer one migrates the state, that is it inserts its own definition.
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
            let progress = s.get::<Progress>(PROGRESS).ok().flatten().unwrap_or_default();
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
        Error::new(ErrorKind::Invalid, "cannot create the workflow of the schedule").with_source(error)
    })
}

/// Returns the state in which a log begins.
pub(crate) fn initial_state(definition: &Definition, progress: &Progress) -> Result<Context> {
    let mut state = Context::new();
    state.set(DEFINITION, definition)?;
    state.set(PROGRESS, progress)?;
    Ok(state)
}

/// Waits until the next tick is due, and says which ticks start runs then.
async fn wait_for_tick<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<Progress>(PROGRESS)?.unwrap_or_default();
    // First of all: a line may never be empty, and those in it have their runs in the new log.
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

/// Continues in a new log: a run of the same workflow, which this run starts exactly once.
async fn move_on<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    progress: &Progress,
) -> Result<(), NodeError> {
    let next = Progress { generation: progress.generation + 1, ticks: 0, ..progress.clone() };
    let state = initial_state(&work.definition, &next)?;
    let graph = graph(work)?;
    cx.spawn(&graph, state)
        .name("successor")
        .label(SCHEDULE, &work.definition.name)
        .label(ROLE, CLOCK)
        .await?;
    Ok(())
}

/// By what the run of a tick is started and waited for, whatever definition comes meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TickOptions {
    overlap: Overlap,
    workflow: String,
}

/// Starts the run of the first tick that is due, and waits for its end where the policy asks for it.
async fn run_tick<S: State>(
    work: &Arc<ScheduleNodes<S>>,
    cx: &NodeContext,
    mut state: Draft<Context>,
) -> Result<ferrata_core::state::Update<Context>, NodeError> {
    let mut progress = state.get::<Progress>(PROGRESS)?.unwrap_or_default();
    let Some(&tick) = progress.due.front() else { return Ok(state.into()) };
    let decided = match progress.decided {
        Some(decided) => decided,
        // Other times have come with a newer definition, and count from now on, whatever goes on.
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

/// Starts the run of a tick, or finds the one that an earlier definition started. Returns its result and its definition.
async fn start_tick<S: State>(
    work: &ScheduleNodes<S>,
    cx: &NodeContext,
    tick: Timestamp,
    decided: Timestamp,
) -> Result<(Definition, EndedTick), NodeError> {
    let definition = &work.definition;
    let mut round = 0;
    loop {
        let ours = TickOptions { overlap: definition.overlap, workflow: definition.workflow.clone() };
        let step = round_name("began", round);
        let terms = cx.step(step, async || Ok::<_, NodeError>(ours)).await?;
        let by = Definition { overlap: terms.overlap, ..definition.clone() };
        let start = TickStart { by: &by, times: &work.times, cx, tick, decided, round };
        if terms.workflow == definition.workflow {
            let ended = start.execute(&work.graph, &work.input).await?;
            return Ok((by, ended));
        }
        match start.execute(&opaque_state::graph(&terms.workflow)?, &OpaqueState).await? {
            // It was not started before the newer definition came, so that starts its own.
            (_, TickEnd::Refused(_)) => round += 1,
            ended => return Ok((by, ended)),
        }
    }
}

/// Returns the name of a step that runs once for each definition that found the tick's run not started.
fn round_name(name: &str, round: u32) -> String {
    if round == 0 { name.to_owned() } else { format!("{name}-{round}") }
}

/// The start of the run of a tick.
struct TickStart<'a> {
    by: &'a Definition,
    times: &'a Times,
    cx: &'a NodeContext,
    tick: Timestamp,
    /// Up to which moment ticks have been decided on: none of those cancels the run.
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

    /// Starts a run that is nothing to the schedule from then on.
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

    /// Starts a run that is cancelled when the next tick comes, and waits for either.
    async fn start_until_next<W: State>(&self, graph: &Graph<W>, input: &W) -> Result<EndedTick, NodeError> {
        let Some(next) = self.times.after(self.tick.max(self.decided)) else {
            return self.to_the_end(graph, input, OnParentEnd::Cancel).await;
        };
        let handle = match self.child(graph, input, OnParentEnd::Cancel).start().await {
            Ok(handle) => handle,
            Err(error) => return Ok((None, end_of(error)?)),
        };
        // The timer of an older definition is for a tick that may not come.
        let timer = format!("next-{}", self.by.version);
        let left = self.by.start_of(next).since(self.cx.now());
        let end = tokio::select! {
            ended = handle.result() => tick_end(ended)?,
            slept = self.cx.sleep_as(timer, left) => {
                slept?;
                // The end of the activation cancels the child that belongs to it.
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

    /// Returns the id of the run.
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
/// As [`end_of`].
fn tick_end<W: State>(result: Result<W, ChildError>) -> Result<TickEnd, NodeError> {
    match result {
        Ok(_) => Ok(TickEnd::Completed),
        // The run completed with a state of unknown type, which the schedule does not need.
        Err(ChildError::Refused(error)) if is_final(error.kind()) => Ok(TickEnd::Completed),
        Err(error) => end_of(error),
    }
}

/// Returns the end of a tick whose run has no result.
///
/// # Errors
///
/// Errors that the next attempt may avoid.
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
