//! Requests that are dropped after each of their polls, as if the client of a web service disconnects, and many concurrent starts of one id. On every
//! store.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{At, RunHead};
use ferrata_core::{Clock as _, Error, RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind};

/// More polls than any request needs, because a request runs in a task of the runtime after its first poll.
const MOST: usize = 100;

/// Maximum time until a run is idle, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Heartbeat validity: longer than any of these tests waits.
const LONG: Duration = Duration::from_secs(600);

/// Number of starts of each node of each run.
type Began = Arc<Mutex<BTreeMap<String, u32>>>;

type Asked = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

fn graph() -> Graph<Context> {
    Graph::<Context>::builder("g")
        .node("work", async |cx: NodeContext, _s| {
            *cx.resource::<Began>().lock().unwrap().entry(cx.run().to_string()).or_default() += 1;
            Ok(())
        })
        .effect(Effect::Write)
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("work")
        .edge("work", "ok")
        .build()
        .unwrap()
}

async fn process(space: &Space, began: &Began) -> Runtime {
    let builder = Runtime::builder_with(space.open()).resource(Arc::clone(began)).heartbeat_ttl(LONG);
    builder.build().await.unwrap()
}

/// Waits until a condition of the run's head holds.
async fn until(runtime: &Runtime, id: &str, is_so: impl Fn(&RunHead) -> bool) {
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    loop {
        let head = runtime.head(&key(id)).await.unwrap();
        if head.as_ref().is_some_and(&is_so) {
            return;
        }
        assert!(clock.monotonic() - begun < PATIENCE, "{head:?}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Polls a future at most `times` times, and drops it. Returns whether it was ready.
async fn polled(mut asked: Asked, times: usize) -> bool {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match asked.as_mut().poll(cx) {
            Poll::Ready(came) => {
                came.unwrap();
                Poll::Ready(true)
            }
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops a request after each number of polls, each time for another run, until it is ready before that.
async fn at_each_poll(
    name: &str,
    prepare: impl AsyncFn(&str),
    ask: impl Fn(&str) -> Asked,
    check: impl AsyncFn(&str),
) {
    for times in 1..=MOST {
        let id = format!("{name}-{times}");
        prepare(&id).await;
        let is_ready = polled(ask(&id), times).await;
        check(&id).await;
        if is_ready {
            return;
        }
    }
    panic!("{name} is never ready");
}

/// A handler that is dropped inside one of these calls must not leave a run that its living process owns and does not drive.
async fn dropped(space: &Space) {
    let (began, graph) = (Began::default(), graph());
    let runtime = process(space, &began).await;
    let start = |id: &str| -> Asked {
        let start = runtime.start(&graph, Context::new()).id(id);
        Box::pin(async move { start.await.map(drop) })
    };
    let fork = |id: &str| -> Asked {
        let fork = runtime.fork(&key(id), At::Latest).id(format!("{id}-fork")).drive(&graph);
        Box::pin(async move { fork.await.map(drop) })
    };
    let resume = |id: &str| -> Asked {
        let resume = runtime.resume(&graph, id);
        Box::pin(async move { resume.await.map(drop) })
    };
    let respond = |id: &str| -> Asked {
        let answer = runtime.respond(&key(id), "ok", Answer::accept(true).unwrap());
        Box::pin(async move { answer.await })
    };
    let rests = |head: &RunHead| head.status == RunStatus::Interrupted && head.owner.is_none();
    let waits = async |id: &str| {
        start(id).await.unwrap();
        until(&runtime, id, rests).await;
    };
    let answered = async |id: &str| {
        waits(id).await;
        respond(id).await.unwrap();
    };
    at_each_poll("start", async |_| {}, start, async |id| until(&runtime, id, rests).await).await;
    at_each_poll("fork", waits, fork, async |id| until(&runtime, &format!("{id}-fork"), rests).await).await;
    let free = |head: &RunHead| head.status == RunStatus::InProgress && head.owner.is_none();
    at_each_poll("respond", waits, respond, async |id| until(&runtime, id, free).await).await;
    let ended = |head: &RunHead| head.status == RunStatus::Completed;
    at_each_poll("resume", answered, resume, async |id| until(&runtime, id, ended).await).await;
    for (run, times) in &*began.lock().unwrap() {
        assert_eq!(*times, 1, "{run} executed its node {times} times");
    }
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

/// Many concurrent starts of one id return one run. A start that waits for a slot must not make another start fail as unavailable.
async fn crowd(space: &Space) {
    const RUNTIMES: usize = 2;
    const TASKS: usize = 50;
    const IDS: usize = 3;
    let (began, graph) = (Began::default(), graph());
    let mut runtimes = Vec::new();
    for _ in 0..RUNTIMES {
        runtimes.push(process(space, &began).await);
    }
    let meet = Arc::new(tokio::sync::Barrier::new(TASKS));
    let mut starts = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (runtime, graph, meet) = (runtimes[task % RUNTIMES].clone(), graph.clone(), Arc::clone(&meet));
        starts.spawn(async move {
            meet.wait().await;
            let mut runs = Vec::new();
            for id in 0..IDS {
                runs.push(runtime.start(&graph, Context::new()).id(format!("r{id}")).await);
            }
            runs
        });
    }
    while let Some(runs) = starts.join_next().await {
        for (id, run) in runs.unwrap().into_iter().enumerate() {
            assert_eq!(*run.unwrap().run(), key(&format!("r{id}")));
        }
    }
    for id in 0..IDS {
        until(&runtimes[0], &format!("r{id}"), |head| head.status == RunStatus::Interrupted).await;
    }
    assert_eq!(began.lock().unwrap().values().copied().collect::<Vec<_>>(), [1; IDS]);
    for runtime in runtimes {
        runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}

/// The tests of a store.
macro_rules! on {
    ($store:ident, $service:expr) => {
        mod $store {
            use super::*;

            /// Guarantees: DURABLE-13.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn dropped_request_completes_once_polled() {
                Space::within($service, dropped).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn concurrent_starts_of_id_run_once() {
                Space::within($service, crowd).await;
            }
        }
    };
}

on!(files, None);
on!(sqlite, StoreKind::Sqlite);
on!(postgres, Some(Service::Postgres));
on!(nats, Some(Service::Nats));
on!(redis, Some(Service::Redis));
on!(redis_cluster, Some(Service::RedisCluster));
on!(s3, Some(Service::S3));
