//! Many at once: writers of one run, of many runs, and readers in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata_core::store::{At, Order, PruneCut, RunAppend, RunQuery};
use ferrata_core::{Error, ErrorKind, HeadRef, Result, Seq};

use crate::stage::{
    Log, Stage, Store, append_one, appended, every_run, facts, is_kept, is_kept_at_head, ok, together,
};

/// Sends each append from its own task and instance, and returns the one that won, after checking that the others lost.
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

async fn instances(stage: &Stage, count: usize) -> Vec<Store> {
    let mut stores = vec![stage.store()];
    while stores.len() < count {
        stores.push(stage.another().await);
    }
    stores
}

/// Of two instances that append after the same head, exactly one succeeds, and the log stays one line.
pub(crate) async fn one_of_two_writers_wins(stage: Stage) {
    let stores = instances(&stage, 2).await;
    let mut log = stage.written("r-1", 1).await;
    for round in 0..20 {
        let appends = vec![log.next(1 + round % 3), log.next(1)];
        log.took(&one_wins(&stores, appends).await);
        is_kept_at_head(&*stores[round % 2], &log).await;
    }
    is_kept(&*stores[0], &log).await;
}

/// The same for a start: of several, one makes the run.
pub(crate) async fn one_of_many_starts_wins(stage: Stage) {
    let stores = instances(&stage, 4).await;
    for round in 0..5 {
        let run = format!("r-{round}");
        let logs: Vec<Log> = (0..8).map(|n| stage.log(&run).with_facts(facts("w", n))).collect();
        let appends: Vec<_> = logs.iter().map(|log| log.next(1)).collect();
        let winner = one_wins(&stores, appends).await;
        let facts = winner.facts.clone().expect("a start has facts");
        let mut log = stage.log(&run).with_facts(facts);
        log.took(&winner);
        for store in &stores {
            is_kept(&**store, &log).await;
        }
    }
}

/// Sixteen writers that each try until they have written ten records make one line of all of them.
pub(crate) async fn sixteen_writers_make_one_line(stage: Stage) {
    const WRITERS: usize = 16;
    const EACH: usize = 10;
    let stores = instances(&stage, 4).await;
    let log = stage.written("r-1", 1).await;
    let writers = stores.iter().cycle().take(WRITERS).cloned().map(|store| {
        let mut seen = log.clone();
        async move {
            let mut wrote = Vec::new();
            while wrote.len() < EACH {
                let append = seen.next(1);
                match append_one(&*store, &append).await {
                    Ok(head) => wrote.push(head),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                }
                // Only the last record matters for the next try.
                seen.records =
                    ok(store.load(&seen.key, At::Latest).await, "loading").expect("the run exists");
            }
            wrote
        }
    });
    let wrote = together(writers).await.concat();
    let history = crate::stage::every_header(&*stores[0], &log.key, Order::OldestFirst, 100).await;
    assert_eq!(history.len(), 1 + WRITERS * EACH, "each record that was acknowledged is there once");
    for (before, after) in history.iter().zip(&history[1..]) {
        assert_eq!((after.seq, after.prev), (before.seq.next(), Some(before.id)), "one unbroken line");
    }
    let mut acknowledged: Vec<_> = wrote.iter().map(|head| (head.seq, head.id)).collect();
    acknowledged.sort();
    let kept: Vec<_> = history[1..].iter().map(|header| (header.seq, header.id)).collect();
    assert_eq!(acknowledged, kept, "what was acknowledged is what is there");
}

/// A hundred runs grow at once, each undisturbed by the others.
pub(crate) async fn a_hundred_runs_grow_at_once(stage: Stage) {
    let tasks = (0..100).map(|n| {
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
    let listed = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, 1_000).await;
    assert_eq!(listed.len(), 100, "every run is listed");
}

/// Runs a writer, and readers until it is done.
async fn while_writing<F: Future<Output = ()> + Send + 'static>(
    stores: &[Store],
    writer: impl Future<Output = ()> + Send + 'static,
    read: impl Fn(Store) -> F + Clone + Send + 'static,
) {
    let is_done = Arc::new(AtomicBool::new(false));
    let mut tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for store in stores {
        let (store, read, is_done) = (Arc::clone(store), read.clone(), Arc::clone(&is_done));
        tasks.push(Box::pin(async move {
            // At least once, also when the writer was faster.
            loop {
                let was_done = is_done.load(Ordering::SeqCst);
                read(Arc::clone(&store)).await;
                if was_done {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    tasks.push(Box::pin(async move {
        writer.await;
        is_done.store(true, Ordering::SeqCst);
    }));
    together(tasks).await;
}

/// Whoever sees a head can load everything up to it, while the log grows in appends of several records.
pub(crate) async fn what_a_head_names_can_be_loaded(stage: Stage) {
    let stores = instances(&stage, 3).await;
    let mut log = stage.written("r-1", 1).await;
    let (key, writer) = (log.key.clone(), stage.store());
    let write = async move {
        for count in (1..=4).cycle().take(60) {
            log.write(&*writer, count).await;
            tokio::task::yield_now().await;
        }
    };
    while_writing(&stores, write, move |store| {
        let key = key.clone();
        async move {
            let head = ok(store.head(&key).await, "reading the head").expect("the run exists");
            let loaded = ok(store.load(&key, At::Seq(head.seq)).await, "loading what the head names");
            let loaded = loaded.expect("the run exists");
            let (first, last) = (&loaded[0].header, &loaded[loaded.len() - 1].header);
            assert!(first.base, "a load begins with a base");
            assert_eq!(last.head(), head.head(), "the record that the head names");
            for (before, after) in loaded.iter().zip(&loaded[1..]) {
                assert_eq!(after.header.prev, Some(before.header.id), "what is loaded is one line");
            }
            let history = crate::stage::every_header(&*store, &key, Order::OldestFirst, 1_000).await;
            assert!(history.len() as u64 > head.seq.get(), "the history reaches the head");
            for (place, header) in (0..).zip(&history) {
                assert_eq!(header.seq, Seq::new(place), "the history has no hole");
            }
        }
    })
    .await;
}

/// An append of several records is seen whole or not at all.
pub(crate) async fn an_append_is_seen_whole_or_not_at_all(stage: Stage) {
    const EACH: usize = 5;
    let stores = instances(&stage, 3).await;
    let mut log = stage.log("r-1");
    log.write(&*stage.store(), EACH).await;
    let (key, writer) = (log.key.clone(), stage.store());
    let write = async move {
        for _ in 0..40 {
            log.write(&*writer, EACH).await;
            tokio::task::yield_now().await;
        }
    };
    while_writing(&stores, write, move |store| {
        let key = key.clone();
        async move {
            let head = ok(store.head(&key).await, "reading the head").expect("the run exists");
            let seen = usize::try_from(head.seq.get()).expect("the log is short") + 1;
            assert!(seen.is_multiple_of(EACH), "a head after {seen} records, written {EACH} at a time");
            let loaded = ok(store.load(&key, At::Latest).await, "loading").expect("the run exists");
            let seen = loaded.last().map_or(0, |record| record.header.seq.get() + 1);
            assert!(seen.is_multiple_of(EACH as u64), "{seen} records loaded, written {EACH} at a time");
        }
    })
    .await;
}

/// A listing during writes has every run that is there throughout.
pub(crate) async fn a_listing_during_writes_has_every_run(stage: Stage) {
    let stores = instances(&stage, 3).await;
    let mut logs = Vec::new();
    for n in 0..20 {
        logs.push(stage.written(&format!("there-{n}"), 1).await);
    }
    let there: Vec<_> = logs.iter().map(|log| log.key.clone()).collect();
    let passing: Vec<_> = (0..20).map(|n| stage.log(&format!("passing-{n}"))).collect();
    let writer = stage.store();
    let write = async move {
        for (mut log, mut passing) in logs.into_iter().zip(passing) {
            passing.write(&*writer, 1).await;
            log.write(&*writer, 2).await;
            ok(writer.purge(&passing.key).await, "purging");
        }
    };
    while_writing(&stores, write, move |store| {
        let there = there.clone();
        async move {
            let listed = every_run(&*store, &RunQuery::default(), Order::NewestFirst, 7).await;
            let mut seen: Vec<_> =
                listed.into_iter().map(|head| head.run).filter(|run| there.contains(run)).collect();
            seen.sort();
            let mut expected = there;
            expected.sort();
            assert_eq!(seen, expected, "every run that is there throughout, once");
        }
    })
    .await;
}

/// Appends go on while another instance prunes; both find what they need.
pub(crate) async fn appends_go_on_while_pruning(stage: Stage) {
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
    log.pruned(firsts[0], None);
    is_kept(&*writer, &log).await;
}

/// A purge during appends ends the life of the run: the writer is refused from then on, and nothing is left.
pub(crate) async fn a_purge_during_appends_ends_the_run(stage: Stage) {
    let (writer, purger) = (stage.store(), stage.another().await);
    for round in 0..5 {
        let log = stage.written(&format!("r-{round}"), 1).await;
        let (key, mut empty) = (log.key.clone(), log.clone());
        empty.records.clear();
        let write = {
            let (writer, mut log) = (Arc::clone(&writer), log);
            async move {
                loop {
                    let append = log.next(2);
                    match append_one(&*writer, &append).await {
                        Ok(_) => log.took(&append),
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
            // Some appends first, as far as the scheduler allows.
            while ok(store.head(&key).await, "reading the head").is_some_and(|head| head.seq.get() < 5) {
                tokio::task::yield_now().await;
            }
            ok(store.purge(&key).await, "purging while another appends");
        };
        tokio::join!(together([write]), together([purge]));
        is_kept_at_head(&*writer, &empty).await;
        is_kept_at_head(&*purger, &empty).await;
        appended(&*purger, &empty.next(1)).await;
    }
}
