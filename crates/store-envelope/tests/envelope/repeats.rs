//! A repeated append is recognized, whatever changed after the first.

use ferrata_store::{At, CheckpointStore, ErrorKind, MemoryStore, RunId};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore};
use ferrata_testing::{Fault, FaultPlan, FaultStore, LedgerDatabase, LedgerStore, Log};

use super::{all, encrypting, shared};

/// Guarantees: AT-REST-5.
#[tokio::test]
async fn append_with_lost_reply_repeats_under_other_key() {
    let options = [
        EnvelopeOptions::default().with_compress_from(None),
        EnvelopeOptions::default().with_compress_from(Some(0)),
        encrypting(&["old"]),
        encrypting(&["new", "old"]).with_accept_plain(true),
        all().with_accept_plain(true),
    ];
    for first in &options {
        for second in &options {
            let inner = MemoryStore::new();
            let before = EnvelopeStore::new(inner.clone(), first.clone());
            let mut log = Log::new(RunId::new("r").unwrap());
            for records in [1, 3] {
                let append = log.next(records);
                let lost = FaultStore::new(inner.clone(), FaultPlan::new().with_fault(0, Fault::After));
                let lost = EnvelopeStore::new(lost, first.clone());
                let answer = lost.append(vec![append.clone()]).await.remove(0);
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Indeterminate);
                let after = EnvelopeStore::new(inner.clone(), second.clone());
                // A store that cannot decrypt the existing record cannot recognize the repeat. It refuses the append, and writes nothing.
                let reads = after.load(&log.key, At::Latest).await.is_ok();
                let answer = after.append(vec![append.clone()]).await.remove(0);
                match answer {
                    Ok(head) => assert_eq!(head, append.records.last().unwrap().header.head()),
                    Err(error) => assert!(!reads && error.kind() == ErrorKind::Conflict, "{error}"),
                }
                let again = before.append(vec![append.clone()]).await.remove(0);
                assert_eq!(again.unwrap(), append.records.last().unwrap().header.head());
                log.note_append(&append);
            }
            assert_eq!(inner.head(&log.key).await.unwrap().unwrap().seq.get(), 3);
        }
    }
}

#[tokio::test]
async fn other_record_at_same_position_conflicts() {
    let store = EnvelopeStore::new(MemoryStore::new(), all());
    let mut log = Log::new(RunId::new("r").unwrap());
    log.write(&store, 2).await;
    let (one, other) = (log.next(1), log.next(1));
    store.append(vec![one.clone()]).await.remove(0).unwrap();
    let refused = store.append(vec![other]).await.remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    // The same id with another body, from a faulty caller.
    let mut twisted = one.clone();
    let record = twisted.records.remove(0);
    twisted.records.push(ferrata_store::Record::seal(record.header, "{}".into()).unwrap());
    let refused = store.append(vec![twisted]).await.remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn refused_batch_entry_is_never_stored_in_plaintext() {
    let (inner, store) = super::wrapped(all());
    let log = |run: &str| Log::new(RunId::new(run).unwrap());
    let (good, mut bad) = (log("good").next(2), log("bad").next(2));
    bad.records[1].header.body_crc ^= 1;
    let after_bad = log("bad").next(1);
    let doubled = log("good").next(1);
    let answers = store.append(vec![bad.clone(), good.clone(), after_bad, doubled]).await;
    let kinds: Vec<_> =
        answers.into_iter().map(|answer| answer.map(drop).map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Err(ErrorKind::Corrupt), Ok(()), Err(ErrorKind::Invalid), Err(ErrorKind::Invalid)]);
    assert!(inner.head(&bad.run).await.unwrap().is_none());
    let kept = inner.load(&good.run, At::Latest).await.unwrap().unwrap();
    assert!(kept.iter().all(|record| record.body[..3] == [0xFE, 1, 2] || record.body[..3] == [0xFE, 1, 3]));
}

#[tokio::test]
async fn record_committed_with_rows_is_encrypted() {
    let inner = LedgerStore::new();
    let store = EnvelopeStore::new(inner.clone(), all());
    let log = Log::new(RunId::new("r").unwrap());
    let append = log.next(2);
    let transactions = store.transactions().unwrap();
    let mut transaction = transactions.begin(&append.run).await.unwrap();
    let rows: &mut <LedgerDatabase as ferrata_store::Database>::Transaction =
        transaction.downcast_mut().unwrap();
    rows.add("cash", 7);
    transactions.commit(transaction, append.clone()).await.unwrap();
    assert_eq!(inner.row("cash").await, 7);
    assert_eq!(store.load(&append.run, At::Latest).await.unwrap().unwrap().last(), append.records.last());
    let kept = inner.load(&append.run, At::Latest).await.unwrap().unwrap();
    assert!(kept.iter().all(|record| record.body[0] == 0xFE));
    assert!(shared(EnvelopeStore::new(MemoryStore::new(), all())).transactions().is_none());
}
