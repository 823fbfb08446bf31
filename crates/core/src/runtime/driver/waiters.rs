//! The waits of running nodes. For each wait, the registry contains what the node waits for, when the wait began and when it times out.

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
    /// The number of waits so far. It gives each wait its position, because the longest wait is served first.
    wait_count: u64,
    /// The activations with a wait that may have ended and must be checked.
    dirty: BTreeSet<ActivationKey>,
    /// The children for which nodes wait. `None` until the first child.
    pub(super) children: Option<Box<ChildTasks>>,
    /// The queue of transactions. `None` until the first transaction.
    pub(super) transactions: Option<Box<TransactionQueue>>,
    /// The children of each wait for a group, by activation and group name.
    groups: BTreeMap<(ActivationKey, String), ChildGroup>,
}

/// The children of one wait for a group, by the names of their memos.
#[derive(Default)]
struct ChildGroup {
    going: BTreeSet<String>,
    /// The children whose ends are recorded but not delivered.
    ended: Vec<String>,
}

/// The waits of one activation.
#[derive(Default)]
struct ActivationWaits {
    /// Waits for a record that is being written, by their `order`. The first open wait ends before the others. A node may have thousands of waits.
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
    /// The time at which the wait times out, if it has a timeout.
    pub(super) until: Option<Timestamp>,
    pub(super) reply: ReplySender,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The node waits for the result of a step. `None` means a step of an earlier attempt. Otherwise the value has the record of the result, and
    /// whether the step ended before other waits.
    Step(Option<(Seq, bool)>),
    /// The node waits until this record is durable. The flag is true if this wait ended before other waits.
    Record(Seq, bool),
    Time,
    /// The node waits for the end of a child.
    Child,
    /// The node waits for the ends of children. The group of the children has the name of the wait.
    Ends {
        enough: bool,
    },
    Message,
    Answer,
    /// The question of the wait has expired, and the wait lasts until this expiry is durable.
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

    /// Returns the watched children, or `None` if no child was ever watched.
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

    /// Returns whether a wait for only a time is open.
    pub(super) fn is_sleeping(&self) -> bool {
        self.open().any(|(_, waiter)| waiter.what == WaitsFor::Time)
    }

    /// Returns whether a wait for a child's end is open.
    pub(super) fn is_for_child(&self) -> bool {
        self.open().any(|(_, waiter)| matches!(waiter.what, WaitsFor::Child | WaitsFor::Ends { .. }))
    }

    /// Adds a child to a group. `is_told` says whether the end of the child is already recorded.
    pub(super) fn join_group(&mut self, key: ActivationKey, group: String, name: String, is_told: bool) {
        let group = self.groups.entry((key, group)).or_default();
        if is_told {
            group.ended.push(name);
            self.mark_dirty(key);
        } else {
            group.going.insert(name);
        }
    }

    /// Marks the end of a child as recorded.
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

    /// Marks these ends of a group as delivered.
    pub(super) fn mark_delivered(&mut self, key: ActivationKey, group: &str, names: &[String]) {
        if let Some(group) = self.groups.get_mut(&(key, group.to_owned())) {
            let handed: BTreeSet<&String> = names.iter().collect();
            group.ended.retain(|name| !handed.contains(name));
        }
    }

    /// Returns the next time at which a wait ends because of a time.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.open().filter_map(|(_, waiter)| waiter.until).min()
    }

    /// Returns the next time at which the driver must check a wait.
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

    /// Keeps the wait for an expired question open until the expiry is durable.
    pub(super) fn await_expiry(&mut self, key: ActivationKey, name: &str) {
        self.set(key, name, WaitsFor::Expiry);
    }

    /// Marks the expiry of a question as durable.
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

    /// Returns the longest wait for a message. The waits in `before` began before the run was last idle, so they count as longer than all others, in
    /// their order.
    pub(super) fn first_receiver(&self, before: &[(ActivationKey, String)]) -> Option<(ActivationKey, u64)> {
        let receiving = self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message);
        let place = |key: ActivationKey, waiter: &NodeWait| {
            let before = before.iter().position(|(of, name)| (*of, name) == (key, &waiter.name));
            (before.unwrap_or(usize::MAX), waiter.order)
        };
        let first = receiving.min_by_key(|&(key, waiter)| place(key, waiter));
        first.map(|(key, waiter)| (key, waiter.order))
    }

    /// Lists the waits for a message, ordered from the longest wait to the shortest.
    pub(super) fn receivers(&self) -> Vec<(ActivationKey, String)> {
        let mut receiving: Vec<_> =
            self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message).collect();
        receiving.sort_by_key(|(_, waiter)| waiter.order);
        receiving.into_iter().map(|(key, waiter)| (key, waiter.name.clone())).collect()
    }

    /// Returns the position of a wait for an event among all waits, ordered by their start.
    pub(super) fn order_of(&self, key: ActivationKey, name: &str) -> Option<u64> {
        let all = self.by_activation.get(&key)?;
        all.others.iter().find(|waiter| waiter.name == name && waiter.is_open()).map(|waiter| waiter.order)
    }

    /// Marks an activation whose waits must be checked.
    pub(super) fn mark_dirty(&mut self, key: ActivationKey) {
        if self.by_activation.contains_key(&key) {
            self.dirty.insert(key);
        }
    }

    /// Marks all waiting activations, so that their waits are checked.
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

    /// Removes activations that are no longer in the log, and marks the others for a check.
    pub(super) fn refresh(&mut self, follows: impl Fn(ActivationKey) -> bool) {
        let gone: Vec<_> = self.by_activation.keys().copied().filter(|&key| !follows(key)).collect();
        gone.into_iter().for_each(|key| self.forget_activation(key));
        self.mark_all_dirty();
    }

    /// Continues from a reloaded log. `last` is the last record, including records that were created again.
    ///
    /// If the record of an expiry was refused because of a conflict, the wait is open again, because an answer may have arrived first.
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
