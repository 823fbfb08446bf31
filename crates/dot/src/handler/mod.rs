//! Handlers do the work of nodes. There is one handler for each type of node, and a registry finds the handler of a node.

mod activity;
mod capture;
mod codergen;
mod command;
mod command_text;
#[cfg(unix)]
mod guard;
mod hooks;
mod inherit;
mod manager;
mod noop;
mod process;
mod rank;
mod setting;
mod tool;
mod variables;
mod wait;
mod wait_human;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ferrata_core::graph::Effect;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind};

pub use activity::ActivityCounter;
pub(crate) use capture::AttemptOutput;
pub(crate) use codergen::response_key;
pub use codergen::{Backend, BackendAnswer, Codergen, Simulate, TaskRequest};
pub use command::CommandBackend;
pub(crate) use command::STAGE;
#[cfg(unix)]
pub use guard::{guard_commands, kill_commands};
pub(crate) use inherit::is_inherited_by_tools;
pub(crate) use manager::MANAGER;
pub use manager::Manager;
pub use noop::Noop;
pub(crate) use rank::{BEST, RESULTS, RankHandler};
pub use tool::Tool;
pub use wait::WaitHandler;
pub use wait_human::WaitHuman;

use crate::fidelity::FidelityChoice;
use crate::outcome::StageOutcome;
use crate::pipeline::{DEFAULT_TYPE, Node, Pipeline, SHAPES};

/// The input of a handler: one attempt of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stage {
    /// The runtime's context of the attempt, with the run, visit, attempt and cancellation.
    pub cx: NodeContext,
    /// The node and its attributes.
    pub node: Arc<Node>,
    /// The pipeline that contains the node.
    pub pipeline: Arc<Pipeline>,
    /// The context of the pipeline as the node sees it. To change it, a handler returns changes in its outcome.
    pub context: Arc<Context>,
    /// The handler type of the node. The registry found the handler by this type.
    pub kind: Arc<str>,
    /// How much of the previous run a task of this node receives.
    pub told: FidelityChoice,
    /// A counter with which long work shows that it is still active.
    pub pulse: ActivityCounter,
    /// The output of the command that this attempt runs.
    pub(crate) printed: AttemptOutput,
    /// Whether the variables in the prompt are already replaced.
    pub(crate) is_expanded: bool,
    /// Records whether the work waited.
    pub(crate) wait_mark: WaitMark,
}

impl Stage {
    /// Records that the work waited for a person or for a time. After a wait, the count of visits that ends loops without waits starts again. An
    /// automatic answer does not count as a wait.
    pub fn mark_waited(&self) {
        self.wait_mark.0.store(true, Ordering::Relaxed);
    }
}

/// Records whether the work of an attempt waited. Clones share the value.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitMark(Arc<AtomicBool>);

impl WaitMark {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The reason why a handler returns no outcome.
///
/// A failure of the work itself is not an error but an outcome: [`StageOutcome::fail`]. Use this error if a problem prevented an outcome.
#[derive(Debug)]
pub struct HandlerError {
    kind: HandlerErrorKind,
    message: String,
    /// Whether the work is known not to have started.
    not_done: bool,
    /// The error of the runtime.
    runtime: Option<NodeError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandlerErrorKind {
    Transient,
    Permanent,
    NoStatus,
    Runtime,
}

impl HandlerError {
    fn new(kind: HandlerErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), not_done: false, runtime: None }
    }

    /// Wraps the error of the runtime for a question or a wait. The node returns this error to the runtime unchanged.
    pub fn of_runtime(error: impl Into<NodeError>) -> Self {
        let error = error.into();
        Self {
            runtime: Some(error),
            ..Self::new(HandlerErrorKind::Runtime, "the runtime stopped waiting for the node")
        }
    }

    /// Returns the runtime's error, if there is one.
    pub(crate) fn into_runtime(self) -> Result<NodeError, Self> {
        match self {
            Self { runtime: Some(error), .. } => Ok(error),
            other => Err(other),
        }
    }

    /// Creates an error after which a retry may succeed, such as an unreachable network, a rate limit or a fault of a server.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::Transient, message)
    }

    /// Creates an error after which a retry cannot succeed, such as a wrong request, a missing permission or a wrong configuration.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::Permanent, message)
    }

    /// Marks that no work was done, so that a retry is safe. A node with `effect=external` retries without a question only after such an error.
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Returns whether no work was done.
    pub fn is_not_done(&self) -> bool {
        self.not_done
    }

    /// Creates an error for work that ended without reporting a status. The result is a success if the node has `auto_status`, and otherwise a
    /// failure.
    pub fn no_status(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::NoStatus, message)
    }

    /// Returns whether a retry makes sense.
    pub fn is_transient(&self) -> bool {
        self.kind == HandlerErrorKind::Transient
    }

    /// Returns whether the work ended without reporting a status.
    pub fn is_no_status(&self) -> bool {
        self.kind == HandlerErrorKind::NoStatus
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HandlerError {}

/// Does the work of all nodes of one type. One handler works for many nodes concurrently.
///
/// # Cancel safety
///
/// The future may be dropped at any `.await`: when the run is cancelled, when the node's `timeout` expires, or when another process claims the run.
/// After a crash, the work of a node that was running starts again, unless the effect of the node is `External`.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Does the work of one attempt.
    ///
    /// # Errors
    ///
    /// [`HandlerError`] if the work has no outcome. A panic is caught, and the node fails.
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError>;

    /// Returns the effect that a repetition of the work has. The attribute `effect` of a node takes precedence.
    fn effect(&self) -> Effect {
        Effect::Write
    }

    /// Returns whether the handler applies the node's `timeout` itself. Otherwise the runtime ends an attempt that takes longer.
    ///
    /// A handler that asks questions or sleeps must apply the timeout itself. During such a wait the process may release the run, and then the work
    /// starts again.
    fn times_itself(&self) -> bool {
        false
    }

    /// Returns whether the handler gives tasks to a backend. A task may begin with a summary of the run so far. The context stores the last result of
    /// each node only if a pipeline has such a handler.
    fn is_task(&self) -> bool {
        false
    }

    /// Rejects a node that the handler cannot run. The compiler calls this method, so no run has started.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the node lacks something. The message names what is missing.
    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        let _ = (node, pipeline);
        Ok(())
    }
}

/// The handler type of nodes that call a model once, without tools of their own.
pub(crate) const PROMPT: &str = "prompt";

/// The handlers of a pipeline's nodes, by the name of their type.
///
/// # Examples
///
/// ```
/// use ferrata_dot::handler::{CommandBackend, Codergen, Registry};
///
/// let registry = Registry::default().with("codergen", Codergen::new(CommandBackend::new("cat")));
/// assert!(registry.types().any(|name| name == "tool"));
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    /// The built-in types whose handler was replaced.
    own: BTreeSet<String>,
    /// The nodes after which a run stops until a person answers a question.
    stops: BTreeSet<String>,
}

impl Registry {
    /// Adds the handler of a type. The new handler replaces an earlier handler of the same type.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        let name = name.into();
        self.own.insert(name.clone());
        self.handlers.insert(name, Arc::new(handler));
        self
    }

    /// Returns whether the built-in handler of a type was replaced.
    pub(crate) fn has_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Makes runs stop after a node. The runs continue when the question `node@visit:after` is accepted.
    #[must_use]
    pub(crate) fn stop_after(mut self, node: impl Into<String>) -> Self {
        self.stops.insert(node.into());
        self
    }

    /// Returns whether runs stop after a node.
    pub(crate) fn stops_after(&self, node: &str) -> bool {
        self.stops.contains(node)
    }

    /// Wraps every handler. The wrapper may, for example, record the results.
    pub(crate) fn wrapped(mut self, around: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler>) -> Self {
        for handler in self.handlers.values_mut() {
            *handler = around(Arc::clone(handler));
        }
        self
    }

    /// Returns the types that have handlers.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// Returns the type of a node. The type of a node is the explicit type if this type has a handler or belongs to the dialect, and otherwise the
    /// type of the node's shape.
    pub(crate) fn type_of(&self, node: &Node) -> String {
        let of_dialect = |name: &str| SHAPES.iter().any(|(_, known)| *known == name);
        let known = |name: &str| self.handlers.contains_key(name) || of_dialect(name);
        node.handler_type(known).into_owned()
    }

    /// Finds the type of a node and its handler. The type of a node is the explicit type if this type has a handler or belongs to the dialect, and
    /// otherwise the type of the shape. The handler of `codergen` also runs nodes of type `prompt`, unless `prompt` has its own handler.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the dialect knows the explicit type but it has no handler. The handler of the shape does not replace it then,
    /// because that handler would only pretend to do the work.
    pub fn resolve(&self, node: &Node) -> Result<(String, Arc<dyn Handler>), Error> {
        let name = self.type_of(node);
        let task = || self.handlers.get(DEFAULT_TYPE).filter(|_| name == PROMPT);
        match self.handlers.get(&name).or_else(task) {
            Some(handler) => Ok((name, Arc::clone(handler))),
            None => {
                let message = format!(
                    "node {}: the type `{name}` has no handler; register a handler, or remove the node",
                    node.id()
                );
                Err(Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile"))
            }
        }
    }
}

impl Default for Registry {
    /// Returns the registry with the built-in handlers: `start`, `exit`, `conditional`, `parallel`, `parallel.fan_in`, `tool`, `wait.human`, `wait`
    /// and `codergen`. The handler of `codergen` also runs nodes of type `prompt`. Its backend only [simulates](Simulate) work.
    fn default() -> Self {
        let empty = Self { handlers: BTreeMap::new(), own: BTreeSet::new(), stops: BTreeSet::new() };
        let noops = empty.with("start", Noop).with("exit", Noop).with("conditional", Noop);
        let noops = noops.with("parallel", Noop).with("parallel.fan_in", Noop);
        let waits = noops.with("wait.human", WaitHuman).with("wait", WaitHandler);
        let all = waits.with("tool", Tool::default()).with(DEFAULT_TYPE, Codergen::new(Simulate));
        Self { own: BTreeSet::new(), ..all }
    }
}
