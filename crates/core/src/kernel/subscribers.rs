//! The subscribers of the events of all runs in this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;

use super::event::{Event, RunEvent};
use super::feed::relay::StreamRelay;
use super::feed::run_feed::RunFeeds;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;

/// The subscribers of a runtime's events.
pub(crate) struct Subscribers {
    /// The channel of events. The first subscriber creates it. Without subscribers there is no channel, because its buffer would take most of the
    /// memory of a runtime.
    sender: OnceLock<broadcast::Sender<RunEvent>>,
    lag: usize,
    /// The number of subscribers and watched runs.
    count: Arc<AtomicUsize>,
    /// The watchers of single runs.
    pub(crate) feeds: Arc<RunFeeds>,
    /// The relay of stream chunks to and from other processes.
    pub(crate) relayed: Arc<StreamRelay>,
}

impl Subscribers {
    /// Creates an empty list of subscribers. A subscriber misses events if it is more than `lag` events behind.
    pub(crate) fn new(lag: usize) -> Self {
        let count = Arc::default();
        let relayed = Arc::default();
        let feeds = Arc::new(RunFeeds::new(Arc::clone(&count), Arc::clone(&relayed)));
        Self { sender: OnceLock::new(), lag, count, feeds, relayed }
    }

    /// Sends an event to every subscriber. Calls `event` only if there is one.
    pub(crate) fn emit(&self, run: &RunKey, event: impl FnOnce() -> Event) {
        if self.is_empty() {
            return;
        }
        let event = event();
        self.feeds.publish_event(run, &event);
        if let Some(sender) = self.sender.get().filter(|sender| sender.receiver_count() > 0) {
            // The last subscriber may just have left.
            let _ = sender.send(RunEvent { run: run.clone(), event });
        }
    }

    /// Returns whether there is no subscriber. The function is called for every event, so it uses a counter and takes no lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Subscribes to the events of all runs.
    pub(crate) fn subscribe(&self) -> EventSubscription {
        self.count.fetch_add(1, Ordering::Release);
        let sender = self.sender.get_or_init(|| broadcast::channel(self.lag).0);
        EventSubscription { receiver: sender.subscribe(), subscribers: Arc::clone(&self.count) }
    }
}

/// A subscription to the events of all runs in this process. [`Runtime::watch`](crate::runtime::Runtime::watch) follows one run in any process.
#[derive(Debug)]
pub struct EventSubscription {
    receiver: broadcast::Receiver<RunEvent>,
    /// The number of subscribers, including this subscriber.
    subscribers: Arc<AtomicUsize>,
}

impl EventSubscription {
    /// Waits for the next event. `Ok(None)` means that this subscriber was too slow and missed some events.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] after the runtime was dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the event.
    pub async fn next(&mut self) -> Result<Option<RunEvent>> {
        match self.receiver.recv().await {
            Ok(event) => Ok(Some(event)),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(None),
            Err(broadcast::error::RecvError::Closed) => {
                let message = "the runtime is gone; there will be no more events";
                Err(Error::new(ErrorKind::Closed, message))
            }
        }
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        self.relayed.end();
    }
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::Release);
    }
}
