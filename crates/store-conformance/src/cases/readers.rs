//! Readers during writes. They always see complete data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferrata_store::{At, ErrorKind, HeaderRange, Order as Listed, RunQuery, Seq};

use super::concurrency::instances;
use crate::stage::{Store, TestStage, every_header, every_run, ok, together};

/// Runs a writer, and readers until the writer finishes.
pub(super) async fn while_writing<F: Future<Output = ()> + Send + 'static>(
    stores: &[Store],
    writer: impl Future<Output = ()> + Send + 'static,
    read: impl Fn(Store) -> F + Clone + Send + 'static,
) {
    let is_done = Arc::new(AtomicBool::new(false));
    let mut tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for store in stores {
        let (store, read, is_done) = (Arc::clone(store), read.clone(), Arc::clone(&is_done));
        tasks.push(Box::pin(async move {
            // Read at least once, even if the writer was faster.
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

/// While a log grows in appends of several records, a reader can load everything up to each head that it sees.
pub(crate) async fn what_a_head_names_can_be_loaded(stage: TestStage) {
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
            let history = every_header(&*store, &key, HeaderRange::oldest(1_000)).await;
            assert!(history.len() as u64 > head.seq.get(), "the history reaches the head");
            for (place, header) in (0..).zip(&history) {
                assert_eq!(header.seq, Seq::new(place), "the history has no hole");
            }
        }
    })
    .await;
}

/// A reader sees an append of several records completely or not at all.
pub(crate) async fn an_append_is_seen_whole_or_not_at_all(stage: TestStage) {
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

/// While a run is started or purged, a reader sees that it exists or that it does not exist, and never reports damage.
pub(crate) async fn a_run_that_begins_or_goes_is_there_or_not(stage: TestStage) {
    const EACH: usize = 2;
    let stores = instances(&stage, 3).await;
    let logs: Vec<_> = (0..30).map(|n| stage.log(&format!("r-{n}"))).collect();
    let keys: Vec<_> = logs.iter().map(|log| log.key.clone()).collect();
    let current = Arc::new(AtomicUsize::new(0));
    let (writer, place) = (stage.store(), Arc::clone(&current));
    let write = async move {
        for (n, mut log) in logs.into_iter().enumerate() {
            place.store(n, Ordering::SeqCst);
            tokio::task::yield_now().await;
            log.write(&*writer, EACH).await;
            tokio::task::yield_now().await;
            if n % 2 == 0 {
                ok(writer.purge(&log.key, None).await, "purging");
            }
        }
    };
    while_writing(&stores, write, move |store| {
        let key = keys[current.load(Ordering::SeqCst)].clone();
        async move {
            if let Some(head) = ok(store.head(&key).await, "reading the head") {
                assert_eq!(head.seq.get() + 1, EACH as u64, "the head of all that was written at once");
            }
            if let Some(loaded) = ok(store.load(&key, At::Latest).await, "loading") {
                assert_eq!(loaded.len(), EACH, "all that was written at once");
            }
            match store.headers(&key, HeaderRange::oldest(10)).await {
                Ok(headers) => assert_eq!(headers.items.len(), EACH, "all that was written at once"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "it is there or not: {error:?}"),
            }
        }
    })
    .await;
}

/// A listing during writes contains every run that exists during the whole listing.
pub(crate) async fn a_listing_during_writes_has_every_run(stage: TestStage) {
    let stores = instances(&stage, 3).await;
    let mut logs = Vec::new();
    for n in 0..20 {
        logs.push(stage.written(&format!("there-{n}"), 1).await);
    }
    let there: Vec<_> = logs.iter().map(|log| log.key.clone()).collect();
    // Runs come and go before and after the others in every order. A store that counts positions would return a wrong page.
    let passing: Vec<_> =
        (0..20).map(|n| stage.log(&format!("{}-{n}", ["passing", "thereby"][n % 2]))).collect();
    let writer = stage.store();
    let write = async move {
        let mut passed = Vec::new();
        for (mut log, mut passing) in logs.into_iter().zip(passing) {
            passing.write(&*writer, 1).await;
            log.write(&*writer, 2).await;
            tokio::task::yield_now().await;
            passed.push(passing.key);
            // They start one by one and are purged several at a time, so that their number keeps changing.
            if passed.len() == 5 {
                for key in passed.drain(..) {
                    ok(writer.purge(&key, None).await, "purging");
                }
            }
        }
    };
    while_writing(&stores, write, move |store| {
        let there = there.clone();
        async move {
            let listed = every_run(&*store, &RunQuery::default(), Listed::NewestFirst, 7).await;
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
