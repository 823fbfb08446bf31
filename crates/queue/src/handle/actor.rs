//! The actor of a queue in a process: it owns the process's copy of the queue's state and appends every change.

mod polling;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ferrata_core::runtime::{PollIntervals, RetentionPolicy, Runtime, StateCell, WeakRuntime};
use ferrata_core::store::Notices;
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, Result, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use super::due_actions::{self, HolderWatch};
use super::dwell_times::DwellTimes;
use super::held_scan::HeldScan;
use super::recorded_starts::RecordedStarts;
use super::report::QueueReporter;
use super::starts::LatestStarts;
use super::{EnqueueReply, QueueCommand, QueueProgress, Tags, wait_for_notice};
use crate::queue_run::{BY, load_current, run_of};
use crate::state::{FoundRun, OpResult, OverStart, QueueOp, QueueState, SlotHolder, SlotKind};
use crate::tasks::spawn;

/// Maximum number of operations in one record.
const TOGETHER: usize = 512;

/// Number of records of this process between two prunes, and number of records that a prune retains for readers.
const RECORDS: u32 = 1_000;
const KEPT: u32 = 200;

/// State of a slot that a node in this process requested.
enum LocalSlot {
    Waits(oneshot::Sender<()>),
    Holds,
}

/// The receiver of the result of an operation.
enum ReplyTarget {
    Nobody,
    Caller(oneshot::Sender<Result<OpResult>>),
    Starter { id: String, reply: oneshot::Sender<Result<EnqueueReply>> },
    Node { id: String, reply: oneshot::Sender<Result<OpResult>>, turn: oneshot::Sender<()> },
}

/// A query about an entry, answered from this process's copy of the queue.
enum EntryQuery {
    Progress { id: String, reply: oneshot::Sender<Result<QueueProgress>> },
    IsDue { id: String, at: Timestamp, reply: oneshot::Sender<Result<bool>> },
}

pub(super) struct QueueActor {
    name: String,
    cell: StateCell,
    ledger: Option<QueueState>,
    clock: Arc<dyn Clock>,
    pace: PollIntervals,
    executor: ExecutorId,
    command_receiver: mpsc::UnboundedReceiver<QueueCommand>,
    commands: mpsc::WeakUnboundedSender<QueueCommand>,
    notices: Option<Notices>,
    changes: watch::Sender<u64>,
    /// The slots that nodes of this process hold or wait for.
    local_slots: HashMap<String, LocalSlot>,
    starts: LatestStarts,
    /// Operations without a waiting caller, retried until they succeed.
    pending_ops: Vec<QueueOp>,
    /// Held runs that were started, by entry id, with the times of their grants. The next record of this process contains them. They need no record
    /// of their own: if this process dies, another process reads from the run that it was started.
    begun: BTreeMap<String, (Timestamp, Option<FoundRun>)>,
    /// The time of the next check if nothing happens.
    next_check: Option<Timestamp>,
    /// Entries that this process granted since the last action.
    granted: HashSet<String>,
    /// Time of the last action for each entry.
    acted_at: HashMap<String, Duration>,
    /// Id of the holder that was checked last.
    checked_holder: String,
    /// The process that was checked last.
    checked_executor: Option<ExecutorId>,
    is_checking_holders: Arc<AtomicBool>,
    dwell_times: DwellTimes,
    recorded_starts: RecordedStarts,
    scan: HeldScan,
    poll_count: u32,
    /// Time of the last holder check.
    checked_at: Duration,
    report: QueueReporter,
    record_count: u32,
    is_failing: bool,
}

impl QueueActor {
    pub(super) fn new(
        runtime: &Runtime,
        name: &str,
        asked: mpsc::UnboundedReceiver<QueueCommand>,
        commands: mpsc::WeakUnboundedSender<QueueCommand>,
        changes: watch::Sender<u64>,
        recorded: RecordedStarts,
    ) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            cell: StateCell::new(run_of(name)?),
            ledger: None,
            clock: Arc::clone(runtime.clock()),
            pace: runtime.poll_intervals(),
            executor: runtime.executor(),
            command_receiver: asked,
            commands,
            notices: runtime.store().subscribe(),
            changes,
            local_slots: HashMap::new(),
            starts: LatestStarts::default(),
            pending_ops: Vec::new(),
            begun: BTreeMap::new(),
            next_check: None,
            granted: HashSet::new(),
            acted_at: HashMap::new(),
            checked_holder: String::new(),
            checked_executor: None,
            is_checking_holders: Arc::default(),
            dwell_times: DwellTimes::new(Arc::clone(runtime.clock())),
            recorded_starts: recorded,
            scan: HeldScan::new(name),
            poll_count: 0,
            checked_at: Duration::ZERO,
            report: QueueReporter::default(),
            record_count: 0,
            is_failing: false,
        })
    }

    /// Processes commands until the runtime is dropped.
    pub(super) async fn run(mut self, weak: WeakRuntime) {
        let mut looked = self.clock.monotonic();
        loop {
            let due = looked.saturating_add(self.poll_interval());
            let pause = self.poll_pause(due);
            let clock = Arc::clone(&self.clock);
            let mut commands = Vec::new();
            let mut is_look = tokio::select! {
                biased;
                command = self.command_receiver.recv() => match command {
                    Some(command) => {
                        commands.push(command);
                        false
                    }
                    None => return,
                },
                () = wait_for_notice(&mut self.notices, self.cell.run()) => true,
                () = clock.sleep(pause) => true,
            };
            // Yield, so that concurrent starts and ends get into the same record.
            tokio::task::yield_now().await;
            while commands.len() < TOGETHER
                && let Ok(command) = self.command_receiver.try_recv()
            {
                commands.push(command);
            }
            let Some(runtime) = weak.upgrade() else { return };
            self.pace = runtime.poll_intervals();
            is_look |= commands.iter().any(|command| matches!(command, QueueCommand::Look));
            // Poll even under load: without notices, polling is the only way to see other processes' changes.
            is_look |= self.clock.monotonic() >= due;
            if is_look {
                looked = self.clock.monotonic();
                // An error is ignored: the code below reads later changes.
                let _ = self.cell.is_current(&runtime).await;
            }
            self.serve_commands(&runtime, commands, is_look).await;
            if is_look {
                self.check_holders(&runtime);
            }
            drop(runtime);
        }
    }

    fn forget(&mut self) {
        self.cell.forget();
        self.ledger = None;
    }

    /// Writes the requests of callers in one record, and replies with the results. If `is_look` is false, a mere query sends no notice of a change:
    /// its caller listens for such notices and would query again forever.
    async fn serve_commands(&mut self, runtime: &Runtime, commands: Vec<QueueCommand>, is_look: bool) {
        self.starts.remove_ended();
        if !is_look && self.pending_ops.is_empty() && commands.iter().all(QueueCommand::is_begun) {
            return self.note_begun(commands);
        }
        let mut ops = std::mem::take(&mut self.pending_ops);
        let begun = std::mem::take(&mut self.begun);
        ops.extend(begun.into_iter().map(|(id, (at, run))| QueueOp::Begun { id, at, run }));
        let (owed, mut replies, mut queries, mut tags) = (ops.len(), Vec::new(), Vec::new(), Vec::new());
        let mut scans = Vec::new();
        for command in commands {
            match command {
                QueueCommand::Ask { ask, reply, turn } => {
                    replies.push(ReplyTarget::Node { id: ask.id.clone(), reply, turn });
                    ops.push(QueueOp::Ask(ask));
                }
                QueueCommand::Start { ask, reply } => {
                    self.starts.note_start(&ask.id);
                    replies.push(ReplyTarget::Starter { id: ask.id.clone(), reply });
                    ops.push(QueueOp::Ask(ask));
                }
                QueueCommand::TakeBack { id, start_id, entered } => {
                    replies.push(ReplyTarget::Nobody);
                    ops.push(match self.starts.is_last(&id, &entered) {
                        true => QueueOp::TakeBack { id, start_id, entered },
                        false => {
                            QueueOp::Settle { id, gone: vec![OverStart::without_run(start_id)], found: None }
                        }
                    });
                }
                QueueCommand::Ended { id, start_id, ended_at } => {
                    replies.push(ReplyTarget::Nobody);
                    // Use the current state. When the record is written, another run may have the id.
                    let held = self.ledger.as_ref().and_then(|ledger| ledger.held.get(&id));
                    let place = held.map(|held| (held.at, held.executor));
                    ops.push(QueueOp::LeaveRun { id, start_id, ended_at, place });
                }
                QueueCommand::Do { op, reply } => {
                    if let QueueOp::LeaveNode { id, .. } | QueueOp::Rest { id, .. } = &op {
                        self.local_slots.remove(id);
                    }
                    replies.push(reply.map_or(ReplyTarget::Nobody, ReplyTarget::Caller));
                    ops.push(op);
                }
                QueueCommand::Begun { id, at, run } => {
                    replies.push(ReplyTarget::Nobody);
                    ops.push(QueueOp::Begun { id, at, run });
                }
                QueueCommand::Progress { id, reply } => queries.push(EntryQuery::Progress { id, reply }),
                QueueCommand::IsDue { id, at, reply } => queries.push(EntryQuery::IsDue { id, at, reply }),
                QueueCommand::Tags(reply) => tags.push(reply),
                QueueCommand::Held(run) => self.enter_held(runtime, run),
                QueueCommand::FindMissing { held, reply } => scans.push((held, reply)),
                QueueCommand::Look => {}
            }
        }
        match self.write(runtime, &ops).await {
            Ok((said, is_changed)) => {
                self.is_failing = false;
                let mut unheard = Vec::new();
                for (reply, said) in replies.into_iter().zip(said.into_iter().skip(owed)) {
                    unheard.extend(self.reply(reply, said));
                }
                // The caller of a node's request is gone, so the node leaves the queue. Exception: the node has requested the slot again, so the
                // entry belongs to the new request.
                unheard.retain(|id| !self.local_slots.contains_key(id));
                let leave = |id| QueueOp::LeaveNode { id, executor: self.executor };
                self.pending_ops.extend(unheard.into_iter().map(leave));
                for query in queries {
                    // The caller may be gone.
                    match query {
                        EntryQuery::Progress { id, reply } => drop(reply.send(Ok(self.progress(&id)))),
                        EntryQuery::IsDue { id, at, reply } => drop(reply.send(Ok(self.is_due(&id, at)))),
                    }
                }
                tags.into_iter().for_each(|reply| drop(reply.send(Ok(self.tags()))));
                for (held, reply) in scans {
                    // The scan ends with the runtime.
                    drop(reply.send(self.find_missing(held)));
                }
                self.notify_waiters();
                self.run_due_actions(runtime);
                if let Some(ledger) = &self.ledger {
                    self.report.report_status(runtime, &*self.clock, &self.name, ledger, self.pace.look);
                }
                if is_look || is_changed || !ops.is_empty() {
                    self.changes.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
            Err(error) => {
                if error.kind() == ErrorKind::NotFound {
                    self.report.report_removed(runtime, &self.name);
                }
                let again = || copy_error(&error, &self.cell);
                tags.into_iter().for_each(|reply| drop(reply.send(Err(again()))));
                self.reply_failure(&error, ops, owed, replies, queries);
            }
        }
    }

    /// Replies to the callers that the write failed. Operations without a waiting caller are retried later.
    fn reply_failure(
        &mut self,
        error: &Error,
        ops: Vec<QueueOp>,
        owed: usize,
        replies: Vec<ReplyTarget>,
        queries: Vec<EntryQuery>,
    ) {
        let is_missing = error.kind() == ErrorKind::NotFound;
        if !self.is_failing && !is_missing {
            tracing::warn!(queue = self.name, %error, "cannot change a queue; will retry");
        }
        self.is_failing = true;
        self.forget();
        let again = || copy_error(error, &self.cell);
        let mut ops = ops.into_iter();
        self.pending_ops.extend(ops.by_ref().take(owed));
        for (reply, op) in replies.into_iter().zip(ops) {
            // The caller may be gone.
            match reply {
                ReplyTarget::Nobody => self.pending_ops.push(op),
                ReplyTarget::Caller(reply) | ReplyTarget::Node { reply, .. } => {
                    drop(reply.send(Err(again())))
                }
                ReplyTarget::Starter { reply, .. } => drop(reply.send(Err(again()))),
            }
        }
        for query in queries {
            match query {
                EntryQuery::Progress { reply, .. } => drop(reply.send(Err(again()))),
                EntryQuery::IsDue { reply, .. } => drop(reply.send(Err(again()))),
            }
        }
        if is_missing {
            // The queue was purged, and its slots were removed.
            self.pending_ops.clear();
        }
    }

    /// Applies the operations to the newest state of the queue and appends the changes. Also returns whether any process has changed the queue since
    /// the last write.
    async fn write(&mut self, runtime: &Runtime, ops: &[QueueOp]) -> Result<(Vec<OpResult>, bool)> {
        let mut is_changed = false;
        loop {
            let known = self.ledger.take();
            let (ledger, has_news) = load_current(runtime, &self.name, &mut self.cell, known).await?;
            if has_news {
                is_changed = true;
                self.report.mark_outdated();
            }
            let ledger = self.ledger.insert(ledger);
            let now = self.clock.now();
            let said = ops.iter().map(|op| ledger.apply(op.clone(), now)).collect();
            self.next_check = ledger.grant(now);
            let patch = ledger.take_patch()?;
            if patch.is_empty() {
                // A reply without a record is valid only if no record was appended since.
                if ops.is_empty() || self.cell.is_current(runtime).await? {
                    return Ok((said, is_changed));
                }
                continue;
            }
            match self.cell.append(runtime, patch, BY).await {
                Ok(()) => {
                    self.report.mark_outdated();
                    self.granted.extend(ledger.take_given());
                    self.record_count += 1;
                    if self.record_count >= RECORDS {
                        self.record_count = 0;
                        self.prune(runtime);
                    }
                    return Ok((said, true));
                }
                Err(error) if error.kind() == ErrorKind::Conflict => tokio::task::yield_now().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Prunes old records of the queue.
    fn prune(&self, runtime: &Runtime) {
        let (runtime, run) = (runtime.clone(), self.cell.run().clone());
        spawn(async move {
            let policy = RetentionPolicy::keep_all().keep_last(KEPT);
            if let Err(error) = runtime.apply_retention(&run, &policy).await {
                tracing::debug!(%run, %error, "cannot prune old records of a queue; will retry");
            }
        });
    }

    /// Replies with the result of one operation. Returns the entry if the queue admitted it and its caller is gone.
    fn reply(&mut self, reply: ReplyTarget, said: OpResult) -> Option<String> {
        match reply {
            ReplyTarget::Nobody => {}
            // The caller of a start is gone. The queue reclaims the entry after its record, or the caller starts the run again.
            ReplyTarget::Caller(reply) => drop(reply.send(Ok(said))),
            ReplyTarget::Starter { id, reply } => {
                let entered = self.ledger.as_mut().and_then(|ledger| ledger.take_entered(&id));
                let entered = entered.map(|entered| self.starts.note_undo(id, entered));
                drop(reply.send(Ok(EnqueueReply { said, tags: self.tags(), entered })));
            }
            ReplyTarget::Node { id, reply, turn } => {
                let mine = match said {
                    OpResult::Granted => LocalSlot::Holds,
                    OpResult::Waits => LocalSlot::Waits(turn),
                    _ => {
                        drop(reply.send(Ok(said)));
                        return None;
                    }
                };
                if reply.send(Ok(said)).is_err() {
                    return Some(id);
                }
                self.local_slots.insert(id, mine);
            }
        }
        None
    }

    fn tags(&self) -> Tags {
        self.ledger.as_ref().map(|ledger| ledger.settings.tags.clone()).unwrap_or_default()
    }

    fn progress(&self, id: &str) -> QueueProgress {
        let Some(ledger) = &self.ledger else { return QueueProgress::Passed };
        if ledger.waiting.contains_key(id)
            || ledger.expired.contains_key(id)
            || ledger.replaced.contains_key(id)
        {
            return QueueProgress::Waits;
        }
        match ledger.held.get(id) {
            Some(held) if held.on_hold && !self.has_begun(id, held.at) => QueueProgress::Granted,
            _ => QueueProgress::Passed,
        }
    }

    /// Returns whether this process has started the held run, and the queue's log does not contain this yet.
    fn has_begun(&self, id: &str, at: Timestamp) -> bool {
        self.begun.get(id).is_some_and(|(granted, _)| *granted == at)
    }

    /// Notes that held runs were started. The next record contains this.
    fn note_begun(&mut self, commands: Vec<QueueCommand>) {
        for command in commands {
            if let QueueCommand::Begun { id, at, run } = command {
                self.begun.insert(id, (at, run));
            }
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns whether the action for a run that was due at the time `at` is still due.
    fn is_due(&self, id: &str, at: Timestamp) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| {
            ledger.held.get(id).is_some_and(|held| held.on_hold && held.at == at && !self.has_begun(id, at))
                || ledger.expired.get(id).is_some_and(|late| late.at == at)
                || ledger.replaced.get(id).is_some_and(|replaced| replaced.at == at)
        })
    }

    /// Notifies nodes of this process that got a slot or whose entry is gone, and releases slots that no node wants.
    fn notify_waiters(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let is_known = |id: &String| ledger.waiting.contains_key(id) || ledger.held.contains_key(id);
        // A node whose sender is gone asks again.
        self.local_slots.retain(|id, mine| matches!(mine, LocalSlot::Holds) || is_known(id));
        for (id, held) in ledger.held.iter() {
            if held.kind != SlotKind::Node || held.executor != self.executor || held.question.is_some() {
                continue;
            }
            let is_wanted = match self.local_slots.remove(id) {
                Some(LocalSlot::Holds) => true,
                // The send fails if the node was dropped during the wait.
                Some(LocalSlot::Waits(turn)) => turn.send(()).is_ok(),
                None => false,
            };
            match is_wanted {
                true => drop(self.local_slots.insert(id.clone(), LocalSlot::Holds)),
                false => {
                    self.pending_ops.push(QueueOp::LeaveNode { id: id.clone(), executor: self.executor })
                }
            }
        }
    }

    /// Wakes idle runs and starts held runs that got a slot; cancels runs that missed their deadline.
    fn run_due_actions(&mut self, runtime: &Runtime) {
        let Some(ledger) = &self.ledger else { return };
        let (now, look) = (self.clock.monotonic(), self.pace.look);
        self.acted_at.retain(|_, at| now.saturating_sub(*at) < look);
        for (id, act) in due_actions::all_due(ledger) {
            // The process that granted the slot acts first, and others only if it does not.
            let is_new = |held: &SlotHolder| !self.dwell_times.for_longer(&id, held.at, look);
            let is_others = !self.granted.contains(&id) && ledger.held.get(&id).is_some_and(is_new);
            let has_begun = ledger.held.get(&id).is_some_and(|held| self.has_begun(&id, held.at));
            if is_others || has_begun || self.acted_at.contains_key(&id) {
                continue;
            }
            self.acted_at.insert(id.clone(), now);
            if let Some(watch) = self.holder_watch(runtime) {
                spawn(act.execute(watch, id));
            }
        }
        self.granted.clear();
    }
}

/// Copies an error, because each of several callers gets one.
fn copy_error(error: &Error, cell: &StateCell) -> Error {
    Error::new(error.kind(), error.message().to_owned()).with_run(cell.run())
}
