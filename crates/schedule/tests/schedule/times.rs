//! Ticks compared with a separate calculation, for every quarter of an hour of a year, on time zones whose changes are listed here.

use std::sync::OnceLock;

use ferrata_core::{ErrorKind, Timestamp};
use ferrata_schedule::Times;
use proptest::prelude::*;

use crate::support::{day, minute_of_2026, text};

const QUARTERS: i64 = 365 * 96;

/// The clock of a zone in 2026: its offset in minutes, and the two minutes of the year at which the offset changes, with the new offsets.
struct Zone {
    name: &'static str,
    standard: i64,
    changes: [(i64, i64); 2],
}

/// A UTC time in minutes since the start of the year. Days count from 0.
const fn at(day: i64, hour: i64, minute: i64) -> i64 {
    (day * 24 + hour) * 60 + minute
}

const ZONES: [Zone; 6] = [
    Zone { name: "UTC", standard: 0, changes: [(0, 0), (0, 0)] },
    // 29 March and 25 October, 01:00 UTC.
    Zone { name: "Europe/Zurich", standard: 60, changes: [(at(87, 1, 0), 120), (at(297, 1, 0), 60)] },
    // 8 March 07:00 UTC and 1 November 06:00 UTC.
    Zone { name: "America/New_York", standard: -300, changes: [(at(66, 7, 0), -240), (at(304, 6, 0), -300)] },
    // Shifts by half an hour in the southern summer: 4 April 15:00 UTC and 3 October 15:30 UTC.
    Zone {
        name: "Australia/Lord_Howe",
        standard: 660,
        changes: [(at(93, 15, 0), 630), (at(275, 15, 30), 660)],
    },
    Zone { name: "Asia/Kolkata", standard: 330, changes: [(0, 330), (0, 330)] },
    // 29 March and 25 October, 01:00 UTC. The gap is the last hour of a Saturday, and so is the repeated hour.
    Zone { name: "America/Nuuk", standard: -120, changes: [(at(87, 1, 0), -60), (at(297, 1, 0), -120)] },
];

impl Zone {
    fn ahead(&self, minute: i64) -> i64 {
        self.changes
            .iter()
            .rev()
            .find(|(from, _)| *from > 0 && *from <= minute)
            .map_or(self.standard, |(_, is)| *is)
    }
}

/// A pattern: whether its times are fixed, and its minutes of the day, days of the week (Sunday is 0) and days of the year.
struct Pattern {
    cron: &'static str,
    is_fixed: bool,
    minutes: fn(i64) -> bool,
    day: fn(i64, i64) -> bool,
}

const PATTERNS: [Pattern; 9] = [
    Pattern { cron: "0 3 * * *", is_fixed: true, minutes: |m| m == 180, day: |_, _| true },
    Pattern { cron: "30 2 * * *", is_fixed: true, minutes: |m| m == 150, day: |_, _| true },
    Pattern { cron: "15 2 * * 0", is_fixed: true, minutes: |m| m == 135, day: |weekday, _| weekday == 0 },
    Pattern {
        cron: "30 23 * * SAT",
        is_fixed: true,
        minutes: |m| m == 23 * 60 + 30,
        day: |weekday, _| weekday == 6,
    },
    // The date of the last day of March before a gap at midnight in Nuuk.
    Pattern { cron: "45 23 28 3 *", is_fixed: true, minutes: |m| m == 23 * 60 + 45, day: |_, day| day == 86 },
    Pattern {
        cron: "0,45 1,2 * * *",
        is_fixed: false,
        minutes: |m| [60, 105, 120, 165].contains(&m),
        day: |_, _| true,
    },
    Pattern { cron: "*/15 * * * *", is_fixed: false, minutes: |_| true, day: |_, _| true },
    Pattern {
        cron: "30 * * * MON-FRI",
        is_fixed: false,
        minutes: |m| m % 60 == 30,
        day: |weekday, _| (1..6).contains(&weekday),
    },
    Pattern {
        cron: "0 */2 1 JAN *",
        is_fixed: false,
        minutes: |m| m % 120 == 0,
        day: |_, day| day == 0 || day == 365,
    },
];

/// Checks every quarter of an hour of the year.
fn expected(zone: &Zone, pattern: &Pattern) -> Vec<Timestamp> {
    let mut found = Vec::new();
    let shows = |local: i64| {
        let (day, minute) = (local.div_euclid(1_440), local.rem_euclid(1_440));
        // January 1, 2026 is a Thursday.
        (pattern.minutes)(minute) && (pattern.day)((day + 4).rem_euclid(7), day)
    };
    for quarter in 0..QUARTERS {
        let now = quarter * 15;
        let (ahead, before) = (zone.ahead(now), zone.ahead(now - 15));
        let local = now + ahead;
        let ticks = match (pattern.is_fixed, ahead > before) {
            // A time within the gap fires at the first moment after the gap.
            (true, true) => (0..=ahead - before).step_by(15).any(|back| shows(local - back)),
            // A time in the repeated hour has fired already.
            (true, false) => {
                shows(local) && !(1..=96).any(|ago| local == now - ago * 15 + zone.ahead(now - ago * 15))
            }
            (false, _) => shows(local),
        };
        if ticks {
            found.push(minute_of_2026(now));
        }
    }
    found
}

/// Guarantees: SCHEDULE-3.
#[test]
fn year_of_ticks_matches_quarter_by_quarter_enumeration() {
    for zone in &ZONES {
        for pattern in &PATTERNS {
            let times = Times::new(pattern.cron, zone.name).unwrap();
            let before = Timestamp::from_unix_ms(day(0).unix_ms() - 1);
            let found: Vec<_> = times.iter(before).take_while(|tick| *tick < day(365)).collect();
            let wanted = expected(zone, pattern);
            let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
            assert_eq!(differs.map(|(a, b)| (text(*a), text(*b))), None, "{} in {}", pattern.cron, zone.name);
            assert_eq!(found.len(), wanted.len(), "{} in {}", pattern.cron, zone.name);
        }
    }
}

/// The expected ticks of the pattern whose time is skipped or repeated at most changes.
fn walks() -> &'static [Vec<Timestamp>] {
    static WALKS: OnceLock<Vec<Vec<Timestamp>>> = OnceLock::new();
    WALKS.get_or_init(|| ZONES.iter().map(|zone| expected(zone, &PATTERNS[1])).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any moment, the previous and next ticks equal those of the walk.
    ///
    /// Guarantees: SCHEDULE-3.
    #[test]
    fn neighbors_of_any_moment_match_enumeration(at_zone in 0..ZONES.len(), ms in 0..365 * 86_400_000_i64, near: bool) {
        // Most zones change their clocks at 02:30.
        let (zone, pattern) = (&ZONES[at_zone], &PATTERNS[1]);
        let change = zone.changes[(ms % 2) as usize].0.max(1_440) * 60_000;
        let ms = if near { change - 86_400_000 + ms % (2 * 86_400_000) } else { ms };
        let moment = Timestamp::from_unix_ms(day(0).unix_ms() + ms.clamp(3 * 86_400_000, 362 * 86_400_000));
        let (times, walk) = (Times::new(pattern.cron, zone.name).unwrap(), &walks()[at_zone]);
        let next = walk.iter().copied().find(|tick| *tick > moment);
        let last = walk.iter().copied().rev().find(|tick| *tick <= moment);
        prop_assert_eq!(times.after(moment), next, "after {} in {}", moment, zone.name);
        prop_assert_eq!(times.until(moment), last, "until {} in {}", moment, zone.name);
    }
}

/// Minute jobs run during the repeated hour, and the previous tick is correct (Sidekiq).
///
/// Guarantees: SCHEDULE-3.
#[test]
fn minute_schedule_ticks_through_both_clock_changes() {
    // The changes of 2025, in seconds.
    let changes: [(&str, [i64; 2]); 4] = [
        ("America/Los_Angeles", [1_741_514_400, 1_762_074_000]),
        ("Europe/Zurich", [1_743_296_400, 1_761_440_400]),
        ("Australia/Lord_Howe", [1_743_865_200, 1_759_591_800]),
        ("Africa/Cairo", [1_745_532_000, 1_761_858_000]),
    ];
    for (zone, changes) in changes {
        let times = Times::new("* * * * *", zone).unwrap();
        for change in changes {
            let mut before = Timestamp::from_unix_ms((change - 4 * 3_600) * 1_000);
            for _ in 0..8 * 60 {
                let next = times.after(before).unwrap();
                assert_eq!(next.since(before).as_secs(), 60, "{zone}: {before} and {next}");
                assert_eq!(times.until(next), Some(next), "{zone}");
                before = next;
            }
        }
    }
}

/// If a gap skips midnight, that day still has its tick. If midnight is repeated, the day has one tick.
///
/// Guarantees: SCHEDULE-3.
#[test]
fn daily_midnight_ticks_despite_midnight_clock_change() {
    for zone in ["America/Santiago", "Asia/Beirut", "Africa/Cairo", "America/Havana"] {
        let times = Times::new("0 0 * * *", zone).unwrap();
        // From 2022 on, because later rules may differ.
        let mut before = times.after(Timestamp::from_unix_ms(1_640_995_200_000)).unwrap();
        let (mut short, mut long) = (0, 0);
        for _ in 0..730 {
            let next = times.after(before).unwrap();
            match next.since(before).as_secs() / 3_600 {
                24 => {}
                23 => short += 1,
                25 => long += 1,
                hours => panic!("{zone}: {before} and {next}, {hours} hours"),
            }
            before = next;
        }
        assert!(short >= 1 && long >= 1, "{zone}: {short} short and {long} long days");
    }
}

/// A tick in the gap fires at the first moment of the next day, even if that day does not match the pattern.
///
/// Guarantees: SCHEDULE-3.
#[test]
fn gap_at_midnight_moves_tick_to_next_day() {
    let of = |cron, zone, from: &str, wanted: &str| {
        let moment =
            |text: &str| Timestamp::from_unix_ms(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let (from, wanted) = (moment(from), moment(wanted));
        let times = Times::new(cron, zone).unwrap();
        assert_eq!(times.after(from), Some(wanted), "{cron} in {zone}");
        assert_eq!(times.until(wanted), Some(wanted), "{cron} in {zone}");
        // The next and previous ticks are as for any other tick.
        let next = times.after(wanted).unwrap();
        assert!(next > wanted, "{cron} in {zone}: {next}");
        assert_eq!(
            times.until(Timestamp::from_unix_ms(next.unix_ms() - 1)),
            Some(wanted),
            "{cron} in {zone}"
        );
    };
    of("30 23 * * SAT", "America/Nuuk", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z");
    of("30 23 28 3 *", "America/Nuuk", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z");
    // The gap is the whole of December 30, 2011: its tick and that of the next midnight are the same moment.
    of("0 12 30 * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-30T10:00:00Z");
    of("0 0 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-30T10:00:00Z");
}

/// Guarantees: SCHEDULE-4.
#[test]
fn patterns_and_zones_that_are_none_are_refused() {
    for (cron, zone) in [
        ("", "UTC"),
        ("60 * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 0 * * * * 2030", "UTC"),
        ("0 3 * * *", "Europe/Zürich"),
        ("0 3 * * *", "Europe/Atlantis"),
        ("0 3 * * *", ""),
        ("\u{0}", "UTC"),
    ] {
        let error = Times::new(cron, zone).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{cron:?} in {zone:?}");
    }
    assert!(Times::new("*/10 * * * * *", "UTC").is_ok(), "six fields start with seconds");
    assert!(Times::new("@daily", "UTC").is_ok());
    // The limits of a timestamp work like any other moment.
    let times = Times::new("0 3 * * *", "Europe/Zurich").unwrap();
    assert_eq!(times.after(Timestamp::from_unix_ms(i64::MAX)), None);
    assert_eq!(times.until(Timestamp::from_unix_ms(i64::MIN)), None);
}
