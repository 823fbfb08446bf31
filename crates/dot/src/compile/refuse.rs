//! What the dialect has and a graph cannot do yet: refused with a name, instead of being passed over.

use ferrata_core::{Error, ErrorKind};

use super::settings::{flag, invalid};
use crate::pipeline::{Attributes, Pipeline};
use crate::value::Value;

/// Attributes whose meaning would be lost. Those of types that do not run are refused with the type.
const OF_GRAPH: [&str; 6] = [
    "default_fidelity",
    "default_thread",
    "stall_timeout",
    "loop_restart_signature_limit",
    "tool_hooks.pre",
    "tool_hooks.post",
];
const OF_NODE: [&str; 4] = ["fidelity", "thread_id", "tool_hooks.pre", "tool_hooks.post"];
const OF_EDGE: [&str; 3] = ["fidelity", "thread_id", "freeform"];

/// Refuses what a node in a branch of a parallel node cannot do.
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
            "node {id}: `loop_restart` would leave the other branches behind; lead the edge out of them"
        );
        return Err(invalid(message));
    }
    if external {
        let message =
            format!("node {id}: `effect=external` does not run in a branch yet; take it out of the branch");
        return Err(Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile"));
    }
    Ok(())
}

/// Refuses a pipeline that asks for more than a graph can do.
pub(super) fn unsupported(pipeline: &Pipeline) -> Result<(), Error> {
    refuse(&pipeline.attributes, &OF_GRAPH, || "the graph".to_owned())?;
    for node in pipeline.nodes() {
        refuse(&node.attributes, &OF_NODE, || format!("node {}", node.id()))?;
        for (key, value) in [("selection", "random"), ("error_policy", "fail_fast")] {
            if node.attributes.text(key) == value {
                return Err(error(&format!("node {}", node.id()), &format!("{key}={value}")));
            }
        }
        if node.shape() == "tripleoctagon" && node.attributes.is_own("prompt") {
            return Err(error(&format!("node {}", node.id()), "prompt"));
        }
        let counted = node.attributes.text("join_policy") == "k_of_n";
        if counted && node.attributes.get("k").and_then(Value::as_integer).is_none_or(|k| k < 1) {
            let message =
                format!("node {}: `join_policy=k_of_n` needs `k`; give it a number of at least 1", node.id());
            return Err(invalid(message));
        }
    }
    for edge in pipeline.edges() {
        refuse(&edge.attributes, &OF_EDGE, || format!("edge {} -> {}", edge.from, edge.to))?;
    }
    Ok(())
}

fn refuse(attributes: &Attributes, keys: &[&str], what: impl FnOnce() -> String) -> Result<(), Error> {
    match keys.iter().find(|key| attributes.get(key).is_some()) {
        Some(key) => Err(error(&what(), key)),
        None => Ok(()),
    }
}

fn error(what: &str, key: &str) -> Error {
    let message = format!("{what}: `{key}` has no effect yet; take it out");
    Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile")
}
