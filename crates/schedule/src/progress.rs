//! How far a schedule has come, and what it makes of the ticks that come due. No I/O and no clock: a model can ask the same.

use std::collections::VecDeque;
use std::fmt;

use ferrata_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::policy::{CatchUp, MOST, Overlap};
use crate::times::Times;

/// Number of latest ticks in the progress.
const RECENT: usize = 16;

/// How far a schedule has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// Up to which moment ticks have been decided on; none before the first look.
    pub decided: Option<Timestamp>,
    /// The ticks whose runs are to start one after the other.
    pub due: VecDeque<Timestamp>,
    /// How many runs were started.
    pub started: u64,
    /// How many ticks were skipped because a run went on.
    pub skipped: u64,
    /// How many ticks were missed because no process was there in time. Of more than a thousand at once, a thousand are counted.
    pub missed: u64,
    /// Results of the latest ticks, oldest first.
    pub recent: VecDeque<TickResult>,
    /// How many logs the schedule had before this one.
    pub(crate) generation: u32,
    /// How many ticks this log has.
    pub(crate) ticks: u32,
}

/// From when to when a run went on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RunSpan {
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
}

/// The result of a tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TickResult {
    /// The tick.
    pub tick: Timestamp,
    /// How the tick ended.
    pub end: TickEnd,
    /// How many ticks in a row it was the last of that went the same way.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

/// The end of a tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TickEnd {
    /// Its run was started, and nothing waits for its end.
    Started,
    /// Its run completed.
    Completed,
    /// Its run failed.
    Failed,
    /// Its run was cancelled.
    Cancelled,
    /// The run was purged before the schedule recorded its end.
    Purged,
    /// Its run was cancelled by the next tick.
    Overtaken,
    /// Its run could not be started, for this reason.
    Refused(String),
    /// It was skipped: the run of an earlier tick went on.
    Skipped,
    /// It was missed: no process was there in time.
    Missed,
}

/// In a few words, as in `skipped, the last of 3`.
impl fmt::Display for TickResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            TickEnd::Started => f.write_str("started"),
            TickEnd::Completed => f.write_str("completed"),
            TickEnd::Failed => f.write_str("failed"),
            TickEnd::Cancelled => f.write_str("cancelled"),
            TickEnd::Purged => f.write_str("purged"),
            TickEnd::Overtaken => f.write_str("cancelled by the next tick"),
            TickEnd::Refused(why) => write!(f, "refused: {why}"),
            TickEnd::Skipped => f.write_str("skipped"),
            TickEnd::Missed => f.write_str("missed"),
        }?;
        if self.count > 1 {
            write!(f, ", the last of {}", self.count)?;
        }
        Ok(())
    }
}

impl Progress {
    /// Adds the ticks that are due at `now`, and returns the ticks that start runs. `planned` is due even if the clock was set back.
    pub(crate) fn add_due(
        &mut self,
        definition: &Definition,
        times: &Times,
        planned: Timestamp,
        now: Timestamp,
    ) {
        let now = now.max(definition.start_of(planned));
        let (late, mut in_time) = self.take_ticks(definition, times, now, now);
        let mut starting = self.catch_up(definition, late, in_time.is_empty());
        starting.append(&mut in_time);
        // With a jitter longer than between two ticks, an earlier tick may start later, and be in time where a later one is late.
        starting.sort_unstable();
        if definition.overlap == Overlap::CancelOld {
            // Each would be cancelled by the next before it has begun.
            let missed = Vec::from_iter(starting.drain(..starting.len().saturating_sub(1)));
            self.mark_missed(&missed);
        }
        self.due.extend(starting);
    }

    /// Takes in the result of the run of the first due tick, and the ticks that came until the run ended.
    pub(crate) fn record_end(&mut self, definition: &Definition, times: &Times, end: TickEnd, span: RunSpan) {
        let Some(tick) = self.due.pop_front() else { return };
        self.ticks = self.ticks.saturating_add(1);
        if !matches!(end, TickEnd::Refused(_)) {
            self.started += 1;
        }
        self.record_tick(TickResult { tick, end, count: 1 });
        self.decide_during(definition, times, span);
    }

    /// Returns the progress to record for the time until now, while the run of the first due tick is active: the run counts as started, and later
    /// ticks are decided.
    ///
    /// A decision on a tick depends on no later tick, so what this returns is what [`record_end`](Self::record_end) takes in.
    pub(crate) fn with_active_run(&self, definition: &Definition, times: &Times, span: RunSpan) -> Self {
        let mut progress = self.clone();
        if progress.due.pop_front().is_some() {
            progress.started += 1;
            progress.decide_during(definition, times, span);
        }
        progress
    }

    /// Decides on the ticks that came before a run began, for it was late itself, and while it was active.
    fn decide_during(&mut self, definition: &Definition, times: &Times, span: RunSpan) {
        let room = match definition.overlap {
            Overlap::Skip => 0,
            Overlap::Queue(most) => (most as usize).saturating_sub(self.due.len()),
            Overlap::CancelOld | Overlap::Allow => return,
        };
        let (late, came) = self.take_ticks(definition, times, span.ended, span.began);
        let (queued, skipped) = came.split_at(room.min(came.len()));
        let mut starting = self.catch_up(definition, late, queued.is_empty());
        starting.extend(queued);
        starting.sort_unstable();
        self.due.extend(starting);
        self.skipped += skipped.len() as u64;
        self.record_all(skipped, TickEnd::Skipped);
    }

    /// Returns those of late ticks that start runs; the others are missed.
    fn catch_up(
        &mut self,
        definition: &Definition,
        mut late: Vec<Timestamp>,
        is_alone: bool,
    ) -> Vec<Timestamp> {
        let most = match definition.catch_up {
            CatchUp::None => 0,
            CatchUp::Last => usize::from(is_alone),
            CatchUp::All(most) => most as usize,
        };
        let missed = Vec::from_iter(late.drain(..late.len().saturating_sub(most)));
        self.mark_missed(&missed);
        late
    }

    fn mark_missed(&mut self, missed: &[Timestamp]) {
        self.missed += missed.len() as u64;
        self.record_all(missed, TickEnd::Missed);
    }

    /// Returns the ticks whose runs should have started by `until`, oldest first and at most the last [`MOST`]: first those that are late at `now`,
    /// then the others.
    fn take_ticks(
        &mut self,
        definition: &Definition,
        times: &Times,
        until: Timestamp,
        now: Timestamp,
    ) -> (Vec<Timestamp>, Vec<Timestamp>) {
        let Some(decided) = self.decided else { return Default::default() };
        let has_come = |tick: &Timestamp| definition.start_of(*tick) <= until;
        let mut ticks: Vec<_> = times.iter(decided).take_while(has_come).take(MOST as usize + 1).collect();
        if ticks.len() > MOST as usize {
            // Search backward from the end, so that years of ticks every second need no scan.
            let before = |tick: &Timestamp| times.until(Timestamp::from_unix_ms(tick.unix_ms() - 1));
            let back = std::iter::successors(times.until(until), before).skip_while(|tick| !has_come(tick));
            ticks = back.take(MOST as usize).collect();
            ticks.reverse();
        }
        if let Some(last) = ticks.last() {
            self.decided = Some(*last);
        }
        let is_late = |tick: &Timestamp| now.since(definition.start_of(*tick)) > definition.tolerance();
        ticks.into_iter().partition(is_late)
    }

    fn record_all(&mut self, ticks: &[Timestamp], end: TickEnd) {
        if let Some(&tick) = ticks.last() {
            self.record_tick(TickResult { tick, end, count: ticks.len() as u64 });
        }
    }

    fn record_tick(&mut self, happened: TickResult) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(happened);
    }
}

#[cfg(test)]
mod tests;
