//! Starts of runs that wait for a slot.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime, StartRequest, queue_pause_reason};
use ferrata_core::state::State;
use ferrata_core::store::At;
use ferrata_core::{Epoch, Error, ErrorKind, Result, RunKey, Timestamp};
use serde_json::Value;

use crate::acquire::refusal_error;
use crate::handle::{
    EnqueueReply, PendingStart, QueueCommand, QueueHandle, QueueProgress, entry_id, release_slot,
    wait_for_notice,
};
use crate::queue_run::{DEADLINE, KEY, NOT_BEFORE, PRIORITY, QUEUE, START_ID};
use crate::sealed::SealedType;
use crate::settings::{check_key, to_millis};
use crate::state::{DebounceOptions, OpResult, QueueOp, SlotKind, SlotRequest, SlotWaiter};
use crate::tasks::spawn;

/// Queue methods of [`StartRequest`].
pub trait StartQueueExt<S: State>: SealedType {
    /// Starts the run through a queue. The run waits for a slot and holds the slot until the run has ended.
    ///
    /// Some process must [serve](Runtime::serve) the workflow, because a process that serves it starts the run after the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_queue::{StartQueueExt, RuntimeQueueExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&graph)?;
    /// runtime.queue("mail").at_once(2).at_once_per_key(1).declare().await?;
    /// let mut sent = Vec::new();
    /// for customer in ["ann", "bob", "ann"] {
    ///     sent.push(runtime.start(&graph, Context::new()).queue("mail").key(customer).await?);
    /// }
    /// for mail in sent {
    ///     mail.wait().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn queue(self, name: impl Into<String>) -> QueuedStart<S>;
}

impl<S: State> StartQueueExt<S> for StartRequest<S> {
    fn queue(self, name: impl Into<String>) -> QueuedStart<S> {
        QueuedStart {
            request: self,
            queue: name.into(),
            key: KeySource::Is(String::new()),
            priority: 0,
            not_before: None,
            deadline: None,
            once: None,
            debounce: None,
            debounce_at_most: None,
        }
    }
}

/// The source of a start's key.
enum KeySource {
    Is(String),
    /// The path of the input field that contains the key.
    Field(String),
}

impl KeySource {
    fn of<S: State>(self, input: &S) -> Result<String> {
        let pointer = match self {
            Self::Is(key) => return Ok(key),
            Self::Field(pointer) => pointer,
        };
        let refuse = |what: &str| {
            let message = format!(
                "cannot use `{pointer}` of the input as the key: {what}; name a field as \"/customer\" that is text, a number or a boolean"
            );
            Error::new(ErrorKind::Invalid, message)
        };
        let text = input.to_channels_json()?;
        let input: Value = serde_json::from_str(text.get())
            .map_err(|source| refuse("the input is not JSON").with_source(source))?;
        match input.pointer(&pointer) {
            Some(Value::String(key)) => Ok(key.clone()),
            Some(key @ (Value::Number(_) | Value::Bool(_))) => Ok(key.to_string()),
            Some(_) => Err(refuse("its value is a list, an object or null")),
            None => Err(refuse("it does not exist")),
        }
    }
}

/// A request to start a run through a queue. `.await` returns once the run waits in the line or has started.
///
/// # Errors
///
/// The `.await` fails with the errors of [`Runtime::start`], and with:
/// - [`ErrorKind::NotFound`]: the queue was not [declared](crate::QueueRequest::declare).
/// - [`ErrorKind::Unavailable`]: the line or the queue's state is full, or the store is unavailable. No run was started. Start the run again with the
///   same id.
/// - [`ErrorKind::Invalid`]: the key is invalid, or the input lacks the field of the key.
///
/// A start that fails withdraws its entry. If a run with the same id already exists, that run keeps its slot.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the start is carried out even if the caller drops the future. To be sure, start the run again with the same id.
#[must_use = "the run starts only when the future is awaited"]
pub struct QueuedStart<S: State> {
    pub(crate) request: StartRequest<S>,
    queue: String,
    key: KeySource,
    priority: i32,
    not_before: Option<Timestamp>,
    deadline: Option<Timestamp>,
    once: Option<(String, Duration)>,
    debounce: Option<DebounceOptions>,
    debounce_at_most: Option<Duration>,
}

impl<S: State> QueuedStart<S> {
    /// Sets the key of the start. Starts with different keys take turns, and the queue may limit each key. A key has at most 256 bytes.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = KeySource::Is(key.into());
        self
    }

    /// Takes the [key](Self::key) from the input field at a JSON pointer. The field must be text, a number, `true` or `false`. If the input lacks the
    /// field, the start fails, because limits per key could not apply to it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # use ferrata_queue::{StartQueueExt, RuntimeQueueExt};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # runtime.serve(&graph)?;
    /// runtime.queue("mail").at_once(50).at_once_per_key(1).declare().await?;
    /// let mut input = Context::new();
    /// input.set("customer", "ann")?;
    /// runtime.start(&graph, input).queue("mail").key_by("/customer").await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_by(mut self, pointer: impl Into<String>) -> Self {
        self.key = KeySource::Field(pointer.into());
        self
    }

    /// Sets the priority. The queue serves higher values first. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the earliest time at which the queue may grant the slot.
    pub fn not_before(mut self, moment: Timestamp) -> Self {
        self.not_before = Some(moment);
        self
    }

    /// Sets the deadline for the grant: if the run has no slot at that time, the queue cancels it. A run that has begun continues.
    pub fn deadline(mut self, moment: Timestamp) -> Self {
        self.deadline = Some(moment);
        self
    }

    /// Starts nothing if a start with the same `key` in this queue started another run less than `within` ago: see [`QueuedRun::is_new`]. The
    /// `within` of this start applies, not the one of earlier starts. A start that fails does not count, nor does a start whose run already existed.
    ///
    /// A queue remembers 10,000 keys. The queue remembers a key for the longest time that any start has named for it. When the queue is full of keys,
    /// starts with new keys fail with [`ErrorKind::Unavailable`] until the time of a key has passed. An empty key fails with [`ErrorKind::Invalid`].
    pub fn once(mut self, key: impl Into<String>, within: Duration) -> Self {
        self.once = Some((key.into(), within));
        self
    }

    /// Delays the start until no other start with this `key` has come for `quiet`. Each new start replaces the previous start, whose run is cancelled
    /// unless it has begun. So only the last input runs. An empty key fails with [`ErrorKind::Invalid`].
    pub fn debounce(mut self, key: impl Into<String>, quiet: Duration) -> Self {
        self.debounce = Some(DebounceOptions { key: key.into(), period: to_millis(quiet), most: None });
        self
    }

    /// Limits how long a [debounced](Self::debounce) start waits. The time counts from the first start that was replaced. By default there is no
    /// limit. Without `debounce`, the start fails with [`ErrorKind::Invalid`].
    pub fn debounce_at_most(mut self, time: Duration) -> Self {
        self.debounce_at_most = Some(time);
        self
    }

    /// Rejects invalid combinations of options, and returns the debounce options of this start.
    fn check(&mut self, key: &str) -> Result<Option<DebounceOptions>> {
        let refuse = |message: &str| Err(Error::new(ErrorKind::Invalid, message));
        let mut debounce = self.debounce.take();
        let keys = self.once.iter().map(|(key, _)| key).chain(debounce.iter().map(|debounce| &debounce.key));
        for key in keys {
            if key.is_empty() {
                return refuse(
                    "the key of `once` and of `debounce` is empty; use a key that the repeated starts share",
                );
            }
            check_key(key)?;
        }
        check_key(key)?;
        match (&mut debounce, self.debounce_at_most) {
            (Some(debounce), most) => debounce.most = most.map(to_millis),
            (None, Some(_)) => {
                return refuse("`debounce_at_most` limits a debounce; call `.debounce(key, quiet)` as well");
            }
            (None, None) => {}
        }
        Ok(debounce)
    }

    async fn start(mut self) -> Result<QueuedRun<S>> {
        let key = std::mem::replace(&mut self.key, KeySource::Is(String::new())).of(self.request.input())?;
        let mut debounce = self.check(&key)?;
        let Self { request, queue, priority, not_before, deadline, once, .. } = self;
        let runtime = request.runtime();
        let desk = QueueHandle::open(&runtime, &queue)?;
        let mut request = request.label(QUEUE, &queue);
        // These labels store options that a revived run passes to the queue again.
        let time = |at: Timestamp| at.unix_ms().to_string();
        for (label, value) in [
            (KEY, (!key.is_empty()).then(|| key.clone())),
            (PRIORITY, (priority != 0).then(|| priority.to_string())),
            (NOT_BEFORE, not_before.map(time)),
            (DEADLINE, deadline.map(time)),
        ] {
            if let Some(value) = value {
                request = request.label(label, value);
            }
        }
        let run = request.choose_id()?;
        let id = entry_id(&run);
        let mut waiting = SlotWaiter {
            run: run.clone(),
            kind: SlotKind::Run,
            places: 1,
            key,
            priority,
            since: runtime.clock().now(),
            executor: runtime.executor(),
            epoch: Epoch::NEVER,
            question: None,
            not_before,
            deadline,
            debounced: None,
            start_ids: Vec::new(),
            alive: None,
        };
        // A run in the store entered the line at its own start. Starting the run again replaces no other start.
        if debounce.is_some() && runtime.head(&run).await?.is_some() {
            if desk.progress(id.clone()).await? != QueueProgress::Passed
                || !is_on_hold(&runtime, &run, &queue).await?
            {
                let handle =
                    request.require_tags(desk.tags().await?).on_hold(queue_pause_reason(&queue)).await?;
                return Ok(QueuedRun { runtime, desk, run, handle: Some(handle) });
            }
            // The queue has lost the entry of this run.
            debounce = None;
        }
        let once = once.map(|(key, within)| (key, to_millis(within)));
        let starting = PendingStart::new(&desk, &id, waiting.executor, waiting.since);
        let start_id = starting.start_id();
        waiting.is_of(vec![start_id]);
        let (request, doubts) = (request.label(START_ID, start_id.to_string()), starting.replaced_starts());
        let EnqueueReply { said, tags, entered } = desk
            .request_start(SlotRequest {
                id: id.clone(),
                waiting,
                once,
                debounce,
                doubts,
                is_on_record: false,
            })
            .await?;
        let takes_it = runtime.has_tags(tags.iter().map(String::as_str));
        let begins_here = said == OpResult::Granted && takes_it;
        let request = request.require_tags(tags);
        let started = match said {
            OpResult::Granted if takes_it => request.await,
            OpResult::Granted => {
                if runtime.head(&run).await?.is_none() || is_on_hold(&runtime, &run, &queue).await? {
                    desk.call(QueueOp::Hold(id.clone())).await?;
                }
                request.on_hold(queue_pause_reason(&queue)).await
            }
            OpResult::Waits => request.on_hold(queue_pause_reason(&queue)).await,
            OpResult::Before(run) => {
                starting.confirm_outcome();
                return Ok(QueuedRun { runtime, desk, run, handle: None });
            }
            said => {
                starting.confirm_outcome();
                return Err(refusal_error(&queue, &said).with_run(&run));
            }
        };
        match started {
            Ok(handle) => {
                // The slot may have been granted before the run was recorded. A run of an earlier start may have ended.
                desk.send(QueueCommand::Look);
                let is_driven_here = handle.is_driven_here();
                match (is_driven_here || handle.is_recorded_on_hold()) && entered.is_some() {
                    true => starting.confirm_recorded(),
                    false => starting.assign_found(&runtime, &run, entered).await,
                }
                if !is_driven_here {
                    // The run was recorded before, and the queue has lost its entry. Start the run like one that waited in the line and got its slot.
                    if begins_here && is_on_hold(&runtime, &run, &queue).await? {
                        desk.call(QueueOp::Hold(id)).await?;
                    }
                }
                Ok(QueuedRun { runtime, desk, run, handle: Some(handle) })
            }
            Err(error) => {
                // After an indeterminate failure, the store may still record the start. Other failed starts wrote nothing, so a retry is a new start.
                if error.kind() != ErrorKind::Indeterminate {
                    match entered {
                        Some(entered) => {
                            starting.confirm_outcome();
                            desk.send(QueueCommand::TakeBack { id, start_id, entered });
                        }
                        // The entry belongs to an earlier start. The run of that start may have ended since.
                        None => {
                            starting.withdraw();
                            release_slot(&runtime, &run).await;
                        }
                    }
                }
                Err(error)
            }
        }
    }
}

/// Returns whether a run exists and is on hold for this queue only.
async fn is_on_hold(runtime: &Runtime, run: &RunKey, queue: &str) -> Result<bool> {
    let head = runtime.head(run).await?;
    if head.is_none_or(|head| head.status != RunStatus::Interrupted) {
        return Ok(false);
    }
    Ok(runtime.checkpoint(run, At::Latest).await?.paused == Some(queue_pause_reason(queue)))
}

impl<S: State> IntoFuture for QueuedStart<S> {
    type Output = Result<QueuedRun<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            spawn(self.start()).await.unwrap_or_else(|ended| {
                Err(Error::new(ErrorKind::Closed, "the start panicked or was aborted").with_source(ended))
            })
        })
    }
}

impl<S: State> fmt::Debug for QueuedStart<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedStart")
            .field("request", &self.request)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// A run that was started through a queue. Dropping the handle changes nothing.
pub struct QueuedRun<S: State> {
    runtime: Runtime,
    desk: Arc<QueueHandle>,
    run: RunKey,
    handle: Option<RunHandle<S>>,
}

impl<S: State> QueuedRun<S> {
    /// Returns the id of the run. If this start is [not new](Self::is_new), that is the run of the earlier start.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Returns whether this start started the run. Returns `false` if an earlier start [with the same key](QueuedStart::once) started another run.
    pub fn is_new(&self) -> bool {
        self.handle.is_some()
    }

    /// Returns whether the run waits for its slot, according to this process's copy of the queue.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn is_waiting(&self) -> Result<bool> {
        Ok(self.desk.progress(entry_id(&self.run)).await? != QueueProgress::Passed)
    }

    /// Waits until the run has its slot, and then until [`RunHandle::wait`] returns.
    ///
    /// # Errors
    ///
    /// The errors of [`RunHandle::wait`], and [`ErrorKind::AlreadyExists`] if the run belongs to an earlier start with the same key.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn wait(&self) -> Result<Outcome<S>> {
        self.until_granted().await?.wait().await
    }

    /// Waits until the run is completed, and returns its state, like [`RunHandle::completed`].
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait) and of [`RunHandle::completed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn completed(&self) -> Result<S> {
        self.until_granted().await?.completed().await
    }

    /// Waits until the run has its slot.
    async fn until_granted(&self) -> Result<&RunHandle<S>> {
        let Some(handle) = &self.handle else {
            let message = "another run was already started with this key; use that run";
            return Err(Error::new(ErrorKind::AlreadyExists, message).with_run(&self.run));
        };
        let mut changed = self.desk.watch_changes();
        let mut notices = None;
        loop {
            changed.borrow_and_update();
            match self.desk.progress(entry_id(&self.run)).await? {
                QueueProgress::Passed => return Ok(handle),
                // Another process may have started it. The queue records this with its next change.
                QueueProgress::Granted => {
                    notices = notices.or_else(|| self.runtime.store().subscribe());
                    let head = self.runtime.head(&self.run).await?;
                    if head.is_none_or(|head| head.status != RunStatus::Interrupted) {
                        return Ok(handle);
                    }
                }
                QueueProgress::Waits => notices = None,
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = wait_for_notice(&mut notices, &self.run) => {}
                () = self.runtime.clock().sleep(self.runtime.poll_intervals().look) => {}
            }
        }
    }
}

impl<S: State> fmt::Debug for QueuedRun<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedRun")
            .field("run", &self.run)
            .field("is_new", &self.is_new())
            .finish_non_exhaustive()
    }
}
