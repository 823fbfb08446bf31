//! What is set for a graph as a whole.

use std::time::Duration;

use super::GraphBuilder;
use crate::graph::issue::GraphIssue;
use crate::state::{Context, Reducer, State};

impl<S: State> GraphBuilder<S> {
    /// Sets the version of the workflow, 1 to 256 bytes without control characters; `1` unless set.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.outline.version = version.into();
        self
    }

    /// Sets how many activations one run may have, at least 1. A run that would go beyond it fails.
    ///
    /// Unless set, a graph with a loop has 10,000, so that a loop that does not end is found by its failure and not by its cost, and
    /// a graph without any has no limit. The way of a [conversation](Self::conversation) back to itself is no such loop. More is for
    /// loops that are meant to go on for long; see also [`unlimited_steps`](Self::unlimited_steps).
    pub fn max_steps(mut self, steps: u64) -> Self {
        (self.outline.max_steps, self.outline.unlimited) = (Some(steps), false);
        self
    }

    /// Lets a run have any number of activations, also where the graph has a loop: for runs that go on until they are told to end.
    /// A loop that never ends writes records for ever.
    pub fn unlimited_steps(mut self) -> Self {
        (self.outline.max_steps, self.outline.unlimited) = (None, true);
        self
    }

    /// Sets how often one run may go back to nodes by [`Route::revisit`](crate::graph::Route::revisit), all nodes together; no
    /// limit unless set, beside that of each node ([`max_replans`](Self::max_replans)). A run that would go beyond it fails.
    pub fn max_replans_total(mut self, replans: u32) -> Self {
        self.outline.max_replans_total = Some(replans);
        self
    }

    /// Sets how long one run may take in all, more than zero; no limit unless set. A run that takes longer fails.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.outline.deadline = Some(deadline);
        self
    }

    /// Sets how many activations of one run may be in flight at once, at least 1; no limit unless set.
    ///
    /// More finishes wide graphs sooner; fewer spares what the nodes call.
    pub fn concurrency(mut self, activations: u32) -> Self {
        self.outline.concurrency = Some(activations);
        self
    }

    /// Says where a run goes when a goal is not met, or a failure is not taken, at a node without a retry target of its own.
    ///
    /// That is a jump and not an edge: no join waits for what may come by it.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.outline.fallback = Some(name.into());
        self
    }
}

impl GraphBuilder<Context> {
    /// Sets the version of the form that the context has; 1 unless set. Raise it when code reads what is stored otherwise, and
    /// say with [`migrate`](Self::migrate) how to bring older runs forward.
    pub fn state_version(mut self, version: u32) -> Self {
        self.outline.schema = self.outline.schema.with_version(version);
        self
    }

    /// Declares a channel of the context and how updates join it; a channel that is not declared has [`Reducer::Last`].
    pub fn channel(mut self, name: impl Into<String>, reducer: Reducer) -> Self {
        let name = name.into();
        let mut wrong = |message: String| self.outline.issues.push(GraphIssue::graph(message));
        if let Reducer::Custom { .. } = reducer {
            wrong(format!(
                "channel `{name}`: a context cannot call the reducer `{reducer}`; choose another, or use a struct with \
                 `#[derive(State)]`"
            ));
        }
        if self.outline.schema.channel_index(&name).is_some() {
            wrong(format!("channel `{name}`: is declared twice; remove one"));
        }
        self.outline.schema = self.outline.schema.with_channel(name, reducer);
        self
    }

    /// Makes a channel of the context secret, as `#[state(secret)]` does of a field: views show `…` in the place of its values. A channel
    /// with a reducer of its own is [declared](Self::channel) before; any other is declared by this.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub fn secret(mut self, name: impl Into<String>) -> Self {
        self.outline.schema = self.outline.schema.with_secret(name.into());
        self
    }
}
