//! Replays a stored run against the current graph and reports the first difference.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::engine::decide::ActivationEnd;
use crate::engine::fold::missing;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, RouteContext};
use crate::id::{HeadRef, NodeName, RunKey, Seq, Visit};
use crate::past::log_reader;
use crate::record::body::{NodeDone, NodesDone, RecordBase, RecordBody, RecordEvent, RunEnd};
use crate::record::{Failure, FailureKind, RecordHeader};
use crate::state::{Channels, Op, Patch, Reducer, State};
use crate::store::{At, CheckpointStore};

/// The result of comparing a stored run with a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The number of records that were loaded.
    pub records: u64,
    /// The number of activations for which the current graph was asked for its decision.
    pub checked: u64,
    /// The number of activations with a weaker check, which only checks that the graph has edges to the recorded targets. If several activations
    /// ended in one record, the log does not contain the states between them, so only the last of these activations gets the full check.
    pub unchecked: u64,
    /// The first difference. `None` if the current graph makes the same decisions.
    pub divergence: Option<Divergence>,
}

/// The first position in the log at which the current graph makes another decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the record.
    pub seq: Seq,
    /// The node whose decision differs, if the difference concerns one.
    pub node: Option<NodeName>,
    /// The visit of the node.
    pub visit: Option<Visit>,
    /// A description of the difference, with the recorded decision and the decision of the current graph.
    pub what: String,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {}", self.seq)?;
        if let (Some(node), Some(visit)) = (&self.node, self.visit) {
            write!(f, " ({node}@{visit})")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Replays a run without running any node.
pub(crate) async fn verify<S: State>(
    store: &dyn CheckpointStore,
    graph: &Graph<S>,
    run: &RunKey,
) -> Result<Verified> {
    let head = store.head(run).await?.ok_or_else(|| missing(run))?;
    let mut verified = Verified { records: 0, checked: 0, unchecked: 0, divergence: None };
    let mut replay: Option<Replay<'_, S>> = None;
    for end in log_reader::segment_ends(store, run, At::Seq(head.seq)).await? {
        for (header, body) in log_reader::segment(store, run, end).await? {
            verified.records += 1;
            let begins = !replay.as_ref().is_some_and(|replay| replay.precedes(&header));
            let found = match (&mut replay, &body.base) {
                (_, Some(base)) if begins => {
                    let begun = Replay::begin(graph, base, &header);
                    replay = Some(begun.map_err(|error| error.with_run(run).with_seq(header.seq))?);
                    began_elsewhere(graph, &header, &body.event)
                }
                (Some(replay), _) if !begins => {
                    let found = replay.record(&header, &body, &mut verified);
                    found.map_err(|error| error.with_run(run).with_seq(header.seq))?
                }
                _ => {
                    let message =
                        "the log does not begin with a base, or has a gap; restore the run from a backup";
                    return Err(Error::new(ErrorKind::Corrupt, message).with_run(run).with_seq(header.seq));
                }
            };
            if found.is_some() {
                verified.divergence = found;
                return Ok(verified);
            }
        }
    }
    Ok(verified)
}

struct Replay<'a, S: State> {
    graph: &'a Graph<S>,
    machine: Machine,
    channels: Channels,
    version: u32,
    last: HeadRef,
}

/// Returns a divergence if the current graph starts at another node. A fork is not checked, because it starts at the position of its source.
fn began_elsewhere<S: State>(
    graph: &Graph<S>,
    header: &RecordHeader,
    event: &RecordEvent,
) -> Option<Divergence> {
    let RecordEvent::Start(started) = event else { return None };
    let plan = graph.plan();
    let today = &plan.node(plan.entry).name;
    let what = format!("the run started at {}, and today would start at {today}", started.entry);
    (started.entry != *today).then_some(Divergence { seq: header.seq, node: None, visit: None, what })
}

impl<'a, S: State> Replay<'a, S> {
    fn begin(graph: &'a Graph<S>, base: &RecordBase, header: &RecordHeader) -> Result<Self> {
        let machine = Machine::restore(&base.machine, Some(Arc::clone(graph.plan())))?;
        let (channels, version) = (Channels::from_json(base.state.get())?, base.version);
        Ok(Self { graph, machine, channels, version, last: header.head() })
    }

    /// Returns whether a record follows directly after the replayed records. If not, the run was pruned during the read, and the replay starts again.
    fn precedes(&self, header: &RecordHeader) -> bool {
        log_reader::is_continuous(Some(self.last), header)
    }

    fn record(
        &mut self,
        header: &RecordHeader,
        body: &RecordBody,
        verified: &mut Verified,
    ) -> Result<Option<Divergence>> {
        self.last = header.head();
        let at = |what: String| Divergence { seq: header.seq, node: None, visit: None, what };
        let base = body.base.as_ref();
        if let (RecordEvent::Base, Some(base)) = (&body.event, base) {
            // An edit has only the full state: the log does not contain the changes that led to it.
            *self = Self::begin(self.graph, base, header)?;
            return Ok(None);
        }
        if let Some(base) = base.filter(|base| base.version != self.version) {
            // The changes of the record have the new form, like its base.
            (self.channels, self.version) = (Channels::from_json(base.state.get())?, base.version);
        } else if let Some(patch) = body.event.patch() {
            let wrote = matches!(body.event, RecordEvent::Node(_));
            if let Some(what) = self.reducers(patch)?.filter(|_| wrote) {
                return Ok(Some(at(what)));
            }
            self.channels.apply(patch)?;
        }
        let RecordEvent::Node(nodes) = &body.event else {
            self.machine.absorb(&body.event)?;
            return Ok(None);
        };
        for (place, done) in nodes.done.iter().enumerate() {
            // The state is known only after the last activation of a record.
            let found = if place + 1 == nodes.done.len() {
                verified.checked += 1;
                self.decided(done)?
            } else {
                verified.unchecked += 1;
                self.possible(done)
            };
            if let Some(what) = found {
                let (node, visit) = (Some(done.node.clone()), Some(done.visit));
                return Ok(Some(Divergence { node, visit, ..at(what) }));
            }
            let alone = NodesDone { done: vec![done.clone()], patch: Patch::default() };
            self.machine.absorb(&RecordEvent::Node(alone))?;
        }
        Ok(None)
    }

    /// Returns a description of the part of a recorded decision that the current graph cannot make with any state, if there is one.
    fn possible(&self, done: &NodeDone) -> Option<String> {
        let plan = self.graph.plan();
        let Some(index) = plan.find(done.node.as_str()) else {
            return Some("the node is no longer in the graph".into());
        };
        let leads = |to: &NodeName| {
            plan.node(index).outgoing.iter().any(|&edge| plan.node(plan.edge(edge).to).name == *to)
        };
        let stranger = done.fired.iter().find(|fired| !fired.back && !leads(&fired.to))?;
        Some(format!("the node led to {}, and no edge leads there today", stranger.to))
    }

    /// Returns a channel that was written in a way in which its current reducer does not write, if there is one.
    ///
    /// Channels of another version may have other names. An undeclared channel accepts any write.
    fn reducers(&self, patch: &Patch) -> Result<Option<String>> {
        let schema = self.graph.schema();
        for op in patch.ops()? {
            if self.version != schema.version() || !schema.declares(op.channel()) {
                continue;
            }
            let reducer = schema.reducer(op.channel());
            let (fits, how) = match op {
                Op::Append(..) => (matches!(reducer, Reducer::Append | Reducer::Union), "appended to"),
                Op::Merge(..) => (matches!(reducer, Reducer::Merge), "merged into"),
                _ => (true, "set"),
            };
            if !fits {
                return Ok(Some(format!(
                    "the channel `{}` was {how}, its reducer is `{reducer}` today",
                    op.channel()
                )));
            }
        }
        Ok(None)
    }

    /// Returns a description of the part of a recorded decision that the current graph makes differently, if there is one.
    fn decided(&mut self, done: &NodeDone) -> Result<Option<String>> {
        let plan = self.graph.plan();
        let Some(index) = plan.find(done.node.as_str()) else {
            return Ok(Some("the node is no longer in the graph".into()));
        };
        let channels = self.graph.migrated(&self.channels, self.version);
        let state = match channels.and_then(|channels| S::from_channels(channels, self.graph.schema())) {
            Ok(state) => state,
            Err(error) => return Ok(Some(format!("the state after it cannot be read: {error}"))),
        };
        let replans = self.machine.replan_counts();
        let result = match &done.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                let left = self.machine.find(done.node.as_str()).map(|node| self.machine.node(node).left);
                let cx = RouteContext::new(&done.node, done.visit, done.output.as_deref())
                    .with_replans(&replans)
                    .with_left(left.unwrap_or_default(), done.left);
                match catch_unwind(AssertUnwindSafe(|| self.graph.fires(index, &state, &cx))) {
                    Ok(Ok(fired)) => Ok(fired),
                    Ok(Err(error)) => return Ok(Some(format!("its route fails: {error}"))),
                    Err(_) => return Ok(Some("its route or a condition panics".into())),
                }
            }
        };
        let key = self.machine.find(done.node.as_str()).map(|node| (node, done.visit));
        let Some(key) = key.filter(|key| self.machine.in_flight().contains_key(key)) else {
            let message = format!("the log ends visit {}, which was not active", done.visit);
            return Err(Error::new(ErrorKind::Corrupt, message).with_node(&done.node));
        };
        let wrote: Vec<&str> = done.wrote.iter().map(String::as_str).collect();
        let unmet =
            |gate| !catch_unwind(AssertUnwindSafe(|| self.graph.goal_met(gate, &state))).unwrap_or(false);
        let ending = ActivationEnd { key, result, overwrites: &wrote };
        Ok(differs(done, &self.machine.decide(ending, unmet)))
    }
}

/// Returns the difference between two decisions.
fn differs(recorded: &NodeDone, today: &NodeDone) -> Option<String> {
    let targets = |done: &NodeDone| {
        let target = |fired: &crate::record::body::FiredEdge| match &fired.items {
            Some(items) => format!("{} x {}", fired.to, items.len()),
            None => fired.to.to_string(),
        };
        let all: Vec<_> = done.fired.iter().map(target).collect();
        if all.is_empty() { "nowhere".to_owned() } else { all.join(", ") }
    };
    if recorded.fired != today.fired {
        return Some(format!("the node led to {}, and today leads to {}", targets(recorded), targets(today)));
    }
    if recorded.settled != today.settled || recorded.dropped != today.dropped {
        return Some(format!(
            "the next activations differ: recorded {:?}, today {:?}",
            recorded.settled, today.settled
        ));
    }
    let end = |end: &Option<RunEnd>| match end {
        None => "continues".to_owned(),
        Some(RunEnd::Completed) => "is complete".to_owned(),
        Some(RunEnd::Failed(Failure { kind, .. })) => format!("fails ({kind:?})"),
    };
    // An operator's retry went past this limit, so the replay does not repeat the decision.
    let past_limit = matches!(
        &today.end,
        Some(RunEnd::Failed(Failure {
            kind: FailureKind::MaxVisits | FailureKind::MaxSteps | FailureKind::Replan,
            ..
        }))
    );
    if end(&recorded.end) != end(&today.end) && !past_limit {
        return Some(format!(
            "after the node, the run {}, and today it {}",
            end(&recorded.end),
            end(&today.end)
        ));
    }
    // If the current graph lacks this stop, the route is the same: the run was unpaused after it.
    if today.hold && !recorded.hold {
        return Some("today the run waits for an approval after the node".into());
    }
    None
}
