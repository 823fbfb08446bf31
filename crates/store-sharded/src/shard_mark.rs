//! The internal records of the sharded store: the map in each shard, and the signposts to runs in other shards.
//!
//! Both are runs, because a store contains only runs. The names of their workflows distinguish them from the runs of users.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(crate) use ferrata_store::SHARD_MAP as MAP;

use crate::map::Generations;
use ferrata_store::{
    Epoch, Error, ErrorKind, FORMAT, Fingerprint, HeadRef, Record, RecordHeader, RecordId, RecordKind,
    Result, RunAppend, RunFacts, RunHead, RunId, RunKey, RunStatus, Seq, Timestamp, WorkflowName,
};

/// The workflow of a signpost.
pub(crate) const ELSEWHERE: &str = "ferrata:elsewhere";

/// Returns whether a run is an internal record. The name of the workflow alone does not decide this.
pub(crate) fn is_mark(head: &RunHead) -> bool {
    let is_of = |name| head.facts.workflow.as_str() == name;
    let is_still = head.status == RunStatus::Cancelled && head.epoch == Epoch::default();
    is_still && (is_of(ELSEWHERE) && head.seq == Seq::new(0) || is_of(MAP) && head.run.run.as_str() == MAP)
}

/// Returns whether a log with this only record may be a signpost. A user's log never has a cancelling record as its only record.
pub(crate) fn may_be_signpost(header: &RecordHeader) -> bool {
    header.kind == RecordKind::Start && header.status == RunStatus::Cancelled
}

/// Creates the signpost for a shard in which `start` must not start its run.
///
/// Its record has the id of the run's first record. So if the start is repeated, it recognizes its own signpost.
pub(crate) fn signpost(start: &RunAppend) -> Result<RunAppend> {
    let (Some(first), Some(facts)) = (start.records.first(), &start.facts) else {
        let message = "a shard mark is only allowed in the first append of a run; pass records and facts";
        return Err(Error::new(ErrorKind::Invalid, message).with_run(&start.run));
    };
    elsewhere(&start.run, (first.header.id, first.header.at), facts)
}

/// Creates the signpost to an existing run whose signpost was lost.
pub(crate) fn signpost_to(head: &RunHead) -> Result<RunAppend> {
    elsewhere(&head.run, (head.id, head.updated), &head.facts)
}

fn elsewhere(run: &RunKey, (id, at): (RecordId, Timestamp), facts: &RunFacts) -> Result<RunAppend> {
    let facts = RunFacts::new(WorkflowName::new(ELSEWHERE)?, "1", facts.graph, facts.input, facts.created)?;
    let record = record(id, None, at, Bytes::from_static(b"{}"))?;
    Ok(RunAppend { run: run.clone(), expected: None, records: vec![record], facts: Some(facts) })
}

/// Returns the key of the run that holds the map.
pub(crate) fn map_key() -> Result<RunKey> {
    Ok(RunKey::from(RunId::new(MAP)?))
}

/// The map in each shard: the name of the shard, and the generations.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardMark {
    pub(crate) shard: String,
    pub(crate) generations: Generations,
}

impl ShardMark {
    /// Creates the append that writes the map after `head`.
    ///
    /// The id of the record is a hash of its content and of the previous record. So processes that write the same map at the same time agree.
    pub(crate) fn append(&self, head: Option<HeadRef>) -> Result<RunAppend> {
        let body = serde_json::to_vec(self).map_err(|source| {
            Error::new(ErrorKind::Invalid, "cannot write the map of the shards").with_source(source)
        })?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&body);
        if let Some(head) = head {
            hasher.update(head.id.as_uuid().as_bytes());
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        let id = RecordId::from_uuid(uuid::Builder::from_custom_bytes(id).into_uuid());
        let record = record(id, head, Timestamp::default(), body.into())?;
        let facts = match head {
            Some(_) => None,
            None => {
                let nothing = Fingerprint::of(b"");
                Some(RunFacts::new(WorkflowName::new(MAP)?, "1", nothing, nothing, Timestamp::default())?)
            }
        };
        Ok(RunAppend { run: map_key()?, expected: head, records: vec![record], facts })
    }

    pub(crate) fn read(record: &Record) -> Result<Self> {
        serde_json::from_slice(&record.body).map_err(|source| {
            let message =
                format!("the run {MAP} has no map of shards; check whether another program wrote it");
            Error::new(ErrorKind::Corrupt, message).with_source(source)
        })
    }
}

/// Creates a record that no process continues. Its run is cancelled, and has no owner and no wake-up time.
fn record(id: RecordId, after: Option<HeadRef>, at: Timestamp, body: Bytes) -> Result<Record> {
    let header = RecordHeader {
        format: FORMAT,
        seq: after.map_or(Seq::new(0), |head| head.seq.next()),
        id,
        prev: after.map(|head| head.id),
        kind: if after.is_none() { RecordKind::Start } else { RecordKind::Base },
        status: RunStatus::Cancelled,
        node: None,
        visit: None,
        epoch: Epoch::default(),
        owner: None,
        wake_at: None,
        at,
        base: true,
        body_len: 0,
        body_crc: 0,
    };
    Record::seal(header, body)
}
