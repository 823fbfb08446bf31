//! Requests by nodes for slots. A node holds its slot during a part of its work.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::AskError;
use ferrata_core::node::{NodeContext, TimeoutPause};
use ferrata_core::runtime::Runtime;
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, Result};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::handle::{AttemptRequestGuard, QueueCommand, QueueHandle, closed_error};
use crate::sealed::SealedType;
use crate::settings::check_key;
use crate::state::{LONGEST_CLOSED, NODE, OpResult, QueueOp, SlotKind, SlotRequest, SlotWaiter};

/// Maximum number of times that a node becomes idle while it waits for one slot. Each time a wake-up ends an idle wait, the node asks the queue
/// again.
const ROUNDS: u32 = 10_000;

/// Delay before the node asks the queue again, or repeats the message that it is about to become idle.
const LATER: Duration = Duration::from_secs(1);

/// Channel that notifies watchers of the run while a node waits in memory.
const WAITS: &str = "queue.waits";
const TURN: &str = "queue.turn";

/// Maximum length of a slot name in bytes. The name is a part of the id of the question that an idle node waits for.
const LONGEST: usize = 32;

/// Queue methods of [`NodeContext`].
pub trait NodeQueueExt: SealedType {
    /// Requests slots of a queue; `.await` waits until the queue grants the slots. Dropping the returned [`QueueSlot`] releases them.
    ///
    /// The node's timeout does not count the wait: the full timeout starts when the node has the slot.
    ///
    /// If the wait is longer than [`release_after`](ferrata_core::runtime::RuntimeBuilder::release_after), the process releases the run's memory. The
    /// activation runs again from its start when it gets the slot. So the code before the wait must be repeatable, or must be a step. If the node
    /// also waits for something else at the same time, the run may become idle earlier. In an `External` node, the request always waits in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::node::NodeContext;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::{Context, Draft};
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_queue::{NodeQueueExt, RuntimeQueueExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("write")
    ///     .node("ask_model", async |cx: NodeContext, mut s: Draft<Context>| {
    ///         let place = cx.acquire("openai", 1).await?;
    ///         s.set("text", "…")?; // the call
    ///         drop(place);
    ///         Ok(s)
    ///     })
    ///     .entry("ask_model")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.queue("openai").at_once(5).rate(100, Duration::from_secs(60)).declare().await?;
    /// runtime.start(&graph, Context::new()).await?.completed().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn acquire(&self, queue: impl Into<String>, places: u32) -> AcquireRequest<'_>;
}

impl NodeQueueExt for NodeContext {
    fn acquire(&self, queue: impl Into<String>, places: u32) -> AcquireRequest<'_> {
        AcquireRequest {
            cx: self,
            queue: queue.into(),
            places,
            key: String::new(),
            priority: 0,
            name: String::new(),
        }
    }
}

/// A request for slots. Nothing is sent until the caller awaits it; `.await` then waits for the slots.
///
/// # Errors
///
/// The `.await` fails with:
/// - [`ErrorKind::NotFound`]: the queue was not [declared](crate::QueueRequest::declare).
/// - [`ErrorKind::Invalid`]: the request exceeds the number of slots, the name or the key is invalid, or the activation already has the slot of
///   this [name](Self::name) or waits for it.
/// - [`ErrorKind::Unavailable`]: the line is full, or the queue's state has reached its maximum size. The request changed nothing.
/// - [`ErrorKind::Closed`]: this process stops driving the run, or a later attempt of the node waits for the slot.
///
/// If the store fails, the node repeats the request every second. If the queue was purged and declared again while the node waited in memory, the
/// node repeats the request at the next check.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future ends the wait and releases a slot that it was granted. If the run becomes idle during the wait, the wait
/// continues.
#[must_use = "slots are requested only when the future is awaited"]
pub struct AcquireRequest<'a> {
    cx: &'a NodeContext,
    queue: String,
    places: u32,
    key: String,
    priority: i32,
    name: String,
}

impl<'a> AcquireRequest<'a> {
    /// Sets the key of the request. Requests with different keys take turns, and the queue may limit each key. A key has at most 256 bytes.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the priority. The queue serves higher values first. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the number of slots to request.
    pub fn slots(mut self, places: u32) -> Self {
        self.places = places;
        self
    }

    /// Names this slot. The name distinguishes it from other slots that the activation requests from the same queue, or has by its
    /// [limit](crate::GraphQueueExt::limit). If an activation makes two requests with the same name, the queue rejects the second. Each request
    /// counts separately: an activation that requests more slots than its own slots leave free waits forever. A name has at most 32 of the characters
    /// `A-Z a-z 0-9 . _ -`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    async fn acquire(self) -> Result<QueueSlot> {
        let Self { cx, queue, places, key, priority, name } = self;
        check_key(&key)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if places == 0 || name.len() > LONGEST || !name.chars().all(fits) {
            let message = format!(
                "cannot acquire these slots; request at least 1, with a name of at most {LONGEST} of A-Z a-z 0-9 . _ -"
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_node(cx.node()));
        }
        let runtime = Runtime::of(cx)?;
        let desk = QueueHandle::open(&runtime, &queue)?;
        // An imported copy of a run has the idempotency keys of the exported run, but needs slots of its own. So the id also contains the run.
        let id = format!("{NODE}{}:{}:{name}", cx.run(), cx.idempotency_key());
        let Some(asker) = AttemptRequestGuard::new(&desk, (id.clone(), cx.epoch(), cx.attempt())) else {
            let message = format!(
                "the node already holds or waits for a slot of queue `{queue}`, from its `limit` or an `acquire`; release that slot first, \
                 or give each its own `.name(..)`"
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_node(cx.node()));
        };
        let waiting = SlotWaiter {
            run: cx.run().clone(),
            kind: SlotKind::Node,
            places,
            key,
            priority,
            since: cx.now(),
            executor: runtime.executor(),
            epoch: cx.epoch(),
            question: None,
            not_before: None,
            deadline: None,
            debounced: None,
            start_ids: Vec::new(),
            alive: None,
        };
        let (mut rounds, mut may_rest, mut waits) = (0..ROUNDS, true, false);
        loop {
            let (turn, granted) = oneshot::channel();
            let mut wait = MemoryWait { granted, _timeout: cx.pause_timeout() };
            let ask = SlotRequest {
                id: id.clone(),
                waiting: waiting.clone(),
                once: None,
                debounce: None,
                doubts: Vec::new(),
                is_on_record: false,
            };
            // If the caller drops this future from here on, the request leaves the queue.
            // The queue's actor removes an entry that it already recorded.
            let mut place = QueueSlot {
                desk: Arc::clone(&desk),
                id: Some(id.clone()),
                executor: waiting.executor,
                clock: Arc::clone(runtime.clock()),
                asker: Arc::clone(&asker),
            };
            let said = match desk.request_slot(ask, turn).await {
                Ok(OpResult::Stale(executor, epoch)) => {
                    place.id = None;
                    release_earlier_request(
                        &runtime,
                        cx,
                        &desk,
                        QueueOp::Lost { id: id.clone(), executor, epoch },
                    )
                    .await
                    .map(|()| None)
                }
                said => said.map(Some),
            };
            match said {
                Ok(None) => continue,
                Ok(Some(OpResult::Granted)) => {
                    if waits {
                        emit_wait_event(cx, TURN, &queue, &waiting);
                    }
                    return Ok(place);
                }
                Ok(Some(OpResult::Waits)) if waits => {}
                Ok(Some(OpResult::Waits)) => {
                    waits = true;
                    emit_wait_event(cx, WAITS, &queue, &waiting);
                }
                Ok(Some(said)) => {
                    place.id = None;
                    return Err(refusal_error(&queue, &said).with_node(cx.node()));
                }
                // A store outage does not fail the node. The queue may have received the request, so the node repeats the same request.
                Err(error) if is_retryable(&error) => {
                    runtime.clock().sleep(LATER).await;
                    place.id = None;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let patience = async { runtime.clock().sleep(runtime.poll_intervals().rest_after).await };
            tokio::select! {
                biased;
                turn = &mut wait.granted => match turn {
                    Ok(()) => {
                        emit_wait_event(cx, TURN, &queue, &waiting);
                        return Ok(place);
                    }
                    Err(_) if asker.is_last() => {
                        // The queue has lost the entry: the queue was purged, or the store has lost its last records.
                        place.id = None;
                        continue;
                    }
                    Err(_) => {
                        let message = "a later attempt of the node waits for this slot; stop the tasks of earlier attempts";
                        return Err(Error::new(ErrorKind::Closed, message).with_node(cx.node()));
                    }
                },
                () = patience, if may_rest => {}
            }
            match wait_for_answer(cx, &mut place, wait, &waiting, &queue, &name, &mut rounds).await {
                Ok(()) => {}
                // An `External` node cannot become idle.
                Err(error) if error.kind() == ErrorKind::Unsupported => may_rest = false,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The state of a node's wait in memory. The node's timeout does not count this wait.
struct MemoryWait {
    granted: oneshot::Receiver<()>,
    _timeout: TimeoutPause,
}

/// Releases the slot that an earlier owner of the run requested, if this process owns the run.
async fn release_earlier_request(
    runtime: &Runtime,
    cx: &NodeContext,
    desk: &QueueHandle,
    lost: QueueOp,
) -> Result<()> {
    match is_owner(runtime, cx).await? {
        true => desk.call(lost).await.map(drop),
        // The driver is about to detect that another process owns the run.
        false => {
            runtime.clock().sleep(LATER).await;
            Ok(())
        }
    }
}

/// Returns whether the same request may succeed on a repeat.
fn is_retryable(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::Indeterminate
}

/// Returns whether this process still owns the run, and whether the epoch of the run is still the one in which this node started.
async fn is_owner(runtime: &Runtime, cx: &NodeContext) -> Result<bool> {
    let head = runtime.head(cx.run()).await?;
    Ok(head.is_some_and(|head| (head.epoch, head.owner) == (cx.epoch(), Some(runtime.executor()))))
}

/// Notifies watchers of the run in this process that a node waits for slots, or that it got them after a wait.
fn emit_wait_event(cx: &NodeContext, what: &str, queue: &str, waiting: &SlotWaiter) {
    // The values are names and numbers, so they are valid JSON and the call cannot fail.
    let _ = cx.emit(what, json!({ "queue": queue, "places": waiting.places, "since": waiting.since }));
}

/// Waits with a question, so that the run can become idle. The queue answers the question when it grants the slot.
async fn wait_for_answer(
    cx: &NodeContext,
    place: &mut QueueSlot,
    wait: MemoryWait,
    waiting: &SlotWaiter,
    queue: &str,
    name: &str,
    rounds: &mut std::ops::Range<u32>,
) -> Result<()> {
    // The queue takes a granted slot back if the node does not listen. So the node listens until the queue has recorded the question. While the
    // timeout is paused, the run cannot become idle.
    let mut wait = Some(wait);
    let (desk, clock) = (Arc::clone(&place.desk), Arc::clone(&place.clock));
    let Some(id) = place.id.clone() else { return Ok(()) };
    for round in rounds {
        let question = match name {
            "" => format!("queue.{queue}.{round}"),
            name => format!("queue.{queue}.{name}.{round}"),
        };
        let mut about = Map::new();
        about.insert("waits_for".to_owned(), Value::from(queue));
        about.insert("places".to_owned(), Value::from(waiting.places));
        let asked = cx.ask::<String>(question.clone(), json!(about));
        let question = format!("{}@{}:{question}", cx.node(), cx.visit());
        // The queue records the wait before the run becomes idle. Otherwise a crash in between would leave a run that nothing wakes.
        let rests = QueueOp::Rest { id: id.clone(), waiting: Box::new(waiting.clone()), question };
        while let Err(error) = desk.call(rests.clone()).await {
            if !is_retryable(&error) {
                return Err(error.with_node(cx.node()));
            }
            clock.sleep(LATER).await;
        }
        drop(wait.take());
        // From here on the run may become idle, and then this future is dropped. The drop must not remove the waiter from the line.
        place.id = None;
        match asked.await {
            Ok(_) | Err(AskError::Expired { .. }) => return Ok(()),
            // Another wait of this attempt already uses this question name.
            Err(AskError::Failed(error)) if error.kind() == ErrorKind::Invalid => {}
            Err(AskError::Failed(error)) => return Err(error),
            Err(error) => {
                let message = "the question of this wait was rejected, so the node gives up the slot";
                return Err(Error::new(ErrorKind::Closed, message).with_node(cx.node()).with_source(error));
            }
        }
    }
    let message = "the node was woken too often without a slot; check who answers its questions";
    Err(Error::new(ErrorKind::Unavailable, message).with_node(cx.node()))
}

pub(crate) fn refusal_error(queue: &str, said: &OpResult) -> Error {
    match said {
        OpResult::Full(waiting) => {
            let message = format!("queue `{queue}` is full with {waiting} waiting; retry later");
            Error::new(ErrorKind::Unavailable, message)
        }
        OpResult::Seen(keys) => {
            let message = format!(
                "queue `{queue}` stores {keys} keys of `once`, the maximum; retry when one has expired, or shorten their lifetime"
            );
            Error::new(ErrorKind::Unavailable, message)
        }
        OpResult::NoRoom { bytes, room } => {
            let message = format!(
                "queue `{queue}` is full: its waiters would need {bytes} bytes of state, and at most {room} are allowed; retry later, use \
                 shorter ids and keys, or raise `RuntimeBuilder::max_body` in all processes"
            );
            Error::new(ErrorKind::Unavailable, message)
        }
        OpResult::TooManyForKey(places) => {
            let message = format!(
                "queue `{queue}` has a limit of {places} for the slots of one key; request at most {places}"
            );
            Error::new(ErrorKind::Invalid, message)
        }
        OpResult::TooMany(places) => {
            let message =
                format!("queue `{queue}` has a limit of {places} for its slots; request at most {places}");
            Error::new(ErrorKind::Invalid, message)
        }
        _ => Error::new(ErrorKind::Unavailable, format!("queue `{queue}` did not answer; retry")),
    }
}

impl<'a> IntoFuture for AcquireRequest<'a> {
    type Output = Result<QueueSlot>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for AcquireRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("queue", &self.queue)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

/// A slot of a queue. Dropping it releases the slot in the background. A later attempt may request the slot while a task of an earlier attempt still
/// holds it. Then the later attempt takes the slot over, and dropping the earlier `QueueSlot` releases nothing.
#[must_use = "dropping a slot releases it"]
pub struct QueueSlot {
    desk: Arc<QueueHandle>,
    id: Option<String>,
    executor: ExecutorId,
    clock: Arc<dyn Clock>,
    /// Registers the attempt's use of this slot name. When it is dropped, the attempt may request the slot again.
    asker: Arc<AttemptRequestGuard>,
}

impl QueueSlot {
    /// Pauses all grants of the queue in every process for `time`, at most one day. Call this method when the provider asks you to back off.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Closed`]: the pause could not be recorded.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the pause is carried out even if the caller drops the future.
    pub async fn retry_after(&self, time: Duration) -> Result<()> {
        let until = self.clock.now().plus(time.min(LONGEST_CLOSED));
        self.desk.call(QueueOp::Close(until)).await.map(|_| ())
    }

    /// Releases the slot, and returns once the release is recorded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Closed`]: the release could not be recorded. The queue retries it in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the release is carried out even if the caller drops the future.
    pub async fn release(mut self) -> Result<()> {
        let Some(id) = self.id.clone() else { return Ok(()) };
        let (reply, said) = oneshot::channel();
        let op = QueueOp::LeaveNode { id, executor: self.executor };
        if self.asker.release(QueueCommand::Do { op, reply: Some(reply) }) {
            said.await.map_err(|_| closed_error())??;
        }
        self.id = None;
        Ok(())
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let op = QueueOp::LeaveNode { id, executor: self.executor };
            self.asker.release(QueueCommand::Do { op, reply: None });
        }
    }
}

impl fmt::Debug for QueueSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("id", &self.id).finish_non_exhaustive()
    }
}
