//! The values of attributes: the six types of the dialect, and conversions between them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Milliseconds, written as `ms`.
    Milliseconds,
    /// Seconds, written as `s`.
    Seconds,
    /// Minutes, written as `m`.
    Minutes,
    /// Hours, written as `h`.
    Hours,
    /// Days, written as `d`.
    Days,
}

impl Unit {
    /// Parses the suffix of a unit; `None` if it is unknown.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            "d" => Self::Days,
            _ => return None,
        })
    }

    /// Returns the suffix of the unit.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "m",
            Self::Hours => "h",
            Self::Days => "d",
        }
    }

    const fn milliseconds(self) -> u64 {
        match self {
            Self::Milliseconds => 1,
            Self::Seconds => 1_000,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
            Self::Days => 86_400_000,
        }
    }
}

/// A duration as written in a source: a count and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Length {
    count: u64,
    unit: Unit,
}

impl Length {
    /// Creates a duration from a count and a unit; `None` if its number of milliseconds exceeds 64 bits.
    pub const fn new(count: u64, unit: Unit) -> Option<Self> {
        match count.checked_mul(unit.milliseconds()) {
            Some(_) => Some(Self { count, unit }),
            None => None,
        }
    }

    /// Parses a text such as `900s`; `None` if it is not a duration.
    pub fn from_text(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        Self::new(text[..digits].parse().ok()?, Unit::from_suffix(&text[digits..])?)
    }

    /// Returns the length as a [`Duration`].
    pub const fn as_std(self) -> Duration {
        // `new` has checked that the product does not overflow.
        Duration::from_millis(self.count.saturating_mul(self.unit.milliseconds()))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, self.unit.suffix())
    }
}

/// The value of an attribute.
///
/// `Display` writes the value in the form of a source; [`text`](Self::text) returns its content.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A text in quotes.
    String(Arc<str>),
    /// A whole number.
    Integer(i64),
    /// A number with a decimal point. The number is never infinite and never `NaN`.
    Float(f64),
    /// A boolean: `true` or `false`.
    Boolean(bool),
    /// A duration: a count with a unit, such as `15m`.
    Duration(Length),
    /// A word without quotes, such as `LR`.
    Bare(Arc<str>),
}

impl Value {
    /// Creates a text in quotes.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Returns the content of the value, without quotes.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::String(text) | Self::Bare(text) => text.as_ref().into(),
            other => other.to_string().into(),
        }
    }

    /// Returns the text of a text in quotes or a word without quotes; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Bare(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a whole number; `None` if the value is not one. A number in quotes is accepted too.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            // A number without a fraction that is small enough to lose no digit.
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                format!("{number:.0}").parse().ok()
            }
            Self::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns a number of at least 0, which may have a fraction.
    pub(crate) fn as_amount(&self) -> Option<f64> {
        let number = match self {
            Self::Float(number) => Some(*number),
            Self::Integer(_) => self.text().parse().ok(),
            Self::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
    }

    /// Returns a boolean; `None` if the value is not one. `true` and `false` in quotes are accepted too.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(yes) => Some(*yes),
            Self::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns a duration; `None` if the value is not one. A duration in quotes is accepted too, because the examples of the specification contain
    /// `timeout="900s"`. A whole number of at least 1 is a number of seconds, as in other dialects. For 0 the result is `None`, because 0 may mean
    /// immediately or never.
    pub fn as_duration(&self) -> Option<Duration> {
        match self {
            Self::Duration(length) => Some(length.as_std()),
            Self::String(text) => match Length::from_text(text.trim()) {
                Some(length) => Some(length.as_std()),
                None => seconds(text.trim().parse().ok()?),
            },
            Self::Integer(number) => seconds(*number),
            _ => None,
        }
    }
}

fn seconds(count: i64) -> Option<Duration> {
    let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
    Length::new(count, Unit::Seconds).map(Length::as_std)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => {
                f.write_str("\"")?;
                for part in text.split_inclusive(['"', '\\', '\n', '\t']) {
                    let (plain, escaped) = match part.as_bytes().last() {
                        Some(b'"') => (&part[..part.len() - 1], "\\\""),
                        Some(b'\\') => (&part[..part.len() - 1], "\\\\"),
                        Some(b'\n') => (&part[..part.len() - 1], "\\n"),
                        Some(b'\t') => (&part[..part.len() - 1], "\\t"),
                        _ => (part, ""),
                    };
                    f.write_str(plain)?;
                    f.write_str(escaped)?;
                }
                f.write_str("\"")
            }
            Self::Integer(number) => write!(f, "{number}"),
            // Write no exponent, because the dialect has none.
            Self::Float(number) if number.fract() == 0.0 => write!(f, "{number:.1}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Boolean(yes) => write!(f, "{yes}"),
            Self::Duration(length) => write!(f, "{length}"),
            Self::Bare(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_parse_as_their_type() {
        assert_eq!(Value::string("900s").as_duration(), Some(Duration::from_secs(900)));
        assert_eq!(Value::string(" 3 ").as_integer(), Some(3));
        assert_eq!(Value::Float(2.0).as_integer(), Some(2));
        assert_eq!(Value::Float(2.5).as_integer(), None);
        for value in [Value::Integer(600), Value::string("600")] {
            assert_eq!(value.as_duration(), Some(Duration::from_secs(600)), "{value}");
        }
        for value in [Value::Integer(0), Value::Integer(-1), Value::string("0"), Value::string("x")] {
            assert_eq!(value.as_duration(), None, "{value}");
        }
        assert_eq!(Value::string("true").as_bool(), Some(true));
        assert_eq!(Value::string("yes").as_bool(), None);
        assert_eq!(Value::Bare("x".into()).as_integer(), None);
        assert_eq!(Value::Integer(3).text(), "3");
        assert_eq!(Value::string("a\"b").text(), "a\"b");
    }

    #[test]
    fn duration_beyond_64_bit_milliseconds_is_none() {
        assert_eq!(Length::from_text("18446744073709551615d"), None);
        assert_eq!(Length::from_text("18446744073709551616ms"), None);
        assert_eq!(Length::from_text("s"), None);
        assert_eq!(Length::from_text("-1s"), None);
        let longest = Length::from_text("18446744073709551615ms").unwrap();
        assert_eq!(longest.as_std(), Duration::from_millis(u64::MAX));
    }
}
