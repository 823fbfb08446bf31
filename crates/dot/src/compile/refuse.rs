//! Rejects features of the dialect that graphs do not support yet, so that none of them is ignored silently.

use ferrata_core::{Error, ErrorKind};

use super::settings::{flag, invalid};
use crate::pipeline::{Node, Pipeline};
use crate::value::Value;

/// Rejects features that are not supported for a node in a branch of a parallel node.
pub(super) fn check_region(
    pipeline: &Pipeline,
    node: usize,
    outgoing: &[usize],
    external: bool,
) -> Result<(), Error> {
    let id = pipeline.nodes()[node].id();
    let restarts = |at: &usize| flag(pipeline.edges()[*at].attributes.get("loop_restart"));
    if outgoing.iter().any(restarts) {
        let message = format!(
            "node {id}: a branch cannot restart the run while its other branches run; move the `loop_restart` edge after the fan-in"
        );
        return Err(invalid(message));
    }
    if external {
        let message = format!(
            "node {id}: a branch cannot run nodes with `effect=external`; move the node out of the branch"
        );
        return Err(Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile"));
    }
    Ok(())
}

/// Rejects a pipeline with unsupported or contradictory attributes.
pub(super) fn unsupported(pipeline: &Pipeline, kind: impl Fn(&Node) -> String) -> Result<(), Error> {
    for node in pipeline.nodes() {
        let counted = node.attributes.text("join_policy") == "k_of_n";
        if counted && node.attributes.get("k").and_then(Value::as_integer).is_none_or(|k| k < 1) {
            let message =
                format!("node {}: `join_policy=k_of_n` needs `k`; set `k` to at least 1", node.id());
            return Err(invalid(message));
        }
        if node.attributes.text("selection") == "random" {
            let mut edges = pipeline.edges().iter().filter(|edge| *edge.from == *node.id());
            if let Some(edge) = edges.find(|edge| !edge.condition().is_empty()) {
                let message = format!(
                    "node {}: `selection=random` needs edges without conditions, and the edge to `{}` has one; remove either",
                    node.id(),
                    edge.to
                );
                return Err(invalid(message));
            }
        }
    }
    for edge in pipeline.edges().iter().filter(|edge| !edge.attributes.text("for_each").is_empty()) {
        if pipeline.node(&edge.from).is_none_or(|node| kind(node) != "parallel") {
            return Err(invalid(format!(
                "edge {} -> {}: `for_each` starts one branch per item; start its edge at a node of type `parallel`",
                edge.from, edge.to
            )));
        }
    }
    let mut freeform = std::collections::HashSet::new();
    for edge in pipeline.edges().iter().filter(|edge| flag(edge.attributes.get("freeform"))) {
        let what = format!("edge {} -> {}", edge.from, edge.to);
        let gate = pipeline.node(&edge.from).is_some_and(|node| kind(node) == "wait.human");
        let problem = if !gate {
            "`freeform` takes the text of a person; start its edge at a node of type `wait.human`"
        } else if !edge.condition().is_empty() {
            "a `freeform` edge with a condition is never chosen; remove the condition or `freeform`"
        } else if !freeform.insert(&edge.from) {
            "the node has a second `freeform` edge; keep one"
        } else {
            continue;
        };
        return Err(invalid(format!("{what}: {problem}")));
    }
    Ok(())
}
