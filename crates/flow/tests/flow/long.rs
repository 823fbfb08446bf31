//! Functions of thousands of steps.

use std::time::Duration;

use ferrata_core::Clock as _;
use ferrata_core::{SystemClock, runtime::Outcome};
use ferrata_flow::{Flow, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::World;
use futures_util::future::join_all;

use crate::effects::EffectLog;

/// How the steps of a function follow each other.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Sequence,
    /// Each step races a second one, which loses.
    Races,
    AllAtOnce,
}

fn long(shape: Shape, effects: &EffectLog) -> Flow<u32, u64> {
    let log = effects.clone();
    flow("long", move |cx: FlowContext, count: u32| {
        let log = log.clone();
        async move {
            let (cx, log) = (&cx, &log);
            let step = |n: u32| cx.step("one", move || log.add("one", u64::from(n)));
            let mut sum = 0;
            match shape {
                Shape::Sequence => {
                    for n in 0..count {
                        sum += step(n).await?;
                    }
                }
                Shape::Races => {
                    for n in 0..count {
                        sum += tokio::select! {
                            biased;
                            one = step(n) => one?,
                            () = cx.sleep("late", Duration::from_secs(86_400)) => 0,
                        };
                    }
                }
                Shape::AllAtOnce => {
                    for one in join_all((0..count).map(step)).await {
                        sum += one?;
                    }
                }
            }
            let _: String = cx.receive("wait").await;
            Ok::<_, FlowError>(sum)
        }
    })
}

/// Does so many steps, waits for a message in another process, and returns how long the resume took.
async fn resume(shape: Shape, count: u32) -> Duration {
    let effects = EffectLog::default();
    let long = long(shape, &effects);
    let world = World::new();
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(&long, count).start()).await.unwrap();
    let outcome = world.pass(handle.handle().wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::AwaitingInput), "{outcome}");
    process.crash().await;
    let process = world.process().await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let handle = world.pass(process.resume(long.graph().unwrap(), handle.run())).await.unwrap();
    let sum = world.pass(FlowHandle::<u64>::new(handle).result()).await.unwrap();
    let whole = clock.monotonic() - begun;
    assert_eq!(sum, (0..u64::from(count)).sum::<u64>());
    assert_eq!(effects.count("one"), count as usize);
    whole
}

/// Ten times the steps take about ten times the time: a hundred would be quadratic. The work on the records is counted in the tests of the engine.
///
/// Guarantees: FLOW-10.
#[tokio::test]
async fn long_function_resumes_in_linear_time() {
    for (shape, count) in [(Shape::Sequence, 1_000), (Shape::Races, 100), (Shape::AllAtOnce, 100)] {
        let mut ratios = Vec::new();
        while !ratios.iter().any(|ratio| *ratio < 25.0) {
            assert!(ratios.len() < 3, "ten times the steps took {ratios:?} times as long: {shape:?}");
            let (short, long) = (resume(shape, count).await, resume(shape, 10 * count).await);
            ratios.push(long.as_secs_f64() / short.as_secs_f64());
        }
    }
}
