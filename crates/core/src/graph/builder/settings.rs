//! Settings of a whole graph.

use std::time::Duration;

use super::GraphBuilder;
use crate::graph::GraphIssue;
use crate::state::{Context, Reducer, State};

impl<S: State> GraphBuilder<S> {
    /// Sets the version of the workflow, 1 to 256 bytes without control characters. The default is `1`.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.outline.version = version.into();
        self
    }

    /// Sets the maximum number of activations in one run, at least 1. A run that exceeds this limit fails.
    ///
    /// The default is 10,000 for a graph with a loop, which stops an endless loop before it becomes expensive. A graph without loops has no limit by
    /// default. The edge of a [conversation](Self::conversation) back to itself does not count as a loop. Raise the limit for loops with many rounds,
    /// or remove it with [`unlimited_steps`](Self::unlimited_steps).
    pub fn max_steps(mut self, steps: u64) -> Self {
        (self.outline.max_steps, self.outline.unlimited) = (Some(steps), false);
        self
    }

    /// Removes the limit on activations, even if the graph has a loop. Use this for runs that continue until they are stopped. Without a limit, a run
    /// in an endless loop writes records forever.
    pub fn unlimited_steps(mut self) -> Self {
        (self.outline.max_steps, self.outline.unlimited) = (None, true);
        self
    }

    /// Sets how often one run may return to nodes by [`Route::revisit`](crate::graph::Route::revisit), summed over all nodes. By default only the
    /// limit of each node applies ([`max_replans`](Self::max_replans)). A run that exceeds the total limit fails.
    pub fn max_replans_total(mut self, replans: u32) -> Self {
        self.outline.max_replans_total = Some(replans);
        self
    }

    /// Sets the maximum total time of one run, more than zero. By default there is no limit. A run that exceeds this time fails.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.outline.deadline = Some(deadline);
        self
    }

    /// Sets the maximum number of concurrent activations in one run, at least 1. By default there is no limit.
    ///
    /// A higher limit finishes wide graphs sooner. A lower limit protects the systems that the nodes call.
    pub fn concurrency(mut self, activations: u32) -> Self {
        self.outline.concurrency = Some(activations);
        self
    }

    /// Sets the node where a run continues if a [goal](Self::goal_gate) is not met or no edge handles a failure. The fallback applies to nodes
    /// without a [retry target](Self::retry_target).
    ///
    /// The run jumps to that node without an edge, so no join of the graph waits for this jump.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.outline.fallback = Some(name.into());
        self
    }
}

impl GraphBuilder<Context> {
    /// Sets the version of the stored form of the context. The default is 1. Raise the version when the code expects another stored form, and declare
    /// with [`migrate`](Self::migrate) how to convert older runs.
    pub fn state_version(mut self, version: u32) -> Self {
        self.outline.schema = self.outline.schema.with_version(version);
        self
    }

    /// Declares a channel of the context and the reducer that joins updates to it. A channel that is not declared has [`Reducer::Last`].
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

    /// Makes a channel of the context secret, like `#[state(secret)]` on a field: displays of the state show `…` instead of the channel's values. If
    /// the channel needs a reducer, [declare](Self::channel) it before this call. This call itself declares a channel that is not declared yet.
    pub fn secret(mut self, name: impl Into<String>) -> Self {
        self.outline.schema = self.outline.schema.with_secret(name.into());
        self
    }
}
