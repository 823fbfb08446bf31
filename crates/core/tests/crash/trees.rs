//! Random run trees with random faults, compared with a plain model. The result of a tree is a sum that no crash may change.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, Position};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_testing::{Fault, FaultPlan};
use serde::{Deserialize, Serialize};

use super::families::{Case, Family, key, tell, using};
use super::support::dice::Dice;

/// Number of random trees. The environment can set this number and the first seed.
const TREES: u64 = 100;
const SEED: &str = "FERRATA_TREES_SEED";

/// Number of attempts of each node.
const ATTEMPTS: u32 = 2;

/// Value of a failed child whose failure the parent accepts.
const FAILED: u32 = 1_000;

/// A run that returns the sum of its own value and those of its children.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tree {
    value: u32,
    asks: bool,
    /// Number of attempts that fail, after the children have ended.
    fails: u32,
    how: How,
    kids: Vec<Kid>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kid {
    tree: Tree,
    /// Whether the parent continues if this child fails.
    may_fail: bool,
}

/// The way in which children are started and awaited.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum How {
    /// Await each child before starting the next.
    InTurn,
    /// Start all children, then await them.
    AtOnce,
    /// A map, two at a time.
    Mapped,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap())
    }
}

/// Draws a random tree of at most this depth.
fn tree(dice: &Dice, depth: u32) -> Tree {
    let kids = if depth == 0 { 0 } else { dice.below(4) };
    let kid = |_| Kid { tree: tree(dice, depth - 1), may_fail: dice.below(3) > 0 };
    Tree {
        value: u32::try_from(dice.below(10)).unwrap(),
        asks: dice.below(6) == 0,
        fails: [0, 0, 0, 1, 2][usize::try_from(dice.below(5)).unwrap()],
        how: *dice.pick(&[How::InTurn, How::AtOnce, How::Mapped]),
        kids: (0..kids).map(kid).collect(),
    }
}

/// The model: the result of a tree, or `None` if it fails.
fn sum(tree: &Tree) -> Option<u32> {
    let kids = tree.kids.iter().map(|kid| match sum(&kid.tree) {
        None if kid.may_fail => Some(FAILED),
        came => came,
    });
    let kids: Option<u32> = kids.sum();
    kids.map(|kids| kids + tree.value).filter(|_| tree.fails < ATTEMPTS)
}

fn with(tree: &Tree) -> Context {
    let mut state = Context::new();
    state.set("tree", tree).unwrap();
    state
}

/// Returns the value of a child's result.
fn count(kid: &Kid, came: Result<Context, ChildError>) -> Result<u32, NodeError> {
    match came {
        Ok(state) => Ok(state.get("sum")?.unwrap_or_default()),
        Err(ChildError::Failed { .. }) if kid.may_fail => Ok(FAILED),
        Err(error) => Err(error.into()),
    }
}

async fn of_kids(cx: &NodeContext, graph: &Graph<Context>, tree: &Tree) -> Result<u32, NodeError> {
    let mut total = 0;
    let name = |index| format!("kid{index}");
    match tree.how {
        How::InTurn => {
            for (index, kid) in tree.kids.iter().enumerate() {
                total += count(kid, cx.child(graph, with(&kid.tree)).name(name(index)).await)?;
            }
        }
        How::AtOnce => {
            let mut started = Vec::new();
            for (index, kid) in tree.kids.iter().enumerate() {
                started.push(cx.child(graph, with(&kid.tree)).name(name(index)).start().await?);
            }
            for (kid, child) in tree.kids.iter().zip(started) {
                total += count(kid, child.await)?;
            }
        }
        How::Mapped => {
            let inputs = tree.kids.iter().map(|kid| with(&kid.tree));
            let came = cx.children(graph, inputs).name("kid").max_running(2).settle().await?;
            for (kid, came) in tree.kids.iter().zip(came) {
                total += count(kid, came)?;
            }
        }
    }
    Ok(total)
}

/// A workflow that starts itself as a child. A run executes the tree in its state. The first run has none and executes the whole tree.
fn workflow(root: &Tree) -> Graph<Context> {
    let (itself, root) = (Arc::new(OnceLock::<Graph<Context>>::new()), Arc::new(root.clone()));
    let graph = Graph::<Context>::builder("tree")
        .node(
            "ok",
            using!(itself, root; cx, mut s => {
                tell(&cx);
                let tree: Tree = s.get("tree")?.unwrap_or_else(|| (*root).clone());
                if tree.asks {
                    let _said: bool = cx.ask("said", "Go on?").await?;
                }
                let Some(graph) = itself.get() else { return Err("the graph is built".into()) };
                let kids = of_kids(&cx, graph, &tree).await?;
                if cx.attempt() <= tree.fails {
                    return Err("as the tree says".into());
                }
                s.set("sum", kids + tree.value)?;
                Ok(s)
            }),
        )
        .retry(RetryPolicy::none().with_attempts(ATTEMPTS).with_delay(Duration::from_millis(1)))
        .entry("ok")
        .build()
        .unwrap();
    itself.set(graph.clone()).ok();
    graph
}

/// Runs a tree with faults at random writes, and sometimes a cancellation. Returns its end and the number of runs.
async fn live(seed: u64) -> (Option<RunStatus>, usize) {
    let dice = Dice::new(seed);
    let tree = tree(&dice, 3);
    let label = format!("{SEED}={seed}: {tree}");
    let case = Case { name: "tree", graphs: vec![workflow(&tree)], left: 0, rests: dice.below(2) == 0 };
    let family = Family::new(label.clone());
    let cancelled_at = (dice.below(6) == 0).then(|| dice.below(40));
    let mut is_over = false;
    for _ in 0..dice.below(4) {
        let plan = FaultPlan::new().with_fault(dice.below(40), *dice.pick(&Fault::ALL));
        let (store, runtime) = family.process(&case, plan).await;
        is_over = family.live(&case, &store, &runtime).await;
        store.crash();
        drop(runtime);
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        family.check().await;
        if is_over {
            break;
        }
        family.clock.advance(Duration::from_secs(4));
    }
    if !is_over {
        let (store, runtime) = family.process(&case, FaultPlan::new()).await;
        if let Some(at) = cancelled_at {
            let none = Case { name: "none", graphs: Vec::new(), left: 0, rests: false };
            let (_, operator) = family.process(&none, FaultPlan::new()).await;
            store.before(at, async move {
                // The cancellation is refused if the run has not started or has ended.
                drop(operator.cancel(&key(), "no need").await);
                std::mem::forget(operator);
            });
        }
        assert!(family.live(&case, &store, &runtime).await, "{label}");
        family.check().await;
    }
    let runs = family.runs().await;
    assert!(
        runs.iter().all(|run| run.status.is_finished()),
        "{label}: a run is active although its parent has ended"
    );
    let status = family.store.head(&key()).await.unwrap().unwrap().status;
    if status == RunStatus::Cancelled {
        assert!(cancelled_at.is_some(), "{label}: the run was not cancelled by the test");
        return (Some(status), runs.len());
    }
    let (_, runtime) = family.process(&case, FaultPlan::new()).await;
    let checkpoint = runtime.checkpoint(&key(), Position::Latest).await.unwrap();
    let got = checkpoint.state.get("sum").and_then(serde_json::Value::as_u64);
    let wanted = sum(&tree);
    assert_eq!(status == RunStatus::Completed, wanted.is_some(), "{label}: {status}");
    assert_eq!(got.filter(|_| wanted.is_some()), wanted.map(u64::from), "{label}");
    (Some(status), runs.len())
}

/// Guarantees: CHILD-1.
#[tokio::test]
async fn random_run_tree_matches_model_despite_crashes() {
    let first = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let seeds = first.map_or(1..=TREES, |seed| seed..=seed);
    let (mut statuses, mut runs, all) = ([0; 3], 0, seeds.clone().count());
    for seed in seeds {
        let (status, count) = live(seed).await;
        runs += count;
        match status {
            Some(RunStatus::Completed) => statuses[0] += 1,
            Some(RunStatus::Failed) => statuses[1] += 1,
            _ => statuses[2] += 1,
        }
    }
    assert!(
        all == 1 || statuses.iter().all(|&count| count > 3),
        "every kind of end must occur: {statuses:?}"
    );
    assert!(all == 1 || runs > 3 * all, "{runs} runs in {all} trees");
}
