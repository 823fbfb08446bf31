//! All queues of a store, for a caller that reads them repeatedly.

use std::collections::{BTreeMap, HashMap};

use ferrata_core::runtime::Runtime;
use ferrata_core::{ErrorKind, RecordId, Result, RunKey, Timestamp};
use serde::Serialize;

use crate::queue::{QueueStatus, list_heads, read_status};
use crate::queue_run::{read_queue, run_of};
use crate::state::{QueueState, SlotKind};

/// All queues of a store, as an operator's page shows them. Each refresh lists the queues, and loads only those that have changed.
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
pub struct QueueOverview {
    known: BTreeMap<String, CachedQueue>,
}

#[derive(Debug)]
struct CachedQueue {
    /// The newest record at the last read.
    head: RecordId,
    ledger: std::result::Result<QueueState, UnreadableQueue>,
}

/// A listed queue that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableQueue {
    /// The name.
    pub name: String,
    /// The run that is the queue.
    pub run: RunKey,
    /// The reason: the queue was cancelled, is corrupt, or was written by a newer program.
    pub why: String,
}

/// The membership of a run in a queue: the slots that it holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueMembership {
    /// The name of the queue.
    pub queue: String,
    /// The run that is the queue.
    pub run: RunKey,
    /// The kind of the slot's user.
    pub kind: SlotKind,
    /// The number of slots that it holds or waits for.
    pub places: u32,
    /// The key of its request.
    pub key: String,
    /// The time since which it holds the slots, or waits.
    pub since: Timestamp,
    /// The number of waiters before it in the current order; `None` if it holds the slot.
    pub before: Option<usize>,
    /// The earliest time of its grant.
    pub not_before: Option<Timestamp>,
    /// The deadline of its grant.
    pub deadline: Option<Timestamp>,
    /// The [tags](crate::QueueRequest::tags) of the queue, if slots are free for waiting runs and no process with these tags has granted them.
    pub lacks: Vec<String>,
}

impl QueueOverview {
    /// Makes an overview that knows no queue yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the queues of a store: one listing, and a load of each queue that has changed since the last call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] and any other error of the store. A queue that was cancelled or cannot be read causes no error:
    /// [`unreadable`](Self::unreadable) returns it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing in the store. The next call reads the remaining queues.
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
                // Purged since it was listed.
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

    /// Returns the queues' status at the last refresh, by name, with the waiters in their order at `now`.
    #[must_use]
    pub fn statuses(&self, now: Timestamp) -> Vec<QueueStatus> {
        let readable = self.readable();
        readable.filter_map(|(name, ledger)| read_status(name, ledger, now).ok()).collect()
    }

    /// Returns the status of one queue at the last refresh; `None` if it did not exist or could not be read.
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

    /// Returns the memberships of a run at the last refresh, with the number of waiters before it as of `now`. Waits come before holdings.
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
            // A line is put in order only for one who stands in it.
            if ledger.waiting.values().any(|waiting| waiting.run == *run) {
                let mine = waiters_in_order(name, &queue, ledger, now).filter(|(one, _)| *one == run);
                waits.extend(mine.map(|(_, standing)| standing));
            }
        }
        waits.append(&mut holds);
        waits
    }

    /// Returns the waits of each run at the last refresh, with the numbers of waiters before it as of `now`: for a listing of many runs.
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
