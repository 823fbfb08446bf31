//! Functions that restart with a new input.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RetentionPolicy};
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, RuntimeFlowExt, flow};
use ferrata_testing::{CrashTest, World};

use crate::effects::EffectLog;

const DAY: Duration = Duration::from_secs(86_400);

/// Does two steps and a wait in each pass, and returns the number of passes.
fn passes(effects: &EffectLog) -> Flow<(u32, u32), u32> {
    let log = effects.clone();
    flow("passes", move |cx: FlowContext, (pass, last): (u32, u32)| {
        let log = log.clone();
        async move {
            let known: u32 = cx.step("one", || log.add(format!("one {pass}"), pass)).await?;
            cx.sleep("a while", Duration::from_secs(5)).await;
            cx.step("two", || log.add(format!("two {known}"), ())).await?;
            if pass < last {
                return cx.continue_with((pass + 1, last)).await;
            }
            Ok(pass)
        }
    })
}

/// A crash at any write repeats the step that was at work at most, and never a finished pass.
///
/// Guarantees: FLOW-11.
#[tokio::test]
async fn passes_survive_crashes() {
    let effects = EffectLog::default();
    let passes = passes(&effects);
    let expected: Vec<String> =
        (1..=3).flat_map(|pass| [format!("one {pass}"), format!("two {pass}")]).collect();
    let crashes = CrashTest::new(passes.graph().unwrap(), passes.input(&(1, 3)).unwrap())
        .run(async |case| {
            let Outcome::Completed(state) = &case.outcome else { panic!("{case:?}") };
            assert_eq!(passes.output(state).unwrap(), 3, "{case:?}");
            let all = effects.take();
            let mut once = all.clone();
            once.dedup();
            assert_eq!(once, expected, "{case:?}");
            assert!(all.len() <= expected.len() + 1, "{all:?}: {case:?}");
        })
        .await;
    assert!(crashes >= 12);
}

/// A pass keeps the id, the labels and the messages of the run, and a call with the first input joins it.
///
/// Guarantees: FLOW-1, FLOW-11.
#[tokio::test]
async fn pass_keeps_the_run() {
    let chat = flow("chat", |cx: FlowContext, mut heard: Vec<String>| async move {
        assert_eq!(cx.labels().get("kind"), Some("test"));
        let said: String = cx.receive("next").await;
        if said == "end" {
            return Ok(heard);
        }
        heard.push(said);
        cx.continue_with(heard).await
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(chat.graph().unwrap()).unwrap();
    let call = || process.call(&chat, Vec::new()).id("c").label("kind", "test");
    let handle = world.pass(call().with(|start| start.message("one").message("two")).start()).await.unwrap();
    world.pass(process.send(handle.run(), "end")).await.unwrap();
    assert_eq!(world.pass(handle.result()).await.unwrap(), ["one", "two"]);
    assert_eq!(process.runs().await.unwrap().items.len(), 1);
}

/// The records of finished passes can be pruned: a run of a hundred passes stays as small as its last ones.
///
/// Guarantees: FLOW-12.
#[tokio::test]
async fn pruned_passes_bound_the_log() {
    let mut sizes = Vec::new();
    for last in [20, 200] {
        let effects = EffectLog::default();
        let passes = passes(&effects);
        let world = World::new();
        let keep = || RetentionPolicy::keep_all().keep_last(16);
        let process = world.process_with(|builder| builder.retention(keep())).await.unwrap();
        process.serve(passes.graph().unwrap()).unwrap();
        let handle = world.pass(process.call(&passes, (1, last)).id("p").start()).await.unwrap();
        assert_eq!(world.pass(handle.result()).await.unwrap(), last);
        sizes.push(process.export(handle.run()).await.unwrap().len());
        assert_eq!(effects.take().len(), 2 * last as usize);
    }
    // Each pass leaves a number in the history of the run.
    assert!(sizes[1] < sizes[0] + 180 * 20, "{sizes:?}");
}

/// Guarantees: FLOW-11.
#[tokio::test]
async fn continued_run_is_cancelled_in_place() {
    let endless = flow("endless", |cx: FlowContext, pass: u64| async move {
        cx.sleep("a day", DAY).await;
        cx.continue_with::<()>(pass + 1).await
    });
    let world = World::new();
    let process = world.process_with(|builder| builder.release_after(Duration::from_secs(60))).await.unwrap();
    process.serve(endless.graph().unwrap()).unwrap();
    let handle = world.pass(process.call(&endless, 0).id("e").start()).await.unwrap();
    world.pass_for(DAY * 3 + Duration::from_secs(3_600)).await;
    let checkpoint = process.checkpoint(handle.run(), ferrata_core::runtime::Position::Latest).await.unwrap();
    assert!(serde_json::to_string(&checkpoint).unwrap().contains("\"input\":3"), "{checkpoint:?}");
    world.pass(process.cancel(handle.run(), "enough")).await.unwrap();
    assert!(matches!(world.pass(handle.result()).await, Err(FlowCallError::Cancelled { .. })));
    assert_eq!(process.head(handle.run()).await.unwrap().unwrap().status, RunStatus::Cancelled);
}

/// An input of another type is refused before the next pass, and changed code is refused before it can drop records.
///
/// Guarantees: FLOW-4, FLOW-11.
#[tokio::test]
async fn refused_pass_fails_the_run() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let wrong = flow("wrong", |cx: FlowContext, _: u32| async move { cx.continue_with::<u32>("text").await });
    let error = world.pass(process.call(&wrong, 1)).await.unwrap_err();
    assert!(error.to_string().contains("the input of the flow is not of type u32"), "{error}");

    let old: Flow<(), ()> = flow("old", |cx: FlowContext, _: ()| async move {
        cx.step("pay", async || Ok::<_, FlowError>(())).await?;
        let _: String = cx.receive("wait").await;
        Ok(())
    });
    let new: Flow<(), ()> = flow("old", |cx: FlowContext, _: ()| async move { cx.continue_with(()).await });
    let handle = world.pass(process.call(&old, ()).id("o").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    process.crash().await;
    let process = world.process().await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    let run = world.pass(process.resume(new.graph().unwrap(), handle.run())).await.unwrap();
    let result = world.pass(ferrata_flow::FlowHandle::<()>::new(run).result()).await;
    assert!(matches!(result, Err(FlowCallError::CodeChanged(_))), "{result:?}");
}
