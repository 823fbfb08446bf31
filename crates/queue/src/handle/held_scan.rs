//! Finds runs that are on hold but have no entry in the queue, and requests a slot for each. Such a run was retried, moved, forked or imported in any
//! process, or the queue was purged and declared again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime, queue_name, queue_pause_reason};
use ferrata_core::store::{Cursor, RunHead};
use ferrata_core::{Epoch, RecordId, Result, RunKey, Timestamp};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::{QueueCommand, entry_id};
use crate::queue_run::{DEADLINE, KEY, NOT_BEFORE, PRIORITY, QUEUE};
use crate::state::{FoundRun, QueueOp, SlotKind, SlotRequest, SlotWaiter, StartId};

/// Number of runs on one page of a scan.
const PAGE: u32 = 500;

/// Maximum number of remembered runs that are interrupted for another reason.
const MAX_JUDGED: usize = 4_096;

/// The scans of one queue in this process. A scan reads one page at a time, beginning with the oldest run.
#[derive(Clone, Debug)]
pub(super) struct HeldScan {
    queue: Arc<str>,
    state: Arc<Mutex<ScanState>>,
}

#[derive(Debug, Default)]
struct ScanState {
    /// Position at which the scan continues; `None` before its first page.
    cursor: Option<Cursor>,
    /// Whether a page is being read.
    is_reading: bool,
    /// The head of each run that is interrupted, but not for the queue. The scan reads such a run again only after a change.
    others: HashMap<RunKey, RecordId>,
}

impl HeldScan {
    pub(super) fn new(queue: &str) -> Self {
        Self { queue: queue.into(), state: Arc::default() }
    }

    fn lock_state(&self) -> MutexGuard<'_, ScanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether more pages follow the last page that was read.
    pub(super) fn is_unfinished(&self) -> bool {
        self.lock_state().cursor.is_some()
    }

    /// Marks a page as being read, unless another read is in progress. If it returns `true`, the caller calls [`read_page`](Self::read_page).
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.lock_state().is_reading, true)
    }

    /// Reads the next page, and requests a slot for each of its runs that is on hold and not in the queue. A later scan retries failures.
    pub(super) async fn read_page(&self, runtime: &Runtime, commands: &UnboundedSender<QueueCommand>) {
        let cursor = self.lock_state().cursor.take();
        let page = runtime.runs().label(QUEUE, &*self.queue).status(RunStatus::Interrupted).oldest_first();
        let page = page.limit(PAGE).after(cursor).await;
        match page {
            Ok(page) => {
                let (reply, missing) = oneshot::channel();
                let held = page.items.into_iter().filter(|head| queue_name(&head.facts).is_some()).collect();
                let _ = commands.send(QueueCommand::FindMissing { held, reply });
                for head in missing.await.unwrap_or_default() {
                    self.enter_head(runtime, &head, commands).await;
                }
                self.lock_state().cursor = page.next;
            }
            Err(error) => {
                tracing::debug!(queue = &*self.queue, %error, "cannot list the runs on hold; will retry")
            }
        }
        self.lock_state().is_reading = false;
    }

    /// Requests a slot for a run that this process retried, moved, forked or imported, and that is on hold.
    pub(super) async fn enter_run(
        &self,
        runtime: &Runtime,
        run: &RunKey,
        commands: &UnboundedSender<QueueCommand>,
    ) {
        match runtime.head(run).await {
            Ok(Some(head)) => self.enter_head(runtime, &head, commands).await,
            Ok(None) => {}
            Err(error) => tracing::debug!(%run, %error, "cannot read a run on hold; a scan will"),
        }
    }

    async fn enter_head(&self, runtime: &Runtime, head: &RunHead, commands: &UnboundedSender<QueueCommand>) {
        if self.lock_state().others.get(&head.run) == Some(&head.id) {
            return;
        }
        match self.find_hold(runtime, head).await {
            Ok(Some(ask)) => {
                drop(commands.send(QueueCommand::Do { op: QueueOp::Ask(Box::new(ask)), reply: None }))
            }
            Ok(None) => {
                let mut state = self.lock_state();
                if state.others.len() >= MAX_JUDGED {
                    state.others.clear();
                }
                state.others.insert(head.run.clone(), head.id);
            }
            // Another process has purged the run, or the store is unavailable.
            Err(error) => tracing::debug!(run = %head.run, %error, "cannot read a run on hold; will retry"),
        }
    }

    /// Returns the slot request of a run, if the run is on hold for the queue.
    async fn find_hold(&self, runtime: &Runtime, head: &RunHead) -> Result<Option<SlotRequest>> {
        let Some(start) = StartId::of(&head.facts).filter(|_| queue_name(&head.facts) == Some(&*self.queue))
        else {
            return Ok(None);
        };
        let now = runtime.checkpoint(&head.run, Position::Latest).await?;
        let is_held = now.paused.is_some_and(|reason| reason.starts_with(&queue_pause_reason(&self.queue)));
        if !is_held || now.status != RunStatus::Interrupted {
            return Ok(None);
        }
        let label = |key| head.facts.labels.get(key);
        let time = |key| label(key).and_then(|ms| ms.parse().ok()).map(Timestamp::from_unix_ms);
        // A deadline applies to the first slot only. A run that has begun, or a copy of such a run, has already met the deadline or missed it.
        let has_deadline = now.epoch == Epoch::NEVER && head.facts.parent.is_none();
        let mut waiting = SlotWaiter {
            run: head.run.clone(),
            kind: SlotKind::Run,
            places: 1,
            key: label(KEY).unwrap_or_default().to_owned(),
            priority: label(PRIORITY).and_then(|priority| priority.parse().ok()).unwrap_or_default(),
            since: now.at.min(runtime.clock().now()),
            executor: runtime.executor(),
            epoch: Epoch::NEVER,
            question: None,
            not_before: time(NOT_BEFORE),
            deadline: time(DEADLINE).filter(|_| has_deadline),
            debounced: None,
            start_ids: Vec::new(),
            alive: Some(FoundRun { start, at: now.index }),
        };
        waiting.is_of(vec![start]);
        let (id, doubts) = (entry_id(&head.run), Vec::new());
        Ok(Some(SlotRequest { id, waiting, once: None, debounce: None, doubts, is_on_record: true }))
    }
}
