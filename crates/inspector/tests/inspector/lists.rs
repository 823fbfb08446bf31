//! Lists: root runs with their descendants, and unreadable runs.

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::Record;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{RunKey, TenantId};
use ferrata_inspector::Viewer;
use ferrata_queue::RuntimeQueueExt as _;
use serde_json::{Value, json};

use super::support::{World, read};

/// A run with `count` children, the seventh of which fails.
fn parent(count: u32) -> Graph<Context> {
    let child = Graph::<Context>::builder("child")
        .node("work", async |_cx, s: Draft<Context>| match s.get::<u32>("number")? {
            Some(7) => Err(NodeError::from("seven").fatal()),
            _ => Ok(s),
        })
        .entry("work")
        .build()
        .unwrap();
    Graph::<Context>::builder("parent")
        .node("fan", move |cx: NodeContext, s: Draft<Context>| {
            let child = child.clone();
            async move {
                for number in 0..count {
                    let mut input = Context::new();
                    input.set("number", number)?;
                    // The test needs the failure of this child.
                    let _ = cx.child(&child, input).name(format!("c{number}")).await;
                }
                Ok::<_, NodeError>(s)
            }
        })
        .entry("fan")
        .build()
        .unwrap()
}

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect()
}

/// A list shows root runs, without children and without the runs of queues.
///
/// Guarantees: INSPECT-16.
#[tokio::test]
async fn roots_come_with_counts_below() {
    let world = World::with_runs().await;
    let driver = world.driver().await;
    driver.start(&parent(60), Context::new()).id("tree").await.unwrap().completed().await.unwrap();
    driver.queue("mail").declare().await.unwrap();
    let router = world.router();
    let before = world.reads();
    let roots = read(&router, "/api/v1/runs?roots=true&tenant=default&limit=3").await;
    assert_eq!(ids(&roots), ["tree", "pay-3", "pay-2"], "{roots:#}");
    assert_eq!(roots["items"][0]["below"]["count"], 60);
    assert_eq!(roots["items"][0]["below"]["statuses"], json!({ "completed": 59, "failed": 1 }));
    assert_eq!(
        (&roots["items"][0]["below"]["more"], &roots["items"][1]["below"]),
        (&json!(false), &Value::Null)
    );
    assert!(world.reads() - before <= 4, "{} calls", world.reads() - before);
    // A second read soon afterwards counts nothing again.
    let before = world.reads();
    read(&router, "/api/v1/runs?roots=true&tenant=default&limit=3").await;
    assert!(world.reads() - before <= 3, "{} calls", world.reads() - before);
    let next =
        form_urlencoded::byte_serialize(roots["next"].as_str().unwrap().as_bytes()).collect::<String>();
    let rest = read(&router, &format!("/api/v1/runs?roots=true&tenant=default&limit=3&cursor={next}")).await;
    assert_eq!(ids(&rest), ["pay-1"], "each root run is listed once");
    let below = read(&router, "/api/v1/runs?below=default/tree&status=failed").await;
    assert_eq!(below["items"][0]["started_by"]["name"], "c7", "{below:#}");
    let all = read(&router, "/api/v1/runs?limit=200").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 65, "the queue's run must not be listed");
    for asked in ["system=true", "workflow=queue", "label=queue%3Dmail"] {
        let found = read(&router, &format!("/api/v1/runs?{asked}")).await;
        assert!(ids(&found).contains(&"queue:mail"), "{asked}");
        assert!(!found.to_string().contains("queue.role"), "internal labels must be omitted");
    }
}

/// Unreadable runs are counted in the inbox, and listed with the reason.
///
/// Guarantees: INSPECT-16.
#[tokio::test]
async fn unreadable_runs_are_counted_with_reasons() {
    let world = World::with_runs().await;
    for id in ["pay-2", "pay-3"] {
        world.store.tamper(&RunKey::try_from(id).unwrap(), |records| {
            for record in records.iter_mut() {
                *record = Record::seal(record.header.clone(), "{".into()).unwrap();
            }
        });
    }
    let router = world.router();
    for _ in 0..2 {
        // This also holds for the cached result.
        let inbox = read(&router, "/api/v1/questions").await;
        assert_eq!((&inbox["items"], &inbox["unreadable"]["count"]), (&json!([]), &json!(1)), "{inbox:#}");
        assert_eq!(inbox["unreadable"]["items"][0]["run"]["id"], "pay-2");
        assert!(!inbox["unreadable"]["items"][0]["why"].as_str().unwrap().is_empty());
        let briefs = read(&router, "/api/v1/briefs?run=default/pay-3").await;
        assert!(briefs["items"][0]["brief"]["unreadable"].is_string(), "{briefs:#}");
    }
    // A viewer of another tenant does not see this run.
    let viewer = Viewer::new().of_tenant(TenantId::new("other").unwrap());
    let other = world.inspector().access(move |_| Some(viewer.clone())).into_router();
    assert_eq!(read(&other, "/api/v1/questions").await["unreadable"]["count"], 0);
}

/// For a run with many activations, those before the newest 2,000 can be read page by page.
///
/// Guarantees: INSPECT-16.
#[tokio::test]
async fn every_activation_can_be_reached() {
    let world = World::new();
    let graph = Graph::<Context>::builder("rounds")
        .node("step", async |_cx, mut s: Draft<Context>| {
            let count = s.get::<u32>("count")?.unwrap_or_default() + 1;
            s.set("count", count)?;
            Ok::<_, NodeError>(s)
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("step")
        .max_steps(3_000)
        .route("step", ["step", "end"], |s: &Context, _| {
            if s.get::<u32>("count").ok().flatten() < Some(2_500) { "step" } else { "end" }
        })
        .build()
        .unwrap();
    world.driver().await.start(&graph, Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let router = world.router();
    let part = async |query: &str| {
        let run = read(&router, &format!("/api/v1/runs/default/r{query}")).await["run"].clone();
        let past = run["past"].as_array().unwrap();
        let visit = |past: Option<&Value>| past.and_then(|past| past["visit"].as_u64()).unwrap();
        (run["older"].clone(), run["newer"].clone(), visit(past.first()), past.len())
    };
    assert_eq!(part("").await, (json!(501), json!(0), 502, 2_000));
    assert_eq!(part("?end=501").await, (json!(0), json!(2_000), 1, 501));
    let (older, newer, first, count) = part("?visit=step%4020").await;
    assert_eq!((older, first), (json!(0), 1));
    assert!((20..2_000).contains(&count) && newer != json!(0), "{count} {newer}");
}
