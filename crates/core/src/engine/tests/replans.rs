//! Replans, counted a second time next to the machine: limits, history and refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::graphs::MAX_REPLANS_TOTAL;
use super::normal::normal;
use crate::engine::decide::ActivationEnd;
use crate::engine::frontier::Local;
use crate::engine::machine::Machine;
use crate::engine::replan::{KEPT, REASON_BYTES};
use crate::failure::{Failure, FailureKind};
use crate::graph::fired::{EdgeToken, FiredEdges};
use crate::graph::node_set::NodeIx;
use crate::graph::plan::GraphPlan;
use crate::graph::{EdgeKind, Graph, Join};
use crate::id::Visit;
use crate::record::RunStatus;
use crate::record::body::{
    NodeDone, NodesDone, RecordEvent, RunEnd, Signal, SignalKind, StartRecord, TokenChanges,
};
use crate::state::{Context, Patch};

/// Maximum number of replans to a node by default.
const DEFAULT: u32 = 2;

/// The replan counts of a run, independent of the machine's.
#[derive(Default)]
pub(super) struct Replans {
    counts: BTreeMap<Local, u32>,
    told: Vec<String>,
}

impl Replans {
    /// Counts the replans of a decision, and checks that the run continues only within the limits.
    pub(super) fn check(&mut self, before: &Machine, plan: &GraphPlan, done: &NodeDone) {
        let mut over = false;
        for fired in done.fired.iter().filter(|fired| !done.dropped.contains(&fired.to)) {
            let Some(reason) = &fired.reason else { continue };
            let to = plan.find(fired.to.as_str()).unwrap().get();
            let count = self.counts.entry(to).or_default();
            *count += 1;
            over |= *count > DEFAULT;
            self.told.push(format!("{}@{} -> {}: {reason}", done.node, done.visit, fired.to));
        }
        over |= self.counts.values().sum::<u32>() > MAX_REPLANS_TOTAL
            && done.fired.iter().any(|fired| fired.reason.is_some() && !done.dropped.contains(&fired.to));
        let failure = match &done.end {
            Some(RunEnd::Failed(failure)) => Some(failure),
            _ => None,
        };
        if over && before.status() == RunStatus::InProgress {
            assert!(failure.is_some(), "{done:?} is beyond a limit");
            if failure.is_some_and(|failure| failure.kind != FailureKind::JoinUnmet) {
                assert_eq!(done.settled.start, Some(Vec::new()), "no node starts beyond a limit");
            }
        }
        if let Some(failure) = failure.filter(|failure| failure.kind == FailureKind::Replan) {
            assert!(over, "{failure} within the limits");
            assert_eq!(failure.causes, self.told);
        }
    }

    pub(super) fn check_counts(&self, machine: &Machine) {
        for (node, state) in (0..).zip(machine.nodes()) {
            assert_eq!(state.replans, self.counts.get(&node).copied().unwrap_or(0), "node {node}");
        }
        assert_eq!(machine.replans().len(), self.told.len());
    }
}

/// A run of a small graph, driven by hand.
struct Run {
    machine: Machine,
    plan: Arc<GraphPlan>,
}

impl Run {
    fn start(graph: &Graph<Context>) -> Self {
        let plan = Arc::clone(graph.plan());
        let mut machine = Machine::new(Some(Arc::clone(&plan)));
        let entry = plan.node(plan.entry).name.clone();
        let started = StartRecord {
            entry,
            graph: Arc::clone(&plan.prints),
            start_id: ferrata_engine::claim::StartId::from_uuid(uuid::Uuid::from_u128(7)),
            effects: Arc::clone(&plan.effects),
            edges: Default::default(),
            gates: Arc::clone(&plan.gates),
            secret: Default::default(),
            config: None,
            messages: Vec::new(),
        };
        machine.absorb(&RecordEvent::Start(started)).unwrap();
        Self { machine, plan }
    }

    /// Ends the earliest visit of a node in flight, which fires these targets, each with a reason or without.
    fn end(&mut self, node: &str, to: &[(&str, Option<&str>)]) -> NodeDone {
        let local = self.machine.find(node).unwrap();
        let key = *self.machine.in_flight().keys().find(|key| key.0 == local).expect("it is in flight");
        let fired = to.iter().map(|(to, reason)| {
            let to = self.plan.find(to).unwrap();
            let edge = [EdgeKind::Routed, EdgeKind::Plain]
                .iter()
                .find_map(|kind| self.plan.find_edge(NodeIx::new(local), to, *kind));
            EdgeToken { reason: reason.map(Arc::from), ..EdgeToken::once(edge.unwrap()) }
        });
        let result = Ok(FiredEdges::These(fired.collect()));
        let done = self.machine.decide(ActivationEnd { key, result, overwrites: &[] }, |_| false);
        let patch = Patch::default();
        self.machine.absorb(&RecordEvent::Node(NodesDone { done: vec![done.clone()], patch })).unwrap();
        done
    }

    fn flying(&self) -> Vec<String> {
        self.machine.in_flight().keys().map(|&key| self.machine.question_id(key)).collect()
    }

    fn failure(&self) -> &Failure {
        self.machine.failure().expect("the run failed")
    }

    /// An operator retries the failed run, and a process resumes it.
    fn retry(&mut self) {
        let what = SignalKind::Retry { settled: TokenChanges::default() };
        self.machine
            .absorb(&RecordEvent::Signal(Signal {
                what,
                by: None,
                at: crate::clock::Timestamp::default(),
                of_parent: false,
            }))
            .unwrap();
        let (settled, unmet) = self.machine.decide_starts();
        assert_eq!(unmet, None);
        let executor = crate::id::ExecutorId::from_uuid(uuid::Uuid::from_u128(9));
        let claim = crate::record::body::ClaimRecord {
            executor,
            graph: None,
            edges: None,
            secret: Default::default(),
            settled,
        };
        self.machine.absorb(&RecordEvent::Claim(claim)).unwrap();
    }
}

fn nodes(names: &str) -> crate::graph::GraphBuilder<Context> {
    names.split(' ').fold(Graph::<Context>::builder("replan"), |builder, name| {
        builder.node(name, async |_cx, s| Ok(s)).max_replans(match name {
            "never" => 0,
            "often" => 1_000,
            _ => DEFAULT,
        })
    })
}

/// Guarantees: REPLAN-1.
#[test]
fn third_revisit_of_node_fails_run_with_history() {
    let graph =
        nodes("plan draft").entry("plan").edge("plan", "draft").route("draft", ["plan"], |_, _| "plan");
    let mut run = Run::start(&graph.build().unwrap());
    for reason in ["too long", "too short"] {
        run.end("plan", &[("draft", None)]);
        assert_eq!(run.end("draft", &[("plan", Some(reason))]).end, None);
    }
    run.end("plan", &[("draft", None)]);
    run.end("draft", &[("plan", Some("off the point"))]);
    assert_eq!(run.machine.status(), RunStatus::Failed);
    assert_eq!(run.flying(), [""; 0], "the target does not run");
    let failure = run.failure();
    assert_eq!(failure.kind, FailureKind::Replan);
    assert_eq!(
        failure.to_string(),
        "node plan: the revisit of `plan` is number 3 of this node, and at most 2 are allowed; change the route of `draft`, raise \
         `max_replans`, or retry the run to allow this revisit"
    );
    let history =
        ["draft@1 -> plan: too long", "draft@2 -> plan: too short", "draft@3 -> plan: off the point"];
    assert_eq!(failure.causes, history);

    run.retry();
    assert_eq!(run.flying(), ["plan@4"], "the retry allows the one that was refused");
    run.end("plan", &[("draft", None)]);
    run.end("draft", &[("plan", Some("still"))]);
    assert_eq!(run.failure().causes.len(), 4, "and no further one");
    assert_eq!(run.machine.status(), RunStatus::Failed);
}

/// Guarantees: REPLAN-2.
#[test]
fn total_revisit_limit_covers_all_targets() {
    let graph = nodes("a never b").entry("a").route("a", ["never", "b"], |_, _| "b").build().unwrap();
    let mut run = Run::start(&graph);
    let done = run.end("a", &[("b", None), ("never", Some("why not"))]);
    assert_eq!(done.settled.start, Some(Vec::new()));
    assert_eq!(run.failure().causes, ["a@1 -> never: why not"]);
    run.retry();
    assert_eq!(run.flying(), ["never@1", "b@1"], "what fired with it starts with it");
}

#[test]
fn revisit_waiting_at_join_counts_when_decided() {
    let graph = nodes("a slow quick join")
        .entry("a")
        .edge("a", ["slow", "quick"])
        .route("slow", ["join"], |_, _| "join")
        .route("quick", ["join"], |_, _| "join")
        .max_replans_total(1)
        .build()
        .unwrap();
    let mut run = Run::start(&graph);
    run.end("a", &[("slow", None), ("quick", None)]);
    run.end("quick", &[("join", Some("quick"))]);
    assert_eq!(run.flying(), ["slow@1"], "the join waits");
    run.end("slow", &[("join", Some("slow"))]);
    assert_eq!(run.machine.status(), RunStatus::Failed);
    assert!(
        run.failure().message.contains("number 2 of the run, and at most 1 are allowed"),
        "{}",
        run.failure()
    );
    assert!(run.failure().message.contains("`max_replans_total`"), "{}", run.failure());
    run.retry();
    assert_eq!(run.flying(), ["join@1"]);
    let join = run.machine.find("join").unwrap();
    assert_eq!(
        run.machine.in_flight().get(&(join, Visit::new(1))).unwrap().inputs.len(),
        2,
        "joined as it would have been"
    );
}

#[test]
fn late_token_triggers_no_revisit() {
    let graph = nodes("a b c")
        .node("first", async |_cx, s| Ok(s))
        .join(Join::AtLeast(1))
        .max_replans(0)
        .entry("a")
        .edge("a", ["b", "c"])
        .edge("b", "first")
        .route("c", ["first"], |_, _| "first")
        .build()
        .unwrap();
    let mut run = Run::start(&graph);
    run.end("a", &[("b", None), ("c", None)]);
    run.end("b", &[("first", None)]);
    let done = run.end("c", &[("first", Some("late"))]);
    assert_eq!(done.dropped.len(), 1);
    assert_eq!((run.machine.status(), run.machine.replans().len()), (RunStatus::InProgress, 0));
    assert_eq!(run.machine.replan_counts(), []);
}

#[test]
fn edges_fired_after_run_failure_wait_for_retry() {
    let graph = nodes("a never b")
        .entry("a")
        .edge("a", ["b", "a2"])
        .node("a2", async |_cx, s| Ok(s))
        .route("a2", ["never"], |_, _| "never")
        .route("b", ["never"], |_, _| "never")
        .build()
        .unwrap();
    let mut run = Run::start(&graph);
    run.end("a", &[("b", None), ("a2", None)]);
    run.end("b", &[("never", Some("one"))]);
    assert_eq!(run.machine.status(), RunStatus::Failed);
    let done = run.end("a2", &[("never", Some("two"))]);
    assert_eq!(done.end, None, "it failed for the first reason");
    assert_eq!(run.failure().causes, ["b@1 -> never: one"]);
    run.retry();
    assert_eq!(run.flying(), ["never@1"]);
    assert_eq!(run.machine.replans().len(), 2);
}

/// Guarantees: REPLAN-6.
#[test]
fn replan_keeps_latest_reasons_and_counts_all() {
    let graph = nodes("a often")
        .entry("often")
        .edge("often", "a")
        .route("a", ["often"], |_, _| "often")
        .max_replans_total(u32::try_from(KEPT).unwrap() + 20)
        .build()
        .unwrap();
    let mut run = Run::start(&graph);
    let long = "ä".repeat(REASON_BYTES);
    let mut rounds = 0;
    while run.machine.status() == RunStatus::InProgress {
        rounds += 1;
        assert!(rounds <= 2 * KEPT, "the limit holds");
        run.end("often", &[("a", None)]);
        run.end("a", &[("often", Some(&long))]);
        let restored =
            Machine::restore(&run.machine.snapshot().unwrap(), Some(Arc::clone(&run.plan))).unwrap();
        assert_eq!(normal(&restored), normal(&run.machine));
        run.machine = restored;
    }
    assert_eq!(rounds, KEPT + 21);
    let failure = run.failure();
    assert_eq!(failure.causes.len(), KEPT + 1);
    assert_eq!(failure.causes[0], "21 earlier replans are counted but not listed");
    assert!(failure.causes[1].starts_with("a@22 -> often: ä"), "{}", failure.causes[1]);
    assert!(failure.causes[KEPT].starts_with("a@121 -> often: ä"), "{}", failure.causes[KEPT]);
    assert!(failure.causes.iter().all(|cause| cause.len() <= 800));
    let counts = run.machine.replan_counts();
    assert_eq!(
        counts.iter().map(|(name, count)| (name.as_str(), *count)).collect::<Vec<_>>(),
        [("often", 121)]
    );
}
