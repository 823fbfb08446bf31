//! When a schedule ticks: a cron pattern on the clocks of a time zone.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction, JobType};
use ferrata_core::{Error, ErrorKind, Result, Timestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{ToSpan, Zoned};

/// The ticks of a cron pattern in a time zone.
///
/// A pattern has five fields (minute, hour, day of the month, month, day of the week), or six with seconds before them, or is `@hourly`,
/// `@daily`, `@weekly`, `@monthly` or `@yearly`. The zone is a name of the IANA database, in the edition that the program was built with.
///
/// # When a clock is changed
///
/// | | fixed times, as in `30 2 * * *` | others, as in `*/15 * * * *` |
/// |---|---|---|
/// | the clock is put forward over a tick | at the first moment after the gap, whatever day that is | no tick: the clock does not show that time |
/// | the clock is put back over a tick | once, the first time that the clock shows it | both times |
///
/// A time is fixed if seconds, minute and hour are one number each. `0 2,14 * * *` is not: make it two schedules, or choose hours at which no
/// clock is changed.
///
/// # Examples
///
/// ```
/// use ferrata_core::Timestamp;
/// use ferrata_schedule::Times;
///
/// let times = Times::new("30 2 * * *", "Europe/Zurich")?;
/// // 2026-03-28T23:00Z: in the night in which 02:00 is followed by 03:00.
/// let night = Timestamp::from_unix_ms(1_774_738_800_000);
/// assert_eq!(times.after(night).unwrap().to_string(), "2026-03-29T01:00:00.000Z");
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Times {
    cron: Cron,
    zone: TimeZone,
}

impl Times {
    /// Reads a pattern and finds a time zone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the pattern is malformed, no day has its times (the 30th of February), or the zone is unknown.
    pub fn new(cron: &str, timezone: &str) -> Result<Self> {
        let refuse = |message: String| Error::new(ErrorKind::Invalid, message);
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let pattern = parser
            .parse(cron)
            .map_err(|error| refuse(format!("`{}` is not a cron pattern: {error}", cron.escape_debug())))?;
        let zone = TimeZoneDatabase::bundled().get(timezone).map_err(|_| {
            let message = "is not a time zone; use a name such as `Europe/Zurich`, or `UTC`";
            refuse(format!("`{}` {message}", timezone.escape_debug()))
        })?;
        let times = Self { cron: pattern, zone };
        match times.after(Timestamp::from_unix_ms(0)) {
            Some(_) => Ok(times),
            None => Err(refuse(format!(
                "no day has the times of `{}`; correct the cron pattern",
                cron.escape_debug()
            ))),
        }
    }

    /// Returns the first tick after a moment; none behind the end of the calendar.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        self.find(moment, false, Direction::Forward)
    }

    /// Returns the last tick at a moment or before it.
    pub fn until(&self, moment: Timestamp) -> Option<Timestamp> {
        self.find(moment, true, Direction::Backward)
    }

    /// Returns the ticks after a moment, one after the other.
    pub fn iter(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        std::iter::successors(self.after(after), |last| self.after(*last))
    }

    fn find(&self, moment: Timestamp, inclusive: bool, direction: Direction) -> Option<Timestamp> {
        // Ticks are at whole seconds, so the part of one that has begun decides nothing.
        let second = jiff::Timestamp::from_second(moment.unix_ms().div_euclid(1_000)).ok()?;
        let found = if self.cron.determine_job_type() == JobType::FixedTime {
            self.find_fixed(second, direction)?
        } else {
            let zoned = Zoned::new(second, self.zone.clone());
            let found = match direction {
                Direction::Forward => self.cron.find_next_occurrence(&zoned, inclusive),
                Direction::Backward => self.cron.find_previous_occurrence(&zoned, inclusive),
            };
            found.ok()?.timestamp()
        };
        Some(Timestamp::from_unix_ms(found.as_millisecond()))
    }

    /// Finds the first tick after a moment, or the last one until it, of a time that is fixed. The days are counted on a clock that is never
    /// changed: the moment after a gap may be on a day that the pattern does not have.
    fn find_fixed(&self, moment: jiff::Timestamp, direction: Direction) -> Option<jiff::Timestamp> {
        let shown = self.zone.to_datetime(moment);
        let mut at = match direction {
            Direction::Forward => shown,
            // A clock that was put back has shown later times before this one, but no more than a day of them.
            Direction::Backward => shown.saturating_add(1.day()),
        };
        loop {
            at = match direction {
                Direction::Forward => self.cron.find_next_occurrence(&at, false),
                Direction::Backward => self.cron.find_previous_occurrence(&at, false),
            }
            .ok()?;
            let tick = self.first_at(at)?;
            let is_found = match direction {
                Direction::Forward => tick > moment,
                Direction::Backward => tick <= moment,
            };
            if is_found {
                return Some(tick);
            }
        }
    }

    /// Returns the first moment at which the clock shows this time or a later one.
    fn first_at(&self, shown: DateTime) -> Option<jiff::Timestamp> {
        let found = self.zone.to_ambiguous_timestamp(shown);
        // Of a time in a gap that is a moment before the gap.
        let earlier = found.earlier().ok()?;
        let AmbiguousOffset::Gap { after, .. } = found.offset() else { return Some(earlier) };
        let mut changes = self.zone.following(earlier);
        changes.find(|change| change.offset() == after).map(|change| change.timestamp())
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.cron.as_str(), self.zone.iana_name())
    }
}

/// Writes the moment of a tick for the id of its run: `2026-11-23T02:00:00Z`.
pub(crate) fn name_of(tick: Timestamp) -> String {
    let text = tick.to_string();
    match text.strip_suffix(".000Z") {
        Some(seconds) => format!("{seconds}Z"),
        None => text,
    }
}
