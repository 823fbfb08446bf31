//! `rekey` on every store: data under an old key or no key is encrypted with the new key, and runs keep their history and continue.

use std::sync::Arc;
use std::time::Duration;

use ferrata::{EnvelopeOptions, EnvelopeStore, Key, Keyring, RekeyOptions, key_usage};
use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{RecordId, RunKey};
use ferrata_test_servers::Service;
use ferrata_testing::every_header;
use ferrata_tests::{Space, StoreKind};

/// Maximum time until a process exits, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of counting nodes before the question, and after it.
const COUNTS: u64 = 6;

fn counter() -> Graph<Context> {
    let mut graph = Graph::<Context>::builder("counter");
    for at in 0..2 * COUNTS {
        graph = graph.node(format!("n{at}"), move |cx: NodeContext, mut s: Draft<Context>| async move {
            if at == COUNTS {
                let _: String = cx.ask("right", "is it right?").await?;
            }
            s.set("count", at)?;
            Ok(s)
        });
        if at > 0 {
            graph = graph.edge(format!("n{}", at - 1), format!("n{at}"));
        }
    }
    graph.entry("n0").build().unwrap()
}

/// A store that encrypts with the first of these keys, and reads with all of them.
fn under(inner: &Arc<dyn CheckpointStore>, keys: &[u8]) -> Arc<EnvelopeStore<Arc<dyn CheckpointStore>>> {
    let mut options = EnvelopeOptions::default();
    let named = |key: &u8| (key.to_string(), Key::from_bytes([*key; 32]));
    if let Some((first, others)) = keys.split_first() {
        let (name, key) = named(first);
        let ring = others
            .iter()
            .map(named)
            .fold(Keyring::new(name, &key).unwrap(), |ring, (name, key)| ring.with_old(name, &key).unwrap());
        options = options.with_keys(ring).with_accept_plain(!others.is_empty());
    }
    Arc::new(EnvelopeStore::new(Arc::clone(inner), options))
}

/// Runs until the question.
async fn begin(store: Arc<dyn CheckpointStore>, id: &str) {
    let runtime = Runtime::builder_with(store).build().await.unwrap();
    let run = runtime.start(&counter(), Context::new()).id(id).await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!("no open questions") };
    runtime.shutdown(PATIENCE).await.unwrap();
}

/// The body of each record of a run.
async fn said(store: &dyn CheckpointStore, id: &str) -> Vec<(RecordId, Vec<u8>)> {
    let run = RunKey::try_from(id).unwrap();
    let mut said = Vec::new();
    for header in every_header(store, &run).await.unwrap() {
        let loaded = store.load(&run, At::Seq(header.seq)).await.unwrap().unwrap();
        said.push((header.id, loaded.last().unwrap().body.to_vec()));
    }
    said
}

async fn an_old_key_goes(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let inner = space.open();
        inner.setup().await.unwrap();
        begin(under(&inner, &[]), "plain").await;
        begin(under(&inner, &[1]), "old").await;
        begin(under(&inner, &[2, 1]), "new").await;
        let all = under(&inner, &[2, 1]);
        let mut before = Vec::new();
        for id in ["plain", "old", "new"] {
            before.push(said(&*all, id).await);
        }
        let done = all.rekey(RekeyOptions::default()).await.unwrap();
        assert!(done.failed.is_empty() && done.next.is_none() && done.changed == 0, "{done:?}");
        assert_eq!(done.runs, 3);
        assert_eq!(done.records, (before[0].len() + before[1].len()) as u64);
        let needed: Vec<_> =
            key_usage(&*inner, None).await.unwrap().into_iter().map(|usage| usage.key).collect();
        assert_eq!(needed, [Some("2".to_owned())]);
        let only = under(&inner, &[2]);
        for (id, before) in ["plain", "old", "new"].into_iter().zip(before) {
            assert_eq!(said(&*only, id).await, before, "the content of {id}");
        }
        let runtime = Runtime::builder_with(only).build().await.unwrap();
        for id in ["plain", "old", "new"] {
            let answer = Answer::accept("yes").unwrap();
            runtime
                .respond(&RunKey::try_from(id).unwrap(), &format!("n{COUNTS}@1:right"), answer)
                .by("ann")
                .await
                .unwrap();
            let state = runtime.resume(&counter(), id).await.unwrap().completed().await.unwrap();
            assert_eq!(state.get::<u64>("count").unwrap(), Some(2 * COUNTS - 1));
        }
        runtime.shutdown(PATIENCE).await.unwrap();
    })
    .await;
}

macro_rules! on {
    ($($store:ident: $kind:expr;)*) => {
        $(mod $store {
            use super::*;

            /// Guarantees: AT-REST-8.
            #[tokio::test]
            async fn old_key_goes_and_history_stays_readable() {
                an_old_key_goes($kind).await;
            }
        })*
    };
}

on! {
    files: StoreKind::Files;
    sqlite: StoreKind::Sqlite;
    postgres: StoreKind::Server(Service::Postgres);
    redis: StoreKind::Server(Service::Redis);
    redis_cluster: StoreKind::Server(Service::RedisCluster);
    nats: StoreKind::Server(Service::Nats);
    s3: StoreKind::Server(Service::S3);
}
