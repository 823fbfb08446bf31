//! The progress of a schedule, and its decisions on ticks that come due. This module performs no I/O and reads no clock, so a model can check it.

use std::collections::VecDeque;
use std::fmt;

use ferrata_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::definition::ScheduleDefinition;
use crate::policy::{CatchUp, MOST, Overlap};
use crate::times::Times;

/// Maximum number of latest results in the progress.
const RECENT: usize = 16;

/// The progress of a schedule: the ticks that wait, the counts of past ticks, and the latest results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleProgress {
    /// The time up to which the schedule has decided on all ticks; `None` before the first decision.
    pub decided: Option<Timestamp>,
    /// The ticks whose runs are to start, one after the other.
    pub due: VecDeque<Timestamp>,
    /// The number of runs that were started.
    pub started: u64,
    /// The number of ticks that were skipped, because the run of an earlier tick was active.
    pub skipped: u64,
    /// The number of ticks that were missed, because no process served the schedule in time. If more than 1,000 ticks are missed at once, 1,000 are
    /// counted.
    pub missed: u64,
    /// The results of the latest ticks, oldest first.
    pub recent: VecDeque<TickResult>,
    /// The number of logs of the schedule before this log.
    pub(crate) generation: u32,
    /// The number of ticks in this log.
    pub(crate) ticks: u32,
}

/// The period in which a run was active.
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
    /// The way in which the tick ended.
    pub end: TickEnd,
    /// The number of successive ticks with the same end. `tick` is the last of them.
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

/// The way in which a tick ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TickEnd {
    /// The tick's run was started, and the schedule does not wait for its end.
    Started,
    /// The tick's run completed.
    Completed,
    /// The tick's run failed.
    Failed,
    /// The tick's run was cancelled.
    Cancelled,
    /// The run was purged before the schedule recorded its end.
    Purged,
    /// The tick's run was cancelled because the next tick came.
    Overtaken,
    /// The tick's run could not be started, for this reason.
    Refused(String),
    /// The tick was skipped, because the run of an earlier tick was active.
    Skipped,
    /// The tick was missed, because no process served the schedule in time.
    Missed,
}

/// Writes the result in a few words, for example `skipped, the last of 3`.
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

impl ScheduleProgress {
    /// Decides on the ticks that are due at `now`, and adds the ticks that start runs to `due`. `planned` counts as due even if the clock was set
    /// back.
    pub(crate) fn add_due(
        &mut self,
        definition: &ScheduleDefinition,
        times: &Times,
        planned: Timestamp,
        now: Timestamp,
    ) {
        let now = now.max(definition.start_of(planned));
        let (late, mut in_time) = self.take_ticks(definition, times, now, now);
        let mut starting = self.catch_up(definition, late, in_time.is_empty());
        starting.append(&mut in_time);
        // If the jitter is longer than the time between two ticks, an earlier tick may start later. Then the earlier tick may be in time and the
        // later tick late.
        starting.sort_unstable();
        if definition.overlap == Overlap::CancelOld {
            // The next tick would cancel each of these runs before it begins.
            let missed = Vec::from_iter(starting.drain(..starting.len().saturating_sub(1)));
            self.mark_missed(&missed);
        }
        self.due.extend(starting);
    }

    /// Records the result of the first due tick's run, and decides on the ticks that came until the run ended.
    pub(crate) fn record_end(
        &mut self,
        definition: &ScheduleDefinition,
        times: &Times,
        end: TickEnd,
        span: RunSpan,
    ) {
        let Some(tick) = self.due.pop_front() else { return };
        self.ticks = self.ticks.saturating_add(1);
        if !matches!(end, TickEnd::Refused(_)) {
            self.started += 1;
        }
        self.record_tick(TickResult { tick, end, count: 1 });
        self.decide_during(definition, times, span);
    }

    /// Returns the progress as it would be recorded if the active run of the first due tick ended now: the run counts as started, and later ticks are
    /// decided.
    ///
    /// No decision on a tick depends on a later tick. So [`record_end`](Self::record_end) later makes the same decisions.
    pub(crate) fn with_active_run(
        &self,
        definition: &ScheduleDefinition,
        times: &Times,
        span: RunSpan,
    ) -> Self {
        let mut progress = self.clone();
        if progress.due.pop_front().is_some() {
            progress.started += 1;
            progress.decide_during(definition, times, span);
        }
        progress
    }

    /// Decides on the ticks that came before a late run began, and on the ticks that came while it was active.
    fn decide_during(&mut self, definition: &ScheduleDefinition, times: &Times, span: RunSpan) {
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

    /// Returns the late ticks that start runs, according to the catch-up policy. The other late ticks count as missed.
    fn catch_up(
        &mut self,
        definition: &ScheduleDefinition,
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

    /// Returns the ticks whose runs should have started by `until`: first the ticks that are late at `now`, then the others. Each list is oldest
    /// first. Together they have at most the last [`MOST`] ticks.
    fn take_ticks(
        &mut self,
        definition: &ScheduleDefinition,
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
