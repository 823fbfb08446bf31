//! The runtime as an application sees it: one per process and store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::event::Events;
use super::fleet::life;
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
use crate::past::family::{OpenQuestions, questions_of_all};
use crate::record::body::{SignalKind, TokenChanges};
use crate::state::{Patch, State};
use crate::store::{At, CheckpointStore, RunHead};

/// Starts, resumes and steers runs. Cheap to clone; all clones are one runtime.
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
    /// Starts making a runtime over a store.
    pub fn builder(store: impl CheckpointStore) -> RuntimeBuilder {
        Self::builder_with(Arc::new(store))
    }

    /// Starts making a runtime over a store that is shared with others.
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

    /// Starts a run, or finds it again.
    ///
    /// When the request comes back, the start is durable (unless checkpoints are disabled). Starting the same id with the
    /// same input again is the same run: one without a driver is claimed, one that has ended or goes on elsewhere is
    /// watched.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::AlreadyExists`]: the id was used with another input or workflow. Nothing was changed.
    /// - [`ErrorKind::Invalid`], [`ErrorKind::TooLarge`]: the id, a label or the input cannot be stored. Nothing was changed.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store; start again with the same id.
    /// - [`ErrorKind::GraphChanged`]: as [`Runtime::resume`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it. Start it again with the same id for a handle.
    ///
    /// <!-- held by: runs::starting_again_is_the_same_run_and_another_input_is_refused, refusals::an_input_that_cannot_be_stored_is_refused_at_the_start -->
    pub fn start<S: State>(&self, graph: &Graph<S>, input: S) -> StartRequest<S> {
        StartRequest::new(Arc::clone(&self.shared), graph.clone(), input)
    }

    /// Goes on with a run after its process ended, from its last record. A recorded activation never runs again. If this process has taken it
    /// up by itself, because it [serves](Self::serve) the workflow, the handle is that of the run as it goes on.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: it is completed, cancelled, or failed (see [`Runtime::retry`]).
    /// - [`ErrorKind::Conflict`]: its owner is alive, or another executor took it at the same moment, or it goes on here
    ///   by a start or resume of before.
    /// - [`ErrorKind::GraphChanged`]: a node where the run is differs from the one it was recorded with.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log cannot be read.
    /// - [`ErrorKind::Closed`]: this runtime is shutting down. [`ErrorKind::Unavailable`]: the store, or others keep writing to the run.
    ///
    /// Nothing was changed in any of these cases.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it. Start the run again with the same id for a handle.
    ///
    /// <!-- held by: recovery::a_run_that_was_taken_up_just_before_is_resumed_all_the_same, signals::of_two_that_resume_at_once_one_wins, refusals::a_changed_graph_is_refused_only_where_the_run_is -->
    pub fn resume<S: State>(
        &self,
        graph: &Graph<S>,
        run: impl TryInto<RunKey, Error: Into<Error>>,
    ) -> ResumeRequest<S> {
        ResumeRequest::new(Arc::clone(&self.shared), graph.clone(), run.try_into().map_err(Into::into))
    }

    /// Claims the runs of a workflow that have no driver, from now on: those whose process ended, that were
    /// answered, sent a message, unpaused or retried, and those whose time has come. Any number of processes may serve a
    /// workflow; each run goes on in one of them.
    ///
    /// A run that the graph does not fit is left as it is and listed by [`stalled`](Self::stalled). One that was taken up
    /// [too often](RuntimeBuilder::max_claims) without any progress is paused.
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
    /// let state = run.completed().await?; // taken up by itself
    /// assert_eq!(state.get::<bool>("approved")?, Some(true));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// <!-- held by: recovery::a_run_that_the_graph_does_not_fit_is_listed_and_holds_up_nobody -->
    pub fn serve<S: State>(&self, graph: &Graph<S>) -> Result<()> {
        self.shared.check_drives()?;
        recovery::serve(&self.shared, graph, CheckpointPolicy::default())
    }

    /// Lists the runs that could not be taken up here, with the reason and the time of the next try, and those that have waited for long for what
    /// a library keeps, as a place of a queue.
    pub fn stalled(&self) -> Vec<StalledRun> {
        self.shared.recovery.stalled(self.shared.clock.now(), self.shared.limits.heartbeat_ttl)
    }

    /// Answers a question, wherever the run is. Who answered and when is recorded. A run at rest is resumed afterwards, by this
    /// process or another.
    ///
    /// The question is named by its id, or by the node (or `node@visit`) if only one of its questions is open. That of a descendant is
    /// answered by the id that [`questions`](Self::questions) of this run says, or through the descendant itself. To one that a
    /// node or a declared interrupt asks, the answer is an [`Answer`]; to what became of an `External` node that is in doubt, it
    /// is a [`Resolution`](crate::record::Resolution).
    ///
    /// # Errors
    ///
    /// The run is untouched in each of these cases.
    ///
    /// - [`ErrorKind::NotFound`]: no such run, or no such question: the open ones are named.
    /// - [`ErrorKind::AlreadyExists`]: it was answered; the error says by whom.
    /// - [`ErrorKind::WrongStatus`]: the run has ended, or the deadline is over.
    /// - [`ErrorKind::Invalid`]: the answer is not what the question expects.
    ///
    /// <!-- held by: pauses::a_wrong_answer_is_refused_and_leaves_the_run_as_it_was, sentences::an_answer_that_is_given_again_is_refused_as_there_already -->
    pub fn respond(&self, run: &RunKey, question: &str, answer: impl Into<Answer>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, SignalKind::answer(question.to_owned(), answer.into()))
    }

    /// Sends a message to a run, wherever it is, for whichever node receives next. Messages wait in the order in which they
    /// were sent, also before any node receives. A run at rest that waits for one is resumed afterwards.
    ///
    /// # Errors
    ///
    /// The run is untouched in each of these cases.
    ///
    /// - [`ErrorKind::NotFound`]: no such run.
    /// - [`ErrorKind::WrongStatus`]: the run has ended.
    /// - [`ErrorKind::Invalid`]: the message is not JSON.
    /// - [`ErrorKind::TooLarge`]: the message has more bytes than
    ///   [`RuntimeBuilder::max_body`](super::RuntimeBuilder::max_body).
    /// - [`ErrorKind::AlreadyExists`]: another message was sent with the [key](SendRequest::key).
    /// - [`ErrorKind::Unavailable`]: as many messages wait in the run as
    ///   [`RuntimeBuilder::max_waiting_messages`](super::RuntimeBuilder::max_waiting_messages) allows. Send it again when a node has
    ///   taken some. As with everything that is said to a run, the store can be the reason, too.
    ///
    /// <!-- held by: crowds::no_more_messages_wait_in_a_run_that_goes_on_than_may, model::every_operation_does_what_the_documentation_says -->
    pub fn send(&self, run: &RunKey, message: impl serde::Serialize) -> SendRequest {
        SendRequest::new(&self.shared, run, &message)
    }

    /// Asks a run to stop for good, wherever it goes on. Its nodes are told, have a grace, and are then dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (it has ended, or is being cancelled). The run is untouched then.
    ///
    /// <!-- held by: cancelling::of_two_cancellations_one_is_recorded_however_they_are_made, model::every_operation_does_what_the_documentation_says -->
    pub fn cancel(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Stops a run until [`unpause`](Self::unpause): nodes at work finish and are recorded, nothing new starts, and the run is
    /// `Interrupted`. Answers and messages are taken meanwhile, and wait.
    ///
    /// Its children that end with it ([`OnParentEnd::Cancel`](super::OnParentEnd::Cancel)) are paused before it is `Interrupted`, and go on
    /// when it does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (it has ended, or is paused). The run is untouched then.
    ///
    /// <!-- held by: held::a_pause_reaches_the_children_that_end_with_the_parent_at_any_depth_and_no_others, rests::a_pause_holds_what_waits, model::every_operation_does_what_the_documentation_says -->
    pub fn pause(&self, run: &RunKey, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Pause { reason: reason.into() }))
    }

    /// Lets a paused run go on, whoever paused it: a child that is paused with its parent goes on alone. Resume it afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (it is not paused, or is completed or cancelled). The run is untouched
    /// then.
    ///
    /// <!-- held by: held::a_child_that_its_parent_holds_is_paused_by_itself_and_let_go_on_by_itself, sentences::a_run_that_failed_while_paused_needs_an_unpause_beside_the_retry, model::every_operation_does_what_the_documentation_says -->
    pub fn unpause(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Unpause))
    }

    /// Lets a failed run go on from its frontier, attempts counted anew. Resume it afterwards.
    ///
    /// What a limit on visits or steps held back starts: the retry is the operator's leave to go past it. Questions of any
    /// activation that were rejected or expired are asked again, except one behind a node: the retry is the leave to go on there.
    /// What became of an `External` activation that failed the run is asked before it is begun again, unless it said that
    /// [nothing was done](crate::node::NodeError::not_done).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::WrongStatus`] (it is not failed, or
    /// nothing of it is left to be tried again, as when a goal was not met). The run is untouched then.
    ///
    /// <!-- held by: retries::a_retry_asks_every_rejected_question_again_and_no_accepted_one, runs::a_run_that_missed_its_goal_has_nothing_left_to_retry -->
    pub fn retry(&self, run: &RunKey) -> SignalRequest {
        SignalRequest::new(&self.shared, run, Ok(SignalKind::Retry { settled: TokenChanges::default() }))
    }

    /// Has a run at rest go on at these nodes instead of where it is: activations that had begun, questions, timers and tokens that wait are
    /// dropped, and joins count anew. The state stays, [`edit`](Self::edit) changes it. The move and its reason are recorded, and stand
    /// among the replans of a [checkpoint](Self::checkpoint); no limit of replans counts it.
    ///
    /// A run at work is [paused](Self::pause) first. Messages that a dropped activation had taken are gone with it. A node that is run again
    /// does its work again: a [fork](Self::fork) leaves the run as it is.
    ///
    /// # Errors
    ///
    /// The run is untouched in each of these cases.
    ///
    /// - [`ErrorKind::NotFound`]: no such run, or no such node in its graph.
    /// - [`ErrorKind::WrongStatus`]: it is at work, completed or cancelled; an activation of it may have done what must not be done twice, and
    ///   nobody has answered what became of it; or a child of it has not ended.
    /// - [`ErrorKind::Invalid`]: no node or no reason is given.
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
    ///
    /// <!-- held by: moves::a_run_at_rest_goes_on_where_it_is_told, moves::a_run_that_cannot_be_moved_says_why_and_stays_as_it_is -->
    pub fn go_to(&self, run: &RunKey, nodes: impl NodeNames, reason: impl Into<String>) -> SignalRequest {
        let names = nodes.into_names().into_iter().map(NodeName::new).collect::<Result<Vec<_>>>();
        let what = names.map(|nodes| SignalKind::GoTo { nodes, reason: reason.into() });
        SignalRequest::new(&self.shared, run, what)
    }

    /// Changes the state of a run, wherever it is; the change and who made it are recorded. Activations that start afterwards
    /// see it; one at work does not, and what it writes to the same channel comes after it.
    ///
    /// The patch must fit the channels. Whether the type of the state can read the changed channels is checked by the driver if
    /// this process drives the run, and by the graph of [`checked_by`](EditRequest::checked_by). Without either, a run whose state
    /// cannot be read stops where it is with everything recorded, until another edit puts it right: so look at
    /// [the state](Self::checkpoint) first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::WrongStatus`]: it is completed or cancelled.
    /// - [`ErrorKind::Invalid`]: the patch does not fit the state: an append to what is no list, a merge into what is no object.
    /// - [`ErrorKind::GraphChanged`]: the state before the change does not fit the graph that checks it.
    /// - [`ErrorKind::TooLarge`]: the state would be larger than is allowed.
    ///
    /// The run is untouched then.
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
    /// runtime.edit(run, amount).checked_by(application).by("ann").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// <!-- held by: pauses::an_edit_changes_the_state_that_later_nodes_see, refusals::an_edit_that_makes_the_state_too_large_leaves_the_run_untouched_wherever_it_is, sentences::an_edit_that_migrates_leaves_a_sound_log -->
    pub fn edit(&self, run: &RunKey, patch: Patch) -> EditRequest {
        EditRequest::new(&self.shared, run, patch)
    }

    /// Returns the questions that a run waits for; none once it has ended. Those that were open when it failed are open again
    /// after a [`retry`](Self::retry). Those of its [children](crate::node::NodeContext::child) that go on, and of theirs, follow: their
    /// ids say the way down to them, and [`Question::asked_by`] the run that asks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: operator::looking_changes_nothing_in_the_store, levels::questions_of_descendants_are_listed_with_the_way_down_and_answered_by_either_id -->
    pub async fn questions(&self, run: &RunKey) -> Result<Vec<Question>> {
        Ok(self.open_questions(run).await?.questions)
    }

    /// Returns what [`questions`](Self::questions) does, and which descendants could not be read.
    ///
    /// # Errors
    ///
    /// As [`questions`](Self::questions).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: reasons::unreadable_child_is_a_reason -->
    pub async fn open_questions(&self, run: &RunKey) -> Result<OpenQuestions> {
        questions_of_all(&*self.shared.store, run).await
    }

    /// Returns the messages that were sent to a run and that no node has taken, in the order in which they are taken. Those
    /// that no node took before the run ended stay here.
    ///
    /// # Errors
    ///
    /// As [`questions`](Self::questions).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
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
    ///
    /// <!-- held by: operator::looking_changes_nothing_in_the_store -->
    pub async fn inbox(&self, run: &RunKey) -> Result<Vec<Message>> {
        let records = self.shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
        Ok(inbox(&fold(run, &records, None)?.machine))
    }

    /// Returns how a run stands; `None` if there is no such run.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::head`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: operator::looking_changes_nothing_in_the_store -->
    pub async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.shared.store.head(run).await
    }

    /// Lists runs by workflow, status, label, user, tenant and age, without reading their logs.
    ///
    /// # Errors
    ///
    /// See [`RunsRequest`].
    ///
    /// <!-- held by: operator::runs_are_listed_by_what_is_known_of_them -->
    pub fn runs(&self) -> RunsRequest {
        RunsRequest::new(&self.shared)
    }

    /// Watches a run, wherever it goes on: what is recorded of it, each record once and in order, and what is heard of it here.
    ///
    /// Where the store sends no [notices](crate::store::Capabilities::notices), a run that goes on elsewhere is looked at five times a second.
    ///
    /// # Errors
    ///
    /// See [`WatchRequest`].
    ///
    /// <!-- held by: watching::a_watcher_that_drops_out_anywhere_misses_nothing_and_hears_nothing_twice -->
    pub fn watch(&self, run: &RunKey) -> WatchRequest {
        WatchRequest::new(&self.shared, run)
    }

    /// Returns what happens in this process from now on, in all its runs. Nothing of it is certain, and a slow subscriber misses some:
    /// [`watch`](Self::watch) a run for what happened to it.
    pub fn events(&self) -> Events {
        self.shared.subscribe()
    }

    /// Empties the runtime for a rolling deployment: takes nothing new, lets every run that goes on here come to rest or end in its own
    /// time, and comes back when none is left. [`start`](Self::start) and [`resume`](Self::resume) are refused with
    /// [`ErrorKind::Closed`] from now on; signals are still taken, and what nodes start is recorded and left to others.
    ///
    /// A run that only time can move is let go of at once, however near that time is, and one that waits for room is left to others:
    /// both are in the store, without an owner. What ends or rests is recorded as always, so nothing that was done is done again.
    ///
    /// There is no bound on how long that takes: a run that loops for ever never comes to rest. Give it the time that your
    /// deployment has, then call [`shutdown`](Self::shutdown), which cuts short what is left:
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
    /// As [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime takes nothing new all the same; call it again to wait, or [`shutdown`](Self::shutdown).
    ///
    /// <!-- held by: endings::a_drain_lets_runs_end_and_leaves_the_rest_to_others, endings::a_drain_whose_caller_went_away_ends_the_heartbeat -->
    pub async fn drain(&self) -> Result<()> {
        life::end(&self.shared, RuntimePhase::Draining).await
    }

    /// Ends the runtime: starts nothing new, lets nodes finish for `grace`, drops the rest, and lets every run go, so that
    /// another process can take it at once. Comes back when all runs are let go.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::heartbeat`], if the store refused twice to be told that this process has ended; the runs are let go
    /// all the same, or count as orphaned after the heartbeat's life.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the runtime ends all the same; call it again to wait.
    ///
    /// <!-- held by: runs::a_shutdown_lets_runs_go_and_another_runtime_goes_on, endings::a_shutdown_outlives_a_connection_that_broke_while_it_was_idle, endings::a_shutdown_does_not_wait_for_the_grace_of_a_cancellation -->
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        life::end(&self.shared, RuntimePhase::Ending(grace)).await
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
