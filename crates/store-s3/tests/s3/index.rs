//! The index: it never lacks a run with a log, stale entries are removed, and it can be rebuilt.

use std::time::Duration;

use ferrata_store::{CheckpointStore as _, ErrorKind, Order, Page, RunQuery, RunStatus, Timestamp};
use ferrata_store_s3::S3Store;

use crate::author::{append_to, every_run, is_kept, log_of, next_in, written};
use crate::memory::{Fault, Memory};
use crate::raw::Raw;

async fn scene() -> (Memory, S3Store) {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    (memory, store)
}

const INDEX: &str = "some/prefix/index";

/// A repair restores every deleted index entry, and changes no correct one.
///
/// Guarantees: S3-11.
#[tokio::test]
async fn lost_index_is_rebuilt_from_logs() {
    let (memory, store) = scene().await;
    let mut logs = Vec::new();
    for n in 0..5 {
        let mut log = written(&store, &format!("r-{n}"), &[1, 2]).await;
        if n % 2 == 0 {
            let end = next_in(&log, 1, RunStatus::Completed);
            append_to(&store, &end).await.unwrap();
            log.note_append(&end);
        }
        logs.push(log);
    }
    let whole = store.repair().await.unwrap();
    assert_eq!((whole.runs, whole.indexed, whole.unreadable), (5, 0, 0), "no repair was needed: {whole:?}");
    for gone in [0..1, 1..2, 2..3, 3..4, 4..5, 0..5] {
        let gone = &memory.keys(INDEX)[gone];
        memory.objects().retain(|key, _| !gone.contains(key));
        let fresh = Raw::on(&memory).store();
        assert!(every_run(&fresh).await.len() < 5, "the index lacks {gone:?}");
        let mended = fresh.repair().await.unwrap();
        assert_eq!((mended.runs, mended.indexed), (5, gone.len() as u64), "{mended:?}");
        for log in &logs {
            is_kept(log, &fresh, "after mending").await;
        }
    }
}

/// A run that was never written, or an outdated status, is not listed, and its entries are removed once they are old.
///
/// Guarantees: S3-12.
#[tokio::test]
async fn stale_entries_are_passed_over_and_go() {
    let (memory, store) = scene().await;
    let mut log = written(&store, "r", &[1]).await;
    // A writer that loses a conflict leaves nothing. One that dies before its log write leaves an entry.
    let late = next_in(&log, 1, RunStatus::Failed);
    log.write(&Raw::on(&memory).store(), 1).await;
    append_to(&store, &late).await.unwrap_err();
    let dying = Raw::on(&memory).store();
    for append in [log_of("never", 3).next(1), next_in(&log, 1, RunStatus::Cancelled)] {
        memory.plan(|asked| (asked.is_conditional || asked.method == "DELETE").then_some(Fault::HangUp));
        append_to(&dying, &append).await.unwrap_err();
        memory.no_plan();
    }
    let count = || memory.keys(INDEX).len();
    assert_eq!(count(), 3, "{:?}", memory.keys(INDEX));
    is_kept(&log, &store, "with stale entries").await;
    assert_eq!(count(), 3, "a recent entry may still be needed");

    // The run ends. Its entry as an active run is removed at once, and the others after nobody can need them.
    let end = next_in(&log, 1, RunStatus::Completed);
    append_to(&store, &end).await.unwrap();
    log.note_append(&end);
    memory.advance(Duration::from_secs(2 * 60 * 60));
    is_kept(&log, &store, "when they are old").await;
    assert_eq!(memory.keys(INDEX).len(), 1, "one run, one entry: {:?}", memory.keys(INDEX));
}

/// While a run alternates between finished and active, every listing contains it.
///
/// Guarantees: S3-12.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn run_changing_status_is_in_every_listing() {
    let (memory, store) = scene().await;
    let mut log = written(&store, "restless", &[1]).await;
    for n in 0..20 {
        written(&store, &format!("other-{n}"), &[1]).await;
    }
    let key = log.key.clone();
    let writer = async {
        for n in 0..40 {
            let status = [RunStatus::Failed, RunStatus::InProgress][n % 2];
            let append = next_in(&log, 1, status);
            append_to(&store, &append).await.unwrap();
            log.note_append(&append);
        }
    };
    let reader = Raw::on(&memory).store();
    let reading = async {
        loop {
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let page = Page::first(1_000).with_order(order);
                let listed = reader.runs(&RunQuery::default(), page).await.unwrap().items;
                assert_eq!(listed.iter().filter(|head| head.run == key).count(), 1, "listed once, {order:?}");
            }
        }
    };
    tokio::select! {
        () = writer => {}
        () = reading => {}
    }
    is_kept(&log, &store, "in the end").await;
}

/// If the server refuses the objects of one run, listings omit the run. If it refuses those of all runs, the listing fails.
///
/// Guarantees: S3-14.
#[tokio::test]
async fn run_with_refused_object_is_omitted_from_listing() {
    for (status, code) in [(403, "InvalidObjectState"), (403, "AccessDenied")] {
        let (memory, store) = scene().await;
        let mut logs = Vec::new();
        for n in 0..3 {
            logs.push(written(&store, &format!("r-{n}"), &[1]).await);
        }
        let refuse = |what: &'static str| {
            memory.plan(move |asked| {
                let is_meant = asked.method == "GET" && asked.path.contains(what);
                (is_meant && !asked.path.contains("list-type")).then_some(Fault::Refuse(status, code))
            });
        };
        let reader = Raw::on(&memory).store();
        reader.setup().await.unwrap();
        refuse("/r-1/");
        let listed: Vec<_> = every_run(&reader).await.into_iter().map(|head| head.run).collect();
        assert_eq!(listed, [logs[2].key.clone(), logs[0].key.clone()], "{code}: the other runs");
        memory.objects().retain(|key, _| !key.starts_with(INDEX));
        let mended = reader.repair().await.unwrap();
        assert_eq!((mended.runs, mended.indexed, mended.unreadable), (2, 2, 1), "{code}: {mended:?}");
        memory.no_plan();
        reader.repair().await.unwrap();
        refuse("/r-1/");
        let error = reader.head(&logs[1].key).await.unwrap_err();
        assert!(error.kind() != ErrorKind::Corrupt, "{code}: {error:?}");
        let mut complete = RunQuery::default();
        complete.complete = true;
        let error = reader.runs(&complete, Page::first(10)).await.unwrap_err();
        assert_eq!(error.run(), Some(&logs[1].key), "{code}: a complete listing must fail: {error:?}");
        refuse("/log/");
        let page = Page::first(10);
        let error = reader.runs(&RunQuery::default(), page).await.unwrap_err();
        assert!(error.to_string().contains(code), "{code}: {error:?}");
        let error = reader.repair().await.unwrap_err();
        assert!(error.to_string().contains(code), "{code}: {error:?}");
        memory.no_plan();
        assert_eq!(every_run(&reader).await.len(), 3, "{code}: afterwards");
    }
}

/// A refused run is also omitted if it is the only match among a thousand entries.
///
/// Guarantees: S3-14.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn distant_refused_run_is_omitted_from_listing() {
    let (memory, store) = scene().await;
    let mut appends = Vec::new();
    for created in 0..1_102 {
        let (run, status) = match created {
            0 => ("oldest".to_owned(), RunStatus::InProgress),
            1_101 => ("newest".to_owned(), RunStatus::InProgress),
            n => (format!("waits-{n}"), RunStatus::AwaitingInput),
        };
        let mut log = log_of(&run, 1);
        log.facts.created = Timestamp::from_unix_ms(created);
        appends.push(next_in(&log, 1, status));
    }
    for said in store.append(appends).await {
        said.unwrap();
    }
    let mut query = RunQuery::default();
    query.statuses = vec![RunStatus::InProgress];
    let refuse = |refused: &'static [&'static str]| {
        memory.plan(move |asked| {
            let is_meant = asked.method == "GET" && refused.iter().any(|run| asked.path.contains(run));
            let is_get = is_meant && !asked.path.contains("list-type");
            is_get.then_some(Fault::Refuse(403, "InvalidObjectState"))
        });
    };
    for order in [Order::NewestFirst, Order::OldestFirst] {
        for (refused, other) in [(&["/oldest/"], "newest"), (&["/newest/"], "oldest")] {
            refuse(refused);
            let reader = Raw::on(&memory).store();
            let listed = reader.runs(&query, Page::first(10).with_order(order)).await.unwrap().items;
            let listed: Vec<_> = listed.iter().map(|head| head.run.run.as_str()).collect();
            assert_eq!(listed, [other], "{order:?}");
        }
        refuse(&["/oldest/", "/newest/"]);
        let reader = Raw::on(&memory).store();
        let error = reader.runs(&query, Page::first(10).with_order(order)).await.unwrap_err();
        assert!(error.to_string().contains("InvalidObjectState"), "{order:?}: {error:?}");
    }
}

/// If the server refuses the objects of all other runs, a run that was announced and never written does not show that the server works. A run whose
/// end marker is readable does.
///
/// Guarantees: S3-14.
#[tokio::test]
async fn unwritten_start_hides_no_refusal() {
    let (memory, store) = scene().await;
    let log = written(&store, "r", &[1]).await;
    let dying = Raw::on(&memory).store();
    dying.setup().await.unwrap();
    memory.plan(|asked| (asked.is_conditional || asked.method == "DELETE").then_some(Fault::HangUp));
    append_to(&dying, &log_of("never", 3).next(1)).await.unwrap_err();
    memory.no_plan();
    let refuse = |refused: &'static str| {
        memory.plan(move |asked| {
            let is_meant = asked.method == "GET" && asked.path.contains(refused);
            (is_meant && !asked.path.contains("list-type")).then_some(Fault::Refuse(403, "AccessDenied"))
        });
    };
    let reader = Raw::on(&memory).store();
    reader.setup().await.unwrap();
    for order in [Order::NewestFirst, Order::OldestFirst] {
        refuse("/log/");
        let page = Page::first(10).with_order(order);
        let error = reader.runs(&RunQuery::default(), page.clone()).await.unwrap_err();
        assert!(error.to_string().contains("AccessDenied"), "{order:?}: {error:?}");
        memory.no_plan();
        let listed = reader.runs(&RunQuery::default(), page).await.unwrap().items;
        assert_eq!(listed.len(), 1, "{order:?}: afterwards");
    }
    // A purge that leaves its index entry.
    let gone = written(&store, "gone", &[1]).await;
    let entries = memory.keys(INDEX);
    store.purge(&gone.key, None).await.unwrap();
    entries.iter().filter(|key| key.contains("gone")).for_each(|key| memory.set(key, ""));
    refuse("/r/");
    let listed = reader.runs(&RunQuery::default(), Page::first(10)).await.unwrap().items;
    assert_eq!(listed, [], "only {} must be omitted", log.key);
}
