//! Planned faults, by operation.

use std::collections::BTreeMap;

use ferrata_store::{Error, ErrorKind};

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The operation writes nothing, and the caller gets an error: [`ErrorKind::Unavailable`].
    Before,
    /// The operation succeeds, and its reply is lost: [`ErrorKind::Indeterminate`].
    After,
    /// The process crashes just before the operation, which writes nothing. The operation and every later call fail with [`ErrorKind::Closed`].
    CrashBefore,
    /// The process crashes just after the operation, which succeeds. Its reply is lost ([`ErrorKind::Indeterminate`]), and every later call fails
    /// with [`ErrorKind::Closed`].
    CrashAfter,
}

impl Fault {
    /// All faults, for tests that try each of them.
    pub const ALL: [Self; 4] = [Self::Before, Self::After, Self::CrashBefore, Self::CrashAfter];

    /// Returns whether the operation succeeds although the caller gets an error.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::After | Self::CrashAfter)
    }

    /// Returns whether the fault is a crash, so that every later call fails, too.
    pub const fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    pub(super) fn error(self, operation: &'static str) -> Error {
        let (kind, message) = match self {
            Self::Before => (
                ErrorKind::Unavailable,
                "injected: the store could not be reached; retry with a growing delay",
            ),
            Self::After | Self::CrashAfter => {
                (ErrorKind::Indeterminate, "injected: the reply was lost; retry the same call")
            }
            Self::CrashBefore => (ErrorKind::Closed, "injected: the process has died; open the store again"),
        };
        Error::new(kind, message).with_operation(operation)
    }
}

/// The probabilities of random faults, from 0 (never, the default) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FaultOdds {
    /// The probability of [`Fault::Before`] at an operation.
    pub before: f64,
    /// The probability of [`Fault::After`] at an operation that did not get `before`.
    pub after: f64,
    /// The probability of [`ErrorKind::Unavailable`] at a call that only reads.
    pub read: f64,
}

impl FaultOdds {
    /// Sets the probability that an operation fails and writes nothing.
    #[must_use]
    pub fn with_before(mut self, odds: f64) -> Self {
        self.before = odds;
        self
    }

    /// Sets the probability that the reply of an operation is lost.
    #[must_use]
    pub fn with_after(mut self, odds: f64) -> Self {
        self.after = odds;
        self
    }

    /// Sets the probability that a call that only reads fails.
    #[must_use]
    pub fn with_read(mut self, odds: f64) -> Self {
        self.read = odds;
        self
    }
}

/// A plan of faults. The same plan gives the same faults to the same sequence of calls.
///
/// The plan counts operations from 0 in the order in which they start. Each entry of an append, each prune, each purge and each call of
/// [`reseal`](ferrata_store::Resealing::reseal) is an operation. Heartbeats count only after [`with_heartbeats`](Self::with_heartbeats), because
/// their order depends on timers.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct FaultPlan {
    faults: BTreeMap<u64, Fault>,
    chance: Option<(u64, FaultOdds)>,
    heartbeats: bool,
}

impl FaultPlan {
    /// Creates a plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault at an operation. Replaces a fault that is already planned there.
    pub fn with_fault(mut self, operation: u64, fault: Fault) -> Self {
        self.faults.insert(operation, fault);
        self
    }

    /// Adds random faults from `seed`. Planned faults take precedence.
    pub fn with_chance(mut self, seed: u64, odds: FaultOdds) -> Self {
        self.chance = Some((seed, odds));
        self
    }

    /// Counts heartbeats as operations, too.
    pub fn with_heartbeats(mut self) -> Self {
        self.heartbeats = true;
        self
    }

    pub(super) fn counts_heartbeats(&self) -> bool {
        self.heartbeats
    }

    /// Returns the fault at an operation, if there is one.
    pub(super) fn fault(&self, operation: u64) -> Option<Fault> {
        self.faults.get(&operation).copied().or_else(|| {
            let (seed, odds) = self.chance?;
            if draw(seed, FaultStream::Before, operation) < odds.before {
                return Some(Fault::Before);
            }
            (draw(seed, FaultStream::After, operation) < odds.after).then_some(Fault::After)
        })
    }

    /// Returns whether the n-th call that only reads fails.
    pub(super) fn fails_read(&self, read: u64) -> bool {
        self.chance.is_some_and(|(seed, odds)| draw(seed, FaultStream::Read, read) < odds.read)
    }
}

/// Each kind of fault has its own sequence of random numbers. So one more read does not change which writes fail.
#[derive(Clone, Copy)]
enum FaultStream {
    Before = 1,
    After = 2,
    Read = 3,
}

/// Returns a number in `0.0..1.0` that depends only on seed, stream and position, so concurrent callers cannot change it.
fn draw(seed: u64, stream: FaultStream, position: u64) -> f64 {
    // SplitMix64 (Steele, Lea, Flood 2014), used as a hash.
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let bits = mix(mix(mix(seed) ^ stream as u64) ^ position);
    // The upper 53 bits are those that an `f64` represents exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
