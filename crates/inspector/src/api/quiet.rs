//! A run in which nothing happens is looked at less often, where its store tells of no changes: a page that is open over night costs little.

use std::time::Duration;

use ferrata_core::runtime::{Runtime, SseFrames};
use ferrata_core::{Clock as _, RecordId, RunKey, SystemClock, within};

/// For how long a run is looked at closely after something has happened to it.
const CLOSELY: Duration = Duration::from_secs(10);

/// How often its head is looked at afterwards.
const PAUSE: Duration = Duration::from_millis(1_500);

/// After how many looks a stream says that it is there: proxies cut off what is silent for long.
const ALIVE: u32 = 10;

/// How closely a run is looked at.
pub(super) struct RunPoller {
    runtime: Runtime,
    run: RunKey,
    clock: SystemClock,
    /// Whether the store tells of changes, so that looking costs nothing.
    is_told: bool,
    /// The head before the run was looked at closely: what came later has been seen since.
    seen: Option<RecordId>,
    /// Whether nothing has happened to it for that long.
    is_quiet: bool,
}

impl RunPoller {
    pub(super) fn new(runtime: &Runtime, run: RunKey) -> Self {
        let is_told = runtime.store().capabilities().notices;
        Self {
            runtime: runtime.clone(),
            run,
            clock: SystemClock::new(),
            is_told,
            seen: None,
            is_quiet: false,
        }
    }

    /// Waits for the next frame; `None` after the last, and if something went wrong.
    pub(super) async fn next(&mut self, frames: &mut SseFrames) -> Option<String> {
        if self.is_told {
            return frames.next().await.ok().flatten();
        }
        loop {
            let seen = match self.seen {
                Some(seen) => seen,
                None => *self.seen.insert(self.head().await?),
            };
            if !self.is_quiet
                && let Some(frame) = within(&self.clock, CLOSELY, frames.next()).await
            {
                return frame.ok().flatten();
            }
            self.is_quiet = true;
            let mut looks = 0;
            let head = loop {
                self.clock.sleep(PAUSE).await;
                let head = self.head().await?;
                looks += 1;
                if head != seen || looks == ALIVE {
                    break head;
                }
            };
            if head == seen {
                return Some(": alive\n\n".to_owned());
            }
            (self.seen, self.is_quiet) = (Some(head), false);
        }
    }

    /// Reads the head; none if there is no such run any more, or the store does not answer.
    async fn head(&self) -> Option<RecordId> {
        self.runtime.head(&self.run).await.ok().flatten().map(|head| head.id)
    }
}
