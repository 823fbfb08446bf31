//! What one process does for one queue: a task that makes one record of all that is asked of it at the same time, wakes those whose turn has
//! come, and looks after places whose holders are gone.

mod acts;
mod askers;
mod clerk;
mod report;
mod seen;
mod starts;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::runtime::{Runtime, WeakRuntime};
use ferrata_core::store::RunHead;
use ferrata_core::{Error, ErrorKind, Result, RunKey, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

pub(crate) use self::askers::Asker;
use self::askers::Askers;
use self::clerk::Clerk;
use self::starts::Lives;
pub(crate) use self::starts::Starting;
use crate::cell::{QUEUE, run_of};
use crate::ledger::{Ask, Entered, Life, Op, RUN, Said};
use crate::settings::check_name;
use crate::tasks::spawn;

/// How many runs that may have ended are looked at at once.
const READS: usize = 16;

/// What a process must have to take runs from a queue.
pub(crate) type Tags = BTreeSet<String>;

/// What a start is told.
pub(crate) struct Started {
    pub(crate) said: Said,
    /// What the run is to ask for.
    pub(crate) tags: Tags,
    /// What it has entered; nothing if the run was in the queue before.
    pub(crate) entered: Option<Arc<Entered>>,
}

/// What is asked of the task.
pub(crate) enum Command {
    /// A node asks for a place; `turn` tells when its turn has come.
    Ask { ask: Box<Ask>, reply: oneshot::Sender<Result<Said>>, turn: oneshot::Sender<()> },
    /// A caller starts a run.
    Start { ask: Box<Ask>, reply: oneshot::Sender<Result<Started>> },
    /// A start was refused: what it has entered is taken back.
    TakeBack { id: String, life: Life, entered: Arc<Entered> },
    /// A run has ended: its place is given back, and that of no other start of its name. Where its record does not say of which it is, the place that
    /// it has by now.
    Ended { id: String, life: Option<Life> },
    /// Something is done to the queue.
    Do { op: Op, reply: Option<oneshot::Sender<Result<Said>>> },
    /// Somebody wants to know whether a run is still held back.
    IsHeldBack { id: String, reply: oneshot::Sender<Result<bool>> },
    /// A task of the queue is about to act for a run, and asks whether what was due at that moment still is.
    IsDue { id: String, at: Timestamp, reply: oneshot::Sender<Result<bool>> },
    /// A start asks which tags its run is to ask for.
    Tags(oneshot::Sender<Result<Tags>>),
    /// Something may have changed.
    Look,
}

/// The way to the task.
#[derive(Debug)]
pub(crate) struct Desk {
    commands: mpsc::UnboundedSender<Command>,
    changed: watch::Receiver<u64>,
    askers: Askers,
    lives: Lives,
}

impl Desk {
    /// Returns the desk of a queue in this process, which is there once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is none.
    pub(crate) fn open(runtime: &Runtime, name: &str) -> Result<Arc<Self>> {
        check_name(name)?;
        runtime.extension(|| Desks::new(runtime)).open(runtime, name)
    }

    /// Returns the desk of a queue if this process has it.
    fn of(runtime: &Runtime, name: &str) -> Option<Arc<Self>> {
        runtime.extension(|| Desks::new(runtime)).all().get(name).map(Arc::clone)
    }

    pub(crate) fn send(&self, command: Command) {
        // The task ends with the runtime alone, and then nothing is kept.
        let _ = self.commands.send(command);
    }

    /// Does something to the queue, and comes back when it is durable.
    pub(crate) async fn call(&self, op: Op) -> Result<Said> {
        let (reply, said) = oneshot::channel();
        self.send(Command::Do { op, reply: Some(reply) });
        said.await.map_err(|_| closed())?
    }

    /// Asks for a place for a node.
    pub(crate) async fn ask(&self, ask: Ask, turn: oneshot::Sender<()>) -> Result<Said> {
        let (reply, said) = oneshot::channel();
        self.send(Command::Ask { ask: Box::new(ask), reply, turn });
        said.await.map_err(|_| closed())?
    }

    /// Asks for a place for a run that is to be started.
    pub(crate) async fn start(&self, ask: Ask) -> Result<Started> {
        let (reply, said) = oneshot::channel();
        self.send(Command::Start { ask: Box::new(ask), reply });
        said.await.map_err(|_| closed())?
    }

    pub(crate) async fn tags(&self) -> Result<Tags> {
        let (reply, tags) = oneshot::channel();
        self.send(Command::Tags(reply));
        tags.await.map_err(|_| closed())?
    }

    pub(crate) async fn is_held_back(&self, id: String) -> Result<bool> {
        let (reply, said) = oneshot::channel();
        self.send(Command::IsHeldBack { id, reply });
        said.await.map_err(|_| closed())?
    }

    /// Tells when the queue was changed, or looked at.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the runtime was dropped; the place is given back")
}

/// The desks of a process.
struct Desks(Mutex<HashMap<String, Arc<Desk>>>);

impl Desks {
    fn new(runtime: &Runtime) -> Self {
        let (weak, mut left) = (runtime.downgrade(), runtime.left());
        spawn(async move {
            // One after the other, many that are left at once would wait for each other's reads.
            let reads = Arc::new(Semaphore::new(READS));
            while let Some(run) = left.recv().await {
                let facts = run.facts.as_ref();
                let labels = facts.map(|facts| &facts.labels);
                if labels.is_some_and(|labels| labels.get(QUEUE).is_none()) {
                    continue;
                }
                let Some(runtime) = weak.upgrade() else { return };
                let name = labels.filter(|_| run.has_ended).and_then(|labels| labels.get(QUEUE));
                if let Some(desk) = name.and_then(|name| Desk::of(&runtime, name)) {
                    let life = facts.and_then(|facts| Life::of(facts));
                    desk.send(Command::Ended { id: id_of(&run.run), life });
                    continue;
                }
                // It rests or goes on elsewhere; its end was on record before this process came to drive it; or the process has no such desk yet.
                let (weak, reads) = (weak.clone(), Arc::clone(&reads));
                drop(runtime);
                spawn(async move {
                    let Ok(_read) = reads.acquire_owned().await else { return };
                    if let Some(runtime) = weak.upgrade() {
                        give_back(&runtime, &run.run).await;
                    }
                });
            }
        });
        Self(Mutex::default())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Desk>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, runtime: &Runtime, name: &str) -> Result<Arc<Desk>> {
        let mut desks = self.all();
        if let Some(desk) = desks.get(name) {
            return Ok(Arc::clone(desk));
        }
        let (commands, asked) = mpsc::unbounded_channel();
        let (changes, changed) = watch::channel(0);
        let weak: WeakRuntime = runtime.downgrade();
        let clerk = Clerk::new(runtime, name, asked, commands.downgrade(), changes)?;
        spawn(clerk.work(weak));
        let desk = Arc::new(Desk { commands, changed, askers: Askers::default(), lives: Lives::default() });
        desks.insert(name.to_owned(), Arc::clone(&desk));
        Ok(desk)
    }
}

/// Gives back the place of a run that has ended, if it has one. Its label may name no queue: then no desk is opened, which would ask for that for ever.
pub(crate) async fn give_back(runtime: &Runtime, run: &RunKey) {
    // One that cannot be read now is looked at again with all that hold places.
    if let Ok(Some(head)) = runtime.head(run).await {
        give_back_as(runtime, &head).await;
    }
}

/// Gives back the place of a run that has ended, as its head says.
async fn give_back_as(runtime: &Runtime, head: &RunHead) {
    let Some(name) = head.facts.labels.get(QUEUE).filter(|_| head.status.is_finished()) else { return };
    let desk = match Desk::of(runtime, name) {
        Some(desk) => Ok(desk),
        None => match run_of(name) {
            Ok(queue) if matches!(runtime.head(&queue).await, Ok(Some(_))) => Desk::open(runtime, name),
            _ => return,
        },
    };
    if let Ok(desk) = desk {
        desk.send(Command::Ended { id: id_of(&head.run), life: Life::of(&head.facts) });
    }
}

/// Under which id a run holds a place.
pub(crate) fn id_of(run: &RunKey) -> String {
    format!("{RUN}{run}")
}
