//! What a node is told about where it runs, and what it may ask of the runtime.

use std::any::type_name;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::children::{RuntimeAccess, StartedChildren};
use super::chunks::BatchTurn;
use super::ownership::Ownership;
use super::resources::Resources;
use super::transaction::{AttemptTransactions, TransactionGrant};
use super::wish::{AttemptWaits, NodeRequest, ReplySender};
use crate::clock::{Clock, Timestamp};
use crate::compact::once::OnceReceiver;
use crate::compact::queue::Sender;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, NodeName, RunKey, Visit, WorkflowName};
use crate::record::body::Item;
use crate::record::effect::Effect;
use crate::record::memo::Memos;
use crate::record::{Labels, RunFacts};
use crate::state::{Artifact, MemoryRead, NodeNotes, SentOut};

/// What all activations of a run share.
#[derive(Clone)]
pub(crate) struct RunScope {
    pub(crate) key: RunKey,
    pub(crate) facts: Arc<RunFacts>,
    /// What the run is configured with.
    pub(crate) config: Option<Item>,
    /// What tells this life of the run from another of the same name.
    pub(crate) life: Uuid,
    /// Which claim of the run this is.
    pub(crate) epoch: Epoch,
    pub(crate) resources: Arc<Resources>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commands: Sender<Command>,
    pub(crate) cancelled: OnceReceiver<()>,
    pub(crate) host: RuntimeAccess,
}

/// What a node asks of the driver of its run.
pub(crate) enum Command {
    /// Write and make durable whatever has been absorbed.
    Checkpoint(oneshot::Sender<Result<()>>),
    /// Note a batch of a durable stream under a name of the activation; the permit lets the next one come.
    Chunks { by: AttemptKey, name: String, text: Box<RawValue>, taken: BatchTurn },
    /// Note something under a name of the activation, or wait for it.
    Wish { by: AttemptKey, name: String, wish: NodeRequest, reply: ReplySender },
    /// Begin a transaction, once nothing of the run is on its way to the store.
    Transaction { by: AttemptKey, reply: oneshot::Sender<TransactionGrant> },
    /// The turn of a transaction is over.
    TransactionOver(u64),
    /// An activation was polled and waits, or has read what it waited for.
    Parked((u32, Visit)),
}

/// Which attempt says something: of which activation, by the machine's numbers, and on which way the run came to it. The run may leave a way
/// while attempts are on it, and come to the same activation on another, from other inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey {
    pub(crate) activation: (u32, Visit),
    pub(crate) way: u64,
}

/// What one attempt of an activation is told.
pub(crate) struct NodeScope {
    pub(crate) run: Arc<RunScope>,
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    pub(crate) attempt: u32,
    /// How many visits of the node before this one were not left without a message: what a conversation has heard.
    pub(crate) heard: u32,
    pub(crate) item: Option<Arc<RawValue>>,
    pub(crate) inputs: Inputs,
    /// How the driver knows it.
    pub(crate) attempt_key: AttemptKey,
    /// What it noted before this attempt.
    pub(crate) memos: Memos,
    pub(crate) waits: AttemptWaits,
    /// How long one attempt may take.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) started: StartedChildren,
    pub(crate) effect: Effect,
    pub(crate) transactions: AttemptTransactions,
    /// What it leaves if it ends well, beside what it returns.
    pub(crate) left: Mutex<LeftBehind>,
    /// Whether it asked for a resource that is not registered: another attempt would find it missing as well.
    pub(crate) lacks: AtomicBool,
    /// Of an `External` node: whether its process owns the run.
    pub(crate) ownership: Option<Arc<dyn Ownership>>,
    /// Whether the work was about to begin and did not.
    pub(crate) not_begun: AtomicBool,
}

impl NodeScope {
    /// Adds to what the attempt leaves. Returns false if the attempt has ended: nobody would read it.
    fn leave(&self, add: impl FnOnce(&mut AttemptOutputs)) -> bool {
        let mut left = self.left();
        if !left.has_ended {
            add(left.leavings.get_or_insert_default());
        }
        !left.has_ended
    }

    fn left(&self) -> MutexGuard<'_, LeftBehind> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the attempt has ended. A task that the node has spawned may outlive it, and speaks for nobody.
    pub(super) fn has_ended(&self) -> bool {
        self.left().has_ended
    }

    /// Says that the attempt has ended: what is said in its name from now on is refused.
    pub(crate) fn end(&self) {
        self.left().has_ended = true;
    }

    /// Whether the work of the node may begin: that of an `External` one as long as no other process may have taken the run.
    pub(crate) fn may_begin(&self) -> bool {
        let may = self.ownership.as_ref().is_none_or(|ownership| ownership.is_certain());
        if !may {
            self.not_begun.store(true, Ordering::Relaxed);
        }
        may
    }

    /// Whether the work was about to begin and did not.
    pub(crate) fn is_not_begun(&self) -> bool {
        self.not_begun.load(Ordering::Relaxed)
    }

    /// Takes what the attempt leaves as it ends, if it leaves anything.
    pub(crate) fn take_left(&self) -> Option<Box<AttemptOutputs>> {
        let mut left = self.left();
        left.has_ended = true;
        left.leavings.take()
    }
}

/// What an attempt has left so far.
#[derive(Default)]
pub(crate) struct LeftBehind {
    /// Boxed, because few leave anything.
    leavings: Option<Box<AttemptOutputs>>,
    has_ended: bool,
}

/// What an attempt leaves beside what it returns.
#[derive(Default)]
pub(crate) struct AttemptOutputs {
    /// What it sends out of the run.
    pub(crate) sent: Vec<SentOut>,
    /// What it notes beside the state.
    pub(crate) noted: NodeNotes,
}

/// What arrived at a node; most nodes come after one other.
pub(crate) enum Inputs {
    One([Input; 1]),
    Many(Box<[Input]>),
}

impl Default for Inputs {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

/// What arrived at a node from one that ran before it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Input {
    /// The node it comes from.
    pub from: NodeName,
    /// Which visit of that node.
    pub visit: Visit,
    pub(crate) output: Option<Arc<RawValue>>,
}

impl Input {
    /// Reads the output that the node attached with [`Update::with_output`](crate::state::Update::with_output).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it attached none, [`ErrorKind::Invalid`] if it is not of this type.
    ///
    /// <!-- held by: values::an_output_and_an_item_that_are_null_are_still_there_after_a_restart -->
    pub fn output<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.output.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the node attached no output; use `Update::with_output`")
                .with_node(&self.from)
        })?;
        read(text, "output").map_err(|error| error.with_node(&self.from))
    }
}

impl fmt::Debug for Input {
    /// Never shows the output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.from, self.visit)
    }
}

pub(super) fn read<T: DeserializeOwned>(text: &RawValue, what: &str) -> Result<T> {
    serde_json::from_str(text.get()).map_err(|source| {
        Error::new(ErrorKind::Invalid, format!("the {what} is not of type {}", type_name::<T>()))
            .with_source(source)
    })
}

/// Where a node runs: its run, its visit, what arrived, and what it may ask of the runtime. Cheap to clone.
#[derive(Clone)]
pub struct NodeContext {
    pub(super) scope: Arc<NodeScope>,
    /// Whether it is that of a group of children.
    pub(super) is_grouped: bool,
}

impl NodeContext {
    pub(crate) fn new(scope: Arc<NodeScope>) -> Self {
        Self { scope, is_grouped: false }
    }

    /// Whether the work of the node may begin now.
    pub(crate) fn may_begin(&self) -> bool {
        self.scope.may_begin()
    }

    /// Returns the run.
    pub fn run(&self) -> &RunKey {
        &self.scope.run.key
    }

    /// Returns the workflow that the run is one of.
    pub fn workflow(&self) -> &WorkflowName {
        &self.scope.run.facts.workflow
    }

    /// Returns the labels that the run was started with. A [child](Self::child) has those of its own start, and not its parent's.
    ///
    /// Ferrata and its command set labels whose keys begin with `ferrata.`, which say who started the run, for example. Use no such key of your own: those that Ferrata
    /// reads are refused.
    pub fn labels(&self) -> &Labels {
        &self.scope.run.facts.labels
    }

    /// Returns for whom the run was [started](crate::runtime::StartRequest::user), if that was said. A child has none.
    pub fn user(&self) -> Option<&str> {
        self.scope.run.facts.user.as_deref()
    }

    /// Reads what the run was [configured](crate::runtime::StartRequest::config) with: the same at every activation, after every restart
    /// and retry, and in a fork. A [child](Self::child) has none but what it is given by
    /// [`ChildRequest::config`](crate::runtime::ChildRequest::config).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the run was started without, [`ErrorKind::Invalid`] if it is not of this type.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::NodeContext;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Config {
    ///     model: String,
    ///     dry_run: bool,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("write")
    ///     .node("draft", async |cx: NodeContext, mut s: Draft<Context>| {
    ///         let config: Config = cx.config()?;
    ///         s.set("by", format!("{} for {}", config.model, cx.user().unwrap_or("all")))?;
    ///         Ok(s)
    ///     })
    ///     .entry("draft")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let config = Config { model: "small".into(), dry_run: true };
    /// let run = runtime.start(&graph, Context::new()).user("ann").config(&config).await?;
    /// assert_eq!(run.completed().await?.get::<String>("by")?.as_deref(), Some("small for ann"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// <!-- held by: given::a_configuration_is_the_same_after_restarts_retries_and_in_forks -->
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.scope.run.config.as_ref().ok_or_else(|| {
            let message = "the run was started without a configuration; use `StartRequest::config`";
            Error::new(ErrorKind::NotFound, message).with_node(self.node())
        })?;
        read(&text.0, "configuration").map_err(|error| error.with_node(self.node()))
    }

    /// Returns the time by the clock of the runtime, which a test may set. It is another one whenever the activation runs again: keep it in a
    /// [`step`](Self::step) where that matters.
    pub fn now(&self) -> Timestamp {
        self.scope.run.clock.now()
    }

    /// Returns the clock of the runtime, for what a node bounds by itself: a pause between two requests, a patience. What is waited for by it
    /// is not stored and begins anew whenever the activation runs again; for that there is [`sleep`](Self::sleep).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ferrata_core::node::{NodeContext, NodeError};
    /// # async fn page() -> String { String::new() }
    /// # async fn node(cx: NodeContext) -> Result<String, NodeError> {
    /// tokio::select! {
    ///     page = page() => Ok(page),
    ///     () = cx.clock().sleep(Duration::from_secs(30)) => Err(NodeError::new("the page did not come").not_done()),
    /// }
    /// # }
    /// ```
    ///
    /// <!-- held by: worlds::a_node_has_the_clock_of_the_world -->
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.scope.run.clock
    }

    /// Returns the name of this node.
    pub fn node(&self) -> &NodeName {
        &self.scope.node
    }

    /// Returns which activation of the node this is, from 1.
    pub fn visit(&self) -> Visit {
        self.scope.visit
    }

    /// Returns which attempt of the activation this is, from 1; the count survives a crash.
    pub fn attempt(&self) -> u32 {
        self.scope.attempt
    }

    /// Returns in which epoch of the run the attempt was begun: each process that takes the run up begins a new one. Where attempts of two
    /// processes meet, that of the lower epoch is the one that should not be there any more.
    pub fn epoch(&self) -> Epoch {
        self.scope.run.epoch
    }

    /// Whether the attempt leaves more than it returns.
    pub(crate) fn leaves_anything(&self) -> bool {
        self.scope.left().leavings.is_some()
    }

    /// Returns how long one attempt may take.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.scope.time_limit
    }

    /// Returns a key that is the same whenever this activation runs again and differs from every other activation's,
    /// also in another run of the same name after a purge. Send it along with whatever must not happen twice.
    ///
    /// Text of the form `{life of the run}:{node}:{visit}`, at most 176 bytes; the life is a UUID made at the start.
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}:{}", self.scope.run.life, self.scope.node, self.scope.visit)
    }

    /// Reads the item that this activation was made for by [`Route::each`](crate::graph::Route::each).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it was made by a plain edge, [`ErrorKind::Invalid`] if the item is not of this type.
    ///
    /// <!-- held by: runs::a_fan_out_joins_once_with_all_outputs_in_the_order_of_the_items -->
    pub fn item<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.scope.item.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "the activation has no item; route to the node with `Route::each`",
            )
            .with_node(self.node())
        })?;
        read(text, "item").map_err(|error| error.with_node(self.node()))
    }

    /// Returns what arrived: one input for each joined token, in the order of the edges, then of the items.
    pub fn inputs(&self) -> &[Input] {
        match &self.scope.inputs {
            Inputs::One(input) => input,
            Inputs::Many(inputs) => inputs,
        }
    }

    /// Returns what the application lends to its nodes under this type.
    ///
    /// # Panics
    ///
    /// If there is none. The panic is caught and fails the activation at once, whatever its retry policy, with the types that are
    /// there and the line that asked; an [`External`](crate::graph::Effect::External) node is asked about, as after any panic.
    /// See [`NodeContext::try_resource`].
    #[track_caller]
    pub fn resource<T: Send + Sync + 'static>(&self) -> &T {
        match self.try_resource() {
            Some(resource) => resource,
            None => {
                self.scope.lacks.store(true, Ordering::Relaxed);
                panic!(
                    "there is no resource of type `{}`, asked for at {}; there are: {}. Add it with \
                     `Runtime::builder(..).resource(..)`",
                    type_name::<T>(),
                    Location::caller(),
                    self.scope.run.resources.names(),
                )
            }
        }
    }

    /// Returns what the application lends to its nodes under this type, if it does.
    pub fn try_resource<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.scope.run.resources.get()
    }

    /// Tells whether the run is being cancelled or left: stop soon, what is returned may be dropped.
    pub fn is_cancelled(&self) -> bool {
        self.scope.run.cancelled.get().is_some()
    }

    /// Waits until the run is cancelled or left.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn cancelled(&self) {
        // No value comes only when the driver is gone, which is an end as well.
        let _ = self.scope.run.cancelled.recv().await;
    }

    /// Makes everything that the run has finished so far durable, whatever the checkpoint policy says.
    ///
    /// # Errors
    ///
    /// What the store says; the run then stops by itself. [`ErrorKind::Invalid`] while the node has a
    /// [transaction](Self::transaction) open. [`ErrorKind::TooLarge`] if checkpoints are `Disabled` and the state does not fit into a record:
    /// then the run has failed, and stands at its last checkpoint.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the records are written all the same.
    ///
    /// <!-- held by: refused::a_state_too_large_at_the_end_fails_the_run_and_leaves_a_sound_log -->
    /// <!-- held by: refused::a_step_returns_only_when_its_result_is_on_record -->
    pub async fn checkpoint(&self) -> Result<()> {
        self.check_no_transaction()?;
        let (reply, answer) = oneshot::channel();
        let gone = || self.gone();
        self.scope.run.commands.send(Command::Checkpoint(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Sends a letter out of the run, if this attempt ends well: as
    /// [`Update::send_out`](crate::state::Update::send_out), before what the update sends. An attempt that fails sends nothing.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the topic has not 1 to 128 bytes or holds a control character, or the payload cannot be expressed in JSON.
    /// - [`ErrorKind::Closed`]: the attempt has ended. A task that the node spawned and did not wait for sends nothing.
    ///
    /// <!-- held by: letters::what_an_attempt_sends_goes_out_if_it_ends_well, late_words::ended_attempt_is_refused -->
    pub fn send_out(&self, topic: impl AsRef<str>, payload: impl serde::Serialize) -> Result<()> {
        let letter = SentOut::new(topic.as_ref(), &payload).map_err(|error| error.with_node(self.node()))?;
        self.leave(|left| left.sent.push(letter))
    }

    fn leave(&self, add: impl FnOnce(&mut AttemptOutputs)) -> Result<()> {
        if self.scope.leave(add) { Ok(()) } else { Err(self.over()) }
    }

    /// Refuses what is said in the name of an attempt that has ended.
    pub(crate) fn check_not_over(&self) -> Result<()> {
        if self.scope.has_ended() { Err(self.over()) } else { Ok(()) }
    }

    fn over(&self) -> Error {
        let message = "the attempt has ended, so nothing of this is recorded; wait in the node for the tasks that it spawns";
        Error::new(ErrorKind::Closed, message).with_run(self.run()).with_node(self.node())
    }

    /// Notes something that the node made elsewhere, by reference: a checkpoint lists it under the node, if this attempt ends well.
    ///
    /// Nothing is read or copied. The note is part of the record of the node, and goes when that is pruned.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`]: the attempt has ended.
    ///
    /// <!-- held by: noted::a_checkpoint_lists_artifacts_and_the_memory, late_words::ended_attempt_is_refused -->
    pub fn artifact(&self, artifact: Artifact) -> Result<()> {
        self.leave(|left| left.noted.artifacts.push(artifact))
    }

    /// Notes what the node read from a memory: a checkpoint has it in `memory`, if this attempt ends well, so that what a node knew is
    /// found again without asking the memory.
    ///
    /// The note is part of the record of the node, and goes when that is pruned.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the strength is not a finite number, or `extra` has a field of the type's own. [`ErrorKind::Closed`]: the attempt has
    /// ended.
    ///
    /// <!-- held by: noted::a_checkpoint_lists_artifacts_and_the_memory -->
    pub fn remember_read(&self, read: MemoryRead) -> Result<()> {
        let own = ["trace_id", "content", "strength"].into_iter().find(|own| read.extra.contains_key(*own));
        let fault = match own {
            Some(own) => {
                format!("what was read from the memory has a second `{own}`; name the field otherwise")
            }
            None if !read.strength.is_finite() => {
                "the strength of what was read from the memory is not a finite number".to_owned()
            }
            None => return self.leave(|left| left.noted.reads.push(read)),
        };
        Err(Error::new(ErrorKind::Invalid, fault).with_node(self.node()))
    }

    pub(super) fn gone(&self) -> Error {
        Error::new(ErrorKind::Closed, "the run is no longer driven here").with_run(self.run())
    }
}

impl fmt::Debug for NodeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{} attempt {}", self.run(), self.node(), self.visit(), self.attempt())
    }
}
