//! What the tests write: runs with records that say little, but chain as they must.

use ferrata_store::testing::every_header;
use std::sync::LazyLock;

use bytes::Bytes;
use ferrata_store::{
    At, CheckpointStore, Clock as _, Epoch, FORMAT, Fingerprint, HeadRef, IdSource, RandomIds, Record,
    RecordHeader, RecordId, RecordKind, Result, RunAppend, RunFacts, RunId, RunKey, RunStatus, Seq,
    SystemClock, Timestamp, WorkflowName,
};

static IDS: LazyLock<RandomIds> = LazyLock::new(RandomIds::new);

pub(crate) fn fresh_id() -> RecordId {
    RecordId::from_uuid(IDS.next(SystemClock::new().now()))
}

pub(crate) fn key(name: &str) -> RunKey {
    RunId::new(name).unwrap().into()
}

pub(crate) fn facts() -> RunFacts {
    let print = Fingerprint::of(b"graph");
    let created = Timestamp::from_unix_ms(1_763_700_000_000);
    RunFacts::new(WorkflowName::new("review").unwrap(), "1", print, print, created).unwrap()
}

/// Somebody who writes to one run, and knows of no other writer.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) run: RunKey,
    pub(crate) records: Vec<Record>,
}

impl Author {
    pub(crate) fn new(name: &str) -> Self {
        Self { run: key(name), records: Vec::new() }
    }

    pub(crate) fn head(&self) -> Option<HeadRef> {
        self.records.last().map(|record| record.header.head())
    }

    /// The next append, of so many records; it counts as written.
    pub(crate) fn next(&mut self, count: usize) -> RunAppend {
        self.next_as(count, b"{\"a\": 1}", |_| ())
    }

    /// The next append, of records with this body and shape; it counts as written.
    pub(crate) fn next_as(
        &mut self,
        count: usize,
        body: &'static [u8],
        shape: impl Fn(&mut RecordHeader),
    ) -> RunAppend {
        let expected = self.head();
        let from = self.records.len();
        for _ in 0..count {
            let head = self.head();
            let seq = head.map_or(Seq::new(0), |head| head.seq.next());
            let mut header = RecordHeader {
                format: FORMAT,
                seq,
                id: fresh_id(),
                prev: head.map(|head| head.id),
                kind: if seq.get() == 0 { RecordKind::Start } else { RecordKind::Node },
                status: RunStatus::InProgress,
                node: None,
                visit: None,
                epoch: Epoch::new(1),
                owner: None,
                wake_at: None,
                at: Timestamp::from_unix_ms(1_763_700_000_001),
                base: seq.get().is_multiple_of(5),
                body_len: 0,
                body_crc: 0,
            };
            shape(&mut header);
            self.records.push(Record::seal(header, Bytes::from_static(body)).unwrap());
        }
        let facts = expected.is_none().then(facts);
        RunAppend { run: self.run.clone(), expected, records: self.records[from..].to_vec(), facts }
    }
}

/// Appends one entry.
pub(crate) async fn append(store: &dyn CheckpointStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().unwrap()
}

/// Checks that the log is exactly what its author wrote, no record lost, doubled or changed.
pub(crate) async fn is_kept(store: &dyn CheckpointStore, author: &Author) {
    let headers = every_header(store, &author.run).await.unwrap();
    let written: Vec<_> = author.records.iter().map(|record| record.header.clone()).collect();
    assert_eq!(headers, written, "the log of {}", author.run);
    let loaded = store.load(&author.run, At::Latest).await.unwrap().unwrap();
    assert!(author.records.ends_with(&loaded), "what is loaded of {}", author.run);
    let head = store.head(&author.run).await.unwrap().unwrap();
    assert_eq!(Some(head.head()), author.head(), "the head of {}", author.run);
}
