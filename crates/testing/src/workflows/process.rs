//! A process of a test world that a test can kill at any write.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ferrata_core::runtime::Runtime;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, Result, RunKey, Seq, Timestamp};

use super::world::{TTL, World};
use crate::{Fault, FaultStore, ManualClock};

/// A process of a [`World`]: a [`Runtime`] with its own connection to the store, which can fail at any write.
pub struct Process {
    runtime: Runtime,
    line: Line,
    world: World,
    clock: Arc<dyn Clock>,
}

/// The connection of a process to the store. It can inject faults.
type Line = Arc<FaultStore<Arc<dyn CheckpointStore>>>;

impl Process {
    pub(super) fn new(runtime: Runtime, line: Line, world: World) -> Self {
        let clock = Arc::new(world.clock().clone());
        Self { runtime, line, world, clock }
    }

    /// Returns the clock of the world. The world counts a sleep on this clock as a wait of the test, not of a process.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the number of writes that this process has started: appends, prunes and purges.
    pub fn writes(&self) -> u64 {
        self.line.operations()
    }

    /// Makes the `n`-th write from now fail, where 0 is the next write.
    pub fn fail_write(&self, n: u64, fault: Fault) {
        self.line.plan(self.line.operations().saturating_add(n), fault);
    }

    /// Returns whether a [fault](Fault) has crashed the process.
    pub fn is_crashed(&self) -> bool {
        self.line.is_crashed()
    }

    /// Kills the process at once: no further write reaches the store, running nodes are dropped, and the process notifies no one. Its heartbeat
    /// then expires, so another process that serves or resumes its runs continues them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the process is dead from the first poll.
    pub async fn crash(self) {
        self.line.crash();
        // Ignore the error: the process is dead.
        let _ = self.world.pass(self.runtime.shutdown(Duration::ZERO)).await;
        drop(self.runtime);
        self.world.pass_for(TTL).await;
    }

    /// Returns the events of a run, one per line. Each run of the same test returns the same text, so a test can compare it with a file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Runtime::timeline`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn story(&self, run: &RunKey) -> Result<String> {
        let lines = self.runtime.timeline(run, Seq::new(0)).await?;
        Ok(lines.iter().map(|line| format!("{}\n", line.text)).collect())
    }
}

impl Deref for Process {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// The world's clock as one process uses it. It counts sleepers, to separate waits of the process from waits of the test.
#[derive(Debug)]
pub(super) struct ProcessClock {
    world: Arc<ManualClock>,
    sleepers: Arc<AtomicUsize>,
}

impl ProcessClock {
    pub(super) fn new(world: Arc<ManualClock>) -> Self {
        Self { world, sleepers: Arc::default() }
    }

    pub(super) fn sleepers(&self) -> usize {
        self.sleepers.load(Ordering::Relaxed)
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.world.now()
    }

    fn monotonic(&self) -> Duration {
        self.world.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let sleep = self.world.sleep(duration);
        Box::pin(CountedSleep { sleep: Some(sleep), sleepers: Arc::clone(&self.sleepers) })
    }
}

/// A sleep of a process. It counts until it ends or is dropped.
struct CountedSleep {
    sleep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    sleepers: Arc<AtomicUsize>,
}

impl CountedSleep {
    fn end(&mut self) {
        if self.sleep.take().is_some() {
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Future for CountedSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = self.sleep.as_mut().is_none_or(|sleep| sleep.as_mut().poll(cx).is_ready());
        if !is_over {
            return Poll::Pending;
        }
        self.end();
        Poll::Ready(())
    }
}

impl Drop for CountedSleep {
    fn drop(&mut self) {
        self.end();
    }
}
