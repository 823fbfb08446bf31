//! Idle connections. A call takes a recently used connection at once, without the pool.
//!
//! The pool checks a connection with the server each time the connection returns. That costs a round trip and a task for every statement and every
//! transaction. So after a successful call, a connection stays here, or goes to a waiting caller. The pool gets the connection back when no caller
//! has used it for [`TRUSTED`]. The pool also gets it back once in every [`AWAY`], so that the pool can apply its limits on the age of connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{Clock as _, SystemClock};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use crate::detached_connection::DetachedConnection;
use crate::tasks::ExclusiveTask;

/// How long a connection may be idle before it must be checked.
///
/// A check costs a round trip, so recently used connections skip it: a connection that was used within the last second almost certainly works.
pub(crate) const TRUSTED: Duration = Duration::from_secs(1);

/// The maximum time that a connection spends outside the pool. It is short compared with the half hour after which the pool replaces a connection.
const AWAY: Duration = Duration::from_secs(60);

/// The idle connections, and the task that returns them to the pool.
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
    /// The waiting callers in order of arrival: those that wait here, and those that wait for the pool.
    waiting: VecDeque<WaitingCaller>,
}

/// An idle connection, with the runtime that it belongs to.
#[derive(Debug)]
struct IdleConnection {
    held: DetachedConnection,
    used: Duration,
}

/// A caller that waits for a connection.
#[derive(Debug)]
struct WaitingCaller {
    /// The runtime of the caller, if it may receive a released connection. `None` while the pool opens a connection for the caller: a released
    /// connection would cancel that, so the pool would never grow.
    runtime: Option<Id>,
    place: oneshot::Sender<DetachedConnection>,
}

impl IdleConnections {
    /// Takes an idle connection. If there is none, returns a receiver for a connection that another caller releases. The caller then counts as
    /// waiting for the pool until the receiver is dropped.
    pub(crate) fn take(
        &self,
        pool_is_full: bool,
    ) -> Result<DetachedConnection, oneshot::Receiver<DetachedConnection>> {
        let mut state = self.kept.lock();
        // Skip a connection of another runtime, and one that is unused for too long. Either may be dead.
        let now = SystemClock::new().monotonic();
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        let fits = |idle: &IdleConnection| {
            runtime.is_some() && idle.held.runtime_id() == runtime && now.saturating_sub(idle.used) < TRUSTED
        };
        if let Some(place) = state.idle.iter().rposition(fits) {
            return Ok(state.idle.swap_remove(place).held);
        }
        // A connection that this caller cannot use occupies a slot that the pool may need.
        let odd = std::mem::take(&mut state.idle);
        let (place, comes) = oneshot::channel();
        state.first_in_line();
        state.waiting.push_back(WaitingCaller { runtime: runtime.filter(|_| pool_is_full), place });
        drop(state);
        // Drop them after the lock is released, because returning a connection must not wait for the lock.
        drop(odd);
        Err(comes)
    }

    /// Releases a connection after a successful call: to a waiting caller, to the idle connections, or to the pool.
    pub(crate) fn release(&self, held: DetachedConnection) {
        let used = SystemClock::new().monotonic();
        let Some(runtime) = held.runtime_id() else { return };
        if used.saturating_sub(held.since) > AWAY {
            return;
        }
        let mut held = held;
        let mut state = self.kept.lock();
        while state.first_in_line().is_some() {
            // The first waiting caller waits for the pool, so the pool gets this connection.
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
    /// Returns the caller that has waited longest and still waits.
    fn first_in_line(&mut self) -> Option<&WaitingCaller> {
        while self.waiting.pop_front_if(|waiting| waiting.place.is_closed()).is_some() {}
        self.waiting.front()
    }
}

/// Returns unused connections to the pool. The task ends with the store.
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
