//! With compression and encryption on, no plain value of a run is in any stored byte, log or trace. On every store.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata::blobs::{Blob, Blobs};
use ferrata::{EnvelopeStore, RetryPolicy};
use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, IdSource, RandomIds, RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind, layers, ring};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Maximum time until a process exits, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The text of all spans and events, at every level.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl Heard {
    fn with<T>(&self, what: impl FnOnce(&mut String) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.with(|heard| {
            heard.push_str(span.metadata().name());
            span.record(&mut Fields(heard));
        });
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        self.with(|heard| values.record(&mut Fields(heard)));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.with(|heard| {
            event.record(&mut Fields(heard));
            heard.push('\n');
        });
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The kinds of text of a run. The marker follows each of them.
const SAID: [&str; 10] =
    ["input", "state", "step", "chunk", "progress", "question", "answer", "message", "error", "value"];

/// A node that makes every call with a text. The marker is in its input.
fn talker(fails: bool) -> Graph<Context> {
    Graph::<Context>::builder("talker")
        .node("talk", move |cx: NodeContext, mut s: Draft<Context>| async move {
            let input: String = s.get("input")?.unwrap_or_default();
            let marker = input.trim_end_matches("input").to_owned();
            let say = |kind: &str| format!("{marker}{kind}");
            let mut chunks = cx.stream("chunks")?.durable();
            chunks.send(say("chunk")).await?;
            chunks.finish().await?;
            let step: String = cx.step("step", async || Ok::<_, NodeError>(say("step"))).await?;
            cx.progress(say("progress")).await?;
            if fails && cx.attempt() == 1 {
                return Err(say("error").into());
            }
            let value = cx.resource::<Blobs>().put(say("value").repeat(9)).await?;
            let answer: String = cx.ask("name", say("question")).await?;
            let message: String = cx.receive().await?;
            s.set("state", [say("state"), step, answer, message])?;
            s.set("value", value)?;
            Ok(s)
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("talk")
        .build()
        .unwrap()
}

/// Drives a run that writes all these texts.
async fn talk(store: Arc<dyn CheckpointStore>, blobs: Blobs, marker: &str, fails: bool) {
    let graph = talker(fails);
    let runtime = Runtime::builder_with(store).resource(blobs.clone()).build().await.unwrap();
    let mut input = Context::new();
    input.set("input", format!("{marker}input")).unwrap();
    let id = if fails { "fails" } else { "talks" };
    let key = RunKey::try_from(id).unwrap();
    let run = runtime.start(&graph, input).id(id).label("patient", marker).user(marker).await.unwrap();
    runtime.send(&key, format!("{marker}message")).await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!("no open questions") };
    let answer = Answer::accept(format!("{marker}answer")).unwrap();
    runtime.respond(&key, "talk@1:name", answer).by("ann").await.unwrap();
    let state = runtime.resume(&graph, id).await.unwrap().completed().await.unwrap();
    let value: Blob = state.get("value").unwrap().unwrap();
    assert_eq!(blobs.get(&value).await.unwrap(), format!("{marker}value").repeat(9));
    runtime.shutdown(PATIENCE).await.unwrap();
}

fn is_in(text: &str, all: &[u8]) -> bool {
    all.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A unique text.
fn marker() -> String {
    format!("Fowler-{}-", &RandomIds::new().next(SystemClock::new().now()).simple().to_string()[20..])
}

async fn nothing_stands_in_the_clear(kind: impl Into<StoreKind> + Copy) {
    Space::within(kind, async |space| {
        let store = space.open();
        store.setup().await.unwrap();
        let blobs = Blobs::in_folder(space.folder().join("blobs")).unwrap();
        let (hidden, heard) = (marker(), Heard::default());
        let layered: Arc<dyn CheckpointStore> =
            Arc::new(EnvelopeStore::new(Arc::clone(&store), layers().unwrap()));
        let sealed = blobs.clone().with_keys(ring().unwrap());
        {
            let _hears = tracing::subscriber::set_default(heard.clone());
            talk(Arc::clone(&layered), sealed.clone(), &hidden, false).await;
        }
        // Outside the subscriber, because a node decides whether its error text appears in the log.
        talk(layered, sealed, &hidden, true).await;
        let all = space.everything().await;
        assert!(is_in("talks", &all), "unencrypted parts must be readable");
        assert!(!is_in(&hidden, &all), "a plain text is stored");
        let heard = heard.with(std::mem::take);
        assert!(heard.contains("talk"), "spans and events must be captured: {heard}");
        assert!(!heard.contains(&hidden), "a plain text is logged or traced: {heard}");
    })
    .await;
    // Without the layers, the search finds the marker.
    Space::within(kind, async |space| {
        let (seen, store) = (marker(), space.open());
        store.setup().await.unwrap();
        let blobs = Blobs::in_folder(space.folder().join("blobs")).unwrap();
        talk(store, blobs, &seen, true).await;
        let all = space.everything().await;
        for kind in SAID {
            assert!(is_in(&format!("{seen}{kind}"), &all), "{kind} is missing");
        }
    })
    .await;
}

macro_rules! on {
    ($($store:ident: $kind:expr;)*) => {
        $(mod $store {
            use super::*;

            /// Guarantees: AT-REST-1, AT-REST-4.
            #[tokio::test]
            async fn stored_run_contains_no_plaintext() {
                nothing_stands_in_the_clear($kind).await;
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
