//! The context of a node: information about the run and the activation, and the requests of the node to the runtime.

use crate::claim::ClaimId;
use std::any::type_name;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::children::{RuntimeAccess, StartedChildren};
use super::cleanup::AttemptCleanup;
use super::ownership::Ownership;
use super::requests::{AttemptWaits, NodeRequest, ReplySender};
use super::stream_batches::BatchTurn;
use super::transaction::{AttemptTransactions, TransactionGrant};
use crate::clock::{Clock, Timestamp};
use crate::compact::once_channel::OnceReceiver;
use crate::compact::queue::Sender;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, NodeName, RunKey, Visit, WorkflowName};
use crate::kernel::resources::Resources;
use crate::record::body::FanOutItem;
use crate::record::effect::Effect;
use crate::record::memo::Memos;
use crate::record::{Labels, RunFacts};
use crate::state::{Artifact, MemoryRead, NodeNotes, SentOut};

/// The data that all activations of a run share.
#[derive(Clone)]
pub(crate) struct RunScope {
    pub(crate) key: RunKey,
    pub(crate) facts: Arc<RunFacts>,
    /// The configuration of the run.
    pub(crate) config: Option<FanOutItem>,
    /// The claim by which this process drives the run.
    pub(crate) claim: ClaimId,
    pub(crate) resources: Arc<Resources>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commands: Sender<DriverRequest>,
    pub(crate) cancelled: OnceReceiver<()>,
    pub(crate) host: RuntimeAccess,
}

/// A request of a node to the driver of its run.
pub(crate) enum DriverRequest {
    /// Writes every change that the machine has absorbed, and replies when all of them are durable.
    Checkpoint(oneshot::Sender<Result<()>>),
    /// Records a batch of a durable stream under a name of the activation. The stream may send its next batch when `taken` is released.
    Chunks { by: AttemptKey, name: String, text: Box<RawValue>, taken: BatchTurn },
    /// Records a value under a name of the activation, or waits for a value with this name.
    Wish { by: AttemptKey, name: String, wish: NodeRequest, reply: ReplySender },
    /// Begins a transaction after all appends of the run have finished.
    Transaction { by: AttemptKey, reply: oneshot::Sender<TransactionGrant> },
    /// Reports that the transaction with this number has ended, so that the next transaction can begin.
    TransactionOver(u64),
    /// Reports that this activation was polled and now waits, or that it has read a reply.
    Parked((u32, Visit)),
}

/// The key of an attempt. It contains the activation (by the numbers of the machine) and a number that differs if the run reaches the same activation
/// again with other inputs. This can happen after a write conflict, while earlier attempts of the activation are still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey {
    pub(crate) activation: (u32, Visit),
    pub(crate) way: u64,
}

/// The data of one attempt of an activation.
pub(crate) struct NodeScope {
    pub(crate) run: Arc<RunScope>,
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    pub(crate) attempt: u32,
    /// The number of earlier visits of the node that received a message. For a conversation, this is the number of its messages so far.
    pub(crate) message_count: u32,
    pub(crate) item: Option<Arc<RawValue>>,
    pub(crate) inputs: Inputs,
    /// The key by which the driver identifies the attempt.
    pub(crate) attempt_key: AttemptKey,
    /// The records of earlier attempts.
    pub(crate) memos: Memos,
    /// The positions of `memos` in the recorded order, when they were first needed.
    pub(crate) places: OnceLock<HashMap<String, usize>>,
    pub(crate) waits: AttemptWaits,
    /// The timeout of one attempt.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) started_children: StartedChildren,
    pub(crate) effect: Effect,
    pub(crate) transactions: AttemptTransactions,
    /// The outputs of a successful attempt other than its return value.
    pub(crate) outputs: Mutex<LeftBehind>,
    /// Whether the attempt requested a resource that is not registered. Another attempt would not find the resource either, so none follows.
    pub(crate) lacks_resource: AtomicBool,
    /// The check whether this process owns the run. It is present for an `External` node.
    pub(crate) ownership: Option<Arc<dyn Ownership>>,
    /// Whether the work was not begun, because this process may no longer own the run.
    pub(crate) is_not_begun: AtomicBool,
    pub(crate) cleanup: AttemptCleanup,
}

impl NodeScope {
    /// Returns the position of a wait among the waits that ended in earlier attempts.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        let places = self.places.get_or_init(|| {
            self.memos.ended_waits().into_iter().enumerate().map(|(place, name)| (name, place)).collect()
        });
        places.get(name).copied()
    }

    /// Adds to the outputs of the attempt. Returns false if the attempt has ended, because the driver has already collected its outputs.
    fn add_output(&self, add: impl FnOnce(&mut AttemptOutputs)) -> bool {
        let mut left = self.lock_outputs();
        if !left.has_ended {
            add(left.leavings.get_or_insert_default());
        }
        !left.has_ended
    }

    fn lock_outputs(&self) -> MutexGuard<'_, LeftBehind> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the attempt has ended. A task that the node spawned may outlive the attempt, and its requests are rejected.
    pub(super) fn has_ended(&self) -> bool {
        self.lock_outputs().has_ended
    }

    /// Marks the attempt as ended. Later requests in its name are rejected.
    pub(crate) fn end(&self) {
        self.lock_outputs().has_ended = true;
    }

    /// Returns whether the work of the node may begin. An `External` node may begin only while no other process can have claimed the run.
    pub(crate) fn may_begin(&self) -> bool {
        let may = self.ownership.as_ref().is_none_or(|ownership| ownership.is_certain());
        if !may {
            self.is_not_begun.store(true, Ordering::Relaxed);
        }
        may
    }

    /// Returns whether the work was not begun, because this process may no longer own the run.
    pub(crate) fn is_not_begun(&self) -> bool {
        self.is_not_begun.load(Ordering::Relaxed)
    }

    /// Takes the outputs of the ended attempt, if it has any.
    pub(crate) fn take_left(&self) -> Option<Box<AttemptOutputs>> {
        let mut left = self.lock_outputs();
        left.has_ended = true;
        left.leavings.take()
    }
}

/// The outputs of an attempt so far.
#[derive(Default)]
pub(crate) struct LeftBehind {
    /// The outputs. They are boxed, because few attempts have outputs.
    leavings: Option<Box<AttemptOutputs>>,
    has_ended: bool,
}

/// The outputs of an attempt other than its return value.
#[derive(Default)]
pub(crate) struct AttemptOutputs {
    /// Outbox messages that the attempt sends.
    pub(crate) sent: Vec<SentOut>,
    /// Notes of the attempt that are not part of the state.
    pub(crate) noted: NodeNotes,
}

/// The inputs of a node. Most nodes have exactly one predecessor.
pub(crate) enum Inputs {
    One([Input; 1]),
    Many(Box<[Input]>),
}

impl Default for Inputs {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

/// An input of a node. A node that ran earlier sent it along an edge.
#[derive(Clone)]
#[non_exhaustive]
pub struct Input {
    /// The node that sent the input.
    pub from: NodeName,
    /// The number of that node's activation in the run, counted from 1.
    pub visit: Visit,
    pub(crate) output: Option<Arc<RawValue>>,
}

impl Input {
    /// Decodes the output that the sender attached with [`Update::with_output`](crate::state::Update::with_output).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the sender attached no output, and [`ErrorKind::Invalid`] if the output is not of type `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.output.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the node attached no output; use `Update::with_output`")
                .with_node(&self.from)
        })?;
        read(text, "output").map_err(|error| error.with_node(&self.from))
    }
}

impl fmt::Debug for Input {
    /// Formats the input without its output, which may be secret.
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

/// The context of a node. It describes the run, the visit and the inputs, and its methods send requests to the runtime. Cheap to clone.
#[derive(Clone)]
// Large: the API of a node; each method is in the file of its feature.
pub struct NodeContext {
    pub(super) scope: Arc<NodeScope>,
    /// Whether this is the context of a group of children.
    pub(super) is_grouped: bool,
}

impl NodeContext {
    /// Returns the key of the run.
    pub fn run(&self) -> &RunKey {
        &self.scope.run.key
    }

    /// Returns the application's resource of this type.
    ///
    /// # Panics
    ///
    /// Panics if no resource of this type is registered. The runtime catches the panic and fails the activation at once, without further attempts.
    /// The error lists the registered types and the line of the call. For an [`External`](crate::graph::Effect::External) node, the run asks for the
    /// outcome, as after any panic. [`NodeContext::try_resource`] does not panic.
    #[track_caller]
    pub fn resource<T: Send + Sync + 'static>(&self) -> &T {
        match self.try_resource() {
            Some(resource) => resource,
            None => {
                self.scope.lacks_resource.store(true, Ordering::Relaxed);
                panic!(
                    "cannot find a resource of type `{}`, used at {}, among: {}; add it with `Runtime::builder(..).resource(..)`",
                    type_name::<T>(),
                    Location::caller(),
                    self.scope.run.resources.names(),
                )
            }
        }
    }

    /// Returns a key that stays the same whenever this activation runs again.
    ///
    /// Every activation has its own key, even if a later run reuses the run id after a purge. Send the key with every request that must not take
    /// effect twice.
    ///
    /// The key has the form `{start id}:{node}:{visit}` and at most 176 bytes. The start id is a UUID; each start of the run id has another one.
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}:{}", self.scope.run.claim.start_id, self.scope.node, self.scope.visit)
    }

    /// Returns the number of this attempt of the activation, counted from 1. The count continues after a crash.
    pub fn attempt(&self) -> u32 {
        self.scope.attempt
    }

    /// Returns the visit of this activation: the number of the node's activations in the run so far, counted from 1.
    pub fn visit(&self) -> Visit {
        self.scope.visit
    }

    /// Decodes the item for which [`Route::each`](crate::graph::Route::each) created this activation.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if an edge, and not [`Route::each`](crate::graph::Route::each), created the activation, and
    /// [`ErrorKind::Invalid`] if the item is not of type `T`.
    pub fn item<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.scope.item.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the activation has no item; choose the node with `Route::each`")
                .with_node(self.node())
        })?;
        read(text, "item").map_err(|error| error.with_node(self.node()))
    }

    /// Returns the inputs of the activation: one for each fired edge that the node joined. They are ordered by the declaration of the edges, and
    /// within one edge by item.
    pub fn inputs(&self) -> &[Input] {
        match &self.scope.inputs {
            Inputs::One(input) => input,
            Inputs::Many(inputs) => inputs,
        }
    }

    /// Returns whether the run is being cancelled or released. If so, the node should stop soon, because its result may be dropped.
    pub fn is_cancelled(&self) -> bool {
        self.scope.run.cancelled.get().is_some()
    }

    /// Waits until the run is cancelled or released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn cancelled(&self) {
        // The channel closes only when the driver is gone, which also ends the attempt.
        let _ = self.scope.run.cancelled.recv().await;
    }

    /// Returns the current time of the runtime's clock, which a test may set. The time differs each time the activation runs. If the time must stay
    /// the same, read it in a [`step`](Self::step).
    pub fn now(&self) -> Timestamp {
        self.scope.run.clock.now()
    }

    /// Decodes the [configuration](crate::runtime::StartRequest::config) of the run. It is the same in every activation, after every restart and
    /// retry, and in a fork. A [child](Self::child) has only the configuration from [`ChildRequest::config`](crate::runtime::ChildRequest::config).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run was started without a configuration, and [`ErrorKind::Invalid`] if the configuration is not of type
    /// `T`.
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
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.scope.run.config.as_ref().ok_or_else(|| {
            let message = "the run was started without a configuration; use `StartRequest::config`";
            Error::new(ErrorKind::NotFound, message).with_node(self.node())
        })?;
        read(&text.0, "configuration").map_err(|error| error.with_node(self.node()))
    }

    /// Returns the labels that were set when the run was started. A [child](Self::child) has the labels of its own start, and does not inherit labels
    /// of its parent.
    ///
    /// Ferrata and its command-line tool set labels with keys that begin with `ferrata.`, for example to record who started the run. Do not use such
    /// keys. A start with a label that Ferrata itself reads is rejected.
    pub fn labels(&self) -> &Labels {
        &self.scope.run.facts.labels
    }

    /// Returns the user for whom the run was [started](crate::runtime::StartRequest::user), if the start named one. A child has no user.
    pub fn user(&self) -> Option<&str> {
        self.scope.run.facts.user.as_deref()
    }

    /// Sends an outbox message if this attempt succeeds. A failed attempt sends none.
    ///
    /// The message is sent before messages that the node adds with [`Update::send_out`](crate::state::Update::send_out).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the topic does not have 1 to 128 bytes or has a control character, or the payload cannot be expressed in JSON.
    /// - [`ErrorKind::Closed`]: the attempt has ended. A task that the node spawned and did not await cannot send.
    pub fn send_out(&self, topic: impl AsRef<str>, payload: impl serde::Serialize) -> Result<()> {
        let letter = SentOut::new(topic.as_ref(), &payload).map_err(|error| error.with_node(self.node()))?;
        self.add_output(|left| left.sent.push(letter))
    }

    /// Records a reference to an artifact that the node created outside of Ferrata, for example a file. If this attempt succeeds, later
    /// [checkpoints](crate::runtime::Checkpoint) list the artifact under the node.
    ///
    /// Ferrata neither reads nor copies the artifact. The reference is part of the node's record, and is removed when the record is pruned.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] if the attempt has ended.
    pub fn artifact(&self, artifact: Artifact) -> Result<()> {
        self.add_output(|left| left.noted.artifacts.push(artifact))
    }

    /// Records a value that the node read from a memory, such as a vector database. If this attempt succeeds, later checkpoints list the value in
    /// `memory`, so you can inspect it without access to the memory.
    ///
    /// The entry is part of the node's record, and is removed when that record is pruned.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the strength is not a finite number, or `extra` contains a key that is also a field of [`MemoryRead`].
    /// - [`ErrorKind::Closed`]: the attempt has ended.
    pub fn remember_read(&self, read: MemoryRead) -> Result<()> {
        let own = ["trace_id", "content", "strength"].into_iter().find(|own| read.extra.contains_key(*own));
        let fault = match own {
            Some(own) => {
                format!("a value from the memory has a second field `{own}`; rename the field")
            }
            None if !read.strength.is_finite() => {
                "the strength of a value from the memory is not a finite number; use a finite number"
                    .to_owned()
            }
            None => return self.add_output(|left| left.noted.reads.push(read)),
        };
        Err(Error::new(ErrorKind::Invalid, fault).with_node(self.node()))
    }

    /// Waits until the results of all finished nodes and steps of the run are durable, even if the checkpoint policy would write them later.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the node has an open [transaction](Self::transaction).
    /// - [`ErrorKind::TooLarge`]: the checkpoint policy is `Disabled` and the state does not fit into a record. The run has failed, and remains at
    ///   its last checkpoint.
    /// - Any error of the store. The runtime then stops the run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the records are written even if the future is dropped.
    pub async fn checkpoint(&self) -> Result<()> {
        self.check_no_transaction()?;
        let (reply, answer) = oneshot::channel();
        let gone = || self.driver_gone_error();
        self.scope.run.commands.send(DriverRequest::Checkpoint(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Returns the application's resource of this type, if it is registered.
    pub fn try_resource<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.scope.run.resources.get()
    }

    /// Returns the name of this node.
    pub fn node(&self) -> &NodeName {
        &self.scope.node
    }

    /// Returns the workflow of the run.
    pub fn workflow(&self) -> &WorkflowName {
        &self.scope.run.facts.workflow
    }

    /// Returns the epoch of the run in which the attempt began. Each process that claims the run begins a new epoch. If attempts of two processes
    /// overlap in time, the attempt with the lower epoch is obsolete.
    pub fn epoch(&self) -> Epoch {
        self.scope.run.claim.epoch
    }

    /// Returns the clock of the runtime, for local timing such as a pause between two requests. Waits on this clock are not stored: they start from
    /// the beginning each time the activation runs. For a stored wait, use [`sleep`](Self::sleep).
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
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.scope.run.clock
    }

    pub(crate) fn new(scope: Arc<NodeScope>) -> Self {
        Self { scope, is_grouped: false }
    }

    /// Whether the work of the node may begin now.
    pub(crate) fn may_begin(&self) -> bool {
        self.scope.may_begin()
    }

    /// Returns whether the attempt has outputs other than its return value.
    pub(crate) fn leaves_anything(&self) -> bool {
        self.scope.lock_outputs().leavings.is_some()
    }

    /// Returns the timeout of one attempt.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.scope.time_limit
    }

    fn add_output(&self, add: impl FnOnce(&mut AttemptOutputs)) -> Result<()> {
        if self.scope.add_output(add) { Ok(()) } else { Err(self.ended_error()) }
    }

    /// Returns an error if the attempt has ended.
    pub(crate) fn check_not_over(&self) -> Result<()> {
        if self.scope.has_ended() { Err(self.ended_error()) } else { Ok(()) }
    }

    fn ended_error(&self) -> Error {
        let message = "the attempt has ended, so this call records nothing; in the node, wait for the tasks that it spawns";
        Error::new(ErrorKind::Closed, message).with_run(self.run()).with_node(self.node())
    }

    pub(super) fn driver_gone_error(&self) -> Error {
        Error::new(ErrorKind::Closed, "this process no longer drives the run").with_run(self.run())
    }
}

impl fmt::Debug for NodeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{} attempt {}", self.run(), self.node(), self.visit(), self.attempt())
    }
}
