//! Large amounts of data: many runs, many records, a large state. A slow read here is slow on every page.
//!
//! `FERRATA_INSPECTOR_RUNS=100000 FERRATA_INSPECTOR_RECORDS=10000 FERRATA_INSPECTOR_ROWS=50000 cargo test --release -p ferrata-inspector scale -- --nocapture` measures the
//! figures of the documentation.
#![expect(clippy::print_stdout, reason = "what was measured is told")]

use ferrata_core::graph::Graph;
use ferrata_core::state::Context;
use ferrata_core::{Clock as _, SystemClock};
use serde_json::json;

use super::support::{World, get, read};

fn set(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Reads an existing path, and prints its duration and size.
async fn timed(router: &axum::Router, path: &str) -> String {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let reply = get(router, path).await;
    assert_eq!(reply.status, axum::http::StatusCode::OK, "{path}: {}", reply.text);
    let took = clock.monotonic() - began;
    println!("{:>9.1} ms {:>8} bytes  {path}", took.as_secs_f64() * 1e3, reply.text.len());
    reply.text
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn list_of_many_runs_is_paged() {
    let world = World::with_runs().await;
    let runs = set("FERRATA_INSPECTOR_RUNS", 3_000);
    world.copy("pay-3", runs / 2).await;
    world.copy("pay-1", runs / 2).await;
    let router = world.router();
    let cost = async |path: &str| {
        let before = world.reads();
        let text = timed(&router, path).await;
        assert!(text.len() < 60_000, "{path} has {} bytes", text.len());
        world.reads() - before
    };
    assert_eq!(cost("/api/v1/runs?limit=50").await, 1);
    assert_eq!(cost("/api/v1/runs?limit=50&status=failed&label=team%3Dred&workflow=pay").await, 1);
    assert_eq!(cost("/api/v1/runs?limit=50&status=interrupted").await, 1);
    assert_eq!(cost("/api/v1/questions").await, 2, "the listing, and one log with a question");
    assert_eq!(cost("/api/v1/fleet").await, 2, "the active runs and the queues");
    // A complete id is found at once, however old its run is. Other words search a limited number of heads, and the response contains this number.
    let found = read(&router, "/api/v1/runs?q=pay-3-0&limit=1").await;
    assert_eq!(found["items"][0]["id"], "pay-3-0");
    assert!(cost("/api/v1/runs?limit=50&q=nothing-like-it").await <= 6);
    let found = read(&router, "/api/v1/runs?q=nothing-like-it").await;
    assert_eq!(found["next"].is_string(), runs > 5_000, "the search must continue where it stopped");
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn run_with_many_records_has_bounded_answers() {
    let world = World::new();
    let records = set("FERRATA_INSPECTOR_RECORDS", 250);
    let graph = Graph::<Context>::builder("loop")
        .node("step", async |_cx, mut s| {
            let count = s.get::<usize>("count")?.unwrap_or_default() + 1;
            s.set("count", count)?;
            Ok(s)
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("step")
        .max_steps(records as u64 + 1)
        .route("step", ["step", "end"], move |s, _cx| {
            if s.get::<usize>("count").ok().flatten() < Some(records) { "step" } else { "end" }
        })
        .build()
        .unwrap();
    let driver = world.driver().await;
    driver.start(&graph, Context::new()).id("long").await.unwrap().completed().await.unwrap();
    let router = world.router();
    for path in [
        "",
        "?at=7",
        "/records",
        "/records?from=0&limit=2000",
        "/state",
        "/diff?from=0",
        "/family",
        "/post-mortem",
    ] {
        timed(&router, &format!("/api/v1/runs/default/long{path}")).await;
    }
    timed(&router, "/api/v1/runs/default/long").await;
    let shown = read(&router, "/api/v1/runs/default/long").await;
    let (past, older) =
        (shown["run"]["past"].as_array().unwrap().len(), shown["run"]["older"].as_u64().unwrap());
    assert!(past <= 2_000);
    assert_eq!(past as u64 + older, records as u64 + 1);
    assert_eq!(shown["run"]["graph"]["nodes"].as_array().unwrap().len(), 2);
    let all = read(&router, "/api/v1/runs/default/long/records?limit=100").await;
    assert!(all["items"].as_array().unwrap().len() <= 200, "the last records");
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn page_reads_log_once_and_state_once() {
    let world = World::with_runs().await;
    let router = world.router();
    let cost = async |path: &str| {
        let before = world.reads();
        read(&router, &format!("/api/v1/runs/default/pay-3{path}")).await;
        world.reads() - before
    };
    // Reads the head for the page, and the head and the records for their texts.
    assert_eq!(cost("").await, 3);
    assert_eq!(cost("").await, 1);
    assert_eq!(cost("?at=1").await, 3, "the nodes and edges of the newest record are cached");
    assert_eq!(cost("?at=2").await, 3);
    // Reads the head and the records. Reads the secret channels once per head.
    assert_eq!(cost("/state").await, 3);
    for path in ["/state?path=/card", "/state?path=/card/number", "/state?path=/amount"] {
        assert_eq!(cost(path).await, 1, "{path}");
    }
    assert_eq!(cost("/state?at=1").await, 2);
    assert_eq!(cost("/diff?from=1").await, 2, "both states are cached");
    // The cache belongs to one run: a restarted run with the same id is read again.
    let driver = world.driver().await;
    let run = ferrata_core::RunKey::try_from("pay-3").unwrap();
    driver.purge(&run).await.unwrap();
    world.start(&driver, "pay-3", 77).await;
    let anew = read(&router, "/api/v1/runs/default/pay-3/state?path=/amount&at=1").await;
    assert_eq!(anew["state"]["value"], 77);
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn state_of_megabytes_has_small_answers() {
    let world = World::new();
    let graph =
        Graph::<Context>::builder("large").node("keep", async |_cx, s| Ok(s)).entry("keep").build().unwrap();
    let mut state = Context::new();
    let rows =
        |of: usize| (0..of).map(|row| json!({ "row": row, "text": "x".repeat(80) })).collect::<Vec<_>>();
    let many = set("FERRATA_INSPECTOR_ROWS", 5_000);
    state.set("rows", rows(many)).unwrap();
    state.set("text", "y".repeat(200_000)).unwrap();
    state
        .set(
            "wide",
            (0..5_000)
                .map(|field| (format!("f{field}"), field))
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
        .unwrap();
    let driver = world.driver().await;
    driver.start(&graph, state).id("large").await.unwrap().completed().await.unwrap();
    let router = world.router();
    for path in [
        "",
        "/state",
        "/state?path=/rows",
        "/state?path=/rows&offset=4999",
        "/state?path=/text&offset=190000",
        "/state?path=/wide",
        "/diff?from=0",
        "/records",
    ] {
        let text = timed(&router, &format!("/api/v1/runs/default/large{path}")).await;
        assert!(text.len() < 60_000, "{path} has {} bytes", text.len());
    }
}
