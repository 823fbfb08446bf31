//! Each request is dropped after each of its polls, as if the client of a web service disconnects. The request takes full effect or none, every owned
//! run has a driver, and no work runs twice.

use std::collections::BTreeMap;
use std::future::{IntoFuture as _, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{RetentionPolicy, RunLimits, Runtime, SweepLimits};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{At, CheckpointStore, MemoryStore, Page, RunHead, RunQuery};
use ferrata_core::{Error, RunKey, Seq};
use ferrata_testing::{FaultPlan, FaultStore, LedgerStore, ManualClock, SeqIds};

use super::store::Yielding;
use crate::support::dice::Dice;

/// More polls than any request needs.
const MOST: usize = 1_000;

/// Number of yields, each with 100 ms, until all runs must be idle. In total this is half of the validity of a heartbeat.
const TURNS: usize = 75;

type Asked = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

struct Scene {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    runtime: Runtime,
    graph: Graph<Context>,
    began: Began,
    text: String,
}

/// Number of starts of each node of each run.
type Began = Arc<Mutex<BTreeMap<String, u32>>>;

fn count(cx: &NodeContext) {
    let node = format!("{} {}@{}", cx.run(), cx.node(), cx.visit());
    *cx.resource::<Began>().lock().unwrap().entry(node).or_default() += 1;
}

/// A graph that works, asks, and ends, or fails if the state requires it.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("g")
        .node("work", async |cx: NodeContext, _s| {
            count(&cx);
            Ok(())
        })
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .node("end", async |cx: NodeContext, s| {
            count(&cx);
            match s.get::<bool>("bad")? {
                Some(true) => Err(NodeError::new("as it was told").fatal()),
                _ => Ok(()),
            }
        })
        .entry("work")
        .edge("work", "ok")
        .edge("ok", "end")
        .build()
        .unwrap()
}

fn set(channel: &str, value: bool) -> Patch {
    Patch::from_ops(&[Op::Set(channel.into(), value.into())]).unwrap()
}

impl Scene {
    /// A run `r` that is idle at its question, on a store that yields.
    async fn new(caps: RunLimits) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let inner = FaultStore::new(LedgerStore::new().with_runs(store.clone()), FaultPlan::new());
        let slow = Yielding { inner, dice: Arc::new(Dice::new(7)), tells: false };
        let began = Began::default();
        let runtime = Runtime::builder(slow)
            .resource(Arc::clone(&began))
            .clock(Arc::clone(&clock) as _)
            .ids(Arc::new(SeqIds::new(1)))
            .run_limits(caps)
            .build()
            .await
            .unwrap();
        let graph = graph();
        runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
        let text = runtime.export(&key("r")).await.unwrap();
        Self { store, clock, runtime, graph, began, text }
    }

    async fn heads(&self) -> Vec<RunHead> {
        self.store.runs(&RunQuery::default(), Page::first(100)).await.unwrap().items
    }

    async fn head(&self, id: &str) -> Option<RunHead> {
        self.store.head(&key(id)).await.unwrap()
    }

    /// Lets all activity end. Returns an error with the run that does not become idle.
    async fn rest(&self) -> Result<(), String> {
        for _ in 0..TURNS {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.clock.advance(Duration::from_millis(100));
        }
        let heads = self.heads().await;
        let stranded = heads.iter().find(|head| head.status == RunStatus::InProgress && head.owner_alive);
        stranded.map_or(Ok(()), |head| {
            Err(format!("{} is in progress, its owner lives, and nobody drives it", head.run))
        })
    }
}

/// Polls a future at most `times` times, and drops it. Returns its result if it is ready.
pub(crate) async fn polled<T>(
    mut future: Pin<Box<impl Future<Output = T> + ?Sized>>,
    times: usize,
) -> Option<T> {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A request, the state of the run before it, and the check that it took effect.
struct Request {
    name: &'static str,
    before: &'static [&'static str],
    ask: fn(&Scene) -> Asked,
    is_done: fn(&RunHead, Option<&RunHead>, Option<&RunHead>) -> bool,
}

/// Brings the run `r` into the state that `word` names.
async fn bring(scene: &Scene, word: &str) {
    let (runtime, run) = (&scene.runtime, key("r"));
    match word {
        "answered" => runtime.respond(&run, "ok", Answer::accept(true).unwrap()).await.unwrap(),
        "bad" => runtime.edit(&run, set("bad", true)).check_with(&scene.graph).await.unwrap(),
        "good" => runtime.edit(&run, set("bad", false)).check_with(&scene.graph).await.unwrap(),
        "gone on" => drop(runtime.resume(&scene.graph, "r").await.unwrap().wait().await.unwrap()),
        "retried" => runtime.retry(&run).await.unwrap(),
        "paused" => runtime.pause(&run, "wait").await.unwrap(),
        "pinned" => runtime.pin(&run, Seq::new(0)).await.unwrap(),
        _ => panic!("unknown state {word}"),
    }
}

/// Whether the signal was recorded.
fn grew(before: &RunHead, after: Option<&RunHead>, _new: Option<&RunHead>) -> bool {
    after.is_some_and(|after| after.seq > before.seq)
}

const FAILED: &[&str] = &["bad", "answered", "gone on"];

/// Every request that changes something.
fn requests() -> Vec<Request> {
    let request = |name, before, ask, is_done| Request { name, before, ask, is_done };
    vec![
        request(
            "start",
            &[],
            |at| {
                let start = at.runtime.start(&at.graph, Context::new()).id("new");
                Box::pin(async { start.await.map(drop) })
            },
            |_, _, new| new.is_some_and(|new| new.status == RunStatus::Interrupted),
        ),
        request(
            "start of a run that nobody drives",
            &["answered"],
            |at| {
                let start = at.runtime.start(&at.graph, Context::new()).id("r");
                Box::pin(async { start.await.map(drop) })
            },
            |_, r, _| r.is_some_and(|r| r.status == RunStatus::Completed),
        ),
        request(
            "resume",
            &["answered"],
            |at| {
                let resume = at.runtime.resume(&at.graph, "r");
                Box::pin(async { resume.await.map(drop) })
            },
            |_, r, _| r.is_some_and(|r| r.status == RunStatus::Completed),
        ),
        request(
            "fork that is driven",
            &[],
            |at| {
                let fork = at.runtime.fork(&key("r"), At::Latest).id("new").drive(&at.graph);
                Box::pin(async { fork.await.map(drop) })
            },
            |_, _, new| new.is_some_and(|new| new.status == RunStatus::Interrupted),
        ),
        request(
            "fork",
            &[],
            |at| {
                let fork = at.runtime.fork(&key("r"), At::Latest).id("new");
                Box::pin(async { fork.await.map(drop) })
            },
            |_, _, new| new.is_some(),
        ),
        request(
            "respond",
            &[],
            |at| at.runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).into_future(),
            grew,
        ),
        request("send", &[], |at| at.runtime.send(&key("r"), "hello").into_future(), grew),
        request("cancel", &[], |at| at.runtime.cancel(&key("r"), "no").into_future(), grew),
        request("pause", &[], |at| at.runtime.pause(&key("r"), "wait").into_future(), grew),
        request("unpause", &["paused"], |at| at.runtime.unpause(&key("r")).into_future(), grew),
        request("retry", FAILED, |at| at.runtime.retry(&key("r")).into_future(), grew),
        request(
            "edit that is checked",
            &[],
            |at| at.runtime.edit(&key("r"), set("bad", true)).check_with(&at.graph).into_future(),
            grew,
        ),
        request("edit", &[], |at| at.runtime.edit(&key("r"), set("bad", true)).into_future(), grew),
        request("pin", &[], |at| at.runtime.pin(&key("r"), Seq::new(0)).into_future(), grew),
        request("unpin", &["pinned"], |at| at.runtime.unpin(&key("r"), Seq::new(0)).into_future(), grew),
        request(
            "import",
            &[],
            |at| {
                let (runtime, text) = (at.runtime.clone(), at.text.clone());
                Box::pin(async move { runtime.import(&text, Some(key("new"))).await.map(drop) })
            },
            |_, _, new| new.is_some(),
        ),
        request(
            "apply_retention",
            &["answered", "gone on"],
            |at| {
                let runtime = at.runtime.clone();
                Box::pin(async move {
                    runtime
                        .apply_retention(&key("r"), &RetentionPolicy::keep_all().keep_last(1))
                        .await
                        .map(drop)
                })
            },
            |_, r, _| r.is_some_and(|r| r.first > Seq::new(0)),
        ),
        request(
            "sweep",
            &["answered", "gone on"],
            |at| {
                let runtime = at.runtime.clone();
                Box::pin(async move {
                    let policy = RetentionPolicy::keep_all().keep_last(1);
                    runtime.sweep(&policy, SweepLimits::default(), false).await.map(drop)
                })
            },
            |_, r, _| r.is_some_and(|r| r.first > Seq::new(0)),
        ),
        request(
            "purge",
            &[],
            |at| {
                let runtime = at.runtime.clone();
                Box::pin(async move { runtime.purge(&key("r")).await.map(drop) })
            },
            |_, r, _| r.is_none(),
        ),
    ]
}

/// A web handler that is dropped inside `start`, `resume` or `fork` must not leave a run that its living process owns and does not drive.
///
/// Guarantees: DURABLE-13.
#[tokio::test]
async fn dropped_request_completes_once_polled() {
    for request in requests() {
        for times in 0..MOST {
            let at = Scene::new(RunLimits::new()).await;
            for word in request.before {
                bring(&at, word).await;
            }
            let before = at.head("r").await.unwrap();
            let came = polled((request.ask)(&at), times).await;
            let asked = format!("{}, dropped after {times} polls", request.name);
            at.rest().await.unwrap_or_else(|stranded| panic!("{asked}: {stranded}"));
            let (r, new) = (at.head("r").await, at.head("new").await);
            let is_done = (request.is_done)(&before, r.as_ref(), new.as_ref());
            assert_eq!(is_done, times > 0, "{asked}: {r:?}, {new:?}");
            let most = at.began.lock().unwrap().iter().map(|(what, times)| (*times, what.clone())).max();
            let retried = u32::from(request.before == FAILED);
            assert!(most.as_ref().is_none_or(|(most, _)| *most <= 1 + retried), "{asked}: {most:?}");
            match came {
                Some(Ok(())) => break,
                Some(Err(error)) => panic!("{asked}: {error}"),
                None => assert!(times + 1 < MOST, "{asked}: the request is never ready"),
            }
        }
    }
}
