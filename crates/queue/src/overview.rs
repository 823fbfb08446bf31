//! All queues of a store, for a caller that reads them again and again.

use std::collections::{BTreeMap, HashMap};

use ferrata_core::runtime::Runtime;
use ferrata_core::{ErrorKind, RecordId, Result, RunKey, Timestamp};
use serde::Serialize;

use crate::queue::{QueueStatus, list_heads, read_status};
use crate::queue_run::{read_queue, run_of};
use crate::state::{QueueState, SlotKind};

/// All queues of a store, for example for an operator's page. Each refresh lists the queues, and loads only the queues that have changed.
///
/// # Examples
///
/// ```
/// use ferrata_core::runtime::Runtime;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_queue::{QueueOverview, RuntimeQueueExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// runtime.queue("mail").at_once(5).declare().await?;
/// let mut overview = QueueOverview::new();
/// overview.refresh(&runtime).await?;
/// let now = runtime.clock().now();
/// assert_eq!(overview.statuses(now)[0].name, "mail");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct QueueOverview {
    known: BTreeMap<String, CachedQueue>,
}

#[derive(Debug)]
struct CachedQueue {
    /// The last record of the queue's run at the last read.
    head: RecordId,
    ledger: std::result::Result<QueueState, UnreadableQueue>,
}

/// A listed queue that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[doc(hidden)]
pub struct UnreadableQueue {
    /// The name of the queue.
    pub name: String,
    /// The run that stores the queue.
    pub run: RunKey,
    /// The reason why the queue is unreadable: it was cancelled, it is corrupt, or a newer version wrote it.
    pub why: String,
}

/// The membership of a run in a queue: the slots that it holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[doc(hidden)]
pub struct QueueMembership {
    /// The name of the queue.
    pub queue: String,
    /// The run that stores the queue.
    pub run: RunKey,
    /// Whether the slots are for a whole run or for a node.
    pub kind: SlotKind,
    /// The number of slots that the run or node holds or waits for.
    pub places: u32,
    /// The key of the request.
    pub key: String,
    /// The time since which the run or node holds the slots or waits for them.
    pub since: Timestamp,
    /// The number of waiters before this one in the current order; `None` if the slots are granted.
    pub before: Option<usize>,
    /// The earliest time at which the queue may grant the slots.
    pub not_before: Option<Timestamp>,
    /// The deadline for the grant: a run without its slot at this time is cancelled.
    pub deadline: Option<Timestamp>,
    /// The [tags](crate::QueueRequest::tags) that the queue requires of a process. Empty unless slots are free, runs wait, and no process with these
    /// tags has granted the slots.
    pub lacks: Vec<String>,
}

impl QueueOverview {
    /// Creates an empty overview. Call [`refresh`](Self::refresh) to fill it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the queues of a store. A call makes one listing, and one load for each queue that has changed since the last call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] and any other error of the store. A queue that was cancelled or cannot be read causes no error.
    /// [`unreadable`](Self::unreadable) returns such queues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing in the store. The next call reads the queues that are still to be read.
    pub async fn refresh(&mut self, runtime: &Runtime) -> Result<()> {
        let listed: BTreeMap<String, RecordId> =
            list_heads(runtime).await?.into_iter().map(|(name, head)| (name, head.id)).collect();
        self.known.retain(|name, _| listed.contains_key(name));
        for (name, head) in listed {
            if self.known.get(&name).is_some_and(|known| known.head == head) {
                continue;
            }
            let ledger = match read_queue(runtime, &name).await {
                Ok(ledger) => Ok(ledger),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WrongStatus | ErrorKind::Corrupt | ErrorKind::Unsupported
                    ) =>
                {
                    let run = run_of(&name)?;
                    Err(UnreadableQueue { name: name.clone(), run, why: error.to_string() })
                }
                // The queue was purged after it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.known.remove(&name);
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.known.insert(name, CachedQueue { head, ledger });
        }
        Ok(())
    }

    /// Returns the status of each queue at the last refresh, sorted by name. The waiters have the order that applies at `now`.
    #[must_use]
    pub fn statuses(&self, now: Timestamp) -> Vec<QueueStatus> {
        let readable = self.readable();
        readable.filter_map(|(name, ledger)| read_status(name, ledger, now).ok()).collect()
    }

    /// Returns the status of one queue at the last refresh; `None` if the queue did not exist or could not be read.
    #[must_use]
    pub fn status(&self, name: &str, now: Timestamp) -> Option<QueueStatus> {
        let ledger = self.known.get(name)?.ledger.as_ref().ok()?;
        read_status(name, ledger, now).ok()
    }

    /// Returns the queues that could not be read at the last refresh.
    #[must_use]
    pub fn unreadable(&self) -> Vec<UnreadableQueue> {
        self.known.values().filter_map(|known| known.ledger.as_ref().err().cloned()).collect()
    }

    /// Returns the memberships of a run at the last refresh, with the number of waiters before it as of `now`. Slots that it waits for come before
    /// slots that it holds.
    #[must_use]
    pub fn memberships(&self, run: &RunKey, now: Timestamp) -> Vec<QueueMembership> {
        let (mut waits, mut holds) = (Vec::new(), Vec::new());
        for (name, ledger) in self.readable() {
            let Ok(queue) = run_of(name) else { continue };
            holds.extend(ledger.held.values().filter(|held| held.run == *run).map(|held| QueueMembership {
                queue: name.clone(),
                run: queue.clone(),
                kind: held.kind,
                places: held.places,
                key: held.key.clone(),
                since: held.at,
                before: None,
                not_before: None,
                deadline: None,
                lacks: Vec::new(),
            }));
            // Sort a line only if the run waits in it.
            if ledger.waiting.values().any(|waiting| waiting.run == *run) {
                let mine = waiters_in_order(name, &queue, ledger, now).filter(|(one, _)| *one == run);
                waits.extend(mine.map(|(_, standing)| standing));
            }
        }
        waits.append(&mut holds);
        waits
    }

    /// Returns for each waiting run the slots that it waits for, as of the last refresh. The numbers of waiters before it are as of `now`. Use this
    /// method for a listing of many runs.
    #[must_use]
    pub fn waits_by_run(&self, now: Timestamp) -> HashMap<RunKey, Vec<QueueMembership>> {
        let mut waits: HashMap<RunKey, Vec<QueueMembership>> = HashMap::new();
        for (name, ledger) in self.readable() {
            let Ok(queue) = run_of(name) else { continue };
            for (run, standing) in waiters_in_order(name, &queue, ledger, now) {
                waits.entry(run.clone()).or_default().push(standing);
            }
        }
        waits
    }

    fn readable(&self) -> impl Iterator<Item = (&String, &QueueState)> {
        self.known.iter().filter_map(|(name, known)| Some((name, known.ledger.as_ref().ok()?)))
    }
}

/// Returns the waiters in their order at `now`.
fn waiters_in_order<'a>(
    name: &'a str,
    queue: &'a RunKey,
    ledger: &'a QueueState,
    now: Timestamp,
) -> impl Iterator<Item = (&'a RunKey, QueueMembership)> {
    let lacks = ledger.unserved_tags(now);
    ledger.waiters_in_order(now).into_iter().enumerate().map(move |(before, (_, waiting))| {
        let standing = QueueMembership {
            queue: name.to_owned(),
            run: queue.clone(),
            kind: waiting.kind,
            places: waiting.places,
            key: waiting.key.clone(),
            since: waiting.since,
            before: Some(before),
            not_before: waiting.not_before.filter(|at| *at > now),
            deadline: waiting.deadline,
            lacks: if waiting.kind == SlotKind::Run { lacks.clone() } else { Vec::new() },
        };
        (&waiting.run, standing)
    })
}
