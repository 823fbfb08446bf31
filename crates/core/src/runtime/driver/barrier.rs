//! Decides by a node's effect which records must be durable before an activation starts.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::RunDriver;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::graph::node_set::NodeIx;
use crate::graph::{Effect, NodeCheckpoint};
use crate::id::{Epoch, ExecutorId, RunKey};
use crate::kernel::heartbeat::HeartbeatMonitor;
use crate::kernel::inner::RuntimeInner;
use crate::node::Ownership;
use crate::record::body::{Intent, RecordEvent};
use crate::state::State;

/// The maximum number of reads by which the driver checks the owner of the run. If the owner is still uncertain after the last read, the run stops in
/// this process. The second constant is the delay after the first read, which doubles each time.
const LOOKS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest delay between two ownership checks of a waiting attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The answer whether an activation may start.
pub(super) enum BarrierState {
    Open,
    /// The activation starts after the records that its effect requires are durable.
    Waits,
}

/// Checks that this process owns a run, for an attempt that must not be repeated.
struct RunOwnership {
    shared: Weak<RuntimeInner>,
    heartbeat: Arc<HeartbeatMonitor>,
    run: RunKey,
    /// The epoch of the claim, and the id of this process. `None` if the run has no record.
    owner: Option<(Epoch, ExecutorId)>,
    term: u64,
    /// The number of late heartbeats at the time of the last read of the log.
    gaps: AtomicU64,
}

impl Ownership for RunOwnership {
    fn is_certain(&self) -> bool {
        self.heartbeat.late_count_if_certain(self.term) == Some(self.gaps.load(Ordering::Relaxed))
    }

    fn confirm(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                // The driver also learns of the loss, and drops the attempt.
                let Ok(gaps) = self.heartbeat.wait_until_certain(self.term).await else { return false };
                let Some(shared) = self.shared.upgrade() else { return false };
                let Some((epoch, owner)) = self.owner else {
                    self.gaps.store(gaps, Ordering::Relaxed);
                    return true;
                };
                match shared.store.head(&self.run).await {
                    // A run that failed has no owner, but no other process acts on it before it claims the run.
                    Ok(Some(head))
                        if head.epoch == epoch && head.owner.is_none_or(|there| there == owner) =>
                    {
                        self.gaps.store(gaps, Ordering::Relaxed);
                        if self.is_certain() {
                            return true;
                        }
                    }
                    Ok(_) => return false,
                    Err(error) => {
                        tracing::debug!(run = %self.run, %error, "cannot check the owner of the run; will retry");
                        shared.clock.sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        })
    }
}

impl<S: State> RunDriver<S> {
    /// Writes the records that must be durable before the activation starts, and returns whether it may start at once.
    pub(super) fn barrier(&mut self, key: ActivationKey) -> Result<BarrierState> {
        let node = self.plan.node(NodeIx::new(key.0));
        let (effect, checkpoint) = (node.effect, node.checkpoint);
        if matches!(checkpoint, NodeCheckpoint::Before | NodeCheckpoint::Both) {
            self.flush(true)?;
        }
        match effect {
            Effect::Pure | Effect::Read | Effect::Transactional
                if !matches!(checkpoint, NodeCheckpoint::Before | NodeCheckpoint::Both) =>
            {
                return Ok(BarrierState::Open);
            }
            Effect::External
                if self.machine.in_flight().get(&key).is_some_and(|activation| !activation.intent) =>
            {
                let name = self.plan.node(NodeIx::new(key.0)).name.clone();
                let intent = Intent { node: name.clone(), visit: key.1 };
                self.write_event(&RecordEvent::Intent(intent), Some((name, key.1)), false)?;
            }
            _ => {}
        }
        let Some(seq) = self.journal.on_its_way() else { return Ok(BarrierState::Open) };
        self.ready_queue.hold_back(seq, key);
        Ok(BarrierState::Waits)
    }

    /// Returns a check that this process owns the run.
    pub(super) fn ownership(&self) -> Arc<dyn Ownership> {
        let (shared, run) = (Arc::downgrade(&self.shared), self.journal.run().clone());
        let heartbeat = Arc::clone(&self.shared.heartbeat);
        // No other process knows a run without a record.
        let owner = self.journal.durable().map(|_| (self.journal.epoch(), self.journal.executor()));
        let (term, gaps) = (self.registration.term, AtomicU64::new(self.registration.gaps));
        Arc::new(RunOwnership { shared, heartbeat, run, owner, term, gaps })
    }

    /// Waits until this process certainly owns the run, before an attempt starts that must not be repeated. The check must rule out that another
    /// process has claimed the run since the intent of the attempt was recorded. Returns false after a write conflict, because then all activations
    /// are in the ready queue again.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the run is lost.
    pub(super) async fn may_act(&mut self) -> Result<bool> {
        let (mut tries, mut pause) = (LOOKS, FIRST_PAUSE);
        loop {
            let term = self.registration.term;
            let gaps = match self.shared.heartbeat.late_count_if_certain(term) {
                Some(gaps) => gaps,
                None => self
                    .shared
                    .heartbeat
                    .wait_until_certain(term)
                    .await
                    .map_err(|error| error.with_run(self.journal.run()))?,
            };
            if gaps == self.registration.gaps {
                return Ok(true);
            }
            // The transaction may have the only connection.
            self.break_transaction();
            match self.in_term(self.shared.store.head(self.journal.run())).await {
                // It is the same start: while this driver is registered, this executor claims no other start of the run.
                Ok(Some(head))
                    if (head.epoch, head.owner) == (self.journal.epoch(), Some(self.journal.executor())) =>
                {
                    self.registration.gaps = gaps;
                }
                Ok(_) => {
                    self.rebase().await?;
                    return Ok(false);
                }
                Err(error) if error.is_retryable() && tries > 0 => {
                    self.shared.clock.sleep(pause).await;
                    (tries, pause) = (tries - 1, pause * 2);
                }
                Err(error) => return Err(error.with_run(self.journal.run())),
            }
        }
    }
}
