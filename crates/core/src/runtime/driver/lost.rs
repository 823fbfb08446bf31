//! When the store has lost records that it had acknowledged: the run is let go, and what must not be repeated is in doubt.
//!
//! A replica that was promoted behind its primary, or a machine whose disk lied, goes on from an older record. A process that was told that a
//! later one is durable can tell. The log then says of nodes that they have not begun which have, and only this process knows.

use std::collections::BTreeSet;

use super::RunDriver;
use crate::engine::fold::ReplayedRun;
use crate::engine::frontier::{Activation, ActivationKey};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::id::{HeadRef, Seq};
use crate::record::Record;
use crate::record::body::{Event, Intent, ReleaseRecord};
use crate::runtime::event::Event as RunEventKind;
use crate::runtime::requests::amend::ConflictRetries;
use crate::state::State;

/// What is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataLoss {
    /// The last record that was acknowledged, and the last one that there is.
    acknowledged: Seq,
    found: Seq,
}

impl<S: State> RunDriver<S> {
    /// Detects that the last acknowledged record is not in the log any more, and tells subscribers.
    ///
    /// What others wrote since may begin with a base: then records before it were not loaded, and are taken to be there.
    pub(super) fn detect_loss(&self, records: &[Record], found: Seq) -> Option<DataLoss> {
        let durable = self.journal.durable().filter(|durable| is_missing(records, durable))?;
        let lost = DataLoss { acknowledged: durable.seq, found };
        tracing::error!(
            run = %self.journal.run(), acknowledged = %lost.acknowledged, %found,
            "the store has lost records that it had acknowledged"
        );
        let DataLoss { acknowledged, found } = lost;
        self.emit(|| RunEventKind::RecordsLost { acknowledged, found });
        Some(lost)
    }

    /// Lets the run go as the store has it, with what had begun and must not be repeated. Returns why the driver stops.
    pub(super) async fn leave(&mut self, folded: ReplayedRun, lost: DataLoss) -> Error {
        let begun = self.begun();
        self.break_transaction();
        match self.try_leave(folded, &begun).await {
            Err(error) => error,
            Ok(()) => {
                let message = format!(
                    "the store has lost records of the run that it had acknowledged, up to {}; it has those up to {}. What must not be \
                     repeated and had begun is in doubt: resume the run, and answer what it asks",
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
            self.stand_on(now)?.for_each(drop);
            let unsaid = |key: &&ActivationKey| !is_said(&self.machine, **key);
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
            self.note(&Event::Release(released), None, true)?;
            match self.acknowledged().await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => races.lost(self.journal.run()).await?,
                Err(error) => return Err(error.with_run(self.journal.run())),
            }
        }
    }

    /// Lists the activations that must not be repeated and have begun, as this process knows them.
    fn begun(&self) -> BTreeSet<ActivationKey> {
        let ended = self.machine.history().iter().map(|ended| (ended.node, ended.visit));
        // An intent that is not durable yet begins nothing.
        let has_begun = |key: ActivationKey, activation: &Activation| {
            self.line.running(key).is_some() || activation.in_doubt
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

/// Whether the log says that the activation has begun.
fn is_said(machine: &Machine, key: ActivationKey) -> bool {
    machine.history().iter().any(|ended| (ended.node, ended.visit) == key)
        || machine.has_begun(&key)
        || machine.in_flight().get(&key).is_some_and(|activation| activation.intent)
}

/// Whether a record that was acknowledged is not where it was.
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
