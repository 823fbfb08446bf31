//! Idle connections: one that was just used is used again at once, without the pool.
//!
//! The pool asks the server whether a connection is well each time that one comes back: a round trip, and a task, for every
//! statement. So a connection stays here after a statement that succeeded. The pool gets it back when a caller waits there, when
//! no caller has used it for [`TRUSTED`], and once in [`AWAY`], so that the pool's own limits of age hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{Clock as _, SystemClock, within};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::tasks::Single;

/// How long a connection may have been idle before it is asked whether it is still there.
///
/// Asking costs a round trip, so it is not done for each call. A connection used within the last second is as good as sure.
pub(crate) const TRUSTED: Duration = Duration::from_secs(1);

/// How long a connection may be away from the pool: short beside the half hour after which the pool replaces one.
const AWAY: Duration = Duration::from_secs(60);

/// The idle connections, and the task that gives them back.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    kept: Arc<Kept>,
    sweeper: Single,
    patience: Duration,
}

/// Gives a connection back to its pool, which asks the server whether it is well. The pool waits for the answer without a bound, and the
/// connection's place with it, so one that does not answer in time is closed.
pub(crate) fn give_back(mut connection: PoolConnection<Postgres>, patience: Duration) {
    return_within(&mut connection, patience);
}

/// The same, of a connection that its holder cannot part with.
pub(crate) fn return_within(connection: &mut PoolConnection<Postgres>, patience: Duration) {
    let returning = connection.return_to_pool();
    // Without a runtime no task can ask, and it is closed.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move { within(&SystemClock::new(), patience, returning).await });
    }
}

#[derive(Debug, Default)]
struct Kept {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<IdleConnection>,
    /// How many wait for the pool.
    waiting: usize,
}

/// A connection in use, and since when it is away from the pool.
pub(crate) struct Held {
    pub(crate) connection: PoolConnection<Postgres>,
    since: Duration,
}

impl Held {
    /// Holds a connection that just came from the pool.
    pub(crate) fn new(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, since: SystemClock::new().monotonic() }
    }
}

/// A connection that waits for its next use, on the runtime that it belongs to.
#[derive(Debug)]
struct IdleConnection {
    /// Absent once it is taken out.
    connection: Option<PoolConnection<Postgres>>,
    since: Duration,
    used: Duration,
    runtime: Handle,
    patience: Duration,
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        // The way back to the pool is a task, which needs a runtime also where the store is dropped outside of one.
        let _runtime = self.runtime.enter();
        if let Some(connection) = self.connection.take() {
            give_back(connection, self.patience);
        }
    }
}

/// A caller that waits for the pool.
pub(crate) struct PoolWaiter<'k>(&'k Kept);

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl IdleConnections {
    /// Keeps none at first, and has those that it gives back answer in so much time.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { kept: Arc::default(), sweeper: Single::default(), patience }
    }

    /// Takes a connection; without any, the caller counts as waiting for the pool until the other value is dropped.
    pub(crate) fn take(&self) -> Result<Held, PoolWaiter<'_>> {
        let mut state = self.kept.lock();
        // One of another runtime may be dead, as may be one that no sweep took out because its runtime was busy.
        let (now, runtime) =
            (SystemClock::new().monotonic(), Handle::try_current().map(|handle| handle.id()));
        let fits = |idle: &IdleConnection| {
            runtime.as_ref().is_ok_and(|id| idle.runtime.id() == *id)
                && now.saturating_sub(idle.used) < TRUSTED
        };
        let place = state.idle.iter().rposition(fits);
        let mut found = place.map(|place| state.idle.swap_remove(place));
        if let Some(idle) = &mut found
            && let Some(connection) = idle.connection.take()
        {
            return Ok(Held { connection, since: idle.since });
        }
        // What does not fit takes a place that the pool may need.
        let odd = std::mem::take(&mut state.idle);
        state.waiting += 1;
        drop(state);
        drop(odd);
        Err(PoolWaiter(&self.kept))
    }

    /// Keeps a connection after a statement that succeeded, unless the pool is to have it.
    pub(crate) fn keep(&self, held: Held) {
        let used = SystemClock::new().monotonic();
        let Ok(runtime) = Handle::try_current() else { return };
        let connection = Some(held.connection);
        let idle = IdleConnection { connection, since: held.since, used, runtime, patience: self.patience };
        let mut state = self.kept.lock();
        if state.waiting > 0 || used.saturating_sub(idle.since) > AWAY {
            // After the lock, which the way back must not wait for.
            drop(state);
            return;
        }
        state.idle.push(idle);
        drop(state);
        self.sweeper.ensure(|| sweep(Arc::clone(&self.kept)));
        self.kept.changed.notify_one();
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives back what no caller uses, until the store is gone and ends the task.
async fn sweep(kept: Arc<Kept>) {
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
