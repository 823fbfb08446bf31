//! Live streams that continue where they were interrupted.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use ferrata_core::RunKey;
use ferrata_core::ask::Answer;
use futures_util::StreamExt;
use tokio::sync::watch;
use tower::ServiceExt;

use super::support::{World, get, pay, send};

/// Guarantees: INSPECT-11.
#[tokio::test]
async fn stream_continues_after_last_seen_event() {
    let world = World::with_runs().await;
    let router = world.router();
    let all = get(&router, "/api/v1/runs/default/pay-1/events?after=0").await;
    assert_eq!(all.headers["content-type"], "text/event-stream");
    let ids: Vec<&str> = all.text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert!(ids.len() >= 2 && all.text.ends_with("event: end\ndata: {}\n\n"), "{}", all.text);
    for (at, id) in ids.iter().enumerate() {
        let rest = send(
            &router,
            "GET",
            "/api/v1/runs/default/pay-1/events",
            &[("last-event-id", id)],
            Body::empty(),
        )
        .await;
        let seen: Vec<&str> = rest.text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(seen, ids[at + 1..], "behind {id}");
    }
    let wrong = send(
        &router,
        "GET",
        "/api/v1/runs/default/pay-1/events",
        &[("last-event-id", "nonsense")],
        Body::empty(),
    )
    .await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.writes(), 0);
}

/// Guarantees: INSPECT-11.
#[tokio::test]
async fn stream_shows_actions_of_another_runtime() {
    let world = World::with_runs().await;
    let (end, ending) = watch::channel(false);
    let router = world.inspector().ending(ending).into_router();
    let request =
        Request::get("/api/v1/runs/default/pay-2/events").header("host", "localhost").body(Body::empty());
    let response = router.oneshot(request.unwrap()).await.unwrap();
    let mut frames = response.into_body().into_data_stream();
    let driver = world.driver().await;
    let run = RunKey::try_from("pay-2").unwrap();
    driver.respond(&run, "approve", Answer::accept(true).unwrap()).by("ann").await.unwrap();
    let first = frames.next().await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    assert!(first.contains("event: answered") && first.contains("\"ann\""), "{first}");
    // The stream ends with the server, which would otherwise wait for it at shutdown.
    end.send(true).unwrap();
    while frames.next().await.is_some() {}
    let _ = pay();
}

/// Guarantees: INSPECT-12.
#[tokio::test]
async fn stream_contains_no_node_or_caller_text() {
    let world = World::new();
    let graph = ferrata_core::graph::Graph::<ferrata_core::state::Context>::builder("talk")
        .node("talk", async |cx: ferrata_core::node::NodeContext, mut s: ferrata_core::state::Draft<_>| {
            cx.progress("secret-progress").await?;
            cx.emit("note", "secret-note")?;
            let heard: String = cx.receive().await?;
            s.set("heard", heard)?;
            Ok(s)
        })
        .entry("talk")
        .build()
        .unwrap();
    let driver = world.driver().await;
    driver.serve(&graph).unwrap();
    let mut state = ferrata_core::state::Context::new();
    state.set("card", "secret-input").unwrap();
    let run = driver.start(&graph, state).id("talk").await.unwrap();
    run.wait().await.unwrap();
    driver.send(run.run(), "secret-message").by("ann").await.unwrap();
    let mut told = driver.watch(run.run()).await.unwrap();
    while told.next().await.unwrap().is_some() {}
    let all = get(&world.router(), "/api/v1/runs/default/talk/events?after=0").await;
    assert!(all.text.contains("event: message_sent") && all.text.contains("event: end"), "{}", all.text);
    assert!(!all.text.contains("secret"), "{}", all.text);
    // On request, the stream contains the texts of nodes, unless a hook hides something.
    let path = "/api/v1/runs/default/talk/events?after=0&words=true";
    let all = get(&world.router(), path).await;
    assert!(all.text.contains("event: progress") && all.text.contains("secret-progress"), "{}", all.text);
    let hides = world.inspector().redact_texts(|_| None).into_router();
    assert!(!get(&hides, path).await.text.contains("secret"));
}
