//! Children and detached runs that wait for a slot of a queue.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, Outcome};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_queue::{ChildQueueExt, RuntimeQueueExt};
use ferrata_testing::{Process, World};

use crate::support::{MOMENT, Witness, empty, process, slow};

/// A workflow that starts `count` children of `page` through the queue `web`, and waits for all.
fn site(page: &Graph<Context>, count: usize) -> Graph<Context> {
    let page = page.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let page = page.clone();
        async move {
            let mut pages = Vec::new();
            for n in 0..count {
                let child = cx.child(&page, Context::new()).name(format!("page-{n}")).id(format!("page-{n}"));
                pages.push(child.queue("web").key("example.org").start().await?);
            }
            for page in pages {
                page.result().await?;
            }
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder("site").node("fetch", work).entry("fetch").build().unwrap()
}

fn page_key(n: usize) -> RunKey {
    RunKey::try_from(format!("page-{n}").as_str()).unwrap()
}

async fn status(process: &Process, run: &RunKey) -> Option<RunStatus> {
    process.head(run).await.unwrap().map(|head| head.status)
}

/// Guarantees: QUEUE-1.
#[tokio::test]
async fn children_never_exceed_slots_and_all_run() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, 2 * MOMENT);
    let site = site(&page, 7);
    let (one, two) = (process(&world).await, process(&world).await);
    for process in [&one, &two] {
        process.serve(&page).unwrap();
        process.serve(&site).unwrap();
    }
    let web = one.queue("web").at_once(2).declare().await.unwrap();
    let run = world.pass(one.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    assert_eq!((witness.most(), witness.came().len()), (2, 7), "{:?}", witness.came());
    empty(&world, &web).await;
}

/// The process of the parent dies while its children wait. Another process continues both, and starts each child once.
///
/// Guarantees: QUEUE-12.
#[tokio::test]
async fn children_of_dead_parent_run_once() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let site = site(&page, 4);
    let (one, two) = (process(&world).await, process(&world).await);
    one.serve(&page).unwrap();
    one.serve(&site).unwrap();
    let web = one.queue("web").at_once(1).declare().await.unwrap();
    web.pause("until the process is dead").await.unwrap();
    world.pass(one.start(&site, Context::new()).id("site")).await.unwrap();
    world.pass_for(MOMENT).await;
    one.crash().await;
    two.serve(&page).unwrap();
    two.serve(&site).unwrap();
    let web = two.queue("web").at_once(1).declare().await.unwrap();
    web.unpause().await.unwrap();
    let run = world.pass(two.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    let mut came = witness.came();
    came.sort_unstable();
    assert_eq!((witness.most(), came), (1, (0..4).map(|n| page_key(n).run.to_string()).collect()));
    empty(&world, &web).await;
}

/// A slot that is granted during the pause of the parent does not start the child.
///
/// Guarantees: QUEUE-12.
#[tokio::test]
async fn child_of_paused_parent_starts_after_pause() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let site = site(&page, 1);
    let process = process(&world).await;
    process.serve(&page).unwrap();
    process.serve(&site).unwrap();
    let web = process.queue("web").at_once(1).declare().await.unwrap();
    web.pause("until the parent is paused").await.unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    world.pass_for(MOMENT).await;
    process.pause(run.run(), "for a look").await.unwrap();
    world.pass_for(20 * MOMENT).await;
    assert_eq!(status(&process, run.run()).await, Some(RunStatus::Interrupted));
    web.unpause().await.unwrap();
    world.pass_for(50 * MOMENT).await;
    assert_eq!(witness.came(), Vec::<String>::new(), "the parent is paused");
    process.unpause(run.run()).await.unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    assert_eq!(witness.came(), [page_key(0).run.to_string()]);
    empty(&world, &web).await;
}

/// A cancelled parent cancels the children that wait, and they leave the queue.
#[tokio::test]
async fn waiting_children_of_cancelled_parent_leave_queue() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let site = site(&page, 3);
    let process = process(&world).await;
    process.serve(&page).unwrap();
    process.serve(&site).unwrap();
    let web = process.queue("web").at_once(1).declare().await.unwrap();
    web.pause("until the parent is cancelled").await.unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    world.pass_for(MOMENT).await;
    process.cancel(run.run(), "for the test").await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Cancelled { .. }));
    for n in 0..3 {
        assert_eq!(status(&process, &page_key(n)).await, Some(RunStatus::Cancelled));
    }
    web.unpause().await.unwrap();
    empty(&world, &web).await;
    assert_eq!(witness.came(), Vec::<String>::new());
}

#[tokio::test]
async fn child_of_undeclared_queue_is_refused() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let child = page.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let child = child.clone();
        async move {
            let said = cx.child(&child, Context::new()).queue("web").await;
            let Err(ChildError::Refused(error)) = said else { panic!("{said:?}") };
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.message().contains("declare it with"), "{error}");
            let long = cx.child(&child, Context::new()).queue("web").key("k".repeat(300)).await;
            let Err(ChildError::Refused(error)) = long else { panic!("{long:?}") };
            assert_eq!(error.kind(), ErrorKind::Invalid);
            Ok::<_, NodeError>(s)
        }
    };
    let site = Graph::<Context>::builder("site").node("fetch", work).entry("fetch").build().unwrap();
    let process = process(&world).await;
    process.serve(&page).unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
}

/// A detached run waits for its slot after the end of the run that started it.
#[tokio::test]
async fn detached_run_waits_in_queue() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let spawned = page.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let spawned = spawned.clone();
        async move {
            cx.spawn(&spawned, Context::new()).id("detached").queue("web").priority(3).await?;
            Ok::<_, NodeError>(s)
        }
    };
    let site = Graph::<Context>::builder("site").node("fetch", work).entry("fetch").build().unwrap();
    let process = process(&world).await;
    process.serve(&page).unwrap();
    let web = process.queue("web").at_once(1).declare().await.unwrap();
    web.pause("until the starter has ended").await.unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    world.pass_for(MOMENT).await;
    let waiting = web.status().await.unwrap();
    assert_eq!(waiting.line.iter().map(|one| one.priority).collect::<Vec<_>>(), [3]);
    web.unpause().await.unwrap();
    world.pass_for(20 * MOMENT).await;
    empty(&world, &web).await;
    assert_eq!(witness.came(), ["detached"]);
}

/// A full queue refuses no child: the child enters the queue once there is room.
#[tokio::test]
async fn children_of_full_queue_run_later() {
    let (world, witness) = (World::new(), Witness::default());
    let page = slow(&witness, MOMENT);
    let site = site(&page, 5);
    let process = process(&world).await;
    process.serve(&page).unwrap();
    process.serve(&site).unwrap();
    let web = process.queue("web").at_once(1).max_waiting(1).declare().await.unwrap();
    let run = world.pass(process.start(&site, Context::new()).id("site")).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    assert_eq!((witness.most(), witness.came().len()), (1, 5), "{:?}", witness.came());
    empty(&world, &web).await;
}
