//! Handlers, which do the work of nodes: one for each type, and the registry that finds them.

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

/// The input of a handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stage {
    /// The context of the attempt: run, visit, attempt and cancellation.
    pub cx: NodeContext,
    /// The node with its attributes.
    pub node: Arc<Node>,
    /// The pipeline of the node.
    pub pipeline: Arc<Pipeline>,
    /// The current context. A handler returns changes in its outcome.
    pub context: Arc<Context>,
    /// The type of the node, by which the registry found the handler.
    pub kind: Arc<str>,
    /// How much of the run so far a task receives.
    pub told: FidelityChoice,
    /// Shows the progress of long work.
    pub pulse: ActivityCounter,
    /// The output of the attempt's command.
    pub(crate) printed: AttemptOutput,
    /// Whether the variables of the prompt are already replaced.
    pub(crate) is_expanded: bool,
    /// Whether the work waited.
    pub(crate) wait_mark: WaitMark,
}

impl Stage {
    /// Records that the work waited for a person or for time. The visit limit, which ends a loop without waits, then counts from the start again. An
    /// automatic answer is not a wait.
    pub fn mark_waited(&self) {
        self.wait_mark.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the work of an attempt waited. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitMark(Arc<AtomicBool>);

impl WaitMark {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The reason why a handler has no outcome.
///
/// A failure of the work itself is an outcome, [`StageOutcome::fail`]; this error is for problems that prevented one.
#[derive(Debug)]
pub struct HandlerError {
    kind: HandlerErrorKind,
    message: String,
    /// Whether no work was done.
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

    /// Wraps the runtime's error for a question or a wait. It returns to the runtime unchanged and is not an outcome of the work.
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

    /// Creates an error that a retry may cure: an unreachable network, a rate limit, a fault of a server.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::Transient, message)
    }

    /// Creates an error that a retry cannot cure: a wrong request, a missing permission, a wrong configuration.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::Permanent, message)
    }

    /// Marks that no work was done, so a retry is safe: only then does a node with `effect=external` retry without a question.
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Returns whether no work was done.
    pub fn is_not_done(&self) -> bool {
        self.not_done
    }

    /// Creates an error for work that ended without a status: a success if the node has `auto_status`, otherwise a failure.
    pub fn no_status(message: impl Into<String>) -> Self {
        Self::new(HandlerErrorKind::NoStatus, message)
    }

    /// Returns whether a retry makes sense.
    pub fn is_transient(&self) -> bool {
        self.kind == HandlerErrorKind::Transient
    }

    /// Returns whether the error is a missing status.
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

/// Does the work of all nodes of a type. One handler serves them concurrently.
///
/// # Cancel safety
///
/// The future may be dropped at any await: when the run is cancelled, when the node's `timeout` expires, or when another process claims the run.
/// After a crash, a running node runs again, unless its effect is `External`.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Does the work of one attempt.
    ///
    /// # Errors
    ///
    /// Returns [`HandlerError`] if the work has no outcome. A panic is caught and fails the node.
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError>;

    /// Returns the effect of repeating the work, which the node's `effect` overrides.
    fn effect(&self) -> Effect {
        Effect::Write
    }

    /// Returns whether the handler enforces the node's `timeout` itself. Otherwise the runtime ends an attempt that takes longer.
    ///
    /// A handler that asks or sleeps must enforce it: during the wait the process may release the run, and the work then starts again.
    fn times_itself(&self) -> bool {
        false
    }

    /// Returns whether the handler gives tasks to a backend, with a summary of the run so far. Only then does the context store the last result of
    /// every node.
    fn is_task(&self) -> bool {
        false
    }

    /// Rejects a node that the handler could not run, before any run starts.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the missing parts.
    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        let _ = (node, pipeline);
        Ok(())
    }
}

/// The type of nodes that call a model once, without tools of its own.
pub(crate) const PROMPT: &str = "prompt";

/// Handlers by type name.
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
    /// The types with a handler other than the built-in one.
    own: BTreeSet<String>,
    /// The nodes after which a run stops until an answer continues it.
    stops: BTreeSet<String>,
}

impl Registry {
    /// Adds a handler and replaces an earlier one for the type.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        let name = name.into();
        self.own.insert(name.clone());
        self.handlers.insert(name, Arc::new(handler));
        self
    }

    /// Returns whether a registered handler replaces the built-in one for a type.
    pub(crate) fn has_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Makes runs stop after a node until the question `node@visit:after` is accepted.
    #[must_use]
    pub(crate) fn stop_after(mut self, node: impl Into<String>) -> Self {
        self.stops.insert(node.into());
        self
    }

    /// Returns whether runs stop after a node.
    pub(crate) fn stops_after(&self, node: &str) -> bool {
        self.stops.contains(node)
    }

    /// Wraps every handler, for example to record its results.
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

    /// Returns the type of a node: the explicit type if it has a handler or the dialect knows it, otherwise the type of the shape.
    pub(crate) fn type_of(&self, node: &Node) -> String {
        let of_dialect = |name: &str| SHAPES.iter().any(|(_, known)| *known == name);
        let known = |name: &str| self.handlers.contains_key(name) || of_dialect(name);
        node.handler_type(known).into_owned()
    }

    /// Finds the handler of a node and its type: by the explicit type if it has a handler, otherwise by the shape.
    ///
    /// # Errors
    ///
    /// The handler of `codergen` also runs a `prompt`, unless a handler was registered for it.
    ///
    /// Returns [`ErrorKind::Unsupported`] if the dialect knows the type and no handler was registered for it. The shape's handler would only pretend
    /// to do the work, so it replaces only types unknown to the dialect.
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
    /// Handles `start`, `exit`, `conditional`, `parallel`, `parallel.fan_in`, `tool`, `wait.human`, `wait`, and `codergen` (which also runs type
    /// `prompt`) with a backend that only [simulates](Simulate).
    fn default() -> Self {
        let empty = Self { handlers: BTreeMap::new(), own: BTreeSet::new(), stops: BTreeSet::new() };
        let noops = empty.with("start", Noop).with("exit", Noop).with("conditional", Noop);
        let noops = noops.with("parallel", Noop).with("parallel.fan_in", Noop);
        let waits = noops.with("wait.human", WaitHuman).with("wait", WaitHandler);
        let all = waits.with("tool", Tool::default()).with(DEFAULT_TYPE, Codergen::new(Simulate));
        Self { own: BTreeSet::new(), ..all }
    }
}
