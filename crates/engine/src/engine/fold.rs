//! Replays a run from its log: from the newest base (a record with the full state) and the records after it.

use std::sync::Arc;

use super::machine::Machine;
use super::questions::QuestionSubject;
use crate::ask::Answer;
use crate::claim::ClaimId;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::GraphPlan;
use crate::id::RunKey;
use crate::record::body::{RecordEvent, Signal, SignalKind};
use crate::record::{Record, RecordHeader, RunStatus, codec};
use crate::state::Channels;

/// A run in its state after one record, without the user's state type.
#[derive(Clone, Debug)]
pub struct ReplayedRun {
    pub machine: Machine,
    pub channels: Channels,
    /// The version of the state type that wrote the channels.
    pub version: u32,
    /// The header of the last record.
    pub last: RecordHeader,
    /// The size of the last base. Together with the size of the records after it, it decides when the next base is due.
    pub base_bytes: u64,
    pub since_bytes: u64,
    pub since_records: u64,
}

/// Replays loaded records. The first record must be a base.
///
/// # Errors
///
/// - [`ErrorKind::Corrupt`], with run and record: there is no base, a record is damaged, or a record does not follow.
/// - [`ErrorKind::Unsupported`]: a newer version wrote a record.
pub fn fold(run: &RunKey, records: &[Record], plan: Option<&Arc<GraphPlan>>) -> Result<ReplayedRun> {
    let Some(first) = records.first().filter(|record| record.header.base) else {
        let message = "the loaded log does not begin with a base; restore the run from a backup";
        return Err(Error::new(ErrorKind::Corrupt, message).with_run(run));
    };
    first.verify(run)?;
    let place = |error: Error| error.with_run(run).with_seq(first.header.seq);
    let base = codec::base(run, first)?;
    let mut folded = ReplayedRun {
        machine: Machine::restore(&base.machine, plan.cloned()).map_err(place)?,
        channels: Channels::from_json(base.state.get()).map_err(place)?,
        version: base.version,
        last: first.header.clone(),
        base_bytes: first.body.len() as u64,
        since_bytes: 0,
        since_records: 0,
    };
    folded.follow(run, &records[1..])?;
    Ok(folded)
}

impl ReplayedRun {
    /// Returns the last claim of the run.
    pub fn claim_id(&self) -> ClaimId {
        ClaimId { start_id: self.machine.start_id(), epoch: self.last.epoch }
    }

    /// Applies the next records of the log.
    pub fn follow(&mut self, run: &RunKey, records: &[Record]) -> Result<()> {
        for record in records {
            record.verify(run)?;
            self.absorb(run, record).map_err(|error| error.with_run(run).with_seq(record.header.seq))?;
        }
        Ok(())
    }

    /// Applies the next record of the log.
    pub fn absorb(&mut self, run: &RunKey, record: &Record) -> Result<()> {
        if record.header.seq != self.last.seq.next() || record.header.prev != Some(self.last.id) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the record does not follow the previous record; restore the run from a backup",
            ));
        }
        let (body, changes) = codec::decode_to_fold(run, record)?;
        // The record is of a newer state type that converted the channels, so its changes have the new form, too.
        let migrated = body.base.as_ref().filter(|base| base.version != self.version);
        match (migrated, &body.event) {
            (Some(base), _) => self.channels = Channels::from_json(base.state.get())?,
            (None, RecordEvent::Edit(edited)) => self.channels.apply(&edited.patch)?,
            (None, _) => self.channels.fold(changes)?,
        }
        match (&body.event, &body.base) {
            // Only the full state: the log does not contain the changes that led to it.
            (RecordEvent::Base, Some(base)) => {
                self.machine = Machine::restore(&base.machine, self.machine.plan().cloned())?;
                self.channels = Channels::from_json(base.state.get())?;
            }
            (event, _) => drop(self.machine.absorb(event)?),
        }
        if self.machine.status() != record.header.status {
            let message = format!(
                "the header of the record has the status {}, its body results in {}; restore the run from a backup",
                record.header.status,
                self.machine.status()
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if let Some(base) = &body.base {
            self.version = base.version;
        }
        self.advance(record);
        Ok(())
    }

    /// Updates the position in the log after a record was written. The machine must have absorbed the record before.
    pub fn advance(&mut self, record: &Record) {
        self.last = record.header.clone();
        if record.header.base {
            (self.base_bytes, self.since_bytes, self.since_records) = (record.body.len() as u64, 0, 0);
        } else {
            self.since_bytes += record.body.len() as u64;
            self.since_records += 1;
        }
    }

    /// Gives the machine a plan. The result is the same as if the log had been replayed with this plan.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Machine::restore`].
    pub fn attach_plan(&mut self, plan: &Arc<GraphPlan>) -> Result<()> {
        self.machine = Machine::restore(&self.machine.snapshot()?, Some(Arc::clone(plan)))?;
        Ok(())
    }
}

/// Checks whether a signal is allowed. A refused signal leaves the run unchanged.
pub fn check_signal(machine: &Machine, signal: &Signal, now: Timestamp) -> Result<()> {
    let refuse = |kind, message: String| Err(Error::new(kind, message));
    let status = machine.status();
    match &signal.what {
        SignalKind::Respond { question, .. } => {
            if status.is_finished() {
                return refuse(
                    ErrorKind::WrongStatus,
                    format!("the run is {status}; it has no open question"),
                );
            }
            let posed = machine.find_question(question)?;
            if !matches!(posed.about, QuestionSubject::Doubt) {
                let id = machine.id_of(&posed);
                let message = format!(
                    "the question `{id}` does not ask about an unknown outcome; accept, reject or cancel it"
                );
                return refuse(ErrorKind::Invalid, message);
            }
            Ok(())
        }
        SignalKind::Answer { .. } if status.is_finished() => {
            refuse(ErrorKind::WrongStatus, format!("the run is {status}; it has no open question"))
        }
        SignalKind::Answer { question, answer } => {
            machine.check_answer(question, answer, now)?;
            match answer {
                Answer::Cancel(_) if machine.cancel().is_some() => {
                    refuse(ErrorKind::WrongStatus, "the run is already being cancelled".into())
                }
                _ => Ok(()),
            }
        }
        SignalKind::Message { .. } if status.is_finished() => refuse(
            ErrorKind::WrongStatus,
            format!("the run is {status}; none of its nodes can receive a message"),
        ),
        SignalKind::Pause { .. } if status.is_finished() => {
            refuse(ErrorKind::WrongStatus, format!("the run is {status} and cannot be paused"))
        }
        SignalKind::Pause { .. } if machine.is_paused_by(signal.of_parent) => {
            refuse(ErrorKind::WrongStatus, "the run is already paused".into())
        }
        // A failed run may be unpaused before its retry.
        SignalKind::Unpause if matches!(status, RunStatus::Completed | RunStatus::Cancelled) => {
            refuse(ErrorKind::WrongStatus, format!("the run is {status} and cannot be unpaused"))
        }
        SignalKind::Letters { start_id, .. }
            if start_id.is_some_and(|start_id| start_id != machine.start_id()) =>
        {
            refuse(
                ErrorKind::WrongStatus,
                "the run was purged and started again; read its outbox messages again".into(),
            )
        }
        SignalKind::Letters { change, .. } => match machine.letters() {
            Some(letters) => letters.check(change),
            None => refuse(ErrorKind::NotFound, "the run has sent no outbox message".into()),
        },
        SignalKind::Pin { seq } if machine.pins().contains(seq) => {
            refuse(ErrorKind::AlreadyExists, format!("record {seq} is already pinned"))
        }
        SignalKind::Unpin { seq } if !machine.pins().contains(seq) => {
            refuse(ErrorKind::NotFound, format!("record {seq} is not pinned"))
        }
        SignalKind::Unpause
            if !(machine.is_paused_by(true) || !signal.of_parent && machine.is_paused_by(false)) =>
        {
            refuse(ErrorKind::WrongStatus, format!("the run is {status} and not paused"))
        }
        SignalKind::Cancel { .. } if status.is_finished() => {
            refuse(ErrorKind::WrongStatus, format!("the run is {status} and cannot be cancelled"))
        }
        SignalKind::Cancel { .. } if machine.cancel().is_some() => {
            refuse(ErrorKind::WrongStatus, "the run is already being cancelled".into())
        }
        SignalKind::GoTo { nodes, reason } => machine.check_go_to(nodes, reason),
        SignalKind::Retry { .. } if status != RunStatus::Failed => {
            refuse(ErrorKind::WrongStatus, format!("the run is {status}; only a failed run can be retried"))
        }
        SignalKind::Retry { .. } if machine.is_over() => {
            let why = machine.failure().map_or_else(String::new, ToString::to_string);
            refuse(
                ErrorKind::WrongStatus,
                format!("the run has no activation to retry ({why}); start a new run"),
            )
        }
        _ => Ok(()),
    }
}

/// Replaces a short question id in an answer with the full id, for the log.
pub fn full_id(machine: &Machine, what: &mut SignalKind) -> Result<()> {
    if let SignalKind::Answer { question, .. } | SignalKind::Respond { question, .. } = what {
        *question = machine.id_of(&machine.find_question(question)?);
    }
    Ok(())
}

/// Returns the error for an unknown run id.
pub fn missing(run: &RunKey) -> Error {
    Error::new(ErrorKind::NotFound, "cannot find the run; start it, or check tenant and id").with_run(run)
}
