//! Cases in which other systems diverged in a replay: joins, races, errors, and calls of completed runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowContext, FlowError, FlowErrorKind, RuntimeFlowExt, flow};
use ferrata_testing::{CrashTest, World};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::effects::EffectLog;

const SECOND: Duration = Duration::from_secs(1);

/// Does a step that takes this time by the clock of the world.
async fn slow(cx: &FlowContext, log: &EffectLog, name: &str, time: Duration) -> Result<String, FlowError> {
    let clock = cx.clock();
    let work = || async {
        clock.sleep(time).await;
        log.add(name, name.to_owned()).await
    };
    cx.step(name, work).await
}

/// Crashes the flow at each write. Every result that a process saw must begin with what a process before it saw: `seen` are the effects that begin
/// with `saw`.
async fn crash_everywhere(flow: &Flow<(), String>, log: &EffectLog) {
    let crashes = CrashTest::new(flow.graph().unwrap(), flow.input(&()).unwrap())
        .run(async |case| {
            let Outcome::Completed(state) = &case.outcome else { panic!("{case:?}") };
            let result = flow.output(state).unwrap();
            let effects = log.take();
            let seen: Vec<_> = effects.iter().filter_map(|effect| effect.strip_prefix("saw ")).collect();
            for saw in &seen {
                assert!(result.starts_with(saw), "{saw} and then {result}: {case:?}");
            }
        })
        .await;
    assert!(crashes >= 4);
}

/// DBOS for Python: a gather of different steps recorded them in the order of the scheduler, and the recovery met an unexpected step.
///
/// Guarantees: FLOW-2, FLOW-3.
#[tokio::test]
async fn gathered_steps_are_found_by_name() {
    let log = EffectLog::default();
    let own = log.clone();
    let gather = flow("gather", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let (a, b, c) = tokio::try_join!(
                slow(&cx, &log, "a", SECOND * 3),
                slow(&cx, &log, "b", SECOND),
                slow(&cx, &log, "c", SECOND * 2)
            )?;
            let all = a + &b + &c;
            cx.step("all", || log.add(format!("saw {all}"), ())).await?;
            Ok::<_, FlowError>(all)
        }
    });
    crash_everywhere(&gather, &log).await;
}

/// DBOS for Rust: the order in which `FuturesUnordered` yields steps is a decision that no record holds.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn unordered_steps_keep_their_latency_order() {
    let log = EffectLog::default();
    let own = log.clone();
    let quotes = flow("quotes", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let mut quotes: FuturesUnordered<_> = [("x", 4), ("y", 1), ("z", 2)]
                .map(|(name, seconds)| slow(&cx, &log, name, SECOND * seconds))
                .into_iter()
                .collect();
            let mut all = String::new();
            while let Some(quote) = quotes.next().await {
                all += &quote?;
                cx.step("note", || log.add(format!("saw {all}"), ())).await?;
            }
            Ok::<_, FlowError>(all)
        }
    });
    crash_everywhere(&quotes, &log).await;
}

/// Temporal for Python: concurrent local activities ended in another order in the replay, so the commands after them had other numbers.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn concurrent_sequences_keep_their_interleaving() {
    let log = EffectLog::default();
    let own = log.clone();
    let pair = flow("pair", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let order = std::sync::Mutex::new(String::new());
            let branch = async |name: &str, time: Duration| {
                for _ in 0..3 {
                    slow(&cx, &log, name, time).await?;
                    let seen = {
                        let mut order = order.lock().unwrap();
                        order.push_str(name);
                        order.clone()
                    };
                    log.add(format!("saw {seen}"), ()).await?;
                }
                Ok::<_, FlowError>(())
            };
            tokio::try_join!(branch("l", SECOND * 2), branch("r", SECOND * 3))?;
            Ok(order.into_inner().unwrap())
        }
    });
    crash_everywhere(&pair, &log).await;
}

/// Temporal for TypeScript: a local activity changed memory that another branch waited for, and that branch started a timer at another place.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn timer_follows_memory_of_other_branch() {
    let log = EffectLog::default();
    let own = log.clone();
    let refresh = flow("refresh", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let token = tokio::sync::Notify::new();
            let fetch = async {
                slow(&cx, &log, "token", SECOND).await?;
                token.notify_one();
                slow(&cx, &log, "more", SECOND * 2).await
            };
            let wait = async {
                token.notified().await;
                cx.sleep("pause", SECOND).await;
                cx.step("use", || log.add("use", "use".to_owned())).await
            };
            let (one, other) = tokio::try_join!(fetch, wait)?;
            Ok::<_, FlowError>(one + &other)
        }
    });
    crash_everywhere(&refresh, &log).await;
}

/// Restate for TypeScript: the details of an error differed in the replay, and a call that passed them on no longer matched the journal.
///
/// Guarantees: FLOW-5.
#[tokio::test]
async fn error_details_stay_in_replays() {
    let log = EffectLog::default();
    let (own, count) = (log.clone(), Arc::new(AtomicU32::new(0)));
    let report = flow("report", move |cx: FlowContext, (): ()| {
        let (log, count) = (own.clone(), Arc::clone(&count));
        async move {
            let work = || {
                let number = count.fetch_add(1, Ordering::Relaxed);
                async move { Err::<(), _>(FlowError::fatal(format!("at 0x{number:x}")).context("refused")) }
            };
            let error = cx.step("call", work).await.unwrap_err();
            let text = format!("{error} {:?}", error.failure().causes());
            let told: String = cx.step("tell", || log.add(format!("saw {text}"), text.clone())).await?;
            assert_eq!(told, text);
            Ok::<_, FlowError>(text)
        }
    });
    crash_everywhere(&report, &log).await;
}

/// Restate for TypeScript: an observer of the cancellation that nothing awaited broke the next operation.
#[tokio::test]
async fn cancellation_observer_disturbs_nothing() {
    let log = EffectLog::default();
    let own = log.clone();
    let watch = flow("watch", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let observer = cx.clone();
            let work = async {
                let one = cx.step("one", || log.add("one", "1".to_owned())).await?;
                cx.sleep("pause", SECOND).await;
                Ok::<_, FlowError>(one + &cx.step("two", || log.add("two", "2".to_owned())).await?)
            };
            tokio::select! {
                biased;
                result = work => result,
                () = observer.cancelled() => std::future::pending().await,
            }
        }
    });
    crash_everywhere(&watch, &log).await;
}

/// Restate for TypeScript: a promise that was completed while the handler was suspended hung in the replay.
#[tokio::test]
async fn answer_to_idle_run_is_delivered() {
    let ask: Flow<(), bool> = flow("ask", |cx: FlowContext, (): ()| async move {
        let (one, other) = tokio::join!(cx.ask::<bool>("one", "?"), cx.ask::<bool>("other", "?"));
        Ok(one? && other?)
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&ask, ()).id("a").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    process.crash().await;
    let stranger = world.process().await.unwrap();
    for name in ["main@1:other", "main@1:one"] {
        world.pass(stranger.respond(handle.run(), name, Answer::accept(true).unwrap())).await.unwrap();
    }
    stranger.crash().await;
    let process = world.process().await.unwrap();
    process.serve(ask.graph().unwrap()).unwrap();
    assert!(world.pass(process.call(&ask, ()).id("a")).await.unwrap());
}

/// DBOS for Python: a call of a completed asynchronous workflow ran its function once more.
///
/// Guarantees: FLOW-1.
#[tokio::test]
async fn completed_function_is_not_called_again() {
    let count = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&count);
    let once = flow("once", move |_cx, (): ()| {
        own.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, FlowError>(()) }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    for _ in 0..3 {
        world.pass(process.call(&once, ()).id("o")).await.unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// AWS durable execution for JavaScript: a failed step in a combinator was an unhandled rejection in the replay.
#[tokio::test]
async fn failed_step_of_join_is_handled_in_replays() {
    let log = EffectLog::default();
    let own = log.clone();
    let any = flow("any", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let (one, other) = tokio::join!(
                cx.step("bad", || log.fail::<String>("bad")).timeout(SECOND),
                slow(&cx, &log, "good", SECOND),
            );
            assert_eq!(one.unwrap_err().kind(), FlowErrorKind::Failed);
            cx.sleep("pause", SECOND).await;
            other
        }
    });
    crash_everywhere(&any, &log).await;
}
