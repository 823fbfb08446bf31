//! Writes to a run from outside of its driver: it loads the log, decides what to append, appends it, and starts again after a conflict.

use crate::kernel::run_writer::RunWriter;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::compact::queue::Sender;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::GraphPlan;
use crate::graph::{AnyGraph, Graph};
use crate::id::{Epoch, ExecutorId, RunKey};
use crate::kernel::commands::DriverCommand;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::log::{LogWriter, RecordOptions};
use crate::record::body::RecordEvent;
use crate::record::pause::EditRecord;
use crate::record::{Record, RunStatus, codec};
use crate::state::{Channels, Op, Schema, State};
use crate::store::{At, RunAppend, is_news};

/// The maximum number of retries after write conflicts.
const RACES: u32 = 32;

/// Remaining retries after write conflicts.
pub(crate) struct ConflictRetries(u32);

impl ConflictRetries {
    pub(crate) fn new() -> Self {
        Self(RACES)
    }

    /// Counts a conflict, and yields so that the other writer can finish.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if no retries remain.
    pub(crate) async fn count_conflict(&mut self, run: &RunKey) -> Result<()> {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            let message = "other writers keep changing the run; retry";
            return Err(Error::new(ErrorKind::Unavailable, message).with_run(run));
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The channel for the driver's reply to the caller that sent a signal.
pub(crate) type SignalReply = oneshot::Sender<Result<()>>;

/// Builds the command for a driver.
type DriverMessage<'a> = &'a (dyn Fn(SignalReply) -> DriverCommand + Sync);

/// A precondition of a write. It is checked after the run was found or loaded, and again for each attempt. So the write reaches the run for which the
/// check was made, and never a later run with the same id.
#[async_trait]
pub(crate) trait WritePrecondition: Sync {
    /// Returns an error if the precondition fails. `seen` is the run, if the caller has loaded it. It is `None` if a driver in this process has the
    /// run.
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()>;
}

/// The role of a writer to a run.
#[derive(Clone, Copy)]
pub(crate) enum WriterRole<'a> {
    /// The writer sends a signal and does not change the owner of the run. If this process drives the run, its driver receives this message and
    /// writes the record.
    Signaller(DriverMessage<'a>),
    /// The writer sends a signal, but only if the precondition holds.
    If(&'a dyn WritePrecondition, DriverMessage<'a>),
    /// The writer records a fact about an idle run. It never sends the fact to a driver in this process, because such a driver already knows the
    /// fact.
    Beside,
    /// The writer is the owner of the run, whose driver has stopped. The number is the heartbeat term of the claim.
    Owner(u64),
}

/// Appends the events that `decide` returns for the current run, and returns the run after them. If a driver in this process wrote the record
/// instead, it returns `None`. If `decide` returns no event, nothing is appended.
///
/// After a conflict it calls `decide` again, on the new state of the run.
///
/// # Errors
///
/// Returns the errors of `decide` and of the precondition. Returns [`ErrorKind::NotFound`] if the run does not exist. Returns
/// [`ErrorKind::Unavailable`] if the store failed, or all retries met conflicts. Returns [`ErrorKind::Indeterminate`] if the events may be recorded.
/// Returns [`ErrorKind::Fenced`] if the owner's term has ended.
pub(crate) async fn amend(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    who: WriterRole<'_>,
    mut decide: impl FnMut(&mut RunWriter) -> Result<Vec<RecordEvent>>,
) -> Result<Option<RunWriter>> {
    let mut races = ConflictRetries::new();
    loop {
        let said = match (who, shared.driver(run)) {
            (WriterRole::Signaller(message), Some(driver)) => send_to_driver(&driver, message).await,
            (WriterRole::If(condition, message), Some(driver)) => {
                condition.check(None).await?;
                send_to_driver(&driver, message).await
            }
            _ => None,
        };
        match said {
            // No record was written: conflicts, or the driver was fenced or had ended.
            Some(Err(error)) if is_untold(&error) => {}
            Some(said) => return said.map(|()| None),
            None => {
                let mut tip = RunWriter::load(shared, run, None).await?;
                if let WriterRole::If(condition, _) = who {
                    condition.check(Some(&tip)).await?;
                }
                let events = decide(&mut tip).map_err(|error| error.with_run(run))?;
                let term = match who {
                    WriterRole::Owner(term) => Some(term),
                    WriterRole::Signaller(_) | WriterRole::If(..) | WriterRole::Beside => None,
                };
                match tip.append(shared, term, &events).await {
                    Ok(()) => return Ok(Some(tip)),
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.with_run(run)),
                }
            }
        }
        races.count_conflict(run).await?;
    }
}

/// Sends a message to a driver and waits for its reply. Returns `None` if the driver has ended.
async fn send_to_driver(driver: &Sender<DriverCommand>, message: DriverMessage<'_>) -> Option<Result<()>> {
    let (reply, said) = oneshot::channel();
    driver.send(message(reply)).ok()?;
    let ended = |_| Err(Error::new(ErrorKind::Conflict, "the driver ended"));
    Some(said.await.unwrap_or_else(ended))
}

fn is_untold(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Closed)
}

impl RunWriter {
    /// Loads a run. Appends continue under its owner, if it has one.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`], and the errors of [`fold`] and the store.
    pub(crate) async fn load(
        shared: &RuntimeInner,
        run: &RunKey,
        plan: Option<&Arc<GraphPlan>>,
    ) -> Result<Self> {
        let records = shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
        let folded = fold(run, &records, plan)?;
        let mut tip = Self { log: shared.log_writer(run), folded, is_owned: false, is_migrated: false };
        tip.follow(shared);
        Ok(tip)
    }

    /// Positions the writer after the last known record.
    fn follow(&mut self, shared: &RuntimeInner) {
        self.log.follow(&self.folded);
        self.log.executor = self.folded.last.owner.unwrap_or(shared.executor);
        self.is_owned = self.folded.last.owner.is_some();
    }

    /// Applies the [later records](crate::store::CheckpointStore::load_since), after the last known record. Returns the changes of the channels, or
    /// `None` if the whole run was loaded again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fold`]. After an error, the writer must not be used any more.
    pub(crate) fn take_in(&mut self, shared: &RuntimeInner, records: &[Record]) -> Result<Option<Vec<Op>>> {
        let run = self.log.run.clone();
        let (mut ops, mut is_whole) = (Vec::new(), !is_news(self.folded.last.head(), records));
        if is_whole {
            self.folded = fold(&run, records, None)?;
        } else {
            for record in records {
                record.verify(&run)?;
                let body = codec::decode(&run, record)?;
                is_whole |= matches!(body.event, RecordEvent::Base)
                    || body.base.is_some_and(|base| base.version != self.folded.version);
                if let Some(patch) = body.event.patch() {
                    ops.extend(patch.ops()?);
                }
                let place = |error: Error| error.with_run(&run).with_seq(record.header.seq);
                self.folded.absorb(&run, record).map_err(place)?;
            }
        }
        self.follow(shared);
        Ok((!is_whole).then_some(ops))
    }

    /// Creates a writer for a run after its first record. The run has no owner.
    pub(crate) fn after_start(folded: ReplayedRun, log: LogWriter) -> Self {
        Self { folded, log, is_owned: false, is_migrated: false }
    }

    /// Makes the process `executor` the owner of the run, beginning with the next record.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the epoch would overflow.
    pub(crate) fn claim(&mut self, executor: ExecutorId) -> Result<()> {
        self.log.epoch = next_epoch(self.folded.last.epoch)?;
        (self.log.executor, self.is_owned) = (executor, true);
        Ok(())
    }

    /// Releases the run with the next record, so that it has no owner.
    pub(crate) fn release(&mut self) {
        self.is_owned = false;
    }

    /// Gives the machine the plan of a graph. The result is the same as if the log had been replayed with this plan.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fold`].
    pub(crate) fn with_plan(mut self, plan: &Arc<GraphPlan>) -> Result<Self> {
        self.folded.attach_plan(plan)?;
        Ok(self)
    }

    /// Returns the state as the graph's type.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::GraphChanged`] if it does not fit the type.
    pub(crate) fn state<S: State>(&self, graph: &Graph<S>) -> Result<S> {
        graph
            .migrated(&self.folded.channels, self.folded.version)
            .and_then(|channels| S::from_channels(channels, graph.schema()))
            .map_err(|error| error.with_run(&self.log.run))
    }

    /// Returns whether the log may lack channels of the graph's state, because the version differs or a declared channel has no value.
    pub(crate) fn may_lack(&self, graph: &dyn AnyGraph) -> bool {
        let ReplayedRun { channels, version, .. } = &self.folded;
        *version != graph.schema().version() || absent(channels, graph.schema()).next().is_some()
    }

    /// Replaces the channels by `channels`, which have the version of the graph's state. If the log has an older version, the machine is migrated
    /// too, and the next record becomes a base. Until then, the log keeps the original. The next record also becomes a base if a channel is new. The
    /// default of a new field may not be empty, so a later append to it would not describe the complete value.
    pub(crate) fn migrate(&mut self, graph: &dyn AnyGraph, channels: Channels) {
        if bring_forward(&mut self.folded, graph, channels) {
            self.log.state_version = self.folded.version;
            self.is_migrated = true;
        }
    }

    /// Appends a change of the channels. If this fails, the writer undoes the change, and returns with the error the operations by which a caller can
    /// undo it too. It returns `None` instead of operations if the writer must not be used any more.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`append`](Self::append), and [`ErrorKind::Invalid`] if the change does not fit.
    pub(crate) async fn change(
        &mut self,
        shared: &RuntimeInner,
        edited: EditRecord,
    ) -> std::result::Result<(), (Error, Option<Vec<Op>>)> {
        let undo =
            self.folded.channels.undo_ops(&edited.patch).map_err(|error| (caller_error(error), None))?;
        let ReplayedRun { machine, last, base_bytes, since_bytes, since_records, .. } = &self.folded;
        let before = (machine.clone(), last.clone(), *base_bytes, *since_bytes, *since_records);
        let done = match self.folded.channels.apply(&edited.patch) {
            Ok(()) => self.append(shared, None, &[RecordEvent::Edit(edited)]).await,
            Err(error) => Err(caller_error(error)),
        };
        let Err(error) = done else { return Ok(()) };
        let ReplayedRun { machine, last, base_bytes, since_bytes, since_records, .. } = &mut self.folded;
        (*machine, *last, *base_bytes, *since_bytes, *since_records) = before;
        self.follow(shared);
        let is_undone = undo.iter().all(|op| self.folded.channels.apply_op(op.clone()).is_ok());
        Err((error.with_run(&self.log.run), is_undone.then_some(undo)))
    }

    /// Applies events to the machine and returns the append with their records.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooLarge`] or [`ErrorKind::Invalid`] if a record cannot be built. After an error, the writer must not be used any more.
    pub(crate) fn record(&mut self, events: &[RecordEvent]) -> Result<RunAppend> {
        let expected = Some(self.folded.last.head());
        let mut records = Vec::with_capacity(events.len());
        for event in events {
            self.folded.machine.absorb(event)?;
            let (base, release) = (std::mem::take(&mut self.is_migrated), !self.is_owned);
            let options = || RecordOptions { release, base, ..RecordOptions::default() };
            let ReplayedRun { machine, channels, .. } = &self.folded;
            let record = match self.log.record(event, options(), machine, || codec::to_raw(channels)) {
                // The event fits, the base does not: a run that has outgrown its bases must still accept events that shrink it.
                Err(error) if error.kind() == ErrorKind::TooLarge && !base => {
                    self.log.record_without_base(event, options(), machine)?
                }
                recorded => recorded?,
            };
            self.folded.advance(&record);
            records.push(record);
        }
        Ok(RunAppend { run: self.log.run.clone(), expected, records, facts: None })
    }

    /// Applies events to the machine and appends their records. If the writer is the owner of the run, `term` is the heartbeat term of its claim.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Conflict`] if another process has written to the run. After an error, the writer must not be used any more.
    pub(crate) async fn append(
        &mut self,
        shared: &RuntimeInner,
        term: Option<u64>,
        events: &[RecordEvent],
    ) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let (before, at) = (self.folded.last.status, self.folded.last.at);
        let append = self.record(events)?;
        shared.committer.append(append, term).await?;
        let after = self.folded.machine.status();
        if matches!(before, RunStatus::Interrupted | RunStatus::AwaitingInput) && after != before {
            shared.telemetry().rested(before, shared.clock.now().since(at));
        }
        if after.is_finished() && !before.is_finished() {
            // No driver ends this run, so count its end here.
            let facts = shared.idle_runs.take(&self.log.run, self.folded.machine.start_id());
            let meter = shared.telemetry().of(facts.as_ref().map(|facts| &facts.workflow));
            meter.settled(after, || facts.as_ref().map(|facts| shared.clock.now().since(facts.created)));
        }
        Ok(())
    }
}

/// Replaces the channels of a run by `channels`, and migrates its machine to their version. Returns whether the next record must be a base, because
/// the version differed or a channel is new.
pub(crate) fn bring_forward(folded: &mut ReplayedRun, graph: &dyn AnyGraph, new: Channels) -> bool {
    let ReplayedRun { machine, channels, version, .. } = folded;
    let is_older = *version != graph.schema().version();
    if is_older {
        machine.bring_forward(|patch| graph.migrated_patch(channels, *version, patch));
        *version = graph.schema().version();
    }
    let has_new = absent(channels, graph.schema()).any(|name| new.get(name).is_some());
    *channels = new;
    is_older || has_new
}

/// Returns the declared channels without a value.
fn absent<'a>(channels: &'a Channels, schema: &'a Schema) -> impl Iterator<Item = &'a str> {
    schema.channels().iter().map(|channel| &*channel.name).filter(|name| channels.get(name).is_none())
}

/// Returns the next epoch. If the number would overflow, it returns an error, because the same epoch must not be used twice.
fn next_epoch(epoch: Epoch) -> Result<Epoch> {
    if epoch.next() > epoch {
        return Ok(epoch.next());
    }
    let message =
        format!("the run was claimed {epoch} times, the maximum; fork it, and continue with the fork");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Converts the error of a patch. In a log, a patch that does not fit is damage (`Corrupt`). In an edit, it is a mistake of the caller (`Invalid`).
pub(crate) fn caller_error(error: Error) -> Error {
    let message = format!("cannot apply the patch to the state: {}; the run is unchanged", error.message());
    Error::new(ErrorKind::Invalid, message).with_source(error)
}
