//! Cancelled runs compensate their effects.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::{Fault, Process, World};

use crate::effects::EffectLog;

const DAY: Duration = Duration::from_secs(86_400);

const NAMES: [&str; 3] = ["flight", "hotel", "car"];

/// Books three things, and waits for a message. `broken` names a compensation that always fails, `slow` a step that never ends.
fn trip(effects: &EffectLog, broken: &'static str, slow: &'static str) -> Flow<(), ()> {
    let log = effects.clone();
    flow("trip", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            for name in NAMES {
                if name == slow {
                    cx.step(name, std::future::pending::<Result<(), FlowError>>).await?;
                }
                cx.step(name, || log.add(format!("book {name}"), ())).await?;
                let log = log.clone();
                cx.compensate(&format!("cancel {name}"), move || {
                    let log = log.clone();
                    async move {
                        if name == broken {
                            return log.fail(&format!("cancel {name}")).await.map_err(FlowError::as_fatal);
                        }
                        log.add(format!("cancel {name}"), ()).await
                    }
                });
            }
            let _: String = cx.receive("go").await;
            cx.step("pay", || log.add("pay", ())).await
        }
    })
}

async fn server(world: &World, trip: &Flow<(), ()>) -> Process {
    let process = world.process().await.unwrap();
    process.serve(trip.graph().unwrap()).unwrap();
    process
}

/// Checks that the effects are bookings, then the compensations of those, in reverse. Each but the one at a crash happened once. A booking that
/// no record shows cannot be undone.
fn check(effects: &[String], crashes: usize, case: &str) {
    let mut once = effects.to_vec();
    once.dedup();
    assert!(effects.len() - once.len() <= crashes, "{effects:?} repeats too much: {case}");
    let booked: Vec<_> = once.iter().filter_map(|effect| effect.strip_prefix("book ")).collect();
    let mut undone: Vec<_> = once.iter().filter_map(|effect| effect.strip_prefix("cancel ")).collect();
    undone.reverse();
    assert!(booked.starts_with(&undone), "{effects:?}: {case}");
    assert!(undone.len() + usize::from(crashes > 0) >= booked.len(), "{effects:?} are not undone: {case}");
    let first = once.iter().position(|effect| effect.starts_with("cancel")).unwrap_or(once.len());
    assert!(once[first..].iter().all(|effect| effect.starts_with("cancel")), "{effects:?}: {case}");
}

/// A process that does not know the flow cancels the idle run. The run ends when a process that serves it has undone its steps.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn idle_run_is_undone() {
    let effects = EffectLog::default();
    let trip = trip(&effects, "", "");
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&trip, ()).id("t").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    process.crash().await;
    let stranger = world.process().await.unwrap();
    world.pass(stranger.cancel(handle.run(), "not wanted")).await.unwrap();
    world.pass_for(Duration::from_secs(60)).await;
    assert_eq!(stranger.head(handle.run()).await.unwrap().unwrap().status, RunStatus::InProgress);
    let process = server(&world, &trip).await;
    world.pass_for(Duration::from_secs(60)).await;
    let handle = world.pass(process.call(&trip, ()).id("t").start()).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    assert!(matches!(&error, FlowCallError::Cancelled { reason } if reason == "not wanted"), "{error:?}");
    let expected = ["book flight", "book hotel", "book car", "cancel car", "cancel hotel", "cancel flight"];
    assert_eq!(effects.take(), expected);
}

/// A step at work is dropped after the grace, and nothing new begins.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn running_step_is_dropped_and_others_undone() {
    let effects = EffectLog::default();
    let trip = trip(&effects, "", "car");
    let world = World::new();
    let process = server(&world, &trip).await;
    let handle = world.pass(process.call(&trip, ()).id("t").start()).await.unwrap();
    world.pass_for(Duration::from_secs(1)).await;
    world.pass(process.cancel(handle.run(), "not wanted")).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    assert!(matches!(&error, FlowCallError::Cancelled { .. }), "{error:?}");
    assert_eq!(effects.take(), ["book flight", "book hotel", "cancel hotel", "cancel flight"]);
}

/// Guarantees: FLOW-8.
#[tokio::test]
async fn failed_compensation_is_named_in_reason() {
    let effects = EffectLog::default();
    let trip = trip(&effects, "hotel", "");
    let world = World::new();
    let process = server(&world, &trip).await;
    let handle = world.pass(process.call(&trip, ()).id("t").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    world.pass(process.cancel(handle.run(), "not wanted")).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    let expected = "the flow was cancelled: not wanted; the cleanup failed: could not undo `cancel hotel`: cancel hotel failed";
    assert_eq!(error.to_string(), expected);
    check(&effects.take(), 0, "broken");
}

/// The run is cancelled after a crash at each write, and the process that undoes it crashes at each write, too.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn undo_survives_crashes() {
    let (mut cases, mut undone) = (0, 0);
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for first in 0..8 {
            for second in 0..8 {
                let effects = EffectLog::default();
                let trip = trip(&effects, "", "");
                let world = World::new();
                let process = server(&world, &trip).await;
                process.fail_write(first, fault);
                let Ok(handle) = world.pass(process.call(&trip, ()).id("t").start()).await else { continue };
                let run = handle.run().clone();
                let _ = world.pass(handle.handle().wait()).await;
                process.crash().await;
                let stranger = world.process().await.unwrap();
                if world.pass(stranger.cancel(&run, "not wanted")).await.is_err() {
                    continue; // its start was lost
                }
                stranger.crash().await;
                let process = server(&world, &trip).await;
                process.fail_write(second, fault);
                if let Ok(handle) = world.pass(process.resume(trip.graph().unwrap(), &run).take_over()).await
                {
                    let _ = world.pass(handle.wait()).await;
                }
                process.crash().await;
                let process = server(&world, &trip).await;
                if let Ok(handle) = world.pass(process.resume(trip.graph().unwrap(), &run).take_over()).await
                {
                    let _ = world.pass(FlowHandle::<()>::new(handle).result()).await;
                }
                let case = format!("{fault:?} at {first}, then at {second}");
                let status = process.head(&run).await.unwrap().unwrap().status;
                assert_eq!(status, RunStatus::Cancelled, "{case}: {:?}", effects.take());
                let effects = effects.take();
                check(&effects, 2, &case);
                cases += 1;
                undone += usize::from(effects.iter().any(|effect| effect.starts_with("cancel")));
            }
        }
    }
    assert!(cases > 80 && undone > 40, "{cases} cases, {undone} with compensations");
}

/// A shutdown in the middle of a cleanup hands it to the next process. Its long retry delay is kept.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn shutdown_hands_cleanup_over() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let slow: Flow<(), ()> = flow("slow", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            cx.step("book", || log.add("book", ())).await?;
            let is_first = log.count("cancel") == 0;
            let log = log.clone();
            let policy =
                ferrata_core::graph::RetryPolicy::none().with_attempts(2).with_delay(DAY).with_cap(DAY);
            cx.compensate_with("undo", policy, move || {
                let log = log.clone();
                async move { if is_first { log.fail("cancel").await } else { log.add("cancel", ()).await } }
            });
            cx.sleep("long", DAY).await;
            Ok(())
        }
    });
    let world = World::new();
    let process = server(&world, &slow).await;
    let handle = world.pass(process.call(&slow, ()).id("s").start()).await.unwrap();
    world.pass_for(Duration::from_secs(1)).await;
    world.pass(process.cancel(handle.run(), "not wanted")).await.unwrap();
    world.pass_for(Duration::from_secs(60)).await;
    assert_eq!(effects.take(), ["book", "cancel"]);
    assert_eq!(process.head(handle.run()).await.unwrap().unwrap().status, RunStatus::InProgress);
    let run = handle.run().clone();
    process.crash().await;
    let process = server(&world, &slow).await;
    world.pass_for(DAY * 2).await;
    assert_eq!(process.head(&run).await.unwrap().unwrap().status, RunStatus::Cancelled);
    assert_eq!(effects.take(), ["cancel"]);
}

/// A flow without compensations needs no process of its own to be cancelled while it is idle.
#[tokio::test]
async fn idle_run_without_compensations_ends_at_once() {
    let wait: Flow<(), String> =
        flow("wait", |cx: FlowContext, _: ()| async move { Ok(cx.receive::<String>("go").await) });
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&wait, ()).start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    process.crash().await;
    let stranger = world.process().await.unwrap();
    world.pass(stranger.cancel(handle.run(), "not wanted")).await.unwrap();
    assert_eq!(stranger.head(handle.run()).await.unwrap().unwrap().status, RunStatus::Cancelled);
}
