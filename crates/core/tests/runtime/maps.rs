//! Runs as nodes: one child per activation, and maps over children.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::Clock as _;
use ferrata_core::ask::Answer;
use ferrata_core::graph::{Graph, GraphBuilder, Join, Lens, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{ChildError, Outcome, Runtime};
use ferrata_core::state::{Context, Reducer};

use super::family::*;
use super::world::World;

/// Longer than a parent stays in memory while it waits.
const LONG: Duration = Duration::from_secs(600);

fn item(_s: &Context, cx: &NodeContext) -> Result<Context, NodeError> {
    Ok(with(cx.item()?))
}

fn numbers(state: &Context, channel: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = state.get(channel).unwrap().unwrap_or_default();
    numbers.sort_unstable();
    numbers
}

/// A graph with a map over the numbers from 0. `add` declares the nodes between `split` and `gather`.
fn map(
    items: u32,
    node: impl FnOnce(GraphBuilder<Context>) -> GraphBuilder<Context>,
) -> GraphBuilder<Context> {
    let graph =
        Graph::<Context>::builder("map").channel("got", Reducer::Append).channel("lost", Reducer::Append);
    node(graph.node("split", async |_cx, _s| Ok(())))
        .node("gather", async |cx, mut s| {
            s.set("joined", cx.inputs().len())?;
            Ok(s)
        })
        .entry("split")
        .route("split", ["each"], move |_s, _cx| Route::each("each", 0..items))
        .edge("each", "gather")
}

fn over(child: &Graph<Context>) -> impl FnOnce(GraphBuilder<Context>) -> GraphBuilder<Context> {
    move |graph| {
        graph.child("each", child, item, |s, child: Context| s.push("got", child.get_value("number")))
    }
}

/// A graph that doubles an even number and fails for an odd one.
fn odd_fails() -> Graph<Context> {
    Graph::<Context>::builder("even")
        .node("double", async |_cx, mut s| {
            let number: u32 = s.get("number")?.unwrap_or_default();
            if number % 2 == 1 {
                return Err(NodeError::new(format!("{number} is odd")).fatal());
            }
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

async fn end(world: &World, runtime: &Runtime, graph: GraphBuilder<Context>) -> Outcome<Context> {
    let run = runtime.start(&graph.build().unwrap(), Context::new()).id("p").await.unwrap();
    world.pass(run.wait()).await.unwrap()
}

#[tokio::test]
async fn child_node_reads_and_writes_parent_state() {
    let world = World::new();
    let graph = Graph::<Context>::builder("parent")
        .child(
            "double",
            &double(),
            |s: &Context, _cx| Ok(s.clone()),
            |s, child: Context| s.set("got", child.get_value("number")),
        )
        .entry("double")
        .build()
        .unwrap();
    let runtime = world.process().await;
    let run = runtime.start(&graph, with(21)).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("got").unwrap(), Some(42));
    assert_eq!(only_child_of(&world, "p").await.status, RunStatus::Completed);
}

/// Guarantees: COMPOSE-13.
#[tokio::test]
async fn map_node_starts_child_per_item_joins_once() {
    let world = World::new();
    let runtime = world.process().await;
    let Outcome::Completed(state) = end(&world, &runtime, map(40, over(&double()))).await else {
        panic!("not completed")
    };
    assert_eq!(numbers(&state, "got"), (0..40).map(|n| 2 * n).collect::<Vec<_>>());
    assert_eq!(state.get::<u32>("joined").unwrap(), Some(40));
    assert_eq!(children_of(&world, "p").await.len(), 40);
    // Without items the map starts no child, and the branch ends.
    let world = World::new();
    let runtime = world.process().await;
    let Outcome::Completed(state) = end(&world, &runtime, map(0, over(&double()))).await else {
        panic!("not completed")
    };
    assert!(!state.contains_key("joined"));
}

#[derive(Default)]
struct Crowd {
    now: AtomicU32,
    most: AtomicU32,
}

/// A child that stays active for some scheduler turns.
fn crowding() -> Graph<Context> {
    Graph::<Context>::builder("crowding")
        .node("stay", async |cx, s| {
            let crowd = Arc::clone(cx.resource::<Arc<Crowd>>());
            crowd.most.fetch_max(crowd.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            crowd.now.fetch_sub(1, Ordering::SeqCst);
            Ok(s)
        })
        .entry("stay")
        .build()
        .unwrap()
}

/// Guarantees: COMPOSE-14.
#[tokio::test]
async fn map_node_respects_concurrency_limit() {
    for (most, items) in [(1, 5), (3, 12), (50, 7)] {
        let (world, crowd) = (World::new(), Arc::new(Crowd::default()));
        let runtime = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
        let runtime = runtime.resource(Arc::clone(&crowd)).build().await.unwrap();
        let graph = map(items, |graph| over(&crowding())(graph).max_running(most));
        let Outcome::Completed(state) = end(&world, &runtime, graph).await else { panic!("not completed") };
        assert_eq!(state.get::<u32>("joined").unwrap(), Some(items));
        assert_eq!(crowd.most.load(Ordering::SeqCst), most.min(items), "of {most}");
    }
}

/// Children that ask wait for days. The idle parent starts the next child only after one has ended, in whichever process.
///
/// Guarantees: COMPOSE-14.
#[tokio::test]
async fn the_bound_of_a_map_holds_over_restarts() {
    bound_holds_over_restarts(map(5, |graph| over(&gate())(graph).max_running(2))).await;
}

/// The concurrency limit of a map holds across restarts, for children with and without a recorded start.
///
/// Guarantees: COMPOSE-14.
#[tokio::test]
async fn map_concurrency_limit_survives_restart() {
    let month = Duration::from_secs(30 * 86_400);
    bound_holds_over_restarts(map(5, |graph| over(&gate())(graph).max_running(2).timeout(month))).await;
}

async fn bound_holds_over_restarts(graph: GraphBuilder<Context>) {
    let world = World::new();
    let graph = graph.build().unwrap();
    let runtime = world.process().await;
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    drop(runtime);
    for answered in 0..5 {
        let runtime = world.process().await;
        runtime.serve(&graph).unwrap();
        runtime.serve(&gate()).unwrap();
        let children = children_of(&world, "p").await;
        assert_eq!(children.len(), usize::min(answered + 2, 5), "after {answered} answers");
        let open: Vec<_> = children.iter().filter(|child| child.status == RunStatus::Interrupted).collect();
        assert_eq!(open.len(), usize::min(2, 5 - answered));
        runtime.respond(&open[0].run, "ok", Answer::accept(true).unwrap()).await.unwrap();
        let next = async {
            loop {
                let children = children_of(&world, "p").await;
                let open = children.iter().filter(|child| child.status == RunStatus::Interrupted).count();
                let ended = children.iter().filter(|child| child.status == RunStatus::Completed).count();
                if ended == answered + 1 && open == usize::min(2, 4 - answered) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        world.pass(next).await;
        if answered < 4 {
            until_asleep(&world, &key("p")).await;
        } else {
            until(&world, &key("p"), RunStatus::Completed).await;
        }
    }
}

/// By default a map fails fast: the failure of one item fails the run.
#[tokio::test]
async fn failed_item_fails_map_and_names_child() {
    let world = World::new();
    let runtime = world.process().await;
    let Outcome::Failed { failure, .. } = end(&world, &runtime, map(4, over(&odd_fails()))).await else {
        panic!("not failed")
    };
    assert_eq!((failure.kind, failure.node.as_ref().unwrap().as_str()), (FailureKind::Node, "each"));
    assert!(failure.message.contains("the child default/even-"), "{}", failure.message);
    assert!(failure.causes.iter().any(|cause| cause.contains("is odd")), "{:?}", failure.causes);
}

#[tokio::test]
async fn failed_items_of_a_map_are_collected() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = map(6, |graph| {
        graph.child_with("each", &odd_fails(), item, |s, cx, came| match came {
            Ok(child) => s.push("got", child.get_value("number")),
            Err(error) => {
                assert!(matches!(error, ChildError::Failed { .. }), "{error}");
                s.push("lost", cx.item::<u32>()?)
            }
        })
    });
    let Outcome::Completed(state) = end(&world, &runtime, graph).await else { panic!("not completed") };
    assert_eq!((numbers(&state, "got"), numbers(&state, "lost")), (vec![0, 4, 8], vec![1, 3, 5]));
    assert_eq!(state.get::<u32>("joined").unwrap(), Some(6));
}

/// With a minimum of successful items, an edge handles failures, and the join counts the results.
#[tokio::test]
async fn map_ends_after_enough_items() {
    let with = |least| {
        let graph = Graph::<Context>::builder("quorum").channel("got", Reducer::Append);
        let graph = graph.node("split", async |_cx, _s| Ok(())).node("lost", async |_cx, _s| Ok(()));
        over(&odd_fails())(graph)
            .node("gather", async |cx, mut s| {
                s.set("joined", cx.inputs().len())?;
                Ok(s)
            })
            .join(Join::AtLeast(least))
            .entry("split")
            .route("split", ["each"], |_s, _cx| Route::each("each", 0..6))
            .edge("each", "gather")
            .edge("each", "lost")
            .on_failure()
    };
    let world = World::new();
    let runtime = world.process().await;
    let Outcome::Completed(state) = end(&world, &runtime, with(3)).await else { panic!("not completed") };
    assert_eq!(state.get::<u32>("joined").unwrap(), Some(3));
    let world = World::new();
    let runtime = world.process().await;
    let Outcome::Failed { failure, .. } = end(&world, &runtime, with(4)).await else { panic!("not failed") };
    assert_eq!(failure.kind, FailureKind::JoinUnmet);
}

/// Guarantees: COMPOSE-15.
#[tokio::test]
async fn retry_restarts_child_of_failed_item() {
    let world = World::new();
    let runtime = world.process().await;
    let attempts = |graph: GraphBuilder<Context>| {
        let flaky = Graph::<Context>::builder("flaky")
            .node("try", async |_cx, s| {
                // The input contains the attempt of the parent.
                if s.get::<u32>("number")? == Some(1) { Err("not yet".into()) } else { Ok(s) }
            })
            .entry("try")
            .build()
            .unwrap();
        let input =
            |_s: &Context, cx: &NodeContext| Ok::<_, NodeError>(with(cx.attempt() + cx.item::<u32>()?));
        graph
            .child("each", &flaky, input, |s, child: Context| s.push("got", child.get_value("number")))
            .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
    };
    let Outcome::Completed(state) = end(&world, &runtime, map(3, attempts)).await else {
        panic!("not completed")
    };
    assert_eq!(numbers(&state, "got"), [2, 2, 3]);
    assert_eq!(children_of(&world, "p").await.len(), 4, "only the failed child must be started again");
}

/// The timeout continues while the parent is idle. Each attempt has its own timeout, and the last expiry cancels the child.
///
/// Guarantees: COMPOSE-16.
#[tokio::test]
async fn child_timeout_fails_node_and_cancels_child() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("parent")
        .child("ask", &gate(), |s: &Context, _cx| Ok(s.clone()), |_s, _child: Context| ())
        .timeout(LONG)
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .entry("ask")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    runtime.serve(&gate()).unwrap();
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let began = world.clock.now();
    until(&world, &key("p"), RunStatus::Failed).await;
    let took = world.clock.now().since(began);
    assert!(took > LONG + LONG / 2 && took < LONG * 3, "{took:?}");
    let child = only_child_of(&world, "p").await;
    assert_eq!(child.status, RunStatus::Cancelled, "both attempts must wait for the same child");
    // A retry gives the attempts new timeouts.
    runtime.retry(&key("p")).await.unwrap();
    let began = world.clock.now();
    until_asleep(&world, &key("p")).await;
    let children = children_of(&world, "p").await;
    let anew = children.iter().find(|one| one.run != child.run).unwrap_or_else(|| panic!("{children:?}"));
    runtime.respond(&anew.run, "ok@1:gate", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &key("p"), RunStatus::Completed).await;
    assert!(world.clock.now().since(began) < LONG);
}

/// A child is a node like any other within a subgraph, and a graph with subgraphs can be a child.
///
/// Guarantees: COMPOSE-2.
#[tokio::test]
async fn child_and_subgraph_nest_both_ways() {
    let world = World::new();
    let runtime = world.process().await;
    let twice = Graph::<Context>::builder("twice")
        .subgraph("one", &double(), Lens::whole())
        .subgraph("two", &double(), Lens::whole())
        .entry("one")
        .edge("one", "two")
        .build()
        .unwrap();
    let part = map(3, over(&twice)).build().unwrap();
    let graph = Graph::<Context>::builder("whole").subgraph("part", &part, Lens::keys("part.")).entry("part");
    let Outcome::Completed(state) = end(&world, &runtime, graph).await else { panic!("not completed") };
    assert_eq!(numbers(&state, "part.got"), [0, 4, 8]);
    assert_eq!(children_of(&world, "p").await.len(), 3);

    // The path of a question is built from labels and node names alike.
    let world = World::new();
    let runtime = world.process().await;
    let asks =
        Graph::<Context>::builder("asks").subgraph("in", &gate(), Lens::whole()).entry("in").build().unwrap();
    runtime.serve(&asks).unwrap();
    let part = map(1, over(&asks)).build().unwrap();
    let graph = Graph::<Context>::builder("whole").subgraph("part", &part, Lens::keys("part.")).entry("part");
    let run = runtime.start(&graph.build().unwrap(), Context::new()).id("p").await.unwrap();
    let asked = async {
        loop {
            if let [question] = &runtime.questions(&key("p")).await.unwrap()[..] {
                return question.id.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let asked = world.pass(asked).await;
    assert_eq!(asked, "part/each@1:asks/in/ok@1:gate");
    runtime.respond(&key("p"), &asked, Answer::accept(true).unwrap()).await.unwrap();
    assert!(world.pass(run.completed()).await.unwrap().contains_key("part.joined"));
}
