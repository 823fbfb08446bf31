//! The waits of running nodes: their subject, start and timeout.

use std::collections::{BTreeMap, BTreeSet};

use super::children::ChildTasks;
use super::transactions::TransactionQueue;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::id::Seq;
use crate::node::ReplySender;

/// The waits of running nodes.
#[derive(Default)]
pub(super) struct WaitRegistry {
    by_activation: BTreeMap<ActivationKey, ActivationWaits>,
    /// The times at which the driver must check a wait.
    times: BTreeSet<(Timestamp, ActivationKey, String)>,
    /// Number of waits so far. The longest wait is served first.
    wait_count: u64,
    /// Activations with a wait that may have ended.
    dirty: BTreeSet<ActivationKey>,
    /// The watched children of these waits. Absent before the first child.
    pub(super) children: Option<Box<ChildTasks>>,
    /// The order of transactions. Absent before the first request.
    pub(super) transactions: Option<Box<TransactionQueue>>,
    /// The children of each wait for a group, by activation and group name.
    groups: BTreeMap<(ActivationKey, String), ChildGroup>,
}

/// The children of one wait, by the names of their notes.
#[derive(Default)]
struct ChildGroup {
    going: BTreeSet<String>,
    /// Children whose noted ends are not delivered.
    ended: Vec<String>,
}

/// The waits of one activation.
#[derive(Default)]
struct ActivationWaits {
    /// Waits for a record that is written, by their order: the first open one ends before the others. A node may have thousands.
    written: BTreeMap<u64, NodeWait>,
    others: Vec<NodeWait>,
}

impl ActivationWaits {
    fn all_mut(&mut self) -> impl Iterator<Item = &mut NodeWait> {
        self.written.values_mut().chain(&mut self.others)
    }

    fn is_empty(&self) -> bool {
        self.written.is_empty() && self.others.is_empty()
    }
}

pub(super) struct NodeWait {
    pub(super) name: String,
    pub(super) order: u64,
    pub(super) what: WaitsFor,
    /// Timeout of the wait, if it has one.
    pub(super) until: Option<Timestamp>,
    pub(super) reply: ReplySender,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// A step of an earlier attempt, or one whose result is in this record, and whether it ended before rivals.
    Step(Option<(Seq, bool)>),
    /// A record that must become durable, and whether the wait ended before rivals.
    Record(Seq, bool),
    Time,
    /// The end of a child.
    Child,
    /// The ends of children of the group with the wait's name, and whether a subset is enough.
    Ends {
        enough: bool,
    },
    Message,
    Answer,
    /// An expired answer, until the expiry is durable.
    Expiry,
}

impl NodeWait {
    fn is_open(&self) -> bool {
        !self.reply.is_closed()
    }
}

impl WaitRegistry {
    /// Returns the watched children, for changes.
    pub(super) fn children(&mut self) -> &mut ChildTasks {
        self.children.get_or_insert_default()
    }

    /// As [`children`](Self::children), if any child was ever watched.
    pub(super) fn known_children(&mut self) -> Option<&mut ChildTasks> {
        self.children.as_deref_mut()
    }

    /// Lists the open waits for events: all but those for a record that is written.
    fn open(&self) -> impl Iterator<Item = (ActivationKey, &NodeWait)> {
        let all =
            self.by_activation.iter().flat_map(|(&key, all)| all.others.iter().map(move |one| (key, one)));
        all.filter(|(_, waiter)| waiter.is_open())
    }

    /// Lists the open waits of an activation that may end next. Of the waits for a record that is written, it lists the first.
    pub(super) fn next_waits(&mut self, key: ActivationKey) -> impl Iterator<Item = &NodeWait> {
        if let Some(all) = self.by_activation.get_mut(&key) {
            while all.written.first_entry().is_some_and(|first| !first.get().is_open()) {
                all.written.pop_first();
            }
            if !all.others.iter().all(NodeWait::is_open) {
                let times = &mut self.times;
                all.others.retain(|waiter| {
                    if let (false, Some(until)) = (waiter.is_open(), waiter.until) {
                        times.remove(&(until, key, waiter.name.clone()));
                    }
                    waiter.is_open()
                });
            }
            if all.is_empty() {
                self.by_activation.remove(&key);
            }
        }
        let all = self.by_activation.get(&key).into_iter();
        all.flat_map(|all| all.written.values().take(1).chain(&all.others))
    }

    /// Returns whether the activation has an open wait.
    pub(super) fn waits(&self, key: ActivationKey) -> bool {
        self.by_activation
            .get(&key)
            .is_some_and(|all| all.written.values().chain(&all.others).any(NodeWait::is_open))
    }

    /// Returns whether a wait for a message is open.
    pub(super) fn is_receiving(&self) -> bool {
        self.open().any(|(_, waiter)| waiter.what == WaitsFor::Message)
    }

    /// Returns whether a wait for a time alone is open.
    pub(super) fn is_sleeping(&self) -> bool {
        self.open().any(|(_, waiter)| waiter.what == WaitsFor::Time)
    }

    /// Returns whether a wait for a child's end is open.
    pub(super) fn is_for_child(&self) -> bool {
        self.open().any(|(_, waiter)| matches!(waiter.what, WaitsFor::Child | WaitsFor::Ends { .. }))
    }

    /// Adds a child to a group. `is_told` states whether its end is noted.
    pub(super) fn join_group(&mut self, key: ActivationKey, group: String, name: String, is_told: bool) {
        let group = self.groups.entry((key, group)).or_default();
        if is_told {
            group.ended.push(name);
            self.mark_dirty(key);
        } else {
            group.going.insert(name);
        }
    }

    /// Records that a child's end is noted.
    pub(super) fn mark_end_noted(&mut self, key: ActivationKey, name: &str) {
        let groups = self.groups.range_mut((key, String::new())..).take_while(|((of, _), _)| *of == key);
        for (_, group) in groups {
            group.ended.extend(group.going.take(name));
        }
        self.mark_dirty(key);
    }

    /// Lists the groups of an activation with ended children, and those children in the order of their ends.
    pub(super) fn ended_groups(&self, key: ActivationKey) -> BTreeMap<String, Vec<String>> {
        let groups = self.groups.range((key, String::new())..).take_while(|((of, _), _)| *of == key);
        let ended = groups.filter(|(_, group)| !group.ended.is_empty());
        ended.map(|((_, name), group)| (name.clone(), group.ended.clone())).collect()
    }

    /// Records that these ends of a group were delivered.
    pub(super) fn mark_delivered(&mut self, key: ActivationKey, group: &str, names: &[String]) {
        if let Some(group) = self.groups.get_mut(&(key, group.to_owned())) {
            let handed: BTreeSet<&String> = names.iter().collect();
            group.ended.retain(|name| !handed.contains(name));
        }
    }

    /// Returns when time moves the run next.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.open().filter_map(|(_, waiter)| waiter.until).min()
    }

    /// Returns when the driver must check next.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.times.first().map(|&(at, ..)| at)
    }

    /// Takes the next expired time, with its wait.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, ActivationKey, String)> {
        self.times.first().filter(|(at, ..)| *at <= now)?;
        self.times.pop_first()
    }

    pub(super) fn add(
        &mut self,
        key: ActivationKey,
        name: String,
        what: WaitsFor,
        until: Option<Timestamp>,
        reply: ReplySender,
    ) {
        if let Some(until) = until {
            self.times.insert((until, key, name.clone()));
        }
        self.wait_count += 1;
        let order = self.wait_count;
        let waiter = NodeWait { name, order, what, until, reply };
        let all = self.by_activation.entry(key).or_default();
        match what {
            WaitsFor::Step(Some(_)) | WaitsFor::Record(..) => drop(all.written.insert(order, waiter)),
            _ => all.others.push(waiter),
        }
        self.dirty.insert(key);
    }

    /// Removes the wait of this order, which ends. Returns `None` if it is no longer open.
    pub(super) fn remove(&mut self, key: ActivationKey, order: u64) -> Option<NodeWait> {
        let all = self.by_activation.get_mut(&key)?;
        let waiter = match all.written.remove(&order) {
            Some(waiter) => waiter,
            None => {
                let at = all.others.iter().position(|waiter| waiter.order == order)?;
                all.others.swap_remove(at)
            }
        };
        if all.is_empty() {
            self.by_activation.remove(&key);
        }
        if let Some(until) = waiter.until {
            self.times.remove(&(until, key, waiter.name.clone()));
        }
        Some(waiter).filter(NodeWait::is_open)
    }

    /// Makes a question wait until its expiry is durable.
    pub(super) fn await_expiry(&mut self, key: ActivationKey, name: &str) {
        self.set(key, name, WaitsFor::Expiry);
    }

    /// Records that the expiry of a question is durable.
    pub(super) fn expired(&mut self, key: ActivationKey, name: &str) {
        self.set(key, name, WaitsFor::Answer);
        self.mark_dirty(key);
    }

    fn set(&mut self, key: ActivationKey, name: &str, what: WaitsFor) {
        let all = self.by_activation.get_mut(&key).into_iter();
        all.flat_map(|all| &mut all.others)
            .filter(|waiter| waiter.name == name && waiter.is_open())
            .take(1)
            .for_each(|waiter| waiter.what = what);
    }

    /// Returns the longest wait for a message. The waits of `before`, in their order, are longer than all later ones.
    pub(super) fn first_receiver(&self, before: &[(ActivationKey, String)]) -> Option<(ActivationKey, u64)> {
        let receiving = self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message);
        let place = |key: ActivationKey, waiter: &NodeWait| {
            let before = before.iter().position(|(of, name)| (*of, name) == (key, &waiter.name));
            (before.unwrap_or(usize::MAX), waiter.order)
        };
        let first = receiving.min_by_key(|&(key, waiter)| place(key, waiter));
        first.map(|(key, waiter)| (key, waiter.order))
    }

    /// Lists the waits for a message, the longest first.
    pub(super) fn receivers(&self) -> Vec<(ActivationKey, String)> {
        let mut receiving: Vec<_> =
            self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message).collect();
        receiving.sort_by_key(|(_, waiter)| waiter.order);
        receiving.into_iter().map(|(key, waiter)| (key, waiter.name.clone())).collect()
    }

    /// Returns the position of a wait for an event among all waits, by start.
    pub(super) fn order_of(&self, key: ActivationKey, name: &str) -> Option<u64> {
        let all = self.by_activation.get(&key)?;
        all.others.iter().find(|waiter| waiter.name == name && waiter.is_open()).map(|waiter| waiter.order)
    }

    /// Marks an activation for a check.
    pub(super) fn mark_dirty(&mut self, key: ActivationKey) {
        if self.by_activation.contains_key(&key) {
            self.dirty.insert(key);
        }
    }

    /// Marks every waiting activation for a check.
    pub(super) fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.by_activation.keys().copied());
    }

    pub(super) fn drain_dirty(&mut self) -> BTreeSet<ActivationKey> {
        std::mem::take(&mut self.dirty)
    }

    /// Forgets an ended activation.
    pub(super) fn forget_activation(&mut self, key: ActivationKey) {
        self.groups.retain(|(of, _), _| *of != key);
        let Some(all) = self.by_activation.remove(&key) else { return };
        for waiter in &all.others {
            if let Some(until) = waiter.until {
                self.times.remove(&(until, key, waiter.name.clone()));
            }
        }
        if all.others.iter().any(|waiter| waiter.what == WaitsFor::Message) {
            // Another wait is now the longest.
            self.mark_all_dirty();
        }
    }

    /// Forgets the activations that no longer follow, and checks the others again.
    pub(super) fn refresh(&mut self, follows: impl Fn(ActivationKey) -> bool) {
        let gone: Vec<_> = self.by_activation.keys().copied().filter(|&key| !follows(key)).collect();
        gone.into_iter().for_each(|key| self.forget_activation(key));
        self.mark_all_dirty();
    }

    /// Restarts from the log. `last` is the last record, including re-created ones.
    ///
    /// Re-registers the waits whose expiry record was lost to a conflict: an answer may have come first.
    pub(super) fn restart(&mut self, last: Seq, follows: impl Fn(ActivationKey) -> bool) {
        for (&key, all) in &mut self.by_activation {
            for waiter in all.all_mut() {
                match &mut waiter.what {
                    WaitsFor::Expiry => {
                        waiter.what = WaitsFor::Answer;
                        self.times.extend(waiter.until.map(|until| (until, key, waiter.name.clone())));
                    }
                    // Its record number now belongs to another writer's record.
                    WaitsFor::Step(Some((seq, _))) | WaitsFor::Record(seq, _) => *seq = last,
                    _ => {}
                }
            }
        }
        self.refresh(follows);
    }
}

#[cfg(test)]
mod tests;
