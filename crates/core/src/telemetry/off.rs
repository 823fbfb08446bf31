//! The meters of a build without metrics: the same functions, all empty.

use std::marker::PhantomData;
use std::time::Duration;

use ferrata_store::{Removed, RunAppend, RunFilter};

use super::{AttemptResult, HeartbeatResult, LostClaim, Operation};
use crate::clock::{Clock, Timestamp};
use crate::compact::small_vec::SmallVec;
use crate::error::{ErrorKind, Result};
use crate::id::{HeadRef, NodeName, WorkflowName};
use crate::record::{FailureKind, Record, RunStatus};

pub(crate) struct Telemetry;

impl Telemetry {
    pub(crate) fn new(_by_node: bool) -> Self {
        Self
    }

    pub(crate) fn of(&self, _workflow: Option<&WorkflowName>) -> RunMeter {
        RunMeter
    }

    pub(crate) fn rested(&self, _status: RunStatus, _rested: Duration) {}

    pub(crate) fn delivered(&self, _topic: &str, _delay: Duration) {}

    pub(crate) fn undelivered(&self, _topic: &str, _gives_up: bool) {}

    pub(crate) fn beat(&self, _tried: HeartbeatResult, _now: impl FnOnce() -> Timestamp) {}

    pub(crate) fn looked(&self, _listing: RunFilter, _oldest: Duration) {}

    pub(crate) fn queue(&self, _name: &str, _waiting: usize, _held: usize, _oldest: Duration) {}

    pub(crate) fn swept(
        &self,
        _pruned: u64,
        _purged: u64,
        _failed: u64,
        _ended: impl FnOnce() -> Option<Timestamp>,
    ) {
    }

    pub(crate) fn stalled(&self, _runs: impl FnOnce() -> (usize, usize)) {}
}

pub(crate) struct QueueMeter;

impl QueueMeter {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn set(&self, _runs: usize) {}
}

#[derive(Clone)]
pub(crate) struct RunMeter;

impl RunMeter {
    pub(crate) fn silent() -> Self {
        Self
    }

    pub(crate) fn started(&self) {}

    pub(crate) fn drive(&self) -> ActiveRun {
        ActiveRun
    }

    pub(crate) fn settled(&self, _status: RunStatus, _lasted: impl FnOnce() -> Option<Duration>) {}

    pub(crate) fn stopped(&self, _kind: ErrorKind) {}

    pub(crate) fn parked(&self) {}

    pub(crate) fn claimed(&self, _waited: impl FnOnce() -> Duration) {}

    pub(crate) fn not_claimed(&self, _why: LostClaim) {}

    pub(crate) fn completed(&self, _node: &NodeName) {}

    pub(crate) fn failed(&self, _node: &NodeName, _kind: FailureKind) {}

    pub(crate) fn attempt_failed(&self, _node: &NodeName, _kind: FailureKind) {}

    pub(crate) fn attempt(&self, _node: &NodeName) -> AttemptMeter {
        AttemptMeter
    }

    pub(crate) fn pause(&mut self) -> Self {
        Self
    }
}

pub(crate) struct ActiveRun;

impl ActiveRun {
    pub(crate) fn end(self) {}
}

pub(crate) struct AttemptMeter;

impl AttemptMeter {
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn ended(&mut self, _result: Option<AttemptResult>, _took: Duration) {}
}

pub(crate) struct StoreMeter;

impl StoreMeter {
    pub(crate) fn new(_store: &'static str) -> Self {
        Self
    }

    pub(crate) fn begin<'a>(&'a self, _operation: Operation, _clock: &'a dyn Clock) -> Call<'a> {
        Call(PhantomData)
    }

    pub(crate) fn weigh(_batch: &[RunAppend]) -> SmallVec<(u64, u64)> {
        SmallVec::new()
    }

    pub(crate) fn appended(&self, _weights: &[(u64, u64)], _results: &[Result<HeadRef>]) {}

    pub(crate) fn loaded(&self, _records: &[Record]) {}

    pub(crate) fn removed(&self, _operation: Operation, _removed: Removed) {}
}

pub(crate) struct Call<'a>(PhantomData<&'a ()>);

impl Call<'_> {
    pub(crate) fn end(self, _error: Option<ErrorKind>) {}
}

#[derive(Clone)]
pub(crate) struct CommitterMeter;

impl CommitterMeter {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn queued(&self) {}

    pub(crate) fn batched(&self, _runs: usize) {}

    pub(crate) fn retried(&self, _kind: ErrorKind) {}
}
