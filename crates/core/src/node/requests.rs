//! The requests of a node to the driver of its run, and the replies. Each attempt counts the requests without a reply, and the replies that the node
//! has not read.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::context::{DriverRequest, NodeContext, NodeScope};
use super::transaction::HandedIn;
use crate::ask::QuestionRequest;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::kernel::end_waiters::EndWaiter;
use crate::record::memo::AskedQuestion;
use crate::record::parent_link::ChildRef;
use crate::record::pause::MessageRecord;

/// A request of an activation to record a value or to wait.
#[derive(Debug)]
pub(crate) enum NodeRequest {
    /// Records the result of a step.
    Keep(Box<RawValue>),
    /// Records the result of a step, and commits the rows of its transaction together with the record.
    Commit(Box<RawValue>, Box<HandedIn>),
    /// Records the value, and replies after it is durable, whatever the node's effect is.
    Record(Box<RawValue>),
    /// Records all values, and replies after they are durable, whatever the node's effect is.
    RecordAll(Vec<(String, Box<RawValue>)>),
    /// Records an event, and replies before the record is durable.
    Mark,
    /// Records that a child was started, without waiting for the record, and adds the child to a group of waits.
    Join { group: String, wait: Box<ChildWait> },
    /// Waits until at least one child of the named group has ended, and replies with the results of all children of the group that have ended. If
    /// `enough` is set, the order of the results is recorded.
    Ends { enough: bool },
    /// Records that a child was started, without waiting for the record, and waits for the child's result.
    Child(Box<ChildWait>),
    /// Replies with the recorded result of a step, at its position in the recorded order of results.
    Recall,
    /// Waits until this time.
    Until(Timestamp),
    /// Takes the next message of the run, and waits for it at most `patience`.
    Message { patience: Option<Duration> },
    /// Sets aside the message that was taken last, for the reason `why`, and takes the next message.
    Refuse { message: u64, why: String, patience: Option<Duration> },
    /// Asks the question, or finds it again if an earlier attempt asked it.
    Ask(QuestionRequest),
    /// Asks the question again, because its answer cannot be decoded. If the answer is the default, a new question would get the same answer at once.
    /// In that case the driver only records the problem.
    AskAgain { problem: String, by_default: bool },
}

/// A child for whose end its parent waits.
#[derive(Debug)]
pub(crate) struct ChildWait {
    /// The name under which the start of the child must be recorded. `None` if the start is already recorded.
    pub(crate) began: Option<String>,
    pub(crate) child: ChildRef,
    /// The time at which the child is cancelled.
    pub(crate) deadline: Option<Timestamp>,
    /// A wait that began before the start of the child.
    pub(crate) since: Option<EndWaiter>,
}

/// The reply to a `NodeRequest`.
#[derive(Debug)]
pub(crate) enum NodeReply {
    /// The value is recorded, or the awaited time has passed.
    Done,
    /// The message that was taken.
    Message(MessageRecord),
    /// No message arrived within the patience.
    Idle,
    /// The recorded value.
    Kept(Arc<RawValue>),
    /// The state of the question.
    Reply(Arc<AskedQuestion>),
    /// The results of children, each with the name of its wait, in the order in which the children ended.
    Ends(Vec<(String, Arc<RawValue>)>),
}

/// The counts and flags of an attempt's waits.
#[derive(Debug, Default)]
pub(crate) struct AttemptWaits {
    /// The names used in this attempt.
    names: Mutex<BTreeSet<String>>,
    sleeps: AtomicU32,
    receives: AtomicU32,
    /// The number of unanswered requests.
    request_count: AtomicU32,
    /// The number of requests that the driver has not accepted yet.
    unaccepted_count: AtomicU32,
    /// The number of running steps.
    step_count: AtomicU32,
    /// The number of children of groups that are being started. A start counts as work, and does not compete with the wait for the results.
    start_count: AtomicU32,
    /// The number of replies, sent or promised, that the node has not read yet.
    unread_count: AtomicU32,
    /// The number of guards that pause the timeout of the attempt.
    pause_count: AtomicU32,
    /// Wakes the attempt when it has work again, so that its timeout starts again even if the node continues in a task of its own.
    timeout_waker: Mutex<Option<Waker>>,
    /// The number of live guards that keep the run active.
    hold_count: AtomicU32,
    /// Whether the node was polled at least once. Before the first poll, its waits are unknown.
    was_polled: AtomicBool,
    /// Whether the node is being polled.
    is_polling: AtomicBool,
    /// Whether the node only waited for replies after its last poll.
    is_parked: AtomicBool,
    /// Whether the driver wants a notice when a poll ends or a reply is read.
    wants_notice: AtomicBool,
}

impl AttemptWaits {
    /// Returns whether the attempt has no work until one of its waits ends.
    ///
    /// `poll` clears `is_parked` before it reads a reply. So if this function reads `unread_count` first and then `is_parked`, it cannot miss work.
    /// After a poll, the node's requests are in the driver's queue.
    pub(crate) fn is_parked(&self) -> bool {
        self.unread_count.load(Ordering::SeqCst) == 0
            && self.hold_count.load(Ordering::SeqCst) == 0
            && self.is_parked.load(Ordering::SeqCst)
    }

    /// Returns whether the driver knows all waits of the node. This is so if the node has read every reply and made all following requests, and the
    /// driver has accepted them. If the result is false, the driver gets a notice when this may have changed.
    pub(crate) fn is_quiet(&self) -> bool {
        if self.check_quiet() {
            return true;
        }
        self.wants_notice.store(true, Ordering::SeqCst);
        // A poll that ended in between has not notified the driver.
        self.check_quiet()
    }

    /// Checks in the order of [`is_parked`](Self::is_parked), for the same reason.
    fn check_quiet(&self) -> bool {
        self.was_polled.load(Ordering::SeqCst)
            && self.unread_count.load(Ordering::SeqCst) == 0
            && !self.is_polling.load(Ordering::SeqCst)
            && self.unaccepted_count.load(Ordering::SeqCst) == 0
    }

    /// Returns whether the attempt has more than one wait or step in progress.
    pub(crate) fn has_rivals(&self) -> bool {
        self.request_count.load(Ordering::SeqCst) > 1
            || self.step_count.load(Ordering::SeqCst) > 0
            || self.pause_count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether the attempt waits for replies, and has no work known to the driver.
    fn awaits_wishes(&self) -> bool {
        self.request_count.load(Ordering::SeqCst) > 0 && !self.is_at_work()
    }

    /// Returns whether a step is running, or a child of a group is being started.
    fn is_at_work(&self) -> bool {
        self.step_count.load(Ordering::SeqCst) + self.start_count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether the attempt only waits, so that its timeout must be paused. If so, `waker` is woken when the attempt has work again.
    pub(crate) fn pauses_timeout(&self, waker: &Waker) -> bool {
        // Register before reading the counts: a wait that ends in another task then wakes the attempt or is counted below.
        *self.paused() = Some(waker.clone());
        let pauses =
            self.awaits_wishes() || (self.pause_count.load(Ordering::SeqCst) > 0 && !self.is_at_work());
        if !pauses {
            *self.paused() = None;
        }
        pauses
    }

    fn paused(&self) -> MutexGuard<'_, Option<Waker>> {
        self.timeout_waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the attempt if its timeout is paused, because it may have work again.
    fn check_timeout(&self) {
        let waker = self.paused().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Pauses the timeout until [`resume_timeout`](Self::resume_timeout).
    pub(super) fn pause_timeout(&self) {
        self.pause_count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn resume_timeout(&self) {
        self.pause_count.fetch_sub(1, Ordering::SeqCst);
        self.check_timeout();
    }

    /// Records that the driver has accepted a request.
    pub(crate) fn accepted(&self) {
        self.unaccepted_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Keeps the attempt active for an event outside of its requests, until [`release`](Self::release).
    pub(super) fn hold_active(&self) {
        self.hold_count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn release(&self) {
        self.hold_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims a name for this attempt. Returns false if the name is already claimed.
    pub(super) fn claim(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
    }

    /// Frees a claimed name.
    pub(super) fn free(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the number of the next timer without a name.
    pub(super) fn next_sleep(&self) -> u32 {
        self.sleeps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of the next wait for a message without a name.
    pub(super) fn next_receive(&self) -> u32 {
        self.receives.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a step as running until the returned guard is dropped.
    pub(super) fn work(&self) -> CountGuard<'_> {
        CountGuard::of(self, &self.step_count)
    }

    /// Counts a child of a group as being started until the returned guard is dropped.
    pub(super) fn start(&self) -> CountGuard<'_> {
        CountGuard::of(self, &self.start_count)
    }

    /// Counts all waits of a group as one until the returned guard is dropped.
    pub(super) fn wait_as_one(&self) -> CountGuard<'_> {
        CountGuard::of(self, &self.request_count)
    }

    /// Marks the node as waiting, as a poll would.
    #[cfg(test)]
    pub(crate) fn park_for_tests(&self) {
        self.was_polled.store(true, Ordering::SeqCst);
        self.is_parked.store(true, Ordering::SeqCst);
    }
}

/// The sending end of the channel for a reply to the node. From the send of the reply until the node reads it, the attempt counts as having work.
pub(crate) struct ReplySender {
    sender: Option<oneshot::Sender<Result<NodeReply>>>,
    scope: Arc<NodeScope>,
    promised: bool,
}

impl ReplySender {
    /// Promises the reply. Until the node has read it, the attempt receives no other reply.
    pub(crate) fn promise(&mut self) {
        if !std::mem::replace(&mut self.promised, true) {
            self.scope.waits.unread_count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sends the reply. If the node was dropped, the reply is dropped too.
    pub(crate) fn send(mut self, reply: Result<NodeReply>) {
        self.promise();
        if self.sender.take().is_some_and(|sender| sender.send(reply).is_ok()) {
            // The reader counts the reply from now on.
            self.promised = false;
        }
    }

    /// Creates a sender for an attempt, with the node's receiver.
    #[cfg(test)]
    pub(crate) fn for_tests(scope: Arc<NodeScope>) -> (Self, oneshot::Receiver<Result<NodeReply>>) {
        let (sender, answer) = oneshot::channel();
        scope.waits.unaccepted_count.fetch_add(1, Ordering::SeqCst);
        (Self { sender: Some(sender), scope, promised: false }, answer)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Returns the wait counts of the attempt.
    pub(crate) fn waits(&self) -> &AttemptWaits {
        &self.scope.waits
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if self.promised {
            self.scope.read_one();
        }
    }
}

impl fmt::Debug for ReplySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("sender", &self.sender).field("waits", &self.scope.waits).finish()
    }
}

/// The receiving end of the channel for a reply.
struct ReplyReader<'a> {
    answer: oneshot::Receiver<Result<NodeReply>>,
    scope: &'a NodeScope,
}

impl ReplyReader<'_> {
    async fn read(&mut self) -> Option<Result<NodeReply>> {
        let reply = (&mut self.answer).await.ok()?;
        self.scope.read_one();
        Some(reply)
    }
}

impl Drop for ReplyReader<'_> {
    fn drop(&mut self) {
        // A reply that the node no longer reads does not count as work.
        self.answer.close();
        if self.answer.try_recv().is_ok() {
            self.scope.read_one();
        }
    }
}

/// A guard that increments a count while it lives.
pub(super) struct CountGuard<'a> {
    waits: &'a AttemptWaits,
    counter: &'a AtomicU32,
}

impl<'a> CountGuard<'a> {
    fn of(waits: &'a AttemptWaits, counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        waits.check_timeout();
        Self { waits, counter }
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::SeqCst);
        self.waits.check_timeout();
    }
}

/// A guard that counts an attempt as running. It may outlive the attempt.
pub(super) struct BusyGuard(Arc<NodeScope>);

impl BusyGuard {
    pub(super) fn of(scope: &Arc<NodeScope>) -> Self {
        scope.waits.step_count.fetch_add(1, Ordering::SeqCst);
        scope.waits.check_timeout();
        Self(Arc::clone(scope))
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.waits.step_count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl NodeScope {
    /// Marks the attempt as polled, and as waiting if it waits only for replies to its requests.
    pub(crate) fn park(&self) {
        let waits = &self.waits;
        let parked = waits.awaits_wishes();
        if parked {
            waits.is_parked.store(true, Ordering::SeqCst);
        }
        waits.is_polling.store(false, Ordering::SeqCst);
        if waits.wants_notice.swap(false, Ordering::SeqCst) || parked {
            self.notify_driver();
        }
    }

    /// Marks the attempt as about to be polled.
    pub(crate) fn unpark(&self) {
        self.waits.was_polled.store(true, Ordering::SeqCst);
        *self.waits.paused() = None;
        self.waits.is_polling.store(true, Ordering::SeqCst);
        self.waits.is_parked.store(false, Ordering::SeqCst);
    }

    /// Notifies the driver to check the activation.
    pub(super) fn notify_driver(&self) {
        // Without a driver, the notice has no use.
        let _ = self.run.commands.send(DriverRequest::Parked(self.attempt_key.activation));
    }

    /// Counts a reply as read. A node may read it outside of its poll, in a task of its own.
    fn read_one(&self) {
        self.waits.unread_count.fetch_sub(1, Ordering::SeqCst);
        if self.waits.wants_notice.swap(false, Ordering::SeqCst) {
            self.notify_driver();
        }
    }
}

impl NodeContext {
    /// Sends the driver a request, and waits for its reply.
    pub(super) async fn request(&self, name: String, wish: NodeRequest) -> Result<NodeReply> {
        self.check_no_transaction()?;
        // The group counts the waits of its members.
        let _waiting =
            (!self.is_grouped).then(|| CountGuard::of(&self.scope.waits, &self.scope.waits.request_count));
        let (sender, answer) = oneshot::channel();
        let reply = ReplySender { sender: Some(sender), scope: Arc::clone(&self.scope), promised: false };
        let mut reader = ReplyReader { answer, scope: &self.scope };
        let command = DriverRequest::Wish { by: self.scope.attempt_key, name, wish, reply };
        self.scope.waits.unaccepted_count.fetch_add(1, Ordering::SeqCst);
        self.scope.run.commands.send(command).map_err(|_| self.driver_gone_error())?;
        reader.read().await.ok_or_else(|| self.driver_gone_error())?
    }
}
