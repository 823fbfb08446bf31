//! Replays after a crash at each write take the recorded path.

use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowContext, FlowError, flow};
use ferrata_testing::{CrashTest, ScriptedAnswers};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::effects::EffectLog;

/// Crashes a flow at each write, on each side of it, and checks that the result and the order of the effects are those of the run that never
/// crashed. A crash may repeat the effect of a step that was at work; `repeats` bounds how many.
async fn crash_everywhere<I, O>(flow: &Flow<I, O>, input: I, effects: &EffectLog, repeats: usize)
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + PartialEq + std::fmt::Debug + 'static,
{
    let first = std::cell::RefCell::new(None::<(O, Vec<String>)>);
    let crashes = CrashTest::new(flow.graph().unwrap(), flow.input(&input).unwrap())
        .with_process(|builder| {
            let yes = || Answer::accept(true).unwrap();
            builder.answerer(ScriptedAnswers::new().answer("main", yes()).answer("main", yes()))
        })
        .run(async |case| {
            let Outcome::Completed(state) = &case.outcome else { panic!("{case:?}") };
            let (output, effects) = (flow.output(state).unwrap(), effects.take());
            if case.crash.is_none() {
                *first.borrow_mut() = Some((output, effects));
                return;
            }
            let first = first.borrow();
            let (expected, undisturbed) = first.as_ref().unwrap();
            assert_eq!(output, *expected, "{case:?}");
            let mut left = effects.clone();
            for effect in undisturbed {
                let at = left.iter().position(|known| known == effect);
                left.remove(at.unwrap_or_else(|| panic!("{effect} is missing in {effects:?}: {case:?}")));
            }
            assert!(left.len() <= repeats, "{left:?} were repeated in {effects:?}: {case:?}");
        })
        .await;
    assert!(crashes >= 4);
}

/// Guarantees: FLOW-2, FLOW-3.
#[tokio::test]
async fn sequence_survives_crashes() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let order = flow("order", move |cx: FlowContext, n: u32| {
        let log = log.clone();
        async move {
            let one = cx.step("one", || log.add("one", n + 1)).await?;
            cx.sleep("short", Duration::from_secs(5)).await;
            let yes: bool = cx.ask("sure", "Sure?").await?;
            let two = cx.step("two", || log.add("two", one * 2)).await?;
            Ok::<_, FlowError>((two, yes))
        }
    });
    crash_everywhere(&order, 3, &effects, 1).await;
}

/// Guarantees: FLOW-2, FLOW-3.
#[tokio::test]
async fn select_takes_the_same_branch() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let race = flow("race", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let mut path = Vec::new();
            for round in 0..4 {
                let won = tokio::select! {
                    one = cx.step("one", || log.add("one", round)) => one?,
                    other = cx.step("other", || log.add("other", round + 100)) => other?,
                    () = cx.sleep("tick", Duration::ZERO) => 200,
                };
                path.push(won);
            }
            Ok::<_, FlowError>(path.len())
        }
    });
    // Which branch wins may differ between two runs, so only the number of rounds is compared.
    crash_everywhere(&race, (), &effects, 12).await;
}

/// The path of a race is part of what the run did: a crash must not change it once it is recorded.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn winner_stays_after_crash() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let race = flow("race", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let mut path = Vec::new();
            for _ in 0..3 {
                let won = tokio::select! {
                    one = cx.step("one", || log.add("one", "one".to_owned())) => one?,
                    other = cx.step("other", || log.add("other", "other".to_owned())) => other?,
                };
                // The name says what was seen before: another path asks for another step, which is found.
                path.push(won);
                cx.step(&format!("saw {}", path.join("-")), || log.add(path.join("-"), ())).await?;
            }
            Ok::<_, FlowError>(())
        }
    });
    CrashTest::new(race.graph().unwrap(), race.input(&()).unwrap())
        .run(async |case| {
            assert!(matches!(&case.outcome, Outcome::Completed(_)), "{case:?}");
            let mut paths: Vec<String> = effects.take();
            paths.retain(|effect| effect.contains('-'));
            paths.dedup();
            for pair in paths.windows(2) {
                assert!(pair[1].starts_with(&pair[0]), "two paths: {paths:?}, {case:?}");
            }
        })
        .await;
}

/// Guarantees: FLOW-2, FLOW-3.
#[tokio::test]
async fn unordered_results_keep_their_order() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let fan = flow("fan", move |cx: FlowContext, count: u64| {
        let log = log.clone();
        async move {
            let mut all = FuturesUnordered::new();
            for n in 0..count {
                let (cx, log) = (cx.clone(), log.clone());
                all.push(async move {
                    cx.sleep(&format!("wait {n}"), Duration::from_secs(count - n)).await;
                    cx.step(&format!("do {n}"), || log.add(format!("do {n}"), n)).await
                });
            }
            let mut order = Vec::new();
            while let Some(done) = all.next().await {
                order.push(done?);
                let seen = format!("{order:?}");
                cx.step(&format!("after {}", order.len()), || log.add(seen.as_str(), ())).await?;
            }
            Ok::<_, FlowError>(order)
        }
    });
    // A crash before a timer is recorded sets it anew, so two runs may differ in the order. One run may not.
    CrashTest::new(fan.graph().unwrap(), fan.input(&4).unwrap())
        .run(async |case| {
            let Outcome::Completed(state) = &case.outcome else { panic!("{case:?}") };
            let order = format!("{:?}", fan.output(state).unwrap());
            let mut effects = effects.take();
            effects.retain(|effect| effect.starts_with('['));
            for seen in &effects {
                assert!(order.starts_with(seen.trim_end_matches(']')), "{seen} before {order}: {case:?}");
            }
            assert!(effects.len() <= 5, "{effects:?}: {case:?}");
        })
        .await;
}

/// Guarantees: FLOW-3.
#[tokio::test]
async fn failures_of_steps_stay() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let handle = flow("handle", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            // The second try would succeed: a replay that did it again would take another path.
            let is_first = log.count("flaky") == 0;
            let work =
                || async { if is_first { log.fail("flaky").await } else { log.add("flaky", ()).await } };
            let failed = cx.step("flaky", work).await.is_err();
            let log = &log;
            let (one, other) = tokio::join!(
                cx.step("left", || log.add("left", failed)),
                cx.step("right", || log.fail::<()>("right")),
            );
            cx.step("end", || log.add(if other.is_err() { "failed" } else { "done" }, one.is_ok())).await
        }
    });
    CrashTest::new(handle.graph().unwrap(), handle.input(&()).unwrap())
        .run(async |case| {
            assert!(matches!(&case.outcome, Outcome::Completed(_)), "{case:?}");
            let effects = effects.take();
            assert_eq!(effects.last().map(String::as_str), Some("failed"), "{case:?}: {effects:?}");
        })
        .await;
}

/// Branches may talk to each other in memory, and may yield: that takes no part in the order.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn branches_may_share_memory() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let share = flow("share", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            let produce = async {
                for n in 0..3_u32 {
                    let made = cx.step("make", || log.add("make", n)).await?;
                    tokio::task::yield_now().await;
                    let _ = sender.send(made);
                }
                drop(sender);
                Ok::<_, FlowError>(())
            };
            let consume = async {
                let mut sum = 0;
                while let Some(made) = receiver.recv().await {
                    tokio::task::yield_now().await;
                    sum += cx.step("use", || log.add("use", made)).await?;
                }
                Ok::<_, FlowError>(sum)
            };
            let (produced, sum) = tokio::join!(produce, consume);
            produced?;
            sum
        }
    });
    crash_everywhere(&share, (), &effects, 2).await;
}
