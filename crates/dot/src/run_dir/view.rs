//! `checkpoint.json` and `manifest.json`: the status of a run, and its identity.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use ferrata_core::Timestamp;
use ferrata_core::record::{Labels, RunStatus};
use ferrata_core::runtime::Checkpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::fold::LogFold;
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Pipeline;

/// The state of a run after a record: `checkpoint.json`.
///
/// The fields of the source's table have the source's names. Later versions may add fields; a reader ignores unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of the file: 1.
    pub schema: u32,
    /// The run.
    pub run_id: String,
    /// The name of the pipeline.
    pub pipeline_name: String,
    /// The status of the run.
    pub status: RunStatus,
    /// The reason for its failure, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The number of the record in the run's log.
    pub seq: u64,
    /// The time of that record.
    pub timestamp: String,
    /// The node that ended last.
    #[serde(default)]
    pub current_node: Option<String>,
    /// The nodes that run or wait for their turn. The record includes the chosen edges, so a resume never chooses again.
    pub next_nodes: Vec<String>,
    /// The outcome of the last node.
    #[serde(default)]
    pub outcome: Option<StageOutcome>,
    /// The nodes that ended, in order.
    pub node_history: Vec<VisitedNode>,
    /// By goal gate: its last status, or `pending` if the run has not visited it.
    pub goal_gate_status: BTreeMap<String, String>,
    /// By running node: the number of its failed attempts. Ended nodes start from zero.
    pub retry_counters: BTreeMap<String, u32>,
    /// Inputs for the fidelity of the context: `default` is the graph's default, `fidelity` that of the last task, and `stage.` with a node its
    /// result for summaries.
    pub fidelity_state: BTreeMap<String, Json>,
    /// The open questions, by the id to answer them with.
    pub questions: Vec<String>,
    /// The context. A value that is larger than 100 kB is `{"artifact": path, "bytes": n}`.
    pub context: BTreeMap<String, Json>,
    /// The files that nodes left.
    pub artifacts: Vec<AttemptArtifact>,
    /// Where the run went back deliberately, in order.
    #[serde(default)]
    pub replans: Vec<ReplanView>,
}

/// A deliberate step back to an earlier node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplanView {
    /// The node that decided it.
    pub from: String,
    /// The visit of that node.
    pub visit: u32,
    /// Where the run went back to.
    pub to: String,
    /// The reason.
    pub reason: String,
    /// The time.
    pub at: String,
}

/// A node that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VisitedNode {
    /// The node.
    pub node: String,
    /// The number of the visit.
    pub visit: u32,
    /// The number of attempts.
    pub attempts: u32,
    /// Its status.
    pub outcome: Status,
    /// When its last attempt began.
    #[serde(default)]
    pub started: String,
    /// The time at which it ended.
    #[serde(default)]
    pub ended: String,
    /// The duration of its last attempt, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// The reason for its failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A file that an attempt left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptArtifact {
    /// The node.
    pub node: String,
    /// The number of the visit.
    pub visit: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The name of the file.
    pub name: String,
    /// The path, from the root of the directory.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// The identity of a run: `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// The version of the file: 1.
    pub schema: u32,
    /// The id of the run.
    pub run_id: String,
    /// The tenant.
    pub tenant: String,
    /// The name of the pipeline.
    pub pipeline_name: String,
    /// The goal of the pipeline.
    pub goal: String,
    /// The start time.
    pub start_time: String,
    /// The fingerprint of the graph at the start.
    pub graph: String,
    /// The user of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The labels for filtering runs.
    pub labels: Labels,
    /// The run that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl Manifest {
    pub(super) fn of(checkpoint: &Checkpoint, pipeline: &Pipeline) -> Self {
        Self {
            schema: 1,
            run_id: checkpoint.run.run.to_string(),
            tenant: checkpoint.run.tenant.to_string(),
            pipeline_name: checkpoint.workflow.to_string(),
            goal: pipeline.goal().into_owned(),
            start_time: checkpoint.created.to_string(),
            graph: checkpoint.graph.to_string(),
            user: checkpoint.user.clone(),
            labels: checkpoint.labels.clone(),
            parent: checkpoint.parent.as_ref().map(|parent| parent.run.to_string()),
        }
    }
}

impl Snapshot {
    pub(super) fn of(
        checkpoint: &Checkpoint,
        fold: &LogFold,
        pipeline: &Pipeline,
        listed: &[AttemptArtifact],
        shortened: impl Fn(&Json) -> io::Result<Option<Json>>,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let short = |value: &Json| match shortened(value) {
            Ok(short) => Ok(short.unwrap_or_else(|| value.clone())),
            Err(error) => Err((PathBuf::from("artifacts"), error)),
        };
        let mut context = BTreeMap::new();
        for (key, value) in fold.channels.iter() {
            context.insert(key.clone(), short(value)?);
        }
        let mut outcome = fold.outcome.clone();
        for value in outcome.iter_mut().flat_map(|outcome| outcome.context_updates.values_mut()) {
            *value = short(value)?;
        }
        let gates = pipeline.nodes().iter().filter(|node| node.is_goal_gate());
        let gate = |node: &crate::pipeline::Node| {
            let last = fold.channels.get(&format!("internal.gate.{}", node.id())).and_then(Json::as_str);
            (node.id().to_owned(), last.unwrap_or("pending").to_owned())
        };
        let failed = checkpoint.next.iter().filter(|pending| pending.failed > 0);
        let mut fidelity: BTreeMap<String, Json> = context
            .iter()
            .filter(|(key, _)| key.starts_with("internal.fidelity") || key.starts_with("internal.stage."))
            .map(|(key, value)| (key["internal.".len()..].to_owned(), value.clone()))
            .collect();
        let default = pipeline.attributes.text("default_fidelity");
        let default = if default.is_empty() { "compact".into() } else { default };
        fidelity.insert("default".to_owned(), Json::from(default));
        Ok(Self {
            schema: 1,
            run_id: checkpoint.run.run.to_string(),
            pipeline_name: checkpoint.workflow.to_string(),
            status: checkpoint.status,
            failure_reason: checkpoint.failure.as_ref().map(ToString::to_string),
            seq: checkpoint.index.get(),
            timestamp: timestamp(checkpoint.at),
            current_node: fold.history.last().map(|ended| ended.node.clone()),
            next_nodes: checkpoint.next.iter().map(|pending| pending.node.to_string()).collect(),
            outcome,
            node_history: fold
                .history
                .iter()
                .map(|ended| VisitedNode {
                    node: ended.node.clone(),
                    visit: ended.visit,
                    attempts: ended.attempts,
                    outcome: ended.outcome,
                    started: timestamp(ended.started()),
                    ended: timestamp(ended.at),
                    took_ms: ended.took_ms,
                    reason: ended.reason.clone(),
                })
                .collect(),
            goal_gate_status: gates.map(gate).collect(),
            retry_counters: failed.map(|pending| (pending.node.to_string(), pending.failed)).collect(),
            fidelity_state: fidelity,
            questions: checkpoint.questions.iter().map(|question| question.id.clone()).collect(),
            context,
            artifacts: listed.to_vec(),
            replans: fold.replans.clone(),
        })
    }
}

fn timestamp(at: Timestamp) -> String {
    at.to_string()
}
