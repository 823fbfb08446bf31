//! Schedules on the page, and the permissions of viewers for queues.

use axum::body::Body;
use axum::http::StatusCode;
use ferrata_core::TenantId;
use ferrata_inspector::Viewer;
use ferrata_queue::RuntimeQueueExt as _;
use ferrata_schedule::RuntimeScheduleExt as _;
use serde_json::{Value, json};

use super::support::{World, act, input, pay, read, send};

async fn post(router: &axum::Router, path: &str, body: Value) -> super::support::Reply {
    let path = format!("/api/v1/{path}");
    send(router, "POST", &path, &[("content-type", "application/json")], Body::from(body.to_string())).await
}

/// The page lists schedules with their own view.
///
/// Guarantees: INSPECT-21.
#[tokio::test]
async fn schedules_are_listed_and_paused() {
    let world = World::new();
    let driver = world.driver().await;
    let nightly = driver.schedule("nightly").cron("0 3 * * *").timezone("UTC");
    nightly.start(&pay(), input(5)).await.unwrap();
    let router = world.inspector().allow_writes().into_router();
    let list = read(&router, "/api/v1/schedules").await;
    let shown = &list["items"][0];
    assert_eq!((&list["count"], &shown["name"]), (&json!(1), &json!("nightly")), "{list:#}");
    assert_eq!((&shown["cron"], &shown["starts_workflow"]), (&json!("0 3 * * *"), &json!("pay")));
    let next = shown["next"].as_array().unwrap();
    assert_eq!(next.len(), 3, "{shown:#}");
    assert!(next[0].as_i64() > list["now"].as_i64());
    // Data that was just read is cached.
    let before = world.reads();
    read(&router, "/api/v1/schedules").await;
    assert_eq!(world.reads(), before);
    let paused = act(&router, "default/schedule:nightly/acts/pause", json!({ "reason": "holidays" })).await;
    assert_eq!(paused.status, StatusCode::OK, "{}", paused.text);
    let list = read(&router, "/api/v1/schedules").await;
    assert_eq!(
        (&list["items"][0]["paused"], &list["items"][0]["next"]),
        (&json!(true), &json!([])),
        "{list:#}"
    );
    let viewer = Viewer::new().of_tenant(TenantId::new("other").unwrap());
    let other = world.inspector().access(move |_| Some(viewer.clone())).into_router();
    assert_eq!(read(&other, "/api/v1/schedules").await["count"], 0);
}

/// Guarantees: INSPECT-21.
#[tokio::test]
async fn queue_is_paused_and_limited() {
    let world = World::new();
    let driver = world.driver().await;
    let mail = driver.queue("mail").at_once(5).declare().await.unwrap();
    let router = world.inspector().allow_writes().into_router();
    let shown = async || read(&router, "/api/v1/fleet").await["queues"]["items"][0].clone();
    let done = post(&router, "queues/mail/acts/pause", json!({ "reason": "stocktaking" })).await;
    assert_eq!((done.status, done.json()["paused"].clone()), (StatusCode::OK, json!(true)), "{}", done.text);
    assert_eq!((&shown().await["status"], &shown().await["why"]), (&json!("paused"), &json!("stocktaking")));
    assert_eq!(post(&router, "queues/mail/acts/unpause", json!({})).await.status, StatusCode::OK);
    let rate = json!({ "starts": 100, "period_ms": 60_000, "burst": 3 });
    let set = post(&router, "queues/mail/acts/set", json!({ "at_once": 2, "rate": rate })).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text);
    let limited = shown().await;
    assert_eq!((&limited["status"], &limited["at_once"]), (&json!("open"), &json!(2)));
    assert_eq!(limited["set_by_operator"], json!(["at_once", "rate"]));
    // An omitted field stays unchanged, and null removes an override.
    post(&router, "queues/mail/acts/set", json!({ "at_once": null })).await;
    let limits = mail.status().await.unwrap();
    assert_eq!((limits.limits().at_once, limits.overrides.rate.map(|rate| rate.burst)), (Some(5), Some(3)));
    let wrong = post(&router, "queues/mail/acts/set", json!({ "at_once": 0 })).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (StatusCode::BAD_REQUEST, "INVALID"), "{}", wrong.text);
    for (path, status) in
        [("queues/none/acts/pause", StatusCode::NOT_FOUND), ("queues/mail/acts/empty", StatusCode::NOT_FOUND)]
    {
        assert_eq!(post(&router, path, json!({})).await.status, status, "{path}");
    }
    let reads = world.inspector().into_router();
    assert_eq!(post(&reads, "queues/mail/acts/pause", json!({})).await.status, StatusCode::FORBIDDEN);
    let viewer = Viewer::new().of_tenant(TenantId::new("other").unwrap());
    let other = world.inspector().allow_writes().access(move |_| Some(viewer.clone())).into_router();
    assert_eq!(post(&other, "queues/mail/acts/pause", json!({})).await.status, StatusCode::NOT_FOUND);
}
