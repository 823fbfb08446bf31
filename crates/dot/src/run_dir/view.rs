//! `checkpoint.json` has the state of a run, and `manifest.json` says which run it is.

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

/// The content of `checkpoint.json`: the state of a run after a record.
///
/// Fields that the specification defines have the names of the specification. Later versions may add fields, so a reader must ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
// Large: each field is a part of the run that a run directory shows.
pub struct Snapshot {
    /// The version of the file format: 1.
    pub schema: u32,
    /// The id of the run.
    pub run_id: String,
    /// The name of the pipeline.
    pub pipeline_name: String,
    /// The status of the run.
    pub status: RunStatus,
    /// The reason of the failure, if the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The number of the record in the run's log.
    pub seq: u64,
    /// The time of that record.
    pub timestamp: String,
    /// The node that ended last.
    #[serde(default)]
    pub current_node: Option<String>,
    /// The nodes that are running or about to run. The record contains the chosen edges, so a resumed run does not choose again.
    pub next_nodes: Vec<String>,
    /// The outcome of the last node.
    #[serde(default)]
    pub outcome: Option<StageOutcome>,
    /// The nodes that have ended, in the order of their ends.
    pub node_history: Vec<VisitedNode>,
    /// For each goal gate, the status of its last visit, or `pending` if the run has not visited it.
    pub goal_gate_status: BTreeMap<String, String>,
    /// For each running node, the number of its failed attempts. When a node has ended, its next visit starts at zero.
    pub retry_counters: BTreeMap<String, u32>,
    /// The data from which the fidelity of the next task follows. `default` is the default of the graph, `fidelity` is the fidelity of the last task,
    /// and `stage.` followed by a node is the result of this node for summaries.
    pub fidelity_state: BTreeMap<String, Json>,
    /// The ids of the open questions. Use them to answer the questions.
    pub questions: Vec<String>,
    /// The context. A value of more than 100 kB is replaced by `{"artifact": path, "bytes": n}`.
    pub context: BTreeMap<String, Json>,
    /// The files that attempts left.
    pub artifacts: Vec<AttemptArtifact>,
    /// The steps with which the run returned to an earlier node on purpose, in order.
    #[serde(default)]
    pub replans: Vec<ReplanView>,
}

/// A step with which a run returned to an earlier node on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplanView {
    /// The node that decided to return.
    pub from: String,
    /// The visit of that node.
    pub visit: u32,
    /// The node to which the run returned.
    pub to: String,
    /// The reason for the step.
    pub reason: String,
    /// The time of the step.
    pub at: String,
}

/// A node that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VisitedNode {
    /// The name of the node.
    pub node: String,
    /// The number of the visit.
    pub visit: u32,
    /// The number of attempts.
    pub attempts: u32,
    /// The status with which the node ended.
    pub outcome: Status,
    /// The time at which the last attempt began.
    #[serde(default)]
    pub started: String,
    /// The time at which the node ended.
    #[serde(default)]
    pub ended: String,
    /// The duration of its last attempt, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// The reason of the failure; empty if the node did not fail.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A file that an attempt left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptArtifact {
    /// The node of the attempt.
    pub node: String,
    /// The number of the visit.
    pub visit: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The name of the file.
    pub name: String,
    /// The path of the file, relative to the root of the directory.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// The content of `manifest.json`: which run the directory belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// The version of the file format: 1.
    pub schema: u32,
    /// The id of the run.
    pub run_id: String,
    /// The tenant of the run.
    pub tenant: String,
    /// The name of the pipeline.
    pub pipeline_name: String,
    /// The goal of the pipeline.
    pub goal: String,
    /// The start time of the run.
    pub start_time: String,
    /// The fingerprint of the graph when the run started.
    pub graph: String,
    /// The user for whom the run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The labels of the run. Listings can filter runs by label.
    pub labels: Labels,
    /// The run from which this run was forked.
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
