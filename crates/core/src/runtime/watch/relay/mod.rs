//! Chunks of streams on their way to watchers in other processes, where the store passes texts on between them.
//!
//! A process says which runs are watched in it when that begins, and again every few seconds. The others say the chunks of these runs alone: a
//! stream that nobody watches elsewhere costs nothing. One task says what all nodes of the process send, and one hears what others say.
//! Numbers of chunks tell what was lost on the way, wherever that was.

mod state;
mod tasks;
mod text;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};

use self::state::{Progress, State};
use self::text::Stream;
use crate::clock::within;
use crate::id::RunKey;
use crate::node::NodeContext;
use crate::runtime::shared::RuntimeInner;
use crate::runtime::tasks::spawn;

/// How long the begin of a watch waits until others know of it, and the end of a stream until they were told: the store may be slow.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is said to other processes, and heard of them.
#[derive(Debug, Default)]
pub(crate) struct StreamRelay {
    state: Mutex<State>,
    /// Whether there are tasks that say and hear.
    has_begun: AtomicBool,
    /// Rung when there is something to say.
    bell: Notify,
    /// Rung when it is to be said at once.
    hurry: Notify,
    /// Rung when something is watched here.
    news: Notify,
    said: watch::Sender<Progress>,
    hears: watch::Sender<bool>,
}

impl StreamRelay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has others told that a run is watched here from now on, or all runs.
    pub(super) fn wants(&self, run: Option<&RunKey>) {
        if self.has_begun.load(Ordering::Acquire) {
            let mut state = self.state();
            state.streams.forget(run);
            state.announce(run.is_none(), run.cloned());
            drop(state);
            self.bell.notify_one();
            self.hurry.notify_one();
            self.news.notify_one();
        }
    }

    /// Has the tasks see that the runtime is gone.
    pub(crate) fn end(&self) {
        self.bell.notify_one();
        self.hurry.notify_one();
        self.news.notify_one();
    }
}

/// Begins to say and to hear, where the store passes texts on.
pub(super) fn begin(shared: &Arc<RuntimeInner>) {
    let has_begun = &shared.relayed().has_begun;
    if !has_begun.load(Ordering::Acquire)
        && shared.store.relay().is_some()
        && !has_begun.swap(true, Ordering::AcqRel)
    {
        spawn(tasks::say(Arc::downgrade(shared)));
        spawn(tasks::hear(Arc::downgrade(shared)));
    }
}

/// Waits until others know what is watched here, but not for long.
pub(super) async fn announced(shared: &RuntimeInner) {
    let relayed = shared.relayed();
    let all = relayed.state().all.wants;
    let mut said = relayed.said.subscribe();
    // The sender lives as long as `shared`.
    let _ = within(&*shared.clock, PATIENCE, said.wait_for(|said| said.wants >= all)).await;
}

/// The way of a stream to other processes.
#[derive(Clone, Debug)]
pub(super) struct Way(Arc<Stream>);

impl Way {
    /// Makes it, where the store passes texts on.
    pub(super) fn of(cx: &NodeContext, name: &Arc<str>, shared: &Arc<RuntimeInner>) -> Option<Self> {
        shared.store.relay()?;
        begin(shared);
        let (is_first, round) = {
            let mut state = shared.relayed().state();
            (state.ask(), state.next_round())
        };
        if is_first {
            shared.relayed().bell.notify_one();
        }
        let (life, epoch) = cx.life_and_epoch();
        let (run, node) = (cx.run().clone(), cx.node().clone());
        let (visit, attempt, name) = (cx.visit(), cx.attempt(), Arc::clone(name));
        Some(Self(Arc::new(Stream { run, life, epoch, node, visit, attempt, name, round })))
    }

    /// Whether someone elsewhere may want the stream.
    pub(super) fn is_wanted(&self, shared: &RuntimeInner) -> bool {
        shared.relayed().state().is_wanted(&self.0.run, || shared.clock.monotonic())
    }

    /// Has a chunk said soon; never waits.
    pub(super) fn say(&self, shared: &RuntimeInner, number: u64, data: &Arc<RawValue>) {
        let relayed = shared.relayed();
        relayed.state().push((Arc::clone(&self.0), number, Arc::clone(data)));
        relayed.bell.notify_one();
    }

    /// Waits until what others want is said or given up, but not for long.
    pub(super) async fn flush(&self, shared: &RuntimeInner) {
        let relayed = shared.relayed();
        let due = relayed.state().due(shared.clock.monotonic());
        let mut said = relayed.said.subscribe();
        let is_said = said.borrow().chunks >= due;
        if !is_said {
            relayed.hurry.notify_one();
            // The sender lives as long as `shared`.
            let _ = within(&*shared.clock, PATIENCE, said.wait_for(|said| said.chunks >= due)).await;
        }
    }
}
