//! Writing a run's log: numbers, chains and seals records, and decides when one becomes a base.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::clock::{Clock, Timestamp};
use crate::engine::fold::Folded;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ExecutorId, HeadRef, IdSource, NodeName, RecordId, RunKey, Seq, Visit};
use crate::record::body::{Base, Event};
use crate::record::{FORMAT, Record, RecordHeader, RunStatus, codec};

/// What reading and folding one record costs beside its bytes, in bytes.
const RECORD_COST: u64 = 64;

/// How many times the last base's size is written before the next base.
///
/// With a factor of F, bases add about 1/F of what records take, whatever the size of the state, and a load reads at most
/// about 1 + F times a base. ARCHITECTURE.md has the sums.
const BASE_FACTOR: u64 = 4;

/// Smaller logs than this are read whole: a base would save nothing.
const BASE_FLOOR: u64 = 16 * 1024;

/// The writing end of one run's log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) run: RunKey,
    pub(crate) head: Option<HeadRef>,
    pub(crate) epoch: Epoch,
    pub(crate) executor: ExecutorId,
    pub(crate) max_body: usize,
    /// The version of the state's type that the bases are of.
    pub(crate) state_version: u32,
    base_bytes: u64,
    since_bytes: u64,
    since_records: u64,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// What a record is about and when its run is to be woken.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) node: Option<(NodeName, Visit)>,
    pub(crate) wake_at: Option<Timestamp>,
    /// Whether the record must be a base.
    pub(crate) base: bool,
    /// Whether nobody owns the run after it.
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
            base_bytes: 0,
            since_bytes: 0,
            since_records: 0,
            clock,
            ids,
        }
    }

    /// Goes on after what was loaded.
    pub(crate) fn follow(&mut self, folded: &Folded) {
        self.head = Some(folded.last.head());
        self.epoch = folded.last.epoch;
        self.state_version = folded.version;
        self.base_bytes = folded.base_bytes;
        self.since_bytes = folded.since_bytes;
        self.since_records = folded.since_records;
    }

    /// Makes the next record: of an event that the machine has absorbed, with the state after it if it becomes a base.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] or [`ErrorKind::Invalid`]; the log is as before.
    pub(crate) fn record(
        &mut self,
        event: &Event,
        about: About,
        machine: &Machine,
        state: impl FnOnce() -> Result<Box<RawValue>>,
    ) -> Result<Record> {
        let now = self.clock.now();
        let kind = event.kind();
        let due = about.base || (self.base_is_due() && !machine.status.is_finished());
        let base = if due {
            let (state, machine) = (state()?, machine.snapshot()?);
            self.check_base(&state)?;
            Some(Base { state, machine, version: self.state_version })
        } else {
            None
        };
        let is_base = base.is_some();
        let body = codec::encode(event, base.as_ref())?;
        let owned = machine.status == RunStatus::InProgress && !about.release;
        let (node, visit) = about.node.unzip();
        let header = RecordHeader {
            format: FORMAT,
            seq: self.head.map_or(Seq::new(0), |head| head.seq.next()),
            id: RecordId::from_uuid(self.ids.next(now)),
            prev: self.head.map(|head| head.id),
            kind,
            status: machine.status,
            node,
            visit,
            epoch: self.epoch,
            owner: owned.then_some(self.executor),
            wake_at: about.wake_at.or(machine.wake),
            at: now,
            base: is_base,
            body_len: 0,
            body_crc: 0,
        };
        let record = Record::seal(header, body)?;
        let bytes = record.body.len() as u64;
        self.head = Some(record.header.head());
        if is_base {
            (self.base_bytes, self.since_bytes, self.since_records) = (bytes, 0, 0);
        } else {
            self.since_bytes += bytes;
            self.since_records += 1;
        }
        Ok(record)
    }

    /// Makes the next record where its base would be too large.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be encoded.
    pub(crate) fn record_without_base(&mut self, event: &Event, machine: &Machine) -> Result<Record> {
        let (bytes, records) =
            (std::mem::take(&mut self.since_bytes), std::mem::take(&mut self.since_records));
        let record = self.record(event, About::default(), machine, unreachable_base)?;
        (self.since_bytes, self.since_records) = (self.since_bytes + bytes, self.since_records + records);
        Ok(record)
    }

    fn base_is_due(&self) -> bool {
        let since = self.since_bytes + RECORD_COST * self.since_records;
        since >= BASE_FLOOR && since > BASE_FACTOR * self.base_bytes
    }

    fn check_base(&self, state: &RawValue) -> Result<()> {
        if state.get().len() <= self.max_body {
            return Ok(());
        }
        Err(too_large(state, self.max_body).with_run(&self.run))
    }
}

/// Nothing written since the last base makes none due.
fn unreachable_base() -> Result<Box<RawValue>> {
    Err(Error::new(ErrorKind::Invalid, "a record that must hold no base was to become one"))
}

/// Says that a state is too large, and which channel is to blame.
pub(crate) fn too_large(state: &RawValue, most: usize) -> Error {
    let channels: std::collections::BTreeMap<String, &RawValue> =
        serde_json::from_str(state.get()).unwrap_or_default();
    let largest = channels.iter().max_by_key(|(_, value)| value.get().len());
    let blame = largest.map_or(String::new(), |(name, value)| {
        format!("; the largest channel is `{name}` with {} bytes", value.get().len())
    });
    let message = format!(
        "the state has {} bytes, allowed are {most}{blame}; keep large values elsewhere and store a reference, or raise \
         `max_body`",
        state.get().len()
    );
    Error::new(ErrorKind::TooLarge, message)
}
