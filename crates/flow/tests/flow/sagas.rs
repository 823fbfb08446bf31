//! Compensations, and external steps.

use std::cell::RefCell;

use ferrata_core::ask::Answer;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, RuntimeFlowExt, StepOutcome, flow};
use ferrata_testing::{CrashTest, World};

use crate::effects::EffectLog;

/// Books a flight and a hotel, and fails at the car. `broken` names a compensation that always fails.
fn trip(effects: &EffectLog, broken: &'static str) -> Flow<(), ()> {
    let log = effects.clone();
    flow("trip", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            for name in ["flight", "hotel"] {
                cx.step(name, || log.add(format!("book {name}"), ())).await?;
                let log = log.clone();
                cx.compensate(&format!("cancel {name}"), move || {
                    let log = log.clone();
                    async move {
                        let effect = format!("cancel {name}");
                        if name == broken {
                            log.fail(&effect).await.map_err(FlowError::as_fatal)
                        } else {
                            log.add(effect, ()).await
                        }
                    }
                });
            }
            let car: Result<(), _> = cx.step("car", || log.fail("book car")).await;
            car.map_err(|error| error.as_fatal().context("no trip"))
        }
    })
}

/// Guarantees: FLOW-7.
#[tokio::test]
async fn compensations_run_in_reverse_after_crashes() {
    let effects = EffectLog::default();
    let trip = trip(&effects, "");
    let expected = ["book flight", "book hotel", "book car", "cancel hotel", "cancel flight"];
    let crashes = CrashTest::new(trip.graph().unwrap(), trip.input(&()).unwrap())
        .run(async |case| {
            let Outcome::Failed { failure, .. } = &case.outcome else { panic!("{case:?}") };
            assert_eq!(failure.message, "no trip", "{case:?}");
            assert_eq!(failure.causes, ["book car failed"], "{case:?}");
            let mut effects = effects.take();
            // A crash repeats the one step that was at work.
            effects.dedup();
            assert_eq!(effects, expected, "{case:?}");
        })
        .await;
    assert!(crashes >= 10);
}

/// Guarantees: FLOW-7.
#[tokio::test]
async fn failed_compensation_is_listed_and_retried() {
    let effects = EffectLog::default();
    let world = World::new();
    let process = world.process().await.unwrap();
    let broken = trip(&effects, "hotel");
    let handle = world.pass(process.call(&broken, ()).id("t").start()).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    let FlowCallError::Failed(failure) = &error else { panic!("{error:?}") };
    assert_eq!(failure.message, "no trip; could not undo `cancel hotel`: cancel hotel failed");
    assert_eq!(failure.causes, ["book car failed"]);
    // The error of the first one is recorded, because the second followed it. A retry finds all of it.
    let done = ["book flight", "book hotel", "book car", "cancel hotel", "cancel flight"];
    assert_eq!(effects.take(), done);
    process.serve(broken.graph().unwrap()).unwrap();
    world.pass(process.retry(handle.run())).await.unwrap();
    assert!(world.pass(handle.result()).await.is_err());
    assert_eq!(effects.take(), Vec::<String>::new());
}

/// A compensation that failed last is not recorded, so a retry of the run tries it again.
#[tokio::test]
async fn last_failed_compensation_is_tried_again() {
    let effects = EffectLog::default();
    let world = World::new();
    let process = world.process().await.unwrap();
    let broken = trip(&effects, "flight");
    process.serve(broken.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&broken, ()).id("t").start()).await.unwrap();
    assert!(world.pass(handle.result()).await.is_err());
    effects.take();
    world.pass(process.retry(handle.run())).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    assert!(error.to_string().contains("could not undo `cancel flight`"), "{error}");
    assert_eq!(effects.take(), ["cancel flight"]);
}

/// Guarantees: FLOW-9.
#[tokio::test]
async fn external_step_is_not_repeated_unasked() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            cx.step("first", || log.add("first", ())).await?;
            let paid: u32 = cx.step("pay", || log.add("pay", 7)).external().await?;
            cx.step("last", || log.add("last", paid)).await
        }
    });
    let asked = RefCell::new(0);
    CrashTest::new(pay.graph().unwrap(), pay.input(&()).unwrap())
        .run(async |case| {
            let mut expected = 7;
            if let Outcome::Interrupted(questions) = &case.outcome {
                *asked.borrow_mut() += 1;
                assert_eq!(questions[0].id, "main@1:pay.outcome1");
                assert!(effects.count("pay") <= 1, "{case:?}");
                expected = 70;
                let answer = Answer::accept(StepOutcome::Done(70)).unwrap();
                case.world
                    .pass(case.process.respond(&case.run, "main@1:pay.outcome1", answer))
                    .await
                    .unwrap();
            }
            let call = case.process.call(&pay, ()).id("crash-test");
            assert_eq!(case.world.pass(call).await.unwrap(), expected, "{case:?}");
            assert!(effects.count("pay") <= 1, "{case:?}");
            effects.take();
        })
        .await;
    assert!(*asked.borrow() >= 2);
}

/// Guarantees: FLOW-9.
#[tokio::test]
async fn operator_decides_about_external_step() {
    for (answer, expected, count) in [
        (serde_json::json!("retry"), Ok(7), 2),
        (serde_json::json!({ "fail": "no money" }), Err("no money".to_owned()), 1),
    ] {
        let effects = EffectLog::default();
        let log = effects.clone();
        let pay = flow("pay", move |cx: FlowContext, _: ()| {
            let log = log.clone();
            async move {
                let is_first = log.count("pay") == 0;
                let work = || async {
                    let paid = log.add("pay", 7).await;
                    if is_first { std::future::pending().await } else { paid }
                };
                let paid: Result<u32, FlowError> = cx.step("pay", work).external().await;
                Ok::<_, FlowError>(paid.map_err(|error| error.to_string()))
            }
        });
        let world = World::new();
        let process = world.process().await.unwrap();
        let handle = world.pass(process.call(&pay, ()).id("p").start()).await.unwrap();
        world.pass_for(std::time::Duration::from_secs(1)).await;
        process.crash().await;
        let process = world.process().await.unwrap();
        process.serve(pay.graph().unwrap()).unwrap();
        let run = world.pass(process.resume(pay.graph().unwrap(), handle.run())).await.unwrap();
        let outcome = world.pass(run.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome}");
        let answer = Answer::accept(answer).unwrap();
        world.pass(process.respond(handle.run(), "main@1:pay.outcome1", answer)).await.unwrap();
        let state = world.pass(run.completed()).await.unwrap();
        assert_eq!(pay.output(&state).unwrap(), expected);
        assert_eq!(effects.count("pay"), count);
    }
}
