//! Run trees: which node of which run started a run, at every level.

use ferrata::prelude::*;
use ferrata::record::RunStatus;
use ferrata::{Ask, RunKey};
use serde_json::json;

use crate::service::{Service, busy};
use crate::support::Place;

/// Asks whether the page is good.
fn page() -> Graph<Context> {
    Graph::<Context>::builder("page")
        .gate(
            "good",
            |_s: &Context| Ask::<String>::new("Is it good?").choices(["yes", "no"]),
            |s, answer| s.set("answer", answer),
        )
        .entry("good")
        .build()
        .unwrap()
}

/// Starts a child that reviews a page.
fn review() -> Graph<Context> {
    let page = page();
    Graph::<Context>::builder("review")
        .node("read", move |cx: NodeContext, s: Draft<Context>| {
            let page = page.clone();
            async move {
                cx.child(&page, Context::new()).name("first").id("page-1").await?;
                Ok(s)
            }
        })
        .entry("read")
        .build()
        .unwrap()
}

/// Starts a review next to work that it does not wait for.
fn publish() -> Graph<Context> {
    let (review, busy) = (review(), busy());
    Graph::<Context>::builder("publish")
        .node("check", move |cx: NodeContext, s: Draft<Context>| {
            let (review, busy) = (review.clone(), busy.clone());
            async move {
                cx.spawn(&busy, Context::new()).name("news").id("news-1").await?;
                cx.child(&review, Context::new()).name("review").id("review-1").await?;
                Ok(s)
            }
        })
        .entry("check")
        .build()
        .unwrap()
}

fn run(id: &str) -> serde_json::Value {
    json!({"run": id, "tenant": "default"})
}

/// `tree` shows a question of a child two levels down, with the path to it.
///
/// Guarantees: CLI-13.
#[tokio::test(flavor = "multi_thread")]
async fn a_family_is_shown_level_by_level() {
    let place = Place::new();
    let service = Service::start(&place).await;
    for graph in [publish(), review(), page()] {
        service.runtime.serve(&graph).unwrap();
    }
    let root = service.run(&publish(), "publish-1", Context::new()).await;
    let page_run = RunKey::try_from("page-1").unwrap();
    service.until(&page_run, RunStatus::Interrupted).await;
    let tree = place.json(&["tree", "publish-1"]);
    assert_eq!((&tree["run"], &tree["status"]), (&run("publish-1"), &json!("in_progress")), "{tree}");
    assert_eq!((&tree["at"], tree.get("origin")), (&json!(["check@1"]), None));
    let review = &tree["children"][0];
    let origin = json!({"parent": run("publish-1"), "at": "check@1", "name": "review", "bond": "cancel"});
    assert_eq!((&review["run"], &review["origin"]), (&run("review-1"), &origin));
    // A detached child is the root of its own run tree.
    assert_eq!(tree["children"].as_array().unwrap().len(), 1, "{tree}");
    let page = &review["children"][0];
    assert_eq!((&page["run"], &page["status"]), (&run("page-1"), &json!("interrupted")));
    assert_eq!(page["questions"][0]["id"], "good@1:gate");
    let text = place.ok(&["tree", "publish-1", "--time", "unix"]);
    let lines: Vec<String> = text.lines().map(|line| place.normal(line)).collect();
    assert_eq!(
        lines,
        [
            "publish-1  publish  in_progress  TIME  at check@1",
            "└─ check@1 review  review-1  review  in_progress  TIME  at read@1",
            "   └─ read@1 first  page-1  page  interrupted  TIME  at good@1",
            "          ? good@1:gate  Is it good?",
        ]
    );
    assert_eq!(place.ok(&["tree", "publish-1", "-o", "ids"]), "publish-1\nreview-1\npage-1\n");
    let part = place.call(&["tree", "review-1"]);
    assert!(part.out.starts_with("check@1 review  review-1") && part.err.contains("publish-1"), "{part:?}");

    let mut roots: Vec<String> =
        place.ok(&["ls", "--roots", "-o", "ids"]).lines().map(str::to_owned).collect();
    roots.sort();
    assert_eq!(roots, ["news-1", "publish-1"]);
    let said = place.ok(&["show", "review-1"]);
    assert!(said.contains("parent    publish-1 at check@1 review"), "{said}");
    assert!(said.contains("children  1 interrupted; ferrata tree review-1"), "{said}");
    assert!(!said.contains("ferrata.root"), "{said}");
    let shown = place.json(&["show", "publish-1"]);
    let names: Vec<&str> = shown["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| child["run"]["run"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["news-1", "review-1"]);
    assert_eq!(place.json(&["show", "page-1"])["origin"]["parent"], run("review-1"));

    let asked = place.json(&["questions", "publish-1"]);
    let way_down = "check@1:review/read@1:first/good@1:gate";
    assert_eq!((&asked[0]["id"], &asked[0]["asked_by"]), (&json!(way_down), &run("page-1")), "{asked}");
    // The shape of the answer, for a form.
    assert_eq!(asked[0]["schema"]["enum"], json!(["yes", "no"]), "{asked}");
    let said = place.call(&["pause", "publish-1", "--reason", "lunch"]);
    assert!(said.err.contains("paused with it: 2 runs below publish-1"), "{said:?}");
    // A paused, idle run has paused its children.
    for run in ["publish-1", "review-1"] {
        service.until(&RunKey::try_from(run).unwrap(), RunStatus::Interrupted).await;
    }
    let tree = place.ok(&["tree", "publish-1"]);
    let held: Vec<&str> =
        tree.lines().filter_map(|line| line.split_once("  paused: ").map(|(_, why)| why)).collect();
    assert_eq!(
        held,
        ["lunch", "its parent default/publish-1 is paused", "its parent default/review-1 is paused"]
    );
    place.ok(&["answer", "page-1", "yes"]);
    assert_eq!(place.json(&["tree", "publish-1"])["children"][0]["status"], "interrupted");
    place.ok(&["unpause", "publish-1"]);
    service.until(&root, RunStatus::Completed).await;
    let tree = place.json(&["tree", "publish-1"]);
    assert_eq!(tree["children"][0]["children"][0]["status"], "completed");
    assert_eq!(tree["children"][0]["children"][0]["questions"], json!([]));
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
}
