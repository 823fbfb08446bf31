//! Redacted exports, from the command line to the check of a function.

use ferrata::prelude::*;

use crate::support::Place;

const MARK: &str = "mark-of-the-data";

/// Ships an order, whose second step fails.
async fn ship(cx: FlowContext, customer: String) -> Result<String, FlowError> {
    let address = cx.step("find address", || async { Ok::<_, FlowError>(format!("{MARK} street")) }).await?;
    let known: Result<u32, FlowError> =
        cx.step("find points", || async { Err(FlowError::fatal(format!("{MARK}: no points"))) }).await;
    let points = known.unwrap_or(0);
    let failure = format!("{customer} at {address}: {points}");
    cx.step("send", || std::future::ready(Err(FlowError::fatal(failure.clone())))).await
}

/// Guarantees: COPY-4, CLI-21.
#[tokio::test(flavor = "multi_thread")]
async fn redacted_export_shows_failure_elsewhere() {
    let (place, other) = (Place::new(), Place::new());
    let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
    let ship = flow("ship", ship);
    runtime.serve(ship.graph().unwrap()).unwrap();
    let customer = format!("{MARK} customer");
    let failed =
        runtime.call(&ship, customer).id("order-7").user(MARK).label("city", MARK).start().await.unwrap();
    failed.result().await.unwrap_err();
    assert!(place.ok(&["export", "order-7"]).contains(MARK));

    let said = place.call(&["export", "order-7", "--redact", "--to", "bug.jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("next: ferrata import bug.jsonl --store file:redacted"), "{said:?}");
    let file = place.folder.path().join("bug.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(MARK) && !text.contains("order-7"), "{text}");
    other.ok(&["import", file.to_str().unwrap()]);
    assert_eq!(other.ok(&["ls", "--status", "failed", "-o", "ids"]), "run-1\n");
    let records = |place: &Place, run: &str| -> Vec<serde_json::Value> {
        let listed = place.json(&["logs", run]);
        let record = |line: &serde_json::Value| {
            serde_json::json!([line["seq"], line["at"], line["kind"], line["status"], line["node"]])
        };
        listed.as_array().unwrap().iter().map(record).collect()
    };
    assert_eq!(records(&other, "run-1"), records(&place, "order-7"));
    let kind = |place: &Place, run: &str| place.json(&["show", run])["checkpoint"]["failure"]["kind"].clone();
    assert_eq!(kind(&other, "run-1"), kind(&place, "order-7"));
    other.ok(&["verify", "run-1"]);
    ship.check(&text).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_stay_on_request() {
    let place = Place::new();
    let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
    let graph =
        Graph::<Context>::builder("sum").node("add", async |_cx, s| Ok(s)).entry("add").build().unwrap();
    let mut input = Context::new();
    input.set("amount", 48_213_977_u32).unwrap();
    runtime.start(&graph, input).id("r").await.unwrap().wait().await.unwrap();
    assert!(!place.ok(&["export", "r", "--redact"]).contains("48213977"));
    assert!(place.ok(&["export", "r", "--redact", "--keep-numbers"]).contains("48213977"));
    assert_eq!(place.call(&["export", "r", "--keep-numbers"]).code, 2);
}
