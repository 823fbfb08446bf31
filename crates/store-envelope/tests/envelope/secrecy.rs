//! Plain text is absent from the inner store, from errors, and from `Debug` output.

use bytes::Bytes;
use ferrata_store::{At, CheckpointStore, MemoryStore, Record, RunAppend, RunId};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore};
use ferrata_testing::Log;

use super::{all, wrapped};

const MARKER: &str = "the patient's name is Ann Fowler";

/// An append whose bodies contain the marker.
fn marked(log: &Log, records: usize) -> RunAppend {
    let mut append = log.next(records);
    for record in &mut append.records {
        let body =
            Bytes::from(format!("{{\"note\":\"{MARKER}\",\"text\":\"{}\"}}", "prose and more ".repeat(20)));
        *record = Record::seal(record.header.clone(), body).unwrap();
    }
    append
}

async fn is_found(store: &MemoryStore, log: &Log) -> bool {
    let mut found = false;
    store.tamper(&log.key, |records| {
        found = records.iter().any(|record| format!("{record:?}").contains("Ann Fowler"));
    });
    found
}

/// Guarantees: AT-REST-1, SECURITY-1.
#[tokio::test]
async fn inner_store_contains_no_plaintext() {
    for (options, is_there) in [(all(), false), (EnvelopeOptions::default(), true)] {
        let (inner, store) = wrapped(options);
        let mut log = Log::new(RunId::new("r").unwrap());
        for _ in 0..3 {
            let append = marked(&log, 3);
            store.append(vec![append.clone()]).await.remove(0).unwrap();
            log.note_append(&append);
        }
        assert_eq!(store.load(&log.key, At::Latest).await.unwrap().unwrap().last(), log.records.last());
        // Without encryption, the search finds the marker.
        assert_eq!(is_found(&inner, &log).await, is_there);
        let shown = format!("{:?}", store);
        assert!(!shown.contains("[7, 7") && !shown.contains("0707"), "{shown}");
    }
}

/// Guarantees: AT-REST-4, SECURITY-10.
#[tokio::test]
async fn an_error_shows_nothing_of_what_was_encrypted() {
    let (inner, store) = wrapped(all());
    let log = Log::new(RunId::new("r").unwrap());
    store.append(vec![marked(&log, 2)]).await.remove(0).unwrap();
    let without = EnvelopeStore::new(inner, EnvelopeOptions::default());
    let mut shown = String::new();
    shown += &format!("{:?}", without.load(&log.key, At::Latest).await.unwrap_err());
    shown += &format!("{:?}", store.append(vec![marked(&log, 2)]).await.remove(0).unwrap_err());
    assert!(!shown.contains("Ann Fowler"), "{shown}");
}

/// Guarantees: AT-REST-1.
#[test]
fn chunks_never_pass_through_encrypted_store() {
    assert!(wrapped(EnvelopeOptions::default()).1.relay().is_some());
    assert!(wrapped(all()).1.relay().is_none());
}
