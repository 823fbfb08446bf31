//! The numbers that the library goes by, read from its source: the simulation follows when they change.

use anyhow::{Context as _, Result};

const SWEEP: &str = include_str!("../../../crates/core/src/runtime/fleet/sweep.rs");
const BUILDER: &str = include_str!("../../../crates/core/src/runtime/builder.rs");
const HEARTBEAT: &str = include_str!("../../../crates/core/src/runtime/fleet/heartbeat.rs");

/// What an executor goes by, times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The pause between looks, in the middle of its range.
    pub(crate) sweep: u64,
    /// The least and the most of a pause, as a part of it.
    pub(crate) jitter: (f64, f64),
    pub(crate) page: usize,
    pub(crate) pages: u32,
    /// How many runs of a page others may take first before it is left to them.
    pub(crate) late: u32,
    /// How many pages ahead an executor goes then: fewer than the least at first, than the most in the end.
    pub(crate) reach: (u64, u64),
    pub(crate) at_once: usize,
    pub(crate) max_recovered: usize,
    pub(crate) ttl: u64,
    /// How often a run is looked at while its node works.
    pub(crate) poll: u64,
    /// How many listings one look makes where the library makes one: more only where a test plants a fault.
    pub(crate) listings: u32,
    /// The least part of a page that an executor tries; 1 where a test plants a fleet that does not hold back.
    pub(crate) least_share: f64,
}

impl Rules {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// Names what stands elsewhere or otherwise now.
    pub(crate) fn read() -> Result<Self> {
        // What is no number: if it changes, what the simulation does is wrong.
        for (text, said) in [
            (SWEEP, "pause.as_secs_f64() * (0.75 + 0.5 * chance)"),
            (SWEEP, "if wide { &FILTERS[..] } else { &FILTERS[turn % 2..=turn % 2] }"),
            (SWEEP, "const LEAST_SHARE: f64 = 1.0 / 512.0;"),
            (SWEEP, "self.share = (self.share / 2.0).max(LEAST_SHARE);"),
            (SWEEP, "self.share = (self.share * 2.0).min(1.0);"),
            (SWEEP, "let mut tries = if is_last { self.part_of(heads.len()) } else { heads.len() };"),
            (SWEEP, "self.reach = (self.reach * 2).min(MOST_REACH);"),
            (SWEEP, "self.reach = (self.reach / 2).max(LEAST_REACH);"),
            (HEARTBEAT, "sent.saturating_add(self.ttl / 3)"),
        ] {
            text.contains(said)
                .then_some(())
                .with_context(|| format!("the library does not say `{said}` any more"))?;
        }
        Ok(Self {
            sweep: seconds(BUILDER, "sweep: Duration::from_secs(")?,
            jitter: (0.75, 1.25),
            page: usize::try_from(number(SWEEP, "const PAGE: u32 = ")?)?,
            pages: u32::try_from(number(SWEEP, "const PAGES: u32 = ")?)?,
            late: u32::try_from(number(SWEEP, "const LATE: u32 = ")?)?,
            reach: (number(SWEEP, "const LEAST_REACH: u64 = ")?, number(SWEEP, "const MOST_REACH: u64 = ")?),
            at_once: usize::try_from(number(BUILDER, "recovered_at_once: ")?)?,
            max_recovered: usize::try_from(number(BUILDER, "max_recovered: ")?)?,
            ttl: seconds(BUILDER, "heartbeat_ttl: Duration::from_secs(")?,
            poll: number(BUILDER, "poll: Duration::from_millis(")? * 1_000,
            listings: 1,
            least_share: 1.0 / 512.0,
        })
    }

    /// The pause between two heartbeats.
    pub(crate) fn beat(&self) -> u64 {
        self.ttl / 3
    }
}

fn seconds(text: &str, after: &str) -> Result<u64> {
    Ok(number(text, after)? * 1_000_000)
}

/// Returns the number that follows.
fn number(text: &str, after: &str) -> Result<u64> {
    let (_, rest) =
        text.split_once(after).with_context(|| format!("the library does not say `{after}` any more"))?;
    let digits: String =
        rest.chars().take_while(|c| c.is_ascii_digit() || *c == '_').filter(|c| *c != '_').collect();
    digits.parse().with_context(|| format!("no number follows `{after}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_library() {
        let rules = Rules::read().unwrap();
        assert!(rules.page > 1 && rules.at_once > 1 && rules.late > 0, "{rules:?}");
        assert!(rules.sweep < rules.ttl && rules.beat() < rules.ttl, "{rules:?}");
        assert_eq!(number("a: 10_000,", "a: ").unwrap(), 10_000);
        assert!(number("a: b", "a: ").is_err() && number("", "a: ").is_err());
    }
}
