//! The settings that follow from a node's attributes: attempts, visits, effect, and the input of its fingerprint.

use ferrata_core::graph::{Effect, GraphBuilder, RetryPolicy};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind};
use serde_json::{Map, Value as Json};

use super::text::digest;
use crate::pipeline::{Node, Pipeline};
use crate::value::Value;

/// Determines the retry policy of a node. The number of attempts comes from `max_retries` of the node, then from the graph, then from the preset. The
/// default is one attempt.
pub(super) fn retry(pipeline: &Pipeline, node: &Node) -> Result<RetryPolicy, Error> {
    let preset = node.attributes.text("retry_policy");
    let (policy, attempts) = match &*preset {
        "" => (RetryPolicy::standard(), None),
        "none" => (RetryPolicy::none(), Some(1)),
        "standard" => (RetryPolicy::standard(), Some(RetryPolicy::standard().attempts())),
        "aggressive" => (RetryPolicy::aggressive(), Some(RetryPolicy::aggressive().attempts())),
        "linear" => (RetryPolicy::linear(), Some(RetryPolicy::linear().attempts())),
        "patient" => (RetryPolicy::patient(), Some(RetryPolicy::patient().attempts())),
        other => {
            return Err(invalid(format!(
                "node {}: the retry policy `{other}` does not exist; use `none`, `standard`, `aggressive`, `linear` or `patient`",
                node.id()
            )));
        }
    };
    let count = |value: Option<&Value>| value.and_then(Value::as_integer);
    let of_graph = || count(pipeline.attributes.get("default_max_retries"));
    let retries = match (count(node.attributes.get("max_retries")), attempts) {
        (Some(own), _) => own,
        (None, Some(attempts)) => i64::from(attempts) - 1,
        (None, None) => of_graph().unwrap_or(0),
    };
    let attempts =
        u32::try_from(retries).ok().and_then(|retries| retries.checked_add(1)).ok_or_else(|| {
            invalid(format!(
                "node {}: the number of retries is {retries}, which is out of range; use a smaller number",
                node.id()
            ))
        })?;
    Ok(policy.with_attempts(attempts))
}

/// Returns whether the node retries a failure, and not only an outcome `retry`. The attribute `retry_on` decides. By default, commands that set their
/// own retries do so, because a command can report only a failure.
pub(super) fn retries_fail(node: &Node, kind: &str) -> bool {
    match &*node.attributes.text("retry_on") {
        "" => kind == "tool" && ["max_retries", "retry_policy"].iter().any(|key| node.attributes.is_own(key)),
        on => on == "fail",
    }
}

/// Returns whether the node retries a task that ended with a bad exit status and without an outcome. Such an end is not a result of the work.
pub(super) fn retries_exit(node: &Node) -> bool {
    node.attributes.text("retry_on") != "retry"
}

pub(super) fn max_visits(pipeline: &Pipeline, node: &Node) -> Result<Option<u32>, Error> {
    let own = node.attributes.get("max_visits").and_then(Value::as_integer);
    let graph = || pipeline.attributes.get("max_node_visits").and_then(Value::as_integer);
    match own.or_else(graph).unwrap_or(0) {
        0 => Ok(None),
        most => u32::try_from(most).map(Some).map_err(|_| {
            invalid(format!(
                "node {}: the maximum of visits is {most}, which is out of range; use a smaller number",
                node.id()
            ))
        }),
    }
}

/// Sets the maximum number of activations of a run. 0 means unlimited.
pub(super) fn max_steps(
    pipeline: &Pipeline,
    builder: GraphBuilder<Context>,
) -> Result<GraphBuilder<Context>, Error> {
    let Some(most) = pipeline.attributes.get("max_steps").and_then(Value::as_integer) else {
        return Ok(builder);
    };
    match u64::try_from(most) {
        Ok(0) => Ok(builder.unlimited_steps()),
        Ok(most) => Ok(builder.max_steps(most)),
        Err(_) => Err(invalid(format!(
            "the graph: `max_steps` is {most}; use a positive number, or 0 for no limit"
        ))),
    }
}

/// Returns the maximum number of times that a run may return to an earlier node on purpose; `None` if the pipeline sets no maximum.
pub(super) fn max_replans(pipeline: &Pipeline) -> Result<Option<u32>, Error> {
    let Some(most) = pipeline.attributes.get("max_replans").and_then(Value::as_integer) else {
        return Ok(None);
    };
    u32::try_from(most).map(Some).map_err(|_| {
        invalid(format!("the graph: `max_replans` is {most}, which is out of range; use a smaller number"))
    })
}

/// Returns the effect of the node: its attribute `effect`, or the effect of its handler.
pub(super) fn effect(node: &Node, of_handler: Effect) -> Result<Effect, Error> {
    Ok(match &*node.attributes.text("effect") {
        "" => of_handler,
        "pure" => Effect::Pure,
        "read" => Effect::Read,
        "write" => Effect::Write,
        "external" => Effect::External,
        other => {
            let message = format!(
                "node {}: the effect `{other}` does not exist; write `pure`, `read`, `write` or `external`",
                node.id()
            );
            return Err(invalid(message));
        }
    })
}

/// Returns the fingerprint input of a node's attributes. If they change, a run at this node does not silently continue with another meaning.
pub(super) fn revision(pipeline: &Pipeline, node: &Node, kind: &str, outgoing: &[usize]) -> String {
    let mut parts = vec![kind.to_owned()];
    parts.extend(node.attributes.iter().map(ToString::to_string));
    for edge in outgoing.iter().map(|at| &pipeline.edges()[*at]) {
        parts.push(edge.to.to_string());
        parts.extend(edge.attributes.iter().map(ToString::to_string));
    }
    digest(&parts)
}

/// Returns the attributes of the graph in the form that the context stores.
pub(super) fn mirrored(pipeline: &Pipeline) -> Map<String, Json> {
    let json = |value: &Value| match value {
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Boolean(yes) => Json::from(*yes),
        other => Json::from(other.text()),
    };
    let attributes = pipeline.attributes.iter();
    let mut mirrored: Map<String, Json> = attributes
        .map(|attribute| (format!("graph.{}", attribute.key.value), json(&attribute.value.value)))
        .collect();
    mirrored.entry("graph.goal").or_insert_with(|| Json::from(""));
    mirrored
}

pub(super) fn flag(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation("dot.compile")
}
