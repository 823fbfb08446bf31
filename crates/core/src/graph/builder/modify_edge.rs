//! What modifies the edges that were declared last.

use std::sync::Arc;

use super::GraphBuilder;
use crate::graph::edge::EdgeKind;
use crate::graph::issue::GraphIssue;
use crate::graph::typed::Predicate;
use crate::state::State;

impl<S: State> GraphBuilder<S> {
    /// Lets the edges fire only if a predicate holds for the state after the node's update.
    ///
    /// It must depend on nothing but the state, since it may be called again for the same activation.
    pub fn when(self, holds: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.of_kind("when", EdgeKind::When, Some(Arc::new(holds)))
    }

    /// Lets the edges fire only if no [`when`](Self::when) edge of their node does.
    pub fn otherwise(self) -> Self {
        self.of_kind("otherwise", EdgeKind::Otherwise, None)
    }

    /// Lets the edges fire only if their node fails for good: the failure is taken, and the run goes on.
    pub fn on_failure(self) -> Self {
        self.of_kind("on_failure", EdgeKind::OnFailure, None)
    }

    fn of_kind(mut self, modifier: &str, kind: EdgeKind, predicate: Option<Arc<Predicate<S>>>) -> Self {
        let Some(range) = self.last_edges.clone() else {
            let message = format!("`{modifier}` has no edge to modify; call it right after `edge`");
            self.outline.issues.push(GraphIssue::graph(message));
            return self;
        };
        let edges = &mut self.outline.edges[range.clone()];
        if let Some(edge) = edges.first().filter(|edge| edge.kind != EdgeKind::Plain) {
            let message = format!(
                "is made `{modifier}` after `{}`; an edge is of one kind, so declare another edge",
                edge.kind
            );
            self.outline.issues.push(GraphIssue::edge(&edge.from, &edge.to, message));
            return self;
        }
        edges.iter_mut().for_each(|edge| edge.kind = kind);
        self.predicates[range].fill(predicate);
        self
    }
}
