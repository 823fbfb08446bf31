//! Reads details of activations from the records of a log, for checkpoints. A replay of the log does not keep these details.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;
use crate::ended::{Diagnostic, PastActivation};
use crate::error::Result;
use crate::id::{NodeName, RunKey, Seq, Visit};
use crate::log_reader;
use crate::record::body::{ClaimRecord, RecordBody, RecordEvent, StartRecord};
use crate::record::node_data::EdgeTargets;
use crate::record::{Record, RecordHeader, codec};
use crate::state::{Artifact, MemoryRead};
use crate::store::{At, CheckpointStore};
use crate::verdict::Verdict;

/// Details of the stored records that a replay does not keep.
#[derive(Default)]
pub(crate) struct RecordDetails {
    pub(crate) started: Option<StartRecord>,
    pub(crate) input: Option<String>,
    /// The ends of each activation, in order. A failed activation may end again after a retry of the run.
    pub(crate) ended: BTreeMap<(NodeName, Visit), Vec<PastActivation>>,
    pub(crate) results: BTreeMap<NodeName, std::sync::Arc<str>>,
    pub(crate) failed: Vec<Diagnostic>,
    pub(crate) artifacts: BTreeMap<NodeName, Vec<Artifact>>,
    pub(crate) reads: Vec<MemoryRead>,
    pub(crate) bypassed: BTreeSet<(NodeName, NodeName)>,
    /// The edges of the graph that last drove the run.
    pub(crate) edges: Option<Vec<(NodeName, NodeName)>>,
}

impl RecordDetails {
    /// Reads a log up to its last segment, which the caller passes. Most logs have only one segment.
    pub(crate) async fn read(
        store: &dyn CheckpointStore,
        run: &RunKey,
        oldest: Seq,
        stretch: &[Record],
    ) -> Result<Self> {
        let mut told = Self::default();
        let before = stretch.first().filter(|first| first.header.seq > oldest);
        if let Some(to) = before.and_then(|first| first.header.seq.get().checked_sub(1)) {
            for end in log_reader::segment_ends(store, run, At::Seq(Seq::new(to))).await? {
                for (header, body) in log_reader::segment(store, run, end).await? {
                    told.add(&header, body);
                }
            }
        }
        for record in stretch {
            told.add(&record.header, codec::decode(run, record)?);
        }
        Ok(told)
    }

    fn add(&mut self, header: &RecordHeader, body: RecordBody) {
        match body.event {
            RecordEvent::Start(started) => {
                self.input = body.base.map(|base| base.state.get().to_owned());
                self.edges = Some(pairs(&started.edges));
                self.started = Some(started);
            }
            RecordEvent::Claim(ClaimRecord { edges: Some(edges), .. }) => self.edges = Some(pairs(&edges)),
            RecordEvent::Attempt(attempt) => self.failed.push(Diagnostic {
                at: header.at,
                node: attempt.node,
                visit: attempt.visit,
                attempt: attempt.failed,
                failure: attempt.failure,
                retry_at: attempt.retry_at,
            }),
            RecordEvent::Node(nodes) => {
                nodes.done.into_iter().for_each(|done| self.end(header.seq, header.at, done));
            }
            _ => {}
        }
    }

    fn end(&mut self, index: Seq, at: Timestamp, done: crate::record::body::NodeDone) {
        match &done.output {
            Some(output) => _ = self.results.insert(done.node.clone(), output.get().into()),
            None => _ = self.results.remove(&done.node),
        }
        if let Some(failure) = &done.failure {
            self.failed.push(Diagnostic {
                at,
                node: done.node.clone(),
                visit: done.visit,
                attempt: done.attempts,
                failure: failure.clone(),
                retry_at: None,
            });
        }
        if !done.noted.artifacts.is_empty() {
            self.artifacts.entry(done.node.clone()).or_default().extend(done.noted.artifacts.iter().cloned());
        }
        self.reads.extend(done.noted.reads.iter().cloned());
        self.bypassed.extend(done.bypassed.iter().map(|to| (done.node.clone(), to.clone())));
        let effects = self.started.as_ref().map(|started| &started.effects);
        let effect = effects.map(|effects| effects.get(&done.node).copied().unwrap_or_default());
        let past = PastActivation {
            attempts: Some(done.attempts),
            took_ms: Some(done.took_ms),
            at: Some(at),
            index: Some(index),
            effect,
            led_to: done.fired.iter().map(|fired| fired.to.clone()).collect(),
            notes: done.notes.clone(),
            failure: done.failure.clone(),
            verdict: done.output.as_deref().and_then(Verdict::of),
            ..PastActivation::of(done.node.clone(), done.visit, done.failure.is_none())
        };
        self.ended.entry((done.node, done.visit)).or_default().push(past);
    }
}

/// Returns the edges of a graph as pairs of source and target.
pub(crate) fn pairs(edges: &EdgeTargets) -> Vec<(NodeName, NodeName)> {
    edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from.clone(), to.clone()))).collect()
}
