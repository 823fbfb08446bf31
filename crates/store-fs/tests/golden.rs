//! A log of this version, byte for byte, and its recovery from any truncation.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use ferrata_store::{
    At, CheckpointStore, Epoch, ExecutorId, Fingerprint, HeaderRange, NodeName, PruneCut, Record,
    RecordHeader, RecordId, RecordKind, RunAppend, RunFacts, RunId, RunKey, RunStatus, Seq, Timestamp, Visit,
    WorkflowName,
};
use ferrata_store_fs::FsStore;
use ferrata_testing::Log;
use tempfile::TempDir;

/// The log of the run.
const LOG: &str = include_str!("golden/v1.jsonl");

fn key() -> RunKey {
    RunId::new("r").unwrap().into()
}

fn facts() -> RunFacts {
    let print = Fingerprint::of(b"graph");
    RunFacts::new(WorkflowName::new("review").unwrap(), "1", print, print, at(0)).unwrap()
}

fn at(seq: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_763_700_000_000 + i64::try_from(seq).unwrap())
}

fn id(seq: u64) -> RecordId {
    format!("019aa4b6-4500-768c-931c-{seq:012x}").parse().unwrap()
}

fn executor(number: u8) -> ExecutorId {
    format!("019aa4b6-4500-70e0-b668-7bfc03897c{number:02x}").parse().unwrap()
}

/// Appends with every kind of line: starts, nodes, several records at once, a body in base64, a base, another owner, the end.
fn appends() -> Vec<RunAppend> {
    type Change = fn(&mut RecordHeader);
    let node: Change = |header| {
        header.node = Some(NodeName::new("approve").unwrap());
        header.visit = Some(Visit::new(2));
    };
    let appends: [&[(&[u8], RecordKind, Change)]; 6] = [
        &[(b"{\"entry\":\"approve\"}", RecordKind::Start, |header| header.base = true)],
        &[
            (b"{\"set\": {\"draft\":\"x\"}}", RecordKind::Node, node),
            (b"\x00\xff", RecordKind::Attempt, |header| header.wake_at = Some(at(99))),
            (b"[1]", RecordKind::Step, node),
        ],
        &[(b"1", RecordKind::Node, node)],
        &[(b"{\"base\":{}}", RecordKind::Base, |header| header.base = true)],
        &[(b"2", RecordKind::Claim, |header| {
            header.epoch = Epoch::new(2);
            header.owner = Some(executor(2));
        })],
        &[(b"3", RecordKind::Node, |header| {
            header.epoch = Epoch::new(2);
            header.owner = None;
            header.status = RunStatus::Completed;
        })],
    ];
    let (mut log, mut made) = (Log::new(key()), Vec::new());
    for bodies in appends {
        let (expected, mut records) = (log.head(), Vec::new());
        for (body, kind, change) in bodies {
            let next = log.next_as(1, body, |header| {
                let seq = header.seq.get();
                (header.id, header.at, header.kind) = (id(seq), at(seq), *kind);
                (header.owner, header.base) = (Some(executor(1)), false);
                change(header);
            });
            log.note_append(&next);
            records.extend(next.records);
        }
        made.push(RunAppend { run: key(), expected, records, facts: expected.is_none().then(facts) });
    }
    made
}

fn records() -> Vec<Record> {
    appends().into_iter().flat_map(|append| append.records).collect()
}

struct Place {
    directory: TempDir,
    store: FsStore,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = FsStore::open(directory.path()).unwrap();
        Self { directory, store }
    }

    async fn with(log: &str) -> Self {
        let place = Self::new();
        place.store.setup().await.unwrap();
        fs::create_dir_all(place.log().parent().unwrap()).unwrap();
        fs::write(place.log(), log).unwrap();
        place
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("runs/default/r.jsonl")
    }

    async fn append(&self, append: &RunAppend) {
        self.store.append(vec![append.clone()]).await.pop().unwrap().unwrap();
    }

    /// Checks that every kind of read returns exactly these records.
    async fn check(&self, expected: &[Record]) {
        let headers: Vec<_> = expected.iter().map(|record| record.header.clone()).collect();
        for range in [HeaderRange::newest(1_000), HeaderRange::oldest(1_000)] {
            let found = self.store.headers(&key(), range).await.unwrap().items;
            assert_eq!(found, headers, "{range:?}");
        }
        let head = self.store.head(&key()).await.unwrap().unwrap();
        let last = headers.last().unwrap();
        assert_eq!(
            (head.id, head.status, head.epoch, head.owner),
            (last.id, last.status, last.epoch, last.owner)
        );
        for at in expected {
            let loaded = self.store.load(&key(), At::Seq(at.header.seq)).await.unwrap().unwrap();
            let first = expected.iter().position(|record| record.header == loaded[0].header).unwrap();
            assert!(loaded[0].header.base);
            assert_eq!(loaded, expected[first..first + loaded.len()]);
            assert_eq!(loaded.last().unwrap(), at);
        }
    }
}

/// Guarantees: FS-1.
#[tokio::test]
async fn written_files_match_released_format() {
    let place = Place::new();
    for append in appends() {
        place.append(&append).await;
    }
    let written = fs::read_to_string(place.log()).unwrap();
    assert_eq!(written, LOG, "{written}");
    place.check(&records()).await;
}

/// Truncates the log after each append, and continues from there.
///
/// Guarantees: FORMAT-9, FS-1.
#[tokio::test]
async fn cut_log_is_read_and_continued() {
    for kept in 1..=appends().len() {
        let lines = 1 + appends()[..kept].iter().map(|append| append.records.len()).sum::<usize>();
        let beginning: String = LOG.split_inclusive('\n').take(lines).collect();
        let place = Place::with(&beginning).await;
        place.check(&records()[..lines - 1]).await;
        for append in &appends()[kept - 1..] {
            // The first of these appends is recognized as a repeat.
            place.append(append).await;
        }
        place.check(&records()).await;
        assert_eq!(fs::read_to_string(place.log()).unwrap(), LOG);
        let pruned = place.store.prune(&key(), PruneCut { at: Seq::new(5), base: None }).await.unwrap();
        assert_eq!(pruned.records, 5);
        place.check(&records()[5..]).await;
    }
}
