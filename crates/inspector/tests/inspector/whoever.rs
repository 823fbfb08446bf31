//! Access of every kind of viewer to every endpoint, with random bodies and parameters.

use axum::body::Body;
use axum::http::StatusCode;
use ferrata_core::TenantId;
use ferrata_inspector::Viewer;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::support::{READS, World, send};

/// The viewers, as named in a header by the service's login.
const WHO: [&str; 4] = ["", "ann", "guest", "other"];

const ACTS: [&str; 11] =
    ["answer", "send", "retry", "pause", "unpause", "cancel", "edit", "goto", "fork", "purge", "none"];

#[derive(Clone, Debug)]
struct Asked {
    who: &'static str,
    method: &'static str,
    path: String,
    body: String,
}

/// Any request: each read in any tenant, and each action with a valid, invalid or random body.
fn asked() -> impl Strategy<Value = Asked> {
    let tenant = prop::sample::select(vec!["default", "default", "default", "other", "other", "none", "%2F"]);
    let run = prop::sample::select(vec!["pay-1", "pay-2", "pay-3", "none", "%00"]);
    let reads = (prop::sample::select(READS.to_vec()), tenant.clone(), "[ -~]{0,6}").prop_map(
        |(path, tenant, more)| {
            let more: String = form_urlencoded::byte_serialize(more.as_bytes()).collect();
            let and = if path.contains('?') { '&' } else { '?' };
            let path = path.replace("/runs/default/", &format!("/runs/{tenant}/"));
            ("GET", if more.len() > 9 { format!("{path}{and}q={more}") } else { path }, String::new())
        },
    );
    let body = prop_oneof![
        Just(json!({})),
        Just(json!({ "question": "approve@1:gate", "accept": true })),
        Just(json!({ "question": "approve@1:gate", "cancel": "no" })),
        Just(json!({ "reason": "r" })),
        Just(json!({ "message": { "a": 1 } })),
        Just(json!({ "patch": [{ "set": ["amount", 1] }] })),
        Just(json!({ "patch": [{ "set": ["card", { "number": "[redacted]" }] }] })),
        Just(json!({ "nodes": ["refuse"], "reason": "r" })),
        Just(json!({ "at": "check@1", "start_at": ["check"] })),
        Just(json!({ "all": true })),
        Just(
            json!({ "all": true, "dry_run": true, "filter": { "tenant": "default", "status": ["failed"] } })
        ),
        Just(json!({ "filter": { "status": ["completed"], "label": ["team=red"] } })),
        "[a-z]{1,5}".prop_map(|field| json!({ field: 1 })),
    ];
    let body = prop_oneof![
        6 => body.prop_map(|body| body.to_string()),
        1 => "\\PC{0,20}",
        1 => Just("[[[[".repeat(5_000)),
    ];
    let act = prop::sample::select(ACTS.to_vec());
    let acts = (act, tenant, run, body.clone()).prop_map(|(act, tenant, run, body)| {
        ("POST", format!("/api/v1/runs/{tenant}/{run}/acts/{act}"), body)
    });
    let bulk = prop::sample::select(vec!["cancel", "retry", "purge", "none"]);
    let bulk = (bulk, body).prop_map(|(act, body)| ("POST", format!("/api/v1/bulk/{act}"), body));
    let request = prop_oneof![4 => reads, 3 => acts, 2 => bulk];
    (prop::sample::select(WHO.to_vec()), request).prop_map(|(who, (method, path, body))| Asked {
        who,
        method,
        path,
        body,
    })
}

/// Guarantees: INSPECT-5, INSPECT-8, SECURITY-5.
#[test]
fn no_request_exceeds_viewer_permissions() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fresh = || {
        let world = tokio.block_on(World::with_runs());
        let router = world.inspector().allow_writes().redact("/card/number").access(|request| {
            let name = request.headers.get("x-user")?.to_str().ok()?.to_owned();
            let viewer = Viewer::new().named(&name);
            match name.as_str() {
                "ann" => Some(viewer),
                "guest" => Some(viewer.reading()),
                "other" => Some(viewer.of_tenant(TenantId::new("other").ok()?)),
                _ => None,
            }
        });
        (world, router.into_router())
    };
    let world = std::cell::RefCell::new(fresh());
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() });
    runner
        .run(&asked(), |asked| {
            let reply;
            let wrote;
            {
                let of = world.borrow();
                let before = of.0.writes();
                let json = [("content-type", "application/json"), ("x-user", asked.who)];
                reply = tokio.block_on(send(
                    &of.1,
                    asked.method,
                    &asked.path,
                    &json,
                    Body::from(asked.body.clone()),
                ));
                wrote = of.0.writes() - before;
            }
            let (status, text) = (reply.status, &reply.text);
            let is_api = asked.path.starts_with("/api");
            prop_assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{:?}: {}", asked, text);
            prop_assert!(status.is_success() || !reply.code().is_empty(), "{:?}: {}", asked, text);
            prop_assert!(!text.contains("4111-1111"), "a hidden field: {:?}: {}", asked, text);
            if asked.method == "GET" || !status.is_success() {
                prop_assert_eq!(wrote, 0, "the request wrote to the store: {:?}", asked);
            }
            match asked.who {
                "" => prop_assert!(!is_api || status == StatusCode::UNAUTHORIZED, "{:?}: {}", asked, text),
                "guest" if asked.method == "POST" => {
                    prop_assert!(status == StatusCode::FORBIDDEN, "{:?}: {}", asked, text)
                }
                "other" => {
                    // Texts that only the runs of the other tenant contain.
                    for mark in ["\"red\"", "the bank is closed", "Pay this much", "\"tenant\":\"default\""] {
                        prop_assert!(!text.contains(mark), "{mark} of another tenant: {:?}: {}", asked, text);
                    }
                    let names_other = asked.path.contains("/runs/") && !asked.path.contains("/runs/other/");
                    prop_assert!(!names_other || status.is_client_error(), "{:?}: {}", asked, text);
                }
                _ => {}
            }
            // An action changes the world, so each case starts with a fresh one.
            if wrote > 0 {
                *world.borrow_mut() = fresh();
            }
            Ok(())
        })
        .unwrap();
}
