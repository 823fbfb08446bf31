//! One run of the machine, in a random order of completion, with every rule checked after every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::graphs::Draw;
use super::replans::Replans;
use crate::clock::Timestamp;
use crate::engine::decide::ActivationEnd;
use crate::engine::frontier::{ActivationKey, Local};
use crate::engine::machine::Machine;
use crate::failure::{Failure, FailureKind};
use crate::graph::EdgeKind;
use crate::graph::Join;
use crate::graph::fired::{EdgeToken, FiredEdges};
use crate::graph::node_set::NodeIx;
use crate::graph::plan::GraphPlan;
use crate::id::{Epoch, ExecutorId, RecordId, RunKey, Seq};
use crate::record::body::{
    AttemptFailed, ClaimRecord, Intent, NodeDone, NodesDone, RecordEvent, Signal, SignalKind, StatusChange,
    TokenChanges,
};
use crate::record::{FORMAT, Record, RecordHeader, RunStatus, codec};
use crate::state::Patch;

/// The events, as read back from records, and the machine after each.
pub(super) struct Life {
    pub(super) events: Vec<RecordEvent>,
    pub(super) moments: Vec<Machine>,
    machine: Machine,
    plan: Arc<GraphPlan>,
    /// Absorbed ends without a record.
    held: Vec<NodeDone>,
    /// The activations that the last event created.
    fresh: Vec<ActivationKey>,
    visits: BTreeMap<Local, u32>,
    skipped: BTreeSet<Local>,
    retried: usize,
    /// Whether a failed run was retried.
    again: bool,
    /// One in this many tokens without an item is a revisit; 0 for none.
    revisits: usize,
    replans: Replans,
}

impl Life {
    pub(super) fn live(plan: &Arc<GraphPlan>, draw: &mut Draw) -> Self {
        Self::live_revisiting(plan, draw, 0)
    }

    /// As above, with one in `revisits` tokens as a replan.
    pub(super) fn live_revisiting(plan: &Arc<GraphPlan>, draw: &mut Draw, revisits: usize) -> Self {
        let mut life = Self {
            events: Vec::new(),
            moments: Vec::new(),
            machine: Machine::new(Some(Arc::clone(plan))),
            plan: Arc::clone(plan),
            held: Vec::new(),
            fresh: Vec::new(),
            visits: BTreeMap::new(),
            skipped: BTreeSet::new(),
            retried: 0,
            again: false,
            revisits,
            replans: Replans::default(),
        };
        let entry = plan.node(plan.entry).name.clone();
        life.note(RecordEvent::Start(crate::record::body::StartRecord {
            entry,
            graph: Arc::clone(&plan.prints),
            start_id: ferrata_engine::claim::StartId::from_uuid(Uuid::from_u128(7)),
            effects: Default::default(),
            edges: Default::default(),
            gates: Default::default(),
            secret: Default::default(),
            config: None,
            messages: Vec::new(),
        }));
        let mut retries = draw.below(3);
        loop {
            match life.machine.status() {
                RunStatus::InProgress => life.step(draw),
                RunStatus::Failed if retries > 0 => {
                    retries -= 1;
                    life.retry();
                }
                _ => break,
            }
            assert!(life.events.len() < 2_000, "the limit of steps bounds every run");
        }
        life.flush();
        life.check_end();
        life
    }

    fn step(&mut self, draw: &mut Draw) {
        let keys: Vec<ActivationKey> = self.machine.in_flight().keys().copied().collect();
        let key = keys[draw.below(keys.len())];
        let node = self.machine.name(key.0).clone();
        if draw.one_in(10) {
            let failed = self.machine.in_flight().get(&key).unwrap().failed + 1;
            let retry_at = Timestamp::from_unix_ms(5);
            let failure = Failure::new(FailureKind::Node, "once more");
            return self.note(RecordEvent::Attempt(AttemptFailed {
                node,
                visit: key.1,
                failed,
                failure,
                retry_at: Some(retry_at),
            }));
        }
        if draw.one_in(12) {
            return self.note(RecordEvent::Intent(Intent { node, visit: key.1 }));
        }
        self.end(key, draw);
        if !draw.one_in(4) {
            self.flush();
        }
    }

    /// Ends an activation: it fires allowed edges, or fails.
    fn end(&mut self, key: ActivationKey, draw: &mut Draw) {
        let channel = ["x", "y", "z"][draw.below(3)];
        let overwrites: &[&str] = if draw.one_in(6) { &[channel] } else { &[] };
        let result = match self.machine.find_clash(key, overwrites) {
            Some(failure) => Err(failure),
            None if draw.one_in(8) => Err(Failure::new(FailureKind::Node, "for good")),
            None => Ok(FiredEdges::These(self.choose(NodeIx::new(key.0), draw))),
        };
        let sole = self.plan.node(NodeIx::new(key.0)).sole;
        let result = match result {
            // As the driver reports a node without a choice.
            Ok(FiredEdges::These(fired)) => match (sole, &*fired) {
                (Some(sole), [EdgeToken { edge, item: None, reason: None }]) if sole == *edge => {
                    Ok(FiredEdges::Sole(sole))
                }
                _ => Ok(FiredEdges::These(fired)),
            },
            other => other,
        };
        let ending = |result| ActivationEnd { key, result, overwrites };
        let live = self.machine.live().cloned();
        let mut done = self.machine.decide(ending(again(&result)), |_| false);
        assert_eq!(self.machine.live(), live.as_ref(), "a decision changes nothing");
        let general = match again(&result) {
            Ok(FiredEdges::Sole(edge)) => Ok(FiredEdges::These(vec![EdgeToken::once(edge)])),
            other => other,
        };
        let general = self.machine.decide_in_general(ending(general), |_| false);
        assert_eq!(self.machine.live(), live.as_ref(), "a decision changes nothing");
        assert_eq!(text(&done), text(&general), "a plain step is decided as any other end");
        self.replans.check(&self.machine, &self.plan, &done);
        done.output = draw.one_in(2).then(|| Arc::from(codec::to_raw(&draw.below(9)).unwrap()));
        let plain = done.fired.len() == 1 && done.has_no_more_than_fired();
        let general = plain.then(|| self.machine.clone());
        self.fresh = self.machine.absorb_end(&done).unwrap().to_vec();
        if let Some(mut general) = general {
            let fresh = general.absorb_end_in_general(&done).unwrap();
            assert_eq!(self.fresh, fresh, "a plain step starts what any other end would");
            let [short, long] = [&self.machine, &general].map(|machine| machine.snapshot().unwrap());
            assert_eq!(short.get(), long.get(), "a plain step leads where any other end would");
            assert_eq!(self.machine.live(), general.live());
        }
        self.replans.check_counts(&self.machine);
        for name in &done.skipped {
            let node = self.machine.find(name.as_str()).unwrap();
            assert_eq!(self.machine.node(node).visits, 0, "skipped `{name}` had run");
            self.skipped.insert(node);
        }
        self.held.push(done);
        self.check();
    }

    fn choose(&self, node: NodeIx, draw: &mut Draw) -> Vec<EdgeToken> {
        let mut fired: Vec<EdgeToken> =
            self.plan.outgoing(node, EdgeKind::Plain).map(EdgeToken::once).collect();
        for edge in self.plan.outgoing(node, EdgeKind::Routed) {
            match draw.below(6) {
                0 | 1 => {}
                2 => {
                    let item = |n: usize| Some(Arc::from(codec::to_raw(&n).unwrap()));
                    fired.extend(
                        (0..=draw.below(3)).map(|n| EdgeToken { item: item(n), ..EdgeToken::once(edge) }),
                    );
                }
                _ => {
                    let revisit = self.revisits > 0 && draw.one_in(self.revisits);
                    let reason = revisit.then(|| Arc::from(format!("reason {}", self.machine.ended_count())));
                    fired.push(EdgeToken { reason, ..EdgeToken::once(edge) });
                }
            }
        }
        fired
    }

    /// An operator retries a failed run, and a process resumes it.
    fn retry(&mut self) {
        self.again = true;
        self.retried += self.machine.stopped_at().len();
        let what = SignalKind::Retry { settled: TokenChanges::default() };
        self.flush();
        self.absorb(&RecordEvent::Signal(Signal {
            what,
            by: None,
            at: Timestamp::default(),
            of_parent: false,
        }));
        let (settled, unmet) = self.machine.decide_starts();
        let executor = ExecutorId::from_uuid(Uuid::from_u128(9));
        self.absorb(&RecordEvent::Claim(ClaimRecord {
            executor,
            graph: None,
            edges: None,
            secret: Default::default(),
            settled,
        }));
        if let Some(failure) = unmet.filter(|_| self.machine.in_flight().is_empty()) {
            self.absorb(&RecordEvent::Status(StatusChange::Failed(failure)));
        }
        self.check();
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers make the event in place")]
    fn note(&mut self, event: RecordEvent) {
        self.flush();
        self.absorb(&event);
        self.check();
    }

    fn absorb(&mut self, event: &RecordEvent) {
        self.fresh = self.machine.absorb(event).unwrap().to_vec();
        self.record(event);
    }

    fn flush(&mut self) {
        let done = std::mem::take(&mut self.held);
        if !done.is_empty() {
            self.record(&RecordEvent::Node(NodesDone { done, patch: Patch::default() }));
        }
    }

    /// Keeps the event as read back from its record.
    fn record(&mut self, event: &RecordEvent) {
        let run = RunKey::try_from("r").unwrap();
        let header = RecordHeader {
            format: FORMAT,
            seq: Seq::new(self.events.len() as u64),
            id: RecordId::from_uuid(Uuid::from_u128(self.events.len() as u128 + 1)),
            prev: None,
            kind: event.kind(),
            status: self.machine.status(),
            node: None,
            visit: None,
            epoch: Epoch::new(1),
            owner: None,
            wake_at: None,
            at: Timestamp::from_unix_ms(0),
            base: false,
            body_len: 0,
            body_crc: 0,
        };
        let record = Record::seal(header, codec::encode(event, None).unwrap()).unwrap();
        self.events.push(codec::decode(&run, &record).unwrap().event);
        self.moments.push(self.machine.clone());
    }

    /// Checks the rules that must hold after every event.
    fn check(&mut self) {
        let machine = &self.machine;
        for &(node, visit) in &self.fresh {
            let before = self.visits.insert(node, visit.get()).unwrap_or(0);
            assert_eq!(
                visit.get(),
                before + 1,
                "visits of `{}` are numbered without gaps",
                machine.name(node)
            );
            assert!(!self.skipped.contains(&node), "`{}` was skipped and runs", machine.name(node));
            self.check_join((node, visit));
        }
        let visits: u64 = machine.nodes().iter().map(|node| u64::from(node.visits)).sum();
        assert_eq!(machine.started(), visits);
        assert_eq!(machine.ended_count(), machine.history().len() as u64);
        if machine.status() == RunStatus::InProgress {
            assert!(
                !machine.in_flight().is_empty(),
                "deadlock: {:?}",
                machine.tokens().keys().collect::<Vec<_>>()
            );
            let ended = machine.history().len() - self.retried;
            assert_eq!((ended + machine.in_flight().len()) as u64, visits);
            let (settled, unmet) = machine.decide_starts();
            assert_eq!(settled.start, None, "a node could have started");
            // After a retry the run fails for the same reason at the next end.
            assert!(unmet.is_none() || self.again, "a join that cannot be met fails the run at once");
        }
    }

    /// Checks that a join of all waited for every token that could still come.
    fn check_join(&self, key: ActivationKey) {
        let (machine, topology) = (&self.machine, &self.plan.topology);
        let to = NodeIx::new(key.0);
        if self.plan.node(to).join != Join::All || machine.status() != RunStatus::InProgress {
            return;
        }
        // Tokens with items form their own activations, but the node waited once, for all that came together.
        let together = self.fresh.iter().filter(|fresh| fresh.0 == key.0);
        let mut inputs =
            together.flat_map(|fresh| &machine.in_flight().get(fresh).unwrap().inputs).peekable();
        let all_back =
            inputs.peek().is_some() && inputs.all(|token| topology.is_back(NodeIx::new(token.from), to));
        let waits_for = topology.waits_for(to, all_back);
        for &(other, _) in machine.in_flight().keys().filter(|(other, _)| *other != key.0) {
            let from = NodeIx::new(other);
            assert!(!waits_for.contains(from), "{to:?} did not wait for {from:?}");
        }
        let acyclic = self.plan.edges.iter().all(|edge| !topology.is_back(edge.from, edge.to));
        let live = machine.in_flight().keys().map(|&(node, _)| node).chain(machine.tokens().keys().copied());
        for other in live.filter(|&other| acyclic && other != key.0) {
            assert!(!topology.reach(NodeIx::new(other)).contains(to), "{to:?} did not wait for {other}");
        }
    }

    fn check_end(&self) {
        let machine = &self.machine;
        if machine.status() != RunStatus::Completed {
            return;
        }
        assert!(
            machine.in_flight().is_empty() && machine.tokens().is_empty(),
            "a completed run has nothing left to do"
        );
        for (node, state) in machine.nodes().iter().enumerate() {
            assert!((state.visits > 0) != state.skipped, "node {node} is {state:?} in a completed run");
        }
    }
}

/// Copies a result: the fired edges are not cloned elsewhere.
fn again(result: &Result<FiredEdges, Failure>) -> Result<FiredEdges, Failure> {
    match result {
        Ok(FiredEdges::Sole(edge)) => Ok(FiredEdges::Sole(*edge)),
        Ok(FiredEdges::These(fired)) => Ok(FiredEdges::These(fired.clone())),
        Err(failure) => Err(failure.clone()),
    }
}

/// Returns the record text of an end.
fn text(done: &NodeDone) -> String {
    let event = RecordEvent::Node(NodesDone { done: vec![done.clone()], patch: Patch::default() });
    String::from_utf8(codec::encode(&event, None).unwrap().to_vec()).unwrap()
}
