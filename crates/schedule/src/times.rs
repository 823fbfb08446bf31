//! The ticks of a schedule: a cron pattern that is applied in a time zone.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction, JobType};
use ferrata_core::{Error, ErrorKind, Result, Timestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{ToSpan, Zoned};

/// The ticks of a cron pattern in a time zone.
///
/// A pattern has five fields: minute, hour, day of the month, month, day of the week. A pattern may have a sixth field for seconds before the minute.
/// A pattern may also be `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`. The zone is a name of the IANA database. The program contains the
/// edition of the database that was current at its build.
///
/// # Clock changes
///
/// | | fixed times, as in `30 2 * * *` | others, as in `*/15 * * * *` |
/// |---|---|---|
/// | the clock is put forward over a tick | at the first moment after the gap, whatever day that is | no tick: the clock does not show that time |
/// | the clock is put back over a tick | once, the first time that the clock shows it | both times |
///
/// A time is fixed if seconds, minute and hour are one number each. `0 2,14 * * *` is not fixed. Use two schedules instead, or choose hours at which
/// no clock is changed.
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
#[doc(hidden)]
pub struct Times {
    cron: Cron,
    zone: TimeZone,
}

impl Times {
    /// Parses a cron pattern and finds a time zone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the pattern is malformed, if no day matches it (such as the 30th of February), or if the zone is unknown.
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

    /// Returns the first tick after a time; `None` after the end of the calendar.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        self.find(moment, false, Direction::Forward)
    }

    /// Returns the last tick at a time or before it.
    pub fn until(&self, moment: Timestamp) -> Option<Timestamp> {
        self.find(moment, true, Direction::Backward)
    }

    /// Returns an iterator over the ticks after a time.
    pub fn iter(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        std::iter::successors(self.after(after), |last| self.after(*last))
    }

    fn find(&self, moment: Timestamp, inclusive: bool, direction: Direction) -> Option<Timestamp> {
        // Ticks are at whole seconds, so the fraction of a second does not matter.
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

    /// Finds the first tick of a fixed time after `moment`, or the last tick until `moment`. The search counts days on a clock without changes,
    /// because the moment after a gap may be on a day that the pattern does not match.
    fn find_fixed(&self, moment: jiff::Timestamp, direction: Direction) -> Option<jiff::Timestamp> {
        let shown = self.zone.to_datetime(moment);
        let mut at = match direction {
            Direction::Forward => shown,
            // If the clock was put back, it has already shown times later than this one, but at most one day later.
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

    /// Returns the first moment at which the clock shows this time or a later time.
    fn first_at(&self, shown: DateTime) -> Option<jiff::Timestamp> {
        let found = self.zone.to_ambiguous_timestamp(shown);
        // For a time in a gap, this is a moment before the gap.
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

/// Formats the time of a tick for the id of its run: `2026-11-23T02:00:00Z`.
pub(crate) fn name_of(tick: Timestamp) -> String {
    let text = tick.to_string();
    match text.strip_suffix(".000Z") {
        Some(seconds) => format!("{seconds}Z"),
        None => text,
    }
}
