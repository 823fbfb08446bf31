//! Section 1.6: parallel branches, each with its own context, and the fan-in that joins their results.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::crashing::at_each_write;
use crate::support::{Ran, compile, path_of, pipeline, registry, run, run_with, source};
use async_trait::async_trait;
use ferrata_core::ErrorKind;
use ferrata_core::ask::Answer;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Handler, HandlerError, Stage};
use ferrata_dot::outcome::StageOutcome;
use serde_json::{Value, json};

/// A fork `p` with these attributes, a fan-in `f`, and these branches. They begin with `p -> x` and end with `-> f`.
fn fork(attributes: &str, branches: &str) -> String {
    format!(
        "p [type=parallel{attributes}] f [type=\"parallel.fan_in\"] ok bad start -> p f -> ok [condition=\"outcome=success\"] \
         f -> bad [condition=\"outcome=fail\"] f -> exit ok -> exit bad -> exit {branches}"
    )
}

/// Branches `b0`, `b1` and so on with these outcomes.
fn branches(words: &[&str]) -> String {
    let branch = |(at, word): (usize, &&str)| format!("b{at} [does=\"{word}\"] p -> b{at} -> f ");
    words.iter().enumerate().map(branch).collect()
}

fn results(ran: &Ran) -> Vec<Value> {
    ran.context().get::<Vec<Value>>("parallel.results").unwrap().unwrap()
}

/// The target of the fan-in: `ok` after success, `bad` after failure, `exit` after partial success.
async fn joined(attributes: &str, words: &[&str]) -> String {
    let ran = run(&fork(attributes, &branches(words))).await;
    let at = ran.path.iter().position(|node| node == "f").unwrap();
    ran.path[at + 1].clone()
}

/// Guarantees: BRANCH-2.
#[tokio::test]
async fn wait_all_is_partial_if_a_branch_failed() {
    assert_eq!(joined("", &["success", "success"]).await, "ok");
    assert_eq!(joined("", &["success", "skipped"]).await, "ok");
    assert_eq!(joined("", &["success", "fail"]).await, "exit");
    assert_eq!(joined(", join_policy=wait_all", &["success", "fail"]).await, "exit");
}

#[tokio::test]
async fn first_success_needs_one() {
    assert_eq!(joined(", join_policy=first_success", &["fail", "success", "fail"]).await, "ok");
    assert_eq!(joined(", join_policy=first_success", &["skipped", "fail"]).await, "bad");
}

/// Guarantees: BRANCH-2.
#[tokio::test]
async fn k_of_n_needs_k() {
    assert_eq!(joined(", join_policy=k_of_n, k=2", &["success", "partial", "fail"]).await, "ok");
    assert_eq!(joined(", join_policy=k_of_n, k=2", &["success", "fail", "fail"]).await, "bad");
}

#[tokio::test]
async fn quorum_needs_more_than_half() {
    assert_eq!(joined(", join_policy=quorum", &["success", "success", "fail"]).await, "ok");
    assert_eq!(joined(", join_policy=quorum", &["success", "fail"]).await, "bad");
}

#[tokio::test]
async fn nothing_but_failures_fails() {
    for policy in ["", ", error_policy=ignore"] {
        assert_eq!(joined(policy, &["fail", "fail"]).await, "bad", "{policy}");
    }
}

#[tokio::test]
async fn ignored_failures_do_not_make_it_partial() {
    assert_eq!(joined(", error_policy=ignore", &["success", "fail"]).await, "ok");
    assert_eq!(joined(", error_policy=continue", &["success", "fail"]).await, "exit");
}

/// Guarantees: BRANCH-1.
#[tokio::test]
async fn branches_are_isolated_and_not_merged() {
    let ran = run(&fork(
        "",
        "a [does=\"success/color:red\"] b [does=\"success/color:blue\"] a2 b2 lost p -> a p -> b \
         a -> a2 [condition=\"color=red\"] a -> lost b -> b2 [condition=\"color=blue\"] b -> lost a2 -> f b2 -> f lost -> f",
    ))
    .await;
    assert!(!ran.path.contains(&"lost".to_owned()), "{}", ran.path());
    assert!(!ran.context().contains_key("color"));
    let found: Vec<_> =
        results(&ran).iter().map(|one| (one["id"].clone(), one["context"]["color"].clone())).collect();
    assert_eq!(found, [(json!("a"), json!("red")), (json!("b"), json!("blue"))]);
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

/// Guarantees: BRANCH-1.
#[tokio::test]
async fn branches_see_the_context_of_the_fork() {
    let ran = run(&format!(
        "first [does=\"success/color:red\"] start -> first -> p {}",
        fork("", "a lost p -> a a -> f [condition=\"color=red && graph.goal=g\"] a -> lost -> f b p -> b -> f graph [goal=g]")
            .replace("start -> p", "")
    ))
    .await;
    assert!(!ran.path.contains(&"lost".to_owned()), "{}", ran.path());
}

#[tokio::test]
async fn best_branch_is_chosen_by_status_score_id() {
    for (words, best, outcome) in [
        (vec!["partial/score:9", "success", "fail/score:99"], "b1", "success"),
        (vec!["success/score:1", "success/score:2.5", "success/score:x"], "b1", "success"),
        (vec!["success", "success"], "b0", "success"),
        (vec!["fail", "skipped"], "b1", "skipped"),
    ] {
        let ran = run(&fork("", &branches(&words))).await;
        let found = (ran.text("parallel.fan_in.best_id"), ran.text("parallel.fan_in.best_outcome"));
        assert_eq!(found, (best.to_owned(), outcome.to_owned()), "{words:?}");
    }
}

#[tokio::test]
async fn branch_failure_ends_branch_not_run() {
    let ran = run(&fork("", "a [does=fail] never p -> a -> never -> f b p -> b -> f")).await;
    assert!(!ran.path.contains(&"never".to_owned()), "{}", ran.path());
    assert_eq!(
        results(&ran)[0],
        json!({"id": "a", "outcome": "fail", "failure_reason": "a failed", "score": 0.0,
        "context": {"outcome": "fail", "failure_reason": "a failed", "current_node": "a"}})
    );
}

#[tokio::test]
async fn dead_end_branch_ends_with_its_outcome() {
    let ran = run(&fork(
        "",
        "a p -> a a -> f [condition=\"outcome=fail\"] b p -> b -> f c d p -> c -> f c -> d [weight=1]",
    ))
    .await;
    let found: Vec<_> = results(&ran).iter().map(|one| (one["id"].clone(), one["outcome"].clone())).collect();
    // No edge of `a` matches, and `d` has no successor.
    let expected = [("a", "fail"), ("b", "success"), ("c", "success")];
    assert_eq!(found, expected.map(|(id, outcome)| (json!(id), json!(outcome))));
    let why = results(&ran)[0]["failure_reason"].as_str().unwrap().to_owned();
    assert!(why.contains("no condition of its edges holds: to `f` if `outcome=fail`"), "{why}");
}

#[tokio::test]
async fn a_branch_may_loop_and_jump() {
    let ran = run(&fork(
        "",
        "a [does=\"success success success/done:yes\"] p -> a a -> f [condition=done] a -> a \
         b [does=\"fail success\", retry_target=mend] mend p -> b -> f mend -> b",
    ))
    .await;
    assert_eq!(ran.path.iter().filter(|node| *node == "a").count(), 3);
    assert_eq!(ran.path.iter().filter(|node| *node == "mend").count(), 1);
    assert_eq!(ran.path.iter().filter(|node| *node == "f").count(), 1);
    assert!(results(&ran).iter().all(|one| one["outcome"] == "success"));
}

#[tokio::test]
async fn branches_may_share_a_node() {
    let ran = run(&fork(
        "",
        "a [does=\"success/color:red\"] b [does=\"success/color:blue\"] c p -> a -> c p -> b -> c c -> f",
    ))
    .await;
    assert_eq!(ran.path.iter().filter(|node| *node == "c").count(), 2);
    let colors: BTreeSet<_> = results(&ran).iter().map(|one| one["context"]["color"].to_string()).collect();
    assert_eq!(colors.len(), 2);
}

#[tokio::test]
async fn parallel_nodes_nest() {
    let ran = run(&fork(
        "",
        "a [does=\"success/color:red\"] q [type=parallel] g [type=\"parallel.fan_in\"] x [does=\"success/deep:yes\"] y [does=fail] z lost \
         p -> a -> q q -> x q -> y x -> g [condition=\"color=red && deep=yes\"] x -> lost lost -> g y -> g \
         g -> z [condition=\"outcome=partial_success && parallel.fan_in.best_id=x\"] g -> f z -> f b p -> b -> f",
    ))
    .await;
    assert!(ran.path.contains(&"z".to_owned()) && !ran.path.contains(&"lost".to_owned()), "{}", ran.path());
    let outer = results(&ran);
    assert_eq!(outer.len(), 2);
    assert_eq!(outer[0]["context"]["parallel.results"].as_array().unwrap().len(), 2);
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

#[tokio::test]
async fn fork_in_loop_starts_fresh_each_time() {
    let ran = run(
        "p [type=parallel] a [does=\"fail success\"] b f [type=\"parallel.fan_in\"] start -> p p -> a -> f p -> b -> f \
         f -> exit [condition=\"outcome=success\"] f -> p",
    )
    .await;
    assert_eq!(ran.path.iter().filter(|node| *node == "f").count(), 2);
    assert_eq!(results(&ran).len(), 2);
}

/// Guarantees: BRANCH-4, DOT-19.
#[tokio::test]
async fn a_goal_gate_in_a_branch_counts() {
    let text = "p [type=parallel] a [goal_gate=true, does=skipped] b f [type=\"parallel.fan_in\"] start -> p p -> a -> f p -> b -> f f -> exit";
    assert!(run(text).await.failure().contains("`a` did not succeed"));
    let again = text.replace("does=skipped", "does=\"skipped success\"");
    let ran = run(&format!("graph [retry_target=p] {again}")).await;
    assert_eq!(ran.path.iter().filter(|node| *node == "exit").count(), 2, "{}", ran.path());
}

/// Counts its concurrent executions.
#[derive(Clone, Debug, Default)]
struct Busy {
    now: Arc<AtomicUsize>,
    most: Arc<Mutex<usize>>,
}

#[async_trait]
impl Handler for Busy {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        {
            let mut most = self.most.lock().unwrap();
            *most = now.max(*most);
        }
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(StageOutcome::success())
    }
}

#[tokio::test]
async fn max_parallel_bounds_what_is_at_work() {
    for (attributes, most) in
        [("", 4), (", max_parallel=2", 2), (", max_parallel=1", 1), (", max_parallel=100", 12)]
    {
        let busy = Busy::default();
        let branches: String = (0..12).map(|at| format!("b{at} [type=busy] p -> b{at} -> f ")).collect();
        let ran = run_with(
            &source(&fork(attributes, &branches)),
            registry().with("busy", busy.clone()),
            Context::new(),
        )
        .await;
        assert_eq!(results(&ran).len(), 12);
        assert_eq!(*busy.most.lock().unwrap(), most, "{attributes}");
    }
}

#[tokio::test]
async fn people_are_asked_in_branches() {
    let text = source(&fork(
        "",
        "g [type=\"wait.human\"] yes no p -> g g -> yes g -> no yes -> f no -> f b p -> b -> f",
    ));
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(&text, registry());
    let asked = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(asked.wait().await.unwrap(), Outcome::Interrupted(questions) if questions.len() == 1));
    runtime.respond(asked.run(), "g", Answer::accept("no").unwrap()).await.unwrap();
    let run = runtime.resume(&graph, asked.run()).await.unwrap();
    let outcome = run.wait().await.unwrap();
    let ran = Ran { path: path_of(&store, run.run()).await, outcome };
    assert!(ran.path.contains(&"no".to_owned()), "{}", ran.path());
    assert_eq!(results(&ran)[0]["context"]["human.gate.label"], "no");
}

#[tokio::test]
async fn a_crash_at_any_write_changes_no_result() {
    let text = source(&fork(
        "",
        "a [does=\"success/color:red\"] a2 p -> a -> a2 -> f b [does=fail] p -> b -> f \
         q [type=parallel] x y [does=\"success/score:2\"] g [type=\"parallel.fan_in\"] p -> q q -> x -> g q -> y -> g g -> f",
    ));
    let calm = run_with(&text, registry(), Context::new()).await;
    let crashes = at_each_write(&text, registry, |what, ran| {
        assert_eq!(ran.context(), calm.context(), "{what}");
        let (mut went, mut expected) = (ran.path.clone(), calm.path.clone());
        // The branches end in any order.
        went.sort();
        expected.sort();
        assert_eq!(went, expected, "{what}");
    })
    .await;
    assert!(crashes >= 10, "{crashes}");
}

/// Guarantees: BRANCH-9.
#[test]
fn branches_that_cannot_work_are_refused() {
    let f = "f [type=\"parallel.fan_in\"]";
    for (statements, part) in [
        (
            "p [type=parallel] a b other [shape=Msquare] start -> p p -> a -> exit p -> b -> other"
                .to_owned(),
            "node p: the branches lead to different exits",
        ),
        (
            "p [type=parallel] q [type=parallel] a b start -> p p -> a -> b p -> q -> b b -> exit".to_owned(),
            "node q: the branches of this fork and of `p` overlap",
        ),
        (format!("p [type=parallel] {f} start -> p -> f -> exit"), "node p: a branch leads straight to `f`"),
        (
            format!(
                "p [type=parallel] a b {f} g [type=\"parallel.fan_in\"] start -> p p -> a -> f p -> b -> g f -> exit g -> exit"
            ),
            "node p: the branches join at different nodes",
        ),
        (
            format!("p [type=parallel] a {f} start -> p p -> a -> f p -> a f -> exit"),
            "node p: two branches start at `a`",
        ),
        (
            format!(
                "p [type=parallel] a {f} start -> p p -> a [condition=\"outcome=success\"] a -> f -> exit"
            ),
            "node p: the edge to `a` has a condition",
        ),
        (
            format!("p [type=parallel] a b o {f} start -> o o -> p o -> f p -> a -> f p -> b -> f f -> exit"),
            "node f: `o` leads from outside to the node where the branches of `p` join",
        ),
        (format!("a {f} start -> a -> f -> exit"), "node f: this fan-in joins no branches"),
        (
            format!("p [type=parallel] a {f} start -> p -> a -> f -> exit a -> a [loop_restart=true]"),
            "node a: a branch cannot restart the run while its other branches run",
        ),
        (
            format!("p [type=parallel, join_policy=k_of_n] a {f} start -> p -> a -> f -> exit"),
            "node p: `join_policy=k_of_n` needs `k`",
        ),
        (
            format!("p [type=parallel] a [effect=external] {f} start -> p -> a -> f -> exit"),
            "node a: a branch cannot run nodes with `effect=external`",
        ),
        (
            format!(
                "p [type=parallel] a b q [type=parallel] x g [type=\"parallel.fan_in\"] {f} start -> p p -> a -> q p -> b -> q \
                 q -> x -> g -> f -> exit"
            ),
            "node q: the node is in several branches of `p`",
        ),
    ] {
        let error = Compiler::new(registry()).compile(&pipeline(&source(&statements))).unwrap_err();
        assert!(error.message().contains(part), "{statements}: {error}");
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported));
    }
}
