//! The result of each operation, and the outside view of calls, starts and ends.

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::ask::Answer;
use ferrata_core::graph::RetryPolicy;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, FlowErrorKind, RuntimeFlowExt, flow};
use ferrata_testing::{ScriptedAnswers, World};

use crate::effects::EffectLog;

const DAY: Duration = Duration::from_secs(86_400);

/// Guarantees: FLOW-1.
#[tokio::test]
async fn call_returns_typed_result() {
    let add = flow("add", |_cx, (one, other): (u32, u32)| async move { Ok::<_, FlowError>(one + other) });
    let world = World::new();
    let process = world.process().await.unwrap();
    assert_eq!(world.pass(process.call(&add, (2, 3)).id("sum")).await.unwrap(), 5);
    // The same id and input join the run; another input is refused.
    assert_eq!(world.pass(process.call(&add, (2, 3)).id("sum")).await.unwrap(), 5);
    let error = world.pass(process.call(&add, (2, 4)).id("sum")).await.unwrap_err();
    assert!(
        matches!(&error, FlowCallError::Runtime(error) if error.kind() == ErrorKind::AlreadyExists),
        "{error:?}"
    );
}

/// Guarantees: FLOW-1.
#[tokio::test]
async fn step_is_done_once_over_wait() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let remind = flow("remind", move |cx: FlowContext, name: String| {
        let log = log.clone();
        async move {
            let card = cx.step("card", || log.add("card", format!("card for {name}"))).await?;
            cx.sleep("a week", DAY * 7).await;
            cx.step("send", || log.add("send", ())).await?;
            Ok(card)
        }
    });
    let world = World::new();
    let process = world.process_with(|builder| builder.release_after(DAY)).await.unwrap();
    process.serve(remind.graph().unwrap()).unwrap();
    let card = world.pass(process.call(&remind, "ann".to_owned())).await.unwrap();
    assert_eq!(card, "card for ann");
    assert_eq!(effects.take(), ["card", "send"]);
}

/// Tries of a step are counted over crashes: with a delay of a day between them, each try is one of another attempt.
///
/// Guarantees: FLOW-6.
#[tokio::test]
async fn step_tries_are_counted_over_rests() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let policy = RetryPolicy::none().with_attempts(3).with_delay(DAY).with_cap(DAY).with_jitter(0.0);
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let paid: Result<(), _> = cx.step("pay", || log.fail("pay")).retry(policy).await;
            let error = paid.unwrap_err();
            cx.step("tell", || log.add("tell", ())).await?;
            Ok(error.to_string())
        }
    });
    let world = World::new();
    let process = world.process_with(|builder| builder.release_after(Duration::from_secs(60))).await.unwrap();
    process.serve(pay.graph().unwrap()).unwrap();
    assert_eq!(world.pass(process.call(&pay, ())).await.unwrap(), "pay failed");
    assert_eq!(effects.take(), ["pay", "pay", "pay", "tell"]);
}

#[tokio::test]
async fn fatal_error_ends_tries() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let work = || async { log.fail::<()>("pay").await.map_err(FlowError::as_fatal) };
            cx.step("pay", work).retry(RetryPolicy::standard()).await
        }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    let error = world.pass(process.call(&pay, ())).await.unwrap_err();
    assert_eq!(error.to_string(), "the flow failed: node main: pay failed");
    assert_eq!(effects.take(), ["pay"]);
}

#[tokio::test]
async fn step_times_out() {
    let slow = flow("slow", |cx: FlowContext, _: ()| async move {
        let never = || std::future::pending::<Result<(), FlowError>>();
        let error = cx.step("never", never).timeout(Duration::from_secs(5)).await.unwrap_err();
        Ok::<_, FlowError>((error.kind(), error.to_string()))
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    let (kind, text) = world.pass(process.call(&slow, ())).await.unwrap();
    assert_eq!(
        (kind, text.as_str()),
        (FlowErrorKind::TimedOut, "the try took longer than its timeout of 5s")
    );
}

#[tokio::test]
async fn question_is_answered_by_name() {
    let ship = flow("ship", |cx: FlowContext, total: u32| async move {
        let answer: bool = cx.ask("approve it", format!("Pay {total} EUR?")).await?;
        Ok::<_, FlowError>(answer)
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(ship.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&ship, 7).id("o").start()).await.unwrap();
    let outcome = world.pass(handle.handle().wait()).await.unwrap();
    let Outcome::Interrupted(questions) = outcome else { panic!("{outcome}") };
    assert_eq!(questions[0].id, "main@1:approve_it");
    let answer = Answer::accept(true).unwrap();
    world.pass(process.respond(handle.run(), "main@1:approve_it", answer)).await.unwrap();
    assert!(world.pass(handle.result()).await.unwrap());
}

#[tokio::test]
async fn rejection_is_an_error() {
    let ship = flow("ship", |cx: FlowContext, _: ()| async move {
        let error = cx.ask::<bool>("approve", "Pay?").await.unwrap_err();
        assert_eq!(error.kind(), FlowErrorKind::Rejected);
        Ok::<_, FlowError>(error.to_string())
    });
    let world = World::new();
    let script = ScriptedAnswers::new().answer("main", Answer::reject("too dear"));
    let process = world.process_with(|builder| builder.answerer(script)).await.unwrap();
    let said = world.pass(process.call(&ship, ())).await.unwrap();
    assert!(said.contains("too dear"), "{said}");
}

#[tokio::test]
async fn messages_are_received_by_name() {
    let chat = flow("chat", |cx: FlowContext, _: ()| async move {
        let first: String = cx.receive("first").await;
        let second: String = cx.receive("second").await;
        let third: Option<String> = cx.receive_within("third", DAY).await;
        Ok::<_, FlowError>((first, second, third))
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(chat.graph().unwrap()).unwrap();
    let call = process.call(&chat, ()).with(|start| start.message("one").message("two"));
    let heard = world.pass(call).await.unwrap();
    assert_eq!(heard, ("one".into(), "two".into(), None));
}

#[tokio::test]
async fn values_differ_and_stay() {
    let values = flow("values", |cx: FlowContext, _: ()| async move {
        let before = (
            cx.now("begin").await,
            cx.random("number").await,
            cx.random("number").await,
            cx.uuid("one").await,
            cx.uuid("other").await,
        );
        cx.sleep("a day", DAY).await;
        let after = cx.now("end").await;
        Ok::<_, FlowError>((before, after))
    });
    let world = World::new();
    let process = world.process_with(|builder| builder.release_after(Duration::from_secs(60))).await.unwrap();
    process.serve(values.graph().unwrap()).unwrap();
    let ((now, one, other, id, another), after) = world.pass(process.call(&values, ())).await.unwrap();
    assert!(after.since(now) >= DAY);
    assert_ne!(one, other);
    assert_ne!(id, another);
    assert_eq!(id.get_version_num(), 8);
}

#[tokio::test]
async fn child_failure_names_its_cause() {
    let child = flow("bill", |cx: FlowContext, _: u32| async move {
        let work = || async { Err::<(), _>(FlowError::fatal("no paper").context("cannot print")) };
        cx.step("print", work).await
    });
    let inner = child.clone();
    let parent = flow("order", move |cx: FlowContext, _: ()| {
        let inner = inner.clone();
        async move {
            let error = cx.call(&inner, 7).name("the bill").await.unwrap_err();
            Ok::<_, FlowError>((error.kind(), error.failure().causes().to_vec()))
        }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(child.graph().unwrap()).unwrap();
    let (kind, causes) = world.pass(process.call(&parent, ())).await.unwrap();
    assert_eq!(kind, FlowErrorKind::ChildFailed);
    assert_eq!(causes.last().map(String::as_str), Some("no paper"), "{causes:?}");
}

#[tokio::test]
async fn spawned_flow_outlives_run() {
    let mail = flow("mail", |_cx, to: String| async move { Ok::<_, FlowError>(format!("to {to}")) });
    let (inner, read) = (mail.clone(), mail.clone());
    let order = flow("order", move |cx: FlowContext, _: ()| {
        let inner = inner.clone();
        async move { Ok::<_, FlowError>(cx.spawn("mail", &inner, &"ann".to_owned()).await.to_string()) }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(mail.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&order, ()).id("o").start()).await.unwrap();
    let spawned = world.pass(handle.result()).await.unwrap();
    let runs = process.runs().await.unwrap();
    let run = runs.items.iter().find(|head| head.run.to_string() == spawned).unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let state = process.state_at(read.graph().unwrap(), &run.run, run.seq).await.unwrap();
    assert_eq!(read.output(&state).unwrap(), "to ann");
}

#[tokio::test]
async fn cancelled_flow_is_a_typed_error() {
    let wait: Flow<(), ()> = flow("wait", |cx: FlowContext, _: ()| async move {
        cx.sleep("long", DAY).await;
        Ok(())
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&wait, ()).start()).await.unwrap();
    world.pass(process.cancel(handle.run(), "not wanted")).await.unwrap();
    let error = world.pass(handle.result()).await.unwrap_err();
    assert!(matches!(&error, FlowCallError::Cancelled { reason } if reason == "not wanted"), "{error:?}");
    let head = process.head(handle.run()).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Cancelled);
}

/// An error that ends the function is not recorded, so a retry of the run does the step again. One that the function handled stays.
///
/// Guarantees: FLOW-5.
#[tokio::test]
async fn retry_of_run_repeats_last_failure_only() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let first: Result<(), _> = cx.step("first", || log.fail("first")).await;
            assert!(first.is_err());
            cx.step("second", || log.add("second", ())).await?;
            let repaired = log.count("third") > 0;
            cx.step("third", || async {
                if repaired { log.add("third", ()).await } else { log.fail("third").await }
            })
            .await
        }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(pay.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&pay, ()).start()).await.unwrap();
    assert!(matches!(world.pass(handle.result()).await, Err(FlowCallError::Failed(_))));
    world.pass(process.retry(handle.run())).await.unwrap();
    world.pass(handle.result()).await.unwrap();
    assert_eq!(effects.take(), ["first", "second", "third", "third"]);
}

#[tokio::test]
async fn flow_retry_calls_function_again() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            cx.step("once", || log.add("once", ())).await?;
            let is_first = log.count("twice") == 0;
            let work =
                || async { if is_first { log.fail("twice").await } else { log.add("twice", ()).await } };
            cx.step("twice", work).await
        }
    })
    .retry(RetryPolicy::none().with_attempts(2));
    let world = World::new();
    let process = world.process().await.unwrap();
    world.pass(process.call(&pay, ())).await.unwrap();
    assert_eq!(effects.take(), ["once", "twice", "twice"]);
}

/// Names are checked when an operation is called, and a refused one stops the run: nothing of it is done.
#[tokio::test]
async fn refused_names_stop_the_run() {
    for (name, expected) in
        [("a/b", "cannot name an operation"), ("", "cannot name"), ("now", "names a value")]
    {
        let bad = flow("bad", move |cx: FlowContext, _: ()| async move {
            let _ = cx.now("now").await;
            cx.step(name, || async { Ok::<_, FlowError>(()) }).await
        });
        let world = World::new();
        let process = world.process().await.unwrap();
        let error = world.pass(process.call(&bad, ())).await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("operations.rs"), "{error}");
    }
}
