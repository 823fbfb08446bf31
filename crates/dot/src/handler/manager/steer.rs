//! Steering: the task handler receives the state of the child, and its answer becomes an instruction for the child's next tasks.

use std::sync::Arc;

use ferrata_core::ErrorKind;
use ferrata_core::node::NodeError;
use ferrata_core::state::{Op, Patch};
use serde_json::Map;

use super::child::{ChildStatus, ManagedChild};
use crate::fidelity::STEERING;
use crate::handler::{Registry, Stage, response_key};
use crate::outcome::Usage;
use crate::pipeline::{DEFAULT_TYPE, Node};
use crate::suggest::beginning;
use crate::value::Value;
use crate::variable::expand;

/// Maximum number of characters of the child's context in a prompt.
const SHOWN: usize = 100_000;

/// Asks the task handler for instructions and stores them in the context of the child. Returns the usage. An empty answer changes nothing.
///
/// The cycle is recorded after the steering. If the process dies in between, the cycle repeats the steering with the same idempotency key.
pub(super) async fn steer(
    stage: &Stage,
    registry: &Registry,
    child: &ManagedChild<'_>,
    seen: &ChildStatus,
    cycle: u32,
) -> Result<Usage, NodeError> {
    // Create a task node with the manager's attributes for models, sessions and hooks.
    let mut node = Node::clone(&stage.node);
    node.attributes.set("type", Value::string(DEFAULT_TYPE));
    let known = serde_json::Value::Object(seen.context()).to_string();
    let task = stage.node.attributes.text("prompt");
    let task = if task.is_empty() { "Say what the pipeline is to do next, or nothing." } else { &*task };
    let task = expand(task, &stage.context).map_err(NodeError::new)?;
    let prompt = format!(
        "{task}\n\nThe pipeline is {}, in cycle {cycle} of its supervision. It knows:\n{}\n",
        seen.status(),
        beginning(&known, SHOWN)
    );
    node.attributes.set("prompt", Value::string(prompt));
    let (kind, handler) = registry.resolve(&node).map_err(NodeError::new)?;
    debug_assert_eq!(kind, DEFAULT_TYPE);
    let asked = Stage { node: Arc::new(node), is_expanded: true, ..stage.clone() };
    let outcome = handler.run(&asked).await.map_err(|error| match error.into_runtime() {
        Ok(error) => error,
        Err(error) => NodeError::new(format!("the steering request failed: {error}")),
    })?;
    let usage = outcome.usage.unwrap_or_default();
    let said =
        outcome.context_updates.get(&response_key(stage.node.id())).and_then(serde_json::Value::as_str);
    let said = said.unwrap_or_default().trim();
    // If the task failed, its answer only explains the failure, so the child gets no instructions.
    if said.is_empty() || !outcome.status.is_success() {
        return Ok(usage);
    }
    let said = Map::from_iter([(cycle.to_string(), said.into())]);
    let patch = Patch::from_ops(&[Op::Merge(STEERING.to_owned(), said)])?;
    match child.runtime().edit(child.key(), patch).check_with(child.graph()).by("manager").await {
        // The child has ended in between.
        Err(error) if error.kind() == ErrorKind::WrongStatus => Ok(usage),
        result => Ok(result.map(|_| usage)?),
    }
}
