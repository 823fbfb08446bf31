//! Polls the listings of the store for runs that changed without a notice.

use std::sync::atomic::Ordering;

use super::super::positions::START;
use super::super::store_poll::{PollScope, StorePoll};
use super::RunsWatch;
use crate::error::Result;

/// The factor by which polls for changed runs are rarer than polls of a single watched log, if the store sends no notices.
const RARER: u32 = 5;

impl RunsWatch {
    pub(super) fn begin_poll(&mut self) {
        let (walk, since) = match self.positions.caught_up_to() {
            Some(behind) => (PollScope::All, behind),
            None if self.polls.knows_all => (PollScope::Open, START),
            None => (PollScope::All, START),
        };
        self.polls.begin(StorePoll::new(&self.shared, &self.query, walk, since));
    }

    /// Compares the next listed runs, or lists more.
    pub(super) async fn continue_poll(&mut self) -> Result<()> {
        self.positions.pass();
        while self.pending.is_empty()
            && let Some(look) = &mut self.polls.current
        {
            let Some(head) = look.page.front().cloned() else {
                match look.is_listed {
                    true => self.end_walk(),
                    false => look.list(&self.shared).await?,
                }
                continue;
            };
            let is_due = match self.positions.is_to_be_compared(&head) {
                Some(is_due) => is_due,
                None => {
                    look.end();
                    continue;
                }
            };
            if is_due {
                self.compare(&head).await?;
            }
            if let Some(look) = &mut self.polls.current {
                look.page.pop_front();
            }
            if is_due {
                self.positions.begin_to_pass(&head);
            }
        }
        Ok(())
    }

    fn end_walk(&mut self) {
        let Some(look) = self.polls.current.take() else { return };
        if self.positions.is_catching_up() {
            return self.positions.end_catch_up(self.shared.clock.now());
        }
        if look.walk == PollScope::Open {
            // Runs missing from the listing have ended, or are gone.
            self.pending.extend(self.positions.not_listed(self.polls.round));
            let since = self.positions.settled_until(self.positions.delivered_until);
            self.polls.current = Some(look.followed_by(&self.shared, &self.query, PollScope::Recent, since));
            return;
        }
        self.positions.mark_delivered(look.began);
        let (now, pause) = (self.shared.clock.monotonic(), self.shared.watch_pause());
        let pause = if self.shared.has_notices.load(Ordering::Relaxed) { pause } else { pause * RARER };
        self.polls.end(now, look.spent, pause);
    }
}
