//! Branches without a fan-in, and edges that leave or enter branches.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use crate::crashing::at_each_write;
use crate::support::{Ran, path_of, registry, run, run_with, source};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::compile::Compiler;
use serde_json::{Value, json};

/// Returns the id and outcome of each branch, in the order of the fork's edges.
fn results(ran: &Ran) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = ran.context().get::<Vec<Value>>("parallel.results").unwrap().unwrap();
    all.iter().map(|one| (text(&one["id"]), text(&one["outcome"]))).collect()
}

fn of(results: &[(&str, &str)]) -> Vec<(String, String)> {
    results.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
}

fn times(ran: &Ran, node: &str) -> usize {
    ran.path.iter().filter(|visited| *visited == node).count()
}

/// Compares a run with its path. Nodes are grouped into those before, within and after the branches.
fn ends_with(ran: &Ran, tail: &str) {
    assert!(ran.path().ends_with(tail), "{}", ran.path());
}

/// Guarantees: BRANCH-7.
#[tokio::test]
async fn branches_join_at_nearest_common_successor() {
    let text = "p [type=parallel] a b b2 both start -> p p -> a -> both p -> b -> b2 -> both both -> last last -> exit last";
    let ran = run(text).await;
    ends_with(&ran, "both last exit");
    assert_eq!((times(&ran, "both"), times(&ran, "a"), times(&ran, "b2")), (1, 1, 1));
    assert_eq!(results(&ran), of(&[("a", "success"), ("b", "success")]));
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

#[tokio::test]
async fn join_node_with_work_has_own_outcome() {
    // If one branch fails, the fork succeeds and reports the failure. If all fail, the fork fails.
    let text = |b: &str| {
        format!(
            "p [type=parallel] a [does=fail] b [does={b}] both [does=\"success/seen:yes\"] bad start -> p p -> a -> both p -> b -> both \
             both -> exit both -> bad [condition=\"outcome=fail\"] bad -> exit"
        )
    };
    let ran = run(&text("success")).await;
    ends_with(&ran, "both exit");
    assert_eq!((ran.text("seen"), results(&ran)), ("yes".to_owned(), of(&[("a", "fail"), ("b", "success")])));
    let ran = run(&text("fail")).await;
    ends_with(&ran, "both bad exit");
    assert!(!ran.context().contains_key("seen"), "{:?}", ran.context());
    let joined = "p [type=parallel, join_policy=k_of_n, k=2] a [does=fail] b both start -> p p -> a -> both p -> b -> both both -> exit";
    let failure = run(joined).await.failure();
    assert!(failure.contains("1 of 2 branches succeeded: a failed"), "{failure}");
}

#[tokio::test]
async fn decision_at_join_uses_branch_outcomes() {
    let text = |b: &str| {
        format!(
            "p [type=parallel] a [does=fail] b [does={b}] d [type=conditional] yes some no start -> p p -> a -> d p -> b -> d \
             d -> yes [condition=\"outcome=success\"] d -> some [condition=\"outcome=partial_success\"] d -> no \
             yes -> exit some -> exit no -> exit"
        )
    };
    ends_with(&run(&text("success")).await, "d some exit");
    ends_with(&run(&text("fail")).await, "d no exit");
}

/// Guarantees: BRANCH-7.
#[tokio::test]
async fn branches_without_join_end_separately_then_run() {
    // Branches that lead to the exit, to no node, and both.
    for branches in
        ["a -> exit b -> exit", "a -> exit b2 b -> b2", "b2 b -> b2 c -> exit [condition=\"outcome=fail\"]"]
    {
        let ran = run(&format!("c p [type=parallel] a b start -> c -> p p -> a p -> b {branches}")).await;
        ends_with(&ran, " exit");
        assert!(ran.path.contains(&"p".to_owned()), "{branches}: {}", ran.path());
        assert_eq!(times(&ran, "exit"), 1, "{}", ran.path());
        assert_eq!(results(&ran), of(&[("a", "success"), ("b", "success")]));
        assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
    }
    // The combined result of the branches is the result of the run.
    let failure =
        run("p [type=parallel] a [does=fail] b [does=fail] start -> p p -> a -> exit p -> b -> exit")
            .await
            .failure();
    assert!(failure.contains("0 of 2 branches succeeded: a failed"), "{failure}");
    // The goal gate of a branch is checked in the branch.
    let gate =
        "p [type=parallel] a [goal_gate=true, does=skipped] b start -> p p -> a -> exit p -> b -> exit";
    assert!(run(gate).await.failure().contains("`a` did not succeed"));
}

#[tokio::test]
async fn back_edge_to_fork_waits_for_all_branches() {
    let text = "p [type=parallel] a [does=\"fail success\"] b f [type=\"parallel.fan_in\"] start -> p \
                p -> a -> f p -> b -> f a -> p [condition=\"outcome=fail\"] f -> exit";
    let ran = run(text).await;
    assert_eq!((times(&ran, "p"), times(&ran, "a"), times(&ran, "b"), times(&ran, "f")), (2, 2, 2, 2));
    ends_with(&ran, "f exit");
    assert_eq!(results(&ran), of(&[("a", "success"), ("b", "success")]));
}

/// Guarantees: BRANCH-8.
#[tokio::test]
async fn jump_out_of_branch_waits_for_all_branches() {
    // The branches join at a node before the fork, with and without a fan-in.
    for (meets, kind) in [("f", "type=\"parallel.fan_in\""), ("both", "does=\"success/seen:yes\"")] {
        let ran = run(&format!(
            "plan p [type=parallel] a [does=\"fail success\", retry_target=plan] b {meets} [{kind}] start -> plan -> p \
             p -> a -> {meets} p -> b -> {meets} {meets} -> exit"
        ))
        .await;
        assert_eq!(
            (times(&ran, "plan"), times(&ran, "a"), times(&ran, "b"), times(&ran, meets)),
            (2, 2, 2, 2)
        );
        ends_with(&ran, &format!("{meets} exit"));
    }
    // The branches lead to a node after their join. The node in between is skipped, and its goal gate is not checked.
    let ran = run(
        "p [type=parallel] a [does=fail] b both [goal_gate=true] late start -> p p -> a -> both p -> b -> both \
         a -> late [condition=\"outcome=fail\"] both -> late -> exit",
    )
    .await;
    ends_with(&ran, "both late exit");
    assert_eq!(times(&ran, "late"), 1);
}

/// Guarantees: BRANCH-8.
#[tokio::test]
async fn edge_into_branch_starts_only_that_branch() {
    let text = |to: &str| {
        format!(
            "p [type=parallel, join_policy=k_of_n, k=2] a a2 b f [type=\"parallel.fan_in\"] check [does=\"fail success\"] start -> p \
             p -> a -> a2 -> f p -> b -> f f -> check check -> exit [condition=\"outcome=success\"] check -> {to} [condition=\"outcome=fail\"]"
        )
    };
    let ran = run(&text("a")).await;
    ends_with(&ran, "check p a a2 f check exit");
    assert_eq!((times(&ran, "b"), results(&ran)), (1, of(&[("a", "success")])));
    let ran = run(&text("a2")).await;
    ends_with(&ran, "check p a2 f check exit");
    assert_eq!((times(&ran, "a"), results(&ran)), (1, of(&[("a2", "success")])));
}

#[tokio::test]
async fn ways_lead_into_and_out_of_inner_branches() {
    let text = "p [type=parallel] q [type=parallel] x [does=\"success success fail success\", retry_target=plan] y plan \
                g [type=\"parallel.fan_in\"] f [type=\"parallel.fan_in\"] b check [does=\"fail success\"] \
                start -> plan -> p p -> q q -> x -> g q -> y -> g g -> f p -> b -> f f -> check \
                check -> x [condition=\"outcome=fail\"] check -> exit";
    let ran = run(text).await;
    // The check leads into the inner branch, through both forks.
    ends_with(&ran, "check p q x g f check exit");
    let failing = text.replace("success success fail success", "fail success");
    let ran = run(&failing).await;
    assert_eq!((times(&ran, "plan"), times(&ran, "b")), (2, 2), "{}", ran.path());
    ends_with(&ran, "check exit");
}

#[tokio::test]
async fn crash_at_any_write_preserves_open_branches() {
    let text = source(
        "plan p [type=parallel] a [does=\"fail success/color:red\", retry_target=plan] b b2 both check [does=\"fail success\"] \
         start -> plan -> p p -> a -> both p -> b -> b2 -> both both -> check check -> b2 [condition=\"outcome=fail\"] \
         check -> exit [condition=\"outcome=success\"]",
    );
    let calm = run_with(&text, registry(), Context::new()).await;
    let crashes = at_each_write(&text, registry, |what, ran| {
        assert_eq!(ran.context(), calm.context(), "{what}");
        let (mut went, mut expected) = (ran.path.clone(), calm.path.clone());
        went.sort();
        expected.sort();
        assert_eq!(went, expected, "{what}");
    })
    .await;
    assert!(crashes >= 10, "{crashes}");
    assert_eq!(calm.context().get::<Value>("parallel.results").unwrap().unwrap()[0]["id"], json!("b2"));
}

/// Random numbers from a seed, so that a failing case can be repeated.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// A pipeline of up to eight nodes with random edges. One or two of the nodes are forks.
fn drawn(seed: u64) -> String {
    let mut draw = Draw(seed);
    let nodes = 4 + draw.below(5);
    let forks = 1 + draw.below(2);
    let mut text = "graph [max_node_visits=3] start -> n0 ".to_owned();
    for node in 0..nodes {
        let kind = match node {
            node if node < forks => "type=parallel",
            node if node + 1 == nodes && draw.below(2) == 0 => "type=\"parallel.fan_in\"",
            _ => {
                ["does=success", "does=\"fail success\"", "does=fail", "does=\"success fail\""][draw.below(4)]
            }
        };
        let retry =
            if draw.below(5) == 0 { format!(", retry_target=n{}", draw.below(nodes)) } else { String::new() };
        text += &format!("n{node} [{kind}{retry}] ");
        let mut to: Vec<usize> =
            (0..1 + draw.below(2) + usize::from(node < forks)).map(|_| draw.below(nodes + 1)).collect();
        to.sort_unstable();
        to.dedup();
        for (at, to) in to.into_iter().enumerate() {
            let to = if to == nodes { "exit".to_owned() } else { format!("n{to}") };
            let condition = if node >= forks && at > 0 { " [condition=\"outcome=fail\"]" } else { "" };
            text += &format!("n{node} -> {to}{condition} ");
        }
    }
    text
}

/// With any edges, a pipeline that compiles ends, and leaves no branch active.
///
/// Guarantees: BRANCH-9.
#[tokio::test]
async fn random_pipeline_is_refused_or_ends() {
    let (mut ran, mut open) = (0, 0);
    for seed in 0..3_000 {
        let text = source(&drawn(seed));
        let pipeline = crate::support::pipeline(&text);
        let Ok(graph) = Compiler::new(registry()).compile(&pipeline) else { continue };
        let told = Compiler::new(registry()).diagnose(&pipeline);
        open +=
            usize::from(told.iter().any(|one| one.rule.ends_with("_branch") || one.rule == "branches_meet"));
        let store = MemoryStore::new();
        let runtime = Runtime::builder(store.clone()).build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let outcome = run.wait().await.unwrap();
        let path = path_of(&store, run.run()).await;
        match &outcome {
            Outcome::Completed(context) => {
                let left: Vec<&str> =
                    context.keys().filter(|key| key.starts_with("internal.branch")).collect();
                assert!(left.is_empty(), "seed {seed}: {left:?} after {path:?} of {text}");
            }
            Outcome::Failed { failure, .. } => assert!(!failure.message.is_empty(), "seed {seed}: {text}"),
            other => panic!("seed {seed}: {other:?} of {text}"),
        }
        ran += 1;
    }
    assert!(ran >= 100 && open >= 100, "{ran} ran, {open} of them open");
}
