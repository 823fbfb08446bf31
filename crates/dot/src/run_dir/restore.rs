//! Restores a run of which only `checkpoint.json` exists.

use std::collections::BTreeMap;
use std::path::Path;

use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::{MOST_READ, RunDirectory, files};
use crate::compile::Compiler;
use crate::condition::{Condition, ConditionFacts};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Pipeline;
use crate::select::{EdgeCandidate, select};

/// The data with which a new run continues from a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RestorePoint {
    /// The id of the checkpoint's run, if the file contains it.
    pub run: Option<String>,
    /// The node at which the new run begins; `None` if the run had completed.
    pub node: Option<String>,
    /// The context of the new run, including the results of its goal gates.
    pub context: Context,
    /// The number of nodes that had ended.
    pub ended: usize,
    /// The number of failed attempts of the node. In the new run, the attempts start at 1 again.
    pub failed: u32,
    /// The parallel node at which the new run begins, if the run was at nodes in its branches.
    pub fork: Option<String>,
}

/// The fields that are read from the file, in Ferrata's format or in the format with only `context`, `current_node_id` and `completed_nodes`.
#[derive(Deserialize)]
struct CheckpointFile {
    #[serde(default)]
    run_id: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default, alias = "current_node_id")]
    current_node: Option<String>,
    #[serde(default)]
    next_nodes: Vec<String>,
    #[serde(default)]
    completed_nodes: Vec<String>,
    #[serde(default)]
    node_history: Vec<Json>,
    #[serde(default)]
    retry_counters: BTreeMap<String, u32>,
    context: Map<String, Json>,
}

impl RunDirectory {
    /// Reads `checkpoint.json` to continue its run as a new run. The new run begins at the node that was running, or else at the node that follows
    /// the last ended node. Returns `None` if the file does not exist.
    ///
    /// A file that contains only `context`, `current_node_id` and `completed_nodes` is valid too. If the current node has not completed, it starts
    /// again.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`]: the file is not a valid checkpoint, or the file of a large value is missing. The error has the position in the file.
    /// - [`ErrorKind::Invalid`]: the pipeline does not have the node, or the condition of no edge of the last node holds.
    pub fn restore(
        root: impl AsRef<Path>,
        pipeline: &Pipeline,
        compiler: &Compiler,
    ) -> Result<Option<RestorePoint>, Error> {
        let root = root.as_ref();
        let path = root.join("checkpoint.json");
        let corrupt = |why: String| {
            let message = format!("cannot start from the checkpoint {}: {why}", path.display());
            Error::new(ErrorKind::Corrupt, message).with_operation("dot.restore")
        };
        let text = match files::read(root, &path, MOST_READ) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| corrupt(error.to_string()))?,
        };
        // The message of the parser contains the line and the column.
        let file: CheckpointFile =
            serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        let mut context = Context::new();
        let of_run = |key: &str| !key.starts_with("internal.branch.") && key != "internal.ended";
        for (key, value) in file.context.iter().filter(|(key, value)| of_run(key) && !value.is_null()) {
            let value = whole(root, value).map_err(|why| corrupt(format!("`{key}`: {why}")))?;
            context.set(key.as_str(), &value)?;
        }
        let ended = file.node_history.len().max(file.completed_nodes.len());
        let (node, fork) = match begins(&file, pipeline, &context)? {
            Some(node) => place(&node, pipeline, compiler)?,
            None => (None, None),
        };
        let failed = node.as_ref().and_then(|node| file.retry_counters.get(node)).copied().unwrap_or(0);
        Ok(Some(RestorePoint { run: file.run_id, node, context, ended, failed, fork }))
    }
}

/// Returns the complete value. A large value is read from its own file.
fn whole(root: &Path, value: &Json) -> Result<Json, String> {
    let kept = value.as_object().filter(|fields| fields.len() == 2 && fields.contains_key("bytes"));
    let Some(path) = kept.and_then(|fields| fields.get("artifact")?.as_str()) else {
        return Ok(value.clone());
    };
    let Some(hash) = path.strip_prefix("artifacts/") else { return Ok(value.clone()) };
    let content =
        files::read(root, &root.join(path), MOST_READ).map_err(|error| format!("{path}: {error}"))?;
    if blake3::hash(&content).to_hex().as_str() != hash {
        return Err(format!("{path} has changed since the checkpoint"));
    }
    let text = String::from_utf8(content).map_err(|_| format!("{path} is not UTF-8 text"))?;
    // A value other than text was stored as JSON. A text that begins with a bracket or a brace and is valid JSON is read as JSON, too.
    let json = text.starts_with(['[', '{']).then(|| serde_json::from_str(&text).ok()).flatten();
    Ok(json.unwrap_or(Json::String(text)))
}

/// Returns the node at which the run continues; `None` if the run had completed.
fn begins(file: &CheckpointFile, pipeline: &Pipeline, context: &Context) -> Result<Option<String>, Error> {
    if file.status.as_deref() == Some("completed") {
        return Ok(None);
    }
    if let Some(next) = file.next_nodes.first() {
        return Ok(Some(next.clone()));
    }
    let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.restore"));
    let starts = pipeline.starts();
    let start = starts.first().map(|&at| pipeline.nodes()[at].id().to_owned());
    let Some(current) = file.current_node.clone() else { return Ok(start) };
    let Some(at) = pipeline.position(&current) else {
        return refuse(format!("the checkpoint is at `{current}`, and the pipeline has no such node"));
    };
    let has_ended = file.completed_nodes.contains(&current)
        || file
            .node_history
            .last()
            .is_some_and(|last| last["node"] == current.as_str() && last["outcome"] != "fail");
    if !has_ended {
        return Ok(Some(current));
    }
    if pipeline.exits().contains(&at) {
        return Ok(None);
    }
    let text = |key: &str| context.get_value(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let mut edges = Vec::new();
    for edge in pipeline.edges().iter().filter(|edge| *edge.from == *current) {
        edges.push(EdgeCandidate {
            to: edge.to.to_string(),
            label: edge.label().into_owned(),
            condition: Condition::parse(&edge.condition())?,
            weight: edge.weight(),
        });
    }
    let status = Status::of_word(&text("outcome")).unwrap_or(Status::Success);
    let outcome = StageOutcome::new(status).prefer(text("preferred_label"));
    let lookup = |key: &str| context.get_value(key).cloned();
    match select(&edges, &outcome, &ConditionFacts::new(status.as_str(), &outcome.preferred_label, &lookup)) {
        Some(choice) => Ok(Some(edges[choice.edge].to.clone())),
        None => refuse(format!(
            "no edge of `{current}` applies to the checkpoint's context; choose the node to start at"
        )),
    }
}

/// Returns the node at which the new run begins. For nodes in branches, it is their parallel node.
fn place(
    node: &str,
    pipeline: &Pipeline,
    compiler: &Compiler,
) -> Result<(Option<String>, Option<String>), Error> {
    let Some(at) = pipeline.position(node) else {
        let message = format!("the checkpoint is at `{node}`, and the pipeline has no such node");
        return Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.restore"));
    };
    let fork = compiler.fork_around(pipeline, at)?.map(str::to_owned);
    Ok((Some(fork.clone().unwrap_or_else(|| node.to_owned())), fork))
}
