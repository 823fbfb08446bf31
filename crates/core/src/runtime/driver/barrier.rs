//! What must be on stable storage before an activation starts: decided by the effect of its node.

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
use crate::node::Ownership;
use crate::record::body::{Event, Intent};
use crate::runtime::fleet::heartbeat::HeartbeatMonitor;
use crate::runtime::shared::RuntimeInner;
use crate::state::State;

/// How often the log is asked for the run's owner before a doubt ends the run here, and the first pause, which doubles.
const LOOKS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two questions of an attempt that waits for the answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Whether an activation may start.
pub(super) enum BarrierState {
    Open,
    /// It waits until its records are durable, and is started then.
    Waits,
}

/// Whether this process owns a run, for an attempt that must not be repeated.
struct RunOwnership {
    shared: Weak<RuntimeInner>,
    heartbeat: Arc<HeartbeatMonitor>,
    run: RunKey,
    /// The owner in the log as long as the run is this process's; absent if the run has no record.
    owner: Option<(Epoch, Option<ExecutorId>)>,
    term: u64,
    /// How often heartbeats had come late when the log was asked last.
    gaps: AtomicU64,
}

impl Ownership for RunOwnership {
    fn is_certain(&self) -> bool {
        self.heartbeat.certain(self.term) == Some(self.gaps.load(Ordering::Relaxed))
    }

    fn confirm(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                // The driver hears of a loss as well, and drops the attempt.
                let Ok(gaps) = self.heartbeat.sure(self.term).await else { return false };
                let Some(shared) = self.shared.upgrade() else { return false };
                let Some(owner) = self.owner else {
                    self.gaps.store(gaps, Ordering::Relaxed);
                    return true;
                };
                match shared.store.head(&self.run).await {
                    Ok(Some(head)) if (head.epoch, head.owner) == owner => {
                        self.gaps.store(gaps, Ordering::Relaxed);
                        if self.is_certain() {
                            return true;
                        }
                    }
                    Ok(_) => return false,
                    Err(error) => {
                        tracing::debug!(run = %self.run, %error, "cannot ask who owns the run; asking again");
                        shared.clock.sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        })
    }
}

impl<S: State> RunDriver<S> {
    /// Writes what must be written before the activation starts, and tells whether it may start at once.
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
                self.note(&Event::Intent(intent), Some((name, key.1)), false)?;
            }
            _ => {}
        }
        let Some(seq) = self.journal.on_its_way() else { return Ok(BarrierState::Open) };
        self.line.hold_back(seq, key);
        Ok(BarrierState::Waits)
    }

    /// Follows from now on whether this process owns the run.
    pub(super) fn ownership(&self) -> Arc<dyn Ownership> {
        let (shared, run) = (Arc::downgrade(&self.shared), self.journal.run().clone());
        let heartbeat = Arc::clone(&self.shared.heartbeat);
        // Of a run without a record, no other process knows.
        let owner = self.journal.durable().map(|_| (self.journal.epoch(), Some(self.journal.executor())));
        let (term, gaps) = (self.registration.term, AtomicU64::new(self.registration.gaps));
        Arc::new(RunOwnership { shared, heartbeat, run, owner, term, gaps })
    }

    /// Waits until this process surely owns the run, for an attempt that must not be repeated: whatever passed since its intent was
    /// recorded, no other process may have claimed the run. Returns false if another writer came first, and everything is in line anew.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the run is lost.
    pub(super) async fn may_act(&mut self) -> Result<bool> {
        let (mut tries, mut pause) = (LOOKS, FIRST_PAUSE);
        loop {
            let term = self.registration.term;
            let gaps = match self.shared.heartbeat.certain(term) {
                Some(gaps) => gaps,
                None => self
                    .shared
                    .heartbeat
                    .sure(term)
                    .await
                    .map_err(|error| error.with_run(self.journal.run()))?,
            };
            if gaps == self.registration.gaps {
                return Ok(true);
            }
            // It may have the only connection.
            self.break_transaction();
            match self.in_term(self.shared.store.head(self.journal.run())).await {
                // Of no other life: while this driver is registered, this executor takes the run in none.
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
