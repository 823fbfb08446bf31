//! Many concurrent writers: batches with shared runs never deadlock, and pools are used in parallel.
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use crate::common::proxy::Proxy;
use ferrata_store::{
    At, CheckpointStore, ErrorKind, HeaderRange, Page, RecordHeader, RecordKind, RunAppend, RunQuery,
    Timestamp,
};
use ferrata_store_postgres::PostgresStore;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Numbers in an order that looks random and is the same each time (Numerical Recipes).
fn shuffled(count: usize, seed: u32) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut word = seed;
    for last in (1..count).rev() {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        numbers.swap(last, usize::try_from(word >> 8).unwrap() % (last + 1));
    }
    numbers
}

/// Twelve writers append to the same thirty runs, each with one batch in its own order. They extend some runs, start others, and continue from the
/// heads that they find. A losing writer gets the current head, and no writer is a deadlock victim.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn overlapping_batches_never_deadlock() {
    const RUNS: usize = 30;
    const WRITERS: u32 = 12;
    const ROUNDS: u32 = 25;
    let schema = Schema::new();
    schema.store().setup().await.unwrap();
    let together = Arc::new(Barrier::new(WRITERS as usize));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let options = schema.options().with_connections(NonZeroU32::MIN);
        let store = PostgresStore::from_url(&schema.url, options).unwrap();
        let together = Arc::clone(&together);
        writers.spawn(async move {
            let mut logs: Vec<Author> = (0..RUNS).map(|n| Author::new(&format!("r-{n}"))).collect();
            let mut won = 0_u64;
            for round in 0..ROUNDS {
                // All at once, each round: half of the runs are there, and the others are started by somebody in this round.
                together.wait().await;
                let order = shuffled(RUNS, writer * 1_000 + round);
                let there = RUNS * (round as usize + 1) / ROUNDS as usize;
                let chosen: Vec<usize> = order.into_iter().filter(|n| *n <= there).take(20).collect();
                let before = logs.clone();
                let batch: Vec<RunAppend> = chosen.iter().map(|n| logs[*n].next(1)).collect();
                for (n, result) in chosen.into_iter().zip(store.append(batch).await) {
                    match result {
                        Ok(_) => won += 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                            let actual = error.actual_head().unwrap();
                            logs[n] = before[n].clone();
                            let loaded = store.load(&logs[n].key, At::Latest).await.unwrap();
                            let loaded = loaded.unwrap();
                            assert!(actual.unwrap().seq <= loaded.last().unwrap().header.seq);
                            logs[n].records = loaded;
                        }
                    }
                }
            }
            won
        });
    }
    let won: u64 = writers.join_all().await.into_iter().sum();
    let store = schema.store();
    let mut written = 0;
    for n in 0..RUNS {
        let run = ferrata_store::RunKey::from(ferrata_store::RunId::new(format!("r-{n}")).unwrap());
        // Reading checks that the numbers are dense and that each record names the one before.
        let answer = store.headers(&run, HeaderRange::oldest(1_000)).await;
        written += answer.map_or(0, |answer| answer.items.len() as u64);
        store.load(&run, At::Latest).await.unwrap();
    }
    assert_eq!(written, won, "each append that was acknowledged is there once, and no other");
    assert!(won > 200, "the writers did win: {won}");
    schema.remove().await;
}

/// One statement writes a run, and another one, for a run whose row must change, fails: the first stays acknowledged.
///
/// Guarantees: POSTGRES-20.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn acknowledged_statement_survives_failure_of_later_one() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let (mut plain, mut sleeping) = (Author::new("plain"), Author::new("sleeping"));
    let wake_at = Some(Timestamp::from_unix_ms(1));
    append(&store, plain.next(1)).await.unwrap();
    append(&store, sleeping.next_as(1, "{}", |header| header.wake_at = wake_at)).await.unwrap();
    let as_node = |header: &mut RecordHeader| header.kind = RecordKind::Node;
    let pool = schema.pool(1);
    let mut holder = pool.begin().await.unwrap();
    store.append_in(&mut holder, sleeping.clone().next(1)).await.unwrap();
    let joint = if schema.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{joint}options=-c%20lock_timeout%3D200", schema.url);
    let hasty = PostgresStore::from_url(&url, schema.options()).unwrap();
    let batch = vec![plain.next_as(1, "{}", as_node), sleeping.clone().next_as(1, "{}", as_node)];
    let results = hasty.append(batch).await;
    assert_eq!(results[0].as_ref().ok(), plain.head().as_ref(), "{results:?}");
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    holder.rollback().await.unwrap();
    is_kept(&store, &plain).await;
    is_kept(&store, &sleeping).await;
    schema.remove().await;
}

/// A hundred appends to a hundred runs share ten connections, and no append waits for that of another run: all are in
/// the server at the same time, as far as there are connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_hundred_appends_use_ten_connections_in_parallel() {
    let schema = Schema::new();
    let options = schema.options().with_connections(NonZeroU32::new(10).unwrap());
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..100).map(|n| Author::new(&format!("r-{n}"))).collect();
    for author in &mut authors {
        append(&store, author.next(1)).await.unwrap();
    }
    // Every append takes a tenth of a second in the server, so that a hundred one by one would take ten seconds.
    schema
        .execute(
            "CREATE FUNCTION {schema}.linger() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END';
             CREATE TRIGGER linger AFTER INSERT ON {schema}.records FOR EACH STATEMENT EXECUTE FUNCTION {schema}.linger()",
        )
        .await;
    let clock = ferrata_store::SystemClock::new();
    let begin = ferrata_store::Clock::monotonic(&clock);
    let mut tasks = JoinSet::new();
    for mut author in authors {
        let store = store.clone();
        tasks.spawn(async move {
            append(&store, author.next(1)).await.unwrap();
            author
        });
    }
    let authors = tasks.join_all().await;
    let took = ferrata_store::Clock::monotonic(&clock).saturating_sub(begin);
    assert!(
        took.as_secs() < 5,
        "a hundred appends on ten connections took {took:?}, one after the other ten seconds"
    );
    for author in &authors {
        is_kept(&store, author).await;
    }
    schema.remove().await;
}

/// What a call costs in round trips, counted on the wire.
///
/// Guarantees: POSTGRES-18, SCALE-1.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn each_call_is_one_round_trip() {
    let schema = Schema::new();
    let proxy = Proxy::before(&schema.url).await;
    let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
    let store = PostgresStore::from_url(&proxy.url(&schema.url), options).unwrap();
    store.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..100).map(|n| Author::new(&format!("r-{n}"))).collect();
    let mut appends = Vec::new();
    for round in 0..3 {
        // Runs that start and runs that grow in one batch, with each statement prepared by the round before.
        let more: Vec<Author> = (0..100).map(|n| Author::new(&format!("s-{round}-{n}"))).collect();
        authors.extend(more);
        let batch = authors.iter_mut().map(|author| author.next(2)).collect();
        proxy.take_requests();
        assert!(store.append(batch).await.iter().all(Result::is_ok));
        appends.push(proxy.take_requests());
    }
    assert_eq!(appends[2], 1, "a batch of 400 runs: {appends:?}");
    let mut long = Author::new("long");
    for _ in 0..10 {
        append(&store, long.next(1_000)).await.unwrap();
    }
    let run = &long.key;
    let query = RunQuery::default();
    let page = Page::first(1_000);
    for is_counted in [false, true] {
        let mut costs = Vec::new();
        let mut cost = |what: &'static str| costs.push((what, proxy.take_requests()));
        cost("");
        store.head(run).await.unwrap().unwrap();
        cost("head");
        store.load(run, At::Latest).await.unwrap().unwrap();
        cost("load");
        store.runs(&query, page.clone()).await.unwrap();
        cost("runs");
        store
            .heartbeat(&ferrata_store::ExecutorId::from_uuid(uuid::Uuid::nil()), std::time::Duration::ZERO)
            .await
            .unwrap();
        cost("heartbeat");
        let mut entries = 0;
        let mut range = Some(HeaderRange::newest(1_000));
        while let Some(asked) = range {
            let answer = store.headers(run, asked).await.unwrap();
            cost("an answer of headers");
            entries += answer.items.len();
            range = asked.after(&answer);
        }
        assert_eq!(entries, 10_000);
        if is_counted {
            assert_eq!(costs.len(), 15);
            assert!(costs[1..].iter().all(|(_, requests)| *requests == 1), "{costs:?}");
        }
    }
    // What was not written needs a second look, for the head that was in the way or for the same records.
    let mut late = Author::new("long");
    late.records = long.records[..9_999].to_vec();
    let late = late.next(1);
    let repeat = RunAppend {
        run: long.key.clone(),
        expected: Some(long.records[9_998].header.head()),
        records: long.records[9_999..].to_vec(),
        facts: None,
    };
    for (entry, kind) in [(late, Some(ErrorKind::Conflict)), (repeat, None)] {
        append(&store, entry.clone()).await.err();
        proxy.take_requests();
        let result = append(&store, entry).await;
        assert_eq!(result.as_ref().err().map(|error| error.kind()), kind, "{result:?}");
        assert_eq!(proxy.take_requests(), 2, "{kind:?}");
    }
    schema.remove().await;
}
