//! The runtime's public interface.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::event::EventSubscription;
use super::fleet::background_tasks;
use super::fleet::recovery::{self, StalledRun};
use super::inbox::{Message, inbox};
use super::requests::edit::EditRequest;
use super::requests::resume::ResumeRequest;
use super::requests::runs::RunsRequest;
use super::requests::send::SendRequest;
use super::requests::signal::SignalRequest;
use super::requests::start::StartRequest;
use super::shared::{RuntimeInner, RuntimePhase};
use super::watch::WatchRequest;
use crate::ask::{Answer, Question};
use crate::engine::fold::fold;
use crate::engine::fold::missing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::{CheckpointPolicy, Graph, NodeNames};
use crate::id::{ExecutorId, NodeName, RunKey};
use crate::past::run_tree::{OpenQuestions, questions_of_all};
use crate::record::body::{SignalKind, TokenChanges};
use crate::state::{Patch, State};
use crate::store::{At, CheckpointStore, RunHead};

/// Starts, resumes and controls runs. Cheap to clone; all clones share one runtime.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::{Outcome, Runtime};
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("greet")
///     .node("hello", async |_cx, mut s| {
///         s.set("text", "hello")?;
///         Ok(s)
///     })
///     .entry("hello")
///     .build()?;
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let run = runtime.start(&graph, Context::new()).id("first").await?;
/// let Outcome::Completed(state) = run.wait().await? else { panic!("not completed") };
/// assert_eq!(state.get::<String>("text")?.as_deref(), Some("hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<RuntimeInner>,
}

impl Runtime {
    /// Returns a builder for a runtime over a store.
    pub fn builder(store: impl CheckpointStore) -> RuntimeBuilder {
        Self::builder_with(Arc::new(store))
    }

    /// Returns a builder for a runtime over a shared store.
    pub fn builder_with(store: Arc<dyn CheckpointStore>) -> RuntimeBuilder {
        RuntimeBuilder::new(store)
    }

    pub(in crate::runtime) fn new(shared: Arc<RuntimeInner>) -> Self {
        Self { shared }
    }

    pub(in crate::runtime) fn shared(&self) -> &Arc<RuntimeInner> {
        &self.shared
    }

    /// Returns the id of this process instance.
    pub fn executor(&self) -> ExecutorId {
        self.shared.executor
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn CheckpointStore> {
        &self.shared.store
    }

    /// Starts a run, or returns a handle of the existing run with the same id and input.
    ///
    /// When the request returns, the start is durable (unless checkpoints are disabled). A repeated start with the same id and input claims the
    /// run if it has no driver. If the run has ended or is active in another process, the handle watches it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::AlreadyExists`]: a run with this id has another input or workflow. The start changed nothing.
    /// - [`ErrorKind::Invalid`], [`ErrorKind::TooLarge`]: the id, a label or the input cannot be stored. The start changed nothing.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store failed; start again with the same id.
    /// - [`ErrorKind::GraphChanged`]: see [`Runtime::resume`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the start completes even if the caller drops it. Start again with the same id for a handle.
    pub fn start<S: State>(&self, graph: &Graph<S>, input: S) -> StartRequest<S> {
        StartRequest::new(Arc::clone(&self.shared), graph.clone(), input)
    }

    /// Resumes a run from its last record after its process ended. A recorded activation never runs again. If this process has claimed the run
    /// automatically, because it [serves](Self::serve) the workflow, the handle is that of the active run.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: it is completed, cancelled, or failed (see [`Runtime::retry`]).
    /// - [`ErrorKind::Conflict`]: its owner is alive, another process claimed it at the same moment, or an earlier start or resume drives it
    ///   here.
    /// - [`ErrorKind::GraphChanged`]: a node of the frontier differs from the recorded one.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log is damaged, or of a newer version.
    /// - [`ErrorKind::Closed`]: this runtime is shutting down. [`ErrorKind::Unavailable`]: the store failed, or other writers keep writing to
    ///   the run.
    ///
    /// None of these cases changes the run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the request completes even if the caller drops it. Start the run again with the same id for a handle.
    pub fn resume<S: State>(
        &self,
        graph: &Graph<S>,
        run: impl TryInto<RunKey, Error: Into<Error>>,
    ) -> ResumeRequest<S> {
        ResumeRequest::new(Arc::clone(&self.shared), graph.clone(), run.try_into().map_err(Into::into))
    }

    /// Claims the runs of a workflow that have no driver, from now on: runs of ended processes, due runs, and runs that were answered, sent a
    /// message, unpaused or retried. Any number of processes may serve a workflow; each run is active in one of them.
    ///
    /// If the graph does not fit a run, the run stays unchanged, and [`stalled`](Self::stalled) lists it. A run with [too
    /// many](RuntimeBuilder::max_claims) claims without progress is paused.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] if this runtime serves the workflow already, [`ErrorKind::Invalid`] if it is an
    /// [operator's](RuntimeBuilder::operator).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::ask::{Answer, Ask};
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("pay")
    ///     .gate("approve", |_s: &Context| Ask::<bool>::new("Pay 120 EUR?"), |s, yes| s.set("approved", yes))
    ///     .entry("approve")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&graph)?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?; // interrupted
    /// runtime.respond(run.run(), "approve", Answer::accept(true)?).await?;
    /// # let mut events = runtime.events();
    /// let state = run.completed().await?; // a process claims it by itself
    /// assert_eq!(state.get::<bool>("approved")?, Some(true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve<S: State>(&self, graph: &Graph<S>) -> Result<()> {
        self.shared.check_drives()?;
        recovery::serve(&self.shared, graph, CheckpointPolicy::default())
    }

    /// Lists the runs that this process could not claim, with the reason and the time of the next attempt. Also lists runs with a long wait that
    /// a library reports, such as for a slot of a queue.
    pub fn stalled(&self) -> Vec<StalledRun> {
        self.shared.recovery.stalled(self.shared.clock.now(), self.shared.limits.heartbeat_ttl)
    }

    /// Answers a question of a run in any process. The record holds the author and the time. If the run is idle, this process or another one
    /// resumes it.
    ///
    /// `question` is the id of the question. It may also be the node (or `node@visit`) if only one of its questions is open. For a question of a
    /// descendant, use the id that [`questions`](Self::questions) of this run returns, or answer the descendant itself. A question of a node or
    /// a declared interrupt takes an [`Answer`]; a question about the unknown outcome of an `External` node takes a
    /// [`Resolution`](crate::record::Resolution).
    ///
    /// # Errors
    ///
    /// None of these cases changes the run.
    ///
    /// - [`ErrorKind::NotFound`]: no such run, or no such question; the error lists the open ones.
    /// - [`ErrorKind::AlreadyExists`]: the question has an answer; the error names its author.
    /// - [`ErrorKind::WrongStatus`]: the run has ended, or the deadline has passed.
    /// - [`ErrorKind::Invalid`]: the answer does not fit the question.
    pub fn respond(&self, run: &RunKey, question: &str, answer: impl Into<Answer>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, SignalKind::answer(question.to_owned(), answer.into()))
    }

    /// Sends a message to a run in any process. The next node that receives takes it. Messages wait in the order of sending, even before any
    /// node receives. If the run is idle and waits for a message, a process resumes it.
    ///
    /// # Errors
    ///
    /// None of these cases changes the run.
    ///
    /// - [`ErrorKind::NotFound`]: no such run.
    /// - [`ErrorKind::WrongStatus`]: the run has ended.
    /// - [`ErrorKind::Invalid`]: the message is not JSON.
    /// - [`ErrorKind::TooLarge`]: the message has more bytes than
    ///   [`RuntimeBuilder::max_body`](super::RuntimeBuilder::max_body).
    /// - [`ErrorKind::AlreadyExists`]: another message has the same [key](SendRequest::key).
    /// - [`ErrorKind::Unavailable`]: the run has [`RuntimeBuilder::max_waiting_messages`](super::RuntimeBuilder::max_waiting_messages) waiting
    ///   messages; send again after a node has taken some. Or the store failed.
    pub fn send(&self, run: &RunKey, message: impl serde::Serialize) -> SendRequest {
        SendRequest::new(&self.shared, run, &message)
    }

    /// Cancels a run in any process, permanently. Its nodes receive the cancellation, have a grace period, and are then dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (the run has ended, or its cancellation is in progress). Neither changes the run.
    pub fn cancel(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Pauses a run until [`unpause`](Self::unpause). Running nodes finish and record their results, nothing new starts, and the run becomes
    /// `Interrupted`. Answers and messages wait in the run meanwhile.
    ///
    /// Children that end with it ([`OnParentEnd::Cancel`](super::OnParentEnd::Cancel)) are paused before it becomes `Interrupted`, and continue
    /// with it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (the run has ended, or is paused). Neither changes the run.
    pub fn pause(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Pause { reason: reason.into() }))
    }

    /// Unpauses a run, whoever paused it. A child that was paused with its parent continues alone. Resume the run afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (not paused, or completed or cancelled). Neither changes the run.
    pub fn unpause(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Unpause))
    }

    /// Retries a failed run from its frontier, with new attempt counts. Resume the run afterwards.
    ///
    /// The retry overrides a limit on visits or steps: the nodes that it held back start. Rejected or expired questions are asked again, except
    /// a question after a node: the retry counts as approval there. If an `External` activation failed the run, the run asks for its outcome
    /// before it starts again, unless the activation reported that [nothing was done](crate::node::NodeError::not_done).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (not failed, or nothing to retry, for example because a goal was not met). Neither
    /// changes the run.
    pub fn retry(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Retry { settled: TokenChanges::default() }))
    }

    /// Moves an idle run to other nodes. It drops started activations, questions, timers and waiting tokens, and resets joins. The state stays;
    /// [`edit`](Self::edit) changes it. The log records the move and its reason, a [checkpoint](Self::checkpoint) lists it among the replans,
    /// and no replan limit counts it.
    ///
    /// [Pause](Self::pause) an active run first. Messages that a dropped activation had taken are lost. A node that runs again repeats its work;
    /// to leave the run unchanged, [fork](Self::fork) it.
    ///
    /// # Errors
    ///
    /// None of these cases changes the run.
    ///
    /// - [`ErrorKind::NotFound`]: no such run, or no such node in its graph.
    /// - [`ErrorKind::WrongStatus`]: the run is active, completed or cancelled; an activation whose work must not be repeated has an unknown
    ///   outcome; or a child of the run has not ended.
    /// - [`ErrorKind::Invalid`]: the nodes or the reason are missing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("charge", async |_cx, _s| Err::<(), _>("the bank is closed for good".into()))
    ///     .node("refund", async |_cx, s| Ok(s))
    ///     .entry("charge")
    ///     .edge("charge", "refund")
    ///     .build()?;
    /// let run = runtime.start(&graph, Context::new()).id("o-7").await?;
    /// assert!(run.wait().await?.to_string().starts_with("failed"));
    /// runtime.go_to(run.run(), "refund", "the bank will not open again").by("ann").await?;
    /// runtime.resume(&graph, "o-7").await?.completed().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn go_to(&self, run: &RunKey, nodes: impl NodeNames, reason: impl Into<String>) -> SignalRequest {
        let names = nodes.into_names().into_iter().map(NodeName::new).collect::<Result<Vec<_>>>();
        let what = names.map(|nodes| SignalKind::GoTo { nodes, reason: reason.into() });
        SignalRequest::new(&self.shared, run, what)
    }

    /// Edits the state of a run in any process. The log records the change and its author. Later activations see it. A running activation does
    /// not, and its own writes to the same channel apply after it.
    ///
    /// The patch must fit the channels. The driver, if this process has it, and the graph of [`check_with`](EditRequest::check_with) also check
    /// that the state type can read the changed channels. Without either check, an unreadable state stops the run, with everything recorded,
    /// until another edit repairs it: so inspect [the state](Self::checkpoint) first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::WrongStatus`]: it is completed or cancelled.
    /// - [`ErrorKind::Invalid`]: the patch does not fit the state, such as an append to a non-list or a merge into a non-object.
    /// - [`ErrorKind::GraphChanged`]: the state before the change does not fit the checking graph.
    /// - [`ErrorKind::TooLarge`]: the state would exceed the limit.
    ///
    /// None of these cases changes the run.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Op, Patch};
    /// # use ferrata_core::store::MemoryStore;
    /// # use ferrata_core::ask::Ask;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("pay")
    /// #     .gate("approve", |_s: &Context| Ask::<bool>::new("Pay?"), |s, yes| s.set("approved", yes))
    /// #     .entry("approve")
    /// #     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let run = runtime.start(&graph, Context::new()).await?;
    /// # run.wait().await?;
    /// # let (run, application) = (run.run(), &graph);
    /// let amount = Patch::from_ops(&[Op::Set("amount".into(), 120.into())])?;
    /// runtime.edit(run, amount.clone()).by("ann").await?; // a tool without the application's code
    /// runtime.edit(run, amount).check_with(application).by("ann").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn edit(&self, run: &RunKey, patch: Patch) -> EditRequest {
        EditRequest::new(&self.shared, run, patch)
    }

    /// Returns the open questions of a run; none once it has ended. Questions that were open when it failed are open again after a
    /// [`retry`](Self::retry). The questions of its active [children](crate::node::NodeContext::child) and their descendants follow: their ids
    /// contain the path to the child, and [`Question::asked_by`] names the asking run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn questions(&self, run: &RunKey) -> Result<Vec<Question>> {
        Ok(self.open_questions(run).await?.questions)
    }

    /// Returns the [`questions`](Self::questions), and the descendants that could not be read.
    ///
    /// # Errors
    ///
    /// The errors of [`questions`](Self::questions).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn open_questions(&self, run: &RunKey) -> Result<OpenQuestions> {
        questions_of_all(&*self.shared.store, run).await
    }

    /// Returns the waiting messages of a run, in the order in which nodes take them. Messages that still wait when the run ends stay here.
    ///
    /// # Errors
    ///
    /// The errors of [`questions`](Self::questions).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::Conversation;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("chat")
    /// #     .conversation("talk", ["end"], Conversation::new().exit_on("/quit"), async |_cx, _s, _text: String| Ok(()))
    /// #     .node("end", async |_cx, _s| Ok(()))
    /// #     .entry("talk")
    /// #     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let run = runtime.start(&graph, Context::new()).id("chat-7").await?;
    /// run.wait().await?;
    /// runtime.send(run.run(), "hello").by("ann").await?;
    /// let waiting = runtime.inbox(run.run()).await?;
    /// assert_eq!((waiting[0].number, waiting[0].read::<String>()?), (0, "hello".to_owned()));
    ///
    /// runtime.resume(&graph, "chat-7").await?.wait().await?;
    /// assert!(runtime.inbox(run.run()).await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inbox(&self, run: &RunKey) -> Result<Vec<Message>> {
        let records = self.shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
        Ok(inbox(&fold(run, &records, None)?.machine))
    }

    /// Returns the head of a run; `None` if there is no such run.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::head`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.shared.store.head(run).await
    }

    /// Lists runs by workflow, status, label, user, tenant and age, without reading their logs.
    ///
    /// # Errors
    ///
    /// See [`RunsRequest`].
    pub fn runs(&self) -> RunsRequest {
        RunsRequest::new(&self.shared)
    }

    /// Watches a run in any process: its recorded events, each once and in order, and live events in this process.
    ///
    /// If the store sends no [notices](crate::store::Capabilities::notices), the watch polls a run in another process five times a second.
    ///
    /// # Errors
    ///
    /// See [`WatchRequest`].
    pub fn watch(&self, run: &RunKey) -> WatchRequest {
        WatchRequest::new(&self.shared, run)
    }

    /// Returns the events of all runs in this process from now on. Events may concern work that a crash undoes, and a slow subscriber misses
    /// some. For certainty, [`watch`](Self::watch) a run.
    pub fn events(&self) -> EventSubscription {
        self.shared.subscribe()
    }

    /// Drains the runtime for a rolling deployment: it claims nothing new, lets every active run end or become idle in its own time, and returns
    /// when none is left. From now on, [`start`](Self::start) and [`resume`](Self::resume) fail with [`ErrorKind::Closed`]. Signals still work,
    /// and runs that nodes start are recorded for other processes.
    ///
    /// A run that waits only for a time is released at once, however near the time is. A run in line for room is left to other processes. Both
    /// stay in the store without an owner. Runs record their results as usual, so no process repeats finished work.
    ///
    /// The call has no time limit: an endless loop never becomes idle. Wait as long as your deployment allows, then call
    /// [`shutdown`](Self::shutdown), which cuts the rest short:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// tokio::select! {
    ///     drained = runtime.drain() => drained?,
    ///     () = tokio::time::sleep(Duration::from_secs(60)) => runtime.shutdown(Duration::from_secs(5)).await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime still claims nothing new. Call it again to wait, or [`shutdown`](Self::shutdown).
    pub async fn drain(&self) -> Result<()> {
        background_tasks::end(&self.shared, RuntimePhase::Draining).await
    }

    /// Shuts the runtime down: starts nothing new, lets nodes finish for `grace`, drops the rest, and releases every run for other processes.
    /// Returns when all runs are released.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::heartbeat`], if the store failed twice to record the end of this process. The runs are released all the
    /// same, or count as orphaned once the heartbeat expires.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime still shuts down. Call it again to wait.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        background_tasks::end(&self.shared, RuntimePhase::Ending(grace)).await
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("executor", &self.shared.executor)
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}
