//! A node that supervises another pipeline: the child is a run of its own, which it starts, watches, steers and ends.

mod child;
mod steer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::child::{Child, ChildStatus};
use super::{Handler, HandlerError, Registry, Stage};
use crate::condition::{Condition, Facts};
use crate::outcome::{StageOutcome, Usage};
use crate::pipeline::{Node, Pipeline};
use crate::transform::Transforms;
use crate::value::Value;

/// The type of nodes that supervise another pipeline.
pub(crate) const MANAGER: &str = "stack.manager_loop";

/// How long a cycle takes unless `manager.poll_interval` says otherwise, and how many there may be.
const POLL: Duration = Duration::from_secs(45);
const CYCLES: u32 = 1000;

/// What a manager does in a cycle unless `manager.actions` says otherwise.
const ACTIONS: &str = "observe,wait";

/// Supervises the pipeline in the file that `stack.child_dotfile` of the node, or of the graph, names.
///
/// - The child is a [child run](ferrata_core::node::NodeContext::child) of the node. Its id is that of the run, the node and the visit,
///   joined by dots; started anew, it has a number behind it. It begins with what the context holds, but for `internal.`, `graph.` and
///   `stack.` keys.
/// - A cycle looks at the child, steers it if `manager.actions` says `steer`, and then waits for `manager.poll_interval`, or for
///   the child's end if that comes first. Cycles and waits are recorded, so that `manager.max_cycles` counts over crashes, and a run
///   that waits for long rests. A child that is started anew has cycles and a `timeout` of its own.
/// - When the child completes, the outcome is `success`; when it fails or is cancelled, when the cycles are used up, or after the
///   node's `timeout`, it is `fail`. When `manager.stop_condition` holds, it is `success`. A child that has not ended by then is
///   cancelled, and so is it if the run is: a child run ends with its parent.
/// - `stack.child.run`, `stack.child.status`, `stack.child.cycles` and `stack.child.context` of the context tell what became of it.
///   A stop condition may also ask for `stack.child.node` and `stack.child.context.` and a key of the child.
/// - With `stack.child_autostart=false` it waits until another process starts a run of that id, which is no child run: it is looked at,
///   and cancelled where a child would be, but for a run that is cancelled.
///
/// It has to be [attached](Self::attach) to the runtime that its runs go on in.
#[derive(Clone, Debug)]
pub struct Manager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What runs the nodes of children, and steers them.
    registry: RwLock<Registry>,
    transforms: Arc<Transforms>,
    directory: Option<PathBuf>,
    runtime: OnceLock<Runtime>,
}

impl Manager {
    /// Runs children with these handlers and the built-in transforms. Children may have managers of their own: this one.
    pub fn new(registry: Registry) -> Self {
        Self::with(registry, Transforms::default(), None)
    }

    /// Runs children with these handlers and transforms, and looks for their files in a directory.
    pub fn with(registry: Registry, transforms: Transforms, directory: Option<PathBuf>) -> Self {
        let (transforms, runtime) = (Arc::new(transforms), OnceLock::new());
        let inner = Inner { registry: RwLock::new(registry), transforms, directory, runtime };
        Self { inner: Arc::new(inner) }
    }

    /// Says in which runtime children run. The manager keeps it, and with it what the runtime serves, until the process ends.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] if it is attached already.
    pub fn attach(&self, runtime: &Runtime) -> Result<(), Error> {
        self.inner.runtime.set(runtime.clone()).map_err(|_| {
            Error::new(
                ErrorKind::AlreadyExists,
                "the manager is attached to a runtime already; make one for each",
            )
        })
    }

    /// Returns the handlers of children.
    fn registry(&self) -> Registry {
        // Nothing panics while it is held.
        let registry = self.inner.registry.read().unwrap_or_else(PoisonError::into_inner).clone();
        registry.with(MANAGER, self.clone())
    }
}

/// What a cycle came to, as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cycle {
    verdict: Verdict,
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    /// What steering has spent.
    #[serde(default)]
    usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    GoOn,
    Succeeded,
    Failed,
    Stopped,
}

/// What a node says of its child.
struct Plan {
    poll: Duration,
    cycles: u32,
    stop: Condition,
    actions: Vec<String>,
    autostart: bool,
}

/// Returns an attribute of the node, else of the graph.
fn text(node: &Node, pipeline: &Pipeline, key: &str) -> String {
    let own = node.attributes.text(key);
    if own.is_empty() { pipeline.attributes.text(key).into_owned() } else { own.into_owned() }
}

fn plan(node: &Node, pipeline: &Pipeline) -> Result<Plan, Error> {
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
            "node {}: there is no action `{stranger}`; `manager.actions` lists `observe`, `steer` and `wait`",
            node.id()
        );
        return Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"));
    }
    Ok(Plan {
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
        let child = Child::of(stage, runtime, graph, plan.autostart).await?;
        let timeout = stage.node.attributes.get("timeout").and_then(Value::as_duration);
        // The first timer of the activation, whichever cycle it is in.
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
                // What it returns is dropped: the run has ended, and its child with it, or is left to whoever goes on with it.
                return Err(HandlerError::transient("the run is cancelled or left"));
            }
            outcome = self.supervise(stage, &plan, &child, &spent) => outcome?,
            over = out_of_time => {
                over.map_err(HandlerError::of_runtime)?;
                StageOutcome::fail(format!("the child took longer than the timeout of {:?}", timeout.unwrap_or_default()))
            }
        };
        let spent = spent.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.usage = Some(spent).filter(|spent| *spent != Usage::default());
        child.end("its manager has ended", &stage.cx).await?;
        let seen = child.look().await.map_err(HandlerError::of_runtime)?;
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
        plan: &Plan,
        child: &Child<'_>,
        spent: &Mutex<Usage>,
    ) -> Result<StageOutcome, HandlerError> {
        for number in 1..=plan.cycles {
            let work = || self.cycle(stage, plan, child, number);
            let cycle = stage.cx.step(child.named(&format!("cycle.{number}")), work);
            let cycle: Cycle = cycle.await.map_err(HandlerError::of_runtime)?;
            {
                // Nothing panics while it is held.
                let mut spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
                *spent = spent.plus(cycle.usage);
            }
            let outcome = match cycle.verdict {
                Verdict::GoOn => None,
                Verdict::Succeeded => Some(StageOutcome::success().with_notes("the child completed")),
                Verdict::Stopped => Some(StageOutcome::success().with_notes("the stop condition holds")),
                Verdict::Failed => Some(StageOutcome::fail(cycle.reason)),
            };
            if let Some(outcome) = outcome {
                return Ok(outcome.with("stack.child.cycles", number));
            }
            // What a cycle of before a crash waited for is on record, too.
            if plan.actions.iter().any(|action| action == "wait") {
                let poll = child.sleep(&stage.cx, &format!("poll.{number}"), plan.poll);
                stage.mark_waited();
                tokio::select! {
                    biased;
                    () = child.ended() => {}
                    over = poll => over.map_err(HandlerError::of_runtime)?,
                }
            }
        }
        let message = format!("the child has not ended within {} cycles", plan.cycles);
        Ok(StageOutcome::fail(message).with("stack.child.cycles", plan.cycles))
    }

    /// Looks at the child once, and decides.
    async fn cycle(
        &self,
        stage: &Stage,
        plan: &Plan,
        child: &Child<'_>,
        number: u32,
    ) -> Result<Cycle, ferrata_core::node::NodeError> {
        child.go_on().await?;
        let seen = child.look().await?;
        let event = json!({"run": child.key().run.as_str(), "status": seen.status(), "cycle": number});
        stage.cx.emit("stack.child", event)?;
        let mut usage = Usage::default();
        if seen.is_open() && plan.actions.iter().any(|action| action == "steer") {
            let registry = self.inner.registry.read().unwrap_or_else(PoisonError::into_inner).clone();
            usage = steer::steer(stage, &registry, child, &seen, number).await?;
        }
        let (verdict, reason) = match &seen {
            ChildStatus::Ended(Outcome::Completed(_)) => (Verdict::Succeeded, String::new()),
            ChildStatus::Ended(Outcome::Failed { failure, .. }) => {
                (Verdict::Failed, format!("the child failed: {failure}"))
            }
            ChildStatus::Ended(Outcome::Cancelled { reason, .. }) => {
                (Verdict::Failed, format!("the child was cancelled: {reason}"))
            }
            _ if !plan.stop.is_empty() && holds(&plan.stop, stage, &seen) => {
                (Verdict::Stopped, String::new())
            }
            _ => (Verdict::GoOn, String::new()),
        };
        Ok(Cycle { verdict, status: seen.status().to_owned(), reason, usage })
    }
}

/// Tells whether a stop condition holds: on the context of the manager, and what is seen of the child.
fn holds(condition: &Condition, stage: &Stage, seen: &ChildStatus) -> bool {
    let of_child = |key: &str| match key {
        "stack.child.status" => Some(json!(seen.status())),
        "stack.child.node" => seen.value("current_node"),
        key => seen.value(key.strip_prefix("stack.child.context.")?),
    };
    let lookup = |key: &str| of_child(key).or_else(|| stage.context.get_value(key).cloned());
    condition.holds(&Facts::new("success", "", &lookup))
}
