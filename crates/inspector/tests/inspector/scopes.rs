//! Access: separate tenants, hidden fields, and rejected viewers.

use axum::body::Body;
use axum::http::StatusCode;
use ferrata_core::TenantId;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft, HIDDEN};
use ferrata_inspector::Viewer;

use super::support::{READS, World, act, get, read, send};
use serde_json::json;

/// Guarantees: INSPECT-5, SECURITY-5.
#[tokio::test]
async fn tenant_viewer_sees_own_tenant_only() {
    let world = World::with_runs().await;
    let tenant = TenantId::new("other").unwrap();
    let viewer = Viewer::new().named("ann").of_tenant(tenant);
    let router = world.inspector().allow_writes().access(move |_| Some(viewer.clone())).into_router();
    let list = read(&router, "/api/v1/runs").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(read(&router, "/api/v1/runs?q=pay-3").await["items"], json!([]));
    assert_eq!(read(&router, "/api/v1/runs?q=default/pay-3").await["items"], json!([]));
    assert_eq!(get(&router, "/api/v1/runs?tenant=default").await.status, StatusCode::NOT_FOUND);
    assert_eq!(read(&router, "/api/v1/questions").await["items"], json!([]));
    assert_eq!(read(&router, "/api/v1/briefs?run=default/pay-3").await["items"], json!([]));
    // The response for a run of another tenant equals that for a missing run, on every path.
    for path in READS.iter().filter(|path| path.contains("/runs/default/")) {
        let there = get(&router, path).await;
        let gone = get(&router, &path.replace("pay-", "gone-")).await;
        assert_eq!(there.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(there.text.replace("pay-", "gone-"), gone.text, "{path}");
    }
    assert_eq!(
        get(&router, "/api/v1/runs/other/pay-1/diff?from=0&of=default/pay-1").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(get(&router, "/api/v1/runs/default/pay-1/events").await.status, StatusCode::NOT_FOUND);
    assert_eq!(act(&router, "default/pay-2/acts/cancel", json!({})).await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.writes(), 0);
    assert_eq!(read(&router, "/api/v1/fleet").await["in_progress"], 0);
    assert_eq!(read(&router, "/api/v1/runs/other/pay-1").await["head"]["id"], "pay-1");
}

/// Guarantees: INSPECT-6, SECURITY-5.
#[tokio::test]
async fn hidden_fields_are_in_no_answer() {
    let world = World::with_runs().await;
    let router = world.inspector().redact("/card/number").redact("/receipt").into_router();
    for path in READS.iter().filter(|path| path.starts_with("/api")) {
        let reply = get(&router, path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        assert!(!reply.text.contains("4111-1111"), "{path}: {}", reply.text);
        assert!(!reply.text.contains("\"r-1\""), "{path}: {}", reply.text);
    }
    let open = world.router();
    let shown = async |path: &str| get(&open, path).await.text.contains("4111-1111");
    assert!(shown("/api/v1/runs/default/pay-3/state").await, "without the rule, the same text is visible");
    assert!(shown("/api/v1/runs/default/pay-3/post-mortem").await);
    assert_eq!(
        read(&router, "/api/v1/runs/default/pay-1/state?path=/card/number").await["state"]["value"],
        "[redacted]"
    );
}

/// Guarantees: AT-REST-7, INSPECT-7.
#[tokio::test]
async fn secret_channel_is_shown_only_with_permission() {
    const MARK: &str = "mark-of-a-secret";
    let world = World::with_runs().await;
    let graph = Graph::<Context>::builder("keeps")
        .secret("token")
        .secret("tokens")
        .node("ask", async |cx: NodeContext, mut s: Draft<Context>| {
            cx.progress(MARK).await?;
            s.set("token", json!({ "bearer": MARK }))?;
            s.set("tokens", [MARK])?;
            s.set("open", "to be seen")?;
            Ok(s)
        })
        .entry("ask")
        .build()
        .unwrap();
    let runtime = Runtime::builder(world.store.clone()).build().await.unwrap();
    let mut input = Context::new();
    input.set("token", format!("{MARK}-of-before")).unwrap();
    let run = runtime.start(&graph, input).id("keeps").await.unwrap();
    run.wait().await.unwrap();
    let inspector = || world.inspector().allow_writes();
    let router = inspector().into_router();
    let (path, head) = ("/api/v1/runs/default/keeps", "/api/v1/runs/default/keeps/state");
    for path in READS.iter().filter(|path| path.contains("/pay-1")) {
        let path = path.replace("pay-1", "keeps");
        let reply = get(&router, &path).await;
        assert!(!reply.text.contains(MARK), "{path}: {}", reply.text);
    }
    for path in [format!("{path}/diff?from=0"), format!("{path}/post-mortem"), format!("{head}?at=0")] {
        let reply = get(&router, &path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        assert!(!reply.text.contains(MARK), "{path}: {}", reply.text);
    }
    assert_eq!(read(&router, &format!("{head}?path=/token")).await["state"]["value"], HIDDEN);
    assert!(get(&router, head).await.text.contains("to be seen"));
    // A placeholder for hidden data cannot be written back.
    let refused = act(
        &router,
        "default/keeps/acts/fork",
        json!({ "at": "0", "patch": [{ "set": ["token", HIDDEN] }] }),
    )
    .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text);
    assert!(refused.text.contains("placeholder of a hidden value"), "{}", refused.text);
    let trusted = inspector().access(|_| Some(Viewer::new().seeing_secrets())).into_router();
    assert!(get(&trusted, &format!("{head}?path=/token")).await.text.contains(MARK));
    assert!(
        !get(&router, &format!("{head}?path=/token")).await.text.contains(MARK),
        "this also holds for cached data"
    );
    // Texts of nodes may contain the value of a hidden channel.
    let words = format!("{path}/events?after=0&words=true");
    assert!(!get(&router, &words).await.text.contains(MARK));
    assert!(get(&trusted, &words).await.text.contains(MARK));
    // A post-mortem may be passed on. So it contains no secret, whoever reads it, also if other data is hidden.
    let hiding = inspector().redact("/open").access(|_| Some(Viewer::new().seeing_secrets())).into_router();
    assert!(get(&hiding, head).await.text.contains(MARK));
    for router in [&trusted, &hiding] {
        let report = get(router, &format!("{path}/post-mortem")).await;
        assert_eq!(report.status, StatusCode::OK);
        assert!(!report.text.contains(MARK), "{}", report.text);
    }
}

/// Guarantees: INSPECT-8.
#[tokio::test]
async fn service_decides_viewing_and_acting_permissions() {
    let world = World::with_runs().await;
    let router = world
        .inspector()
        .allow_writes()
        .access(|request| {
            let name = request.headers.get("x-user")?.to_str().ok()?.to_owned();
            let viewer = Viewer::new().named(&name);
            Some(if name == "guest" { viewer.reading() } else { viewer })
        })
        .into_router();
    for path in READS.iter().filter(|path| path.starts_with("/api")) {
        assert_eq!(get(&router, path).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let json = ("content-type", "application/json");
    let cancel = "/api/v1/runs/default/pay-2/acts/cancel";
    let as_guest = send(&router, "POST", cancel, &[json, ("x-user", "guest")], "{}").await;
    assert_eq!(as_guest.status, StatusCode::FORBIDDEN);
    let meta = send(&router, "GET", "/api/v1", &[("x-user", "guest")], Body::empty()).await.json();
    assert_eq!((&meta["writes"], &meta["viewer"]), (&json!(false), &json!("guest")));
    assert_eq!(world.writes(), 0);
    let as_ann = send(&router, "POST", cancel, &[json, ("x-user", "ann")], "{\"reason\":\"enough\"}").await;
    assert_eq!(as_ann.status, StatusCode::OK, "{}", as_ann.text);
    let told =
        send(&router, "GET", "/api/v1/runs/default/pay-2/records", &[("x-user", "ann")], Body::empty())
            .await
            .text;
    assert!(told.contains("ann asked to cancel it: enough"), "{told}");
}
