//! Concurrent writers: of one run, of many runs, and together with prunes and purges.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata_store::{
    At, Error, ErrorKind, HeadRef, HeaderRange, Order as Listed, PruneCut, Result, RunAppend, RunQuery,
};

use crate::stage::{
    Log, Store, TestStage, append_one, appended, every_run, facts, is_kept, is_kept_at_head, ok, together,
};

/// Sends each append from its own task and instance. Checks that exactly one succeeds, and returns it.
async fn one_wins(stores: &[Store], appends: Vec<RunAppend>) -> RunAppend {
    let tasks = appends.iter().cloned().zip(stores.iter().cycle().cloned());
    let results =
        together(tasks.map(|(append, store)| async move { append_one(&*store, &append).await })).await;
    let mut winners = Vec::new();
    for (append, result) in appends.into_iter().zip(&results) {
        if result.is_ok() {
            winners.push(append);
        }
    }
    assert_eq!(winners.len(), 1, "exactly one of several appends after the same head succeeds: {results:?}");
    let winner = winners.remove(0);
    let head = winner.records.last().map(|record| record.header.head());
    for result in results {
        is_lost_to(result, head);
    }
    winner
}

fn is_lost_to(result: Result<HeadRef>, head: Option<HeadRef>) {
    let actual = match result {
        Ok(won) => Some(Some(won)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "the others learn of the conflict: {error:?}");
            Error::actual_head(&error)
        }
    };
    assert_eq!(actual, Some(head), "the head that won is the actual one");
}

pub(super) async fn instances(stage: &TestStage, count: usize) -> Vec<Store> {
    let mut stores = vec![stage.store()];
    while stores.len() < count {
        stores.push(stage.another().await);
    }
    stores
}

/// If two instances append after the same head, exactly one succeeds, and the log has no branches.
pub(crate) async fn one_of_two_writers_wins(stage: TestStage) {
    let stores = instances(&stage, 2).await;
    let mut log = stage.written("r-1", 1).await;
    for round in 0..20 {
        let appends = vec![log.next(1 + round % 3), log.next(1)];
        log.note_append(&one_wins(&stores, appends).await);
        is_kept_at_head(&*stores[round % 2], &log).await;
    }
    is_kept(&*stores[0], &log).await;
}

/// If several instances start the same run, exactly one succeeds.
pub(crate) async fn one_of_many_starts_wins(stage: TestStage) {
    let stores = instances(&stage, 4).await;
    for round in 0..5 {
        let run = format!("r-{round}");
        let logs: Vec<Log> = (0..8).map(|n| stage.log(&run).with_facts(facts("w", n))).collect();
        let appends: Vec<_> = logs.iter().map(|log| log.next(1)).collect();
        let winner = one_wins(&stores, appends).await;
        let facts = winner.facts.clone().expect("a start has facts");
        let mut log = stage.log(&run).with_facts(facts);
        log.note_append(&winner);
        for store in &stores {
            is_kept(&**store, &log).await;
        }
    }
}

/// Sixteen writers each retry until they have written ten records. The log then has all of these records, without branches.
///
/// Guarantees: RUN-3.
pub(crate) async fn sixteen_writers_make_one_line(stage: TestStage) {
    const WRITERS: usize = 16;
    let each = stage.times(10, 2);
    let stores = instances(&stage, 4).await;
    let log = stage.written("r-1", 1).await;
    let writers = stores.iter().cycle().take(WRITERS).cloned().map(|store| {
        let mut seen = log.clone();
        async move {
            let mut wrote = Vec::new();
            while wrote.len() < each {
                let append = seen.next(1);
                match append_one(&*store, &append).await {
                    Ok(head) => wrote.push(head),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                }
                // The next attempt needs only the last record.
                seen.records =
                    ok(store.load(&seen.key, At::Latest).await, "loading").expect("the run exists");
            }
            wrote
        }
    });
    let wrote = together(writers).await.concat();
    let history = crate::stage::every_header(&*stores[0], &log.key, HeaderRange::oldest(100)).await;
    assert_eq!(history.len(), 1 + WRITERS * each, "each record that was acknowledged is there once");
    for (before, after) in history.iter().zip(&history[1..]) {
        assert_eq!((after.seq, after.prev), (before.seq.next(), Some(before.id)), "one unbroken line");
    }
    let mut acknowledged: Vec<_> = wrote.iter().map(|head| (head.seq, head.id)).collect();
    acknowledged.sort();
    let kept: Vec<_> = history[1..].iter().map(|header| (header.seq, header.id)).collect();
    assert_eq!(acknowledged, kept, "what was acknowledged is what is there");
}

/// A hundred runs grow at the same time, without effect on each other.
pub(crate) async fn a_hundred_runs_grow_at_once(stage: TestStage) {
    let runs = stage.times(100, 20);
    let tasks = (0..runs).map(|n| {
        let (store, mut log) = (stage.store(), stage.log(&format!("r-{n}")));
        async move {
            for count in [1, 2, 1, 3] {
                log.write(&*store, count).await;
            }
            log
        }
    });
    for log in together(tasks).await {
        is_kept(&*stage.store(), &log).await;
    }
    let listed = every_run(&*stage.store(), &RunQuery::default(), Listed::OldestFirst, 1_000).await;
    assert_eq!(listed.len(), runs, "every run is listed");
}

/// Appends run while another instance prunes. Both succeed.
pub(crate) async fn appends_go_on_while_pruning(stage: TestStage) {
    let (writer, pruner) = (stage.store(), stage.another().await);
    let log = stage.written("r-1", 1).await;
    let key = log.key.clone();
    let write = {
        let (writer, mut log) = (Arc::clone(&writer), log);
        async move {
            for count in (1..=3).cycle().take(60) {
                log.write(&*writer, count).await;
                tokio::task::yield_now().await;
            }
            log
        }
    };
    let prune = async move {
        let mut first = 0;
        for _ in 0..30 {
            let loaded = ok(pruner.load(&key, At::Latest).await, "loading").expect("the run exists");
            let at = loaded[0].header.seq;
            ok(pruner.prune(&key, PruneCut { at, base: None }).await, "pruning while others append");
            first = at.get();
            tokio::task::yield_now().await;
        }
        first
    };
    let (mut logs, firsts) = tokio::join!(together([write]), together([prune]));
    let mut log = logs.remove(0);
    log.note_pruned(firsts[0], None);
    is_kept(&*writer, &log).await;
}

/// A purge during appends ends the run. From then on the store refuses the writer, and nothing remains.
pub(crate) async fn a_purge_during_appends_ends_the_run(stage: TestStage) {
    let (writer, purger) = (stage.store(), stage.another().await);
    for round in 0..5 {
        let log = stage.written(&format!("r-{round}"), 1).await;
        let (key, mut empty) = (log.key.clone(), log.clone());
        empty.records.clear();
        let is_purged = Arc::new(AtomicBool::new(false));
        let write = {
            let (writer, mut log, is_purged) = (Arc::clone(&writer), log, Arc::clone(&is_purged));
            async move {
                loop {
                    let append = log.next(2);
                    let is_late = is_purged.load(Ordering::SeqCst);
                    match append_one(&*writer, &append).await {
                        Ok(_) => {
                            assert!(!is_late, "an append to a run that was purged must not succeed");
                            log.note_append(&append);
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                            assert_eq!(error.actual_head(), Some(None), "the run is gone: {error:?}");
                            return;
                        }
                    }
                    tokio::task::yield_now().await;
                }
            }
        };
        let store = Arc::clone(&purger);
        let purge = async move {
            // Let some appends happen first, if the scheduler allows it.
            while ok(store.head(&key).await, "reading the head").is_some_and(|head| head.seq.get() < 5) {
                tokio::task::yield_now().await;
            }
            ok(store.purge(&key, None).await, "purging while another appends");
            is_purged.store(true, Ordering::SeqCst);
        };
        tokio::join!(together([write]), together([purge]));
        is_kept_at_head(&*writer, &empty).await;
        is_kept_at_head(&*purger, &empty).await;
        appended(&*purger, &empty.next(1)).await;
    }
}

/// If an append and a purge expect the same head, exactly one succeeds, and the other gets an error.
///
/// Guarantees: PURGE-2.
pub(crate) async fn of_an_append_and_a_purge_of_one_head_one_wins(stage: TestStage) {
    let (writer, purger) = (stage.store(), stage.another().await);
    for round in 0..12 {
        let mut log = stage.written(&format!("r-{round}"), 2).await;
        let (append, head, key) = (log.next(1), log.head(), log.key.clone());
        let write = {
            let (writer, append) = (Arc::clone(&writer), append.clone());
            async move { append_one(&*writer, &append).await }
        };
        let store = Arc::clone(&purger);
        let purge = async move { store.purge(&key, head).await };
        let (mut written, mut purged) = if round % 2 == 0 {
            tokio::join!(together([write]), together([purge]))
        } else {
            let (purged, written) = tokio::join!(together([purge]), together([write]));
            (written, purged)
        };
        match (written.remove(0), purged.remove(0)) {
            (Ok(_), Err(refused)) => {
                assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
                log.note_append(&append);
                is_kept(&*purger, &log).await;
            }
            (Err(refused), Ok(purged)) => {
                assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
                assert_eq!(purged.records, 2, "the purge removes what it expected");
                log.records.clear();
                is_kept_at_head(&*writer, &log).await;
            }
            (written, purged) => panic!("an append and a purge of one head: {written:?}, {purged:?}"),
        }
    }
}
