//! The queue of unfinished activations in this process. They are ready to start, wait until records are durable, wait for a time, or are running.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::origin::ActivationOrigin;
use crate::clock::Timestamp;
use crate::compact::small_map::FewMap;
use crate::engine::frontier::{Activation, ActivationKey, Local};
use crate::engine::machine::Machine;
use crate::id::Seq;
use crate::node::{AttemptKey, NodeScope};
use crate::record::memo::Memo;
use crate::runtime::attempt::EndedAttempt;
use crate::state::State;

/// A running attempt.
pub(super) struct RunningAttempt {
    task: AbortHandle,
    is_external: bool,
    /// The inputs of the attempt.
    origin: ActivationOrigin,
    /// The scope of the attempt, which shows whether the attempt only waits.
    scope: Arc<NodeScope>,
    /// Whether the attempt was aborted so that it can start again. Its later requests are ignored.
    is_broken_off: bool,
    /// The waits that ended in earlier attempts and are open again.
    reopened_waits: BTreeSet<String>,
}

impl RunningAttempt {
    pub(super) fn scope(&self) -> &NodeScope {
        &self.scope
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken_off
    }

    /// Returns the position of a wait among the waits that ended in earlier attempts.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        self.scope.place_of(name).filter(|_| !self.reopened_waits.contains(name))
    }

    /// Forgets that a wait ended in an earlier attempt. The wait is open again and may end in another order.
    pub(super) fn reopen_wait(&mut self, name: &str) {
        self.reopened_waits.insert(name.to_owned());
    }
}

/// The queue of the unfinished activations of a run in this process.
pub(super) struct ReadyQueue<S: State> {
    /// The activations that are ready to start, in order.
    ready: VecDeque<ActivationKey>,
    /// The input state of each activation.
    input_states: FewMap<ActivationKey, Arc<S>>,
    /// Activations that wait because their node has reached its maximum number of running activations.
    waiting_for_slot: BTreeMap<Local, VecDeque<ActivationKey>>,
    /// Activations that start after a record is durable.
    waiting_for_record: VecDeque<(Seq, ActivationKey)>,
    /// Activations whose required records are durable, so that they may start.
    passed: VecDeque<ActivationKey>,
    /// Activations that wait for their next attempt.
    retry_times: BTreeSet<(Timestamp, ActivationKey)>,
    running: FewMap<ActivationKey, RunningAttempt>,
    /// The number of running attempts of each node. It is stored, because counting them for each activation would be too slow.
    running_counts: Vec<usize>,
    /// A counter that grows with each attempt, and when the driver continues from a reloaded log.
    attempt_number: u64,
    /// Activations whose attempts were aborted when the log was reloaded. For each of them, the map has the first attempt number that is valid again.
    left_behind: BTreeMap<ActivationKey, u64>,
    tasks: JoinSet<EndedAttempt<S>>,
}

impl<S: State> Default for ReadyQueue<S> {
    fn default() -> Self {
        Self {
            // Mostly one activation: a list that grows by itself starts with room for four.
            ready: VecDeque::with_capacity(1),
            input_states: FewMap::default(),
            waiting_for_slot: BTreeMap::new(),
            waiting_for_record: VecDeque::new(),
            passed: VecDeque::new(),
            retry_times: BTreeSet::new(),
            running: FewMap::default(),
            running_counts: Vec::new(),
            attempt_number: 0,
            left_behind: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }
}

/// Methods for activations that are ready to start.
impl<S: State> ReadyQueue<S> {
    /// Appends an activation that starts from this state.
    pub(super) fn push(&mut self, key: ActivationKey, state: &Arc<S>) {
        self.input_states.insert(key, Arc::clone(state));
        self.ready.push_back(key);
    }

    /// Appends an activation that starts from the state of its first attempt.
    pub(super) fn push_again(&mut self, key: ActivationKey) {
        self.ready.push_back(key);
    }

    /// Appends every unfinished activation that is not running. `is_bounded` returns whether a node limits its number of running activations.
    pub(super) fn push_all(
        &mut self,
        (machine, state): (&Machine, &Arc<S>),
        now: Timestamp,
        is_bounded: impl Fn(Local) -> bool,
    ) {
        self.ready.clear();
        self.waiting_for_slot.clear();
        self.waiting_for_record.clear();
        self.passed.clear();
        self.retry_times.clear();
        self.input_states.retain(|key, _| self.running.contains_key(key));
        let in_flight = machine.in_flight();
        let mut idle: Vec<_> =
            in_flight.keys().copied().filter(|key| !self.running.contains_key(key)).collect();
        // Activations that came due without a driver start in the order of their times. Activations of a bounded node that had not started wait
        // again, because the children of started ones are already active.
        idle.sort_by_key(|key| {
            let activation = in_flight.get(key);
            let waited =
                is_bounded(key.0) && activation.is_some_and(|activation| activation.memos.is_empty());
            (waited, activation.and_then(|activation| due(activation, now)))
        });
        idle.into_iter().for_each(|key| self.push(key, state));
    }

    /// Continues from a reloaded log: it aborts attempts whose activation is no longer in the log, and appends the other unfinished activations.
    pub(super) fn restart(
        &mut self,
        (machine, state): (&Machine, &Arc<S>),
        now: Timestamp,
        is_bounded: impl Fn(Local) -> bool,
    ) {
        self.attempt_number += 1;
        self.running.retain(|key, running| {
            let follows = running.origin.leads_to(machine, *key);
            if !follows {
                running.task.abort();
                self.left_behind.insert(*key, self.attempt_number);
            }
            follows
        });
        self.count_running();
        self.push_all((machine, state), now, is_bounded);
    }

    /// Returns the unique number of the attempt that starts next.
    pub(super) fn next_way(&mut self) -> u64 {
        self.attempt_number += 1;
        self.attempt_number
    }

    /// Returns whether an attempt was aborted because its activation was not in the reloaded log. The same activation may exist again with other
    /// inputs, so the requests and the end of the aborted attempt are ignored.
    pub(super) fn has_left(&self, attempt: AttemptKey) -> bool {
        self.left_behind.get(&attempt.activation).is_some_and(|&way| attempt.way < way)
    }

    /// Takes the next activation whose required records have become durable.
    pub(super) fn next_passed(&mut self) -> Option<ActivationKey> {
        self.passed.pop_front()
    }

    /// Takes the next ready activation whose node has fewer running attempts than `most` returns.
    pub(super) fn next_ready(&mut self, most: impl Fn(Local) -> Option<NonZeroU32>) -> Option<ActivationKey> {
        let has_room = |line: &Self, node| {
            most(node).is_none_or(|most| line.count_running_or_held(node) < most.get() as usize)
        };
        while let Some(key) = self.ready.pop_front() {
            if has_room(self, key.0) {
                return Some(key);
            }
            self.waiting_for_slot.entry(key.0).or_default().push_back(key);
        }
        let node = self.waiting_for_slot.keys().copied().find(|&node| has_room(self, node))?;
        let held = self.waiting_for_slot.get_mut(&node)?;
        let key = held.pop_front();
        if held.is_empty() {
            self.waiting_for_slot.remove(&node);
        }
        key
    }

    /// Counts the activations of a node that run, or that will run once a record is durable.
    fn count_running_or_held(&self, node: Local) -> usize {
        let waiting = self.waiting_for_record.iter().map(|(_, key)| key);
        let comes = waiting.chain(&self.passed).filter(|key| key.0 == node).count();
        comes + self.running_counts.get(node as usize).copied().unwrap_or_default()
    }

    /// Returns the next ready activation.
    pub(super) fn first_ready(&self) -> Option<&ActivationKey> {
        self.ready.front()
    }

    /// Removes a ready activation.
    pub(super) fn remove_ready(&mut self, key: ActivationKey) {
        self.ready.retain(|ready| *ready != key);
        self.waiting_for_slot.values_mut().for_each(|held| held.retain(|held| *held != key));
    }

    /// Drops the input state of an ended activation.
    pub(super) fn drop_input_state(&mut self, key: ActivationKey) {
        self.input_states.remove(&key);
    }

    /// Returns the state with which an activation starts. If further attempts may follow, the state is retained.
    pub(super) fn state_of(&mut self, key: ActivationKey, is_last: bool) -> Option<Arc<S>> {
        if is_last { self.input_states.remove(&key) } else { self.input_states.get(&key).cloned() }
    }

    /// Makes an activation wait until this record is durable.
    pub(super) fn hold_back(&mut self, seq: Seq, key: ActivationKey) {
        self.waiting_for_record.push_back((seq, key));
    }

    /// Releases the activations whose records became durable.
    pub(super) fn pass_barriers(&mut self, durable: Seq) {
        while let Some(&(_, key)) = self.waiting_for_record.front().filter(|(seq, _)| *seq <= durable) {
            self.waiting_for_record.pop_front();
            self.passed.push_back(key);
        }
    }

    /// Schedules the next attempt of an activation.
    pub(super) fn wait_until(&mut self, at: Timestamp, key: ActivationKey) {
        self.retry_times.insert((at, key));
    }

    /// Returns the time of the next scheduled attempt.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.retry_times.first().map(|&(at, _)| at)
    }

    /// Appends the activations whose next attempt is due.
    pub(super) fn push_due(&mut self, now: Timestamp) {
        while let Some(&(_, key)) = self.retry_times.first().filter(|(at, _)| *at <= now) {
            self.retry_times.pop_first();
            self.ready.push_back(key);
        }
    }

    /// Returns whether no activation is ready, and none waits until records are durable.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.passed.is_empty() && self.waiting_for_record.is_empty()
    }

    /// Returns whether no other activation runs or could start.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.ready.is_empty() && self.passed.is_empty()
    }
}

/// Methods for running attempts.
impl<S: State> ReadyQueue<S> {
    /// Starts an attempt as a task of its own.
    pub(super) fn run(
        &mut self,
        external: bool,
        scope: Arc<NodeScope>,
        origin: ActivationOrigin,
        attempt: impl Future<Output = EndedAttempt<S>> + Send + 'static,
    ) {
        let by = scope.attempt_key;
        let task = self.tasks.spawn(attempt);
        let running = RunningAttempt {
            task,
            is_external: external,
            origin,
            scope,
            is_broken_off: false,
            reopened_waits: BTreeSet::new(),
        };
        if self.running.insert(by.activation, running).is_none() {
            *self.running_count_mut(by.activation.0) += 1;
        }
    }

    fn running_count_mut(&mut self, node: Local) -> &mut usize {
        let node = node as usize;
        if self.running_counts.len() <= node {
            self.running_counts.resize(node + 1, 0);
        }
        &mut self.running_counts[node]
    }

    /// Waits until the next attempt ends. Returns `None` if no attempt is running, and an error if the attempt was aborted. The end of an attempt
    /// that is [no longer valid](Self::has_left) is skipped.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the end.
    pub(super) async fn next_end(&mut self) -> Option<Result<EndedAttempt<S>, JoinError>> {
        loop {
            match self.tasks.join_next().await? {
                Ok((by, ..)) if self.has_left(by) => {}
                ended => return Some(ended),
            }
        }
    }

    /// Removes an ended attempt.
    pub(super) fn remove_running(&mut self, key: ActivationKey) -> Option<RunningAttempt> {
        let running = self.running.remove(&key)?;
        *self.running_count_mut(key.0) -= 1;
        Some(running)
    }

    /// Counts the running attempts of each node.
    fn count_running(&mut self) {
        self.running_counts.fill(0);
        let nodes: Vec<Local> = self.running.keys().map(|key| key.0).collect();
        nodes.into_iter().for_each(|node| *self.running_count_mut(node) += 1);
    }

    pub(super) fn running(&self, key: ActivationKey) -> Option<&RunningAttempt> {
        self.running.get(&key)
    }

    pub(super) fn running_mut(&mut self, key: ActivationKey) -> Option<&mut RunningAttempt> {
        self.running.get_mut(&key)
    }

    /// Returns whether at least one running attempt does more than wait for an event that would be retained if the attempt were dropped. `waits`
    /// returns whether an activation waits for such an event.
    pub(super) fn is_at_work(&self, waits: impl Fn(ActivationKey) -> bool) -> bool {
        self.running.iter().any(|(&key, running)| !(running.scope.waits.is_parked() && waits(key)))
    }

    /// Returns whether an activation only waits. It may wait for a time or for a slot of its node. If it is running and `awaits` is set, it waits for
    /// an event that would be retained if the attempt were dropped.
    pub(super) fn waits(&self, key: ActivationKey, awaits: bool) -> bool {
        match self.running.get(&key) {
            Some(running) => awaits && running.scope.waits.is_parked(),
            None => {
                let is_held = self.waiting_for_slot.get(&key.0).is_some_and(|held| held.contains(&key));
                is_held || self.retry_times.iter().any(|(_, timed)| *timed == key)
            }
        }
    }

    /// Counts the attempts that count towards the concurrency limit of the run.
    pub(super) fn working(&self) -> usize {
        self.running.values().filter(|running| !running.scope.waits.is_parked()).count()
    }

    /// Aborts an attempt so that it starts again after it has ended.
    pub(super) fn break_off(&mut self, key: ActivationKey) {
        if let Some(running) = self.running.get_mut(&key) {
            running.is_broken_off = true;
            running.task.abort();
        }
    }

    /// Returns whether an attempt is still running.
    pub(super) fn runs(&self, attempt: AttemptKey) -> bool {
        self.running(attempt.activation).is_some_and(|running| running.scope.attempt_key == attempt)
    }

    /// Returns the activation of an attempt that was aborted to start again and has now ended.
    pub(super) fn broken_activation(&self, task: tokio::task::Id) -> Option<ActivationKey> {
        let gone = |running: &RunningAttempt| running.is_broken_off && running.task.id() == task;
        self.running.iter().find(|(_, running)| gone(running)).map(|(&key, _)| key)
    }

    /// Marks the running attempts, so that their nodes see that the run was cancelled.
    pub(super) fn note_cancel(&self) {
        self.running.values().for_each(|running| running.scope.cleanup.set_due());
    }

    /// Aborts the attempts that began before the cancellation of the run. Attempts of activations that require a cleanup start again. Returns whether
    /// there were any attempts to abort.
    pub(super) fn abort_before_cleanup(&mut self, requires_cleanup: impl Fn(ActivationKey) -> bool) -> bool {
        let is_before = |running: &RunningAttempt| !running.scope.cleanup.is_cleanup();
        let before: Vec<_> =
            self.running.iter().filter(|(_, running)| is_before(running)).map(|(&key, _)| key).collect();
        for &key in &before {
            self.break_off(key);
            if !requires_cleanup(key) {
                self.remove_running(key);
            }
        }
        !before.is_empty()
    }

    /// Aborts every attempt that may be repeated.
    pub(super) fn abort_repeatable(&mut self) {
        self.running.retain(|_, running| {
            if !running.is_external {
                running.task.abort();
            }
            running.is_external
        });
        self.count_running();
    }

    /// Aborts every attempt.
    pub(super) fn abort_all(&mut self) {
        self.tasks.abort_all();
        self.running.clear();
        self.count_running();
    }
}

/// Returns the time at which an activation that waits for timers could continue. This is the last of its timers that have expired, because the
/// activation has already continued after earlier ones. If no timer has expired, it is the last timer.
fn due(activation: &Activation, now: Timestamp) -> Option<Timestamp> {
    let until = |memo: &Memo| match memo {
        Memo::Until(until) => Some(*until),
        Memo::Asked(asked) => asked.ask.deadline.filter(|_| asked.reply.is_open()),
        _ => None,
    };
    let times = || activation.memos.values().filter_map(until).chain(activation.retry_at);
    times().filter(|at| *at <= now).max().or_else(|| times().max())
}

#[cfg(test)]
mod tests;
