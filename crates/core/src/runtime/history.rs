//! Operations on logs: history, forks, checks, copies and retention.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fleet::sweeper::sweep_part;
use super::requests::fork::ForkRequest;
use super::requests::import::import;
use super::requests::run_writer::ConflictRetries;
use super::requests::signal::SignalRequest;
use super::runtime::Runtime;
use super::tasks::finish;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{HeadRef, NodeName, RunKey, Seq};
use crate::past::retention::{self, RetentionPolicy};
use crate::past::sweep::{SweepLimits, SweepReport};
use crate::past::{
    self, Ancestor, CheckedLog, Checkpoint, Diff, LoggedGraph, Position, ReasonCache, RunExplanation,
    TimelineEntry,
};
use crate::record::RecordHeader;
use crate::record::body::SignalKind;
use crate::state::{Channels, Secrets, State};
use crate::store::{At, Page, Paged, Removed, RunHead};
use crate::verify::{Verified, verify};

impl Runtime {
    /// Lists the records of a run page by page, without reading their bodies. The newest come first, unless the page asks for the oldest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a cursor of another run or order, and the errors of
    /// [`CheckpointStore::headers`](crate::store::CheckpointStore::headers).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn history(&self, run: &RunKey, page: Page) -> Result<Paged<RecordHeader>> {
        past::page(&**self.store(), run, &page).await
    }

    /// Returns the state of a run at a position in its log.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run or position, or pruned), [`ErrorKind::GraphChanged`] (the graph does not know the state's version),
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn state_at<S: State>(
        &self,
        graph: &Graph<S>,
        run: &RunKey,
        at: impl Into<Position>,
    ) -> Result<S> {
        let at = at.into().find(&**self.store(), run).await?;
        let folded = past::folded_at(&**self.store(), run, at, None).await?;
        let channels = graph.migrated(&folded.channels, folded.version);
        channels
            .and_then(|channels| S::from_channels(channels, graph.schema()))
            .map_err(|error| error.with_run(run))
    }

    /// Returns the untyped state of a run at a position in its log, in its stored form.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run or position, or pruned), [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn channels_at(&self, run: &RunKey, at: impl Into<Position>) -> Result<Channels> {
        let at = at.into().find(&**self.store(), run).await?;
        Ok(past::folded_at(&**self.store(), run, at, None).await?.channels)
    }

    /// Returns the state of a run at a position in its log for display: [`HIDDEN`](crate::state::HIDDEN) replaces the value of each
    /// [secret](Self::secrets) channel.
    ///
    /// # Errors
    ///
    /// The errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn redacted_state_at(
        &self,
        run: &RunKey,
        at: impl Into<Position>,
    ) -> Result<serde_json::Value> {
        let at = at.into().find(&**self.store(), run).await?;
        past::shown_at(&**self.store(), run, at).await
    }

    /// Returns the secret channels of a run. A channel is secret at every position if any process that started or claimed the run declared it
    /// so.
    ///
    /// # Errors
    ///
    /// The errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn secrets(&self, run: &RunKey) -> Result<Secrets> {
        past::secrets(&**self.store(), run).await
    }

    /// Describes the events of a run in words, from record `from` on, oldest first. `Seq::new(0)` covers all existing records.
    ///
    /// The text contains output of nodes, answers and errors, so it is as secret as the run.
    ///
    /// # Errors
    ///
    /// The errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn timeline(&self, run: &RunKey, from: Seq) -> Result<Vec<TimelineEntry>> {
        past::timeline(&**self.store(), run, from).await
    }

    /// Returns everything in the log about a run as of a position, secrets included; [`Checkpoint::hide_secrets`] removes them. Reads the whole
    /// remaining log.
    ///
    /// # Errors
    ///
    /// The errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn checkpoint(&self, run: &RunKey, at: impl Into<Position>) -> Result<Checkpoint> {
        let at = at.into().find(&**self.store(), run).await?;
        let (mut checkpoint, _) = past::checkpoint(&**self.store(), run, at).await?;
        if at != At::Latest {
            checkpoint.secret = self.secrets(run).await?;
        }
        Ok(checkpoint)
    }

    /// Returns the [`checkpoint`](Self::checkpoint), and from the same read the run's graph as its log describes it: the nodes, and the edges
    /// that did not fire. It knows the channels that were secret by that position.
    ///
    /// # Errors
    ///
    /// The errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn checkpoint_and_graph(
        &self,
        run: &RunKey,
        at: impl Into<Position>,
    ) -> Result<(Checkpoint, LoggedGraph)> {
        let at = at.into().find(&**self.store(), run).await?;
        past::checkpoint(&**self.store(), run, at).await
    }

    /// Explains the status of a run: its failure, its open questions, its waits and its owner. If a run waits for runs of its nodes, it explains
    /// those as well.
    ///
    /// Each reason is the predicate of a sentence about the run. `head` is the head of the run as the caller read it, and `cache` holds results
    /// of earlier log reads.
    ///
    /// # Errors
    ///
    /// The errors of [`checkpoint`](Self::checkpoint). An unreadable child is a reason and no error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::ask::Ask;
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::{ReasonCache, Runtime};
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let ask = |_: &Context| Ask::<bool>::new("Pay 120 EUR?");
    /// # let graph = Graph::<Context>::builder("pay").gate("approve", ask, |_, _| ()).entry("approve").build()?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?;
    /// let head = runtime.head(run.run()).await?.ok_or("purged")?;
    /// let why = runtime.explain(&head, &ReasonCache::new()).await?.reasons;
    /// assert_eq!(why[0].text, "asks `approve@1:gate`: Pay 120 EUR?");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn explain(&self, head: &RunHead, cache: &ReasonCache) -> Result<RunExplanation> {
        past::explain(&**self.store(), head, cache, self.clock().now()).await
    }

    /// Finds a node in the graph of the run's last driver. It reads the run's log and needs no graph.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`]: there is no such run, or the graph has no such node, and the message has the closest name.
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn find_node(&self, run: &RunKey, name: &str) -> Result<NodeName> {
        past::find_node(&**self.store(), run, name).await
    }

    /// Lists the nodes in the graph of the run's last driver, including nodes that the run has not reached. It reads the run's log and needs no
    /// graph.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn node_names(&self, run: &RunKey) -> Result<Vec<NodeName>> {
        past::node_names(&**self.store(), run).await
    }

    /// Returns the change from the state at one position to the state at another, secrets included; [`Diff::redacted`] omits them.
    ///
    /// # Errors
    ///
    /// The errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn diff(
        &self,
        run: &RunKey,
        from: impl Into<Position>,
        to: impl Into<Position>,
    ) -> Result<Diff> {
        let store = &**self.store();
        let mut states = Vec::with_capacity(2);
        for position in [from.into(), to.into()] {
            let at = position.find(store, run).await?;
            let channels = past::folded_at(store, run, at, None).await?.channels;
            states.push(serde_json::from_str::<serde_json::Value>(&channels.to_json()?).map_err(
                |source| {
                    Error::new(ErrorKind::Corrupt, "the state is not JSON").with_run(run).with_source(source)
                },
            )?);
        }
        Ok(Diff::between(&states[0], &states[1]))
    }

    /// Lists a run and the runs from which it was forked, oldest first. A purged source is the oldest, with no status.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run), [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn lineage(&self, run: &RunKey) -> Result<Vec<Ancestor>> {
        past::lineage(&**self.store(), run).await
    }

    /// Describes the course of a run in Markdown: each record with its content and the reason for the run's next step.
    ///
    /// The text contains the state without [secrets](Self::secrets), so it is as secret as the run.
    ///
    /// # Errors
    ///
    /// The errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn post_mortem(&self, run: &RunKey) -> Result<String> {
        past::post_mortem(&**self.store(), run).await
    }

    /// Creates a new run that continues from a position in the log of another run, whatever that run's status. The source stays unchanged, byte
    /// for byte. The new run inherits tenant, user, labels and answers, asks open questions again, and has new idempotency keys.
    ///
    /// With [`drive`](ForkRequest::drive), this process drives the new run with its current graph. Without it, the new run has no owner, and a
    /// process that serves its workflow claims it.
    ///
    /// A cancelled run is forked at the last record before its cancellation. If that record is pruned, set [`start_at`](ForkRequest::start_at).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: no such run, position or node. Without a graph, only nodes that the source's log names are known.
    /// - [`ErrorKind::AlreadyExists`]: another run has the new id. Repeating a fork under the same id returns the same fork.
    /// - [`ErrorKind::GraphChanged`]: the graph lacks a node of the run's frontier there.
    /// - [`ErrorKind::Invalid`]: an edit does not fit the state, or the run has nothing left to do at that position.
    ///
    /// None of these cases writes anything.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::{Position, Runtime};
    /// # use ferrata_core::state::{Context, Op, Patch};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("sum").node("add", async |_cx, s| Ok(s)).entry("add").build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let run = runtime.start(&graph, Context::new()).await?;
    /// # run.wait().await?;
    /// # let source = run.run();
    /// let ten = Patch::from_ops(&[Op::Set("n".into(), 10.into())])?;
    /// let fork = runtime.fork(source, Position::Latest).id("ten").start_at("add").edit(ten);
    /// let state = fork.drive(&graph).await?.completed().await?;
    /// assert_eq!(state.get::<u32>("n")?, Some(10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork(&self, source: &RunKey, at: impl Into<Position>) -> ForkRequest {
        ForkRequest::new(self.shared(), source, at.into())
    }

    /// Replays a run against a graph without running any node, and finds the first divergent record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`]. A difference is no error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn verify<S: State>(&self, graph: &Graph<S>, run: &RunKey) -> Result<Verified> {
        verify(&**self.store(), graph, run).await
    }

    /// Checks the whole remaining log of a run for consistency, without application code. It verifies all checksums and links, that each record
    /// follows from the records before it, and that each base matches the records up to it. If another program claimed the run or edited its
    /// state since the base before, fields that only one of the two has do not count: a state type writes only the fields it knows. A prune
    /// meanwhile is harmless: the check covers the remaining records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] naming the record, [`ErrorKind::Unsupported`] (a record of a newer version), [`ErrorKind::NotFound`],
    /// [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn check_log(&self, run: &RunKey) -> Result<CheckedLog> {
        past::check_log(&**self.store(), run).await
    }

    /// Exports the remaining records of a run as text, one JSON object per line. The text contains secrets, since the records do.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`]; [`ErrorKind::Unsupported`] if the bodies are in envelopes,
    /// and the store of this runtime is not the `EnvelopeStore` that opens them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn export(&self, run: &RunKey) -> Result<String> {
        past::export(&**self.store(), run, None).await
    }

    /// Exports the records of a run before `before`, like [`export`](Self::export), for example those before a damaged record. An
    /// [`import`](Self::import) of the text restores the run as it was then.
    ///
    /// # Errors
    ///
    /// The errors of [`export`](Self::export); [`ErrorKind::NotFound`] also if no such record exists.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn export_before(&self, run: &RunKey, before: Seq) -> Result<String> {
        past::export(&**self.store(), run, Some(before)).await
    }

    /// Imports an exported run into the store, under its own key or another. The import is atomic. Repeating it returns the same run, until
    /// a writer appends to the run or prunes it. A run that has not ended has no owner: resume it, or serve its workflow.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::Invalid`] (naming the line), [`ErrorKind::Corrupt`] (a record's checksum),
    /// [`ErrorKind::Unsupported`] (a newer version). None of these cases changes the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the request completes even if the caller drops it.
    pub async fn import(&self, text: &str, run: Option<RunKey>) -> Result<RunKey> {
        let (shared, text) = (Arc::clone(self.shared()), text.to_owned());
        finish(async move { import(&shared, &text, run).await }).await
    }

    /// Prunes one run by a policy. Returns the number of removed records and bytes of bodies.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::prune`](crate::store::CheckpointStore::prune). The run can continue in any case.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the request completes even if the caller drops it.
    pub async fn apply_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<(u64, u64)> {
        let (store, run, policy) = (Arc::clone(self.store()), run.clone(), policy.clone());
        let now = self.shared().clock.now();
        finish(async move { retention::prune(&*store, &run, &policy, now, false).await }).await
    }

    /// Returns the number of records and bytes of bodies that [`apply_retention`](Self::apply_retention) would remove now.
    ///
    /// # Errors
    ///
    /// The errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn preview_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<(u64, u64)> {
        retention::prune(&**self.store(), run, policy, self.shared().clock.now(), true).await
    }

    /// Prunes and removes runs of the store by a policy, one part per call. Continue with the report's cursor until there is none. A `dry` sweep
    /// only reports. If a run cannot be processed, the sweep reports it and continues.
    ///
    /// It runs at full speed unless the limits make it pause: [`SweepLimits::gentle`] suits a sweep next to active runs.
    /// [`RuntimeBuilder::sweeper`](super::RuntimeBuilder::sweeper) sweeps automatically.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::runs`](crate::store::CheckpointStore::runs); [`ErrorKind::Invalid`] for a [nice
    /// ratio](SweepLimits::nice_ratio) that is out of range. Neither changes anything.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, it completes this part, pauses included, even if the caller drops it.
    pub async fn sweep(
        &self,
        policy: &RetentionPolicy,
        limits: SweepLimits,
        dry: bool,
    ) -> Result<SweepReport> {
        let (shared, policy) = (Arc::clone(self.shared()), policy.clone());
        finish(async move { sweep_part(&shared, &policy, limits, dry).await }).await
    }

    /// Protects a record and its successors from every policy, until [`unpin`](Self::unpin). It does not check that the record exists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run), [`ErrorKind::AlreadyExists`] (already pinned).
    pub fn pin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Pin { seq }))
    }

    /// Removes the protection of a pinned record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run, or not pinned).
    pub fn unpin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Unpin { seq }))
    }

    /// Removes a run and all its traces from the store, and returns a summary. Its id is free again, and writers of the old generation cannot
    /// write to a new run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] if the run is active in this process (cancel it first), if a child that ends with it is active, or if its
    /// parent has not yet noted its start or its result. The message names that run and the next move.
    /// [`ErrorKind::Unavailable`]: some of it may be left, or others kept writing to it; purge again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the request completes even if the caller drops it.
    pub async fn purge(&self, run: &RunKey) -> Result<Removed> {
        self.purge_run(run, None).await
    }

    /// Purges the run like [`purge`](Self::purge), if `head` is still its last record. Use it after an operator confirmed the removal of the run
    /// in that state.
    ///
    /// # Errors
    ///
    /// The errors of [`purge`](Self::purge), and [`ErrorKind::Conflict`] if the run has changed since. Neither removes anything.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the request completes even if the caller drops it.
    pub async fn purge_at(&self, run: &RunKey, head: HeadRef) -> Result<Removed> {
        self.purge_run(run, Some(head)).await
    }

    /// Checks that [`purge`](Self::purge) would succeed for each of these runs in order. It removes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] as for [`purge`](Self::purge), for the first run that fails the check.
    pub async fn check_purge(&self, runs: &[RunKey]) -> Result<()> {
        let mut before = BTreeSet::new();
        for run in runs {
            self.shared().check_not_driven(run)?;
            past::run_tree::check_purge(&*self.shared().store, run, &before).await?;
            before.insert(run);
        }
        Ok(())
    }

    async fn purge_run(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.shared().check_not_driven(run)?;
        let (shared, run) = (Arc::clone(self.shared()), run.clone());
        finish(async move {
            let mut races = ConflictRetries::new();
            loop {
                let seen = past::run_tree::check_purge(&*shared.store, &run, &BTreeSet::new()).await?;
                match shared.purge(&run, expected.or(seen)).await {
                    // A record since the check may hold a waiting outbox message or an active child.
                    Err(error) if error.kind() == ErrorKind::Conflict && expected.is_none() => {
                        races.count_conflict(&run).await?;
                    }
                    purged => return purged,
                }
            }
        })
        .await
    }
}
