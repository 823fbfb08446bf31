//! Notices between processes, and the loss of the listener's connection.
use std::time::Duration;

use crate::common::Schema;
use crate::common::author::{Author, append};
use ferrata_store::{CheckpointStore, Clock as _, Notices, RunKey, SystemClock};

/// Waits for the notice of a run, and passes over those of others.
async fn hears(notices: &mut Notices, run: &RunKey) {
    let clock = SystemClock::new();
    let heard = async { while notices.next().await.unwrap().is_some_and(|heard| heard.run != *run) {} };
    tokio::select! {
        () = heard => {}
        () = clock.sleep(Duration::from_secs(120)) => panic!("no notice of {run}"),
    }
}

/// Guarantees: POSTGRES-17.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn other_process_is_notified_of_every_batched_run() {
    let schema = Schema::new();
    let (writer, reader) = (schema.store(), schema.store());
    writer.setup().await.unwrap();
    let mut notices = reader.subscribe().unwrap();
    crate::common::listens(&schema, 1).await;
    let mut authors: Vec<Author> = (0..300).map(|n| Author::new(&format!("r-{n}"))).collect();
    let batch = authors.iter_mut().map(|author| author.next(1)).collect();
    assert!(writer.append(batch).await.iter().all(Result::is_ok));
    let mut missing: std::collections::HashSet<_> = authors.iter().map(|author| author.key.clone()).collect();
    while !missing.is_empty() {
        let heard = notices.next().await.unwrap();
        missing.remove(&heard.expect("no notice was missed").run);
    }
    writer.purge(&authors[0].key, None).await.unwrap();
    hears(&mut notices, &authors[0].key).await;
    schema.remove().await;
}

/// The listener's connection is ended by the server. Notices of that time are lost, as notices may be; then they come again,
/// to the same subscriber.
///
/// Guarantees: POSTGRES-17.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_listener_that_lost_its_connection_listens_again() {
    let schema = Schema::new();
    let (writer, reader) = (schema.store(), schema.store());
    writer.setup().await.unwrap();
    let mut notices = reader.subscribe().unwrap();
    for round in 0..3 {
        let ended = crate::common::listens(&schema, 1).await;
        let mut author = Author::new(&format!("r-{round}"));
        append(&writer, author.next(1)).await.unwrap();
        hears(&mut notices, &author.key).await;
        schema.execute(&format!("SELECT pg_terminate_backend({})", ended[0])).await;
        crate::common::until("the end of the listener", async || {
            !crate::common::listeners(&schema).await.contains(&ended[0])
        })
        .await;
    }
    schema.remove().await;
}

/// A store without notices says so and takes no connection for them.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn notices_can_be_turned_off() {
    let schema = Schema::new();
    let options = schema.options().with_notices(false);
    let store = ferrata_store_postgres::PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    assert!(!store.capabilities().notices);
    assert!(store.subscribe().is_none());
    append(&store, Author::new("r").next(1)).await.unwrap();
    assert!(crate::common::listeners(&schema).await.is_empty());
    schema.remove().await;
}
