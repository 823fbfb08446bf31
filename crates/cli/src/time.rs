//! Formats times and durations for people and programs, and parses durations.

use std::time::Duration;

use clap::ValueEnum;
use ferrata::Timestamp;

/// The format of times in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeFormat {
    /// Relative to now, such as `5m ago` or `in 2h`.
    #[default]
    Relative,
    /// As a date and time of UTC.
    Iso,
    /// As milliseconds since 1970.
    Unix,
}

impl TimeFormat {
    /// Formats a time relative to `now`.
    pub(crate) fn write(self, at: Timestamp, now: Timestamp) -> String {
        match self {
            Self::Relative if at > now => format!("in {}", short(at.since(now))),
            Self::Relative => format!("{} ago", short(now.since(at))),
            Self::Iso => at.to_string(),
            Self::Unix => at.unix_ms().to_string(),
        }
    }
}

pub(crate) use ferrata_core::wording::duration as short;

/// Parses a duration: numbers with the units `ms`, `s`, `m`, `h`, `d` or `w`, such as `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{}` is not a duration; write it as 90s, 15m, 2h30m or 30d", text.escape_debug());
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let after = &rest[digits..];
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let ms: u64 = match &after[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(ms).map(Duration::from_millis).ok_or_else(bad)?;
        sum = sum.checked_add(part).ok_or_else(bad)?;
        rest = &after[letters..];
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_and_written() {
        for (text, ms, shown) in [
            ("250ms", 250, "250ms"),
            ("9s", 9_000, "9.0s"),
            ("90s", 90_000, "1m30s"),
            ("2h30m", 9_000_000, "2h30m"),
            ("1w", 604_800_000, "7d00h"),
        ] {
            assert_eq!(parse(text).map(|d| d.as_millis()), Ok(ms), "{text}");
            assert_eq!(short(parse(text).unwrap_or_default()), shown);
        }
        for text in ["", "s", "5", "5x", "-1s", "99999999999999999999s", "1d 2h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_shown_from_now() {
        let now = Timestamp::from_unix_ms(100_000);
        assert_eq!(TimeFormat::Relative.write(Timestamp::from_unix_ms(40_000), now), "1m00s ago");
        assert_eq!(TimeFormat::Relative.write(Timestamp::from_unix_ms(112_000), now), "in 12s");
        assert_eq!(TimeFormat::Unix.write(now, now), "100000");
        assert_eq!(TimeFormat::Iso.write(now, now), "1970-01-01T00:01:40.000Z");
    }
}
