//! The runs for the browser stories.

use std::sync::Arc;
use std::time::Duration;

use ferrata::ask::{Ask, Shape};
use ferrata::graph::{Effect, Graph, RetryPolicy};
use ferrata::node::{NodeContext, NodeError};
use ferrata::queue::{RateLimit, RuntimeQueueExt as _, StartQueueExt as _};
use ferrata::record::Labels;
use ferrata::schedule::RuntimeScheduleExt as _;
use ferrata::store::{At, RunAppend};
use ferrata::{CheckpointStore, Context, RunKey, Runtime, Timestamp};
use serde_json::json;
use tokio::sync::Notify;

/// A hostile text for every field.
const SCRIPT: &str =
    "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>\u{202e}\u{1b}[31m'`${1}";

pub(super) fn pay() -> Graph<Context> {
    Graph::<Context>::builder("pay")
        .node("check", async |_cx, s| Ok(s))
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay this much?"), |s, yes| s.set("approved", yes))
        .node("send", async |_cx, mut s| {
            if s.get::<u32>("amount")? == Some(13) {
                return Err(NodeError::from("the bank is closed").fatal());
            }
            s.set("receipt", "r-1")?;
            Ok(s)
        })
        .entry("check")
        .route("check", ["approve", "send"], |s, _cx| {
            if s.get::<u32>("amount").ok().flatten() > Some(100) { "approve" } else { "send" }
        })
        .edge("approve", "send")
        .build()
        .unwrap()
}

pub(super) fn wild() -> Graph<Context> {
    Graph::<Context>::builder("wild")
        .node("speak", async |_cx, _s: ferrata::Draft<Context>| {
            Err::<(), _>(NodeError::from(SCRIPT.repeat(20).as_str()).fatal())
        })
        .entry("speak")
        .build()
        .unwrap()
}

pub(super) fn slow(name: &str, until: &Arc<Notify>) -> Graph<Context> {
    let until = Arc::clone(until);
    Graph::<Context>::builder(name)
        .node("work", move |_cx, s: ferrata::Draft<Context>| {
            let until = Arc::clone(&until);
            async move {
                until.notified().await;
                Ok::<_, NodeError>(s)
            }
        })
        .entry("work")
        .build()
        .unwrap()
}

/// A graph that repeats a step: a run of many records.
fn rounds(count: usize) -> Graph<Context> {
    Graph::<Context>::builder("rounds")
        .node("step", async |_cx, mut s: ferrata::Draft<Context>| {
            let count = s.get::<usize>("count")?.unwrap_or_default() + 1;
            s.set("count", count)?;
            Ok::<_, NodeError>(s)
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("step")
        .max_steps(count as u64 + 1)
        .route("step", ["step", "end"], move |s, _cx| {
            if s.get::<usize>("count").ok().flatten() < Some(count) { "step" } else { "end" }
        })
        .build()
        .unwrap()
}

/// A graph of ten rows of ten nodes. A run visits the first row.
fn hundred() -> Graph<Context> {
    let name = |row: usize, place: usize| format!("n{row}-{place}");
    let mut graph = Graph::<Context>::builder("hundred");
    for node in 0..100 {
        graph = graph.node(name(node / 10, node % 10), async |_cx, s| Ok(s));
    }
    for node in (0..100).filter(|node| node % 10 < 9) {
        graph = graph.edge(name(node / 10, node % 10), name(node / 10, node % 10 + 1));
    }
    for row in 0..9 {
        graph = graph.edge(name(row, 4), name(row + 1, 0)).when(|_s: &Context| false);
    }
    graph.entry(name(0, 0)).build().unwrap()
}

fn child() -> Graph<Context> {
    Graph::<Context>::builder("child")
        .node("count", async |_cx, s: ferrata::Draft<Context>| match s.get::<usize>("number")? {
            Some(3) => Err(NodeError::from("three is not counted").fatal()),
            _ => Ok(s),
        })
        .entry("count")
        .build()
        .unwrap()
}

/// A graph with `count` children, one of which fails.
fn parent(count: usize) -> Graph<Context> {
    let child = child();
    Graph::<Context>::builder("parent")
        .node("fan", move |cx: NodeContext, s: ferrata::Draft<Context>| {
            let child = child.clone();
            async move {
                for number in 0..count {
                    let mut input = Context::new();
                    input.set("number", number)?;
                    // The page shows the failure of one child.
                    let _ = cx.child(&child, input).name(format!("c{number}")).await;
                }
                Ok::<_, NodeError>(s)
            }
        })
        .entry("fan")
        .build()
        .unwrap()
}

/// Asks a hostile question with an answer of many fields.
pub(super) fn form() -> Graph<Context> {
    let shape = Shape::object([
        ("eur", Shape::of::<u64>()),
        ("how", Shape::variants([("card", Some(Shape::of::<String>())), ("cash", None)])),
        ("note?", Shape::of::<String>()),
        ("word", Shape::choices(["<b>yes</b>", SCRIPT])),
    ]);
    Graph::<Context>::builder("form")
        .gate(
            "ask",
            move |_s: &Context| Ask::<serde_json::Value>::shaped(SCRIPT, shape.clone()),
            |s, said| s.set("said", said),
        )
        .entry("ask")
        .build()
        .unwrap()
}

/// Asks for any value, with a long number as the default and a very late deadline.
pub(super) fn ever() -> Graph<Context> {
    let ask = |_s: &Context| {
        let usual = json!({ "order": 12_345_678_901_234_567_u64 });
        Ask::<serde_json::Value>::new("Which order?").deadline(Duration::MAX).or_default(usual)
    };
    Graph::<Context>::builder("ever")
        .gate("which", ask, |s, said| s.set("said", said))
        .entry("which")
        .build()
        .unwrap()
}

/// Sleeps forever.
fn asleep() -> Graph<Context> {
    Graph::<Context>::builder("asleep")
        .node("sleep", async |cx: NodeContext, s: ferrata::Draft<Context>| {
            cx.sleep(Duration::MAX).await?;
            Ok::<_, NodeError>(s)
        })
        .entry("sleep")
        .build()
        .unwrap()
}

/// Pays, with an unknown outcome.
fn transfer() -> Graph<Context> {
    Graph::<Context>::builder("transfer")
        .node("pay", async |_cx, _s: ferrata::Draft<Context>| {
            Err::<(), _>(NodeError::from("the bank hung up"))
        })
        .effect(Effect::External)
        .entry("pay")
        .build()
        .unwrap()
}

/// An agent that asks for a year.
fn agent() -> Graph<Context> {
    Graph::<Context>::builder("agent")
        .node("read", async |_cx, s| Ok(s))
        .gate("year", |_s: &Context| Ask::<u32>::new("For which year?"), |s, year| s.set("year", year))
        .entry("read")
        .edge("read", "year")
        .build()
        .unwrap()
}

/// Waits for an agent. Then writes, once another branch has ended, too.
pub(super) fn research() -> Graph<Context> {
    let agent = agent();
    Graph::<Context>::builder("research")
        .node("plan", async |_cx, s| Ok(s))
        .node("agent", move |cx: NodeContext, s: ferrata::Draft<Context>| {
            let agent = agent.clone();
            async move {
                cx.child(&agent, Context::new()).name("reader").await?;
                Ok::<_, NodeError>(s)
            }
        })
        .node("outline", async |_cx, s| Ok(s))
        .node("write", async |_cx, s| Ok(s))
        .node("publish", async |_cx, s| Ok(s))
        .entry("plan")
        .edge("plan", ["agent", "outline"])
        .edge("agent", "write")
        .edge("outline", "write")
        .edge("write", "publish")
        .build()
        .unwrap()
}

/// Fails, and is retried after an hour.
fn fetch() -> Graph<Context> {
    Graph::<Context>::builder("fetch")
        .node("get", async |_cx, _s: ferrata::Draft<Context>| {
            Err::<(), _>(NodeError::from("connection refused"))
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(HOUR).with_cap(HOUR))
        .entry("get")
        .build()
        .unwrap()
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A run that failed in a process that has exited, and that an operator has retried. No process serves its workflow.
async fn left_alone(store: &Arc<dyn CheckpointStore>) {
    let process = Runtime::builder_with(Arc::clone(store)).build().await.unwrap();
    let graph = Graph::<Context>::builder("orders")
        .node("reserve", async |_cx, s| Ok(s))
        .node("charge", async |_cx, _s: ferrata::Draft<Context>| {
            Err::<(), _>(NodeError::from("POST https://pay.example/v1/charges: 502").fatal())
        })
        .entry("reserve")
        .edge("reserve", "charge")
        .build()
        .unwrap();
    process.start(&graph, Context::new()).id("order-1").await.unwrap().wait().await.unwrap();
    process.shutdown(Duration::ZERO).await.unwrap();
    let operator = Runtime::builder_with(Arc::clone(store)).operator();
    operator.retry(&RunKey::try_from("order-1").unwrap()).by("ann").await.unwrap();
}

/// The amount of something. The figures of the documentation use larger amounts.
fn set(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Copies a run `count` times, each copy older than the one before.
async fn copy(store: &Arc<dyn CheckpointStore>, id: &str, as_id: &str, label: &str, count: usize) {
    let source = RunKey::try_from(id).unwrap();
    let mut facts = store.head(&source).await.unwrap().unwrap().facts;
    facts.labels = Labels::default();
    facts.labels.insert("batch", label).unwrap();
    let records = store.load(&source, At::Latest).await.unwrap().unwrap();
    for first in (0..count).step_by(100) {
        let copies = (first..count.min(first + 100)).map(|number| {
            let mut facts = facts.clone();
            let back = 1_000 * i64::try_from(number + 1).unwrap();
            facts.created = Timestamp::from_unix_ms(facts.created.unix_ms() - back);
            let run = RunKey::try_from(format!("{as_id}-{number}").as_str()).unwrap();
            RunAppend { run, expected: None, records: records.clone(), facts: Some(facts) }
        });
        for appended in store.append(copies.collect()).await {
            appended.unwrap();
        }
    }
}

/// One queue with a run in its only slot and two waiters, and one queue that an operator has paused.
async fn queues(driver: &Runtime) {
    let letters = slow("letters", &Arc::new(Notify::new()));
    driver.serve(&letters).unwrap();
    driver.queue("mail").at_once(1).declare().await.unwrap();
    for id in ["letter-1", "letter-2", "letter-3"] {
        _ = driver.start(&letters, Context::new()).id(id).queue("mail").key("ann").await.unwrap();
    }
    let rate = RateLimit::new(100, Duration::from_secs(60)).burst(10);
    let providers = driver.queue("providers").at_once(5).rate_limit(rate).declare().await.unwrap();
    providers.pause("the provider is down").await.unwrap();
    providers.set(|set| set.at_once = Some(2)).await.unwrap();
}

/// The input of a payment.
pub(super) fn with_amount(amount: u32) -> Context {
    let mut state = Context::new();
    state.set("amount", amount).unwrap();
    state.set("invoice", json!({ "number": 12_345_678_901_234_567_u64, "text": "one" })).unwrap();
    state
}

/// Fills the store with runs of all kinds.
pub(super) async fn fill(driver: &Runtime, store: &Arc<dyn CheckpointStore>) {
    for (id, amount) in [("pay-1", 5), ("pay-2", 500), ("pay-3", 13), ("pay-4", 900), ("pay-5", 13)] {
        let run = driver.start(&pay(), with_amount(amount)).id(id).label("team", "red").await.unwrap();
        run.wait().await.unwrap();
    }
    let mut state = Context::new();
    state.set(SCRIPT, json!({ SCRIPT: [SCRIPT] })).unwrap();
    state.set("long", SCRIPT.repeat(20_000)).unwrap();
    state.set("rows", vec![json!({ "text": "x".repeat(80) }); 30_000]).unwrap();
    let start =
        driver.start(&wild(), state).id("wild").label("<b>bold</b>", "</td><script>window.hit=1</script>");
    start.user("<img src=x onerror=window.hit=1>").await.unwrap().wait().await.unwrap();
    driver.start(&form(), Context::new()).id("form").await.unwrap().wait().await.unwrap();
    driver.pause(&RunKey::try_from("form").unwrap(), SCRIPT).by(SCRIPT).await.unwrap();
    driver.start(&ever(), Context::new()).id("ever").await.unwrap().wait().await.unwrap();
    driver.start(&asleep(), Context::new()).id("asleep").await.unwrap();
    for graph in [transfer(), research(), fetch()] {
        driver.serve(&graph).unwrap();
    }
    for (graph, id) in [
        (transfer(), "transfer-1"),
        (transfer(), "transfer-2"),
        (research(), "research"),
        (fetch(), "fetch-1"),
    ] {
        _ = driver.start(&graph, Context::new()).id(id).await.unwrap();
    }
    driver.serve(&agent()).unwrap();
    left_alone(store).await;
    let rounds = rounds(set("FERRATA_BROWSER_RECORDS", 120));
    driver.start(&rounds, Context::new()).id("rounds").await.unwrap().wait().await.unwrap();
    driver.start(&hundred(), Context::new()).id("hundred").await.unwrap().wait().await.unwrap();
    let parent = parent(set("FERRATA_BROWSER_CHILDREN", 12));
    driver.start(&parent, Context::new()).id("parent").await.unwrap().wait().await.unwrap();
    queues(driver).await;
    let nightly = driver.schedule("nightly").cron("0 3 * * *").timezone("Europe/Zurich");
    nightly.start(&pay(), with_amount(5)).await.unwrap();
    copy(store, "pay-3", "old", "old", set("FERRATA_BROWSER_RUNS", 120)).await;
    copy(store, "pay-3", "wrong", "wrong", 3).await;
}
