//! The network drops one request or its answer without an error: the run continues in its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::{Clock as _, ErrorKind, SystemClock, within};
use ferrata_test_servers::{FaultEffect, FaultPosition, FaultTrigger, Proxy, ProxyFault};
use ferrata_tests::Space;
use tokio::task::JoinSet;

use super::crew::Dice;

/// Maximum total time: a few missing answers on a busy machine.
const MOST: Duration = Duration::from_secs(300);

/// The time limit of an answer: longer than a busy machine needs for all concurrent calls. The server that stands in for S3 is the slowest.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_OF_S3: Duration = Duration::from_secs(6);

/// Number of requests that are dropped concurrently, each in its own direction and its own run.
const AT_ONCE: u64 = 40;

fn graph() -> Graph<Context> {
    let count = async |cx: NodeContext, _s| {
        cx.resource::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let builder = Graph::<Context>::builder("silence").node("one", count).effect(Effect::Write);
    let builder = builder.node("two", count).effect(Effect::External).entry("one");
    builder.edge("one", "two").build().unwrap()
}

pub(crate) async fn never(space: &Space, _dice: &mut Dice) {
    space.open().setup().await.unwrap();
    // The server that stands in for S3 is slow, so only some of its requests are tested.
    let is_slow = space.url().starts_with("s3:");
    let patience = if is_slow { PATIENCE_OF_S3 } else { PATIENCE };
    let places = [
        ("request", FaultPosition::RequestByte(0)),
        ("answer", FaultPosition::ReplyByte(0)),
        ("half", FaultPosition::HalfReply),
    ];
    for (name, place) in places {
        let mut first = 1;
        loop {
            let mut all = JoinSet::new();
            for at in first..first + AT_ONCE {
                if is_slow && at % 10 != 3 {
                    continue;
                }
                let proxy = Proxy::start(space.address().unwrap()).unwrap();
                let store = space.open_through(&proxy, patience);
                proxy.arm(
                    FaultTrigger::Request(at),
                    ProxyFault { place, act: FaultEffect::Delay(Duration::MAX) },
                );
                let run = format!("{name}-{at}");
                all.spawn(async move {
                    let went = within(&SystemClock::new(), MOST, goes_on(store, &run)).await;
                    assert!(went.is_some(), "{run} does not continue: {:?}", proxy.done());
                    !proxy.done().is_empty()
                });
            }
            let happened = all.join_all().await;
            if happened.contains(&false) {
                let swallowed = happened.iter().filter(|happened| **happened).count();
                assert!(first > 1 || swallowed > 1, "only {swallowed} requests were dropped");
                break;
            }
            first += AT_ONCE;
        }
    }
}

/// Creates a runtime and drives a run, and repeats each call while it may succeed.
async fn goes_on(store: Arc<dyn ferrata_core::store::CheckpointStore>, run: &str) {
    let (count, clock) = (Arc::new(AtomicU32::new(0)), SystemClock::new());
    let runtime = loop {
        // A long validity, because this test does not cover heartbeats on a slow machine.
        let builder = Runtime::builder_with(Arc::clone(&store)).heartbeat_ttl(10 * MOST);
        let builder = builder.resource(Arc::clone(&count));
        match builder.build().await {
            Ok(runtime) => break runtime,
            Err(error) => assert!(error.is_retryable(), "{run}: {error:?}"),
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    let outcome = loop {
        match runtime.start(&graph(), Context::new()).id(run).await {
            Ok(handle) => break handle.wait().await,
            Err(error) => {
                assert!(error.is_retryable() || error.kind() == ErrorKind::Conflict, "{run}: {error:?}")
            }
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    assert!(matches!(outcome, Ok(Outcome::Completed(_))), "{run}: {outcome:?}");
    assert_eq!(count.load(Ordering::SeqCst), 2, "{run}");
}
