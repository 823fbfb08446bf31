//! The changes that an outcome makes to the context.

use std::collections::HashSet;

use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::{Context, ContextUpdate};
use serde_json::{Map, Value as Json, json};

use super::{NodeRole, StageNode};
use crate::attribute::is_read_of_graph;
use crate::compile::branch::{self, BranchResults};
use crate::compile::plan::{GATES, gate_key};
use crate::compile::stage::restart::INPUT;
use crate::fidelity::{FidelityChoice, LAST, STAGES};
use crate::handler::RESULTS;
use crate::outcome::StageOutcome;
use crate::run_dir;
use crate::suggest::shortened;
use crate::variable::{GOAL, expand};

/// Maximum number of characters of a text that is stored for later tasks: about a paragraph.
const KEPT: usize = 500;

/// The changes of the context, by key. A key without a value is removed.
#[derive(Default)]
pub(super) struct ContextChanges(Vec<(String, Option<Json>)>);

impl ContextChanges {
    pub(super) fn set(&mut self, key: impl Into<String>, value: impl Into<Json>) {
        self.0.push((key.into(), Some(value.into())));
    }

    /// Converts the changes to an update of the branch. Without a branch, the update changes the context itself.
    pub(super) fn into_update(self, branch: Option<&str>) -> ContextUpdate {
        let update = Context::update();
        let Some(branch) = branch else {
            let change = |update: ContextUpdate, (key, value)| match value {
                Some(value) => update.set(key, value),
                None => update.remove(key),
            };
            return self.0.into_iter().fold(update, change);
        };
        // A branch cannot remove a key of the enclosing context, so it stores `null` instead.
        let set: Map<String, Json> =
            self.0.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect();
        if set.is_empty() { update } else { update.merge(branch::channel(branch), set) }
    }
}

impl StageNode {
    /// Computes the changes that an outcome makes, and the context after them.
    pub(super) fn changes(
        &self,
        outcome: &StageOutcome,
        results: Option<&BranchResults>,
        after: &mut Context,
        left: bool,
        told: &FidelityChoice,
        cx: &NodeContext,
    ) -> Result<ContextChanges, NodeError> {
        let mut all = ContextChanges::default();
        if let NodeRole::Start { mirror, keep_input } = &self.role {
            if *keep_input {
                let input: Map<String, Json> =
                    after.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
                all.set(INPUT, input);
            }
            self.mirror(mirror, after, &mut all)?;
        }
        for (key, value) in &outcome.context_updates {
            if key.starts_with("internal.") {
                let message =
                    format!("the outcome sets `{key}`; nodes cannot set keys that begin with `internal.`");
                return Err(NodeError::new(message).fatal());
            }
            all.set(key, value.clone());
        }
        all.set("current_node", self.node.id());
        all.set("outcome", outcome.word());
        for (key, text) in
            [("preferred_label", &outcome.preferred_label), ("failure_reason", &outcome.failure_reason)]
        {
            // Remove the keys that this outcome does not set. Otherwise an old label would route a node for which it was not intended.
            all.0.push((key.to_owned(), (!text.is_empty()).then(|| text.as_str().into())));
        }
        // If a branch was abandoned, the goal of its gate does not count as missed.
        if self.node.is_goal_gate() && !left {
            all.set(gate_key(self.node.id()), outcome.status.as_str());
        }
        if let Some(results) = results {
            results.gates(GATES).into_iter().for_each(|(key, value)| all.set(key, value));
        }
        if self.told_of && !left {
            all.set(format!("{STAGES}{}", self.node.id()), self.kept_result(outcome, after, cx));
            if self.handler.is_task() {
                all.set(LAST, told.kept(&format!("{}:{}", self.node.id(), cx.visit())));
            }
        }
        all.reduced(after)
    }

    /// Copies the attributes of the graph into the context. The input of the run takes precedence for the goal, and for attributes that the engine
    /// does not read.
    fn mirror(
        &self,
        mirror: &Map<String, Json>,
        input: &Context,
        all: &mut ContextChanges,
    ) -> Result<(), NodeError> {
        let given = |key: &str| {
            // If the run returns to its start, the values of the first start apply.
            let is_first = input.get_value("current_node").is_none();
            input.get_value(key).filter(|value| is_first && !value.is_null())
        };
        let read = |key: &str| key.strip_prefix("graph.").is_some_and(is_read_of_graph);
        if let Some(key) = input.keys().find(|key| read(key) && given(key).is_some()) {
            let message = format!(
                "the input sets `{key}`, which only the pipeline file can set; set `{key}` in the file"
            );
            return Err(NodeError::new(message).fatal().not_done());
        }
        for (key, value) in mirror {
            let value = given(key).unwrap_or(value).clone();
            let value = match &value {
                Json::String(goal) if key == GOAL => {
                    let goal = expand(goal, input)
                        .map_err(|why| NodeError::new(format!("the goal: {why}")).fatal())?;
                    Json::from(&*goal)
                }
                _ => value,
            };
            all.set(key, value);
        }
        Ok(())
    }

    /// Returns the names of texts in the context that look like texts of this node but that other nodes wrote. A record contains only changes, so a
    /// reader of the log could not tell them from texts that the node set to the same value.
    pub(super) fn foreign_texts(&self, outcome: &StageOutcome, context: &Context) -> Vec<String> {
        let mut shown = run_dir::attempt_keys(&self.node);
        let is_there = |key: &str| context.get_value(key).is_some_and(|value| !value.is_null());
        shown.retain(|key| !outcome.context_updates.contains_key(key) && is_there(key));
        shown
    }

    /// Returns the result of the node in the form that is stored for later tasks.
    fn kept_result(&self, outcome: &StageOutcome, context: &Context, cx: &NodeContext) -> Json {
        let at = |(key, value): (&str, &Json)| {
            key.strip_prefix(STAGES)?;
            value.get("at")?.as_u64()
        };
        let at = context.iter().filter_map(at).max().unwrap_or(0) + 1;
        let mut kept = json!({"at": at, "visit": cx.visit().get(), "outcome": outcome.status.as_str()});
        if outcome.context_updates.contains_key(RESULTS) {
            kept["joined"] = true.into();
        }
        let output = outcome.context_updates.get("tool.output").and_then(Json::as_str).unwrap_or_default();
        for (key, text) in
            [("notes", &*outcome.notes), ("reason", &*outcome.failure_reason), ("output", output)]
        {
            if !text.is_empty() {
                kept[key] = shortened(text, KEPT).into();
            }
        }
        kept
    }
}

impl ContextChanges {
    /// Removes changes that have no effect, and applies the other changes to `after`.
    fn reduced(self, after: &mut Context) -> Result<Self, NodeError> {
        let mut kept: Vec<(String, Option<Json>)> = Vec::new();
        let mut seen = HashSet::new();
        for (key, value) in self.0 {
            let known = after.get_value(&key).filter(|known| !known.is_null());
            if known == value.as_ref().filter(|value| !value.is_null()) {
                continue;
            }
            match &value {
                Some(value) => {
                    after.set(key.clone(), value).map_err(|error| NodeError::new(error).fatal())?
                }
                // Both values count as absent. `null` marks a key that a branch removed.
                None => after.set(key.clone(), Json::Null).map_err(|error| NodeError::new(error).fatal())?,
            }
            if !seen.insert(key.clone()) {
                kept.retain(|(old, _)| *old != key);
            }
            kept.push((key, value));
        }
        Ok(Self(kept))
    }
}
