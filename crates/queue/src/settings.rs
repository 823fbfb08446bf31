//! Settings of a queue: concurrency, rate and maximum line length. Code declares them, and an operator may override them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrata_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Default maximum number of waiting requests.
const WAITING: u32 = 10_000;

/// Maximum length of a queue name in bytes. A prefix and the name form the id of the queue's run.
const LONGEST: usize = 64;

/// Maximum length of a key in bytes.
pub(crate) const LONGEST_KEY: usize = 256;
/// Maximum number of keys with a weight, and maximum weight. The settings are a part of each copy of the queue's state.
const MOST_WEIGHTS: usize = 100;
const MOST_WEIGHT: u32 = 1_000;

/// Maximum length of a pause reason in bytes.
const LONGEST_REASON: usize = 1_000;

/// A rate of grants: `starts` grants in each period, spread evenly over the period. A burst allows several grants at the same moment.
///
/// In any period, whatever its first moment is, the queue makes at most `starts + burst - 1` grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLimit {
    /// The number of grants in a period.
    pub starts: u32,
    /// The length of the period in milliseconds.
    pub period_ms: u64,
    /// The maximum number of grants at the same moment, after the queue has granted nothing for long enough. The default is 1.
    pub burst: u32,
}

impl RateLimit {
    /// Allows `starts` grants in each period, spread evenly.
    pub fn new(starts: u32, period: Duration) -> Self {
        Self { starts, period_ms: to_millis(period), burst: 1 }
    }

    /// Sets the maximum number of grants at the same moment.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// The time between two grants without a burst, in microseconds.
    pub(crate) fn interval(&self) -> i64 {
        let micros = self.period_ms.saturating_mul(1_000).div_ceil(u64::from(self.starts.max(1)));
        i64::try_from(micros).unwrap_or(i64::MAX).max(1)
    }

    fn check(&self) -> Result<()> {
        // At most a year, so that no calculation in microseconds overflows.
        let fits = (1..=1_000_000).contains(&self.starts)
            && (1..=31_536_000_000).contains(&self.period_ms)
            && (1..=1_000_000).contains(&self.burst);
        if fits {
            return Ok(());
        }
        let message = format!(
            "cannot use a rate of {} starts in {} ms with a burst of {}; use 1 to 1,000,000 starts and bursts, and 1 ms to a year",
            self.starts, self.period_ms, self.burst
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

pub(crate) fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The settings of a queue. The settings apply across all processes that share its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The version. If processes declare different settings, the settings with the highest version apply.
    pub version: u32,
    /// The number of slots; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// The maximum number of slots of one key; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once_per_key: Option<u32>,
    /// The rate of grants; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// The rate of grants for each key; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_key: Option<RateLimit>,
    /// The maximum number of waiting requests.
    pub max_waiting: u32,
    /// The waiting time after which the priority of a request rises by one, in milliseconds.
    pub ageing_ms: u64,
    /// The number of slots that a key gets in each of its turns, if it is not one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Tags that a process must have to claim runs from the queue.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
}

impl QueueSettings {
    pub(crate) fn new() -> Self {
        Self {
            version: 1,
            at_once: None,
            at_once_per_key: None,
            rate: None,
            rate_per_key: None,
            max_waiting: WAITING,
            ageing_ms: 60_000,
            weights: BTreeMap::new(),
            tags: BTreeSet::new(),
        }
    }

    /// Returns the number of slots that a key gets in each of its turns.
    pub(crate) fn weight(&self, key: &str) -> u32 {
        self.weights.get(key).copied().unwrap_or(1)
    }

    /// Validates the settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a setting is invalid.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::new(ErrorKind::Invalid, message));
        if self.at_once == Some(0) || self.at_once_per_key == Some(0) {
            return refuse("a queue needs at least one slot; to stop it, pause it");
        }
        if self.version == 0 {
            return refuse("the version of a queue cannot be 0; start at 1, and raise it with each change");
        }
        if self.ageing_ms == 0 {
            return refuse("the time in which priorities age cannot be 0; use at least 1 ms");
        }
        if self.weights.len() > MOST_WEIGHTS
            || self.weights.values().any(|weight| !(1..=MOST_WEIGHT).contains(weight))
        {
            let message = format!(
                "the queue has too many weights or an invalid one; use at most {MOST_WEIGHTS} keys with weights, each from 1 to {MOST_WEIGHT}"
            );
            return refuse(&message);
        }
        self.weights.keys().try_for_each(|key| check_key(key))?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.tags.len() > 8
            || self.tags.iter().any(|tag| !(1..=24).contains(&tag.len()) || !tag.chars().all(fits))
        {
            return refuse(
                "the queue has too many tags or a malformed one; use at most 8, each of 1 to 24 of A-Z a-z 0-9 . _ -",
            );
        }
        [self.rate, self.rate_per_key].iter().flatten().try_for_each(RateLimit::check)
    }

    /// Returns the names of the differing settings, except the version.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        [
            ("number of slots", self.at_once != other.at_once),
            ("number of slots per key", self.at_once_per_key != other.at_once_per_key),
            ("rate", self.rate != other.rate),
            ("rate per key", self.rate_per_key != other.rate_per_key),
            ("number of waiters", self.max_waiting != other.max_waiting),
            ("ageing", self.ageing_ms != other.ageing_ms),
            ("set of weights", self.weights != other.weights),
            ("set of tags", self.tags != other.tags),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }
}

/// An operator's overrides, which take precedence over the settings of every version until they are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueOverrides {
    /// The reason of the pause; `None` if the queue is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// The number of slots, instead of the declared number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// The maximum number of slots of one key, instead of the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once_per_key: Option<u32>,
    /// The rate of grants, instead of the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// The rate of grants for each key, instead of the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_key: Option<RateLimit>,
}

impl QueueOverrides {
    /// Validates the overrides in combination with the settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the result of both is invalid.
    pub(crate) fn check(&self, settings: &QueueSettings) -> Result<()> {
        if let Some(reason) = &self.paused
            && reason.len() > LONGEST_REASON
        {
            let message =
                format!("the reason for a pause has {} bytes; use at most {LONGEST_REASON}", reason.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.apply_to(settings).check()
    }

    /// Applies the overrides to the declared settings.
    pub(crate) fn apply_to(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            at_once: self.at_once.or(settings.at_once),
            at_once_per_key: self.at_once_per_key.or(settings.at_once_per_key),
            rate: self.rate.or(settings.rate),
            rate_per_key: self.rate_per_key.or(settings.rate_per_key),
            ..settings.clone()
        }
    }
}

/// Checks the name of a queue.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the name is invalid.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=LONGEST).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.') {
        return Ok(());
    }
    let message = format!(
        "`{}` cannot name a queue; use 1 to {LONGEST} of A-Z a-z 0-9 . _ -, no dot first",
        name.escape_debug()
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Validates the key of a waiter, or a once key.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the key is invalid.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.len() <= LONGEST_KEY && !key.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!(
        "the key is too long or has a control character; use at most {LONGEST_KEY} bytes without control characters"
    );
    Err(Error::new(ErrorKind::Invalid, message))
}
