//! Putting the graph together: nodes with their policies, routes with their targets.

use std::sync::Arc;

use ferrata_core::graph::{Effect, Graph, GraphBuilder, RetryPolicy, Route};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind, SystemClock};
use serde_json::{Map, Value as Json};

use super::plan::{Gate, Jump, Next, Sent, Ways};
use super::stage::{Role, StageNode};
use super::text::digest;
use crate::condition::Condition;
use crate::handler::Registry;
use crate::pipeline::{Attributes, Node, Pipeline};
use crate::select::Candidate;
use crate::value::Value;

/// The type of nodes that decide on the outcome of the node before them.
const CONDITIONAL: &str = "conditional";

/// Makes the graph. Lint has found no error in the pipeline.
pub(super) fn graph(pipeline: &Pipeline, registry: &Registry) -> Result<Graph<Context>, Error> {
    let (start, exit) = match (&*pipeline.starts(), &*pipeline.exits()) {
        ([start], [exit]) => (*start, *exit),
        _ => return Err(invalid("the pipeline has not exactly one start and one exit; lint says more")),
    };
    let shared = Arc::new(pipeline.clone());
    let clock = Arc::new(SystemClock::new());
    let mirror = Arc::new(mirrored(pipeline));
    let restarts = pipeline.edges().iter().any(|edge| flag(edge.attributes.get("loop_restart")));
    let types = resolve(pipeline, registry, (start, exit))?;
    let mut outgoing = vec![Vec::new(); pipeline.nodes().len()];
    for (at, edge) in pipeline.edges().iter().enumerate() {
        if let Some(from) = pipeline.position(&edge.from) {
            outgoing[from].push(at);
        }
    }
    let mut builder = Graph::<Context>::builder(pipeline.name());
    for (at, node) in pipeline.nodes().iter().enumerate() {
        let (name, handler) = &types[at];
        handler.check(node, pipeline)?;
        let ways = Arc::new(ways(pipeline, at, &outgoing[at], &types, at == exit)?);
        let policy = retry(pipeline, node)?;
        let role = match at {
            at if at == start => Role::Start { mirror: Arc::clone(&mirror), keep_input: restarts },
            at if at == exit => Role::Exit,
            _ => Role::Work,
        };
        let stage = StageNode {
            handler: Arc::clone(handler),
            node: Arc::new(node.clone()),
            pipeline: Arc::clone(&shared),
            ways: Arc::clone(&ways),
            attempts: policy.attempts(),
            timeout: if handler.times_itself() {
                None
            } else {
                node.attributes.get("timeout").and_then(Value::as_duration)
            },
            role,
            clock: Arc::<SystemClock>::clone(&clock),
        };
        builder = builder.add(node.id(), stage).effect(effect(node, handler.effect())?).retry(policy);
        builder = builder.revision(revision(pipeline, node, name, &outgoing[at]));
        if let Some(most) = max_visits(pipeline, node)? {
            builder = builder.max_visits(most);
        }
        builder = route(builder, node.id(), ways);
    }
    builder.entry(pipeline.nodes()[start].id()).build().map_err(|error| {
        invalid(format!("the graph of the pipeline cannot be made: {error}")).with_source(error)
    })
}

type Resolved = Vec<(String, Arc<dyn crate::handler::Handler>)>;

/// Finds the handler of each node. The start and the exit may be known by their names alone.
fn resolve(pipeline: &Pipeline, registry: &Registry, ends: (usize, usize)) -> Result<Resolved, Error> {
    let mut resolved = Vec::with_capacity(pipeline.nodes().len());
    for (at, node) in pipeline.nodes().iter().enumerate() {
        let named = |kind: &str| {
            let mut node = Node::new(node.shared_id());
            node.attributes.set("type", Value::string(kind));
            registry.resolve(&node)
        };
        resolved.push(match at {
            at if at == ends.0 => named("start")?,
            at if at == ends.1 => named("exit")?,
            _ => registry.resolve(node)?,
        });
    }
    Ok(resolved)
}

fn route(builder: GraphBuilder<Context>, from: &str, ways: Arc<Ways>) -> GraphBuilder<Context> {
    let targets = ways.targets();
    if targets.is_empty() {
        return builder;
    }
    builder.route(from, targets, move |context, cx| {
        let Ok(Some(sent)) = cx.output::<Sent>() else {
            // Only a stage sends an output here, and it always does.
            return Route::none();
        };
        match ways.next(&sent, context) {
            Next::Edge { to, .. } | Next::Jump { to, .. } => Route::to(to),
            Next::End | Next::Fail | Next::Unmet { .. } => Route::none(),
        }
    })
}

/// Says where a node can lead.
fn ways(
    pipeline: &Pipeline,
    at: usize,
    outgoing: &[usize],
    types: &Resolved,
    exit: bool,
) -> Result<Ways, Error> {
    let node = &pipeline.nodes()[at];
    let mut ways = Ways {
        edges: Vec::with_capacity(outgoing.len()),
        restarts: Vec::with_capacity(outgoing.len()),
        to_conditional: Vec::with_capacity(outgoing.len()),
        decides: types[at].0 == CONDITIONAL,
        retry_target: if exit { None } else { own_target(pipeline, node) },
        named: named(pipeline, &node.attributes),
        gates: Vec::new(),
    };
    for edge in outgoing.iter().map(|at| &pipeline.edges()[*at]) {
        let to = pipeline.position(&edge.to);
        ways.edges.push(Candidate {
            to: edge.to.to_string(),
            label: edge.label().into_owned(),
            condition: Condition::parse(&edge.condition())?,
            weight: edge.weight(),
        });
        ways.restarts.push(flag(edge.attributes.get("loop_restart")));
        ways.to_conditional.push(to.is_some_and(|to| types[to].0 == CONDITIONAL));
    }
    if exit {
        ways.named.extend(named(pipeline, &pipeline.attributes));
        let gates = pipeline.nodes().iter().filter(|node| node.is_goal_gate());
        let graph = || {
            let named = |key: &str, why| existing(pipeline, &pipeline.attributes.text(key), why);
            named("retry_target", Jump::OfGraph)
                .or_else(|| named("fallback_retry_target", Jump::FallbackOfGraph))
        };
        ways.gates = gates
            .map(|gate| Gate {
                node: gate.id().to_owned(),
                target: own_target(pipeline, gate).or_else(graph),
            })
            .collect();
    }
    Ok(ways)
}

/// Returns the nodes that there are of those that attributes name to jump to.
fn named(pipeline: &Pipeline, attributes: &Attributes) -> Vec<String> {
    let keys = ["retry_target", "fallback_retry_target"].iter();
    keys.filter_map(|key| pipeline.node(&attributes.text(key))).map(|node| node.id().to_owned()).collect()
}

/// Returns the node that a node itself names to jump to.
fn own_target(pipeline: &Pipeline, node: &Node) -> Option<(String, Jump)> {
    let named = |key: &str, why| existing(pipeline, &node.attributes.text(key), why);
    named("retry_target", Jump::Own).or_else(|| named("fallback_retry_target", Jump::Fallback))
}

/// Returns a target if there is such a node; lint has warned of the others.
fn existing(pipeline: &Pipeline, target: &str, why: Jump) -> Option<(String, Jump)> {
    pipeline.node(target).map(|node| (node.id().to_owned(), why))
}

/// Works out how often a node is tried: `max_retries`, else what the graph says, else what the preset says, else once.
fn retry(pipeline: &Pipeline, node: &Node) -> Result<RetryPolicy, Error> {
    let preset = node.attributes.text("retry_policy");
    let (policy, attempts) = match &*preset {
        "" => (RetryPolicy::standard(), None),
        "none" => (RetryPolicy::none(), Some(1)),
        "standard" => (RetryPolicy::standard(), Some(RetryPolicy::standard().attempts())),
        "aggressive" => (RetryPolicy::aggressive(), Some(RetryPolicy::aggressive().attempts())),
        "linear" => (RetryPolicy::linear(), Some(RetryPolicy::linear().attempts())),
        "patient" => (RetryPolicy::patient(), Some(RetryPolicy::patient().attempts())),
        other => return Err(invalid(format!("node {}: there is no retry policy `{other}`", node.id()))),
    };
    let count = |value: Option<&Value>| value.and_then(Value::as_integer);
    let of_graph = || {
        let graph = &pipeline.attributes;
        count(graph.get("default_max_retries")).or_else(|| count(graph.get("default_max_retry")))
    };
    let retries = match (count(node.attributes.get("max_retries")), attempts) {
        (Some(own), _) => own,
        (None, Some(attempts)) => i64::from(attempts) - 1,
        (None, None) => of_graph().unwrap_or(0),
    };
    let attempts =
        u32::try_from(retries).ok().and_then(|retries| retries.checked_add(1)).ok_or_else(|| {
            invalid(format!("node {}: {retries} retries are out of range; use a smaller number", node.id()))
        })?;
    Ok(policy.with_attempts(attempts))
}

fn max_visits(pipeline: &Pipeline, node: &Node) -> Result<Option<u32>, Error> {
    let own = node.attributes.get("max_visits").and_then(Value::as_integer);
    let graph = || pipeline.attributes.get("max_node_visits").and_then(Value::as_integer);
    match own.or_else(graph).unwrap_or(0) {
        0 => Ok(None),
        most => u32::try_from(most).map(Some).map_err(|_| {
            invalid(format!("node {}: {most} visits are out of range; use a smaller number", node.id()))
        }),
    }
}

/// Returns what repeating the node means: what it says itself by `effect`, else what its handler says.
fn effect(node: &Node, of_handler: Effect) -> Result<Effect, Error> {
    Ok(match &*node.attributes.text("effect") {
        "" => of_handler,
        "pure" => Effect::Pure,
        "read" => Effect::Read,
        "write" => Effect::Write,
        "external" => Effect::External,
        other => {
            let message = format!(
                "node {}: there is no effect `{other}`; write `pure`, `read`, `write` or `external`",
                node.id()
            );
            return Err(invalid(message));
        }
    })
}

/// Names what a node says, so that a run that is within it does not go on with another meaning unasked.
fn revision(pipeline: &Pipeline, node: &Node, kind: &str, outgoing: &[usize]) -> String {
    let mut parts = vec![kind.to_owned()];
    parts.extend(node.attributes.iter().map(ToString::to_string));
    for edge in outgoing.iter().map(|at| &pipeline.edges()[*at]) {
        parts.push(edge.to.to_string());
        parts.extend(edge.attributes.iter().map(ToString::to_string));
    }
    digest(&parts)
}

/// Returns what the context holds of the graph's attributes.
fn mirrored(pipeline: &Pipeline) -> Map<String, Json> {
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

fn flag(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or(false)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation("dot.compile")
}
