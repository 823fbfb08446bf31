//! One action for all runs that match conditions, with a dry run first.

use axum::Router;
use axum::http::StatusCode;
use ferrata_core::TenantId;
use ferrata_core::store::CheckpointStore as _;
use ferrata_inspector::Viewer;
use serde_json::{Value, json};

use super::support::{Reply, World, act, get, read, send};

async fn bulk(router: &Router, act: &str, body: Value) -> Reply {
    let json = [("content-type", "application/json")];
    send(router, "POST", &format!("/api/v1/bulk/{act}"), &json, body.to_string()).await
}

/// Guarantees: INSPECT-13.
#[tokio::test]
async fn filtered_purge_matches_its_dry_run() {
    let world = World::with_runs().await;
    world.copy("pay-3", 1_200).await;
    let router = world.inspector().allow_writes().into_router();
    let filter = json!({ "status": ["failed"], "label": ["team=red"], "workflow": "pay", "user": "ann" });
    // The dry run covers one part of the runs, and changes nothing.
    let first = bulk(&router, "purge", json!({ "filter": filter, "dry_run": true })).await.json();
    assert_eq!((&first["done"], first["runs"].as_array().unwrap().len()), (&json!(1_000), 50));
    let rest = json!({ "filter": filter, "dry_run": true, "cursor": first["next"] });
    let rest = bulk(&router, "purge", rest).await.json();
    assert_eq!((&rest["done"], &rest["next"]), (&json!(201), &Value::Null));
    assert_eq!(world.writes(), 0);
    let (mut done, mut cursor) = (0, Value::Null);
    loop {
        let part = bulk(&router, "purge", json!({ "filter": filter, "cursor": cursor })).await.json();
        done += part["done"].as_u64().unwrap();
        assert_eq!(part["refused"], 0, "{part}");
        cursor = part["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(done, 1_201);
    let left = read(&router, "/api/v1/runs").await;
    assert_eq!(left["items"].as_array().unwrap().len(), 3, "the other runs must be unchanged");
}

/// Guarantees: INSPECT-13.
#[tokio::test]
async fn bulk_refuses_unsuitable_run_by_name() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    let report =
        bulk(&router, "purge", json!({ "filter": { "status": ["interrupted", "completed"] } })).await.json();
    assert_eq!((&report["done"], &report["refused"]), (&json!(2), &json!(1)), "{report}");
    assert_eq!(report["refusals"][0]["run"]["id"], "pay-2");
    assert_eq!(report["refusals"][0]["code"], "WRONG_STATUS");
    let cancelled = bulk(&router, "cancel", json!({ "all": true, "reason": "enough" })).await.json();
    assert_eq!((&cancelled["done"], &cancelled["runs"][0]["id"]), (&json!(1), &json!("pay-2")));
    let told = get(&router, "/api/v1/runs/default/pay-2/records").await.text;
    assert!(told.contains("inspector asked to cancel it: enough"), "{told}");
    let retried = bulk(&router, "retry", json!({ "all": true })).await.json();
    assert_eq!(retried["runs"][0]["id"], "pay-3", "{retried}");
}

/// Guarantees: INSPECT-13.
#[tokio::test]
async fn bulk_on_every_run_needs_explicit_flag() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    for body in [json!({}), json!({ "filter": {} }), json!({ "filter": { "before": 0 } })] {
        let reply = bulk(&router, "purge", body).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (StatusCode::BAD_REQUEST, "INVALID"),
            "{}",
            reply.text
        );
        assert!(reply.text.contains("all"), "{}", reply.text);
    }
    for (act, body, status) in [
        ("forget", json!({ "all": true }), StatusCode::NOT_FOUND),
        ("purge", json!({ "all": true, "fliter": {} }), StatusCode::BAD_REQUEST),
        ("purge", json!({ "filter": { "status": ["broken"] } }), StatusCode::BAD_REQUEST),
        ("purge", json!({ "filter": { "label": ["red"] } }), StatusCode::BAD_REQUEST),
        ("purge", json!({ "filter": { "workflow": "" } }), StatusCode::BAD_REQUEST),
        ("purge", json!({ "all": true, "cursor": "nonsense" }), StatusCode::BAD_REQUEST),
    ] {
        let reply = bulk(&router, act, body).await;
        assert_eq!(reply.status, status, "{}", reply.text);
    }
    assert_eq!(world.writes(), 0);
}

/// Guarantees: INSPECT-5.
#[tokio::test]
async fn tenant_viewer_acts_on_own_tenant_only() {
    let world = World::with_runs().await;
    let viewer = Viewer::new().of_tenant(TenantId::new("other").unwrap());
    let router = world.inspector().allow_writes().access(move |_| Some(viewer.clone())).into_router();
    assert_eq!(
        bulk(&router, "purge", json!({ "filter": { "tenant": "default" }, "dry_run": true })).await.status,
        StatusCode::NOT_FOUND
    );
    let report = bulk(&router, "purge", json!({ "all": true })).await.json();
    assert_eq!((&report["done"], &report["runs"][0]["tenant"]), (&json!(1), &json!("other")));
    assert_eq!(read(&world.router(), "/api/v1/runs").await["items"].as_array().unwrap().len(), 3);
}

/// Guarantees: INSPECT-13.
#[tokio::test]
async fn purge_removes_ended_run_goto_moves_failed() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    let open = act(&router, "default/pay-2/acts/purge", json!({})).await;
    assert_eq!((open.status, open.code().as_str()), (StatusCode::CONFLICT, "WRONG_STATUS"), "{}", open.text);
    let gone = act(&router, "default/pay-1/acts/purge", json!({})).await;
    assert!(gone.json()["records"].as_u64().unwrap() > 0, "{}", gone.text);
    assert_eq!(act(&router, "default/pay-1/acts/purge", json!({})).await.status, StatusCode::NOT_FOUND);
    let nowhere = act(&router, "default/pay-3/acts/goto", json!({ "nodes": ["none"], "reason": "r" })).await;
    assert_eq!(nowhere.status, StatusCode::NOT_FOUND, "{}", nowhere.text);
    let why = act(&router, "default/pay-3/acts/goto", json!({ "nodes": ["refuse"], "reason": "" })).await;
    assert_eq!(why.status, StatusCode::BAD_REQUEST, "{}", why.text);
    let moved =
        act(&router, "default/pay-3/acts/goto", json!({ "nodes": ["refuse"], "reason": "closed" })).await;
    assert_eq!(moved.status, StatusCode::OK, "{}", moved.text);
    let told = read(&router, "/api/v1/runs/default/pay-3").await;
    assert_eq!(told["run"]["replans"][0]["to"], "refuse", "{told}");
    let run = ferrata_core::RunKey::try_from("pay-3").unwrap();
    world.driver().await.resume(&super::support::pay(), "pay-3").await.unwrap().completed().await.unwrap();
    assert!(world.store.head(&run).await.unwrap().unwrap().status.is_finished());
}
