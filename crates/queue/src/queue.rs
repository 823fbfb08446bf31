//! Queues: code declares them, operators read and change them.

use std::fmt;
use std::time::Duration;

#[cfg(doc)]
use ferrata_core::ErrorKind;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::RunHead;
use ferrata_core::{Result, RunKey, Timestamp};
use serde::Serialize;

use crate::handle::QueueHandle;
use crate::queue_run::{BY, LEDGER, QUEUE, ROLE, WORKFLOW, change_queue, declare, read_queue, run_of};
use crate::sealed::SealedType;
use crate::settings::{QueueOverrides, QueueSettings, RateLimit, check_name, to_millis};
use crate::state::{QueueOp, QueueState, SlotHolder, SlotWaiter};

/// Maximum number of waiters in a status.
const SHOWN: usize = 100;

/// Queue methods of [`Runtime`].
pub trait RuntimeQueueExt: SealedType {
    /// Creates a request that declares or finds the queue `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_queue::RuntimeQueueExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let mail = runtime.queue("mail").at_once(5).rate(100, Duration::from_secs(60)).declare().await?;
    /// assert_eq!(mail.status().await?.settings.at_once, Some(5));
    /// # Ok(())
    /// # }
    /// ```
    fn queue(&self, name: impl Into<String>) -> QueueRequest;
}

impl RuntimeQueueExt for Runtime {
    fn queue(&self, name: impl Into<String>) -> QueueRequest {
        QueueRequest { runtime: self.clone(), name: name.into(), settings: QueueSettings::new() }
    }
}

/// A request that declares or finds a queue. Set the settings, then call [`declare`](Self::declare) or [`find`](Self::find).
#[must_use = "a queue is declared only when the future of `declare` is awaited"]
pub struct QueueRequest {
    runtime: Runtime,
    name: String,
    settings: QueueSettings,
}

impl QueueRequest {
    /// Sets the version of the settings. The default is 1. Raise the version by one with each change of the settings. If processes declare different
    /// settings, the settings with the highest version apply.
    pub fn version(mut self, version: u32) -> Self {
        self.settings.version = version;
        self
    }

    /// Sets the number of slots of the queue across all processes. By default there is no limit.
    pub fn at_once(mut self, places: u32) -> Self {
        self.settings.at_once = Some(places);
        self
    }

    /// Sets the maximum number of slots for each key. By default there is no limit.
    pub fn at_once_per_key(mut self, places: u32) -> Self {
        self.settings.at_once_per_key = Some(places);
        self
    }

    /// Sets the number of grants in each period, across all processes. The grants are spread evenly over the period.
    pub fn rate(self, starts: u32, period: Duration) -> Self {
        self.rate_limit(RateLimit::new(starts, period))
    }

    /// Sets the rate of grants, including a burst, across all processes.
    pub fn rate_limit(mut self, rate: RateLimit) -> Self {
        self.settings.rate = Some(rate);
        self
    }

    /// Sets the rate of grants for each key, across all processes.
    pub fn rate_per_key(mut self, rate: RateLimit) -> Self {
        self.settings.rate_per_key = Some(rate);
        self
    }

    /// Sets the maximum number of waiting requests. The default is 10,000. Further requests fail with [`ErrorKind::Unavailable`]. So do requests
    /// that would grow the queue's state beyond seven eighths of [`max_body`](ferrata_core::runtime::RuntimeBuilder::max_body).
    pub fn max_waiting(mut self, most: u32) -> Self {
        self.settings.max_waiting = most;
        self
    }

    /// Sets the waiting time after which the priority of a waiting request rises by one, so that no request waits forever. The default is one minute.
    pub fn aging(mut self, time: Duration) -> Self {
        self.settings.ageing_ms = to_millis(time);
        self
    }

    /// Sets the weight of a key: in each of its turns, the key gets `slots` slots in a row instead of one. The empty key stands for the
    /// requests without a key. At most 100 keys can have a weight, each from 1 to 1,000.
    ///
    /// # Examples
    ///
    /// Of the slots of this queue, the key `gold` gets three for each slot of another key, as long as all keys have waiting requests.
    ///
    /// ```
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::store::MemoryStore;
    /// # use ferrata_queue::RuntimeQueueExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.queue("mail").at_once(10).weight("gold", 3).declare().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn weight(mut self, key: impl Into<String>, slots: u32) -> Self {
        self.settings.weights.insert(key.into(), slots);
        self
    }

    /// Restricts the queue's runs to processes that have all of these [tags](ferrata_core::runtime::RuntimeBuilder::tags). By default any process may
    /// claim them. A run that is already in the queue keeps the tags of its start. Nodes are not restricted: a node gets its slot in any process.
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Ensures that the queue exists with these settings, or with settings of a higher [version](Self::version). From then on, this process also
    /// checks the queue's holders. Call `declare` at startup in every process, so that a live process can always reclaim the slots of dead holders.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the name or a setting is invalid, or an operator's runtime tried to create a queue that does not exist.
    /// - [`ErrorKind::AlreadyExists`]: the store has other settings under this version. Raise the version.
    /// - [`ErrorKind::WrongStatus`]: the run that stores the queue was cancelled. Purge that run first.
    /// - Any other error of the store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may or may not be declared. Call `declare` again.
    pub async fn declare(self) -> Result<Queue> {
        check_name(&self.name)?;
        self.settings.check()?;
        declare(&self.runtime, &self.name, &self.settings).await?;
        // The process that declares a queue also checks its holders.
        QueueHandle::open(&self.runtime, &self.name)?;
        Ok(Queue { runtime: self.runtime, name: self.name, by: BY.to_owned() })
    }

    /// Returns the queue if any process has declared it; `None` otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is invalid; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn find(self) -> Result<Option<Queue>> {
        let head = self.runtime.head(&run_of(&self.name)?).await?;
        Ok(head.map(|_| Queue { runtime: self.runtime, name: self.name, by: BY.to_owned() }))
    }
}

impl fmt::Debug for QueueRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueRequest")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A declared queue. Dropping the handle changes nothing.
#[derive(Clone)]
pub struct Queue {
    runtime: Runtime,
    name: String,
    by: String,
}

/// The status of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The name of the queue.
    pub name: String,
    /// The run that stores the queue.
    pub run: RunKey,
    /// The declared settings.
    pub settings: QueueSettings,
    /// The operator's overrides.
    pub overrides: QueueOverrides,
    /// Time until which the queue grants no slot, because a node reported that a provider asks to back off.
    pub closed_until: Option<Timestamp>,
    /// The holders of slots.
    pub held: Vec<SlotHolder>,
    /// The number of waiters.
    pub waiting: usize,
    /// The first 100 waiters, in their current order.
    pub line: Vec<SlotWaiter>,
}

impl QueueStatus {
    /// Returns the limits in effect: the declared settings, changed by the operator's overrides.
    #[must_use]
    pub fn limits(&self) -> QueueSettings {
        self.overrides.apply_to(&self.settings)
    }
}

impl Queue {
    /// Returns the status of all queues of the store, sorted by name.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn list(runtime: &Runtime) -> Result<Vec<Self>> {
        let of = |(name, _)| Self { runtime: runtime.clone(), name, by: BY.to_owned() };
        Ok(list_heads(runtime).await?.into_iter().map(of).collect())
    }

    /// Sets the author who is recorded with each change through this handle.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = who.into();
        self
    }

    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status of the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the queue was purged; [`ErrorKind::WrongStatus`] if it was cancelled; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn status(&self) -> Result<QueueStatus> {
        let ledger = read_queue(&self.runtime, &self.name).await?;
        read_status(&self.name, &ledger, self.runtime.clock().now())
    }

    /// Stops all grants until [`unpause`](Self::unpause) is called. Holders keep their slots.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the reason has more than 1,000 bytes, and the errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`set`](Self::set).
    pub async fn pause(&self, reason: impl Into<String>) -> Result<()> {
        let reason = reason.into();
        self.set(|overrides| overrides.paused = Some(reason.clone())).await
    }

    /// Ends the pause of a queue: it grants slots again.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`set`](Self::set).
    pub async fn unpause(&self) -> Result<()> {
        self.set(|overrides| overrides.paused = None).await
    }

    /// Changes the operator's overrides. The overrides win over the settings of every version until they are removed. Lowering a limit revokes no
    /// slot: the queue grants none until enough slots are released.
    ///
    /// Calls `change_it` with the current overrides. If another operator changes the overrides at the same time, the method calls `change_it` again
    /// with the newer ones. So two operators who change different fields at the same time both succeed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if an override is invalid, and the errors of [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the overrides may or may not be changed.
    pub async fn set(&self, mut change_it: impl FnMut(&mut QueueOverrides)) -> Result<()> {
        let decide = |ledger: &QueueState| {
            let mut overrides = ledger.overrides.clone();
            change_it(&mut overrides);
            overrides.check(&ledger.settings)?;
            Ok(QueueOp::Override(Box::new(overrides)))
        };
        // Boxed: the state is large, and callers await this call within their own futures.
        Box::pin(change_queue(&self.runtime, &self.name, &self.by, decide)).await.map(|_| ())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Lists the queues of a store by name, each with the head of its run.
pub(crate) async fn list_heads(runtime: &Runtime) -> Result<Vec<(String, RunHead)>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = runtime.runs().workflow(WORKFLOW).label(ROLE, LEDGER).limit(1_000).after(after).await?;
        for head in page.items {
            let name = head.facts.labels.get(QUEUE).unwrap_or_default();
            // Any run may have this label, so check that the run has the id of the queue.
            if run_of(name).is_ok_and(|run| run == head.run) {
                found.push((name.to_owned(), head));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Returns the status of a queue.
pub(crate) fn read_status(name: &str, ledger: &QueueState, now: Timestamp) -> Result<QueueStatus> {
    let QueueState { settings, overrides, held, waiting, .. } = ledger;
    Ok(QueueStatus {
        name: name.to_owned(),
        run: run_of(name)?,
        settings: settings.clone(),
        overrides: overrides.clone(),
        closed_until: ledger.closed_until().filter(|until| *until > now),
        held: held.values().cloned().collect(),
        waiting: waiting.len(),
        line: ledger.first_waiters(SHOWN, now).into_iter().map(|(_, waiting)| waiting.clone()).collect(),
    })
}
