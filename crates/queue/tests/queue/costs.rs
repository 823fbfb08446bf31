//! The number of store calls that a run costs with a queue and without one.

use std::sync::atomic::Ordering;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::World;

use crate::no_notices::{Asked, Deaf};
use crate::support::{MOMENT, empty, process};

/// Returns the number of appends since the last call.
fn appends(asked: &Asked) -> u64 {
    asked.writes.swap(0, Ordering::Relaxed)
}

/// A free slot costs two appends: the grant and its release. A wait costs one more: the request. The release of a slot and the next grant are one
/// append, and so are the end of a pause and the claim of the run.
#[tokio::test]
async fn queued_run_costs_few_appends() {
    const RUNS: u64 = 8;
    let world = World::new();
    let others = process(&world).await;
    let (process, asked) = Deaf::process(&world, &others).await;
    let graph =
        Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build().unwrap();
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    world.pass_for(MOMENT / 10).await;

    appends(&asked);
    let run = world.pass(process.start(&graph, Context::new()).id("bare")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    let bare = appends(&asked);
    assert_eq!(bare, 2, "the start and the end");

    let run = world.pass(process.start(&graph, Context::new()).id("free").queue("mail")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    empty(&world, &mail).await;
    assert_eq!(appends(&asked), bare + 2, "a slot is free");

    mail.pause("for the test").await.unwrap();
    // The actor of the queue reads the pause, so that none of its appends loses against it.
    world.pass_for(20 * MOMENT).await;
    appends(&asked);
    let mut runs = Vec::new();
    for n in 0..RUNS {
        let start = process.start(&graph, Context::new()).id(format!("waits-{n}")).queue("mail");
        runs.push(world.pass(start).await.unwrap());
    }
    assert_eq!(appends(&asked), 2 * RUNS, "the request, and the run on hold");
    mail.unpause().await.unwrap();
    for run in &runs {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    empty(&world, &mail).await;
    // Beside the grants, the unpause of the queue and the last release.
    let rest = appends(&asked);
    assert!(rest <= 3 * RUNS + 2, "{rest} appends for the grants, claims and ends of {RUNS} runs");
}

/// If the process cannot drive the run, only the pause of the run ends. Then the claim fails like that of any other run.
#[tokio::test]
async fn run_of_changed_graph_is_unpaused_and_reported() {
    let world = World::new();
    let process = process(&world).await;
    let build = |node: &str| {
        Graph::<Context>::builder("mail").node(node, async |_cx, s| Ok(s)).entry(node).build().unwrap()
    };
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    mail.pause("for the test").await.unwrap();
    let run =
        world.pass(process.start(&build("send"), Context::new()).id("old").queue("mail")).await.unwrap();
    process.serve(&build("deliver")).unwrap();
    mail.unpause().await.unwrap();
    world.pass_for(20 * MOMENT).await;
    let head = process.head(run.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::InProgress, None));
    let stalled = process.stalled();
    assert_eq!(stalled.iter().map(|one| one.error.kind()).collect::<Vec<_>>(), [ErrorKind::GraphChanged]);
    process.replace_served(&build("send")).unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
}

/// Guarantees: QUEUE-1.
#[tokio::test]
async fn many_starts_share_appends_of_queue() {
    const RUNS: u64 = 1_200;
    let world = World::new();
    let others = process(&world).await;
    let (process, asked) = Deaf::process(&world, &others).await;
    let graph =
        Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build().unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    mail.pause("for the test").await.unwrap();
    world.pass_for(20 * MOMENT).await;
    let requests = || {
        (0..RUNS).map(|n| {
            process
                .start(&graph, Context::new())
                .id(format!("{n:04}"))
                .queue("mail")
                .key(format!("{}", n % 7))
        })
    };
    appends(&asked);
    let started = world.pass(process.start_many(requests())).await;
    let appends = appends(&asked);
    assert!(appends <= RUNS + 10, "{appends} appends: one for each run, and few for the queue");
    let ids: Vec<_> = started.iter().map(|one| one.as_ref().unwrap().run().run.to_string()).collect();
    assert_eq!(ids, (0..RUNS).map(|n| format!("{n:04}")).collect::<Vec<_>>(), "in the order of the requests");
    assert_eq!(mail.status().await.unwrap().waiting, usize::try_from(RUNS).unwrap());
    let again = world.pass(process.start_many(requests())).await;
    assert!(again.iter().all(Result::is_ok));
    assert_eq!(
        mail.status().await.unwrap().waiting,
        usize::try_from(RUNS).unwrap(),
        "a repeated start returns its run"
    );
}

#[tokio::test]
async fn many_starts_fail_on_their_own() {
    let world = World::new();
    let process = process(&world).await;
    let graph =
        Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build().unwrap();
    let requests = ["a", "b/c", "d"].map(|id| process.start(&graph, Context::new()).id(id));
    let started = world.pass(process.start_many(requests)).await;
    let kinds: Vec<_> = started.iter().map(|one| one.as_ref().err().map(|error| error.kind())).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Invalid), None]);
}
