//! Prepares the records of a run's log: it numbers them, links each to its predecessor, adds a checksum, and adds the full state to some of them
//! (bases).

mod bases;

use std::sync::Arc;

use serde_json::value::RawValue;

use self::bases::Bases;
use crate::clock::{Clock, Timestamp};
use crate::engine::fold::ReplayedRun;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ExecutorId, HeadRef, IdSource, NodeName, RecordId, RunKey, Seq, Visit};
use crate::record::body::{RecordBase, RecordEvent};
use crate::record::{FORMAT, Record, RecordHeader, RunFacts, RunStatus, codec};
use crate::store::RunAppend;

/// The writer of one run's log. It creates the records, and the caller appends them.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) run: RunKey,
    pub(crate) head: Option<HeadRef>,
    pub(crate) epoch: Epoch,
    pub(crate) executor: ExecutorId,
    pub(crate) max_body: usize,
    /// The version of the state type in the bases.
    pub(crate) state_version: u32,
    bases: Bases,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// The data of a record's header that the caller chooses.
#[derive(Default)]
pub(crate) struct RecordOptions {
    pub(crate) node: Option<(NodeName, Visit)>,
    pub(crate) wake_at: Option<Timestamp>,
    /// Whether the record must be a base.
    pub(crate) base: bool,
    /// Whether the record releases the run.
    pub(crate) release: bool,
}

impl LogWriter {
    pub(crate) fn new(
        run: RunKey,
        executor: ExecutorId,
        max_body: usize,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self {
            run,
            head: None,
            epoch: Epoch::new(1),
            executor,
            max_body,
            state_version: 1,
            bases: Bases::new(),
            clock,
            ids,
        }
    }

    /// Continues after the last record of a loaded log.
    pub(crate) fn follow(&mut self, folded: &ReplayedRun) {
        self.head = Some(folded.last.head());
        self.epoch = folded.last.epoch;
        self.state_version = folded.version;
        self.bases = Bases::after(folded);
    }

    /// Creates the next record from an event that the machine has absorbed, with the state after it if the record becomes a base.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] or [`ErrorKind::Invalid`]. The log is unchanged.
    pub(crate) fn record(
        &mut self,
        event: &RecordEvent,
        options: RecordOptions,
        machine: &Machine,
        state: impl FnOnce() -> Result<Box<RawValue>>,
    ) -> Result<Record> {
        let base = if options.base {
            Some(self.base(machine, state)?)
        } else if self.bases.is_check_due() && !machine.status().is_finished() {
            let base = self.base(machine, state)?;
            let weight = base.state.get().len() + base.machine.get().len();
            self.bases.is_due(weight as u64).then_some(base)
        } else {
            None
        };
        self.seal(event, options, machine, base.as_ref())
    }

    /// Creates the append that starts the run. It has one record, which is a base. If `release` is set, the run has no owner after it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record`](Self::record).
    pub(crate) fn begin(
        &mut self,
        event: &RecordEvent,
        machine: &Machine,
        state: Box<RawValue>,
        release: bool,
        facts: RunFacts,
    ) -> Result<RunAppend> {
        let options = RecordOptions { base: true, release, ..RecordOptions::default() };
        let record = self.record(event, options, machine, || Ok(state))?;
        Ok(RunAppend { run: self.run.clone(), expected: None, records: vec![record], facts: Some(facts) })
    }

    /// Creates the next record without the full state, because the state would be too large for a record.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the record cannot be encoded.
    pub(crate) fn record_without_base(
        &mut self,
        event: &RecordEvent,
        options: RecordOptions,
        machine: &Machine,
    ) -> Result<Record> {
        let record = self.seal(event, options, machine, None)?;
        self.bases.postpone_check();
        Ok(record)
    }

    fn seal(
        &mut self,
        event: &RecordEvent,
        options: RecordOptions,
        machine: &Machine,
        base: Option<&RecordBase>,
    ) -> Result<Record> {
        let now = self.clock.now();
        let body = codec::encode(event, base)?;
        let owned = machine.status() == RunStatus::InProgress && !options.release;
        let (node, visit) = options.node.unzip();
        let mut wake_at = options.wake_at.filter(|_| owned).or(machine.wake());
        if let Some(letters) = machine.letters().filter(|_| !owned)
            // An active run without a timer soon has an owner, who delivers.
            && (wake_at.is_some() || machine.status() != RunStatus::InProgress)
        {
            wake_at = wake_at.into_iter().chain(letters.wake(now)).min();
        }
        let header = RecordHeader {
            format: FORMAT,
            seq: self.head.map_or(Seq::new(0), |head| head.seq.next()),
            id: RecordId::from_uuid(self.ids.next(now)),
            prev: self.head.map(|head| head.id),
            kind: event.kind(),
            status: machine.status(),
            node,
            visit,
            epoch: self.epoch,
            owner: owned.then_some(self.executor),
            wake_at,
            at: now,
            base: base.is_some(),
            body_len: 0,
            body_crc: 0,
        };
        let record = Record::seal(header, body)?;
        let bytes = record.body.len() as u64;
        self.head = Some(record.header.head());
        match base {
            Some(_) => self.bases.wrote_base(bytes),
            None => self.bases.record_written(bytes),
        }
        Ok(record)
    }

    /// Creates a base.
    fn base(&self, machine: &Machine, state: impl FnOnce() -> Result<Box<RawValue>>) -> Result<RecordBase> {
        let (state, machine) = (state()?, machine.snapshot()?);
        check_size(&state, self.max_body).map_err(|error| error.with_run(&self.run))?;
        Ok(RecordBase { state, machine, version: self.state_version })
    }
}

/// Returns an error if a state is too large. The error names the largest channel.
pub(crate) fn check_size(state: &RawValue, most: usize) -> Result<()> {
    if state.get().len() <= most {
        return Ok(());
    }
    let channels: std::collections::BTreeMap<String, &RawValue> =
        serde_json::from_str(state.get()).unwrap_or_default();
    let largest = channels.iter().max_by_key(|(_, value)| value.get().len());
    let blame = largest.map_or(String::new(), |(name, value)| {
        format!("; the largest channel is `{name}` with {} bytes", value.get().len())
    });
    let message = format!(
        "the state has {} bytes, and at most {most} are allowed{blame}; store large values as blobs (docs/how-to/blobs.md) with their names in the \
         state, or raise `max_body`",
        state.get().len()
    );
    Err(Error::new(ErrorKind::TooLarge, message))
}

#[cfg(test)]
mod tests;
