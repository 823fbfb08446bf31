//! The children that nodes wait for here, and those that are told to stop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::RunDriver;
use super::holds::ChildPauses;
use super::waiters::WaitRegistry;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::id::RunKey;
use crate::node::{ChildWait, EndWaiter, RunScope};
use crate::record::child::Child;
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, ParentLink};
use crate::record::pause::{ActivationNote, ChildPolls};
use crate::runtime::children::{
    FIRST_LOOK, SendCondition, TOLD_AT_ONCE, await_end, await_in_time, end_as, next_deadline, tell_to_stop,
};
use crate::runtime::shared::RuntimeInner;
use crate::runtime::tasks::caught;
use crate::state::State;

/// What is heard of a child.
pub(super) enum ChildEvent {
    /// What came of it, for the wait of this name.
    End(ActivationKey, String, Arc<RawValue>),
    /// It is on record that it is to stop, or there is no such child.
    Told(Option<ChildRef>),
    /// It was told to stop, and has.
    Stopped,
    /// It knows whether it is paused with its parent.
    Held(ChildRef),
}

/// How far the children of a run that ends have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopProgress {
    /// Some are not told yet, whatever the grace: nobody else would tell them.
    Telling,
    /// All are told, and some have not ended.
    Waiting,
    /// All have ended, or the grace is over.
    Done,
}

/// The children that nodes wait for here, and those that are told to stop.
pub(super) struct ChildTasks {
    pub(super) tasks: JoinSet<ChildEvent>,
    pub(super) holds: ChildPauses,
    watched: BTreeSet<(ActivationKey, String)>,
    stopped: BTreeSet<ChildRef>,
    /// Bounds how many are told at once.
    turns: Arc<Semaphore>,
    /// How many are being told to stop.
    telling: usize,
    /// How many that were told to stop have not.
    stopping: usize,
    /// When the grace of those is over, by the monotonic clock: it begins when the last was told.
    grace: Option<Duration>,
    /// Since when nothing but waits for children is left, by the monotonic clock.
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

    /// Tells a child to stop, unless it was told.
    fn stop(&mut self, shared: &Arc<RuntimeInner>, child: ChildRef, reason: &str) {
        if self.stopped.insert(child.clone()) {
            self.telling += 1;
            self.grace = None;
            let (shared, reason, turns) = (Arc::clone(shared), reason.to_owned(), Arc::clone(&self.turns));
            self.tasks.spawn(async move {
                let _turn = turns.acquire().await;
                let run = child.run.clone();
                let told =
                    Box::pin(async { tell_to_stop(&shared, &child, SendCondition::Always, &reason).await });
                // A store that panics is logged; whoever looks for the child at rest tells it then.
                let is_told = caught(&run, told).await.unwrap_or(false);
                ChildEvent::Told(is_told.then_some(child))
            });
        }
    }

    /// Takes in that a child was told to stop, and waits until it has.
    fn told(&mut self, shared: &Arc<RuntimeInner>, child: Option<ChildRef>) {
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

    /// How far those have come that were told to stop.
    fn stop_progress(&self, now: Duration) -> StopProgress {
        match (self.telling, self.stopping) {
            (0, 0) => StopProgress::Done,
            (0, _) if self.grace.is_some_and(|grace| grace <= now) => StopProgress::Done,
            (0, _) => StopProgress::Waiting,
            _ => StopProgress::Telling,
        }
    }

    /// Returns what was heard already.
    pub(super) fn try_next(&mut self) -> Option<Result<ChildEvent, JoinError>> {
        self.tasks.try_join_next()
    }
}

impl WaitRegistry {
    /// Returns when the grace of children that were told to stop will be over, by the monotonic clock. One that is over is no time to wake for:
    /// the run may have something else to wait for.
    pub(super) fn end_of_stopping(&self, now: Duration) -> Option<Duration> {
        let children = self.children.as_ref().filter(|children| children.stopping > 0)?;
        children.grace.filter(|grace| *grace > now)
    }

    /// Waits for what is heard next of a child; `None` if nothing is to come.
    ///
    /// Cancel safe: what was not returned is returned by the next call.
    pub(super) async fn next_of_child(&mut self) -> Option<Result<ChildEvent, JoinError>> {
        match self.known_children() {
            Some(children) => children.tasks.join_next().await,
            None => None,
        }
    }
}

impl<S: State> RunDriver<S> {
    /// Notes that a child was started, unless that is noted, and watches it for the wait of this name, unless it `is_told` what came of it.
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
            self.note_step(key, &began, ActivationNote::Result(to_raw(&true)?.into()), false)?;
        }
        if !is_told {
            let terms = (deadline, self.machine.was_paused().then(|| Arc::clone(&self.scope)));
            self.waiters.children().watch(&self.shared, key, name, child, terms, since);
        }
        Ok(())
    }

    /// Takes in what is heard of a child.
    pub(super) fn absorb_child_event(&mut self, event: ChildEvent) -> Result<()> {
        match event {
            ChildEvent::Told(child) => {
                self.waiters.children().told(&self.shared, child);
                Ok(())
            }
            ChildEvent::Stopped => {
                self.waiters.children().stopping -= 1;
                Ok(())
            }
            ChildEvent::Held(child) => {
                self.waiters.children().holds.done(&child);
                Ok(())
            }
            ChildEvent::End(key, name, end) => {
                let children = self.waiters.children();
                children.watched.remove(&(key, name.clone()));
                children.idle = None;
                let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
                // A failed run is noted nothing more: whoever retries it looks again.
                if !activation.memos.contains_key(&name) && !self.machine.status().is_finished() {
                    self.note_step(key, &name, ActivationNote::Result(end), false)?;
                }
                self.waiters.told(key, &name);
                Ok(())
            }
        }
    }

    /// Returns what came of the run, if it has ended.
    ///
    /// # Errors
    ///
    /// That the state cannot be encoded.
    pub(crate) fn end_for_parent(&self) -> Result<Option<Arc<RawValue>>> {
        let state = || Ok((self.state.to_channels_json()?, self.graph.schema().version()));
        end_as(&self.machine, state)?.map(|end| end.to_raw()).transpose()
    }

    /// Lists the children that end with the run and of which no durable record says that they were started, with what binds them: if the
    /// run is another process's by now, no other process may know them.
    pub(crate) fn children_in_doubt(&self) -> Vec<(RunKey, ParentLink)> {
        let parent = self.journal.run();
        let is_doubted = |key: ActivationKey, child: &Child| {
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

    /// Tells the children of a run that ends to stop, those that end with it. Returns how far they have come.
    pub(super) fn stop_children(&mut self, reason: &str) -> StopProgress {
        let run = self.journal.run();
        let open: Vec<_> = self
            .machine
            .children()
            .filter(|(_, child)| child.ends_with_parent())
            .map(|(key, child)| self.machine.child_ref(run, key, &child))
            .collect();
        open.into_iter().for_each(|child| self.waiters.children().stop(&self.shared, child, reason));
        let now = self.shared.clock.monotonic();
        self.waiters.known_children().map_or(StopProgress::Done, |children| children.stop_progress(now))
    }

    /// Lists the children that the run waits for, if it has come to rest over them.
    pub(crate) fn awaited_at_rest(&self) -> Vec<ChildRef> {
        if self.machine.looks().is_none() {
            return Vec::new();
        }
        let run = self.journal.run();
        let open = self.machine.children().filter(|(_, child)| child.is_open());
        open.map(|(key, child)| self.machine.child_ref(run, key, &child)).collect()
    }

    /// Lets go of a run that waits for children, once it has waited for long enough here. Returns false if it has not.
    pub(super) fn rest_on_children(&mut self) -> Result<bool> {
        let (timer, clock) = (self.next_time(), &self.shared.clock);
        let most = self.shared.limits.release_after;
        let (now, wall) = (clock.monotonic(), clock.now());
        let since = *self.waiters.children().idle.get_or_insert(now);
        let is_near = timer.is_some_and(|at| at.since(wall) <= most);
        if !self.shared.is_closing() && (is_near || now.saturating_sub(since) < most) {
            return Ok(false);
        }
        self.release_until_look("it waits for its children")?;
        Ok(true)
    }

    /// Lets go of a run that waits for children until the first look at them, or until its time comes before.
    pub(super) fn release_until_look(&mut self, reason: &str) -> Result<()> {
        let (timer, now) = (self.next_time(), self.shared.clock.now());
        let times = [timer, next_deadline(&self.machine, now)];
        let wake = times.into_iter().flatten().fold(now.plus(FIRST_LOOK), Timestamp::min);
        self.release(reason, Some(wake), Some(ChildPolls { count: 0, timer }))
    }
}
