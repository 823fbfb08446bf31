//! Functions of thousands of steps.

use std::time::Duration;

use ferrata_core::{Clock as _, SystemClock, runtime::Outcome};
use ferrata_flow::{FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::World;

use crate::effects::EffectLog;

/// Does so many steps, waits for a message in another process, and returns how long the replay took.
async fn replay(count: u32) -> Duration {
    let effects = EffectLog::default();
    let log = effects.clone();
    let long = flow("long", move |cx: FlowContext, count: u32| {
        let log = log.clone();
        async move {
            let mut sum = 0;
            for n in 0..count {
                sum += cx.step("one", || log.add("one", u64::from(n))).await?;
            }
            let _: String = cx.receive("wait").await;
            Ok::<_, FlowError>(sum)
        }
    });
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
    let took = clock.monotonic() - begun;
    assert_eq!(sum, (0..u64::from(count)).sum::<u64>());
    assert_eq!(effects.count("one"), count as usize);
    took
}

/// Four times the steps take about four times the time: sixteen would be quadratic.
///
/// Guarantees: FLOW-10.
#[tokio::test]
async fn long_function_resumes_in_linear_time() {
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let (short, long) = (replay(1_000).await, replay(4_000).await);
        ratios.push(long.as_secs_f64() / short.as_secs_f64());
        println!("1,000 steps took {short:?}, 4,000 took {long:?}");
        if ratios.iter().any(|ratio| *ratio < 8.0) {
            return;
        }
    }
    panic!("four times the steps took {ratios:?} times as long");
}
