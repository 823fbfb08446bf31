//! The actor of one queue in this process. The actor writes concurrent requests in one record, wakes waiters that got a slot, and reclaims the slots
//! of dead holders.

mod actor;
mod attempt_requests;
mod due_actions;
mod dwell_times;
mod held_scan;
mod recorded_starts;
mod report;
mod starts;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::record::RunFacts;
use ferrata_core::runtime::{LeftRun, RunChange, Runtime, WeakRuntime, queue_name};
use ferrata_core::store::{Notices, RunHead};
use ferrata_core::{Error, ErrorKind, Result, RunKey, Seq, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::actor::QueueActor;
pub(crate) use self::attempt_requests::AttemptRequestGuard;
use self::attempt_requests::AttemptRequests;
use self::recorded_starts::RecordedStarts;
pub(crate) use self::starts::PendingStart;
use self::starts::StartIds;
use crate::queue_run::{QUEUE, run_of};
use crate::settings::check_name;
use crate::state::{EnqueueUndo, FoundRun, OpResult, QueueOp, RUN, SlotRequest, StartId};
use crate::tasks::spawn;

/// Maximum number of possibly ended runs that are read concurrently.
const READS: usize = 16;

/// Tags that a process must have to take runs from a queue.
pub(crate) type Tags = BTreeSet<String>;

/// The queue's reply to a start.
pub(crate) struct EnqueueReply {
    pub(crate) said: OpResult,
    /// Tags of the processes that may claim the run.
    pub(crate) tags: Tags,
    /// The changes of this start; `None` if the run was already in the queue.
    pub(crate) entered: Option<Arc<EnqueueUndo>>,
}

/// How far a run has come in the queue, according to this process's copy of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueProgress {
    Waits,
    /// The run has its slot, but is not known to be started. It may be active in another process.
    Granted,
    /// The run has begun, or the queue does not know it.
    Passed,
}

/// A command to the queue's actor.
pub(crate) enum QueueCommand {
    /// A node requests slots; `turn` notifies it of the grant.
    Ask { ask: Box<SlotRequest>, reply: oneshot::Sender<Result<OpResult>>, turn: oneshot::Sender<()> },
    /// A caller starts a run.
    Start { ask: Box<SlotRequest>, reply: oneshot::Sender<Result<EnqueueReply>> },
    /// A start was rejected: the queue undoes its changes.
    TakeBack { id: String, start_id: StartId, entered: Arc<EnqueueUndo> },
    /// A run ended at this record, or was purged: the queue releases its slot, but no slot of another start of its id. If the record names no
    /// start, the queue releases the current slot.
    Ended { id: String, start_id: Option<StartId>, ended_at: Seq },
    /// This process retried, moved, forked or imported a run, and the run is on hold for the queue.
    Held(RunKey),
    /// A scan found these runs on hold. The actor replies with the runs that are not in the queue.
    FindMissing { held: Vec<RunHead>, reply: oneshot::Sender<Vec<RunHead>> },
    /// Applies an operation to the queue.
    Do { op: QueueOp, reply: Option<oneshot::Sender<Result<OpResult>>> },
    /// A held run was started after it got its slot at this time. `run` is its run in the store.
    Begun { id: String, at: Timestamp, run: Option<FoundRun> },
    /// Asks how far a run has come in the queue.
    Progress { id: String, reply: oneshot::Sender<Result<QueueProgress>> },
    /// An actor's task is about to act on a run. The task asks whether the action that was due at the time `at` is still due.
    IsDue { id: String, at: Timestamp, reply: oneshot::Sender<Result<bool>> },
    /// A start asks which tags the queue requires of the processes that may claim the run.
    Tags(oneshot::Sender<Result<Tags>>),
    /// Makes the actor check the queue, because something may have changed.
    Look,
}

impl QueueCommand {
    /// Returns whether the command only reports a started run.
    fn is_begun(&self) -> bool {
        matches!(self, Self::Begun { .. })
    }
}

/// A handle to the actor of one queue in this process.
#[derive(Debug)]
pub(crate) struct QueueHandle {
    commands: mpsc::UnboundedSender<QueueCommand>,
    changed: watch::Receiver<u64>,
    askers: AttemptRequests,
    start_ids: StartIds,
    recorded: RecordedStarts,
}

impl QueueHandle {
    /// Returns this process's handle to a queue, and starts its actor if there is none. A process has one actor for each queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if `name` is not a valid queue name.
    pub(crate) fn open(runtime: &Runtime, name: &str) -> Result<Arc<Self>> {
        check_name(name)?;
        runtime.extension(|| QueueHandles::new(runtime)).open(runtime, name)
    }

    /// Returns this process's handle to a queue, if its actor is active.
    fn find(runtime: &Runtime, name: &str) -> Option<Arc<Self>> {
        runtime.extension(|| QueueHandles::new(runtime)).lock_handles().get(name).map(Arc::clone)
    }

    pub(crate) fn send(&self, command: QueueCommand) {
        // The actor stops only with the runtime. Then no work remains.
        let _ = self.commands.send(command);
    }

    /// Applies an operation to the queue, and returns once the change is durable.
    pub(crate) async fn call(&self, op: QueueOp) -> Result<OpResult> {
        let (reply, said) = oneshot::channel();
        self.send(QueueCommand::Do { op, reply: Some(reply) });
        said.await.map_err(|_| closed_error())?
    }

    /// Requests slots for a node.
    pub(crate) async fn request_slot(&self, ask: SlotRequest, turn: oneshot::Sender<()>) -> Result<OpResult> {
        let (reply, said) = oneshot::channel();
        self.send(QueueCommand::Ask { ask: Box::new(ask), reply, turn });
        said.await.map_err(|_| closed_error())?
    }

    /// Requests slots for a run that is about to start.
    pub(crate) async fn request_start(&self, ask: SlotRequest) -> Result<EnqueueReply> {
        let (reply, said) = oneshot::channel();
        self.send(QueueCommand::Start { ask: Box::new(ask), reply });
        said.await.map_err(|_| closed_error())?
    }

    pub(crate) async fn tags(&self) -> Result<Tags> {
        let (reply, tags) = oneshot::channel();
        self.send(QueueCommand::Tags(reply));
        tags.await.map_err(|_| closed_error())?
    }

    pub(crate) async fn progress(&self, id: String) -> Result<QueueProgress> {
        let (reply, said) = oneshot::channel();
        self.send(QueueCommand::Progress { id, reply });
        said.await.map_err(|_| closed_error())?
    }

    /// Records that this process has seen a run of this start in the store. If the run is missing later, it was purged.
    pub(crate) fn note_recorded(&self, id: &str, start: StartId) {
        self.recorded.add(id, start);
    }

    /// Returns a receiver that is notified after the actor has changed or checked the queue.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

pub(crate) fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "the runtime was dropped; the slot is released")
}

/// The queue handles of a process, by queue name.
struct QueueHandles(Mutex<HashMap<String, Arc<QueueHandle>>>);

impl QueueHandles {
    fn new(runtime: &Runtime) -> Self {
        let (weak, mut news) = (runtime.downgrade(), runtime.run_changes());
        spawn(async move {
            // Without concurrency, each of many runs that end at the same time would wait for the reads of the others.
            let reads = Arc::new(Semaphore::new(READS));
            while let Some(one) = news.recv().await {
                let Some(runtime) = weak.upgrade() else { return };
                let Some(slow) = take_in(&runtime, one) else { continue };
                let (weak, reads) = (weak.clone(), Arc::clone(&reads));
                drop(runtime);
                spawn(async move {
                    let Ok(_read) = reads.acquire_owned().await else { return };
                    if let Some(runtime) = weak.upgrade() {
                        slow.send(&runtime).await;
                    }
                });
            }
        });
        Self(Mutex::default())
    }

    fn lock_handles(&self) -> MutexGuard<'_, HashMap<String, Arc<QueueHandle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, runtime: &Runtime, name: &str) -> Result<Arc<QueueHandle>> {
        let mut desks = self.lock_handles();
        if let Some(desk) = desks.get(name) {
            return Ok(Arc::clone(desk));
        }
        let (commands, asked) = mpsc::unbounded_channel();
        let (changes, changed) = watch::channel(0);
        let weak: WeakRuntime = runtime.downgrade();
        let recorded = RecordedStarts::default();
        let clerk = QueueActor::new(runtime, name, asked, commands.downgrade(), changes, recorded.clone())?;
        spawn(clerk.run(weak));
        let (askers, start_ids) = (AttemptRequests::default(), StartIds::default());
        let desk = Arc::new(QueueHandle { commands, changed, askers, start_ids, recorded });
        desks.insert(name.to_owned(), Arc::clone(&desk));
        Ok(desk)
    }
}

/// News of a run that needs slow work: its queue is not open in this process, or its head must be read.
enum SlowNews {
    Left { run: RunKey, facts: Option<Arc<RunFacts>> },
    Of { queue: String, command: QueueCommand },
}

/// Passes a run change of this process to the queue's actor. Returns the changes that first need a read of the store.
fn take_in(runtime: &Runtime, news: RunChange) -> Option<SlowNews> {
    let (facts, command) = match news {
        RunChange::Left(LeftRun { run, facts: Some(facts), ended_at, .. }) => match ended_at {
            // The application may use the label `queue` for its own purpose.
            _ if facts.labels.get(QUEUE).is_none() => return None,
            // If the queue is not open in this process, read the head of the run first: the label may name no queue.
            Some(ended_at)
                if facts.labels.get(QUEUE).is_some_and(|name| QueueHandle::find(runtime, name).is_some()) =>
            {
                let start_id = StartId::of(&facts);
                (facts, QueueCommand::Ended { id: entry_id(&run), start_id, ended_at })
            }
            _ => return Some(SlowNews::Left { run, facts: Some(facts) }),
        },
        RunChange::Left(LeftRun { run, .. }) => return Some(SlowNews::Left { run, facts: None }),
        RunChange::Held { run, facts, .. } => (facts, QueueCommand::Held(run)),
        RunChange::Purged { run, facts } => {
            let start_id = StartId::of(&facts);
            (facts, QueueCommand::Ended { id: entry_id(&run), start_id, ended_at: Seq::new(u64::MAX) })
        }
        _ => return None,
    };
    let queue = facts.labels.get(QUEUE)?;
    match QueueHandle::find(runtime, queue) {
        Some(desk) => {
            desk.send(command);
            None
        }
        None => queue_name(&facts).map(|queue| SlowNews::Of { queue: queue.to_owned(), command }),
    }
}

impl SlowNews {
    async fn send(self, runtime: &Runtime) {
        match self {
            Self::Left { run, facts } => match runtime.head(&run).await {
                Ok(Some(head)) => release_slot_of_head(runtime, &head).await,
                // Another caller purged the run while this process drove it.
                Ok(None) => {
                    let queue = facts.as_ref().and_then(|facts| queue_name(facts));
                    let start_id = facts.as_ref().and_then(|facts| StartId::of(facts));
                    if let Some(queue) = queue {
                        let ended = QueueCommand::Ended {
                            id: entry_id(&run),
                            start_id,
                            ended_at: Seq::new(u64::MAX),
                        };
                        send_if_declared(runtime, queue, ended).await;
                    }
                }
                // The periodic check of the holders retries this.
                Err(_) => {}
            },
            Self::Of { queue, command } => send_if_declared(runtime, &queue, command).await,
        }
    }
}

/// Releases the slot of an ended run, if it has one.
pub(crate) async fn release_slot(runtime: &Runtime, run: &RunKey) {
    // The check of all holders retries unreadable runs.
    if let Ok(Some(head)) = runtime.head(run).await {
        release_slot_of_head(runtime, &head).await;
    }
}

/// Releases the slot of a run whose head shows that it has ended.
async fn release_slot_of_head(runtime: &Runtime, head: &RunHead) {
    let Some(name) = head.facts.labels.get(QUEUE).filter(|_| head.status.is_finished()) else { return };
    let (start_id, ended_at) = (StartId::of(&head.facts), head.seq);
    send_if_declared(runtime, name, QueueCommand::Ended { id: entry_id(&head.run), start_id, ended_at })
        .await;
}

/// Sends a command to a queue that exists. A run's label may name a queue that was never declared. Opening a handle for such a name would start an
/// actor that polls for the queue forever.
async fn send_if_declared(runtime: &Runtime, name: &str, command: QueueCommand) {
    let desk = match QueueHandle::find(runtime, name) {
        Some(desk) => Ok(desk),
        None => match run_of(name) {
            Ok(queue) if matches!(runtime.head(&queue).await, Ok(Some(_))) => {
                QueueHandle::open(runtime, name)
            }
            _ => return,
        },
    };
    if let Ok(desk) = desk {
        desk.send(command);
    }
}

/// Returns the entry id of a run.
pub(crate) fn entry_id(run: &RunKey) -> String {
    format!("{RUN}{run}")
}

/// Waits until the store sends a notice that a run has changed. Waits forever if the store sends no notices.
pub(crate) async fn wait_for_notice(notices: &mut Option<Notices>, run: &RunKey) {
    loop {
        let Some(heard) = notices else { return std::future::pending().await };
        match heard.next().await {
            Ok(Some(notice)) if notice.run != *run => {}
            Ok(_) => return,
            Err(_) => *notices = None,
        }
    }
}
