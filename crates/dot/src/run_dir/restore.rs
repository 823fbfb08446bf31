//! Restores a run if only `checkpoint.json` is left of it.

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

/// The starting point of a new run that continues from a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RestorePoint {
    /// The run of the checkpoint, if the file names it.
    pub run: Option<String>,
    /// The node to begin at; `None` if the run had completed.
    pub node: Option<String>,
    /// The context, with the goal gates.
    pub context: Context,
    /// Number of nodes that had ended.
    pub ended: usize,
    /// Number of failed attempts of the node: the count starts again.
    pub failed: u32,
    /// The fork to begin at in place of nodes in its branches.
    pub fork: Option<String>,
}

/// The fields read from the file: from our format, and from the format with `context`, `current_node_id` and `completed_nodes`.
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
    /// Reads `checkpoint.json` as the starting point of a new run: the node that was running, or the one that follows the last ended node. Returns
    /// `None` if the file does not exist.
    ///
    /// A file with only `context`, `current_node_id` and `completed_nodes` is valid, too: a node that has not completed begins again.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`] with the position in the file if it is no checkpoint, or if a separately stored value is missing.
    /// - [`ErrorKind::Invalid`] if the pipeline does not have the node, or no edge of the last one holds.
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
        // The parser's message includes line and column.
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

/// Returns a value, and reads it from its own file if it is large.
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
    // A value other than text was stored as JSON. A text does not begin with a bracket or a brace, or it is taken for JSON.
    let json = text.starts_with(['[', '{']).then(|| serde_json::from_str(&text).ok()).flatten();
    Ok(json.unwrap_or(Json::String(text)))
}

/// Returns the node where a run continues; `None` if the run was at its end.
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

/// Returns the node to begin at; for running branches, their fork.
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
