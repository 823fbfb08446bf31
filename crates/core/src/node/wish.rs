//! What passes between a node that waits and the driver of its run: wishes, replies, and what the attempt counts of both.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::context::{Command, NodeContext, NodeScope};
use super::end_waiters::EndWaiter;
use super::transaction::HandedIn;
use crate::ask::Request;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::memo::Asked;
use crate::record::parent_link::ChildRef;
use crate::record::pause::Message;

/// What an activation wishes to note, or waits for.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Keep what a step came to.
    Keep(Box<RawValue>),
    /// Keep what a step came to, together with the rows of its transaction.
    Commit(Box<RawValue>, Box<HandedIn>),
    /// Keep this, and go on once it is durable, whatever the node's effect.
    Record(Box<RawValue>),
    /// Keep all of these, and go on once they are durable, whatever the node's effect.
    RecordAll(Vec<(String, Box<RawValue>)>),
    /// Note that something was done, in passing.
    Mark,
    /// Note in passing that a child was started, and have the waits of a group take in what comes of it.
    Join { group: String, wait: Box<ChildWait> },
    /// Wait for what comes of the children of the group of this name: of all that have ended, and of one at least. Where some of them are
    /// `enough`, which came first is remembered.
    Ends { enough: bool },
    /// Note in passing that a child was started, and wait for what comes of it.
    Child(Box<ChildWait>),
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

/// A child whose end is waited for.
#[derive(Debug)]
pub(crate) struct ChildWait {
    /// The name of the note that it was started, unless that is noted.
    pub(crate) began: Option<String>,
    pub(crate) child: ChildRef,
    /// When it is cancelled.
    pub(crate) deadline: Option<Timestamp>,
    /// A wait that was begun before it was started.
    pub(crate) since: Option<EndWaiter>,
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
    /// What is noted.
    Kept(Arc<RawValue>),
    /// What became of the question.
    Reply(Arc<Asked>),
    /// What came of some children, by the names of their waits, in the order in which they ended.
    Ends(Vec<(String, Arc<RawValue>)>),
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
    /// How many of them the driver has not accepted yet.
    unaccepted: AtomicU32,
    /// How many steps are at work.
    working: AtomicU32,
    /// How many children of groups are being started: work, and no rival of the wait for what comes of them.
    starting: AtomicU32,
    /// How many replies were sent, or are about to be, that the node has not read yet.
    unread: AtomicU32,
    /// How many waits outside of the run pause the timeout.
    pauses: AtomicU32,
    /// Polls the attempt when it has work again, so that its timeout begins even where the node goes on in a task of its own.
    paused: Mutex<Option<Waker>>,
    /// How often it is kept awake.
    held: AtomicU32,
    /// Whether the node was polled at all: before, nobody knows what it waits for.
    begun: AtomicBool,
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
    /// `poll` clears `parked` before reading a reply, so checking `unread`, then `parked`, cannot miss work; and once a poll is over,
    /// what it wishes is in the driver's queue.
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
        // A poll that ended in between has told the driver nothing.
        self.looks_quiet()
    }

    /// In the order of [`is_parked`](Self::is_parked), and for its reason.
    fn looks_quiet(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
            && self.unread.load(Ordering::SeqCst) == 0
            && !self.polled.load(Ordering::SeqCst)
            && self.unaccepted.load(Ordering::SeqCst) == 0
    }

    /// Whether the attempt has more under way than one wait.
    pub(crate) fn has_rivals(&self) -> bool {
        self.wishes.load(Ordering::SeqCst) > 1
            || self.working.load(Ordering::SeqCst) > 0
            || self.pauses.load(Ordering::SeqCst) > 0
    }

    /// Whether the attempt waits for wishes, and does no work of which the driver knows.
    fn awaits_wishes(&self) -> bool {
        self.wishes.load(Ordering::SeqCst) > 0 && !self.is_at_work()
    }

    /// Whether a step is running, or a child of a group is being started.
    fn is_at_work(&self) -> bool {
        self.working.load(Ordering::SeqCst) + self.starting.load(Ordering::SeqCst) > 0
    }

    /// Whether the attempt waits, so that its timeout does not count. If so, `waker` is woken when it has work again.
    pub(crate) fn pauses_timeout(&self, waker: &Waker) -> bool {
        // Registered before the counts are read: a wait that ends in another task wakes the attempt, or is seen here.
        *self.paused() = Some(waker.clone());
        let pauses = self.awaits_wishes() || (self.pauses.load(Ordering::SeqCst) > 0 && !self.is_at_work());
        if !pauses {
            *self.paused() = None;
        }
        pauses
    }

    fn paused(&self) -> MutexGuard<'_, Option<Waker>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the attempt if its timeout is paused: it may have work again.
    fn check_timeout(&self) {
        let waker = self.paused().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Pauses the timeout; [`resume_timeout`](Self::resume_timeout) takes it back.
    pub(super) fn pause_timeout(&self) {
        self.pauses.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn resume_timeout(&self) {
        self.pauses.fetch_sub(1, Ordering::SeqCst);
        self.check_timeout();
    }

    /// Says that the driver has accepted a wish.
    pub(crate) fn accepted(&self) {
        self.unaccepted.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says that something has come that the node did not wish for; [`release`](Self::release) takes it back.
    pub(super) fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn release(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims a name for this attempt. Returns false if it was claimed before.
    pub(super) fn claim(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
    }

    /// Frees a claimed name.
    pub(super) fn free(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Numbers a timer.
    pub(super) fn next_sleep(&self) -> u32 {
        self.sleeps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Numbers a wait for a message.
    pub(super) fn next_receive(&self) -> u32 {
        self.receives.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a step as at work until what it returns is dropped.
    pub(super) fn work(&self) -> Count<'_> {
        Count::of(self, &self.working)
    }

    /// Counts a child of a group as being started until what this returns is dropped.
    pub(super) fn start(&self) -> Count<'_> {
        Count::of(self, &self.starting)
    }

    /// Counts all the waits of a group as one until what this returns is dropped.
    pub(super) fn wait_as_one(&self) -> Count<'_> {
        Count::of(self, &self.wishes)
    }

    /// Says that the node waits, as if it had been polled.
    #[cfg(test)]
    pub(crate) fn park_for_tests(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.parked.store(true, Ordering::SeqCst);
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

    /// Sends the reply. A node that has gone away needs none.
    pub(crate) fn send(mut self, reply: Result<Given>) {
        self.promise();
        if self.sender.take().is_some_and(|sender| sender.send(reply).is_ok()) {
            // The reader counts it from here.
            self.promised = false;
        }
    }

    /// Makes one for an attempt, with the node's end of it.
    #[cfg(test)]
    pub(crate) fn for_tests(scope: Arc<NodeScope>) -> (Self, oneshot::Receiver<Result<Given>>) {
        let (sender, answer) = oneshot::channel();
        scope.waits.unaccepted.fetch_add(1, Ordering::SeqCst);
        (Self { sender: Some(sender), scope, promised: false }, answer)
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
        // A reply that the node does not read any more is not work.
        self.answer.close();
        if self.answer.try_recv().is_ok() {
            self.scope.read_one();
        }
    }
}

/// Counts up as long as it lives.
pub(super) struct Count<'a> {
    waits: &'a Waits,
    counter: &'a AtomicU32,
}

impl<'a> Count<'a> {
    fn of(waits: &'a Waits, counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        waits.check_timeout();
        Self { waits, counter }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::SeqCst);
        self.waits.check_timeout();
    }
}

/// Counts an attempt as at work, as long as it lives, which may be longer than the attempt.
pub(super) struct Busy(Arc<NodeScope>);

impl Busy {
    pub(super) fn of(scope: &Arc<NodeScope>) -> Self {
        scope.waits.working.fetch_add(1, Ordering::SeqCst);
        scope.waits.check_timeout();
        Self(Arc::clone(scope))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.waits.working.fetch_sub(1, Ordering::SeqCst);
    }
}

impl NodeScope {
    /// Says that the attempt was polled and waits, if all it waits for are wishes of its own.
    pub(crate) fn park(&self) {
        let waits = &self.waits;
        let parked = waits.awaits_wishes();
        if parked {
            waits.parked.store(true, Ordering::SeqCst);
        }
        waits.polled.store(false, Ordering::SeqCst);
        if waits.wanted.swap(false, Ordering::SeqCst) || parked {
            self.notify_driver();
        }
    }

    /// Says that the attempt is about to be polled.
    pub(crate) fn unpark(&self) {
        self.waits.begun.store(true, Ordering::SeqCst);
        *self.waits.paused() = None;
        self.waits.polled.store(true, Ordering::SeqCst);
        self.waits.parked.store(false, Ordering::SeqCst);
    }

    /// Tells the driver to look at the activation.
    pub(super) fn notify_driver(&self) {
        // A driver that is gone needs no notice.
        let _ = self.run.commands.send(Command::Parked(self.attempt_key.activation));
    }

    /// Counts a reply as read. A node may read it outside of its poll, in a task of its own.
    fn read_one(&self) {
        self.waits.unread.fetch_sub(1, Ordering::SeqCst);
        if self.waits.wanted.swap(false, Ordering::SeqCst) {
            self.notify_driver();
        }
    }
}

impl NodeContext {
    /// Sends the driver a wish, and waits for what it comes to.
    pub(super) async fn wish(&self, name: String, wish: Wish) -> Result<Given> {
        self.check_no_transaction()?;
        // The waits of a group are counted by the group.
        let _waiting = (!self.is_grouped).then(|| Count::of(&self.scope.waits, &self.scope.waits.wishes));
        let (sender, answer) = oneshot::channel();
        let reply = Replier { sender: Some(sender), scope: Arc::clone(&self.scope), promised: false };
        let mut reader = Reader { answer, scope: &self.scope };
        let command = Command::Wish { by: self.scope.attempt_key, name, wish, reply };
        self.scope.waits.unaccepted.fetch_add(1, Ordering::SeqCst);
        self.scope.run.commands.send(command).map_err(|_| self.gone())?;
        reader.read().await.ok_or_else(|| self.gone())?
    }
}
