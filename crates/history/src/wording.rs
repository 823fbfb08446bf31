//! Counts and lengths of time as people read them: the one place for units and plurals.

use std::fmt::Display;
use std::time::Duration;

/// Writes a count with its noun, as in `1 attempt` and `3 attempts`.
///
/// # Examples
///
/// ```
/// use ferrata_core::wording::count;
///
/// assert_eq!(count(1, "attempt"), "1 attempt");
/// assert_eq!(count(0, "process"), "0 processes");
/// assert_eq!(count(2, "reply"), "2 replies");
/// ```
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "a number is passed by value")]
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) { format!("1 {noun}") } else { format!("{number} {}", plural(noun)) }
}

fn plural(noun: &str) -> String {
    let vowel = |c: char| "aeiou".contains(c);
    if let Some(stem) = noun.strip_suffix('y').filter(|stem| !stem.ends_with(vowel)) {
        return format!("{stem}ies");
    }
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    if hisses { format!("{noun}es") } else { format!("{noun}s") }
}

/// Writes how often something happened, as in `once`, `twice` and `3 times`.
#[must_use]
pub fn times(number: u64) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        many => format!("{many} times"),
    }
}

/// Writes a length of time in its two largest units, and no finer than milliseconds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ferrata_core::wording::duration;
///
/// assert_eq!(duration(Duration::from_nanos(7)), "0ms");
/// assert_eq!(duration(Duration::from_millis(9_200)), "9.2s");
/// assert_eq!(duration(Duration::from_secs(9_000)), "2h30m");
/// ```
#[must_use]
pub fn duration(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => format!("{}ms", length.subsec_millis()),
        1..=9 => format!("{seconds}.{}s", length.subsec_millis() / 100),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_has_right_plural() {
        let counted =
            ["run", "process", "branch", "reply", "day"].map(|noun| [count(1, noun), count(5, noun)]);
        let expected = [
            ["1 run", "5 runs"],
            ["1 process", "5 processes"],
            ["1 branch", "5 branches"],
            ["1 reply", "5 replies"],
            ["1 day", "5 days"],
        ];
        assert_eq!(counted, expected.map(|pair| pair.map(str::to_owned)));
        assert_eq!([1, 2, 3].map(times), ["once", "twice", "3 times"]);
    }
}
