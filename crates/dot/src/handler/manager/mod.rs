//! A node that supervises another pipeline. This pipeline is a separate child run, which the node starts, observes, steers and ends.

mod child;
mod steer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::wording::count;
use ferrata_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::child::{ChildStatus, ManagedChild};
use super::{Handler, HandlerError, Registry, Stage};
use crate::condition::{Condition, ConditionFacts};
use crate::outcome::{StageOutcome, Usage};
use crate::pipeline::{Node, Pipeline};
use crate::transform::Transforms;
use crate::value::Value;

/// The handler type of nodes that supervise another pipeline.
pub(crate) const MANAGER: &str = "stack.manager_loop";

/// Default of `manager.poll_interval`, the duration of a cycle. The next constant is the default number of cycles.
const POLL: Duration = Duration::from_secs(45);
const CYCLES: u32 = 1000;

/// Default of `manager.actions`.
const ACTIONS: &str = "observe,wait";

/// The handler of nodes that supervise a child pipeline. The attribute `stack.child_dotfile` of the node or the graph names the file of this
/// pipeline.
///
/// - The child is a [child run](ferrata_core::node::NodeContext::child) of the node. Its id consists of the run, the node and the visit, joined by
///   dots. A restarted child also has a number at the end. The child's context starts with the values of the manager's context, except keys that
///   begin with `internal.`, `graph.` or `stack.`.
/// - In each cycle, the manager reads the child, steers the child if `manager.actions` includes `steer`, and then waits for `manager.poll_interval`
///   or for the child's end. Cycles and waits are recorded. So `manager.max_cycles` counts across crashes, and a run in a long wait becomes idle. A
///   restarted child has its own cycles and its own `timeout`.
/// - The outcome is `success` if the child completes or `manager.stop_condition` holds. The outcome is `fail` if the child fails or is cancelled, if
///   the maximum number of cycles is reached, or if the node's `timeout` expires. Then the manager cancels a child that has not ended. If the run of
///   the manager is cancelled, its child is cancelled too, because a child run ends with its parent.
/// - The context stores the result as `stack.child.run`, `stack.child.status`, `stack.child.cycles` and `stack.child.context`. A stop condition may
///   also read `stack.child.node`, and `stack.child.context.` followed by a key of the child's context.
/// - With `stack.child_autostart=false`, the manager waits until another process starts a run with the child's id. The run that the other process
///   starts is not a child run. The manager reads and cancels it like a child, with one exception: if the run of the manager is cancelled, the other
///   run is not cancelled.
///
/// [Attach](Self::attach) the manager to the runtime that executes its runs.
#[derive(Clone, Debug)]
pub struct Manager {
    inner: Arc<ManagerInner>,
}

#[derive(Debug)]
struct ManagerInner {
    /// The handlers for the nodes of child pipelines, and for steering.
    registry: RwLock<Registry>,
    transforms: Arc<Transforms>,
    directory: Option<PathBuf>,
    runtime: OnceLock<Runtime>,
}

impl Manager {
    /// Creates a manager. Children run with the handlers of `registry` and the built-in transforms. If a child pipeline contains managers, this
    /// manager handles them too.
    pub fn new(registry: Registry) -> Self {
        Self::with(registry, Transforms::default(), None)
    }

    /// Creates a manager. Children run with these handlers and transforms, and their files are in `directory`.
    pub fn with(registry: Registry, transforms: Transforms, directory: Option<PathBuf>) -> Self {
        let (transforms, runtime) = (Arc::new(transforms), OnceLock::new());
        let inner = ManagerInner { registry: RwLock::new(registry), transforms, directory, runtime };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the runtime in which children run. The manager keeps the runtime, and everything that it serves, until the process ends.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::AlreadyExists`] if a runtime is already attached.
    pub fn attach(&self, runtime: &Runtime) -> Result<(), Error> {
        self.inner.runtime.set(runtime.clone()).map_err(|_| {
            Error::new(
                ErrorKind::AlreadyExists,
                "the manager is already attached to a runtime; create one manager per runtime",
            )
        })
    }

    /// Returns the handlers for child pipelines.
    fn registry(&self) -> Registry {
        // No code panics while it holds this lock.
        let registry = self.inner.registry.read().unwrap_or_else(PoisonError::into_inner).clone();
        registry.with(MANAGER, self.clone())
    }
}

/// The recorded result of a cycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CycleRecord {
    verdict: CycleVerdict,
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    /// The usage of the steering tasks.
    #[serde(default)]
    usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CycleVerdict {
    GoOn,
    Succeeded,
    Failed,
    Stopped,
}

/// The settings that a node has for its child.
struct ChildPlan {
    poll: Duration,
    cycles: u32,
    stop: Condition,
    actions: Vec<String>,
    autostart: bool,
}

/// Returns an attribute of the node, or else of the graph.
fn text(node: &Node, pipeline: &Pipeline, key: &str) -> String {
    let own = node.attributes.text(key);
    if own.is_empty() { pipeline.attributes.text(key).into_owned() } else { own.into_owned() }
}

fn plan(node: &Node, pipeline: &Pipeline) -> Result<ChildPlan, Error> {
    let get = |key: &str| node.attributes.get(key).or_else(|| pipeline.attributes.get(key));
    let actions = match &*text(node, pipeline, "manager.actions") {
        "" => ACTIONS.to_owned(),
        actions => actions.to_owned(),
    };
    let actions: Vec<String> = actions
        .split(',')
        .map(|action| action.trim().to_owned())
        .filter(|action| !action.is_empty())
        .collect();
    if let Some(stranger) = actions.iter().find(|action| !["observe", "steer", "wait"].contains(&&***action))
    {
        let message = format!(
            "node {}: the action `{stranger}` does not exist; `manager.actions` takes `observe`, `steer` and `wait`",
            node.id()
        );
        return Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"));
    }
    Ok(ChildPlan {
        poll: get("manager.poll_interval").and_then(Value::as_duration).unwrap_or(POLL),
        cycles: get("manager.max_cycles")
            .and_then(Value::as_integer)
            .and_then(|cycles| u32::try_from(cycles).ok())
            .unwrap_or(CYCLES),
        stop: Condition::parse(text(node, pipeline, "manager.stop_condition").trim())?,
        actions,
        autostart: get("stack.child_autostart").and_then(Value::as_bool).unwrap_or(true),
    })
}

#[async_trait]
impl Handler for Manager {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let Some(runtime) = self.inner.runtime.get() else {
            return Err(HandlerError::permanent(
                "the manager is not attached to a runtime; call `Manager::attach`",
            ));
        };
        let plan =
            plan(&stage.node, &stage.pipeline).map_err(|error| HandlerError::permanent(error.to_string()))?;
        let graph = self.child_graph(&stage.node, &stage.pipeline);
        let graph = graph.map_err(|error| HandlerError::permanent(error.to_string()))?;
        let child = ManagedChild::of(stage, runtime, graph, plan.autostart).await?;
        let timeout = stage.node.attributes.get("timeout").and_then(Value::as_duration);
        // Use the first timer of the activation, so that each cycle continues the same timer.
        let timer = timeout.map(|timeout| child.sleep(&stage.cx, "timeout", timeout));
        let out_of_time = async {
            match timer {
                Some(timer) => timer.await,
                None => std::future::pending().await,
            }
        };
        let spent = Mutex::new(Usage::default());
        let mut outcome = tokio::select! {
            biased;
            () = stage.cx.cancelled() => {
                // The returned error is dropped, because the run and its child have ended or another process continues them.
                return Err(HandlerError::transient("the run was cancelled, or the node was abandoned"));
            }
            outcome = self.supervise(stage, &plan, &child, &spent) => outcome?,
            over = out_of_time => {
                over.map_err(HandlerError::of_runtime)?;
                StageOutcome::fail(format!("the child exceeded the timeout of {:?}", timeout.unwrap_or_default()))
            }
        };
        let spent = spent.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.usage = Some(spent).filter(|spent| *spent != Usage::default());
        child.end("its manager has ended", &stage.cx).await?;
        let seen = child.read_status().await.map_err(HandlerError::of_runtime)?;
        Ok(outcome
            .with("stack.child.run", child.key().run.as_str())
            .with("stack.child.status", seen.status())
            .with("stack.child.context", seen.context()))
    }

    fn times_itself(&self) -> bool {
        true
    }

    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        plan(node, pipeline)?;
        self.child_pipeline(node, pipeline).map(|_| ())
    }
}

impl Manager {
    async fn supervise(
        &self,
        stage: &Stage,
        plan: &ChildPlan,
        child: &ManagedChild<'_>,
        spent: &Mutex<Usage>,
    ) -> Result<StageOutcome, HandlerError> {
        for number in 1..=plan.cycles {
            let work = || self.cycle(stage, plan, child, number);
            let cycle = stage.cx.step(child.named(&format!("cycle.{number}")), work);
            let cycle: CycleRecord = cycle.await.map_err(HandlerError::of_runtime)?;
            {
                // No code panics while it holds this lock.
                let mut spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
                *spent = spent.plus(cycle.usage);
            }
            let outcome = match cycle.verdict {
                CycleVerdict::GoOn => None,
                CycleVerdict::Succeeded => Some(StageOutcome::success().with_notes("the child completed")),
                CycleVerdict::Stopped => Some(StageOutcome::success().with_notes("the stop condition holds")),
                CycleVerdict::Failed => Some(StageOutcome::fail(cycle.reason)),
            };
            if let Some(outcome) = outcome {
                return Ok(outcome.with("stack.child.cycles", number));
            }
            // If a crash interrupted the wait of a cycle, the wait is already recorded.
            if plan.actions.iter().any(|action| action == "wait") {
                let poll = child.sleep(&stage.cx, &format!("poll.{number}"), plan.poll);
                stage.mark_waited();
                tokio::select! {
                    biased;
                    () = child.wait_for_end() => {}
                    over = poll => over.map_err(HandlerError::of_runtime)?,
                }
            }
        }
        let message = format!("the child has not ended within {}", count(plan.cycles, "cycle"));
        Ok(StageOutcome::fail(message).with("stack.child.cycles", plan.cycles))
    }

    /// Reads the child once, and decides what to do.
    async fn cycle(
        &self,
        stage: &Stage,
        plan: &ChildPlan,
        child: &ManagedChild<'_>,
        number: u32,
    ) -> Result<CycleRecord, ferrata_core::node::NodeError> {
        child.continue_run().await?;
        let seen = child.read_status().await?;
        let event = json!({"run": child.key().run.as_str(), "status": seen.status(), "cycle": number});
        stage.cx.emit("stack.child", event)?;
        let mut usage = Usage::default();
        if seen.is_open() && plan.actions.iter().any(|action| action == "steer") {
            let registry = self.inner.registry.read().unwrap_or_else(PoisonError::into_inner).clone();
            usage = steer::steer(stage, &registry, child, &seen, number).await?;
        }
        let (verdict, reason) = match &seen {
            ChildStatus::Ended(Outcome::Completed(_)) => (CycleVerdict::Succeeded, String::new()),
            ChildStatus::Ended(Outcome::Failed { failure, .. }) => {
                (CycleVerdict::Failed, format!("the child failed: {failure}"))
            }
            ChildStatus::Ended(Outcome::Cancelled { reason, .. }) => {
                (CycleVerdict::Failed, format!("the child was cancelled: {reason}"))
            }
            _ if !plan.stop.is_empty() && holds(&plan.stop, stage, &seen) => {
                (CycleVerdict::Stopped, String::new())
            }
            _ => (CycleVerdict::GoOn, String::new()),
        };
        Ok(CycleRecord { verdict, status: seen.status().to_owned(), reason, usage })
    }
}

/// Returns whether a stop condition holds, for the manager's context and the visible data of the child.
fn holds(condition: &Condition, stage: &Stage, seen: &ChildStatus) -> bool {
    let of_child = |key: &str| match key {
        "stack.child.status" => Some(json!(seen.status())),
        "stack.child.node" => seen.value("current_node"),
        key => seen.value(key.strip_prefix("stack.child.context.")?),
    };
    let lookup = |key: &str| of_child(key).or_else(|| stage.context.get_value(key).cloned());
    condition.holds(&ConditionFacts::new("success", "", &lookup))
}
