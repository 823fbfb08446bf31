//! Events and streams of flows, as a watcher of the run receives them.

use ferrata_core::RunKey;
use ferrata_core::runtime::{LiveEvent, Outcome, Runtime, Watch, WatchEventKind, WatchKind};
use ferrata_flow::{Flow, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::World;

/// Runs a flow until it waits for a message, and stops its process.
async fn wait_and_crash(world: &World, flow: &Flow<(), u32>) -> RunKey {
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(flow, ()).start()).await.unwrap();
    let outcome = world.pass(handle.handle().wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::AwaitingInput), "{outcome}");
    process.crash().await;
    handle.run().clone()
}

/// Continues the run in this process to its end.
async fn finish(world: &World, process: &Runtime, flow: &Flow<(), u32>, run: &RunKey) -> u32 {
    world.pass(process.send(run, "go on")).await.unwrap();
    let handle = world.pass(process.resume(flow.graph().unwrap(), run)).await.unwrap();
    world.pass(FlowHandle::<u32>::new(handle).result()).await.unwrap()
}

/// Returns the chunks and the names of custom events that are left in a watch of an ended run.
async fn drain(world: &World, watch: &mut Watch) -> (Vec<String>, Vec<String>) {
    let (mut chunks, mut events) = (Vec::new(), Vec::new());
    while let Some(event) = world.pass(watch.next()).await.unwrap() {
        chunks.extend(event.chunks().map(|chunk| chunk.read::<String>().unwrap()));
        if let WatchEventKind::Live(LiveEvent::Custom { name, .. }) = &event.what {
            events.push(name.clone());
        }
    }
    (chunks, events)
}

/// Guarantees: FLOW-3.
#[tokio::test]
async fn stream_of_recorded_step_is_not_written_again() {
    let write = flow("write", |cx: FlowContext, _: ()| async move {
        let context = &cx;
        let count = context.step("words", || async move {
            let mut words = context.stream("text")?.durable();
            for word in ["one", "two"] {
                words.send(word).await?;
            }
            words.finish().await?;
            Ok::<_, FlowError>(2)
        });
        let count = count.await?;
        let _: String = cx.receive("wait").await;
        Ok::<_, FlowError>(count)
    });
    let world = World::new();
    let run = wait_and_crash(&world, &write).await;
    let process = world.process().await.unwrap();
    assert_eq!(finish(&world, &process, &write, &run).await, 2);
    let mut watch = world.pass(process.watch(&run)).await.unwrap();
    assert_eq!(drain(&world, &mut watch).await.0, ["one", "two"]);
}

/// An event is not recorded. So the watchers of each process that runs the function receive it.
#[tokio::test]
async fn replay_sends_event_to_watchers_again() {
    let report = flow("report", |cx: FlowContext, _: ()| async move {
        cx.emit("begun", ())?;
        let _: String = cx.receive("wait").await;
        cx.emit("ended", ())?;
        Ok::<_, FlowError>(1)
    });
    let world = World::new();
    let run = wait_and_crash(&world, &report).await;
    let process = world.process().await.unwrap();
    let mut watch = world.pass(process.watch(&run).kinds([WatchKind::Custom])).await.unwrap();
    assert_eq!(finish(&world, &process, &report, &run).await, 1);
    assert_eq!(drain(&world, &mut watch).await.1, ["begun", "ended"]);
}
