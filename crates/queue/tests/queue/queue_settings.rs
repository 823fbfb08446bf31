//! Settings: the highest version wins, and operators override them.

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::RunLimits;
use ferrata_core::state::Context;
use ferrata_core::{Epoch, ErrorKind};
use ferrata_queue::{Queue, RateLimit, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Process, World};

use crate::support::{MOMENT, WHILE, Witness, empty, process, set_up, slow};

#[tokio::test]
async fn highest_version_wins_over_last_process() {
    let world = World::new();
    let (old, new) = (process(&world).await, process(&world).await);
    let mail = old.queue("mail").at_once(5).declare().await.unwrap();
    new.queue("mail").version(2).at_once(9).declare().await.unwrap();
    // An old process that starts again changes nothing.
    old.queue("mail").at_once(5).declare().await.unwrap();
    assert_eq!(mail.status().await.unwrap().settings.at_once, Some(9));
    let differs = new.queue("mail").version(2).at_once(8).rate(1, MOMENT).declare().await.unwrap_err();
    assert_eq!(differs.kind(), ErrorKind::AlreadyExists);
    assert!(differs.to_string().contains("another number of slots, another rate"), "{differs}");
    assert_eq!(mail.status().await.unwrap().settings.at_once, Some(9));
}

#[tokio::test]
async fn concurrent_declarations_settle_on_newer_settings() {
    let world = World::new();
    let (old, new) = (process(&world).await, process(&world).await);
    let declared = async {
        tokio::join!(
            old.queue("mail").at_once(5).declare(),
            new.queue("mail").version(2).at_once(9).declare(),
        )
    };
    let (one, two) = world.pass(declared).await;
    assert_eq!(one.unwrap().status().await.unwrap().settings.at_once, Some(9));
    assert_eq!(two.unwrap().status().await.unwrap().settings.version, 2);
}

#[tokio::test]
async fn an_operator_sees_and_changes_a_queue() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    assert!(process.queue("mail").find().await.unwrap().is_none());
    process.queue("mail").at_once(1).declare().await.unwrap();
    process.queue("a-first").declare().await.unwrap();
    let all = Queue::list(&process).await.unwrap();
    assert_eq!(all.iter().map(Queue::name).collect::<Vec<_>>(), ["a-first", "mail"]);
    let mail = process.queue("mail").find().await.unwrap().unwrap();
    mail.pause("the provider is down").await.unwrap();
    let run = world.pass(process.start(&graph, Context::new()).id("one").queue("mail")).await.unwrap();
    world.pass_for(10 * WHILE).await;
    assert!(run.is_waiting().await.unwrap());
    let status = mail.status().await.unwrap();
    assert_eq!(status.overrides.paused.as_deref(), Some("the provider is down"));
    assert_eq!((status.held.len(), status.waiting, status.line[0].run.clone()), (0, 1, run.run().clone()));
    assert!(mail.set(|overrides| overrides.at_once = Some(0)).await.is_err());
    let refused = mail.pause("x".repeat(1_001)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    mail.pause("x".repeat(1_000)).await.unwrap();
    mail.set(|overrides| overrides.at_once = Some(3)).await.unwrap();
    mail.unpause().await.unwrap();
    world.pass(run.wait()).await.unwrap();
    // A newer version keeps the operator's overrides.
    process.queue("mail").version(2).at_once(7).declare().await.unwrap();
    let status = mail.status().await.unwrap();
    assert_eq!((status.settings.at_once, status.overrides.at_once), (Some(7), Some(3)));
    empty(&world, &mail).await;
}

#[tokio::test]
async fn operator_overrides_rate_of_key() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let often = RateLimit::new(1, MOMENT);
    let mail = process.queue("mail").at_once(9).rate_per_key(often).declare().await.unwrap();
    mail.set(|overrides| overrides.rate_per_key = Some(RateLimit::new(1, 50 * WHILE))).await.unwrap();
    let mut runs = Vec::new();
    for (id, key) in [("1", "ann"), ("2", "ann"), ("3", "bob")] {
        let start = process.start(&graph, Context::new()).id(id).queue("mail").key(key);
        runs.push(world.pass(start).await.unwrap());
    }
    world.pass_for(10 * WHILE).await;
    let status = mail.status().await.unwrap();
    assert_eq!(status.limits().rate_per_key, Some(RateLimit::new(1, 50 * WHILE)));
    assert_eq!((witness.came().len(), status.waiting), (2, 1), "one of each key");
    assert_eq!(status.line[0].key, "ann");
    // The faster rate does not keep the waiting time of the slower one.
    mail.set(|overrides| overrides.rate_per_key = None).await.unwrap();
    world.pass_for(WHILE).await;
    assert_eq!(witness.came().len(), 3);
    for run in &runs {
        world.pass(run.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn with_fewer_places_nobody_loses_one() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(3).declare().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..6 {
        runs.push(
            world.pass(process.start(&graph, Context::new()).id(format!("{n}")).queue("mail")).await.unwrap(),
        );
    }
    mail.set(|overrides| overrides.at_once = Some(1)).await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!((mail.status().await.unwrap().held.len(), witness.inside()), (3, 3));
    world.pass_for(WHILE).await;
    assert_eq!((mail.status().await.unwrap().held.len(), witness.inside()), (1, 1));
    for run in &runs {
        world.pass(run.wait()).await.unwrap();
    }
    assert_eq!(witness.came().len(), 6);
}

#[tokio::test]
async fn a_queue_that_was_purged_begins_anew() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(process.start(&graph, Context::new()).id("first").queue("mail")).await.unwrap();
    let run = mail.status().await.unwrap().run;
    process.cancel(&run, "away with it").await.unwrap();
    let refused = process.queue("mail").at_once(1).declare().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus);
    process.purge(&run).await.unwrap();
    let missing =
        world.pass(process.start(&graph, Context::new()).id("lost").queue("mail")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    assert_eq!(mail.status().await.unwrap_err().kind(), ErrorKind::NotFound);
    process.queue("mail").at_once(2).declare().await.unwrap();
    let second = world.pass(process.start(&graph, Context::new()).id("second").queue("mail")).await.unwrap();
    world.pass(first.wait()).await.unwrap();
    world.pass(second.wait()).await.unwrap();
    empty(&world, &mail).await;
}

/// A run waits on hold, and its queue is purged and declared again. The run waits in the queue again with its original time, whether it is started
/// again or not.
#[tokio::test]
async fn purged_queue_finds_its_held_runs() {
    for (case, is_debounced, tags) in
        [("plain", false, vec![]), ("debounced", true, vec![]), ("elsewhere", false, vec!["gpu"])]
    {
        for is_started_again in [false, true] {
            let case = format!("{case}, started again: {is_started_again}");
            let (world, witness) = (World::new(), Witness::default());
            let graph = slow(&witness, WHILE);
            let starter = process(&world).await;
            let worker = world.process_with(|b| set_up(b, WHILE).tags(["gpu"])).await.unwrap();
            starter.serve(&graph).unwrap();
            worker.serve(&graph).unwrap();
            let declare = || starter.queue("mail").at_once(1).tags(tags.clone()).declare();
            let later = starter.clock().now().plus(6 * WHILE);
            let start = |id: &str| {
                let start =
                    starter.start(&graph, Context::new()).id(id).queue("mail").key("ann").not_before(later);
                if is_debounced { start.debounce("key", MOMENT) } else { start }
            };
            let mail = declare().await.unwrap();
            mail.pause("not yet").await.unwrap();
            let forgotten = world.pass(start("forgotten")).await.unwrap();
            assert!(forgotten.is_waiting().await.unwrap(), "{case}");
            let run = mail.status().await.unwrap().run;
            starter.cancel(&run, "away with it").await.unwrap();
            starter.purge(&run).await.unwrap();
            let mail = declare().await.unwrap();
            worker.queue("mail").at_once(1).tags(tags.clone()).declare().await.unwrap();
            if is_started_again {
                assert!(world.pass(start("forgotten")).await.unwrap().is_new(), "{case}");
            }
            world.pass_for(WHILE).await;
            let line = mail.status().await.unwrap().line;
            assert_eq!(
                (line.len(), line[0].key.as_str(), line[0].not_before),
                (1, "ann", Some(later)),
                "{case}"
            );
            assert_eq!(witness.came().len(), 0, "{case}");
            world.pass_for(8 * WHILE).await;
            let head = starter.head(forgotten.run()).await.unwrap().unwrap();
            assert_eq!(head.status, RunStatus::Completed, "{case}");
            assert_eq!(witness.came(), ["forgotten"], "{case}");
            empty(&world, &mail).await;
        }
    }
}

/// The run has its slot and waits in its process for capacity. No process has claimed it, because a run on hold has no owner.
#[tokio::test]
async fn operator_pause_survives_repeated_start() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 10 * WHILE);
    let limits = RunLimits::new().with_runs(1);
    let process = world.process_with(|b| set_up(b, 60 * WHILE).run_limits(limits)).await.unwrap();
    process.serve(&graph).unwrap();
    process.queue("mail").at_once(2).declare().await.unwrap();
    let start = |id: &str| process.start(&graph, Context::new()).id(id).queue("mail");
    world.pass(start("first")).await.unwrap();
    let second = world.pass(start("second")).await.unwrap();
    process.pause(second.run(), "by hand").await.unwrap();
    world.pass(start("second")).await.unwrap();
    world.pass_for(20 * WHILE).await;
    let head = process.head(second.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.epoch), (RunStatus::Interrupted, Epoch::NEVER));
    assert_eq!(witness.came(), ["first"]);
}

/// Two operators change different settings at the same moment, in one process or in two. Both changes take effect, so a queue is paused even if
/// another operator sets a limit.
#[tokio::test]
async fn concurrent_overrides_both_hold() {
    let world = World::new();
    let (one, two) = (process(&world).await, process(&world).await);
    one.queue("mail").at_once(9).declare().await.unwrap();
    for (n, beside) in [&one, &two].into_iter().enumerate() {
        let find = async |process: &Process| process.queue("mail").find().await.unwrap().unwrap();
        let (here, there) = (find(&one).await, find(beside).await);
        let limit = u32::try_from(n).unwrap() + 3;
        let (paused, set) = world
            .pass(async { tokio::join!(here.pause("stop"), there.set(|o| o.at_once = Some(limit))) })
            .await;
        paused.unwrap();
        set.unwrap();
        let overrides = here.status().await.unwrap().overrides;
        assert_eq!((overrides.paused.as_deref(), overrides.at_once), (Some("stop"), Some(limit)));
        here.unpause().await.unwrap();
    }
}
