//! Tests of the fault store, on the memory store.

use bytes::Bytes;
use ferrata_store::{
    Epoch, FORMAT, Fingerprint, IdSource, MemoryStore, RecordHeader, RecordId, RecordKind, RunFacts, RunId,
    RunStatus, Seq, Timestamp, WorkflowName,
};

use super::*;
use crate::SeqIds;

fn key(run: &str) -> RunKey {
    RunId::new(run).unwrap().into()
}

fn record(ids: &SeqIds, expected: Option<HeadRef>) -> Record {
    let at = Timestamp::from_unix_ms(0);
    let header = RecordHeader {
        format: FORMAT,
        seq: expected.map_or(Seq::new(0), |head| head.seq.next()),
        id: RecordId::from_uuid(ids.next(at)),
        prev: expected.map(|head| head.id),
        kind: RecordKind::Node,
        status: RunStatus::InProgress,
        node: None,
        visit: None,
        epoch: Epoch::new(1),
        owner: None,
        wake_at: None,
        at,
        base: expected.is_none(),
        body_len: 0,
        body_crc: 0,
    };
    Record::seal(header, Bytes::from_static(b"{}")).unwrap()
}

fn start(ids: &SeqIds, run: &str) -> RunAppend {
    let print = Fingerprint::of(b"");
    let workflow = WorkflowName::new("w").unwrap();
    let facts = RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(0)).unwrap();
    RunAppend { run: key(run), expected: None, records: vec![record(ids, None)], facts: Some(facts) }
}

fn kinds(results: &[Result<HeadRef>]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect()
}

async fn exists(store: &FaultStore<MemoryStore>, run: &str) -> bool {
    store.inner().head(&key(run)).await.unwrap().is_some()
}

#[tokio::test]
async fn fault_before_skips_operation_fault_after_performs_it() {
    let ids = SeqIds::new(1);
    for fault in Fault::ALL {
        let store = FaultStore::new(MemoryStore::new(), FaultPlan::new().with_fault(0, fault));
        let kind = kinds(&store.append(vec![start(&ids, "a")]).await)[0].unwrap();
        assert_eq!(exists(&store, "a").await, fault.is_done(), "{fault:?}");
        let expected = match fault {
            Fault::Before => ErrorKind::Unavailable,
            Fault::After | Fault::CrashAfter => ErrorKind::Indeterminate,
            Fault::CrashBefore => ErrorKind::Closed,
        };
        assert_eq!(kind, expected, "{fault:?}");
        assert_eq!(store.is_crashed(), fault.is_crash(), "{fault:?}");
    }
}

#[tokio::test]
async fn each_entry_of_a_batch_is_an_operation() {
    let ids = SeqIds::new(1);
    let plan = FaultPlan::new().with_fault(1, Fault::Before).with_fault(2, Fault::After);
    let store = FaultStore::new(MemoryStore::new(), plan);
    let batch = ["a", "b", "c", "d"].map(|run| start(&ids, run)).to_vec();
    let results = store.append(batch).await;
    assert_eq!(kinds(&results), [None, Some(ErrorKind::Unavailable), Some(ErrorKind::Indeterminate), None]);
    assert_eq!(store.operations(), 4);
    for (run, expected) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        assert_eq!(exists(&store, run).await, expected, "{run}");
    }
}

#[tokio::test]
async fn crash_in_batch_writes_earlier_entries_without_reply() {
    let ids = SeqIds::new(1);
    let store = FaultStore::new(MemoryStore::new(), FaultPlan::new().with_fault(1, Fault::CrashBefore));
    let batch = ["a", "b", "c"].map(|run| start(&ids, run)).to_vec();
    let results = store.append(batch).await;
    let closed = Some(ErrorKind::Closed);
    assert_eq!(kinds(&results), [Some(ErrorKind::Indeterminate), closed, closed]);
    assert!(exists(&store, "a").await);
    assert!(!exists(&store, "b").await && !exists(&store, "c").await);
    // After a crash, reads fail, too.
    assert_eq!(store.head(&key("a")).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kinds(&store.append(vec![start(&ids, "d")]).await), [closed]);
    assert_eq!(store.purge(&key("a"), None).await.unwrap_err().kind(), ErrorKind::Closed);
    let executor = ExecutorId::from_uuid(ids.next(Timestamp::from_unix_ms(0)));
    assert_eq!(
        store.heartbeat(&executor, Duration::from_secs(1)).await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(store.subscribe().is_none());
}

#[tokio::test]
async fn failed_entry_blocks_second_entry_of_its_run() {
    let ids = SeqIds::new(1);
    let store = FaultStore::new(MemoryStore::new(), FaultPlan::new().with_fault(0, Fault::Before));
    let results = store.append(vec![start(&ids, "a"), start(&ids, "a")]).await;
    assert_eq!(kinds(&results), [Some(ErrorKind::Unavailable), Some(ErrorKind::Invalid)]);
}

#[tokio::test]
async fn same_records_settle_lost_reply() {
    let ids = SeqIds::new(1);
    let store = FaultStore::new(MemoryStore::new(), FaultPlan::new().with_fault(0, Fault::After));
    let append = start(&ids, "a");
    assert_eq!(kinds(&store.append(vec![append.clone()]).await), [Some(ErrorKind::Indeterminate)]);
    assert_eq!(kinds(&store.append(vec![append]).await), [None]);
}

#[tokio::test]
async fn a_hook_slips_a_foreign_append_in_between() {
    let ids = SeqIds::new(1);
    let inner = MemoryStore::new();
    let store = FaultStore::new(inner.clone(), FaultPlan::new());
    let foreign = start(&ids, "a");
    store.before(0, async move {
        assert_eq!(kinds(&inner.append(vec![foreign]).await), [None]);
    });
    assert_eq!(kinds(&store.append(vec![start(&ids, "a")]).await), [Some(ErrorKind::Conflict)]);
}

#[tokio::test]
async fn after_hook_runs_once_operation_is_done() {
    let ids = SeqIds::new(1);
    let inner = MemoryStore::new();
    let store = FaultStore::new(inner.clone(), FaultPlan::new());
    store.after(0, async move { assert!(inner.head(&key("a")).await.unwrap().is_some()) });
    assert_eq!(kinds(&store.append(vec![start(&ids, "a")]).await), [None]);
    assert!(format!("{store:?}").contains("operations: 1"));
}

#[tokio::test]
async fn seeded_chance_is_repeatable_and_fair() {
    let faults = |seed| {
        let odds = FaultOdds::default().with_before(0.2).with_after(0.1).with_read(0.5);
        let plan = FaultPlan::new().with_chance(seed, odds);
        let faults: Vec<_> = (0..10_000).map(|operation| plan.fault(operation)).collect();
        (faults, (0..10_000).filter(|read| plan.fails_read(*read)).count())
    };
    let (first, reads) = faults(1);
    assert_eq!((&first, reads), (&faults(1).0, faults(1).1));
    assert_ne!(first, faults(2).0);
    let count = |fault| first.iter().filter(|f| **f == Some(fault)).count();
    assert!((1_850..2_150).contains(&count(Fault::Before)), "{}", count(Fault::Before));
    assert!((680..920).contains(&count(Fault::After)), "{}", count(Fault::After));
    assert!((4_800..5_200).contains(&reads), "{reads}");
}

#[tokio::test]
async fn fault_can_be_planned_for_later_operation() {
    let ids = SeqIds::new(1);
    let store = FaultStore::new(MemoryStore::new(), FaultPlan::new());
    store.append(vec![start(&ids, "a")]).await;
    store.plan(store.operations(), Fault::Before);
    assert_eq!(store.purge(&key("a"), None).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(exists(&store, "a").await);
}

#[tokio::test]
async fn heartbeats_count_as_operations_only_if_planned() {
    let executor = ExecutorId::from_uuid(SeqIds::new(1).next(Timestamp::from_unix_ms(0)));
    let beat = async |plan: FaultPlan| {
        let store = FaultStore::new(MemoryStore::new(), plan.with_fault(0, Fault::After));
        let result = store.heartbeat(&executor, Duration::from_secs(1)).await;
        (result.is_ok(), store.operations())
    };
    assert_eq!(beat(FaultPlan::new()).await, (true, 0));
    assert_eq!(beat(FaultPlan::new().with_heartbeats()).await, (false, 1));
}
