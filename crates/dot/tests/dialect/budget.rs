//! Budgets: the usage that nodes report, and the nodes that may not start beyond the limit.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use crate::crashing::{Process, at_each_write, between};
use crate::support::{Ran, compile, path_of, registry, run, run_with, source};
use async_trait::async_trait;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, SystemClock, Timestamp};
use ferrata_dot::handler::{Handler, HandlerError, Stage};
use ferrata_dot::outcome::{StageOutcome, Usage};

fn cost(ran: &Ran) -> f64 {
    ran.context().get("usage.cost").unwrap().unwrap()
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn what_nodes_report_is_summed_up_and_told() {
    let ran = run(
        "a [does=\"success/cost:0.25\"] b [does=\"fail/cost:0.5\"] c d [does=\"success/cost:1\"] start -> a -> b b -> c [condition=\"outcome=fail\"] \
         c -> d [condition=\"usage.cost>=0.75 && usage.tokens=20\"] d -> exit",
    )
    .await;
    assert_eq!(
        (cost(&ran), ran.text("usage.tokens"), ran.text("usage.seconds")),
        (1.75, "30".into(), "1.5".into())
    );
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn no_node_begins_once_the_budget_is_spent() {
    let text = |limit: &str| {
        format!(
            "graph [{limit}] a [does=\"success/cost:0.5\"] b [does=\"success/cost:0.5\"] c start -> a -> b -> c -> exit"
        )
    };
    for limit in ["max_cost=1", "max_cost_cents=100", "max_total_tokens=20", "max_time=1s"] {
        let ran = run(&text(limit)).await;
        let failure = ran.failure();
        assert!(
            failure.contains("the budget is spent") && failure.contains("`c` did not start"),
            "{failure}"
        );
        assert_eq!(ran.path(), "start a b c", "{limit}");
    }
    assert_eq!(run(&text("max_cost=1.5")).await.path(), "start a b c exit");
    // A node that only routes costs nothing.
    let last = "graph [max_cost=1] a [does=\"success/cost:1\"] d [type=conditional] start -> a -> d -> exit";
    assert_eq!(run(last).await.path(), "start a d exit");
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn spent_budget_leads_to_budget_target() {
    let text = "graph [max_cost=1, budget_target=sum] a [does=\"success/cost:1\"] b sum [does=\"success/cost:1\"] more start -> a -> b -> exit \
                sum -> more -> exit";
    let ran = run(text).await;
    assert_eq!(ran.path(), "start a b sum more exit");
    assert_eq!(cost(&ran), 2.0);
    // Branches go to the budget target, too, after all of them have joined.
    let ran = run(
        "graph [max_cost=1, budget_target=sum] p [type=parallel] a [does=\"success/cost:1\"] a2 b f [type=\"parallel.fan_in\"] c sum \
         start -> p p -> a -> a2 -> f p -> b -> f f -> c -> exit sum -> exit",
    )
    .await;
    assert!(ran.path().ends_with("f sum exit"), "{}", ran.path());
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn branches_spend_from_one_budget() {
    let text = |limit: &str| {
        format!(
            "graph [max_cost={limit}] p [type=parallel] a [does=\"success/cost:1\"] b [does=\"success/cost:1\"] f [type=\"parallel.fan_in\"] \
             c [does=\"success/cost:1\"] start -> p p -> a -> f p -> b -> f f -> c -> exit"
        )
    };
    assert_eq!(cost(&run(&text("3")).await), 3.0);
    let failure = run(&text("2")).await.failure();
    assert!(failure.contains("cost 2 of 2, the `max_cost` of the pipeline; `c` did not start"), "{failure}");
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn what_a_repeated_attempt_spent_counts() {
    let text = "graph [max_cost=9] a [max_retries=2, does=\"retry/cost:1,retry/cost:1,success/cost:1\"] start -> a -> exit";
    let text = text.replace("max_retries", "retry_policy=standard, max_retries");
    assert_eq!(cost(&run(&text).await), 3.0);
}

/// A handler that fails twice and then succeeds, and spends the given amount each time.
#[derive(Debug)]
struct Third(f64, AtomicU32);

#[async_trait]
impl Handler for Third {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let outcome = match self.1.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => StageOutcome::fail("not yet"),
            _ => StageOutcome::success(),
        };
        Ok(outcome.with_usage(Usage::new(self.0, 10, 0.5)))
    }
}

/// Retries a run after each failure, at most `most` times.
async fn retried(statements: &str, cost: f64, most: u32) -> Ran {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(&source(statements), registry().with("third", Third(cost, AtomicU32::new(0))));
    let mut run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    for _ in 0..most {
        assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
        runtime.retry(run.run()).await.unwrap();
        run = runtime.resume(&graph, "r").await.unwrap();
    }
    let outcome = run.wait().await.unwrap();
    Ran { path: path_of(&store, run.run()).await, outcome }
}

/// The budget applies to the whole run, including its retries.
///
/// Guarantees: DOT-15.
#[tokio::test]
async fn spending_before_run_retry_counts() {
    let text = "graph [max_cost=LIMIT] a [type=third] b start -> a -> b -> exit";
    let ran = retried(&text.replace("LIMIT", "9"), 1.0, 2).await;
    assert_eq!((cost(&ran), ran.text("usage.tokens")), (3.0, "30".into()));
    let failure = retried(&text.replace("LIMIT", "3"), 1.0, 2).await.failure();
    assert!(failure.contains("cost 3 of 3") && failure.contains("`b` did not start"), "{failure}");
    let failure = retried(&text.replace("LIMIT", "2"), 1.0, 2).await.failure();
    assert!(failure.contains("cost 2 of 2") && failure.contains("`a` did not start"), "{failure}");
    // This also holds for attempts before and after a retry.
    let again = text.replace("type=third", "type=third, retry_policy=standard, max_retries=1, retry_on=fail");
    let ran = retried(&again.replace("LIMIT", "9"), 1.0, 1).await;
    assert_eq!(cost(&ran), 3.0);
}

/// A sum that exceeds the range of a number still exceeds the limit.
///
/// Guarantees: DOT-15.
#[tokio::test]
async fn overflowing_sum_exceeds_every_limit() {
    let text = "graph [max_cost=9] p [type=parallel] a [does=\"success/cost:1e308\"] b [does=\"success/cost:1e308\"] \
                f [type=\"parallel.fan_in\"] c start -> p p -> a -> f p -> b -> f f -> c -> exit";
    let failure = run(text).await.failure();
    assert!(failure.contains("the budget is spent") && failure.contains("`c` did not start"), "{failure}");
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn loop_restart_does_not_reset_budget() {
    let text = "graph [max_cost=3] a [does=\"success/cost:1\"] b [does=fail] start -> a -> b \
                b -> a [condition=\"outcome=fail\", loop_restart=true] b -> exit [condition=\"outcome=success\"]";
    let ran = run(text).await;
    assert!(ran.failure().contains("the budget is spent"), "{}", ran.failure());
    assert_eq!(ran.path.iter().filter(|node| *node == "a").count(), 3);
}

/// The node that exceeds the budget takes the edge, and its last usage counts.
///
/// Guarantees: DOT-15.
#[tokio::test]
async fn spending_of_restarting_node_counts() {
    let text = "graph [max_cost=3] a [does=\"fail/cost:1\"] start -> a a -> a [condition=\"outcome=fail\", loop_restart=true] \
                a -> exit [condition=\"outcome=success\"]";
    let ran = run(text).await;
    assert!(ran.failure().contains("the budget is spent: cost 3 of 3"), "{}", ran.failure());
    // The last node does not start.
    assert_eq!(ran.path(), "start a a a a");
    let text = "a [does=\"fail/cost:1 success/cost:1\"] b start -> a a -> b [condition=\"outcome=fail\", loop_restart=true] b -> exit";
    let ran = run(text).await;
    assert_eq!((cost(&ran), ran.text("usage.tokens")), (1.0, "10".into()));
}

/// If the node's outcome is rejected, the run fails, and the node's usage still counts.
///
/// Guarantees: DOT-15.
#[tokio::test]
async fn spending_on_refused_outcome_counts_after_retry() {
    for (case, text) in [
        (
            "the failure came back",
            "graph [max_cost=2, loop_restart_signature_limit=1] a [type=third] start -> a \
             a -> a [condition=\"outcome=fail\", loop_restart=true] a -> exit [condition=\"outcome=success\"]",
        ),
        (
            "a key that is not for nodes",
            "graph [max_cost=2] a [does=\"success/cost:1/internal.x:1\"] start -> a -> exit",
        ),
    ] {
        let failure = retried(text, 1.0, 2).await.failure();
        assert!(
            failure.contains("cost 2 of 2") && failure.contains("`a` did not start"),
            "{case}: {failure}"
        );
    }
}

/// Guarantees: DOT-15.
#[tokio::test]
async fn crash_at_any_write_counts_spending_once() {
    let text = source(
        "graph [max_cost=100] a [does=\"success/cost:1\"] p [type=parallel] b [does=\"success/cost:2\"] c [does=\"fail/cost:4\"] \
         f [type=\"parallel.fan_in\"] d [does=\"success/cost:8\"] start -> a -> p p -> b -> f p -> c -> f f -> d -> exit",
    );
    assert_eq!(cost(&run_with(&text, registry(), Context::new()).await), 15.0);
    let crashes = at_each_write(&text, registry, |what, ran| {
        assert_eq!(cost(ran), 15.0, "{what}");
    })
    .await;
    assert!(crashes >= 8, "{crashes}");
}

/// Replans are counted, and the final failure contains their reasons.
///
/// Guarantees: DOT-25.
#[tokio::test]
async fn replans_are_counted_and_told() {
    let text = |graph: &str| {
        format!(
            "graph [{graph}] plan work [does=\"fail fail fail success\"] start -> plan -> work work -> plan [condition=\"outcome=fail\", replan=true] \
             work -> exit [condition=\"outcome=success\"]"
        )
    };
    let failure = run(&text("goal=g")).await.failure();
    assert!(
        failure.contains("the revisit of `plan` is number 3 of this node, and at most 2 are allowed"),
        "{failure}"
    );
    let ran = run(&text("max_replans=3")).await;
    assert_eq!(ran.path.iter().filter(|node| *node == "plan").count(), 4, "{}", ran.path());
    assert!(run(&text("max_replans=0")).await.failure().contains("plan"));
}

/// A wall clock that jumps by a fixed amount between any two reads. Its monotonic time is correct.
#[derive(Debug)]
struct Jumping {
    real: SystemClock,
    by_ms: i64,
    looks: AtomicI64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        Timestamp::from_unix_ms(self.real.now().unix_ms() + looks * self.by_ms)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.real.sleep(duration)
    }
}

/// Usage and replans are counted from records and not from times. So clock steps in either process change neither the counts nor their consequences.
///
/// Guarantees: DOT-15.
#[tokio::test]
async fn clock_jumps_change_neither_budget_nor_revisits() {
    const HOUR_MS: i64 = 3_600_000;
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let text = source(
        "graph [max_replans=2, max_cost=7, max_time=1h, budget_target=sum] plan [does=\"success/cost:1\"] work [does=\"fail fail success/cost:4\"] \
         more sum start -> plan -> work work -> plan [condition=\"outcome=fail\", replan=true] work -> more [condition=\"outcome=success\"] \
         more -> exit sum -> exit",
    );
    let calm = run_with(&text, registry(), Context::new()).await;
    assert_eq!(calm.path(), "start plan work plan work plan work more sum exit");
    for (first, second) in [(HOUR_MS, -HOUR_MS), (-HOUR_MS, HOUR_MS)] {
        let process = async |store: Arc<dyn CheckpointStore>, process| {
            let by_ms = if process == Process::First { first } else { second };
            let clock = Jumping { real: SystemClock::new(), by_ms, looks: AtomicI64::new(0) };
            // A wall clock that runs ahead of the heartbeats looks like a machine that slept. So the heartbeat is valid for longer than the jumps.
            let builder = Runtime::builder_with(store).clock(Arc::new(clock)).heartbeat_ttl(YEAR);
            let runtime = builder.store_retries(1, Duration::from_millis(1)).build().await.unwrap();
            (runtime, compile(&text, registry()))
        };
        let check = async |crash: &str, _: &MemoryStore, ran: &Ran| {
            assert_eq!(ran.path, calm.path, "{crash}");
            let spent = ["usage.cost", "usage.tokens", "usage.seconds"];
            assert_eq!(spent.map(|key| ran.text(key)), spent.map(|key| calm.text(key)), "{crash}");
        };
        let crashes = between(process, async |_: &Runtime| {}, check).await;
        assert!(crashes >= 16, "{crashes}");
    }
}
