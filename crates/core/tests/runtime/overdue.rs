//! The order of several expired times when a run is claimed.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::RunKey;
use ferrata_core::ask::Ask;
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::NodeError;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;

use super::flavors::on_each_runtime;
use super::world::World;

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

/// Branches that each wait in another way until an hour, after which they are named.
fn waiting(begun: &Arc<Mutex<Vec<&'static str>>>, at_once: u32) -> Graph<Context> {
    let begin = |name: &'static str| {
        let begun = Arc::clone(begun);
        move || begun.lock().unwrap().push(name)
    };
    let (never, six, two, five, seven, four, three) = (
        begin("later"),
        begin("6: slept"),
        begin("2: tried"),
        begin("5: slept"),
        begin("7: asked"),
        begin("4: heard"),
        begin("3: slept"),
    );
    Graph::<Context>::builder("overdue")
        .concurrency(at_once)
        .node("split", async |_cx, _s| Ok(()))
        .node("never", move |cx, _s| {
            never();
            async move { Ok(cx.sleep(hours(100)).await?) }
        })
        .node("six", move |cx, _s| {
            six();
            async move { Ok(cx.sleep(hours(6)).await?) }
        })
        .node("two", move |cx, _s| {
            two();
            async move {
                match cx.attempt() {
                    1 => Err(NodeError::new("once").retry_after(hours(2))),
                    _ => Ok(()),
                }
            }
        })
        .retry(RetryPolicy::standard())
        .node("five", move |cx, _s| {
            five();
            async move {
                // The first of these times must not count after both have passed, and a time that has not come never counts.
                cx.sleep(hours(1)).await?;
                tokio::select! {
                    slept = cx.sleep(hours(4)) => slept?,
                    slept = cx.sleep(hours(200)) => slept?,
                }
                Ok(())
            }
        })
        .node("seven", move |cx, _s| {
            seven();
            async move {
                cx.ask_with("more", Ask::<bool>::new("more?").deadline(hours(7)).or_default(true)).await?;
                Ok(())
            }
        })
        .node("four", move |cx, _s| {
            four();
            async move {
                let _: Option<u8> = cx.receive_within(hours(4)).await?;
                Ok(())
            }
        })
        .node("three", move |cx, _s| {
            three();
            async move { Ok(cx.sleep(hours(3)).await?) }
        })
        .entry("split")
        .edge("split", "never")
        .edge("split", "six")
        .edge("split", "two")
        .edge("split", "five")
        .edge("split", "seven")
        .edge("split", "four")
        .edge("split", "three")
        .build()
        .unwrap()
}

/// Activations whose times have passed restart in the order of these times. Retry delays and question deadlines count like timers. A timer that has
/// not expired counts as later.
///
/// Guarantees: TIMER-5.
#[test]
fn due_activations_restart_in_time_order() {
    on_each_runtime(async || {
        // On several threads, concurrent nodes report their starts in any order.
        let flavor = tokio::runtime::Handle::current().runtime_flavor();
        let most = if flavor == tokio::runtime::RuntimeFlavor::CurrentThread { 100 } else { 1 };
        for at_once in [1, 2, 100].into_iter().filter(|at_once| *at_once <= most) {
            let (world, begun) = (World::new(), Arc::default());
            let graph = waiting(&begun, at_once);
            let first = world.patient_process().await;
            let run = first.start(&graph, Context::new()).id("r").await.unwrap();
            let key = RunKey::try_from("r").unwrap();
            let outcome = run.wait().await.unwrap();
            assert!(matches!(outcome, Outcome::Interrupted(_) | Outcome::Sleeping { .. }), "{outcome:?}");
            // `five` continues alone once, so that its second timer is set.
            world.clock.advance(hours(1));
            let other = world.patient_process().await;
            let outcome = other.resume(&graph, "r").await.unwrap().wait().await.unwrap();
            assert!(matches!(outcome, Outcome::Interrupted(_) | Outcome::Sleeping { .. }), "{outcome:?}");
            assert_eq!(other.head(&key).await.unwrap().unwrap().owner, None);
            begun.lock().unwrap().clear();
            world.clock.advance(hours(24));
            let last = world.patient_process().await;
            let Outcome::Sleeping { .. } = last.resume(&graph, "r").await.unwrap().wait().await.unwrap()
            else {
                panic!("the run is not idle")
            };
            let expected = ["2: tried", "3: slept", "4: heard", "5: slept", "6: slept", "7: asked", "later"];
            assert_eq!(*begun.lock().unwrap(), expected, "{at_once} at once");
        }
    });
}
