//! Handles the case that the store has lost acknowledged records. The driver releases the run, and records that attempts which must not be repeated
//! have an unknown outcome.
//!
//! A store loses records, for example, if a replica becomes the primary before it has received all writes, or if a disk confirms a write that it has
//! not stored. The log then ends with an older record. A process can detect this if it has seen a later record become durable. According to the
//! shorter log, some nodes have not started, although they have. Only this process knows that they have.

use std::collections::BTreeSet;

use super::RunDriver;
use crate::engine::fold::ReplayedRun;
use crate::engine::frontier::{Activation, ActivationKey};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::id::{HeadRef, Seq};
use crate::kernel::event::Event as RunEventKind;
use crate::record::Record;
use crate::record::body::{Intent, RecordEvent, ReleaseRecord};
use crate::runtime::writes::run_writer::ConflictRetries;
use crate::state::State;

/// Acknowledged records that are missing from the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataLoss {
    /// The last acknowledged record. The field after it has the last record that still exists.
    acknowledged: Seq,
    found: Seq,
}

impl<S: State> RunDriver<S> {
    /// Detects that the last acknowledged record is missing from the log, and notifies subscribers.
    ///
    /// If the loaded records start with a base (a record with the full state), earlier records were not loaded and count as present.
    pub(super) fn detect_loss(&self, records: &[Record], found: Seq) -> Option<DataLoss> {
        let durable = self.journal.durable().filter(|durable| is_missing(records, durable))?;
        let lost = DataLoss { acknowledged: durable.seq, found };
        tracing::error!(
            run = %self.journal.run(), acknowledged = %lost.acknowledged, %found,
            "the store has lost acknowledged records"
        );
        let DataLoss { acknowledged, found } = lost;
        self.emit(|| RunEventKind::RecordsLost { acknowledged, found });
        Some(lost)
    }

    /// Releases the run at the store's last record, and records the attempts that had started and must not be repeated. Returns why the driver
    /// stops.
    pub(super) async fn release_after_loss(&mut self, folded: ReplayedRun, lost: DataLoss) -> Error {
        let begun = self.started_activations();
        self.break_transaction();
        match self.try_leave(folded, &begun).await {
            Err(error) => error,
            Ok(()) => {
                let message = format!(
                    "the store has lost acknowledged records of the run: {} was acknowledged, and the log ends at {}, so running work that \
                     must not be repeated has an unknown outcome; resume the run, and answer its questions",
                    lost.acknowledged, lost.found
                );
                Error::new(ErrorKind::Corrupt, message).with_run(self.journal.run()).with_seq(lost.found)
            }
        }
    }

    async fn try_leave(
        &mut self,
        folded: ReplayedRun,
        begun: &BTreeSet<ActivationKey>,
    ) -> crate::error::Result<()> {
        let (mut folded, mut races) = (Some(folded), ConflictRetries::new());
        loop {
            let now = match folded.take() {
                Some(folded) => folded,
                None => self.load_ours().await?.0,
            };
            self.replace_run(now)?.for_each(drop);
            let unsaid = |key: &&ActivationKey| !is_recorded_as_started(&self.machine, **key);
            let intent =
                |key: &ActivationKey| Intent { node: self.machine.name(key.0).clone(), visit: key.1 };
            let begun = begun.iter().filter(unsaid).map(intent).collect();
            let reason = "the store has lost records".to_owned();
            let released = ReleaseRecord {
                reason,
                wake: None,
                receiving: false,
                receivers: Vec::new(),
                begun,
                looks: None,
                orderly: false,
            };
            if self.machine.status() != crate::record::RunStatus::InProgress && released.begun.is_empty() {
                return Ok(());
            }
            self.write_event(&RecordEvent::Release(released), None, true)?;
            match self.acknowledged().await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    races.count_conflict(self.journal.run()).await?
                }
                Err(error) => return Err(error.with_run(self.journal.run())),
            }
        }
    }

    /// Lists the activations that must not be repeated and that have started, according to the memory of this process.
    fn started_activations(&self) -> BTreeSet<ActivationKey> {
        let ended = self.machine.history().iter().map(|ended| (ended.node, ended.visit));
        // An intent that is not durable starts no attempt.
        let has_begun = |key: ActivationKey, activation: &Activation| {
            self.ready_queue.running(key).is_some() || activation.in_doubt
        };
        let going = self.machine.in_flight().iter().filter(|&(&key, activation)| has_begun(key, activation));
        let all = ended.chain(going.map(|(&key, _)| key));
        let is_external = |key: &ActivationKey| {
            (key.0 as usize) < self.plan.nodes.len()
                && self.plan.node(NodeIx::new(key.0)).effect == Effect::External
        };
        all.filter(is_external).collect()
    }
}

/// Returns whether the log shows that the activation has started.
fn is_recorded_as_started(machine: &Machine, key: ActivationKey) -> bool {
    machine.history().iter().any(|ended| (ended.node, ended.visit) == key)
        || machine.has_begun(&key)
        || machine.in_flight().get(&key).is_some_and(|activation| activation.intent)
}

/// Returns whether an acknowledged record is missing from its position.
fn is_missing(records: &[Record], acknowledged: &HeadRef) -> bool {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return false };
    if last.header.seq < acknowledged.seq {
        return true;
    }
    if first.header.seq == acknowledged.seq.next() {
        return first.header.prev != Some(acknowledged.id);
    }
    let found = records.iter().find(|record| record.header.seq == acknowledged.seq);
    found.is_some_and(|record| record.header.id != acknowledged.id)
}
