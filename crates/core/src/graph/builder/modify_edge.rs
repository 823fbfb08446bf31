//! Builder methods that modify the last declared edges.

use std::sync::Arc;

use super::GraphBuilder;
use crate::graph::EdgeKind;
use crate::graph::GraphIssue;
use crate::graph::typed::Predicate;
use crate::state::State;

impl<S: State> GraphBuilder<S> {
    /// Fires the edges only if the predicate `holds` returns true for the state after the node's update.
    ///
    /// The predicate must depend only on the state, because it may be called again for the same activation.
    pub fn when(self, holds: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.of_kind("when", EdgeKind::When, Some(Arc::new(holds)))
    }

    /// Fires the edges only if no [`when`](Self::when) edge of their node fires.
    pub fn otherwise(self) -> Self {
        self.of_kind("otherwise", EdgeKind::Otherwise, None)
    }

    /// Fires the edges only if their node fails permanently. The edge then handles the failure, and the run continues.
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
                "calls `{modifier}` after `{}`; an edge has one kind, so declare another edge",
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
