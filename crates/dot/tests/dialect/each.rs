//! A branch for each item of a list.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;

use crate::crashing::at_each_write;
use crate::support::{Ran, pipeline, registry, run_with, source};
use async_trait::async_trait;
use ferrata_core::state::Context;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Handler, HandlerError, Stage};
use ferrata_dot::outcome::StageOutcome;
use serde_json::{Value, json};

/// Returns the item of its branch. The item `bad` fails.
#[derive(Clone, Debug)]
struct Says;

#[async_trait]
impl Handler for Says {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let item = stage.context.get_value("item").cloned().unwrap_or_default();
        let index = stage.context.get_value("item_index").cloned().unwrap_or_default();
        Ok(match item.as_str() {
            Some("bad") => StageOutcome::fail("it is bad"),
            _ => StageOutcome::success().with(format!("said.{}", stage.node.id()), json!([item, index])),
        })
    }
}

/// A fork over these items, with a branch of two nodes for each item, and a join.
fn listed(items: &str, attributes: &str) -> String {
    format!(
        "first [does=\"success/list:{items}\"] p [type=parallel{attributes}] one [type=says] two [type=says] f [type=\"parallel.fan_in\"] bad \
         start -> first -> p p -> one [for_each=\"context.list\"] one -> two -> f f -> exit f -> bad [condition=\"outcome=fail\"] bad -> exit"
    )
}

async fn ran(text: &str) -> Ran {
    run_with(&source(text), registry().with("says", Says), Context::new()).await
}

fn results(ran: &Ran) -> Vec<Value> {
    ran.context().get::<Vec<Value>>("parallel.results").unwrap().unwrap()
}

fn times(ran: &Ran, node: &str) -> usize {
    ran.path.iter().filter(|visited| *visited == node).count()
}

/// Guarantees: BRANCH-6.
#[tokio::test]
async fn each_item_is_a_branch_that_knows_it() {
    let ran = ran(&listed("x+y+z", "")).await;
    assert_eq!((times(&ran, "one"), times(&ran, "two"), times(&ran, "f")), (3, 3, 1), "{}", ran.path());
    let all = results(&ran);
    let told: Vec<_> = all
        .iter()
        .map(|one| (&one["id"], &one["context"]["said.one"], &one["context"]["said.two"]))
        .collect();
    let expected =
        [("x", 0), ("y", 1), ("z", 2)].map(|(item, at)| (json!(format!("one:{at}")), json!([item, at])));
    assert_eq!(told, expected.iter().map(|(id, said)| (id, said, said)).collect::<Vec<_>>());
    assert!(!ran.context().contains_key("item"), "{:?}", ran.context());
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

/// Guarantees: BRANCH-6.
#[tokio::test]
async fn empty_list_continues_at_fan_in() {
    for attributes in
        ["", ", join_policy=first_success", ", join_policy=k_of_n, k=2", ", error_policy=fail_fast"]
    {
        let ran = ran(&listed("", attributes)).await;
        assert_eq!(ran.path(), "start first p f exit", "{attributes}");
        assert_eq!(results(&ran), Vec::<Value>::new());
    }
    let without = listed("", "")
        .replace("f [type=\"parallel.fan_in\"]", "")
        .replace("two -> f f -> exit f -> bad", "two -> exit two -> bad");
    assert_eq!(
        ran(&without).await.path(),
        "start first p two exit",
        "the branches must join at the next node"
    );
}

#[tokio::test]
async fn a_key_without_a_list_fails_the_fork() {
    let text = listed("x", "").replace("context.list", "nothing");
    assert!(
        ran(&text)
            .await
            .failure()
            .contains("the context value `nothing` is not a list, and `one` needs one item per branch")
    );
    let many = vec!["x"; 1001].join("+");
    assert!(
        ran(&listed(&many, ""))
            .await
            .failure()
            .contains("`list` has 1001 items for `one`, and the maximum is 1000")
    );
}

/// Guarantees: BRANCH-2.
#[tokio::test]
async fn policies_count_the_branches_of_the_items() {
    let ends = async |items: &str, attributes: &str| {
        let ran = ran(&listed(items, attributes)).await;
        ran.path[ran.path.iter().position(|node| node == "f").unwrap() + 1].clone()
    };
    assert_eq!(ends("x+bad+y", ", join_policy=quorum").await, "exit");
    assert_eq!(ends("x+bad+bad", ", join_policy=quorum").await, "bad");
    assert_eq!(ends("bad+x+bad", ", join_policy=first_success").await, "exit");
    assert_eq!(ends("bad+x+bad", ", join_policy=k_of_n, k=2").await, "bad");
    assert_eq!(ends("x+bad", ", error_policy=fail_fast").await, "bad");
    assert_eq!(ends("bad+bad", "").await, "bad");
}

#[tokio::test]
async fn branches_of_items_stand_beside_others() {
    let text = listed("x+y", "").replace("one -> two -> f", "other p -> other -> f one -> two -> f");
    let ran = ran(&text).await;
    assert_eq!(
        (times(&ran, "one"), times(&ran, "two"), times(&ran, "other"), times(&ran, "f")),
        (2, 2, 1, 1)
    );
    let ids: Vec<_> = results(&ran).iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["one:0", "one:1", "other"]);
}

#[tokio::test]
async fn branches_of_items_may_stand_in_a_branch() {
    let text = "first [does=\"success/list:x+y\"] o [type=parallel] b p [type=parallel] one [type=says] g [type=\"parallel.fan_in\"] \
                f [type=\"parallel.fan_in\"] start -> first -> o o -> b -> f o -> p p -> one [for_each=list] one -> g -> f f -> exit";
    let ran = ran(text).await;
    assert_eq!((times(&ran, "one"), times(&ran, "g"), times(&ran, "f")), (2, 1, 1));
    let inner = &results(&ran)[1]["context"]["parallel.results"];
    assert_eq!(inner[1]["context"]["said.one"], json!(["y", 1]), "{inner}");
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

/// Guarantees: BRANCH-6.
#[tokio::test]
async fn crash_at_any_write_preserves_fan_out_items() {
    let text = source(&listed("x+bad+y", ", join_policy=k_of_n, k=2"));
    let registry = || registry().with("says", Says);
    let calm = run_with(&text, registry(), Context::new()).await;
    let crashes = at_each_write(&text, registry, |what, ran| {
        let outcomes = |ran: &Ran| -> BTreeMap<String, Value> {
            let all = results(ran).into_iter();
            all.map(|one| (one["id"].as_str().unwrap().to_owned(), one["outcome"].clone())).collect()
        };
        assert_eq!(outcomes(ran), outcomes(&calm), "{what}");
    })
    .await;
    assert!(crashes >= 10, "{crashes}");
}

#[tokio::test]
async fn items_begin_at_a_fork_alone() {
    let text = source("a start -> a -> exit [for_each=list]");
    let error = Compiler::new(registry()).compile(&pipeline(&text)).unwrap_err();
    assert!(error.message().contains("`for_each` starts one branch per item"), "{error}");
    // An inner fork would be part of several branches, and its own branches could not be distinguished.
    let inner = listed("x+y", "").replace(
        "one -> two -> f",
        "one -> q q [type=parallel] deep g [type=\"parallel.fan_in\"] q -> deep -> g g -> two -> f",
    );
    let refused = Compiler::new(registry().with("says", Says)).compile(&pipeline(&source(&inner)));
    let error = refused.unwrap_err();
    assert!(error.message().contains("node q: the node is in several branches of `p`"), "{error}");
}
