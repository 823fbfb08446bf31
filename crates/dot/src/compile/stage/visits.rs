//! Limits loops that never wait: counts the visits of a node since the last wait of the run.

use ferrata_core::node::NodeError;
use ferrata_core::state::Context;
use serde_json::{Value as Json, json};

use super::update::ContextChanges;
use super::{BranchResults, StageNode};

/// The context key of the number of waits for a person, for a time or for a child.
pub(super) const WAITS: &str = "internal.waits";

/// Prefix of the context keys of visit counts. Each value has the number of waits of the run, and the visits of a node since the last wait.
pub(super) const VISITS: &str = "internal.visits.";

/// The number of visits of a node since the last wait of the run.
#[derive(Clone, Copy)]
pub(super) struct VisitCount {
    waits: u64,
    since: u64,
}

fn waits(context: &Context) -> u64 {
    context.get_value(WAITS).and_then(Json::as_u64).unwrap_or(0)
}

impl StageNode {
    /// Counts this visit. Returns `None` if visits are not counted, because the node is not in a loop or the pipeline sets its own limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the run visited the node too often without a wait.
    pub(super) fn count_visit(&self, context: &Context) -> Result<Option<VisitCount>, NodeError> {
        let Some(most) = self.visits else { return Ok(None) };
        let waits = waits(context);
        let before = context.get_value(&format!("{VISITS}{}", self.node.id()));
        let number = |at: usize| before.and_then(|before| before.get(at)?.as_u64());
        let since = match (number(0), number(1)) {
            (Some(at), Some(since)) if at == waits => since + 1,
            _ => 1,
        };
        if since > u64::from(most) {
            let message = format!(
                "the run came to `{}` more than {most} times and never waited for a person or for time; if that is meant, \
                 set `max_node_visits` of the graph or `max_visits` of the node, 0 for any number",
                self.node.id()
            );
            return Err(NodeError::new(message).fatal().not_done());
        }
        Ok(Some(VisitCount { waits, since }))
    }

    /// Adds the visit count to the changes. If this node waited, or a branch that met here did, also adds the wait.
    pub(super) fn add_visit(
        &self,
        changes: &mut ContextChanges,
        context: &Context,
        count: Option<VisitCount>,
        has_waited: bool,
        results: Option<&BranchResults>,
    ) {
        if let Some(VisitCount { waits, since }) = count {
            changes.set(format!("{VISITS}{}", self.node.id()), json!([waits, since]));
        }
        if has_waited || results.is_some_and(|results| results.has_set(WAITS)) {
            changes.set(WAITS, waits(context) + 1);
        }
    }
}
