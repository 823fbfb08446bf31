//! Functions with changed code in an active run: each change is safe, or stops the run before it repeats an effect.

use std::time::Duration;

use ferrata_core::runtime::{Outcome, RedactedNumbers};
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::World;

use crate::effects::EffectLog;

const DAY: Duration = Duration::from_secs(86_400);

type Change = Flow<(), ()>;

/// Runs the old code until it waits for a message or crashes, and then the new code. Returns the result, with the effects of the new code.
async fn change(effects: &EffectLog, old: &Change, new: &Change) -> (Result<(), FlowCallError>, Vec<String>) {
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(old, ()).id("r").start()).await.unwrap();
    let outcome = world.pass(handle.handle().wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::AwaitingInput), "{outcome}");
    process.crash().await;
    effects.take();
    let process = world.process().await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    process.serve(new.graph().unwrap()).unwrap();
    let handle = world.pass(process.resume(new.graph().unwrap(), handle.run())).await.unwrap();
    let result = world.pass(FlowHandle::new(handle).result()).await;
    (result, effects.take())
}

/// Makes a flow that does steps of these names, with `wait` for a message.
fn steps(effects: &EffectLog, names: &'static [&'static str]) -> Change {
    let log = effects.clone();
    flow("order", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            for name in names {
                match name.split_once(':') {
                    None if *name == "wait" => drop(cx.receive::<String>("wait").await),
                    Some(("sleep", name)) => cx.sleep(name, DAY).await,
                    Some(("read", name)) => {
                        cx.step(name, || log.add(name, ())).read_only().await?;
                    }
                    Some(("patch", name)) => {
                        if cx.patched(name).await {
                            cx.step(name, || log.add(name, ())).await?;
                        }
                    }
                    Some(("retired", name)) => cx.retired(name),
                    Some(("now", _)) => drop(cx.now("time").await),
                    _ => cx.step(name, || log.add(*name, ())).await?,
                }
            }
            Ok(())
        }
    })
}

/// Guarantees: FLOW-4.
#[tokio::test]
async fn renamed_step_is_refused() {
    let effects = EffectLog::default();
    let old = steps(&effects, &["reserve", "pay", "wait", "ship"]);
    let new = steps(&effects, &["reserve", "charge", "wait", "ship"]);
    let (result, effects) = change(&effects, &old, &new).await;
    let error = result.unwrap_err();
    assert!(matches!(error, FlowCallError::CodeChanged(_)), "{error:?}");
    let text = error.to_string();
    for part in ["step `pay` is recorded", "asked for step `charge`", "changes.rs:", "cx.patched"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(effects, Vec::<String>::new());
}

/// The run of a refused change fails, and goes on with the code that fits.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn refused_run_continues_with_old_code() {
    let effects = EffectLog::default();
    let old = steps(&effects, &["reserve", "wait", "ship"]);
    let new = steps(&effects, &["wait", "ship"]);
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&old, ()).id("r").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    process.crash().await;
    let process = world.process().await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    let run = world.pass(process.resume(new.graph().unwrap(), handle.run())).await.unwrap();
    assert!(matches!(
        world.pass(FlowHandle::<()>::new(run).result()).await,
        Err(FlowCallError::CodeChanged(_))
    ));
    process.crash().await;
    let process = world.process().await.unwrap();
    process.serve(old.graph().unwrap()).unwrap();
    world.pass(process.retry(handle.run())).await.unwrap();
    let call = process.call(&old, ()).id("r");
    world.pass(call).await.unwrap();
    assert_eq!(effects.take(), ["reserve", "ship"]);
}

/// Guarantees: FLOW-4.
#[tokio::test]
async fn changes_are_safe_or_refused() {
    // What is recorded before the change, the new code, and the effects of the new code, if it is safe.
    type Row = (&'static [&'static str], &'static [&'static str], Option<&'static [&'static str]>);
    let rows: &[Row] = &[
        // Nothing but what follows the wait is changed.
        (&["a", "b", "wait"], &["a", "b", "wait", "c", "d"], Some(&["c", "d"])),
        (&["a", "b", "wait", "c"], &["a", "b", "wait"], Some(&[])),
        (&["a", "b", "wait"], &["a", "b", "x", "wait"], Some(&["x"])),
        // Recorded steps are found by name, so their order may change.
        (&["a", "b", "wait"], &["b", "a", "wait", "c"], Some(&["c"])),
        // A step that is removed, added in between, or renamed.
        (&["a", "b", "wait"], &["b", "wait", "c"], None),
        (&["a", "b", "wait"], &["a", "x", "b", "wait", "c"], None),
        (&["a", "b", "wait"], &["a", "x", "wait", "c"], None),
        (&["a", "wait"], &["wait"], None),
        (&["a", "b", "wait"], &["a"], None),
        (&["a", "b", "wait"], &["x"], None),
        // Two steps of one name have numbers.
        (&["a", "a", "wait"], &["a", "a", "wait", "a"], Some(&["a"])),
        (&["a", "a", "wait"], &["a", "wait", "a"], None),
        (&["a", "a", "wait"], &["a", "wait"], None),
        // Declared changes.
        (&["a", "b", "wait"], &["retired:a", "b", "wait", "c"], Some(&["c"])),
        (&["a", "b", "wait"], &["retired:z", "b", "wait", "c"], None),
        (&["a", "b", "wait"], &["a", "patch:x", "b", "wait", "c"], Some(&["c"])),
        (&["a", "b", "wait"], &["a", "b", "wait", "patch:x"], Some(&["x"])),
        (&["patch:x", "b", "wait"], &["patch:x", "b", "wait", "c"], Some(&["c"])),
        (&["patch:x", "b", "wait"], &["x", "b", "wait", "c"], Some(&["c"])),
        (&["patch:x", "b", "wait"], &["b", "wait", "c"], None),
        // Timers, values and steps that only read may come and go.
        (&["a", "sleep:t", "wait"], &["a", "wait", "c"], Some(&["c"])),
        (&["a", "b", "wait"], &["a", "sleep:t", "b", "wait", "c"], Some(&["c"])),
        (&["a", "now:", "wait"], &["a", "wait", "c"], Some(&["c"])),
        (&["a", "b", "wait"], &["now:", "a", "b", "wait", "c"], Some(&["c"])),
        (&["read:r", "b", "wait"], &["b", "wait", "c"], Some(&["c"])),
        (&["a", "b", "wait"], &["a", "read:r", "b", "wait", "c"], Some(&["r", "c"])),
        // An operation of another kind.
        (&["a", "wait"], &["sleep:a", "wait"], None),
    ];
    for (old, new, expected) in rows {
        let effects = EffectLog::default();
        let (result, effects) = change(&effects, &steps(&effects, old), &steps(&effects, new)).await;
        match expected {
            Some(expected) => {
                assert!(result.is_ok(), "{old:?} to {new:?}: {result:?}");
                assert_eq!(effects, **expected, "{old:?} to {new:?}");
            }
            None => {
                assert!(
                    matches!(result, Err(FlowCallError::CodeChanged(_))),
                    "{old:?} to {new:?}: {result:?}"
                );
                assert_eq!(effects, Vec::<String>::new(), "{old:?} to {new:?}");
            }
        }
    }
}

/// A patch that a run has not is not there for the rest of the run, however far it has come.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn patch_stays_as_it_was() {
    let effects = EffectLog::default();
    let old = steps(&effects, &["a", "x", "wait", "b"]);
    let log = effects.clone();
    let new = flow("order", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            cx.step("a", || log.add("a", ())).await?;
            let first = cx.patched("first").await;
            cx.step("x", || log.add("x", ())).await?;
            let _: String = cx.receive("wait").await;
            let second = cx.patched("second").await;
            cx.step("b", || log.add(format!("{first} {second}"), ())).await?;
            let again: Option<String> = cx.receive_within("again", DAY).await;
            assert!(again.is_none());
            cx.step("c", || log.add(format!("{first} {second}"), ())).await
        }
    });
    let (result, effects) = change(&effects, &old, &new).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(effects, ["false true", "false true"]);
}

/// Guarantees: FLOW-4.
#[tokio::test]
async fn changed_result_type_is_refused() {
    let effects = EffectLog::default();
    let old = steps(&effects, &["a", "wait"]);
    let log = effects.clone();
    let new = flow("order", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let a: u32 = cx.step("a", || log.add("a", 7_u32)).await?;
            let _: String = cx.receive("wait").await;
            cx.step("b", || log.add(a.to_string(), ())).await
        }
    });
    let (result, effects) = change(&effects, &old, &new).await;
    let error = result.unwrap_err();
    assert!(matches!(&error, FlowCallError::CodeChanged(_)), "{error:?}");
    assert!(error.to_string().contains("its result is not of type u32"), "{error}");
    assert_eq!(effects, Vec::<String>::new());
}

/// A check replays a log against new code, and does nothing of it.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn check_finds_changed_code() {
    let effects = EffectLog::default();
    let world = World::new();
    let process = world.process().await.unwrap();
    let old = steps(&effects, &["a", "sleep:t", "b", "wait", "c"]);
    process.serve(old.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&old, ()).id("r").start()).await.unwrap();
    world.pass_for(DAY * 2).await;
    let waiting = process.export(handle.run()).await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    world.pass(handle.result()).await.unwrap();
    let completed = process.export(handle.run()).await.unwrap();
    assert_eq!(effects.take(), ["a", "b", "c"]);
    let redacted = process.export_redacted(handle.run(), RedactedNumbers::Zero).await.unwrap();
    old.check(&redacted).await.unwrap();
    for (names, fits_waiting, fits_completed) in [
        (&["a", "sleep:t", "b", "wait", "c"][..], true, true),
        (&["a", "sleep:t", "b", "wait", "c", "d"], true, true),
        (&["a", "b", "wait", "c"], true, true),
        (&["a", "sleep:t", "b", "wait", "d"], true, false),
        (&["a", "sleep:t", "x", "wait", "c"], false, false),
        (&["a", "sleep:t", "b"], true, false),
    ] {
        let new = steps(&effects, names);
        assert_eq!(new.check(&waiting).await.is_ok(), fits_waiting, "{names:?} of the waiting run");
        assert_eq!(new.check(&completed).await.is_ok(), fits_completed, "{names:?} of the completed run");
    }
    assert_eq!(effects.take(), Vec::<String>::new());
    let broken = steps(&effects, &["a", "sleep:t", "b", "wait"]).check(&completed).await.unwrap_err();
    assert!(broken.to_string().contains("step `c` is recorded"), "{broken}");
}
