//! Polls a run that does not change less often, if its store sends no notices. So a page that stays open overnight costs the store little.

use std::time::Duration;

use ferrata_core::runtime::{Runtime, SseFrames};
use ferrata_core::{Clock as _, RecordId, RunKey, SystemClock, within};

/// Time after a change during which the run is polled frequently.
const CLOSELY: Duration = Duration::from_secs(10);

/// Time between two polls of the head, once the run is polled less often.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Number of polls after which a stream sends a comment, because proxies close connections without data.
const ALIVE: u32 = 10;

/// The polling state of a run.
pub(super) struct RunPoller {
    runtime: Runtime,
    run: RunKey,
    clock: SystemClock,
    /// Whether the store sends notices. If so, no polling is needed.
    is_told: bool,
    /// The head that was read before the frequent polling. The stream has already sent the records after it.
    seen: Option<RecordId>,
    /// Whether the run has not changed for the time of frequent polling.
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

    /// Waits for the next frame; `None` after the last frame, and after an error.
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

    /// Reads the head; `None` if the run no longer exists, or the store does not answer.
    async fn head(&self) -> Option<RecordId> {
        self.runtime.head(&self.run).await.ok().flatten().map(|head| head.id)
    }
}
