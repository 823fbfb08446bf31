//! The number of requests per call, as in `docs/reference/store-s3.md`, counted by the server.

use ferrata_store::{
    At, CheckpointStore as _, ExecutorId, HeaderRange, Page, PruneCut, RunQuery, RunStatus, Seq,
};

use crate::author::{append_to, is_kept, log_of, next_in, written};
use crate::memory::Memory;
use crate::raw::Raw;

/// Describes requests in sorted order: the method and the part of the bucket.
fn kinds(memory: &Memory) -> Vec<String> {
    let mut kinds: Vec<_> = memory
        .take_asked()
        .into_iter()
        .map(|asked| {
            let about = ["index", "log", "executors", "ferrata.json"];
            let about = about.into_iter().find(|part| asked.path.contains(part)).unwrap_or("?");
            let list = if asked.path.contains("list-type") { "LIST" } else { asked.method.as_str() };
            format!("{list} {about}")
        })
        .collect();
    kinds.sort();
    kinds
}

/// Guarantees: S3-13, SCALE-1.
#[tokio::test]
async fn calls_cost_what_the_manual_says() {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    store.setup().await.unwrap();
    let mut log = log_of("r", 1);
    kinds(&memory);

    let mut step = async |what: &str, count: usize, status: RunStatus, expected: &[&str]| {
        let append = next_in(&log, count, status);
        append_to(&store, &append).await.unwrap();
        log.note_append(&append);
        assert_eq!(kinds(&memory), expected, "{what}");
    };
    let go = RunStatus::InProgress;
    step("a start", 1, go, &["PUT index", "PUT log"]).await;
    step("a step", 1, go, &["PUT log"]).await;
    step("five records in one append", 5, go, &["PUT log"]).await;
    step("another status", 1, RunStatus::Interrupted, &["DELETE index", "PUT index", "PUT log"]).await;
    step("the end", 1, RunStatus::Completed, &["DELETE index", "PUT index", "PUT log"]).await;

    let found = append_to(&store, &log_of("r", 5).next(1)).await.unwrap_err();
    assert_eq!(found.kind(), ferrata_store::ErrorKind::Conflict, "{found:?}");
    assert_eq!(kinds(&memory), ["LIST log"], "a start of a run that this process knows");

    let fresh = Raw::on(&memory).store();
    append_to(&fresh, &log_of("r", 5).next(1)).await.unwrap_err();
    assert_eq!(
        kinds(&memory),
        ["DELETE index", "GET ferrata.json", "GET log", "GET log", "LIST log", "PUT index", "PUT log"],
        "a start of an existing run, by another process"
    );
    let fresh = Raw::on(&memory).store();
    let again = next_in(&log, 1, RunStatus::Completed);
    append_to(&fresh, &again).await.unwrap();
    log.note_append(&again);
    assert_eq!(
        kinds(&memory),
        ["GET ferrata.json", "GET log", "LIST log", "PUT log"],
        "a step by another process"
    );

    store.head(&log.key).await.unwrap();
    assert_eq!(kinds(&memory), ["GET log", "GET log", "LIST log"], "a head that changed");
    store.head(&log.key).await.unwrap();
    assert_eq!(kinds(&memory), ["GET log", "LIST log"], "a head that is cached");
    store.load(&log.key, At::Seq(Seq::new(8))).await.unwrap();
    assert_eq!(kinds(&memory), ["GET log", "GET log", "LIST log", "LIST log"], "a load at a base");
    store.runs(&RunQuery::default(), Page::default()).await.unwrap();
    assert_eq!(
        kinds(&memory),
        ["GET log", "LIST index", "LIST index", "LIST log"],
        "a listing of one cached run"
    );
    store
        .heartbeat(&ExecutorId::from_uuid(*log.records[0].header.id.as_uuid()), std::time::Duration::MAX)
        .await
        .unwrap();
    assert_eq!(kinds(&memory), ["PUT executors"], "a heartbeat");
    store.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await.unwrap();
    let pruned = kinds(&memory);
    assert!(pruned.len() <= 10, "a prune of four objects: {pruned:?}");

    store.purge(&log.key, None).await.unwrap();
    kinds(&memory);
    append_to(&fresh, &log_of("r", 6).next(1)).await.unwrap();
    assert_eq!(
        kinds(&memory),
        ["GET log", "LIST log", "PUT index", "PUT log"],
        "a start of a purged id that this process knows"
    );
    store.purge(&log.key, None).await.unwrap();
    kinds(&memory);
    append_to(&Raw::on(&memory).store(), &log_of("r", 6).next(1)).await.unwrap();
    assert_eq!(
        kinds(&memory),
        [
            "DELETE index",
            "GET ferrata.json",
            "GET log",
            "LIST log",
            "PUT index",
            "PUT index",
            "PUT log",
            "PUT log"
        ],
        "a start of a purged id, by another process"
    );
}

/// Runs of twenty steps in one batch share their requests: two to start, one for each step, two to end, and one for all leftover index entries.
///
/// Guarantees: S3-13.
#[tokio::test]
async fn batch_of_runs_shares_requests() {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    store.setup().await.unwrap();
    let mut logs: Vec<_> = (0..8).map(|n| log_of(&format!("r-{n}"), n + 1)).collect();
    memory.take_asked();
    for step in 0..=20 {
        let status = if step < 20 { RunStatus::InProgress } else { RunStatus::Completed };
        let batch: Vec<_> = logs.iter().map(|log| next_in(log, 1, status)).collect();
        for done in store.append(batch.clone()).await {
            done.unwrap();
        }
        for (log, append) in logs.iter_mut().zip(&batch) {
            log.note_append(append);
        }
    }
    let kinds = kinds(&memory);
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    assert_eq!((count("PUT log"), count("PUT index"), count("POST ?")), (8 * 21, 8 * 2, 1), "{kinds:?}");
    assert_eq!(kinds.len(), 8 * 23 + 1, "no other requests: {kinds:?}");
    for log in &logs {
        is_kept(log, &store, "after a batch of ends").await;
    }
    assert_eq!(memory.keys("some/prefix/index").len(), logs.len(), "one entry for each run");
}

/// The target is 300 bytes in addition to the caller's data.
///
/// Guarantees: S3-13.
#[tokio::test]
async fn step_adds_under_300_bytes_to_body() {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    let mut log = written(&store, "r", &[1]).await;
    let before = memory.written_bytes();
    let mut bodies = 0;
    for _ in 0..50 {
        let append = log.next(1);
        bodies += append.records[0].body.len() as u64;
        append_to(&store, &append).await.unwrap();
        log.note_append(&append);
    }
    let beside = (memory.written_bytes() - before - bodies) / 50;
    assert!(beside < 300, "{beside} bytes");
}

/// A page of a history costs the same in long and short runs, at every position.
///
/// Guarantees: S3-13.
#[tokio::test]
async fn history_of_ten_thousand_records_pages_cheaply() {
    const LIMIT: u32 = 100;
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    let mut log = written(&store, "r", &[1]).await;
    for _ in 0..999 {
        log.write(&store, 10).await;
    }
    // The worst case at the end: one object per record.
    for _ in 0..9 {
        log.write(&store, 1).await;
    }
    assert_eq!(log.records.len(), 10_000);
    for start in [HeaderRange::newest(LIMIT), HeaderRange::oldest(LIMIT)] {
        let (mut range, mut seen) = (Some(start), Vec::new());
        memory.take_asked();
        while let Some(range_asked) = range {
            let listed = store.headers(&log.key, range_asked).await.unwrap();
            let asked = memory.take_asked();
            let lists = asked.iter().filter(|asked| asked.path.contains("list-type")).count();
            assert!(lists <= 2 && asked.len() <= 25, "{} requests after {} records", asked.len(), seen.len());
            range = range_asked.after(&listed);
            seen.push(listed.items);
        }
        if start == HeaderRange::newest(LIMIT) {
            seen.reverse();
        }
        let seen = seen.concat().into_iter().map(|header| header.seq.get());
        assert!(seen.eq(0..10_000), "every record once, in order, {start:?}");
    }
}
