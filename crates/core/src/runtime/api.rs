//! The methods of [`Runtime`] that start, resume and control runs.

use crate::runtime::runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::fleet::background_tasks;
use super::inbox::{Message, inbox};
use super::requests::resume::ResumeRequest;
use super::requests::runs::RunsRequest;
use super::requests::start::StartRequest;
use super::watch::WatchRequest;
use crate::ask::{Answer, Question};
use crate::engine::fold::fold;
use crate::engine::fold::missing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::{CheckpointPolicy, Graph, NodeNames};
use crate::id::{ExecutorId, NodeName, RunKey};
use crate::kernel::commands::RuntimePhase;
use crate::kernel::recovery::StalledRun;
use crate::kernel::subscribers::EventSubscription;
use crate::past::run_tree::{OpenQuestions, questions_of_all};
use crate::record::body::{SignalKind, TokenChanges};
use crate::runtime::fleet::serve::serve;
use crate::runtime::signals::edit::EditRequest;
use crate::runtime::signals::send::SendRequest;
use crate::runtime::signals::signal::SignalRequest;
use crate::state::{Patch, State};
use crate::store::{At, CheckpointStore, RunHead};

impl Runtime {
    /// Returns a builder for a runtime that keeps its runs in `store`.
    pub fn builder(store: impl CheckpointStore) -> RuntimeBuilder {
        Self::builder_with(Arc::new(store))
    }

    /// Returns a builder for a runtime that keeps its runs in a shared `store`.
    pub fn builder_with(store: Arc<dyn CheckpointStore>) -> RuntimeBuilder {
        RuntimeBuilder::new(store)
    }

    /// Registers `graph` so that this process claims runs of its workflow whenever no process drives them. These are runs of dead processes, runs
    /// whose timer has expired, and idle runs that received an answer or a message or were unpaused or retried. Any number of processes may serve a
    /// workflow. Each run is active in one of them.
    ///
    /// If the graph does not fit a run, the run stays unchanged, and [`stalled`](Self::stalled) lists it. If a run was claimed [too
    /// often](RuntimeBuilder::max_claims) without progress, it is paused.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::AlreadyExists`] if this runtime already serves the workflow, and [`ErrorKind::Invalid`] if it is an
    /// [operator's](RuntimeBuilder::operator) runtime.
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
        self.shared().check_drives()?;
        serve(self.shared(), graph, CheckpointPolicy::default())
    }

    /// Starts a run, or returns a handle to the existing run with the same id and input.
    ///
    /// When the request returns, the start is durable (unless checkpoints are disabled). If you repeat a start with the same id and input, the
    /// repeated start claims the run if no process drives it. If the run has ended or is active in another process, the returned handle watches it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::AlreadyExists`]: a run with this id has another input or workflow. The start changed nothing.
    /// - [`ErrorKind::Invalid`], [`ErrorKind::TooLarge`]: the id, a label or the input is not valid or too large. The start changed nothing.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store failed; start again with the same id.
    /// - [`ErrorKind::GraphChanged`]: see [`Runtime::resume`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the start completes even if the caller drops the future. To get a handle, start again with the same id.
    pub fn start<S: State>(&self, graph: &Graph<S>, input: S) -> StartRequest<S> {
        StartRequest::new(Arc::clone(self.shared()), graph.clone(), input)
    }

    /// Claims a run that no process drives, and continues it from its last record. An activation whose result is recorded never runs again. If this
    /// process has already claimed the run because it [serves](Self::serve) the workflow, the request returns a handle to the active run.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: the run is completed, cancelled, or failed (see [`Runtime::retry`]).
    /// - [`ErrorKind::Conflict`]: the owner of the run is alive, another process claimed the run at the same moment, or an earlier start or resume in
    ///   this process drives it.
    /// - [`ErrorKind::GraphChanged`]: an unfinished node of the run differs between this graph and the recorded graph.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log is damaged, or of a newer version.
    /// - [`ErrorKind::Closed`]: this runtime is shutting down. [`ErrorKind::Unavailable`]: the store failed, or the claim conflicted too often with
    ///   other writes to the run.
    ///
    /// In all these cases the run stays unchanged.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future. To get a handle then, start the run again with
    /// the same id.
    pub fn resume<S: State>(
        &self,
        graph: &Graph<S>,
        run: impl TryInto<RunKey, Error: Into<Error>>,
    ) -> ResumeRequest<S> {
        ResumeRequest::new(Arc::clone(self.shared()), graph.clone(), run.try_into().map_err(Into::into))
    }

    /// Answers a question of a run. The run may be idle or active in any process. The answer is recorded with its author and time. If the run is
    /// idle, a process that serves its workflow claims and continues it.
    ///
    /// `question` is the id of the question. If only one question of a node is open, it may also be the name of the node or `node@visit`. For a
    /// question of a descendant run, use the id that [`questions`](Self::questions) of this run returns, or call this method with the key of the
    /// descendant. A question of a node or of a declared interrupt takes an [`Answer`]. A question about the unknown outcome of an `External` node
    /// takes a [`Resolution`](crate::record::Resolution).
    ///
    /// # Errors
    ///
    /// In all these cases the run stays unchanged.
    ///
    /// - [`ErrorKind::NotFound`]: the run or the question does not exist; the error lists the open questions.
    /// - [`ErrorKind::AlreadyExists`]: the question already has an answer; the error names the author of that answer.
    /// - [`ErrorKind::WrongStatus`]: the run has ended, or the deadline of the question has passed.
    /// - [`ErrorKind::Invalid`]: the answer does not fit the question.
    pub fn respond(&self, run: &RunKey, question: &str, answer: impl Into<Answer>) -> SignalRequest {
        SignalRequest::new(self.shared(), run, SignalKind::answer(question.to_owned(), answer.into()))
    }

    /// Sends a message to a run. The run may be idle or active in any process. The next node that calls
    /// [`receive`](crate::node::NodeContext::receive) takes the message. Messages wait in the order in which they were sent, even before any node
    /// receives. If the run is idle and waits for a message, a process that serves its workflow claims and continues it.
    ///
    /// # Errors
    ///
    /// In all these cases the run stays unchanged.
    ///
    /// - [`ErrorKind::NotFound`]: no such run.
    /// - [`ErrorKind::WrongStatus`]: the run has ended.
    /// - [`ErrorKind::Invalid`]: the message is not JSON.
    /// - [`ErrorKind::TooLarge`]: the message has more bytes than
    ///   [`RuntimeBuilder::max_body`](super::RuntimeBuilder::max_body).
    /// - [`ErrorKind::AlreadyExists`]: another message has the same [key](SendRequest::key).
    /// - [`ErrorKind::Unavailable`]: the store failed, or as many messages wait in the run as
    ///   [`RuntimeBuilder::max_waiting_messages`](super::RuntimeBuilder::max_waiting_messages) allows; in this case send again after a node has taken
    ///   messages.
    pub fn send(&self, run: &RunKey, message: impl serde::Serialize) -> SendRequest {
        SendRequest::new(self.shared(), run, &message)
    }

    /// Returns the open questions of a run. A run that has ended has no open questions. Questions that were open when the run failed are open again
    /// after a [`retry`](Self::retry). After the questions of the run itself, the result contains the questions of its active
    /// [children](crate::node::NodeContext::child) and their descendants. Their ids contain the path to the child, and [`Question::asked_by`] names
    /// the run that asks.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`] or [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn questions(&self, run: &RunKey) -> Result<Vec<Question>> {
        Ok(self.open_questions(run).await?.questions)
    }

    /// Cancels a run permanently. The run may be idle or active in any process. Its running nodes are notified of the cancellation. Nodes that still
    /// run after the [grace period](RuntimeBuilder::cancel_grace) are dropped.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, and [`ErrorKind::WrongStatus`] if it has ended or is already being cancelled. In
    /// these cases the run stays unchanged.
    pub fn cancel(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Pauses a run until [`unpause`](Self::unpause) is called. Running nodes finish and record their results, and no further node starts. The run
    /// then has the status `Interrupted`. Answers and messages that arrive during the pause wait in the run.
    ///
    /// Children that end with the run ([`OnParentEnd::Cancel`](super::OnParentEnd::Cancel)) are paused before the run becomes `Interrupted`, and
    /// continue when the run continues.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, and [`ErrorKind::WrongStatus`] if it has ended or is already paused. In these cases
    /// the run stays unchanged.
    pub fn pause(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Pause { reason: reason.into() }))
    }

    /// Ends the pause of a run, no matter who paused it. If the run is a child that was paused with its parent, the child continues and the parent
    /// stays paused. An unpaused run continues in a process that serves its workflow, or when you resume it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, and [`ErrorKind::WrongStatus`] if it is not paused, or is completed or cancelled.
    /// In these cases the run stays unchanged.
    pub fn unpause(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Unpause))
    }

    /// Retries a failed run: its unfinished activations run again, with new attempt counts. The run continues in a process that serves its workflow,
    /// or when you resume it.
    ///
    /// If the run failed because of a limit on visits or steps, the retry overrides the limit for the nodes that could not start. Rejected or expired
    /// questions are asked again. An exception is a question that [`interrupt_after`](crate::graph::GraphBuilder::interrupt_after) asks: the retry
    /// counts as its acceptance. If an `External` activation failed the run, the run asks for the outcome before this activation runs again, unless
    /// the error of the activation was marked [not done](crate::node::NodeError::not_done).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, and [`ErrorKind::WrongStatus`] if it has not failed or there is nothing to retry,
    /// for example because a goal was not met. In these cases the run stays unchanged.
    pub fn retry(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Retry { settled: TokenChanges::default() }))
    }

    /// Moves an idle run to other nodes, where it then continues. Unfinished activations, questions, timers and inputs that wait at joins are
    /// dropped. The state stays the same. Use [`edit`](Self::edit) to change it. The log records the move and its reason, and a
    /// [checkpoint](Self::checkpoint) lists the move among the replans. The move does not count towards replan limits.
    ///
    /// If the run is active, [pause](Self::pause) it first. Messages that a dropped activation had taken are lost. A node that runs again repeats its
    /// work. If the original run must not change, [fork](Self::fork) it instead.
    ///
    /// # Errors
    ///
    /// In all these cases the run stays unchanged.
    ///
    /// - [`ErrorKind::NotFound`]: the run does not exist, or its graph has no such node.
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
        SignalRequest::new(self.shared(), run, what)
    }

    /// Edits the state of a run. The run may be idle or active in any process. The log records the change and its author. Activations that start
    /// later see the change. Running activations do not see it, and their own updates to the same channel are applied after the edit.
    ///
    /// The patch must fit the channels. If this process drives the run, or if you call [`check_with`](EditRequest::check_with), the call also checks
    /// that the state type can read the changed channels. Without this check, an edit may make the state unreadable. The run then stops without
    /// losing records, until another edit repairs the state. So inspect [the state](Self::checkpoint) first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run does not exist. [`ErrorKind::WrongStatus`]: the run is completed or cancelled.
    /// - [`ErrorKind::Invalid`]: the patch does not fit the state, such as an append to a non-list or a merge into a non-object.
    /// - [`ErrorKind::GraphChanged`]: the state before the change does not fit the graph of [`check_with`](EditRequest::check_with).
    /// - [`ErrorKind::TooLarge`]: the state would exceed the limit.
    ///
    /// In all these cases the run stays unchanged.
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
        EditRequest::new(self.shared(), run, patch)
    }

    /// Returns the head of a run: its last record and its status. Returns `None` if the run does not exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::head`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.shared().store.head(run).await
    }

    /// Lists runs by workflow, status, label, user, tenant and age, without reading their logs.
    ///
    /// # Errors
    ///
    /// See [`RunsRequest`].
    pub fn runs(&self) -> RunsRequest {
        RunsRequest::new(self.shared())
    }

    /// Watches a run, which may be idle or active in any process. The watch yields each recorded event once and in order. If this process drives the
    /// run, it also yields live events.
    ///
    /// If the run is not driven by this process and the store sends no [notices](crate::store::Capabilities::notices), the watch polls the store five
    /// times a second.
    ///
    /// # Errors
    ///
    /// See [`WatchRequest`].
    pub fn watch(&self, run: &RunKey) -> WatchRequest {
        WatchRequest::new(self.shared(), run)
    }

    /// Returns the events of all runs in this process that happen after this call. Events may report work that is not durable yet, and a slow
    /// subscriber misses events. To get every durable event of a run, [`watch`](Self::watch) the run.
    pub fn events(&self) -> EventSubscription {
        self.shared().subscribe()
    }

    /// Shuts the runtime down. No further node starts, and running nodes have the time `grace` to finish. Nodes that still run then are dropped. The
    /// runtime releases every run, so that other processes can claim it. The call returns when all runs are released.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::heartbeat`] if the store failed twice to record the end of this process. Other processes can then
    /// still claim the runs: at once if their release was recorded, or after the heartbeat of this process has expired.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime continues to shut down. To wait again, call this method again.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        background_tasks::end(self.shared(), RuntimePhase::Ending(grace)).await
    }

    /// Drains the runtime for a rolling deployment. The runtime claims no further runs, and the call returns when each active run has ended or become
    /// idle by itself. After the call, [`start`](Self::start) and [`resume`](Self::resume) fail with [`ErrorKind::Closed`]. Signals still work. Runs
    /// that nodes start are recorded, and other processes drive them.
    ///
    /// A run that waits only for a time is released at once, even if the time is near. A run that waits in line because of
    /// [`run_limits`](RuntimeBuilder::run_limits) is left to other processes. Both stay in the store without an owner. Runs record their results as
    /// usual, so no process repeats finished work.
    ///
    /// The call has no time limit, and a run with an endless loop never becomes idle. Wait as long as your deployment allows, then call
    /// [`shutdown`](Self::shutdown), which stops the remaining runs:
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
    /// Returns the errors of [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime continues to drain. To wait again, call this method or [`shutdown`](Self::shutdown).
    pub async fn drain(&self) -> Result<()> {
        background_tasks::end(self.shared(), RuntimePhase::Draining).await
    }

    /// Returns the waiting messages of a run, in the order in which nodes take them. If messages still wait when the run ends, they stay in the list.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`questions`](Self::questions).
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
        let records = self.shared().store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
        Ok(inbox(&fold(run, &records, None)?.machine))
    }

    /// Lists the runs that this process could not claim, each with the reason and the time of the next attempt. The list also contains runs for which
    /// a library reports a long wait, for example for a slot of a queue.
    pub fn stalled(&self) -> Vec<StalledRun> {
        self.shared().recovery.stalled(self.shared().clock.now(), self.shared().limits.heartbeat_ttl)
    }

    /// Returns the id of this process. Each runtime has a new id, which is never used again.
    pub fn executor(&self) -> ExecutorId {
        self.shared().executor
    }

    /// Returns the store of this runtime.
    pub fn store(&self) -> &Arc<dyn CheckpointStore> {
        &self.shared().store
    }

    /// Returns the [`questions`](Self::questions) of a run, and a list of the descendants that could not be loaded.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`questions`](Self::questions).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    #[doc(hidden)]
    pub async fn open_questions(&self, run: &RunKey) -> Result<OpenQuestions> {
        questions_of_all(&*self.shared().store, run).await
    }
}
