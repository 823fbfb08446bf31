//! The state of the relay that passes chunks of streams between processes.

pub(crate) mod state;
pub(crate) mod text;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use self::state::{RelayProgress, RelayState};
use crate::id::RunKey;

/// The relay state of this process.
#[derive(Debug, Default)]
pub(crate) struct StreamRelay {
    state: Mutex<RelayState>,
    /// Whether the tasks that send and receive are running.
    pub(crate) has_begun: AtomicBool,
    /// Notified when there are messages to send.
    pub(crate) bell: Notify,
    /// Notified when the messages must be sent at once.
    pub(crate) hurry: Notify,
    /// Notified when a watch starts in this process.
    pub(crate) news: Notify,
    pub(crate) said: watch::Sender<RelayProgress>,
    pub(crate) hears: watch::Sender<bool>,
}

impl StreamRelay {
    pub(crate) fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces to other processes that this process watches a run.
    pub(crate) fn announce_watch(&self, run: &RunKey) {
        if self.has_begun.load(Ordering::Acquire) {
            let mut state = self.state();
            state.streams.remove_streams(run);
            state.announce([run.clone()]);
            drop(state);
            self.bell.notify_one();
            self.hurry.notify_one();
            self.news.notify_one();
        }
    }

    /// Wakes the tasks to notice the end of the runtime.
    pub(crate) fn end(&self) {
        self.bell.notify_one();
        self.hurry.notify_one();
        self.news.notify_one();
    }
}
