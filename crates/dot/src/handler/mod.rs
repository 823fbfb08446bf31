//! What does the work of a node: one handler for each type, and the registry that finds it.

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
mod pulse;
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

pub(crate) use capture::AttemptOutput;
pub(crate) use codergen::response_key;
pub use codergen::{Answer, Backend, Codergen, Request, Simulate};
pub use command::CommandBackend;
pub(crate) use command::STAGE;
#[cfg(unix)]
pub use guard::{guard_commands, kill_commands};
pub(crate) use inherit::is_inherited_by_tools;
pub(crate) use manager::MANAGER;
pub use manager::Manager;
pub use noop::Noop;
pub use pulse::ActivityCounter;
pub(crate) use rank::{BEST, RESULTS, Rank};
pub use tool::Tool;
pub use wait::Wait;
pub use wait_human::WaitHuman;

use crate::fidelity::FidelityChoice;
use crate::outcome::StageOutcome;
use crate::pipeline::{DEFAULT_TYPE, Node, Pipeline, SHAPES};

/// What a handler is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stage {
    /// Where it runs: the run, the visit, the attempt, and whether it is cancelled.
    pub cx: NodeContext,
    /// The node with its attributes.
    pub node: Arc<Node>,
    /// The pipeline that it is part of.
    pub pipeline: Arc<Pipeline>,
    /// The context as it is; what a handler changes of it is in its outcome.
    pub context: Arc<Context>,
    /// The type of the node: the one that its handler was found by.
    pub kind: Arc<str>,
    /// How a task is told of the run so far.
    pub told: FidelityChoice,
    /// Where work that takes long shows that it goes on.
    pub pulse: ActivityCounter,
    /// What the command of the attempt has printed.
    pub(crate) printed: AttemptOutput,
    /// Whether the variables of the prompt are replaced already.
    pub(crate) is_expanded: bool,
    /// Whether the work waited.
    pub(crate) wait_mark: WaitMark,
}

impl Stage {
    /// Says that the work has waited for a person, or for time: the limit of visits that ends a loop in which
    /// nothing waits begins to count anew. An answer that came by itself is no wait.
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

/// Why a handler has no outcome.
///
/// A failure that the work itself came to is an outcome, [`StageOutcome::fail`]; this is what came in between.
#[derive(Debug)]
pub struct HandlerError {
    kind: Kind,
    message: String,
    /// Whether nothing was done.
    not_done: bool,
    /// What the runtime said.
    runtime: Option<NodeError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Transient,
    Permanent,
    NoStatus,
    Runtime,
}

impl HandlerError {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), not_done: false, runtime: None }
    }

    /// What the runtime said to a question or a wait: passed back to it as it is, and no outcome of the work.
    pub fn of_runtime(error: impl Into<NodeError>) -> Self {
        let error = error.into();
        Self { runtime: Some(error), ..Self::new(Kind::Runtime, "the runtime has left the node") }
    }

    /// Returns what the runtime said, if it is about that.
    pub(crate) fn into_runtime(self) -> Result<NodeError, Self> {
        match self {
            Self { runtime: Some(error), .. } => Ok(error),
            other => Err(other),
        }
    }

    /// What may be gone at the next attempt: a network that is away, a limit of rates, a server's own fault.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Kind::Transient, message)
    }

    /// What stays as it is: a wrong request, a missing right, a wrong configuration.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Kind::Permanent, message)
    }

    /// Says that nothing was done, so that beginning again is safe: only then is a node with `effect=external` tried again without
    /// a question.
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Tells whether nothing was done.
    pub fn is_not_done(&self) -> bool {
        self.not_done
    }

    /// The work ended without a status: a success if the node has `auto_status`, otherwise a failure.
    pub fn no_status(message: impl Into<String>) -> Self {
        Self::new(Kind::NoStatus, message)
    }

    /// Tells whether another attempt makes sense.
    pub fn is_transient(&self) -> bool {
        self.kind == Kind::Transient
    }

    /// Tells whether it is about a missing status.
    pub fn is_no_status(&self) -> bool {
        self.kind == Kind::NoStatus
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HandlerError {}

/// Does the work of the nodes of a type. One handler serves all of them, also at the same time.
///
/// # Cancel safety
///
/// The future may be dropped at any await: when the run is cancelled, when the node's `timeout` has passed, when another
/// process took the run over. After a crash a node that was at work runs again, unless its effect is `External`.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Does the work once.
    ///
    /// # Errors
    ///
    /// [`HandlerError`] for what is no outcome of the work. A panic is caught and fails the node.
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError>;

    /// What repeating the work would mean, unless the node says otherwise by its `effect`.
    fn effect(&self) -> Effect {
        Effect::Write
    }

    /// Tells whether it looks at the node's `timeout` itself. Otherwise an attempt that takes longer is ended.
    ///
    /// A handler that asks or sleeps has to: while it waits the run may be let go of, and the work begins anew.
    fn times_itself(&self) -> bool {
        false
    }

    /// Tells whether it gives tasks to a backend, which is told of the run so far. Only then does the context keep what every node
    /// last came to.
    fn is_task(&self) -> bool {
        false
    }

    /// Refuses a node that it could not run, before any run starts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] that says what is missing.
    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        let _ = (node, pipeline);
        Ok(())
    }
}

/// The type of nodes that ask a model once, without tools of its own.
pub(crate) const PROMPT: &str = "prompt";

/// The handlers by the names of their types.
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
    /// The types whose handlers are not the built-in ones.
    own: BTreeSet<String>,
    /// The nodes behind which a run stops until an answer lets it go on.
    stops: BTreeSet<String>,
}

impl Registry {
    /// Adds a handler; one that was there for the type is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        let name = name.into();
        self.own.insert(name.clone());
        self.handlers.insert(name, Arc::new(handler));
        self
    }

    /// Tells whether a handler was registered for a type in the place of the built-in one.
    pub(crate) fn has_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Has runs stop behind a node until the question `node@visit:after` is accepted.
    #[must_use]
    pub(crate) fn stop_after(mut self, node: impl Into<String>) -> Self {
        self.stops.insert(node.into());
        self
    }

    /// Tells whether runs stop behind a node.
    pub(crate) fn stops_after(&self, node: &str) -> bool {
        self.stops.contains(node)
    }

    /// Puts something around every handler, as whoever keeps what they do.
    pub(crate) fn wrapped(mut self, around: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler>) -> Self {
        for handler in self.handlers.values_mut() {
            *handler = around(Arc::clone(handler));
        }
        self
    }

    /// Returns the types that there are handlers for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// Returns the type of a node: the explicit one if there is a handler for it or the dialect knows it, else that of the shape.
    pub(crate) fn type_of(&self, node: &Node) -> String {
        let of_dialect = |name: &str| SHAPES.iter().any(|(_, known)| *known == name);
        let known = |name: &str| self.handlers.contains_key(name) || of_dialect(name);
        node.handler_type(known).into_owned()
    }

    /// Finds the handler of a node and its type: by the explicit type if there is a handler for it, else by the shape.
    ///
    /// # Errors
    ///
    /// A `prompt` is a task like any other, for the handler of `codergen`, unless a handler was registered for it.
    ///
    /// [`ErrorKind::Unsupported`] if the dialect knows the type and no handler was registered for it: taking another one in
    /// its place, as for a type that the dialect does not know, would pretend.
    pub fn resolve(&self, node: &Node) -> Result<(String, Arc<dyn Handler>), Error> {
        let name = self.type_of(node);
        let task = || self.handlers.get(DEFAULT_TYPE).filter(|_| name == PROMPT);
        match self.handlers.get(&name).or_else(task) {
            Some(handler) => Ok((name, Arc::clone(handler))),
            None => {
                let message = format!(
                    "node {}: nodes of type `{name}` do not run yet; register a handler for the type, or take the node out",
                    node.id()
                );
                Err(Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile"))
            }
        }
    }
}

impl Default for Registry {
    /// `start`, `exit`, `conditional`, `parallel`, `parallel.fan_in`, `tool`, `wait.human`, `wait`, and `codergen` (which also does
    /// what is of type `prompt`) with a backend that only [simulates](Simulate).
    fn default() -> Self {
        let empty = Self { handlers: BTreeMap::new(), own: BTreeSet::new(), stops: BTreeSet::new() };
        let noops = empty.with("start", Noop).with("exit", Noop).with("conditional", Noop);
        let noops = noops.with("parallel", Noop).with("parallel.fan_in", Noop);
        let waits = noops.with("wait.human", WaitHuman).with("wait", Wait);
        let all = waits.with("tool", Tool::default()).with(DEFAULT_TYPE, Codergen::new(Simulate));
        Self { own: BTreeSet::new(), ..all }
    }
}
