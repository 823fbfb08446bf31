//! Who waits here, and for what.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::id::Seq;
use crate::node::Replier;

/// What nodes that run here wait for.
#[derive(Default)]
pub(super) struct Waiting {
    by_activation: BTreeMap<ActivationKey, Vec<Waiter>>,
    /// When the driver must look although nothing happens.
    times: BTreeSet<(Timestamp, ActivationKey, String)>,
    /// How many have waited: those who wait longest are served first.
    count: u64,
    /// Activations of which something may have ended that they wait for.
    stirred: BTreeSet<ActivationKey>,
}

pub(super) struct Waiter {
    pub(super) name: String,
    pub(super) order: u64,
    pub(super) what: WaitsFor,
    /// When it is over, if time ends it.
    pub(super) until: Option<Timestamp>,
    pub(super) reply: Replier,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// A step that was done in an attempt before, or whose result is in this record, with whether it ended before others.
    Step(Option<(Seq, bool)>),
    Time,
    Message,
    Answer,
    /// An answer whose deadline is over, until that is durable.
    Expiry,
}

impl Waiter {
    fn is_open(&self) -> bool {
        !self.reply.is_closed()
    }
}

impl Waiting {
    fn open(&self) -> impl Iterator<Item = (ActivationKey, &Waiter)> {
        let all = self.by_activation.iter().flat_map(|(&key, all)| all.iter().map(move |one| (key, one)));
        all.filter(|(_, waiter)| waiter.is_open())
    }

    /// Lists what an activation waits for, without what it has given up.
    pub(super) fn of(&mut self, key: ActivationKey) -> &[Waiter] {
        let Some(all) = self.by_activation.get_mut(&key) else { return &[] };
        if !all.iter().all(Waiter::is_open) {
            let times = &mut self.times;
            all.retain(|waiter| {
                if let (false, Some(until)) = (waiter.is_open(), waiter.until) {
                    times.remove(&(until, key, waiter.name.clone()));
                }
                waiter.is_open()
            });
        }
        if all.is_empty() {
            self.by_activation.remove(&key);
            return &[];
        }
        self.by_activation.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether somebody of this activation waits who has not gone away.
    pub(super) fn waits(&self, key: ActivationKey) -> bool {
        self.by_activation.get(&key).is_some_and(|all| all.iter().any(Waiter::is_open))
    }

    /// Whether anybody waits for a message.
    pub(super) fn is_receiving(&self) -> bool {
        self.open().any(|(_, waiter)| waiter.what == WaitsFor::Message)
    }

    /// Whether anybody waits for nothing but a time.
    pub(super) fn is_sleeping(&self) -> bool {
        self.open().any(|(_, waiter)| waiter.what == WaitsFor::Time)
    }

    /// Returns when time moves the run next.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.open().filter_map(|(_, waiter)| waiter.until).min()
    }

    /// Returns when the driver must look next.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        self.times.first().map(|&(at, ..)| at)
    }

    /// Takes the next whose time has come, to be looked at.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<(Timestamp, ActivationKey, String)> {
        self.times.first().filter(|(at, ..)| *at <= now)?;
        self.times.pop_first()
    }

    pub(super) fn add(
        &mut self,
        key: ActivationKey,
        name: String,
        what: WaitsFor,
        until: Option<Timestamp>,
        reply: Replier,
    ) {
        if let Some(until) = until {
            self.times.insert((until, key, name.clone()));
        }
        self.count += 1;
        let waiter = Waiter { name, order: self.count, what, until, reply };
        self.by_activation.entry(key).or_default().push(waiter);
        self.stirred.insert(key);
    }

    /// Takes whoever waits under this name.
    pub(super) fn take(&mut self, key: ActivationKey, name: &str) -> Option<Waiter> {
        let all = self.by_activation.get_mut(&key)?;
        let at = all.iter().position(|waiter| waiter.name == name && waiter.is_open())?;
        let waiter = all.swap_remove(at);
        if all.is_empty() {
            self.by_activation.remove(&key);
        }
        if let Some(until) = waiter.until {
            self.times.remove(&(until, key, name.to_owned()));
        }
        Some(waiter)
    }

    pub(super) fn get_mut(&mut self, key: ActivationKey, name: &str) -> Option<&mut Waiter> {
        let all = self.by_activation.get_mut(&key)?;
        all.iter_mut().find(|waiter| waiter.name == name && waiter.is_open())
    }

    /// Finds who has waited longest for a message. Those who waited `before`, in their order, have waited longer than all who came since.
    pub(super) fn first_receiver(&self, before: &[(ActivationKey, String)]) -> Option<(ActivationKey, u64)> {
        let receiving = self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message);
        let place = |key: ActivationKey, waiter: &Waiter| {
            let before = before.iter().position(|(of, name)| (*of, name) == (key, &waiter.name));
            (before.unwrap_or(usize::MAX), waiter.order)
        };
        let first = receiving.min_by_key(|&(key, waiter)| place(key, waiter));
        first.map(|(key, waiter)| (key, waiter.order))
    }

    /// Lists who waits for a message, whoever has waited longest first.
    pub(super) fn receivers(&self) -> Vec<(ActivationKey, String)> {
        let mut receiving: Vec<_> =
            self.open().filter(|(_, waiter)| waiter.what == WaitsFor::Message).collect();
        receiving.sort_by_key(|(_, waiter)| waiter.order);
        receiving.into_iter().map(|(key, waiter)| (key, waiter.name.clone())).collect()
    }

    /// Returns since when somebody waits, among all.
    pub(super) fn order_of(&self, key: ActivationKey, name: &str) -> Option<u64> {
        let all = self.by_activation.get(&key)?;
        all.iter().find(|waiter| waiter.name == name && waiter.is_open()).map(|waiter| waiter.order)
    }

    /// Has an activation looked at.
    pub(super) fn stir(&mut self, key: ActivationKey) {
        if self.by_activation.contains_key(&key) {
            self.stirred.insert(key);
        }
    }

    /// Has every activation looked at that waits.
    pub(super) fn stir_all(&mut self) {
        self.stirred.extend(self.by_activation.keys().copied());
    }

    pub(super) fn take_stirred(&mut self) -> BTreeSet<ActivationKey> {
        std::mem::take(&mut self.stirred)
    }

    /// Has those whose deadline was over wait again, for that did not become durable: others may have answered.
    pub(super) fn wait_again(&mut self) {
        for (&key, all) in &mut self.by_activation {
            for waiter in all.iter_mut().filter(|waiter| waiter.what == WaitsFor::Expiry) {
                waiter.what = WaitsFor::Answer;
                self.times.extend(waiter.until.map(|until| (until, key, waiter.name.clone())));
            }
        }
    }

    /// Forgets an activation that has ended.
    pub(super) fn forget(&mut self, key: ActivationKey) {
        let Some(all) = self.by_activation.remove(&key) else { return };
        for waiter in &all {
            if let Some(until) = waiter.until {
                self.times.remove(&(until, key, waiter.name.clone()));
            }
        }
        if all.iter().any(|waiter| waiter.what == WaitsFor::Message) {
            // Somebody else has waited longest now.
            self.stir_all();
        }
    }

    /// Forgets the activations of which this does not hold.
    pub(super) fn keep(&mut self, follows: impl Fn(ActivationKey) -> bool) {
        let gone: Vec<_> = self.by_activation.keys().copied().filter(|&key| !follows(key)).collect();
        for key in gone {
            self.forget(key);
        }
    }
}
