//! Checks whether the records of a log are consistent with each other, without the graph.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::engine::fold::missing;
use crate::engine::fold::{ReplayedRun, fold};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, RunKey, Seq, Visit};
use crate::log_reader;
use crate::record::{Record, RecordKind, RunStatus, codec};
use crate::state::Channels;
use crate::store::{At, CheckpointStore, RunHead};

/// The result of checking a log with `Runtime::check_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedLog {
    /// The number of records in the checked part of the log.
    pub records: u64,
    /// The number of these records that are bases (records with the full state).
    pub bases: u64,
    /// The total size of the bodies in bytes.
    pub bytes: u64,
    /// The oldest stored record.
    pub first: Seq,
    /// The last record.
    pub last: Seq,
}

/// Reads a log and replays it twice: once from its first base, and once from each further base. Both replays must have the same result.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such run, [`ErrorKind::Corrupt`] if the log is unreadable or the replays differ, and the errors of
/// the store.
pub async fn check_log(store: &dyn CheckpointStore, run: &RunKey) -> Result<CheckedLog> {
    let mut head = store.head(run).await?.ok_or_else(|| missing(run))?;
    let mut ends = log_reader::segment_ends(store, run, At::Seq(head.seq)).await?;
    loop {
        let first = match check_stretches(store, run, &head, &ends).await? {
            LogCheck::Whole(checked) => return Ok(checked),
            LogCheck::Hole(first) => first,
        };
        // A prune may turn a record into a base before it drops the earlier records. Only the second listing shows that base.
        let now = log_reader::segment_ends(store, run, At::Seq(head.seq)).await?;
        if now == ends {
            return Err(damage_error("the log has a gap before this record").with_run(run).with_seq(first));
        }
        ends = now;
        head.first = store.head(run).await?.ok_or_else(|| missing(run))?.first;
    }
}

/// The result of one read of a log.
enum LogCheck {
    Whole(CheckedLog),
    /// A part of the log is missing: the segment that starts with this record does not follow the end of the previous segment.
    Hole(Seq),
}

async fn check_stretches(
    store: &dyn CheckpointStore,
    run: &RunKey,
    head: &RunHead,
    ends: &[Seq],
) -> Result<LogCheck> {
    let mut checked = CheckedLog { records: 0, bases: 0, bytes: 0, first: head.first, last: head.seq };
    let mut folded: Option<ReplayedRun> = None;
    // A pruned log does not show which writer wrote the records before its first base.
    let mut passed_on = head.first > Seq::new(0);
    for end in ends {
        let records = log_reader::segment_records(store, run, *end).await?;
        let Some(first) = records.first() else { continue };
        checked.records += records.len() as u64;
        checked.bases += records.iter().filter(|record| record.header.base).count() as u64;
        checked.bytes += records.iter().map(|record| record.body.len() as u64).sum::<u64>();
        if let Some(before) = folded.take() {
            if log_reader::is_continuous(Some(before.last.head()), &first.header) {
                passed_on |= changes_hands(first);
                compare(run, before, first, passed_on)
                    .map_err(|error| error.with_run(run).with_seq(first.header.seq))?;
            } else if store.head(run).await?.is_none_or(|now| now.first <= before.last.seq) {
                return Ok(LogCheck::Hole(first.header.seq));
            } else {
                // The run was pruned meanwhile: the stored log starts at this record.
                (checked.first, checked.records, checked.bases) = (first.header.seq, records.len() as u64, 1);
                checked.bytes = records.iter().map(|record| record.body.len() as u64).sum();
            }
            passed_on = false;
        }
        // If a claim is a base, the claimer already wrote it.
        passed_on |= first.header.kind == RecordKind::Edit || records[1..].iter().any(changes_hands);
        folded = Some(fold(run, &records, None)?);
    }
    Ok(LogCheck::Whole(checked))
}

/// Returns whether a program with another state type may have written this record and the following ones.
fn changes_hands(record: &Record) -> bool {
    matches!(record.header.kind, RecordKind::Claim | RecordKind::Edit)
}

/// Compares a base with the result of replaying the records before it.
fn compare(run: &RunKey, mut through: ReplayedRun, first: &Record, passed_on: bool) -> Result<()> {
    through.absorb(run, first)?;
    let base = codec::base(run, first)?;
    let (state, machine) = (Channels::from_json(base.state.get())?, Machine::restore(&base.machine, None)?);
    let alike = match passed_on {
        false => through.channels == state,
        true => is_equivalent(&through.channels.into(), &state.into()),
    };
    if !alike {
        return Err(damage_error("the state of the base differs from the replayed earlier records"));
    }
    if MachineSummary::of(&through.machine) != MachineSummary::of(&machine) {
        return Err(damage_error(
            "the position of the run in the base differs from the replayed earlier records",
        ));
    }
    Ok(())
}

fn damage_error(what: &str) -> Error {
    let message = format!("{what}; restore the run from a backup, or fork it from an earlier record");
    Error::new(ErrorKind::Corrupt, message)
}

/// Returns whether two values differ only as far as a state type may change a value when it decodes and encodes it. It may drop or add fields, and
/// integers may become floats.
fn is_equivalent(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(key, value)| other.get(key).is_none_or(|other| is_equivalent(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equivalent(one, other))
        }
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

/// The parts of two machines of one run that do not depend on node numbers.
#[derive(PartialEq)]
struct MachineSummary {
    status: RunStatus,
    ended: Vec<(NodeName, Visit)>,
    started: u64,
    visits: BTreeMap<NodeName, (u32, Option<bool>, bool)>,
    going: Vec<(NodeName, Visit, u32)>,
    tokens: BTreeMap<NodeName, usize>,
    messages: (usize, u64),
}

impl MachineSummary {
    fn of(machine: &Machine) -> Self {
        let name = |node| machine.name(node).clone();
        let mut going: Vec<_> = machine
            .in_flight()
            .iter()
            .chain(machine.stopped_at().iter().map(|(key, activation)| (key, activation)))
            .map(|(&(node, visit), activation)| (name(node), visit, activation.failed))
            .collect();
        going.sort();
        let named = machine.names().cloned().zip(machine.nodes());
        Self {
            status: machine.status(),
            ended: machine.history().iter().map(|ended| (name(ended.node), ended.visit)).collect(),
            started: machine.started(),
            visits: named
                .map(|(name, node)| (name, (node.visits, node.succeeded, node.skipped)))
                .filter(|(_, seen)| *seen != (0, None, false))
                .collect(),
            going,
            tokens: machine.tokens().iter().map(|(&to, tokens)| (name(to), tokens.len())).collect(),
            messages: (machine.inbox().len(), machine.messages()),
        }
    }
}
