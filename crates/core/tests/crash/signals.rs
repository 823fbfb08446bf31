//! Answers, cancellations and takeovers by other processes that conflict with the owner at every write.

use std::sync::Arc;

use ferrata_core::ErrorKind;
use ferrata_core::graph::CheckpointPolicy;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_testing::{Fault, FaultPlan};

use super::graphs;
use super::world::World;

/// Leaves the run with open questions and concurrent work, as a process that crashes during a payment would.
async fn with_questions(world: &World) -> bool {
    let (store, runtime) = world.process(FaultPlan::new().with_fault(4, Fault::CrashBefore)).await;
    assert!(world.go_on(&runtime).await.is_err());
    store.crash();
    world.in_doubt().await
}

/// Another process answers just before a write of the owner. The owner writes its records again, and repeats no work.
#[tokio::test]
async fn an_answer_that_comes_first_costs_no_work() {
    let case = graphs::external();
    let calm = World::new(&case, CheckpointPolicy::default(), "calm");
    let wanted = calm.live(&[]).await;
    let mut answered = 0;
    for at in 1..40 {
        let world = World::new(&case, CheckpointPolicy::default(), &format!("answer before {at}"));
        assert!(with_questions(&world).await);
        let world = Arc::new(world);
        let (store, runtime) = world.process(FaultPlan::new()).await;
        let (_, other) = world.process(FaultPlan::new()).await;
        let hook = {
            let world = Arc::clone(&world);
            async move {
                for question in other.questions(&World::key()).await.unwrap() {
                    let answer = world.answer(&question);
                    other.respond(&World::key(), &question.id, answer).await.unwrap();
                }
            }
        };
        store.before(at, hook);
        // If the run was interrupted, the owner finds the questions answered, or answers them itself.
        let state = world.go_on(&runtime).await.unwrap_or_else(|error| panic!("before {at}: {error:?}"));
        answered += u32::from(store.operations() > at);
        let state = world.close(state).await;
        world.check();
        assert_eq!(state, wanted, "before {at}");
    }
    assert!(answered > 5, "the hook ran {answered} times");
}

/// A cancellation at any moment ends the run as cancelled, unless it has already ended.
///
/// Guarantees: CONTROL-20.
#[tokio::test]
async fn owner_sees_remote_cancellation_at_next_write() {
    // The case `hazards` asks its own questions.
    for case in graphs::all().into_iter().filter(|case| case.name != "hazards") {
        let calm = World::new(&case, CheckpointPolicy::default(), "calm");
        let wanted = calm.live(&[]).await;
        for at in 1..calm.operations() {
            let label = format!("{} cancelled before {at}", case.name);
            let world = World::new(&case, CheckpointPolicy::default(), &label);
            let (store, runtime) = world.process(FaultPlan::new()).await;
            let (_, other) = world.process(FaultPlan::new()).await;
            store.before(at, async move { other.cancel(&World::key(), "enough").await.unwrap() });
            let run = runtime.start(&case.graph, Context::new()).id("r").await.unwrap();
            let outcome = world.wait(&run).await.unwrap();
            match outcome {
                Outcome::Cancelled { reason, .. } => assert_eq!(reason, "enough", "{label}"),
                // The last node had ended before the cancellation.
                Outcome::Completed(state) => assert_eq!(world.close(state).await, wanted, "{label}"),
                outcome => panic!("{label}: {outcome:?}"),
            }
            world.close(Context::new()).await;
            world.check();
        }
    }
}

/// The owner learns at its next write that another process owns the run, and the log has a single history.
///
/// Guarantees: CONTROL-20, DURABLE-15.
#[tokio::test]
async fn takeover_fences_owner_at_next_write() {
    for case in graphs::all().into_iter().filter(|case| !["external", "hazards"].contains(&case.name)) {
        let calm = World::new(&case, CheckpointPolicy::default(), "calm");
        let wanted = calm.live(&[]).await;
        for at in 1..calm.operations() {
            let label = format!("{} taken over before {at}", case.name);
            let world = Arc::new(World::new(&case, CheckpointPolicy::default(), &label));
            let (store, first) = world.process(FaultPlan::new()).await;
            let (_, second) = world.process(FaultPlan::new()).await;
            let (send, taken) = tokio::sync::oneshot::channel();
            let graph = case.graph.clone();
            store.before(at, async move {
                let run = second.resume(&graph, "r").take_over().await.unwrap();
                assert!(send.send((run, second)).is_ok());
            });
            let run = first.start(&case.graph, Context::new()).id("r").await.unwrap();
            let error = world.wait(&run).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced, "{label}: {error:?}");
            let (run, _second) = taken.await.unwrap();
            let state = world.wait(&run).await.unwrap().completed().unwrap();
            assert_eq!(world.close(state).await, wanted, "{label}");
        }
    }
}

/// Guarantees: CONTROL-20.
#[tokio::test]
async fn of_two_that_resume_at_once_one_wins() {
    let case = graphs::diamond();
    for at in 1..6 {
        let label = format!("two after {at}");
        let world = World::new(&case, CheckpointPolicy::default(), &label);
        let (store, runtime) = world.process(FaultPlan::new().with_fault(at, Fault::CrashAfter)).await;
        assert!(world.go_on(&runtime).await.is_err());
        store.crash();
        let (between, a) = world.process(FaultPlan::new()).await;
        let (_, b) = world.process(FaultPlan::new()).await;
        let (send, taken) = tokio::sync::oneshot::channel();
        let graph = case.graph.clone();
        // Both processes have read the log when the second one writes its claim.
        between.before(0, async move {
            let run = b.resume(&graph, "r").take_over().await.unwrap();
            assert!(send.send((run, b)).is_ok());
        });
        let lost = a.resume(&case.graph, "r").take_over().await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Conflict, "{label}");
        let (run, _b) = taken.await.unwrap();
        assert!(world.wait(&run).await.unwrap().completed().is_some(), "{label}");
        world.close(Context::new()).await;
        world.check();
    }
}
