//! Cases in which other systems failed at a new pass, a cancellation or a code change.

use std::time::Duration;

use ferrata_core::graph::RetryPolicy;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, RuntimeFlowExt, flow};
use ferrata_testing::{CrashTest, World};

use crate::effects::EffectLog;

const SECOND: Duration = Duration::from_secs(1);

/// Durable Task for .NET: events that arrived quickly were lost at a continue-as-new, more so with timers.
///
/// Guarantees: FLOW-11.
#[tokio::test]
async fn quick_messages_survive_passes() {
    let count: Flow<Vec<u32>, Vec<u32>> = flow("count", |cx: FlowContext, mut heard: Vec<u32>| async move {
        heard.push(cx.receive("event").await);
        cx.sleep("tick", Duration::ZERO).await;
        if heard.len() < 20 {
            return cx.continue_with(heard).await;
        }
        Ok(heard)
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(count.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&count, Vec::new()).start()).await.unwrap();
    for number in 0..20 {
        // Temporal for Java: a signal that arrived during a continue-as-new was rejected as not found.
        world.pass(process.send(handle.run(), number)).await.unwrap();
    }
    assert_eq!(world.pass(handle.result()).await.unwrap(), (0..20).collect::<Vec<_>>());
}

/// Durable Task for JavaScript: a timer that the last pass had dropped ended the first timer of the next one.
///
/// Guarantees: FLOW-11.
#[tokio::test]
async fn dropped_timer_ends_with_its_pass() {
    let timers: Flow<u32, u64> = flow("timers", |cx: FlowContext, pass: u32| async move {
        if pass == 1 {
            tokio::select! {
                () = cx.sleep("timer", SECOND * 50) => {}
                done = cx.step("quick", async || Ok::<_, FlowError>(())) => done?,
            }
            return cx.continue_with(2).await;
        }
        let begin = cx.now("begin").await;
        cx.sleep("timer", SECOND * 200).await;
        Ok(cx.now("end").await.since(begin).as_secs())
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(timers.graph().unwrap()).unwrap();
    assert!(world.pass(process.call(&timers, 1)).await.unwrap() >= 200);
}

/// Durable Task on Azure Storage: a timer after a continue-as-new never fired.
///
/// Guarantees: FLOW-11.
#[tokio::test]
async fn timer_of_new_pass_fires_elsewhere() {
    let timer: Flow<u32, u32> = flow("timer", |cx: FlowContext, pass: u32| async move {
        if pass == 1 {
            return cx.continue_with(2).await;
        }
        cx.sleep("hour", SECOND * 3_600).await;
        Ok(pass)
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&timer, 1).id("t").start()).await.unwrap();
    world.pass_for(SECOND).await;
    process.crash().await;
    let process = world.process().await.unwrap();
    process.serve(timer.graph().unwrap()).unwrap();
    let again = world.pass(process.call(&timer, 1).id("t").start()).await.unwrap();
    assert_eq!(world.pass(again.result()).await.unwrap(), 2);
    assert_eq!(again.run(), handle.run());
}

/// Temporal: the timer of the execution timeout was not carried over at a continue-as-new. Here the deadline counts for all passes.
///
/// Guarantees: FLOW-11.
#[tokio::test]
async fn deadline_counts_over_passes() {
    let endless: Flow<u32, ()> = flow("endless", |cx: FlowContext, pass: u32| async move {
        cx.sleep("minute", SECOND * 60).await;
        cx.continue_with(pass + 1).await
    })
    .deadline(SECOND * 200);
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(endless.graph().unwrap()).unwrap();
    let error = world.pass(process.call(&endless, 1)).await.unwrap_err();
    assert!(error.to_string().contains("exceeded its deadline"), "{error}");
}

/// Temporal for Java: scopes were cancelled in any order, so a replay of the cancelled run took another path.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn cancelled_race_is_undone_in_order() {
    for _ in 0..10 {
        let log = EffectLog::default();
        let own = log.clone();
        let race: Flow<(), ()> = flow("race", move |cx: FlowContext, (): ()| {
            let log = own.clone();
            async move {
                let undo = |name: &'static str| {
                    let log = log.clone();
                    cx.compensate(&format!("undo {name}"), move || log.add(format!("undo {name}"), ()));
                };
                let branch = async |name: &'static str, seconds: u32| {
                    cx.sleep(&format!("wait {name}"), SECOND * seconds).await;
                    cx.step(name, || log.add(name, ())).await?;
                    undo(name);
                    cx.sleep(&format!("stay {name}"), SECOND * 1_000).await;
                    Ok::<_, FlowError>(())
                };
                tokio::select! {
                    one = branch("one", 2) => one,
                    other = branch("other", 1) => other,
                    third = branch("third", 3) => third,
                }
            }
        });
        let world = World::new();
        let process = world.process().await.unwrap();
        process.serve(race.graph().unwrap()).unwrap();
        let handle = world.pass(process.call(&race, ()).start()).await.unwrap();
        world.pass_for(SECOND * 10).await;
        world.pass(process.cancel(handle.run(), "enough")).await.unwrap();
        assert!(matches!(world.pass(handle.result()).await, Err(FlowCallError::Cancelled { .. })));
        assert_eq!(log.take(), ["other", "one", "third", "undo third", "undo one", "undo other"]);
    }
}

/// Temporal's samples: compensations ran inside of the cancelled scope, so their calls and retries were cancelled, too.
///
/// Guarantees: FLOW-8.
#[tokio::test]
async fn compensation_is_retried_in_cancelled_run() {
    let log = EffectLog::default();
    let own = log.clone();
    let book: Flow<(), ()> = flow("book", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let own = log.clone();
            let policy = RetryPolicy::none().with_attempts(5).with_delay(SECOND * 90);
            cx.compensate_with("release", policy, move || {
                let log = own.clone();
                async move {
                    if log.count("release") < 3 {
                        log.fail("release").await
                    } else {
                        log.add("released", ()).await
                    }
                }
            });
            cx.step("book", || log.add("book", ())).await?;
            let _: String = cx.receive("go").await;
            Ok(())
        }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(book.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&book, ()).start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    world.pass(process.cancel(handle.run(), "enough")).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    assert_eq!(error.to_string(), "the flow was cancelled: enough");
    assert_eq!(log.take(), ["book", "release", "release", "release", "released"]);
}

/// DBOS for Python: patches in concurrent branches raced for one checkpoint, and the workflow waited forever.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn concurrent_patches_have_records_of_their_own() {
    let patches: Flow<(), (bool, bool)> = flow("patches", |cx: FlowContext, (): ()| async move {
        let branch = async |name: &str| {
            cx.step(&format!("before {name}"), async || Ok::<_, FlowError>(())).await?;
            let is_patched = cx.patched(name).await;
            cx.step(&format!("after {name}"), async || Ok::<_, FlowError>(())).await?;
            Ok::<_, FlowError>(is_patched)
        };
        tokio::try_join!(branch("one"), branch("other"))
    });
    CrashTest::new(patches.graph().unwrap(), patches.input(&()).unwrap())
        .run(async |case| {
            let Outcome::Completed(state) = &case.outcome else { panic!("{case:?}") };
            assert_eq!(patches.output(state).unwrap(), (true, true), "{case:?}");
        })
        .await;
}

/// Runs `old` until it waits for a message, and completes the run with `new`.
async fn deploy(old: &Flow<(), u64>, new: &Flow<(), u64>) -> Result<u64, FlowCallError> {
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(old, ()).id("d").start()).await.unwrap();
    world.pass_for(SECOND).await;
    process.crash().await;
    let process = world.process().await.unwrap();
    process.serve(new.graph().unwrap()).unwrap();
    let _ = world.pass(process.send(handle.run(), "go")).await;
    let result = world.pass(process.call(new, ()).id("d")).await;
    let status = process.head(&"d".try_into().unwrap()).await.unwrap().unwrap().status;
    assert_eq!(status == RunStatus::Completed, result.is_ok());
    result
}

/// Temporal for TypeScript: a recorded patch that the code no longer asked for was refused.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn recorded_patch_may_be_removed() {
    let code = |has_patch: bool| {
        flow("code", move |cx: FlowContext, (): ()| async move {
            if !has_patch || cx.patched("new step").await {
                cx.step("new", async || Ok::<_, FlowError>(())).await?;
            }
            let _: String = cx.receive("go").await;
            Ok::<_, FlowError>(7)
        })
    };
    assert_eq!(deploy(&code(true), &code(false)).await.unwrap(), 7);
}

/// Temporal: a timer whose duration was changed from or to zero was refused. Here the recorded moment counts.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn duration_of_timer_may_change() {
    let code = |seconds: u32| {
        flow("code", move |cx: FlowContext, (): ()| async move {
            let begin = cx.now("begin").await;
            cx.sleep("pause", SECOND * seconds).await;
            Ok::<_, FlowError>(cx.now("end").await.since(begin).as_secs())
        })
    };
    let took = deploy(&code(500), &code(0)).await.unwrap();
    assert!(took >= 500, "{took}");
}
