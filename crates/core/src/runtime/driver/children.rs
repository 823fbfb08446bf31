//! The children of one active run: the children that its nodes wait for, and the children that are being cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::RunDriver;
use super::child_pauses::ChildPauses;
use super::waiters::WaitRegistry;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::end_waiters::EndWaiter;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::caught;
use crate::node::{ChildWait, RunScope};
use crate::record::child::ActivationChild;
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, ParentLink};
use crate::record::pause::{ActivationNote, ChildPolls};
use crate::runtime::child_control::FIRST_LOOK;
use crate::runtime::child_control::await_end::{
    TOLD_AT_ONCE, await_end, await_in_time, next_deadline, record_cancel,
};
use crate::runtime::child_control::parent_signals::SendCondition;
use crate::runtime::child_ends::read_end::end_as;
use crate::state::State;

/// An event of a child.
pub(super) enum ChildEvent {
    /// A child has ended. The value contains the activation, the name of the wait, and the result.
    End(ActivationKey, String, Arc<RawValue>),
    /// The cancellation of the child is recorded. `None` means that the child does not exist.
    Told(Option<ChildRef>),
    /// The child has ended after its cancellation.
    Stopped,
    /// The child has received the signal that pauses or unpauses it together with its parent.
    Held(ChildRef),
}

/// The progress of cancelling the children of an ending run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopProgress {
    /// Some cancellations are not sent yet. The run waits for them even after the grace period, because no other process would send them.
    Telling,
    /// All cancellations are sent, but some children have not ended yet.
    Waiting,
    /// All children have ended, or the grace period is over.
    Done,
}

/// The children of one active run: the children that its nodes wait for, and the children that are being cancelled.
pub(super) struct ChildTasks {
    pub(super) tasks: JoinSet<ChildEvent>,
    pub(super) holds: ChildPauses,
    watched: BTreeSet<(ActivationKey, String)>,
    stopped: BTreeSet<ChildRef>,
    /// Limits the number of concurrent cancellations.
    turns: Arc<Semaphore>,
    /// The number of cancellations that are being sent.
    telling: usize,
    /// The number of cancelled children that have not ended yet.
    stopping: usize,
    /// The end of the grace period of cancelled children, by the monotonic clock. The grace period starts with the last cancellation.
    grace: Option<Duration>,
    /// The time since which the run waits only for children, by the monotonic clock.
    idle: Option<Duration>,
}

impl Default for ChildTasks {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            holds: ChildPauses::default(),
            watched: BTreeSet::new(),
            stopped: BTreeSet::new(),
            turns: Arc::new(Semaphore::new(TOLD_AT_ONCE)),
            telling: 0,
            stopping: 0,
            grace: None,
            idle: None,
        }
    }
}

impl ChildTasks {
    /// Watches a child for the wait of this name.
    pub(super) fn watch(
        &mut self,
        shared: &Arc<RuntimeInner>,
        key: ActivationKey,
        name: &str,
        child: ChildRef,
        (deadline, was_paused): (Option<Timestamp>, Option<Arc<RunScope>>),
        since: Option<EndWaiter>,
    ) {
        if self.watched.insert((key, name.to_owned())) {
            let (shared, name) = (Arc::clone(shared), name.to_owned());
            self.tasks.spawn(async move {
                let end = await_in_time(&shared, &child, deadline, was_paused.as_deref(), since).await;
                ChildEvent::End(key, name, end)
            });
        }
    }

    /// Cancels a child, unless a cancellation was sent before.
    fn stop(&mut self, shared: &Arc<RuntimeInner>, child: ChildRef, reason: &str) {
        if self.stopped.insert(child.clone()) {
            self.telling += 1;
            self.grace = None;
            let (shared, reason, turns) = (Arc::clone(shared), reason.to_owned(), Arc::clone(&self.turns));
            self.tasks.spawn(async move {
                let _turn = turns.acquire().await;
                let run = child.run.clone();
                let told =
                    Box::pin(async { record_cancel(&shared, &child, SendCondition::Always, &reason).await });
                // A panic of the store is logged. A process that polls the idle child cancels it then.
                let is_told = caught(&run, told).await.unwrap_or(false);
                ChildEvent::Told(is_told.then_some(child))
            });
        }
    }

    /// Handles the result of a cancellation that was sent, and begins to wait for the child's end.
    fn record_cancel_sent(&mut self, shared: &Arc<RuntimeInner>, child: Option<ChildRef>) {
        self.telling -= 1;
        if let Some(child) = child {
            self.stopping += 1;
            let shared = Arc::clone(shared);
            self.tasks.spawn(async move {
                await_end(&shared, &child, None, None).await;
                ChildEvent::Stopped
            });
        }
        if self.telling == 0 {
            self.grace = Some(shared.clock.monotonic().saturating_add(shared.limits.cancel_grace));
        }
    }

    /// Returns the progress of the cancelled children.
    fn stop_progress(&self, now: Duration) -> StopProgress {
        match (self.telling, self.stopping) {
            (0, 0) => StopProgress::Done,
            (0, _) if self.grace.is_some_and(|grace| grace <= now) => StopProgress::Done,
            (0, _) => StopProgress::Waiting,
            _ => StopProgress::Telling,
        }
    }

    /// Returns the next event if it is ready.
    pub(super) fn try_next(&mut self) -> Option<Result<ChildEvent, JoinError>> {
        self.tasks.try_join_next()
    }
}

impl WaitRegistry {
    /// Returns the end of the grace period of cancelled children, by the monotonic clock. Returns `None` after this time, because the run may have
    /// other waits.
    pub(super) fn end_of_stopping(&self, now: Duration) -> Option<Duration> {
        let children = self.children.as_ref().filter(|children| children.stopping > 0)?;
        children.grace.filter(|grace| *grace > now)
    }

    /// Waits for the next event of a child. Returns `None` if no task for a child is running.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the event.
    pub(super) async fn next_of_child(&mut self) -> Option<Result<ChildEvent, JoinError>> {
        match self.known_children() {
            Some(children) => children.tasks.join_next().await,
            None => None,
        }
    }
}

impl<S: State> RunDriver<S> {
    /// Records the start of a child, unless it is already recorded. It also watches the child for the wait of this name, unless `is_told` says that
    /// the end of the child is already known.
    pub(super) fn await_child(
        &mut self,
        key: ActivationKey,
        name: &str,
        wait: ChildWait,
        is_told: bool,
    ) -> Result<()> {
        let ChildWait { began, child, deadline, since } = wait;
        let memos = self.machine.in_flight().get(&key).map(|activation| &activation.memos);
        if let Some(began) = began.filter(|began| !memos.is_some_and(|memos| memos.contains_key(began))) {
            self.write_note(key, &began, ActivationNote::Result(to_raw(&true)?.into()), false)?;
        }
        if !is_told {
            let terms = (deadline, self.machine.was_paused().then(|| Arc::clone(&self.scope)));
            self.waits.children().watch(&self.shared, key, name, child, terms, since);
        }
        Ok(())
    }

    /// Handles an event of a child.
    pub(super) fn absorb_child_event(&mut self, event: ChildEvent) -> Result<()> {
        match event {
            ChildEvent::Told(child) => {
                self.waits.children().record_cancel_sent(&self.shared, child);
                Ok(())
            }
            ChildEvent::Stopped => {
                self.waits.children().stopping -= 1;
                Ok(())
            }
            ChildEvent::Held(child) => {
                self.waits.children().holds.done(&child);
                Ok(())
            }
            ChildEvent::End(key, name, end) => {
                let children = self.waits.children();
                children.watched.remove(&(key, name.clone()));
                children.idle = None;
                let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
                // The log of a failed run gets no more notes: the retry reads the child again.
                if !activation.memos.contains_key(&name) && !self.machine.status().is_finished() {
                    self.write_note(key, &name, ActivationNote::Result(end), false)?;
                }
                self.waits.mark_end_noted(key, &name);
                Ok(())
            }
        }
    }

    /// Returns the end of the run for its parent, if the run has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the state cannot be encoded.
    pub(crate) fn end_for_parent(&self) -> Result<Option<Arc<RawValue>>> {
        let state = || Ok((self.state.to_channels_json()?, self.graph.schema().version()));
        end_as(&self.machine, state)?.map(|end| end.to_raw()).transpose()
    }

    /// Lists the children that end with the run but whose start is not in a durable record, with their parent links. If another process owns the run
    /// now, it may not know these children.
    pub(crate) fn unconfirmed_children(&self) -> Vec<(RunKey, ParentLink)> {
        let parent = self.journal.run();
        let is_doubted = |key: ActivationKey, child: &ActivationChild| {
            child.ends_with_parent() && !(child.began && self.journal.is_noted(key, &child.began_name()))
        };
        let doubted = self.machine.all_children().filter(|(key, child)| is_doubted(*key, child));
        doubted
            .map(|(key, child)| {
                let ChildRef { run, start, .. } = self.machine.child_ref(parent, key, &child);
                (run, ParentLink { parent: parent.clone(), start, bond: child.note.bond })
            })
            .collect()
    }

    /// Cancels the children that must end with the run, which is about to end. Returns the progress.
    pub(super) fn stop_children(&mut self, reason: &str) -> StopProgress {
        let run = self.journal.run();
        let open: Vec<_> = self
            .machine
            .children()
            .filter(|(_, child)| child.ends_with_parent())
            .map(|(key, child)| self.machine.child_ref(run, key, &child))
            .collect();
        open.into_iter().for_each(|child| self.waits.children().stop(&self.shared, child, reason));
        let now = self.shared.clock.monotonic();
        self.waits.known_children().map_or(StopProgress::Done, |children| children.stop_progress(now))
    }

    /// Lists the children that the idle run waits for.
    pub(crate) fn awaited_at_rest(&self) -> Vec<ChildRef> {
        if self.machine.child_polls().is_none() {
            return Vec::new();
        }
        let run = self.journal.run();
        let open = self.machine.children().filter(|(_, child)| child.is_open());
        open.map(|(key, child)| self.machine.child_ref(run, key, &child)).collect()
    }

    /// Releases a run that waits for children, if it has waited in this process for a minimum time. Otherwise it returns false.
    pub(super) fn rest_on_children(&mut self) -> Result<bool> {
        let (timer, clock) = (self.next_time(), &self.shared.clock);
        let most = self.shared.limits.release_after;
        let (now, wall) = (clock.monotonic(), clock.now());
        let since = *self.waits.children().idle.get_or_insert(now);
        let is_near = timer.is_some_and(|at| at.since(wall) <= most);
        if !self.shared.is_closing() && (is_near || now.saturating_sub(since) < most) {
            return Ok(false);
        }
        self.release_until_poll("it waits for its children")?;
        Ok(true)
    }

    /// Releases a run that waits for children until the first poll, or until an earlier timer.
    pub(super) fn release_until_poll(&mut self, reason: &str) -> Result<()> {
        let (timer, now) = (self.next_time(), self.shared.clock.now());
        let times = [timer, next_deadline(&self.machine, now)];
        let wake = times.into_iter().flatten().fold(now.plus(FIRST_LOOK), Timestamp::min);
        self.release(reason, Some(wake), Some(ChildPolls { count: 0, timer }))
    }
}
