//! What the dialect has and a graph cannot do yet: refused with a name, instead of being passed over.

use ferrata_core::{Error, ErrorKind};

use crate::pipeline::{Attributes, Pipeline};

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

/// Refuses a pipeline that asks for more than a graph can do.
pub(super) fn unsupported(pipeline: &Pipeline) -> Result<(), Error> {
    refuse(&pipeline.attributes, &OF_GRAPH, || "the graph".to_owned())?;
    for node in pipeline.nodes() {
        refuse(&node.attributes, &OF_NODE, || format!("node {}", node.id()))?;
        if node.attributes.text("selection") == "random" {
            return Err(error(&format!("node {}", node.id()), "selection=random"));
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
