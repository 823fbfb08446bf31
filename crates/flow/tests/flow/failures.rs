//! Failures of steps: how often the work runs, and in which order the function sees them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::RetryPolicy;
use ferrata_core::node::NodeError;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::{LedgerDatabase, World};
use tokio::sync::watch;

use crate::effects::EffectLog;

/// Runs a flow until it waits for a message, then in another process to its end. Returns the result.
async fn resume<O>(world: &World, flow: &Flow<(), O>) -> O
where
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    let process = world.process().await.unwrap();
    let handle = world.pass(process.call(flow, ()).start()).await.unwrap();
    let outcome = world.pass(handle.handle().wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::AwaitingInput), "{outcome}");
    process.crash().await;
    let process = world.process().await.unwrap();
    world.pass(process.send(handle.run(), "go on")).await.unwrap();
    let handle = world.pass(process.resume(flow.graph().unwrap(), handle.run())).await.unwrap();
    world.pass(FlowHandle::<O>::new(handle).result()).await.unwrap()
}

/// An external step whose work failed may have had its effect, so its policy gives no further try.
///
/// Guarantees: FLOW-9.
#[tokio::test]
async fn failed_external_step_is_not_retried() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let policy = RetryPolicy::none().with_attempts(3);
            let paid: Result<(), _> = cx.step("pay", || log.fail("pay")).retry(policy).external().await;
            Ok::<_, FlowError>(paid.unwrap_err().to_string())
        }
    });
    let world = World::new();
    let process = world.process().await.unwrap();
    assert_eq!(world.pass(process.call(&pay, ())).await.unwrap(), "pay failed");
    assert_eq!(effects.take(), ["pay"]);
}

/// Guarantees: FLOW-5.
#[tokio::test]
async fn failed_transaction_is_not_repeated() {
    let effects = EffectLog::default();
    let log = effects.clone();
    let pay = flow("pay", move |cx: FlowContext, _: ()| {
        let log = log.clone();
        async move {
            let debit = cx.step_in::<LedgerDatabase, (), NodeError, _>("debit", move |_| {
                Box::pin(async move {
                    let _ = log.add("debit", ()).await;
                    Err(NodeError::new("no money").fatal())
                })
            });
            let error = debit.await.unwrap_err().to_string();
            let _: String = cx.receive("wait").await;
            Ok::<_, FlowError>(error)
        }
    });
    assert_eq!(resume(&World::with_transactions(), &pay).await, "no money");
    assert_eq!(effects.take(), ["debit"]);
}

/// One failure waits for its record, because a timer is open. The timer is dropped before the other step fails, in the same poll.
///
/// Guarantees: FLOW-2.
#[tokio::test]
async fn later_failure_does_not_overtake() {
    let (start, started) = watch::channel(0);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&orders);
    let fails = flow("fails", move |cx: FlowContext, _: ()| {
        let (mut started, known) = (started.clone(), Arc::clone(&known));
        async move {
            let seen = Mutex::new(Vec::new());
            let begun = started.clone();
            let step = async |name: &'static str| {
                let work = || {
                    let mut begun = begun.clone();
                    async move {
                        begun.wait_for(|count| *count == 1).await.unwrap();
                        Err::<(), _>(FlowError::new(name))
                    }
                };
                cx.step(name, work).await.unwrap_err();
                seen.lock().unwrap().push(name);
            };
            let timer = async {
                tokio::select! {
                    biased;
                    _ = started.wait_for(|count| *count == 1) => {}
                    () = cx.sleep("late", Duration::from_secs(86_400)) => {}
                }
            };
            futures_util::future::join3(step("one"), timer, step("two")).await;
            let seen = seen.into_inner().unwrap().join(", ");
            known.lock().unwrap().push(seen.clone());
            let _: String = cx.receive("wait").await;
            Ok::<_, FlowError>(seen)
        }
    });
    let world = World::new();
    let begin = async {
        world.pass_for(Duration::from_secs(1)).await;
        start.send(1).unwrap();
    };
    let (_, last) = futures_util::future::join(begin, resume(&world, &fails)).await;
    assert_eq!(*orders.lock().unwrap(), [last.clone(), last]);
}
