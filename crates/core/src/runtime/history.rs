//! Methods of the runtime that work on the logs of runs: history, forks, checks, copies and retention.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fleet::sweeper::sweep_part;
use super::requests::fork::ForkRequest;
use super::requests::import::import;
use super::runtime::Runtime;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{HeadRef, NodeName, RunKey, Seq};
use crate::kernel::tasks::finish;
use crate::past::retention::{self, RetentionPolicy};
use crate::past::sweep::{SweepLimits, SweepReport};
use crate::past::{
    self, Ancestor, CheckedLog, Checkpoint, Diff, LoggedGraph, Position, ReasonCache, RedactedNumbers,
    RunExplanation, TimelineEntry,
};
use crate::record::RecordHeader;
use crate::record::body::SignalKind;
use crate::runtime::signals::signal::SignalRequest;
use crate::runtime::writes::run_writer::ConflictRetries;
use crate::state::{Channels, Secrets, State};
use crate::store::{At, Page, Paged, Removed, RunHead};
use crate::verify::{Verified, verify};

impl Runtime {
    /// Returns the run at a position of its log: its state, its frontier and its history. The result contains secrets; [`Checkpoint::hide_secrets`]
    /// removes them. The call reads the whole remaining log.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state_at`](Self::state_at).
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

    /// Returns the state of a run at a position in its log.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run or the position does not exist or was pruned, [`ErrorKind::GraphChanged`] if the graph does not
    /// know the version of the state, [`ErrorKind::Corrupt`] or [`ErrorKind::Unavailable`].
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
    /// Returns [`ErrorKind::NotFound`] if the run or the position does not exist or was pruned, [`ErrorKind::Corrupt`] or [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn channels_at(&self, run: &RunKey, at: impl Into<Position>) -> Result<Channels> {
        let at = at.into().find(&**self.store(), run).await?;
        Ok(past::folded_at(&**self.store(), run, at, None).await?.channels)
    }

    /// Lists the headers of a run's records page by page, without reading the bodies. The newest records come first, unless `page` asks for the
    /// oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the cursor belongs to another run or another order, and the errors of
    /// [`CheckpointStore::headers`](crate::store::CheckpointStore::headers).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn history(&self, run: &RunKey, page: Page) -> Result<Paged<RecordHeader>> {
        past::page(&**self.store(), run, &page).await
    }

    /// Describes the events of a run in words, oldest first, beginning with the record `from`. `Seq::new(0)` includes all records that still exist.
    ///
    /// The text contains outputs of nodes, answers and errors, so protect it like the data of the run.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn timeline(&self, run: &RunKey, from: Seq) -> Result<Vec<TimelineEntry>> {
        past::timeline(&**self.store(), run, from).await
    }

    /// Describes the history of a run in Markdown: each record with its content, and the reason for what the run did next.
    ///
    /// The text contains the values of all channels except [secret](Self::secrets) ones, so protect it like the data of the run.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn post_mortem(&self, run: &RunKey) -> Result<String> {
        past::post_mortem(&**self.store(), run).await
    }

    /// Returns the difference between the states at two positions of a log. The result contains secrets; [`Diff::redacted`] omits them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state_at`](Self::state_at).
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

    /// Lists a run and the runs from which it was forked, oldest first. If a source was purged, the list begins with this source, which then has no
    /// status.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, or [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn lineage(&self, run: &RunKey) -> Result<Vec<Ancestor>> {
        past::lineage(&**self.store(), run).await
    }

    /// Creates a new run (a fork) that continues from a position in the log of another run (the source), whatever the status of the source is. The
    /// log of the source does not change. The new run inherits tenant, user, labels and answers. It asks open questions again, and its activations
    /// have new idempotency keys.
    ///
    /// With [`drive`](ForkRequest::drive), this process drives the new run with its current graph. Without it, the new run has no owner, and a
    /// process that serves its workflow claims it.
    ///
    /// If the source is cancelled, the fork continues from the last record before the cancellation. If this record was pruned, you must set
    /// [`start_at`](ForkRequest::start_at).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run, the position or a node does not exist. Without a graph, only the nodes that the log of the source names
    ///   are known.
    /// - [`ErrorKind::AlreadyExists`]: another run has the new id. If you repeat the same fork with the same id, the call succeeds and returns the
    ///   existing fork.
    /// - [`ErrorKind::GraphChanged`]: the graph lacks a node that was unfinished at that position.
    /// - [`ErrorKind::Invalid`]: an edit does not fit the state, or the run has nothing left to do at that position.
    ///
    /// In all these cases the call writes nothing.
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

    /// Replays the log of a run with a graph, without running any node. The result reports the first record that the graph would not produce.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`] or [`ErrorKind::Unavailable`]. A difference is part of the result and not an error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn verify<S: State>(&self, graph: &Graph<S>, run: &RunKey) -> Result<Verified> {
        verify(&**self.store(), graph, run).await
    }

    /// Exports the remaining records of a run as text with one JSON object per line. The records contain secrets, so the text contains them too.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`], or [`ErrorKind::Unsupported`] if the bodies are
    /// compressed or encrypted and the runtime has no `EnvelopeStore` that can open them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn export(&self, run: &RunKey) -> Result<String> {
        past::export(&**self.store(), run, None, None).await
    }

    /// Imports an exported run into the store, with its own key or with the key `run`. The import is atomic. If you repeat the import, it returns the
    /// same run, until the run is appended to or pruned. If the imported run has not ended, it has no owner: resume it, or serve its workflow.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::AlreadyExists`] if another run has the key, [`ErrorKind::Invalid`] with the number of an invalid line,
    /// [`ErrorKind::Corrupt`] if the checksum of a record is wrong, or [`ErrorKind::Unsupported`] if a newer version of Ferrata wrote the text. In
    /// all these cases the store stays unchanged.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    pub async fn import(&self, text: &str, run: Option<RunKey>) -> Result<RunKey> {
        let (shared, text) = (Arc::clone(self.shared()), text.to_owned());
        finish(async move { import(&shared, &text, run).await }).await
    }

    /// Exports a run like [`export`](Self::export), but without the values of the application, for example for a bug report. If you
    /// [`import`](Self::import) the text, the copy has the same records, nodes, times and status, and the same kinds of failures.
    ///
    /// Placeholders replace all texts and, by default, numbers: in the state, outputs, results, questions, answers, messages and failures, in the names
    /// of users, and in the values of labels. Equal texts have equal placeholders. A placeholder also replaces the id of a run that is not a UUID.
    ///
    /// The text keeps names: those of nodes, workflows, versions, steps, questions, children, streams, topics and labels, and those of channels and
    /// fields that look like identifiers. It also keeps booleans, the times of records, and outcomes of pipeline nodes. Check that no name contains
    /// data.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`export`](Self::export).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::{Position, RedactedNumbers, Runtime};
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let graph = Graph::<Context>::builder("pay").node("send", async |_cx, s| Ok(s)).entry("send").build()?;
    /// let mut input = Context::new();
    /// input.set("card", "4000 0012 3456 7899")?;
    /// let run = runtime.start(&graph, input).id("order-of-ann").await?;
    /// run.wait().await?;
    /// let text = runtime.export_redacted(run.run(), RedactedNumbers::Zero).await?;
    /// assert!(!text.contains("4000 0012 3456 7899") && !text.contains("order-of-ann"));
    /// let copy = runtime.import(&text, None).await?;
    /// assert!(runtime.channels_at(&copy, Position::Latest).await?.get("card").is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn export_redacted(&self, run: &RunKey, numbers: RedactedNumbers) -> Result<String> {
        past::export(&**self.store(), run, None, Some(numbers)).await
    }

    /// Checks the whole remaining log of a run for consistency, without application code. It verifies all checksums and links, that each record
    /// follows from the records before it, and that each base (a record with the full state) matches the records before it. There is one exception.
    /// If a program with another state type claimed the run or edited its state since the previous base, the check ignores fields that only one of
    /// the two states has. The reason is that a state type writes only its own fields. If the log is pruned during the check, the check covers the
    /// remaining records.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] with the number of the damaged record, [`ErrorKind::Unsupported`] if a newer version of Ferrata wrote a record,
    /// [`ErrorKind::NotFound`] or [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn check_log(&self, run: &RunKey) -> Result<CheckedLog> {
        past::check_log(&**self.store(), run).await
    }

    /// Returns the state of a run at a position in its log for display: [`HIDDEN`](crate::state::HIDDEN) replaces the value of each
    /// [secret](Self::secrets) channel.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`channels_at`](Self::channels_at).
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

    /// Returns the secret channels of a run. If any process that started or claimed the run declared a channel secret, the channel is secret at every
    /// position of the log.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn secrets(&self, run: &RunKey) -> Result<Secrets> {
        past::secrets(&**self.store(), run).await
    }

    /// Removes a run and all its data from the store, and returns a summary. The id can then be used for a new run. A process that still drives the
    /// removed run cannot write to the new run.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongStatus`] if the run is active in this process (cancel it first), if a child that ends with the run is active, or if
    /// the parent of the run has not yet recorded the start or the result of the run. The message names the run that prevents the purge, and what to
    /// do. Returns [`ErrorKind::Unavailable`] if a part of the run may still be stored, or if other processes kept writing to the run. Purge it
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    pub async fn purge(&self, run: &RunKey) -> Result<Removed> {
        self.purge_run(run, None).await
    }

    /// Purges a run like [`purge`](Self::purge), but only if `head` is still its last record. Use this if an operator saw the run in that state and
    /// confirmed its removal.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`purge`](Self::purge), and [`ErrorKind::Conflict`] if the run has changed since `head`. In the second case, nothing is
    /// removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    pub async fn purge_at(&self, run: &RunKey, head: HeadRef) -> Result<Removed> {
        self.purge_run(run, Some(head)).await
    }

    /// Removes old records of one run by a policy.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::prune`](crate::store::CheckpointStore::prune). The run can continue after any error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    pub async fn apply_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<Removed> {
        let (store, run, policy) = (Arc::clone(self.store()), run.clone(), policy.clone());
        let now = self.shared().clock.now();
        let (records, bytes) =
            finish(async move { retention::prune(&*store, &run, &policy, now, false).await }).await?;
        Ok(Removed { records, bytes })
    }

    /// Returns how much [`apply_retention`](Self::apply_retention) would remove now, and removes nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn preview_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<Removed> {
        let now = self.shared().clock.now();
        let (records, bytes) = retention::prune(&**self.store(), run, policy, now, true).await?;
        Ok(Removed { records, bytes })
    }

    /// Removes old records and whole runs of the store by a policy. Each call processes a part of the runs. Call it again with the cursor of the
    /// report until the report has no cursor. If `dry` is set, the sweep removes nothing and only reports. If a run cannot be processed, the sweep
    /// reports the run and continues.
    ///
    /// By default a sweep runs at full speed. With limits it pauses between runs: use [`SweepLimits::gentle`] if the store has active runs at the
    /// same time. [`RuntimeBuilder::sweeper`](super::RuntimeBuilder::sweeper) sweeps automatically.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::runs`](crate::store::CheckpointStore::runs), and [`ErrorKind::Invalid`] if the [nice
    /// ratio](SweepLimits::nice_ratio) is out of range. In these cases nothing is removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, this part of the sweep completes, including its pauses, even if the caller drops the future.
    pub async fn sweep(
        &self,
        policy: &RetentionPolicy,
        limits: SweepLimits,
        dry: bool,
    ) -> Result<SweepReport> {
        let (shared, policy) = (Arc::clone(self.shared()), policy.clone());
        finish(async move { sweep_part(&shared, &policy, limits, dry).await }).await
    }

    /// Protects a record and all later records of the run from removal by any policy, until you call [`unpin`](Self::unpin). The call does not check
    /// that the record exists.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, and [`ErrorKind::AlreadyExists`] if the record is already pinned.
    pub fn pin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Pin { seq }))
    }

    /// Removes the protection of a pinned record.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist or the record is not pinned.
    pub fn unpin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Unpin { seq }))
    }

    /// Returns the [`checkpoint`](Self::checkpoint), and the run's graph as the log describes it, with all nodes and also the edges that did not
    /// fire. Both come from one read of the log. The checkpoint lists the channels that were declared secret up to the position.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    #[doc(hidden)]
    pub async fn checkpoint_and_graph(
        &self,
        run: &RunKey,
        at: impl Into<Position>,
    ) -> Result<(Checkpoint, LoggedGraph)> {
        let at = at.into().find(&**self.store(), run).await?;
        past::checkpoint(&**self.store(), run, at).await
    }

    /// Explains the status of a run: its failure, its open questions, its waits and its owner. If the run waits for children, the result explains
    /// their status too.
    ///
    /// The text of each reason completes a sentence that begins with the run's id. `head` is the head of the run, which the caller has read. `cache`
    /// holds results of earlier reads of logs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`checkpoint`](Self::checkpoint). A child that cannot be loaded is reported as a reason and not as an error.
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
    #[doc(hidden)]
    pub async fn explain(&self, head: &RunHead, cache: &ReasonCache) -> Result<RunExplanation> {
        past::explain(&**self.store(), head, cache, self.clock().now()).await
    }

    /// Finds a node by its name in the graph with which the run was last driven. The call reads the graph's description from the run's log.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist or its graph has no such node. In the second case, the message suggests the closest
    /// name. Also returns [`ErrorKind::Corrupt`] and [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    #[doc(hidden)]
    pub async fn find_node(&self, run: &RunKey, name: &str) -> Result<NodeName> {
        past::find_node(&**self.store(), run, name).await
    }

    /// Lists the nodes of the graph with which the run was last driven, including nodes that the run has not reached. The call reads the graph's
    /// description from the run's log.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the run does not exist, [`ErrorKind::Corrupt`] or [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    #[doc(hidden)]
    pub async fn node_names(&self, run: &RunKey) -> Result<Vec<NodeName>> {
        past::node_names(&**self.store(), run).await
    }

    /// Exports the records of a run that precede the record `before`, like [`export`](Self::export). Use it, for example, to save the records before
    /// a damaged record. If you [`import`](Self::import) the text, the run continues from the last exported record.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`export`](Self::export), and [`ErrorKind::NotFound`] if no record precedes `before`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    #[doc(hidden)]
    pub async fn export_before(&self, run: &RunKey, before: Seq) -> Result<String> {
        past::export(&**self.store(), run, Some(before), None).await
    }

    /// Checks whether [`purge`](Self::purge) would succeed for these runs, if they were purged in this order. It removes nothing.
    ///
    /// # Errors
    ///
    /// Returns the [`ErrorKind::WrongStatus`] of [`purge`](Self::purge) for the first run that cannot be purged.
    #[doc(hidden)]
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
