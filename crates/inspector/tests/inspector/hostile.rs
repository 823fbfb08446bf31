//! Content of nodes and callers is data in every answer.

use axum::http::StatusCode;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeError;
use ferrata_core::state::Context;
use serde_json::json;

use super::support::{World, get};

const SCRIPT: &str = "<script>window.hit=1</script>\u{202e}\u{0}\u{1b}[31m\"'`${1}";

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn every_answer_is_bounded_json() {
    let world = World::new();
    let driver = world.driver().await;
    let graph = Graph::<Context>::builder("wild")
        .node("speak", async |_cx, _s: ferrata_core::state::Draft<Context>| {
            Err::<(), _>(NodeError::from(SCRIPT.repeat(2_000).as_str()).fatal())
        })
        .entry("speak")
        .build()
        .unwrap();
    let mut state = Context::new();
    state.set(SCRIPT, SCRIPT).unwrap();
    state.set("long", SCRIPT.repeat(20_000)).unwrap();
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    state.set("deep", deep).unwrap();
    let run = driver
        .start(&graph, state)
        .id("wild")
        .label("<b>", "</b><script>")
        .user("<img src=x onerror=alert(1)>")
        .await
        .unwrap();
    run.wait().await.unwrap();
    let router = world.router();
    for path in ["", "/state", "/records", "/family", "/state?path=/long", "/diff?from=0"] {
        let reply = get(&router, &format!("/api/v1/runs/default/wild{path}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        assert_eq!(reply.headers["content-type"], "application/json", "{path}");
        assert!(reply.text.len() < 100_000, "{path} has {} bytes", reply.text.len());
        reply.json();
    }
    let listed = get(&router, "/api/v1/runs").await.json();
    assert_eq!(listed["items"][0]["user"], "<img src=x onerror=alert(1)>");
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn question_of_any_size_has_bounded_form() {
    use ferrata_core::ask::Ask;
    let world = World::new();
    let driver = world.driver().await;
    let graph = Graph::<Context>::builder("ask")
        .gate(
            "pick",
            |_s: &Context| {
                Ask::<String>::new(SCRIPT.repeat(40_000)).choices((0..20_000).map(|n| format!("{SCRIPT}{n}")))
            },
            |s, said| s.set("said", said),
        )
        .entry("pick")
        .build()
        .unwrap();
    driver.start(&graph, Context::new()).id("ask").await.unwrap().wait().await.unwrap();
    for path in ["/api/v1/questions", "/api/v1/runs/default/ask", "/api/v1/runs", "/api/v1/briefs?run=ask"] {
        let reply = get(&world.router(), path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        assert!(reply.text.len() < 100_000, "{path} has {} bytes", reply.text.len());
    }
    let shown = get(&world.router(), "/api/v1/questions").await.json();
    assert_eq!(shown["items"][0]["question"]["schema"], serde_json::Value::Null, "the response must be JSON");
}
