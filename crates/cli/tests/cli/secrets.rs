//! Secret channels: verbs show their values only with an explicit option.

use ferrata::prelude::*;
use serde::{Deserialize, Serialize};

use crate::support::Place;

const MARK: &str = "mark-of-a-secret";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Login {
    user: String,
    #[state(secret)]
    password: String,
    #[state(secret, append)]
    codes: Vec<String>,
}

/// Changes all channels and fails afterwards.
fn graph() -> Graph<Login> {
    Graph::<Login>::builder("login")
        .node("ask", async |_cx, _s: Draft<Login>| {
            Ok(Login::update().user("ann").password(format!("{MARK}-2")).codes([format!("{MARK}-3")]))
        })
        .node("enter", async |_cx, _s: Draft<Login>| -> NodeResult<Login> { Err("the door is shut".into()) })
        .retry(RetryPolicy::none())
        .entry("ask")
        .edge("ask", "enter")
        .build()
        .unwrap()
}

/// Guarantees: AT-REST-7.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_hide_secrets_by_default() {
    let place = Place::new();
    let runtime = ferrata::Runtime::builder_with(place.open()).build().await.unwrap();
    let input = Login { password: format!("{MARK}-1"), ..Login::default() };
    runtime.start(&graph(), input).id("in").await.unwrap().wait().await.unwrap();
    let lines: &[&[&str]] = &[
        &["ls"],
        &["show", "in"],
        &["show", "in", "--at", "0"],
        &["show", "in", "--node", "ask"],
        &["show", "in", "--report"],
        &["tree", "in"],
        &["history", "in"],
        &["state", "in"],
        &["state", "in", "/password"],
        &["state", "in", "--at", "0"],
        &["diff", "in", "0"],
        &["logs", "in"],
        &["fork", "in", "--list"],
        &["verify", "in"],
        &["questions", "in"],
        &["outbox", "in"],
        &["export", "in"],
    ];
    for line in lines {
        for format in ["table", "json", "jsonl", "ids"] {
            let said = place.call(&[line, &["-o", format][..]].concat());
            assert!(!said.out.contains(MARK) && !said.err.contains(MARK), "{line:?} -o {format}: {said:?}");
            assert_eq!(said.code, if line[0] == "export" { 2 } else { 0 }, "{line:?} -o {format}: {said:?}");
        }
    }
    assert_eq!(
        place.json(&["state", "in"]),
        serde_json::json!({ "user": "ann", "password": "…", "codes": "…" })
    );
    let diff = place.ok(&["diff", "in", "0"]);
    assert!(diff.contains("/password") && diff.contains("/codes") && diff.contains("ann"), "{diff}");
    let refused = place.call(&["export", "in"]);
    assert!(refused.err.contains("codes, password") && refused.err.contains("--reveal"), "{refused:?}");
    let redacted = place.ok(&["export", "in", "--redact"]);
    assert!(!redacted.contains(MARK) && redacted.contains("password"), "{redacted}");
    // The value is shown on explicit request.
    for line in [&["show", "in"], &["state", "in"], &["export", "in"]] {
        let said = place.ok(&[&line[..], &["--reveal", "-o", "json"]].concat());
        assert!(said.contains(&format!("{MARK}-2")), "{line:?}: {said}");
    }
    let told = place.ok(&["diff", "in", "0", "--reveal"]);
    assert!(told.contains(&format!("{MARK}-1")) && told.contains(&format!("{MARK}-2")), "{told}");
}
