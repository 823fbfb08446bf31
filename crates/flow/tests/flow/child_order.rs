//! Children and spawned flows, raced by other operations and crashed at each write: a replay sees their ends and failures where the function saw them.

use std::time::Duration;

use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowContext, FlowError, FlowErrorKind, RuntimeFlowExt, flow};
use ferrata_testing::{Fault, Process, World};

use crate::effects::EffectLog;

const SECOND: Duration = Duration::from_secs(1);

/// Doubles a number, after as many seconds; fails at 3.
fn double() -> Flow<u64, u64> {
    flow("double", |cx: FlowContext, n: u64| async move {
        cx.sleep("work", SECOND * u32::try_from(n).unwrap()).await;
        if n == 3 { Err(FlowError::fatal("three")) } else { Ok(2 * n) }
    })
}

async fn process<O>(world: &World, flow: &Flow<(), O>) -> Process
where
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    let process = world.process().await.unwrap();
    process.serve(flow.graph().unwrap()).unwrap();
    process.serve(double().graph().unwrap()).unwrap();
    process
}

/// Crashes a function at each write, and once more at some later ones. The function logs its path so far as `saw ..` in steps: each must be the
/// beginning of the next.
async fn crash_everywhere<O>(flow: &Flow<(), O>, log: &EffectLog, check: impl Fn(O))
where
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    let mut writes = 0;
    for (first, second) in std::iter::once((u64::MAX, u64::MAX))
        .chain((0..60).flat_map(|first| [2, 5, 8, u64::MAX].map(|second| (first, second))))
    {
        if first != u64::MAX && first >= writes {
            break;
        }
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let world = World::new();
            for write in [first, second].into_iter().filter(|write| *write != u64::MAX) {
                let process = process(&world, flow).await;
                process.fail_write(write, fault);
                if let Ok(handle) = world.pass(process.call(flow, ()).id("r").start()).await {
                    let _ = world.pass(handle.handle().completed()).await;
                }
                process.crash().await;
            }
            let process = process(&world, flow).await;
            let handle = world.pass(process.call(flow, ()).id("r").start()).await.unwrap();
            let outcome = world.pass(handle.handle().wait()).await.unwrap();
            let case = format!("{fault:?} at {first}, then at {second}");
            let Outcome::Completed(state) = outcome else { panic!("{case}: {outcome}") };
            check(flow.output(&state).unwrap());
            let effects = log.take();
            let seen: Vec<_> = effects.iter().filter_map(|effect| effect.strip_prefix("saw ")).collect();
            for pair in seen.windows(2) {
                assert!(pair[1].starts_with(pair[0]), "{pair:?}: {case}");
            }
            assert!(!seen.is_empty(), "{case}");
            if first == u64::MAX {
                writes = process.writes();
            }
        }
    }
    assert!(writes > 8, "{writes} writes");
}

/// The path of a function: what it saw, in order.
#[derive(Default)]
struct Path(std::sync::Mutex<Vec<String>>);

impl Path {
    async fn see(&self, cx: &FlowContext, log: &EffectLog, what: &str) -> Result<(), FlowError> {
        let path = {
            let mut path = self.0.lock().unwrap();
            path.push(what.to_owned());
            path.join(" ")
        };
        // A replay with another path asks for another result.
        let known: String = cx.step(what, || log.add(format!("saw {path}"), path.clone())).await?;
        assert_eq!(known, path, "the replay took another path");
        Ok(())
    }
}

/// A failure that came between the steps of another branch stays there, and does not come when the child started.
///
/// Guarantees: FLOW-2, FLOW-5.
#[tokio::test]
async fn child_failure_keeps_its_position() {
    let log = EffectLog::default();
    let own = log.clone();
    let parent: Flow<(), ()> = flow("parent", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let path = Path::default();
            let call = async {
                let error = cx.call(&double(), 3).await.unwrap_err();
                assert_eq!(error.kind(), FlowErrorKind::ChildFailed);
                path.see(&cx, &log, "failed").await
            };
            let steps = async {
                for n in 0..5 {
                    cx.sleep(&format!("pause {n}"), SECOND).await;
                    path.see(&cx, &log, &format!("step {n}")).await?;
                }
                Ok(())
            };
            tokio::try_join!(call, steps).map(|_| ())
        }
    });
    crash_everywhere(&parent, &log, |()| ()).await;
}

/// The end of a start decides a race as any other end does.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn spawn_keeps_its_position() {
    let log = EffectLog::default();
    let own = log.clone();
    let parent: Flow<(), String> = flow("parent", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let path = Path::default();
            for n in 0..3 {
                let won = tokio::select! {
                    _ = cx.spawn("spawn", &double(), &1) => "spawn",
                    () = cx.sleep("sleep", Duration::ZERO) => "sleep",
                };
                path.see(&cx, &log, &format!("{won} {n}")).await?;
            }
            Ok(path.0.into_inner().unwrap().join(" "))
        }
    });
    crash_everywhere(&parent, &log, |_| ()).await;
}

/// Results are in the order of the inputs, whichever child ends first. At most two children run at a time.
///
/// Guarantees: FLOW-2, FLOW-3.
#[tokio::test]
async fn map_returns_results_in_order() {
    let log = EffectLog::default();
    let own = log.clone();
    let parent: Flow<(), Vec<Result<u64, String>>> = flow("parent", move |cx: FlowContext, (): ()| {
        let log = own.clone();
        async move {
            let results = cx.map("doubles", &double(), [4, 3, 2, 1, 0], 2).await;
            let results: Vec<_> = results
                .into_iter()
                .map(|result| result.map_err(|error| format!("{:?}", error.kind())))
                .collect();
            cx.step("end", || log.add(format!("saw {results:?}"), ())).await?;
            Ok(results)
        }
    });
    crash_everywhere(&parent, &log, |results| {
        assert_eq!(results, [Ok(8), Err("ChildFailed".into()), Ok(4), Ok(2), Ok(0)]);
    })
    .await;
}

/// `max_running` bounds the open children, and 0 counts as 1. A map of nothing returns at once.
#[tokio::test]
async fn map_bounds_running_children() {
    for (max_running, expected) in [(0, 1), (1, 1), (2, 2), (9, 4)] {
        let parent: Flow<(), (usize, usize)> = flow("parent", move |cx: FlowContext, (): ()| async move {
            let nothing = cx.map("nothing", &double(), [], max_running).await;
            let results = cx.map("doubles", &double(), [5_u64, 5, 5, 5], max_running).await;
            Ok((nothing.len(), results.len()))
        });
        let world = World::new();
        let process = process(&world, &parent).await;
        let handle = world.pass(process.call(&parent, ()).start()).await.unwrap();
        world.pass_for(SECOND).await;
        let open = process.runs().await.unwrap().items.len() - 1;
        assert_eq!(open, expected, "at most {max_running}");
        assert_eq!(world.pass(handle.result()).await.unwrap(), (0, 4));
    }
}

/// A later version may call a map for more inputs: the first results are found.
///
/// Guarantees: FLOW-4.
#[tokio::test]
async fn map_may_grow() {
    let code = |count: u64| {
        flow("parent", move |cx: FlowContext, (): ()| async move {
            let results = cx.map("doubles", &double(), (0..count).map(|_| 1), 2).await;
            let _: String = cx.receive("go").await;
            results.into_iter().sum::<Result<u64, _>>()
        })
    };
    let (old, new) = (code(2), code(3));
    let world = World::new();
    let one = process(&world, &old).await;
    let handle = world.pass(one.call(&old, ()).id("r").start()).await.unwrap();
    world.pass(handle.handle().wait()).await.unwrap();
    one.crash().await;
    let other = process(&world, &new).await;
    world.pass(other.send(handle.run(), "go")).await.unwrap();
    assert_eq!(world.pass(other.call(&new, ()).id("r")).await.unwrap(), 6);
    assert_eq!(other.runs().await.unwrap().items.len(), 4);
}
