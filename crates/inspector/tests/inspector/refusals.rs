//! Rejected requests: other hosts, other origins, missing tokens, and invalid requests.

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::support::{READS, World, get, send};

async fn with(router: &Router, headers: &[(&str, &str)]) -> StatusCode {
    send(router, "GET", "/api/v1/runs", headers, Body::empty()).await.status
}

/// Guarantees: INSPECT-3, SECURITY-3.
#[tokio::test]
async fn a_name_that_is_not_meant_is_refused() {
    let world = World::new();
    let router = world.inspector().allow_host("Ops.Example.com").into_router();
    for host in ["localhost", "localhost:7707", "127.0.0.1:1", "[::1]:7707", "OPS.example.com:80"] {
        assert_eq!(with(&router, &[("host", host)]).await, StatusCode::OK, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:7707",
        "",
        "127.0.0.2",
        "[::2]:7707",
        "ops.example.com.evil",
    ] {
        assert_eq!(with(&router, &[("host", host)]).await, StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    let page = send(&router, "GET", "/", &[("host", "evil.example")], Body::empty()).await;
    assert_eq!(page.status, StatusCode::MISDIRECTED_REQUEST, "this also holds for the page");
    let any = world.inspector().allow_any_host().into_router();
    assert_eq!(with(&any, &[("host", "evil.example")]).await, StatusCode::OK);
}

/// Guarantees: INSPECT-3, SECURITY-3.
#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    for origin in ["http://evil.example", "http://localhost:7708", "null", "http://localhost"] {
        assert_eq!(with(&router, &[("origin", origin)]).await, StatusCode::FORBIDDEN, "{origin}");
    }
    assert_eq!(with(&router, &[("origin", "http://localhost:7707")]).await, StatusCode::OK);
    assert_eq!(with(&router, &[("sec-fetch-site", "cross-site")]).await, StatusCode::FORBIDDEN);
    assert_eq!(with(&router, &[("sec-fetch-site", "same-origin")]).await, StatusCode::OK);
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    assert_eq!(
        send(&router, "GET", "/", &link, Body::empty()).await.status,
        StatusCode::OK,
        "a link must work"
    );
    // A form of another site cannot send JSON, and has another origin.
    let form = [("content-type", "text/plain")];
    let path = "/api/v1/runs/default/pay-2/acts/cancel";
    assert_eq!(send(&router, "POST", path, &form, "{}").await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let form = [("content-type", "application/json"), ("origin", "http://evil.example")];
    assert_eq!(send(&router, "POST", path, &form, "{}").await.status, StatusCode::FORBIDDEN);
    assert_eq!(world.writes(), 0);
}

/// Guarantees: INSPECT-3.
#[tokio::test]
async fn requests_without_token_get_only_empty_page() {
    let world = World::with_runs().await;
    let router = world.inspector().token("0123456789abcdef").allow_writes().into_router();
    for path in READS.iter().filter(|path| path.starts_with("/api")) {
        assert_eq!(get(&router, path).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let json = [("content-type", "application/json")];
    let act = send(&router, "POST", "/api/v1/runs/default/pay-2/acts/cancel", &json, "{}").await;
    assert_eq!((act.status, world.reads(), world.writes()), (StatusCode::UNAUTHORIZED, 0, 0));
    assert_eq!(
        with(&router, &[("authorization", "Bearer 0123456789abcdeX")]).await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(with(&router, &[("authorization", "Bearer 0123456789abcdef")]).await, StatusCode::OK);
    assert_eq!(get(&router, "/").await.status, StatusCode::OK);
}

/// Guarantees: INSPECT-4.
#[tokio::test]
async fn every_answer_is_sealed() {
    let world = World::with_runs().await;
    let router = world.router();
    for path in READS.iter().chain(&["/none", "/api/none", "/app.js", "/api/v1/runs/default/none"]) {
        let reply = get(&router, path).await;
        let policy = reply.headers["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(reply.headers["x-frame-options"], "DENY", "{path}");
        let stored = reply.headers["cache-control"].to_str().unwrap();
        assert!(!path.starts_with("/api") || stored == "no-store", "{path}: {stored}");
    }
}

/// Guarantees: INSPECT-17.
#[tokio::test]
async fn the_page_is_found_wherever_it_is_nested() {
    let world = World::new();
    let router =
        Router::new().nest("/ops/ferrata", world.router()).route("/", axum::routing::get(async || "own"));
    let page = get(&router, "/ops/ferrata").await;
    assert_eq!(
        (page.status, page.headers["content-type"].to_str().unwrap()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert!(page.text.contains("src=\"./ferrata/app.js\""), "{}", page.text);
    let page = get(&router, "/ops/ferrata/index.html").await;
    assert!(page.text.contains("src=\"./app.js\""), "{}", page.text);
    let alone = get(&world.router(), "/").await;
    assert!(alone.text.contains("src=\"./app.js\""), "{}", alone.text);
    assert_eq!(get(&router, "/ops/ferrata/app.js").await.status, StatusCode::OK);
    assert_eq!(get(&router, "/ops/ferrata/api/v1/runs").await.status, StatusCode::OK);
    assert_eq!(get(&router, "/").await.text, "own");
    let tag = page.headers["etag"].to_str().unwrap().to_owned();
    let again =
        send(&router, "GET", "/ops/ferrata/index.html", &[("if-none-match", &tag)], Body::empty()).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
}

/// Guarantees: INSPECT-22.
#[tokio::test]
async fn invalid_parameter_is_named() {
    let world = World::with_runs().await;
    let router = world.router();
    for (path, word) in [
        ("/api/v1/runs?stauts=failed", "stauts"),
        ("/api/v1/runs?status=broken", "status"),
        ("/api/v1/runs?limit=0", "limit"),
        ("/api/v1/runs?limit=many", "limit"),
        ("/api/v1/runs?limit=1&limit=2", "twice"),
        ("/api/v1/runs?label=red", "KEY=VALUE"),
        ("/api/v1/runs?since=yesterday", "since"),
        ("/api/v1/runs?workflow=%20", "workflow"),
        ("/api/v1/runs?cursor=nonsense", "cursor"),
        ("/api/v1/runs/default/pay-1?at=nowhere", "position"),
        ("/api/v1/runs/default/pay-1/state?path=card", "pointer"),
        ("/api/v1/runs/default/pay-1/diff", "from"),
        ("/api/v1/runs/default/%3Cb%3E", "run"),
        ("/api/v1/runs/default/pay-1/events?after=x", "cursor"),
    ] {
        let reply = get(&router, path).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (StatusCode::BAD_REQUEST, "INVALID"),
            "{path}: {}",
            reply.text
        );
        assert!(reply.text.contains(word), "{path}: {}", reply.text);
    }
    for path in [
        "/api/v1/runs/default/none",
        "/api/v1/runs/default/pay-1?at=99",
        "/api/v1/none",
        "/api/v2/runs",
        "/none.js",
    ] {
        assert_eq!(get(&router, path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(
        send(&router, "DELETE", "/api/v1/runs", &[], Body::empty()).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

/// For any address, the response comes from the API, and nothing is written.
///
/// Guarantees: INSPECT-22.
#[test]
fn no_address_breaks_the_inspector() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = tokio.block_on(World::with_runs());
    let router = world.inspector().allow_writes().into_router();
    let part = || {
        prop_oneof![
            Just("default".to_owned()),
            Just("pay-1".to_owned()),
            Just("state".to_owned()),
            Just("..".to_owned()),
            "[ -~]{0,12}".prop_map(|text| form_urlencoded::byte_serialize(text.as_bytes()).collect()),
            "\\PC{0,6}".prop_map(|text| form_urlencoded::byte_serialize(text.as_bytes()).collect()),
        ]
    };
    let name = prop::sample::select(vec![
        "at", "path", "offset", "limit", "from", "to", "of", "q", "status", "label", "since", "cursor",
        "order", "x",
    ]);
    let value = prop_oneof![part(), Just("latest".to_owned()), any::<i128>().prop_map(|n| n.to_string())];
    let query = prop::collection::vec((name, value), 0..4);
    let base = prop::sample::select(vec![
        "/api/v1/runs",
        "/api/v1/runs/default/pay-1",
        "/api/v1/questions",
        "/api/v1/fleet",
        "/api/v1/briefs",
        "/",
    ]);
    let address = (base, prop::collection::vec(part(), 0..3), query).prop_map(|(base, parts, query)| {
        let parts: String = parts.iter().map(|part| format!("/{part}")).collect();
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{base}{parts}?{}", query.join("&"))
    });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() });
    runner
        .run(&address, |address| {
            if address.contains("/events") {
                return Ok(());
            }
            let reply = tokio.block_on(get(&router, &address));
            prop_assert!(reply.status != StatusCode::INTERNAL_SERVER_ERROR, "{}: {}", address, reply.text);
            prop_assert!(
                reply.status.is_success() || reply.status.is_redirection() || !reply.code().is_empty(),
                "{address}"
            );
            Ok(())
        })
        .unwrap();
    assert_eq!(world.writes(), 0);
}
