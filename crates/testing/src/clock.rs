//! A manual clock.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ferrata_store::{Clock, Timestamp};

/// A clock that advances only when a test tells it to. Clones share the same time.
///
/// The wall time and the monotonic time always advance together, even in very small steps. The wall time shows whole milliseconds. A sleep ends at
/// a whole millisecond of the monotonic time, like a sleep of tokio. So a task that sleeps until a wall time wakes at exactly that time.
///
/// Give the same clock to the runtime and to its store: a runtime with a manual clock never wakes a run if the store uses another clock. For tests
/// of workflows, `ferrata::testing::World` has one clock for both, and advances it when nothing else can happen.
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_testing::ManualClock;
/// use ferrata_store::{Clock, Timestamp};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = ManualClock::new(Timestamp::from_unix_ms(1_000));
/// let sleep = clock.sleep(Duration::from_secs(5));
/// assert_eq!(clock.sleepers(), 1);
///
/// assert_eq!(clock.advance_to_next_sleeper(), Some(Duration::from_secs(5)));
/// sleep.await;
/// assert_eq!(clock.now(), Timestamp::from_unix_ms(6_000));
/// # });
/// ```
#[derive(Clone)]
pub struct ManualClock {
    time: Arc<Mutex<Time>>,
}

struct Time {
    /// The wall time at its last change, and the monotonic time at that moment.
    set: (Timestamp, Duration),
    monotonic: Duration,
    /// The sleepers, by the time at which they wake, then by the order in which they started.
    sleepers: BTreeMap<Key, Option<Waker>>,
    /// The number of sleeps so far.
    slept: u64,
    /// Callers that wait for a sleeper.
    watchers: Vec<Waker>,
}

/// The time at which a sleeper wakes, and a number that distinguishes it from other sleepers with the same time.
type Key = (Duration, u64);

impl ManualClock {
    /// Creates a clock with this wall time. Its monotonic time starts at zero.
    pub fn new(now: Timestamp) -> Self {
        let time = Time {
            set: (now, Duration::ZERO),
            monotonic: Duration::ZERO,
            sleepers: BTreeMap::new(),
            slept: 0,
            watchers: Vec::new(),
        };
        Self { time: Arc::new(Mutex::new(time)) }
    }

    /// Advances both times. Wakes the sleepers whose time has come, in the order of their times.
    pub fn advance(&self, by: Duration) {
        let woken = {
            let mut time = self.lock();
            let monotonic = time.monotonic.saturating_add(by);
            time.advance_to(monotonic)
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Advances to the time at which the next sleeper wakes. Returns how far the clock advanced; `None` if no caller sleeps.
    ///
    /// Returns zero if a sleeper's time has already come but its task has not run yet.
    pub fn advance_to_next_sleeper(&self) -> Option<Duration> {
        let (by, woken) = {
            let mut time = self.lock();
            let (next, _) = *time.sleepers.first_key_value()?.0;
            let by = next.saturating_sub(time.monotonic);
            let monotonic = next.max(time.monotonic);
            (by, time.advance_to(monotonic))
        };
        woken.into_iter().for_each(Waker::wake);
        Some(by)
    }

    /// Sets the wall time, forward or backward, like an operator or a time server. The monotonic time does not change.
    pub fn set_now(&self, now: Timestamp) {
        let mut time = self.lock();
        time.set = (now, time.monotonic);
    }

    /// Returns the number of sleepers: futures of [`Clock::sleep`] that are neither finished nor dropped.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// Waits until there are at least `count` sleepers. Await it before you advance the clock, so that no caller starts its sleep too late.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn until_sleepers(&self, count: usize) {
        poll_fn(|cx| {
            let mut time = self.lock();
            if time.sleepers.len() >= count {
                return Poll::Ready(());
            }
            time.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Time> {
        // No code panics while it holds the lock. A poisoned clock would only hide the first failure of a test.
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    /// Creates a clock at 2001-09-09 01:46:40 UTC, which is 1,000,000,000 s after the Unix epoch. This time is easy to distinguish from the
    /// present.
    fn default() -> Self {
        Self::new(Timestamp::from_unix_ms(1_000_000_000_000))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.lock();
        f.debug_struct("ManualClock")
            .field("now", &time.wall())
            .field("monotonic", &time.monotonic)
            .field("sleepers", &time.sleepers.len())
            .finish()
    }
}

impl Time {
    fn wall(&self) -> Timestamp {
        // Add the total only once: each step could lose a part of a millisecond.
        let (wall, since) = self.set;
        wall.plus(self.monotonic.saturating_sub(since))
    }

    /// Advances the time. Returns the tasks to wake. The caller wakes them after it has released the lock, because they may read the clock.
    fn advance_to(&mut self, monotonic: Duration) -> Vec<Waker> {
        self.monotonic = monotonic;
        self.sleepers.range_mut(..=(monotonic, u64::MAX)).filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().wall()
    }

    fn monotonic(&self) -> Duration {
        self.lock().monotonic
    }

    /// Returns a future that resolves once the clock has advanced by `duration`, rounded up to a whole millisecond. The time counts from this call,
    /// even if the future is not polled yet.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (key, watchers) = {
            let mut time = self.lock();
            time.slept += 1;
            let key = (whole_ms(time.monotonic.saturating_add(duration)), time.slept);
            time.sleepers.insert(key, None);
            (key, std::mem::take(&mut time.watchers))
        };
        watchers.into_iter().for_each(Waker::wake);
        Box::pin(Sleep { clock: self.clone(), key })
    }
}

/// Rounds up to a whole millisecond.
fn whole_ms(time: Duration) -> Duration {
    let beyond = time.subsec_nanos() % 1_000_000;
    match beyond {
        0 => time,
        _ => time.saturating_add(Duration::from_nanos(u64::from(1_000_000 - beyond))),
    }
}

/// A sleeper. It counts until its sleep ends or it is dropped.
struct Sleep {
    clock: ManualClock,
    key: Key,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut time = self.clock.lock();
        if time.monotonic >= self.key.0 {
            time.sleepers.remove(&self.key);
            return Poll::Ready(());
        }
        time.sleepers.insert(self.key, Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(future: &mut Pin<Box<dyn Future<Output = ()> + Send>>) -> Poll<()> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn sleeper_wakes_exactly_at_its_time() {
        let clock = ManualClock::default();
        let mut sleep = clock.sleep(Duration::from_millis(10));
        clock.advance(Duration::from_millis(9));
        assert_eq!(poll(&mut sleep), Poll::Pending);
        clock.advance(Duration::from_millis(1));
        assert_eq!(poll(&mut sleep), Poll::Ready(()));
        assert_eq!(clock.sleepers(), 0);
    }

    #[test]
    fn a_dropped_sleeper_is_forgotten() {
        let clock = ManualClock::default();
        drop(clock.sleep(Duration::from_millis(10)));
        assert_eq!(clock.advance_to_next_sleeper(), None);
    }

    #[test]
    fn next_sleeper_wakes_first() {
        let clock = ManualClock::default();
        let (_late, mut early) = (clock.sleep(Duration::from_secs(9)), clock.sleep(Duration::from_secs(2)));
        assert_eq!(clock.advance_to_next_sleeper(), Some(Duration::from_secs(2)));
        assert_eq!(poll(&mut early), Poll::Ready(()));
        assert_eq!(clock.advance_to_next_sleeper(), Some(Duration::from_secs(7)));
        assert_eq!(clock.advance_to_next_sleeper(), Some(Duration::ZERO));
    }

    /// The wall time keeps the fractions of a millisecond of all steps. So it stays in step with the monotonic time, and a tick at the end of a step
    /// fires.
    #[test]
    fn wall_keeps_step_with_monotonic() {
        for seed in 1..=200_u64 {
            let mut chance = seed;
            let mut below = |limit: u64| {
                // Xorshift64.
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                chance % limit
            };
            let clock = ManualClock::new(Timestamp::from_unix_ms(7));
            let mut set = (7, Duration::ZERO);
            for _ in 0..60 {
                let step = Duration::from_nanos(below(2_000_000_000));
                if below(2) == 0 {
                    let _sleep = clock.sleep(step);
                    let by = clock.advance_to_next_sleeper().unwrap();
                    assert!(by >= step && by - step < Duration::from_millis(1), "seed {seed}");
                    assert_eq!(clock.monotonic().subsec_nanos() % 1_000_000, 0, "seed {seed}");
                } else {
                    clock.advance(step);
                }
                if below(10) == 0 {
                    let now = i64::try_from(below(1 << 40)).unwrap();
                    clock.set_now(Timestamp::from_unix_ms(now));
                    set = (now, clock.monotonic());
                }
                let passed = i64::try_from((clock.monotonic() - set.1).as_millis()).unwrap();
                assert_eq!(clock.now().unix_ms(), set.0 + passed, "seed {seed}");
            }
        }
    }

    #[test]
    fn wall_time_may_jump_monotonic_time_does_not() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(5_000));
        clock.advance(Duration::from_secs(1));
        clock.set_now(Timestamp::from_unix_ms(100));
        assert_eq!(clock.monotonic(), Duration::from_secs(1));
        clock.advance(Duration::from_secs(1));
        assert_eq!((clock.now().unix_ms(), clock.monotonic()), (1_100, Duration::from_secs(2)));
    }

    #[tokio::test]
    async fn a_test_can_wait_until_somebody_sleeps() {
        let clock = ManualClock::default();
        let sleeper = clock.clone();
        let both = async {
            tokio::task::yield_now().await;
            sleeper.sleep(Duration::from_secs(1)).await;
        };
        let test = async {
            clock.until_sleepers(1).await;
            clock.advance(Duration::from_secs(1));
        };
        tokio::join!(both, test);
    }
}
