//! Writing to a run from outside its driver: load its log, decide what follows, append that, and again where another writer was first.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::edit::misfit;
use crate::compact::queue::Sender;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::Plan;
use crate::graph::{AnyGraph, Graph};
use crate::id::{Epoch, ExecutorId, RunKey};
use crate::record::body::Event;
use crate::record::pause::EditRecord;
use crate::record::{Record, RunStatus, codec};
use crate::runtime::log::{LogWriter, RecordOptions};
use crate::runtime::shared::{DriverCommand, RuntimeInner};
use crate::state::{Channels, Op, Schema, State};
use crate::store::{At, RunAppend, is_news};

/// How often a writer tries again because other writers come first.
const RACES: u32 = 32;

/// The tries that a writer has left.
pub(crate) struct ConflictRetries(u32);

impl ConflictRetries {
    pub(crate) fn new() -> Self {
        Self(RACES)
    }

    /// Counts a try at which another writer came first, and gives that writer a turn.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if it was the last try.
    pub(crate) async fn lost(&mut self, run: &RunKey) -> Result<()> {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            let message = "others keep writing to the run; try again";
            return Err(Error::new(ErrorKind::Unavailable, message).with_run(run));
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The reply of a driver to a signaller.
pub(crate) type Reply = oneshot::Sender<Result<()>>;

/// Makes what a driver is sent.
type Message<'a> = &'a (dyn Fn(Reply) -> DriverCommand + Sync);

/// What must hold for a signaller to write to a run. It is looked at after the run was found or read, for each try anew: what is written then
/// is written to that run, and to none that bears its name later.
#[async_trait]
pub(crate) trait WritePrecondition: Sync {
    /// Says why it does not hold, if it does not. `seen` is the run where it was read; a driver in this process knows it otherwise.
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()>;
}

/// Who writes to a run.
#[derive(Clone, Copy)]
pub(crate) enum WriterRole<'a> {
    /// A signaller leaves the run to its owner. Where the run is driven in this process, the driver gets this message and writes.
    Signaller(Message<'a>),
    /// A signaller that writes only where this holds.
    If(&'a dyn WritePrecondition, Message<'a>),
    /// A caller that knows something of a run at rest: a driver in this process knows it itself.
    Beside,
    /// The owner, which lost its driver, in this term of heartbeats.
    Owner(u64),
}

/// Appends to a run what `decide` says of its last record, and returns the run as it is then; `None` if its driver in this process
/// wrote instead. Appends nothing if `decide` returns no event.
///
/// `decide` is called anew, on the run as it is by then, whenever another writer was first.
///
/// # Errors
///
/// Those of `decide`, and of the condition if there is one. [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::Unavailable`]: the store, or other writers were first
/// each time. [`ErrorKind::Indeterminate`]: the events may be on record. [`ErrorKind::Fenced`]: the owner's term is over.
pub(crate) async fn amend(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    who: WriterRole<'_>,
    mut decide: impl FnMut(&mut RunWriter) -> Result<Vec<Event>>,
) -> Result<Option<RunWriter>> {
    let mut races = ConflictRetries::new();
    loop {
        let said = match (who, shared.driver(run)) {
            (WriterRole::Signaller(message), Some(driver)) => tell(&driver, message).await,
            (WriterRole::If(condition, message), Some(driver)) => {
                condition.check(None).await?;
                tell(&driver, message).await
            }
            _ => None,
        };
        match said {
            // Nothing is on record: other writers were first, or the driver was fenced or had ended.
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
        races.lost(run).await?;
    }
}

/// Sends a message to a driver and waits for its reply. Returns `None` if it has ended.
async fn tell(driver: &Sender<DriverCommand>, message: Message<'_>) -> Option<Result<()>> {
    let (reply, said) = oneshot::channel();
    driver.send(message(reply)).ok()?;
    let ended = |_| Err(Error::new(ErrorKind::Conflict, "the driver ended"));
    Some(said.await.unwrap_or_else(ended))
}

fn is_untold(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Closed)
}

/// A run as of its head, and the right to append after it.
pub(crate) struct RunWriter {
    pub(crate) folded: ReplayedRun,
    pub(crate) log: LogWriter,
    /// Whether the run has an owner while it is in progress.
    is_owned: bool,
    /// Whether the channels are of a newer version than the last base, so that the next record must be one.
    is_migrated: bool,
}

impl RunWriter {
    /// Reads a run, as its owner would append to it if it has one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], and as [`fold`] and the store.
    pub(crate) async fn load(shared: &RuntimeInner, run: &RunKey, plan: Option<&Arc<Plan>>) -> Result<Self> {
        let records = shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
        let folded = fold(run, &records, plan)?;
        let mut tip = Self { log: shared.log_writer(run), folded, is_owned: false, is_migrated: false };
        tip.follow(shared);
        Ok(tip)
    }

    /// Has the next record follow the last one that is known.
    fn follow(&mut self, shared: &RuntimeInner) {
        self.log.follow(&self.folded);
        self.log.executor = self.folded.last.owner.unwrap_or(shared.executor);
        self.is_owned = self.folded.last.owner.is_some();
    }

    /// Takes in what a store says [came since](crate::store::CheckpointStore::load_since) the last record that is known. Returns how the
    /// channels were changed by it; `None` if the run was read anew.
    ///
    /// # Errors
    ///
    /// As [`fold`]; the tip is of no further use.
    pub(crate) fn take_in(&mut self, shared: &RuntimeInner, records: &[Record]) -> Result<Option<Vec<Op>>> {
        let run = self.log.run.clone();
        let (mut ops, mut is_whole) = (Vec::new(), !is_news(self.folded.last.head(), records));
        if is_whole {
            self.folded = fold(&run, records, None)?;
        } else {
            for record in records {
                record.verify(&run)?;
                let body = codec::decode(&run, record)?;
                is_whole |= matches!(body.event, Event::Base)
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

    /// Takes a run as of the record that begins it, and that leaves it without an owner.
    pub(crate) fn begun(folded: ReplayedRun, log: LogWriter) -> Self {
        Self { folded, log, is_owned: false, is_migrated: false }
    }

    /// Makes `executor` the owner of the run from the next record on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if no further claim can be counted.
    pub(crate) fn claim(&mut self, executor: ExecutorId) -> Result<()> {
        self.log.epoch = next_epoch(self.folded.last.epoch)?;
        (self.log.executor, self.is_owned) = (executor, true);
        Ok(())
    }

    /// Leaves the run without an owner from the next record on.
    pub(crate) fn release(&mut self) {
        self.is_owned = false;
    }

    /// Has the machine know the plan of a graph, as if the log had been folded with it.
    ///
    /// # Errors
    ///
    /// As [`fold`].
    pub(crate) fn with_plan(mut self, plan: &Arc<Plan>) -> Result<Self> {
        self.folded.replan(plan)?;
        Ok(self)
    }

    /// Returns the state in the form of the graph's type.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::GraphChanged`] if it does not fit the type.
    pub(crate) fn state<S: State>(&self, graph: &Graph<S>) -> Result<S> {
        graph
            .migrated(&self.folded.channels, self.folded.version)
            .and_then(|channels| S::from_channels(channels, graph.schema()))
            .map_err(|error| error.with_run(&self.log.run))
    }

    /// Tells whether the log may lack what the graph's state has: it is of another version, or has no value of a declared channel.
    pub(crate) fn may_lack(&self, graph: &dyn AnyGraph) -> bool {
        let ReplayedRun { channels, version, .. } = &self.folded;
        *version != graph.schema().version() || absent(channels, graph.schema()).next().is_some()
    }

    /// Puts `channels`, which are of the version of the graph's state, in the place of those of the log. If the log is of an older
    /// version, brings the machine forward, too, and makes the next record a base: the original stays as it is until that is written.
    /// So does a channel that the log does not have: the default of a new field may not be empty, and what is added to it is no whole.
    pub(crate) fn migrate(&mut self, graph: &dyn AnyGraph, channels: Channels) {
        if bring_forward(&mut self.folded, graph, channels) {
            self.log.state_version = self.folded.version;
            self.is_migrated = true;
        }
    }

    /// Appends a change of the channels. If that fails, the tip is as it was before, and what is returned beside the error takes the channels
    /// back for whoever followed them; `None` if it is of no further use.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append), and [`ErrorKind::Invalid`] if the change does not fit.
    pub(crate) async fn change(
        &mut self,
        shared: &RuntimeInner,
        edited: EditRecord,
    ) -> std::result::Result<(), (Error, Option<Vec<Op>>)> {
        let undo = self.folded.channels.undoing(&edited.patch).map_err(|error| (misfit(error), None))?;
        let ReplayedRun { machine, last, base_bytes, since_bytes, since_records, .. } = &self.folded;
        let before = (machine.clone(), last.clone(), *base_bytes, *since_bytes, *since_records);
        let done = match self.folded.channels.apply(&edited.patch) {
            Ok(()) => self.append(shared, None, &[Event::Edit(edited)]).await,
            Err(error) => Err(misfit(error)),
        };
        let Err(error) = done else { return Ok(()) };
        let ReplayedRun { machine, last, base_bytes, since_bytes, since_records, .. } = &mut self.folded;
        (*machine, *last, *base_bytes, *since_bytes, *since_records) = before;
        self.follow(shared);
        let is_undone = undo.iter().all(|op| self.folded.channels.apply_op(op.clone()).is_ok());
        Err((error.with_run(&self.log.run), is_undone.then_some(undo)))
    }

    /// Absorbs events and returns the append of their records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`], [`ErrorKind::Invalid`]: a record cannot be made; the tip is of no further use.
    pub(crate) fn record(&mut self, events: &[Event]) -> Result<RunAppend> {
        let expected = Some(self.folded.last.head());
        let mut records = Vec::with_capacity(events.len());
        for event in events {
            self.folded.machine.absorb(event)?;
            let (base, release) = (std::mem::take(&mut self.is_migrated), !self.is_owned);
            let options = || RecordOptions { release, base, ..RecordOptions::default() };
            let ReplayedRun { machine, channels, .. } = &self.folded;
            let record = match self.log.record(event, options(), machine, || codec::to_raw(channels)) {
                // What happened is small enough, the base is not: a run that has outgrown its bases still takes what makes it smaller.
                Err(error) if error.kind() == ErrorKind::TooLarge && !base => {
                    self.log.record_without_base(event, options(), machine)?
                }
                recorded => recorded?,
            };
            self.folded.wrote(&record);
            records.push(record);
        }
        Ok(RunAppend { run: self.log.run.clone(), expected, records, facts: None })
    }

    /// Absorbs events and appends their records, for an owner in its term of heartbeats.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if another writer was first. After an error the tip is of no further use.
    pub(crate) async fn append(
        &mut self,
        shared: &RuntimeInner,
        term: Option<u64>,
        events: &[Event],
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
            // No driver ends it, so nothing else counts it.
            let facts = shared.resting.take(&self.log.run, self.folded.machine.life());
            let meter = shared.telemetry().of(facts.as_ref().map(|facts| &facts.workflow));
            meter.settled(after, || facts.as_ref().map(|facts| shared.clock.now().since(facts.created)));
        }
        Ok(())
    }
}

/// Puts `channels` in the place of those of a run, and brings its machine to their version. Returns whether only a base can say so: it was
/// of another version, or a channel is new.
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

/// Returns the declared channels that have no value.
fn absent<'a>(channels: &'a Channels, schema: &'a Schema) -> impl Iterator<Item = &'a str> {
    schema.channels().iter().map(|channel| &*channel.name).filter(|name| channels.get(name).is_none())
}

/// Counts a claim. An epoch that cannot be counted on would be that of the claim before, which could not be told from this one.
fn next_epoch(epoch: Epoch) -> Result<Epoch> {
    if epoch.next() > epoch {
        return Ok(epoch.next());
    }
    let message = format!(
        "the run was claimed {epoch} times by its log, and no further claim can be counted; fork it, and go on with the fork"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}
