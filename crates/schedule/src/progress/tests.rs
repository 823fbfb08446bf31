//! Tests of decisions on ticks: against a simple model of waiting ticks, and with processes that come and go at random.

use std::time::Duration;

use ferrata_core::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::{RunSpan, ScheduleProgress, TickEnd};
use crate::definition::ScheduleDefinition;
use crate::policy::{CatchUp, Overlap};
use crate::times::Times;

const MINUTE: Duration = Duration::from_secs(60);

fn definition(catch_up: CatchUp, overlap: Overlap, jitter: Duration) -> ScheduleDefinition {
    ScheduleDefinition {
        name: "model".to_owned(),
        version: 1,
        cron: "*/10 * * * *".to_owned(),
        timezone: "UTC".to_owned(),
        jitter_ms: u64::try_from(jitter.as_millis()).unwrap(),
        tolerance_ms: 60_000,
        catch_up,
        overlap,
        workflow: "work".to_owned(),
        input: Value::Null,
    }
}

fn catch_ups() -> impl Strategy<Value = CatchUp> {
    prop_oneof![Just(CatchUp::None), Just(CatchUp::Last), (1..5_u32).prop_map(CatchUp::All)]
}

fn overlaps() -> impl Strategy<Value = Overlap> {
    prop_oneof![
        Just(Overlap::Skip),
        (1..4_u32).prop_map(Overlap::Queue),
        Just(Overlap::CancelOld),
        Just(Overlap::Allow),
    ]
}

/// The simple model: at each tick, there is an active run or not, and space for a waiting tick or not.
fn line(ticks: &[Timestamp], room: usize, runs: &mut impl Iterator<Item = Duration>) -> Vec<Timestamp> {
    let (mut started, mut waiting) = (Vec::new(), Vec::new());
    let mut until = Timestamp::from_unix_ms(-1);
    for tick in ticks {
        while until < *tick && !waiting.is_empty() {
            started.push(waiting.remove(0));
            until = until.plus(runs.next().unwrap());
        }
        if until < *tick {
            started.push(*tick);
            until = tick.plus(runs.next().unwrap());
        } else if waiting.len() < room {
            waiting.push(*tick);
        }
    }
    started
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// While a process serves the schedule, the waiting ticks are those of the simple model.
    #[test]
    fn ticks_overlapping_run_match_plain_queue(
        room in 0..4_u32,
        minutes in prop::collection::vec(0..60_u32, 24),
    ) {
        let overlap = if room == 0 { Overlap::Skip } else { Overlap::Queue(room) };
        let definition = definition(CatchUp::None, overlap, Duration::ZERO);
        let times = definition.times().unwrap();
        let mut progress = ScheduleProgress { decided: Some(Timestamp::from_unix_ms(0)), ..ScheduleProgress::default() };
        let mut now = Timestamp::from_unix_ms(0);
        let mut started = Vec::new();
        for run in &minutes {
            if progress.due.is_empty() {
                let planned = times.after(progress.decided.unwrap()).unwrap();
                now = now.max(planned);
                progress.add_due(&definition, &times, planned, now);
            }
            started.push(progress.due[0]);
            let began = now;
            now = now.plus(MINUTE * *run);
            progress.record_end(&definition, &times, TickEnd::Completed, RunSpan { began, ended: now });
        }
        let ticks: Vec<_> = times.iter(Timestamp::from_unix_ms(0)).take(200).collect();
        let mut runs = minutes.iter().map(|run| MINUTE * *run).chain(std::iter::repeat(Duration::ZERO));
        let wanted = line(&ticks, room as usize, &mut runs);
        prop_assert_eq!(&started[..], &wanted[..started.len()]);
        prop_assert_eq!(progress.missed, 0);
    }

    /// At any time, each tick is started, skipped, missed or due exactly once, and no tick starts after a later tick.
    #[test]
    fn each_tick_is_accounted_for_once(
        catch_up in catch_ups(),
        overlap in overlaps(),
        jitter in 0..30_u32,
        // The delay of the process, the time without a process before the run begins, and the duration of the run.
        hours in prop::collection::vec((0..300_u32, 0..100_u32, 0..100_u32, any::<[bool; 2]>()), 1..20),
    ) {
        let definition = definition(catch_up, overlap, MINUTE * jitter);
        let times = definition.times().unwrap();
        let mut progress = ScheduleProgress { decided: Some(Timestamp::from_unix_ms(0)), ..ScheduleProgress::default() };
        let mut now = Timestamp::from_unix_ms(0);
        let mut started = Vec::new();
        for (away, lost, run, [is_away, is_lost]) in hours {
            if progress.due.is_empty() {
                let planned = times.after(progress.decided.unwrap()).unwrap();
                now = now.max(definition.start_of(planned));
                now = if is_away { now.plus(MINUTE * away) } else { now };
                progress.add_due(&definition, &times, planned, now);
            }
            if let Some(&tick) = progress.due.front() {
                started.push(tick);
                let began = if is_lost { now.plus(MINUTE * lost) } else { now };
                now = began.plus(MINUTE * run);
                progress.record_end(&definition, &times, TickEnd::Completed, RunSpan { began, ended: now });
            }
            let decided = progress.decided.unwrap();
            let all = times.iter(Timestamp::from_unix_ms(0)).take_while(|tick| *tick <= decided).count() as u64;
            let ScheduleProgress { started: begun, skipped, missed, due, .. } = &progress;
            prop_assert_eq!(begun + skipped + missed + due.len() as u64, all, "{:?}", progress);
            prop_assert!(due.iter().is_sorted_by(|a, b| a < b));
            prop_assert!(started.is_sorted_by(|a, b| a < b));
            prop_assert!(due.front().is_none_or(|next| started.last().is_none_or(|last| last < next)));
        }
    }
}

/// If too many ticks come at once to list all of them, the result equals the end of the full list.
#[test]
fn last_of_many_ticks_match_enumeration() {
    let definition = ScheduleDefinition {
        cron: "*/7 * * * * *".to_owned(),
        ..definition(CatchUp::All(1_000), Overlap::Allow, Duration::from_secs(5))
    };
    let times: Times = definition.times().unwrap();
    let from = Timestamp::from_unix_ms(0);
    let mut progress = ScheduleProgress { decided: Some(from), ..ScheduleProgress::default() };
    let now = from.plus(MINUTE * 300);
    progress.add_due(&definition, &times, times.after(from).unwrap(), now);
    let come: Vec<_> = times.iter(from).take_while(|tick| definition.start_of(*tick) <= now).collect();
    assert!(come.len() > 2_000);
    assert_eq!(progress.due.make_contiguous(), &come[come.len() - 1_000..]);
    assert_eq!(progress.decided, come.last().copied());
}
