//! What an application asks of the logs: their past, forks, checks, copies and upkeep.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fleet::sweeper::sweep_part;
use super::requests::amend::ConflictRetries;
use super::requests::fork::ForkRequest;
use super::requests::import::import;
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
    TimelineEntry, Verified,
};
use crate::record::RecordHeader;
use crate::record::body::SignalKind;
use crate::state::{Channels, Secrets, State};
use crate::store::{At, Page, Paged, Removed, RunHead};

impl Runtime {
    /// Lists the records of a run, a page at a time, without reading their bodies: the newest first, unless the page asks for
    /// the oldest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a cursor of another run or order, and as
    /// [`CheckpointStore::headers`](crate::store::CheckpointStore::headers).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_state_of_the_past_is_found_by_number_id_and_visit -->
    pub async fn history(&self, run: &RunKey, page: Page) -> Result<Paged<RecordHeader>> {
        past::page(&**self.store(), run, &page).await
    }

    /// Returns the state that a run had at some place in its log.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run or place, or pruned), [`ErrorKind::GraphChanged`] (the state is of a version that
    /// the graph does not know), [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_state_of_the_past_is_found_by_number_id_and_visit -->
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

    /// Returns the state that a run had at some place in its log, without its type: in the form in which it was written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run or place, or pruned), [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_state_of_the_past_is_found_by_number_id_and_visit -->
    pub async fn channels_at(&self, run: &RunKey, at: impl Into<Position>) -> Result<Channels> {
        let at = at.into().find(&**self.store(), run).await?;
        Ok(past::folded_at(&**self.store(), run, at, None).await?.channels)
    }

    /// Returns the state that a run had at some place in its log as views show it: with [`HIDDEN`](crate::state::HIDDEN) in the place of the value of
    /// each [secret](Self::secrets) channel.
    ///
    /// # Errors
    ///
    /// As [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub async fn shown_at(&self, run: &RunKey, at: impl Into<Position>) -> Result<serde_json::Value> {
        let at = at.into().find(&**self.store(), run).await?;
        past::shown_at(&**self.store(), run, at).await
    }

    /// Returns the channels of a run that are secret: those that any process which started or claimed it called so, at every place of its log.
    ///
    /// # Errors
    ///
    /// As [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub async fn secrets(&self, run: &RunKey) -> Result<Secrets> {
        past::secrets(&**self.store(), run).await
    }

    /// Says what happened to a run from some record on, oldest first, in words; from `Seq::new(0)`, everything that is kept.
    ///
    /// What nodes, answers and errors said stands in it: it is as secret as the run.
    ///
    /// # Errors
    ///
    /// As [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: operator::what_happened_is_said_from_any_record_on -->
    pub async fn timeline(&self, run: &RunKey, from: Seq) -> Result<Vec<TimelineEntry>> {
        past::timeline(&**self.store(), run, from).await
    }

    /// Returns everything that the log says of a run as of some place, what is secret included:
    /// [`Checkpoint::hide_secrets`] takes that out. Reads the whole log that is kept.
    ///
    /// # Errors
    ///
    /// As [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_checkpoint_tells_everything_and_keeps_what_newer_versions_say -->
    pub async fn checkpoint(&self, run: &RunKey, at: impl Into<Position>) -> Result<Checkpoint> {
        let at = at.into().find(&**self.store(), run).await?;
        let (mut checkpoint, _) = past::checkpoint(&**self.store(), run, at).await?;
        if at != At::Latest {
            checkpoint.secret = self.secrets(run).await?;
        }
        Ok(checkpoint)
    }

    /// Returns what [`checkpoint`](Self::checkpoint) does, and with the same read of the log what it tells of the run's graph: its nodes, and the
    /// edges that did not fire. Of what is secret it knows what was so by that place.
    ///
    /// # Errors
    ///
    /// As [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: scale::a_log_is_read_once_for_a_page_and_a_state_once_for_all_its_levels, runs::whole_graph_is_known_from_log -->
    pub async fn checkpoint_and_graph(
        &self,
        run: &RunKey,
        at: impl Into<Position>,
    ) -> Result<(Checkpoint, LoggedGraph)> {
        let at = at.into().find(&**self.store(), run).await?;
        past::checkpoint(&**self.store(), run, at).await
    }

    /// Says why a run stands as it does: what failed, who is asked, what it waits for, which process has it. For a run that waits for runs of its
    /// nodes, it says why these stand still.
    ///
    /// Each reason is the predicate of a sentence about the run. `head` is the head of the run as the caller read it, and `cache` keeps what logs
    /// told before.
    ///
    /// # Errors
    ///
    /// As [`checkpoint`](Self::checkpoint). A child that cannot be read is a reason and no error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
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
    ///
    /// <!-- held by: reasons::parent_waits_for_child_that_asks, reasons::unreadable_child_is_a_reason -->
    pub async fn explain(&self, head: &RunHead, cache: &ReasonCache) -> Result<RunExplanation> {
        past::explain(&**self.store(), head, cache, self.clock().now()).await
    }

    /// Finds a node of the graph with which a run was driven last, as the run's log tells: no graph is needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`]: there is no such run, or the graph has no such node, and the message has the closest name.
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_place_whose_node_the_graph_lacks_is_told_with_the_closest -->
    pub async fn find_node(&self, run: &RunKey, name: &str) -> Result<NodeName> {
        past::find_node(&**self.store(), run, name).await
    }

    /// Lists the nodes of the graph with which a run was driven last, as the run's log tells: no graph is needed. Nodes that the run has
    /// not come to are among them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: runs::a_run_is_shown_with_its_whole_graph_and_no_payload -->
    pub async fn node_names(&self, run: &RunKey) -> Result<Vec<NodeName>> {
        past::node_names(&**self.store(), run).await
    }

    /// Returns what turns the state at one place into the state at another, what is secret included; [`Diff::hiding`] leaves that out.
    ///
    /// # Errors
    ///
    /// As [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_difference_names_each_change_and_makes_it -->
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
                    Error::new(ErrorKind::Corrupt, "the state is no JSON").with_run(run).with_source(source)
                },
            )?);
        }
        Ok(Diff::between(&states[0], &states[1]))
    }

    /// Lists a run and where it was forked from, the oldest first; a source that was purged is the oldest, with no status.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run), [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: sentences::lineage_names_no_stranger, forks::a_line_tells_lives_and_no_names -->
    pub async fn lineage(&self, run: &RunKey) -> Result<Vec<Ancestor>> {
        past::lineage(&**self.store(), run).await
    }

    /// Tells what happened to a run, as Markdown: each record with what it says and why the run went where it went.
    ///
    /// The state stands in it, without what is [secret](Self::secrets): it is as secret as the run.
    ///
    /// # Errors
    ///
    /// As [`state_at`](Self::state_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::a_post_mortem_tells_what_happened_and_why -->
    pub async fn post_mortem(&self, run: &RunKey) -> Result<String> {
        past::post_mortem(&**self.store(), run).await
    }

    /// Makes a new run that goes on from some place in the log of another one, in whatever status that is. The source stays as
    /// it was, byte for byte. Tenant, user, labels and answers are carried over; open questions are asked again; idempotency keys
    /// are new.
    ///
    /// With [`drive`](ForkRequest::drive) this process drives the new run, with the graph of today. Without, the new run is written and
    /// has no owner: a process that serves its workflow takes it up.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: no such run, place or node. Without a graph, nodes are known if the source's log names them.
    /// - [`ErrorKind::AlreadyExists`]: the new id is another run's. Forking alike under the same id is the same fork.
    /// - [`ErrorKind::GraphChanged`]: the graph has no such node as the run is at there.
    /// - [`ErrorKind::Invalid`]: an edit does not fit the state, or nothing was left to run there.
    ///
    /// Nothing was written then.
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
    ///
    /// <!-- held by: past::a_fork_goes_on_from_the_past_and_leaves_its_source_alone, forks::a_fork_at_a_place_that_is_not_there_says_so -->
    pub fn fork(&self, source: &RunKey, at: impl Into<Position>) -> ForkRequest {
        ForkRequest::new(self.shared(), source, at.into())
    }

    /// Replays a run against a graph without running any node, and finds the first record at which they part.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`]. A difference is no error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: past::verification_finds_the_first_record_at_which_a_graph_parts, sentences::verify_finds_no_difference_where_there_is_none -->
    pub async fn verify<S: State>(&self, graph: &Graph<S>, run: &RunKey) -> Result<Verified> {
        past::verify(&**self.store(), graph, run).await
    }

    /// Reads the whole log of a run that is kept and holds it against itself, without the application's code: every checksum and
    /// link, that each record follows from those before it, and that each base holds what the records up to it amount to. Where
    /// another program took the run or edited its state since the base before, fields that only one of the two has do not count:
    /// a type of state writes what it knows. A prune meanwhile does no harm: what is kept is checked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] naming the record, [`ErrorKind::Unsupported`] (a record of a newer version),
    /// [`ErrorKind::NotFound`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: operator::a_log_is_held_against_itself, altered::an_altered_log_is_read_or_called_corrupt, between::a_log_is_whole_while_a_prune_has_made_its_base_and_not_cut_yet -->
    pub async fn check_log(&self, run: &RunKey) -> Result<CheckedLog> {
        past::check_log(&**self.store(), run).await
    }

    /// Writes a run down as one text, as far as its records are kept: one JSON object a line. What is secret stands in it, since the records do.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::Unavailable`]; [`ErrorKind::Unsupported`] if the bodies are in envelopes,
    /// and the store of this runtime is not the `EnvelopeStore` that opens them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: copies::a_copy_is_the_run, copies::an_export_holds_nothing_that_steers_a_terminal, altered::body_in_an_envelope_is_unsupported -->
    pub async fn export(&self, run: &RunKey) -> Result<String> {
        past::export(&**self.store(), run, None).await
    }

    /// Writes the records of a run before one down, as [`export`](Self::export) does: what stands before a damaged record, say. The copy
    /// that [`import`](Self::import) makes of them is the run as it was then.
    ///
    /// # Errors
    ///
    /// As [`export`](Self::export); [`ErrorKind::NotFound`] also if no such record is kept.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: copies::what_stands_before_a_record_is_a_run_of_its_own, every_store::before_the_damage_on_postgres -->
    pub async fn export_before(&self, run: &RunKey, before: Seq) -> Result<String> {
        past::export(&**self.store(), run, Some(before)).await
    }

    /// Brings a run that was written down into the store, under its own key or another. It is there whole or not at all; the
    /// same import again is the same run until something is added to it or pruned. A run that has not ended has no owner: resume it,
    /// or serve its workflow.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::Invalid`] (naming the line), [`ErrorKind::Corrupt`] (a record's checksum),
    /// [`ErrorKind::Unsupported`] (of a newer version). Nothing was changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it.
    ///
    /// <!-- held by: copies::facts_and_claims_of_a_file_are_checked, copies::a_file_with_a_hole_is_refused -->
    pub async fn import(&self, text: &str, run: Option<RunKey>) -> Result<RunKey> {
        let (shared, text) = (Arc::clone(self.shared()), text.to_owned());
        finish(async move { import(&shared, &text, run).await }).await
    }

    /// Drops what a policy does not keep of one run. Returns how many records and bytes of bodies.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::prune`](crate::store::CheckpointStore::prune). The run can go on in any case.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it.
    ///
    /// <!-- held by: past::pruning_keeps_what_the_policy_says_and_every_kept_state, sentences::looking_again_drops_nothing_more -->
    pub async fn apply_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<(u64, u64)> {
        let (store, run, policy) = (Arc::clone(self.store()), run.clone(), policy.clone());
        let now = self.shared().clock.now();
        finish(async move { retention::prune(&*store, &run, &policy, now, false).await }).await
    }

    /// Tells how many records and bytes of bodies [`apply_retention`](Self::apply_retention) would drop now.
    ///
    /// # Errors
    ///
    /// As [`channels_at`](Self::channels_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: operator::looking_changes_nothing_in_the_store -->
    pub async fn preview_retention(&self, run: &RunKey, policy: &RetentionPolicy) -> Result<(u64, u64)> {
        retention::prune(&**self.store(), run, policy, self.shared().clock.now(), true).await
    }

    /// Drops what a policy does not keep of the store's runs, a part at a time: go on with the report's cursor until there is
    /// none. A `dry` sweep only tells what it would drop. A run that cannot be dealt with is reported and holds up no other.
    ///
    /// It goes as fast as it can unless the limits have it rest: [`SweepLimits::gentle`] is for a sweep beside runs
    /// that go on. [`RuntimeBuilder::sweeper`](super::RuntimeBuilder::sweeper) sweeps by itself.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::runs`](crate::store::CheckpointStore::runs); [`ErrorKind::Invalid`] for a
    /// [nice ratio](SweepLimits::nice_ratio) that is out of range. Nothing was changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it deals with this part to its end, with its rests, even if the caller drops it.
    ///
    /// <!-- held by: past::a_sweep_removes_what_has_ended_long_ago_part_by_part, sentences::an_ended_run_goes_when_its_time_has_come -->
    /// <!-- held by: pages::a_sweep_rests_for_as_many_times_as_long_as_each_page_took, pages::a_sweep_refuses_a_nice_ratio_that_is_none -->
    pub async fn sweep(
        &self,
        policy: &RetentionPolicy,
        limits: SweepLimits,
        dry: bool,
    ) -> Result<SweepReport> {
        let (shared, policy) = (Arc::clone(self.shared()), policy.clone());
        finish(async move { sweep_part(&shared, &policy, limits, dry).await }).await
    }

    /// Keeps a record, and what comes after it, whatever a policy says, until [`unpin`](Self::unpin). Whether there is a record
    /// of this number is not checked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run), [`ErrorKind::AlreadyExists`] (it is pinned).
    ///
    /// <!-- held by: copies::a_pin_holds_in_a_copy_of_a_pruned_run, copies::a_pin_of_a_record_to_come_outlives_the_record_that_pinned_it -->
    pub fn pin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Pin { seq }))
    }

    /// Lets a pinned record be dropped again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] (no such run, or it is not pinned).
    ///
    /// <!-- held by: sentences::an_ended_run_goes_when_its_time_has_come -->
    pub fn unpin(&self, run: &RunKey, seq: Seq) -> SignalRequest {
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Unpin { seq }))
    }

    /// Removes a run and every trace of it from the store, and says what was removed. Its id can be used again, and no writer of
    /// its old life gets in.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] if it goes on in this process: cancel it first; if a child of it goes on that ends with it, or if its
    /// parent has not noted yet that it was started, or what came of it: the message names that run and says what to do.
    /// [`ErrorKind::Unavailable`]: some of it may be left, or others kept writing to it; purge again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it.
    ///
    /// <!-- held by: purge::a_purge_that_expects_another_head_is_a_conflict, letters_of_two::a_purge_takes_no_letter_with_it_that_was_recorded_meanwhile, removal::a_parent_is_not_purged_while_its_child_goes_on -->
    pub async fn purge(&self, run: &RunKey) -> Result<Removed> {
        self.purge_run(run, None).await
    }

    /// As [`purge`](Self::purge), if `head` still is the last record of the run: for an operator who was asked whether it may go as it stood.
    ///
    /// # Errors
    ///
    /// As for [`purge`](Self::purge), and [`ErrorKind::Conflict`] if the run has changed since. Nothing was removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it.
    ///
    /// <!-- held by: letters::an_outlet_that_is_down_holds_up_its_own_topic_alone, outbox::letters_are_listed_and_dropped_by_an_operator -->
    pub async fn purge_at(&self, run: &RunKey, head: HeadRef) -> Result<Removed> {
        self.purge_run(run, Some(head)).await
    }

    /// Checks that [`purge`](Self::purge) of these runs, one after the other, would be refused for none of them. It removes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] as for [`purge`](Self::purge), of the first run that would be refused.
    ///
    /// <!-- held by: outbox::of_several_runs_none_is_purged_if_one_cannot_be, removal::a_failed_parent_stays_until_its_children_have_ended -->
    pub async fn check_purge(&self, runs: &[RunKey]) -> Result<()> {
        let mut before = BTreeSet::new();
        for run in runs {
            self.shared().check_not_driven(run)?;
            past::family::check_purge(&*self.shared().store, run, &before).await?;
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
                let seen = past::family::check_purge(&*shared.store, &run, &BTreeSet::new()).await?;
                match shared.purge(&run, expected.or(seen)).await {
                    // What was written since the look may be a letter that waits, or a child that goes on.
                    Err(error) if error.kind() == ErrorKind::Conflict && expected.is_none() => {
                        races.lost(&run).await?;
                    }
                    purged => return purged,
                }
            }
        })
        .await
    }
}
