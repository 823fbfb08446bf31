//! What a node asks of its run while it works: steps, timers, messages, questions. All of it survives a restart.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::context::{Command, NodeContext, NodeScope};
use super::error::NodeError;
use crate::ask::{Answer, Ask, AskError, Request};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::{Asked, Memo, Reply};
use crate::record::pause::Message;
use crate::state::strict;

/// How long a name of a step or question may be, in bytes.
const LONGEST: usize = 128;

/// How the problem of a question begins whose default is no answer to it.
const DEFAULT_REFUSED: &str = "its deadline is over, and its default cannot be read: ";

/// What an activation wishes to note, or waits for.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Keep what a step came to.
    Keep(Box<RawValue>),
    /// Find what a step came to, in its place among the waits that ended before.
    Recall,
    /// Wait until then.
    Until(Timestamp),
    /// Take the next message, waiting for it, but not longer than this.
    Message { patience: Option<Duration> },
    /// Set the message aside that was taken last, and take the next.
    Refuse { message: u64, why: String, patience: Option<Duration> },
    /// Ask, or find the question again.
    Ask(Request),
    /// Ask once more, because the answer cannot be read; of a default, which would come again at once, it is only noted.
    AskAgain { problem: String, by_default: bool },
}

/// What a wish came to.
#[derive(Debug)]
pub(crate) enum Given {
    /// It is noted, or the time has come.
    Done,
    /// A message.
    Message(Message),
    /// No message came in time.
    Idle,
    /// What became of the question.
    Reply(Arc<Asked>),
}

/// What an attempt counts of its waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The names used in this attempt.
    names: Mutex<BTreeSet<String>>,
    sleeps: AtomicU32,
    receives: AtomicU32,
    /// How many wishes are not answered yet.
    wishes: AtomicU32,
    /// How many of them the driver has not taken in yet.
    untaken: AtomicU32,
    /// How many steps are at work.
    working: AtomicU32,
    /// How many replies were sent, or are about to be, that the node has not read yet.
    unread: AtomicU32,
    /// How often it is kept awake.
    held: AtomicU32,
    /// Whether the node is being polled.
    polled: AtomicBool,
    /// Whether the last poll ended with nothing left to do but to wait for wishes.
    parked: AtomicBool,
    /// Whether the driver is to be told when a poll is over or a reply is read.
    wanted: AtomicBool,
}

impl Waits {
    /// Whether the attempt has nothing to do until something that it waits for comes.
    ///
    /// A poll takes back that it is parked before it reads a reply. So, looked at in this order, one of the two says that there is
    /// work; and once a poll is over, what it wishes is in the driver's queue.
    pub(crate) fn is_parked(&self) -> bool {
        self.unread.load(Ordering::SeqCst) == 0
            && self.held.load(Ordering::SeqCst) == 0
            && self.parked.load(Ordering::SeqCst)
    }

    /// Whether the node has read every reply, made every wish that follows from them, and the driver has taken all of these in: only
    /// then is it known what else it waits for. If it is not so, the driver is told when it may be.
    pub(crate) fn is_quiet(&self) -> bool {
        if self.looks_quiet() {
            return true;
        }
        self.wanted.store(true, Ordering::SeqCst);
        // A poll that ended in between has told nobody.
        self.looks_quiet()
    }

    /// In the order of [`is_parked`](Self::is_parked), and for its reason.
    fn looks_quiet(&self) -> bool {
        self.unread.load(Ordering::SeqCst) == 0
            && !self.polled.load(Ordering::SeqCst)
            && self.untaken.load(Ordering::SeqCst) == 0
    }

    /// Whether the attempt has more under way than one wait.
    pub(crate) fn has_rivals(&self) -> bool {
        self.wishes.load(Ordering::SeqCst) > 1 || self.working.load(Ordering::SeqCst) > 0
    }

    /// Says that the driver has taken in a wish.
    pub(crate) fn taken(&self) {
        self.untaken.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says that something has come that the node did not wish for; to be taken back by [`release`](Self::release).
    pub(super) fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn release(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The way of a reply to the node that wishes. As long as it is not read, the node has work.
pub(crate) struct Replier {
    sender: Option<oneshot::Sender<Result<Given>>>,
    scope: Arc<NodeScope>,
    promised: bool,
}

impl Replier {
    /// Says that the reply is decided and will be sent: until it is read, the attempt gets no other.
    pub(crate) fn promise(&mut self) {
        if !std::mem::replace(&mut self.promised, true) {
            self.scope.waits.unread.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sends the reply. Who has gone away needs none.
    pub(crate) fn send(mut self, reply: Result<Given>) {
        self.promise();
        if self.sender.take().is_some_and(|sender| sender.send(reply).is_ok()) {
            // The reader counts it from here.
            self.promised = false;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Returns what the attempt counts.
    pub(crate) fn waits(&self) -> &Waits {
        &self.scope.waits
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if self.promised {
            self.scope.read_one();
        }
    }
}

impl fmt::Debug for Replier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("sender", &self.sender).field("waits", &self.scope.waits).finish()
    }
}

/// The node's end of it.
struct Reader<'a> {
    answer: oneshot::Receiver<Result<Given>>,
    scope: &'a NodeScope,
}

impl Reader<'_> {
    async fn read(&mut self) -> Option<Result<Given>> {
        let reply = (&mut self.answer).await.ok()?;
        self.scope.read_one();
        Some(reply)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // A reply that nobody reads any more is not work.
        self.answer.close();
        if self.answer.try_recv().is_ok() {
            self.scope.read_one();
        }
    }
}

/// Counts up as long as it lives.
struct Count<'a>(&'a AtomicU32);

impl<'a> Count<'a> {
    fn of(counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl NodeScope {
    /// Says that the attempt was polled and waits, if all it waits for are wishes of its own. Returns whether it does.
    pub(crate) fn park(&self) -> bool {
        let waits = &self.waits;
        let parked = waits.wishes.load(Ordering::SeqCst) > 0 && waits.working.load(Ordering::SeqCst) == 0;
        if parked {
            waits.parked.store(true, Ordering::SeqCst);
        }
        waits.polled.store(false, Ordering::SeqCst);
        if waits.wanted.swap(false, Ordering::SeqCst) || parked {
            self.look();
        }
        parked
    }

    /// Says that the attempt is about to be polled.
    pub(crate) fn unpark(&self) {
        self.waits.polled.store(true, Ordering::SeqCst);
        self.waits.parked.store(false, Ordering::SeqCst);
    }

    /// Has the driver look at the activation.
    pub(super) fn look(&self) {
        // A driver that is gone needs no notice.
        let _ = self.run.commands.send(Command::Parked(self.activation));
    }

    /// Counts a reply as read. A node may read it outside of its poll, in a task of its own.
    fn read_one(&self) {
        self.waits.unread.fetch_sub(1, Ordering::SeqCst);
        if self.waits.wanted.swap(false, Ordering::SeqCst) {
            self.look();
        }
    }
}

impl NodeContext {
    /// Does something once: what it comes to is recorded under this name, and whenever the activation runs again (after a
    /// crash, a failed attempt or a wait) the recorded result is returned instead.
    ///
    /// Where the node's effect is not `Pure` or `Read`, the result is on stable storage when this returns. A failure is not
    /// recorded: the next attempt tries again. Names are unique within the activation, among steps and questions.
    ///
    /// # Errors
    ///
    /// What the work failed with; a name that was used before in this attempt or is not 1 to 128 of `A-Z a-z 0-9 . _ -`; a
    /// result that cannot be expressed in JSON, or that was recorded as another type.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the work counts as not done unless its result was recorded already.
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
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("pay", async |cx, mut s| {
    ///         let receipt: String = cx.step("charge", async || Ok::<_, std::io::Error>("r-17".to_owned())).await?;
    ///         cx.step("mail", async || Ok::<_, std::io::Error>(())).await?;
    ///         s.set("receipt", receipt)?;
    ///         Ok(s)
    ///     })
    ///     .entry("pay")
    ///     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let state = runtime.start(&graph, Context::new()).await?.wait().await?.completed().unwrap();
    /// # assert_eq!(state.get::<String>("receipt")?.as_deref(), Some("r-17"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn step<T, E, F, Fut>(&self, name: impl Into<String>, work: F) -> Result<T, NodeError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<NodeError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let name = self.claim(name.into())?;
        match self.scope.memos.get(&name) {
            Some(Memo::Result(text)) => {
                if self.scope.memos.say_order() {
                    self.wish(name.clone(), Wish::Recall).await?;
                }
                return serde_json::from_str(text.get()).map_err(|source| {
                    let message = format!(
                        "the step `{name}` was recorded with a result that is not of type {}",
                        std::any::type_name::<T>()
                    );
                    let error = Error::new(ErrorKind::GraphChanged, message).with_node(self.node());
                    NodeError::new(error.with_source(source)).fatal()
                });
            }
            Some(_) => return Err(NodeError::new(self.mismatch(&name, "step")).fatal()),
            None => {}
        }
        let result = {
            let _working = Count::of(&self.scope.waits.working);
            work().await.map_err(Into::into)?
        };
        let text = strict::to_raw_value(&result).map_err(|error| NodeError::new(error).fatal())?;
        self.wish(name, Wish::Keep(text)).await?;
        Ok(result)
    }

    /// Waits for a time that survives a restart: what is left of it is waited for by whoever takes the run up.
    ///
    /// A long wait lets go of the run's memory; the activation then runs again from its start, and comes back here at once.
    /// So what stands before it must be repeatable, or be a [`step`](Self::step).
    ///
    /// Beside other waits, in a `select!` say, whichever ends first is recorded, and ends first again whenever the activation runs.
    /// Timers are found again by the order of the calls, not of the polls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] if the run is left; [`ErrorKind::Unsupported`] in an `External` node.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the timer stays noted; it wakes nobody.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<()>> + Send + use<'_> {
        self.sleep_until(self.scope.run.clock.now().plus(time))
    }

    /// Waits until a moment, like [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the timer stays noted.
    pub fn sleep_until(&self, moment: Timestamp) -> impl Future<Output = Result<()>> + Send + use<'_> {
        // Counted when it is called: a `select!` polls its branches in any order, but calls them in the order they are written in.
        let number = self.scope.waits.sleeps.fetch_add(1, Ordering::Relaxed) + 1;
        async move { self.wish(format!("#sleep{number}"), Wish::Until(moment)).await.map(|_| ()) }
    }

    /// Takes the next message that was sent to the run, waiting for one if there is none.
    ///
    /// A message is taken once: that it was is recorded, and the activation finds it again when it runs again. Messages wait in
    /// the order in which they were sent, also those sent before anybody receives. One that is not of type `M` is set aside, on
    /// the record, with a warning.
    ///
    /// While nothing but messages can move the run, it is `AwaitingInput` and uses no memory; see [`sleep`](Self::sleep) for
    /// what that means for what stands before.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// Dropped because a wait beside it ended first, it takes no message. Dropped otherwise, one that was taken stays with the
    /// activation: the same call of the next attempt returns it.
    pub fn receive<M: DeserializeOwned>(&self) -> impl Future<Output = Result<M>> + Send + use<'_, M> {
        let next = self.next_message(None);
        async move { next.await?.ok_or_else(|| self.gone()) }
    }

    /// Takes the next message, waiting at most this long; `None` if none came. The time survives a restart.
    ///
    /// It begins anew after a message that is set aside. A message that comes late, but before anybody took the run up to notice,
    /// is taken all the same.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_within<M: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        self.next_message(Some(patience))
    }

    fn next_message<M: DeserializeOwned>(
        &self,
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'_, M> {
        let read = |text: &str| {
            serde_json::from_str(text)
                .map_err(|error| format!("it is not of type {}: {error}", std::any::type_name::<M>()))
        };
        self.next_message_as(patience, read)
    }

    /// Takes the next message that `read` can read, setting aside those it cannot.
    pub(super) fn next_message_as<'a, M, R>(
        &'a self,
        patience: Option<Duration>,
        read: R,
    ) -> impl Future<Output = Result<Option<M>>> + Send + use<'a, M, R>
    where
        R: Fn(&str) -> Result<M, String> + Send,
    {
        // Counted when it is called, like `sleep_until`.
        let number = self.scope.waits.receives.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let name = format!("#receive{number}");
            let mut wish = Wish::Message { patience };
            loop {
                let message = match self.wish(name.clone(), wish).await? {
                    Given::Message(message) => message,
                    _ => return Ok(None),
                };
                match read(message.body.get()) {
                    Ok(content) => return Ok(Some(content)),
                    Err(why) => wish = Wish::Refuse { message: message.number, why, patience },
                }
            }
        }
    }

    /// Asks somebody and waits for the answer, now or after a restart months later. The id to answer by is
    /// `node@visit:name`; see [`Runtime::respond`](crate::runtime::Runtime::respond).
    ///
    /// Other branches go on meanwhile. Once only questions are left, the run is `Interrupted` and uses no memory; see
    /// [`sleep`](Self::sleep) for what that means for what stands before.
    ///
    /// # Errors
    ///
    /// [`AskError::Rejected`], [`AskError::Failed`]: the name was used in this attempt, was recorded as something else, or the
    /// run is left.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the question stays open.
    pub async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        question: Q,
    ) -> Result<A, AskError> {
        self.ask_with(name, Ask::new(question)).await
    }

    /// Asks like [`ask`](Self::ask), with choices, a deadline or a default.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask), and [`AskError::Expired`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, the question stays open.
    pub async fn ask_with<A: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        ask: Ask<A>,
    ) -> Result<A, AskError> {
        let name = self.claim(name.into())?;
        let mut wish = Wish::Ask(ask.into_request(self.scope.run.clock.now())?);
        loop {
            let asked = match self.wish(name.clone(), wish).await? {
                Given::Reply(asked) => asked,
                _ => return Err(self.mismatch(&name, "question").into()),
            };
            let deadline = asked.ask.deadline;
            match &asked.reply {
                Reply::Answered { answer: Answer::Accept(text), at, .. } => {
                    match serde_json::from_str(text.get()) {
                        Ok(answer) => return Ok(answer),
                        // Nobody else may answer any more, and the default would be the answer to each further question.
                        Err(error) if deadline.is_some_and(|deadline| *at >= deadline) => {
                            let problem = format!("{DEFAULT_REFUSED}{error}");
                            wish = Wish::AskAgain { problem, by_default: true };
                        }
                        // The question said what it expects, and this fitted; the type wants more. Nobody is to lose the run
                        // over that, so it is asked again with what was wrong.
                        Err(error) => wish = Wish::AskAgain { problem: error.to_string(), by_default: false },
                    }
                }
                Reply::Answered { answer: Answer::Reject(comment), by, .. } => {
                    return Err(AskError::Rejected {
                        question: name,
                        comment: comment.clone(),
                        by: by.clone(),
                    });
                }
                Reply::Expired { .. } => {
                    if let Some(problem) =
                        asked.ask.problem.as_deref().filter(|said| said.starts_with(DEFAULT_REFUSED))
                    {
                        let message = format!(
                            "the question `{name}`: {problem}; give it a default that its type reads back, and retry the run, \
                             which asks anew"
                        );
                        return Err(Error::new(ErrorKind::Invalid, message).with_node(self.node()).into());
                    }
                    return Err(AskError::Expired { question: name, deadline: deadline.unwrap_or_default() });
                }
                _ => return Err(self.gone().into()),
            }
        }
    }

    /// Claims a name for this attempt.
    fn claim(&self, name: String) -> Result<String> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, message).with_node(self.node()));
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > LONGEST || !name.chars().all(fits) {
            return refuse(format!(
                "`{}` cannot name a step or question; use 1 to {LONGEST} of A-Z a-z 0-9 . _ -",
                name.escape_debug()
            ));
        }
        if matches!(name.as_str(), "before" | "after") {
            return refuse(format!(
                "`{name}` names the declared interrupts; call the step or question otherwise"
            ));
        }
        let mut names = self.scope.waits.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.insert(name.clone()) {
            return refuse(format!(
                "the name `{name}` stands for two steps or questions of one activation; give each its own"
            ));
        }
        Ok(name)
    }

    fn mismatch(&self, name: &str, what: &str) -> Error {
        let message = format!(
            "`{name}` was recorded as something else than a {what}; finish the run with the code it was started with, or \
             give the new {what} another name"
        );
        Error::new(ErrorKind::GraphChanged, message).with_node(self.node())
    }

    async fn wish(&self, name: String, wish: Wish) -> Result<Given> {
        let _waiting = Count::of(&self.scope.waits.wishes);
        let (sender, answer) = oneshot::channel();
        let reply = Replier { sender: Some(sender), scope: Arc::clone(&self.scope), promised: false };
        let mut reader = Reader { answer, scope: &self.scope };
        let activation = self.scope.activation;
        let command = Command::Wish { activation, name, wish, reply };
        self.scope.waits.untaken.fetch_add(1, Ordering::SeqCst);
        self.scope.run.commands.send(command).map_err(|_| self.gone())?;
        reader.read().await.ok_or_else(|| self.gone())?
    }
}
