#![cfg(test)]
//! The fixture of the unit tests of the driver's parts. It has a machine, scopes of attempts and times.

use crate::claim::{ClaimId, StartId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::compact::once_channel::once;
use crate::compact::queue::queue;
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::graph::{Effect, Graph};
use crate::id::{Epoch, Fingerprint, NodeName, RunKey, Visit, WorkflowName};
use crate::node::{
    AttemptKey, AttemptTransactions, AttemptWaits, Inputs, NodeScope, RunScope, RuntimeAccess,
    StartedChildren,
};
use crate::record::RunFacts;
use crate::record::body::{NodeDone, NodesDone, RecordEvent, StartRecord};
use crate::record::memo::Memos;
use crate::state::{Context, Patch};
use ferrata_testing::ManualClock;

/// Returns the first visit of a node.
pub(super) fn key(node: u32) -> ActivationKey {
    (node, Visit::new(1))
}

pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

pub(super) fn run() -> RunKey {
    RunKey::try_from("r").unwrap()
}

pub(super) fn name(node: &str) -> NodeName {
    NodeName::try_from(node).unwrap()
}

/// A fork: node 0, `fork`, leads to the nodes 1 to 3, `a`, `b` and `c`.
pub(super) fn graph() -> Graph<Context> {
    ["fork", "a", "b", "c"]
        .into_iter()
        .fold(Graph::<Context>::builder("fork"), |builder, node| builder.node(node, async |_cx, s| Ok(s)))
        .entry("fork")
        .edge("fork", ["a", "b", "c"])
        .build()
        .unwrap()
}

pub(super) fn started(graph: &Graph<Context>) -> RecordEvent {
    let plan = graph.plan();
    RecordEvent::Start(StartRecord {
        entry: plan.node(plan.entry).name.clone(),
        graph: Arc::clone(&plan.prints),
        start_id: StartId::from_uuid(Uuid::from_u128(7)),
        effects: Arc::clone(&plan.effects),
        edges: Arc::clone(&plan.targets),
        gates: Arc::clone(&plan.gates),
        config: None,
        secret: Default::default(),
        messages: Vec::new(),
    })
}

/// Returns a run of that graph at its start.
pub(super) fn machine(graph: &Graph<Context>) -> Machine {
    let mut machine = Machine::new(Some(Arc::clone(graph.plan())));
    machine.absorb(&started(graph)).unwrap();
    machine
}

/// Returns the end of the fork, after which `a`, `b` and `c` are in flight.
pub(super) fn forked(machine: &Machine) -> NodeDone {
    let mut done = NodeDone::new(name("fork"), Visit::new(1));
    done.fired =
        ["a", "b", "c"].map(|to| crate::record::body::FiredEdge::plain(name(to))).into_iter().collect();
    assert!(machine.in_flight().contains_key(&key(0)));
    done
}

/// Returns a run with `a`, `b` and `c` in flight.
pub(super) fn in_flight(graph: &Graph<Context>) -> Machine {
    let mut machine = machine(graph);
    let done = vec![forked(&machine)];
    machine.absorb(&RecordEvent::Node(NodesDone { done, patch: Patch::default() })).unwrap();
    machine
}

fn facts() -> RunFacts {
    let print = Fingerprint::of(b"");
    RunFacts::new(WorkflowName::try_from("w").unwrap(), "1", print, print, at(0)).unwrap()
}

/// Returns the scope of an attempt of an activation.
pub(super) fn scope(activation: ActivationKey) -> Arc<NodeScope> {
    let run = RunScope {
        key: run(),
        facts: Arc::new(facts()),
        config: None,
        claim: ClaimId { start_id: StartId::from_uuid(Uuid::from_u128(7)), epoch: Epoch::new(1) },
        resources: Arc::default(),
        clock: Arc::new(ManualClock::new(at(0))),
        commands: queue().0,
        cancelled: once().1,
        host: RuntimeAccess { runtime: Weak::new(), depth: 0, root: run(), children: Arc::default() },
    };
    Arc::new(NodeScope {
        run: Arc::new(run),
        node: name("n"),
        visit: activation.1,
        attempt: 1,
        message_count: 0,
        item: None,
        inputs: Inputs::default(),
        attempt_key: AttemptKey { activation, way: 0 },
        memos: Memos::default(),
        places: OnceLock::new(),
        waits: AttemptWaits::default(),
        time_limit: None,
        started_children: StartedChildren::default(),
        effect: Effect::default(),
        transactions: AttemptTransactions::default(),
        outputs: Default::default(),
        lacks_resource: AtomicBool::new(false),
        ownership: None,
        is_not_begun: AtomicBool::new(false),
        cleanup: crate::node::AttemptCleanup::default(),
    })
}

/// Waits for ready tasks to produce a result, and fails instead of waiting forever.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let turns = async {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        output = future => output,
        () = turns => panic!("it did not come"),
    }
}
