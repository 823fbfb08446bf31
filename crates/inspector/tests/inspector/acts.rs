//! Actions that the inspector permits, with the same effect as the command.

use axum::http::StatusCode;
use ferrata_core::RunKey;
use ferrata_core::ask::Ask;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};
use serde_json::json;

use super::support::{World, act, get, pay, read, send};

/// Guarantees: INSPECT-2, SECURITY-4.
#[tokio::test]
async fn an_inspector_that_only_reads_refuses_every_act() {
    let world = World::with_runs().await;
    let router = world.router();
    for name in ["answer", "send", "retry", "pause", "unpause", "cancel", "edit", "fork", "none"] {
        let reply = act(&router, &format!("default/pay-2/acts/{name}"), json!({})).await;
        assert_eq!((reply.status, reply.code().as_str()), (StatusCode::FORBIDDEN, "FORBIDDEN"), "{name}");
    }
    assert_eq!((world.reads(), world.writes()), (0, 0));
}

/// Guarantees: INSPECT-15.
#[tokio::test]
async fn answer_reaches_run_second_answer_is_refused() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    let answer = |value: serde_json::Value| json!({ "question": "approve@1:gate", "accept": value });
    let wrong = act(&router, "default/pay-2/acts/answer", answer(json!("perhaps"))).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (StatusCode::BAD_REQUEST, "INVALID"), "{}", wrong.text);
    let none = act(&router, "default/pay-2/acts/answer", json!({ "question": "approve@1:gate" })).await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST);
    let said = act(&router, "default/pay-2/acts/answer", answer(json!(true))).await;
    assert_eq!(said.status, StatusCode::OK, "{}", said.text);
    let twice = act(&router, "default/pay-2/acts/answer", answer(json!(true))).await;
    assert_eq!(twice.status, StatusCode::CONFLICT, "{}", twice.text);
    assert_eq!(read(&router, "/api/v1/questions").await["items"], json!([]));
    let driver = world.driver().await;
    let run = driver.resume(&pay(), "pay-2").await.unwrap();
    let state = run.completed().await.unwrap();
    assert_eq!(state.get::<bool>("approved").unwrap(), Some(true));
}

#[tokio::test]
async fn a_failed_run_is_edited_and_tried_again() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    let edit = act(&router, "default/pay-3/acts/edit", json!({ "patch": [{ "set": ["amount", 12] }] })).await;
    assert_eq!(edit.status, StatusCode::OK, "{}", edit.text);
    let bad =
        act(&router, "default/pay-3/acts/edit", json!({ "patch": [{ "append": ["amount", [1]] }] })).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST, "{}", bad.text);
    assert_eq!(act(&router, "default/pay-3/acts/retry", json!({})).await.status, StatusCode::OK);
    assert_eq!(act(&router, "default/pay-3/acts/retry", json!({})).await.status, StatusCode::CONFLICT);
    let driver = world.driver().await;
    driver.resume(&pay(), "pay-3").await.unwrap().completed().await.unwrap();
    let told = get(&router, "/api/v1/runs/default/pay-3/records").await.text;
    assert!(
        told.contains("inspector changed the state: `amount`") && told.contains("inspector retried it"),
        "{told}"
    );
}

/// Guarantees: INSPECT-20.
#[tokio::test]
async fn fork_continues_from_past_with_edited_state() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    let fork = json!({ "at": "check@1", "id": "again", "patch": [{ "set": ["amount", 1] }] });
    let reply = act(&router, "default/pay-3/acts/fork", fork.clone()).await;
    assert_eq!(reply.json(), json!({ "run": { "tenant": "default", "id": "again" } }));
    // The same fork again returns the same run, so a repeated click creates no second fork.
    assert_eq!(act(&router, "default/pay-3/acts/fork", fork).await.json(), reply.json());
    let driver = world.driver().await;
    driver.resume(&pay(), "again").await.unwrap().completed().await.unwrap();
    let source = RunKey::try_from("pay-3").unwrap();
    assert_eq!(driver.head(&source).await.unwrap().unwrap().status, RunStatus::Failed);
}

#[tokio::test]
async fn a_run_is_paused_and_let_go_on() {
    let world = World::with_runs().await;
    let router = world.inspector().allow_writes().into_router();
    assert_eq!(
        act(&router, "default/pay-2/acts/pause", json!({ "reason": "lunch" })).await.status,
        StatusCode::OK
    );
    let show = read(&router, "/api/v1/runs/default/pay-2").await;
    assert_eq!(show["run"]["paused"], "lunch");
    assert_eq!(act(&router, "default/pay-2/acts/unpause", json!({})).await.status, StatusCode::OK);
    let unknown = act(&router, "default/pay-2/acts/unpause", json!({ "force": true })).await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST, "an unknown field must be refused");
    assert_eq!(act(&router, "default/pay-2/acts/nothing", json!({})).await.status, StatusCode::NOT_FOUND);
}

/// JSON numbers of a caller keep all their digits.
///
/// Guarantees: INSPECT-14.
#[tokio::test]
async fn no_digit_of_what_is_sent_is_lost() {
    let world = World::new();
    let driver = world.driver().await;
    let wide = "123456789012345678901234567890";
    let graph = Graph::<Context>::builder("wide")
        .node("hear", async |cx: NodeContext, mut s: Draft<Context>| {
            let heard: i128 = cx.receive().await?;
            s.set("heard", heard.to_string())?;
            Ok(s)
        })
        .gate("ask", |_s: &Context| Ask::<i128>::new("How much?"), |s, said| s.set("said", said.to_string()))
        .entry("hear")
        .edge("hear", "ask")
        .build()
        .unwrap();
    let run = driver.start(&graph, Context::new()).id("wide").await.unwrap();
    run.wait().await.unwrap();
    let router = world.inspector().allow_writes().into_router();
    let act = async |name: &str, body: String| {
        let path = format!("/api/v1/runs/default/wide/acts/{name}");
        send(&router, "POST", &path, &[("content-type", "application/json")], body).await
    };
    let state = async |key: &str| {
        driver.resume(&graph, "wide").await.unwrap().wait().await.unwrap();
        read(&router, &format!("/api/v1/runs/default/wide/state?path=/{key}")).await["state"]["value"].clone()
    };
    let said = act("send", format!(r#"{{"message":{wide}}}"#)).await;
    assert_eq!(said.status, StatusCode::OK, "{}", said.text);
    assert_eq!(state("heard").await, wide);
    let said = act("answer", format!(r#"{{"question":"ask@1:gate","accept":{wide}}}"#)).await;
    assert_eq!(said.status, StatusCode::OK, "{}", said.text);
    assert_eq!(state("said").await, wide);
    // The state keeps only numbers that a JSON value can hold. Other numbers are refused by name.
    let records = driver.head(run.run()).await.unwrap().unwrap().seq;
    for number in [wide, "0.10000000000000000001"] {
        let patch = format!(r#"[{{"set":["amount",{{"of 1.5":[{number}]}}]}}]"#);
        for (name, body) in [
            ("edit", format!(r#"{{"patch":{patch}}}"#)),
            ("fork", format!(r#"{{"id":"other","patch":{patch}}}"#)),
            ("answer", format!(r#"{{"question":"ask@1:gate","resolve":{{"supply":{patch}}}}}"#)),
        ] {
            let refused = act(name, body).await;
            assert_eq!(
                (refused.status, refused.code().as_str()),
                (StatusCode::BAD_REQUEST, "INVALID"),
                "{name}"
            );
            assert!(refused.text.contains(number), "{}", refused.text);
        }
    }
    assert_eq!(driver.head(run.run()).await.unwrap().unwrap().seq, records);
}
