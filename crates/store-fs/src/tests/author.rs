//! Test data: runs with small records that chain as they must. Uses only the public contract, so that tests outside of the crate can share it.

use std::sync::LazyLock;

use bytes::Bytes;
use ferrata_store::{
    Epoch, FORMAT, Fingerprint, HeadRef, IdSource, RandomIds, Record, RecordHeader, RecordId, RecordKind,
    RunAppend, RunFacts, RunId, RunKey, RunStatus, Seq, Timestamp, WorkflowName,
};

static IDS: LazyLock<RandomIds> = LazyLock::new(RandomIds::new);

pub(crate) fn fresh_id() -> RecordId {
    RecordId::from_uuid(IDS.next(Timestamp::from_unix_ms(1_763_700_000_000)))
}

pub(crate) fn key(name: &str) -> RunKey {
    RunId::new(name).expect("a valid name").into()
}

pub(crate) fn facts() -> RunFacts {
    let workflow = WorkflowName::new("review").expect("a valid name");
    let print = Fingerprint::of(b"graph");
    RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(1_763_700_000_000))
        .expect("valid facts")
}

/// A writer to one run, which assumes that no other writer exists.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) run: RunKey,
    pub(crate) head: Option<HeadRef>,
}

impl Author {
    pub(crate) fn new(name: &str) -> Self {
        Self { run: key(name), head: None }
    }

    /// Creates the next record. It is a base if it is the first record, or if `base` is true.
    pub(crate) fn record(&mut self, body: impl Into<Bytes>, base: bool) -> Record {
        let seq = self.head.map_or(Seq::new(0), |head| head.seq.next());
        let header = RecordHeader {
            format: FORMAT,
            seq,
            id: fresh_id(),
            prev: self.head.map(|head| head.id),
            kind: if seq.get() == 0 { RecordKind::Start } else { RecordKind::Node },
            status: RunStatus::InProgress,
            node: None,
            visit: None,
            epoch: Epoch::new(1),
            owner: None,
            wake_at: None,
            at: Timestamp::from_unix_ms(1_763_700_000_001),
            base: base || seq.get() == 0,
            body_len: 0,
            body_crc: 0,
        };
        let record = Record::seal(header, body.into()).expect("a small body");
        self.head = Some(record.header.head());
        record
    }

    /// Creates the next append, with one record for each body.
    pub(crate) fn write(&mut self, bodies: &[&str]) -> RunAppend {
        let expected = self.head;
        let records = bodies.iter().map(|body| self.record(body.as_bytes().to_vec(), false)).collect();
        self.entry(expected, records)
    }

    /// Creates the next append, with one base.
    pub(crate) fn write_base(&mut self, body: &str) -> RunAppend {
        let expected = self.head;
        let records = vec![self.record(body.as_bytes().to_vec(), true)];
        self.entry(expected, records)
    }

    pub(crate) fn entry(&self, expected: Option<HeadRef>, records: Vec<Record>) -> RunAppend {
        let facts = expected.is_none().then(facts);
        RunAppend { run: self.run.clone(), expected, records, facts }
    }
}
