//! A process that dies at any write, and one that loses a reply: no start is lost or doubled, and no place.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::testing::{Fault, Process, World};
use ferrata_queue::{Enqueue, Queues};

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, process, slow};

const IDS: [&str; 3] = ["one", "two", "three"];

/// What a service does when it starts: it declares its queue, and starts what there is to be done. Again and again until that is done.
async fn work(process: &Process, graph: &Graph<Context>, is_queued: bool) -> ferrata_core::Result<()> {
    process.serve(graph)?;
    process.queue("gpu").at_once(1).declare().await?;
    for id in IDS {
        let start = process.start(graph, Context::new()).id(id);
        match is_queued {
            true => drop(start.queue("gpu").await?),
            false => drop(start.await?),
        }
    }
    Ok(())
}

async fn crash_at_each_write(is_queued: bool, fault: Fault) {
    let mut crashes = 0;
    for n in 0.. {
        let (world, witness) = (World::new(), Witness::default());
        let graph = match is_queued {
            true => slow(&witness, 5 * MOMENT),
            false => in_a_place(&witness, 5 * MOMENT),
        };
        let first = process(&world).await;
        first.fail_write(n, fault);
        let _ = world.pass(work(&first, &graph, is_queued)).await;
        world.pass_for(30 * MOMENT).await;
        let is_crashed = first.is_crashed();
        let is_over = first.writes() < n;
        if !matches!(fault, Fault::Before | Fault::After) {
            first.crash().await;
        }
        let said = format!("{fault:?} at write {n}, queued: {is_queued}");
        let second = process(&world).await;
        world.pass(work(&second, &graph, is_queued)).await.unwrap();
        world.pass_for(3 * WHILE).await;
        for id in IDS {
            let head = second.head(&id.try_into().unwrap()).await.unwrap();
            let status = head.map(|head| head.status);
            assert_eq!(status, Some(RunStatus::Completed), "{said}: {id}");
        }
        assert_eq!(witness.most(), 1, "{said}: {:?}", witness.came());
        let gpu = second.queue("gpu").find().await.unwrap().unwrap();
        empty(&world, &gpu).await;
        crashes += u32::from(is_crashed);
        if is_over || !matches!(fault, Fault::Before | Fault::After) && !is_crashed {
            break;
        }
    }
    if !matches!(fault, Fault::Before | Fault::After) {
        assert!(crashes > 10, "{fault:?}: {crashes} writes");
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_start_and_doubles_none() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        crash_at_each_write(true, fault).await;
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_place() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        crash_at_each_write(false, fault).await;
    }
}

#[tokio::test]
async fn a_write_that_fails_or_loses_its_reply_is_made_again() {
    crash_at_each_write(true, Fault::After).await;
    crash_at_each_write(false, Fault::Before).await;
}
