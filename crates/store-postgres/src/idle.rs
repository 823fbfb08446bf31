//! Idle connections: one that was just used is used again at once, without the pool.
//!
//! The pool asks the server whether a connection is well each time that one comes back: a round trip, and a task, for every
//! statement and every transaction. So a connection stays here after one that succeeded, or goes to a caller that waits. The pool gets it back
//! when no caller has used it for [`TRUSTED`], and once in [`AWAY`], so that the pool's own limits of age hold.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{Clock as _, SystemClock};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use crate::held::DetachedConnection;
use crate::tasks::ExclusiveTask;

/// How long a connection may have been idle before it is asked whether it is still there.
///
/// Asking costs a round trip, so it is not done for each call. A connection used within the last second is as good as sure.
pub(crate) const TRUSTED: Duration = Duration::from_secs(1);

/// How long a connection may be away from the pool: short beside the half hour after which the pool replaces one.
const AWAY: Duration = Duration::from_secs(60);

/// The idle connections, and the task that gives them back.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    kept: Arc<IdleState>,
    sweeper: ExclusiveTask,
}

#[derive(Debug, Default)]
struct IdleState {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<IdleConnection>,
    /// Those who wait, here and at the pool: who came first is first.
    waiting: VecDeque<WaitingCaller>,
}

/// A connection that waits for its next use, on the runtime that it belongs to.
#[derive(Debug)]
struct IdleConnection {
    held: DetachedConnection,
    used: Duration,
}

/// A caller that waits.
#[derive(Debug)]
struct WaitingCaller {
    /// The runtime that it waits on, if a connection may be handed to it: not while the pool makes one for it, which that would break off,
    /// so that the pool would never grow.
    runtime: Option<Id>,
    place: oneshot::Sender<DetachedConnection>,
}

impl IdleConnections {
    /// Takes a connection; without any, returns where one may come that another caller does not need any more, and counts the caller as
    /// waiting for the pool until that is dropped.
    pub(crate) fn take(
        &self,
        pool_is_full: bool,
    ) -> Result<DetachedConnection, oneshot::Receiver<DetachedConnection>> {
        let mut state = self.kept.lock();
        // One of another runtime may be dead, as may be one that no sweep took out because its runtime was busy.
        let now = SystemClock::new().monotonic();
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        let fits = |idle: &IdleConnection| {
            runtime.is_some() && idle.held.runtime_id() == runtime && now.saturating_sub(idle.used) < TRUSTED
        };
        if let Some(place) = state.idle.iter().rposition(fits) {
            return Ok(state.idle.swap_remove(place).held);
        }
        // What does not fit takes a place that the pool may need.
        let odd = std::mem::take(&mut state.idle);
        let (place, comes) = oneshot::channel();
        state.first_in_line();
        state.waiting.push_back(WaitingCaller { runtime: runtime.filter(|_| pool_is_full), place });
        drop(state);
        // After the lock, which the way back must not wait for.
        drop(odd);
        Err(comes)
    }

    /// Hands a connection on after a call that succeeded, to who waits or to who comes next, unless the pool is to have it.
    pub(crate) fn keep(&self, held: DetachedConnection) {
        let used = SystemClock::new().monotonic();
        let Some(runtime) = held.runtime_id() else { return };
        if used.saturating_sub(held.since) > AWAY {
            return;
        }
        let mut held = held;
        let mut state = self.kept.lock();
        while state.first_in_line().is_some() {
            // Another one waits at the pool, which gets this one.
            let Some(waiting) = state.waiting.pop_front_if(|waiting| waiting.runtime == Some(runtime)) else {
                drop(state);
                return;
            };
            held = match waiting.place.send(held) {
                Ok(()) => return,
                Err(held) => held,
            };
        }
        state.idle.push(IdleConnection { held, used });
        drop(state);
        self.sweeper.ensure(|| sweep(Arc::clone(&self.kept)));
        self.kept.changed.notify_one();
    }
}

impl IdleState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns who has waited longest of those who still do.
    fn first_in_line(&mut self) -> Option<&WaitingCaller> {
        while self.waiting.pop_front_if(|waiting| waiting.place.is_closed()).is_some() {}
        self.waiting.front()
    }
}

/// Gives back what no caller uses, until the store is gone and ends the task.
async fn sweep(kept: Arc<IdleState>) {
    let clock = SystemClock::new();
    loop {
        kept.changed.notified().await;
        loop {
            clock.sleep(TRUSTED).await;
            let now = clock.monotonic();
            let mut state = kept.lock();
            let is_over = |idle: &mut IdleConnection| now.saturating_sub(idle.used) >= TRUSTED;
            let over: Vec<IdleConnection> = state.idle.extract_if(.., is_over).collect();
            let is_empty = state.idle.is_empty();
            drop(state);
            drop(over);
            if is_empty {
                break;
            }
        }
    }
}
