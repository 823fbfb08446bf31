//! Applies an update to the live state, and restores the state if the update fails halfway.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::RunDriver;
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use crate::engine::frontier::ActivationKey;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::fired::FiredEdges;
use crate::graph::node_set::NodeIx;
use crate::graph::{EdgeKind, RouteContext};
use crate::kernel::log::check_size;
use crate::panics::panic_text;
use crate::record::{Failure, FailureKind};
use crate::state::{NodeNotes, Patch, PatchWriter, Schema, State, Touch, Update, Write, reread};

/// An activation whose update failed after it had changed the live state.
pub(super) struct FailedApply {
    pub(super) key: ActivationKey,
    pub(super) origin: ActivationOrigin,
    pub(super) failure: Failure,
    pub(super) took: Duration,
}

/// The result of an update and the routes after it.
pub(super) struct AppliedUpdate {
    pub(super) patch: Patch,
    pub(super) overwrites: Vec<String>,
    pub(super) fired: FiredEdges,
}

impl<S: State> RunDriver<S> {
    /// Rebuilds the live state from the log without the failed update, and records the failure.
    ///
    /// The driver keeps no copy of the earlier state for this rare case, because then every node would have to copy the whole state.
    ///
    /// # Errors
    ///
    /// Returns the failure itself if the checkpoint policy holds back records without a limit, because the log then does not contain the data for a
    /// rebuild.
    pub(super) async fn rebuild_state(&mut self, failed: FailedApply) -> Result<()> {
        let FailedApply { key, origin, failure, took } = failed;
        if !self.journal.keeps_ends() {
            let message = format!(
                "{failure}; checkpoints are held back, so the run stopped; resume it from the last checkpoint"
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_run(self.journal.run()));
        }
        self.break_transaction();
        while self.journal.pending() > 0 {
            let answer = self.acknowledged().await;
            self.acknowledge(answer).await?;
        }
        self.rebase().await?;
        if origin.leads_to(&self.machine, key) {
            self.ready_queue.remove_ready(key);
            self.apply_fact(PendingEvent {
                key,
                what: PendingEventKind::Ended { result: Err(failure), took },
            })?;
        }
        Ok(())
    }

    /// Returns whether anything can fail after the update is applied, so that the driver must keep the earlier state.
    pub(super) fn may_fail_after_apply(&self, node: NodeIx) -> bool {
        let plan = self.plan.node(node);
        plan.routed
            || self.machine.has_overwrites()
            || plan.outgoing.iter().any(|&edge| self.plan.edge(edge).kind == EdgeKind::When)
    }

    /// Applies an update to the state and evaluates the routes.
    pub(super) fn apply(&mut self, key: ActivationKey, update: &Update<S>) -> Result<AppliedUpdate, Failure> {
        let index = NodeIx::new(key.0);
        let caught = |what: &str, panic: &(dyn std::any::Any + Send)| {
            Failure::new(FailureKind::Graph, format!("{what} panicked: {}", panic_text(panic)))
        };
        // An activation that runs alone cannot clash with another writer.
        let alone = self.machine.in_flight().len() <= 1 && !self.machine.has_overwrites();
        let mut writer = match self.journal.encodes_patches() {
            true => PatchWriter::recording(),
            false if alone => PatchWriter::idle(),
            false => PatchWriter::touching(),
        };
        if !(update.is_none() && update.has_nothing_to_report()) {
            let state = Arc::make_mut(&mut self.state);
            catch_unwind(AssertUnwindSafe(|| update.apply(state, &mut writer)))
                .map_err(|panic| caught("a reducer of the state", &*panic))?
                .map_err(|error| Failure::from_error(FailureKind::Update, &error))?;
        }
        let (patch, touched) = writer.close();
        let letters =
            update.sent_messages().iter().map(|letter| letter.payload.get().len() + letter.topic.len());
        let sent = letters.sum::<usize>() + update.node_notes().map_or(0, NodeNotes::bytes);
        self.check_size(&touched, update.output(), sent)?;
        let name = &self.plan.node(index).name;
        let replans = self.machine.replan_counts();
        let cx = RouteContext::new(name, key.1, update.output())
            .with_replans(&replans)
            .with_left(self.machine.node(key.0).left, update.ends_conversation());
        let (graph, state) = (&self.graph, &self.state);
        let fired = catch_unwind(AssertUnwindSafe(|| graph.fires(index, state, &cx)))
            .map_err(|panic| caught("a route or a condition", &*panic))?
            .map_err(|error| Failure::from_error(FailureKind::Route, &error))?;
        let overwritten = touched.iter().filter(|touch| touch.write == Write::Overwritten);
        let overwrites = if alone {
            Vec::new()
        } else {
            overwritten.map(|touch| touch.channel.name().to_owned()).collect()
        };
        Ok(AppliedUpdate { patch: patch.unwrap_or_default(), overwrites, fired })
    }

    /// Returns an error if changes are larger than the maximum size of a record. The error names the largest channel.
    fn check_size(&self, touched: &[Touch], output: Option<&RawValue>, sent: usize) -> Result<(), Failure> {
        let output_bytes = output.map_or(0, |text| text.get().len());
        let bytes: usize = touched.iter().map(|touch| touch.bytes).sum::<usize>() + output_bytes + sent;
        let most = self.journal.max_body();
        if bytes <= most {
            return Ok(());
        }
        let blame = match touched.iter().max_by_key(|touch| touch.bytes) {
            _ if sent > output_bytes && touched.iter().all(|touch| touch.bytes < sent) => {
                format!("its outbox messages and notes alone {sent} bytes")
            }
            Some(touch) if touch.bytes >= output_bytes => {
                format!("the channel `{}` alone {} bytes", touch.channel.name(), touch.bytes)
            }
            _ => format!("its output alone {output_bytes} bytes"),
        };
        let message = format!(
            "the update writes {bytes} bytes, {blame}, and at most {most} are allowed; store large values as blobs (docs/how-to/blobs.md) with \
             their names in the state, or raise `max_body`"
        );
        Err(Failure::new(FailureKind::Update, message))
    }
}

/// Returns an error if an input is larger than the maximum size of a record, or if it would be different after a restart.
pub(crate) fn check_input<S: State>(input: &S, schema: &Schema, most: usize) -> Result<Box<RawValue>> {
    let text = input.to_channels_json()?;
    check_size(&text, most)?;
    reread::<S>(text.get(), schema)?;
    Ok(text)
}
