//! The children that nodes wait for here, and those that are told to stop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::{JoinError, JoinSet};

use super::Driver;
use super::holds::Holds;
use super::waiters::Waiters;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::id::RunKey;
use crate::node::{ChildWait, EndWaiter, RunScope};
use crate::record::child::Child;
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, ParentLink};
use crate::record::pause::{Looks, Noted};
use crate::runtime::children::{FIRST_LOOK, While, await_in_time, cancel, end_as, next_deadline};
use crate::runtime::shared::Shared;
use crate::state::State;

/// What is heard of a child.
pub(super) enum ChildEvent {
    /// What came of it, for the wait of this name.
    End(ActivationKey, String, Arc<RawValue>),
    /// It was told to stop, and has.
    Stopped,
    /// It knows whether it is paused with its parent.
    Held(ChildRef),
}

/// The children that nodes wait for here, and those that are told to stop.
#[derive(Default)]
pub(super) struct ChildTasks {
    pub(super) tasks: JoinSet<ChildEvent>,
    pub(super) holds: Holds,
    watched: BTreeSet<(ActivationKey, String)>,
    stopped: BTreeSet<ChildRef>,
    /// How many that were told to stop have not.
    stopping: usize,
    /// Since when nothing but waits for children is left, by the monotonic clock.
    idle: Option<Duration>,
}

impl ChildTasks {
    /// Watches a child for the wait of this name.
    pub(super) fn watch(
        &mut self,
        shared: &Arc<Shared>,
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

    /// Tells a child to stop, and watches until it has.
    fn stop(&mut self, shared: &Arc<Shared>, child: ChildRef, reason: &str) {
        if self.stopped.insert(child.clone()) {
            self.stopping += 1;
            let (shared, reason) = (Arc::clone(shared), reason.to_owned());
            self.tasks.spawn(async move {
                cancel(&shared, &child, While::Always, &reason).await;
                ChildEvent::Stopped
            });
        }
    }

    /// Whether children that were told to stop have not.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping > 0
    }

    /// Returns what was heard already.
    pub(super) fn try_next(&mut self) -> Option<Result<ChildEvent, JoinError>> {
        self.tasks.try_join_next()
    }
}

impl Waiters {
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

impl<S: State> Driver<S> {
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
            self.note_step(key, &began, Noted::Result(to_raw(&true)?.into()), false)?;
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
                    self.note_step(key, &name, Noted::Result(end), false)?;
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

    /// Tells the children of a run that is cancelled to stop. Returns whether some of those that must have not.
    pub(super) fn stop_children(&mut self, reason: &str) -> bool {
        let run = self.journal.run();
        let open: Vec<_> = self
            .machine
            .children()
            .filter(|(_, child)| child.ends_with_parent())
            .map(|(key, child)| self.machine.child_ref(run, key, &child))
            .collect();
        open.into_iter().for_each(|child| self.waiters.children().stop(&self.shared, child, reason));
        self.waiters.known_children().is_some_and(|children| children.is_stopping())
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
        self.release(reason, Some(wake), Some(Looks { count: 0, timer }))
    }
}
