//! The stored definition of a schedule.

use std::time::Duration;

use ferrata_core::{Error, ErrorKind, Result, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::{CatchUp, MOST, Overlap};
use crate::times::Times;

/// Maximum version. The workflow of a schedule has one migration step for each version.
pub(crate) const LAST_VERSION: u32 = 1_000;

/// Maximum length of a name in bytes, because the name and a tick together form a run id.
const LONGEST: usize = 64;

/// The stored definition of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleDefinition {
    /// The name of the schedule.
    pub name: String,
    /// The version. If processes declare different definitions, the definition with the highest version applies.
    pub version: u32,
    /// The cron pattern.
    pub cron: String,
    /// The time zone in which the cron pattern applies, by its IANA name.
    pub timezone: String,
    /// The maximum delay of a start after its tick, in milliseconds.
    pub jitter_ms: u64,
    /// The maximum delay of a start in milliseconds. A later tick counts as missed, and the catch-up policy applies to it.
    pub tolerance_ms: u64,
    /// Policy for late ticks.
    pub catch_up: CatchUp,
    /// Policy for ticks during an active run.
    pub overlap: Overlap,
    /// The workflow of the runs.
    pub workflow: String,
    /// The input of each run.
    pub input: Value,
}

impl ScheduleDefinition {
    /// Validates the definition, and returns the calendar of its ticks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a part of the definition is invalid.
    pub(crate) fn check(&self) -> Result<Times> {
        check_name(&self.name)?;
        let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        if !(1..=LAST_VERSION).contains(&self.version) {
            return refuse(format!(
                "the version of a schedule cannot be {}; use 1 to {LAST_VERSION}, and raise it with each change",
                self.version
            ));
        }
        match self.catch_up {
            CatchUp::All(n) if !(1..=MOST).contains(&n) => {
                return refuse(format!(
                    "`CatchUp::All({n})` is out of range; use 1 to {MOST}, or `CatchUp::None`"
                ));
            }
            _ => {}
        }
        match self.overlap {
            Overlap::Queue(n) if !(1..=MOST).contains(&n) => {
                return refuse(format!(
                    "`Overlap::Queue({n})` is out of range; use 1 to {MOST}, or `Overlap::Skip`"
                ));
            }
            _ => {}
        }
        self.times()
    }

    /// Returns the calendar of the ticks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`]: a newer version wrote the cron pattern or the time zone.
    pub(crate) fn times(&self) -> Result<Times> {
        Times::new(&self.cron, &self.timezone)
    }

    /// Returns the maximum delay of a start before the catch-up policy applies to its tick.
    pub(crate) fn tolerance(&self) -> Duration {
        Duration::from_millis(self.tolerance_ms)
    }

    /// Returns the start time of a tick's run. The delay depends only on the schedule's name and the tick, so it is the same in every process.
    pub(crate) fn start_of(&self, tick: Timestamp) -> Timestamp {
        if self.jitter_ms == 0 {
            return tick;
        }
        // FNV-1a, followed by the last step of SplitMix64. Without that step, successive ticks would get similar delays.
        let bytes = self.name.bytes().chain(tick.unix_ms().to_le_bytes());
        let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        tick.plus(Duration::from_millis((hash ^ (hash >> 31)) % self.jitter_ms))
    }
}

/// Checks the name of a schedule.
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
        "`{}` cannot name a schedule; use 1 to {LONGEST} of A-Z a-z 0-9 . _ -, no dot first",
        name.escape_debug()
    );
    Err(Error::new(ErrorKind::Invalid, message))
}
