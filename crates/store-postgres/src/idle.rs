//! Idle connections: a call uses a recently used connection at once, without the pool.
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

use crate::detached_connection::DetachedConnection;
use crate::tasks::ExclusiveTask;

/// The idle time after which a connection is checked before use.
///
/// A check costs a round trip, so recently used connections skip it: a connection used within the last second almost certainly works.
pub(crate) const TRUSTED: Duration = Duration::from_secs(1);

/// The maximum time of a connection outside the pool: short compared with the half hour after which the pool replaces one.
const AWAY: Duration = Duration::from_secs(60);

/// The idle connections, and the task that gives them back.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    kept: Arc<IdleState>,
    sweeper: ExclusiveTask,
}

#[derive(Debug, Default)]
struct IdleState {
    state: Mutex<PoolState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<IdleConnection>,
    /// The waiting callers, of this type and of the pool, in order of arrival.
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
    /// The runtime that the caller waits on, if it may receive a connection. `None` while the pool opens one for it: a handover would cancel that,
    /// so the pool would never grow.
    runtime: Option<Id>,
    place: oneshot::Sender<DetachedConnection>,
}

impl IdleConnections {
    /// Takes a connection. If there is none, returns a receiver for a connection that another caller releases, and counts the caller as waiting for
    /// the pool until the receiver is dropped.
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
        // A connection of another kind occupies a slot that the pool may need.
        let odd = std::mem::take(&mut state.idle);
        let (place, comes) = oneshot::channel();
        state.first_in_line();
        state.waiting.push_back(WaitingCaller { runtime: runtime.filter(|_| pool_is_full), place });
        drop(state);
        // After the lock, which the way back must not wait for.
        drop(odd);
        Err(comes)
    }

    /// Passes a connection on after a successful call, to a waiting or a future caller, unless the pool should get it.
    pub(crate) fn release(&self, held: DetachedConnection) {
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
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Returns the active caller that has waited longest.
    fn first_in_line(&mut self) -> Option<&WaitingCaller> {
        while self.waiting.pop_front_if(|waiting| waiting.place.is_closed()).is_some() {}
        self.waiting.front()
    }
}

/// Returns unused connections to the pool. Ends with the store.
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
