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
use crate::settings::{QueueOverrides, QueueSettings, RateLimit, check_name, to_millis};
use crate::state::{QueueOp, QueueState, SlotHolder, SlotWaiter};

/// Maximum number of waiters in a status.
const SHOWN: usize = 100;

/// Queue methods of [`Runtime`].
pub trait RuntimeQueueExt {
    /// Creates a request that declares or finds a queue.
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

/// A request that declares or finds a queue.
#[must_use = "a queue is declared only when the future of `declare` is awaited"]
pub struct QueueRequest {
    runtime: Runtime,
    name: String,
    settings: QueueSettings,
}

impl QueueRequest {
    /// Sets the version of the settings. The default is 1. Raise it by one with each change: if processes declare different settings, those of the
    /// highest version apply.
    pub fn version(mut self, version: u32) -> Self {
        self.settings.version = version;
        self
    }

    /// Sets the number of slots, over all processes. By default there is no limit.
    pub fn at_once(mut self, places: u32) -> Self {
        self.settings.at_once = Some(places);
        self
    }

    /// Sets the maximum number of slots of one key.
    pub fn at_once_per_key(mut self, places: u32) -> Self {
        self.settings.at_once_per_key = Some(places);
        self
    }

    /// Sets the number of grants in each period, spread evenly, over all processes.
    pub fn rate(self, starts: u32, period: Duration) -> Self {
        self.rate_limit(RateLimit::new(starts, period))
    }

    /// Sets the rate of grants, with a burst.
    pub fn rate_limit(mut self, rate: RateLimit) -> Self {
        self.settings.rate = Some(rate);
        self
    }

    /// Sets the rate of grants for each key.
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

    /// Sets the waiting time that raises a priority by one, so that no request waits forever. The default is a minute.
    pub fn aging(mut self, time: Duration) -> Self {
        self.settings.ageing_ms = to_millis(time);
        self
    }

    /// Restricts the queue's runs to processes with all of these [tags](ferrata_core::runtime::RuntimeBuilder::tags). The default is any process. A
    /// run already in the queue keeps the tags of its start. A node gets its slot in any process.
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Ensures that the queue exists with these settings, or with those of a higher [version](Self::version). From then on this process checks the
    /// queue. Call `declare` in every process when it starts, so that a process is always there to reassign the slots of dead holders.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the name or a setting is invalid, or the runtime is an operator's and the queue does not exist yet.
    /// - [`ErrorKind::AlreadyExists`]: other settings are stored under this version.
    /// - [`ErrorKind::WrongStatus`]: the run that is the queue was cancelled.
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

    /// Returns the queue if any process has declared it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is invalid; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
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
    /// The name.
    pub name: String,
    /// The run that is the queue.
    pub run: RunKey,
    /// The declared settings.
    pub settings: QueueSettings,
    /// The operator's overrides.
    pub overrides: QueueOverrides,
    /// Time until which the queue grants no slot, because a provider asked to back off.
    pub closed_until: Option<Timestamp>,
    /// The holders of slots.
    pub held: Vec<SlotHolder>,
    /// The number of waiters.
    pub waiting: usize,
    /// The first hundred waiters, in their current order.
    pub line: Vec<SlotWaiter>,
}

impl QueueStatus {
    /// Returns the limits in effect: the declared settings, with the operator's overrides.
    #[must_use]
    pub fn limits(&self) -> QueueSettings {
        self.overrides.apply_to(&self.settings)
    }
}

impl Queue {
    /// Lists the queues of the store, by their names.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn list(runtime: &Runtime) -> Result<Vec<Self>> {
        let of = |(name, _)| Self { runtime: runtime.clone(), name, by: BY.to_owned() };
        Ok(list_heads(runtime).await?.into_iter().map(of).collect())
    }

    /// Sets the author that is recorded with each change through this handle.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = who.into();
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status of the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the queue was purged, [`ErrorKind::WrongStatus`] if it was cancelled; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn status(&self) -> Result<QueueStatus> {
        let ledger = read_queue(&self.runtime, &self.name).await?;
        read_status(&self.name, &ledger, self.runtime.clock().now())
    }

    /// Stops all grants until [`unpause`](Self::unpause). Holders keep their slots.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the reason has more than 1,000 bytes, and as [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    pub async fn pause(&self, reason: impl Into<String>) -> Result<()> {
        let reason = reason.into();
        self.set(|overrides| overrides.paused = Some(reason.clone())).await
    }

    /// Continues a paused queue.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    pub async fn unpause(&self) -> Result<()> {
        self.set(|overrides| overrides.paused = None).await
    }

    /// Changes the operator's overrides, which win over the settings of every version until they are removed. A lower limit revokes no slot: the queue
    /// grants none until enough are released.
    ///
    /// Calls `change_it` with the current overrides, and again with newer ones if another operator was faster. So two operators who change different
    /// fields at the same time both succeed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if an override is invalid, and as [`status`](Self::status).
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

/// Lists the queues of a store by their names, each with the head of its run.
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
